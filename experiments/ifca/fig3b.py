"""IFCA, Figure 3(b): success against separation and noise, four clusters.

Command:   python -m experiments run ifca.fig3b --preset paper
Quick:     the same with --preset quick: m = 40, n = 50, d = 200, 10 trials
Measured:  two cores of an AMD EPYC, a worker on each, without other work: paper,
           both conventions, trials 51 min, law 10 min; successes in figures/ifca.fig3b
Paper:     m = 400, n = 100, d = 1000, k = 4, 40 trials: success rises with R.
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
            separation=(0.1, 0.25, 0.5, 0.75, 1.0),
            noise=(0.0, 0.1, 0.2, 0.4),
            num_clients=(40,),
            num_samples=(50,),
            num_clusters=4,
            num_features=200,
            step_sizes=(2.0, 1.0, 0.5),
            num_trials=10,
            shortcuts=False,
            tolerance=0.001,
        )
    return Config(
        convention=("reference", "paper"),
        separation=(0.1, 0.25, 0.5, 0.75, 1.0),
        noise=(0.0, 0.1, 0.2, 0.4),
        num_clients=(400,),
        num_samples=(100,),
        num_clusters=4,
        num_features=1000,
        step_sizes=(2.0, 1.0, 0.5),
        num_trials=40,
        decide=True,
        tolerance=0.001,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute the panel and write its table and figures."""
    return run_panel(
        "ifca.fig3b",
        config,
        options,
        axes=("noise", "separation"),
        title="IFCA, Figure 3(b): four clusters",
    )
