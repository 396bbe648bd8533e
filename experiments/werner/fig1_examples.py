"""The examples of Figure 1: clients on a line, and methods that fail on them."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, ScalarLike

from cfljax.algorithms import ifca
from cfljax.types import ClientData, Task

__all__ = ["EXAMPLES", "Example", "Name", "bipartition", "myopic", "symmetric"]

Name = Literal["myopic", "symmetric", "bipartition"]
Models = Float[Array, " clients"]


class Example(NamedTuple):
    """Clients whose losses are functions of one number.

    gradients: `(x, coin, step size) -> [clients]`, of all clients at one model, in the
      unit of the radii. The coin is what a stochastic client saw, 0 or 1 or a mean.
    scaled: whether that unit is 1 / (step size), so that gradients are steps.
    optima: of the clients.
    clusters: of the clients.
    start: model that everybody starts from.
    """

    gradients: Callable[[Array, Array, ScalarLike], Models]
    scaled: bool
    optima: tuple[float, ...]
    clusters: tuple[int, ...]
    start: float


def _myopic(x: Array, coin: Array, step_size: ScalarLike) -> Models:
    """Gradients times the step size: powers of it cancel but in one of them."""
    del coin
    inflection = 12 * step_size * x * jnp.square(x - 1)  # of 4 (x-1)^3 + 3 (x-1)^4
    return jnp.stack([x / 3, jnp.where(x < 1, inflection, x - 1), x - 2])


def _symmetric(x: Array, coin: Array, step_size: ScalarLike) -> Models:
    del coin, step_size
    return jnp.stack([2 * (x + 0.5), 2 * (x - 0.5)])


def _bipartition(x: Array, coin: Array, step_size: ScalarLike) -> Models:
    """The third client's gradient is x or x - 1, at equal chances."""
    del step_size
    return jnp.stack([x, x - 0.5, x - coin])


# Section 2.1: the optimum of client 2 in the first example is at 0, and 1 is a saddle.
EXAMPLES: dict[str, Example] = {
    "myopic": Example(_myopic, True, (0.0, 0.0, 2.0), (0, 0, 1), 1.5),
    "symmetric": Example(_symmetric, False, (-0.5, 0.5), (0, 1), 0.0),
    "bipartition": Example(_bipartition, False, (0.0, 0.5, 0.5), (0, 1, 1), 1.0),
}


def myopic(num_rounds: int, step_size: ScalarLike) -> Float[Array, "rounds clients"]:
    """Myopic-Clustering (Algorithm 1) with two clusters, from the example's start.

    The centres are those of the best partition of the three gradients into two, which
    leaves one client alone; of equally good ones that with the first client alone.
    """
    example = EXAMPLES["myopic"]
    alone = jnp.eye(3, dtype=bool)

    def move(models: Models, _: None) -> tuple[Models, Models]:
        every = jax.vmap(lambda x: example.gradients(x, jnp.zeros(()), step_size))
        own = jnp.diagonal(every(models))
        pairs = jnp.where(alone, 0, own[None, :]).sum(axis=1) / 2  # their means
        centres = jnp.where(alone, own[None, :], pairs[:, None])
        spread = jnp.sum(jnp.square(own[None, :] - centres), axis=1)
        found = models - centres[jnp.argmin(spread)]
        return found, found

    start = jnp.full((3,), example.start)
    return jnp.concatenate(
        [start[None], jax.lax.scan(move, start, None, num_rounds)[1]]
    )


def symmetric(
    num_rounds: int, step_size: ScalarLike, option: Literal["gradient", "model"]
) -> Float[Array, "rounds clients"]:
    """IFCA from models -1.5 and 0: the model of each client's choice.

    Args:
      num_rounds: T.
      step_size: gamma.
      option: I (gradient) or II (model), with 5 local steps.
    """
    targets = jnp.asarray(EXAMPLES["symmetric"].optima)[:, None]
    data = ClientData(jnp.zeros((2, 1, 1)), targets, jnp.ones((2, 1), bool))
    task = Task(
        init=lambda key: jnp.zeros(()),
        losses=lambda model, inputs, targets: jnp.square(model - targets),
        predict=lambda model, inputs: jnp.broadcast_to(model, inputs.shape[:1]),
    )
    steps = 1 if option == "gradient" else 5
    algorithm = ifca(
        task, num_clusters=2, step_size=step_size, option=option, num_steps=steps
    )
    key = jax.random.key(0)  # Nothing is random.
    first = algorithm.init(key, data)._replace(models=jnp.array([-1.5, 0.0]))

    def move(state: Any, _: None) -> tuple[Any, Models]:
        state, info = algorithm.step(key, state, data)
        return state, state.models[info.assignment]

    _, later = jax.lax.scan(move, first, None, length=num_rounds)
    return jnp.concatenate([first.models[jnp.array([[1, 1]])], later])


def bipartition(
    num_rounds: int, step_size: ScalarLike, coin: int
) -> Float[Array, "rounds clients"]:
    """Clustered Federated Learning (Sattler et al.), one split after a quarter of T.

    All clients average until then. The split leaves alone whom the largest cosine of
    gradients across it is least for. Expected gradients are used for training, and
    one realisation for the split.

    Args:
      num_rounds: T.
      step_size: of the averages.
      coin: 0 or 1, what the third client saw in the round of the split.
    """
    example = EXAMPLES["bipartition"]
    half = jnp.full((), 0.5)
    seen = lambda x, coin: example.gradients(x, coin, step_size)

    def together(x: Array, _: None) -> tuple[Array, Array]:
        return x - step_size * jnp.mean(seen(x, half)), x

    before = num_rounds // 4
    x, common = jax.lax.scan(together, jnp.full((), example.start), None, before)
    signs = jnp.sign(seen(x, jnp.full((), float(coin))))
    cosines = signs[:, None] * signs[None, :]
    across = jnp.where(jnp.eye(3, dtype=bool), -jnp.inf, cosines).max(axis=1)
    alone = jnp.arange(3) == jnp.argmin(across)
    same = alone[:, None] == alone[None, :]
    sizes = jnp.where(alone, 1.0, 2.0)

    def apart(models: Models, _: None) -> tuple[Models, Models]:
        own = jnp.diagonal(jax.vmap(lambda x: seen(x, half))(models))
        mean = jnp.where(same, own[None, :], 0).sum(axis=1) / sizes
        return models - step_size * mean, models

    first = jnp.full((3,), x)
    last, models = jax.lax.scan(apart, first, None, num_rounds - before)
    common = jnp.broadcast_to(common[:, None], (before, 3))
    return jnp.concatenate([common, models, last[None]])
