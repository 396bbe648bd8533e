"""Files and figure of CLoVE's Tables 1 and 2."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from cfljax import report
from experiments.clove.table1_report import (
    IMAGES,
    NAMES,
    Result,
    finished,
    first_found,
    markdown,
)
from experiments.clove.table1_trial import CLUSTERED
from experiments.options import Options

__all__ = ["draw", "runs", "write"]


def draw(results: Sequence[Result]) -> Figure | None:
    """ARI per round, one panel for each partition; None where no method has one."""
    panels = [panel for result in results for panel in _panels(result)]
    if not panels:
        return None
    return report.curves(
        panels,
        title="CLoVE, Tables 1 and 2: clusters found",
        legend_title="mean ± one standard deviation over the seeds",
        panels_per_row=4,
    )


def _panels(result: Result) -> Iterator[report.CurvePanel]:
    """The panel of a partition, if some method finds clusters."""
    curves = []
    for name in CLUSTERED:
        if name not in result.data["method"].values:
            continue
        found = finished(result, name)["rand_index"].values.astype(float)
        if not len(found):
            continue
        mean, std = found.mean(axis=0), found.std(axis=0)
        rounds = result.data["round"].values.astype(float)
        curves.append(report.Curve(NAMES[name], rounds, mean, mean - std, mean + std))
    if curves:
        partition = result.trial.partition.replace("_", " ")
        title = f"{IMAGES.get(result.trial.images, 'digits')}, {partition}"
        yield report.CurvePanel(
            curves, x_label="round", y_label="adjusted Rand index", title=title
        )


def runs(result: Result) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracy in per cent."""
    table = []
    for name in result.data["method"].values.tolist():
        for repetition in result.data["repetition"].values:
            where = {"method": name, "repetition": repetition}
            cell = result.data.sel(where).isel(trial=0)
            found = cell["rand_index"].values.astype(float)
            row = {
                "images": result.trial.images,
                "partition": result.trial.partition,
                "method": name,
                "repetition": int(repetition),
                "failed": bool(cell["failed"]),
                "accuracy": 100 * float(cell["accuracy"][-1]),
                "received_mib": float(cell["received"].sum()),
                "sent_mib": float(cell["sent"].sum()),
            }
            if name in CLUSTERED:
                row |= {
                    "rand_index": float(found[-1]),
                    "first_found": first_found(found),
                    "used_models": float(cell["used_models"][-1]),
                }
            table.append(row)
    return table


def write(
    config: Any,
    options: Options,
    results: Sequence[Result],
    table: Sequence[Mapping[str, Any]],
    sources: Sequence[str],
) -> list[str]:
    """Tables, figure and configuration; returns their paths.

    Args:
      config: of the experiment.
      options: whose `out` is the folder.
      results: of all partitions.
      table: their rows.
      sources: of the images.
    """
    out = options.out
    report.write_csv(out / "table.csv", table)
    every = [run for result in results for run in runs(result)]
    report.write_csv(out / "runs.csv", every)
    report.write_text(out / "table.md", markdown(table))
    settings = dataclasses.asdict(config) | {"sources": list(sources)}
    report.write_text(out / "config.json", json.dumps(settings, indent=2) + "\n")
    figure = draw(results)
    drawn = [] if figure is None else report.save(figure, out / "rand_index")
    names = ("table.csv", "runs.csv", "table.md", "config.json")
    return [str(path) for path in (*(out / name for name in names), *drawn)]
