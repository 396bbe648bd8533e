"""CLoVE's rows: the registered verdict, and a violated control."""

import pytest

from theory import registry
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()
ROWS = registry.select(["clove"])
SLOW = {  # rows that take longer than half a second, with their controls
    "clove.ARIdef",
    "clove.NK",
    "clove.NK.corrected",
    "clove.corA14",
    "clove.fig4",
    "clove.jointlaw",
    "clove.kkcond.loose",
    "clove.kkcond.losses",
    "clove.lemA13",
    "clove.lemA2",
    "clove.lemA7",
    "clove.remA12",
    "clove.remA12.corrected",
    "clove.thm41",
    "clove.thm41.corrected",
    "clove.thm41.law",
    "clove.thmA10",
    "clove.thmA10.corrected",
    "clove.thmA9",
    "clove.thmA9.corrected",
}


def _marked(row):
    marks = [pytest.mark.slow] if row.id in SLOW else []
    return pytest.param(row, marks=marks, id=row.id)


@pytest.mark.parametrize("row", [_marked(row) for row in ROWS])
def test_verdict_and_control(row):
    assert row.check(QUICK).status is row.expected
    assert row.control(QUICK).status is Status.VIOLATED


def test_slow_rows_exist():
    assert {row.id for row in ROWS} >= SLOW


def test_a_false_row_has_a_corrected_one():
    ids = {row.id for row in ROWS}
    for row in ROWS:
        if row.expected is Status.VIOLATED:
            assert f"{row.id}.corrected" in ids, row.id
