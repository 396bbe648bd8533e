"""Every registered algorithm keeps the contract that the engine relies on."""

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


@pytest.fixture(scope="module")
def problem():
    return draw()


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


PAIRS = [(name, change) for name in NAMES for change in variants(name)]
CASES = [
    pytest.param(name, change, id=f"{name}-{'-'.join(map(str, change)) or 'default'}")
    for name, change in PAIRS
]
UNHALVED = [
    case
    for case, (_, change) in zip(CASES, PAIRS, strict=True)
    if "resample" not in change  # Halving padded samples halves other samples.
]


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


@pytest.mark.parametrize(("name", "change"), CASES)
def test_contract_and_shapes(name, change, problem):
    data, truth = problem
    algorithm = build(name, truth, **change)
    assert isinstance(algorithm, Algorithm)
    state = algorithm.init(jax.random.key(0), data)
    after, info = algorithm.step(jax.random.key(1), state, data)
    same = jax.tree.map(lambda a, b: a.shape == b.shape, state, after)
    assert jax.tree.all(same), "a round must not change the shapes of the state"
    check_fields(info, {"clients": CLIENTS, "clusters": CLUSTERS})
    answers = algorithm.predict(after, data, data.inputs)
    assert answers.shape == (CLIENTS, SAMPLES)


def test_the_shape_check_can_fail(problem):
    data, truth = problem
    algorithm = build("ifca", truth)
    state = algorithm.init(jax.random.key(0), data)
    _, info = algorithm.step(jax.random.key(1), state, data)
    with pytest.raises(AssertionError):
        check_fields(
            info._replace(losses=info.losses.T), {"clients": CLIENTS, "clusters": 2}
        )


@pytest.mark.parametrize(("name", "change"), CASES)
def test_jit_against_itself_eager(name, change, problem):
    data, truth = problem
    algorithm = build(name, truth, **change)
    state = algorithm.init(jax.random.key(0), data)
    eager = algorithm.step(jax.random.key(1), state, data)
    close(eager, jax.jit(algorithm.step)(jax.random.key(1), state, data))


@pytest.mark.parametrize("name", NAMES)
def test_second_call_does_not_recompile(name, problem):
    data, truth = problem
    algorithm = build(name, truth)
    traces = []

    def counted(key, state, data):
        traces.append(name)
        return algorithm.step(key, state, data)

    step = jax.jit(counted)
    state = algorithm.init(jax.random.key(0), data)
    state, _ = step(jax.random.key(1), state, data)
    step(jax.random.key(2), state, data)
    assert len(traces) == 1


@pytest.mark.parametrize("name", NAMES)
def test_step_size_may_be_swept(name, problem):
    data, truth = problem

    def one(step_size):
        algorithm = build(name, truth, step_size=step_size)
        state = algorithm.init(jax.random.key(0), data)
        return algorithm.step(jax.random.key(1), state, data)[0]

    swept = jax.vmap(one)(jnp.array([0.05, 0.1]))
    close(jax.tree.map(lambda leaf: leaf[1], swept), one(0.1))


@pytest.mark.parametrize("name", NAMES)
def test_client_permutation_equivariance(name, problem):
    data, truth = problem
    order = jnp.array([3, 0, 5, 1, 4, 2])
    # Axes of other kinds have other sizes.
    move = lambda leaf: leaf[order] if leaf.shape[:1] == (CLIENTS,) else leaf
    algorithm = build(name, truth)
    state = algorithm.init(jax.random.key(0), data)
    expected = algorithm.step(jax.random.key(1), state, data)

    shuffled = build(name, truth._replace(clusters=truth.clusters[order]))
    moved_state, moved_data = jax.tree.map(move, (state, data))
    found = shuffled.step(jax.random.key(1), moved_state, moved_data)
    close(found, jax.tree.map(move, expected))


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_of_whole_models(name, problem):
    data, truth = problem
    algorithm = build(name, truth)
    state = algorithm.init(jax.random.key(0), data)
    state, _ = algorithm.step(jax.random.key(1), state, data)
    _, info = algorithm.step(jax.random.key(2), state, data)
    model = FEATURES * 4
    models = {"local": 0, "ifca": CLUSTERS}.get(name, 1)
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, models * model))
    clustered = REGISTRY[name].clustered  # A cluster's index takes a byte.
    sent = 0 if name == "local" else model + clustered
    np.testing.assert_array_equal(info.sent, np.full(CLIENTS, sent))


@pytest.mark.parametrize(("name", "change"), UNHALVED)
def test_padding_invariance(name, change, problem):
    data, truth = problem
    extra = 3
    padded = ClientData(
        jnp.pad(data.inputs, ((0, 0), (0, extra), (0, 0)), constant_values=9.0),
        jnp.pad(data.targets, ((0, 0), (0, extra)), constant_values=-7.0),
        jnp.pad(data.mask, ((0, 0), (0, extra))),
    )
    algorithm = build(name, truth, **change)
    state = algorithm.init(jax.random.key(0), data)
    close(
        algorithm.step(jax.random.key(1), state, padded),
        algorithm.step(jax.random.key(1), state, data),
    )


def test_ignoring_the_mask_is_noticed(problem):
    data, truth = problem
    wrong = data._replace(targets=data.targets.at[:, -1].set(50.0))
    algorithm = build("ifca", truth)
    state = algorithm.init(jax.random.key(0), data)
    after, _ = algorithm.step(jax.random.key(1), state, wrong)
    expected, _ = algorithm.step(jax.random.key(1), state, data)
    with pytest.raises(AssertionError):
        close(after, expected)


@pytest.mark.parametrize("name", NAMES)
def test_double_precision_throughout(name):
    with jax.enable_x64(True):
        data, truth = draw()
        algorithm = build(name, truth)
        state = algorithm.init(jax.random.key(0), data)
        after, _ = algorithm.step(jax.random.key(1), state, data)
        kinds = {leaf.dtype for leaf in jax.tree.leaves(after)}
        floats = {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)}
        assert floats == {jnp.dtype("float64")}
