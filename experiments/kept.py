"""What takes long to ask of the sources, kept beside their bytecode.

It holds as long as the bytecode does: until a source has another size or time.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import zlib
from collections.abc import Callable
from typing import Any

import cfljax

FOLDER = pathlib.Path(__file__).parent


def remembered(name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, as JSON has it; from the file of this name if that is of
    these very sources. Where nothing can be kept, it is made again."""
    file, stamp = path(name), sources()
    try:
        found = json.loads(file.read_text("utf-8"))
        if found["sources"] == stamp:
            return found["value"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # There is none, or it is none.
    text = json.dumps({"sources": stamp, "value": make()}, indent=1)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    with contextlib.suppress(OSError):
        file.parent.mkdir(exist_ok=True)
        partial.write_text(f"{text}\n", "utf-8")
        partial.replace(file)
    return json.loads(text)["value"]


def path(name: str) -> pathlib.Path:
    """Where it is kept."""
    own = pathlib.Path(importlib.util.cache_from_source(__file__))
    return own.with_name(f"{name}.json")


def sources() -> str:
    """Sizes and times of the experiments' sources and the library's, in short."""
    assert cfljax.__file__ is not None
    found = []
    for root in (FOLDER, pathlib.Path(cfljax.__file__).parent):
        for folder, _, names in sorted(os.walk(root)):
            for name in sorted(names):
                if name.endswith(".py"):
                    status = os.stat(os.path.join(folder, name))
                    found.append((name, status.st_size, status.st_mtime_ns))
    return f"{len(found)}-{zlib.crc32(repr(found).encode()):x}"
