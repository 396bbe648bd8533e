"""Theorem 4.2: |theta_k^(T) - theta_k*| <= Delta/c1^T, with high probability.

With noise there is a floor. Given all earlier rounds, e_T = (I - 2 eta S) e + (2 eta/N)
H' xi, and given H the second part is normal and centred: by Anderson's inequality the
first only takes probability away from a ball, so that P(|e_T| <= r) <= P(sigma chi_N
chi_d <= N r/(2 eta)), whatever was done before. As r = Delta/c1^T falls to 0, so does
this. Exact is E|e_T|^2 = r^T |e_0|^2 + (1 - r^T) phi^2.
"""

import functools

import numpy as np
from jaxtyping import Float

from cfljax import intervals, law
from theory.judges import ERROR_RATE, at_most, never_exceeds, tally, within
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "STATEMENTS",
    "check_certificate",
    "check_floor",
    "check_noiseless",
    "log_certificate",
]

THEOREM = "clove.thm42"

_FEATURES, _ROWS, _STEP = 10, 4000, 0.5 * (1 - 1 / 12)
_RATES = (1.1, 1.5, 2.0, 4.0)  # c1
_NOISES = (0.01, 0.1)
_ROUNDS = 12


def log_certificate(
    radius: Float[np.ndarray, " points"], noise: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    """Upper bound of log P(|e_T| <= radius), whatever the earlier rounds were."""
    reach = _ROWS * radius / (2 * _STEP * noise)
    above = law.log_product_tail(_ROWS, _FEATURES, reach**2)
    with np.errstate(divide="ignore"):  # 0 where rounding leaves no probability
        return np.log(np.maximum(-np.expm1(above), 0))


def check_certificate(
    preset: Preset, *, least: float = 0.5, num_rounds: int = 150
) -> Verdict:
    """P(|e_T| <= Delta/c1^T) >= `least` for T to `num_rounds`, against the "
    "certificate."""
    del preset
    rate, noise, rounds = (
        axis.ravel()
        for axis in np.meshgrid(_RATES, _NOISES, np.arange(1, num_rounds + 1.0))
    )
    found = np.exp(log_certificate(rate**-rounds, noise))
    loud = noise == max(_NOISES)
    first = [int(np.min(rounds[loud & (rate == c) & (found < 0.01)])) for c in _RATES]
    return never_exceeds(
        THEOREM,
        np.full(len(found), least),
        found,
        rounding=1e-10,
        detail=f"d = {_FEATURES}, N = {_ROWS}, sigma = 0.1: the probability is below "
        f"1 % from round {', '.join(map(str, first))} on for c1 = "
        f"{', '.join(map(str, _RATES))}",
    )


@functools.lru_cache(maxsize=4)
def _runs(
    preset: Preset, noise: float, start: float
) -> Float[np.ndarray, "rounds_1 trials"]:
    trials = preset.choose(quick=2000, full=100_000)
    seed = int(preset.generator(THEOREM, round(1000 * noise)).integers(2**31))
    return law.gradient_steps(
        seed,
        np.full(trials, start),
        num_features=_FEATURES,
        num_rows=_ROWS,
        noise=noise,
        step_size=_STEP,
        num_rounds=_ROUNDS,
    )


def check_noiseless(preset: Preset, *, rate: float = 4.0) -> Verdict:
    """P(|e_T| > Delta/`rate`^T) <= 1/100 for T = 1, ..., 12 without noise."""
    runs = _runs(preset, 0.0, float(np.sqrt(2)))[1:]
    rounds = np.arange(1, len(runs) + 1)
    events = runs > rate ** -rounds[:, None].astype(float)
    slope = float(np.mean(np.log(runs[-1] / runs[0]))) / (len(runs) - 1)
    return at_most(
        f"{THEOREM}.noiseless",
        tally(events),
        np.full(len(runs), 0.01),
        detail=f"{runs.shape[1]} runs of {len(runs)} rounds from |e_0| = sqrt(2): "
        f"error times {np.exp(slope):.4f} a round",
    )


def check_floor(preset: Preset, *, floor_factor: float = 1.0) -> Verdict:
    """E|e_T|^2 is r^T |e_0|^2 + (1 - r^T) phi^2 within a tenth, for T to 12."""
    noise, start = 0.1, float(np.sqrt(2))
    squares = _runs(preset, noise, start) ** 2
    rounds = np.arange(len(squares))[1:]
    ratio = float(law.contraction(_FEATURES, _ROWS, _STEP))
    floor = float(law.error_floor(_FEATURES, _ROWS, _STEP, noise)) * floor_factor
    exact = ratio**rounds * start**2 + (1 - ratio**rounds) * floor**2
    low, high = intervals.student(squares[1:], error_rate=ERROR_RATE / len(rounds))
    rest = float(np.sqrt(np.mean(squares[-1])))
    return within(
        f"{THEOREM}.corrected",
        (low, high),
        (0.9 * exact, 1.1 * exact),
        num_trials=squares.size,
        detail=f"sqrt(r) = {np.sqrt(ratio):.4f} a round down to phi = {floor:.5f}; "
        f"root mean square after 12 rounds {rest:.5f}",
    )


_PRECONDITIONS = (
    "clusters and matching right in every round, fresh samples, N = m_k n_k",
    "d = 10, N = 4000, Delta = 1, eta = (1 - Delta/12)/2",
)
_row = functools.partial(
    Statement, paper="clove", place="Theorem 4.2", preconditions=_PRECONDITIONS
)

STATEMENTS = (
    _row(
        id=THEOREM,
        text="|theta_k - theta_k*| <= Delta/c1^T after T rounds with high probability, "
        "c1 > 1 a constant",
        constants={"probability": 0.5, "c1 at least": 1.1},
        claimed="c1, unnamed; delta T << 1",
        expected=Status.VIOLATED,
        check=check_certificate,
        control=functools.partial(check_certificate, least=0.9),
        note="sigma = 0.01 and 0.1. The probability falls to 0 for every c1 > 1, as "
        "there is a floor; for a fixed T it takes N of order d (sigma c1^T/Delta)^2. "
        "Wrong clusterings add their own probability to the certificate. The control "
        "asks for 0.9.",
    ),
    _row(
        id=f"{THEOREM}.noiseless",
        text="|theta_k - theta_k*| <= Delta/4^T with probability >= 0.99 if sigma = 0",
        constants={"c1": 4.0, "T at most": float(_ROUNDS)},
        check=check_noiseless,
        control=functools.partial(check_noiseless, rate=12.0),
        note="Without noise the theorem is right, at a rate of 1/sqrt(r) = 10.4 a "
        "round in the mean square. The control has c1 = 12.",
    ),
    _row(
        id=f"{THEOREM}.corrected",
        text="E|theta_k - theta_k*|^2 = r^T |e_0|^2 + (1 - r^T) phi^2, r = (1 - 2 "
        "eta)^2 + 4 eta^2 (d + 1)/N, phi = 2 eta sigma sqrt(d/N)/sqrt(1 - r)",
        check=check_floor,
        control=functools.partial(check_floor, floor_factor=0.9),
        note="Geometric down to a floor of order sigma sqrt(d/N). Drawn from left to "
        "right are rounds 1 to 12, and a tenth around the law. The control has a floor "
        "of 0.9 phi.",
    ),
)
