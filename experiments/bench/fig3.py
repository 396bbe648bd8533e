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
  library (`success_joint`) and by PyTorch, batched over all runs and making all rounds,
  on the same samples from the same starts. All are timed in turn, trial by trial, and
  their outcomes compared under every criterion: `fig3_comparison`.
- scaling: time and products of one trial over a decade of m, of n and of d, with the
  slopes on log axes, with shortcuts and without: `fig3_scaling`.
- projection: one trial of all cells of the panels, one size after the other, and what
  all trials of a panel would take: `fig3_projection`.

Both this library and PyTorch use all cores, unless their environment says otherwise
(`OMP_NUM_THREADS` is PyTorch's alone): the settings tell how many threads it had.
"""

import dataclasses
import math
import os
from typing import Any, Literal, get_args

import jax

from cfljax import report
from cfljax.data.linear import check_mixed_linear
from experiments.bench import (
    fig3_comparison,
    fig3_projection,
    fig3_scaling,
    torch_linear,
)
from experiments.bench.fig3_outcomes import COUNTS, Way
from experiments.bench.fig3_projection import Panel
from experiments.ifca.success import Trial
from experiments.options import Options

__all__ = ["Config", "Part", "main", "preset"]

Part = Literal["comparison", "scaling", "projection"]


@dataclasses.dataclass(frozen=True)
class Config:
    """What is timed. The sizes of the comparison are those of Figure 3(a)."""

    parts: tuple[Part, ...] = get_args(Part)
    """What to do."""
    ways: tuple[Way, ...] = ("decide",)
    """Of this library: decide, which leaves a trial's other runs alone once it is known
    to succeed; follow, which follows all runs to their end."""
    num_trials: int = 40
    """Trials of the comparison."""
    separation: tuple[float, ...] = (0.1, 1.0)
    """R of its cells."""
    noise: float = 0.1
    """Sigma."""
    num_clients: int = 100
    """m."""
    num_samples: int = 100
    """n."""
    num_features: int = 1000
    """d."""
    num_clusters: int = 2
    """k."""
    num_restarts: int = 10
    """Starts of a trial."""
    step_sizes: tuple[float, ...] = (1.0, 0.1, 0.01)
    """Gamma; a run for each of them and each start."""
    num_rounds: int = 300
    """T."""
    tolerance: float = 0.001
    """Added to the distance thresholds."""
    scaling_trials: int = 3
    """Trials at every size of the scaling, besides one that compiles."""
    scaling_clients: tuple[int, ...] = (30, 100, 300)
    """m; the middle one while n and d change."""
    scaling_samples: tuple[int, ...] = (30, 100, 300)
    """n; the middle one while m and d change."""
    scaling_features: tuple[int, ...] = (300, 1000, 3000)
    """d; the middle one while m and n change."""
    panels: tuple[Panel, ...] = get_args(Panel)
    """Of the projection."""
    seed: int = 0
    """Of all trials."""

    def __post_init__(self) -> None:
        for name in ("parts", "ways", "separation", "step_sizes", "panels"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"`{name}` must hold different values, got {values}.")
        for name in ("scaling_clients", "scaling_samples", "scaling_features"):
            values = getattr(self, name)
            if len(values) < 2 or sorted(set(values)) != list(values):
                raise ValueError(
                    f"`{name}` must hold at least 2 ascending values, got {values}."
                )
        for name in ("num_trials", "num_restarts", "num_rounds", "scaling_trials"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )
        for name in ("separation", "step_sizes", "noise", "tolerance"):
            value = getattr(self, name)
            values = value if isinstance(value, tuple) else (value,)
            if not all(math.isfinite(own) and own >= 0 for own in values):
                raise ValueError(
                    f"`{name}` must be finite and not negative, got {value}."
                )
        for trial in (*self.cells(), *self.sizes()):
            check_mixed_linear(
                num_clients=trial.num_clients,
                num_clusters=trial.num_clusters,
                num_samples=trial.num_samples,
                num_features=trial.num_features,
            )

    def cells(self) -> list[Trial]:
        """The cells of the comparison."""
        base = Trial(
            convention="reference",
            separation=0.0,
            noise=self.noise,
            num_clients=self.num_clients,
            num_samples=self.num_samples,
            num_clusters=self.num_clusters,
            num_features=self.num_features,
            num_restarts=self.num_restarts,
            num_rounds=self.num_rounds,
            init_scale=1.0,
            init_unit="one",
            normalise="all",
            resample=False,
            shortcuts=True,
            tolerance=self.tolerance,
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


def settings(config: Config) -> str:
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
    if torch_linear.available():
        parts.append(f"PyTorch on {torch_linear.threads()} threads")
    return "; ".join(parts)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Do the parts that were asked for; their tables."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    described = settings(config)
    tables: dict[str, list[dict[str, Any]]] = {}
    notes: list[str] = []
    if "comparison" in config.parts:
        compared = fig3_comparison.measure(
            config.cells(),
            config.step_sizes,
            ways=config.ways,
            num_trials=config.num_trials,
            seed=config.seed,
            progress=options.progress,
        )
        tables |= {"table": compared.table, "trials": compared.trials}
        if not torch_linear.available():
            notes.append(
                "PyTorch is not installed: its rows are left out, and no outcomes are "
                "compared."
            )
    if "scaling" in config.parts:
        sizes = fig3_scaling.measure(
            config.sizes(),
            config.step_sizes,
            num_trials=config.scaling_trials,
            seed=config.seed,
            progress=options.progress,
        )
        tables |= {"scaling": fig3_scaling.rows(sizes)}
        tables |= {"slopes": fig3_scaling.slopes(sizes)}
    if "projection" in config.parts:
        groups = fig3_projection.measure(
            config.panels,
            config.ways,
            options.out / "projection.json",
            progress=options.progress,
        )
        tables |= {"projection": groups, "panels": fig3_projection.panels(groups)}
    return {
        "benchmark": "fig3",
        "settings": described,
        "headline": headline(described, tables, notes),
        "files": write(described, tables, options),
        "rows": tables.get("table", []),
        "tables": tables,
        "notes": notes,
    }


TITLES = {
    "table": "Trials beside PyTorch's: seconds are medians over trials",
    "outcomes": "Outcomes of the same trials, held against PyTorch's",
    "scaling": "One trial at every size, medians over trials",
    "slopes": "Slopes on log axes, medians and range over trials",
    "projection": "One trial of all cells of one size",
    "panels": "All trials of a panel: first one cold, the others warm",
}


def headline(
    described: str, tables: dict[str, list[dict[str, Any]]], notes: list[str]
) -> str:
    """All tables but the longest under their titles; the first in two parts."""
    table = tables.get("table", [])
    without = lambda row, names: {n: row[n] for n in row if n not in names}
    parts = tables | {
        "table": [without(row, COUNTS) for row in table],
        "outcomes": [
            {name: row[name] for name in ("what", "R", *COUNTS)}
            for row in table
            if COUNTS[0] in row
        ],
    }
    shown = [
        f"{title}\n\n{report.markdown(parts[name])}".rstrip()
        for name, title in TITLES.items()
        if parts.get(name)
    ]
    return "\n\n".join([described, *shown, *notes]) + "\n"


def write(
    described: str, tables: dict[str, list[dict[str, Any]]], options: Options
) -> list[str]:
    """A CSV file for each table, with the settings in a column of their own."""
    files = []
    for name, rows in tables.items():
        path = options.out / f"{name}.csv"
        report.write_csv(path, [row | {"settings": described} for row in rows])
        files.append(str(path))
    return files
