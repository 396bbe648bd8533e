"""What CLoVE's experiments show: rows beside the paper's numbers, figures, files."""

import dataclasses
import itertools
import json
import math
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np
import xarray as xr
from jaxtyping import Bool, Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.clove.methods import METHODS, Method, clusters
from experiments.clove.networks import WIDTHS, is_classifier
from experiments.clove.partitions import Partition, published_sizes
from experiments.clove.sources import Source
from experiments.clove.study import Result, Trial, growing
from experiments.options import Options
from experiments.published import Published, published
from experiments.study import legend, size_text
from experiments.verdicts import (
    DIFFERS,
    Kind,
    Size,
    Verdict,
    changes,
    judge,
    together,
)

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
clients in a round. "size": the paper's own, or what a run has less or other. "verdict":
see `experiments/verdicts.py`. A number differs that is further from the paper's than
two pooled standard deviations, and than 0.5 points of accuracy, 0.005 of an ARI, 0.0005
of a loss or half a round; nothing smaller than the paper's runs agrees, and of fewer
than three seeds the spread is unknown. The paper's numbers are of its own sizes.
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

    # Place in the paper and, behind a colon, what the figure shows in any setting.
    title: str
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
    values: dict[Method, dict[str, np.ndarray]] = {
        name: measured(result.trial, name, _arrays(result.data, name), view.index)
        for name in names
    }
    found = verdicts(values, result.trial, view)
    return [_row(result, view, name, values[name], found[name]) for name in names]


def _arrays(data: xr.Dataset, method: str) -> dict[str, np.ndarray]:
    own = finished(data, method)
    return {str(name): own[name].values for name in own.data_vars}


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


def _row(
    result: Result,
    view: View,
    name: Method,
    values: Mapping[str, Float[np.ndarray, " runs"]],
    verdicts: Mapping[str, Verdict],
) -> dict[str, Any]:
    trial, own = result.trial, finished(result.data, name)
    traffic = own["received"].values + own["sent"].values
    sizes = ("clusters", "clients", "samples", "participants")
    row = columns(trial, "dataset", "partition", *sizes)
    row |= {"method": name, "label": METHODS[name].label, "round": trial.num_rounds}
    row |= {"trials": own.sizes["repetition"]}
    row |= {"mebibytes_mean": float(traffic.mean()) if traffic.size else None}
    paper = published_numbers(trial, view, name)
    for measure, numbers in values.items():
        is_round = measure in ("first", "stable")
        row |= spread(measure, numbers[numbers < math.inf] if is_round else numbers)
        if measure in paper:
            row[f"paper_{measure}_mean"] = paper[measure].mean
            row[f"paper_{measure}_std"] = paper[measure].std
    if clusters(name):
        row["found"] = int(np.isfinite(values["first"]).sum())
    if not view.items:
        return row
    size = size_of(dataclasses.replace(trial, method=name), view.items)
    shown = {MEASURES[measure][0]: verdict for measure, verdict in verdicts.items()}
    return row | {"size": size_text(size, own), "verdict": together(shown)}


def measured(
    trial: Trial,
    name: Method,
    outputs: Mapping[str, np.ndarray],
    index: Literal["rand_index", "seen_rand_index"] = "rand_index",
) -> dict[str, Float[np.ndarray, " runs"]]:
    """Values of all measures that a method has, one for each run; of rounds infinity
    where what is looked for never happened. `outputs` are the study's, `[runs, ...]`.
    """
    score = outputs["score"][:, -1].astype(float)
    is_accuracy = is_classifier(trial.network)
    found = {"accuracy": 100 * score} if is_accuracy else {"loss": score}
    if not clusters(name):
        return found
    indices = outputs[index].astype(float)
    firsts = [first_found(run) or math.inf for run in indices]
    is_over = outputs["stable"] > 0
    stable = [np.argmax(run) if run.any() else math.inf for run in is_over]
    found |= {"rand": indices[:, -1], "first": np.array(firsts, float)}
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


def published_numbers(trial: Trial, view: View, name: Method) -> dict[str, Published]:
    """What the paper prints, by measure; nothing for what its tables are not about."""
    if not view.applies(trial):
        return {}
    own = METHODS[name]
    plain = METHODS[own.reference_of or name]
    label = view.published.get(name, own.published or plain.label)
    wanted = DATASETS.get(trial.dataset), view.setting(trial), label
    return {
        measure: number
        for number in published("clove")
        if number.item in view.items
        and (number.dataset, number.setting, number.algorithm) == wanted
        for measure, (_, _, metrics) in MEASURES.items()
        if number.metric in metrics
    }


# How large a run is beside the paper's, and what it says of the paper's numbers.

_TRAINING = {"num_rounds": 100, "num_epochs": 1, "batch_size": 64, "step_size": 0.001}
# Samples of a client by the number of clients, where a table is not of the paper's
# usual sizes. It gives clients 100 to 200 samples; of 1000 clients none has 100 here,
# for want of images.
_OTHER_SIZES: Mapping[str, Mapping[int, int]] = {
    "Table 14": {125: 100},
    "Table 15": {50: 200, 100: 200, 250: 200, 500: 100, 1000: 100},
    "Table 16": {100: 200, 200: 200, 500: 100, 1000: 100},
}
# Test samples of a client, as the paper's presets have them, likewise.
_USUAL_TESTS, _TEXTS = 100, 75
_TESTS: Mapping[str, Mapping[int, int]] = {
    "Table 14": {125: 20},
    "Table 15": {50: 100, 100: 80, 250: 35, 500: 17, 1000: 8},
    "Table 16": {100: 80, 200: 40, 500: 17, 1000: 8},
}
PARTICIPATIONS = (1.0, 0.9, 0.75, 0.5, 0.25, 0.1)  # Of Table 14.


def rate_of(trial: Trial) -> float:
    """The paper's participation that is nearest: participants are whole clients."""
    own = trial.num_participants / trial.num_clients
    return min(PARTICIPATIONS, key=lambda rate: abs(rate - own))


def size_of(trial: Trial, items: Sequence[str]) -> Size:
    """The size of a run beside that of the paper's tables."""
    usual = published_sizes(trial.partition, trial.dataset)
    sizes: Mapping[int, int] = next(
        (_OTHER_SIZES[own] for own in items if own in _OTHER_SIZES),
        {usual.num_clusters * usual.cluster_size: usual.num_samples},
    )
    num_clients = min(sizes, key=lambda number: abs(number - trial.num_clients))
    paper = {"num_clusters": usual.num_clusters, "num_clients": num_clients}
    paper |= {"num_samples": sizes[num_clients]}
    rate = rate_of(trial) if "Table 14" in items else 1.0
    paper["num_participants"] = max(1, round(rate * num_clients))
    # The paper gives none: fewer than its presets' make a smaller run.
    tests = _TESTS.get(next(iter(items), ""), {}).get(num_clients, _USUAL_TESTS)
    if trial.dataset in ("ag_news", "amazon_reviews"):
        tests = _TEXTS
    paper["num_test_samples"] = max(tests, trial.num_test_samples)
    found = changes(trial, {**paper, **_TRAINING, **WIDTHS[trial.network]})
    if trial.dataset not in DATASETS:
        return Size(found, other_data="scikit-learn's digits")
    if trial.dataset == "amazon_reviews":
        own = f"{trial.num_samples} reviews a client of Blitzer et al. instead of 1000"
        return Size(found, other_data=own)
    form = METHODS[trial.method].label if METHODS[trial.method].reference_of else ""
    return Size(found, form=form, is_released=bool(form))


def verdicts(
    values: Mapping[Method, Mapping[str, Float[np.ndarray, " runs"]]],
    trial: Trial,
    view: View,
) -> dict[Method, dict[str, Verdict]]:
    """Of each method, by measure, that the paper has a number of; of one that it has
    none of, the first measure's.

    A defect of public code is the cause of a difference where the variant that has it
    agrees there and differs nowhere.
    """
    found: dict[Method, dict[str, Verdict]] = {
        name: _judged(own, trial, view, name) for name, own in values.items()
    }
    for other, own in found.items():
        plain = METHODS[other].reference_of
        if plain not in found or any(v.kind in DIFFERS for v in own.values()):
            continue
        for measure, verdict in found[plain].items():
            alike = measure in own and own[measure].kind is Kind.AGREES
            if verdict.kind is Kind.OPEN and alike:
                cause = f"public code: see {METHODS[other].label}"
                found[plain][measure] = verdict.explained(cause)
    return found


def _judged(
    values: Mapping[str, Float[np.ndarray, " runs"]],
    trial: Trial,
    view: View,
    name: Method,
) -> dict[str, Verdict]:
    paper = published_numbers(trial, view, name)
    trial = dataclasses.replace(trial, method=name)
    shown = [measure for measure in values if measure in paper] or list(values)[:1]
    size = lambda own: size_for(own, values[own], trial, view.items)
    return {own: judge(values[own], paper.get(own), size(own)) for own in shown}


def size_for(
    measure: str,
    values: Float[np.ndarray, " runs"],
    trial: Trial,
    items: Sequence[str],
) -> Size:
    """The size of a run as far as a measure looks at it: what comes after the tenth
    round, or after the first in which all seeds had found the clusters, is no part of
    it, unless the method is told how many rounds there will be."""
    size = size_of(trial, items)
    is_early = measure == "rand_early" or (
        measure == "first" and bool(np.all(np.isfinite(values)))
    )
    if not is_early or "num_rounds" not in growing(trial):
        return size
    left = [own for own in size.changes if own.name != "num_rounds"]
    return dataclasses.replace(size, changes=tuple(left))


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
    headings |= {"mebibytes_mean": "MiB", "size": "size", "verdict": "verdict"}
    note = f"\n{textwrap.fill(view.note, 88)}\n" if view.note else ""
    shown = [_shown(row) for row in table]
    return report.concise(shown, headings, once="size") + NOTE + note


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


def draw(results: Sequence[Result], view: View, title: str = "") -> dict[str, Figure]:
    """ARI per round by file name, a panel for each partition; several figures where one
    cannot tell all curves apart. None of methods that have no ARI.
    """
    drawn: dict[Method, list[tuple[str, report.Curve]]] = {}
    for result in results:
        for name in filter(clusters, result.data["method"].values.tolist()):
            panel, label = curve_names(view, result.trial, name)
            if curve := band(label, finished(result.data, name)["seen_rand_index"]):
                drawn.setdefault(name, []).append((panel, curve))
    parted = _told_apart(drawn.values())
    return numbered("rand_index", [_figure(own, results, title) for own in parted])


def draw_methods(
    table: Sequence[Mapping[str, Any]], title: str, *, with_paper: bool
) -> dict[str, Figure]:
    """All methods at once: a dot for each in a panel for each setting and measure, with
    one standard deviation over seeds; a method without a number says so. `with_paper`
    adds the published numbers.
    """
    names = list(dict.fromkeys(row["label"] for row in table))
    settings = ("dataset", "partition", "clusters", "clients", "participants")
    differing: list[str] = []
    for name in settings:  # No more than tell them apart.
        number = lambda own: len({tuple(row[n] for n in own) for row in table})
        if number([*differing, name]) > number(differing):
            differing.append(name)
    groups: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in table:
        at = tuple(row[name] for name in differing)
        groups.setdefault(at, {})[row["label"]] = row
    series = {"ours": ""} | ({"paper": "paper_"} if with_paper else {})
    panels = []
    for measure in ("accuracy", "loss", "rand"):
        if not any(row.get(f"{measure}_mean") is not None for row in table):
            continue
        for at, own in groups.items():
            told = (
                str(value).replace("_", " ")
                if isinstance(value, str)
                else f"{value} {name}"
                for name, value in zip(differing, at, strict=True)
            )
            dots = {
                name: np.array([_ends(own.get(n, {}), prefix + measure) for n in names])
                for name, prefix in series.items()
            }
            heading = MEASURES[measure][0]
            panels.append(report.DotPanel(names, dots, heading, ", ".join(told)))
    if not panels or len(names) < 2:
        return {}
    caption = "dots are means over seeds, lines one standard deviation"
    return {"methods": report.dot_plot(panels, title=title, caption=caption)}


def _ends(row: Mapping[str, Any], name: str) -> tuple[float, float, float]:
    """A mean, and one standard deviation to either side; NaN without."""
    mean, std = row.get(f"{name}_mean"), row.get(f"{name}_std")
    mean = math.nan if mean is None else float(mean)
    spread = math.nan if std is None else float(std)
    return mean, mean - spread, mean + spread


def _told_apart(
    methods: Iterable[Sequence[tuple[str, report.Curve]]],
) -> list[list[tuple[str, report.Curve]]]:
    """Titled curves of one figure each, of whole methods if they are not too many."""
    most, found = len(report.LINES), []
    names: set[str] = set()  # In the last figure.
    for curves in methods:
        labels = tuple(dict.fromkeys(curve.label for _, curve in curves))
        for part in parts(labels, most):
            if not found or len(names | set(part)) > most:
                found.append([])
                names = set()
            names |= set(part)
            found[-1] += [pair for pair in curves if pair[1].label in part]
    return found


def _figure(
    drawn: Sequence[tuple[str, report.Curve]], results: Sequence[Result], title: str
) -> Figure:
    """One figure of curves, by the titles of their panels."""
    panels: dict[str, list[report.Curve]] = {}
    for name, curve in drawn:
        panels.setdefault(name, []).append(curve)
    return report.curves(
        [
            report.CurvePanel(
                curves, "round", "adjusted Rand index, all seen", title=name
            )
            for name, curves in panels.items()
        ],
        title=title,
        legend_title=legend(max(r.data.sizes["repetition"] for r in results)),
        panels_per_row=4,
    )


def parts(items: Sequence[Any], most: int) -> list[Sequence[Any]]:
    """Parts of at most so many, as evenly as they go."""
    number = -(-len(items) // most)
    cuts = [i * len(items) // number for i in range(number + 1)] if number else []
    return [items[start:end] for start, end in itertools.pairwise(cuts)]


def numbered(name: str, figures: Sequence[Figure]) -> dict[str, Figure]:
    """Figures by file names: the name, and with a number from the second on."""
    names = [name, *(f"{name}-{i}" for i in range(2, len(figures) + 1))]
    return dict(zip(names, figures, strict=False))


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
