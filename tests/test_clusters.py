"""What holds of clusters for every input: choices, means, matchings, distances."""

import itertools

import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis.extra.numpy import arrays
from properties import FINITE, NUMBERS, always, refuses

from cfljax.base.types import NO_CLUSTER
from cfljax.clustering.distances import (
    bottleneck_distance,
    cosines,
    inner_products,
    least_distance,
    match_clusters,
    norms,
)
from cfljax.federated.average import gradient_step, mean_of_sums, membership
from cfljax.federated.evaluate import (
    choose_cluster,
    keep_cluster,
)
from cfljax.federated.sums import sum_in_clusters

CLIENTS, CLUSTERS, FEATURES = 6, 3, 2
EPSILON = float(np.finfo(np.float32).eps)
TINY = float(np.finfo(np.float32).tiny)  # Numbers below it are taken for zero.

LOSSES = arrays(np.float32, (CLIENTS, CLUSTERS), elements=NUMBERS)
ASSIGNMENTS = arrays(np.int32, CLIENTS, elements=st.integers(-1, CLUSTERS - 1))
CHOSEN = st.permutations(range(CLUSTERS)).map(np.array)
ORDERS = st.permutations(range(CLIENTS)).map(np.array)
VALUES = arrays(np.float32, (CLIENTS, FEATURES), elements=FINITE)
WEIGHTS = arrays(np.float32, CLIENTS, elements=st.integers(0, 5).map(float))
MODELS = arrays(np.float32, (CLUSTERS, FEATURES), elements=FINITE)
EMPTY = arrays(np.float32, (CLUSTERS, FEATURES), elements=NUMBERS)
# Whole numbers, whose sums are exact: the best matching is then a fact.
COSTS = st.integers(-9, 9).map(float) | st.sampled_from(
    (float("nan"), float("inf"), float("-inf"))
)

choose = jax.jit(choose_cluster)
keep = jax.jit(keep_cluster)
match = jax.jit(match_clusters)
least = jax.jit(least_distance)
bottleneck = jax.jit(bottleneck_distance)


# Choices, against equations


def is_the_best_choice(losses, chosen):
    """By the definition, client by client."""
    for row, cluster in zip(losses, chosen, strict=True):
        finite = [index for index in range(CLUSTERS) if np.isfinite(row[index])]
        best = min(finite, key=lambda index: row[index], default=NO_CLUSTER)
        assert cluster == best


@always(losses=LOSSES)
def test_a_loss_that_is_not_finite_never_wins_and_ties_go_to_the_lowest(losses):
    is_the_best_choice(losses, np.asarray(choose(losses)))


def test_control_the_usual_argmin_lets_undefined_losses_win():
    usual = lambda losses: is_the_best_choice(losses, np.argmin(losses, axis=1))
    assert refuses(usual, losses=LOSSES)


@always(losses=LOSSES, clusters=CHOSEN, clients=ORDERS)
def test_a_choice_follows_its_clients_and_clusters(losses, clusters, clients):
    before = np.asarray(choose(losses))
    assert np.array_equal(choose(losses[clients]), before[clients])
    after = np.asarray(choose(losses[:, clusters]))
    assert np.array_equal(after < 0, before < 0)
    chose = np.flatnonzero(before >= 0)
    moved = clusters[after[chose]]
    assert np.array_equal(losses[chose, moved], losses[chose, before[chose]])


@always(losses=LOSSES, assignment=ASSIGNMENTS)
def test_a_cluster_is_kept_exactly_where_its_loss_is_finite(losses, assignment):
    kept = np.asarray(keep(losses, assignment))
    for row, had, has in zip(losses, assignment, kept, strict=True):
        can = had >= 0 and np.isfinite(row[had])
        assert has == (had if can else NO_CLUSTER)


@always(assignment=ASSIGNMENTS)
def test_members_are_in_their_own_cluster_only(assignment):
    rows = np.asarray(membership(jnp.asarray(assignment), CLUSTERS))
    assert np.array_equal(rows.sum(axis=1), assignment >= 0)
    inside = assignment >= 0
    assert rows[inside, assignment[inside]].all()


# Means, against equations


@jax.jit
def averaged(values, assignment, weights, empty):
    """Weighted means inside clusters, as servers compute them."""
    one = lambda _, memory, value: ((value, ()), memory)
    (sums, _), _ = sum_in_clusters(
        one,
        (),
        (),
        (values,),
        assignment=assignment,
        weights=weights,
        num_clusters=CLUSTERS,
    )
    members = membership(assignment, CLUSTERS).astype(weights.dtype)
    return mean_of_sums(sums, weights @ members, empty=empty)


def lies_between_its_members(values, assignment, weights, empty, means):
    for cluster in range(CLUSTERS):
        members = values[(assignment == cluster) & (weights > 0)]
        if len(members) == 0:
            assert np.array_equal(means[cluster], empty[cluster], equal_nan=True)
            continue
        # A product, at most CLIENTS - 1 additions, an inverse and one more product.
        rounding = (CLIENTS + 3) * (EPSILON * np.abs(members).max() + TINY)
        assert np.all(means[cluster] >= members.min(axis=0) - rounding)
        assert np.all(means[cluster] <= members.max(axis=0) + rounding)


AVERAGE = {"values": VALUES, "assignment": ASSIGNMENTS, "weights": WEIGHTS}


@always(**AVERAGE, empty=EMPTY, order=ORDERS)
def test_a_mean_lies_between_its_members_in_any_order(
    values, assignment, weights, empty, order
):
    given = (values, assignment, np.where(assignment < 0, np.float32(0), weights))
    means = np.asarray(averaged(*given, empty))
    lies_between_its_members(*given, empty, means)
    again = np.asarray(averaged(*(part[order] for part in given), empty))
    lies_between_its_members(*given, empty, again)
    rounding = 2 * (CLIENTS + 3) * (EPSILON * np.abs(values).max() + TINY)
    used = np.bincount(assignment + 1, given[2], CLUSTERS + 1)[1:] > 0
    assert np.all(np.abs(again[used] - means[used]) <= rounding)


def test_control_an_empty_cluster_is_not_its_sum():
    def spoilt(values, assignment, weights, empty):
        means = np.asarray(averaged(values, assignment, weights, empty * 0))
        lies_between_its_members(values, assignment, weights, empty, means)

    assert refuses(spoilt, **AVERAGE, empty=MODELS)


@always(values=VALUES, assignment=ASSIGNMENTS, weights=WEIGHTS)
def test_a_client_without_weight_is_not_heard_whatever_it_says(
    values, assignment, weights
):
    weights = np.where(assignment < 0, np.float32(0), weights)
    nothing = np.zeros((CLUSTERS, FEATURES), np.float32)
    spoilt = np.where(weights[:, None] > 0, values, np.float32(np.nan))
    assert np.array_equal(
        averaged(values, assignment, weights, nothing),
        averaged(spoilt, assignment, weights, nothing),
    )


@jax.jit
def stepped(models, values, weights):
    """A step of length one against half the squared distance from the values."""
    losses = lambda models: (
        0.5 * jnp.sum(jnp.square(values[:, None] - models[None]), axis=2)
    )
    _, pullback = jax.vjp(losses, models)
    return gradient_step(
        models, pullback, weights, step_size=1.0, total=1.0, per_cluster=True
    )


@always(**AVERAGE, models=MODELS, clusters=CHOSEN)
def test_a_gradient_step_is_the_mean_and_an_empty_cluster_stays(
    values, assignment, weights, models, clusters
):
    members = (assignment[:, None] == np.arange(CLUSTERS)) * weights[:, None]
    after = np.asarray(stepped(models, values, members))
    largest = 1 + np.abs(values).max() + np.abs(models).max()
    for cluster in range(CLUSTERS):
        own = members[:, cluster]
        if not own.any():
            assert np.array_equal(after[cluster], models[cluster])
        else:
            mean = own.astype(float) @ values / own.sum(dtype=float)
            assert np.all(np.abs(after[cluster] - mean) <= 20 * EPSILON * largest)
    moved = np.asarray(stepped(models[clusters], values, members[:, clusters]))
    assert np.all(np.abs(moved - after[clusters]) <= 20 * EPSILON * largest)


# Matchings and distances, against equations


def is_the_best_matching(cost, matched):
    """Fewest entries that are not finite, then least total; by trying all."""
    size = len(cost)
    assert sorted(matched) == list(range(size))

    def price(permutation):
        entries = cost[np.arange(size), permutation]
        finite = np.isfinite(entries)
        return np.sum(~finite), np.sum(entries[finite])

    assert price(matched) == min(map(price, itertools.permutations(range(size))))


@always(cost=arrays(np.float32, (4, 4), elements=COSTS))
def test_a_small_matching_is_the_best(cost):
    is_the_best_matching(cost, np.asarray(match(cost)))


@pytest.mark.long
@always(cost=arrays(np.float32, (6, 6), elements=COSTS))
def test_a_large_matching_is_the_best(cost):
    is_the_best_matching(cost, np.asarray(match(cost)))


def test_control_the_best_matching_is_not_that_of_each_row():
    greedy = lambda cost: is_the_best_matching(cost, np.argsort(cost[0]))
    assert refuses(greedy, cost=arrays(np.float32, (4, 4), elements=COSTS))


@always(cost=arrays(np.float32, (4, 4), elements=st.integers(-9, 9).map(float)))
def test_of_equal_matchings_the_first_is_taken(cost):
    every = list(itertools.permutations(range(4)))
    totals = [cost[np.arange(4), list(one)].sum() for one in every]
    assert tuple(np.asarray(match(cost))) == every[int(np.argmin(totals))]


@always(models=MODELS, others=MODELS, thirds=MODELS, one=CHOSEN, two=CHOSEN)
def test_distances_of_sets_of_models(models, others, thirds, one, two):
    apart = float(bottleneck(models, others))
    rounding = 8 * EPSILON * (1 + max(np.abs(m).max() for m in (models, others)))
    assert abs(float(bottleneck(models[one], others[two])) - apart) <= rounding
    assert abs(float(bottleneck(others, models)) - apart) <= rounding
    assert float(bottleneck(models, models[one])) == 0
    pairs = np.linalg.norm(models[:, None].astype(float) - others[None], axis=2)
    best = min(
        pairs[np.arange(CLUSTERS), list(p)].max()
        for p in itertools.permutations(range(CLUSTERS))
    )
    assert abs(best - apart) <= rounding
    rounding += 8 * EPSILON * np.abs(thirds).max()
    by_thirds = float(bottleneck(models, thirds)) + float(bottleneck(thirds, others))
    assert apart <= by_thirds + 2 * rounding


@always(models=MODELS, order=CHOSEN, spoilt=st.integers(0, CLUSTERS - 1))
def test_the_least_distance_is_that_of_the_nearest_pair(models, order, spoilt):
    found = float(least(models))
    pairs = itertools.combinations(models.astype(float), 2)
    nearest = min(float(np.linalg.norm(left - right)) for left, right in pairs)
    assert abs(found - nearest) <= 8 * EPSILON * (1 + np.abs(models).max())
    assert float(least(models[order])) == found
    models = models.copy()
    models[spoilt] = np.nan
    assert np.isnan(float(least(models))) and np.isnan(
        float(bottleneck(models, models))
    )


def test_cosines_against_numpy():
    generator = np.random.default_rng(0)
    leaves = [generator.normal(size=(5, 2, 3)), generator.normal(size=(5, 4))]
    for leaf in leaves:
        leaf[3] = 0.0
    flat = np.concatenate([leaf.reshape(5, -1) for leaf in leaves], axis=1)
    tree = {"a": jnp.asarray(leaves[0], "f4"), "b": jnp.asarray(leaves[1], "f4")}
    three = jax.tree.map(lambda leaf: leaf[:3], tree)
    run = lambda t, u: (inner_products(t, u), norms(t), cosines(t, u))
    products, lengths, angles = jax.jit(run)(tree, three)
    sizes = np.linalg.norm(flat, axis=1)
    np.testing.assert_allclose(products, flat @ flat[:3].T, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(lengths, sizes, rtol=1e-6)
    sizes[3] = 1.0  # No direction.
    expected = flat @ flat[:3].T / sizes[:, None] / sizes[:3]
    np.testing.assert_allclose(angles, expected, rtol=1e-5, atol=1e-6)
    assert (np.asarray(angles[3]) == 0).all()
    assert np.abs(products - expected).max() > 0.1, "control: norms matter"
