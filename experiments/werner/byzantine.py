"""Werner et al., section 3.1.1: attacks on Threshold-Clustering.

Command:   python -m experiments run werner.byzantine --preset paper
Quick:     the same with --preset quick: fewer attacks, shares and trials
Measured:  quick, 76 s on one of two busy cores of an Intel Xeon: the influence is at
           most 1 in all 32 settings below the predicted breakdown, .995 [.967, 1.02] at
           most; the adaptive edge breaks down at .776, .892 and .952 for Delta = 50,
           200 and 800, where .694, .844 and .922 are predicted. With a 20 % quantile
           its error is 58 at .9 and 9e6 at 1.1, where the target is less than 20 % of
           all. The paper preset's fixed radius: 117 of 117, 1.00 [.993, 1.01] at most
Paper:     "a bad point has most influence just inside of the ball", and the error
           grows by beta_i sigma Delta (Theorem 1); no experiment.
Predicted: with Theorem 1's radius the adaptive edge ends at an error of
           sigma^2 / n + (beta / delta)^2 tau^2, and no attack at more; it loses the
           centre from beta / delta = 1 - sigma / tau on, where honest points leave the
           ball.
Rules:     the influence of an attack, (Err - Err(0)) / ((beta / delta)^2 tau^2), is at
           most 1 below that breakdown iff its interval reaches down to 1, jointly for
           all attacks and shares; the adaptive edge breaks down where predicted iff
           the measured share is within 0.1.

Attackers know all honest points, where the centre starts, and the radius; the adaptive
edge also where the centre is, which nobody can who sends only once.
"""

import dataclasses
import math
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import engine, report
from cfljax.attacks import ATTACKS, Context, build
from cfljax.base import POSITIVE, check_in, check_member, flat_normal
from cfljax.clustering import Rule, gap_radius, threshold_clustering
from experiments import study
from experiments.checks import check_several, check_values, configuration
from experiments.options import Options
from experiments.study import Row, Rows

EXPERIMENTS = {
    "werner.byzantine": {
        "title": "attacks on Threshold-Clustering: influence and breakdown",
        "has_sweeps": True,
    }
}
(EXPERIMENT,) = EXPERIMENTS
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

# Radius of each round. fixed: sqrt(delta sigma Delta) of Theorem 1, delta the target's
# honest clients among all; quantile: of the distances; inner, outer: `gap_radius`.
Radii = Literal["fixed", "quantile", "inner", "outer"]

BROKEN = 4.0  # Squared radii of error from which a centre is lost.
NEAR = 0.1  # How near the breakdown must be to its prediction.

# Outputs of the trials and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "error": (),  # |v - mu|^2 after the last round
    "radius": (),  # tau of the last round
}
BREAKDOWN_DIMS: dict[str, tuple[str, ...]] = {
    "share": (),  # least attackers over honest clients whose error is above 4 tau^2
    "radius": (),  # Theorem 1's tau there
}


@configuration
class Config:
    """Everything that the experiment depends on. One field, one flag."""

    attack: tuple[str, ...]
    """Names in `cfljax.attacks.ATTACKS`, each with its defaults."""
    share: tuple[float, ...]
    """Attackers over the target's honest clients, beta / delta; 0 comes first."""
    num_trials: int  # Sets of honest points.
    radii: tuple[Radii, ...] = ("fixed", "quantile", "inner", "outer")
    """Theorem 1's tau, a quantile of the distances, gaps between them."""
    broken_separation: tuple[float, ...] = (50.0, 200.0, 800.0)
    """Deltas at which breakdowns are sought."""
    broken_attack: tuple[str, ...] = ("edge_adaptive", "edge_static", "staged")
    """Attacks whose breakdowns are sought."""
    num_clusters: int = 4  # K.
    num_members: int = 50  # n, honest clients of each cluster.
    num_places: int = 75  # Most attackers, in breakdowns as well.
    num_features: int = 10  # d.
    num_rounds: int = 100  # l, clipping rounds.
    noise: float = 1.0  # Sigma, the root of the sum of all coordinates' variances.
    separation: float = 200.0  # Delta, of any two clusters.
    quantile: float = 0.2  # Of the rule `quantile`.
    seed: int = 0  # Of all trials.
    error_rate: float = 0.05
    """Of all intervals of influences together, and of each other one."""

    def __post_init__(self) -> None:
        check_values(self, "attack", "share", "radii")
        check_values(self, "broken_separation", "broken_attack")
        check_several(num_trials=self.num_trials)
        if self.share[0] != 0:
            raise ValueError(f"`share` must start with 0, got {self.share}.")
        if "edge_adaptive" not in self.broken_attack:
            raise ValueError(
                "`broken_attack` must hold edge_adaptive, which has a prediction, "
                f"got {self.broken_attack}."
            )
        for grid in _grids(self):
            grid.cells()  # They check what they share.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    known = ("edge_adaptive", "edge_static", "staged", "alie", "gaussian", "mimic")
    shares = (0.0, 0.1, 0.24, 0.5, 0.76, 0.9, 1.1, 1.5)  # of 50 clients
    if name == "quick":
        return Config(
            attack=(*known, "sign_flip", "other_mean"),
            share=shares,
            num_trials=10,
            radii=("fixed", "quantile", "inner"),
        )
    others = ("sign_flip", "ipm", "other_mean", "bit_flip", "zero", "noise", "nan")
    more = (0.04, 0.36, 0.6, 0.8, 0.84, 1.0, 1.24)
    return Config(
        attack=known + others, share=tuple(sorted((*shares, *more))), num_trials=100
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figures."""
    own = study.Study(EXPERIMENT, config, options)
    errors, breakdowns = _grids(config)
    table = rows(own.sweep(errors, simulate), config)
    broken = breakdown_rows(own.sweep(breakdowns, breakdown), config)
    return own.finish(
        tables={"table": (table, COLUMNS), "breakdown": (broken, BREAKDOWN_COLUMNS)},
        note=note(table, broken),
        figures=draw(table, broken, config) | {"influence": draw_influence(table)},
        overview=overview(table),
    )


def _grids(config: Config) -> tuple[engine.Grid, engine.Grid]:
    """Errors of all attacks, and breakdowns of some with Theorem 1's radius."""
    axes = study.fields(config, "radii", "attack", "share")
    first = study.trial_of(Trial, config, **{name: axes[name][0] for name in axes})
    known: Any = {"num_trials": config.num_trials, "seed": config.seed}
    known["revision"] = REVISION
    errors = engine.Grid(
        experiment=EXPERIMENT,
        trial=first,
        axes=axes,
        traced=("share", "noise", "separation", "quantile"),
        dims=DIMS,
        **known,
    )
    return errors, engine.Grid(
        experiment=f"{EXPERIMENT}.breakdown",
        trial=dataclasses.replace(first, radii="fixed", share=0.0),
        axes={"attack": config.broken_attack, "separation": config.broken_separation},
        traced=("share", "noise", "separation", "quantile"),
        dims=BREAKDOWN_DIMS,
        **known,
    )


@configuration
class Trial:
    """Everything that one trial's law depends on."""

    attack: str
    radii: Radii
    share: float  # attackers over the target's honest clients, beta / delta
    noise: float
    separation: float
    quantile: float
    num_clusters: int
    num_members: int
    num_places: int  # the most attackers there can be
    num_features: int
    num_rounds: int

    def __post_init__(self) -> None:
        if self.attack not in ATTACKS:
            raise ValueError(
                f"`attack` must be in {tuple(ATTACKS)}, got {self.attack!r}."
            )
        check_member(Radii, radii=self.radii)
        if not 2 <= self.num_clusters <= self.num_features:
            raise ValueError(
                "`num_clusters` must be at least 2 and at most `num_features`, got "
                f"{self.num_clusters} and {self.num_features}."
            )
        most = self.num_places / self.num_members
        if not 0 <= self.share <= most:
            raise ValueError(f"`share` must be in [0, {most:g}], got {self.share}.")
        number = self.share * self.num_members
        if abs(number - round(number)) > 1e-6:
            raise ValueError(
                "`share` must be a whole number of attackers over `num_members`, got "
                f"{self.share} of {self.num_members}."
            )
        check_in(POSITIVE, noise=self.noise, separation=self.separation)
        if not 0 <= self.quantile <= 1:
            raise ValueError(f"`quantile` must be from 0 to 1, got {self.quantile}.")


class Crowd(NamedTuple):
    """Honest points, then places for attackers: points NaN, clusters -1."""

    points: Float[Array, "clients features"]
    clusters: Int[Array, " clients"]
    mean: Float[Array, " features"]  # mu, the true one of the target, cluster 0


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """One set of honest points, which all attacks share: the arrays of `DIMS`."""
    points_key, attack_key = jax.random.split(key)
    number = jnp.round(trial.share * trial.num_members).astype(int)
    error, radius = _attacked(trial, _crowd(trial, points_key), attack_key, number)
    return {"error": error, "radius": radius}


def breakdown(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """The fewest attackers that send a centre away: the arrays of `BREAKDOWN_DIMS`.

    Away is an error above 4 tau^2. Of the numbers from 1 to `num_places` bisection
    finds the least if whatever does so for some does for more, as an edge does; the
    share is infinite where not even `num_places` do.
    """
    points_key, attack_key = jax.random.split(key)
    crowd = _crowd(trial, points_key)

    def halve(_: Array, ends: tuple[Array, Array]) -> tuple[Array, Array]:
        held, lost = ends  # It holds against so many, and is lost or beyond at so many.
        middle = (held + lost) // 2
        error, _ = _attacked(trial, crowd, attack_key, middle)
        broken = ~(error <= BROKEN * jnp.square(_theorem(trial, middle)))
        return jnp.where(broken, held, middle), jnp.where(broken, middle, lost)

    steps = math.ceil(math.log2(trial.num_places + 1))
    first = (jnp.zeros((), int), jnp.full((), trial.num_places + 1))
    _, lost = jax.lax.fori_loop(0, steps, halve, first)
    share = lost.astype(crowd.points.dtype) / trial.num_members
    share = jnp.where(lost > trial.num_places, jnp.inf, share)
    return {"share": share, "radius": _theorem(trial, lost)}


def _crowd(trial: Trial, key: PRNGKeyArray) -> Crowd:
    """Clusters at the corners of a simplex with edges Delta, sigma^2 over all axes."""
    corner = jnp.eye(trial.num_clusters, trial.num_features)
    means = trial.separation / math.sqrt(2) * corner
    honest = jnp.arange(trial.num_clusters * trial.num_members) // trial.num_members
    shape = (honest.shape[0], trial.num_features)
    spread = trial.noise / math.sqrt(trial.num_features)
    points = means[honest] + spread * flat_normal(key, shape)
    absent = jnp.full((trial.num_places, trial.num_features), jnp.nan, points.dtype)
    clusters = jnp.concatenate([honest, jnp.full((trial.num_places,), -1)])
    return Crowd(jnp.concatenate([points, absent]), clusters, means[0])


def _attacked(
    trial: Trial, crowd: Crowd, key: PRNGKeyArray, number: Int[Array, ""]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """Squared error and radius of the target's centre, which starts at a member.

    The adaptive attack is asked in every round, all others once: clients send once.
    """
    attack, adaptive = build(trial.attack), trial.attack == "edge_adaptive"
    place = jnp.arange(crowd.clusters.shape[0])
    num_honest = trial.num_clusters * trial.num_members
    byzantine = (place >= num_honest) & (place < num_honest + number)
    crowd = crowd._replace(clusters=jnp.where(byzantine, 0, crowd.clusters))
    there = (num_honest + number).astype(crowd.points.dtype)
    # Attackers count on a radius, the lure: they ask a rule for the honest points
    # alone. Those at the distance of the last honest point within a quantile take the
    # places behind it, and so the quantile.
    if trial.radii == "fixed":
        radius = lure = _theorem(trial, number)
    elif trial.radii == "quantile":
        at = trial.quantile * (there - 1)
        radius, lure = order_statistic(at), order_statistic(jnp.floor(at))
    else:
        radius = lure = gap_radius(trial.radii)
    start = crowd.points[0]

    def send(centre: Float[Array, " features"]) -> Float[Array, "clients features"]:
        known = lure
        if callable(lure):
            known = threshold_clustering(
                crowd.points, centre[None], num_rounds=1, radius=lure
            ).radii[0, 0]
        context = Context(clusters=crowd.clusters, start=start, centre=centre)
        return attack(key, crowd.points, byzantine, context._replace(radius=known))

    once = send(start)

    def clip(centre: Array, _: None) -> tuple[Array, Array]:
        messages = send(centre) if adaptive else once
        found = threshold_clustering(
            messages, centre[None], num_rounds=1, radius=radius
        )
        move = found.centres[0] - centre
        return centre + move * (place.shape[0] / there), found.radii[0, 0]

    centre, used = jax.lax.scan(clip, start, None, length=trial.num_rounds)
    return jnp.sum(jnp.square(centre - crowd.mean)), used[-1]


def _theorem(trial: Trial, number: Array) -> Float[Array, ""]:
    """tau of Theorem 1 with so many attackers."""
    share = number.astype(jnp.result_type(float)) / trial.num_members
    scale = trial.num_clusters, trial.noise, trial.separation
    return jnp.sqrt(squared_radius(share, *scale))


def squared_radius(share: Any, num_clusters: int, noise: Any, separation: Any) -> Any:
    """tau^2 = delta sigma Delta of Theorem 1, all clusters having as many clients.

    delta is 1 / (K + share) for the share beta / delta of attackers.
    """
    return noise * separation / (num_clusters + share)


def order_statistic(at: Array) -> Rule:
    """`quantile_radius` at a traced place q (N - 1) among distances, from 0."""

    def rule(distances: Float[Array, " points"]) -> Float[Array, ""]:
        index = jnp.floor(at).astype(int)
        low = distances[index]
        high = distances[jnp.minimum(index + 1, distances.shape[0] - 1)]
        exact = (low == high) | (at == jnp.floor(at))  # Also two infinite ones.
        return jnp.where(exact, low, low + (at - jnp.floor(at)) * (high - low))

    return rule


COLUMNS = {
    "radii": "radius",
    "attack": "attack",
    "share": "β / δ",
    **study.interval_columns("error", "error"),
    "radius": "last τ",
    "bound": "(β / δ)² τ²",
    **study.interval_columns("influence", "influence"),
}
BREAKDOWN_COLUMNS = {
    "attack": "attack",
    "separation": "Δ",
    "found": "trials broken",
    **study.interval_columns("share", "breakdown β / δ"),
    "predicted": "1 − σ / τ",
}


def predicted_breakdown(num_clusters: int, noise: float, separation: float) -> float:
    """The share s at which s = 1 - sigma / tau(s), 0 if tau is never above sigma: there
    the adaptive edge moves the centre by s tau, to where honest points just reach in.
    """
    share = 0.0
    for _ in range(100):  # A contraction: the slope is sigma / (2 tau (K + s)) < 1 / 8.
        square = squared_radius(share, num_clusters, noise, separation)
        share = max(0.0, 1 - noise / math.sqrt(square))
    return share


def rows(results: xr.Dataset, config: Config) -> list[Row]:
    """One row for each radius, attack and share; the influence is that beside the same
    trial without attackers, at a fixed radius, by joint intervals.
    """
    shares = results["share"].values.tolist()
    number = results.sizes["attack"] * (len(shares) - 1)
    scale = config.num_clusters, config.noise, config.separation
    end = predicted_breakdown(*scale)
    table = []
    for at, cell in study.cells(results, "radii", "attack"):
        errors = cell["error"].values.astype(float)  # [share, trial]
        for index, share in enumerate(shares):
            row = at | {"share": share}
            row |= study.interval(errors[index], "error", config.error_rate)
            row["radius"] = float(cell["radius"].values[index].mean())
            row["bound"] = share**2 * squared_radius(share, *scale)
            row["below"] = share < end
            if at["radii"] == "fixed" and share:
                gained = (errors[index] - errors[0]) / row["bound"]
                row |= study.interval(gained, "influence", config.error_rate / number)
            table.append(row)
    return table


def breakdown_rows(results: xr.Dataset, config: Config) -> list[Row]:
    """One row for each attack and separation; no share unless every trial broke."""
    table = []
    for row, cell in study.cells(results, "attack", "separation"):
        shares = cell["share"].values.astype(float)
        found = int(np.isfinite(shares).sum())
        scale = config.num_clusters, config.noise, row["separation"]
        row["found"] = f"{found}/{len(shares)}"
        row |= dict.fromkeys(("share", "share_low", "share_high", "threshold"))
        if found == len(shares):
            row |= study.interval(shares, "share", config.error_rate)
            row["threshold"] = BROKEN * squared_radius(row["share"], *scale)
        if row["attack"] == "edge_adaptive":
            row["predicted"] = predicted_breakdown(*scale)
        table.append(row)
    return table


def overview(table: Rows) -> list[Row]:
    """Errors only, shares across."""
    found: dict[tuple, Row] = {}
    for line in table:
        start = {"radius": line["radii"], "attack": line["attack"]}
        row = found.setdefault((line["radii"], line["attack"]), start)
        row[f"β/δ = {line['share']:g}"] = line["error"]
    return list(found.values())


def note(table: Rows, broken: Rows) -> str:
    """The rules' decisions, made from the rows."""
    text = []
    asked = [row for row in table if row["below"] and "influence" in row]
    above = [row for row in asked if not row["influence_low"] <= 1]
    if asked:
        most = max(asked, key=lambda row: row["influence"])
        text.append(
            "Influence at most 1 below the predicted breakdown: "
            f"{'no' if above else 'yes'}, in {len(asked) - len(above)} of {len(asked)} "
            f"settings; the largest is {most['influence']:.3g} "
            f"[{most['influence_low']:.3g}, {most['influence_high']:.3g}], by "
            f"{most['attack']} at {most['share']:g}."
        )
    for row in broken:
        if row["attack"] != "edge_adaptive":
            continue
        where = f"Breakdown of the adaptive edge at Δ = {row['separation']:g}"
        if row["share"] is None:
            text.append(f"{where}: none in some trials ({row['found']} broke).")
            continue
        near = abs(row["share"] - row["predicted"]) <= NEAR
        text.append(
            f"{where}: {row['share']:.3g} [{row['share_low']:.3g}, "
            f"{row['share_high']:.3g}], predicted {row['predicted']:.3g}; within "
            f"{NEAR:g}: {'yes' if near else 'no'}."
        )
    return "\n".join(text)


RADII = {
    "fixed": "fixed radius τ = √(δσΔ)",
    "quantile": "quantile of the distances",
    "inner": "inner gap of the distances",
    "outer": "outer gap of the distances",
}
SHARE = "attackers per honest member, β/δ"
BREAKDOWN_LABEL = "adaptive edge breaks down"
_LIMITS = (5e-3, 1e5)
_AT_A_TIME = 6  # Attacks of one figure; the breakdown is the seventh name.


def draw(table: Rows, broken: Rows, config: Config) -> dict[str, Figure]:
    """Errors, a panel for each radius and a figure for each few attacks."""
    attacks = list(study.groups(table, "attack"))
    figures = {}
    for first in range(0, len(attacks), _AT_A_TIME):
        shown = attacks[first : first + _AT_A_TIME]
        panels = []
        for radii, own in study.groups(table, "radii").items():
            curves = [_curve(own, attack, "error") for attack in shown]
            if radii == "fixed" and "edge_adaptive" in shown:
                curves += _predicted(broken, config)
            panel = report.CurvePanel(
                curves,
                x_label=SHARE,
                y_label="squared error of the centre",
                y_limits=_LIMITS,
                log_y=True,
                title=RADII[radii],
                aside=False,
            )
            panels.append(panel)
        name = "errors" if not first else f"errors_{first // _AT_A_TIME + 1}"
        figures[name] = report.curves(
            panels,
            title="Threshold-Clustering of one cluster's centre under attack",
            legend_title="means with intervals",
            panels_per_row=3 if len(panels) == 3 else 2,
        )
    return figures


def draw_influence(table: Rows) -> Figure:
    """Influences with the fixed radius below the predicted breakdown.

    Of more attacks than a panel can tell apart, those of most influence.
    """
    own = [row for row in table if row["below"] and "influence" in row]
    most: dict[str, float] = {}
    for row in own:
        most[row["attack"]] = max(most.get(row["attack"], -np.inf), row["influence"])
    shown = sorted(most, key=lambda attack: -most[attack])[:_AT_A_TIME]
    panel = report.CurvePanel(
        [_curve(own, attack, "influence") for attack in shown],
        x_label=SHARE,
        y_label="(Err − Err(0)) / ((β/δ)² τ²)",
        y_limits=None,
        title=RADII["fixed"],
        aside=False,
        levels=[report.Level("bound", 1.0, shown[0].replace("_", " "))],
    )
    return report.curves(
        [panel],
        title="Influence of attackers",
        legend_title="means with joint intervals, most influence first",
    )


def _curve(rows: Rows, attack: str, name: str) -> report.Curve:
    own = [row for row in rows if row["attack"] == attack]
    names = ("share", name, f"{name}_low", f"{name}_high")
    at, mean, low, high = (study.column(own, name) for name in names)
    if name == "error":  # A logarithmic axis has no room for what is not positive.
        low = np.maximum(low, _LIMITS[0] / 2)
    return report.Curve(attack.replace("_", " "), at, mean, low, high)


def _predicted(broken: Rows, config: Config) -> list[report.Curve]:
    """The exact error of the adaptive edge, and where it ends."""
    scale = config.num_clusters, config.noise, config.separation
    at = np.linspace(0, predicted_breakdown(*scale), 100)
    square = np.array([squared_radius(share, *scale) for share in at])
    exact = config.noise**2 / config.num_members + at**2 * square
    like = "edge adaptive"
    curves = [report.Curve("its prediction σ²/n + (β/δ)² τ²", at, exact, like=like)]
    wanted = ("edge_adaptive", config.separation)
    for row in broken:
        if (row["attack"], row["separation"]) == wanted and row["share"] is not None:
            place = np.array([row["share"]]), np.array([row["threshold"]])
            curves.append(report.Curve(BREAKDOWN_LABEL, *place))
            ends = np.full(2, row["predicted"]), np.array(_LIMITS)
            curves.append(
                report.Curve("its prediction 1 − σ/τ", *ends, like=BREAKDOWN_LABEL)
            )
    return curves
