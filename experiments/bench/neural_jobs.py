"""What `neural` times: rounds of local training, by PyTorch too, and loss matrices.

Everything is compiled before it is timed and its arguments are where the program wants
them, as inside a run of many rounds. Memory and compilation are measured in processes
of their own, which run this module.
"""

import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cfljax import engine
from cfljax.algorithms import oracle
from cfljax.base import ClientData, Stacked
from cfljax.federated import LocalUpdate, Order, loss_matrix
from experiments.bench import torch_jobs
from experiments.bench.processes import (
    MeasuringError,
    environment,
    resident,
    status,
)
from experiments.bench.work import NUM_CLASSES, Job, Start, Work

LOOP = "PyTorch, loop"
ONE_THREAD = "PyTorch, loop, 1 thread"


def client_data(work: Work) -> ClientData:
    """Noise as images, with labels: the time does not depend on what is learnt."""
    pixels, labels = jax.random.split(jax.random.key(0))
    shape = (work.num_clients, work.num_samples)
    return ClientData(
        jax.random.normal(pixels, (*shape, work.image, work.image)),
        jax.random.randint(labels, shape, 0, NUM_CLASSES),
        jnp.ones(shape, bool),
    )


def first_models(work: Work) -> Stacked:
    """Leaves `[clusters, ...]`."""
    keys = jax.random.split(jax.random.key(1), work.num_clusters)
    return jax.jit(jax.vmap(work.task().init))(keys)


class Program(NamedTuple):
    """A compiled program, its arguments where it wants them, and what it cost."""

    compiled: Any
    arguments: tuple
    seconds: float  # to trace and compile it
    processor: float  # seconds of all cores together for the same

    def __call__(self) -> Any:
        return jax.block_until_ready(self.compiled(*self.arguments))


def compiled(function: Callable[..., Any], *arguments: Any) -> Program:
    """The function's program for these arguments, on the mesh that is set."""
    started, used = time.perf_counter(), time.process_time()
    program = jax.jit(function).lower(*arguments).compile()
    seconds, used = time.perf_counter() - started, time.process_time() - used
    places, _ = program.input_shardings
    return Program(program, jax.device_put(arguments, places), seconds, used)


def round_program(work: Work, order: Order | None, devices: int) -> Program:
    """One round of training as the library offers it, without a choice of clusters.

    From the models to the models; to be called on as many devices.
    """
    trainer = oracle(
        work.task(),
        clusters=jnp.asarray(work.clusters()),
        num_clusters=work.num_clusters,
        step_size=work.step_size,
        option="model",
        num_steps=work.num_steps,
        update=LocalUpdate(order=order, clients_per_chunk=work.clients_per_chunk),
    )
    data = client_data(work)

    def one_round(models: Stacked, data: ClientData) -> Stacked:
        state = trainer.init(jax.random.key(0), data)._replace(models=models)
        return trainer.step(jax.random.key(1), state, data)[0].models

    with engine.clients_over_devices(devices):
        return compiled(one_round, first_models(work), data)


def _on_devices(job: Job, devices: int) -> Job:
    """The job, with clients spread over as many devices."""

    def run() -> Any:
        with engine.clients_over_devices(devices):
            return job()

    return run


def training(work: Work) -> dict[str, Job]:
    """A round in either order, and on all devices where there are several."""
    settings: dict[str, tuple[Order, int]] = {
        "cfljax, sequential": ("sequential", 1),
        "cfljax, batched": ("batched", 1),
    }
    count = jax.local_device_count()
    if count > 1:
        name = f"cfljax, sequential, {count} devices"
        settings = {name: ("sequential", count), **settings}
    return {
        name: _on_devices(round_program(work, order, devices), devices)
        for name, (order, devices) in settings.items()
    }


def losses(work: Work, chunks: tuple[int, ...]) -> dict[str, Job]:
    """The loss matrix of all clients and models, whole and in chunks of clients."""
    task, data, models = work.task(), client_data(work), first_models(work)
    count = jax.local_device_count()
    jobs: dict[str, Job] = {}
    for devices in sorted({1, count}):
        for chunk in (None, *chunks):
            matrix = functools.partial(loss_matrix, task, clients_per_chunk=chunk)
            name = "all at once" if chunk is None else f"{chunk} clients at a time"
            name += f", {devices} devices" if devices > 1 else ""
            with engine.clients_over_devices(devices):
                program = compiled(matrix, models, data)
            jobs[name] = _on_devices(program, devices)
    return jobs


def bare_products(work: Work) -> Job:
    """The two matrix products of every model on all samples, and nothing else."""
    images = client_data(work).inputs.reshape(work.num_clients * work.num_samples, -1)
    first, second = (
        leaf["kernel"] for _, leaf in sorted(first_models(work)["layers"].items())
    )

    def products(images: Array, first: Array, second: Array) -> list[Array]:
        return [
            images @ first[model] @ second[model] for model in range(work.num_clusters)
        ]

    return compiled(products, images, first, second)


def torch_training(work: Work) -> dict[str, Job]:
    """A round in all ways; each returns the models, in PyTorch's layout."""
    data = client_data(work)
    models = jax.tree.map(np.asarray, first_models(work))
    start = Start(np.asarray(data.inputs), np.asarray(data.targets), models)
    loop = torch_jobs.looped(work, start)
    return {
        LOOP: loop,
        ONE_THREAD: torch_jobs.on_one_thread(loop),
        "PyTorch, vmap": torch_jobs.batched(work, start),
    }


def measure(
    what: str, work: Work, *, folder: pathlib.Path, order: Order | None = None
) -> dict[str, float]:
    """Measure a round of training in a new process, with a compilation cache's folder.

    "memory" gives MiB of the data, of the models and of the peak beyond what was
    resident before the first call, empty where the system does not tell; "compilation"
    gives seconds for the round, on the clock and of all cores together, and for all
    from the backend's start on, with drawing the data and the first models.

    Raises:
      MeasuringError: with the process's last words, if it failed.
    """
    settings = {"what": what, "folder": str(folder), "order": order}
    settings |= {"work": dataclasses.asdict(work)}
    done = subprocess.run(
        [sys.executable, "-m", "experiments.bench.neural_jobs", json.dumps(settings)],
        capture_output=True,
        text=True,
        env=environment(),
    )
    if done.returncode != 0:
        raise MeasuringError(f"measuring {what} failed: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def _measured(settings: dict[str, Any]) -> dict[str, float]:
    """The child's part."""
    work = Work(**settings["work"] | {"channels": tuple(settings["work"]["channels"])})
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
    before = resident()
    if before is None:
        return {}
    with engine.clients_over_devices(devices):
        program()
    data, models = program.arguments[1].inputs.nbytes, program.arguments[0]
    return {
        "data": data / 2**20,
        "models": sum(leaf.nbytes for leaf in jax.tree.leaves(models)) / 2**20,
        "peak": (status("VmHWM") or 0) - before,
    }


if __name__ == "__main__":
    print(json.dumps(_measured(json.loads(sys.argv[1]))))
