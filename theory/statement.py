"""What the registry knows about one claim of a paper."""

import dataclasses
import zlib
from collections.abc import Callable, Mapping
from typing import Literal, TypeVar

import numpy as np

from theory.verdict import Status, Verdict

__all__ = ["Preset", "Statement"]

Value = TypeVar("Value")


@dataclasses.dataclass(frozen=True)
class Preset:
    """How hard to try, and with which random numbers.

    Attributes:
      name: "quick" (seconds on two cores) or "full" (minutes).
      seed: at least 0; every check draws from streams of its own below it.
    """

    name: Literal["quick", "full"] = "quick"
    seed: int = 0

    def __post_init__(self):
        if self.name not in ("quick", "full"):
            raise ValueError(f'`name` must be "quick" or "full", got {self.name!r}.')
        if self.seed < 0:
            raise ValueError(f"`seed` must be at least 0, got {self.seed}.")

    def choose(self, *, quick: Value, full: Value) -> Value:
        """The value for this preset."""
        return quick if self.name == "quick" else full

    def generator(self, name: str, *indices: int) -> np.random.Generator:
        """A stream of random numbers that no other name or indices share."""
        branch = (zlib.crc32(name.encode()), *indices)
        return np.random.default_rng(
            np.random.SeedSequence(self.seed, spawn_key=branch)
        )


@dataclasses.dataclass(frozen=True)
class Statement:
    """One claim, where it stands, and the two functions that put it to the test.

    Attributes:
      id: dotted name that starts with the paper's, such as "ifca.lem1.bound". A
        corrected version of a false statement is a row of its own, `<id>.corrected`.
      paper: short name of the paper, such as "ifca".
      place: where the claim is made, such as "Lemma 1".
      text: the claim, in a line.
      preconditions: what the claim assumes, and the check therefore respects.
      constants: explicit values of the constants the paper leaves unnamed.
      expected: the verdict that the registry stands for.
      check: measures and judges; its verdict must be `expected`.
      control: the same check of a claim known to be false. Its verdict must be
        VIOLATED, or else the check could not have seen a violation.
      note: what is wrong, loose or remarkable about the claim, if anything.
    """

    id: str
    paper: str
    place: str
    text: str
    check: Callable[[Preset], Verdict]
    control: Callable[[Preset], Verdict]
    expected: Status = Status.HOLDS
    preconditions: tuple[str, ...] = ()
    constants: Mapping[str, float] = dataclasses.field(default_factory=dict)
    note: str = ""

    def __post_init__(self):
        if not self.id.startswith(f"{self.paper}."):
            raise ValueError(
                f"`id` must start with the paper's name and a dot, got {self.id!r} for "
                f"paper {self.paper!r}."
            )
