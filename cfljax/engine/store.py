"""Store: the results of sweeps in a folder, which no kill and no other sweep can spoil.

    STORE/cells/<cell>/<number>.npz      one block of trials, see `kept`
    STORE/cells/<cell>/<number>.failed   that it could not be computed
    STORE/code/<digest>.json             what code computed it, see `sources`
    STORE/states/                        of runs that can go on; may be deleted
    STORE/lock, provenance.json, failures.jsonl   see `claims` and `provenance`

A cell's folder is named by all that its trials mean: experiment, revision, seed, fields
and outputs. So a sweep that asks for more methods, seeds, sizes or trials finds what is
there and adds the rest, whichever sweep computed it, and one that asks for something
else meets nothing. Each block says itself what it is, where it belongs and what code it
is of, under one digest: one that is damaged, exchanged, or of another cell is as good
as missing.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float, Int8

from cfljax.base.durable import replacing
from cfljax.base.unpacking import read_file
from cfljax.engine import kept, objects, sources
from cfljax.engine.grid import Grid, is_same
from cfljax.engine.kept import StoreError, disk_errors

# The last one is never stored: a block that a rule has no use for, see `stopping`.
OPEN, DONE, FAILED, SPARE = 0, 1, -1, 2
LAYOUT = 1  # Of blocks; to be raised when they change.
# Seconds after which a file that is half written is of a run that was killed.
ABANDONED = 86400.0

Block = tuple[int, ...]  # Position of a cell along the axes, then number of the block.
Outputs = dict[str, np.ndarray]  # Of several trials of one cell, `[trials, ...]`.


class Store:
    """What a folder has of a grid.

    Args:
      path: the folder; made by the first write. That of `objects.folder_of` for one
        in a bucket, from which it is filled.
      grid: whose cells are looked for.

    Raises:
      StoreError: if the folder holds something else. Looking changes nothing on disk.

    Cost: reads every block, about 1 ms each; memory of the results.
    """

    def __init__(self, path: pathlib.Path, grid: Grid) -> None:
        self.path, self.grid = path, grid
        self._written = path  # Another name of it, see `hold`.
        self._objects = objects.behind(path)
        # What people call it.
        self.name = str(path) if self._objects is None else self._objects.url
        # State of every block when it was last read or written here, `[*axes, blocks]`.
        self.states: Int8[np.ndarray, "*axes blocks"] = np.full(
            (*grid.shape, grid.num_blocks), OPEN, np.int8
        )
        self.damaged: set[Block] = set()  # Files that are no use.
        self._trials = {cell.index: cell.trial for cell in grid.cells()}
        self._names = {
            index: kept.key_of(grid.meaning(trial))
            for index, trial in self._trials.items()
        }
        self._cells = set(self._names.values())
        self._blocks: dict[Block, kept.Kept] = {}
        if self._objects is not None:
            self._objects.pull(wanted=self._is_looked_at)
        with _reading_errors(path):
            _check_folder(path)
        self._look(list(np.ndindex(*self.states.shape)))

    def hold(self, folder: pathlib.Path) -> None:
        """Write blocks by this name of the folder from now on, see `Claims.folder`."""
        self._written = folder

    def key(self, block: Block) -> str:
        """A name that no other block of any sweep has."""
        return f"{self._names[block[:-1]]}/{block[-1]}"

    def file(self, block: Block, suffix: str = ".npz") -> pathlib.Path:
        """Where a block lies, or what is told of it."""
        return self.path / "cells" / (self.key(block) + suffix)

    def _to_write(self, block: Block, suffix: str) -> pathlib.Path:
        return self._written / self.file(block, suffix).relative_to(self.path)

    def state_key(self, trial: Any) -> str:
        """What the names of a trial's states begin with, however many its rounds and
        whatever its revision."""
        return state_key(self.grid.meaning(trial), self.grid.growing(trial))

    def state_file(self, trial: Any, index: int, code: str) -> pathlib.Path:
        """Where a trial that goes round by round keeps its state meanwhile, in which
        no other code or revision goes on."""
        version = kept.key_of([code, self.grid.revision])
        return self.path / "states" / f"{self.state_key(trial)}-{index}-{version}.npz"

    def state_files(self, trial: Any, trials: Iterable[int]) -> list[pathlib.Path]:
        """All files of the states of some trials of a cell: of any code and revision,
        of a second run, and earlier ones, too; of a bucket, whether here or there."""
        begin = f"{self.state_key(trial)}-"
        found = {file.name for file in (self.path / "states").glob(f"{begin}*")}
        if self._objects is not None:
            found |= set(self._states())
        own = set(map(str, trials))
        key = lambda name: name.removeprefix(begin).partition("-")[0]
        names = [n for n in found if n.startswith(begin) and key(n) in own]
        return [self.path / "states" / name for name in sorted(names)]

    def pull_states(self, trial: Any, index: int) -> None:
        """Of a store in a bucket, read the states of a trial."""
        if self._objects is not None:
            self._objects.pull(f"states/{self.state_key(trial)}-{index}-")

    def delete_state(self, file: pathlib.Path) -> None:
        """Delete a file of a trial's states, which may be missing."""
        with disk_errors(file):
            file.unlink(missing_ok=True)
        if self._objects is not None:
            self._objects.delete(str(file.relative_to(self.path)))

    def state_bytes(self) -> int:
        """What all states take on the disk."""
        return sum(self._states().values())

    def _states(self) -> dict[str, int]:
        """All files of states, and their bytes."""
        if self._objects is not None:
            found = self._objects.sizes("states/")
            return {name.partition("/")[2]: size for name, size in found.items()}
        found: dict[str, int] = {}
        for name in _listing(self.path / "states"):
            with contextlib.suppress(FileNotFoundError):  # Another run's.
                found[name] = (self.path / "states" / name).stat().st_size
        return found

    def tidy(self) -> None:
        """Delete what runs that were killed have left: files half written a day ago,
        and states of trials that are done and to which no round can be added. What
        cannot be deleted stays. To be called behind a write of the provenance."""
        with contextlib.suppress(OSError):
            # By the clock of the disk, which is that of the files.
            now = (self.path / "provenance.json").stat().st_mtime
            cells = sorted({f"cells/{name}" for name in self._names.values()})
            for folder in ("", "code", "states", *cells):
                for file in (self.path / folder).glob(".*.partial"):
                    # Of a link only this tells when it was made.
                    if now - file.stat().st_ctime > ABANDONED:
                        file.unlink(missing_ok=True)
            states = self._states()
            over = self._trials_over() if states else set()
            for name in states:
                if name[: name.rfind("-") + 1] in over:
                    self.delete_state(self.path / "states" / name)

    def _trials_over(self) -> set[str]:
        """What names of states begin with that no run will go on from."""
        found = set()
        for *index, number in np.argwhere(self.states == DONE).tolist():
            trial = self._trials[tuple(index)]
            if not self.grid.growing(trial):
                own, key = self.grid.block(number), self.state_key(trial)
                found |= {f"{key}-{i}-" for i in range(own.start, own.stop)}
        return found

    def _is_looked_at(self, name: str) -> bool:
        """Whether an object is of the grid's cells, or tells of all."""
        folder, _, rest = name.partition("/")
        if folder == "cells":
            return rest.partition("/")[0] in self._cells
        return folder in ("code", "provenance.json")

    def refresh(self, blocks: Sequence[Block]) -> None:
        """Read some blocks, and again those that are not done, as others may have left
        them."""
        if self._objects is not None:
            cells = {self._names[b[:-1]] for b in blocks if self.states[b] != DONE}
            for name in sorted(cells):
                self._objects.pull(f"cells/{name}/")
        self._look(blocks)

    def _look(self, blocks: Sequence[Block]) -> None:
        """As `refresh`, of what the folder has."""
        listed: dict[str, set[str]] = {}
        for block in blocks:
            if self.states[block] == DONE:
                continue
            name, number = self._names[block[:-1]], block[-1]
            if name not in listed:
                with _reading_errors(self.path):
                    listed[name] = _listing(self.path / "cells" / name)
            self.damaged.discard(block)
            self._blocks.pop(block, None)
            self.states[block] = OPEN
            if f"{number}.npz" in listed[name]:
                self._take(block)
            if self.states[block] == OPEN and f"{number}.failed" in listed[name]:
                self.states[block] = FAILED

    def _take(self, block: Block) -> None:
        found = kept.read(self.file(block))
        if found is None or not self._is_of(found, block):
            self.damaged.add(block)
            return
        self._blocks[block] = found
        own = self.grid.block(block[-1])
        if found.about["trials"] >= own.stop - own.start:
            self.states[block] = DONE

    def _is_of(self, found: kept.Kept, block: Block) -> bool:
        """Whether a file holds what its place says."""
        if not is_at(found, self._names[block[:-1]], block[-1]):
            return False
        # A field that is usual is no part of the name: what is usual may have changed.
        here = self.grid.fields(self._trials[block[:-1]])
        there = found.about["fields"]
        return all(is_same(here.get(name, there[name]), there[name]) for name in there)

    def outputs(self, block: Block, *, at_most: int | None = None) -> Outputs:
        """What is stored of a block, `[trials, ...]`: as many trials as the grid has of
        it, if there are; nothing of a block that has none."""
        if block not in self._blocks:
            return {}
        own = self.grid.block(block[-1])
        length = own.stop - own.start if at_most is None else at_most
        return {n: a[:length] for n, a in self._blocks[block].arrays.items()}

    def num_trials(self, block: Block) -> int:
        """How many trials of a block are stored, of those that the grid has."""
        found = self.outputs(block)
        return len(next(iter(found.values()))) if found else 0

    def about(self, block: Block) -> Mapping[str, Any]:
        """What a stored block says of itself."""
        return self._blocks[block].about

    def values(self) -> Outputs:
        """All outputs `[*axes, trials, *own]`, arbitrary where a block is not done; one
        that has never been stored is left out."""
        done = [block for block in self._blocks if self.states[block] == DONE]
        if not done:
            return {}
        shape = (*self.grid.shape, self.grid.num_trials)
        first, found = self._blocks[done[0]].arrays, {}
        self._check_alike(_shapes_of(first), "another cell has it as")
        for name in self.grid.dims:
            array = np.zeros((*shape, *first[name].shape[1:]), first[name].dtype)
            for block in done:
                where = (*block[:-1], self.grid.block(block[-1]))
                array[where] = self.outputs(block)[name]
            found[name] = array
        return found

    def check_outputs(self, outputs: Mapping[str, jax.ShapeDtypeStruct]) -> None:
        """Raises ValueError unless they are what the grid announces, and what the
        stored cells have.

        Args:
          outputs: shape and type of the outputs of one trial.
        """
        _check_announced(self.grid, outputs)
        self._check_alike(outputs, "this cell gives")

    def _check_alike(
        self, outputs: Mapping[str, jax.ShapeDtypeStruct], what: str
    ) -> None:
        for stored in self._blocks.values():
            for name, there in _shapes_of(stored.arrays).items():
                here = outputs[name]
                if (there.shape, there.dtype) != (here.shape, here.dtype):
                    raise StoreError(
                        f"`{self.name}` holds `{name}` as {there.dtype}"
                        f"{list(there.shape)} a trial, {what} {here.dtype}"
                        f"{list(here.shape)}: outputs must have one shape and type in "
                        "all cells. If the trial has changed, raise its revision."
                    )

    def write(
        self,
        block: Block,
        outputs: Outputs,
        about: Mapping[str, Any],
        *,
        behind: int = 0,
    ) -> bool:
        """Store what was computed of a block, behind so many trials that it has.

        Returns:
          Whether it is this that stands there: in a bucket another run, of whose
          claims nothing was known any more, may have been faster, and is right.

        Raises:
          StoreError: if the disk refuses; what was stored stays.
        """
        if self.num_trials(block) < behind:
            raise StoreError(
                f"`{self.name}` was damaged while it was written; run again to repair"
                " it."
            )
        if behind:
            before = self.outputs(block, at_most=behind)
            outputs = {n: np.concatenate([before[n], outputs[n]]) for n in outputs}
            there = self.about(block)
            names = "seconds", "core_seconds"
            about = {**about, **{n: there.get(n, 0.0) + about[n] for n in names}}
        trial = self._trials[block[:-1]]
        whole = {
            "layout": LAYOUT,
            "cell": self._names[block[:-1]],
            "block": block[-1],
            "trials": len(next(iter(outputs.values()))),
            "asked": self.grid.num_trials,
            "meaning": self.grid.meaning(trial),
            "fields": self.grid.fields(trial),
            "axes": list(self.grid.axes),
            "growing": list(self.grid.growing(trial)),
            "quantities": dict(self.grid.quantities),
            **about,
        }
        while True:
            with disk_errors(self.path):
                kept.write(self._to_write(block, ".npz"), outputs, whole)
            if self._objects is None or self._objects.push(
                f"cells/{self.key(block)}.npz"
            ):
                break
            self.states[block] = OPEN
            self.refresh([block])
            if self.states[block] == DONE:
                return False
        if (mark := self._to_write(block, ".failed")).exists():
            with disk_errors(self.path):
                mark.unlink(missing_ok=True)
            if self._objects is not None:
                self._objects.delete(f"cells/{self.key(block)}.failed")
        self._blocks[block] = kept.Kept(outputs, whole)
        self.damaged.discard(block)
        self.states[block] = DONE
        return True

    def fail(self, block: Block) -> None:
        """Note that a block could not be computed."""
        mark = self._to_write(block, ".failed")
        with disk_errors(self.path), replacing(mark) as partial:
            partial.touch()
        if self._objects is not None:
            self._objects.put(f"cells/{self.key(block)}.failed", b"")
        self.states[block] = FAILED

    def accepted(
        self, index: tuple[int, ...], here: str, why: str | None
    ) -> dict[str, Any] | None:
        """Other `code` of a cell, digests, and `why` it is harmless: as a person says
        now, or has said of a stored block. None if all is of one code.

        Args:
          index: position along the axes.
          here: digest of the code that computes now.
          why: the person's reason.
        """
        others: set[str] = set()
        known: dict[str, str] = {}
        for about in self._abouts(index):
            former = about["accepted"] or {"code": [], "why": None}
            others |= {about["code"], *former["code"]} - {here}
            if about["code"] == here:
                known |= dict.fromkeys(former["code"], former["why"])
        if why is None and others and others <= set(known):
            why = "; ".join(sorted(set(known.values())))
        return {"why": why, "code": sorted(others)} if others else None

    def _abouts(self, index: tuple[int, ...]) -> Iterator[Mapping[str, Any]]:
        """What the blocks of a cell say of themselves, those beyond the grid's too."""
        for number in range(self.grid.num_blocks):
            if (*index, number) in self._blocks:
                yield self.about((*index, number))
        name = self._names[index]
        with _reading_errors(self.path):
            files = _listing(self.path / "cells" / name)
        for file in sorted(files):
            stem, _, suffix = file.partition(".")
            if suffix == "npz" and stem.isdecimal():
                block = (*index, int(stem))
                if block[-1] < self.grid.num_blocks:
                    continue
                found = kept.read(self.file(block))
                if found is not None and self._is_of(found, block):
                    yield found.about

    def check_code(
        self,
        cells: Iterable[tuple[int, ...]],
        code: Mapping[str, Any],
        why: str | None,
    ) -> None:
        """Raises StoreError where cells were begun by other code than would complete
        them, unless a person said why that is harmless.

        Args:
          cells: positions along the axes.
          code: what computes now, see `sources`.
          why: the person's reason.
        """
        here = kept.key_of(code)
        for index in cells:
            found = self.accepted(index, here, why)
            if found is not None and found["why"] is None:
                point = self.grid.point(index)
                where = ", ".join(f"{name} {value}" for name, value in point.items())
                raise StoreError(
                    f"a cell of `{self.name}` ({where or 'the only one'}) was begun by "
                    "other code than would complete it: "
                    f"{self._difference(found['code'][0], code)}. Complete "
                    "it by the code that began it, choose another store, or say why "
                    "this changes no number: `accept_code`, `--accept-code WHY`."
                )

    def _difference(self, there: str, new: Mapping[str, Any]) -> str:
        old = self.code(there)
        if not isinstance(old, dict) or not _are(old, dict.fromkeys(new, dict)):
            return "what it was is not known"
        found = sources.differences(old, new)
        more = [f"and {len(found) - 5} more"] if len(found) > 5 else []
        return ", ".join([*found[:5], *more])

    def code(self, digest: str) -> Any:
        """What a digest of code stands for; None if that was lost."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found = json.loads(read_file(self.path / "code" / f"{digest}.json"))
            return found if kept.key_of(found) == digest else None

    def keep_code(self, code: Mapping[str, Any]) -> str:
        """Note what code computes from now on; its digest."""
        digest = kept.key_of(code)
        file = self.path / "code" / f"{digest}.json"
        if self.code(digest) is None:
            with disk_errors(self.path), replacing(file) as partial:
                partial.write_text(json.dumps(code, indent=1, sort_keys=True) + "\n")
            if self._objects is not None:  # Whoever was faster put the same.
                self._objects.push(f"code/{digest}.json")
        return digest


class Progress(NamedTuple):
    """What a store has of the cells of a grid."""

    is_done: Bool[np.ndarray, "*axes"]  # whether of all its trials
    has_failed: Bool[np.ndarray, "*axes"]  # whether any could not be computed
    num_open: int  # blocks that are neither
    # What its trials took since they were last taken up: by the clock without
    # compiling, and of all cores with it.
    seconds: Float[np.ndarray, "*axes"]
    core_seconds: Float[np.ndarray, "*axes"]


def progress_of(path: str | os.PathLike[str], grid: Grid) -> Progress:
    """What a store, of `sweep`, has of a grid; raises StoreError if it is none."""
    store = Store(objects.folder_of(path), grid)
    seconds, core_seconds = np.zeros(grid.shape), np.zeros(grid.shape)
    for *index, number in np.argwhere(store.states == DONE).tolist():
        about = store.about((*index, number))
        seconds[tuple(index)] += about["seconds"]
        core_seconds[tuple(index)] += about.get("core_seconds", about["seconds"])
    is_done = np.all(store.states == DONE, axis=-1)
    has_failed = np.any(store.states == FAILED, axis=-1)
    num_open = int(np.sum(store.states == OPEN))
    return Progress(is_done, has_failed, num_open, seconds, core_seconds)


def stored(path: pathlib.Path) -> Iterator[kept.Kept]:
    """All sound blocks of a store, of whatever sweeps, in the order of their names.

    `about` has `meaning` (experiment, revision, seed, outputs, and the fields that are
    not usual), all `fields`, `axes`, `growing` and `quantities` of the grid, `block`,
    `trials`, `asked`, the trials of its cell that the run was for, `code`, `commit`,
    `run`, `seconds`, and `accepted`, None unless a person judged a change of code
    harmless.
    """
    for file in sorted((path / "cells").glob("*/*.npz")):
        found = kept.read(file)
        number = int(file.stem) if file.stem.isdecimal() else None
        if found is not None and is_at(found, file.parent.name, number):
            yield found


# What each block says of itself that somebody reads, with its kind,
_NUMBER = (int, float)
_TOLD: dict[str, Any] = {
    "meaning": dict,
    "fields": dict,
    "trials": int,
    "code": str,
    "run": str,
    "commit": (dict, type(None)),
    "accepted": (dict, type(None)),
    "seconds": _NUMBER,
}
# what those of today say besides,
_TOLD_SINCE: dict[str, Any] = {
    "asked": int,
    "axes": list,
    "growing": list,
    "quantities": dict,
    "core_seconds": _NUMBER,
}
# and what its trials mean.
_MEANT: dict[str, Any] = {
    "experiment": str,
    "revision": int,
    "seed": int,
    "fields": dict,
    "dims": dict,
    "coords": dict,
}


def is_at(found: kept.Kept, cell: str, number: int | None) -> bool:
    """Whether a file holds the block of this name and number, with all its outputs.

    A digest is no signature: whatever is read is asked for its kind, too.
    """
    about = found.about
    if not isinstance(about, dict) or not _are(about, _TOLD):
        return False
    there = [about.get(name) for name in ("layout", "cell", "block")]
    meaning = about["meaning"]
    if there != [LAYOUT, cell, number] or kept.key_of(meaning) != cell:
        return False
    since = {name: kind for name, kind in _TOLD_SINCE.items() if name in about}
    if not _are(about, since) or not _are(meaning, _MEANT):
        return False
    accepted, commit = about["accepted"] or {"code": []}, about["commit"] or {}
    if not _are_texts(accepted.get("code")) or not _is_text(commit.get("id", "")):
        return False
    scalars = [*about["fields"].values(), *meaning["fields"].values()]
    quantities = about.get("quantities", {}).values()
    if not all(map(_is_scalar, scalars)) or not all(map(_are_texts, quantities)):
        return False
    lengths = {name: array.shape[:1] for name, array in found.arrays.items()}
    if lengths != dict.fromkeys(meaning["dims"], (about["trials"],)):
        return False
    return all(
        _are_texts(own) and len(own) == found.arrays[name].ndim - 1
        for name, own in meaning["dims"].items()
    ) and all(isinstance(own, list) for own in meaning["coords"].values())


def _are(document: Mapping[str, Any], kinds: Mapping[str, Any]) -> bool:
    """Whether a document has something of each kind."""
    return all(isinstance(document.get(name), kind) for name, kind in kinds.items())


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(v, str) for v in value)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (*_NUMBER, str))


def state_key(meaning: Mapping[str, Any], growing: Iterable[str]) -> str:
    """See `Store.state_key`; of what a cell's trials mean, and what may grow."""
    fields = {n: v for n, v in meaning["fields"].items() if n not in set(growing)}
    # Coordinates may grow with them.
    own = {**meaning, "fields": fields, "coords": {}}
    return kept.key_of({n: v for n, v in own.items() if n != "revision"})


def _shapes_of(arrays: Outputs) -> dict[str, jax.ShapeDtypeStruct]:
    """Shapes and types of a trial's outputs."""
    return {n: jax.ShapeDtypeStruct(a.shape[1:], a.dtype) for n, a in arrays.items()}


def _listing(folder: pathlib.Path) -> set[str]:
    try:
        return set(os.listdir(folder))
    except FileNotFoundError:
        return set()


def _check_folder(path: pathlib.Path) -> None:
    """Raises StoreError if there is something that is no store."""
    if not path.exists() or (path / "cells").is_dir():
        return
    own = {"code", "states", "lock", "provenance.json", "failures.jsonl"}
    if path.is_dir() and all(
        entry.name in own or entry.suffix == ".partial" for entry in path.iterdir()
    ):
        return
    if (path / "cells").is_dir():  # Another run has made it since.
        return
    raise StoreError(f"`{path}` is not a store of results; choose another folder.")


def _check_announced(grid: Grid, outputs: Mapping[str, jax.ShapeDtypeStruct]) -> None:
    if set(outputs) != set(grid.dims):
        raise OutputsError(
            f"`dims` must name the outputs of a trial, {sorted(outputs)}, got"
            f" {sorted(grid.dims)}."
        )
    sizes: dict[str, int] = {name: len(labels) for name, labels in grid.coords.items()}
    for name, output in outputs.items():
        own = grid.dims[name]
        if output.dtype.kind not in "biuf" or 0 in output.shape:
            raise OutputsError(
                f"output `{name}` must hold real numbers, at least one, got"
                f" {output.dtype}{list(output.shape)}."
            )
        if len(own) != len(output.shape):
            raise OutputsError(
                f"`dims[{name!r}]` must name the axes of shape {output.shape}, got"
                f" {own}."
            )
        for dim, size in zip(own, output.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise OutputsError(
                    f"own axis `{dim}` must have one size, and as many labels in"
                    f" `coords`, got {sizes[dim]} and {size} (output `{name}`)."
                )


class MemoryLimitError(ValueError):
    """A trial, or the chunk asked for, does not fit in the memory allowed."""


class OutputsError(ValueError):
    """Outputs of a trial that are not what its grid announces."""


class SweepError(RuntimeError):
    """A sweep of which nothing could be computed."""

    exit_status = 1  # Of a command that meets it.


@contextlib.contextmanager
def _reading_errors(path: pathlib.Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        raise StoreError(f"cannot read results in `{path}`: {reason}.") from error
