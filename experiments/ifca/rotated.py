"""One trial of IFCA's experiments on rotated images (section 6.2).

A trial shares rotated images out among clients, trains one algorithm on them and
tests it as the paper does, on test clients of a single rotation each, and otherwise.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax import engine, metrics
from cfljax.data import Images, rotated
from cfljax.data.sources import Arrays
from cfljax.types import Algorithm, ClientData, Stacked, Task, Truth
from experiments.ifca.rotated_algorithms import algorithm_of, task_of
from experiments.ifca.rotated_scores import accuracy_of_best, accuracy_of_each
from experiments.ifca.rotated_trial import Trial
from experiments.ifca.starts import Started

__all__ = ["DIMS", "IDENTITY_DIMS", "identities", "several_rounds", "simulate"]

# Outputs of a trial and the names of their own axes; NaN where an algorithm has none.
# Of clusters, they describe what IFCA's participants chose in the round.
IDENTITY_DIMS: dict[str, tuple[str, ...]] = {
    "matched_accuracy": ("round",),  # share of participants in their true cluster
    "rand_index": ("round",),  # adjusted for chance
    "used_clusters": ("round",),  # models chosen by some participant
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
    "start_draws": (),  # starts that were drawn, see `starts`
    "start_share": (),  # of a sample of clients, in the start's smallest cluster
}
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # of the test clients, after the round
    "held_out": ("round",),  # the same, chosen and judged on different samples
    "last_cluster": ("round",),  # of local models, on the last cluster only
} | IDENTITY_DIMS


def simulate(trial: Trial, key: PRNGKeyArray, images: Arrays) -> dict[str, Array]:
    """One trial: data, one run from one random start, tests along the way.

    The algorithms of one repetition share the data and the run's key.

    Args:
      trial: its parameters.
      key: of all trials; folded with the repetition, it splits into the data's key
        and the run's.
      images: the image set.

    Returns:
      The arrays of `DIMS`.
    """
    run_key, train, truth, test = _clients(trial, key, images)
    task = task_of(trial, images.train_inputs.shape[1:])
    algorithm, models_of = algorithm_of(task, trial)

    def observe(state: Any, info: Any) -> dict[str, Array]:
        scores = _scores(task, trial, models_of(state), truth, test)
        return scores | _clusters_found(trial, info, truth)

    final, trace = engine.run(
        several_rounds(algorithm, trial.rounds_between),
        run_key,
        _own_clients(trial, train),
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )
    return trace | _start_found(final)


def identities(trial: Trial, key: PRNGKeyArray, images: Arrays) -> dict[str, Array]:
    """One trial of IFCA like `simulate`, in which nothing is tested.

    Returns:
      The arrays of `IDENTITY_DIMS`. Estimates in round t are made with the models of
      the round before, at whose end they are.
    """
    run_key, train, truth, _ = _clients(trial, key, images)
    task = task_of(trial, images.train_inputs.shape[1:])
    final, trace = engine.run(
        several_rounds(algorithm_of(task, trial)[0], trial.rounds_between),
        run_key,
        train,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=lambda state, info: _clusters_found(trial, info, truth),
    )
    return trace | _start_found(final)


def several_rounds(algorithm: Algorithm, num_rounds: int) -> Algorithm:
    """The algorithm with `num_rounds` of its rounds as one; info is the last's."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, PyTree]:
        for_info = jax.eval_shape(algorithm.step, key, state, data)[1]
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), for_info)

        def one(index: Array, carry: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
            return algorithm.step(jax.random.fold_in(key, index), carry[0], data)

        return jax.lax.fori_loop(0, num_rounds, one, (state, empty))

    return Algorithm(init=algorithm.init, step=step, predict=algorithm.predict)


def _clients(
    trial: Trial, key: PRNGKeyArray, images: Arrays
) -> tuple[PRNGKeyArray, ClientData, Truth, ClientData]:
    """The run's key, training clients with their clusters, and test clients."""
    repetition = jnp.asarray(trial.repetition).astype(jnp.uint32)
    data_key, run_key = jax.random.split(jax.random.fold_in(key, repetition))
    train, truth, test, _ = rotated(
        Images(*images, source=trial.images),
        key=data_key,
        num_clients=trial.num_clients,
        num_samples=trial.num_samples,
        num_clusters=trial.num_clusters,
        num_test_clients=trial.num_test_clients,
        num_test_samples=trial.num_test_samples,
    )
    return run_key, train, truth, test


def _spaced(number: int, total: int) -> Callable[[PyTree], PyTree]:
    """Takes `number` of `total` rows at equal distances, as many of each cluster."""
    if number == total:
        return lambda stacked: stacked
    index = jnp.arange(number) * total // number
    return lambda stacked: jax.tree.map(lambda leaf: leaf[index], stacked)


def _own_clients(trial: Trial, train: ClientData) -> ClientData:
    """The clients that the trial's algorithm trains."""
    if trial.algorithm != "local":
        return train
    return _spaced(trial.num_local_clients, trial.num_clients)(train)


def _scores(
    task: Task, trial: Trial, models: Stacked, truth: Truth, test: ClientData
) -> dict[str, Array]:
    """Test accuracies of the models after a round."""
    chunk = {"clients_per_chunk": trial.clients_per_chunk}
    nothing = jnp.full((), jnp.nan)
    if trial.algorithm != "local":
        best = accuracy_of_best(task, models, test, **chunk)
        return {
            "accuracy": best.own_labels,
            "held_out": best.held_out,
            "last_cluster": nothing,
        }
    k = trial.num_clusters
    own = _spaced(trial.num_local_clients, trial.num_clients)(truth.clusters)
    each = accuracy_of_each(task, models, own, test, k, **chunk)
    last = nothing
    if trial.num_released:
        some = _spaced(trial.num_released, trial.num_local_clients)(models)
        clusters = jnp.full(trial.num_released, k - 1)
        last = jnp.mean(accuracy_of_each(task, some, clusters, test, k, **chunk))
    return {"accuracy": jnp.mean(each), "held_out": nothing, "last_cluster": last}


def _clusters_found(trial: Trial, info: Any, truth: Truth) -> dict[str, Array]:
    """How well the participants' clusters of IFCA agree with the rotations, and what
    was sent."""
    mebibytes = lambda sizes: jnp.sum(sizes.astype(jnp.float32)) / 2**20
    traffic = {"received": mebibytes(info.received), "sent": mebibytes(info.sent)}
    if trial.algorithm != "ifca":
        names = ("matched_accuracy", "rand_index", "used_clusters")
        return {name: jnp.full((), jnp.nan) for name in names} | traffic
    k = trial.num_clusters
    (present,) = jnp.nonzero(info.received, size=trial.num_participants)
    chosen, rotations = info.assignment[present], truth.clusters[present]
    used = metrics.num_used_clusters(chosen, k)
    return {
        "matched_accuracy": metrics.matched_accuracy(chosen, rotations, k),
        "rand_index": metrics.adjusted_rand_index(chosen, rotations, k),
        "used_clusters": used.astype(jnp.float32),
    } | traffic


def _start_found(final: Any) -> dict[str, Array]:
    """What the filter of starts did; NaN where there was none."""
    if not isinstance(final, Started):
        return {name: jnp.full((), jnp.nan) for name in ("start_draws", "start_share")}
    draws = final.draws.astype(jnp.float32)
    return {"start_draws": draws, "start_share": final.share}
