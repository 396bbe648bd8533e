"""Section 4.3 and Figure 4: how many clipping rounds it takes, and where the elbow is.

Blobs as in the paper: 90 points in 10 dimensions, 9 around each of 10 centres, which
are uniform in [-10, 10]^10; tau is the 10 % quantile of the distances to a centre. The
paper names neither the initial centres nor a threshold for its elbow.
"""

import functools
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import intervals
from theory.judges import ERROR_RATE, never_exceeds, within
from theory.statement import Preset
from theory.verdict import Verdict
from theory.werner.theorem1_setting import asked_rounds

__all__ = [
    "DEVIATION",
    "ELBOW",
    "ROUNDS",
    "Blobs",
    "Start",
    "check_deviation",
    "check_elbow",
    "check_elbow_printed",
    "check_rounds",
    "check_rounds_printed",
    "curves",
    "draw_blobs",
    "elbow",
]

ROUNDS, ELBOW = "werner.fig4", "werner.fig4.elbow"
DEVIATION = "werner.fig4.deviation"

Start = Literal["member", "near"]

_SIGMAS = (0.5, 1.0, 2.0, 4.0)
_CLUSTERS, _SIZE, _FEATURES, _LAST = 10, 9, 10, 80
_THRESHOLD = 0.01  # Share of the whole drop, below which a curve counts as flat.
_ROUNDING = 1e-9


class Blobs(NamedTuple):
    """Data sets.

    centres: `[repeats, clusters, features]`.
    points: `[repeats, clusters, size, features]`.
    """

    centres: Float[np.ndarray, "repeats clusters features"]
    points: Float[np.ndarray, "repeats clusters size features"]


def draw_blobs(generator: np.random.Generator, sigma: float, repeats: int) -> Blobs:
    """Data sets with the deviation sigma of every coordinate around the centres."""
    shape = (repeats, _CLUSTERS, _FEATURES)
    centres = generator.uniform(-10, 10, shape)
    noise = generator.standard_normal((repeats, _CLUSTERS, _SIZE, _FEATURES))
    return Blobs(centres, centres[:, :, None] + sigma * noise)


@functools.lru_cache(maxsize=16)
def curves(preset: Preset, start: Start) -> Float[np.ndarray, "sigmas rounds"]:
    """Mean distance of the centres to the true ones after 0, 1 ... rounds.

    Started at the first point of each cluster ("member"), or at the true centre plus
    N(0, 9 I) ("near").
    """
    repeats = preset.choose(quick=10, full=100)
    found = []
    for sigma in _SIGMAS:
        generator = preset.generator(ROUNDS, 0)  # The same centres for every sigma.
        blobs = draw_blobs(generator, sigma, repeats)
        points = blobs.points.reshape(repeats, 1, -1, _FEATURES)
        centres = blobs.points[:, :, 0]
        if start == "near":
            away = generator.standard_normal(blobs.centres.shape)
            centres = blobs.centres + 3 * away
        curve = []
        for _ in range(_LAST + 1):
            gap = np.linalg.norm(centres - blobs.centres, axis=-1)
            curve.append(np.mean(gap))
            apart = points - centres[:, :, None]
            distance = np.sqrt(np.sum(apart**2, axis=-1))
            radius = np.quantile(distance, 0.1, axis=-1, keepdims=True)
            inside = (distance <= radius).astype(float)
            pull = np.einsum("rkn,rknd->rkd", inside, apart)
            centres = centres + pull / points.shape[2]
        found.append(curve)
    return np.array(found)


def elbow(curve: Float[np.ndarray, " rounds"], *, threshold: float = _THRESHOLD) -> int:
    """The first round that takes off less than `threshold` of the whole drop."""
    steps = -np.diff(curve) / (curve[0] - np.min(curve))
    return 1 + int(np.argmax(steps < threshold))


def _separation(preset: Preset) -> float:
    """Mean over data sets of the least distance of two centres."""
    centres = draw_blobs(preset.generator(ROUNDS, 9), 1.0, 50).centres
    apart = np.linalg.norm(centres[:, :, None] - centres[:, None], axis=-1)
    apart += np.where(np.eye(_CLUSTERS, dtype=bool), np.inf, 0)
    return float(np.mean(np.min(apart, axis=(1, 2))))


def check_rounds_printed(preset: Preset, *, num_clusters: int = _CLUSTERS) -> Verdict:
    """Theorem 1's number of rounds does not fall from one sigma to the next."""
    separation = _separation(preset)
    total = np.array(_SIGMAS) * np.sqrt(_FEATURES)
    asked = asked_rounds(total, separation, 1 / num_clusters)
    return never_exceeds(
        ROUNDS,
        asked[:-1],
        asked[1:],
        rounding=_ROUNDING,
        detail=f"sigma = {', '.join(map(str, _SIGMAS))}, least distance of centres "
        f"{separation:.1f}: Theorem 1 asks for {', '.join(f'{a:.1f}' for a in asked)}",
    )


def check_rounds(preset: Preset, *, base: float = 2.0, spread: int = 3) -> Verdict:
    """The number asked for falls by log(`base`)/|log(1 - delta/2)| where sigma doubles.

    And elbows from members differ by at most `spread` rounds over all sigma, while
    those from starts that do not depend on sigma do not rise.
    """
    share = 1 / _CLUSTERS
    total = np.array(_SIGMAS) * np.sqrt(_FEATURES)
    asked = asked_rounds(total, _separation(preset), share)
    fall = -np.log(base) / np.log1p(-share / 2)
    member = np.array([elbow(curve) for curve in curves(preset, "member")])
    near = np.array([elbow(curve) for curve in curves(preset, "near")])
    return never_exceeds(
        f"{ROUNDS}.corrected",
        np.concatenate([np.abs(-np.diff(asked) - fall), [np.ptp(member)], near[1:]]),
        np.concatenate([np.zeros(len(asked) - 1), [spread], near[:-1]]),
        rounding=_ROUNDING,
        detail=f"sigma = {', '.join(map(str, _SIGMAS))}: elbows at "
        f"{', '.join(map(str, member))} from members, {', '.join(map(str, near))} from "
        "starts at a fixed distance",
    )


def _geometric(ratio: float) -> Float[np.ndarray, " rounds"]:
    return 1 + 5 * ratio ** np.arange(_LAST + 1)


def check_elbow_printed(preset: Preset, *, backwards: bool = False) -> Verdict:
    """The formula is smaller in size, its curve flatter, after the elbow than before.

    Compared are its sizes at the first round and at the one that reaches the minimum.
    """
    decays = [_geometric(ratio) for ratio in (0.5, 0.8, 0.9, 0.95)]
    values, bounds = [], []
    for curve in (*decays, *curves(preset, "member")):
        least = int(np.argmin(curve))
        fall = np.diff(curve[: least + 1]) / (curve[:least] - curve[least])
        ends = abs(fall[0]), abs(fall[least // 2 if backwards else -1])
        values.append(ends[1])
        bounds.append(ends[0])
    return never_exceeds(
        ELBOW,
        np.array(values),
        np.array(bounds),
        rounding=_ROUNDING,
        detail="geometric decay and blobs: the formula is "
        f"{', '.join(f'-{b:.3f}' for b in bounds)} in the first round, "
        f"{', '.join(f'-{v:.3f}' for v in values)} in "
        f"{'half of them' if backwards else 'the last that falls'}",
    )


def check_elbow(preset: Preset, *, threshold: float = _THRESHOLD) -> Verdict:
    """The corrected elbow of a geometric decay is where theory has it, and flat after.

    After it at most `threshold` r/(1 - r) of the drop is left, r the decay.
    """
    del preset
    values, bounds = [], []
    for ratio in (0.5, 0.8, 0.85):
        curve = _geometric(ratio)
        place = elbow(curve)
        whole = 1 - ratio**_LAST
        limit = threshold * whole / (1 - ratio)
        exact = 2 + np.floor(np.log(limit) / np.log(ratio))
        left = (curve[place] - curve[-1]) / (curve[0] - curve[-1])
        values += [abs(place - exact), left]
        bounds += [0.0, threshold * ratio / (1 - ratio)]
    return never_exceeds(
        f"{ELBOW}.corrected",
        np.array(values),
        np.array(bounds),
        rounding=_ROUNDING,
        detail=f"decays 0.5, 0.8, 0.85: {max(values[1::2]):.3f} of the drop left at "
        "most",
    )


def check_deviation(preset: Preset, *, between: bool, scale: float = 1.0) -> Verdict:
    """Standard deviations between, or within, clusters are `scale` sigma to 10 %."""
    repeats = preset.choose(quick=60, full=1000)
    ratio = []
    for sigma in _SIGMAS:
        blobs = draw_blobs(preset.generator(DEVIATION, 0), sigma, repeats)
        if between:
            variance = np.var(blobs.centres, axis=1, ddof=1)
        else:
            variance = np.mean(np.var(blobs.points, axis=2, ddof=1), axis=1)
        ratio.append(np.sqrt(np.mean(variance, axis=-1)) / sigma)
    ratio = np.array(ratio)
    edge = np.full(len(ratio), 0.1)
    return within(
        DEVIATION if between else f"{DEVIATION}.corrected",
        intervals.student(ratio, error_rate=ERROR_RATE / len(ratio)),
        (scale - edge, scale + edge),
        num_trials=ratio.size,
        detail=f"sigma = {', '.join(map(str, _SIGMAS))}: deviation over sigma "
        f"{', '.join(f'{r:.3f}' for r in np.mean(ratio, axis=1))}",
    )
