r"""python -m experiments compare: any registered algorithms, side by side.

Command:   python -m experiments compare --algorithms fedavg,ifca,ditto:penalty=.1 \
               --dataset fashion_mnist --partition label_skew_1 --data FOLDER
Own data:  --dataset my.npz --task my_module:make, as docs/own_data.md explains
Search:    --step-sizes .1 .03 .01 --search ditto:penalty=.1,1 knn_per:knn_weight=.3,.7

Every algorithm of a seed has the same data and the same run's key, and trains by the
same local update. Algorithms may be added later: what the store has of others stays.
"""

import dataclasses
import functools
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import engine
from cfljax.base import ClientData
from experiments import study
from experiments.clove.networks import network_of
from experiments.clove.partitions import PARTITIONS, belongs, published_sizes, share_out
from experiments.clove.rows import finish
from experiments.clove.sources import Dataset, Source, load_source, without_inputs
from experiments.clove.study import repetitions, rounds
from experiments.compare import own
from experiments.compare.arms import Arm, Config
from experiments.compare.arms import preset as preset
from experiments.compare.own import OwnTrial
from experiments.compare.rows import Result, Setting, draw, markdown, note, rows, runs
from experiments.compare.trial import (
    DIMS,
    NUM_CLASSES,
    Clients,
    Sizes,
    Trial,
    build_algorithm,
    draw_clients,
    simulate,
)
from experiments.jobs import Job, run
from experiments.options import Options

COMPARISON = {
    "title": "any registered algorithms, side by side",
    "spreads_clients": True,
    "has_jobs": True,
}

REVISION = 2  # To be raised whenever a trial of the same fields changes its meaning.


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figures; a summary of it.

    Raises:
      ValueError: if the samples do not suffice for the partition, are damaged, or an
        algorithm refuses an argument.
      FileNotFoundError: if there are none and `config.fall_back` is false.
      SweepError: if no algorithm finished.
    """
    started = time.perf_counter()
    prepared = _prepared(config, options)
    knows_clusters = prepared.clients.clusters is not None
    results = list(_results(config, options, prepared))
    if all(result.chosen is None for result in results):
        raise engine.SweepError(
            f"no algorithm finished for all seeds; see `{options.out}`."
        )
    table = rows(results, config)
    shown = markdown(table, knows_clusters=knows_clusters)
    text = prepared.note + shown + note(config, len(results), knows_clusters)
    finished = finish(
        config,
        options,
        started,
        tables={"table": table, "runs": runs(results, config)},
        text=text,
        headline=text,
        figures=draw(results, config, prepared.title, knows_clusters=knows_clusters),
        failures=sum(row["failed"] for row in table),
        source=prepared.source,
    )
    return {"experiment": "compare", "source": prepared.source, **finished}


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of all algorithms and their settings; raises as `main`."""
    prepared = _prepared(config, options)
    return [
        _job(config, prepared, arm)
        for contestant in config.contestants
        for arm in contestant.settings
    ]


class Prepared(NamedTuple):
    """What all algorithms run on."""

    trial: Trial | OwnTrial  # of the first setting
    simulate: engine.Simulate  # of such trials
    clients: Clients  # of all seeds
    title: str  # of the data, for figures
    note: str  # on the data, for people; ends with an empty line
    source: str  # where they are from, or which they are


def _prepared(config: Config, options: Options) -> Prepared:
    """The data, for which all that is asked for is possible."""
    arm = config.contestants[0].settings[0].without("step_size").text
    if config.is_own:
        brought = own.load(config)
        trial = own.first_trial(config, brought, arm)
        own.refuse_impossible(config, trial, brought)
        return Prepared(
            trial=trial,
            simulate=functools.partial(own.simulate, task=brought.task),
            clients=own.draw_clients(config, brought),
            title=f"own data, {brought.name}",
            note=brought.note(trial),
            source=brought.source(trial),
        )
    source = _source(config, options)
    trial = trial_of(config, source)
    _refuse_impossible(config, trial, source)
    number, sizes = config.num_trials, _sizes(trial)
    clients = draw_clients(
        config.partition, source, sizes, seed=config.seed, repetitions=number
    )
    title = f"{source.name}, {config.partition.replace('_', ' ')}"
    return Prepared(trial, simulate, clients, title, source.note, source.samples.source)


def _job(config: Config, prepared: Prepared, arm: Arm) -> Job:
    grid = grid_of(config, prepared.trial, arm)
    return Job(grid, prepared.simulate, lambda: prepared.clients, name=arm.text)


def _source(config: Config, options: Options) -> Source:
    """The samples; what is wrong with their files in one line."""
    texts = {"num_words": config.num_words, "num_tokens": config.num_tokens}
    try:
        dataset = cast(Dataset, config.dataset)  # As the configuration has checked.
        return load_source(dataset, options, fall_back=config.fall_back, **texts)
    except FileNotFoundError as error:
        reason, _, _ = str(error).partition(" Do one of these")
        reason = " ".join(reason.split())
        if "--data" not in reason:
            reason += " `--data` or CFLJAX_DATA name the folder of the files;"
        reason += " `--dataset digits` needs none."
        raise FileNotFoundError(reason) from error


def _sizes(trial: Trial) -> Sizes:
    return Sizes(**{name: getattr(trial, name) for name in Sizes._fields})


def trial_of(config: Config, source: Source) -> Trial:
    """The trial of the first setting and seed.

    A stand-in's samples are shared out in smaller parts, as many as there are.

    Raises:
      ValueError: if the partition is not one of these samples.
    """
    if not belongs(config.partition, source.name):
        fitting = [name for name in PARTITIONS if belongs(name, source.name)]
        raise ValueError(
            f"`partition` must be one of {', '.join(fitting)} for {source.name}, got "
            f"{config.partition}."
        )
    published = published_sizes(config.partition, source.name, config.num_clusters)
    number = published.num_clusters * (config.cluster_size + config.newcomers)
    wanted = config.num_samples + config.num_validation_samples
    total = source.fitting(wanted, number, is_test=False)
    tests = source.fitting(config.num_test_samples, number, is_test=True)
    held_out = max(1, total * config.num_validation_samples // wanted)
    is_own = config.network == "own"
    return study.trial_of(
        Trial,
        config,
        arm=config.contestants[0].settings[0].without("step_size").text,
        dataset=source.name,
        checksum=source.checksum,
        num_clusters=published.num_clusters,
        num_newcomers=config.newcomers,
        num_samples=max(1, total - held_out),
        num_validation_samples=held_out,
        num_test_samples=tests,
        num_classes=NUM_CLASSES.get(source.name, 10),
        network=network_of(source.name, reconstructs=False) if is_own else "mlp",
        step_size=config.step_sizes[0],
        repetition=0,
    )


def _refuse_impossible(config: Config, trial: Trial, source: Source) -> None:
    """Raises ValueError for what cannot be, before anything is run."""
    sizes = _sizes(trial)
    share_out(
        config.partition,
        without_inputs(source.samples),
        key=jax.random.key(config.seed),
        **sizes.shared_out,
    )
    shape = np.shape(source.samples.train_inputs)[1:]
    clusters = jnp.repeat(jnp.arange(sizes.num_clusters), sizes.cluster_size)
    samples = clusters.shape[0], sizes.num_samples
    of_kind: Callable[..., Any] = lambda kind, *rest: jax.ShapeDtypeStruct(
        (*samples, *rest), kind
    )
    data = ClientData(of_kind(float, *shape), of_kind(int), of_kind(bool))
    for contestant in config.contestants:
        for arm in contestant.settings:
            one = grid_of(config, trial, arm).trial
            try:
                build_algorithm(one, shape, clusters).check(data)
            except ValueError as error:
                raise ValueError(f"{arm.text}: {error}") from error


def grid_of(config: Config, trial: Trial | OwnTrial, arm: Arm) -> engine.Grid:
    """Step sizes and repetitions of one setting; its own step size if it has one."""
    own = dict(arm.changes).get("step_size")
    sizes = config.step_sizes if own is None else (float(own),)  # pyright: ignore
    text = arm.without("step_size").text
    return engine.Grid(
        experiment="compare.own" if config.is_own else "compare",
        trial=dataclasses.replace(trial, arm=text, step_size=sizes[0]),
        axes={"step_size": sizes, **repetitions(config)},
        num_trials=1,
        traced=("step_size", "repetition"),
        dims=DIMS,
        coords=rounds(config),
        seed=config.seed,
        revision=REVISION,
    )


def _results(config: Config, options: Options, prepared: Prepared) -> Iterator[Result]:
    """What the stores have of all algorithms, once they have everything."""
    total = sum(len(contestant.settings) for contestant in config.contestants)
    done, started = 0, time.perf_counter()
    for contestant in config.contestants:
        settings: list[Setting] = []
        for arm in contestant.settings:
            if options.progress and sys.stderr.isatty():
                left = (time.perf_counter() - started) / max(done, 1) * (total - done)
                about = f", about {left / 60:.1f} min left for all" if done else ""
                print(f"{done + 1} of {total}: {arm.text}{about}", file=sys.stderr)
            settings += _swept(options, _job(config, prepared, arm), arm)
            done += 1
        yield Result(contestant, tuple(settings))


def _swept(options: Options, job: Job, arm: Arm) -> list[Setting]:
    """One setting for each step size; without data if none of its runs finished."""
    grid = job.grid
    try:
        data = run(options, job)
    except engine.SweepError as error:
        print(f"{arm.text}: {error}", file=sys.stderr)
        data = None
    sizes, number = grid.axes["step_size"], len(grid.axes["repetition"])
    seconds = np.full((len(sizes), number), np.nan)
    if data is not None:
        seconds = engine.progress_of(options.store_folder, grid).seconds
    found = []
    for index, size in enumerate(sizes):
        own = None if data is None else data.isel(step_size=index, trial=0)
        failed = number if own is None else int(own["failed"].sum())
        found.append(Setting(arm, size, own, seconds[index], failed))
    return found
