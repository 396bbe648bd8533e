"""What stores of sweeps have: runs, each of all seeds of one trial."""

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cfljax import engine
from cfljax.engine import kept

Kinds = Mapping[str, tuple[type, int]]  # Trial and present revision, by experiment.


@dataclasses.dataclass(frozen=True)
class Run:
    """All stored seeds of one trial.

    trial: of the first seed; of a stale one perhaps not whole.
    is_stale: whether it was stored under another revision, or is no trial any more.
    outputs: by name, `[seeds, ...]`.
    coords: labels of the outputs' own axes.
    cells, codes, commits: names of what it is stored as, digests of the code that
      computed it, and commits, each once.
    folders: of the stores, as they were named.
    others: of stores that have other numbers of the same cells, which do not count.
    """

    experiment: str
    trial: Any
    seed: int  # of the experiment, behind those of its trials
    is_stale: bool
    outputs: Mapping[str, np.ndarray]
    coords: Mapping[str, Sequence]
    cells: tuple[str, ...]
    codes: tuple[str, ...]
    commits: tuple[str, ...]
    folders: tuple[str, ...]
    others: tuple[str, ...]

    @property
    def num_seeds(self) -> int:
        """How many seeds there are."""
        return len(next(iter(self.outputs.values())))


def num_files(folder: pathlib.Path) -> int:
    """All blocks of a store, damaged ones among them."""
    return len(list(folder.glob("cells/*/*.npz")))


class Stored(NamedTuple):
    """A block, and the folder of its store."""

    block: kept.Kept
    folder: str


def read(folders: Iterable[pathlib.Path]) -> list[Stored]:
    """The blocks of some stores that are whole.

    Raises:
      ValueError: if a folder is there and no store.
    """
    found = []
    for folder in folders:
        if folder.exists() and not (folder / "cells").is_dir():
            raise ValueError(f"`{folder}` must be the folder of a store, with `cells`.")
        found += [Stored(block, str(folder)) for block in engine.stored(folder)]
    return found


def runs(blocks: Sequence[Stored], kinds: Kinds) -> list[Run]:
    """The runs of some experiments, by what their trials mean but for the repetition.

    Of a block that several stores have the first counts.
    """
    cells: dict[str, dict[int, Stored]] = {}
    groups: dict[str, dict[str, int]] = {}  # Repetitions of cells.
    others: dict[str, list[str]] = {}  # Folders with other numbers, by cells.
    for own in blocks:
        block = own.block
        meaning = block.about["meaning"]
        if meaning["experiment"] not in kinds:
            continue
        name = kept.key_of(meaning)
        first = cells.setdefault(name, {}).setdefault(block.about["block"], own)
        if not _is_alike(first.block.arrays, block.arrays):
            others.setdefault(name, []).append(own.folder)
        # Not those of `about`, which also has what a trial of this kind does not use.
        fields = dict(meaning["fields"])
        repetition = fields.pop("repetition", 0)
        group = kept.key_of({**meaning, "fields": fields})
        groups.setdefault(group, {})[name] = repetition
    found = []
    for repetitions in groups.values():
        names = sorted(repetitions, key=repetitions.__getitem__)
        differ = [folder for name in names for folder in others.get(name, ())]
        found.append(_run({name: cells[name] for name in names}, kinds, differ))
    return found


def _is_alike(one: Mapping[str, np.ndarray], other: Mapping[str, np.ndarray]) -> bool:
    """Whether blocks of the same trials have the same numbers, as far as both go."""
    if one.keys() != other.keys():
        return False
    both = ((one[name], other[name]) for name in one)
    return all(
        a.shape[1:] == b.shape[1:]
        and np.array_equal(a[: len(b)], b[: len(a)], equal_nan=True)
        for a, b in both
    )


def _run(
    cells: Mapping[str, Mapping[int, Stored]], kinds: Kinds, others: Sequence[str]
) -> Run:
    every = [own[number] for own in cells.values() for number in sorted(own)]
    blocks = [own.block for own in every]
    meaning = blocks[0].about["meaning"]
    kind, revision = kinds[meaning["experiment"]]
    trial, is_whole = _trial(kind, blocks[0].about["fields"])
    each = lambda name: tuple(dict.fromkeys(block.about[name] for block in blocks))
    return Run(
        experiment=meaning["experiment"],
        trial=trial,
        seed=meaning["seed"],
        is_stale=not is_whole or meaning["revision"] != revision,
        outputs={
            name: np.concatenate([block.arrays[name] for block in blocks])
            for name in blocks[0].arrays
        },
        coords=meaning["coords"],
        cells=tuple(cells),
        codes=each("code"),
        commits=tuple(dict.fromkeys(_commit(own.about["commit"]) for own in blocks)),
        folders=tuple(dict.fromkeys(own.folder for own in every)),
        others=tuple(dict.fromkeys(others)),
    )


def _trial(kind: type, fields: Mapping[str, Any]) -> tuple[Any, bool]:
    """The trial, and whether it is one; else something that has the fields."""
    try:
        return kind(**fields), True
    except (TypeError, ValueError):
        found = object.__new__(kind)
        for name, value in fields.items():
            object.__setattr__(found, name, value)
        return found, False


def _commit(commit: Mapping[str, Any] | None) -> str:
    """The first digits of a commit, marked where files had changed since."""
    if commit is None or not commit.get("id"):
        return "unknown"
    return f"{commit['id'][:10]}{'+' if commit.get('dirty') else ''}"
