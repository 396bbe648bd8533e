"""Verdicts: what our numbers say of a published one, by one rule for all tables.

A number differs if it is further from the published one than two pooled standard
deviations and than a least difference, see `LEAST`. Only a run of the paper's own size
with three seeds or more may agree or differ: of fewer seeds the spread is unknown, and
a reduced run says by how much it differs and no more. What was run on other data, or
with other settings that are no reduction, is not compared at all. Not a number never
agrees.

The pooled deviation is the root of the mean of both variances; ours divide by the
number of seeds, as `numpy.std` and CLoVE's do. Where a paper gives no deviation, ours
stands for both.
"""

import csv
import dataclasses
import enum
import fnmatch
import functools
import math
import pathlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Num

from experiments.published import NUM_SEEDS, Published

FEWEST_SEEDS = 3  # Of a spread.
FINDINGS = pathlib.Path(__file__).with_name("ledger") / "findings.csv"


class Measure(NamedTuple):
    """What a number measures."""

    least: float  # difference up to which two numbers are the same, in its units
    digits: int  # behind the point, for people


_ACCURACY = Measure(0.5, 1)
_INDEX = Measure(0.005, 2)
_LOSS = Measure(0.0005, 4)
_ROUNDS = Measure(0.5, 1)
# By the papers' names.
MEASURES: Mapping[str, Measure] = {
    "test accuracy %": _ACCURACY,
    "ARI": _INDEX,
    "final ARI": _INDEX,
    "ARI in 10 rounds": _INDEX,
    "reconstruction loss": _LOSS,
    "test loss": _LOSS,
    "first round with ARI>=0.9": _ROUNDS,
    "round of stability": _ROUNDS,
}
_ROUNDING = 1e-9  # Of differences, in the units of a measure.


class Kind(enum.Enum):
    """What can be said."""

    AGREES = "agrees"
    EXPLAINED = "differs (tested cause)"
    OPEN = "differs (open)"
    UNKNOWN = "spread unknown"
    REDUCED = "reduced"
    OTHER = "not comparable"
    STALE = "stale"  # of a trial that means something else by now
    MISSING = "not run"
    NOTHING = "nothing published"


DIFFERS = (Kind.EXPLAINED, Kind.OPEN)


_COUNTS = ("_rounds", "_participants")  # Ends of names that do not begin with `num_`.


class Change(NamedTuple):
    """A field that a run has other than the paper."""

    name: str
    ours: Any
    paper: Any

    @property
    def is_less(self) -> bool:
        """Whether it makes the run smaller: less of something that is counted."""
        is_count = self.name.startswith("num_") or self.name.endswith(_COUNTS)
        return is_count and self.ours < self.paper

    def __str__(self) -> str:
        name = self.name.removeprefix("num_").replace("_", " ")
        if self.is_less:
            return f"{self.ours} of {self.paper} {name}"
        return f"{name} {self.ours} instead of {self.paper}"


@dataclasses.dataclass(frozen=True)
class Size:
    """How large a run is, beside the paper's; the paper's own size by default."""

    changes: tuple[Change, ...] = ()  # what it has other than the paper
    other_data: str = ""  # what its samples are, where they are not the paper's
    # Which of the forms it has, where paper and public code differ; "" as described.
    form: str = ""
    is_released: bool = False  # whether that is what public code runs

    @property
    def is_paper(self) -> bool:
        """Whether it is the paper's."""
        return not self.changes and not self.other_data

    @property
    def is_reduced(self) -> bool:
        """Whether it is a smaller run of the same kind; it may be tested on more."""
        trained = [c for c in self.changes if not c.name.startswith("num_test_")]
        is_less = any(c.is_less for c in self.changes)
        return is_less and all(c.is_less for c in trained) and not self.other_data

    def __str__(self) -> str:
        parts = ["paper"] if self.is_paper else []
        parts += [self.other_data] if self.other_data else []
        return ", ".join([*parts, *map(str, self.changes), *filter(None, [self.form])])


def changes(trial: Any, paper: Mapping[str, Any]) -> tuple[Change, ...]:
    """The fields of a trial that are not what the paper has."""
    every = (Change(name, getattr(trial, name), own) for name, own in paper.items())
    return tuple(change for change in every if change.ours != change.paper)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """What our numbers say of a published one."""

    kind: Kind
    reason: str = ""  # the cause, what is reduced, or why nothing can be said
    seeds: str = ""  # of a reduced run: how many of the paper's, if it has fewer
    is_far: bool = False  # of a reduced run: whether it differs all the same
    mean: float | None = None  # ours; None if there is none, or it never happened
    std: float | None = None  # divided by the number of seeds; None below three
    num_seeds: int = 0
    difference: float | None = None  # ours less the paper's
    deviations: float | None = None  # the same in pooled standard deviations
    digits: int = 1  # of the difference, for people

    @property
    def head(self) -> str:
        """The verdict without the difference."""
        if self.kind is Kind.EXPLAINED:
            return f"differs (tested cause: {self.reason})"
        if self.kind is Kind.OPEN:
            return self.kind.value
        reason = f" ({self.reason})" if self.reason else ""
        return f"{self.kind.value}{reason}{', differs' if self.is_far else ''}"

    @property
    def brief(self) -> str:
        """The same beside a column that says how large a run is."""
        if self.kind is Kind.OTHER:
            return self.kind.value
        if self.kind is not Kind.REDUCED:
            return self.head
        seeds = f" ({self.seeds})" if self.seeds else ""
        return f"{self.kind.value}{seeds}{', differs' if self.is_far else ''}"

    @property
    def shown_difference(self) -> str:
        """The difference for people; "" if there is none."""
        if self.difference is None:
            return ""
        return f"{self.difference:+.{self.digits}f}"

    @property
    def text(self) -> str:
        """All of it, for people, beside a column of sizes."""
        if self.kind is Kind.AGREES or not self.shown_difference:
            return self.brief
        return f"{self.brief}{' by' if self.is_far else ','} {self.shown_difference}"

    def explained(self, cause: str) -> "Verdict":
        """The same, now that the cause is known."""
        return dataclasses.replace(self, kind=Kind.EXPLAINED, reason=cause)


NOT_RUN = Verdict(Kind.MISSING)


def judge(
    ours: Num[np.ndarray, " seeds"], paper: Published | None, size: Size
) -> Verdict:
    """What the numbers of some seeds say of a published one.

    Args:
      ours: one number for each seed. Of rounds infinity stands for never; elsewhere
        it is a run that diverged.
      paper: the published number; None if the paper has none of this kind.
      size: of the run.
    """
    if not ours.size:
        return NOT_RUN
    measure = MEASURES[paper.metric] if paper else _ACCURACY
    own = np.asarray(ours, float)
    happened = own[own != math.inf] if measure is _ROUNDS else own
    with np.errstate(invalid="ignore"):  # Of runs that diverged.
        mean = float(happened.mean()) if happened.size else None
        std = float(happened.std()) if happened.size >= FEWEST_SEEDS else None
    found = Verdict(
        Kind.NOTHING, mean=mean, std=std, num_seeds=own.size, digits=measure.digits
    )
    if size.other_data or (size.changes and not size.is_reduced):
        why = size.other_data or _listed(size)
        return dataclasses.replace(found, kind=Kind.OTHER, reason=why)
    if paper is None:
        return found
    if mean is not None and paper.mean is not None:
        found = dataclasses.replace(found, difference=mean - paper.mean)
    is_enough, wanted = own.size >= FEWEST_SEEDS, NUM_SEEDS[paper.paper]
    if size.is_reduced or (is_enough and own.size < wanted):
        seeds = [Change("num_seeds", own.size, wanted)] if own.size < wanted else []
        size = dataclasses.replace(size, changes=(*size.changes, *seeds))
        # The paper's spread for both; where it gives none, ours; or nothing is far.
        spread = next((s for s in (paper.std, std) if s is not None), math.inf)
        is_far = _is_far(mean, paper, spread)
        return dataclasses.replace(
            found,
            kind=Kind.REDUCED,
            reason=_listed(size),
            seeds=", ".join(map(str, seeds)),
            is_far=is_far,
        )
    if not is_enough or (std is None and found.difference is not None):
        return dataclasses.replace(found, kind=Kind.UNKNOWN)
    if 0 < happened.size < own.size and paper.mean is not None:
        count = f"of {happened.size} of {own.size} seeds, never of the others"
        return dataclasses.replace(found, kind=Kind.UNKNOWN, reason=count)
    pooled = _pooled(std, paper.std)
    if pooled and found.difference is not None:
        found = dataclasses.replace(found, deviations=found.difference / pooled)
    if not _is_far(mean, paper, pooled):
        return dataclasses.replace(found, kind=Kind.AGREES)
    # What public code does is no cause of a difference that it has as well.
    causes = () if size.is_released else findings(paper, mean, "cause")
    found = dataclasses.replace(found, kind=Kind.OPEN)
    return found.explained(causes[0].finding) if causes else found


def _listed(size: Size) -> str:
    return ", ".join(map(str, size.changes))


def _pooled(std: float | None, other: float | None) -> float:
    """One deviation for two; the one that is there, if the other is not."""
    there = [value for value in (std, other) if value is not None]
    return math.sqrt(sum(value**2 for value in there) / len(there)) if there else 0.0


def _is_far(mean: float | None, paper: Published, spread: float) -> bool:
    """Whether a mean differs from the published one; None stands for never."""
    if mean is None or paper.mean is None:
        return (mean is None) != (paper.mean is None)
    least = MEASURES[paper.metric].least + _ROUNDING
    # What is not a number is never near.
    return not abs(mean - paper.mean) <= max(2 * spread, least)


def together(verdicts: Mapping[str, Verdict]) -> str:
    """Verdicts by what they are on, for one cell of a table that has a column of sizes:
    each is said once.
    """
    heads: dict[str, list[str]] = {}
    for name, verdict in verdicts.items():
        shown = "" if verdict.kind is Kind.AGREES else verdict.shown_difference
        heads.setdefault(verdict.brief, []).append(f"{name} {shown}".strip())
    if len(heads) == 1 and all(names == list(verdicts) for names in heads.values()):
        return next(iter(heads))
    return "; ".join(f"{head}: {', '.join(names)}" for head, names in heads.items())


# What runs found of differences.


class Finding(NamedTuple):
    """What a run found of the difference of some numbers from the published ones."""

    key: str  # of `Published`; `*` stands for anything
    kind: str  # "cause", or "tried" of what explains nothing
    # Our number whose difference has the cause: another one needs another test. Of
    # what was tried it is empty.
    ours: str
    finding: str
    command: str  # of the run


KINDS_OF_FINDINGS = ("cause", "tried")


@functools.cache
def read_findings(file: pathlib.Path) -> tuple[Finding, ...]:
    """The findings of a file.

    Raises:
      ValueError: if one is of no known kind, has no command that tested it, or is a
        cause of no number.
    """
    with file.open(encoding="utf-8", newline="") as opened:
        every = tuple(Finding(**row) for row in csv.DictReader(opened))
    for own in every:
        texts = own.key, own.finding, own.command
        is_known = own.kind in KINDS_OF_FINDINGS
        if not all(texts) or not is_known or bool(own.ours) != (own.kind == "cause"):
            raise ValueError(
                f"`{file.name}` must say of each finding whether it is a cause, and of "
                "which number of ours, or was tried, and which command tested it, got "
                f"{', '.join(map(repr, own))}."
            )
    return every


def findings(paper: Published, mean: float | None, kind: str) -> tuple[Finding, ...]:
    """What was found of a published number and ours, of one kind, in the order of the
    file."""

    def is_ours(own: Finding) -> bool:
        if kind == "tried":
            return True
        least = MEASURES[paper.metric].least + _ROUNDING
        return mean is not None and abs(mean - float(own.ours)) <= least

    return tuple(
        own
        for own in read_findings(FINDINGS)
        if own.kind == kind and fnmatch.fnmatchcase(paper.key, own.key) and is_ours(own)
    )
