"""Every registered algorithm keeps the contract that the engine relies on."""

import functools
import typing

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from by_hand import once
from conformance_cases import (
    ANSWERS_ALIKE,
    BY_EXPONENTIALS,
    CASES,
    CHANGES,
    CLASSES,
    CLIENTS,
    CLUSTERS,
    DRAWS_TO_JOIN,
    EACH,
    EAGER,
    LONGER,
    PAIRS,
    SAMPLES,
    SWEPT,
    TRACES,
    UNHALVED,
    build,
    compiled,
    draw_of,
    has_classes,
    problem,
    received,
    sent,
    shuffled,
    start,
    task_of,
    unlabelled,
)

from cfljax.algorithms import REGISTRY
from cfljax.base.tree import finite_rows, repeat
from cfljax.base.types import Algorithm, ClientData
from cfljax.federated.evaluate import client_losses
from cfljax.federated.local_update import LocalUpdate, local_descent

pytestmark = pytest.mark.usefixtures("few_programs")


@functools.cache
def first_round(name, index):
    step = compiled(name, index).step
    return step(jax.random.key(1), start(name, index), problem(name)[0])


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


def close(left, right, atol=1e-6, rtol=2e-5):
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=rtol, atol=atol), left, right
    )


@pytest.mark.parametrize(("name", "index"), CASES)
def test_contract_and_shapes(name, index):
    data, truth = problem(name)
    assert isinstance(build(name, truth, **CHANGES[name][index]), Algorithm)
    state = start(name, index)
    after, info = first_round(name, index)
    same = jax.tree.map(lambda a, b: a.shape == b.shape, state, after)
    assert jax.tree.all(same), "a round must not change the shapes of the state"
    check_fields(info, {"clients": CLIENTS, "clusters": CLUSTERS})
    predict = compiled(name, index).predict
    if index:  # Its shapes are known without compiling it.
        predict = functools.partial(jax.eval_shape, predict)
    assert predict(after, data, data.inputs).shape[:2] == data.mask.shape


def test_the_shape_check_can_fail():
    _, info = first_round("ifca", 0)
    with pytest.raises(AssertionError):
        check_fields(
            info._replace(losses=info.losses.T), {"clients": CLIENTS, "clusters": 2}
        )


@pytest.mark.long
@pytest.mark.parametrize(("name", "index"), EAGER)
def test_jit_against_itself_eager(name, index):
    data, truth = problem(name)
    step = build(name, truth, **CHANGES[name][index]).step
    close(step(jax.random.key(1), start(name, index), data), first_round(name, index))


@pytest.mark.parametrize("name", EACH)
def test_second_call_does_not_recompile(name):
    step, (data, _) = compiled(name, 0).step, problem(name)
    state, _ = step(jax.random.key(1), start(name, 0), data)
    before = TRACES[name]
    step(jax.random.key(2), state, data)
    assert TRACES[name] == before > 0


def test_other_shapes_are_traced_anew():
    """Control of the count."""
    state, _ = first_round("ifca", 0)
    before = TRACES["ifca"]
    shorter = jax.tree.map(lambda leaf: leaf[:, 1:], problem()[0])
    jax.eval_shape(compiled("ifca", 0).step, jax.random.key(2), state, shorter)
    assert TRACES["ifca"] == before + 1


@pytest.mark.long
@pytest.mark.parametrize("name", SWEPT)
def test_step_size_may_be_swept(name):
    data, truth = problem(name)

    def one(step_size):
        algorithm = build(name, truth, step_size=step_size)
        state = algorithm.init(jax.random.key(0), data)
        return algorithm.step(jax.random.key(1), state, data)[0]

    swept = jax.jit(jax.vmap(one))(np.array([0.05, 0.1], np.float32))
    alone, _ = first_round(name, 0)
    assert REGISTRY[name].defaults["step_size"] == 0.1
    close(jax.tree.map(lambda leaf: np.asarray(leaf)[1], swept), alone)


@pytest.mark.parametrize("name", EACH)
def test_client_permutation_equivariance(name):
    data, truth = problem(name)
    move = functools.partial(shuffled, order=np.array([3, 0, 5, 1, 4, 2]))
    step = compiled(name, 0).step
    if REGISTRY[name].needs_truth:
        moved = truth._replace(clusters=jax.device_put(move(truth.clusters)))
        step = jax.jit(build(name, moved).step)
    found = step(jax.random.key(1), move(start(name, 0)), move(data))
    close(unlabelled(name, found), move(unlabelled(name, first_round(name, 0))))


@pytest.mark.parametrize("name", EACH)
def test_bytes_are_those_of_whole_models(name):
    state, _ = first_round(name, 0)
    _, info = compiled(name, 0).step(jax.random.key(2), state, problem(name)[0])
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, received(name)))
    np.testing.assert_array_equal(info.sent, np.full(CLIENTS, sent(name)))


@pytest.mark.parametrize("name", EACH)
def test_newcomers_join_whoever_joins_beside_them(name):
    """More clients than took part, none of whose answers hangs on the others."""
    data, truth = problem(name)
    after, _ = first_round(name, 0)
    half = SAMPLES // 2
    mixed = lambda leaf: np.concatenate([leaf[:1, :half], leaf[1:2, half:]], axis=1)
    longer = lambda leaf: np.concatenate([leaf, mixed(leaf)])
    new = jax.tree.map(longer, jax.tree.map(np.asarray, data))
    algorithm = build(name, truth)

    @jax.jit
    def answers(data):
        joined = algorithm.join(jax.random.key(3), after, data)
        return algorithm.predict(
            joined, data, jnp.asarray(new.inputs[-1:].repeat(len(data.mask), 0))
        )

    together = np.asarray(answers(new))
    assert together.shape[:2] == new.mask.shape
    assert np.isfinite(together).all()
    order = np.array([5, 4, 3, 2, 1, 0, 6])
    moved = np.asarray(answers(jax.tree.map(lambda leaf: leaf[order], new)))
    close(moved[-1], together[-1])
    if name not in DRAWS_TO_JOIN:
        close(moved, together[order])
    one_model = algorithm.predict.__qualname__.startswith("predict_one_model")
    if name not in ANSWERS_ALIKE and not one_model:
        assert not np.allclose(moved, together, rtol=1e-3), "who joins must matter"


@pytest.mark.parametrize("name", EACH)
def test_what_padding_holds_changes_nothing(name):
    data, _ = problem(name)
    init, step, *_ = compiled(name, 0)
    real = np.broadcast_to(np.arange(SAMPLES) < SAMPLES - 2, data.mask.shape)

    def after(fill):
        keep = lambda leaf: real.reshape(real.shape + (1,) * (leaf.ndim - 2))
        put = lambda leaf: np.where(keep(leaf), leaf, np.asarray(fill, leaf.dtype))
        leaves = put(data.inputs), put(data.targets), real
        padded = ClientData(*map(jax.device_put, leaves))
        return step(jax.random.key(1), init(jax.random.key(0), padded), padded)

    close(after(9), after(-7))


def with_padding(data):
    """Three more samples of each client, which do not count."""

    def pad(leaf, value):
        widths = ((0, 0), (0, 3)) + ((0, 0),) * (leaf.ndim - 2)
        return jax.device_put(np.pad(leaf, widths, constant_values=value))

    return ClientData(
        pad(data.inputs, 9.0), pad(data.targets, -7), pad(data.mask, False)
    )


@pytest.mark.parametrize(
    ("name", "index"), [case for case in UNHALVED if case[0] not in BY_EXPONENTIALS]
)
def test_padding_invariance(name, index):
    padded = with_padding(problem(name)[0])
    found = compiled(name, index).step(jax.random.key(1), start(name, index), padded)
    close(found, first_round(name, index))


@pytest.mark.long
@pytest.mark.parametrize("name", BY_EXPONENTIALS)
def test_padding_invariance_in_double(name):
    with jax.enable_x64(True):
        data, truth = draw_of(has_classes(name))
        algorithm = build(name, truth)
        state = algorithm.init(jax.random.key(0), data)
        step = jax.jit(algorithm.step)
        plain, padded = (
            step(jax.random.key(1), state, own) for own in (data, with_padding(data))
        )
        close(padded, plain, atol=1e-12, rtol=1e-12)
        # Control: padding that counts.
        heavy = with_padding(data)
        heavy = heavy._replace(mask=jnp.ones_like(heavy.mask))
        with pytest.raises(AssertionError):
            close(step(jax.random.key(1), state, heavy), plain)


def test_ignoring_the_mask_is_noticed():
    data, _ = problem()
    targets = np.asarray(data.targets).copy()
    targets[:, -1] = 50.0
    wrong = data._replace(targets=targets)
    after, _ = compiled("ifca", 0).step(jax.random.key(1), start("ifca", 0), wrong)
    with pytest.raises(AssertionError):
        close(after, first_round("ifca", 0)[0])


@pytest.mark.parametrize("name", EACH)
def test_a_client_whose_loss_overflows_spoils_no_other(name):
    data, _ = problem(name)
    lost = np.arange(CLIENTS) == 2
    # The squares overflow; or the scores, of which cross-entropies are differences.
    far = 3e38 if has_classes(name) else 1e25
    inputs = np.where(lost[:, None, None], np.float32(far), data.inputs)
    targets = data.targets
    if REGISTRY[name].needs_classes and REGISTRY[name].clustered:
        # Scores do not overflow under all models: a label that is no class does.
        targets = np.where(lost[:, None], CLASSES, targets)
    huge = data._replace(inputs=inputs, targets=targets)
    init, step, predict, *_ = compiled(name, 0)
    state = init(jax.random.key(0), huge)
    state, info = step(jax.random.key(1), state, huge)
    state, _ = step(jax.random.key(2), state, huge)
    answers = predict(state, data, data.inputs)
    losses = np.asarray(info.losses)
    assert not np.isfinite(losses[2]).any(), "the client is not lost"
    assert np.isfinite(losses[~lost]).all()
    assert np.isfinite(np.asarray(answers)[~lost]).all()


def wild_data(name):
    """A client whose loss is finite before, what it trains is not."""
    data, _ = problem(name)
    far = 1e15 if has_classes(name) else 1e9
    lost = np.arange(CLIENTS) == 2
    factor = np.where(lost, np.float32(far), np.float32(1))[:, None, None]
    return data._replace(inputs=np.asarray(data.inputs) * factor), lost


def check_that_one_is_lost(name):
    """Control: nobody before, and one by its own training."""
    wild, lost = wild_data(name)
    task = task_of(name)

    def own(wild):
        start = repeat(task.init(jax.random.key(0)), CLIENTS)
        given = {"step_size": 0.1, "num_steps": 5, "update": LocalUpdate()}
        alone = local_descent(task, start, wild, key=jax.random.key(1), **given)[0]
        return client_losses(task, start, wild), finite_rows(alone)

    losses, is_finite = once(own, wild)(wild)
    assert np.isfinite(losses).all()
    np.testing.assert_array_equal(is_finite, ~lost)


@pytest.mark.long
@pytest.mark.parametrize(("name", "changes"), LONGER)
def test_a_client_whose_training_overflows_spoils_no_other(name, changes):
    check_that_one_is_lost(name)
    (data, truth), (wild, lost) = problem(name), wild_data(name)
    algorithm = build(name, truth, num_steps=5, **changes)

    @jax.jit
    def run(wild):
        state = algorithm.init(jax.random.key(0), wild)
        for key in jax.random.split(jax.random.key(1)):
            state, info = algorithm.step(key, state, wild)
        return info.losses, algorithm.predict(state, data, data.inputs)

    losses, answers = map(np.asarray, run(wild))
    assert np.isfinite(losses[~lost]).all()
    assert np.isfinite(answers[~lost]).all()


@functools.cache
def drawn_in_double(needs_classes):
    with jax.enable_x64(True):
        return jax.eval_shape(lambda: draw_of(needs_classes))


@pytest.mark.parametrize("name", EACH)
def test_double_precision_throughout(name):
    """Types are known without running, or compiling, anything."""
    data, truth = drawn_in_double(has_classes(name))
    clusters = np.asarray(problem(name)[1].clusters)
    with jax.enable_x64(True):
        clusters = jnp.asarray(clusters, truth.clusters.dtype)
        algorithm = build(name, truth._replace(clusters=clusters))
        key = jax.random.key(0)
        state = jax.eval_shape(algorithm.init, key, data)
        after, _ = jax.eval_shape(algorithm.step, key, state, data)
    kinds = {leaf.dtype for leaf in jax.tree.leaves(after)}
    floats = {kind for kind in kinds if jnp.issubdtype(kind, jnp.floating)}
    assert floats == {jnp.dtype("float64")}


# Against the CPU, three rounds on an accelerator, whose products are whole here: by
# default a GPU rounds what it multiplies to eleven bits.


def three_rounds(name, index, device, seed=0):
    """Floating-point leaves of the last state and what was told of it; and the rest."""
    with jax.default_device(device), jax.default_matmul_precision("highest"):
        data, truth = jax.device_put(problem(name), device)
        algorithm = build(name, truth, **CHANGES[name][index])
        state, info = jax.jit(algorithm.init)(jax.random.key(seed), data), None
        step = jax.jit(algorithm.step)
        for number in range(3):
            state, info = step(jax.random.key(seed + 1 + number), state, data)
    is_key = lambda leaf: jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    every = [own for own in jax.tree.leaves((state, info)) if not is_key(own)]
    is_number = lambda leaf: jnp.issubdtype(leaf.dtype, jnp.floating)
    counts = [own.tolist() for own in every if not is_number(own)]
    return [np.asarray(own) for own in every if is_number(own)], counts


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "index"), PAIRS)
def test_an_accelerator_computes_what_the_cpu_does(name, index):
    (device, *_), (cpu, *_) = jax.devices(), jax.devices("cpu")
    assert device.platform != "cpu"
    (numbers, counts), (expected, whole) = (
        three_rounds(name, index, own) for own in (device, cpu)
    )
    tolerances = {"atol": 2e-5, "rtol": 2e-4}
    close(numbers, expected, **tolerances)
    assert counts == whole
    other, _ = three_rounds(name, index, cpu, seed=9)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        close(other, expected, **tolerances)
