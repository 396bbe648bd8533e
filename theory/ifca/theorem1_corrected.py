"""Theorem 1': what is true of one round, with all constants; proved in theorem1.md.

With x_j = 2 gamma p_j and N_j = p_j m n' >= 4 d, for all clusters at once
|theta_j+ - theta_j*| <= (|1 - x_j| + 4 x_j sqrt(d/N_j)) |theta_j - theta_j*|
+ 2 x_j sigma sqrt(d/N_j), and nobody is misassigned, except with a probability that is
explicit. For p_max <= 3 p and gamma = c1/p, c1 in [1/4, 3 p/(4 p_max)], that is (1)
with c3 = 0 and every c2 > 3/(2 sqrt 2).
"""

import dataclasses
import functools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Bool, Float

from cfljax import law
from cfljax.base import Numbers
from cfljax.statements import (
    ERROR_RATE,
    Constant,
    Evaluation,
    Grade,
    Margin,
    Parameter,
    Preset,
    Simulation,
    Status,
    Step,
    Verdict,
    at_most,
    combine,
    equals,
    exactly,
    identity,
    never_exceeds,
    tally,
)
from theory.ifca import lemma1, lemma2
from theory.ifca.common import rounds
from theory.ifca.common.checks import copies, grid, row, tallies, unit
from theory.ifca.common.linear import (
    Setting,
    follow,
    follow_all,
    start,
    tightest,
)
from theory.ifca.common.raw_data import Problem, draw_gradients, products
from theory.ifca.common.steps import logarithm_below, logarithm_of_less
from theory.ifca.theorem1 import C2, SHARP_C2, second_and_third, violations
from theory.rows import listed

EXPLICIT, VACUITY = "ifca.thm1.explicit", "ifca.thm1.explicit.vacuity"

CONSTANTS = (4.0, 2.0)  # of |theta_j - theta_j*| and of sigma


def explicit_bound(
    errors: Float[np.ndarray, "*trials clusters"],
    effective_step: Numbers,
    num_rows: Numbers,
    *,
    num_features: Numbers,
    noise: float,
    constants: tuple[float, float] = CONSTANTS,
) -> Float[np.ndarray, "*trials clusters"]:
    """Right-hand sides from |theta_j - theta_j*|, x_j and N_j."""
    effective_step = np.asarray(effective_step, float)
    spread = effective_step * np.sqrt(np.divide(num_features, num_rows))
    factor = np.abs(1 - effective_step) + constants[0] * spread
    return np.asarray(factor * errors + constants[1] * spread * noise)


def explicit_failure(
    problem: Problem, models: Float[np.ndarray, "models features"], num_features: float
) -> float:
    """delta, with every kappa_lj from where truths and models are. They may have fewer
    columns than d."""
    truths, clients = problem.truths, np.array(problem.num_clients, float)
    kappa = law.misassignment_kappa(
        truths[:, None], models[:, None], models[None], problem.noise
    )
    off = ~np.eye(len(truths), dtype=bool)
    each = np.where(off, law.misassignment_probability(kappa, problem.num_samples), 0)
    covariance = 2 * len(truths) * np.exp(-num_features / 2)
    astray = float(np.sum(clients * np.sum(each, axis=1)) + covariance)
    return astray + float(
        np.sum(_noise_tails(clients * problem.num_samples, num_features))
    )


def _noise_tails(
    rows: Float[np.ndarray, " clusters"], num_features: float
) -> Float[np.ndarray, " clusters"]:
    """P(chi2_N chi2_d > 4 d N)."""
    tail = law.log_product_tail(rows, num_features, 4 * num_features * rows)
    return np.exp(tail)


def failure_at_start(setting: Setting) -> float:
    """delta where a run of `follow` is started."""
    truths, models = start(setting)
    sizes = tuple(round(share * setting.num_clients) for share in setting.shares)
    problem = Problem(truths, sizes, round(setting.num_samples), setting.noise)
    return explicit_failure(problem, models, setting.num_features)


def printed_failure(num_models: int, num_features: int) -> float:
    """2 k exp(-d/2) + 2 k exp(-0.1534 d), Lemma 2's tail by a union over its factors.
    For N >= d, and without the clients' part."""
    each = np.exp(-num_features / 2) + np.exp(-0.1534 * num_features)
    return float(2 * num_models * each)


class _Case(NamedTuple):
    """Rounds from one start."""

    failed: Bool[np.ndarray, " trials"]  # whether the conclusion failed
    failure: float  # delta
    label: str = ""  # of the detail line
    # By how much errors exceed |1 - x_j| of the previous ones, over what is allowed, at
    # most and among rounds without misassignment.
    worst: float = np.nan


# Worst-case starts in the plane, and batches of trials: the first delta is nearly
# attained by misassignments, and d is small enough that all can be told from 0.
_EXPLICIT_SETTINGS = (
    (Setting(8.0, 10.0, 10.0, 0.03, (0.5, 0.5), step=0.5), 8),
    (Setting(1000.0, 40.0, 9.0, 0.1, (0.3, 0.7), step=0.21), 3),
    (Setting(1e5, 1e4, 9.0, 0.02, (0.5, 0.5), step=0.7, alpha=0.1), 3),
    (Setting(1e8, 300.0, 9.0, 0.3, (0.5, 0.5), step=0.375), 3),
)


def _law_case(
    preset: Preset,
    index: int,
    one: Setting,
    batches: int,
    constants: tuple[float, float],
) -> _Case:
    batches *= preset.choose(quick=1, full=8)
    run = follow(preset, EXPLICIT, index, one, batches=batches)
    return _case(
        run.errors[:, 0],
        run.errors[:, 1],
        run.misassigned[:, 0] > 0,
        failure_at_start(one),
        one.effective_steps,
        one.num_rows,
        one.num_features,
        one.noise,
        constants,
    )


def _raw_case(preset: Preset, constants: tuple[float, float]) -> _Case:
    """Three clusters of 6, 8 and 10 clients in 10 dimensions, drawn row by row."""
    truths = np.eye(3, 10) / np.sqrt(2)
    problem = Problem(truths, (6, 8, 10), 8, 0.02)
    generator = preset.generator(EXPLICIT, len(_EXPLICIT_SETTINGS))
    models = truths + 0.15 * unit(generator.standard_normal(truths.shape))
    trials = preset.choose(quick=800, full=40_000)
    gradients = draw_gradients(generator, problem, copies(models, trials))
    clients = np.array(problem.num_clients, float)
    gamma = float(np.sum(clients) / np.max(clients) / 2)  # the largest x_j is 1
    before = np.linalg.norm(models - truths, axis=-1)
    after = np.linalg.norm(models - gamma * gradients.mean - truths, axis=-1)
    astray = np.sum(gradients.counts * (1 - np.eye(3)), axis=(1, 2)) > 0
    failure = explicit_failure(problem, models, 10.0)
    x = 2 * gamma * clients / np.sum(clients)
    spreads = (x, clients * problem.num_samples, 10.0, problem.noise, constants)
    return _case(before, after, astray, failure, *spreads)


def _case(
    before: Float[np.ndarray, "*trials clusters"],
    after: Float[np.ndarray, "trials clusters"],
    astray: Bool[np.ndarray, " trials"],
    failure: float,
    x: Float[np.ndarray, " clusters"],
    num_rows: Float[np.ndarray, " clusters"],
    num_features: float,
    noise: float,
    constants: tuple[float, float],
) -> _Case:
    bound = explicit_bound(
        before, x, num_rows, num_features=num_features, noise=noise, constants=constants
    )
    limit = np.abs(1 - x) * before
    kept = np.all(after <= bound, axis=1) & ~astray
    share = (after - limit) / (bound - limit)
    return _Case(~kept, failure, worst=float(np.max(share[~astray])))


@functools.lru_cache(maxsize=2)
def _cases(preset: Preset, constants: tuple[float, float]) -> tuple[_Case, ...]:
    found = [
        _law_case(preset, index, setting, batches, constants)
        for index, (setting, batches) in enumerate(_EXPLICIT_SETTINGS)
    ]
    return (*found, _raw_case(preset, constants))


def check_explicit(
    preset: Preset, *, constants: tuple[float, float] = CONSTANTS
) -> Verdict:
    """How often the conclusion fails, by law and on raw data, against delta.
    `constants` are those of the two terms with sqrt(d/N)."""
    cases = _cases(preset, constants)
    rates = [f"{np.mean(one.failed):.2g} <= {one.failure:.2g}" for one in cases]
    third = ERROR_RATE / 3
    events, tails = _noise_alone(preset, constants[1])
    alone = equals(EXPLICIT, tally(events), tails, resolution=0.03, error_rate=third)
    detail = (
        f"fails in {', '.join(rates)}, the last on raw data; if nobody is "
        f"misassigned, with up to {max(one.worst for one in cases):.2f} of what is "
        "allowed beyond $|1 - x_j|$; of the noise alone in "
        f"{listed(np.mean(events, axis=1), '.3f')}, by law {listed(tails, '.3f')}"
    )
    judged = [_judge_cases(EXPLICIT, cases, detail=detail, error_rate=third), alone]
    return combine(EXPLICIT, [*judged, _astray(preset, third)], detail=detail)


# N and x of clusters of two features from the truth: P(chi2_N chi2_2 > 8 N) is large
# enough to be told from others.
_ALONE = ((20.0, 0.6), (50.0, 1.5))


def _noise_alone(
    preset: Preset, constant: float
) -> tuple[Bool[np.ndarray, "clusters trials"], Float[np.ndarray, " clusters"]]:
    """Whether |theta_j+ - theta_j*| = (x/N) |X' eps| of raw data exceeds its bound,
    with `constant` for 2, sigma = 0.7, and the chance of it with the constant 2."""
    trials = preset.choose(quick=8000, full=100_000)
    events = []
    for index, (rows, x) in enumerate(_ALONE):
        generator = preset.generator(f"{EXPLICIT}.alone", index)
        sizes = {"error": 0.0, "noise": 0.7, "num_trials": trials, "chunk": 1000}
        parts = products(generator, round(rows), 2, **sizes)
        told = {"num_features": 2.0, "noise": 0.7}
        bound = explicit_bound(
            np.zeros(1), x, rows, constants=(CONSTANTS[0], constant), **told
        )
        lengths = x / rows * np.linalg.norm(np.concatenate(list(parts)), axis=1)
        events.append(lengths > bound)
    return np.array(events), _noise_tails(np.array(_ALONE)[:, 0], 2.0)


def _astray(preset: Preset, error_rate: float) -> Verdict:
    """That somebody is misassigned as often as the exact law says, 1 - prod (1 - q)^m,
    and that the first term of delta, what is left of it at large d, is no less."""
    one = _FEW._replace(num_features=1000.0, num_clients=400.0)
    run = follow(
        preset, f"{EXPLICIT}.astray", 0, one, batches=preset.choose(quick=4, full=40)
    )
    truths, models = start(one)
    kappa = law.misassignment_kappa(truths, models, models[::-1], one.noise)
    each = law.misassignment_probability(kappa, one.num_samples)
    clients = np.array(one.shares) * one.num_clients
    chance = -np.expm1(np.sum(clients * np.log1p(-each)))
    happened = run.misassigned[:, 0] > 0
    return combine(
        EXPLICIT,
        [
            equals(
                EXPLICIT,
                tally(happened),
                np.array([chance]),
                resolution=0.2,
                error_rate=error_rate,
            ),
            never_exceeds(
                EXPLICIT,
                chance,
                failure_at_start(one),
                rounding=1e-12,
                grade=Grade.EXACT,
            ),
        ],
    )


def _judge_cases(
    statement: str,
    cases: Sequence[_Case],
    *,
    detail: str,
    error_rate: float = ERROR_RATE,
) -> Verdict:
    return at_most(
        statement,
        tallies(one.failed for one in cases),
        np.array([one.failure for one in cases]),
        error_rate=error_rate,
        coordinates={"case": np.arange(len(cases))},
        detail=detail,
    )


# The largest d at which the probability is vacuous, for k models.
_VACUOUS = ((2, 9), (4, 13), (10, 19))


def check_vacuity(preset: Preset, *, exact: bool = False) -> Verdict:
    """The same rounds at d <= 9 against delta with exp(-0.1534 d) for Lemma 2's tail.
    With `exact`, the exact tail and the constants 1 and 1: a claim that says
    something."""
    constants = (1.0, 1.0) if exact else CONSTANTS
    cases = []
    for index, features in enumerate((7.0, 8.0, 9.0), len(_EXPLICIT_SETTINGS) + 1):
        setting = Setting(1000.0, 100.0, features, 0.02, step=0.5)
        case = _law_case(preset, index, setting, 2, constants)
        if not exact:
            case = case._replace(failure=printed_failure(2, round(features)))
        cases.append(case)
    first = [
        next(d for d in range(1, 200) if printed_failure(models, d) < level)
        for level in (1.0, 0.05)
        for models, _ in _VACUOUS
    ]
    return _judge_cases(
        VACUITY,
        cases,
        detail=rf"$\delta$ {listed((one.failure for one in cases), '.2f')} at $d = 7$, "
        f"8, 9 and $k = 2$; with $0.1534 d$ it is below 1 from $d = {first[:3]}$ and "
        f"below 0.05 from $d = {first[3:]}$ for $k = 2$, 4, 10",
    )


@functools.cache
def prove_explicit(
    *, covariance: str = "2", rate: str = "1/2", least: str = "4"
) -> list[Step]:
    r"""$|\theta_j^+ - \theta_j^*| \le (|1 - x_j| + c x_j \sqrt{d/N_j}) |\theta_j -
    \theta_j^*| + t x_j \sigma \sqrt{d/N_j}$ for all $j$ and nobody misassigned, but
    with probability $\sum m_l q(\kappa_{lj}) + 2 k \exp(-\mathtt{rate} d) + \sum
    P(\chi_N^2 \chi_d^2 > t^2 d N)$; $c = \mathtt{covariance} + t$ for any $t > 0$, $N_j
    \ge \mathtt{least} d$. The proof of theorem1.md, steps 1 to 6, where `rate` is $1/2$
    and `least` 4.

    1. A client of cluster $l$ is misassigned if some loss $j \ne l$ is no larger than
       its own: by the exact law (ifca.exact.tlaw) and the union bound $\sum m_l
       q(\kappa_{lj})$.
    2. Otherwise $e^+ = e - (x/N) X'w$ for cluster $j$: $X$ holds the $N$ rows of all
       its clients in the second fold, $e = \theta_j - \theta_j^*$, $w = X e -
       \varepsilon$. $2 \gamma/(m n') = x/N$.
    3. Entries of $w$ have variance $\tau^2 = |e|^2 + \sigma^2$ and covariance $e$ with
       their rows of $X$. So $X'w = g e + \tau \sqrt{g} \zeta$, $g = |w|^2/\tau^2$ a
       $\chi_N^2$, $\zeta \sim N(0, I - e e'/\tau^2)$ independent of it. Along $e$ its
       variance is $1 - |e|^2/\tau^2 = \sigma^2/\tau^2 \le 1$, across 1: $|\zeta|^2$ is
       at most a $\chi_d^2$, independent of $g$.
    4. $e^+ = (1 - x g/N) e - (x/N) \tau \sqrt{g} \zeta$, $|1 - x g/N| \le |1 - x| + x
       |g/N - 1|$ and $\tau \le |e| + \sigma$.
    5. $|g/N - 1| \le s = c' \sqrt{d/N}$, $c' = \mathtt{covariance}$, but with
       probability $2 \exp(-\text{rate} d)$. Above by Markov's inequality $\exp(-N (s -
       \log(1 + s))/2)$, where $s - \log(1 + s) \ge s^2/(2 + 4 s/3)$ and $s \le
       c'/\sqrt{\text{least}}$, so that $c'^2 \ge 2$ rate $(2 + 4 c'/(3
       \sqrt{\text{least}}))$ is enough, which is $2 + 2 c'/3$. Below $\exp(-N (-s -
       \log(1 - s))/2) \le \exp(-N s^2/4)$ for $s < 1$, and nothing is to be shown for
       $s \ge 1$: $c'^2 \ge 4 \text{rate}$ $= 2$ is enough.
    6. $\sqrt{g} |\zeta| \le t \sqrt{N d}$ but with probability $P(\chi_N^2 \chi_d^2 >
       t^2 d N)$. Together $|e^+| \le |1 - x| |e| + x s |e| + (x/N) (|e| + \sigma) t
       \sqrt{N d}$.
    """
    import sympy

    m, n, p, gamma, e, sigma, g, x, rows, t = sympy.symbols(
        "m n p gamma e sigma g x N t", positive=True
    )
    part, twice = sympy.Rational(covariance), 2 * sympy.Rational(rate)
    largest = part / sympy.sqrt(sympy.Rational(least))  # of s
    size, spread = sympy.symbols("size spread", positive=True)
    tau = sympy.sqrt(e**2 + sigma**2)
    reach = t * size * spread  # t sqrt(N d), spread = sqrt(d/N)
    total = x * part * spread * e + x / size * (e + sigma) * reach
    claimed = (part + t) * x * spread * e + t * x * sigma * spread
    return [
        identity(
            r"$2 \gamma/(m n') = x/N$, $x = 2 \gamma p$, $N = p m n'$",
            2 * gamma / (m * n) - 2 * gamma * p / (p * m * n),
        ),
        identity(
            r"$1 - |e|^2/\tau^2 = \sigma^2/\tau^2$",
            1 - e**2 / tau**2 - sigma**2 / tau**2,
        ),
        identity(
            "$1 - x g/N = (1 - x) + x (1 - g/N)$",
            1 - x * g / rows - (1 - x) - x * (1 - g / rows),
        ),
        identity(
            r"$(|e| + \sigma)^2 - \tau^2 = 2 |e| \sigma$",
            (e + sigma) ** 2 - tau**2 - 2 * e * sigma,
        ),
        logarithm_below(),
        logarithm_of_less(),
        exactly(
            r"$c'^2 \ge 2 \text{rate} (2 + 4 c'/(3 \sqrt{\text{least}}))$",
            bool(part**2 >= twice * (2 + 4 * largest / 3)),
        ),
        exactly(r"$c'^2 \ge 4 \text{rate}$", bool(part**2 >= 2 * twice)),
        identity(
            r"$x s |e| + (x/N) (|e| + \sigma) t \sqrt{N d} = (c' + t) x "
            r"\sqrt{d/N} |e| + t x \sigma \sqrt{d/N}$",
            # size = N, and t sqrt(N d) = t N sqrt(d/N).
            total - claimed,
        ),
    ]


CORRECTED, SQUARE = "ifca.thm1.corrected", "ifca.thm1.corrected.square"

NOISE_RATE = lemma2.C3  # of Lemma 2 at c4 = 2


def round_failure(
    *,
    clients: float,
    clusters: float,
    samples: float,
    features: float,
    alpha: float,
    rho: float,
    rate: float = 0.5,
    noise_rate: float = NOISE_RATE,
) -> float:
    """delta(m, n', d) of Theorem 1': m (k - 1) exp(-`rate` n' alpha^2 rho/(1 + rho))/2
    + 2 k exp(-d/2) + k exp(-`noise_rate` d)."""
    exponent = rate * samples * alpha**2 * rho / (1 + rho)
    astray = clients * (clusters - 1) / 2 * math.exp(-exponent)
    each = 2 * math.exp(-features / 2) + math.exp(-noise_rate * features)
    return astray + clusters * each


def _allowed(setting: Setting, over: float = 2.0) -> float:
    """delta with c2 = `over` times the sharp one."""
    return round_failure(
        clients=setting.num_clients,
        clusters=2.0,
        samples=setting.num_samples,
        features=setting.num_features,
        alpha=setting.alpha,
        rho=setting.noise**-2,
        noise_rate=over - 1 - math.log(over),
    )


# Shares, and c1 between 1/4 and 3 p/(4 p_max), close to both ends.
_ADMITTED = (
    *((0.5, 0.252), (0.5, 0.5), (0.5, 0.748)),
    *((0.3, 0.252), (0.3, 0.32), (0.26, 0.252), (0.26, 0.2625)),
)
_REFUSED = ((0.5, 0.8), (0.5, 1.25), (0.3, 0.35))
# rho = 0.05, where delta is nearly attained by misassignments.
_FEW = Setting(40.0, 1200.0, 30.0, math.sqrt(20), step=0.5, alpha=0.4)
# From the truth, where noise is all that there is: c2 over the sharp one, and d.
_OVER = ((2.0, 12.0), (1.2, 200.0), (1.05, 3000.0))
_UNDER = (0.99, 1e5)


def _similar(small_share: float, step: float) -> Setting:
    shares = (small_share, 1 - small_share)
    return Setting(1e6, num_features=12.0, noise=0.1, shares=shares, step=step)


def _at_truth(features: float) -> Setting:
    """c1 almost 3/4 and two equal clusters, where c2 is needed most."""
    return Setting(1e10, 1e5, features, 0.1, step=0.7499, alpha=0.5 - 1e-9)


def check_corrected(preset: Preset, *, admitted: bool = True) -> Verdict:
    """(1) with c3 = 0 at c1 close to the ends of what is admitted, and from the truth
    with c2 down to 1.05 times the sharp one; with 0.99 times it (1) must fail in more
    than half of the rounds. With the full preset also for four clusters. Without
    `admitted` c1 lies outside, and the claim is judged where it fails least often."""
    cases = _two_clusters(preset, admitted)
    if admitted:
        cases += _few(preset) + _from_truth(preset)
        cases += () if preset.name == "quick" else _four(preset)
    judged = cases if admitted else (min(cases, key=lambda one: np.sum(one.failed)),)
    rates = ", ".join(
        rf"${np.mean(one.failed):.2g} \le {one.failure:.2g}$ at {one.label}"
        for one in cases
    )
    half = ERROR_RATE / 2
    suffices = _judge_cases(
        CORRECTED,
        judged,
        error_rate=half if admitted else half / len(cases),
        detail=f"(1) fails in {rates}",
    )
    needed = at_most(CORRECTED, tally(~_with_less(preset)), 0.5, error_rate=half)
    missed = np.mean(_with_less(preset))
    detail = (
        f"{suffices.detail}; from the truth with {_UNDER[0]:g} of the sharp $c_2$ in "
    )
    parts = ["c2 suffices", "less than the sharp c2 does not"]
    return combine(
        CORRECTED, [suffices, needed], parts=parts, detail=f"{detail}{missed:.3g}"
    )


def _two_clusters(preset: Preset, admitted: bool) -> tuple[_Case, ...]:
    pairs = _ADMITTED if admitted else _REFUSED
    settings = tuple(_similar(*pair) for pair in pairs)
    batches = preset.choose(quick=2, full=20)
    runs = follow_all(preset, f"{CORRECTED}.{admitted}", settings, batches=batches)
    return tuple(
        _Case(
            violations(run.errors, second_and_third(setting, c2=C2)),
            _allowed(setting),
            f"$p = {share:g}$, $c_1 = {step:g}$",
        )
        for (share, step), setting, run in zip(pairs, settings, runs, strict=True)
    )


def _few(preset: Preset) -> tuple[_Case, ...]:
    batches = preset.choose(quick=4, full=40)
    run = follow(preset, CORRECTED, 0, _FEW, batches=batches)
    failed = violations(run.errors, second_and_third(_FEW, c2=C2))
    astray = run.misassigned[:, 0] > 0
    label = f"$m = {_FEW.num_clients:g}$, $n' = {_FEW.num_samples:g}$"
    return (_Case(failed | astray, _allowed(_FEW), label),)


def _from_truth(preset: Preset) -> tuple[_Case, ...]:
    settings = tuple(_at_truth(features) for _, features in _OVER)
    batches = preset.choose(quick=2, full=20)
    runs = follow_all(preset, f"{CORRECTED}.truth", settings, batches=batches)
    return tuple(
        _Case(
            violations(run.errors, second_and_third(setting, c2=over * SHARP_C2)),
            _allowed(setting, over),
            f"$c_2 = {over * SHARP_C2:.4f}$ from the truth, $d = {features:g}$",
        )
        for (over, features), setting, run in zip(_OVER, settings, runs, strict=True)
    )


def _with_less(preset: Preset) -> Bool[np.ndarray, " trials"]:
    """Whether (1) fails from the truth with less than the sharp c2."""
    share, features = _UNDER
    setting = _at_truth(features)
    (run,) = follow_all(preset, f"{CORRECTED}.under", (setting,))
    return violations(run.errors, second_and_third(setting, c2=share * SHARP_C2))


def _four(preset: Preset) -> tuple[_Case, ...]:
    """Four equal clusters, exactly in law, models in random directions: alpha = 0.1."""
    trials, noise, samples, features = 2000, 0.5, 1600, 14.0
    truths = np.eye(4, 14) / np.sqrt(2)
    generator = preset.generator(CORRECTED)
    models = truths + 0.4 * unit(generator.standard_normal(truths.shape))
    population = law.population(
        truths,
        num_models=4,
        num_clients=np.full(4, 250.0),
        num_samples=float(samples),
        num_features=features,
        noise=noise,
    )
    allowed = round_failure(
        clients=1000.0,
        clusters=4.0,
        samples=samples,
        features=features,
        alpha=0.1,
        rho=noise**-2,
    )
    floor = float(C2 * noise * 4 * np.sqrt(features / (1000 * samples)))
    found = []
    for step in (0.27, 0.5, 0.73):
        trace = law.simulate(
            jax.random.key(int(generator.integers(2**31))),
            population,
            law.place(truths, models, num_features=features),
            num_trials=trials,
            num_rounds=1,
            step_size=4 * step,
        )
        distances = law.distances(np.asarray(population.truths), trace.models)
        errors = np.diagonal(distances, axis1=-2, axis2=-1)
        label = f"4 clusters, $c_1 = {step:g}$"
        found.append(_Case(violations(errors, floor), allowed, label))
    return tuple(found)


def contraction(setting: Setting) -> float:
    """max over j of |1 - x_j| + 4 x_j sqrt(d/N_j)."""
    x, rows = setting.effective_steps, setting.num_rows
    spread = CONSTANTS[0] * x * np.sqrt(setting.num_features / rows)
    return float(np.max(np.abs(1 - x) + spread))


def round_margins(setting: Setting) -> tuple[Margin, ...]:
    """What Theorem 1' asks beyond Assumption 1."""
    share, largest = min(setting.shares), max(setting.shares)
    half = r"$|1 - x_j| + 4 x_j \sqrt{d/N_j} \le 1/2$"
    rows = float(np.min(setting.num_rows))
    return (
        Margin(r"$p_{\max} \le 3 p$", largest, 3 * share, at_least=False),
        Margin(half, contraction(setting), 0.5, at_least=False),
        Margin(r"$N_j = p_j m n' \ge 4 d$", rows, 4 * setting.num_features),
    )


def _corrected_margins() -> tuple[Margin, ...]:
    """Each condition where it is met least."""
    settings = [_similar(*pair) for pair in _ADMITTED]
    settings += [_FEW, *(_at_truth(features) for _, features in _OVER)]
    return tightest(*map(round_margins, settings))


@functools.cache
def prove_corrected(
    *,
    c2: str = "2.1214",
    factor: str = "4",
    least: str = "4",
    lowest: str = "1/4",
    highest: str = "3/4",
    sharp_square: str = "9/8",
    astray: str = "1/2",
    astray_rate: str = "1/2",
    covariance_rate: str = "1/2",
    noise_rate: str = str(NOISE_RATE),
) -> list[Step]:
    r"""Theorem 1' for all parameters. The proof of theorem1.md in full.

    $|\theta_j^+ - \theta_j^*| \le |\theta_j - \theta_j^*|/2 + \mathtt{c2} (\sigma/p)
    \sqrt{d/(m n')}$ but with probability $\mathtt{astray} m (k - 1)
    \exp(-\mathtt{astray\_rate} n' \alpha^2 \rho/(1 + \rho)) + 2 k
    \exp(-\mathtt{covariance\_rate} d) + k \exp(-\mathtt{noise\_rate} d)$, for $c_1 \in
    [\mathtt{lowest}, \mathtt{highest} p/p_{\max}]$, $N_j \ge \mathtt{least} d$ and
    $|1 - x_j| + \mathtt{factor} x_j \sqrt{d/N_j} \le 1/2$; and no $c_2^2$ below
    `sharp_square` serves. The numbers below are those of Theorem 1'.

    1. By ifca.thm1.explicit, whose steps these begin with, $|e_j^+| \le (|1 - x_j| + 4
       x_j \sqrt{d/N_j}) |e_j| + t x_j \sigma \sqrt{d/N_j}$, $t = 2$; the first factor
       is at most $1/2$ by assumption.
    2. $t x_j \sigma \sqrt{d/N_j} = 2 t c_1 \sqrt{p_j} (\sigma/p) \sqrt{d/(m n')}$. As
       $c_1 \le 3 p/(4 p_{\max})$ and $p \le p_{\max}$, $p \le 1/2$ for two clusters or
       more, $c_1^2 p_j \le (9/16) p^2/p_{\max} \le 9/32$: $c_2 \ge 3 t/(2 \sqrt{2})$ is
       enough.
    3. $[1/4, 3 p/(4 p_{\max})]$ is where $x_j = 2 c_1 p_j/p$ lies in $[1/2, 3/2]$ for
       all
       $j$, from $p_j = p$ to $p_j = p_{\max}$, and is empty unless $p_{\max} \le 3 p$.
    4. Misassignments: by ifca.lem1.stronger and a union over $m$ clients and $k - 1$
       rivals at most $m (k - 1) \exp(-n' \alpha^2 \rho/(2 (1 + \rho)))/2$. The last
       term of $\delta$ by ifca.lem2.noise with $\min\{d, N_j\} = d$. With $k \le m$,
       the $n'$ and $d$ of theorem1.md and $0.3068 \le 1/2$ the three terms of $\delta$
       are $m^{-a}/2$, $2 m^{-a}$ and $m^{-a}$ at most.
    5. No $c_2$ below $3/(2 \sqrt{2})$ serves, whatever $\delta < 1$: from the truth,
       $e_j = 0$, with $p = 1/2$ and $c_1 \to 3/4$, $|e_j^+|$ over $(\sigma/p)
       \sqrt{d/(m n')}$ is $2 c_1 \sqrt{p_j} \sqrt{\chi_N^2 \chi_d^2/(N d)}$, which
       tends to $2 c_1 \sqrt{p_j} \to 3/(2 \sqrt{2})$ in probability as $d$ and $N$
       grow.
    """
    import sympy

    c1, p, own, sigma, d, m, n, largest, t = sympy.symbols(
        "c1 p p_j sigma d m n p_max t", positive=True
    )
    step = 2 * c1 * own / p
    spread = sympy.sqrt(d / (own * m * n))
    claimed = 2 * t * c1 * sympy.sqrt(own) * sigma / p * sympy.sqrt(d / (m * n))
    half, share = sympy.Rational(1, 2), sympy.Rational(highest)
    edge = share * p / largest
    most = (2 * share) ** 2 * half  # of (2 c1 sqrt(p_j))^2, over (p/p_j)^2
    return [
        *prove_explicit(
            covariance=str(Fraction(factor) - 2), rate=covariance_rate, least=least
        ),
        identity(
            r"$t x_j \sigma \sqrt{d/N_j} = 2 t c_1 \sqrt{p_j} (\sigma/p) "
            r"\sqrt{d/(m n')}$",
            (t * step * sigma * spread) ** 2 - claimed**2,
        ),
        identity(
            r"$(\text{highest} p/p_{\max})^2 p_{\max} = \text{highest}^2 p^2/p_{\max}$",
            edge**2 * largest - share**2 * p**2 / largest,
        ),
        exactly(
            r"$c_2^2 \ge (2 t)^2 \text{highest}^2/2$, $t = 2$",
            bool(sympy.Rational(c2) ** 2 >= 2**2 * most),
        ),
        identity(
            r"$x = 1/2$ at $c_1 = \text{lowest}$, $p_j = p$",
            step.subs({c1: sympy.Rational(lowest), own: p}) - half,
        ),
        identity(
            r"$x = 3/2$ at $c_1 = \text{highest} p/p_{\max}$, $p_j = p_{\max}$",
            step.subs({c1: edge, own: largest}) - 3 * half,
        ),
        *lemma1.prove_stronger(c1=astray, rate=astray_rate),
        *lemma2.prove_noise(c3=noise_rate),
        *lemma2.prove_sharp(),
        exactly(
            "0.3068 <= 1/2, 1/2 + 2 + 1 = 7/2",
            bool(sympy.Rational(str(NOISE_RATE)) <= half) and half + 3 == 7 * half,
        ),
        exactly(
            r"$(2 c_1 \sqrt{p_j})^2 \ge \text{sharp_square}$ at "
            r"$c_1 = \text{highest}$, $p_j = 1/2$",
            bool(most >= sympy.Rational(sharp_square)),
        ),
    ]


def check_square(_: Preset, *, share: float = 1.0) -> Verdict:
    """The exact mean square against (1) with `share` of the sharp c2, on a grid and
    from the truth, where both are equal for c1 = 3/4; with 1e-6 less of c2 (1) fails
    there."""
    small, place, sigma, error, d = grid(
        (0.26, 0.3, 0.4, 0.5),
        (0.0, 0.5, 0.98, 1.0),
        (1e-3, 0.1, 1.0),
        (0.0, 0.1, 0.4),
        (2, 50),
    )
    c1 = 0.25 + place * (0.75 * small / (1 - small) - 0.25)
    values, bounds, places = [], [], []
    for cluster, own in enumerate((small, 1 - small)):
        x, rows = 2 * c1 * own / small, own * 1e4
        value, factor = _root_mean_square(x, rows, d, sigma, error)
        scale = sigma / small * np.sqrt(d / 1e4)
        kept = factor <= 0.5
        values.append(value[kept])
        bounds.append((error / 2 + share * SHARP_C2 * scale)[kept])
        which = np.full(len(d), float(cluster))
        places.append(np.array([small, c1, sigma, error, d, which])[:, kept])
    point = np.array([[1.5], [1e9], [50.0], [0.1], [0.0]])  # x, N, d, sigma, |e|
    sharp = _root_mean_square(*point)[0]
    scale = 0.1 / 0.5 * np.sqrt(50 / 2e9)
    values += [sharp, (1 - 1e-6) * SHARP_C2 * scale * np.ones(1)]
    bounds += [share * SHARP_C2 * scale * np.ones(1), sharp]
    left = np.concatenate(values)
    # At the truth twice: that c2 suffices, and that less does not.
    for which in (2.0, 3.0):
        places.append(np.array([[0.5], [0.75], [0.1], [0.0], [50.0], [which]]))
    names = ("p", "c1", "noise", "distance", "d", "cluster")
    return never_exceeds(
        SQUARE,
        left,
        np.concatenate(bounds),
        rounding=16 * np.finfo(float).eps * left,
        grade=Grade.EXACT,
        coordinates=dict(zip(names, np.concatenate(places, axis=1), strict=True)),
        detail=f"exact mean squares at {len(left) - 2} points with a factor of at "
        "most $1/2$, and from the truth",
    )


def _root_mean_square(
    x: Float[np.ndarray, " points"],
    rows: Float[np.ndarray, " points"],
    features: Float[np.ndarray, " points"],
    sigma: Float[np.ndarray, " points"],
    error: Float[np.ndarray, " points"],
) -> tuple[Float[np.ndarray, " points"], Float[np.ndarray, " points"]]:
    """Root of E|e+|^2 without misassignment, and of its factor before |e|^2."""
    squares = [
        law.expected_square_error(
            np.zeros((1, 1)),
            np.full((1, 1), one),
            np.ones((1, 1)),
            num_samples=count,
            num_features=d,
            noise=noise,
            step_size=step / 2,
            total=1.0,
        )[0, 0]
        for step, count, d, noise, one in zip(
            x, rows, features, sigma, error, strict=True
        )
    ]
    factor = np.sqrt((1 - x) ** 2 + x**2 * (features + 1) / rows)
    return np.sqrt(np.array(squares)), factor


def prove_square(*, share: str = "1") -> list[Step]:
    r"""(1) in root mean square, with `share` of the sharp $c_2$. A second way to
    Theorem 1', theorem1.md.

    1. $e^+ = (1 - x g/N) e - (x/N) \tau \sqrt{g} \zeta$ with $E g = N$, $E g^2 = N^2 +
       2 N$, $\zeta$ independent of $g$, $E \zeta = 0$ and $E |\zeta|^2 = d -
       |e|^2/\tau^2$ (step 3 of the proof of ifca.thm1.explicit): $E|e^+|^2 = ((1 - x)^2
       + x^2 (d + 1)/N) |e|^2 + x^2 d \sigma^2/N$.
    2. $\sqrt{a^2 + b^2} \le a + b$: the root is at most $f |e| + x \sigma \sqrt{d/N}$,
       $f^2 = (1 - x)^2 + x^2 (d + 1)/N$. $x \sigma \sqrt{d/N} = 2 c_1 \sqrt{p_j}
       (\sigma/p) \sqrt{d/(m n')}$, and $2 c_1 \sqrt{p_j} \le 3/(2 \sqrt{2})$ as for
       ifca.thm1.corrected, approached at $p = 1/2$ as $c_1 \to 3/4$, where $x \to 3/2$;
       at $3/4$ itself $f^2 > 1/4$.
    """
    import sympy

    x, rows, d, e, sigma, c1, p, own, m, n = sympy.symbols(
        "x N d e sigma c1 p p_j m n", positive=True
    )
    tau2 = e**2 + sigma**2
    first = 1 - 2 * x + x**2 * (rows**2 + 2 * rows) / rows**2
    square = first * e**2 + x**2 / rows * tau2 * (d - e**2 / tau2)
    factor = (1 - x) ** 2 + x**2 * (d + 1) / rows
    step = 2 * c1 * own / p
    scale = sigma**2 / p**2 * d / (m * n)
    nine = sympy.Rational(share) ** 2 * sympy.Rational(9, 8)
    return [
        identity(
            r"$E|e^+|^2 = ((1 - x)^2 + x^2 (d + 1)/N) |e|^2 + x^2 d \sigma^2/N$",
            square - factor * e**2 - x**2 * d * sigma**2 / rows,
        ),
        identity(
            r"$x^2 \sigma^2 d/N = 4 c_1^2 p_j (\sigma/p)^2 d/(m n')$",
            step**2 * sigma**2 * d / (own * m * n) - 4 * c1**2 * own * scale,
        ),
        exactly(
            r"$4 c_1^2 p_j \le 4 (9/32) \le c_2^2$",
            bool(4 * sympy.Rational(9, 32) <= nine),
        ),
    ]


def _conclusion_fails(
    generator: np.random.Generator, trials: int, **values: rounds.Value
) -> Float[np.ndarray, " trials"]:
    setting = rounds.setting(**values)
    run = rounds.simulate(generator, setting, trials=trials, rounds=1)
    bound = explicit_bound(
        run.errors[:, 0],
        setting.effective_steps,
        setting.num_rows,
        num_features=setting.num_features,
        noise=setting.noise,
    )
    kept = np.all(run.errors[:, 1] <= bound, axis=1) & (run.misassigned[:, 0] == 0)
    return (~kept).astype(float)


def _corrected_fails(
    generator: np.random.Generator, trials: int, **values: rounds.Value
) -> Float[np.ndarray, " trials"]:
    setting = rounds.setting(**values)
    run = rounds.simulate(generator, setting, trials=trials, rounds=1)
    floor = second_and_third(setting, c2=C2)
    return violations(run.errors, floor).astype(float)


def _bound(rate: float, noise_rate: float, **values: rounds.Value) -> float:
    setting = rounds.setting(**values)
    return round_failure(
        clients=setting.num_clients,
        clusters=2.0,
        samples=setting.num_samples,
        features=setting.num_features,
        alpha=setting.alpha,
        rho=setting.noise**-2,
        rate=rate,
        noise_rate=noise_rate,
    )


def _with_samples(number: int) -> tuple[Parameter, ...]:
    """Parameters with so few samples that the probability can be told from 0."""
    return tuple(
        dataclasses.replace(one, default=number) if one.name == "n" else one
        for one in rounds.PARAMETERS
    )


_EXPLICIT_EVALUATION = Evaluation(
    quantity=r"$P(\text{somebody is misassigned, or the bound on }|\theta_j^+ - "
    r"\theta_j^*|\text{ fails})$",
    parameters=_with_samples(12),
    bound=lambda **values: failure_at_start(rounds.setting(**values)),
    truth=Simulation(_conclusion_fails, numbers=lambda **_: rounds.NUMBERS),
    margins=lambda **values: (
        rounds.start_margin(rounds.setting(**values)),
        round_margins(rounds.setting(**values))[2],
    ),
    note="two clusters, the exact law of a round from the least favourable models",
)
_CORRECTED_EVALUATION = Evaluation(
    quantity=r"$P(\text{(1) fails for a cluster})$, $c_2 = 3/\sqrt{2}$, $c_3 = 0$",
    parameters=_with_samples(200),
    bound=_bound,
    truth=Simulation(_corrected_fails, numbers=lambda **_: rounds.NUMBERS),
    margins=lambda **values: (
        rounds.start_margin(rounds.setting(**values)),
        *round_margins(rounds.setting(**values)),
    ),
    constants={
        "rate": Constant(0.5, 0.5, 0.5, "proved (ifca.lem1.stronger)"),
        "noise_rate": Constant(
            NOISE_RATE, NOISE_RATE, 1 - math.log(2), "proved (ifca.lem2.sharp)"
        ),
    },
    note="two clusters, the exact law of a round from the least favourable models",
)

_EXPLICIT_PRECONDITIONS = (
    "models independent of both folds, one per cluster",
    r"$N_j = p_j m n' \ge 4 d$ for all $j$",
)
_DELTA = (
    r"$\delta = m (k - 1) \exp(-n' \alpha^2 \rho/(2 (1 + \rho)))/2 + 2 k \exp(-d/2) + "
    r"k \exp(-0.3068 d)$"
)
_CORRECTED_PRECONDITIONS = (
    r"$|\theta_j - \theta_j^*| \le (1/2 - \alpha) \Delta$, $0 < \alpha < 1/2$, $k \ge "
    "2$",
    r"$p_{\max} \le 3 p$, $c_1 \in [1/4, 3 p/(4 p_{\max})]$",
    r"$N_j = p_j m n' \ge 4 d$ and $|1 - x_j| + 4 x_j \sqrt{d/N_j} \le 1/2$ for all "
    "$j$",
)

STATEMENTS = (
    row(
        id=EXPLICIT,
        place="Theorem 1, explicit form",
        text=r"$|\theta_j^+ - \theta_j^*| \le (|1 - x_j| + 4 x_j \sqrt{d/N_j}) "
        r"|\theta_j - \theta_j^*| + 2 x_j \sigma \sqrt{d/N_j}$ for all $j$ and "
        r"nobody misassigned, but with probability $\sum m_l q(\kappa_{lj}) + 2 k "
        r"\exp(-d/2) + \sum P(\chi_N^2 \chi_d^2 > 4 d N)$",
        preconditions=_EXPLICIT_PRECONDITIONS,
        constants={
            r"of $|\theta_j - \theta_j^*|$": CONSTANTS[0],
            r"of $\sigma$": CONSTANTS[1],
        },
        claimed="$c_1$ to $c_4$, the polynomial and those of Assumption 2, all unnamed",
        check=check_explicit,
        control={"constants": (1.0, 1.0)},
        proof=prove_explicit,
        proof_control={"covariance": "1.786"},
        evaluation=_EXPLICIT_EVALUATION,
        note="What the exact laws of assignment and gradient give: no $1/p$ and no "
        "exponential term. The paper's route, by the operator norm in (4), has 6 for "
        "4. The control has 1 for 4 and for 2, the typical size of both terms.",
    ),
    row(
        id=VACUITY,
        place="Theorem 1, explicit form with Lemma 2's tail by a union",
        text=r"the same, but with probability $\ldots + 2 k \exp(-d/2) + 2 k "
        r"\exp(-0.1534 d)$, at $d \le 9$ for $k = 2$",
        preconditions=(*_EXPLICIT_PRECONDITIONS, r"$d \le 9$, $k = 2$"),
        constants={"$c_3$ of Lemma 2": 0.1534},
        claimed=r"$d \gtrsim \log m$, constant unnamed",
        expected=Status.VACUOUS,
        check=check_vacuity,
        control={"exact": True},
        note=r"At 1 or more a bound on a probability says nothing: $d \ge 10$, 14, 20 "
        r"are needed for $k = 2$, 4, 10, and $d \ge 29$, 34, 40 for 0.05. With the "
        "exact tail $d = 3$ is enough for $k = 2$. The control has the exact tail "
        "and claims the constants 1 and 1.",
    ),
    row(
        id=CORRECTED,
        place="Theorem 1, (1)",
        text=r"Theorem 1': $\gamma = c_1/p$: with probability $1 - \delta$, for all "
        r"$j$: $|\theta_j^+ - \theta_j^*| \le |\theta_j - \theta_j^*|/2 + "
        rf"(3/\sqrt{{2}}) (\sigma/p) \sqrt{{d/(m n')}}$; {_DELTA}. With any $c_2 > "
        r"3/(2 \sqrt{2})$ in place of $3/\sqrt{2}$ the last exponent is $(t - 1 - "
        r"\log t) d$, $t = c_2 \cdot 2 \sqrt{2}/3$; with no smaller $c_2$",
        preconditions=_CORRECTED_PRECONDITIONS,
        constants={"c2": C2, "sharp $c_2$": SHARP_C2, "c3": 0.0},
        claimed=r"$c_1$ to $c_4$ universal, unnamed; $1/\operatorname{poly}(m)$ for "
        r"$\delta$",
        check=check_corrected,
        control={"admitted": False},
        proof=prove_corrected,
        written_proof="theorem1.md",
        proof_control=[
            {"c2": "2.1213"},
            {"lowest": "0.2499"},
            {"highest": "0.7501"},
            {"sharp_square": "1.1251"},
            {"astray": "0.4999"},
            {"astray_rate": "0.5001"},
            {"noise_rate": "0.3069"},
            {"factor": "3.786"},
            {"least": "1.777"},
            {"covariance_rate": "0.601"},
        ],
        evaluation=_CORRECTED_EVALUATION,
        margins=_corrected_margins,
        note="Proved in theory/ifca/theorem1.md. Dividing by $|S_j|$ instead of $m$ "
        r"removes the condition on $p_{\max}$: the factor is then $|1 - 2 \gamma|$ for "
        r"all clusters. The control claims the best of $c_1 = 0.8$ and $\gamma p = "
        "1.25$ for equal clusters, and of $c_1 = 0.35$ for $p = (0.3, 0.7)$, where "
        "at most 0.32 is admitted. Each constant of the proof has a false claim of "
        r"its own: $c_2$, the ends of $c_1$ and the constants of $\delta$'s first and "
        "last term are off by at most $10^{-4}$; 3.787 would do for the 4 before "
        r"$x_j$, 1.778 for that before $d$ and 0.6 for the $1/2$ of $\exp(-d/2)$, and "
        "3.786, 1.777 and 0.601 do not.",
    ),
    row(
        id=SQUARE,
        place="Theorem 1, (1) in root mean square",
        text=r"if nobody is misassigned, $(E|\theta_j^+ - \theta_j^*|^2)^{1/2} \le "
        r"|\theta_j - \theta_j^*|/2 + (3/(2 \sqrt{2})) (\sigma/p) \sqrt{d/(m "
        "n')}$, and with no smaller constant",
        preconditions=(
            r"$p_{\max} \le 3 p$, $c_1 \in [1/4, 3 p/(4 p_{\max})]$, $k \ge 2$",
            r"$(1 - x_j)^2 + x_j^2 (d + 1)/N_j \le 1/4$ for all $j$",
        ),
        constants={"c2": SHARP_C2},
        claimed="$c_2$ universal, unnamed",
        check=check_square,
        control={"share": 0.99},
        proof=prove_square,
        written_proof="theorem1.md",
        proof_control={"share": "0.9999"},
        note="A second way to the constant of ifca.thm1.corrected, by the exact mean "
        "square. The control has 0.99 of it.",
    ),
)
