"""Rounds of Momentum-Clustering (Werner et al., Algorithm 4) by hand."""

import functools
import math
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import misuse
from thresholded import (
    CLIENTS,
    DATA,
    FEATURES,
    FIXED,
    HONEST,
    LIARS,
    MODELS,
    RADIUS,
    SETTINGS,
    STEP,
    TRUTH,
    clustered,
    fixed,
    rounds_of,
)

from cfljax.algorithms.momentum_clustering import State, momentum_clustering
from cfljax.attacks import build, threat
from cfljax.base.types import ClientData, Task
from cfljax.clustering.kmeans import plus_plus
from cfljax.clustering.threshold import quantile_radius
from cfljax.federated.local_update import draw_batch
from cfljax.models import linear

CLUSTERS = 2
WARM: dict[str, Any] = {"centre_start": "warm", "num_clusters": CLUSTERS}


def run(rounds: int = 2, data: ClientData = DATA, **changes: Any) -> list[tuple]:
    """State and info after each round, from models of their own."""
    algorithm = momentum_clustering(linear(FEATURES), **(SETTINGS | changes))
    models, centres = jnp.asarray(MODELS), None
    if changes.get("centre_start") == "warm":
        centres = jnp.zeros((CLUSTERS, FEATURES))
    state = State(models, jnp.zeros_like(models), centres, jnp.zeros((), jnp.int32))
    return rounds_of(algorithm, state, data, rounds)


def gradients_by_hand(models: np.ndarray, data: ClientData = DATA) -> np.ndarray:
    return np.array([by_hand.gradient(data, i, models[i]) for i in range(CLIENTS)])


def moves_by_hand(
    points: np.ndarray, rule: Any, **options: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Each client's own centre and who is in its ball."""
    found = [clustered(points, point, rule, **options) for point in points]
    return np.array([row[0] for row in found]), np.array([row[1] for row in found])


# Equal up to two rounds in single precision.
close = functools.partial(by_hand.close, rtol=3e-5, atol=3e-5)
CASES: dict[str, tuple[dict[str, Any], Any, tuple[float, float]]] = {
    # The weight of the gradient in the first round, and in the second.
    "zero": ({}, FIXED, (0.1, 0.1)),
    "gradient": (
        {"gradient_weight": 0.3, "first_momentum": "gradient"},
        FIXED,
        (1.0, 0.3),
    ),
    "no memory": ({"gradient_weight": 1.0}, FIXED, (1.0, 1.0)),
    "gram": ({"gradient_weight": 0.6, "form": "gram"}, FIXED, (0.6, 0.6)),
    "rule": (
        {"gradient_weight": 0.6, "radius": quantile_radius(0.6)},
        lambda distances: distances[3],
        (0.6, 0.6),
    ),
}


# Against equations


@pytest.mark.parametrize("case", CASES)
def test_two_rounds_of_members_by_hand(case):
    changes, rule, weights = CASES[case]
    models, momenta = MODELS.astype(float), np.zeros_like(MODELS, float)
    for weight, (state, info) in zip(weights, run(**changes), strict=True):
        gradients = gradients_by_hand(models)
        momenta = weight * gradients + (1 - weight) * momenta
        moves, members = moves_by_hand(momenta, rule)
        models = models - STEP * moves
        close(state.momenta, momenta)
        close(state.models, models)
        np.testing.assert_array_equal(info.members, members)
    assert info.assignment is None and state.centres is None and state.round == 2
    assert set(np.ravel([info.received, info.sent])) == {4 * FEATURES}
    # Control: without the memory the last round is another.
    forgetful, _ = moves_by_hand(gradients_by_hand(np.asarray(models)), rule)
    assert np.abs(STEP * (forgetful - moves)).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("first", ["zero", "gradient"])
def test_two_warm_rounds_by_hand(first):
    """Centres go on where they ended; a client moves along the nearest."""
    weights = (0.4, 0.4) if first == "zero" else (1.0, 0.4)
    seen = run(gradient_weight=0.4, radius=2.0, first_momentum=first, **WARM)
    rule = fixed(2.0)
    models, momenta = MODELS.astype(float), np.zeros_like(MODELS, float)
    centres = np.zeros((CLUSTERS, FEATURES))
    drawn = []
    for index, (weight, (state, info)) in enumerate(zip(weights, seen, strict=True)):
        momenta = weight * gradients_by_hand(models) + (1 - weight) * momenta
        if index == 0:  # Two of the momenta.
            key = jax.random.fold_in(jax.random.key(0), 1)
            points = jnp.asarray(momenta.astype(np.float32))
            draw = jax.jit(plus_plus, static_argnames="num_clusters")
            everybody = jnp.ones(CLIENTS, bool)
            centres = np.asarray(draw(key, points, everybody, num_clusters=CLUSTERS))
            away = np.abs(centres[:, None] - momenta[None]).max(axis=-1)
            drawn = np.flatnonzero(away.min(axis=0) < 1e-5)
        found = [clustered(momenta, v, rule) for v in centres]
        centres = np.array([row[0] for row in found])
        distances = np.linalg.norm(momenta[:, None] - centres[None], axis=-1)
        nearest = distances.argmin(axis=1)
        models = models - STEP * centres[nearest]
        close(state.centres, centres)
        close(state.models, models)
        np.testing.assert_array_equal(info.assignment, nearest)
        balls = np.array([row[1] for row in found])
        np.testing.assert_array_equal(info.members, balls[nearest])
    assert len(drawn) == CLUSTERS and len(set(nearest.tolist())) == CLUSTERS
    moves, _ = moves_by_hand(momenta, rule)
    assert np.abs(STEP * (moves - centres[nearest])).max() > 1e-3  # Not of members.


@pytest.mark.long
def test_batches_are_those_of_the_round():
    ((state, _),) = run(rounds=1, batch_size=2, gradient_weight=1.0)
    batch = jax.jit(lambda key: draw_batch(key, DATA, 2))(jax.random.key(0))
    close(state.momenta, gradients_by_hand(MODELS, batch))


def line(optima: np.ndarray) -> tuple[Task, ClientData]:
    """Losses (x - a)^2 / 2 of one number, with one sample a for each client."""
    task = Task(
        init=lambda key: jnp.zeros(()),
        losses=lambda model, inputs, targets: jnp.square(model - targets) / 2,
        predict=lambda model, inputs: jnp.broadcast_to(model, inputs.shape[:1]),
    )
    targets = jnp.asarray(optima, jnp.float32)[:, None]
    return task, ClientData(jnp.zeros_like(targets), targets, targets == targets)


@pytest.mark.parametrize(
    ("centre_start", "radius", "places"),
    [
        ("member", 0.1, [9, 9.9, 9.99]),
        ("member", 1.0, [9, 9.9, 9.9]),
        ("warm", 0.1, [9, 18, 9]),
    ],
)
def test_what_vanishing_momenta_do_to_centres(centre_start, radius, places):
    """Steps of .9 take gradients from 10 to 1 in a round: out of the balls of centres
    that are kept from the round before, between which clients then swing for ever.
    Members start anew; but groups within a radius of each other stop each other."""
    task, data = line(np.array([10.0, 10, -10, -10]))
    algorithm = momentum_clustering(
        task,
        step_size=0.9,
        radius=radius,
        gradient_weight=1.0,
        centre_start=centre_start,
        num_clusters=2 if centre_start == "warm" else None,
    )
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    step, models = jax.jit(algorithm.step), []
    for index in range(3):
        state, _ = step(jax.random.key(index), state, data)
        models.append(np.asarray(state.models))
    expected = np.outer(places, [1, 1, -1, -1])
    np.testing.assert_allclose(models, expected, rtol=1e-5)


@pytest.mark.parametrize("adaptive", [False, True])
def test_attackers_of_members_by_hand(adaptive):
    name = "edge_adaptive" if adaptive else "ipm"
    liars = threat(build(name), LIARS, clusters=TRUTH, target=1, adaptive=adaptive)
    ((state, info),) = run(rounds=1, gradient_weight=1.0, threat=liars)
    momenta = gradients_by_hand(MODELS)
    u = np.full(FEATURES, -1 / math.sqrt(FEATURES))
    mean = momenta[~LIARS & (TRUTH == 1)].mean(axis=0)
    lie = lambda points, v: np.where(
        LIARS[:, None], v + 0.999 * RADIUS * u if adaptive else -0.5 * mean, points
    )
    sent = momenta if adaptive else lie(momenta, None)
    moves, members = moves_by_hand(sent, FIXED, resend=lie if adaptive else None)
    close(state.momenta, momenta)  # What they keep is what they measured.
    close(state.models[HONEST], (MODELS - STEP * moves)[HONEST])
    np.testing.assert_array_equal(info.members[HONEST], members[HONEST])
    honest, _ = moves_by_hand(momenta, FIXED)
    assert np.abs(STEP * (honest - moves))[HONEST].max() > 1e-3


@pytest.mark.long
def test_attackers_who_send_no_number():
    liars = threat(build("nan"), LIARS)
    for changes in ({}, WARM):
        ((state, info),) = run(rounds=1, gradient_weight=1.0, threat=liars, **changes)
        models = np.asarray(state.models)
        assert np.isfinite(models[HONEST]).all() and np.isnan(models[LIARS]).all()
        assert not info.members[:, LIARS].any()
        assert not info.members[LIARS].any()  # They have no centre.
        assert info.members[HONEST].any(axis=1).all()
        if changes:
            assert (np.asarray(info.assignment) == -1).tolist() == LIARS.tolist()


# Against itself


def test_the_default_is_no_printed_warm_start():
    """A centre for each client starts at its momentum; the printed one is kept."""
    build = functools.partial(momentum_clustering, linear(FEATURES), **SETTINGS)
    first = lambda algorithm: algorithm.init(jax.random.key(0), DATA).centres
    assert first(build()) is None
    assert first(build(**WARM)).shape == (CLUSTERS, FEATURES)
    plain, member = run(), run(centre_start="member")
    np.testing.assert_array_equal(plain[-1][0].models, member[-1][0].models)


# Against misuse

ADAPTIVE = threat(build("nan"), LIARS, adaptive=True)


test_misuse_is_named = misuse(
    functools.partial(momentum_clustering, linear(3), **SETTINGS),
    ({"gradient_weight": 0.0}, r"`gradient_weight` must be in \(0, 1\], got 0.0"),
    ({"gradient_weight": 1.1}, "`gradient_weight` must be in"),
    ({"num_clusters": 2}, "`num_clusters` belongs to `centre_start='warm'`"),
    ({"centre_start": "warm"}, "`num_clusters` must be given with"),
    (WARM | {"num_clusters": 0}, "`num_clusters` must be at least 1"),
    (WARM | {"form": "gram"}, "`form='gram'`"),
    (
        WARM | {"threat": ADAPTIVE},
        "`threat` may be adaptive with `centre_start='member'` only",
    ),
    ({"radius": np.ones(2)}, r"`radius` must be a number or a rule, got shape \(2"),
    ({"form": "gram", "threat": ADAPTIVE}, "`form` must be 'coordinates' or None"),
    ({"num_clipping_rounds": 0}, "`num_clipping_rounds` must be at least 1"),
    ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ({"centres_per_chunk": 0}, "`centres_per_chunk` must be at least 1"),
    ({"clients_per_chunk": 0}, "`clients_per_chunk` must be at least 1"),
)
