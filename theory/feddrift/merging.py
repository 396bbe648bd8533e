"""What merging by complete linkage leaves: groups whose models are all near, but maybe
two groups whose averaged models are."""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cfljax.clustering import cut_distances
from cfljax.statements import (
    Grade,
    Preset,
    Status,
    Verdict,
    combine,
    never_exceeds,
    never_falls_below,
)
from theory.rows import columns, row

_MODELS = 8
_RANGES = (1.0, 2.0, 4.0)  # of models on a line, where delta is 1


def rises(
    models: Float[np.ndarray, "*draws models"],
) -> Float[np.ndarray, "*draws models models"]:
    """D = max(L_ij - L_ii, L_ji - L_jj) of linear regressions with one feature of
    variance 1, each model the truth of its cluster: the squared distance."""
    return (models[..., :, None] - models[..., None, :]) ** 2


class Cut(NamedTuple):
    """Models on a line and the groups that are merged.

    span: range of the models, draw: number of the draw.
    models, labels: in single precision, and from 0 on.
    """

    span: float
    draw: int
    models: Float[np.ndarray, " models"]
    labels: Int[np.ndarray, " models"]


def _cuts(preset: Preset, linkage: str, *, apart: bool = False) -> list[Cut]:
    """Models over all ranges; in two bunches if `apart`."""
    draws = preset.choose(quick=40, full=1000)
    generator = preset.generator("feddrift.merge")
    spans = np.repeat(_RANGES, draws)
    models = spans[:, None] * generator.random((len(spans), _MODELS))
    if apart:
        models = 0.1 * models + 10 * (np.arange(_MODELS) % 2)
    models = models.astype(np.float32)
    merge = lambda distances: cut_distances(distances, 1.0, linkage=linkage)
    labels = np.asarray(jax.vmap(merge)(jnp.asarray(rises(models))))
    numbers = [*range(draws)] * len(_RANGES)
    return [*map(Cut, spans.tolist(), numbers, models, labels)]


def _pairs(labels: Int[np.ndarray, " models"]) -> Iterator[tuple[int, int]]:
    """Of groups."""
    return itertools.combinations(range(int(np.max(labels)) + 1), 2)


def check_merged(preset: Preset, name: str, *, linkage: str = "complete") -> Verdict:
    """Any two models of a group are within delta, any two groups have models that are
    not."""
    widest, nearest, places = [], [], []
    for span, draw, models, labels in _cuts(preset, linkage):
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


def check_settled(preset: Preset, name: str, *, apart: bool = False) -> Verdict:
    """Any two groups, judged anew by their averaged models, are more than delta apart;
    of models that come in two bunches far from each other if `apart`."""
    nearest, places = [], []
    for span, draw, models, labels in _cuts(preset, "complete", apart=apart):
        # On a cluster's samples its mean model loses least, and another one more by the
        # squared distance, as each model stands for as many of them.
        means = [np.mean(models[labels == one]) for one in range(np.max(labels) + 1)]
        distances = [
            (means[left] - means[right]) ** 2 for left, right in _pairs(labels)
        ]
        nearest.append(min(distances, default=np.inf))
        places.append((span, draw))
    several = np.isfinite(nearest)
    below = np.sum(np.array(nearest) < 1)
    return never_falls_below(
        name,
        np.array(nearest, float),
        1.0,
        rounding=1e-5,
        grade=Grade.SEARCHED,
        coordinates=columns("range draw", places),
        detail=f"{below} of {np.sum(several)} draws with several clusters leave two "
        rf"within $\delta$, down to ${np.min(nearest):.3f} \delta$",
    )


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
        note="So no merge joins concepts that cost each other more than "
        r"$\delta$, however many are between them; by the library's kernel. The "
        "control merges by single linkage, which chains.",
    ),
    row(
        id="feddrift.settled",
        place="not in the paper: merged models",
        text=r"after the merges no two clusters are within $\delta$ of each other by "
        "their averaged models",
        preconditions=(
            r"complete linkage, up to the distance $\delta$",
            "linear regressions of one feature, as many clients of each model",
        ),
        expected=Status.VIOLATED,
        fault="ours",
        check=check_settled,
        control={"apart": True},
        note="A mean may be nearer to another cluster than its farthest model was: "
        r"models 0, 0.6 and 1.1 and $\delta = 1$ leave 0 and the mean 0.85, of "
        "distance 0.72. The next time step would merge them. The control has two "
        "bunches far apart.",
    ),
)
