"""Loss vectors: embedded, clustered, matched to models by hand (CLoVE, section 3)."""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.clove import (
    Grouping,
    centroids_of,
    embed,
    group_clients,
    match_to_models,
    nearest_centroid,
)
from cfljax.base.types import ClientData
from cfljax.federated.evaluate import choose_cluster, loss_matrix
from cfljax.models import mlp

KEY = jax.random.key(0)
WORKED = np.array([[1.0, 5.1], [2.1, 3.5]], np.float32)  # Figure 1.
EMBED = jax.jit(embed, static_argnums=1)
CLUSTERINGS = ("k_means", "kumar_kannan", "agglomerative")


@functools.cache
def program(**settings):
    """Compiled once for all tests of the same settings."""
    grouping = Grouping(**settings)
    return jax.jit(lambda losses: group_clients(KEY, losses, grouping))


def grouped(losses, **settings):
    return np.asarray(program(**settings)(np.asarray(losses, np.float32)))


@pytest.mark.long
@pytest.mark.parametrize("samples", [32, 37])
def test_losses_of_many_samples_are_means_by_client_and_model(samples):
    """More than a block holds: a whole number of blocks, and a last one that repeats
    samples; the first client's last sample does not count."""
    task = mlp((6,), hidden=(3,), num_classes=2)
    generator = np.random.default_rng(1)
    inputs = generator.standard_normal((4, samples, 6)).astype(np.float32)
    mask = np.ones((4, samples), bool)
    mask[0, -1] = False
    inputs[0, -1] = np.nan
    labels = np.int32(inputs[..., 0] > 0)
    data = ClientData(*map(jnp.asarray, (inputs, labels, mask)))

    @jax.jit
    def both(keys, data):
        models = jax.vmap(task.init)(keys)
        one = jax.vmap(jax.vmap(task.losses, (None, 0, 0)), (0, None, None))
        found = [
            loss_matrix(task, models, data, clients_per_chunk=c) for c in (None, 3)
        ]
        return found, one(models, data.inputs, data.targets)

    (found, chunked), losses = both(jax.random.split(KEY, 3), data)
    means = np.mean(np.asarray(losses), axis=2, where=mask).T
    np.testing.assert_allclose(found, means, rtol=1e-5)
    np.testing.assert_array_equal(chunked, found)
    # Control: a client's neighbour in the batch has other losses.
    assert not np.allclose(np.roll(means, 1, axis=0), means, rtol=1e-3)


@pytest.mark.long
@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_figure_1(clustering):
    losses = np.repeat(WORKED, 2, axis=0)
    # IFCA sends everybody to the first model, CLoVE matches 1.0 + 3.5 < 2.1 + 5.1.
    assert jax.jit(choose_cluster)(losses).tolist() == [0, 0, 0, 0]
    found = grouped(losses, clustering=clustering)
    assert found.tolist() == [0, 0, 1, 1]
    assert 1.0 + 3.5 < 2.1 + 5.1


def test_matching_is_the_least_sum_over_all_permutations():
    generator = np.random.default_rng(0)
    match = jax.jit(match_to_models)
    for _ in range(5):
        losses = generator.uniform(size=(9, 4)).astype(np.float32)
        clusters = generator.integers(0, 3, 9)  # The last cluster is empty.
        found = np.asarray(match(losses, clusters))
        assert sorted(found) == [0, 1, 2, 3]
        every = np.array(list(itertools.permutations(range(4))))
        totals = losses[np.arange(9)[None, :], every[:, clusters]].sum(axis=1)
        total = losses[np.arange(9), found[clusters]].sum()
        np.testing.assert_allclose(total, totals.min(), rtol=1e-6)
        assert np.median(totals) > 1.01 * total


@pytest.mark.long
@pytest.mark.parametrize(
    "clustering",
    ["k_means", pytest.param("kumar_kannan", marks=pytest.mark.slow), "agglomerative"],
)
def test_without_matching_clusters_are_in_the_order_of_their_first_clients(clustering):
    # The first client's cluster fits the last model best.
    losses = np.array(
        [[9.0, 5.0, 0.0]] + [[9.1, 5.0, 0.0]] * 4 + [[0.0, 5, 9], [1, 0, 9]]
    )
    settings = {"clustering": clustering}
    found = grouped(losses, matching=False, **settings)
    assert found.tolist() == [0, 0, 0, 0, 0, 1, 2]
    assert grouped(losses, **settings).tolist() == [2, 2, 2, 2, 2, 0, 1]
    missing = losses[[1, 6, 5, 1, 1, 0, 1]]
    missing[[0, 3, 6]] = np.nan
    found = grouped(missing, matching=False, **settings)
    assert found.tolist() == [-1, 0, 1, -1, 2, 2, -1]


def test_embeddings_by_hand():
    losses = np.array([[4.0, 0.0], [9.0, 1.0]], np.float32)
    assert EMBED(losses, "loss").tolist() == losses.tolist()
    np.testing.assert_allclose(EMBED(losses, "square_root"), [[2, 0], [3, 1]])
    tiny = np.log(np.finfo(np.float32).tiny)
    expected = [[np.log(4), tiny], [np.log(9), 0]]
    np.testing.assert_allclose(EMBED(losses, "log"), expected, rtol=1e-6)
    assert np.isnan(EMBED(losses - 1, "square_root")).tolist() == [
        [False, True],
        [False, False],
    ]


def test_what_is_not_finite():
    nan, inf = np.nan, np.inf
    # The second model diverged for all, the second client for itself alone, the last
    # client sent nothing.
    losses = np.array(
        [[1, nan, 5.1], [inf, nan, 5], [1, inf, 5], [2.1, nan, 3.5]] + [[nan] * 3] * 3,
        np.float32,
    )
    points = np.asarray(EMBED(losses, "loss"))
    np.testing.assert_array_equal(points[:4, 1], 0)
    assert np.isnan(points[1, 0]) and np.isnan(points[4:]).all()
    found = grouped(losses, clustering="agglomerative")
    assert set(found[[1, 4, 5, 6]].tolist()) == {-1}
    assert 1 not in found.tolist()  # Nobody is sent to the model that diverged.
    assert found[0] == found[2] != found[3]


@pytest.mark.long
@pytest.mark.parametrize("clustering", CLUSTERINGS)
def test_fewer_clients_than_models(clustering):
    losses = np.array([[3.0, 1, 2, 4], [9, 7, 8, 0]])
    assert grouped(losses, clustering=clustering).tolist() == [1, 3]


EVERY: list[dict[str, Any]] = [{"clustering": name} for name in CLUSTERINGS]
EVERY.append({"clustering": "agglomerative", "select_number": True})


@pytest.mark.long
@pytest.mark.parametrize("settings", EVERY)
def test_equal_loss_vectors_and_a_single_client_have_models(settings):
    equal = grouped(np.full((7, 3), 2.0), **settings)
    assert set(equal.tolist()) <= {0, 1, 2}
    if settings != {"clustering": "agglomerative"}:  # Which cuts wherever it must.
        assert len(set(equal.tolist())) == 1
    assert grouped(np.array([[3.0, 1.0, 2.0]]), **settings).tolist() == [1]


@pytest.mark.long
@pytest.mark.parametrize("clustering", CLUSTERINGS)
@pytest.mark.parametrize("far", [1e6, 1e14, 1e20])
def test_a_far_loss_does_not_merge_the_others(clustering, far):
    losses = np.array([[1.0, 5, 9]] * 3 + [[5, 1, 9]] * 3 + [[far, 5, 9]])
    found = grouped(losses, clustering=clustering).tolist()
    assert not set(found[:3]) & set(found[3:6])
    assert found[6] == -1 if far > 1e15 else found == [0, 0, 0, 1, 1, 1, 2]


def test_number_of_clusters_is_selected():
    near, far = [[0, 4, 2], [0.1, 4, 2]], [[4, 0, 2], [4.1, 0, 2]]
    losses = np.array([*near, *far, [np.nan] * 3, [np.nan] * 3, [np.nan] * 3])
    found = grouped(losses, clustering="agglomerative", select_number=True)
    assert found.tolist() == [0, 0, 1, 1, -1, -1, -1]
    fixed = grouped(losses, clustering="agglomerative")
    assert len(set(fixed[:4].tolist())) == 3


def test_centroids_and_newcomers():
    nan = np.nan
    points = np.array([[0.0, 2.0], [0.0, 4.0], [5.0, 5.0], [nan, 1.0]], np.float32)
    old = np.array([[9.0, 9.0], [8.0, 8.0]], np.float32)
    means = jax.jit(centroids_of)(points, np.array([0, 0, -1, -1]), empty=old)
    assert means.tolist() == [[0, 3], [8, 8]]
    nearest = jax.jit(nearest_centroid)
    assert nearest(points, means).tolist() == [0, 0, 1, -1]
    means = np.array(means)
    assert nearest(points, np.full_like(means, nan)).tolist() == [-1] * 4
    means[0] = nan
    assert nearest(points, means).tolist()[:3] == [1] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"embedding": "cube"}, "`embedding` must be in"),
        ({"clustering": "ward"}, "`clustering` must be in"),
        ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
        ({"select_number": True}, "give `clustering='agglomerative'`"),
    ],
)
def test_misuse_is_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        Grouping(**arguments)
