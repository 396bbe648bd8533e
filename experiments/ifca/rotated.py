"""IFCA's experiments on rotated images (section 6.2): one trial, and sweeps of them.

A trial shares rotated images out among clients, trains one algorithm on them and
tests it as the paper does, on test clients of a single rotation each, and otherwise.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jax.tree_util import Partial
from jaxtyping import Array, Bool, Float, Int, Key, PRNGKeyArray, PyTree

from cfljax import engine, metrics
from cfljax.algorithms import fedavg, ifca, local
from cfljax.base import Algorithm, ClientData, Stacked, Task, Truth, check_member
from cfljax.data import Arrays, Images, rotated
from cfljax.engine import Simulate
from cfljax.federated import (
    LocalUpdate,
    choose_cluster,
    clients_in_chunks,
    cohort,
    loss_matrix,
    masked_mean,
    over_clients,
)
from cfljax.models import cnn, mlp, rotated_cifar_cnn, windowed
from experiments import study
from experiments.checks import check_divides
from experiments.images import Loaded
from experiments.jobs import Job, run
from experiments.options import Options
from experiments.study import at_tests, run_with_tests

Name = Literal["ifca", "fedavg", "local"]
Start = Literal["paper", "reference"]
Network = Literal["mlp", "code", "text", "narrow"]
ALGORITHMS: tuple[Name, ...] = get_args(Name)

# Outputs of a trial and the names of their own axes; NaN where an algorithm has none.
# Of clusters, they describe what IFCA's participants chose in the round.
IDENTITY_DIMS: dict[str, tuple[str, ...]] = {
    "matched_accuracy": ("round",),  # share of participants in their true cluster
    "rand_index": ("round",),  # adjusted for chance
    "used_clusters": ("round",),  # models chosen by some participant
    "received": ("round",),  # MiB from the centre to all clients
    "sent": ("round",),  # MiB from all clients to the centre
    "start_draws": (),  # starts that were drawn, see `with_balanced_start`
    "start_share": (),  # of a sample of clients, in the start's smallest cluster
}
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # of the test clients, after the round
    "held_out": ("round",),  # the same, chosen and judged on different samples
    "last_cluster": ("round",),  # of local models, on the last cluster only
} | IDENTITY_DIMS

# Of the sampled clients, in the smallest cluster; by the number of clusters.
LEAST_SHARE = {1: 0.0, 2: 0.35, 4: 0.1}
MOST_DRAWS = 100

SIZES = (  # Of the data.
    *("num_clients", "num_samples", "num_clusters"),
    *("num_test_clients", "num_test_samples"),
)
_KEY = jax.eval_shape(lambda: jax.random.key(0))
_WINDOW = 24  # Height and width that the networks for CIFAR see of its images.


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    Fields that a configuration has too mean the same (`table1.CifarConfig`); 0 stands
    for what is not used, and of `batch_size` for all samples of a client.

    checksum: of the images' arrays, which tells preparations in another order apart.
    decay: factor of the step size from round to round; not traced, since no decay at
      all is another program.
    """

    algorithm: Name
    start: Start
    images: str
    checksum: str
    num_clients: int
    num_samples: int
    num_test_clients: int
    num_test_samples: int
    num_local_clients: int
    num_released: int
    num_clusters: int
    network: Network
    num_channels: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    num_participants: int  # clients of one round
    num_epochs: int
    num_steps: int
    batch_size: int
    step_size: float
    decay: float
    clients_per_chunk: int
    repetition: int  # seed, traced: repetitions share a program, yet are stored alone

    def __post_init__(self) -> None:
        check_member(Name, algorithm=self.algorithm)
        check_member(Start, start=self.start)
        check_member(Network, network=self.network)
        if (self.num_epochs == 0) == (self.num_steps == 0):
            raise ValueError(
                "one of `num_epochs` and `num_steps` must be 0, the other is tau, got "
                f"{self.num_epochs} and {self.num_steps}."
            )
        check_divides(self, "rounds_between", "num_rounds")
        if not 1 <= self.num_participants <= self.num_clients:
            raise ValueError(
                f"`num_participants` must be in 1..{self.num_clients}, the number of "
                f"clients, got {self.num_participants}."
            )
        local = self.num_local_clients
        if not 1 <= local <= self.num_clients or local % self.num_clusters:
            raise ValueError(
                f"`num_local_clients` must be a multiple of {self.num_clusters} "
                f"clusters and at most {self.num_clients}, got {local}."
            )
        if not 0 <= self.num_released <= local:
            raise ValueError(
                f"`num_released` must be in 0..{local}, the number of local models, "
                f"got {self.num_released}."
            )


def trial_of(config: Any, images: Loaded, **own: Any) -> Trial:
    """The trial that a configuration's fields of the same names and `own` make."""
    own |= {"images": images.name, "checksum": images.checksum, "repetition": 0}
    return study.trial_of(Trial, config, **own)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found in one setting."""

    trial: Trial  # the fields that its cells share
    data: xr.Dataset  # variables of `DIMS`, [algorithm, repetition, trial(, round)]


def jobs_of(
    grids: Sequence[tuple[engine.Grid, Loaded]], simulate: Simulate
) -> list[Job]:
    """Sweeps of grids of trials, each with its images.

    Sizes that cannot be raise a ValueError before anything is run.
    """
    for grid, images in grids:
        jax.eval_shape(functools.partial(simulate, grid.trial), _KEY, images.arrays)
    return [Job(grid, simulate, lambda own=own: own.arrays) for grid, own in grids]


def compute(options: Options, jobs: Sequence[Job]) -> list[Result]:
    """What the store has of all jobs, once complete."""
    return [Result(job.grid.trial, run(options, job)) for job in jobs]


def simulate(trial: Trial, key: PRNGKeyArray, images: Arrays) -> dict[str, Array]:
    """One trial: data, one run from one random start, tests along the way, by `DIMS`.

    The key, that of all trials, is folded with the repetition and splits into the
    data's key and the run's, which the algorithms of one repetition share.
    """
    run_key, train, truth, test = _clients(trial, key, images)
    task = task_of(trial, images.train_inputs.shape[1:])
    if trial.algorithm == "local":
        scores = _local_accuracies(task, trial, run_key, train, truth.clusters, test)
        tests = trial.num_rounds // trial.rounds_between
        return {name: jnp.zeros(tests) for name in ("received", "sent")} | {
            name: scores.get(name, jnp.full((tests,) * len(own), jnp.nan))
            for name, own in DIMS.items()
            if name not in ("received", "sent")
        }
    algorithm, models_of = algorithm_of(task, trial)
    chunk = trial.clients_per_chunk

    def score(test: ClientData, state: Any) -> dict[str, Array]:
        best = accuracy_of_best(task, models_of(state), test, clients_per_chunk=chunk)
        return {
            "accuracy": best.own_labels,
            "held_out": best.held_out,
            "last_cluster": jnp.full((), jnp.nan),
        }

    return _run(trial, algorithm, run_key, train, truth, Partial(score, test))


def identities(trial: Trial, key: PRNGKeyArray, images: Arrays) -> dict[str, Array]:
    """IFCA like `simulate`, in which nothing is tested, by `IDENTITY_DIMS`. Estimates
    in round t are made with the models at the end of the round before.
    """
    run_key, train, truth, _ = _clients(trial, key, images)
    task = task_of(trial, images.train_inputs.shape[1:])
    algorithm, _ = algorithm_of(task, trial)
    return _run(trial, algorithm, run_key, train, truth, lambda state: {})


def _run(
    trial: Trial,
    algorithm: Algorithm,
    key: PRNGKeyArray,
    train: ClientData,
    truth: Truth,
    test: Callable[[Any], dict[str, Array]],
) -> dict[str, Array]:
    """What tests find along the run, clusters in the rounds before them, and of its
    start; NaN where none was filtered."""

    def observe(truth: Truth, state: Any, info: Any) -> dict[str, Array]:
        del state
        return _clusters_found(trial, info, truth)

    final, seen, tests = run_with_tests(
        trial, algorithm, key, train, observe=Partial(observe, truth), test=test
    )
    trace = tests | at_tests(trial, seen)
    if not isinstance(final, Started):
        start = {name: jnp.full((), jnp.nan) for name in ("start_draws", "start_share")}
    else:
        draws = final.draws.astype(jnp.float32)
        start = {"start_draws": draws, "start_share": final.share}
    return trace | start


def _clients(
    trial: Trial, key: PRNGKeyArray, images: Arrays
) -> tuple[PRNGKeyArray, ClientData, Truth, ClientData]:
    """The run's key, training clients with their clusters, and test clients."""
    repetition = jnp.asarray(trial.repetition).astype(jnp.uint32)
    data_key, run_key = jax.random.split(jax.random.fold_in(key, repetition))
    train, truth, test, _ = rotated(
        Images(*images, source=trial.images),
        key=data_key,
        **study.fields(trial, *SIZES),
    )
    return run_key, train, truth, test


def _clusters_found(trial: Trial, info: Any, truth: Truth) -> dict[str, Array]:
    """How well the participants' clusters of IFCA agree with the rotations, and what
    was sent."""
    traffic = {
        "received": metrics.mebibytes(info.received),
        "sent": metrics.mebibytes(info.sent),
    }
    if trial.algorithm != "ifca":
        names = ("matched_accuracy", "rand_index", "used_clusters")
        return {name: jnp.full((), jnp.nan) for name in names} | traffic
    k = trial.num_clusters
    (present,) = jnp.nonzero(info.received, size=trial.num_participants)
    chosen, rotations = info.assignment[present], truth.clusters[present]
    return {
        "matched_accuracy": metrics.matched_accuracy(chosen, rotations, k),
        "rand_index": metrics.adjusted_rand_index(chosen, rotations, k),
        "used_clusters": metrics.num_used_clusters(chosen, k).astype(jnp.float32),
    } | traffic


def task_of(trial: Trial, input_shape: Sequence[int]) -> Task:
    """The network of a trial. "mlp" is the perceptron of Rotated MNIST; "code" and
    "text" are those of `models.rotated_cifar_cnn`, and "narrow" stands in for them
    where time is short: two 5 x 5 convolutions of `num_channels` and twice as many
    channels and one hidden layer, on standardised random windows of colour images,
    mirrored or not.
    """
    if trial.network == "mlp":
        return mlp(input_shape, hidden=(trial.num_hidden,))
    if trial.network != "narrow":
        return rotated_cifar_cnn(variant=trial.network)
    is_colour = len(input_shape) == 3
    task = cnn(
        (_WINDOW, _WINDOW, input_shape[2]) if is_colour else input_shape,
        channels=(trial.num_channels, 2 * trial.num_channels),
        hidden=(trial.num_hidden,),
    )
    if not is_colour:
        return task
    return windowed(task, input_shape=input_shape, window=_WINDOW)


def algorithm_of(
    task: Task, trial: Trial
) -> tuple[Algorithm, Callable[[Any], Stacked]]:
    """The algorithm of a trial, and how to find stacked models in its state."""
    settings = {
        "step_size": trial.step_size,
        "num_steps": trial.num_steps or 1,
        "update": LocalUpdate(
            batch_size=trial.batch_size or None,
            num_epochs=trial.num_epochs or None,
            decay=trial.decay,
            clients_per_chunk=trial.clients_per_chunk,
        ),
    }
    if trial.algorithm == "local":
        return local(task, **settings), lambda state: state.models
    share = trial.num_participants / trial.num_clients
    if trial.algorithm == "fedavg":
        stack = lambda leaf: leaf[None]
        # Weighed as IFCA weighs them.
        algorithm = fedavg(task, weights="clients", participation=share, **settings)
        return algorithm, lambda state: jax.tree.map(stack, state.model)
    k = trial.num_clusters
    algorithm = ifca(
        task, num_clusters=k, option="model", participation=share, **settings
    )
    if trial.start == "paper":
        return algorithm, lambda state: state.models
    started = with_balanced_start(
        algorithm,
        task,
        lambda state: state.models,
        participation=share,
        least_share=LEAST_SHARE[k],
        clients_per_chunk=trial.clients_per_chunk,
    )
    return started, lambda now: now.state.models


class Started(NamedTuple):
    """The state of an algorithm, and how it was started."""

    state: Any
    draws: Int[Array, ""]  # starts that were drawn, the accepted one among them
    # Of the sampled clients in the smallest cluster of the start that is used; below
    # what was asked for if no draw was good enough.
    share: Float[Array, ""]


def with_balanced_start(
    algorithm: Algorithm,
    task: Task,
    models_of: Callable[[Any], Stacked],
    *,
    participation: float,
    least_share: float,
    most_draws: int = MOST_DRAWS,
    clients_per_chunk: int | None = None,
) -> Algorithm:
    """The algorithm, started anew until some clients choose all of its models.

    For every draw a fresh sample of clients chooses the models of lowest loss; the
    first draw with at least `least_share` of the sample on every model is used, or else
    the last. No label of a cluster is needed. The first draw is the one that the
    algorithm alone would start from. The state is `Started`, in whose own state
    `models_of` finds the stacked models. Cost: a forward pass for each sampled client
    and model, for every draw.

    Source: `find_good_initializer` of the released code for Rotated CIFAR, with 35 %
    for two clusters and 10 % for four; its paper has independent random models.

    Raises:
      ValueError: where a number is out of its range.
    """
    if not 0 <= least_share <= 1:
        raise ValueError(f"`least_share` must be in [0, 1], got {least_share}.")
    if most_draws < 1:
        raise ValueError(f"`most_draws` must be at least 1, got {most_draws}.")

    def smallest_share(key: PRNGKeyArray, state: Any, data: ClientData) -> Array:
        models = models_of(state)
        _, sample = cohort(key, data, participation)
        losses = loss_matrix(task, models, sample, clients_per_chunk=clients_per_chunk)
        chosen = choose_cluster(losses)[:, None] == jnp.arange(losses.shape[1])[None, :]
        return jnp.min(jnp.mean(chosen, axis=0, dtype=losses.dtype))

    def init(key: PRNGKeyArray, data: ClientData) -> Started:
        def is_wanted(now: Started) -> Array:
            return (now.draws == 0) | (
                (now.share < least_share) & (now.draws < most_draws)
            )

        def draw(now: Started) -> Started:
            again = jax.random.fold_in(key, now.draws)
            state = algorithm.init(jnp.where(now.draws == 0, key, again), data)
            share = smallest_share(jax.random.fold_in(again, 1), state, data)
            return Started(state, now.draws + 1, share)

        zeros = lambda leaf: jnp.zeros(leaf.shape, leaf.dtype)
        state = jax.tree.map(zeros, jax.eval_shape(algorithm.init, key, data))
        nothing = Started(state, jnp.zeros((), jnp.int32), jnp.zeros(()))
        return jax.lax.while_loop(is_wanted, draw, nothing)

    def step(key: PRNGKeyArray, now: Started, data: ClientData) -> tuple[Started, Any]:
        state, info = algorithm.step(key, now.state, data)
        return now._replace(state=state), info

    predict = lambda now, *rest: algorithm.predict(now.state, *rest)
    return Algorithm(init=init, step=step, predict=predict)


class Accuracy(NamedTuple):
    """Test accuracy where each test client takes the model of lowest loss."""

    # Chosen and judged on all of its samples, as in paper and code: the choice sees the
    # labels that it is judged by.
    own_labels: Float[Array, ""]
    held_out: Float[
        Array, ""
    ]  # chosen on the first half of its samples, judged on rest


def accuracy_of_best(
    task: Task,
    models: Stacked,
    test: ClientData,
    *,
    clients_per_chunk: int | None = None,
) -> Accuracy:
    """Accuracy of the model that each test client chooses.

    Cost: a forward pass for each model and test image.
    """
    num_samples = test.mask.shape[1]
    is_first = np.arange(num_samples) < num_samples // 2

    def chosen_logits(models: Stacked, data: ClientData) -> tuple[Array, Array]:
        inputs, targets, mask = data
        clients, samples = mask.shape
        merge = lambda leaf: leaf.reshape(clients * samples, *leaf.shape[2:])
        split = lambda leaf: leaf.reshape(-1, clients, samples, *leaf.shape[2:])
        inputs, targets = merge(inputs), merge(targets)
        # Both need the same forward pass, which is compiled once.
        losses = jax.vmap(task.losses, in_axes=(0, None, None))(models, inputs, targets)
        logits = jax.vmap(task.predict, in_axes=(0, None))(models, inputs)
        losses, logits = split(losses), split(logits)

        def of_choice(mask: Array) -> Array:
            means = masked_mean(losses, jnp.broadcast_to(mask, losses.shape))
            # Without any finite loss a client has chosen -1, and is wrong by any model.
            return logits[jnp.maximum(choose_cluster(means.T), 0), jnp.arange(clients)]

        return of_choice(mask), of_choice(mask & is_first[None, :])

    whole, half = clients_in_chunks(chosen_logits, models, test, clients_per_chunk)
    return Accuracy(
        metrics.accuracy(whole, test.targets, test.mask),
        metrics.accuracy(half, test.targets, test.mask & ~is_first[None, :]),
    )


def accuracy_of_each(
    task: Task,
    models: Stacked,
    clusters: Int[Array, " models"],
    test: ClientData,
    num_clusters: int,
    *,
    clients_per_chunk: int | None = None,
) -> Float[Array, " models"]:
    """Accuracy of each model on all test clients of one cluster, which are consecutive.
    Cost: a forward pass for each model and test image of its cluster.
    """
    by_cluster = lambda leaf: leaf.reshape(num_clusters, -1, *leaf.shape[1:])

    def of_model(tests: ClientData, model: PyTree, cluster: Array) -> Array:
        # One test client at a time, whose images stay in cache.
        logits = jax.lax.map(
            lambda client: task.predict(model, tests.inputs[cluster, client]),
            jnp.arange(tests.mask.shape[1]),
        )
        return metrics.accuracy(logits, tests.targets[cluster], tests.mask[cluster])

    tests = jax.tree.map(by_cluster, test)
    return over_clients(of_model, None, clients_per_chunk)(tests, models, clusters)


def _local_accuracies(
    task: Task,
    trial: Trial,
    key: PRNGKeyArray,
    train: ClientData,
    clusters: Int[Array, " clients"],
    test: ClientData,
) -> dict[str, Float[Array, " tests"]]:
    """Mean accuracy of local models after some rounds, on test clients of the own
    cluster, consecutive, and of `num_released` models on the last one's.
    """
    k, size, number = trial.num_clusters, _group_size(trial), trial.num_rounds
    num_groups = trial.num_local_clients // size
    own, _ = algorithm_of(task, trial)
    clients, is_released = _in_order(trial)
    by_group = lambda leaf: leaf.reshape(num_groups, size, *leaf.shape[1:])
    if clients is not None:
        train, clusters = jax.tree.map(lambda leaf: leaf[clients], (train, clusters))
    train, clusters, is_released = jax.tree.map(
        by_group, (train, clusters, is_released)
    )

    def score(
        clusters: Int[Array, "groups models"],
        is_released: Bool[Array, "groups models"],
        test: ClientData,
        state: InTurn,
    ) -> dict[str, Float[Array, " models"]]:
        group = (state.rounds - 1) // number
        each = functools.partial(
            accuracy_of_each,
            task,
            state.own.models,
            test=test,
            num_clusters=k,
            clients_per_chunk=trial.clients_per_chunk,
        )
        last = lambda: each(jnp.full(size, k - 1))
        found, nothing = {"accuracy": each(clusters[group])}, lambda: jnp.zeros(size)
        if trial.num_released:
            some = jnp.any(is_released[group])
            found["last_cluster"] = jax.lax.cond(some, last, nothing)
        return found

    in_turn = groups_in_turn(own, num_groups, number, trial.rounds_between)
    lanes = jax.tree.map(_one_after_the_other, train)
    *_, tests = run_with_tests(
        dataclasses.replace(trial, num_rounds=num_groups * number),
        in_turn,
        key,
        lanes,
        observe=_nothing,
        test=Partial(score, clusters, is_released, test),
        state=in_turn.init(key, lanes),
    )
    # [groups, tests, models]
    every = jax.tree.map(lambda leaf: leaf.reshape(num_groups, -1, size), tests)
    means = {"accuracy": jnp.mean(every["accuracy"], axis=(0, 2))}
    if trial.num_released:
        released = jnp.where(is_released[:, None], every["last_cluster"], 0)
        means["last_cluster"] = jnp.sum(released, axis=(0, 2)) / trial.num_released
    return means


def _nothing(state: Any, info: Any) -> tuple[()]:
    del state, info
    return ()


def _one_after_the_other(leaf: Array) -> Array:
    """Of leaves `[groups, clients, samples, ...]` those of `groups_in_turn`."""
    groups, clients, samples, *rest = leaf.shape
    return jnp.moveaxis(leaf, 0, 1).reshape(clients, groups * samples, *rest)


class InTurn(NamedTuple):
    """The state of the group whose turn it is.

    key: of all groups.
    rounds: that are behind all of them together.
    own: the state of the algorithm.
    """

    key: PRNGKeyArray
    rounds: Int[Array, ""]
    own: Any


def groups_in_turn(
    algorithm: Algorithm, num_groups: int, num_rounds: int, rounds_between: int
) -> Algorithm:
    """Runs of an algorithm on groups of as many clients, one group after the other, as
    one run of as many rounds as all have.

    Only one group's models are kept at a time, and the run can be cut and go on in any
    round of any group. The data's clients are those of one group, and the samples of
    the groups lie one after the other, so that clients can be spread over devices.
    Group g has the rounds that `study.run_with_tests` has of the key folded with g.
    Nothing is left of a group that is done but what tests saw of it.

    Args:
      algorithm: of one group.
      num_groups: divides the number of samples.
      num_rounds: of each group.
      rounds_between: from one test to the next.
    """
    round_key = study.round_key_of(rounds_between)

    def keys(key: PRNGKeyArray, group: Array) -> Key[Array, "2"]:
        return jax.random.split(jax.random.fold_in(key, group))

    def part(data: ClientData, group: Array) -> ClientData:
        size = data.mask.shape[1] // num_groups
        cut = functools.partial(jax.lax.dynamic_slice_in_dim, slice_size=size, axis=1)
        return jax.tree.map(lambda leaf: cut(leaf, group * size), data)

    def init(key: PRNGKeyArray, data: ClientData) -> InTurn:
        first = jnp.zeros((), jnp.int32)
        own = algorithm.init(keys(key, first)[0], part(data, first))
        return InTurn(key, first, own)

    def step(key: PRNGKeyArray, now: InTurn, data: ClientData) -> tuple[InTurn, Any]:
        del key  # Groups have keys of their own.
        group, since = now.rounds // num_rounds, now.rounds % num_rounds
        init_key, rounds_key = keys(now.key, group)
        clients = part(data, group)
        start = lambda: algorithm.init(init_key, clients)
        own = jax.lax.cond(since == 0, start, lambda: now.own)
        own, info = algorithm.step(round_key(rounds_key, since), own, clients)
        return InTurn(now.key, now.rounds + 1, own), info

    return Algorithm(init, step, lambda now, *rest: algorithm.predict(now.own, *rest))


def _group_size(trial: Trial) -> int:
    """Clients of a group: as many as a chunk may have, and as many in each group."""
    sizes = range(min(trial.clients_per_chunk, trial.num_local_clients), 0, -1)
    return next(size for size in sizes if trial.num_local_clients % size == 0)


def _in_order(
    trial: Trial,
) -> tuple[Int[Array, " models"] | None, Bool[Array, " models"]]:
    """The clients that train models, those tested as released first, and which are.

    Evenly spaced over the clusters; None for all clients, which need not be copied.
    """
    number, released = trial.num_local_clients, trial.num_released
    is_released = jnp.arange(number) < released
    if not released and number == trial.num_clients:
        return None, is_released
    spaced = jnp.arange(number) * trial.num_clients // number
    first = jnp.zeros(number, bool)
    if released:
        first = first.at[jnp.arange(released) * number // released].set(True)
    return spaced[jnp.argsort(~first, stable=True)], is_released
