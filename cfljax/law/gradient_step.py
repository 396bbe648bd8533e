"""The law of a model's error after gradient steps on fresh data of one cluster.

Setting: "CLoVE: Personalized Federated Learning through Clustering of Loss Vector
Embeddings", Lemma A.13. With N rows H of standard normal inputs, label noise xi and
e = theta - theta*, one step leaves e+ = e - (2 eta/N) (H'H e - H' xi). By rotation
|e+| depends on |e| alone; `aggregated_gradient` has the law of the part along e, and of
every coordinate across it.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.law.aggregate import aggregated_gradient
from cfljax.law.draws import chi_square
from cfljax.types import Numbers

__all__ = ["contraction", "error_floor", "gradient_steps"]


def contraction(
    num_features: Numbers, num_rows: Numbers, step_size: Numbers
) -> Float[np.ndarray, "..."]:
    """r = (1 - 2 eta)^2 + 4 eta^2 (d + 1)/N in E|e+|^2 = r |e|^2 + 4 eta^2 sigma^2 d/N.

    Exact, by E (H'H)^2 = N (N + d + 1) I.

    Args:
      num_features: d.
      num_rows: N.
      step_size: eta.

    Returns:
      Of the broadcast shape.
    """
    step = np.asarray(step_size, float)
    noise = 4 * step**2 * (np.asarray(num_features, float) + 1)
    return np.asarray((1 - 2 * step) ** 2 + noise / np.asarray(num_rows, float))


def error_floor(
    num_features: Numbers, num_rows: Numbers, step_size: Numbers, noise: Numbers
) -> Float[np.ndarray, "..."]:
    """phi = 2 eta sigma sqrt(d/N) / sqrt(1 - r), where E|e|^2 comes to rest.

    Args:
      num_features: d.
      num_rows: N.
      step_size: eta.
      noise: sigma.

    Returns:
      Of the broadcast shape; infinite or NaN where r >= 1 and nothing comes to rest.
    """
    rest = 1 - contraction(num_features, num_rows, step_size)
    scale = 2 * np.asarray(step_size, float) * np.asarray(noise, float)
    share = np.asarray(num_features, float) / np.asarray(num_rows, float)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(scale * np.sqrt(share / rest))


def gradient_steps(
    seed: int,
    lengths: Float[np.ndarray, " trials"],
    *,
    num_features: int,
    num_rows: int,
    noise: float,
    step_size: float,
    num_rounds: int = 1,
) -> Float[np.ndarray, "rounds_1 trials"]:
    """Draw |e_0|, |e_1|, ... with fresh data in every round, exactly in law.

    Args:
      seed: of the draws.
      lengths: `[trials]`, |e_0| of independent trials.
      num_features: d, at least 1.
      num_rows: N, all samples of the cluster in a round, at least 1.
      noise: sigma, at least 0.
      step_size: eta.
      num_rounds: T, at least 1.

    Returns:
      `[rounds + 1, trials]`, the given lengths first. Compiled once for every number of
      trials; cost: one normal and two chi-square variables a step, whatever d and N.

    Raises:
      ValueError: if a count is below 1, or `noise` negative.
    """
    counts = {
        "num_features": num_features,
        "num_rows": num_rows,
        "num_rounds": num_rounds,
    }
    for name, count in counts.items():
        if count < 1:
            raise ValueError(f"`{name}` must be at least 1, got {count}.")
    if not noise >= 0:
        raise ValueError(f"`noise` must be at least 0, got {noise}.")
    found = [np.asarray(lengths, float)]
    with jax.enable_x64(True):
        numbers = [
            jnp.asarray(number, float)
            for number in (num_features, num_rows, noise, step_size)
        ]
        for key in jax.random.split(jax.random.key(seed), num_rounds):
            found.append(np.asarray(_step(key, jnp.asarray(found[-1]), *numbers)))
    return np.stack(found)


@jax.jit
def _step(
    key: PRNGKeyArray,
    lengths: Float[Array, " trials"],
    num_features: Float[Array, ""],
    num_rows: Float[Array, ""],
    noise: Float[Array, ""],
    step_size: Float[Array, ""],
) -> Float[Array, " trials"]:
    inside_key, across_key = jax.random.split(key)
    rows = jnp.full(lengths.shape, num_rows)
    inside, spread = aggregated_gradient(inside_key, lengths[:, None], rows, noise)
    across = chi_square(across_key, jnp.full(lengths.shape, num_features - 1))
    scale = 2 * step_size / num_rows
    return jnp.hypot(lengths - scale * inside[:, 0], scale * spread * jnp.sqrt(across))
