"""Data and a model of the user's own, in place of a built-in set and its network.

A file of `data.from_npz` is what `--dataset` names, and `--task` the function that
makes the model. Each seed divides every client's samples anew.
"""

import dataclasses
import hashlib
import os
import pathlib
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax import engine
from cfljax.base import ClientData, Task
from cfljax.data import from_npz, split_samples
from cfljax.models import mlp, named_task
from experiments.compare.arms import Arm, Config
from experiments.compare.registered import registration
from experiments.compare.trial import AnyTrial, Clients, algorithm_of, run_once
from experiments.study import trial_of


@dataclasses.dataclass(frozen=True)
class OwnTrial(AnyTrial):
    """Everything that one trial's law depends on: file, model and how they are used."""

    task: str  # "MODULE:FUNCTION", or "mlp"
    task_checksum: str  # of the module's code; "" of the usual model
    validation_share: float  # of each client's samples
    test_share: float


class Own(NamedTuple):
    """What a user has brought."""

    name: str  # of the file, without its folder
    checksum: str  # SHA-256 of it
    data: ClientData  # of all clients
    clusters: Int[Array, " clients"] | None  # true ones, where the file has them
    task: Task
    num_classes: int  # outputs of the model

    def source(self, trial: OwnTrial) -> str:
        """Which data and which model these are, for whoever has the results."""
        code = f", code {trial.task_checksum}" if trial.task_checksum else ""
        return f"{self.name}, SHA-256 {self.checksum}; model {trial.task}{code}"

    def note(self, trial: OwnTrial) -> str:
        """What is compared, for people; ends with an empty line."""
        given = f"one hidden layer of {trial.num_hidden} units"
        model = given if trial.task == "mlp" else trial.task
        return f"own data: {self.data} of {self.name}; model: {model}\n\n"


def load(config: Config) -> Own:
    """The file and the model.

    Raises:
      ValueError: if the data cannot be learnt from, or the model is not of these data.
      FileNotFoundError: if there is no such file.
    """
    path = pathlib.Path(os.path.expanduser(config.dataset))
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"`--dataset` names {config.dataset}, and there is no such file."
        )
    data, truth = from_npz(path)
    if data.targets.ndim != 2 or not jnp.issubdtype(data.targets.dtype, jnp.integer):
        raise ValueError(
            "`compare` measures accuracy: `targets` must be one label, a whole number, "
            f"for each sample; {path.name} has {data.targets.dtype} of shape "
            f"{list(data.targets.shape[2:])} each."
        )
    task = (
        _usual(config, data) if config.task is None else named_task(config.task, data)
    )
    num_classes = _num_outputs(config.task or "mlp", task, data)
    labels = np.asarray(data.targets)
    if labels.max() >= num_classes:
        client = int(np.argmax(labels.max(axis=1) >= num_classes))
        raise ValueError(
            f"labels must be below {num_classes}, the outputs of {config.task}; "
            f"{path.name} has {labels[client].max()} for client {client}."
        )
    return Own(
        name=path.name,
        checksum=hashlib.sha256(path.read_bytes()).hexdigest(),
        data=data,
        clusters=None if truth is None else truth.clusters,
        task=task,
        num_classes=num_classes,
    )


def _usual(config: Config, data: ClientData) -> Task:
    """One hidden layer, for inputs that are numbers."""
    if not jnp.issubdtype(data.inputs.dtype, jnp.floating):
        raise ValueError(
            f"`--task` must say which model, as inputs are whole numbers "
            f"({data.inputs.dtype}), such as words; floats or pixels (uint8) would "
            "have a usual one."
        )
    classes = max(2, 1 + int(jnp.max(data.targets)))
    hidden = (config.num_hidden,)
    return mlp(data.inputs.shape[2:], hidden=hidden, num_classes=classes)


def _num_outputs(name: str, task: Task, data: ClientData) -> int:
    """How many classes a model tells apart; ValueError if it cannot serve."""
    try:
        params = jax.eval_shape(task.init, jax.random.key(0))
        outputs = jax.eval_shape(task.predict, params, data.inputs[0])
        losses = jax.eval_shape(task.losses, params, data.inputs[0], data.targets[0])
    except Exception as error:  # Whatever the user's own code raises.
        reason = " ".join(str(error).split())[:200]
        raise ValueError(
            f"`--task` {name} makes a model that cannot take these data: "
            f"{type(error).__name__}: {reason}"
        ) from error
    if getattr(outputs, "ndim", 0) != 2:
        raise ValueError(
            "`compare` measures accuracy: a model must give [samples, classes], got "
            f"{outputs} of {name}."
        )
    if getattr(losses, "shape", None) != data.mask.shape[1:]:
        raise ValueError(
            f"a model must give one loss for each sample, got {losses} of {name}."
        )
    return outputs.shape[1]


def first_trial(config: Config, own: Own, arm: str) -> OwnTrial:
    """The trial of an arm with the first step size and seed.

    Raises:
      ValueError: if there are too few clients.
    """
    number = len(own.data.mask)
    if config.newcomers >= number:
        raise ValueError(
            f"`num_newcomers` must be below {number}, the clients of {own.name}, got "
            f"{config.newcomers}."
        )
    known = 0 if own.clusters is None else len(np.unique(own.clusters))
    code = ""
    if config.task is not None:
        module, _, _ = config.task.partition(":")
        code = engine.module_digest(module, beside=first_trial)
    return trial_of(
        OwnTrial,
        config,
        arm=arm,
        dataset=own.name,
        checksum=own.checksum,
        task=config.task or "mlp",
        task_checksum=code,
        validation_share=config.shares[1],
        test_share=config.shares[2],
        num_clusters=config.num_clusters or known,
        num_newcomers=config.newcomers,
        num_classes=own.num_classes,
        step_size=config.step_sizes[0],
        repetition=0,
    )


def refuse_impossible(config: Config, trial: OwnTrial, own: Own) -> None:
    """Raises ValueError where an algorithm needs what is not there, before anything is
    run."""
    for contestant in config.contestants:
        for arm in contestant.settings:
            _check_known(arm, trial, own)
            one = dataclasses.replace(trial, arm=arm.without("step_size").text)
            try:
                algorithm = algorithm_of(one, own.task, own.clusters)
                jax.eval_shape(algorithm.init, jax.random.key(0), own.data)
            except ValueError as error:
                raise ValueError(f"{arm.text}: {error}") from error


def _check_known(arm: Arm, trial: OwnTrial, own: Own) -> None:
    """Raise ValueError where the clusters, or their number, must be known."""
    row, given = registration(arm.algorithm), dict(arm.changes)
    if row.needs_truth and own.clusters is None:
        raise ValueError(
            f"{arm.text} is told the true clusters, and {own.name} has no `clusters`."
        )
    if own.clusters is not None and row.needs_truth:
        number = int(own.clusters.max()) + 1
        if trial.num_clusters < number:
            raise ValueError(
                f"{arm.text} is told the true clusters: `num_clusters` must be at "
                f"least {number}, got {trial.num_clusters}."
            )
    told = ["num_clusters"] * row.clustered + ["max_clusters"] * (
        "max_clusters" in row.defaults
    )
    if not trial.num_clusters and any(name not in given for name in told):
        raise ValueError(
            f"{arm.text} is told a number of clusters, and {own.name} has no "
            "`clusters`: say `--num-clusters N`."
        )


def draw_clients(config: Config, own: Own) -> Clients:
    """The data of all seeds; each follows from the seed and its number alone.

    Raises:
      ValueError: if a client would have no sample in a part.
    """
    key = jax.random.fold_in(jax.random.key(config.seed), 1)  # Runs draw from 0.
    found = [
        _one_draw(jax.random.fold_in(key, repetition), config, own)
        for repetition in range(config.num_trials)
    ]
    together = jax.tree.map(lambda *leaves: np.stack(leaves), *found)
    return jax.device_put(together)


def _one_draw(key: PRNGKeyArray, config: Config, own: Own) -> Clients:
    """The data of one seed."""
    split_key, join_key = jax.random.split(key)
    parts = split_samples(split_key, own.data, config.shares)
    order = np.asarray(jax.random.permutation(join_key, len(own.data.mask)))
    cut = len(order) - config.newcomers
    old, new = np.sort(order[:cut]), np.sort(order[cut:])
    take = lambda data, rows: jax.tree.map(lambda leaf: np.asarray(leaf)[rows], data)
    train, validation, test = parts
    return Clients(
        train=take(train, old),
        clusters=None if own.clusters is None else own.clusters[old],
        validation=take(validation, old),
        test=take(test, old),
        new_train=take(train, new),
        new_test=take(test, new),
    )


def simulate(
    trial: OwnTrial, key: PRNGKeyArray, clients: Clients, *, task: Task
) -> dict[str, Array]:
    """As `trial.simulate`, of the user's model."""
    return run_once(
        trial, key, clients, lambda own: algorithm_of(trial, task, own.clusters)
    )
