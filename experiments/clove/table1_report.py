"""Rows of CLoVE's Tables 1 and 2, beside the paper's numbers."""

import dataclasses
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float

from cfljax import report
from experiments.clove.table1_trial import CLUSTERED, Method, Trial

__all__ = ["IMAGES", "NAMES", "Result", "finished", "first_found", "markdown", "rows"]

NAMES: dict[Method, str] = {
    "clove": "CLoVE",
    "ifca": "IFCA",
    "fedavg": "FedAvg",
    "local": "Local-only",
}
IMAGES = {"mnist": "MNIST", "fashion_mnist": "FMNIST", "cifar10": "CIFAR-10"}
FOUND = 0.9  # Adjusted Rand index from which the paper calls clusters found.
NOTE = """
After the last round; means ± standard deviations, which are divided by the number of
seeds as the paper's are. "accuracy": of all clients' own test samples, each under its
client's model. "ARI": of the models trained in the round. "found": seeds that reached
an ARI of 0.9, and the mean of the first rounds in which they did. "MiB": sent to and by
all clients in a round. The paper's numbers are of the sizes of the paper preset.
"""
COLUMNS = {
    "images": "images",
    "partition": "partition",
    "setting": "m x n",
    "label": "method",
    "round": "rounds",
    "trials": "seeds",
    "accuracy": "accuracy %",
    "paper_accuracy": "paper's",
    "rand": "ARI",
    "paper_rand": "paper's ARI",
    "found": "found",
    "first": "first round",
    "mebibytes": "MiB",
}


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found in one partition.

    trial: the fields that its cells share.
    data: variables of `table1_trial.DIMS`, `[method, repetition, trial, ...]`.
    """

    trial: Trial
    data: xr.Dataset


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each method; accuracies in per cent.

    Runs that failed are left out and not counted. A run that diverged has no ARI, and
    then neither has the mean.
    """
    return [_row(result, name) for name in result.data["method"].values.tolist()]


def first_found(found: Float[np.ndarray, " rounds"]) -> int | None:
    """First round, from 1, whose ARI is `FOUND` or more; None without any."""
    is_found: Bool[np.ndarray, " rounds"] = found >= FOUND  # Not where it is NaN.
    return int(np.argmax(is_found)) + 1 if np.any(is_found) else None


def _row(result: Result, name: Method) -> dict[str, Any]:
    trial = result.trial
    own = finished(result, name)
    accuracy = 100 * own["accuracy"].values[:, -1].astype(float)
    traffic = own["received"].values + own["sent"].values
    row = {
        "images": trial.images,
        "partition": trial.partition,
        "clients": trial.num_clients,
        "samples": trial.num_samples,
        "method": name,
        "label": NAMES[name],
        "round": trial.num_rounds,
        "trials": len(accuracy),
        **_spread("accuracy", accuracy),
        **_published(trial, name, "Table 1", "accuracy"),
        "mebibytes_mean": float(traffic.mean()) if traffic.size else None,
    }
    if name not in CLUSTERED:
        return row
    found = own["rand_index"].values.astype(float)
    firsts = [first for run in found if (first := first_found(run)) is not None]
    return row | {
        **_spread("rand", found[:, -1]),
        **_published(trial, name, "Table 2", "rand"),
        "found": len(firsts),
        **_spread("first", np.array(firsts, float)),
    }


def finished(result: Result, name: Method) -> xr.Dataset:
    """The runs of a method that did not fail, `[repetition, ...]`."""
    own = result.data.sel({"method": name}).isel(trial=0)
    return own.isel(repetition=np.flatnonzero(~own["failed"].values))


def _spread(name: str, values: Float[np.ndarray, " runs"]) -> dict[str, float | None]:
    """Mean and standard deviation over the runs, if there are any."""
    if not values.size:
        return {f"{name}_mean": None, f"{name}_std": None}
    return {f"{name}_mean": float(values.mean()), f"{name}_std": float(values.std())}


def _published(
    trial: Trial, name: Method, item: str, measure: str
) -> dict[str, float | None]:
    """What the paper prints; nothing for images or methods that it does not have."""
    wanted = (
        item,
        IMAGES.get(trial.images),
        trial.partition.replace("_", " ").capitalize(),
        NAMES[name],
    )
    path = pathlib.Path(__file__).with_name("published_table1.csv")
    found = {"mean": None, "std": None}
    for row in report.read_csv(path):
        if tuple(row[key] for key in ("item", "dataset", "setting", "algorithm")) == (
            wanted
        ):
            found = row
    return {f"paper_{measure}_{end}": found[end] for end in ("mean", "std")}


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, and a note on its columns."""
    shown = [
        {
            **row,
            "setting": f"{row['clients']} x {row['samples']}",
            "accuracy": _text(row, "accuracy", 1),
            "paper_accuracy": _text(row, "paper_accuracy", 1),
            "rand": _text(row, "rand", 2),
            "paper_rand": _text(row, "paper_rand", 2),
            "found": f"{row['found']}/{row['trials']}" if "found" in row else None,
            "first": _text(row, "first", 1),
            "mebibytes": row["mebibytes_mean"],
        }
        for row in table
    ]
    return report.markdown(shown, COLUMNS) + NOTE


def _text(row: Mapping[str, Any], name: str, digits: int) -> str | None:
    mean, std = row.get(f"{name}_mean"), row.get(f"{name}_std")
    return None if mean is None else f"{mean:.{digits}f} ± {std:.{digits}f}"
