"""Memory: how many trials one compiled call may hold."""

import math
import os
import pathlib
from collections.abc import Callable

import jax

from cfljax.engine.batch import Program
from cfljax.engine.errors import MemoryLimitError
from cfljax.engine.grid import Grid

__all__ = [
    "available_memory",
    "check_results",
    "fit_chunk",
    "host_memory",
    "needed_memory",
]


def available_memory() -> int:
    """Bytes that arrays may take on the default device.

    Of an accelerator, all that its allocator may use: a constant of the machine, so
    that a sweep which resumes there chooses the same chunk again. Else the host's.
    """
    stats = jax.local_devices()[0].memory_stats() or {}
    return stats["bytes_limit"] if "bytes_limit" in stats else host_memory()


def host_memory() -> int:
    """Bytes that the host has to spare.

    What Linux counts as available, within the limit of the control group if there is
    one; elsewhere the physical memory.
    """
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = 1024 * int(line.split()[1])
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{n}") for n in ("max", "current"))
    if limit and used and limit[0].isdigit():
        free = min(free, int(limit[0]) - int(used[0]))
    return free


def _lines(path: str) -> list[str]:
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def check_results(grid: Grid) -> None:
    """Raises MemoryLimitError where a grid's results cannot be held.

    They are counted with 8 bytes a number and twice, as they are when they are read;
    an own axis without labels counts as one number, since its size is not known yet.
    """
    sizes = {name: len(labels) for name, labels in grid.coords.items()}
    numbers = sum(
        math.prod(sizes.get(dim, 1) for dim in dims) for dims in grid.dims.values()
    )
    per_trial = 16 * numbers * math.prod(grid.shape)
    allowed = host_memory()
    if per_trial * grid.num_trials > allowed:
        raise MemoryLimitError(
            f"results of {grid.num_trials} trials in {math.prod(grid.shape)} cells need"
            f" {_size(per_trial * grid.num_trials)} but {_size(allowed)} are free;"
            f" {allowed // per_trial} trials would fit."
        )


def needed_memory(program: Program, *, block: int) -> int:
    """Bytes that a compiled batch takes while it runs.

    XLA's own plan: arguments (the constants among them), temporaries and outputs;
    plus the outputs of a whole block, which are gathered on the host. Libraries
    that XLA calls may take a little more. A plan is that of one device; the cores of a
    CPU share their memory, and so its plans add up.
    """
    per_trial = sum(
        math.prod(output.shape) * output.dtype.itemsize
        for output in program.outputs.values()
    )
    gathered = block * per_trial
    plan = program.compiled[0].memory_analysis()
    if plan is None:  # Not every backend tells.
        return gathered
    arguments = plan.argument_size_in_bytes + plan.temp_size_in_bytes
    sharing = _devices_in_one_memory(program)
    return sharing * (arguments + plan.output_size_in_bytes) + gathered


def _devices_in_one_memory(program: Program) -> int:
    """Devices of a program that take their memory from the same place."""
    sets = [sharding.device_set for sharding in program.shardings]
    is_cpu = next(iter(sets[0])).platform == "cpu"
    return sum(len(devices) for devices in sets) if is_cpu else 1


def fit_chunk(
    compile_chunk: Callable[[int], Program],
    *,
    block: int,
    chunk: int | None,
    memory: int | None,
) -> Program:
    """Compile the largest chunk that fits.

    Args:
      compile_chunk: number of trials -> program.
      block: trials per stored block; a chunk is never larger.
      chunk: trials per call, or None for as many as fit.
      memory: bytes allowed, or None for half of what is available.

    Raises:
      MemoryLimitError: if one trial, or `chunk` trials, need more than `memory`.
    """
    allowed = available_memory() // 2 if memory is None else memory
    wanted = min(block, chunk or block)
    program = compile_chunk(wanted)
    needed = needed_memory(program, block=block)
    if needed <= allowed:
        return program
    single = compile_chunk(1) if wanted > 1 else program
    least = needed_memory(single, block=block)
    if least > allowed:
        raise MemoryLimitError(
            f"`memory` allows {_size(allowed)} but one trial needs {_size(least)};"
            " allow more, or make the trial smaller."
        )
    # What a batch needs grows in proportion to its rows, or less: this is not too low.
    below = min(
        wanted - 1, math.ceil(program.turns * program.devices * allowed / needed)
    )
    fitting = _largest(compile_chunk, single, below=below, block=block, allowed=allowed)
    if chunk is not None:
        raise MemoryLimitError(
            f"`chunk` of {wanted} trials needs {_size(needed)} but `memory` allows"
            f" {_size(allowed)}; a chunk of {fitting.chunk} would fit."
        )
    return fitting


def _largest(
    compile_chunk: Callable[[int], Program],
    single: Program,
    *,
    below: int,
    block: int,
    allowed: int,
) -> Program:
    """The largest chunk, up to `below`, that fits; one trial does."""
    for size in range(below, 1, -1):
        program = compile_chunk(size)
        if needed_memory(program, block=block) <= allowed:
            return program
    return single


def _size(count: int) -> str:
    unit, name = next(
        (unit, name)
        for unit, name in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))
        if count >= unit or unit == 1
    )
    return f"{count / unit:.3g} {name}"
