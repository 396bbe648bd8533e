"""Displays (2) to (5): what the correctly assigned clients do to one step of model 1.

With X of their N rows, beta = 2 gamma / (m n') and e = theta_1 - theta_1*, their part
of the step is T1 = (I - beta X'X) e + beta X' eps.
"""

import functools
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax import law
from cfljax.statements import (
    ERROR_RATE,
    Grade,
    Margin,
    Preset,
    Status,
    Step,
    Verdict,
    at_most,
    combine,
    equals,
    exactly,
    identity,
    never_exceeds,
    nonnegative,
    tally,
)
from theory.ifca.common.checks import Events, PerTrial, chunks, row
from theory.ifca.common.raw_data import products, worst_client, wrong_choices
from theory.ifca.theorem1_corrected import prove_explicit
from theory.rows import columns, listed

EQ2, EQ2_CORRECTED = "ifca.eq2", "ifca.eq2.corrected"


class _Sides(NamedTuple):
    """The two sides of (2) for one draw."""

    step_length: float  # beta N = 2 gamma N / (m n')
    left: float
    right: float  # with the absolute value
    right_printed: float
    rounding: float
    noise_share: float  # of the noise in the right side


def _sides(
    inputs: Float[np.ndarray, "samples features"],
    noise: Float[np.ndarray, " samples"],
    error: Float[np.ndarray, " features"],
    *,
    step_length: float,
) -> _Sides:
    num_samples, num_features = inputs.shape
    beta = step_length / num_samples
    gram, cross = inputs.T @ inputs, inputs.T @ noise
    left = np.linalg.norm(error - beta * gram @ error + beta * cross)
    deviation = np.linalg.norm(gram - num_samples * np.eye(num_features), 2)
    size = float(np.linalg.norm(error))
    rest = float(beta * deviation * size + beta * np.linalg.norm(cross))
    # Inner products of N terms err by N eps |x||y|, matrix products by d times more.
    scale = float(np.linalg.norm(inputs))
    scale = size + beta * scale * (scale * size + float(np.linalg.norm(noise)))
    rounding = 8 * np.finfo(float).eps * (num_samples + num_features) * scale
    right = abs(1 - step_length) * size + rest
    printed = (1 - step_length) * size + rest
    share = float(beta * np.linalg.norm(cross)) / right
    return _Sides(step_length, float(left), right, printed, float(rounding), share)


@functools.lru_cache(maxsize=1)
def _eq2_steps(preset: Preset) -> tuple[_Sides, ...]:
    """Random N, d, gamma, e, sigma, a third of them aligned so that (2) is tight."""
    generator = preset.generator(EQ2_CORRECTED)
    steps = []
    for index in range(preset.choose(quick=3000, full=60_000)):
        num_samples = int(generator.integers(1, 200))
        num_features = int(generator.integers(1, 9))
        sigma = float(generator.choice([0.0, 10 ** generator.uniform(-3, 1)]))
        inputs = generator.standard_normal((num_samples, num_features))
        noise = sigma * generator.standard_normal(num_samples)
        error = generator.standard_normal(num_features) * 10 ** generator.uniform(-3, 3)
        step_length = float(10 ** generator.uniform(-2, 1))
        if index % 3 == 0:
            error, noise = _aligned(inputs, step_length, sigma, top=index % 2 == 0)
        steps.append(_sides(inputs, noise, error, step_length=step_length))
    return tuple(steps)


def _aligned(
    inputs: Float[np.ndarray, "samples features"],
    step_length: float,
    sigma: float,
    *,
    top: bool,
) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " samples"]]:
    """An extreme eigenvector of X'X as error, and noise that pushes the same way."""
    values, vectors = np.linalg.eigh(inputs.T @ inputs)
    error, value = (vectors[:, -1], values[-1]) if top else (vectors[:, 0], values[0])
    sign = np.sign(1 - step_length * value / len(inputs))
    return error, sigma * sign * inputs @ error


def check_eq2_printed(preset: Preset, *, absolute: bool = False) -> Verdict:
    """Display (2) as printed, at random step sizes on both sides of beta N = 1; with
    `absolute` with |1 - beta N|."""
    steps = _eq2_steps(preset)
    short = [step for step in steps if step.step_length <= 1]
    kept = sum(step.left <= step.right_printed + step.rounding for step in short)
    return _judge_eq2(
        EQ2,
        steps,
        printed=not absolute,
        detail=r"without the absolute value; with $2 \gamma N \le m n'$ it holds in "
        f"{kept} of {len(short)} draws",
    )


def prove_eq2_printed(*, step_length: str = "5/2") -> list[Step]:
    r"""A counterexample in integers: $N = d = 1$, $X = 1$, $\varepsilon = 0$, $e = 1$.

    Then $X'X = N$, and $T_1 = (1 - \beta N) e$ with $\beta N = 2 \gamma N/(m n') =
    \mathtt{step\_length}$, as for two equal clusters without misassignment at $\gamma p
    = 1.25$, where it is $2 \gamma p$. The right-hand side is $1 - \beta N$: negative.
    """
    factor = 1 - Fraction(step_length)
    return [exactly(r"$|T_1| > (1 - \beta N) |e| + 0 + 0$", abs(factor) > factor)]


def prove_eq2_corrected(*, factor: str = "1") -> list[Step]:
    r"""$|T_1| \le |1 - \beta N| |e| + \beta (|X'X - N I| |e| + |X' \varepsilon|)$, $E
    X'X = N I$.

    $T_1 = (1 - \beta N) e - \beta (X'X - N I) e + \beta X' \varepsilon$, the identity
    below in every coordinate (`gram` is $X'X e$ there, $\mathtt{cross} X'
    \varepsilon$). The triangle inequality and the definition of the operator norm do
    the rest. `factor` is that of $\beta X' \varepsilon$.
    """
    import sympy

    beta, rows, e, gram, cross = sympy.symbols("beta N e gram cross", real=True)
    split = (1 - beta * rows) * e - beta * (gram - rows * e)
    split += sympy.Rational(factor) * beta * cross
    return [
        identity(
            r"$(I - \beta X'X) e + \beta X' \varepsilon = (1 - \beta N) e - \beta "
            r"(X'X - N I) e + \beta X' \varepsilon$",
            e - beta * gram + beta * cross - split,
        )
    ]


def check_eq2_corrected(preset: Preset, *, printed: bool = False) -> Verdict:
    """Display (2) with |1 - beta N|, on the same draws as the printed form."""
    steps = _eq2_steps(preset)
    detail = (
        rf"{len(steps)} draws, $2 \gamma N / (m n')$ from 0.01 to 10, a third "
        "tight"
    )
    detail = "the printed form" if printed else detail
    return _judge_eq2(EQ2_CORRECTED, steps, printed=printed, detail=detail)


def _judge_eq2(
    statement: str, steps: tuple[_Sides, ...], *, printed: bool, detail: str
) -> Verdict:
    length, left, right, right_printed, rounding, share = np.array(steps).T
    claim = right_printed if printed else right
    judged = functools.partial(never_exceeds, statement, grade=Grade.SEARCHED)
    places = {"step_length": length}
    found = judged(left, claim, rounding=rounding, coordinates=places, detail=detail)
    if printed:
        return found
    # Equality is reached where the noise is a third of the right side or more.
    gap = float(np.min((1 - left / right)[share > 1 / 3]))
    tight = judged(gap, 0.0, rounding=1e-9)
    return combine(statement, [found, tight], parts=["draws", "equality"])


EQ3, EQ4 = "ifca.eq3", "ifca.eq4"

EQ3_C = 0.1308  # KL(1/4 || 1/2) = log 2 - H(1/4), rounded down

COVARIANCE = 6.0  # of sqrt(d N) in (4)

_EQ3_SIZES = (*range(1, 41), 64, 100, 400, 1000, 4000, 10**4, 10**5)
_EQ3_RAW_SIZES = (8, 16, 40)  # clients of cluster 1
_EQ4_SHAPES = ((8, 2), (12, 3), (16, 4), (24, 6), (40, 10), (400, 10))  # N, d


def check_counts(preset: Preset, *, c: float = EQ3_C) -> Verdict:
    """The exact binomial at P(E_i) = 1/2, and clients that choose almost blindly."""
    sizes = np.array(_EQ3_SIZES, float)
    exact = np.array(list(map(_log_quarter, _EQ3_SIZES)))
    by_law = never_exceeds(
        EQ3,
        exact,
        np.log(2) - c * sizes,
        rounding=1e-15 * (1 + sizes * np.log(1 + sizes)),
        logarithmic=True,
        grade=Grade.EXACT,
        coordinates={"members": sizes},
    )
    # No better exponent: at 10^5 clients it is within 1 % of it.
    sharp = never_exceeds(
        EQ3, -exact[-1] / sizes[-1], 1.01 * c, rounding=1e-12, grade=Grade.EXACT
    )
    sizes = np.array(_EQ3_RAW_SIZES, float)
    raw = at_most(
        EQ3,
        tally(_raw_quarters(preset)),
        2 * np.exp(-c * sizes),
        coordinates={"members": sizes},
    )
    detail = (
        f"exact binomial, 1 to $10^5$ clients: {by_law.status.value}; raw choices of "
        f"8, 16 and 40 clients: {raw.status.value}"
    )
    return combine(EQ3, [by_law, raw, sharp], detail=detail)


def _log_quarter(size: int) -> float:
    """log P(Bin(size, 1/2) <= size / 4)."""
    count = np.arange(size // 4 + 1)
    terms = scipy.special.gammaln(count + 1) + scipy.special.gammaln(size - count + 1)
    total = scipy.special.gammaln(size + 1) - size * np.log(2)
    total_log: Any = scipy.special.logsumexp(total - terms)
    return float(total_log)


@functools.lru_cache(maxsize=1)
def _raw_quarters(preset: Preset) -> Events:
    """Whether at most a quarter of the clients choose well, one sample each."""
    rounds = preset.choose(quick=10_000, full=500_000)
    client = worst_client(preset.generator(EQ3, 0), 0.02, 0.5, 2, 1)
    events = []
    for size in _EQ3_RAW_SIZES:
        trials = rounds * size
        wrong = wrong_choices(preset, EQ3, size, client, num_trials=trials)
        correct = np.sum(~wrong.reshape(rounds, size), axis=1)
        events.append(correct <= size / 4)
    return np.array(events)


def _covariance_failure(features: Any, exp: Callable[..., Any] = np.exp) -> Any:
    """c1 exp(-c2 d) of (4), in numbers or symbols."""
    return 2 * exp(-features / 2)


def check_covariance(preset: Preset, *, constant: float = COVARIANCE) -> Verdict:
    """Raw X'X at six shapes from N = 4 d on, and 6 sqrt(d N) <= 3 N there."""
    rows, features = np.array(_EQ4_SHAPES, float).T
    deviations = _raw_deviations(preset)
    typical = np.median(deviations, axis=1)
    rare, smaller = (
        functools.partial(judge, coordinates={"rows": rows, "d": features})
        for judge in (at_most, never_exceeds)
    )
    raw = rare(EQ4, tally(deviations > constant), _covariance_failure(features))
    of_order_n = smaller(
        EQ4, constant * np.sqrt(features * rows), 3 * rows, rounding=1e-12,
        grade=Grade.EXACT,
    )  # fmt: skip
    detail = (
        rf"raw $X$ of {len(_EQ4_SHAPES)} shapes, $N \ge 4 d$: $|X'X - N I| / \sqrt{{d "
        f"N}}$ has medians {np.min(typical):.2f} to {np.max(typical):.2f} and is "
        f"above {constant:g} in {np.mean(deviations > constant):.2g} of the draws"
    )
    return combine(EQ4, [raw, of_order_n], parts=["draws", "order"], detail=detail)


@functools.lru_cache(maxsize=1)
def _raw_deviations(preset: Preset) -> PerTrial:
    """|X'X - N I|_op / sqrt(d N)."""
    trials = preset.choose(quick=4000, full=50_000)
    found = []
    for index, (rows, features) in enumerate(_EQ4_SHAPES):
        generator = preset.generator(EQ4, index)
        parts = []
        for count in chunks(trials, 1000):
            inputs = generator.standard_normal((count, rows, features))
            values = np.linalg.eigvalsh(inputs.swapaxes(1, 2) @ inputs) - rows
            parts.append(np.max(np.abs(values), axis=1) / np.sqrt(rows * features))
        found.append(np.concatenate(parts))
    return np.array(found)


def prove_covariance(*, constant: str = str(COVARIANCE)) -> list[Step]:
    r"""$|X'X - N I|_{\mathrm{op}} \le \mathtt{constant} \sqrt{d N}$ but with
    probability $2 \exp(-d/2)$, where $N \ge 4 d$.

    1. By Davidson and Szarek (2001, Theorem II.13) the largest singular value of $X$ is
       at most $\sqrt{N} + \sqrt{d} + t$, and the least at least $\sqrt{N} - \sqrt{d} -
       t$, but with probability $\exp(-t^2/2)$ each. Take $t = \sqrt{d}$, $w = 2
       \sqrt{d}$: $2 \exp(-d/2)$.
    2. As $w \le \sqrt{N}$ their squares differ from $N$ by $2 w \sqrt{N} + w^2$ at
       most, which is $4 \sqrt{d N} + 4 d$, and $d \le \sqrt{d N}/2$.
    3. $6 \sqrt{d N} \le 3 N$, as $d \le N/4$.
    """
    import sympy

    rows, d = sympy.symbols("N d", positive=True)
    root = sympy.sqrt(rows)
    t = sympy.sqrt(d)
    upper = (root + sympy.sqrt(d) + t) ** 2 - rows
    both = 2 * sympy.exp(-(t**2) / 2)
    return [
        identity(r"$(\sqrt{N} + 2 \sqrt{d})^2 - N = 4 \sqrt{d N} + 4 d$",
                 upper - 4 * sympy.sqrt(d * rows) - 4 * d),
        exactly(r"$4 + 4/2 = \text{constant}$",
                4 + Fraction(4, 2) == Fraction(constant)),
        exactly(r"$\text{constant}/2 \le 3$", Fraction(constant) / 2 <= 3),
        identity(r"both tails are $2 \exp(-d/2)$",
                 both - _covariance_failure(d, sympy.exp)),
    ]  # fmt: skip


def prove_counts(*, c: str = "0.1308") -> list[Step]:
    r"""$P(|S_1 \cap S_1^*| \le p_1 m/4) \le 2 \exp(-c p m)$, and no $c$ above $\log 2 -
    H(1/4)$.

    The count is a sum of $M = p_1 m \ge p m$ independent indicators of probability
    $1/2$ or more. By Markov's inequality $P(\text{count} \le M/4) \le \exp(s M/4) ((1 +
    \exp(-s))/2)^M$, $s > 0$, which at $\exp(-s) = 1/3$ is $\exp(-M K)$, $K = \log 2 -
    H(1/4) = \log 2 + (1/4) \log(1/4) + (3/4) \log(3/4)$. As $c \le K$ this is below
    $\exp(-c p m)$.
    """
    import flint
    import sympy

    s = sympy.log(3)
    quarter, three = sympy.Rational(1, 4), sympy.Rational(3, 4)
    exponent = s / 4 + sympy.log((1 + sympy.exp(-s)) / 2)
    relative = sympy.log(2) + quarter * sympy.log(quarter) + three * sympy.log(three)
    return [
        identity(
            r"$s/4 + \log((1 + \exp(-s))/2) = -K$ at $\exp(-s) = 1/3$",
            sympy.expand_log(exponent + relative, force=True),
        ),
        nonnegative(
            r"$K \ge c$",
            lambda: (
                flint.arb(2).log()
                + flint.arb("0.25").log() / 4
                + flint.arb("0.75").log() * 3 / 4
                - flint.arb(c)
            ),
            {},
        ),
    ]


EQ5, EQ5_CORRECTED = "ifca.eq5", "ifca.eq5.corrected"

C5, C6 = 0.05, 100.0  # of the printed form: weaker claims than its proof's 1/2 and 4

# One step without misassignments, at sigma = 1e-6 |e|: gamma p, p_1 and p.
_EQ5_CLIENTS, _EQ5_SAMPLES, _EQ5_FEATURES = 200, 10, 20
_EQ5_FEDERATIONS = (
    (0.25, 0.5, 0.5),
    (0.5, 0.5, 0.5),
    (1.0, 0.5, 0.5),
    (1.25, 0.5, 0.5),
    (0.25, 0.8, 0.2),
)
_EQ5_DETAIL = (
    r"$\gamma p = 0.25$, 0.5, 1, 1.25 with equal clusters, 0.25 with $p_1 = "
    "4 p$"
)


class _EQ5Point(NamedTuple):
    """N, d, x = 2 gamma N / (m n'), sigma and |e|."""

    num_rows: int
    num_features: int
    step_length: float
    sigma: float
    error: float = 1.0


DEVIATION, NOISE = 4.0, 2.0  # of the corrected form


_EQ5_POINTS = (
    _EQ5Point(32, 8, 0.1, 0.1),
    _EQ5Point(100, 8, 1.0, 0.0),
    _EQ5Point(48, 12, 1.0, 1.0),
    _EQ5Point(150, 10, 1.9, 0.3),
    _EQ5Point(40, 10, 2.5, 5.0),
    _EQ5Point(200, 10, 4.5, 0.0),
    _EQ5Point(8, 2, 1.0, 0.1, error=0.0),  # the noise alone
    _EQ5Point(12, 3, 0.5, 5.0, error=0.0),
)


def _raw_lengths(
    generator: np.random.Generator, point: _EQ5Point, *, trials: int
) -> Float[np.ndarray, " trials"]:
    """|T1| of raw data, e along the first axis."""
    rows, features, step, sigma, error = point
    sizes = {"error": error, "noise": sigma, "num_trials": trials, "chunk": 100}
    lengths = []
    for part in products(generator, rows, features, **sizes):
        moved = -step / rows * part
        moved[:, 0] += error
        lengths.append(np.linalg.norm(moved, axis=1))
    return np.concatenate(lengths)


@functools.lru_cache(maxsize=1)
def _eq5_printed(preset: Preset) -> PerTrial:
    trials = preset.choose(quick=200, full=2000)
    found = []
    for index, (step, share, smallest) in enumerate(_EQ5_FEDERATIONS):
        rows = round(share * _EQ5_CLIENTS) * _EQ5_SAMPLES
        point = _EQ5Point(rows, _EQ5_FEATURES, 2 * step / smallest * share, 1e-6)
        found.append(_raw_lengths(preset.generator(EQ5, index), point, trials=trials))
    return np.array(found)


def check_eq5_printed(
    preset: Preset,
    *,
    places: Sequence[int] = (0, 1, 2, 3, 4),
    c5: float = C5,
    c6: float = C6,
    detail: str = _EQ5_DETAIL,
) -> Verdict:
    """Display (5) with c5 = 0.05 and c6 = 100, from short steps to too long ones."""
    found = _eq5_printed(preset)[list(places)]
    step, share, smallest = np.array(_EQ5_FEDERATIONS)[list(places)].T
    spread = np.sqrt(_EQ5_FEATURES / (_EQ5_CLIENTS * _EQ5_SAMPLES))
    allowed = (1 - c5 * step) + c6 * (step / smallest * 1e-6 * spread)
    # 2 exp(-c p m) of (3), and 40 times the tail of Lemma 2: generously
    failure = 2 * np.exp(-0.1308 * smallest * _EQ5_CLIENTS)
    failure += 40 * np.exp(-0.3068 * _EQ5_FEATURES)
    medians = listed(np.median(found, axis=1), ".2f")
    return at_most(
        EQ5,
        tally(found > allowed[:, None]),
        failure,
        coordinates={"step_size": step / smallest, "share": share, "p": smallest},
        detail=f"{detail}: median $|T_1| / |e| = {medians}$",
    )


def prove_eq5_printed(*, step: str = "2") -> list[Step]:
    r"""Whatever $c_5$, $c_6 > 0$, some step size violates (5), as no upper limit is
    stated.

    Take $\gamma = \mathtt{step}/(c_5 p)$, $|e| = 1$ and $\sigma \to 0$: the right-hand
    side tends to $1 - c_5 \gamma p = 1 - \mathtt{step} < 0$, below every length.
    """
    import sympy

    c5, p = sympy.symbols("c5 p", positive=True)
    gamma = sympy.Rational(step) / (c5 * p)
    right = sympy.simplify(1 - c5 * gamma * p)
    return [
        exactly(
            r"$1 - c_5 \gamma p < 0$ at $\gamma = \text{step}/(c_5 p)$", bool(right < 0)
        )
    ]


def check_eq5_corrected(
    preset: Preset, *, deviation: float = DEVIATION, noise: float = NOISE
) -> Verdict:
    """Raw steps on both sides of x = 1, and of the noise alone, whose probability is
    known exactly; `deviation` and `noise` stand for 4 and 2."""
    rows, features, length, sigma, error = np.array(_EQ5_POINTS).T
    spread = np.sqrt(features / rows)
    allowed = (np.abs(1 - length) + deviation * length * spread) * error
    allowed += noise * length * sigma * spread
    tail = np.exp(law.log_product_tail(rows, features, 4 * rows * features))
    failure = 2 * np.exp(-features / 2) + tail
    ratios = _eq5_corrected(preset) / allowed[:, None]
    alone = error == 0
    names = "rows d step_length noise distance"
    away, still = (
        columns(names, np.array(_EQ5_POINTS)[kept]) for kept in (~alone, alone)
    )
    detail = (
        rf"raw data at {len(_EQ5_POINTS)} points, $2 \gamma N / (m n')$ from 0.1 to "
        f"4.5: $|T_1|$ is at most {np.max(ratios[~alone]):.2f} of the bound; of the "
        "noise alone above it in "
        f"{listed(np.mean(ratios[alone] > 1, axis=1), '.4f')}, by law in "
        f"{listed(tail[alone], '.4f')}"
    )
    half = ERROR_RATE / 2
    return combine(
        EQ5_CORRECTED,
        [
            at_most(
                EQ5_CORRECTED,
                tally(ratios[~alone] > 1),
                failure[~alone],
                error_rate=half,
                coordinates=away,
            ),
            equals(
                EQ5_CORRECTED,
                tally(ratios[alone] > 1),
                tail[alone],
                resolution=0.05,
                error_rate=half,
                coordinates=still,
            ),
        ],
        detail=detail,
    )


@functools.lru_cache(maxsize=1)
def _eq5_corrected(preset: Preset) -> PerTrial:
    trials = preset.choose(quick=4000, full=40_000)
    return np.array(
        [
            _raw_lengths(preset.generator(EQ5_CORRECTED, index), point, trials=trials)
            for index, point in enumerate(_EQ5_POINTS)
        ]
    )


STATEMENTS = (
    row(
        id=EQ2,
        place="Appendix A, (2)",
        text=r"$|T_1| \le (1 - 2 \gamma N / (m n')) |e| + (2 \gamma / (m n')) (|X'X - "
        r"E X'X| |e| + |X' \varepsilon|)$",
        preconditions=(r"$\gamma > 0$: no upper limit is stated",),
        expected=Status.VIOLATED,
        fault="printed",
        check=check_eq2_printed,
        control={"absolute": True},
        proof=prove_eq2_printed,
        proof_control={"step_length": "1/2"},
        note=r"An absolute value is missing; harmless only if $2 \gamma N \le m n'$. "
        "The control has it.",
    ),
    row(
        id=EQ2_CORRECTED,
        place="Appendix A, (2)",
        text=r"$|T_1| \le |1 - 2 \gamma N / (m n')| |e| + (2 \gamma / (m n')) (|X'X - "
        r"E X'X| |e| + |X' \varepsilon|)$",
        preconditions=(r"$\gamma > 0$",),
        check=check_eq2_corrected,
        control={"printed": True},
        proof=prove_eq2_corrected,
        proof_control={"factor": "99/100"},
        note="The control is the printed form.",
    ),
    row(
        id=EQ3,
        place="Appendix A, (3)",
        text=r"$P(N \ge p_1 m n' / 4) \ge 1 - 2 \exp(-c p m)$",
        preconditions=(
            r"$P(E_i) \ge 1/2$, which Lemma 1 and Assumption 2 give",
            "independent clients",
        ),
        constants={"c": EQ3_C},
        claimed="$c > 0$, universal, unnamed; by Hoeffding's inequality",
        check=check_counts,
        control={"c": 0.1325},
        proof=prove_counts,
        proof_control={"c": "0.1309"},
        note="Hoeffding's inequality gives $c = 1/8$; the best exponent is "
        r"$\operatorname{KL}(1/4 \| 1/2) = 0.1308$. The control claims 0.1325.",
    ),
    row(
        id=EQ4,
        place="Appendix A, (4)",
        text=r"$|X'X - E X'X|_{\mathrm{op}} \le 6 \sqrt{d N} \lesssim N$ with "
        r"probability $\ge 1 - 2 \exp(-d/2)$",
        preconditions=(
            r"$X \in \mathbb{R}^{N \times d}$ standard normal",
            r"$N \ge 4 d$",
        ),
        constants={"$N / d$ at least": 4.0, "constant before $N$": 3.0},
        claimed=r"$N \gtrsim d$, constants unnamed",
        check=check_covariance,
        control={"constant": 2.5},
        proof=prove_covariance,
        proof_control={"constant": "5.9"},
        margins=lambda: tuple(
            Margin(r"ifca.asm2: $N \ge 4 d$", float(rows), 4.0 * features)
            for rows, features in _EQ4_SHAPES
        ),
        note=r"The printed 6 needs $N \ge 4 d$, and '$\lesssim N$' does not yet make "
        r"(2) contract: $6 \sqrt{d N} \le N / 2$ takes $N \ge 144 d$, the typical "
        r"$2 \sqrt{d N} + d$ takes $19.8 d$. The control has 2.5 for 6.",
    ),
    row(
        id=EQ5,
        place="Appendix A, (5)",
        text=r"$|T_1| \le (1 - c_5 \gamma p) |\theta_1 - \theta_1^*| + c_6 \gamma "
        r"\sigma \sqrt{d / (m n')}$ with probability $\ge 1 - c_1 \exp(-c_2 p m) - "
        r"c_3 \exp(-c_4 d)$",
        preconditions=(
            r"Assumption 2; $\gamma = c / p$ with no upper limit on $c$",
            "no misassignment, so that $N = p_1 m n'$",
        ),
        constants={"c5": C5, "c6": C6},
        claimed="$c_1$, ..., $c_6 > 0$, universal, unnamed",
        expected=Status.VIOLATED,
        fault="printed",
        check=check_eq5_printed,
        control={
            "places": [0, 1],
            "detail": r"$\gamma p = 0.25$, 0.5 with equal clusters",
        },
        proof=prove_eq5_printed,
        proof_control={"step": "1/2"},
        note=r"It needs $2 \gamma p_1$ below $2 - c_5 \gamma p$, and the paper's last "
        r"step has $\gamma = 1 / (2 c_5 p) \ge 1 / p$. $A \sqrt{p_1}$ is dropped "
        r"from the last term, whose size is $2 \gamma \sigma \sqrt{p_1 d / (m "
        r"n')}$. The control claims it for equal clusters and $\gamma p$ of at most "
        "$1/2$.",
    ),
    row(
        id=EQ5_CORRECTED,
        place="Appendix A, (5)",
        text=r"$|T_1| \le (|1 - x| + 4 x \sqrt{d/N}) |\theta_1 - \theta_1^*| + 2 x "
        r"\sigma \sqrt{d/N}$, $x = 2 \gamma N / (m n')$, with probability $\ge 1 - "
        r"2 \exp(-d/2) - P(\chi_N^2 \chi_d^2 > 4 d N)$",
        preconditions=(r"$N \ge 4 d$", r"$\theta_1$ independent of the fold"),
        constants={"deviation": DEVIATION, "noise": NOISE},
        check=check_eq5_corrected,
        control={"deviation": 1.0},
        proof=functools.partial(prove_explicit, covariance=str(DEVIATION - NOISE)),
        proof_control={"covariance": "1.75"},
        margins=lambda: tuple(
            Margin(r"$N \ge 4 d$", float(point.num_rows), 4.0 * point.num_features)
            for point in _EQ5_POINTS
        ),
        note=r"Without misassignment $x = 2 \gamma p_1$ and $N = p_1 m n'$. By (4) "
        "and Lemma 2 one has 6 for 4. The control has 1.",
    ),
)
