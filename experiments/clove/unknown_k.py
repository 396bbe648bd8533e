"""CLoVE, appendix D.1.4: FEMNIST, whose number of clusters nobody knows.

Command:   python -m experiments run clove.unknown_k --preset paper --data FOLDER
Quick:     the same with --preset quick: 10 writers, at most 6 clusters, a narrow
           network (4 and 8 channels, 32 hidden units), 10 rounds in batches of 10 with
           larger steps, 1 seed
Measured:  quick, 3.1 minutes on two loaded cores of an Intel Xeon (2.3 minutes of
           processor time): CLoVE has 3 clusters from round 2 on and 4 from round 7 on,
           and 29.9 % right; with K = 2 31.1, IFCA with K = 2 33.3, FedAvg 32.8 and
           local models 30.5 %, of 177 test images, so that none can be told apart
Paper:     CLoVE 68.2 +- 1.3 % (3 seeds): M = 100 writers with all their images, a CNN,
           random models in the first round. The numbers of clusters that it found are
           not given.

CLoVE chooses in every round between 2 and 15 clusters, as the released code does, by
the largest silhouette, where the code allows itself a tolerance of a tenth. Clients are
drawn from writers who have an image for training and one for the test.
The paper does not say whether ink is bright: here it is, as in MNIST, for which it has
the same network; `--no-invert` leaves paper white, as LEAF has it, on which the quick
network learns next to nothing. The paper has one local epoch of Adam a round, the
released code trains FEMNIST for 25: `--num-epochs 25`. IFCA, CLoVE with a fixed number
of clusters, one global model and local models are not in the paper's experiment; those
with clusters begin with a random first round as well.
"""

import dataclasses
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import xarray as xr
from jax.tree_util import Partial
from jaxtyping import Array, Int, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import engine, metrics, report
from cfljax.algorithms import clove, fedavg, ifca, local
from cfljax.base import Algorithm, ClientData, Task, check_member
from cfljax.data import Writers, by_writer, load_writers
from cfljax.federated import FirstRound
from cfljax.models import cnn
from experiments.checks import check_different, check_positive, configuration
from experiments.clove import methods
from experiments.clove.rows import (
    band,
    cells,
    finish,
    finished,
    mean_text,
    spread,
)
from experiments.clove.study import local_training, repetitions, traffic
from experiments.images import checksum
from experiments.jobs import Job, run
from experiments.options import Options
from experiments.study import legend, trial_of
from experiments.titles import title

EXPERIMENT = "clove.unknown_k"
EXPERIMENTS = {
    "clove.unknown_k": {
        "title": "FEMNIST: CLoVE with an unknown number of clusters",
        "spreads_clients": True,
        "has_jobs": True,
    }
}
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.
METHODS = ("clove", "clove-2", "clove-3", "ifca-2", "ifca-3", "fedavg", "local")


@configuration
class Config:
    """Everything that the table depends on. One field, one flag."""

    num_clients: int  # M, writers, drawn by the seed.
    num_channels: int  # Of the first convolution; the second has twice as many.
    num_hidden: int  # Width of the hidden layer.
    num_rounds: int  # T, communication rounds.
    batch_size: int  # Of a local step.
    num_trials: int  # Seeds of each method: of starts and batches.
    methods: tuple[str, ...] = METHODS
    """What to compare: clove of unknown K, clove-K, ifca-K, fedavg, local."""
    max_clusters: int = 15  # Largest K that is tried, if there are so many clients.
    first_round: FirstRound = "random"
    """Who decides on the first models: chance, or the losses (evaluation)."""
    num_epochs: int = 1  # Tau, local epochs of a round.
    step_size: float = 0.001  # Of Adam.
    min_samples: int = 2
    """Images that a writer has at least, training and test together."""
    invert: bool = True
    """Ink 1 and paper 0, as in MNIST; otherwise paper is 1, as in LEAF."""
    clients_per_chunk: int = 5  # Clients evaluated at a time; bounds memory.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        check_different("methods", self.methods)
        for method in self.methods:
            method_of(method)
        check_positive(self, "batch_size", "num_epochs", "min_samples")
        for name in ("num_clients", "max_clusters"):
            if (value := getattr(self, name)) < 2:
                raise ValueError(f"`{name}` must be at least 2, got {value}.")


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_clients=10,
            num_channels=4,
            num_hidden=32,
            num_rounds=10,
            batch_size=10,
            num_trials=1,
            methods=("clove", "clove-2", "ifca-2", "fedavg", "local"),
            max_clusters=6,
            step_size=0.01,
        )
    return Config(
        num_clients=100,
        num_channels=32,
        num_hidden=512,
        num_rounds=100,
        batch_size=64,
        num_trials=3,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write tables and figure.

    Raises:
      ValueError: if the writers do not suffice, or the images are damaged.
      FileNotFoundError: if there are no images; the message says how to get them.
    """
    started = time.perf_counter()
    writers = load_writers("femnist", folder=options.data)
    results = run(options, _job(config, writers))
    table = rows(results)
    text = markdown(table)
    note = f"images: {writers.source}, {config.num_clients} writers\n\n"
    done = finish(
        config,
        options,
        started,
        tables={"table": table, "runs": runs(results)},
        text=text,
        headline=note + text,
        figures={"rounds": draw(results, config)},
        failures=int(results.attrs["failures"]),
        source=writers.source,
    )
    return {"experiment": EXPERIMENT, "images": writers.source, **done}


def jobs(config: Config, options: Options) -> list[Job]:
    """The one sweep of the table; raises as `main`."""
    return [_job(config, load_writers("femnist", folder=options.data))]


def _job(config: Config, writers: Writers) -> Job:
    inputs = by_writer(
        writers,
        num_clients=config.num_clients,
        min_samples=config.min_samples,
        key=jax.random.key(config.seed),
        invert=config.invert,
    )
    grid = _grid(config, checksum(jax.tree.leaves(inputs)), writers.num_classes)
    return Job(grid, simulate, lambda: inputs)


def _grid(config: Config, checksum: str, num_classes: int) -> engine.Grid:
    """All methods and repetitions; those of one repetition share its key."""
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=trial_of(
            Trial,
            config,
            method=config.methods[0],
            checksum=checksum,
            num_classes=num_classes,
            max_clusters=min(config.max_clusters, config.num_clients),
            repetition=0,
        ),
        axes={"method": config.methods, **repetitions(config)},
        num_trials=1,
        traced=("step_size", "repetition"),
        dims=DIMS,
        coords={"round": list(range(1, config.num_rounds + 1))},
        seed=config.seed,
        revision=REVISION,
    )


# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # share of all test samples, each under its client's model
    "client_accuracy": ("round",),  # mean over clients of each one's own share
    "used_models": ("round",),  # models that some client trained; NaN without clusters
    "largest_cluster": ("round",),  # share of the clients in the largest one; likewise
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


class Method(NamedTuple):
    """What is trained."""

    name: Literal["clove", "ifca", "fedavg", "local"]  # of the algorithm
    # K; None where CLoVE chooses it in every round, or has no meaning.
    num_clusters: int | None

    @property
    def clusters(self) -> bool:
        """Whether it finds clusters."""
        return self.name in ("clove", "ifca")


def method_of(text: str) -> Method:
    """The method of a text: clove, fedavg, local, or clove-2 or ifca-3 for K clusters.

    Raises:
      ValueError: if it is none of these, or has less than one cluster.
    """
    if text == "clove" or text == "fedavg" or text == "local":
        return Method(text, None)
    name, _, number = text.partition("-")
    if (name == "clove" or name == "ifca") and number.isdigit() and int(number):
        return Method(name, int(number))
    raise ValueError(
        "a method must be clove, fedavg, local, or clove or ifca with a number of "
        f"clusters, such as ifca-2; got {text!r}."
    )


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    num_channels, num_hidden, num_rounds, num_epochs, batch_size, step_size,
      clients_per_chunk: of `Config`.
    """

    method: str  # a text that `method_of` understands
    checksum: str  # of the clients' samples, which tells other data apart
    num_classes: int  # number of classes
    max_clusters: int  # models of CLoVE where it chooses how many are used
    first_round: str  # whether clients' first models are random, or follow from losses
    num_channels: int
    num_hidden: int
    num_rounds: int
    num_epochs: int
    batch_size: int
    step_size: float
    clients_per_chunk: int
    repetition: int  # seed, traced: repetitions share a program, yet are stored alone

    def __post_init__(self) -> None:
        method_of(self.method)
        check_member(FirstRound, first_round=self.first_round)


def simulate(
    trial: Trial, key: PRNGKeyArray, samples: tuple[ClientData, ClientData]
) -> dict[str, Array]:
    """One run from one random start, tested in every round: the arrays of `DIMS`.

    Samples are for training and for the test, of the same clients. A round costs that
    of the algorithm and a test of all; IFCA's is preceded by another choice of models.
    """
    run_key = jax.random.fold_in(key, jnp.asarray(trial.repetition).astype(jnp.uint32))
    method = method_of(trial.method)
    train, test = samples
    task = cnn(
        train.inputs.shape[2:],
        channels=(trial.num_channels, 2 * trial.num_channels),
        hidden=(trial.num_hidden,),
        num_classes=trial.num_classes,
    )
    algorithm, number = _algorithm(trial, method, task)

    def observe(
        train: ClientData, test: ClientData, state: Any, info: Any
    ) -> dict[str, Array]:
        outputs = algorithm.predict(state, train, test.inputs)
        each = jax.vmap(metrics.accuracy)(outputs, test.targets, test.mask)
        used = largest = jnp.full((), jnp.nan, jnp.float32)
        if method.clusters:
            used, largest = clusters_of(info.assignment, number)
        return traffic(info) | {
            "accuracy": metrics.accuracy(outputs, test.targets, test.mask),
            "client_accuracy": jnp.mean(each),
            "used_models": used,
            "largest_cluster": largest,
        }

    watch = Partial(observe, train, test)
    _, trace = engine.run(
        algorithm, run_key, train, num_rounds=trial.num_rounds, observe=watch
    )
    return trace


def _algorithm(trial: Trial, method: Method, task: Task) -> tuple[Algorithm, int]:
    """The method and its number of models; all train alike."""
    settings = local_training(trial)
    if not method.clusters:
        return (local if method.name == "local" else fedavg)(task, **settings), 1
    number = method.num_clusters or trial.max_clusters
    settings |= {"first_round": trial.first_round, "num_clusters": number}
    if method.name == "ifca":
        return ifca(task, option="model", weights="samples", **settings), number
    if method.num_clusters is None:
        settings |= {"clustering": "agglomerative", "select_number": True}
    return clove(task, **settings), number


def clusters_of(assignment: Int[Array, " clients"], number: int) -> tuple[Array, Array]:
    """Models that clients have, and the share of all clients that the largest has."""
    used = metrics.num_used_clusters(assignment, number)
    members = jax.nn.one_hot(assignment, number).sum(axis=0)
    return used.astype(members.dtype), jnp.max(members) / assignment.shape[0]


PUBLISHED = {"clove": (68.2, 1.3)}  # Test accuracy in per cent, appendix D.1.4.
COLUMNS = {
    "label": "method",
    "round": "rounds",
    "trials": "seeds",
    "accuracy": "accuracy %",
    "client_accuracy": "of a client %",
    "paper_accuracy": "paper's accuracy %",
    "used_models": "models used",
    "fewest_models": "fewest",
    "most_models": "most",
    "largest_cluster": "largest cluster %",
    "received": "MiB down",
    "sent": "MiB up",
}
NOTE = """
After the last round; means ± standard deviations, which are divided by the number of
seeds as the paper's are. "accuracy": share of all clients' test samples that are right
under their client's model. "of a client": mean over clients of each one's share.
"models used": those that clients trained in the last round, of each seed; "fewest" and
"most" of all rounds and seeds after the first. "largest cluster": clients in it. "MiB":
to and from all clients in a round. The paper's number is of the sizes of the paper
preset, and a mean over clients or over samples, which it does not say.
"""


def label(method: str) -> str:
    """Name of a method for people."""
    name, number = method_of(method)
    plain = "CLoVE, unknown K" if method == "clove" else methods.METHODS[name].label
    return plain if number is None else f"{methods.METHODS[name].label}, K = {number}"


def rows(results: xr.Dataset) -> list[dict[str, Any]]:
    """One row for each method, in per cent, of the runs that did not fail. A run that
    diverged has the accuracy of what its models answer.
    """
    table = []
    for method in results["method"].values.tolist():
        own = finished(results, method)
        number, (mean, std) = (
            own.sizes["repetition"],
            PUBLISHED.get(method, (None, None)),
        )
        row: dict[str, Any] = {"method": method, "label": label(method)}
        row |= {"round": int(results["round"].values[-1]), "trials": number}
        row |= {"failed": results.sizes["repetition"] - number}
        row |= {"paper_accuracy_mean": mean, "paper_accuracy_std": std}
        for name in ("accuracy", "client_accuracy"):
            row |= spread(name, 100 * own[name].values[:, -1].astype(float))
        for name in ("received", "sent"):
            traffic = own[name].values
            row[name] = float(traffic.mean()) if traffic.size else None
        used = own["used_models"].values
        if method_of(method).clusters and used.size:
            row["used_models"] = " ".join(f"{number:.0f}" for number in used[:, -1])
            row |= spread("largest_cluster", 100 * own["largest_cluster"].values[:, -1])
            if used.shape[1] > 1:  # The first round may be a random one.
                row["fewest_models"] = int(used[:, 1:].min())
                row["most_models"] = int(used[:, 1:].max())
        table.append(row)
    return table


def runs(results: xr.Dataset) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracies in per cent."""
    table = []
    names = ("accuracy", "client_accuracy")
    for method, repetition, cell in cells(results):
        row = {"method": method, "repetition": repetition}
        row |= {"failed": bool(cell["failed"])}
        row |= {name: 100 * float(cell[name][-1]) for name in names}
        if method_of(method).clusters:
            row["used_models"] = float(cell["used_models"][-1])
        table.append(row)
    return table


def markdown(table: Sequence[Mapping[str, Any]]) -> str:
    """The table for people, without empty columns, and a note on its columns."""
    shown = []
    for row in table:
        texts = dict(row)
        means = ("accuracy", "client_accuracy", "paper_accuracy", "largest_cluster")
        texts |= {name: mean_text(row, name, 1) for name in means}
        for name in ("received", "sent"):
            texts[name] = None if row[name] is None else f"{row[name]:.2f}"
        shown.append(texts)
    return report.concise(shown, COLUMNS) + NOTE


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    what = "FEMNIST, number of clusters unknown"
    return {"rounds": title("CLoVE, appendix D.1.4", what, config, preset("paper"))}


def draw(results: xr.Dataset, config: Config) -> Figure | None:
    """Models used and accuracy in each round; None if all runs failed."""
    names = results["method"].values.tolist()
    clustered = [name for name in names if method_of(name).clusters]
    quantities = (
        ("models that clients have", clustered, "used_models", 1),
        ("test accuracy %", names, "accuracy", 100),
    )
    panels = []
    for quantity, shown, variable, scale in quantities:
        own = {name: finished(results, name).astype(float) for name in shown}
        curves = [band(label(n), scale * data[variable]) for n, data in own.items()]
        if found := [curve for curve in curves if curve is not None]:
            panels.append(report.CurvePanel(found, "round", quantity, y_limits=None))
    if not panels:
        return None
    return report.curves(
        panels,
        title=titles(config)["rounds"],
        legend_title=legend(results.sizes["repetition"]),
    )
