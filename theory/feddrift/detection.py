"""Which drifts are found: a client is isolated if its loss rises by more than delta.

On linear regression with standard normal inputs and noise sigma, and a model at the
truth, the mean loss of n samples is sigma^2 chi^2_n / n; after a drift of the truth by
Delta it is (sigma^2 + Delta^2) chi^2_n / n. So both errors have an exact law.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import gammainc, gammaincc, gammaln

from cfljax.statements import (
    Evaluation,
    Grade,
    Margin,
    Preset,
    Real,
    Step,
    Verdict,
    combine,
    exact,
    identity,
    never_exceeds,
)
from theory.glossary import parameter
from theory.rows import columns, row

_SAMPLES = (2, 3, 10, 50, 200, 400)
_SMALL, _SHARP = 60, 1.08  # bounds below e^-60, whose logarithms are so sharp


def rise_law(
    samples: int, noise: float, separation: float, threshold: float
) -> tuple[float, float]:
    """Chance that the loss rises by more than `threshold`, and that it does not.

    An integral over the logarithm of the first time step's chi^2, by the trapezoidal
    rule, which converges geometrically; both ends to relative precision.
    """
    half, before = samples / 2, noise**2
    after = before + separation**2
    # Gamma(n/2) at n/2 e^v, times the change of variables.
    step = min(1 / 256, 1 / (4 * math.sqrt(half)))
    at = half * np.exp(np.arange(-80 / half - 4, 5, step))
    density = np.exp(half * np.log(at) - at - gammaln(half)) * step
    edge = (threshold * half + before * at) / after
    rises = np.sum(density * gammaincc(half, edge))
    return float(rises), float(np.sum(density * gammainc(half, edge)))


def false_alarm_exponent(noise: float, threshold: float) -> float:
    """Per sample, of a client without a drift."""
    root = math.hypot(1.0, threshold / noise**2)
    return (root - 1 - math.log((1 + root) / 2)) / 2


def missed_exponent(noise: float, separation: float, threshold: float) -> float:
    """Per sample, of a drift with separation^2 > threshold; else 0."""
    before, rest = noise**2, separation**2 - threshold
    after = before + separation**2
    if rest <= 0:
        return 0.0
    middle = 2 * separation**2 * threshold + 4 * before * after
    # middle^2 - 16 a b delta rest, without its cancellation.
    inner = (2 * separation**2 * threshold) ** 2 + 16 * before * after * (
        before * after + threshold**2
    )
    tilt = 2 * rest / (middle + math.sqrt(inner))
    logs = math.log1p(2 * after * tilt) + math.log1p(-2 * before * tilt)
    return logs / 2 - threshold * tilt


def check_false_alarm(_: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """The chance is at most e^(-n g), g `factor` times the exponent."""
    points = [
        (n, noise, share * noise**2)
        for n in _SAMPLES
        for noise in (0.5, 2.0)
        for share in (0.1, 0.3, 1.0, 3.0)
    ]
    exponents = [false_alarm_exponent(*rest) for _, *rest in points]
    truths = [rise_law(n, noise, 0.0, edge)[0] for n, noise, edge in points]
    return _judged(name, "n noise threshold", points, truths, exponents, factor)


def check_missed(_: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """As `check_false_alarm`, for drifts of which the loss does not rise enough."""
    points = [
        (n, noise, separation, share * separation**2)
        for n in _SAMPLES
        for noise in (0.5, 2.0)
        for separation in (0.3, 1.0, 3.0)
        for share in (0.1, 0.5, 0.9)
    ]
    exponents = [missed_exponent(*rest) for _, *rest in points]
    truths = [rise_law(n, *rest)[1] for n, *rest in points]
    names = "n noise separation threshold"
    return _judged(name, names, points, truths, exponents, factor)


def _judged(
    name: str,
    names: str,
    points: Sequence[tuple[Real, ...]],
    truths: list[float],
    exponents: list[float],
    factor: float,
) -> Verdict:
    """Chances at points that start with n: none is above its bound, and where that is
    small its logarithm is nearly the chance's."""
    samples = np.array([n for n, *_ in points])
    logs, bounds = np.log(truths), -factor * samples * np.array(exponents)
    below = never_exceeds(
        name,
        logs,
        bounds,
        rounding=1e-10 * (1 + np.abs(bounds)),
        logarithmic=True,
        grade=Grade.EXACT,
        coordinates=columns(names, points),
    )
    small = bounds < -_SMALL
    shares = logs[small] / bounds[small]
    sharp = never_exceeds(name, shares, _SHARP, rounding=1e-9, grade=Grade.EXACT)
    return dataclasses.replace(
        combine(name, [below, sharp]),
        points=below.points,
        detail=f"{len(points)} chances, down to $e^{{{np.min(logs):.0f}}}$; below "
        f"$e^{{-{_SMALL}}}$ their logarithms are {np.min(shares):.3f} to "
        f"{np.max(shares):.3f} times those of their bounds",
    )


def prove_false_alarm(*, half: str = "1/2") -> list[Step]:
    r"""By Markov's inequality the chance is at most $e^{-s u n} E e^{s (\chi'^2 -
    \chi^2)} = e^{-s u n} (1 - 4 s^2)^{-n/2}$ for all $0 < s < 1/2$, $u =
    \delta/\sigma^2$. For $s = (r - 1)/(2 u)$, $r = \sqrt{1 + u^2}$: (2) $s u = (r -
    1)/2$ and (3) $1 - 4 s^2 = 2/(1 + r)$."""
    import sympy

    root = sympy.Symbol("r", positive=True)
    square = root**2 - 1  # u^2
    tilt_times = sympy.Rational(half) * (root - 1)
    return [
        _moment(),
        identity(
            "(2), (3) $1 - 4 s^2 = 2/(1 + r)$ where $s u = (r - 1)/2$, $u^2 = r^2 - 1$",
            sympy.cancel(1 - 4 * tilt_times**2 / square - 2 / (1 + root)),
        ),
    ]


def prove_missed(*, two: int = 2) -> list[Step]:
    r"""By Markov's inequality, for $0 < s < 1/(2 b)$, $a = \sigma^2 + \Delta^2$, $b =
    \sigma^2$: the chance is at most $e^{s n \delta} E e^{-s (a \chi'^2 - b \chi^2)} =
    e^{s n \delta} ((1 + 2 a s)(1 - 2 b s))^{-n/2}$. The $s$ that is taken makes this
    least: (2) the derivative of its exponent is 0 where $4 a b \delta s^2 - (2 (a - b)
    \delta + 4 a b) s + a - b - \delta = 0$, whose smaller root is above 0 as $\Delta^2
    = a - b > \delta$, and below $1/(2 b)$, as the polynomial is $-b (1 + a/b) < 0$
    there."""
    import sympy

    after, before, rise, tilt = sympy.symbols("a b delta s", positive=True)
    exponent = (
        tilt * rise
        - sympy.log(1 + two * after * tilt) / 2
        - sympy.log(1 - two * before * tilt) / 2
    )
    slope = sympy.diff(exponent, tilt)
    polynomial = (
        4 * after * before * rise * tilt**2
        - (2 * (after - before) * rise + 4 * after * before) * tilt
        + after
        - before
        - rise
    )
    denominator = (1 + two * after * tilt) * (1 - two * before * tilt)
    return [
        _moment(),
        identity(
            "(2) the derivative, times $-(1 + 2 a s)(1 - 2 b s)$, is the polynomial",
            sympy.cancel(slope * denominator + polynomial),
        ),
        identity(
            r"the polynomial at $s = 1/(2 b)$ is $-(a + b)$",
            polynomial.subs(tilt, 1 / (2 * before)) + after + before,
        ),
    ]


def _moment() -> Step:
    """Of the square of a standard normal number."""
    import sympy

    tilt, z = sympy.Symbol("s", positive=True), sympy.Symbol("z", real=True)
    density = sympy.exp(-(z**2) / 2) / sympy.sqrt(2 * sympy.pi)
    mean = sympy.integrate(sympy.exp(-tilt * z**2) * density, (z, -sympy.oo, sympy.oo))
    return identity(
        r"(1) $E e^{-s z^2} = (1 + 2 s)^{-1/2}$, and so for all $s > -1/2$",
        mean - 1 / sympy.sqrt(1 + 2 * tilt),
    )


_REGRESSION = (
    r"linear regression, squared error, inputs $N(0, I)$, noise $N(0, \sigma^2)$, $n$ "
    "new samples in each time step",
    "the model that the client loses least with is the truth of the time step before",
)
_PLACE = "Released code, `SoftClusterState.cluster_hierarchical`"

STATEMENTS = (
    row(
        id="feddrift.false_alarm",
        place=_PLACE,
        text=r"a client without a drift is isolated with chance at most "
        r"$e^{-\frac{n}{2} (r - 1 - \log \frac{1 + r}{2})}$, $r = \sqrt{1 + "
        r"\delta^2/\sigma^4}$",
        preconditions=(*_REGRESSION, r"$\delta > 0$"),
        check=check_false_alarm,
        control={"factor": 1.05},
        proof=prove_false_alarm,
        proof_control={"half": "51/100"},
        evaluation=Evaluation(
            quantity="P(isolated) without a drift",
            parameters=(
                parameter("n", 100),
                parameter("noise", 1.0, open=True),
                parameter("threshold", 0.5),
            ),
            bound=lambda n, noise, threshold: math.exp(
                -n * false_alarm_exponent(noise, threshold)
            ),
            truth=lambda n, noise, threshold: exact(
                rise_law(n, noise, 0.0, threshold)[0]
            ),
            note=r"by the law of two $\chi^2$, integrated",
        ),
        note="Our own theorem on the code's rule, with losses where that has "
        r"accuracies. About $e^{-n \delta^2/(8 \sigma^4)}$ for small $\delta$: to "
        r"halve the threshold takes four times the samples. The exponent is sharp as "
        r"$n$ grows: the control has 1.05 times it.",
    ),
    row(
        id="feddrift.missed",
        place=_PLACE,
        text=r"a drift of the truth by $\Delta$ with $\Delta^2 > \delta$ is missed "
        r"with chance at most $e^{-n g}$, $g = \max_s \frac{1}{2} \log((1 + 2 a s)(1 - "
        r"2 b s)) - s \delta$, $a = \sigma^2 + \Delta^2$, $b = \sigma^2$",
        preconditions=(*_REGRESSION, r"$\Delta^2 > \delta$"),
        check=check_missed,
        control={"factor": 1.1},
        proof=prove_missed,
        proof_control={"two": 3},
        margins=lambda: (
            Margin(r"$\Delta^2 > \delta$, at $\Delta = 0.3$", 0.09, 0.9 * 0.09),
        ),
        evaluation=Evaluation(
            quantity="P(not isolated) after a drift",
            parameters=(
                parameter("n", 100),
                parameter("noise", 1.0, open=True),
                parameter("separation", 1.0, "distance of the truth before and after"),
                parameter("threshold", 0.5),
            ),
            bound=lambda n, noise, separation, threshold: math.exp(
                -n * missed_exponent(noise, separation, threshold)
            ),
            truth=lambda n, **rest: exact(rise_law(n, **rest)[1]),
            margins=lambda n, noise, separation, threshold: (
                Margin(r"$\Delta^2 > \delta$", separation**2, threshold),
            ),
            note=r"by the law of two $\chi^2$, integrated",
        ),
        note=r"The loss rises by $\Delta^2$ on average, so that smaller drifts than "
        r"$\sqrt{\delta}$ are missed by most clients, whatever $n$. The exponent is "
        "sharp: the control has 1.1 times it.",
    ),
)
