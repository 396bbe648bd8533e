"""One trial of CLoVE's Tables 1 and 2: a method on the clients of one partition."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.algorithms import clove, fedavg, ifca, local
from cfljax.kernels.local_update import LocalUpdate
from cfljax.models import cnn, deep_cnn
from cfljax.types import Algorithm, ClientData, Task
from experiments.clove.table1_data import Clients, Partition

__all__ = ["CLUSTERED", "DIMS", "METHODS", "Method", "Trial", "simulate"]

Method = Literal["clove", "ifca", "fedavg", "local"]
Network = Literal["cnn", "deep_cnn"]
METHODS: tuple[Method, ...] = get_args(Method)
CLUSTERED: tuple[Method, ...] = ("clove", "ifca")  # Those that find clusters.

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("tested",),  # of all clients' test samples, after the round
    "rand_index": ("round",),  # of the models trained in the round; NaN without any
    "used_models": ("round",),  # models that some client trained; NaN likewise
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    method: a member of `METHODS`.
    partition: of `table1_data`.
    images: name of the image set.
    checksum: of its arrays, which tells preparations in another order apart.
    num_clients, num_samples, num_test_samples: of the clients; each is also tested.
    num_clusters: true ones, and models of CLoVE and IFCA.
    network: "cnn", or "deep_cnn" for images of 32 x 32 pixels in colour.
    num_channels: of the first convolution; each further one has twice as many.
    num_hidden: width of the hidden layer.
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_epochs: tau, local epochs of a round.
    batch_size: of a local step.
    step_size: of Adam.
    clients_per_chunk: clients evaluated at a time, which bounds memory.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    method: Method
    partition: Partition
    images: str
    checksum: str
    num_clients: int
    num_samples: int
    num_test_samples: int
    num_clusters: int
    network: Network
    num_channels: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    num_epochs: int
    batch_size: int
    step_size: float
    clients_per_chunk: int
    repetition: float

    def __post_init__(self) -> None:
        for name, allowed in (
            ("method", METHODS),
            ("partition", get_args(Partition)),
            ("network", get_args(Network)),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"`{name}` must be in {allowed}, got {getattr(self, name)!r}."
                )
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run from one random start, tested along the way: the arrays of `DIMS`.

    The methods of one repetition share its data and the run's key.

    Args:
      trial: its parameters.
      key: of all trials; folded with the repetition, it is the run's.
      clients: of all repetitions.
    """
    repetition = jnp.asarray(trial.repetition)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    index = repetition.astype(jnp.int32)
    train, clusters, test = jax.tree.map(lambda leaf: leaf[index], clients)
    algorithm = _algorithm(trial, _task(trial, train.inputs.shape[2:]))

    def observe(state: Any, infos: Any) -> dict[str, Array]:
        outputs = algorithm.predict(state, train, test.inputs)
        seen = jax.vmap(lambda info: _round(trial, info, clusters))(infos)
        return {"accuracy": metrics.accuracy(outputs, test.targets, test.mask)} | seen

    _, trace = engine.run(
        _rounds_between_tests(algorithm, trial.rounds_between),
        run_key,
        train,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )
    return {name: jnp.ravel(values) for name, values in trace.items()}


def _round(
    trial: Trial, info: Any, clusters: Int[Array, " clients"]
) -> dict[str, Array]:
    """What one round did: clusters found, and MiB sent."""
    mebibytes = lambda sizes: jnp.sum(sizes.astype(jnp.float32)) / 2**20
    traffic = {"received": mebibytes(info.received), "sent": mebibytes(info.sent)}
    if trial.method not in CLUSTERED:
        nothing = jnp.full((), jnp.nan)
        return traffic | {"rand_index": nothing, "used_models": nothing}
    found = metrics.adjusted_rand_index(info.assignment, clusters, trial.num_clusters)
    used = metrics.num_used_clusters(info.assignment, trial.num_clusters)
    # Clients that no model has a finite loss for are no clustering.
    everyone = jnp.all(info.assignment >= 0)
    return traffic | {
        "rand_index": jnp.where(everyone, found, jnp.nan),
        "used_models": used.astype(jnp.float32),
    }


def _task(trial: Trial, input_shape: Sequence[int]) -> Task:
    """The network; the paper gives kinds of layers, not their widths."""
    width = trial.num_channels
    if trial.network == "deep_cnn":
        channels = (width, 2 * width, 4 * width)
        return deep_cnn(channels=channels, hidden=(trial.num_hidden,))
    channels = (width, 2 * width)
    return cnn(input_shape, channels=channels, hidden=(trial.num_hidden,))


def _algorithm(trial: Trial, task: Task) -> Algorithm:
    """The method; all train alike."""
    settings: dict[str, Any] = {
        "step_size": trial.step_size,
        "update": LocalUpdate(
            batch_size=trial.batch_size,
            num_epochs=trial.num_epochs,
            optimizer=optax.adam,
            clients_per_chunk=trial.clients_per_chunk,
        ),
    }
    if trial.method == "local":
        return local(task, **settings)
    if trial.method == "fedavg":
        return fedavg(task, **settings)
    settings["num_clusters"] = trial.num_clusters
    if trial.method == "ifca":
        return ifca(task, option="model", **settings)
    return clove(task, **settings)


def _rounds_between_tests(algorithm: Algorithm, num_rounds: int) -> Algorithm:
    """The algorithm with `num_rounds` of its rounds as one, whose infos are stacked."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, Any]:
        def one(state: Any, index: Array) -> tuple[Any, Any]:
            return algorithm.step(jax.random.fold_in(key, index), state, data)

        return jax.lax.scan(one, state, jnp.arange(num_rounds))

    return Algorithm(init=algorithm.init, step=step, predict=algorithm.predict)
