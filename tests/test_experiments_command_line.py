"""The experiments' command line: what it writes, and one clear line for bad input."""

import json
import pathlib
import subprocess
import sys

import pytest

from cfljax.report import read_csv
from experiments.__main__ import main, one_line, plain
from experiments.ifca import fig3
from experiments.ifca.fig3a import preset
from experiments.registry import EXPERIMENTS, PRESETS

ROOT = pathlib.Path(__file__).resolve().parents[1]
TINY = [
    *("--num-features", "5", "--num-clients", "4", "--num-samples", "10"),
    *("--separation", "1", "2", "--noise", "0.1", "--num-trials", "3"),
    *("--num-restarts", "2", "--num-rounds", "5"),
]


@pytest.fixture
def command(tmp_path, capsys):
    """Runs a tiny panel with changes; returns exit status, stdout and stderr."""

    def run(*changes, out=tmp_path / "out", experiment="ifca.fig3a", tiny=TINY):
        status = main(["run", experiment, "--out", str(out), *tiny, *changes])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


def test_a_panel_writes_its_table_and_figures(command, tmp_path):
    status, out, _ = command("--convention", "reference", "paper")
    assert status == 0
    assert "/3" in out
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"table.csv", "config.json", "heatmap.svg", "curves.png"} <= names
    rows = read_csv(tmp_path / "out" / "table.csv")
    assert [row["convention"] for row in rows] == 2 * ["reference"] + 2 * ["paper"]
    needed = {"convention", "separation", "noise", "clients", "samples", "trials"}
    assert needed | {"successes", "low", "high"} <= set(rows[0])
    assert all(row["low"] <= row["successes"] / 3 <= row["high"] for row in rows)


def test_json_is_one_document_and_a_second_run_is_the_same(command):
    first = json.loads(command("--json")[1])
    again = json.loads(command("--json")[1])
    assert first["rows"] == again["rows"]
    assert len(first["rows"]) == 2


@pytest.mark.slow
def test_chunks_do_not_change_a_table(command, tmp_path):
    command("--chunk", "1", out=tmp_path / "one")
    command("--chunk", "3", out=tmp_path / "three")
    texts = [(tmp_path / name / "table.csv").read_bytes() for name in ("one", "three")]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_resampling_needs_samples_for_every_round(command):
    status, _, err = command("--resample", "--num-samples", "8")
    assert status == 2
    assert "multiple of 2 x `num_rounds`" in err
    assert command("--resample")[0] == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["--num-clients", "5"], "4 or 6 would do"),
        (["--num-clients", "1"], "`num_clusters` must be at most `num_clients`"),
        (["--noise", "-0.1"], "`noise` must be finite and not negative"),
        (["--noise", "nan"], "`noise` must be finite"),
        (["--separation", "1", "1"], "`separation` must hold different values"),
        (["--num-trials", "0"], "`num_trials` must be at least 1"),
        (["--error-rate", "2"], "`error_rate` must be in (0, 1)"),
        (["--convention", "papr"], "invalid choice 'papr'"),
        (["--nois", "0.1"], "--nois"),
        (["--chunk", "0"], "`chunk` must be at least 1"),
        (["--memory", "nan"], "`--memory` must be a number of GiB"),
        (["--memory", "1e-9"], "`memory` allows 1 bytes but one trial needs"),
        (["--num-trials", "1000000000000"], "trials would fit"),
        (["--num-trials", "many"], "many"),
    ],
)
def test_bad_input_gets_one_clear_line(command, tmp_path, changes, message):
    status, out, err = command(*changes)
    assert status == 2
    assert out == ""
    assert err.startswith("error: ") and err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "out" / "table.csv").exists()


@pytest.mark.parametrize(
    ("number", "message"),
    [("0", "`--devices` must be at least 1, got 0"), ("4096", "at most")],
)
@pytest.mark.parametrize("experiment", ["ifca.table1_mnist", "ifca.fig3a"])
def test_impossible_devices_are_one_line(
    command, monkeypatch, number, message, experiment
):
    monkeypatch.setattr("cfljax.engine.use_cores", lambda number: 1)
    status, _, err = command("--devices", number, experiment=experiment, tiny=[])
    assert status == 2
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


def test_devices_reach_the_experiment(command, monkeypatch):
    asked, seen = [], []
    monkeypatch.setattr("cfljax.engine.use_cores", lambda n: asked.append(n) or 2)

    def stop(config, options):
        seen.append(options.devices)
        raise ValueError("enough")

    monkeypatch.setattr("experiments.ifca.table1_mnist.main", stop)
    for flags in (["--devices", "2"], []):
        command(*flags, experiment="ifca.table1_mnist", tiny=[])
    assert asked == seen == [2, None]
    asked.clear()
    with monkeypatch.context() as patched:
        patched.setattr("experiments.ifca.fig3a.main", stop)
        command("--devices", "2")
        command()
    assert asked == [2]  # Not asked for: one device stays one.


def test_an_unknown_id_names_the_nearest(command):
    status, _, err = command(experiment="ifca.figure3a", tiny=[])
    assert status == 2
    assert "ifca.fig3a" in err


@pytest.mark.slow
def test_another_configuration_leaves_the_store_alone(command, tmp_path):
    command()
    before = (tmp_path / "out" / "table.csv").read_bytes()
    status, _, err = command("--seed", "1")
    assert status == 2
    assert "`seed`" in err and err.count("\n") == 1
    assert (tmp_path / "out" / "table.csv").read_bytes() == before
    assert command()[0] == 0


@pytest.mark.slow
def test_another_revision_leaves_the_store_alone(command, monkeypatch):
    command()
    monkeypatch.setattr("experiments.ifca.fig3.REVISION", fig3.REVISION + 1)
    status, _, err = command()
    assert status == 2
    assert "revision" in err and err.count("\n") == 1


def test_nowhere_to_write_is_said(command, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    status, _, err = command(out=blocked / "out")
    assert status == 2
    assert err.startswith("error: ") and err.count("\n") == 1


def test_an_interruption_resumes(command, monkeypatch):
    def interrupt(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("cfljax.engine.sweep", interrupt)
        status, _, err = command()
    assert status == 130
    assert "resume" in err
    assert command()[0] == 0


def test_all_cells_failing_is_one_line(command, monkeypatch):
    def broken(*_):
        raise RuntimeError("out of order")

    monkeypatch.setattr("experiments.ifca.fig3.simulate", broken)
    status, _, err = command()
    assert status == 1
    assert "out of order" in err and "Traceback" not in err


@pytest.mark.parametrize("argv", [[], ["run"], ["run", "x", "--preset", "full"]])
def test_wrong_words_are_one_line(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1


def test_output_that_cannot_be_written_is_said():
    with pathlib.Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "experiments", "list"]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, cwd=ROOT)
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


def test_listing(capsys):
    assert main(["list"]) == 0
    assert "ifca.fig3d" in capsys.readouterr().out
    assert main(["list", "--json"]) == 0
    assert "ifca.fig3d" in json.loads(capsys.readouterr().out)["experiments"]
    assert main(["list", "everything"]) == 2


def test_help_shows_the_flags(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["run", "ifca.fig3a", "--help-config"])
    assert not stop.value.code
    assert "--separation" in capsys.readouterr().out


@pytest.mark.parametrize("name", sorted(EXPERIMENTS))
@pytest.mark.parametrize("size", PRESETS)
def test_every_preset_is_valid(name, size):
    module = EXPERIMENTS[name].load()
    assert module.preset(size) == module.preset(size)
    assert callable(module.main)


def test_presets_are_the_published_grids():
    paper = preset("paper")
    assert (paper.num_clients, paper.num_samples) == ((100,), (100,))
    assert (paper.num_features, paper.num_trials) == (1000, 40)
    assert (paper.num_restarts, paper.num_rounds) == (10, 300)


def test_messages_lose_their_box():
    box = "╭─ Value error ─╮\n│ Error parsing Config: too │\n│ small │\n╰───╯\n"
    assert one_line(box) == "too small."
    bare = " Value error \n ------\n Error parsing Config: too small \n ------\n"
    assert one_line(bare) == "too small."


def test_json_knows_no_infinity():
    assert plain({"a": [float("inf"), 1.0], "b": float("nan")}) == {
        "a": [None, 1.0],
        "b": None,
    }
