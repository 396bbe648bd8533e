"""IFCA, Figure 3(d): success against clients and samples, four clusters.

Command:   python -m experiments run ifca.fig3d --preset paper
Quick:     the same with --preset quick: m = 40, 80, 160, n = 25, 50, 100,
           d = 200, 10 trials
Measured:  two cores of an AMD EPYC, a worker on each, without other work: paper,
           both conventions, trials 66 min, law 8 min; successes in figures/ifca.fig3d
Law:       at m = 100 not rising with n: 20, 1 and 33 of 40. Step size 1 comes to
           rest near the threshold at n = 50 (`law.error_floor`: 0.0603), and noise
           helps to find the clusters: 66 of its 400 restarts do, 1 at n = 100
Paper:     d = 1000, k = 4, R = 0.5, 40 trials: success rises with m n.
           The text leaves open sigma in panels c and d (0.1 in the released scripts)
           and that the released theta* is not rescaled (`fig3.Config.convention`).
"""

from typing import Any, Literal

from experiments.ifca.fig3 import Config, run_panel
from experiments.options import Options

__all__ = ["main", "preset"]


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            convention=("reference", "paper"),
            separation=(0.5,),
            noise=(0.1,),
            num_clients=(40, 80, 160),
            num_samples=(25, 50, 100),
            num_clusters=4,
            num_features=200,
            step_sizes=(2.0, 1.0, 0.5),
            num_trials=10,
            shortcuts=False,
            tolerance=0.0,
        )
    return Config(
        convention=("reference", "paper"),
        separation=(0.5,),
        noise=(0.1,),
        num_clients=(100, 200, 300, 400, 800),
        num_samples=(50, 100, 200),
        num_clusters=4,
        num_features=1000,
        step_sizes=(2.0, 1.0, 0.5),
        num_trials=40,
        decide=True,
        tolerance=0.0,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute the panel and write its table and figures."""
    return run_panel(
        "ifca.fig3d",
        config,
        options,
        axes=("samples", "clients"),
        title="IFCA, Figure 3(d): four clusters, R = 0.5, σ = 0.1",
    )
