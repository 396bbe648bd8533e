"""Lemmas 11, 12, 18 and 19: the clipped points of other clusters, and bad ones.

Lemmas 11 and 12 are about gradients, 18 and 19 say the same of momenta. A point z_j
outside of the ball is replaced by the centre v, y_j = z_j 1{in} + v 1{out}; m is the
cluster's mean, c^2 = E |v - m|^2.
"""

import itertools
import math
from functools import partial

import numpy as np
from jaxtyping import Float

from cfljax.statements import (
    Constant,
    Evaluation,
    Grade,
    Margin,
    Preset,
    Status,
    Verdict,
    combine,
    exact,
    never_exceeds,
)
from theory.glossary import parameter
from theory.rows import columns, listed, row
from theory.werner.common.claims import DECLARED, exactly, one_constant, reached
from theory.werner.common.laws import Discrete
from theory.werner.theorem1_points import prove_bad

_ROUNDING = 1e-12  # relative to the bound; some hundred terms, none larger than it

_CAPTURED = Evaluation(
    quantity=r"$E_{j\nsim i} |y_j - \nabla F_i|^2$, $v = \nabla F_i$, no noise to "
    "speak of",
    parameters=(
        parameter("share", 0.01),
        parameter("separation", 0.1, open=True),
        parameter(
            "distance",
            1.0,
            r"distance of a model from its truth, $|\nabla F_i|$ for $F_i = |x - "
            "x_i^*|^2/2$",
        ),
    ),
    bound=lambda share, separation, distance, C1: C1 * share * distance**2,
    truth=lambda share, separation, distance: exact(4 * distance**2 + separation**2),
    margins=lambda share, separation, distance: (
        Margin(
            r"the ball holds the strangers: $8 |\nabla F_i|^2 \ge 4 |\nabla F_i|^2 + "
            r"\Delta^2$",
            8 * distance**2,
            4 * distance**2 + separation**2,
        ),
    ),
    constants={
        "C1": Constant(DECLARED, math.inf, math.inf, r"none holds for all $\delta_i$")
    },
    note=r"exact for strangers with gradient $-\nabla F_i + \Delta e$, $C A^4 = 8$, "
    "$D = 0$",
)

_STRANGER = Evaluation(
    quantity=r"$E|y_j - m|^2$ given $v$, $\tau^2 = c^2 + \delta_i \rho \Delta$",
    parameters=(
        parameter("share", 0.5),
        parameter("separation", 48.0, open=True),
        parameter("noise", 1.0, open=True),
        parameter("distance", 0.0, "distance of the centre from its truth, $|v - m|$"),
    ),
    bound=lambda share, separation, noise, distance, c1: (
        (1 + share / 2) * distance**2 + c1 * noise**3 / separation
    ),
    truth=lambda share, separation, noise, distance: exact(
        noise**2
        * worst_stranger(
            distance / noise,
            math.sqrt((distance / noise) ** 2 + share * separation / noise),
            separation / noise,
        )
    ),
    margins=lambda share, separation, noise, distance: (
        Margin(r"$\Delta \ge 24 \rho/\delta_i$", separation, 24 * noise / share),
        Margin(r"$\delta_i \le 1/2$", share, 0.5, at_least=False),
        Margin(r"$c \le \rho$", distance, noise, at_least=False),
    ),
    constants={"c1": Constant(0.63, 0.62, 0.63, "on the grid of werner.lem18")},
    note="$C = 1$; exact for two atoms, the one in the ball at the worst of 400 places",
)

_BAD_POINTS = Evaluation(
    quantity="$E|y_B - m|^2$, all bad points on the edge of the ball beyond $v$",
    parameters=(
        parameter(
            "radius",
            10.0,
            r"clipping radius, $C = \tau^2/(c^2 + \text{the "
            "rest})$",
        ),
        parameter("distance", 1.0, "distance of the centre from its truth, $|v - m|$"),
    ),
    bound=lambda radius, distance: 2 * radius**2 + 2 * distance**2,
    truth=lambda radius, distance: exact((radius + distance) ** 2),
    note=r"$(2 C + 2) c^2 + 2 C$ times the rest is $2 \tau^2 + 2 c^2$",
)

_SHARES = (1 / 2, 1 / 10, 1 / 100, 1 / 1000)
_GRADIENT, _DISTANCE, _SMALL = 1.0, 0.1, 1e-8  # |grad F|, Delta, rho


def two_atoms(
    place: Float[np.ndarray, " places"], mean: float
) -> tuple[Float[np.ndarray, " places"], Float[np.ndarray, " places"]]:
    """The law of variance 1 with most mass at `place` and beyond, given its mean, which
    is above: the other atom, and the first one's chance, 1/(1 + (mean - place)^2)."""
    gap = mean - place
    return mean + 1 / gap, 1 / (1 + gap**2)


def worst_stranger(start: float, radius: float, distance: float) -> float:
    """Largest E (y - m)^2, with m = 0, of a stranger's point with rho = 1 and its mean
    at `distance` on the side of v = `start` >= 0, over 400 places of its atom."""
    edge = start + radius
    if edge >= distance:
        return edge**2
    place = np.linspace(start, edge, 400)
    other, caught = two_atoms(place, distance)
    atoms = np.stack([place, other])
    kept = np.where(np.abs(atoms - start) <= radius * (1 + 1e-15), atoms, start)
    return float(np.max(caught * kept[0] ** 2 + (1 - caught) * kept[1] ** 2))


def check_captured(_: Preset, name: str, *, printed: bool = True) -> Verdict:
    """One round with v = grad F and strangers at -grad F + Delta e_2, of which C (delta
    |grad F|^2 + rho^3/Delta) should be a bound, with c = 0 and D = 0; or |grad f_j -
    grad F|^2 itself unless `printed`."""
    centre, stranger = np.array([_GRADIENT, 0.0]), np.array([-_GRADIENT, _DISTANCE])
    levels, families = 1 / np.array(_SHARES), []
    for factor in (1.0, 8.0, 24.0):  # C of the radius
        ratios = []
        for share in _SHARES:
            # C A^4 = 8: the ball around v holds the strangers.
            radius = np.sqrt(8 * _GRADIENT**2 + factor * share * _SMALL * _DISTANCE)
            inside = np.linalg.norm(stranger - centre) <= radius
            left = np.sum(((stranger if inside else centre) - centre) ** 2)
            right = share * _GRADIENT**2 + _SMALL**3 / _DISTANCE
            ratios.append(
                left / (right if printed else np.sum((stranger - centre) ** 2))
            )
        ratio = np.array(ratios)
        families.append(
            exactly(rf"$C = {factor:g}$, $1/\delta$", levels, ratio, share=1 / levels)
        )
    return one_constant(name, families)


def _starts(distance: float) -> list[Discrete]:
    """Laws of v - m with c^2 <= rho^2 = 1, fixed or seldom far."""
    found = [Discrete(np.array([size]), np.ones(1)) for size in (0.0, 0.1, 0.5, 1.0)]
    for far, square in itertools.product((0.3, 0.7, 1.0), (0.01, 1.0)):
        chance = square / (far * distance) ** 2
        if chance < 1:
            places, chances = [0, far * distance], [1 - chance, chance]
            found.append(Discrete(np.array(places), np.array(chances)))
    return found


def check_strangers(
    preset: Preset,
    name: str,
    *,
    steepness: tuple[float, ...] = (0.0,),
    constants: tuple[float, float] = (0.63, 0.74),
) -> Verdict:
    """E|y - m|^2 <= (1 + delta/2) c^2 + C (c1 rho^3/Delta + c2 (rho/Delta) D^2 G), for
    values of D^2 G/Delta^2, the `steepness`, and (c1, c2)."""
    values, bounds, told = [], [], []
    used: dict[bool, list[float]] = {True: [0.0], False: [0.0]}
    for share, margin, factor, lost in itertools.product(
        preset.choose(quick=(0.5, 0.1, 0.01), full=(0.5, 0.25, 0.1, 0.01, 1e-3)),
        preset.choose(quick=(24.0, 100.0), full=(24.0, 50.0, 100.0, 1e3, 1e4)),
        (1.0, 4.0, 24.0),
        steepness,
    ):
        separation = margin * factor / share
        # Assumption 5 at this x; nothing is left of it where D^2 G >= Delta^2.
        distance = separation * np.sqrt(max(0.0, 1 - lost))
        for law in _starts(separation):
            square = float(np.sum(law.chances * law.values**2))
            radius = np.sqrt(factor * (square + share * separation))
            each = [worst_stranger(one, radius, distance) for one in law.values]
            values.append(np.sum(law.chances * np.array(each)))
            kept = (1 + share / 2) * square
            first, second = (
                factor * constants[0] / separation,
                factor * lost * separation,
            )
            bounds.append(kept + first + constants[1] * second)
            start = np.sqrt(square), np.max(law.values)
            told.append((share, separation, factor, lost, *start))
            excess = float(values[-1] - kept)
            known = (excess - first) / second if lost else excess / first
            used[lost > 0].append(known)
    left, right = np.array(values), np.array(bounds)
    below = never_exceeds(
        name,
        left,
        right,
        rounding=_ROUNDING * right,
        grade=Grade.SEARCHED,
        coordinates=columns(
            "share separation constant steepness distance farthest", told
        ),
    )
    most = [max(used[False])]
    if any(steepness):
        most.append(max(used[True]) / constants[1])
    near = reached(name, most, [0.984, 0.988][: len(most)])
    return combine(
        name,
        [below, near],
        detail=f"{len(left)} rounds against the worst strangers: beyond $(1 + "
        rf"\delta/2) c^2$ at most {listed(most, '.4f')} of what is allowed by either "
        "term",
    )


def _margins_strangers() -> tuple[Margin, ...]:
    """Of the counterexample, with A^4 = 8/C."""
    apart = float(np.hypot(2 * _GRADIENT, _DISTANCE))
    return (
        Margin(
            r"Theorem 3: $\Delta \ge 24 \max(1, A^4) \max(1, D^2) \rho/\delta_i$",
            _DISTANCE,
            24 * 8 * _SMALL / min(_SHARES),
        ),
        Margin(
            r"Assumption 5: $|\nabla f_i - \nabla f_j| \ge \Delta$", apart, _DISTANCE
        ),
        Margin(r"$c^2 = 0 \le \rho^2$", 0.0, _SMALL**2, at_least=False),
    )


_STRANGERS = (
    row(
        id="werner.lem11",
        place="Lemma 11",
        text=r"$E_{j\nsim i} |y_j - \nabla F_i|^2 \le C_1 ((1 + \delta_i/2) c^2 + "
        r"\delta_i E|\nabla F_i|^2 + (\rho/\Delta) D^2 E|\nabla f_i|^2 + "
        r"\rho^3/\Delta)$",
        preconditions=(
            r"$F_i$ the mean of $f_j$ over $j \sim i$",
            "Assumptions 4 and 5 at $x$, with $A^4 = 8/C$ and $D = 0$",
            r"$\tau^2 = C (c^2 + A^4 |\nabla F_i|^2 + \delta_i \rho \Delta)$, $C = "
            "1$, 8, 24",
        ),
        constants={"C1": DECLARED, "C_Delta": 24.0},
        claimed="constants unnamed",
        expected=Status.VIOLATED,
        fault="printed",
        check=check_captured,
        control={"printed": False},
        evaluation=_CAPTURED,
        margins=_margins_strangers,
        note="A steep $f_i$ makes the ball so large that it holds the strangers. The "
        "proof takes Markov's inequality of a mean over $t$, and the product of two "
        "means over $t$ for the mean of products that grow together. The control has "
        r"$4 |\nabla F_i|^2$, which is attained.",
    ),
    row(
        id="werner.lem11.corrected",
        place="Lemma 11",
        text=r"if $A = 0$, at each $t$, $E_{j\nsim i} |y_j - \nabla F_i|^2 \le (1 + "
        r"\delta_i/2) c^2 + C (c_1 \rho^3/\Delta + c_2 (\rho/\Delta) D^2 |\nabla "
        "f_i|^2)$",
        preconditions=(
            r"$F_i$ the mean of $f_j$ over $j \sim i$",
            "Assumption 5 at $x$",
            r"$\tau^2 = C (c^2 + \delta_i \rho \Delta)$, $1 \le C \le 24$",
            r"$c \le \rho$, $\Delta \ge C_\Delta C \rho/\delta_i$, $\delta_i \le 1/2$",
        ),
        constants={"C_Delta": 24.0, "c1": 0.63, "c2": 0.74},
        check=partial(
            check_strangers, steepness=(0.0, 0.01, 0.3, 0.9, 0.99, 1.0, 10.0)
        ),
        control={"constants": (0.63, 0.71)},
        evaluation=_STRANGER,
        note=r"Also where $D |\nabla f_i| \ge \Delta$, and nothing is known of the "
        "strangers. The control has $c_2 = 0.71$.",
    ),
    row(
        id="werner.lem18",
        place="Lemma 18",
        text=r"at each $t$, $E_{j\nsim i} |y_j - \mu_i|^2 \le (1 + \delta_i/2) c^2 + C "
        r"c_1 \rho^3/\Delta$",
        preconditions=(
            r"$\mu_i = E_x$ of the mean momentum in the cluster of $i$",
            "Assumption 9",
            r"$\tau^2 = C (c^2 + \delta_i \rho \Delta)$, $1 \le C \le 24$",
            r"$c \le \rho$, $\Delta \ge C_\Delta C \rho/\delta_i$, $\delta_i \le 1/2$",
        ),
        constants={"C_Delta": 24.0, "c1": 0.63},
        claimed="constants unnamed",
        check=check_strangers,
        control={"constants": (0.6, 0.74)},
        evaluation=_STRANGER,
        note=r"Without $c \le \rho$ at each $t$ the proof's product of two means over "
        "$t$ is no bound of the mean of the products. The control has $c_1 = 0.6$.",
    ),
)


def _clipped(
    points: Float[np.ndarray, "points features"],
    centre: Float[np.ndarray, " features"],
    radius: float,
) -> Float[np.ndarray, "points features"]:
    """y: the points in the ball, and the centre for those outside or not finite."""
    finite = np.all(np.isfinite(points), axis=1)
    apart = np.where(finite[:, None], points, 0) - centre[None]
    # On the edge is inside; placing a point there rounds.
    inside = finite & (np.linalg.norm(apart, axis=1) <= radius * (1 + 1e-14))
    return np.where(inside[:, None], apart, 0) + centre[None]


def _attacks(
    generator: np.random.Generator,
    centre: Float[np.ndarray, " features"],
    radius: float,
) -> dict[str, Float[np.ndarray, "points features"]]:
    """Sets of bad points that know the centre, the radius and the mean, which is 0."""
    length = np.linalg.norm(centre)
    away = centre / length if length > 0 else np.eye(1, len(centre))[0]
    random = generator.standard_normal((5, len(centre)))
    random /= np.linalg.norm(random, axis=1)[:, None]
    scattered = radius * generator.uniform(0, 1.5, (5, 1)) * random
    return {
        "edge, beyond v": (centre + radius * away)[None],
        "edge, before v": (centre - radius * away)[None],
        "edge, anywhere": centre[None] + radius * random,
        "scattered": centre[None] + scattered,
        "just outside": (centre + 1.001 * radius * away)[None],
        "opposite": -5 * centre[None] - random,
        "undefined": np.outer([np.nan, np.inf], np.ones(len(centre))),
    }


def check_bad(
    preset: Preset, name: str, *, spreads: tuple[float, ...], factor: float = 2.0
) -> Verdict:
    """E |mean of y - m|^2 <= (F + F C) c^2 + F C (A^4 G + delta rho Delta), F =
    `factor`, for values of A^4 G, the `spreads`, in units of rho; only 0 for
    momenta."""
    generator = preset.generator(name)
    repeats = preset.choose(quick=2, full=50)
    values, bounds, told = [], [], []
    for constant, share, margin, square, far in itertools.product(
        (1.0, 4.0, 24.0), (0.5, 1 / 16), (2.0, 128.0), spreads, (0.0, 1.0, 1e3)
    ):
        # Two centres, as likely, at m + far and at m - far/2.
        centres = far * np.array([[1.0, 0, 0], [0, -0.5, 0]])
        distance = float(np.mean(np.sum(centres**2, axis=1)))
        edge = square + share * (margin / share)
        radius = float(np.sqrt(constant * (distance + edge)))
        for draw in range(repeats):
            sets = [_attacks(generator, one, radius) for one in centres]
            each = [
                [
                    np.sum(np.mean(_clipped(bad, one, radius), axis=0) ** 2)
                    for bad in attacks.values()
                ]
                for one, attacks in zip(centres, sets, strict=True)
            ]
            values += list(np.mean(each, axis=0))
            bound = factor * (1 + constant) * distance + factor * constant * edge
            bounds += [bound] * len(each[0])
            where = constant, share, margin / share, square, np.sqrt(distance), draw
            told += [(*where, attack) for attack in sets[0]]
    left, right = np.array(values), np.array(bounds)
    most = float(np.max(left / right))
    detail = f"{len(left)} attacks: left over right at most {most:.4f}"
    below = never_exceeds(
        name,
        left,
        right,
        rounding=_ROUNDING * right,
        grade=Grade.SEARCHED,
        coordinates=columns(
            "constant share separation square distance draw attack", told
        ),
    )
    known = reached(name, [most], [0.974])
    return combine(name, [below, known], detail=detail)


_bad = partial(
    row,
    constants={"$C$, least": 1.0, "$C$, largest": 24.0},
    claimed="constant unnamed",
    control={"factor": 1.94},
    proof=prove_bad,
    proof_control={"twice": 1},
    evaluation=_BAD_POINTS,
    note="For any bad points and each $C$, without further conditions; $c^2$ may "
    "come from a centre that is random. Sharp for $C = 1$ and large $c$. The control "
    "has 0.97 of it.",
)

_BAD = (
    _bad(
        id="werner.lem12",
        place="Lemma 12",
        text=r"$E |y_B - \nabla F_i|^2 \le (2 C + 2) c^2 + 2 C (A^4 E|\nabla F_i|^2 + "
        r"\delta_i \rho \Delta)$",
        preconditions=(
            "$y_B$ the mean of $y_j$ over the bad points",
            r"$F_i$ the mean of $f_j$ over $j \sim i$",
            r"$\tau^2 = C (c^2 + A^4 E|\nabla F_i|^2 + \delta_i \rho \Delta)$",
        ),
        check=partial(check_bad, spreads=(0.0, 1.0, 1e4)),
    ),
    _bad(
        id="werner.lem19",
        place="Lemma 19",
        text=r"$E |y_B - \mu_i|^2 \le (2 C + 2) c^2 + 2 C \delta_i \rho \Delta$",
        preconditions=(
            "$y_B$ the mean of $y_j$ over the bad points",
            r"$\mu_i = E_x$ of the mean momentum in the cluster of $i$",
            r"$\tau^2 = C (c^2 + \delta_i \rho \Delta)$",
        ),
        check=partial(check_bad, spreads=(0.0,)),
    ),
)

STATEMENTS = (*_STRANGERS, *_BAD)
