"""A store of many sweeps: each finds what others have of its cells, and nothing else.

And no damage, exchange or copy of its files is ever read as a number.
"""

import dataclasses
import logging
import pathlib
import shutil
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pytest
import xarray
from engine_trial import (
    JOINT,
    Trial,
    block_file,
    contents,
    draw,
    draw_jointly,
    plain_grid,
)

from cfljax.engine import (
    Grid,
    Joint,
    StoreError,
    kept,
    progress_of,
    stored,
    sweep,
    ways,
)
from cfljax.engine.programs import run_trials
from cfljax.engine.store import DONE, Store


class Computed:
    """How many trials of cells were computed since the last look."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._trials: list[tuple[Any, Any]] = []  # A trial and its index or key.
        self.joint = Joint(self._jointly, JOINT.shares)

        def counted(program, trial, *arguments, trials, **options):
            self._trials += [(trial, i) for i in range(trials.start, trials.stop)]
            return run_trials(program, trial, *arguments, trials=trials, **options)

        monkeypatch.setattr(ways, "run_trials", counted)

    def _jointly(self, trials: Sequence[Any], key: jax.Array, constants: Any) -> Any:
        data = np.asarray(jax.random.key_data(key)).tolist()
        self._trials += [(trial, tuple(data)) for trial in trials]
        return draw_jointly(trials, key, constants)

    def take(self) -> int:
        """The number of trials; none was computed twice."""
        assert len(set(self._trials)) == len(self._trials)
        count = len(self._trials)
        self._trials.clear()
        return count


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> Computed:
    return Computed(monkeypatch)


@pytest.fixture
def path(tmp_path: pathlib.Path) -> pathlib.Path:
    """Of a store."""
    return tmp_path / "s"


# Against itself: a sweep that grows is one that was as large from the beginning


@pytest.mark.long
@pytest.mark.parametrize("way", ["traced", "joint"])
def test_trials_can_be_added_and_left_out(path, tmp_path, computed, way):
    def run(num_trials: int, folder: pathlib.Path = path) -> xarray.Dataset:
        grid = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=num_trials)
        if way == "joint":
            return sweep(grid, None, folder, joint=computed.joint)
        return sweep(grid, draw, folder)

    few = run(5)
    assert computed.take() == 2 * 5
    many = run(23)
    assert computed.take() == 2 * (23 - 5)
    before = contents(path)
    assert run(5).identical(few) and run(23).identical(many)
    assert run(12)["value"].identical(many["value"][:, :12])
    assert computed.take() == 0 and contents(path) == before
    longest = run(27)  # The last block, of three trials, gets four more.
    assert computed.take() == 2 * 4
    for number, found in ((5, few), (23, many), (27, longest)):
        assert run(number, tmp_path / str(number)).identical(found)


def test_a_block_that_grew_has_what_all_its_trials_took(path):
    took = []
    for number in (3, 7):
        grid = plain_grid(axes={}, num_trials=number)
        sweep(grid, draw, path)
        took.append(float(progress_of(path, grid).seconds))
    assert 0 < took[0] < took[1]
    (block,) = stored(path)
    assert (block.about["trials"], block.about["seconds"]) == (7, took[1])


@pytest.mark.long
def test_values_and_axes_can_be_added(path, tmp_path, computed):
    sizes: dict[str, Any] = {"num_trials": 3}
    wide, noises = (0.25, 0.5, 1.0, 2.0), (1.0, 0.1)
    small = plain_grid(axes={"separation": (0.5, 1.0)}, **sizes)
    wider = plain_grid(axes={"separation": wide}, **sizes)
    both = plain_grid(axes={"noise": noises, "separation": wide}, **sizes)
    first = sweep(small, draw, path)
    assert computed.take() == 2 * 3
    second = sweep(wider, draw, path)
    assert computed.take() == 2 * 3
    np.testing.assert_array_equal(second["value"][1:3], first["value"])
    third = sweep(both, draw, path)
    assert computed.take() == 4 * 3  # 0.1 is the trial's own noise.
    np.testing.assert_array_equal(third["value"][1], second["value"])
    turned = plain_grid(axes={"separation": wide[::-1], "noise": noises}, **sizes)
    again = sweep(turned, draw, path)["value"].transpose(*third["value"].dims)
    np.testing.assert_array_equal(again, third["value"][:, ::-1])
    assert computed.take() == 0
    for grid, found in ((small, first), (wider, second), (both, third)):
        assert sweep(grid, draw, path).identical(found)
        alone = tmp_path / "-".join(map(str, grid.shape))
        assert sweep(grid, draw, alone).identical(found)


def test_cells_of_another_table_are_found(path, computed):
    """Whose trial says by its own fields what this one has an axis for."""
    methods = plain_grid(axes={"convention": ("paper", "reference")}, num_trials=4)
    found = sweep(methods, draw, path)
    assert computed.take() == 2 * 4
    own = Trial(convention="reference")
    table = plain_grid(trial=own, axes={"num_clients": (8, 9)}, num_trials=4)
    other = sweep(table, draw, path)
    assert computed.take() == 4
    np.testing.assert_array_equal(other["value"][0], found["value"][1])


def test_rule_that_stops_cells_meets_what_is_there(path, computed):
    enough = lambda outputs, trial: len(outputs["value"]) >= 20 * trial.separation
    sweep(plain_grid(axes={"separation": (0.5,)}, num_trials=7), draw, path)
    assert computed.take() == 7
    grid = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=40)
    found = sweep(grid, draw, path, enough=enough)
    assert found["trials"].values.tolist() == [10, 20]
    assert computed.take() == 3 + 20


@dataclasses.dataclass(frozen=True)
class Longer(Trial):
    spread: float = 0.0


@dataclasses.dataclass(frozen=True)
class Noisier(Trial):
    noise: float = 0.2


def test_field_with_the_old_meaning_as_default_makes_nobody_start_anew(path, computed):
    first = sweep(plain_grid(axes={}), draw, path)
    assert computed.take() == 23
    longer = plain_grid(axes={"spread": (0.0, 0.5)}, trial=Longer(), traced=("spread",))
    second = sweep(longer, draw, path)
    assert computed.take() == 23  # Of a spread of 0.5 alone.
    np.testing.assert_array_equal(second["value"][0], first["value"])


def test_default_that_takes_another_value_is_noticed(path, computed, caplog):
    """Though no name has it: the block itself says all that it is of."""
    sweep(plain_grid(axes={}), draw, path)
    assert computed.take() == 23
    with caplog.at_level(logging.WARNING):
        sweep(plain_grid(axes={}, trial=Noisier()), draw, path)
    assert computed.take() == 23 and "not what their place says" in caplog.text


CELLS = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=3)


@pytest.mark.long
@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 1},
        {"revision": 2},
        {"experiment": "other"},
        {"trial": Trial(noise=0.2)},
        {"trial": Trial(num_clients=7)},
        {"trial": Trial(convention="reference")},
        {"dims": {"value": ("place",)}},
        {"coords": {"number": (1, 2, 3)}},
    ],
    ids=str,
)
def test_what_means_something_else_meets_nothing(path, tmp_path, computed, changes):
    other = dataclasses.replace(CELLS, **changes)
    one = sweep(CELLS, draw, path)
    before = contents(path / "cells")
    assert computed.take() == 2 * 3
    two = sweep(other, draw, path)
    assert computed.take() == 2 * 3
    after = contents(path / "cells")
    assert before.items() <= after.items() and len(after) == 2 * len(before)
    assert sweep(CELLS, draw, path).identical(one)
    assert sweep(other, draw, path).identical(two)
    assert computed.take() == 0
    assert sweep(other, draw, tmp_path / "alone").identical(two)


def test_zeros_of_two_signs_are_two_values():
    names = [
        kept.key_of(CELLS.meaning(Longer(spread=spread))) for spread in (0.0, -0.0)
    ]
    assert names[0] != names[1]
    assert names[0] == kept.key_of(CELLS.meaning(Trial()))


def test_blocks_say_what_they_are(path):
    sweep(CELLS, draw, path)
    sweep(dataclasses.replace(CELLS, seed=1, num_trials=11), draw, path)
    found = list(stored(path))
    assert len(found) == 2 + 4
    for arrays, about in found:
        assert arrays["value"].shape == (about["trials"], 3)
        assert about["meaning"]["experiment"] == "plain"
        separation = about["fields"]["separation"]
        assert about["fields"] == dataclasses.asdict(Trial(separation))
        assert about["accepted"] is None and about["seconds"] > 0
        assert (path / "code" / f"{about['code']}.json").exists()
    counts = Counter((a["meaning"]["seed"], a["block"], a["trials"]) for _, a in found)
    assert counts == {(0, 0, 3): 2, (1, 0, 10): 2, (1, 1, 1): 2}
    progress = progress_of(path, CELLS)
    took = [about["seconds"] for _, about in found if about["meaning"]["seed"] == 0]
    assert progress.is_done.all() and sorted(progress.seconds) == sorted(took)
    more = progress_of(path, plain_grid(axes={"separation": (1.0, 2.0)}))
    assert not more.is_done.any()  # Three of 23 trials.
    assert more.seconds.tolist() == [0, 0]


def test_folder_that_cannot_be_read_is_one_line(path):
    cell = block_file(path, CELLS, 0, 0).parent
    cell.parent.mkdir(parents=True)
    cell.touch()
    with pytest.raises(StoreError, match=r"cannot read results in .*: Not a dir") as e:
        sweep(CELLS, draw, path)
    assert "\n" not in str(e.value)


# Against failures: whatever becomes of a file, it is right or of no use

LARGER = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=20)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A store of two cells with two blocks each, and the same of another seed."""
    path = tmp_path_factory.mktemp("whole") / "s"
    for seed in (0, 1):
        sweep(dataclasses.replace(LARGER, seed=seed), draw, path)
    return path


@pytest.fixture
def copied(whole: pathlib.Path, tmp_path: pathlib.Path) -> pathlib.Path:
    return shutil.copytree(whole, tmp_path / "s")


def flaws(path: pathlib.Path, grid: Grid, right: xarray.Dataset) -> list[tuple]:
    """Blocks that a store takes for done and that are not what they should be."""
    store, found = Store(path, grid), []
    for block in map(tuple, np.argwhere(store.states == DONE).tolist()):
        expected = right["value"].values[(*block[:-1], grid.block(block[-1]))]
        if store.outputs(block)["value"].tobytes() != expected.tobytes():
            found.append(block)
    return found


def check_repaired(
    path: pathlib.Path,
    spoiled: Sequence[tuple[int, ...]],
    right: xarray.Dataset,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was spoiled is of no use, is told in one line, and is computed again."""
    states = Store(path, LARGER).states
    assert {tuple(own) for own in np.argwhere(states != DONE).tolist()} == set(spoiled)
    with caplog.at_level(logging.WARNING):
        assert sweep(LARGER, draw, path).identical(right)
    (line,) = caplog.messages
    assert f"{len(spoiled)} blocks are damaged or not what their place says" in line
    assert flaws(path, LARGER, right) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", ["exchanged", "copied"])
@pytest.mark.parametrize(
    "blocks",
    [((0, 0), (0, 1)), ((0, 0), (1, 0)), ((0, 1), (1, 0))],
    ids=["of a cell", "of cells", "of both"],
)
def test_exchanged_blocks_are_of_no_use(copied, whole, caplog, blocks, kind):
    right = sweep(LARGER, draw, whole)
    one, two = (block_file(copied, LARGER, *block) for block in blocks)
    content = one.read_bytes()
    if kind == "exchanged":
        one.write_bytes(two.read_bytes())
    two.write_bytes(content)
    spoiled = blocks if kind == "exchanged" else blocks[1:]
    assert len(list(stored(copied))) == 8 - len(spoiled)
    check_repaired(copied, spoiled, right, caplog)


def test_blocks_of_another_seed_are_of_no_use(copied, whole, caplog):
    right = sweep(LARGER, draw, whole)
    other = dataclasses.replace(LARGER, seed=1)
    wrong = sweep(other, draw, whole)
    assert not np.any(wrong["value"].values == right["value"].values)
    for block in ((0, 0), (1, 1)):
        foreign = block_file(copied, other, *block)
        shutil.copy(foreign, block_file(copied, LARGER, *block))
    check_repaired(copied, ((0, 0), (1, 1)), right, caplog)
    assert sweep(other, draw, copied).identical(wrong)


@pytest.mark.parametrize("about", [None, [], 3, {}, {"layout": 1}], ids=str)
def test_sound_files_of_something_else_are_of_no_use(copied, whole, caplog, about):
    right = sweep(LARGER, draw, whole)
    file = block_file(copied, LARGER, 0, 1)
    kept.write(file, {"value": np.zeros((10, 3), np.float32)}, about)
    assert kept.read(file) is not None
    assert len(list(stored(copied))) == 7
    check_repaired(copied, ((0, 1),), right, caplog)


def test_files_that_are_no_blocks_are_left_alone(copied, whole):
    right = sweep(LARGER, draw, whole)
    cell = block_file(copied, LARGER, 0, 1).parent
    for name in (".0123.partial", "2.npz", "notes.npz", "notes.txt"):
        (cell / name).write_text("precious")
    before = contents(copied)
    assert sweep(LARGER, draw, copied).identical(right)
    assert len(list(stored(copied))) == 8
    assert contents(copied) == before


@pytest.mark.long
def test_what_was_left_half_written_goes_after_a_day(copied, whole, monkeypatch):
    """When a run writes to the store, of what it may write itself."""
    cell = block_file(copied, LARGER, 0, 0).parent
    other = dataclasses.replace(LARGER, seed=1)
    others = block_file(copied, other, 0, 0).parent
    (copied / "states").mkdir()
    names = [folder / ".0123.partial" for folder in (copied, copied / "code", cell)]
    names += [copied / "states" / ".4567.partial", others / ".0123.partial"]
    for name in names:
        name.write_text("half")
    there = lambda: [name.exists() for name in names]
    sweep(dataclasses.replace(LARGER, num_trials=21), draw, copied)
    assert there() == 5 * [True]  # Control: they are new.
    monkeypatch.setattr("cfljax.engine.store.ABANDONED", -1.0)
    right = sweep(LARGER, draw, copied)
    assert there() == 5 * [True]  # Nothing is written.
    sweep(dataclasses.replace(LARGER, num_trials=22), draw, copied)
    assert there() == 4 * [False] + [True]
    assert right.identical(sweep(LARGER, draw, whole))


def test_any_flipped_byte_is_noticed(path, monkeypatch):
    """Of every byte of a block, and every length that it may be cut to."""
    grid = plain_grid(axes={}, num_trials=2)
    right = sweep(grid, draw, path)
    file = block_file(path, grid, 0)
    whole = file.read_bytes()
    cut = [whole[:length] for length in range(len(whole))]
    flipped = [
        rest + bytes([byte ^ 1]) + whole[len(rest) + 1 :]
        for rest, byte in zip(cut, whole, strict=True)
    ]
    for content in [*cut, *flipped, whole + b"0", whole + whole[-64:]]:
        with monkeypatch.context() as patch:
            patch.setattr(kept, "read_file", lambda _, found=content: found)
            assert kept.read(file) is None
    file.write_bytes(flipped[-1])
    store = Store(path, grid)
    assert store.damaged == {(0,)} and store.values() == {}
    file.write_bytes(whole)  # Control.
    assert Store(path, grid).states.all() and flaws(path, grid, right) == []


def test_wrong_number_is_seen(copied, whole):
    """Control of what looks for flaws: it has a right digest."""
    right = sweep(LARGER, draw, whole)
    store = Store(copied, LARGER)
    wrong = store.outputs((1, 0))["value"].copy()
    wrong[3, 1] = np.nextafter(wrong[3, 1], np.float32(9))
    store.write((1, 0), {"value": wrong}, store.about((1, 0)))
    assert flaws(copied, LARGER, right) == [(1, 0)]


def spoil(chance: np.random.Generator, files: Sequence[pathlib.Path]) -> None:
    """Cut, change, remove, copy or exchange files."""
    one, two = (files[int(chance.integers(len(files)))] for _ in "ab")
    if not (one.exists() and two.exists()):
        return
    content, other = one.read_bytes(), two.read_bytes()
    place = int(chance.integers(max(1, len(content))))
    kind = chance.choice(["cut", "flip", "remove", "copy", "exchange"])
    if kind == "remove":
        one.unlink()
    elif kind == "cut":
        one.write_bytes(content[:place])
    elif kind == "flip":
        one.write_bytes(content[:place] + b"?" + content[place + 1 :])
    else:
        two.write_bytes(content)
        if kind == "exchange":
            one.write_bytes(other)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(3))
def test_no_history_gives_a_wrong_number(path, tmp_path, number):
    """Sweeps of many sizes and two seeds on one store, with all damage in between."""
    chance, separations = np.random.default_rng(number), (0.25, 0.5, 1.0)
    largest = plain_grid(axes={"separation": separations}, num_trials=35)
    right = [
        sweep(dataclasses.replace(largest, seed=seed), draw, tmp_path / str(seed))
        for seed in (0, 1)
    ]
    for _ in range(60):
        seed, size = int(chance.integers(2)), int(chance.integers(1, 36))
        some = tuple(s for s in separations if chance.random() < 0.6) or (0.5,)
        own = {"axes": {"separation": some}, "num_trials": size, "seed": seed}
        found = sweep(plain_grid(**own), draw, path)
        expected = right[seed]["value"].sel(separation=list(some))[:, :size]
        assert found["value"].values.tobytes() == expected.values.tobytes()
        files = sorted(path.glob("cells/*/*.npz"))
        for _ in range(int(chance.integers(4))):
            spoil(chance, files)
