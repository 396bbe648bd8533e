"""CFL-S: rounds by hand in NumPy, limits, late clients, and clusters cut in two."""

import functools
import itertools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.cluster.hierarchy
from by_hand import compiled, differ, misuse, padded

from cfljax.algorithms import cfl_s, fedavg
from cfljax.algorithms.cfl_s import bisect_clusters, is_congruent, largest_across
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES, STEP, STEPS, ROUNDS = 8, 8, 3, 0.1, 2, 11
KEPT = np.array([8, 6, 5, 8, 7, 6, 8, 5])  # Real samples of each client.
GROUPS = np.array([0, 1, 2, 2, 1, 0, 0, 1])
LATE, ROOM = 3, 4  # Rounds before a split, and the most clusters.
FIRST = np.array([0.5, 0.5, 1.0], "f4")
TASK = linear(FEATURES)
COMMON: dict[str, Any] = {
    "max_clusters": ROOM,
    "first_split": LATE,
    "num_steps": STEPS,
    "step_size": STEP,
}
KINDS: dict[str, dict[str, Any]] = {
    "paper": {"weights": "samples"},
    "reference": {"variant": "reference"},
    "relative": {"thresholds": "relative", "update": LocalUpdate(decay=0.9)},
    "absent": {"participation": 0.75},
    "single": {"max_clusters": 1, "weights": "samples"},
}


def draw():
    """Nearly orthonormal inputs, so that clients of one group want nearly the same."""
    generator = np.random.default_rng(3)
    turned = np.linalg.qr(generator.normal(size=(3, 3)))[0]
    centres = np.array([[2, 0, 0], [-1, 0.8, 0], [-1, -0.8, 0.3]]) @ turned
    inputs = np.zeros((CLIENTS, SAMPLES, FEATURES), "f4")
    for i, number in enumerate(KEPT):
        base = np.linalg.qr(generator.normal(size=(number, FEATURES)))[0]
        noise = 0.1 * generator.normal(size=base.shape)
        inputs[i, :number] = np.sqrt(number) * base + noise
    return padded(inputs, np.einsum("csf,cf->cs", inputs, centres[GROUPS]), KEPT)


DATA = draw()
LIMITS = {"relative": (0.45, 0.4)}
ABSOLUTE = (0.22, 0.35)


def built(limits, **settings):
    given: dict[str, Any] = {"mean_norm": limits[0], "largest_norm": limits[1]}
    return cfl_s(TASK, **(COMMON | given | settings))


@functools.partial(jax.jit, static_argnames=("kind", "rounds"))
def run(kind, limits, data, first=FIRST, rounds=ROUNDS):
    """The last state; models, members and what is told of every round."""
    algorithm = built(limits, **KINDS[kind])
    state = algorithm.init(jax.random.key(0), data)
    start = jnp.broadcast_to(jnp.asarray(first), state.models.shape)
    state = state._replace(models=start)

    def one(state, key):
        state, info = algorithm.step(key, state, data)
        return state, (state.models, state.splits.members, info)

    return jax.lax.scan(one, state, jax.random.split(jax.random.key(1), rounds))


def trained(i, model, step_size):
    return by_hand.trained(DATA, i, model, step_size=step_size, num_steps=STEPS)


def halves(updates):
    """Places of the two parts, that of the first one first."""
    unit = updates / np.linalg.norm(updates, axis=1)[:, None]
    distances = (1 - unit @ unit.T)[np.triu_indices(len(unit), 1)]
    tree = scipy.cluster.hierarchy.linkage(distances, "complete")
    part = scipy.cluster.hierarchy.fcluster(tree, 2, "maxclust")
    return [np.flatnonzero(part == part[0]), np.flatnonzero(part != part[0])]


def all_rounds_by_hand(kind, wrong=None):
    """Models of the clients and lists of members after every round."""
    weights = KEPT if kind == "paper" else np.ones(CLIENTS)
    models, clusters = np.tile(FIRST.astype(float), (CLIENTS, 1)), [np.arange(CLIENTS)]
    limits, scale, told = LIMITS.get(kind, ABSOLUTE), 0.0, []
    for t in range(ROUNDS):
        factor = 0.9**t if kind == "relative" else 1.0
        pace = 1.0 if wrong == "no decay" else factor
        each = [trained(i, models[i], STEP * factor) for i in range(CLIENTS)]
        updates, new = np.array(each) - models, []
        mean = lambda c, u=updates: np.average(u[c], axis=0, weights=weights[c])
        small = [np.linalg.norm(mean(c)) for c in clusters]
        scale = max(scale, max(small) / pace)
        unit = scale * pace if kind == "relative" else 1.0
        for k, c in enumerate(list(clusters)):
            sizes = np.linalg.norm(updates[c], axis=1)
            length = np.mean(sizes) if wrong == "mean of norms" else small[k]
            largest = np.max(np.abs(updates[c]) if wrong == "coordinate" else sizes)
            sure = length < limits[0] * unit and largest > limits[1] * unit
            room = len(clusters) + len(new) < (5 if wrong == "room" else ROOM)
            if sure and room and len(c) >= 3 and t >= LATE - (wrong == "early"):
                parts = halves(updates[c])
                by_place = kind == "reference" or wrong == "places"
                clusters[k], more = parts if by_place else [c[p] for p in parts]
                new.append(more)
        old = list(clusters)
        clusters += new
        moved = models.copy()
        for c in old if wrong == "not averaged" else clusters:
            moved[c] += mean(c)
        models = moved
        told.append((models, clusters[:]))
    return told


def check(kind, told):
    _, (models, members, info) = run(kind, LIMITS.get(kind, ABSOLUTE), DATA)
    for t, (expected, clusters) in enumerate(told):
        found = [np.flatnonzero(row).tolist() for row in np.asarray(members[t])]
        assert found[: info.number[t]] == [c.tolist() for c in clusters]
        own = [[k for k, c in enumerate(found) if i in c] for i in range(CLIENTS)]
        assert info.assignment[t].tolist() == [k[0] if k else -1 for k in own]
        each = models[t] if kind == "reference" else models[t][info.assignment[t]]
        np.testing.assert_allclose(each, expected, rtol=1e-5, atol=2e-6)


# Against equations


@pytest.mark.long
@pytest.mark.parametrize("kind", ["paper", "reference", "relative"])
def test_rounds_against_equations(kind):
    told = all_rounds_by_hand(kind)
    assert len(told[LATE - 1][1]) == 1 and len(told[-1][1]) > 2
    check(kind, told)


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("paper", "places"),  # Positions in the cluster, as in the released code.
        ("paper", "mean of norms"),  # As in inflorescence.
        ("paper", "coordinate"),  # Largest coordinate, as in FedEM and FedRC.
        ("paper", "early"),
        ("paper", "not averaged"),  # New clusters do not move before the next round.
        ("relative", "no decay"),
        ("relative", "room"),
    ],
)
def test_a_wrong_rule_is_rejected(kind, wrong):
    with pytest.raises(AssertionError):
        check(kind, all_rounds_by_hand(kind, wrong))


@pytest.mark.long
def test_groups_are_found_and_never_merged():
    _, (_, members, info) = run("paper", ABSOLUTE, DATA)
    together = np.einsum("tki,tkj->tij", *[np.asarray(members, int)] * 2)
    assert (np.diff(together, axis=0) <= 0).all()
    np.testing.assert_array_equal(together[-1], GROUPS[:, None] == GROUPS[None, :])
    np.testing.assert_array_equal(together.sum(axis=(1, 2))[:LATE], CLIENTS**2)
    assert info.number[-1] == 3
    _, (_, _, slipped) = run("reference", ABSOLUTE, DATA)
    assert (np.asarray(slipped.assignment[-1]) < 0).any(), "control: some are lost"


def test_a_client_in_no_cluster_stands_still_and_one_in_two_moves_twice():
    _, (models, members, _) = run("reference", ABSOLUTE, DATA)
    number = np.asarray(members[-1]).sum(axis=0)
    assert 0 in number and number.max() == 2
    still = np.asarray(models[-1] == models[-2]).all(axis=1)
    np.testing.assert_array_equal(still, number == 0)


# Against itself


@pytest.mark.long
@pytest.mark.parametrize(("kind", "limits"), [("paper", (0, 0)), ("single", ABSOLUTE)])
def test_without_splits_it_is_fedavg(kind, limits):
    _, (models, _, info) = run(kind, tuple(map(float, limits)), DATA)
    other = compiled(fedavg(TASK, step_size=STEP, num_steps=STEPS))
    state = other.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(FIRST))
    expected = []
    for key in jax.random.split(jax.random.key(1), ROUNDS):
        state, theirs = other.step(key, state, DATA)
        expected.append(state.model)
    np.testing.assert_allclose(models[:, 0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(info.losses[-1], theirs.losses, rtol=1e-5)
    np.testing.assert_array_equal(info.sent[-1], theirs.sent)
    split = run("paper", ABSOLUTE, DATA)[1][0]
    differ(split[:, 0], expected, rtol=1e-3, atol=0)


@pytest.mark.long
def test_absolute_thresholds_above_all_updates_leave_fedavg():
    """Nothing says so but the number of clusters; relative ones split."""
    numbers = []
    for thresholds in ("absolute", "relative"):
        mean_norm = None if thresholds == "absolute" else 0.45
        algorithm = compiled(
            cfl_s(TASK, **COMMON, thresholds=thresholds, mean_norm=mean_norm)
        )
        state = algorithm.init(jax.random.key(0), DATA)
        for key in jax.random.split(jax.random.key(1), ROUNDS):
            state, info = algorithm.step(key, state, DATA)
        numbers.append(int(info.number))
    assert numbers[0] == 1 < numbers[1]


@pytest.mark.long
def test_relative_thresholds_know_no_scale():
    """A linear problem in other units: absolute thresholds split otherwise."""
    large = DATA._replace(targets=DATA.targets * 64)
    for kind, same in (("relative", True), ("paper", False)):
        limits = LIMITS.get(kind, ABSOLUTE)
        members = run(kind, limits, DATA)[1][1]
        scaled = run(kind, limits, large, FIRST * 64)[1][1]
        assert np.array_equal(members, scaled) == same


@pytest.mark.parametrize("kind", ["paper", "reference"])
def test_a_diverged_client_spoils_nothing(kind):
    lost = DATA._replace(targets=DATA.targets.at[4].set(1e30))
    absent = DATA._replace(mask=DATA.mask.at[4].set(False))
    state, (_, _, info) = run(kind, ABSOLUTE, lost)
    expected, (_, _, told) = run(kind, ABSOLUTE, absent)
    assert np.isfinite(state.models).all()
    np.testing.assert_array_equal(info.assignment[:, 4], -1)
    np.testing.assert_array_equal(info.assignment, told.assignment)
    np.testing.assert_allclose(state.models, expected.models, rtol=1e-6)


@pytest.mark.long
def test_newcomers_walk_down_the_tree():
    state, _ = run("paper", ABSOLUTE, DATA)
    algorithm = built(ABSOLUTE, **KINDS["paper"])
    order = np.array([6, 3, 1, 2, 0])
    new = jax.tree.map(lambda leaf: leaf[order, : SAMPLES // 2], DATA)

    @jax.jit
    def answers(state, data):
        joined = algorithm.join(jax.random.key(9), state, data)
        return joined, algorithm.predict(joined, data, data.inputs)

    joined, found = answers(state, new)
    where = [list(GROUPS).index(group) for group in GROUPS[order]]
    known = np.asarray(state.splits.members).argmax(axis=0)[where]
    np.testing.assert_array_equal(joined.splits.members.argmax(axis=0), known)
    own = np.einsum("csf,cf->cs", new.inputs, np.asarray(state.models)[known])
    np.testing.assert_allclose(found, own, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(joined.models, state.models)
    tree = state.splits.tree
    turned = tree._replace(directions=-tree.directions)
    astray, _ = answers(state._replace(splits=state.splits._replace(tree=turned)), new)
    assert (np.asarray(astray.splits.members).argmax(axis=0) != known).any(), "control"
    lost = run("reference", ABSOLUTE, DATA)[0]
    with pytest.raises(ValueError, match="`join` needs the tree of splits"):
        algorithm.join(jax.random.key(9), lost, new)
    early, _ = answers(run("paper", (0.0, 0.0), DATA)[0], new)
    assert np.asarray(early.splits.members)[0].all(), "nothing was split"


def test_the_tree_keeps_models_and_directions_of_splits():
    tree = run("paper", ABSOLUTE, DATA)[0].splits.tree
    told = all_rounds_by_hand("paper")
    for s, (t, parent) in enumerate([(3, 0), (5, 1)]):
        assert (int(tree.rounds[s]), int(tree.parents[s])) == (t, parent)
        models, before = told[t - 1]
        np.testing.assert_allclose(tree.models[s], models[before[parent][0]], rtol=1e-5)
        unit = np.array([trained(i, models[i], STEP) - models[i] for i in range(8)])
        unit /= np.linalg.norm(unit, axis=1)[:, None]
        new, kept = told[t][1][s + 1], told[t][1][parent]
        expected = unit[new].mean(axis=0) - unit[kept].mean(axis=0)
        np.testing.assert_allclose(tree.directions[s], expected, rtol=1e-4, atol=1e-5)
    assert int(tree.parents[2]) == -1


@pytest.mark.long
def test_the_absent_are_placed_when_they_come_back():
    state, (_, members, info) = run("absent", (0.2, 0.2), DATA, rounds=25)
    assert state.splits.number > 2
    np.testing.assert_array_equal(state.splits.seen, state.splits.number - 1)
    found = np.asarray(members[-1]).argmax(axis=0)
    pairs = found[:, None] == found[None, :]
    np.testing.assert_array_equal(pairs, GROUPS[:, None] == GROUPS[None, :])
    absent = np.asarray(info.received) == 0
    assert (absent.sum(axis=1) == 2).all()
    np.testing.assert_array_equal(absent, np.isnan(np.asarray(info.losses)))
    model = 4 * FEATURES
    assert set(np.unique(info.received)) == {0, model, 2 * model}, "one is asked more"
    np.testing.assert_array_equal(info.sent, info.received)


# Against equations: clusters cut in two, by all possible cuts


NUMBER, MOST = 16, 5
CUT = jax.jit(bisect_clusters, static_argnames=("linkage", "by_position"))
EVERYBODY = jnp.ones(NUMBER, bool)


def units(seed, number=NUMBER, features=4):
    points = np.random.default_rng(seed).normal(size=(number, features))
    return points / np.linalg.norm(points, axis=1)[:, None]


def one_cluster(number=NUMBER):
    return jnp.zeros((MOST, number), bool).at[0].set(True)


def cut(
    similarities, members=None, number=1, due=None, present=EVERYBODY, **settings: Any
):
    """By default of one cluster of everybody, all whose clusters are due."""
    members = one_cluster() if members is None else members
    due = np.arange(MOST) < number if due is None else due
    given = jnp.int32(number), jnp.asarray(due), present
    return CUT(jnp.asarray(similarities, jnp.float32), members, *given, **settings)


def hierarchy(groups):
    """Cosines of four groups, the first two and the last two nearer to each other."""
    centres = np.array([[2, 1, 0], [2, -1, 0], [-2, 0, 1], [-2, 0, -1]], float)
    points = centres[groups] + 0.1 * units(1, NUMBER, 3)
    points /= np.linalg.norm(points, axis=1)[:, None]
    return points @ points.T


@pytest.mark.long
def test_places_taken_for_clients_lose_half_of_them():
    """Four groups, split twice: 8 of 16 clients are then in no cluster, 8 in two."""
    groups = np.random.default_rng(5).permutation(np.arange(NUMBER) % 4)
    similarities, found = hierarchy(groups), {}
    for by_position in (False, True):
        first = cut(similarities, by_position=by_position)
        assert int(first.number) == 2
        np.testing.assert_array_equal(first.parents, [0, -1, -1, -1])
        second = cut(similarities, first.members, 2, by_position=by_position)
        assert int(second.number) == 4
        np.testing.assert_array_equal(second.parents, [-1, 0, 1, -1])
        found[by_position] = np.asarray(second.members)
    times = found[True].sum(axis=0)
    np.testing.assert_array_equal(times, np.repeat([2, 0], 8))
    right = found[False]
    np.testing.assert_array_equal(right.sum(axis=0), np.ones(NUMBER))
    labels = right.argmax(axis=0)
    pairs = labels[:, None] == labels[None, :]
    np.testing.assert_array_equal(pairs, groups[:, None] == groups[None, :])


@pytest.mark.long
def test_single_linkage_is_the_optimal_bipartition():
    """No cut has a smaller largest similarity across; complete linkage may."""
    number, worse = 7, 0
    cuts = [np.array((0,) + c) for c in itertools.product((0, 1), repeat=number - 1)]
    for seed in range(12):
        unit = units(seed, number, 3)
        similarities = unit @ unit.T
        across = lambda part, s=similarities: s[np.ix_(part == 0, part == 1)].max()
        best = min(across(part) for part in cuts[1:])
        for linkage in ("single", "complete"):
            members, present = one_cluster(number), jnp.ones(number, bool)
            found = cut(similarities, members, present=present, linkage=linkage)
            value = across(np.asarray(found.members[1], int))
            if linkage == "single":
                np.testing.assert_allclose(value, best, rtol=1e-6)
            worse += value > best + 1e-3
    assert worse > 3, "control: complete linkage is another rule"


def test_incongruence_is_the_angle_within_a_distribution():
    """Gradients within gamma of one direction are never parted, and barely others."""
    generator, gamma = np.random.default_rng(2), 0.3
    centre = np.array([1.0, 0, 0])
    noise = gamma * units(3, 400, 3) * generator.uniform(0, 1, (400, 1)) ** 0.1
    points = centre + noise
    points /= np.linalg.norm(points, axis=1)[:, None]
    least = (points @ points.T).min()
    bound = 1 - 2 * gamma**2
    assert bound <= least < bound + 0.05
    congruent = jax.jit(is_congruent)
    assert congruent(jnp.float32(least), gamma)
    assert not congruent(jnp.float32(bound - 1e-3), gamma), "control"
    groups = np.random.default_rng(5).permutation(np.arange(NUMBER) % 4)
    similarities = hierarchy(groups)
    halves = groups < 2
    across = similarities[np.ix_(halves, ~halves)].max()
    jitted = jax.jit(largest_across)
    found = jitted(jnp.asarray(similarities, "f4"), jnp.asarray(halves), ~halves)
    np.testing.assert_allclose(found, across, rtol=1e-6)
    limit = np.sqrt((1 - across) / 2)
    for factor, number in ((0.99, 2), (1.01, 1)):
        parted = cut(similarities, incongruence=jnp.float32(factor * limit))
        assert int(parted.number) == number


def test_only_those_present_are_compared_and_room_is_kept():
    groups = np.arange(NUMBER) % 2 * 2
    similarities = hierarchy(groups)
    similarities[3] = similarities[:, 3] = np.nan
    present = EVERYBODY.at[3].set(False)
    found = cut(similarities, present=present)
    expected = (groups == 2) & (np.arange(NUMBER) != 3)
    np.testing.assert_array_equal(found.members[1], expected)
    np.testing.assert_array_equal(found.members[0], ~expected)
    nobody = cut(similarities, due=np.zeros(MOST, bool), present=present)
    np.testing.assert_array_equal(nobody.members, one_cluster())
    alone = cut(similarities, present=EVERYBODY & (np.arange(NUMBER) < 1))
    assert int(alone.number) == 1
    full = jnp.asarray(np.arange(NUMBER) % MOST == np.arange(MOST)[:, None])
    kept = cut(similarities, full, MOST, present=present)
    np.testing.assert_array_equal(kept.members, full)


@pytest.mark.parametrize("due", [(0, 1), (1, 0), (1, 1)])
def test_clusters_are_cut_apart_from_each_other(due):
    groups = np.random.default_rng(6).permutation(np.arange(NUMBER) % 4)
    start = one_cluster().at[0].set(jnp.asarray(groups < 2))
    start = start.at[1].set(jnp.asarray(groups >= 2))
    wanted = np.concatenate([np.array(due, bool), np.zeros(MOST - 2, bool)])
    found = cut(hierarchy(groups), start, 2, wanted)
    assert int(found.number) == 2 + sum(due)
    together = functools.reduce(
        np.logical_or, [np.outer(row, row) for row in np.asarray(found.members)]
    )
    scale = np.where(np.array(due, bool)[groups // 2], 1, 2)
    expected = groups // scale + 10 * scale
    np.testing.assert_array_equal(together, expected[:, None] == expected[None, :])


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(cfl_s, TASK, step_size=STEP, max_clusters=2),
    ({"max_clusters": 0}, "`max_clusters`"),
    ({"mean_norm": -1.0}, "`mean_norm` must not be negative, got -1.0"),
    ({"largest_norm": float("nan")}, "`largest_norm` must be finite"),
    ({"first_split": -1}, "`first_split` must be at least 0, got -1"),
    ({"min_members": 1}, "`min_members` must be at least 2"),
    ({"incongruence": 1.0}, r"`incongruence` must be in \[0, 1\), got 1.0"),
    ({"variant": "reference", "participation": 0.5}, "`participation` must be 1"),
    ({"thresholds": "none"}, "thresholds"),
    ({"linkage": "ward"}, "linkage"),
)
