"""What CLoVE's experiments with networks compute: settings, one trial, all trials."""

import dataclasses
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
import xarray as xr
from jax.tree_util import Partial
from jaxtyping import Array, Float, Int, PRNGKeyArray

from cfljax import engine, metrics
from cfljax.algorithms import REGISTRY
from cfljax.base import NO_CLUSTER, Algorithm, ClientData, Task, check_member
from cfljax.engine import Simulate
from cfljax.federated import LocalUpdate
from cfljax.losses import squared_error
from experiments import jobs
from experiments.checks import check_different, check_positive, configuration
from experiments.clove.methods import METHODS, Method, clusters, first_split
from experiments.clove.networks import (
    Network,
    is_classifier,
    network,
    network_of,
    num_classes,
)
from experiments.clove.partitions import (
    Clients,
    Partition,
    belongs,
    draw,
    published_sizes,
    share_out,
)
from experiments.clove.sources import Dataset, Source, load_source, without_inputs
from experiments.jobs import Job
from experiments.options import Options
from experiments.study import run_with_tests, trial_of

# One name for all, so that experiments of one folder share what both run.
STUDY = "clove.study"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


@configuration
class Config:
    """Everything that the results depend on. One field, one flag."""

    datasets: tuple[Dataset, ...]  # Sets of images or texts.
    partitions: tuple[Partition, ...]  # How samples are shared out.
    methods: tuple[Method, ...]  # What to compare.
    cluster_sizes: tuple[int, ...] | None
    """Clients of a cluster; the paper's if None, unless `num_clients` says it."""
    num_samples: tuple[int, ...] | None
    """Training samples of a client, one number or one for each number of clients; the
    paper's if None."""
    num_test_samples: tuple[int, ...]  # Test samples of a client, likewise.
    num_channels: int  # Of the first convolution; each further one has twice as many.
    num_hidden: int  # Width of the hidden layer.
    num_rounds: int  # T, communication rounds.
    rounds_between: int  # Rounds from one test to the next.
    batch_size: int  # Of a local step.
    num_trials: int  # Seeds of each cell.
    fall_back: bool  # Use the embedded digits where the images are not found.
    num_clients: tuple[int, ...] | None = None
    """Clients of all clusters together, instead of `cluster_sizes`."""
    num_clusters: tuple[int, ...] | None = None
    """K; the paper's, or what its numbers of clients imply, if None."""
    participations: tuple[float, ...] = (1.0,)
    """Rho, fractions of the clients that take part in a round."""
    reconstruct: bool = False  # Train autoencoders, rather than classifiers.
    num_latent: int = 32  # Width of an autoencoder's bottleneck.
    num_words: int = 5000  # Vocabulary of texts.
    num_tokens: int = 64  # Words of a text that are kept, for AG News.
    num_epochs: int = 1  # Tau, local epochs of a round.
    step_size: float = 0.001  # Of Adam.
    gradient_step_size: float = 0.1  # Of gradient averaging, one step a round.
    clients_per_chunk: int = 5  # Clients evaluated at a time; bounds memory.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        for name in ("datasets", "partitions", "methods", "participations"):
            check_different(name, getattr(self, name))
        for name in ("cluster_sizes", "num_clients", "num_clusters"):
            if (values := getattr(self, name)) is not None:
                check_different(name, values)
        for field in dataclasses.fields(self):
            if getattr(self, field.name) == ():
                raise ValueError(f"`{field.name}` must hold at least one, got ().")
        check_positive(self, "batch_size", "num_epochs")
        _ = self.sizes

    @property
    def sizes(self) -> list[tuple[int | None, int | None, int | None, int]]:
        """Clients of a cluster, of all, training and test samples, side by side."""
        if self.cluster_sizes is not None and self.num_clients is not None:
            raise ValueError(
                "`cluster_sizes` and `num_clients` exclude each other, got "
                f"{self.cluster_sizes} and {self.num_clients}."
            )
        clients = self.cluster_sizes, self.num_clients
        columns = [
            (None,) if values is None else values
            for values in (*clients, self.num_samples, self.num_test_samples)
        ]
        length = max(map(len, columns))
        if any(len(values) not in (1, length) for values in columns):
            raise ValueError(
                "`cluster_sizes` (or `num_clients`), `num_samples` and "
                "`num_test_samples` must have one number or as many as each other, got "
                f"{', '.join(str(values) for values in columns)}."
            )
        whole = [values * length if len(values) == 1 else values for values in columns]
        return list(zip(*whole, strict=True))


QUICK = Config(
    datasets=("mnist",),
    partitions=("label_skew_1",),
    methods=("clove", "ifca", "fedavg", "local"),
    cluster_sizes=(3,),
    num_samples=(100,),
    num_test_samples=(50,),
    num_channels=4,
    num_hidden=32,
    num_rounds=10,
    rounds_between=5,
    batch_size=10,
    num_trials=2,
    fall_back=True,
    step_size=0.005,
)
PAPER = dataclasses.replace(
    QUICK,
    datasets=("mnist", "fashion_mnist", "cifar10"),
    cluster_sizes=None,
    num_samples=None,
    num_test_samples=(100,),
    num_channels=32,
    num_hidden=512,
    num_rounds=100,
    rounds_between=10,
    batch_size=64,
    num_trials=3,
    fall_back=False,
    step_size=0.001,
)


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the samples.

    num_clients, num_samples, num_test_samples: of the clients; each is also tested.
    num_channels, num_hidden, num_latent, num_words: of `networks.network`.
    num_rounds, rounds_between, num_epochs, batch_size, step_size, clients_per_chunk: of
      `Config`.
    """

    method: Method  # a key of `METHODS`
    partition: Partition  # of `partitions`
    dataset: str  # name of the samples
    checksum: str  # of their arrays, which tells preparations in another order apart
    num_clients: int
    num_samples: int
    num_test_samples: int
    num_participants: int  # clients drawn for a round; local models train always
    num_clusters: int  # true ones, and models of the methods that find clusters
    network: Network  # of `networks`
    num_channels: int
    num_hidden: int
    num_latent: int
    num_words: int
    num_rounds: int
    rounds_between: int
    num_epochs: int
    batch_size: int
    step_size: float
    gradient_step_size: float  # of gradient averaging, which takes one step a round
    clients_per_chunk: int
    repetition: int  # seed, traced: repetitions share a program, yet are stored alone
    num_tokens: int = 64  # as in `Config`

    def __post_init__(self) -> None:
        check_member(Method, method=self.method)
        check_member(Partition, partition=self.partition)
        check_member(Network, network=self.network)
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )


# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "score": ("tested",),  # accuracy or reconstruction loss on clients' test samples
    "rand_index": ("round",),  # of the models trained in the round; NaN without any,
    # and where no two participants are of one cluster: there is nothing to find
    "seen_rand_index": ("round",),  # of the latest model of all who ever took part
    "used_models": ("round",),  # models that some client trained; NaN likewise
    "stable": ("round",),  # 1 if clustering was over before the round, 0 if not
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
}


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run from one random start, tested along the way: the arrays of `DIMS`."""
    return run(trial, key, clients)[1]


class Carry(NamedTuple):
    """What goes from round to round."""

    state: Any  # of the algorithm
    # `[clients]`, the model that each client trained last, `NO_CLUSTER` before.
    latest: Int[Array, " clients"]


def run(
    trial: Trial, key: PRNGKeyArray, clients: Clients
) -> tuple[Carry, dict[str, Array]]:
    """What the last round leaves, and the arrays of `DIMS`; folded with the repetition,
    `key` is the run's, and methods of a repetition share it, and its data.
    """
    repetition = jnp.asarray(trial.repetition)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    index = repetition.astype(jnp.int32)
    train, truth, test = jax.tree.map(lambda leaf: leaf[index], clients)
    alike = dataclasses.replace(trial, repetition=0)
    algorithm, observe, score = _parts(alike, train.inputs.shape[2:])
    carry, seen, scores = run_with_tests(
        trial,
        algorithm,
        run_key,
        train,
        observe=Partial(observe, truth),
        test=Partial(score, train, test),
    )
    return carry, seen | scores


@functools.lru_cache(maxsize=2)  # Repetitions share what is compiled.
def _parts(
    trial: Trial, input_shape: tuple[int, ...]
) -> tuple[Algorithm, Callable[..., dict[str, Array]], Callable[..., dict[str, Array]]]:
    """The algorithm, what is seen of its rounds and what tests find, given clients."""
    algorithm = _algorithm(trial, input_shape)

    def observe(
        truth: Int[Array, " clients"], carry: Carry, info: Any
    ) -> dict[str, Array]:
        return _round(trial, info, carry.latest, truth)

    def score(train: ClientData, test: ClientData, carry: Carry) -> dict[str, Array]:
        outputs = algorithm.predict(carry.state, train, test.inputs)
        return {"score": _score(trial, outputs, test)}

    return _remembering(trial, algorithm), observe, score


def task_of(trial: Trial, input_shape: tuple[int, ...]) -> Task:
    """The trial's network."""
    widths = ("num_channels", "num_hidden", "num_latent", "num_words")
    own = {name: getattr(trial, name) for name in widths}
    return network(trial.network, input_shape, **own)


def local_training(trial: Any) -> dict[str, Any]:
    """Step size and update of clients that train by Adam, as the trial's fields say."""
    update = LocalUpdate(
        batch_size=trial.batch_size,
        num_epochs=trial.num_epochs,
        optimizer=optax.adam,
        clients_per_chunk=trial.clients_per_chunk,
    )
    return {"step_size": trial.step_size, "update": update}


def _algorithm(trial: Trial, input_shape: tuple[int, ...]) -> Algorithm:
    """The trial's method on its network; all but gradient averaging train alike.

    Raises:
      ValueError: if the method needs classes and there are none.
    """
    method = METHODS[trial.method]
    row = REGISTRY[method.algorithm]
    options = local_training(trial)
    if method.options.get("option") == "gradient":
        options = {
            "step_size": trial.gradient_step_size,
            "update": LocalUpdate(clients_per_chunk=trial.clients_per_chunk),
        }
    if trial.method != "local":
        options["participation"] = trial.num_participants / trial.num_clients
    classes = num_classes(trial.network)
    if row.needs_classes and classes is None:
        raise ValueError(f"`methods` must not have {trial.method} without classes.")
    if row.needs_classes or method.algorithm == "pacfl":
        options["num_classes"] = classes
    if row.clustered:
        options["num_clusters"] = trial.num_clusters
    if clusters(trial.method) and not method.is_told:
        options["max_clusters"] = trial.num_clients
    if method.algorithm == "cfl_s":
        options["first_split"] = first_split(trial.num_rounds)
    return row.constructor(
        task_of(trial, input_shape), **(options | dict(method.options))
    )


def _score(trial: Trial, outputs: Array, test: ClientData) -> Float[Array, ""]:
    """Accuracy, or squared error of a reconstruction, over all test samples."""
    if is_classifier(trial.network):
        return metrics.accuracy(outputs, test.targets, test.mask)
    errors = jax.vmap(squared_error)(outputs, test.inputs)
    return jnp.sum(errors * test.mask) / jnp.sum(test.mask)


def _round(
    trial: Trial,
    info: Any,
    latest: Int[Array, " clients"],
    truth: Int[Array, " clients"],
) -> dict[str, Array]:
    """What one round did: clusters found, and MiB sent."""
    stable = jnp.asarray(getattr(info, "stable", False), jnp.float32)
    found = traffic(info) | {"stable": stable}
    if not clusters(trial.method):
        nothing = jnp.full((), jnp.nan, jnp.float32)
        names = ("rand_index", "seen_rand_index", "used_models")
        return found | dict.fromkeys(names, nothing)
    # Participants that no model has a finite loss for are no clustering.
    is_lost = jnp.any((info.received > 0) & (info.assignment == NO_CLUSTER))
    index = lambda own: jnp.where(is_lost, jnp.nan, rand_index(own, truth))
    labels = trial.num_clusters if METHODS[trial.method].is_told else trial.num_clients
    used = metrics.num_used_clusters(info.assignment, labels)
    return found | {
        "rand_index": index(info.assignment),
        "seen_rand_index": index(latest),
        "used_models": used.astype(jnp.float32),
    }


def traffic(info: Any) -> dict[str, Array]:
    """MiB of a round, from the centre to all clients and back."""
    return {
        name: metrics.mebibytes(getattr(info, name)) for name in ("received", "sent")
    }


def _remembering(trial: Trial, algorithm: Algorithm) -> Algorithm:
    """The algorithm, whose state becomes a `Carry`."""

    def init(key: PRNGKeyArray, data: ClientData) -> Carry:
        nobody = jnp.full(data.mask.shape[:1], NO_CLUSTER, jnp.int32)
        return Carry(algorithm.init(key, data), nobody)

    def step(key: PRNGKeyArray, carry: Carry, data: ClientData) -> tuple[Carry, Any]:
        state, info = algorithm.step(key, carry.state, data)
        latest = carry.latest
        if clusters(trial.method):
            trained = info.assignment != NO_CLUSTER
            own = info.assignment.astype(latest.dtype)
            latest = jnp.where(trained, own, latest)
        return Carry(state, latest), info

    def predict(carry: Carry, data: ClientData, inputs: Array) -> Array:
        return algorithm.predict(carry.state, data, inputs)

    return Algorithm(init=init, step=step, predict=predict)


def rand_index(
    assignment: Int[Array, " clients"], truth: Int[Array, " clients"]
) -> Float[Array, ""]:
    """Adjusted Rand index of those not in `NO_CLUSTER`, whatever the others' numbers.

    NaN where no two of them are of one true cluster: there is nothing to find.
    """
    present = assignment != NO_CLUSTER
    together = assignment[:, None] == assignment[None, :]
    first = jnp.argmax(together, axis=1)  # Now they are in `[0, clients)`.
    number = truth.shape[0]
    index = metrics.adjusted_rand_index(first, truth, number, number, present=present)
    alike = (truth[:, None] == truth[None, :]) & present[:, None] & present[None, :]
    return jnp.where(jnp.any(jnp.triu(alike, 1)), index, jnp.nan)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found for one shape of the data."""

    trial: Trial  # the fields that its cells share
    # Variables of the trial's dims, `[method, repetition, trial, ...]`.
    data: xr.Dataset


def sources(config: Config, options: Options) -> list[Source]:
    """The samples of all sets, a stand-in once; raises as `sources.load_source`."""
    texts = {"num_words": config.num_words, "num_tokens": config.num_tokens}
    found = [
        load_source(dataset, options, fall_back=config.fall_back, **texts)
        for dataset in config.datasets
    ]
    return list({source.checksum: source for source in found}.values())


def jobs_of(
    config: Config,
    loaded: Sequence[Source],
    simulate: Simulate = simulate,
    **changes: Any,
) -> list[Job]:
    """All sweeps of `Trial`s, or of another `simulate` with `changes` of their grids,
    once each is known to be possible.

    Raises:
      ValueError: if the samples do not suffice for a partition, or two cells of the
        configuration are the same.
    """
    found = [(grid, source) for source in loaded for grid in grids(config, source)]
    shapes = [_shape(grid.trial) for grid, _ in found]
    if repeated := {shape for shape in shapes if shapes.count(shape) > 1}:
        raise ValueError(
            "sizes and `participations` must give different clients, got twice: "
            f"{min(repeated)}."
        )
    for grid, source in found:
        share_out(
            grid.trial.partition,
            without_inputs(source.samples),
            key=jax.random.key(grid.seed),
            **_shared_sizes(grid.trial),
        )
    return [
        Job(
            dataclasses.replace(grid, **changes),
            simulate,
            functools.partial(_clients, grid, source),
        )
        for grid, source in found
    ]


def _clients(grid: engine.Grid, source: Source) -> Clients:
    """Of all repetitions, a leading axis."""
    return draw(
        grid.trial.partition,
        source.samples,
        seed=grid.seed,
        repetitions=len(grid.axes["repetition"]),
        **_shared_sizes(grid.trial),
    )


def grids(config: Config, source: Source) -> Iterator[engine.Grid]:
    """Methods and repetitions of one set, one grid for each shape of the data."""
    own: list[Partition] = [
        name for name in config.partitions if belongs(name, source.name)
    ]
    if not own:
        raise ValueError(
            f"`partitions` must have one of {source.name}, got {config.partitions}."
        )
    for partition in own:
        # The number of groups is that of the samples.
        several = config.num_clusters if partition != "groups" else None
        axes = several or (None,), config.sizes, config.participations
        for shape in itertools.product(*axes):
            yield engine.Grid(
                experiment=STUDY,
                trial=_trial(config, partition, source, *shape),
                axes={"method": config.methods, **repetitions(config)},
                num_trials=1,
                traced=("step_size", "gradient_step_size", "repetition"),
                dims=DIMS,
                coords=rounds(config),
                seed=config.seed,
                revision=REVISION,
                growing=growing,
            )


def growing(trial: Trial) -> tuple[str, ...]:
    """Rounds can be added, unless a method is told how many there will be."""
    is_told = METHODS[trial.method].algorithm == "cfl_s"
    return () if is_told else ("num_rounds",)


def repetitions(config: Any) -> dict[str, tuple[int, ...]]:
    """The axis of a grid along which the seed's number changes."""
    return {"repetition": tuple(range(config.num_trials))}


def rounds(config: Any) -> dict[str, list[int]]:
    """Coordinates of a grid: all rounds, and those with a test behind them."""
    last, step = config.num_rounds + 1, config.rounds_between
    return {"round": list(range(1, last)), "tested": list(range(step, last, step))}


def _trial(
    config: Config,
    partition: Partition,
    source: Source,
    num_clusters: int | None,
    sizes: tuple[int | None, int | None, int | None, int],
    participation: float,
) -> Trial:
    """The trial of the first method and repetition."""
    published = published_sizes(partition, source.name, num_clusters)
    size, clients, samples, tests = sizes
    num_clients = clients or (size or published.cluster_size) * published.num_clusters
    if not num_clients:
        raise ValueError(
            f"`num_clusters` must be at most the 30 clients of {source.name} unless "
            f"`cluster_sizes` are given, got {published.num_clusters}."
        )
    fit = lambda wanted, is_test: source.fitting(wanted, num_clients, is_test=is_test)
    return trial_of(
        Trial,
        config,
        method=config.methods[0],
        partition=partition,
        dataset=source.name,
        checksum=source.checksum,
        num_clients=num_clients,
        num_samples=fit(samples or published.num_samples, False),
        num_test_samples=fit(tests, True),
        num_participants=max(1, round(participation * num_clients)),
        num_clusters=published.num_clusters,
        network=network_of(source.name, reconstructs=config.reconstruct),
        repetition=0,
    )


def _shared_sizes(trial: Trial) -> dict[str, int]:
    """What a partition is asked for."""
    names = ("num_clusters", "num_clients", "num_samples", "num_test_samples")
    return {name: getattr(trial, name) for name in names}


def _shape(trial: Trial) -> str:
    """The name of one shape of the data."""
    size = trial.num_clients // trial.num_clusters
    shape = f"{trial.num_clusters}x{size}x{trial.num_samples}-{trial.num_participants}"
    return f"{trial.dataset}-{trial.partition}-{shape}"


def compute(options: Options, job: Job) -> Result:
    """What the store has of one job, once complete."""
    return Result(job.grid.trial, jobs.run(options, job))
