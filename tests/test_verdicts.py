"""Verdicts on published numbers: each rule by hand, with what it must reject."""

import csv
import fnmatch
import math

import numpy as np
import pytest

from experiments import verdicts
from experiments.published import FILE, NUM_SEEDS, Published, published
from experiments.verdicts import Change, Kind, Size, judge

PAPER = Published(
    "clove", "Table 1", "MNIST", "Label skew 1", "IFCA", "test accuracy %", 80.0, 1.0
)


def accuracy(*values, size=None, **paper):
    """The verdict on accuracies of some seeds."""
    return judge(np.array(values, float), PAPER._replace(**paper), size or Size())


def around(mean, std):
    """Three seeds with a mean and a standard deviation."""
    return mean + std * np.sqrt(1.5) * np.array([-1, 0, 1])


# Against a reference: the papers' numbers.


def test_there_are_770_numbers_each_with_a_name_of_its_own():
    rows = published()
    assert len(rows) == 770 and len({row.key for row in rows}) == 770
    dashes = [row for row in rows if row.mean is None]
    assert len(dashes) == 81
    assert {row.metric for row in dashes} == {"first round with ARI>=0.9"}
    counts = {paper: len(published(paper)) for paper in NUM_SEEDS}
    assert counts == {"clove": 724, "ifca": 18, "werner": 28}
    assert {row.metric for row in rows} == set(verdicts.MEASURES)


def test_published_numbers_are_the_papers(shared):
    with (shared / "published" / "numbers.csv").open(newline="") as file:
        wanted = list(csv.reader(file))
    with FILE.open(newline="") as file:
        assert list(csv.reader(file)) == wanted


# Against equations: when numbers differ.


def test_two_pooled_deviations_and_half_a_point():
    # sqrt((3^2 + 1^2) / 2) = sqrt(5); twice that is 4.47.
    near, far = accuracy(*around(84.4, 3)), accuracy(*around(84.5, 3))
    assert (near.kind, far.kind) == (Kind.AGREES, Kind.OPEN)
    assert (near.mean, near.std) == (pytest.approx(84.4), pytest.approx(3))
    assert near.deviations == pytest.approx(4.4 / np.sqrt(5))
    assert accuracy(*around(75.5, 3)).kind is Kind.OPEN
    for mean, kind in ((80.5, Kind.AGREES), (80.6, Kind.OPEN)):
        assert accuracy(mean, mean, mean, std=0.0).kind is kind
    index = {"metric": "ARI", "mean": 0.9, "std": 0.0}
    for mean, kind in ((0.905, Kind.AGREES), (0.906, Kind.OPEN)):
        assert accuracy(mean, mean, mean, **index).kind is kind


def test_without_a_published_deviation_ours_stands_for_both():
    assert accuracy(*around(81.9, 1), std=None).kind is Kind.AGREES
    far = accuracy(*around(82.1, 1), std=None)
    assert far.kind is Kind.OPEN
    assert far.deviations == pytest.approx(2.1)


@pytest.mark.parametrize("lost", [math.nan, math.inf, -math.inf])
def test_not_a_number_never_agrees(lost):
    assert accuracy(80, 80, lost).kind is Kind.OPEN
    assert accuracy(80, 80, 80).kind is Kind.AGREES
    assert accuracy(lost, lost, lost).kind is Kind.OPEN
    assert accuracy(80, lost, size=REDUCED).is_far


# Against equations: what may be compared.

REDUCED = Size((Change("num_rounds", 10, 100),))


@pytest.mark.parametrize("values", [(80.0,), (80.0, 80.0), (20.0,)])
def test_fewer_than_three_seeds_neither_agree_nor_differ(values):
    found = accuracy(*values)
    assert found.kind is Kind.UNKNOWN and found.std is None
    assert found.difference == values[0] - 80
    assert found.head == "spread unknown" and found.text.endswith("0.0")
    assert accuracy(*values[:1], *2 * [80.0]).kind is not Kind.UNKNOWN


def test_a_reduced_run_never_agrees_and_says_what_is_less():
    same, far = accuracy(*3 * [80.0], size=REDUCED), accuracy(60, 60, 60, size=REDUCED)
    assert (same.kind, same.is_far) == (Kind.REDUCED, False)
    assert same.head == "reduced (10 of 100 rounds)" and same.text == "reduced, +0.0"
    assert far.head == "reduced (10 of 100 rounds), differs"
    assert far.text == "reduced, differs by -20.0"
    one = accuracy(60, size=REDUCED)
    assert one.head == "reduced (10 of 100 rounds, 1 of 3 seeds), differs"
    assert one.text == "reduced (1 of 3 seeds), differs by -20.0"
    near = accuracy(78.1, size=REDUCED)  # Within two of the paper's deviations.
    assert not near.is_far and accuracy(77.9, size=REDUCED).is_far
    unknown = accuracy(60, size=REDUCED, std=None)
    assert not unknown.is_far, "nothing is known of any spread"
    assert accuracy(*3 * [80.0]).kind is Kind.AGREES


def test_fewer_seeds_than_the_papers_are_a_reduction():
    four = accuracy(*4 * [80.0], paper="ifca")
    assert four.head == "reduced (4 of 5 seeds)"
    assert accuracy(*5 * [80.0], paper="ifca").kind is Kind.AGREES
    assert accuracy(*3 * [80.0], paper="werner").kind is Kind.AGREES


def test_other_data_and_other_settings_are_not_compared():
    digits = accuracy(*3 * [80.0], size=Size(other_data="scikit-learn's digits"))
    assert digits.text == "not comparable"
    assert digits.head == "not comparable (scikit-learn's digits)"
    other = Size((Change("step_size", 0.01, 0.001), Change("num_rounds", 200, 100)))
    assert accuracy(*3 * [80.0], size=other).head == (
        "not comparable (step size 0.01 instead of 0.001, rounds 200 instead of 100)"
    )
    less = Size((*other.changes, Change("num_clients", 5, 25)))
    assert accuracy(*3 * [80.0], size=less).kind is Kind.OTHER
    assert accuracy(*3 * [80.0], size=Size(less.changes[2:])).kind is Kind.REDUCED
    tests = Change("num_test_samples", 100, 50)
    more = Size((*less.changes[2:], tests))
    assert accuracy(*3 * [80.0], size=more).kind is Kind.REDUCED
    assert accuracy(*3 * [80.0], size=Size((tests,))).kind is Kind.OTHER


def test_what_is_not_there():
    assert judge(np.zeros(0), PAPER, Size()) == verdicts.NOT_RUN
    assert judge(np.zeros(3), None, Size()).kind is Kind.NOTHING
    assert judge(np.zeros(3), None, Size(other_data="digits")).kind is Kind.OTHER


@pytest.mark.parametrize(
    ("ours", "paper", "kind"),
    [
        ([math.inf] * 3, None, Kind.AGREES),
        ([math.inf] * 3, 2.0, Kind.OPEN),
        ([2.0] * 3, None, Kind.OPEN),
        ([2.0, 2.0, math.inf], None, Kind.OPEN),
        ([2.0, 2.0, math.inf], 2.0, Kind.UNKNOWN),
        ([2.0] * 3, 2.0, Kind.AGREES),
        ([1.0] * 3, 2.0, Kind.OPEN),
    ],
)
def test_what_never_happens_agrees_with_a_dash_only(ours, paper, kind):
    metric = {"metric": "first round with ARI>=0.9", "std": None}
    assert accuracy(*ours, mean=paper, **metric).kind is kind


def test_a_loss_that_diverged_is_not_one_that_never_happened():
    assert accuracy(math.inf, 1, 1, metric="test loss", mean=1.0).kind is Kind.OPEN


# Causes, and several verdicts at once.


@pytest.fixture
def findings(tmp_path, monkeypatch):
    """Writes the table of findings."""

    def write(*rows):
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.csv"
        text = "".join(f"{','.join(row)}\n" for row in rows)
        file.write_text("key,kind,ours,finding,command\n" + text)
        monkeypatch.setattr(verdicts, "FINDINGS", file)

    return write


def test_a_tested_cause_explains_a_difference_and_nothing_else(findings):
    findings((PAPER.key, "cause", "60", "a slip", "python -m experiments run x"))
    far = accuracy(60, 60, 60)
    assert far.kind is Kind.EXPLAINED
    assert far.text == "differs (tested cause: a slip), -20.0"
    assert accuracy(80, 80, 80).kind is Kind.AGREES
    assert accuracy(60, 60, 60, algorithm="FedAvg").kind is Kind.OPEN
    assert accuracy(60.4, 60.4, 60.4).kind is Kind.EXPLAINED
    assert accuracy(50, 50, 50).kind is Kind.OPEN, "of another number"
    findings(
        ("clove / * / IFCA / *", "cause", "60", "a slip", "python -m experiments run x")
    )
    assert accuracy(60, 60, 60).kind is Kind.EXPLAINED
    assert accuracy(60, 60, 60, paper="ifca").kind is not Kind.EXPLAINED


def test_what_public_code_does_is_no_cause_of_its_own_difference(findings):
    findings((PAPER.key, "cause", "60", "as released", "python -m experiments run x"))
    plain, released = Size(form="as released"), Size(is_released=True)
    assert accuracy(60, 60, 60, size=plain).kind is Kind.EXPLAINED  # Control.
    assert accuracy(60, 60, 60, size=released).kind is Kind.OPEN


def test_what_some_seeds_never_reach_agrees_with_nothing():
    paper = PAPER._replace(metric="first round with ARI>=0.9", mean=2.0, std=0.0)
    found = judge(np.array([2.0, 2.0, 2.0, math.inf]), paper, Size())
    assert found.kind is Kind.UNKNOWN and "3 of 4 seeds" in found.text
    assert judge(np.array([2.0, 2.0, 2.0]), paper, Size()).kind is Kind.AGREES


def test_a_finding_of_no_kind_or_that_no_command_tested_is_refused(findings):
    for row in (
        ("cause", "60", "a slip", ""),
        ("guess", "", "a slip", "run"),
        ("cause", "", "a slip", "run"),
        ("tried", "60", "a slip", "run"),
    ):
        findings((PAPER.key, *row))
        with pytest.raises(ValueError, match="which command tested it, got 'clove / T"):
            accuracy(60, 60, 60)


def test_the_findings_of_the_project_are_of_published_numbers():
    keys = [row.key for row in published()]
    for own in verdicts.read_findings(verdicts.FINDINGS):
        assert any(fnmatch.fnmatchcase(key, own.key) for key in keys)
        assert own.command.startswith("python -m ")


def test_verdicts_on_several_numbers_are_each_said_once():
    agrees, far = accuracy(80, 80, 80), accuracy(60, 60, 60)
    assert verdicts.together({"accuracy": agrees, "ARI": agrees}) == "agrees"
    both = verdicts.together({"accuracy": far, "ARI": agrees})
    assert both == "differs (open): accuracy -20.0; agrees: ARI"
