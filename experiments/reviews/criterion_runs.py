"""The criterion: configuration, and IFCA's runs on small replicas; see `criterion`."""

import dataclasses
import itertools
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.data import mixed_linear
from cfljax.kernels.draws import Convention
from cfljax.kernels.evaluate import loss_matrix
from cfljax.models import linear
from cfljax.types import ClientData, Truth
from experiments.ifca.success import judge
from experiments.options import Options
from experiments.reviews import study
from experiments.reviews.criterion_oracle import FACTOR, PANELS

__all__ = [
    "CRITERIA",
    "Config",
    "Trial",
    "estimates",
    "measure",
    "simulate",
    "verdicts",
]

CRITERIA = ("0.6 σ", "1.1 × oracle", "exact recovery")
ORACLE_FACTOR = 1.1
FULL_FEATURES = PANELS["a"].num_features
RUN = ("restart", "step_size")

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "distance": RUN,  # mean distance to the truth, matched one to one
    "recovered": RUN,  # 1 where the final partition is the true one
    "oracle": (),  # the same distance of least squares with the true clusters
    "pooled": (),  # of one least-squares fit to all
    "zero": (),  # of zero
}


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the step sizes.

    released is 1 for truths scaled as in the released code, 0 as printed; it,
    separation and noise are traced by the engine; the rest is static.
    """

    released: float
    separation: float
    noise: float
    num_clients: int
    num_samples: int
    num_clusters: int
    num_features: int
    num_restarts: int
    num_rounds: int


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the study depends on. One field, one flag."""

    separation: tuple[float, ...]
    """R of panels a and b."""
    noise: tuple[float, ...]
    """Sigma of panels a and b, above 0."""
    clients_c: tuple[int, ...]
    """m of panel c, even."""
    clients_d: tuple[int, ...]
    """m of panel d, multiples of 4."""
    num_samples: tuple[int, ...]
    """n of panels c and d."""
    num_trials: int
    """Data sets per cell."""
    num_restarts: int
    """Random starts per data set."""
    convention: tuple[Convention, ...] = ("reference", "paper")
    """Scale of the true models: as released, as printed, or both."""
    clients_a: int = 40
    """m of panel a, even."""
    clients_b: int = 160
    """m of panel b, a multiple of 4."""
    samples_ab: int = 16
    """n of panels a and b."""
    num_features: int = 64
    """d of the replicas; all lengths are those of d = 1000."""
    num_rounds: int = 300
    """T."""
    agreement: float = 0.8
    """Cohen's kappa from which on two criteria count as one."""
    num_resamples: int = 10_000
    """Of the bootstrap."""
    seed: int = 0
    """Of everything."""
    error_rate: float = 0.05
    """Of all intervals of one kind together."""

    def __post_init__(self) -> None:
        tuples = ("separation", "noise", "clients_c", "clients_d", "num_samples")
        study.check_different(self, *tuples, "convention")
        positive = ("num_samples", "num_restarts", "num_rounds", "num_resamples")
        least: dict[str, float] = dict.fromkeys((*positive, "samples_ab"), 1.0)
        least |= {"separation": 0.0, "noise": 1e-9, "num_trials": 2.0}
        study.check_at_least(self, least | {"num_features": 2.0, "agreement": 0.0})
        study.check_error_rate(self)
        for panel in PANELS:
            clusters = PANELS[panel].num_clusters
            name = f"clients_{panel}"
            entries = np.atleast_1d(getattr(self, name))
            if np.any(entries < clusters) or np.any(entries % clusters):
                raise ValueError(
                    f"`{name}` must be multiples of {clusters} clusters, got "
                    f"{getattr(self, name)}."
                )
            axes = sizes(self, panel)
            fewest = min(axes["num_clients"]) * min(axes["num_samples"]) // clusters
            if fewest < self.num_features:
                raise ValueError(
                    "`num_samples` must give every cluster at least `num_features` = "
                    f"{self.num_features} rows, got {fewest} in panel {panel}."
                )


def sizes(config: Config, panel: str) -> dict[str, tuple[Any, ...]]:
    """Axes of a panel's replica, and their settings."""
    grid, full = panel in "ab", PANELS[panel]
    clients = getattr(config, f"clients_{panel}")
    return {
        "released": tuple(float(name == "reference") for name in config.convention),
        "separation": config.separation if grid else full.separation,
        "noise": config.noise if grid else full.noise,
        "num_clients": (clients,) if grid else clients,
        "num_samples": (config.samples_ab,) if grid else config.num_samples,
    }


def draw(trial: Trial, key: PRNGKeyArray) -> tuple[ClientData, Truth]:
    """The data set of one trial, with truths as long as at d = `FULL_FEATURES`."""

    def scaled(convention: Convention, separation: Any):
        return lambda own_key: mixed_linear(
            own_key,
            num_clients=trial.num_clients,
            num_clusters=trial.num_clusters,
            num_samples=trial.num_samples,
            num_features=trial.num_features,
            separation=separation,
            noise=trial.noise,
            convention=convention,
        )

    # One program for both: compiling the runs takes longer than all else here.
    stretch = math.sqrt(FULL_FEATURES / trial.num_features)
    released = scaled("reference", trial.separation * stretch)
    return jax.lax.cond(
        trial.released > 0.5, released, scaled("paper", trial.separation), key
    )


def simulate(
    trial: Trial, key: PRNGKeyArray, step_sizes: Float[Array, " step_size"]
) -> dict[str, Array]:
    """One data set: a run for each restart and step size, and what needs no run.

    Returns:
      The arrays of `DIMS`.
    """
    data_key, runs_key = jax.random.split(key)
    data, truth = draw(trial, data_key)
    stretch = math.sqrt(FULL_FEATURES / trial.num_features)
    task = linear(trial.num_features, init_scale=stretch)

    def one(run_key: PRNGKeyArray, step_size: Array) -> dict[str, Array]:
        algorithm = ifca(task, num_clusters=trial.num_clusters, step_size=step_size)
        state, _ = engine.run(algorithm, run_key, data, num_rounds=trial.num_rounds)
        found = judge(truth, state.models, loss_matrix(task, state.models, data))
        return {name: found[name] for name in ("distance", "recovered")}

    restarts = jnp.arange(trial.num_restarts)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(runs_key, restarts)
    over_runs = jax.vmap(jax.vmap(one, in_axes=(None, 0)), in_axes=(0, None))
    return over_runs(keys, step_sizes) | estimates(data, truth)


def estimates(data: ClientData, truth: Truth) -> dict[str, Float[Array, ""]]:
    """Mean distances to the truths of three estimates that are no run of IFCA.

    Returns:
      `oracle`, least squares with the true clusters, which must be contiguous and
      equal; `pooled`, one least-squares fit to all; `zero`.
    """
    num_clusters, num_features = truth.models.shape
    rows = data.inputs.reshape(num_clusters, -1, num_features)
    values = data.targets.reshape(num_clusters, -1)
    guesses = {
        "oracle": jax.vmap(least_squares)(rows, values),
        "pooled": least_squares(rows.reshape(-1, num_features), values.reshape(-1)),
        "zero": jnp.zeros(num_features),
    }
    return {
        name: jnp.mean(
            jnp.linalg.norm(
                jnp.broadcast_to(guess, truth.models.shape) - truth.models, axis=1
            )
        )
        for name, guess in guesses.items()
    }


def least_squares(
    inputs: Float[Array, "rows features"], targets: Float[Array, " rows"]
) -> Float[Array, " features"]:
    """By QR, which loses fewer digits than the normal equations."""
    basis, factor = jnp.linalg.qr(inputs)
    product = jnp.matmul(basis.T, targets, precision=jax.lax.Precision.HIGHEST)
    return jax.scipy.linalg.solve_triangular(factor, product)


def measure(
    experiment: str, revision: int, config: Config, options: Options
) -> list[dict[str, Any]]:
    """All cells of all replicas: settings, and the arrays of `DIMS` as NumPy.

    Trial i of a panel has the same random numbers in all of the panel's cells, and
    others than in the other panels.
    """
    found = []
    for index, (panel, full) in enumerate(PANELS.items()):
        axes = sizes(config, panel)
        first = {name: values[0] for name, values in axes.items()}
        grid = engine.Grid(
            experiment=f"{experiment}.{panel}",
            trial=Trial(
                **first,
                num_clusters=full.num_clusters,
                num_features=config.num_features,
                num_restarts=config.num_restarts,
                num_rounds=config.num_rounds,
            ),
            axes=axes,
            num_trials=config.num_trials,
            dims=DIMS,
            coords={"step_size": full.step_sizes},
            seed=int(study.generator(config.seed, index).integers(2**31)),
            revision=revision,
        )
        results = engine.sweep(
            grid,
            simulate,
            options.out / f"{panel}.zarr",
            constants=jnp.asarray(full.step_sizes, jnp.float32),
            chunk=options.chunk,
            memory=options.memory,
            progress=options.progress,
        )
        for place in itertools.product(*(range(len(v)) for v in axes.values())):
            where = dict(zip(axes, place, strict=True))
            cell = results.isel(where)
            settings = {name: axes[name][i] for name, i in where.items()}
            arrays = {name: np.asarray(cell[name].values, float) for name in DIMS}
            clusters = {"panel": panel, "num_clusters": full.num_clusters}
            found.append(clusters | settings | {"arrays": arrays})
    return found


def verdicts(noise: float, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Whether each run succeeds, `[trials, restarts, steps]`, under each criterion.

    A diverged run never does, not even where its partition happens to be right.
    """
    distance = arrays["distance"]
    finite = np.isfinite(distance)
    floors = arrays["oracle"][:, None, None]
    found = (
        finite & (distance <= FACTOR * noise),
        finite & (distance <= ORACLE_FACTOR * floors),
        finite & (arrays["recovered"] == 1),
    )
    return dict(zip(CRITERIA, found, strict=True))
