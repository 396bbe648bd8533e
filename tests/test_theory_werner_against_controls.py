"""Werner's rows: the registered verdict, and a violated control."""

import numpy as np
import pytest

from theory import registry
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()
ROWS = [row for row in registry.all_statements() if row.paper == "werner"]
SLOW = {  # rows that take longer than half a second, with their controls
    "werner.asm1",
    "werner.asm8",
    "werner.byz.alie",
    "werner.byz.bitflip",
    "werner.byz.ipm",
    "werner.byz.outer_gap",
    "werner.byz.percentile",
    "werner.eq2.corrected",
    "werner.eq20",
    "werner.ex1a.fc",
    "werner.fig4.corrected",
    "werner.lem14",
    "werner.lem7",
    "werner.lem9",
    "werner.table1",
    "werner.thm1",
    "werner.thm1.start",
    "werner.thm3",
    "werner.thm3.capture.corrected",
    "werner.thm3.corrected",
    "werner.thm4.corrected",
    "werner.thm4.momentum.corrected",
}


def _marked(row):
    marks = [pytest.mark.slow] if row.id in SLOW else []
    return pytest.param(row, marks=marks, id=row.id)


@pytest.mark.parametrize("row", [_marked(row) for row in ROWS])
def test_verdict_and_control(row):
    verdict, control = row.check(QUICK), row.control(QUICK)
    assert verdict.status is row.expected
    assert control.status is Status.VIOLATED
    for points in (verdict.points, control.points):
        if points is not None:
            sizes = np.abs(np.concatenate([points.bounds, points.low, points.high]))
            # Smaller ones have lost their digits, and no place on an axis.
            assert np.all((sizes == 0) | (sizes > 1e-290) | np.isnan(sizes))


def test_slow_rows_exist():
    assert {row.id for row in ROWS} >= SLOW


def test_a_false_row_has_a_corrected_one():
    ids = {row.id for row in ROWS}
    for row in ROWS:
        if row.expected is Status.VIOLATED:
            assert f"{row.id}.corrected" in ids, row.id
