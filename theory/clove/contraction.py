"""Lemma A.13 and Corollary A.14: what one gradient step does to an error e.

Lemma A.13 asks for eta <= (1 - Delta/(3c))/2, but 3 |1 - 2 eta| <= Delta/c means that
eta lies within Delta/(6c) of 1/2; and it ends with Delta/c + (c2 + c3) Delta < Delta/c.
What does hold for N >= 4 d, eps = sqrt(d/N), except with probability 4 exp(-d/2), is
|e+| <= (|1 - 2 eta| + 12 eta eps) |e| + 6 eta sigma eps.

Corollary A.14 fails at the floor: E|e+|^2 = r |e|^2 + 4 eta^2 sigma^2 d/N exactly.
"""

import functools
import zlib
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import intervals, law
from theory.judges import ERROR_RATE, at_most, tally, within
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict, combine

__all__ = [
    "STATEMENTS",
    "Step",
    "check_bound",
    "check_contracts",
    "check_lemma",
    "check_moment",
]

LEMMA, COROLLARY = "clove.lemA13", "clove.corA14"

_TARGET = 0.25  # Delta/c with Delta = 1, c = 4
_PRINTED = 0.5 * (1 - 1 / 12)


class Step(NamedTuple):
    """One step from |e| = `length`."""

    step_size: float
    length: float
    num_features: int
    num_rows: int
    noise: float = 0.1


# All allowed by Lemma A.13 as printed: eta <= (1 - Delta/(3c))/2, |e| <= 3.
_ALLOWED = tuple(
    Step(step_size, length, features, rows)
    for step_size in (0.0, 0.01, 0.1, 0.25, _PRINTED)
    for length in (np.sqrt(2), 3.0)
    for features, rows in ((10, 10_000), (10, 1_000_000))
)
# Within Delta/(12c) of 1/2, with N large enough that the noise takes the other half.
_CORRECTED = tuple(
    Step(step_size, length, features, 40_000 * features)
    for step_size in (0.5 - 1 / 48, 0.5, 0.5 + 1 / 48)
    for length in (np.sqrt(2), 3.0)
    for features in (6, 10)
)
_CELLS = tuple(
    Step(step_size, length, features, features * ratio)
    for step_size in (0.1, 0.4, 0.6)
    for length in (0.0, 1.0, 3.0)
    for features, ratio in ((6, 4), (10, 20))
)


@functools.lru_cache(maxsize=64)
def _after(preset: Preset, step: Step) -> Float[np.ndarray, " trials"]:
    """|e+| of independent trials."""
    trials = preset.choose(quick=2000, full=100_000)
    name = f"{LEMMA} {step}".encode()
    seed = int(preset.generator(LEMMA, zlib.crc32(name)).integers(2**31))
    return law.gradient_steps(
        seed,
        np.full(trials, step.length),
        num_features=step.num_features,
        num_rows=step.num_rows,
        noise=step.noise,
        step_size=step.step_size,
    )[1]


def check_lemma(
    preset: Preset, *, name: str, steps: tuple[Step, ...], target: float = _TARGET
) -> Verdict:
    """P(|e+| > `target`) <= 4 exp(-d/2) at every step."""
    events = np.array([_after(preset, step) > target for step in steps])
    features = np.array([step.num_features for step in steps], float)
    share = np.mean(events, axis=1)
    return at_most(
        name,
        tally(events),
        4 * np.exp(-features / 2),
        detail=f"{len(steps)} steps, {events.shape[1]} trials each: |e+| > Delta/c = "
        f"{target:g} in {np.min(share):.2g} to {np.max(share):.2g} of them",
    )


def check_bound(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """P(|e+| > `factor` ((|1-2 eta| + 12 eta eps)|e| + 6 eta sigma eps)) <= 4 "
    "e^{-d/2}."""
    events, reach = [], []
    for step in _CELLS:
        share = np.sqrt(step.num_features / step.num_rows)
        slope = abs(1 - 2 * step.step_size) + 12 * step.step_size * share
        bound = slope * step.length + 6 * step.step_size * step.noise * share
        found = _after(preset, step)
        events.append(found > factor * bound)
        reach.append(np.max(found) / bound)
    features = np.array([step.num_features for step in _CELLS], float)
    return at_most(
        f"{LEMMA}.bound",
        tally(np.array(events)),
        4 * np.exp(-features / 2),
        detail=f"{len(_CELLS)} steps with N = 4 d and 20 d: |e+| over the bound is at "
        f"most {min(reach):.2f} to {max(reach):.2f}",
    )


def _near_floor(shares: tuple[float, ...]) -> tuple[tuple[Step, ...], float]:
    """Steps from shares of the floor phi, at the paper's eta, and phi."""
    features, rows, noise = 10, 10_000, 0.1
    floor = float(law.error_floor(features, rows, _PRINTED, noise))
    steps = [Step(_PRINTED, share * floor, features, rows, noise) for share in shares]
    return tuple(steps), floor


def check_contracts(
    preset: Preset,
    *,
    name: str,
    shares: tuple[float, ...] = (0.0, 0.1, 1.0, 3.0, 30.0),
    fraction: float = 1.0,
) -> Verdict:
    """P(|e+| >= `fraction` |e|) <= 4 exp(-d/2) from `shares` of the floor."""
    steps, floor = _near_floor(shares)
    events = np.array([_after(preset, one) >= fraction * one.length for one in steps])
    found = ", ".join(f"{share:.2g}" for share in np.mean(events, axis=1))
    return at_most(
        name,
        tally(events),
        np.full(len(steps), 4 * np.exp(-5.0)),
        detail=f"phi = {floor:.4f}; from {', '.join(map(str, shares))} phi the error "
        f"is not below {fraction:g} of itself in {found}",
    )


def check_moment(preset: Preset, *, noise_factor: float = 1.0) -> Verdict:
    """E|e+|^2 = r |e|^2 + 4 eta^2 sigma^2 d/N, more than |e|^2 just below the floor."""
    steps, floor = _near_floor((0.0, 0.5, 1.0, 2.0, 30.0))
    squares = np.array([_after(preset, step) for step in steps]) ** 2
    length = np.array([step.length for step in steps])
    ratio = law.contraction(10, 10_000, _PRINTED)
    added = 4 * _PRINTED**2 * 0.01 * 10 / 10_000 * noise_factor
    exact = ratio * length**2 + added
    low, high = intervals.student(squares, error_rate=ERROR_RATE / (2 * len(steps)))
    margin = np.full(len(steps), 0.1)
    moment = within(
        f"{COROLLARY}.corrected",
        (low / exact - 1, high / exact - 1),
        (-margin, margin),
        num_trials=squares.size,
    )
    away = length != floor
    grows = length < floor
    bands = np.where(grows, 0, -np.inf), np.where(grows, np.inf, 0)
    change = low - length**2, high - length**2
    sign = within(
        f"{COROLLARY}.corrected",
        (change[0][away], change[1][away]),
        (bands[0][away], bands[1][away]),
        num_trials=squares.size,
    )
    far = check_contracts(
        preset, name=f"{COROLLARY}.corrected", shares=(3.0, 30.0), fraction=0.9
    )
    return combine(
        f"{COROLLARY}.corrected",
        [moment, sign, far],
        detail=f"{len(steps)} errors around phi = {floor:.4f}: E|e+|^2 over the "
        f"formula {np.min(np.mean(squares, axis=1) / exact):.3f} to "
        f"{np.max(np.mean(squares, axis=1) / exact):.3f}; from 3 phi and 30 phi: "
        f"{far.status.value}",
    )


_DATA = "fresh samples, N = m_k n_k, clients of one cluster"
_row = functools.partial(Statement, paper="clove")


def _lemma_rows() -> tuple[Statement, ...]:
    printed = functools.partial(check_lemma, name=LEMMA, steps=_ALLOWED)
    corrected = functools.partial(
        check_lemma, name=f"{LEMMA}.corrected", steps=_CORRECTED
    )
    constants = {"c": 4.0, "c6": 4.0, "c7": 0.5}
    return (
        _row(
            id=LEMMA,
            place="Lemma A.13",
            text="|theta_k - theta_k*| <= Delta/c with probability >= 1 - c6 exp(-c7 "
            "d) for eta <= (1 - Delta/(3c))/2",
            preconditions=(_DATA, "|theta| <= 2", "Delta = 1, sigma = 0.1, d << N"),
            constants=constants,
            claimed="c6, c7, unnamed",
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, target=0.2),
            note="The bound on eta is the wrong way round, eta = 0 leaves the model "
            "where it was; and Delta/c + (c2 + c3) Delta < Delta/c cannot be, so that "
            "even the largest eta fails in half of the steps. No c6, c7 help. The "
            "control has 0.8 Delta/c.",
        ),
        _row(
            id=f"{LEMMA}.corrected",
            place="Lemma A.13",
            text="|theta_k - theta_k*| <= Delta/c with probability >= 1 - 4 exp(-d/2) "
            "for |1 - 2 eta| <= Delta/(6c) and (36 + 6 sigma) eta sqrt(d/N) <= "
            "Delta/(2c)",
            preconditions=(_DATA, "|theta| <= 2", "N >= 4 d"),
            constants=constants,
            check=corrected,
            control=functools.partial(corrected, target=0.12),
            note="Holds for all theta at once, since the operator norm does not depend "
            "on theta; K clusters cost a factor K. Says nothing for d <= 2 log(4K). "
            "The control has about half of Delta/c.",
        ),
        _row(
            id=f"{LEMMA}.bound",
            place="Lemma A.13, its last display but two",
            text="|theta_k - theta_k*| <= (|1 - 2 eta| + 12 eta sqrt(d/N)) |theta - "
            "theta_k*| + 6 eta sigma sqrt(d/N) with probability >= 1 - 4 exp(-d/2)",
            preconditions=(_DATA, "N >= 4 d"),
            check=check_bound,
            control=functools.partial(check_bound, factor=0.3),
            note="What the proof gives, for every eta. The control has 0.3 of it.",
        ),
    )


STATEMENTS = (
    *_lemma_rows(),
    _row(
        id=COROLLARY,
        place="Corollary A.14",
        text="|theta_k - theta_k*| is a constant fraction smaller than |theta - "
        "theta_k*| for all |theta| < 2, with probability >= 1 - c6 exp(-c7 d)",
        preconditions=(_DATA, "eta = (1 - Delta/12)/2, Delta = 1, sigma = 0.1"),
        constants={"c6": 4.0, "c7": 0.5, "fraction": 1.0},
        claimed="constants unnamed; the proof adds |e| >> (c2 + c3) Delta",
        expected=Status.VIOLATED,
        check=functools.partial(check_contracts, name=COROLLARY),
        control=functools.partial(check_contracts, name=COROLLARY, fraction=0.9),
        note="From the truth itself every step leads away. The control asks for a "
        "fraction of 0.9.",
    ),
    _row(
        id=f"{COROLLARY}.corrected",
        place="Corollary A.14",
        text="E|theta_k - theta_k*|^2 = r |theta - theta_k*|^2 + 4 eta^2 sigma^2 d/N, "
        "r = (1 - 2 eta)^2 + 4 eta^2 (d + 1)/N, which is less iff |theta - theta_k*| > "
        "phi = 2 eta sigma sqrt(d/N)/sqrt(1 - r)",
        preconditions=(_DATA,),
        check=check_moment,
        control=functools.partial(check_moment, noise_factor=0.5),
        note="Beyond 3 phi errors shrink with high probability, too. The control has "
        "half of the noise.",
    ),
)
