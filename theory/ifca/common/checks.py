"""What this paper's checks are written with: rows, shapes, grids, judges of means."""

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import scipy.special
from jaxtyping import Bool, Float, Int, Num

from cfljax import intervals
from cfljax.statements import (
    ERROR_RATE,
    Grade,
    Preset,
    Statement,
    Step,
    Tally,
    Verdict,
    tally,
    within,
)
from theory.rows import falsified

PerPoint = Float[np.ndarray, " points"]  # a number at every point of a check
PerTrial = Float[np.ndarray, "points trials"]  # one for every trial there
Events = Bool[np.ndarray, "points trials"]  # whether it happened
Broadcast = Float[np.ndarray, "..."]  # of the arguments' common shape


def row(
    *,
    check: Callable[..., Verdict],
    control: Mapping[str, object] | Callable[[Preset], Verdict],
    proof: Callable[..., Sequence[Step]] | None = None,
    proof_control: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
    **fields: Any,
) -> Statement:
    """A `Statement` of this paper, from its other fields. Its `control` may be given as
    the arguments that turn `check` into one of a claim of which the opposite is known,
    and that of its proof as those that turn `proof` into one of a false claim, or each
    of several."""
    if isinstance(control, Mapping):
        control = functools.partial(check, **control)
    if proof is not None:
        fields |= {"proof": proof, "proof_control": falsified(proof, proof_control)}
    return Statement(paper="ifca", check=check, control=control, **fields)


def grid(
    *axes: Sequence[float | int] | Num[np.ndarray, "_"],
    indexing: Literal["xy", "ij"] = "xy",
) -> list[PerPoint]:
    """The coordinates of every point of a grid, one array for each axis."""
    floats = [np.asarray(axis, float) for axis in axes]
    return [one.ravel() for one in np.meshgrid(*floats, indexing=indexing)]


def chunks(total: int, size: int) -> Iterator[int]:
    """Sizes of the parts that `total` trials are drawn in, at most `size` each."""
    for start in range(0, total, size):
        yield min(size, total - start)


def unit(vectors: Float[np.ndarray, "*n d"]) -> Float[np.ndarray, "*n d"]:
    """The vectors of the last axis, scaled to length 1."""
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def turn(angle: Float[np.ndarray, "*n"]) -> Float[np.ndarray, "*n 2"]:
    """Vectors of length 1 in the plane."""
    return np.stack([np.cos(angle), np.sin(angle)], axis=-1)


def copies(models: Float[np.ndarray, "*n"], trials: int) -> Float[np.ndarray, "t *n"]:
    """The same models for every trial, not to be written to."""
    return np.broadcast_to(models, (trials, *models.shape))


def least(losses: Float[np.ndarray, "*n models"]) -> Int[np.ndarray, "*n"]:
    """The model of least loss; one whose loss is not a number never wins."""
    return np.argmin(np.where(np.isnan(losses), np.inf, losses), axis=-1)


def tallies(
    events: Iterable[Float[np.ndarray, " _"] | Bool[np.ndarray, " _"]],
) -> Tally:
    """Count events at points with different numbers of trials."""
    counts = [tally(one) for one in events]
    return Tally(*(np.concatenate(part) for part in zip(*counts, strict=True)))


def log_rounding(logarithms: PerPoint) -> PerPoint:
    """Relative error of a logarithm of a probability, plus that of the probability."""
    return 50 * np.finfo(float).eps * (1 + np.abs(logarithms))


def mean_within(
    statement: str,
    values: PerTrial,
    band: tuple[PerPoint | float, PerPoint | float],
    *,
    deviation: PerPoint | float | None = None,
    support: tuple[float, float] | None = None,
    error_rate: float = ERROR_RATE,
    num_trials: int | None = None,
    detail: str | Callable[[PerPoint, PerPoint], str] = "",
) -> Verdict:
    """Judge the claim that means over trials lie in a band. Rows of `values` are
    independent draws of one number. By Catoni's intervals where the standard
    `deviation` of one is known, or a bound of it; by bets where all lie in a `support`;
    both hold at every sample size. Else by Student's, which are nominal. `num_trials`
    counts those behind averages of batches; `detail` may be made of the intervals."""
    each, grade = error_rate / len(values), Grade.SAMPLED
    if deviation is not None:
        known = np.broadcast_to(np.asarray(deviation, float), (len(values),))
        low, high = intervals.catoni(values, deviation=known, error_rate=each)
    elif support is not None:
        bottom, top = support
        low, high = intervals.betting(values, error_rate=each, low=bottom, high=top)
    else:
        low, high = intervals.student(values, error_rate=each)
        grade = Grade.NOMINAL
    return within(
        statement,
        (low, high),
        band,
        num_trials=num_trials or values.size,
        error_rate=error_rate,
        grade=grade,
        detail=detail if isinstance(detail, str) else detail(low, high),
    )


def median_interval(
    values: PerTrial, *, error_rate: float
) -> tuple[PerPoint, PerPoint]:
    """Intervals of the median of each row: two order statistics, between which it lies
    for every law, except with chance `error_rate` each. Infinite for too few trials."""
    trials = values.shape[-1]
    below = scipy.special.bdtr(np.arange(trials), trials, 0.5)
    outside = int(np.sum(below <= error_rate / 2))  # of the least, as of the largest
    if outside == 0:
        return np.full(len(values), -np.inf), np.full(len(values), np.inf)
    ordered = np.sort(values, axis=-1)
    return ordered[:, outside - 1], ordered[:, trials - outside]


def median_within(
    statement: str,
    values: PerTrial,
    band: tuple[PerPoint | float, PerPoint | float],
    *,
    error_rate: float = ERROR_RATE,
    coordinates: Mapping[str, Num[np.ndarray, " points"] | float] | None = None,
    detail: str | Callable[[PerPoint, PerPoint], str] = "",
) -> Verdict:
    """Judge the claim that medians over trials, one for each row of `values`, lie in a
    band. At every sample size, whatever the law."""
    low, high = median_interval(values, error_rate=error_rate / len(values))
    return within(
        statement,
        (low, high),
        band,
        num_trials=values.size,
        error_rate=error_rate,
        grade=Grade.SAMPLED,
        coordinates=coordinates,
        detail=detail if isinstance(detail, str) else detail(low, high),
    )


def difference_within(
    statement: str,
    first: Bool[np.ndarray, " trials"],
    second: Bool[np.ndarray, " others"],
    band: tuple[float, float],
    *,
    detail: str = "",
) -> Verdict:
    """Judge the claim that P(first) - P(second) lies in a band, of ends in [-1, 1] or
    infinite. Clopper-Pearson intervals of both, at half the error rate each: valid at
    every sample size, whatever the dependence between the two samples."""
    ends = [
        intervals.clopper_pearson(
            int(np.sum(events)), len(events), error_rate=ERROR_RATE / 2
        )
        for events in (first, second)
    ]
    (low, high), (other_low, other_high) = ends
    return within(
        statement,
        (low - other_high, high - other_low),
        band,
        num_trials=len(first) + len(second),
        grade=Grade.SAMPLED,
        detail=detail,
    )


def slope_interval(
    x: PerPoint, y: Float[np.ndarray, "trials points"], *, error_rate: float
) -> tuple[float, float]:
    """Interval of the least-squares slope of log median(y) in log x. The points'
    medians lie in intervals of their own, jointly; the slope is linear in them. Valid
    at every sample size, whatever the law and the dependence within a trial."""
    low, high = np.log(median_interval(y.T, error_rate=error_rate / len(x)))
    centred = np.log(x) - np.mean(np.log(x))
    weight = centred / np.sum(centred**2)
    ends = np.where(weight > 0, low, high), np.where(weight > 0, high, low)
    return float(weight @ ends[0]), float(weight @ ends[1])


def slope_near(
    statement: str,
    x: PerPoint,
    y: Float[np.ndarray, "trials points"],
    target: float,
    *,
    margin: float = 0.05,
    what: str,
) -> Verdict:
    """Judge the claim that the median of y grows like x^target, up to `margin` in the
    exponent. All are positive, x over decades."""
    low, high = slope_interval(x, y, error_rate=ERROR_RATE)
    return within(
        statement,
        (low, high),
        (target - margin, target + margin),
        num_trials=y.size,
        grade=Grade.SAMPLED,
        detail=f"{what}: slope {(low + high) / 2:.4f} +- {(high - low) / 2:.4f} over "
        f"{np.log10(np.max(x) / np.min(x)):.1f} decades, claimed {target:g}",
    )
