"""CLoVE, appendix D.1.4: FEMNIST, whose number of clusters nobody knows.

Command:   python -m experiments run clove.unknown_k --preset paper --data FOLDER
Quick:     the same with --preset quick: 10 writers, at most 6 clusters, a narrow
           network (4 and 8 channels, 32 hidden units), 10 rounds in batches of 10 with
           larger steps, 1 seed
Measured:  quick, 3.1 minutes on two loaded cores of an Intel Xeon (2.3 minutes of
           processor time): CLoVE has 3 clusters from round 2 on and 4 from round 7 on,
           and 29.9 % right; with K = 2 31.1, IFCA with K = 2 33.3, FedAvg 32.8 and
           local models 30.5 %, of 177 test images, so that none can be told apart
Paper:     CLoVE 68.2 +- 1.3 % (3 seeds): M = 100 writers with all their images, a CNN,
           random models in the first round. The numbers of clusters that it found are
           not given.

CLoVE chooses in every round between 2 and 15 clusters, as the released code does, by
the largest silhouette, where the code allows itself a tolerance of a tenth. Clients are
drawn from writers who have an image for training and one for the test.
The paper does not say whether ink is bright: here it is, as in MNIST, for which it has
the same network; `--no-invert` leaves paper white, as LEAF has it, on which the quick
network learns next to nothing. The paper has one local epoch of Adam a round, the
released code trains FEMNIST for 25: `--num-epochs 25`. IFCA, CLoVE with a fixed number
of clusters, one global model and local models are not in the paper's experiment; those
with clusters begin with a random first round as well.
"""

import dataclasses
import json
import time
from typing import Any, Literal

import jax

from cfljax import engine, report
from cfljax.data import by_writer, load_writers
from cfljax.kernels.training import FirstRound
from experiments.checksum import checksum
from experiments.clove.unknown_k_report import draw, markdown, rows, runs
from experiments.clove.unknown_k_trial import DIMS, Inputs, Trial, method_of, simulate
from experiments.ifca.rotated_sweep import (
    check_different,
    check_positive,
    check_step_size,
)
from experiments.options import Options

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "clove.unknown_k"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the table depends on. One field, one flag."""

    num_clients: int
    """M, writers, drawn by the seed."""
    num_channels: int
    """Of the first convolution; the second has twice as many."""
    num_hidden: int
    """Width of the hidden layer."""
    num_rounds: int
    """T, communication rounds."""
    batch_size: int
    """Of a local step."""
    num_trials: int
    """Seeds of each method: of starts and batches."""
    methods: tuple[str, ...] = (
        "clove",
        "clove-2",
        "clove-3",
        "ifca-2",
        "ifca-3",
        "fedavg",
        "local",
    )
    """What to compare: clove of unknown K, clove-K, ifca-K, fedavg, local."""
    max_clusters: int = 15
    """Largest K that is tried, if there are so many clients."""
    first_round: FirstRound = "random"
    """Who decides on the first models: chance, or the losses (evaluation)."""
    num_epochs: int = 1
    """Tau, local epochs of a round."""
    step_size: float = 0.001
    """Of Adam."""
    min_samples: int = 2
    """Images that a writer has at least, training and test together."""
    invert: bool = True
    """Ink 1 and paper 0, as in MNIST; otherwise paper is 1, as in LEAF."""
    clients_per_chunk: int = 5
    """Clients evaluated at a time; bounds memory."""
    seed: int = 0
    """Of all of them."""

    def __post_init__(self) -> None:
        check_different("methods", self.methods)
        for method in self.methods:
            method_of(method)
        positive = ("num_channels", "num_hidden", "num_rounds", "batch_size")
        positive += ("num_trials", "num_epochs", "min_samples", "clients_per_chunk")
        check_positive(self, *positive)
        for name in ("num_clients", "max_clusters"):
            if getattr(self, name) < 2:
                raise ValueError(
                    f"`{name}` must be at least 2, got {getattr(self, name)}."
                )
        check_step_size(self.step_size)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_clients=10,
            num_channels=4,
            num_hidden=32,
            num_rounds=10,
            batch_size=10,
            num_trials=1,
            methods=("clove", "clove-2", "ifca-2", "fedavg", "local"),
            max_clusters=6,
            step_size=0.01,
        )
    return Config(
        num_clients=100,
        num_channels=32,
        num_hidden=512,
        num_rounds=100,
        batch_size=64,
        num_trials=3,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write tables and figure.

    Args:
      config: of the experiment.
      options: how to run; `data` is the folder of the images.

    Returns:
      A summary for the command line: files, table, and which images were used.

    Raises:
      ValueError: if the writers do not suffice, or the images are damaged.
      FileNotFoundError: if there are no images; the message says how to get them.
    """
    started = time.perf_counter()
    writers = load_writers("femnist", folder=options.data)
    clients = by_writer(
        writers,
        num_clients=config.num_clients,
        min_samples=config.min_samples,
        key=jax.random.key(config.seed),
        invert=config.invert,
    )
    inputs = Inputs(*clients)
    with engine.clients_over_devices(options.devices):
        results = engine.sweep(
            _grid(config, inputs, writers.num_classes),
            simulate,
            options.out / "results.zarr",
            constants=inputs,
            chunk=options.chunk,
            memory=options.memory,
            progress=options.progress,
        )
    table, out = rows(results), options.out
    text = markdown(table)
    report.write_csv(out / "table.csv", table)
    report.write_csv(out / "runs.csv", runs(results))
    report.write_text(out / "table.md", text)
    settings = dataclasses.asdict(config) | {"source": writers.source}
    report.write_text(out / "config.json", json.dumps(settings, indent=2) + "\n")
    names = ("table.csv", "runs.csv", "table.md", "config.json")
    figure = draw(results)
    drawn = [] if figure is None else report.save(figure, out / "rounds")
    note = f"images: {writers.source}, {config.num_clients} writers\n\n"
    return {
        "experiment": EXPERIMENT,
        "images": writers.source,
        "headline": f"{note}{text}",
        "files": [str(path) for path in (*(out / name for name in names), *drawn)],
        "seconds": round(time.perf_counter() - started, 2),
        "failed_cells": int(results.attrs["failures"]),
        "rows": table,
    }


def _grid(config: Config, inputs: Inputs, num_classes: int) -> engine.Grid:
    """All methods and repetitions; those of one repetition share its key."""
    names = {field.name for field in dataclasses.fields(Trial)}
    shared = {name: getattr(config, name) for name in names if hasattr(config, name)}
    shared["max_clusters"] = min(config.max_clusters, config.num_clients)
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=Trial(
            method=config.methods[0],
            checksum=checksum(jax.tree.leaves(inputs)),
            num_classes=num_classes,
            repetition=0.0,
            **shared,
        ),
        axes={
            "method": config.methods,
            "repetition": tuple(float(i) for i in range(config.num_trials)),
        },
        num_trials=1,
        dims=DIMS,
        coords={"round": list(range(1, config.num_rounds + 1))},
        seed=config.seed,
        revision=REVISION,
    )
