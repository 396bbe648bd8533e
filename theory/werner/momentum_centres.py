"""Lemma 14: how far Momentum-Clustering's centres are from the cluster's mean momentum.

As Theorem 1 it fails in two ways. From a member the centre may never move, and the
error is rho^2 however many clients there are. And the bias of clipping is of order
rho^3/(delta Delta), not rho^3/Delta.
"""

import functools

import numpy as np

from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.centre_paths import CONDITIONS, check_path
from theory.werner.hidden_constants import DECLARED, exactly, one_constant
from theory.werner.laws import Discrete, skew2, sym3, variance
from theory.werner.population_map import mixture, move
from theory.werner.theorem1_setting import LEAST_SEPARATION

__all__ = ["STATEMENTS", "check_lemma", "mean_error", "member_error"]

LEMMA = "werner.lem14"

_CONSTANT = 4.0  # C
_SHARE, _MEMBERS = 0.5, (50.0, 200.0, 800.0)  # delta; n and Delta
_SEPARATION = 24.0  # Delta delta/rho from the mean
_CLUSTERS = (2, 4, 8, 16, 32, 64, 128)  # K = 1/delta, where Delta = 24 rho K


def _num_rounds(share: float, separation: float) -> int:
    return int(np.ceil(np.log(1 / separation) / np.log(1 - share / 2)))


def _wide(separation: float) -> Discrete:
    """Atoms just more than tau apart, for tau^2 = C (rho^2 + delta rho Delta)."""
    return sym3(1.001 * np.sqrt(_CONSTANT * (1 + _SHARE * separation)), 1.0)


def member_error(separation: float) -> float:
    """E |v_l - m|^2 with delta = 1/2 from a member, sym3 noise just wider than tau."""
    share, square, noise = _SHARE, 1.0, _wide(separation)  # c_1^2 = rho^2
    means = np.array([0.0, separation])
    points = mixture([noise, noise], means, np.array([share, 1 - share]))
    centres = noise.values
    for _ in range(_num_rounds(share, separation)):
        radius = np.sqrt(_CONSTANT * (square + share * separation))
        centres = move(points, centres, radius)
        square = float(np.sum(noise.chances * centres**2))
    return square


def mean_error(num_clusters: int) -> float:
    """|v_l - m|^2 from v_0 = m, skew2 noise with its rare atom outside of the ball."""
    share, separation, square = 1 / num_clusters, _SEPARATION * num_clusters, 0.0
    noise = skew2(1.5 * np.sqrt(_CONSTANT * share * separation), 1.0)
    means = np.array([0.0, separation])
    points = mixture([noise, noise], means, np.array([share, 1 - share]))
    centres = np.zeros(1)
    for _ in range(_num_rounds(share, separation)):
        radius = np.sqrt(_CONSTANT * (square + share * separation))
        centres = move(points, centres, radius)
        square = float(centres[0] ** 2)
    return square


def check_lemma(preset: Preset, *, constant: float = DECLARED) -> Verdict:
    """E|v_l - m|^2 <= `constant` (rho^2/n + rho^3/Delta), without bad points."""
    del preset
    members, clusters = np.array(_MEMBERS), np.array(_CLUSTERS, float)
    separations = _SEPARATION * clusters
    stuck = np.array([member_error(one) for one in _MEMBERS])
    biased = np.array([mean_error(one) for one in _CLUSTERS])
    return one_constant(
        LEMMA,
        [
            exactly("from a member, n = Delta", members, stuck * members / 2),
            # n -> infinity
            exactly("from the mean, 1/delta", clusters, biased * separations),
        ],
        constant=constant,
    )


def _margins() -> tuple[Margin, ...]:
    """Of the counterexamples, rho = 1."""
    clusters = np.array(_CLUSTERS, float)
    from_mean = np.min(_SEPARATION * clusters / clusters)
    # v_0 is a member, whose law has the variance rho^2 up to rounding.
    start = max(round(variance(_wide(one)), 12) for one in _MEMBERS)
    return (
        Margin(
            "Theorem 4: Delta delta_i >= 24 rho, from a member",
            min(_MEMBERS) * _SHARE,
            LEAST_SEPARATION,
        ),
        Margin("the same, from the mean", float(from_mean), LEAST_SEPARATION),
        Margin("c_1^2 <= rho^2", start, 1.0, at_least=False),
    )


_row = functools.partial(Statement, paper="werner", place="Lemma 14")
_corrected = functools.partial(
    check_path, name=f"{LEMMA}.corrected", heterogeneous=False
)

STATEMENTS = (
    _row(
        id=LEMMA,
        text="E|v_l - mu_i|^2 <= C1 (rho^2/n_i + rho^3/Delta + beta_i rho Delta)",
        preconditions=(
            "mu_i = E_x of the mean momentum in the cluster of i",
            "Assumptions 6 to 9, Delta >= C_Delta rho/delta_i, beta_i = 0",
            "tau_l^2 = C (c_l^2 + delta_i rho Delta), c_1^2 <= rho^2",
            "l >= log(rho/Delta)/log(1 - delta_i/2)",
        ),
        constants={"C1": DECLARED, "C": _CONSTANT, "C_Delta": _SEPARATION},
        claimed="constants unnamed",
        expected=Status.VIOLATED,
        check=check_lemma,
        control=functools.partial(check_lemma, constant=32.0),
        note="From a member, as the proof starts, with points at 0 and +-1.001 tau the "
        "centre never moves. From the mean, with K clusters and n_i -> infinity, the "
        "ratio grows as K: the geometric series multiplies rho^3/Delta by 2/delta_i. "
        "The control allows twice as much and is violated, too.",
        margins=_margins,
    ),
    _row(
        id=f"{LEMMA}.corrected",
        text="|v_l - m| <= (1 - delta_i/2)^l |v_0 - m| + 4 rho^2/tau + 8 tau "
        "rho^2/(delta_i Delta^2) + 2 beta_i tau/delta_i, m the E_x of the cluster's "
        "mean momentum",
        preconditions=("Assumption 9", *CONDITIONS),
        check=_corrected,
        control=functools.partial(_corrected, bias=0.5),
        note="With tau^2 = 24 delta_i rho Delta, where it is at most Delta^2/9, it "
        "makes an error of order rho^3/(delta_i Delta) + beta_i^2 rho Delta/delta_i; "
        "for what finitely many points add see Theorem 1. A member need not be within "
        "tau/2. The control has half of rho^2/tau for 4.",
    ),
)
