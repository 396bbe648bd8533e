"""CLoVE, Figure 5: test losses of clients of all clusters under all models.

Command:   python -m experiments run clove.fig5 --preset paper --data FOLDER
Quick:     the same with --preset quick: 3 clients a cluster of 100 samples, 15 rounds,
           batches of 10 and a narrow autoencoder (64 hidden units, 16 in the middle);
           without data, on the digits embedded in scikit-learn
Measured:  quick on MNIST, 43 s on two cores of an Intel Xeon, one of them busy: CLoVE's
           diagonal is the least of every row (mean 0.0310), and in all 10 rows less
           than FedAvg's loss (0.0552) and the local models' (0.0341); IFCA trains 3 of
           its 10 models, with a mean loss of all clients of 0.0471 against CLoVE's
           0.0321. The paper preset has not been run
Paper:     one seed, M = 50 clients of n = 250 samples: CLoVE's diagonal is the least of
           every row, and less than FedAvg's and the local models'; IFCA trains 3 of its
           10 models, none of which is the best for its clients. The numbers are in a
           picture only, times a constant that is not named.
"""

import dataclasses
import json
import time
from typing import Any, Literal

from cfljax import engine, report
from experiments.clove.config import PAPER, QUICK, Config
from experiments.clove.fig5_report import draw, markdown, rows
from experiments.clove.fig5_trial import DIMS, simulate
from experiments.clove.study import compute, planned, sources
from experiments.options import Options

__all__ = ["REVISION", "main", "preset"]

EXPERIMENT = "clove.fig5"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return dataclasses.replace(
            QUICK,
            partitions=("one_class",),
            reconstruct=True,
            num_hidden=64,
            num_latent=16,
            num_rounds=15,
            num_trials=1,
        )
    return dataclasses.replace(
        PAPER,
        datasets=("mnist",),
        partitions=("one_class",),
        reconstruct=True,
        num_samples=(250,),
        num_hidden=128,
        num_trials=1,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure.

    Args:
      config: of the experiment.
      options: how to run; `data` is the folder of the samples.

    Returns:
      A summary for the command line: files, table, and which samples were used.

    Raises:
      ValueError: if the samples do not suffice, or are damaged, or nothing is to be
        reconstructed.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    started = time.perf_counter()
    if not config.reconstruct:
        raise ValueError("`reconstruct` must be true: the figure shows its losses.")
    loaded = sources(config, options)
    results = [
        compute(options, _observed(grid), source, simulate)
        for grid, source in planned(config, loaded)
    ]
    table = [row for result in results for row in rows(result)]
    text = markdown(table)
    out = options.out
    report.write_csv(out / "table.csv", table)
    report.write_text(out / "table.md", text)
    settings = dataclasses.asdict(config)
    settings["sources"] = [source.samples.source for source in loaded]
    report.write_text(out / "config.json", json.dumps(settings, indent=2) + "\n")
    files = [out / name for name in ("table.csv", "table.md", "config.json")]
    figure = draw(results)
    files += [] if figure is None else report.save(figure, out / "losses")
    return {
        "experiment": EXPERIMENT,
        "sources": settings["sources"],
        "headline": "".join(source.note for source in loaded) + text,
        "files": [str(path) for path in files],
        "seconds": round(time.perf_counter() - started, 2),
        "failed_cells": sum(int(result.data.attrs["failures"]) for result in results),
        "rows": table,
    }


def _observed(shared: engine.Grid) -> engine.Grid:
    """A grid of the study, whose trials are observed anew."""
    return dataclasses.replace(
        shared, experiment=EXPERIMENT, dims=DIMS, coords={}, revision=REVISION
    )
