"""The flags of sweeps, `--precision` and `--shard`: who takes them, what they say."""

import pytest

from experiments.__main__ import main
from experiments.registry import EXPERIMENTS
from experiments.shards import shard_summary


@pytest.fixture
def command(tmp_path, capsys):
    """Runs an experiment; returns exit status, stdout and stderr."""

    def run(*flags, experiment="ifca.fig3a"):
        status = main(["run", experiment, "--out", str(tmp_path / "out"), *flags])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--precision", "0"], "`precision` must be in (0, 1], got 0.0."),
        (["--precision", "1.1"], "`precision` must be in (0, 1], got 1.1."),
        (["--precision", "nan"], "`precision` must be in (0, 1], got nan."),
        (["--precision=-inf"], "`precision` must be in (0, 1], got -inf."),
        (["--shard", "0/2"], "`shard` must be I/N with 1 <= I <= N, got 0/2."),
        (["--shard", "3/2"], "`shard` must be I/N with 1 <= I <= N, got 3/2."),
        (["--shard", "0/0"], "`shard` must be I/N with 1 <= I <= N, got 0/0."),
    ],
)
def test_values_out_of_range_are_one_line(command, flags, message):
    assert command(*flags) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize(
    "flags",
    [
        ["--precision", "fine"],
        ["--shard", "2"],
        ["--shard", "1/-2"],
        ["--shard", "-1/2"],
        ["--shard", "1/2\n"],
        ["--shard", "½/2"],
        ["--shard", "1/" + "9" * 5000],
        ["--shard"],
    ],
)
def test_unreadable_values_are_one_line(flags, capsys):
    try:
        status = main(["run", "ifca.fig3a", "--num-trials", "0", *flags])
    except SystemExit as stop:
        status = stop.code
    assert status == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and flags[0] in err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--devices", "2"], "`--devices` has no use for werner.fig1, got 2."),
        (["--precision", "0.1"], "`--precision` has no use for werner.fig1, got 0.1."),
        (["--shard", "1/2"], "`--shard` has no use for werner.fig1, got 1/2."),
    ],
)
def test_flags_without_use_are_one_line(command, flags, message):
    status, out, err = command(*flags, experiment="werner.fig1")
    assert (status, out, err) == (2, "", f"error: {message}\n")


@pytest.mark.parametrize("flags", [["--precision", "0.1"], ["--shard", "1/2"]])
def test_a_comparison_knows_no_flags_of_sweeps(flags, capsys, monkeypatch):
    monkeypatch.setattr("cfljax.engine.use_cores", lambda number: 1)
    assert main(["compare", *flags]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: ") and err.count("\n") == 1 and flags[0] in err


def test_precision_and_shard_reach_every_sweep_and_nothing_else(command, monkeypatch):
    seen = []
    summary = shard_summary("x", shard=(2, 8), num_open=12, num_blocks=80)

    def look(config, options):
        seen.append((options.precision, options.shard))
        return summary

    sweeps = [name for name, entry in EXPERIMENTS.items() if entry.is_sweep]
    assert sweeps == ["ifca.fig3a", "ifca.fig3b", "ifca.fig3c", "ifca.fig3d"]
    for name in sweeps:
        monkeypatch.setattr(f"experiments.{name}.main", look)
        flags = ["--precision", "0.25", "--shard", "2/8"]
        status, out, err = command(*flags, experiment=name)
        assert (status, err) == (0, "")
        assert "12 of 80 blocks are open" in out
        command(experiment=name)
    assert seen == 4 * [(0.25, (2, 8)), (None, None)]


def test_a_worker_says_what_is_left_to_do():
    some = shard_summary("x", shard=(2, 8), num_open=12, num_blocks=80)
    assert some["headline"].endswith(
        "12 of 80 blocks are open; start the others, then run without --shard for "
        "table and figures"
    )
    assert (some["open_blocks"], some["blocks"], some["files"]) == (12, 80, [])
    none = shard_summary("x", shard=(2, 8), num_open=0, num_blocks=80)
    assert "none of 80 blocks is open; run without --shard" in none["headline"]


def test_help_has_examples_of_precision_and_workers(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["run", "--help"])
    assert not stop.value.code
    shown = capsys.readouterr().out
    assert "--shard 2/2" in shown and "then the table" in shown
    assert "--num-trials 1000 --precision .2" in shown
