"""Errors planted in the checks of theory, one at a time: do the verdicts see them?

`mutations.toml` holds slips that a careless author makes in a claimed bound, or in the
law that it is judged by. With each, `python -m theory check` must come to another
verdict than expected, unless the entry says why the changed claim is as true as it was.
`python tests/plant.py` plants them all and tells what nobody saw.
"""

import functools
import json
import os
import pathlib
import shutil
import subprocess
import sys

import plant
import planting
import pytest
from planting import ROOT, Checked, Flip, Mutation, Planter, mutations

from theory import registry

FIELDS = {"name", "file", "old", "new", "rows"}


# The table, against the sources.


def test_entries_are_complete_and_named_once():
    names = [one["name"] for one in mutations()]
    assert len(names) == len(set(names))
    for one in mutations():
        assert set(one) - {"equivalent"} == FIELDS, one["name"]
        assert one["old"] != one["new"], one["name"]


def test_every_old_text_stands_once_in_its_file():
    assert [one["name"] for one in mutations() if not plant.stands_once(one)] == []


@pytest.mark.long
def test_every_row_exists():
    for one in mutations():
        assert one["rows"], one["name"]
    for name in {name for one in mutations() for name in one["rows"]}:
        assert registry.choose([name]), name


def test_equivalents_have_reasons_and_enough_others_are_there():
    reasons = [one["equivalent"] for one in mutations() if "equivalent" in one]
    assert all(isinstance(reason, str) and len(reason) > 20 for reason in reasons)
    assert len(mutations()) - len(reasons) >= 80


@pytest.mark.parametrize(
    ("folder", "least"),
    [
        ("theory/ifca/", 20),
        ("theory/clove/", 20),
        ("theory/werner/", 20),
        ("theory/fedem/", 5),
        ("theory/feddrift/", 5),
        ("cfljax/law/", 20),
    ],
)
def test_every_paper_and_the_laws_are_hit(folder, least):
    assert sum(one["file"].startswith(folder) for one in mutations()) >= least


# Planted, against the verdicts.


@pytest.fixture(scope="module")
def planter(tmp_path_factory: pytest.TempPathFactory):
    """Forks for each error; workers share what is compiled."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with Planter(common / "planted-programs") as found:
        yield found


@pytest.mark.slow
@pytest.mark.parametrize("one", mutations(), ids=lambda one: one["name"])
def test_planted_errors_are_caught(planter, one):
    found = planter.plant(one)
    if "equivalent" in one:
        assert found == Checked(0, [])
    else:
        assert found.outcome == "caught"


@pytest.mark.slow
@pytest.mark.parametrize("paper", ["ifca", "clove", "werner", "fedem", "feddrift"])
def test_without_errors_all_rows_are_as_expected(planter, paper):
    """Else any error would seem to be caught."""
    rows = {row for one in mutations() for row in one["rows"]}
    of_paper = sorted(row for row in rows if row.startswith(f"{paper}."))
    assert planter.check(of_paper) == Checked(0, [])


# The forked process, against the command itself.


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A copy of the packages, for errors that are taken back."""
    folder = tmp_path_factory.mktemp("planted")
    for package in planting.PROJECT:
        shutil.copytree(ROOT / package, folder / package)
    return folder


def check_as_command(folder: pathlib.Path, one: Mutation) -> Checked:
    """Run the command on the copy in a folder, with an entry's error written there."""
    path, source = folder / one["file"], (ROOT / one["file"]).read_text()
    path.write_text(source.replace(one["old"], one["new"]))
    try:
        done = subprocess.run(
            [sys.executable, "-B", "-m", "theory", "check", *one["rows"], "--json"],
            cwd=folder,
            env=os.environ | {"CFLJAX_CACHE": str(folder / "programs")},
            capture_output=True,
            text=True,
        )
    finally:
        path.write_text(source)
    assert done.returncode in (0, 1), done.stderr
    return Checked(done.returncode, planting.read_flips(json.loads(done.stdout)))


@pytest.mark.slow
@pytest.mark.parametrize("one", mutations()[::60], ids=lambda one: one["name"])
def test_forks_find_what_the_command_finds(planter, copy, one):
    """Flip by flip, up to the row that catches the error."""
    forked, whole = planter.plant(one), check_as_command(copy, one)
    assert (forked.code, forked.outcome) == (whole.code, whole.outcome)
    if forked.outcome == "caught":
        assert set(forked.flips) <= set(whole.flips)
    else:
        assert forked == whole


# Controls: what is no error is not caught, and a crash is none.

_FILE, _ROW = "theory/ifca/lemma1.py", "ifca.lem1.stronger"


def planted(planter: Planter, old: str, new: str) -> Checked:
    source = (ROOT / _FILE).read_text()
    assert source.count(old) == 1
    return planter.check([_ROW], _FILE, source.replace(old, new))


@pytest.mark.slow
def test_what_is_unchanged_or_harmless_survives(planter):
    assert planter.check([_ROW]) == Checked(0, [])
    assert planted(planter, "C1 = 0.5\n", "C1 = 0.5  # one half\n") == Checked(0, [])


@pytest.mark.slow
def test_a_check_that_raises_is_not_caught(planter):
    found = planted(planter, "np.log(0.5) - rate", "np.log(0.5) - missing")
    assert found.code == 1 and all(flip.raised for flip in found.flips)
    assert found.outcome == "raises"


@pytest.mark.slow
def test_a_source_that_is_none_and_a_row_that_is_not_there_are_told(planter):
    with pytest.raises(RuntimeError, match="SyntaxError"):
        planted(planter, "C1 = 0.5\n", "C1 = 0.5 +\n")
    with pytest.raises(RuntimeError, match=r"unknown statement 'ifca\.lem9'"):
        planter.check(["ifca.lem9"])
    assert planter.check([_ROW]) == Checked(0, []), "and nothing is left of it"


def test_outcomes_tell_flips_from_open_verdicts_and_errors():
    flip = functools.partial(Flip, "a.b", "verdict")
    assert Checked(0, []).outcome == "survives"
    assert Checked(1, [flip("inconclusive", True)]).outcome == "raises"
    assert Checked(1, [flip("inconclusive", False)]).outcome == "undecided"
    flips = [flip("inconclusive", False), flip("violated", False)]
    assert Checked(1, flips).outcome == "caught"
    flips = [flip("inconclusive", False), Flip("a.b", "proof", "fails", True)]
    assert Checked(1, flips).outcome == "undecided"


def judged(status: str, trials: int = 5) -> dict:
    return {"status": status, "num_trials": trials}


def test_flips_are_read_of_verdicts_controls_and_proofs():
    steps = [{"method": "algebra"}]
    proof = {"complete": True, "control_fails": True, "steps": steps}
    good = {"id": "a.b", "expected": "holds", "proof": proof}
    good |= {"verdict": judged("holds"), "control": judged("violated")}
    false = good | {"expected": "violated", "proof": None}
    false |= {"verdict": judged("violated"), "control": judged("holds")}
    assert planting.read_flips({"statements": [good, false]}) == []
    changes = (
        ({"verdict": judged("violated")}, ("verdict", "violated", False)),
        ({"control": judged("inconclusive", 0)}, ("control", "inconclusive", True)),
        ({"proof": proof | {"complete": False}}, ("proof", "fails", False)),
        (
            {"proof": proof | {"complete": False, "steps": [{"method": "none"}]}},
            ("proof", "fails", True),
        ),
        (
            {"proof": proof | {"complete": False, "control_fails": False}},
            ("proof", "proves too much", False),
        ),
    )
    for change, flip in changes:
        document = {"statements": [good | change]}
        assert planting.read_flips(document) == [Flip("a.b", *flip)]
