"""Linear clients of unequal sizes, what gradient steps make of them in NumPy, how
compiled rounds are compared with that, and how misuse is refused."""

import functools
import re
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import pytest

from cfljax.base.types import Algorithm, ClientData, Task, Variables
from cfljax.federated.local_update import LocalUpdate

MOMENTUM = functools.partial(optax.sgd, momentum=0.9)
UPDATE = LocalUpdate(
    batch_size=3, num_epochs=2, decay=0.9, optimizer=MOMENTUM, keep_optimizer=True
)


def padded(inputs: Any, targets: Any, kept: Any) -> ClientData:
    """Clients with so many real samples each, in single precision."""
    mask = np.arange(np.shape(inputs)[1])[None] < np.asarray(kept)[:, None]
    inputs, targets = (np.asarray(leaf, np.float32) for leaf in (inputs, targets))
    return ClientData(*jax.device_put((inputs, targets, mask)))


def draw(
    kept: Any, *, num_samples: int, num_features: int, seed: int, scale: float = 1.0
) -> ClientData:
    """Every client with a normal model of its own, and without noise."""
    generator = np.random.default_rng(seed)
    shape = (len(kept), num_samples, num_features)
    inputs = generator.normal(size=shape).astype("f4")
    truth = scale * generator.normal(size=(len(kept), num_features)).astype("f4")
    return padded(inputs, np.einsum("csf,cf->cs", inputs, truth), kept)


def counting(task: Task, model: Any) -> Task:
    """The task of models that start here, whose statistics, two numbers, are how often
    training has asked for losses."""

    def fit(key: Any, params: Variables, inputs: Any, targets: Any, mask: Any) -> Any:
        losses = task.losses(params.weights, inputs, targets)
        return losses, params._replace(statistics=params.statistics + 1)

    return Task(
        init=lambda key: Variables(jnp.asarray(model), jnp.zeros(2)),
        losses=lambda params, x, y: task.losses(params.weights, x, y),
        predict=lambda params, x: task.predict(params.weights, x),
        fit=fit,
    )


def own(data: ClientData, i: Any) -> tuple[np.ndarray, np.ndarray]:
    """A client's real samples."""
    inputs, targets, mask = (np.asarray(leaf)[i] for leaf in data)
    return inputs[mask].astype(float), targets[mask]


def loss(data: ClientData, i: Any, theta: np.ndarray) -> Any:
    """Mean squared error; not a number without samples."""
    x, y = own(data, i)
    return np.mean((x @ theta - y) ** 2) if len(y) else np.nan


def gradient(data: ClientData, i: Any, theta: np.ndarray) -> np.ndarray:
    """Of the mean squared error; 0 without samples."""
    x, y = own(data, i)
    return 2 / max(len(y), 1) * x.T @ (x @ theta - y)


def trained(
    data: ClientData, i: Any, theta: np.ndarray, *, step_size: float, num_steps: int
) -> np.ndarray:
    """The model after steps on all samples."""
    for _ in range(num_steps):
        theta = theta - step_size * gradient(data, i, theta)
    return theta


PROGRAMS: dict[Any, Any] = {}


def once(function: Callable[..., Any], *arguments: Any, **own: Any) -> Any:
    """`function`, to be compiled, or what is already that computes the same from
    arguments of these shapes, letter by letter, for tests with the same `own`."""
    program = jax.jit(function)
    traced = program.trace(*arguments)
    constants = (np.asarray(constant) for constant in traced.jaxpr.consts)
    same = (
        re.sub("0x[0-9a-f]+", "", str(traced.jaxpr)),
        *((constant.dtype, constant.tobytes()) for constant in constants),
        *map(jax.tree.structure, (arguments, traced.out_info)),
        *own.items(),
    )
    return PROGRAMS.setdefault(same, program)


def compiled(algorithm: Algorithm) -> Algorithm:
    """The algorithm, whose start and rounds are compiled once."""
    return algorithm._replace(
        init=jax.jit(algorithm.init), step=jax.jit(algorithm.step)
    )


def rounds(
    algorithm: Algorithm, state: Any, data: ClientData, number: int = 2
) -> tuple[Any, Any]:
    """The state after rounds with the keys 0, 1, ..., and what the last one told."""
    info = None
    for seed in range(number):
        state, info = algorithm.step(jax.random.key(seed), state, data)
    return state, info


def close(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def differ(found: Any, expected: Any, rtol: float = 2e-5, atol: float = 2e-6) -> None:
    """A control: `close` with these tolerances would have noticed."""
    with pytest.raises(AssertionError):
        close(found, expected, rtol, atol)


def misuse(
    build: Callable[..., Any], *rows: tuple[dict[str, Any], str]
) -> Callable[..., None]:
    """A test that every row's settings are refused with its message.

    An unknown word may be seen by the annotations first, if these are checked.
    """

    @pytest.mark.parametrize(("settings", "message"), rows)
    def test_misuse(settings: dict[str, Any], message: str) -> None:
        with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
            build(**settings)

    return test_misuse
