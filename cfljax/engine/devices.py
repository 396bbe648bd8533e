"""Devices: clients of one run, or trials of a sweep, spread over several of them."""

import contextlib
import math
from collections.abc import Iterator
from typing import Any

import jax
from jax.extend.core import Jaxpr, jaxprs_in_params

from cfljax.cores import MOST, count_cores, make_devices
from cfljax.engine.processes import mesh, num_processes
from cfljax.federated.backend import ROUNDED_APART

_DECOMPOSITIONS = {
    primitive for name, primitive in vars(jax.lax.linalg).items() if name.endswith("_p")
}

# Operations of a round from which it is shared out. Two devices need some 200 us to
# hand each other their sums, in which one makes about so many.
_WORTH = 3e7
_MOST_MADE = 1024  # Devices; each has threads of its own.


def use_cores(number: int | None = None) -> int:
    """Makes one device of each processor core, where the backend is the CPU.

    `import cfljax` does it for up to 8 cores, where nobody has said how many devices
    there shall be. To be called before JAX is used; later it changes nothing.

    Args:
      number: of cores; all that this process may use if None.

    Returns:
      Number of devices there are now.

    Raises:
      ValueError: if `number` is below 1, or so large that only making the devices would
        take all the memory.
    """
    if number is not None and not 1 <= number <= _MOST_MADE:
        raise ValueError(
            f"`number` of devices must be in 1..{_MOST_MADE}, got {number}."
        )
    make_devices(count_cores() if number is None else number)
    return jax.local_device_count()


@contextlib.contextmanager
def clients_over_devices(number: int | None = None) -> Iterator[int]:
    """Inside, algorithms spread clients over local devices.

    On a CPU the results are the same bits on any number of devices up to 8, but for the
    rounds that `run` names; on accelerators sums are rounded in another order.

    Args:
      number: of devices; all local ones if None.

    Yields:
      The number of devices.

    Raises:
      ValueError: if there are not so many, or several processes compute together.
    """
    if num_processes() > 1:
        raise ValueError(
            "`clients_over_devices` has no use inside `clients_over_processes`, where"
            " `run` spreads clients over the devices of all; tell `run` how many."
        )
    number = jax.local_device_count() if number is None else number
    with mesh_of(number) as number:
        yield number


@contextlib.contextmanager
def mesh_of(number: int) -> Iterator[int]:
    """Inside, clients are spread over so many devices of each process that computes
    together with this one; yields how many there are of all."""
    local = jax.local_device_count()
    if num_processes() > 1 and check_devices(number) not in (1, local):
        raise ValueError(
            f"`devices` must be 1 or {local} of each process, got {number}; say how"
            " many there are by `use_cores`, `--devices`."
        )
    if check_devices(number) * num_processes() == 1:
        yield 1
        return
    own = mesh(number)
    with jax.set_mesh(own):
        yield own.size


def trial_devices(number: int, *, at_most: int | None = None) -> list[Any]:
    """The devices that trials are spread over: the first local ones.

    Args:
      number: of devices.
      at_most: fewer are used where this is less, but `number` must be there.

    Raises:
      ValueError: if there are not so many, or clients are spread over devices.
    """
    if check_devices(number) > 1 and not jax.sharding.get_abstract_mesh().empty:
        raise ValueError(
            "trials cannot be spread over devices inside `clients_over_devices`; ask"
            " for one device here, or leave that context."
        )
    return jax.local_devices()[: number if at_most is None else min(number, at_most)]


def check_devices(number: int) -> int:
    """`number`; raises ValueError where there are not so many local devices."""
    if not 1 <= number <= jax.local_device_count():
        raise ValueError(
            f"`number` of devices must be in 1..{jax.local_device_count()}, got"
            f" {number}."
        )
    return number


def devices_for(jaxpr: Jaxpr, num_rounds: int) -> int:
    """Devices that pay for clients of a run by default: on a CPU as many as there are,
    `MOST` at most, unless a round is too small to share, would hang, or would give
    other last bits on each number of devices. Of several processes, which were asked
    for, devices of each.

    Args:
      jaxpr: of the whole run on one device.
      num_rounds: that it has.
    """
    number = min(jax.local_device_count(), MOST)
    is_small = num_processes() == 1 and products(jaxpr) < _WORTH * num_rounds
    if jax.default_backend() != "cpu" or is_small or _is_rounded_apart(jaxpr):
        return 1
    return 1 if next(_batched_decompositions(jaxpr), None) else number


def products(jaxpr: Jaxpr) -> float:
    """Operations of a program's matrix products and convolutions, two for each product
    of numbers. A loop counts as often as it runs, once where that is not known before,
    and of branches the largest."""
    total = 0.0
    for equation in jaxpr.eqns:
        inner = [products(own) for own in jaxprs_in_params(equation.params)]
        name = equation.primitive.name
        if name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            shape = _shape(equation.invars[0])
            rows = math.prod(shape[axis] for axis in contracted)
            total += 2 * math.prod(_shape(equation.outvars[0])) * rows
        elif name == "conv_general_dilated":
            kernel = _shape(equation.invars[1])
            channels = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
            outputs = math.prod(_shape(equation.outvars[0]))
            total += 2 * outputs * math.prod(kernel) / channels
        elif name == "cond":
            total += max(inner)
        else:
            total += sum(inner) * equation.params.get("length", 1)
    return total


def check_decompositions(jaxpr: Jaxpr) -> None:
    """Raises ValueError where a program that several CPU devices run would hang.

    On a CPU, jaxlib gives the matrices of a batch to the threads that run the devices
    and waits for them there: several devices wait for each other and never end.

    Args:
      jaxpr: of the program that each device runs.
    """
    if jax.default_backend() != "cpu":
        return
    for name, shape in _batched_decompositions(jaxpr):
        raise ValueError(
            f"`{name}` of a batch of matrices, of shape {shape}, hangs on several"
            " devices of a CPU; decompose one matrix at a time, with `jax.lax.map`, or"
            " ask for one device."
        )


def _batched_decompositions(jaxpr: Jaxpr) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Decompositions of several matrices at once: their names and shapes."""
    for equation in jaxpr.eqns:
        shape = _shape(equation.invars[0]) if equation.invars else ()
        if equation.primitive in _DECOMPOSITIONS and math.prod(shape[:-2]) > 1:
            yield equation.primitive.name, shape
        for inner in jaxprs_in_params(equation.params):
            yield from _batched_decompositions(inner)


def _is_rounded_apart(jaxpr: Jaxpr) -> bool:
    """Whether last bits depend on the number of devices, see `rounded_apart`."""
    return any(
        equation.params.get("name") == ROUNDED_APART
        or any(map(_is_rounded_apart, jaxprs_in_params(equation.params)))
        for equation in jaxpr.eqns
    )


def _shape(variable: Any) -> tuple[int, ...]:
    return variable.aval.shape
