"""Radii of Threshold-Clustering under attack, and what attackers know of them."""

from typing import Any, Literal

import jax.numpy as jnp
from jaxtyping import Array, Float

from cfljax.kernels.threshold_gap import gap_radius
from cfljax.kernels.threshold_radius import Radius, Rule

__all__ = ["BROKEN", "Radii", "order_statistic", "radii", "theorem_radius"]

# Radius of each round. fixed: sqrt(delta sigma Delta) of Theorem 1, delta the target's
# honest clients among all; quantile: of the distances; inner, outer: `gap_radius`.
Radii = Literal["fixed", "quantile", "inner", "outer"]

BROKEN = 4.0  # Squared radii of error from which a centre is lost.


def radii(name: Radii, tau: Array, at: Array) -> tuple[Radius, Radius]:
    """The kernel's radius, and the one that attackers count on.

    Attackers ask a rule for the honest points alone. Those at the distance of the last
    honest point within a quantile take the places behind it, and so the quantile.

    Args:
      name: which radius.
      tau: of `fixed`.
      at: place of `quantile`, q (N - 1) for the N clients that are there.
    """
    if name == "fixed":
        return tau, tau
    if name != "quantile":
        return gap_radius(name), gap_radius(name)
    return order_statistic(at), order_statistic(jnp.floor(at))


def theorem_radius(
    share: Any, num_clusters: int, noise: Any, separation: Any
) -> Float[Array, ""]:
    """Theorem 1's tau: sqrt(delta sigma Delta), all clusters having as many clients.

    Args:
      share: beta / delta, attackers over the honest clients of the target.
      num_clusters: K; delta = 1 / (K + share).
      noise: sigma.
      separation: Delta.
    """
    return jnp.sqrt(noise * separation / (num_clusters + share))


def order_statistic(at: Array) -> Rule:
    """`quantile_radius` at a traced place q (N - 1) among distances, from 0."""

    def rule(distances: Float[Array, " points"]) -> Float[Array, ""]:
        index = jnp.floor(at).astype(int)
        low = distances[index]
        high = distances[jnp.minimum(index + 1, distances.shape[0] - 1)]
        exact = (low == high) | (at == jnp.floor(at))  # Also two infinite ones.
        return jnp.where(exact, low, low + (at - jnp.floor(at)) * (high - low))

    return rule
