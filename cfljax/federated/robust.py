"""Means that bad messages cannot carry away: median, trimmed mean, centred clipping.

Each is `(messages, weights, origin) -> mean`: messages have leaves
`[participants, ...]`, a participant of weight 0 is none of the members, and `origin`,
leaves `[...]`, is what messages start from: 0 for gradients, the received model for
models. Where nobody is a member the result is of no meaning.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree, ScalarLike

from cfljax.base.checks import check_positive, is_traced
from cfljax.base.tree import flat, like, rows
from cfljax.base.types import Stacked
from cfljax.federated.backend import everywhere

_Weights = Float[Array, " participants"]
Aggregate = Callable[[Stacked, _Weights, PyTree], PyTree]


def mean() -> Aggregate:
    """The weighted mean, which one message carries anywhere."""

    @everywhere
    def aggregate(messages: Stacked, weights: _Weights, origin: PyTree) -> PyTree:
        del origin
        total = jnp.sum(weights)
        members = weights > 0

        def one(leaf: Array) -> Array:
            weighed = jnp.where(rows(members, leaf), rows(weights, leaf) * leaf, 0)
            return jnp.sum(weighed, axis=0) / total

        return jax.tree.map(one, messages)

    return aggregate


def median() -> Aggregate:
    """The median of every coordinate (Yin et al., ICML 2018, Definition 1).

    Half-way between the two middle values of an even number. NaN counts as +inf, so
    that fewer than half of the members cannot make a coordinate infinite. Members
    count alike, whatever their weights.

    Cost: a sort of every coordinate.
    """

    @everywhere
    def aggregate(messages: Stacked, weights: _Weights, origin: PyTree) -> PyTree:
        del origin
        number = jnp.sum(weights > 0)

        def one(leaf: Array) -> Array:
            ascending = _ascending(leaf, weights > 0)
            low, high = ascending[(number - 1) // 2], ascending[number // 2]
            return low / 2 + high / 2  # Their sum might overflow.

        return jax.tree.map(one, messages)

    return aggregate


def trimmed_mean(share: float) -> Aggregate:
    """The mean of every coordinate without its extremes (Yin et al., Definition 2).

    Of n members the `floor(share n)` largest and as many of the smallest values are
    left out. NaN counts as +inf. Members count alike, whatever their weights.

    Args:
      share: beta, of the members at either end, from 0 to below 1/2; at least the
        fraction of Byzantine members.

    Raises:
      ValueError: if `share` is out of its range.

    Cost: a sort of every coordinate.
    """
    if not 0 <= share < 0.5:
        raise ValueError(f"`share` must be in [0, 0.5), got {share}.")

    @everywhere
    def aggregate(messages: Stacked, weights: _Weights, origin: PyTree) -> PyTree:
        del origin
        number = jnp.sum(weights > 0)
        # A little more, so that 0.1 of 30 are 3 whatever the rounding; never all.
        cut = jnp.floor(share * (1 + 1e-6) * number.astype(jnp.result_type(float)))
        cut = jnp.minimum(cut.astype(number.dtype), (number - 1) // 2)
        places = jnp.arange(weights.shape[0])
        kept = (places >= cut) & (places < number - cut)

        def one(leaf: Array) -> Array:
            ascending = jnp.where(rows(kept, leaf), _ascending(leaf, weights > 0), 0)
            return jnp.sum(ascending, axis=0) / jnp.sum(kept, dtype=leaf.dtype)

        return jax.tree.map(one, messages)

    return aggregate


def centred_clipping(radius: ScalarLike, *, num_rounds: int = 1) -> Aggregate:
    """Messages clipped to a ball around a centre (Karimireddy et al., ICML 2021).

    `v <- v + mean_i (m_i - v) min(1, radius / |m_i - v|)`, from the origin on, with the
    norm of a whole message. A message that is not finite, or whose squared norm is not,
    moves nothing; it counts among the members, as one that is clipped to the centre.

    Args:
      radius: in units of the messages, positive. May be traced.
      num_rounds: of clipping, at least 1. The paper starts from the last round's mean
        and clips once; from the origin on, |v - origin| is at most
        `num_rounds * radius`.

    Raises:
      ValueError: if a number is out of its range.

    Cost: two passes over the messages in each round.
    """
    check_positive(num_rounds=num_rounds)
    if not is_traced(radius) and not 0 < float(np.asarray(radius)) < math.inf:
        raise ValueError(f"`radius` must be positive, got {radius}.")

    @everywhere
    def aggregate(messages: Stacked, weights: _Weights, origin: PyTree) -> PyTree:
        points = flat(messages)
        members = weights > 0
        start = flat(jax.tree.map(lambda leaf: leaf[None], origin))[0]
        limit = jnp.asarray(radius, points.dtype)

        def clip(_: Array, centre: Array) -> Array:
            moves = points - centre[None]
            norms = jnp.sqrt(jnp.sum(jnp.square(moves), axis=1))
            known = members & jnp.isfinite(norms)
            factors = jnp.minimum(1, limit / jnp.where(norms > 0, norms, limit))
            factors = jnp.where(known, weights * factors, 0)
            moves = jnp.where(known[:, None], moves, 0)
            move = jnp.matmul(factors, moves, precision="highest")
            return centre + move / jnp.sum(weights)

        centre = jax.lax.fori_loop(0, num_rounds, clip, start)
        shape = jax.tree.map(lambda leaf: leaf[:1], messages)
        return jax.tree.map(lambda leaf: leaf[0], like(centre[None], shape))

    return aggregate


def _ascending(leaf: Array, members: Bool[Array, " participants"]) -> Array:
    """Every coordinate's values of the members, in order; then +inf."""
    bad = ~rows(members, leaf) | jnp.isnan(leaf)
    return jnp.sort(jnp.where(bad, jnp.inf, leaf), axis=0)
