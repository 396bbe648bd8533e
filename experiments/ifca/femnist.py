"""One trial of IFCA's FEMNIST experiment (section 6.3, Table 2), in two variants.

- paper, section 4.3: all layers but the last are trained by all participants
  together, the last layer by each cluster, everything from a random start.
- reference, as released: one model is pretrained by FedAvg, all its layers but the last
  are frozen, random groups of clients warm the last layers up, then they are trained.

Frozen layers make the same features of an image in every round: they are computed once
and the last layers are trained on them.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cfljax import engine, metrics
from cfljax.algorithms import fedavg, ifca, one_shot, oracle
from cfljax.base import Algorithm, ClientData, Stacked, Task, check_member, take
from cfljax.federated import (
    LocalUpdate,
    Shared,
    choose_cluster,
    client_losses,
    clients_in_chunks,
    cohort,
    local_descent,
    merge_shared,
    split,
)
from cfljax.losses import cross_entropy
from cfljax.models import cnn, mlp
from experiments.checks import check_divides
from experiments.study import run_with_tests

Variant = Literal["paper", "reference"]
Name = Literal["ifca", "one_shot", "fedavg", "local"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # of all test samples, after the round
    "used_clusters": ("round",),  # models that some client has
    "is_finite": ("round",),  # 1 unless a parameter diverged
    "received": ("round",),  # MiB from the centre in a round, mean since the last test
    "sent": ("round",),  # MiB to the centre, likewise
}
PRETRAINED_DIMS = DIMS | {"parameters": ("parameter",)}  # after the last round

# Both bound memory, of participants' losses and of evaluations, and change no result.
CLIENTS_AT_ONCE = 3
SAMPLES_AT_ONCE = 256


class Method(NamedTuple):
    """A row of the table."""

    name: Name  # of the algorithm
    num_clusters: int  # k; 1 where the algorithm has no clusters

    def algorithm(
        self,
        task: Task,
        *,
        shared: Shared | None,
        first: Task,
        num_first_steps: int,
        first_step_size: Any,
        **settings: Any,
    ) -> Algorithm:
        """The algorithm, averaging models weighted by samples. `first` and the two
        after it are one-shot clustering's line 1; `settings` are every algorithm's.
        """
        if self.name == "local":
            return trained_alone(task, **settings)
        if self.name == "fedavg":
            return fedavg(task, **settings)
        settings |= {"num_clusters": self.num_clusters, "shared": shared}
        settings["weights"] = "samples"
        if self.name == "ifca":
            return ifca(task, option="model", **settings)
        return one_shot(
            task,
            local_task=first,
            local_step_size=first_step_size,
            num_local_steps=num_first_steps,
            **settings,
        )


def method_of(text: str) -> Method:
    """The method of a text such as "ifca-2", "one_shot-3", "fedavg" or "local".

    Raises:
      ValueError: if it is none of these, or has less than one cluster.
    """
    if text == "fedavg" or text == "local":
        return Method(text, 1)
    name, _, number = text.partition("-")
    if (name == "ifca" or name == "one_shot") and number.isdigit() and int(number):
        return Method(name, int(number))
    raise ValueError(
        "a method must be fedavg, local, or ifca or one_shot with a number of "
        f"clusters, such as ifca-2; got {text!r}."
    )


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    Fields that the configuration has too mean the same (`table2_femnist`).

    pretraining_rounds, pretraining_participants: of the frozen layers; 0 with "paper".
    """

    variant: Variant  # "paper" or "reference"; see this module
    method: str  # a text that `method_of` understands
    checksum: str  # of the clients' samples, which tells other data apart
    num_classes: int
    num_channels: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    num_participants: int
    batch_size: int
    num_epochs: int
    step_size: float
    pretraining_rounds: int
    pretraining_participants: int
    warm_up_rounds: int  # of random groups before IFCA's first round; 0 with "paper"
    num_first_steps: int
    first_step_size: float
    repetition: int  # seed, traced: repetitions share a program, yet are stored alone

    def __post_init__(self) -> None:
        check_member(Variant, variant=self.variant)
        method_of(self.method)
        check_divides(self, "rounds_between", "num_rounds")


class Samples(NamedTuple):
    """Real samples of all clients."""

    inputs: Array  # [samples, ...], those of a client consecutive
    targets: Int[Array, " samples"]
    owners: Int[Array, " samples"]  # the client of each
    places: Int[Array, "clients most"]  # of each client's samples; 0 beyond its last
    mask: Bool[Array, "clients most"]  # false beyond a client's last sample

    @classmethod
    def of(cls, data: ClientData) -> "Samples":
        """The real samples of padded clients."""
        inputs, targets, mask = (np.asarray(leaf) for leaf in data)
        owners = np.nonzero(mask)[0]
        places = np.zeros(mask.shape, np.int32)
        places[mask] = np.arange(len(owners))
        return cls(
            jnp.asarray(inputs[mask]),
            jnp.asarray(targets[mask]),
            jnp.asarray(owners.astype(np.int32)),
            jnp.asarray(places),
            jnp.asarray(mask),
        )


class Inputs(NamedTuple):
    """What all trials share: samples of the same clients, and flat pretrained models,
    None with variant "paper"."""

    train: Samples
    test: Samples
    pretrained: Float[Array, "repetitions parameters"] | None = None


def simulate(trial: Trial, key: PRNGKeyArray, inputs: Inputs) -> dict[str, Array]:
    """One run from one random start, tests along the way: the arrays of `DIMS`. The
    key, folded with the repetition, splits into those of pretraining, warm-up and run.
    """
    return trained(trial, key, inputs)[1]


def trained(
    trial: Trial, key: PRNGKeyArray, inputs: Inputs
) -> tuple[Any, dict[str, Array]]:
    """Final state of a run and the arrays of `DIMS`, NaN where pretraining diverged.

    The methods of one repetition share participants and the order of their samples.
    """
    _, warm_key, run_key = _keys(trial, key)
    problem = _problem(trial, inputs)
    method = method_of(trial.method)
    shared = is_shared if trial.variant == "paper" else None
    data = padded(problem.train)
    settings = _settings(trial, inputs)
    image_shape = inputs.train.inputs.shape[1:]
    algorithm = method.algorithm(
        problem.task,
        shared=shared,
        first=mlp(image_shape, hidden=(), num_classes=trial.num_classes),
        num_first_steps=trial.num_first_steps,
        first_step_size=trial.first_step_size,
        **settings,
    )
    if method.name == "one_shot":
        # Concrete images would be checked as data of the task, which may be the last
        # layer; what comes out of the barrier is traced, as the start is.
        plain, images = algorithm, problem.start
        barrier = jax.lax.optimization_barrier
        algorithm = plain._replace(init=lambda key, _: plain.init(key, barrier(images)))
    if method.name == "ifca" and trial.warm_up_rounds:
        models = _warm_models(trial, warm_key, method, problem.task, data, settings)
        algorithm = _started_at(algorithm, models)
    state, trace = _run(trial, run_key, method, algorithm, problem, shared)
    keep = lambda values: jnp.where(problem.is_defined, values, jnp.nan)
    return state, jax.tree.map(keep, trace)


def pretrain(trial: Trial, key: PRNGKeyArray, inputs: Inputs) -> dict[str, Array]:
    """One model of all clients: the arrays of `PRETRAINED_DIMS`.

    The trial is of variant "paper" and method "fedavg", with pretraining's rounds.
    """
    pretraining_key, _, _ = _keys(trial, key)
    problem = _problem(trial, inputs)
    method = method_of(trial.method)
    algorithm = fedavg(problem.task, **_settings(trial, inputs))
    state, trace = _run(trial, pretraining_key, method, algorithm, problem, None)
    return trace | {"parameters": ravel_pytree(state.model)[0]}


def _keys(trial: Trial, key: PRNGKeyArray) -> Array:
    repetition = jnp.asarray(trial.repetition).astype(jnp.uint32)
    return jax.random.split(jax.random.fold_in(key, repetition), 3)


class Problem(NamedTuple):
    """What is learned, from what."""

    task: Task  # the network, or its last layer
    train: Samples
    test: Samples
    start: ClientData  # images that one-shot clustering starts with
    is_defined: Array  # whether pretraining went well


def _problem(trial: Trial, inputs: Inputs) -> Problem:
    """The network on images, or its last layer on what frozen layers make of them."""
    sizes = {"num_channels": trial.num_channels, "num_hidden": trial.num_hidden}
    task = _network(trial, inputs)
    start = padded(inputs.train)
    if inputs.pretrained is None:
        return Problem(task, inputs.train, inputs.test, start, jnp.asarray(True))
    flat = inputs.pretrained[jnp.asarray(trial.repetition).astype(jnp.int32)]
    _, unravel = ravel_pytree(task.init(jax.random.key(0)))  # For the form only.
    params = unravel(flat)
    train, test = (
        samples._replace(inputs=features(params, samples.inputs, **sizes))
        for samples in (inputs.train, inputs.test)
    )
    return Problem(head(task), train, test, start, jnp.all(jnp.isfinite(flat)))


def _network(trial: Trial, inputs: Inputs) -> Task:
    sizes = {"num_channels": trial.num_channels, "num_hidden": trial.num_hidden}
    return network(inputs.train.inputs.shape[1:], classes=trial.num_classes, **sizes)


def num_parameters(trial: Trial, inputs: Inputs) -> int:
    """How many a pretrained model has, on such images."""
    params = jax.eval_shape(_network(trial, inputs).init, jax.random.key(0))
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _settings(trial: Trial, inputs: Inputs) -> dict[str, Any]:
    """What all algorithms are trained with."""
    return {
        "step_size": trial.step_size,
        "participation": trial.num_participants / inputs.train.mask.shape[0],
        "update": LocalUpdate(
            batch_size=trial.batch_size,
            num_epochs=trial.num_epochs,
            clients_per_chunk=CLIENTS_AT_ONCE,
        ),
    }


def _warm_models(
    trial: Trial,
    key: PRNGKeyArray,
    method: Method,
    task: Task,
    data: ClientData,
    settings: dict[str, Any],
) -> Stacked:
    """Models of random groups of clients, as equal in size as can be."""
    group_key, run_key = jax.random.split(key)
    num_clients, k = data.mask.shape[0], method.num_clusters
    forced = oracle(
        task,
        clusters=jax.random.permutation(group_key, num_clients) % k,
        num_clusters=k,
        option="model",
        weights="samples",
        **settings,
    )
    state, _ = engine.run(
        forced, run_key, data, num_rounds=trial.warm_up_rounds, observe=None
    )
    return state.models


def _started_at(algorithm: Algorithm, models: Stacked) -> Algorithm:
    """The algorithm from given models."""
    init = lambda key, data: algorithm.init(key, data)._replace(models=models)
    return algorithm._replace(init=init)


def _run(
    trial: Trial,
    key: PRNGKeyArray,
    method: Method,
    algorithm: Algorithm,
    problem: Problem,
    shared: Any,
) -> tuple[Any, dict[str, Array]]:
    """Final state, and the arrays of `DIMS`."""

    def observe(state: Any, info: Any) -> dict[str, Array]:
        del state
        names = ("received", "sent")
        return {name: metrics.mebibytes(getattr(info, name)) for name in names}

    def test(state: Any) -> dict[str, Array]:
        own = problem.task, state, problem.train, problem.test
        return score(method, *own, shared)._asdict()

    state, traffic, scores = run_with_tests(
        trial, algorithm, key, padded(problem.train), observe=observe, test=test
    )
    between = lambda rows: rows.reshape(-1, trial.rounds_between)  # Tests.
    return state, scores | {n: between(r).mean(axis=1) for n, r in traffic.items()}


class Alone(NamedTuple):
    """State of `trained_alone`: leaves `[clients, ...]`."""

    models: Stacked


class NoTraffic(NamedTuple):
    """Info of `trained_alone`: nothing is sent."""

    received: Int[Array, " clients"]
    sent: Int[Array, " clients"]


def trained_alone(
    task: Task, *, step_size: Any, participation: float, update: LocalUpdate
) -> Algorithm:
    """Local models that train only in the rounds in which their client is drawn.

    As in the released code; `cfljax.algorithms.local` trains everybody in each round.
    """

    def init(key: PRNGKeyArray, data: ClientData) -> Alone:
        return Alone(jax.vmap(task.init)(jax.random.split(key, data.mask.shape[0])))

    def step(
        key: PRNGKeyArray, state: Alone, data: ClientData
    ) -> tuple[Alone, NoTraffic]:
        clients, present = cohort(key, data, participation)
        trained, _ = local_descent(
            task,
            take(state.models, clients),
            present,
            key=key,
            step_size=step_size,
            num_steps=1,
            update=update,
            clients=clients,
        )
        put = lambda old, new: old.at[clients].set(new)
        nothing = jnp.zeros(data.mask.shape[0], jnp.int32)
        return Alone(jax.tree.map(put, state.models, trained)), NoTraffic(
            received=nothing, sent=nothing
        )

    def predict(state: Alone, data: ClientData, inputs: Array) -> Array:
        del data
        return jax.vmap(task.predict)(state.models, inputs)

    return Algorithm(init=init, step=step, predict=predict)


class Score(NamedTuple):
    """How good the models are after a round."""

    accuracy: Float[Array, ""]  # of all test samples, each under its client's model
    used_clusters: Float[Array, ""]  # models that some client has; NaN for local ones
    # Whether all parameters are; an average leaves out clients whose are not.
    is_finite: Float[Array, ""]


def _is_right(task: Task) -> Callable[[PyTree, Array, Array], Array]:
    """1 for a sample whose predicted class is the target, else 0; NaN is wrong."""

    def right(params: PyTree, inputs: Array, targets: Array) -> Array:
        logits = task.predict(params, inputs)
        defined = ~jnp.any(jnp.isnan(logits), axis=1)
        return ((jnp.argmax(logits, axis=1) == targets) & defined).astype(logits.dtype)

    return right


def score(
    method: Method,
    task: Task,
    state: Any,
    train: Samples,
    test: Samples,
    shared: Shared | None,
) -> Score:
    """Accuracy on the test samples, as the released code counts it.

    IFCA's clients take the model of lowest training loss, and none, hence wrong
    answers, if no loss is finite. Cost: a forward pass of the common layers for each
    sample, and of the others for each sample and model; test samples only where nothing
    is chosen.
    """
    if method.name == "local":
        return _score_alone(task, state.models, test)
    models = (
        jax.tree.map(lambda leaf: leaf[None], state.model)
        if method.name == "fedavg"
        else state.models
    )
    own, common = split(models, shared)
    common = jax.tree.map(lambda leaf: leaf[0], common)
    if method.name == "one_shot":
        choice = state.clusters
    elif method.name == "fedavg":
        choice = jnp.zeros(train.mask.shape[0], jnp.int32)
    else:
        losses = _per_sample(task.losses, own, common, train)
        choice = choose_cluster(mean_of_clients(losses, train))
    right = _per_sample(_is_right(task), own, common, test)
    chosen = choice[test.owners]
    right = jnp.take_along_axis(right, jnp.maximum(chosen, 0)[:, None], axis=1)[:, 0]
    used = metrics.num_used_clusters(choice, method.num_clusters)
    return Score(
        accuracy=jnp.mean(jnp.where(chosen >= 0, right, 0)),
        used_clusters=used.astype(right.dtype),
        is_finite=_is_finite(models),
    )


def _score_alone(task: Task, models: Stacked, test: Samples) -> Score:
    """Score of one model for each client."""
    shares = client_losses(task._replace(losses=_is_right(task)), models, padded(test))
    counts = jnp.sum(test.mask, axis=1, dtype=shares.dtype)
    accuracy = jnp.sum(shares * counts) / jnp.sum(counts)
    return Score(accuracy, jnp.full((), jnp.nan), _is_finite(models))


def _is_finite(models: Stacked) -> Float[Array, ""]:
    """1 if all parameters are finite, else 0."""
    each = [jnp.all(jnp.isfinite(leaf)) for leaf in jax.tree.leaves(models)]
    return jnp.all(jnp.stack(each)).astype(jnp.result_type(float))


def network(
    input_shape: tuple[int, ...], *, num_channels: int, num_hidden: int, classes: int
) -> Task:
    """Two convolutions, each with a pool, and two linear layers.

    32 channels and 2048 hidden units make it `models.femnist_cnn`.
    """
    return cnn(
        input_shape,
        channels=(num_channels, 2 * num_channels),
        hidden=(num_hidden,),
        num_classes=classes,
        initialiser="glorot",
    )


def is_shared(name: str) -> bool:
    """Whether all clusters have a leaf in common: all but the last layer's."""
    return not name.startswith("output/")


def features(
    params: PyTree,
    inputs: Float[Array, "samples ..."],
    *,
    num_channels: int,
    num_hidden: int,
) -> Float[Array, "samples hidden"]:
    """What the last layer of a network of these sizes sees of each image."""
    # The logits of a last layer that passes on what it sees.
    task = network(
        inputs.shape[1:],
        num_channels=num_channels,
        num_hidden=num_hidden,
        classes=num_hidden,
    )
    passing = {"kernel": jnp.eye(num_hidden), "bias": jnp.zeros(num_hidden)}
    params = params | {"output": passing}
    return clients_in_chunks(task.predict, params, inputs, SAMPLES_AT_ONCE)


def head(task: Task) -> Task:
    """The last layer of a network, on `features` instead of images; params are those of
    `federated.split(params, is_shared)[0]`, drawn as the network draws them.
    """

    def predict(params: PyTree, inputs: Array) -> Array:
        last = params["output"]
        return jnp.matmul(inputs, last["kernel"]) + last["bias"][None, :]

    return Task(
        init=lambda key: split(task.init(key), is_shared)[0],
        losses=lambda params, inputs, targets: cross_entropy(
            predict(params, inputs), targets
        ),
        predict=predict,
    )


def padded(samples: Samples) -> ClientData:
    """Clients that can train; what pads them are copies of the first sample."""
    targets = jnp.where(samples.mask, samples.targets[samples.places], 0)
    return ClientData(samples.inputs[samples.places], targets, samples.mask)


def _per_sample(
    function: Callable[[PyTree, Array, Array], Array],
    models: Stacked,
    common: PyTree,
    samples: Samples,
) -> Float[Array, "samples clusters"]:
    """A value of every sample under every model, which lacks what is `common`, computed
    once (None for nothing). Cost: a forward pass for each pair, spread over devices.
    """

    def chunk(parts: tuple, rows: tuple) -> Array:
        models, common = parts
        of_model = lambda model: function(merge_shared(model, common), *rows)
        return jax.vmap(of_model)(models).T

    rows = (samples.inputs, samples.targets)
    return clients_in_chunks(chunk, (models, common), rows, SAMPLES_AT_ONCE)


def mean_of_clients(
    values: Float[Array, "samples clusters"], samples: Samples
) -> Float[Array, "clients clusters"]:
    """Mean over each client's samples; NaN for a client without any."""
    totals = jax.ops.segment_sum(values, samples.owners, samples.mask.shape[0])
    return totals / jnp.sum(samples.mask, axis=1, dtype=values.dtype)[:, None]
