"""Algorithms of the user's own in comparisons, by the name MODULE:FUNCTION."""

import json

import pytest
from toy_experiments import save_no_figures

from cfljax.engine import sources
from cfljax.report import read_csv
from experiments.__main__ import main
from experiments.compare import submissions
from experiments.compare.arms import parse, parse_all
from experiments.compare.registered import registration

SOURCE = """
import cfljax as cfl

def same(task, *, step_size, update=None, option: str = "model"):
    return cfl.fedavg(task, step_size=step_size, update=update, option=option)

def told(task, *, step_size, num_clusters, clusters, share: float = 0.5):
    return cfl.local(task, step_size=step_size)

def needy(task, *, step_size, share):
    return cfl.local(task, step_size=step_size)

def still(task, *, share=0.5):
    return cfl.local(task, step_size=share)

def odd(task, *, step_size, share: "nothing.known" = 0.5):
    return cfl.local(task, step_size=step_size)

def nothing(task, *, step_size):
    return step_size

def wrong(task, *, step_size, num_clusters):
    return cfl.ifca(task, num_clusters, step_size=step_size)
"""


@pytest.fixture(autouse=True)
def modules(tmp_path, monkeypatch):
    (tmp_path / "algorithms_for_a_test.py").write_text(SOURCE)
    (tmp_path / "remarked_for_a_test.py").write_text("# A remark.\n" + SOURCE)
    (tmp_path / "changed_for_a_test.py").write_text(SOURCE.replace("0.5", "0.4"))
    monkeypatch.syspath_prepend(str(tmp_path))


# Against equations


@pytest.mark.long
def test_a_name_is_read_and_written():
    arm = parse("algorithms_for_a_test:told:share=.3")
    assert arm.algorithm == "algorithms_for_a_test:told"
    assert arm.changes == (("share", 0.3),) and len(arm.code) == 12
    assert arm.name == "algorithms_for_a_test:told:share=0.3"
    assert arm.text == f"algorithms_for_a_test:told@{arm.code}:share=0.3"
    assert parse(arm.text) == arm == arm.without("step_size")
    both = parse_all(["fedavg,algorithms_for_a_test:same"])
    assert [one.name for one in both] == ["fedavg", "algorithms_for_a_test:same"]
    assert both[0].text == both[0].name and not both[0].code


def test_what_it_is_told_follows_from_its_arguments():
    row = registration("algorithms_for_a_test:told")
    assert row.needs_truth and row.clustered and not row.needs_classes
    assert not registration("algorithms_for_a_test:same").needs_truth


@pytest.mark.long
def test_other_code_has_another_name():
    """Control: a remark changes nothing."""
    first, remarked, changed = (
        dict(sources._modules(name))[name]
        for name in (
            f"{what}_for_a_test" for what in ("algorithms", "remarked", "changed")
        )
    )
    assert first == remarked != changed
    codes = {
        parse(f"{what}_for_a_test:told").code for what in ("algorithms", "changed")
    }
    assert len(codes) == 2


# Against misuse


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algorithms_for_a_test:needy", r"must take \(task, \*, step_size\)"),
        ("algorithms_for_a_test:still", r"it takes \(task, share\)"),
        ("algorithms_for_a_test:odd", "arguments that cannot be read"),
        ("algorithms_for_a_test:none", "no function of algorithms_for_a_test; it has"),
        ("absent_for_a_test:make", "which Python does not find"),
        ("algorithms_for_a_test:told@00:share=.1", "leave the code out"),
        ("algorithms_for_a_test:told:shar=.1", "nearest: share"),
        ("algorithms_for_a_test:told:share=x", "must be a finite number, got"),
        ("algorithms_for_a_test:", "must be MODULE:FUNCTION"),
        ("fedavgg:penalty=.1", "nearest: fedavg"),
        ("fedavg:same", "must be NAME:ARGUMENT=VALUE"),
    ],
)
def test_misuse_is_refused(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


FLAGS = ["--dataset", "digits", "--num-rounds", "2", "--num-trials", "2"]
FLAGS += ["--num-samples", "6", "--num-validation-samples", "3", "--num-hidden", "3"]
FLAGS += ["--num-test-samples", "5", "--cluster-size", "1"]


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("nothing", "nothing must give a `cfl.Algorithm`, got float"),
        ("wrong", "wrong raised TypeError: "),
    ],
)
def test_what_makes_no_algorithm_is_refused_before_anything_runs(
    tmp_path, capsys, function, message
):
    own = f"algorithms_for_a_test:{function}"
    assert main(["compare", own, "--out", str(tmp_path / "o"), *FLAGS]) == 2
    assert message in capsys.readouterr().err


# Against itself


@pytest.mark.slow
def test_fedavg_by_another_name_is_fedavg(tmp_path, capsys, monkeypatch):
    save_no_figures(monkeypatch)
    own = "algorithms_for_a_test:same"
    flags = ["--algorithms", "fedavg", own, "--num-clients", "8", "--num-rounds", "2"]
    flags += ["--num-hidden", "4", "--num-trials", "2", "--out", str(tmp_path / "out")]
    assert main(["run", "compare.all", "--preset", "quick", *flags, "--json"]) == 0
    table = read_csv(tmp_path / "out" / "table.csv")
    assert len(table) == 2 * 7
    for row in table:
        for name in ("algorithm", "seconds_per_round", "minus_best", "with_best"):
            row.pop(name)
        for end in ("low", "high"):
            row.pop(f"minus_best_{end}")
    assert table[::2] == table[1::2] and "newcomers" in table[0]
    # What nobody but the author knows is asked for.
    path = tmp_path / "out" / "results.json"
    with pytest.raises(submissions.RefusedError) as refused:
        submissions.read(path)
    (line,) = refused.value.lines
    assert line.endswith("[1] lacks authors, contact, code, citation, licence")
    document = json.loads(path.read_text())
    document["methods"][1] |= {
        n: document["methods"][0][n]
        for n in ("authors", "contact", "code", "citation", "licence")
    }
    assert submissions.faults(document) == []
    assert document["methods"][1]["name"] == own
