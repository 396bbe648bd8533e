"""Assumptions 3 to 5, of convex losses: what meets them, and that squares do not."""

import functools
import math
from fractions import Fraction

import numpy as np
from jaxtyping import Float

from cfljax.statements import (
    Grade,
    Margin,
    Preset,
    Statement,
    Status,
    Step,
    Verdict,
    combine,
    exactly,
    identity,
    never_exceeds,
)
from theory.ifca.common.checks import (
    mean_within,
    row,
)
from theory.ifca.common.convex import (
    CosineFamily,
)
from theory.polynomials import no_negative_term
from theory.rows import listed

_VARIANCES = ("ifca.asm4", "ifca.asm5")  # of order 0, the loss, and 1, its gradient
_BAND = 0.03  # relative, of the variance in raw samples


def assumption3(
    curvatures: Float[np.ndarray, " features"],
    *,
    strong_convexity: float,
    smoothness: float,
) -> tuple[Margin, ...]:
    """Margins of Assumption 3 for a quadratic with these eigenvalues."""
    low, high = float(np.min(curvatures)), float(np.max(curvatures))
    return (
        Margin(r"ifca.asm3: $F^j$ is $\lambda$-strongly convex", low, strong_convexity),
        Margin("ifca.asm3: $F^j$ is $L$-smooth", high, smoothness, at_least=False),
    )


def assumption4(largest: float, *, loss_variance: float) -> tuple[Margin, ...]:
    """Margin of Assumption 4, from the largest Var f(theta; z) over theta."""
    text = (
        r"ifca.asm4: $\operatorname{Var} f(\theta; z) \le \eta^2$ for every "
        r"$\theta$"
    )
    return (Margin(text, largest, loss_variance, at_least=False),)


def assumption5(largest: float, *, gradient_variance: float) -> tuple[Margin, ...]:
    """Margin of Assumption 5, from the largest E |grad f - grad F^j|^2 over theta."""
    text = r"ifca.asm5: $E |\nabla f - \nabla F^j|^2 \le v^2$ for every $\theta$"
    return (Margin(text, largest, gradient_variance, at_least=False),)


def _family() -> CosineFamily:
    """The instance that Assumptions 3 to 5 are checked on."""
    rotation = np.linalg.qr(np.array([[1.0, 2, 3], [0, 1, 4], [5, 6, 0]]))[0]
    hessian = rotation * np.array([0.5, 1.0, 4.0]) @ rotation.T
    truths = np.array([[0.5, 0, 0], [-0.5, 0, 0]])
    return CosineFamily(truths, (hessian + hessian.T) / 2, 1.3, 2.5, offset=0.4)


def check_curvature(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """Definitions 1 and 2 at random pairs, with `factor` lambda and L / `factor`. Every
    third pair is apart along an extreme eigenvector, where both are tight."""
    problem = _family()
    generator = preset.generator("ifca.asm3")
    size = preset.choose(quick=3000, full=300_000)
    first = generator.standard_normal((size, 3))
    first *= 10 ** generator.uniform(-2, 2, (size, 1))
    apart = generator.standard_normal((size, 3))
    vectors = np.linalg.eigh(problem.hessian)[1].T
    apart[::3], apart[1::3] = vectors[0], vectors[-1]
    second, truth = first + apart, problem.truths[0]
    gradients = [problem.population_gradient(one, truth) for one in (first, second)]
    losses = [problem.population_loss(one, truth) for one in (first, second)]
    linear = losses[0] + np.sum(gradients[0] * apart, axis=-1)
    square = np.sum(apart**2, axis=-1)
    convex = linear + factor * problem.strong_convexity / 2 * square
    smooth = problem.smoothness / factor * np.sqrt(square)
    change = np.linalg.norm(gradients[1] - gradients[0], axis=-1)
    scale = 1 + np.sum(first**2, axis=-1) + np.sum(second**2, axis=-1)
    judged = functools.partial(
        never_exceeds,
        "ifca.asm3",
        rounding=256 * np.finfo(float).eps * problem.smoothness * scale,
        grade=Grade.SEARCHED,  # on drawn pairs
        coordinates={"distance": np.linalg.norm(first - truth, axis=-1)},
    )
    return combine(
        "ifca.asm3",
        [
            judged(convex, losses[1]),
            judged(change, smooth),
        ],
        parts=["convex", "smooth"],
        detail=rf"{size} pairs, $\lambda = {problem.strong_convexity:.3g}$, $L = "
        f"{problem.smoothness:.3g}$",
    )


def check_variance(preset: Preset, *, order: int, factor: float = 1.0) -> Verdict:
    """Assumption 4 or 5 with `factor` times the family's eta^2 or v^2. Over the phases
    exactly, by a sum over 16 of them (exact for the square of a cosine), at |theta| up
    to 1e6; and over raw samples, whose variance must be within 3 % of the claim."""
    statement, problem = _VARIANCES[order], _family()
    claim = [problem.loss_variance, problem.gradient_variance][order] * factor
    generator = preset.generator(statement)
    models = generator.standard_normal((40, 3))
    models *= np.geomspace(1e-3, 1e6, 40)[:, None]
    directions = problem.draw(generator, 40, 1).directions
    phases = np.arange(16) * np.pi / 8
    inner = np.einsum("cnd,cd->cn", directions, models) + phases
    wave = problem.amplitude * (np.cos(inner) if order == 0 else np.sin(inner))
    length = problem.frequency if order else 1.0
    exact = np.mean((length * wave) ** 2, axis=-1)
    exact += 0 if order else problem.offset**2
    samples = preset.choose(quick=200_000, full=2_000_000)
    draws = problem.draw(generator, samples, 1)
    if order == 0:
        squares = [problem.noise(one, draws)[:, 0] ** 2 for one in models[::10]]
    else:
        noises = (problem.gradient_noise(one, draws) for one in models[::10])
        squares = [np.sum(noise**2, axis=-1) for noise in noises]
    # The angle of a distant model is known to |inner| eps, and its cosine no better.
    rounding = 64 * np.finfo(float).eps * claim * (1 + np.max(np.abs(inner), axis=-1))
    lengths = np.linalg.norm(models, axis=-1)
    phased = never_exceeds(
        statement,
        exact,
        claim,
        rounding=rounding,
        grade=Grade.SEARCHED,  # at drawn models
        coordinates={"length": lengths},
    )
    raw = mean_within(
        statement,
        np.array(squares),
        (claim * (1 - _BAND), claim * (1 + _BAND)),
        deviation=_square_deviation(problem)[order],
        coordinates={"length": lengths[::10]},
        detail=lambda low, high: (
            rf"{np.min(low):.3f} to {np.max(high):.3f} in raw samples, $|\theta|$ up "
            "to $10^6$"
        ),
    )
    detail = f"claim {claim:.4f}; {np.max(exact):.4f} over the phases, {raw.detail}"
    return combine(statement, [phased, raw], detail=detail)


def _square_deviation(problem: CosineFamily) -> tuple[float, float]:
    """Standard deviations of (f - F)^2 and |grad f - grad F|^2, of one sample. E cos^4
    = E sin^4 = 3/8, and the normal offset's fourth moment is 3 s^4."""
    wave, offset = problem.amplitude**2, problem.offset**2
    fourth = 3 * wave**2 / 8 + 3 * wave * offset + 3 * offset**2
    loss = math.sqrt(fourth - problem.loss_variance**2)
    return loss, wave * problem.frequency**2 / math.sqrt(8)


def prove_curvature(*, factor: str = "1") -> list[Step]:
    r"""Definitions 1 and 2 for a quadratic with eigenvalues $\lambda \le h \le L$, all
    pairs.

    $F(\theta') - F(\theta) - \langle \nabla F(\theta), \theta' - \theta \rangle$ is
    $(1/2) \sum h d^2$ exactly, and $\nabla F(\theta) - \nabla F(\theta')$ has the
    square $\sum h^2 d^2$, $d$ the components of $\theta' - \theta$ along the
    eigenvectors. As $\lambda \le h \le L$ for each, the first is at least $(\lambda/2)
    \sum d^2$ and the second at most $L^2 \sum d^2$, with equality along the extreme
    eigenvectors. Claimed: $\mathtt{factor} \lambda$ and $L/\mathtt{factor}$. With $h =
    \lambda + a$ and $L = h + b$, $a$ and $b \ge 0$, both differences have no negative
    term.
    """
    import sympy

    h, x, d = sympy.symbols("h x d", real=True)
    low, a, b = sympy.symbols("lambda a b", nonnegative=True)
    own, share = low + a, sympy.Rational(factor)
    loss = lambda e: h * e**2 / 2
    rest = loss(x + d) - loss(x) - sympy.diff(loss(x), x) * d
    change = (h * (x + d) - h * x) ** 2
    return [
        identity("$F(x + d) - F(x) - F'(x) d = h d^2/2$", rest - h * d**2 / 2),
        identity("$(F'(x + d) - F'(x))^2 = h^2 d^2$", change - h**2 * d**2),
        no_negative_term(r"$h \ge \text{factor} \cdot \lambda$", own - share * low),
        no_negative_term(
            r"$(L/\text{factor})^2 \ge h^2$", (own + b) ** 2 / share**2 - own**2
        ),
    ]


def prove_variance(*, order: int, factor: str = "1") -> list[Step]:
    r"""$\operatorname{Var} f = A^2/2 + s^2$, or $E |\nabla f - \nabla F|^2 = A^2
    w^2/2$, at every $\theta$.

    $f - F = A \cos(\langle \omega, \theta \rangle + \varphi) + \zeta$, $\varphi$
    uniform on $[0, 2 \pi]$ and independent of $\omega$ and $\zeta$, $|\omega| = w$,
    $\operatorname{Var} \zeta = s^2$, $E \zeta = 0$. Given $\omega$, $\langle \omega,
    \theta \rangle + \varphi$ is uniform modulo $2 \pi$, whatever $\theta$ is, so that
    the cosine has mean 0 and mean square $1/2$, and so has the sine of the gradient's
    noise, $-A \sin(\ldots) \omega$. The row allows `factor` times that.
    """
    import sympy

    length, rest = sympy.symbols("A w" if order else "A s", positive=True)
    phi, start = sympy.symbols("phi start", real=True)
    wave = sympy.sin(phi) if order else sympy.cos(phi)
    square = sympy.integrate(wave**2, (phi, start, start + 2 * sympy.pi))
    mean = sympy.integrate(wave, (phi, start, start + 2 * sympy.pi))
    half = sympy.simplify(sympy.expand_trig(square / (2 * sympy.pi)))
    if order:
        exact, allowed = length**2 * half * rest**2, length**2 * rest**2 / 2
    else:
        exact, allowed = length**2 * half + rest**2, length**2 / 2 + rest**2
    allowed *= sympy.Rational(factor)
    return [
        identity("mean 0 over a period, from anywhere", mean),
        identity("mean square $1/2$ over a period, from anywhere",
                 half - sympy.Rational(1, 2)),
        no_negative_term("what is allowed is no less than the variance",
                         allowed - exact),
    ]  # fmt: skip


def _family_margins() -> tuple[Margin, ...]:
    problem = _family()
    return (
        *assumption3(
            np.linalg.eigvalsh(problem.hessian),
            strong_convexity=problem.strong_convexity,
            smoothness=problem.smoothness,
        ),
        *assumption4(
            problem.amplitude**2 / 2 + problem.offset**2,
            loss_variance=problem.loss_variance,
        ),
        *assumption5(
            (problem.amplitude * problem.frequency) ** 2 / 2,
            gradient_variance=problem.gradient_variance,
        ),
    )


_SQUARED_FEATURES, _SQUARED_NOISE = 3, 0.7
_SQUARED_RADII = (0.0, 1.0, 3.0)
_RADIUS = 3.0  # holds all models if max |theta_j*| <= 1


def squared_loss_variances(
    radius: float,
    *,
    num_features: int = _SQUARED_FEATURES,
    noise: float = _SQUARED_NOISE,
) -> tuple[float, float]:
    """Var f and E |grad f - grad F^j|^2 of (y - <x, theta>)^2 at |theta - theta_j*|.
    Increasing in the radius: the supremum over a ball is attained on its surface."""
    loss = 2 * (radius**2 + noise**2) ** 2
    gradient = 4 * ((num_features + 1) * radius**2 + num_features * noise**2)
    return loss, gradient


def check_unbounded(_: Preset, *, order: int, radius: float = np.inf) -> Verdict:
    """That one constant, that of |e| = 3, bounds the variance at every theta: at |e|
    from 1e-3 to 1e11, or no further than the `radius`."""
    radii = np.minimum(10.0 ** np.arange(-3, 12), radius)
    bound = squared_loss_variances(_RADIUS)[order]
    values = np.array([squared_loss_variances(one)[order] for one in radii])
    return never_exceeds(
        f"{_VARIANCES[order]}.squared",
        values,
        bound,
        rounding=1e-12 * values,
        grade=Grade.EXACT,
        coordinates={"distance": radii, "noise": _SQUARED_NOISE},
        detail=f"{values[-1]:.4g} at $|e| = {radii[-1]:.4g}$, claimed {bound:.4g}",
    )


def prove_squared(*, order: int, crossed: bool = True) -> list[Step]:
    r"""$\operatorname{Var} f = 2 (r^2 + s^2)^2$ and $E |\nabla f - \nabla F|^2 = 4 ((d
    + 1) r^2 + d s^2)$, for all $r = |\theta - \theta_j^*|$, $s = \sigma$ and $d$; on a
    ball the surface has the largest.

    $f = u^2$ with $u = y - \langle x, \theta \rangle$ normal, $E u = 0$, $E u^2 = t =
    r^2 + s^2$ and $E u^4 = 3 t^2$, so that $\operatorname{Var} u^2 = 2 t^2$. The
    gradient is $-2 u x$, with mean $2 e$, $e = \theta - \theta_j^*$. Take $e$ along the
    first axis: $u = z - r x_1$, $z$ the noise. $E |u x|^2 = E u^2 x_1^2 + (d - 1) E
    u^2$, and $E (z - r x_1)^2 x_1^2 = s^2 + 3 r^2$ as $E x_1^4 = 3$. Both grow with
    $r$.
    """
    import sympy

    r, s, d = sympy.symbols("r s d", positive=True)
    t = r**2 + s**2
    if order == 0:
        claimed = 2 * t**2 if crossed else 2 * (r**4 + s**4)
        exact = 3 * t**2 - t**2
    else:
        claimed = 4 * ((d + 1 if crossed else d) * r**2 + d * s**2)
        exact = 4 * (s**2 + 3 * r**2 + (d - 1) * t) - (2 * r) ** 2
    slope = sympy.Poly(sympy.expand(sympy.diff(exact, r)), r, s, d)
    return [
        identity("the variance at distance $r$", exact - claimed),
        exactly("grows with $r$: no negative coefficient in its derivative",
                all(one >= 0 for one in slope.coeffs())),
    ]  # fmt: skip


def prove_unbounded(*, order: int, radius: str = "") -> list[Step]:
    r"""No constant $c > 0$ bounds $\operatorname{Var} f$, or $E |\nabla f - \nabla
    F|^2$, at every $\theta$.

    At $r^2 = c$ they are $2 (c + s^2)^2$ and $4 ((d + 1) c + d s^2)$ (`prove_squared`).
    The second exceeds $c$; for the first take $r^2 = c + 1$: $2 (c + 1 + s^2)^2 > c$.
    In a ball of a `radius` that is given $r$ is not free: at $c$ of the largest
    variance in it, and less so beyond, $r^2$ is more than the radius' square, here for
    $d = 1$ and $s = 0$.
    """
    import sympy

    c, s, d = sympy.symbols("c s d", positive=True)
    if order == 0:
        rest = 2 * (c + 1 + s**2) ** 2 - c
    else:
        rest = 4 * ((d + 1) * c + d * s**2) - c
    coefficients = sympy.Poly(sympy.expand(rest), c, s, d).coeffs()
    admitted = True
    if radius:
        square = Fraction(radius) ** 2
        largest = 8 * square if order else 2 * square**2
        admitted = largest + (0 if order else 1) <= square
    return [
        exactly("the variance less $c$ is a sum of positive terms",
                all(one > 0 for one in coefficients)),
        exactly("that $r$ is admitted for every $c$", admitted,
                radius or r"$\theta \in \mathbb{R}^d$"),
    ]  # fmt: skip


def check_squared(preset: Preset, *, order: int, crossed: bool = True) -> Verdict:
    """The formulas at |e| = 0, 1 and 3: raw samples within 5 %. Unless `crossed`
    without the cross term of eta^2, 2 (|e|^4 + sigma^4), or with d in place of d + 1 in
    v^2."""
    radii = np.array(_SQUARED_RADII)
    claim = np.array([squared_loss_variances(radius)[order] for radius in radii])
    if not crossed and order == 0:
        claim = 2 * (radii**4 + _SQUARED_NOISE**4)
    elif not crossed:
        claim = 4 * _SQUARED_FEATURES * (radii**2 + _SQUARED_NOISE**2)
    values = _squared_batches(preset, order)
    spread = [_squared_deviation(radius)[order] for radius in radii]
    each = _batch(preset)[1]
    return mean_within(
        f"{_VARIANCES[order]}.squared.corrected",
        values,
        (0.95 * claim, 1.05 * claim),
        deviation=np.array(spread) / math.sqrt(each),
        coordinates={"distance": radii, "noise": _SQUARED_NOISE},
        detail=f"$|e| = 0$, 1, 3, $d = {_SQUARED_FEATURES}$: measured over claimed "
        f"{listed(np.mean(values, axis=1) / claim, '.3f')}",
    )


def _batch(preset: Preset) -> tuple[int, int]:
    """Batches, and samples in each."""
    return preset.choose(quick=(100, 8000), full=(400, 40_000))


def _squared_deviation(radius: float) -> tuple[float, float]:
    """Standard deviations of one squared deviation of the loss and of the gradient.

    With t = r^2 + s^2 the loss has (u^2 - t)^2, u^2 = t chi2_1: E of its square is 60
    t^4, so the variance is 56 t^4. The gradient's is |2 u x + 2 r e_1|^2, a polynomial
    of degree 4 in two normals, with the other features in it by a chi2_(d-1): its
    square has degree 8, for which 8 nodes of Gauss and Hermite are exact.
    """
    t, rest = radius**2 + _SQUARED_NOISE**2, _SQUARED_FEATURES - 1
    nodes, weights = np.polynomial.hermite_e.hermegauss(8)
    first, noise = (part.ravel() for part in np.meshgrid(nodes, nodes))
    weight = np.outer(weights, weights).ravel() / (2 * np.pi)
    residual = _SQUARED_NOISE * noise - radius * first
    own = 4 * (residual * first + radius) ** 2
    other = 4 * residual**2  # times chi2_(d-1)
    mean = float(weight @ (own + rest * other))
    square = weight @ (own**2 + 2 * rest * own * other + rest * (rest + 2) * other**2)
    return math.sqrt(56) * t**2, math.sqrt(float(square) - mean**2)


@functools.lru_cache(maxsize=2)
def _squared_batches(preset: Preset, order: int) -> Float[np.ndarray, "radii batches"]:
    """Squared deviations of single losses or gradients, averaged in batches."""
    generator = preset.generator("ifca.squared", order)
    batches, each = _batch(preset)
    rows = np.empty((len(_SQUARED_RADII), batches))
    for place, batch in np.ndindex(rows.shape):
        radius = _SQUARED_RADII[place]
        inputs = generator.standard_normal((each, _SQUARED_FEATURES))
        noise = _SQUARED_NOISE * generator.standard_normal(each)
        residual = noise - radius * inputs[:, 0]
        if order == 0:
            squares = (residual**2 - radius**2 - _SQUARED_NOISE**2) ** 2
        else:
            gradient = -2 * residual[:, None] * inputs
            gradient[:, 0] -= 2 * radius
            squares = np.sum(gradient**2, axis=-1)
        rows[place, batch] = np.mean(squares)
    return rows


_QUADRATIC = "$f$ is the cosine family: quadratic plus random waves plus an offset"
_LINEAR = r"the linear model of Section 5.1, squared loss, $d = 3$, $\sigma = 0.7$"


def _squared_rows(
    order: int, text: str, correction: str, false: str
) -> tuple[Statement, ...]:
    """Assumption 4 or 5 for the squared loss: over R^d, and on a ball."""
    squared = f"{_VARIANCES[order]}.squared"
    place = f"Section 5.2, first paragraph, and Assumption {4 + order}"
    growth = (r"\operatorname{Var} f", r"E |\nabla f - \nabla F^j|^2")[order]
    return (
        row(
            id=squared,
            place=place,
            text=f"Section 5.2 contains Section 5.1: {text}, for the squared loss",
            preconditions=(_LINEAR,),
            expected=Status.VIOLATED,
            fault="reading",
            other_reading=f"{squared}.corrected",
            check=functools.partial(check_unbounded, order=order),
            control={"radius": 3.0},
            proof=functools.partial(prove_unbounded, order=order),
            proof_control={"radius": "3"},
            note=rf"${growth}$ grows without bound over $\mathbb{{R}}^d$, as $\Theta$ "
            "is chosen: Theorem 2 does not contain Theorem 1. Read on a ball with all "
            "models in it, which is all the proofs use, it is true. The controls stay "
            "in a ball of radius 3.",
        ),
        row(
            id=f"{squared}.corrected",
            place=place,
            text=correction,
            preconditions=(
                _LINEAR,
                r"$\theta$ in the ball $|\theta - \theta_j^*| \le "
                "R$",
            ),
            check=functools.partial(check_squared, order=order),
            control={"crossed": False},
            proof=functools.partial(prove_squared, order=order),
            proof_control={"crossed": False},
            note="Attained on the surface of the ball. $R = 3$ holds all models if "
            r"$\max |\theta_j^*| \le 1$, and the proofs use no others. The controls "
            f"{false}.",
        ),
    )


STATEMENTS = (
    row(
        id="ifca.asm3",
        place="Assumption 3",
        text=r"$F^j$ is $\lambda$-strongly convex and $L$-smooth for every $j$",
        preconditions=(_QUADRATIC,),
        check=check_curvature,
        control={"factor": 1.01},
        proof=prove_curvature,
        proof_control={"factor": "1.01"},
        note=r"An assumption: checked is that $\lambda$ and $L$ of the family are "
        r"what they are said to be. The controls claim $1.01 \lambda$ and $L / 1.01$.",
        margins=_family_margins,
    ),
    *(
        row(
            id=name,
            place=f"Assumption {name[-1]}",
            text=rf"{text} for every $\theta$ and $j$",
            preconditions=(_QUADRATIC,),
            check=functools.partial(check_variance, order=order),
            control={"factor": 0.96},
            proof=functools.partial(prove_variance, order=order),
            proof_control={"factor": "0.96"},
            note="An assumption: checked is that a family of losses exists that "
            r"meets it at every $\theta$, with equality. The controls claim 0.96 of "
            "it.",
            margins=_family_margins,
        )
        for order, name, text in (
            (0, _VARIANCES[0], r"$\operatorname{Var} f(\theta; z) \le \eta^2$"),
            (
                1,
                _VARIANCES[1],
                r"$E |\nabla f(\theta; z) - \nabla F^j(\theta)|^2 \le "
                "v^2$",
            ),
        )
    ),
    *_squared_rows(
        0,
        r"$\operatorname{Var} f(\theta; z) \le \eta^2$ for every $\theta$",
        r"$\operatorname{Var} f \le \eta^2 = 2 (R^2 + \sigma^2)^2$ in a ball of "
        "radius $R$",
        r"drop the cross term, $2 (R^4 + \sigma^4)$",
    ),
    *_squared_rows(
        1,
        r"$E |\nabla f - \nabla F^j|^2 \le v^2$ for every $\theta$",
        r"$E |\nabla f - \nabla F^j|^2 \le v^2 = 4 ((d + 1) R^2 + d \sigma^2)$ in "
        "such a ball",
        "have $d$ in place of $d + 1$",
    ),
)
