"""What a folder of results holds, and what of it is no use, is told and repaired."""

import json
import os
import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from engine_trial import JOINT, contents, damage, plain_grid

import cfljax as cfl
from cfljax.engine import Grid, StoreError, kept, sweep, upkeep
from cfljax.engine.claims import Claims
from cfljax.engine.store import Store
from cfljax.engine.upkeep import holdings, repair, survey
from experiments.__main__ import main

GRID = plain_grid(num_trials=11)  # Four cells of two blocks.
OTHER = "0123456789abcdef01234567"


def finish(path: pathlib.Path, grid: Grid = GRID) -> xarray.Dataset:
    return sweep(grid, None, path, joint=JOINT)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[pathlib.Path, Any]:
    path = tmp_path_factory.mktemp("made") / "s"
    return path, finish(path)


@pytest.fixture
def path(made: tuple[pathlib.Path, Any], tmp_path: pathlib.Path) -> pathlib.Path:
    """A sound store."""
    shutil.copytree(made[0], tmp_path / "s")
    return tmp_path / "s"


def found(path: pathlib.Path) -> dict[str, str]:
    """Conditions of what is not sound, by name."""
    items = survey(path)
    return {one.name: one.condition for one in items if one.condition != "sound"}


def block(path: pathlib.Path, number: int = 0) -> pathlib.Path:
    return sorted(path.glob("cells/*/*.npz"))[number]


# Against itself: what is there


def test_all_of_a_sound_store_is_sound_and_stays(path):
    before = contents(path)
    assert {one.name for one in survey(path)} == before.keys()
    assert found(path) == {} and repair(path) == []
    assert contents(path) == before


def test_what_is_there_is_told_by_experiment(path, made):
    one, *more = holdings(path)
    assert not more
    assert (one.experiment, one.revision, one.cells) == ("plain", 1, 4)
    assert (one.trials, one.asked) == (44, 44)
    assert one.size == sum(own.stat().st_size for own in path.glob("cells/*/*.npz"))
    assert one.code == tuple(np.unique(made[1]["code"].values).tolist())
    block(path).unlink()
    damage(block(path, 2), "truncated")
    assert holdings(path)[0].trials == 44 - 10 - 1
    finish(path, plain_grid(num_trials=4, experiment="other"))
    assert [own.experiment for own in holdings(path)] == ["other", "plain"]
    assert [own.asked for own in holdings(path)] == [16, 44]
    finish(path, plain_grid(num_trials=4, experiment="other", seed=1))
    assert (holdings(path)[0].trials, holdings(path)[0].asked) == (32, 32)
    shutil.rmtree(Store(path, GRID).file((0, 0, 0)).parent)  # Not begun.
    assert (holdings(path)[1].cells, holdings(path)[1].asked) == (3, 44)


# Against failures: what is no use


def _foreign(path: pathlib.Path) -> str:
    """A block in the place of another one that is lost."""
    shutil.copy(block(path, 0), block(path, 1))
    return str(block(path, 1).relative_to(path))


def _partial(path: pathlib.Path) -> str:
    (block(path).parent / ".ab.partial").write_bytes(b"half")
    return str((block(path).parent / ".ab.partial").relative_to(path))


def _mark(path: pathlib.Path) -> str:
    block(path).with_suffix(".failed").touch()
    return str(block(path).with_suffix(".failed").relative_to(path))


def _state(path: pathlib.Path) -> str:
    """Of a trial that is done."""
    store = Store(path, GRID)
    file = store.state_file(GRID.cells()[0].trial, 3, "code")
    kept.write(file, {"x": [1.0]}, {"rounds": 3})
    return str(file.relative_to(path))


def _torn_state(path: pathlib.Path) -> str:
    name = f"states/{OTHER}-0-{OTHER}.npz"
    (path / "states").mkdir()
    (path / name).write_bytes(b"half")
    return name


def _code(path: pathlib.Path) -> str:
    file = next((path / "code").iterdir())
    file.write_text("")
    return f"code/{file.name}"


def _provenance(path: pathlib.Path) -> str:
    (path / "provenance.json").write_text('{"runs": [')
    return "provenance.json"


def _damaged(kind: str) -> Callable[[pathlib.Path], str]:
    def make(path: pathlib.Path) -> str:
        damage(block(path), kind)
        return str(block(path).relative_to(path))

    return make


FAULTS: dict[str, tuple[Callable[[pathlib.Path], str], str]] = {
    "truncated": (_damaged("truncated"), "damaged"),
    "empty": (_damaged("empty"), "damaged"),
    "flipped": (_damaged("flipped"), "damaged"),
    "another's place": (_foreign, "exchanged"),
    "half written": (_partial, "left over"),
    "failed once": (_mark, "left over"),
    "state of a done trial": (_state, "left over"),
    "torn state": (_torn_state, "damaged"),
    "code": (_code, "damaged"),
    "provenance": (_provenance, "damaged"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found_repaired_and_nothing_else_is_touched(path, made, fault):
    make, condition = FAULTS[fault]
    before = contents(path)
    name = make(path)
    assert found(path) == {name: condition}
    (gone,) = repair(path)
    assert gone.name == name and found(path) == {}
    after = contents(path)
    assert after.keys() == before.keys() - {name} | (after.keys() & {name})
    assert all(after[own] == before[own] for own in after)
    assert finish(path).identical(made[1])
    assert found(path) == {}


def test_a_block_that_was_moved_goes_home(path, made):
    before = contents(path)
    lost = block(path, 0).rename(block(path, 1).with_name("9.npz"))
    assert found(path) == {str(lost.relative_to(path)): "exchanged"}
    repair(path)
    assert contents(path) == before


def test_what_is_not_of_results_is_told_and_left(path):
    names = ["notes.txt", "cells/notes.npz", f"cells/{OTHER}/first.npz", "states/x.npz"]
    for name in names:
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_bytes(b"mine")
    assert found(path) == dict.fromkeys(names, "unknown")
    assert repair(path) == [] and found(path) == dict.fromkeys(names, "unknown")


def test_a_state_to_which_rounds_can_be_added_stays(path):
    grid = plain_grid(num_trials=8, growing=lambda trial: ("num_clients",), seed=5)
    finish(path, grid)
    store = Store(path, grid)
    kept.write(store.state_file(grid.cells()[0].trial, 3, "code"), {"x": [1.0]}, {})
    assert found(path) == {}


def test_a_store_where_a_run_is_at_work_is_not_repaired(path):
    name = _partial(path)
    with Claims(path) as claims, claims.claim(["a"]):
        assert found(path) == {name: "left over"}
        with pytest.raises(StoreError, match="a run is at work in"):
            repair(path)
        assert found(path) == {name: "left over"}
    assert [one.name for one in repair(path)] == [name]


def test_no_run_begins_while_a_store_is_repaired(path):
    with upkeep.undisturbed(path) as is_alone, Claims(path) as claims:
        assert is_alone
        with claims.claim(["a"]) as is_mine:
            assert not is_mine


def test_folders_of_kept_arrays_are_looked_at_too(tmp_path):
    """As of a study's cells and of exact laws."""
    folder = tmp_path / "out" / "cells"
    for number in range(3):
        kept.remembered(folder, ["study", 1, number], lambda: {"x": [1.0]})
    first, second, _ = sorted(folder.glob("*.npz"))
    assert holdings(tmp_path / "out")[0].experiment == "study"
    assert found(folder) == {} and len(survey(tmp_path / "out")) == 3
    damage(first, "flipped")
    shutil.copy(second, folder / f"{OTHER}.npz")
    np.savez(folder / "mine.npz", x=[1.0])
    expected = {first.name: "damaged", f"{OTHER}.npz": "exchanged"}
    assert found(folder) == {**expected, "mine.npz": "unknown"}
    repair(folder)
    assert found(folder) == {"mine.npz": "unknown"} and len(survey(folder)) == 3


@pytest.mark.long
def test_a_checkpoint_is_looked_at_by_itself(tmp_path):
    data, _ = cfl.data.mixed_linear(
        jax.random.key(0),
        num_clients=4,
        num_clusters=2,
        num_samples=8,
        num_features=3,
        separation=1.0,
        noise=0.1,
    )
    algorithm = cfl.fedavg(cfl.models.linear(3), step_size=0.1)
    file = tmp_path / "run.npz"
    run = lambda: cfl.run(
        algorithm, jax.random.key(1), data, num_rounds=4, checkpoint=file, every=0.0
    )
    run()
    assert found(file) == {} and len(survey(file)) == 2
    one = holdings(file)[0]
    assert (one.experiment, one.trials) == ("fedavg, checkpoint", 4 + 3)
    whole = contents(tmp_path)
    damage(file, "truncated")
    assert found(file) == {"run.npz": "damaged"}
    repair(file)
    assert not file.exists() and (tmp_path / "run.npz.before").exists()
    run()
    assert contents(tmp_path).keys() == whole.keys() and found(file) == {}


def test_files_of_others_are_never_deleted(tmp_path):
    for name, content in (("mine.npz", b""), ("text.npz", b"what I wrote")):
        (tmp_path / name).write_bytes(content)
    np.savez(tmp_path / "mine.npz", x=np.arange(3))
    for name in ("mine.npz", "text.npz"):
        assert found(tmp_path / name) == {name: "unknown"}
        assert repair(tmp_path / name) == [] and (tmp_path / name).exists()
        with pytest.raises(StoreError, match="holds no results: its digest"):
            holdings(tmp_path / name)


def test_what_holds_no_results_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "none"):
        for do in (survey, holdings, repair):
            with pytest.raises(StoreError, match="`") as told:
                do(place)
            assert "\n" not in str(told.value)


# Against misuse: who computes digests, and what has none


def _edited(path: pathlib.Path, *change: Any) -> None:
    """A block that says something else in one place, with a digest of that; moved to
    where it says that it is of."""
    *above, name, value = change
    whole = kept.read(path)
    assert whole is not None
    place = whole.about
    for own in above:
        place = place[own]
    place[name] = value
    cell = kept.key_of(whole.about["meaning"])
    whole.about["cell"] = cell
    path.unlink()
    kept.write(path.parents[1] / cell / path.name, whole.arrays, whole.about)


@pytest.mark.parametrize(
    "change",
    [
        ("fields", "noise", [0.1]),
        ("fields", "noise", {"a": 1}),
        ("commit", 5),
        ("commit", {"id": 5}),
        ("accepted", {"why": "none"}),
        ("asked", "x"),
        ("axes", 5),
        ("growing", None),
        ("quantities", {"value": 5}),
        ("core_seconds", "x"),
        ("meaning", "seed", None),
        ("meaning", "revision", "x"),
        ("meaning", "experiment", 5),
        ("meaning", "dims", {"value": 5}),
        ("meaning", "dims", {"value": []}),
        ("meaning", "coords", 5),
        ("meaning", "coords", {"number": 5}),
    ],
    ids=str,
)
def test_a_block_whose_parts_are_of_other_kinds_is_no_use(path, made, change):
    """Though its digest is right: it is as good as missing, and raises nothing."""
    _edited(block(path), *change)
    assert {*found(path).values()} == {"exchanged"}
    assert holdings(path)[0].trials == 44 - 10
    assert cfl.open_results(path)["trials"].sum() == 44 - 10
    assert finish(path).identical(made[1])


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"runs": [{"run": []}, {"run": {}}, 5]}',
        '{"runs": [{"run": "a", "commit": 5}, {"run": "b", "commit": {"id": 5}}]}',
        '{"runs": [{"experiment": "plain", "revision": 1, "cells": "x", "trials": 4}]}',
        "pipe",
    ],
    ids=["deep", "names", "commits", "numbers", "a pipe"],
)
def test_a_journal_that_says_anything_changes_no_number(path, made, text):
    journal = path / "provenance.json"
    expected = cfl.open_results(path)["value"].values
    journal.unlink()
    if text == "pipe":
        os.mkfifo(journal)
    else:
        journal.write_text(text)
    assert holdings(path)[0].asked == 44 and len(survey(path)) > 8
    assert np.array_equal(cfl.open_results(path)["value"].values, expected)
    block(path).unlink()
    assert finish(path).identical(made[1])
    assert json.loads(journal.read_text())["runs"][-1]["blocks"] == 1


def test_a_pipe_in_the_place_of_the_lock_is_one_line(path):
    block(path).unlink()
    (path / "lock").unlink()
    os.mkfifo(path / "lock")
    with pytest.raises(StoreError, match="cannot write results to") as told:
        finish(path)
    assert "\n" not in str(told.value)


# Against itself: the command


def test_the_command_lists_verifies_and_repairs(path, made, capsys):
    def run(*words: str) -> tuple[int, str]:
        status = main(["store", *words])
        return status, capsys.readouterr().out

    status, out = run("ls", str(path))
    assert status == 0 and "plain" in out and "44" in out
    assert run("verify", str(path))[0] == 0
    damage(block(path), "flipped")
    partial = _partial(path)
    name = str(block(path).relative_to(path))
    before = contents(path)
    for action in (["verify"], ["repair", "--dry-run"]):
        status, out = run(action[0], str(path), *action[1:])
        assert status == 1 and f"damaged: {name}" in out and partial in out
        assert contents(path) == before
    status, out = run("verify", str(path), "--json")
    document = json.loads(out)
    assert status == 1 and document["conditions"]["damaged"] == 1
    assert {one["name"] for one in document["found"]} == {name, partial}
    status, out = run("repair", str(path))
    assert status == 0 and f"damaged: {name}" in out and "repaired 2 files" in out
    assert run("repair", str(path))[0] == run("verify", str(path))[0] == 0
    assert json.loads(run("ls", str(path), "--json")[1])["holdings"][0]["trials"] == 34
    assert finish(path).identical(made[1])


def test_what_is_left_over_alone_is_no_damage(path, capsys):
    _partial(path)
    assert main(["store", "verify", str(path)]) == 0
    assert "1 left over" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["verify", "none"],
        ["ls", "none", "--dry-run"],
        ["mend", "."],
        ["verify"],
        ["repair", os.devnull],
    ],
)
def test_misuse_of_the_command_is_one_line(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["store", *words]) == 2
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1 and not printed.out
