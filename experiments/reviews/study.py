"""What the reviewers' studies share: their course, cells that are kept, and intervals.

A study computes cells (mappings of plain settings) into arrays, keeps every cell on
disk, makes one table of them, and from the table's rows, and nothing else, decisions,
figures and at most five sentences of outcome, the reviewer's question included.
"""

import dataclasses
import functools
import itertools
import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import jax
import numpy as np
from jaxtyping import Bool, Float, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import intervals, report
from cfljax.engine import Bar, Claims, Journal, describe_run, kept, note_runs
from experiments.options import Options
from experiments.study import (
    Contents,
    Row,
    Rows,
    column,
    curve,
    fields,
    settings,
    write,
)

Cell = Mapping[str, Any]
Arrays = Mapping[str, np.ndarray]
Results = Sequence[Arrays]  # One for each cell.
Verdict = Literal["yes", "no", "undecided"]
Verdicts = Mapping[str, Verdict]  # What each rule came to.

PREDICTED = "predicted, in the colour of what was measured"


@dataclasses.dataclass(frozen=True)
class Study:
    """One question as the functions of its module, which `main` runs in their order."""

    id: str  # of the experiment, e.g. "reviews.k"
    revision: int  # raised whenever a cell of the same settings changes its meaning
    # Of a configuration: plain data, all that `compute` may depend on, seed included.
    cells: Callable[[Any], list[Row]]
    # One cell; gives the same arrays again for the same cell.
    compute: Callable[..., Any]
    # The table, from the configuration, the cells and their arrays.
    rows: Callable[[Any, Any, Any], list[Row]]
    # What each rule of the header came to, by name, from configuration and rows.
    decide: Callable[..., Verdicts]
    # At most four sentences that answer the question, from configuration, rows and
    # decisions: the answer, the numbers that carry it, and what it does not say.
    answer: Callable[[Any, Any, Verdicts], str]
    # By file name, from configuration and rows.
    figures: Callable[[Any, Any], dict[str, Figure]]

    def outcome(self, config: Any, table: Rows, decisions: Verdicts) -> str:
        """The question, which is the first line of the module, and its answer."""
        question, *_ = str(sys.modules[self.decide.__module__].__doc__).splitlines()
        return f"{question}\n\n{self.answer(config, table, decisions)}\n"

    def measure(
        self, config: Any, cells: Sequence[Cell], options: Options
    ) -> list[dict[str, np.ndarray]]:
        """Arrays of every cell, in order, computed where `options.out/cells` does not
        keep them in a file each; runs are listed in `provenance.json` there.
        """
        folder = options.out / "cells"
        keys = [[self.id, self.revision, dict(cell)] for cell in cells]
        found = [kept.recalled(folder, key) for key in keys]
        missing = [index for index, arrays in enumerate(found) if arrays is None]
        if missing:
            bar = Bar(self.id, visible=options.progress)
            with Claims(folder) as claims, bar:
                bar.expect(len(missing))
                journal = Journal(folder, claims)
                journal.start({**describe_run(), "experiment": self.id})
                started = time.perf_counter()
                for index in missing:
                    once = functools.partial(self.compute, cells[index])
                    found[index] = kept.remembered(folder, keys[index], once)
                    bar.advance(1)
                seconds = round(time.perf_counter() - started, 2)
                journal.finish(seconds=seconds, blocks=len(missing))
        note_runs(folder)
        return [arrays for arrays in found if arrays is not None]

    def main(self, config: Any, options: Options) -> dict[str, Any]:
        """Compute what is not kept yet; write table, figures, outcome, configuration.
        The summary has headline (outcome and rules), files, decisions, seconds, rows.
        """
        started = time.perf_counter()
        cells = self.cells(config)
        table = self.rows(config, cells, self.measure(config, cells, options))
        decisions = self.decide(config, table)
        outcome = self.outcome(config, table, decisions)
        rules = " ".join(f"{rule}: {found}." for rule, found in decisions.items())
        contents: Contents = {
            "table.csv": table,
            "table.md": f"Rules: {rules}\n\n{markdown(table)}",
            "outcome.md": outcome,
            "config.json": settings(config),
            **self.figures(config, table),
        }
        files = write(options.out, contents)
        seconds = round(time.perf_counter() - started, 2)
        return {
            "experiment": self.id,
            "headline": f"{outcome}\n{self.id}, {seconds} s. Rules: {rules}",
            "files": files,
            "decisions": dict(decisions),
            "seconds": seconds,
            "rows": table,
        }


def generator(seed: int, *indices: int) -> np.random.Generator:
    """NumPy's generator of one cell, independent between different indices."""
    return np.random.default_rng([seed, *indices])


def key(seed: int, *indices: int) -> PRNGKeyArray:
    """JAX's key of one cell, independent between different indices."""
    return jax.random.key(int(generator(seed, *indices).integers(2**31)))


def grid(same: Row, **axes: Iterable[Any]) -> list[Row]:
    """All combinations of some settings, beside those that are the same everywhere;
    the last one changes fastest."""
    values = itertools.product(*axes.values())
    return [same | dict(zip(axes, place, strict=True)) for place in values]


def stacked(number: int, one: Callable[[int], Row]) -> dict[str, np.ndarray]:
    """The arrays of each of so many trials, over a last axis of trials."""
    found = [one(trial) for trial in range(number)]
    return {name: np.stack([own[name] for own in found], axis=-1) for name in found[0]}


def check(
    config: Any,
    *,
    at_least: Mapping[int | float, Sequence[str]],
    different: Sequence[str] = (),
    several: Sequence[str] = (),
) -> None:
    """Raises ValueError, naming the field, where a configuration makes no sense.

    Its `error_rate` must be in (0, 1), fields `at_least` so large and finite (tuples
    entry by entry), tuples that are `different` or `several` of one or two values, none
    twice.
    """

    def need(holds: bool, name: str, what: str) -> None:
        if not holds:
            raise ValueError(f"`{name}` must {what}, got {getattr(config, name)}.")

    for least, names in ((2, several), (1, different)):
        for name, values in fields(config, *names).items():
            fine = least <= len(values) == len(set(values))
            need(fine, name, f"hold different values, at least {least}")
    for bound, names in at_least.items():
        for name, value in fields(config, *names).items():
            entries = value if isinstance(value, tuple) else (value,)
            fine = all(math.isfinite(entry) and entry >= bound for entry in entries)
            need(fine, name, f"be finite and at least {bound:g}")
    need(0 < config.error_rate < 1, "error_rate", "be in (0, 1)")


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A number and its interval, in one unit; prints as "0.272 [0.268, 0.276]", with
    more digits where an interval is too narrow to be seen."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        digits, width = 3, self.high - self.low
        if 0 < width < 0.01 * abs(self.value):
            digits = min(6, 1 - math.floor(math.log10(width / abs(self.value))))
        low, value, high = (
            f"{end:.{digits}g}" for end in (self.low, self.value, self.high)
        )
        return f"{value} [{low}, {high}]"

    def within(self, low: float, high: float) -> Verdict:
        """Whether the truth lies in a band: "yes" if the whole interval does, "no" if
        none of it does, else, and where it is not a number, "undecided"."""
        if low <= self.low and self.high <= high:
            return "yes"
        return "no" if self.high < low or high < self.low else "undecided"

    def above(self, other: "Estimate | float") -> Verdict:
        """Whether it is above another number, by intervals that are apart."""
        if not isinstance(other, Estimate):
            other = Estimate(other, other, other)
        if self.low > other.high:
            return "yes"
        return "no" if self.high < other.low else "undecided"

    def mapped(self, rising: Callable[[np.ndarray], np.ndarray]) -> "Estimate":
        """The estimate of a rising function of the number."""
        return Estimate(*rising(np.array([self.value, self.low, self.high])).tolist())

    def over(self, number: float) -> "Estimate":
        """The number over one that is known, above 0."""
        return self.mapped(lambda ends: ends / number)

    def root(self) -> "Estimate":
        """Of a root-mean-square, from that of the mean square."""
        return self.mapped(lambda ends: np.sqrt(np.maximum(ends, 0)))


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Estimates from independent trials, whose intervals each miss at one rate."""

    error_rate: float

    def mean(self, values: Float[np.ndarray, " trials"]) -> Estimate:
        """The mean with Student's interval; at least 2 values."""
        low, high = intervals.student(values, error_rate=self.error_rate)
        return Estimate(float(np.mean(values)), float(low), float(high))

    def geometric(self, logs: Float[np.ndarray, " trials"]) -> Estimate:
        """The geometric mean, from logarithms; not a number where one is infinite."""
        with np.errstate(invalid="ignore"):
            return self.mean(logs).mapped(np.exp)

    def ratio(
        self, upper: Float[np.ndarray, " trials"], lower: Float[np.ndarray, " trials"]
    ) -> Estimate:
        """The ratio of two means from paired trials, in Student's interval of (upper -
        r lower) / mean(lower) (delta method: nominal, good if `lower` is well known).
        """
        value = float(np.mean(upper) / np.mean(lower))
        rest = self.mean((upper - value * lower) / np.mean(lower))
        return Estimate(value, value + rest.low, value + rest.high)

    def slope(
        self, x: Float[np.ndarray, " points"], y: Float[np.ndarray, "trials points"]
    ) -> Estimate:
        """Least-squares slope of the mean over trials; at least 2 trials."""
        low, high = intervals.slope(x, y, error_rate=self.error_rate)
        middle = float(np.polyfit(x, y.mean(axis=0), 1)[0])
        return Estimate(middle, float(low), float(high))

    def chance(self, found: int, trials: int) -> Estimate:
        """A probability with its exact binomial interval."""
        low, high = intervals.clopper_pearson(found, trials, error_rate=self.error_rate)
        return Estimate(found / trials, float(low), float(high))

    def share(self, hits: Bool[np.ndarray, " trials"]) -> Estimate:
        """The same, of what happened in each trial."""
        return self.chance(int(np.sum(hits)), hits.size)


def jointly(config: Any, number: int) -> Intervals:
    """So many intervals that all hold at the configuration's error rate."""
    return Intervals(intervals.divide(config.error_rate, number))


def all_of(verdicts: Iterable[Verdict]) -> Verdict:
    """One "no" makes it "no"; else one "undecided", or none at all, "undecided"."""
    found = set(verdicts) or {"undecided"}
    return "no" if "no" in found else "undecided" if "undecided" in found else "yes"


def at(table: Rows, **wanted: Any) -> list[Mapping[str, Any]]:
    """The rows of these settings."""
    return [row for row in table if all(row.get(k) == v for k, v in wanted.items())]


def columns(**estimates: Estimate) -> Row:
    """The table's columns NAME, NAME_low and NAME_high of each estimate."""
    row: Row = {}
    for name, one in estimates.items():
        row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
    return row


def read(row: Mapping[str, Any], name: str) -> Estimate:
    """The estimate that `columns` put into a row."""
    return Estimate(row[name], row[f"{name}_low"], row[f"{name}_high"])


def within(rows: Rows, name: str, low: float, high: float) -> Verdict:
    """Whether a column's estimates lie in a band in all of the rows."""
    return all_of(read(row, name).within(low, high) for row in rows)


def curves(
    rows: Rows, by: str, labels: Mapping[Any, str], x: str, y: str
) -> list[report.Curve]:
    """A curve for each of some settings, with its name."""
    return [curve(at(rows, **{by: value}), labels[value], x, y) for value in labels]


def predicted(
    rows: Rows, like: str, x: str, y: str, label: str = PREDICTED
) -> report.Curve:
    """The same without intervals, of what was predicted for the curve `like`."""
    return report.Curve(label, column(rows, x), column(rows, y), like=like)


def panel(
    curves: Sequence[report.Curve],
    x_label: str,
    y_label: str,
    title: str = "",
    log: Literal["", "x", "y", "xy"] = "",
    **options: Any,
) -> report.CurvePanel:
    """A panel of curves with a title, `log` the axes on which equal ratios look the
    same; `options` are further fields of the panel."""
    scales: dict[str, Any] = {f"log_{axis}": True for axis in log}
    return report.CurvePanel(curves, x_label, y_label, title=title, **scales, **options)


def legend(error_rate: float) -> str:
    """What the intervals of a figure are."""
    return f"intervals hold jointly at {1 - error_rate:.0%}"


# Sentences and tables for people.


def told(verdict: Verdict, *, yes: str, no: str, undecided: str) -> str:
    """What to say of a rule, by what it came to."""
    return {"yes": yes, "no": no, "undecided": undecided}[verdict]


def farthest(estimates: Iterable[Estimate]) -> str:
    """The ratio that is farthest from 1, with its interval, of those that are known."""
    known = [estimate for estimate in estimates if math.isfinite(estimate.value)]
    if not known:
        return "not measured"
    return str(max(known, key=lambda estimate: abs(estimate.value - 1)))


def listed(parts: Sequence[Any]) -> str:
    """Several things in one sentence: "a, b and c"."""
    *rest, last = map(str, parts)
    return f"{', '.join(rest)} and {last}" if rest else last


def markdown(table: Rows) -> str:
    """The rows, a table for each kind of them, with intervals beside their numbers."""
    kinds: dict[Any, list[Row]] = {}
    for row in table:
        ends = {f"{name}_{end}" for name in row for end in ("low", "high")}
        whole = {name: read(row, name) for name in row if f"{name}_low" in row}
        kept = {name: value for name, value in row.items() if name not in ends}
        shown = kept | {name: str(estimate) for name, estimate in whole.items()}
        kinds.setdefault(row.get("kind"), []).append(shown)
    return "\n".join(map(report.markdown, kinds.values()))
