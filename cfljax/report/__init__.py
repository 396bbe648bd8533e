"""Figures and tables of results, in one style and reproducible byte for byte."""

from cfljax.report.dots import DotPanel, dot_plot
from cfljax.report.figures import (
    LINES,
    BarPanel,
    Curve,
    CurvePanel,
    HeatMap,
    Level,
    bars,
    caption_of,
    curves,
    heatmaps,
    save,
    set_caption,
)
from cfljax.report.files import replacing, write_text
from cfljax.report.look import FORMATS, METADATA, Look, look, looking, number, style
from cfljax.report.scales import Scale
from cfljax.report.tables import concise, markdown, read_csv, write_csv

__all__ = [
    "FORMATS",
    "LINES",
    "METADATA",
    "BarPanel",
    "Curve",
    "CurvePanel",
    "DotPanel",
    "HeatMap",
    "Level",
    "Look",
    "Scale",
    "bars",
    "caption_of",
    "concise",
    "curves",
    "dot_plot",
    "heatmaps",
    "look",
    "looking",
    "markdown",
    "number",
    "read_csv",
    "replacing",
    "save",
    "set_caption",
    "style",
    "write_csv",
    "write_text",
]
