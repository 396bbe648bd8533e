"""Federated-Clustering (Werner et al., Algorithms 2 and 3) by hand, attacked or not."""

import functools
import inspect
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
    ROUNDS,
    SETTINGS,
    STEP,
    TRUTH,
    Rule,
    fixed,
    rounds_of,
    updates_by_hand,
)

from cfljax.algorithms.federated_clustering import (
    State,
    draw_groups,
    federated_clustering,
)
from cfljax.attacks import build, sleeper, threat
from cfljax.base.types import ClientData
from cfljax.clustering.threshold import quantile_radius
from cfljax.federated.local_update import draw_batch
from cfljax.models import linear

close = functools.partial(by_hand.close, atol=2e-5)


def run(rounds: int = 1, data: ClientData = DATA, **changes: Any) -> list:
    """State and info after each round."""
    algorithm = federated_clustering(linear(FEATURES), **(SETTINGS | changes))
    momenta: Any = ()
    if changes.get("momentum"):
        pairs = changes.get("variant", "paper") == "paper"
        momenta = jnp.zeros((CLIENTS,) * (1 + pairs) + (FEATURES,))
    state = State(jnp.asarray(MODELS), momenta, jnp.zeros((), jnp.int32))
    return rounds_of(algorithm, state, data, rounds)


half = quantile_radius(0.5, variant="reference")

CASES: dict[str, tuple[dict[str, Any], Rule, dict[str, Any]]] = {
    "number": ({}, FIXED, {}),
    "gram": ({"form": "gram"}, FIXED, {}),
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
    "blocks": ({"models_per_chunk": 4, "order": "batched"}, FIXED, {}),
}


# Against equations


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_round_by_hand(case):
    changes, rule, options = CASES[case]
    ((state, info),) = run(**changes)
    updates, members, counts = updates_by_hand(MODELS, rule, **options)
    close(state.models, MODELS - STEP * updates)
    np.testing.assert_array_equal(info.members, members)
    np.testing.assert_array_equal(info.counts, counts)
    own = [by_hand.gradient(DATA, i, MODELS[i]) for i in range(CLIENTS)]
    at_own = lambda i: [by_hand.gradient(DATA, j, MODELS[i]) for j in range(CLIENTS)]
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


@pytest.mark.long
def test_losses_are_those_at_own_models_before_the_step():
    ((_, info),) = run()
    expected = [by_hand.loss(DATA, i, MODELS[i]) for i in range(CLIENTS)]
    np.testing.assert_allclose(info.losses, expected, rtol=1e-5)
    np.testing.assert_allclose(info.radii, np.full((CLIENTS, ROUNDS), RADIUS))


@pytest.mark.long
@pytest.mark.parametrize("num_groups", [2, 4])
def test_groups_by_hand(num_groups):
    ((state, info),) = run(num_groups=num_groups)
    groups = draw_groups(jax.random.key(0), CLIENTS, num_groups)
    sizes = [block.shape for block in groups]
    assert sizes == ([(2, 3)] if num_groups == 2 else [(2, 2), (2, 1)])
    everybody = np.concatenate([np.ravel(block) for block in groups])
    assert sorted(everybody.tolist()) == list(range(CLIENTS))
    updates, members, counts = updates_by_hand(MODELS, groups=groups)
    close(state.models, MODELS - STEP * updates)
    np.testing.assert_array_equal(info.members, members)
    np.testing.assert_array_equal(info.counts, counts)
    # A model to, and a gradient from, each other member, of three numbers.
    others = {int(i): b.shape[1] - 1 for b in groups for i in np.ravel(b)}
    expected = [2 * 4 * FEATURES * others[i] for i in range(CLIENTS)]
    assert info.received.tolist() == info.sent.tolist() == expected
    other = draw_groups(jax.random.key(1), CLIENTS, num_groups)
    assert any((a != b).any() for a, b in zip(groups, other, strict=True))
    alone, _, _ = updates_by_hand(MODELS)
    assert np.abs(STEP * (alone - updates)).max() > 0.01  # Control: groups matter.


@pytest.mark.long
def test_batches_by_hand():
    """One batch of every client, the same at all models, another in each round."""
    first, second = run(rounds=2, batch_size=2)
    draw = jax.jit(draw_batch, static_argnames="batch_size")
    batches = [draw(jax.random.key(index), DATA, batch_size=2) for index in range(2)]
    models = MODELS.astype(float)
    for batch, (state, _) in zip(batches, (first, second), strict=True):
        for i in range(CLIENTS):
            rows = by_hand.own(DATA, i)[0].tolist()
            drawn = np.asarray(batch.inputs[i]).tolist()
            places = [rows.index(row) for row in drawn]  # Real samples of its own,
            assert len(set(places)) == 2 and batch.mask[i].all()  # and no repetition.
        updates, _, _ = updates_by_hand(models, data=batch)
        models = models - STEP * updates
        close(state.models, models)
    assert (batches[0].inputs != batches[1].inputs).any()
    whole = draw(jax.random.key(0), DATA, batch_size=9)  # More than anybody has.
    np.testing.assert_array_equal(whole.mask.sum(axis=1), DATA.mask.sum(axis=1))


@pytest.mark.long
def test_momentum_after_thresholding_is_undamped():
    """m <- .5 m + v, x <- x - eta m, as the released code has it."""
    seen = run(rounds=2, momentum=0.5, variant="reference")
    models, momenta = MODELS.astype(float), np.zeros_like(MODELS)
    for state, _ in seen:
        updates, _, _ = updates_by_hand(models)
        momenta = 0.5 * momenta + updates
        models = models - STEP * momenta
        close(state.models, models)
        close(state.momenta, momenta)
    assert seen[1][0].round == 2


@pytest.mark.long
def test_momentum_of_pairs_is_thresholded():
    """m_ij <- .5 m_ij + .5 g_j(x_i), equation (6) for each pair."""
    for form in ("coordinates", "gram"):
        seen = run(rounds=2, momentum=0.5, form=form)
        models, momenta = MODELS.astype(float), np.zeros((CLIENTS, CLIENTS, FEATURES))
        for state, info in seen:
            updates, members, _ = updates_by_hand(models, momenta=momenta, keep=0.5)
            models = models - STEP * updates
            close(state.models, models)
            close(state.momenta, momenta)
            np.testing.assert_array_equal(info.members, members)


def test_a_client_without_samples():
    """Its gradient is 0: it learns from those who are near to that, and counts."""
    data = DATA._replace(mask=DATA.mask.at[4].set(False))
    ((state, info),) = run(data=data)
    updates, members, _ = updates_by_hand(MODELS, data=data)
    close(state.models, MODELS - STEP * updates)
    np.testing.assert_array_equal(info.members, members)
    assert np.flatnonzero(np.isnan(info.losses)).tolist() == [4]


def test_starts():
    build = functools.partial(federated_clustering, linear(FEATURES), **SETTINGS)
    for algorithm, equal in ((build(start="identical"), True), (build(), False)):
        models = np.asarray(algorithm.init(jax.random.key(3), DATA).models)
        assert (models == models[:1]).all() == equal


# Against equations: Byzantine clients (section 3.1.1)


U = np.full(FEATURES, -1 / math.sqrt(FEATURES))


@functools.cache
def plain_round() -> Any:
    """State after a round of honest clients."""
    return run()[-1][0]


def replaced(points: np.ndarray, group: np.ndarray, lie: Any) -> np.ndarray:
    """The lie in the rows of those of the group who lie."""
    return np.where(LIARS[group][:, None], lie, points)


def mean_of_target(points: np.ndarray, group: np.ndarray, receiver: int) -> np.ndarray:
    """Of the honest ones of the receiver's cluster; of all honest ones without them."""
    honest = ~LIARS[group]
    known = honest & (TRUTH[group] == TRUTH[receiver])
    return points[known if known.any() else honest].mean(axis=0)


def against_cluster(points, group, receiver, start, centre):
    return replaced(points, group, -0.5 * mean_of_target(points, group, receiver))


# From points, group, receiver, start and centre to what arrives.
ATTACKS = {
    "nan": ("nan", {}, lambda p, group, i, s, v: replaced(p, group, np.nan)),
    "first edge": (
        "edge_static",
        {},
        lambda p, group, i, s, v: replaced(p, group, s + 0.999 * RADIUS * U),
    ),
    "adaptive edge": (
        "edge_adaptive",
        {"adaptive": True},
        lambda p, group, i, s, v: replaced(p, group, v + 0.999 * RADIUS * U),
    ),
    "cluster": ("ipm", {"clusters": TRUTH}, against_cluster),
    "everybody": (
        "ipm",
        {},
        lambda p, group, i, s, v: replaced(
            p, group, -0.5 * p[~LIARS[group]].mean(axis=0)
        ),
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", ATTACKS)
def test_attack_by_hand(case):
    name, options, send = ATTACKS[case]
    ((state, info),) = run(threat=threat(build(name), LIARS, **options))
    adaptive = options.get("adaptive", False)
    updates, members, counts = updates_by_hand(MODELS, send=send, adaptive=adaptive)
    found = np.asarray(state.models)
    close(found[HONEST], (MODELS - STEP * updates)[HONEST])
    np.testing.assert_array_equal(info.members[HONEST], members[HONEST])
    np.testing.assert_array_equal(info.counts[HONEST], counts[HONEST])
    # What an attacker sends itself is its own affair; nobody else is NaN.
    assert np.isnan(found[LIARS]).all() == (case == "nan")
    plain, _, _ = updates_by_hand(MODELS)
    others = {"cluster": "everybody", "everybody": "cluster", "first edge": "nan"}
    other = ATTACKS[others.get(case, "first edge")][2]
    wrong, _, _ = updates_by_hand(MODELS, send=other)
    for control in (plain, wrong):
        assert np.abs(STEP * (control - updates))[HONEST].max() > 1e-3


def test_the_adaptive_edge_is_always_in_the_ball():
    """In a small ball there are the own gradient and two at its edge: of six parts of
    the centre two move along the edge, and one goes back to where it came from."""
    radius, offset = 0.01, 0.0
    attack = threat(build("edge_adaptive"), LIARS, adaptive=True)
    ((state, info),) = run(radius=radius, threat=attack)
    for _ in range(ROUNDS):
        offset += (2 * 0.999 - offset) / CLIENTS
    for i in HONEST.tolist():
        assert np.flatnonzero(info.members[i]).tolist() == sorted({i, 2, 5})
        own = by_hand.gradient(DATA, i, MODELS[i])
        moved = (MODELS[i] - np.asarray(state.models[i])) / STEP - own
        np.testing.assert_allclose(moved, offset * radius * U, rtol=0.01, atol=1e-5)


@pytest.mark.long
def test_nobody_byzantine_is_the_plain_round():
    quiet = threat(build("nan"), np.zeros(CLIENTS, bool))
    for adaptive in (False, True):
        ((found, _),) = run(threat=quiet._replace(adaptive=adaptive))
        close(found.models, plain_round().models, rtol=1e-5, atol=1e-6)


def test_masks_and_radii_may_be_swept_by_vmap():
    masks = np.array([LIARS, ~LIARS, np.zeros(CLIENTS, bool)])

    def one(mask: Any, radius: Any) -> Any:
        liars = threat(build("ipm"), mask, clusters=jnp.asarray(TRUTH))
        return run(radius=radius, threat=liars)[-1][0].models

    radii = np.array([RADIUS, RADIUS, 2.0], np.float32)
    swept = jax.jit(jax.vmap(one))(jnp.asarray(masks), jnp.asarray(radii))
    updates, _, _ = updates_by_hand(MODELS, send=against_cluster)
    close(swept[0], MODELS - STEP * updates)
    updates, _, _ = updates_by_hand(MODELS, fixed(2.0))
    close(swept[2], MODELS - STEP * updates)
    assert np.abs(np.asarray(swept[1] - swept[0])).max() > 1e-3


@pytest.mark.long
def test_attackers_in_groups_know_their_own_group():
    attack = threat(build("ipm"), LIARS, clusters=TRUTH)
    ((state, _),) = run(num_groups=2, threat=attack)
    groups = draw_groups(jax.random.key(0), CLIENTS, 2)
    updates, _, _ = updates_by_hand(MODELS, groups=groups, send=against_cluster)
    close(state.models, MODELS - STEP * updates)


def test_attackers_send_momenta():
    """With momentum of pairs it is momenta that they see and that they send."""
    attack = threat(build("ipm"), LIARS, clusters=TRUTH)
    state, _ = run(rounds=2, momentum=0.5, threat=attack)[-1]
    models, momenta = MODELS.astype(float), np.zeros((CLIENTS, CLIENTS, FEATURES))
    for _ in range(2):
        updates, _, _ = updates_by_hand(
            models, momenta=momenta, keep=0.5, send=against_cluster
        )
        models = models - STEP * updates
    close(state.models, models)
    close(state.momenta, momenta)


def test_gradients_at_three_times_the_model():
    silent = lambda key, messages, liars, context: messages
    ((state, _),) = run(radius=np.inf, threat=threat(silent, LIARS, model_factor=3.0))
    for i in range(CLIENTS):
        at = lambda j, i=i: (1 + 2 * LIARS[j]) * MODELS[i]
        gradients = [by_hand.gradient(DATA, j, at(j)) for j in range(CLIENTS)]
        expected = MODELS[i] - STEP * np.mean(gradients, axis=0)
        np.testing.assert_allclose(state.models[i], expected, rtol=1e-5, atol=1e-5)


def test_attackers_know_the_round():
    late = threat(sleeper(build("zero"), wake=1), LIARS)
    (first, _), (second, _) = run(rounds=2, threat=late)
    (plain, _), (twice, _) = run(rounds=2)
    close(first.models, plain.models, rtol=1e-5, atol=1e-6)
    moved = np.abs(np.asarray(second.models - twice.models))[HONEST]
    assert moved.max() > 1e-3


# Against misuse


LIAR = threat(build("edge_adaptive"), LIARS, adaptive=True)


test_misuse_is_named = misuse(
    functools.partial(federated_clustering, linear(3), **SETTINGS),
    (
        {"momentum": 0.5, "num_groups": 2},
        "`momentum` of pairs needs `num_groups=1`",
    ),
    ({"momentum": 1.0}, r"`momentum` must be in \[0, 1\), got 1.0"),
    ({"momentum": -0.1}, "`momentum` must be in"),
    ({"num_groups": 0}, "`num_groups` must be at least 1"),
    ({"num_clipping_rounds": 0}, "`num_clipping_rounds` must be at least 1"),
    ({"batch_size": 0}, "`batch_size` must be at least 1"),
    ({"models_per_chunk": 0}, "`models_per_chunk` must be at least 1"),
    ({"radius": -1.0}, "`radius` must not be negative, got -1.0"),
    ({"radius": np.ones(3)}, r"`radius` must be a number or a rule, got shape \(3"),
    ({"threat": LIAR, "form": "gram"}, "`form` must be 'coordinates' or None"),
)


def first_round(**changes):
    algorithm = federated_clustering(linear(3), **(SETTINGS | changes))
    state = algorithm.init(jax.random.key(0), DATA)
    jax.eval_shape(algorithm.step, jax.random.key(0), state, DATA)


test_misuse_is_named_in_the_first_round = misuse(
    first_round,
    ({"num_groups": 7}, "`num_groups` must be from 1 to the 6 clients, got 7"),
    ({"threat": LIAR, "radius": quantile_radius(0.3)}, "`radius` must be given"),
)


@pytest.mark.parametrize("named", ["variant", "edge", "start", "form", "order"])
def test_unknown_words_are_named(named):
    arguments = {"step_size": 0.1, "radius": 1.0, named: "neither"}
    unchecked = inspect.unwrap(federated_clustering)
    with pytest.raises(ValueError, match=f"`{named}` must be in"):
        unchecked(linear(3), **arguments)
