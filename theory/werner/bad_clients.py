"""Lemmas 12 and 19: what bad points can do in one round, whatever they are."""

import functools
import itertools

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict

__all__ = ["STATEMENTS", "attacks", "check_lemma", "clipped"]

GRADIENTS, MOMENTA = "werner.lem12", "werner.lem19"

_ROUNDING = 1e-12  # relative to the bound; means of a few points


def clipped(
    points: Float[np.ndarray, "points features"],
    centre: Float[np.ndarray, " features"],
    radius: float,
) -> Float[np.ndarray, "points features"]:
    """y: the points in the ball, and the centre for those outside or not finite."""
    finite = np.all(np.isfinite(points), axis=1)
    apart = np.where(finite[:, None], points, 0) - centre[None]
    # On the edge is inside; placing a point there rounds.
    edge = radius * (1 + 1e-14)
    inside = finite & (np.linalg.norm(apart, axis=1) <= edge)
    return np.where(inside[:, None], apart, 0) + centre[None]


def attacks(
    generator: np.random.Generator,
    centre: Float[np.ndarray, " features"],
    radius: float,
) -> list[Float[np.ndarray, "points features"]]:
    """Sets of bad points that know the centre, the radius and the mean, which is 0."""
    length = np.linalg.norm(centre)
    away = centre / length if length > 0 else np.eye(1, len(centre))[0]
    random = generator.standard_normal((5, len(centre)))
    random /= np.linalg.norm(random, axis=1)[:, None]
    return [
        (centre + radius * away)[None],
        (centre - radius * away)[None],
        centre[None] + radius * random,
        centre[None] + radius * generator.uniform(0, 1.5, (5, 1)) * random,
        (centre + 1.001 * radius * away)[None],
        -5 * centre[None] - random,
        np.stack([np.full(len(centre), np.nan), np.full(len(centre), np.inf)]),
    ]


def check_lemma(
    preset: Preset, *, name: str, spreads: tuple[float, ...], factor: float = 2.0
) -> Verdict:
    """E |mean of y - m|^2 <= (`factor` + F C) c^2 + F C (A^4 G + delta rho Delta).

    Args:
      preset: number of random attacks.
      name: id of the row.
      spreads: values of A^4 G, in units of rho; only 0 for momenta.
      factor: F, 2 in the claim.
    """
    generator = preset.generator(name)
    grid = itertools.product(
        (1.0, 4.0, 24.0), (0.5, 1 / 16), (2.0, 128.0), spreads, (0.0, 1.0, 1e3)
    )
    repeats = preset.choose(quick=2, full=50)
    values, bounds = [], []
    for constant, share, margin, square, far in grid:
        # Two centres, as likely, at m + far and at m - far/2.
        centres = far * np.array([[1.0, 0, 0], [0, -0.5, 0]])
        distance = float(np.mean(np.sum(centres**2, axis=1)))
        edge = square + share * (margin / share)
        radius = float(np.sqrt(constant * (distance + edge)))
        for _ in range(repeats):
            each = [
                [
                    np.sum(np.mean(clipped(bad, one, radius), axis=0) ** 2)
                    for bad in sets
                ]
                for one in centres
                for sets in [attacks(generator, one, radius)]
            ]
            values += list(np.mean(each, axis=0))
            bound = factor * (1 + constant) * distance + factor * constant * edge
            bounds += [bound] * len(each[0])
    left, right = np.array(values), np.array(bounds)
    return never_exceeds(
        name,
        left,
        right,
        rounding=_ROUNDING * right,
        detail=f"{len(left)} attacks: left over right at most "
        f"{np.max(left / right):.3g}",
    )


_row = functools.partial(Statement, paper="werner")
_gradients = functools.partial(check_lemma, name=GRADIENTS, spreads=(0.0, 1.0, 1e4))
_momenta = functools.partial(check_lemma, name=MOMENTA, spreads=(0.0,))
_NOTE = (
    "For any bad points and each C, without further conditions; c^2 may come from a "
    "centre that is random. The control has C + 1 and C for 2 C + 2 and 2 C."
)

STATEMENTS = (
    _row(
        id=GRADIENTS,
        place="Lemma 12",
        text="E |y_B - grad F_i|^2 <= (2 C + 2) c^2 + 2 C "
        "(A^4 E|grad F_i|^2 + delta_i rho Delta)",
        preconditions=(
            "y_B = mean of y_j over the bad points",
            "F_i = mean of f_j over j ~ i",
            "tau^2 = C (c^2 + A^4 E|grad F_i|^2 + delta_i rho Delta)",
        ),
        constants={"C, least": 1.0, "C, largest": 24.0},
        claimed="constant unnamed",
        check=_gradients,
        control=functools.partial(_gradients, factor=1.0),
        note=_NOTE,
    ),
    _row(
        id=MOMENTA,
        place="Lemma 19",
        text="E |y_B - mu_i|^2 <= (2 C + 2) c^2 + 2 C delta_i rho Delta",
        preconditions=(
            "y_B = mean of y_j over the bad points",
            "mu_i = E_x of the mean momentum in the cluster of i",
            "tau^2 = C (c^2 + delta_i rho Delta)",
        ),
        constants={"C, least": 1.0, "C, largest": 24.0},
        claimed="constant unnamed",
        check=_momenta,
        control=functools.partial(_momenta, factor=1.0),
        note=_NOTE,
    ),
)
