"""What CLoVE's experiments show: rows beside the paper's numbers, figures, files."""

import dataclasses
import functools
import json
import math
import pathlib
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.clove.methods import METHODS, Method, clusters
from experiments.clove.networks import is_classifier
from experiments.clove.partitions import Partition, published_sizes
from experiments.clove.sources import Source
from experiments.clove.study import Result, Trial
from experiments.options import Options

DATASETS = {
    "mnist": "MNIST",
    "fashion_mnist": "FMNIST",
    "cifar10": "CIFAR-10",
    "ag_news": "AG News",
    "amazon_reviews": "Amazon",
}
FOUND = 0.9  # Adjusted Rand index from which the paper calls clusters found.
EARLY = 10  # Rounds after which the paper looks at it first.
NOTE = """
After the last round; means ± standard deviations, which are divided by the number of
seeds as the paper's are. "accuracy" or "loss": of all clients' own test samples, each
under its client's model. "ARI": of the models trained in the round, by those who took
part. "ARI, 10": after 10 rounds. "found": seeds that reached an ARI of 0.9, and the
mean of the first rounds in which they did; "never": in none of the paper's. "stable":
rounds until clustering was over, of the seeds where it was. "MiB": sent to and by all
clients in a round. "differs because": the cause that was tested where an
accuracy, a loss or the last ARI is further from the paper's than two pooled standard
deviations, and than 0.5, 0.0005 or 0.005; "open" where none was found. A spread needs
two seeds. The paper's numbers are of its own sizes, those of the paper preset
unless said otherwise.
"""
# Measures with an average and a spread: heading, digits, names in the paper.
MEASURES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "accuracy": ("accuracy %", 1, ("test accuracy %",)),
    "loss": ("loss", 4, ("reconstruction loss", "test loss")),
    "rand": ("ARI", 2, ("ARI", "final ARI")),
    "rand_early": ("ARI, 10", 2, ("ARI in 10 rounds",)),
    "first": ("first round", 1, ("first round with ARI>=0.9",)),
    "stable": ("stable", 1, ("round of stability",)),
}


def _partition(trial: Trial) -> str:
    """The partition's name as people write it."""
    return trial.partition.replace("_", " ")


@dataclasses.dataclass(frozen=True)
class View:
    """What an experiment shows of its results."""

    title: str  # of its figure
    # The paper's tables that have numbers on it, such as "Table 1".
    items: tuple[str, ...] = ()
    # A trial's setting as those tables name it.
    setting: Callable[[Trial], str] = lambda trial: _partition(trial).capitalize()
    # Names of methods in those tables, where they are not `METHODS`' own.
    published: Mapping[Method, str] = dataclasses.field(default_factory=dict)
    # What tells curves of one method apart, for the legend; "" if nothing.
    series: Callable[[Trial], str] = lambda trial: ""
    # What tells panels of one partition apart, for their titles; "" if nothing.
    panel: Callable[[Trial], str] = lambda trial: ""
    # Whether each algorithm has a panel of its own, in which `curves` or else `series`
    # names the curves.
    splits_algorithms: bool = False
    # Names of methods in such panels.
    curves: Mapping[Method, str] = dataclasses.field(default_factory=dict)
    # Those that are run, and that the tables are about; any if None.
    partitions: tuple[Partition, ...] | None = None
    # Whether autoencoders are trained, and the tables are about them.
    reconstructs: bool = False
    is_partial: bool = False  # whether they are about partial participation
    # Which ARI the table shows: "rand_index" of the participants, or "seen_rand_index"
    # of all who ever took part.
    index: Literal["rand_index", "seen_rand_index"] = "rand_index"
    note: str = ""  # on the paper's numbers, for people

    def applies(self, trial: Trial) -> bool:
        """Whether the paper's tables are about such a trial, sizes of clients aside."""
        paper = published_sizes(trial.partition, trial.dataset)
        is_partial = trial.num_participants < trial.num_clients
        return (
            (self.partitions is None or trial.partition in self.partitions)
            and trial.num_clusters == paper.num_clusters
            and self.reconstructs != is_classifier(trial.network)
            and (self.is_partial or not is_partial)
        )


# Rows of a table.


def rows(result: Result, view: View) -> list[dict[str, Any]]:
    """One row for each method, accuracies in per cent, of the runs that did not fail. A
    run that diverged has no ARI, and then neither has the mean.
    """
    names: list[Method] = result.data["method"].values.tolist()
    table = [_row(result, view, name) for name in names]
    found = zip(table, causes(table, result.trial, view.items), strict=True)
    return [row | {"cause": cause} for row, cause in found]


def first_found(found: Float[np.ndarray, " rounds"]) -> int | None:
    """First round, from 1, whose ARI is `FOUND` or more; None without any."""
    is_found: Bool[np.ndarray, " rounds"] = found >= FOUND  # Not where it is NaN.
    return int(np.argmax(is_found)) + 1 if np.any(is_found) else None


def finished(data: xr.Dataset, method: str) -> xr.Dataset:
    """The runs of a method that did not fail, `[repetition, ...]`."""
    own = data.sel({"method": method}).isel(trial=0)
    return own.isel(repetition=np.flatnonzero(~own["failed"].values))


def cells(data: xr.Dataset) -> Iterator[tuple[Any, int, xr.Dataset]]:
    """Every run, with its method and the number of its repetition."""
    for method in data["method"].values.tolist():
        for repetition in data["repetition"].values:
            where = {"method": method, "repetition": repetition}
            yield method, int(repetition), data.sel(where).isel(trial=0)


def columns(trial: Trial, *names: str) -> dict[str, Any]:
    """Fields of a trial by their names, without the `num_` that some begin with."""
    values = dataclasses.asdict(trial)
    return {name: values[name if name in values else f"num_{name}"] for name in names}


def _row(result: Result, view: View, name: Method) -> dict[str, Any]:
    trial, own = result.trial, finished(result.data, name)
    traffic = own["received"].values + own["sent"].values
    sizes = ("clusters", "clients", "samples", "participants")
    row = columns(trial, "dataset", "partition", *sizes)
    row |= {"method": name, "label": METHODS[name].label, "round": trial.num_rounds}
    row |= {"trials": own.sizes["repetition"]}
    row |= {"mebibytes_mean": float(traffic.mean()) if traffic.size else None}
    measured = _measured(trial, view, name, own)
    for measure, values in measured.items():
        row |= spread(measure, values)
        row |= published_values(trial, view, name, measure)
    if clusters(name):
        row["found"] = len(measured["first"])
    return row


def _measured(
    trial: Trial, view: View, name: Method, own: xr.Dataset
) -> dict[str, Float[np.ndarray, " runs"]]:
    """Values of all measures that a method has."""
    score = own["score"].values[:, -1].astype(float)
    is_accuracy = is_classifier(trial.network)
    found = {"accuracy": 100 * score} if is_accuracy else {"loss": score}
    if not clusters(name):
        return found
    indices = own[view.index].values.astype(float)
    firsts = [first for run in indices if (first := first_found(run)) is not None]
    found |= {"rand": indices[:, -1], "first": np.array(firsts, float)}
    stable = [np.argmax(run) for run in own["stable"].values > 0 if run.any()]
    found["stable"] = np.array(stable, float)
    if trial.num_rounds >= EARLY:
        found["rand_early"] = indices[:, EARLY - 1]
    return found


def spread(name: str, values: Float[np.ndarray, " runs"]) -> dict[str, Any]:
    """Mean and standard deviation, as far as there are runs; one has no deviation."""
    return {
        f"{name}_mean": float(values.mean()) if values.size else None,
        f"{name}_std": float(values.std()) if values.size > 1 else None,
    }


@functools.cache
def published_rows() -> list[dict[str, Any]]:
    """All numbers of the paper's tables."""
    return report.read_csv(pathlib.Path(__file__).with_name("published.csv"))


def published_values(
    trial: Trial, view: View, name: Method, measure: str
) -> dict[str, float | None]:
    """What the paper prints; nothing for what its tables are not about."""
    if not view.applies(trial):
        return {}
    own = METHODS[name]
    plain = METHODS[own.reference_of or name]
    label = view.published.get(name, own.published or plain.label)
    wanted = DATASETS.get(trial.dataset), view.setting(trial), label
    for row in published_rows():
        found = row["dataset"], row["setting"] or "", row["algorithm"]
        is_measure = row["metric"] in MEASURES[measure][2]
        if row["item"] in view.items and is_measure and found == wanted:
            return {f"paper_{measure}_{end}": row[end] for end in ("mean", "std")}
    return {}


# Why a number differs from the published one, as far as it was tested.
#
# Accuracies, losses and indices of the last round are looked at. A number differs if it
# is further from the paper's than two pooled standard deviations and than `LEAST`. A
# defect of the public code behind a published number is a cause if the variant with
# that defect, run beside, has that number and none that differs.

# Differences up to these do not count, in the units of a measure: half a point of
# accuracy, half a hundredth of an index.
LEAST = {"accuracy": 0.5, "rand": 0.005, "loss": 0.0005}
# Clients with samples of each, where a table is not of the paper's usual ones. It gives
# 1000 clients 100 to 200 samples as well, of which there are not so many.
_OTHER_SIZES: Mapping[str, Sequence[tuple[int, int]]] = {
    "Table 14": ((125, 100),),
    "Table 15": ((50, 200), (100, 200), (250, 200), (500, 100)),
    "Table 16": ((100, 200), (200, 200), (500, 100)),
}
_TRAINING = {"num_rounds": 100, "num_epochs": 1, "batch_size": 64, "step_size": 0.001}
# Causes that were tested by hand, by data set, partition and method: none as yet.
_TESTED: Mapping[tuple[str, str, str], str] = {}


def differs(row: Mapping[str, Any], measure: str) -> bool:
    """Whether a row's number differs from the published one; not where either is
    missing or comes from one seed only, whose spread is not known.
    """
    mean, std, paper_mean, paper_std = _numbers(row, measure)
    if mean is None or std is None or paper_mean is None:
        return False
    pooled = math.sqrt((std**2 + (paper_std or 0.0) ** 2) / 2)
    # A run that diverged has no number, and is not like the paper's.
    return not abs(mean - paper_mean) <= max(2 * pooled, LEAST[measure])


def _numbers(row: Mapping[str, Any], measure: str) -> list[float | None]:
    """Mean and spread, the row's own and the paper's; None where there is none."""
    ends = f"{measure}_mean", f"{measure}_std"
    names = [f"{who}{end}" for who in ("", "paper_") for end in ends]
    return [row.get(name) for name in names]


def is_of_paper(trial: Trial, items: Sequence[str]) -> bool:
    """Whether a trial has the sizes of the paper's tables; they give no widths."""
    paper = published_sizes(trial.partition, trial.dataset)
    usual = paper.num_clusters * paper.cluster_size, paper.num_samples
    allowed = [size for item in items for size in _OTHER_SIZES.get(item, (usual,))]
    training = {name: getattr(trial, name) for name in _TRAINING}
    return (
        trial.num_clusters == paper.num_clusters
        and (trial.num_clients, trial.num_samples) in allowed
        and training == _TRAINING
    )


def causes(
    table: Sequence[Mapping[str, Any]], trial: Trial, items: Sequence[str]
) -> list[str | None]:
    """Why each row of one shape of the data differs from the paper, if it does."""
    has_sizes = is_of_paper(trial, items)
    return [_cause(row, table, has_sizes=has_sizes) for row in table]


def _cause(
    row: Mapping[str, Any], table: Sequence[Mapping[str, Any]], *, has_sizes: bool
) -> str | None:
    measures = [measure for measure in LEAST if differs(row, measure)]
    if not measures:
        return None
    if not has_sizes:
        return "other sizes"
    for other in table:
        own = METHODS[other["method"]]
        if own.reference_of == row["method"] and _is_like_paper(other, measures):
            return f"public code: see {own.label}"
    where = row["dataset"], row["partition"], row["method"]
    return _TESTED.get(where, "open")


def _is_like_paper(row: Mapping[str, Any], measures: Sequence[str]) -> bool:
    """Whether a row has these measures, as no failed one has, and differs in none."""
    is_known = all(None not in _numbers(row, measure)[:3] for measure in measures)
    return is_known and not any(differs(row, measure) for measure in LEAST)


# The table for people, the figure, and the files.


def markdown(table: Sequence[Mapping[str, Any]], view: View) -> str:
    """The table for people, without empty columns, and a note on its columns."""
    headings = {
        "dataset": "data",
        "partition": "partition",
        "setting": "K x m x n",
        "participants": "in a round",
        "label": "method",
        "round": "rounds",
        "trials": "seeds",
    }
    for measure, (heading, *_) in MEASURES.items():
        headings |= {measure: heading, f"paper_{measure}": f"paper's {heading}"}
        if measure == "rand_early":
            headings["seeds_found"] = "found"
    headings |= {"mebibytes_mean": "MiB", "cause": "differs because"}
    shown = [_shown(row) for row in table]
    note = f"\n{textwrap.fill(view.note, 88)}\n" if view.note else ""
    return report.markdown(shown, without_empty(shown, headings)) + NOTE + note


def without_empty(
    table: Sequence[Mapping[str, Any]], headings: Mapping[str, str]
) -> dict[str, str]:
    """The headings of the columns in which some row has something."""
    full = {name for row in table for name in row if row[name] not in (None, "")}
    return {name: text for name, text in headings.items() if name in full}


def _shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row whose measures are texts."""
    size = row["clients"] // row["clusters"]
    shown = {**row, "setting": f"{row['clusters']} x {size} x {row['samples']}"}
    if row["participants"] == row["clients"]:
        shown["participants"] = None
    if "found" in row:
        shown["seeds_found"] = f"{row['found']}/{row['trials']}"
    for measure, (_, digits, _) in MEASURES.items():
        for name in (measure, f"paper_{measure}"):
            shown[name] = mean_text(row, name, digits)
    return shown


def mean_text(row: Mapping[str, Any], name: str, digits: int) -> str | None:
    """A mean with its spread, if a row has one."""
    mean, std = row.get(f"{name}_mean"), row.get(f"{name}_std")
    if mean is None:
        is_never = name == "paper_first" and "paper_first_mean" in row
        return "never" if is_never else None
    if math.isnan(mean):
        return "undefined"
    spread = "" if std is None else f" ± {std:.{digits}f}"
    return f"{mean:.{digits}f}{spread}"


def draw(results: Sequence[Result], view: View) -> Figure | None:
    """ARI per round, a panel for each partition; None where no method has one."""
    panels: dict[str, list[report.Curve]] = {}
    for result in results:
        for name in filter(clusters, result.data["method"].values.tolist()):
            title, label = curve_names(view, result.trial, name)
            if curve := band(label, finished(result.data, name)["seen_rand_index"]):
                panels.setdefault(title, []).append(curve)
    if not panels:
        return None
    return report.curves(
        [
            report.CurvePanel(
                curves, "round", "adjusted Rand index, all seen", title=title
            )
            for title, curves in panels.items()
        ],
        title=view.title,
        legend_title="mean ± one standard deviation over the seeds",
        panels_per_row=4,
    )


def band(label: str, runs: xr.DataArray) -> report.Curve | None:
    """Mean of `[repetition, round]` ± one standard deviation; None without any run."""
    own = runs.values.astype(float)
    if not len(own):
        return None
    rounds, mean, std = runs["round"].values.astype(float), own.mean(0), own.std(0)
    return report.Curve(label, rounds, mean, mean - std, mean + std)


def curve_names(view: View, trial: Trial, name: Method) -> tuple[str, str]:
    """Title of a curve's panel, and the curve's name in the legend."""
    parts = DATASETS.get(trial.dataset, "digits"), _partition(trial)
    title = ", ".join(filter(None, (*parts, view.panel(trial))))
    label, series = METHODS[name].label, view.series(trial)
    if not view.splits_algorithms:
        return title, ", ".join(filter(None, (label, series)))
    # Of all that one algorithm does, its plain form stands first.
    algorithm = METHODS[name].algorithm
    plain = next(own for own in METHODS.values() if own.algorithm == algorithm)
    return f"{title}: {plain.label}", view.curves.get(name, series)


def runs(result: Result, view: View) -> list[dict[str, Any]]:
    """One row for each run, after its last round."""
    table, trial = [], result.trial
    sizes = ("clusters", "clients", "participants")
    for name, repetition, cell in cells(result.data):
        row = columns(trial, "dataset", "partition", *sizes)
        row |= {"method": name, "repetition": repetition}
        row |= {"failed": bool(cell["failed"]), "score": float(cell["score"][-1])}
        row |= {f"{n}_mib": float(cell[n].sum()) for n in ("received", "sent")}
        if clusters(name):
            found = cell[view.index].values.astype(float)
            row |= {"rand_index": float(found[-1]), "first_found": first_found(found)}
            row |= {"used_models": float(cell["used_models"][-1])}
        table.append(row)
    return table


def conclude(
    experiment: str,
    config: Any,
    options: Options,
    started: float,
    loaded: Sequence[Source],
    results: Sequence[Result],
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    text: str,
    figures: Mapping[str, Figure | None],
) -> dict[str, Any]:
    """As `finish`, of a study of all sources, whose notes stand above the table."""
    origins = [source.samples.source for source in loaded]
    finished = finish(
        config,
        options,
        started,
        tables=tables,
        text=text,
        headline="".join(source.note for source in loaded) + text,
        figures=figures,
        failures=sum(int(result.data.attrs["failures"]) for result in results),
        sources=origins,
    )
    return {"experiment": experiment, "sources": origins, **finished}


def finish(
    config: Any,
    options: Options,
    started: float,
    *,
    tables: Mapping[str, Sequence[Mapping[str, Any]]],
    text: str,
    headline: str,
    figures: Mapping[str, Figure | None],
    failures: int,
    **origin: Any,
) -> dict[str, Any]:
    """Write all files to `options.out`; returns what the command's summary has of it.

    `tables` and `figures` go by the names of their files, rows of "table" being the
    summary's and None a figure that cannot be drawn; `text` and `headline` are for
    people. The configuration's file tells the samples' origin; `failures` are cells.
    """
    out = options.out
    for name, own in tables.items():
        report.write_csv(out / f"{name}.csv", own)
    report.write_text(out / "table.md", text)
    settings = json.dumps(dataclasses.asdict(config) | origin, indent=2) + "\n"
    report.write_text(out / "config.json", settings)
    paths = [out / f"{name}.csv" for name in tables]
    paths += [out / "table.md", out / "config.json"]
    for name, figure in figures.items():
        paths += [] if figure is None else report.save(figure, out / name)
    return {
        "headline": headline,
        "files": [str(path) for path in paths],
        "seconds": round(time.perf_counter() - started, 2),
        "failed_cells": failures,
        "rows": tables["table"],
    }
