"""What is drawn of a board: table and figure of `compare.all`, and whose methods these
are.

The statistics are those of `compare.all`, from the values of each seed.
"""

import html
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from cfljax import report
from experiments.compare import every
from experiments.compare.board import Board, Method
from experiments.compare.rows import bounded, compare_with_best

# What the form has of each seed: column of the table, factor, least and most.
_OF_SEEDS = {
    "test": ("accuracy", 100, (0.0, 100.0)),
    "validation": ("validation", 100, (0.0, 100.0)),
    "newcomers": ("newcomers", 100, (0.0, 100.0)),
    "rand_index": ("rand_index", 1, (-1.0, 1.0)),
}
_COSTS = ("received_mib", "sent_mib", "seconds_per_round")


def rows(board: Board) -> list[dict[str, Any]]:
    """The table, as that of `compare.all`, in per cent: what methods say of themselves,
    with intervals, and whom the seeds do not tell apart from the best."""
    table = []
    for world in board.comparison["worlds"]:
        entries = [method["worlds"][world] for method in board.methods.values()]
        own = [_row(world, method, board) for method in board.methods.values()]
        tests = [
            100 * np.array(entry["test"], float) if "test" in entry else None
            for entry in entries
        ]
        compare_with_best(own, tests, board.comparison["error_rate"])
        table += own
    return table


def _row(world: str, method: Method, board: Board) -> dict[str, Any]:
    """One method in one world."""
    own, rate = method["worlds"][world], board.comparison["error_rate"]
    row: dict[str, Any] = {"world": world, "algorithm": method["name"]}
    if "does_not_apply" in own:
        return row | {"does_not_apply": _harmless(own["does_not_apply"])}
    row |= {"chosen": own.get("chosen", ""), "settings": method["settings_tried"]}
    row |= {"seeds": board.comparison["num_trials"]}
    if "failed" in own:
        return row | {"why_failed": _harmless(own["failed"])}
    for name, (column, factor, limits) in _OF_SEEDS.items():
        if name in own:
            values = factor * np.array(own[name], float)
            row |= bounded(values, column, rate, limits)
    return row | {name: float(own[name]) for name in _COSTS if name in own}


def _harmless(text: str) -> str:
    """A text of others, as it is shown in Markdown: no tag and no link."""
    return html.escape(text, quote=False).replace("[", "\\[")


def draw(board: Board, out: pathlib.Path) -> dict[str, Any]:
    """Write table and figure of a board, if it has results; a summary for the command.

    Args:
      board: what was read.
      out: folder of table.csv, table.md and the figure, `accuracy`.
    """
    comparison, methods = board.comparison, board.methods.values()
    if not any("test" in own for m in methods for own in m["worlds"].values()):
        return {"headline": "the board has no results yet", "files": [], "rows": []}
    table, worlds = rows(board), comparison["worlds"]
    config = every.config_of(comparison)
    text = every.markdown(table, worlds) + every.note(config) + "\n"
    text += _who(board.methods)
    report.write_csv(out / "table.csv", table)
    report.write_text(out / "table.md", text)
    figure = every.draw(table, worlds, config)
    paths = [out / "table.csv", out / "table.md"]
    paths += report.save(figure, out / "accuracy")
    return {"headline": text, "files": list(map(str, paths)), "rows": table}


def _who(methods: Mapping[str, Method]) -> str:
    """Whose methods these are, and where their code is."""
    lines = []
    for name, own in methods.items():
        link, commit = own["code"]["link"], own["code"]["commit"]
        is_address = link.startswith("http")
        lines.append(
            {
                "method": name,
                "authors": _harmless(", ".join(own["authors"])),
                "citation": _harmless(own["citation"]),
                "code": f"[{commit[:12]}]({link})" if is_address else commit[:12],
                "licence": _harmless(own["licence"]),
                "settings": own["settings_tried"],
                "contact": _harmless(own["contact"]),
                "seconds on": _harmless(own.get("machine", "")),
            }
        )
    headings = {name: name for name in lines[0]}
    return "What authors say of their methods:\n\n" + report.concise(lines, headings)
