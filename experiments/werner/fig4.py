"""Werner et al., Figure 4: how many rounds Threshold-Clustering takes on blobs.

Command:   python -m experiments run werner.fig4 --preset paper
Quick:     the same with --preset quick, which differs in the repetitions only
Measured:  quick, 11 s on one of two busy cores of an Intel Xeon: the corrected elbow is
           at l = 18 to 19 for all sigma from members, and falls from 23 to 15 from near
           the centres, where Theorem 1 asks for 44, 30, 17 and 3.5 rounds; from the
           origin distances grow. The printed formula is -.13 in round 1 for all sigma
           from members, and -1 at every minimum
Paper:     90 samples of ten features in 10 clusters; sigma .5, 1, 2, 4 about the same
           centres; the radius of each round is the 10 % quantile of the distances; ten
           repetitions. Distances fall fast and then level out; elbows by
           (f(l) - f(l-1)) / (f(l-1) - min f), which "appears to align with the
           l >~ log sigma lower bound" of Theorem 1. Curves only, without numbers.

The paper leaves open where centres start and how far apart the blobs are (here the
box of scikit-learn); four starts are compared (`Start`). The formula names no
threshold, its numerator is negative where distances fall, and it is -1 in the step that
reaches the minimum whatever the curve; `elbow` is what it may mean. Theorem 1 asks for
l >= log(sigma / Delta) / log(1 - delta / 2) rounds, which falls with sigma; there
sigma^2 is the sum of the variances of all coordinates.
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import engine, intervals, report
from cfljax.base import check_member, flat_normal
from cfljax.clustering import (
    euclidean,
    least_distance,
    quantile_radius,
    threshold_clustering,
)
from experiments import study
from experiments.checks import check_several, check_values, configuration
from experiments.options import Options
from experiments.study import Row, Rows, computed, mean
from experiments.titles import title_each

EXPERIMENTS = {
    "werner.fig4": {
        "title": "rounds of Threshold-Clustering on blobs, and where the elbow is",
        "has_sweeps": True,
    }
}
(EXPERIMENT,) = EXPERIMENTS
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

# What centre k starts from. member: the first sample of blob k; random: a sample, all
# different, and its distance is from the centre of that sample's blob; near: the true
# centre plus N(0, spread^2 I); origin: 0, so that all centres move as one.
Start = Literal["member", "random", "near", "origin"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "own": ("round",),  # mean distance of a centre from the truth of its start
    "nearest": ("round",),  # mean distance of a true centre from the nearest one
    "separation": (),  # Delta, least distance of two true centres
}


@configuration
class Config:
    """Everything that the figure depends on. One field, one flag."""

    num_trials: int  # Repetitions, with their own true centres.
    start: tuple[Start, ...] = ("member", "random", "near", "origin")
    """What centres start from; see `fig4.Start`."""
    deviation: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    """Sigma of each coordinate within a cluster."""
    quantile: float = 0.1  # Of the distances, the radius of a round.
    num_clusters: int = 10  # K.
    num_members: int = 9  # Samples of each cluster.
    num_features: int = 10  # d.
    num_rounds: int = 100  # Largest l.
    box: float = 10.0  # True centres are uniform in [-box, box]^d.
    spread: float = 3.0  # Standard deviation of `near`, of each coordinate.
    threshold: float = 0.01
    """Of the corrected elbow: the share of the whole fall that a round must bring."""
    seed: int = 0  # Of all repetitions.
    error_rate: float = 0.05  # Of each interval.

    def __post_init__(self) -> None:
        check_values(self, "start", "deviation")
        check_several(num_trials=self.num_trials)
        if not all(math.isfinite(own) and own > 0 for own in self.deviation):
            raise ValueError(f"`deviation` must be positive, got {self.deviation}.")
        if not 0 < self.threshold < 1:
            raise ValueError(f"`threshold` must be in (0, 1), got {self.threshold}.")
        _grid(self).cells()  # They check what they share.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return Config(num_trials=10 if name == "quick" else 200)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write the figures and their numbers."""
    own = study.Study(EXPERIMENT, config, options)
    results = own.sweep(_grid(config), simulate)
    table = rows(results, config)
    return own.finish(
        tables={"table": (table, COLUMNS)},
        note=note(table),
        figures={
            "distances": draw_distances(results, config),
            "printed": draw_printed(results, config),
            "elbows": draw_elbows(table, config),
        },
    )


def _grid(config: Config) -> engine.Grid:
    """Starts and deviations."""
    trial = study.trial_of(
        Trial,
        config,
        start=config.start[0],
        deviation=config.deviation[0],
        quantile=repr(config.quantile),  # Static: the rule rounds it.
    )
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=trial,
        axes={"start": config.start, "deviation": config.deviation},
        num_trials=config.num_trials,
        traced=("deviation", "box", "spread"),
        dims=DIMS,
        coords={"round": list(range(config.num_rounds + 1))},
        seed=config.seed,
        revision=REVISION,
    )


@configuration
class Trial:
    """Everything that one repetition's law depends on."""

    start: Start
    deviation: float
    quantile: str
    num_clusters: int
    num_members: int
    num_features: int
    num_rounds: int
    box: float
    spread: float

    def __post_init__(self) -> None:
        check_member(Start, start=self.start)
        quantile_radius(float(self.quantile))
        check_several(num_clusters=self.num_clusters)


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Blobs as scikit-learn makes them, uniform centres and N(centre, deviation^2 I),
    and Threshold-Clustering of them from round 0; settings share random numbers.
    """
    centre_key, sample_key, start_key = jax.random.split(key, 3)
    shape = (trial.num_clusters, trial.num_features)
    truth = jax.random.uniform(centre_key, shape, minval=-1, maxval=1) * trial.box
    sizes = (trial.num_clusters, trial.num_members, trial.num_features)
    noise = trial.deviation * flat_normal(sample_key, sizes)
    points = (truth[:, None, :] + noise).reshape(-1, trial.num_features)
    centres, origin = _start(trial, start_key, points, truth)

    rule = quantile_radius(float(trial.quantile))

    def clip(centres: Array, _: None) -> tuple[Array, Array]:
        found = threshold_clustering(points, centres, num_rounds=1, radius=rule)
        return found.centres, found.centres

    later = jax.lax.scan(clip, centres, None, length=trial.num_rounds)[1]
    path = jnp.concatenate([centres[None], later])
    own = jnp.mean(jnp.linalg.norm(path - truth[origin][None], axis=2), axis=1)
    nearest = jax.lax.map(
        lambda centres: jnp.mean(jnp.min(euclidean(truth, centres), axis=1)), path
    )
    return {"own": own, "nearest": nearest, "separation": least_distance(truth)}


def _start(
    trial: Trial,
    key: PRNGKeyArray,
    points: Float[Array, "points features"],
    truth: Float[Array, "clusters features"],
) -> tuple[Float[Array, "clusters features"], Array]:
    """Centres to start from, and which true centre each is measured from."""
    every = jnp.arange(trial.num_clusters)
    if trial.start == "member":
        return points[every * trial.num_members], every
    if trial.start == "random":
        chosen = jax.random.permutation(key, points.shape[0])[: trial.num_clusters]
        return points[chosen], chosen // trial.num_members
    if trial.start == "near":
        return truth + trial.spread * flat_normal(key, truth.shape), every
    return jnp.zeros_like(truth), every


COLUMNS = {
    "start": "start",
    "deviation": "σ",
    "first": "f(0)",
    "floor": "min f",
    "last": "f, last round",
    "nearest": "distance to the nearest, last round",
    "with_elbow": "fall at all",
    **study.interval_columns("elbow", "elbow, corrected"),
    "fallen": "rounds to 95 % of the fall",
    "printed_first": "printed formula, l = 1",
    "printed_least": "where f gets to its minimum",
    "asked": "Theorem 1's l",
}
_SHARE = 0.95  # Of the fall.

Curve = Float[np.ndarray, " rounds"]


def elbow(curve: Curve, threshold: float) -> float:
    """The first l with (f(l-1) - f(l)) / (f(0) - min f) < threshold, corrected. NaN
    where f never falls below its start, or no round brings so little.
    """
    fall = curve[0] - np.min(curve)
    if not fall > 0:
        return math.nan
    brings_little = (curve[:-1] - curve[1:]) / fall < threshold
    return float(np.argmax(brings_little) + 1) if brings_little.any() else math.nan


def printed(curve: Curve) -> Float[np.ndarray, " steps"]:
    """(f(l) - f(l-1)) / (f(l-1) - min f) for l = 1, 2, ...; NaN where it is 0 / 0."""
    left = curve[:-1] - np.min(curve)
    return (curve[1:] - curve[:-1]) / np.where(left > 0, left, np.nan)


def asked(separation: float, deviation: float, share: float) -> float:
    """Theorem 1's l: log(sigma / Delta) / log(1 - delta / 2), at least 1.

    The deviation sigma is the root of the sum of all coordinates' variances.
    """
    return max(1.0, math.log(deviation / separation) / math.log1p(-share / 2))


def rows(results: xr.Dataset, config: Config) -> list[Row]:
    """One row for each start and deviation."""
    table = []
    for at, cell in study.cells(results, "start", "deviation"):
        curves = cell["own"].values.astype(float)
        total = at["deviation"] * math.sqrt(config.num_features)
        wanted = [
            asked(float(separation), total, 1 / config.num_clusters)
            for separation in cell["separation"].values
        ]
        elbows = computed([elbow(curve, config.threshold) for curve in curves])
        ends: Row = dict.fromkeys(("elbow", "elbow_low", "elbow_high"))
        if len(elbows) > 1:
            ends |= study.interval(elbows, "elbow", config.error_rate)
        row = {
            **at,
            "first": float(curves[:, 0].mean()),
            "floor": float(curves.min(axis=1).mean()),
            "last": float(curves[:, -1].mean()),
            "nearest": float(cell["nearest"].values[:, -1].mean()),
            "with_elbow": f"{len(elbows)}/{len(curves)}",
            **ends,
            "fallen": mean(computed([_fallen(curve) for curve in curves])),
            "printed_first": mean(computed([printed(curve)[0] for curve in curves])),
            "printed_least": mean(computed([_at_least(curve) for curve in curves])),
            "asked": float(np.mean(wanted)),
        }
        table.append(row)
    return table


def _fallen(curve: Curve) -> float:
    """The first l at which a share of the fall is over; NaN if there is none."""
    fall = curve[0] - np.min(curve)
    if not fall > 0:
        return math.nan
    return float(np.argmax(curve[0] - curve >= _SHARE * fall))


def _at_least(curve: Curve) -> float:
    """The printed formula in the step that reaches the minimum."""
    step = int(np.argmin(curve))
    return float(printed(curve)[step - 1]) if step else math.nan


def note(table: Rows) -> str:
    """What came out, in words made from the numbers."""
    least = [row["printed_least"] for row in table if row["printed_least"] is not None]
    parts = []
    starts = study.groups(table, "start")
    for start, own in starts.items():
        elbows = [row["elbow"] for row in own]
        shown = ["none" if at is None else f"{at:.3g}" for at in elbows]
        parts.append(f"{start} {', '.join(shown)}")
    first = next(iter(starts.values()))
    wanted = ", ".join(f"{row['asked']:.3g}" for row in first)
    deviations = ", ".join(f"{row['deviation']:g}" for row in first)
    ends = f"{min(least):.3g} and {max(least):.3g}" if least else "nothing"
    return (
        f"Corrected elbows for σ = {deviations}: {'; '.join(parts)}. Theorem 1 asks "
        f"for {wanted}. Where a curve gets to its minimum the printed formula is "
        f"between {ends}, whatever the curve. Means are over the repetitions in which "
        "f falls at all."
    )


STARTS = {
    "member": "a member",
    "random": "random samples",
    "near": "near the centres",
    "origin": "the origin",
}


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    own = {
        "distances": "Threshold-Clustering of blobs",
        "printed": "the printed formula for elbows",
        "elbows": "where the elbow is",
    }
    return title_each("Werner et al., Figure 4", own, config, preset("paper"))


def redraw(config: Config, tables: Mapping[str, Rows]) -> dict[str, Figure]:
    """What needs no more than the table."""
    return {"elbows": draw_elbows(tables["table"], config)}


def draw_distances(results: xr.Dataset, config: Config) -> Figure:
    """f, a panel for each start."""
    error_rate = config.error_rate

    def curve(name: str, over: np.ndarray, own: np.ndarray) -> report.Curve:
        low, high = intervals.student(own.T.astype(float), error_rate=error_rate)
        return report.Curve(name, over, own.mean(axis=0), low, high)

    number, percent = results.sizes["trial"], 100 * (1 - error_rate)
    return report.curves(
        _panels(results, curve, "mean distance f to the true centres", None),
        title=titles(config)["distances"],
        legend_title=f"means over {number} repetitions, {percent:g} % intervals",
        panels_per_row=2,
    )


def draw_printed(results: xr.Dataset, config: Config) -> Figure:
    """The paper's formula on each start's mean curve."""

    def curve(name: str, over: np.ndarray, own: np.ndarray) -> report.Curve:
        middle = own.mean(axis=0)
        until = max(int(np.argmin(middle)), 1)  # NaN where it never falls.
        return report.Curve(name, over[1:][:until], printed(middle)[:until])

    formula = "(f(l) − f(l−1)) / (f(l−1) − min f)"
    return report.curves(
        _panels(results, curve, formula, (-1.0, 0.1), aside=False),
        title=titles(config)["printed"],
        legend_title="of the mean curve over all repetitions, until it gets to its "
        "minimum",
        panels_per_row=2,
    )


def _panels(
    results: xr.Dataset, curve: Any, label: str, limits: Any, **look: Any
) -> list[report.CurvePanel]:
    """A panel for each start, of the curves `curve(name, rounds, f)` by deviation."""
    over, panels = results["round"].values.astype(float), []
    for start in results["start"].values.tolist():
        curves = [
            curve(f"σ = {at['deviation']:g}", over, cell["own"].values)
            for at, cell in study.cells(results.sel(start=start), "deviation")
        ]
        axes, name = ("clipping rounds l", label, limits), f"start: {STARTS[start]}"
        panels.append(report.CurvePanel(curves, *axes, title=name, **look))
    return panels


def draw_elbows(table: Rows, config: Config) -> Figure:
    """Corrected elbows and Theorem 1's l against sigma."""
    curves = []
    starts = study.groups(table, "start")
    for start, own in starts.items():
        curves.append(study.curve(own, STARTS[start], "deviation", "elbow"))
    first = next(iter(starts.values()))
    at, wanted = study.column(first, "deviation"), study.column(first, "asked")
    curves.append(report.Curve("asked for by Theorem 1", at, wanted))
    panel = report.CurvePanel(
        curves,
        x_label="standard deviation σ of each coordinate",
        y_label="rounds l",
        y_limits=None,
        log_x=True,
    )
    return report.curves(
        [panel],
        title=titles(config)["elbows"],
        legend_title="corrected elbow with intervals, by start",
    )
