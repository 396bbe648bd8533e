"""Tables and figures of IFCA's experiments on rotated images, beside the paper's."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cfljax import report
from experiments.ifca.rotated import Name, Result, Trial
from experiments.ifca.tables import (
    mean_curve,
    moments,
    number,
    spread,
)
from experiments.published import Published, published
from experiments.study import cells, computed, legend, mean, size_text
from experiments.verdicts import Size, changes, judge

# In the paper's table.
NAMES: Mapping[Name, str] = {"ifca": "IFCA", "fedavg": "global", "local": "local"}
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
    "the second. Means ± standard deviations over the seeds, divided by their number. "
    '"size" and "verdict": of the test accuracy beside the paper\'s, see '
    "`experiments/verdicts.py`."
)
NOTES = {
    RELEASED_MNIST: f'"{RELEASED_MNIST}" are the same local models after the rounds '
    "that the released code trains them for by default. The paper has local models "
    "trained like the others; its printed local numbers may stem from "
    f"{RELEASED_LOCAL_ROUNDS['mnist']} rounds, so they stand beside both.",
    RELEASED_CIFAR: f'"{RELEASED_CIFAR}" are some of the same local models after the '
    "rounds that the released code trains 20 of them for. A stale loop variable makes "
    "it test every local model on the last rotation, whatever its own; so does this "
    "row. The paper describes tests on a model's own rotation; its printed 33.97 may "
    "stem from either test, and stands beside both.",
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
    "size": "size",
    "verdict": "verdict",
    "matched": "participants in their cluster",
    "rand": "ARI",
    "found": "seeds with all clusters",
    "accuracy_found": "accuracy % of those",
    "draws": "starts drawn",
}


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each algorithm, and one more for local models as released.

    Accuracies are means and deviations over the seeds in per cent; `found` counts seeds
    in which the last participants' clusters are the rotations.
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
    number = result.trial.num_released
    if (found := released(result.trial, rounds)) is None:
        return []
    row = _row(result, "local", *found, is_released=True)
    row |= {"label": RELEASED_CIFAR if number else RELEASED_MNIST}
    if number:
        row |= {"variant": f"{number} models, tested on the last rotation"}
    return [row]


def released(trial: Trial, rounds: Sequence[int]) -> tuple[int, str] | None:
    """After which of the rounds, and by which output, local models are as released;
    None if they never are.
    """
    images = "cifar10" if trial.num_released else "mnist"
    at = RELEASED_LOCAL_ROUNDS[images]
    if trial.num_released:
        return (at if at in rounds else rounds[-1]), "last_cluster"
    return (at, "accuracy") if at in rounds else None


def _row(
    result: Result,
    name: Name,
    at: int,
    measure: str = "accuracy",
    *,
    is_released: bool = False,
) -> dict[str, Any]:
    trial = result.trial
    data = result.data.sel(algorithm=name)
    cell = data.sel(round=at)
    accuracy = computed(100 * cell[measure].values)
    best = computed(100 * data[measure].sel(round=slice(None, at)).values.max(axis=-1))
    held_out = computed(100 * cell["held_out"].values)
    paper = published_number(trial, name)
    size = size_of(trial, name, at, is_released=is_released)
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
        "paper_setting": paper and paper.setting.removeprefix(_SETTING),
        "paper_mean": paper and paper.mean,
        "paper_std": paper and paper.std,
        "size": size_text(size, cell),
        "verdict": judge(accuracy, paper, size).text,
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
            "size": row["size"],
            "verdict": row["verdict"],
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
    notes = "".join(f"\n{note}\n" for note in notes)
    return report.concise(shown, COLUMNS, once="size") + notes


# What IFCA's Table 1 prints of rotated images, and for which settings


_SETTING = "clients x samples "  # Before the sizes of a setting.


def published_number(trial: Trial, name: Name) -> Published | None:
    """What the paper prints, in its setting nearest to the trial's in samples.

    None for images that the paper's table does not have.
    """
    found = [
        number
        for number in published("ifca")
        if number.dataset == DATASETS.get(trial.images)
        and number.algorithm == NAMES[name]
    ]
    distance = lambda number: abs(_sizes(number)[1] - trial.num_samples)
    return min(found, key=distance, default=None)


def _sizes(number: Published) -> tuple[int, int]:
    """Clients and samples of a setting."""
    clients, samples = number.setting.removeprefix(_SETTING).split(" x ")
    return int(clients), int(samples)


def size_of(
    trial: Trial,
    name: Name,
    num_rounds: int | None = None,
    *,
    is_released: bool = False,
) -> Size:
    """The size of an algorithm's run beside that of the paper's nearest setting.

    Where text and released code differ, both are the paper's.

    Args:
      trial: the setting; its own algorithm does not count.
      name: of the algorithm.
      num_rounds: after which it is looked at; all of them if None.
      is_released: whether these are local models as the released code has them.
    """
    number = published_number(trial, name)
    if number is None:
        return Size(other_data=TITLES[trial.images])
    clients, samples = _sizes(number)
    theirs: dict[str, Any] = {
        "num_clients": clients,
        "num_samples": samples,
        # Test clients split the 10,000 images of each rotation, n each.
        "num_test_clients": 10000 * trial.num_clusters // samples,
        "num_test_samples": samples,
        "num_rounds": 300,
    }
    if trial.images == "mnist":
        theirs |= {"num_clusters": 4, "network": "mlp", "num_hidden": 200}
        theirs |= {"num_steps": 10, "batch_size": 0, "step_size": 0.1, "decay": 1.0}
    else:
        theirs |= {"num_clusters": 2, "num_rounds": 600, "batch_size": 50}
        theirs |= {"step_size": 0.25, "decay": 0.99}
        theirs |= {"num_epochs": 5} if trial.num_epochs else {"num_steps": 5}
        theirs["network"] = "text" if trial.network == "text" else "code"
    if name == "local":
        theirs |= {"num_released": 20} if is_released and trial.num_released else {}
        theirs |= {} if is_released else {"num_local_clients": clients}
    else:
        part = 1 if trial.images == "mnist" else 10
        theirs["num_participants"] = trial.num_clients // part
    if is_released:
        theirs["num_rounds"] = RELEASED_LOCAL_ROUNDS[trial.images]
    at = dataclasses.replace(
        trial, num_rounds=num_rounds or trial.num_rounds, rounds_between=1
    )
    found = changes(at, theirs)
    is_redrawn = name == "ifca" and trial.start == "reference"
    is_theirs = is_released or is_redrawn
    return Size(found, form="as released" if is_theirs else "", is_released=is_theirs)


# Accuracy round by round, the paper's among it


def draw(results: Sequence[Result], title: str) -> Figure:
    """Accuracy per round under a title, one panel for each setting, the paper's where
    it applies.

    Results that differ only in IFCA's start share a panel.
    """
    settings: dict[str, list[Result]] = {}
    for result in results:
        settings.setdefault(setting_title(result.trial), []).append(result)
    return report.curves(
        [_panel(title, group) for title, group in settings.items()],
        title=title,
        legend_title=legend(max(r.data.sizes["repetition"] for r in results)),
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
            report.Level(f"{name}, paper", paper.mean or math.nan, name, paper.std)
            for algorithm, name in NAMES.items()
            if name in shown
            and (paper := published_number(group[0].trial, algorithm))
            and size_of(group[0].trial, algorithm).is_paper
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
