"""One trial of IFCA's success-probability experiment (section 6.1, Figure 3).

A trial draws a mixture of linear regressions and runs IFCA, option I, from several
random starts at several step sizes. What is kept of each run is enough to judge it
under every criterion afterwards.
"""

import dataclasses
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.algorithms import ifca
from cfljax.data import mixed_linear, split_rounds
from cfljax.data.linear import mixed_truth
from cfljax.kernels.average import Normalise
from cfljax.kernels.distance import bottleneck_distance, least_distance
from cfljax.kernels.draws import Convention
from cfljax.kernels.evaluate import choose_cluster, loss_matrix
from cfljax.kernels.training import start_models
from cfljax.models import linear
from cfljax.types import ClientData, Task, Truth

__all__ = [
    "DIMS",
    "RUN",
    "InitUnit",
    "Trial",
    "draw_data",
    "draw_starts",
    "draw_truth",
    "judge",
    "mean_lowest_loss",
    "simulate",
    "start_task",
]

InitUnit = Literal["one", "separation"]
RUN = ("restart", "step_size")

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "distance": RUN,  # mean distance to the truth, matched one to one
    "nearest_distance": RUN,  # to the nearest truth, as the released code has it
    "recovered": RUN,  # 1 where the final partition is the true one
    "used_clusters": RUN,  # models that some client prefers in the end
    "loss": RUN,  # mean over clients of their lowest loss, in the end
    "first_loss": ("restart",),  # the same at the start
    "alpha": ("restart",),  # alpha_0 of Assumption 1 at the start
    "gap": (),  # Delta, least distance between two true models
    "followed": RUN,  # 1 where the run came to its end, or lost a model for ever
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's results depend on, besides the step sizes.

    separation, noise, init_scale and tolerance are traced by the engine; the rest is
    static.

    decide: leave a trial's other runs alone once one has succeeded under every
      criterion, with `tolerance`; their results are NaN then.
    shortcuts: compute cells that share their samples together, by `success_joint`:
      the same runs up to rounding, for less.
    """

    convention: Convention
    separation: float
    noise: float
    num_clients: int
    num_samples: int
    num_clusters: int
    num_features: int
    num_restarts: int
    num_rounds: int
    init_scale: float
    init_unit: InitUnit
    normalise: Normalise
    resample: bool
    shortcuts: bool = False
    decide: bool = False
    tolerance: float = 0.0

    def __post_init__(self) -> None:
        if self.resample and self.shortcuts:
            raise ValueError(
                "`shortcuts` need samples that all rounds share, got `resample`."
            )
        if self.decide and not self.shortcuts:
            raise ValueError("`decide` needs `shortcuts`.")


def start_task(trial: Trial) -> Task:
    """The learning problem with the trial's random starts."""
    relative = trial.init_unit == "separation"
    return linear(
        trial.num_features,
        init_scale=trial.init_scale * (trial.separation if relative else 1.0),
        convention=trial.convention if relative else "reference",
    )


def draw_data(trial: Trial, key: PRNGKeyArray) -> tuple[ClientData, Truth]:
    """The trial's data set, from its data's key."""
    return mixed_linear(
        key,
        num_clients=trial.num_clients,
        num_clusters=trial.num_clusters,
        num_samples=trial.num_samples,
        num_features=trial.num_features,
        separation=trial.separation,
        noise=trial.noise,
        convention=trial.convention,
    )


def draw_truth(trial: Trial, key: PRNGKeyArray) -> tuple[Truth, PRNGKeyArray]:
    """The truth of `draw_data` alone, and the key of its samples."""
    return mixed_truth(
        key,
        num_clients=trial.num_clients,
        num_clusters=trial.num_clusters,
        num_features=trial.num_features,
        separation=trial.separation,
        convention=trial.convention,
    )


def draw_starts(
    trial: Trial, key: PRNGKeyArray
) -> Float[Array, "restarts clusters features"]:
    """First models of every restart, those that `engine.run` draws from its key.

    Args:
      trial: its parameters.
      key: of the runs.
    """
    task = start_task(trial)

    def start(index: Array) -> Float[Array, "clusters features"]:
        init_key, _ = jax.random.split(jax.random.fold_in(key, index))
        return start_models(task, init_key, trial.num_clusters)

    return jax.vmap(start)(jnp.arange(trial.num_restarts))


def mean_lowest_loss(losses: Float[Array, "clients clusters"]) -> Float[Array, ""]:
    """Mean over clients of the lowest finite loss; infinite where there is none."""
    return jnp.mean(jnp.min(jnp.where(jnp.isfinite(losses), losses, jnp.inf), axis=1))


def judge(
    truth: Truth,
    models: Float[Array, "clusters features"],
    losses: Float[Array, "clients clusters"],
) -> dict[str, Array]:
    """What is kept of one run, from its final models and the losses under them."""
    assignment = choose_cluster(losses)
    num_clusters = models.shape[0]
    recovered = metrics.exact_recovery(assignment, truth.clusters)
    used = metrics.num_used_clusters(assignment, num_clusters)
    return {
        "distance": metrics.centre_distance(models, truth.models),
        "nearest_distance": metrics.nearest_centre_distance(models, truth.models),
        "recovered": recovered.astype(jnp.float32),
        "used_clusters": used.astype(jnp.float32),
        "loss": mean_lowest_loss(losses),
        "followed": jnp.ones(()),
    }


def simulate(
    trial: Trial, key: PRNGKeyArray, step_sizes: Float[Array, " step_size"]
) -> dict[str, Array]:
    """One trial: a data set, and a run for each restart and step size.

    All runs meet the same samples in one pair of matrix products per round. A
    restart starts from the same models at every step size.

    Args:
      trial: its parameters.
      key: of the trial; it splits into the data's key and the runs' key, which is
        folded with the restart's index.
      step_sizes: gamma, one run for each.

    Returns:
      The arrays of `DIMS`.
    """
    data_key, runs_key = jax.random.split(key)
    data, truth = draw_data(trial, data_key)
    gap = least_distance(truth.models)
    task = start_task(trial)
    rounds = split_rounds(data, trial.num_rounds) if trial.resample else data

    def one_run(run_key: PRNGKeyArray, step_size: Array) -> dict[str, Array]:
        algorithm = ifca(
            task,
            num_clusters=trial.num_clusters,
            step_size=step_size,
            normalise=trial.normalise,
            resample=trial.resample,
        )
        state, _ = engine.run(
            algorithm,
            run_key,
            rounds,
            num_rounds=trial.num_rounds,
            data_per_round=trial.resample,
        )
        return judge(truth, state.models, loss_matrix(task, state.models, data))

    def start(run_key: PRNGKeyArray) -> dict[str, Array]:
        algorithm = ifca(task, num_clusters=trial.num_clusters, step_size=0.0)
        state, _ = engine.run(algorithm, run_key, data, num_rounds=0)
        return {
            "first_loss": mean_lowest_loss(loss_matrix(task, state.models, data)),
            "alpha": 0.5 - bottleneck_distance(state.models, truth.models) / gap,
        }

    restarts = jnp.arange(trial.num_restarts)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(runs_key, restarts)
    over_runs = jax.vmap(jax.vmap(one_run, in_axes=(None, 0)), in_axes=(0, None))
    outcomes = over_runs(keys, step_sizes) | jax.vmap(start)(keys)
    return outcomes | {"gap": gap}
