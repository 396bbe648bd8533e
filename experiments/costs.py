"""What experiments take, as their committed results tell: `costs.csv`.

Columns: `id` and `preset` of the results; `minutes`, the time within which they were
computed, by the runs in their `provenance.json`; `gib`, the most memory that the run
which wrote them had. Both are empty where that is not known: of runs that were killed,
or of before memory was recorded.

    python -m experiments.costs

makes the table again, wherever `figures` has results.
"""

import argparse
import csv
import datetime
import functools
import pathlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.registry import PRESETS

MACHINE = "measured on two cores of an AMD EPYC; yours will differ"
FILE = pathlib.Path(__file__).with_name("costs.csv")


def rows(id: str) -> dict[str, dict[str, str]]:
    """What is known of an experiment, by preset."""
    return {row["preset"]: row for row in _table() if row["id"] == id}


@functools.cache  # `list` asks for every experiment, more than once.
def _table() -> list[dict[str, str]]:
    with FILE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def lines(id: str) -> list[str]:
    """The same for people; says so where nothing is known."""
    known = rows(id)
    told = [
        f"  {name:6} {text(known[name]) if name in known else 'not recorded'}"
        for name in PRESETS
    ]
    return [f"It takes ({MACHINE}):", *told]


def text(row: Mapping[str, str]) -> str:
    """Time and memory in words."""
    minutes = float(row["minutes"]) if row["minutes"] else None
    time = "time not recorded"
    if minutes is not None:
        amount = f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}"
        time = f"{amount} minutes"
    return f"{time}, {row['gib']} GiB" if row["gib"] else f"{time}, memory not recorded"


def measured(figures: pathlib.Path) -> Iterator[dict[str, str]]:
    """A row for each experiment with results of a preset's size, in order."""
    from experiments.gallery import folders
    from experiments.registry import EXPERIMENTS

    for id, entry in EXPERIMENTS.items():
        found = folders.read(figures / id, entry)
        if (
            found is None
            or found.run is None
            or found.size in (None, folders.Size.OTHER)
        ):
            continue
        assert found.size is not None
        minutes = _minutes(found.runs)
        gib = found.run.get("peak_gib")
        yield {
            "id": id,
            "preset": found.size.value,
            "minutes": "" if minutes is None else f"{minutes:.1f}",
            "gib": "" if gib is None else f"{gib:.1f}",
        }


def _minutes(runs: Sequence[Mapping[str, Any]]) -> float | None:
    """Time in which some run was at work; None if one was killed, or is too old."""
    at = lambda text: datetime.datetime.fromisoformat(text).timestamp()
    if not all(run.get("started") and run.get("finished") for run in runs):
        return None
    total, end = 0.0, 0.0
    for first, last in sorted((at(r["started"]), at(r["finished"])) for r in runs):
        total += max(0.0, last - max(first, end))
        end = max(end, last)
    return total / 60


def main(argv: Sequence[str] | None = None) -> int:
    """Make the table again; 0."""
    parser = argparse.ArgumentParser(prog="python -m experiments.costs")
    parser.add_argument("figures", nargs="?", type=pathlib.Path, default="figures")
    from cfljax import report

    report.write_csv(FILE, list(measured(parser.parse_args(argv).figures)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
