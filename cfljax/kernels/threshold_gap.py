"""A radius of Threshold-Clustering where the distances have a gap."""

import math
from typing import Literal

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from cfljax.kernels.checks import check_member
from cfljax.kernels.threshold_radius import Rule

__all__ = ["Gap", "gap_radius"]

Gap = Literal["inner", "middle", "outer"]


def gap_radius(gap: str = "outer") -> Rule:
    """A radius from three clusters of the distances, near, middle and far.

    A rule of the released code, not of the paper. With `c1 <= c2 <= c3` the means of
    the least-squares partition of the distances into three,

    - "outer": `(c2 + c3) / 2` ("cd", "adaptive-1"),
    - "middle": `0.99 c2` ("adaptive-2"),
    - "inner": `(c1 + c2) / 2`, but as "outer" where the nearest cluster has no more
      than two points ("adaptive-3").

    The partition here is the best one; the code's k-means starts at random and may find
    another. One far point is a cluster of its own, which lets everybody else into the
    outer ball: "outer" gives no protection from points of any size.

    Returns:
      A rule; the least distance where fewer than three are finite.

    Raises:
      ValueError: if `gap` is unknown.

    Cost: about `4 points^(3/2)` numbers for each centre and round, at a time as well.
    """
    check_member(Gap, gap=gap)

    def rule(distances: Float[Array, " points"]) -> Float[Array, ""]:
        number = jnp.sum(jnp.isfinite(distances))
        first, second = _cuts(distances, number)
        near = _mean(distances, jnp.zeros_like(first), first)
        middle = _mean(distances, first, second)
        far = _mean(distances, second, number)
        outer = (middle + far) / 2
        if gap == "outer":
            radius = outer
        elif gap == "middle":
            radius = 0.99 * middle
        else:
            radius = jnp.where(first > 2, (near + middle) / 2, outer)
        return jnp.where(number < 3, distances[0], radius)

    return rule


def _cuts(
    distances: Float[Array, " points"], number: Int[Array, ""]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """How many points are before the middle and before the far cluster, at the best.

    The sum of squares within is least where the sum of (sum of a cluster)^2 / (its
    size) is largest. For every second cut there is a best first one, and it moves up
    with the second (the costs are Monge). So it is found for every `step`-th second
    cut, and between two of those only first cuts between theirs are tried.
    """
    step = math.isqrt(distances.shape[0]) + 1
    blocks = distances.shape[0] // step + 1
    sums = _prefix_sums(distances, number, blocks * step)
    gain = lambda total, size: (
        jnp.square(total) / jnp.maximum(size, 1).astype(sums.dtype)
    )
    cuts = jnp.arange(blocks * step)
    far = jnp.where(
        (cuts > 1) & (cuts < number), gain(sums[-1] - sums, number - cuts), -jnp.inf
    )

    def gains(firsts: Array, low: Array, seconds: Array, high: Array) -> Array:
        """Of two clusters out of three, for rows of first and second cuts."""
        found = gain(firsts, low) + gain(seconds - firsts, high - low)
        return jnp.where((low > 0) & (low < high), found, -jnp.inf)

    starts = step * jnp.arange(blocks)
    found = gains(sums[None, :], cuts[None, :], sums[starts][:, None], starts[:, None])
    last = jnp.maximum(number - 1, 1)
    lowest = jnp.maximum(jnp.argmax(found, axis=1), 1)
    lowest = jnp.where(starts < number, lowest, last)
    lengths = jnp.append(lowest[1:], last) - lowest + 1
    ends = jnp.cumsum(lengths)
    row = jnp.arange(distances.shape[0] + blocks)
    block = jnp.minimum(jnp.sum(row[:, None] >= ends[None, :], axis=1), blocks - 1)
    first = jnp.minimum(row - (ends - lengths)[block] + lowest[block], cuts[-1])
    in_block = lambda values: values.reshape(blocks, step)[block]
    found = in_block(far) + gains(
        sums[first][:, None], first[:, None], in_block(sums), in_block(cuts)
    )
    best = jnp.argmax(found)
    return first[best // step], in_block(cuts).ravel()[best]


def _prefix_sums(
    distances: Float[Array, " points"], number: Int[Array, ""], length: int
) -> Float[Array, " cuts"]:
    """Sums of the first 0, 1, ... distances, scaled and less their mean."""
    finite = jnp.isfinite(distances)
    kept = jnp.where(finite, distances, 0)
    # Squares of what is at most 1 cannot overflow, and of what is centred cancel less.
    largest = jnp.max(kept)
    kept = kept / jnp.where(largest > 0, largest, 1)
    mean = jnp.sum(kept) / jnp.maximum(number, 1).astype(kept.dtype)
    sums = jnp.cumsum(jnp.where(finite, kept - mean, 0))
    return jnp.pad(sums, (1, length - 1 - sums.shape[0]), mode="edge").at[0].set(0)


def _mean(
    distances: Float[Array, " points"], first: Int[Array, ""], end: Int[Array, ""]
) -> Float[Array, ""]:
    """Mean of a run of sorted distances, never outside of it by rounding."""
    index = jnp.arange(distances.shape[0])
    inside = (index >= first) & (index < end)
    total = jnp.sum(jnp.where(inside, distances, 0))
    mean = total / jnp.maximum(end - first, 1).astype(distances.dtype)
    return jnp.clip(mean, distances[first], distances[jnp.maximum(end - 1, first)])
