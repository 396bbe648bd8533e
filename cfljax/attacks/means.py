"""Attacks made of the mean and spread of the target's honest messages.

m and s are mean and standard deviation in each coordinate over the honest clients of
the target (`scene.Scene`), o is the origin that messages start from.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike

from cfljax.attacks.checks import check_not_negative
from cfljax.attacks.directions import Direction, unit_direction
from cfljax.attacks.scene import Attack, Scene, attack_from, mean_of
from cfljax.kernels.checks import check_member
from cfljax.kernels.draws import flat_normal

__all__ = ["alie", "gaussian", "ipm", "mimic", "other_mean", "sign_flip"]

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
    check_not_negative(epsilon=epsilon)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, " features"]:
        del key
        return scene.origin - scene.number(epsilon) * (scene.mean - scene.origin)

    return attack_from(lie)


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
    check_not_negative(z=z)

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
    check_not_negative(scale=scale)

    def lie(key: PRNGKeyArray, scene: Scene) -> Float[Array, "clients features"]:
        draw = flat_normal(key, scene.points.shape).astype(scene.points.dtype)
        return scene.mean[None] + scene.number(scale) * scene.deviation[None] * draw

    return attack_from(lie)


def mimic(*, direction: Direction = "diagonal") -> Attack:
    """Copies of one honest client's message: the target's farthest along u.

    Nothing is odd about any single message; the copied client counts too often.

    Source: Karimireddy, He and Jaggi, "Byzantine-Robust Learning on Heterogeneous
    Datasets via Bucketing", ICLR 2022.

    Args:
      direction: of u, see `directions.Direction`.

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
    check_not_negative(other=other)

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
