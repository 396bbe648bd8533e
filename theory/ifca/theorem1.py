"""Theorem 1: false as printed for clusters of very different sizes, and what is true.

With gamma = c1/p the infinite-data factor of cluster j is |1 - x_j|, x_j = 2 c1 p_j/p.
At most 1/2 for all j it is only with c1 in [1/4, 3 p/(4 p_max)], which is empty if
p_max > 3 p.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import numpy as np
import scipy.special
from jaxtyping import Bool, Float

from cfljax import intervals, law
from cfljax.base import Numbers
from cfljax.statements import (
    ERROR_RATE,
    Margin,
    Preset,
    Status,
    Verdict,
    at_most,
    combine,
    never_exceeds,
    same_law,
    tally,
    within,
)
from theory.ifca.common.checks import copies, row, tallies, unit
from theory.ifca.common.linear import (
    Setting,
    as_printed,
    follow,
    follow_all,
    start,
    start_margins,
    tightest,
)
from theory.ifca.common.raw_data import Problem, draw_gradients
from theory.ifca.lemma1 import C1, C2
from theory.rows import listed

PRINTED = "ifca.thm1"

# Of the printed form: generous, and made harmless by n'.
_PRINTED = {"c2": 10.0, "c3": 1.0, "c4": 1.0}

_STEPS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.75)  # c1
_RAW_FAILURE = 0.1  # of the claim that raw data are held against
_HINDSIGHT = np.linspace(0, 1.5, 301)  # c1, one of which is picked after the round


def least_factor(small_share: float) -> float:
    """min over c1 of the larger of |1 - 2 c1| and |1 - 2 c1 p_max/p|, two clusters."""
    ratio = (1 - small_share) / small_share
    return (ratio - 1) / (ratio + 1)


def violations(
    errors: Float[np.ndarray, "trials rounds clusters"], floor: float
) -> Bool[np.ndarray, " trials"]:
    """Whether |theta_j+ - theta_j*| <= |theta_j - theta_j*|/2 + floor fails for a j."""
    kept = errors[:, 1] <= errors[:, 0] / 2 + floor  # false where one is not a number
    return ~np.all(kept, axis=-1)


def second_and_third(
    setting: Setting, c2: float = 3.0, c3: float = 0.0, c4: float = 1.0
) -> float:
    """Second and third term of (1), Delta = 1."""
    rho, share = setting.noise**-2, min(setting.shares)
    rows = setting.num_clients * setting.num_samples
    form = (setting.alpha * rho / (rho + 1)) ** 2
    noise = c2 * setting.noise / share * np.sqrt(setting.num_features / rows)
    return float(noise + c3 * np.exp(-c4 * form * setting.num_samples))


def _unbalanced(small_share: float) -> Setting:
    return Setting(1e4, 1e4, 100.0, 0.01, (small_share, 1 - small_share))


def check_printed(preset: Preset, *, small_share: float = 0.2) -> Verdict:
    """(1) with the best of many c1: by law, and on raw data with hindsight. The claim
    is that some c1 keeps P((1) fails) below 1/m. It is judged at the c1 that fails
    least often; the raw data choose a c1 for every single round."""
    one = _unbalanced(small_share)
    runs = follow_all(
        preset,
        f"{PRINTED}.{small_share}",
        tuple(one._replace(step=step) for step in _STEPS),
        batches=preset.choose(quick=1, full=5),
    )
    floor = second_and_third(one, **_PRINTED)
    events = np.array([violations(run.errors, floor) for run in runs])
    best = int(np.argmin(np.sum(events, axis=1)))
    by_law = at_most(
        PRINTED,
        tally(events[best]),
        1 / one.num_clients,
        error_rate=ERROR_RATE / 2 / len(_STEPS),
    )
    hindsight = _raw_violations(preset, small_share)
    raw = at_most(PRINTED, tally(hindsight), _RAW_FAILURE, error_rate=ERROR_RATE / 2)
    detail = (
        f"p = ({small_share:g}, {1 - small_share:g}): no c1 makes all factors "
        f"smaller than {least_factor(small_share):.2f}; (1) fails in "
        f"{np.mean(events[best]):.1%} of rounds at the best of {len(_STEPS)} c1 by law "
        f"({by_law.status.value}), on raw data in {np.mean(hindsight):.1%} at a c1 "
        f"chosen afterwards ({raw.status.value})"
    )
    return combine(PRINTED, [raw, by_law], detail=detail)


def _raw_problem(small_share: float) -> Problem:
    few, clients = round(120 * small_share), 120
    truths = np.zeros((2, 8))
    truths[:, 0] = 0.5, -0.5
    return Problem(truths, (few, clients - few), 230, 1e-3)


def _raw_setting(small_share: float) -> Setting:
    truths, clients, samples, noise = _raw_problem(small_share)
    sizes = float(sum(clients)), float(samples), float(truths.shape[1])
    return Setting(*sizes, noise, (small_share, 1 - small_share))


@functools.lru_cache(maxsize=2)
def _raw_violations(preset: Preset, small_share: float) -> Bool[np.ndarray, " trials"]:
    """Rounds that violate (1) at every c1 of a fine grid."""
    problem = _raw_problem(small_share)
    generator = preset.generator(PRINTED, round(100 * small_share))
    trials = preset.choose(quick=60, full=400)
    away = generator.standard_normal((trials, *problem.truths.shape))
    away /= 4 * np.linalg.norm(away, axis=-1, keepdims=True)  # alpha = 1/4
    models = problem.truths + away
    gradients = draw_gradients(generator, problem, models)
    floor = second_and_third(_raw_setting(small_share), **_PRINTED)
    # A step is linear in gamma: one gradient serves every c1.
    steps = _HINDSIGHT[:, None, None] / small_share
    moved = (models - problem.truths)[:, None] - steps * gradients.mean[:, None]
    errors = np.linalg.norm(moved, axis=-1)
    each = np.stack([np.broadcast_to(errors[:, :1], errors.shape), errors], axis=2)
    failed = violations(each.reshape(-1, 2, 2), floor)
    return np.all(failed.reshape(trials, -1), axis=1)


EXPLICIT, VACUITY = "ifca.thm1.explicit", "ifca.thm1.explicit.vacuity"


def explicit_bound(
    errors: Float[np.ndarray, "*trials clusters"],
    effective_step: Numbers,
    num_rows: Numbers,
    *,
    num_features: Numbers,
    noise: float,
    constants: tuple[float, float] = (6.0, 2.0),
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
    rows = clients * problem.num_samples
    tail = law.log_product_tail(rows, num_features, 4 * num_features * rows)
    covariance = 2 * len(truths) * np.exp(-num_features / 2)
    astray = float(np.sum(clients * np.sum(each, axis=1)) + covariance)
    return astray + float(np.sum(np.exp(tail)))


def failure_at_start(setting: Setting) -> float:
    """delta where a run of `follow` is started."""
    truths, models = start(setting)
    sizes = tuple(round(share * setting.num_clients) for share in setting.shares)
    problem = Problem(truths, sizes, round(setting.num_samples), setting.noise)
    return explicit_failure(problem, models, setting.num_features)


def printed_failure(num_models: int, num_features: int) -> float:
    """2 k exp(-d/2) + 2 k exp(-0.1534 d), Lemma 2's tail by its explicit constants. For
    N >= d, and without the clients' part."""
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
    (Setting(1e5, 1e4, 9.0, 0.02, (0.5, 0.5), step=0.5, alpha=0.1), 3),
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
    preset: Preset, *, constants: tuple[float, float] = (6.0, 2.0)
) -> Verdict:
    """How often the conclusion fails, by law and on raw data, against delta.
    `constants` are those of the two terms with sqrt(d/N)."""
    cases = _cases(preset, constants)
    rates = [f"{np.mean(one.failed):.2g} <= {one.failure:.2g}" for one in cases]
    return _judge_cases(
        EXPLICIT,
        cases,
        detail=f"fails in {', '.join(rates)}, the last on raw data; if nobody is "
        f"misassigned, with up to {max(one.worst for one in cases):.2f} of what is "
        "allowed beyond |1 - x_j|",
    )


def _judge_cases(
    statement: str,
    cases: tuple[_Case, ...],
    *,
    detail: str,
    error_rate: float = ERROR_RATE,
) -> Verdict:
    return at_most(
        statement,
        tallies(one.failed for one in cases),
        np.array([one.failure for one in cases]),
        error_rate=error_rate,
        detail=detail,
    )


# The largest d at which the printed probability is vacuous, for k models.
_VACUOUS = ((2, 9), (4, 13), (10, 19))


def check_vacuity(preset: Preset, *, exact: bool = False) -> Verdict:
    """The same rounds at d <= 9 against delta with exp(-0.1534 d) for Lemma 2's tail.
    With `exact`, the exact tail and the constants 1 and 1: a claim that says
    something."""
    constants = (1.0, 1.0) if exact else (6.0, 2.0)
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
        tuple(cases),
        detail=f"delta {listed((one.failure for one in cases), '.2f')} at d = 7, 8, "
        f"9 and k = 2; with 0.1534 d it is below 1 from d = {first[:3]} and below 0.05 "
        f"from d = {first[3:]} for k = 2, 4, 10",
    )


CORRECTED = "ifca.thm1.corrected"

# Shares, and c1 between 1/4 and 3 p/(4 p_max), close to both ends.
_ADMITTED = (
    *((0.5, 0.252), (0.5, 0.5), (0.5, 0.748)),
    *((0.3, 0.252), (0.3, 0.32), (0.26, 0.252), (0.26, 0.2625)),
)
_REFUSED = ((0.5, 0.8), (0.5, 1.25), (0.3, 0.35))


def _similar(small_share: float, step: float) -> Setting:
    shares = (small_share, 1 - small_share)
    return Setting(1e6, num_features=8.0, noise=0.1, shares=shares, step=step)


def check_corrected(preset: Preset, *, admitted: bool = True) -> Verdict:
    """(1) with c2 = 3 and c3 = 0, at c1 close to the ends of what is admitted. With the
    full preset also for four clusters. Without `admitted` just outside, and at gamma p
    = 1.25: the claim is then judged at the c1 that fails least often."""
    cases = _two_clusters(preset, admitted)
    if admitted:
        cases += () if preset.name == "quick" else _four(preset)
    judged = cases if admitted else (min(cases, key=lambda one: np.sum(one.failed)),)
    rates = ", ".join(f"{np.mean(one.failed):.1%} at {one.label}" for one in cases)
    return _judge_cases(
        CORRECTED,
        judged,
        error_rate=ERROR_RATE if admitted else ERROR_RATE / len(cases),
        detail=f"(1) fails in {rates}; {judged[0].failure:.3f} allowed",
    )


def _two_clusters(preset: Preset, admitted: bool) -> tuple[_Case, ...]:
    pairs = _ADMITTED if admitted else _REFUSED
    settings = tuple(_similar(*pair) for pair in pairs)
    batches = preset.choose(quick=3, full=20)
    runs = follow_all(preset, f"{CORRECTED}.{admitted}", settings, batches=batches)
    return tuple(
        _Case(
            violations(run.errors, second_and_third(setting)),
            failure_at_start(setting),
            f"p = {share:g}, c1 = {step:g}",
        )
        for (share, step), setting, run in zip(pairs, settings, runs, strict=True)
    )


def _four(preset: Preset) -> tuple[_Case, ...]:
    """Four equal clusters, exactly in law, models in random directions: alpha = 0.1."""
    trials, noise, samples, features = 2000, 0.5, 800, 12.0
    truths = np.eye(4, 12) / np.sqrt(2)
    generator = preset.generator(CORRECTED)
    away = generator.standard_normal(truths.shape)
    models = truths + 0.4 * away / np.linalg.norm(away, axis=1, keepdims=True)
    population = law.population(
        truths,
        num_models=4,
        num_clients=np.full(4, 250.0),
        num_samples=float(samples),
        num_features=features,
        noise=noise,
    )
    problem = Problem(truths, (250,) * 4, samples, noise)
    allowed = explicit_failure(problem, models, features)
    floor = float(3 * noise * 4 * np.sqrt(features / (1000 * samples)))
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
        label = f"4 clusters, c1 = {step:g}"
        found.append(_Case(violations(errors, floor), allowed, label))
    return tuple(found)


def _corrected_margins() -> tuple[Margin, ...]:
    """Each condition where it is met least."""
    points = []
    for pair in _ADMITTED:
        setting = _similar(*pair)
        x, rows = setting.effective_steps, setting.num_rows
        factor = np.abs(1 - x) + 6 * x * np.sqrt(setting.num_features / rows)
        name = "|1 - x_j| + 6 x_j sqrt(d/N_j) <= 1/2"
        half = Margin(name, float(np.max(factor)), 0.5, at_least=False)
        points.append((*start_margins(setting, failure=0.1), half))
    return tightest(*points)


THIRD, MISASSIGNED = "ifca.thm1.third_term", "ifca.thm1.misassigned"

_EDGE_FAILURE = 0.1

# At the edge of what Assumption 2 asks of n' with C = 2, delta = 0.1.
_EDGE_SETTINGS = (
    Setting(100.0, 1800.0, 8.0, 0.3, step=0.375, alpha=0.1),
    Setting(1e4, 2310.0, 8.0, 1.0, step=0.375, alpha=0.2),
    Setting(1e4, 120.0, 8.0, 0.1, (0.3, 0.7), step=0.3, alpha=0.45),
)


def log_threshold(setting: Setting) -> float:
    """log of c6 exp(-(c8/2) (alpha rho/(rho + 1))^2 n'), the threshold in (12). With
    c6, c7 of Lemma 1 and the largest c8 that (11) allows: m <= exp((c7 - c8) (...)^2
    n')."""
    rho = setting.noise**-2
    form = (setting.alpha * rho / (rho + 1)) ** 2 * setting.num_samples
    return float(np.log(C1) - (C2 * form - np.log(setting.num_clients)) / 2)


def check_third_term(preset: Preset, *, share: float = 1.0) -> Verdict:
    """Whether (1) ever needs its third term: VACUOUS if it never does.

    Two findings make it so: the threshold is below 1, so that the event of (12) is that
    nobody is misassigned, T2 = 0; and with probability 1 - delta nobody is misassigned
    and (1) holds with c3 = 0. `share` is that of the n' that Assumption 2 asks for; far
    below 1 clients go astray.
    """
    settings = tuple(
        one._replace(num_samples=float(np.ceil(share * one.num_samples)))
        for one in _EDGE_SETTINGS
    )
    batches = preset.choose(quick=3, full=30)
    runs = follow_all(preset, f"{THIRD}.{share}", settings, batches=batches)
    events = np.array(
        [
            violations(run.errors, second_and_third(one)) | (run.misassigned[:, 0] > 0)
            for one, run in zip(settings, runs, strict=True)
        ]
    )
    logs = np.array([log_threshold(one) for one in settings])
    found = combine(
        THIRD,
        [
            at_most(THIRD, tally(events), _EDGE_FAILURE),
            never_exceeds(THIRD, logs, 0.0, rounding=1e-12, logarithmic=True),
        ],
        detail=f"threshold of (12) at most {np.exp(np.max(logs)):.2g}; (1) fails "
        "without its third term, or somebody is misassigned, in "
        f"{listed(np.mean(events, axis=1), '.2%')} of the rounds",
    )
    if found.status is Status.HOLDS:
        return dataclasses.replace(found, status=Status.VACUOUS)
    return found


_FEW = 4  # samples, far fewer than log m times the constant of Assumption 2
_ASTRAY = Problem(np.array([[0.5, 0, 0], [-0.5, 0, 0]]), (12, 28), _FEW, 0.4)
_ASTRAY_MODELS = np.array([[0.3, 0.2, 0.0], [-0.4, 0.1, 0.2]])


def check_misassigned(preset: Preset, *, extra_samples: int = 0) -> Verdict:
    """Raw counts of foreign clients at both models: their binomial law and mean.
    `extra_samples` are added to n' in the law; anything but 0 falsifies it."""
    counts = _foreign(preset)
    truths, clients, _, noise = _ASTRAY
    kappa = law.misassignment_kappa(truths, _ASTRAY_MODELS, _ASTRAY_MODELS[::-1], noise)
    chance = law.misassignment_probability(kappa, _FEW + extra_samples)
    others = np.array(clients, float)
    laws = same_law(
        MISASSIGNED,
        list(counts),
        [functools.partial(_binomial, *pair) for pair in np.stack([others, chance]).T],
        resolution=preset.choose(quick=0.06, full=0.015),
        error_rate=ERROR_RATE / 2,
    )
    low, high = intervals.clopper_pearson(
        np.sum(counts, axis=1),
        others * counts.shape[1],
        error_rate=intervals.divide(ERROR_RATE / 2, len(counts)),
    )
    margin = preset.choose(quick=0.11, full=0.03)
    means = within(
        MISASSIGNED,
        (low / chance, high / chance),
        (1 - margin, 1 + margin),
        num_trials=counts.size,
        error_rate=ERROR_RATE / 2,
    )
    shown = ", ".join(
        f"{mean:.3f} ({exact:.3f})"
        for mean, exact in zip(np.mean(counts, axis=1), others * chance, strict=True)
    )
    detail = (
        f"n' = {_FEW}: mean raw counts (exact) {shown}; binomial law: "
        f"{laws.status.value}"
    )
    return combine(MISASSIGNED, [laws, means], detail=detail)


def _binomial(
    trials: float, chance: float, counts: Float[np.ndarray, " samples"]
) -> Float[np.ndarray, " samples"]:
    """P(Binomial <= count)."""
    below = np.clip(np.floor(counts), 0, trials)
    return np.where(counts < 0, 0.0, scipy.special.bdtr(below, int(trials), chance))


@functools.lru_cache(maxsize=1)
def _foreign(preset: Preset) -> Float[np.ndarray, "clusters trials"]:
    """Clients of the first cluster at the second model, and the other way round."""
    trials = preset.choose(quick=20_000, full=300_000)
    gradients = draw_gradients(
        preset.generator(MISASSIGNED), _ASTRAY, copies(_ASTRAY_MODELS, trials)
    )
    return np.stack([gradients.counts[:, 0, 1], gradients.counts[:, 1, 0]])


_EXPLICIT_PRECONDITIONS = (
    "models independent of both folds, one per cluster",
    "N_j = p_j m n' >= 4 d for all j",
)

STATEMENTS = (
    row(
        id=PRINTED,
        place="Theorem 1, (1)",
        text="with gamma = c1/p and probability 1 - 1/poly(m), for all j: "
        "|theta_j+ - theta_j*| <= |theta_j - theta_j*|/2 + c2 (sigma/p) "
        "sqrt(d/(m n')) + c3 exp(-c4 (alpha rho/(rho + 1))^2 n')",
        preconditions=(
            "Assumptions 1 and 2",
            "|theta_j - theta_j*| <= (1/2 - alpha) Delta, 0 < alpha < 1/2",
        ),
        constants=_PRINTED,
        claimed="c1 to c4 universal, unnamed",
        expected=Status.VIOLATED,
        check=check_printed,
        control={"small_share": 0.1},
        margins=lambda: as_printed(
            start_margins(_unbalanced(0.2)),
            start_margins(_raw_setting(0.2), failure=_RAW_FAILURE),
        ),
        note="False whenever p_max > 3 p, for every c1: no |1 - 2 c1 p_j/p| <= 1/2 for "
        "all j. Larger c2, c3 or smaller c4 do not help: their terms vanish as n' "
        "grows. The control is the counterexample p = (0.1, 0.9).",
    ),
    row(
        id=EXPLICIT,
        place="Theorem 1, explicit form",
        text="|theta_j+ - theta_j*| <= (|1 - x_j| + 6 x_j sqrt(d/N_j)) |theta_j - "
        "theta_j*| + 2 x_j sigma sqrt(d/N_j) for all j and nobody misassigned, but "
        "with probability sum m_l q(kappa_lj) + 2 k exp(-d/2) + sum P(chi2_N chi2_d > "
        "4 d N)",
        preconditions=_EXPLICIT_PRECONDITIONS,
        constants={"of |theta_j - theta_j*|": 6.0, "of sigma": 2.0},
        claimed="c1 to c4, the polynomial and those of Assumption 2, all unnamed",
        check=check_explicit,
        control={"constants": (1.0, 1.0)},
        note="What the proof of Theorem 1 gives when followed with exact laws: no 1/p "
        "and no exponential term. The control has 1 for 6 and for 2, the typical size "
        "of both terms.",
    ),
    row(
        id=VACUITY,
        place="Theorem 1, explicit form with Lemma 2's constants",
        text="the same, but with probability ... + 2 k exp(-d/2) + 2 k "
        "exp(-0.1534 d), at d <= 9 for k = 2",
        preconditions=_EXPLICIT_PRECONDITIONS,
        constants={"c3 of Lemma 2": 0.1534},
        claimed="d >~ log m, constant unnamed",
        expected=Status.VACUOUS,
        check=check_vacuity,
        control={"exact": True},
        note="At 1 or more a bound on a probability says nothing: d >= 10, 14, 20 are "
        "needed for k = 2, 4, 10, and d >= 29, 34, 40 for 0.05. With the exact tail "
        "d = 3 is enough for k = 2. The control has the exact tail and claims the "
        "constants 1 and 1.",
    ),
    row(
        id=CORRECTED,
        place="Theorem 1, (1)",
        text="if p_max <= 3 p, c1 lies in [1/4, 3 p/(4 p_max)] and |1 - x_j| + 6 x_j "
        "sqrt(d/(p_j m n')) <= 1/2, x_j = 2 c1 p_j/p, then (1) holds with c2 = 3, c3 = "
        "0, except with the explicit form's probability",
        preconditions=("Assumptions 1 and 2, alpha >= alpha0", "p_max <= 3 p"),
        constants={"c2": 3.0, "c3": 0.0},
        claimed="c1 to c4 universal, unnamed",
        check=check_corrected,
        control={"admitted": False},
        margins=_corrected_margins,
        note="Dividing by |S_j| instead of m removes the condition on p_max: the "
        "factor is then |1 - 2 gamma| for all clusters. The control claims the best of "
        "c1 = 0.8 and gamma p = 1.25 for equal clusters, and of c1 = 0.35 for p = "
        "(0.3, 0.7), where at most 0.32 is admitted.",
    ),
    row(
        id=THIRD,
        place="Theorem 1, third term of (1), by (9) and (12)",
        text="... + c3 exp(-c4 (alpha rho/(rho + 1))^2 n'), from |S_1 and not S_1*| <= "
        "c6 exp(-(c8/2) (alpha rho/(rho + 1))^2 n')",
        preconditions=("Assumptions 1 and 2, alpha >= alpha0", "p_max <= 3 p"),
        constants={"c3 that is enough": 0.0, "c6": C1},
        claimed="c3, c4 > 0, unnamed",
        expected=Status.VACUOUS,
        check=check_third_term,
        control={"share": 1 / 16},
        margins=functools.partial(
            start_margins, *_EDGE_SETTINGS, failure=_EDGE_FAILURE
        ),
        note="The count is an integer and the threshold below 1: the event is that "
        "nobody is misassigned, and already the first assignment is the true one. The "
        "control has a sixteenth of the samples, where clients go astray.",
    ),
    row(
        id=MISASSIGNED,
        place="Theorem 1, third term of (1), by (10)",
        text="E|S_1 and not S_1*| = sum over l != 1 of p_l m P(argmin = 1 | l), and "
        "for k = 2 the count is binomial with the exact chance of Student's law",
        preconditions=("models independent of the fold", "any n' >= 1"),
        check=check_misassigned,
        control={"extra_samples": 1},
        note="Not in the paper. A meaningful third term is the fraction E|...|/(p m), "
        "for n' below what Assumption 2 asks for. The control has one sample more.",
    ),
)
