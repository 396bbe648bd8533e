"""What may become of a file: each place of its JSON in other forms, and its bytes."""

import copy
import json
import os
import pathlib
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PAGE = 4096
_TWICE = "\ue000"  # Marks a name that is to stand twice; in no document.


def containers(document: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where objects and lists stand, the document's own place left out."""
    if path and isinstance(document, dict | list):
        yield path
    parts: Any = ()
    if isinstance(document, dict):
        parts = document.items()
    elif isinstance(document, list):
        parts = enumerate(document)
    for name, part in parts:
        yield from containers(part, (*path, name))


def leaves(document: Any, path: tuple = ()) -> Iterator[tuple]:
    """Where something stands that has no parts."""
    parts: Any = ()
    if isinstance(document, dict):
        parts = document.items()
    elif isinstance(document, list):
        parts = enumerate(document)
    if not parts and path:
        yield path
    for name, part in parts:
        yield from leaves(part, (*path, name))


def _values(value: Any) -> Iterator[tuple[str, Any]]:
    """What may stand in the place of a value."""
    if isinstance(value, bool):
        yield from (("turned", not value), ("a text", str(value)), ("null", None))
    elif isinstance(value, int | float):
        yield from (("one more", value + 1), ("one less", value - 1))
        yield from (("times ten", value * 10 or 7), ("a text", str(value)))
        yield from (("not a number", float("nan")), ("null", None), ("a list", [value]))
        yield "another type", value + 0.5 if isinstance(value, int) else int(value == 0)
    elif isinstance(value, str):
        yield from (("empty", ""), ("longer", value + "x"), ("a number", 7))
        yield from (("another", "9" + value[1:]), ("null", None), ("a list", [value]))
    elif value is None:
        yield from (("a number", 1), ("a text", "x"), ("an object", {}))
    elif isinstance(value, list):
        yield from (("null", None), ("a number", 5), ("an object", {}))
        yield from (("shortened", value[:-1]), ("doubled", value + value))
    else:
        yield from (("null", None), ("a number", 5), ("a list", list(value)))
        yield "empty", {}


def edits(document: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Every single change of a document: what it is, and the text in JSON."""
    before = json.dumps(document)
    for path in [*leaves(document), *containers(document)]:
        for name, text in _edits_at(document, path):
            if text != before:
                yield f"{'.'.join(map(str, path))} {name}", text


def _edits_at(document: dict[str, Any], path: tuple) -> Iterator[tuple[str, str]]:
    *above, last = path

    def changed(change: Callable[[Any], object]) -> str:
        own = copy.deepcopy(document)
        parent: Any = own
        for name in above:
            parent = parent[name]
        change(parent)
        return json.dumps(own)

    parent: Any = document
    for name in above:
        parent = parent[name]
    value = parent[last]
    for name, new in _values(value):
        yield name, changed(lambda parent, new=new: parent.__setitem__(last, new))
    yield "deleted", changed(lambda parent: parent.__delitem__(last))
    if isinstance(parent, dict):
        rename = lambda parent: parent.__setitem__(f"{last}x", parent.pop(last))
        yield "renamed", changed(rename)
        twice = lambda parent: parent.__setitem__(_TWICE, 5)
        text = changed(twice).replace(json.dumps(_TWICE), json.dumps(last))
        yield "twice, the second a number", text


class Harm(NamedTuple):
    """Something done to a file: what it is called, and how it is done."""

    name: str
    do: Callable[[pathlib.Path], object]


def written(name: str, content: bytes) -> Harm:
    """Other content in the place of a file's."""
    return Harm(name, lambda path: path.write_bytes(content))


def _replaced(make: Callable[[pathlib.Path], object]) -> Callable:
    """Something else than a file in its place."""

    def do(path: pathlib.Path) -> None:
        path.unlink()
        make(path)

    return do


def bytewise(
    whole: bytes, others: dict[str, bytes], chance: random.Random, number: int
) -> Iterator[Harm]:
    """Harms to the bytes of a file, so many of each kind that has a place.

    Args:
      whole: the file.
      others: sound files of other names or kinds, by what they are.
      chance: of the places.
      number: of places for each kind.
    """
    for _ in range(number):
        at = chance.randrange(len(whole)) if whole else 0
        yield written(f"cut at byte {at}", whole[:at])
        if whole:
            bit = 1 << chance.randrange(8)
            flipped = bytearray(whole)
            flipped[at] ^= bit
            yield written(f"bit {bit} of byte {at} flipped", bytes(flipped))
        begin = at - at % PAGE
        zeros = bytes(len(whole[begin : begin + PAGE]))
        if zeros != whole[begin : begin + PAGE]:
            zeroed = whole[:begin] + zeros + whole[begin + PAGE :]
            yield written(f"page from {begin} zero", zeroed)
        junk = bytes(chance.randrange(256) for _ in range(chance.randrange(1, 60)))
        yield written("junk behind it", whole + junk)
        yield written("junk before it", junk + whole)
        yield written("junk", junk)
    yield written("empty", b"")
    yield written("all zero", bytes(len(whole) or 40))
    yield written("itself twice", whole + whole)
    yield written("deep", b"[" * 100_000)
    for name, content in others.items():
        if content != whole:
            yield written(f"a sound {name}", content)
    yield Harm("missing", lambda path: path.unlink())
    yield Harm("a folder", _replaced(lambda path: path.mkdir()))
    yield Harm("a link to nothing", _replaced(lambda path: path.symlink_to("nothing")))
    yield Harm("a link to itself", _replaced(lambda path: path.symlink_to(path.name)))
    yield Harm("a pipe", _replaced(lambda path: os.mkfifo(path)))
