"""Ranges: what numbers of a name may be, said once for whoever takes them.

An argument, a field of a configuration and a flag of one name mean the same, and are
held to the same range: `ranged` does that for functions, `check_fields` for
configurations, `fault_of` for words of a command line. Narrower rules, which depend on
other arguments, stay where these are.
"""

import dataclasses
import functools
import inspect
import math
import numbers
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

LARGEST = 1e18  # Whose square float32 still holds.


class Range(NamedTuple):
    """The numbers between two ends.

    allowed: the range in words, behind "must".
    low: its lower end, itself allowed unless `above`.
    high: its upper end, itself allowed unless `below`.
    is_whole: whether they must be whole numbers.
    """

    allowed: str
    low: float = -LARGEST
    high: float = LARGEST
    above: bool = False
    below: bool = False
    is_whole: bool = False

    def fault(self, value: Any) -> str:
        """What is wrong with a value, behind its name; empty if nothing is.

        Args:
          value: a number, or an array of numbers that must all be in the range. Values
            that a transformation hides are taken as they are.
        """
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            return self._fault_of_array(value)
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            return f"must be a {self._kind}, got {value!r}."
        if self.is_whole and not isinstance(value, numbers.Integral):
            return f"must be a whole number, got {value!r}."
        return "" if self._has(value) else self._text(value)

    def _fault_of_array(self, value: Any) -> str:
        import numpy as np  # Not above: command lines that only ask need no arrays.

        from cfljax.base.checks import is_traced

        if is_traced(value):
            return ""
        found = np.asarray(value)
        if found.dtype.kind not in ("iu" if self.is_whole else "iuf"):
            what = f"a {self._kind}" if not found.ndim else f"{self._kind}s"
            return f"must be {what}, got {found.dtype}."
        wrong = np.ravel(found)[~np.ravel(self._has(found.astype(np.float64)))]
        return self._text(wrong[0].item()) if wrong.size else ""

    @property
    def _kind(self) -> str:
        return "whole number" if self.is_whole else "number"

    def _has(self, value: Any) -> Any:
        """Whether the range has a number, or each of an array."""
        over = value > self.low if self.above else value >= self.low
        under = value < self.high if self.below else value <= self.high
        return over & under  # Neither of a NaN.

    def _text(self, value: Any) -> str:
        if not math.isfinite(value) and math.isfinite(self.high):
            return f"must be finite, got {value}."
        if value > LARGEST == self.high:
            return f"must be at most {LARGEST:g}, got {value}."
        return f"must {self.allowed}, got {value}."


COUNT = Range("be at least 1", 1, 2**53, is_whole=True)
WHOLE = Range("be at least 0", 0, 2**53, is_whole=True)
SEED = Range("be in [0, 2^32)", 0, 2**32, below=True, is_whole=True)
REAL = Range("be finite")
POSITIVE = Range("be positive", 0, above=True)
NOT_NEGATIVE = Range("not be negative", 0)
UNBOUNDED = Range("not be negative", 0, math.inf)
SHARE = Range("be in [0, 1]", 0, 1)
COSINE = Range("be in [-1, 1]", -1, 1)
MOMENTUM = Range("be in [0, 1)", 0, 1, below=True)
PART = Range("be in (0, 1]", 0, 1, above=True)
# Below, quantiles of binomial distributions are no numbers any more.
RATE = Range("be in [1e-15, 1)", 1e-15, 1, below=True)

# The longest of a name's endings counts: `first_step_size` is a `step_size`.
RANGES: dict[str, Range] = {
    "agreement": SHARE,
    "batch_size": WHOLE,
    "begin": WHOLE,
    "blocks_per_cell": COUNT,
    "box": POSITIVE,
    "cells": COUNT,
    "cells_per_worker": COUNT,
    "channels": COUNT,
    "chunk": COUNT,
    "chunks": COUNT,
    "clients": COUNT,
    "clients_a": COUNT,
    "clients_b": COUNT,
    "clients_c": COUNT,
    "clients_d": COUNT,
    "clients_per_chunk": COUNT,
    "clients_per_cluster": COUNT,
    "clip_norm": POSITIVE,
    "cluster_sizes": COUNT,
    "concentration": POSITIVE,
    "decay": PART,
    "delta": RATE,
    "deviation": NOT_NEGATIVE,
    "difference": POSITIVE,
    "epochs": WHOLE,
    "error_rate": RATE,
    "escape_clusters": COUNT,
    "every": UNBOUNDED,
    "factor": NOT_NEGATIVE,
    "failure": RATE,
    "features": COUNT,
    "few_participants": COUNT,
    "first_mean": REAL,
    "first_range": NOT_NEGATIVE,
    "first_split": WHOLE,
    "first_steps": WHOLE,
    "gradient_weight": SHARE,
    "held_out": RATE,
    "hidden": COUNT,
    "image": COUNT,
    "incongruence": NOT_NEGATIVE,
    "init_scale": NOT_NEGATIVE,
    "knn_weight": SHARE,
    "knn_weights": SHARE,
    "largest_share": POSITIVE,
    "latent": COUNT,
    "limit": SHARE,
    "long_rounds": WHOLE,
    "margin": RATE,
    "margins": RATE,
    "max_clusters": COUNT,
    "min_cluster_size": COUNT,
    "min_members": COUNT,
    "min_samples": WHOLE,
    "minutes": POSITIVE,
    "missing": MOMENTUM,
    "models": COUNT,
    "momentum": MOMENTUM,
    "newcomers": WHOLE,
    "noise": NOT_NEGATIVE,
    "noise_multiplier": NOT_NEGATIVE,
    "norm": NOT_NEGATIVE,
    "operations_per_second": POSITIVE,
    "participants": COUNT,
    "participation": PART,
    "participations": PART,
    "patience": WHOLE,
    "penalty": NOT_NEGATIVE,
    "percentile": WHOLE,
    "period": COUNT,
    "pretrain_scale": COUNT,
    "pretraining_rounds": WHOLE,
    "printed_clusters": COUNT,
    "privacy_budget": POSITIVE,
    "proximal": NOT_NEGATIVE,
    "quantile": SHARE,
    "radius": UNBOUNDED,
    "random_clusters": COUNT,
    "rate": SHARE,
    "released": WHOLE,
    "repeats": COUNT,
    "restarts": COUNT,
    "reused_trials": WHOLE,
    "rho": POSITIVE,
    "rounds": COUNT,
    "rounds_between": COUNT,
    "runs": COUNT,
    "samples": COUNT,
    "samples_ab": COUNT,
    "scale": NOT_NEGATIVE,
    "second_range": NOT_NEGATIVE,
    "seconds": POSITIVE,
    "seed": SEED,
    "separated_clusters": COUNT,
    "separation": NOT_NEGATIVE,
    "share": NOT_NEGATIVE,
    "shares": NOT_NEGATIVE,
    "similarity": COSINE,
    "smallest_weight": NOT_NEGATIVE,
    "spread": POSITIVE,
    "square": COUNT,
    "squares": COUNT,
    "start": NOT_NEGATIVE,
    "start_distance": NOT_NEGATIVE,
    "step": POSITIVE,
    "step_ratio": POSITIVE,
    "step_size": NOT_NEGATIVE,
    "step_sizes": NOT_NEGATIVE,
    "steps": WHOLE,
    "target": NOT_NEGATIVE,
    "test_clients": WHOLE,
    "tests": WHOLE,
    "threshold": UNBOUNDED,
    "tolerance": NOT_NEGATIVE,
    "trials": COUNT,
    "warm_up_rounds": WHOLE,
}


def range_of(name: str) -> Range | None:
    """The range of a name; None where nothing is said of it."""
    words, is_number = name.split("_"), name.startswith("num_")
    for start in range(len(words)):
        found = RANGES.get("_".join(words[start:]))
        if found is not None and (found.is_whole or not is_number):
            return found
    return COUNT if is_number else None


def fault_of(name: str, value: Any) -> str:
    """What is wrong with a value of this name, behind the name; empty if nothing is.

    Args:
      name: of an argument or a field.
      value: None and functions are taken as they are; of a list or tuple each entry
        counts.
    """
    known = range_of(name)
    return "" if known is None else _fault(known, value)


def _fault(allowed: Range, value: Any) -> str:
    if value is None or callable(value):
        return ""
    if isinstance(value, (list, tuple)):
        return next(filter(None, (_fault(allowed, own) for own in value)), "")
    return allowed.fault(value)


def check_fields(config: Any) -> None:
    """Raises ValueError, naming the first field of a dataclass whose numbers are out of
    the range of their name."""
    for field in dataclasses.fields(config):
        if not _takes_numbers(field.type):
            continue
        if fault := fault_of(field.name, getattr(config, field.name)):
            raise ValueError(f"`{field.name}` {fault}")


def ranged(
    function: Callable[Arguments, Result], **other: Range
) -> Callable[Arguments, Result]:
    """The function, which raises ValueError where an argument that takes numbers is out
    of the range of its name, or of one in `other`, or None where it must be one."""
    ranges, names, lists, optional = {}, [], set(), set()
    for name, parameter in inspect.signature(function).parameters.items():
        allowed = other.get(name, range_of(name))
        names.append(name)
        hints = typing.get_args(parameter.annotation)
        if parameter.default is None or type(None) in hints:
            optional.add(name)
        if allowed is not None and _takes_numbers(parameter.annotation):
            ranges[name] = allowed
            if _takes_several(parameter.annotation):
                lists.add(name)

    @functools.wraps(function)
    def checked(*arguments: Arguments.args, **named: Arguments.kwargs) -> Result:
        given = dict(zip(names, arguments, strict=False)) | named
        for name in ranges.keys() & given:
            if given[name] is None and name not in optional:
                raise ValueError(f"`{name}` must be a number, got None.")
            if isinstance(given[name], (list, tuple)) and name not in lists:
                raise ValueError(f"`{name}` must be a number, got {given[name]!r}.")
            if fault := _fault(ranges[name], given[name]):
                raise ValueError(f"`{name}` {fault}")
        return function(*arguments, **named)

    return checked


def _takes_numbers(hint: Any) -> bool:
    """Whether a type is that of numbers, or has such members or entries."""
    if hint in (int, float):
        return True
    if typing.get_origin(hint) in (typing.Literal, Callable):
        return False
    return any(map(_takes_numbers, typing.get_args(hint)))


def _takes_several(hint: Any) -> bool:
    """Whether a type is that of a sequence, or has such a member."""
    if typing.get_origin(hint) in (tuple, list, Sequence):
        return True
    return any(map(_takes_several, typing.get_args(hint)))
