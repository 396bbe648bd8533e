"""Every registered algorithm keeps the contract that the engine relies on."""

import collections
import functools
import inspect
import typing

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.algorithms import REGISTRY
from cfljax.data import mixed_linear
from cfljax.kernels.local_update import LocalUpdate
from cfljax.models import linear
from cfljax.types import Algorithm, ClientData

CLIENTS, CLUSTERS, SAMPLES, FEATURES = 6, 2, 8, 5
NAMES = sorted(REGISTRY)


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


@functools.cache
def problem():
    return jax.jit(draw)()


def build(name, truth, **changes):
    row = REGISTRY[name]
    arguments = dict(row.defaults)
    if row.clustered:
        arguments["num_clusters"] = CLUSTERS
    if row.needs_truth:
        arguments["clusters"] = truth.clusters
    arguments.update(changes)
    return row.constructor(linear(FEATURES), **arguments)


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
                keep_optimizer=True,
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
    if "first_momentum" in accepted:
        yield {"centre_start": "warm", "num_clusters": CLUSTERS}


CHANGES = {name: list(variants(name)) for name in NAMES}  # The first one is empty.
PAIRS = [(name, index) for name in NAMES for index in range(len(CHANGES[name]))]


# Whose changed arguments are tried in the default run. The others train by the rounds
# of these, and have tests of their own.
TRIED = ("clove", "federated_clustering", "fedavg", "ifca", "momentum_clustering")


def case(name, index, *, is_slow=False):
    label = "-".join(map(str, CHANGES[name][index])) or "default"
    marks = pytest.mark.slow if is_slow or (index and name not in TRIED) else ()
    return pytest.param(name, index, id=f"{name}-{label}", marks=marks)


CASES = [case(*pair) for pair in PAIRS]
SWEPT = [n if n in TRIED else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
UNHALVED = [
    case(name, index)
    for name, index in PAIRS
    # Halving padded samples halves other samples.
    if "resample" not in CHANGES[name][index]
]
# Operation by operation takes a second and more.
EAGER = [
    case(*pair, is_slow=pair not in (("ifca", 0), ("federated_clustering", 0)))
    for pair in PAIRS
]
TRACES = collections.Counter()


@functools.cache
def compiled(name, index):
    """The functions of an algorithm, each compiled once for all tests."""
    init, step, predict = build(name, problem()[1], **CHANGES[name][index])

    def counted(key, state, data):
        TRACES[name, index] += 1
        return step(key, state, data)

    return Algorithm(jax.jit(init), jax.jit(counted), jax.jit(predict))


@functools.cache
def start(name, index):
    return compiled(name, index).init(jax.random.key(0), problem()[0])


@functools.cache
def first_round(name, index):
    step = compiled(name, index).step
    return step(jax.random.key(1), start(name, index), problem()[0])


def check_fields(info, axes):
    """Each field of a NamedTuple against its annotation, axes shared by name."""
    hints = typing.get_type_hints(type(info))
    with jaxtyping.jaxtyped("context"):
        for name, size in axes.items():
            axis: typing.Any = jaxtyping.Shaped[np.ndarray, f" {name}"]
            assert isinstance(np.zeros(size), axis)
        for field, hint in hints.items():
            value = getattr(info, field)
            assert isinstance(value, hint), f"{field}: {value.shape} is not {hint}"


def close(left, right):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=1e-6), left, right
    )


@pytest.mark.parametrize(("name", "index"), CASES)
def test_contract_and_shapes(name, index):
    data, truth = problem()
    assert isinstance(build(name, truth, **CHANGES[name][index]), Algorithm)
    state = start(name, index)
    after, info = first_round(name, index)
    same = jax.tree.map(lambda a, b: a.shape == b.shape, state, after)
    assert jax.tree.all(same), "a round must not change the shapes of the state"
    check_fields(info, {"clients": CLIENTS, "clusters": CLUSTERS})
    predict = compiled(name, index).predict
    if index:  # Its shapes are known without compiling it.
        predict = functools.partial(jax.eval_shape, predict)
    assert predict(after, data, data.inputs).shape == (CLIENTS, SAMPLES)


def test_the_shape_check_can_fail():
    _, info = first_round("ifca", 0)
    with pytest.raises(AssertionError):
        check_fields(
            info._replace(losses=info.losses.T), {"clients": CLIENTS, "clusters": 2}
        )


@pytest.mark.parametrize(("name", "index"), EAGER)
def test_jit_against_itself_eager(name, index):
    data, truth = problem()
    algorithm = build(name, truth, **CHANGES[name][index])
    eager = algorithm.step(jax.random.key(1), start(name, index), data)
    close(eager, first_round(name, index))


@pytest.mark.parametrize("name", NAMES)
def test_second_call_does_not_recompile(name):
    state, _ = first_round(name, 0)
    before = TRACES[name, 0]
    compiled(name, 0).step(jax.random.key(2), state, problem()[0])
    assert TRACES[name, 0] == before > 0
    shorter = jax.tree.map(lambda leaf: leaf[:, 1:], problem()[0])
    jax.eval_shape(compiled(name, 0).step, jax.random.key(2), state, shorter)
    assert TRACES[name, 0] == before + 1, "control: other shapes are traced anew"


@pytest.mark.parametrize("name", SWEPT)
def test_step_size_may_be_swept(name):
    data, truth = problem()

    def one(step_size):
        algorithm = build(name, truth, step_size=step_size)
        state = algorithm.init(jax.random.key(0), data)
        return algorithm.step(jax.random.key(1), state, data)[0]

    both = jax.jit(lambda step_sizes: (jax.vmap(one)(step_sizes), one(0.1)))
    swept, alone = both(jnp.array([0.05, 0.1]))
    close(jax.tree.map(lambda leaf: leaf[1], swept), alone)


def unlabelled(name, result):
    """Clusters that are numbered anew in every round, as who is with whom."""
    state, info = result
    if name == "myopic_clustering":
        together = info.assignment[:, None] == info.assignment[None, :]
        info = info._replace(assignment=together)
    return state, info


@pytest.mark.parametrize("name", NAMES)
def test_client_permutation_equivariance(name):
    data, truth = problem()
    order = np.array([3, 0, 5, 1, 4, 2])

    def move(leaf):
        # Axes of other kinds have other sizes.
        for axis in range(getattr(leaf, "ndim", 0)):
            if leaf.shape[axis] == CLIENTS:
                leaf = jnp.take(leaf, order, axis=axis)
        return leaf

    step = compiled(name, 0).step
    if REGISTRY[name].needs_truth:
        moved = truth._replace(clusters=move(truth.clusters))
        step = jax.jit(build(name, moved).step)
    moved_state, moved_data = jax.tree.map(move, (start(name, 0), data))
    found = unlabelled(name, step(jax.random.key(1), moved_state, moved_data))
    close(found, jax.tree.map(move, unlabelled(name, first_round(name, 0))))


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_whole_models(name):
    state, _ = first_round(name, 0)
    _, info = compiled(name, 0).step(jax.random.key(2), state, problem()[0])
    model = FEATURES * 4
    of_all_clusters = dict.fromkeys(("ifca", "clove", "hyp_cluster"), CLUSTERS)
    pairs = {"federated_clustering": 2 * (CLIENTS - 1)}  # There and back.
    models = ({"local": 0} | of_all_clusters | pairs).get(name, 1)
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, models * model))
    # A cluster's index takes a byte, unless the server finds it; or a loss vector.
    clustered = REGISTRY[name].clustered and name != "myopic_clustering"
    label = 4 * CLUSTERS if name == "clove" else clustered
    sent = ({"local": 0} | pairs).get(name, 1) * model + label * (name != "local")
    np.testing.assert_array_equal(info.sent, np.full(CLIENTS, sent))


@pytest.mark.parametrize(("name", "index"), UNHALVED)
def test_padding_invariance(name, index):
    data, _ = problem()

    def pad(leaf, value):
        widths = ((0, 0), (0, 3)) + ((0, 0),) * (leaf.ndim - 2)
        return jnp.asarray(np.pad(leaf, widths, constant_values=value))

    padded = ClientData(
        pad(data.inputs, 9.0), pad(data.targets, -7.0), pad(data.mask, False)
    )
    step = compiled(name, index).step
    close(step(jax.random.key(1), start(name, index), padded), first_round(name, index))


def test_ignoring_the_mask_is_noticed():
    data, _ = problem()
    targets = np.asarray(data.targets).copy()
    targets[:, -1] = 50.0
    wrong = data._replace(targets=jnp.asarray(targets))
    after, _ = compiled("ifca", 0).step(jax.random.key(1), start("ifca", 0), wrong)
    with pytest.raises(AssertionError):
        close(after, first_round("ifca", 0)[0])


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_throughout(name):
    """Types are known without running, or compiling, anything."""
    clusters = np.asarray(problem()[1].clusters)
    with jax.enable_x64(True):
        data, truth = jax.eval_shape(draw)
        clusters = jnp.asarray(clusters, truth.clusters.dtype)
        algorithm = build(name, truth._replace(clusters=clusters))
        key = jax.random.key(0)
        state = jax.eval_shape(algorithm.init, key, data)
        after, _ = jax.eval_shape(algorithm.step, key, state, data)
    kinds = {leaf.dtype for leaf in jax.tree.leaves(after)}
    floats = {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)}
    assert floats == {jnp.dtype("float64")}
