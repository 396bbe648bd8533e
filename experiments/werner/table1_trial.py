"""One trial of Table 1: a method on the clients of one task, tested along the way."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.data import Images, Sizes, feature_skewed, label_shifted
from cfljax.kernels.checks import check_member
from cfljax.kernels.evaluate import masked_mean
from cfljax.losses import cross_entropy
from cfljax.models import mlp
from cfljax.types import Algorithm, ClientData, Task
from experiments.clove.partitions import Clients, repeated
from experiments.werner.table1_methods import Hyperparameters, Method, build

__all__ = ["DIMS", "Loss", "Partition", "Trial", "draw", "simulate"]

# rotation: images of cluster k turned by k quarter turns; private_label: labels
# counted on by k.
Partition = Literal["rotation", "private_label"]
# What is trained. cross_entropy; or probability, 1 minus the probability of the label,
# whose gradients the code released with the paper has: it takes the negative
# likelihood of probabilities where it should be that of their logarithms.
Loss = Literal["cross_entropy", "probability"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("tested",),  # of the clients' own test samples
    "cross_entropy": ("tested",),  # mean over clients, in nats
    "probability": ("tested",),  # likewise, of 1 minus the probability of the label
    "purity": ("tested",),  # share of the last balls' other members that are of the
    # receiver's cluster; of IFCA, the adjusted Rand index; NaN for the others
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    method: a key of `METHODS`.
    partition: see `Partition`.
    dataset, checksum: of the images.
    loss: see `Loss`.
    num_clients, num_samples, num_test_samples: of the clients; each is also tested.
    num_hidden: width of the hidden layer.
    num_rounds: T, gradient steps of everybody.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    repetition: number of the seed, a float, which the engine traces.
    Others: of `Hyperparameters`.
    """

    method: Method
    partition: Partition
    dataset: str
    checksum: str
    loss: Loss
    num_clients: int
    num_samples: int
    num_test_samples: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    step_size: float
    num_clusters: int
    num_groups: int
    percentile: int
    num_clipping_rounds: int
    gradient_weight: float
    penalty: float
    knn_weight: float
    num_neighbours: int
    repetition: float

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)
        check_member(Partition, partition=self.partition)
        check_member(Loss, loss=self.loss)
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )


def draw(
    partition: Partition, images: Images, *, seed: int, repetitions: int, sizes: Sizes
) -> Clients:
    """The data of all repetitions; each follows from the seed and its number alone.

    No image is used twice, and a client keeps its own (in the released code all are
    dealt out anew in each epoch).

    Memory: float32 pixels of all repetitions.
    """
    share_out = feature_skewed if partition == "rotation" else label_shifted
    shared = functools.partial(share_out, images, sizes=sizes)
    return repeated(shared, seed=seed, repetitions=repetitions)


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run: the arrays of `DIMS`.

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
    task = _task(trial, train.inputs.shape[2:])
    given = {name: getattr(trial, name) for name in Hyperparameters._fields}
    algorithm = build(trial.method, task, clusters, Hyperparameters(**given))

    def observe(state: Any, info: Any) -> dict[str, Array]:
        outputs = algorithm.predict(state, train, test.inputs)
        losses = jax.vmap(cross_entropy)(outputs, test.targets)
        mean = lambda values: jnp.mean(masked_mean(values, test.mask))
        return {
            "accuracy": metrics.accuracy(outputs, test.targets, test.mask),
            "cross_entropy": mean(losses),
            "probability": mean(1 - jnp.exp(-losses)),
            "purity": _purity(trial, info, clusters),
        }

    _, trace = engine.run(
        _between_tests(trial, algorithm),
        run_key,
        train,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )
    return trace


def _task(trial: Trial, input_shape: tuple[int, ...]) -> Task:
    """The network, under the trial's loss."""
    task = mlp(input_shape, hidden=(trial.num_hidden,))
    if trial.loss == "cross_entropy":
        return task

    def losses(params: Any, inputs: Array, targets: Array) -> Float[Array, " samples"]:
        return 1 - jnp.exp(-task.losses(params, inputs, targets))

    return task._replace(losses=losses)


def _purity(
    trial: Trial, info: Any, clusters: Int[Array, " clients"]
) -> Float[Array, ""]:
    """How good the clusters are that a round found."""
    if hasattr(info, "members"):
        others = info.members & ~jnp.eye(trial.num_clients, dtype=bool)
        right = others & (clusters[:, None] == clusters[None, :])
        count = lambda pairs: jnp.sum(pairs, dtype=jnp.result_type(float))
        return count(right) / count(others)
    if trial.method == "ifca":
        return metrics.adjusted_rand_index(
            info.assignment, clusters, trial.num_clusters
        )
    return jnp.full((), jnp.nan)


def _between_tests(trial: Trial, algorithm: Algorithm) -> Algorithm:
    """The algorithm with the rounds from test to test as one; the info is the last."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, Any]:
        def one(index: Array, state: Any) -> Any:
            return algorithm.step(jax.random.fold_in(key, index), state, data)[0]

        last = trial.rounds_between - 1
        state = jax.lax.fori_loop(0, last, one, state)
        return algorithm.step(jax.random.fold_in(key, last), state, data)

    return algorithm._replace(step=step)
