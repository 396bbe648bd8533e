"""What every registered algorithm is tried on, and what is special about some."""

import collections
import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import once

from cfljax.algorithms import REGISTRY
from cfljax.attacks import build as attack
from cfljax.attacks import threat
from cfljax.base.types import Algorithm
from cfljax.cards import Sizes
from cfljax.data import mixed_linear
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.sharing import paths
from cfljax.federated.traffic import num_bytes
from cfljax.models import linear, mlp, normalised

CLIENTS, CLUSTERS, SAMPLES, FEATURES, CLASSES = 6, 2, 8, 5, 3
HIDDEN = 4  # Features of a prototype.
NAMES = sorted(REGISTRY)

# Who is tried in the default run. The others train by the rounds of these, and have
# tests of their own: what all must keep to is tried of them in the long one.
TRIED = ("clove", "federated_clustering", "fedavg", "ifca", "momentum_clustering")

SIZES = Sizes(num_clients=CLIENTS, num_clusters=CLUSTERS)
# The server finds clusters and numbers them by chance, or by members: who is with whom.
UNLABELLED = {"emd_cfl", "flux", "myopic_clustering", "stocfl"}
# A newcomer's answers follow from the key and its place among the newcomers.
DRAWS_TO_JOIN = {"local"}
# All newcomers answer with one model, though there may be several: nothing is split
# yet, nobody drifted yet, or all momenta of the first round are in one ball.
ANSWERS_ALIKE = {"cfl_s", "feddrift", "icfl", "momentum_clustering"}
# Clients may keep no optimiser.
FORGETFUL = {"rr_cluster"}
# Samples count by exponentials of their losses: a unit in the last place of the largest
# loss, 19, is 2e-6, and changes by such a share what it adds to a gradient, about 9. In
# double precision no such allowance is made.
BY_EXPONENTIALS = ("fedem",)


def draw():
    return mixed_linear(
        jax.random.key(7),
        num_clients=CLIENTS,
        num_clusters=CLUSTERS,
        num_samples=SAMPLES,
        num_features=FEATURES,
        separation=1.0,
        noise=0.1,
    )


def draw_of(needs_classes):
    """Data of an algorithm's task: numbers, or classes where it needs them."""
    data, truth = draw()
    if needs_classes:
        targets = jnp.argmax(data.inputs[:, :, :CLASSES], axis=2)
        data = data._replace(targets=targets)
    return data, truth


@functools.cache
def drawn(needs_classes):
    """Data that all tests of the same kind of task share."""
    return jax.jit(draw_of, static_argnums=0)(needs_classes)


def has_classes(name):
    row = REGISTRY[name]
    return row.needs_classes or row.needs_layers


def problem(name="ifca"):
    return drawn(has_classes(name))


def task_of(name):
    if REGISTRY[name].needs_normalisation:
        return normalised(linear(FEATURES), (FEATURES,))
    if not has_classes(name):
        return linear(FEATURES)
    task = mlp((FEATURES,), hidden=(HIDDEN,), num_classes=CLASSES)
    # Flax draws in single precision, whatever JAX computes in.
    wide = lambda leaf: leaf.astype(jnp.result_type(float))
    return task._replace(init=lambda key: jax.tree.map(wide, task.init(key)))


def model_bytes(name):
    """Of the leaves that are sent."""
    task, keeps = task_of(name), REGISTRY[name].keeps
    params = jax.eval_shape(task.init, jax.random.key(0))
    kept = keeps(task) if keeps else lambda leaf: False
    pairs = zip(paths(params), jax.tree.leaves(params), strict=True)
    return num_bytes([leaf for own, leaf in pairs if not kept(own)])


def needed_by(name, *, clusters, num_clusters=CLUSTERS, num_classes=CLASSES):
    """Arguments without which an algorithm cannot be made, besides its task."""
    row = REGISTRY[name]
    arguments = dict(row.defaults)
    if row.clustered:
        arguments["num_clusters"] = num_clusters
    if row.needs_truth:
        arguments["clusters"] = clusters
    if row.needs_classes:
        arguments["num_classes"] = num_classes
    return arguments


def build(name, truth, **changes):
    arguments = needed_by(name, clusters=truth.clusters) | changes
    return REGISTRY[name].constructor(task_of(name), **arguments)


TRACES = collections.Counter()


@functools.cache
def compiled(name, index):
    """The functions of an algorithm, each compiled once for all tests."""
    data, truth = problem(name)
    init, step, predict = build(name, truth, **CHANGES[name][index])[:3]

    def counted(key, state, data):
        TRACES[name] += 1
        return step(key, state, data)

    key = jax.random.key(0)
    init = once(init, key, data)
    state = jax.eval_shape(init, key, data)
    run = once(counted, key, state, data, name=name)
    return Algorithm(init, run, once(predict, state, data, data.inputs))


@functools.cache
def start(name, index=0):
    return compiled(name, index).init(jax.random.key(0), problem(name)[0])


def received(name):
    """Bytes that every client receives in the second round, as the registry says."""
    row = REGISTRY[name]
    of_classes = row.of_classes(HIDDEN, SIZES)[0] if row.of_classes else 0
    return row.received(SIZES) * model_bytes(name) + CLASSES * of_classes


def sent(name):
    """Bytes that each client sends in the second round, as the registry says."""
    row = REGISTRY[name]
    whole = row.sent(SIZES) * model_bytes(name) + row.sent_besides(SIZES)
    if not row.of_classes:
        return whole
    held = [len(np.unique(labels)) for labels in problem(name)[0].targets]
    return whole + row.of_classes(HIDDEN, SIZES)[1] * np.array(held)


def unlabelled(name, result):
    """What a round left behind, clusters that are numbered anew as a matrix."""
    state, info = result
    if name in UNLABELLED:
        together = info.assignment[:, None] == info.assignment[None, :]
        info = info._replace(assignment=together)
    return state, info


def shuffled(tree, order):
    """The tree with its clients in another order; other axes have other sizes."""

    def move(leaf):
        for axis in range(getattr(leaf, "ndim", 0)):
            if leaf.shape[axis] == CLIENTS:
                leaf = np.take(np.asarray(leaf), order, axis=axis)
        return leaf

    return jax.tree.map(move, tree)


def variants(name):
    """Constructor arguments that every optional path of an algorithm is tried with."""
    accepted = inspect.signature(REGISTRY[name].constructor).parameters
    yield {}
    if "option" in accepted:
        yield {"option": "gradient"}
        yield {"option": "model", "num_steps": 3}
    model = {"option": "model"} if "option" in accepted else {}
    if "weights" in accepted:
        yield model | {"weights": "samples"}
    if "update" in accepted:
        yield model | {
            "update": LocalUpdate(
                batch_size=3,
                num_epochs=2,
                decay=0.9,
                proximal=0.1,
                optimizer=functools.partial(optax.sgd, momentum=0.9),
                keep_optimizer=name not in FORGETFUL,
            )
        }
    if "stable_rounds" in accepted:
        yield model | {"stable_rounds": 1}
    if "participation" in accepted:
        yield {"participation": 0.5}
    if "resample" in accepted:
        yield {"resample": True}
    if "num_groups" in accepted:
        momentum = {"momentum": 0.5, "variant": "reference"}
        yield {"num_groups": 2, "batch_size": 4} | momentum
    if "first_split" in accepted:
        yield {"first_split": 0, "mean_norm": 9.0, "largest_norm": 0.0}
    if "first_momentum" in accepted:
        yield {"centre_start": "warm", "num_clusters": CLUSTERS}


CHANGES = {name: list(variants(name)) for name in NAMES}  # The first one is empty.
PAIRS = [(name, index) for name in NAMES for index in range(len(CHANGES[name]))]


def several_steps():
    """Names and arguments of whoever may take several local steps in a round."""
    for name in NAMES:
        accepted = inspect.signature(REGISTRY[name].constructor).parameters
        # One normalises whatever is too large.
        if "num_steps" in accepted and name not in ("local", "fedbn"):
            model = {"option": "model"} if "option" in accepted else {}
            marks = () if name in TRIED else pytest.mark.slow
            yield pytest.param(name, model, id=name, marks=marks)
    nobody = threat(attack("sign_flip"), np.zeros(CLIENTS, bool))
    yield pytest.param("fedavg", {"threat": nobody}, id="fedavg-threat")


def case(name, index, *, is_slow=False):
    label = "-".join(map(str, CHANGES[name][index])) or "default"
    marks = () if name in TRIED else pytest.mark.long
    if is_slow or (index and name != "ifca"):
        marks = pytest.mark.slow
    return pytest.param(name, index, id=f"{name}-{label}", marks=marks)


CASES = [case(*pair) for pair in PAIRS]
EACH = [n if n in TRIED else pytest.param(n, marks=pytest.mark.long) for n in NAMES]
SWEPT = [n if n in TRIED else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
LONGER = list(several_steps())
UNHALVED = [
    case(name, index, is_slow=name not in TRIED)
    for name, index in PAIRS
    # Halving padded samples halves other samples.
    if "resample" not in CHANGES[name][index]
]
# Operation by operation takes a second and more.
EAGER = [
    case(*pair, is_slow=pair not in (("ifca", 0), ("federated_clustering", 0)))
    for pair in PAIRS
]
