"""One trial of IFCA's success-probability experiment (section 6.1, Figure 3).

A trial draws a mixture of linear regressions and runs IFCA, option I, from several
random starts at several step sizes. What is kept of each run is enough to judge it
under every criterion afterwards: `CRITERIA` is all that runs on data, and those of the
exact law, are judged by. Trials that draw the same samples can be computed together
(`simulate_jointly`).
"""

import dataclasses
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax import engine, metrics, montecarlo
from cfljax.algorithms import ifca
from cfljax.base import ClientData, Convention, Task, Truth
from cfljax.clustering import bottleneck_distance, least_distance
from cfljax.data import linear_targets, mixed_linear, mixed_truth, split_rounds
from cfljax.federated import Normalise, choose_cluster, loss_matrix, start_models
from cfljax.models import linear
from cfljax.montecarlo import choose
from experiments.study import fields

InitUnit = Literal["one", "separation"]
RUN = ("restart", "step_size")
SIZES = ("num_clients", "num_clusters", "num_samples", "num_features")

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "distance": RUN,  # mean distance to the truth, matched one to one
    "nearest_distance": RUN,  # to the nearest truth, as the released code has it
    "recovered": RUN,  # 1 where the final partition is the true one
    "used_clusters": RUN,  # models that some client prefers in the end
    "loss": RUN,  # mean over clients of their lowest loss, in the end
    "first_loss": ("restart",),  # the same at the start
    "alpha": ("restart",),  # alpha_0 of Assumption 1 at the start
    "gap": (),  # Delta, least distance between two true models
    "followed": RUN,  # 1 where the run came to its end, or lost a model for ever
}


class Criterion(NamedTuple):
    """What a run must reach."""

    prefix: str  # of its columns in tables; the paper's own has none
    unit: str | None  # of the largest distance, see `thresholds`; None: the partition
    factor: float = 0.0  # of that unit, to which a configuration may add a tolerance

    def text(self) -> str:
        """As a panel's title states it."""
        if self.unit is None:
            return "exact recovery of the partition"
        return f"distance ≤ {self.factor!r} {self.unit}"


# Their texts tell stores of results apart (`Trial.criteria`).
CRITERIA = {
    "paper": Criterion("", "σ", 0.6),
    "floor": Criterion("floor_", "× oracle floor", 1.1),
    "recovery": Criterion("recovery_", None),
}


def _all_criteria() -> str:
    return "; ".join(criterion.text() for criterion in CRITERIA.values())


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's results depend on, besides the step sizes."""

    convention: Convention
    separation: float
    noise: float
    num_clients: int
    num_samples: int
    num_clusters: int
    num_features: int
    num_restarts: int
    num_rounds: int
    init_scale: float
    init_unit: InitUnit
    normalise: Normalise
    resample: bool
    # Compute cells that share their samples together, by `simulate_jointly`: the same
    # runs up to rounding, for less.
    shortcuts: bool = False
    # Leave a trial's other runs alone once one has succeeded under every criterion,
    # with `tolerance`; their results are NaN then.
    decide: bool = False
    tolerance: float = 0.0
    # Of success, so that what was judged by others is not taken for this.
    criteria: str = dataclasses.field(default_factory=_all_criteria, init=False)

    def __post_init__(self) -> None:
        if self.resample and self.shortcuts:
            raise ValueError(
                "`shortcuts` need samples that all rounds share, got `resample`."
            )
        if self.decide and not self.shortcuts:
            raise ValueError("`decide` needs `shortcuts`.")


def thresholds(trial: Trial, tolerance: float) -> dict[str, float]:
    """Largest distance of a success under each criterion that has one, each with the
    tolerance added."""
    units = {"σ": trial.noise, "× oracle floor": oracle_floor(trial)}
    return {
        # No estimate can be asked to reach an infinite floor.
        name: own.factor * units[own.unit] + tolerance
        if math.isfinite(units[own.unit])
        else -math.inf
        for name, own in CRITERIA.items()
        if own.unit is not None
    }


def within(distance: np.ndarray, threshold: float) -> Bool[np.ndarray, "..."]:
    """Runs that come as near as this; one that diverged never does."""
    return np.isfinite(distance) & (distance <= threshold)


def successful(
    outputs: Mapping[Any, Any], thresholds: Mapping[str, float]
) -> dict[str, Bool[np.ndarray, "trial restart step_size"]]:
    """Runs of a cell's trials, see `DIMS`, that succeed under each criterion; one that
    diverged never does."""
    distance = np.asarray(outputs["distance"])
    recovered = np.isfinite(distance) & (np.asarray(outputs["recovered"]) == 1)
    return {
        name: recovered if own.unit is None else within(distance, thresholds[name])
        for name, own in CRITERIA.items()
    }


def oracle_floor(trial: Trial) -> float:
    """Root-mean-square error of least squares with known clusters, for Gaussian rows:
    `sigma sqrt(d / (N - d - 1))` with `N = m n / k`; infinite where N <= d + 1.
    """
    spare = _rows_per_cluster(trial) - trial.num_features - 1
    return (
        trial.noise * math.sqrt(trial.num_features / spare) if spare > 0 else math.inf
    )


def stability_bound(trial: Trial) -> float:
    """Largest stable step size of a true cluster's gradient descent, divisor m.

    The step multiplies the error by `I - (2 gamma / k) G` with G the cluster's Gram
    matrix over N = m n / k rows; its largest eigenvalue is near
    `(1 + sqrt(d / N))^2` (Marchenko-Pastur), so `gamma < k / (1 + sqrt(d/N))^2`.
    """
    edge = (1 + math.sqrt(trial.num_features / _rows_per_cluster(trial))) ** 2
    return trial.num_clusters / edge


def _rows_per_cluster(trial: Trial) -> float:
    return trial.num_clients * trial.num_samples / trial.num_clusters


def simulate(
    trial: Trial, key: PRNGKeyArray, step_sizes: Float[Array, " step_size"]
) -> dict[str, Array]:
    """One trial: a data set, and a run for each restart and step size: the arrays of
    `DIMS`.

    All runs meet the same samples in one pair of matrix products per round. A restart
    starts from the same models at every step size. The trial's key splits into the
    data's and the runs', which is folded with the restart's index.
    """
    data_key, runs_key = jax.random.split(key)
    data, truth = draw_data(trial, data_key)
    gap = least_distance(truth.models)
    task = start_task(trial)
    rounds = split_rounds(data, trial.num_rounds) if trial.resample else data

    def one_run(run_key: PRNGKeyArray, step_size: Array) -> dict[str, Array]:
        state, _ = engine.run(
            ifca(
                task,
                num_clusters=trial.num_clusters,
                step_size=step_size,
                normalise=trial.normalise,
                resample=trial.resample,
            ),
            run_key,
            rounds,
            num_rounds=trial.num_rounds,
            data_per_round=trial.resample,
            observe=None,
        )
        return judge(truth, state.models, loss_matrix(task, state.models, data))

    def start(run_key: PRNGKeyArray) -> dict[str, Array]:
        algorithm = ifca(task, num_clusters=trial.num_clusters, step_size=0.0)
        state, _ = engine.run(algorithm, run_key, data, num_rounds=0, observe=None)
        return {
            "first_loss": _mean_lowest_loss(loss_matrix(task, state.models, data)),
            "alpha": 0.5 - bottleneck_distance(state.models, truth.models) / gap,
        }

    restarts = jnp.arange(trial.num_restarts)
    keys = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(runs_key, restarts)
    over_runs = jax.vmap(jax.vmap(one_run, in_axes=(None, 0)), in_axes=(0, None))
    return (over_runs(keys, step_sizes) | jax.vmap(start)(keys)) | {"gap": gap}


def start_task(trial: Trial) -> Task:
    """The learning problem with the trial's random starts."""
    relative = trial.init_unit == "separation"
    return linear(
        trial.num_features,
        init_scale=trial.init_scale * (trial.separation if relative else 1.0),
        convention=trial.convention if relative else "reference",
    )


def draw_data(trial: Trial, key: PRNGKeyArray) -> tuple[ClientData, Truth]:
    """The trial's data set, from its data's key."""
    names = (*SIZES, "separation", "noise", "convention")
    return mixed_linear(key, **fields(trial, *names))


def draw_truth(trial: Trial, key: PRNGKeyArray) -> tuple[Truth, PRNGKeyArray]:
    """The truth of `draw_data` alone, and the key of its samples."""
    names = ("num_clients", "num_clusters", "num_features", "separation", "convention")
    return mixed_truth(key, **fields(trial, *names))


def draw_samples(
    trial: Trial, key: PRNGKeyArray
) -> tuple[
    Float[Array, "clients samples features"],
    Float[Array, "clients samples"],
]:
    """Inputs and noise of `draw_data`, of scale 1, from the key of its samples."""
    sizes = fields(trial, "num_clients", "num_samples", "num_features")
    return montecarlo.draw_samples(key, **sizes)


def draw_starts(
    trial: Trial, key: PRNGKeyArray
) -> Float[Array, "restarts clusters features"]:
    """First models of every restart, as `engine.run` draws them from the runs' key."""
    task = start_task(trial)

    def start(index: Array) -> Float[Array, "clusters features"]:
        init_key, _ = jax.random.split(jax.random.fold_in(key, index))
        return start_models(task, init_key, trial.num_clusters)

    return jax.vmap(start)(jnp.arange(trial.num_restarts))


def judge(
    truth: Truth,
    models: Float[Array, "clusters features"],
    losses: Float[Array, "clients clusters"],
) -> dict[str, Array]:
    """What is kept of one run, from its final models and the losses under them."""
    assignment = choose_cluster(losses)
    num_clusters = models.shape[0]
    recovered = metrics.exact_recovery(assignment, truth.clusters)
    used = metrics.num_used_clusters(assignment, num_clusters)
    return {
        "distance": metrics.centre_distance(models, truth.models),
        "nearest_distance": metrics.nearest_centre_distance(models, truth.models),
        "recovered": recovered.astype(jnp.float32),
        "used_clusters": used.astype(jnp.float32),
        "loss": _mean_lowest_loss(losses),
        "followed": jnp.ones(()),
    }


def _mean_lowest_loss(losses: Float[Array, "clients clusters"]) -> Float[Array, ""]:
    """Mean over clients of the lowest finite loss; infinite where there is none."""
    return jnp.mean(jnp.min(jnp.where(jnp.isfinite(losses), losses, jnp.inf), axis=1))


# Share of a limit that a distance must stay below it to decide a trial.
_SPARE = 1e-5
# What cells may differ in and still draw the same inputs and noise.
_OWN = ("convention", "separation", "noise", "init_scale", "init_unit", "tolerance")


def shares(trial: Trial) -> Hashable:
    """Trials that give the same draw the same inputs and noise from the same key."""
    fields = ((f.name, getattr(trial, f.name)) for f in dataclasses.fields(trial))
    return tuple((name, value) for name, value in fields if name not in _OWN)


class _Cell(NamedTuple):
    """One trial's own part; the key of its samples is the same for all."""

    trial: Trial
    truth: Truth
    samples_key: PRNGKeyArray
    starts: Float[np.ndarray, "restarts clusters features"]


def simulate_jointly(
    trials: Sequence[Trial], key: PRNGKeyArray, step_sizes: Float[Array, " step_size"]
) -> list[dict[str, np.ndarray]]:
    """`simulate` of trials that `shares` calls alike.

    Returns:
      The arrays of `DIMS` for every trial. With `decide`, runs that were not
      followed to their end are NaN, and 0 in `followed`; a run that lost a model for
      ever ends there, a failure, with what it had.
    """
    data_key, runs_key = jax.random.split(key)
    cells = [
        _Cell(
            trial,
            *draw_truth(trial, data_key),
            np.asarray(draw_starts(trial, runs_key)),
        )
        for trial in trials
    ]
    samples = _samples(cells)
    shape = (len(cells), *cells[0].starts.shape[:1], len(step_sizes))
    problem, restart, step = (index.ravel() for index in np.indices(shape))
    all_starts = np.stack([cell.starts for cell in cells])
    gammas = np.asarray(step_sizes)
    first = trials[0]
    ends = montecarlo.run_ifca(
        samples,
        all_starts[problem, restart],
        problem,
        gammas[step],
        num_rounds=first.num_rounds,
        normalise=first.normalise,
        finished=_decide(cells, problem) if first.decide else None,
        turns=promise(first, gammas)[step] if first.decide else None,
        gives_up=first.decide,
    )
    start = montecarlo.run_ifca(
        samples,
        all_starts.reshape(-1, *all_starts.shape[2:]),
        np.repeat(np.arange(len(cells)), shape[1]),
        np.zeros(len(cells) * shape[1]),
        num_rounds=0,
    )
    by_cell = lambda values: values.reshape(len(cells), -1, *values.shape[1:])
    models, losses, done = map(by_cell, (ends.models, ends.losses, ends.is_done))
    first_losses = by_cell(start.losses)
    return [
        _outcomes(cell, models[i], losses[i], done[i], shape[1:])
        | _beginning(cell, first_losses[i])
        for i, cell in enumerate(cells)
    ]


def _samples(cells: Sequence[_Cell]) -> montecarlo.Samples:
    inputs, errors = draw_samples(cells[0].trial, cells[0].samples_key)
    targets = [
        linear_targets(inputs, errors, cell.truth, cell.trial.noise) for cell in cells
    ]
    clusters = np.asarray(cells[0].truth.clusters)
    return montecarlo.prepare(inputs, jnp.stack(targets), clusters)


def promise(trial: Trial, step_sizes: Float[np.ndarray, " step_size"]) -> np.ndarray:
    """Turns of the step sizes: the largest stable one first, unstable ones last."""
    bound, values = stability_bound(trial), np.asarray(step_sizes).tolist()
    haste = lambda size: (False, -size) if size < bound else (True, size)
    order = sorted(range(len(values)), key=lambda index: haste(values[index]))
    return np.argsort(order)


def _decide(
    cells: Sequence[_Cell], problem: Int[np.ndarray, " runs"]
) -> Callable[[int, np.ndarray, np.ndarray], Iterable[int]]:
    """Tells the schedule which runs cannot change their trial's outcome any more: all
    others, once every criterion has been met by some run.
    """
    limits = [thresholds(cell.trial, cell.trial.tolerance) for cell in cells]
    unmet = [
        {name for name in CRITERIA if own.get(name, 0) > -math.inf} for own in limits
    ]

    def finished(run: int, models: np.ndarray, losses: np.ndarray) -> Iterable[int]:
        index = int(problem[run])
        truth = cells[index].truth
        unmet[index] -= {*_surely_met(truth, models, losses, limits[index])}
        return () if unmet[index] else np.flatnonzero(problem == index).tolist()

    return finished


def _surely_met(
    truth: Truth,
    models: Float[np.ndarray, "clusters features"],
    losses: Float[np.ndarray, "clusters clients"],
    limits: Mapping[str, float],
) -> list[str]:
    """Criteria that a run meets, with room for what rounding makes of its distance."""
    from scipy.optimize import linear_sum_assignment

    if not np.all(np.isfinite(models)):
        return []
    apart = np.asarray(models)[:, None] - np.asarray(truth.models)[None]
    distances = np.linalg.norm(apart.astype(np.float64), axis=2)
    matched = np.mean(distances[linear_sum_assignment(distances)])
    if not matched <= np.finfo(np.float32).max:  # As `judge` has it.
        return []
    found = [name for name, limit in limits.items() if matched <= (1 - _SPARE) * limit]
    clusters = np.asarray(truth.clusters)
    (assignment,) = choose(losses[None])
    pairs = np.unique(np.stack([clusters, assignment]), axis=1)
    is_whole = np.all(assignment >= 0)  # A client without a model has not recovered.
    if is_whole and len(pairs.T) == len(models) == len(np.unique(assignment)):
        found.append("recovery")
    return found


def _outcomes(
    cell: _Cell,
    models: Float[np.ndarray, "runs clusters features"],
    losses: Float[np.ndarray, "runs clusters clients"],
    is_done: np.ndarray,
    shape: tuple[int, ...],
) -> dict[str, np.ndarray]:
    """What `judge` keeps of runs, NaN of those that were left alone."""
    over_runs = jax.vmap(lambda own, seen: judge(cell.truth, own, seen.T))
    kept = {
        name: np.where(is_done, np.asarray(values, np.float32), np.nan).reshape(shape)
        for name, values in over_runs(*jax.device_put((models, losses))).items()
    }
    return kept | {"followed": is_done.astype(np.float32).reshape(shape)}


def _beginning(
    cell: _Cell, losses: Float[np.ndarray, "restarts clusters clients"]
) -> dict[str, np.ndarray]:
    gap = least_distance(cell.truth.models)
    worst = jax.vmap(bottleneck_distance, in_axes=(0, None))(
        jax.device_put(cell.starts), cell.truth.models
    )
    first = jax.vmap(lambda own: _mean_lowest_loss(own.T))(jax.device_put(losses))
    return {
        "first_loss": np.asarray(first),
        "alpha": np.asarray(0.5 - worst / gap),
        "gap": np.asarray(gap),
    }
