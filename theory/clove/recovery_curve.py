"""Recovery curves of Theorem 4.1: how many samples k-means needs, by M, Delta and d.

n* is the least n at which all clients are recovered with the theorem's probability 1 -
delta - 1/log(M), found on a grid of n Delta^2/log(M) by exact intervals.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from cfljax import intervals
from theory.clove.recovery_models import Cell, draw, samples_by_clients
from theory.clove.recovery_runs import recovered
from theory.judges import ERROR_RATE
from theory.statement import Preset

__all__ = ["RISK", "Curves", "allowed", "brackets", "curves"]

RISK = 0.05  # delta
_FACTORS = (6.0, 12.0, 32.0, 48.0)  # n Delta^2/log(M)
_MORE_FACTORS = (4.0, 6.0, 8.0, 12.0, 16.0, 20.0, 24.0, 32.0, 48.0)
_CELLS = (  # n follows from the factor
    Cell("orthonormal", 10, 2, 40, 1, 1.4),
    Cell("orthonormal", 20, 2, 40, 1, 1.0),
    Cell("orthonormal", 50, 2, 100, 1, 1.0),
    Cell("orthonormal", 20, 2, 100, 1, 0.7),
    Cell("orthonormal", 10, 2, 40, 1, 0.5),
    Cell("orthonormal", 50, 2, 100, 1, 0.5),
    Cell("orthonormal", 10, 2, 100, 1, 0.35),
    Cell("orthonormal", 20, 2, 100, 1, 0.25),
)
_LARGE_CELLS = (
    Cell("orthonormal", 10, 2, 1000, 1, 1.0),
    Cell("orthonormal", 100, 2, 1000, 1, 0.5),
)


class Curves(NamedTuple):
    """Trials in which k-means erred, by cell and factor.

    cells: without n.
    factors: n Delta^2/log(M), rising.
    on_roots, on_losses: `[cells][factors]` arrays `[trials]`, for square-root loss
      vectors and loss vectors of the same clients.
    """

    cells: tuple[Cell, ...]
    factors: tuple[float, ...]
    on_roots: list[list[Bool[np.ndarray, " trials"]]]
    on_losses: list[list[Bool[np.ndarray, " trials"]]]


@functools.lru_cache(maxsize=1)
def curves(preset: Preset) -> Curves:
    """All trials: few where everything fails, more where little does."""
    cells = _CELLS + preset.choose(quick=(), full=_LARGE_CELLS)
    factors = preset.choose(quick=_FACTORS, full=_MORE_FACTORS)
    drawn, sizes = [], []
    for index, one in enumerate(cells):
        generator = preset.generator("clove.thm41", index)
        for factor in factors:
            trials = preset.choose(quick=60 if factor < 20 else 150, full=600)
            cell = samples_by_clients(one, factor)
            drawn += [draw(generator, cell).losses for _ in range(trials)]
            sizes.append(trials)
    found = []
    for transform in (np.sqrt, np.asarray):
        generator = preset.generator("clove.thm41")
        wrong = ~recovered(generator, [transform(one) for one in drawn])
        parts = np.split(wrong, np.cumsum(sizes)[:-1])
        width = len(factors)
        found.append([parts[i : i + width] for i in range(0, len(parts), width)])
    return Curves(cells, factors, *found)


def allowed(cell: Cell) -> float:
    """delta + 1/log(M), the probability of failure that the theorem leaves."""
    return RISK + 1 / float(np.log(cell.num_clients))


def brackets(
    measured: Curves,
) -> tuple[Float[np.ndarray, " cells"], Float[np.ndarray, " cells"]]:
    """Between which n lies n* of square-root loss vectors, in each cell.

    The lower end is the largest n of the grid at which recovery certainly fails too
    often, the upper end the least at which it certainly does not; 0 and infinity where
    there is none. All intervals hold together except with `ERROR_RATE`.
    """
    each = ERROR_RATE / (len(measured.cells) * len(measured.factors))
    ends = []
    for cell, parts in zip(measured.cells, measured.on_roots, strict=True):
        events = np.array([np.sum(part) for part in parts])
        trials = np.array([len(part) for part in parts])
        low, high = intervals.clopper_pearson(events, trials, error_rate=each)
        sized = [samples_by_clients(cell, factor) for factor in measured.factors]
        counts = np.array([one.num_samples for one in sized], float)
        fails, works = low > allowed(cell), high <= allowed(cell)
        bottom = np.max(counts, initial=0.0, where=fails)
        ends.append([bottom, np.min(counts, initial=np.inf, where=works)])
    bottom, top = np.array(ends).T
    return bottom, top
