"""Figure 3's cells with fresh data in every round, exactly in law.

The second curve beside the published one, in which all rounds meet the same data: the
gap between them is what using data again costs. Two things are not as in the data's
curve. A round's identities are estimated on n fresh samples of each client, and its
gradients on n others, independent of them (Ghosh et al., section 5, whose folds hold n
samples here). And every run of a trial, one for each restart and step size, meets data
of its own; the runs of one trial share true models and starts alone.

Trial i draws the same true models, starts and keys in every cell of one size, from
`fold_in(fold_in(key(seed), STREAM), i)`: none of the keys of the trials on data. Truths
and starts cost O(k d) bits and one basis of d vectors once for each trial and
convention; a round costs nothing in n or d.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cfljax import law, metrics
from cfljax.kernels.draws import Convention, bernoulli_models
from experiments.ifca.success import Trial

__all__ = ["REVISION", "STREAM", "distances", "samples_per_use"]

REVISION = 1  # To be raised whenever a trial of the same fields changes its law.
STREAM = 2**32 - 1  # Above the number of any trial on data.


def samples_per_use(trial: Trial) -> int:
    """Samples that a client draws afresh to choose, and again for its gradient.

    n; with `trial.resample`, whose data are fresh in every round as well, what it has
    there, so that both curves then have one law for each run.
    """
    share = 2 * trial.num_rounds if trial.resample else 1
    return trial.num_samples // share


@functools.lru_cache(maxsize=1000)
def _unit_vectors(
    conventions: tuple[Convention, Convention],
    sizes: tuple[int, int, int],
    seed: int,
    index: int,
) -> tuple[Float[np.ndarray, "clusters frame"], Float[np.ndarray, "..."]]:
    """True models of scale 1 and starts of scale 1 in their frame.

    Args:
      conventions: of the truths and of the starts.
      sizes: clusters, features, restarts.
      seed: of all trials.
      index: of the trial.
    """
    clusters, features, restarts = sizes
    truths_key, starts_key, _ = _keys(seed, index)
    with jax.enable_x64(True):
        draw = functools.partial(bernoulli_models, num_features=features, scale=1.0)
        truths, starts = (
            np.asarray(draw(key, num_models=number, convention=convention))
            for key, number, convention in zip(
                (truths_key, starts_key),
                (clusters, restarts * clusters),
                conventions,
                strict=True,
            )
        )
    starts = starts.reshape(restarts, clusters, features)
    framed = law.population(
        truths,
        num_models=clusters,
        num_clients=np.ones(clusters),
        num_samples=1,
        num_features=features,
        noise=0,
    ).truths
    return framed, law.place(truths, starts, num_features=features)


def _keys(seed: int, index: int) -> Any:
    """Keys of a trial's truths, of its starts and of its rounds."""
    stream = jax.random.fold_in(jax.random.key(seed, impl="threefry2x32"), STREAM)
    return jax.random.split(jax.random.fold_in(stream, index), 3)


def distances(
    trial: Trial,
    step_sizes: Float[np.ndarray, " step_size"],
    *,
    num_trials: int,
    seed: int,
) -> Float[np.ndarray, "trial restart step_size"]:
    """Mean matched distance to the truth after the last round of every run.

    Args:
      trial: its parameters.
      step_sizes: gamma, one run for each and for each restart.
      num_trials: at least 1.
      seed: of all trials.

    Returns:
      `[trial, restart, step_size]`; not finite where a model diverged.
    """
    clusters, steps = trial.num_clusters, np.asarray(step_sizes, float)
    relative = trial.init_unit == "separation"
    scale = trial.init_scale * (trial.separation if relative else 1.0)
    final, truths = [], []
    for index in range(num_trials):
        unit_truths, unit_starts = _unit_vectors(
            (trial.convention, trial.convention if relative else "reference"),
            (clusters, trial.num_features, trial.num_restarts),
            seed,
            index,
        )
        population = law.population(
            trial.separation * unit_truths,
            num_models=clusters,
            num_clients=np.full(clusters, trial.num_clients // clusters),
            num_samples=samples_per_use(trial),
            num_features=trial.num_features,
            noise=trial.noise,
        )
        starts = law.place(
            trial.separation * unit_truths,
            scale * unit_starts,
            num_features=trial.num_features,
        )
        trace = law.simulate(
            _keys(seed, index)[2],
            population,
            np.repeat(starts, len(steps), axis=0),
            num_trials=trial.num_restarts * len(steps),
            num_rounds=trial.num_rounds,
            step_size=np.tile(steps, trial.num_restarts),
            divisor=trial.normalise,
        )
        final.append(trace.models[:, -1])
        truths.append(population.truths)
    return _matched(np.stack(final), np.stack(truths)).reshape(
        num_trials, trial.num_restarts, len(steps)
    )


def _matched(
    models: Float[np.ndarray, "trial run clusters frame"],
    truths: Float[np.ndarray, "trial clusters frame"],
) -> Float[np.ndarray, "trial run"]:
    with jax.enable_x64(True):
        runs = jax.vmap(metrics.centre_distance, in_axes=(0, None))
        return np.asarray(jax.vmap(runs)(jnp.asarray(models), jnp.asarray(truths)))
