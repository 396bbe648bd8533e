"""Figure 3 at full size: beside PyTorch, its growth, and the hours of its panels.

Command:   python -m experiments bench fig3
           python -m experiments bench fig3 --parts projection --panels a c
           python -m experiments bench fig3 --preset paper
Target:    8 times faster than PyTorch on R = 0.1 and 1, sigma = 0.1, 40 trials, and no
           other outcome
Measured:  two cores of an AMD EPYC without other work: 9.5 times in total, 13.5 in the
           median, with both cells computed together as a sweep does; alone 5.6 and 8.4
           at R = 0.1, where 10 trials fail, 11.4 and 11.5 at R = 1. No outcome of 80
           trials and 768 runs differs. Over a decade of m, n and d (--preset paper),
           seconds of one trial grow by the powers 1.05, 1.12 and 0.84 with all rounds,
           and 0.14, 0.26 and 1.15 where all runs are followed by shortcuts. All trials
           of the panels, from one cold and one warm trial of every size, two workers
           with a core each: a 15 min, b 49, c 28, d 65, in all 2 h 37 min, 10 % more or
           less from one time of day to another. All drawn in one run (two `--shard`s a
           panel, then its law and figures): 2 h 55 min, of which laws 19; a 11 min,
           b 51, c 28, d 66, cut once near its end and resumed

Three parts, of which `--parts` chooses:

- comparison: trials of panel (a)'s cells at both ends of its separations, by this
  library (`fig3_trial.simulate_jointly`) and by PyTorch, batched over all runs and
  making all rounds, on the same samples from the same starts. All are timed in turn,
  trial by trial, and their outcomes compared under every criterion: `fig3_comparison`.
- scaling: time and products of one trial over a decade of m, of n and of d, with the
  slopes on log axes, with shortcuts and without.
- projection: one trial of all cells of the panels, one size after the other, and what
  all trials of a panel would take.

Both this library and PyTorch use all cores, unless their environment says otherwise
(`OMP_NUM_THREADS` is PyTorch's alone): the settings tell how many threads it had.
"""

import dataclasses
import functools
import json
import os
import pathlib
import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray

from cfljax import montecarlo, report
from cfljax.data import check_mixed_linear
from cfljax.engine import Bar, describe_run
from experiments.bench import timing
from experiments.bench.fig3_comparison import COUNTS, Way, draw, measure, trial_key
from experiments.bench.linear import torch_threads
from experiments.bench.timing import timed_call
from experiments.checks import check_values, configuration
from experiments.ifca import fig3 as figure
from experiments.ifca.fig3_trial import SIZES, Trial, shares, simulate, simulate_jointly
from experiments.options import Options
from experiments.study import fields, groups, trial_of, write

BENCHMARKS = {
    "fig3": {
        "title": "Figure 3 at full size: against PyTorch, its growth, hours of its "
        "panels",
    },
}
Part = Literal["comparison", "scaling", "projection"]
Panel = Literal["a", "b", "c", "d"]
Rows = list[dict[str, Any]]

TITLES = {
    "table": "Trials beside PyTorch's: seconds are medians over trials",
    "outcomes": "Outcomes of the same trials, held against PyTorch's",
    "scaling": "One trial at every size, medians over trials",
    "slopes": "Slopes on log axes, medians and range over trials",
    "projection": "One trial of all cells of one size",
    "panels": "All trials of a panel: first one cold, the others warm",
}


@configuration
class Config:
    """What is timed. The sizes of the comparison are those of Figure 3(a)."""

    parts: tuple[Part, ...] = get_args(Part)  # What to do.
    ways: tuple[Way, ...] = ("decide",)
    """Of this library: decide, which leaves a trial's other runs alone once it is known
    to succeed; follow, which follows all runs to their end."""
    num_trials: int = 40  # Trials of the comparison.
    separation: tuple[float, ...] = (0.1, 1.0)  # R of its cells.
    noise: float = 0.1  # Sigma.
    num_clients: int = 100  # m.
    num_samples: int = 100  # n.
    num_features: int = 1000  # d.
    num_clusters: int = 2  # k.
    num_restarts: int = 10  # Starts of a trial.
    step_sizes: tuple[float, ...] = (1.0, 0.1, 0.01)
    """Gamma; a run for each of them and each start."""
    num_rounds: int = 300  # T.
    tolerance: float = 0.001  # Added to the distance thresholds.
    scaling_trials: int = 3
    """Trials at every size of the scaling, besides one that compiles."""
    scaling_clients: tuple[int, ...] = (30, 100, 300)
    """m; the middle one while n and d change."""
    scaling_samples: tuple[int, ...] = (30, 100, 300)
    """n; the middle one while m and d change."""
    scaling_features: tuple[int, ...] = (300, 1000, 3000)
    """d; the middle one while m and n change."""
    panels: tuple[Panel, ...] = get_args(Panel)  # Of the projection.
    seed: int = 0  # Of all trials.

    def __post_init__(self) -> None:
        check_values(self, "parts", "ways", "separation", "step_sizes", "panels")
        for name in ("scaling_clients", "scaling_samples", "scaling_features"):
            values = getattr(self, name)
            if len(values) < 2 or sorted(set(values)) != list(values):
                raise ValueError(
                    f"`{name}` must hold at least 2 ascending values, got {values}."
                )
        for trial in (*self.cells(), *self.sizes()):
            check_mixed_linear(**fields(trial, *SIZES))

    def cells(self) -> list[Trial]:
        """The cells of the comparison."""
        base = trial_of(
            Trial,
            self,
            convention="reference",
            separation=0.0,
            init_scale=1.0,
            init_unit="one",
            normalise="all",
            resample=False,
            shortcuts=True,
            decide=False,
        )
        return [dataclasses.replace(base, separation=own) for own in self.separation]

    def sizes(self) -> list[Trial]:
        """One cell of every size of the scaling, at the largest separation."""
        base = max(self.cells(), key=lambda trial: trial.separation)
        axes = {
            "num_clients": self.scaling_clients,
            "num_samples": self.scaling_samples,
            "num_features": self.scaling_features,
        }
        middle = {name: values[len(values) // 2] for name, values in axes.items()}
        found = [
            dataclasses.replace(base, **{**middle, name: value})
            for name, values in axes.items()
            for value in values
        ]
        return list(dict.fromkeys(found))


def preset(name: Literal["quick", "paper"]) -> Config:
    """ "quick" takes fewer trials, smaller sizes for the scaling, and panel (a)."""
    if name == "quick":
        return Config(
            num_trials=2,
            scaling_trials=2,
            scaling_clients=(20, 60, 200),
            scaling_samples=(20, 60, 200),
            scaling_features=(100, 300, 1000),
            panels=("a",),
        )
    return Config(ways=("decide", "follow"))


def main(config: Config, options: Options) -> dict[str, Any]:
    """Do the parts that were asked for; their tables."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    described = _settings(config)
    tables: dict[str, Rows] = {}
    notes: list[str] = []
    if "comparison" in config.parts:
        table, trials = measure(
            config.cells(),
            config.step_sizes,
            ways=config.ways,
            num_trials=config.num_trials,
            seed=config.seed,
            progress=options.progress,
        )
        tables |= {"table": table, "trials": trials}
        if not timing.has_torch():
            notes.append(
                "PyTorch is not installed: its rows are left out, and no outcomes are "
                "compared."
            )
    if "scaling" in config.parts:
        sizes = _measure_scaling(config, options)
        tables |= {"scaling": scaling_rows(sizes), "slopes": slopes(sizes)}
    if "projection" in config.parts:
        projected = _measure_projection(config, options)
        tables |= {"projection": projected, "panels": _panel_rows(projected)}
    contents = {
        f"{name}.csv": [row | {"settings": described} for row in rows]
        for name, rows in tables.items()
    }
    return {
        "benchmark": "fig3",
        "settings": described,
        "headline": timing.headline(described, _shown(tables), notes),
        "files": write(options.out, contents),
        "rows": tables.get("table", []),
        "tables": tables,
        "notes": notes,
    }


def _settings(config: Config) -> str:
    """Sizes, machine and load, in one line."""
    steps = ", ".join(f"{size:g}" for size in config.step_sizes)
    parts = [
        f"m = {config.num_clients}, n = {config.num_samples}, d = "
        f"{config.num_features}, k = {config.num_clusters}, σ = {config.noise:g}",
        f"{config.num_restarts} restarts x step sizes {steps}",
        f"{config.num_rounds} rounds",
        f"{jax.devices()[0].device_kind}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.2f} at the start",
    ]
    if timing.has_torch():
        parts.append(f"PyTorch on {torch_threads()} threads")
    return "; ".join(parts)


def _shown(tables: dict[str, Rows]) -> dict[str, Rows]:
    """All tables but the longest by their titles; the first in two parts."""
    table = tables.get("table", [])
    parts = tables | {
        "table": [{n: row[n] for n in row if n not in COUNTS} for row in table],
        "outcomes": [
            {name: row[name] for name in ("what", "R", *COUNTS)}
            for row in table
            if COUNTS[0] in row
        ],
    }
    return {title: parts.get(name, []) for name, title in TITLES.items()}


AXES = {"m": "num_clients", "n": "num_samples", "d": "num_features"}
FULL, SHORT = "all rounds", "with shortcuts"


class Measured(NamedTuple):
    """One size, with the trials that were timed."""

    trial: Trial
    num_runs: int  # restarts x step sizes
    seconds_full: list[float]  # of each trial, data included, as compiled by the engine
    seconds: list[float]  # the same with shortcuts
    work: list[montecarlo.Work]  # what that took

    @property
    def product(self) -> float:
        """m n d."""
        own = self.trial
        return float(own.num_clients * own.num_samples * own.num_features)

    def values(self) -> dict[str, list[float]]:
        """Seconds and operations of every trial."""
        features = self.trial.num_features
        return {
            f"s, {FULL}": self.seconds_full,
            f"operations, {FULL}": [2 * self.product * own.full for own in self.work],
            f"s, {SHORT}": self.seconds,
            f"operations, {SHORT}": [
                2 * self.product * (own.forward + own.backward + features)
                + 2 * features**2 * own.frozen
                for own in self.work
            ],
        }


def _measure_scaling(config: Config, options: Options) -> list[Measured]:
    """Times trials of every size both ways in turn, after one of each to compile."""
    trials, number = config.sizes(), config.scaling_trials
    steps = jnp.asarray(config.step_sizes, jnp.float32)
    keys = [trial_key(config.seed, index) for index in (number, *range(number))]
    found = []
    with Bar("scaling", visible=options.progress) as bar:
        bar.expect(len(trials) * len(keys))
        for trial in trials:
            plain = dataclasses.replace(trial, shortcuts=False)
            full = jax.jit(functools.partial(simulate, plain))
            seconds_full, seconds, work = [], [], []
            for key in keys:
                seconds_full.append(timed_call(functools.partial(full, key, steps))[0])
                short = functools.partial(_shortcut, trial, key, steps)
                own, _, done = timed_call(short)
                seconds.append(own)
                work.append(done)
                bar.advance(1)
            runs = trial.num_restarts * len(steps)
            found.append(Measured(trial, runs, seconds_full[1:], seconds[1:], work[1:]))
    return found


def _shortcut(trial: Trial, key: PRNGKeyArray, steps: jax.Array) -> montecarlo.Work:
    drawn = draw(trial, key)
    samples = montecarlo.prepare(
        drawn.inputs, drawn.targets[None], np.asarray(drawn.truth.clusters)
    )
    starts = np.repeat(np.asarray(drawn.starts), len(steps), axis=0)
    return montecarlo.run_ifca(
        samples,
        starts,
        np.zeros(len(starts), int),
        np.tile(np.asarray(steps), trial.num_restarts),
        num_rounds=trial.num_rounds,
    ).work


def scaling_rows(sizes: Sequence[Measured]) -> Rows:
    """One row for each size, medians over trials."""
    middle = statistics.median
    table = []
    for own in sizes:
        each = own.num_runs * own.trial.num_rounds
        row: dict[str, Any] = {
            letter: getattr(own.trial, field) for letter, field in AXES.items()
        }
        row |= {name: middle(values) for name, values in own.values().items()}
        row[f"ns / (m n d), {FULL}"] = 1e9 * middle(own.seconds_full) / own.product
        row[f"ns / (m n d), {SHORT}"] = 1e9 * middle(own.seconds) / own.product
        for name, counts in {
            f"columns, {FULL}": [one.full for one in own.work],
            f"columns, {SHORT}": [one.forward + one.backward for one in own.work],
            "rounds by Gram matrices": [one.frozen for one in own.work],
        }.items():
            row[f"{name} per run and round"] = middle(counts) / each
        table.append(row)
    return table


def slopes(sizes: Sequence[Measured]) -> Rows:
    """Log-log slopes of least squares along m, n and d: of every trial, median and
    range.
    """
    found = []
    for letter, field in AXES.items():
        own = _along(sizes, field)
        if len(own) < 2:
            continue
        at = np.log([getattr(size.trial, field) for size in own])
        for quantity in own[0].values():
            values = np.log([size.values()[quantity] for size in own])
            fitted = np.polyfit(at, values, 1)[0]  # Of every trial at once.
            found.append(
                {
                    "quantity": quantity,
                    "along": letter,
                    "from": getattr(own[0].trial, field),
                    "to": getattr(own[-1].trial, field),
                    "slope": float(np.median(fitted)),
                    "lowest": float(np.min(fitted)),
                    "highest": float(np.max(fitted)),
                }
            )
    return found


def _along(sizes: Sequence[Measured], field: str) -> list[Measured]:
    """Sizes that differ from the one in common along this field, ascending."""
    others = [name for name in AXES.values() if name != field]
    shape = lambda size: tuple(getattr(size.trial, name) for name in others)
    shapes = [shape(size) for size in sizes]
    most = max(shapes, key=shapes.count)
    own = [size for size, seen in zip(sizes, shapes, strict=True) if seen == most]
    return sorted(own, key=lambda size: getattr(size.trial, field))


def panel_config(letter: Panel) -> figure.Config:
    """Of a panel at full size."""
    return figure.load(f"ifca.fig3{letter}").preset("paper")


class _Group(NamedTuple):
    """All cells of a panel, by its letter, that are computed together in one way."""

    panel: str
    way: Way
    config: figure.Config
    trials: list[Trial]

    @property
    def name(self) -> str:
        """What is measured, in full."""
        trials = [dataclasses.asdict(trial) for trial in self.trials]
        return json.dumps([self.panel, figure.REVISION, self.config.step_sizes, trials])

    def seconds(self, index: int) -> float:
        """Of one trial."""
        steps = jnp.asarray(self.config.step_sizes, jnp.float32)
        started = time.perf_counter()
        simulate_jointly(self.trials, trial_key(self.config.seed, index), steps)
        return time.perf_counter() - started


def _measure_projection(config: Config, options: Options) -> Rows:
    """Times two trials of every size of the panels, cold and warm; resumes."""
    path = options.out / "projection.json"
    sizes = [
        group
        for way in config.ways
        for letter in config.panels
        for group in _groups(letter, way)
    ]
    kept = _kept(path)
    missing = [group for group in sizes if group.name not in kept]
    with Bar("projection", visible=options.progress) as bar:
        bar.expect(len(missing))
        for group in missing:
            load = os.getloadavg()[0]
            cold, warm = group.seconds(0), group.seconds(1)
            kept[group.name] = {"cold": cold, "warm": warm, "load": load}
            report.write_text(
                path, json.dumps({"run": describe_run(), "times": kept}) + "\n"
            )
            bar.advance(1)
    return [_projection_row(group, kept[group.name]) for group in sizes]


def _groups(letter: Panel, way: Way) -> list[_Group]:
    """A panel's cells by size."""
    config = dataclasses.replace(
        panel_config(letter), shortcuts=True, decide=way == "decide"
    )
    found: dict[Any, list[Trial]] = {}
    for cell in figure.grid(f"ifca.fig3{letter}", config).cells():
        found.setdefault(shares(cell.trial), []).append(cell.trial)
    return [_Group(letter, way, config, trials) for trials in found.values()]


def _kept(path: pathlib.Path) -> dict[str, dict[str, float]]:
    """Times of a run that was cut off, if it was one of this code on this machine."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_same = isinstance(found, dict) and found.get("run") == describe_run()
    return found.get("times", {}) if is_same else {}


def _projection_row(group: _Group, times: Mapping[str, float]) -> dict[str, Any]:
    first, number = group.trials[0], group.config.num_trials
    return {
        "panel": group.panel,
        "way": group.way,
        "m": first.num_clients,
        "n": first.num_samples,
        "d": first.num_features,
        "k": first.num_clusters,
        "cells": len(group.trials),
        "cold, s": times["cold"],
        "warm, s": times["warm"],
        "trials": number,
        "hours": (times["cold"] + (number - 1) * times["warm"]) / 3600,
        "load": times["load"],
    }


def _panel_rows(sizes: Rows) -> Rows:
    """Sums over the sizes of a panel, and over all panels."""
    rows = []
    for way, mine in groups(sizes, "way").items():
        panels = groups(mine, "panel")
        for letter, own in panels.items():
            rows.append({"panel": letter, "way": way} | _sums(own))
        if len(panels) > 1:
            rows.append({"panel": "all", "way": way} | _sums(mine))
    return rows


def _sums(sizes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    names = ("cells", "cold, s", "warm, s", "hours")
    sums = {name: sum(row[name] for row in sizes) for name in names}
    trials = sum(row["cells"] * row["trials"] for row in sizes)
    return {"sizes": len(sizes), "trials of cells": trials} | sums
