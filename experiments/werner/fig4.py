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
box of scikit-learn); four starts are compared (`fig4_trial.Start`). The formula names
no threshold, its numerator is negative where distances fall, and it is -1 in the step
that reaches the minimum whatever the curve; `fig4_report.elbow` is what it may mean.
Theorem 1 asks for l >= log(sigma / Delta) / log(1 - delta / 2) rounds, which falls with
sigma; there sigma^2 is the sum of the variances of all coordinates.
"""

import dataclasses
import math
import time
from typing import Any, Literal

from cfljax import engine
from experiments.options import Options
from experiments.werner.fig4_figures import (
    draw_distances,
    draw_elbows,
    draw_printed,
)
from experiments.werner.fig4_report import COLUMNS, note, rows
from experiments.werner.fig4_trial import DIMS, Start, Trial, simulate
from experiments.werner.write import check_different, check_interval, finish, run

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "werner.fig4"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the figure depends on. One field, one flag."""

    num_trials: int
    """Repetitions, with their own true centres."""
    start: tuple[Start, ...] = ("member", "random", "near", "origin")
    """What centres start from; see `fig4_trial.Start`."""
    deviation: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    """Sigma of each coordinate within a cluster."""
    quantile: float = 0.1
    """Of the distances, the radius of a round."""
    num_clusters: int = 10
    """K."""
    num_members: int = 9
    """Samples of each cluster."""
    num_features: int = 10
    """d."""
    num_rounds: int = 100
    """Largest l."""
    box: float = 10.0
    """True centres are uniform in [-box, box]^d."""
    spread: float = 3.0
    """Standard deviation of `near`, of each coordinate."""
    threshold: float = 0.01
    """Of the corrected elbow: the share of the whole fall that a round must bring."""
    seed: int = 0
    """Of all repetitions."""
    error_rate: float = 0.05
    """Of each interval."""

    def __post_init__(self) -> None:
        check_different(start=self.start, deviation=self.deviation)
        check_interval(self.error_rate, self.num_trials)
        for name in ("box", "spread"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise ValueError(f"`{name}` must be positive, got {value}.")
        if not all(math.isfinite(own) and own > 0 for own in self.deviation):
            raise ValueError(f"`deviation` must be positive, got {self.deviation}.")
        if not 0 < self.threshold < 1:
            raise ValueError(f"`threshold` must be in (0, 1), got {self.threshold}.")
        _ = self.trial  # It checks what it shares.

    @property
    def trial(self) -> Trial:
        """The fields that all cells share, and the first value of each axis."""
        fields = dataclasses.fields(Trial)
        own: dict[str, Any] = {f.name: getattr(self, f.name) for f in fields}
        own["start"], own["deviation"] = self.start[0], self.deviation[0]
        own["quantile"] = repr(self.quantile)  # Static: the rule rounds it.
        return Trial(**own)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return Config(num_trials=10 if name == "quick" else 200)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write the figures and their numbers.

    Args:
      config: of the experiment.
      options: how to run.

    Returns:
      A summary for the command line.
    """
    started = time.perf_counter()
    grid = engine.Grid(
        experiment=EXPERIMENT,
        trial=config.trial,
        axes={"start": config.start, "deviation": config.deviation},
        num_trials=config.num_trials,
        dims=DIMS,
        coords={"round": list(range(config.num_rounds + 1))},
        seed=config.seed,
        revision=REVISION,
    )
    results = run(grid, simulate, "results", options)
    known = {"threshold": config.threshold, "error_rate": config.error_rate}
    table = rows(
        results,
        num_clusters=config.num_clusters,
        num_features=config.num_features,
        **known,
    )
    return finish(
        EXPERIMENT,
        config,
        options,
        rows=table,
        columns=COLUMNS,
        note=note(table),
        figures={
            "distances": draw_distances(results, error_rate=config.error_rate),
            "printed": draw_printed(results),
            "elbows": draw_elbows(table),
        },
        results=[results],
        started=started,
    )
