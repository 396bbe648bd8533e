"""Local updates by hand: batches, epochs, momentum, decay, pulls, statistics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import compiled

from cfljax.algorithms import fedavg, ifca, local
from cfljax.base.types import ClientData, Task, Variables
from cfljax.data import mixed_linear
from cfljax.federated.local_update import (
    LocalUpdate,
    batch_at,
    first_order,
    local_descent,
    schedule,
)
from cfljax.models import linear

# Batches: every epoch visits each real sample once, whatever the padding
MASK = np.array([True, False, True, True, True, False, True, True, True])  # 7 real


@functools.partial(jax.jit, static_argnames="batch_size")
def beginning(mask, batch_size):
    return first_order(mask, schedule(mask, batch_size))


@functools.partial(jax.jit, static_argnames="batch_size")
def draw(key, step, order, mask, batch_size):
    index = jnp.arange(mask.shape[0])
    data = ClientData(index, index, mask)
    return batch_at(key, step, order, schedule(mask, batch_size), data)


def batches(mask, batch_size, num_steps, key=3):
    """Indices of the real samples in each of the first batches."""
    order, found = beginning(mask, batch_size), []
    for step in range(num_steps):
        batch, order = draw(jax.random.key(key), step, order, mask, batch_size)
        np.testing.assert_array_equal(batch.inputs, batch.targets)
        found.append(np.asarray(batch.inputs)[np.asarray(batch.mask)].tolist())
    return found


@pytest.mark.parametrize(("size", "lengths"), [(3, [3, 3, 1]), (7, [7]), (50, [7])])
def test_an_epoch_visits_each_real_sample_once(size, lengths):
    found = batches(MASK, size, 2 * len(lengths))
    assert [len(batch) for batch in found] == 2 * lengths
    real = np.flatnonzero(MASK).tolist()
    for half in (found[: len(lengths)], found[len(lengths) :]):
        assert sorted(index for batch in half for index in batch) == real


def test_epochs_are_shuffled_afresh_and_by_key():
    found = batches(MASK, 7, 2)
    assert found[0] != found[1]
    assert found[0] != batches(MASK, 7, 1, key=4)[0]
    assert found[0] == batches(MASK, 7, 1)[0]


def test_padding_at_the_end_changes_nothing():
    padded = np.concatenate([MASK, np.zeros(5, bool)])
    assert batches(padded, 3, 6) == batches(MASK, 3, 6)
    assert batches(np.roll(padded, 1), 3, 6) != batches(MASK, 3, 6)


def test_a_client_without_samples_has_empty_batches():
    assert batches(np.zeros(4, bool), 2, 2) == [[], []]


# Training that can be counted by hand
STEP = 0.1
COUNTS = np.array([1, 4, 5, 0])  # real samples of four clients
ONES = ClientData(
    inputs=jax.device_put(np.ones((4, 5), np.float32)),
    targets=jax.device_put(np.zeros((4, 5), np.float32)),
    mask=jax.device_put(np.arange(5)[None, :] < COUNTS[:, None]),
)


def counting(with_statistics=False):
    """Loss `theta * input`: its gradient is the mean input of the batch.

    With statistics, training also counts its batches and adds up their real samples.
    """
    if not with_statistics:
        times = lambda params, inputs, *_: params * inputs
        return Task(lambda key: jnp.zeros(()), times, times)

    def fit(key, params, inputs, targets, mask):
        moved = {
            "batches": params.statistics["batches"] + 1,
            "samples": params.statistics["samples"] + jnp.sum(mask, dtype=jnp.float32),
        }
        return params.weights * inputs, Variables(params.weights, moved)

    none = {"batches": jnp.zeros(()), "samples": jnp.zeros(())}
    times = lambda params, inputs, *_: params.weights * inputs
    return Task(lambda key: Variables(jnp.zeros(()), none), times, times, fit)


def train_locally(task, update, num_rounds=1, data=ONES, **settings):
    """Models of clients that train alone."""
    algorithm = compiled(local(task, step_size=STEP, update=update, **settings))
    state = algorithm.init(jax.random.key(0), data)
    for index in range(num_rounds):
        key = jax.random.key(1 + index)
        state, info = algorithm.step(key, state, data)
    return state.models, info


@pytest.mark.long
@pytest.mark.parametrize("order", ["sequential", "batched"])
def test_epochs_take_as_many_steps_as_a_client_has_batches(order):
    update = LocalUpdate(batch_size=2, num_epochs=3, order=order)
    models, _ = train_locally(counting(), update)
    steps = 3 * np.ceil(COUNTS / 2)  # Every step moves by the mean input, one.
    np.testing.assert_allclose(models, -STEP * steps, rtol=1e-6)


@pytest.mark.parametrize("batch_size", [None, 2, 100])
def test_steps_are_the_same_number_for_all_but_the_empty(batch_size):
    update = LocalUpdate(batch_size=batch_size)
    models, _ = train_locally(counting(), update, num_steps=7)
    np.testing.assert_allclose(models, -STEP * 7 * (COUNTS > 0), rtol=1e-6)


@pytest.mark.long
def test_what_training_draws_differs_by_client_step_and_round():
    """The gradient is a number drawn from the key that `fit` is given."""
    plain = counting()

    def fit(key, params, inputs, targets, mask):
        return params * jax.random.uniform(key, inputs.shape[:1]) * inputs, params

    noisy = plain._replace(fit=fit)
    two_alike = lambda leaf: jax.device_put(np.asarray(leaf)[1:3, :4])
    data = jax.tree.map(two_alike, ONES)
    one = np.asarray(train_locally(noisy, LocalUpdate(), data=data)[0])
    assert one[0] != one[1]
    two = np.asarray(train_locally(noisy, LocalUpdate(), data=data, num_steps=2)[0])
    assert np.all(np.abs(two - 2 * one) > 1e-6)
    rounds = train_locally(noisy, LocalUpdate(), data=data, num_rounds=2)[0]
    assert np.all(np.abs(np.asarray(rounds) - 2 * one) > 1e-6)
    again = np.asarray(train_locally(noisy, LocalUpdate(), data=data)[0])
    np.testing.assert_array_equal(one, again)


def test_a_client_without_samples_joins_no_cluster_and_spoils_nothing():
    algorithm = compiled(
        ifca(counting(), num_clusters=2, step_size=STEP, option="model")
    )
    state = algorithm.init(jax.random.key(0), ONES)
    state, info = algorithm.step(jax.random.key(1), state, ONES)
    assert info.assignment.tolist() == [0, 0, 0, -1]
    assert info.sent.tolist() == [5, 5, 5, 0]
    np.testing.assert_allclose(state.models, [-STEP, 0.0], rtol=1e-6)


MOMENTUM = functools.partial(optax.sgd, momentum=0.5)


@pytest.mark.parametrize("keep", [True, False])
def test_momentum_is_kept_or_forgotten(keep):
    update = LocalUpdate(optimizer=MOMENTUM, keep_optimizer=keep)
    models, _ = train_locally(counting(), update, num_rounds=2, num_steps=2)
    velocity = np.cumsum(0.5 ** np.arange(4))  # 1, 1.5, 1.75, 1.875
    total = velocity.sum() if keep else 2 * velocity[:2].sum()
    np.testing.assert_allclose(models, -STEP * total * (COUNTS > 0), rtol=1e-6)


@pytest.mark.slow
def test_absent_clients_keep_their_momentum():
    update = LocalUpdate(optimizer=MOMENTUM, keep_optimizer=True)
    algorithm = fedavg(counting(), step_size=STEP, participation=0.5, update=update)
    state = algorithm.init(jax.random.key(0), ONES)
    after, info = algorithm.step(jax.random.key(1), state, ONES)
    assert state.local_state is not None and after.local_state is not None
    trace = np.asarray(jax.tree.leaves(after.local_state.moments)[0])
    # A client that trained has seen one gradient, which is one.
    np.testing.assert_allclose(trace, np.asarray(info.assignment) == 0)
    assert 0 < trace.sum() < 4


def test_step_sizes_decay_by_round():
    update = LocalUpdate(decay=0.5)
    models, _ = train_locally(counting(), update, num_rounds=3, num_steps=2)
    expected = -STEP * 2 * (1 + 0.5 + 0.25) * (COUNTS > 0)
    np.testing.assert_allclose(models, expected, rtol=1e-6)


def pulled(num_steps: int, proximal: float) -> float:
    """What is left of the steps where a model is pulled back to 0."""
    theta = 0.0
    for _ in range(num_steps):
        theta -= STEP * (1 + proximal * theta)
    return theta


def test_proximal_term_pulls_towards_what_was_received():
    models, _ = train_locally(counting(), LocalUpdate(proximal=0.3), num_steps=3)
    theta = pulled(3, 0.3)
    np.testing.assert_allclose(models, theta * (COUNTS > 0), rtol=1e-6)
    assert abs(theta + STEP * 3) > 1e-3  # Without the term it would be this.


@pytest.mark.long
def test_statistics_are_measured_averaged_and_never_pulled():
    update = LocalUpdate(batch_size=2, num_epochs=1, proximal=0.5)
    task = counting(with_statistics=True)
    algorithm = compiled(fedavg(task, step_size=STEP, update=update))
    state = algorithm.init(jax.random.key(0), ONES)
    model = algorithm.step(jax.random.key(1), state, ONES)[0].model
    share = COUNTS / COUNTS.sum()  # FedAvg weighs by samples.
    steps = np.ceil(COUNTS / 2).astype(int)
    found = model.statistics
    np.testing.assert_allclose(found["samples"], share @ COUNTS, rtol=1e-6)
    np.testing.assert_allclose(found["batches"], share @ steps, rtol=1e-6)
    expected = share @ [pulled(number, 0.5) for number in steps]
    np.testing.assert_allclose(model.weights, expected, rtol=1e-6)


# Against itself
@functools.cache
def six_clients():
    """Starts of linear models, and data."""
    drawn = jax.jit(
        lambda: mixed_linear(
            jax.random.key(0),
            num_clients=6,
            num_clusters=2,
            num_samples=8,
            num_features=5,
            separation=1.0,
            noise=0.1,
        )
    )
    return jax.random.normal(jax.random.key(1), (6, 5)), drawn()[0]


@functools.cache
def descent(update: LocalUpdate):
    """From a step size to six clients' linear models after four steps."""
    start, data = six_clients()
    settings = {"key": jax.random.key(2), "num_steps": 4, "update": update}
    return jax.jit(
        lambda step_size: local_descent(
            linear(5), start, data, step_size=step_size, **settings
        )[0]
    )


def descended(update: LocalUpdate, step_size=0.1):
    return np.asarray(descent(update)(step_size))


@pytest.mark.long
def test_full_batches_are_batches_of_everything():
    whole = descended(LocalUpdate())
    np.testing.assert_allclose(descended(LocalUpdate(batch_size=9)), whole, rtol=1e-5)
    assert not np.allclose(descended(LocalUpdate(batch_size=5)), whole, rtol=1e-5)


@pytest.mark.long
def test_sequential_against_batched():
    one_by_one, together = (LocalUpdate(order=o) for o in ("sequential", "batched"))
    sequential = descended(one_by_one)
    np.testing.assert_allclose(sequential, descended(together), rtol=1e-5)
    assert not np.allclose(sequential, descended(together, 0.101), rtol=1e-5)
    sweep = jax.jit(jax.vmap(descent(one_by_one)))
    swept = np.asarray(sweep(np.array([0.05, 0.1], np.float32)))
    np.testing.assert_allclose(swept[1], sequential, rtol=1e-5)


# Against misuse
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_epochs": 0}, "`num_epochs` must be at least 1"),
        ({"decay": 0.0}, "`decay` must be in"),
        ({"proximal": -1.0}, "`proximal` must not be negative"),
        ({"clients_per_chunk": 0}, "`clients_per_chunk` must be at least 1"),
    ],
)
def test_misuse_is_named(changes, named):
    with pytest.raises(ValueError, match=named):
        LocalUpdate(**changes)


def test_what_does_not_go_together_is_refused():
    make = functools.partial(ifca, counting(), num_clusters=1, step_size=STEP)
    with pytest.raises(ValueError, match="`num_steps` and the update's `num_epochs`"):
        make(option="model", num_steps=3, update=LocalUpdate(num_epochs=2))
    with pytest.raises(ValueError, match="`update` belongs to `option='model'`"):
        make(update=LocalUpdate(batch_size=2))
    make(update=LocalUpdate(decay=0.5, clients_per_chunk=2))
    fitted: Task = counting(with_statistics=True)
    algorithm = ifca(fitted, num_clusters=1, step_size=STEP)
    state = algorithm.init(jax.random.key(0), ONES)
    with pytest.raises(ValueError, match="use `option='model'`"):
        algorithm.step(jax.random.key(1), state, ONES)
