"""Table, runs and figure of the Rotated MNIST experiment, beside the paper's."""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.ifca.rotated import Trial

__all__ = ["Published", "Result", "draw", "markdown", "published", "rows", "runs"]

# Name of each algorithm in the paper's table, and of each image set once rotated.
NAMES = {"ifca": "IFCA", "fedavg": "global", "local": "local"}
TITLES = {
    "digits": "Rotated digits",
    "mnist": "Rotated MNIST",
    "fashion_mnist": "Rotated Fashion-MNIST",
    "cifar10": "Rotated CIFAR-10",
}
RELEASED_LOCAL_ROUNDS = 10  # Of the released code's local models.
RELEASED = f"local, {RELEASED_LOCAL_ROUNDS} rounds (as released)"
NOTE = (
    f'"{RELEASED}" are the same local models after the rounds that the released code '
    "trains them for by default. The paper has local models trained like the others, "
    "so its local accuracy is compared with the row of all rounds only; its printed "
    f"local numbers may stem from {RELEASED_LOCAL_ROUNDS} rounds."
)
COLUMNS = {
    "setting": "m x n",
    "label": "algorithm",
    "round": "rounds",
    "trials": "seeds",
    "accuracy": "test accuracy %",
    "paper": "paper %",
    "paper_setting": "paper's m x n, 300 rounds",
    "matched": "clients in their cluster",
    "rand": "ARI",
    "found": "seeds with all clusters",
    "accuracy_found": "accuracy % of those",
}


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found in one setting.

    trial: the fields that its cells share.
    data: variables of `rotated.DIMS`, `[algorithm, repetition, trial, round]`.
    """

    trial: Trial
    data: xr.Dataset


class Published(NamedTuple):
    """A cell of the paper's table, in per cent.

    setting: the paper's clients x samples.
    mean: over 5 seeds.
    std: over the same.
    same: whether the trial's setting is the paper's in everything.
    """

    setting: str
    mean: float
    std: float
    same: bool


def published(trial: Trial, algorithm: str) -> Published | None:
    """What the paper prints, in its setting nearest to the trial's in samples.

    None for images that the paper's table does not have.
    """
    if trial.images != "mnist":
        return None
    found = []
    for row in report.read_csv(pathlib.Path(__file__).with_name("published.csv")):
        if row["algorithm"] == NAMES[algorithm]:
            setting = row["setting"].removeprefix("clients x samples ")
            clients, samples = map(int, setting.split(" x "))
            same = _is_published(trial) and (clients, samples) == (
                trial.num_clients,
                trial.num_samples,
            )
            cell = Published(setting, row["mean"], row["std"], same)
            found.append((abs(samples - trial.num_samples), cell))
    return min(found)[1]


def _is_published(trial: Trial) -> bool:
    """Whether all but the numbers of clients and samples is as in the paper."""
    theirs = {
        "num_clusters": 4,
        "num_hidden": 200,
        "num_rounds": 300,
        "num_steps": 10,
        "step_size": 0.1,
        # Test clients split the 10,000 images of each rotation, n each.
        "num_test_clients": 40000 // trial.num_samples,
        "num_test_samples": trial.num_samples,
    }
    return all(getattr(trial, name) == value for name, value in theirs.items())


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each algorithm, and one more for local models as released.

    Accuracies are in per cent, means and standard deviations over the seeds that
    were computed; `found` counts the seeds whose final clusters are the rotations.
    What the paper prints stands beside the models of all rounds, never twice.
    """
    table = []
    for name in result.data["algorithm"].values.tolist():
        rounds = result.data["round"].values.tolist()
        table.append(_row(result, name, rounds[-1]))
        if name == "local" and RELEASED_LOCAL_ROUNDS in rounds[:-1]:
            row = _row(result, name, RELEASED_LOCAL_ROUNDS)
            theirs = [column for column in row if column.startswith("paper_")]
            table.append(row | {"label": RELEASED} | dict.fromkeys(theirs))
    return table


def _row(result: Result, name: str, at: int) -> dict[str, Any]:
    trial = result.trial
    cell = result.data.sel(algorithm=name, round=at)
    accuracy = _computed(100 * cell["accuracy"].values)
    paper = published(trial, name)
    row = {
        "images": trial.images,
        "clients": trial.num_clients,
        "samples": trial.num_samples,
        "algorithm": name,
        "label": NAMES[name],
        "round": at,
        "trials": accuracy.size,
        "accuracy_mean": _mean(accuracy),
        "accuracy_std": _std(accuracy),
        "paper_setting": paper.setting if paper else None,
        "paper_is_same": paper.same if paper else None,
        "paper_mean": paper.mean if paper else None,
        "paper_std": paper.std if paper else None,
    }
    if name != "ifca":
        return row
    matched = _computed(cell["matched_accuracy"].values)
    found = matched == 1
    return row | {
        "matched_accuracy_mean": _mean(matched),
        "rand_index_mean": _mean(_computed(cell["rand_index"].values)),
        "used_clusters_mean": _mean(_computed(cell["used_clusters"].values)),
        "found": int(found.sum()),
        "accuracy_mean_found": _mean(accuracy[found]),
        "accuracy_std_found": _std(accuracy[found]),
    }


def runs(result: Result) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracy in per cent."""
    last = result.data.isel(round=-1, trial=0)
    table = []
    for name in last["algorithm"].values.tolist():
        for repetition in last["repetition"].values:
            cell = last.sel(algorithm=name, repetition=repetition)
            row: dict[str, Any] = {
                "images": result.trial.images,
                "clients": result.trial.num_clients,
                "samples": result.trial.num_samples,
                "algorithm": name,
                "repetition": int(repetition),
                "failed": bool(cell["failed"]),
                "accuracy": 100 * float(cell["accuracy"]),
            }
            if name == "ifca":
                own = ("matched_accuracy", "rand_index", "used_clusters")
                row |= {measure: float(cell[measure]) for measure in own}
            table.append(row)
    return table


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, and a note on local models as released.

    Columns that are empty throughout are left out.
    """
    shown = [
        {
            "setting": f"{row['clients']} x {row['samples']}",
            "label": row["label"],
            "round": row["round"],
            "trials": row["trials"],
            "accuracy": _spread(row["accuracy_mean"], row["accuracy_std"]),
            "paper": _spread(row["paper_mean"], row["paper_std"]),
            "paper_setting": row["paper_setting"],
            "matched": _number(row.get("matched_accuracy_mean"), 3),
            "rand": _number(row.get("rand_index_mean"), 3),
            "found": f"{row['found']}/{row['trials']}" if "found" in row else None,
            "accuracy_found": _spread(
                row.get("accuracy_mean_found"), row.get("accuracy_std_found")
            ),
        }
        for row in table
    ]
    used = {
        name: heading
        for name, heading in COLUMNS.items()
        if any(row[name] is not None for row in shown)
    }
    note = f"\n{NOTE}\n" if any(row["label"] == RELEASED for row in table) else ""
    return report.markdown(shown, used) + note


def draw(results: Sequence[Result]) -> Figure:
    """Accuracy per round, one panel for each setting, the paper's where it applies."""
    return report.curves(
        [_panel(result) for result in results],
        title="IFCA, Table 1: rotated images",
        legend_title="mean ± one standard deviation over the seeds",
    )


def _panel(result: Result) -> report.CurvePanel:
    trial = result.trial
    curves = list(_curves(result))
    shown = {curve.label for curve in curves}
    levels = [
        report.Level(f"{name}, paper", paper.mean, name, paper.std)
        for algorithm, name in NAMES.items()
        if name in shown and (paper := published(trial, algorithm)) and paper.same
    ]
    return report.CurvePanel(
        curves,
        x_label="round",
        y_label="test accuracy %",
        y_limits=None,
        title=f"{TITLES[trial.images]}, {trial.num_clients} clients x "
        f"{trial.num_samples} samples",
        levels=levels,
    )


def _curves(result: Result) -> Iterator[report.Curve]:
    """Mean accuracy of every algorithm that a seed was computed of."""
    rounds = result.data["round"].values.astype(float)
    names = result.data["algorithm"].values.tolist()
    for name in names:
        accuracy = 100 * result.data["accuracy"].sel(algorithm=name).values[:, 0]
        accuracy = accuracy[np.isfinite(accuracy[:, -1])]
        if not len(accuracy):
            continue
        mean = accuracy.mean(axis=0)
        std = accuracy.std(axis=0, ddof=1) if len(accuracy) > 1 else 0 * mean
        yield report.Curve(NAMES[name], rounds, mean, mean - std, mean + std)


def _computed(values: np.ndarray) -> Float[np.ndarray, " runs"]:
    """The runs that did not fail."""
    return values[np.isfinite(values)].astype(float)


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _std(values: np.ndarray) -> float | None:
    """Sample standard deviation; none of a single run."""
    return float(values.std(ddof=1)) if values.size > 1 else None


def _number(value: float | None, digits: int) -> str | None:
    return None if value is None else f"{value:.{digits}f}"


def _spread(mean: float | None, std: float | None) -> str | None:
    if mean is None:
        return None
    return f"{mean:.2f}" if std is None else f"{mean:.2f} ± {std:.2f}"
