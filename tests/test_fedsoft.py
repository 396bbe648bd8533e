"""FedSoft: rounds by hand in NumPy, its limits, and estimates in some rounds only."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse, rounds

from cfljax.algorithms import fedsoft, local
from cfljax.algorithms.fedsoft import near_centres
from cfljax.base.types import Task, Variables
from cfljax.models import linear

CLIENTS, CLUSTERS, FEATURES, STEP, PENALTY, LEAST = 5, 3, 4, 0.05, 0.7, 0.02
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
GENERATOR = np.random.default_rng(2)
CENTRES = GENERATOR.normal(size=(CLUSTERS, FEATURES)).astype("f4")
PERSONAL = GENERATOR.normal(size=(CLIENTS, FEATURES)).astype("f4")
SETTINGS: dict[str, Any] = {
    "num_clusters": CLUSTERS,
    "step_size": STEP,
    "penalty": PENALTY,
    "smallest_weight": LEAST,
    "num_steps": 3,
}


def build(**settings):
    return compiled(fedsoft(TASK, **(SETTINGS | settings)))


PLAIN = build()
SELDOM = build(rounds_between=2, participation=0.6)


def begin(algorithm=PLAIN):
    """A state with models that differ, so that no two rules agree by chance."""
    state = algorithm.init(jax.random.key(0), DATA)
    return state._replace(models=jnp.asarray(CENTRES), personal=jnp.asarray(PERSONAL))


def each_loss(i, centres):
    """`[samples, clusters]`, of a client's real samples."""
    x, y = by_hand.own(DATA, i)
    return (x @ centres.T - y[:, None]) ** 2


def importance_by_hand(i, centres, least=LEAST):
    best = each_loss(i, centres).argmin(axis=1)
    return np.maximum(np.bincount(best, minlength=len(centres)) / len(best), least)


def trained_by_hand(i, model, centres, u, penalty=PENALTY):
    for _ in range(3):
        pull = penalty * sum(u[s] * (model - c) for s, c in enumerate(centres))
        model = model - STEP * (by_hand.gradient(DATA, i, model) + pull)
    return model


def round_by_hand(centres, personal, *, shares=KEPT, least=LEAST, fresh=False):
    """Centres, personal models and importance after a round; controls: clients alike,
    another least weight, and models that start from the nearest centre."""
    u = np.array([importance_by_hand(i, centres, least) for i in range(CLIENTS)])
    start = centres[u.argmax(axis=1)] if fresh else personal
    trained = [trained_by_hand(i, start[i], centres, u[i]) for i in range(CLIENTS)]
    trained, weights = np.array(trained), shares[:, None] * u
    return weights.T @ trained / weights.sum(axis=0)[:, None], trained, u


def two_rounds(**changes):
    centres, personal, u = CENTRES.astype(float), PERSONAL.astype(float), None
    for _ in range(2):
        centres, personal, u = round_by_hand(centres, personal, **changes)
    return centres, personal, u


@functools.cache
def found():
    return rounds(PLAIN, begin(), DATA)


def check(state, expected):
    for name, one in zip(("models", "personal", "importance"), expected, strict=True):
        close(getattr(state, name), one)


# Against equations


def test_two_rounds_against_equations():
    state, info = found()
    check(state, two_rounds())
    before = round_by_hand(CENTRES, PERSONAL)[0]
    losses = [each_loss(i, before).mean(axis=0) for i in range(CLIENTS)]
    close(info.losses, losses)
    np.testing.assert_array_equal(info.assignment, state.importance.argmax(axis=1))
    answers = PLAIN.predict(state, DATA, DATA.inputs)
    close(answers, np.einsum("csf,cf->cs", DATA.inputs, state.personal))


@pytest.mark.parametrize(
    "changes",
    [{"shares": np.ones(CLIENTS)}, {"least": 0.0}, {"fresh": True}],
    ids=["clients alike", "no least weight", "from the centre"],
)
def test_another_rule_is_another_algorithm(changes):
    with pytest.raises(AssertionError):
        check(found()[0], two_rounds(**changes))


def test_bytes_are_those_of_centres_and_importance():
    _, info = found()
    model = 4 * FEATURES
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, model * CLUSTERS))
    np.testing.assert_array_equal(info.sent, np.full(CLIENTS, model + 4 * CLUSTERS))


def test_the_pull_is_that_of_all_centres():
    """Its gradient, by centres one after the other; statistics are not pulled."""
    u = np.array([0.5, 0.0, 0.7], "f4")
    lost = CENTRES.copy()
    lost[1] = np.nan  # Without importance.
    task = Task(
        init=lambda key: Variables(jnp.zeros(FEATURES), jnp.zeros(2)),
        losses=lambda params, x, y: TASK.losses(params.weights, x, y),
        predict=lambda params, x: TASK.predict(params.weights, x),
    )
    centres = Variables(jnp.asarray(lost), jnp.ones((CLUSTERS, 2)))
    fit = near_centres(task, centres, jnp.asarray(u), PENALTY).fit
    assert fit is not None
    one = tuple(leaf[0] for leaf in DATA)

    def both(params):
        loss = lambda params: jnp.mean(fit(jax.random.key(0), params, *one)[0])
        return jax.grad(loss)(params)

    params = Variables(jnp.asarray(PERSONAL[0]), jnp.ones(2))
    slope = jax.jit(both)(params)
    pull = PENALTY * sum(u[s] * (PERSONAL[0] - CENTRES[s]) for s in (0, 2))
    close(slope.weights, by_hand.gradient(DATA, 0, PERSONAL[0]) + pull)
    assert np.all(slope.statistics == 0)


# Against itself: its limits


@pytest.mark.long
@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_without_penalty_it_is_local(update):
    settings: dict[str, Any] = {"update": update, "num_steps": 1}
    alone = compiled(local(TASK, step_size=STEP, **settings))
    start = alone.init(jax.random.key(0), DATA)._replace(models=jnp.asarray(PERSONAL))
    expected, _ = rounds(alone, start, DATA)
    free = build(penalty=0.0, **settings)
    state, _ = rounds(free, begin(free), DATA)
    np.testing.assert_allclose(state.personal, expected.models, rtol=1e-6)
    differ(found()[0].personal, expected.models, rtol=1e-3, atol=0)


@pytest.mark.long
def test_estimates_are_made_now_and_then():
    """Every other round; and by who has none, whenever it is first asked."""
    state, asked = begin(SELDOM), np.zeros(CLIENTS, bool)
    for seed in range(6):
        before = np.asarray(state.importance)
        state, info = SELDOM.step(jax.random.key(seed), state, DATA)
        here = np.asarray(info.received) > 0
        assert here.sum() == 3
        due = seed % 2 == 0 or np.any(here & ~asked)
        assert np.all(np.isfinite(info.losses).all(axis=1) == (here & due))
        after = np.asarray(state.importance)
        np.testing.assert_array_equal(
            after[~here | (not due)], before[~here | (not due)]
        )
        asked |= here
        assert np.all((after > 0).all(axis=1) == asked)
    assert asked.all() and not due  # The last round went without.


@pytest.mark.long
def test_the_absent_and_the_diverged_spoil_nothing():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses)).all(axis=1)
    assert absent.sum() == 3 and np.all((np.asarray(info.sent) == 0) == absent)
    np.testing.assert_array_equal(np.asarray(state.personal)[absent], PERSONAL[absent])
    u = np.array([importance_by_hand(i, CENTRES) for i in range(CLIENTS)])
    np.testing.assert_array_equal(np.asarray(state.importance)[absent], 0)
    close(np.asarray(state.importance)[~absent], u[~absent])
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    huge = DATA._replace(inputs=DATA.inputs.at[3].set(1e25))
    for data in (empty, huge):
        state, info = PLAIN.step(jax.random.key(0), begin(), data)
        np.testing.assert_array_equal(state.personal[3], PERSONAL[3])
        assert info.assignment[3] == -1 and info.sent[3] == 0
        others = np.arange(CLIENTS) != 3
        expected = round_by_hand(CENTRES, PERSONAL, shares=KEPT * others)
        close(state.models, expected[0])


def test_a_centre_that_nobody_is_near_stays():
    """Without a least weight nothing but itself is left of it."""
    far = CENTRES.copy()
    far[1] = 1e3
    none = build(smallest_weight=0.0)
    state, _ = none.step(
        jax.random.key(0), begin()._replace(models=jnp.asarray(far)), DATA
    )
    np.testing.assert_array_equal(state.models[1], far[1])
    assert np.all(state.importance[:, 1] == 0) and np.isfinite(state.models).all()
    some, _ = PLAIN.step(
        jax.random.key(0), begin()._replace(models=jnp.asarray(far)), DATA
    )
    assert np.abs(np.asarray(some.models[1])).max() < 900


def test_a_newcomer_trains_from_its_nearest_centre():
    state, _ = found()
    new = jax.tree.map(lambda leaf: leaf[2:4], DATA)
    joined = jax.jit(PLAIN.join)(jax.random.key(0), state, new)
    centres = np.asarray(state.models, float)
    for i in (2, 3):
        u = importance_by_hand(i, centres)
        expected = trained_by_hand(i, centres[u.argmax()], centres, u)
        close(joined.personal[i - 2], expected)
        close(joined.importance[i - 2], u)
    np.testing.assert_array_equal(joined.models, state.models)


# Against misuse


test_misuse_is_named = misuse(
    build,
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
    ({"smallest_weight": -1.0}, "`smallest_weight` must not be negative"),
    ({"rounds_between": 0}, "`rounds_between` must be at least 1"),
    ({"weights": "losses"}, "weights"),
)
