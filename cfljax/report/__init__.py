"""Figures and tables of results, in one style and reproducible byte for byte."""

from cfljax.report.figures import curves, heatmaps, save
from cfljax.report.files import write_text
from cfljax.report.panels import Curve, CurvePanel, HeatMap, Level
from cfljax.report.tables import markdown, read_csv, write_csv

__all__ = [
    "Curve",
    "CurvePanel",
    "HeatMap",
    "Level",
    "curves",
    "heatmaps",
    "markdown",
    "read_csv",
    "save",
    "write_csv",
    "write_text",
]
