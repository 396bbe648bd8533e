"""Local models of the rotated images, trained and tested a group at a time."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax import engine
from cfljax.types import ClientData, Task
from experiments.ifca.rotated_algorithms import algorithm_of, several_rounds
from experiments.ifca.rotated_scores import accuracy_of_each
from experiments.ifca.rotated_trial import Trial

__all__ = ["local_accuracies"]


def local_accuracies(
    task: Task,
    trial: Trial,
    key: PRNGKeyArray,
    train: ClientData,
    clusters: Int[Array, " clients"],
    test: ClientData,
) -> dict[str, Float[Array, " tests"]]:
    """Mean test accuracy of local models after some of the rounds.

    Clients that train alone need not be in memory together: a group runs through
    all rounds, then the next, which draws from a key of its own.

    Args:
      task: the learning problem.
      trial: how models are trained and tested.
      key: of the run.
      train: all training clients.
      clusters: theirs.
      test: the test clients, those of a cluster consecutive.

    Returns:
      "accuracy", on the test clients of each model's own cluster, and
      "last_cluster", of `num_released` models on those of the last cluster.

    Memory: models and data of `clients_per_chunk` clients at most, beside all data.
    """
    k, size = trial.num_clusters, _group_size(trial)
    chunk = {"clients_per_chunk": trial.clients_per_chunk}
    algorithm = several_rounds(algorithm_of(task, trial)[0], trial.rounds_between)
    clients, is_released = _in_order(trial)

    def of_group(group: tuple) -> dict[str, Float[Array, "tests models"]]:
        index, data, own, is_released = group

        def last(models: Any) -> Float[Array, " models"]:
            everyone = jnp.full(size, k - 1)
            return accuracy_of_each(task, models, everyone, test, k, **chunk)

        def observe(state: Any, info: Any) -> dict[str, Float[Array, " models"]]:
            del info
            models = state.models
            each = accuracy_of_each(task, models, own, test, k, **chunk)
            if not trial.num_released:
                return {"accuracy": each, "last_cluster": jnp.full(size, jnp.nan)}
            nothing = lambda models: jnp.zeros(size)
            others = jax.lax.cond(jnp.any(is_released), last, nothing, models)
            return {"accuracy": each, "last_cluster": others}

        return engine.run(
            algorithm,
            jax.random.fold_in(key, index),
            data,
            num_rounds=trial.num_rounds // trial.rounds_between,
            observe=observe,
        )[1]

    take = lambda leaf: leaf if clients is None else leaf[clients]
    by_group = lambda leaf: take(leaf).reshape(-1, size, *leaf.shape[1:])
    data, own = jax.tree.map(by_group, (train, clusters))
    is_released = is_released.reshape(-1, size)
    traces = jax.lax.map(of_group, (jnp.arange(len(own)), data, own, is_released))
    # [groups, tests, models]
    released = jnp.where(is_released[:, None], traces["last_cluster"], 0)
    last_cluster = jnp.sum(released, axis=(0, 2)) / trial.num_released
    if not trial.num_released:
        last_cluster = jnp.full_like(last_cluster, jnp.nan)
    accuracy = jnp.mean(traces["accuracy"], axis=(0, 2))
    return {"accuracy": accuracy, "last_cluster": last_cluster}


def _group_size(trial: Trial) -> int:
    """Clients of a group: as many as a chunk may have, and as many in each group."""
    most = min(trial.clients_per_chunk, trial.num_local_clients)
    sizes = range(most, 0, -1)
    return next(size for size in sizes if trial.num_local_clients % size == 0)


def _in_order(
    trial: Trial,
) -> tuple[Int[Array, " models"] | None, Bool[Array, " models"]]:
    """The clients that train models, those tested as released first, and which are.

    Both are evenly spaced, so that all clusters have their share. None for all
    clients in their order, which need not be copied.
    """
    number, released = trial.num_local_clients, trial.num_released
    is_released = jnp.arange(number) < released
    if not released and number == trial.num_clients:
        return None, is_released
    spaced = jnp.arange(number) * trial.num_clients // number
    first = jnp.zeros(number, bool)
    if released:
        first = first.at[jnp.arange(released) * number // released].set(True)
    return spaced[jnp.argsort(~first, stable=True)], is_released
