"""One trial of a comparison: an arm on the clients of one repetition."""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import metrics
from cfljax.base import NO_CLUSTER, Algorithm, ClientData, Task, check_member
from cfljax.models import mlp
from experiments.clove.networks import Network, network
from experiments.clove.partitions import Partition, draw
from experiments.clove.sources import Source
from experiments.clove.study import rand_index, traffic
from experiments.compare.arms import Optimizer, Setup, build, finds_clusters, parse
from experiments.study import run_with_tests, trial_of

NUM_CLASSES = {"ag_news": 4, "amazon_reviews": 2}  # The others have ten.

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "validation": ("tested",),  # accuracy on clients' own validation samples
    "test": ("tested",),  # likewise, on their test samples
    "newcomers": (),  # accuracy of newcomers who joined after the last round
    "rand_index": ("round",),  # ARI of the clients that took part; NaN without any, and
    # where no two of them are of one cluster: there is nothing to find; or the true
    # clusters are not known
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


@dataclasses.dataclass(frozen=True)
class AnyTrial:
    """What the law of a trial depends on, whosever data these are.

    num_rounds, rounds_between, step_size: of `Config`.
    num_epochs, batch_size, optimizer, clients_per_chunk: of `Setup`.
    """

    arm: str  # text of an `Arm`, without its step size
    dataset: str  # name of the samples, or of their file without its folder
    checksum: str  # of the samples, or SHA-256 of the file
    num_clusters: int  # true ones, or models of who is told how many; 0 if unknown
    num_newcomers: int  # clients that never train: of a cluster, or of all
    num_classes: int  # of the samples, or outputs of the model
    num_hidden: int  # of the usual network
    num_rounds: int
    rounds_between: int
    num_epochs: int
    batch_size: int
    optimizer: Optimizer
    clients_per_chunk: int
    step_size: float
    repetition: int  # seed, traced: repetitions share a program, yet are stored alone

    def __post_init__(self) -> None:
        check_member(Optimizer, optimizer=self.optimizer)


@dataclasses.dataclass(frozen=True)
class Trial(AnyTrial):
    """Everything that one trial's law depends on, besides the samples.

    num_clusters, cluster_size, num_newcomers, num_samples, num_validation_samples,
      num_test_samples: of `Sizes`.
    num_channels, num_words: widths of the network, beside `num_hidden`.
    """

    partition: Partition  # of `clove.partitions`
    cluster_size: int
    num_samples: int
    num_validation_samples: int
    num_test_samples: int
    network: Network  # of `clove.networks`
    num_channels: int
    num_words: int

    def __post_init__(self) -> None:
        super().__post_init__()
        check_member(Partition, partition=self.partition)
        check_member(Network, network=self.network)


class Clients(NamedTuple):
    """The data of all repetitions, leaves `[repetitions, clients, ...]`.

    new_train, new_test: of the newcomers, which have clusters of the same kinds.
    """

    train: ClientData  # training samples
    # True ones; None where nobody knows them.
    clusters: Int[Array, "repetitions clients"] | None
    validation: ClientData  # what hyperparameters and rounds are chosen by
    test: ClientData  # what nothing is chosen by
    new_train: ClientData
    new_test: ClientData


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run from one random start, tested along the way: the arrays of `DIMS`. The
    arms of one repetition share its data and the run's key.
    """
    return run_once(
        trial,
        key,
        clients,
        lambda own: build_algorithm(trial, own.train.inputs.shape[2:], own.clusters),
    )


def run_once(
    trial: AnyTrial,
    key: PRNGKeyArray,
    clients: Clients,
    make: Callable[[Clients], Algorithm],
) -> dict[str, Array]:
    """As `simulate`, of the algorithm that is made for the clients of the repetition,
    under the trial's arm, rounds and newcomers."""
    repetition = jnp.asarray(trial.repetition)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    index = repetition.astype(jnp.int32)
    own = jax.tree.map(lambda leaf: leaf[index], clients)
    algorithm = make(own)
    # Together: predicting is compiled once.
    questions = jnp.concatenate([own.validation.inputs, own.test.inputs], axis=1)
    number = own.validation.mask.shape[1]

    def test(own: Clients, questions: Array, state: Any) -> dict[str, Array]:
        outputs = algorithm.predict(state, own.train, questions)
        return {
            "validation": accuracy(outputs[:, :number], own.validation),
            "test": accuracy(outputs[:, number:], own.test),
        }

    state, seen, scores = run_with_tests(
        trial,
        algorithm,
        run_key,
        own.train,
        observe=Partial(observer(trial), own.clusters),
        test=Partial(test, own, questions),
    )
    joined = jnp.full((), jnp.nan, scores["test"].dtype)
    if trial.num_newcomers:
        new_key = jax.random.fold_in(run_key, 2)  # The run has drawn from 0 and 1.
        state = algorithm.join(new_key, state, own.new_train)
        outputs = algorithm.predict(state, own.new_train, own.new_test.inputs)
        joined = accuracy(outputs, own.new_test)
    return scores | seen | {"newcomers": joined}


def build_algorithm(
    trial: Trial, input_shape: tuple[int, ...], clusters: Int[Array, "_"] | None
) -> Algorithm:
    """The trial's arm on its network, given the true clusters of those who train."""
    if trial.network == "mlp":  # For as many classes as there are.
        hidden = (trial.num_hidden,)
        task = mlp(input_shape, hidden=hidden, num_classes=trial.num_classes)
    else:
        names = ("num_channels", "num_hidden", "num_words")
        widths = {name: getattr(trial, name) for name in names}
        # Autoencoders alone have a latent space.
        task = network(trial.network, input_shape, num_latent=1, **widths)
    return algorithm_of(trial, task, clusters)


def algorithm_of(
    trial: AnyTrial, task: Task, clusters: Int[Array, "_"] | None
) -> Algorithm:
    """A trial's arm on a task."""
    arm, setup = parse(trial.arm), trial_of(Setup, trial)
    return build(arm, task, setup, step_size=trial.step_size, clusters=clusters)


def accuracy(outputs: Array, data: ClientData) -> Float[Array, ""]:
    """Share of all samples that are answered rightly."""
    return metrics.accuracy(outputs, data.targets, data.mask)


def observer(trial: Any) -> Callable[..., dict[str, Array]]:
    """What is seen of each round, given the true clusters if they are known."""
    has_clusters = finds_clusters(parse(trial.arm))

    def observe(
        truth: Int[Array, " clients"] | None, state: Any, info: Any
    ) -> dict[str, Array]:
        del state
        assignment = getattr(info, "assignment", None)
        index = jnp.full((), jnp.nan, jnp.float32)
        if has_clusters and assignment is not None and truth is not None:
            # Who took part but lost the way is in no cluster, which is no clustering.
            took_part = getattr(info, "received", jnp.ones(truth.shape)) > 0
            is_lost = jnp.any(took_part & (assignment == NO_CLUSTER))
            found = rand_index(assignment, truth).astype(index.dtype)
            index = jnp.where(is_lost, index, found)
        return _traffic(info) | {"rand_index": index}

    return observe


def _traffic(info: Any) -> dict[str, Array]:
    """As `traffic`; NaN where an algorithm of the user's own does not tell."""
    if hasattr(info, "received") and hasattr(info, "sent"):
        return traffic(info)
    unknown = jnp.full((), jnp.nan, jnp.float32)
    return {"received": unknown, "sent": unknown}


class Sizes(NamedTuple):
    """How many of everything."""

    num_clusters: int  # true clusters
    cluster_size: int  # clients of a cluster that train
    num_newcomers: int  # clients of a cluster that never train; may be 0
    num_samples: int  # training samples of a client
    num_validation_samples: int  # further ones, of the training split, never trained on
    num_test_samples: int  # of a client, of the test split

    @property
    def shared_out(self) -> dict[str, int]:
        """What a partition is asked for: newcomers and validation are split off."""
        return {
            "num_clusters": self.num_clusters,
            "num_clients": self.num_clusters * (self.cluster_size + self.num_newcomers),
            "num_samples": self.num_samples + self.num_validation_samples,
            "num_test_samples": self.num_test_samples,
        }


def draw_clients(
    partition: Partition, source: Source, sizes: Sizes, *, seed: int, repetitions: int
) -> Clients:
    """The data of all repetitions; each follows from the seed and its number alone.
    Memory: float32 pixels of all samples, twice.

    No sample is used twice. A client's come in a random order, its last ones to
    validate.

    Raises:
      ValueError: if the samples do not suffice.
    """
    seeds = {"seed": seed, "repetitions": repetitions}
    whole = draw(partition, source.samples, **seeds, **sizes.shared_out)
    # Clients of one cluster are consecutive; the last of each are the newcomers.
    of_cluster = sizes.cluster_size + sizes.num_newcomers
    places = np.arange(sizes.num_clusters * of_cluster)
    is_new = places % of_cluster >= sizes.cluster_size
    old, new = places[~is_new], places[is_new]
    whole = jax.tree.map(np.asarray, whole)  # Nothing to compile for each part.
    take = lambda data, rows, samples=slice(None): jax.tree.map(
        lambda leaf: jax.device_put(leaf[:, rows][:, :, samples]), data
    )
    trained = slice(sizes.num_samples)
    return Clients(
        train=take(whole.train, old, trained),
        clusters=jax.device_put(whole.clusters[:, old]),
        validation=take(whole.train, old, slice(sizes.num_samples, None)),
        test=take(whole.test, old),
        new_train=take(whole.train, new, trained),
        new_test=take(whole.test, new),
    )
