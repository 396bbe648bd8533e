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
from cfljax.report.scales import Scale
from cfljax.report.tables import concise, markdown, read_csv, write_csv

__all__ = [
    "LINES",
    "METADATA",
    "BarPanel",
    "Curve",
    "CurvePanel",
    "HeatMap",
    "Level",
    "Scale",
    "bars",
    "concise",
    "curves",
    "heatmaps",
    "markdown",
    "read_csv",
    "replacing",
    "save",
    "style",
    "write_csv",
    "write_text",
]
