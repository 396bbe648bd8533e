"""LocalUpdate by hand: batches, epochs, momentum, decay, proximal term, statistics."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from counting import counting

from cfljax.algorithms import fedavg, ifca, local
from cfljax.base.types import ClientData, Task
from cfljax.data import mixed_linear
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

STEP = 0.1
COUNTS = np.array([1, 4, 5, 0])  # real samples of four clients
ONES = ClientData(
    inputs=jnp.ones((4, 5)),
    targets=jnp.zeros((4, 5)),
    mask=jnp.arange(5)[None, :] < jnp.asarray(COUNTS)[:, None],
)


def train_locally(task, update, num_rounds=1, data=ONES, **settings):
    """Models of clients that train alone."""
    algorithm = local(task, step_size=STEP, update=update, **settings)
    state = algorithm.init(jax.random.key(0), data)
    for index in range(num_rounds):
        key = jax.random.key(1 + index)
        state, info = algorithm.step(key, state, data)
    return state.models, info


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


def test_full_batches_are_batches_of_everything():
    data, _ = mixed_linear(
        jax.random.key(0),
        num_clients=4,
        num_clusters=2,
        num_samples=6,
        num_features=3,
        separation=1.0,
        noise=0.1,
    )
    run = lambda update: train_locally(linear(3), update, data=data, num_steps=3)[0]
    whole = run(LocalUpdate())
    np.testing.assert_allclose(run(LocalUpdate(batch_size=9)), whole, rtol=1e-5)
    assert not np.allclose(run(LocalUpdate(batch_size=5)), whole, rtol=1e-5)


def test_momentum_is_kept_or_forgotten():
    momentum = functools.partial(optax.sgd, momentum=0.5)
    run = lambda keep: train_locally(
        counting(),
        LocalUpdate(optimizer=momentum, keep_optimizer=keep),
        num_rounds=2,
        num_steps=2,
    )[0]
    velocity = np.cumsum(0.5 ** np.arange(4))  # 1, 1.5, 1.75, 1.875
    some = COUNTS > 0
    np.testing.assert_allclose(run(True), -STEP * velocity.sum() * some, rtol=1e-6)
    fresh = 2 * velocity[:2].sum()
    np.testing.assert_allclose(run(False), -STEP * fresh * some, rtol=1e-6)


@pytest.mark.slow
def test_absent_clients_keep_their_momentum():
    momentum = functools.partial(optax.sgd, momentum=0.5)
    algorithm = fedavg(
        counting(),
        step_size=STEP,
        participation=0.5,
        update=LocalUpdate(optimizer=momentum, keep_optimizer=True),
    )
    state = algorithm.init(jax.random.key(0), ONES)
    after, info = algorithm.step(jax.random.key(1), state, ONES)
    assert state.local_state is not None and after.local_state is not None
    trace = np.asarray(jax.tree.leaves(after.local_state.moments)[0])
    # A client that trained has seen one gradient, which is one.
    np.testing.assert_allclose(trace, np.asarray(info.assignment) == 0)
    assert 0 < trace.sum() < 4


def test_step_sizes_decay_by_round():
    models, _ = train_locally(
        counting(), LocalUpdate(decay=0.5), num_rounds=3, num_steps=2
    )
    np.testing.assert_allclose(
        models, -STEP * 2 * (1 + 0.5 + 0.25) * (COUNTS > 0), rtol=1e-6
    )


def test_proximal_term_pulls_towards_what_was_received():
    models, _ = train_locally(counting(), LocalUpdate(proximal=0.3), num_steps=3)
    theta = 0.0
    for _ in range(3):
        theta -= STEP * (1 + 0.3 * (theta - 0.0))
    np.testing.assert_allclose(models, theta * (COUNTS > 0), rtol=1e-6)
    assert abs(theta + STEP * 3) > 1e-3  # Without the term it would be this.


def test_statistics_are_measured_averaged_and_never_pulled():
    update = LocalUpdate(batch_size=2, num_epochs=1, proximal=0.5)
    algorithm = fedavg(counting(with_statistics=True), step_size=STEP, update=update)
    state = algorithm.init(jax.random.key(0), ONES)
    state, _ = algorithm.step(jax.random.key(1), state, ONES)
    share = COUNTS / COUNTS.sum()  # FedAvg weighs by samples.
    statistics = state.model.statistics
    np.testing.assert_allclose(statistics["samples"], share @ COUNTS, rtol=1e-6)
    np.testing.assert_allclose(
        statistics["batches"], share @ np.ceil(COUNTS / 2), rtol=1e-6
    )
    weights = []
    for steps in np.ceil(COUNTS / 2).astype(int):
        theta = 0.0
        for _ in range(steps):
            theta -= STEP * (1 + 0.5 * theta)
        weights.append(theta)
    np.testing.assert_allclose(state.model.weights, share @ weights, rtol=1e-6)


def test_what_training_draws_differs_by_client_step_and_round():
    """The gradient is a number drawn from the key that `fit` is given."""
    plain = counting()

    def fit(key, params, inputs, targets, mask):
        return params * jax.random.uniform(key, inputs.shape[:1]) * inputs, params

    noisy = plain._replace(fit=fit)
    data = jax.tree.map(lambda leaf: leaf[1:3, :4], ONES)  # Two alike clients.
    one = np.asarray(train_locally(noisy, LocalUpdate(), data=data)[0])
    assert one[0] != one[1]
    two = np.asarray(train_locally(noisy, LocalUpdate(), data=data, num_steps=2)[0])
    assert np.all(np.abs(two - 2 * one) > 1e-6)
    rounds = train_locally(noisy, LocalUpdate(), data=data, num_rounds=2)[0]
    assert np.all(np.abs(np.asarray(rounds) - 2 * one) > 1e-6)
    again = np.asarray(train_locally(noisy, LocalUpdate(), data=data)[0])
    np.testing.assert_array_equal(one, again)


def test_a_client_without_samples_joins_no_cluster_and_spoils_nothing():
    algorithm = ifca(counting(), num_clusters=2, step_size=STEP, option="model")
    state = algorithm.init(jax.random.key(0), ONES)
    state, info = algorithm.step(jax.random.key(1), state, ONES)
    assert info.assignment.tolist() == [0, 0, 0, -1]
    assert info.sent.tolist() == [5, 5, 5, 0]
    np.testing.assert_allclose(state.models, [-STEP, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 0}, "`batch_size` must be at least 1"),
        ({"num_epochs": 0}, "`num_epochs` must be at least 1"),
        ({"decay": 0.0}, "`decay` must be positive"),
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
