"""Intervals for proportions and means that are valid at every sample size.

`fixed` holds those of a number of trials that was fixed beforehand, `sequence` the
one that stays valid however the trials were stopped.
"""

from cfljax.intervals.fixed import (
    clopper_pearson,
    divide,
    hoeffding,
    resolution,
    slope,
    student,
    wilson,
)
from cfljax.intervals.sequence import confidence_sequence

__all__ = [
    "clopper_pearson",
    "confidence_sequence",
    "divide",
    "hoeffding",
    "resolution",
    "slope",
    "student",
    "wilson",
]
