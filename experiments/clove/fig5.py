"""CLoVE, Figure 5: test losses of clients of all clusters under all models.

Command:   python -m experiments run clove.fig5 --preset paper --data FOLDER
Quick:     the same with --preset quick: 3 clients a cluster of 100 samples, 15 rounds,
           batches of 10 and a narrow autoencoder (64 hidden units, 16 in the middle);
           without data, on the digits embedded in scikit-learn
Measured:  quick on MNIST, 43 s on two cores of an Intel Xeon, one of them busy: CLoVE's
           diagonal is the least of every row (mean 0.0310), and in all 10 rows less
           than FedAvg's loss (0.0552) and the local models' (0.0341); IFCA trains 3 of
           its 10 models, with a mean loss of all clients of 0.0471 against CLoVE's
           0.0321. The paper preset has not been run
Paper:     one seed, M = 50 clients of n = 250 samples: CLoVE's diagonal is the least of
           every row, and less than FedAvg's and the local models'; IFCA trains 3 of its
           10 models, none of which is the best for its clients. The numbers are in a
           picture only, times a constant that is not named.
"""

import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import report
from cfljax.base import Stacked, take
from cfljax.clustering import match_clusters
from cfljax.federated import loss_matrix
from experiments.clove.methods import METHODS, Method, clusters
from experiments.clove.partitions import Clients
from experiments.clove.rows import DATASETS, cells, columns, conclude
from experiments.clove.sources import Source
from experiments.clove.study import (
    PAPER,
    QUICK,
    Config,
    Result,
    Trial,
    compute,
    jobs_of,
    run,
    sources,
    task_of,
)
from experiments.jobs import Job
from experiments.options import Options
from experiments.titles import title

EXPERIMENT = "clove.fig5"
EXPERIMENTS = {
    "clove.fig5": {
        "title": "losses of all clusters under all models: CLoVE, IFCA, FedAvg, local",
        "spreads_clients": True,
        "has_jobs": True,
    }
}
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    both = {"partitions": ("one_class",), "reconstruct": True, "num_trials": 1}
    if name == "quick":
        widths = {"num_hidden": 64, "num_latent": 16}
        return dataclasses.replace(QUICK, num_rounds=15, **widths, **both)
    sizes = {"datasets": ("mnist",), "num_samples": (250,), "num_hidden": 128}
    return dataclasses.replace(PAPER, **sizes, **both)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure; a summary of it.

    Raises:
      ValueError: if the samples do not suffice, or are damaged, or nothing is to be
        reconstructed.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    started = time.perf_counter()
    if not config.reconstruct:
        raise ValueError("`reconstruct` must be true: the figure shows its losses.")
    loaded = sources(config, options)
    results = [compute(options, job) for job in _jobs(config, loaded)]
    table = [row for result in results for row in rows(result)]
    tables, figures = {"table": table}, {"losses": draw(results, config)}
    found = config, options, started, loaded, results
    return conclude(EXPERIMENT, *found, tables, markdown(table), figures)


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of the figure; raises as `main`."""
    return _jobs(config, sources(config, options))


def _jobs(config: Config, loaded: Sequence[Source]) -> list[Job]:
    """The study's trials, observed anew."""
    own = {"experiment": EXPERIMENT, "dims": DIMS, "coords": {}, "revision": REVISION}
    return jobs_of(config, loaded, simulate, **own)


# Outputs of a trial and the names of their own axes, both as long as there are true
# clusters; NaN where a method has fewer models.
DIMS: dict[str, tuple[str, ...]] = {
    "model_losses": ("client", "model"),  # on the clients' own test samples
    "members": ("model",),  # clients that trained the model when they last trained one
    "score": (),  # mean over all clients' test samples, each under its own model
    "rand_index": (),  # of the models trained in the last round; NaN without any
}


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run, and the losses of its final models, by `DIMS`. Cost: that of the run,
    and a forward pass for each model and test sample of a client of each cluster.
    """
    carry, trace = run(trial, key, clients)
    index = jnp.asarray(trial.repetition).astype(jnp.int32)
    truth = clients.clusters[index]
    each = jnp.arange(trial.num_clusters)
    # The first client of every true cluster.
    shown = jnp.argmax(truth[None, :] == each[:, None], axis=1)
    test = jax.tree.map(lambda leaf: leaf[index][shown], clients.test)
    models = _models(trial, carry.state, shown)
    task = task_of(trial, test.inputs.shape[2:])
    losses = loss_matrix(
        task, models, test, clients_per_chunk=trial.clients_per_chunk
    )  # [true clusters, models]
    members = jnp.ones(losses.shape[1], losses.dtype)
    if METHODS[trial.method].algorithm == "fedavg":
        members = members * trial.num_clients
    if clusters(trial.method):
        order = models_of_clusters(losses, carry.latest, truth)
        members = jax.nn.one_hot(carry.latest, trial.num_clusters).sum(axis=0)
        losses, members = losses[:, order], members[order].astype(losses.dtype)
    missing = trial.num_clusters - losses.shape[1]
    pad = lambda values: jnp.concatenate(
        [values, jnp.full((*values.shape[:-1], missing), jnp.nan, values.dtype)], -1
    )
    return {
        "model_losses": pad(losses),
        "members": pad(members),
        "score": trace["score"][-1],
        "rand_index": trace["rand_index"][-1],
    }


def _models(trial: Trial, state: Any, shown: Int[Array, " shown"]) -> Stacked:
    """All models of a method; of local ones those of the clients that are shown."""
    algorithm = METHODS[trial.method].algorithm
    if algorithm == "fedavg":
        return jax.tree.map(lambda leaf: leaf[None], state.model)
    return take(state.models, shown) if algorithm == "local" else state.models


def models_of_clusters(
    losses: Float[Array, "clusters clusters"],
    assignment: Int[Array, " clients"],
    truth: Int[Array, " clients"],
) -> Int[Array, " clusters"]:
    """The model of each true cluster, one for each, that most of its clients have.

    Among equals, such as clusters whose clients share one model, it goes to the cluster
    it fits best, by losses of 0 or more, of which one that is not finite is the
    largest. A client without a model has a negative number.
    """
    number = losses.shape[0]
    members = jax.nn.one_hot(truth, number).T @ jax.nn.one_hot(assignment, number)
    bounded = jnp.where(jnp.isfinite(losses), losses / (1 + losses), 1)
    # The losses of a whole matching sum up to less than one client.
    return match_clusters(bounded / (number + 1) - members.astype(losses.dtype))


SCALE = 1000.0  # Of the losses that are shown; the paper's factor is not given.
COLUMNS = {
    "dataset": "data",
    "label": "method",
    "repetition": "seed",
    "diagonal": "diagonal x 1000",
    "smallest": "diagonal smallest",
    "clove_lower": "CLoVE's lower",
    "used_models": "models used",
    "loss": "loss x 1000",
    "rand_index": "ARI",
}
NOTE = """
After the last round. Rows of the heat maps are clients, the first of each true cluster,
on their own test samples; columns are models, ordered such that most clients of a
cluster have the model on the diagonal. "diagonal": mean loss under it; under the one
model of FedAvg. "diagonal smallest": rows whose diagonal is less than all other
entries. "CLoVE's lower": rows in which CLoVE's diagonal is less than this one. "models
used": those that clients have, of local ones those that are shown. "loss": of all
clients' test samples, each under its client's model.
"""


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each method and repetition.

    A run that failed has no numbers. A loss that is not finite is never the smallest.
    """
    found = {(name, repetition): cell for name, repetition, cell in cells(result.data)}
    table = []
    for (name, repetition), cell in sorted(found.items(), key=lambda item: item[0][1]):
        row = columns(result.trial, "dataset", "clusters", "clients", "samples")
        row |= {"method": name, "label": METHODS[name].label}
        row |= {"repetition": repetition, "failed": bool(cell["failed"])}
        if not row["failed"]:
            row |= _measured(name, cell, found.get(("clove", repetition)))
        table.append(row)
    return table


def _measured(
    name: Method, cell: xr.Dataset, clove: xr.Dataset | None
) -> dict[str, Any]:
    """The numbers of one run beside CLoVE's, as far as its method can have them."""
    losses = cell["model_losses"].values.astype(float)
    diagonal = _diagonal(name, cell)
    found: dict[str, Any] = {
        "diagonal": float(diagonal.mean()),
        "used_models": int(np.sum(cell["members"].values > 0)),
        "loss": float(cell["score"]),
    }
    if METHODS[name].algorithm != "fedavg":
        others = np.where(np.isfinite(losses), losses, np.inf)
        np.fill_diagonal(others, np.inf)
        is_least = diagonal < others.min(axis=1)  # Not where it is NaN.
        found["smallest"] = int(np.sum(is_least)) / len(losses)
    if clove is not None and name != "clove":
        found["clove_lower"] = float(np.mean(_diagonal("clove", clove) < diagonal))
    if clusters(name):
        found["rand_index"] = float(cell["rand_index"])
    return found


def _diagonal(name: Method, cell: xr.Dataset) -> Float[np.ndarray, " clients"]:
    """Loss of each client under the model of its cluster, or under the only one."""
    losses = cell["model_losses"].values.astype(float)
    if METHODS[name].algorithm == "fedavg":
        return losses[:, 0]
    return np.diagonal(losses)


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, with losses scaled, shares as counts, and a note."""

    def text(row: Mapping[str, Any], name: str) -> Any:
        value, number = row[name], row["clusters"]
        if name in ("diagonal", "loss"):
            return f"{SCALE * value:.1f}"
        if name in ("smallest", "clove_lower"):
            return f"{round(value * number)}/{number}"
        return f"{value:.2f}" if name == "rand_index" else value

    shown = [{name: text(row, name) for name in row} for row in table]
    return report.concise(shown, COLUMNS) + NOTE


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    what = "test loss under every model, first seed"
    return {"losses": title("CLoVE, Figure 5", what, config, preset("paper"))}


def draw(results: Sequence[Result], config: Config) -> Figure | None:
    """The first seed's heat maps, a panel for each method; None if all runs failed.
    Colours end at the largest loss under a model that some client has.
    """
    shown = [
        (result, name, cell)
        for result in results
        for name, repetition, cell in cells(result.data)
        if repetition == 0 and not bool(cell["failed"])
    ]
    if not shown:
        return None
    return report.heatmaps(
        [_panel(result, name, cell) for result, name, cell in shown],
        title=titles(config)["losses"],
        value_label=f"test loss × {SCALE:g}; larger ones look like the largest",
        limits=(0.0, max(_largest(cell) for _, _, cell in shown) or 1.0),
        panels_per_row=2,
    )


def _largest(cell: xr.Dataset) -> float:
    """Largest loss that is drawn of the models that clients have; 0 without any."""
    losses = SCALE * cell["model_losses"].values[:, cell["members"].values > 0]
    return float(np.max(losses, initial=0, where=np.isfinite(losses)))


def _panel(result: Result, name: Method, cell: xr.Dataset) -> report.HeatMap:
    """One method's losses, the first cluster at the top, as matrices are written."""
    losses = SCALE * cell["model_losses"].values.astype(float)[::-1]
    members = cell["members"].values
    labels = [str(number) for number in range(result.trial.num_clusters)]
    columns, column_label = labels, "model of the client of cluster"
    shown = METHODS[name].label
    if METHODS[name].algorithm == "fedavg":
        losses, columns, column_label = losses[:, :1], ["all"], "global model"
    if clusters(name):
        columns = [
            label if number > 0 else f"({label})"
            for label, number in zip(labels, members, strict=True)
        ]
        column_label = "model of cluster; ( ) of no client"
        shown += f", {np.sum(members > 0)} models used"
    text = lambda value: f"{value:.3g}" if math.isfinite(value) else "–"
    return report.HeatMap(
        values=losses,
        row_values=labels[::-1],
        column_values=columns,
        row_label="client of cluster",
        column_label=column_label,
        cells=[[text(value) for value in line] for line in losses],
        title=f"{DATASETS.get(result.trial.dataset, 'digits')}, {shown}",
    )
