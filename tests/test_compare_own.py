"""A comparison on a file and a model of the user's own."""

import contextlib
import io
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from toy_experiments import save_no_figures

import cfljax as cfl
from cfljax import engine
from cfljax.report import read_csv
from experiments.__main__ import main
from experiments.compare import arms, own, rows, study
from experiments.options import Options
from experiments.study import round_key_of

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

MODULE = """
import cfljax as cfl

def make(data):
    return cfl.models.mlp(data.inputs.shape[2:], hidden=(), num_classes=3)

def headless(data):
    return make(data)._replace(layers=None)

def two(data):
    return cfl.models.mlp(data.inputs.shape[2:], hidden=(), num_classes=2)

def other_inputs(data):
    return cfl.models.mlp((7,), hidden=(), num_classes=3)

def number(data):
    return 3
"""
NUM_CLIENTS = 6
SHORT = ["--num-rounds", "2", "--num-trials", "2", "--devices", "1"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Where files and the module lie, which is where the command starts."""
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))  # Which the command adds to.
    return tmp_path


def arrays(**changes):
    """Clients of 10 to 15 numbered samples; of two clusters, which disagree on labels
    of the same inputs."""
    who = np.repeat(np.arange(NUM_CLIENTS), 10 + np.arange(NUM_CLIENTS))
    first = np.arange(len(who)) % 3
    inputs = np.eye(4, dtype=np.float32)[first]
    inputs[:, 3] = np.arange(len(who)) / 100  # Which tells samples apart.
    found = {"inputs": inputs, "targets": (first + who % 2) % 3, "clients": who}
    return {**found, "clusters": who % 2, **changes}


def write_files(folder):
    own = arrays()
    np.savez(folder / "true.npz", **own)
    without = {name: own[name] for name in ("inputs", "targets", "clients")}
    np.savez(folder / "mine.npz", **without)
    bad = own["inputs"].copy()
    bad[0, 0] = np.nan
    np.savez(folder / "nan.npz", **arrays(inputs=bad))
    np.savez(folder / "words.npz", **arrays(inputs=own["inputs"].astype(int)))
    np.savez(folder / "numbers.npz", **arrays(targets=own["inputs"][:, 0]))
    np.savez(
        folder / "few.npz", **arrays(clients=np.arange(75) // 2, clusters=[0] * 75)
    )
    (folder / "compared_for_a_test.py").write_text(MODULE)


def config(dataset="true.npz", names=("fedavg",), **changes):
    task = "compared_for_a_test:make"
    return arms.Config(names, dataset=dataset, **{"task": task, **changes})


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """What the command wrote of a file with clusters, without the words' folder."""
    folder = tmp_path_factory.mktemp("compared")
    write_files(folder)
    words = ["--dataset", str(folder / "true.npz"), "--num-newcomers", "1", *SHORT]
    words += ["--task", "compared_for_a_test:make", "--out", str(folder / "out")]
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        save_no_figures(patch)
        assert main(["compare", "ifca", *words, "--json"]) == 0
    return json.loads(printed.getvalue()), folder / "out"


# --- Against itself.


def test_the_command_compares_on_the_users_own(compared):
    summary, out = compared
    (row,) = summary["rows"]
    assert -1 <= row["rand_index"] <= 1 and 0 <= row["newcomers"] <= 100
    assert "true.npz; model: compared_for_a_test:make" in (out / "table.md").read_text()


def test_what_was_measured_is_logged_on_request(compared, capsys, monkeypatch):
    """All of it is read: nothing is run again."""
    summary, out = compared
    save_no_figures(monkeypatch)
    monkeypatch.setattr("cfljax.engine.store.Store.write", None)
    words = ["--dataset", "true.npz", "--task", "compared_for_a_test:make", *SHORT]
    words += ["--num-newcomers", "1", "--out", str(out), "--log", "csv", "--json"]
    assert main(["compare", "ifca", *words]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["rows"] == summary["rows"] and str(out / "log") in again["files"]
    last = []
    for seed in range(2):
        found = read_csv(out / "log" / f"repetition={seed}.csv")
        assert [row["round"] for row in found] == [1, 2]
        assert found[0]["test"] is None and found[0]["received"] > 0
        last.append(found[1]["test"])
    np.testing.assert_allclose(100 * np.mean(last), again["rows"][0]["accuracy"])


def test_results_say_which_data_and_which_model(compared):
    """And no folder of this machine."""
    summary, out = compared
    brought = own.load(config())
    assert len(brought.checksum) == 64 and brought.checksum in summary["source"]
    code = engine.module_digest("compared_for_a_test", beside=own.simulate)
    assert f"compared_for_a_test:make, code {code}" in summary["source"]
    told = json.loads((out / "provenance.json").read_text())["runs"][-1]
    assert told["source"] == summary["source"]
    assert "--dataset true.npz --task compared_for_a_test:make" in told["command"]
    assert str(out.parent) not in (out / "provenance.json").read_text()


def test_what_is_not_known_is_said():
    table = [{"algorithm": "ifca", "failed": 0, "rand_index": np.nan}]
    assert "| not known |" in rows.markdown(table, knows_clusters=False)
    assert "| undefined |" in rows.markdown(table), "control"
    for knows, told in ((False, "are not known"), (True, "against the true ones")):
        assert told in " ".join(rows.note(config(), 1, knows).split())


def test_changed_data_or_code_are_another_setting(compared, folder, monkeypatch):
    """Nothing is left to do for the same, and all of it for what has changed."""
    _, out = compared
    options = Options(out=out)

    def left():
        how = config(names=("ifca",), num_rounds=2, num_trials=2, num_newcomers=1)
        (job,) = study.jobs(how, options)
        return engine.progress_of(options.store_folder, job.grid).num_open

    assert left() == 0
    changed = arrays()
    changed["targets"][0] += 1
    np.savez(folder / "true.npz", **changed)
    assert left() == 2
    np.savez(folder / "true.npz", **arrays())
    assert left() == 0
    monkeypatch.setattr(engine, "module_digest", lambda *a, **k: "of other code")
    assert left() == 2


def test_samples_are_dealt_out_anew_for_each_seed():
    """Each is used once, and a seed's are the same however many there are."""
    brought = own.load(config())
    how = config(num_newcomers=2, num_trials=3)
    three = own.draw_clients(how, brought)
    two = own.draw_clients(config(num_newcomers=2, num_trials=2), brought)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[:2], b), three, two)
    assert three.train.mask.shape[1] == 4 and three.new_train.mask.shape[1] == 2
    rows = set()
    for seed in range(3):
        numbers = np.concatenate(
            [
                np.asarray(part.inputs[seed, :, :, 3])[np.asarray(part.mask[seed])]
                for part in (three.train, three.validation, three.test)
            ]
        )
        assert len(set(numbers)) == len(numbers)
        rows.add(tuple(np.sort(numbers).tolist()))
    assert len(rows) > 1, "other clients train"
    counts = np.asarray(jnp.sum(three.train.mask, axis=2))
    assert set(counts.ravel()) <= {6, 7, 8, 9}  # 0.6 of 10 to 15.
    assert three.clusters is not None
    labels = np.asarray(three.train.targets - jnp.argmax(three.train.inputs, -1)) % 3
    real = np.asarray(three.train.mask)
    same = labels == np.asarray(three.clusters)[:, :, None]
    assert np.all(same[real])


# --- Against equations: by the library's own functions.


def test_a_run_is_that_of_the_library():
    """Of clients of which nobody knows the clusters, on the usual model."""
    how = config("mine.npz", task=None, num_hidden=3, num_rounds=2, num_trials=2)
    brought = own.load(how)
    trial = own.first_trial(how, brought, "ifca:num_clusters=2")
    clients = own.draw_clients(how, brought)
    key = jax.random.key(5)
    found = own.simulate(trial, key, clients, task=brought.task)
    assert clients.clusters is None and np.all(np.isnan(found["rand_index"]))

    train, test = (
        jax.tree.map(lambda leaf: leaf[0], part)
        for part in (clients.train, clients.test)
    )
    update = cfl.LocalUpdate(batch_size=10, num_epochs=1, clients_per_chunk=5)
    task = cfl.models.mlp((4,), hidden=(3,), num_classes=3)
    algorithm = cfl.ifca(
        task, num_clusters=2, step_size=0.1, option="model", update=update
    )
    state, _ = cfl.run(
        algorithm,
        jax.random.fold_in(key, 0),
        train,
        num_rounds=2,
        round_key=round_key_of(2),
    )
    outputs = algorithm.predict(state, train, test.inputs)
    expected = cfl.metrics.accuracy(outputs, test.targets, test.mask)
    assert float(found["test"][-1]) == float(expected)
    assert 0 < float(expected) < 1, "control: that of no model, or of any"


def test_own_data_never_stand_under_a_built_in_name(folder):
    np.savez(folder / "mnist.npz", **arrays())
    found = study._prepared(config("mnist.npz"), Options(out=folder))
    assert found.title == "own data, mnist.npz"
    assert found.trial.dataset == "mnist.npz"
    assert config("mnist.npz").folder == "own-mnist"


# --- Against misuse.


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--dataset absent.npz", "names absent.npz, and there is no such file"),
        ("--dataset minst", "or a file FILE.npz of your own, got 'minst'"),
        ("--task absent_for_a_test:make", "which Python does not find"),
        ("--task compared_for_a_test:mak", "no function of compared_for_a_test"),
        ("--task compared_for_a_test", "must be MODULE:FUNCTION"),
        ("--task compared_for_a_test:number", "must give a Task"),
        ("--task compared_for_a_test:two", "labels must be below 2, the outputs of"),
        ("--task compared_for_a_test:other_inputs", "cannot take these data"),
        ("fedpac --task compared_for_a_test:headless", "fedpac: `task` must have"),
        ("fedproto --task compared_for_a_test:headless", "`task(..., head=NAME)`"),
        ("--dataset nan.npz", "`inputs` must be finite"),
        ("--dataset words.npz", "`--task` must say which model"),
        ("--dataset numbers.npz", "must be one label, a whole number"),
        ("--dataset few.npz", "must leave every client a sample in each part"),
        ("--dataset digits --task compared_for_a_test:make", "for data of your own"),
        ("--dataset digits --shares .5 .3 .2", "no use for the built-in sets"),
        ("--dataset mine.npz oracle", "oracle is told the true clusters"),
        ("--dataset mine.npz ifca", "say `--num-clusters N`"),
        ("oracle --num-clusters 1", "`num_clusters` must be at least 2, got 1"),
        ("fesem --num-clusters 7", "`num_clusters` must be at most 6, the number of"),
        ("--partition groups", "`partition` has no use for true.npz"),
        ("--num-samples 10", "`--shares` say how"),
        ("--task compared_for_a_test:make --network mlp", "`network` has no use"),
        ("--shares .5 .5 .5", "`shares` must be positive and add up to 1"),
        ("--num-newcomers 6", "must be below 6, the clients of true.npz"),
        ("fedavg --algorithms ifca", "not both, got fedavg"),
    ],
)
def test_bad_input_gets_one_clear_line(words, message, folder, capsys):
    asked = words.split()
    if "--dataset" not in asked:
        asked += ["--dataset", "true.npz"]
    assert main(["compare", *asked, *SHORT, "--out", "out"]) == 2
    printed = capsys.readouterr()
    assert message in printed.err and printed.err.count("\n") == 1
    assert printed.out == "" and not (folder / "out").exists()
