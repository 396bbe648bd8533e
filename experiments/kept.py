"""What takes long to ask of the sources, kept beside their bytecode.

It holds as long as the bytecode does: until a source has another size or time.
"""

import importlib.util
import os
import pathlib
import zlib
from collections.abc import Callable
from typing import Any

import cfljax
from cfljax import base

FOLDER = pathlib.Path(__file__).parent


def remembered(name: str, make: Callable[[], Any]) -> Any:
    """What `make` returns, as JSON has it; from the file of this name if that is whole
    and of these very sources. Where nothing can be kept, it is made again."""
    return base.remembered(path(name), sources(), make)


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
