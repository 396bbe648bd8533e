"""Commands that make results, as one would type them, and where the results go."""

import dataclasses
import hashlib
import pathlib
import re
import shlex
from collections.abc import Sequence
from typing import Any

from experiments.registry import Entry

_LONGEST_NAME = 120  # Of a folder.


def typed(asked: Sequence[str], usual: Any, config: Any, *further: str) -> str:
    """A command that makes what a configuration says.

    Args:
      asked: what follows `python -m experiments`, preset included.
      usual: configuration of the preset.
      config: another one, whose flags are named where it differs.
      further: flags that are no field of it.
    """
    words = ["python", "-m", "experiments", *asked]
    for name, value in changes(usual, config).items():
        words += _flag(name, value)
    return shlex.join([*words, *further])


def _flag(name: str, value: Any) -> list[str]:
    """A field as the command line takes it, but no path of this machine."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, tuple) else (value,)
    return [f"--{flag}", *map(_without_folder, values)]


def _without_folder(value: Any) -> str:
    """A value as it is typed; of a file that is named from the root its name alone."""
    if isinstance(value, pathlib.PurePath):
        return "FOLDER"
    is_file = isinstance(value, str) and pathlib.PurePath(value).is_absolute()
    return pathlib.PurePath(value).name if is_file else str(value)


def usual_folder(entry: Entry, preset: str, config: Any) -> pathlib.Path:
    """Where results go unless a folder is given: a configuration that is not the
    preset's has one of its own, named by what differs."""
    changed = changes(entry.load().preset(preset), config)
    parts = [
        preset,
        *(f"{name}={_in_a_name(value)}" for name, value in changed.items()),
    ]
    name = "-".join(parts)
    if len(name) > _LONGEST_NAME:
        digest = hashlib.sha256(name.encode()).hexdigest()[:12]
        name = f"{name[: _LONGEST_NAME - 13]}-{digest}"
    return pathlib.Path("results", entry.id, name)


def changes(usual: Any, config: Any) -> dict[str, Any]:
    """The fields that a configuration has other than another one."""
    names = [field.name for field in dataclasses.fields(config)]
    own = {name: getattr(config, name) for name in names}
    return {n: value for n, value in own.items() if value != getattr(usual, n)}


def _in_a_name(value: Any) -> str:
    """A value as files may be called."""
    values = value if isinstance(value, tuple) else (value,)
    return re.sub(r"[^\w.+-]", "_", "+".join(map(str, values)))
