"""Where does IFCA succeed, and where do its theorems say that it does?

Command:   python -m experiments run ifca.phase --preset paper; or ifca.phase_start;
           any two of separation, samples, clients, features and start as axes, the
           others fixed: --axes clients separation --num-samples 50
           --first-range 4 4000 --second-range 0.2 20
Quick:     the same with --preset quick: a third of the cells a side, 100 trials
Measured:  paper, on two cores of an AMD EPYC beside other work, at a load of 9 to 12:
           11 and 18 minutes, and 26 for the start, of which 490 s of processor time in
           the one that counted it: four minutes of two free cores. Separation and
           samples: exact laws tell the outcome in 99.8 % of the cells; of those where
           most runs succeed the explicit form promises it in 50 %, the corrected one
           in 31 %, the printed one in 28 %. At Delta = 2.1 sigma half of the runs
           succeed from n' = 10 on; the forms ask for 17, 65 and 95 times as many. Start
           and samples: at n' = 90 half of the runs succeed from 2.7 Delta; no form
           admits more than Delta/2
Shown:     the share of successful runs on fresh folds (Section 5, two folds of n'
           samples of each client in each of T rounds) over a grid, exactly in law;
           beside it, coarser, on the same n' samples in all rounds (Section 6.1). Lines
           are the boundaries of `phase_theory`: what Theorem 1 promises as printed, as
           corrected and with explicit constants, and what exact laws say.
Success:   mean distance |theta_j - theta_j*| of at most 0.6 sigma after T rounds, the
           paper's criterion, and every client at its own cluster's model in the last
           one: pooled models alone would do where Delta/2 is below 0.6 sigma. A run
           that diverged, or swapped its clusters, has failed, and is counted.
Rules:     promises are kept iff in no cell the interval of the success is below the
           probability that the explicit or the corrected form promises there.
           Exact laws tell the outcome iff in 95 % of all cells they tell whether most
           runs succeed. Re-use changes little iff in 95 % of its cells most runs end
           as most do on fresh folds.
"""

import dataclasses
import functools
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import report
from experiments.checks import configuration
from experiments.ifca import phase_runs, phase_theory
from experiments.ifca.phase_figure import Diagram, Line, draw
from experiments.ifca.phase_runs import Setting
from experiments.options import Options
from experiments.reviews import study
from experiments.study import settings as as_json
from experiments.study import trial_of, write

EXPERIMENTS = {
    "ifca.phase": {
        "title": "phase diagram: separation and samples, success and what is promised"
    },
    "ifca.phase_start": {
        "title": "phase diagram: the start and samples, success and what is promised"
    },
}
Name = Literal["separation", "samples", "clients", "features", "start"]
REVISION = 1  # To be raised whenever a cell of the same settings changes its meaning.
AGREEING = 0.95  # Of the cells, from which on two verdicts are called the same.
LEAST, MOST = 1e-6, 1e12  # Of a separation or a start, and of all ranges.
FINE = 240  # Points a side at which predictions are evaluated.
TOGETHER = 40  # Settings on re-used data that are run at once, at most.


class Axis(NamedTuple):
    """What can be varied."""

    field: str  # of the configuration and of a setting
    label: str
    words: str  # for it in a title
    symbol: str  # of its value in a title
    range: tuple[float, float]  # usual ends
    is_whole: bool = True  # whether values are whole numbers


AXES: Mapping[Name, Axis] = {
    "separation": Axis(
        "separation",
        "separation over noise  Δ/σ",
        "separation",
        "separation Δ = {:g} σ",
        (0.2, 20.0),
        False,
    ),
    "samples": Axis(
        "num_samples",
        "samples of a client in a fold  n′",
        "samples",
        "n′ = {:g} samples",
        (1.0, 10_000.0),
    ),
    "clients": Axis(
        "num_clients",
        "clients  m",
        "clients",
        "m = {:g} clients",
        (4.0, 4000.0),
    ),
    "features": Axis(
        "num_features",
        "features  d",
        "features",
        "d = {:g} features",
        (6.0, 2000.0),
    ),
    "start": Axis(
        "start",
        "distance of the start over separation  |θ⁰ − θ*|/Δ",
        "distance of the start",
        "start {:g} Δ from the truths",
        (0.05, 20.0),
        False,
    ),
}


@configuration
class Config:
    """Everything that the diagram depends on. One field, one flag."""

    axes: tuple[Name, Name]  # Across and upwards, two different ones.
    num_cells: int  # Of each axis.
    num_trials: int  # Of each cell, on fresh folds.
    reused_cells: int  # Of each axis, on re-used data.
    reused_trials: int  # Of each of these cells; 0 for no such panel.
    first_range: tuple[float, float] | None = None
    """Ends of the first axis, above 0, in equal ratios; the usual ones if None."""
    second_range: tuple[float, float] | None = None  # The same of the second axis.
    separation: float = 2.0  # Delta / sigma, where it is no axis.
    num_samples: int = 100  # n' of a client in a fold, where it is no axis.
    num_clients: int = 100  # m, where it is no axis; a multiple of the clusters.
    num_features: int = 100  # d, where it is no axis; at least the clusters.
    start: float = 0.25
    """|theta_j - theta_j*| / Delta at the start, where it is no axis; Theorem 1 assumes
    less than 1/2."""
    num_clusters: int = 2  # k, of equal sizes.
    step: float = 0.375  # c1 = gamma p of Theorem 1.
    num_rounds: int = 12  # T.
    seed: int = 0  # Of all trials.
    error_rate: float = 0.05  # Of the intervals of all cells together.

    def __post_init__(self) -> None:
        study.check(
            self,
            at_least={
                0: ("start", "reused_trials", "seed"),
                1: ("num_samples", "num_trials", "num_rounds"),
                2: ("num_cells", "reused_cells", "num_clusters", "num_clients"),
            },
        )
        if self.axes[0] == self.axes[1]:
            raise ValueError(f"`axes` must be two different ones, got {self.axes}.")
        if not (math.isfinite(self.step) and self.step > 0):
            raise ValueError(f"`step` must be finite and above 0, got {self.step}.")
        if not LEAST <= self.separation <= MOST:
            raise ValueError(
                f"`separation` must be between {LEAST:g} and {MOST:g}, got "
                f"{self.separation}."
            )
        names = "first_range", "second_range"
        for name, axis, ends in zip(names, self.axes, self.ranges, strict=True):
            counts = {"samples": 1, "clients": self.num_clusters}
            counts["features"] = self.num_clusters
            least = counts.get(axis, LEAST)
            if not least <= ends[0] < ends[1] <= MOST:
                raise ValueError(
                    f"`{name}` of {axis} must be two numbers between {least:g} and "
                    f"{MOST:g}, the smaller first, got {ends[0]:g} and {ends[1]:g}."
                )
        if self.num_clients % self.num_clusters:
            raise ValueError(
                "`num_clients` must be a multiple of `num_clusters`, got "
                f"{self.num_clients} and {self.num_clusters}."
            )
        least = self.at(*(self.values(place, self.num_cells)[0] for place in (0, 1)))
        if least.num_features < self.num_clusters:
            raise ValueError(
                "there must be as many features as clusters at least, got "
                f"{least.num_features} and {self.num_clusters}."
            )
        most = self.at(*(self.values(place, self.reused_cells)[-1] for place in (0, 1)))
        if self.reused_trials and most.numbers > phase_runs.MOST_NUMBERS:
            raise ValueError(
                f"a data set of {most.num_clients} clients, {most.num_samples} samples "
                f"and {most.num_features} features takes more than 1 GiB; narrow the "
                "ranges, or leave re-used data out with `--reused-trials 0`."
            )

    @property
    def ranges(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """Ends of both axes."""
        first, second = (AXES[name].range for name in self.axes)
        return self.first_range or first, self.second_range or second

    def values(self, place: int, number: int) -> list[Any]:
        """So many values of an axis, in equal ratios; whole numbers, and multiples of k
        for clients, as near as different ones can be."""
        axis, ends = AXES[self.axes[place]], self.ranges[place]
        exact = np.geomspace(*ends, number)
        if not axis.is_whole:
            return exact.tolist()
        unit = self.num_clusters if axis.field == "num_clients" else 1
        found = [max(round(exact[0] / unit), 1)]
        for value in exact[1:]:
            found.append(max(round(value / unit), found[-1] + 1))
        if found[-1] > round(ends[1] / unit):
            raise ValueError(
                f"{number} different {self.axes[place]} do not fit between "
                f"{ends[0]:g} and {ends[1]:g}; widen the range or ask for fewer cells."
            )
        return [value * unit for value in found]

    def at(self, first: Any, second: Any) -> Setting:
        """The setting at a point of the diagram."""
        fields = [AXES[name].field for name in self.axes]
        own = trial_of(Setting, self)
        return dataclasses.replace(
            own, **dict(zip(fields, (first, second), strict=True))
        )

    def grid(self, number: int) -> list[list[Setting]]:
        """Settings of so many cells a side, by the second axis, then the first."""
        first, second = self.values(0, number), self.values(1, number)
        return [[self.at(x, y) for x in first] for y in second]


def cells(config: Config) -> list[study.Row]:
    """What is computed at once: rows of the diagram on fresh folds, and settings of
    equal sizes on re-used data."""
    found = []
    for row in config.grid(config.num_cells):
        found.append(_cell("fresh", row, config.num_trials, config.seed))
    if not config.reused_trials:
        return found
    by_size: dict[Any, list[Setting]] = {}
    for setting in itertools.chain(*config.grid(config.reused_cells)):
        by_size.setdefault(setting.sizes, []).append(setting)
    for own in by_size.values():
        for first in range(0, len(own), TOGETHER):
            few = own[first : first + TOGETHER]
            found.append(_cell("reused", few, config.reused_trials, config.seed))
    return found


def _cell(kind: str, own: Sequence[Setting], number: int, seed: int) -> study.Row:
    settings = [dataclasses.asdict(setting) for setting in own]
    return {"kind": kind, "settings": settings, "trials": number, "seed": seed}


def compute(cell: study.Cell, *, chunk: int | None = None) -> study.Arrays:
    """Outcomes of all trials, `[settings, trials]`."""
    settings = [Setting(**fields) for fields in cell["settings"]]
    how: dict[str, Any] = {"num_trials": cell["trials"], "seed": cell["seed"]}
    if cell["kind"] == "fresh":
        return {"outcomes": phase_runs.fresh(settings, chunk=chunk, **how)}
    return {"outcomes": phase_runs.reused(settings, **how)}


# Tables


def rows(
    config: Config, cells: Sequence[study.Cell], results: study.Results
) -> list[study.Row]:
    """One row of the table for each cell, fresh folds first, with what is promised of
    them and what exact laws predict."""
    found = []
    for kind, number in (("fresh", config.num_cells), ("reused", config.reused_cells)):
        by_setting: dict[Setting, np.ndarray] = {}
        for cell, arrays in zip(cells, results, strict=True):
            if cell["kind"] == kind:
                own = (Setting(**fields) for fields in cell["settings"])
                by_setting |= dict(zip(own, arrays["outcomes"], strict=True))
        if by_setting:
            settings = list(itertools.chain(*config.grid(number)))
            own = [by_setting[setting] for setting in settings]
            found += _rows(config, kind, settings, own)
    return found


def _rows(
    config: Config, kind: str, settings: Sequence[Setting], found: Sequence[np.ndarray]
) -> list[study.Row]:
    intervals = study.jointly(config, len(settings))
    promises: dict[str, Any] = {
        form: phase_theory.promised(PREDICTIONS[form](settings))
        for form in ("corrected", "explicit")
    }
    printed = phase_theory.score(phase_theory.printed(settings)) >= 0
    promises["printed"] = printed.astype(int).tolist()
    if kind == "reused":  # Of which no theorem speaks.
        promises = {form: [math.nan] * len(settings) for form in promises}
    is_predicted = _exact(settings, kind) >= 0
    table = []
    for place, (setting, outcomes) in enumerate(zip(settings, found, strict=True)):
        success = phase_runs.succeeded(outcomes)
        share = intervals.share(success)
        count = lambda bit, own=outcomes: int(np.sum(own & bit > 0))
        table.append(
            {"data": kind}
            | {name: _short(getattr(setting, AXES[name].field)) for name in config.axes}
            | {"trials": len(outcomes), "successes": int(np.sum(success))}
            | {"low": _short(share.low, 4), "high": _short(share.high, 4)}
            | {"near": count(phase_runs.NEAR), "recovered": count(phase_runs.RECOVERED)}
            | {"relabelled": count(phase_runs.RELABELLED)}
            | {"diverged": count(phase_runs.DIVERGED)}
            | {form: _known(own[place]) for form, own in promises.items()}
            | {"exact": int(is_predicted[place])}
        )
    return table


def _known(value: Any) -> int | float | None:
    """A number, or nothing, with four digits."""
    return _short(value, 4) if math.isfinite(value) else None


def _short(value: Any, digits: int = 6) -> int | float:
    """A number with the digits that are worth their place."""
    return value if isinstance(value, int) else float(f"{value:.{digits}g}")


PREDICTIONS: Mapping[str, Callable[[Sequence[Setting]], phase_theory.Scores]] = {
    "printed": phase_theory.printed,
    "corrected": phase_theory.corrected,
    "explicit": phase_theory.explicit,
    "floor": phase_theory.floor,
    "clusters": phase_theory.clusters,
    "start": phase_theory.start,
    "least squares": phase_theory.least_squares,
}
# Exact laws by data; of misassignment on re-used data there is none but this.
EXACT = {
    "fresh": ("floor", "clusters", "start"),
    "reused": ("least squares", "clusters", "start"),
}


def _exact(settings: Sequence[Setting], kind: str) -> phase_theory.Points:
    """The score of all exact laws."""
    found = [phase_theory.score(PREDICTIONS[name](settings)) for name in EXACT[kind]]
    return np.min(found, axis=0)


def shares(table: study.Rows, kind: str, number: int) -> Float[np.ndarray, "up across"]:
    """Shares of successful runs over the diagram."""
    own = [row["successes"] / row["trials"] for row in table if row["data"] == kind]
    return np.reshape(own, (number, number))


def crossing(
    values: Sequence[int | float], height: Float[np.ndarray, " points"]
) -> float:
    """Where a curve crosses 0, the last time, between points in equal ratios; NaN if it
    never does."""
    side = np.asarray(height) >= 0
    (change,) = np.nonzero(side[1:] != side[:-1])
    if not len(change):
        return math.nan
    at = int(change[-1])
    low, high = (float(height[place]) for place in (at, at + 1))
    first, second = np.log(values[at]), np.log(values[at + 1])
    return float(np.exp(first + (second - first) * low / (low - high)))


SOURCES = ("runs", "exact", "explicit", "corrected", "printed", "reused")


def boundaries(config: Config, table: study.Rows) -> list[study.Row]:
    """Where each source has its boundary along the first axis, at some values of the
    second, and in units of the runs' own."""
    second = config.axes[1]
    fine = np.geomspace(*config.ranges[0], FINE).tolist()
    coarse = {"runs": config.num_cells, "reused": config.reused_cells}
    if not config.reused_trials:
        del coarse["reused"]
    found = []
    for up in _some(config.values(1, config.num_cells)):
        line = [config.at(across, up) for across in fine]
        row: study.Row = {second: up}
        for source in SOURCES:
            if source in coarse:
                row[source] = _measured(config, table, source, coarse[source], up)
            elif source == "exact":
                row[source] = crossing(fine, _exact(line, "fresh"))
            elif source != "reused":
                scores = PREDICTIONS[source](line)
                row[source] = crossing(fine, phase_theory.score(scores))
        ratios = {
            f"{source} / runs": row[source] / row["runs"]
            for source in SOURCES[1:]
            if source in row
        }
        found.append({name: _known(own) for name, own in (row | ratios).items()})
    return found


def _some(values: Sequence[Any]) -> list[Any]:
    """At most seven, evenly chosen, the ends among them."""
    places = np.linspace(0, len(values) - 1, min(7, len(values))).round().astype(int)
    return [values[place] for place in places]


def _measured(
    config: Config, table: study.Rows, source: str, number: int, up: Any
) -> float:
    """Where half of the runs succeed, between the two rows of the grid beside `up`."""
    kind = "fresh" if source == "runs" else "reused"
    across, ups = config.values(0, number), np.log(config.values(1, number))
    share = shares(table, kind, number)
    line = [np.interp(np.log(up), ups, share[:, place]) for place in range(number)]
    return crossing(across, np.array(line) - 0.5)


# What came out


def decide(config: Config, table: study.Rows) -> dict[str, study.Verdict]:
    """The rules of the header."""
    fresh = study.at(table, data="fresh")
    promises = [max(row["corrected"], row["explicit"]) for row in fresh]
    at_most = [row["high"] for row in fresh]
    kept: list[study.Verdict] = [
        "yes" if high >= own else "no"
        for high, own in zip(at_most, promises, strict=True)
        if own > 0
    ]
    found: dict[str, study.Verdict] = {"promises kept": study.all_of(kept)}
    found["exact laws tell"] = _enough(agreement(fresh, "exact"))
    if config.reused_trials:
        found["re-use changes little"] = _enough(_alike(config, table))
    return found


def _enough(share: float) -> study.Verdict:
    return "yes" if share >= AGREEING else "no"


def agreement(table: study.Rows, source: str) -> float:
    """Share of cells in which most runs succeed where this says so, and fail else."""
    told = [(row[source] > 0) == _mostly(row) for row in table]
    return float(np.mean(told))


def _mostly(row: Mapping[str, Any]) -> bool:
    return 2 * row["successes"] >= row["trials"]


def _alike(config: Config, table: study.Rows) -> float:
    """Share of the cells of re-used data in which most runs end as in the nearest cell
    of fresh folds."""
    fresh = shares(table, "fresh", config.num_cells) >= 0.5
    reused = shares(table, "reused", config.reused_cells) >= 0.5
    nearest = []
    for place in (0, 1):
        dense = np.log(config.values(place, config.num_cells))
        few = np.log(config.values(place, config.reused_cells))
        nearest.append(np.argmin(np.abs(few[:, None] - dense), axis=1))
    return float(np.mean(fresh[np.ix_(nearest[1], nearest[0])] == reused))


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What the picture says, in a few sentences."""
    fresh = study.at(table, data="fresh")
    good = [row for row in fresh if _mostly(row)]
    kept = study.told(
        decisions["promises kept"],
        yes="No promise is broken",
        no="A promise is broken",
        undecided="Nothing is promised anywhere on the grid",
    )
    covered = [
        f"{name} in {np.mean([row[name] > 0 for row in good]):.0%}"
        for name in ("explicit", "corrected", "printed")
    ]
    exact = agreement(fresh, "exact")
    parts = [
        f"On fresh folds most runs succeed in {len(good) / len(fresh):.0%} of "
        f"{len(fresh)} cells; exact laws without a constant tell which in {exact:.1%}.",
    ]
    if good:
        parts.append(
            "Of the cells where most succeed, Theorem 1 promises it, by its form, "
            f"{study.listed(covered)}. {kept}."
        )
    silent = [
        f"{form} promises nothing ({why})"
        for form in ("printed", "corrected", "explicit")
        if (why := vacuous(config, form))
    ]
    if silent:
        parts.append(f"On this grid {study.listed(silent)}.")
    if config.reused_trials:
        alike = _alike(config, table)
        parts.append(
            f"On data used again in every round most runs end alike in {alike:.0%} of "
            f"{config.reused_cells**2} cells."
        )
    gone = sum(row["diverged"] for row in table)
    parts.append(f"Of {sum(row['trials'] for row in table):,} runs {gone} diverged.")
    return " ".join(parts)


def vacuous(config: Config, form: str) -> str:
    """The condition that keeps a promise from the whole diagram; "" if it is made
    somewhere."""
    scores = everywhere(config, form)
    total = phase_theory.score(scores)
    if np.any(total >= 0):
        return ""
    best = int(np.argmax(total))
    worst = min(scores, key=lambda name: scores[name][best])
    return f"{worst} fails"


@functools.lru_cache(maxsize=8)
def everywhere(config: Config, source: str) -> phase_theory.Scores:
    """A prediction on a fine grid over the whole diagram, by its second axis, then the
    first; whole numbers are none there."""
    number = FINE // 2 if source == "printed" else FINE  # One after the other.
    first, second = (np.geomspace(*ends, number).tolist() for ends in config.ranges)
    points = [config.at(across, up) for up in second for across in first]
    return PREDICTIONS[source](points)


def _height(config: Config, source: str) -> Float[np.ndarray, "up across"]:
    found = phase_theory.score(everywhere(config, source))
    side = math.isqrt(len(found))
    return found.reshape(side, side)


# The picture

FORMS = {
    "explicit": "Theorem 1, explicit constants",
    "corrected": "Theorem 1, corrected",
    "printed": "Theorem 1 as printed",
}
LAWS = {
    "floor": "exact floor of the error = 0.6 σ",
    "clusters": "exact law of misassignment",
    "start": "n′ → ∞: half of the starts separate the truths",
    "least squares": "error of least squares = 0.6 σ",
}
NAMES = {"fresh": "fresh folds", "reused": "the same data"}
WHEN = {"fresh": "in each round", "reused": "in all rounds"}


def diagrams(config: Config, table: study.Rows) -> list[Diagram]:
    """Both panels."""
    lines, notes = {kind: _laws(config, kind) for kind in EXACT}, []
    for form, text in FORMS.items():
        if why := vacuous(config, form):
            notes.append(f"{text}: nothing promised, as {why}")
        else:
            lines["fresh"].append(Line(text, _height(config, form), "promise"))
    sizes = {"fresh": (config.num_cells, config.num_trials)}
    if config.reused_trials:
        sizes["reused"] = config.reused_cells, config.reused_trials
    return [
        Diagram(
            name=NAMES[kind],
            title=f"{NAMES[kind]} {WHEN[kind]}: {number**2:,} cells of {trials:,} runs",
            first=config.values(0, number),
            second=config.values(1, number),
            shares=shares(table, kind, number),
            lines=lines[kind],
            notes=notes if kind == "fresh" else (),
        )
        for kind, (number, trials) in sizes.items()
    ]


def _laws(config: Config, kind: str) -> list[Line]:
    """Boundaries of the exact laws, each only where the others hold. There is none of
    misassignment on re-used data."""
    names = [name for name in EXACT[kind] if (kind, name) != ("reused", "clusters")]
    heights = {name: _height(config, name) for name in names}
    lines = []
    for name, height in heights.items():
        others = [heights[other] for other in names if other != name]
        free = np.min(others, axis=0) >= 0
        lines.append(Line(LAWS[name], np.where(free, height, np.nan), "law"))
    return lines


def title(config: Config) -> str:
    """What is fixed, from the configuration."""
    fixed = [
        axis.symbol.format(getattr(config, axis.field))
        for name, axis in AXES.items()
        if name not in config.axes
    ]
    fixed.insert(0, f"k = {config.num_clusters} clusters")
    fixed += [f"γp = {config.step:g}", f"T = {config.num_rounds} rounds"]
    return ", ".join(fixed)


def _span(config: Config) -> str:
    """What is varied, in words."""
    first, second = (AXES[name].words for name in config.axes)
    return f"{first} and {second}"


def figures(config: Config, table: study.Rows) -> dict[str, Any]:
    """The picture."""
    labels = [AXES[name].label for name in config.axes]
    picture = draw(
        diagrams(config, table),
        x_label=labels[0],
        y_label=labels[1],
        ranges=config.ranges,
        title=f"IFCA by {_span(config)}: where it succeeds, and where theory says so",
        subtitle=f"mixed linear regression: {title(config)}\nsuccess: mean distance "
        "from the truths at most 0.6 σ, and every client at its own cluster’s model",
    )
    return {"diagram": picture}


@dataclasses.dataclass(frozen=True)
class Panel:
    """One diagram, an experiment of its own: two axes of many."""

    id: str  # of the experiment
    axes: tuple[Name, Name]  # of its presets

    def preset(self, name: Literal["quick", "paper"]) -> Config:
        """The configuration of a preset."""
        if name == "quick":
            return Config(self.axes, 20, 100, 10, 6)
        return Config(self.axes, 60, 1000, 20, 30)

    def main(self, config: Config, options: Options) -> dict[str, Any]:
        """Compute what is not kept yet, then write tables, picture and outcome; the
        summary for the command line."""
        started = time.perf_counter()
        own = study.Study(
            self.id,
            REVISION,
            cells,
            functools.partial(compute, chunk=options.chunk),
            rows,
            decide,
            answer,
            figures,
        )
        wanted = cells(config)
        table = rows(config, wanted, own.measure(config, wanted, options))
        decisions, edges = decide(config, table), boundaries(config, table)
        outcome = own.outcome(config, table, decisions)
        rules = " ".join(f"{rule}: {found}." for rule, found in decisions.items())
        note = (
            f"Boundaries along {AXES[config.axes[0]].label}: where half of the runs "
            f"succeed, and where exact laws and the forms of Theorem 1 have it. "
            f"{title(config)}. Rules: {rules}\n\n{report.markdown(edges)}"
        )
        contents = {
            "table.csv": table,
            "table.md": note,
            "boundaries.csv": edges,
            "outcome.md": outcome,
            "config.json": as_json(config),
            **figures(config, table),
        }
        files = write(options.out, contents)
        seconds = round(time.perf_counter() - started, 2)
        return {
            "experiment": self.id,
            "headline": f"{outcome}\n{self.id}, {seconds} s. {note}",
            "files": files,
            "decisions": dict(decisions),
            "seconds": seconds,
            "rows": table,
        }


def load(id: str) -> Panel:
    """The diagram of an id."""
    return {panel.id: panel for panel in PANELS}[id]


PANELS = (
    Panel("ifca.phase", ("samples", "separation")),
    Panel("ifca.phase_start", ("samples", "start")),
)
