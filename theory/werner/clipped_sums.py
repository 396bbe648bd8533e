"""Lemmas 10 and 17: the variance of the sum of a cluster's clipped points.

Both say n rho^2, as Lemma 3 does: of independent points of which none varies more after
clipping than before. But the points share the centre v, and the gradients share the
model x; and clipping is a contraction only where tau >= 2 |v - m|.
"""

import functools
import itertools

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict, combine
from theory.werner.laws import Discrete, skew2, sym3, variance

__all__ = [
    "STATEMENTS",
    "check_conditional",
    "check_lemma",
    "conditional_variance",
    "member_start_variance",
]

GRADIENTS, MOMENTA = "werner.lem10", "werner.lem17"

_ROUNDING = 1e-12  # relative to the larger side; some hundred terms
_COUNTS = (2, 10, 50, 200, 800)  # n_i
_SHARE, _SEPARATION, _CONSTANT = 0.5, 96.0, 4.0  # delta_i, Delta in rho, C


def _radius() -> float:
    """tau of c^2 = rho^2 = 1, which is E|v - m|^2 where v is a member."""
    return float(np.sqrt(_CONSTANT * (1 + _SHARE * _SEPARATION)))


def _noise() -> Discrete:
    return sym3(1.001 * _radius(), 1.0)


def member_start_variance(
    noise: Discrete, radius: float, count: int, *, fresh: bool
) -> float:
    """E |sum_j (y_j - E y_j)|^2 where v is one of the cluster's points.

    By the law of total variance, given v; exact for every discrete law.

    Args:
      noise: of the points, mean 0.
      radius: tau.
      count: n_i.
      fresh: whether v comes from a batch of its own, rather than being one of the
        points that are summed.
    """
    apart = noise.values[None, :] - noise.values[:, None]  # from v to z
    kept = np.where(np.abs(apart) <= radius, apart, 0) + noise.values[:, None]
    mean = np.sum(noise.chances * kept, axis=1)  # of y given v
    spread = np.sum(noise.chances * (kept - mean[:, None]) ** 2, axis=1)
    others = count if fresh else count - 1
    total = others * mean + (0 if fresh else noise.values)
    middle = np.sum(noise.chances * total)
    given = np.sum(noise.chances * others * spread)
    return float(given + np.sum(noise.chances * (total - middle) ** 2))


def check_lemma(
    preset: Preset, *, name: str, common_model: bool = False, factor: float = 1.0
) -> Verdict:
    """E |sum_j (y_j - E y_j)|^2 <= `factor` n rho^2.

    Args:
      preset: unused: nothing is drawn.
      name: id of the row.
      common_model: whether to look at gradients at a random model, too, with a ball
        that holds everybody.
      factor: of the bound.
    """
    del preset
    counts = np.array(_COUNTS, float)
    cells = [(count, fresh) for fresh in (False, True) for count in _COUNTS]
    values = [
        member_start_variance(_noise(), _radius(), count, fresh=fresh)
        for count, fresh in cells
    ]
    bounds = np.tile(counts, 2)
    told = ", ".join(f"{one:.4g}" for one in values / bounds)
    detail = f"left over right at n = {_COUNTS}, with the same and with fresh points: "
    detail += told
    if common_model:
        # f(x) = x^2/2, eta = 1, v = the mean gradient: x_1 is the mean noise, and each
        # of the n gradients at x_1 is x_1 and noise of its own, tau = infinity.
        moved = counts**2 / counts + counts
        values, bounds = np.append(values, moved), np.append(bounds, counts)
        detail += (
            f"; on the path of a quadratic with eta = 1: {np.max(moved / counts):g}"
        )
    return never_exceeds(
        name,
        np.array(values),
        factor * bounds,
        rounding=_ROUNDING * np.array(values),
        detail=detail,
    )


def conditional_variance(
    points: list[Discrete], start: float, radius: float
) -> tuple[float, float]:
    """E |sum_j (y_j - E y_j)|^2 and sum_j E (z_j - E z_j)^2, given v, by enumeration.

    Args:
      points: law of each client's point, not centred.
      start: v.
      radius: tau.

    Cost: atoms to the power of clients.
    """
    everyone = np.array(list(itertools.product(*(one.values for one in points))))
    chances = np.array(list(itertools.product(*(one.chances for one in points))))
    chance = np.prod(chances, axis=1)
    kept = np.where(np.abs(everyone - start) <= radius, everyone, start)
    pairs = [(rows, chance @ rows) for rows in (kept, everyone)]
    sums, _ = (np.sum(rows - means[None], axis=1) for rows, means in pairs)
    middle = pairs[1][1]
    raw = np.sum(chance[:, None] * (everyone - middle[None]) ** 2)
    return float(np.sum(chance * sums**2)), float(raw)


def _laws() -> tuple[Discrete, ...]:
    """The counterexample's law and others; `close` refutes contraction the furthest."""
    close = Discrete(np.array([-0.05, 0.05]), np.array([0.5, 0.5]))
    return _noise(), skew2(3.0, 1.0), sym3(2.0, 1.0), close


def check_conditional(
    preset: Preset, *, name: str, spreads: tuple[float, ...], far_term: float = 1.0
) -> Verdict:
    """E[|sum_j (y_j - E[y_j|v])|^2 | v] <= n rho^2 + `far_term` sum_j |v - E z_j|^2.

    And without the second term wherever tau >= 2 |v - E z_j| for all j.

    Args:
      preset: number of centres.
      name: id of the row.
      spreads: distances of the clients' means from the cluster's.
      far_term: of the second term.
    """
    values, bounds, near, inside = [], [], [], []
    for law, spread in itertools.product(_laws(), spreads):
        means = spread * np.array([-1.0, 0.0, 1.0])
        points = [Discrete(law.values + mean, law.chances) for mean in means]
        size = float(np.max(np.abs(law.values)))
        # Close to the distance of an atom the two sides differ most.
        for start in np.linspace(-2, 2, preset.choose(quick=9, full=81)) * size:
            for radius in (0.4 * size, 0.999 * size, 1.999 * size, 5 * size):
                left, raw = conditional_variance(points, float(start), radius)
                values.append(left)
                bounds.append(raw + far_term * np.sum((start - means) ** 2))
                near.append(raw)
                inside.append(radius >= 2 * np.max(np.abs(start - means)))
    left, right = np.array(values), np.array(bounds)
    within, raw = np.array(inside), np.array(near)
    everywhere = never_exceeds(name, left, right, rounding=_ROUNDING * (1 + right))
    contracted = never_exceeds(
        name, left[within], raw[within], rounding=_ROUNDING * (1 + raw[within])
    )
    return combine(
        name,
        [everywhere, contracted],
        detail=f"{len(left)} centres and radii, three clients: left over n rho^2 is at "
        f"most {np.max(left / raw):.3g}, with tau >= 2 |v - E z_j| "
        f"{np.max((left / raw)[within]):.3g}, over the full bound "
        f"{np.max(left / right):.3g}",
    )


def _margins() -> tuple[Margin, ...]:
    """Of the counterexample."""
    size = 1.001 * _radius()
    return (
        Margin("Delta >= rho/delta_i", _SEPARATION, 1 / _SHARE),
        # v is a member, whose law has the variance rho^2 up to rounding.
        Margin(
            "E|v - m|^2 <= rho^2", round(variance(_noise()), 12), 1.0, at_least=False
        ),
        Margin("no stranger in the ball: Delta - s > s + tau", _SEPARATION, 3 * size),
    )


_row = functools.partial(Statement, paper="werner")
_RADIUS = "tau^2 = C (c^2 + A^4 G + delta_i rho Delta)"
_printed = functools.partial(
    _row,
    preconditions=(
        "Delta >= rho/delta_i",
        _RADIUS,
        "v_0 = a member's point, c^2 = rho^2",
    ),
    constants={"C": _CONSTANT, "A": 0.0},
    expected=Status.VIOLATED,
    margins=_margins,
)
_gradients = functools.partial(check_lemma, name=GRADIENTS, common_model=True)
_momenta = functools.partial(check_lemma, name=MOMENTA)
_WHY = (
    "Points 0 and +-s, s just above tau: a member's ball holds only its equals, so "
    "that all y_j = v, and the left-hand side is n^2 rho^2. Fresh points in each round "
    "do not help, as all of them are still replaced by one v. "
)
_CONTRACTION = (
    "That a clipped point varies no more than the point itself needs tau >= 2 |v - E "
    "z_j|. The control omits the second term elsewhere, too."
)
_fixed = functools.partial(
    check_conditional, name=f"{GRADIENTS}.corrected", spreads=(0.0, 0.5, 4.0)
)
_fixed_momenta = functools.partial(
    check_conditional, name=f"{MOMENTA}.corrected", spreads=(0.0,)
)

STATEMENTS = (
    _printed(
        id=GRADIENTS,
        place="Lemma 10",
        text="E |sum_{j~i} (y_j - E y_j)|^2 <= n_i rho^2",
        check=_gradients,
        control=functools.partial(_gradients, factor=4.0),
        note=_WHY + "Besides, E is over the path of x, too. The control has four "
        "times the bound.",
    ),
    _row(
        id=f"{GRADIENTS}.corrected",
        place="Lemma 10",
        text="given x and v, with points that are independent given them, E |sum_{j~i} "
        "(y_j - E y_j)|^2 <= n_i rho^2 + sum_{j~i} |v - grad f_j|^2, and <= n_i rho^2 "
        "if tau >= 2 |v - grad f_j| for all j",
        preconditions=("all expectations given x and v",),
        check=_fixed,
        control=functools.partial(_fixed, far_term=0.0),
        note=_CONTRACTION,
    ),
    _printed(
        id=MOMENTA,
        place="Lemma 17",
        text="E |sum_{j~i} (y_j - E y_j)|^2 <= n_i rho^2",
        check=_momenta,
        control=functools.partial(_momenta, factor=4.0),
        note=_WHY + "The control has four times the bound.",
    ),
    _row(
        id=f"{MOMENTA}.corrected",
        place="Lemma 17",
        text="given x and v, with points that are independent given them, E |sum_{j~i} "
        "(y_j - E y_j)|^2 <= n_i (rho^2 + |v - E m_i|^2), and <= n_i rho^2 if tau >= 2 "
        "|v - E m_i|",
        preconditions=("all expectations given x and v",),
        check=_fixed_momenta,
        control=functools.partial(_fixed_momenta, far_term=0.0),
        note=_CONTRACTION,
    ),
)
