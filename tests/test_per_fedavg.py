"""Per-FedAvg: rounds by hand in NumPy, its three gradients, its limits, its batches."""

import functools
import itertools

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import close, compiled, differ, misuse

from cfljax.algorithms import fedavg, per_fedavg
from cfljax.algorithms.fedavg import State as Plain
from cfljax.algorithms.per_fedavg import Adaptation, Method, State, meta_task, parts
from cfljax.base.types import ClientData, Task, Variables
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import cnn, linear

CLIENTS, SAMPLES, FEATURES, ALPHA, BETA = 5, 6, 3, 0.2, 0.05
KEPT = np.array([6, 2, 5, 6, 3])  # Real samples of each client.


DATA = by_hand.draw(KEPT, num_samples=SAMPLES, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5], "f4")


def build(constructor=per_fedavg, **settings):
    settings = {"step_size": BETA} | settings
    if constructor is per_fedavg and settings.get("variant") != "reference":
        settings = {"adaptation_step_size": ALPHA} | settings
    return compiled(constructor(TASK, **settings))


def begin(model=MODEL):
    return State(jnp.asarray(model))


gradient = functools.partial(by_hand.gradient, DATA)


def round_by_hand(
    model, second_order, num_steps=2, momentum=0.0, alpha=ALPHA, weights=None, sign=1
):
    """A round on all samples."""
    trained = []
    for i in range(CLIENTS):
        x, _ = by_hand.own(DATA, i)
        theta, trace = model, np.zeros(FEATURES)
        for _ in range(num_steps):
            slope = gradient(i, theta - sign * alpha * gradient(i, theta))
            if second_order:
                slope = slope - alpha * 2 / len(x) * x.T @ (x @ slope)
            trace = momentum * trace + slope
            theta = theta - BETA * trace
        trained.append(theta)
    return np.average(trained, axis=0, weights=weights)


# Against equations


@pytest.mark.parametrize(
    "method",
    ["first_order", "hessian_free", pytest.param("exact", marks=pytest.mark.slow)],
)
def test_two_rounds_against_equations(method):
    """A gradient of a quadratic is linear: its difference quotient is exact for every
    delta, so that the two methods with curvature agree up to rounding."""
    algorithm = build(
        method=method,
        difference=0.5,
        num_steps=2,
        update=LocalUpdate(optimizer=functools.partial(optax.sgd, momentum=0.5)),
    )
    second_order = method != "first_order"
    state, model = begin(), MODEL
    for seed in range(2):
        losses = [by_hand.loss(DATA, i, model) for i in range(CLIENTS)]
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        before, model = model, round_by_hand(model, second_order, momentum=0.5)
        close(state.model, model)
        close(info.losses, losses)
    for wrong in (
        round_by_hand(before, not second_order, momentum=0.5),
        round_by_hand(before, second_order, momentum=0.0),
        round_by_hand(before, second_order, momentum=0.5, sign=-1),
        round_by_hand(before, second_order, momentum=0.5, weights=KEPT),
    ):
        differ(state.model, wrong)


QUARTIC = Task(
    init=lambda key: jnp.asarray(MODEL),
    losses=lambda params, x, y: (x @ params - y) ** 2 + (x @ params) ** 4,
    predict=lambda params, x: x @ params,
)


@pytest.mark.long
def test_exact_gradient_against_autodiff():
    """On all samples it is the gradient of `F(w - alpha grad F(w))`, to which the
    Hessian-free one tends with the square of delta."""
    alone = jax.tree.map(lambda leaf: leaf[:1], DATA)
    loss = lambda w: jnp.mean(QUARTIC.losses(w, DATA.inputs[0], DATA.targets[0]))
    after = lambda w: loss(w - ALPHA * jax.grad(loss)(w))
    truth = np.asarray(jax.jit(jax.grad(after))(jnp.asarray(MODEL)))

    def moved(difference, method: Method = "hessian_free"):
        """What a step of size 1 moves the model by; delta is traced."""
        algorithm = per_fedavg(
            QUARTIC,
            step_size=1.0,
            adaptation_step_size=ALPHA,
            method=method,
            difference=difference,
        )
        state, _ = algorithm.step(jax.random.key(0), begin(), alone)
        return jnp.asarray(MODEL) - state.model

    exact = jax.jit(functools.partial(moved, method="exact"))(1.0)
    np.testing.assert_allclose(exact, truth, rtol=1e-4)
    run = jax.jit(moved)
    scale = 1 / np.abs(truth).max()  # The gradient is long here.
    coarse, fine = (np.abs(run(d * scale) - truth).max() for d in (0.2, 0.1))
    assert 3.5 < coarse / fine < 4.5


@pytest.mark.slow
def test_exact_curvature_of_a_network_with_backward_rules_of_its_own():
    """Forward mode would refuse its pools; only shapes are computed."""
    task = cnn((4, 4), channels=(2,), kernel_size=3, hidden=(), num_classes=3)
    images = jnp.zeros((CLIENTS, SAMPLES, 4, 4))
    data = ClientData(images, jnp.zeros((CLIENTS, SAMPLES), jnp.int32), DATA.mask)
    algorithm = per_fedavg(
        task, step_size=BETA, adaptation_step_size=ALPHA, method="exact"
    )
    key = jax.random.key(0)
    state = jax.eval_shape(algorithm.init, key, data)
    after, _ = jax.eval_shape(algorithm.step, key, state, data)
    assert jax.tree.map(jnp.shape, after) == jax.tree.map(jnp.shape, state)


# Against itself: FedAvg, and the released code


@pytest.mark.long
def test_without_adaptation_it_is_fedavg():
    key = jax.random.key(0)
    plain = build(fedavg, weights="clients", num_steps=2)
    expected, theirs = plain.step(key, Plain(jnp.asarray(MODEL)), DATA)

    def moved(alpha):
        algorithm = per_fedavg(
            TASK, step_size=BETA, adaptation_step_size=alpha, num_steps=2
        )
        return algorithm.step(key, begin(), DATA)

    run = jax.jit(moved)
    found, info = run(0.0)
    np.testing.assert_allclose(found.model, expected.model, rtol=1e-6)
    np.testing.assert_allclose(info.losses, theirs.losses, rtol=1e-6)
    np.testing.assert_array_equal(info.sent, theirs.sent)
    differ(run(0.01)[0].model, expected.model, rtol=1e-3, atol=0)


def test_the_released_code_trains_twice_with_one_step_size():
    by_steps = build(variant="reference", num_steps=2)
    state, _ = by_steps.step(jax.random.key(0), begin(), DATA)
    close(state.model, round_by_hand(MODEL, False, num_steps=4, alpha=BETA))
    for num_steps, alpha in ((2, BETA), (4, ALPHA)):
        differ(state.model, round_by_hand(MODEL, False, num_steps, alpha=alpha))


@pytest.mark.slow
def test_the_released_code_takes_twice_the_epochs():
    epochs = lambda number: LocalUpdate(batch_size=1, num_epochs=number)
    three = (
        build(variant="reference", update=epochs(1)),
        build(adaptation_step_size=BETA, update=epochs(2)),
        build(adaptation_step_size=BETA, update=epochs(1)),
    )
    steps = (a.step(jax.random.key(0), begin(), DATA)[0] for a in three)
    found, expected, once = (np.asarray(state.model) for state in steps)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - once).max() > 1e-3


def test_answers_and_newcomers_adapt_on_their_own_samples():
    """One step of alpha on all samples of the client; none without samples."""
    empty = DATA._replace(mask=DATA.mask.at[1].set(False))
    for number in (0, 2):
        algorithm = build(num_adaptation_steps=number)
        joined = algorithm.join(jax.random.key(0), begin(), empty)
        assert joined.model.shape == MODEL.shape
        answers = jax.jit(algorithm.predict)(joined, empty, DATA.inputs)
        for i in range(CLIENTS):
            theta = by_hand.trained(
                DATA, i, MODEL, step_size=ALPHA, num_steps=number if i != 1 else 0
            )
            close(answers[i], np.asarray(DATA.inputs[i]) @ theta)


# Against equations: the batches that a meta gradient wants


DEAL = jax.jit(parts, static_argnums=1)
WEIGHTS = np.array([0.5, -1.0, 2.0], "f4")


def batch_of(real, size=6):
    """A batch whose samples are their own numbers."""
    inputs = np.arange(size, dtype="f4")
    return ClientData(*map(jnp.asarray, (inputs, inputs, np.arange(size) < real)))


def dealt(batch, number):
    return [np.asarray(p.inputs)[np.asarray(p.mask)] for p in DEAL(batch, number)]


@pytest.mark.parametrize("number", [2, 3])
@pytest.mark.parametrize("real", [1, 2, 3, 5, 6])
def test_parts_share_no_sample(real, number):
    held = dealt(batch_of(real), number)
    sizes = [len(part) for part in held]
    assert min(sizes) >= 1
    assert max(sizes) - min(sizes) <= 1
    everything = np.concatenate(held)
    assert set(everything) == set(range(real))
    # Only where there are fewer samples than parts is one of them in several.
    assert len(everything) == max(real, number)


def test_a_padded_batch_smaller_than_the_parts():
    assert [part.tolist() for part in dealt(batch_of(2, size=2), 3)] == [
        [0.0],
        [1.0],
        [0.0],
    ]


def noisy(key, params, inputs, targets, mask):
    """Quadratic losses tilted at random, as by dropout, and a count of the passes."""
    tilt = jax.random.normal(key, WEIGHTS.shape)
    values = (inputs * params.weights.sum() - targets) ** 2
    losses = values + jnp.sum(tilt * params.weights)
    return losses, params._replace(statistics=params.statistics + 1)


NOISY = Task(
    init=lambda key: Variables(jnp.asarray(WEIGHTS), jnp.zeros(())),
    losses=lambda params, x, y: (x * params.weights.sum() - y) ** 2,
    predict=lambda params, x: x * params.weights.sum(),
    fit=noisy,
)


def gradient_by(method):
    """From weights and a key to the gradient and the statistics after."""
    fit = meta_task(NOISY, Adaptation(0.01, method, 1e-3), LocalUpdate()).fit
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
    cubic = NOISY._replace(
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

    def round_by_hand(adapt, judge, curve):
        total = WEIGHTS.sum()
        adapted = total - 3 * 0.01 * adapt * (total - 1) ** 2
        value = judge * (adapted - 1) ** 2
        return value - 0.01 * 3 * 2 * curve * (total - 1) * value

    np.testing.assert_allclose(found, np.full(3, round_by_hand(*cubes)), rtol=1e-5)
    for order in itertools.permutations(range(3)):
        wrong = round_by_hand(*np.array(cubes)[list(order)])
        assert order == (0, 1, 2) or abs(wrong - found[0]) > 1e-2


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(per_fedavg, TASK, step_size=BETA, adaptation_step_size=0.1),
    ({"adaptation_step_size": None}, "`adaptation_step_size` must be given"),
    ({"adaptation_step_size": -0.1}, "`adaptation_step_size` must not be negative"),
    ({"variant": "reference"}, "`adaptation_step_size` must be None .*, got 0.1"),
    ({"difference": 0.0}, "`difference` must be positive, got 0.0"),
    ({"num_adaptation_steps": -1}, "`num_adaptation_steps` must be at least 0"),
    ({"num_steps": 0}, "`num_steps` must be at least 1"),
    ({"method": "second_order"}, "method"),
    ({"variant": "code"}, "variant"),
)
