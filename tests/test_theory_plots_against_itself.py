"""Plots and formulas of the report: what is shown is what was measured."""

import math
import warnings

import numpy as np
import pytest
from matplotlib.figure import Figure
from report_site import QUICK, toy

from theory.report import axes_scale, plot
from theory.report.points import Series, prepare
from theory.report.typeset import typeset
from theory.verdict import Points, Status, Verdict


def series(points: Points, status: Status = Status.HOLDS, **fields) -> Series:
    """The drawable points of a verdict with these points."""
    verdict = Verdict("toy.a", status, 0.5, (0.0, 1.0), 1e-6, 10, 0.1, points=points)
    found = prepare(verdict, **fields)
    assert found is not None
    return found


def line(bounds, low, high=None, **fields) -> Points:
    """Points from lists."""
    bounds, low, high = (np.array(part, float) for part in (bounds, low, high or low))
    return Points(bounds, low, high, **fields)


def drawn(figure: Figure, name: str) -> np.ndarray:
    """`[points, 2]`, where the legend's entry stands in the axes."""
    (axes,) = figure.axes
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert name in names, names
    wanted = {"truth": "o", "truth, violating": "X"}[name]
    places = [
        artist.get_xydata()
        for artist in axes.get_lines()
        if artist.get_marker() == wanted and artist.get_color() not in ("#7f7f7f",)
        if artist.get_markerfacecolor() != "none"
    ]
    return np.concatenate(places)


def test_violations_are_those_of_the_points():
    points = line([1, 2, 3, 4], [0.5, 2.5, 3.0, 3.0], [0.7, 2.6, 3.2, 5.0])
    assert series(points, Status.VIOLATED).violated.tolist() == [0, 1, 0, 0]
    assert not series(points, Status.HOLDS).violated.any()
    equal = points._replace(kind="equal")
    assert series(equal, Status.VIOLATED).violated.tolist() == [1, 1, 0, 0]
    band = points._replace(kind="band", upper=points.bounds + 1)
    assert series(band, Status.VIOLATED).violated.tolist() == [1, 0, 0, 0]


def test_a_violation_too_small_to_see_is_still_marked():
    points = line([1.0, 1.0], [1.0 - 1e-13, 1.0 + 1e-13])
    assert series(points, Status.VIOLATED).violated.tolist() == [0, 1]


def test_logarithms_become_decades():
    points = line([-np.log(1000)], [-np.log(10**6)], scale="log")
    found = series(points)
    np.testing.assert_allclose([found.bounds[0], found.low[0]], [-3, -6], rtol=1e-14)


def test_points_without_a_place_are_counted():
    nan, inf = math.nan, math.inf
    points = line([1, nan, inf, 2, 3], [0, 0, 0, nan, -inf], [1, 1, 1, nan, 3])
    found = series(points)
    assert found.bounds.tolist() == [1, 3] and found.undrawable == 3
    assert found.truth.tolist() == [0.5, 3.0]  # the end that is finite
    verdict = Verdict("toy.a", Status.HOLDS, 0.5, (0.0, 1.0), 0.0, 10, 0.1)
    assert prepare(verdict) is None
    band = line([-inf], [1.0], kind="band", upper=np.array([2.0]))
    assert series(band).bounds.tolist() == [-inf]


def test_few_of_many_points_are_those_that_tell_most():
    count = 20_000
    bounds = np.linspace(1, 1000, count)
    low = 0.1 * bounds
    low[[17, 9000]] = 3 * bounds[[17, 9000]]  # violations
    low[1234] = bounds[1234]  # the tightest of the others
    points = Points(bounds, low, low)
    verdict = Verdict(
        "toy.a", Status.VIOLATED, bounds[5], (low[5], low[5]), 0.0, count, 0.0
    )
    verdict = Verdict(**{**vars(verdict), "points": points})
    found = prepare(verdict)
    assert found is not None and len(found.bounds) == 400
    assert found.total == count and found.undrawable == 0
    for index in (17, 9000, 1234, 5):
        assert bounds[index] in found.bounds
    assert found.violated.sum() == 2
    assert found.bounds[found.reported] == bounds[5]
    assert np.all(np.diff(found.bounds) > 0)
    gaps = np.diff(np.unique(found.bounds))
    assert gaps.max() < 10 and found.bounds[-1] == 1000  # even over the rest


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1.0, 5.0], "linear"),
        ([1.0, 50.0], "log"),
        ([0.0, 50.0], "linear"),
        ([-1.0, 1.0, 1.5], "linear"),
        ([-1e5, 1e-3, 1.0, 2.0, 1e5], "symlog"),
    ],
)
def test_scales_follow_the_numbers(values, kind):
    assert axes_scale.choose([series(line(values, values))]).kind == kind


@pytest.mark.parametrize(("lowest", "kind"), [(-40.0, "linear"), (-1e6, "symlog")])
def test_scales_of_decades(lowest, kind):
    scale = axes_scale.choose([series(line([lowest, -1], [lowest, -1], scale="log"))])
    assert scale.kind == kind and scale.powers


@pytest.mark.parametrize("kind", ["linear", "log", "symlog"])
def test_scales_lead_there_and_back(kind):
    scale = axes_scale.Scale(kind, threshold=0.1)
    values = np.array([1e-3, 0.05, 0.1, 3.0, 1e4])
    values = values if kind == "log" else np.concatenate([-values[::-1], [0], values])
    places = scale._place(values)
    assert np.all(np.diff(places) > 0)
    np.testing.assert_allclose(scale._number(places), values, rtol=1e-12)
    low, high = scale.limits(values)
    assert low < values[0] and values[-1] < high


@pytest.mark.parametrize("scale", ["number", "log"])
@pytest.mark.parametrize("status", [Status.HOLDS, Status.VIOLATED])
def test_a_bound_is_drawn_on_its_side_of_the_diagonal(status, scale):
    row = toy(status=status, expected=status, scale=scale)
    check, control = prepare(row.check(QUICK)), prepare(row.control(QUICK))
    assert check is not None
    drawing = plot.draw(check, control)
    assert drawing.layout == "diagonal" and drawing.control_drawn
    places = drawn(drawing.figure, "truth")
    assert np.all(places[:, 1] < places[:, 0])
    assert len(places) == 7 - (status is Status.VIOLATED)
    if status is Status.VIOLATED:
        ((claim, truth),) = drawn(drawing.figure, "truth, violating")
        assert truth > claim


def test_other_claims_are_drawn_in_a_row():
    rows = (toy(kind="band"), toy(kind="equal", count=1), toy(count=2))
    for row in rows:
        check = prepare(row.check(QUICK))
        assert check is not None
        drawing = plot.draw(check, prepare(row.control(QUICK)))
        assert drawing.layout == "row"
        places = drawn(drawing.figure, "truth")
        np.testing.assert_allclose(places[:, 0], np.arange(len(check.bounds)))
        np.testing.assert_allclose(places[:, 1], check.truth)


def test_a_control_of_another_kind_is_left_out():
    check, control = (
        prepare(toy(kind=kind).check(QUICK)) for kind in ("bound", "equal")
    )
    assert check is not None
    assert not plot.draw(check, control).control_drawn
    assert not plot.draw(check, None).control_drawn


AWKWARD = {
    "infinite intervals": line([1, 2, 3], [-math.inf, 1, 1], [1, math.inf, 2]),
    "nothing seen": line([0.1, 1e-3, 1e-6], [0, 0, 0], [1e-3, 1e-5, 1e-7]),
    "all alike": line([0.0, 0.0], [0.0, 0.0]),
    "one point": line([3.0], [2.0]),
    "both signs": line([-1e4, 1e-3, 1, 1, 1e5], [-1e5, 1e-4, 1, 0, 1]),
    "half a band": line([1], [2], kind="band", upper=np.array([math.inf])),
    "deep decades": line([-1e7, -5.0, -1.0], [-2e7, -6.0, -1.0], scale="log"),
    "one decade": line([-1.0, -1.1, -1.2], [-1.3, -1.4, -1.5], scale="log"),
    "tiny": line([1e-300, 2e-300, 3e-300], [1e-301, 1e-300, 1e-300]),
    "huge": line([1e300, 1e305, 2e305], [1e299, 1e300, 1e300]),
}


@pytest.mark.parametrize("name", AWKWARD)
def test_awkward_points_can_be_drawn(name, tmp_path):
    for status in (Status.HOLDS, Status.VIOLATED):
        found = series(AWKWARD[name], status)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            drawing = plot.draw(found, found)
            plot.save_svg(drawing.figure, tmp_path / f"{status.value}.svg")
        text = (tmp_path / f"{status.value}.svg").read_text()
        assert "<svg" in text and "nan" not in text


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("theta_j* <= c1", "θ<sub>j</sub>* ≤ c<sub>1</sub>"),
        ("E_i^{j,j'} -> 0", "E<sub>i</sub><sup>j,j′</sup> → 0"),
        ("sqrt(d/n') != sqrt d", "√(d/n′) ≠ √d"),
        ("(alpha rho)^2 e^{-d/2}", "(α ρ)<sup>2</sup> e<sup>−d/2</sup>"),
        ("||X'eps||_op, X'X", "‖X′ε‖<sub>op</sub>, X′X"),
        ("thetahat_j and gammahat", "θ̂<sub>j</sub> and γ̂"),
        ("a < b & c", "a &lt; b &amp; c"),
        ("`theory check a_b`", "<code>theory check a_b</code>"),
        ("'a power of p', n'", "‘a power of p’, n′"),
        ("(x)' y', 'alpha' n'", "(x)&#39; y′, ‘α’ n′"),
        ("grad F_i, grad f", "∇F<sub>i</sub>, ∇f"),
        (
            "S_1 cap S_1* with a cap on R",
            "S<sub>1</sub> ∩ S<sub>1</sub>* with a cap on R",
        ),
        ("max_j p_max", "max<sub>j</sub> p<sub>max</sub>"),
        # Left alone: words, genitives, names, what could be read in two ways.
        ("What that is, a client's n's", "What that is, a client&#39;s n&#39;s"),
        ("num_clients snake_case float32", "num_clients snake_case float32"),
        ("n^-1/5 and 1e-6", "n^-1/5 and 1e-6"),
        ("graduate maximum alphabet", "graduate maximum alphabet"),
    ],
)
def test_claims_are_set(text, html):
    assert typeset(text) == html


def test_numbers_too_small_to_be_normal_have_a_place():
    points = line([1.0, 1e-310], [1e-322, 1e-320])
    assert axes_scale.choose([series(points)]).kind == "log"
    low, high = axes_scale.Scale("log").limits(points.low)
    assert np.finfo(float).tiny <= low < high
    plot.draw(series(points), None).figure.canvas.draw()
