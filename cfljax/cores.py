"""Processor cores as devices of JAX, which must hear of them before it starts.

XLA computes a convolution, and whatever else is no large matrix product, on one core.
What puts the others to work is a device for each. Nothing here imports JAX.
"""

import contextlib
import math
import os
import pathlib
import sys

# Sums over clients have as many lanes, see `federated.sums`.
MOST = 8

# One device may wait for the other as long as a client trains: by default XLA warns
# after 20 s and ends the process after 40; one process for the other, as long as that
# one compiles or draws: by default 30 minutes.
_PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds",
    "--xla_cpu_collective_call_terminate_timeout_seconds",
    "--xla_cpu_collective_timeout_seconds",
)
_SECONDS = 10**6


def count_cores() -> int:
    """Processor cores that this process may use, by its affinity and, on Linux, by the
    quota of its control group; 1 where the system does not tell."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    with contextlib.suppress(OSError, ValueError):  # No quota, or "max".
        quota, period = pathlib.Path("/sys/fs/cgroup/cpu.max").read_text().split()
        cores = min(cores, math.ceil(int(quota) / int(period)))
    return max(cores, 1)


def offer_cores() -> None:
    """Let JAX have a device for each core, `MOST` of them at most, unless it has
    started, or somebody has said how many there shall be; and have them be patient."""
    wait_for_each_other()
    flags = os.environ.get("XLA_FLAGS", "")
    is_said = "JAX_NUM_CPU_DEVICES" in os.environ
    if not is_said and "xla_force_host_platform_device_count" not in flags:
        make_devices(min(count_cores(), MOST), only_default=True)


def make_devices(number: int, *, only_default: bool = False) -> None:
    """Make JAX's CPU so many devices; nothing happens if it has started, or with
    `only_default` if it was given another number."""
    if "jax" not in sys.modules:
        os.environ["JAX_NUM_CPU_DEVICES"] = str(number)
        return
    config = sys.modules["jax"].config
    if only_default and config.jax_num_cpu_devices != -1:
        return
    with contextlib.suppress(RuntimeError):  # It has started.
        config.update("jax_num_cpu_devices", number)


def wait_for_each_other() -> None:
    """Have XLA, unless it has started, let a device wait for another for days."""
    given = os.environ.get("XLA_FLAGS", "").split()
    names = [flag.partition("=")[0] for flag in given]
    more = [f"{name}={_SECONDS}" for name in _PATIENCE if name not in names]
    os.environ["XLA_FLAGS"] = " ".join([*given, *more])
