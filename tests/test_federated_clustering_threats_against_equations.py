"""Federated-Clustering among Byzantine clients, by hand (Werner et al., 3.1.1)."""

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from thresholded import CLIENTS, DATA, FEATURES, MODELS, TRUTH, gradient_by_hand
from thresholded import updates_by_hand as pairs_by_hand

from cfljax.algorithms.federated_clustering import (
    State,
    draw_groups,
    federated_clustering,
)
from cfljax.attacks import build, sleeper, threat
from cfljax.models import linear

STEP, ROUNDS, RADIUS = 0.1, 3, 5.0
LIARS = np.isin(np.arange(CLIENTS), [2, 5])
HONEST = np.flatnonzero(~LIARS)
U = np.full(FEATURES, -1 / math.sqrt(FEATURES))
updates_by_hand = functools.partial(
    pairs_by_hand, rule=lambda distances: RADIUS, num_rounds=ROUNDS
)


def run(rounds: int = 1, **changes: Any) -> tuple[Any, Any]:
    """State and info of the last round."""
    arguments = {
        "step_size": STEP,
        "radius": RADIUS,
        "num_clipping_rounds": ROUNDS,
    } | changes
    algorithm = federated_clustering(linear(FEATURES), **arguments)
    momenta: Any = ()
    if changes.get("momentum"):
        momenta = jnp.zeros((CLIENTS, CLIENTS, FEATURES))
    state = State(jnp.asarray(MODELS), momenta, jnp.zeros((), jnp.int32))
    step, info = jax.jit(algorithm.step), None
    for index in range(rounds):
        state, info = step(jax.random.key(index), state, DATA)
    return state, info


def replaced(points: np.ndarray, group: np.ndarray, lie: Any) -> np.ndarray:
    """The lie in the rows of those of the group who lie."""
    return np.where(LIARS[group][:, None], lie, points)


def mean_of_target(points: np.ndarray, group: np.ndarray, receiver: int) -> np.ndarray:
    """Of the honest ones of the receiver's cluster; of all honest ones without them."""
    honest = ~LIARS[group]
    known = honest & (TRUTH[group] == TRUTH[receiver])
    return points[known if known.any() else honest].mean(axis=0)


def to_nan(points, group, receiver, start, centre):
    return replaced(points, group, np.nan)


def to_edge(points, group, receiver, start, centre):
    return replaced(points, group, centre + 0.999 * RADIUS * U)


def to_first_edge(points, group, receiver, start, centre):
    return replaced(points, group, start + 0.999 * RADIUS * U)


def against_cluster(points, group, receiver, start, centre):
    return replaced(points, group, -0.5 * mean_of_target(points, group, receiver))


def against_all(points, group, receiver, start, centre):
    return replaced(points, group, -0.5 * points[~LIARS[group]].mean(axis=0))


CASES = {
    "nan": ("nan", {}, to_nan),
    "first edge": ("edge_static", {}, to_first_edge),
    "adaptive edge": ("edge_adaptive", {"adaptive": True}, to_edge),
    "cluster": ("ipm", {"clusters": TRUTH}, against_cluster),
    "everybody": ("ipm", {}, against_all),
}


@pytest.mark.parametrize("case", CASES)
def test_attack_by_hand(case):
    name, options, send = CASES[case]
    state, info = run(threat=threat(build(name), LIARS, **options))
    adaptive = options.get("adaptive", False)
    updates, members, counts = updates_by_hand(MODELS, send=send, adaptive=adaptive)
    expected = MODELS - STEP * updates
    found = np.asarray(state.models)
    np.testing.assert_allclose(found[HONEST], expected[HONEST], rtol=2e-5, atol=2e-5)
    np.testing.assert_array_equal(info.members[HONEST], members[HONEST])
    np.testing.assert_array_equal(info.counts[HONEST], counts[HONEST])
    # What an attacker sends itself is its own affair; nobody else is NaN.
    assert np.isnan(found[LIARS]).all() == (case == "nan")
    plain, _, _ = updates_by_hand(MODELS)
    others = {"cluster": "everybody", "everybody": "cluster", "first edge": "nan"}
    other = CASES[others.get(case, "first edge")][2]
    wrong, _, _ = updates_by_hand(MODELS, send=other)
    for control in (plain, wrong):
        assert np.abs(STEP * (control - updates))[HONEST].max() > 1e-3


def test_the_adaptive_edge_is_always_in_the_ball():
    """In a small ball there are the own gradient and two at its edge: of six parts of
    the centre two move along the edge, and one goes back to where it came from."""
    radius, offset = 0.01, 0.0
    attack = threat(build("edge_adaptive"), LIARS, adaptive=True)
    state, info = run(radius=radius, threat=attack)
    for _ in range(ROUNDS):
        offset += (2 * 0.999 - offset) / CLIENTS
    for i in HONEST.tolist():
        assert np.flatnonzero(info.members[i]).tolist() == sorted({i, 2, 5})
        own = gradient_by_hand(DATA, i, MODELS[i])
        moved = (MODELS[i] - np.asarray(state.models[i])) / STEP - own
        np.testing.assert_allclose(moved, offset * radius * U, rtol=0.01, atol=1e-5)


def test_nobody_byzantine_is_the_plain_round():
    quiet = threat(build("nan"), np.zeros(CLIENTS, bool))
    plain, _ = run()
    for adaptive in (False, True):
        found, _ = run(threat=quiet._replace(adaptive=adaptive))
        np.testing.assert_allclose(found.models, plain.models, rtol=1e-5, atol=1e-6)


def test_masks_and_radii_may_be_swept_by_vmap():
    masks = np.array([LIARS, ~LIARS, np.zeros(CLIENTS, bool)])

    def one(mask: Any, radius: Any) -> Any:
        liars = threat(build("ipm"), mask, clusters=jnp.asarray(TRUTH))
        return run(radius=radius, threat=liars)[0].models

    radii = np.array([RADIUS, RADIUS, 2.0], np.float32)
    swept = jax.jit(jax.vmap(one))(jnp.asarray(masks), jnp.asarray(radii))
    updates, _, _ = updates_by_hand(MODELS, send=against_cluster)
    np.testing.assert_allclose(swept[0], MODELS - STEP * updates, rtol=2e-5, atol=2e-5)
    updates, _, _ = pairs_by_hand(MODELS, lambda distances: 2.0, num_rounds=ROUNDS)
    np.testing.assert_allclose(swept[2], MODELS - STEP * updates, rtol=2e-5, atol=2e-5)
    assert np.abs(np.asarray(swept[1] - swept[0])).max() > 1e-3


def test_attackers_in_groups_know_their_own_group():
    attack = threat(build("ipm"), LIARS, clusters=TRUTH)
    state, _ = run(num_groups=2, threat=attack)
    groups = draw_groups(jax.random.key(0), CLIENTS, 2)
    updates, _, _ = updates_by_hand(MODELS, groups=groups, send=against_cluster)
    expected = MODELS - STEP * updates
    np.testing.assert_allclose(state.models, expected, rtol=2e-5, atol=2e-5)


def test_attackers_send_momenta():
    """With momentum of pairs it is momenta that they see and that they send."""
    attack = threat(build("ipm"), LIARS, clusters=TRUTH)
    state, _ = run(rounds=2, momentum=0.5, threat=attack)
    models, momenta = MODELS.astype(float), np.zeros((CLIENTS, CLIENTS, FEATURES))
    for _ in range(2):
        updates, _, _ = updates_by_hand(
            models, momenta=momenta, keep=0.5, send=against_cluster
        )
        models = models - STEP * updates
    np.testing.assert_allclose(state.models, models, rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(state.momenta, momenta, rtol=2e-5, atol=2e-5)


def test_gradients_at_three_times_the_model():
    silent = lambda key, messages, liars, context: messages
    state, _ = run(radius=np.inf, threat=threat(silent, LIARS, model_factor=3.0))
    for i in range(CLIENTS):
        at = lambda j, i=i: (1 + 2 * LIARS[j]) * MODELS[i]
        gradients = [gradient_by_hand(DATA, j, at(j)) for j in range(CLIENTS)]
        expected = MODELS[i] - STEP * np.mean(gradients, axis=0)
        np.testing.assert_allclose(state.models[i], expected, rtol=1e-5, atol=1e-5)


def test_attackers_know_the_round():
    late = threat(sleeper(build("zero"), wake=1), LIARS)
    plain, _ = run()
    first, _ = run(threat=late)
    np.testing.assert_allclose(first.models, plain.models, rtol=1e-5, atol=1e-6)
    twice, _ = run(rounds=2)
    second, _ = run(rounds=2, threat=late)
    moved = np.abs(np.asarray(second.models - twice.models))[HONEST]
    assert moved.max() > 1e-3
