"""Figures and tables: all of it shown, the same bytes again, nothing half written."""

import csv
import dataclasses
import io
import itertools
import math
import re
import zlib

import matplotlib
import numpy as np
import pytest
from fontTools.ttLib import TTFont
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from cfljax.report import (
    Curve,
    CurvePanel,
    DotPanel,
    HeatMap,
    Level,
    Look,
    concise,
    curves,
    dot_plot,
    heatmaps,
    look,
    looking,
    markdown,
    number,
    read_csv,
    save,
    write_csv,
    write_text,
)
from cfljax.report.figures import COLOUR_MAP, LINES, style
from cfljax.report.files import replacing

# Figures against themselves: nothing cut off, nothing overlapping


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


def with_value(panel: HeatMap, where: tuple[int, int], value: float) -> HeatMap:
    values = np.array(panel.values)
    values[where] = value
    return dataclasses.replace(panel, values=values)


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
    "levels": lambda: curves([with_levels(curve_panel(3, "k = 3"), 1.5)]),
    "predictions": lambda: curves([with_predictions(curve_panel(3, "k = 3"))]),
}


def with_predictions(panel: CurvePanel) -> CurvePanel:
    predicted = [
        Curve(f"{c.label}, predicted", c.x, 1.1 * c.y, like=c.label)
        for c in panel.curves
    ]
    return dataclasses.replace(panel, curves=[*panel.curves, *predicted])


def with_levels(panel: CurvePanel, value: float) -> CurvePanel:
    levels = [
        Level(f"{curve.label}, published", value / (i + 1), curve.label, 0.02)
        for i, curve in enumerate(panel.curves)
    ]
    return dataclasses.replace(panel, levels=levels, y_limits=None)


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


@pytest.mark.long
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


@pytest.mark.long
@pytest.mark.parametrize("name", ["heat map 4x5", "panels of curves"])
def test_same_bytes_again(name, tmp_path):
    first = save(FIGURES[name](), tmp_path / "a" / "figure.1")
    with matplotlib.rc_context({"font.size": 30, "lines.linewidth": 9}):
        second = save(FIGURES[name](), tmp_path / "b" / "figure.1")
    names = ["figure.1.svg", "figure.1.pdf", "figure.1.png"]
    assert [path.name for path in first] == names
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()
    svg, pdf, png = first
    assert svg.read_text().lstrip().startswith("<?xml")
    assert "<dc:date>" not in svg.read_text()
    assert pdf.read_bytes().startswith(b"%PDF") and b"Date" not in pdf.read_bytes()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert {path.name for path in (tmp_path / "a").iterdir()} == set(names)


def test_a_pdf_embeds_the_letters_in_use_as_truetype(tmp_path):
    """What journals ask for; the whole font has 750 kB."""
    _, pdf, _ = save(heatmaps([heat_map(3, 3)]), tmp_path / "figure")
    text = pdf.read_bytes()
    assert b"/FontFile2" in text and b"/Subtype /Type3" not in text
    streams = re.findall(rb"stream\r?\n(.*?)\r?\nendstream", text, flags=re.S)
    found = [zlib.decompress(stream) for stream in streams]
    fonts = [TTFont(io.BytesIO(s)) for s in found if s.startswith(b"\0\1\0\0")]
    assert fonts
    for font in fonts:
        assert not {"GDEF", "GPOS", "GSUB", "kern"} & set(font.keys())
        assert len(font.getGlyphOrder()) < 60


@pytest.mark.long
def test_the_layout_is_the_same_in_all_files(tmp_path):
    """Saving one after the other moves nothing, nor what is saved or drawn later."""
    figure = FIGURES["panels of curves"]()
    layout = figure.get_layout_engine()
    first, second = (save(figure, tmp_path / name / "figure") for name in "ab")
    assert figure.get_layout_engine() is layout
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


@pytest.mark.long
def test_other_data_give_other_bytes(tmp_path):
    """Control: the comparison of bytes sees a change of one cell."""
    first = save(heatmaps([heat_map(3, 3)]), tmp_path / "first")
    changed = with_value(heat_map(3, 3), (1, 1), 0.0)
    second = save(heatmaps([changed]), tmp_path / "second")
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() != two.read_bytes()


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
    panel = with_value(heat_map(3, 3), (2, 2), np.nan)
    figure = heatmaps([dataclasses.replace(panel, cells=None)])
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


@pytest.mark.parametrize("num_points", [3, 30])
def test_free_limits_show_all_of_every_curve(num_points):
    x = np.linspace(1, 60, num_points)
    curve = Curve("a", x, 50 + x, 40 + x, 60 + x)
    figure = curves([CurvePanel([curve], "round", "accuracy %", y_limits=None)])
    left, right = figure.axes[0].get_xlim()
    low, high = figure.axes[0].get_ylim()
    assert left < 1 and right > 60
    assert low <= 41 and high >= 120


def test_predictions_are_where_they_belong_in_their_curves_colour():
    figure = curves([with_predictions(curve_panel(2))])
    (axes,) = figure.axes
    drawn = {str(line.get_label()): line for line in axes.get_lines()}
    for curve in curve_panel(2).curves:
        line = drawn[f"_{curve.label}, predicted"]
        np.testing.assert_allclose(np.asarray(line.get_ydata()), 1.1 * curve.y)
        assert line.get_transform() == axes.transData
        assert line.get_color() == drawn[curve.label].get_color()


def test_levels_cross_the_whole_panel_in_their_curves_colour():
    figure = curves([with_levels(curve_panel(2), 1.5)])
    (axes,) = figure.axes
    drawn = {str(line.get_label()): line for line in axes.get_lines()}
    for name, height in (("noise σ = 0.0", 1.5), ("noise σ = 0.1", 0.75)):
        level, curve = drawn[f"_{name}, published"], drawn[name]
        assert level.get_color() == curve.get_color()
        assert level.get_linewidth() < curve.get_linewidth()
        assert level.get_marker() == "None" and level.get_linestyle() == "-."
        ends = level.get_transform().transform(level.get_xydata())
        at = axes.transData.transform([(axes.get_xlim()[0], height)])[0, 1]
        box = axes.get_window_extent()
        np.testing.assert_allclose(ends, [[box.x0, at], [box.x1, at]])
    assert axes.get_ylim()[1] > 1.52  # The automatic limits see levels.
    names = [text.get_text() for text in figure.legends[0].get_texts()]
    assert names[:2] == ["noise σ = 0.0", "noise σ = 0.1"]  # Measured ones first.
    assert names[2:] == ["noise σ = 0.0, published", "noise σ = 0.1, published"]


@pytest.mark.parametrize(
    ("num_curves", "num_points", "filled"), [(1, 5, 1), (2, 5, 0), (2, 9, 2)]
)
def test_bands_that_would_merge_are_bars_with_caps(num_curves, num_points, filled):
    x = np.linspace(0, 1, num_points)
    lines = [Curve(f"a{i}", x, x, x - 0.2, x + 0.1) for i in range(num_curves)]
    (axes,) = curves([CurvePanel(lines, "x", "y")]).axes
    bands = [band for band in axes.collections if isinstance(band, PolyCollection)]
    assert len(bands) == filled
    caps = [line for line in axes.get_lines() if line.get_marker() == "_"]
    assert len(caps) == (2 * num_curves if num_points <= 8 else 0)
    for line in caps:
        curve = next(
            a for a in axes.get_lines() if f"_{a.get_label()}" == line.get_label()
        )
        assert to_hex(line.get_markeredgecolor()) == to_hex(curve.get_color())
        assert line.get_transform() == curve.get_transform()  # Moved aside alike.


def test_only_curves_of_one_panel_make_room_for_each_other():
    figure = curves([curve_panel(1), curve_panel(3)])
    alone, _ = figure.axes
    (line, *_) = alone.get_lines()
    true = alone.transData.transform(line.get_xydata())
    np.testing.assert_allclose(line.get_transform().transform(line.get_xydata()), true)
    places = [
        line.get_transform().transform(line.get_xydata())[0, 0]
        for line in figure.axes[1].get_lines()
        if line.get_marker() != "_"
    ]
    assert np.diff(places).min() > 1


# Tables against themselves: what is written is read back


def test_rows_survive_a_file(tmp_path):
    rows = [
        {"name": "ifca", "clients": 100, "noise": 0.1, "won": True, "cell": "8/10"},
        {"name": 'a, "b"', "clients": -3, "noise": 1 / 3, "won": False, "cell": None},
        {"name": "c\nd", "clients": 0, "noise": 1e-300, "won": True, "cell": "10/10"},
    ]
    path = tmp_path / "new" / "table.csv"
    write_csv(path, rows)
    assert read_csv(path) == rows
    write_csv(path, rows[:1])
    assert read_csv(path) == rows[:1]
    assert [entry.name for entry in path.parent.iterdir()] == ["table.csv"]


def test_every_digit_survives(tmp_path):
    values = np.random.default_rng(0).normal(size=200)
    singles = values.astype(np.float32)
    rows = [{"x": x, "y": y} for x, y in zip(values, singles, strict=True)]
    write_csv(tmp_path / "table.csv", rows)
    read = read_csv(tmp_path / "table.csv")
    assert [row["x"] for row in read] == values.tolist()
    assert [np.float32(row["y"]) for row in read] == singles.tolist()
    rounded = [float(f"{x:.15g}") for x in values]
    assert rounded != values.tolist()  # Control: 15 digits would not be enough.


def test_special_values_survive(tmp_path):
    row = {"nan": np.float32(np.nan), "inf": -math.inf, "one": np.int32(1)}
    write_csv(tmp_path / "table.csv", [row])
    (read,) = read_csv(tmp_path / "table.csv")
    assert math.isnan(read["nan"])
    assert (read["inf"], read["one"]) == (-math.inf, 1)


def test_columns_keep_their_first_order(tmp_path):
    write_csv(tmp_path / "table.csv", [{"b": 1, "a": 2}, {"c": 3, "a": 4}])
    with (tmp_path / "table.csv").open(newline="") as file:
        lines = list(csv.reader(file))
    assert lines == [["b", "a", "c"], ["1", "2", ""], ["", "4", "3"]]


def test_a_failure_leaves_the_old_file(tmp_path):
    path = tmp_path / "table.csv"
    write_csv(path, [{"a": 1}])
    with pytest.raises(ValueError, match="shape"):
        write_csv(path, [{"a": 2}, {"a": np.zeros(3)}])
    with pytest.raises(RuntimeError), replacing(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError
    assert read_csv(path) == [{"a": 1}]
    assert [entry.name for entry in tmp_path.iterdir()] == ["table.csv"]


def test_text_survives(tmp_path):
    write_text(tmp_path / "new" / "note.txt", "σ\nline\n")
    assert (tmp_path / "new" / "note.txt").read_bytes() == "σ\nline\n".encode()


@pytest.mark.parametrize(
    ("texts", "left", "said"),
    [
        (["a, b", "a, c, b", "b, a"], [None, "c", None], "rows: a, b."),
        (["a", None, "a, b"], [None, None, "b"], "rows that have one: a."),
        (["a", "b"], ["a", "b"], ""),
        (["a"], ["a"], ""),
        ([None, None], [None, None], ""),
    ],
)
def test_people_read_no_empty_columns_and_once_what_all_rows_say(texts, left, said):
    rows = [{"size": text, "other": 1} for text in texts]
    shown = concise(rows, {"size": "how large", "other": "o", "none": "n"}, once="size")
    table, _, below = shown.partition("\n\n")
    head, _, *body = table.strip().splitlines()
    assert head == ("| how large | o |" if any(left) else "| o |")
    kept = [[text or "", "1"] if any(left) else ["1"] for text in left]
    assert body == [f"| {' | '.join(own)} |" for own in kept]
    assert below.strip().removeprefix("The size of all ") == said


def test_markdown_against_a_table_written_by_hand():
    rows = [
        {"name": "a|b", "rate": 0.123456, "count": 12345},
        {"name": "c", "rate": float("nan"), "count": None},
    ]
    assert markdown(rows) == (
        "| name | rate | count |\n"
        "| --- | ---: | ---: |\n"
        "| a\\|b | 0.123 | 12345 |\n"
        "| c | nan |  |\n"
    )
    chosen = markdown(rows, {"count": "number", "name": "who"}, digits=1)
    assert chosen.splitlines()[0] == "| number | who |"


# Against misuse

SQUARE, ALONE, X = heat_map(3, 3), curve_panel(1), np.arange(3.0)
NAME = ALONE.curves[0].label
MANY = [Curve(str(i), X, X) for i in range(len(LINES) + 1)]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dataclasses.replace(SQUARE, row_values=[1, 2]), "`values`"),
        (lambda: dataclasses.replace(SQUARE, cells=[["1"]]), "`cells`"),
        (lambda: Curve("a", X, X, low=X), "`low` and `high`"),
        (lambda: CurvePanel([], "x", "y"), "`curves`"),
        *(
            (lambda level=level: dataclasses.replace(ALONE, levels=[level]), "`levels`")
            for level in (Level("b", 1.0, "absent"), Level(NAME, 1.0, NAME))
        ),
        (
            lambda: dataclasses.replace(
                ALONE, curves=[*ALONE.curves, Curve("b", X, X, like="absent")]
            ),
            "predicted curves must be like one of",
        ),
        (lambda: Level("b", float("nan"), NAME), "`value`"),
        (lambda: Level("b", 1.0, NAME, -0.1), "`half_width`"),
        (lambda: heatmaps([]), "`panels`"),
        (lambda: curves([]), "`panels`"),
        (
            lambda: curves([CurvePanel(MANY, "x", "y")]),
            "at most 7 different curves, got 8",
        ),
        (lambda: markdown([{"a": 1}], ["b"]), "`columns`"),
        (lambda: markdown([{"a": 1}], digits=0), "`digits`"),
    ],
)
def test_misuse_is_refused(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_no_rows_are_no_table(tmp_path):
    with pytest.raises(ValueError, match="`rows`"):
        write_csv(tmp_path / "table.csv", [])


# --- Pictures for a paper: one look, captions beside, nothing alike.


@pytest.mark.long
def test_formats_width_and_font_size_are_those_that_were_asked_for(tmp_path):
    panels = [curve_panel(2, f"a long title of panel {i}") for i in range(3)]
    with looking(formats=("png",), width=3.5, font_size=8):
        figure = curves(panels, title="what is drawn", legend_title="noise")
        files = save(figure, tmp_path / "a")
        assert look().font_size == 8
    assert [file.name for file in files] == ["a.png", "a.txt"]
    assert figure.get_size_inches()[0] == pytest.approx(3.5)
    with Image.open(files[0]) as picture:
        assert picture.size[0] == pytest.approx(3.5 * 160, abs=1)
    assert figure.axes[0].xaxis.label.get_fontsize() == 8
    # One below the other: side by side they would be too narrow.
    assert len({round(axes.get_position().x0, 2) for axes in figure.axes}) == 1
    assert look() == Look()  # Outside all is as before.
    width, height = figure.bbox.width, figure.bbox.height
    for text in texts(figure):
        box = text.get_window_extent()
        assert box.x0 >= -1 and box.x1 <= width + 1 and box.y1 <= height + 1


def test_a_title_is_the_caption_beside_the_picture(tmp_path):
    panels, more = [curve_panel(2)], "of 10 seeds"
    title = "is k drawn?"
    figure = curves(panels, legend_title="noise", title=title, caption=more)
    assert figure.get_suptitle() == ""
    *_, text = save(figure, tmp_path / "a")
    assert text.read_text() == "Is k drawn? Noise. Of 10 seeds.\n"
    with looking(caption=True):
        assert curves(panels, title=title).get_suptitle() == title


def test_two_curves_of_one_name_are_refused(tmp_path):
    panel = curve_panel(2)
    twice = [*panel.curves, panel.curves[0]]
    figure = curves([dataclasses.replace(panel, curves=twice)])
    with pytest.raises(ValueError, match=r"must have different names, got .* twice"):
        save(figure, tmp_path / "a")
    own = Figure()
    axes = own.subplots()
    lines = [axes.plot([0, 1], label=f"_{i}")[0] for i in range(2)]
    axes.legend(lines, ["same", "same"])
    with pytest.raises(ValueError, match="'same' twice"):
        save(own, tmp_path / "b")
    axes.legend(lines, ["one", "other"])
    assert save(own, tmp_path / "b")


def test_what_curves_are_compared_with_looks_different_in_one_colour():
    panel = curve_panel(2)
    first, second = (curve.label for curve in panel.curves)
    levels = [Level("oracle", 0.5, first), Level("paper", 0.6, first)]
    levels.append(Level("other", 0.7, second))
    figure = curves([dataclasses.replace(panel, levels=levels)])
    looks = {
        text.get_text(): (line.get_color(), str(line.get_linestyle()))
        for text, line in zip(
            figure.legends[0].get_texts(), figure.legends[0].get_lines(), strict=True
        )
    }
    assert len(set(looks.values())) == len(looks) == 5
    assert looks["oracle"][1] == looks["other"][1]  # Of two colours.


def test_zeros_missing_and_equal_curves_are_told():
    x, zero = np.arange(20.0), np.zeros(20)
    lines = [Curve("a", x, zero), Curve("b", x, zero), Curve("c", x, zero * np.nan)]
    (axes,) = curves([CurvePanel(lines, "x", "y")]).axes
    (note,) = axes.texts
    assert note.get_text() == "no value: c\nall are 0"
    widths = [line.get_linewidth() for line in axes.get_lines()]
    assert widths[0] > widths[1]  # The one below is seen on both sides.
    other = [Curve("a", x, zero), Curve("b", x, x)]
    (axes,) = curves([CurvePanel(other, "x", "y")]).axes  # Control.
    assert not axes.texts and len({line.get_linewidth() for line in axes.lines}) == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0"),
        (-0.25, "−0.25"),
        (9999.0, "9999"),
        (1e8, "$10^{8}$"),
        (-1e8, "$-10^{8}$"),
        (4.5e-5, "$4.5\\cdot 10^{-5}$"),
    ],
)
def test_numbers_are_set_as_print_has_them(value, text):
    assert number(value) == text


def test_dots_of_all_methods_say_who_has_no_value(tmp_path):
    own = np.array([[0.5, 0.4, 0.6], [np.nan] * 3, [0.7, np.nan, np.nan]])
    panels = [DotPanel(["a", "b", "c"], {"ours": own}, "accuracy", t) for t in "xy"]
    figure = dot_plot(panels, title="all methods")
    first, second = figure.axes
    assert [tick.get_text() for tick in first.get_yticklabels()] == ["a", "b", "c"]
    assert not any(tick.get_text() for tick in second.get_yticklabels())
    assert first.get_ylim() == (2.5, -0.5)
    assert [text.get_text() for text in first.texts] == ["no value"]
    (line,) = first.get_lines()
    np.testing.assert_array_equal(line.get_xdata(), own[:, 0])
    (bars,) = first.collections
    assert isinstance(bars, LineCollection)
    np.testing.assert_allclose(bars.get_segments(), [[[0.4, 0], [0.6, 0]]])
    assert not figure.legends
    with pytest.raises(ValueError, match="names, 3"):
        dataclasses.replace(panels[0], names=["a"])
