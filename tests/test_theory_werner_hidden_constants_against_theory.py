"""The judge of claims with a hidden constant, on powers and constants."""

import numpy as np
import pytest

from theory.verdict import Status
from theory.werner.hidden_constants import Family, exactly, one_constant

LEVELS = 2.0 ** np.arange(1, 7)


def _status(ratios, **options):
    return one_constant("toy.a", [exactly("x", LEVELS, ratios)], **options).status


def test_slope_of_a_power_is_its_exponent():
    for power in (-1.0, 0.0, 0.5, 2.0):
        low, high = exactly("x", LEVELS, 3 * LEVELS**power).slope
        assert low <= power + 1e-12 and high >= power - 1e-12
        assert high - low < 1e-8


def test_slope_covers_every_line_within_the_intervals():
    ratios = LEVELS**0.3
    low, high = Family("x", LEVELS, 0.8 * ratios, 1.2 * ratios).slope
    tilted = ratios * np.linspace(0.8, 1.2, len(LEVELS))
    assert low < 0.3 < exactly("x", LEVELS, tilted).slope[0] < high
    assert low < exactly("x", LEVELS, tilted[::-1] / ratios[::-1] * ratios).slope[1]


def test_constant_ratio_holds_and_growing_one_does_not():
    assert _status(np.full(6, 0.5)) is Status.HOLDS
    assert _status(0.01 * LEVELS) is Status.VIOLATED
    assert _status(1 / LEVELS) is Status.HOLDS


def test_declared_constant_counts():
    assert _status(np.full(6, 20.0)) is Status.VIOLATED
    assert _status(np.full(6, 20.0), constant=30.0) is Status.HOLDS


def test_wide_intervals_are_inconclusive():
    wide = Family("x", LEVELS, np.full(6, 0.5), np.full(6, 2.0))
    assert one_constant("toy.a", [wide]).status is Status.INCONCLUSIVE


def test_undefined_ratios_are_no_evidence():
    ratios = np.full(6, 0.5)
    ratios[2] = np.nan
    assert _status(ratios) is Status.INCONCLUSIVE


def test_one_bad_family_spoils_all():
    good, bad = (exactly("x", LEVELS, LEVELS**power) for power in (0.0, 1.0))
    found = one_constant("toy.a", [good, bad], constant=1e9)
    assert found.status is Status.VIOLATED
    assert found.num_trials == 12 and found.error_rate == 0
    assert found.bound == pytest.approx(0.1)


def test_relief_takes_its_power_off_the_slope():
    family = exactly("x", LEVELS, 3 * LEVELS**0.5)
    low, high = family.relieved(0.3).slope
    assert low < 0.2 < high and high - low < 1e-8
    assert family.relieved(0.3).low[0] == family.low[0]
    assert _status(0.01 * LEVELS**0.5, relief=0.3) is Status.VIOLATED
    assert _status(0.01 * LEVELS**0.5, relief=0.5) is Status.HOLDS
