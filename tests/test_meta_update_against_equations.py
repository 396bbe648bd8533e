"""Batches that a meta gradient wants, and tasks that train on other losses."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms.per_fedavg import Adaptation, meta_task, parts
from cfljax.base.types import ClientData, Task, Variables
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.local_update import LocalUpdate

SIZE = 6
DEAL = jax.jit(parts, static_argnums=1)
WEIGHTS = np.array([0.5, -1.0, 2.0], "f4")


def batch_of(real, size=SIZE):
    """A batch whose samples are their own numbers."""
    inputs = np.arange(size, dtype="f4")
    return ClientData(*map(jnp.asarray, (inputs, inputs, np.arange(size) < real)))


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("real", [1, 2, 3, 5, 6])
def test_parts_share_no_sample(real, number):
    dealt = DEAL(batch_of(real), number)
    held = [np.asarray(part.inputs)[np.asarray(part.mask)] for part in dealt]
    sizes = [len(part) for part in held]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    everything = np.concatenate(held)
    assert set(everything) == set(range(real))
    # Only where there are fewer samples than parts is one of them in several.
    assert len(everything) == max(real, number)


def test_a_padded_batch_smaller_than_the_parts():
    held = [
        np.asarray(p.inputs)[np.asarray(p.mask)] for p in DEAL(batch_of(2, size=2), 3)
    ]
    assert [part.tolist() for part in held] == [[0.0], [1.0], [0.0]]


def noisy(key, params, inputs, targets, mask):
    """Quadratic losses tilted at random, as by dropout, and a count of the passes."""
    tilt = jax.random.normal(key, WEIGHTS.shape)
    values = (inputs * params.weights.sum() - targets) ** 2
    losses = values + jnp.sum(tilt * params.weights)
    return losses, params._replace(statistics=params.statistics + 1)


TASK = Task(
    init=lambda key: Variables(jnp.asarray(WEIGHTS), jnp.zeros(())),
    losses=lambda params, x, y: (x * params.weights.sum() - y) ** 2,
    predict=lambda params, x: x * params.weights.sum(),
    fit=noisy,
)


def gradient_by(method):
    """From weights and a key to the gradient and the statistics after."""
    fit = meta_task(TASK, Adaptation(0.01, method, 1e-3), LocalUpdate()).fit
    assert fit is not None

    def loss(weights, key):
        batch = batch_of(5)
        losses, after = fit(key, Variables(weights, jnp.zeros(())), *batch)
        return masked_mean(losses, batch.mask), after.statistics

    run = jax.jit(jax.grad(loss, has_aux=True))
    return lambda seed: run(jnp.asarray(WEIGHTS), jax.random.key(seed))


@pytest.mark.slow
def test_noise_of_training_is_the_same_on_both_sides_of_a_difference():
    """Else it would enter the Hessian divided by delta, a thousand times as large."""
    by_product = gradient_by("exact")
    exact, moved = by_product(0)
    free, also = gradient_by("hessian_free")(0)
    np.testing.assert_allclose(free, exact, rtol=0.02)
    assert moved == also == 2.0, "statistics move with the passes over D and D'"
    assert np.abs(by_product(1)[0] - exact).max() > 0.1, "control: the noise matters"


def test_each_part_has_its_own_role():
    """By hand, on a batch that is dealt out: D adapts, D' judges, D'' curves."""
    cubic = TASK._replace(
        losses=lambda params, x, y: (x * params.weights.sum() - y) ** 3 / 3, fit=None
    )
    how = Adaptation(0.01, "exact", 1e-3)
    batch, weights = batch_of(5), jnp.asarray(WEIGHTS)
    fit = meta_task(cubic, how, LocalUpdate(batch_size=2)).fit
    assert fit is not None

    def loss(weights):
        params = Variables(weights, jnp.zeros(()))
        losses, _ = fit(jax.random.key(0), params, *batch)
        return masked_mean(losses, batch.mask)

    found = jax.jit(jax.grad(loss))(weights)
    # Targets are inputs: the gradient is mean(x^3) (sum w - 1)^2 in each coordinate.
    cubes = [np.mean(np.array(part) ** 3.0) for part in ([0, 3], [1, 4], [2])]

    def by_hand(adapt, judge, curve):
        total = WEIGHTS.sum()
        adapted = total - 3 * 0.01 * adapt * (total - 1) ** 2
        value = judge * (adapted - 1) ** 2
        return value - 0.01 * 3 * 2 * curve * (total - 1) * value

    np.testing.assert_allclose(found, np.full(3, by_hand(*cubes)), rtol=1e-5)
    for order in itertools.permutations(range(3)):
        wrong = by_hand(*np.array(cubes)[list(order)])
        assert order == (0, 1, 2) or abs(wrong - found[0]) > 1e-2
