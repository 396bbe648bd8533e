"""Devices: clients of one run spread over several of them."""

import contextlib
import os
from collections.abc import Iterator

import jax

from cfljax.kernels.backend import CLIENTS

__all__ = ["clients_over_devices", "use_cores"]


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
    """Inside, kernels spread clients over local devices.

    On a CPU the results are the same bits for 1, 2, 4 and 8 devices; on accelerators
    sums are rounded in another order.

    Args:
      number: of devices; all local ones if None.

    Yields:
      The number of devices.

    Raises:
      ValueError: if there are not so many.
    """
    devices = jax.local_devices()
    number = len(devices) if number is None else number
    if not 1 <= number <= len(devices):
        raise ValueError(
            f"`number` of devices must be in 1..{len(devices)}, got {number}."
        )
    if number == 1:
        yield 1
        return
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((number,), (CLIENTS,), auto, devices=devices[:number])
    with jax.set_mesh(mesh):
        yield number
