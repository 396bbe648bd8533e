"""What IFCA's tables of accuracies share: numbers and curves over seeds, and files."""

import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.options import Options

__all__ = [
    "computed",
    "mean",
    "mean_curve",
    "moments",
    "number",
    "published_rows",
    "shown_table",
    "spread",
    "std",
    "write_settings",
    "write_tables",
]

Rows = Sequence[Mapping[str, Any]]


def computed(values: np.ndarray) -> Float[np.ndarray, " runs"]:
    """The runs that did not fail."""
    return values[np.isfinite(values)].astype(float)


def mean(values: np.ndarray) -> float | None:
    """Mean over the runs, if there are any."""
    return float(values.mean()) if values.size else None


def std(values: np.ndarray) -> float | None:
    """Sample standard deviation; none of a single run."""
    return float(values.std(ddof=1)) if values.size > 1 else None


def moments(name: str, values: np.ndarray, end: str = "") -> dict[str, float | None]:
    """Columns of both."""
    return {f"{name}_mean{end}": mean(values), f"{name}_std{end}": std(values)}


def number(value: float | None, digits: int) -> str | None:
    """A number for people, if there is one."""
    return None if value is None else f"{value:.{digits}f}"


def spread(row: Mapping[str, Any], name: str, end: str = "") -> str | None:
    """The columns of `moments` for people, if the row has any."""
    middle, around = row.get(f"{name}_mean{end}"), row.get(f"{name}_std{end}")
    if middle is None:
        return None
    return f"{middle:.2f}" if around is None else f"{middle:.2f} ± {around:.2f}"


def mean_curve(
    label: str, x: np.ndarray, values: Float[np.ndarray, "runs rounds"]
) -> report.Curve:
    """Mean ± one standard deviation over the runs."""
    middle = values.mean(axis=0)
    around = values.std(axis=0, ddof=1) if len(values) > 1 else 0 * middle
    return report.Curve(label, x, middle, middle - around, middle + around)


def published_rows(dataset: str) -> list[dict[str, Any]]:
    """What the paper's tables print of a data set: means over 5 seeds, in per cent."""
    table = report.read_csv(pathlib.Path(__file__).with_name("published.csv"))
    return [row for row in table if row["dataset"] == dataset]


def shown_table(rows: Rows, columns: Mapping[str, str]) -> str:
    """Markdown of the columns, by their headings, that are not empty throughout."""
    used = {
        name: heading
        for name, heading in columns.items()
        if any(row[name] is not None for row in rows)
    }
    return report.markdown(rows, used)


def write_tables(
    config: Any,
    options: Options,
    *,
    table: Rows,
    runs: Rows,
    text: str,
    figure: Figure | None,
    source: str,
) -> list[str]:
    """Tables, figure and configuration; returns their paths.

    Args:
      config: of the experiment.
      options: whose `out` is the folder.
      table: rows, one for each algorithm of a setting.
      runs: rows, one for each run.
      text: the table for people.
      figure: of accuracies; None for none.
      source: of the images.
    """
    out = options.out
    report.write_csv(out / "table.csv", table)
    report.write_csv(out / "runs.csv", runs)
    report.write_text(out / "table.md", text)
    drawn = [] if figure is None else report.save(figure, out / "accuracy")
    paths = [out / name for name in ("table.csv", "runs.csv", "table.md")] + [*drawn]
    return [*map(str, paths), write_settings(config, options, source)]


def write_settings(config: Any, options: Options, source: Any) -> str:
    """The configuration and where the images came from; returns the path."""
    settings = dataclasses.asdict(config) | {"source": source}
    path = options.out / "config.json"
    report.write_text(path, json.dumps(settings, indent=2) + "\n")
    return str(path)
