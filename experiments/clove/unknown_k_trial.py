"""One trial of CLoVE with an unknown number of clusters (appendix D.1.4), on FEMNIST.

Every writer is a client with all of its images. Nobody knows the true clusters.
"""

import dataclasses
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.algorithms import clove, fedavg, ifca, local
from cfljax.kernels.local_update import LocalUpdate
from cfljax.kernels.training import FirstRound
from cfljax.models import cnn
from cfljax.types import Algorithm, ClientData, Task

__all__ = ["DIMS", "Inputs", "Method", "Trial", "clusters_of", "method_of", "simulate"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # share of all test samples, each under its client's model
    "client_accuracy": ("round",),  # mean over clients of each one's own share
    "used_models": ("round",),  # models that some client trained; NaN without clusters
    "largest_cluster": ("round",),  # share of the clients in the largest one; likewise
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


class Inputs(NamedTuple):
    """What all trials share: training and test samples of the same clients."""

    train: ClientData
    test: ClientData


class Method(NamedTuple):
    """What is trained.

    name: of the algorithm.
    num_clusters: K; None where CLoVE chooses it in every round, or has no meaning.
    """

    name: Literal["clove", "ifca", "fedavg", "local"]
    num_clusters: int | None

    @property
    def clusters(self) -> bool:
        """Whether it finds clusters."""
        return self.name in ("clove", "ifca")


def method_of(text: str) -> Method:
    """The method of a text: clove, fedavg, local, or clove-2 or ifca-3 for K clusters.

    Raises:
      ValueError: if it is none of these, or has less than one cluster.
    """
    if text == "clove" or text == "fedavg" or text == "local":
        return Method(text, None)
    name, _, number = text.partition("-")
    if (name == "clove" or name == "ifca") and number.isdigit() and int(number):
        return Method(name, int(number))
    raise ValueError(
        "a method must be clove, fedavg, local, or clove or ifca with a number of "
        f"clusters, such as ifca-2; got {text!r}."
    )


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    method: a text that `method_of` understands.
    checksum: of the clients' samples, which tells other data apart.
    num_classes: number of classes.
    max_clusters: models of CLoVE where it chooses how many are used.
    first_round: whether clients' first models are random, or follow from losses.
    num_channels: of the first convolution; the second has twice as many.
    num_hidden: width of the hidden layer.
    num_rounds: T.
    num_epochs: tau, local epochs of a round.
    batch_size: of a local step.
    step_size: of Adam.
    clients_per_chunk: clients evaluated at a time, which bounds memory.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    method: str
    checksum: str
    num_classes: int
    max_clusters: int
    first_round: str
    num_channels: int
    num_hidden: int
    num_rounds: int
    num_epochs: int
    batch_size: int
    step_size: float
    clients_per_chunk: int
    repetition: float

    def __post_init__(self) -> None:
        method_of(self.method)
        if self.first_round not in get_args(FirstRound):
            raise ValueError(
                f"`first_round` must be in {get_args(FirstRound)}, got "
                f"{self.first_round!r}."
            )


def simulate(trial: Trial, key: PRNGKeyArray, inputs: Inputs) -> dict[str, Array]:
    """One run from one random start, tested in every round: the arrays of `DIMS`.

    The methods of one repetition share the run's key.

    Args:
      trial: its parameters.
      key: of all trials; folded with the repetition, it is the run's.
      inputs: samples.

    Cost of a round: that of the algorithm's, and a test of all clients; IFCA's is
    preceded by another choice of models.
    """
    run_key = jax.random.fold_in(key, jnp.asarray(trial.repetition).astype(jnp.uint32))
    method = method_of(trial.method)
    train, test = inputs
    task = cnn(
        train.inputs.shape[2:],
        channels=(trial.num_channels, 2 * trial.num_channels),
        hidden=(trial.num_hidden,),
        num_classes=trial.num_classes,
    )
    algorithm, number = _algorithm(trial, method, task)

    def observe(state: Any, info: Any) -> dict[str, Array]:
        outputs = algorithm.predict(state, train, test.inputs)
        each = jax.vmap(metrics.accuracy)(outputs, test.targets, test.mask)
        nothing = jnp.full((), jnp.nan, jnp.float32)
        used = largest = nothing
        if method.clusters:
            used, largest = clusters_of(info.assignment, number)
        return {
            "accuracy": metrics.accuracy(outputs, test.targets, test.mask),
            "client_accuracy": jnp.mean(each),
            "used_models": used,
            "largest_cluster": largest,
            "received": metrics.mebibytes(info.received),
            "sent": metrics.mebibytes(info.sent),
        }

    _, trace = engine.run(
        algorithm, run_key, train, num_rounds=trial.num_rounds, observe=observe
    )
    return trace


def _algorithm(trial: Trial, method: Method, task: Task) -> tuple[Algorithm, int]:
    """The method and its number of models; all train alike."""
    settings: dict[str, Any] = {
        "step_size": trial.step_size,
        "update": LocalUpdate(
            batch_size=trial.batch_size,
            num_epochs=trial.num_epochs,
            optimizer=optax.adam,
            clients_per_chunk=trial.clients_per_chunk,
        ),
    }
    if method.name == "local":
        return local(task, **settings), 1
    if method.name == "fedavg":
        return fedavg(task, **settings), 1
    settings["first_round"] = trial.first_round
    if method.name == "ifca":
        assert method.num_clusters is not None
        settings |= {"option": "model", "weights": "samples"}
        number = method.num_clusters
        return ifca(task, num_clusters=number, **settings), number
    if method.num_clusters is not None:
        number = method.num_clusters
        return clove(task, num_clusters=number, **settings), number
    number = trial.max_clusters
    settings |= {"clustering": "agglomerative", "select_number": True}
    return clove(task, num_clusters=number, **settings), number


def clusters_of(assignment: Int[Array, " clients"], number: int) -> tuple[Array, Array]:
    """Models that clients have, and the share of all clients that the largest has."""
    used = metrics.num_used_clusters(assignment, number)
    members = jax.nn.one_hot(assignment, number).sum(axis=0)
    return used.astype(members.dtype), jnp.max(members) / assignment.shape[0]
