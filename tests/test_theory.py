"""Statements: verdicts and controls, the registry, errata, and `python -m theory`."""

import dataclasses
import functools
import importlib
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from rich.text import Text
from toy_theory import BROKEN, ERRATA, ROWS, register, toy

import cfljax.engine
from cfljax import report
from cfljax.statements import (
    FAULTS,
    SEVERITIES,
    Grade,
    Preset,
    Statement,
    Status,
    never_exceeds,
    site,
)
from cfljax.statements.verdict import Points
from experiments.readme import VERDICTS
from theory import __main__ as command
from theory import commands, registry
from theory.registry import all_errata, all_statements, listed

# Every row's verdict and control, against theory.

# Rows that take longer than 0.3 seconds, with their controls; of IFCA's, whose rows
# take minutes, all. `python -m theory report`, which CI runs, fails on the same.
_SLOW = """
clove.ARIdef clove.EF clove.NK clove.NK.corrected clove.corA14 clove.corA14.corrected
clove.fig2 clove.fig3 clove.fig3.small_noise clove.fig4 clove.fig4.corrected clove.fig5
clove.fig6 clove.fig7 clove.jointlaw clove.jointlaw.covariance clove.kkcond.loose
clove.kkcond.losses clove.lemA1.ortho clove.lemA13 clove.lemA2 clove.lemA2.any_noise
clove.lemA4 clove.lemA7 clove.lemA8.corrected clove.remA12 clove.remA12.corrected
clove.thm41 clove.thm41.corrected clove.thm41.law clove.thm41.order clove.thm41.turned
clove.thm42.corrected clove.thm42.fixed clove.thmA10 clove.thmA10.corrected clove.thmA9
clove.thmA9.corrected
feddrift.merge feddrift.settled fedem.descent fedem.fixed fedem.rate
fedem.rate.stochastic fedem.shares
werner.asm1 werner.asm8 werner.byz.alie werner.byz.alternating werner.byz.bitflip
werner.byz.breakdown werner.byz.edge_adaptive werner.byz.edge_static werner.byz.gauss
werner.byz.ipm werner.byz.labelflip werner.byz.mimic werner.byz.outer_gap
werner.byz.percentile werner.byz.sleeper werner.byz.staged werner.eq2.corrected
werner.eq20 werner.eq7 werner.eq8 werner.eq8.corrected werner.ex1a.fc
werner.ex1a.fc.corrected werner.ex1c.fc.corrected werner.fig2 werner.fig3
werner.fig3.radius werner.fig4.corrected werner.lem1.corrected werner.lem12 werner.lem14
werner.lem14.corrected werner.lem7 werner.lem7.corrected werner.lem9 werner.table1
werner.thm1 werner.thm1.corrected werner.thm1.finite werner.thm1.share
werner.thm1.share.corrected werner.thm1.start werner.thm1.start.corrected werner.thm3
werner.thm3.capture werner.thm3.capture.corrected werner.thm3.capture.stated
werner.thm3.corrected werner.thm3.malicious werner.thm3.wider werner.thm4.corrected
werner.thm4.momentum.corrected werner.thm4.wider
"""
SLOW = set(_SLOW.split())
# Those that take a quarter of a second, where nothing is compiled.
_LONG = """
clove.VarF clove.lemA1.ortho.best clove.lemA13.bound clove.lemA2.any_noise.corrected
clove.thm42.noiseless fedem.weights werner.byz.othermean werner.byz.time_coupled
werner.eq4 werner.ex1b.fc werner.thm1.finite.rate werner.thm1.tauopt
werner.thm3.malicious.corrected werner.thm3.malicious.stated werner.thm4.warm
werner.thm4.warm.corrected werner.threat werner.yjlt
"""
LONG = set(_LONG.split())


def with_marks(row: Statement):
    is_slow = row.paper == "ifca" or row.id in SLOW
    marks = [pytest.mark.slow] if is_slow else [pytest.mark.long] * (row.id in LONG)
    return pytest.param(row, marks=marks, id=row.id)


@pytest.mark.parametrize("row", [with_marks(row) for row in all_statements()])
def test_verdict_and_control(row):
    verdict, control = row.check(Preset()), row.control(Preset())
    assert verdict.status is row.expected
    assert control.status is row.control_expected
    for points in (verdict.points, control.points):
        if points is not None and row.paper == "werner":
            sizes = np.abs(np.concatenate([points.bounds, points.low, points.high]))
            # Smaller ones have lost their digits, and no place on an axis.
            assert np.all((sizes == 0) | (sizes > 1e-290) | np.isnan(sizes))
    assert told_apart(verdict.points)


def told_apart(points: Points | None) -> bool:
    """Whether no two points have the same coordinates."""
    if points is None or len(points.bounds) < 2:
        return True
    places = list(zip(*points.coordinates.values(), strict=True))
    return len(set(places)) == len(points.bounds)


def test_control_points_with_one_place_are_not_told_apart():
    sides = {"rounding": 1e-9, "grade": Grade.EXACT}
    judged = functools.partial(never_exceeds, "toy.a", np.ones(2), 2.0, **sides)
    assert told_apart(judged(coordinates={"n": np.array([1, 2])}).points)
    assert not told_apart(judged(coordinates={"n": np.array([1, 1])}).points)
    assert not told_apart(judged().points)


def test_slow_rows_exist():
    assert {row.id for row in all_statements()} >= SLOW


# The registry, against itself.


def test_ids_are_unique_and_rows_complete():
    rows = all_statements()
    ids = {row.id for row in rows}
    assert len(ids) == len(rows)
    for row in rows:
        assert row.place and row.text and row.preconditions, row.id
        assert re.fullmatch(r"\w+(\.\w+)+", row.id), "can be the name of a file"
        if row.expected is Status.VIOLATED:
            told = f"{row.id}.corrected" in ids or row.other_reading
            assert told or row.fault == "ours", row.id


def test_whose_fault_it_is_is_said_of_every_violation_and_of_nothing_else():
    """And what is read in another way holds in that other way."""
    rows = {row.id: row for row in listed()}
    for row in rows.values():
        assert (row.expected is Status.VIOLATED) == (row.fault in FAULTS), row.id
        if row.fault == "reading":
            assert rows[row.other_reading].expected is Status.HOLDS, row.id


def test_committed_verdicts_are_of_these_statements():
    """What README counts: made anew by `python -m theory check --csv`."""
    kept = {row["id"]: row for row in report.read_csv(VERDICTS)}
    rows = {row.id: row for row in listed()}
    assert list(kept) == list(rows)
    for name, row in kept.items():
        assert row["verdict"] == row["expected"] == rows[name].expected.value, name
        assert (row["fault"] or "") == rows[name].fault, name
        assert row["evidence"] in {grade.value for grade in Grade}, name


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
    told = [site.described(row) for row in listed()]
    assert told == [site.described(row) for row in all_statements()]
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

WHOLE = r"""
[[erratum]]
id = "toy.E2"
place = "Lemma 1"
severity = "A"
printed = '$|x| \le y$'
correction = '$|x| \le 2 y$'
counterexample = "$x = 3$, $y = 2$"
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


NAMES = ("list", "check", "report")
CALLS: list[tuple[str, int]] = []
WORDS = "one [bold]is[/bold] at most two "


def wordy(name: str = "toy.a") -> Statement:
    """A row without points whose words could be read as markup."""
    return dataclasses.replace(toy(name, kind=None), place="Lemma [1]", text=WORDS * 8)


@pytest.fixture
def with_rows(monkeypatch):
    """Makes the registry know these rows alone."""

    def replace(*rows: Statement) -> None:
        CALLS.clear()
        register(monkeypatch, *rows)

    return replace


# The command: lists, checks and what they print, against themselves.


@pytest.mark.parametrize(
    ("row", "status"),
    [
        (toy(), 0),
        (toy(status=Status.VIOLATED, expected=Status.VIOLATED), 0),
        (toy(status=Status.VACUOUS, expected=Status.VACUOUS), 0),
        (toy(status=Status.INCONCLUSIVE), 1),
        (toy(status=Status.VIOLATED), 1),
        (toy(expected=Status.VIOLATED), 1),
        (toy(control=Status.HOLDS), 1),
        (toy(control=Status.INCONCLUSIVE), 1),
        (BROKEN, 1),
    ],
)
def test_exit_status_tells_surprises(with_rows, capsys, row, status):
    with_rows(toy("toy.first"), row)
    assert command.main(["check"]) == status
    assert command.main(["check", "--json"]) == status
    assert "Traceback" not in capsys.readouterr().err


def test_json_is_one_document_without_gaps(with_rows, capsys):
    with_rows(wordy(), BROKEN)
    assert command.main(["check", "--json", "--seed", "5"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["seed"] == 5 and document["preset"] == "quick"
    assert not document["as_expected"]
    good, bad = document["statements"]
    assert good["id"] == "toy.a" and good["as_expected"]
    assert good["verdict"]["interval"] == [0.25, None]
    assert bad["verdict"]["bound"] is None
    assert command.main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["statements"]
    assert [row["expected"] for row in rows] == ["holds", "holds"]


def test_tables_are_not_cut_when_piped(with_rows, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    with_rows(wordy())
    assert command.main(["list"]) == 0
    listed = capsys.readouterr().out
    assert WORDS * 7 in listed and "Lemma [1]" in listed


@pytest.mark.parametrize("colours", [False, True])
@pytest.mark.parametrize("width", [None, 50, 300])
def test_outcomes_are_wrapped_to_the_width(
    with_rows, capsys, monkeypatch, width, colours
):
    """80 letters where nothing says how wide it is; and nothing is left out."""
    monkeypatch.delenv("COLUMNS", raising=False)
    if width:
        monkeypatch.setenv("COLUMNS", str(width))
    if colours:
        monkeypatch.setenv("FORCE_COLOR", "1")
    false = toy("toy.b", status=Status.VIOLATED, expected=Status.VIOLATED,
                fault="printed")  # fmt: skip
    with_rows(wordy("toy.of.a.longer.name.than.most.have"), false)
    assert command.main(["check"]) == 0
    output = capsys.readouterr().out
    lines = [Text.from_ansi(line).plain for line in output.splitlines()]
    assert max(map(len, lines)) <= (width or 80)
    told = " ".join(" ".join(lines).split())
    for part in (
        "toy.of.a.longer.name.than.most.have holds, as expected claim " + WORDS * 8,
        "toy.b violated, as expected claim |θ₁ − θ₁*| ≤ c₁√(d/n′) & more",
        "class false as printed grade sampled, nominal; error rate 1e-06;",
        "control holds; 0.0 s done drawn <in> a line & 'quoted', n′ = 5",
        "violated, as expected: the registry says that the claim is false,",
    ):
        assert part in told, part


def test_what_as_expected_means_is_said_where_it_is_asked(with_rows, capsys):
    with_rows(toy())
    assert command.main(["check"]) == 0
    assert "the registry says" not in capsys.readouterr().out


def test_json_has_the_claim_in_letters_and_in_latex(with_rows, capsys):
    with_rows(toy())
    for name in NAMES[:2]:
        assert command.main([name, "--json"]) == 0
        (row,) = json.loads(capsys.readouterr().out)["statements"]
        assert row["text"] == "|θ₁ − θ₁*| ≤ c₁√(d/n′) & more"
        assert row["latex"] == r"$|\theta_1 - \theta_1^*| \le c_1 \sqrt{d/n'}$ & more"
        assert row["preconditions"] == ["n′ ≥ 1", "α < 1/2"]
    assert row["verdict"]["detail"] == "drawn <in> a line & 'quoted', n′ = 5"


def test_help_has_commands_and_each_its_own_examples(capsys):
    assert command.main(["--help"]) == 0
    output = capsys.readouterr().out
    assert "Exit status: 0 done, or as expected; 1" in output
    assert all(f"\n  {name} " in output for name in NAMES)
    for name in NAMES:
        assert command.main([name, "--help"]) == 0
        _, _, examples = capsys.readouterr().out.partition("\nexamples:\n")
        typed = [line.split()[:4] for line in examples.splitlines()]
        assert typed and all(e == ["python", "-m", "theory", name] for e in typed)


def test_progress_is_silent_without_a_terminal(capsys):
    assert list(commands._shown("ab", 2)) == ["a", "b"]
    output = capsys.readouterr()
    assert not output.err and not output.out


def test_progress_appears_late(monkeypatch):
    asked = {}

    class Late(cfljax.engine.Bar):
        def __init__(self, title, **options):
            asked.update(options)
            super().__init__(title, **options)
            assert self._timer.interval == 5.0

    monkeypatch.setattr(cfljax.engine, "Bar", Late)
    assert list(commands._shown("ab", 2)) == ["a", "b"]
    assert asked == {"visible": True, "delay": 5.0}


@pytest.mark.long
def test_seeds_change_the_draws_and_nothing_else():
    row = registry.select(["ifca.eq2.corrected"])[0]
    timeless = lambda verdict: dataclasses.replace(verdict, seconds=0.0)
    first, again, other = (timeless(row.check(Preset(seed=seed))) for seed in (0, 0, 1))
    assert first == again
    assert first.status is other.status is Status.HOLDS
    assert not np.isclose(first.bound, other.bound, rtol=1e-12)


# As a process and misused, against misuse and failures.


ROOT = pathlib.Path(__file__).resolve().parents[1]
FULL = pathlib.Path("/dev/full")
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """`line` with `theory` standing for the command, run by a shell."""
    line = line.replace("theory", f"{sys.executable} -m theory", 1)
    return subprocess.run(line, shell=True, cwd=ROOT, capture_output=True, text=True)


def test_a_registry_that_contradicts_itself_is_one_line(with_rows, capsys, monkeypatch):
    def broken():
        raise ValueError("`id` must be unique, got toy.E1 twice.")

    with_rows(toy())
    monkeypatch.setattr(registry, "all_errata", broken)
    assert command.main(["report", "--out", "/nonexistent/nowhere"]) == 2
    with_rows(toy())
    monkeypatch.setattr(registry, "listed", broken)
    assert command.main(["list"]) == 2
    assert capsys.readouterr().err.endswith("got toy.E1 twice.\n")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "must be a command"),
        (["prove"], "'prove'"),
        (["list", "toy.b"], "nearest"),
        (["check", "toy.b"], "nearest"),
        (["check", "toy.b", "--json"], "nearest"),
        (["list", "--json", "toy.b"], "nearest"),
        (["check", "--paper", "other"], "nearest"),
        (["check", "--paper", "other", "--json"], "nearest"),
        (["check", "--seed", "-1"], "at least 0, got '-1'"),
        (["check", "--seed=-1", "--json"], "at least 0, got '-1'"),
        (["check", "--seed", "one"], "at least 0, got 'one'"),
        (["check", "--seed"], "expected one argument"),
        (["check", "--preset"], "expected one argument"),
        (["check", "--preset", "slow"], "'slow'"),
        (["check", "--rotations", "0"], "at least 1, got '0'"),
        (["check", "--rotations", "two", "--json"], "at least 1, got 'two'"),
        (["check", "--rotations"], "expected one argument"),
        (["check", "--keep"], "expected one argument"),
        (["list", "--seed", "1"], "--seed"),
        (["list", "--keep", "x"], "--keep"),
        (["report"], "--out"),
        (["report", "--out"], "expected one argument"),
        (["report", "--out", "x", "toy.b"], "nearest"),
        (["report", "--out", "x", "--paper", "other", "--json"], "nearest"),
        (["report", "--out", "x", "--seed", "-1"], "at least 0, got '-1'"),
        (["report", "--out", "x", "--rotations", "2"], "--rotations"),
        (["check", "--no\nsuch"], "--no such"),
        (["check", "no\nsuch"], r"no\nsuch"),
    ],
)
def test_misuse_exits_with_2_and_one_line(capsys, arguments, reason):
    assert command.main(arguments) == 2
    output = capsys.readouterr()
    assert not output.out
    assert output.err.startswith("error: ") and output.err.count("\n") == 1
    assert reason in output.err


def test_an_unknown_name_gets_the_nearest(capsys):
    assert command.main(["check", "ifca.lemma1"]) == 2
    error = capsys.readouterr().err
    assert "'ifca.lemma1'" in error and "ifca.lem1" in error.split("nearest")[1]


@pytest.mark.slow
@needs_full
@pytest.mark.parametrize(
    "arguments", ["list", pytest.param("check ifca.eq2 --json", marks=pytest.mark.slow)]
)
def test_nowhere_to_write_is_no_surprising_verdict(arguments):
    found = shell(f"theory {arguments} > {FULL}")
    assert found.returncode == 2
    assert found.stderr.startswith("error: cannot write") and "space" in found.stderr
    assert found.stderr.count("\n") == 1


@needs_full
@pytest.mark.slow
def test_nowhere_to_complain_keeps_the_status():
    for arguments in ("list ifca.lem9", "prove"):
        assert shell(f"theory {arguments} 2> {FULL}").returncode == 2


@pytest.mark.long
def test_as_a_process():
    """From a shell, on two rows that take no time."""
    found = shell("theory check ifca.lem1.stronger ifca.eq2")
    assert found.returncode == 0 and not found.stderr
    lines = found.stdout.splitlines()
    assert [line.split() for line in lines if line.startswith("ifca.")] == [
        ["ifca.eq2", "violated,", "as", "expected"],
        ["ifca.eq2.corrected", "holds,", "as", "expected"],
        ["ifca.lem1.stronger", "holds,", "as", "expected"],
    ]


# Rotated seeds, against themselves.


def counted(name: str, *, odd_seed: int | None = None, odd_control: int | None = None):
    """A row that holds for every seed, or all but one."""
    row = toy(name)

    def check(preset: Preset):
        CALLS.append((name, preset.seed))
        found = row.check(preset)
        if preset.seed == odd_seed:
            found = dataclasses.replace(found, status=Status.INCONCLUSIVE)
        return found

    def control(preset: Preset):
        found = row.control(preset)
        if preset.seed == odd_control:
            found = dataclasses.replace(found, status=Status.HOLDS)
        return found

    return dataclasses.replace(row, check=check, control=control)


def test_steady_rows_pass(with_rows, capsys):
    with_rows(counted("toy.a"), counted("toy.b"))
    assert command.main(["check", "--rotations", "3", "--seed", "5"]) == 0
    assert [(name, s) for s in (5, 6, 7) for name in ("toy.a", "toy.b")] == CALLS
    output = capsys.readouterr().out
    assert "6 of 6 as expected, controls included (quick preset, seeds 5 to 7" in output
    row = next(line for line in output.splitlines() if line.startswith("toy.a"))
    assert row.split()[:8] == ["toy.a", "holds", "3", "of", "3", "3", "of", "3"]
    assert "seed 6:" not in output


def test_a_flip_is_named_with_its_seed(with_rows, capsys):
    with_rows(counted("toy.a", odd_seed=2), counted("toy.b", odd_control=1))
    assert command.main(["check", "--rotations", "3"]) == 1
    output = capsys.readouterr().out
    assert "4 of 6 as expected" in output
    first, second = output.splitlines()[-2:]
    assert first.startswith("toy.b, seed 1: holds where holds was expected, control h")
    assert first.endswith("(drawn <in> a line & 'quoted', n′ = 5)")
    assert second.startswith("toy.a, seed 2: inconclusive where holds was expected")
    assert "2 of 3" in output


def test_the_document_has_every_seed(with_rows, capsys):
    with_rows(counted("toy.a", odd_seed=2), counted("toy.b"))
    assert command.main(["check", "--rotations", "3", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert document["rotations"] == 3 and document["first_seed"] == 0
    assert document["as_expected"] is False
    first, second = document["statements"]
    assert first["id"] == "toy.a" and first["verdicts_as_expected"] == 2
    assert first["controls_as_expected"] == second["verdicts_as_expected"] == 3
    assert [row["seed"] for row in first["seeds"]] == [0, 1, 2]
    last = {"seed": 2, "verdict": "inconclusive", "control": "violated"}
    assert first["seeds"][2] == last


def test_kept_rotations_go_on(with_rows, tmp_path, monkeypatch, capsys):
    with_rows(counted("toy.a"), counted("toy.b", odd_seed=1))
    arguments = ["check", "--keep", str(tmp_path), "--rotations"]
    assert command.main([*arguments, "2"]) == 1
    first = capsys.readouterr().out.splitlines()[-1]
    assert len(CALLS) == 4
    assert command.main([*arguments, "3"]) == 1
    assert CALLS[4:] == [("toy.a", 2), ("toy.b", 2)]
    assert capsys.readouterr().out.splitlines()[-1] == first  # the flip, read back
    assert command.main(["check", "--keep", str(tmp_path), "--seed", "2"]) == 0
    assert len(CALLS) == 6
    assert "2 of 2 as expected" in capsys.readouterr().out


def test_an_interruption_says_what_is_kept(with_rows, tmp_path, capsys):
    def interrupted(preset: Preset):
        raise KeyboardInterrupt

    with_rows(counted("toy.a"), dataclasses.replace(toy("toy.b"), check=interrupted))
    for extra, message in (
        ([], "no verdicts were kept"),
        (["--rotations", "2"], "no verdicts were kept"),
        (["--keep", str(tmp_path)], "the same command goes on"),
    ):
        assert command.main(["check", *extra]) == 130
        assert capsys.readouterr().err == f"stopped; {message}\n"
    assert (tmp_path / "quick-0" / "toy.a.json").exists()


def test_a_folder_that_cannot_be_written_is_one_line(with_rows, tmp_path, capsys):
    with_rows(counted("toy.a"))
    (tmp_path / "file").write_text("")
    for extra in ([], ["--rotations", "2"]):
        keep = ["--keep", str(tmp_path / "file")]
        assert command.main(["check", *keep, *extra]) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: cannot use {tmp_path}")
        assert error.count("\n") == 1


def test_no_rotations_are_refused():
    with pytest.raises(ValueError, match=r"^`count` must be at least 1, got 0"):
        commands.rotations([], Preset(), 0, as_json=False, keep=None)
