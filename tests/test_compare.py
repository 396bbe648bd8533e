"""A comparison: choice by validation, rows by hand, resumption, and the command."""

import contextlib
import dataclasses
import io
import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from toy_experiments import retyped, save_no_figures

from cfljax.algorithms import REGISTRY, Registration
from cfljax.base.types import Algorithm
from cfljax.data import Samples
from cfljax.engine.programs import compile_trials, run_trials
from cfljax.engine.store import Store
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear, mlp, normalised
from cfljax.report import read_csv
from experiments.__main__ import main
from experiments.clove.sources import Source
from experiments.clove.study import rand_index
from experiments.compare import arms, registered, rows, study
from experiments.compare.trial import DIMS, Sizes, draw_clients, simulate
from experiments.options import Options

SIZES = {"num_clusters": 2, "cluster_size": 2, "num_newcomers": 1, "num_samples": 12}
SIZES |= {"num_validation_samples": 8, "num_test_samples": 8, "num_hidden": 4}
TINY: dict[str, Any] = {**SIZES, "num_rounds": 4, "num_trials": 2}
TINY |= {"dataset": "digits", "network": "mlp"}
FLAGS = [f"--{k.replace('_', '-')}={v}" for k, v in TINY.items()]
FLAGS += ["--json", "--devices", "1"]


def run(out, capsys, *flags):
    """Exit status and summary of a tiny comparison."""
    status = main(["compare", "--out", str(out), *retyped(FLAGS, flags)])
    return status, json.loads(capsys.readouterr().out)


def unhurried(table):
    """The rows without what depends on the machine."""
    return [{k: v for k, v in row.items() if "seconds" not in k} for row in table]


def made_up(names, accuracies, config, validations=None):
    """Results of given test accuracies `[arm, seed, tested]`; one setting each."""
    found = []
    for index, name in enumerate(names):
        test = np.asarray(accuracies[index], float)
        seen = test if validations is None else np.asarray(validations[index], float)
        zeros = np.zeros((len(test), config.num_rounds))
        nothing = (("repetition", "round"), zeros)
        data = xr.Dataset(
            {
                "test": (("repetition", "tested"), test),
                "validation": (("repetition", "tested"), seen),
                "newcomers": (("repetition",), test[:, -1] / 2),
                **dict.fromkeys(("rand_index", "received", "sent"), nothing),
            }
        )
        setting = rows.Setting(arms.parse(name), 0.1, data, np.ones(len(test)), 0)
        contestant = config.contestants[index]
        found.append(rows.Result(contestant, (setting,)))
    return found


ASKED = ["--step-sizes", ".001", ".3"]


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    """What a comparison of three algorithms wrote, and the folder."""
    out = tmp_path_factory.mktemp("three")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        flags = ["--algorithms", "fedavg,ifca", "local", "--baseline", "local", *ASKED]
        assert main(["compare", "--out", str(out), *retyped(FLAGS, flags)]) == 0
    return json.loads(printed.getvalue()), out, flags


@pytest.mark.long
def test_three_algorithms_through_the_command(three, capsys, monkeypatch):
    summary, out, flags = three
    table = summary["rows"]
    assert summary["failed_cells"] == 0
    assert [row["algorithm"] for row in table] == ["fedavg", "ifca", "local"]
    assert {row["chosen"] for row in table} <= {"step_size=0.3", "step_size=0.001"}
    assert ["difference" in row for row in table] == [True, True, False]
    assert ["rand_index" in row for row in table] == [False, True, False]
    assert table[2]["received_mib"] == 0 < table[0]["received_mib"]
    names = {path.name for path in out.iterdir()}
    assert {"table.csv", "runs.csv", "table.md", "config.json"} <= names
    assert {"accuracy.svg", "accuracy.png"} <= names
    assert table[2]["chosen"] in (out / "table.md").read_text()
    runs = read_csv(out / "runs.csv")
    assert len(runs) == 3 * 2 * 2 and all(row["seconds_per_round"] > 0 for row in runs)
    kept = [row["test"] for row in runs if row["is_chosen"]]
    np.testing.assert_allclose(table[0]["accuracy"], 50 * (kept[0] + kept[1]))
    paired = 50 * (kept[0] - kept[4] + kept[1] - kept[5])
    np.testing.assert_allclose(table[0]["difference"], paired, atol=1e-9)
    save_no_figures(monkeypatch)
    assert run(out, capsys, *flags)[1]["rows"] == table, "read, seconds included"


# Of another command, in every run: test_jobs.py::test_commands_share_and_plan.
@pytest.mark.slow
def test_workers_share_a_comparison_that_can_be_planned(
    three, tmp_path, capsys, monkeypatch
):
    save_no_figures(monkeypatch)
    flags = ["--algorithms", "local", *ASKED]
    status, plan = run(tmp_path, capsys, *flags, "--plan")
    assert (status, plan["cells"], plan["done"]) == (0, 4, 0)
    assert plan["core_hours"] > 0 and not list(tmp_path.iterdir())
    for number, left in ((1, 2), (2, 0)):
        status, own = run(tmp_path, capsys, *flags, "--shard", f"{number}/2")
        assert (status, own["open_blocks"], own["files"]) == (0, left, [])
        assert own["headline"].startswith(f"compare, worker {number} of 2")
    assert run(tmp_path, capsys, *flags, "--plan")[1]["done"] == 4
    table = run(tmp_path, capsys, *flags)[1]["rows"]
    assert unhurried(table) == unhurried(three[0]["rows"][2:])


@pytest.mark.slow
def test_what_was_cut_off_ends_like_what_was_not(three, tmp_path, capsys, monkeypatch):
    """And an algorithm's row is the same whoever else is compared."""
    calls = []

    write = Store.write

    def third_call_stops(*arguments, **named):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return write(*arguments, **named)

    monkeypatch.setattr(Store, "write", third_call_stops)
    flags = ["--algorithms", "local", *ASKED]
    assert main(["compare", "--out", str(tmp_path), *retyped(FLAGS, flags)]) == 130
    capsys.readouterr()
    resumed = run(tmp_path, capsys, *flags)[1]["rows"]
    assert len(calls) == 3 + 2, "the two cells that were done are not run again"
    assert unhurried(resumed) == unhurried(three[0]["rows"][2:])


@pytest.mark.long
def test_test_labels_never_choose(tmp_path):
    """Poisoned test labels change what is reported and nothing that is chosen; control:
    what chose by them would choose otherwise."""
    longer: dict[str, Any] = {"num_epochs": 5, "num_test_samples": 20}
    longer |= {"num_newcomers": 0}
    config = arms.Config(("local",), step_sizes=(0.001, 0.3), **(TINY | longer))
    source = study._source(config, Options(out=tmp_path))
    trial = study.trial_of(config, source)
    clients = draw_clients(
        "label_skew_1", source, study._sizes(trial), seed=0, repetitions=2
    )
    # Classes that no client has, which what is trained best answers least.
    wrong = clients.test._replace(targets=(clients.test.targets + 5) % 10)

    key = jax.random.key(0)
    names = ("step_size", "repetition")
    program = compile_trials(
        simulate, trial, key, clients, chunk=1, batching="map", traced=names
    )

    def one(step_size, seed, clients):
        own = dataclasses.replace(trial, step_size=step_size, repetition=seed)
        found, _ = run_trials(program, own, key, [clients], trials=slice(0, 1))
        return {name: values[0] for name, values in found.items()}

    def result(clients):
        settings = []
        for size in config.step_sizes:
            seeds = [one(size, seed, clients) for seed in range(2)]
            data = {
                name: (("repetition", *DIMS[name]), np.stack([s[name] for s in seeds]))
                for name in DIMS
            }
            arm, own = arms.parse("local"), xr.Dataset(data)
            settings.append(rows.Setting(arm, size, own, np.ones(2), 0))
        return rows.Result(config.contestants[0], tuple(settings))

    plain, poisoned = result(clients), result(clients._replace(test=wrong))
    last = lambda r, name: np.array([s.values(name)[:, -1] for s in r.settings])
    scores, poisoned_scores = (last(r, "validation") for r in (plain, poisoned))
    np.testing.assert_array_equal(scores, poisoned_scores)
    assert plain.chosen_text == poisoned.chosen_text == "step_size=0.3"
    reported = [rows.rows([r], config)[0]["accuracy"] for r in (plain, poisoned)]
    assert reported[0] > 70 and reported[1] < 20
    assert rows.choose(last(plain, "test")) == 1
    assert rows.choose(last(poisoned, "test")) == 0, "control: the choice can be misled"


def test_nan_is_never_chosen():
    assert rows.choose(np.array([[0.9, np.nan], [0.1, 0.2], [0.2, 0.1]])) == 1
    assert rows.choose(np.full((2, 2), np.nan)) is None
    np.testing.assert_array_equal(rows.best_rounds(np.array([[0.1, 0.3, 0.3]])), [1])


def test_the_chosen_values_are_named():
    """Those searched over, not those asked for."""
    config = arms.Config(("ditto:num_steps=2",), search=("ditto:penalty=1,2",))
    names = [arm.text for arm in config.contestants[0].settings]
    settings = tuple(
        made_up([name], [[[score]] * 3], config)[0].settings[0]
        for name, score in zip(names, (np.nan, 0.4), strict=True)
    )
    result = rows.Result(config.contestants[0], settings)
    assert result.chosen_text == "penalty=2, step_size=0.1"
    assert rows.Result(config.contestants[0], settings[:1]).chosen is None


def test_rows_by_hand():
    config = arms.Config(("local", "fedavg", "ifca"), num_trials=2, num_rounds=4)
    accuracies = [[[0.5, 0.4], [0.6, 0.6]], [[0.7, 0.8], [0.9, 0.9]], [[0.5, 0.5]] * 2]
    validations = [[[1, 0], [0, 1]], [[0, 1]] * 2, [[0, 0]] * 2]
    names = ["local", "fedavg", "ifca"]
    results = made_up(names, accuracies, config, validations)
    first, second, _ = rows.rows(results, config)
    np.testing.assert_allclose(first["accuracy"], 50)
    assert "difference" not in first
    # Student's quantile for one degree of freedom is tan(pi (1 - rate) / 2).
    quantile = np.tan(np.pi * (1 - 0.05 / 2) / 2)
    np.testing.assert_allclose(second["difference"], 35)
    np.testing.assert_allclose(second["difference_high"], min(100, 35 + 5 * quantile))
    np.testing.assert_allclose(first["best_accuracy"], 55)
    np.testing.assert_allclose(first["best_round"], 3)
    np.testing.assert_allclose(second["newcomers"], 42.5)
    assert "minus baseline" in rows.markdown([first, second])


def test_differences_share_their_error_rate():
    """One comparison is made at the whole rate, two at half of it each."""
    accuracies = [[[0.5]] * 3, [[0.6], [0.62], [0.61]], [[0.6], [0.62], [0.61]]]
    widths = []
    for names in (("local", "fedavg"), ("local", "fedavg", "ifca")):
        config = arms.Config(names, num_rounds=1, rounds_between=1)
        row = rows.rows(made_up(names, accuracies, config), config)[1]
        widths.append(row["difference_high"] - row["difference_low"])
    quantiles = [4.302653, 6.205347]  # Of Student's t_2 at 0.975 and 0.9875.
    np.testing.assert_allclose(widths[1] / widths[0], quantiles[1] / quantiles[0], 1e-6)


def test_an_algorithm_that_failed_keeps_its_row():
    config = arms.Config(("local", "fedavg"), num_trials=2, num_rounds=2)
    good, bad = made_up(("local", "fedavg"), [[[0.5]] * 2] * 2, config)
    setting = rows.Setting(arms.parse("fedavg"), 0.1, None, np.full(2, np.nan), 2)
    table = rows.rows([good, rows.Result(bad.contestant, (setting,))], config)
    assert "accuracy" not in table[1] and "difference" not in table[1]
    assert "2 runs" in rows.markdown(table)


@pytest.mark.parametrize(("num_rounds", "most"), [(4, 5), (18, 7)])
def test_figures_tell_few_curves_apart(num_rounds, most):
    names = list(REGISTRY)[:9]
    asked: dict = {"num_trials": 2, "num_rounds": num_rounds, "baseline": names[3]}
    config = arms.Config(tuple(names), **asked)
    runs = [np.linspace(0.1, 0.9, num_rounds // 2)] * 2
    results = made_up(names, [runs] * len(names), config)
    figures = rows.draw(results, config, "digits")
    assert list(figures) == ["accuracy", "accuracy-2"]
    shown = [[t.get_text() for t in f.legends[0].get_texts()] for f in figures.values()]
    assert all(own[0] == names[3] and len(own) <= most for own in shown)
    assert {name for own in shown for name in own} == set(names)


def groups() -> Source:
    """Numbered samples of two groups, tests negative."""
    labels = np.repeat(np.arange(2), 60)
    inputs = 1 + np.arange(120, dtype=np.int32)[:, None]
    samples = Samples(inputs, labels, -inputs, labels, "", labels, labels)
    return Source("amazon_reviews", samples, "", "")


def test_no_sample_is_used_twice():
    sizes = Sizes(2, 2, 1, 10, 4, 5)
    own = draw_clients("groups", groups(), sizes, seed=1, repetitions=2)
    own = jax.tree.map(np.asarray, own)
    parts = (own.train, own.validation, own.test, own.new_train, own.new_test)
    shapes = [part.mask.shape for part in parts]
    assert shapes == [(2, 4, 10), (2, 4, 4), (2, 4, 5), (2, 2, 10), (2, 2, 5)]
    for repetition in range(2):
        used = np.concatenate([np.ravel(part.inputs[repetition]) for part in parts])
        assert len(set(used.tolist())) == len(used)
    np.testing.assert_array_equal(own.clusters[0], [0, 0, 1, 1])
    np.testing.assert_array_equal(own.train.targets[0, :, 0], [0, 0, 1, 1])
    np.testing.assert_array_equal(own.new_test.targets[0, :, 0], [0, 1])
    assert np.all(own.validation.inputs > 0), "of the training split"


def test_clusters_may_have_any_number():
    truth = jnp.array([0, 0, 1, 1])
    index = jax.jit(lambda *found: rand_index(jnp.array(found), truth))
    assert index(7, 7, 3, 3) == 1
    assert index(7, 7, 3, -1) == 1, "who was not asked is left out"
    assert index(7, 3, 7, 3) < 0
    assert jnp.isnan(index(7, -1, 3, -1)), "nothing to find"


# Those that take any network, which "all" are.
TAKE_ANY = [name for name in REGISTRY if name != "fedbn"]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(TAKE_ANY))
def test_every_algorithm_runs(name, tmp_path, capsys):
    """Newcomers are fewer than clients, so that no client's row can pass for theirs."""
    status, summary = run(tmp_path, capsys, "--algorithms", name, "--num-rounds", "2")
    assert (status, summary["failed_cells"]) == (0, 0)
    assert 0 <= summary["rows"][0]["newcomers"] <= 100


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_every_algorithm_can_be_built(name):
    setup = arms.Setup(2, 10, 20, 5, 1, "sgd", 5)
    task = mlp((4,), hidden=(3,))
    if REGISTRY[name].needs_normalisation:
        task = normalised(task, (4,))
    clusters = jnp.array([0, 1])
    arms.build(arms.parse(name), task, setup, step_size=0.1, clusters=clusters)
    assert (
        arms.finds_clusters(arms.parse(name))
        or not REGISTRY[name].clustered
        or name == "oracle"
    )


def test_arguments_reach_the_constructor(monkeypatch):
    given: dict = {}

    def made_up(
        task,
        *,
        num_clusters: int,
        step_size: float,
        max_clusters: int,
        radius: float,
        option: str = "gradient",
        num_steps: int = 1,
        extra: float = 3.0,
        left_out: float | None = None,
        first_split: int = 20,
        num_classes: int | None = None,
        update: LocalUpdate | None = None,
    ):
        del task
        given.update(locals())
        return Algorithm(None, None, None)  # pyright: ignore

    defaults = {"step_size": 0.1, "max_clusters": 9, "radius": 1.0, "extra": 9.0}
    defaults["left_out"] = 9.0
    row = Registration(made_up, "", defaults, clustered=True)  # pyright: ignore
    for module in (arms, registered):
        monkeypatch.setattr(module, "REGISTRY", {"made_up": row})
    setup = arms.Setup(2, 10, 20, 5, 4, "sgd", 5)

    def told(text):
        known = {"step_size": 0.5, "clusters": jnp.array([0])}
        arms.build(arms.parse(text), linear(2), setup, **known)

    told("made_up")
    assert (given["num_clusters"], given["max_clusters"]) == (2, 2)
    assert given["left_out"] == 9
    assert (given["first_split"], given["num_classes"]) == (4, 10), "a fifth of 20"
    assert (given["step_size"], given["extra"], given["option"]) == (0.5, 3.0, "model")
    np.testing.assert_allclose(given["radius"](jnp.arange(11.0)), 2)  # A fifth is in.
    assert (given["update"].num_epochs, given["update"].batch_size) == (4, 5)
    told("made_up:num_steps=7:proximal=.5:radius=3")
    assert (given["num_steps"], given["update"].num_epochs) == (7, None)
    assert (given["update"].proximal, given["radius"]) == (0.5, 3)
    told("made_up:first_split=19")
    assert given["first_split"] == 19
    told("made_up:option=gradient")
    assert given["update"] == LocalUpdate(clients_per_chunk=5)


def test_texts_of_arms_are_canonical():
    texts = ["ditto:penalty=.10:num_steps=3", "fedavg:keep_optimizer=True,local"]
    found = arms.parse_all(texts)
    shown = ["ditto:penalty=0.1:num_steps=3", "fedavg:keep_optimizer=true", "local"]
    assert [arm.text for arm in found] == shown
    assert [arms.parse(text) for text in shown] == found
    assert [arm.algorithm for arm in arms.parse_all(["all"])] == TAKE_ANY


def test_searches_multiply():
    search = ("ditto:penalty=.1,1", "ditto:num_steps=1,2,3")
    config = arms.Config(("ditto", "local"), search=search)
    numbers = [len(contestant.settings) for contestant in config.contestants]
    assert numbers == [6, 1]
    assert config.contestants[0].settings[1].text == "ditto:penalty=0.1:num_steps=2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dito", "unknown algorithm 'dito'; nearest: ditto"),
        ("ditto:penalt=1", "unknown argument of ditto 'penalt'; nearest: penalty"),
        ("ditto:penalty", "must be NAME:ARGUMENT=VALUE, got 'penalty'"),
        ("ditto:penalty=x", "`ditto:penalty` must be a finite number, got 'x'"),
        ("ditto:penalty=nan", "`ditto:penalty` must be a finite number, got 'nan'"),
        ("ditto:penalty=true", "`ditto:penalty` must be a finite number"),
        ("ditto:num_steps=1.5", "`ditto:num_steps` must be a whole number"),
        ("ditto:start=far", "`ditto:start` must be one of independent, identical"),
        ("ifca:resample=1", "`ifca:resample` must be true or false"),
        ("ditto:penalty=20%", "`ditto:penalty` must be a finite number"),
        ("federated_clustering:radius=-5%", "or a percentage of the distances"),
        ("oracle:num_clusters=2", "unknown argument of oracle 'num_clusters'"),
        ("oracle:clusters=2", "unknown argument of oracle 'clusters'"),
        ("ifca:threat=1", "unknown argument of ifca 'threat'"),
    ],
)
def test_arms_that_cannot_be_are_refused(text, message):
    with pytest.raises(ValueError) as refused:
        arms.parse(text)
    assert message in str(refused.value)


@pytest.fixture
def refusal(tmp_path, capsys, monkeypatch):
    """Runs the command; returns what it says in its one line."""
    for name in ("CFLJAX_DATA", "TFDS_DATA_DIR"):
        monkeypatch.setenv(name, "" if name == "CFLJAX_DATA" else str(tmp_path))

    def run(*flags):
        out = str(tmp_path / "out")
        status = main(["compare", "--out", out, *retyped(FLAGS, flags)])
        printed = capsys.readouterr()
        assert (status, printed.out) == (2, "")
        assert printed.err.startswith("error: ") and printed.err.count("\n") == 1
        assert not (tmp_path / "out" / "table.csv").exists()
        return printed.err

    return run


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--algorithms", "dito"], "nearest: ditto"),
        (
            ["--algorithms", "ifca:num_clusters=0"],
            "ifca:num_clusters=0: `num_clusters`",
        ),
        (
            ["--algorithms", "fedavg,pacfl:num_vectors=100000"],
            "pacfl:num_vectors=100000: `num_vectors` must be at most 12, the samples",
        ),
        (
            ["--algorithms", "fesem:num_clusters=5"],
            "fesem:num_clusters=5: `num_clusters` must be at most 4, the number of",
        ),
        (["--dataset", "minst"], "or a file FILE.npz of your own, got 'minst'"),
        (["--dataset", "mnist"], "`--data` or CFLJAX_DATA name the folder"),
        (
            ["--dataset", "mnist", "--data", "/no/such"],
            "must name a folder that exists",
        ),
        (["--dataset", "ag_news", "--network", "own"], "--data"),
        (["--partition", "groups"], "`partition` must be one of label_skew_1, "),
        (["--num-samples", "9999"], "training samples in every cluster"),
        (["--num-clusters", "6"], "`num_owned` times `num_clusters`"),
        (["--num-round", "3"], "--num-round"),
        (["--devices", "0"], "`devices` must be at least 1"),
    ],
)
def test_bad_input_gets_one_clear_line(refusal, flags, message):
    assert message in refusal(*flags)


def test_newcomers_and_validation_may_be_few():
    fewer = {**TINY, "num_newcomers": 0, "num_validation_samples": 1}
    assert arms.Config(**fewer).num_newcomers == 0
