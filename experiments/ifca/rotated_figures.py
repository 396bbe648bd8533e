"""Figures of the experiments on rotated images, the paper's numbers among them."""

from collections.abc import Iterator, Sequence

import numpy as np
from matplotlib.figure import Figure

from cfljax import report
from experiments.ifca.rotated_published import NAMES, published
from experiments.ifca.rotated_report import Result
from experiments.ifca.rotated_trial import Trial

__all__ = ["TITLES", "draw", "setting_title"]

TITLES = {
    "digits": "Rotated digits",
    "mnist": "Rotated MNIST",
    "fashion_mnist": "Rotated Fashion-MNIST",
    "cifar10": "Rotated CIFAR-10",
}
BALANCED = "IFCA, start redrawn"  # As in the released code.


def setting_title(trial: Trial) -> str:
    """Images, clients and samples."""
    return (
        f"{TITLES[trial.images]}, {trial.num_clients} clients x "
        f"{trial.num_samples} samples"
    )


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


def _panel(title: str, group: Sequence[Result]) -> report.CurvePanel:
    curves = [curve for result in group for curve in _curves(result)]
    shown = {curve.label for curve in curves}
    levels = [
        report.Level(f"{name}, paper", paper.mean, name, paper.std)
        for algorithm, name in NAMES.items()
        if name in shown
        and (paper := published(group[0].trial, algorithm))
        and paper.same
    ]
    return report.CurvePanel(
        curves,
        x_label="round",
        y_label="test accuracy %",
        y_limits=None,
        title=title,
        levels=levels,
    )


def _curves(result: Result) -> Iterator[report.Curve]:
    """Mean accuracy of every algorithm that a seed was computed of."""
    rounds = result.data["round"].values.astype(float)
    for name in result.data["algorithm"].values.tolist():
        accuracy = 100 * result.data["accuracy"].sel(algorithm=name).values[:, 0]
        accuracy = accuracy[np.isfinite(accuracy[:, -1])]
        if not len(accuracy):
            continue
        mean = accuracy.mean(axis=0)
        std = accuracy.std(axis=0, ddof=1) if len(accuracy) > 1 else 0 * mean
        is_redrawn = name == "ifca" and result.trial.start == "reference"
        label = BALANCED if is_redrawn else NAMES[name]
        yield report.Curve(label, rounds, mean, mean - std, mean + std)
