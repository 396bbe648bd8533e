"""One run on an example of Figure 1: the failing method, or Federated-Clustering."""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.kernels.checks import check_member, check_positive
from cfljax.kernels.threshold import threshold_clustering
from experiments.werner.fig1_examples import (
    EXAMPLES,
    Name,
    bipartition,
    myopic,
    symmetric,
)

__all__ = ["CLIENTS", "DIMS", "FAILING_DIMS", "Method", "Trial", "fail", "simulate"]

# What fails: Myopic-Clustering; IFCA with options I and II; CFL by what its third
# client saw in the round of the split.
Method = Literal["myopic", "option_one", "option_two", "coin_zero", "coin_one"]

CLIENTS = 3  # Of the largest example; numbers of absent clients are NaN.

# Outputs of the trials and the names of their own axes.
FAILING_DIMS: dict[str, tuple[str, ...]] = {"position": ("round", "client")}
DIMS: dict[str, tuple[str, ...]] = {
    "position": ("round", "client"),  # x_i, from the start
    "tail": ("client",),  # mean of x_i over the second half of the rounds
    "company": ("client",),  # others of the own cluster in the last balls, mean there
    "strangers": ("client",),  # clients of other clusters there
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one run depends on.

    radius and step_size are traced by the engine; the rest is static.
    """

    example: Name
    radius: float
    step_size: float
    batch_size: int
    num_rounds: int
    num_clipping_rounds: int
    method: Method = "myopic"

    def __post_init__(self) -> None:
        check_member(Name, example=self.example)
        check_member(Method, method=self.method)
        check_positive(
            batch_size=self.batch_size,
            num_rounds=self.num_rounds,
            num_clipping_rounds=self.num_clipping_rounds,
        )
        if not self.radius >= 0:
            raise ValueError(f"`radius` must not be negative, got {self.radius}.")
        if not 0 < self.step_size < 1:
            raise ValueError(f"`step_size` must be in (0, 1), got {self.step_size}.")


def fail(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """The trial's method, which is exact: the array of `FAILING_DIMS`."""
    del key
    rounds, step = trial.num_rounds, trial.step_size
    if trial.method == "myopic":
        found = myopic(rounds, step)
    elif trial.method in ("option_one", "option_two"):
        option = "gradient" if trial.method == "option_one" else "model"
        found = symmetric(rounds, step, option)
    else:
        found = bipartition(rounds, step, int(trial.method == "coin_one"))
    return {"position": _padded(found)}


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Federated-Clustering (Algorithm 2): the arrays of `DIMS`.

    In each round every client's model is moved by Threshold-Clustering of everyone's
    gradients at that model, which starts at the client's own gradient.

    Args:
      trial: its parameters.
      key: of the batches; a client sends everyone the gradient of one batch.
    """
    example = EXAMPLES[trial.example]
    clusters = jnp.array(example.clusters)
    number = clusters.shape[0]
    every = jnp.arange(number)
    step = 1.0 if example.scaled else trial.step_size

    def one(x: Array, client: Array, coin: Array) -> tuple[Array, Array]:
        points = example.gradients(x, coin, trial.step_size)[:, None]
        found = threshold_clustering(
            points,
            points[client][None],
            num_rounds=trial.num_clipping_rounds,
            radius=trial.radius,
        )
        return found.centres[0, 0], found.members[0]

    def move(models: Array, index: Array) -> tuple[Array, tuple[Array, ...]]:
        draws = jax.random.bernoulli(
            jax.random.fold_in(key, index), 0.5, (trial.batch_size,)
        )
        coin = jnp.mean(draws.astype(models.dtype))
        centres, members = jax.vmap(one, (0, 0, None))(models, every, coin)
        own = clusters[:, None] == clusters[None, :]
        company = jnp.sum(members & own & (every[:, None] != every[None, :]), axis=1)
        strangers = jnp.sum(members & ~own, axis=1)
        models = models - step * centres
        return models, (models, company, strangers)

    first = jnp.full((number,), example.start)
    rounds = jnp.arange(trial.num_rounds)
    later, company, strangers = jax.lax.scan(move, first, rounds)[1]
    half = trial.num_rounds // 2
    mean = lambda counts: jnp.mean(counts[half:].astype(later.dtype), axis=0)
    return {
        "position": _padded(jnp.concatenate([first[None], later])),
        "tail": _padded(mean(later)[None])[0],
        "company": _padded(mean(company)[None])[0],
        "strangers": _padded(mean(strangers)[None])[0],
    }


def _padded(values: Float[Array, "rows clients"]) -> Float[Array, "rows all"]:
    absent = ((0, 0), (0, CLIENTS - values.shape[1]))
    return jnp.pad(values, absent, constant_values=jnp.nan)
