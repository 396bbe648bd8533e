"""Displays (6) to (12): the misassigned clients, what they send and how many they are.

T2 = (gamma / m) sum over S_1 and not S_1* of grad F_i(theta_1).
"""

import functools
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from cfljax import intervals
from cfljax.base import Numbers
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
    exactly,
    identity,
    never_exceeds,
    tally,
    within,
)
from theory.ifca import lemma1, lemma2
from theory.ifca.common.checks import (
    Broadcast,
    PerPoint,
    PerTrial,
    grid,
    log_rounding,
    mean_within,
    row,
    turn,
    unit,
)
from theory.ifca.common.linear import log_worst_chance
from theory.ifca.common.moments import square_moments
from theory.ifca.common.raw_data import Client, products, worst_client
from theory.ifca.lemma1 import C1 as C6
from theory.ifca.lemma1 import C2 as C7
from theory.ifca.lemma1 import PRECONDITIONS
from theory.ifca.lemma2 import C3 as NOISE_EXPONENT
from theory.rows import columns, listed

EQ6, EQ6_GRADIENT = "ifca.eq6", "ifca.eq6.gradient"

LONGEST = 3.0  # |theta_1 - theta_j*| at most, with max |theta_j*| <= 1


def check_length(
    preset: Preset, *, of_inputs: float = 6.0, of_noise: float = 2.0
) -> Verdict:
    """(6) for random clients, every third with everything along the first singular
    vectors of X, where it becomes an equality: it must come within 1 % there, with two
    samples or more and noise that counts."""
    generator = preset.generator(EQ6)
    left, right, rounding, tight, exact, places = [], [], [], [], [], []
    for index in range(preset.choose(quick=2000, full=50_000)):
        aligned = index % 3 == 0
        num_samples = int(generator.integers(1, 5 if aligned else 40))
        num_features = int(generator.integers(1, 12))
        inputs = generator.standard_normal((num_samples, num_features))
        noise = 10 ** generator.uniform(-3, 1) * generator.standard_normal(num_samples)
        alpha = 10 ** generator.uniform(-6, np.log10(0.5))
        direction = generator.standard_normal((3, num_features))
        if aligned:
            before, _, after = np.linalg.svd(inputs)
            direction[:] = after[0]
            noise = -np.linalg.norm(noise) * before[:, 0]
        direction = unit(direction)
        truth, other = direction[0], -direction[1]
        separation = np.linalg.norm(truth - other)
        model = truth + (0.5 - alpha) * separation * direction[2]
        labels = inputs @ other + noise
        left.append(np.linalg.norm(2 * inputs.T @ (inputs @ model - labels)))
        cross = of_noise * np.linalg.norm(inputs.T @ noise)
        square = np.linalg.norm(inputs, 2) ** 2
        right.append(of_inputs * square + cross)
        if aligned:
            away = np.linalg.norm(model - other)
            exact.append(2 * away * square + 2 * np.linalg.norm(inputs.T @ noise))
        places.append((num_samples, num_features, alpha))
        tight.append(aligned and num_samples > 1 and cross > 0.3 * right[-1])
        scale = np.sum(inputs**2) + np.linalg.norm(inputs) * np.linalg.norm(noise)
        rounding.append(50 * np.finfo(float).eps * (num_samples + num_features) * scale)
    ratio = np.divide(left, right)
    reached = float(np.max(ratio[np.array(tight)]))
    # Along the singular vectors all is an equality but |theta_1 - theta_j*| <= 3.
    equal = float(np.min(np.divide(left[::3], exact)))
    return never_exceeds(
        EQ6,
        np.array([*left, 0.99, 1.0]),
        np.array([*right, reached, equal]),
        rounding=np.array([*rounding, 1e-9, 1e-9]),
        grade=Grade.SEARCHED,  # on drawn clients
        coordinates={
            "client": np.arange(len(left) + 2),
            **columns("n d alpha", [*places, *[(np.nan,) * 3] * 2]),
        },
        detail=f"{len(left)} random clients, a third aligned: at most "
        f"{np.max(ratio):.6f} of the bound, {reached:.6f} where noise counts",
    )


def check_gradient(preset: Preset, *, name: str, sign: float) -> Verdict:
    """grad F_i as `sign` (2 / n') X'(Y - X theta), against central differences. F_i is
    quadratic, so that differences over any distance are exact. The paper's sign is
    1."""
    generator = preset.generator(EQ6_GRADIENT)
    values, rounding, places = [], [], []
    for draw in range(200):
        num_samples, num_features = (int(generator.integers(1, 20)) for _ in range(2))
        inputs = generator.standard_normal((num_samples, num_features))
        labels = generator.standard_normal(num_samples)
        model = generator.standard_normal(num_features)
        steps = np.eye(len(model))
        ahead, behind = (
            np.mean((labels[:, None] - inputs @ (model[:, None] + side)) ** 2, axis=0)
            for side in (steps, -steps)
        )
        claimed = sign * 2 / len(labels) * inputs.T @ (labels - inputs @ model)
        values.append(np.max(np.abs((ahead - behind) / 2 - claimed)))
        places.append((num_samples, num_features, draw))
        scale = len(labels) * len(model) * np.max(ahead + behind)
        rounding.append(16 * np.finfo(float).eps * scale)
    return never_exceeds(
        name,
        np.array(values),
        0.0,
        rounding=np.array(rounding),
        grade=Grade.SEARCHED,  # on drawn clients
        coordinates=columns("n d draw", places),
        detail=f"{len(values)} clients, largest difference {np.max(values):.3g}",
    )


def prove_length(*, reach: str = "3") -> list[Step]:
    r"""$n' |\nabla F_i(\theta_1)| \le 6 |X_i|_{\mathrm{op}}^2 + 2 |X_i'
    \varepsilon_i|$.

    $n' \nabla F_i(\theta_1) = 2 X'X (\theta_1 - \theta_j^*) - 2 X' \varepsilon$, of
    length at most $2 |X|_{\mathrm{op}}^2 |\theta_1 - \theta_j^*| + 2 |X' \varepsilon|$.
    $|\theta_1 - \theta_j^*| \le |\theta_1^*| + |\theta_j^*| + |\theta_1 - \theta_1^*|
    \le (2 - a) (1 + 1/2 - \alpha)$ for $\Delta \le |\theta_1^*| + |\theta_j^*| = 2 -
    a$, that is $\mathtt{reach} = 3$ less $2 \alpha + a (3/2 - \alpha)$.
    """
    import sympy

    short, alpha = sympy.symbols("a alpha", nonnegative=True)
    length = (2 - short) * (1 + sympy.Rational(1, 2) - alpha)
    spare = 2 * alpha + short * (sympy.Rational(3, 2) - alpha)
    return [
        identity(
            r"2 reach $- 2 (2 - a) (3/2 - \alpha) = 2 (2 \alpha + a (3/2 - \alpha))$",
            2 * sympy.Rational(reach) - 2 * length - 2 * spare,
        ),
        identity("2 reach $= 6$", 2 * sympy.Rational(reach) - 6),
    ]


def prove_gradient(*, sign: int = 1) -> list[Step]:
    r"""The sign of $(2/n') X'(Y - X \theta)$ is wrong: at $d = n' = 1$, $x = y = 1$,
    $\theta = 0$ the derivative of $(1 - \theta)^2$ is $-2$, and not `sign` 2."""
    import sympy

    theta = sympy.Symbol("theta")
    slope = sympy.diff((1 - theta) ** 2, theta).subs(theta, 0)
    return [exactly("$-2$ is not the claimed value", int(slope) != sign * 2)]


def prove_gradient_corrected(*, factor: str = "2") -> list[Step]:
    r"""$\nabla F_i = (2/n') X'(X \theta - Y)$: each of the $n'$ terms $(y - \langle x,
    \theta \rangle)^2$ of $n' F_i$ has the partial derivatives $2 x_l (\langle x, \theta
    \rangle - y)$, by the chain rule."""
    import sympy

    x, theta, rest, y = sympy.symbols("x theta rest y", real=True)
    loss = (y - x * theta - rest) ** 2  # rest: the other coordinates' share
    claimed = sympy.Rational(factor) * x * (x * theta + rest - y)
    return [
        identity(
            r"$\frac{\partial}{\partial \theta_l} (y - \langle x, \theta "
            r"\rangle)^2 = 2 x_l (\langle x, \theta \rangle - y)$",
            sympy.diff(loss, theta) - claimed,
        )
    ]


EQ7, EQ7_SHARP = "ifca.eq7", "ifca.eq7.sharp"

C1, C3, C4, C5 = 3.0, 54.0, 4.0, 58.0


def _failure(shortest: Any, clients: Any = 1, exp: Callable[..., Any] = np.exp) -> Any:
    """M c1 exp(-c2 min{d, n'}) of (7) and (8), in numbers or symbols."""
    return clients * C1 * exp(-NOISE_EXPONENT * shortest)


class GradientSum(NamedTuple):
    """A sum over clients with one and the same theta_1 - theta_j*, the error."""

    num_samples: int
    num_features: int
    sigma: float
    clients: int = 1
    error: float = LONGEST


# 3 exp(-0.3068 min{d, n'}) is below 1.
_EQ7_POINTS = (
    GradientSum(6, 6, 1.0),
    GradientSum(16, 16, 1.0),
    GradientSum(80, 20, 1.0),
    GradientSum(20, 80, 0.1),
    GradientSum(20, 20, 0.0),
)
# n', d, gradients per batch, and |e|
_EQ7_SHARP_POINTS = (
    (5, 1, 500, LONGEST),
    (10, 10, 100, LONGEST),
    (10, 100, 40, LONGEST),
    (10, 300, 40, LONGEST),
    (10, 10, 100, 0.0),  # the noise alone
)
_BATCHES = 200
_CHUNK = 200_000  # normal draws at a time


def sum_of_gradients(
    generator: np.random.Generator, one: GradientSum, trials: int
) -> Float[np.ndarray, " trials"]:
    """|sum of grad F_i| from raw data."""
    rows = one.num_samples * one.clients
    chunk = max(1, _CHUNK // (rows * one.num_features))
    sizes = {"error": one.error, "noise": one.sigma, "num_trials": trials}
    found = products(generator, rows, one.num_features, **sizes, chunk=chunk)
    gradients = [2 / one.num_samples * part for part in found]
    return np.linalg.norm(np.concatenate(gradients), axis=1)


@functools.lru_cache(maxsize=2)
def _raw_sums(
    preset: Preset, name: str, points: tuple[GradientSum, ...], full: int
) -> PerTrial:
    trials = preset.choose(quick=3000, full=full)
    return np.array(
        [
            sum_of_gradients(preset.generator(name, index), one, trials)
            for index, one in enumerate(points)
        ]
    )


def check_probability(preset: Preset, *, c5: float = C5) -> Verdict:
    """(7), both bounds, on raw gradients at the longest error that is allowed."""
    samples, features, sigma, _, _ = np.array(_EQ7_POINTS).T
    found = _raw_sums(preset, EQ7, _EQ7_POINTS, full=80_000)
    longest = np.maximum(1, features / samples)
    middle = C3 * np.maximum(features, samples)
    middle += C4 * sigma * np.sqrt(features * samples)
    allowed = np.minimum(middle / samples, c5 * longest)
    ratio = found / longest[:, None]
    places = {"n": samples, "d": features, "noise": sigma}
    drawn = at_most(
        EQ7,
        tally(found > allowed[:, None]),
        _failure(np.minimum(features, samples)),
        coordinates=places,
        detail=rf"raw data at {len(_EQ7_POINTS)} points: $|\nabla F_i| / \max(1, "
        f"d/n')$ is at most {np.max(ratio):.1f}, its medians at most "
        f"{np.max(np.median(ratio, axis=1)):.1f}",
    )
    second = never_exceeds(
        EQ7,
        middle / samples,
        c5 * longest,
        rounding=1e-12,
        grade=Grade.EXACT,
        coordinates=places,
    )
    parts = ["drawn", "second bound"]
    return combine(EQ7, [drawn, second], parts=parts, detail=drawn.detail)


def prove_probability(*, c3: float = C3, c5: float = C5) -> list[Step]:
    r"""$n' |\nabla F_i| \le c_3 \max\{d, n'\} + c_4 \sigma \sqrt{d n'} \le c_5 n'
    \max\{1, d/n'\}$ but with probability $c_1 \exp(-c_2 \min\{d, n'\})$, $c_2 =
    0.3068$.

    1. By (6) $n' |\nabla F_i| \le 6 |X|_{\mathrm{op}}^2 + 2 |X' \varepsilon|$, by Lemma
       2 (ifca.lem2.op) $|X|_{\mathrm{op}} \le 3 \max\{\sqrt{d}, \sqrt{n'}\}$ but for $2
       \exp(-\max\{d, n'\}/2)$, which is at most $2 \exp(-c_2 \min\{d, n'\})$, and $|X'
       \varepsilon| \le 2 \sigma \sqrt{d n'}$ but for $\exp(-c_2 \min\{d, n'\})$
       (ifca.lem2.noise).
    2. $\sigma \le 1$ and $\sqrt{d n'} \le \max\{d, n'\}$.
    """
    import sympy

    r = sympy.Symbol("r", positive=True)
    parts = 2 * sympy.exp(-NOISE_EXPONENT * r) + sympy.exp(-NOISE_EXPONENT * r)
    return [
        *prove_length(),
        *lemma2.prove_operator_norm(),
        *lemma2.prove_noise(),
        exactly("6 $3^2 = c_3$", c3 == 6 * lemma2.OPERATOR_C**2),
        exactly(r"$2 \cdot 2 = c_4$", C4 == 2 * 2),
        exactly("$c_3 + c_4 = c_5$", c5 == C3 + C4),
        exactly(r"$c_2 \le c_1$ of Lemma 2", NOISE_EXPONENT <= lemma2.OPERATOR_C1),
        identity(
            r"$2 + 1$ tails are $c_1 \exp(-c_2 r)$", parts - _failure(r, exp=sympy.exp)
        ),
    ]


def prove_sum(*, c5: float = C5) -> list[Step]:
    r"""(8): $|T_2|$ is at most $\gamma/m$ times the sum of $M$ lengths, each of them at
    most $c_5 \max\{1, d/n'\}$ by (7) but with probability $c_1 \exp(-c_2 \min\{d,
    n'\})$, of which $M$ add up."""
    import sympy

    r, clients = sympy.symbols("r M", positive=True)
    one = _failure(r, exp=sympy.exp)
    return [
        *prove_probability(c5=c5),
        identity(
            "$M$ clients fail with $M$ times the probability of one",
            _failure(r, clients, sympy.exp) - clients * one,
        ),
    ]


def prove_count(*, c5: float = C5, least_share: str = "1") -> list[Step]:
    r"""(9) with $c_5/2$ for $c_5$ of (8): $\gamma/m = 1/(2 p m)$, and $\max\{1, d/n'\}
    \le p m$, as $p m \ge \mathtt{least\_share} = 1$ and $d/n' \le p m$."""
    half = Fraction(1, 2)
    return [
        *prove_sum(c5=c5),
        exactly(r"$\gamma p = 1/2$", Fraction(STEP) == half),
        exactly(r"$1 \le p m$", Fraction(least_share) >= 1),
    ]


def check_root_mean_square(preset: Preset, *, extra_features: int = 1) -> Verdict:
    """Mean of raw |grad F_i|^2 over the formula; the 1 of d + 1 can be changed."""
    samples, features, _, error = np.array(_EQ7_SHARP_POINTS, float).T
    formula = 4 * (1 + (features + extra_features) / samples) * error**2
    formula += 4 * features / samples
    deviations = []
    for count, d, trials, length in _EQ7_SHARP_POINTS:
        first, second = square_moments(count, d, length, 1.0)
        trials *= preset.choose(quick=1, full=12)
        deviations.append(4 / count**2 * np.sqrt((second - first**2) / trials))
    return mean_within(
        EQ7_SHARP,
        np.array(_raw_means(preset)) / formula[:, None],
        (0.94, 1.06),
        deviation=np.array(deviations) / formula,
        coordinates={"n": samples, "d": features, "distance": error},
        detail=r"mean $|\nabla F_i|^2$ over the formula, $n' = 5$, 10, 10, 10, 10, $d "
        "= 1$, 10, 100, 300, 10, the last without error, whose roots are "
        + listed(np.sqrt(formula), ".2f"),
    )


@functools.lru_cache(maxsize=1)
def _raw_means(preset: Preset) -> list[Float[np.ndarray, " batches"]]:
    found = []
    for index, (samples, features, trials, error) in enumerate(_EQ7_SHARP_POINTS):
        trials *= preset.choose(quick=1, full=12)
        one = GradientSum(samples, features, 1.0, error=error)
        generator = preset.generator(EQ7_SHARP, index)
        squares = sum_of_gradients(generator, one, trials * _BATCHES) ** 2
        found.append(np.mean(squares.reshape(_BATCHES, trials), axis=1))
    return found


def prove_root_mean_square(*, more: int = 1) -> list[Step]:
    r"""$E |\nabla F_i|^2 = 4 (1 + (d + \mathtt{more})/n') |e|^2 + 4 d \sigma^2/n'$.

    $n' \nabla F_i = 2 X'w$, $w = X e - \varepsilon$, and $X'w = g e + \tau \sqrt{g}
    \zeta$ in law, $g$ a $\chi_{n'}^2$, $\tau^2 = |e|^2 + \sigma^2$, $\zeta$ of
    covariance $I - e e'/\tau^2$ (step 3 of the proof of ifca.thm1.explicit). So
    $E|X'w|^2 = E g^2 |e|^2 + \tau^2 E g (d - |e|^2/\tau^2)$, with $E g = n'$, $E g^2 =
    n' (n' + 2)$.
    """
    import sympy

    n, d, e, sigma = sympy.symbols("n d e sigma", positive=True)
    tau2 = e**2 + sigma**2
    square = n * (n + 2) * e**2 + tau2 * n * (d - e**2 / tau2)
    claimed = 4 * (1 + (d + more) / n) * e**2 + 4 * d * sigma**2 / n
    return [
        identity("$4 E|X'w|^2/n'^2$ is the claimed value", 4 * square / n**2 - claimed)
    ]


EQ8, EQ9 = "ifca.eq8", "ifca.eq9"

STEP = 0.5  # gamma p

# All clients of the other of two equal clusters are misassigned; p m of each.
_EQ8_POINTS = (
    GradientSum(20, 20, 1.0, 1),
    GradientSum(20, 20, 1.0, 3),
    GradientSum(16, 32, 0.3, 2),
    GradientSum(16, 16, 0.0, 24),
)


def check_sum(preset: Preset, *, c5: float = C5) -> Verdict:
    """(8) on raw gradients that all point the same way, at the longest error."""
    samples, features, _, misassigned, _ = np.array(_EQ8_POINTS).T
    gamma, clients = STEP * 2, 2 * misassigned
    scale = gamma / clients * misassigned * np.maximum(1, features / samples)
    return _judge_foreign(
        EQ8, preset, c5 * scale, of=r"(\gamma / m) M \max(1, d/n')", by=scale
    )


def check_count(preset: Preset, *, c5: float = STEP * C5) -> Verdict:
    """(9) on the same gradients, with gamma = 1 / (2 p)."""
    misassigned = np.array([float(point.clients) for point in _EQ8_POINTS])
    return _judge_foreign(EQ9, preset, c5 * misassigned, of="M", by=misassigned)


def _judge_foreign(
    name: str, preset: Preset, allowed: PerPoint, *, of: str, by: PerPoint
) -> Verdict:
    samples, features, sigma, misassigned, _ = np.array(_EQ8_POINTS).T
    failure = _failure(np.minimum(features, samples), misassigned)
    # |T2| = (gamma / m) |sum of grad F_i|
    found = STEP / misassigned[:, None]
    found = found * _raw_sums(preset, EQ8, _EQ8_POINTS, full=60_000)
    ratio = found / by[:, None]
    medians = np.median(ratio, axis=1)
    return at_most(
        name,
        tally(found > allowed[:, None]),
        failure,
        coordinates={
            "n": samples,
            "d": features,
            "noise": sigma,
            "misassigned": misassigned,
        },
        detail=f"raw data at {len(_EQ8_POINTS)} points, $M = 1$ to 24: "
        rf"$|T_2| / ({of})$ is at most {np.max(ratio):.1f}, its medians "
        f"{np.min(medians):.2f} to {np.max(medians):.2f}",
    )


EQ10, EQ11 = "ifca.eq10", "ifca.eq11"
EQ12, EQ12_CORRECTED = "ifca.eq12", "ifca.eq12.corrected"

EQ11_C = 3 / C7  # n' >= (c / alpha^2) ((rho + 1) / rho)^2 log m
C8 = C7 - 1 / EQ11_C

_ALPHAS = (0.001, 0.02, 0.1, 0.2, 0.3, 0.4, 0.49, 0.4999)
_RHOS = (1e-3, 0.05, 0.2, 1.0, 1.293, 4.0, 16.0, 256.0, 1e4)
_EQ10_SAMPLES = (1.0, 3.0, 10.0, 100.0, 1e4, 1e8)
_EQ11_CLIENTS = (2.0, 3.0, 10.0, 100.0, 1e4, 1e8, 1e16)
_EQ11_EXCESS = (1.0, 1.5, 10.0, 1000.0)  # n' over what (11) asks for


def asked_samples(alpha: Numbers, rho: Numbers, num_clients: Numbers) -> Broadcast:
    """n' = (c / alpha^2) ((rho + 1) / rho)^2 log m."""
    return np.asarray(EQ11_C * np.log(num_clients) / _exponent(alpha, rho, 1.0))


def _exponent(alpha: Numbers, rho: Numbers, num_samples: Numbers) -> Broadcast:
    return np.asarray((alpha * rho / (rho + 1)) ** 2 * num_samples)


def check_expected(preset: Preset, *, c7: float = C7) -> Verdict:
    """(10) at the worst case's exact law for p_1 -> 0, and the mean of raw counts."""
    alpha, rho, samples = grid(_ALPHAS, _RHOS, _EQ10_SAMPLES)
    exact = log_worst_chance(alpha, rho, samples)
    by_law = never_exceeds(
        EQ10,
        exact,  # of each client, and all m but a vanishing share are in question
        np.log(C6) - c7 * _exponent(alpha, rho, samples),
        rounding=log_rounding(exact),
        logarithmic=True,
        grade=Grade.EXACT,
        coordinates={"alpha": alpha, "rho": rho, "n": samples},
    )
    counts = raw_counts(preset, _SCARCE)
    clients, own, _, alpha, rho, samples = np.array(_SCARCE).T
    others = clients - own
    means = np.mean(counts, axis=1)
    low, high = intervals.hoeffding(
        means / others, others * counts.shape[1], ERROR_RATE / len(means)
    )
    bounds = C6 * clients * np.exp(-c7 * _exponent(alpha, rho, samples))
    raw = within(
        EQ10,
        (others * low, others * high),
        (-np.inf, bounds),
        num_trials=counts.size,
        grade=Grade.SAMPLED,
    )
    shown = ", ".join(f"{a:.2f} <= {b:.2f}" for a, b in zip(means, bounds, strict=True))
    detail = (
        f"exact law at {len(exact)} worst cases: {by_law.status.value}; mean "
        f"raw counts {shown}: {raw.status.value}"
    )
    return combine(EQ10, [by_law, raw], detail=detail)


def prove_expected(*, c7: str = "1.7617") -> list[Step]:
    r"""$E |S_1 \cap \overline{S_1^*}| \le c_6 m \exp(-c_7 (\ldots)^2 n')$: a sum over
    at most $m$ clients of $P(i\text{ in }S_1)$, $i$ in $S_j^*$ and $j \ne 1$, which is
    at most $P(E_i^{j,1})$, with $c_6 = 1/2$ and $c_7$ of Lemma 1: the proof of
    ifca.lem1.bound, whose steps these are."""
    return lemma1.prove_bound(c2=c7)


def check_under_assumption(_: Preset, *, share: float = 1.0) -> Verdict:
    """(11) by the exact law, at alpha = `share` alpha0 and n' as alpha0 asks for."""
    alpha0, rho, clients, samples = _assumed_grid()
    alpha = share * alpha0
    exact = log_worst_chance(alpha, rho, samples)
    return never_exceeds(
        EQ11,
        np.log(clients - 1) + exact,
        np.log(C6) - C8 * _exponent(alpha, rho, samples),
        rounding=log_rounding(exact),
        logarithmic=True,
        grade=Grade.EXACT,
        coordinates={"alpha": alpha, "rho": rho, "m": clients, "n": samples},
        detail=f"exact law at {len(exact)} worst cases, 2 to $10^{{16}}$ clients, "
        rf"$\alpha = {share:g} \alpha_0$, $n'$ from $(c / \alpha_0^2) ((\rho + 1) / "
        r"\rho)^2 \log m$ on",
    )


def prove_under_assumption(*, more: str = "0") -> list[Step]:
    r"""$E |S_1 \cap \overline{S_1^*}| \le c_6 \exp(-(c_8 + \mathtt{more}) z)$, $z =
    (\alpha \rho/(\rho + 1))^2 n'$.

    By ifca.eq10 it is at most $c_6 m \exp(-c_7 z)$. $n' \ge (c/\alpha^2) ((\rho +
    1)/\rho)^2 \log m$ is $z \ge c \log m$, so that $m \le \exp(z/c)$ and $c_8 = c_7 -
    1/c$. Here $c_7 = 1.7617$ and $c = 3/c_7$, so that $c_8 = 2 c_7/3$.
    """
    c7 = Fraction("1.7617")
    c8 = 2 * c7 / 3
    return [
        *prove_expected(),
        exactly(r"$c_7 - 1/c \ge c_8$", c7 - c7 / 3 >= c8 + Fraction(more)),
    ]


def prove_markov(*, part: str = "1/2") -> list[Step]:
    r"""$P(|S_1 \cap \overline{S_1^*}| > c_6 \exp(-c_8 z/2)) \le \exp(-c_8 z
    \mathtt{part}) \le 1/m$, and the event is that the set is not empty.

    1. By Markov's inequality $P \le E/(c_6 \exp(-c_8 z/2)) \le \exp(-c_8 z/2)$, by
       ifca.eq11.
    2. $z \ge c \log m$: $\exp(-c_8 z/2) \le m^{-c c_8/2}$, and $c c_8/2 = (3/c_7) (2
       c_7/3)/2 = 1$.
    3. $c_6 \exp(-c_8 z/2) < c_6 = 1/2 < 1$, and the count is an integer.
    """
    c7, share = Fraction("1.7617"), Fraction(part)
    c, c8 = 3 / c7, 2 * c7 / 3
    return [
        *prove_under_assumption(),
        exactly(r"$-c_8 + c_8/2 \le -c_8$ part", -c8 + c8 / 2 <= -c8 * share),
        exactly(r"$c c_8$ part $\ge 1$", c * c8 * share >= 1),
        exactly("$c_6 < 1$", Fraction(1, 2) < 1),
    ]


def check_markov(preset: Preset, *, c8: float = C8) -> Verdict:
    """(12) with 1/m: the exact law of P(count > 0) for k = 2, and raw counts."""
    alpha, rho, clients, samples = _assumed_grid()
    each = log_worst_chance(alpha, rho, samples)
    total = np.log(clients - 1) + each
    # 1 - (1 - q)^(m - 1), which is (m - 1) q to full precision where that is tiny
    never = np.minimum((clients - 1) * np.log1p(-np.exp(each)), -1e-20)
    exact = np.where(total < -35, total, np.log(-np.expm1(never)))
    middle = -c8 / 2 * _exponent(alpha, rho, samples)
    by_law = never_exceeds(
        EQ12_CORRECTED,
        np.stack([exact, -C8 / 2 * _exponent(alpha, rho, samples)]),
        np.stack([middle, -np.log(clients)]),
        rounding=log_rounding(each) + 1e-13,
        logarithmic=True,
        grade=Grade.EXACT,
        coordinates={
            "alpha": alpha,
            "rho": rho,
            "m": clients,
            "n": samples,
            "part": np.array([["middle"], ["end"]]),
        },
    )
    counts = raw_counts(preset, _ENOUGH)
    events = tally(_above(counts, _ENOUGH))
    raw = at_most(EQ12_CORRECTED, events, 1 / np.array(_ENOUGH)[:, 0])
    detail = (
        f"exact law of any misassignment at {len(exact)} worst cases: "
        f"{by_law.status.value}; raw counts not 0 in {np.sum(counts > 0)} of "
        f"{counts.size} rounds: {raw.status.value}"
    )
    return combine(EQ12_CORRECTED, [by_law, raw], detail=detail)


def check_printed(preset: Preset, *, eighth: bool = False) -> Verdict:
    """The printed end of (12), P(count > threshold) <= poly(m), with poly(m) = m. With
    `eighth`, P <= 1 / m at an eighth of the samples."""
    rows, power = (_EIGHTH, -1.0) if eighth else (_ENOUGH, 1.0)
    events = _above(raw_counts(preset, rows), rows)
    detail = (
        rf"raw counts of {len(rows)} federations, $\operatorname{{poly}}(m) = "
        f"m^{{{power:g}}}$; somebody misassigned in {np.mean(events):.2g} of the "
        "rounds"
    )
    places = columns(" ".join(Federation._fields), rows)
    return at_most(
        EQ12,
        tally(events),
        np.array(rows)[:, 0] ** power,
        coordinates={
            "m": places["num_clients"],
            "k": places["num_clusters"],
            "alpha": places["alpha"],
            "rho": places["rho"],
            "n": places["num_samples"],
        },
        detail=detail,
    )


class Federation(NamedTuple):
    """A round's clients, each in the same position with regard to model 1."""

    num_clients: int  # m
    own_clients: int  # p_1 m, of cluster 1
    num_clusters: int  # k, 2 (then in the worst position that Lemma 1 allows) or 3
    alpha: float  # all models are (1/2 - alpha) Delta from their truths
    rho: float  # Delta^2 over the noise variance
    num_samples: int  # n'


# Too few samples for (11): the expectation of (10) is large enough to be seen.
_SCARCE = (
    Federation(40, 2, 2, 0.1, 1.0, 3),
    Federation(20, 5, 2, 0.3, 1.293, 20),
    Federation(30, 10, 3, 0.2, 4.0, 10),
)
# As many as (11) asks for, rounded up.
_ENOUGH = (
    Federation(12, 2, 2, 0.3, 4.0, 74),
    Federation(50, 10, 2, 0.45, 100.0, 34),
    Federation(30, 10, 3, 0.4, 4.0, 57),
)
_EIGHTH = tuple(one._replace(num_samples=one.num_samples // 8) for one in _ENOUGH)


def _above(
    counts: Int[np.ndarray, "points rounds"], rows: tuple[Federation, ...]
) -> Bool[np.ndarray, "points rounds"]:
    """Whether the count is above the threshold of (12), which is below 1."""
    _, _, _, alpha, rho, samples = np.array(rows).T
    return counts > C6 * np.exp(-C8 / 2 * _exponent(alpha, rho, samples))[:, None]


def _assumed_grid() -> tuple[PerPoint, ...]:
    """alpha, rho, m and n' as (11) asks for, or more."""
    alpha, rho, clients, excess = grid(_ALPHAS, _RHOS, _EQ11_CLIENTS, _EQ11_EXCESS)
    samples = np.ceil(excess * np.ceil(asked_samples(alpha, rho, clients)))
    return alpha, rho, clients, samples


def _eq11_margins() -> tuple[Margin, ...]:
    return tuple(
        Margin(
            r"ifca.asm2: $n' \ge (c / \alpha^2) ((\rho + 1) / \rho)^2 \log m$",
            float(one.num_samples),
            float(asked_samples(one.alpha, one.rho, one.num_clients)),
        )
        for one in _ENOUGH
    )


@functools.lru_cache(maxsize=3)
def raw_counts(
    preset: Preset, rows: tuple[Federation, ...]
) -> Int[np.ndarray, "points rounds"]:
    """Clients of other clusters whose raw loss is smallest at model 1, per round. Costs
    rounds * clients * num_samples * 3 normal draws for each federation."""
    rounds = preset.choose(quick=1500, full=12_000)
    found = []
    for index, one in enumerate(rows):
        generator = preset.generator("misassigned counts", index, one.num_samples)
        client = _client(generator, one)
        counts = np.zeros(rounds, int)
        for _ in range(one.num_clients - one.own_clients):
            counts += _prefers_first(generator, client, rounds)
        found.append(counts)
    return np.array(found)


def _client(generator: np.random.Generator, one: Federation) -> Client:
    """A client outside cluster 1: its own model, model 1, and a third one if k = 3."""
    client = worst_client(generator, one.alpha, one.rho, 2, one.num_samples)
    if one.num_clusters == 2:
        return client
    # The three truths are corners of a triangle with sides 1, 1 and sqrt(3).
    directions = turn(np.pi / 3 * np.array([0.0, 1.0, -1.0]))
    lengths = 0.5 + one.alpha * np.array([[-1.0], [1.0], [1.0]])
    return client._replace(truth=np.zeros(2), models=lengths * directions)


def _prefers_first(
    generator: np.random.Generator, client: Client, rounds: int
) -> Bool[np.ndarray, " rounds"]:
    """Whether model 1, second in the list, has the smallest loss; ties count."""
    shape = (rounds, client.num_samples, len(client.truth))
    inputs = generator.standard_normal(shape)
    noise = client.noise * generator.standard_normal(shape[:2])
    residuals = noise[..., None] + inputs @ (client.truth - client.models).T
    losses = np.sum(residuals**2, axis=1)
    return np.all(losses[:, 1:2] <= losses, axis=1)


_FOREIGN_CLIENT = (
    r"$i$ in $S_j^*$, $j \ne 1$, and $\theta_1$ independent of the fold",
    r"$\max |\theta_j^*| \le 1$, $|\theta_1 - \theta_1^*| \le (1/2 - \alpha) \Delta$, "
    r"$\alpha > 0$",
)
_EQ8_PRECONDITIONS = (
    *_FOREIGN_CLIENT,
    r"$\sigma \le 1$",
    "the gradients' fold is fresh given $S_1$",
)
_ASSUMED = r"$n' \ge (c / \alpha^2) ((\rho + 1) / \rho)^2 \log m$"

STATEMENTS = (
    row(
        id=EQ6,
        place="Appendix A, (6)",
        text=r"$n' |\nabla F_i(\theta_1)| \le 6 |X_i|_{\mathrm{op}}^2 + 2 |X_i' "
        r"\varepsilon_i|$",
        preconditions=_FOREIGN_CLIENT,
        constants={"of $|X_i|^2$": 6.0, r"of $|X_i' \varepsilon_i|$": 2.0},
        claimed=r"'$\lesssim$', one constant for both, unnamed",
        check=check_length,
        control={"of_inputs": 5.99},
        proof=prove_length,
        proof_control={"reach": "2.99"},
        note="Both constants are attained in the limit. The control claims 5.99.",
    ),
    row(
        id=EQ6_GRADIENT,
        place="Appendix A, before (6)",
        text=r"$\nabla F_i(\theta_1) = (2/n') X_i' (Y_i - X_i \theta_1)$",
        preconditions=(r"$F_i(\theta) = |Y_i - X_i \theta|^2 / n'$",),
        expected=Status.VIOLATED,
        fault="misprint",
        check=functools.partial(check_gradient, name=EQ6_GRADIENT, sign=1.0),
        control={"sign": -1.0},
        proof=prove_gradient,
        proof_control={"sign": -1},
        note="The sign is wrong; (6) only uses the length. The control has the other "
        "sign.",
    ),
    row(
        id=f"{EQ6_GRADIENT}.corrected",
        place="Appendix A, before (6)",
        text=r"$\nabla F_i(\theta_1) = (2/n') X_i' (X_i \theta_1 - Y_i)$",
        preconditions=(r"$F_i(\theta) = |Y_i - X_i \theta|^2 / n'$",),
        check=functools.partial(
            check_gradient, name=f"{EQ6_GRADIENT}.corrected", sign=-1.0
        ),
        control={"sign": -1.001},
        proof=prove_gradient_corrected,
        proof_control={"factor": "2.001"},
        note="The control is 0.1 % longer.",
    ),
    row(
        id=EQ7,
        place="Appendix A, (7)",
        text=r"$|\nabla F_i(\theta_1)| \le (c_3 \max\{d, n'\} + c_4 \sigma \sqrt{d "
        r"n'}) / n' \le c_5 \max\{1, d/n'\}$ with probability $\ge 1 - c_1 "
        r"\exp(-c_2 \min\{d, n'\})$",
        preconditions=(*_FOREIGN_CLIENT, r"$\sigma \le 1$"),
        constants={"c1": C1, "c2": NOISE_EXPONENT, "c3": C3, "c4": C4, "c5": C5},
        claimed="$c_1$, ..., $c_5 > 0$, universal, unnamed",
        check=check_probability,
        control={"c5": 8.0},
        proof=prove_probability,
        proof_control={"c3": 53.0},
        note="Loose by a square root, see ifca.eq7.sharp. The text says '(7) holds "
        r"for all $j \in \overline{S_1^*}$', meaning $i$. The control claims $c_5 = "
        "8$.",
    ),
    row(
        id=EQ7_SHARP,
        place="Appendix A, (7), exact mean square",
        text=r"$E |\nabla F_i(\theta_1)|^2 = 4 (1 + (d+1)/n') |e|^2 + 4 d \sigma^2 / "
        r"n'$, $e = \theta_1 - \theta_j^*$: of order $\max\{1, \sqrt{d/n'}\}$, "
        r"not $\max\{1, d/n'\}$",
        preconditions=_FOREIGN_CLIENT[:1],
        constants={"tolerance of the mean square": 0.06},
        check=check_root_mean_square,
        control={"extra_features": 0},
        proof=prove_root_mean_square,
        proof_control={"more": 0},
        note="Not in the paper. The control has $d$ in place of $d + 1$.",
    ),
    row(
        id=EQ8,
        place="Appendix A, (8)",
        text=r"Given $S_1$, $|T_2| \le c_5 (\gamma / m) |S_1 \cap \overline{S_1^*}| "
        r"\max\{1, d/n'\}$ with probability $\ge 1 - 1/\operatorname{poly}(m)$",
        preconditions=_EQ8_PRECONDITIONS,
        constants={"c5": C5, "c1": C1, "c2": NOISE_EXPONENT},
        claimed=r"$c_5$ of (7); $n' \gtrsim \log m$ and $d \gtrsim \log m$ make the "
        "probability",
        check=check_sum,
        control={"c5": 6.0},
        proof=prove_sum,
        proof_control={"c5": 57.0},
        note=r"Checked with probability $1 - M c_1 \exp(-c_2 \min\{d, n'\})$, $M = "
        r"|S_1 \cap \overline{S_1^*}|$. Loose where $d > n'$, as (7) is. The "
        "control claims $c_5 = 6$.",
    ),
    row(
        id=EQ9,
        place="Appendix A, (9)",
        text=r"$|T_2| \le c_5 |S_1 \cap \overline{S_1^*}|$ with probability $\ge 1 "
        r"- 1/\operatorname{poly}(m)$",
        preconditions=(
            *_EQ8_PRECONDITIONS,
            r"$\gamma = 1 / (2 p)$, $p m \ge 1$, $p m "
            r"n' \ge d$",
        ),
        constants={"c5": STEP * C5, r"$\gamma p$": STEP},
        claimed=r"$\gamma = c / p$, $p m n' \gtrsim d$, constants unnamed",
        check=check_count,
        control={"c5": 3.0},
        proof=prove_count,
        proof_control={"least_share": "0.9"},
        margins=lambda: tuple(
            Margin(
                r"ifca.asm2: $p m n' \ge d$",
                float(point.clients * point.num_samples),
                float(point.num_features),
            )
            for point in _EQ8_POINTS
        ),
        note=r"The factor $\gamma / m$, of order $1 / (p m)$, is thrown away: a count "
        "bounds $|T_2|$ where a fraction would, and only (11) makes up for it. The "
        "control has $c_5 = 3$.",
    ),
    row(
        id=EQ10,
        place="Appendix A, (10)",
        text=r"$E |S_1 \cap \overline{S_1^*}| \le c_6 m \exp(-c_7 (\alpha \rho / "
        r"(\rho + 1))^2 n')$",
        preconditions=PRECONDITIONS,
        constants={"c6": C6, "c7": C7},
        claimed="$c_6$, $c_7 > 0$, universal, unnamed; by Lemma 1",
        check=check_expected,
        control={"c7": 1.78},
        proof=prove_expected,
        proof_control={"c7": "1.7618"},
        note="The constants of Lemma 1, and as sharp. The control claims $c_7 = 1.78$.",
    ),
    row(
        id=EQ11,
        place="Appendix A, (11)",
        text=r"$E |S_1 \cap \overline{S_1^*}| \le c_6 \exp(-c_8 (\alpha \rho / "
        r"(\rho + 1))^2 n')$",
        preconditions=(*PRECONDITIONS, _ASSUMED),
        constants={"c": EQ11_C, "c6": C6, "c8": C8},
        claimed="$c$ large enough, $c_6$ and $c_8 > 0$ unnamed",
        check=check_under_assumption,
        control={"share": 0.5},
        proof=prove_under_assumption,
        proof_control={"more": "0.001"},
        margins=_eq11_margins,
        note=r"The text says 'according to Assumption 2', which has $\alpha_0$: it "
        r"follows only for $\alpha \ge \alpha_0$, and Theorem 1 allows any $\alpha$. "
        r"The control has $\alpha = \alpha_0 / 2$ with the $n'$ that Assumption 2 "
        "asks for.",
    ),
    row(
        id=EQ12,
        place="Appendix A, (12)",
        text=r"$P(|S_1 \cap \overline{S_1^*}| \le c_6 \exp(-(c_8/2) (\alpha \rho / "
        r"(\rho + 1))^2 n')) \ge 1 - \operatorname{poly}(m)$",
        preconditions=(*PRECONDITIONS, _ASSUMED),
        constants={r"$\operatorname{poly}(m) / m$": 1.0},
        claimed=r"$\operatorname{poly}(m)$, a polynomial",
        expected=Status.VACUOUS,
        check=check_printed,
        control={"eighth": True},
        note=r"With $\operatorname{poly}(m) \ge 1$ it says nothing; $1 - "
        r"1/\operatorname{poly}(m)$ is meant. The control claims $1 - 1/m$ at an "
        "eighth of the samples.",
    ),
    row(
        id=EQ12_CORRECTED,
        place="Appendix A, (12)",
        text=r"$P(|S_1 \cap \overline{S_1^*}| \le c_6 \exp(-(c_8/2) z)) \ge 1 - "
        r"\exp(-(c_8/2) z) \ge 1 - 1/m$, $z = (\alpha \rho / (\rho + 1))^2 n'$; the "
        "event is that the set is empty",
        preconditions=(*PRECONDITIONS, _ASSUMED),
        constants={"c": EQ11_C, "c6": C6, "c8": C8},
        check=check_markov,
        control={"c8": 2.1 * C8},
        proof=prove_markov,
        proof_control={"part": "0.501"},
        margins=_eq11_margins,
        note="An integer below $1/2$ is 0: under its assumptions the paper's third "
        "term of (1) stands for no misassignment at all. Markov's inequality loses "
        "half of the exponent. The control claims 2.1 times it.",
    ),
)
