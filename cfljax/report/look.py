"""Look: formats, width, fonts and numbers of all figures, in one place.

with report.looking(width=3.5, font_size=8, formats=("pdf",)):
    report.save(report.curves(panels), "figures/mine")
"""

import contextlib
import contextvars
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from matplotlib import rcParamsDefault

# What a file says of its making, by suffix: nothing that changes between runs.
METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "cfljax"},
    ".pdf": {"CreationDate": None, "Creator": "cfljax"},
    ".png": {"Software": "cfljax"},
}
FORMATS = tuple(suffix.removeprefix(".") for suffix in METADATA)
_USUAL = 10.0  # Points, for which all sizes below are made.


@dataclasses.dataclass(frozen=True)
class Look:
    """How figures are drawn and written.

    formats: of files that are named without suffix: some of svg, pdf and png.
    width: of a figure, in inches; what its panels need if None.
    font_size: of labels, in points; ticks and legends are a little smaller.
    caption: whether a figure shows its title; else that stands in a text file beside
      it alone, as journals want it.

    Raises:
      ValueError: if a format is unknown or none is asked for, or a size is not
        positive.
    """

    formats: tuple[str, ...] = FORMATS
    width: int | float | None = None
    font_size: int | float = _USUAL
    caption: bool = False

    def __post_init__(self) -> None:
        if not self.formats or not set(self.formats) <= set(FORMATS):
            known = ", ".join(FORMATS)
            raise ValueError(
                f"`formats` must be some of {known}, got {', '.join(self.formats)}."
            )
        for name in ("width", "font_size"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"`{name}` must be positive, got {value}.")

    @property
    def scale(self) -> float:
        """Size of letters, in units of the usual one."""
        return self.font_size / _USUAL


_LOOK: contextvars.ContextVar[Look | None] = contextvars.ContextVar(
    "look", default=None
)


def look() -> Look:
    """How figures are drawn here and now."""
    return _LOOK.get() or Look()


@contextlib.contextmanager
def looking(**changes: Any) -> Iterator[Look]:
    """Inside, figures are drawn and written with other fields of `Look`."""
    token = _LOOK.set(dataclasses.replace(look(), **changes))
    try:
        yield look()
    finally:
        _LOOK.reset(token)


def number(value: float) -> str:
    """A number as print has it: with a minus, and a power of ten where it has many
    digits, e.g. "−0.5" and 4·10⁻⁵, set as mathematics."""
    if not math.isfinite(value) or value == 0 or 1e-3 < abs(value) < 1e4:
        return f"{value:g}".replace("-", "−")
    power = math.floor(math.log10(abs(value)) + 1e-9)
    leading = f"{value / 10.0**power:.3g}"
    front = {"1": "", "-1": "-"}.get(leading, f"{leading}\\cdot ")
    return f"${front}10^{{{power}}}$"


_CHANGES: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # Comes with matplotlib: the same everywhere.
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "grid.linewidth": 0.8,
    "lines.linewidth": 1.8,
    "lines.markersize": 6.5,
    "lines.markeredgecolor": "white",
    "lines.markeredgewidth": 0.7,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "savefig.dpi": 160,
    "svg.fonttype": "path",  # Looks the same where the font is missing.
    "pdf.fonttype": 42,  # TrueType: what journals accept, and a reader can select.
    "svg.hashsalt": "cfljax",  # Element names from the content, not from chance.
}
_SIZES = {  # Points, of which `Look.scale` makes others.
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "figure.titlesize": 12,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
}


def style() -> dict[Any, Any]:
    """All settings of a figure: matplotlib's defaults with this project's changes.

    Use it as `with matplotlib.rc_context(style()): ...` both to draw and to save;
    what the user has set, globally or in a file, does not matter there. Only how a
    window would be opened stays the user's.
    """
    windows = ("backend", "interactive", "toolbar", "webagg")
    kept = {k: rcParamsDefault[k] for k in rcParamsDefault if not k.startswith(windows)}
    sizes = {name: size * look().scale for name, size in _SIZES.items()}
    return kept | _CHANGES | sizes
