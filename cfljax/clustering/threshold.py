"""Threshold-Clustering: centres that move to the points in a ball around them."""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.base.checks import (
    check_member,
    check_not_negative,
    check_positive,
    is_traced,
)
from cfljax.base.tree import flat, length, like, num_features
from cfljax.base.types import Stacked, Threat
from cfljax.clustering.gram import combine, gram_matrix, squares_of

# Who is in the ball. paper: whose distance is at most the radius, as equation (4) and
# the released MNIST and CIFAR code have it. reference: whose distance is less, as the
# released synthetic code (the paper's Figures 2 and 3) has it; with a quantile as the
# radius this leaves out the very point that the quantile is the distance of.
Edge = Literal["paper", "reference"]


# How distances are computed. coordinates: by differences, which cancel nothing; gram:
# from inner products, at a cost per clipping round that features have no part in.
Form = Literal["coordinates", "gram"]

_MANY_FEATURES = 4096  # Above, reading messages in every clipping round costs most.

# From one centre's distances to all points, in ascending order, to the radius of its
# ball. Points that are not finite are infinitely far, and hence last.
Rule = Callable[[Float[Array, " points"]], Float[Array, ""]]
Radius = ScalarLike | Float[Array, "..."] | Float[np.ndarray, "..."] | Rule


class Thresholding(NamedTuple):
    """Centres, and what was in their balls.

    centres: v_k after the last round, `[centres, features]`, or leaves
      `[centres, ...]` where the points are such.
    members: points in the ball of the last round, by which the centre moved last.
    counts: points in the ball of each round.
    radii: tau of each round, as given or as the rule made it.
    """

    centres: Stacked
    members: Bool[Array, "centres points"]
    counts: Int[Array, "centres rounds"]
    radii: Float[Array, "centres rounds"]


def threshold_clustering(
    points: Float[Array, "points features"],
    centres: Float[Array, "centres features"],
    *,
    num_rounds: int,
    radius: Radius,
    edge: str = "paper",
    centres_per_chunk: int | None = None,
) -> Thresholding:
    """Threshold-Clustering (Werner et al., 2023, Algorithm 3, equation 4).

    In each round a centre v becomes the mean over all N points z_i of z_i where
    `|z_i - v| <= tau`, and of v itself where not: it moves towards the mean of the
    points in its ball by their share of all points. Centres do not see each other,
    and a ball may hold a point of another.

    A point that is not finite, or so far that its squared distance overflows, is in
    no ball, whatever the radius; it counts among the N. A centre without anybody in
    its ball stays as it is, bit for bit; so does one that starts as not finite.

    Args:
      points: z, at least one; of Federated-Clustering the clients' gradients.
      centres: to start from, at least one, as many as liked; a client's own gradient.
      num_rounds: M, at least 1; Algorithm 3's l.
      radius: tau. A number; `[centres]`; `[centres, rounds]` with either length 1,
        which is how radii follow a schedule; or a rule from a centre's ascending
        distances to a radius, such as `quantile_radius` and `gap_radius`, which is
        asked anew in each round. A traced radius below 0 is a ball without points.
      edge: "paper" or "reference": whether the edge belongs to the ball, see
        `Edge`.
      centres_per_chunk: bounds memory; all centres at once if None. Changes nothing
        beyond rounding.

    Raises:
      ValueError: if a number is below 1, a radius negative, an axis empty, or shapes
        do not fit.

    Cost: for each round and centre two passes over the points, one for distances, by
    differences, which do not cancel, and one product; a sort if the radius is a rule.
    Memory: up to `[centres, points, features]` differences of the centres of a chunk,
    where the compiler keeps them. Many centres of many features are cheaper by
    `threshold_clustering_gram`.
    """
    if centres.shape[1:] != points.shape[1:]:
        raise ValueError(
            f"`centres` must have the features of `points`, {points.shape[1]}, "
            f"got {centres.shape[1]}."
        )
    finite = jnp.all(jnp.isfinite(points), axis=1)
    kept = jnp.where(finite[:, None], points, 0)

    def distances_of(centre: Float[Array, " features"]) -> Float[Array, " points"]:
        squares = jnp.sum(jnp.square(kept - centre[None, :]), axis=1)
        return jnp.where(finite, jnp.sqrt(squares), jnp.inf)

    def sum_of(members: Float[Array, " points"]) -> Float[Array, " features"]:
        return jnp.matmul(members, kept, precision="highest")

    found = _rounds(
        centres,
        distances_of,
        sum_of,
        num_points=points.shape[0],
        num_rounds=num_rounds,
        radius=radius,
        edge=edge,
        centres_per_chunk=centres_per_chunk,
    )
    return Thresholding(*found)


class WeightThresholding(NamedTuple):
    """Centres as combinations of the points, and what was in their balls.

    weights: of each point in each centre, rows of sum 1; `gram.combine` makes the
      centres.
    members: as of `Thresholding`.
    counts: likewise.
    radii: likewise.
    """

    weights: Float[Array, "centres points"]
    members: Bool[Array, "centres points"]
    counts: Int[Array, "centres rounds"]
    radii: Float[Array, "centres rounds"]


def threshold_clustering_gram(
    gram: Float[Array, "points points"],
    weights: Float[Array, "centres points"],
    *,
    num_rounds: int,
    radius: Radius,
    edge: str = "paper",
    centres_per_chunk: int | None = None,
) -> WeightThresholding:
    """`threshold_clustering` of centres that are affine combinations of the points.

    A centre `v = sum_i w_i z_i` with `sum_i w_i = 1` stays one in every round, and

        |z_j - v|^2 = sum_i w_i D_ij - (1/2) sum_il w_i D_il w_l,

    where D has the squared distances of the points. `gram` has their inner products
    about any one origin; a point that is not finite, or whose squared norm is not, has
    no finite diagonal entry and is in no ball. `weights` are the w at the start, the
    identity where each client starts from its own gradient; a centre with weight on a
    point that is not finite is not finite either, and stays. Each round costs a product
    of `[centres, points]` and `[points, points]`.

    All that cancels is the step from inner products to D: in precision eps, with points
    up to R from the origin of the inner products, distances have an absolute error of
    about `R sqrt(eps)`, so R must be well below `radius / sqrt(eps)` (3,000 radii in
    single, 7e7 in double precision). `gram_matrix` chooses the origin;
    `-squared_distances(points) / 2` in the place of `gram` cancels nothing, and costs
    more for many features.
    """
    number = gram.shape[0]
    if gram.shape != (number, number) or weights.shape[1] != number:
        raise ValueError(
            f"`gram` must be square, of the points of `weights`, {weights.shape[1]}, "
            f"got shape {gram.shape}."
        )
    squares, finite = squares_of(gram)
    largest = float(jnp.finfo(gram.dtype).max) / 8

    def distances_of(weights: Float[Array, " points"]) -> Float[Array, " points"]:
        means = jnp.matmul(weights, squares, precision="highest")
        found = jnp.maximum(means - jnp.sum(means * weights) / 2, 0)
        known = finite & ~jnp.any((weights != 0) & ~finite) & (found < largest / 2)
        return jnp.where(known, jnp.sqrt(found), jnp.inf)

    found = _rounds(
        weights,
        distances_of,
        lambda members: members,
        num_points=number,
        num_rounds=num_rounds,
        radius=radius,
        edge=edge,
        centres_per_chunk=centres_per_chunk,
    )
    return WeightThresholding(*found)


def threshold_members(
    points: Stacked,
    starts: Int[Array, " centres"],
    *,
    num_rounds: int,
    radius: Radius,
    edge: Edge = "paper",
    form: Form | None = None,
    centres_per_chunk: int | None = None,
) -> Thresholding:
    """`threshold_clustering` of centres that start at some of the points, rows or
    leaves `[points, ...]`, in whose form the centres are.

    The forms agree up to rounding (`threshold_clustering_gram` says when); by the
    number of features if None.
    """
    settings: dict[str, Any] = {
        "num_rounds": num_rounds,
        "radius": radius,
        "edge": edge,
        "centres_per_chunk": centres_per_chunk,
    }
    if form is None:
        form = "gram" if num_features(points) > _MANY_FEATURES else "coordinates"
    if form == "coordinates":
        side_by_side = flat(points)
        found = threshold_clustering(side_by_side, side_by_side[starts], **settings)
        return found._replace(centres=like(found.centres, points))
    gram = gram_matrix(points, starts[0] if starts.shape[0] == 1 else None)
    weights = starts[:, None] == jnp.arange(length(points))[None, :]
    found = threshold_clustering_gram(gram, weights.astype(gram.dtype), **settings)
    centres = combine(found.weights, points, jnp.isfinite(jnp.diagonal(gram)))
    return Thresholding(centres, found.members, found.counts, found.radii)


def threshold_messages(
    key: PRNGKeyArray,
    messages: Stacked,
    senders: Int[Array, " points"],
    starts: Int[Array, " centres"],
    *,
    threat: Threat | None,
    round_index: Int[Array, ""],
    receiver: Int[Array, ""] | None = None,
    num_rounds: int,
    radius: Radius,
    edge: Edge,
    form: Form | None,
    centres_per_chunk: int | None = None,
) -> Thresholding:
    """`threshold_members` of messages as they arrive, Byzantine clients' among them.

    An adaptive threat sends anew to each centre in each clipping round, with the key
    folded with its index; that is for "coordinates" only. `receiver` is the client whom
    the messages, and the only centre, are for; None for a server.
    """
    settings: dict[str, Any] = {
        "num_rounds": num_rounds,
        "radius": radius,
        "edge": edge,
    }
    more = {"form": form, "centres_per_chunk": centres_per_chunk}
    if threat is None:
        return threshold_members(messages, starts, **settings, **more)
    check_form(form, threat)
    points = flat(messages)  # Attackers see rows.
    known: dict[str, Any] = {"radius": known_radius(radius), "round": round_index}
    if receiver is not None:
        known["receiver"] = receiver
    if threat.adaptive:

        def resend(step: Array, start: Array, centre: Array) -> Array:
            own = jax.random.fold_in(key, step)
            return threat.send(
                own, points, senders, start=start, centre=centre, **known
            )

        found = _adaptive(points, starts, resend, **settings)
    else:
        if receiver is not None:
            known["start"] = points[starts[0]]
        sent = threat.send(key, points, senders, **known)
        found = threshold_members(sent, starts, **settings, **more)
    return found._replace(centres=like(found.centres, messages))


def _adaptive(
    points: Float[Array, "points features"],
    starts: Int[Array, " centres"],
    resend: Callable[[Array, Array, Array], Float[Array, "points features"]],
    *,
    num_rounds: int,
    radius: Radius,
    edge: Edge,
) -> Thresholding:
    """One clipping round after the other, each with points of its own: `resend` makes
    them from the round, and from one centre where it starts and now is."""
    if known_radius(radius) is None and not callable(radius):
        raise ValueError(
            "`radius` must be a number or a rule where points are sent anew in every "
            f"clipping round, got shape {jnp.shape(radius)}."
        )

    def one(start: Int[Array, ""]) -> tuple[Array, Bool[Array, " points"], tuple]:
        first = points[start]

        def clip(carry: tuple, index: Int[Array, ""]) -> tuple[tuple, tuple]:
            centre, _ = carry
            found = threshold_clustering(
                resend(index, first, centre),
                centre[None],
                num_rounds=1,
                radius=radius,
                edge=edge,
            )
            seen = found.counts[0, 0], found.radii[0, 0]
            return (found.centres[0], found.members[0]), seen

        nobody = jnp.zeros(points.shape[0], bool)
        carry, seen = jax.lax.scan(clip, (first, nobody), jnp.arange(num_rounds))
        return *carry, seen

    centres, members, (counts, radii) = jax.lax.map(one, starts)
    return Thresholding(centres, members, counts, radii)


# The rounds, whatever a centre's coordinates are.


def _rounds(
    places: Float[Array, "centres coordinates"],
    distances_of: Callable[[Float[Array, " coordinates"]], Float[Array, " points"]],
    sum_of: Callable[[Float[Array, " points"]], Float[Array, " coordinates"]],
    *,
    num_points: int,
    num_rounds: int,
    radius: Radius,
    edge: str,
    centres_per_chunk: int | None,
) -> tuple[
    Float[Array, "centres coordinates"],
    Bool[Array, "centres points"],
    Int[Array, "centres rounds"],
    Float[Array, "centres rounds"],
]:
    """Places, members, counts and radii after the rounds; `distances_of` a place mean
    nothing unless finite, and `sum_of` takes 1 for some points, 0 for others."""
    number, dtype = places.shape[0], places.dtype
    check_positive(num_rounds=num_rounds, points=num_points, centres=number)
    check_positive(centres_per_chunk=centres_per_chunk)
    check_member(Edge, edge=edge)
    rule = radius if callable(radius) else None
    given = None
    if not callable(radius):
        given = _given_radii(radius, (number, num_rounds), dtype)

    def clip(carry: tuple, given: Array | None) -> tuple[tuple, tuple]:
        place, _ = carry
        # Rounded once: the rule's distance must be on the edge in the comparison too.
        distances = jax.lax.optimization_barrier(distances_of(place))
        known = jnp.isfinite(distances)
        if rule is not None:
            given = rule(jnp.sort(jnp.where(known, distances, jnp.inf)))
        inside = distances <= given if edge == "paper" else distances < given
        members = inside & known
        count = jnp.sum(members)
        move = sum_of(members.astype(dtype)) - count.astype(dtype) * place
        place = jnp.where(count > 0, place + move / num_points, place)  # (4)
        return (place, members), (given, count)

    def one(centre: tuple) -> tuple:
        place, given = centre
        nobody = jnp.zeros(num_points, bool)
        carry, seen = jax.lax.scan(clip, (place, nobody), given, length=num_rounds)
        return *carry, seen[1], seen[0]

    if centres_per_chunk is None:
        return jax.vmap(one)((places, given))
    return jax.lax.map(one, (places, given), batch_size=min(centres_per_chunk, number))


def _given_radii(
    radius: ScalarLike | Float[Array, "..."] | Float[np.ndarray, "..."],
    shape: tuple[int, int],
    dtype: jnp.dtype,
) -> Float[Array, "centres rounds"]:
    """Radii that are given beforehand, one for each centre and round."""
    check_not_negative(radius=radius)
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


# Checks of what constructors are given.


def check_one_radius(radius: Radius) -> None:
    """Raises ValueError unless it is one number that is not negative, or a rule."""
    if callable(radius):
        return
    check_not_negative(radius=radius)
    if np.ndim(radius):
        raise ValueError(
            f"`radius` must be a number or a rule, got shape {np.shape(radius)}."
        )


def check_form(form: str | None, threat: Threat | None = None) -> None:
    """Raises ValueError if the word is unknown, or what `threat` does refuses it."""
    if form is not None:
        check_member(Form, form=form)
    if form == "gram" and threat is not None and threat.adaptive:
        raise ValueError(
            "`form` must be 'coordinates' or None where points are sent anew in every "
            "clipping round, got 'gram'."
        )


def known_radius(radius: Radius) -> ScalarLike | None:
    """The radius as attackers know it: one number, or None."""
    return radius if not callable(radius) and jnp.ndim(radius) == 0 else None


# Radii that follow the distances.


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
            return distances[min(int(quantile * (last + 1)), last)] * factor
        place = quantile * last
        if math.isclose(place, round(place)):  # 0.7 of 90 is 62.99999999999999.
            place = round(place)
        index = math.floor(place)
        low, high = distances[index], distances[min(index + 1, last)]
        between = low + (place - index) * (high - low)
        exact = (low == high) | (place == index)  # Also two infinite ones.
        return jnp.where(exact, low, between) * factor

    return rule


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
        outer = (middle + _mean(distances, second, number)) / 2
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
    """How many points are before the middle and the far cluster for the least squares
    within; the best first cut moves up with the second (the costs are Monge)."""
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
    total = jnp.sum(jnp.where((index >= first) & (index < end), distances, 0))
    mean = total / jnp.maximum(end - first, 1).astype(distances.dtype)
    return jnp.clip(mean, distances[first], distances[jnp.maximum(end - 1, first)])
