"""Step sizes that follow a schedule: from the rounds that are over to a number."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from by_hand import close, compiled, differ, misuse
from conformance_cases import NAMES, build, problem, task_of
from test_local_update import COUNTS, ONES, counting

import cfljax as cfl
from cfljax import engine
from cfljax.algorithms import REGISTRY, fedavg, fedpac, local
from cfljax.base.types import Algorithm
from cfljax.engine.checkpoints import _schedules
from cfljax.federated.local_update import LocalUpdate

KEY = jax.random.key(0)
ROUNDS, STEPS = 5, 2
# Warms up for two rounds, then falls.
SCHEDULE = optax.warmup_cosine_decay_schedule(0.01, 0.2, 2, ROUNDS)


def after(algorithm: Algorithm, data, num_rounds=ROUNDS):
    """States before and after rounds."""
    state = first = algorithm.init(jax.random.key(0), data)
    for index in range(num_rounds):
        state, _ = algorithm.step(jax.random.key(index), state, data)
    return first, state


# Against reference


@pytest.mark.long
def test_a_round_takes_the_steps_that_optax_takes_at_its_count():
    """One client of all data is optax's own optimiser, which counts its steps."""
    task, (data, _) = task_of("fedavg"), problem()
    one = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[:1]), data)
    first, last = after(
        compiled(fedavg(task, step_size=SCHEDULE, num_steps=STEPS)), one
    )
    inputs, targets, _ = (leaf[0] for leaf in one)
    gradient = jax.grad(lambda model: jnp.mean(task.losses(model, inputs, targets)))

    @jax.jit
    def by_optax(steps, skipped):
        """The model after all steps, the schedule's count going on every so many."""
        optimizer = optax.sgd(lambda count: SCHEDULE(skipped + count // steps))

        def step(carry, _):
            model, moments = carry
            changes, moments = optimizer.update(gradient(model), moments)
            return (optax.apply_updates(model, changes), moments), None

        carry = first.model, optimizer.init(first.model)
        return jax.lax.scan(step, carry, length=STEPS * ROUNDS)[0][0]

    with jax.numpy_dtype_promotion("standard"):
        close(last.model, by_optax(STEPS, 0), rtol=1e-6, atol=1e-6)
        # Controls: a count of steps instead of rounds, and of rounds from 1.
        for wrong in ((1, 0), (STEPS, 1)):
            differ(last.model, by_optax(*wrong), rtol=1e-4, atol=1e-4)


# Against equations


@pytest.mark.parametrize("decay", [1.0, 0.5])
def test_a_schedule_counts_rounds_and_is_decayed(decay):
    """The gradient is 1, so that a model is minus the sum of its step sizes."""
    table = np.array([0.1, 0.4, 0.2], np.float32)
    algorithm = local(
        counting(),
        step_size=lambda index: jnp.asarray(table)[index],
        num_steps=STEPS,
        update=LocalUpdate(decay=decay),
    )
    _, state = after(compiled(algorithm), ONES, 3)
    total = STEPS * np.sum(table * decay ** np.arange(3))
    np.testing.assert_allclose(state.models, -total * (COUNTS > 0), rtol=1e-6)


def test_an_optimiser_of_the_clients_own_counts_its_steps():
    """What `LocalUpdate.optimizer` offers whoever wants to count steps."""
    halved = lambda size: optax.sgd(lambda count: size / 2.0**count)
    update = LocalUpdate(optimizer=halved, keep_optimizer=True)
    algorithm = local(counting(), step_size=0.1, num_steps=STEPS, update=update)
    with jax.numpy_dtype_promotion("standard"):
        _, state = after(compiled(algorithm), ONES, 2)
    total = 0.1 * np.sum(0.5 ** np.arange(2 * STEPS))
    np.testing.assert_allclose(state.models, -total * (COUNTS > 0), rtol=1e-6)


# Against itself


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_algorithm_takes_the_schedule_of_its_rounds(name):
    """A constant is the number, bit for bit, and another second round is another."""
    data, truth = problem(name)
    size = 0.1

    def found(step_size):
        return after(compiled(build(name, truth, step_size=step_size)), data, 2)[1]

    number, constant = found(size), found(lambda index: 0 * index + size)
    later = found(lambda index: jnp.where(index == 0, size, size / 2))
    models = lambda state: jax.tree.leaves(state[0])
    same = zip(models(number), models(constant), strict=True)
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in same)
    other = zip(models(number), models(later), strict=True)
    assert any(not np.array_equal(a, b, equal_nan=True) for a, b in other)


@pytest.mark.slow
def test_last_layers_have_a_schedule_of_their_own():
    """FedPAC's, beside a number for the body: with 0 in the second round they stay, but
    for what is combined of them; alone, a client combines nothing."""
    data, _ = problem("fedpac")
    one = jax.tree.map(lambda leaf: jax.device_put(np.asarray(leaf)[:1]), data)
    algorithm = fedpac(
        task_of("fedpac"),
        num_classes=3,
        step_size=0.1,
        head_step_size=lambda index: jnp.where(index == 0, 0.1, 0.0),
    )
    algorithm = compiled(algorithm)
    first, second = after(algorithm, one, 1)
    _, third = after(algorithm, one, 2)
    kernel = lambda state: np.asarray(jax.tree.leaves(state.heads)[0])
    differ(kernel(first), kernel(second))
    close(kernel(second), kernel(third))


@pytest.mark.slow
def test_a_checkpoint_of_another_schedule_is_refused(tmp_path):
    """Schedules of one factory have one name."""
    data, _ = problem()
    make = lambda size: fedavg(
        task_of("fedavg"), step_size=optax.cosine_decay_schedule(size, 9)
    )
    go = lambda size, rounds: cfl.run(
        make(size), KEY, data, num_rounds=rounds, checkpoint=tmp_path / "run"
    )
    go(0.1, 2)
    with pytest.raises(engine.StoreError, match="step_size"):
        go(0.2, 3)
    go(0.1, 3)  # Control.


def test_what_a_schedule_gives_identifies_it():
    about = lambda size: _schedules(
        {"step_size": optax.cosine_decay_schedule(size, 9), "num_steps": 2}
    )
    assert about(0.1) == about(0.1) != about(0.2)
    assert _schedules({"step_size": 0.1}) == {}


# Against misuse


def trial(name="fedavg", **settings):
    return REGISTRY[name].constructor(counting(), **settings)


test_misuse = misuse(
    trial,
    (
        {"step_size": optax.cosine_decay_schedule},
        "`step_size` must be a number, or a schedule that JAX can trace.*raises",
    ),
    (
        {"step_size": lambda index: 0.1 if index < 3 else 0.01},
        "`step_size` must be a number, or a schedule that JAX can trace",
    ),
    (
        {"step_size": lambda index: jnp.ones(2)},
        r"`step_size` must give one number for a round, got .*\(2,\)",
    ),
    (
        {"step_size": lambda index: jnp.ones(2), "name": "myopic_clustering"}
        | {"num_clusters": 2},
        "`step_size` must give one number for a round",
    ),
    (
        {"step_size": SCHEDULE, "name": "per_fedavg", "variant": "reference"},
        "`step_size` must be a number with `variant='reference'`",
    ),
)
