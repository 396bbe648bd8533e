"""Werner's rows: the registered verdict, and a violated control."""

import numpy as np
import pytest

from cfljax.statements.statement import Preset
from cfljax.statements.verdict import Status
from theory import registry

QUICK = Preset()
ROWS = [row for row in registry.all_statements() if row.paper == "werner"]
# Rows that take longer than half a second, with their controls.
_SLOW = """
asm1 asm8 byz.alie byz.bitflip byz.ipm byz.outer_gap byz.percentile eq2.corrected eq20
ex1a.fc fig4.corrected lem14 lem7 lem9 table1 thm1 thm1.start thm3
thm3.capture.corrected thm3.corrected thm4.corrected thm4.momentum.corrected
"""
SLOW = {f"werner.{name}" for name in _SLOW.split()}


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
