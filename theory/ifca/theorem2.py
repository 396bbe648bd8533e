"""Theorem 2: one step of IFCA on strongly convex losses.

|theta_j+ - theta_j*| <= (1 - p lambda / (8 L)) |theta_j - theta_j*| + eps0 with
probability 1 - delta. The proof makes the constants of eps0 explicit, 8, 96 and
16 sqrt(2), and with them nothing is promised before n' is about 1e7.
"""

import functools

import numpy as np
from jaxtyping import Float

from cfljax.base import Numbers
from cfljax.statements import Preset, Verdict, at_most, combine, never_exceeds, tally
from theory.ifca.common.checks import Broadcast, Events, copies, grid, row, unit
from theory.ifca.common.convex import (
    FLOOR_CONSTANTS,
    PAIR,
    PRECONDITIONS,
    ConvexSetting,
    WaveFamily,
    WorstPair,
    assign,
    assumption6,
    error_floor,
    gradient_step,
    misassignment_scale,
    worst_pair,
)
from theory.ifca.common.heavy_tails import noise_tails
from theory.rows import listed

BOUND, VACUITY = "ifca.thm2", "ifca.thm2.vacuity"

_FAILURE = 0.05

_Errors = Float[np.ndarray, "trials clusters"]


def _families() -> tuple[WaveFamily, WaveFamily]:
    """Four equal clusters at the corners of a square of side 1, lambda = L = 1, and two
    of shares 0.2 and 0.8, lambda = L / 2."""
    corners = np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]]) / 2
    square = WaveFamily(corners, (2500,) * 4, np.ones(2), 1.0, 1.0)
    curvatures = np.array([0.5, 0.8, 1.0])
    return square, WaveFamily(PAIR, (2000, 8000), curvatures, 0.5, 2.0)


def _pair() -> WorstPair:
    return worst_pair(
        sizes=(5000, 5000), num_samples=1e7, scale=1e-6, wave_gradient=1.0
    )


@functools.lru_cache(maxsize=1)
def _samples(preset: Preset) -> tuple[tuple[ConvexSetting, _Errors, _Errors], ...]:
    """Errors before and after steps from the edge of alpha = 1/4: normal waves around a
    square and an unequal pair, and rare jumps of the worst pair."""
    trials = preset.choose(quick=1500, full=50_000)
    found = []
    for index, family in enumerate(_families()):
        generator = preset.generator(BOUND, index)
        setting = family.setting(num_samples=1e9, alpha=0.25, failure=_FAILURE)
        away = generator.standard_normal((trials, *family.truths.shape))
        away[::2] = np.eye(1, away.shape[-1])
        models = family.truths + 0.25 * float(setting.unit) * unit(away)
        counts = assign(family, generator, models, 1e9)
        pieces = gradient_step(family, generator, models, counts, 1e9)
        before = np.linalg.norm(models - family.truths, axis=-1)
        found.append((setting, before, np.linalg.norm(pieces.errors, axis=-1)))
    pair = _pair()
    before = np.linalg.norm(pair.models - pair.family.truths, axis=-1)
    pieces = pair.step(preset.generator(BOUND, 2), trials)
    after = np.linalg.norm(pieces.errors, axis=-1)
    found.append((pair.setting(failure=_FAILURE), copies(before, trials), after))
    return tuple(found)


def check_bound(preset: Preset, *, part: float = 8.0) -> Verdict:
    """P(violation) <= delta for each cluster, with 1 - p lambda / (`part` L)."""
    events, ratios, shares = [], [], []
    for setting, before, after in _samples(preset):
        gain, floor = 8 * setting.progress / part, error_floor(setting)
        events += list((after > (1 - gain) * before + floor).T)
        ratios.append(np.max(after / before))
        shares.append(float(floor / setting.progress / before.min()))
    detail = (
        f"{np.sum(events)} violations; |theta+ - theta*| / |theta - theta*| up "
        f"to {listed(ratios, '.4f')}; eps0 takes {listed(shares, '.2g')} of the "
        "promised progress"
    )
    return at_most(BOUND, tally(np.array(events)), _FAILURE, detail=detail)


def check_vacuity(_: Preset, *, largest: float = 1e6) -> Verdict:
    """eps0 >= (p lambda / 8 L) |theta_j - theta_j*| for all n' up to `largest`. k = 4,
    p = 1/4, lambda = L = v = eta = Delta = 1, alpha = 1/4, delta = 0.05, m from 100 to
    1e4, the error at the edge of what alpha allows."""
    clients, samples = grid(
        [1e2, 1e3, 1e4], np.geomspace(1, largest, 1 + int(8 * np.log10(largest)))
    )
    setting = ordinary(clients, samples)
    promised = setting.progress * (0.5 - 0.25) * setting.unit
    floor = error_floor(setting)
    later = np.geomspace(largest, 1e12, 4801)
    first = later[np.argmax(error_floor(ordinary(1e4, later)) < promised)]
    return never_exceeds(
        VACUITY,
        np.full_like(floor, promised),
        floor,
        rounding=1e-13 * floor,
        detail=f"eps0 is {np.min(floor / promised):.3g} times the promised progress or "
        f"more up to n' = {largest:.0e}; the theorem promises some from n' = "
        f"{first:.2g} at m = 1e4",
    )


def ordinary(num_clients: Numbers, num_samples: Numbers) -> ConvexSetting:
    """k = 4 equal clusters and all other constants 1, alpha = 1/4, delta = 0.05."""
    return ConvexSetting(
        4, num_clients, 0.25, num_samples, 1.0, 1.0, 1.0, 1.0, 1.0, 0.25, _FAILURE
    )


SHARP = "ifca.thm2.sharp"

_SPLIT = (0.8, 0.1, 0.1)  # of delta into delta0, delta2, delta3


def sharp_bound(
    setting: ConvexSetting,
    size: int,
    radius: float | Float[np.ndarray, " trials"],
    *,
    noise: float = 1.0,
) -> Broadcast:
    """The right-hand side above for a cluster of `size` m_1 and |theta_1 - theta_1*|.
    `setting` has scalars, and delta as its `failure`; `noise` multiplies the second
    term, 1 as proved."""
    import scipy.stats  # Takes a second, which most callers need not wait for.

    s = setting
    first, second, third = (part * s.failure for part in _SPLIT)
    scale = 4 * float(misassignment_scale(s))
    chance = scale / (1 + scale)
    foreign = scipy.stats.binom.isf(second, s.num_clients - size, chance)
    right = max(0.0, 1 - (float(s.num_clusters) - 1) * chance)
    own = scipy.stats.binom.ppf(third, size, right)
    step = 1 / (s.smoothness * s.num_clients)
    spread = np.sqrt(s.gradient_variance * (size + foreign) / (first * s.num_samples))
    shrink = 1 - step * own * s.strong_convexity
    return np.asarray(
        shrink * radius + noise * step * spread + 3 * foreign / s.num_clients
    )


def _sharp_pair() -> WorstPair:
    return worst_pair(
        sizes=(4000, 6000), num_samples=2000.0, scale=1e-3, wave_gradient=3.0
    )


@functools.lru_cache(maxsize=1)
def _sharp_events(preset: Preset) -> tuple[Events, str]:
    """Whether an error exceeds the bound, and how close errors come to it."""
    trials = preset.choose(quick=1500, full=50_000)
    events, reach, gains = [], [], []
    pair, generator = _sharp_pair(), preset.generator(SHARP, 0)
    setting, models = pair.setting(failure=_FAILURE), copies(pair.models, trials)
    steps = [(pair.family, setting, models, pair.counts(generator, trials))]
    truths = np.array([[0.5, 0, 0], [-0.5, 0, 0], [0, 0.9, 0]])
    curvatures = np.array([0.8, 1.0, 1.0])
    waves = WaveFamily(truths, (300, 300, 400), curvatures, 0.1, 10.0)
    generator = preset.generator(SHARP, 1)
    setting = waves.setting(num_samples=200.0, alpha=0.25, failure=_FAILURE)
    away = generator.standard_normal((trials, *waves.truths.shape))
    away *= 0.25 * setting.unit / np.linalg.norm(away, axis=-1, keepdims=True)
    models = waves.truths + away
    counts = assign(waves, generator, models, 200.0)
    steps.append((waves, setting, models, counts))
    for family, setting, models, counts in steps:
        samples = float(setting.num_samples)
        pieces = gradient_step(family, generator, models, counts, samples)
        before = np.linalg.norm(models - family.truths, axis=-1)
        after = np.linalg.norm(pieces.errors, axis=-1)
        for cluster, size in enumerate(family.sizes):
            bound = sharp_bound(setting, size, before[:, cluster])
            events.append(after[:, cluster] > bound)
            reach.append(np.max(after[:, cluster] / bound))
            gains.append(np.max(bound / before[:, cluster]))
    detail = (
        f"error over bound at most {np.max(reach):.4f}, bound over "
        f"|theta_j - theta_j*| at most {np.max(gains):.4f}"
    )
    return np.array(events), detail


def check_sharp(preset: Preset, *, noise: float = 1.0) -> Verdict:
    """Steps below the bound; its noise term, times `noise`, is tight; it promises
    progress early."""
    events, detail = _sharp_events(preset)
    deltas = np.array([1e-4, 1e-3, 0.01, 0.04, 0.25])
    tails = noise_tails(noise / np.sqrt(deltas))
    # r = 1/4 at the constants of `ifca.thm2.vacuity`, m = 1e4.
    samples = np.geomspace(10, 1e5, 401)
    sharp = [sharp_bound(ordinary(1e4, n), 2500, 0.25) for n in samples]
    first = samples[np.argmax(np.array(sharp) < 0.25)]
    late = sharp_bound(ordinary(1e4, 2 * first), 2500, 0.25)
    return combine(
        SHARP,
        [
            never_exceeds(SHARP, tails, deltas, rounding=1e-10),
            at_most(SHARP, tally(events), _FAILURE),
            never_exceeds(SHARP, late, 0.25, rounding=1e-12),
        ],
        detail=f"{np.sum(events)} violations in {events.size} steps, {detail}; noise "
        f"exceeds its bound with up to {np.max(tails / deltas):.4f} delta0; promises "
        f"progress from n' = {first:.0f}, where eps0 is "
        f"{float(error_floor(ordinary(1e4, first))):.2g}",
    )


STATEMENTS = (
    row(
        id=BOUND,
        place="Theorem 2",
        text="|theta_j+ - theta_j*| <= (1 - p lambda / (8 L)) |theta_j - theta_j*| + "
        "eps0 with probability 1 - delta, eps0 <~ v / (delta L sqrt(p m n')) + eta^2 / "
        "(delta alpha^2 lambda^2 Delta^4 n') + v eta k^(3/2) / (delta^(3/2) alpha "
        "lambda L Delta^2 sqrt(m n'))",
        preconditions=(*PRECONDITIONS, "delta >= 8 exp(-p m / 8)"),
        constants=dict(
            zip(("c of v", "c of eta^2", "c of v eta"), FLOOR_CONSTANTS, strict=True)
        ),
        claimed="<~, constants unnamed",
        check=check_bound,
        control={"part": 0.95},
        note="Checked with sqrt(m) n' in the third term, which is smaller and what the "
        "proof gives; the text at hand has sqrt(m n'), perhaps a root drawn too long. "
        "The contraction is 8 times stronger: 1 - p lambda / L. The control claims "
        "1 - p lambda / (0.95 L).",
        margins=lambda: assumption6(_pair().setting(failure=_FAILURE)),
    ),
    row(
        id=VACUITY,
        place="Theorem 2, with the constants of its proof",
        text="eps0 >= (p lambda / 8 L) |theta_j - theta_j*| for all n' <= 1e6: the "
        "theorem does not promise that the error falls",
        preconditions=(
            "k = 4, p = 1/4, lambda = L = v = eta = Delta = 1, alpha = 1/4, "
            "delta = 0.05, m <= 1e4",
        ),
        check=check_vacuity,
        control={"largest": 1e7},
        note="About the bound, not about IFCA, which contracts at once. The control "
        "claims it for n' <= 1e7.",
    ),
    row(
        id=SHARP,
        place="Theorem 2, sharp form",
        text="|theta_1+ - theta_1*| <= (1 - N lambda / (m L)) |theta_1 - theta_1*| + "
        "(v / (m L)) sqrt((m_1 + M) / (delta0 n')) + 3 M / m, with binomial quantiles "
        "N of |S_1 cap S_1*| and M of |S_1 cap not S_1*|",
        preconditions=(*PRECONDITIONS, "max |theta_j*| <= 1"),
        constants={"delta0 / delta": 0.8, "delta2 / delta": 0.1, "delta3 / delta": 0.1},
        check=check_sharp,
        control={"noise": 0.97},
        note="Not in the paper. Against Theorem 2: no 8 in the contraction, sqrt(p) "
        "for 1 / sqrt(p) and 1 / sqrt(delta) for 1 / delta in the noise, quantiles for "
        "Markov's inequality. The control takes 3 % off the noise term, which rare "
        "jumps refute.",
        # But for the condition on Delta, which is not needed here.
        margins=lambda: assumption6(_sharp_pair().setting(failure=_FAILURE))[:-1],
    ),
)
