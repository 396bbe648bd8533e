"""RR-Cluster: rounds by hand in NumPy, how far one client moves the models, searched
exhaustively, the noise's law, what rounds cost in privacy, and its limits."""

import functools
import itertools
import math
import sys
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from by_hand import close, compiled, differ, misuse
from scipy.special import log_ndtr, ndtr

from cfljax.algorithms import ifca, privacy_spent, rr_cluster
from cfljax.algorithms.ifca import State as IfcaState
from cfljax.algorithms.rr_cluster import (
    State,
    clipped,
    normal_like,
    rebalance,
    sensitivity,
)
from cfljax.base.streams import Stream
from cfljax.base.types import NO_CLUSTER
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear, normalised

CLUSTERS, FEATURES, STEP, STEPS, LEAST = 3, 4, 0.05, 2, 2
KEPT = np.array([8, 2, 5, 0, 8, 3, 8, 4])  # Real samples of each client.
CLIENTS = len(KEPT)
EMPTY, LOST, CLIP, NOISE = 3, 6, 0.3, 0.7  # Whose inputs overflow; C; of the noise.
KEY = jax.random.key(3)
TASK = linear(FEATURES)
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
SPOILT = DATA._replace(inputs=DATA.inputs.at[LOST].set(1e25))
MODELS = np.random.default_rng(2).normal(size=(CLUSTERS, FEATURES)).astype("f4")
MODELS[2] *= 5  # Nobody's choice.
SETTINGS: dict[str, Any] = {"num_clusters": CLUSTERS, "step_size": STEP}


def build(least=LEAST, clip=CLIP, noise=NOISE, task=TASK, **changes):
    settings: dict[str, Any] = {"num_steps": STEPS, "min_cluster_size": least}
    settings |= SETTINGS | changes
    return rr_cluster(task, clip_norm=clip, noise_multiplier=noise, **settings)


@functools.partial(jax.jit, static_argnames="least")
def one_round(clip, noise, key, models, data, *, least=LEAST):
    """One program for all norms and noises."""
    after, info = build(least, clip, noise).step(key, State(models), data)
    return after.models, info


run = functools.partial(one_round, CLIP, NOISE, KEY, jnp.asarray(MODELS))


# Against equations


def rebalanced(choices, order, least, num_clusters, there=None):
    """The rule of `rebalance` in NumPy, of many choices at once, `[cases, clients]`."""
    number = choices.shape[1]
    there = np.ones(number, bool) if there is None else there
    lacks = np.full((len(choices), num_clusters), least)
    found, cases = np.full(choices.shape, NO_CLUSTER), np.arange(len(choices))
    left = there.sum()
    for i in order:
        if not there[i]:
            continue
        wanted = np.maximum(choices[:, i], 0)
        moves = (left <= lacks.sum(axis=1)) & (lacks[cases, wanted] == 0)
        found[:, i] = np.where(moves, (lacks > 0).argmax(axis=1), wanted)
        lacks[cases, found[:, i]] = np.maximum(lacks[cases, found[:, i]] - 1, 0)
        left -= 1
    return found


def all_choices(number, num_clusters, start=0):
    each = itertools.product(range(start, num_clusters), repeat=number)
    return np.array(list(each), np.int32)


@pytest.mark.parametrize(("number", "clusters", "least"), [(6, 2, 2), (5, 3, 1)])
def test_the_rule_against_numpy(number, clusters, least):
    choices = all_choices(number, clusters, start=NO_CLUSTER)
    generator = np.random.default_rng(number)
    order, there = generator.permutation(number), np.arange(number) != 1
    rule = functools.partial(rebalance, num_clusters=clusters, min_cluster_size=least)
    of_all = jax.jit(jax.vmap(rule, in_axes=(0, None, None)))
    for some in (there, np.ones(number, bool)):
        found = np.asarray(of_all(choices, order, some))
        expected = rebalanced(choices, order, least, clusters, some)
        np.testing.assert_array_equal(found, expected)
        # Control: in another order others are moved.
        other = rebalanced(choices, order[::-1], least, clusters, some)
        assert (found != other).any()


def drawn(key=KEY):
    """The order of a round, and its noise."""
    order_key, noise_key = jax.random.split(jax.random.fold_in(key, Stream.ALGORITHM))
    order = np.asarray(jax.random.permutation(order_key, CLIENTS))
    return order, np.asarray(normal_like(noise_key, jnp.asarray(MODELS)))


def round_by_hand(
    *, least=LEAST, clip=CLIP, noise=NOISE, weights=None, of_mean=False, skip=False
):
    """Models, places and losses; controls: means weighted by samples, means clipped in
    place of updates, and members of no finite update left out of the mean."""
    order, normal = drawn()
    losses = np.array(
        [[by_hand.loss(DATA, i, theta) for theta in MODELS] for i in range(CLIENTS)]
    )
    losses[LOST] = np.inf
    choices = np.where(np.isfinite(losses).all(axis=1), losses.argmin(axis=1), -1)
    there = KEPT > 0
    given = rebalanced(choices[None], order, least, CLUSTERS, there)[0]
    train = functools.partial(by_hand.trained, step_size=STEP, num_steps=STEPS)
    cut = lambda move: move * min(1, clip / max(np.linalg.norm(move), 1e-30))
    expected = MODELS.astype(float)
    for k in range(CLUSTERS):
        members = [i for i in np.flatnonzero(given == k) if not (skip and i == LOST)]
        moves = [
            np.zeros(FEATURES) if i == LOST else train(DATA, i, MODELS[k]) - MODELS[k]
            for i in members
        ]
        own = None if weights is None else weights[members]
        if of_mean:
            expected[k] += cut(np.average(moves, axis=0, weights=own))
        else:
            expected[k] += np.average(list(map(cut, moves)), axis=0, weights=own)
    deviation = noise * 2 * clip * np.sqrt(CLUSTERS) / least
    return expected + deviation * normal, given, losses


def test_a_round_against_equations():
    models, info = run(SPOILT)
    expected, given, losses = round_by_hand()
    close(models, expected)
    close(info.losses[:LOST], losses[:LOST])
    assert np.isnan(info.losses[EMPTY]).all() and np.isinf(info.losses[LOST]).all()
    lost = np.isin(np.arange(CLIENTS), (EMPTY, LOST))
    np.testing.assert_array_equal(info.assignment, np.where(lost, NO_CLUSTER, given))
    # What makes it a test: moved, clipped and lost clients.
    assert (given != losses.argmin(axis=1))[~lost].any()
    assert (np.bincount(given[given >= 0]) >= LEAST).all() and given[LOST] >= 0
    for other in (
        round_by_hand(weights=KEPT),
        round_by_hand(of_mean=True),
        round_by_hand(skip=True),
        round_by_hand(least=1),
        round_by_hand(clip=1e6),
        round_by_hand(noise=NOISE / np.sqrt(CLUSTERS)),
    ):
        differ(models, other[0])


def test_bytes_are_of_all_models_down_and_one_up():
    model = 4 * FEATURES
    _, info = run(SPOILT)
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, CLUSTERS * model))
    silent = np.isin(np.arange(CLIENTS), (EMPTY, LOST))
    np.testing.assert_array_equal(info.sent, np.where(silent, 0, model + 1))


def test_updates_are_clipped_all_leaves_together():
    norm = jnp.float32(0.5)
    of = lambda *parts: {"a": jnp.float32(parts[0]), "b": jnp.float32(parts[1:])}
    found = clipped(of(3, 0, 4), norm)
    close(found["a"], 0.3)
    close(found["b"], [0, 0.4])
    short = of(0.3, 0, -0.4)  # Of just the norm.
    jax.tree.map(np.testing.assert_array_equal, clipped(short, norm), short)
    for wild in (math.nan, math.inf, 1e30):  # Of the last one the square overflows.
        for place in range(3):
            parts = [1.0, 1.0, 1.0]
            parts[place] = wild
            assert not any(np.any(leaf) for leaf in clipped(of(*parts), norm).values())
    zero = of(0, 0, 0)
    jax.tree.map(np.testing.assert_array_equal, clipped(zero, norm), zero)


# Against theory: how far one client moves the models.


def by_surplus(choices, order, least, num_clusters):
    """A control: clients beyond the least number of their cluster, in the order, are
    dealt out to what is lacking."""
    found = choices.copy()
    for row in found:
        counts = np.bincount(row, minlength=num_clusters)
        slots = np.repeat(np.arange(num_clusters), np.maximum(least - counts, 0))
        seen, spare = np.zeros(num_clusters, int), []
        for i in order:
            seen[row[i]] += 1
            if seen[row[i]] > least:
                spare.append(i)
        row[spare[: len(slots)]] = slots[: len(spare)]
    return found


def most_moved(rule, order, least, num_clusters):
    """Over all choices of all clients and all others of any one of them: most clients
    that come into a cluster or leave it, and how far all means of updates of norm 1
    may move."""
    number = len(order)
    choices = all_choices(number, num_clusters)
    given = rule(choices, order, least, num_clusters)
    members = given[:, :, None] == np.arange(num_clusters)
    place = num_clusters ** np.arange(number)[::-1]  # Of a client's digit in a row.
    most, furthest = 0, 0.0
    for i in range(number):
        for turn in range(1, num_clusters):
            other = (choices[:, i] + turn) % num_clusters
            rows = np.arange(len(choices)) + (other - choices[:, i]) * place[i]
            left = (members & ~members[rows]).sum(axis=1)
            come = (members[rows] & ~members).sum(axis=1)
            most = max(most, left.max(), come.max())
            sizes = np.maximum(members.sum(axis=1), members[rows].sum(axis=1))
            # One for another moves by 2 / n; one more, to n, likewise, or by 1 / B.
            changed = (left + come > 0) | members[:, i] | members[rows, i]
            each = np.where(changed, 2 / np.maximum(sizes, least), 0)
            furthest = max(furthest, np.sqrt((each**2).sum(axis=1)).max())
    return most, furthest


def check_one_client(order, least, num_clusters):
    """Each cluster changes by one client, and is of the least size if there are so
    many; the models move by no more than the bound."""
    number = len(order)
    most, furthest = most_moved(rebalanced, order, least, num_clusters)
    assert most <= 1
    bound = float(np.asarray(sensitivity(1.0, num_clusters, least)))
    assert furthest <= bound * (1 + 1e-12)
    if number == num_clusters * least and num_clusters > 1:
        assert furthest == pytest.approx(bound)  # No smaller one would do.
    if number >= num_clusters * least:
        given = rebalanced(
            all_choices(number, num_clusters), order, least, num_clusters
        )
        sizes = (given[:, :, None] == np.arange(num_clusters)).sum(axis=1)
        assert sizes.min() >= least


@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("clusters", [1, 2, 3])
@pytest.mark.parametrize("number", range(1, 7))
def test_one_client_changes_each_cluster_by_one(number, clusters, least):
    """All choices and all replaced clients; all orders of up to four clients, of more
    one, which says what the others do, as clients have no names."""
    orders = itertools.permutations(range(number))
    for order in itertools.islice(orders, 1 if number > 4 else None):
        check_one_client(order, least, clusters)


@pytest.mark.slow
@pytest.mark.parametrize("least", [1, 2])
@pytest.mark.parametrize("clusters", [2, 3])
@pytest.mark.parametrize("number", [5, 6])
def test_one_client_changes_each_cluster_by_one_in_all_orders(number, clusters, least):
    for order in itertools.permutations(range(number)):
        check_one_client(order, least, clusters)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "clusters", "least"), [(7, 4, 1), (8, 4, 2), (9, 3, 3), (6, 5, 1)]
)
def test_one_client_changes_each_of_more_clusters_by_one(number, clusters, least):
    check_one_client(range(number), least, clusters)


def test_another_rule_is_rejected():
    """Control: by the same search, two clients come where one was replaced."""
    assert most_moved(by_surplus, range(4), 1, 3)[0] == 2


def test_whom_nobody_moves_changes_two_clusters():
    """By sums divided by the least number where a cluster is smaller: so the bound is
    not for want of a better search, but of this rule."""
    alone = lambda choices, *_: choices
    for number in (3, 6):
        _, furthest = most_moved(alone, range(number), 2, 3)
        assert furthest <= 2 / 2 * math.sqrt(2) * (1 + 1e-12)
    assert most_moved(rebalanced, range(6), 2, 3)[1] > 2 / 2 * math.sqrt(2)


def moves_of_neighbours(least, number=500):
    """How far all models of one number each move, at most, where one of six clients has
    other data: of pairs of clients near random numbers or without a finite loss."""
    generator = np.random.default_rng(5)
    truth = generator.normal(scale=2, size=(number, 6))
    truth[generator.random(truth.shape) < 0.1] = 1e25
    other = truth.copy()
    cases, who = np.arange(number), generator.integers(6, size=number)
    other[cases, who] = generator.normal(scale=2, size=number)
    rr = build(least, 0.01, 0.0, linear(1), num_steps=1)

    @jax.jit
    @jax.vmap
    def moves(truth):
        whole = jnp.ones((6, 1), bool)
        data = DATA._replace(
            inputs=jnp.ones((6, 1, 1)), targets=truth[:, None], mask=whole
        )
        models = jnp.array([[-1.0], [0.0], [1.0]])
        return rr.step(KEY, State(models), data)[0].models - models

    pairs = [np.asarray(moves(own.astype("f4")), float) for own in (truth, other)]
    return np.sqrt(((pairs[1] - pairs[0]) ** 2).sum(axis=(1, 2))).max()


@pytest.mark.long
def test_neighbours_move_the_models_by_no_more():
    bound = float(np.asarray(sensitivity(0.01, CLUSTERS, LEAST)))
    rounding = 1e-6
    found = moves_of_neighbours(LEAST)
    assert found <= bound + rounding
    assert found > 0.9 * bound  # One cluster's share is less.
    # Control: smaller clusters move further.
    assert moves_of_neighbours(1) > bound + rounding


# Against theory: the noise.


@pytest.mark.long
def test_the_noise_has_the_stated_law():
    """An error rate of 1e-6 for each of two exact intervals."""
    features = 3000
    shape = (4, 1, features)
    data = by_hand.padded(np.zeros(shape), np.zeros(shape[:2]), np.ones(4, int))
    rr = build(2, 0.4, 0.5, linear(features), num_clusters=2, num_steps=1)
    start = State(jnp.zeros((2, features)))
    after, _ = jax.jit(rr.step)(KEY, start, data)  # Nobody's gradient is anything.
    found = np.asarray(after.models, float).ravel()
    stated = 0.5 * 2 * 0.4 * math.sqrt(2) / 2

    def agrees(deviation):
        number = found.size
        low, high = scipy.stats.chi2.interval(1 - 1e-6, number)
        squares = np.sum((found / deviation) ** 2)
        mean = abs(found.mean()) * math.sqrt(number) / deviation
        return low <= squares <= high and mean < scipy.stats.norm.isf(5e-7)

    assert agrees(stated)
    assert not agrees(stated / math.sqrt(2)) and not agrees(1.1 * stated)
    # Other rounds, clusters and leaves have other noise.
    halves = after.models[0], after.models[1]
    other = jax.jit(rr.step)(jax.random.key(4), start, data)[0].models[0]
    for one, another in ((halves[0], halves[1]), (halves[0], other)):
        assert abs(np.corrcoef(one, another)[0, 1]) < 6 / math.sqrt(features)
    leaves = normal_like(KEY, {"a": jnp.zeros(features), "b": jnp.zeros(features)})
    assert abs(np.corrcoef(leaves["a"], leaves["b"])[0, 1]) < 6 / math.sqrt(features)


# Against theory: what rounds cost.

DELTA = 1e-5
COST: dict[str, Any] = {"num_clients": 50, "num_sampled": 50, "delta": DELTA}


def exact(noise):
    """Epsilon of the Gaussian mechanism (Balle and Wang, ICML 2018, theorem 8)."""

    def excess(epsilon):
        there = ndtr(0.5 / noise - epsilon * noise)
        return there - np.exp(epsilon + log_ndtr(-0.5 / noise - epsilon * noise))

    root = lambda epsilon: excess(epsilon) - DELTA
    return scipy.optimize.root_scalar(root, bracket=(0, 1000)).root


@pytest.mark.parametrize("noise", [0.5, 1.0, 4.0, 20.0])
@pytest.mark.parametrize("rounds", [1, 9])
def test_full_rounds_cost_what_the_gaussian_mechanism_does(noise, rounds):
    found = privacy_spent(noise_multiplier=noise, num_rounds=rounds, **COST)
    truth = exact(noise / math.sqrt(rounds))
    assert truth <= found <= 1.15 * truth
    # Control: noise in units of what one more client moves would be half of that.
    assert not truth <= exact(2 * noise / math.sqrt(rounds))


def at_least(noise, share):
    """Epsilon that one sampled round costs at least: of a client that moves a number to
    either end, if it is drawn, by how often more than a threshold is seen."""
    thresholds = np.linspace(-8 * noise, 8 * noise, 4001)
    above = lambda mean: ndtr((mean - thresholds) / noise)
    seen = lambda end: (1 - share) * above(0) + share * above(end)
    one, other = seen(0.5), seen(-0.5)
    root = lambda epsilon: np.max(one - math.exp(epsilon) * other) - DELTA
    return scipy.optimize.root_scalar(root, bracket=(0, 60)).root


def test_all_that_are_sampled_cost_what_the_gaussian_mechanism_does():
    """Control of what follows."""
    close(at_least(1.0, 1.0), exact(1.0), rtol=1e-3)


@pytest.mark.long
def test_sampled_rounds_cost_less_but_no_less_than_they_must():
    given = {"num_rounds": 1, "num_clients": 100, "delta": DELTA}
    for noise, sampled in ((1.0, 50), (2.0, 10)):
        cost = functools.partial(privacy_spent, num_sampled=sampled, **given)
        truth = at_least(noise, sampled / 100)
        assert truth <= cost(noise_multiplier=noise) < exact(noise)
        # Control: noise in other units is noticed.
        assert cost(noise_multiplier=2 * noise) < truth


def test_sampling_nearly_all_costs_no_more_than_all():
    """The bound of samples alone is above that."""
    cost = functools.partial(privacy_spent, noise_multiplier=50.0, num_rounds=9)
    assert cost(**COST | {"num_sampled": 49}) <= cost(**COST)


def test_privacy_at_the_ends():
    cost = functools.partial(privacy_spent, num_rounds=3, **COST)
    assert cost(noise_multiplier=0) == math.inf
    found = [cost(noise_multiplier=noise) for noise in (1e-12, 1e-3, 1, 1e3, 1e18)]
    assert found == sorted(found, reverse=True) and found[-1] >= 0
    few = privacy_spent(
        noise_multiplier=1e18, num_rounds=1, **COST | {"num_sampled": 1}
    )
    assert 0 <= few < 1e-3


# Against itself


@pytest.mark.long
def test_without_noise_clipping_and_small_clusters_it_is_ifca():
    """Of as many samples each, by averaged models, whoever takes part."""
    inputs = np.random.default_rng(6).normal(size=(CLIENTS, 8, FEATURES)).astype("f4")
    owners = np.arange(CLIENTS) % CLUSTERS
    targets = np.einsum("csf,cf->cs", inputs, MODELS[owners])
    data = by_hand.padded(inputs, targets, [8] * CLIENTS)
    start = jnp.asarray(MODELS + 0.2)
    update = LocalUpdate(batch_size=3, num_epochs=2, decay=0.9)
    same = {"update": update, "num_steps": 1, "participation": 0.75}
    own = compiled(build(1, 1e6, 0.0, **same))
    other = compiled(ifca(TASK, option="model", **SETTINGS, **same))
    local = own.init(KEY, data).local_state
    found, info = by_hand.rounds(own, State(start, local), data)
    expected, also = by_hand.rounds(other, IfcaState(start, local), data)
    close(found.models, expected.models)
    jax.tree.map(close, info, also)
    assert set(np.asarray(info.assignment)) == {NO_CLUSTER, *range(CLUSTERS)}
    differ(found.models, start)


@pytest.mark.long
def test_clusters_are_of_the_least_size_and_others_are_moved_each_time():
    whole = DATA._replace(mask=jnp.ones_like(DATA.mask))
    some = jax.tree.map(lambda leaf: leaf[:6], whole)
    found = set()
    for seed in range(4):
        key = jax.random.key(seed)
        _, info = one_round(CLIP, NOISE, key, jnp.asarray(MODELS), some)
        found.add(tuple(np.asarray(info.assignment).tolist()))
    assert all(np.bincount(own).tolist() == [LEAST] * CLUSTERS for own in found)
    assert len(found) > 1


def test_a_lost_client_spoils_nobody_and_holds_its_place():
    """Its update counts as one of 0, as if it chose the first cluster."""
    models, info = run(SPOILT)
    still, _ = run(SPOILT._replace(inputs=SPOILT.inputs.at[LOST].set(0)))
    assert np.isfinite(models).all() and info.assignment[LOST] == NO_CLUSTER
    # Without inputs all losses are alike, and no update is anything.
    close(models, still)
    differ(models, run(DATA)[0])
    # Nor where the loss alone overflows: the update would be finite, and clipped.
    far = DATA._replace(
        inputs=DATA.inputs.at[LOST].set(0.1), targets=DATA.targets.at[LOST].set(3e19)
    )
    close(run(far)[0], still)
    near = far._replace(targets=DATA.targets.at[LOST].set(3e17))
    differ(run(near)[0], still)


def test_clusters_of_fewer_clients_with_samples_move_less():
    """Where others were drawn that have none, one client moves its model by C / B."""
    alone = DATA._replace(mask=DATA.mask & (np.arange(CLIENTS) == 0)[:, None])
    found, info = one_round(1e-3, 0.0, KEY, jnp.asarray(MODELS), alone)
    moved = np.linalg.norm(found - MODELS, axis=1)
    expected = np.where(np.arange(CLUSTERS) == info.assignment[0], 1e-3 / LEAST, 0)
    close(moved, expected, atol=1e-6)
    differ(moved, LEAST * expected, atol=1e-6)


# Against misuse


test_misuse = misuse(
    build,
    ({"least": 0}, "`min_cluster_size` must be at least 1, got 0"),
    ({"clip": 0.0}, "`clip_norm` must be positive, got 0.0"),
    ({"clip": math.nan}, "`clip_norm` must be finite, got nan"),
    ({"noise": -1.0}, "`noise_multiplier` must not be negative, got -1.0"),
    ({"noise": math.inf}, "`noise_multiplier` must be finite, got inf"),
    ({"num_clusters": 0}, "`num_clusters` must be at least 1, got 0"),
    ({"participation": 0.0}, r"`participation` must be in \(0, 1\], got 0.0"),
    ({"update": by_hand.UPDATE, "num_steps": 1}, "must not have `keep_optimizer`"),
    ({"task": normalised(TASK, (FEATURES,))}, "`task` must measure no statistics"),
)


def test_too_few_clients_are_refused():
    with pytest.raises(ValueError, match="must be at most 2, a cluster's share of 8 "):
        build(3).init(KEY, DATA)
    with pytest.raises(ValueError, match="at most 1, a cluster's share of 4 clients"):
        build(2, participation=0.5).init(KEY, DATA)
    build(1, participation=0.5).init(KEY, DATA)


test_misuse_of_costs = misuse(
    lambda **changes: privacy_spent(
        **{"noise_multiplier": 1.0, "num_rounds": 1} | COST | changes
    ),
    ({"noise_multiplier": -1.0}, "`noise_multiplier` must not be negative"),
    ({"num_rounds": 0}, "`num_rounds` must be at least 1, got 0"),
    ({"num_sampled": 51}, "`num_sampled` must be at most 50, the number of clients"),
    ({"delta": 0.0}, r"`delta` must be in \[1e-15, 1\), got 0.0"),
    ({"delta": 1.0}, r"`delta` must be in \[1e-15, 1\), got 1.0"),
)


def test_a_missing_library_is_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with pytest.raises(ImportError, match="needs dp-accounting; install the extra"):
        privacy_spent(noise_multiplier=1.0, num_rounds=1, **COST)
