"""Which run gives which published number, and what would have to be run for it."""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Num

from cfljax.data import Images
from experiments.clove import rows as clove_rows
from experiments.clove import study as clove
from experiments.clove.methods import METHODS as CLOVE_METHODS
from experiments.clove.partitions import published_sizes
from experiments.clove.sources import Dataset, Source
from experiments.clove.tables import TABLES, Table
from experiments.ifca import femnist, rotated, table1, table2_femnist
from experiments.ifca import rotated_report as rotated_rows
from experiments.ledger.stores import Kinds, Run
from experiments.published import Published, published
from experiments.verdicts import Size
from experiments.werner import table1 as werner

MNIST, CIFAR = "ifca.table1_mnist", "ifca.table1_cifar"
KINDS: Kinds = {
    clove.STUDY: (clove.Trial, clove.REVISION),
    MNIST: (rotated.Trial, table1.MNIST_REVISION),
    CIFAR: (rotated.Trial, table1.CIFAR_REVISION),
    table2_femnist.EXPERIMENT: (femnist.Trial, table2_femnist.REVISION),
    werner.EXPERIMENT: (werner.Trial, werner.REVISION),
}


class Plan(NamedTuple):
    """How a number is made."""

    experiment: str  # id
    config: Any  # of the experiment
    num_rounds: int
    samples: int  # that are trained on in a round


class Found(NamedTuple):
    """What a run has of a published number."""

    number: Published
    values: Num[np.ndarray, " seeds"]
    size: Size
    run: Run
    place: int = 0  # among several forms of the same thing; the paper's own is first
    note: str = ""


def found_in(run: Run) -> list[Found]:
    """All published numbers that a run has something of."""
    of_experiment = {
        clove.STUDY: _of_clove,
        MNIST: _of_rotated,
        CIFAR: _of_rotated,
        table2_femnist.EXPERIMENT: _of_femnist,
        werner.EXPERIMENT: _of_werner,
    }
    return list(of_experiment[run.experiment](run))


def plan_of(found: Found) -> Plan:
    """How a number was made that a run has."""
    planned = {
        clove.STUDY: _plan_of_clove,
        MNIST: _plan_of_rotated,
        CIFAR: _plan_of_rotated,
        table2_femnist.EXPERIMENT: _plan_of_femnist,
        werner.EXPERIMENT: _plan_of_werner,
    }
    return planned[found.run.experiment](found)


@functools.cache
def plans() -> dict[str, Plan]:
    """How each published number would be made in the paper's size, by its key."""
    found = dict(_plans_of_clove())
    for number in (*published("ifca"), *published("werner")):
        found[number.key] = _plan(number)
    return found


def _adopted(config: Any, trial: Any, run: Run | None = None, **own: Any) -> Any:
    """A configuration with what a trial has of it; `own` are fields of another kind."""
    names = {field.name for field in dataclasses.fields(config)} - own.keys()
    names &= {field.name for field in dataclasses.fields(trial)}
    same = {name: getattr(trial, name) for name in names}
    if run is not None:
        same |= {"num_trials": run.num_seeds, "seed": run.seed}
    return dataclasses.replace(config, **same, **own)


# CLoVE: all tables are views of one study.


def _of_clove(run: Run) -> Iterator[Found]:
    trial = run.trial
    method = CLOVE_METHODS[trial.method]
    for table in TABLES:
        numbers = clove_rows.published_numbers(trial, table.view, trial.method)
        for measure, number in numbers.items():
            if _id(number) not in table.ids:
                continue  # Another view's, which shows it as well.
            found = clove_rows.measured(trial, trial.method, run.outputs)
            if measure not in found:
                continue
            places = table.view.partitions or (trial.partition,)
            place = places.index(trial.partition) + len(places) * bool(
                method.reference_of
            )
            values, item = found[measure], (number.item,)
            size = clove_rows.size_for(measure, values, trial, item)
            several = len(places) > 1 and number.item == "Table 15"
            note = f"K = {trial.num_clusters}" if several else ""
            yield Found(number, found[measure], size, run, place, note)


def _id(number: Published) -> str:
    return f"{number.paper}.{number.item.lower().replace(' ', '')}"


def _table(number: Published) -> Table:
    return next(table for table in TABLES if _id(number) in table.ids)


def _plan_of_clove(found: Found) -> Plan:
    config = _table(found.number).preset("paper")
    narrow = _narrowed(config, found.run.trial, found.run)
    return _clove_plan(found.number, narrow, found.run.trial)


def _clove_plan(number: Published, config: clove.Config, trial: clove.Trial) -> Plan:
    samples = trial.num_participants * trial.num_samples * trial.num_epochs
    return Plan(_id(number), config, trial.num_rounds, samples)


def _plans_of_clove() -> Iterator[tuple[str, Plan]]:
    """Of numbers that two partitions may have, the first partition's."""
    known = set()
    for table in TABLES:
        config = table.preset("paper")
        for dataset in config.datasets:
            for grid in clove.grids(config, _source(dataset)):
                for method in config.methods:
                    trial = dataclasses.replace(grid.trial, method=method)
                    numbers = clove_rows.published_numbers(trial, table.view, method)
                    for number in numbers.values():
                        if _id(number) in table.ids and number.key not in known:
                            known.add(number.key)
                            own = _narrowed(config, trial)
                            yield number.key, _clove_plan(number, own, trial)


def _source(dataset: Dataset) -> Source:
    """A set of which no sample is looked at."""
    images, labels = np.zeros((1, 1, 1), np.uint8), np.zeros(1, np.int32)
    return Source(dataset, Images(images, labels, images, labels, ""), "", "")


def _narrowed(
    config: clove.Config, trial: clove.Trial, run: Run | None = None
) -> clove.Config:
    """A table's configuration with the cells of one trial alone; its own words are kept
    where they say the same."""
    usual = published_sizes(trial.partition, trial.dataset)
    size = trial.num_clients // trial.num_clusters
    own: dict[str, Any] = {
        "datasets": (trial.dataset,),
        "partitions": (trial.partition,),
        "methods": (trial.method,),
        "num_test_samples": (trial.num_test_samples,),
        "num_samples": (trial.num_samples,),
        "num_clients": None,
        "cluster_sizes": (size,),
        "num_clusters": config.num_clusters and (trial.num_clusters,),
        "participations": (trial.num_participants / trial.num_clients,),
    }
    if config.num_samples is None and trial.num_samples == usual.num_samples:
        own["num_samples"] = None
    if config.cluster_sizes is None and size == usual.cluster_size:
        own["cluster_sizes"] = None
    if config.num_clients is not None:
        own |= {"num_clients": (trial.num_clients,), "cluster_sizes": None}
    if usual.num_clusters != trial.num_clusters:
        own["num_clusters"] = (trial.num_clusters,)
    for rate in config.participations:  # As they were asked for.
        if max(1, round(rate * trial.num_clients)) == trial.num_participants:
            own["participations"] = (rate,)
    return _adopted(config, trial, run, **own)


# IFCA, Table 1: rotated images.


def _of_rotated(run: Run) -> Iterator[Found]:
    trial, name = run.trial, run.trial.algorithm
    number = rotated_rows.published_number(trial, name)
    if number is None:
        return
    size = rotated_rows.size_of(trial, name)
    place = int(trial.start == "reference")
    note = "" if trial.network == "mlp" else f"network {trial.network}"
    accuracy = 100 * run.outputs["accuracy"].astype(float)
    yield Found(number, accuracy[:, -1], size, run, place, note)
    rounds = list(run.coords["round"])
    if name != "local" or not (found := rotated_rows.released(trial, rounds)):
        return
    at, output = found
    values = 100 * run.outputs[output][:, rounds.index(at)].astype(float)
    size = rotated_rows.size_of(trial, name, at, is_released=True)
    yield Found(number, values, size, run, 1, note)


def _plan_of_rotated(found: Found) -> Plan:
    run, trial = found.run, found.run.trial
    names = ("num_clients", "num_samples", "num_test_clients")
    own: dict[str, Any] = {"algorithms": (trial.algorithm,)}
    if run.experiment == MNIST:
        config = table1.mnist_preset("paper")
        own |= {name: (getattr(trial, name),) for name in names}
    else:
        config = table1.cifar_preset("paper")
        own["starts"] = (trial.start,)
        own["participation"] = trial.num_participants / trial.num_clients
    config = _adopted(config, trial, run, **own)
    samples = trial.num_participants * trial.num_samples
    return Plan(run.experiment, config, trial.num_rounds, samples)


# IFCA, Table 2: FEMNIST.


def _of_femnist(run: Run) -> Iterator[Found]:
    trial = run.trial
    number = table2_femnist.published_number(trial.method)
    if number is None or "parameters" in run.outputs:  # Those of pretraining.
        return
    best = 100 * run.outputs["accuracy"].astype(float).max(axis=1)
    place = int(trial.variant == "reference")
    note = "largest of all tests, as published"
    yield Found(number, best, table2_femnist.size_of(trial), run, place, note)


def _plan_of_femnist(found: Found) -> Plan:
    run, trial = found.run, found.run.trial
    config = table2_femnist.preset("paper")
    own: dict[str, Any] = {"methods": (trial.method,), "variants": (trial.variant,)}
    if trial.variant == "paper":  # Whose rounds are those of both phases together.
        later = max(1, trial.num_rounds - config.pretraining_rounds)
        own["pretraining_rounds"] = trial.num_rounds - later or 1
        own["num_rounds"] = trial.num_rounds - own["pretraining_rounds"]
        own["pretraining_participants"] = config.pretraining_participants
        own["warm_up_rounds"] = config.warm_up_rounds
    config = _adopted(config, trial, run, **own)
    return Plan(run.experiment, config, trial.num_rounds, trial.num_participants)


# Werner et al., Table 1.


def _of_werner(run: Run) -> Iterator[Found]:
    trial = run.trial
    size = werner.size_of(trial)
    paper = werner.published_numbers(trial.method, trial.partition)
    if size.other_data or paper.accuracy is None or paper.loss is None:
        return
    place = int(bool(size.form))
    last = {name: values[:, -1].astype(float) for name, values in run.outputs.items()}
    yield Found(paper.accuracy, 100 * last["accuracy"], size, run, place)
    note = "1 - p(label), as the paper's losses can only be"
    yield Found(paper.loss, last["probability"], size, run, place, note)


def _plan_of_werner(found: Found) -> Plan:
    run, trial = found.run, found.run.trial
    config = _adopted(
        werner.preset("paper"),
        trial,
        methods=(trial.method,),
        partitions=(trial.partition,),
        knn_weights=(trial.knn_weight,),
        num_tests=trial.num_rounds // trial.rounds_between,
        num_long_rounds=0,
        num_trials=max(2, run.num_seeds),  # Fewer have no interval.
        seed=run.seed,
    )
    samples = trial.num_clients * trial.num_samples
    return Plan(run.experiment, config, trial.num_rounds, samples)


# What would have to be run of the two papers whose settings are few.


def _plan(number: Published) -> Plan:
    """Of IFCA's and Werner's tables."""
    if number.paper == "werner":
        config = werner.preset("paper")
        task = number.setting.replace(" ", "_")
        names = reversed(list(werner.METHODS))  # The first of a name counts.
        labels = {werner.METHODS[name].published: name for name in names}
        weight = config.knn_weights[config.partitions.index(task)]
        own = {"methods": (labels[number.algorithm],), "partitions": (task,)}
        own |= {"knn_weights": (weight,), "num_long_rounds": 0}
        samples = config.num_clients * config.num_samples
    elif number.dataset == "FEMNIST":
        config = table2_femnist.preset("paper")
        labels = {table2_femnist.label(name): name for name in config.methods}
        own = {"methods": (labels[number.algorithm],), "variants": ("paper",)}
        samples = config.num_participants
    else:
        return _plan_of_images(number)
    config = dataclasses.replace(config, **own)
    rounds = config.num_rounds + getattr(config, "pretraining_rounds", 0)
    experiment = werner.EXPERIMENT
    if number.paper == "ifca":
        experiment = table2_femnist.EXPERIMENT
    return Plan(experiment, config, rounds, samples)


def _plan_of_images(number: Published) -> Plan:
    name = {label: own for own, label in rotated_rows.NAMES.items()}[number.algorithm]
    if number.dataset == rotated_rows.DATASETS["mnist"]:
        config = table1.mnist_preset("paper")
        every = {f"{m} x {n}": (m, n, tests) for m, n, tests in config.settings}
        m, n, tests = every[number.setting.rpartition("samples ")[2]]
        own = {"num_clients": (m,), "num_samples": (n,), "num_test_clients": (tests,)}
        config = dataclasses.replace(config, algorithms=(name,), **own)
        return Plan(MNIST, config, config.num_rounds, m * n)
    config = table1.cifar_preset("paper")
    samples = round(config.participation * config.num_clients) * config.num_samples
    config = dataclasses.replace(config, algorithms=(name,), starts=("paper",))
    return Plan(CIFAR, config, config.num_rounds, samples)
