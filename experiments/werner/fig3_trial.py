"""One data set of Figure 3: a method from one start, at all step sizes of its grid.

All methods take one full-batch gradient step in a round, from given models and with the
released code's momentum, so that they differ in whose gradients they use and in nothing
else. What the figure leaves open, the law of the minimisers and where models start, is
a scene.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, ScalarLike

from cfljax.algorithms import fedavg, federated_clustering, ifca, local, oracle
from cfljax.base import (
    Algorithm,
    ClientData,
    Task,
    Truth,
    check_member,
    flat_normal,
)
from cfljax.clustering import Edge, Radius, gap_radius, quantile_radius
from cfljax.federated import LocalUpdate, choose_cluster, client_losses, loss_matrix
from cfljax.models import linear
from experiments.checks import (
    check_divides,
    check_positive,
    check_several,
    configuration,
)
from experiments.study import at_tests, run_with_tests
from experiments.werner.balls import balls
from experiments.werner.synthetic import curvatures, trial_data

Method = Literal[
    "local",
    "fedavg",
    "ifca",
    "ifca_best",
    "ifca_released",
    "oracle",
    "quantile_cluster",
    "quantile_fifth",
    "quantile_strict",
    "gap_outer",
    "gap_middle",
    "gap_inner",
    "fixed",
]
FIXED: Method = "fixed"


class Description(NamedTuple):
    """What a method is."""

    label: str  # for people
    kind: Literal["own", "one", "several"]  # a model for each client, all, a cluster
    is_baseline: bool = False  # whether Federated-Clustering is said to be better
    rule: Callable[[int], Radius] | None = None  # from K, if not a number, to a radius
    edge: Edge = "paper"  # whether the edge belongs to the ball


def _rule(label: str, rule: Callable[[int], Radius], edge: Edge) -> Description:
    return Description(f"FC, {label}", "own", rule=rule, edge=edge)


METHODS: Mapping[str, Description] = MappingProxyType(
    {
        "local": Description("Local", "own", is_baseline=True),
        "fedavg": Description("Global", "one", is_baseline=True),
        "ifca": Description("IFCA, one start", "several", is_baseline=True),
        "ifca_best": Description(
            "IFCA, best of its starts", "several", is_baseline=True
        ),
        "ifca_released": Description("IFCA as released", "several"),
        "oracle": Description("GT (oracle)", "several"),
        "quantile_cluster": _rule(
            "quantile 1/K", lambda number: quantile_radius(1 / number), "paper"
        ),
        "quantile_fifth": _rule("quantile .2", lambda _: quantile_radius(0.2), "paper"),
        "quantile_strict": _rule(
            "quantile 1/K as released",
            lambda number: quantile_radius(1 / number, variant="reference"),
            "reference",
        ),
        "gap_outer": _rule("adaptive-1", lambda _: gap_radius("outer"), "reference"),
        "gap_middle": _rule("adaptive-2", lambda _: gap_radius("middle"), "reference"),
        "gap_inner": _rule("adaptive-3", lambda _: gap_radius("inner"), "reference"),
        FIXED: Description("FC, fixed radius", "own"),
    }
)
assert tuple(METHODS) == get_args(Method)

SceneName = Literal[
    "zero", "normal", "near", "reference_zero", "reference_normal", "reference_near"
]


class Scene(NamedTuple):
    """Minimisers and start: models start from `anchor` x* plus `spread` N(0, I)."""

    label: str  # for people
    released: Any  # whether minimisers are of the law "reference", else normal
    anchor: Any  # 1 where starts know the own cluster's minimiser, else 0
    spread: Any  # standard deviation of each coordinate


_SIZE = 100 / 2**0.5  # Root mean square of a released minimiser's coordinate.
SCENES: Mapping[str, Scene] = MappingProxyType(
    {
        "zero": Scene("x* from N(0, I), start at 0", False, 0.0, 0.0),
        "normal": Scene("x* and start from N(0, I)", False, 0.0, 1.0),
        "near": Scene("x* from N(0, I), start within .1", False, 1.0, 0.1),
        "reference_zero": Scene("x* of 0 and 100, start at 0", True, 0.0, 0.0),
        "reference_normal": Scene("x* of 0 and 100, start as large", True, 0.0, _SIZE),
        "reference_near": Scene(
            "as released: x* of 0 and 100, start within .1", True, 1.0, 0.1
        ),
    }
)
assert tuple(SCENES) == get_args(SceneName)

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "squared": ("step", "tested"),  # mean over clients of |x_i - x*|^2
    "distance": ("step", "tested"),  # mean over clients of |x_i - x*|
    "loss": ("step",),  # mean training loss in the end
    "purity": ("step", "tested"),  # of the last balls, see `study.balls`; else NaN
    "company": ("step", "tested"),  # likewise
}


@configuration
class Trial:
    """Everything that one data set and the runs on it depend on, as in `Config`; scene
    is a place in `SCENES`, factor is of "fixed", rounds_between from test to test.
    """

    method: Method
    scene: int
    factor: float
    num_clusters: int
    num_members: int
    num_samples: int
    num_features: int
    first_mean: float
    num_rounds: int
    rounds_between: int
    num_clipping_rounds: int
    num_restarts: int
    num_steps: int
    largest_share: float
    step_ratio: float
    momentum: float

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)
        check_positive(self, "num_steps")
        check_several(num_clusters=self.num_clusters)
        if self.scene not in range(len(SCENES)):
            raise ValueError(
                f"`scene` must be a place from 0 to {len(SCENES) - 1}, got "
                f"{self.scene}."
            )
        if not self.factor >= 0:
            raise ValueError(f"`factor` must not be negative, got {self.factor}.")
        check_divides(self, "rounds_between", "num_rounds")
        if not self.step_ratio > 1:
            raise ValueError(f"`step_ratio` must be above 1, got {self.step_ratio}.")
        if not 0 <= self.momentum < 1:
            raise ValueError(f"`momentum` must be in [0, 1), got {self.momentum}.")


def simulate(trial: Trial, key: PRNGKeyArray, _: None = None) -> dict[str, Array]:
    """Runs at all step sizes on shared inputs: the arrays of `DIMS`, the start tested
    first; of IFCA's starts, at each step size, that of least training loss in the end.
    """
    data_key, start_key, run_key = jax.random.split(key, 3)
    scene = traced(trial.scene)
    data, truth = _data(trial, scene, data_key)
    restarts = trial.num_restarts if trial.method == "ifca_best" else 1
    keys = [jax.random.fold_in(start_key, number) for number in range(restarts)]
    starts = [first_models(trial.method, scene, truth, own) for own in keys]

    def one(step_size: Array) -> dict[str, Array]:
        run = lambda start: _run(trial, run_key, data, truth, start, step_size)
        found = jax.vmap(run)(jnp.stack(starts))
        losses = jnp.where(jnp.isnan(found["loss"]), jnp.inf, found["loss"])
        return jax.tree.map(lambda leaf: leaf[jnp.argmin(losses)], found)

    powers = trial.step_ratio ** -jnp.arange(float(trial.num_steps))
    return jax.vmap(one)(_limit(trial, data) * trial.largest_share * powers)


def _limit(trial: Trial, data: ClientData) -> Float[Array, ""]:
    """Step size above which gradient descent diverges on some client's own loss: 2 over
    twice `curvatures`; damped momentum has (1 + beta) / (1 - beta) as much.
    """
    largest = 2 * jnp.max(jnp.linalg.eigvalsh(curvatures(data)))
    return 2 * (1 + trial.momentum) / (1 - trial.momentum) / largest


def _run(
    trial: Trial,
    key: PRNGKeyArray,
    data: ClientData,
    truth: Truth,
    start: Float[Array, "models features"],
    step_size: Array,
) -> dict[str, Array]:
    """One run at one step size: the arrays of `DIMS` without `step`."""
    task = linear(trial.num_features)
    models, radius = start.shape[0], _radius(trial, task, data, start)
    plain = _plain(trial, task, truth.clusters, models, step_size, radius)
    moving = trial.num_clusters if trial.method == "ifca_released" else models
    trained = jnp.arange(models) < moving
    algorithm = started(plain, start, momentum=trial.momentum, trained=trained)

    def test(models: Array) -> dict[str, Array]:
        own = _own(trial.method, task, models, data, truth)
        away = jnp.sum(jnp.square(own - truth.models[truth.clusters]), axis=1)
        return {"squared": jnp.mean(away), "distance": jnp.mean(jnp.sqrt(away))}

    def observe(carried: Any, info: Any) -> dict[str, Array]:
        del carried
        purity = company = jnp.full((), jnp.nan)  # Without balls.
        if hasattr(info, "members"):
            purity, company = balls(info.members, truth.clusters)
        return {"purity": purity, "company": company}

    last, seen, tests = run_with_tests(
        trial,
        algorithm,
        key,
        data,
        observe=observe,
        test=lambda carried: test(carried.models),
    )
    trace = tests | at_tests(trial, seen)
    first = test(start) | observe(None, None)
    join = lambda before, later: jnp.concatenate([before[None], later])
    own = _own(trial.method, task, last.models, data, truth)
    losses = client_losses(task, own, data, order="batched")
    return {**jax.tree.map(join, first, trace), "loss": jnp.mean(losses)}


def _own(
    method: Method, task: Task, models: Array, data: ClientData, truth: Truth
) -> Float[Array, "clients features"]:
    """The model that each client uses; IFCA's are chosen by loss."""
    kind = METHODS[method].kind
    if kind == "own":
        return models
    if kind == "one":
        return jnp.broadcast_to(models, (truth.clusters.shape[0], models.shape[1]))
    if method == "oracle":
        return models[truth.clusters]
    choice = choose_cluster(loss_matrix(task, models, data))
    return jnp.where((choice >= 0)[:, None], models[choice], jnp.nan)


def _radius(
    trial: Trial, task: Task, data: ClientData, start: Float[Array, "models features"]
) -> Float[Array, ""]:
    """Of "fixed", the multiple of clients' mean gradient norm where they start."""
    if trial.method != FIXED:
        return jnp.zeros(())
    loss = lambda model, *batch: jnp.mean(task.losses(model, *batch))
    gradients = jax.vmap(jax.grad(loss))(start, data.inputs, data.targets)
    return trial.factor * jnp.mean(jnp.linalg.norm(gradients, axis=1))


def _plain(
    trial: Trial,
    task: Task,
    clusters: Int[Array, " clients"],
    models: int,
    step_size: Array,
    radius: Array,
) -> Algorithm:
    """The method with so many models; the radius is that of "fixed"."""
    method = trial.method
    shared: dict[str, Any] = {"step_size": step_size}
    gradient: dict[str, Any] = shared | {"option": "gradient", "normalise": "cluster"}
    if method == "local":
        return local(task, update=LocalUpdate(order="batched"), **shared)
    if method == "fedavg":
        return fedavg(task, option="gradient", weights="clients", **shared)
    if method == "oracle":
        return oracle(task, clusters=clusters, num_clusters=models, **gradient)
    if METHODS[method].kind == "several":
        return ifca(task, num_clusters=models, **gradient)
    rule = METHODS[method].rule
    return federated_clustering(
        task,
        radius=radius if rule is None else rule(trial.num_clusters),
        num_clipping_rounds=trial.num_clipping_rounds,
        edge=METHODS[method].edge,
        models_per_chunk=models,
        **shared,
    )


class Carried(NamedTuple):
    """A state with momentum."""

    state: Any  # the algorithm's own
    models: Float[Array, "models features"]  # its models, also of a single one
    moves: Float[Array, "models features"]  # m, of each model


def started(
    algorithm: Algorithm,
    models: Float[Array, "models features"],
    *,
    momentum: ScalarLike,
    trained: Bool[Array, " models"],
) -> Algorithm:
    """The algorithm from given models on, its steps averaged over rounds.

    A step s of it becomes `m <- beta m + (1 - beta) s`, and the model moves by m:
    damped momentum, as the released code takes it of Federated-Clustering. Its state
    has `models`, or a single `model`; `trained` says which ever move. The momentum may
    be traced, and 0.
    """

    def put(state: Any, models: Array) -> Any:
        if hasattr(state, "models"):
            return state._replace(models=models)
        return state._replace(model=models[0])

    def init(key: PRNGKeyArray, data: ClientData) -> Carried:
        state = put(algorithm.init(key, data), models)
        return Carried(state, models, jnp.zeros_like(models))

    def step(
        key: PRNGKeyArray, carried: Carried, data: ClientData
    ) -> tuple[Carried, Any]:
        state, info = algorithm.step(key, carried.state, data)
        after = state.models if hasattr(state, "models") else state.model[None]
        mean = momentum * carried.moves + (1 - momentum) * (after - carried.models)
        moves = jnp.where(trained[:, None], mean, 0)
        moved = carried.models + moves
        return Carried(put(state, moved), moved, moves), info

    predict = lambda carried, *rest: algorithm.predict(carried.state, *rest)
    return Algorithm(init=init, step=step, predict=predict)


def traced(place: ScalarLike) -> Scene:
    """The scene at a place of `SCENES`, in arrays, so that one program serves all."""
    index = jnp.asarray(place).astype(int)
    columns = list(zip(*SCENES.values(), strict=True))
    return Scene("", *(jnp.array(column)[index] for column in columns[1:]))


def _data(trial: Trial, scene: Scene, key: PRNGKeyArray) -> tuple[ClientData, Truth]:
    """Clients with the scene's minimisers; all scenes share the inputs of a key."""
    data, truth = trial_data(trial, key, "normal")
    other, other_truth = trial_data(trial, key, "reference")
    choose = lambda normal, released: jnp.where(scene.released, released, normal)
    targets = choose(data.targets, other.targets)
    models = choose(truth.models, other_truth.models)
    return data._replace(targets=targets), truth._replace(models=models)


def first_models(
    method: Method, scene: Scene, truth: Truth, key: PRNGKeyArray
) -> Float[Array, "models features"]:
    """Models to start from, drawn independently, alike for methods with as many models.

    Equal models of IFCA would stay equal: where all others start at 0, IFCA's start as
    large as the minimisers. The global model starts at the mean of clients' models, and
    the released IFCA at those of every K-th client, whosever clusters these are.
    """
    clusters, features = truth.models.shape
    kind, spread = METHODS[method].kind, scene.spread
    own = jnp.arange(clusters) if kind == "several" else truth.clusters
    if method == "ifca_released":
        own = truth.clusters[::clusters]
    if method.startswith("ifca"):
        as_large = jnp.where(scene.released, _SIZE, 1.0)
        spread = jnp.where((scene.anchor == 0) & (spread == 0), as_large, spread)
    noise = flat_normal(jax.random.fold_in(key, 0), (own.shape[0], features))
    start = scene.anchor * truth.models[own] + spread * noise
    return jnp.mean(start, axis=0)[None] if kind == "one" else start
