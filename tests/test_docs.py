"""The documentation's sources: statements in the order of their paper, docstrings as
they are written here. What becomes of them is for `test_docs_in_browser.py` to say."""

import pytest
from pages import docstrings, outline, pictures

from cfljax import report
from theory import registry


@pytest.fixture(scope="module")
def placed() -> dict[str, list[str]]:
    """Ids of each paper, in the order of the site."""
    rows = registry.listed()
    papers = dict.fromkeys(row.paper for row in rows)
    return {
        paper: [
            row.id
            for part in outline.parts(paper, [r for r in rows if r.paper == paper])
            for row in part.statements
        ]
        for paper in papers
    }


def test_every_statement_has_one_place(placed):
    for paper, ids in placed.items():
        own = sorted(row.id for row in registry.listed() if row.paper == paper)
        assert sorted(ids) == own


@pytest.mark.parametrize(
    "before, after",
    [
        ("ifca.alg2.line14", "ifca.asm1"),
        ("ifca.asm2", "ifca.thm1"),
        ("ifca.thm1", "ifca.claim.slowstart"),
        ("ifca.cor1", "ifca.thm2"),  # section 5.1, then 5.2
        ("ifca.thm2", "ifca.lem1.bound"),  # whose place is appendix A
        ("ifca.eq2", "ifca.eq10"),
        ("ifca.eq38", "ifca.eq40"),
        ("clove.thm42", "clove.lemA1.ortho"),
        ("clove.lemA17", "clove.table15"),
        ("werner.thm1", "werner.thm2"),
        ("werner.thm4", "werner.fig2"),
        ("werner.lem5", "werner.lem6"),
        ("werner.eq18", "werner.lem7"),  # equations stand among the lemmas
        ("werner.lem19", "werner.byz.outer_gap"),  # not in the paper
    ],
)
def test_statements_are_in_the_order_of_their_paper(placed, before, after):
    ids = placed[before.split(".")[0]]
    assert ids.index(before) < ids.index(after)


def test_a_corrected_form_follows_what_it_corrects(placed):
    for ids in placed.values():
        for name in ids:
            if f"{name}.corrected" in ids:
                between = ids[ids.index(name) : ids.index(f"{name}.corrected")]
                assert len(between) > 0


def test_a_place_without_a_label_is_refused():
    row = registry.listed()[0]
    odd = row._replace(id="ifca.odd", paper="ifca", place="somewhere else")
    with pytest.raises(ValueError, match="ifca's place 'somewhere else'"):
        outline.parts("ifca", [odd])


@pytest.mark.parametrize(
    "place, part",
    [
        ("Section 5.2, first paragraph, and Assumption 4", "Section 5.2"),
        ("Corollary 2 and Appendix D, below (39)", "Section 5.2"),
        ("Appendix A.1, the law behind (13)", "Appendix A.1"),
        ("section 6.1", "Section 6.1"),
    ],
)
def test_the_first_label_decides(place, part):
    row = registry.listed()[0]._replace(id="ifca.x", paper="ifca", place=place)
    assert [one.name for one in outline.parts("ifca", [row])] == [part]


def marked(text: str, what: str = "function") -> str:
    lines = text.splitlines()
    docstrings.as_text(None, what, "name", None, None, lines)
    return "\n".join(lines)


def test_signs_of_formulas_are_no_markup():
    assert marked("|theta_j*| of `a*b_`") == r"\|theta_j\*\| of `a*b_`"
    assert marked("all of `a\nb` and x_ too") == "all of `a b` and x\\_ too"


def test_an_indented_block_is_an_example():
    assert marked("See\n\n    run(*a)\n\nthen") == "See\n\n::\n\n    run(*a)\n\nthen"
    section = "Args:\n  x: first\n\n    more"
    assert marked(section) == section


def test_fields_of_a_class_are_attributes():
    text = "A cell.\n\nindex: where\n  it is.\ntrial: what."
    expected = "A cell.\n\nAttributes:\n  index: where\n    it is.\n  trial: what."
    assert marked(text, "class") == expected
    assert marked(text) == text


def test_data_has_not_the_docstring_of_its_type():
    assert marked("dict() -> new empty dictionary", "data") == ""


def test_signatures_have_public_names():
    def shown(text: str, result: str | None = None):
        return docstrings.as_signature(None, "function", "f", None, None, text, result)

    arrays = "(x: Num[jaxlib._jax.Array, 'clients'])", "jaxlib._jax.Array"
    assert shown(*arrays) == ("(x: Num[Array, 'clients'])", "Array")
    key = "~jaxtyping.Key[jaxlib._jax.Array, ''] | "
    key += " | ".join(f"~jaxtyping.UInt32[jaxlib._jax.Array, '{n}']" for n in (2, 4))
    assert shown(f"(key: {key}, n: int)") == ("(key: PRNGKeyArray, n: int)", None)
    default = "(f: ~collections.abc.Callable[[~typing.Any], ~a.b.C] = <function sgd>)"
    assert shown(default) == ("(f: Callable[[Any], C] = sgd)", None)


def test_pictures_of_findings_show_a_violation_and_where_there_is_none():
    steps, clients = (
        report.read_csv(pictures.FOLDER / f"{name}.csv") for name in pictures.PICTURES
    )
    by_share = {
        share: [
            row["violated"]
            for row in steps
            if (row["c1"], row["share"]) == ("¼", share) and row["round"] <= 2
        ]
        for share in (0.1, 0.9)
    }
    assert by_share == {0.1: [0, 0, 0], 0.9: [0, 1, 1]}
    claimed = [row for row in clients if row["is_claimed"]]
    assert {row["violated"] for row in claimed if row["n"] == 80} == {1}
    assert {row["violated"] for row in claimed if row["n"] == 320} == {0}


@pytest.mark.slow
def test_pictures_of_findings_are_simulated():
    for row in pictures.more_clients(trials=20, clients=(3000,)):
        assert row["violated"] == (row["n"] == 80)
    rows = pictures.one_step_size(trials=20)
    committed = report.read_csv(pictures.FOLDER / "ifca.thm1.csv")
    for row, known in zip(rows, committed, strict=True):
        assert row["median"] == pytest.approx(known["median"], rel=0.01)
        assert row["violated"] == known["violated"]
