"""Figures: the same bytes again, nothing cut off, nothing overlapping."""

import dataclasses
import itertools

import matplotlib
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from cfljax.report import Curve, CurvePanel, HeatMap, curves, heatmaps, save
from cfljax.report.style import COLOUR_MAP, LINES, style


def heat_map(num_rows: int, num_columns: int, title: str = "") -> HeatMap:
    counts = np.arange(num_rows * num_columns).reshape(num_rows, num_columns)
    return HeatMap(
        values=counts / counts.max(),
        row_values=[0.1 * row for row in range(1, num_rows + 1)],
        column_values=[0.25 * column for column in range(1, num_columns + 1)],
        row_label="noise σ",
        column_label="separation R",
        cells=[[f"{count}/{counts.max()}" for count in row] for row in counts],
        title=title,
    )


def curve_panel(num_curves: int, title: str = "") -> CurvePanel:
    x = np.array([0.1, 0.25, 0.5, 0.75, 1.0])
    lines = [
        Curve(f"noise σ = {0.1 * i:.1f}", x, x / (i + 1), 0.8 * x / (i + 1), x)
        for i in range(num_curves)
    ]
    return CurvePanel(lines, "separation R", "success probability", title=title)


GRIDS = [(4, 5), (3, 3), (3, 7)]
FIGURES = {
    **{
        f"heat map {r}x{c}": lambda r=r, c=c: heatmaps([heat_map(r, c)])
        for r, c in GRIDS
    },
    "heat maps": lambda: heatmaps(
        [heat_map(4, 5, f"convention {i},\nexact recovery") for i in range(4)],
        title="Success under four conventions",
    ),
    "curves": lambda: curves([curve_panel(4)], title="Success against the separation"),
    "panels of curves": lambda: curves(
        [curve_panel(n, f"k = {n}") for n in (2, 4, 7)], legend_title="noise"
    ),
}


def texts(figure: Figure) -> list[Text]:
    """All visible texts of a figure that is laid out."""
    with matplotlib.rc_context(style()):
        FigureCanvasAgg(figure).draw()
    axis_of_ticks = [a for axes in figure.axes for a in (axes.xaxis, axes.yaxis)]
    beyond = {
        id(tick.label1)
        for axis in axis_of_ticks
        for tick in axis.get_major_ticks()
        if not min(ends := axis.get_view_interval()) <= tick.get_loc() <= max(ends)
    }
    return [
        text
        for text in figure.findobj(Text)
        if isinstance(text, Text) and text.get_visible() and text.get_text().strip()
        if id(text) not in beyond
    ]


def overlaps(figure: Figure) -> list[tuple[str, str]]:
    """Pairs of texts that cover each other."""
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts(figure)]
    return [
        (first, second)
        for (first, a), (second, b) in itertools.combinations(boxes, 2)
        if min(a.x1, b.x1) - max(a.x0, b.x0) > 0.5
        and min(a.y1, b.y1) - max(a.y0, b.y0) > 0.5
    ]


@pytest.mark.parametrize("name", FIGURES)
def test_texts_are_inside_and_apart(name):
    figure = FIGURES[name]()
    assert overlaps(figure) == []
    width, height = figure.bbox.width, figure.bbox.height
    for text in texts(figure):
        box = text.get_window_extent()
        inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
        assert inside, text.get_text()


def test_overlapping_texts_are_seen():
    """Control: the check above finds labels that are too long for their cells."""
    panel = heat_map(3, 7)
    crowded = [["12345 of 67890"] * 7] * 3
    assert overlaps(heatmaps([dataclasses.replace(panel, cells=crowded)]))


@pytest.mark.parametrize("name", ["heat map 4x5", "panels of curves"])
def test_same_bytes_again(name, tmp_path):
    first = save(FIGURES[name](), tmp_path / "a" / "figure.1")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9}):
        second = save(FIGURES[name](), tmp_path / "b" / "figure.1")
    assert [path.name for path in first] == ["figure.1.svg", "figure.1.png"]
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    svg, png = first
    assert svg.read_text().lstrip().startswith("<?xml")
    assert "<dc:date>" not in svg.read_text()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert sorted(p.name for p in (tmp_path / "a").iterdir()) == [png.name, svg.name]


def test_other_data_give_other_bytes(tmp_path):
    """Control: the comparison of bytes sees a change of one cell."""
    panel = heat_map(3, 3)
    values = panel.values.copy()
    values[1, 1] = 0.0
    changed = dataclasses.replace(panel, values=values)
    first, _ = save(heatmaps([panel]), tmp_path / "first")
    second, _ = save(heatmaps([changed]), tmp_path / "second")
    assert first.read_bytes() != second.read_bytes()


def test_the_user_keeps_the_own_settings():
    with matplotlib.rc_context({"font.size": 17.0}):
        heatmaps([heat_map(3, 3)])
        assert matplotlib.rcParams["font.size"] == 17.0


def test_labels_and_colours_say_what_was_given():
    figure = heatmaps([heat_map(4, 5)], value_label="success probability")
    shown = {text.get_text() for text in texts(figure)}
    assert {"noise σ", "separation R", "success probability", "19/19"} <= shown
    (image,) = figure.axes[0].get_images()
    assert image.get_cmap().name == COLOUR_MAP
    assert image.get_clim() == (0.0, 1.0)


def test_unmeasured_cells_are_not_zero():
    panel = heat_map(3, 3)
    values = panel.values.copy()
    values[2, 2] = np.nan
    figure = heatmaps([dataclasses.replace(panel, values=values, cells=None)])
    (image,) = figure.axes[0].get_images()
    array = np.ma.asarray(image.get_array())
    assert np.ma.getmaskarray(array)[2, 2]
    colours = image.to_rgba(array)
    assert not np.allclose(colours[2, 2], colours[0, 0])
    assert "–" in {text.get_text() for text in texts(figure)}


def test_lines_differ_in_colour_marker_and_dashes():
    for field in ("color", "marker", "linestyle"):
        assert len({str(line[field]) for line in LINES}) == len(LINES)
    for first, second in itertools.combinations(LINES, 2):
        difference = np.subtract(to_rgb(first["color"]), to_rgb(second["color"]))
        assert np.abs(difference).max() > 0.2


def test_a_name_looks_the_same_in_all_panels():
    panels = [curve_panel(3), curve_panel(3)]
    panels[1] = dataclasses.replace(panels[1], curves=panels[1].curves[1:])
    figure = curves(panels)
    looks = [
        {str(line.get_label()): line.get_color() for line in axes.get_lines()}
        for axes in figure.axes
    ]
    assert looks[1].items() < looks[0].items()


def test_misuse_is_refused():
    panel, x = heat_map(3, 3), np.arange(3.0)
    with pytest.raises(ValueError, match="`values`"):
        dataclasses.replace(panel, row_values=[1, 2])
    with pytest.raises(ValueError, match="`cells`"):
        dataclasses.replace(panel, cells=[["1"]])
    with pytest.raises(ValueError, match="`low` and `high`"):
        Curve("a", x, x, low=x)
    with pytest.raises(ValueError, match="`curves`"):
        CurvePanel([], "x", "y")
    with pytest.raises(ValueError, match="`panels`"):
        heatmaps([])
    with pytest.raises(ValueError, match="`panels`"):
        curves([])
    many = [Curve(str(i), x, x) for i in range(len(LINES) + 1)]
    with pytest.raises(ValueError, match=r"at most 7 different curves, got 8"):
        curves([CurvePanel(many, "x", "y")])


@pytest.mark.parametrize("num_points", [3, 30])
def test_free_limits_show_all_of_every_curve(num_points):
    x = np.linspace(1, 60, num_points)
    curve = Curve("a", x, 50 + x, 40 + x, 60 + x)
    figure = curves([CurvePanel([curve], "round", "accuracy %", y_limits=None)])
    left, right = figure.axes[0].get_xlim()
    low, high = figure.axes[0].get_ylim()
    assert left < 1 and right > 60
    assert low <= 41 and high >= 120
