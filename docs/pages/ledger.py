"""The ledger: every published number beside ours, to sort and to filter."""

import functools
from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from cfljax import report
from experiments.ledger import entries, write
from experiments.ledger.page import COLOURS
from experiments.verdicts import Kind
from pages.markdown import FIGURES, rendered

FILE = FIGURES / "ledger" / "ledger.csv"
HEADINGS = {
    "published number": "name",
    "paper": "paper",
    "ours": "ours",
    "seeds": "seeds",
    "rounds": "rounds",
    "size": "size",
    "difference": "difference",
    "in pooled deviations": "deviations",
}


@functools.cache
def rows() -> list[dict[str, Any]]:
    """The committed ledger's rows."""
    return report.read_csv(FILE)


def sources(report: bool) -> Mapping[str, str]:
    """The page."""
    counts = entries.counts(rows())
    every = [write.shown(row) for row in rows()]
    for row in every:
        place = ", ".join(filter(None, (row["item"], row["dataset"], row["setting"])))
        algorithm = f"{place}, <b>{row['algorithm']}</b>, {row['metric']}"
        row["name"] = Markup(f"{row['of']}, {algorithm}")
    return {
        "ledger.md": rendered(
            "ledger.md",
            rows=every,
            headings=HEADINGS,
            counts=counts,
            colours=COLOURS,
            papers=list(dict.fromkeys(row["of"] for row in every)),
            kinds=[k.value for k in Kind if any(r["kind"] == k.value for r in every)],
        )
    }
