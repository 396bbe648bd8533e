"""Tables and figures of IFCA's experiments on rotated images, beside the paper's."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from cfljax import report
from experiments.ifca.rotated import Result, Trial
from experiments.ifca.tables import (
    mean_curve,
    moments,
    number,
    published_rows,
    shown_table,
    spread,
)
from experiments.study import cells, computed, mean

NAMES = {"ifca": "IFCA", "fedavg": "global", "local": "local"}  # In the paper's table.
BALANCED = "IFCA, start redrawn"  # As in the released code.
DATASETS = {"mnist": "Rotated MNIST", "cifar10": "Rotated CIFAR"}
TITLES = {
    "digits": "Rotated digits",
    "mnist": "Rotated MNIST",
    "fashion_mnist": "Rotated Fashion-MNIST",
    "cifar10": "Rotated CIFAR-10",
}
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


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each algorithm, and one more for local models as released.

    Accuracies are means and deviations over the seeds in per cent; `found` counts seeds
    in which the last participants' clusters are the rotations. What the paper prints
    stands beside local models of its own description, never of its released code.
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
    row = _row(result, "local", at, "last_cluster" if is_last_cluster else "accuracy")
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
        **moments("accuracy", accuracy),
        **moments("best", best),
        **moments("held_out", held_out),
        "paper_setting": paper and paper.setting,
        "paper_is_same": paper and paper.same,
        "paper_mean": paper and paper.mean,
        "paper_std": paper and paper.std,
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
        **moments("accuracy", accuracy[found], "_found"),
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
    every = result.data["accuracy"].isel(trial=0)
    trial, table = result.trial, []
    for at, cell in cells(
        result.data.isel(round=-1, trial=0), "algorithm", "repetition"
    ):
        name = at["algorithm"]
        row: dict[str, Any] = {
            "images": trial.images,
            "clients": trial.num_clients,
            "samples": trial.num_samples,
            "algorithm": name,
            "start": trial.start if name == "ifca" else None,
            "repetition": int(at["repetition"]),
            "failed": bool(cell["failed"]),
            "accuracy": 100 * float(cell["accuracy"]),
            "best_accuracy": 100 * float(every.sel(at).max()),
            "received_mib": float(cell["received"]),
            "sent_mib": float(cell["sent"]),
        }
        if name != "local":
            row |= {"held_out_accuracy": 100 * float(cell["held_out"])}
        elif trial.num_released:
            row |= {"last_cluster_accuracy": 100 * float(cell["last_cluster"])}
        if name == "ifca":
            own = ["matched_accuracy", "rand_index", "used_clusters"]
            if trial.start == "reference":
                own += ["start_draws", "start_share"]
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
            "accuracy": spread(row, "accuracy"),
            "best": spread(row, "best"),
            "held_out": spread(row, "held_out"),
            "paper": spread(row, "paper"),
            "paper_setting": row["paper_setting"],
            "matched": number(row.get("matched_accuracy_mean"), 3),
            "rand": number(row.get("rand_index_mean"), 3),
            "found": f"{row['found']}/{row['trials']}" if "found" in row else None,
            "accuracy_found": spread(row, "accuracy", "_found"),
            "draws": number(row.get("start_draws_mean"), 1),
        }
        for row in table
    ]
    labels = {row["label"] for row in table}
    notes = [HOW_TESTED, *(note for label, note in NOTES.items() if label in labels)]
    return shown_table(shown, COLUMNS) + "".join(f"\n{note}\n" for note in notes)


# What IFCA's Table 1 prints of rotated images, and for which settings


class Published(NamedTuple):
    """A cell of the paper's table, in per cent, over 5 seeds."""

    setting: str  # the paper's clients x samples
    mean: float
    std: float
    # Whether the trial's setting is the paper's in everything, or the released code's
    # where the two differ.
    same: bool


def published(trial: Trial, algorithm: str) -> Published | None:
    """What the paper prints, in its setting nearest to the trial's in samples.

    None for images that the paper's table does not have.
    """
    if trial.images not in DATASETS:
        return None
    found = []
    for row in published_rows(DATASETS[trial.images]):
        if row["algorithm"] != NAMES[algorithm]:
            continue
        setting = row["setting"].removeprefix("clients x samples ")
        clients, samples = map(int, setting.split(" x "))
        sizes = trial.num_clients, trial.num_samples
        same = _is_published(trial) and (clients, samples) == sizes
        cell = Published(setting, row["mean"], row["std"], same)
        found.append((abs(samples - trial.num_samples), cell))
    return min(found)[1]


def _is_published(trial: Trial) -> bool:
    """Whether all but the numbers of clients and samples is as published."""
    theirs: dict[str, Any] = {
        # Test clients split the 10,000 images of each rotation, n each.
        "num_test_clients": 10000 * trial.num_clusters // trial.num_samples,
        "num_test_samples": trial.num_samples,
        "num_local_clients": trial.num_clients,
    }
    if trial.images == "mnist":
        theirs |= {
            "num_clusters": 4,
            "network": "mlp",
            "num_hidden": 200,
            "num_rounds": 300,
            "num_participants": trial.num_clients,
            "num_steps": 10,
            "batch_size": 0,
            "step_size": 0.1,
            "decay": 1.0,
            "start": "paper",
        }
    else:
        theirs |= {
            "num_clusters": 2,
            "num_rounds": 600,
            "num_participants": trial.num_clients // 10,
            "batch_size": 50,
            "step_size": 0.25,
            "decay": 0.99,
        }
    # Text and released code have different networks and tau for Rotated CIFAR.
    forms = trial.images == "mnist" or (
        trial.network in ("code", "text") and 5 in (trial.num_epochs, trial.num_steps)
    )
    return forms and all(
        getattr(trial, name) == value for name, value in theirs.items()
    )


# Accuracy round by round, the paper's among it


def draw(results: Sequence[Result]) -> Figure:
    """Accuracy per round, one panel for each setting, the paper's where it applies.

    Results that differ only in IFCA's start share a panel.
    """
    settings: dict[str, list[Result]] = {}
    for result in results:
        settings.setdefault(setting_title(result.trial), []).append(result)
    return report.curves(
        [_panel(title, group) for title, group in settings.items()],
        title="IFCA, Table 1: rotated images",
        legend_title="mean ± one standard deviation over the seeds",
    )


def setting_title(trial: Trial) -> str:
    """Images, clients and samples."""
    return (
        f"{TITLES[trial.images]}, {trial.num_clients} clients x "
        f"{trial.num_samples} samples"
    )


def _panel(title: str, group: Sequence[Result]) -> report.CurvePanel:
    curves = [curve for result in group for curve in _curves(result)]
    shown = {curve.label for curve in curves}
    return report.CurvePanel(
        curves,
        x_label="round",
        y_label="test accuracy %",
        y_limits=None,
        title=title,
        levels=[
            report.Level(f"{name}, paper", paper.mean, name, paper.std)
            for algorithm, name in NAMES.items()
            if name in shown
            and (paper := published(group[0].trial, algorithm))
            and paper.same
        ],
    )


def _curves(result: Result) -> Iterator[report.Curve]:
    """Mean accuracy of every algorithm that a seed was computed of."""
    rounds = result.data["round"].values.astype(float)
    for name in result.data["algorithm"].values.tolist():
        accuracy = 100 * result.data["accuracy"].sel(algorithm=name).values[:, 0]
        accuracy = accuracy[np.isfinite(accuracy[:, -1])]
        if not len(accuracy):
            continue
        is_redrawn = name == "ifca" and result.trial.start == "reference"
        yield mean_curve(BALANCED if is_redrawn else NAMES[name], rounds, accuracy)
