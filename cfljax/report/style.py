"""One look for all figures, and the same bytes whenever they are drawn again."""

from typing import Any

from matplotlib import rcParamsDefault

__all__ = ["COLOUR_MAP", "LINES", "METADATA", "MISSING", "style"]

COLOUR_MAP = "viridis"  # Even steps of lightness, also for the colour-blind.
MISSING = "#d9d9d9"

# Okabe and Ito's colours in an order of falling contrast on white; every curve
# also has its own marker and dashes, for print and for the colour-blind.
LINES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "marker": "o", "linestyle": "-"},
    {"color": "#D55E00", "marker": "s", "linestyle": (0, (5, 2))},
    {"color": "#009E73", "marker": "^", "linestyle": (0, (1, 1.2))},
    {"color": "#CC79A7", "marker": "D", "linestyle": (0, (5, 1.5, 1, 1.5))},
    {"color": "#E69F00", "marker": "v", "linestyle": (0, (8, 2, 2, 2))},
    {"color": "#56B4E9", "marker": "P", "linestyle": (0, (3, 1, 1, 1, 1, 1))},
    {"color": "#000000", "marker": "X", "linestyle": (0, (2, 2))},
)

# What a file says of its making: nothing that changes between runs.
METADATA: dict[str, dict[str, Any]] = {
    ".svg": {"Date": None, "Creator": "cfljax"},
    ".png": {"Software": "cfljax"},
}

_CHANGES: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # Comes with matplotlib: the same everywhere.
    "font.size": 10,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "figure.titlesize": 12,
    "legend.fontsize": 9,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
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
    "svg.hashsalt": "cfljax",  # Element names from the content, not from chance.
}


def style() -> dict[Any, Any]:
    """All settings of a figure: matplotlib's defaults with this project's changes.

    Use it as `with matplotlib.rc_context(style()): ...` both to draw and to save;
    what the user has set, globally or in a file, does not matter there. Only how a
    window would be opened stays the user's.
    """
    windows = ("backend", "interactive", "toolbar", "webagg")
    kept = {k: rcParamsDefault[k] for k in rcParamsDefault if not k.startswith(windows)}
    return kept | _CHANGES
