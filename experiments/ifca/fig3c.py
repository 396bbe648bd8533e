"""IFCA, Figure 3(c): success against clients and samples, two clusters.

Command:   python -m experiments run ifca.fig3c --preset paper
Quick:     the same with --preset quick: m = 20, 40, 80, n = 25, 50, 100,
           d = 200, 10 trials
Measured:  two cores of an AMD EPYC, a worker on each, without other work: paper,
           both conventions, trials 28 min, law 1 min; successes in figures/ifca.fig3c
Paper:     d = 1000, k = 2, R = 0.1, 40 trials: success rises with m n.
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
            separation=(0.1,),
            noise=(0.1,),
            num_clients=(20, 40, 80),
            num_samples=(25, 50, 100),
            num_clusters=2,
            num_features=200,
            step_sizes=(1.0, 0.1, 0.01),
            num_trials=10,
            shortcuts=False,
            tolerance=0.0,
        )
    return Config(
        convention=("reference", "paper"),
        separation=(0.1,),
        noise=(0.1,),
        num_clients=(50, 70, 100, 150, 200, 300, 400),
        num_samples=(50, 100, 200),
        num_clusters=2,
        num_features=1000,
        step_sizes=(1.0, 0.1, 0.01),
        num_trials=40,
        decide=True,
        tolerance=0.0,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute the panel and write its table and figures."""
    return run_panel(
        "ifca.fig3c",
        config,
        options,
        axes=("samples", "clients"),
        title="IFCA, Figure 3(c): two clusters, R = 0.1, σ = 0.1",
    )
