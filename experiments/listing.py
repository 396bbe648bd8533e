"""What `list` tells: experiments by paper, what they take, and who has results."""

import json
from collections.abc import Iterator
from typing import Any

from experiments import costs, registry
from experiments.registry import FOLDER, PAPERS, PRESETS, Entry

_RESULTS = FOLDER.parent / "figures"  # Committed ones, where this is a checkout.
_BENCHMARKS = "Benchmarks, for `bench`"


def as_json() -> str:
    """One document: titles by id, and for each id what else is known."""
    both = {"experiments": registry.EXPERIMENTS, "benchmarks": registry.BENCHMARKS}
    document: dict[str, Any] = {
        kind: {id: entry.title for id, entry in entries.items()}
        for kind, entries in both.items()
    }
    document["papers"] = dict(PAPERS)
    document["takes"] = {id: costs.rows(id) for id in registry.EXPERIMENTS}
    document["results"] = {id: size(entry) for id, entry in both["experiments"].items()}
    return json.dumps(document, indent=2)


def as_text() -> str:
    """A line for each id below its paper."""
    lines = []
    width = max(map(len, (*registry.EXPERIMENTS, *registry.BENCHMARKS))) + 2
    for paper, title in PAPERS.items():
        lines += [f"{title}:"] if not lines else ["", f"{title}:"]
        for id, entry in registry.EXPERIMENTS.items():
            if id.partition(".")[0] == paper:
                lines += [
                    f"  {id:{width}}{entry.title}",
                    f"  {'':{width}}{_told(entry)}",
                ]
    lines += ["", f"{_BENCHMARKS}:"]
    for id, entry in registry.BENCHMARKS.items():
        lines.append(f"  {id:{width}}{entry.title}")
    return "\n".join([*lines, "", f"Times: {costs.MACHINE}."])


def _told(entry: Entry) -> str:
    """What is known besides the title."""
    known = costs.rows(entry.id)
    parts = [
        f"{preset}: {costs.text(known[preset])}"
        for preset in PRESETS
        if preset in known
    ]
    if _RESULTS.is_dir():
        found = size(entry)
        parts.append(f"results: {found} size" if found else "no results")
    return "; ".join(parts)


def size(entry: Entry) -> str | None:
    """The preset of the committed results; None without any, or without a checkout."""
    try:
        file = _RESULTS / entry.id / "provenance.json"
        runs = json.loads(file.read_text("utf-8"))["runs"] if file.is_file() else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if said := next(_presets(runs), None):
        return said
    # Older ones do not say; the table of costs knows it by their settings.
    return next(iter(costs.rows(entry.id)), "unknown")


def _presets(runs: Any) -> Iterator[str]:
    """What the command that wrote them said, if it did."""
    last = runs[-1] if isinstance(runs, list) and runs else None
    if isinstance(last, dict) and isinstance(last.get("preset"), str):
        yield last["preset"]
