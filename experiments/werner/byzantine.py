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
import time
from typing import Any, Literal

from cfljax import engine
from experiments.options import Options
from experiments.werner.byzantine_figures import draw, draw_influence
from experiments.werner.byzantine_radii import Radii
from experiments.werner.byzantine_report import (
    BREAKDOWN_COLUMNS,
    COLUMNS,
    breakdown_rows,
    note,
    overview,
    rows,
)
from experiments.werner.byzantine_trial import (
    BREAKDOWN_DIMS,
    DIMS,
    Trial,
    breakdown,
    simulate,
)
from experiments.werner.write import check_different, check_interval, finish, run

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "werner.byzantine"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the experiment depends on. One field, one flag."""

    attack: tuple[str, ...]
    """Names in `cfljax.attacks.ATTACKS`, each with its defaults."""
    share: tuple[float, ...]
    """Attackers over the target's honest clients, beta / delta; 0 comes first."""
    num_trials: int
    """Sets of honest points."""
    radii: tuple[Radii, ...] = ("fixed", "quantile", "inner", "outer")
    """Theorem 1's tau, a quantile of the distances, gaps between them."""
    broken_separation: tuple[float, ...] = (50.0, 200.0, 800.0)
    """Deltas at which breakdowns are sought."""
    broken_attack: tuple[str, ...] = ("edge_adaptive", "edge_static", "staged")
    """Attacks whose breakdowns are sought."""
    num_clusters: int = 4
    """K."""
    num_members: int = 50
    """n, honest clients of each cluster."""
    num_places: int = 75
    """Most attackers, in breakdowns as well."""
    num_features: int = 10
    """d."""
    num_rounds: int = 100
    """l, clipping rounds."""
    noise: float = 1.0
    """Sigma, the root of the sum of all coordinates' variances."""
    separation: float = 200.0
    """Delta, of any two clusters."""
    quantile: float = 0.2
    """Of the rule `quantile`."""
    seed: int = 0
    """Of all trials."""
    error_rate: float = 0.05
    """Of all intervals of influences together, and of each other one."""

    def __post_init__(self) -> None:
        for name in ("attack", "share", "radii", "broken_separation", "broken_attack"):
            check_different(**{name: getattr(self, name)})
        check_interval(self.error_rate, self.num_trials)
        if self.share[0] != 0:
            raise ValueError(f"`share` must start with 0, got {self.share}.")
        if "edge_adaptive" not in self.broken_attack:
            raise ValueError(
                "`broken_attack` must hold edge_adaptive, which has a prediction, "
                f"got {self.broken_attack}."
            )
        for grid in _grids(self).values():
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
    """Compute what the stores lack, then write tables and figures.

    Args:
      config: of the experiment.
      options: how to run.

    Returns:
      A summary for the command line.
    """
    started = time.perf_counter()
    functions = {"errors": simulate, "breakdown": breakdown}
    results = {
        name: run(grid, functions[name], name, options)
        for name, grid in _grids(config).items()
    }
    known = {"num_clusters": config.num_clusters, "error_rate": config.error_rate}
    table = rows(
        results["errors"], noise=config.noise, separation=config.separation, **known
    )
    broken = breakdown_rows(results["breakdown"], noise=config.noise, **known)
    return finish(
        EXPERIMENT,
        config,
        options,
        rows=table,
        columns=COLUMNS,
        note=note(table, broken),
        overview=overview(table),
        figures={
            **draw(
                table,
                broken,
                separation=config.separation,
                noise=config.noise,
                num_members=config.num_members,
                num_clusters=config.num_clusters,
            ),
            "influence": draw_influence(table),
        },
        results=list(results.values()),
        started=started,
        others={"breakdown": (broken, BREAKDOWN_COLUMNS)},
    )


def _grids(config: Config) -> dict[str, engine.Grid]:
    """Errors of all attacks, and breakdowns of some with Theorem 1's radius."""
    own = {name: getattr(config, name) for name in vars(config)}
    shared = {f.name: own[f.name] for f in dataclasses.fields(Trial)}
    first = Trial(
        **(shared | {axis: own[axis][0] for axis in ("attack", "radii", "share")})
    )
    known: Any = {"num_trials": config.num_trials, "seed": config.seed}
    errors = engine.Grid(
        experiment=EXPERIMENT,
        trial=first,
        axes={axis: own[axis] for axis in ("radii", "attack", "share")},
        dims=DIMS,
        revision=REVISION,
        **known,
    )
    broken = engine.Grid(
        experiment=f"{EXPERIMENT}.breakdown",
        trial=dataclasses.replace(first, radii="fixed", share=0.0),
        axes={
            "attack": config.broken_attack,
            "separation": config.broken_separation,
        },
        dims=BREAKDOWN_DIMS,
        revision=REVISION,
        **known,
    )
    return {"errors": errors, "breakdown": broken}
