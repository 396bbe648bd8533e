"""One trial of a comparison: an arm on the clients of one repetition."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.kernels.checks import check_member
from cfljax.kernels.evaluate import NO_CLUSTER
from cfljax.models import mlp
from cfljax.types import Algorithm, ClientData, Task
from experiments.clove.networks import Network, Widths, network
from experiments.clove.partitions import Partition
from experiments.clove.scores import rand_index
from experiments.compare.arms import (
    Arm,
    Optimizer,
    Setup,
    build,
    finds_clusters,
    parse,
)
from experiments.compare.samples import Clients

__all__ = ["DIMS", "Trial", "build_algorithm", "simulate"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "validation": ("tested",),  # accuracy on clients' own validation samples
    "test": ("tested",),  # likewise, on their test samples
    "newcomers": (),  # accuracy of newcomers who joined after the last round
    "rand_index": ("round",),  # ARI of the clients that took part; NaN without any, and
    # where no two of them are of one cluster: there is nothing to find
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the samples.

    arm: text of an `Arm`, without its step size.
    partition: of `clove.partitions`.
    dataset, checksum: of the samples.
    num_clusters, cluster_size, num_newcomers, num_samples, num_validation_samples,
      num_test_samples: of `samples.Sizes`.
    num_classes: of the samples.
    network: of `clove.networks`.
    num_channels, num_hidden, num_words: of its widths.
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_epochs, batch_size, optimizer, clients_per_chunk: of `arms.Setup`.
    step_size: of local training.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    arm: str
    partition: Partition
    dataset: str
    checksum: str
    num_clusters: int
    cluster_size: int
    num_newcomers: int
    num_samples: int
    num_validation_samples: int
    num_test_samples: int
    num_classes: int
    network: Network
    num_channels: int
    num_hidden: int
    num_words: int
    num_rounds: int
    rounds_between: int
    num_epochs: int
    batch_size: int
    optimizer: Optimizer
    clients_per_chunk: int
    step_size: float
    repetition: float

    def __post_init__(self) -> None:
        check_member(Partition, partition=self.partition)
        check_member(Network, network=self.network)
        check_member(Optimizer, optimizer=self.optimizer)


class Seen(NamedTuple):
    """What one round did.

    rand_index: agreement of the clusters with the true ones; NaN without any.
    received, sent: MiB of all clients.
    """

    rand_index: Float[Array, ""]
    received: Float[Array, ""]
    sent: Float[Array, ""]


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run from one random start, tested along the way: the arrays of `DIMS`.

    All arms of one repetition share its data and the run's key.

    Args:
      trial: its parameters.
      key: of all trials; folded with the repetition, it is the run's.
      clients: of all repetitions.
    """
    repetition = jnp.asarray(trial.repetition)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    index = repetition.astype(jnp.int32)
    own = jax.tree.map(lambda leaf: leaf[index], clients)
    algorithm = build_algorithm(trial, own.train.inputs.shape[2:], own.clusters)
    # Together: predicting is compiled once.
    questions = jnp.concatenate([own.validation.inputs, own.test.inputs], axis=1)
    number = trial.num_validation_samples

    def observe(state: Any, seen: Seen) -> dict[str, Array]:
        outputs = algorithm.predict(state, own.train, questions)
        return {
            "validation": _accuracy(outputs[:, :number], own.validation),
            "test": _accuracy(outputs[:, number:], own.test),
            **seen._asdict(),
        }

    state, trace = engine.run(
        _between_tests(trial, algorithm, own.clusters),
        run_key,
        own.train,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )
    joined = jnp.full((), jnp.nan, trace["test"].dtype)
    if trial.num_newcomers:
        new_key = jax.random.fold_in(run_key, 2)  # The run has drawn from 0 and 1.
        state = algorithm.join(new_key, state, own.new_train)
        outputs = algorithm.predict(state, own.new_train, own.new_test.inputs)
        joined = _accuracy(outputs, own.new_test)
    return {name: jnp.ravel(v) for name, v in trace.items()} | {"newcomers": joined}


def build_algorithm(
    trial: Trial, input_shape: tuple[int, ...], clusters: Int[Array, "_"]
) -> Algorithm:
    """The trial's arm on its network.

    Args:
      trial: its parameters.
      input_shape: of one sample.
      clusters: true ones of the clients that train.

    Raises:
      ValueError: as the algorithm's constructor.
    """
    names = (field.name for field in dataclasses.fields(Setup))
    setup = Setup(**{name: getattr(trial, name) for name in names})
    task = _task(trial, input_shape)
    arm: Arm = parse(trial.arm)
    return build(arm, task, setup, step_size=trial.step_size, clusters=clusters)


def _task(trial: Trial, input_shape: tuple[int, ...]) -> Task:
    """The network; one of full connections for as many classes as there are."""
    if trial.network == "mlp":
        hidden = (trial.num_hidden,)
        return mlp(input_shape, hidden=hidden, num_classes=trial.num_classes)
    widths = Widths(
        num_channels=trial.num_channels,
        num_hidden=trial.num_hidden,
        num_latent=1,  # Of autoencoders.
        num_words=trial.num_words,
    )
    return network(trial.network, input_shape, widths)


def _accuracy(outputs: Array, data: ClientData) -> Float[Array, ""]:
    return metrics.accuracy(outputs, data.targets, data.mask)


def _between_tests(
    trial: Trial, algorithm: Algorithm, truth: Int[Array, " clients"]
) -> Algorithm:
    """The algorithm with the rounds from test to test as one, which returns `Seen`s."""
    has_clusters = finds_clusters(parse(trial.arm))

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, Seen]:
        def one(state: Any, index: Array) -> tuple[Any, Seen]:
            state, info = algorithm.step(jax.random.fold_in(key, index), state, data)
            return state, _seen(info, truth, has_clusters=has_clusters)

        return jax.lax.scan(one, state, jnp.arange(trial.rounds_between))

    return algorithm._replace(step=step)


def _seen(info: Any, truth: Int[Array, " clients"], *, has_clusters: bool) -> Seen:
    """One round in numbers."""
    assignment = getattr(info, "assignment", None)
    index = jnp.full((), jnp.nan, jnp.float32)
    if has_clusters and assignment is not None:
        # Who took part but lost the way is in no cluster, which is no clustering.
        is_lost = jnp.any((info.received > 0) & (assignment == NO_CLUSTER))
        found = rand_index(assignment, truth).astype(index.dtype)
        index = jnp.where(is_lost, index, found)
    return Seen(index, metrics.mebibytes(info.received), metrics.mebibytes(info.sent))
