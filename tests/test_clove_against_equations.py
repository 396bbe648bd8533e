"""CLoVE, Algorithm 1: rounds by hand, in NumPy and double precision."""

import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms import clove
from cfljax.base.types import ClientData
from cfljax.data import mixed_linear
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, FEATURES, SAMPLES, GAMMA = 6, 4, 10, 0.1
TRUTH = np.array([0, 0, 0, 1, 1, 1])


def problem() -> ClientData:
    """Two clusters of three clients with 10, 9, ... 5 samples."""
    data, truth = mixed_linear(
        jax.random.key(3),
        num_clients=CLIENTS,
        num_clusters=2,
        num_samples=SAMPLES,
        num_features=FEATURES,
        separation=3.0,
        noise=0.1,
    )
    np.testing.assert_array_equal(truth.clusters, TRUTH)
    counts = SAMPLES - jnp.arange(CLIENTS)
    return data._replace(mask=jnp.arange(SAMPLES)[None, :] < counts[:, None])


def one_round(data, **settings):
    """First state, second state and info of a compiled round."""
    algorithm = clove(linear(FEATURES), num_clusters=2, step_size=GAMMA, **settings)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    after, info = jax.jit(algorithm.step)(jax.random.key(1), state, data)
    return state, after, info


def clients_of(data):
    """Inputs and targets of each client, without padding."""
    arrays = (np.asarray(leaf, float) for leaf in data[:2])
    inputs, targets = arrays
    mask = np.asarray(data.mask)
    return [(inputs[i][mask[i]], targets[i][mask[i]]) for i in range(CLIENTS)]


def loss_matrix(models, clients):
    rows = [[np.mean((x @ w - y) ** 2) for w in models] for x, y in clients]
    return np.array(rows)


def two_means(points):
    """The partition in two of least inertia, by trying all."""
    best, chosen = np.inf, np.zeros(len(points), int)
    for labels in itertools.product((0, 1), repeat=len(points)):
        labels = np.array(labels)
        if labels[0] or not labels.any():
            continue
        groups = [points[labels == c] for c in (0, 1)]
        inertia = sum(((group - group.mean(axis=0)) ** 2).sum() for group in groups)
        if inertia < best:
            best, chosen = inertia, labels
    return chosen


def by_hand(state, data, *, option, num_steps=1, root=False):
    """Models and assignment after a round (lines 6-23)."""
    clients = clients_of(data)
    models = np.asarray(state.models, float)
    losses = loss_matrix(models, clients)
    clusters = two_means(np.sqrt(losses) if root else losses)  # line 11
    cost = [
        [losses[clusters == cluster, model].sum() for model in (0, 1)]
        for cluster in (0, 1)
    ]
    swapped = cost[0][1] + cost[1][0] < cost[0][0] + cost[1][1]
    assignment = 1 - clusters if swapped else clusters  # line 12
    counts = np.array([len(y) for _, y in clients])
    new = models.copy()
    for model in (0, 1):
        members = np.flatnonzero(assignment == model)
        if not len(members):
            continue
        share = counts[members] / counts[members].sum()
        moved = []
        for client in members:
            x, y = clients[client]
            weights = models[model].copy()
            for _ in range(num_steps if option == "model" else 1):
                weights -= GAMMA * 2 * x.T @ (x @ weights - y) / len(y)
            moved.append(weights)
        new[model] = share @ np.array(moved)  # lines 22 and 23
    return new, assignment, losses


@pytest.mark.parametrize(
    "settings",
    [
        {"option": "model", "num_steps": 3},
        {"option": "gradient"},
        {"option": "model", "embedding": "square_root"},
    ],
    ids=["I", "II", "root"],
)
def test_a_round_by_hand(settings):
    data = problem()
    state, after, info = one_round(data, **settings)
    models, assignment, losses = by_hand(
        state,
        data,
        option=settings["option"],
        num_steps=settings.get("num_steps", 1),
        root="embedding" in settings,
    )
    np.testing.assert_allclose(info.losses, losses, rtol=1e-5)
    np.testing.assert_array_equal(info.assignment, assignment)
    np.testing.assert_allclose(after.models, models, rtol=1e-4, atol=1e-5)
    # The control: equal weights of the clients are other models.
    counts = np.full(CLIENTS, 7)
    even = data._replace(mask=jnp.arange(SAMPLES)[None, :] < counts[:, None])
    other, _, _ = by_hand(state, even, option=settings["option"])
    assert np.abs(other - models).max() > 1e-3


def test_the_anchor_holds_the_models_received_and_mean_loss_vectors():
    data = problem()
    state, after, info = one_round(data)
    np.testing.assert_array_equal(after.anchor.models, state.models)
    losses, assignment = np.asarray(info.losses), np.asarray(info.assignment)
    means = [losses[assignment == model].mean(axis=0) for model in (0, 1)]
    np.testing.assert_allclose(after.anchor.centroids, means, rtol=1e-5)


def test_bytes_are_models_and_loss_vectors():
    _, _, info = one_round(problem())
    model, vector = 4 * FEATURES, 4 * 2
    assert info.received.tolist() == [2 * model] * CLIENTS
    assert info.sent.tolist() == [model + vector] * CLIENTS


def test_a_random_first_round_asks_for_no_losses():
    data = problem()
    algorithm = clove(
        linear(FEATURES),
        num_clusters=2,
        step_size=GAMMA,
        first_round="random",
    )
    step: Any = jax.jit(algorithm.step)
    state = algorithm.init(jax.random.key(0), data)
    drawn = set()
    for seed in range(4):
        after, info = step(jax.random.key(seed), state, data)
        assert np.isnan(info.losses).all()
        assert np.isnan(after.anchor.centroids).all()
        assert info.received.tolist() == [4 * FEATURES] * CLIENTS
        drawn.add(tuple(info.assignment.tolist()))
    assert len(drawn) > 1
    _, info = step(jax.random.key(9), after, data)
    assert np.isfinite(info.losses).all()
    assert len(set(info.assignment[:3].tolist())) == 1


def test_identical_models_are_identical():
    state, _, info = one_round(problem(), start="identical")
    np.testing.assert_array_equal(state.models[0], state.models[1])
    np.testing.assert_array_equal(info.losses[:, 0], info.losses[:, 1])
    independent, _, _ = one_round(problem())
    assert not np.array_equal(independent.models[0], independent.models[1])


def test_epochs_and_optimisers_are_the_local_update_s():
    data = problem()
    update = LocalUpdate(batch_size=2, num_epochs=2)
    _, after, info = one_round(data, update=update)
    _, plain, _ = one_round(data)
    assert np.abs(np.asarray(after.models) - np.asarray(plain.models)).max() > 1e-3
    assert len(set(info.assignment.tolist())) == 2
