"""Titles of figures: the paper's name stands on the paper's settings alone."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfljax import engine

# Fields that decide how something is computed or stated, not what.
_HOW = frozenset(
    {
        "clients_per_chunk",
        "decide",
        "error_rate",
        "law",
        "num_resamples",
        "seed",
        "shortcuts",
    }
)
_MOST = 5  # Settings that a title names.
_NUMBERS = {2: "two", 3: "three", 4: "four", 5: "five", 8: "eight"}


def title(
    place: str,
    subject: str,
    config: Any,
    paper: Any,
    *,
    stated: Sequence[str] = (),
) -> str:
    """What is drawn, under the name of the paper's figure or table if the settings are
    the paper's, and else with the settings that are not.

    Args:
      place: in the paper, e.g. "IFCA, Figure 4".
      subject: what is drawn, in words that hold for any configuration.
      config: what was run.
      paper: the configuration of the paper.
      stated: fields of which the subject says the value.
    """
    own = differences(config, paper)
    if not own:
        return f"{place}: {subject}"
    text = [_said(name, value) for name, value in own.items() if name not in stated]
    more = [f"{len(text) - _MOST} more"] if len(text) > _MOST else []
    listed = ", ".join([*text[:_MOST], *more])
    settings = f"own settings: {listed}" if listed else "own settings"
    is_word = subject[1:2].isalpha()
    return f"{subject[:1].upper() if is_word else subject[:1]}{subject[1:]}\n{settings}"


def title_each(
    place: str, subjects: Mapping[str, str], config: Any, paper: Any
) -> dict[str, str]:
    """The titles of several figures of one place, by the figures' names."""
    return {name: title(place, one, config, paper) for name, one in subjects.items()}


def differences(config: Any, paper: Any) -> dict[str, Any]:
    """The fields by which a configuration is not the paper's. Some of several values
    are the paper's still, and so is one with more trials."""
    found = {}
    for field in dataclasses.fields(config):
        own, theirs = getattr(config, field.name), getattr(paper, field.name)
        if field.name not in _HOW and not _is_within(field.name, own, theirs):
            found[field.name] = own
    return found


def _is_within(name: str, own: Any, theirs: Any) -> bool:
    """Whether a value of the field is among the paper's."""
    if name == "num_trials":
        least, most = np.atleast_1d(own), np.atleast_1d(theirs)
        return least.shape == most.shape and bool(np.all(least >= most))
    if isinstance(own, tuple) and isinstance(theirs, tuple):
        return set(own) <= set(theirs)
    return own == theirs


def clusters(number: int) -> str:
    """Number of clusters, in words if there are few."""
    return f"{_NUMBERS.get(number, number)} cluster{'s' * (number != 1)}"


def values_of(config: Any, *names: str) -> str:
    """Symbols and values of those fields that have one value: "m = 100, n = 100"."""
    own: Mapping[str, Any] = {name: getattr(config, name) for name in names}
    single = {n: v for n, v in own.items() if not isinstance(v, tuple) or len(v) == 1}
    return ", ".join(_said(name, value) for name, value in single.items())


def _said(name: str, value: Any) -> str:
    """A field and its value, or how many it has."""
    every = value if isinstance(value, tuple) else (value,)
    texts = [_text(entry) for entry in every]
    shown = ", ".join(texts) if len(texts) <= 3 else f"{len(texts)} values"
    found = engine.quantity(name)
    words = found.symbol or found.long_name.removeprefix("num ")
    if words.endswith("s") and len(texts) == 1 and texts[0].isdecimal():
        return f"{shown} {words}"
    return f"{words} = {shown}"


def _text(value: Any) -> str:
    if isinstance(value, pathlib.PurePath):
        return "FOLDER"
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "all"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")
