"""One trial of IFCA's FEMNIST experiment (section 6.3, Table 2), in two variants.

- paper, section 4.3: all layers but the last are trained by all participants
  together, the last layer by each cluster, everything from a random start.
- reference, as released: one model is pretrained by FedAvg, all its layers but the last
  are frozen, random groups of clients warm the last layers up, then they are trained.

Frozen layers make the same features of an image in every round: they are computed once
and the last layers are trained on them.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax import engine, metrics
from cfljax.algorithms import fedavg, oracle
from cfljax.kernels.local_update import LocalUpdate
from cfljax.models import mlp
from cfljax.types import Algorithm, ClientData, Stacked, Task
from experiments.ifca.femnist_methods import Method, method_of, score
from experiments.ifca.femnist_network import features, head, is_shared, network
from experiments.ifca.femnist_samples import Samples, padded
from experiments.ifca.femnist_trial import Inputs, Trial

__all__ = ["pretrain", "simulate", "trained"]

CLIENTS_AT_ONCE = 3  # Bounds the memory of participants' losses, changes no result.


class Problem(NamedTuple):
    """What is learned, from what.

    task: the network, or its last layer.
    train, test: its samples.
    start: images that one-shot clustering starts with.
    is_defined: whether pretraining went well.
    """

    task: Task
    train: Samples
    test: Samples
    start: ClientData
    is_defined: Array


def simulate(trial: Trial, key: PRNGKeyArray, inputs: Inputs) -> dict[str, Array]:
    """One run from one random start, tests along the way: the arrays of `DIMS`.

    Args:
      trial: its parameters.
      key: of all trials; folded with the repetition, it splits into the keys of
        pretraining, warm-up and run.
      inputs: samples and pretrained models.
    """
    return trained(trial, key, inputs)[1]


def trained(
    trial: Trial, key: PRNGKeyArray, inputs: Inputs
) -> tuple[Any, dict[str, Array]]:
    """Final state of a run and the arrays of `DIMS`, NaN where pretraining diverged.

    The methods of one repetition share participants and the order of their samples.
    Arguments as of `simulate`.
    """
    _, warm_key, run_key = _keys(trial, key)
    problem = _problem(trial, inputs)
    method = method_of(trial.method)
    shared = is_shared if trial.variant == "paper" else None
    data = padded(problem.train)
    settings = _settings(trial, inputs)
    image_shape = inputs.train.inputs.shape[1:]
    algorithm = method.algorithm(
        problem.task,
        shared=shared,
        first=mlp(image_shape, hidden=(), num_classes=trial.num_classes),
        num_first_steps=trial.num_first_steps,
        first_step_size=trial.first_step_size,
        **settings,
    )
    if method.name == "one_shot":
        plain = algorithm
        algorithm = plain._replace(init=lambda key, _: plain.init(key, problem.start))
    if method.name == "ifca" and trial.warm_up_rounds:
        models = _warm_models(trial, warm_key, method, problem.task, data, settings)
        algorithm = _started_at(algorithm, models)
    state, trace = _run(trial, run_key, method, algorithm, problem, shared)
    keep = lambda values: jnp.where(problem.is_defined, values, jnp.nan)
    return state, jax.tree.map(keep, trace)


def pretrain(trial: Trial, key: PRNGKeyArray, inputs: Inputs) -> dict[str, Array]:
    """One model of all clients: the arrays of `PRETRAINED_DIMS`.

    Args:
      trial: of variant "paper" and method "fedavg", with the rounds of pretraining.
      key: as in `simulate`.
      inputs: samples.
    """
    pretraining_key, _, _ = _keys(trial, key)
    problem = _problem(trial, inputs)
    method = method_of(trial.method)
    algorithm = fedavg(problem.task, **_settings(trial, inputs))
    state, trace = _run(trial, pretraining_key, method, algorithm, problem, None)
    return trace | {"parameters": ravel_pytree(state.model)[0]}


def _keys(trial: Trial, key: PRNGKeyArray) -> Array:
    repetition = jnp.asarray(trial.repetition).astype(jnp.uint32)
    return jax.random.split(jax.random.fold_in(key, repetition), 3)


def _problem(trial: Trial, inputs: Inputs) -> Problem:
    """The network on images, or its last layer on what frozen layers make of them."""
    sizes = {"num_channels": trial.num_channels, "num_hidden": trial.num_hidden}
    task = network(inputs.train.inputs.shape[1:], classes=trial.num_classes, **sizes)
    start = padded(inputs.train)
    if inputs.pretrained is None:
        return Problem(task, inputs.train, inputs.test, start, jnp.asarray(True))
    repetition = jnp.asarray(trial.repetition).astype(jnp.int32)
    flat = inputs.pretrained[repetition]
    _, unravel = ravel_pytree(task.init(jax.random.key(0)))  # For the form only.
    params = unravel(flat)
    train, test = (
        samples._replace(inputs=features(params, samples.inputs, **sizes))
        for samples in (inputs.train, inputs.test)
    )
    return Problem(head(task), train, test, start, jnp.all(jnp.isfinite(flat)))


def _settings(trial: Trial, inputs: Inputs) -> dict[str, Any]:
    """What all algorithms are trained with."""
    update = LocalUpdate(
        batch_size=trial.batch_size,
        num_epochs=trial.num_epochs,
        clients_per_chunk=CLIENTS_AT_ONCE,
    )
    return {
        "step_size": trial.step_size,
        "participation": trial.num_participants / inputs.train.mask.shape[0],
        "update": update,
    }


def _warm_models(
    trial: Trial,
    key: PRNGKeyArray,
    method: Method,
    task: Task,
    data: ClientData,
    settings: dict[str, Any],
) -> Stacked:
    """Models of random groups of clients, as equal in size as can be."""
    group_key, run_key = jax.random.split(key)
    num_clients, k = data.mask.shape[0], method.num_clusters
    groups = jax.random.permutation(group_key, num_clients) % k
    forced = oracle(
        task,
        clusters=groups,
        num_clusters=k,
        option="model",
        weights="samples",
        **settings,
    )
    state, _ = engine.run(forced, run_key, data, num_rounds=trial.warm_up_rounds)
    return state.models


def _started_at(algorithm: Algorithm, models: Stacked) -> Algorithm:
    """The algorithm from given models."""
    init = lambda key, data: algorithm.init(key, data)._replace(models=models)
    return algorithm._replace(init=init)


def _run(
    trial: Trial,
    key: PRNGKeyArray,
    method: Method,
    algorithm: Algorithm,
    problem: Problem,
    shared: Any,
) -> tuple[Any, dict[str, Array]]:
    """Final state, and the arrays of `DIMS`."""

    def observe(state: Any, traffic: tuple[Array, Array]) -> dict[str, Array]:
        found = score(method, problem.task, state, problem.train, problem.test, shared)
        return found._asdict() | dict(zip(("received", "sent"), traffic, strict=True))

    return engine.run(
        _several_rounds(algorithm, trial.rounds_between),
        key,
        padded(problem.train),
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )


def _several_rounds(algorithm: Algorithm, num_rounds: int) -> Algorithm:
    """The algorithm with `num_rounds` of its rounds as one; info is the mean MiB that
    all clients together received and sent in one of them."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, PyTree]:
        def one(state: Any, index: Array) -> tuple[Any, tuple[Array, Array]]:
            state, info = algorithm.step(jax.random.fold_in(key, index), state, data)
            return state, (
                metrics.mebibytes(info.received),
                metrics.mebibytes(info.sent),
            )

        state, traffic = jax.lax.scan(one, state, jnp.arange(num_rounds))
        return state, jax.tree.map(jnp.mean, traffic)

    return Algorithm(init=algorithm.init, step=step, predict=algorithm.predict)
