"""Radii of Threshold-Clustering's balls: given numbers, or rules on distances."""

import math
from collections.abc import Callable
from typing import Literal

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, ScalarLike

from cfljax.kernels.checks import check_member, is_traced

__all__ = [
    "Quantile",
    "Radius",
    "Rule",
    "check_one_radius",
    "check_radius",
    "given_radii",
    "quantile_radius",
]

# From one centre's distances to all points, in ascending order, to the radius of its
# ball. Points that are not finite are infinitely far, and hence last.
Rule = Callable[[Float[Array, " points"]], Float[Array, ""]]
Radius = ScalarLike | Float[Array, "..."] | Float[np.ndarray, "..."] | Rule

# paper: interpolated between neighbours, at position q (N - 1) from 0; the paper says
# "percentile" only, this is the common one. reference: the distance of index floor(q N)
# of the released code, which lets in one point more where q N is whole.
Quantile = Literal["paper", "reference"]


def quantile_radius(
    quantile: float, *, variant: str = "paper", factor: float = 1.0
) -> Rule:
    """A quantile of the distances (Werner et al., sections 4.2 and 4.3).

    Such a ball holds a share of about q of all points however far they are, whoever
    sent them: it protects only clusters that are a larger share than q.

    Args:
      quantile: q, from 0 to 1, concrete; 0.2 for the paper's MNIST, 0.1 for Figure 4.
      variant: "paper" or "reference", see `Quantile`.
      factor: of the distance; the released MNIST code has 0.99, which leaves out the
        point whose distance was taken, the other released code 1.

    Returns:
      A rule; infinite where the quantile falls on a point that is not finite.

    Raises:
      ValueError: if an argument is out of its range.
    """
    check_member(Quantile, variant=variant)
    if is_traced(quantile) or is_traced(factor):
        raise ValueError(
            "`quantile` and `factor` must be known beforehand, got a traced value."
        )
    if not 0 <= quantile <= 1:
        raise ValueError(f"`quantile` must be from 0 to 1, got {quantile}.")
    if not (math.isfinite(factor) and factor > 0):
        raise ValueError(f"`factor` must be positive, got {factor}.")

    def rule(distances: Float[Array, " points"]) -> Float[Array, ""]:
        last = distances.shape[0] - 1
        if variant == "reference":
            chosen = distances[min(int(quantile * (last + 1)), last)]
            return chosen * factor
        place = quantile * last
        if math.isclose(place, round(place)):  # 0.7 of 90 is 62.99999999999999.
            place = round(place)
        index = math.floor(place)
        low, high = distances[index], distances[min(index + 1, last)]
        between = low + (place - index) * (high - low)
        exact = (low == high) | (place == index)  # Also two infinite ones.
        return jnp.where(exact, low, between) * factor

    return rule


def check_radius(radius: Radius) -> None:
    """Raises ValueError if a radius that is known, not traced, is negative or NaN."""
    if callable(radius) or is_traced(radius):
        return
    if not (np.asarray(radius) >= 0).all():
        raise ValueError(f"`radius` must not be negative, got {radius}.")


def check_one_radius(radius: Radius) -> None:
    """`check_radius`, and raises ValueError unless it is one number or a rule."""
    check_radius(radius)
    if not callable(radius) and np.ndim(radius):
        raise ValueError(
            f"`radius` must be a number or a rule, got shape {np.shape(radius)}."
        )


def given_radii(
    radius: ScalarLike | Float[Array, "..."] | Float[np.ndarray, "..."],
    shape: tuple[int, int],
    dtype: jnp.dtype,
) -> Float[Array, "centres rounds"]:
    """Radii that are given beforehand, one for each centre and round.

    Args:
      radius: a number, `[centres]`, or `[centres, rounds]` with either length 1.
      shape: centres and rounds.
      dtype: of the result.

    Raises:
      ValueError: if the shape is another, or a radius that is known (not traced) is
        negative or not a number.
    """
    check_radius(radius)
    radii = jnp.asarray(radius).astype(dtype)
    if radii.ndim == 1:
        radii = radii[:, None]
    lengths = (1,) * (2 - radii.ndim) + radii.shape
    fits = zip(lengths, shape, strict=False)
    if len(lengths) > 2 or any(own not in (1, full) for own, full in fits):
        raise ValueError(
            f"`radius` must be a number, [centres] or [centres, rounds] for {shape} "
            f"centres and rounds, got shape {np.shape(radius)}."
        )
    return jnp.broadcast_to(radii.reshape(lengths), shape)
