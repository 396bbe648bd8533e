"""The proof of Theorem 3: equations (14) to (18), its batches, and Lemma 6."""

import functools
import itertools
from typing import Any

import numpy as np
from jaxtyping import Float

from cfljax.statements import (
    Preset,
    Statement,
    Status,
    Verdict,
    combine,
    never_exceeds,
    within,
)
from theory.rows import listed, row
from theory.werner.common.claims import DECLARED, exactly, no_constant, one_constant
from theory.werner.common.one_client import (
    Cluster,
    Level,
    check_family,
    family,
    margins,
    mean_square,
)

_LEVELS = np.array([1e2, 1e3, 1e4, 1e5, 1e6])


def _instances(
    preset: Preset, *, tight: bool
) -> tuple[Float[np.ndarray, "2 cases"], Float[np.ndarray, "2 cases"]]:
    """f_i(x - eta v) - f_i(x), twice, and the right sides of (14), with the gradient's
    error and with Young's bound, of quadratics in R^3; both are attained if `tight`."""
    cases = preset.choose(quick=500, full=20_000)
    generator = preset.generator("werner.eq14", int(tight))
    smoothness = generator.uniform(0.5, 2, cases)
    step = generator.uniform(0.01, 1, cases) / smoothness
    ours, mean, centre = generator.standard_normal((3, cases, 3))
    curvature = generator.uniform(-1, 1, (cases, 3)) * smoothness[:, None]
    if tight:
        curvature = np.repeat(smoothness[:, None], 3, axis=1)
        centre = 2 * mean - ours
    change = np.sum(
        -step[:, None] * ours * centre + curvature / 2 * (step[:, None] * centre) ** 2,
        axis=1,
    )

    def square(vector: Float[np.ndarray, "cases 3"]) -> Float[np.ndarray, " cases"]:
        return np.sum(vector**2, axis=1)

    # A^2 |grad fbar|^2 is |grad fbar - grad f_i|^2 for the least A at this place.
    rest = -square(ours) / 2 - (1 - smoothness * step) / 2 * square(centre)
    exact = square(centre - ours) / 2 + rest
    young = square(centre - mean) + square(mean - ours) + rest
    return np.stack([change, change]), step * np.stack([exact, young])


def check_step(preset: Preset, name: str, *, shift: float = 0.0) -> Verdict:
    """f_i(x - eta v) is at most what both lines of (14), or (21), say, less `shift`
    times both."""
    found = []
    for tight in (False, True):
        left, right = _instances(preset, tight=tight)
        size = np.abs(left) + np.abs(right)
        values, bounds = left.ravel(), (right - shift * size).ravel()
        found.append(
            never_exceeds(
                name,
                values,
                bounds,
                rounding=64 * np.finfo(float).eps * (1 + float(np.max(size))),
                detail=f"{values.size} quadratics in R^3, tight: {tight}",
            )
        )
    return combine(name, found)


def check_absorbed(
    _: Preset,
    name: str,
    *,
    equation: int,
    share: float,
    similarities: tuple[float, ...],
    kept: bool = False,
    **judged: Any,
) -> Verdict:
    """(15), (16) or (17) divided by eta, for centres v = (1 - sqrt(share)) grad fbar.

    Losses fbar = x^2/2 and f_i = (1 + A) x^2/2 on the line, eta = 1/(2 L), no noise and
    one cluster. (15) keeps the term `share` avg|grad fbar|^2 if `kept`.
    """
    families = []
    for similarity in similarities:
        step = 0.5 / (1 + similarity)
        rate = (1 - step * (1 - np.sqrt(share))) ** 2
        times = _LEVELS if rate == 1 else (1 - rate**_LEVELS) / (1 - rate)
        mean = times / _LEVELS  # avg|grad fbar|^2 from x_0 = 1
        start = 0.5 / (step * _LEVELS)  # Fbar0/(eta T)
        ours = (1 + similarity) * start
        left, right = {
            15: ((1 + similarity) ** 2 * mean, ours + similarity**2 * mean),
            16: (mean, start),
            17: ((1 + similarity) ** 2 * mean, ours + similarity**2 * start),
        }[equation]
        right = right + share * mean * kept
        families.append(exactly(f"A = {similarity:g}, T", _LEVELS, left / right))
    return one_constant(name, families, **judged)


_NOISELESS = "no noise, no other cluster: delta = 1, V = 0"
_PLACE = "Proof of Theorem 3"


def _pair(
    equation: int, *, text: str, better: str, share: float, note: str
) -> tuple[Statement, Statement]:
    """The printed row of an equation, and the corrected one."""
    check = functools.partial(check_absorbed, equation=equation)
    return (
        no_constant(
            id=f"werner.eq{equation}",
            place=_PLACE,
            text=text,
            preconditions=("Lemma 7 with an unnamed constant", "A = 0", _NOISELESS),
            check=functools.partial(check, share=1.0, similarities=(0.0,)),
            note="v = 0 satisfies Lemma 7 with constant 1 and moves nothing. The "
            "control allows T^(1/4) more.",
        ),
        row(
            id=f"werner.eq{equation}.corrected",
            place=_PLACE,
            text=better,
            preconditions=("A = 0, 0.5, 1 and 2", _NOISELESS),
            constants={"C": DECLARED},
            check=functools.partial(
                check, similarities=(0.0, 0.5, 1.0, 2.0), share=share, kept=share == 1
            ),
            control={"share": 1.0, "kept": False},
            note=note,
        ),
    )


_SMALL = "if avg|v - grad fbar|^2 <= avg|grad fbar|^2/4 + E: "

_ABSORPTION = (
    row(
        id="werner.eq14",
        place=_PLACE,
        text="f_i(x - eta v) <= f_i(x) + eta |v - grad fbar|^2 + eta A^2 |grad fbar|^2 "
        "- eta/2 |grad f_i|^2 - eta/2 (1 - L eta) |v|^2",
        preconditions=("f_i is L-smooth, eta <= 1/L", "A as in Assumption 4 at x"),
        constants={"C": 1.0},
        check=check_step,
        control={"shift": 0.01},
        note="Also the line before it, with |v - grad f_i|^2/2 for two terms. Tight "
        "for curvature L. The control takes off a hundredth.",
    ),
    *_pair(
        15,
        text="Lemma 7 and (14) give avg|grad f_i|^2 <~ F0/(eta T) + A^2 avg|grad "
        "fbar|^2 + V",
        better="avg|grad f_i|^2 <= C (F0/(eta T) + (A^2 + kappa) avg|grad fbar|^2 + E) "
        "if avg|v - grad fbar|^2 <= kappa avg|grad fbar|^2 + E",
        share=1.0,
        note="kappa = 1; what A^2 covers for A > 0 is not covered for A = 0. The "
        "control leaves the term out.",
    ),
    *_pair(
        16,
        text="Lemma 7 gives avg|grad fbar|^2 <~ Fbar0/(eta T) + V",
        better=_SMALL + "avg|grad fbar|^2 <= C (Fbar0/(eta T) + E)",
        share=0.25,
        note="The control has avg|grad fbar|^2 for a quarter of it.",
    ),
    *_pair(
        17,
        text="Lemma 7 gives avg|grad f_i|^2 <~ (F0 + A^2 Fbar0)/(eta T) + max(1, A^2) "
        "V",
        better=_SMALL
        + "avg|grad f_i|^2 <= C ((F0 + A^2 Fbar0)/(eta T) + max(1, A^2) E)",
        share=0.25,
        note="The control has avg|grad fbar|^2 for a quarter of it.",
    ),
)


_ROUNDS = (1e4, 1e5, 1e6, 1e7, 1e8)
_ALONE, _ATTACKED = Cluster(), Cluster(bad=2)


def _levels(cluster: Cluster, power: float) -> tuple[Level, ...]:
    """|B| = (V T)^power, with the radius of the proof."""
    batches = [max(1.0, (cluster.printed * rounds) ** power) for rounds in _ROUNDS]
    return tuple(
        Level(rounds, cluster._replace(batch=batch), 1.0, rounds=rounds, by_batch=True)
        for rounds, batch in zip(_ROUNDS, batches, strict=True)
    )


def check_rates(
    preset: Preset,
    name: str,
    *,
    powers: tuple[tuple[Cluster, float], ...],
    exponent: float = -0.5,
) -> Verdict:
    """The mean square gradient falls like T^`exponent`, within 0.1, for the clusters
    and p of `powers`, |B| = (V T)^p."""
    trials, found = preset.choose(quick=6000, full=30_000), []
    for cluster, power in powers:
        levels = _levels(cluster, power)
        one = family(preset, name, "T", levels, lambda level: 1.0)
        found.append(
            within(
                name,
                one.slope,
                (exponent - 0.1, exponent + 0.1),
                num_trials=trials * len(levels),
                detail=f"beta = {cluster.beta:g}, |B| = (V T)^{power:g}: slope "
                f"{np.mean(one.slope):.3f}",
            )
        )
    return combine(name, found, detail="; ".join(one.detail for one in found))


def check_optimal(_: Preset, name: str, *, prescribed: bool = True) -> Verdict:
    """Whether (3) says more than what a client reaches without the others: VACUOUS if
    descent alone, with the same batches, |B| = V T or 1 unless `prescribed`, and as
    many rounds, stays below its right side everywhere."""
    alone, bounds = [], []
    for size in (1, 4, 16):
        cluster = Cluster(24 * size, 24 * size, separation=50.0 * size)
        for share in (1.0, 10.0, 100.0):
            rounds = share / cluster.printed**3
            batch = cluster.printed * rounds if prescribed else 1.0
            alone.append(mean_square(1.0, 0.5, 0.0, 1 / batch, rounds))
            bounds.append(np.sqrt(cluster.printed / rounds))
    values, bounds = np.array(alone), np.array(bounds)
    return never_exceeds(
        name,
        values,
        np.where(values <= bounds, np.inf, bounds),
        rounding=1e-12,
        detail=f"{len(values)} settings with T >= sigma^4/V^3: alone / (3) is "
        f"{np.min(values / bounds):.2g} to {np.max(values / bounds):.2g}",
    )


def check_remark_corrected(_: Preset, name: str, *, power: float = 1.0) -> Verdict:
    """Without noise avg |grad f_i|^2 <= C L F0/T^`power`."""
    rounds = np.array(_ROUNDS)
    squares = mean_square(1.0, 0.5, 0.0, 0.0, rounds)
    return one_constant(name, [exactly("T", rounds, squares / (0.5 / rounds**power))])


def _last_step(
    share: float,
) -> tuple[Float[np.ndarray, "3 levels"], Float[np.ndarray, "3 levels"]]:
    """Both sides of the end of (18) in three settings for sigma = 1 to 1e-4: as printed
    for `share` 0, or with `share` of the batch that has L F0 in it."""
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


def check_last_step(_: Preset, name: str, **judged: Any) -> Verdict:
    """L F0/T + V/sqrt(|B|) <= C sqrt(V/T) for |B| = max(1, V T)."""
    left, right = _last_step(0.0)
    levels = np.logspace(0, 4, 5)
    families = [exactly("1/sigma", levels, ratios) for ratios in left / right]
    return one_constant(name, families, **judged)


def check_last_step_corrected(_: Preset, name: str, *, share: float = 1.0) -> Verdict:
    """L F0/T + V/sqrt(|B|) <= L F0/T + sqrt(L F0 V/T) for |B| = `share` V T/(L F0)."""
    left, right = _last_step(share)
    detail = "three settings, sigma = 1 to 1e-4, T = 10,000"
    return never_exceeds(name, left, right, rounding=1e-14, detail=detail)


_BASIC = (
    "A = D = 0: the losses of the cluster are L x^2/2, the others Delta steeper",
    "Delta >= 24 sigma/delta, beta = 0 or delta/12, tau^2 = delta rho Delta",
    "eta = 1/(2 L), l as in Theorem 3",
)
_batch = functools.partial(
    row, place="Theorem 3, |B_i|; (18)", preconditions=_BASIC, constants={"margin": 0.1}
)

_BATCHES = (
    _batch(
        id="werner.thm3.batch",
        text="1/sqrt(T) is the rate at batches |B| = V T, V = sigma^2/n + "
        "sigma^3/Delta + beta sigma Delta",
        claimed="|B| >~ sqrt(V m), T = m/|B|",
        expected=Status.VIOLATED,
        check=functools.partial(check_rates, powers=((_ALONE, 1.0),)),
        control={"exponent": -0.25},
        margins=functools.partial(margins, _ALONE),
        note="Without malicious clients it is 1/T. sqrt(V m) has the units of a "
        "gradient, too. The control claims T^(-1/4).",
    ),
    _batch(
        id="werner.thm3.batch.corrected",
        text="1/sqrt(T) is the rate at |B| = sqrt(V T) if beta = 0, and at |B| = V T "
        "if beta > 0",
        check=functools.partial(check_rates, powers=((_ALONE, 0.5), (_ATTACKED, 1.0))),
        control={"powers": ((_ALONE, 0.5), (_ATTACKED, 0.5))},
        margins=functools.partial(margins, _ALONE, _ATTACKED),
        note="Up to units: V T/(L F0) for V T. The control has |B| = sqrt(V T) for "
        "beta > 0.",
    ),
    row(
        id="werner.thm3.optimal",
        place="Remark 1 on Theorem 3",
        text="the rate 1/sqrt(T) of (3) is optimal in T",
        preconditions=("|B| = V T", "T >= sigma^4/V^3", "G_0 = sigma, eta = 1/(2 L)"),
        expected=Status.VACUOUS,
        check=check_optimal,
        control={"prescribed": False},
        note="With batches that grow like T a client on its own reaches 1/T. In "
        "samples, m = |B| T, (3) is m^(-1/4). The control has |B| = 1, where the rate "
        "would mean something.",
    ),
    no_constant(
        id="werner.thm3.remark4",
        place="Remark 4 on Theorem 3",
        text="with |B| = m: avg E|grad f_i|^2 <~ L F0/T",
        preconditions=("batches as in Lemma 6, drawn independently", *_BASIC),
        claimed="one unnamed constant",
        check=functools.partial(
            check_family,
            parameter="T",
            levels=tuple(
                Level(rounds, Cluster(batch=16), start=1.0, rounds=rounds)
                for rounds in (1e3, 1e4, 1e5, 1e6, 1e7)
            ),
            bound=lambda level: level.initial / level.rounds,
        ),
        margins=functools.partial(margins, _ALONE),
        note="By Lemma 6 the variance is sigma^2/m, not 0; and T = m/|B| is 1 then. "
        "The control allows T^(1/4) more.",
    ),
    row(
        id="werner.thm3.remark4.corrected",
        place="Remark 4 on Theorem 3",
        text="with |B| = m, drawn without replacement: avg E|grad f_i|^2 <= C L F0/T",
        preconditions=_BASIC,
        constants={"C": 16.0},
        check=check_remark_corrected,
        control={"power": 2.0},
        note="All data in every round are no longer noise. The control has L F0/T^2.",
    ),
    no_constant(
        id="werner.eq18",
        place="(18)",
        text="L F0/T + V/sqrt(|B|) <~ sqrt(V/T) for |B| >~ V T",
        preconditions=("|B| = max(1, V T)", "T = 10,000, L F0 = 1/2"),
        claimed="one unnamed constant",
        check=check_last_step,
        note="Needs T >= (L F0)^2/V, which small sigma violates. The control allows "
        "sigma^(-1/4) more.",
    ),
    row(
        id="werner.eq18.corrected",
        place="(18)",
        text="L F0/T + V/sqrt(|B|) <= L F0/T + sqrt(L F0 V/T) for |B| >= V T/(L F0)",
        preconditions=("|B| >= 1",),
        constants={"C": 1.0},
        check=check_last_step_corrected,
        control={"share": 0.9},
        note="The control has 0.9 of the batch.",
    ),
)


_ROUNDING = 1e-13  # of sums of at most 4^6 terms of order 1


def batch_variance(
    gradients: Float[np.ndarray, "samples features"], size: int, *, replaced: bool
) -> float:
    """E |g_B - E g_B|^2 over all batches of `size`, by enumeration: m^|B| of them, or m
    over |B| unless a sample may be drawn twice."""
    everyone = range(len(gradients))
    if replaced:
        batches = list(itertools.product(everyone, repeat=size))
    else:
        batches = list(itertools.combinations(everyone, size))
    means = np.mean(gradients[np.array(batches)], axis=1)
    middle = np.mean(gradients, axis=0)
    return float(np.mean(np.sum((means - middle[None]) ** 2, axis=1)))


def _data(preset: Preset) -> tuple[Float[np.ndarray, "samples features"], float]:
    """Gradients of single samples, and their total variance sigma^2."""
    num_samples = preset.choose(quick=4, full=6)
    gradients = preset.generator("werner.lem6").standard_normal((num_samples, 2))
    # One sample unlike all others, as data sets have them.
    gradients[0] *= 10
    return gradients, float(np.sum(np.var(gradients, axis=0)))


def check_replaced(preset: Preset, name: str, *, copies: int = 1) -> Verdict:
    """E |g_B - E g_B|^2 <= sigma^2/|B|, and not less, with independent samples; a batch
    of `copies` of each drawn sample is not independent."""
    gradients, single = _data(preset)
    draws = np.arange(1, 6)
    values = [batch_variance(gradients, int(one), replaced=True) for one in draws]
    bounds = single / (draws * copies)
    detail = (
        f"{len(gradients)} samples, |B| = 1 to {draws[-1] * copies}: variance "
        f"over sigma^2/|B| is {np.min(values / bounds):.6g} to "
        f"{np.max(values / bounds):.6g}"
    )
    return never_exceeds(
        name, np.array(values), bounds, rounding=_ROUNDING * single, detail=detail
    )


def check_once(preset: Preset, name: str, *, corrected: bool = True) -> Verdict:
    """Without replacement it is (m - |B|)/(m - 1) sigma^2/|B| exactly; or without that
    factor unless `corrected`."""
    gradients, single = _data(preset)
    total = len(gradients)
    sizes = np.arange(1, total + 1)
    values = [batch_variance(gradients, int(one), replaced=False) for one in sizes]
    factor = (total - sizes) / (total - 1) if corrected else np.ones(total)
    return never_exceeds(
        name,
        np.abs(np.array(values) - factor * single / sizes),
        0.0,
        rounding=_ROUNDING * single,
        detail=f"all {total} batch sizes: |B| times the variance over sigma^2 is "
        + listed(sizes * values / single, ".3g"),
    )


_lemma_6 = functools.partial(row, place="Lemma 6")

_LEMMA_6 = (
    _lemma_6(
        id="werner.lem6",
        text="E_x |g_i(x) - E_x g_i(x)|^2 <= sigma^2/|B| for the mean of a batch B",
        preconditions=("independent samples, drawn with replacement",),
        check=check_replaced,
        control={"copies": 2},
        note="With equality, where sigma^2 is the variance of a single sample. In the "
        "control each sample is in the batch twice.",
    ),
    _lemma_6(
        id="werner.lem6.once",
        text="drawn without replacement from m samples E_x |g_i(x) - E_x g_i(x)|^2 = "
        "(m - |B|)/(m - 1) sigma^2/|B|",
        preconditions=("each set of |B| of the m samples is as likely",),
        check=check_once,
        control={"corrected": False},
        note="Only so does a batch of all samples have no noise, as remark 4 after "
        "Theorem 3 would have it; independent samples leave sigma^2/m. The control "
        "omits the factor.",
    ),
)

STATEMENTS = (*_ABSORPTION, *_BATCHES, *_LEMMA_6)
