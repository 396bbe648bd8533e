"""Appendix C, (21) to (30), Markov's inequality apart: one step and its parts.

theta_1+ - theta_1* = T1 - T2, T1 = theta_1 - theta_1* - (gamma / m) sum over S_1 and
S_1* of grad F_i(theta_1), T2 that of the rest of S_1.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax.statements import (
    Grade,
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
)
from theory.ifca.common.checks import Events, PerPoint, grid, row, turn, unit
from theory.ifca.common.convex import (
    ConvexSetting,
    CosineFamily,
    Counts,
    Models,
    Pieces,
    WaveFamily,
    gradient_step,
)
from theory.polynomials import no_negative_term
from theory.rows import columns

EQ21 = "ifca.eq21"


def check_identity(preset: Preset, *, all_chosen: bool = False) -> Verdict:
    """Random errors, gradients, sets and step sizes. With `all_chosen`, gamma^ counts
    all of S_1, as if nobody were misassigned."""
    generator = preset.generator(EQ21)
    values, rounding, places = [], [], []
    for _ in range(preset.choose(quick=500, full=50_000)):
        num_clients = int(generator.integers(2, 60))
        num_features = int(generator.integers(1, 12))
        chosen = int(generator.integers(1, num_clients + 1))  # |S_1|
        correct = int(generator.integers(1, chosen + 1))  # |S_1 and S_1*|
        error = generator.standard_normal(num_features)
        gamma = float(10 ** generator.uniform(-3, 3))
        gradients = generator.standard_normal((correct, num_features))
        gradients *= 10 ** generator.uniform(-2, 2, (correct, 1))
        scale = 10 ** generator.uniform(-2, 2)
        population = scale * generator.standard_normal(num_features)
        whole = error - gamma / num_clients * np.sum(gradients, axis=0)
        effective = gamma * (chosen if all_chosen else correct) / num_clients
        first = error - effective * population
        second = effective * (population - np.mean(gradients, axis=0))
        values.append(np.max(np.abs(whole - first - second)))
        size = np.max(np.abs(population)) + np.sum(np.max(np.abs(gradients), axis=1))
        size = np.max(np.abs(error)) + gamma * size
        rounding.append((correct + 8) * np.finfo(float).eps * size)
        places.append((num_clients, num_features, gamma))
    return never_exceeds(
        EQ21,
        np.array(values),
        0.0,
        rounding=np.array(rounding),
        grade=Grade.SEARCHED,  # on drawn steps
        coordinates=columns("m d step_size", places),
        detail=f"{len(values)} random cases, largest $|T_1 - T_{{11}} - T_{{12}}|$ "
        "over its rounding error: "
        f"{np.max(np.array(values) / np.array(rounding)):.2g}",
    )


def prove_identity(*, chosen: str = "correct") -> list[Step]:
    r"""(21) in every coordinate: $e$ that of $\theta_1 - \theta_1^*$, $f$ of $\nabla
    F^1$, total of the sum of $\nabla F_i$ over $S_1 \cap S_1^*$, which holds `correct`
    clients.

    $e - (\gamma/m) \text{total} = (e - \hat\gamma f) + \hat\gamma (f -
    \text{total}/\text{correct})$, with $\hat\gamma = \gamma \cdot \text{correct}/m$;
    `chosen` names the count in $\hat\gamma$.
    """
    import sympy

    e, f, total = sympy.symbols("e f total", real=True)
    gamma, m, correct = sympy.symbols("gamma m correct", positive=True)
    effective = gamma * sympy.Symbol(chosen, positive=True) / m
    right = (e - effective * f) + effective * (f - total / correct)
    return [
        identity("(21) in a coordinate", sympy.together(e - gamma / m * total - right))
    ]


EQ26, PARTS = "ifca.eq26", "ifca.eq21.parts"


class _PartedStep(NamedTuple):
    """One step of model 1 on raw samples, and what it is made of."""

    start: Float[np.ndarray, " features"]  # theta_1 - theta_1*
    end: Float[np.ndarray, " features"]  # theta_1+ - theta_1*
    # Mean gradients of the clients that chose model 1, for each cluster.
    groups: list[Float[np.ndarray, "_ features"]]
    population: Float[np.ndarray, "clusters features"]  # gradients of F^j at theta_1
    step: float  # gamma / m


@functools.lru_cache(maxsize=1)
def _parted_steps(preset: Preset) -> tuple[_PartedStep, ...]:
    """Random problems, models and sets S_1; three clusters, samples of their own."""
    generator = preset.generator(PARTS)
    steps = []
    for _ in range(preset.choose(quick=100, full=3000)):
        root = generator.standard_normal((3, 3))
        family = CosineFamily(
            generator.standard_normal((3, 3)), root @ root.T + 0.1 * np.eye(3), 0.8, 2.0
        )
        model = generator.standard_normal(3)
        groups = []
        for truth in family.truths:
            draws = family.draw(generator, int(generator.integers(1, 8)), 6)
            inner = draws.directions @ model + draws.phases
            waves = -family.amplitude * np.sin(inner)[..., None] * draws.directions
            # Sample by sample, as a client would: no population gradient in between.
            single = (family.hessian @ (model - truth)) + waves
            groups.append(np.mean(single, axis=1))
        step, truth = 1 / (family.smoothness * 30), family.truths[0]
        end = model - step * np.sum(np.concatenate(groups), axis=0)
        population = family.population_gradient(model, family.truths)
        steps.append(_PartedStep(model - truth, end - truth, groups, population, step))
    return tuple(steps)


def check_parts(preset: Preset, *, statement: str, sign: float) -> Verdict:
    """theta_1+ - theta_1* = T1 + sign T2, the two sums over S_1."""
    differences, sizes = [], []
    for one in _parted_steps(preset):
        own = one.start - one.step * np.sum(one.groups[0], axis=0)
        foreign = one.step * np.sum(np.concatenate(one.groups[1:]), axis=0)
        differences.append(np.linalg.norm(one.end - (own + sign * foreign)))
        terms = np.linalg.norm(np.concatenate(one.groups), axis=-1)
        sizes.append(np.linalg.norm(one.start) + one.step * np.sum(terms))
    what = r"$\theta_1^+ - \theta_1^*$ minus its parts"
    return _zero(statement, differences, sizes, what, _distances(preset))


def prove_parts_printed(*, sign: int = 1) -> list[Step]:
    r"""A counterexample in integers: $d = 1$, $m = \gamma = 2$, $\theta_1 - \theta_1^*
    = 5$, one client of $S_1$ in $S_1^*$ with gradient 1 and one outside with gradient
    3: $\theta_1^+ - \theta_1^* = 5 - (1 + 3) = 1$, $T_1 = 5 - 1 = 4$, $T_2 = 3$, and
    $T_1 + \mathtt{sign} T_2$ is not 1."""
    whole, first, second = 5 - (1 + 3), 5 - 1, 3
    return [
        exactly(
            r"1 is not $T_1 + \text{sign} \cdot T_2$", whole != first + sign * second
        )
    ]


def prove_parts(*, sign: int = -1) -> list[Step]:
    r"""$\theta_1^+ - \theta_1^* = T_1 + \mathtt{sign} T_2$, the sum over $S_1$ being
    that over $S_1 \cap S_1^*$ (`own`) and that over the rest (`rest`); in every
    coordinate."""
    import sympy

    e, own, rest, step = sympy.symbols("e own rest step", real=True)
    first, second = e - step * own, step * rest
    return [
        identity("in a coordinate", e - step * (own + rest) - (first + sign * second))
    ]


def prove_split(*, off_by: str = "0") -> list[Step]:
    r"""(26) in every coordinate: the sum over $s$ clients of $\nabla F_i$ (`total`) is
    $(s + \mathtt{off\_by}) \nabla F^j$ plus the sum of $\nabla F_i - \nabla F^j$, which
    is total $- s \nabla F^j$."""
    import sympy

    total, f, s = sympy.symbols("total f s", real=True)
    right = (s + sympy.Rational(off_by)) * f + (total - s * f)
    return [identity("in a coordinate", total - right)]


def check_split(preset: Preset, *, off_by: float = 0.0) -> Verdict:
    """(26), T_2j as a multiple of the population gradient and noise. `off_by` is added
    to the count in front of the population gradient; 0 as claimed."""
    differences, sizes = [], []
    for one in _parted_steps(preset):
        pairs = zip(one.groups[1:], one.population[1:], strict=True)
        for gradients, population in pairs:
            right = (len(gradients) + off_by) * population
            right += np.sum(gradients - population, axis=0)
            differences.append(np.linalg.norm(np.sum(gradients, axis=0) - right))
            terms = np.linalg.norm(gradients, axis=-1) + np.linalg.norm(population)
            sizes.append(np.sum(terms))
    places = {
        name: np.repeat(values, 2) for name, values in _distances(preset).items()
    } | {"cluster": np.resize([2, 3], len(sizes))}
    return _zero(EQ26, differences, sizes, "left minus right", places)


def _distances(preset: Preset) -> dict[str, PerPoint]:
    return {
        "distance": np.array(
            [np.linalg.norm(one.start) for one in _parted_steps(preset)]
        )
    }


def _zero(
    statement: str,
    differences: list[np.floating],
    sizes: list[np.floating],
    what: str,
    places: dict[str, PerPoint],
) -> Verdict:
    """That these vanish, as differences of sums of 30 terms of these sizes in all."""
    values = np.array(differences, float)
    return never_exceeds(
        statement,
        values,
        0.0,
        rounding=64 * np.finfo(float).eps * np.array(sizes, float),
        grade=Grade.SEARCHED,  # on drawn steps
        coordinates=places,
        detail=f"|{what}| up to {np.max(values):.2g} in {len(values)} raw steps",
    )


EQ22, EQ24, EQ27 = "ifca.eq22", "ifca.eq24", "ifca.eq27"


class _Pulls(NamedTuple):
    """Gradient steps of length 1 / L on functions minimal at 0; all `[points]`."""

    model: Float[np.ndarray, "points features"]
    gradient: Float[np.ndarray, "points features"]
    strong_convexity: PerPoint
    smoothness: PerPoint


@functools.lru_cache(maxsize=1)
def _pulls(preset: Preset) -> _Pulls:
    """lambda |x|^2 / 2 plus a quadratic or, in turn, log cosh (L = lambda + |sum a
    a'|); every other model is along an extreme eigenvector."""
    generator = preset.generator(EQ22)
    size, features = preset.choose(quick=4000, full=400_000), 3
    rows = generator.standard_normal((size, 2, features))
    rows *= 10 ** generator.uniform(-2, 1, (size, 1, 1))
    ridge = 10 ** generator.uniform(-2, 1, size)
    values, vectors = np.linalg.eigh(np.swapaxes(rows, 1, 2) @ rows)
    model = generator.standard_normal((size, features))
    model *= 10 ** generator.uniform(-2, 2, (size, 1))
    model[::4], model[1::4] = vectors[::4, :, 0], vectors[1::4, :, -1]
    inner = np.einsum("rnd,rd->rn", rows, model)
    smooth = np.arange(size) % 4 >= 2
    bent = np.where(smooth[:, None], np.tanh(inner), inner)
    return _Pulls(
        model,
        ridge[:, None] * model + np.einsum("rn,rnd->rd", bent, rows),
        ridge + np.maximum(values[:, 0], 0) * ~smooth,
        ridge + values[:, -1],
    )


def check_contraction(
    preset: Preset, *, sharp: bool = False, factor: float = 1.0, limit: float = 1.0
) -> Verdict:
    """|theta - theta* - gammahat grad F| <= (1 - factor gammahat s) |theta - theta*|. s
    = lambda L / (lambda + L) as printed, or lambda if `sharp`; `limit` is the largest
    gammahat L, 1 as claimed, which every second point takes."""
    points = _pulls(preset)
    length = limit * np.resize([1.0, 0.05, 1.0, 0.5, 1.0, 0.8], len(points.model))
    hat, rate = length / points.smoothness, points.strong_convexity
    if not sharp:
        rate = rate * points.smoothness / (rate + points.smoothness)
    statement = f"{EQ22}.sharp" if sharp else EQ22
    found = _judge_pull(statement, points, hat, 1 - factor * hat * rate)
    if sharp:
        return found
    # Along the flattest direction of a quadratic 1 + lambda/L times the printed gain.
    more = 1 + points.strong_convexity / points.smoothness
    lost = np.abs(_left(points, hat) - np.abs(1 - factor * hat * rate * more))[::4]
    even = never_exceeds(
        statement,
        lost,
        0.0,
        rounding=64 * np.finfo(float).eps,
        grade=Grade.SAMPLED,
        coordinates={
            "convexity": points.strong_convexity[::4],
            "smoothness": points.smoothness[::4],
            "step_size": hat[::4],
        },
    )
    parts = ["pulls", "flattest direction"]
    return combine(statement, [found, even], parts=parts, detail=found.detail)


def prove_contraction(*, factor: str = "1") -> list[Step]:
    r"""$|x - h g|^2 \le (1 - \mathtt{factor} h \lambda)^2 |x|^2$ for $x = \theta_1 -
    \theta_1^*$, $g = \nabla F^1(\theta_1)$, $0 < h \le 1/L$: the sharp form of (22).

    1. $F^1 - \lambda |\cdot|^2/2$ is convex and $(L - \lambda)$-smooth, so that its
       gradient is co-coercive (Nesterov 2004, Theorem 2.1.12): $(\lambda + L) \langle
       g, x \rangle \ge \lambda L |x|^2 + |g|^2$. So $|x - h g|^2 \le (1 - 2 h \lambda
       L/(\lambda + L)) |x|^2 - h (2/ (\lambda + L) - h) |g|^2$.
    2. $h \le 1/L \le 2/(\lambda + L)$, and $|g| \ge \lambda |x|$: with $|g| = \lambda
       |x|$ the right side is $(1 - h \lambda)^2 |x|^2$.
    """
    import sympy

    low, top, h = sympy.symbols("lambda L h", positive=True)
    more = sympy.Symbol("more", nonnegative=True)
    right = 1 - 2 * h * low * top / (low + top)
    right -= h * (2 / (low + top) - h) * low**2
    claimed = (1 - sympy.Rational(factor) * h * low) ** 2
    return [
        identity(
            # L = lambda + more: 2/(lambda + L) - 1/L = more/(L (lambda + L)).
            r"$2/(\lambda + L) - 1/L = (L - \lambda)/(L (\lambda + L))$",
            (2 / (low + top) - 1 / top).subs(top, low + more)
            - more / ((low + more) * (2 * low + more)),
        ),
        identity(
            r"at $|g| = \lambda |x|$ the right side is $(1 - \text{factor} h "
            r"\lambda)^2$",
            sympy.together(right - claimed),
        ),
    ]


def prove_contraction_printed(*, part: str = "1") -> list[Step]:
    r"""(22): $h \lambda \ge \mathtt{part} h \lambda L/(\lambda + L)$, as $\lambda + L
    \ge L$, and the sharp form (ifca.eq22.sharp), whose steps these begin with."""
    import sympy

    low, top = sympy.symbols("lambda L", positive=True)
    return [
        *prove_contraction(),
        no_negative_term(
            r"$\lambda + L \ge \text{part} \cdot L$",
            low + top - sympy.Rational(part) * top,
        ),
    ]


def prove_pull(*, part: str = "8") -> list[Step]:
    r"""(24): $1 - h \lambda \le 1 - p \lambda/(\mathtt{part} L)$, as $h = |S_1 \cap
    S_1^*|/(m L) \ge p_1 /(4 L) \ge p/(4 L)$, so that $h = (p + \text{more})/(4 L)$; by
    the sharp form of (22)."""
    import sympy

    p, low, top, more = sympy.symbols("p lambda L more", positive=True)
    return [
        *prove_contraction(),
        no_negative_term(
            r"$h \lambda \ge p \lambda/(\text{part} \cdot L)$",
            (p + more) / (4 * top) * low - p * low / (sympy.Rational(part) * top),
        ),
    ]


def prove_gradient(*, largest_truth: str = "1") -> list[Step]:
    r"""(27): $|\nabla F^j(\theta_1)| \le L |\theta_1 - \theta_j^*|$, as $\nabla F^j$ is
    $L$-Lipschitz and 0 at $\theta_j^*$. $|\theta_1 - \theta_j^*| \le |\theta_1^*| +
    |\theta_j^*| + |\theta_1 - \theta_1^*| \le 2 r - a + (1/2 - \alpha) (2 r - a)$, as
    $\sqrt{\lambda/L} \le 1$ and $\Delta \le |\theta_1^*| + |\theta_j^*| = 2 r - a$, $r
    = \mathtt{largest\_truth} = 1$. That is 3 less $2 \alpha + a (3/2 - \alpha)$, which
    is at least 0."""
    import sympy

    short, alpha = sympy.symbols("a alpha", nonnegative=True)
    both = 2 * sympy.Rational(largest_truth) - short
    reach = both + (sympy.Rational(1, 2) - alpha) * both
    spare = 2 * alpha + short * (sympy.Rational(3, 2) - alpha)
    return [
        identity(r"$3 - |\theta_1 - \theta_j^*| \ge 2 \alpha + a (3/2 - \alpha)$",
                 3 - reach - spare)
    ]  # fmt: skip


def check_pull(preset: Preset, *, part: float = 8.0) -> Verdict:
    """(24): with gamma = 1/L and |S_1 cap S_1*| >= p_1 m / 4 the factor is
    1 - p lambda / (`part` L), 8 as printed."""
    points = _pulls(preset)
    generator = preset.generator(EQ24)
    share = generator.uniform(0.01, 1, len(points.model))
    kept = np.resize([0.25, 0.25, 0.6, 1.0], len(share))
    hat = kept * share / points.smoothness
    claim = 1 - share * points.strong_convexity / (part * points.smoothness)
    size = np.linalg.norm(points.model, axis=-1)
    left = np.linalg.norm(points.model - hat[:, None] * points.gradient, axis=-1)
    least = float(np.min((1 - left / size) / (1 - claim)))
    # Twice the printed gain is true, and no more.
    loose = never_exceeds(
        EQ24,
        np.array([1.99, least]),
        np.array([least, 2.01]),
        rounding=1e-9,
        grade=Grade.SEARCHED,  # the least of drawn functions
        coordinates={"twice": np.array(["no less", "no more"])},
    )
    found = _judge_pull(EQ24, points, hat, claim)
    parts = ["pull", "twice the gain"]
    return combine(EQ24, [found, loose], parts=parts, detail=found.detail)


def _judge_pull(
    statement: str, points: _Pulls, hat: PerPoint, claim: PerPoint
) -> Verdict:
    """|theta - hat grad F| <= claim |theta|."""
    left = _left(points, hat)
    gain = (1 - left) / (1 - claim)
    return never_exceeds(
        statement,
        left,
        claim,
        rounding=64 * np.finfo(float).eps,
        grade=Grade.SEARCHED,  # on drawn functions
        coordinates={
            "convexity": points.strong_convexity,
            "smoothness": points.smoothness,
            "step_size": hat,
        },
        detail=f"{len(left)} quadratics and sums of log cosh; true over claimed gain "
        f"{np.min(gain):.4f} or more",
    )


def _left(points: _Pulls, hat: PerPoint) -> PerPoint:
    """|theta - hat grad F| / |theta|."""
    after = points.model - hat[:, None] * points.gradient
    return np.linalg.norm(after, axis=-1) / np.linalg.norm(points.model, axis=-1)


def check_gradient(preset: Preset, *, largest_truth: float = 1.0) -> Verdict:
    """(27): |grad F^j(theta_1)| <= L |theta_1 - theta_j*| <= 3 L. Truths of length
    `largest_truth` at most, 1 as claimed. Every third point has them opposite and
    theta_1 outward: the extreme case."""
    generator = preset.generator(EQ27)
    size = preset.choose(quick=3000, full=300_000)
    angles = generator.uniform(0, 2 * np.pi, (4, size))
    lengths = largest_truth * np.sqrt(generator.uniform(0, 1, (2, size)))
    alpha = generator.uniform(1e-3, 0.5, size)
    ratio = 10 ** generator.uniform(-2, 0, size)
    extreme = np.arange(size) % 3 == 0
    angles[1, extreme] = angles[0, extreme] + np.pi
    angles[2, extreme] = angles[0, extreme]
    lengths[:, extreme], alpha[extreme], ratio[extreme] = largest_truth, 1e-3, 1
    own, other = (lengths[i, :, None] * turn(angles[i]) for i in (0, 1))
    apart = np.linalg.norm(own - other, axis=-1)
    radius = (0.5 - alpha) * np.sqrt(ratio) * apart
    error = own + radius[:, None] * turn(angles[2]) - other
    low, high = turn(angles[3]), turn(angles[3] + np.pi / 2)
    # In units of L: eigenvalues lambda / L and 1.
    gradient = np.hypot(ratio * np.sum(error * low, -1), np.sum(error * high, -1))
    distance = np.linalg.norm(error, axis=-1)
    return never_exceeds(
        EQ27,
        np.concatenate([gradient, distance]),
        np.concatenate([distance, np.full(size, 3.0)]),
        rounding=64 * np.finfo(float).eps * 3,
        grade=Grade.SEARCHED,  # at drawn places, and some that are extreme
        coordinates={
            "alpha": np.tile(alpha, 2),
            "angle": np.tile(angles[0], 2),
            "part": np.repeat(["gradient", "distance"], size),
        },
        detail=rf"{size} places, $k = 2$; $|\theta_1 - \theta_j^*|$ up to "
        f"{np.max(distance):.4f}",
    )


EQ25, EQ30 = "ifca.eq25", "ifca.eq30"

_SAMPLES = 1200.0
_DELTAS = (0.05, 0.25)
_RADII = (0.0, 1.0)  # |theta_j - theta_j*| over (1/2 - alpha) sqrt(lambda / L) Delta
_ALPHA = 0.1


def _family() -> WaveFamily:
    """Three clusters at the corners of a triangle of side 1, within the unit ball."""
    corners = turn(2 * np.pi * np.arange(3) / 3)
    corners = np.concatenate([corners, np.zeros((3, 1))], axis=-1) / np.sqrt(3)
    return WaveFamily(corners, (200, 300, 500), np.array([0.5, 0.8, 1.0]), 0.5, 2.0)


def _setting(failure: float) -> ConvexSetting:
    return _family().setting(num_samples=_SAMPLES, alpha=_ALPHA, failure=failure)


@functools.lru_cache(maxsize=1)
def _samples(preset: Preset) -> tuple[tuple[Models, Counts, Pieces], ...]:
    """Steps from both radii; a client chooses its own model with probability 1/2, the
    least that the proof allows, else one of the others at random."""
    family, generator = _family(), preset.generator(EQ25)
    trials = preset.choose(quick=4000, full=200_000)
    found = []
    for radius in _RADII:
        away = generator.standard_normal((trials, 3, 3))
        away[::2] = np.array([1.0, 0.0, 0.0])  # the flattest direction
        length = radius * (0.5 - _ALPHA) * float(_setting(0.5).unit)
        models = family.truths + length * unit(away)
        chance = 0.25 * (1 + np.eye(3))
        counts = np.zeros((trials, 3, 3))
        for own, clients in enumerate(family.sizes):
            counts[:, own] = generator.multinomial(clients, chance[own], trials)
        pieces = gradient_step(family, generator, models, counts, _SAMPLES)
        found.append((models, counts, pieces))
    return tuple(found)


def _first_noise(
    v: Any, delta: Any, smooth: Any, share: Any, data: Any, root: Any = np.sqrt
) -> Any:
    """The noise term of (25), in numbers or symbols; `data` is m n'."""
    return 2 * v / (delta * smooth * root(share * data))


def _first_failure(delta: Any, clients: Any, exp: Any = np.exp) -> Any:
    """delta0 + c1 exp(-c p m) of (25); `clients` is p m."""
    return delta + 2 * exp(-clients / 8)


def check_first(preset: Preset, *, exact_share: float | None = None) -> Verdict:
    """(25) for the smallest cluster, with c = 1/8 in its probability. With
    `exact_share` its noise term is that share of the root mean square of T12 at |S_1
    cap S_1*| = p_1 m / 2, without any delta0."""
    events, bounds, reach = [], [], []
    for models, _, pieces in _samples(preset):
        size = np.linalg.norm(models[:, 0] - _family().truths[0], axis=-1)
        left = np.linalg.norm(pieces.pull[:, 0] + pieces.own_noise[:, 0], axis=-1)
        for delta in _DELTAS:
            s = _setting(delta)
            v = np.sqrt(s.gradient_variance)
            smooth, data = s.smoothness, s.num_clients * s.num_samples
            if exact_share is None:
                noise = _first_noise(v, delta, smooth, s.share, data)
            else:
                noise = exact_share * v / smooth * np.sqrt(s.share / 2 / data)
            bound = (1 - s.progress) * size + noise
            events.append(left > bound)
            reach.append(np.max(left / bound))
            bounds.append(_first_failure(delta, s.share * s.num_clients))
    detail = f"{len(events)} points, $|T_1|$ over its bound at most {np.max(reach):.3f}"
    return at_most(
        EQ25,
        tally(np.array(events)),
        np.array(bounds),
        coordinates=_starts(),
        detail=detail,
    )


def _starts() -> dict[str, PerPoint]:
    radius, delta = grid(_RADII, _DELTAS, indexing="ij")
    return {"alpha": 0.5 - radius * (0.5 - _ALPHA), "failure": delta}


def prove_first(*, constant: str = "2") -> list[Step]:
    r"""(25): $|T_1| \le |T_{11}| + |T_{12}|$, by (24) and Markov's inequality.

    1. (24) holds where $|S_1 \cap S_1^*| \ge p_1 m/4$, but for probability $2 \exp(-p
       m/8)$, by Hoeffding's inequality $(2 \exp(-2 M (1/4)^2), M = p_1 m)$.
    2. $E|T_{12}|^2 \le h^2 v^2/(n' |S_1 \cap S_1^*|)$, $h \le 1/L$: with probability $1
       - \delta_0 |T_{12}| \le v/(\delta_0 L \sqrt{n' p m/4}) = \mathtt{constant}
       v/(\delta_0 L \sqrt{p m n'})$.
    """
    import sympy

    v, delta, smooth, p, m, n = sympy.symbols("v delta L p m n", positive=True)
    given = v / (delta * smooth * sympy.sqrt(n * p * m / 4))
    claimed = _first_noise(v, delta, smooth, p, m * n, sympy.sqrt)
    claimed *= sympy.Rational(constant) / 2
    hoeffding = 2 * sympy.exp(-2 * (p * m) * sympy.Rational(1, 4) ** 2)
    return [
        *prove_pull(),
        identity(r"$1/\sqrt{n' p m/4} = 2/\sqrt{p m n'}$", given - claimed),
        identity(
            r"$\delta_0$ and $2 \exp(-2 p m/16)$ add up",
            delta + hoeffding - _first_failure(delta, p * m, sympy.exp),
        ),
    ]


def prove_second(*, less: str = "1") -> list[Step]:
    r"""(30) with $\sqrt{k - \mathtt{less}}$ from (29) for every $j \ne 1$, $k - 1$
    times $\delta_1$.

    The $\sum_j$ (29), times $\gamma/m$: $3 L$ times the sum of the counts $s_j$, and
    $v/(\delta_1 \sqrt{n'})$ times that of $\sqrt{s_j}$, which is at most $\sqrt{(k - 1)
    \sum s_j}$ by Cauchy and Schwarz. For $k = 2$ there is one count, and for $k = 3$
    their inequality is the second identity below, attained by equal counts: no more
    than 1 can be taken from $k$. From $k$ to $k + 1$, with a the sum of $k - 1$ roots,
    at most $\sqrt{(k - 1) b}$, $b$ the sum of their squares: $k (b + t^2) - (a + t)^2 =
    (b - a^2/(k - 1)) k + (a/\sqrt{k - 1} - \sqrt{k - 1} t)^2$, so that it holds for all
    $k$.
    """
    import sympy

    first, second = sympy.symbols("first second", positive=True)
    a, b, t, count = sympy.symbols("a b t count", positive=True)  # count = k - 1
    taken = sympy.Rational(less)
    k, low, v, delta = sympy.symbols("k L v delta", positive=True)
    whole = 3 * low * b + v * sympy.sqrt(k * b) / delta
    return [
        identity(
            r"$3 L \sum s_j + (v/(\delta_1 \sqrt{n'})) \sqrt{k \sum s_j}$ is "
            "claimed",
            whole - _second_length(low, v**2, b, k, delta, sympy.sqrt),
        ),
        identity(
            r"$k \delta_1$ is $(k - 1) \delta_1$ and $\delta_1$",
            (k - 1) * delta + delta - _second_failure(k, delta),
        ),
        no_negative_term(
            r"$k = 2$: $(k - \text{less}) s - s \ge 0$", (2 - taken) * first - first
        ),
        identity(
            r"$k = 3$: $(k - \text{less}) (s + t) - (\sqrt{s} + \sqrt{t})^2 = "
            r"(\sqrt{s} - \sqrt{t})^2$",
            (3 - taken) * (first**2 + second**2)
            - (first + second) ** 2
            - (first - second) ** 2,
        ),
        identity(
            "from $k$ to $k + 1$",
            (count + 2 - taken) * (b + t**2)
            - (a + t) ** 2
            - (b - a**2 / count) * (count + 1)
            - (a / sympy.sqrt(count) - sympy.sqrt(count) * t) ** 2,
        ),
    ]


def _second_length(
    smooth: Any, variance: Any, foreign: Any, k: Any, delta: Any, root: Any = np.sqrt
) -> Any:
    """(30) without gamma/m, in numbers or symbols; `variance` is v^2/n'."""
    return 3 * smooth * foreign + root(variance * k * foreign) / delta


def _second_failure(k: Any, delta: Any) -> Any:
    """k delta1."""
    return k * delta


def check_second(preset: Preset, *, clusters_less: float = 1.0) -> Verdict:
    """(30) with sqrt(k - clusters_less) in place of sqrt(k). The sum over clusters of
    (29) at every count, and steps as they are."""
    generator = preset.generator(EQ30)
    size = preset.choose(quick=2000, full=200_000)
    clusters = generator.integers(2, 12, size)
    used = np.arange(11) < (clusters - 1)[:, None]
    counts = generator.integers(0, 50, (size, 11)) * used
    counts[::4] = generator.integers(1, 50, (len(counts[::4]), 1)) * used[::4]
    total = np.sum(counts, axis=-1)
    left = np.sum(np.sqrt(counts), axis=-1)
    right = np.sqrt((clusters - clusters_less) * total)
    events, bounds = _second_events(preset)
    tightest = np.max(left[total > 0] / right[total > 0])
    places = {"k": clusters, "misassigned": total, "draw": np.arange(size)}
    judged = functools.partial(never_exceeds, EQ30, grade=Grade.SEARCHED)  # on draws
    return combine(
        EQ30,
        [
            judged(left, right, rounding=1e-12 * (1 + left), coordinates=places),
            judged(1.0, tightest, rounding=1e-12),
            at_most(EQ30, tally(events), bounds, coordinates=_starts()),
        ],
        parts=["roots", "attained", "steps"],
        detail=r"sum of $\sqrt{|S_1 \cap S_j^*|}$ over $\sqrt{(k - "
        rf"{clusters_less:g}) |S_1 \cap \overline{{S_1^*}}|}}$ up to {tightest:.4f} in "
        f"{size} cases; $|T_2|$ above its bound in "
        f"{np.max(np.mean(events, axis=1)):.2%} of steps",
    )


def _second_events(preset: Preset) -> tuple[Events, PerPoint]:
    """Whether |T2| exceeds (30), and k delta1."""
    events, bounds = [], []
    for _, counts, pieces in _samples(preset):
        foreign = np.sum(counts[:, 1:, 0], axis=-1)
        left = np.linalg.norm(pieces.foreign[:, 0], axis=-1)
        for delta in _DELTAS:
            s = _setting(delta)
            step = 1 / (s.smoothness * s.num_clients)
            variance = s.gradient_variance / _SAMPLES
            bound = _second_length(s.smoothness, variance, foreign, 3, delta)
            events.append(left > step * bound)
            bounds.append(_second_failure(3, delta))
    return np.array(events), np.array(bounds)


_ONE_STEP = ("$S_1$ any set of clients",)
_SMOOTH = (
    r"$F^1$ is $\lambda$-strongly convex and $L$-smooth",
    r"$0 < \hat\gamma \le 1/L$",
)

STATEMENTS = (
    row(
        id=EQ21,
        place="Appendix C, (21)",
        text=r"$T_1 = [\theta_1 - \theta_1^* - \hat\gamma \nabla F^1(\theta_1)] + "
        r"\hat\gamma [\nabla F^1(\theta_1) - g]$, $g$ the mean of $\nabla "
        r"F_i(\theta_1)$ over $S_1 \cap S_1^*$, $\hat\gamma = \gamma |S_1 \cap S_1^*| "
        "/ m$",
        preconditions=(r"$|S_1 \cap S_1^*| \ge 1$: otherwise the mean is $0 / 0$",),
        check=check_identity,
        control={"all_chosen": True},
        proof=prove_identity,
        proof_control={"chosen": "chosen"},
        note=r"The control has $|S_1|$ in $\hat\gamma$.",
    ),
    row(
        id=PARTS,
        place="Appendix C, display above (21)",
        text=r"$\theta_1^+ - \theta_1^* = T_1 + T_2$, $T_1 = \theta_1 - \theta_1^* - "
        r"(\gamma/m) \sum_{i \in S_1 \cap S_1^*} \nabla F_i$, $T_2 = (\gamma/m) "
        r"\sum_{i \in S_1 \cap \overline{S_1^*}} \nabla F_i$",
        preconditions=_ONE_STEP,
        expected=Status.VIOLATED,
        fault="misprint",
        check=functools.partial(check_parts, statement=PARTS, sign=1.0),
        control={"sign": -1.0},
        proof=prove_parts_printed,
        proof_control={"sign": -1},
        note="A sign: it is $T_1 - T_2$, as in Appendix A. Harmless, the next line "
        "takes norms. The control claims $T_1 - T_2$.",
    ),
    row(
        id=f"{PARTS}.corrected",
        place="Appendix C, display above (21)",
        text=r"$\theta_1^+ - \theta_1^* = T_1 - T_2$",
        preconditions=_ONE_STEP,
        check=functools.partial(check_parts, statement=f"{PARTS}.corrected", sign=-1.0),
        control={"sign": 1.0},
        proof=prove_parts,
        proof_control={"sign": 1},
        note="The control is the printed form.",
    ),
    row(
        id=EQ26,
        place="Appendix C, (26)",
        text=r"$T_{2j} = |S_1 \cap S_j^*| \nabla F^j + \sum_{i \in S_1 \cap "
        r"S_j^*} (\nabla F_i - \nabla F^j)$",
        preconditions=_ONE_STEP,
        check=check_split,
        control={"off_by": 0.01},
        proof=prove_split,
        proof_control={"off_by": "0.01"},
        note="An identity. The control miscounts by 0.01 of a client.",
    ),
    row(
        id=EQ22,
        place="Appendix C, (22)",
        text=r"$|\theta_1 - \theta_1^* - \hat\gamma \nabla F^1| \le (1 - \hat\gamma "
        r"\lambda L / (\lambda + L)) |\theta_1 - \theta_1^*|$",
        preconditions=_SMOOTH,
        check=check_contraction,
        control={"limit": 1.4},
        proof=prove_contraction_printed,
        proof_control={"part": "1.01"},
        note=r"Loose by up to 2, see the sharp row. The control lets $\hat\gamma$ be "
        r"up to $1.4 / L$: at $\lambda = L$ the display survives until $(4/3) / L$.",
    ),
    row(
        id=f"{EQ22}.sharp",
        place="Appendix C, (22), sharp form",
        text=r"$\ldots \le (1 - \hat\gamma \lambda) |\theta_1 - \theta_1^*|$",
        preconditions=_SMOOTH,
        check=functools.partial(check_contraction, sharp=True),
        control={"factor": 1.001},
        proof=prove_contraction,
        proof_control={"factor": "1.001"},
        note="Attained along the flattest direction. The control claims $1.001 "
        r"\lambda$.",
    ),
    row(
        id=EQ24,
        place="Appendix C, (24)",
        text=r"$|T_{11}| \le (1 - p \lambda / (8 L)) |\theta_1 - \theta_1^*|$",
        preconditions=(
            _SMOOTH[0],
            r"$\gamma = 1/L$",
            r"$|S_1 \cap S_1^*| \ge p_1 m / 4$",
        ),
        constants={r"part of $p \lambda / L$": 1 / 8, "sharp": 1 / 4},
        check=check_pull,
        control={"part": 3.99},
        proof=prove_pull,
        proof_control={"part": "3.99"},
        note=r"$1/4$ would do, and with $|S_1 \cap S_1^*| = p_1 m$ even 1. The "
        "control claims $1 / 3$.99.",
    ),
    row(
        id=EQ27,
        place="Appendix C, (27)",
        text=r"$|\nabla F^j(\theta_1)| \le L |\theta_1 - \theta_j^*| \le 3 L$",
        preconditions=(
            "$F^j$ is $L$-smooth",
            r"$\max |\theta_j^*| \le 1$, not just of that order",
            r"$|\theta_1 - \theta_1^*| \le (1/2 - \alpha) \sqrt{\lambda / L} "
            r"\Delta$",
        ),
        claimed=r"$\lesssim 1$ for the distance, $3 L$ for the gradient",
        check=check_gradient,
        control={"largest_truth": 1.01},
        proof=prove_gradient,
        proof_control={"largest_truth": "1.01"},
        note=r"Attained as $\alpha$ goes to 0. The control lets $|\theta_j^*|$ be "
        "1.01.",
    ),
    row(
        id=EQ25,
        place="Appendix C, (25)",
        text=r"$|T_1| \le (1 - p \lambda / (8 L)) |\theta_1 - \theta_1^*| + 2 v / "
        r"(\delta_0 L \sqrt{p m n'})$ with probability $1 - \delta_0 - 2 \exp(-c p "
        "m)$ or more",
        preconditions=(
            r"Assumptions 3 and 5, $\gamma = 1/L$",
            "every client chooses right with probability $1/2$ or more, independently",
        ),
        constants={"c": 1 / 8, "2": 2.0},
        claimed="$c > 0$, unnamed",
        check=check_first,
        control={"exact_share": 0.9},
        proof=prove_first,
        proof_control={"constant": "1.99"},
        note=r"Loose: $\hat\gamma \le 1/L$ and $|S_1 \cap S_1^*| \ge p m / 4$ cannot "
        r"both be tight, and the true noise is of order $\sqrt{p}$, not $1 / "
        r"\sqrt{p}$: no step exceeds the bound here, though some reach 0.92 of it. "
        "The control has 0.9 of the noise's root mean square.",
    ),
    row(
        id=EQ30,
        place="Appendix C, (30)",
        text=r"$|T_2| \le c_1 \gamma L |S_1 \cap \overline{S_1^*}| / m + \gamma v "
        r"\sqrt{k} \sqrt{|S_1 \cap \overline{S_1^*}|} / (\delta_1 m "
        r"\sqrt{n'})$ with probability $1 - k \delta_1$ or more",
        preconditions=(r"(29) for every $j \ne 1$", r"$\max |\theta_j^*| \le 1$"),
        constants={"c1": 3.0},
        claimed="$c_1 > 0$, unnamed",
        check=check_second,
        control={"clusters_less": 1.02},
        proof=prove_second,
        proof_control={"less": "1.02"},
        note="$k - 1$ in place of $k$ will do, in both places, and is attained by "
        "equal counts; checked is the square root with $k - 1$. The control has $k - "
        "1.02$.",
    ),
)
