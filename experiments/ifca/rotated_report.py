"""Tables of the experiments on rotated images, beside the paper's."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from jaxtyping import Float

from cfljax import report
from experiments.ifca.rotated_published import NAMES, published
from experiments.ifca.rotated_trial import Trial

__all__ = ["Result", "computed", "markdown", "mean", "rows", "runs", "std"]

RELEASED_LOCAL_ROUNDS = {"mnist": 10, "cifar10": 300}  # Of the released local models.
RELEASED_MNIST = f"local, {RELEASED_LOCAL_ROUNDS['mnist']} rounds (as released)"
RELEASED_CIFAR = "local, as released"
HOW_TESTED = (
    '"test accuracy": after the last round; a test client takes the model of lowest '
    "loss by its own test labels, and is judged by the same, as in paper and code. "
    '"best round": the largest of all tests of a seed instead. "held out": after the '
    "last round, chosen on the first half of a test client's samples and judged on "
    "the second. Means ± standard deviations over the seeds."
)
NOTES = {
    RELEASED_MNIST: f'"{RELEASED_MNIST}" are the same local models after the rounds '
    "that the released code trains them for by default. The paper has local models "
    "trained like the others, so its local accuracy is compared with the row of all "
    "rounds only; its printed local numbers may stem from "
    f"{RELEASED_LOCAL_ROUNDS['mnist']} rounds.",
    RELEASED_CIFAR: f'"{RELEASED_CIFAR}" are some of the same local models after the '
    "rounds that the released code trains 20 of them for. A stale loop variable makes "
    "it test every local model on the last rotation, whatever its own; so does this "
    "row. The paper describes tests on a model's own rotation, so its local accuracy "
    "is compared with that row only; its printed 33.97 may stem from "
    "either test.",
}
COLUMNS = {
    "setting": "m x n",
    "label": "algorithm",
    "variant": "variant",
    "round": "rounds",
    "trials": "seeds",
    "accuracy": "test accuracy %",
    "best": "best round %",
    "held_out": "held out %",
    "paper": "paper %",
    "paper_setting": "paper's m x n",
    "matched": "participants in their cluster",
    "rand": "ARI",
    "found": "seeds with all clusters",
    "accuracy_found": "accuracy % of those",
    "draws": "starts drawn",
}


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found in one setting.

    trial: the fields that its cells share.
    data: variables of `rotated.DIMS`, `[algorithm, repetition, trial(, round)]`.
    """

    trial: Trial
    data: xr.Dataset


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each algorithm, and one more for local models as released.

    Accuracies are in per cent, means and standard deviations over the seeds that
    were computed; `found` counts the seeds in which the last participants' clusters
    are the rotations. What the paper prints stands beside local models of its own
    description, never beside those of its released code.
    """
    table = []
    for name in result.data["algorithm"].values.tolist():
        rounds = result.data["round"].values.tolist()
        table.append(_row(result, name, rounds[-1]))
        if name == "local":
            table.extend(_released(result, rounds))
    return table


def _released(result: Result, rounds: Sequence[int]) -> list[dict[str, Any]]:
    """Local models as the released code trains and tests them, if that was done."""
    trial = result.trial
    is_last_cluster = bool(trial.num_released)
    images = "cifar10" if is_last_cluster else "mnist"
    at = RELEASED_LOCAL_ROUNDS[images]
    if not is_last_cluster and at not in rounds[:-1]:
        return []
    if at not in rounds:
        at = rounds[-1]
    measure = "last_cluster" if is_last_cluster else "accuracy"
    row = _row(result, "local", at, measure)
    theirs = [column for column in row if column.startswith("paper_")]
    row |= {"label": RELEASED_CIFAR if is_last_cluster else RELEASED_MNIST}
    if is_last_cluster:
        row |= {"variant": f"{trial.num_released} models, tested on the last rotation"}
    return [row | dict.fromkeys(theirs)]


def _row(
    result: Result, name: str, at: int, measure: str = "accuracy"
) -> dict[str, Any]:
    trial = result.trial
    data = result.data.sel(algorithm=name)
    cell = data.sel(round=at)
    accuracy = computed(100 * cell[measure].values)
    best = computed(100 * data[measure].sel(round=slice(None, at)).values.max(axis=-1))
    held_out = computed(100 * cell["held_out"].values)
    paper = published(trial, name)
    row = {
        "images": trial.images,
        "clients": trial.num_clients,
        "samples": trial.num_samples,
        "algorithm": name,
        "label": NAMES[name],
        "variant": _variant(trial, name),
        "round": at,
        "trials": accuracy.size,
        "accuracy_mean": mean(accuracy),
        "accuracy_std": std(accuracy),
        "best_mean": mean(best),
        "best_std": std(best),
        "held_out_mean": mean(held_out),
        "held_out_std": std(held_out),
        "paper_setting": paper.setting if paper else None,
        "paper_is_same": paper.same if paper else None,
        "paper_mean": paper.mean if paper else None,
        "paper_std": paper.std if paper else None,
    }
    if name != "ifca":
        return row
    matched = computed(cell["matched_accuracy"].values)
    found = matched == 1
    return row | {
        "start": trial.start,
        "start_draws_mean": mean(computed(cell["start_draws"].values)),
        "start_share_least": min(computed(cell["start_share"].values), default=None),
        "matched_accuracy_mean": mean(matched),
        "rand_index_mean": mean(computed(cell["rand_index"].values)),
        "used_clusters_mean": mean(computed(cell["used_clusters"].values)),
        "found": int(found.sum()),
        "accuracy_mean_found": mean(accuracy[found]),
        "accuracy_std_found": std(accuracy[found]),
    }


def _variant(trial: Trial, name: str) -> str | None:
    """Which of the forms a row has where paper and released code differ."""
    if trial.network == "mlp":
        return None
    start = {
        "paper": "independent random start (paper)",
        "reference": "start redrawn until balanced (code)",
    }
    network = {
        "code": "network of the code",
        "text": "network of the text",
        "narrow": "narrow network",
    }
    tau = f"{trial.num_epochs} epochs (code)"
    if trial.num_steps:
        tau = f"{trial.num_steps} steps (text)"
    parts = [start[trial.start]] if name == "ifca" else []
    if name == "local":
        parts.append(f"{trial.num_local_clients} models, tested on their own rotation")
    return "; ".join([*parts, network[trial.network], f"tau = {tau}"])


def runs(result: Result) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracies in per cent."""
    last = result.data.isel(round=-1, trial=0)
    table = []
    for name in last["algorithm"].values.tolist():
        for repetition in last["repetition"].values:
            where = {"algorithm": name, "repetition": repetition}
            cell = last.sel(where)
            every = result.data["accuracy"].isel(trial=0).sel(where)
            row: dict[str, Any] = {
                "images": result.trial.images,
                "clients": result.trial.num_clients,
                "samples": result.trial.num_samples,
                "algorithm": name,
                "start": result.trial.start if name == "ifca" else None,
                "repetition": int(repetition),
                "failed": bool(cell["failed"]),
                "accuracy": 100 * float(cell["accuracy"]),
                "best_accuracy": 100 * float(every.max()),
                "received_mib": float(cell["received"]),
                "sent_mib": float(cell["sent"]),
            }
            if name != "local":
                row |= {"held_out_accuracy": 100 * float(cell["held_out"])}
            elif result.trial.num_released:
                row |= {"last_cluster_accuracy": 100 * float(cell["last_cluster"])}
            if name == "ifca":
                own = ("matched_accuracy", "rand_index", "used_clusters")
                row |= {measure: float(cell[measure]) for measure in own}
                if result.trial.start == "reference":
                    own = ("start_draws", "start_share")
                    row |= {measure: float(cell[measure]) for measure in own}
            table.append(row)
    return table


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, and notes on what its columns and rows are.

    Columns that are empty throughout are left out.
    """
    shown = [
        {
            "setting": f"{row['clients']} x {row['samples']}",
            "label": row["label"],
            "variant": row["variant"],
            "round": row["round"],
            "trials": row["trials"],
            "accuracy": _spread(row["accuracy_mean"], row["accuracy_std"]),
            "best": _spread(row["best_mean"], row["best_std"]),
            "held_out": _spread(row["held_out_mean"], row["held_out_std"]),
            "paper": _spread(row["paper_mean"], row["paper_std"]),
            "paper_setting": row["paper_setting"],
            "matched": _number(row.get("matched_accuracy_mean"), 3),
            "rand": _number(row.get("rand_index_mean"), 3),
            "found": f"{row['found']}/{row['trials']}" if "found" in row else None,
            "accuracy_found": _spread(
                row.get("accuracy_mean_found"), row.get("accuracy_std_found")
            ),
            "draws": _number(row.get("start_draws_mean"), 1),
        }
        for row in table
    ]
    used = {
        name: heading
        for name, heading in COLUMNS.items()
        if any(row[name] is not None for row in shown)
    }
    labels = {row["label"] for row in table}
    notes = [HOW_TESTED, *(note for label, note in NOTES.items() if label in labels)]
    return report.markdown(shown, used) + "".join(f"\n{note}\n" for note in notes)


def computed(values: np.ndarray) -> Float[np.ndarray, " runs"]:
    """The runs that did not fail."""
    return values[np.isfinite(values)].astype(float)


def mean(values: np.ndarray) -> float | None:
    """Mean over the runs, if there are any."""
    return float(values.mean()) if values.size else None


def std(values: np.ndarray) -> float | None:
    """Sample standard deviation; none of a single run."""
    return float(values.std(ddof=1)) if values.size > 1 else None


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _spread(middle: float | None, spread: float | None) -> str | None:
    if middle is None:
        return None
    return f"{middle:.2f}" if spread is None else f"{middle:.2f} ± {spread:.2f}"
