"""Points at the edge of the ball that thresholding keeps (Werner et al., 3.1.1).

Threshold-Clustering replaces points farther than tau from a centre by that centre, so
a lie has most influence just inside of the ball: the paper's threat model.
"""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, ScalarLike

from cfljax.attacks.checks import check_not_negative
from cfljax.attacks.directions import Direction, unit_direction
from cfljax.attacks.scene import Attack, Scene, attack_from, one_point
from cfljax.kernels.checks import check_member

__all__ = ["edge_adaptive", "edge_static", "staged"]

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
      direction: of u, see `directions.Direction`.

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
      direction: of u, see `directions.Direction`.

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
      direction: of u, see `directions.Direction`.

    Returns:
      The attack (`scene.attack_from`). It raises a ValueError if no radius is known.

    Raises:
      ValueError: if a number is negative, or the direction is unknown.

    Cost: one pass over the messages, and that of the direction.
    """
    check_not_negative(radius=radius, fraction=fraction, spacing=spacing)
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
    check_not_negative(radius=radius, fraction=fraction)
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
