"""Errors planted in the checks of theory, one at a time: do the verdicts see them?

`mutations.toml` holds slips that a careless author makes in a claimed bound, or in the
law that it is judged by. Each is planted in a copy of the packages, where `python -m
theory check` must no longer come out as expected. An error that survives tells what a
row never tests; one that is undecided leaves a verdict open, and so the exit status 1.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from theory import registry

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutations.toml"
PACKAGES = ("cfljax", "theory")
FIELDS = {"name", "file", "old", "new", "rows"}
MARKS = {"survives", "undecided", "equivalent"}

Mutation = dict[str, Any]


@functools.cache
def mutations() -> tuple[Mutation, ...]:
    """The table's entries."""
    return tuple(tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"])


# The table, against the sources.


def test_entries_are_complete_and_named_once():
    names = [one["name"] for one in mutations()]
    assert len(names) == len(set(names))
    for one in mutations():
        marks = set(one) - FIELDS
        assert set(one) >= FIELDS and marks <= MARKS, one["name"]
        assert len(marks) <= 1 and all(one[mark] for mark in marks), one["name"]
        assert one["old"] != one["new"], one["name"]


def test_every_old_text_stands_once_in_its_file():
    sources = {one["file"]: (ROOT / one["file"]).read_text() for one in mutations()}
    for one in mutations():
        assert sources[one["file"]].count(one["old"]) == 1, one["name"]


def test_every_row_exists():
    for one in mutations():
        assert one["rows"] and registry.choose(one["rows"]), one["name"]


def test_equivalents_have_reasons_and_enough_others_are_there():
    reasons = [one["equivalent"] for one in mutations() if "equivalent" in one]
    assert all(isinstance(reason, str) and len(reason) > 20 for reason in reasons)
    assert len(mutations()) - len(reasons) >= 80


@pytest.mark.parametrize(
    "folder", ["theory/ifca/", "theory/clove/", "theory/werner/", "cfljax/law/"]
)
def test_every_paper_and_the_laws_are_hit(folder):
    assert sum(one["file"].startswith(folder) for one in mutations()) >= 20


# Planted, against the verdicts.


class Flip(NamedTuple):
    """A verdict, or that of a control, which is another than expected."""

    row: str
    part: str  # "verdict" or "control"
    status: str
    raised: bool  # whether it is an error of the check, which has no trials


class Checked(NamedTuple):
    """What the command line said."""

    code: int
    flips: list[Flip]

    @property
    def outcome(self) -> str:
        """One of "caught", where a verdict is decided otherwise, "undecided", where one
        is only left open, and "survives"; errors of a check count for nothing."""
        found = {flip.status for flip in self.flips if not flip.raised}
        if not found:
            return "survives"
        return "undecided" if found == {"inconclusive"} else "caught"


def read_flips(document: dict[str, Any]) -> list[Flip]:
    """The surprises in a JSON document of `theory check`."""
    found = []
    for row in document["statements"]:
        for part, expected in (("verdict", row["expected"]), ("control", "violated")):
            status, trials = row[part]["status"], row[part]["num_trials"]
            if status != expected:
                found.append(Flip(row["id"], part, status, trials == 0))
    return found


def check_planted(folder: pathlib.Path, rows: Sequence[str]) -> Checked:
    """Run the command on the copy in a folder, which comes first on Python's path."""
    done = subprocess.run(
        [sys.executable, "-m", "theory", "check", *rows, "--json"],
        cwd=folder,
        env=os.environ | {"CFLJAX_CACHE": str(folder / "programs")},
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    return Checked(done.returncode, read_flips(json.loads(done.stdout)))


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the packages, for errors that are taken back."""
    folder = tmp_path_factory.mktemp("planted")
    for package in PACKAGES:
        shutil.copytree(ROOT / package, folder / package)
    return folder


def plant(folder: pathlib.Path, file: str, old: str, new: str, *, when: int) -> None:
    """Write the error; the time of change, one for each, keeps bytecode apart."""
    path = folder / file
    path.write_text((ROOT / file).read_text().replace(old, new))
    os.utime(path, (when, when))


def take_back(folder: pathlib.Path, file: str) -> None:
    shutil.copy2(ROOT / file, folder / file)


class SurvivedError(AssertionError):
    """All verdicts are as expected in spite of an error."""


def with_marks(when: int, one: Mutation):
    marks = [pytest.mark.slow]
    if one.get("survives"):
        why = "no row sees it yet"
        marks.append(pytest.mark.xfail(strict=True, raises=SurvivedError, reason=why))
    return pytest.param(when, one, marks=marks, id=one["name"])


@pytest.mark.parametrize(
    ("when", "one"), [with_marks(*pair) for pair in enumerate(mutations(), 1)]
)
def test_planted_errors_are_caught(copy, when, one):
    plant(copy, one["file"], one["old"], one["new"], when=when)
    try:
        found = check_planted(copy, one["rows"])
    finally:
        take_back(copy, one["file"])
    if "equivalent" in one:
        assert found == Checked(0, [])
        return
    if found.code == 0:
        raise SurvivedError(one["name"])
    assert found.outcome == ("undecided" if one.get("undecided") else "caught")


# Controls: what is no error is not caught, and a crash is none.

_HARMLESS = ("theory/ifca/lemma1.py", "ifca.lem1.stronger")


@pytest.mark.slow
def test_what_is_unchanged_or_harmless_survives(copy):
    file, row = _HARMLESS
    assert check_planted(copy, [row]) == Checked(0, [])
    plant(copy, file, "C1 = 0.5\n", "C1 = 0.5  # one half\n", when=10**6)
    try:
        assert check_planted(copy, [row]) == Checked(0, [])
    finally:
        take_back(copy, file)


@pytest.mark.slow
def test_a_check_that_raises_is_not_caught(copy):
    file, row = _HARMLESS
    plant(copy, file, "np.log(0.5) - rate", "np.log(0.5) - missing", when=10**6 + 1)
    try:
        found = check_planted(copy, [row])
    finally:
        take_back(copy, file)
    assert found.code == 1 and all(flip.raised for flip in found.flips)
    assert found.outcome == "survives"


def test_outcomes_tell_flips_from_open_verdicts_and_errors():
    flip = functools.partial(Flip, "a.b", "verdict")
    assert Checked(0, []).outcome == "survives"
    assert Checked(1, [flip("inconclusive", True)]).outcome == "survives"
    assert Checked(1, [flip("inconclusive", False)]).outcome == "undecided"
    flips = [flip("inconclusive", False), flip("violated", False)]
    assert Checked(1, flips).outcome == "caught"
