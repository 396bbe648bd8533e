"""The ledger's rows: each published number, what we have of it, and how it is made.

What a run would take is an estimate: `costs.csv` has the core-seconds of a round for
some number of samples that are trained on in it, and more samples take as much longer.
Those of CLoVE are of two cores of an AMD EPYC, the others of an Intel Xeon.
"""

import csv
import fnmatch
import functools
import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from experiments.commands import typed
from experiments.ledger import papers
from experiments.ledger.papers import Found, Plan
from experiments.ledger.stores import Run
from experiments.published import Published, published
from experiments.registry import EXPERIMENTS
from experiments.verdicts import DIFFERS, NOT_RUN, Kind, Verdict, findings, judge

Row = dict[str, Any]
COSTS = pathlib.Path(__file__).with_name("costs.csv")
STALE = Verdict(Kind.STALE)


def rows(runs: Iterable[Run]) -> tuple[list[Row], int]:
    """One row for each published number, in the order of the file; and how many runs
    there are of which nothing can be told any more.
    """
    by_key: dict[str, list[Found]] = {}
    lost = 0
    for run in runs:
        try:
            found = papers.found_in(run)
        except (AttributeError, LookupError, TypeError, ValueError):
            if not run.is_stale:
                raise
            lost += 1
            continue
        for own in found:
            by_key.setdefault(own.number.key, []).append(own)
    verdicts = {
        id(own): judge(own.values, own.number, own.size)
        for every in by_key.values()
        for own in every
        if not own.run.is_stale
    }
    differing = {
        _form(own)
        for every in by_key.values()
        for own in every
        if id(own) in verdicts and verdicts[id(own)].kind in DIFFERS
    }
    table = []
    for number in published():
        own = by_key.get(number.key, [])
        explaining = [
            other
            for other in own
            if id(other) in verdicts
            and verdicts[id(other)].kind is Kind.AGREES
            and other.size.is_released
            and _form(other) not in differing
        ]
        best = min(own, key=_order, default=None)
        if best is None or best.run.is_stale:
            table.append(_open_row(number, best))
            continue
        verdict, cause = verdicts[id(best)], None
        if verdict.kind is Kind.OPEN and explaining:
            cause = explaining[0]
            verdict = verdict.explained(f"public code: {cause.size.form}")
        table.append(_row(best, verdict, cause))
    return table, lost


def _form(found: Found) -> tuple[str, bool]:
    """One form of a run: local models may be looked at as released besides."""
    return found.run.cells[0], found.size.is_released


def _order(found: Found) -> tuple:
    """The best first: of the present meaning, of the paper's size, of its own form, of
    fewest changes, of most seeds, of most rounds."""
    size = found.size
    rank = 0 if size.is_paper else 1 if size.is_reduced else 2
    run = found.run
    more = len(size.changes), -run.num_seeds, -run.trial.num_rounds
    return run.is_stale, rank, found.place, *more


def _open_row(number: Published, stale: Found | None) -> Row:
    """Of a number that we do not have, or no more."""
    plan = papers.plans()[number.key]
    row = _columns(number, STALE if stale else NOT_RUN, plan)
    row["cells"] = " ".join(stale.run.cells) if stale else None
    row["core_hours"] = round(core_hours(number, plan), 2)
    return row


def _row(found: Found, verdict: Verdict, cause: Found | None) -> Row:
    """Of a number that we have, and of public code that has the published one."""
    run, plan = found.run, papers.plan_of(found)
    row = _columns(found.number, verdict, plan)
    row |= {"mean": verdict.mean, "std": verdict.std, "seeds": verdict.num_seeds}
    row |= {"rounds": plan.num_rounds, "size": str(found.size)}
    row |= {"difference": verdict.difference, "deviations": verdict.deviations}
    row |= {"commits": " ".join(run.commits), "cells": " ".join(run.cells)}
    row["stores"] = " ".join(run.folders)
    notes = [found.note] if found.note else []
    notes += [f"`{folder}` has other numbers of these cells" for folder in run.others]
    if len(run.codes) > 1:
        notes.append(f"seeds of {len(run.codes)} versions of the code")
    if found.number.std is None and found.number.mean is not None:
        notes.append("the paper gives no deviation")
    if cause is not None:
        notes.append(f"cause tested by `{command(papers.plan_of(cause))}`")
    notes += _tested(found.number, verdict)
    return row | {"note": "; ".join(notes) or None}


def _tested(number: Published, verdict: Verdict) -> list[str]:
    """What was found of a difference, with the commands."""
    if verdict.kind is Kind.OPEN:
        every = findings(number, verdict.mean, "tried")
        return [f"tried: {own.finding}, by `{own.command}`" for own in every]
    is_cause = verdict.kind is Kind.EXPLAINED
    causes = findings(number, verdict.mean, "cause") if is_cause else ()
    return [
        f"cause tested by `{own.command}`"
        for own in causes
        if own.finding == verdict.reason
    ]


def _columns(number: Published, verdict: Verdict, plan: Plan) -> Row:
    """All columns, of which those of a run are empty."""
    row: Row = {"key": number.key}
    row |= dict(zip(Published._fields[:6], number[:6], strict=True))
    row |= {"paper_mean": number.mean, "paper_std": number.std}
    empty = ("mean", "std", "seeds", "rounds", "size", "difference", "deviations")
    row |= dict.fromkeys(empty)
    row |= {"kind": verdict.kind.value, "verdict": verdict.head}
    row |= {"command": command(plan)}
    return row | dict.fromkeys(("commits", "cells", "stores", "core_hours", "note"))


# Commands and costs.


def command(plan: Plan) -> str:
    """What makes a number, as one would type it: the paper preset, and the flags that
    differ from it."""
    asked = ["run", plan.experiment, "--preset", "paper"]
    return typed(asked, preset(plan.experiment), plan.config)


@functools.cache
def preset(experiment: str) -> Any:
    """The paper preset of an experiment."""
    return EXPERIMENTS[experiment].load().preset("paper")


@functools.cache
def _costs() -> tuple[Mapping[str, str], ...]:
    with COSTS.open(encoding="utf-8", newline="") as file:
        return tuple(csv.DictReader(file))


def core_hours(number: Published, plan: Plan) -> float:
    """What all seeds of a plan would take, roughly."""
    own = number.paper, number.dataset, number.algorithm
    for row in _costs():
        patterns = row["paper"], row["dataset"], row["algorithm"]
        if all(map(fnmatch.fnmatchcase, own, patterns)):
            round_ = float(row["core_seconds"]) * plan.samples / float(row["samples"])
            return round_ * plan.num_rounds * plan.config.num_trials / 3600
    raise ValueError(f"`{COSTS.name}` has no costs of {number.key}.")


# Counts.


def counts(table: Sequence[Mapping[str, Any]]) -> list[Row]:
    """How many numbers of each of the papers' tables have which verdict."""
    names = list(dict.fromkeys((row["paper"], row["item"]) for row in table))
    found = [
        _count(f"{paper}, {item}", [r for r in table if (r["paper"], r["item"]) == own])
        for own in names
        for paper, item in [own]
    ]
    return [*found, _count("all", table)]


def _count(name: str, own: Sequence[Mapping[str, Any]]) -> Row:
    kinds = [row["kind"] for row in own]
    shown = [kind for kind in Kind if kind is not Kind.NOTHING]
    return {"table": name, "numbers": len(own)} | {
        kind.value: kinds.count(kind.value) for kind in shown
    }


def missing_hours(table: Sequence[Mapping[str, Any]]) -> float:
    """What is left to be run; a run that several numbers are of counts once."""
    left = [row for row in table if row["core_hours"] is not None]
    hours = {papers.plans()[row["key"]].config: row["core_hours"] for row in left}
    return math.fsum(hours.values())
