"""CLoVE's experiments: sizes, partitions, rows by hand, and the command."""

import dataclasses
import itertools
import pathlib
from types import ModuleType

import jax
import numpy as np
import pytest

from cfljax.data import Samples
from experiments.clove import table1, table14
from experiments.clove.config import PAPER
from experiments.clove.methods import METHODS, clusters
from experiments.clove.partitions import PARTITIONS, PUBLISHED, belongs, draw
from experiments.clove.rows import (
    MEASURES,
    _published,
    _table,
)
from experiments.clove.sources import Source, load
from experiments.clove.study import grids, store_name
from experiments.clove.write import curve_names
from experiments.options import Options
from experiments.registry import EXPERIMENTS

SMALL = dataclasses.replace(
    table1.preset("quick"),
    datasets=("digits",),
    cluster_sizes=(2,),
    num_samples=(6,),
    num_test_samples=(4,),
    num_channels=1,
    num_hidden=4,
    num_rounds=4,
    rounds_between=2,
    batch_size=4,
)
DIGITS = load(
    "digits",
    Options(out=pathlib.Path("unused")),
    fall_back=False,
    num_words=1,
    num_tokens=1,
)


def named(dataset) -> Source:
    """The embedded images, by another name for tests of what stands beside it."""
    return dataclasses.replace(DIGITS, name=dataset)


def test_sizes_are_the_papers():
    sizes = {}
    config = table1.preset("paper")
    for dataset in config.datasets:
        own = [grid.trial for grid in grids(config, named(dataset))]
        sizes[dataset] = [(trial.num_clients, trial.num_samples) for trial in own]
        assert {trial.network == "deep_cnn" for trial in own} == {dataset == "cifar10"}
    for dataset in ("mnist", "fashion_mnist"):
        assert sizes[dataset] == [(25, 500), (25, 500), (20, 1000), (40, 500)]
    assert sizes["cifar10"] == [(15, 500), (15, 500), (12, 1000), (20, 500)]
    training = PAPER.num_rounds, PAPER.num_epochs, PAPER.batch_size, PAPER.step_size
    assert (*training, PAPER.num_trials) == (100, 1, 64, 0.001, 3)


def studies() -> list[tuple[str, ModuleType]]:
    """The modules of all experiments of the study."""
    found = {
        name: entry.load()
        for name, entry in EXPERIMENTS.items()
        if name.startswith("clove.")
    }
    return [(name, own) for name, own in found.items() if hasattr(own, "VIEW")]


@pytest.mark.parametrize(("name", "module"), studies())
@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_presets_write_and_draw_nothing_twice(name, module, preset):
    config = module.preset(preset)
    for dataset in config.datasets:
        trials = [grid.trial for grid in grids(config, named(dataset))]
        stores = {store_name(trial) for trial in trials}
        assert len(stores) == len(trials) > 0, name
        drawn = [
            curve_names(module.VIEW, trial, method)
            for trial in trials
            for method in config.methods
            if clusters(method)
        ]
        assert len(set(drawn)) == len(drawn)
        assert len({label for _, label in drawn}) <= 7  # All that a figure tells apart.


@pytest.mark.parametrize(("name", "module"), studies())
def test_the_papers_own_tables_are_shown_whole(name, module):
    config, view = module.preset("paper"), module.VIEW
    shown = set()
    for dataset in config.datasets:
        for grid in grids(config, named(dataset)):
            for method in config.methods:
                for measure in MEASURES:
                    if found := _published(grid.trial, view, method, measure):
                        shown.add((grid.trial, method, measure, str(found)))
    names = {METHODS[method].label for method in config.methods}
    names |= set(view.published.values())
    own = "Table " + name.removeprefix("clove.table")
    wanted = [
        row for row in _table() if row["item"] == own and row["algorithm"] in names
    ]
    # Table 15's rows stand beside both numbers of clusters.
    repeated = 2 if name == "clove.table15" else 1
    if "table" in name:
        assert wanted and len(shown) >= len(wanted) * repeated
    else:
        assert not wanted and not shown


def test_as_many_participants_as_the_paper_asks_for():
    made = grids(table14.preset("paper"), named("mnist"))
    numbers = [grid.trial.num_participants for grid in made]
    assert numbers == [125, 112, 94, 62, 31, 12]  # Halves to the even number.
    settings = [
        table14.VIEW.setting(g.trial)
        for g in grids(table14.preset("paper"), named("mnist"))
    ]
    assert settings[1:] == [f"participation {r}" for r in (0.9, 0.75, 0.5, 0.25, 0.1)]


@pytest.mark.parametrize("partition", [p for p in PARTITIONS if belongs(p, "digits")])
def test_clients_of_a_repetition_are_the_same_whatever_the_others(partition):
    number = PUBLISHED[partition].num_clusters
    sizes = {"num_clients": 2 * number, "num_samples": 8, "num_test_samples": 4}
    known = {"num_clusters": number, "seed": 3}
    one = draw(partition, DIGITS.samples, repetitions=1, **known, **sizes)
    two = draw(partition, DIGITS.samples, repetitions=2, **known, **sizes)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a, b[:1]), one, two)
    assert two.train.mask.shape == (2, 2 * number, 8)
    assert two.test.mask.shape == (2, 2 * number, 4)
    assert bool(two.train.mask.all()) and bool(two.test.mask.all())
    assert np.any(two.train.inputs[0] != two.train.inputs[1])


def topics() -> Samples:
    """Texts of four classes and groups alike, by number."""
    labels = np.repeat(np.arange(4), 60)
    inputs = np.arange(240, dtype=np.int32)[:, None]
    return Samples(inputs, labels, -1 - inputs, labels, "", labels, labels)


@pytest.mark.parametrize(
    ("partition", "num_clusters", "classes"),
    [
        ("pairs_of_classes", 4, [{0, 1}, {1, 2}, {2, 3}, {0, 3}]),
        ("pairs_of_classes", 6, [set(p) for p in itertools.combinations(range(4), 2)]),
        ("groups", 4, [{0}, {1}, {2}, {3}]),
    ],
)
def test_clusters_of_texts_have_their_classes(partition, num_clusters, classes):
    sizes = {"num_clients": num_clusters, "num_samples": 8, "num_test_samples": 4}
    own = draw(
        partition, topics(), seed=0, repetitions=1, num_clusters=num_clusters, **sizes
    )
    for data in (own.train, own.test):
        found = [set(row.tolist()) for row in np.asarray(data.targets[0])]
        assert all(a <= b for a, b in zip(found, classes, strict=True))
        assert found[0] != found[-1]


def test_more_clusters_than_swaps_are_refused():
    sizes = {"num_clients": 10, "num_samples": 4, "num_test_samples": 4}
    with pytest.raises(ValueError, match="`num_clusters` must be at most 4"):
        draw(
            "concept_shift",
            DIGITS.samples,
            seed=0,
            repetitions=1,
            num_clusters=5,
            **sizes,
        )


def test_a_client_is_tested_on_the_classes_of_its_cluster():
    sizes = {"num_clients": 10, "num_samples": 8, "num_test_samples": 8}
    own = draw(
        "label_skew_1", DIGITS.samples, seed=0, repetitions=1, num_clusters=5, **sizes
    )
    cluster = np.asarray(own.clusters[0])[:, None]
    for data in (own.train, own.test):
        assert np.all(np.asarray(data.targets[0]) // 2 == cluster)
    # Control: clients in another order have others.
    assert np.any(np.asarray(own.test.targets[0])[::-1] // 2 != cluster)
