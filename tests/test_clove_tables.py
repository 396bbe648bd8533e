"""Tables of CLoVE's experiments: sizes, partitions, rows by hand, and the command."""

import dataclasses
import itertools
import json
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from toy_experiments import configured, digits, files, labels

from cfljax.data import Samples
from cfljax.engine.store import Store
from cfljax.report import read_csv
from experiments.clove import rows
from experiments.clove.methods import METHODS, clusters
from experiments.clove.partitions import PARTITIONS, PUBLISHED, belongs, draw
from experiments.clove.study import (
    PAPER,
    Result,
    grids,
    jobs_of,
    rand_index,
)
from experiments.clove.tables import EXPERIMENTS, TABLES, Table, load, run
from experiments.options import Options
from experiments.published import published
from experiments.verdicts import Kind, Size

TABLE1, TABLE14 = load("clove.table1"), load("clove.table14")
SMALL = configured(
    "clove.table1",
    "--datasets digits --cluster-sizes 2 --num-samples 6 --num-test-samples 4"
    " --num-channels 1 --num-hidden 4 --num-rounds 4 --rounds-between 2 --batch-size 4",
)
DIGITS = digits()


# Against itself: sizes, partitions and names.


def test_sizes_are_the_papers():
    sizes = {}
    config = TABLE1.preset("paper")
    for dataset in config.datasets:
        own = [grid.trial for grid in grids(config, digits(dataset))]
        sizes[dataset] = [(trial.num_clients, trial.num_samples) for trial in own]
        assert {trial.network == "deep_cnn" for trial in own} == {dataset == "cifar10"}
    for dataset in ("mnist", "fashion_mnist"):
        assert sizes[dataset] == [(25, 500), (25, 500), (20, 1000), (40, 500)]
    assert sizes["cifar10"] == [(15, 500), (15, 500), (12, 1000), (20, 500)]
    training = PAPER.num_rounds, PAPER.num_epochs, PAPER.batch_size, PAPER.step_size
    assert (*training, PAPER.num_trials) == (100, 1, 64, 0.001, 3)


STUDIES = [(name, load(name)) for name in EXPERIMENTS]


def test_every_experiment_is_of_one_table():
    assert sorted(EXPERIMENTS) == sorted(name for table in TABLES for name in table.ids)


@pytest.mark.long
@pytest.mark.parametrize(("name", "own"), STUDIES)
@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_presets_write_and_draw_nothing_twice(name, own, preset):
    config = own.preset(preset)
    methods = [method for method in config.methods if clusters(method)]
    for dataset in config.datasets:
        trials = [grid.trial for grid in grids(config, digits(dataset))]
        assert len(set(trials)) == len(trials) > 0, name
        each = itertools.product([own.view], trials, methods)
        curves = [rows.curve_names(*one) for one in each]
        assert len(set(curves)) == len(curves)
        # All that a figure tells apart.
        assert len({label for _, label in curves}) <= 7


@pytest.mark.parametrize(("name", "own"), STUDIES)
def test_the_papers_own_tables_are_shown_whole(name, own):
    config, view = own.preset("paper"), own.view
    shown = set()
    for dataset in config.datasets:
        trials = [grid.trial for grid in grids(config, digits(dataset))]
        for trial, method in itertools.product(trials, config.methods):
            found = rows.published_numbers(trial, view, method)
            shown |= {(trial, method, number) for number in found.values()}
    names = {METHODS[method].label for method in config.methods}
    names |= set(view.published.values())
    item = "Table " + name.removeprefix("clove.table")
    beside = [(row.item, row.algorithm) for row in published("clove")]
    wanted = [own for own in beside if own[0] == item and own[1] in names]
    # Table 15's rows stand beside both numbers of clusters.
    repeated = 2 if name == "clove.table15" else 1
    if "table" in name:
        assert wanted and len(shown) >= len(wanted) * repeated
    else:
        assert not wanted and not shown


def test_as_many_participants_as_the_paper_asks_for():
    made = grids(TABLE14.preset("paper"), digits("mnist"))
    trials = [grid.trial for grid in made]
    numbers = [trial.num_participants for trial in trials]
    assert numbers == [125, 112, 94, 62, 31, 12]  # Halves to the even number.
    settings = [TABLE14.view.setting(trial) for trial in trials]
    assert settings[1:] == [f"participation {r}" for r in (0.9, 0.75, 0.5, 0.25, 0.1)]


def drawn(partition, num_clusters, num_test_samples=4, samples=DIGITS.samples, **more):
    """Clients with 8 samples each to train on, by default one a cluster."""
    usual = {"num_clients": num_clusters, "seed": 0, "repetitions": 1, **more}
    sizes = {"num_samples": 8, "num_test_samples": num_test_samples}
    return draw(partition, samples, num_clusters=num_clusters, **sizes, **usual)


@pytest.mark.parametrize("partition", [p for p in PARTITIONS if belongs(p, "digits")])
def test_clients_of_a_repetition_are_the_same_whatever_the_others(partition):
    number = PUBLISHED[partition].num_clusters
    known: Any = {"num_clients": 2 * number, "seed": 3}
    one, two = (drawn(partition, number, repetitions=n, **known) for n in (1, 2))
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
    own = drawn(partition, num_clusters, samples=topics())
    for data in (own.train, own.test):
        found = [set(row.tolist()) for row in np.asarray(data.targets[0])]
        assert all(a <= b for a, b in zip(found, classes, strict=True))
        assert found[0] != found[-1]


def test_more_clusters_than_swaps_are_refused():
    with pytest.raises(ValueError, match="`num_clusters` must be at most 4"):
        drawn("concept_shift", 5, num_clients=10)


def test_a_client_is_tested_on_the_classes_of_its_cluster():
    own = drawn("label_skew_1", 5, num_test_samples=8, num_clients=10)
    cluster = np.asarray(own.clusters[0])[:, None]
    for data in (own.train, own.test):
        assert np.all(np.asarray(data.targets[0]) // 2 == cluster)
    # Control: clients in another order have others.
    assert np.any(np.asarray(own.test.targets[0])[::-1] // 2 != cluster)


# Against equations: rows, tables and figures by hand.

NAMES = ("clove", "ifca", "fedavg", "local")


@pytest.fixture
def paper_trial():
    return next(grids(TABLE1.preset("paper"), digits("mnist"))).trial


@pytest.fixture
def result(paper_trial) -> Result:
    """Three seeds of MNIST: CLoVE is right from round 2, IFCA never, one run failed."""
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
    of_rounds = {"rand_index": found, "seen_rand_index": found.copy(), "stable": stable}
    for name, value in (("used_models", 5.0), ("received", 2.0), ("sent", 1.0)):
        of_rounds[name] = np.full(shape, value)
    data = {name: ((*axes, "round"), values) for name, values in of_rounds.items()}
    data |= {"score": ((*axes, "tested"), score), "failed": (axes[:2], failed)}
    coords = {"method": list(NAMES), "repetition": [0.0, 1.0, 2.0]}
    return Result(paper_trial, xr.Dataset(data, coords | {"round": np.arange(1, 101)}))


def test_first_found_by_hand():
    nan = np.nan
    assert rows.first_found(np.array([0.5, 0.89, 0.9, 0.2])) == 3
    assert rows.first_found(np.array([nan, 1.0])) == 2
    assert rows.first_found(np.array([nan, nan, 0.89])) is None


def table_of(result, **changes):
    """Rows of the trial with these changes."""
    trial = dataclasses.replace(result.trial, **changes)
    return rows.rows(dataclasses.replace(result, trial=trial), TABLE1.view)


def test_rows_by_hand_beside_the_published_numbers(result):
    clove, ifca, fedavg, local = table_of(result)
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
    text = rows.markdown([clove, ifca, fedavg, local], TABLE1.view)
    assert "0.72 ± 0.00 | 0.83 ± 0.12 | 0/2" in text


def test_a_reconstruction_has_a_loss_and_no_accuracy(result):
    row = table_of(result, network="autoencoder")[0]
    assert "accuracy_mean" not in row
    np.testing.assert_allclose(row["loss_mean"], 0.92)


OTHERS = {"dataset": "digits", "num_participants": 5, "num_clusters": 3}
OTHERS |= {"partition": "label_skew_3", "network": "autoencoder"}


@pytest.mark.parametrize(("field", "value"), OTHERS.items())
def test_other_trials_have_no_published_numbers(field, value, result):
    table = table_of(result, **{field: value})
    assert not any(name.startswith("paper_") for row in table for name in row)


def test_what_is_missing_is_said(result):
    clove, ifca, *_ = table_of(result)
    one = {**clove, "accuracy_std": None, "rand_mean": float("nan")}
    text = rows.markdown([one, ifca], TABLE1.view)
    assert "| 92.0 |" in text and "| undefined |" in text and "| never |" in text
    assert "undefined" not in rows.markdown([clove, ifca], TABLE1.view)


def test_a_figure_of_few_participants_shows_all_who_were_seen(result):
    result.data["seen_rand_index"].values[...] = 0.25
    assert table_of(result)[0]["rand_mean"] == 1
    assert rows.rows(result, load("clove.fig4").view)[0]["rand_mean"] == 0.25


def test_index_where_there_is_something_to_find():
    truth = jnp.arange(6) // 2
    index = jax.jit(lambda own: rand_index(own, truth))
    assert index(jnp.array([3, 3, 1, -1, -1, -1])) == 1
    assert index(jnp.array([3, 2, 1, -1, -1, -1])) == 0
    for apart in ([3, -1, 2, -1, 1, -1], [0, -1, -1, -1, -1, -1], [-1] * 6):
        assert np.isnan(index(jnp.array(apart)))


def test_a_run_without_an_index_spoils_the_mean_and_is_not_found(result):
    result.data["rand_index"].values[0, 1] = np.nan
    clove = table_of(result)[0]
    assert np.isnan(clove["rand_mean"]) and (clove["found"], clove["trials"]) == (2, 3)


def test_the_figure_has_the_methods_that_find_clusters(result):
    ((name, figure),) = rows.draw([result], TABLE1.view).items()
    assert name == "rand_index"
    (axes,) = figure.axes
    assert {*labels(axes)} == {"CLoVE", "IFCA"}
    alone = Result(result.trial, result.data.sel({"method": ["local"]}))
    assert not rows.draw([alone], TABLE1.view)
    failed = [run["failed"] for run in rows.runs(result, TABLE1.view)]
    assert failed == [False] * 5 + [True] + [False] * 6


def drawn_names(result, experiment, names, field="num_clients", values=(25,)):
    """Names of the curves in each panel, by figure, of methods that are copies of each
    other, for each value of a field."""
    copies = [result.data.sel({"method": ["ifca"]})] * len(names)
    data = xr.concat(copies, "method").assign_coords(method=names)
    many = [
        Result(dataclasses.replace(result.trial, **{field: value}), data)
        for value in values
    ]
    figures = rows.draw(many, load(experiment).view)
    return {name: [{*labels(a)} for a in own.axes] for name, own in figures.items()}


def test_more_curves_than_a_figure_tells_apart_are_drawn_in_several(result):
    """Three shares of participants of each method: two methods a figure."""
    names = ["clove", "ifca", "fesem", "pacfl", "flexcfl"]
    shares = {"field": "num_participants", "values": (25, 12, 5)}
    drawn = drawn_names(result, "clove.table14", names, **shares)
    assert [*drawn] == ["rand_index", "rand_index-2", "rand_index-3"]
    assert [len(*own) for own in drawn.values()] == [6, 6, 3]
    assert len(set().union(*(labels for (labels,) in drawn.values()))) == 15


def test_many_curves_of_one_method_are_drawn_in_several(result):
    sizes = tuple(range(25, 25 + 5 * 9, 5))
    drawn = drawn_names(result, "clove.table15", ["clove"], values=sizes)
    assert [len(*own) for own in drawn.values()] == [4, 5]


def test_panels_that_share_their_names_are_of_one_figure(result):
    """As in Figure 2, of which each algorithm has four starts."""
    names = list(load("clove.fig2").preset("paper").methods)
    drawn = drawn_names(result, "clove.fig2", names)
    assert [*drawn] == ["rand_index"] and len(names) > 7
    of_clove, of_ifca = drawn["rand_index"]
    assert of_clove == of_ifca


# Against equations: sizes and verdicts.

ITEMS = TABLE1.view.items


def test_a_row_says_its_size_and_what_its_numbers_say(result):
    clove, ifca, fedavg, local = table_of(result)
    assert {row["size"] for row in (clove, ifca, fedavg, local)} == {"paper"}
    # 92 against 99.8; all clusters found, in round 2.
    assert clove["verdict"] == (
        "differs (open): accuracy % -7.8; agrees: ARI, first round, ARI, 10"
    )
    assert ifca["verdict"].startswith("spread unknown: accuracy % -18.6, ARI -0.11")
    assert fedavg["verdict"] == "differs (open): accuracy % -15.4"
    text = rows.markdown([clove, ifca], TABLE1.view)
    assert "The size of all rows: paper." in text and "| size |" not in text
    text = rows.markdown([clove, ifca | {"size": "1 of 2 seeds"}], TABLE1.view)
    assert "| size | verdict |" in text and "| paper | differs (open): acc" in text


def test_ten_of_a_hundred_rounds_bear_a_mark(result):
    short = dataclasses.replace(result.trial, num_rounds=10, rounds_between=10)
    first = result.data.isel(round=slice(10), tested=[0])
    table = rows.rows(Result(short, first), TABLE1.view)
    assert {row["size"] for row in table} == {"10 of 100 rounds"}
    for row in table:
        assert row["verdict"].startswith("reduced") and "(10" not in row["verdict"]
        # What the first rounds alone decide is as it is in a long run.
        early = (
            "agrees: first round, ARI, 10",
            "agrees: first round",
            "agrees: ARI, 10",
        )
        parts = row["verdict"].split("; ")
        assert all(part in early for part in parts if part.startswith("agrees"))


@pytest.mark.parametrize(
    ("table", "changes", "said"),
    [
        ("clove.table14", {"num_participants": 75}, "participants 75 instead of 62"),
        ("clove.table14", {"num_test_samples": 1}, "1 of 20 test samples"),
        ("clove.table1", {"num_test_samples": 99}, "99 of 100 test samples"),
        ("clove.table3", {"num_tokens": 4}, "4 of 64 tokens"),
    ],
)
def test_sizes_that_the_paper_leaves_to_us_count_as_well(table, changes, said):
    view, config = load(table).view, load(table).preset("paper")
    name = "ag_news" if table == "clove.table3" else "mnist"
    # Of texts the second has the paper's number of clients.
    *_, grid = itertools.islice(
        grids(config, digits(name)), 2 if name != "mnist" else 1
    )
    trial = grid.trial
    tests = {"clove.table14": 20, "clove.table1": 100, "clove.table3": 75}[table]
    trial = dataclasses.replace(trial, num_test_samples=tests)
    size = rows.size_of(trial, view.items)
    assert size.is_paper, str(size)
    assert str(rows.size_of(dataclasses.replace(trial, **changes), view.items)) == said


def test_early_measures_need_no_later_rounds(result):
    short = dataclasses.replace(result.trial, num_rounds=10, rounds_between=10)
    size = lambda measure, values, method="clove": rows.size_for(
        measure, np.array(values), dataclasses.replace(short, method=method), ITEMS
    )
    assert size("rand_early", [1.0, 0.9]).is_paper
    assert size("first", [1.0, 4.0]).is_paper
    assert not size("first", [1.0, math.inf]).is_paper  # Perhaps later.
    assert not size("rand", [1.0, 1.0]).is_paper
    # It is told how many rounds there will be.
    assert not size("rand_early", [1.0, 0.9], "cfl_s").is_paper


def test_one_seed_has_no_spread_and_its_figure_says_so(result):
    one = Result(result.trial, result.data.isel(repetition=[0]))
    table = rows.rows(one, TABLE1.view)
    for row in table:
        assert row["verdict"].startswith("spread unknown") and row["trials"] == 1
    figures = [rows.draw([own], TABLE1.view)["rand_index"] for own in (one, result)]
    titles = [figure.legends[0].get_title().get_text() for figure in figures]
    assert titles == ["one seed", "mean ± one standard deviation over the seeds"]


def test_other_data_are_not_compared(result):
    digits, *_ = table_of(result, dataset="digits")
    assert digits["verdict"] == "not comparable"
    assert digits["size"].startswith("scikit-learn's digits")
    texts = {"dataset": "amazon_reviews", "partition": "groups", "network": "mlp"}
    sizes = {"num_clients": 20, "num_participants": 20, "num_clusters": 4}
    trial = dataclasses.replace(result.trial, **texts, **sizes, num_samples=312)
    view = load("clove.table3").view
    assert rows.published_numbers(trial, view, "clove")
    row, *_ = rows.rows(Result(trial, result.data), view)
    reviews = "312 reviews a client of Blitzer et al. instead of 1000"
    assert row["verdict"] == "not comparable" and reviews in row["size"]


@pytest.mark.parametrize("name", [name for name in EXPERIMENTS if "table" in name])
def test_presets_have_the_sizes_of_their_tables(name):
    table = load(name)
    config, items = table.preset("paper"), table.view.items
    for dataset in config.datasets:
        for grid in grids(config, digits(dataset)):
            trial, size = grid.trial, rows.size_of(grid.trial, items)
            if trial.num_clients == 1000:  # Of whom none can have the paper's 100.
                assert str(size) == "50 of 100 samples" and size.is_reduced
            elif dataset == "amazon_reviews":
                assert not size.is_paper and not size.is_reduced
            elif view_applies(table.view, trial):
                assert size == Size()
            for field in ("num_clients", "num_rounds", "num_samples"):
                less = {field: 1, "num_participants": 1, "rounds_between": 1}
                fewer = dataclasses.replace(trial, **less)
                assert not rows.size_of(fewer, items).is_paper
            rate = dataclasses.replace(trial, step_size=0.01)
            assert "step size 0.01 instead of 0.001" in str(rows.size_of(rate, items))


def view_applies(view, trial):
    """Whether the tables of a view are about a trial, however many take part."""
    return dataclasses.replace(view, is_partial=True).applies(trial)


def test_tables_of_other_sizes_are_told_apart(paper_trial):
    assert rows.size_of(paper_trial, ITEMS).is_paper
    # Of whom all take part, as in that table's first rows.
    assert not rows.size_of(paper_trial, TABLE14.view.items).is_paper
    part = dataclasses.replace(paper_trial, num_clients=40, num_participants=10)
    for trial, told in ((paper_trial, "125 participants"), (part, "31 participants")):
        assert f" of {told}" in str(rows.size_of(trial, TABLE14.view.items))
    narrow = dataclasses.replace(paper_trial, num_channels=4)
    assert str(rows.size_of(narrow, ITEMS)) == "4 of 32 channels"


def accuracies(*values):
    """Of three seeds or so, and an index that agrees with FeSEM's on label skew 1."""
    own = np.array(values, float)
    return {"accuracy": own, "rand": np.full(own.shape, 0.18)}


def test_a_defect_is_a_cause_where_its_variant_is_like_the_paper(paper_trial):
    paper = rows.published_numbers(paper_trial, TABLE1.view, "fesem")
    mean = paper["accuracy"].mean
    assert mean is not None and paper["rand"].mean == 0.18
    like = accuracies(mean, mean, mean)
    far = accuracies(*np.array([mean, mean, mean]) + 20)

    def kinds(plain, **others):
        values: Any = {"fesem": plain, **others}
        found = rows.verdicts(values, paper_trial, TABLE1.view)
        return found["fesem"]["accuracy"]

    cause = f"public code: see {METHODS['fesem_reference'].label}"
    explained = kinds(far, fesem_reference=like)
    assert (explained.kind, explained.reason) == (Kind.EXPLAINED, cause)
    assert kinds(like, fesem_reference=far).kind is Kind.AGREES
    # Controls: alone, of another method, of one seed, or different elsewhere.
    assert kinds(far).kind is Kind.OPEN
    assert kinds(far, fesem_reference=far).kind is Kind.OPEN
    assert kinds(far, cfl_s_reference=like).kind is Kind.OPEN
    assert kinds(far, fesem_reference=accuracies(mean)).kind is Kind.OPEN
    elsewhere = like | {"rand": np.full(3, 0.9)}
    assert kinds(far, fesem_reference=elsewhere).kind is Kind.OPEN


# Against misuse: what is refused.


def test_impossible_trials_are_refused():
    trial = next(grids(SMALL, DIGITS)).trial
    with pytest.raises(ValueError, match="`rounds_between` must divide"):
        dataclasses.replace(trial, rounds_between=3)


def test_a_set_without_a_partition_is_refused():
    with pytest.raises(ValueError, match="`partitions` must have one of ag_news"):
        next(grids(SMALL, digits("ag_news")))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"partitions": ("concept_shift",), "num_clusters": (5,)}, "at most 4"),
        ({"partitions": ("label_skew_1",), "num_clusters": (6,)}, "`num_owned` times"),
        ({"cluster_sizes": None, "num_clients": (7,)}, "multiple of the number of"),
        ({"num_samples": (9999,)}, "samples"),
        ({"participations": (0.01, 0.02)}, "`participations` must give different"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_run(change, message):
    config = dataclasses.replace(SMALL, **change)
    with pytest.raises(ValueError, match=message):
        jobs_of(config, [DIGITS])
    assert jobs_of(SMALL, [DIGITS])


def test_texts_have_neither_reconstructions_nor_more_clusters_than_clients():
    sizes = {"cluster_sizes": None, "num_clusters": (40,)}
    texts = dataclasses.replace(SMALL, partitions=("pairs_of_classes",), **sizes)
    with pytest.raises(ValueError, match="`num_clusters` must be at most the 30"):
        next(grids(texts, digits("ag_news")))
    images = dataclasses.replace(texts, num_clusters=(4,), reconstruct=True)
    with pytest.raises(ValueError, match="`reconstruct` needs images, got ag_news"):
        next(grids(images, digits("ag_news")))


# Against itself: whole runs on a few digits.


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_command_writes_all_and_resumes_whatever_was_done_before(
    tmp_path, monkeypatch, refuse_work
):
    methods = ("clove", "ifca", "fedavg", "local")
    config = dataclasses.replace(SMALL, partitions=("label_skew_1",), methods=methods)
    options = Options(out=tmp_path / "whole", progress=False)
    summary = TABLE1.main(config, options)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 4
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    kinds = ("svg", "pdf", "png", "txt")
    names |= {f"{n}.{kind}" for n in ("rand_index", "methods") for kind in kinds}
    assert files(summary) == names
    found = read_csv(options.out / "runs.csv")
    assert len(found) == 8 and all(0 <= run["score"] <= 1 for run in found)
    received = {run["method"]: run["received_mib"] for run in found}
    assert received["local"] == 0 < received["fedavg"]
    for name in ("clove", "ifca"):  # All models of K = 5, where FedAvg has one.
        np.testing.assert_allclose(received[name] / received["fedavg"], 5, rtol=1e-5)

    # Of fewer methods, in another chunk, interrupted after a cell: the same numbers.
    fewer = dataclasses.replace(config, methods=("clove", "fedavg"))
    other = dataclasses.replace(options, out=tmp_path / "parts", chunk=1)
    write = Store.write

    def interrupted(self, *arguments, **options):
        write(self, *arguments, **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(Store, "write", interrupted)
        TABLE1.main(fewer, other)
    resumed = TABLE1.main(fewer, other)["rows"]
    assert json.dumps(resumed) == json.dumps(summary["rows"][::2])

    # Nothing is run again.
    refuse_work()
    again = TABLE1.main(config, options)
    assert json.dumps(again["rows"]) == json.dumps(summary["rows"])


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")
def test_few_participants_autoencoders_and_every_variant(tmp_path):
    config = dataclasses.replace(
        SMALL,
        partitions=("one_class",),
        methods=("clove_early_stopping", "ifca_identical", "clove_gradient"),
        reconstruct=True,
        participations=(0.4,),
        num_rounds=6,
        rounds_between=3,
        num_trials=1,
        num_latent=2,
    )
    options = Options(out=tmp_path, progress=False)
    shown = Table(("any",), rows.View("any"))
    early, identical, gradient = run("any", shown, config, options)["rows"]
    assert {row["participants"] for row in (early, identical, gradient)} == {8}
    assert 0 < early["loss_mean"] < 1 and "accuracy_mean" not in early
    # All losses under identical models are equal, so that only the first is trained.
    table = read_csv(tmp_path / "runs.csv")
    used = {run["method"]: run["used_models"] for run in table}
    assert used["ifca_identical"] == 1 < used["clove_gradient"]
