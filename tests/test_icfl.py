"""ICFL: rounds in NumPy, its limits, what connectivity is, and three repaired rules."""

import functools
import importlib
import itertools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import UPDATE, close, compiled, differ, misuse

from cfljax.algorithms import fedavg, icfl
from cfljax.algorithms.icfl import RATE, _bisected, _nearest_clusters, _numbered
from cfljax.base.decompositions import eigenvectors
from cfljax.models import linear

CLIENTS, FEATURES, ROOM, STEP, STEPS = 8, 4, 4, 0.05, 2
GROUPS = np.array([0, 1, 0, 2, 1, 0, 2, 1])
KEPT = np.array([8, 6, 5, 8, 7, 8, 6, 5])  # Real samples of each client.
TASK = linear(FEATURES)
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "max_clusters": ROOM,
    "num_steps": STEPS,
}
START = np.array([0.1, -0.2, 0.1, 0.2], "f4")
PACE = 0.5  # Of alpha, and its limit, in most tests.
LIMIT = 0.9


def draw():
    """Clients of a group have one model, and nearly the same gradient anywhere."""
    data = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
    truths = 2 * np.eye(FEATURES, dtype="f4")[:3]
    inputs = np.sqrt(FEATURES) * np.eye(FEATURES, dtype="f4")
    inputs = inputs[np.arange(8) % FEATURES] + 0.1 * np.asarray(data.inputs)
    targets = np.einsum("csf,cf->cs", inputs, truths[GROUPS])
    return by_hand.padded(inputs, targets, KEPT)


DATA = draw()


def build(**changes):
    return icfl(TASK, **(SETTINGS | changes))


@functools.partial(jax.jit, static_argnames="participation")
def traced_step(rate, limit, key, state, data, participation):
    """A round of any rate and limit, compiled once for each participation."""
    algorithm = build(rate=rate, limit=limit, participation=participation)
    return algorithm.step(key, state, data)


def at(rate=PACE, limit=LIMIT, participation=1.0):
    step = functools.partial(traced_step, rate, limit, participation=participation)
    return build()._replace(step=step)


FULL, HALF = at(), at(participation=0.5)


def begin(data=DATA):
    state = build().init(jax.random.key(0), data)
    return state._replace(models=jnp.asarray(np.tile(START, (1 + ROOM, 1))))


def cosine(a, b):
    return a @ b / np.sqrt(a @ a * (b @ b))


def two_means(points):
    """Who is apart from the first point, in the best of all bipartitions."""
    spread = lambda part: np.sum((part - part.mean(axis=0)) ** 2)
    found = []
    for rest in itertools.product((False, True), repeat=len(points) - 1):
        second = np.array([False, *rest])
        if second.any():
            found.append((spread(points[second]) + spread(points[~second]), rest))
    return np.array([False, *min(found)[1]])


class ByHand:
    """The server with lists; `wrong` names a rule of the released code that is not
    ours: a client joins the "last" cluster, members are rows of the wrong matrix, or
    the pool's absent are "lost"; or, "asked", one that is nobody's."""

    def __init__(self, wrong="", rate=PACE, limit=LIMIT):
        self.wrong, self.rate, self.limit, self.time = wrong, rate, limit, 0
        self.models = [START.astype(float)]
        self.clusters = np.zeros(CLIENTS, int)
        self.updates, self.lost = {}, set()

    def parts(self, members):
        """Connectivity, and who leaves."""
        updates = [self.updates[i] for i in members]
        similar = np.array([[cosine(a, b) for a in updates] for b in updates])
        values, vectors = np.linalg.eigh(similar)
        points = vectors[:, -2:]
        if self.wrong == "rows":  # Two members' entries in all vectors.
            points = np.linalg.svd(similar)[2].T[:2].T
        second = two_means(points) if len(members) > 1 else np.array([False])
        return values[-1] / len(members), np.array(members)[second]

    def round(self, asked):
        asked = sorted(set(asked) - self.lost)
        if not asked:
            return
        steps = {"step_size": STEP, "num_steps": STEPS}
        trained = {}
        for i in asked:
            received = self.models[self.clusters[i]]
            trained[i] = by_hand.trained(DATA, i, received, **steps)
            self.updates[i] = trained[i] - received
        self.join(asked)
        self.cut(asked)
        self.average(asked, trained)
        self.time += 1

    def join(self, asked):
        if len(self.models) == 1:
            return
        for i in asked:
            if self.clusters[i] == 0:
                moved = [theta - self.models[0] for theta in self.models[1:]]
                towards = [cosine(self.updates[i], own) for own in moved]
                self.clusters[i] = 1 + int(np.argmax(towards))
                if self.wrong == "last":
                    most = -1.5  # Which is never raised.
                    for k in range(1, len(self.models)):
                        if cosine(self.updates[i], self.models[k]) >= most:
                            self.clusters[i] = k

    def cut(self, asked):
        number, self.told = len(self.models) - 1, {}
        alpha = self.limit * (1 - np.exp(-self.rate * self.time))
        for k in range(1, number + 1) if number else [0]:
            members = np.flatnonzero(self.clusters == k) if k else np.array(asked)
            if not len(members):
                continue
            self.told[k], second = self.parts(members)
            more = 1 if k else 2
            room = len(self.models) - 1 + more <= ROOM
            if self.told[k] < alpha and len(members) > 1 and room:
                if not k:
                    self.models.append(self.models[0])
                    self.clusters[members] = 1
                self.clusters[second] = len(self.models)
                self.models.append(self.models[k])
            elif not k and self.wrong == "lost":
                self.lost |= set(range(CLIENTS)) - set(asked)

    def average(self, asked, trained):
        mean = lambda members: np.average(
            [trained[i] for i in members], axis=0, weights=KEPT[list(members)]
        )
        if len(self.models) == 1:
            self.models[0] = mean(asked)
            return
        counted = np.zeros(CLIENTS, bool)
        counted[asked if self.wrong == "asked" else range(CLIENTS)] = True
        sizes = []
        for k in range(1, len(self.models)):
            here = [i for i in asked if self.clusters[i] == k]
            if here:
                self.models[k] = mean(here)
            sizes.append(KEPT[(self.clusters == k) & counted].sum())
        self.models[0] = np.average(self.models[1:], axis=0, weights=sizes)


ROUNDS = 8


def rounds(algorithm, state, data=DATA):
    """States and information of all rounds."""
    states, seen = [], []
    for seed in range(ROUNDS):
        state, info = algorithm.step(jax.random.key(seed), state, data)
        states.append(state)
        seen.append(info)
    return states, seen


@functools.cache
def run(algorithm):
    """All rounds of our own samples."""
    return rounds(algorithm, begin())


@functools.cache
def by_rule(algorithm, wrong=""):
    """All rounds by hand, of the same participants: what is known after each."""
    hand, told = ByHand(wrong), []
    for info in run(algorithm)[1]:
        hand.round(np.flatnonzero(np.isfinite(info.losses)).tolist())
        told.append((np.array(hand.models), hand.clusters.copy(), hand.told))
    return told


def together(clusters):
    """Who is with whom."""
    return np.asarray(clusters)[:, None] == np.asarray(clusters)[None, :]


# Against equations


@pytest.mark.parametrize("algorithm", [FULL, HALF], ids=["all", "half"])
def test_rounds_against_equations(algorithm):
    states, seen = run(algorithm)
    for state, info, told in zip(states, seen, by_rule(algorithm), strict=True):
        models, clusters, connectivity = told
        np.testing.assert_array_equal(state.clusters, clusters)
        close(state.models[: len(models)], models)
        assert int(info.number) == len(models) - 1
        expected = [connectivity.get(k, np.nan) for k in range(1 + ROOM)]
        close(info.connectivity, expected)
        asked = np.isfinite(np.asarray(info.losses))
        np.testing.assert_array_equal(info.assignment, np.where(asked, clusters, -1))
    np.testing.assert_array_equal(together(clusters), together(GROUPS))


def test_the_pool_empties_as_its_clients_take_part():
    """What the rounds of a half go through: a pool that is cut while others are absent,
    who join later."""
    numbers = [int(info.number) for info in run(HALF)[1]]
    waiting = [int(np.sum(state.clusters == 0)) for state in run(HALF)[0]]
    assert numbers == [0, 0, 0, 2, 2, 3, 3, 3]
    assert waiting == [8, 8, 8, 4, 3, 1, 1, 0]


@pytest.mark.parametrize("wrong", ["last", "rows", "lost", "asked"])
def test_a_wrong_rule_is_rejected(wrong):
    """Controls, three of them what the released code does: its groups are others than
    the true ones, which ours are."""
    models, clusters, _ = by_rule(HALF, wrong)[-1]
    last = run(HALF)[0][-1]
    if wrong == "asked":  # A global mean of those that took part.
        differ(last.models[0], models[0], rtol=1e-3)
        return
    np.testing.assert_array_equal(together(last.clusters), together(GROUPS))
    assert not np.array_equal(together(clusters), together(GROUPS))


def test_a_cluster_that_is_not_finite_takes_nobody():
    """Nor does a place that is not used, or the pool, however near."""
    models = begin().models.at[1].set(jnp.nan).at[2, 0].add(-1.0).at[3, 0].add(0.5)
    models = models.at[4, 0].add(1.0)
    clusters = jnp.array([1, 2, 3, 0, 0, 0, 0, 0])
    updates = jnp.asarray(np.eye(FEATURES, dtype="f4")[[0] * 4 + [1] * 4])
    state = begin()._replace(models=models, clusters=clusters)
    found = jax.jit(_nearest_clusters)(updates, state)
    assert found.tolist() == [3] * 4 + [2] * 4
    assert not jax.jit(_nearest_clusters)(updates, begin()).any()


def test_losses_are_those_of_the_model_received():
    states, seen = run(FULL)
    close(seen[0].losses, [by_hand.loss(DATA, i, START) for i in range(CLIENTS)])
    own = np.asarray(states[4].models)[np.asarray(states[4].clusters)]
    close(seen[5].losses, [by_hand.loss(DATA, i, own[i]) for i in range(CLIENTS)])


# Against theory: limits


def alphas(rate=PACE, limit=LIMIT):
    return limit * (1 - np.exp(-rate * np.arange(ROUNDS)))


def test_the_default_rate_is_that_of_the_code():
    """Its alpha is `1 - (e / epsilon_1) ** (t / epsilon_2)`."""
    second = np.log(1 - 0.85) / (1 - np.log(4.0))
    t = np.arange(50)
    np.testing.assert_allclose(
        1 - np.exp(-RATE * t), 1 - (np.e / 4) ** (t / second), rtol=1e-12
    )
    assert round(RATE, 4) == 0.0787


@pytest.mark.parametrize("limits", [(0.0, 1.0), (1.0, 0.0)], ids=["rate", "limit"])
def test_without_alpha_it_is_fedavg(limits):
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=STEPS, participation=0.5))
    theirs = other.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(START))
    states, seen = run(at(*limits, participation=0.5))
    for seed in range(ROUNDS):
        theirs, told = other.step(jax.random.key(seed), theirs, DATA)
        close(states[seed].models[0], theirs.model)
        close(seen[seed].losses, told.losses)
        assert int(seen[seed].number) == 0
        np.testing.assert_array_equal(seen[seed].sent, told.sent)
    differ(run(HALF)[0][-1].models[0], theirs.model, rtol=1e-3)


def test_there_is_no_more_than_room():
    """One place is none: a cut of the pool makes two clusters."""
    leaving = np.zeros((5, CLIENTS), bool)
    clusters = np.array([1, 1, 2, 2, 2, 0, 1, 3])
    leaving[1, [1, 6]] = leaving[2, 4] = True
    members = clusters[None] == np.arange(5)[:, None]
    members[0] = False
    number = lambda *given: jax.jit(_numbered)(*map(jnp.asarray, given))
    found, origins = number(clusters, members, leaving)
    assert found.tolist() == [1, 4, 2, 2, 2, 0, 4, 3], "the lower number first"
    assert origins.tolist() == [0, 1, 2, 3, 1]
    free, asked = np.zeros(CLIENTS, int), np.arange(CLIENTS) < 6
    for rows, expected in ((2, free), (3, np.array([1, 1, 2, 1, 1, 2, 0, 0]))):
        members, leaving = np.zeros((2, rows, CLIENTS), bool)
        members[0], leaving[0, [2, 5]] = asked, True
        found, origins = number(free, members, leaving)
        np.testing.assert_array_equal(found, expected)
        assert not origins.any()


def two_groups(second):
    """The same inputs, whose clients are of two groups: of the first axis, and of
    another vector."""
    truths = np.stack([2 * np.eye(FEATURES, dtype="f4")[0], second])
    inputs = np.asarray(DATA.inputs)
    own = truths[GROUPS % 2]
    return by_hand.padded(inputs, np.einsum("csf,cf->cs", inputs, own), KEPT)


def from_zero(algorithm, data):
    state = begin()
    return rounds(algorithm, state._replace(models=0 * state.models), data)


ORTHOGONAL = 2 * np.eye(FEATURES, dtype="f4")[1]


def test_groups_part_where_alpha_first_exceeds_their_connectivity():
    states, seen = from_zero(at(1.0, 0.95), two_groups(ORTHOGONAL))
    connectivity = np.array([info.connectivity[0] for info in seen])
    first = int(np.argmax(alphas(1.0, 0.95) > connectivity))
    assert 0 < first < ROUNDS
    numbers = [int(info.number) for info in seen]
    assert numbers == [0] * first + [2] * (ROUNDS - first)
    found = together(states[-1].clusters)
    np.testing.assert_array_equal(found, together(GROUPS % 2))


def test_two_groups_that_wait_look_like_one():
    """The nearer the pool's model is to rest, the more nearly its updates add up to 0:
    those of two groups become opposite. A slower alpha never meets them."""
    _, seen = from_zero(FULL, two_groups(ORTHOGONAL))
    connectivity = np.array([info.connectivity[0] for info in seen])
    assert (np.diff(connectivity) > 0).all() and connectivity[0] < 0.65
    assert connectivity[-1] > 0.95
    assert [int(info.number) for info in seen] == [0] * ROUNDS


def test_the_first_round_cuts_nothing():
    states, seen = run(at(1.0, 1.0))
    assert [int(info.number) for info in seen[:2]] == [0, 2]
    assert float(seen[0].connectivity[0]) < float(seen[1].connectivity[0])
    assert not np.asarray(states[0].clusters).any()


def test_opposite_groups_are_as_connected_as_one():
    """The largest eigenvalue is blind to the sign of a cosine: it is the number of
    clients, though the average connectivity is nearly 0. They are never parted."""
    data = two_groups(-2 * np.eye(FEATURES, dtype="f4")[0])
    _, seen = from_zero(FULL, data)
    zero = np.zeros(FEATURES)
    steps = {"step_size": STEP, "num_steps": STEPS}
    moved = [by_hand.trained(data, i, zero, **steps) for i in range(CLIENTS)]
    similar = np.array([[cosine(a, b) for a in moved] for b in moved])
    assert abs(similar.mean()) < 0.1 < 0.95 < float(seen[0].connectivity[0])
    assert [int(info.number) for info in seen] == [0] * ROUNDS


CUT = jax.jit(_bisected)


def bisected(similar, members, least):
    arrays = (jnp.asarray(similar, "f4"), jnp.asarray(members), jnp.float32(least))
    return CUT(jax.random.key(0), *arrays)


@pytest.mark.long
def test_connectivity_is_at_least_the_average_and_at_most_one():
    """By Rayleigh's quotient of the vector of ones; equal where rows have one mean and
    no cosine is negative."""
    generator = np.random.default_rng(0)
    members = np.array([np.arange(CLIENTS) < n for n in (8, 5, 2, 1)])
    for _ in range(20):
        points = generator.normal(size=(CLIENTS, 5)) + generator.normal(size=5)
        points /= np.linalg.norm(points, axis=1)[:, None]
        found, _ = bisected(points @ points.T, members, 0.0)
        for row, own in zip(members, np.asarray(found), strict=True):
            inside = (points @ points.T)[np.ix_(row, row)]
            close(own, np.linalg.eigvalsh(inside)[-1] / row.sum())
            assert inside.mean() < own + 1e-6
            assert 1 / row.sum() - 1e-6 <= own <= 1 + 1e-6
    even = np.full((CLIENTS, CLIENTS), 0.25) + 0.75 * np.eye(CLIENTS)
    close(bisected(even, members, 0.0)[0][0], even.mean())
    uneven = np.ones((CLIENTS, CLIENTS))
    uneven[4:, :4] = uneven[:4, 4:] = -1
    differ(bisected(uneven, members, 0.0)[0][0], uneven.mean(), atol=0.5)
    assert np.isnan(bisected(even, members & False, 0.0)[0]).all()


# Against itself


@pytest.mark.long
def test_signs_of_eigenvectors_part_nobody(monkeypatch):
    """Those of LAPACK are arbitrary, and two equal eigenvalues have any vectors."""
    generator = np.random.default_rng(1)
    groups = np.array([0, 1, 0, 1, 1, 0, 1, 0])
    points = np.eye(5)[groups] + 0.1 * generator.normal(size=(CLIENTS, 5))
    points /= np.linalg.norm(points, axis=1)[:, None]
    everybody = np.ones((4, CLIENTS), bool)
    _, plain = bisected(points @ points.T, everybody, 0.9)
    for turn in ((-1, 0, 0, 1), (1, 0, 0, -1), (-1, 0, 0, -1), (0.6, -0.8, 0.8, 0.6)):

        def turned(matrix, turn=turn):
            values, vectors = eigenvectors(matrix)
            two = vectors[:, -2:] @ jnp.array(turn, vectors.dtype).reshape(2, 2)
            return values, vectors.at[:, -2:].set(two)

        module = importlib.import_module("cfljax.algorithms.icfl")
        monkeypatch.setattr(module, "eigenvectors", turned)
        arrays = jnp.asarray(points @ points.T, "f4"), jnp.asarray(everybody[:1])
        _, found = jax.jit(_bisected)(jax.random.key(0), *arrays, jnp.float32(0.9))
        np.testing.assert_array_equal(found[0], plain[0])
    np.testing.assert_array_equal(plain[0], groups == 1)


def test_the_order_of_clients_changes_numbers_only():
    order = np.array([7, 2, 3, 6, 1, 0, 5, 4])
    moved = jax.tree.map(lambda leaf: leaf[order], DATA)
    last = run(FULL)[0][-1]
    other = rounds(FULL, begin(), moved)[0][-1]
    theirs, ours = (np.asarray(s.models)[np.asarray(s.clusters)] for s in (other, last))
    close(theirs, ours[order])
    close(other.models[0], last.models[0])
    assert not np.array_equal(other.clusters, np.asarray(last.clusters)[order])
    assert int(other.clusters[0]) == 1, "the first client's part keeps the number"


def test_the_absent_change_nothing_but_by_their_clusters():
    states, seen = run(HALF)
    for before, after, info in zip(states[:-1], states[1:], seen[1:], strict=True):
        absent = np.isnan(np.asarray(info.losses))
        assert absent.sum() == CLIENTS // 2
        np.testing.assert_array_equal(after.updates[absent], before.updates[absent])
        waits = absent & (np.asarray(before.clusters) == 0)
        assert not np.asarray(after.clusters)[waits].any()
        asked = np.asarray(after.clusters)[~absent]
        for k in set(range(1, 1 + int(info.number))) - set(asked.tolist()):
            if k in np.asarray(before.clusters):
                np.testing.assert_array_equal(after.models[k], before.models[k])
        assert not info.received[absent].any() and not info.sent[absent].any()
        assert set(info.sent[~absent].tolist()) == {4 * FEATURES}


LOST = {  # A loss that is not finite, a model that is not, and both.
    "loss": DATA._replace(targets=DATA.targets.at[3].set(1e30)),
    "model": DATA._replace(inputs=DATA.inputs.at[3].multiply(1e12)),
    "both": DATA._replace(inputs=DATA.inputs.at[3].multiply(1e25)),
}


@pytest.mark.parametrize("kind", LOST)
def test_a_diverged_client_counts_as_an_absent_one(kind):
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    wild, states = LOST[kind], run(FULL)[0]
    for before in (begin(), states[2], states[3]):
        after, info = FULL.step(jax.random.key(9), before, wild)
        other, _ = FULL.step(jax.random.key(9), before, empty)
        assert bool(np.isfinite(info.losses[3])) == (kind == "model")
        assert int(info.assignment[3]) == -1 and int(info.sent[3]) == 0
        assert np.isfinite(after.models).all()
        np.testing.assert_array_equal(after.updates, other.updates)
        np.testing.assert_array_equal(after.clusters, other.clusters)
        np.testing.assert_array_equal(after.models[1:], other.models[1:])
    np.testing.assert_array_equal(after.updates[3], before.updates[3])


def test_a_part_of_the_absent_goes_on_with_the_model_it_had():
    """The absent of a cluster moved otherwise before, and are cut off."""
    data = two_groups(2 * np.eye(FEATURES, dtype="f4")[0])
    old = begin()
    before = old._replace(
        models=old.models.at[1].multiply(0.0),
        clusters=jnp.ones_like(old.clusters),
        updates=jnp.broadcast_to(jnp.asarray(ORTHOGONAL), old.updates.shape),
        round=old.round + 5,
    )
    after, info = HALF.step(jax.random.key(0), before, data)
    absent = np.isnan(np.asarray(info.losses))
    assert not absent[0] and absent.sum() == CLIENTS // 2
    np.testing.assert_array_equal(after.clusters, 1 + absent)
    np.testing.assert_array_equal(after.models[2], before.models[1])
    differ(after.models[1], before.models[1], rtol=0.1, atol=0.1)


def test_a_client_that_moves_nowhere_counts_but_stays_in_the_pool():
    still = DATA._replace(
        inputs=DATA.inputs.at[3].set(0.0), targets=DATA.targets.at[3].set(0.0)
    )
    states, seen = rounds(FULL, begin(), still)
    steps = {"step_size": STEP, "num_steps": STEPS}
    trained = [by_hand.trained(still, i, START, **steps) for i in range(CLIENTS)]
    close(states[0].models[0], np.average(trained, axis=0, weights=KEPT))
    assert [int(info.assignment[3]) for info in seen] == [0] * ROUNDS
    assert int(np.sum(states[-1].clusters == 0)) == 1
    assert np.isfinite(seen[-1].connectivity[1])


@pytest.mark.long
@pytest.mark.parametrize("row", [1, 2])
def test_newcomers_take_the_model_that_they_lose_least_with(row):
    last = run(FULL)[0][-1]
    join = build().join
    joined = join(jax.random.key(1), last, DATA)
    np.testing.assert_array_equal(joined.clusters, last.clusters)
    middle = DATA._replace(targets=jnp.einsum("csf,f->cs", DATA.inputs, last.models[0]))
    assert not join(jax.random.key(1), last, middle).clusters.any(), "the global one"
    # A place that nobody has yet, and models that are not finite, answer nobody.
    there = jnp.einsum("csf,f->cs", DATA.inputs, jnp.full(FEATURES, 9.0))
    odd = last._replace(models=last.models.at[ROOM].set(9.0).at[row].set(jnp.nan))
    found = join(jax.random.key(1), odd, DATA._replace(targets=there)).clusters
    assert not np.isin(found, (ROOM, row)).any()
    found = np.asarray(join(jax.random.key(1), odd, DATA).clusters)
    others = np.asarray(last.clusters) != row
    np.testing.assert_array_equal(found[others], np.asarray(last.clusters)[others])


def test_statistics_count_in_no_cosine():
    task = by_hand.counting(TASK, START)
    algorithm = icfl(task, **SETTINGS)
    state = jax.eval_shape(algorithm.init, jax.random.key(0), DATA)
    assert state.updates.shape == (CLIENTS, FEATURES)
    after, _ = jax.eval_shape(algorithm.step, jax.random.key(0), state, DATA)
    assert after.models.statistics.shape == (1 + ROOM, 2)


@pytest.mark.long
def test_optimisers_that_are_kept_are_those_of_who_counts():
    lost = DATA._replace(targets=DATA.targets.at[5].set(1e30))
    algorithm = compiled(build(update=UPDATE, num_steps=1, participation=0.5))
    state = algorithm.init(jax.random.key(0), lost)
    after, info = algorithm.step(jax.random.key(0), state, lost)
    asked = np.asarray(info.received) > 0
    counted = np.asarray(info.assignment) >= 0
    assert asked[5] and not counted[5] and counted.sum() == CLIENTS // 2 - 1
    for leaf in jax.tree.leaves(after.local_state.moments):
        moved = np.abs(np.asarray(leaf)).reshape(CLIENTS, -1).max(axis=1) > 0
        np.testing.assert_array_equal(moved, counted)


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(icfl, TASK, step_size=STEP),
    ({"max_clusters": 0}, "`max_clusters` must be at least 1, got 0"),
    ({"max_clusters": 2, "rate": -0.1}, r"`rate` must be in \[0, 1\], got -0.1"),
    ({"max_clusters": 2, "limit": 1.1}, r"`limit` must be in \[0, 1\], got 1.1"),
    ({"max_clusters": 2, "participation": 0.0}, "participation"),
    ({"max_clusters": 2, "weights": "equal"}, "weights"),
)
