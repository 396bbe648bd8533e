"""Equation (4), the rule of Threshold-Clustering, as the library computes it.

v_l is the mean over all N points of z_i where |z_i - v_(l-1)| <= tau and of v_(l-1)
where not. No distance here is near its radius unless it is just on it, so that rounding
cannot change who is in a ball.
"""

import functools

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cfljax.kernels.threshold import threshold_clustering
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict, combine

__all__ = ["STATEMENTS", "check_rule", "literal"]

RULE = "werner.eq4"

_ROUNDS, _EACH = 6, 20
_CLOUDS = np.array([[0.0, 0.0, 0.0], [10.0, 0.0, 0.0], [0.0, 20.0, 0.0]])
# Start and radius: two balls around a cloud, one that nobody is in, one that holds all,
# one of radius 0, one that holds two clouds, and one with a point just on its edge.
_STARTS = np.array(
    [
        [0.3, -0.2, 0.1],
        [9.0, 0.5, 0.0],
        [50.0, 0.0, 0.0],
        [3.0, 3.0, 3.0],
        [0.1, 0.2, 0.3],
        [4.0, 1.0, 0.0],
        [0.0, 0.0, -50.0],
    ]
)
_RADII = np.array([4.0, 4.0, 4.0, 1e4, 0.0, 13.0, 10.0])
_ON_EDGE = np.array([0.0, 0.0, -60.0])


def literal(
    points: Float[np.ndarray, "points features"],
    centre: Float[np.ndarray, " features"],
    radius: float,
    *,
    ball_only: bool = False,
) -> Float[np.ndarray, " features"]:
    """One round of (4), as printed, in float64.

    Args:
      points: z.
      centre: v.
      radius: tau.
      ball_only: whether to take the mean of the points in the ball instead, as mean
        shift does; the centre itself if there are none.
    """
    inside = np.linalg.norm(points - centre, axis=1) <= radius
    if ball_only:
        return points[inside].mean(axis=0) if np.any(inside) else centre
    return np.mean(np.where(inside[:, None], points, centre), axis=0)


def _paths(
    points: Float[np.ndarray, "points features"], *, ball_only: bool
) -> Float[np.ndarray, "rounds centres features"]:
    """Centres before the first round and after each, by `literal`."""
    path = [_STARTS]
    for _ in range(_ROUNDS):
        rows = zip(path[-1], _RADII, strict=True)
        path.append(
            np.stack(
                [
                    literal(points, centre, float(radius), ball_only=ball_only)
                    for centre, radius in rows
                ]
            )
        )
    return np.stack(path)


def _library(
    points: Float[np.ndarray, "points features"],
    starts: Float[np.ndarray, "centres features"],
    radii: Float[np.ndarray, " centres"],
) -> Float[np.ndarray, "centres features"]:
    found = threshold_clustering(
        jnp.asarray(points, jnp.float32),
        jnp.asarray(starts, jnp.float32),
        num_rounds=_ROUNDS,
        radius=jnp.asarray(radii, jnp.float32),
    )
    return np.asarray(found.centres, float)


@functools.cache  # compiled anew at each call, and the same for check and control
def _computed(
    preset: Preset,
) -> tuple[
    Float[np.ndarray, "points features"],
    Float[np.ndarray, "centres features"],
    Float[np.ndarray, "centres features"],
]:
    """Points, the library's centres, and those of the moved points, moved back."""
    noise = preset.generator(RULE).uniform(-0.5, 0.5, (3, _EACH, 3))
    points = np.concatenate([(_CLOUDS[:, None] + noise).reshape(-1, 3), [_ON_EDGE]])
    # What both sides see is in single precision.
    points = points.astype(np.float32).astype(float)
    found = _library(points, _STARTS, _RADII)
    # Other axes and signs, a shift by a whole number, the centres in reverse order.
    moved = _library(
        (points * [-1, 1, 1])[:, [1, 2, 0]] + 8,
        ((_STARTS * [-1, 1, 1])[:, [1, 2, 0]] + 8)[::-1],
        _RADII[::-1],
    )
    return points, found, (moved[::-1] - 8)[:, [2, 0, 1]] * [-1, 1, 1]


def check_rule(preset: Preset, *, ball_only: bool = False) -> Verdict:
    """The library's centres are those of (4), move with the points, ignore each other;
    no step is longer than tau times the share in the ball.

    Args:
      preset: holds the seed.
      ball_only: see `literal`.
    """
    points, found, back = _computed(preset)
    path = _paths(points, ball_only=ball_only)
    gaps = np.stack([np.abs(found - path[-1]), np.abs(found - back)])
    scale = 60.0 + 8.0
    rounding = _ROUNDS * (len(points) + 3) * np.finfo(np.float32).eps * scale
    parts = [
        never_exceeds(
            RULE,
            gaps.ravel(),
            np.zeros(gaps.size),
            rounding=float(rounding),
            detail="",
        )
    ]
    steps = np.linalg.norm(np.diff(path, axis=0), axis=-1)
    apart = np.linalg.norm(path[:-1, :, None] - points, axis=-1)
    shares = np.mean(apart <= _RADII[:, None], axis=-1)
    parts.append(
        never_exceeds(
            RULE, steps.ravel(), (_RADII * shares).ravel(), rounding=1e-12, detail=""
        )
    )
    return combine(
        RULE,
        parts,
        detail=f"{len(_RADII)} centres, {_ROUNDS} rounds, {len(points)} points: "
        f"largest gap to (4) {np.max(gaps[0]):.1e}, to the moved points' "
        f"{np.max(gaps[1]):.1e}",
    )


STATEMENTS = (
    Statement(
        id=RULE,
        preconditions=("finite points, a radius of 0 or more",),
        paper="werner",
        place="Equation (4), Algorithm 3",
        text="v_l = (1/N) sum of z_i 1{|z_i - v_(l-1)| <= tau} + v_(l-1) 1{|z_i - "
        "v_(l-1)| > tau}",
        check=check_rule,
        control=functools.partial(check_rule, ball_only=True),
        note="The library's kernel against the formula: balls with a cloud, with two, "
        "with all, with nobody, of radius 0, and with a point just on the edge. The "
        "control divides by the points in the ball, as mean shift does.",
    ),
)
