"""One trial of IFCA's experiments on rotated images (section 6.2).

A trial shares rotated images out among clients, trains one algorithm on them and
tests it as the paper does, on test clients of a single rotation each, and otherwise.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.data import Images, rotated
from cfljax.data.sources import Arrays
from cfljax.types import ClientData, Truth
from experiments.ifca.rotated_algorithms import algorithm_of, several_rounds, task_of
from experiments.ifca.rotated_local import local_accuracies
from experiments.ifca.rotated_scores import accuracy_of_best
from experiments.ifca.rotated_trial import Trial
from experiments.ifca.starts import Started

__all__ = ["DIMS", "IDENTITY_DIMS", "identities", "simulate"]

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
    if trial.algorithm == "local":
        scores = local_accuracies(task, trial, run_key, train, truth.clusters, test)
        tests = trial.num_rounds // trial.rounds_between
        return {name: jnp.zeros(tests) for name in ("received", "sent")} | {
            name: scores.get(name, jnp.full((tests,) * len(own), jnp.nan))
            for name, own in DIMS.items()
            if name not in ("received", "sent")
        }
    algorithm, models_of = algorithm_of(task, trial)
    chunk = trial.clients_per_chunk

    def observe(state: Any, info: Any) -> dict[str, Array]:
        best = accuracy_of_best(task, models_of(state), test, clients_per_chunk=chunk)
        return {
            "accuracy": best.own_labels,
            "held_out": best.held_out,
            "last_cluster": jnp.full((), jnp.nan),
        } | _clusters_found(trial, info, truth)

    final, trace = engine.run(
        several_rounds(algorithm, trial.rounds_between),
        run_key,
        train,
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


def _clusters_found(trial: Trial, info: Any, truth: Truth) -> dict[str, Array]:
    """How well the participants' clusters of IFCA agree with the rotations, and what
    was sent."""
    traffic = {
        "received": metrics.mebibytes(info.received),
        "sent": metrics.mebibytes(info.sent),
    }
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
