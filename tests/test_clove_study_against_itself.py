"""CLoVE's experiments: sizes, partitions, rows by hand, and the command."""

import dataclasses
import itertools
import pathlib

import jax
import numpy as np
import pytest
import xarray as xr

from cfljax.data import Samples
from experiments.clove import table1, table14
from experiments.clove.config import PAPER, Config
from experiments.clove.partitions import PARTITIONS, PUBLISHED, belongs, draw
from experiments.clove.rows import Result, first_found, markdown, rows
from experiments.clove.sources import Source, load
from experiments.clove.study import grids
from experiments.clove.write import draw as draw_figure
from experiments.clove.write import runs
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
NAMES = ("clove", "ifca", "fedavg", "local")


def named(dataset) -> Source:
    """The embedded images, by another name for tests of what stands beside it."""
    return dataclasses.replace(DIGITS, name=dataset)


def made_up_result() -> Result:
    """Three seeds of MNIST: CLoVE is right from round 2, IFCA never, one run failed."""
    trial = next(grids(table1.preset("paper"), named("mnist"))).trial
    shape = (len(NAMES), 3, 1, 100)
    found = np.full(shape, np.nan)
    found[0], found[1] = 1.0, 0.72
    found[0, :, :, 0] = 0.5
    score = np.broadcast_to([[[[0.9]]], [[[0.8]]], [[[0.7]]], [[[0.6]]]], shape)
    score = score[..., ::10] + np.array([0, 0.01, 0.05])[:, None, None]
    failed = np.zeros((len(NAMES), 3), bool)
    failed[1, 2] = True
    score[1, 2], found[1, 2] = np.nan, np.nan
    stable = np.zeros(shape)
    stable[0, 0, 0, 6:] = 1
    axes = ("method", "repetition", "trial")
    data = {
        "score": ((*axes, "tested"), score),
        "rand_index": ((*axes, "round"), found),
        "seen_rand_index": ((*axes, "round"), found),
        "used_models": ((*axes, "round"), np.full(shape, 5.0)),
        "stable": ((*axes, "round"), stable),
        "received": ((*axes, "round"), np.full(shape, 2.0)),
        "sent": ((*axes, "round"), np.full(shape, 1.0)),
        "failed": (axes[:2], failed),
    }
    coords = {"method": list(NAMES), "repetition": [0.0, 1.0, 2.0]}
    return Result(trial, xr.Dataset(data, coords | {"round": np.arange(1, 101)}))


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


def configurations() -> list[tuple[str, Config]]:
    """The presets of all experiments of the study."""
    found = []
    for name, entry in EXPERIMENTS.items():
        if not name.startswith("clove."):
            continue
        for preset in ("quick", "paper"):
            config = entry.load().preset(preset)
            if type(config) is Config:
                found.append((f"{name} {preset}", config))
    return found


@pytest.mark.parametrize(("name", "config"), configurations())
def test_presets_have_trials_of_one_size(name, config):
    for dataset in config.datasets:
        made = list(grids(config, named(dataset)))
        shapes = [(g.trial.num_clients, g.trial.num_participants) for g in made]
        assert made and all(clients >= 1 for clients, _ in shapes), name
        stores = {
            (g.trial.partition, g.trial.num_clusters, *s)
            for g, s in zip(made, shapes, strict=True)
        }
        assert len(stores) == len(made)  # Nothing is written over.


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


def test_first_found_by_hand():
    nan = np.nan
    assert first_found(np.array([0.5, 0.89, 0.9, 0.2])) == 3
    assert first_found(np.array([nan, 1.0])) == 2
    assert first_found(np.array([nan, nan, 0.89])) is None


def test_rows_by_hand_beside_the_published_numbers():
    clove, ifca, fedavg, local = rows(made_up_result(), table1.VIEW)
    assert clove["trials"] == 3 and ifca["trials"] == 2  # One run failed.
    np.testing.assert_allclose(clove["accuracy_mean"], 92)
    np.testing.assert_allclose(clove["accuracy_std"], np.std([90, 91, 95]))
    np.testing.assert_allclose(ifca["accuracy_mean"], 80.5)
    assert (clove["found"], clove["first_mean"], clove["first_std"]) == (3, 2, 0)
    assert (ifca["found"], ifca["first_mean"]) == (0, None)
    assert (clove["stable_mean"], ifca["stable_mean"]) == (6, None)
    assert clove["mebibytes_mean"] == 3 and "rand_mean" not in local
    published = [row["paper_accuracy_mean"] for row in (clove, ifca, fedavg, local)]
    assert published == [99.8, 99.1, 87.4, 99.5]
    assert [row["paper_rand_mean"] for row in (clove, ifca)] == [1, 0.83]
    assert (clove["paper_first_mean"], ifca["paper_rand_early_mean"]) == (2, 0.83)
    text = markdown([clove, ifca, fedavg, local])
    assert "0.72 ± 0.00 | 0.83 ± 0.12 | 0/2" in text


def test_a_reconstruction_has_a_loss_and_no_accuracy():
    result = made_up_result()
    trial = dataclasses.replace(result.trial, network="autoencoder")
    row = rows(dataclasses.replace(result, trial=trial), table1.VIEW)[0]
    assert "accuracy_mean" not in row
    np.testing.assert_allclose(row["loss_mean"], 0.92)


def test_other_data_have_no_published_numbers():
    result = made_up_result()
    trial = dataclasses.replace(result.trial, dataset="digits")
    table = rows(dataclasses.replace(result, trial=trial), table1.VIEW)
    assert not any("paper_accuracy_mean" in row for row in table)


def test_a_run_without_an_index_spoils_the_mean_and_is_not_found():
    result = made_up_result()
    result.data["rand_index"].values[0, 1] = np.nan
    clove = rows(result, table1.VIEW)[0]
    assert np.isnan(clove["rand_mean"]) and (clove["found"], clove["trials"]) == (2, 3)


def test_the_figure_has_the_methods_that_find_clusters():
    result = made_up_result()
    figure = draw_figure([result], table1.VIEW)
    assert figure is not None and len(figure.axes) == 1
    names = {str(line.get_label()) for line in figure.axes[0].get_lines()}
    assert {name for name in names if name[0] != "_"} == {"CLoVE", "IFCA"}
    alone = Result(result.trial, result.data.sel({"method": ["local"]}))
    assert draw_figure([alone], table1.VIEW) is None
    failed = [run["failed"] for run in runs(result)]
    assert failed == [False] * 5 + [True] + [False] * 6
