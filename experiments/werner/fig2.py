"""Werner et al., Figure 2: the constants of Assumptions 4 and 5 along the way.

Command:   python -m experiments run werner.fig2 --preset paper
Quick:     the same with --preset quick: 3 data sets instead of 20
Measured:  paper, 9 s of one core of an AMD EPYC: (7) grows 1.03- to 4,460-fold from a
           cluster's first round to its last, and (8) is at least .44 on the way; over
           all models (7) reaches 540, and (8) is 1e-6 where two clients' gradients meet
Paper:     one run: the intra-cluster ratio (7) does not grow with time, and the
           inter-cluster gap (8) stays above a positive constant, hence "Assumptions
           4 and 5 are realistic in practice". Curves only, without numbers.

(7) is |grad f_i - grad f|^2 / |grad f|^2 for f the mean loss of the own cluster,
bounded by A^2 in Assumption 4; (8), printed with the same client twice, is
|grad f_i - grad f_j|^2 over clients of different clusters, bounded below by Delta^2
in Assumption 5 with D = 0. Both assumptions speak of all models; the figure, of those
on the way. What (7) can be over all models is computed beside it (`sup`), and (8) at
the one model where two clients' gradients meet.

The paper leaves open the law of the minimisers, at which mean the clusters begin, the
step size, the start and the number of rounds. With d = 10 and n = 9 a client has fewer
equations than unknowns.
"""

import math
from typing import Any, Literal

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from cfljax import engine
from cfljax.base import check_member
from cfljax.report import set_caption, style
from experiments import study
from experiments.checks import check_several, configuration
from experiments.options import Options
from experiments.study import Row, Rows
from experiments.titles import title
from experiments.werner.synthetic import Minimisers, curvatures, trial_data

EXPERIMENTS = {
    "werner.fig2": {
        "title": "constants of Assumptions 4 and 5 along gradient descent",
        "has_sweeps": True,
    }
}
(EXPERIMENT,) = EXPERIMENTS
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "within": ("round", "client"),  # (7) at the model of the client's cluster
    "between": ("round", "client"),  # (8), least over clients of other clusters
    "within_anywhere": ("client",),  # sup of (7) over all models
    "between_anywhere": (),  # (8) of one pair of clients, at one model
    "distance": ("round", "cluster"),  # of the cluster's model from its minimiser
}

_LEAST = 1e-8  # Of the first mean gradient: below it (7) is 0 / 0.


@configuration
class Config:
    """Everything that the figure depends on. One field, one flag."""

    num_trials: int  # Data sets; the first is drawn.
    minimisers: Minimisers = "normal"
    """Law of the true models: normal, N(0, I); reference, 100 x Bernoulli(1/2)."""
    first_mean: float = 1.0
    """Mean of the first cluster's inputs; the next ones have one more each."""
    num_clusters: int = 4  # K.
    num_members: int = 75  # n_i, clients of each cluster.
    num_samples: int = 9  # n, per client.
    num_features: int = 10  # d.
    num_rounds: int = 300  # T, steps of gradient descent.
    seed: int = 0  # Of all data sets.

    def __post_init__(self) -> None:
        if not math.isfinite(self.first_mean):
            raise ValueError(f"`first_mean` must be finite, got {self.first_mean}.")
        study.trial_of(Trial, self)  # It checks what it shares.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    return Config(num_trials=3 if name == "quick" else 20)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write the figure and its numbers."""
    own = study.Study(EXPERIMENT, config, options)
    grid = engine.Grid(
        experiment=EXPERIMENT,
        trial=study.trial_of(Trial, config),
        axes={"first_mean": (config.first_mean,)},
        num_trials=config.num_trials,
        traced=("first_mean",),
        dims=DIMS,
        coords={"round": list(range(config.num_rounds))},
        seed=config.seed,
        revision=REVISION,
    )
    results = own.sweep(grid, simulate)
    table = rows(results)
    return own.finish(
        tables={"table": (table, COLUMNS)},
        note="Largest and least values over the clients of a cluster.",
        figures={"constants": draw(results, config)},
        outcome=outcome(table),
    )


@configuration
class Trial:
    """Everything that one data set's law depends on."""

    minimisers: Minimisers
    first_mean: float
    num_clusters: int
    num_members: int
    num_samples: int
    num_features: int
    num_rounds: int

    def __post_init__(self) -> None:
        check_member(Minimisers, minimisers=self.minimisers)
        check_several(num_clusters=self.num_clusters)


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Gradient descent of every cluster, with everybody in the right one, by `DIMS`.

    All clusters start at 0 and use one step size, 1 over the largest curvature of a
    cluster's loss. Gradients are linear in the distance from a minimiser, which is
    iterated so that nothing cancels. (7) is NaN below a mean gradient of 1e-8 of the
    first.
    """
    data, truth = trial_data(trial, key, trial.minimisers)
    own = curvatures(data)
    sizes = (trial.num_clusters, trial.num_members, *own.shape[1:])
    means = jnp.mean(own.reshape(sizes), axis=1)  # of the clusters' mean losses
    step = 1 / jnp.max(jnp.linalg.eigvalsh(means))
    models, clusters = truth.models, truth.clusters
    first = -models  # x_0 - x*
    initial = _norms(_apply(means, first))

    def move(aside: Array, _: None) -> tuple[Array, tuple[Array, ...]]:
        mean = _apply(means, aside)  # of the gradients, [clusters, features]
        size = jnp.where(_norms(mean) > _LEAST**2 * initial, _norms(mean), jnp.nan)
        spread = _norms(_apply(own, aside[clusters]) - mean[clusters])
        ratio = spread / size[clusters]  # (7)
        at = (aside + models)[:, None, :] - models[clusters][None]  # x_k - x*_j
        gradients = jnp.einsum("jde,kje->kjd", own, at, precision="highest")
        found = ratio, _between(gradients, clusters), jnp.sqrt(_norms(aside))
        return aside - step * mean, found

    found = jax.lax.scan(move, first, None, length=trial.num_rounds)[1]
    # The largest (7) is the squared norm of (H_i - H) H^-1, here transposed: both are
    # symmetric.
    mean = means[clusters]
    turned = jnp.linalg.solve(mean, own - mean)
    return {
        **dict(zip(("within", "between", "distance"), found, strict=True)),
        "within_anywhere": jnp.square(jnp.linalg.norm(turned, ord=2, axis=(1, 2))),
        "between_anywhere": _meeting(own, models, clusters),
    }


def _apply(matrices: Array, vectors: Array) -> Array:
    return jnp.einsum("kde,ke->kd", matrices, vectors, precision="highest")


def _norms(vectors: Float[Array, "rows features"]) -> Float[Array, " rows"]:
    """Squared."""
    return jnp.sum(jnp.square(vectors), axis=1)


def _between(
    gradients: Float[Array, "clusters clients features"], clusters: Array
) -> Float[Array, " clients"]:
    """(8) of each client at its cluster's model, least over other clusters' clients."""

    def of(index: Array) -> Array:
        there = gradients[clusters[index]]
        gaps = _norms(there - there[index][None])
        return jnp.min(jnp.where(clusters == clusters[index], jnp.inf, gaps))

    return jax.lax.map(of, jnp.arange(clusters.shape[0]))


def _meeting(own: Array, models: Array, clusters: Array) -> Float[Array, ""]:
    """(8) of the first and the last client where their gradients should be the same.

    H_i (x - x*_k) = H_j (x - x*_l) has a solution x wherever H_i - H_j is invertible.
    """
    i, j = 0, clusters.shape[0] - 1
    product = lambda matrix, vector: jnp.matmul(matrix, vector, precision="highest")
    target = product(own[i], models[clusters[i]]) - product(own[j], models[clusters[j]])
    at = jnp.linalg.solve(own[i] - own[j], target)
    gap = product(own[i], at - models[clusters[i]])
    gap = gap - product(own[j], at - models[clusters[j]])
    return jnp.sum(jnp.square(gap))


COLUMNS = {
    "cluster": "cluster",
    "trial": "data set",
    "first": "(7), first round",
    "last": "(7), last round above 0 / 0",
    "largest": "(7), largest on the way",
    "half": "round t of half of it",
    "supremum": "(7), sup over all models",
    "least_first": "(8), first round",
    "least_last": "(8), last round",
    "least": "(8), least on the way",
    "meeting": "(8), where two gradients meet",
    "left": "distance left, last / first",
}
_GREY, _BOUND = "#b5b5b5", "#D55E00"
_DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))


def rows(results: xr.Dataset) -> list[Row]:
    """One row for each data set and cluster."""
    table = []
    data = results.isel(first_mean=0)
    num_members = data.sizes["client"] // data.sizes["cluster"]
    for trial in data["trial"].values.tolist():
        own = data.isel(trial=trial)
        for cluster in range(data.sizes["cluster"]):
            members = slice(cluster * num_members, (cluster + 1) * num_members)
            within = own["within"].values[:, members]
            defined = within[np.isfinite(within).all(axis=1)]  # Not 0 / 0 at the end.
            between = own["between"].values[:, members]
            distance = own["distance"].values[:, cluster]
            row = {
                "cluster": cluster + 1,
                "trial": trial,
                "first": float(np.max(defined[0])),
                "last": float(np.max(defined[-1])),
                "largest": float(np.max(defined)),
                "half": int(np.argmax(defined.max(axis=1) >= np.max(defined) / 2)),
                "supremum": float(np.max(own["within_anywhere"].values[members])),
                "least_first": float(np.min(between[0])),
                "least_last": float(np.min(between[-1])),
                "least": float(np.min(between)),
                "meeting": float(own["between_anywhere"].values),
                "left": float(distance[-1] / distance[0]),
            }
            table.append(row)
    return table


def outcome(table: Rows) -> str:
    """What the paper says of the figure, and what came out, in at most five sentences,
    from the table alone."""
    growth, change = (
        [row[last] / row[first] for row in table]
        for first, last in (("first", "last"), ("least_first", "least_last"))
    )
    short = lambda number: f"{float(f'{number:.3g}'):g}"
    low, high = (short(end(growth)) for end in (min, max))
    rounds = [row["half"] for row in table]
    supremum, meeting = (max(row[n] for row in table) for n in ("supremum", "meeting"))
    least, grows = min(row["least"] for row in table), sum(r > 1 for r in growth)
    largest = f"{short(supremum)}, the largest (7) of any model"
    if not math.isfinite(supremum):
        support = "No constant A^2 bounds it over all models, as Assumption 4 asks"
    elif grows:
        support = (
            "So the figure's own setting does not support Assumption 4 by a ratio that "
            f"time leaves alone; there is a constant A^2, but it is {largest}, and "
            f"max(1, A^4) of Theorem 3 is then {short(supremum**2)}"
        )
    else:
        support = (
            "So the figure's own setting supports Assumption 4; its constant A^2 is "
            f"{largest}"
        )
    # The gradients meet in theory, and but for rounding here.
    vanishes = meeting < 1e-3 * least
    anywhere = "no positive Delta^2" if vanishes else "a positive Delta^2"
    return (
        "The paper says: the intra-cluster ratio (7) does not grow with time and the "
        "inter-cluster gap (8) stays above a positive constant, hence Assumptions 4 "
        "and 5 are realistic in practice.\n\n"
        "From the first round to the last the largest ratio (7) of a cluster grows in "
        f"{grows} of {len(table)} clusters of all data sets, and changes "
        f"{low}- to {high}-fold; half of its largest value is reached in round "
        f"{min(rounds)} to {max(rounds)}. {support}. The least gap (8) of a cluster "
        f"changes {short(min(change))}- to {short(max(change))}-fold and is at least "
        f"{short(least)} on the way; at the model where two clients' gradients "
        f"should meet it is at most {meeting:.1g}, so that {anywhere} with D = 0 "
        "bounds it there, as Assumption 5 asks of all models. The paper leaves the law "
        "of the minimisers, the step size, the start and the number of rounds open, "
        "and with other choices the ratio may grow less.\n"
    )


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    what = "gradient descent with known clusters"
    place = "Werner et al., Figure 2"
    return {"constants": title(place, what, config, preset("paper"))}


def draw(results: xr.Dataset, config: Config) -> Figure:
    """Both quantities of the first data set."""
    data = results.isel(first_mean=0, trial=0)
    with matplotlib.rc_context(style()):
        figure = Figure(figsize=(9.2, 4.4), layout="constrained")
        left, right = figure.subplots(1, 2)
        handles = _panel(left, data, "within", np.nanmax)
        left.set(
            title="intra-cluster ratio (7), as in Assumption 4",
            xlabel="round t",
            ylabel="|∇fᵢ − ∇f|² / |∇f|²",
        )
        _panel(right, data, "between", np.nanmin)
        right.set(
            title="inter-cluster gap (8), as in Assumption 5 with D = 0",
            xlabel="round t",
            ylabel="least |∇fᵢ − ∇fⱼ|² over other clusters' j",
        )
        set_caption(figure, titles(config)["constants"])
        figure.legend(
            handles.values(),
            handles.keys(),
            loc="outside lower center",
            ncols=3,
            handlelength=3.5,
        )
    return figure


def _panel(axes: Axes, data: xr.Dataset, name: str, bound: Any) -> dict[str, Any]:
    """Clients, clusters and the extreme that bounds them; what the legend shows."""
    rounds, values = data["round"].values, data[name].values
    # One curve with gaps, true to a pixel; one for each client takes half a megabyte.
    gap = np.full((1, values.shape[1]), np.nan)
    every = np.concatenate([values, gap]).ravel(order="F")
    at = np.tile([*rounds, np.nan], values.shape[1])
    (thin,) = axes.plot(at, every, color=_GREY, linewidth=0.4)
    thin.get_path().simplify_threshold = 1.0
    handles: dict[str, Any] = {"each client": Line2D([], [], color=_GREY)}
    num_members = data.sizes["client"] // data.sizes["cluster"]
    for cluster in range(data.sizes["cluster"]):
        members = slice(cluster * num_members, (cluster + 1) * num_members)
        (line,) = axes.plot(
            rounds,
            values[:, members].mean(axis=1),
            color="black",
            linewidth=1.6,
            linestyle=_DASHES[cluster % len(_DASHES)],
        )
        handles[f"mean of cluster {cluster + 1}"] = line
    look = {"color": _BOUND, "linestyle": (0, (7, 3)), "linewidth": 1.6}
    handles["empirical bound"] = axes.axhline(float(bound(values)), **look)
    axes.set_yscale("log")
    axes.grid(True)
    return handles
