"""StoCFL: rounds in NumPy, its limits, who joins whom, and what is never parted."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse

from cfljax.algorithms import fedavg, stocfl
from cfljax.algorithms.stocfl import _connected
from cfljax.models import linear

CLIENTS, FEATURES, STEP, PENALTY, SIMILARITY = 6, 4, 0.05, 0.7, 0.9
GROUPS = np.array([0, 1, 0, 1, 2, 0])
KEPT = np.array([8, 6, 5, 8, 7, 8])  # Real samples of each client.
TASK = linear(FEATURES)
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "similarity": SIMILARITY,
    "penalty": PENALTY,
    "num_steps": 2,
}


def draw():
    """Clients of a group have one model, and nearly the same gradient at 0."""
    data = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
    truths = np.random.default_rng(5).normal(size=(3, FEATURES)).astype("f4")
    inputs = np.sqrt(FEATURES) * np.eye(FEATURES, dtype="f4")
    inputs = inputs[np.arange(8) % FEATURES] + 0.1 * np.asarray(data.inputs)
    targets = np.einsum("csf,cf->cs", inputs, truths[GROUPS])
    return by_hand.padded(inputs, targets, KEPT)


DATA = draw()
START = np.array([0.5, -0.2, 0.1, 0.3], "f4")


def build(**changes):
    return compiled(stocfl(TASK, **(SETTINGS | changes)))


FULL, HALF = build(), build(participation=0.5)


@jax.jit
def traced_step(penalty, similarity, key, state, data):
    """A round of any penalty and similarity, compiled once."""
    algorithm = stocfl(TASK, **(SETTINGS | settings(penalty, similarity)))
    return algorithm.step(key, state, data)


def settings(penalty, similarity):
    return {"penalty": penalty, "similarity": similarity}


def with_limits(penalty, similarity):
    step = functools.partial(traced_step, penalty, similarity)
    return FULL._replace(step=step)


def begin(algorithm, data=DATA, anchor=None):
    """A start of our own, an anchor that is 0, and the directions that belong to it."""
    state = algorithm.init(jax.random.key(0), data)
    anchor = np.zeros(FEATURES, "f4") if anchor is None else anchor
    moves = [STEP * by_hand.gradient(data, i, anchor) for i in range(CLIENTS)]
    return state._replace(
        model=jnp.asarray(START),
        anchor=jnp.asarray(anchor),
        directions=jnp.asarray(np.stack(moves), "float32"),
    )


def cosine(a, b):
    return a @ b / np.sqrt(a @ a * (b @ b))


class ByHand:
    """The server with sets of clients, a model for each that was ever trained."""

    def __init__(self, penalty=PENALTY, similarity=SIMILARITY, mean_of="asked"):
        self.model, self.penalty, self.similarity = START, penalty, similarity
        self.clusters = [({i}, None) for i in range(CLIENTS)]
        self.seen, self.mean_of = set(), mean_of
        zero = np.zeros(FEATURES)
        self.moves = [by_hand.gradient(DATA, i, zero) for i in range(CLIENTS)]

    def direction(self, members, asked):
        counted = members & (asked if self.mean_of == "asked" else self.seen | asked)
        return np.mean([self.moves[i] for i in counted], axis=0)

    def merge(self, asked):
        """Steps 1 and 2."""
        here = [c for c in self.clusters if c[0] & asked]
        pointing = [self.direction(members, asked) for members, _ in here]
        parts = [{a} for a in range(len(here))]
        for a in range(len(here)):
            for b in range(a):
                if cosine(pointing[a], pointing[b]) >= self.similarity:
                    one, two = (next(p for p in parts if x in p) for x in (a, b))
                    if one is not two:
                        parts.remove(two)
                        one |= two
        others = [c for c in self.clusters if not c[0] & asked]
        for part in parts:
            members = set().union(*(here[a][0] for a in part))
            known = [here[a] for a in part if here[a][1] is not None]
            known = sorted(known, key=lambda c: (-len(c[0] & self.seen), min(c[0])))
            others.append((members, known[0][1] if known else None))
        self.clusters = others
        self.seen |= asked

    def near(self, i, theta):
        for _ in range(2):
            pull = self.penalty * (theta - self.model)
            theta = theta - STEP * (by_hand.gradient(DATA, i, theta) + pull)
        return theta

    def round(self, asked):
        self.merge(asked)
        after = []
        for members, theta in self.clusters:
            if members & asked:
                theta = self.model if theta is None else theta
                trained = [self.near(i, theta) for i in sorted(members & asked)]
                theta = np.mean(trained, axis=0)
            after.append((members, theta))
        self.clusters = after
        alone = functools.partial(by_hand.trained, DATA, step_size=STEP, num_steps=2)
        self.model = np.mean([alone(i, self.model) for i in sorted(asked)], axis=0)

    def answers(self):
        """The model of each client."""
        found = {i: theta for members, theta in self.clusters for i in members}
        own = [found[i] for i in range(CLIENTS)]
        return np.stack([self.model if theta is None else theta for theta in own])

    def members(self):
        found = np.zeros((CLIENTS, CLIENTS), bool)
        for members, _ in self.clusters:
            found[np.ix_(sorted(members), sorted(members))] = True
        return found


def follow(algorithm, hand, num_rounds) -> tuple[Any, Any]:
    """Rounds of both; the last state and information, and who was ever asked."""
    state, info = begin(algorithm), None
    for seed in range(num_rounds):
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        asked = np.flatnonzero(np.isfinite(info.losses))
        hand.round(set(asked.tolist()))
    return state, info


def answers(algorithm, state):
    """The parameters that clients answer with."""
    axes = np.broadcast_to(np.eye(FEATURES, dtype="f4"), (CLIENTS, FEATURES, FEATURES))
    return algorithm.predict(state, DATA, jnp.asarray(axes))


# Against equations


@pytest.mark.parametrize("algorithm", [FULL, HALF], ids=["all", "half"])
def test_rounds_against_equations(algorithm):
    hand = ByHand()
    state, info = follow(algorithm, hand, 4)
    close(state.model, hand.model)
    close(answers(algorithm, state), hand.answers())
    np.testing.assert_array_equal(state.members, hand.members())
    assert 1 < len(hand.clusters) < CLIENTS, "some are merged, not all"
    assert int(info.number) == sum(bool(c[0] & hand.seen) for c in hand.clusters)
    asked = np.isfinite(np.asarray(info.losses))
    lowest = hand.members().argmax(axis=1)
    np.testing.assert_array_equal(info.assignment, np.where(asked, lowest, -1))


@pytest.mark.parametrize(
    "wrong", [{"penalty": 0.0}, {"similarity": 0.999}, {"similarity": -1.0}]
)
def test_other_rules_are_other_models(wrong):
    """Controls: clusters apart from the global model, fewer merges and more."""
    hand = ByHand(**wrong)
    state, _ = follow(FULL, hand, 4)
    close(state.model, hand.model)
    differ(answers(FULL, state), hand.answers())


def test_the_first_losses_are_those_of_the_global_model():
    state, info = FULL.step(jax.random.key(0), begin(FULL), DATA)
    expected = [by_hand.loss(DATA, i, START) for i in range(CLIENTS)]
    close(info.losses, expected)
    close(info.common_losses, expected)
    _, later = FULL.step(jax.random.key(1), state, DATA)
    own = np.asarray(answers(FULL, state))
    close(later.losses, [by_hand.loss(DATA, i, own[i]) for i in range(CLIENTS)])
    differ(later.losses, later.common_losses)


def test_directions_are_gradients_of_the_anchor():
    state = FULL.init(jax.random.key(0), DATA)
    anchor = np.asarray(state.anchor)
    expected = [STEP * by_hand.gradient(DATA, i, anchor) for i in range(CLIENTS)]
    close(state.directions, expected, rtol=1e-4, atol=1e-6)
    further = build(num_anchor_steps=3, anchor_step_size=0.1)
    found = further.init(jax.random.key(0), DATA).directions
    steps = {"step_size": 0.1, "num_steps": 3}
    moved = [by_hand.trained(DATA, i, anchor, **steps) for i in range(CLIENTS)]
    close(found, anchor - np.stack(moved), rtol=1e-4, atol=1e-6)
    differ(found, expected, rtol=1e-2)


def test_a_message_counts_its_first_time():
    model = 4 * FEATURES
    state, first = FULL.step(jax.random.key(0), begin(FULL), DATA)
    _, later = FULL.step(jax.random.key(1), state, DATA)
    for info, models in ((first, 3), (later, 2)):
        assert info.received.tolist() == [models * model] * CLIENTS
        assert info.sent.tolist() == [models * model] * CLIENTS


# Against theory: limits


def test_the_global_model_is_that_of_fedavg():
    """The released one is passed from client to client, so that it hangs on their
    order, and on the first ones least."""
    state, _ = FULL.step(jax.random.key(0), begin(FULL), DATA)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=2, weights="clients"))
    start = other.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(START))
    expected, _ = other.step(jax.random.key(0), start, DATA)
    np.testing.assert_array_equal(state.model, expected.model)
    passed, model = [], START
    for i in range(CLIENTS):
        model = by_hand.trained(DATA, i, model, step_size=STEP, num_steps=2)
        passed.append(model)
    differ(state.model, np.mean(passed, axis=0))


@pytest.mark.long
def test_one_cluster_without_penalty_is_fedavg():
    whole = with_limits(0.0, -1.0)
    state, info = by_hand.rounds(whole, begin(whole), DATA)
    assert int(info.number) == 1
    close(state.models, np.broadcast_to(state.model, (CLIENTS, FEATURES)))
    apart, _ = by_hand.rounds(FULL, begin(FULL), DATA)
    differ(apart.models, np.broadcast_to(apart.model, (CLIENTS, FEATURES)))


def test_nobody_merged_without_penalty_is_local():
    alone = with_limits(0.0, 1.0)
    state, info = by_hand.rounds(alone, begin(alone), DATA)
    steps = {"step_size": STEP, "num_steps": 4}
    expected = [by_hand.trained(DATA, i, START, **steps) for i in range(CLIENTS)]
    assert int(info.number) == CLIENTS
    close(state.models, expected)


# Against itself


def test_chains_of_links_are_clusters():
    links = np.eye(7, dtype=bool)
    for a, b in ((0, 6), (6, 3), (3, 5), (1, 4)):
        links[a, b] = links[b, a] = True
    names = np.array([0, 1, 2, 0, 1, 0, 0])
    found = jax.jit(_connected)(links)
    np.testing.assert_array_equal(found, names[:, None] == names[None, :])
    assert found[0, 5] and not links[0, 5]


def test_a_trained_model_is_not_lost_to_a_client_never_seen():
    """A part that has no model counts for nothing, though its name is lower and its
    size the same: the released code drops the trained model there."""
    state = begin(FULL)
    kept = np.array([9.0, 9.0, 9.0, 9.0], "f4")
    state = state._replace(
        seen=state.seen.at[2].set(True), models=state.models.at[2].set(kept)
    )
    _, info = FULL.step(jax.random.key(0), state, DATA)
    close(info.losses[0], by_hand.loss(DATA, 0, kept))
    close(info.losses[1], by_hand.loss(DATA, 1, START))


def test_the_absent_follow_their_cluster():
    """Members who were not asked have the model that the others made; clients never
    seen the global one."""
    state, _ = FULL.step(jax.random.key(0), begin(FULL), DATA)
    after, info = HALF.step(jax.random.key(3), state, DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    for i in np.flatnonzero(absent):
        asked = np.asarray(after.members)[i] & ~absent
        same = np.array_equal(after.models[i], state.models[i])
        assert same != asked.any()
        if asked.any():
            close(after.models[i], after.models[asked.argmax()])
    first, told = HALF.step(jax.random.key(3), begin(HALF), DATA)
    unseen = np.isnan(np.asarray(told.losses))
    close(answers(HALF, first)[unseen], np.broadcast_to(first.model, (3, FEATURES)))


def test_clients_without_samples_or_directions_spoil_nobody():
    empty = DATA._replace(mask=DATA.mask.at[2].set(False))
    wild = DATA._replace(inputs=DATA.inputs.at[2].multiply(1e25))
    others = np.arange(CLIENTS) != 2
    for data in (empty, wild):
        state = FULL.init(jax.random.key(0), data)
        state, info = by_hand.rounds(FULL, state, data)
        assert int(info.assignment[2]) == -1 and not bool(state.seen[2])
        assert np.asarray(state.members)[2].sum() == 1
        assert np.isfinite(state.model).all() and np.isfinite(state.models).all()
        assert (np.asarray(info.assignment)[others] >= 0).all()


def test_newcomers_join_who_points_their_way_or_train_alone():
    state, _ = by_hand.rounds(FULL, begin(FULL), DATA)
    truth = np.array([1.0, 1.0, -1.0, 1.0], "f4")
    other = DATA._replace(targets=DATA.targets.at[4].set(DATA.inputs[4] @ truth))
    turned = DATA._replace(targets=DATA.targets.at[4].multiply(-1.0))
    join = jax.jit(FULL.join)
    joined = join(jax.random.key(1), state, other)
    close(joined.models[:4], state.models[:4])
    theta = np.asarray(state.model)
    for _ in range(2):
        pull = PENALTY * (theta - np.asarray(state.model))
        theta = theta - STEP * (by_hand.gradient(other, 4, theta) + pull)
    close(joined.models[4], theta)
    # The third group points away from the first one.
    close(join(jax.random.key(1), state, turned).models[4], state.models[0])
    differ(joined.models[4], state.models[4])


@pytest.mark.long
def test_optimisers_that_are_kept_are_those_of_participants():
    algorithm = build(update=UPDATE, num_steps=1, participation=0.5)
    state = algorithm.init(jax.random.key(0), DATA)
    after, info = algorithm.step(jax.random.key(0), state, DATA)
    asked = np.isfinite(np.asarray(info.losses))
    moments = jax.tree.leaves(after.cluster_state.moments)
    for leaf in moments:
        moved = np.abs(np.asarray(leaf)).reshape(CLIENTS, -1).max(axis=1) > 0
        np.testing.assert_array_equal(moved, asked)


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(stocfl, TASK, step_size=STEP),
    ({"similarity": 1.1}, r"`similarity` must be in \[-1, 1\], got 1.1"),
    ({"similarity": 0.5, "penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
    ({"similarity": 0.5, "num_anchor_steps": 0}, "`num_anchor_steps` must be at least"),
    ({"similarity": 0.5, "weights": "equal"}, "weights"),
)
