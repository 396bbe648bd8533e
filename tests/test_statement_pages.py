"""What a statement's page and its file say of evidence, fault, proof and parameters."""

import dataclasses
import json
import pathlib
import re

import numpy as np
import pytest
import sympy
from toy_theory import QUICK, build, faults, register, toy

from cfljax.statements import (
    Constant,
    Evaluation,
    Grade,
    Parameter,
    Status,
    exact,
    identity,
    nonnegative,
    run,
    site,
)
from cfljax.statements.site.written import rendered
from theory import __main__ as command
from theory import registry

WRITTEN = """# Proof of $x \\le y$

By $\\frac{a}{b} \\le c_1$, and at 5$ and 6$ a piece, with `$code$`:

$$\\sum_{i=1}^n x_i = \\sqrt{n}$$

| case | bound |
|---|---|
| one | $\\alpha^2$ |

<script>alert(1)</script>
"""


def prove(factor=1):
    r"""For all $x > 0$, since $\sqrt{x}^2 = x$:

    $\sqrt{x}^2 \le x$

    Args:
      factor: of the right side.
    """
    x = sympy.Symbol("x", positive=True)
    return [
        identity(r"$\sqrt{x}^2 = x$", sympy.sqrt(x) ** 2 - factor * x),
        nonnegative(r"$x^2 \ge 0$", lambda x: x * x, {"x": (1, 2)}),
    ]


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    written = tmp_path_factory.mktemp("written") / "root.md"
    written.write_text(WRITTEN)
    evaluation = Evaluation(
        quantity="$P(x_1 > t)$",
        parameters=(
            Parameter("n", "samples", 20, least=1),
            Parameter("t", "threshold", 0.5, 0, 1, open=True),
        ),
        bound=lambda n, t, c: c / (n * t),
        truth=lambda n, t: exact(0.1 / n),
        constants={"c": Constant(2.0, 1.5, 2.0, "certified")},
    )
    return (
        toy("toy.read", status=Status.VIOLATED, expected=Status.VIOLATED,
            fault="reading", other_reading="toy.read.true"),
        toy("toy.read.true", grade=Grade.SAMPLED, proof=prove,
            proof_control=lambda: prove(2), evaluation=evaluation,
            written_proof=str(written)),
        toy("toy.loose", grade=Grade.NOMINAL),
        toy("toy.unproved", grade=Grade.EXACT, proof=lambda: prove(3),
            proof_control=prove),
    )  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory, rows):
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        register(patch, *rows)
        build(folder, rows, known=rows)
    return folder


def text_of(folder, page: str) -> str:
    text = (folder / page).read_text(encoding="utf-8")
    text = re.sub(r"</(td|th|dt|dd|figcaption|h1|h2|h3|p|li)>", " ", text)
    return " ".join(re.sub(r"<[^>]*>", "", text).split())


@pytest.mark.long
def test_whose_fault_it_is_leads_to_the_other_reading(folder):
    text = text_of(folder, "statements/toy.read.html")
    assert "false as read here: another reading is true. The other reading: " in text
    assert "The other reading: toy.read.true holds" in text
    assert "control holds, as it must be" in text
    assert "true: it must hold, or the check would find fault with anything" in text
    other = text_of(folder, "statements/toy.read.true.html")
    assert "The reading that is true of toy.read violated" in other
    assert "control violated, as it must be" in other
    assert faults(folder) == []


def test_evidence_and_nominal_rates_are_named(folder):
    text = text_of(folder, "statements/toy.read.true.html")
    assert "holds as expected proved control" in text
    assert "evidence proved sampled, finite-sample" in text
    loose = text_of(folder, "statements/toy.loose.html")
    assert "error rate 1 × 10−6 (nominal) 1 × 10−6 (nominal)" in loose
    assert "(nominal)" not in text.split("resolution")[0].split("error rate 1")[1][:12]


def test_a_loose_bound_is_said_to_be(tmp_path):
    loose = toy("toy.loose")
    check = loose.check
    for slack, said in ((1.5, "Loose by at least 31.62"), (0.9, ""), (400.0, "10400")):
        row = dataclasses.replace(
            loose, check=lambda p, s=slack: dataclasses.replace(check(p), slack=s)
        )
        page = site.write_page(run(row), tmp_path / "page.html")
        text = text_of(tmp_path, page.name)
        assert ("Loose by at least" in text) == bool(said) and said in text


def test_the_reported_point_has_its_coordinates(folder):
    text = text_of(folder, "statements/toy.loose.html")
    assert re.search(r"the reported point n = 0, share = 0\.\d+, law = t ", text)


def test_a_proof_is_shown_with_its_steps_and_control(folder):
    text = text_of(folder, "statements/toy.read.true.html")
    assert "For all x&gt;0, since x2=x:" in text and "factor" not in text
    assert "x2=x algebra holds the difference simplifies to 0" in text
    assert "x2≥0 balls holds" in text
    assert "a claim that is false: a step fails, as it must." in text
    broken = text_of(folder, "statements/toy.unproved.html")
    assert "algebra fails left over: -2*x" in broken
    assert "no step fails, where one must." in broken
    assert "surprise" in broken


def test_parameters_are_listed_with_a_command(folder):
    text = text_of(folder, "statements/toy.read.true.html")
    assert "n samples 20 an integer of at least 1" in text
    assert "t threshold 0.5 a number above 0 and below 1" in text
    assert "c a constant, certified, the best in [1.5, 2] 2" in text
    assert "python -m theory evaluate toy.read.true --sweep n=2:200:9" in text


def test_the_written_proof_is_a_page(folder):
    text = (folder / "proofs" / "toy" / "root.html").read_text()
    assert "<h1>Proof of <math" in text and "<mfrac>" in text and "<msqrt>" in text
    assert "<code>$code$</code>" in text and "5$ and 6$ a piece" in text
    assert "<td><math" in text and "&lt;script&gt;" in text and "<script>" not in text
    assert 'display="block"' in text
    assert "What it proves toy.read.true holds" in text_of(
        folder, "proofs/toy/root.html"
    )
    link = (folder / "statements" / "toy.read.true.html").read_text()
    assert 'href="../proofs/toy/root.html"' in link


def test_a_written_proof_that_is_not_there_is_refused(tmp_path):
    lost = toy("toy.lost", written_proof="lost.md")
    with pytest.raises(ValueError, match="`written_proof` must name a file"):
        build(tmp_path, (lost,))


def test_what_is_no_formula_stays_as_it_is():
    assert "costs $x and no more" in rendered("costs $x and no more")
    with pytest.raises(ValueError, match=r"must be LaTeX, got \$\\left\( x\$"):
        rendered(r"$\left( x$")


def test_a_page_of_its_own_needs_no_other_file(tmp_path, rows):
    site.write_page(run(rows[1]), tmp_path / "page" / "alone.html")
    text = (tmp_path / "page" / "alone.html").read_text()
    assert faults(tmp_path / "page") == []
    assert "<h3>Proof of <math" in text and "data:image/svg+xml" in text
    assert "href" not in re.sub(r'href="(#main|data:)[^"]*"', "", text)


def test_a_file_has_all_that_was_found_and_is_read_back(folder, rows, tmp_path):
    kept = list(site.kept(rows, QUICK, tmp_path / "kept", sources="x"))
    read = list(site.kept(rows, QUICK, tmp_path / "kept", sources="x"))
    for one, other in zip(kept, read, strict=True):
        assert one.is_new and not other.is_new
        assert repr(one.outcome.proof) == repr(other.outcome.proof)
        assert one.outcome.verdict.grade is other.outcome.verdict.grade
        points, again = (r.outcome.verdict.points for r in (one, other))
        assert points is not None and again is not None
        for part in ("bounds", "low", "high"):
            np.testing.assert_array_equal(getattr(points, part), getattr(again, part))
        for name, values in points.coordinates.items():
            assert again.coordinates[name].tolist() == values.tolist()
            assert again.coordinates[name].dtype.kind == values.dtype.kind
    found = json.loads((folder / "data" / "toy.read.json").read_text())
    assert found["fault"] == "reading" and found["other_reading"] == "toy.read.true"
    assert found["control_expected"] == "holds"
    proved = json.loads((folder / "data" / "toy.read.true.json").read_text())
    assert proved["verdict"]["grade"] == "proved" and proved["proof"]["complete"]
    assert proved["evaluation"]["parameters"][0]["default"] == 20


def test_check_prints_every_point_with_its_coordinates(rows, monkeypatch, capsys):
    register(monkeypatch, *rows)
    assert command.main(["check", "toy.loose", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["statements"]
    points = found["verdict"]["points"]
    assert len(points["bounds"]) == len(points["low"]) == len(points["high"]) == 7
    assert points["coordinates"]["n"] == list(range(7))
    assert points["coordinates"]["law"] == ["t"] * 7
    assert len(found["control"]["points"]["bounds"]) == 7


def test_the_index_counts_classes_and_evidence(folder):
    text = text_of(folder, "index.html")
    classes = "false as printed false as read here a misprint ours toy 0 1 0 0"
    assert classes in text
    grades = (
        "proved exact law on a grid searched sampled, finite-sample sampled, nominal"
    )
    assert f"{grades} toy 1 1 0 0 2" in text


@pytest.mark.slow
def test_written_proofs_of_the_papers_are_there_and_convert():
    for row in registry.listed():
        if row.written_proof:
            folder = pathlib.Path(registry.__file__).parent / row.paper
            text = (folder / row.written_proof).read_text(encoding="utf-8")
            assert "<math" in rendered(text), row.id
