"""`python -m theory`: list, check, many seeds, and misuse."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
from rich.text import Text
from toy_theory import BROKEN, register, toy

import cfljax.engine
from cfljax.statements import Preset, Statement, Status
from theory import __main__ as command
from theory import commands, registry

NAMES = ("list", "check", "report")
CALLS: list[tuple[str, int]] = []
WORDS = "one [bold]is[/bold] at most two "


def wordy(name: str = "toy.a") -> Statement:
    """A row without points whose words could be read as markup."""
    return dataclasses.replace(toy(name, kind=None), place="Lemma [1]", text=WORDS * 8)


@pytest.fixture
def with_rows(monkeypatch):
    """Makes the registry know these rows alone."""

    def replace(*rows: Statement) -> None:
        CALLS.clear()
        register(monkeypatch, *rows)

    return replace


# Lists, checks and what they print, against themselves.


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (toy(), 0),
        (toy(status=Status.VIOLATED, expected=Status.VIOLATED), 0),
        (toy(status=Status.VACUOUS, expected=Status.VACUOUS), 0),
        (toy(status=Status.INCONCLUSIVE), 1),
        (toy(status=Status.VIOLATED), 1),
        (toy(expected=Status.VIOLATED), 1),
        (toy(control=Status.HOLDS), 1),
        (toy(control=Status.INCONCLUSIVE), 1),
        (BROKEN, 1),
    ],
)
def test_exit_status_tells_surprises(with_rows, capsys, row, status):
    with_rows(toy("toy.first"), row)
    assert command.main(["check"]) == status
    assert command.main(["check", "--json"]) == status
    assert "Traceback" not in capsys.readouterr().err


def test_json_is_one_document_without_gaps(with_rows, capsys):
    with_rows(wordy(), BROKEN)
    assert command.main(["check", "--json", "--seed", "5"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == 5 and document["preset"] == "quick"
    assert not document["as_expected"]
    good, bad = document["statements"]
    assert good["id"] == "toy.a" and good["as_expected"]
    assert good["verdict"]["interval"] == [0.25, None]
    assert bad["verdict"]["bound"] is None
    assert command.main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["statements"]
    assert [row["expected"] for row in rows] == ["holds", "holds"]


def test_tables_are_not_cut_when_piped(with_rows, capsys):
    with_rows(wordy())
    assert command.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert WORDS * 7 in listed and "Lemma [1]" in listed
    assert command.main(["check"]) == 0
    checked = capsys.readouterr().out
    assert "[0.25, inf]" in checked and "1 of 1 as expected" in checked


@pytest.mark.parametrize("width", [70, 100, 300])
def test_narrow_terminals_get_fewer_columns_uncut(
    with_rows, capsys, monkeypatch, width
):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    with_rows(wordy(), wordy("toy.of.a.longer.name"))
    assert command.main(["check"]) == 0
    output = capsys.readouterr().out
    lines = [Text.from_ansi(line).plain for line in output.splitlines()]
    assert max(map(len, lines)) <= width
    assert any(line.startswith("toy.of.a.longer.name  holds") for line in lines)
    assert ("more columns" in output) == (width < 300)
    assert ("[0.25, inf]" in output) == (width >= 100)


def test_help_has_examples(capsys):
    for arguments in (["--help"], *([name, "--help"] for name in NAMES)):
        assert command.main(arguments) == 0
        output = capsys.readouterr().out
        assert "python -m theory check" in output and "exit status" in output
        assert "python -m theory report --out" in output


def test_progress_is_silent_without_a_terminal(capsys):
    assert list(commands._shown("ab", 2)) == ["a", "b"]
    output = capsys.readouterr()
    assert not output.err and not output.out


def test_progress_appears_late(monkeypatch):
    asked = {}

    class Late(cfljax.engine.Bar):
        def __init__(self, title, **options):
            asked.update(options)
            super().__init__(title, **options)
            assert self._timer.interval == 5.0

    monkeypatch.setattr(cfljax.engine, "Bar", Late)
    assert list(commands._shown("ab", 2)) == ["a", "b"]
    assert asked == {"visible": True, "delay": 5.0}


def test_seeds_change_the_draws_and_nothing_else():
    row = registry.select(["ifca.eq2.corrected"])[0]
    first, again, other = (row.check(Preset(seed=seed)) for seed in (0, 0, 1))
    assert first == again
    assert first.status is other.status is Status.HOLDS
    assert not np.isclose(first.bound, other.bound, rtol=1e-12)


# As a process and misused, against misuse and failures.


ROOT = pathlib.Path(__file__).resolve().parents[1]
FULL = pathlib.Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """`line` with `theory` standing for the command, run by a shell."""
    line = line.replace("theory", f"{sys.executable} -m theory", 1)
    return subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "COMMAND"),
        (["prove"], "'prove'"),
        (["list", "toy.b"], "nearest"),
        (["check", "toy.b"], "nearest"),
        (["check", "toy.b", "--json"], "nearest"),
        (["list", "--json", "toy.b"], "nearest"),
        (["check", "--paper", "other"], "nearest"),
        (["check", "--paper", "other", "--json"], "nearest"),
        (["check", "--seed", "-1"], "at least 0, got '-1'"),
        (["check", "--seed=-1", "--json"], "at least 0, got '-1'"),
        (["check", "--seed", "one"], "at least 0, got 'one'"),
        (["check", "--seed"], "expected one argument"),
        (["check", "--preset"], "expected one argument"),
        (["check", "--preset", "slow"], "'slow'"),
        (["check", "--rotations", "0"], "at least 1, got '0'"),
        (["check", "--rotations", "two", "--json"], "at least 1, got 'two'"),
        (["check", "--rotations"], "expected one argument"),
        (["check", "--keep"], "expected one argument"),
        (["list", "--seed", "1"], "--seed"),
        (["list", "--keep", "x"], "--keep"),
        (["report"], "--out"),
        (["report", "--out"], "expected one argument"),
        (["report", "--out", "x", "toy.b"], "nearest"),
        (["report", "--out", "x", "--paper", "other", "--json"], "nearest"),
        (["report", "--out", "x", "--seed", "-1"], "at least 0, got '-1'"),
        (["report", "--out", "x", "--rotations", "2"], "--rotations"),
        (["check", "--no\nsuch"], "--no such"),
        (["check", "no\nsuch"], r"no\nsuch"),
    ],
)
def test_misuse_exits_with_2_and_one_line(capsys, arguments, reason):
    assert command.main(arguments) == 2
    output = capsys.readouterr()
    assert not output.out
    assert output.err.startswith("error: ") and output.err.count("\n") == 1
    assert reason in output.err


def test_an_unknown_name_gets_the_nearest(capsys):
    assert command.main(["check", "ifca.lemma1"]) == 2
    error = capsys.readouterr().err
    assert "'ifca.lemma1'" in error and "ifca.lem1" in error.split("nearest")[1]


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize(
    "arguments", ["list", pytest.param("check ifca.eq2 --json", marks=pytest.mark.slow)]
)
def test_nowhere_to_write_is_no_surprising_verdict(arguments):
    found = shell(f"theory {arguments} > {FULL}")
    assert found.returncode == 2
    assert found.stderr.startswith("error: cannot write") and "space" in found.stderr
    assert found.stderr.count("\n") == 1


@needs_full
@pytest.mark.slow
def test_nowhere_to_complain_keeps_the_status():
    for arguments in ("list ifca.lem9", "prove"):
        assert shell(f"theory {arguments} 2> {FULL}").returncode == 2


@pytest.mark.slow
def test_a_closed_output_and_a_reader_that_leaves_are_fine():
    for line in ("theory list >&-", "theory list --json | head -n 0"):
        found = shell(line)
        assert found.returncode == 0 and not found.stderr


def test_as_a_process():
    """From a shell, on two rows that take no time."""
    found = shell("theory check ifca.lem1.stronger ifca.eq2")
    assert found.returncode == 0 and not found.stderr
    lines = found.stdout.splitlines()
    assert [line.split()[:3] for line in lines[1:4]] == [
        ["ifca.eq2", "violated", "violated"],
        ["ifca.eq2.corrected", "holds", "holds"],
        ["ifca.lem1.stronger", "holds", "holds"],
    ]


# Rotated seeds, against themselves.


def counted(name: str, *, odd_seed: int | None = None, odd_control: int | None = None):
    """A row that holds for every seed, or all but one."""
    row = toy(name)

    def check(preset: Preset):
        CALLS.append((name, preset.seed))
        found = row.check(preset)
        if preset.seed == odd_seed:
            found = dataclasses.replace(found, status=Status.INCONCLUSIVE)
        return found

    def control(preset: Preset):
        found = row.control(preset)
        if preset.seed == odd_control:
            found = dataclasses.replace(found, status=Status.HOLDS)
        return found

    return dataclasses.replace(row, check=check, control=control)


def test_steady_rows_pass(with_rows, capsys):
    with_rows(counted("toy.a"), counted("toy.b"))
    assert command.main(["check", "--rotations", "3", "--seed", "5"]) == 0
    assert [(name, s) for s in (5, 6, 7) for name in ("toy.a", "toy.b")] == CALLS
    output = capsys.readouterr().out
    assert "6 of 6 as expected, controls included (quick preset, seeds 5 to 7" in output
    row = next(line for line in output.splitlines() if line.startswith("toy.a"))
    assert row.split()[:8] == ["toy.a", "holds", "3", "of", "3", "3", "of", "3"]
    assert "seed 6:" not in output


def test_a_flip_is_named_with_its_seed(with_rows, capsys):
    with_rows(counted("toy.a", odd_seed=2), counted("toy.b", odd_control=1))
    assert command.main(["check", "--rotations", "3"]) == 1
    output = capsys.readouterr().out
    assert "4 of 6 as expected" in output
    first, second = output.splitlines()[-2:]
    assert first.startswith("toy.b, seed 1: holds where holds was expected, control h")
    assert first.endswith("(drawn <in> a line & 'quoted', n' = 5)")
    assert second.startswith("toy.a, seed 2: inconclusive where holds was expected")
    assert "2 of 3" in output


def test_the_document_has_every_seed(with_rows, capsys):
    with_rows(counted("toy.a", odd_seed=2), counted("toy.b"))
    assert command.main(["check", "--rotations", "3", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["rotations"] == 3 and document["first_seed"] == 0
    assert document["as_expected"] is False
    first, second = document["statements"]
    assert first["id"] == "toy.a" and first["verdicts_as_expected"] == 2
    assert first["controls_as_expected"] == second["verdicts_as_expected"] == 3
    assert [row["seed"] for row in first["seeds"]] == [0, 1, 2]
    last = {"seed": 2, "verdict": "inconclusive", "control": "violated"}
    assert first["seeds"][2] == last


def test_kept_rotations_go_on(with_rows, tmp_path, monkeypatch, capsys):
    with_rows(counted("toy.a"), counted("toy.b", odd_seed=1))
    arguments = ["check", "--keep", str(tmp_path), "--rotations"]
    assert command.main([*arguments, "2"]) == 1
    first = capsys.readouterr().out.splitlines()[-1]
    assert len(CALLS) == 4
    assert command.main([*arguments, "3"]) == 1
    assert CALLS[4:] == [("toy.a", 2), ("toy.b", 2)]
    assert capsys.readouterr().out.splitlines()[-1] == first  # the flip, read back
    assert command.main(["check", "--keep", str(tmp_path), "--seed", "2"]) == 0
    assert len(CALLS) == 6
    assert "2 of 2 as expected" in capsys.readouterr().out


def test_an_interruption_says_what_is_kept(with_rows, tmp_path, capsys):
    def interrupted(preset: Preset):
        raise KeyboardInterrupt

    with_rows(counted("toy.a"), dataclasses.replace(toy("toy.b"), check=interrupted))
    for extra, message in (
        ([], "no verdicts were kept"),
        (["--rotations", "2"], "no verdicts were kept"),
        (["--keep", str(tmp_path)], "the same command goes on"),
    ):
        assert command.main(["check", *extra]) == 130
        assert capsys.readouterr().err == f"error: interrupted; {message}\n"
    assert (tmp_path / "quick-0" / "toy.a.json").exists()


def test_a_folder_that_cannot_be_written_is_one_line(with_rows, tmp_path, capsys):
    with_rows(counted("toy.a"))
    (tmp_path / "file").write_text("")
    for extra in ([], ["--rotations", "2"]):
        keep = ["--keep", str(tmp_path / "file")]
        assert command.main(["check", *keep, *extra]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: cannot write {tmp_path}")
        assert error.count("\n") == 1


def test_no_rotations_are_refused():
    with pytest.raises(ValueError, match=r"^`count` must be at least 1, got 0"):
        commands.rotations([], Preset(), 0, as_json=False, keep=None)
