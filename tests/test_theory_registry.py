"""The registry: statements, errata, and what is told of them without importing."""

import dataclasses
import importlib
import re
import subprocess
import sys

import pytest
from toy_theory import ERRATA, ROWS, register

from cfljax.statements import SEVERITIES, Status
from theory import registry
from theory.registry import all_errata, all_statements, described, listed

# Statements, against themselves.


def test_ids_are_unique_and_rows_complete():
    rows = all_statements()
    ids = {row.id for row in rows}
    assert len(ids) == len(rows)
    for row in rows:
        assert row.place and row.text and row.preconditions, row.id
        assert re.fullmatch(r"\w+(\.\w+)+", row.id), "can be the name of a file"
        if row.expected is Status.VIOLATED:
            assert f"{row.id}.corrected" in ids, row.id


def test_selection_goes_down_the_dots():
    def ids(*names: str, paper: str | None = None) -> list[str]:
        return [row.id for row in registry.select(names, paper=paper)]

    lemma = ["bound", "sharp", "stronger", "union"]
    assert ids("ifca.lem1") == [f"ifca.lem1.{part}" for part in lemma]
    assert ids("ifca.eq2") == ["ifca.eq2", "ifca.eq2.corrected"]
    assert ids("ifca.eq2.corrected") == ["ifca.eq2.corrected"]
    every = [name for name in ids() if name.startswith("ifca.")]
    assert ids("ifca.eq2", "ifca") == ids(paper="ifca") == every
    for wrong in ("ifca.lem", "ifca.eq", "", "ifca."):
        with pytest.raises(KeyError):
            registry.select([wrong])
    with pytest.raises(KeyError):
        registry.select(paper="nobody")


def test_nearest_names_resemble():
    assert registry.nearest("ifca.lemma1")[0] == "ifca.lem1"
    assert len(registry.nearest("zzz")) == 3


def test_papers_have_titles():
    assert registry.paper_title("ifca").startswith("Ghosh, Chung, Yin, Ramchandran: ")
    assert registry.paper_title("ifca").endswith("Clustered Federated Learning (IFCA)")
    assert registry.paper_title("toy") == "toy"


def test_ids_must_be_unique(monkeypatch):
    register(monkeypatch, *ROWS, *ROWS)
    with pytest.raises(ValueError, match=r"^`id` must be unique, got toy\.a, "):
        all_statements()


# What is told without importing, against the modules themselves.


@pytest.fixture
def toy_index(monkeypatch, tmp_path):
    """The toy statements, with an index; says from which modules they were read."""
    register(monkeypatch, *ROWS)
    monkeypatch.setattr(registry, "_index_file", lambda: tmp_path / "statements.json")
    opened, read = [], registry._defined_in
    monkeypatch.setattr(
        registry, "_defined_in", lambda name: opened.append(name) or read(name)
    )
    return opened


def test_the_index_says_what_the_modules_say():
    told = [described(row) for row in listed()]
    assert told == [described(row) for row in all_statements()]
    defined = {
        row.id: module
        for module in registry._modules()
        for row in getattr(importlib.import_module(module), "STATEMENTS", ())
    }
    assert {row.id: row.module for row in listed()} == defined


def test_modules_are_opened_once_and_then_for_what_is_asked(toy_index):
    assert [row.id for row in listed()] == [row.id for row in ROWS]
    assert toy_index == ["toy_rows"]
    assert listed() == listed() and toy_index == ["toy_rows"]
    assert registry.select(["toy.a"]) == ROWS[:2] and len(toy_index) == 2
    assert registry.select([], paper="zoo") == ROWS[-1:]


@pytest.mark.parametrize("fault", ["other sources", "damaged", "of another form"])
def test_a_stale_index_is_refused(toy_index, monkeypatch, fault):
    """Control: whatever is not of these very sources is made anew."""
    path = registry._index_file()
    listed()
    text = path.read_text()
    if fault == "other sources":
        text = text.replace('"place": "Lemma <1>"', '"place": "Lemma 2"')
        monkeypatch.setattr(registry, "fingerprint", lambda: "other")
    else:
        text = text[:-9] if fault == "damaged" else text.replace('"note"', '"notes"')
    path.write_text(text)
    assert {row.place for row in listed()} == {"Lemma <1>"}
    assert toy_index == ["toy_rows"] * 2
    assert listed() and len(toy_index) == 2, "and kept again"


def test_without_a_place_for_it_all_is_told_anyway(monkeypatch):
    register(monkeypatch, *ROWS)
    assert not registry._index_file().exists()
    assert [row.id for row in listed()] == [row.id for row in ROWS]


@pytest.mark.parametrize(
    ("arguments", "absent"),
    [(["list", "clove"], "jax"), (["check", "x"], "jax"), (["--help"], "numpy")],
)
def test_telling_needs_no_computing(arguments, absent):
    """Importing JAX takes seconds, which lists, help and misuse can do without."""
    listed()
    code = f"from theory.__main__ import main; main({arguments}); import sys; "
    code += f"sys.exit({absent!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# Errata, against themselves.

WHOLE = """
[[erratum]]
id = "toy.E2"
place = "Lemma 1"
severity = "A"
printed = "|x| <= y"
correction = "|x| <= 2 y"
counterexample = "x = 3, y = 2"
statements = ["toy.a"]
"""


@pytest.fixture
def toy_errata(monkeypatch, tmp_path):
    """What the registry finds where a paper's errata are this text."""

    def read(text: str):
        (tmp_path / "errata.toml").write_text(text)
        monkeypatch.setattr(registry, "_papers", lambda: [("toy", tmp_path)])
        return all_errata()

    return read


def dangling(errata, rows) -> list[tuple[str, str]]:
    """Errata with names of rows that are not there, or with none at all."""
    known = {row.id for row in rows}
    named = [(one.id, name) for one in errata for name in one.statements or ("",)]
    return [(name, row) for name, row in named if row not in known]


def test_every_erratum_is_complete():
    errata = all_errata()
    assert len(errata) >= 79
    for erratum in errata:
        assert erratum.id.startswith(f"{erratum.paper}.E")
        for name in ("place", "printed", "correction", "counterexample"):
            assert getattr(erratum, name).strip(), (erratum.id, name)
        assert len(set(erratum.statements)) == len(erratum.statements) > 0


def test_every_erratum_names_rows_that_exist():
    assert dangling(all_errata(), listed()) == []


def test_every_false_statement_is_among_the_errata():
    named = {name for erratum in all_errata() for name in erratum.statements}
    for row in listed():
        assert row.expected is not Status.VIOLATED or row.id in named, row.id


def test_dangling_names_are_seen():
    """Control: a name that does not exist, and an erratum without any."""
    assert dangling(ERRATA, ROWS) == [("toy.E1", "toy.elsewhere")]
    silent = dataclasses.replace(ERRATA[0], statements=())
    assert dangling([silent], ROWS) == [("toy.E1", "")]


def test_errata_are_read_as_they_are_written_in_natural_order(toy_errata):
    texts = [WHOLE.replace("E2", name) for name in ("E10", "E2", "E1")]
    found = toy_errata("".join(texts))
    assert [erratum.id for erratum in found] == ["toy.E1", "toy.E2", "toy.E10"]
    same = dataclasses.replace(ERRATA[0], statements=("toy.a",))
    assert found[0] == same


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('severity = "A"', 'severity = "F"', "toy.E2 a `severity` of A, .* got 'F'"),
        ("printed", "print", "toy.E2 the fields .* got print, printed on one side"),
        ('place = "Lemma 1"\n', "", "toy.E2 the fields .* got place on one side"),
        ('id = "toy.E2"\n', "", "with an `id`, got 'id'"),
        ("[[erratum]]", "[[errata]]", "with an `id`, got 'erratum'"),
        ("[[erratum]]", "[[erratum", "must hold TOML"),
        (WHOLE, WHOLE * 2, r"`id` must be unique, got toy\.E2 twice"),
    ],
)
def test_errata_out_of_form_are_refused(toy_errata, old, new, reason):
    """Control: each fault is told with the file and the erratum."""
    assert old in WHOLE
    with pytest.raises(ValueError, match=reason) as error:
        toy_errata(WHOLE.replace(old, new))
    assert "errata.toml" in str(error.value) or "unique" in reason
    assert set(SEVERITIES) == set("ABCDE")


def test_errata_are_nowhere_else():
    modules = map(importlib.import_module, registry._modules())
    assert [one.__name__ for one in modules if hasattr(one, "ERRATA")] == []
