"""Tables and figure of CLoVE with an unknown number of clusters."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.clove.unknown_k_trial import method_of

__all__ = ["draw", "label", "markdown", "rows", "runs"]

PUBLISHED = {"clove": (68.2, 1.3)}  # Test accuracy in per cent, appendix D.1.4.
COLUMNS = {
    "label": "method",
    "round": "rounds",
    "trials": "seeds",
    "accuracy": "accuracy %",
    "client_accuracy": "of a client %",
    "paper_accuracy": "paper's accuracy %",
    "used_models": "models used",
    "fewest_models": "fewest",
    "most_models": "most",
    "largest_cluster": "largest cluster %",
    "received": "MiB down",
    "sent": "MiB up",
}
NOTE = """
After the last round; means ± standard deviations, which are divided by the number of
seeds as the paper's are. "accuracy": share of all clients' test samples that are right
under their client's model. "of a client": mean over clients of each one's share.
"models used": those that clients trained in the last round, of each seed; "fewest" and
"most" of all rounds and seeds after the first. "largest cluster": clients in it. "MiB":
to and from all clients in a round. The paper's number is of the sizes of the paper
preset, and a mean over clients or over samples, which it does not say.
"""

Rounds = Float[np.ndarray, "runs rounds"]


def label(method: str) -> str:
    """Name of a method for people."""
    name, number = method_of(method)
    names = {
        "clove": "CLoVE",
        "ifca": "IFCA",
        "fedavg": "FedAvg",
        "local": "Local-only",
    }
    if number is None:
        return "CLoVE, unknown K" if name == "clove" else names[name]
    return f"{names[name]}, K = {number}"


def rows(results: xr.Dataset) -> list[dict[str, Any]]:
    """One row for each method; accuracies and shares in per cent.

    Runs that failed are left out and not counted. A run that diverged has the accuracy
    of what its models answer.
    """
    return [_row(results, name) for name in results["method"].values.tolist()]


def _finished(results: xr.Dataset, method: str) -> xr.Dataset:
    """The runs of a method that did not fail, `[repetition, round]`."""
    own = results.sel({"method": method}).isel(trial=0)
    return own.isel(repetition=np.flatnonzero(~own["failed"].values))


def _row(results: xr.Dataset, method: str) -> dict[str, Any]:
    own = _finished(results, method)
    mean, std = PUBLISHED.get(method, (None, None))
    row: dict[str, Any] = {
        "method": method,
        "label": label(method),
        "round": int(results["round"].values[-1]),
        "trials": own.sizes["repetition"],
        "failed": results.sizes["repetition"] - own.sizes["repetition"],
        "paper_accuracy_mean": mean,
        "paper_accuracy_std": std,
    }
    for name in ("accuracy", "client_accuracy"):
        row |= _spread(name, 100 * own[name].values[:, -1].astype(float))
    for name in ("received", "sent"):
        traffic = own[name].values
        row[name] = float(traffic.mean()) if traffic.size else None
    used: Rounds = own["used_models"].values
    if method_of(method).clusters and used.size:
        row["used_models"] = " ".join(f"{number:.0f}" for number in used[:, -1])
        row |= _spread("largest_cluster", 100 * own["largest_cluster"].values[:, -1])
        if used.shape[1] > 1:  # The first round may be a random one.
            row["fewest_models"] = int(used[:, 1:].min())
            row["most_models"] = int(used[:, 1:].max())
    return row


def _spread(name: str, values: Float[np.ndarray, " runs"]) -> dict[str, Any]:
    """Mean and standard deviation, as far as there are runs; one has no deviation."""
    return {
        f"{name}_mean": float(values.mean()) if values.size else None,
        f"{name}_std": float(values.std()) if values.size > 1 else None,
    }


def runs(results: xr.Dataset) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracies in per cent."""
    table = []
    for method in results["method"].values.tolist():
        for repetition in results["repetition"].values:
            where = {"method": method, "repetition": repetition}
            cell = results.sel(where).isel(trial=0)
            row = {
                "method": method,
                "repetition": int(repetition),
                "failed": bool(cell["failed"]),
                "accuracy": 100 * float(cell["accuracy"][-1]),
                "client_accuracy": 100 * float(cell["client_accuracy"][-1]),
            }
            if method_of(method).clusters:
                row["used_models"] = float(cell["used_models"][-1])
            table.append(row)
    return table


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, without empty columns, and a note on its columns."""
    shown = []
    for row in table:
        texts = dict(row)
        for name in ("accuracy", "client_accuracy", "paper_accuracy"):
            texts[name] = _text(row, name)
        texts["largest_cluster"] = _text(row, "largest_cluster")
        for name in ("received", "sent"):
            texts[name] = None if row[name] is None else f"{row[name]:.2f}"
        shown.append(texts)
    full = {name for row in shown for name in row if row[name] is not None}
    columns = {name: text for name, text in COLUMNS.items() if name in full}
    return report.markdown(shown, columns) + NOTE


def _text(row: Mapping[str, Any], name: str) -> str | None:
    mean, std = row.get(f"{name}_mean"), row.get(f"{name}_std")
    if mean is None:
        return None
    return f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"


def draw(results: xr.Dataset) -> Figure | None:
    """Models used and accuracy in each round; None if all runs failed."""
    accuracies = list(_curves(results, "accuracy", 100.0))
    if not accuracies:
        return None
    panels = [
        report.CurvePanel(
            accuracies, x_label="round", y_label="test accuracy %", y_limits=None
        )
    ]
    if used := list(_curves(results, "used_models", 1.0)):
        panels.insert(
            0,
            report.CurvePanel(
                used, x_label="round", y_label="models that clients have", y_limits=None
            ),
        )
    return report.curves(
        panels,
        title="CLoVE, appendix D.1.4: FEMNIST, number of clusters unknown",
        legend_title="mean ± one standard deviation over the seeds",
    )


def _curves(results: xr.Dataset, name: str, scale: float) -> Iterator[report.Curve]:
    """One curve for each method that has the quantity, and a run that did not fail."""
    rounds = results["round"].values.astype(float)
    for method in results["method"].values.tolist():
        values = scale * _finished(results, method)[name].values.astype(float)
        has_it = name == "accuracy" or method_of(method).clusters
        if not has_it or not len(values):
            continue
        mean, std = values.mean(axis=0), values.std(axis=0)
        yield report.Curve(label(method), rounds, mean, mean - std, mean + std)
