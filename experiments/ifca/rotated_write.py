"""Files that the tables of rotated images consist of."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from cfljax import report
from experiments.ifca.rotated_figures import draw
from experiments.ifca.rotated_report import Result, markdown, runs
from experiments.options import Options

__all__ = ["write_settings", "write_tables"]


def write_tables(
    config: Any,
    options: Options,
    results: Sequence[Result],
    table: Sequence[Mapping[str, Any]],
    source: str,
) -> list[str]:
    """Tables, configuration and figure; returns their paths.

    Args:
      config: of the experiment.
      options: whose `out` is the folder.
      results: of all settings.
      table: their rows.
      source: of the images.
    """
    out = options.out
    report.write_csv(out / "table.csv", table)
    all_runs = [run for result in results for run in runs(result)]
    report.write_csv(out / "runs.csv", all_runs)
    report.write_text(out / "table.md", markdown(table))
    drawn = report.save(draw(results), out / "accuracy")
    names = ("table.csv", "runs.csv", "table.md")
    paths = [str(out / name) for name in names] + [str(path) for path in drawn]
    return [*paths, write_settings(config, options, source)]


def write_settings(config: Any, options: Options, source: Any) -> str:
    """The configuration and where the images came from; returns the path."""
    settings = dataclasses.asdict(config) | {"source": source}
    path = options.out / "config.json"
    report.write_text(path, json.dumps(settings, indent=2) + "\n")
    return str(path)
