"""What the papers print: every number of their tables of results, in one file.

`published.csv` has one row for each of the 770 numbers. Of 81 the mean is empty, the
paper's dash: a clustering that never reached an adjusted Rand index of 0.9. Werner et
al. give no standard deviations.
"""

import csv
import functools
import pathlib
from typing import NamedTuple

FILE = pathlib.Path(__file__).with_name("published.csv")
NUM_SEEDS = {"ifca": 5, "clove": 3, "werner": 1}  # Runs behind each number of a paper.


class Published(NamedTuple):
    """One number of a paper, as it is printed."""

    paper: str  # "clove", "ifca" or "werner"
    item: str  # such as "Table 1"
    dataset: str
    setting: str  # "" where the table has one setting only
    algorithm: str
    metric: str
    mean: float | None  # None for the paper's dash
    std: float | None  # standard deviation; None where the paper gives none

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return " / ".join(filter(None, self[:6]))


@functools.cache
def published(paper: str | None = None) -> tuple[Published, ...]:
    """All numbers of a paper, or of all three, in the order of the file."""
    found = []
    with FILE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            mean, std = (row.pop(end) for end in ("mean", "std"))
            number = Published(**row, mean=_number(mean), std=_number(std))
            found.append(number)
    return tuple(number for number in found if paper in (None, number.paper))


def _number(text: str) -> float | None:
    return float(text) if text else None
