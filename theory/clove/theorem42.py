"""Theorem 4.2 and Lemma A.13: what gradient steps do to the error of a model."""

import zlib
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from cfljax import intervals, law
from cfljax.statements import (
    ERROR_RATE,
    Constant,
    Evaluation,
    Grade,
    Margin,
    Preset,
    Simulation,
    Status,
    Step,
    Truth,
    Verdict,
    at_most,
    combine,
    exact,
    exactly,
    identity,
    never_exceeds,
    never_falls_below,
    tally,
    within,
)
from theory.clove.common.sharp import attained
from theory.glossary import parameter
from theory.rows import columns, listed, row

THEOREM = "clove.thm42"

_NUM_FEATURES, _ROWS, _STEP = 10, 4000, 0.5 * (1 - 1 / 12)
_RATES = (1.1, 1.5, 2.0, 4.0)  # c1
_NOISES = (0.01, 0.1)
_ROUNDS = 12


def log_certificate(
    radius: Float[np.ndarray, " points"], noise: Float[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    """Upper bound of log P(|e_T| <= radius), whatever the earlier rounds were."""
    reach = _ROWS * radius / (2 * _STEP * noise)
    above = law.log_product_tail(_ROWS, _NUM_FEATURES, reach**2)
    with np.errstate(divide="ignore"):  # 0 where rounding leaves no probability
        return np.log(np.maximum(-np.expm1(above), 0))


def check_certificate(
    _: Preset, name: str, *, least: float = 0.5, num_rounds: int = 150
) -> Verdict:
    """P(|e_T| <= Delta/c1^T) >= `least` for T to `num_rounds`, against the
    certificate."""
    grid = np.meshgrid(_RATES, _NOISES, np.arange(1, num_rounds + 1.0))
    rate, noise, rounds = (axis.ravel() for axis in grid)
    found = np.exp(log_certificate(rate**-rounds, noise))
    loud = noise == max(_NOISES)
    low = loud & (found < 0.01)
    first = [np.min(rounds[low & (rate == c)], initial=np.inf) for c in _RATES]
    detail = (
        rf"$d = {_NUM_FEATURES}$, $N = {_ROWS}$, $\sigma = 0.1$: the probability is "
        f"below 1 % from round {listed(first, 'g')} on for $c_1 = {listed(_RATES)}$"
    )
    return never_falls_below(
        name,
        found,
        np.full(len(found), least),
        rounding=1e-10,
        grade=Grade.EXACT,
        coordinates={"noise": noise, "rounds": rounds, "rate": rate},
        detail=detail,
    )


@lru_cache(maxsize=4)
def _runs(
    preset: Preset, noise: float, start: float
) -> Float[np.ndarray, "rounds_1 trials"]:
    return law.gradient_steps(
        int(preset.generator(THEOREM, round(1000 * noise)).integers(2**31)),
        np.full(preset.choose(quick=4000, full=100_000), start),
        num_features=_NUM_FEATURES,
        num_rows=_ROWS,
        noise=noise,
        step_size=_STEP,
        num_rounds=_ROUNDS,
    )


def check_noiseless(preset: Preset, name: str, *, rate: float = 4.0) -> Verdict:
    """P(|e_T| > Delta/`rate`^T) <= 1/100 for T = 1, ..., 12 without noise."""
    runs = _runs(preset, 0.0, float(np.sqrt(2)))[1:]
    rounds = np.arange(1.0, len(runs) + 1)
    events = runs > rate ** -rounds[:, None]
    slope = float(np.mean(np.log(runs[-1] / runs[0]))) / (len(runs) - 1)
    detail = (
        rf"{runs.shape[1]} runs of {len(runs)} rounds from $|e_0| = \sqrt{{2}}$: error "
        f"times {np.exp(slope):.4f} a round"
    )
    places = {"rounds": rounds}
    half = partial(at_most, name, error_rate=ERROR_RATE / 2)
    main = half(tally(events), 0.01, coordinates=places)
    # 2.75 times the rate is too fast for most runs in the end.
    fast = runs[-1] <= (2.75 * rate) ** -float(len(runs))
    most = half(tally(fast), 0.5, coordinates={"rounds": len(runs)})
    parts = ["rate", "faster"]
    return combine(name, [main, most], parts=parts, detail=detail)


_FIXED_ROUNDS = (1, 3, 6)


def enough_rows(num_rounds: float | int, constant: float, noise: float = 0.1) -> int:
    """N = `constant` d (1 + sigma c1^T/Delta)^2 at c1 = 4, Delta = 1."""
    return int(np.ceil(constant * _NUM_FEATURES * (1 + noise * 4.0**num_rounds) ** 2))


@lru_cache(maxsize=4)
def _at_the_end(preset: Preset, constant: float) -> Float[np.ndarray, "rounds trials"]:
    """|e_T| at each T of `_FIXED_ROUNDS`, with the rows that are enough for it."""
    found = []
    for rounds in _FIXED_ROUNDS:
        seed = int(preset.generator(f"{THEOREM}.fixed", rounds).integers(2**31))
        steps = law.gradient_steps(
            seed,
            np.full(preset.choose(quick=2500, full=100_000), np.sqrt(2)),
            num_features=_NUM_FEATURES,
            num_rows=enough_rows(rounds, constant),
            noise=0.1,
            step_size=_STEP,
            num_rounds=rounds,
        )
        found.append(steps[-1])
    return np.array(found)


def check_fixed(preset: Preset, name: str, *, constant: float = 200.0) -> Verdict:
    """P(|e_T| > Delta/4^T) <= 1/100 at T = 1, 3, 6 with N = `constant` d (1 + sigma
    4^T/Delta)^2."""
    ends = _at_the_end(preset, constant)
    target = 4.0 ** -np.array(_FIXED_ROUNDS, float)
    events = ends > target[:, None]
    rows = [enough_rows(rounds, constant) for rounds in _FIXED_ROUNDS]
    detail = (
        rf"$T = {listed(_FIXED_ROUNDS)}$, $N = {listed(rows)}$: $|e_T| 4^T/\Delta$ "
        f"is at most {listed(np.max(ends / target[:, None], axis=1), '.2f')}"
    )
    return at_most(
        name,
        tally(events),
        0.01,
        coordinates={"rounds": np.array(_FIXED_ROUNDS, float)},
        detail=detail,
    )


def _moment_steps(extra: int = 1) -> list[Step]:
    """E|e+|^2 = r |e|^2 + 4 eta^2 sigma^2 d/N, from moments of normal variables."""
    import sympy

    rows, d, eta, length, sigma = sympy.symbols("N d eta l sigma", positive=True)
    # E <h, e>^2 |h|^2 = |e|^2 E z^2 (z^2 + chi2_{d-1}), and pairs of different rows.
    same = rows * (3 + (d - 1)) * length
    other = rows * (rows - 1) * length
    second = (same + other) / rows**2
    ratio = (1 - 2 * eta) ** 2 + 4 * eta**2 * (d + extra) / rows
    mean = length - 4 * eta * length + 4 * eta**2 * second
    added = (2 * eta / rows) ** 2 * sigma**2 * rows * d
    x, floor = sympy.symbols("x floor", positive=True)
    return [
        identity(r"$E|(I - 2 \eta S) e|^2 = r |e|^2$", mean - ratio * length),
        identity(
            r"$E|(2 \eta/N) H' \xi|^2 = 4 \eta^2 \sigma^2 d/N$",
            added - 4 * eta**2 * sigma**2 * d / rows,
        ),
        identity(
            r"$r x + (1 - r) \varphi^2 - x = (1 - r)(\varphi^2 - x)$",
            ratio * x + (1 - ratio) * floor - x - (1 - ratio) * (floor - x),
        ),
    ]


def prove_floor(*, extra: int = 1) -> Sequence[Step]:
    r"""$E|e_T|^2 = r^T |e_0|^2 + (1 - r^T) \varphi^2$ for all $d$, $N$, $T$, $\eta$ and
    $\sigma$.

    $e^+ = (I - 2 \eta S) e + (2 \eta/N) H' \xi$, $S = H'H/N$ (clove.gradid), with $H$
    and $\xi$ fresh: given $e$ the two parts are uncorrelated, since $\xi$ has mean 0.
    $E S = I$ and $E e'S^2 e = N^{-2} \sum_{ij} E \langle h_i, e \rangle \langle h_i,
    h_j \rangle \langle h_j, e \rangle$; for $i \ne j$ a summand is $|e|^2$, for $i = j$
    it is $E \langle h, e \rangle^2 |h|^2 = (d + 2)|e|^2$, so that $E S^2 = (1 + (d +
    1)/N) I$. $E|H' \xi|^2 = \sigma^2 N d$. Hence $E(|e^+|^2 | e) = r |e|^2 + 4 \eta^2
    \sigma^2 d/N = r |e|^2 + (1 - r) \varphi^2$, and the same recursion for $E|e_T|^2 -
    \varphi^2$, which shrinks by $r$ a round.
    """
    return _moment_steps(extra)


def prove_moment(*, extra: int = 1) -> Sequence[Step]:
    r"""$E|e^+|^2 = r |e|^2 + 4 \eta^2 \sigma^2 d/N$, less than $|e|^2$ iff $|e| >
    \varphi$, $r < 1$.

    As `prove_floor`; $E|e^+|^2 - |e|^2 = (1 - r)(\varphi^2 - |e|^2)$.
    """
    return _moment_steps(extra)


def check_floor(preset: Preset, name: str, *, floor_factor: float = 1.0) -> Verdict:
    """E|e_T|^2 is r^T |e_0|^2 + (1 - r^T) phi^2 within a tenth, for T to 12."""
    noise, start = 0.1, float(np.sqrt(2))
    squares = _runs(preset, noise, start) ** 2
    rounds = np.arange(len(squares))[1:]
    ratio = float(law.contraction(_NUM_FEATURES, _ROWS, _STEP))
    floor = float(law.error_floor(_NUM_FEATURES, _ROWS, _STEP, noise)) * floor_factor
    mean = ratio**rounds * start**2 + (1 - ratio**rounds) * floor**2
    # Squares have no bound and no simple variance: Student's is nominal here,
    # and the proof is exact.
    low, high = intervals.student(squares[1:], error_rate=ERROR_RATE / len(rounds))
    rest = float(np.sqrt(np.mean(squares[-1])))
    return within(
        name,
        (low, high),
        (0.9 * mean, 1.1 * mean),
        num_trials=squares.size,
        grade=Grade.NOMINAL,
        coordinates={"rounds": rounds.astype(float)},
        detail=rf"$\sqrt{{r}} = {np.sqrt(ratio):.4f}$ a round down to $\varphi = "
        f"{floor:.5f}$; root mean square after 12 rounds {rest:.5f}",
    )


def _certified(
    rounds: float | int,
    d: float | int,
    n: float | int,
    members: float | int,
    noise: float | int,
    step_size: float | int,
    separation: float | int,
    rate: float | int = 2.0,
) -> Truth:
    """0, and the certificate: an upper bound of P(|e_T| <= Delta/c1^T)."""
    rows = float(n * members)
    if noise == 0 or rounds == 0:
        return Truth(0.0, 1.0, Grade.EXACT)
    reach = rows * separation * rate**-rounds / (2 * step_size * noise)
    above = float(law.log_product_tail(rows, d, reach**2))
    return Truth(0.0, float(-np.expm1(above)), Grade.EXACT)


_STEP_PARAMETERS = (
    parameter("d", 10),
    parameter("n", 100),
    parameter("members", 40),
    parameter("noise", 0.1),
    parameter("step_size", _STEP),
)


def _mean_square(
    rounds: float | int,
    d: float | int,
    n: float | int,
    members: float | int,
    noise: float | int,
    step_size: float | int,
) -> float:
    """E|e_T|^2 from |e_0| = sqrt(2)."""
    rows = n * members
    ratio = float(law.contraction(int(d), int(rows), step_size))
    added = 4 * step_size**2 * noise**2 * d / rows
    return 2 * ratio**rounds + added * sum(ratio**t for t in range(int(rounds)))


_PRINTED_EVALUATION = Evaluation(
    quantity=r"$P(|\theta_k - \theta_k^*| \le \Delta/2^T)$",
    parameters=(
        parameter("rounds", 10, most=1000),
        *_STEP_PARAMETERS,
        parameter("separation", 1.0, open=True),
    ),
    bound=lambda probability, **_: probability,
    truth=_certified,
    constants={"probability": Constant(0.5, origin='"high probability", chosen')},
    relation=">=",
    note="between 0 and what fresh noise of the last round allows (Anderson's "
    "inequality), $c_1 = 2$, clusters and matching right",
)

_FLOOR_EVALUATION = Evaluation(
    quantity=r"$E|\theta_k - \theta_k^*|^2$ after $T$ rounds from $|e_0| = "
    r"\sqrt{2}$",
    parameters=(parameter("rounds", 10, most=1000), *_STEP_PARAMETERS),
    bound=lambda rounds, d, n, members, noise, step_size: _by_formula(
        rounds, d, n * members, noise, step_size
    ),
    truth=lambda **values: exact(_mean_square(**values)),
    relation="=",
    note="the recursion, round by round, against the closed form",
)


def _by_formula(
    rounds: float | int,
    d: float | int,
    rows: float | int,
    noise: float | int,
    step_size: float | int,
) -> float:
    """r^T |e_0|^2 + (1 - r^T) phi^2."""
    ratio = float(law.contraction(int(d), int(rows), step_size))
    square = 4 * step_size**2 * noise**2 * d / rows / (1 - ratio)
    return ratio**rounds * 2 + (1 - ratio**rounds) * square


_theorem_row = partial(
    row,
    place="Theorem 4.2",
    preconditions=(
        "clusters and matching right in every round, fresh samples, $N = m_k n_k$",
        r"$d = 10$, $N = 4000$, $\Delta = 1$, $\eta = (1 - \Delta/12)/2$",
    ),
)

_THEOREM_ROWS = (
    _theorem_row(
        id=THEOREM,
        text=r"$|\theta_k - \theta_k^*| \le \Delta/c_1^T$ after $T$ rounds with high "
        "probability, $c_1 > 1$ a constant",
        constants={"probability": 0.5, "$c_1$ at least": 1.1},
        claimed=r"$c_1$, unnamed; $\delta T \ll 1$",
        expected=Status.VIOLATED,
        fault="reading",
        other_reading=f"{THEOREM}.fixed",
        check=check_certificate,
        control={"num_rounds": 2},
        evaluation=_PRINTED_EVALUATION,
        note=r"Read for all $T$, as it is printed; $\sigma = 0.01$ and 0.1. The "
        "probability falls to 0 for every $c_1 > 1$, as there is a floor; for a "
        r"fixed $T$ it takes $N$ of order $d (\sigma c_1^T/\Delta)^2$, and that "
        "reading is true. Wrong clusterings add their own probability to the "
        "certificate. The control stops after 2 rounds.",
    ),
    _theorem_row(
        id=f"{THEOREM}.fixed",
        text=r"for every fixed $T$, $|\theta_k - \theta_k^*| \le \Delta/4^T$ with "
        r"probability $\ge 0.99$ if $N \ge C d (1 + \sigma 4^T/\Delta)^2$",
        constants={"c1": 4.0, "C": 200.0, "$T$ at most": float(_FIXED_ROUNDS[-1])},
        claimed=r"$c_1$, unnamed; $d \ll m_k n_k$ in the proof of Lemma A.13",
        check=check_fixed,
        control={"constant": 20.0},
        note="The reading with $T$ fixed and $N$ large enough for it: rounds are "
        r"bought with samples, by a factor $c_1^2$ for each. $d = 10$, $\sigma = "
        "0.1$. The control has $C = 20$.",
    ),
    _theorem_row(
        id=f"{THEOREM}.noiseless",
        text=r"$|\theta_k - \theta_k^*| \le \Delta/4^T$ with probability $\ge 0.99$ "
        r"if $\sigma = 0$",
        constants={"c1": 4.0, "$T$ at most": float(_ROUNDS)},
        check=check_noiseless,
        control={"rate": 12.0},
        note=r"Without noise the theorem is right, at a rate of $1/\sqrt{r} = 10.4$ "
        "a round in the mean square. The control has $c_1 = 12$.",
    ),
    _theorem_row(
        id=f"{THEOREM}.corrected",
        text=r"$E|\theta_k - \theta_k^*|^2 = r^T |e_0|^2 + (1 - r^T) \varphi^2$, $r = "
        r"(1 - 2 \eta)^2 + 4 \eta^2 (d + 1)/N$, $\varphi = 2 \eta \sigma "
        r"\sqrt{d/N}/\sqrt{1 - r}$",
        check=check_floor,
        control={"floor_factor": 0.9},
        proof=prove_floor,
        proof_control={"extra": 2},
        evaluation=_FLOOR_EVALUATION,
        note=r"Geometric down to a floor of order $\sigma \sqrt{d/N}$. Drawn from "
        "left to right are rounds 1 to 12, and a tenth around the law. The control "
        r"has a floor of $0.9 \varphi$.",
    ),
)


LEMMA, COROLLARY = "clove.lemA13", "clove.corA14"

_TARGET = 0.25  # Delta/c with Delta = 1, c = 4
_PRINTED = 0.5 * (1 - 1 / 12)


class Move(NamedTuple):
    """One step from |e| = `length`."""

    step_size: float
    length: float
    num_features: int
    num_rows: int
    noise: float = 0.1


# All allowed by Lemma A.13 as printed: eta <= (1 - Delta/(3c))/2, |e| <= 3.
_ALLOWED = tuple(
    Move(step_size, length, features, rows)
    for step_size in (0.0, 0.01, 0.1, 0.25, _PRINTED)
    for length in (np.sqrt(2), 3.0)
    for features, rows in ((10, 10_000), (10, 1_000_000))
)
# Within Delta/(12c) of 1/2, with N large enough that the noise takes the other half.
_CORRECTED = tuple(
    Move(step_size, length, features, 40_000 * features)
    for step_size in (0.5 - 1 / 48, 0.5, 0.5 + 1 / 48)
    for length in (np.sqrt(2), 3.0)
    for features in (6, 10)
)
_CELLS = tuple(
    Move(step_size, length, features, features * ratio)
    for step_size in (0.1, 0.4, 0.6)
    for length in (0.0, 1.0, 3.0)
    for features, ratio in ((6, 4), (10, 20))
)


_QUIET = tuple(Move(step_size, 3.0, 10, 10**8) for step_size in (0.1, 0.4))


@lru_cache(maxsize=64)
def _after(preset: Preset, step: Move) -> Float[np.ndarray, " trials"]:
    """|e+| of independent trials."""
    name = f"{LEMMA} {step}".encode()
    return law.gradient_steps(
        int(preset.generator(LEMMA, zlib.crc32(name)).integers(2**31)),
        np.full(preset.choose(quick=2000, full=100_000), step.length),
        num_features=step.num_features,
        num_rows=step.num_rows,
        noise=step.noise,
        step_size=step.step_size,
    )[1]


def check_lemma(
    preset: Preset, name: str, *, steps: tuple[Move, ...], target: float = _TARGET
) -> Verdict:
    """P(|e+| > `target`) <= 4 exp(-d/2) at every step."""
    events = np.array([_after(preset, step) > target for step in steps])
    features = np.array([step.num_features for step in steps], float)
    share = np.mean(events, axis=1)
    detail = (
        rf"{len(steps)} steps, {events.shape[1]} trials each: $|e^+| > \Delta/c = "
        f"{target:g}$ in {np.min(share):.2g} to {np.max(share):.2g} of them"
    )
    return at_most(
        name,
        tally(events),
        4 * np.exp(-features / 2),
        coordinates=_places(steps),
        detail=detail,
    )


def _places(steps: Sequence[Move]) -> dict[str, Float[np.ndarray, " steps"]]:
    """The steps' coordinates, in the glossary's names."""
    return columns("step_size distance d n noise", steps)


def prove_direction(*, share: str = "0") -> Sequence[Step]:
    r"""At $\eta = 0$, which is at most $(1 - \Delta/(3c))/2$, the model stays where it
    is.

    $\Delta = 1$, $c = 4$, $|\theta - \theta^*| = \sqrt{2}$, as for orthogonal unit
    vectors: $|e^+| = |e| > 1/4$ with probability 1, whatever $d$; $1 - c_6 \exp(-c_7
    d)$ is positive for large $d$.
    """
    eta = Fraction(share)
    allowed = eta <= Fraction(1, 2) * (1 - Fraction(1, 12))
    kept = (1 - 2 * eta) ** 2 * 2  # |(1 - 2 eta) e|^2, H'H/N near I
    return [
        exactly(r"$\eta = 0$ is allowed", allowed),
        exactly("$|e|^2 = 2 > 1/16$", eta == 0 and kept > Fraction(1, 16)),
    ]


OPERATOR_CONSTANT = 6


def _log_failure(features: Any, log: Any = np.log) -> Any:
    """log(2 exp(-d/2)), in numbers or symbols."""
    return log(2) - features / 2


def _tails() -> Step:
    """Two tails of exp(-t^2/2) at t = sqrt(d) make the claimed probability."""
    import sympy

    t, d = sympy.symbols("t d", positive=True)
    both = sympy.log(2) - t**2 / 2
    return identity(
        r"$\log(2 \exp(-t^2/2))$ at $t = \sqrt{d}$",
        both.subs(t, sympy.sqrt(d)) - _log_failure(d, sympy.log),
    )


def _norm_steps(six: int = OPERATOR_CONSTANT, three: int = 3) -> list[Step]:
    """Bounds of |N I - H'H| and |H' xi| for eps = sqrt(d/N) <= 1/2."""
    import sympy

    eps = sympy.Symbol("eps", positive=True)
    return [
        identity(
            r"$6 \varepsilon - (4 \varepsilon + 4 \varepsilon^2) = 2 \varepsilon (1 - "
            r"2 \varepsilon)$",
            six * eps - 4 * eps - 4 * eps**2 - 2 * eps * (1 - 2 * eps),
        ),
        identity(
            r"$4 \varepsilon - 4 \varepsilon^2$ is the smaller side: $8 \varepsilon^2 "
            r"\ge 0$ between them",
            (4 * eps + 4 * eps**2) - (4 * eps - 4 * eps**2) - 8 * eps**2,
        ),
        identity(
            r"$3 - 2 (1 + \varepsilon) = 1 - 2 \varepsilon$",
            three - 2 * (1 + eps) - (1 - 2 * eps),
        ),
    ]


def prove_operator(*, six: int = OPERATOR_CONSTANT) -> Sequence[Step]:
    r"""$|N I - H'H| \le 6 \sqrt{d N}$ with probability $\ge 1 - 2 \exp(-d/2)$ for $N
    \ge 4 d$.

    All singular values $s$ of $H$ lie within $\sqrt{N}$ -$+ (\sqrt{d} + t)$ except with
    probability $2 \exp(-t^2/2)$ (Davidson and Szarek, 2001; Wainwright, 2019, Theorem
    6.1). With $t = \sqrt{d}$, $\varepsilon = \sqrt{d/N}$: $s$ within $\sqrt{N}$ (1 -$+
    2 \varepsilon$), and $|s^2 - N| \le N (4 \varepsilon + 4 \varepsilon^2)$, the larger
    side, which is at most $6 \varepsilon N = 6 \sqrt{d N}$ for $\varepsilon \le 1/2$.
    """
    return [*_norm_steps(six)[:2], _tails()]


def prove_noise(*, three: int = 3) -> Sequence[Step]:
    r"""$|H' \xi| \le 3 \sigma \sqrt{d N}$ with probability $\ge 1 - 2 \exp(-d/2)$ for
    $N \ge 4 d$.

    $|H' \xi| = |\xi| |H' u|$, $u = \xi/|\xi|$: $\sigma \chi_N \chi_d'$ in law,
    independent. By Gaussian concentration, as $E \chi_k \le \sqrt{k}$, $P(\chi_N >
    \sqrt{N} + \sqrt{d})$ and $P(\chi_d' > 2 \sqrt{d})$ are at most $\exp(-d/2)$ each.
    Else $\chi_N \chi_d' \le 2 \sqrt{d N} (1 + \varepsilon) \le 3 \sqrt{d N}$,
    $\varepsilon = \sqrt{d/N} \le 1/2$.
    """
    return [*_norm_steps(three=three)[2:], _tails()]


def prove_bound(*, twelve: int = 12) -> Sequence[Step]:
    r"""$|e^+| \le (|1 - 2 \eta| + 12 \eta \varepsilon)|e| + 6 \eta \sigma \varepsilon$
    with probability $\ge 1 - 4 \exp(-d/2)$, $\varepsilon = \sqrt{d/N} \le 1/2$.

    $e^+ = (1 - 2 \eta) e + (2 \eta/N)(N I - H'H) e + (2 \eta/N) H' \xi$ (clove.gradid);
    norms by `prove_operator` and `prove_noise`, each but for $2 \exp(-d/2)$. For all
    $\theta$ at once, as the operator norm does not depend on $\theta$.
    """
    import sympy

    eta, rows, d, sigma = sympy.symbols("eta N d sigma", positive=True)
    length = sympy.Symbol("length", positive=True)
    share = sympy.sqrt(d / rows)
    claimed = _step_bound(eta, length, share, sigma)
    whole = (abs(1 - 2 * eta) + twelve * eta * share) * length
    return [
        *_norm_steps(),
        identity("of the claim", claimed - whole - 6 * eta * sigma * share),
        identity(
            r"$(2 \eta/N) \cdot 6 \sqrt{d N} = 12 \eta \varepsilon$",
            2 * eta / rows * 6 * sympy.sqrt(d * rows) - twelve * eta * share,
        ),
        identity(
            r"$(2 \eta/N) \cdot 3 \sigma \sqrt{d N} = 6 \eta \sigma \varepsilon$",
            2 * eta / rows * 3 * sigma * sympy.sqrt(d * rows) - 6 * eta * sigma * share,
        ),
    ]


def prove_lemma(*, share: str = "1/2") -> Sequence[Step]:
    r"""$|e^+| \le \Delta/c$ with probability $\ge 1 - 4 \exp(-d/2)$ where $|1 - 2 \eta|
    \le \Delta/(6c)$ and $(36 + 6 \sigma) \eta \varepsilon \le \Delta/(2c)$, for all
    $|\theta| \le 2$.

    $|e| \le 2 + 1 = 3$, so by `prove_bound` $|e^+| \le 3 |1 - 2 \eta| + (36 + 6 \sigma)
    \eta \varepsilon \le \Delta/(2c) + \Delta/(2c)$.
    """
    import sympy

    eta, eps, sigma, reach = sympy.symbols("eta eps sigma reach", positive=True)
    half = sympy.Rational(share)
    return [
        *prove_bound(),
        identity(
            r"$12 \eta \varepsilon \cdot 3 + 6 \eta \sigma \varepsilon = (36 + 6 "
            r"\sigma) \eta \varepsilon$",
            12 * eta * eps * 3 + 6 * eta * sigma * eps - (36 + 6 * sigma) * eta * eps,
        ),
        identity("3 reach/6 + reach/2 = reach", 3 * reach / 6 + half * reach - reach),
    ]


def _step_bound(step_size: Any, length: Any, share: Any, noise: Any) -> Any:
    """(|1 - 2 eta| + 12 eta eps)|e| + 6 eta sigma eps, in numbers or symbols."""
    slope = abs(1 - 2 * step_size) + 12 * step_size * share
    return slope * length + 6 * step_size * noise * share


def check_bound(preset: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """P(|e+| > `factor` ((|1-2 eta| + 12 eta eps)|e| + 6 eta sigma eps)) <= 4
    e^{-d/2}."""
    events, reach = [], []
    for step in (*_CELLS, *_QUIET):
        share = np.sqrt(step.num_features / step.num_rows)
        bound = _step_bound(step.step_size, step.length, share, step.noise)
        found = _after(preset, step)
        events.append(found > factor * bound)
        reach.append(np.max(found) / bound)
    every, noisy = (*_CELLS, *_QUIET), reach[: len(_CELLS)]
    main = at_most(
        name,
        tally(np.array(events)),
        4 * np.exp(-np.array([step.num_features for step in every], float) / 2),
        coordinates=_places(every),
    )
    # With very many rows the first term is left alone, and an equality.
    last = attained(
        name,
        np.array(reach[len(_CELLS) :]) / factor,
        share=0.98,
        grade=Grade.SAMPLED,
    )
    detail = (
        f"{len(every)} steps: $|e^+|$ over the bound is at most {min(noisy):.2f} to "
        f"{max(noisy):.2f} with $N = 4 d$ and $20 d$, {max(reach):.3f} with $N = 10^7 "
        "d$"
    )
    return combine(name, [main, last], detail=detail)


def _near_floor(shares: tuple[float, ...]) -> tuple[tuple[Move, ...], float]:
    """Steps from shares of the floor phi, at the paper's eta, and phi."""
    features, rows, noise = 10, 10_000, 0.1
    floor = float(law.error_floor(features, rows, _PRINTED, noise))
    steps = [Move(_PRINTED, share * floor, features, rows, noise) for share in shares]
    return tuple(steps), floor


def check_contracts(
    preset: Preset,
    name: str,
    *,
    shares: tuple[float, ...] = (0.0, 0.1, 1.0, 3.0, 30.0),
    fraction: float = 1.0,
) -> Verdict:
    """P(|e+| >= `fraction` |e|) <= 4 exp(-d/2) from `shares` of the floor."""
    steps, floor = _near_floor(shares)
    events = np.array([_after(preset, one) >= fraction * one.length for one in steps])
    found = listed(np.mean(events, axis=1), ".2g")
    detail = (
        rf"$\varphi = {floor:.4f}$; from ${listed(shares)} \varphi$ the error is not "
        f"below {fraction:g} of itself in {found}"
    )
    bound, places = 4 * np.exp(-5.0), _places(steps)
    return at_most(name, tally(events), bound, coordinates=places, detail=detail)


def check_moment(preset: Preset, name: str, *, noise_factor: float = 1.0) -> Verdict:
    """E|e+|^2 = r |e|^2 + 4 eta^2 sigma^2 d/N, more than |e|^2 just below the floor."""
    steps, floor = _near_floor((0.0, 0.5, 1.0, 2.0, 30.0))
    squares = np.array([_after(preset, step) for step in steps]) ** 2
    length = np.array([step.length for step in steps])
    added = 4 * _PRINTED**2 * 0.01 * 10 / 10_000 * noise_factor
    claimed = law.contraction(10, 10_000, _PRINTED) * length**2 + added
    over = np.mean(squares, axis=1) / claimed
    # Nominal, as in `check_floor`; the proof is exact.
    low, high = intervals.student(squares, error_rate=ERROR_RATE / (2 * len(steps)))
    relative = low / claimed - 1, high / claimed - 1
    places = _places(steps)
    judged = partial(within, name, num_trials=squares.size)
    moment = judged(relative, (-0.1, 0.1), coordinates=places)
    away, grows = length != floor, (length < floor)[length != floor]
    bands = np.where(grows, 0, -np.inf), np.where(grows, np.inf, 0)
    change = (low - length**2)[away], (high - length**2)[away]
    places = {key: values[away] for key, values in places.items()}
    sign = judged(change, bands, coordinates=places)
    far = check_contracts(preset, name=name, shares=(3.0, 30.0), fraction=0.9)
    detail = (
        rf"{len(steps)} errors around $\varphi = {floor:.4f}$: $E|e^+|^2$ over the "
        rf"formula {np.min(over):.3f} to {np.max(over):.3f}; from $3 \varphi$ and $30 "
        rf"\varphi$: {far.status.value}"
    )
    return combine(name, [moment, sign, far], detail=detail)


def _draw_far(
    generator: np.random.Generator, trials: int, **values: float | int
) -> Bool[np.ndarray, " trials"]:
    """Whether |e+| > Delta/4."""
    steps = law.gradient_steps(
        int(generator.integers(2**31)),
        np.full(trials, values["distance"]),
        num_features=int(values["d"]),
        num_rows=int(values["n"] * values["members"]),
        noise=values["noise"],
        step_size=values["step_size"],
    )
    return np.asarray(steps[1] > values["separation"] / 4)


def _lemma_evaluation(*, corrected: bool) -> Evaluation:
    """Of P(|e+| > Delta/c), c = 4."""

    def margins(**values: float | int) -> tuple[Margin, ...]:
        eta, delta = values["step_size"], values["separation"]
        rows, d = values["n"] * values["members"], values["d"]
        near = Margin(
            rf"{LEMMA}: $|\theta - \theta_k^*| \le 3$", values["distance"], 3, False
        )
        if not corrected:
            text = rf"{LEMMA}: $\eta \le (1 - \Delta/(3c))/2$"
            return Margin(text, eta, (1 - delta / 12) / 2, at_least=False), near
        noise = (36 + 6 * values["noise"]) * eta * float(np.sqrt(d / rows))
        name = f"{LEMMA}.corrected"
        return (
            Margin(
                rf"{name}: $|1 - 2 \eta| \le \Delta/(6c)$",
                abs(1 - 2 * eta),
                delta / 24,
                False,
            ),
            Margin(
                rf"{name}: $(36 + 6 \sigma) \eta \sqrt{{d/N}} \le \Delta/(2c)$",
                noise,
                delta / 8,
                False,
            ),
            Margin(rf"{name}: $N \ge 4 d$", rows, 4 * d),
            near,
        )

    return Evaluation(
        quantity=r"$P(|\theta_k - \theta_k^*| > \Delta/4)$",
        parameters=(
            parameter("step_size", 0.5 if corrected else 0.25, least=0, open=False),
            parameter("distance", 2.0),
            parameter("d", 10),
            parameter("n", 10_000),
            parameter("members", 40),
            parameter("noise", 0.1),
            parameter("separation", 1.0, open=True),
        ),
        bound=lambda c6, c7, d, **_: c6 * float(np.exp(-c7 * d)),
        truth=Simulation(draw=_draw_far, numbers=lambda **_: 10.0),
        margins=margins,
        constants={
            "c6": Constant(4.0, 0.0, 4.0, "proved (clove.lemA13.corrected)"),
            "c7": Constant(0.5, 0.5, np.inf, "proved (clove.lemA13.corrected)"),
        },
        note="$c = 4$; steps by their exact law, which is free of $N$",
    )


def _corollary_evaluation(*, corrected: bool) -> Evaluation:
    """Of one step's factor in the mean square, from below the floor phi as printed."""

    def margins(distance: float | int, **values: float | int) -> tuple[Margin, ...]:
        text = rf"{COROLLARY}: $|\theta| < 2$, so $|\theta - \theta_k^*| < 3$"
        near = Margin(text, distance, 3, at_least=False)
        if not corrected:
            return (near,)
        rows = int(values["n"] * values["members"])
        shape = int(values["d"]), rows, values["step_size"]
        floor = float(law.error_floor(*shape, values["noise"]))
        text = rf"{COROLLARY}.corrected: $|\theta - \theta_k^*| \ge \varphi$"
        return near, Margin(text, distance, floor)

    return Evaluation(
        quantity=r"$E|\theta_k - \theta_k^*|^2/|\theta - \theta_k^*|^2$ after one "
        "step",
        parameters=(
            parameter("distance", 1.0 if corrected else 0.003, open=True),
            *_STEP_PARAMETERS,
        ),
        bound=lambda fraction, **_: fraction,
        truth=lambda distance, d, n, members, noise, step_size: exact(
            float(law.contraction(int(d), int(n * members), step_size))
            + 4 * step_size**2 * noise**2 * d / (n * members) / distance**2
        ),
        constants={"fraction": Constant(1.0, origin='"a constant fraction"')},
        margins=margins,
        note=r"$r + (1 - r) \varphi^2/|\theta - \theta_k^*|^2$",
    )


_DATA = "fresh samples, $N = m_k n_k$, clients of one cluster"

_STEP_ROWS = (
    row(
        id=LEMMA,
        place="Lemma A.13",
        text=r"$|\theta_k - \theta_k^*| \le \Delta/c$ with probability $\ge 1 - c_6 "
        r"\exp(-c_7 d)$ for $\eta \le (1 - \Delta/(3c))/2$",
        preconditions=(
            _DATA,
            r"$|\theta| \le 2$",
            r"$\Delta = 1$, $\sigma = 0.1$, $d \ll "
            "N$",
        ),
        constants={"c": 4.0, "c6": 4.0, "c7": 0.5},
        claimed="$c_6$, $c_7$, unnamed",
        expected=Status.VIOLATED,
        fault="printed",
        check=partial(check_lemma, steps=_ALLOWED),
        control={"steps": _CORRECTED},
        proof=prove_direction,
        proof_control={"share": "1/2"},
        evaluation=_lemma_evaluation(corrected=False),
        note=r"The bound on $\eta$ is the wrong way round, $\eta = 0$ leaves the "
        r"model where it was; and $\Delta/c + (c_2 + c_3) \Delta < \Delta/c$ cannot "
        r"be, so that even the largest $\eta$ fails in half of the steps. No $c_6$, "
        "$c_7$ help. The control has steps of the corrected lemma.",
    ),
    row(
        id=f"{LEMMA}.corrected",
        place="Lemma A.13",
        text=r"$|\theta_k - \theta_k^*| \le \Delta/c$ with probability $\ge 1 - 4 "
        r"\exp(-d/2)$ for $|1 - 2 \eta| \le \Delta/(6c)$ and $(36 + 6 \sigma) \eta "
        r"\sqrt{d/N} \le \Delta/(2c)$",
        preconditions=(_DATA, r"$|\theta| \le 2$", r"$N \ge 4 d$"),
        constants={"c": 4.0, "c6": 4.0, "c7": 0.5},
        check=partial(check_lemma, steps=_CORRECTED),
        control={"target": 0.12},
        proof=prove_lemma,
        proof_control={"share": "2/3"},
        evaluation=_lemma_evaluation(corrected=True),
        note=r"Holds for all $\theta$ at once, since the operator norm does not "
        r"depend on $\theta$; $K$ clusters cost a factor $K$. Says nothing for $d \le "
        r"2 \log(4K)$. The control has about half of $\Delta/c$.",
    ),
    row(
        id=f"{LEMMA}.bound",
        place="Lemma A.13, its last display but two",
        text=r"$|\theta_k - \theta_k^*| \le (|1 - 2 \eta| + 12 \eta \sqrt{d/N}) "
        r"|\theta - \theta_k^*| + 6 \eta \sigma \sqrt{d/N}$ with probability $\ge 1 "
        r"- 4 \exp(-d/2)$",
        preconditions=(_DATA, r"$N \ge 4 d$"),
        check=check_bound,
        control={"factor": 0.3},
        proof=prove_bound,
        proof_control={"twelve": 11},
        note=r"What the proof gives, for every $\eta$. 12 and 6 are loose: no draw "
        "with $N = 4 d$ or $20 d$ comes near the bound (see the detail), as 6 in "
        "clove.opnorm is about twice, and 3 in clove.noisenorm 1.5 times, what is "
        r"needed; $|1 - 2 \eta|$ cannot be less. The control has 0.3 of it.",
    ),
    row(
        id=COROLLARY,
        place="Corollary A.14",
        text=r"$|\theta_k - \theta_k^*|$ is a constant fraction smaller than $|\theta "
        r"- \theta_k^*|$ for all $|\theta| < 2$, with probability $\ge 1 - c_6 "
        r"\exp(-c_7 d)$",
        preconditions=(
            _DATA,
            r"$\eta = (1 - \Delta/12)/2$, $\Delta = 1$, $\sigma = "
            "0.1$",
        ),
        constants={"c6": 4.0, "c7": 0.5, "fraction": 1.0},
        claimed=r"constants unnamed; the proof adds $|e| \gg (c_2 + c_3) \Delta$",
        expected=Status.VIOLATED,
        fault="printed",
        check=check_contracts,
        control={"shares": (3.0, 30.0)},
        evaluation=_corollary_evaluation(corrected=False),
        note="From the truth itself every step leads away; the proof, not the "
        r"corollary, asks for $|e| \gg (c_2 + c_3) \Delta$. The control starts from 3 "
        "and 30 floors.",
    ),
    row(
        id=f"{COROLLARY}.corrected",
        place="Corollary A.14",
        text=r"$E|\theta_k - \theta_k^*|^2 = r |\theta - \theta_k^*|^2 + 4 \eta^2 "
        r"\sigma^2 d/N$, $r = (1 - 2 \eta)^2 + 4 \eta^2 (d + 1)/N$, which is less iff "
        r"$|\theta - \theta_k^*| > \varphi = 2 \eta \sigma \sqrt{d/N}/\sqrt{1 - "
        "r}$",
        preconditions=(_DATA, "$r < 1$"),
        check=check_moment,
        control={"noise_factor": 0.5},
        proof=prove_moment,
        proof_control={"extra": 2},
        evaluation=_corollary_evaluation(corrected=True),
        note=r"Beyond $3 \varphi$ errors shrink with high probability, too. The "
        "control has half of the noise.",
    ),
)


OPERATOR, NOISE, IDENTITY = "clove.opnorm", "clove.noisenorm", "clove.gradid"

_SHAPES = ((8, 2), (12, 3), (20, 5), (40, 10), (200, 10))  # N, d
_FEATURES = (1, 2, 3, 5, 10, 30, 100, 1000, 10_000)
_ROWS_PER_FEATURE = (4, 5, 10, 100, 10_000)


@lru_cache(maxsize=1)
def _deviations(preset: Preset) -> Float[np.ndarray, "points trials"]:
    """|N I - H'H|_op / sqrt(d N) on raw H."""
    trials, found = preset.choose(quick=2000, full=40_000), []
    for index, (rows, features) in enumerate(_SHAPES):
        generator, parts = preset.generator(OPERATOR, index), []
        for start in range(0, trials, 1000):
            size = (min(1000, trials - start), rows, features)
            inputs = generator.standard_normal(size)
            values = np.linalg.eigvalsh(inputs.swapaxes(1, 2) @ inputs) - rows
            parts.append(np.max(np.abs(values), axis=1) / np.sqrt(rows * features))
        found.append(np.concatenate(parts))
    return np.array(found)


def check_operator(
    preset: Preset, name: str, *, constant: float = OPERATOR_CONSTANT
) -> Verdict:
    """P(|N I - H'H| > `constant` sqrt(d N)) <= 2 exp(-d/2) on raw H, N >= 4 d."""
    deviations = _deviations(preset)
    high = np.quantile(deviations, 0.99, axis=1)
    rows, features = np.array(_SHAPES, float).T
    return at_most(
        name,
        tally(deviations > constant),
        np.exp(_log_failure(np.array([shape[1] for shape in _SHAPES], float))),
        coordinates={"d": features, "n": rows},
        detail=rf"{len(_SHAPES)} shapes, $N \ge 4 d$: 99 % of $|N I - H'H| / \sqrt{{d "
        f"N}}$ are below {np.min(high):.2f} to {np.max(high):.2f}",
    )


LEAST_NOISE = 1.967  # c1 that is enough at every shape


def check_noise(_: Preset, name: str, *, constant: float = LEAST_NOISE) -> Verdict:
    """P(chi_N chi'_d > `constant` sqrt(d N)) <= 2 exp(-d/2), exactly, N >= 4 d, and the
    exponent is reached."""
    grid = np.meshgrid(_FEATURES, _ROWS_PER_FEATURE)
    features, ratio = (axis.ravel() for axis in grid)
    rows = features * ratio
    found = law.log_product_tail(rows, features, constant**2 * rows * features)
    bound = _log_failure(features)
    main = never_exceeds(
        name,
        found,
        bound,
        rounding=1e-11 + 2e-13 * np.abs(found),
        logarithmic=True,
        grade=Grade.EXACT,
        coordinates={"d": features.astype(float), "n": rows.astype(float)},
    )
    detail = (
        rf"exact law at {len(rows)} shapes, $N$ from $4 d$ to $10^4 d$: $\log P - "
        rf"\log$ bound is at most {np.max(found - bound):.3g}"
    )
    reached = attained(name, bound[features > 2] / found[features > 2])
    return combine(name, [main, reached], detail=detail)


def check_identity(preset: Preset, name: str, *, factor: float = 2.0) -> Verdict:
    """theta_k - theta* = (I - `factor` eta S) e + (`factor` eta/N) H' xi, S = H'H/N,
    against gradients that are taken sample by sample."""
    generator = preset.generator(IDENTITY)
    shapes, gaps, scales = ((1, 1, 1), (3, 4, 2), (5, 2, 7), (2, 30, 10)), [], []
    for clients, samples, features in shapes:
        inputs = generator.standard_normal((clients, samples, features))
        noise = 0.3 * generator.standard_normal((clients, samples))
        truth, model = generator.standard_normal((2, features))
        step, rows = 0.4, clients * samples
        labels = inputs @ truth + noise
        gradients = np.zeros((clients, features))
        for client in range(clients):
            for x, y in zip(inputs[client], labels[client], strict=True):
                gradients[client] += 2 * (x @ model - y) * x / samples
        found = model - step / clients * np.sum(gradients, axis=0) - truth
        flat = inputs.reshape(rows, features)
        error = model - truth
        pull = flat.T @ (flat @ error) - flat.T @ noise.ravel()
        gaps.append(np.max(np.abs(found - (error - factor * step / rows * pull))))
        scales.append(1 + np.max(np.abs(found)))
    detail = f"{len(gaps)} random data sets, largest difference {np.max(gaps):.1g}"
    return never_exceeds(
        name,
        np.array(gaps),
        0.0,
        rounding=1e-13 * np.array(scales),
        grade=Grade.SAMPLED,
        coordinates=columns("members n d", shapes),
        detail=detail,
    )


def _margins() -> tuple[Margin, ...]:
    return tuple(
        Margin(r"clove.lemA13: $N \ge 4 d$", float(rows), 4.0 * features)
        for rows, features in _SHAPES
    )


_norm_row = partial(row, place="Lemma A.13, proof")

_NORM_ROWS = (
    _norm_row(
        id=OPERATOR,
        text=r"$|E H'H - H'H| \le 6 \sqrt{d N}$ with probability $\ge 1 - 2 "
        r"\exp(-d/2)$",
        preconditions=(
            r"$H \in \mathbb{R}^{N \times d}$ standard normal, $N = m_k n_k$",
            r"$N \ge 4 d$",
        ),
        constants={"$N / d$ at least": 4.0},
        claimed=r"$d \ll m_k n_k$",
        check=check_operator,
        control={"constant": 2.5},
        margins=_margins,
        proof=prove_operator,
        proof_control={"six": 5},
        note=r"Without $N \ge 4 d$ it does not follow. Says nothing for $d = 1$, "
        "little for $d$ up to 5, and 6 is twice what is needed. The control has 2.5.",
    ),
    _norm_row(
        id=NOISE,
        text=r"$|H' \xi| \le c_1 \sigma \sqrt{d N}$ with probability $\ge 1 - c_4 "
        r"\exp(-c_5 d)$, $c_1 = 3$, and $c_1 = 1.967$ at the shapes of the check",
        preconditions=(r"$H$ and $\xi$ normal, independent", r"$N \ge 4 d$"),
        constants={"c1": 3.0, "c4": 2.0, "c5": 0.5},
        claimed="$c_1$, $c_4$, $c_5$, unnamed",
        check=check_noise,
        control={"constant": 1.966},
        proof=prove_noise,
        proof_control={"three": 2},
        note=r"By the exact law $\sigma \chi_N \chi_d$; 3 is proved, 1.967 is the "
        "least at the shapes of the check. The control has 1.966.",
    ),
    _norm_row(
        id=IDENTITY,
        text=r"$\theta_k - \theta_k^* = (I - 2 \eta H'H/N) (\theta - \theta_k^*) + (2 "
        r"\eta/N) H' \xi$",
        preconditions=(
            r"$\theta_k = \theta - (\eta/m_k)$ sum of the clients' "
            "gradients",
        ),
        check=check_identity,
        control={"factor": 2.001},
        note=r"The control has $2.001 \eta$.",
    ),
)

STATEMENTS = (*_THEOREM_ROWS, *_STEP_ROWS, *_NORM_ROWS)
