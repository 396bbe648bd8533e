"""The battery's parts at a tiny size: what they take away must be seen."""

import os
import pathlib
import pickle

import battery
import battery_files
import battery_kills
import battery_lines
import battery_machines
import pytest
from engine_trial import known, serve
from tally import Batch, Part, Tally, total
from trusted_files import SUBJECTS

SEED = 5


@pytest.fixture
def few(monkeypatch) -> None:
    """Subjects that are read quickly."""
    some = {name: SUBJECTS[name] for name in ("index", "arrays", "outcome")}
    monkeypatch.setattr(battery_files, "SUBJECTS", some)


@pytest.mark.parametrize("name", ["index", "arrays", "outcome"])
def test_what_is_changed_or_damaged_is_noticed(tmp_path, few, name):
    units = range(20)
    for play in (battery_files.play_changes, battery_files.play_damage):
        tally = play(tmp_path, SEED, name, units)
        assert (tally.faults, tally.done) == ([], len(units))
        assert tally.count("again", "refused") > 0


@pytest.mark.long
@pytest.mark.parametrize(
    "harm",
    [
        pytest.param("no digest of arrays", marks=pytest.mark.slow),
        "no digest of outcomes",
        "no place of blocks",
    ],
)
def test_files_that_are_believed_are_seen(tmp_path, monkeypatch, harm):
    name = battery_files.CONTROLS[harm].name
    monkeypatch.setattr(battery_files, "SUBJECTS", {name: SUBJECTS[name]})
    tally = battery_files.play_changes(tmp_path, SEED, name, range(500), harm)
    assert tally.count("silent") == 1


def test_a_pickle_that_is_read_leaves_its_mark(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pickle.loads(battery_files._pickles()["pickle"])
    assert (tmp_path / battery_files.MARK).exists()


def test_full_disks_are_told_unless_errors_are_passed_over(tmp_path):
    names = list(battery_machines.WRITERS)
    for name in ("outcome", "arrays", "index"):
        units = range(names.index(name), names.index(name) + 1)
        tally = battery_machines.play_full(units, tmp_path, SEED, False)
        assert (tally.faults, tally.done) == ([], 1)
    units = range(names.index("arrays"), names.index("arrays") + 1)
    assert battery_machines.play_full(units, tmp_path, SEED, True).num_bad


@pytest.mark.long
@pytest.mark.parametrize(
    "play", [battery_lines.play_lines, battery_lines.play_calls], ids=["lines", "calls"]
)
def test_lines_and_calls_are_refused_and_what_is_not_is_seen(tmp_path, play):
    tally = play(range(12), tmp_path, SEED, False)
    assert (tally.faults, tally.done) == ([], 12) and tally.count("refused")
    assert play(range(30), tmp_path, SEED, True).num_bad


def test_what_is_done_is_noted_and_told(tmp_path):
    notes = battery.Notes(tmp_path / "notes", SEED)
    good, bad = Tally(), Tally()
    good.add("right", "one")
    bad.add("lost", "one", "block 3")
    for name, units, tally in (("a", 1, good), ("control: b", 0, bad)):
        entry = {"units": units, "seconds": 1.5, "tally": tally.as_dict()}
        notes.add("zombies", name=name, **entry)
    with (notes.folder / "zombies.jsonl").open("a") as file:
        file.write('\n{"name": "ha')  # Half a line.
    assert [entry["name"] for entry in notes.of("zombies")] == ["a", "control: b"]
    (row,) = battery.write(notes, tmp_path / "out")
    assert (row["part"], row["done"], row["lost"]) == ("zombies", 1, 0)
    assert (row["right"], row["controls"]) == (1, "1 of 1")
    assert "zombies" in (tmp_path / "out" / "table.md").read_text()
    assert total([good, bad]).num_bad == 1 and bad.faults == ["lost: one: block 3"]


# What forks belongs into a process that has not started JAX


def tiny(folder: str, part: str, control: str) -> list[int]:
    """Units done and bad ends of a tiny part, or of one of its controls."""
    place = pathlib.Path(folder)
    own = battery.PARTS[part]
    plays = {
        "kills": lambda: battery_kills.play_kills(
            "sweep, joint", 3, 2, place, SEED, False
        ),
        "zombies": lambda: battery_kills.play_zombies(range(2), place, SEED, False),
    }
    tally = own.controls[control](place, SEED) if control else plays[part]()
    return [tally.done, tally.num_bad]


def resumed(folder: str) -> list[list[str]]:
    """What a battery does that is started twice, the first time without time."""
    battery.PARTS["toy"] = Part(
        "a toy",
        2,
        lambda folder, seed: [Batch("a", 1, _toy), Batch("b", 1, _broken)],
        {"nothing": _broken},
    )
    notes = battery.Notes(pathlib.Path(folder), SEED)
    told: list[str] = []
    said = []
    for minutes in (-1.0, 1e6, 1e6):
        battery.run(
            notes,
            ["toy"],
            deadline=minutes,
            workers=2,
            tell=lambda line: told.append(line),
        )
        said.append([entry["name"] for entry in notes.of("toy")])
    return said


def _toy(folder: pathlib.Path, seed: int) -> Tally:
    tally = Tally()
    tally.add("right", f"toy of {seed}")
    return tally


def _broken(folder: pathlib.Path, seed: int) -> Tally:
    raise RuntimeError("out of something")


@pytest.mark.slow
def test_kills_and_zombies_are_survived_and_their_controls_seen(tmp_path):
    calls = [
        ("tiny", str(tmp_path), "kills", ""),
        ("tiny", str(tmp_path), "zombies", ""),
        ("tiny", str(tmp_path), "kills", "no claims, of a sweep"),
        ("tiny", str(tmp_path), "zombies", "no look at the lock"),
        ("resumed", str(tmp_path)),
    ]
    kills, zombies, claims, lock, said = serve(__name__, *calls, env=known(os.environ))
    assert kills == [2, 0] and zombies == [2, 0]
    assert claims[1] > 0 and lock[1] > 0
    first, second, third = said
    assert first == [] and sorted(second) == ["a", "b", "control: nothing"] == sorted(
        third
    )
