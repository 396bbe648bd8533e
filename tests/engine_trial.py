"""A small trial for the tests of the sweep: IFCA-like rounds of linear regression."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.engine import Grid, Joint

CONVENTIONS = {"separation": (0.5, 1.0), "convention": ("paper", "reference")}
STEP_SIZES = (0.1, 0.01)
RESTARTS = 3


@dataclasses.dataclass(frozen=True)
class Trial:
    separation: float = 1.0
    noise: float = 0.1
    num_clients: int = 8
    convention: str = "paper"

    def __post_init__(self) -> None:
        if self.noise < 0:
            raise ValueError(f"`noise` must not be negative, got {self.noise}.")


def simulate(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    """Rounds of products, argmin and means; `constants` scales the inputs."""
    samples, features, clusters = 12, 7, 2
    sizes = [clusters, trial.num_clients * samples, RESTARTS * clusters]
    rows = sum(sizes) + sizes[1]  # One draw for all: each takes long to compile.
    drawn = jax.random.normal(key, (rows * features,)).reshape(rows, features)
    truth, inputs, models, noise = jnp.split(drawn, np.cumsum(sizes))
    truth, inputs = trial.separation * truth, constants * inputs
    which = jnp.repeat(jnp.arange(trial.num_clients) % clusters, samples)
    targets = jnp.sum(inputs * truth[which], axis=1)
    targets = targets + trial.noise * noise[:, 0]
    step_sizes = jnp.asarray(STEP_SIZES)[None, :, None, None]
    models = models.reshape(RESTARTS, 1, clusters, features) + 0 * step_sizes
    shape = (trial.num_clients, samples, *models.shape[:3])
    scale = 2.0 if trial.convention == "paper" else 1.0

    def residuals(models):
        predicted = inputs @ models.reshape(-1, features).T
        return (predicted - targets[:, None]).reshape(shape)

    def step(models, _):
        error = residuals(models)
        chosen = jnp.argmin(jnp.mean(error**2, axis=1), axis=-1)
        mine = jax.nn.one_hot(chosen, clusters, dtype=error.dtype)[:, None]
        pull = inputs.T @ (error * mine).reshape(inputs.shape[0], -1)
        gradient = jnp.moveaxis(pull.reshape(features, *models.shape[:3]), 0, -1)
        return models - scale / inputs.shape[0] * step_sizes * gradient, chosen

    models, chosen = jax.lax.scan(step, models, None, length=20)
    gaps = models[:, :, :, None] - truth[None, None, None]
    distances = jnp.sqrt(jnp.sum(gaps**2, axis=-1))
    return {
        "distance": jnp.max(jnp.min(distances, axis=-1), axis=-1),
        "assignment": chosen[-1, :, 0, 0],
        "success": jnp.min(distances) < 0.5,
    }


def small_grid(**changes: Any) -> Grid:
    """Two separations, three blocks each, the last one short."""
    return dataclasses.replace(
        Grid(
            experiment="toy",
            trial=Trial(),
            axes={"separation": (0.5, 1.0)},
            num_trials=23,
            dims={
                "distance": ("restart", "step_size"),
                "assignment": ("client",),
                "success": (),
            },
            coords={"step_size": STEP_SIZES},
            traced=("separation", "noise"),
        ),
        **changes,
    )


def draw(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    """Three uniform numbers, for what does not depend on the trial."""
    del constants
    return {"value": trial.separation * jax.random.uniform(key, (3,))}


def plain_grid(**changes: Any) -> Grid:
    """A grid for `draw` whose cells differ in what is traced."""
    axes = {"separation": (0.5, 1.0), "noise": (1.0, 2.0)}
    grid = Grid(
        "plain",
        Trial(),
        axes,
        num_trials=23,
        dims={"value": ("number",)},
        traced=("separation", "noise"),
    )
    return dataclasses.replace(grid, **changes)


def draw_jointly(
    trials: Sequence[Trial], key: jax.Array, constants: Any
) -> list[dict[str, np.ndarray]]:
    """`draw` of several cells, which share the numbers."""
    del constants
    shared = np.asarray(jax.random.uniform(key, (3,)))
    return [{"value": np.float32(trial.separation) * shared} for trial in trials]


JOINT = Joint(draw_jointly, shares=lambda trial: trial.num_clients)
