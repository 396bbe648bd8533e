"""Werner et al., Figure 2: the constants of Assumptions 4 and 5 along the way.

Command:   python -m experiments run werner.fig2 --preset paper
Quick:     the same with --preset quick: 3 data sets instead of 20
Measured:  quick, 11 s on one of two busy cores of an Intel Xeon: on the way (7) is at
           most 164, 3 to 2,400 times as much in a cluster's last round as in its first,
           and (8) at least .5; over all models (7) reaches 365, and (8) is 3e-9 where
           two clients' gradients meet
Paper:     one run: the intra-cluster ratio (7) does not grow with time, and the
           inter-cluster gap (8) stays above a positive constant, hence "Assumptions
           4 and 5 are realistic in practice". Curves only, without numbers.

(7) is |grad f_i - grad f|^2 / |grad f|^2 for f the mean loss of the own cluster,
bounded by A^2 in Assumption 4; (8), printed with the same client twice, is
|grad f_i - grad f_j|^2 over clients of different clusters, bounded below by Delta^2
in Assumption 5 with D = 0. Both assumptions speak of all models; the figure, of those
on the way. What (7) can be over all models is computed beside it (`sup`), and (8) at
the one model where two clients' gradients meet.

The paper leaves open the law of the minimisers, at which mean the clusters begin, the
step size, the start and the number of rounds: `synthetic`, `fig2_trial`. With d = 10
and n = 9 a client has fewer equations than unknowns.
"""

import dataclasses
import math
import time
from typing import Any, Literal

from cfljax import engine
from experiments.options import Options
from experiments.werner.fig2_report import COLUMNS, draw, note, rows
from experiments.werner.fig2_trial import DIMS, Trial, simulate
from experiments.werner.synthetic import Minimisers
from experiments.werner.write import finish, run

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "werner.fig2"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the figure depends on. One field, one flag."""

    num_trials: int
    """Data sets; the first is drawn."""
    minimisers: Minimisers = "normal"
    """Law of the true models: normal, N(0, I); reference, 100 x Bernoulli(1/2)."""
    first_mean: float = 1.0
    """Mean of the first cluster's inputs; the next ones have one more each."""
    num_clusters: int = 4
    """K."""
    num_members: int = 75
    """n_i, clients of each cluster."""
    num_samples: int = 9
    """n, per client."""
    num_features: int = 10
    """d."""
    num_rounds: int = 300
    """T, steps of gradient descent."""
    seed: int = 0
    """Of all data sets."""

    def __post_init__(self) -> None:
        if self.num_trials < 1:
            raise ValueError(f"`num_trials` must be at least 1, got {self.num_trials}.")
        if not math.isfinite(self.first_mean):
            raise ValueError(f"`first_mean` must be finite, got {self.first_mean}.")
        _ = self.trial  # It checks what it shares.

    @property
    def trial(self) -> Trial:
        """The fields of one data set."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(Trial)}
        return Trial(**own)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return Config(num_trials=3 if name == "quick" else 20)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write the figure and its numbers.

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
        axes={"first_mean": (config.first_mean,)},
        num_trials=config.num_trials,
        dims=DIMS,
        coords={"round": list(range(config.num_rounds))},
        seed=config.seed,
        revision=REVISION,
    )
    results = run(grid, simulate, "results", options)
    table = rows(results, num_members=config.num_members)
    return finish(
        EXPERIMENT,
        config,
        options,
        rows=table,
        columns=COLUMNS,
        note=note(table, results),
        figures={"constants": draw(results, num_members=config.num_members)},
        results=[results],
        started=started,
    )
