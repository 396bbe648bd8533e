"""Devices: clients of one run, or trials of a sweep, spread over several of them."""

import contextlib
import math
import os
from collections.abc import Iterator
from typing import Any

import jax

from cfljax.federated.backend import CLIENTS

_DECOMPOSITIONS = {
    primitive for name, primitive in vars(jax.lax.linalg).items() if name.endswith("_p")
}


def use_cores(number: int | None = None) -> int:
    """Makes one device of each processor core, where the backend is the CPU.

    XLA computes a convolution on one core, so that several devices are what puts the
    others to work. To be called before JAX is used; later it changes nothing.

    Args:
      number: of cores; all that this process may use if None.

    Returns:
      Number of devices there are now.

    Raises:
      ValueError: if `number` is below 1.
    """
    if number is not None and number < 1:
        raise ValueError(f"`number` of cores must be at least 1, got {number}.")
    if number is None:
        number = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    with contextlib.suppress(RuntimeError):  # The devices are made already.
        jax.config.update("jax_num_cpu_devices", number)
    return jax.local_device_count()


@contextlib.contextmanager
def clients_over_devices(number: int | None = None) -> Iterator[int]:
    """Inside, algorithms spread clients over local devices.

    On a CPU the results are the same bits for 1, 2, 4 and 8 devices; on accelerators
    sums are rounded in another order.

    Args:
      number: of devices; all local ones if None.

    Yields:
      The number of devices.

    Raises:
      ValueError: if there are not so many.
    """
    number = jax.local_device_count() if number is None else number
    if check_devices(number) == 1:
        yield 1
        return
    devices = jax.local_devices()[:number]
    auto = (jax.sharding.AxisType.Auto,)
    with jax.set_mesh(jax.make_mesh((number,), (CLIENTS,), auto, devices=devices)):
        yield number


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


def check_decompositions(jaxpr: Any) -> None:
    """Raises ValueError where a program that several CPU devices run would hang.

    On a CPU, jaxlib gives the matrices of a batch to the threads that run the devices
    and waits for them there: several devices wait for each other and never end.

    Args:
      jaxpr: of the program that each device runs.
    """
    if jax.default_backend() != "cpu":
        return
    for equation in jaxpr.eqns:
        shape = equation.invars[0].aval.shape if equation.invars else ()
        if equation.primitive in _DECOMPOSITIONS and math.prod(shape[:-2]) > 1:
            raise ValueError(
                f"`{equation.primitive}` of a batch of matrices, of shape {shape},"
                " hangs on several devices of a CPU; decompose one matrix at a time,"
                " with `jax.lax.map`, or ask for one device."
            )
        for inner in jax.tree.leaves(list(equation.params.values())):
            inner = getattr(inner, "jaxpr", inner)
            if hasattr(inner, "eqns"):
                check_decompositions(inner)
