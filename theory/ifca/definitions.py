"""Definitions 1 and 2: strong convexity and smoothness, and what the proofs draw on.

Checked on F(theta) = sum_i log(1 + exp(<a_i, theta>)) + (lambda / 2) |theta|^2 and on
quadratics along their extreme eigenvectors, where every inequality is an equality.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax.statements import (
    Grade,
    Preset,
    Step,
    Verdict,
    combine,
    identity,
    never_exceeds,
    never_falls_below,
)
from theory.ifca.common.checks import PerPoint, row

CONVEX, SMOOTH = "ifca.def1", "ifca.def2"

_Points = Float[np.ndarray, "points features"]


class _Pairs(NamedTuple):
    """Of pairs theta, theta', all `[points]`: how F and its gradient differ."""

    convexity: PerPoint  # lambda, of each pair's function
    smoothness: PerPoint  # L
    square: PerPoint  # |theta' - theta|^2
    rest: PerPoint  # F(theta') - F(theta) - <grad F(theta), theta' - theta>
    product: PerPoint  # <grad F(theta') - grad F(theta), theta' - theta>
    change: PerPoint  # |grad F(theta') - grad F(theta)|


@functools.lru_cache(maxsize=1)
def _pairs(preset: Preset) -> _Pairs:
    """Half of them of a logistic function, half of a quadratic, of which every other
    pair is apart along an extreme eigenvector."""
    size = preset.choose(quick=4000, full=400_000)
    generator = preset.generator("ifca.definitions")
    inputs = generator.standard_normal((6, 3))
    ridge = 0.3
    top = ridge + float(np.linalg.norm(inputs, 2)) ** 2 / 4  # of either function
    curvatures = np.array([ridge, 1.0, top])
    first = 3 * generator.standard_normal((size, 3))
    apart = generator.standard_normal((size, 3))
    apart[1::8], apart[5::8] = np.eye(3)[0], np.eye(3)[2]
    quadratic = np.arange(size) % 2 == 1

    def loss(at: _Points) -> PerPoint:
        logistic = np.sum(np.logaddexp(0, at @ inputs.T), axis=1)
        logistic = logistic + ridge / 2 * np.sum(at**2, axis=1)
        return np.where(quadratic, np.sum(curvatures * at**2, axis=1) / 2, logistic)

    def gradient(at: _Points) -> _Points:
        chance = 1 / (1 + np.exp(-(at @ inputs.T)))
        return np.where(
            quadratic[:, None], curvatures * at, chance @ inputs + ridge * at
        )

    second = first + apart
    change = gradient(second) - gradient(first)
    return _Pairs(
        convexity=np.full(size, ridge),
        smoothness=np.full(size, curvatures[-1]),
        square=np.sum(apart**2, axis=1),
        rest=loss(second) - loss(first) - np.sum(gradient(first) * apart, axis=1),
        product=np.sum(change * apart, axis=1),
        change=np.linalg.norm(change, axis=1),
    )


def _places(pairs: _Pairs) -> dict[str, PerPoint]:
    """How far theta and theta' are apart, and which draw it is."""
    apart = np.sqrt(pairs.square)
    return {"apart": apart, "draw": np.arange(float(len(apart)))}


def check_convex(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """Definition 1 with `factor` lambda, and <grad F(theta') - grad F(theta), theta' -
    theta> >= lambda |theta' - theta|^2, |grad F(theta') - grad F(theta)| >= lambda
    |theta' - theta|."""
    pairs = _pairs(preset)
    least = factor * pairs.convexity
    judged = functools.partial(
        never_falls_below,
        CONVEX,
        rounding=1e-11,
        grade=Grade.SEARCHED,  # on drawn pairs
        coordinates={"convexity": pairs.convexity, **_places(pairs)},
    )
    return combine(
        CONVEX,
        [
            judged(pairs.rest, least * pairs.square / 2),
            judged(pairs.product, least * pairs.square),
            judged(pairs.change, least * np.sqrt(pairs.square)),
        ],
        parts=["tangent", "product", "change"],
        detail=rf"{len(least)} pairs; $F(\theta')$ above its tangent by "
        rf"${np.min(pairs.rest / pairs.square / pairs.convexity):.4f} \lambda |\theta' "
        r"- \theta|^2$ or more",
    )


def check_smooth(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """Definition 2 with L / `factor`, and F(theta') above its tangent by at most (L/2)
    |theta' - theta|^2."""
    pairs = _pairs(preset)
    most = pairs.smoothness / factor
    judged = functools.partial(
        never_exceeds,
        SMOOTH,
        rounding=1e-11,
        grade=Grade.SEARCHED,  # on drawn pairs
        coordinates={"smoothness": pairs.smoothness, **_places(pairs)},
    )
    return combine(
        SMOOTH,
        [
            judged(pairs.change, most * np.sqrt(pairs.square)),
            judged(pairs.rest, most * pairs.square / 2),
        ],
        parts=["change", "tangent"],
        detail=rf"{len(most)} pairs; $|\nabla F(\theta') - \nabla F(\theta)|$ up to "
        f"${np.max(pairs.change / np.sqrt(pairs.square) / pairs.smoothness):.4f} L "
        r"|\theta' - \theta|$",
    )


def prove_convex(*, factor: str = "1") -> list[Step]:
    r"""Definition 1 implies the two other inequalities, for every $F$, with its
    $\lambda$.

    Write $d = \theta' - \theta$, $g$ and $g'$ for the gradients. Definition 1 at
    $(\theta, \theta')$ and at $(\theta', \theta)$, added: $\langle g' - g, d \rangle
    \ge \lambda |d|^2$, and $|g' - g| |d| \ge \langle g' - g, d \rangle$ (Cauchy,
    Schwarz) gives $|g' - g| \ge \lambda |d|$. Claimed is $\mathtt{factor} \lambda$. For
    $F = (\lambda/2) |\theta|^2$ all are equalities: no factor above 1 will do.
    """
    import sympy

    low, first, second, square, one, two = sympy.symbols(
        "lambda F F1 d2 gd g1d", real=True
    )
    sum_ = (second - first - one - low / 2 * square) + (
        first - second + two - low / 2 * square
    )
    x, d = sympy.symbols("x d", real=True)
    claimed = sympy.Rational(factor) * low
    equal = low / 2 * ((x + d) ** 2 - x**2) - low * x * d - claimed / 2 * d**2
    return [
        identity(r"the two inequalities add up to $\langle g' - g, d \rangle - "
        r"\text{factor} \cdot \lambda |d|^2$",
                 sum_ - (two - one - claimed * square)),
        identity(r"equality for $(\lambda/2) |\theta|^2$", equal),
    ]  # fmt: skip


def prove_smooth(*, factor: str = "1") -> list[Step]:
    r"""Definition 2 implies $F(\theta + d) - F(\theta) - \langle \nabla F(\theta), d
    \rangle \le (L/2) |d|^2$.

    The left side is the integral over $t \in [0, 1]$ of $\langle \nabla F(\theta + t d)
    - \nabla F(\theta), d \rangle$, at most that of $L t |d|^2$. Claimed is
    $L/\mathtt{factor}$. For $F = (L/2) |\theta|^2$ both are equalities: no factor above
    1 will do.
    """
    import sympy

    high, t, square, x, d = sympy.symbols("L t d2 x d", real=True)
    claimed = high / sympy.Rational(factor)
    equal = high / 2 * ((x + d) ** 2 - x**2) - high * x * d - claimed / 2 * d**2
    return [
        identity(r"the integral of $L t |d|^2$ is $L |d|^2/(2 \text{factor})$",
                 sympy.integrate(high * t * square, (t, 0, 1)) - claimed * square / 2),
        identity(r"equality for $(L/2) |\theta|^2$", equal),
    ]  # fmt: skip


STATEMENTS = (
    row(
        id=CONVEX,
        place="Definition 1",
        text=r"$F$ is $\lambda$-strongly convex: $F(\theta') \ge F(\theta) + \langle "
        r"\nabla F(\theta), \theta' - \theta \rangle + (\lambda / 2) |\theta' - "
        r"\theta|^2$; so that its gradients differ by $\lambda |\theta' - \theta|$ or "
        "more, as the proofs use",
        preconditions=("$F$ differentiable",),
        check=check_convex,
        control={"factor": 1.01},
        proof=prove_convex,
        proof_control={"factor": "1.01"},
        note="A definition: proved is what follows from it, checked that functions "
        r"have it with the $\lambda$ they are said to have. The controls claim $1.01 "
        r"\lambda$.",
    ),
    row(
        id=SMOOTH,
        place="Definition 2",
        text=r"$F$ is $L$-smooth: $|\nabla F(\theta) - \nabla F(\theta')| \le L "
        r"|\theta - \theta'|$; so that $F(\theta')$ is above its tangent at $\theta$ "
        r"by $(L / 2) |\theta' - \theta|^2$ at most, as the proofs use",
        preconditions=("$F$ differentiable",),
        check=check_smooth,
        control={"factor": 1.01},
        proof=prove_smooth,
        proof_control={"factor": "1.01"},
        note="A definition: proved is what follows from it, checked that functions "
        "have it with the $L$ they are said to have. The controls claim $L / 1.01$.",
    ),
)
