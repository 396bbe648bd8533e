"""What CLoVE's experiments with networks share: grids, runs, files."""

import itertools
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax

from cfljax import engine
from cfljax.engine.batch import Simulate
from experiments.clove.config import Config
from experiments.clove.networks import network_of
from experiments.clove.partitions import (
    Clients,
    Partition,
    Published,
    belongs,
    draw,
    published_sizes,
    share_out,
)
from experiments.clove.rows import Result, View, markdown, rows
from experiments.clove.sources import Source, load, without_inputs
from experiments.clove.trial import DIMS, Trial, simulate
from experiments.clove.write import write
from experiments.options import Options

__all__ = [
    "clients_of",
    "compute",
    "grids",
    "planned",
    "run",
    "sources",
    "store_name",
]

# One name for all, so that experiments of one folder share what both run.
STUDY = "clove.study"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


def run(
    experiment: str, config: Config, options: Options, view: View
) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure.

    Args:
      experiment: its id.
      config: of the experiment.
      options: how to run; `data` is the folder of the samples.
      view: what the experiment shows.

    Returns:
      A summary for the command line: files, table, and which samples were used.

    Raises:
      ValueError: if the samples do not suffice for a partition, or are damaged.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    started = time.perf_counter()
    loaded = sources(config, options)
    results = [
        compute(options, grid, source) for grid, source in planned(config, loaded)
    ]
    table = [row for result in results for row in rows(result, view)]
    notes = "".join(source.note for source in loaded)
    return {
        "experiment": experiment,
        "sources": [source.samples.source for source in loaded],
        "headline": f"{notes}{markdown(table, view)}",
        "files": write(config, options, results, table, view, loaded),
        "seconds": round(time.perf_counter() - started, 2),
        "failed_cells": sum(int(result.data.attrs["failures"]) for result in results),
        "rows": table,
    }


def sources(config: Config, options: Options) -> list[Source]:
    """The samples of all sets, a stand-in once; raises as `sources.load`."""
    found = [
        load(
            dataset,
            options,
            fall_back=config.fall_back,
            num_words=config.num_words,
            num_tokens=config.num_tokens,
        )
        for dataset in config.datasets
    ]
    return list({source.checksum: source for source in found}.values())


def planned(
    config: Config, loaded: Sequence[Source]
) -> list[tuple[engine.Grid, Source]]:
    """All grids with their samples, once each is known to be possible.

    Raises:
      ValueError: if the samples do not suffice for a partition, or two cells of the
        configuration are the same.
    """
    found = [(grid, source) for source in loaded for grid in grids(config, source)]
    names = [store_name(grid.trial) for grid, _ in found]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(
            "sizes and `participations` must give different clients, got twice: "
            f"{min(repeated).removesuffix('.zarr')}."
        )
    for grid, source in found:
        trial = grid.trial
        share_out(
            trial.partition,
            without_inputs(source.samples),
            key=jax.random.key(grid.seed),
            num_clusters=trial.num_clusters,
            num_clients=trial.num_clients,
            num_samples=trial.num_samples,
            num_test_samples=trial.num_test_samples,
        )
    return found


def grids(config: Config, source: Source) -> Iterator[engine.Grid]:
    """Methods and repetitions of one set, one grid for each shape of the data."""
    own: list[Partition] = [
        name for name in config.partitions if belongs(name, source.name)
    ]
    if not own:
        raise ValueError(
            f"`partitions` must have one of {source.name}, got {config.partitions}."
        )
    for partition in own:
        # The number of groups is that of the samples.
        several = config.num_clusters if partition != "groups" else None
        products = itertools.product(
            several or (None,), config.sizes, config.participations
        )
        for number, sizes, rate in products:
            published = published_sizes(partition, source.name, number)
            trial = _trial(config, partition, source, published, sizes, rate)
            yield _grid(config, trial)


def _trial(
    config: Config,
    partition: Partition,
    source: Source,
    published: Published,
    sizes: tuple[int | None, int | None, int | None, int],
    participation: float,
) -> Trial:
    """The trial of the first method and repetition."""
    size, clients, samples, tests = sizes
    num_clusters = published.num_clusters
    num_clients = clients or (size or published.cluster_size) * num_clusters
    if not num_clients:
        raise ValueError(
            f"`num_clusters` must be at most the 30 clients of {source.name} unless "
            f"`cluster_sizes` are given, got {num_clusters}."
        )
    fit = lambda wanted, is_test: source.fitting(wanted, num_clients, is_test=is_test)
    return Trial(
        method=config.methods[0],
        partition=partition,
        dataset=source.name,
        checksum=source.checksum,
        num_clients=num_clients,
        num_samples=fit(samples or published.num_samples, False),
        num_test_samples=fit(tests, True),
        num_participants=max(1, round(participation * num_clients)),
        num_clusters=num_clusters,
        network=network_of(source.name, reconstructs=config.reconstruct),
        num_channels=config.num_channels,
        num_hidden=config.num_hidden,
        num_latent=config.num_latent,
        num_words=config.num_words,
        num_rounds=config.num_rounds,
        rounds_between=config.rounds_between,
        num_epochs=config.num_epochs,
        batch_size=config.batch_size,
        step_size=config.step_size,
        gradient_step_size=config.gradient_step_size,
        clients_per_chunk=config.clients_per_chunk,
        repetition=0.0,
    )


def _grid(config: Config, trial: Trial) -> engine.Grid:
    rounds, step = config.num_rounds, config.rounds_between
    return engine.Grid(
        experiment=STUDY,
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


def clients_of(grid: engine.Grid, source: Source) -> Clients:
    """The data of all repetitions of a grid."""
    trial = grid.trial
    return draw(
        trial.partition,
        source.samples,
        seed=grid.seed,
        repetitions=len(grid.axes["repetition"]),
        num_clusters=trial.num_clusters,
        num_clients=trial.num_clients,
        num_samples=trial.num_samples,
        num_test_samples=trial.num_test_samples,
    )


def store_name(trial: Trial) -> str:
    """Folder of the results of one shape of the data."""
    size = trial.num_clients // trial.num_clusters
    shape = f"{trial.num_clusters}x{size}x{trial.num_samples}-{trial.num_participants}"
    return f"{trial.dataset}-{trial.partition}-{shape}.zarr"


def compute(
    options: Options,
    grid: engine.Grid,
    source: Source,
    simulate: Simulate = simulate,
) -> Result:
    """What the store has of one grid, once it has everything.

    Args:
      options: how to run.
      grid: whose trials are `trial.Trial`.
      source: samples of its clients.
      simulate: one trial; makes what the grid's dims say.
    """
    with engine.clients_over_devices(options.devices):
        data = engine.sweep(
            grid,
            simulate,
            options.out / store_name(grid.trial),
            constants=clients_of(grid, source),
            chunk=options.chunk,
            memory=options.memory,
            progress=options.progress,
        )
    return Result(grid.trial, data)
