"""Scales of axes for numbers of any size: what goes where, with round numbers."""

import dataclasses
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from cfljax.report.look import number

_MARGIN = 0.05  # of an axis, beyond the outermost points
_MOST_TICKS = 7
_LEAST = float(np.finfo(float).tiny)


@dataclasses.dataclass(frozen=True)
class Scale:
    """How numbers become places on an axis; "symlog" shows both signs."""

    kind: Literal["linear", "log", "symlog"]
    threshold: float = 1.0  # positive; below it "symlog" is linear
    powers: bool = False  # whether the numbers are decades: x stands for 10^x
    whole: bool = False  # whether ticks stand at integers alone

    def limits(self, values: Float[np.ndarray, " values"]) -> tuple[float, float]:
        """Ends of an axis that shows all values which have a place, with a margin."""
        known = values[np.isfinite(values)]
        if self.kind == "log":  # Nothing below normal numbers has a place there.
            known = np.maximum(known[known > 0], _LEAST)
        places = self.place(known)
        low, high = float(np.min(places)), float(np.max(places))
        margin = _MARGIN * (high - low) or 0.1 * abs(high) or 1.0
        low, high = self.number(np.array([low - margin, high + margin]))
        if self.kind == "log":
            low = max(low, _LEAST)
        return float(low), float(high)

    def between(self, low: float, high: float) -> Float[np.ndarray, " values"]:
        """Numbers at even places from end to end, both included."""
        first, last = self.place(np.array([low, high]))
        inner = self.number(np.linspace(float(first), float(last), 200))
        return np.concatenate([[low], inner[1:-1], [high]])

    def apply(
        self, axes: Axes, which: Literal["x", "y"], limits: tuple[float, float]
    ) -> None:
        """Give one axis this scale, its limits and a light grid."""
        axis = axes.xaxis if which == "x" else axes.yaxis
        set_scale = axes.set_xscale if which == "x" else axes.set_yscale
        if self.kind == "log":
            set_scale("log")
        elif self.kind == "symlog":
            set_scale("function", functions=(self.place, self.number))
        (axes.set_xlim if which == "x" else axes.set_ylim)(limits)
        if self.kind == "linear":
            whole = self.powers or self.whole
            axis.set_major_locator(MaxNLocator(_MOST_TICKS, integer=whole))
        else:
            round_ones = _round_numbers if self.kind == "log" else self._ticks
            axis.set_major_locator(FixedLocator(round_ones(*limits)))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(FuncFormatter(lambda value, _: number(value)))
        if self.powers:
            axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
        axis.grid(True)

    def place(self, values: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Where numbers stand: equal distances look the same."""
        if self.kind == "linear":
            return values
        if self.kind == "log":
            return np.log10(values)
        size = np.abs(values) / self.threshold
        grown = np.where(size > 1, 1 + np.log10(np.fmax(size, 1)), size)
        return np.sign(values) * grown

    def number(self, places: Float[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """The numbers that stand there."""
        if self.kind == "linear":
            return places
        if self.kind == "log":
            return 10.0**places
        size = np.abs(places)
        grown = np.where(size > 1, 10.0 ** (np.fmax(size, 1) - 1), size)
        return np.sign(places) * self.threshold * grown

    def _ticks(self, low: float, high: float) -> list[float]:
        """Zero and powers of ten of both signs, thinned to a few."""
        largest = np.log10(max(abs(low), abs(high)) / self.threshold)
        step = max(1, int(np.ceil(2 * largest / _MOST_TICKS)))
        sizes = [self.threshold * 10.0**e for e in range(0, int(largest) + 1, step)]
        ticks = [0.0, *sizes, *(-size for size in sizes)]
        return sorted(tick for tick in ticks if low <= tick <= high)


def _round_numbers(low: float, high: float) -> list[float]:
    """Powers of ten between positive ends; if they are few, 2 and 5 times them."""
    first, last = int(np.floor(np.log10(low))), int(np.ceil(np.log10(high)))
    step = max(1, int(np.ceil((last - first) / _MOST_TICKS)))
    leading = (1, 2, 5) if np.log10(high / low) < 2 else (1,)
    ticks = [d * 10.0**e for e in range(first, last + 1, step) for d in leading]
    found = [tick for tick in ticks if low <= tick <= high]
    if len(found) < 2:  # Less than a decade, between such numbers.
        ticks = list(MaxNLocator(_MOST_TICKS - 2).tick_values(low, high))
        found = [tick for tick in ticks if low <= tick <= high]
    return found


def _power(value: float) -> str:
    """10 to the power of the value."""
    if value == 0:
        return "1"
    if abs(value) < 1e4:
        return f"$10^{{{value:g}}}$"
    sign = "-" if value < 0 else ""
    return f"$10^{{{sign}10^{{{round(np.log10(abs(value)))}}}}}$"
