"""Figures and tables of results, in one style and reproducible byte for byte."""

from cfljax.report.figures import (
    LINES,
    METADATA,
    BarPanel,
    Curve,
    CurvePanel,
    HeatMap,
    Level,
    bars,
    curves,
    heatmaps,
    save,
    style,
)
from cfljax.report.files import replacing, write_text
from cfljax.report.tables import markdown, read_csv, said_once, write_csv

__all__ = [
    "LINES",
    "METADATA",
    "BarPanel",
    "Curve",
    "CurvePanel",
    "HeatMap",
    "Level",
    "bars",
    "curves",
    "heatmaps",
    "markdown",
    "read_csv",
    "replacing",
    "said_once",
    "save",
    "style",
    "write_csv",
    "write_text",
]
