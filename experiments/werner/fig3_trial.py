"""One data set of Figure 3: a method from one start, at all step sizes of its grid."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import engine
from cfljax.kernels.checks import check_member, check_positive
from cfljax.kernels.evaluate import choose_cluster, client_losses, loss_matrix
from cfljax.models import linear
from cfljax.types import Algorithm, ClientData, Task, Truth
from experiments.werner.fig3_methods import (
    FIXED,
    METHODS,
    Method,
    Setting,
    build,
    number_of_models,
    started,
)
from experiments.werner.fig3_scenes import SCENES, draw, first_models, traced
from experiments.werner.synthetic import curvatures

__all__ = ["DIMS", "Trial", "simulate"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "squared": ("step", "tested"),  # mean over clients of |x_i - x*|^2
    "distance": ("step", "tested"),  # mean over clients of |x_i - x*|
    "loss": ("step",),  # mean training loss in the end
    "purity": ("step", "tested"),  # share of the last balls' other members that are of
    # the receiver's cluster, over all receivers; NaN where there are none
    "company": ("step", "tested"),  # share of a cluster's others that are in the balls
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one data set and the runs on it depend on.

    method: a key of `METHODS`.
    scene: place in `SCENES`.
    factor: of "fixed", the radius over the mean gradient norm at the start.
    num_clusters, num_members, num_samples, num_features, first_mean: of the data.
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_clipping_rounds: l of Federated-Clustering.
    num_restarts: of "ifca_best".
    num_steps: step sizes; each is the one before it over `step_ratio`.
    largest_share: the first of them, over the `limit` of stability.
    momentum: beta.
    """

    method: Method
    scene: float
    factor: float
    num_clusters: int
    num_members: int
    num_samples: int
    num_features: int
    first_mean: float
    num_rounds: int
    rounds_between: int
    num_clipping_rounds: int
    num_restarts: int
    num_steps: int
    largest_share: float
    step_ratio: float
    momentum: float

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)
        check_positive(num_members=self.num_members, num_samples=self.num_samples)
        check_positive(num_features=self.num_features, num_steps=self.num_steps)
        check_positive(num_clipping_rounds=self.num_clipping_rounds)
        check_positive(num_restarts=self.num_restarts)
        if self.num_clusters < 2:
            raise ValueError(
                f"`num_clusters` must be at least 2, got {self.num_clusters}."
            )
        if self.scene not in range(len(SCENES)):
            raise ValueError(
                f"`scene` must be a place from 0 to {len(SCENES) - 1}, got "
                f"{self.scene}."
            )
        if not self.factor >= 0:
            raise ValueError(f"`factor` must not be negative, got {self.factor}.")
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )
        if not self.largest_share > 0:
            raise ValueError(
                f"`largest_share` must be positive, got {self.largest_share}."
            )
        if not self.step_ratio > 1:
            raise ValueError(f"`step_ratio` must be above 1, got {self.step_ratio}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"`momentum` must be in [0, 1), got {self.momentum}.")


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Runs at all step sizes: the arrays of `DIMS`, tests with the start first.

    Methods, scenes and step sizes share the inputs of a data set. Of several starts of
    IFCA the one of least training loss in the end counts, at each step size.

    Args:
      trial: its parameters.
      key: of the data set.
    """
    data_key, start_key, run_key = jax.random.split(key, 3)
    scene = traced(trial.scene)
    data, truth = draw(
        scene,
        data_key,
        num_clusters=trial.num_clusters,
        num_members=trial.num_members,
        num_samples=trial.num_samples,
        num_features=trial.num_features,
        first_mean=trial.first_mean,
    )
    restarts = trial.num_restarts if trial.method == "ifca_best" else 1
    keys = [jax.random.fold_in(start_key, number) for number in range(restarts)]
    starts = [first_models(trial.method, scene, truth, own) for own in keys]

    def one(step_size: Array) -> dict[str, Array]:
        run = lambda start: _run(trial, run_key, data, truth, start, step_size)
        found = jax.vmap(run)(jnp.stack(starts))
        losses = jnp.where(jnp.isnan(found["loss"]), jnp.inf, found["loss"])
        return jax.tree.map(lambda leaf: leaf[jnp.argmin(losses)], found)

    powers = trial.step_ratio ** -jnp.arange(float(trial.num_steps))
    return jax.vmap(one)(_limit(trial, data) * trial.largest_share * powers)


def _limit(trial: Trial, data: ClientData) -> Float[Array, ""]:
    """Step size above which gradient descent diverges on some client's own loss.

    Without momentum it is 2 over the largest curvature, which is twice that of
    `curvatures`; damped momentum beta allows (1 + beta) / (1 - beta) times as much.
    """
    largest = 2 * jnp.max(jnp.linalg.eigvalsh(curvatures(data)))
    return 2 * (1 + trial.momentum) / (1 - trial.momentum) / largest


def _run(
    trial: Trial,
    key: PRNGKeyArray,
    data: ClientData,
    truth: Truth,
    start: Float[Array, "models features"],
    step_size: Array,
) -> dict[str, Array]:
    """One run at one step size: the arrays of `DIMS` without `step`."""
    task = linear(trial.num_features)
    models = number_of_models(trial.method, trial.num_clusters, trial.num_members)
    given = Setting(
        step_size=step_size,
        radius=_radius(trial, task, data, start),
        clusters=truth.clusters,
        num_clusters=trial.num_clusters,
        num_clipping_rounds=trial.num_clipping_rounds,
    )
    moving = trial.num_clusters if trial.method == "ifca_released" else models
    algorithm = started(
        build(trial.method, task, given, models=models),
        start,
        momentum=trial.momentum,
        trained=jnp.arange(models) < moving,
    )

    def observe(models: Array, info: Any) -> dict[str, Array]:
        own = _own(trial.method, task, models, data, truth)
        away = jnp.sum(jnp.square(own - truth.models[truth.clusters]), axis=1)
        purity, company = _balls(info, truth.clusters)
        return {
            "squared": jnp.mean(away),
            "distance": jnp.mean(jnp.sqrt(away)),
            "purity": purity,
            "company": company,
        }

    last, trace = engine.run(
        _between_tests(trial, algorithm),
        key,
        data,
        num_rounds=trial.num_rounds // trial.rounds_between,
        observe=lambda carried, info: observe(carried.models, info),
    )
    first = observe(start, None)
    join = lambda before, later: jnp.concatenate([before[None], later])
    own = _own(trial.method, task, last.models, data, truth)
    losses = client_losses(task, own, data, order="batched")
    return {**jax.tree.map(join, first, trace), "loss": jnp.mean(losses)}


def _own(
    method: Method, task: Task, models: Array, data: ClientData, truth: Truth
) -> Float[Array, "clients features"]:
    """The model that each client uses; IFCA's are chosen by loss."""
    kind = METHODS[method].kind
    if kind == "own":
        return models
    if kind == "one":
        return jnp.broadcast_to(models, (truth.clusters.shape[0], models.shape[1]))
    if method == "oracle":
        return models[truth.clusters]
    choice = choose_cluster(loss_matrix(task, models, data))
    return jnp.where((choice >= 0)[:, None], models[choice], jnp.nan)


def _radius(
    trial: Trial, task: Task, data: ClientData, start: Float[Array, "models features"]
) -> Float[Array, ""]:
    """Of "fixed", the multiple of clients' mean gradient norm where they start."""
    if trial.method != FIXED:
        return jnp.zeros(())
    loss = lambda model, *batch: jnp.mean(task.losses(model, *batch))
    gradients = jax.vmap(jax.grad(loss))(start, data.inputs, data.targets)
    return trial.factor * jnp.mean(jnp.linalg.norm(gradients, axis=1))


def _balls(info: Any, clusters: Int[Array, " clients"]) -> tuple[Array, Array]:
    """Purity and company of the last balls; NaN without balls."""
    if not hasattr(info, "members"):
        return jnp.full((), jnp.nan), jnp.full((), jnp.nan)
    stranger = ~jnp.eye(clusters.shape[0], dtype=bool)
    alike = (clusters[:, None] == clusters[None, :]) & stranger
    count = lambda mask: jnp.sum(mask, dtype=jnp.result_type(float))
    right = count(info.members & alike)
    return right / count(info.members & stranger), right / count(alike)


def _between_tests(trial: Trial, algorithm: Algorithm) -> Algorithm:
    """The algorithm with the rounds from test to test as one; the info is the last."""

    def step(key: PRNGKeyArray, state: Any, data: ClientData) -> tuple[Any, Any]:
        def one(index: Array, state: Any) -> Any:
            return algorithm.step(jax.random.fold_in(key, index), state, data)[0]

        last = trial.rounds_between - 1
        state = jax.lax.fori_loop(0, last, one, state)
        return algorithm.step(jax.random.fold_in(key, last), state, data)

    return algorithm._replace(step=step)
