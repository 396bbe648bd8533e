"""Attacks made of the mean and spread of the target's honest messages.

m and s are mean and standard deviation in each coordinate over the honest clients of
the target (`scene.Scene`), o is the origin that messages start from.
"""

import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree, ScalarLike

from cfljax.attacks.scene import (
    Attack,
    Context,
    Scene,
    attack_from,
    mean_of,
    one_point,
)
from cfljax.base.checks import check_in, check_member, check_not_negative
from cfljax.base.decompositions import eigenvectors
from cfljax.base.draws import flat_normal
from cfljax.base.ranges import NOT_NEGATIVE, REAL
from cfljax.base.types import Stacked

_RAREST = 1e-3  # Probabilities of ALIE stay this far from 0 and 1: |z| <= 3.09.


def sign_flip() -> Attack:
    """The mean, backwards: b = o - (m - o), which is -m for gradients.

    Cost: one pass over the messages.
    """
    return ipm(epsilon=1.0)


def ipm(*, epsilon: ScalarLike = 0.5) -> Attack:
    """Inner-product manipulation: b = o - epsilon (m - o), -epsilon m for gradients.

    A small epsilon hides among the honest messages and still turns the inner product
    of their mean with the true gradient negative, once enough clients send it.

    Source: Xie, Koyejo and Gupta, "Fall of Empires", UAI 2020.

    Args:
      epsilon: no unit, not negative. May be traced.

    Raises:
      ValueError: if `epsilon` is negative.

    Cost: one pass over the messages.
    """
    check_in(NOT_NEGATIVE, epsilon=epsilon)

    push = lambda scene: scene.number(epsilon) * (scene.mean - scene.origin)
    return attack_from(lambda key, scene: scene.origin - push(scene))


def alie(*, z: ScalarLike | None = None) -> Attack:
    """ "A little is enough": b = m - z s, a shift that hides in the honest spread.

    The z that the attackers can afford leaves them enough honest clients farther out:
    z = Phi^-1((n - n_b - s') / (n - n_b)) for n = n_i + n_b clients, n_b of them
    Byzantine, where s' = floor(n / 2 + 1) - n_b honest ones make a majority with them.
    The probability is kept within [0.001, 0.999], |z| <= 3.09: a Byzantine majority
    needs nobody and has no finite z. For few attackers it is slightly negative.

    Source: Baruch, Baruch and Goldberg, "A Little Is Enough", NeurIPS 2019.

    Args:
      z: in standard deviations, not negative; by the formula if None. May be traced.

    Raises:
      ValueError: if `z` is negative.

    Cost: two passes over the messages.
    """
    check_in(NOT_NEGATIVE, z=z)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, " features"]:
        del key
        shift = _affordable(scene) if z is None else scene.number(z)
        return scene.mean - shift * scene.deviation

    return attack_from(lie)


def gaussian(*, scale: ScalarLike = 10.0) -> Attack:
    """Noise about the mean: b = m + scale s N(0, I), drawn by each client.

    Args:
      scale: in standard deviations, not negative. May be traced.

    Raises:
      ValueError: if `scale` is negative.

    Cost: two passes over the messages, and one draw for each number in them.
    """
    check_in(NOT_NEGATIVE, scale=scale)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        draw = flat_normal(key, scene.points.shape).astype(scene.points.dtype)
        return scene.mean[None] + scene.number(scale) * scene.deviation[None] * draw

    return attack_from(lie)


# diagonal: -1 / sqrt(d) in every coordinate; opposite: against the target's honest
# mean; component: the first principal component of its honest points, the end that
# does not point along the mean; random: uniform, drawn from the attack's key.
Direction = Literal["diagonal", "opposite", "component", "random"]


def mimic(*, direction: Direction = "diagonal") -> Attack:
    """Copies of one honest client's message: the target's farthest along u.

    Nothing is odd about any single message; the copied client counts too often.

    Source: Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous
    Datasets via Bucketing", ICLR 2022.

    Args:
      direction: of u, see `Direction`.

    Returns:
      The attack (`scene.attack_from`). Of several farthest clients the first is
      copied; one with a message that is not finite only if all have.

    Raises:
      ValueError: if the direction is unknown.

    Cost: one pass over the messages, and that of the direction.
    """
    check_member(Direction, direction=direction)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, " features"]:
        finite = jnp.all(jnp.isfinite(scene.points), axis=1)
        usable = scene.known & finite
        usable = jnp.where(jnp.any(usable), usable, scene.known)
        u = unit_direction(direction, key, scene._replace(known=usable))
        along = jnp.sum(scene.points * u[None], axis=1)
        along = jnp.where(jnp.isfinite(along), along, jnp.finfo(along.dtype).min)
        return scene.points[jnp.argmax(jnp.where(usable, along, -jnp.inf))]

    return attack_from(lie)


def other_mean(*, other: int | None = None) -> Attack:
    """The honest mean of another cluster, to make the target merge with it.

    Args:
      other: the cluster; all others together if None.

    Returns:
      The attack (`scene.attack_from`): it sends the target's own mean where there is
      no honest client of another cluster, and raises a ValueError if its context has
      no clusters.

    Raises:
      ValueError: if `other` is negative.

    Cost: two passes over the messages.
    """
    check_in(NOT_NEGATIVE, other=other)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, " features"]:
        del key
        clusters, target = scene.context.clusters, scene.context.target
        if clusters is None:
            raise ValueError("`clusters` of the context must be given, got None.")
        others = clusters != target if other is None else clusters == other
        others = others & (clusters >= 0) & scene.honest  # Not who has no cluster.
        return mean_of(scene.points, jnp.where(jnp.any(others), others, scene.known))

    return attack_from(lie)


def _affordable(scene: Scene) -> Float[Array, ""]:
    """z of ALIE's formula, rounded numbers of clients and all."""
    honest = jnp.sum(scene.known)  # n - n_b
    byzantine = jnp.sum(scene.byzantine)
    needed = (honest + byzantine) // 2 + 1 - byzantine  # s'
    real = jnp.result_type(float)
    probability = (honest - needed).astype(real) / honest.astype(real)
    inside = jnp.clip(probability, _RAREST, 1 - _RAREST)
    return scene.number(jax.scipy.special.ndtri(inside))  # z


_INSIDE = 0.999  # Of the radius; at 1 rounding decides who is inside.


def edge_static(
    *,
    radius: ScalarLike | None = None,
    fraction: ScalarLike = _INSIDE,
    direction: Direction = "diagonal",
) -> Attack:
    """Points at the edge of the first ball: b = v_0 + fraction tau u.

    They stay where they are while the centre moves. With all honest points of the
    target in the ball the centre ends at `m + n_b / (n_i + n_b) (b - m)`.

    Source: Werner et al., section 3.1.1, threat model.

    Args:
      radius: tau, in units of the messages; the context's if None.
      fraction: of the radius, not negative; above 1 the points are outside.
      direction: of u, see `Direction`.

    Returns:
      The attack (`scene.attack_from`). It raises a ValueError if no radius is known.

    Raises:
      ValueError: if a number is negative, or the direction is unknown.

    Cost: one pass over the messages, and that of the direction.
    """
    return _edge(radius, fraction, direction, lambda scene: scene.context.start)


def edge_adaptive(
    *,
    radius: ScalarLike | None = None,
    fraction: ScalarLike = _INSIDE,
    direction: Direction = "diagonal",
) -> Attack:
    """Points at the edge of every ball: b_l = v_{l-1} + fraction tau u.

    To be called in each clipping round with the current centre in the context, which
    clients that send once could not do: an upper bound over all attackers. With all
    honest points of the target in the ball the centre ends at
    `m + n_b / n_i fraction tau u`, a squared error of `(beta / delta)^2 tau^2`.

    Source: Werner et al., section 3.1.1 and Lemma 5.

    Args:
      radius: tau, in units of the messages; the context's if None.
      fraction: of the radius, not negative; above 1 the points are outside.
      direction: of u, see `Direction`.

    Returns:
      The attack (`scene.attack_from`). It raises a ValueError if no radius is known.

    Raises:
      ValueError: if a number is negative, or the direction is unknown.

    Cost: one pass over the messages, and that of the direction.
    """
    return _edge(radius, fraction, direction, lambda scene: scene.context.centre)


def staged(
    *,
    radius: ScalarLike | None = None,
    fraction: ScalarLike = _INSIDE,
    spacing: ScalarLike = 1.0,
    direction: Direction = "diagonal",
) -> Attack:
    """A chain of points that drags the centre beyond its first ball.

    b_q = v_0 + fraction tau (1 + spacing q / n_i) u for q = 0 .. n_b - 1 in the order
    of the clients: each point that gets in moves the ball towards the next.

    Args:
      radius: tau, in units of the messages; the context's if None.
      fraction: of the radius, not negative.
      spacing: of the chain, in `tau / n_i`, not negative.
      direction: of u, see `Direction`.

    Returns:
      The attack (`scene.attack_from`). It raises a ValueError if no radius is known.

    Raises:
      ValueError: if a number is negative, or the direction is unknown.

    Cost: one pass over the messages, and that of the direction.
    """
    check_in(NOT_NEGATIVE, radius=radius, fraction=fraction, spacing=spacing)
    check_member(Direction, direction=direction)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        reach = scene.number(fraction) * _radius(radius, scene)
        number = jnp.sum(scene.known, dtype=scene.points.dtype)  # n_i
        rank = jnp.cumsum(scene.byzantine) - 1  # q
        stages = 1 + scene.number(spacing) * rank.astype(scene.points.dtype) / number
        u = unit_direction(direction, key, scene)
        start = one_point(scene.context.start, scene.mean)
        return start[None] + (reach * stages)[:, None] * u[None]  # b_q

    return attack_from(lie)


def _edge(
    radius: ScalarLike | None,
    fraction: ScalarLike,
    direction: Direction,
    centre: Callable[[Scene], PyTree],
) -> Attack:
    """Points at the edge of the ball around a centre."""
    check_in(NOT_NEGATIVE, radius=radius, fraction=fraction)
    check_member(Direction, direction=direction)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, " features"]:
        u = unit_direction(direction, key, scene)
        reach = scene.number(fraction) * _radius(radius, scene)
        return one_point(centre(scene), scene.mean) + reach * u  # section 3.1.1

    return attack_from(lie)


def _radius(radius: ScalarLike | None, scene: Scene) -> Float[Array, ""]:
    """tau, from the options or else from the context."""
    known = scene.context.radius if radius is None else radius
    if known is None:
        raise ValueError(
            "`radius` must be given to an attack at the edge of a ball, or to its "
            "context; got None."
        )
    return scene.number(known)


def unit_direction(
    direction: Direction, key: PRNGKeyArray, scene: Scene
) -> Float[Array, " features"]:
    """The vector u of length 1; the diagonal where the asked one has no length.

    Args:
      direction: which one.
      key: of the draw, if it is random; the same key gives the same vector.
      scene: all points. "opposite" measures the mean from the context's origin.

    Cost: "component" an eigendecomposition `[clients, clients]`, cubic in clients;
    the others one pass over the points.
    """
    if direction == "random":
        return random_unit(key, scene.points.shape[1], scene.points.dtype)
    default = diagonal(scene)
    if direction == "diagonal":
        return default
    forward = scene.mean - scene.origin
    if direction == "opposite":
        return _unit(-forward, default)
    centred = scene.points - scene.mean[None]
    centred = jnp.where(scene.known[:, None], centred, 0)
    gram = jnp.matmul(centred, centred.T, precision="highest")
    weights = eigenvectors(gram)[1][:, -1]
    axis = _unit(jnp.matmul(weights, centred, precision="highest"), default)
    return jnp.where(jnp.sum(axis * forward) > 0, -axis, axis)


def diagonal(scene: Scene) -> Float[Array, " features"]:
    """-1 / sqrt(d) in every coordinate."""
    features = scene.points.shape[1]
    return jnp.full((features,), -1 / math.sqrt(features), scene.points.dtype)


def random_unit(key: PRNGKeyArray, features: int, dtype: jnp.dtype) -> Array:
    """A uniform direction `[features]`."""
    draw = flat_normal(key, (features,)).astype(dtype)
    return draw / jnp.linalg.norm(draw)


def _unit(vector: Array, default: Array) -> Array:
    """The vector with length 1; the default for 0."""
    norm = jnp.linalg.norm(vector)
    return jnp.where(norm > 0, vector / jnp.where(norm > 0, norm, 1), default)


BitFlip = Literal["bits", "reference"]


def zero() -> Attack:
    """A free rider, who has learned nothing: b = o, 0 for gradients.

    Cost: one pass over the messages.
    """
    return attack_from(lambda key, scene: scene.origin)


def not_finite(*, value: float = math.nan) -> Attack:
    """Messages full of NaN, or of an infinity.

    Args:
      value: what every number of a message is; NaN, inf or -inf.

    Raises:
      ValueError: if `value` is finite.

    Cost: one pass over the messages.
    """
    if math.isfinite(value):
        raise ValueError(f"`value` must be NaN or infinite, got {value}.")
    return attack_from(lambda key, scene: jnp.full_like(scene.points[0], value))


def noise(*, mean: ScalarLike = 1e6, deviation: ScalarLike = 200.0) -> Attack:
    """Noise that knows nothing of the honest messages: b ~ N(mean, deviation^2 I).

    Source: the defaults are the Gaussian attack of the code released with Werner et
    al.; with mean 0 it is the random update of Ditto (Li et al., ICML 2021).

    Args:
      mean: of every coordinate, in units of the messages. May be traced.
      deviation: standard deviation, not negative. May be traced.

    Raises:
      ValueError: if the deviation is negative, or the mean is not finite.

    Cost: one pass over the messages, and one draw for each number in them.
    """
    check_in(NOT_NEGATIVE, deviation=deviation)
    check_in(REAL, mean=mean)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        draw = flat_normal(key, scene.points.shape).astype(scene.points.dtype)
        return scene.number(mean) + scene.number(deviation) * draw

    return attack_from(lie)


def boosting(*, factor: ScalarLike = 10.0) -> Attack:
    """A client's own message, amplified: b_j = o + factor (x_j - o).

    With a negative factor each client turns its own message round. Together with
    flipped labels (`labels.flip_labels`) this pulls an average to the flipped task.

    Source: the boosted update of Ditto (Li et al., ICML 2021), which fixes no factor.

    Args:
      factor: no unit, of any sign. May be traced.

    Raises:
      ValueError: if `factor` is not finite.

    Cost: one pass over the messages.
    """
    check_in(REAL, factor=factor)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        del key
        origin = scene.origin[None]
        return origin + scene.number(factor) * (scene.points - origin)

    return attack_from(lie)


def bit_flip(*, variant: BitFlip = "bits", limit: float | None = 1e30) -> Attack:
    """The message of the target's first honest client, with flipped bits.

    The highest bit of each exponent is flipped, bit 30 of a float32: magnitudes below 1
    grow by 2^128, those from 2 on shrink as much, 0 becomes 2, and what is between 1
    and 2 becomes infinite or NaN.

    Source: variant "reference" is the attack of that name in the code released with
    Werner et al., minus the first worker's gradient: o - (x - o) here.

    Args:
      variant: "bits" or "reference".
      limit: magnitude that replaces what is not finite, with the sign of the honest
        number; nothing is replaced if None.

    Raises:
      ValueError: if the variant is unknown or the limit negative.

    Cost: two passes over the messages.
    """
    check_member(BitFlip, variant=variant)
    check_not_negative(limit=limit)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, " features"]:
        del key
        point = scene.points[jnp.argmax(scene.known)]
        if variant == "reference":
            return scene.origin - (point - scene.origin)
        flipped = _flipped(point)
        if limit is None:
            return flipped
        bound = jnp.copysign(jnp.asarray(limit, point.dtype), point)
        return jnp.where(jnp.isfinite(flipped), flipped, bound)

    return attack_from(lie)


def _flipped(point: Float[Array, " features"]) -> Float[Array, " features"]:
    """The point with the highest bit of each exponent flipped."""
    number = 8 * point.dtype.itemsize
    word = jnp.dtype(f"uint{number}")
    bits = jax.lax.bitcast_convert_type(point, word)
    highest = jnp.asarray(1 << (number - 2), word)
    return jax.lax.bitcast_convert_type(bits ^ highest, point.dtype)


def time_coupled(
    *, strength: ScalarLike = 1.0, alternating: bool = False, seed: int = 0
) -> Attack:
    """The same small push in every round, hidden in noise like the honest one.

    b = m + s N(0, I) + strength |s| u, with noise drawn by each client and round, and
    one random direction u for the whole run. One round shows little: |s| is about the
    distance of an honest message from the mean. Over t rounds noise adds up like
    sqrt(t), the push like t, unless the server remembers.

    Source: after Karimireddy, He and Jaggi, "Learning from History for Byzantine
    Robust Optimization", ICML 2021; the formula is this module's.

    Args:
      strength: in deviations |s|, not negative. May be traced.
      alternating: turn the push round in every other round, which undoes it: the
        control of the accumulation.
      seed: decides u, whatever the round's key.

    Raises:
      ValueError: if the strength is negative.

    Cost: two passes over the messages, and one draw for each number in them.
    """
    check_in(NOT_NEGATIVE, strength=strength)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        points, spread = scene.points, scene.deviation
        u = random_unit(jax.random.key(seed), points.shape[1], points.dtype)
        if alternating:
            u = jnp.where(jnp.asarray(scene.context.round) % 2 == 0, u, -u)
        noise = flat_normal(key, points.shape).astype(points.dtype)
        push = scene.number(strength) * jnp.linalg.norm(spread) * u
        return (scene.mean + push)[None] + spread[None] * noise

    return attack_from(lie)


def sleeper(attack: Attack, *, wake: ScalarLike) -> Attack:
    """Byzantine clients that are honest until a round, then attack.

    Args:
      attack: what they do once awake.
      wake: rounds that they let pass, not negative; half of them in the usual test of
        defences that trust. May be traced.

    Raises:
      ValueError: if `wake` is negative; in a round, if the context is missing.

    Cost: that of the attack, asleep as well.
    """
    check_in(NOT_NEGATIVE, wake=wake)

    def asleep(
        key: PRNGKeyArray,
        messages: Stacked,
        byzantine: Bool[Array, " clients"],
        context: Context | None = None,
    ) -> Stacked:
        if context is None:
            raise ValueError("`context` must tell a sleeper the round, got None.")
        awake = jnp.asarray(context.round) >= wake
        return attack(key, messages, byzantine & awake, context)

    return asleep
