"""Table 15's clusters: ways to merge them, their indices, and what those can tell."""

import csv
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import experiments.clove
from cfljax import metrics
from theory.clove import merged_clusters
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


def test_ways_to_merge_are_all_there():
    """Numbers of integer partitions, and those of 4 by hand."""
    counts = [len(set(merged_clusters.block_sizes(total))) for total in range(11)]
    assert counts == [1, 1, 2, 3, 5, 7, 11, 15, 22, 30, 42]
    found = list(merged_clusters.block_sizes(4))
    assert found == [(4,), (3, 1), (2, 2), (2, 1, 1), (1, 1, 1, 1)]


def test_merged_index_is_the_librarys():
    for blocks in merged_clusters.block_sizes(4):
        assignment = np.repeat(np.repeat(np.arange(len(blocks)), blocks), 3)
        both = jnp.asarray(assignment), jnp.asarray(np.repeat(np.arange(4), 3))
        index = float(metrics.adjusted_rand_index(*both, 4))
        assert merged_clusters.merged_index(blocks, 3) == pytest.approx(index, abs=1e-6)


def test_indices_in_the_registry():
    """One merge of 5 clusters of 10 gives 0.768, and all in one gives 0."""
    assert merged_clusters.merged_index((2, 1, 1, 1), 10) == pytest.approx(
        0.768, abs=5e-4
    )
    assert merged_clusters.merged_index((5,), 10) == 0
    assert merged_clusters.merged_index((1,) * 5, 10) == 1


@pytest.mark.parametrize(
    ("num_clusters", "correction", "fit"),
    [(5, 0, 15), (10, 0, 2), (2, 0, 0), (5, 1, 0)],
)
def test_cells_that_fit(num_clusters, correction, fit):
    found = merged_clusters.misses(num_clusters, correction=correction)
    assert np.sum(found <= 0.005) == fit


def test_ten_clusters_fit_with_neither_deviation():
    for correction in (0, 1):
        found = merged_clusters.check_clusters(
            QUICK, name="toy.a", num_clusters=10, correction=correction
        )
        assert found.status is Status.VIOLATED


def test_five_clusters_do_not_fit_whatever_is_printed():
    """Power: of what 10 clusters of 5 can give, 5 of 10 match less than 4 %."""
    ten, five = (
        np.stack([ways.mean(axis=1), ways.std(axis=1)])
        for ways in (merged_clusters.triples(k, 50) for k in (10, 5))
    )
    apart = np.max(np.abs(np.round(ten, 2)[:, :, None] - five[:, None]), axis=0)
    assert apart.shape == (3654, 84)
    assert 0.02 < np.mean(np.min(apart, axis=1) <= 0.005) < 0.04


def test_published_cells_are_the_papers():
    path = pathlib.Path(experiments.clove.__file__).with_name("published.csv")
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["item"] == "Table 15"]
    wanted = {
        (row["dataset"], row["setting"]): (float(row["mean"]), float(row["std"]))
        for row in rows
        if row["algorithm"] == "IFCA" and "ARI" in row["metric"]
    }
    datasets = ("MNIST", "CIFAR-10", "FMNIST")
    found = {
        (dataset, f"clients {num_clients}"): cell
        for num_clients, cells in merged_clusters._PUBLISHED.items()
        for dataset, cell in zip(datasets, cells, strict=True)
    }
    assert found == wanted and len(found) == 15


def test_clusters_must_be_equal():
    with pytest.raises(ValueError, match=r"^`num_clusters` must .* 50 clients, got 4"):
        merged_clusters.misses(4)
    with pytest.raises(ValueError, match=r"^`blocks` must hold at least 2 .* 5 of 1\."):
        merged_clusters.merged_index((5,), 1)
    with pytest.raises(ValueError, match=r"^`blocks` must hold at least 2 .* 1 of 5\."):
        merged_clusters.merged_index((1,), 5)
