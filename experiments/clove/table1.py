"""CLoVE, Tables 1 and 2: accuracy and clusters found under four partitions of images.

Command:   python -m experiments run clove.table1 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only, 3 clients a cluster of 100 samples,
           10 rounds, batches of 10, 2 seeds and a narrow network (4 and 8 channels, 32
           hidden units); without data, on the digits embedded in scikit-learn
Measured:  quick on MNIST, 4.0 minutes on two idle cores of an Intel Xeon.
           Label skews: CLoVE has all clusters from the first round on in every seed,
           IFCA ends with two of five merged in every seed (an index of 0.72);
           accuracies 92.7 and 82.8 against 80.1 and 66.9 %, local models 93.7 and 79.9
           %. Concept shift and feature skew: after 10 rounds CLoVE's index is 0.59 +-
           0.05 and 0.77 +- 0.23, IFCA's 0.57 +- 0.08 and 0.52 +- 0.03. One seed of 25
           clients of 500 samples, label skew 1, ten rounds of the narrow network in
           batches of 64: CLoVE 1 from the first round on, IFCA 0.75 from the second.
           The paper preset has not been run
Paper:     `published_table1.csv`: 100 rounds of one local epoch of Adam at 0.001 in
           batches of 64, 3 seeds, 5 clients a cluster (feature skew 10; CIFAR-10 3 and
           5), 500 samples a client (concept shift 1000). CLoVE finds the clusters in
           all 12 cells, IFCA's adjusted Rand index is between 0.55 and 0.92.

The paper does not give numbers of clusters, see `table1_data`; nor widths of networks,
numbers of test samples, or what becomes of Adam's state: here a client begins each
round with a fresh one. The released code trains MNIST and Fashion-MNIST at 0.01 in
batches of 100.
"""

import dataclasses
import time
from typing import Any, Literal

from cfljax import engine
from cfljax.data.images import ImageSet
from experiments.clove.table1_data import PARTITIONS, PUBLISHED, Partition, draw
from experiments.clove.table1_report import Result, markdown, rows
from experiments.clove.table1_trial import (
    DIMS,
    METHODS,
    Method,
    Trial,
    simulate,
)
from experiments.clove.table1_write import write
from experiments.ifca.rotated_sweep import (
    Loaded,
    check_different,
    check_positive,
    check_step_size,
    load,
)
from experiments.options import Options

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "clove.table1"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the tables depend on. One field, one flag."""

    images: tuple[ImageSet, ...]
    """Image sets."""
    cluster_size: int | None
    """Clients of a cluster; the paper's if None."""
    num_samples: int | None
    """Training samples of a client; the paper's if None."""
    num_test_samples: int
    """Test samples of a client."""
    num_channels: int
    """Of the first convolution; each further one has twice as many."""
    num_hidden: int
    """Width of the hidden layer."""
    num_rounds: int
    """T, communication rounds."""
    rounds_between: int
    """Rounds from one test to the next."""
    batch_size: int
    """Of a local step."""
    num_trials: int
    """Seeds of each cell."""
    fall_back: bool
    """Use the embedded digits where the images are not found."""
    partitions: tuple[Partition, ...] = PARTITIONS
    """How images are shared out."""
    methods: tuple[Method, ...] = METHODS
    """What to compare."""
    num_epochs: int = 1
    """Tau, local epochs of a round."""
    step_size: float = 0.001
    """Of Adam."""
    clients_per_chunk: int = 5
    """Clients evaluated at a time; bounds memory."""
    seed: int = 0
    """Of all of them."""

    def __post_init__(self) -> None:
        for name in ("images", "partitions", "methods"):
            check_different(name, getattr(self, name))
        numbers = [
            field.name
            for field in dataclasses.fields(self)
            if type(getattr(self, field.name)) is int and field.name != "seed"
        ]
        check_positive(self, *numbers)
        check_step_size(self.step_size)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            images=("mnist",),
            cluster_size=3,
            num_samples=100,
            num_test_samples=50,
            num_channels=4,
            num_hidden=32,
            num_rounds=10,
            rounds_between=5,
            batch_size=10,
            num_trials=2,
            fall_back=True,
        )
    return Config(
        images=("mnist", "fashion_mnist", "cifar10"),
        cluster_size=None,
        num_samples=None,
        num_test_samples=100,
        num_channels=32,
        num_hidden=512,
        num_rounds=100,
        rounds_between=10,
        batch_size=64,
        num_trials=3,
        fall_back=False,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure.

    Args:
      config: of the experiment.
      options: how to run; `data` is the folder of the images.

    Returns:
      A summary for the command line: files, table, and which images were used.

    Raises:
      ValueError: if the images do not suffice for a partition, or are damaged.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    started = time.perf_counter()
    loaded = [load(name, options, fall_back=config.fall_back) for name in config.images]
    results = [
        _compute(config, options, _grid(config, partition, images), images)
        for images in loaded
        for partition in config.partitions
    ]
    table = [row for result in results for row in rows(result)]
    sources = [images.source for images in loaded]
    notes = "".join(images.note for images in loaded)
    return {
        "experiment": EXPERIMENT,
        "images": sources,
        "headline": f"{notes}{markdown(table)}",
        "files": write(config, options, results, table, sources),
        "seconds": round(time.perf_counter() - started, 2),
        "failed_cells": sum(int(result.data.attrs["failures"]) for result in results),
        "rows": table,
    }


def _grid(config: Config, partition: Partition, images: Loaded) -> engine.Grid:
    """Methods and repetitions of one partition, as plain data."""
    paper = PUBLISHED[partition]
    is_colour = images.name == "cifar10"
    size = paper.cluster_size_cifar10 if is_colour else paper.cluster_size
    num_clients = (config.cluster_size or size) * paper.num_clusters
    # Of a stand-in, half at most is shared out: clusters have unequal parts.
    train = config.num_samples or paper.num_samples
    train = images.fitting(train, 2 * num_clients, 1)
    test = images.fitting(config.num_test_samples, 2 * num_clients, 1, split="test")
    trial = Trial(
        method=config.methods[0],
        partition=partition,
        images=images.name,
        checksum=images.checksum,
        num_clients=num_clients,
        num_samples=train,
        num_test_samples=test,
        num_clusters=paper.num_clusters,
        network="deep_cnn" if is_colour else "cnn",
        num_channels=config.num_channels,
        num_hidden=config.num_hidden,
        num_rounds=config.num_rounds,
        rounds_between=config.rounds_between,
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        step_size=config.step_size,
        clients_per_chunk=config.clients_per_chunk,
        repetition=0.0,
    )
    rounds, step = config.num_rounds, config.rounds_between
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=trial,
        axes={
            "method": config.methods,
            "repetition": tuple(float(i) for i in range(config.num_trials)),
        },
        num_trials=1,
        dims=DIMS,
        coords={
            "round": list(range(1, rounds + 1)),
            "tested": list(range(step, rounds + 1, step)),
        },
        seed=config.seed,
        revision=REVISION,
    )


def _compute(
    config: Config, options: Options, grid: engine.Grid, images: Loaded
) -> Result:
    """What the store has of one partition, once it has everything."""
    trial = grid.trial
    clients = draw(
        trial.partition,
        images.arrays,
        seed=grid.seed,
        repetitions=len(grid.axes["repetition"]),
        num_clients=trial.num_clients,
        num_samples=trial.num_samples,
        num_test_samples=trial.num_test_samples,
    )
    with engine.clients_over_devices(options.devices):
        data = engine.sweep(
            grid,
            simulate,
            options.out / f"{trial.images}-{trial.partition}.zarr",
            constants=clients,
            chunk=options.chunk,
            memory=options.memory,
            progress=options.progress,
        )
    return Result(trial, data)
