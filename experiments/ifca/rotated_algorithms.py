"""The networks and algorithms that rotated images are learned with."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax.algorithms import fedavg, ifca, local
from cfljax.kernels.local_update import LocalUpdate
from cfljax.models import cnn, mlp, rotated_cifar_cnn
from cfljax.models.augment import windowed
from cfljax.types import Algorithm, ClientData, Stacked, Task
from experiments.ifca.rotated_trial import Trial
from experiments.ifca.starts import LEAST_SHARE, with_balanced_start

__all__ = ["algorithm_of", "several_rounds", "task_of"]

_WINDOW = 24  # Height and width that the networks for CIFAR see of its images.


def task_of(trial: Trial, input_shape: Sequence[int]) -> Task:
    """The network of a trial.

    "mlp" is the perceptron of Rotated MNIST; "code" and "text" are those of
    `models.rotated_cifar_cnn`. "narrow" stands in for them where time is short: two
    5 x 5 convolutions of `num_channels` and twice as many channels and one hidden
    layer, on standardised random windows of colour images, mirrored or not.

    Args:
      trial: names the network and its widths.
      input_shape: of one image.
    """
    if trial.network == "mlp":
        return mlp(input_shape, hidden=(trial.num_hidden,))
    if trial.network != "narrow":
        return rotated_cifar_cnn(variant=trial.network)
    is_colour = len(input_shape) == 3
    task = cnn(
        (_WINDOW, _WINDOW, input_shape[2]) if is_colour else input_shape,
        channels=(trial.num_channels, 2 * trial.num_channels),
        hidden=(trial.num_hidden,),
    )
    if not is_colour:
        return task
    return windowed(task, input_shape=input_shape, window=_WINDOW)


def algorithm_of(
    task: Task, trial: Trial
) -> tuple[Algorithm, Callable[[Any], Stacked]]:
    """The algorithm of a trial, and how to find stacked models in its state."""
    settings = {
        "step_size": trial.step_size,
        "num_steps": trial.num_steps or 1,
        "update": LocalUpdate(
            batch_size=trial.batch_size or None,
            num_epochs=trial.num_epochs or None,
            decay=float(trial.decay),
            clients_per_chunk=trial.clients_per_chunk,
        ),
    }
    if trial.algorithm == "local":
        return local(task, **settings), lambda state: state.models
    share = trial.num_participants / trial.num_clients
    if trial.algorithm == "fedavg":
        stack = lambda leaf: leaf[None]
        # Weighed as IFCA weighs them.
        algorithm = fedavg(task, weights="clients", participation=share, **settings)
        return algorithm, lambda state: jax.tree.map(stack, state.model)
    k = trial.num_clusters
    algorithm = ifca(
        task, num_clusters=k, option="model", participation=share, **settings
    )
    if trial.start == "paper":
        return algorithm, lambda state: state.models
    started = with_balanced_start(
        algorithm,
        task,
        lambda state: state.models,
        participation=share,
        least_share=LEAST_SHARE[k],
        clients_per_chunk=trial.clients_per_chunk,
    )
    return started, lambda now: now.state.models


def several_rounds(algorithm: Algorithm, num_rounds: int) -> Algorithm:
    """The algorithm with `num_rounds` of its rounds as one; info is the last's."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, PyTree]:
        for_info = jax.eval_shape(algorithm.step, key, state, data)[1]
        empty = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), for_info)

        def one(index: Array, carry: tuple[Any, PyTree]) -> tuple[Any, PyTree]:
            return algorithm.step(jax.random.fold_in(key, index), carry[0], data)

        return jax.lax.fori_loop(0, num_rounds, one, (state, empty))

    return Algorithm(init=algorithm.init, step=step, predict=algorithm.predict)
