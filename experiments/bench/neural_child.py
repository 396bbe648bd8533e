"""What `neural` measures in processes of their own: memory, and compilation.

    measure("memory", work, order=None, folder=...)

A peak belongs to a process from its start, and a compilation is cold only once.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import time
from typing import Any

import jax

from cfljax import engine
from cfljax.kernels.backend import Order
from experiments.bench.neural_jobs import Work, round_program

__all__ = ["measure"]

ROOT = pathlib.Path(__file__).resolve().parents[2]


def measure(
    what: str, work: Work, *, folder: pathlib.Path, order: Order | None = None
) -> dict[str, float]:
    """Measure a round of training in a new process.

    Args:
      what: "memory" gives MiB of the data, of the models and of the peak beyond what
        was resident before the first call, empty where the system does not tell;
        "compilation" gives seconds for the round, on the clock and of all cores
        together, and for all from the backend's start on: with drawing the data and
        the first models.
      work: the round.
      folder: of the compilation cache.
      order: over clients.

    Raises:
      RuntimeError: with the process's last words, if it failed.
    """
    settings = {"what": what, "folder": str(folder), "order": order}
    settings |= {"work": dataclasses.asdict(work)}
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.bench.neural_child", json.dumps(settings)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    if done.returncode != 0:
        raise RuntimeError(f"measuring {what} failed: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(settings: dict[str, Any]) -> dict[str, float]:
    """The child's part."""
    fields = settings["work"] | {"channels": tuple(settings["work"]["channels"])}
    work = Work(**fields)
    devices = engine.use_cores()
    jax.config.update("jax_compilation_cache_dir", settings["folder"])
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    started = time.perf_counter()
    program = round_program(work, settings["order"], devices)
    seconds = time.perf_counter() - started
    if settings["what"] == "compilation":
        used = program.processor
        return {"round": program.seconds, "processor": used, "all": seconds}
    before = _resident()
    if before is None:
        return {}
    with engine.clients_over_devices(devices):
        program()
    data, models = program.arguments[1].inputs.nbytes, program.arguments[0]
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(models))
    peak = _status("VmHWM")
    return {
        "data": data / 2**20,
        "models": size / 2**20,
        "peak": (peak or 0) - before,
    }


def _resident() -> float | None:
    """MiB resident now, from which the peak then counts; None if nobody tells."""
    # What compilation freed and the allocator still holds would hide part of a peak.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    try:
        # Forgets the peak of compilation, which may have been higher.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(name: str) -> float | None:
    """A line of the system's account of this process, in MiB."""
    # Of this program: the peak that getrusage tells includes the parent's at the fork.
    try:
        status = pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return None if found is None else int(found[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
