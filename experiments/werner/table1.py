"""Werner et al., Table 1: clustered and personalised methods on two tasks of MNIST.

Command:   python -m experiments run werner.table1 --preset paper --data FOLDER
Quick:     the same with --preset quick: 80 clients instead of 300 in 4 groups instead
           of 16, 50 hidden units instead of 200, 48 rounds of step size 0.25, 3 seeds;
           the long runs have 960 rounds
Measured:  quick, 13 minutes on two busy cores of an Intel Xeon (16 of processor time),
           accuracy in %, rotation / private label, ± over seeds: Local 80.4 ± .4 / 80.4
           ± .2, Global 56.2 ± .2 / 20.9 ± .3, Ditto 60.2 ± .5 / 56.0 ± 1.0 (frozen
           server 47.7 / 47.7), IFCA 84.3 ± 4.3 / 87.0 ± .4, kNN-Per 52.0 ± .3 / 64.3 ±
           1.9, FC 85.4 ± .4 / 85.7 ± .3, Momentum-Clustering 82.2 ± .6 / 82.4 ± .7,
           oracle 86.9 ± .1 / 86.9 ± .3; oracle > FC > Local > Global in 3 of 3 seeds of
           both. Global passes Local on the rotations at step 640: 83.8 against 81.0
           after 960
Paper:     the numbers in `experiments/published.csv`, of one run each

The paper gives the numbers of clients (4 clusters of 75) and subgroups (16), the
quantile .2, and the two lambdas; neither network, step size, batches nor rounds. Here
everybody takes one full-batch gradient step of one size in a round, so that methods
differ in whose gradients they use and in nothing else. `--loss probability` trains what
the released code trains.

The long runs tell when one model for all rotations, which learns slowly, passes models
trained alone, which soon know all they can: Ghosh et al. (2020, Table 1) have 89.7 %
for the global and 80.1 % for local models of 200 samples.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import engine, intervals, metrics, report
from cfljax.algorithms import (
    ditto,
    fedavg,
    federated_clustering,
    ifca,
    knn_per,
    local,
    momentum_clustering,
    oracle,
)
from cfljax.base import Algorithm, ClientData, Task, check_member
from cfljax.clustering import quantile_radius
from cfljax.data import Images, Sizes, feature_skewed, label_shifted
from cfljax.federated import masked_mean
from cfljax.losses import cross_entropy
from cfljax.models import mlp
from experiments import study
from experiments.checks import (
    check_divides,
    check_positive,
    check_several,
    check_values,
    configuration,
)
from experiments.clove.partitions import Clients, repeated
from experiments.images import Loaded, find_images
from experiments.jobs import Job
from experiments.options import Options
from experiments.published import Published, published
from experiments.study import Row, Rows
from experiments.titles import title
from experiments.verdicts import Size, changes, judge, together
from experiments.werner.balls import balls

EXPERIMENTS = {
    "werner.table1": {
        "title": "rotation and private labels: Federated-Clustering against baselines",
        "has_jobs": True,
    }
}
(EXPERIMENT,) = EXPERIMENTS
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

NUM_CLUSTERS = 4
Method = Literal[
    "local",
    "fedavg",
    "ditto",
    "ditto_reference",
    "ifca",
    "knn_per",
    "federated_clustering",
    "momentum_clustering",
    "oracle",
]
# rotation: images of cluster k turned by k quarter turns; private_label: labels
# counted on by k.
Partition = Literal["rotation", "private_label"]
# What is trained. cross_entropy; or probability, 1 minus the probability of the label,
# whose gradients the code released with the paper has: it takes the negative
# likelihood of probabilities where it should be that of their logarithms.
Loss = Literal["cross_entropy", "probability"]
TASKS: tuple[Partition, ...] = get_args(Partition)
Results = Mapping[str, xr.Dataset]  # by task
Trials = Mapping[str, "Trial"]  # by task, what its cells share

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("tested",),  # of the clients' own test samples
    "cross_entropy": ("tested",),  # mean over clients, in nats
    "probability": ("tested",),  # likewise, of 1 minus the probability of the label
    "purity": ("tested",),  # share of the last balls' other members that are of the
    # receiver's cluster; of IFCA, the adjusted Rand index; NaN for the others
}


@configuration
class Config:
    """Everything that the table depends on. One field, one flag."""

    num_trials: int  # Seeds of each cell.
    num_clients: int  # N, of all clusters together.
    num_hidden: int  # Width of the hidden layer.
    num_groups: int  # Random subgroups of Federated-Clustering.
    num_rounds: int  # T, gradient steps of everybody.
    num_long_rounds: int  # Steps of the long runs, on the rotations; 0 for none.
    step_size: float  # Of every gradient step.
    fall_back: bool  # Use the embedded digits where the images are not found.
    methods: tuple[Method, ...] = get_args(Method)  # What to compare.
    long_methods: tuple[Method, ...] = ("local", "fedavg")  # Methods of the long runs.
    partitions: tuple[Partition, ...] = TASKS  # Tasks.
    loss: Loss = "cross_entropy"
    """What is trained: cross_entropy; or probability, the released code's."""
    dataset: Literal["mnist", "fashion_mnist", "digits"] = "mnist"  # Images.
    num_samples: int = 200  # Training samples of a client.
    num_test_samples: int = 33  # Test samples of a client.
    num_tests: int = 12  # How often a run is tested; divides the rounds.
    percentile: int = 20  # Of the distances, the radius of both clusterings.
    num_clipping_rounds: int = 10  # l of both clusterings.
    gradient_weight: float = 0.1
    """Alpha, weight of a new gradient in Momentum-Clustering."""
    penalty: float = 1.0  # Lambda of Ditto.
    knn_weights: tuple[float, ...] = (0.5, 0.9)  # Lambda of kNN-Per on each task.
    num_neighbours: int = 10  # k of kNN-Per, which the paper does not give.
    seed: int = 0  # Of all of them.
    error_rate: float = 0.05  # Of each interval.

    def __post_init__(self) -> None:
        check_values(self, "methods", "long_methods", "partitions")
        check_several(num_trials=self.num_trials)
        check_positive(self, "num_tests")
        if self.num_clients % NUM_CLUSTERS:
            raise ValueError(
                f"`num_clients` must be a multiple of the {NUM_CLUSTERS} clusters, "
                f"got {self.num_clients}."
            )
        if len(self.knn_weights) != len(self.partitions):
            raise ValueError(
                "`knn_weights` must have a weight for each of `partitions`, got "
                f"{self.knn_weights} for {self.partitions}."
            )
        for name in ("num_rounds", "num_long_rounds"):
            check_divides(self, "num_tests", name)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_trials=3,
            num_clients=80,
            num_hidden=50,
            num_groups=4,
            num_test_samples=100,
            num_rounds=48,
            num_long_rounds=960,
            step_size=0.25,
            fall_back=True,
        )
    return Config(
        num_trials=3,
        num_clients=300,
        num_hidden=200,
        num_groups=16,
        num_rounds=300,
        num_long_rounds=3000,
        step_size=0.1,
        fall_back=False,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figures.

    Raises:
      ValueError: if the images in the folder `options.data` do not suffice, or are
        damaged.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    own = study.Study(EXPERIMENT, config, options)
    images = find_images(config.dataset, options, fall_back=config.fall_back)
    found = {key: own.run(job) for key, job in _jobs(config, images).items()}
    results = {name: data for (name, is_long), data in found.items() if not is_long}
    longer = {name: data for (name, is_long), data in found.items() if is_long}
    trials = {name: _grid(config, images, name).trial for name in config.partitions}
    table = rows(results, config.error_rate, trials)
    crossing = long_rows(longer, config.error_rate)
    long = {"long": (crossing, LONG_COLUMNS)} if crossing else {}
    return own.finish(
        tables={"table": (table, COLUMNS), **long},
        note=images.note + note(results, table, crossing),
        figures=draw_curves(results, longer, config),
    )


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of the table; raises as `main`."""
    images = find_images(config.dataset, options, fall_back=config.fall_back)
    return list(_jobs(config, images).values())


def _jobs(config: Config, images: Loaded) -> dict[tuple[Partition, bool], Job]:
    """By task, and by whether its runs are long."""
    keys: list[tuple[Partition, bool]] = [
        (partition, False) for partition in config.partitions
    ]
    if config.num_long_rounds and "rotation" in config.partitions:
        keys.append(("rotation", True))
    grids = {key: _grid(config, images, *key) for key in keys}
    make = lambda grid: functools.partial(_clients, images, grid)
    return {key: Job(own, simulate, make(own)) for key, own in grids.items()}


def _grid(
    config: Config, images: Loaded, partition: Partition, is_long: bool = False
) -> engine.Grid:
    """Methods and repetitions of one task, as plain data."""
    number = config.num_clients
    fit = lambda wanted, split: images.fitting(wanted, number, 1, split=split)
    methods = config.long_methods if is_long else config.methods
    num_rounds = config.num_long_rounds if is_long else config.num_rounds
    between = num_rounds // config.num_tests
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=study.trial_of(
            Trial,
            config,
            method=methods[0],
            partition=partition,
            dataset=images.name,
            checksum=images.checksum,
            num_samples=fit(config.num_samples, "training"),
            num_test_samples=fit(config.num_test_samples, "test"),
            num_rounds=num_rounds,
            rounds_between=between,
            num_clusters=NUM_CLUSTERS,
            knn_weight=config.knn_weights[config.partitions.index(partition)],
            repetition=0,
        ),
        axes={"method": methods, "repetition": tuple(range(config.num_trials))},
        num_trials=1,
        traced=("step_size", "gradient_weight", "penalty", "knn_weight", "repetition"),
        dims=DIMS,
        coords={"tested": list(range(between, num_rounds + 1, between))},
        seed=config.seed,
        revision=REVISION,
    )


def _clients(images: Loaded, grid: engine.Grid) -> Clients:
    """Of all repetitions of a task."""
    trial = grid.trial
    return draw(
        trial.partition,
        Images(*images.arrays, source=images.source),
        seed=grid.seed,
        repetitions=len(grid.axes["repetition"]),
        sizes=Sizes(
            num_clients=trial.num_clients,
            num_samples=trial.num_samples,
            num_test_clients=trial.num_clients,
            num_test_samples=trial.num_test_samples,
        ),
    )


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, as in `Config`; dataset and checksum
    are of the images, rounds_between from test to test, repetition the seed's.
    """

    method: Method
    partition: Partition
    dataset: str
    checksum: str
    loss: Loss
    num_clients: int
    num_samples: int
    num_test_samples: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    step_size: float
    num_clusters: int
    num_groups: int
    percentile: int
    num_clipping_rounds: int
    gradient_weight: float
    penalty: float
    knn_weight: float
    num_neighbours: int
    repetition: int

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)
        check_member(Partition, partition=self.partition)
        check_member(Loss, loss=self.loss)
        check_divides(self, "rounds_between", "num_rounds")


def draw(
    partition: Partition, images: Images, *, seed: int, repetitions: int, sizes: Sizes
) -> Clients:
    """The data of all repetitions, by the seed and its number alone; no image is used
    twice (the released code deals anew). Memory: float32 pixels of all.
    """
    share_out = feature_skewed if partition == "rotation" else label_shifted
    shared = functools.partial(share_out, images, sizes=sizes)
    return repeated(shared, seed=seed, repetitions=repetitions)


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run: the arrays of `DIMS`; methods of a repetition share its data and key."""
    repetition = jnp.asarray(trial.repetition)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    index = repetition.astype(jnp.int32)
    train, clusters, test = jax.tree.map(lambda leaf: leaf[index], clients)
    task = _task(train.inputs.shape[2:], trial.num_hidden, trial.loss)
    algorithm = _algorithm(trial, task, clusters)

    def observe(clusters: Int[Array, " clients"], state: Any, info: Any) -> Array:
        del state
        purity = jnp.full((), jnp.nan)
        if hasattr(info, "members"):
            purity = balls(info.members, clusters)[0]
        elif trial.method == "ifca":
            number = trial.num_clusters
            purity = metrics.adjusted_rand_index(info.assignment, clusters, number)
        return purity

    def score(train: ClientData, test: ClientData, state: Any) -> dict[str, Array]:
        outputs = algorithm.predict(state, train, test.inputs)
        losses = jax.vmap(cross_entropy)(outputs, test.targets)
        mean = lambda values: jnp.mean(masked_mean(values, test.mask))
        return {
            "accuracy": metrics.accuracy(outputs, test.targets, test.mask),
            "cross_entropy": mean(losses),
            "probability": mean(1 - jnp.exp(-losses)),
        }

    _, purity, scores = study.run_with_tests(
        trial,
        algorithm,
        run_key,
        train,
        observe=Partial(observe, clusters),
        test=Partial(score, train, test),
    )
    return {**scores, "purity": study.at_tests(trial, purity)}


def _task(input_shape: tuple[int, ...], num_hidden: int, loss: Loss) -> Task:
    """The network, under a loss."""
    task = mlp(input_shape, hidden=(num_hidden,))
    if loss == "cross_entropy":
        return task

    def losses(params: Any, inputs: Array, targets: Array) -> Float[Array, " samples"]:
        return 1 - jnp.exp(-task.losses(params, inputs, targets))

    return task._replace(losses=losses)


def _algorithm(trial: Trial, task: Task, clusters: Int[Array, " clients"]) -> Algorithm:
    """The method, which takes one full-batch gradient step in a round."""
    shared: dict[str, Any] = {"step_size": trial.step_size}
    gradient: dict[str, Any] = shared | {"option": "gradient", "normalise": "cluster"}
    threshold: dict[str, Any] = {
        "radius": quantile_radius(trial.percentile / 100),
        "num_clipping_rounds": trial.num_clipping_rounds,
        "start": "identical",
    }
    average: dict[str, Any] = shared | {"option": "gradient", "weights": "clients"}
    own_ditto = functools.partial(ditto, task, penalty=trial.penalty, **shared)
    builders: dict[Method, Callable[[], Algorithm]] = {
        "local": lambda: local(task, **shared),
        "fedavg": lambda: fedavg(task, **average),
        "ditto": own_ditto,
        "ditto_reference": lambda: own_ditto(variant="reference"),
        "ifca": lambda: ifca(task, num_clusters=trial.num_clusters, **gradient),
        "knn_per": lambda: knn_per(
            task,
            knn_weight=trial.knn_weight,
            num_neighbours=trial.num_neighbours,
            **average,
        ),
        "federated_clustering": lambda: federated_clustering(
            task, num_groups=trial.num_groups, **threshold, **shared
        ),
        "momentum_clustering": lambda: momentum_clustering(
            task, gradient_weight=trial.gradient_weight, **threshold, **shared
        ),
        "oracle": lambda: oracle(
            task, clusters=clusters, num_clusters=trial.num_clusters, **gradient
        ),
    }
    return builders[trial.method]()


class Description(NamedTuple):
    """What a method is."""

    label: str  # for people
    published: str | None = None  # in the paper's table; None if it is not there
    is_baseline: bool = False  # whether it looks for no clusters


METHODS: Mapping[Method, Description] = MappingProxyType(
    {
        "local": Description("Local", "Local", True),
        "fedavg": Description("Global", "Global", True),
        "ditto": Description("Ditto", "Ditto", True),
        "ditto_reference": Description("Ditto, frozen server", "Ditto", True),
        "ifca": Description("IFCA", "IFCA"),
        "knn_per": Description("kNN-Per", "KNN", True),
        "federated_clustering": Description("Federated-Clustering", "FC"),
        "momentum_clustering": Description("Momentum-Clustering"),
        "oracle": Description("Oracle", "GT (oracle)"),
    }
)
assert tuple(METHODS) == get_args(Method)
ORDER = ("oracle", "federated_clustering", "local", "fedavg")  # Best first.
COLUMNS = {
    "task": "task",
    "label": "method",
    **study.interval_columns("accuracy", "accuracy %"),
    "deviation": "± over seeds",
    "published": "paper",
    "probability": "1 − p(label)",
    "published_loss": "paper's loss",
    "cross_entropy": "cross-entropy",
    "purity": "purity or ARI",
    "trials": "seeds",
    "round": "rounds",
    "size": "size",
    "verdict": "verdict",
}
LONG_COLUMNS = {
    "task": "task",
    "label": "method",
    "step": "steps",
    **study.interval_columns("accuracy", "accuracy %"),
}


class Paper(NamedTuple):
    """What the paper prints of a method on a task; None where it prints nothing."""

    accuracy: Published | None  # in per cent
    loss: Published | None


def published_numbers(method: Method, task: str) -> Paper:
    """The paper's numbers, which are of MNIST."""
    found = {
        number.metric: number
        for number in published("werner")
        if number.algorithm == METHODS[method].published
        and number.setting == task.replace("_", " ")
    }
    return Paper(found.get("test accuracy %"), found.get("test loss"))


def size_of(trial: Trial) -> Size:
    """The size of a run beside the paper preset's, of which the paper gives the numbers
    of clients and groups, the quantile and both lambdas.
    """
    paper = preset("paper")
    names = ("num_clients", "num_groups", "num_hidden", "num_rounds", "num_samples")
    names += ("num_test_samples", "step_size", "percentile", "num_clipping_rounds")
    names += ("gradient_weight", "penalty", "num_neighbours")
    weight = paper.knn_weights[paper.partitions.index(trial.partition)]
    found = changes(trial, study.fields(paper, *names) | {"knn_weight": weight})
    if trial.dataset != "mnist":
        name = {"digits": "scikit-learn's digits", "fashion_mnist": "Fashion-MNIST"}
        return Size(found, other_data=name[trial.dataset])
    is_released = trial.loss == "probability" or trial.method == "ditto_reference"
    form = "as released" if is_released else ""
    return Size(found, form=form, is_released=is_released)


def rows(results: Results, error_rate: float, trials: Trials) -> list[Row]:
    """One row for each task and method, after the last round."""
    table = []
    for task, data in results.items():
        for at, last in study.cells(data.isel(tested=-1), "method"):
            method = at["method"]
            values = {name: _seeds(last[name]) for name in last.data_vars}
            done = values["failed"] == 0  # What failed measures nothing.
            percent = 100 * values["accuracy"]
            purity = float(np.mean(values["purity"]))
            trial = dataclasses.replace(trials[task], method=method)
            size = size_of(trial)
            paper = published_numbers(method, trial.partition)
            if size.other_data:
                paper = Paper(None, None)
            loss = values["probability"]
            verdicts = {
                "accuracy": judge(percent[done], paper.accuracy, size),
                "loss": judge(loss[done], paper.loss, size),
            }
            row = {
                "task": task,
                "method": method,
                "label": METHODS[method].label,
                **_accuracy(percent, error_rate),
                "deviation": float(np.std(percent)),
                "published": paper.accuracy and paper.accuracy.mean,
                "probability": float(np.mean(loss)),
                "published_loss": paper.loss and paper.loss.mean,
                "cross_entropy": float(np.mean(values["cross_entropy"])),
                "purity": purity if math.isfinite(purity) else None,
                "trials": percent.size,
                "round": trial.num_rounds,
                "size": study.size_text(size, last),
                "verdict": together(verdicts),
            }
            table.append(row)
    return table


def long_rows(results: Results, error_rate: float) -> list[Row]:
    """Accuracies along the long runs."""
    table = []
    for task, data in results.items():
        for at, cell in study.cells(data, "method", "tested"):
            row = {"task": task, "method": at["method"]}
            row |= {"label": METHODS[at["method"]].label, "step": at["tested"]}
            table.append(row | _accuracy(100 * _seeds(cell["accuracy"]), error_rate))
    return table


def note(results: Results, table: Rows, crossing: Rows) -> str:
    """What the table shows, from its numbers."""
    lines = [
        "Accuracy of all clients' own test samples after the last round, each under "
        "its client's model; means over seeds with Student's intervals."
    ]
    for task, data in results.items():
        last = data["accuracy"].isel(tested=-1)
        if set(ORDER) <= set(last["method"].values.tolist()):
            chain = np.array([_seeds(last.sel({"method": name})) for name in ORDER])
            # An accuracy that is no number is above none.
            ordered = np.all(chain[:-1] > chain[1:], axis=0)
            lines.append(
                f"{task}: oracle > Federated-Clustering > Local > Global in "
                f"{ordered.sum()} of {ordered.size} seeds."
            )
    lines += [_passing(crossing)] if crossing else []
    if any(row["published_loss"] for row in table):
        lines.append(
            "The paper's losses are compared with 1 - p(label): no model can have a "
            f"cross-entropy below log 4 = {math.log(4):.3f} where four clusters "
            "contradict each other, and the paper's Global has 0.803."
        )
    return "\n".join(lines)


def _passing(crossing: Rows) -> str:
    """When, in the long runs, Global first was above Local, and stayed there."""
    run = study.groups(crossing, "method")
    if not {"local", "fedavg"} <= run.keys():
        return "rotation, long runs: Local and Global were not both run."
    both = run["local"], run["fedavg"]
    alone, together = (study.column(own, "accuracy") for own in both)
    steps = [row["step"] for row in run["local"]]
    behind = np.flatnonzero(~(together > alone))
    after = behind[-1] + 1 if behind.size else 0
    ends = f"{together[-1]:.1f} % against {alone[-1]:.1f} % at the end"
    if after == len(steps):
        return f"rotation: Global stays below Local for {steps[-1]} steps ({ends})."
    return f"rotation: Global is above Local from step {steps[after]} on ({ends})."


def _accuracy(percent: np.ndarray, error_rate: float) -> dict[str, float]:
    """A mean with its interval, inside what an accuracy can be."""
    ends = study.interval(percent, "accuracy", error_rate)
    return {name: float(np.clip(value, 0, 100)) for name, value in ends.items()}


def _seeds(cell: xr.DataArray) -> np.ndarray:
    """One number for each seed."""
    return np.asarray(cell.values, float).reshape(-1)


_LEVELS = ("federated_clustering", "oracle", "fedavg")  # Published, shown.


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    what, place = "accuracy along training", "Werner et al., Table 1"
    own = title(place, what, config, preset("paper"))
    return dict.fromkeys(("clustered", "baselines", "long"), own)


def draw_curves(results: Results, longer: Results, config: Config) -> dict[str, Figure]:
    """Figures by name: methods that look for clusters, baselines, and long runs."""
    figures = {}
    run = _methods(results)
    for name, is_baseline in (("clustered", False), ("baselines", True)):
        shown: list[Method] = [m for m in run if METHODS[m].is_baseline == is_baseline]
        if shown:
            figures[name] = _figure(results, shown, config)
    if longer:
        figures["long"] = _figure(longer, _methods(longer), config)
    return figures


def _methods(results: Results) -> list[Method]:
    """All that were run, of each task the same."""
    run = next(iter(results.values()))["method"].values.tolist()
    return [method for method in METHODS if method in run]


def _figure(results: Results, methods: list[Method], config: Config) -> Figure:
    """A panel for each task, with the published accuracies of a few methods."""
    error_rate = config.error_rate
    panels = []
    for task, data in results.items():
        levels = []
        for method in methods:
            label, accuracy = METHODS[method].label, published_numbers(method, task)[0]
            if accuracy and accuracy.mean and method in _LEVELS:
                levels.append(report.Level(f"{label}, paper", accuracy.mean, label))
        panel = report.CurvePanel(
            [_curve(data, method, error_rate) for method in methods],
            x_label="full-batch gradient steps",
            y_label="test accuracy [%]",
            y_limits=(0.0, 100.0),
            title=task.replace("_", " "),
            levels=levels,
            aside=False,
        )
        panels.append(panel)
    seeds = next(iter(results.values())).sizes["repetition"]
    return report.curves(
        panels,
        title=titles(config)["clustered"],
        legend_title=f"means over {seeds} seeds, {100 * (1 - error_rate):g} % "
        "intervals",
    )


def _curve(data: xr.Dataset, method: Method, error_rate: float) -> report.Curve:
    cell = data["accuracy"].sel({"method": method})
    cell = cell.transpose("tested", "repetition", "trial")
    values = 100 * np.asarray(cell.values, float).reshape(cell.sizes["tested"], -1)
    ends = np.clip(intervals.student(values, error_rate=error_rate), 0, 100)
    steps = data["tested"].values.astype(float)
    return report.Curve(METHODS[method].label, steps, values.mean(axis=1), *ends)
