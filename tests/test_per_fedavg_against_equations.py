"""Per-FedAvg: rounds by hand in NumPy, its three gradients, its limits, its batches."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.algorithms import fedavg, per_fedavg
from cfljax.algorithms.fedavg import State as Plain
from cfljax.algorithms.per_fedavg import Method, State
from cfljax.base.types import ClientData, Task
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import cnn, linear

CLIENTS, SAMPLES, FEATURES, ALPHA, BETA = 5, 6, 3, 0.2, 0.05
KEPT = np.array([6, 2, 5, 6, 3])  # Real samples of each client.


def draw():
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(CLIENTS, SAMPLES, FEATURES)).astype("f4")
    truth = generator.normal(size=(CLIENTS, FEATURES)).astype("f4")
    targets = np.einsum("csf,cf->cs", inputs, truth)
    mask = np.arange(SAMPLES)[None] < KEPT[:, None]
    return ClientData(jnp.asarray(inputs), jnp.asarray(targets), jnp.asarray(mask))


DATA = draw()
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5], "f4")


def compiled(constructor=per_fedavg, task=TASK, **settings):
    settings = {"step_size": BETA} | settings
    if constructor is per_fedavg and settings.get("variant") != "reference":
        settings = {"adaptation_step_size": ALPHA} | settings
    algorithm = constructor(task, **settings)
    return algorithm._replace(step=jax.jit(algorithm.step))


def begin(model=MODEL):
    return State(jnp.asarray(model))


def close(found, expected, rtol=2e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=2e-6)


def parts_of_loss(i):
    """Hessian and linear term of a client's loss."""
    x, y = (np.asarray(leaf[i, : KEPT[i]], "f8") for leaf in DATA[:2])
    return 2 / len(y) * x.T @ x, 2 / len(y) * x.T @ y


def by_hand(
    model, second_order, num_steps=2, momentum=0.0, alpha=ALPHA, weights=None, sign=1
):
    """A round on all samples."""
    trained = []
    for i in range(CLIENTS):
        hessian, linear_term = parts_of_loss(i)
        theta, trace = model, np.zeros(FEATURES)
        for _ in range(num_steps):
            adapted = theta - sign * alpha * (hessian @ theta - linear_term)
            slope = hessian @ adapted - linear_term
            if second_order:
                slope = slope - alpha * hessian @ slope
            trace = momentum * trace + slope
            theta = theta - BETA * trace
        trained.append(theta)
    return np.average(trained, axis=0, weights=weights)


@pytest.mark.parametrize(
    "method",
    ["first_order", "hessian_free", pytest.param("exact", marks=pytest.mark.slow)],
)
def test_two_rounds_against_equations(method):
    """A gradient of a quadratic is linear: its difference quotient is exact for every
    delta, so that the two methods with curvature agree up to rounding."""
    algorithm = compiled(
        method=method,
        difference=0.5,
        num_steps=2,
        update=LocalUpdate(optimizer=functools.partial(optax.sgd, momentum=0.5)),
    )
    second_order = method != "first_order"
    state, model = begin(), MODEL
    for seed in range(2):
        losses = [
            np.mean((np.asarray(DATA.inputs[i, :n]) @ model - DATA.targets[i, :n]) ** 2)
            for i, n in enumerate(KEPT)
        ]
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        before, model = model, by_hand(model, second_order, momentum=0.5)
        close(state.model, model)
        close(info.losses, losses)
    for wrong in (
        by_hand(before, not second_order, momentum=0.5),
        by_hand(before, second_order, momentum=0.0),
        by_hand(before, second_order, momentum=0.5, sign=-1),
        by_hand(before, second_order, momentum=0.5, weights=KEPT),
    ):
        with pytest.raises(AssertionError):
            close(state.model, wrong)


QUARTIC = Task(
    init=lambda key: jnp.asarray(MODEL),
    losses=lambda params, x, y: (x @ params - y) ** 2 + (x @ params) ** 4,
    predict=lambda params, x: x @ params,
)


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


def test_without_adaptation_it_is_fedavg():
    key = jax.random.key(0)
    plain = compiled(fedavg, weights="clients", num_steps=2)
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
    with pytest.raises(AssertionError):  # Control.
        np.testing.assert_allclose(run(0.01)[0].model, expected.model, rtol=1e-3)


def test_the_released_code_trains_twice_with_one_step_size():
    by_steps = compiled(variant="reference", num_steps=2)
    state, _ = by_steps.step(jax.random.key(0), begin(), DATA)
    close(state.model, by_hand(MODEL, False, num_steps=4, alpha=BETA))
    for num_steps, alpha in ((2, BETA), (4, ALPHA)):
        with pytest.raises(AssertionError):
            close(state.model, by_hand(MODEL, False, num_steps, alpha=alpha))


@pytest.mark.slow
def test_the_released_code_takes_twice_the_epochs():
    epochs = lambda number: LocalUpdate(batch_size=1, num_epochs=number)
    three = (
        compiled(variant="reference", update=epochs(1)),
        compiled(adaptation_step_size=BETA, update=epochs(2)),
        compiled(adaptation_step_size=BETA, update=epochs(1)),
    )
    steps = (a.step(jax.random.key(0), begin(), DATA)[0] for a in three)
    found, expected, once = (np.asarray(state.model) for state in steps)
    np.testing.assert_array_equal(found, expected)
    assert np.abs(found - once).max() > 1e-3


def test_answers_and_newcomers_adapt_on_their_own_samples():
    """One step of alpha on all samples of the client; none without samples."""
    empty = DATA._replace(mask=DATA.mask.at[1].set(False))
    for number in (0, 2):
        algorithm = compiled(num_adaptation_steps=number)
        joined = algorithm.join(jax.random.key(0), begin(), empty)
        assert joined.model.shape == MODEL.shape
        answers = jax.jit(algorithm.predict)(joined, empty, DATA.inputs)
        for i in range(CLIENTS):
            hessian, linear_term = parts_of_loss(i)
            theta = MODEL
            for _ in range(number if i != 1 else 0):
                theta = theta - ALPHA * (hessian @ theta - linear_term)
            close(answers[i], np.asarray(DATA.inputs[i]) @ theta)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"adaptation_step_size": None}, "`adaptation_step_size` must be given"),
        ({"adaptation_step_size": -0.1}, "`adaptation_step_size` must not be negative"),
        ({"variant": "reference"}, "`adaptation_step_size` must be None .*, got 0.1"),
        ({"difference": 0.0}, "`difference` must be positive, got 0.0"),
        ({"num_adaptation_steps": -1}, "`num_adaptation_steps` must not be negative"),
        ({"num_steps": 0}, "`num_steps` must be at least 1"),
        ({"method": "second_order"}, "method"),
        ({"variant": "code"}, "variant"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        per_fedavg(
            TASK, **({"step_size": BETA, "adaptation_step_size": 0.1} | settings)
        )
