"""What merging by complete linkage leaves: groups whose models are all near, but maybe
two groups whose averaged models are."""

import itertools
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cfljax.clustering import cut_distances
from cfljax.statements import (
    Grade,
    Preset,
    Step,
    Verdict,
    combine,
    exactly,
    identity,
    never_exceeds,
    never_falls_below,
)
from theory.rows import columns, row

_MODELS = 8
_RANGES = (1.0, 2.0, 4.0)  # of each feature of a model, where delta is 1
_LEAST = Fraction(9, 16)  # distance of two clusters of three models, in delta


def rises(
    models: Float[np.ndarray, "*draws models features"],
) -> Float[np.ndarray, "*draws models models"]:
    """D = max(L_ij - L_ii, L_ji - L_jj) of linear regressions whose features have
    variance 1, each model the truth of its cluster: squared distances."""
    return np.sum((models[..., :, None, :] - models[..., None, :, :]) ** 2, axis=-1)


class Cut(NamedTuple):
    """Models and the groups that are merged.

    span: range of their features, draw: number of the draw.
    models, labels: in single precision, and from 0 on.
    """

    span: float
    draw: int
    models: Float[np.ndarray, "models features"]
    labels: Int[np.ndarray, " models"]


def _cuts(preset: Preset, number: int, linkage: str = "complete") -> list[Cut]:
    """Draws of so many models in a plane over all ranges, and as many on a line."""
    draws = preset.choose(quick=40, full=1000)
    generator = preset.generator("feddrift.merge", number)
    spans = np.repeat(_RANGES, draws)
    models = spans[:, None, None] * generator.random((len(spans), number, 2))
    models[::2, :, 1] = 0.0
    models = models.astype(np.float32)
    labels = merged(models, linkage)
    numbers = [*range(draws)] * len(_RANGES)
    return [*map(Cut, spans.tolist(), numbers, models, labels)]


def merged(
    models: Float[np.ndarray, "draws models features"], linkage: str = "complete"
) -> Int[np.ndarray, "draws models"]:
    """By the library, up to a distance of 1."""
    merge = lambda distances: cut_distances(distances, 1.0, linkage=linkage)
    return np.asarray(jax.vmap(merge)(jnp.asarray(rises(models))))


def _pairs(labels: Int[np.ndarray, " models"]) -> Iterator[tuple[int, int]]:
    """Of groups."""
    return itertools.combinations(range(int(np.max(labels)) + 1), 2)


def check_merged(preset: Preset, name: str, *, linkage: str = "complete") -> Verdict:
    """Any two models of a group are within delta, any two groups have models that are
    not."""
    widest, nearest, places = [], [], []
    for span, draw, models, labels in _cuts(preset, _MODELS, linkage):
        distances = rises(models)  # In single precision, as the library compares them.
        within = distances[labels[:, None] == labels[None, :]]
        between = [
            np.max(distances[np.ix_(labels == left, labels == right)])
            for left, right in _pairs(labels)
        ]
        widest.append(np.max(within))
        nearest.append(min(between, default=np.inf))
        places.append((span, draw))
    judged = {
        "rounding": 1e-12,
        "grade": Grade.SEARCHED,
        "coordinates": columns("range draw", places),
    }
    return combine(
        name,
        [
            never_exceeds(name, np.array(widest, float), 1.0, **judged),
            never_falls_below(name, np.array(nearest, float), 1.0, **judged),
        ],
        detail=f"{len(places)} draws of {_MODELS} models; the widest cluster has "
        rf"${np.max(widest):.4f} \delta$, the nearest two ${np.min(nearest):.4f} "
        r"\delta$",
    )


def prove_merged(*, linkage: str = "complete") -> list[Step]:
    r"""By induction over the merges, for any number of models. What is kept as the
    distance of two groups is the largest of their models': so it is of single models,
    and that of a union from a third group is (1) the larger of its parts' two. A merge
    is made where this is at most $\delta$; then models of the union are within
    $\delta$, those of one part by assumption, those of both as none is further from
    another. The merges end where no two groups are kept at $\delta$ or less: then some
    of their models are further. (2) The library's kernel does so for four models
    whatever the order of their distances and $\delta$, where some are equal, too."""
    import sympy

    least = sympy.Symbol("a", nonnegative=True)
    more = sympy.Symbol("s", nonnegative=True)
    half = sympy.Rational(1, 2) * (1 if linkage == "complete" else -1)
    union = lambda one, two: (one + two) / 2 + half * sympy.Abs(one - two)
    values, pairs = range(6), [*itertools.combinations(range(4), 2)]
    cases = np.array([*itertools.product(values, repeat=len(pairs))], np.float32)
    distances = np.zeros((len(cases), 4, 4), np.float32)
    for place, (i, j) in enumerate(pairs):
        distances[:, i, j] = distances[:, j, i] = cases[:, place]
    merge = lambda distances, height: cut_distances(distances, height, linkage=linkage)
    every = jax.vmap(jax.vmap(merge, in_axes=(0, None)), in_axes=(None, 0))
    wrong, heights = 0, np.arange(0, max(values) + 1, 0.5)
    found = np.asarray(every(jnp.asarray(distances), jnp.asarray(heights)))
    for height, labels in zip(heights.tolist(), found, strict=True):
        same = labels[:, :, None] == labels[:, None, :]
        of_group = np.max(np.where(same[..., None], distances[:, None], 0), axis=2)
        largest = np.max(np.where(same[:, None], of_group[:, :, None], 0), axis=3)
        wrong += int(np.sum(np.any((largest <= height) & ~same, axis=(1, 2))))
        wrong += int(np.sum(np.any((largest > height) & same, axis=(1, 2))))
    asked = len(cases) * len(heights)
    return [
        identity(
            r"(1) $\frac{a + b}{2} + \frac{|a - b|}{2}$, by Lance and Williams, is $b$ "
            "at $b = a + s$, and as well if $a$ and $b$ change places",
            union(least, least + more) - (least + more),
        ),
        exactly(
            f"(2) {asked} cases: six distances in 0, ..., {max(values)}, $\\delta$ in "
            f"0, 0.5, ..., {max(heights)}",
            wrong == 0,
            f"the library's kernel is wrong in {wrong}",
        ),
    ]


def check_settled(preset: Preset, name: str, *, least: Fraction = _LEAST) -> Verdict:
    """Of three models that become two clusters the averaged one is more than `least`
    delta from the third, and hardly more for two models and one that is beside."""
    nearest, places = [], []
    for span, draw, models, labels in _cuts(preset, 3):
        if np.max(labels) == 1:
            nearest.append(_averaged(models, labels))
            places.append((span, draw))
    drawn = never_falls_below(
        name,
        np.array(nearest),
        float(least),
        rounding=1e-5,
        grade=Grade.SEARCHED,
        coordinates=columns("range draw", places),
    )
    edge = np.array([[[0.0], [0.5001], [1.0001]]], np.float32)
    found = _averaged(edge[0], merged(edge)[0])
    reached = never_falls_below(
        name,
        np.array([found]),
        float(least),
        rounding=1e-5,
        grade=Grade.SEARCHED,
        coordinates={"range": 1.0, "draw": -1},
    )
    within = np.sum(np.array(nearest) < 1)
    return combine(
        name,
        [drawn, reached],
        parts=["drawn", "in a row"],
        detail=f"{within} of {len(nearest)} draws leave two clusters within $\\delta$, "
        rf"down to ${np.min(nearest):.3f} \delta$; in a row ${found:.5f} \delta$",
    )


def _averaged(
    models: Float[np.ndarray, "models features"], labels: Int[np.ndarray, " models"]
) -> float:
    """D of two clusters' averaged models: on a cluster's samples its mean loses least,
    and another one more by the squared distance, as each model stands for as many."""
    means = [np.mean(models[labels == one], axis=0, dtype=float) for one in (0, 1)]
    return float(np.sum((means[0] - means[1]) ** 2))


def prove_settled(*, least: Fraction = _LEAST) -> list[Step]:
    r"""With $u \le v$ the distances of the third model from the two that are merged,
    $w$ theirs: $w \le u$, as they were merged first, and $v^2 > \delta$, as the third
    was not merged. (1) The mean is at the square of the distance $(u^2 + v^2)/2 -
    w^2/4$, (2) at least $u^2/4 + v^2/2$ as $w \le u$, and $u \ge v/2$ as $v \le u +
    w \le 2 u$: (3) at least $\frac{9}{16} v^2$. In a row, $u = w = v/2$, all are
    equalities."""
    import sympy

    near, far, own, other, third = sympy.symbols("u v w b c", real=True)
    slack = sympy.Symbol("s", nonnegative=True)
    median = (near**2 + far**2) / 2 - own**2 / 4
    mean = (own + other) / 2  # on each axis, of models w and b
    axis = (own - third) ** 2 / 2 + (other - third) ** 2 / 2 - (own - other) ** 2 / 4
    return [
        identity(
            r"(1) $(\frac{w + b}{2} - c)^2 = \frac{(w - c)^2 + (b - c)^2}{2} - "
            r"\frac{(w - b)^2}{4}$ on every axis",
            (mean - third) ** 2 - axis,
        ),
        identity(
            "(2) $(u^2 + v^2)/2 - w^2/4$, which falls with $w$, is $u^2/4 + v^2/2$ at "
            "$w = u$",
            median.subs(own, near) - near**2 / 4 - far**2 / 2,
        ),
        identity(
            r"(3) $u^2/4 + v^2/2 = \frac{9}{16} v^2 + s v/4 + s^2/4$ at $u = v/2 + s$",
            (far / 2 + slack) ** 2 / 4
            + far**2 / 2
            - sympy.Rational(least) * far**2
            - slack * far / 4
            - slack**2 / 4,
        ),
    ]


_PLACE = "Released code, `SoftClusterState.cluster_hierarchical`"

STATEMENTS = (
    row(
        id="feddrift.merge",
        place=_PLACE,
        text=r"after the merges any two models of a cluster have $D_{ij} = \max(L_{ij} "
        r"- L_{ii}, L_{ji} - L_{jj}, 0) \le \delta$, and any two clusters have models "
        r"with $D_{ij} > \delta$",
        preconditions=(r"complete linkage, up to the distance $\delta$",),
        check=check_merged,
        control={"linkage": "single"},
        proof=prove_merged,
        proof_control={"linkage": "single"},
        note="So no merge joins concepts that cost each other more than "
        r"$\delta$, however many are between them. The rule is proved for any number "
        "of models, the library's kernel for all of four and in draws of eight. The "
        "controls merge by single linkage, which chains.",
    ),
    row(
        id="feddrift.settled",
        place="not in the paper: averaged models",
        text=r"clusters that remain may be within $\delta$ by their averaged models: "
        r"of three models, two of which are merged, $D > \frac{9}{16} \delta$, and no "
        "constant is larger",
        preconditions=(
            r"complete linkage, up to the distance $\delta$",
            r"linear regressions, squared error, inputs of covariance $I$, as many "
            "samples of each model",
        ),
        constants={"C": float(_LEAST)},
        check=check_settled,
        control={"least": Fraction(57, 100)},
        proof=prove_settled,
        proof_control={"least": Fraction(57, 100)},
        note=r"Models in a row, 0, 0.5 and 1 and $\delta$ just below 1, leave 0 and "
        "the mean 0.75. So one merge at a time step does not end with clusters that "
        "are apart: the next one goes on with them. The controls have 0.57.",
    ),
)
