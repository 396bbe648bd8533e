"""One trial of IFCA's Rotated MNIST experiment (section 6.2, Table 1).

A trial shares rotated images out among clients, trains one algorithm on them and
tests it as the paper does: on test clients, each of a single rotation.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cfljax import engine, metrics
from cfljax.algorithms import fedavg, ifca, local
from cfljax.data import Images, rotated
from cfljax.data.sources import Arrays
from cfljax.kernels.evaluate import choose_cluster, loss_matrix
from cfljax.models import mlp
from cfljax.types import Algorithm, ClientData, Stacked, Task, Truth

__all__ = ["ALGORITHMS", "DIMS", "Name", "Trial", "simulate"]

Name = Literal["ifca", "fedavg", "local"]
ALGORITHMS: tuple[Name, ...] = ("ifca", "fedavg", "local")

# Outputs of a trial and the names of their own axes. The last three describe the
# clusters that IFCA's training clients chose in the round; the others choose none.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # of the test clients, after the round
    "matched_accuracy": ("round",),  # share of clients in their true cluster
    "rand_index": ("round",),  # adjusted for chance
    "used_clusters": ("round",),  # models chosen by some client
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    algorithm: a member of `ALGORITHMS`.
    images: name of the image set.
    checksum: of its arrays, which tells preparations in another order apart.
    num_clients, num_samples: m and n of the training clients.
    num_test_clients, num_test_samples: of the test clients.
    num_clusters: k, the number of rotations and of IFCA's models.
    num_hidden: width of the perceptron's hidden layer.
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_steps: local full-batch steps tau in each round.
    step_size: gamma.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    algorithm: Name
    images: str
    checksum: str
    num_clients: int
    num_samples: int
    num_test_clients: int
    num_test_samples: int
    num_clusters: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    num_steps: int
    step_size: float
    repetition: float

    def __post_init__(self) -> None:
        if self.algorithm not in ALGORITHMS:
            raise ValueError(
                f"`algorithm` must be in {ALGORITHMS}, got {self.algorithm!r}."
            )
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )


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
    task = mlp(images.train_inputs.shape[1:], hidden=(trial.num_hidden,))
    algorithm, models_of = _algorithm(task, trial)

    def observe(state: Any, info: Any) -> dict[str, Array]:
        models = models_of(state)
        if trial.algorithm == "local":
            score = accuracy_of_each(task, models, test, trial.num_clusters)
        else:
            score = accuracy_of_best(task, models, test)
        return {"accuracy": score} | _clusters_found(trial, info, truth)

    _, trace = engine.run(
        _several_rounds(algorithm, trial.rounds_between),
        run_key,
        train,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=observe,
    )
    return trace


def accuracy_of_best(task: Task, models: Stacked, test: ClientData) -> Float[Array, ""]:
    """Test accuracy where each test client takes the model of lowest loss.

    The choice uses the test client's own labels, as in the paper.

    Args:
      task: the learning problem.
      models: leaves `[clusters, ...]`.
      test: the test clients.
    """
    choice = choose_cluster(loss_matrix(task, models, test))
    inputs = test.inputs.reshape(-1, *test.inputs.shape[2:])
    logits = jax.vmap(task.predict, in_axes=(0, None))(models, inputs)
    logits = logits.reshape(logits.shape[0], *test.mask.shape, -1)
    # A client without any finite loss has chosen -1 and is wrong under any model.
    chosen = logits[jnp.maximum(choice, 0), jnp.arange(len(choice))]
    return metrics.accuracy(chosen, test.targets, test.mask)


def accuracy_of_each(
    task: Task, models: Stacked, test: ClientData, num_clusters: int
) -> Float[Array, ""]:
    """Mean accuracy of clients' own models on all test clients of their rotation.

    Args:
      task: the learning problem.
      models: leaves `[clients, ...]`, the clients of a cluster consecutive.
      test: the test clients, those of a cluster consecutive.
      num_clusters: number of rotations.

    Cost: a forward pass for each model and test image of its rotation, one model
    at a time.
    """
    by_cluster = lambda leaf: leaf.reshape(num_clusters, -1, *leaf.shape[1:])

    def of_cluster(models_and_tests: tuple[Stacked, ClientData]) -> Array:
        own, (inputs, targets, mask) = models_and_tests
        inputs = inputs.reshape(-1, *inputs.shape[2:])
        targets, mask = targets.ravel(), mask.ravel()
        one = lambda model: metrics.accuracy(task.predict(model, inputs), targets, mask)
        return jax.lax.map(one, own)

    return jnp.mean(jax.lax.map(of_cluster, jax.tree.map(by_cluster, (models, test))))


def _algorithm(task: Task, trial: Trial) -> tuple[Algorithm, Callable[[Any], Stacked]]:
    """The algorithm, and how to find stacked models in its state."""
    settings = {"step_size": trial.step_size, "num_steps": trial.num_steps}
    if trial.algorithm == "ifca":
        k = trial.num_clusters
        algorithm = ifca(task, num_clusters=k, option="model", **settings)
        return algorithm, lambda state: state.models
    if trial.algorithm == "fedavg":
        stack = lambda leaf: leaf[None]
        algorithm = fedavg(task, weights="clients", **settings)  # As IFCA weighs them.
        return algorithm, lambda state: jax.tree.map(stack, state.model)
    return local(task, **settings), lambda state: state.models


def _several_rounds(algorithm: Algorithm, num_rounds: int) -> Algorithm:
    """The algorithm with `num_rounds` of its rounds as one; info is the last's."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, PyTree]:
        for_info = jax.eval_shape(algorithm.step, key, state, data)[1]
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), for_info)

        def one(index: Array, carry: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
            return algorithm.step(jax.random.fold_in(key, index), carry[0], data)

        return jax.lax.fori_loop(0, num_rounds, one, (state, empty))

    return Algorithm(init=algorithm.init, step=step, predict=algorithm.predict)


def _clusters_found(trial: Trial, info: Any, truth: Truth) -> dict[str, Array]:
    """How well IFCA's assignment agrees with the rotations; NaN for the others."""
    if trial.algorithm != "ifca":
        return {name: jnp.full((), jnp.nan) for name in DIMS if name != "accuracy"}
    k = trial.num_clusters
    used = metrics.num_used_clusters(info.assignment, k)
    return {
        "matched_accuracy": metrics.matched_accuracy(
            info.assignment, truth.clusters, k
        ),
        "rand_index": metrics.adjusted_rand_index(info.assignment, truth.clusters, k),
        "used_clusters": used.astype(jnp.float32),
    }
