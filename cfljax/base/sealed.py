"""Sealed: JSON in files that carry a digest of themselves, and are all right or no use.

A file is one object, whose last member `digest` is the SHA-256 of every byte before it.
Whoever edits, cuts or empties it breaks the seal; that it belongs where it lies is told
by what it says of itself, which a reader compares.
"""

import contextlib
import hashlib
import json
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from cfljax.base.durable import replacing

_DIGEST = "digest"


def sealed(document: Mapping[str, Any]) -> str:
    """A document in JSON, in one line, with its digest.

    Args:
      document: with at least one name, and none called `digest`.
    """
    assert document and _DIGEST not in document
    body = json.dumps(document).removesuffix("}")
    return body + _seal(body.encode())


def unsealed(whole: bytes) -> dict[str, Any] | None:
    """The document in the bytes of a file, without its digest; None if they are not
    what `sealed` gave."""
    size = len(_seal(b""))
    body = whole[:-size]
    if whole[-size:] != _seal(body).encode():
        return None
    try:
        found = json.loads(whole)
        del found[_DIGEST]
    except (ValueError, TypeError, KeyError, RecursionError):
        return None  # Sealed by somebody else.
    return found


def _seal(body: bytes) -> str:
    """How a file ends whose bytes before that are `body`."""
    return f', "{_DIGEST}": "{hashlib.sha256(body).hexdigest()}"}}\n'


def write_sealed(path: pathlib.Path, document: Mapping[str, Any]) -> None:
    """Write or replace a file, which is then on the disk; see `sealed`.

    Raises:
      OSError: if the disk refuses; an older file of this name then stays.
    """
    with replacing(path) as partial:
        partial.write_text(sealed(document), encoding="utf-8", newline="\n")


def remembered(path: pathlib.Path, sources: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, as JSON has it; from the file if that was written under this
    name from these very sources. Where nothing can be kept, it is made again.

    Args:
      path: of the file, beside the bytecode of what it is made from.
      sources: what tells the sources from others.
      make: what to do where nothing is kept.
    """
    own = [path.name, sources]
    with contextlib.suppress(OSError):
        # Of a pipe nobody may ever write the end.
        found = unsealed(path.read_bytes()) if path.is_file() else None
        if found is not None and found.get("made") == own and "value" in found:
            return found["value"]
    text = sealed({"made": own, "value": make()})
    # What can be made again need not outlive a loss of power.
    with contextlib.suppress(OSError), replacing(path, is_durable=False) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")
    return json.loads(text)["value"]
