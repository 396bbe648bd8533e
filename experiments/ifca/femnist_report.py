"""Table, runs and figure of the FEMNIST experiment, beside the paper's."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.ifca.femnist_methods import method_of
from experiments.ifca.femnist_trial import Trial

__all__ = ["Result", "draw", "label", "markdown", "published", "rows", "runs"]

MOST_CURVES = 7  # Of one panel that can be told apart.
TITLES = {
    "paper": "paper: layers below the last trained by all",
    "reference": "reference: layers below the last pretrained",
}
NOTE = """
paper: as section 4.3 describes, all layers but the last are trained by all
participants together, from a random start. reference: as in the released code, they
are frozen after pretraining by FedAvg, whose own accuracy is the first row; IFCA's last
layers are warmed up by random groups of clients; global, one-shot and local train last
layers only. MiB leave out the warm-up, and pretraining but for its own row; those of
one-shot include the solutions that are clustered, spread over all rounds.

"last" is the accuracy after the last round. "best" is the largest over all tests of a
run, as the released code reports it: the test samples choose the round, so it is more
than can be expected of new samples. The published numbers are such ones; they stand
beside both variants. They stem from 173 to 175 writers, this table from {clients} of
another LEAF sample.
"""
COLUMNS = {
    "variant": "variant",
    "label": "algorithm",
    "round": "rounds",
    "trials": "seeds",
    "last": "last, test accuracy %",
    "best": "best, test accuracy %",
    "paper": "published %",
    "used": "clusters used",
    "received": "MiB down a round",
    "sent": "MiB up a round",
    "diverged": "diverged",
}


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found in one variant, or in pretraining.

    name: "paper", "pretraining" or "reference".
    trial: the fields that its cells share.
    data: variables of `femnist_trial.DIMS`, `[method, repetition, trial, round]`.
    """

    name: str
    trial: Trial
    data: xr.Dataset


def label(method: str) -> str:
    """Name of a method for people, as in the paper's table."""
    name, k = method_of(method)
    names = {"ifca": "IFCA", "one_shot": "one-shot", "fedavg": "global"}
    return f"{names[name]} k={k}" if "-" in method else names.get(name, name)


def published() -> dict[str, tuple[float, float]]:
    """Mean and standard deviation over 5 seeds, in per cent, by label."""
    path = pathlib.Path(__file__).with_name("published_table2.csv")
    return {
        row["algorithm"]: (row["mean"], row["std"]) for row in report.read_csv(path)
    }


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each method.

    Accuracies are in per cent, means and standard deviations over the seeds that were
    computed; a run that diverged has whatever its models answered. `clusters_used` has
    the number of each seed.
    """
    return [_row(result, name) for name in result.data["method"].values.tolist()]


def _row(result: Result, method: str) -> dict[str, Any]:
    cell = result.data.sel({"method": method}).isel(trial=0)
    accuracy = _computed(100 * cell["accuracy"].values)
    computed = np.isfinite(cell["accuracy"].values).all(axis=-1)
    last, best = accuracy[:, -1], accuracy.max(axis=1, initial=-np.inf)
    is_pretraining = result.name == "pretraining"
    name = "pretraining" if is_pretraining else label(method)
    mean, std = published().get(name, (None, None))
    used = cell["used_clusters"].values[computed, -1]
    return {
        "variant": "reference" if is_pretraining else result.name,
        "method": method,
        "label": name,
        "round": int(cell["round"].values[-1]),
        "trials": len(accuracy),
        "failed": int(cell["failed"].values.sum()),
        "diverged": int(np.sum(cell["is_finite"].values[computed, -1] == 0)),
        "accuracy_mean": _mean(last),
        "accuracy_std": _std(last),
        "best_mean": _mean(best),
        "best_std": _std(best),
        "optimism": _mean(best - last),
        "paper_mean": mean,
        "paper_std": std,
        "clusters_used": " ".join(f"{number:.0f}" for number in used)
        if method_of(method).num_clusters > 1
        else None,
        "received": _mean(cell["received"].values[computed].mean(axis=-1)),
        "sent": _mean(cell["sent"].values[computed].mean(axis=-1)),
    }


def runs(result: Result) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracies in per cent."""
    table = []
    for method in result.data["method"].values.tolist():
        for repetition in result.data["repetition"].values:
            cell = result.data.isel(trial=0).sel(
                {"method": method, "repetition": repetition}
            )
            accuracy = 100 * cell["accuracy"].values
            failed = bool(cell["failed"]) or not np.isfinite(accuracy).all()
            best = None if failed else int(np.argmax(accuracy))
            table.append(
                {
                    "variant": result.name,
                    "method": method,
                    "repetition": int(repetition),
                    "failed": failed,
                    "is_finite": float(cell["is_finite"][-1]),
                    "accuracy": float(accuracy[-1]),
                    "best": None if best is None else float(accuracy[best]),
                    "best_round": None if best is None else int(cell["round"][best]),
                    "used_clusters": float(cell["used_clusters"][-1]),
                }
            )
    return table


def markdown(table: Sequence[Mapping[str, Any]], num_clients: int) -> str:
    """The table for people, and what its words mean.

    Columns that are empty throughout are left out.

    Args:
      table: of `rows`.
      num_clients: writers.
    """
    shown = [
        {
            "variant": row["variant"],
            "label": row["label"],
            "round": row["round"],
            "trials": row["trials"],
            "last": _spread(row["accuracy_mean"], row["accuracy_std"]),
            "best": _spread(row["best_mean"], row["best_std"]),
            "paper": _spread(row["paper_mean"], row["paper_std"]),
            "used": row["clusters_used"],
            "received": _number(row["received"]),
            "sent": _number(row["sent"]),
            "diverged": row["diverged"] or None,
        }
        for row in table
    ]
    used = {
        name: heading
        for name, heading in COLUMNS.items()
        if any(row[name] is not None for row in shown)
    }
    return report.markdown(shown, used) + NOTE.format(clients=num_clients)


def draw(results: Sequence[Result]) -> Figure | None:
    """Accuracy over rounds of the first seven methods, one panel for each variant.

    None if no run of any variant was computed.
    """
    found = [_panel(result) for result in results if result.name in TITLES]
    panels = [panel for panel in found if panel is not None]
    if not panels:
        return None
    return report.curves(
        panels,
        title="IFCA, Table 2: FEMNIST",
        legend_title="mean ± one standard deviation over the seeds",
    )


def _panel(result: Result) -> report.CurvePanel | None:
    curves = list(_curves(result))
    if not curves:
        return None
    return report.CurvePanel(
        curves,
        x_label="round",
        y_label="test accuracy %",
        y_limits=None,
        title=TITLES[result.name],
    )


def _curves(result: Result) -> Iterator[report.Curve]:
    """Mean accuracy of every method that a seed was computed of."""
    rounds = result.data["round"].values.astype(float)
    for method in result.data["method"].values.tolist()[:MOST_CURVES]:
        values = result.data["accuracy"].sel({"method": method}).values[:, 0]
        accuracy = _computed(100 * values)
        if not len(accuracy):
            continue
        mean = accuracy.mean(axis=0)
        std = accuracy.std(axis=0, ddof=1) if len(accuracy) > 1 else 0 * mean
        yield report.Curve(label(method), rounds, mean, mean - std, mean + std)


def _computed(
    accuracy: Float[np.ndarray, "runs rounds"],
) -> Float[np.ndarray, "computed rounds"]:
    """The runs that did not fail."""
    return accuracy[np.isfinite(accuracy).all(axis=-1)].astype(float)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _std(values: np.ndarray) -> float | None:
    """Sample standard deviation; none of a single run."""
    return float(values.std(ddof=1)) if values.size > 1 else None


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.2f}"


def _spread(mean: float | None, std: float | None) -> str | None:
    if mean is None:
        return None
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
