"""What `store` does: tell what a folder of results holds, and what of it is no use."""

import argparse
import collections
import json
from collections.abc import Sequence
from typing import Any

from cfljax.engine import upkeep
from cfljax.report import markdown


def main(arguments: argparse.Namespace) -> int:
    """Do what was asked for; the exit status, 1 if something is damaged, and stays so.

    Raises:
      ValueError: if the path holds no results, a run is at work there, or `--dry-run`
        is asked of what changes nothing.
    """
    path, action = arguments.path, arguments.action
    if arguments.dry_run and action != "repair":
        raise ValueError(f"`--dry-run` is for `repair`; `{action}` changes nothing.")
    if action == "repair" and isinstance(path, str):
        upkeep.repair(path)  # Which refuses what is in a bucket.
    if action == "ls":
        found = upkeep.holdings(path)
        every = [one._asdict() for one in found]
        _print(arguments, {"path": str(path), "holdings": every}, _table(found))
        return 0
    is_repair = action == "repair" and not arguments.dry_run
    items = upkeep.survey(path)
    useless = [one for one in items if one.condition in upkeep.USELESS]
    if is_repair and not arguments.json:  # Before anything is deleted.
        print(_lines(useless))
    repaired = upkeep.repair(path) if is_repair and useless else []
    summary = {
        "path": str(path),
        "files": len(items),
        "conditions": dict(collections.Counter(one.condition for one in items)),
        "found": [one._asdict() for one in items if one.condition != "sound"],
        "repaired": [one.name for one in repaired],
    }
    if is_repair:
        what = "the next run computes what is missing" if repaired else "nothing to do"
        _print(arguments, summary, f"repaired {len(repaired)} files; {what}")
        return 0
    if action == "repair":
        items = useless
    _print(arguments, summary, f"{_lines(items)}\n{_counts(summary)}".strip())
    return 1 if any(one.condition in ("damaged", "exchanged") for one in items) else 0


def _print(arguments: argparse.Namespace, document: dict[str, Any], text: str) -> None:
    print(json.dumps(document, indent=2) if arguments.json else text)


def _table(found: Sequence[upkeep.Holding]) -> str:
    """What is there, for people."""
    rows = [
        {
            "experiment": one.experiment,
            "revision": one.revision,
            "cells": one.cells,
            "trials": one.trials,
            "of": one.asked,
            "MiB": f"{one.size / 2**20:.2f}",
            "code": ", ".join(code[:8] for code in one.code),
            "first": one.first,
            "last": one.last,
        }
        for one in found
    ]
    return markdown(rows) if rows else "nothing yet"


def _lines(items: Sequence[upkeep.Item]) -> str:
    """A line for each file of which something is to be said."""
    return "\n".join(
        f"{one.condition}: {one.name}{f' ({one.note})' if one.note else ''}"
        for one in items
        if one.note or one.condition != "sound"
    )


def _counts(summary: dict[str, Any]) -> str:
    order = ("sound", *upkeep.USELESS, "unknown")
    found = summary["conditions"]
    told = ", ".join(f"{found[name]} {name}" for name in order if name in found)
    return f"{summary['files']} files: {told or 'none'}"
