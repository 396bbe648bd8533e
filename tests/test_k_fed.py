"""k-FED: clients' centres, the centre's choice of k of them, and who joins."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import misuse, padded

from cfljax import engine
from cfljax.algorithms import k_fed, oracle
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES = 6, 12, 3
CENTRES = 8 * np.eye(3, dtype=np.float32)


def problem(owners, seed=0):
    """Client i's samples lie around the centres that row i of `owners` names."""
    generator = np.random.default_rng(seed)
    owners = np.asarray(owners)
    inputs = CENTRES[owners] + generator.normal(size=(CLIENTS, SAMPLES, FEATURES))
    return padded(inputs, np.zeros((CLIENTS, SAMPLES)), [SAMPLES] * CLIENTS)


@functools.cache
def start(**settings) -> Any:
    return jax.jit(k_fed(linear(FEATURES), step_size=0.1, **settings).init)


def clusters(data, seed=0, **settings):
    return start(**settings)(jax.random.key(seed), data).clusters.tolist()


WHOLE = np.repeat([[0], [0], [1], [1], [2], [2]], SAMPLES, axis=1)


# Against equations


def test_means_by_hand():
    # With one cluster of its own a client sends the mean of its samples: the first
    # client's, the farthest from it, and the farthest from both are the start.
    data = problem(WHOLE)
    rows = np.concatenate([data.inputs, data.targets[:, :, None]], axis=2)
    means = rows.mean(axis=1)
    squares = lambda chosen: ((means[:, None] - means[chosen][None]) ** 2).sum(axis=2)
    chosen = [0]
    for _ in range(2):
        chosen.append(int(squares(chosen).min(axis=1).argmax()))
    found = clusters(data, num_clusters=3)
    assert found == squares(chosen).argmin(axis=1).tolist()
    assert found[0] == found[1] != found[2] == found[3] != found[4] == found[5]


@pytest.mark.long
def test_samples_of_several_clusters_are_told_apart():
    # Two thirds of a client's samples around one centre, a third around another.
    owners = WHOLE.copy()
    owners[:, :4] = (owners[:, :4] + 1) % 3
    data = problem(owners)
    found = clusters(data, num_clusters=3, num_local_clusters=2)
    assert len(set(found)) == 3
    assert found[0] == found[1] and found[2] == found[3] and found[4] == found[5]


@pytest.mark.long
def test_iterations_of_the_released_code_move_the_start():
    # The first client and the farthest are the start. Client 2 is nearer to the
    # farthest one, until the first centre has moved to the mean of its members.
    places = np.array([0.0, 4.8, 5.2, 10.0, 4.9, 4.9])
    inputs = np.zeros((CLIENTS, SAMPLES, FEATURES), np.float32)
    inputs[:, :, 0] = places[:, None]
    data = problem(WHOLE)._replace(inputs=jnp.asarray(inputs))
    assert clusters(data, num_clusters=2) == [0, 0, 1, 1, 0, 0]
    assert (0 + 4.8 + 4.9 + 4.9) / 4 + (5.2 + 10) / 2 > 2 * 5.2
    assert clusters(data, num_clusters=2, variant="reference") == [0, 0, 0, 1, 0, 0]


@pytest.mark.slow
def test_linear_models_of_one_input_law_look_alike():
    """What CLoVE's Figure 3 shows: means at the origin say nothing of the models."""
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(CLIENTS, 200, FEATURES)).astype(np.float32)
    models = 3 * np.eye(3, dtype=np.float32)[[0, 0, 1, 1, 2, 2]]
    data = padded(inputs, np.einsum("csf,cf->cs", inputs, models), [200] * CLIENTS)
    right = 0
    for seed in range(3):
        found = clusters(data, seed=seed, num_clusters=3)
        right += found[0] == found[1] != found[2] == found[3] != found[4] == found[5]
    assert right == 0


# Against itself


@pytest.mark.long
def test_after_the_clustering_it_is_the_oracle_of_its_clusters():
    data = problem(WHOLE)
    algorithm = k_fed(linear(FEATURES), num_clusters=3, step_size=0.01)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    known = oracle(
        linear(FEATURES),
        clusters=state.clusters,
        num_clusters=3,
        step_size=0.01,
        option="model",
        weights="samples",
    )
    other = known.init(jax.random.key(1), data)._replace(models=state.models)
    keep = lambda state, info: (state.models, info.sent)

    def run(algorithm, state):
        fixed = algorithm._replace(init=lambda key, data: state)
        return jax.jit(
            lambda key: engine.run(fixed, key, data, num_rounds=2, observe=keep)
        )(jax.random.key(2))[1]

    models, sent = run(algorithm, state)
    expected, _ = run(known, other)
    np.testing.assert_allclose(models, expected, rtol=1e-6)
    model, centre = 4 * FEATURES, 4 * (FEATURES + 1)
    assert (sent[0] == model + 1 + centre).all() and (sent[1] == model + 1).all()


def test_clients_without_samples_belong_nowhere():
    data = problem(WHOLE)
    data = data._replace(mask=data.mask.at[0].set(False))
    found = clusters(data, num_clusters=3)
    assert found[0] == -1 and found[2] == found[3] != found[4] == found[5]


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(clusters, problem(WHOLE)),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"num_clusters": 2, "num_local_clusters": 0}, "`num_local_clusters` must"),
    ({"num_clusters": 7}, "`num_clusters` must be at most 6, the centres that cl"),
    ({"num_clusters": 2, "points": "targets"}, "points"),
    ({"num_clusters": 2, "variant": "code"}, "variant"),
)
