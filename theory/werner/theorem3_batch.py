"""Theorem 3's batches: |B| = V T, that is sqrt(V m) with T = m/|B| of the m samples.

Without malicious clients they buy the rate 1/T and not 1/sqrt(T), for which sqrt(V T)
samples do; and for large T even a client on its own stays below (3) with them, so that
the rate is no achievement of clustering. The last step of (18) lacks L F0.
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.judges import ERROR_RATE, never_exceeds, within
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict, combine
from theory.werner.descent_families import Level, check_family, family
from theory.werner.hidden_constants import exactly, one_constant
from theory.werner.one_client import Cluster, margins, mean_square

__all__ = [
    "STATEMENTS",
    "check_last_step",
    "check_last_step_corrected",
    "check_optimal",
    "check_rates",
    "check_remark_corrected",
]

BATCH, OPTIMAL = "werner.thm3.batch", "werner.thm3.optimal"
REMARK, EQUATION = "werner.thm3.remark4", "werner.eq18"

_ROUNDS = (1e4, 1e5, 1e6, 1e7, 1e8)
_ALONE, _ATTACKED = Cluster(), Cluster(bad=2)


def _levels(cluster: Cluster, power: float) -> tuple[Level, ...]:
    """|B| = (V T)^power, with the radius of the proof."""
    return tuple(
        Level(
            rounds,
            cluster._replace(batch=max(1.0, (cluster.printed * rounds) ** power)),
            start=1.0,
            rounds=rounds,
            by_batch=True,
        )
        for rounds in _ROUNDS
    )


def check_rates(
    preset: Preset,
    *,
    name: str,
    powers: tuple[tuple[Cluster, float], ...],
    exponent: float = -0.5,
) -> Verdict:
    """The mean square gradient falls like T^`exponent`, within 0.1.

    Args:
      preset: 6000 calls of Threshold-Clustering at each level, or 30,000.
      name: id of the row.
      powers: clusters, and p in |B| = (V T)^p.
      exponent: claimed.
    """
    trials = preset.choose(quick=6000, full=30_000)
    found = []
    for cluster, power in powers:
        levels = _levels(cluster, power)
        one = family(preset, name, "T", levels, lambda level: 1.0)
        ends = np.array(one.slope)[:, None]
        found.append(
            within(
                name,
                (ends[0], ends[1]),
                (np.array([exponent - 0.1]), np.array([exponent + 0.1])),
                num_trials=trials * len(levels),
                error_rate=ERROR_RATE,
                detail=f"beta = {cluster.beta:g}, |B| = (V T)^{power:g}: slope "
                f"{np.mean(ends):.3f}",
            )
        )
    return combine(name, found, detail="; ".join(one.detail for one in found))


def check_optimal(preset: Preset, *, prescribed: bool = True) -> Verdict:
    """Whether (3) says more than what a client reaches without the others.

    VACUOUS if stochastic gradient descent alone, with the same batches and as many
    rounds, stays below the right side of (3) everywhere.

    Args:
      preset: unused: both sides are known.
      prescribed: whether |B| = V T; else one sample.
    """
    del preset
    alone, bounds = [], []
    for size in (1.0, 4.0, 16.0):
        cluster = Cluster(
            good=int(24 * size), other=int(24 * size), separation=50 * size
        )
        for share in (1.0, 10.0, 100.0):
            rounds = share / cluster.printed**3
            batch = cluster.printed * rounds if prescribed else 1.0
            alone.append(mean_square(1.0, 0.5, 0.0, 1 / batch, rounds))
            bounds.append(np.sqrt(cluster.printed / rounds))
    values, bounds = np.array(alone), np.array(bounds)
    return never_exceeds(
        OPTIMAL,
        values,
        np.where(values <= bounds, np.inf, bounds),
        rounding=1e-12,
        detail=f"{len(values)} settings with T >= sigma^4/V^3: alone / (3) is "
        f"{np.min(values / bounds):.2g} to {np.max(values / bounds):.2g}",
    )


def check_remark_corrected(preset: Preset, *, power: float = 1.0) -> Verdict:
    """Without noise avg |grad f_i|^2 <= C L F0/T^`power`."""
    del preset
    rounds = np.array(_ROUNDS)
    squares = mean_square(1.0, 0.5, 0.0, 0.0, rounds)
    return one_constant(
        f"{REMARK}.corrected",
        [exactly("T", rounds, squares / (0.5 / rounds**power))],
    )


def _last_step(
    share: float,
) -> tuple[Float[np.ndarray, "3 levels"], Float[np.ndarray, "3 levels"]]:
    """Both sides of the end of (18) in three settings for sigma = 1 to 1e-4.

    Args:
      share: of the batch that has L F0 in it; 0 for the batch as printed.

    Returns:
      L F0/T + V/sqrt(|B|), and sqrt(V/T) as printed or L F0/T + sqrt(L F0 V/T).
    """
    initial, rounds, left, right = 0.5, 1e4, [], []
    for cluster in (Cluster(), Cluster(separation=500), Cluster(good=96)):
        for sigma in np.logspace(0, -4, 5):
            variance = cluster._replace(sigma=float(sigma)).printed
            wanted = variance * rounds * (share / initial if share else 1.0)
            batch = wanted if share else max(1.0, wanted)
            rest = np.sqrt((initial if share else 1.0) * variance / rounds)
            left.append(initial / rounds + variance / np.sqrt(batch))
            right.append(rest + (initial / rounds if share else 0.0))
    shape = (3, 5)
    return np.array(left).reshape(shape), np.array(right).reshape(shape)


def check_last_step(preset: Preset, *, relief: float = 0.0) -> Verdict:
    """L F0/T + V/sqrt(|B|) <= C sqrt(V/T) for |B| = max(1, V T)."""
    del preset
    left, right = _last_step(0.0)
    levels = np.logspace(0, 4, 5)
    families = [
        exactly("1/sigma", levels, one / two)
        for one, two in zip(left, right, strict=True)
    ]
    return one_constant(EQUATION, families, constant=float("inf"), relief=relief)


def check_last_step_corrected(preset: Preset, *, share: float = 1.0) -> Verdict:
    """L F0/T + V/sqrt(|B|) <= L F0/T + sqrt(L F0 V/T) for |B| = `share` V T/(L F0)."""
    del preset
    left, right = _last_step(share)
    return never_exceeds(
        f"{EQUATION}.corrected",
        left.ravel(),
        right.ravel(),
        rounding=1e-14,
        detail="three settings, sigma = 1 to 1e-4, T = 10,000",
    )


def _by_rounds(level: Level) -> float:
    return level.initial / level.rounds


_row = functools.partial(Statement, paper="werner")
_BASIC = (
    "A = D = 0: the losses of the cluster are L x^2/2, the others Delta steeper",
    "Delta >= 24 sigma/delta, beta = 0 or delta/12, tau^2 = delta rho Delta",
    "eta = 1/(2 L), l as in Theorem 3",
)
_FULL = tuple(
    Level(rounds, Cluster(batch=16), start=1.0, rounds=rounds)
    for rounds in (1e3, 1e4, 1e5, 1e6, 1e7)
)
_printed = functools.partial(check_rates, name=BATCH, powers=((_ALONE, 1.0),))
_enough = functools.partial(check_rates, name=f"{BATCH}.corrected")
_remark = functools.partial(
    check_family,
    name=REMARK,
    parameter="T",
    levels=_FULL,
    bound=_by_rounds,
    constant=float("inf"),
)
_margins = functools.partial(margins, _ALONE, _ATTACKED)

STATEMENTS = (
    _row(
        id=BATCH,
        place="Theorem 3, |B_i|; (18)",
        text="1/sqrt(T) is the rate at batches |B| = V T, V = sigma^2/n + "
        "sigma^3/Delta + beta sigma Delta",
        preconditions=_BASIC,
        constants={"margin": 0.1},
        claimed="|B| >~ sqrt(V m), T = m/|B|",
        expected=Status.VIOLATED,
        check=_printed,
        control=functools.partial(_printed, exponent=-0.25),
        margins=functools.partial(margins, _ALONE),
        note="Without malicious clients it is 1/T. sqrt(V m) has the units of a "
        "gradient, too. The control claims T^(-1/4).",
    ),
    _row(
        id=f"{BATCH}.corrected",
        place="Theorem 3, |B_i|; (18)",
        text="1/sqrt(T) is the rate at |B| = sqrt(V T) if beta = 0, and at |B| = V T "
        "if beta > 0",
        preconditions=_BASIC,
        constants={"margin": 0.1},
        check=functools.partial(_enough, powers=((_ALONE, 0.5), (_ATTACKED, 1.0))),
        control=functools.partial(_enough, powers=((_ALONE, 0.5), (_ATTACKED, 0.5))),
        margins=_margins,
        note="Up to units: V T/(L F0) for V T. The control has |B| = sqrt(V T) for "
        "beta > 0.",
    ),
    _row(
        id=OPTIMAL,
        place="Remark 1 on Theorem 3",
        text="the rate 1/sqrt(T) of (3) is optimal in T",
        preconditions=("|B| = V T", "T >= sigma^4/V^3", "G_0 = sigma, eta = 1/(2 L)"),
        expected=Status.VACUOUS,
        check=check_optimal,
        control=functools.partial(check_optimal, prescribed=False),
        note="With batches that grow like T a client on its own reaches 1/T. In "
        "samples, m = |B| T, (3) is m^(-1/4). The control has |B| = 1, where the rate "
        "would mean something.",
    ),
    _row(
        id=REMARK,
        place="Remark 4 on Theorem 3",
        text="with |B| = m: avg E|grad f_i|^2 <~ L F0/T",
        preconditions=("batches as in Lemma 6, drawn independently", *_BASIC),
        claimed="one unnamed constant",
        expected=Status.VIOLATED,
        check=_remark,
        control=functools.partial(_remark, relief=0.25),
        margins=functools.partial(margins, _ALONE),
        note="By Lemma 6 the variance is sigma^2/m, not 0; and T = m/|B| is 1 then. "
        "The control allows T^(1/4) more.",
    ),
    _row(
        id=f"{REMARK}.corrected",
        place="Remark 4 on Theorem 3",
        text="with |B| = m, drawn without replacement: avg E|grad f_i|^2 <= C L F0/T",
        preconditions=_BASIC,
        constants={"C": 16.0},
        check=check_remark_corrected,
        control=functools.partial(check_remark_corrected, power=2.0),
        note="All data in every round are no longer noise. The control has L F0/T^2.",
    ),
    _row(
        id=EQUATION,
        place="(18)",
        text="L F0/T + V/sqrt(|B|) <~ sqrt(V/T) for |B| >~ V T",
        preconditions=("|B| = max(1, V T)", "T = 10,000, L F0 = 1/2"),
        claimed="one unnamed constant",
        expected=Status.VIOLATED,
        check=check_last_step,
        control=functools.partial(check_last_step, relief=0.25),
        note="Needs T >= (L F0)^2/V, which small sigma violates. The control allows "
        "sigma^(-1/4) more.",
    ),
    _row(
        id=f"{EQUATION}.corrected",
        place="(18)",
        text="L F0/T + V/sqrt(|B|) <= L F0/T + sqrt(L F0 V/T) for |B| >= V T/(L F0)",
        preconditions=("|B| >= 1",),
        constants={"C": 1.0},
        check=check_last_step_corrected,
        control=functools.partial(check_last_step_corrected, share=0.9),
        note="The control has 0.9 of the batch.",
    ),
)
