"""IFCA, Figure 4: accuracy of the cluster identity estimation, round by round.

Command:   python -m experiments run ifca.fig4 --preset paper --data FOLDER
Quick:     the same with --preset quick: the clients of the tables' quick presets
Measured:  quick on MNIST and CIFAR-10, 100 s on two idle cores of an Intel Xeon: one of
           three seeds finds all rotations of MNIST, from round 14 on, and one those
           of CIFAR, from round 2 on; the others stay with a wrong clustering
Paper:     one run each, found from about round 30 on for Rotated MNIST and round 10
           for Rotated CIFAR; which m and n of its Table 1 it shows for MNIST, the
           text leaves open (1200 x 200 here).

A cluster's name is arbitrary, so the renaming that makes most participants right is
used. The estimate at the end of a round is the one that the next round starts with:
at 0 stands that of the random start. Nothing is tested, so these are not the runs of
Table 1 with the same seeds: there, rounds between tests draw other keys.
"""

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from matplotlib.figure import Figure

from cfljax import engine, report
from cfljax.data import ImageSet
from experiments.checks import check_different, configuration
from experiments.ifca.rotated import (
    IDENTITY_DIMS,
    Network,
    Result,
    Start,
    compute,
    identities,
    jobs_of,
    trial_of,
)
from experiments.ifca.rotated_report import setting_title
from experiments.ifca.table1 import cifar_preset, mnist_preset
from experiments.ifca.tables import mean_curve, std
from experiments.images import Loaded, find_images
from experiments.jobs import Job
from experiments.options import Options
from experiments.study import Study, cells, computed, fields, mean, settings
from experiments.titles import differences, title

EXPERIMENTS = {
    "ifca.fig4": {
        "title": "accuracy of the cluster identities, round by round",
        "spreads_clients": True,
        "has_jobs": True,
    },
}
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.
FOUND = {"mnist": 30, "cifar10": 10}  # Round from which the paper shows all found.
MEASURES = tuple(name for name, dims in IDENTITY_DIMS.items() if dims)
COLUMNS = {
    "setting": "panel",
    "start": "start",
    "trials": "seeds",
    "found": "seeds that find all",
    "first_round": "from round (median of those)",
    "paper_round": "paper",
    "matched": "matched accuracy at the end",
    "rand": "ARI at the end",
    "mib": "MiB per round",
}


@configuration
class Config:
    """Everything that the figure depends on. One field, one flag.

    Tuples have one entry for each panel.
    """

    images: tuple[ImageSet, ...]  # Image set.
    num_clients: tuple[int, ...]  # m, a multiple of the number of clusters.
    num_samples: tuple[int, ...]  # n of a training client.
    num_clusters: tuple[int, ...]  # k, 1, 2 or 4 rotations.
    num_participants: tuple[int, ...]  # Clients of one round.
    network: tuple[Network, ...]  # mlp; code, text or narrow, see ifca.table1_cifar.
    num_channels: tuple[int, ...]  # Of the first convolution of the narrow network.
    num_hidden: tuple[int, ...]
    """Width of the hidden layer of the networks mlp and narrow."""
    num_rounds: tuple[int, ...]  # T, communication rounds.
    num_epochs: tuple[int, ...]
    """Tau as passes over a client's samples; 0 to count steps."""
    num_steps: tuple[int, ...]  # Tau as steps; 0 to count epochs.
    batch_size: tuple[int, ...]  # Samples of a local step; 0 for all of a client's.
    step_size: tuple[float, ...]  # Gamma of the first round.
    decay: tuple[float, ...]  # Factor of the step size from round to round.
    clients_per_chunk: tuple[int, ...]  # Clients evaluated at a time; bounds memory.
    start: tuple[Start, ...]
    """paper: independent models; reference: redrawn until balanced, as released."""
    fall_back: bool  # Use the embedded digits where the images are not found.
    num_trials: int = 5  # Seeds of each panel.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        check_different("images", self.images)
        for field, value in vars(self).items():
            if isinstance(value, tuple) and len(value) != len(self.images):
                raise ValueError(
                    f"`{field}` must have one entry for each of `images`, got {value}."
                )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset: the settings of the tables' presets."""
    mnist, cifar = mnist_preset(name), cifar_preset(name)
    share = cifar.participation * cifar.num_clients
    return Config(
        images=("mnist", "cifar10"),
        num_clients=(mnist.num_clients[-1], cifar.num_clients),
        num_samples=(mnist.num_samples[-1], cifar.num_samples),
        num_clusters=(mnist.num_clusters, cifar.num_clusters),
        num_participants=(mnist.num_clients[-1], round(share)),
        network=("mlp", cifar.network),
        num_channels=(1, cifar.num_channels),
        num_hidden=(mnist.num_hidden, cifar.num_hidden),
        num_rounds=(60, 20) if name == "quick" else (100, 50),
        num_epochs=(0, cifar.num_epochs),
        num_steps=(mnist.num_steps, cifar.num_steps),
        batch_size=(0, cifar.batch_size),
        step_size=(mnist.step_size, cifar.step_size),
        decay=(1.0, cifar.decay),
        clients_per_chunk=(mnist.clients_per_chunk, cifar.clients_per_chunk),
        start=("paper", "reference"),
        fall_back=mnist.fall_back,
        num_trials=cifar.num_trials,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write the figure and its numbers.

    Raises:
      ValueError: if the images do not suffice for a panel, or are damaged.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    study = Study("ifca.fig4", config, options)
    found = _images(config, options)
    results = compute(options, _jobs(config, found))
    table = [row(result) for result in results]
    text = report.markdown(table, COLUMNS)
    sources = [images.source for images in found]
    return study.summary(
        "".join(images.note for images in found) + text,
        {
            "identities.csv": rounds(results),
            "table.csv": table,
            "table.md": text,
            "identities": draw(results, config),
            "config.json": settings(config, source=sources),
        },
        table,
        [result.data for result in results],
        images=sources,
    )


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of the figure; raises as `main`."""
    return _jobs(config, _images(config, options))


def _images(config: Config, options: Options) -> list[Loaded]:
    """Of all panels."""
    fall_back = config.fall_back
    return [find_images(name, options, fall_back=fall_back) for name in config.images]


def _jobs(config: Config, found: Sequence[Loaded]) -> list[Job]:
    grids = [(grid(config, panel, own), own) for panel, own in enumerate(found)]
    return jobs_of(grids, identities)


def grid(config: Config, panel: int, images: Loaded) -> engine.Grid:
    """The seeds of one panel."""
    own = {
        name: value[panel]
        for name, value in vars(config).items()
        if isinstance(value, tuple) and name != "images"
    }
    clients, clusters = own["num_clients"], own["num_clusters"]
    own["num_samples"] = images.fitting(own["num_samples"], clients, clusters)
    trial = trial_of(
        config,
        images,
        algorithm="ifca",
        num_test_clients=clusters,  # Nobody is tested.
        num_test_samples=1,
        num_local_clients=clusters,
        num_released=0,
        rounds_between=1,
        **own,
    )
    return engine.Grid(
        experiment="ifca.fig4",
        trial=trial,
        axes={"repetition": tuple(range(config.num_trials))},
        num_trials=1,
        traced=("step_size", "repetition"),
        dims=IDENTITY_DIMS,
        coords={"round": list(range(trial.num_rounds))},
        seed=config.seed,
        revision=REVISION,
    )


def row(result: Result) -> dict[str, Any]:
    """What one panel shows, in numbers."""
    data, trial = result.data.isel(trial=0), result.trial
    matched = data["matched_accuracy"].values
    matched = matched[np.isfinite(matched[:, -1])]
    since = [
        first for run in matched if (first := found_since(run)) is not None
    ]  # in runs that end with all of them found
    return {
        "setting": setting_title(trial),
        "start": trial.start,
        "trials": len(matched),
        "found": f"{len(since)}/{len(matched)}",
        "first_round": float(np.median(since)) if since else None,
        "paper_round": FOUND.get(trial.images),
        "matched": mean(matched[:, -1]),
        "matched_std": std(matched[:, -1]),
        "rand": mean(computed(data["rand_index"].values[:, -1])),
        "mib": mean(computed((data["received"] + data["sent"]).values.ravel())),
    }


def found_since(matched: np.ndarray) -> int | None:
    """First round from which on all participants are in their cluster."""
    wrong = np.flatnonzero(matched != 1)
    first = int(wrong[-1]) + 1 if wrong.size else 0
    return first if first < len(matched) else None


def rounds(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row for each panel, seed and round; traffic is that of the next round."""
    table = []
    for result in results:
        trial = result.trial
        for at, now in cells(result.data.isel(trial=0), "repetition", "round"):
            line = fields(trial, "images", "network", "start")
            line |= {"repetition": int(at["repetition"]), "round": at["round"]}
            line |= {name: float(now[name]) for name in MEASURES}
            if trial.start == "reference":
                own = ("start_draws", "start_share")
                line |= {name: float(now[name]) for name in own}
            line["received_mib"] = line.pop("received")
            line["sent_mib"] = line.pop("sent")
            table.append(line)
    return table


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    what = "cluster identity estimation of IFCA"
    return {"identities": title("IFCA, Figure 4", what, config, preset("paper"))}


def draw(results: Sequence[Result], config: Config) -> Figure:
    """One panel for each image set; what the paper found at the paper's settings."""
    is_paper = not differences(config, preset("paper"))
    return report.curves(
        [_panel(result, is_paper=is_paper) for result in results],
        title=titles(config)["identities"],
        legend_title="of the participants, in their cluster under the best renaming",
    )


def _panel(result: Result, *, is_paper: bool) -> report.CurvePanel:
    trial = result.trial
    name = setting_title(trial)
    if trial.start == "reference":
        name += ", start redrawn"
    if is_paper and (found := FOUND.get(trial.images)) is not None:
        name += f"\n(paper: all found after about {found} rounds)"
    over = result.data["round"].values.astype(float)
    matched = result.data["matched_accuracy"].isel(trial=0).values.astype(float)
    matched = matched[np.isfinite(matched[:, -1])]
    label = "mean ± one standard deviation"
    return report.CurvePanel(
        [
            mean_curve(label, over, matched),
            *(report.Curve("one seed", over, run, like=label) for run in matched),
        ],
        x_label="rounds that are over",
        y_label="matched accuracy",
        title=name,
    )
