"""Messages that say nothing, too much, or no number at all."""

import math
from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.attacks.checks import check_finite, check_not_negative
from cfljax.attacks.scene import Attack, Scene, attack_from
from cfljax.kernels.checks import check_member
from cfljax.kernels.draws import flat_normal

__all__ = ["BitFlip", "bit_flip", "boosting", "noise", "not_finite", "zero"]

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
    check_not_negative(deviation=deviation)
    check_finite(mean=mean)

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
    check_finite(factor=factor)

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
