"""Werner et al., Figure 1: methods that fail, and the radii that escape.

Command:   python -m experiments run werner.fig1 --preset paper
Quick:     the same with --preset quick: fewer radii, batches and trials
Measured:  quick, 10 s on one of two busy cores of an Intel Xeon: as derived below
Paper:     (a) Myopic-Clustering merges client 2 with 3 at a saddle and stays; (b) IFCA
           stays at a symmetric point, by either option; (c) Clustered Federated
           Learning splits {1, 2} from {3} at the FedAvg optimum 1/4, with probability
           1/2. Federated-Clustering "avoids such pitfalls".

Of (a) all is as stated but for a sign: the third gradient at 1.5 is -1 / (2 eta).
Federated-Clustering gets client 2 away iff 1/3 <= tau eta < 1, and all clients to their
optima iff 1/3 <= tau eta < 2/3; the radius of Theorem 3 is 0 here, where nothing is
random. Of (b) all is as stated, and a radius below 2 escapes, by leaving both clients
alone. Of (c) the optimum of the mean loss is 1/3 (1/4 is that of the clusters' means),
and the split by cosines is {1, 3} from {2} with probability 1/2 and the right one
otherwise. There, what client 2 hears from 1 and from 3 is equally far with batches of
one, so that no radius tells them apart; larger batches do, by radii below 1/2.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Array, Float, PRNGKeyArray, ScalarLike
from matplotlib.figure import Figure

from cfljax import engine, report
from cfljax.algorithms import ifca
from cfljax.base import ClientData, Task, check_member
from cfljax.clustering import threshold_clustering
from experiments import study
from experiments.checks import (
    check_positive,
    check_several,
    check_values,
    configuration,
)
from experiments.options import Options
from experiments.study import Row, Rows
from experiments.titles import title_each

EXPERIMENTS = {
    "werner.fig1": {
        "title": "three methods that fail, and the radii by which clipping escapes",
        "has_sweeps": True,
    }
}
(EXPERIMENT,) = EXPERIMENTS
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

Name = Literal["myopic", "symmetric", "bipartition"]
# What fails: Myopic-Clustering; IFCA with options I and II; CFL by what its third
# client saw in the round of the split.
Method = Literal["myopic", "option_one", "option_two", "coin_zero", "coin_one"]
Models = Float[Array, " clients"]
Results = Mapping[str, xr.Dataset]  # of sweeps, by example

FAILING: Mapping[Name, tuple[Method, ...]] = {
    "myopic": ("myopic",),
    "symmetric": ("option_one", "option_two"),
    "bipartition": ("coin_zero", "coin_one"),
}
METHODS = {
    "myopic": "Myopic-Clustering",
    "option_one": "IFCA, option I",
    "option_two": "IFCA, option II",
    "coin_zero": "CFL, third client saw x",
    "coin_one": "CFL, third client saw x − 1",
}
# Radii that escape; of the last example with expected gradients. The example's unit is
# 1 / (step size) in the first.
WINDOWS: dict[tuple[str, str], tuple[float, float]] = {
    ("myopic", "all"): (1 / 3, 2 / 3),
    ("myopic", "client 2"): (1 / 3, 1.0),
    ("symmetric", "all"): (0.0, 2.0),
    ("bipartition", "all"): (0.0, 0.5),
    ("bipartition", "all, together"): (0.0, 0.5),
}
CLAIMS: Mapping[str, Callable[[Any], bool]] = {  # Of a row; no other client is asked.
    "all": lambda row: row["right"],
    "client 2": lambda row: row["right"] or row["client"] != 2,
    "all, together": lambda row: row["right"] and row["together"],
}
CLIENTS = 3  # Of the largest example; numbers of absent clients are NaN.

# Outputs of the trials and the names of their own axes.
FAILING_DIMS: dict[str, tuple[str, ...]] = {"position": ("round", "client")}
DIMS: dict[str, tuple[str, ...]] = {
    "position": ("round", "client"),  # x_i, from the start
    "tail": ("client",),  # mean of x_i over the second half of the rounds
    "company": ("client",),  # others of the own cluster in the last balls, mean there
    "strangers": ("client",),  # clients of other clusters there
}


@configuration
class Config:
    """Everything that the figure depends on. One field, one flag."""

    myopic_radius: tuple[float, ...]
    """Radii of example (a), in units of 1 / (step size)."""
    symmetric_radius: tuple[float, ...]  # Radii of example (b).
    bipartition_radius: tuple[float, ...]  # Radii of example (c).
    batch_size: tuple[int, ...]
    """Samples of a gradient of example (c), where alone they matter."""
    num_trials: int  # Runs of example (c).
    myopic_step_size: float = 0.25
    """Eta of example (a); below 11/36, or client 2 swings about its optimum."""
    step_size: float = 0.1  # Eta of the other examples.
    num_rounds: int = 400  # T; ends are means over the second half.
    num_clipping_rounds: int = 10  # l, rounds of Threshold-Clustering.
    tolerance: float = 0.05  # How near its optimum a client is right.
    seed: int = 0  # Of the batches.
    error_rate: float = 0.05  # Of each interval.

    def __post_init__(self) -> None:
        check_values(self, *(f"{name}_radius" for name in FAILING), "batch_size")
        check_several(num_trials=self.num_trials)
        if not 0 < self.tolerance < 0.5:
            raise ValueError(f"`tolerance` must be in (0, .5), got {self.tolerance}.")
        for name in FAILING:
            for grid in _grids(self, name):
                grid.cells()  # They check what they share.


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    edges = (0.3332, 0.3334, 0.66, 0.67, 0.99, 1.01)
    myopic = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 0.9, 1.2)
    symmetric = (0.0, 0.5, 1.0, 1.5, 1.8, 1.99, 2.01, 2.2, 2.5, 3.0)
    bipartition = (0.05, 0.1, 0.15, 0.25, 0.35, 0.4, 0.45, 0.49, 0.51, 0.6, 0.8, 1.0)
    if name == "quick":
        batches, trials = (1, 64), 5
    else:
        batches, trials = (1, 4, 16, 64, 256), 20
        edges += (0.3333, 0.6666, 0.6667, 0.9999, 1.0001)
        symmetric += (1.9999, 2.0001)
    return Config(
        myopic_radius=tuple(sorted(myopic + edges)),
        symmetric_radius=tuple(sorted(symmetric)),
        bipartition_radius=bipartition,
        batch_size=batches,
        num_trials=trials,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figures."""
    own = study.Study(EXPERIMENT, config, options)
    failing, clustering = {}, {}
    for name in FAILING:
        without, grid = _grids(config, name)
        failing[name] = own.sweep(without, fail)
        clustering[name] = own.sweep(grid, simulate)
    failed = failing_rows(failing, config.tolerance)
    table = rows(clustering, config)
    found = windows(table)
    return own.finish(
        tables={
            "table": (table, COLUMNS),
            "failing": (failed, FAILING_COLUMNS),
            "windows": (found, WINDOW_COLUMNS),
        },
        note=note(failed),
        figures={
            "paths": draw_paths(failing, clustering, config),
            "radii": draw_radii(table, config),
        },
        overview=found,
    )


def _grids(config: Config, name: Name) -> tuple[engine.Grid, engine.Grid]:
    """The failing methods of an example, which are exact, and Federated-Clustering."""
    is_random = name == "bipartition"
    trial = study.trial_of(
        Trial,
        config,
        example=name,
        radius=0.0,
        step_size=config.myopic_step_size if name == "myopic" else config.step_size,
        batch_size=1,
        method="myopic",
    )
    shared: Any = {"trial": trial, "seed": config.seed, "revision": REVISION}
    failing = engine.Grid(
        experiment=f"{EXPERIMENT}.failing",
        axes={"method": FAILING[name]},
        num_trials=1,
        traced=("radius", "step_size"),
        dims=FAILING_DIMS,
        **shared,
    )
    return failing, engine.Grid(
        experiment=f"{EXPERIMENT}.clustering",
        axes={
            "batch_size": config.batch_size if is_random else (1,),
            "radius": getattr(config, f"{name}_radius"),
        },
        num_trials=config.num_trials if is_random else 1,
        traced=("radius", "step_size"),
        dims=DIMS,
        **shared,
    )


class Example(NamedTuple):
    """Clients whose losses are functions of one number. Gradients, whose unit the radii
    have, are of all at one model x and what a stochastic client saw: 0, 1 or a mean.
    """

    gradients: Callable[[Array, Array, ScalarLike], Models]  # (x, coin, step size)
    scaled: bool  # whether their unit is 1 / (step size), so that they are steps
    optima: tuple[float, ...]  # of the clients
    clusters: tuple[int, ...]  # of the clients
    start: float  # model that everybody starts from


def _myopic(x: Array, coin: Array, step_size: ScalarLike) -> Models:
    """Gradients times the step size: powers of it cancel but in one of them."""
    del coin
    inflection = 12 * step_size * x * jnp.square(x - 1)  # of 4 (x-1)^3 + 3 (x-1)^4
    return jnp.stack([x / 3, jnp.where(x < 1, inflection, x - 1), x - 2])


_symmetric = lambda x, coin, step_size: jnp.stack([2 * (x + 0.5), 2 * (x - 0.5)])
# The third client's gradient is x or x - 1, at equal chances.
_bipartition = lambda x, coin, step_size: jnp.stack([x, x - 0.5, x - coin])

# Section 2.1: the optimum of client 2 in the first example is at 0, and 1 is a saddle.
EXAMPLES: dict[str, Example] = {
    "myopic": Example(_myopic, True, (0.0, 0.0, 2.0), (0, 0, 1), 1.5),
    "symmetric": Example(_symmetric, False, (-0.5, 0.5), (0, 1), 0.0),
    "bipartition": Example(_bipartition, False, (0.0, 0.5, 0.5), (0, 1, 1), 1.0),
}


def myopic(num_rounds: int, step_size: ScalarLike) -> Float[Array, "rounds clients"]:
    """Myopic-Clustering (Algorithm 1) with two clusters, from the example's start: the
    best partition of the gradients, of equal ones that with the first client alone.
    """
    example = EXAMPLES["myopic"]
    alone = jnp.eye(3, dtype=bool)

    def move(models: Array, _: None) -> tuple[Array, Array]:
        every = jax.vmap(lambda x: example.gradients(x, jnp.zeros(()), step_size))
        own = jnp.diagonal(every(models))
        pairs = jnp.where(alone, 0, own[None, :]).sum(axis=1) / 2  # their means
        centres = jnp.where(alone, own[None, :], pairs[:, None])
        spread = jnp.sum(jnp.square(own[None, :] - centres), axis=1)
        found = models - centres[jnp.argmin(spread)]
        return found, found

    start = jnp.full((3,), example.start)
    return jnp.concatenate(
        [start[None], jax.lax.scan(move, start, None, num_rounds)[1]]
    )


def symmetric(
    num_rounds: int, step_size: ScalarLike, option: Literal["gradient", "model"]
) -> Float[Array, "rounds clients"]:
    """IFCA from models -1.5 and 0: the model of each client's choice.

    Option I is of gradients; II, of models, has 5 local steps.
    """
    targets = jnp.asarray(EXAMPLES["symmetric"].optima)[:, None]
    data = ClientData(jnp.zeros((2, 1, 1)), targets, jnp.ones((2, 1), bool))
    task = Task(
        init=lambda key: jnp.zeros(()),
        losses=lambda model, inputs, targets: jnp.square(model - targets),
        predict=lambda model, inputs: jnp.broadcast_to(model, inputs.shape[:1]),
    )
    steps = 1 if option == "gradient" else 5
    algorithm = ifca(
        task, num_clusters=2, step_size=step_size, option=option, num_steps=steps
    )
    key = jax.random.key(0)  # Nothing is random.
    first = algorithm.init(key, data)._replace(models=jnp.array([-1.5, 0.0]))

    def move(state: Any, _: None) -> tuple[Any, Array]:
        state, info = algorithm.step(key, state, data)
        return state, state.models[info.assignment]

    _, later = jax.lax.scan(move, first, None, length=num_rounds)
    return jnp.concatenate([first.models[jnp.array([[1, 1]])], later])


def bipartition(
    num_rounds: int, step_size: ScalarLike, coin: int
) -> Float[Array, "rounds clients"]:
    """Clustered Federated Learning (Sattler et al.), one split after a quarter of T.

    All average until then. The split leaves alone whom the largest cosine of gradients
    across it is least for; it sees what the coin, 0 or 1, gives the third client, while
    training uses expected gradients.
    """
    example = EXAMPLES["bipartition"]
    half = jnp.full((), 0.5)
    seen = lambda x, coin: example.gradients(x, coin, step_size)

    def together(x: Array, _: None) -> tuple[Array, Array]:
        return x - step_size * jnp.mean(seen(x, half)), x

    before = num_rounds // 4
    x, common = jax.lax.scan(together, jnp.full((), example.start), None, before)
    signs = jnp.sign(seen(x, jnp.full((), float(coin))))
    cosines = signs[:, None] * signs[None, :]
    across = jnp.where(jnp.eye(3, dtype=bool), -jnp.inf, cosines).max(axis=1)
    alone = jnp.arange(3) == jnp.argmin(across)
    same = alone[:, None] == alone[None, :]
    sizes = jnp.where(alone, 1.0, 2.0)

    def apart(models: Array, _: None) -> tuple[Array, Array]:
        own = jnp.diagonal(jax.vmap(lambda x: seen(x, half))(models))
        mean = jnp.where(same, own[None, :], 0).sum(axis=1) / sizes
        return models - step_size * mean, models

    last, models = jax.lax.scan(apart, jnp.full((3,), x), None, num_rounds - before)
    common = jnp.broadcast_to(common[:, None], (before, 3))
    return jnp.concatenate([common, models, last[None]])


@configuration
class Trial:
    """Everything that one run depends on."""

    example: Name
    radius: float
    step_size: float
    batch_size: int
    num_rounds: int
    num_clipping_rounds: int
    method: Method = "myopic"

    def __post_init__(self) -> None:
        check_member(Name, example=self.example)
        check_member(Method, method=self.method)
        check_positive(self, "batch_size")
        if not self.radius >= 0:
            raise ValueError(f"`radius` must not be negative, got {self.radius}.")
        if not 0 < self.step_size < 1:
            raise ValueError(f"`step_size` must be in (0, 1), got {self.step_size}.")


def fail(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """The trial's method, which is exact: the array of `FAILING_DIMS`."""
    del key
    rounds, step = trial.num_rounds, trial.step_size
    if trial.method == "myopic":
        found = myopic(rounds, step)
    elif trial.method in ("option_one", "option_two"):
        option = "gradient" if trial.method == "option_one" else "model"
        found = symmetric(rounds, step, option)
    else:
        found = bipartition(rounds, step, int(trial.method == "coin_one"))
    return {"position": _padded(found)}


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Federated-Clustering (Algorithm 2), by `DIMS`: Threshold-Clustering of everyone's
    gradients of one batch at a client's model, from its own, moves that model.
    """
    example = EXAMPLES[trial.example]
    clusters = jnp.array(example.clusters)
    number = clusters.shape[0]
    every = jnp.arange(number)
    step = 1.0 if example.scaled else trial.step_size

    def one(x: Array, client: Array, coin: Array) -> tuple[Array, Array]:
        points = example.gradients(x, coin, trial.step_size)[:, None]
        found = threshold_clustering(
            points,
            points[client][None],
            num_rounds=trial.num_clipping_rounds,
            radius=trial.radius,
        )
        return found.centres[0, 0], found.members[0]

    def move(models: Array, index: Array) -> tuple[Array, tuple[Array, ...]]:
        own_key = jax.random.fold_in(key, index)
        draws = jax.random.bernoulli(own_key, 0.5, (trial.batch_size,))
        coin = jnp.mean(draws.astype(models.dtype))
        centres, members = jax.vmap(one, (0, 0, None))(models, every, coin)
        own = clusters[:, None] == clusters[None, :]
        company = jnp.sum(members & own & (every[:, None] != every[None, :]), axis=1)
        strangers = jnp.sum(members & ~own, axis=1)
        models = models - step * centres
        return models, (models, company, strangers)

    first = jnp.full((number,), example.start)
    rounds = jnp.arange(trial.num_rounds)
    later, company, strangers = jax.lax.scan(move, first, rounds)[1]
    half = trial.num_rounds // 2
    mean = lambda counts: jnp.mean(counts[half:].astype(later.dtype), axis=0)
    return {
        "position": _padded(jnp.concatenate([first[None], later])),
        "tail": _padded(mean(later)[None])[0],
        "company": _padded(mean(company)[None])[0],
        "strangers": _padded(mean(strangers)[None])[0],
    }


def _padded(values: Float[Array, "rows clients"]) -> Float[Array, "rows all"]:
    absent = ((0, 0), (0, CLIENTS - values.shape[1]))
    return jnp.pad(values, absent, constant_values=jnp.nan)


COLUMNS = {
    "example": "example",
    "batch_size": "batch",
    "radius": "radius",
    "client": "client",
    **study.interval_columns("model", "model in the end"),
    "optimum": "optimum",
    "right": "right",
    "company": "own cluster in the ball",
    "strangers": "others in the ball",
}
FAILING_COLUMNS = {
    "example": "example",
    "method": "method",
    "client": "client",
    "model": "model in the end",
    "optimum": "optimum",
    "right": "right",
}
WINDOW_COLUMNS = {
    "example": "example",
    "batch_size": "batch",
    "claim": "right in the end",
    "least": "from radius",
    "largest": "to",
    "radii": "radii tried",
    "exact": "exact window, expected gradients",
}


def failing_rows(results: Results, tolerance: float) -> list[Row]:
    """One row for each failing method and client."""
    table = []
    for name, data in results.items():
        for method in data["method"].values.tolist():
            last = data["position"].sel({"method": method}).isel(trial=0).values[-1]
            for client, optimum in enumerate(EXAMPLES[name].optima):
                row = {"example": name, "method": METHODS[method], "client": client + 1}
                row |= {"model": float(last[client]), "optimum": optimum}
                row["right"] = bool(abs(last[client] - optimum) <= tolerance)
                table.append(row)
    return table


def rows(results: Results, config: Config) -> list[Row]:
    """One row for each example, batch, radius and client of Federated-Clustering.

    A client is right if it stays near its optimum: in every round of the second half
    where nothing is random, else in their mean over rounds and trials. What is not a
    number is not near. Together is who has half of the cluster's others in the ball.
    """
    table = []
    for name, data in results.items():
        clusters = EXAMPLES[name].clusters
        for at, cell in study.cells(data, "batch_size", "radius"):
            for client, optimum in enumerate(EXAMPLES[name].optima):
                own = cell.isel(client=client)
                row: Row = {"example": name, **at, "client": client + 1}
                tails = own["tail"].values.astype(float)
                mean = float(tails.mean())
                row |= {"optimum": optimum, "model": mean}
                if len(tails) > 1:
                    row["distance"] = abs(mean - optimum)
                    row |= study.interval(tails, "model", config.error_rate)
                else:
                    path = own["position"].values[0]
                    late = path[len(path) // 2 :]
                    row["distance"] = float(np.max(np.abs(late - optimum)))
                row["right"] = bool(row["distance"] <= config.tolerance)
                for count in ("company", "strangers"):
                    row[count] = float(own[count].values.mean())
                partners = clusters.count(clusters[client]) - 1
                row["together"] = row["company"] >= partners / 2
                table.append(row)
    return table


def windows(table: Rows) -> list[Row]:
    """The radii of the table by which all clients, or client 2, are right.

    Radii right and wrong may alternate: least and largest are of all that are right.
    """
    found = []
    for (name, claim), (low, high) in WINDOWS.items():
        own = [row for row in table if row["example"] == name]
        for batch, of_batch in study.groups(own, "batch_size").items():
            tried = {row["radius"] for row in of_batch}
            wrong = {row["radius"] for row in of_batch if not CLAIMS[claim](row)}
            row = {
                "example": name,
                "batch_size": batch,
                "claim": claim,
                "least": min(tried - wrong, default=None),
                "largest": max(tried - wrong, default=None),
                "radii": f"{len(tried - wrong)}/{len(tried)}",
                "exact": f"[{low:.4g}, {high:.4g})",
            }
            found.append(row)
    return found


def note(failing: Rows) -> str:
    """Where the failing methods end, in words made from the numbers."""
    text = []
    for method, own in study.groups(failing, "method").items():
        ends = ", ".join(f"{row['model']:.3g}" for row in own)
        wanted = ", ".join(f"{row['optimum']:g}" for row in own)
        wrong = [str(row["client"]) for row in own if not row["right"]]
        wrong_text = f"wrong: {', '.join(wrong)}" if wrong else "all right"
        text.append(f"{method}: ends at ({ends}), optima ({wanted}); {wrong_text}.")
    return "\n".join(text)


DRAWN = {"myopic": 0.5, "symmetric": 1.0, "bipartition": 0.25}  # radii of the paths
SHOWN = {"myopic": 30, "symmetric": 30, "bipartition": 400}  # rounds
_EDGE = "exact window, expected gradients"


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    own = {
        "paths": "methods that fail, and Federated-Clustering",
        "radii": "radii by which Federated-Clustering escapes",
    }
    return title_each("Werner et al., Figure 1", own, config, preset("paper"))


def redraw(config: Config, tables: Mapping[str, Rows]) -> dict[str, Figure]:
    """What needs no more than the table."""
    return {"radii": draw_radii(tables["table"], config)}


def draw_paths(failing: Results, clustering: Results, config: Config) -> Figure:
    """The first failing method of each example above, Federated-Clustering below, in
    its first trial with the largest batch and the nearest radius to one that escapes.
    """
    panels = []
    for name, data in failing.items():
        own = data.isel(method=0, trial=0)
        title = METHODS[str(own["method"].item())]
        panels.append(_paths(name, own["position"].values, title))
    for name, data in clustering.items():
        own = data.sel(radius=DRAWN[name], method="nearest").isel(batch_size=-1)
        radius, batch = own["radius"].item(), own["batch_size"].item()
        shown = f"τη = {radius:g}" if name == "myopic" else f"τ = {radius:g}"
        shown += f", batch {batch}" if name == "bipartition" else ""
        title = f"Federated-Clustering, {shown}"
        panels.append(_paths(name, own["position"].values[0], title))
    return report.curves(
        panels,
        title=titles(config)["paths"],
        legend_title="models of the clients; levels are their optima",
        panels_per_row=len(failing),
    )


def _paths(name: str, position: np.ndarray, title: str) -> report.CurvePanel:
    """Models of all clients of an example, round by round."""
    optima = EXAMPLES[name].optima
    shown = position[: SHOWN[name] + 1]
    over = np.arange(len(shown)).astype(float)
    return report.CurvePanel(
        [
            report.Curve(f"client {client + 1}", over, shown[:, client])
            for client in range(len(optima))
        ],
        x_label="round t",
        y_label="model x",
        y_limits=(-0.2, 2.2) if name == "myopic" else (-0.6, 1.1),
        title=title,
        levels=[
            report.Level(f"optimum of {client + 1}", optimum, f"client {client + 1}")
            for client, optimum in enumerate(optima)
        ],
    )


def draw_radii(table: Rows, config: Config) -> Figure:
    """How far from its optimum each client ends, against the radius."""
    panels = []
    for name, own in study.groups(table, "example").items():
        batches = study.groups(own, "batch_size")
        for batch, of_batch in batches.items():
            which = f", batch {batch}" if len(batches) > 1 else ""
            panels.append(_distances(name, of_batch, f"{name} example{which}"))
    return report.curves(
        panels,
        title=titles(config)["radii"],
        legend_title="distance of each client from its optimum in the end",
        panels_per_row=2 if len(panels) == 4 else 3,
    )


def _distances(name: str, rows: Rows, title: str) -> report.CurvePanel:
    """One example and batch, with the edges of the exact window."""
    curves = []
    for client, own in study.groups(rows, "client").items():
        own = sorted(own, key=lambda row: row["radius"])
        at, ends = study.column(own, "radius"), study.column(own, "distance")
        curves.append(report.Curve(f"client {client}", at, ends))
    high = max(0.5, float(np.nanmax(study.column(rows, "distance"))))
    for edge in WINDOWS[name, "all"]:
        place = np.full(2, edge)
        curves.append(report.Curve(_EDGE, place, np.array([0, high]), like="client 2"))
    return report.CurvePanel(
        curves,
        x_label="radius τ times the step size η" if name == "myopic" else "radius τ",
        y_label="distance from the optimum",
        y_limits=(0.0, high),
        title=title,
        aside=False,
    )
