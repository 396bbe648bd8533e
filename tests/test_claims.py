"""Claims of one's own: against known laws, and the tutorial as it is printed."""

import functools
import math
import pathlib
import re

import numpy as np
import pytest
from toy_theory import faults

import cfljax as cfl
from cfljax.statements import (
    Grade,
    Margin,
    Parameter,
    Preset,
    Status,
    Truth,
    claim,
    evaluate,
    run,
)

TUTORIAL = pathlib.Path(__file__).parents[1] / "docs" / "own_theorem.md"
GRID = {"n": [1, 2, 5], "p": [0.1, 0.3]}


def heads(generator, trials, n, p):
    """Whether any of n coins shows heads."""
    return (generator.random((trials, n)) < p).any(axis=1)


def share(generator, trials, n, p):
    """Of heads among n coins."""
    return (generator.random((trials, n)) < p).mean(axis=1)


union = functools.partial(
    claim,
    id="mine.union",
    text="P(any heads) <= n p",
    bound=lambda n, p: n * p,
    grid=GRID,
    control=0.8,
)
known = functools.partial(union, truth=lambda n, p: law(n, p))


def test_a_known_law_decides_exactly():
    outcome = run(known())
    assert outcome.as_expected
    verdict = outcome.verdict
    assert verdict.grade is Grade.EXACT and verdict.num_trials == 6
    assert verdict.slack == pytest.approx(0.0, abs=1e-9)  # one coin
    assert verdict.points is not None
    assert verdict.points.coordinates["n"].tolist() == [1, 1, 2, 2, 5, 5]
    assert verdict.points.coordinates["p"].tolist() == [0.1, 0.3] * 3
    np.testing.assert_allclose(verdict.points.bounds, [0.1, 0.3, 0.2, 0.6, 0.5, 1.5])


def law(n, p):
    return 1 - (1 - p) ** n


@pytest.mark.parametrize(
    ("relation", "bound", "control"),
    [
        ("<=", lambda n, p: 1.3 * n * p, lambda n, p: p),
        (">=", lambda n, p: p, 2.5),
        ("=", law, 2.0),
    ],
)
@pytest.mark.parametrize(
    ("truth", "grade"),
    [
        ({"truth": law}, Grade.EXACT),
        ({"truth": lambda n, p: Truth(law(n, p), law(n, p), Grade.SEARCHED)},
         Grade.SEARCHED),
        ({"sampler": heads}, Grade.SAMPLED),
        ({"sampler": heads, "support": (0, 1)}, Grade.SAMPLED),
    ],
    ids=["law", "searched", "events", "numbers"],
)  # fmt: skip
def test_every_relation_is_judged_by_every_kind_of_evidence(
    relation, bound, control, truth, grade
):
    grid = {"n": [2, 5], "p": [0.1, 0.3]}
    made = union(relation=relation, bound=bound, control=control, grid=grid, **truth)
    outcome = run(made)
    assert outcome.as_expected, (outcome.verdict, outcome.control)
    assert outcome.verdict.grade is grade


def test_a_false_claim_is_found_out():
    false = known(bound=lambda n, p: 0.9 * n * p, control=2.0, expected=Status.VIOLATED)
    outcome = run(false)
    assert outcome.verdict.status is Status.VIOLATED and outcome.as_expected
    assert not run(known(control=1.0)).as_expected  # a control that is no control


def test_the_mean_of_bounded_numbers_is_judged_by_betting():
    made = union(bound=lambda n, p: 1.3 * p, control=0.6, sampler=share, support=(0, 1))
    outcome = run(made, Preset("quick", 3))
    assert outcome.as_expected and outcome.verdict.grade is Grade.SAMPLED
    assert outcome.verdict.num_trials == 60_000


def test_logarithms_are_compared_as_such():
    made = union(
        bound=lambda n, p: n * math.log(2 * p),
        truth=lambda n, p: n * math.log(p),
        control=0.4,
        logarithmic=True,
    )
    outcome = run(made)
    assert outcome.as_expected
    assert outcome.verdict.slack == pytest.approx(math.log10(2))
    assert outcome.control.slack == pytest.approx(math.log10(0.8))


def test_points_without_their_preconditions_are_left_out():
    made = known(margins=lambda n, p: (Margin("n p <= 1", n * p, 1, at_least=False),))
    outcome = run(made)
    assert outcome.as_expected and outcome.verdict.num_trials == 5
    (margin,) = outcome.margins
    assert margin.value == pytest.approx(0.4)  # at n p = 0.6
    data = evaluate(made, n=5, p=0.3)
    assert str(data.verdict.values) == "not claimed here"


def test_it_is_evaluated_at_other_parameters():
    made = known(meanings={"n": "coins", "p": Parameter("p", "of heads", 0.5, 0, 1)})
    assert made.evaluation is not None
    assert made.evaluation.quantity == "P(any heads)"
    data = evaluate(made, sweep={"n": [1, 10]})
    assert data.n.attrs["long_name"] == "coins" and float(data.p) == 0.5
    np.testing.assert_allclose(data.truth, [0.5, 1 - 0.5**10])
    with pytest.raises(ValueError, match="`p` must be"):
        evaluate(made, p=1.5)


def test_what_is_no_claim_is_refused():
    with pytest.raises(ValueError, match=r"`truth` or `sampler` .* got neither"):
        union()
    with pytest.raises(ValueError, match=r"`truth` or `sampler` .* got both"):
        known(sampler=heads)
    with pytest.raises(ValueError, match="`grid` must give each parameter a value"):
        known(grid={"n": []})
    with pytest.raises(ValueError, match="a point at which the claim is made"):
        known(margins=lambda n, p: (Margin("n >= 9", n, 9),))


def blocks() -> list[str]:
    return re.findall(r"```python\n(.*?)```", TUTORIAL.read_text(), flags=re.S)


@pytest.mark.long
def test_the_tutorial_does_what_it_says(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "tutorial"}
    for block in blocks():
        exec(compile(block, str(TUTORIAL), "exec"), names)
    printed = re.findall(r"print\(.*\)  # (.*)", TUTORIAL.read_text())
    assert capsys.readouterr().out.splitlines() == printed
    assert len(printed) == 2
    page = (tmp_path / "dkw.html").read_text()
    assert "holds" in page and "data:image/svg+xml" in page and "<math>" in page
    assert {p.suffix for p in tmp_path.glob("dkw.*")} >= {".svg", ".pdf", ".png"}


def test_a_theorem_takes_at_most_fifteen_lines():
    first = next(block for block in blocks() if "statements.claim(" in block)
    lines = [line for line in first.splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.long
def test_a_site_of_one_s_own(tmp_path):
    rows = [known(), known(id="mine.again", note="`p` is small")]
    index = cfl.statements.write_report(rows, tmp_path / "site")
    assert index == tmp_path / "site" / "index.html"
    assert faults(tmp_path / "site") == []
    cfl.statements.write_page(run(rows[0]), tmp_path / "alone" / "union.html")
    assert faults(tmp_path / "alone") == []
    text = index.read_text()
    assert "mine.again" in text and "2 of 2 statements" in text
