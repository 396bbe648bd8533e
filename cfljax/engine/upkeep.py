"""Upkeep: what a folder of results holds, what of it is no use, and getting rid of it.

A sweep repairs what it needs by itself; this looks at everything, whoever wrote it.
"""

import datetime
import json
import pathlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from cfljax.base.durable import sync
from cfljax.base.unpacking import read_file
from cfljax.engine import kept, objects
from cfljax.engine.claims import undisturbed
from cfljax.engine.grid import BLOCK
from cfljax.engine.kept import Kept, StoreError, disk_errors
from cfljax.engine.provenance import FILE, runs_of
from cfljax.engine.store import is_at, state_key

Condition = Literal["sound", "damaged", "exchanged", "left over", "unknown"]
USELESS: tuple[Condition, ...] = ("damaged", "exchanged", "left over")
_JOURNALS = ("lock", FILE, "failures.jsonl")
Where = pathlib.Path | str  # A path, or the URL of a store in a bucket.
_KEY = re.compile("[0-9a-f]{24}")
_STATE = re.compile(rf"(?P<key>{_KEY.pattern})-(?P<index>\d+)-{_KEY.pattern}[.\d]*")


class Item(NamedTuple):
    """One file.

    name: below the folder.
    condition: sound; damaged: not what was written; exchanged: whole, but of another
      place; left over: of a run that was killed, or of no use any more; or unknown:
      nothing that results have.
    size: of it, in bytes.
    note: what is wrong, or is to be said of it.
    """

    name: str
    condition: Condition
    size: int
    note: str = ""


class Holding(NamedTuple):
    """What a folder has of one experiment, of one revision of its trial.

    experiment: its id; of a checkpoint the algorithm.
    revision: of the trial; None where there is no such thing.
    cells: how many have a trial; of a checkpoint 1.
    trials: stored, of all cells; of a checkpoint the rounds that are done.
    asked: trials that runs have asked for: of the cells that are there, or of the
      largest run if these are more; None if no run told.
    size: of the blocks, in bytes.
    code: digests of what computed them.
    first: when the first of them was written, by the disk's clock, in UTC.
    last: when the last was.
    """

    experiment: str
    revision: int | None
    cells: int
    trials: int
    asked: int | None
    size: int
    code: tuple[str, ...]
    first: str
    last: str


def holdings(path: Where) -> list[Holding]:
    """What is there, sound files alone; raises StoreError as `survey`, and for a single
    file that is not sound.

    Cost: reads every file.
    """
    folder, files = _place(path)
    groups: dict[tuple[str, int | None], list[tuple[pathlib.Path, Kept]]] = {}
    for file in files:
        found = _read(file)
        if isinstance(found, str) or _fault(folder, file, found):
            continue
        groups.setdefault(_named(folder, found), []).append((file, found))
    if folder is None and not groups:
        raise StoreError(f"`{path}` holds no results: {_read(files[0])}.")
    runs = [] if folder is None else runs_of(folder)
    return [_holding(*key, own, runs) for key, own in sorted(groups.items(), key=str)]


def _named(folder: pathlib.Path | None, found: Kept) -> tuple[str, int | None]:
    """Experiment and revision of a file."""
    about = found.about
    if folder is not None and isinstance(about, dict) and "meaning" in about:
        return about["meaning"]["experiment"], about["meaning"]["revision"]
    if isinstance(about, dict) and isinstance(about.get("algorithm"), dict):
        return f"{about['algorithm'].get('name')}, checkpoint", None
    if isinstance(about, dict) and "state" in about:
        return "state", None
    first = about[0] if isinstance(about, list) and about else "arrays"
    return str(first), None


def _holding(
    experiment: str,
    revision: int | None,
    own: Sequence[tuple[pathlib.Path, Kept]],
    runs: Sequence[Mapping[str, Any]],
) -> Holding:
    abouts = [found.about for _, found in own if isinstance(found.about, dict)]
    stats = [file.stat() for file, _ in own]
    codes = [about.get("code") for about in abouts]
    each: dict[str, int] = {}
    for about in abouts:
        if "asked" in about and "cell" in about:
            each[about["cell"]] = max(about["asked"], each.get(about["cell"], 0))
    asked = [sum(each.values())] * bool(each)
    asked += [
        run["cells"] * run["trials"]
        for run in runs
        if (run.get("experiment"), run.get("revision")) == (experiment, revision)
        and {"cells", "trials"} <= run.keys()
    ]
    times = sorted(status.st_mtime for status in stats)
    told = lambda time: datetime.datetime.fromtimestamp(time, datetime.UTC).isoformat(
        timespec="seconds"
    )
    return Holding(
        experiment,
        revision,
        cells=len({about.get("cell", number) for number, about in enumerate(abouts)}),
        trials=sum(map(_num_trials, abouts)),
        asked=max(asked, default=None),
        size=sum(status.st_size for status in stats),
        code=tuple(sorted({code for code in codes if isinstance(code, str)})),
        first=told(times[0]),
        last=told(times[-1]),
    )


def _num_trials(about: Mapping[str, Any]) -> int:
    """Of a block, or rounds of a checkpoint; 0 where a file says something else."""
    found = about.get("trials", about.get("rounds", 0))
    return found if isinstance(found, int) else 0


def survey(path: Where) -> list[Item]:
    """Every file of a store, a folder of kept arrays or of a checkpoint, and what it is
    worth: digests are computed, and places compared with what a file says of itself.

    Args:
      path: a store, which may be in a bucket; a folder of results that has one; a
        folder of kept arrays, such as a study's `cells`; or one file, a checkpoint or a
        state.

    Raises:
      StoreError: if it is none of these, or cannot be read.

    Cost: reads every file.
    """
    folder, files = _place(path)
    if folder is None:
        return [_item(file.parent, file, None) for file in files]
    with disk_errors(folder):
        every = sorted(file for file in folder.rglob("*") if not file.is_dir())
    over = set(_over(folder)) if (folder / "states").is_dir() else set()
    return [_item(folder, file, over) for file in every]


def _place(path: Where) -> tuple[pathlib.Path | None, list[pathlib.Path]]:
    """The folder, None for a single file, and the files of arrays."""
    path = objects.fetched(path) if objects.is_url(path) else pathlib.Path(path)
    if path.is_file():
        beside = path.with_name(f"{path.name}.before")
        return None, [path, *([beside] if beside.is_file() else [])]
    if not path.is_dir():
        raise StoreError(f"there is no `{path}`.")
    for folder in (path, path / "store"):
        if (folder / "cells").is_dir() or (folder / "states").is_dir():
            blocks = sorted((folder / "cells").glob("*/*.npz"))
            if not blocks and (own := sorted((folder / "cells").glob("*.npz"))):
                return folder / "cells", own  # A study's.
            return folder, [own for own in blocks if own.stem.isdecimal()]
    if found := sorted(path.glob("*.npz")):
        return path, found
    raise StoreError(
        f"`{path}` is neither a store nor a folder of kept arrays; give the folder "
        "that `--store` names, one that `run --out` wrote, or a file."
    )


def _read(file: pathlib.Path) -> Kept | str:
    """What a file holds, or why it is no use."""
    try:
        found = kept.read(file)
    except StoreError as error:  # More than memory.
        return str(error)
    if found is not None:
        return found
    empty = file.is_file() and not file.stat().st_size
    return "it is empty" if empty else "its digest does not agree with its content"


def _fault(folder: pathlib.Path | None, file: pathlib.Path, found: Kept) -> str:
    """Why a whole file is not what its place says, empty if it is."""
    if folder is None:
        return ""
    if file.parent.parent == folder / "cells":
        if is_at(found, file.parent.name, int(file.stem)):
            return ""
        own = found.about if isinstance(found.about, dict) else {}
        return f"it is of `cells/{own.get('cell')}/{own.get('block')}.npz`"
    own = kept.key_of(found.about)
    is_at_home = file.stem == own or not _KEY.fullmatch(file.stem)
    return "" if is_at_home else f"it is of `{own}.npz`"


def _is_ours(file: pathlib.Path) -> bool:
    """Whether a file without a digest was, or was to be, one that results have."""
    with file.open("rb") as opened:
        begin = opened.read(100)
    return b"about.npy" in begin or not begin.strip(b"\0")


def _over(folder: pathlib.Path) -> Iterator[str]:
    """What begins the names of states that no run goes on from: of trials that are
    stored, and to which no round can be added."""
    for file in _place(folder)[1]:
        found = _read(file)
        if isinstance(found, str) or _fault(folder, file, found):
            continue
        about = found.about
        if about.get("growing") == []:
            key, first = state_key(about["meaning"], ()), BLOCK * about["block"]
            for index in range(first, first + about["trials"]):
                yield f"{key}-{index}"


def _item(folder: pathlib.Path, file: pathlib.Path, over: set[str] | None) -> Item:
    """A file of a folder; by itself if `over` is None."""
    name = str(file.relative_to(folder))
    condition, note = _condition(folder, file, over)
    try:
        size = file.lstat().st_size
    except FileNotFoundError:  # Another run's, of a moment ago.
        size = 0
    return Item(name, condition, size, note)


def _condition(
    folder: pathlib.Path, file: pathlib.Path, over: set[str] | None
) -> tuple[Condition, str]:
    above = file.parent.relative_to(folder).parts
    if file.suffix == ".partial":
        return "left over", "half of a file, of a run that was killed or is at work"
    if over is None:
        return _of_arrays(file)
    if not above and file.name in _JOURNALS:
        return _of_journal(file)
    if above == ("code",) and file.suffix == ".json":
        return _of_code(file)
    if above == ("states",):
        return _of_state(file, over)
    is_block = len(above) == 2 and above[0] == "cells" and file.stem.isdecimal()
    is_block = is_block and _KEY.fullmatch(above[1]) is not None
    if file.suffix == ".npz" and (is_block or not above):
        found = _read(file)
        if isinstance(found, str):
            is_named = is_block or _KEY.fullmatch(file.stem)
            return ("damaged", found) if is_named else _of_arrays(file)
        fault = _fault(folder, file, found)
        return ("exchanged", fault) if fault else ("sound", "")
    if file.suffix == ".failed" and is_block:
        if isinstance(_read(file.with_suffix(".npz")), str):
            return "sound", "its block could not be computed; the next run tries again"
        return "left over", "its block has been computed since"
    return "unknown", "nothing that results have"


def _of_arrays(file: pathlib.Path) -> tuple[Condition, str]:
    """Of a file whose name says nothing, and which may be anybody's."""
    found = _read(file)
    if not isinstance(found, str):
        return "sound", ""
    return ("damaged", found) if _is_ours(file) else ("unknown", "no file of results")


def _of_journal(file: pathlib.Path) -> tuple[Condition, str]:
    """Of what all runs write."""
    try:
        text = read_file(file).decode()
        if file.name == FILE and not isinstance(json.loads(text)["runs"], list):
            raise ValueError
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return "damaged", "it is no list of runs; the next run begins a new one"
    if file.suffix == ".jsonl":
        torn = sum(not _is_json(line) for line in text.splitlines())
        return "sound", f"{torn} of its lines are torn" if torn else ""
    return "sound", ""


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _of_code(file: pathlib.Path) -> tuple[Condition, str]:
    """Of what a digest of code stands for."""
    try:
        if kept.key_of(json.loads(read_file(file))) == file.stem:
            return "sound", ""
    except (OSError, ValueError, RecursionError):
        pass
    return "damaged", "its name is not its digest; the code it names writes it again"


def _of_state(file: pathlib.Path, over: set[str]) -> tuple[Condition, str]:
    """Of runs that can go on."""
    name = file.name.removesuffix(".before").removesuffix(".npz")
    match = _STATE.fullmatch(name)
    if match is None:
        return "unknown", "nothing that results have"
    if f"{match['key']}-{match['index']}" in over:
        return "left over", "its trial is done"
    found = _read(file)
    return ("damaged", found) if isinstance(found, str) else ("sound", "")


def repair(path: Where) -> list[Item]:
    """Delete what is damaged or left over, so that the next run computes it again, and
    put what is exchanged where it belongs, if nothing is there. Nothing else changes.

    Args:
      path: as of `survey`.

    Returns:
      What was found to be no use.

    Raises:
      StoreError: as `survey`; if a run is at work in the store, or the disk refuses;
        and of a bucket.
    """
    if objects.is_url(path):
        raise StoreError(
            f"`{path}` is not repaired: what is damaged there the next run computes"
            " again, and replaces."
        )
    folder, _ = _place(path)
    root = pathlib.Path(path).parent if folder is None else folder
    if folder is None:
        return _repaired(root, survey(path))
    with undisturbed(folder) as is_alone:
        if not is_alone:
            raise StoreError(
                f"a run is at work in `{folder}`, or it cannot be written; nothing was "
                "changed."
            )
        return _repaired(root, survey(path))


def _repaired(root: pathlib.Path, items: Sequence[Item]) -> list[Item]:
    """Of some files those that were no use, and are no more."""
    useless = [item for item in items if item.condition in USELESS]
    with disk_errors(root):
        for item in useless:
            file = root / item.name
            if item.condition == "exchanged" and (own := _rightful(root, file)):
                own.parent.mkdir(exist_ok=True)
                file.rename(own)
                sync(own.parent)
            else:
                file.unlink(missing_ok=True)
            sync(file.parent)
    return useless


def _rightful(root: pathlib.Path, file: pathlib.Path) -> pathlib.Path | None:
    """Where a block belongs that lies elsewhere, if nothing is there."""
    found = _read(file)
    if isinstance(found, str) or not isinstance(found.about, dict):
        return None
    cell, block = found.about.get("cell"), found.about.get("block")
    if not isinstance(cell, str) or not _KEY.fullmatch(cell):
        return None
    own = root / "cells" / cell / f"{block}.npz"
    return own if is_at(found, cell, block) and not own.exists() else None
