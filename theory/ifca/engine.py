"""The engine's laws, judged by equality: against balls, fractions and raw data.

Other rows have these laws on one side of a bound, where an error that makes the bound
easier to meet goes unseen. Nothing here is in the paper.
"""

import functools
from fractions import Fraction
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cfljax import intervals, law
from cfljax.statements import (
    ERROR_RATE,
    Grade,
    Preset,
    Step,
    Tally,
    Verdict,
    combine,
    equals,
    identity,
    never_exceeds,
    same_law,
    within,
)
from theory.ifca.common.checks import PerPoint, chunks, copies, grid, row
from theory.ifca.common.raw_data import Problem, draw_gradients
from theory.rows import columns

PLACE = "the engine's exact laws, not in the paper"
EPS = float(np.finfo(float).eps)


TAIL = "ifca.engine.tail"

_COUNTS = (1.0, 2.0, 3.0, 10.0, 29.0, 100.0, 1e4, 1e6)
_LEVELS = (0.0, 1e-8, 0.01, 0.5, 5.0, 29.9, 30.1, 100.0, 1e3, 1e4)  # n kappa^2
_LOG_ERROR, _JAX_ERROR = 1e-14, 3e-7
_SMALLEST = -690.0  # log of the smallest probability that the compiled law claims


def log_student_tail(kappa: Any, num_samples: int) -> Any:
    """log P(t_n >= sqrt(n) kappa) for kappa >= 0, as a ball: I_x(n/2, 1/2) / 2 with
    x = 1 / (1 + kappa^2)."""
    import flint

    half = flint.arb(num_samples) / 2
    beta = (1 / (1 + kappa * kappa)).beta_lower(half, flint.arb("0.5"), True)
    return (beta / 2).log()


@functools.cache
def _tails() -> tuple[PerPoint, PerPoint, PerPoint]:
    """n, kappa and the logarithm in balls, which 192 bits make sharper than floats."""
    import flint

    count, level = grid(_COUNTS, _LEVELS)
    kappa = np.concatenate([np.sqrt(level / count), [0.99, 1.01, 0.99, 1.01]])
    count = np.concatenate([count, [3.0, 3.0, 29.0, 29.0]])
    before, flint.ctx.prec = flint.ctx.prec, 192
    try:
        balls = [
            log_student_tail(flint.arb(float(k)), int(n))
            for k, n in zip(kappa, count, strict=True)
        ]
        assert all(float(ball.rad()) < 1e-20 for ball in balls)
        return count, kappa, np.array([float(ball.mid()) for ball in balls])
    finally:
        flint.ctx.prec = before


def check_tail(preset: Preset, *, kappa_factor: float = 1.0) -> Verdict:
    """Both implementations against balls, in logarithms. The factor multiplies the
    kappa that they are given; anything but 1 is wrong."""
    count, kappa, exact = _tails()
    found = law.log_misassignment_probability(kappa_factor * kappa, count)
    seen = exact > _SMALLEST
    with jax.enable_x64(True):
        given = jnp.asarray(kappa_factor * kappa[seen]), jnp.asarray(count[seen])
        drawn = law.student_tail(*given)
        other = law.student_tail(-given[0], given[1])
    both = np.abs(np.asarray(drawn) + np.asarray(other) - 1)
    errors = [
        (np.abs(found - exact), _LOG_ERROR * (1 + np.abs(exact))),
        (np.abs(np.log(np.asarray(drawn)) - exact[seen]), _JAX_ERROR),
        (np.where(kappa[seen] > 0, both, 0.0), 4 * EPS),
    ]
    places = [(count, kappa), (count[seen], kappa[seen]), (count[seen], kappa[seen])]
    return combine(
        TAIL,
        [
            never_exceeds(
                TAIL,
                error,
                bound,
                rounding=EPS * (1 + np.abs(error)),
                grade=Grade.EXACT,
                coordinates={"n": place[0], "kappa": place[1]},
            )
            for (error, bound), place in zip(errors, places, strict=True)
        ],
        parts=["NumPy", "compiled", "symmetry"],
        detail=rf"{len(kappa)} points, $n$ to $10^6$, $n \kappa^2$ to $10^4$: the "
        f"NumPy law is off by {np.max(errors[0][0] / (1 + np.abs(exact))):.2g} of $1 "
        rf"+ |\log P|$, the compiled one by {np.max(errors[1][0]):.2g} in $\log P$",
    )


KAPPA = "ifca.engine.kappa"


class _Choice(NamedTuple):
    """A client between two models."""

    truth: Float[np.ndarray, " features"]
    own: Float[np.ndarray, " features"]
    other: Float[np.ndarray, " features"]
    noise: float


def _places(preset: Preset) -> list[_Choice]:
    """Random ones, some with models that nearly coincide."""
    found = []
    for index in range(40):
        generator = preset.generator(KAPPA, index)
        truth, own, other = generator.standard_normal((3, 7))
        for vector in (truth, own, other):
            vector[1 + index % 7 :] = 0  # 1 to 7 dimensions
        if index % 4 == 3:
            other = own + 1e-9 * other
        noise = float(10 ** generator.uniform(-2, 1))
        found.append(_Choice(truth, own, other, noise))
    return found


def _exact_kappa(a: Any, b: Any, noise: Fraction) -> float:
    """(B - A) / (2 sqrt(A B - C^2)) of vectors of fractions, rounded at the end."""
    import flint

    square = noise**2
    A, B, C = a @ a + square, b @ b + square, a @ b + square
    top, bottom = B - A, A * B - C * C
    ball = lambda one: flint.arb(flint.fmpq(one.numerator, one.denominator))
    return float((ball(top) / (2 * ball(bottom).sqrt())).mid())


_fractions = np.vectorize(Fraction, otypes=[object])


def check_kappa(preset: Preset, *, noise_power: float = 1.0) -> Verdict:
    """Both implementations against fractions. They are given noise^noise_power, any
    power but 1 being wrong. The compiled one gets offsets, whose difference has lost
    digits where models nearly coincide; its bound grows accordingly."""
    values, bounds, names = [], [], []
    for one in _places(preset):
        noise = one.noise**noise_power
        exact = [_fractions(vector) for vector in one[:3]]
        fraction = Fraction(one.noise)
        plain = _exact_kappa(exact[0] - exact[1], exact[0] - exact[2], fraction)
        offsets = one.truth - one.own, one.truth - one.other
        own, other = (_fractions(offset) for offset in offsets)
        compiled = _exact_kappa(own, other, fraction)
        found = law.misassignment_kappa(*one[:3], noise)
        with jax.enable_x64(True):
            drawn = law.choice_kappa(*map(jnp.asarray, (*offsets, noise)))
        length = sum(float(np.linalg.norm(offset)) for offset in offsets)
        apart = float(np.linalg.norm(offsets[0] - offsets[1]))
        # Rounding errors of height and width, over sqrt(w^2 + sigma^2) >= sigma.
        reach = 8 * EPS * length / one.noise
        values += [abs(float(found) - plain), abs(float(drawn) - compiled)]
        bounds += [
            reach * (1 + abs(plain)),
            reach * (1 + abs(compiled)) * (1 + length / apart),
        ]
        names += [one.noise, one.noise]
    return never_exceeds(
        KAPPA,
        np.array(values),
        np.array(bounds),
        rounding=EPS,
        grade=Grade.SEARCHED,  # on drawn positions
        coordinates={
            "noise": np.array(names),
            "part": np.resize(["NumPy", "compiled"], len(names)),
        },
        detail=f"{len(values) // 2} positions in 1 to 7 dimensions, NumPy and "
        f"compiled: off by {max(values):.2g} at most",
    )


def prove_kappa(*, share: int = 2) -> list[Step]:
    r"""Only the plane through the truth and both models counts. Let the truth be at
    height $w$ above the line through the models, its foot the origin, and the offsets
    $a = (s, w)$ of the own model and $b = (t, w)$ of the other one with $s$ and $t$ of
    any sign. With $A = |a|^2 + \sigma^2$, $B = |b|^2 + \sigma^2$, $C = a \cdot b +
    \sigma^2$:

    1. $B - A = (t - s)(t + s)$: the models are $|t - s|$ apart, and their middle is at
       $(s + t)/2$ of the foot, so that $B - A = 2 h |a - b|$ with $h$ the signed
       distance from the hyperplane halfway, positive on the own model's side;
    2. $A B - C^2 = (t - s)^2 (w^2 + \sigma^2)$.

    Hence $(B - A) / (2 \sqrt{A B - C^2}) = h / \sqrt{w^2 + \sigma^2}$, for all
    positions."""
    import sympy

    s, t, w, sigma = sympy.symbols("s t w sigma", real=True)
    A, B, C = (one + w**2 + sigma**2 for one in (s**2, t**2, s * t))
    height = (s + t) / share
    return [
        identity("$B - A = 2 h |a - b|$", B - A - 2 * height * (t - s)),
        identity(
            r"$A B - C^2 = |a - b|^2 (w^2 + \sigma^2)$",
            A * B - C**2 - (t - s) ** 2 * (w**2 + sigma**2),
        ),
    ]


CHOICE, RIVALS = "ifca.engine.choice", "ifca.engine.rivals"

# n', noise; each with all the offsets below.
_SETTINGS = ((1.0, 0.1), (4.0, 0.5), (40.0, 2.0), (400.0, 0.3))
_OFFSETS = np.array(
    [
        [[0.1, 0.2, 0.0], [0.3, -0.2, 0.4]],
        [[0.5, 0.0, 0.0], [-0.6, 0.1, 0.0]],
        [[0.0, 0.0, 0.0], [0.1, 0.1, 0.2]],
        [[0.7, 0.1, 0.3], [0.6, 0.1, 0.3]],
    ]
)


def _draw_counts(
    generator: np.random.Generator,
    offsets: Float[np.ndarray, "clusters models features"],
    clients: Float[np.ndarray, " clusters"],
    num_samples: float,
    noise: float,
) -> Float[np.ndarray, "clusters models"]:
    """Choices of so many clients of each cluster, by the engine."""
    with jax.enable_x64(True):
        drawn = law.assign(
            jax.random.key(int(generator.integers(2**31))),
            jnp.asarray(offsets),
            jnp.asarray(clients),
            jnp.asarray(num_samples),
            jnp.asarray(noise),
        )
    return np.asarray(drawn)


def check_choice(preset: Preset, *, kappa_factor: float = 1.0) -> Verdict:
    """The engine's counts between two models against Student's tail in balls. The
    factor multiplies the kappa of the claim; anything but 1 is wrong."""
    import flint

    clients = preset.choose(quick=1e8, full=1e10)
    second, exact, places = [], [], []
    for index, (samples, noise) in enumerate(_SETTINGS):
        generator = preset.generator(CHOICE, index)
        members = np.full(len(_OFFSETS), clients)
        counts = _draw_counts(generator, _OFFSETS, members, samples, noise)
        second.append(counts[:, 1])
        for own, other in _OFFSETS:
            fractions = _fractions(own), _fractions(other)
            kappa = kappa_factor * _exact_kappa(*fractions, Fraction(noise))
            tail = float(log_student_tail(flint.arb(abs(kappa)), int(samples)).exp())
            exact.append(tail if kappa >= 0 else 1 - tail)
            places.append((samples, noise, kappa))
    events = np.concatenate(second)
    return equals(
        CHOICE,
        Tally(events, np.zeros_like(events), np.full_like(events, clients)),
        np.array(exact),
        resolution=preset.choose(quick=1e-3, full=1e-4),
        coordinates=columns("n noise kappa", places),
        detail=f"{len(exact)} pairs of models, {clients:.0e} clients each",
    )


# Clients of 3 samples and two rivals. In the first cluster each rival wins against the
# nearest model in 9 % of cases, often both at once, and candidates are drawn; in the
# second all clients are.
_RIVALS_NOISE, _RIVALS_SAMPLES = 0.5, 3.0
_RIVALS = np.array(
    [
        [[0.33, -1.02, 0.06], [0.96, -0.26, 2.54], [0.93, -0.34, 2.45]],
        [[0.5, 0.3, 0.1], [-0.6, 0.3, 0.1], [-0.6, 0.0, 0.3]],
    ]
)


def _rivals_clients(preset: Preset) -> Float[np.ndarray, " clusters"]:
    sizes = preset.choose(quick=(1_500_000, 300_000), full=(10_000_000, 3_000_000))
    return np.array(sizes, float)


def check_rivals(preset: Preset, *, num_samples: float = _RIVALS_SAMPLES) -> Verdict:
    """The engine's counts among three models against raw data, which have 3 samples;
    any other number given to the engine is wrong."""
    clients = _rivals_clients(preset)[:, None]
    drawn = _draw_counts(
        preset.generator(RIVALS, 0), _RIVALS, clients[:, 0], num_samples, _RIVALS_NOISE
    )
    raw = _raw_choices(preset)
    each = intervals.divide(ERROR_RATE, 2 * raw.size)
    low, high = intervals.clopper_pearson(
        np.stack([raw, drawn]),
        np.broadcast_to(clients, (2, *raw.shape)),
        error_rate=each,
    )
    # Rare choices, and those of about half of the clients.
    edges = np.array([[0.0038], [0.016]]) * preset.choose(quick=1.0, full=0.4)
    edge = np.broadcast_to(edges, raw.shape).ravel()
    less = (drawn - raw) / clients
    cluster, model = (places.ravel() for places in np.indices(raw.shape))
    return within(
        RIVALS,
        ((low[1] - high[0]).ravel(), (high[1] - low[0]).ravel()),
        (-edge, edge),
        num_trials=int(2 * np.sum(clients)),
        grade=Grade.SAMPLED,
        coordinates={
            "n": _RIVALS_SAMPLES,
            "noise": _RIVALS_NOISE,
            "cluster": cluster,
            "model": model,
        },
        detail=f"3 models, 2 clusters, {np.sum(clients):.0f} clients: shares by law "
        f"less raw {np.min(less):+.4f} to {np.max(less):+.4f}",
    )


@functools.lru_cache(maxsize=1)
def _raw_choices(preset: Preset) -> Float[np.ndarray, "clusters models"]:
    """Clients of each cluster that chose each model, on raw samples."""
    counts = np.zeros(_RIVALS.shape[:2])
    for index, clients in enumerate(_rivals_clients(preset)):
        generator, offsets = preset.generator(RIVALS, 1, index), _RIVALS[index]
        for size in chunks(int(clients), 50_000):
            inputs = generator.standard_normal((size, 3, offsets.shape[1]))
            noise = _RIVALS_NOISE * generator.standard_normal((size, 3, 1))
            losses = np.sum((inputs @ offsets.T + noise) ** 2, axis=1)
            chosen = np.argmin(losses, axis=1)
            counts[index] += np.bincount(chosen, minlength=len(offsets))
    return counts


_BATCH = 200  # values are averaged in batches, which saves time and costs no width


def _mean_ends(
    values: Float[np.ndarray, "points trials"],
    deviation: Float[np.ndarray, " points"],
    *,
    error_rate: float,
) -> intervals.Interval:
    """Catoni's interval of the mean of values whose standard deviation is known."""
    means = np.mean(values.reshape(len(values), -1, _BATCH), axis=-1)
    return intervals.catoni(
        means, deviation=deviation / np.sqrt(_BATCH), error_rate=error_rate
    )


ROOTS = "ifca.engine.roots"

_ROOT_SAMPLES = (1, 2, 5)
_ROOT_NOISE = 0.3
_ROOT_OFFSETS = np.array([[1.0, 0.0], [0.8, 0.5], [-0.5, 0.4]])  # model - truth


def check_roots(preset: Preset, *, power: float = 2.0) -> Verdict:
    """E F_j F_l of root losses: in closed form for one sample, and raw. The power of
    kappa_n in the mean of the product is 2; any other is wrong, and multiplies the
    excess over independence."""
    vectors = np.concatenate([_ROOT_OFFSETS, np.full((3, 1), -_ROOT_NOISE)], axis=1)
    gram = vectors @ vectors.T
    lengths = np.sqrt(np.diagonal(gram))
    scale = lengths[:, None] * lengths
    cosine = np.clip(gram / scale, -1, 1)
    factor = law.loss_factor(_ROOT_OFFSETS, np.zeros(2), _ROOT_NOISE)
    pairs = np.triu_indices(3)
    low, high, claims, trials = [], [], [], 0
    for samples in _ROOT_SAMPLES:
        ratio = law.chi_mean_ratio(samples)
        covariance = law.root_loss_covariance(factor, samples) * ratio ** (power - 2)
        if samples == 1:
            angle = np.sqrt(np.maximum(1 - cosine**2, 0)) + cosine * np.arcsin(cosine)
            first = 2 / np.pi * scale * (angle - 1) - covariance
        # E F_j^2 F_l^2 = scale^2 (1 + 2 r^2 / n), and E F_j F_l >= E F_j E F_l.
        variance = scale**2 * (1 + 2 * cosine**2 / samples - ratio**4)
        roots = _raw_roots(preset, samples)
        products = (roots[:, :, None] * roots[:, None])[:, *pairs].T
        each = intervals.divide(ERROR_RATE, len(_ROOT_SAMPLES) * len(pairs[0]))
        ends = _mean_ends(products, np.sqrt(variance[pairs]), error_rate=each)
        low.append(ends[0] - ratio**2 * scale[pairs])
        high.append(ends[1] - ratio**2 * scale[pairs])
        claims.append(covariance[pairs])
        trials += products.size
    found = [np.concatenate(part) for part in (low, high, claims)]
    edge = preset.choose(quick=0.02, full=0.006)
    raw = within(
        ROOTS,
        (found[0] - found[2], found[1] - found[2]),
        (-edge, edge),
        num_trials=trials,
        grade=Grade.SAMPLED,
        coordinates={
            "n": np.repeat(np.array(_ROOT_SAMPLES, float), len(pairs[0])),
            "model": np.tile(pairs[0], len(_ROOT_SAMPLES)),
            "other": np.tile(pairs[1], len(_ROOT_SAMPLES)),
        },
    )
    closed = never_exceeds(
        ROOTS,
        np.abs(first),
        1e-13,
        rounding=EPS,
        grade=Grade.EXACT,
        coordinates={"model": np.arange(3)[:, None], "other": np.arange(3)},
    )
    return combine(
        ROOTS,
        [closed, raw],
        detail="3 models; closed form for $n = 1$: off by "
        f"{np.max(np.abs(first)):.2g}; $n$ in {_ROOT_SAMPLES}, raw less law between "
        f"{np.min(found[0] - found[2]):.4f} and {np.max(found[1] - found[2]):.4f}",
    )


@functools.lru_cache(maxsize=len(_ROOT_SAMPLES))
def _raw_roots(preset: Preset, samples: int) -> Float[np.ndarray, "trials models"]:
    trials = preset.choose(quick=600_000, full=4_000_000)
    generator = preset.generator(ROOTS, samples)
    inputs = generator.standard_normal((trials, samples, 2))
    noise = _ROOT_NOISE * generator.standard_normal((trials, samples, 1))
    losses = np.mean((inputs @ _ROOT_OFFSETS.T - noise) ** 2, axis=1)
    return np.sqrt(losses)


RISK = "ifca.engine.risk"

_RISKS = (1, 3, 6)  # features, of four rows more
_RISK_NOISE = 0.7


def check_risk(preset: Preset, *, more_rows: int = 0) -> Verdict:
    """Least squares on raw rows. The claim is made of N + more_rows, anything but 0
    being wrong. Given the features the error is normal with covariance sigma^2 W^-1,
    W = X'X, so that E|error|^4 = sigma^4 E[(tr W^-1)^2 + 2 tr W^-2], of which the
    moments of an inverse Wishart matrix, finite for N > d + 3, give the standard
    deviation."""
    features = np.array(_RISKS, float)
    rows = features + 4
    below = (rows - features) * (rows - features - 1) * (rows - features - 3)
    squared = (features**2 * (rows - features - 2) + 2 * features) / below
    fourth = _RISK_NOISE**4 * (squared + 2 * features * (rows - 1) / below)
    exact = _RISK_NOISE**2 * features / (rows - features - 1)
    deviation = np.sqrt(fourth - exact**2)
    squares = np.array([_raw_squares(preset, d) for d in _RISKS])
    each = intervals.divide(ERROR_RATE, len(_RISKS))
    low, high = _mean_ends(squares, deviation, error_rate=each)
    claimed = law.oracle_risk(rows + more_rows, features, _RISK_NOISE)
    edge = preset.choose(quick=0.08, full=0.025)
    return within(
        RISK,
        (low / claimed, high / claimed),
        (1 - edge, 1 + edge),
        num_trials=squares.size,
        grade=Grade.SAMPLED,
        coordinates={"d": features, "n": rows, "noise": _RISK_NOISE},
        detail=f"$d = {_RISKS}$, $N = d + 4$: raw over claimed between "
        f"{np.min(low / claimed):.3f} and {np.max(high / claimed):.3f}",
    )


@functools.lru_cache(maxsize=len(_RISKS))
def _raw_squares(preset: Preset, features: int) -> Float[np.ndarray, " trials"]:
    """|estimate - truth|^2 of least squares on d + 4 rows."""
    trials = preset.choose(quick=100_000, full=1_000_000)
    generator = preset.generator(RISK, features)
    inputs = generator.standard_normal((trials, features + 4, features))
    noise = _RISK_NOISE * generator.standard_normal((trials, features + 4, 1))
    turned = np.swapaxes(inputs, 1, 2)
    error = np.linalg.solve(turned @ inputs, turned @ noise)
    return np.sum(error[..., 0] ** 2, axis=1)


def prove_risk(*, lost: int = 1) -> list[Step]:
    r"""Given the features $X$ the error of least squares is $W^{-1} X'$ noise, $W =
    X'X$, and $E|\text{error}|^2 = \sigma^2 E \operatorname{tr} W^{-1}$, finite or not.
    All $d$ columns of $X$ have one law, and $1 / (W^{-1})_{11}$ is the squared length
    of what is left of the first column outside the span of the other $d - 1$, which is
    independent of them: $\chi_k^2$ with $k = N - d + 1$. With the density of $\chi_k^2$
    and the integral that defines the $\gamma$ function,

    1. $E 1/\chi_k^2 = \Gamma(k/2 - 1) / (2 \Gamma(k/2)) = 1 / (k - 2)$ for $k > 2$, and
       infinite for $k \le 2$;
    2. $k - 2 = N - d - 1$.

    Hence $\sigma^2 d / (N - d - 1)$, for all $N > d + 1$ and all $\sigma$."""
    import sympy

    half = sympy.Symbol("h", positive=True)  # k/2 - 1
    rows, features = sympy.symbols("N d", positive=True)
    left = rows - features + 1
    return [
        identity(
            r"$\Gamma(k/2 - 1) / (2 \Gamma(k/2)) = 1 / (k - 2)$",
            sympy.gamma(half) / (2 * sympy.gamma(half + 1)) - 1 / (2 * half),
        ),
        identity("$k - 2 = N - d - 1$", left - 2 - (rows - features - lost)),
    ]


MEAN_STEP, STEPS = "ifca.engine.contraction", "ifca.engine.steps"


def check_contraction(preset: Preset, *, extra_features: int = 0) -> Verdict:
    """r, and the floor where the mean square comes to rest, against fractions."""
    grids = grid((1, 2, 10, 200), (1, 7, 40, 10**6), (1e-3, 0.25, 0.5, 0.9))
    features, rows, step = grids
    noise = 0.5
    given = features + extra_features
    ratio = law.contraction(given, rows, step)
    floor = law.error_floor(given, rows, step, noise)
    exact, rest = [], []
    for d, n, eta in zip(*grids, strict=True):
        # E|e - (2 eta/N) A e|^2 / |e|^2 with E A = N I and E A^2 = N (N + d + 1) I.
        b = 2 * Fraction(eta) / Fraction(n)
        r = 1 - 2 * b * Fraction(n) + b**2 * Fraction(n) * (Fraction(n) + int(d) + 1)
        more = b**2 * Fraction(noise) ** 2 * Fraction(n) * int(d)
        exact.append(float(r))
        rest.append(float(more / (1 - r)) if r < 1 else np.nan)
    exact, rest = np.array(exact), np.sqrt(rest)
    still = ~np.isnan(rest)
    errors = [np.abs(ratio / exact - 1), np.abs(floor[still] / rest[still] - 1)]
    names = {"d": features, "n": rows, "step_size": step}
    return combine(
        MEAN_STEP,
        [
            never_exceeds(
                MEAN_STEP,
                error,
                64 * EPS,
                rounding=EPS,
                grade=Grade.EXACT,
                coordinates={name: values[seen] for name, values in names.items()},
            )
            # What is left of 1 - r has lost digits where the step is small.
            for error, seen in zip(errors, (still | True, still), strict=True)
        ],
        parts=["ratio", "floor"],
        detail=f"{len(exact)} settings, {np.sum(still)} of which come to rest; off by "
        f"{np.max(errors[0]):.2g} and {np.max(errors[1]):.2g}",
    )


def prove_contraction(*, extra: int = 0) -> list[Step]:
    r"""One step on $N$ fresh rows $x_i$: $e^+ = e - b (A e - X'z)$, $b = 2 \eta/N$, $A
    = X'X$, with $z$ independent normal noise of variance $\sigma^2$. The mean of $z$ is
    0, hence $E|e^+|^2 = |e|^2 - 2 b e'(E A) e + b^2 (e'(E A^2) e + \sigma^2 E
    \operatorname{tr} A)$. $E A = N I$. In $A^2 = \sum_{ij} x_i x_i' x_j x_j'$ the $N$
    terms with $i = j$ have mean $E |x|^2 x x' = (d + 2) I$, since $E x_1^2 (x_1^2 +
    \ldots + x_d^2) = 3 + (d - 1)$, and the $N (N - 1)$ others have mean I.

    1. $N (d + 2) + N (N - 1) = N (N + d + 1)$;
    2. $1 - 2 b N + b^2 N (N + d + 1) = (1 - 2 \eta)^2 + 4 \eta^2 (d + 1)/N = r$;
    3. $b^2 \sigma^2 N d = 4 \eta^2 \sigma^2 d / N$;
    4. $\varphi^2 = 4 \eta^2 \sigma^2 (d/N) / (1 - r)$ solves $\varphi^2 = r \varphi^2 +
       {}$ that, where $r < 1$.

    So $E|e^+|^2 = r |e|^2 + 4 \eta^2 \sigma^2 d/N$ for all $e$, $d$, $N$, $\eta$ and
    $\sigma$."""
    import sympy

    N, d, eta, sigma, r = sympy.symbols("N d eta sigma r", positive=True)
    b, second = 2 * eta / N, N * (N + d + 1 + extra)
    more = 4 * eta**2 * sigma**2 * d / N
    ratio = (1 - 2 * eta) ** 2 + 4 * eta**2 * (d + 1) / N
    return [
        identity("$E A^2 = N (N + d + 1) I$", N * (d + 2) + N * (N - 1) - second),
        identity("r", 1 - 2 * b * N + b**2 * second - ratio),
        identity("noise", b**2 * sigma**2 * N * d - more),
        identity("floor", more / (1 - r) - (r * more / (1 - r) + more)),
    ]


class _Descent(NamedTuple):
    """Gradient steps on fresh rows."""

    num_features: int
    num_rows: int
    noise: float
    step_size: float


_DESCENTS = (
    _Descent(1, 2, 0.3, 0.3),
    _Descent(2, 1, 0.5, 0.2),
    _Descent(3, 9, 1.0, 0.4),
)
_LENGTHS, _ROUNDS = (0.2, 1.0), 2


def check_steps(preset: Preset, *, extra_features: int = 0) -> Verdict:
    """The law's |e_1| and |e_2| against raw gradient steps. Features that are added to
    what the law is told are wrong."""
    raw, drawn = [], []
    for index, one in enumerate(_DESCENTS):
        for place, length in enumerate(_LENGTHS):
            raw += list(_raw_lengths(preset, index, place))
            seed = int(preset.generator(STEPS, index, place, 1).integers(2**31))
            found = law.gradient_steps(
                seed,
                np.full(preset.choose(quick=50_000, full=500_000), length),
                num_features=one.num_features + extra_features,
                num_rows=one.num_rows,
                noise=one.noise,
                step_size=one.step_size,
                num_rounds=_ROUNDS,
            )
            drawn += list(found[1:])
    dimensions = [one.num_features for one in _DESCENTS]
    places = grid(dimensions, _LENGTHS, range(1, _ROUNDS + 1), indexing="ij")
    return same_law(
        STEPS,
        raw,
        drawn,
        resolution=preset.choose(quick=0.06, full=0.02),
        coordinates=dict(zip(("d", "distance", "rounds"), places, strict=True)),
        detail=f"{len(_DESCENTS)} settings, 2 starts, {_ROUNDS} rounds of raw steps, "
        f"{len(raw[0])} each",
    )


@functools.lru_cache(maxsize=len(_DESCENTS) * len(_LENGTHS))
def _raw_lengths(
    preset: Preset, index: int, place: int
) -> Float[np.ndarray, "rounds trials"]:
    """|e_1|, |e_2| of steps on fresh rows, from a start of the given length."""
    one, trials = _DESCENTS[index], preset.choose(quick=50_000, full=500_000)
    generator = preset.generator(STEPS, index, place, 0)
    error = np.zeros((trials, one.num_features))
    error[:, -1] = _LENGTHS[place]
    found = []
    for _ in range(_ROUNDS):
        shape = (trials, one.num_rows)
        inputs = generator.standard_normal((*shape, one.num_features))
        noise = one.noise * generator.standard_normal(shape)
        residuals = np.einsum("tnd,td->tn", inputs, error) - noise
        gradient = 2 / one.num_rows * np.einsum("tn,tnd->td", residuals, inputs)
        error = error - one.step_size * gradient
        found.append(np.linalg.norm(error, axis=1))
    return np.array(found)


ROUND = "ifca.engine.round"

_FEATURES, _STEP = 30, 0.8
_PROBLEM = Problem(np.eye(2, _FEATURES), (4, 3), 2, 0.5)
_MODELS = np.eye(2, _FEATURES) * 0.7 + 0.05
_CHOICES = np.array([0, 0, 0, 1, 0, 1, 1])  # clients of each cluster are astray


def check_round(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """One round of the engine with clients astray against a raw one: the distances of
    both models from both truths and from each other. The step size is the engine's by a
    factor, anything but 1 being wrong."""
    return same_law(
        ROUND,
        _views(_PROBLEM.truths, _raw_models(preset)),
        _views(*_drawn_models(preset, factor)),
        resolution=preset.choose(quick=0.12, full=0.03),
        coordinates={
            "model": np.array([1, 2, 1, 2, 1]),
            "to": np.array(["truth 1", "truth 1", "truth 2", "truth 2", "model 2"]),
        },
        detail=f"{len(_CHOICES)} clients of 2 clusters, one astray of each, $d = "
        f"{_FEATURES}$; five squared distances after a round",
    )


def _views(
    truths: Float[np.ndarray, "clusters frame"],
    models: Float[np.ndarray, "trials models frame"],
) -> list[Float[np.ndarray, " trials"]]:
    """Squared distances of models from truths, and of the models."""
    squares = law.distances(truths, models) ** 2
    between = np.sum((models[:, 0] - models[:, 1]) ** 2, axis=-1)
    return [*squares.reshape(len(models), -1).T, between]


@functools.lru_cache(maxsize=1)
def _raw_models(preset: Preset) -> Float[np.ndarray, "trials models features"]:
    trials = preset.choose(quick=20_000, full=400_000)
    gradients = draw_gradients(
        preset.generator(ROUND, 0), _PROBLEM, copies(_MODELS, trials), choices=_CHOICES
    )
    return _MODELS - _STEP * gradients.mean


def _drawn_models(
    preset: Preset, factor: float
) -> tuple[
    Float[np.ndarray, "clusters frame"], Float[np.ndarray, "trials models frame"]
]:
    """Truths and the engine's models, in its frame."""
    truths, clients, samples, noise = _PROBLEM
    population = law.population(
        truths,
        num_models=2,
        num_clients=np.array(clients),
        num_samples=samples,
        num_features=_FEATURES,
        noise=noise,
    )
    counts = np.zeros((2, 2))
    np.add.at(counts, (np.repeat([0, 1], clients), _CHOICES), 1)
    trace = law.simulate(
        jax.random.key(int(preset.generator(ROUND, 1).integers(2**31))),
        population,
        law.place(truths, _MODELS, num_features=_FEATURES),
        num_trials=preset.choose(quick=20_000, full=400_000),
        num_rounds=1,
        step_size=factor * _STEP,
        fixed_counts=counts,
    )
    return population.truths, trace.models[:, 1]


STATEMENTS = (
    row(
        id=TAIL,
        place=PLACE,
        text=r"law.log_misassignment_probability is $\log P(t_n \ge \sqrt{n} "
        r"\kappa)$ up to $10^{-14}$ of $1 + |\log P|$, and the compiled law up to "
        r"$3 \cdot 10^{-7}$ where $\log P > -690$",
        preconditions=(r"$n$ from 1 to $10^6$, $n \kappa^2$ from 0 to $10^4$",),
        check=check_tail,
        control={"kappa_factor": 1 + 1e-8},
        note="Against the incomplete beta function in balls of 192 bits. The control "
        r"moves $\kappa$ by $10^{-8}$ of itself.",
    ),
    row(
        id=KAPPA,
        place=PLACE,
        text=r"$\kappa = (B - A) / (2 \sqrt{A B - C^2}) = h / \sqrt{w^2 + "
        r"\sigma^2}$",
        preconditions=("two models that differ", r"$\sigma > 0$"),
        check=check_kappa,
        control={"noise_power": 1.0001},
        proof=prove_kappa,
        proof_control={"share": 1},
        note="$h$ is the truth's distance from the hyperplane halfway between "
        "models, $w$ that from the line through them; A, $B$, $C$ as in "
        "`law.misassignment_kappa`. The proof is of the formula; that both "
        "implementations compute it up to a few roundings is checked against "
        "fractions.",
    ),
    row(
        id=CHOICE,
        place=PLACE,
        text="between two models the engine's clients choose the other one with "
        r"chance $P(t_{n'} \ge \sqrt{n'} \kappa)$",
        preconditions=("$n'$ from 1 to 400",),
        check=check_choice,
        control={"kappa_factor": 1.01},
        note=r"Against balls. The control moves $\kappa$ by 1 %.",
    ),
    row(
        id=RIVALS,
        place=PLACE,
        text="among three models the engine's clients choose as those with raw data do",
        preconditions=("$n' = 3$, as many samples as models",),
        check=check_rivals,
        control={"num_samples": 4.0},
        note="In one cluster only candidates are drawn, each given that a rival wins, "
        "in the other all clients. The control gives the engine one sample more.",
    ),
    row(
        id=ROOTS,
        place=PLACE,
        text=r"root losses $F$: $\operatorname{Cov}(F_j, F_l) = \alpha_j \alpha_l "
        r"\kappa_n^2 (2F_1(-1/2, -1/2; n/2; r^2) - 1)$",
        preconditions=("linear models, fresh samples",),
        check=check_roots,
        control={"power": 1.0},
        note=r"With $n = 1$ sample it is $(2/\pi)$ ($\sqrt{1 - r^2} + r$ arcsin $r "
        r"- 1$) times $\alpha_j \alpha_l$. The control has $\kappa_n$ for "
        r"$\kappa_n^2$.",
    ),
    row(
        id=RISK,
        place=PLACE,
        text=r"least squares on $N$ rows: $E|\text{error}|^2 = \sigma^2 d / (N - d "
        "- 1)$",
        preconditions=("$N > d + 1$", "standard normal features, normal noise"),
        check=check_risk,
        control={"more_rows": 1},
        proof=prove_risk,
        proof_control={"lost": 0},
        note="Checked on raw rows at $N = d + 4$, the fewest at which "
        r"$|\text{error}|^2$ has a variance to build intervals from. Both controls "
        r"claim $\sigma^2 d / (N - d)$, there a quarter less: the law of one row "
        "more, and the proof without the 1.",
    ),
    row(
        id=MEAN_STEP,
        place=PLACE,
        text=r"a step on $N$ rows: $E|e^+|^2 = r |e|^2 + 4 \eta^2 \sigma^2 d/N$ with "
        r"$r = (1 - 2 \eta)^2 + 4 \eta^2 (d + 1)/N$",
        preconditions=("fresh standard normal features, normal noise",),
        check=check_contraction,
        control={"extra_features": 1},
        proof=prove_contraction,
        proof_control={"extra": 1},
        note="And the floor that goes with it. The proof is of the formula; that the "
        "engine computes it is checked against fractions. The control has one feature "
        "more.",
    ),
    row(
        id=STEPS,
        place=PLACE,
        text="law.gradient_steps has the law of $|e_1|$ and $|e_2|$ of raw gradient "
        "steps",
        preconditions=("fresh standard normal features, normal noise",),
        check=check_steps,
        control={"extra_features": 1},
        note="$d = 1$, 2, 3, where one feature more or less counts; the control has "
        "one more.",
    ),
    row(
        id=ROUND,
        place=PLACE,
        text="a round of law.simulate has the law of a raw one, with clients astray",
        preconditions=("a given assignment", "$d$ beyond the engine's frame"),
        check=check_round,
        control={"factor": 1.05},
        note="The control's step size is 5 % larger.",
    ),
)
