"""FedDrift: time steps in NumPy, its limits, drifts that come and go, and merges."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import close, compiled, differ, misuse

from cfljax.algorithms import fedavg, feddrift
from cfljax.algorithms.feddrift import cluster_distances
from cfljax.models import linear

CLIENTS, FEATURES, STEP, STEPS, ROOM, ROUNDS = 6, 3, 0.2, 8, 4, 2
KEPT = np.array([8, 6, 5, 8, 7, 8])  # Real samples of each client.
TRUTHS = np.array([[1, 0, 0], [-2, 1, 0], [0, -2, 2]], "f4")
# Concepts of the clients in each time step.
CONCEPTS = np.array(
    [
        [0, 0, 0, 0, 0, 0],
        [0, 0, 0, 0, 0, 0],
        [0, 1, 0, 1, 0, 0],
        [0, 1, 0, 1, 2, 1],
        [1, 1, 0, 1, 2, 1],
    ]
)
# Nobody is quite like the others, so that each loses least with a model of its own.
OWN = 0.2 * np.random.default_rng(9).normal(size=(CLIENTS, FEATURES))
TASK = linear(FEATURES)
THRESHOLD = 1.0
SETTINGS: dict[str, Any] = {
    "num_clusters": ROOM,
    "step_size": STEP,
    "num_steps": STEPS,
    "step_rounds": ROUNDS,
    "threshold": THRESHOLD,
}


def draw(step):
    """New samples of every client, of what it is about in a time step."""
    inputs = np.random.default_rng(step).normal(size=(CLIENTS, 8, FEATURES))
    targets = np.einsum("csf,cf->cs", inputs, TRUTHS[CONCEPTS[step]] + OWN)
    return by_hand.padded(inputs, targets, KEPT)


DATA = [draw(step) for step in range(len(CONCEPTS))]


def build(**changes):
    return compiled(feddrift(TASK, **(SETTINGS | changes)))


PAPER, EAGER = build(), build(variant="eager")


class ByHand:
    """The server with a list of places, each of them a model or nothing."""

    def __init__(self, start, threshold=THRESHOLD, is_eager=False, merges=True):
        self.models = [start.astype(float)] + [None] * (ROOM - 1)
        self.threshold, self.is_eager, self.merges = threshold, is_eager, merges
        self.clusters = np.zeros(CLIENTS, int)
        self.remembered = np.full(CLIENTS, np.inf)
        self.last, self.weight = np.full(ROOM, -1), np.zeros(ROOM)
        self.drifted = np.zeros(CLIENTS, bool)

    def loss(self, m, data, i):
        model = self.models[m]
        return np.inf if model is None else by_hand.loss(data, i, model)

    def begin(self, step, data):
        table = np.array(
            [[self.loss(m, data, i) for m in range(ROOM)] for i in range(CLIENTS)]
        )
        best, least = table.argmin(axis=1), table.min(axis=1)
        self.drifted = least > self.remembered + self.threshold
        self.remembered = least
        free = [m for m in range(ROOM) if m not in best]
        age = lambda m: self.last[m] if self.models[m] is not None else -1
        free = sorted(free, key=lambda m: (age(m), m))
        self.clusters, new = best.copy(), set()
        for i in np.flatnonzero(self.drifted):
            if self.is_eager and new:
                self.clusters[i] = next(iter(new))
            elif free:
                m = free.pop(0)
                self.models[m], self.weight[m] = self.models[best[i]].copy(), 0
                self.clusters[i] = m
                new.add(m)
        for m in self.clusters:
            self.weight[m] += 1
            self.last[m] = step
        if self.merges and not self.is_eager and step:
            self.merge(table, data, new)

    def distance(self, table, a, b):
        sizes = np.asarray(data_sizes())

        def mean(model, cluster):
            own = self.clusters == cluster
            return np.average(table[own, model], weights=sizes[own])

        gain = (mean(a, b) - mean(a, a), mean(b, a) - mean(b, b))
        return max(*gain, 0)

    def merge(self, table, data, new):
        """Complete linkage, by hand: groups of models, the nearest two first."""
        groups = [[m] for m in sorted(set(self.clusters) - new)]
        far = lambda a, b: max(self.distance(table, x, y) for x in a for y in b)
        while len(groups) > 1:
            pairs = [(a, b) for i, a in enumerate(groups) for b in groups[i + 1 :]]
            one, two = min(pairs, key=lambda pair: far(*pair))
            if far(one, two) > self.threshold:
                break
            groups.remove(two)
            one += two
        for group in groups:
            kept, *others = sorted(group)
            if not others:
                continue
            models = [self.models[m] for m in group]
            mean = np.average(models, axis=0, weights=self.weight[group])
            self.models[kept] = mean
            self.weight[kept] = self.weight[group].sum()
            for m in others:
                self.models[m], self.weight[m], self.last[m] = None, 0, -1
                self.clusters[self.clusters == m] = kept

    def train(self, data):
        trained = functools.partial(
            by_hand.trained, data, step_size=STEP, num_steps=STEPS
        )
        for m in set(self.clusters):
            own = np.flatnonzero(self.clusters == m)
            models = [trained(i, self.models[m]) for i in own]
            self.models[m] = np.average(models, axis=0, weights=KEPT[own])


def data_sizes():
    return KEPT


def follow(algorithm, hand_of, each=lambda *_: None) -> tuple[Any, ByHand]:
    """All time steps of both, `each` looking on at the end of every round."""
    state = algorithm.init(jax.random.key(0), DATA[0])
    hand = hand_of(np.asarray(state.models)[0])
    for step, data in enumerate(DATA):
        for index in range(ROUNDS):
            if not index:
                hand.begin(step, data)
            state, info = algorithm.step(jax.random.key(index), state, data)
            hand.train(data)
            each(step, state, hand, info)
    return state, hand


def same(step, state, hand, info):
    np.testing.assert_array_equal(state.clusters, hand.clusters)
    np.testing.assert_array_equal(info.assignment, hand.clusters)
    used = [model is not None for model in hand.models]
    np.testing.assert_array_equal(state.known.used, used)
    assert int(info.number) == sum(used)
    np.testing.assert_array_equal(state.known.weight, hand.weight)
    np.testing.assert_array_equal(state.known.last, hand.last)
    close(state.remembered, hand.remembered, rtol=1e-3, atol=1e-5)
    for m in np.flatnonzero(used):
        close(state.models[m], hand.models[m], rtol=1e-4, atol=1e-5)


# Against equations


@pytest.mark.parametrize("variant", ["feddrift", "eager"])
def test_time_steps_against_equations(variant):
    is_eager = variant == "eager"
    algorithm = EAGER if is_eager else PAPER
    seen, sizes = [], []

    def look(step, state, hand, info):
        same(step, state, hand, info)
        seen.append(np.asarray(info.drifted))
        sizes.append(int(info.number))

    follow(algorithm, functools.partial(ByHand, is_eager=is_eager), look)
    drifts = np.array(seen)[::ROUNDS]
    assert not drifts[0].any() and not drifts[1].any()
    np.testing.assert_array_equal(drifts[2], CONCEPTS[2] != CONCEPTS[1])
    assert drifts[3][4] and not drifts[3][5], "one is new, one is known by now"
    # Two are isolated apart and then merged; or share a model from the start.
    assert sizes[2 * ROUNDS] == (2 if is_eager else 3)
    assert sizes[-1] == 3


def test_clusters_in_the_end_are_the_concepts():
    state, _ = follow(PAPER, ByHand)
    found = np.asarray(state.clusters)
    together = found[:, None] == found[None, :]
    last = CONCEPTS[-1]
    np.testing.assert_array_equal(together, last[:, None] == last[None, :])


@pytest.mark.parametrize(
    "wrong", [{"is_eager": True}, {"merges": False}, {"threshold": 100.0}]
)
def test_other_rules_are_other_clusters(wrong):
    """Controls: models shared from the start, never merged, and no drift seen."""
    with pytest.raises(AssertionError):
        follow(PAPER, functools.partial(ByHand, **wrong), same)


def test_distances_against_equations():
    losses = np.random.default_rng(3).uniform(size=(5, 3)).astype("f4")
    losses[:2, 0] *= 0.1  # Everybody loses little under its own model.
    losses[2:4, 1] *= 0.1
    losses[4, 2] = np.inf  # Of a model that nobody near it is judged by.
    sizes, clusters = np.array([4.0, 2, 1, 3, 5], "f4"), np.array([0, 0, 1, 1, -1])
    found, there = cluster_distances(*map(jnp.asarray, (losses, sizes, clusters)))
    mean = lambda i, j: np.average(
        losses[clusters == j, i], weights=sizes[clusters == j]
    )
    gain = mean(0, 1) - mean(0, 0), mean(1, 0) - mean(1, 1)
    close(found[0, 1], max(*gain, 0))
    close(found[1, 0], found[0, 1])
    assert there.tolist() == [True, True, False]
    other = mean(1, 0) - mean(0, 0), mean(0, 1) - mean(1, 1)
    differ(found[0, 1], max(*other, 0))  # Another model's loss on the same cluster.


def test_a_message_counts_the_models_of_a_time_step():
    model, scalar = 4 * FEATURES, 4
    state = PAPER.init(jax.random.key(0), DATA[0])
    traffic = []
    for step in (0, 2, 3):
        for index in range(ROUNDS):
            state, info = PAPER.step(jax.random.key(index), state, DATA[step])
            traffic.append((info.received.tolist()[0], info.sent.tolist()[0]))
    for (down, up), asked in zip(traffic, (1, 0, 1, 0, 3, 0), strict=True):
        assert (down, up) == ((1 + asked) * model, model + asked * scalar)


# Against theory: limits


@pytest.mark.long
def test_without_drift_it_is_fedavg():
    """An infinite threshold, on data that drift."""
    never = build(threshold=np.inf)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=STEPS))
    state = never.init(jax.random.key(0), DATA[0])
    expected = other.init(jax.random.key(0), DATA[0])
    for seed, data in enumerate(DATA):
        for _ in range(ROUNDS):
            state, info = never.step(jax.random.key(seed), state, data)
            expected, _ = other.step(jax.random.key(seed), expected, data)
    assert int(info.number) == 1
    close(state.models[0], expected.model, rtol=1e-6)
    drifting, _ = follow(PAPER, ByHand)
    differ(drifting.models[0], expected.model)


@pytest.mark.long
def test_clients_that_begin_alone_are_merged_as_far_as_is_allowed():
    def algorithm(height):
        changes: dict[str, Any] = {"num_clusters": CLIENTS, "first_clusters": "own"}
        return feddrift(TASK, **(SETTINGS | changes), merge_threshold=height)

    step = jax.jit(lambda height, *rest: algorithm(height).step(*rest))
    start = algorithm(0.0).init(jax.random.key(0), DATA[0])
    assert start.clusters.tolist() == list(range(CLIENTS))
    number = {}
    for height in (0.0, 100.0):
        state = start
        for index in range(ROUNDS + 1):
            state, info = step(height, jax.random.key(index), state, DATA[0])
            if index < ROUNDS:
                assert int(info.number) == CLIENTS
        number[height] = len(set(state.clusters.tolist()))
    assert number[100.0] == 1 < number[0.0]


# Against itself


@pytest.mark.long
def test_where_there_is_no_room_drifting_clients_stay():
    """Two drift, one place is free: the first of them gets it."""
    narrow = build(num_clusters=2)
    state = narrow.init(jax.random.key(0), DATA[0])
    for step in (0, 1, 2):
        for index in range(ROUNDS):
            state, info = narrow.step(jax.random.key(index), state, DATA[step])
            if step == 2 and index == 0:
                assert info.drifted.tolist() == (CONCEPTS[2] == 1).tolist()
    assert state.clusters.tolist() == [0, 1, 0, 0, 0, 0]


def test_places_are_given_to_the_models_longest_without_clients():
    state = PAPER.init(jax.random.key(0), DATA[0])
    for step in range(2):
        for index in range(ROUNDS):
            state, _ = PAPER.step(jax.random.key(index), state, DATA[step])
    far = np.full(FEATURES, 50.0, "f4")
    known = state.known._replace(
        used=jnp.ones(ROOM, bool), last=jnp.array([1, 0, 1, 0], jnp.int32)
    )
    models = jnp.stack([state.models[0], far, far, far])
    state = state._replace(models=models, known=known)
    after, _ = PAPER.step(jax.random.key(0), state, DATA[2])
    assert after.clusters.tolist() == [0, 1, 0, 3, 0, 0]
    assert after.known.weight.tolist()[1:] == [1, 0, 1]


def test_a_lost_client_and_a_diverged_model_spoil_nobody():
    wild = DATA[0]._replace(inputs=DATA[0].inputs.at[2].multiply(1e25))
    empty = DATA[0]._replace(mask=DATA[0].mask.at[2].set(False))
    for data in (wild, empty):
        state = PAPER.init(jax.random.key(0), data)
        state, info = by_hand.rounds(PAPER, state, data, 3)
        assert int(state.clusters[2]) == -1 and int(info.assignment[2]) == -1
        assert np.isfinite(state.models).all()
        assert state.clusters.tolist() == [0, 0, -1, 0, 0, 0]
        # It comes back when its samples are in order.
        state, _ = by_hand.rounds(PAPER, state, DATA[0], 2)
        assert state.clusters.tolist() == [0] * CLIENTS
    lost = state._replace(
        models=state.models.at[1].set(jnp.nan),
        known=state.known._replace(used=state.known.used.at[1].set(True)),
        round=jnp.zeros_like(state.round) + ROUNDS,
    )
    after, info = PAPER.step(jax.random.key(0), lost, DATA[0])
    assert after.clusters.tolist() == [0] * CLIENTS
    assert np.isfinite(after.models[0]).all()


def test_newcomers_take_the_model_in_use_that_they_lose_least_with():
    state, hand = follow(PAPER, ByHand)
    joined = PAPER.join(jax.random.key(0), state, DATA[2])
    table = [[hand.loss(m, DATA[2], i) for m in range(ROOM)] for i in range(CLIENTS)]
    np.testing.assert_array_equal(joined.clusters, np.argmin(table, axis=1))
    # A place that nobody uses is nobody's, however good what is in it.
    free = [model is None for model in hand.models].index(True)
    state = state._replace(models=state.models.at[free].set(TRUTHS[0]))
    again = PAPER.join(jax.random.key(0), state, DATA[2])
    np.testing.assert_array_equal(again.clusters, joined.clusters)


# Against misuse


def test_room_for_own_models_is_asked_for():
    crowded = build(first_clusters="own")
    message = "`num_clusters` must be at least 6, the number of clients, .*, got 4"
    with pytest.raises(ValueError, match=message):
        crowded.init(jax.random.key(0), DATA[0])


test_misuse_is_named = misuse(
    lambda **changes: feddrift(TASK, **(SETTINGS | changes)),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1"),
    ({"step_rounds": 0}, "`step_rounds` must be at least 1"),
    ({"threshold": -1.0}, "`threshold` must not be negative"),
    ({"merge_threshold": -1.0}, "`merge_threshold` must not be negative"),
    ({"variant": "lazy"}, "variant"),
    ({"first_clusters": "all"}, "first_clusters"),
)
