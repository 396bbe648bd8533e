"""Lemmas 8 and 15: the mean of all good points after a round of clipping.

As proved both are about E over the path of the model, too, and need a step that is
false. Given x and v, with v at most tau/2 from the cluster's mean, they are true with
the coefficient 1 - delta/2, which is all that the recursion needs.
"""

import functools

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Verdict
from theory.werner import path_variance
from theory.werner.hard_rounds import draw_rounds

__all__ = ["STATEMENTS", "check_round"]

GRADIENTS, MOMENTA = "werner.lem8", "werner.lem15"

_ROUNDING = 1e-12  # relative to the bound; eight atoms


def check_round(
    preset: Preset, *, name: str, heterogeneous: bool, slope: float = 0.5
) -> Verdict:
    """E |mean y - m|^2 <= (1 - `slope` delta) e^2 + the terms of bias and variance.

    Exact for each round: the points are independent given v, so that the left-hand side
    is the square of the mean and the variances over the number of points.

    Args:
      preset: number of rounds.
      name: id of the row.
      heterogeneous: whether the cluster's clients have means of their own.
      slope: 1/2 in the claim.
    """
    count = preset.choose(quick=5000, full=500_000)
    rounds = draw_rounds(preset.generator(name), count, heterogeneous=heterogeneous)
    members = preset.generator(name, 1).integers(1, 1000, count)  # n_i
    share, radius, apart = rounds.shares, rounds.radius, rounds.separation
    start = rounds.starts[:, None]
    moments = []
    for places, chances in (
        (rounds.members, rounds.member_chances),
        (rounds.strangers, rounds.stranger_chances),
    ):
        kept = np.where(np.abs(places - start) <= radius[:, None], places, start)
        mean = np.sum(chances * kept, axis=1)
        spread = np.sum(chances * (kept - mean[:, None]) ** 2, axis=1)
        moments.append((mean, spread))
    (mine, own), (others, foreign) = moments
    # The clients' own means differ: pooled, their variance is no less than theirs.
    left = (share * mine + (1 - share) * others) ** 2
    left += share / members * (share * own + (1 - share) * foreign)
    square = rounds.spread
    right = (1 - slope * share) * rounds.starts**2
    right += 24 * share * square**2 / radius**2
    right += 96 * radius**2 / (share * apart**4)
    right += square / members * (share**2 + 4 * share * radius**2 / apart**2)
    return never_exceeds(
        name,
        left,
        right,
        rounding=_ROUNDING * right,
        detail=f"{count} rounds, K = 2 to 64: left over right at most "
        f"{np.max(left / right):.3g}",
    )


_CONDITIONS = (
    "y_G = mean of y_j over all good points, delta_i = n_i/|G_i|",
    "x and v are given, the points independent given them",
    "|v - m| <= tau/2, 24 s^2 <= tau^2, tau <= Delta/3, delta_i Delta^2 >= 48 rho^2",
)
_corrected = functools.partial(Statement, paper="werner", preconditions=_CONDITIONS)
_gradients = functools.partial(
    check_round, name=f"{GRADIENTS}.corrected", heterogeneous=True
)
_momenta = functools.partial(
    check_round, name=f"{MOMENTA}.corrected", heterogeneous=False
)
_FALSE = (
    "The law of total variance bounds the variance of g given x, not over x: noise "
    "decides between paths that lie far apart. Nothing of it is left if all is "
    "conditioned on x. The control has C = 64."
)

STATEMENTS = (
    path_variance.row(
        GRADIENTS,
        place="Lemma 8, step (iv) of the proof",
        text="E |E_x g_j(x_{i,t-1}) - E g_j(x_{i,t-1})|^2 <= C rho^2",
        alpha=1.0,
        note=_FALSE,
    ),
    _corrected(
        id=f"{GRADIENTS}.corrected",
        place="Lemma 8",
        text="E |y_G - m|^2 <= (1 - delta_i/2) |v - m|^2 + 24 delta_i s^4/tau^2 + 96 "
        "tau^2 rho^4/(delta_i Delta^4) + (s^2/n_i) (delta_i^2 + 4 delta_i "
        "tau^2/Delta^2), m = grad F_i(x), F_i the mean of the cluster's f_j, s^2 = "
        "rho^2 + A^2 |m|^2",
        check=_gradients,
        control=functools.partial(_gradients, slope=2.0),
        note="With tau^2 = C (A^2 |m|^2 + delta_i rho Delta), C >= 24, the second term "
        "is at most (48/C) (delta_i A^2 |m|^2 + rho^3/Delta), as printed. The control "
        "has 1 - 2 delta_i.",
    ),
    path_variance.row(
        MOMENTA,
        place="Lemma 15, step (iv) of the proof",
        text="E |E_x m_{j,t} - E m_{j,t}|^2 <= C rho^2",
        alpha=0.5,
        note=_FALSE,
    ),
    _corrected(
        id=f"{MOMENTA}.corrected",
        place="Lemma 15",
        text="E |y_G - m|^2 <= (1 - delta_i/2) |v - m|^2 + 24 delta_i rho^4/tau^2 + 96 "
        "tau^2 rho^4/(delta_i Delta^4) + (rho^2/n_i) (delta_i^2 + 4 delta_i "
        "tau^2/Delta^2), m the E_x of the cluster's mean momentum",
        check=_momenta,
        control=functools.partial(_momenta, slope=2.0),
        note="With tau^2 = C delta_i rho Delta the second term is (24/C) rho^3/Delta, "
        "as printed. The control has 1 - 2 delta_i.",
    ),
)
