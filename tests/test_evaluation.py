"""Proofs by computer, claims at parameters of one's own, and the two commands."""

import csv
import dataclasses
import importlib.metadata
import io
import json
import math
import re
from typing import Any

import flint
import jaxtyping
import numpy as np
import pytest
import sympy
from toy_theory import register, toy

import cfljax
from cfljax import statements
from cfljax.statements import (
    Constant,
    Evaluation,
    Grade,
    Margin,
    Parameter,
    Preset,
    Simulation,
    Status,
    exact,
    identity,
    nonnegative,
)
from theory import __main__ as command
from theory.glossary import GLOSSARY, parameter
from theory.registry import all_statements
from theory.rows import falsified

# Proofs, against calculus.

X = sympy.Symbol("x", positive=True)


def test_identities_are_decided_by_algebra():
    assert identity("square", (1 + X) ** 2 - 1 - 2 * X - X**2).holds
    wrong = identity("square", (1 + X) ** 2 - 1 - X**2)
    assert not wrong.holds and "2*x" in wrong.detail


def slope_of_sine(factor: str):
    """sin x >= factor x on [0, 1], with the zero at 0 divided out."""
    least = flint.arb(factor)
    return nonnegative("sin", lambda x: x.sinc() - least, {"x": (0, 1)})


@pytest.mark.long
def test_inequalities_hold_on_whole_boxes():
    """Against calculus: sin(1) = 0.84147... is the least slope of a chord."""
    assert slope_of_sine("0.84147").holds
    refused = slope_of_sine("0.84148")
    assert not refused.holds and "x in [1, 1]" in refused.detail


def test_a_hole_between_the_points_of_a_grid_is_found():
    """(x - 1/3)^2 - 1e-9 is negative on a ten-thousandth of the range alone."""
    hole = nonnegative(
        "hole", lambda x: (x - flint.arb(1) / 3) ** 2 - 1e-9, {"x": (0, 1)}
    )
    assert not hole.holds


@pytest.mark.long
def test_boxes_of_several_sides_and_of_none():
    box = {"x": (0, 1), "y": ("0.5", 2)}
    assert nonnegative("norm", lambda x, y: x * x + y * y - 0.24, box).holds
    assert not nonnegative("norm", lambda x, y: x * x + y * y - 0.26, box).holds
    assert nonnegative("e < 3", lambda: 3 - flint.arb(1).exp(), {}, strict=True).holds
    assert not nonnegative("0 > 0", lambda: flint.arb(0), {}, strict=True).holds
    with pytest.raises(ValueError, match="must give x a range"):
        nonnegative("empty", lambda x: x, {"x": (1, 0)})


def proved(claimed: str):
    return lambda: [slope_of_sine(claimed)]


@pytest.mark.long
@pytest.mark.parametrize(
    ("proof", "control", "grade", "good"),
    [
        ("0.8", "0.9", Grade.PROVED, True),
        ("0.9", "0.95", Grade.NOMINAL, False),  # a step fails
        ("0.8", "0.7", Grade.NOMINAL, False),  # the steps go through for anything
    ],
)
def test_a_proof_counts_only_if_it_could_have_failed(proof, control, grade, good):
    row = toy(proof=proved(proof), proof_control=proved(control))
    outcome = statements.run(row, Preset())
    assert outcome.verdict.grade is grade
    assert outcome.as_expected is good


@pytest.mark.long
@pytest.mark.parametrize(("other", "good"), [("1", True), ("0.7", False)])
def test_every_control_of_a_proof_must_fail(other, good):
    controls = [proved("0.9"), proved(other)]
    outcome = statements.run(toy(proof=proved("0.8"), proof_control=controls), Preset())
    assert outcome.proof is not None
    assert outcome.proof.control_fails is good
    assert outcome.as_expected is good


def test_a_proof_takes_at_least_one_control():
    with pytest.raises(ValueError, match="must be given together"):
        toy(proof=proved("0.8"), proof_control=[])


@pytest.mark.long
def test_a_row_falsifies_its_proof_once_for_each_constant():
    prove = lambda *, factor: [slope_of_sine(factor)]
    several = falsified(prove, [{"factor": "0.8"}, {"factor": "0.9"}])
    assert [control()[0].holds for control in several] == [True, False]
    (alone,) = falsified(prove, {"factor": "0.7"})
    assert alone()[0].holds


def test_a_proof_that_raises_is_incomplete():
    def broken():
        raise ZeroDivisionError("of a kind")

    outcome = statements.run(toy(proof=broken, proof_control=proved("0.9")), Preset())
    assert outcome.proof is not None and not outcome.proof.is_complete
    assert "of a kind" in outcome.proof.steps[0].text
    assert not outcome.as_expected


# Evaluations, against what is known.

HEADS = Evaluation(
    quantity="P(all heads)",
    parameters=(Parameter("n", "tosses", 10, 1), Parameter("p", "of heads", 0.5, 0, 1)),
    bound=lambda n, p, c: c * math.exp(-n * (1 - p)),
    truth=lambda n, p: exact(p**n),
    margins=lambda n, p: (Margin("p <= 1/2", p, 0.5, at_least=False),),
    constants={"c": Constant(1.0, 0.5, 2.0, "by hand")},
)
TOSSED = Evaluation(
    quantity="P(all heads)",
    parameters=HEADS.parameters,
    bound=lambda n, p: p**n,
    truth=Simulation(
        lambda generator, trials, n, p: np.all(generator.random((trials, n)) < p, -1),
        numbers=lambda n, p: n,
    ),
    relation="=",
)


def test_a_grid_has_a_dimension_for_each_swept_parameter():
    found = statements.evaluate(HEADS, sweep={"n": [1, 2, 5], "p": [0.25, 0.75]})
    assert found["bound"].dims == ("n", "p")
    np.testing.assert_allclose(found["truth"].sel(n=2), [0.25**2, 0.75**2])
    np.testing.assert_allclose(found["bound"].sel(n=5, p=0.25), math.exp(-5 * 0.75))
    assert set(found["verdict"].sel(p=0.25).values) == {"holds"}
    assert set(found["verdict"].sel(p=0.75).values) == {"not claimed here"}
    margins = found["margin"].sel(precondition="p <= 1/2", n=1)
    np.testing.assert_allclose(margins, [0.25, -0.25])
    assert found["constant_high"].sel(constant="c") == 2.0
    assert found["n"].attrs["long_name"] == "tosses"


def test_a_smaller_constant_is_refuted():
    found = statements.evaluate(HEADS, n=1, constants={"c": 0.5})
    assert found["verdict"] == "violated" and found["constant_value"].item() == 0.5


def test_points_do_not_depend_on_the_others_draws():
    """Each has a stream of its own, and the error rate is divided over all."""
    one = statements.evaluate(TOSSED, sweep={"n": [2]}, trials=500, p=0.3)
    two = statements.evaluate(TOSSED, sweep={"n": [2, 3]}, trials=500, p=0.3)
    assert two["high"].values[0] > one["high"].values[0]
    assert (one["verdict"] == "inconclusive").all()  # nothing proves an equality
    for value, found in ((0.3, one), (0.3, two)):
        assert np.all((found["low"] <= value**2)[:1])


def test_a_wrong_equality_is_refuted():
    wrong = statements.Evaluation(
        **{**TOSSED.__dict__, "bound": lambda n, p: 1.2 * p**n}
    )
    found = statements.evaluate(wrong, n=1, trials=5000)
    assert found["verdict"] == "violated"


@pytest.fixture
def as_users_run_it():
    """Without the checks of types that the tests add."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ({"q": 1.0}, "`q` is no parameter of this claim; it has n, p"),
        ({"n": 1.5}, "`n` must be an integer of at least 1, got 1.5"),
        ({"p": math.nan}, "`p` must be a number of at least 0 and at most 1, got nan"),
        ({"p": 2.0}, "`p` must be a number"),
        ({"sweep": {"n": []}}, "`sweep` must give n at least one value"),
        ({"n": 2, "sweep": {"n": [1]}}, "`sweep` must leave n to itself"),
        ({"constants": {"k": 1.0}}, "`k` is no constant of this claim; it has none"),
        ({"seed": -1}, "`seed` must be an integer of at least 0, got -1"),
        ({"seed": 0.5}, "`seed` must be an integer of at least 0, got 0.5"),
        ({"error_rate": 0.0}, "`error_rate` must lie in"),
        ({"error_rate": "x"}, "`error_rate` must lie in [(]0, 1[)], got 'x'"),
        ({"trials": 1}, "`trials` must be an integer of at least 2, got 1"),
        ({"trials": "x"}, "`trials` must be an integer of at least 2, got 'x'"),
        ({"trials": 2.5}, "`trials` must be an integer of at least 2, got 2.5"),
        ({"trials": True}, "`trials` must be an integer of at least 2, got True"),
        ({"sweep": {"n": 5}}, "`sweep` must give n several values, .* got 5"),
        ({"sweep": {"n": "12"}}, "`sweep` must give n several values, .* got '12'"),
        ({"sweep": {"n": None}}, "`sweep` must give n several values, .* got None"),
        ({"sweep": {"n": ["1", 2]}}, "`n` must be an integer .*, got '1'"),
        ({"sweep": ["n"]}, "`sweep` must give values by parameter"),
        ({"n": "5"}, "`n` must be an integer of at least 1, got '5'"),
        ({"n": None}, "`n` must be an integer of at least 1, got None"),
        ({"n": True}, "`n` must be an integer of at least 1, got True"),
        ({"n": [5]}, r"`n` must be an integer of at least 1, got \[5\]"),
        ({"n": 10**400}, "`n` must be an integer of at least 1, got 1000"),
        ({"p": "half\nof"}, r"`p` must be a number .*, got 'half\\nof'"),
    ],
)
def test_nonsense_is_refused(as_users_run_it, told, reason):
    with pytest.raises(ValueError, match=reason):
        statements.evaluate(TOSSED, **told)


@pytest.mark.parametrize("value", ["x", None, True, math.nan, math.inf])
def test_a_constant_is_a_number(as_users_run_it, value):
    with pytest.raises(ValueError, match=r"^`c` must be a number, got "):
        statements.evaluate(HEADS, constants={"c": value})


def test_counts_of_numpy_are_counts(as_users_run_it):
    trials: Any = np.int64(50)
    found = statements.evaluate(
        TOSSED, sweep={"n": np.arange(1, 3)}, trials=trials, p=np.float32(0.5)
    )
    assert found["n"].values.tolist() == [1, 2] and found.attrs["trials"] == 50


GIB = 2**30 // 8  # numbers


@pytest.mark.parametrize(
    ("told", "largest"),
    [
        ({"n": 10**9}, f"n = {GIB}"),  # 100 trials would be drawn in time
        ({"n": 10**9, "trials": 1000}, f"n = {2 * 10**7}"),  # which is time's
        ({"n": 10**7, "trials": 10**5}, f"trials = 2000 or n = {2 * 10**5}"),
        ({"n": 1, "trials": 10**9}, f"trials = {GIB}"),  # outcomes are held as well
        # Of the sweep, all that are larger are brought down.
        ({"sweep": {"n": [10**6, 10**9]}, "trials": 10**4}, f"n = {10**6}"),
    ],
)
def test_what_is_too_large_says_what_fits_in_memory_and_time(told, largest):
    """And the next larger does not, while what is said passes the same test."""
    with pytest.raises(ValueError, match=f"; the largest that fits is {largest}[.]$"):
        statements.evaluate(TOSSED, **told)
    points = [{"n": n} for n in told.get("sweep", {"n": [told.get("n")]})["n"]]
    trials = told.get("trials", 100)
    for name, most in re.findall(r"(\w+) = (\d+)", largest):
        for value, fits in ((int(most), True), (int(most) + 1, False)):
            sizes = [p["n"] if name == "trials" else min(p["n"], value) for p in points]
            drawn = trials if name == "n" else value
            held = max(*sizes, drawn) <= GIB
            assert (held and sum(sizes) * drawn <= 2e10) is fits


def test_where_nothing_fits_it_is_said():
    crowded = dataclasses.replace(
        TOSSED, truth=Simulation(lambda *_, **__: np.zeros(1), lambda **_: 1e12)
    )
    with pytest.raises(ValueError, match=r"at n = 10, p = 0.5; none fits\.$"):
        statements.evaluate(crowded)


def test_means_are_finite_sample_where_they_are_bounded():
    for support, grade in (((0.0, 1.0), Grade.SAMPLED), (None, Grade.NOMINAL)):
        mean = Evaluation(
            quantity="E u^2",
            parameters=(Parameter("power", "of u", 2),),
            bound=lambda power: 1 / (power + 1),
            truth=Simulation(
                lambda generator, trials, power: generator.random(trials) ** power,
                numbers=lambda power: 1,
                of="mean",
                support=support,
            ),
            relation=">=",
        )
        found = statements.evaluate(mean, power=3, trials=2000)
        assert found["low"] < 0.25 < found["high"]
        assert found.attrs["grade"] == grade.value


# The papers' own.


def test_names_are_those_of_the_glossary():
    for row in all_statements():
        if row.evaluation is not None:
            names = [one.name for one in row.evaluation.parameters]
            assert set(names) <= set(GLOSSARY), row.id
            assert len(set(names)) == len(names) > 0


# Thousands of clients; and IFCA's, which are evaluated where their proofs are tested.
LARGE = ("clove.thm41", "clove.thmA9", "clove.thmA10", "ifca.cor1", "ifca.thm1")


def _with_evaluation():
    for row in all_statements():
        if row.evaluation is not None:
            marks = [pytest.mark.slow] * (row.id in LARGE)
            yield pytest.param(row, id=row.id, marks=marks)


@pytest.mark.long
@pytest.mark.parametrize("row", list(_with_evaluation()))
def test_defaults_are_claimed_and_agree_with_the_verdict(row):
    """Where a statement holds, it does so at its defaults; and something is claimed."""
    found = statements.evaluate(row, trials=200)
    verdict = found["verdict"].item()
    assert verdict != "not claimed here"
    assert found["bound"].notnull() and found["low"] <= found["high"]
    if row.expected is Status.HOLDS:
        assert verdict in ("holds", "inconclusive")


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (0.5, 0.6), (math.nan, 0.5)])
def test_an_interval_is_no_equality(low, high):
    """A number of its own alone can show that it is the one that is claimed."""
    wide = statements.Truth(low, high, Grade.EXACT)
    claim = Evaluation("x", HEADS.parameters, lambda n, p: 0.5, lambda n, p: wide)
    equal = dataclasses.replace(claim, relation="=")
    assert statements.evaluate(equal)["verdict"] == "inconclusive"
    alike = dataclasses.replace(equal, truth=lambda n, p: exact(0.5))
    assert statements.evaluate(alike)["verdict"] == "holds"


def test_statements_are_found_by_name_from_anywhere(
    as_users_run_it, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    assert statements.find("ifca.lem1.bound").place.startswith("Lemma 1")
    with pytest.raises(ValueError, match="is no statement of any installed package"):
        statements.evaluate("nobody.lem1")
    with pytest.raises(
        ValueError, match=r"; nearest: ifca[.]lem1[.]bound, "
    ) as refused:
        statements.evaluate("ifca.lemma1.bound")
    assert str(refused.value).count(", ") == 2
    with pytest.raises(ValueError, match=r"`claim` must be an id, .* got NoneType"):
        statements.evaluate(None)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="takes several statements: ifca"):
        statements.find("ifca.lem1")
    assert cfljax.statements is statements


class Offered:
    """An entry point."""

    def __init__(self, loaded):
        self.loaded = loaded

    def load(self):
        return self.loaded()


def broken(names=()):
    return {}["key of its own"]


def of_others(names):
    raise KeyError(*names)


@pytest.mark.parametrize(
    ("load", "name", "passes"),
    [
        (lambda: broken, "toy.a", False),  # when it is asked
        (broken, "toy.a", False),  # when it is imported
        (broken, "key of its own", False),
        (lambda: of_others, "toy.a", True),
    ],
)
def test_errors_of_a_package_are_its_own(monkeypatch, load, name, passes):
    """A name that one package does not know may be another's; all else is a fault."""
    offered = [Offered(load), Offered(lambda: lambda names: [toy("toy.a")])]
    entries = lambda group: offered
    monkeypatch.setattr(importlib.metadata, "entry_points", entries)
    if passes:
        assert statements.find(name).id == "toy.a"
        return
    with pytest.raises(KeyError, match="key of its own"):
        statements.find(name)


@pytest.mark.long
def test_what_is_known_of_constants_is_in_the_answer():
    """Against the rows: nothing that is proved of one is left out."""
    for row in all_statements():
        constants = row.evaluation.constants if row.evaluation else {}
        for name, one in constants.items():
            assert not math.isnan(one.low) or not one.origin.startswith(
                ("proved", "certified", "enough")
            ), (row.id, name)
            assert math.isnan(one.low) == math.isnan(one.high), (row.id, name)
            assert not one.low > one.high, (row.id, name)
    found = statements.evaluate("clove.lemA13.corrected", trials=200)
    known = found.sel(constant="c6")
    assert known["constant_low"] == 0 and known["constant_high"] == 4
    assert "clove.lemA13.corrected" in known["constant_origin"].item()


# The commands, against themselves.


@pytest.fixture
def with_toy(monkeypatch):
    register(
        monkeypatch,
        toy(
            "toy.heads",
            evaluation=HEADS,
            proof=proved("0.8"),
            proof_control=proved("1"),
        ),
        toy("toy.tossed", evaluation=TOSSED),
        toy("toy.plain"),
    )


def run(capsys, *arguments: str) -> tuple[int, str, str]:
    status = command.main(arguments)
    out, err = capsys.readouterr()
    return status, out, err


@pytest.mark.long
def test_show_says_all(with_toy, capsys):
    status, out, _ = run(capsys, "show", "toy.heads")
    assert status == 0
    for part in ("claim", "evidence", "proved", "sin", "fails, as it must", "tosses"):
        assert part in out
    assert not any(line.endswith(" ") for line in out.splitlines())


def test_evaluate_as_table_json_and_rows(with_toy, capsys):
    asked = ("toy.heads", "--set", "p=.4", "--sweep", "n=1:100:3:log")
    status, out, _ = run(capsys, "evaluate", *asked)
    assert (
        status == 0 and "exact law" in out and "c = 1, the best is in [0.5, 2]" in out
    )
    _, out, _ = run(capsys, "evaluate", *asked, "--json")
    document = json.loads(out)
    assert [point["n"] for point in document["points"]] == [1, 10, 100]
    assert document["parameters"] == {"p": 0.4}
    assert document["points"][0]["margins"] == {"p <= 1/2": pytest.approx(0.1)}
    assert document["constants"][0] == {"name": "c", "value": 1, "low": 0.5, "high": 2}
    _, out, _ = run(capsys, "evaluate", *asked, "--csv")
    rows = list(csv.DictReader(io.StringIO(out)))
    assert [float(row["truth"]) for row in rows] == pytest.approx(
        [0.4, 0.4**10, 0.4**100]
    )


def test_outside_its_preconditions_nothing_is_claimed(with_toy, capsys):
    status, out, _ = run(capsys, "evaluate", "toy.heads", "--set", "p=.75")
    assert status == 0
    assert "not claimed here: p <= 1/2 (margin -0.25)" in out


@pytest.mark.long
def test_no_line_of_a_piped_table_ends_in_spaces(with_toy, capsys):
    for command_line in (
        ("evaluate", "toy.heads", "--sweep", "n=1,200", "p=.25,.75"),
        ("show", "toy.heads", "toy.plain"),
        ("list", "toy"),
        ("check", "toy"),
        ("check", "toy", "--rotations", "2"),
    ):
        _, out, _ = run(capsys, *command_line)
        lines = out.splitlines()
        assert len(lines) > 3 and not [line for line in lines if line != line.rstrip()]


def test_evaluate_says_that_it_takes_one_statement(capsys):
    _, out, _ = run(capsys, "evaluate", "--help")
    assert "exactly one" in out and "default: all" not in " ".join(out.split())
    _, out, _ = run(capsys, "check", "--help")
    assert "default: all" in " ".join(out.split())


def test_a_figure_is_written(with_toy, capsys, tmp_path):
    path = tmp_path / "heads.svg"
    asked = ("toy.heads", "--sweep", "n=1:5:5", "--figure", str(path))
    status, out, _ = run(capsys, "evaluate", *asked)
    assert status == 0 and path.exists() and str(path) in out


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (
            ("toy.heads", "--set", "q=1"),
            "`q` is no parameter of this claim; it has n, p",
        ),
        (("toy.heads", "--set", "n"), "parameters are given as NAME=VALUE, got 'n'"),
        (("toy.heads", "--set", "n=1", "n=2"), "`n` is given twice"),
        (("toy.heads", "--set", "p=nan"), "`p` must be a number, got 'nan'"),
        (("toy.heads", "--sweep", "n=1:2"), "`n` must sweep FROM:TO:COUNT"),
        (("toy.heads", "--sweep", "n=1:2:0"), "`n` must take 1 to 10000 values"),
        (("toy.heads", "--sweep", "p=0:1:3:log"), "`p` must be positive"),
        (
            ("toy.heads", "--figure", "a.gif"),
            "must be an svg, png or pdf file, got a.gif",
        ),
        (
            ("toy.heads", "--figure", "new/a.svg"),
            "--figure draws along one or two parameters of --sweep, got none",
        ),
        (
            ("toy.heads", "--figure", "new/a.svg", "--sweep", "n=1,2", "p=0:1:8"),
            "at most 7, got 8 of p",
        ),
        (("toy.plain",), "toy.plain cannot be evaluated at parameters of your own"),
        (("toy",), "evaluate takes one statement, got 2: toy.heads, toy.tossed"),
        (("toy.tossed", "--set", "n=1000000000"), "the largest that fits is n ="),
    ],
)
def test_misuse_is_one_line(with_toy, capsys, monkeypatch, tmp_path, arguments, reason):
    """And leaves nothing behind."""
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "evaluate", *arguments)
    assert not list(tmp_path.iterdir())
    assert (status, out) == (2, "")
    assert reason in err and err.count("\n") == 1


def test_a_parameter_of_the_glossary():
    one = parameter("k", 2, "models")
    assert one.is_count and one.meaning == "models" and one.least == 1
    with pytest.raises(KeyError):
        parameter("kk", 2)
