"""A claim over its parameters, drawn: against the numbers that it was drawn from."""

import math

import matplotlib.collections
import numpy as np
import pytest
from matplotlib.figure import Figure

from cfljax import report
from cfljax.statements import (
    Evaluation,
    Margin,
    Parameter,
    Simulation,
    evaluate,
    exact,
    figure,
)

HEADS = Evaluation(
    quantity="P(all heads)",
    parameters=(Parameter("n", "tosses", 10), Parameter("p", "chance of heads", 0.5)),
    bound=lambda n, p: math.exp(-n * (1 - p)),
    truth=lambda n, p: exact(p**n),
    margins=lambda n, p: (Margin("n >= 5", n, 5),),
)
FAIR = Evaluation(
    quantity="P(heads)",
    parameters=(Parameter("p", "chance of heads", 0.5),),
    bound=lambda p: 0.5,
    truth=Simulation(lambda rng, k, p: rng.random(k) < p, lambda p: 1),
)


def names(drawn: Figure) -> list[str]:
    (legend,) = drawn.legends
    return [text.get_text().replace("\n", " ") for text in legend.get_texts()]


def lines(drawn: Figure) -> list[np.ndarray]:
    return [np.asarray(line.get_xydata()) for line in drawn.axes[0].get_lines()]


def test_bound_and_truth_are_where_the_numbers_are():
    data = evaluate(HEADS, sweep={"n": [30, 1, 10, 5]})
    data.attrs["title"] = "a claim"
    drawn = figure(data)
    dotted, bound, truth = lines(drawn)
    n = np.array([1.0, 5.0, 10.0, 30.0])
    np.testing.assert_allclose(dotted, np.transpose([n, np.exp(-n / 2)]))
    np.testing.assert_allclose(bound[1:], dotted[1:])
    assert np.isnan(bound[0, 1])  # nothing is claimed there
    np.testing.assert_allclose(truth, np.transpose([n, 0.5**n]))
    (axes,) = drawn.axes
    assert axes.get_yscale() == "log" and axes.get_xscale() == "linear"
    assert axes.get_xlabel() == "tosses (n)" and axes.get_ylabel() == "P(all heads)"
    assert drawn.get_suptitle() == "a claim\np = 0.5"
    assert "nothing is claimed without n >= 5" in names(drawn)
    (shade,) = axes.patches
    ends = shade.get_path().get_extents(shade.get_patch_transform())
    assert ends.x0 < 1 and ends.x1 == 3


def test_a_second_parameter_is_named_beside_its_lines():
    data = evaluate(HEADS, sweep={"n": range(5, 40), "p": [0.5, 0.1, 0.9]})
    (axes,) = figure(data).axes
    *labels, name = [text.get_text() for text in axes.texts]
    assert labels == ["p = 0.5", "p = 0.1", "p = 0.9"]
    assert name == "chance of heads"
    heights = [text.get_position()[1] for text in axes.texts[:-1]]
    assert heights[1] < heights[0] < heights[2]
    assert min(np.diff(sorted(heights))) > 0.04
    colours = [line.get_color() for line in axes.get_lines()]
    assert len(set(colours)) == 3 and not axes.patches


def test_labels_at_one_height_are_kept_apart():
    data = evaluate(HEADS, sweep={"n": [5, 6], "p": [0.5, 0.5001, 0.5002, 0.5003]})
    heights = sorted(text.get_position()[1] for text in figure(data).axes[0].texts[:-1])
    assert min(np.diff(heights)) > 0.04 and heights[0] >= 0 and heights[-1] <= 1


def test_intervals_and_violations_are_seen():
    drawn = figure(evaluate(FAIR, sweep={"p": [0.1, 0.4, 0.9]}, trials=2000))
    assert names(drawn)[1:] == [
        "truth, sampled: interval of 0.999999 in all",
        "claim violated",
    ]
    (violated,) = lines(drawn)[2:]
    assert violated[:, 0].tolist() == [0.9]
    kinds = [type(one) for one in drawn.axes[0].collections]
    assert matplotlib.collections.FillBetweenPolyCollection in kinds
    assert matplotlib.collections.LineCollection in kinds


def test_logarithms_are_drawn_as_what_they_stand_for():
    deep = Evaluation(
        quantity="P(tail)",
        parameters=(Parameter("n", "samples", 10),),
        bound=lambda n: -0.4 * n,
        truth=lambda n: exact(-0.5 * n),
        logarithmic=True,
    )
    _, truth = lines(figure(evaluate(deep, sweep={"n": [1, 10]})))
    np.testing.assert_allclose(truth[:, 1], np.exp([-0.5, -5.0]))
    _, truth = lines(figure(evaluate(deep, sweep={"n": [1, 10_000]})))
    np.testing.assert_allclose(truth[:, 1], np.array([-0.5, -5e3]) / math.log(10))


def test_what_cannot_be_drawn_is_refused():
    with pytest.raises(ValueError, match="one or two parameters, got none"):
        figure(evaluate(HEADS))
    with pytest.raises(ValueError, match="at most 7 values of p, got 8"):
        figure(evaluate(HEADS, sweep={"n": [1], "p": np.linspace(0.1, 0.9, 8)}))


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 0.0])
@pytest.mark.parametrize("truth", [0.0, 1e-300, math.nan])
@pytest.mark.parametrize("n", [[5], [1, 5]])
def test_odd_numbers_can_be_drawn(number, truth, n):
    odd = Evaluation(
        quantity="x",
        parameters=(Parameter("n", "", 1),),
        bound=lambda n: number,
        truth=lambda n: exact(truth),
    )
    data = evaluate(odd, sweep={"n": n})
    if np.isfinite([number, truth]).any():
        figure(data).canvas.draw()
    else:
        with pytest.raises(ValueError, match="a finite number"):
            figure(data)


@pytest.mark.long
def test_the_figure_is_saved_as_any_other(tmp_path):
    data = evaluate(HEADS, sweep={"n": range(1, 9), "p": [0.2, 0.4]})
    files = report.save(figure(data), tmp_path / "claim")
    again = report.save(figure(data), tmp_path / "again")
    assert [file.suffix for file in files] == [".svg", ".pdf", ".png"]
    assert [f.read_bytes() for f in files] == [f.read_bytes() for f in again]
