"""The command `python -m experiments ledger`: its rows, and the files it writes."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from cfljax import report
from experiments.ledger import entries, page, papers, stores
from experiments.verdicts import MEASURES

STORE = pathlib.Path("figures/ledger/store")  # Where none is named; it may be absent.
HEADINGS = {
    "dataset": "data",
    "setting": "setting",
    "algorithm": "algorithm",
    "metric": "measure",
    "paper": "paper",
    "ours": "ours",
    "seeds": "seeds",
    "rounds": "rounds",
    "size": "size",
    "difference": "difference",
    "deviations": "in pooled deviations",
    "verdict": "verdict",
}
NOTE = """\
Every number of the papers' tables of results, what this project has of it, and what
that says, by the rules of `experiments/verdicts.py`. Deviations of ours divide by the
number of seeds; the pooled one is the root of the mean of both variances. `ledger.csv`
and the page `ledger.html` have the command of each number, which finds the data in the
folder `CFLJAX_DATA`, its commits, and what runs found of a difference.
"""


def write(folders: Sequence[pathlib.Path] | None, out: pathlib.Path) -> dict[str, Any]:
    """Read the stores and write `ledger.csv`, `table.md` and `ledger.html`; a summary.

    Args:
      folders: of stores; `STORE` if None.
      out: folder of the files, made if missing.

    Raises:
      ValueError: if a folder is there and no store.
    """
    own = (STORE,) if folders is None else folders
    blocks = stores.read(own)
    num_skipped = sum(map(stores.num_files, own)) - len(blocks)
    table, lost = entries.rows(stores.runs(blocks, papers.KINDS))
    notes = [
        f"{number} {what}"
        for number, what in (
            (num_skipped, "damaged files of the stores were skipped"),
            (lost, "runs of the stores mean nothing any more"),
        )
        if number
    ]
    counted = entries.counts(table)
    hours = entries.missing_hours(table)
    left = f"What was not run at all would take about {hours:,.0f} core hours.\n"
    report.write_csv(out / "ledger.csv", table)
    texts = [shown(row) for row in table]
    heads = [NOTE, report.markdown(counted), left, *(f"{note}.\n" for note in notes)]
    report.write_text(
        out / "table.md", "\n".join(["# Ledger\n", *heads, _sections(texts)])
    )
    report.write_text(out / "ledger.html", page.html(texts, counted, f"{NOTE}{left}"))
    return {
        "headline": "\n".join([report.markdown(counted), left, *notes]),
        "files": [
            str(out / name) for name in ("ledger.csv", "table.md", "ledger.html")
        ],
        "counts": counted,
        "core_hours": hours,
        "skipped_files": num_skipped,
        "lost_runs": lost,
        "rows": table,
    }


def _sections(table: Sequence[Mapping[str, Any]]) -> str:
    """The rows for people, a section for each of the papers' tables."""
    sections: dict[str, list[Mapping[str, Any]]] = {}
    for row in table:
        title = f"{row['of']}, {row['item']}"
        sections.setdefault(title, []).append(row)
    return "\n".join(
        f"## {title}\n\n{_whole(own)}\n\n{report.concise(own, HEADINGS)}"
        for title, own in sections.items()
    )


def _whole(rows: Sequence[Mapping[str, Any]]) -> str:
    """The commands that make all of some rows at the paper's size."""
    usual = "--preset paper"
    own = (f"{row['command'].partition(usual)[0]}{usual}" for row in rows)
    return ", ".join(f"`{command}`" for command in dict.fromkeys(own))


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose numbers are texts."""
    printed = row["paper_mean"], row["paper_std"]
    digits = max(MEASURES[row["metric"]].digits, *map(_decimals, printed))
    signed = lambda name, number: (
        None if row[name] is None else f"{row[name]:+.{number}f}"
    )
    is_run = row["seeds"] is not None
    return {
        **row,
        "of": row["paper"],
        "paper": _mean(row["paper_mean"], row["paper_std"], digits),
        "ours": _mean(row["mean"], row["std"], digits) if is_run else None,
        "difference": signed("difference", digits),
        "deviations": signed("deviations", 1),
    }


def _decimals(number: float | None) -> int:
    """Digits behind the point, as printed."""
    return len(f"{number:g}".partition(".")[2]) if number is not None else 0


def _mean(mean: float | None, std: float | None, digits: int) -> str:
    if mean is None:
        return "never"
    return f"{mean:.{digits}f}" + ("" if std is None else f" ± {std:.{digits}f}")
