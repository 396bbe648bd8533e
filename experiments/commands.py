"""Commands that make results, as one would type them."""

import dataclasses
import pathlib
import shlex
from collections.abc import Sequence
from typing import Any


def typed(asked: Sequence[str], usual: Any, config: Any, *further: str) -> str:
    """A command that makes what a configuration says.

    Args:
      asked: what follows `python -m experiments`, preset included.
      usual: configuration of the preset.
      config: another one, whose flags are named where it differs.
      further: flags that are no field of it.
    """
    words = ["python", "-m", "experiments", *asked]
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value != getattr(usual, field.name):
            words += _flag(field.name, value)
    return shlex.join([*words, *further])


def _flag(name: str, value: Any) -> list[str]:
    """A field as the command line takes it, but no path of this machine."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return [f"--{flag}" if value else f"--no-{flag}"]
    values = value if isinstance(value, tuple) else (value,)
    shown = ["FOLDER" if isinstance(v, pathlib.PurePath) else str(v) for v in values]
    return [f"--{flag}", *shown]
