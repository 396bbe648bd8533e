"""What whole panels of Figure 3 take: one trial of all cells of every size.

Cells of one size share their samples and are computed together, so a panel takes the
sum over its sizes. The first trial of a size is cold: it compiles what no size before
it has. A second one, of the next trial index, is warm and stands for all others. Times
are kept in a file as they come: what was measured at the same commit, with the same
packages and machine, is not measured again.
"""

import dataclasses
import json
import os
import pathlib
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp

from cfljax.engine.progress import Bar
from cfljax.engine.provenance import describe_run
from cfljax.report import write_text
from experiments.bench.fig3_data import trial_key
from experiments.bench.fig3_outcomes import Way
from experiments.ifca import fig3a, fig3b, fig3c, fig3d
from experiments.ifca.fig3 import REVISION, Config, grid
from experiments.ifca.success import Trial
from experiments.ifca.success_joint import shares, simulate_jointly

__all__ = ["PANELS", "Panel", "measure", "panels"]

Panel = Literal["a", "b", "c", "d"]
Rows = list[dict[str, Any]]

PANELS: Mapping[str, Callable[[], Config]] = MappingProxyType(
    {
        "a": lambda: fig3a.preset("paper"),
        "b": lambda: fig3b.preset("paper"),
        "c": lambda: fig3c.preset("paper"),
        "d": lambda: fig3d.preset("paper"),
    }
)


class _Group(NamedTuple):
    """All cells of a panel that are computed together.

    panel: letter.
    way: how.
    config: of the panel.
    trials: of the cells.
    """

    panel: str
    way: Way
    config: Config
    trials: list[Trial]

    @property
    def name(self) -> str:
        """What is measured, in full."""
        trials = [dataclasses.asdict(trial) for trial in self.trials]
        return json.dumps([self.panel, REVISION, self.config.step_sizes, trials])

    def seconds(self, index: int) -> float:
        """Of one trial."""
        steps = jnp.asarray(self.config.step_sizes, jnp.float32)
        started = time.perf_counter()
        simulate_jointly(self.trials, trial_key(self.config.seed, index), steps)
        return time.perf_counter() - started


def measure(
    letters: Sequence[Panel],
    ways: Sequence[Way],
    path: pathlib.Path,
    *,
    progress: bool,
) -> Rows:
    """Times two trials of every size of the panels, cold and warm; resumes.

    Args:
      letters: of the panels.
      ways: of computing trials.
      path: of the file that keeps the times.
      progress: whether to draw a bar.

    Returns:
      One row for each size.
    """
    groups = [group for way in ways for own in letters for group in _groups(own, way)]
    kept = _kept(path)
    with Bar("projection", visible=progress) as bar:
        bar.expect(sum(group.name not in kept for group in groups))
        for group in groups:
            if group.name in kept:
                continue
            load = os.getloadavg()[0]
            cold, warm = group.seconds(0), group.seconds(1)
            kept[group.name] = {"cold": cold, "warm": warm, "load": load}
            write_text(path, json.dumps({"run": describe_run(), "times": kept}) + "\n")
            bar.advance(1)
    return [_row(group, kept[group.name]) for group in groups]


def _groups(letter: Panel, way: Way) -> list[_Group]:
    """A panel's cells by size."""
    config = dataclasses.replace(
        PANELS[letter](), shortcuts=True, decide=way == "decide"
    )
    found: dict[Any, list[Trial]] = {}
    for cell in grid(f"ifca.fig3{letter}", config).cells():
        found.setdefault(shares(cell.trial), []).append(cell.trial)
    return [_Group(letter, way, config, trials) for trials in found.values()]


def _kept(path: pathlib.Path) -> dict[str, dict[str, float]]:
    """Times of a run that was cut off, if it was one of this code on this machine."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    is_same = isinstance(found, dict) and found.get("run") == describe_run()
    return found.get("times", {}) if is_same else {}


def _row(group: _Group, times: Mapping[str, float]) -> dict[str, Any]:
    first, number = group.trials[0], group.config.num_trials
    total = times["cold"] + (number - 1) * times["warm"]
    return {
        "panel": group.panel,
        "way": group.way,
        "m": first.num_clients,
        "n": first.num_samples,
        "d": first.num_features,
        "k": first.num_clusters,
        "cells": len(group.trials),
        "cold, s": times["cold"],
        "warm, s": times["warm"],
        "trials": number,
        "hours": total / 3600,
        "load": times["load"],
    }


def panels(groups: Rows) -> Rows:
    """Sums over the sizes of a panel, and over all panels."""
    rows = []
    for way in dict.fromkeys(row["way"] for row in groups):
        mine = [row for row in groups if row["way"] == way]
        letters = list(dict.fromkeys(row["panel"] for row in mine))
        for letter in letters:
            own = [row for row in mine if row["panel"] == letter]
            rows.append({"panel": letter, "way": way} | _sums(own))
        if len(letters) > 1:
            rows.append({"panel": "all", "way": way} | _sums(mine))
    return rows


def _sums(groups: Rows) -> dict[str, Any]:
    names = ("cells", "cold, s", "warm, s", "hours")
    sums = {name: sum(row[name] for row in groups) for name in names}
    trials = sum(row["cells"] * row["trials"] for row in groups)
    return {"sizes": len(groups), "trials of cells": trials} | sums
