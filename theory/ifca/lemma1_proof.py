"""Lemma 1's proof in Appendix A.1: a threshold t between the two losses, (13) to (19).

U = |X (theta_1* - theta_1) + eps|^2 is A chi2_n' and V = |X (theta_1* - theta_j) +
eps|^2 is B chi2_n', with A = |theta_1 - theta_1*|^2 + sigma^2 and B = |theta_j -
theta_1*|^2 + sigma^2. (13) is P(U >= V) <= P(V <= t) + P(U > t), for every t; (14) and
(15) replace A and B by the largest and smallest values that the lemma allows; (16) to
(19) bound the two tails at the paper's t = n' ((1/4 + alpha^2) Delta^2 + sigma^2).
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax import law
from cfljax.statements import (
    Grade,
    Preset,
    Statement,
    Step,
    Verdict,
    combine,
    exactly,
    identity,
    never_exceeds,
    same_law,
)
from theory.ifca.common.checks import PerPoint, grid, row, unit
from theory.ifca.common.linear import log_worst_chance
from theory.ifca.common.raw_data import Geometry, place_pair
from theory.ifca.common.steps import (
    logarithm_below,
    logarithm_of_less,
)
from theory.ifca.lemma1 import PRECONDITIONS, lemma1_bound
from theory.polynomials import no_negative_term

EQ13, EQ14, EQ15 = "ifca.eq13", "ifca.eq14", "ifca.eq15"

_TINY = 1e-280  # below, SciPy's incomplete gamma functions underflow
_RELATIVE = 1e-11  # their error for up to 10^4 degrees of freedom, generously
_RAW = (Geometry(3, 7, 0.3, 0.8, -0.4, 0.5), Geometry(1, 2, 0.2, 0.7, -1.0, 1.0))


class _Configurations(NamedTuple):
    """Random models that Lemma 1 allows, Delta = 1, and a threshold for each."""

    alpha: PerPoint
    noise: PerPoint
    own_error: Float[np.ndarray, "points features"]  # theta_1* - theta_1
    other_error: Float[np.ndarray, "points features"]  # theta_1* - theta_j
    num_samples: PerPoint
    threshold: PerPoint

    @property
    def near(self) -> PerPoint:
        """A."""
        return np.sum(self.own_error**2, axis=1) + self.noise**2

    @property
    def far(self) -> PerPoint:
        """B."""
        return np.sum(self.other_error**2, axis=1) + self.noise**2


@functools.lru_cache(maxsize=1)
def _configurations(preset: Preset) -> _Configurations:
    """A third at the corner |theta_1 - theta_1*| = 1/2 - alpha, |theta_j - theta_1*| =
    1/2 + alpha, a third with thresholds as in the paper."""
    generator = preset.generator(EQ13)
    points = preset.choose(quick=20_000, full=1_000_000)
    alpha = np.where(
        generator.uniform(size=points) < 0.2,
        10 ** generator.uniform(-6, -2, points),
        generator.uniform(0.01, 0.4999, points),
    )
    noise = 10 ** generator.uniform(-1.5, 1.5, points)
    separation = 1 + generator.exponential(size=points)
    corner = np.arange(points) % 3 == 0
    separation[corner] = 1

    def ball() -> Float[np.ndarray, "points features"]:
        vectors = generator.standard_normal((points, 3))
        vectors[corner] = (1, 0, 0)
        length = np.where(corner, 1, generator.uniform(size=points))
        return unit(vectors) * ((0.5 - alpha) * length)[:, None]

    own, other = ball(), ball()
    other[:, 0] -= separation
    samples = np.floor(10 ** generator.uniform(0, 4, points))
    found = _Configurations(alpha, noise, own, other, samples, samples)
    weight = generator.uniform(-0.5, 1.5, points)
    between = found.near ** (1 - weight) * found.far**weight
    paper = np.arange(points) % 3 == 1
    mean = np.where(paper, 0.25 + alpha**2 + noise**2, between)
    return found._replace(threshold=samples * mean)


def _below(samples: PerPoint, level: PerPoint):
    return scipy.special.gammainc(samples / 2, level / 2)


def _above(samples: PerPoint, level: PerPoint):
    return scipy.special.gammaincc(samples / 2, level / 2)


def check_threshold(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """(13): exact left against `factor` times exact right, and raw U and V."""
    rows = _configurations(preset)
    kappa = law.misassignment_kappa(
        np.zeros(3), -rows.own_error, -rows.other_error, rows.noise
    )
    left = law.log_misassignment_probability(kappa, rows.num_samples)
    right = _below(rows.num_samples, rows.threshold / rows.far)
    right += _above(rows.num_samples, rows.threshold / rows.near)
    kept = (right > _TINY) | (left > np.log(_TINY))
    log_right = np.log(np.maximum(right[kept], np.finfo(float).tiny))
    by_law = never_exceeds(
        EQ13,
        left[kept],
        np.log(factor) + log_right,
        rounding=_RELATIVE * (1 + np.abs(log_right)),
        grade=Grade.SAMPLED,
        logarithmic=True,
        coordinates={
            "alpha": rows.alpha[kept],
            "noise": rows.noise[kept],
            "n": rows.num_samples[kept],
        },
    )
    raw = same_law(EQ13, *raw_losses(preset), resolution=0.05)
    share = float(np.max(np.exp(left[kept] - log_right)))
    detail = (
        f"exact at {np.sum(kept)} configurations and thresholds: at most {share:.4f} "
        r"of the right side; raw $U / A$ and $V / B$ against $\chi^2$: "
        f"{raw.status.value}"
    )
    return combine(EQ13, [by_law, raw], detail=detail)


@functools.lru_cache(maxsize=1)
def raw_losses(preset: Preset):
    """Samples of U / A and V / B, and the distribution functions claimed for them."""
    trials = preset.choose(quick=20_000, full=400_000)
    samples, laws = [], []
    for index, one in enumerate(_RAW):
        generator = preset.generator(EQ13, index)
        client = place_pair(generator, one)
        count = one.num_samples
        inputs = generator.standard_normal((trials, count, one.num_features))
        labels = inputs @ client.truth
        labels += one.noise * generator.standard_normal((trials, count))
        errors = (one.own_error, one.other_error)
        for model, error in zip(client.models, errors, strict=True):
            loss = np.sum((labels - inputs @ model) ** 2, axis=1)
            samples.append(loss / (error**2 + one.noise**2))
            laws.append(functools.partial(scipy.special.chdtr, float(count)))
    return samples, laws


def check_far(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """(14), with 1/2 + `factor` alpha."""
    rows = _configurations(preset)
    worst = (0.5 + factor * rows.alpha) ** 2 + rows.noise**2
    left = _below(rows.num_samples, rows.threshold / rows.far)
    right = _below(rows.num_samples, rows.threshold / worst)
    return _judge_replaced(
        EQ14, rows, left, right, detail="$B$ against its smallest value"
    )


def check_near(preset: Preset, *, quarter: bool = False) -> Verdict:
    """(15); with `quarter`, at |theta_1 - theta_1*| = Delta / 4, which is printed."""
    rows = _configurations(preset)
    near = 1 / 16 + rows.noise**2 if quarter else rows.near
    worst = (0.5 - rows.alpha) ** 2 + rows.noise**2
    left = _above(rows.num_samples, rows.threshold / near)
    right = _above(rows.num_samples, rows.threshold / worst)
    return _judge_replaced(
        EQ15, rows, left, right, detail="A against its largest value"
    )


def _judge_replaced(
    name: str, rows: _Configurations, left: PerPoint, right: PerPoint, *, detail: str
) -> Verdict:
    kept = left > _TINY
    log_left = np.log(left[kept])
    return never_exceeds(
        name,
        log_left,
        np.log(np.maximum(right[kept], np.finfo(float).tiny)),
        rounding=_RELATIVE * (1 + np.abs(log_left)),
        grade=Grade.SAMPLED,
        logarithmic=True,
        coordinates={
            "alpha": rows.alpha[kept],
            "noise": rows.noise[kept],
            "n": rows.num_samples[kept],
        },
        detail=f"{detail}: exact at {np.sum(kept)} configurations and thresholds",
    )


def prove_threshold(*, strict: bool = False) -> list[Step]:
    r"""(13), for every $t$. $U \ge V$ implies $V \le t$ or $U > t$, whatever the order
    of the three: all orders of three numbers are looked through (`strict` has $V < t$).
    The union bound is the first inequality. The second is an equality: with $a =
    \theta_1^* - \theta_1$ an entry of $X a + \varepsilon$ is normal of variance $|a|^2
    + \sigma^2 = A$, and entries are independent, so that $U$ is $A \chi_{n'}^2$ in law,
    and $V$ is $B \chi_{n'}^2$."""
    orders = itertools.product(range(3), repeat=3)
    covered = all(
        (v < t if strict else v <= t) or u > t for u, v, t in orders if u >= v
    )
    return [exactly(r"$U \ge V$ implies $V \le t$ or $U > t$", covered)]


def prove_far(*, factor: str = "1") -> list[Step]:
    r"""(14): $|\theta_j - \theta_1^*| \ge |\theta_j^* - \theta_1^*| - |\theta_j -
    \theta_j^*| \ge \Delta - (1/2 - \alpha) \Delta = (1/2 + \alpha) \Delta$, so that $B$
    is at least the claimed one, and $P(B u \le t)$ falls in $B$. `factor` is that of
    $\alpha$ in the claim."""
    import sympy

    alpha = sympy.Symbol("alpha")
    half = sympy.Rational(1, 2)
    claimed = half + sympy.Rational(factor) * alpha
    return [
        identity(r"$1 - (1/2 - \alpha) = 1/2 + \alpha$", 1 - (half - alpha) - claimed)
    ]


def prove_near(*, factor: str = "1") -> list[Step]:
    r"""(15): $e = |\theta_1 - \theta_1^*| \le (1/2 - \alpha) \Delta = e + \text{gap}$
    with $\text{gap} \ge 0$, so that $A = e^2 + \sigma^2$ is no more than the claimed
    $(e + \text{gap})^2 + \sigma^2$, and $P(A u > t)$ grows with $A$. `factor` is that
    of the claimed square."""
    import sympy

    e, gap = sympy.symbols("e gap", positive=True)
    claimed = sympy.Rational(factor) * (e + gap) ** 2
    return [no_negative_term(r"$(e + \text{gap})^2 \ge e^2$", claimed - e**2)]


_TAIL_ALPHAS = (1e-6, 1e-3, 0.02, 0.1, 0.2, 0.3, 0.4, 0.49, 0.4999, 0.5 - 1e-6)
_TAIL_RHOS = (1e-4, 1e-3, 0.01, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 1e3, 1e4, 1e8)
_TAIL_SAMPLES = (1.0, 2.0, 3.0, 10.0, 30.0, 100.0, 1e3, 1e4, 1e5, 1e6)


def tail_form(alpha: PerPoint, rho: PerPoint, slope: float) -> PerPoint:
    """alpha rho / ((1 + `slope` alpha) rho + 1): 2 in (16), (18), 0 in (17), (19)."""
    return alpha * rho / ((1 + slope * alpha) * rho + 1)


def _deviation(alpha: PerPoint, rho: PerPoint, side: int) -> PerPoint:
    """-x for the tail below (`side` = -1), x' for the one above (1)."""
    return side * 4 * alpha * rho / ((1 - 2 * side * alpha) ** 2 * rho + 4)


def tail_rate(alpha: PerPoint, rho: PerPoint, side: int) -> PerPoint:
    """Exponent per sample of the tail below (`side` = -1) or above (1)."""
    deviation = _deviation(alpha, rho, side)
    return (deviation - np.log1p(deviation)) / 2


def check_tail(
    _: Preset, *, name: str, side: int, slope: float, c2: float = 0.25
) -> Verdict:
    """Exact tails for n' <= 10^6, and their exponents for all n'. `side` is -1 in (16)
    and (17), 1 in (18) and (19); `slope` as in `tail_form`; `c2` stands for c4 as
    well."""
    alpha, rho, samples = grid(_TAIL_ALPHAS, _TAIL_RHOS, _TAIL_SAMPLES)
    threshold = samples * ((0.25 + alpha**2) * rho + 1)
    variance = (0.5 - side * alpha) ** 2 * rho + 1  # in units of sigma^2
    tail = scipy.special.gammainc if side < 0 else scipy.special.gammaincc
    exact = tail(samples / 2, threshold / variance / 2)
    bound = -c2 * samples * tail_form(alpha, rho, slope) ** 2
    kept = exact > 1e-280  # beyond, the functions underflow
    by_law = never_exceeds(
        name,
        np.log(exact[kept]),
        bound[kept],
        # the functions' relative error, and n' eps from that of their argument
        rounding=1e-11 + 1e-15 * samples[kept],
        grade=Grade.EXACT,
        logarithmic=True,
        coordinates={"alpha": alpha[kept], "rho": rho[kept], "n": samples[kept]},
    )
    alpha, rho = grid(_TAIL_ALPHAS, _TAIL_RHOS)
    rate, squared = tail_rate(alpha, rho, side), tail_form(alpha, rho, slope) ** 2
    by_rate = never_exceeds(
        name,
        c2 * squared,
        rate,
        rounding=4 * np.finfo(float).eps * (np.sqrt(squared) + np.abs(rate) + squared),
        grade=Grade.EXACT,
        coordinates={"alpha": alpha, "rho": rho},
    )
    resolved = squared > 1e-12
    least = float(np.min(rate[resolved] / squared[resolved]))
    # No better constant: somewhere the exponent is within 0.1 % of it.
    sharp = never_exceeds(name, least, 1.001 * c2, rounding=1e-9, grade=Grade.EXACT)
    detail = (
        f"exact tails at {np.sum(kept)} points: {by_law.status.value}; least exponent "
        rf"over $(n' y^2)$ of {len(rate)} pairs $\alpha$, $\rho$: {least:.5f}"
    )
    parts = ["exponent", "exact tail", "no better constant"]
    return combine(name, [by_rate, by_law, sharp], parts=parts, detail=detail)


def prove_lower_tail(*, c2: str = "1/4") -> list[Step]:
    r"""(16) and (17) with $c_1 = 1$ and `c2`, for all $\alpha$, $\rho$ and $n'$.

    1. The event is $u/n' - 1 \le -x$, $x = 4 \alpha \rho/((1 + 2 \alpha)^2 \rho + 4)
       \in (0, 1)$. By Markov's inequality $P \le \exp(-n' (-\log(1 - x) - x)/2) \le
       \exp(-n' x^2/4)$.
    2. $x$ is $4 \alpha \rho/B$, $B = (1 + 2 \alpha)^2 \rho + 4$, and $y = \alpha
       \rho/(\rho + 1)$ is $4 \alpha \rho/(B + g)$, $g = (1 - 2 \alpha) (3 + 2 \alpha)
       \rho \ge 0$: $x^2/4 \ge c_2 y^2$ is $(B + g)^2 \ge 4 c_2 B^2$. That is (17); (16)
       has a smaller fraction still.
    """
    import sympy

    rho, alpha = sympy.symbols("rho alpha", positive=True)
    gap = 4 * (rho + 1) - ((1 + 2 * alpha) ** 2 * rho + 4)
    bottom, more = sympy.symbols("B g", nonnegative=True)
    return [
        logarithm_of_less(),
        identity(
            r"$4 (\rho + 1) - ((1 + 2 \alpha)^2 \rho + 4) = (1 - 2 \alpha) (3 + 2 "
            r"\alpha) \rho$",
            gap - (1 - 2 * alpha) * (3 + 2 * alpha) * rho,
        ),
        no_negative_term(
            r"$(B + g)^2 \ge 4 c_2 B^2$",
            (bottom + more) ** 2 - 4 * sympy.Rational(c2) * bottom**2,
        ),
    ]


def prove_upper_tail(*, c4: str = "1/4") -> list[Step]:
    r"""(18) and (19) with $c_3 = 1$ and `c4`, for all $\alpha$, $\rho$ and $n'$.

    1. The event is $u/n' - 1 > x$, $x = 4 \alpha \rho/D$, $D = (1 - 2 \alpha)^2 \rho +
       4$. By Markov's inequality $P \le \exp(-n' (x - \log(1 + x))/2) \le \exp(-n'
       x^2/(4 (1 + 2 x/3)))$.
    2. With $y = \alpha \rho/(\rho + 1)$ it is enough that $x^2 \ge 4 c_4 y^2 (1 + 2
       x/3)$, or $16 (1 + \rho)^2 \ge 4 c_4 D E$, $E = D + 8 \alpha \rho/3$. $D \le \rho
       + 4$, and $E = \rho + 4 - 4 \alpha \rho/3 + 4 \alpha^2 \rho \le 4 \rho/3 + 4$, as
       $4 \alpha^2 - 4 \alpha/3 \le 1/3$ for $\alpha \le 1/2$: it is $1/3$ there, and
       convex with 0 at 0. So $4 (1 + \rho)$ is $D + g$ and $E + h$ with $g$ and $h \ge
       0$, and its square is $(D + g) (E + h)$.
    3. That is (19); (18) has a smaller fraction still.
    """
    import sympy

    rho, alpha = sympy.symbols("rho alpha", positive=True)
    bottom = (1 - 2 * alpha) ** 2 * rho + 4
    third, half = sympy.Rational(1, 3), sympy.Rational(1, 2)
    bend = lambda a: 4 * a**2 - 4 * a / 3
    d, e, g, h = sympy.symbols("D E g h", nonnegative=True)
    return [
        logarithm_below(),
        identity(
            r"$D + 8 \alpha \rho/3 = \rho + 4 - 4 \alpha \rho/3 + 4 \alpha^2 \rho$",
            bottom + 8 * alpha * rho / 3 - (rho + 4 + bend(alpha) * rho),
        ),
        identity(
            r"$D = \rho + 4 - 4 \alpha (1 - \alpha) \rho$",
            bottom - (rho + 4 - 4 * alpha * (1 - alpha) * rho),
        ),
        exactly(
            r"$4 \alpha^2 - 4 \alpha/3 \le 1/3$ at 0 and $1/2$",
            bool(bend(half) <= third),
        ),
        no_negative_term(r"$4 (1 + \rho) \ge \rho + 4$", 4 * (1 + rho) - (rho + 4)),
        no_negative_term(
            r"$4 (1 + \rho) \ge 4 \rho/3 + 4$", 4 * (1 + rho) - (4 * rho / 3 + 4)
        ),
        no_negative_term(
            r"$(D + g) (E + h) \ge 4 c_4 D E$",
            (d + g) * (e + h) - 4 * sympy.Rational(c4) * d * e,
        ),
    ]


ROUTE = "ifca.exact.lemma1"

_ROUTE_ALPHAS = (1e-4, 0.01, 0.1, 0.2, 0.3, 0.49, 0.4999)
_ROUTE_RHOS = (1e-3, 0.02, 0.1, 1.0, 4.0, 16.0, 256.0, 1e6)
# n' form / 4
_ROUTE_LEVELS = (1e-12, 1e-6, 1e-3, 0.1, 0.5, 1.0, 3.0, 10.0, 100.0, 550.0)
_LARGEST = 1e11
_FEW = 2000  # n' up to which SciPy's tails are used


def log_tails(
    alpha: PerPoint, rho: PerPoint, num_samples: PerPoint
) -> Float[np.ndarray, "tails points"]:
    """Logarithms of both tails, -inf where one underflows. SciPy's lower tail stops its
    series too early where n' is large (half of the true value at n' = 4e8, 5 standard
    deviations out), hence the second form."""
    edges = [_deviation(alpha, rho, side) for side in (-1, 1)]
    half = num_samples / 2
    few = np.minimum(half, _FEW / 2)
    below = scipy.special.gammainc(few, few * (1 + edges[0]))
    above = scipy.special.gammaincc(few, few * (1 + edges[1]))
    with np.errstate(divide="ignore"):
        near = np.log([below, above])
    many = num_samples > _FEW
    far = [
        _log_far_tail(np.where(many, half, _FEW), np.where(many, edge, 0.0))
        for edge in edges
    ]
    return np.where(many, far, near)


def _log_far_tail(half: PerPoint, edge: PerPoint) -> PerPoint:
    """log P(u/n' - 1 beyond `edge`), n' = 2 `half`, by quadrature over 40 lengths of
    its exponential fall or 12 of its normal one, whichever is less."""
    side = np.where(edge < 0, -1.0, 1.0)
    end = 1 / (half * np.abs(edge) / 40 + np.sqrt(half) / 12)
    nodes, weights = np.polynomial.legendre.leggauss(80)
    step = (nodes[:, None] + 1) / 2 * end * side / (1 + edge)
    log_ratio = np.log1p(step)
    # v - log(1 + v) at the node less its value at the edge, without a cancellation.
    rise = step * (1 + edge) - log_ratio
    integral = np.sum(weights[:, None] * np.exp(-half * rise - log_ratio), axis=0)
    front = np.log(half / (2 * np.pi)) / 2 - 1 / (12 * half) + 1 / (360 * half**3)
    density = front - half * (edge - np.log1p(edge)) - np.log1p(edge)
    return density + np.log(end / 2 * integral)


def check_route(_: Preset, *, c1: float = 1.0, c2: float = 0.25) -> Verdict:
    """Exact law <= both tails <= c1 exp(-c2 ...), and Chernoff's sum with c1 = 2."""
    alpha, rho, level = grid(_ROUTE_ALPHAS, _ROUTE_RHOS, _ROUTE_LEVELS, indexing="ij")
    num_samples = np.ceil(4 * level / (alpha * rho / (rho + 1)) ** 2)
    kept = num_samples <= _LARGEST
    alpha, rho, num_samples = alpha[kept], rho[kept], num_samples[kept]
    tails = np.logaddexp(*log_tails(alpha, rho, num_samples))
    chernoffs = [-num_samples * tail_rate(alpha, rho, side) for side in (-1, 1)]
    exact = log_worst_chance(alpha, rho, num_samples)
    bound = lemma1_bound(alpha, rho, num_samples, c1=c1, c2=c2)
    seen = np.isfinite(tails)  # both tails may underflow where the bound is loose
    pairs = [
        (exact[seen], tails[seen]),
        (tails[seen], bound[seen]),
        (np.logaddexp(*chernoffs), bound + np.log(2)),
    ]
    form = num_samples * (alpha * rho / (rho + 1)) ** 2
    rates = -np.max(chernoffs, axis=0) / form
    # No better constants: somewhere the rate and the sum of tails come close to them.
    close = never_exceeds(
        ROUTE,
        np.array([np.min(rates), np.log(0.999 * c1)]),
        np.array([1.001 * c2, np.max(tails + c2 * form)]),
        rounding=1e-9,
        grade=Grade.EXACT,
        coordinates={"part": np.array(["rate", "factor"])},
    )
    return combine(
        ROUTE,
        [
            close,
            *(
                never_exceeds(
                    ROUTE,
                    values,
                    bounds,
                    # SciPy's tails lose digits as n' grows, a logarithm by its size.
                    rounding=1e-11 * (1 + np.abs(values)),
                    grade=Grade.EXACT,
                    logarithmic=True,
                )
                for values, bounds in pairs
            ),
        ],
        detail=f"{np.sum(seen)} points with $n'$ up to {np.max(num_samples):.0e}; "
        rf"least Chernoff rate over $(\alpha \rho/(\rho + 1))^2 {np.min(rates):.5f}$, "
        r"largest sum of tails over $\exp(-\text{form}/4) "
        f"{np.exp(np.max(tails + form / 4)):.6f}$",
    )


_LOWER = r"P((|\theta_j - \theta_1^*|^2 + \sigma^2) u_j \le t)"
_UPPER = r"P((|\theta_1 - \theta_1^*|^2 + \sigma^2) u_1 > t)"


def _tail_row(
    number: int, slope: float, *, control: Mapping[str, object], note: str
) -> Statement:
    """Of the tail below in (16) and (17), of the one above in (18) and (19)."""
    name, side = f"ifca.eq{number}", -1 if number < 18 else 1
    factor, rate = ("c1", "c2") if side < 0 else ("c3", "c4")
    prove: Callable[..., Sequence[Step]]
    prove = prove_lower_tail if side < 0 else prove_upper_tail
    shown = [f"{one[0]}_{one[1]}" for one in (factor, rate)]
    form = r"\rho" if slope == 0 else r"(1 + 2 \alpha) \rho"
    return row(
        id=name,
        place=f"Appendix A.1, ({number})",
        text=rf"${_LOWER if side < 0 else _UPPER} \le {shown[0]} \exp(-{shown[1]} n' "
        rf"(\alpha \rho / ({form} + 1))^2)$, $t = n' ((1/4 + \alpha^2) \Delta^2 + "
        r"\sigma^2)$",
        preconditions=PRECONDITIONS,
        constants={factor: 1.0, rate: 0.25},
        claimed=f"${shown[0]}, {shown[1]} > 0$, universal, unnamed",
        check=functools.partial(check_tail, name=name, side=side, slope=slope),
        control=control,
        proof=prove,
        proof_control={rate: "0.251"},
        note=note,
    )


STATEMENTS = (
    row(
        id=EQ13,
        place="Appendix A.1, (13)",
        text=r"$P(U \ge V) \le P(V \le t) + P(U > t) \le P(B u_j \le t) + P(A u_j > "
        r"t)$ for all $t \ge 0$, $U$ and $V$ the losses on $\theta_1$ and $\theta_j$, "
        r"$u_j \chi_{n'}^2$",
        preconditions=PRECONDITIONS,
        check=check_threshold,
        control={"factor": 0.49},
        proof=prove_threshold,
        proof_control={"strict": True},
        note="The last step is an equality; the second $u_j$ should be $u_1$, "
        "another variable of the same law. The control claims 0.49 of the right "
        r"side, of which half is reached where $\alpha$ is small.",
    ),
    row(
        id=EQ14,
        place="Appendix A.1, (14)",
        text=r"$P((|\theta_j - \theta_1^*|^2 + \sigma^2) u_j \le t) \le P(((1/2 + "
        r"\alpha)^2 \Delta^2 + \sigma^2) u_j \le t)$",
        preconditions=PRECONDITIONS[:1],
        check=check_far,
        control={"factor": 1.001},
        proof=prove_far,
        proof_control={"factor": "1.001"},
        note=r"The control has $1/2 + 1.001 \alpha$.",
    ),
    row(
        id=EQ15,
        place="Appendix A.1, (15)",
        text=r"$P((|\theta_1 - \theta_1^*|^2 + \sigma^2) u_j > t) \le P(((1/2 - "
        r"\alpha)^2 \Delta^2 + \sigma^2) u_j > t)$",
        preconditions=PRECONDITIONS[:1],
        check=check_near,
        control={"quarter": True},
        proof=prove_near,
        proof_control={"factor": "0.999"},
        note=r"The text uses '$|\theta_1 - \theta_1^*| \le \Delta / 4$', neither "
        r"given nor, for $\alpha > 1/4$, enough. The control takes that premise.",
    ),
    _tail_row(
        16,
        2.0,
        control={"c2": 0.251},
        note="$1/4$ is the best $c_2$. The control claims 0.251.",
    ),
    _tail_row(
        17,
        0.0,
        control={"c2": 0.251},
        note="With equal constants this is less than (16), not more as the print has "
        "it; it holds nevertheless, and implies (16). The control claims 0.251.",
    ),
    _tail_row(
        18,
        2.0,
        control={"slope": -2.0},
        note=r"The tail itself has $1 - 2 \alpha$; with it in the denominator no $c_4 "
        "> 0$ would do, since an upper tail is not sub-Gaussian. The control has it.",
    ),
    _tail_row(
        19,
        0.0,
        control={"c2": 0.251},
        note="With equal constants this is less than (18), not more as the print has "
        "it; it holds nevertheless, and implies (18). The control claims 0.251.",
    ),
    row(
        id=ROUTE,
        place="Appendix A.1, (13) to (19)",
        text=r"by the threshold of (13): $P(E_i^{j,j'}) \le \exp(-(n'/4) (\alpha "
        r"\rho/(\rho + 1))^2)$; with Chernoff's bounds twice that",
        preconditions=PRECONDITIONS,
        constants={"c1": 1.0, "$c_1$ by Chernoff": 2.0, "c2": 0.25},
        claimed="$c_1$, $c_2 > 0$, unnamed",
        check=check_route,
        control={"c2": 0.26},
        note="What the proof gives when its constants are followed. $1/4$ is its "
        r"best $c_2$, reached as $\alpha$ and $\rho$ tend to 0, where $c_1 = 1$ is "
        "reached as well. The exact law has $c_1 = 1/2$ and $c_2 = 1.7617$: the "
        "route loses a factor of 7 in $n'$. The control claims $c_2 = 0.26$.",
    ),
)
