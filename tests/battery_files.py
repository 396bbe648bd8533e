"""Files that were changed: each of their places, and bytes at random.

What is trusted is made once, changed, and read by those who read it. Where JSON is kept
under a digest, changes are tried with the old digest and, of a share, with one made
anew, of which no reader can know.
"""

import contextlib
import csv
import functools
import hashlib
import io
import json
import pathlib
import pickle
import random
import shutil
import signal
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from mutations_of_files import Harm, bytewise, edits
from tally import Tally
from test_unpacking import Harm as Pickled
from test_unpacking import objects, signed
from trusted_files import SUBJECTS, Subject, Use

from cfljax.base import sealed
from cfljax.base.unpacking import read_file, read_npz
from cfljax.engine import kept, store
from cfljax.engine.kept import Kept
from cfljax.statements.site import records

SIGNED = 0.5  # Share of changes that are tried with a digest made anew as well.
MOST = 500  # Changes of each subject.
PATIENCE = 300  # Seconds for one case.
MARK = "harm was done"  # Name of the file that code would leave.

Contents = dict[str, bytes]


class Case(NamedTuple):
    """One change of one file."""

    file: str
    harm: Harm
    is_signed: bool = False  # Whether its digest is of what it says.


class HangError(Exception):
    """A case that does not end."""


def contents(folder: pathlib.Path) -> Contents:
    """All files below a folder, by name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def put(folder: pathlib.Path, files: Contents) -> None:
    """The inverse."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def made(folder: pathlib.Path, name: str) -> Contents:
    """The sound files of a subject, made by whoever comes first."""
    own = folder / "made" / name
    if not own.is_dir():
        with tempfile.TemporaryDirectory(dir=folder) as place:
            partial = pathlib.Path(place) / "made"
            partial.mkdir()
            SUBJECTS[name].make(partial)
            own.parent.mkdir(exist_ok=True)
            with contextlib.suppress(OSError):  # Another was faster.
                partial.rename(own)
    return contents(own)


# Changes of what files say


def _document(form: str, whole: bytes) -> dict[str, Any]:
    """What a file says, in JSON."""
    if form == "npz":
        arrays = np.load(io.BytesIO(whole))
        return {"": json.loads(str(arrays["about"]))}
    if form == "sealed":
        found = sealed.unsealed(whole)
        assert found is not None
        return found
    if form == "csv":
        return next(csv.DictReader(io.StringIO(whole.decode(), newline="")))
    return json.loads(whole.splitlines()[0] if form == "lines" else whole)


def _npz(whole: bytes, text: str, *, is_signed: bool) -> bytes:
    """The same arrays, with another `about`."""
    about = io.BytesIO()
    np.lib.format.write_array(about, np.asarray(text))
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    found = signed({**members, "about.npy": about.getvalue()})
    return found if is_signed else found[:-64] + whole[-64:]


def _sealed(whole: bytes, text: str, *, is_signed: bool) -> bytes:
    body = text.removesuffix("}").encode()
    size = len(sealed.sealed({"a": 1})) - len('{"a": 1')
    tail = whole[-size:]
    if is_signed:
        digest = hashlib.sha256(body).hexdigest().encode()
        tail = tail[: -64 - len('"}\n')] + digest + b'"}\n'
    return body + tail


def _table(whole: bytes, text: str) -> bytes:
    """The table with another first row."""
    every = list(csv.reader(io.StringIO(whole.decode(), newline="")))
    row = json.loads(text)
    every[1] = [str(row.get(name)) for name in every[0]]
    file = io.StringIO(newline="")
    csv.writer(file).writerows(every)
    return file.getvalue().encode()


def _rewritten(form: str, whole: bytes, text: str, *, is_signed: bool) -> bytes:
    if form == "npz":
        own = text.removeprefix('{"": ').removesuffix("}")
        return _npz(whole, own, is_signed=is_signed)
    if form == "sealed":
        return _sealed(whole, text, is_signed=is_signed)
    return _table(whole, text) if form == "csv" else f"{text}\n".encode()


def _moved(whole: bytes, text: str) -> Callable[[pathlib.Path], object]:
    """Puts a block with another meaning where a block of that meaning belongs."""

    def move(path: pathlib.Path) -> None:
        about = json.loads(text)[""]
        about["cell"] = kept.key_of(about["meaning"])
        path.unlink()
        home = path.parents[1] / about["cell"] / path.name
        home.parent.mkdir(exist_ok=True)
        home.write_bytes(_npz(whole, json.dumps(about), is_signed=True))

    return move


def _said(form: str, file: str, whole: bytes, chance: random.Random) -> Iterator[Case]:
    """Every change of what a file says, made when it is done."""

    def do(text: str, is_signed: bool) -> Callable[[pathlib.Path], object]:
        own = functools.partial(_rewritten, form, whole, text, is_signed=is_signed)
        return lambda path: path.write_bytes(own())

    for name, text in edits(_document(form, whole)):
        yield Case(file, Harm(name, do(text, False)))
        if form not in ("npz", "sealed") or chance.random() >= SIGNED:
            continue
        label = f"{name}, digest anew"
        yield Case(file, Harm(label, do(text, True)), is_signed=True)
        if form == "npz" and name.startswith(".meaning."):
            label = f"{name}, moved to where it says that it is of"
            yield Case(file, Harm(label, _moved(whole, text)), is_signed=True)


def _pickles() -> Contents:
    """Files that do harm where somebody unpickles them; it is done beside the folder of
    the case, whose place they do not know."""
    mark = pathlib.Path(MARK)
    return {"pickle": pickle.dumps(Pickled(mark)), "array of objects": objects(mark)}


def _strangers(chance: random.Random, folder: pathlib.Path) -> Contents:
    """A sound file of each subject."""
    found = {}
    for name in SUBJECTS:
        files = made(folder, name)
        file = chance.choice(sorted(files))
        found[f"{SUBJECTS[name].kind(file) or 'file'} of {name}"] = files[file]
    return found


def _chosen(subject: Subject, files: Contents) -> Iterator[tuple[str, str]]:
    """Two files of each kind, and the kind: the first and the last."""
    by_kind: dict[str, list[str]] = {}
    for file in files:
        if (kind := subject.kind(file)) is not None:
            by_kind.setdefault(kind, []).append(file)
    for kind, names in by_kind.items():
        for file in dict.fromkeys([names[0], names[-1]]):
            yield kind, file


def cases(
    folder: pathlib.Path, name: str, seed: int, most: int | None = MOST
) -> list[Case]:
    """Changes of a subject's files, in an order that the seed decides: all of them, or
    so many at most."""
    subject, files = SUBJECTS[name], made(folder, name)
    chance = random.Random(f"{seed} {name}")
    strangers = _strangers(chance, folder)
    found: list[Case] = []
    for kind, file in _chosen(subject, files):
        whole = files[file]
        if form := subject.forms.get(kind):
            found += _said(form, file, whole, chance)
        others = {
            f"{kind} {other}": files[other]
            for other, own in files.items()
            if other != file and subject.kind(other) == kind
        }
        some = (
            dict(chance.sample(sorted(strangers.items()), min(6, len(strangers))))
            | _pickles()
        )
        every = bytewise(whole, others | some, chance, 4)
        found += [Case(file, own) for own in every if _is_harm(kind, own)]
    chance.shuffle(found)
    return found[:most]


def random_case(folder: pathlib.Path, name: str, chance: random.Random) -> Case:
    """Bytes of some file of a subject, damaged at random."""
    subject, files = SUBJECTS[name], made(folder, name)
    file = chance.choice([own for own in files if subject.kind(own) is not None])
    others = {own: content for own, content in files.items() if own != file}
    others = dict(list(others.items())[:6]) | _pickles()
    kind = subject.kind(file) or "file"
    every = bytewise(files[file], others, chance, 2)
    return Case(file, chance.choice([own for own in every if _is_harm(kind, own)]))


def _is_harm(kind: str, harm: Harm) -> bool:
    """Whether something is harm; a pipe of settings is what shells give for `<(...)`,
    and is waited for."""
    return (kind, harm.name) != ("--config", "a pipe")


# What becomes of them


@contextlib.contextmanager
def _in_time() -> Iterator[None]:
    """Inside, what takes too long is ended."""

    def end(*_: object) -> None:
        raise HangError(f"it did not end within {PATIENCE} s")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Player:
    """Plays cases of one subject.

    Args:
      name: of the subject.
      files: sound ones.
      place: an empty folder.
    """

    def __init__(self, name: str, files: Contents, place: pathlib.Path) -> None:
        self.subject, self.files, self.place = SUBJECTS[name], files, place
        self.name = name
        put(place / "sound", files)
        self.expected: Use = self.subject.use(place / "sound")

    def play(self, case: Case, tally: Tally) -> None:
        """Do the harm, look what becomes of it, and count that."""
        kind = self.subject.kind(case.file) or "file"
        label = f"{self.name}: {case.file}: {case.harm.name}"
        folder = self.place / "case"
        put(folder, self.files)
        case.harm.do(folder / case.file)
        harmed = _bytes(folder / case.file)
        try:
            with _in_time(), contextlib.chdir(self.place):
                end, why = self._end(kind, case, folder, harmed)
        finally:
            shutil.rmtree(folder)
        if (self.place / MARK).exists():
            (self.place / MARK).unlink()
            end, why = "ran", "a pickle"
        tally.add(end, kind, why, case=label)

    def _end(
        self, kind: str, case: Case, folder: pathlib.Path, harmed: bytes | None
    ) -> tuple[str, str]:
        subject, expected = self.subject, self.expected
        try:
            found = subject.use(folder)
        except (ValueError, OSError) as error:
            return ("refused", "") if str(error).strip() else ("traceback", repr(error))
        except AssertionError as error:
            return "silent", f"what is shown is wrong {error}"
        except Exception as error:  # Of any other kind: nobody has expected it.
            return "traceback", repr(error)
        if found.result != expected.result:
            if found.said:
                return "refused", ""  # It is said that something is not used.
            if case.is_signed:
                return "taken", "a digest made anew is no signature"
            is_sound = case.harm.name.startswith("a sound")
            named = [kind, *([f"{kind}, exchanged"] if is_sound else ())]
            named += [f"{kind}, gone"] if case.harm.name == "missing" else []
            for of in named:
                if of in subject.taken:
                    return "taken", subject.taken[of]
            return "silent", f"{found.result!r:.200} is not {expected.result!r:.200}"
        is_repaired = _bytes(folder / case.file) == self.files[case.file]
        if found.computed > expected.computed or found.said or is_repaired:
            return "again", ""
        if harmed is None and found.computed >= expected.computed:
            return "again", ""  # It was gone, and is not needed or was made anew.
        if kind in subject.harmless:
            return "harmless", subject.harmless[kind]
        if case.is_signed:
            return "harmless", "what is read is as it was"
        return "silent", "nobody noticed, and no reason is known why that is right"


def _bytes(path: pathlib.Path) -> bytes | None:
    """Of a plain file."""
    return path.read_bytes() if path.is_file() and not path.is_symlink() else None


def _believing(path: pathlib.Path) -> Kept | None:
    """`kept.read` that asks for no digest."""
    try:
        arrays = read_npz(path, io.BytesIO(read_file(path)))
        return Kept(arrays, json.loads(str(arrays.pop("about"))))
    except (OSError, ValueError, KeyError):
        return None


def _unsealing(whole: bytes) -> dict[str, Any] | None:
    """`unsealed` that asks for no digest."""
    try:
        found = json.loads(whole)
        del found["digest"]
        return found
    except (ValueError, KeyError, TypeError):
        return None


class Control(NamedTuple):
    """Something that is taken away.

    name: of the subject that must notice.
    of: what the changes have in their names for which that is so.
    take: takes it away.
    """

    name: str
    of: str
    take: Callable[[pytest.MonkeyPatch], object]


CONTROLS: Mapping[str, Control] = {
    "no digest of arrays": Control(
        "store", ".code ", lambda patch: patch.setattr(kept, "read", _believing)
    ),
    "no digest of outcomes": Control(
        "outcome",
        "num_trials ",
        lambda patch: patch.setattr(records, "unsealed", _unsealing),
    ),
    "no place of blocks": Control(
        "store",
        "cells/",
        lambda patch: (
            patch.setattr(store, "is_at", lambda *_: True),
            patch.setattr(store.Store, "_is_of", lambda *_: True),
        ),
    ),
}


def _played(
    name: str, folder: pathlib.Path, some: Callable[[], list[Case]], harm: str
) -> Tally:
    """Cases of a subject, in a room where something is taken away."""
    tally, files = Tally(), made(folder, name)
    chosen = some()
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        player = Player(name, files, pathlib.Path(place))
        if harm:
            chosen = [own for own in chosen if CONTROLS[harm].of in own.harm.name]
            CONTROLS[harm].take(patch)
        for case in chosen:
            player.play(case, tally)
            if harm and tally.num_bad:
                break
    return tally


def sizes(folder: pathlib.Path, seed: int) -> dict[str, int]:
    """How many changes each subject has."""
    return {name: len(cases(folder, name, seed)) for name in SUBJECTS}


def play_changes(
    folder: pathlib.Path, seed: int, name: str, units: range, harm: str = ""
) -> Tally:
    """Some of the changes of a subject's files."""
    some = lambda: cases(folder, name, seed)[units.start : units.stop]
    if harm:  # As many as are needed to see it.
        some = lambda: cases(folder, name, seed, most=None)
    return _played(name, folder, some, harm)


def play_damage(
    folder: pathlib.Path, seed: int, name: str, units: range, harm: str = ""
) -> Tally:
    """Damage at random to a subject's files."""

    def some() -> list[Case]:
        made(folder, name)
        return [
            random_case(folder, name, random.Random(f"{seed} {name} {unit}"))
            for unit in units
        ]

    return _played(name, folder, some, harm)
