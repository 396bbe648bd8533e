"""One trial of CLoVE's experiments: a method on the clients of one partition."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.kernels.checks import check_member
from cfljax.kernels.evaluate import NO_CLUSTER
from cfljax.kernels.local_update import LocalUpdate
from cfljax.losses import squared_error
from cfljax.types import Algorithm, ClientData
from experiments.clove.methods import (
    METHODS,
    Method,
    Sizes,
    build,
    clusters,
    num_labels,
)
from experiments.clove.networks import (
    Network,
    Widths,
    is_classifier,
    network,
    num_classes,
)
from experiments.clove.partitions import Clients, Partition
from experiments.clove.scores import rand_index

__all__ = ["DIMS", "Carry", "Trial", "build_algorithm", "run", "simulate"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "score": ("tested",),  # accuracy or reconstruction loss on clients' test samples
    "rand_index": ("round",),  # of the models trained in the round; NaN without any,
    # and where no two participants are of one cluster: there is nothing to find
    "seen_rand_index": ("round",),  # of the latest model of all who ever took part
    "used_models": ("round",),  # models that some client trained; NaN likewise
    "stable": ("round",),  # 1 if clustering was over before the round, 0 if not
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the samples.

    method: a key of `METHODS`.
    partition: of `partitions`.
    dataset: name of the samples.
    checksum: of their arrays, which tells preparations in another order apart.
    num_clients, num_samples, num_test_samples: of the clients; each is also tested.
    num_participants: clients drawn for a round; local models train always.
    num_clusters: true ones, and models of the methods that find clusters.
    network: of `networks`.
    num_channels, num_hidden, num_latent, num_words: of `networks.Widths`.
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_epochs: tau, local epochs of a round.
    batch_size: of a local step.
    step_size: of Adam.
    gradient_step_size: of gradient averaging, which takes one step a round.
    clients_per_chunk: clients evaluated at a time, which bounds memory.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    method: Method
    partition: Partition
    dataset: str
    checksum: str
    num_clients: int
    num_samples: int
    num_test_samples: int
    num_participants: int
    num_clusters: int
    network: Network
    num_channels: int
    num_hidden: int
    num_latent: int
    num_words: int
    num_rounds: int
    rounds_between: int
    num_epochs: int
    batch_size: int
    step_size: float
    gradient_step_size: float
    clients_per_chunk: int
    repetition: float

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)
        check_member(Partition, partition=self.partition)
        check_member(Network, network=self.network)
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )


class Carry(NamedTuple):
    """What goes from round to round.

    state: of the algorithm.
    latest: `[clients]`, the model that each client trained last, `NO_CLUSTER` before.
    """

    state: Any
    latest: Int[Array, " clients"]


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run from one random start, tested along the way: the arrays of `DIMS`.

    The methods of one repetition share its data and the run's key.

    Args:
      trial: its parameters.
      key: of all trials; folded with the repetition, it is the run's.
      clients: of all repetitions.
    """
    return run(trial, key, clients)[1]


def run(
    trial: Trial, key: PRNGKeyArray, clients: Clients
) -> tuple[Carry, dict[str, Array]]:
    """What the last round leaves, and the arrays of `DIMS`. Arguments of `simulate`."""
    repetition = jnp.asarray(trial.repetition)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    index = repetition.astype(jnp.int32)
    train, truth, test = jax.tree.map(lambda leaf: leaf[index], clients)
    algorithm = build_algorithm(trial, train.inputs.shape[2:])

    def observe(carry: Carry, seen: Any) -> dict[str, Array]:
        outputs = algorithm.predict(carry.state, train, test.inputs)
        rounds = jax.vmap(lambda info, latest: _round(trial, info, latest, truth))(
            *seen
        )
        return {"score": _score(trial, outputs, test)} | rounds

    carry, trace = engine.run(
        _between_tests(trial, algorithm),
        run_key,
        train,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )
    return carry, {name: jnp.ravel(values) for name, values in trace.items()}


def build_algorithm(trial: Trial, input_shape: tuple[int, ...]) -> Algorithm:
    """The trial's method on its network; all but gradient averaging train alike."""
    widths = Widths(**{name: getattr(trial, name) for name in Widths._fields})
    settings: dict[str, Any] = {
        "step_size": trial.step_size,
        "update": LocalUpdate(
            batch_size=trial.batch_size,
            num_epochs=trial.num_epochs,
            optimizer=optax.adam,
            clients_per_chunk=trial.clients_per_chunk,
        ),
    }
    if METHODS[trial.method].options.get("option") == "gradient":
        settings = {
            "step_size": trial.gradient_step_size,
            "update": LocalUpdate(clients_per_chunk=trial.clients_per_chunk),
        }
    if trial.method != "local":
        settings["participation"] = trial.num_participants / trial.num_clients
    task = network(trial.network, input_shape, widths)
    return build(trial.method, task, _sizes(trial), **settings)


def _sizes(trial: Trial) -> Sizes:
    """What methods may have to know."""
    return Sizes(
        num_clusters=trial.num_clusters,
        num_clients=trial.num_clients,
        num_rounds=trial.num_rounds,
        num_classes=num_classes(trial.network),
    )


def _score(trial: Trial, outputs: Array, test: ClientData) -> Float[Array, ""]:
    """Accuracy, or squared error of a reconstruction, over all test samples."""
    if is_classifier(trial.network):
        return metrics.accuracy(outputs, test.targets, test.mask)
    errors = jax.vmap(squared_error)(outputs, test.inputs)
    return jnp.sum(errors * test.mask) / jnp.sum(test.mask)


def _round(
    trial: Trial,
    info: Any,
    latest: Int[Array, " clients"],
    truth: Int[Array, " clients"],
) -> dict[str, Array]:
    """What one round did: clusters found, and MiB sent."""
    found = {
        "received": metrics.mebibytes(info.received),
        "sent": metrics.mebibytes(info.sent),
    }
    stable = jnp.asarray(getattr(info, "stable", False), jnp.float32)
    if not clusters(trial.method):
        nothing = jnp.full((), jnp.nan, jnp.float32)
        names = ("rand_index", "seen_rand_index", "used_models")
        return found | dict.fromkeys(names, nothing) | {"stable": stable}
    # Participants that no model has a finite loss for are no clustering.
    is_lost = jnp.any((info.received > 0) & (info.assignment == NO_CLUSTER))
    index = lambda assignment: jnp.where(
        is_lost, jnp.nan, rand_index(assignment, truth)
    )
    labels = num_labels(trial.method, _sizes(trial))
    used = metrics.num_used_clusters(info.assignment, labels)
    return found | {
        "rand_index": index(info.assignment),
        "seen_rand_index": index(latest),
        "used_models": used.astype(jnp.float32),
        "stable": stable,
    }


def _between_tests(trial: Trial, algorithm: Algorithm) -> Algorithm:
    """The algorithm with the rounds from test to test as one, whose infos are stacked.

    The state is a `Carry`; the info the pair of the algorithm's own and `latest`.
    """

    def init(key: PRNGKeyArray, data: ClientData) -> Carry:
        nobody = jnp.full(data.mask.shape[:1], NO_CLUSTER, jnp.int32)
        return Carry(algorithm.init(key, data), nobody)

    def step(key: PRNGKeyArray, carry: Carry, data: ClientData) -> tuple[Carry, Any]:
        def one(carry: Carry, index: Array) -> tuple[Carry, Any]:
            state, info = algorithm.step(
                jax.random.fold_in(key, index), carry.state, data
            )
            latest = carry.latest
            if clusters(trial.method):
                trained = info.assignment != NO_CLUSTER
                latest = jnp.where(
                    trained, info.assignment.astype(latest.dtype), latest
                )
            return Carry(state, latest), (info, latest)

        return jax.lax.scan(one, carry, jnp.arange(trial.rounds_between))

    def predict(carry: Carry, data: ClientData, inputs: Array) -> Array:
        return algorithm.predict(carry.state, data, inputs)

    return Algorithm(init=init, step=step, predict=predict)
