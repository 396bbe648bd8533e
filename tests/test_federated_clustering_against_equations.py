"""Rounds of Federated-Clustering (Werner et al., Algorithms 2 and 3) by hand."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from thresholded import CLIENTS, DATA, FEATURES, MODELS, Rule, gradient_by_hand
from thresholded import updates_by_hand as pairs_by_hand

from cfljax.algorithms.federated_clustering import (
    State,
    draw_groups,
    federated_clustering,
)
from cfljax.base.types import ClientData
from cfljax.clustering.threshold import quantile_radius
from cfljax.federated.local_update import draw_batch
from cfljax.models import linear

STEP, ROUNDS, RADIUS = 0.1, 3, 5.0
updates_by_hand = functools.partial(pairs_by_hand, num_rounds=ROUNDS)


def run(
    rounds: int = 1,
    models: np.ndarray = MODELS,
    data: ClientData = DATA,
    **changes: Any,
) -> list[tuple[Any, Any]]:
    """State and info after each round."""
    arguments = {
        "step_size": STEP,
        "radius": RADIUS,
        "num_clipping_rounds": ROUNDS,
    } | changes
    algorithm = federated_clustering(linear(FEATURES), **arguments)
    momenta: Any = ()
    if changes.get("momentum"):
        pairs = changes.get("variant", "paper") == "paper"
        momenta = jnp.zeros((CLIENTS,) * (1 + pairs) + (FEATURES,))
    state = State(jnp.asarray(models), momenta, jnp.zeros((), jnp.int32))
    step, seen = jax.jit(algorithm.step), []
    for index in range(rounds):
        state, info = step(jax.random.key(index), state, data)
        seen.append((state, info))
    return seen


def close(found: Any, expected: Any) -> None:
    """Equal up to a round in single precision."""
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


fixed = lambda radius: lambda distances: radius
half = quantile_radius(0.5, variant="reference")

CASES: dict[str, tuple[dict[str, Any], Rule, dict[str, Any]]] = {
    "number": ({}, fixed(RADIUS), {}),
    "gram": ({"form": "gram"}, fixed(RADIUS), {}),
    "zero": ({"radius": 0.0}, fixed(1e-9), {}),  # By hand in spite of rounding.
    "infinite": ({"radius": np.inf}, fixed(np.inf), {}),
    # Position .5 x 5 of the six distances; the released index is floor(.5 x 6), which
    # lets in one point more, and a strict edge takes it out again.
    "quantile": ({"radius": quantile_radius(0.5)}, lambda d: (d[2] + d[3]) / 2, {}),
    "released quantile": ({"radius": half}, lambda distances: distances[3], {}),
    "released edge": (
        {"radius": half, "edge": "reference"},
        lambda distances: distances[3],
        {"strict": True},
    ),
    "blocks": ({"models_per_chunk": 4, "order": "batched"}, fixed(RADIUS), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_round_by_hand(case):
    changes, rule, options = CASES[case]
    ((state, info),) = run(**changes)
    updates, members, counts = updates_by_hand(MODELS, rule, **options)
    close(state.models, MODELS - STEP * updates)
    np.testing.assert_array_equal(info.members, members)
    np.testing.assert_array_equal(info.counts, counts)
    own = [gradient_by_hand(DATA, i, MODELS[i]) for i in range(CLIENTS)]
    at_own = lambda i: [gradient_by_hand(DATA, j, MODELS[i]) for j in range(CLIENTS)]
    in_ball = {"quantile": 3, "released quantile": 4, "released edge": 3}.get(case)
    assert in_ball is None or (counts == in_ball).all()
    if case == "zero":  # All N terms of (4) are the own gradient: a whole step alone.
        np.testing.assert_allclose(updates, own, rtol=1e-12)
    if case == "infinite":
        means = np.array([np.mean(at_own(i), axis=0) for i in range(CLIENTS)])
        np.testing.assert_allclose(updates, means, rtol=1e-12)
    if case == "number":
        assert 1 < counts.min() < counts.max()
        # Control: the mean of those in the ball is another algorithm.
        wrong, _, _ = updates_by_hand(MODELS, rule, divide_by="members")
        assert np.abs(STEP * (wrong - updates)).max() > 0.01
        assert np.abs(STEP * (np.array(own) - updates)).max() > 0.01


def test_losses_are_those_at_own_models_before_the_step():
    ((_, info),) = run()
    for i in range(CLIENTS):
        kept = np.asarray(DATA.mask[i])
        x, y = np.asarray(DATA.inputs[i])[kept], np.asarray(DATA.targets[i])[kept]
        expected = np.mean((x @ MODELS[i] - y) ** 2)
        np.testing.assert_allclose(info.losses[i], expected, rtol=1e-5)
    np.testing.assert_allclose(info.radii, np.full((CLIENTS, ROUNDS), RADIUS))


@pytest.mark.parametrize("num_groups", [2, 4])
def test_groups_by_hand(num_groups):
    ((state, info),) = run(num_groups=num_groups)
    groups = draw_groups(jax.random.key(0), CLIENTS, num_groups)
    sizes = [block.shape for block in groups]
    assert sizes == ([(2, 3)] if num_groups == 2 else [(2, 2), (2, 1)])
    everybody = np.concatenate([np.ravel(block) for block in groups])
    assert sorted(everybody.tolist()) == list(range(CLIENTS))
    updates, members, counts = updates_by_hand(MODELS, fixed(RADIUS), groups=groups)
    close(state.models, MODELS - STEP * updates)
    np.testing.assert_array_equal(info.members, members)
    np.testing.assert_array_equal(info.counts, counts)
    # A model to, and a gradient from, each other member, of three numbers.
    others = {int(i): b.shape[1] - 1 for b in groups for i in np.ravel(b)}
    expected = [2 * 4 * FEATURES * others[i] for i in range(CLIENTS)]
    assert info.received.tolist() == info.sent.tolist() == expected
    other = draw_groups(jax.random.key(1), CLIENTS, num_groups)
    assert any((a != b).any() for a, b in zip(groups, other, strict=True))
    alone, _, _ = updates_by_hand(MODELS, fixed(RADIUS))
    assert np.abs(STEP * (alone - updates)).max() > 0.01  # Control: groups matter.


def test_batches_by_hand():
    """One batch of every client, the same at all models, another in each round."""
    first, second = run(rounds=2, batch_size=2)
    draw = jax.jit(draw_batch, static_argnames="batch_size")
    batches = [draw(jax.random.key(index), DATA, batch_size=2) for index in range(2)]
    models = MODELS.astype(float)
    for batch, (state, _) in zip(batches, (first, second), strict=True):
        for i in range(CLIENTS):
            rows = np.asarray(DATA.inputs[i])[np.asarray(DATA.mask[i])].tolist()
            drawn = np.asarray(batch.inputs[i]).tolist()
            places = [rows.index(row) for row in drawn]  # Real samples of its own,
            assert len(set(places)) == 2 and batch.mask[i].all()  # and no repetition.
        updates, _, _ = updates_by_hand(models, fixed(RADIUS), data=batch)
        models = models - STEP * updates
        close(state.models, models)
    assert (batches[0].inputs != batches[1].inputs).any()
    whole = draw(
        jax.random.key(0), DATA, batch_size=9
    )  # Larger than any client's data.
    np.testing.assert_array_equal(whole.mask.sum(axis=1), DATA.mask.sum(axis=1))


def test_momentum_after_thresholding_is_undamped():
    """m <- .5 m + v, x <- x - eta m, as the released code has it."""
    seen = run(rounds=2, momentum=0.5, variant="reference")
    models, momenta = MODELS.astype(float), np.zeros_like(MODELS)
    for state, _ in seen:
        updates, _, _ = updates_by_hand(models, fixed(RADIUS))
        momenta = 0.5 * momenta + updates
        models = models - STEP * momenta
        close(state.models, models)
        close(state.momenta, momenta)
    assert seen[1][0].round == 2


def test_momentum_of_pairs_is_thresholded():
    """m_ij <- .5 m_ij + .5 g_j(x_i), equation (6) for each pair."""
    for form in ("coordinates", "gram"):
        seen = run(rounds=2, momentum=0.5, form=form)
        models, momenta = MODELS.astype(float), np.zeros((CLIENTS, CLIENTS, FEATURES))
        for state, info in seen:
            updates, members, _ = updates_by_hand(
                models, fixed(RADIUS), momenta=momenta, keep=0.5
            )
            models = models - STEP * updates
            close(state.models, models)
            close(state.momenta, momenta)
            np.testing.assert_array_equal(info.members, members)


def test_a_client_without_samples():
    """Its gradient is 0: it learns from those who are near to that, and counts."""
    data = DATA._replace(mask=DATA.mask.at[4].set(False))
    ((state, info),) = run(data=data)
    updates, members, _ = updates_by_hand(MODELS, fixed(RADIUS), data=data)
    close(state.models, MODELS - STEP * updates)
    np.testing.assert_array_equal(info.members, members)
    assert np.flatnonzero(np.isnan(info.losses)).tolist() == [4]


def test_starts():
    task, key = linear(FEATURES), jax.random.key(3)
    arguments: dict[str, Any] = {"step_size": STEP, "radius": RADIUS}
    apart = federated_clustering(task, **arguments)
    same = federated_clustering(task, start="identical", **arguments)
    for algorithm, equal in ((same, True), (apart, False)):
        models = np.asarray(algorithm.init(key, DATA).models)
        assert (models == models[:1]).all() == equal
