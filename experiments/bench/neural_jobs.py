"""What `neural` times: rounds of local training, by PyTorch too, and loss matrices.

Everything is compiled before it is timed and its arguments are where the program wants
them, as inside a run of many rounds. Memory and compilation are measured in processes
of their own, which run this module.
"""

import ctypes
import dataclasses
import functools
import json
import os
import pathlib
import re
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
from cfljax.base import ClientData, Stacked, Task
from cfljax.federated import LocalUpdate, Order, loss_matrix
from cfljax.models import cnn, mlp
from experiments.bench.timing import pytorch

Job = Callable[[], Any]
LOOP = "PyTorch, loop"
ONE_THREAD = "PyTorch, loop, 1 thread"
_ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass(frozen=True)
class Work:
    """A round of plain gradient descent: who trains what for how long."""

    num_clients: int  # C
    num_samples: int  # of each client, all of them in every step
    num_steps: int  # local ones
    num_clusters: int = 4  # K; client i belongs to cluster i modulo K
    image: int = 28  # height and width in pixels
    channels: tuple[int, ...] = ()  # of the convolutions; a perceptron without any
    kernel_size: int = 5  # height and width of the convolutions' kernels, in pixels
    hidden: int = 200  # width of the one hidden linear layer
    clients_per_chunk: int = 25  # trained at a time in batched order
    step_size: float = 0.05

    @property
    def name(self) -> str:
        """Of the network."""
        return "CNN" if self.channels else "MLP"

    @property
    def client_steps(self) -> int:
        """Steps of all clients in one round."""
        return self.num_clients * self.num_steps

    def task(self) -> Task:
        """The network and its loss."""
        shape = (self.image, self.image)
        if not self.channels:
            return mlp(shape, hidden=(self.hidden,))
        return cnn(
            shape,
            channels=self.channels,
            kernel_size=self.kernel_size,
            hidden=(self.hidden,),
        )

    def clusters(self) -> Array:
        """Cluster of every client."""
        return jnp.arange(self.num_clients) % self.num_clusters


def client_data(work: Work) -> ClientData:
    """Noise as images, with labels: the time does not depend on what is learnt."""
    pixels, labels = jax.random.split(jax.random.key(0))
    shape = (work.num_clients, work.num_samples)
    return ClientData(
        jax.random.normal(pixels, (*shape, work.image, work.image)),
        jax.random.randint(labels, shape, 0, 10),
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
        clusters=work.clusters(),
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
    loop = _torch_loop(work)
    return {
        LOOP: loop,
        ONE_THREAD: _on_one_thread(loop),
        "PyTorch, vmap": _torch_vmapped(work),
    }


def _on_one_thread(program: Job) -> Job:
    torch = pytorch()

    def run() -> list[Any]:
        number = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return program()
        finally:
            torch.set_num_threads(number)

    return run


def in_torch_layout(work: Work, models: Stacked) -> list[np.ndarray]:
    """This library's stacked models as the parameters of `_module`, in their order."""
    models = jax.tree.map(np.asarray, models)
    found = []
    if not work.channels:
        layers = [layer for _, layer in sorted(models["layers"].items())]
    else:
        for _, layer in sorted(models["convolutions"].items()):
            found += [layer["kernel"].transpose(0, 4, 3, 1, 2), layer["bias"]]
        hidden = dict(models["hidden"][0])
        side = work.image // 2 ** len(work.channels)
        # Channels come last here and first there when the images are flattened.
        folded = hidden["kernel"].reshape(
            -1, side, side, work.channels[-1], work.hidden
        )
        hidden["kernel"] = folded.transpose(0, 3, 1, 2, 4).reshape(
            hidden["kernel"].shape
        )
        layers = [hidden, models["output"]]
    for layer in layers:
        found += [layer["kernel"].transpose(0, 2, 1), layer["bias"]]
    return found


def _module(work: Work) -> Any:
    nn = pytorch().nn
    layers: list[Any] = []
    depth, side = 1, work.image
    for width in work.channels:
        conv = nn.Conv2d(depth, width, work.kernel_size, padding="same")
        layers += [conv, nn.MaxPool2d(2), nn.ReLU()]
        depth, side = width, side // 2
    layers += [nn.Flatten(), nn.Linear(depth * side * side, work.hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(work.hidden, 10))


def _tensors(work: Work) -> tuple[Any, Any, list[Any], list[int]]:
    """Images `[clients, samples, 1, height, width]`, labels, models and clusters."""
    torch = pytorch()
    data = client_data(work)
    # Copies, because JAX's own memory is read-only.
    images = torch.from_numpy(np.array(data.inputs)).unsqueeze(2)
    labels = torch.from_numpy(np.array(data.targets)).long()
    models = [
        torch.from_numpy(np.array(leaf, order="C"))
        for leaf in in_torch_layout(work, first_models(work))
    ]
    return images, labels, models, np.asarray(work.clusters()).tolist()


def _means(work: Work, sums: list[Any], clusters: list[int]) -> list[Any]:
    """Sums over the clients of each cluster, divided by their number."""
    torch = pytorch()
    counts = torch.tensor(np.bincount(clusters, minlength=work.num_clusters))
    return [s / counts.view(-1, *[1] * (s.ndim - 1)) for s in sums]


def _torch_loop(work: Work) -> Callable[[], list[Any]]:
    """One client after the other, in one module."""
    torch = pytorch()
    images, labels, models, clusters = _tensors(work)
    module = _module(work)
    weights = list(module.parameters())
    optimiser = torch.optim.SGD(weights, lr=work.step_size)

    def program() -> list[Any]:
        sums = [torch.zeros_like(model) for model in models]
        for client, cluster in enumerate(clusters):
            with torch.no_grad():
                for weight, model in zip(weights, models, strict=True):
                    weight.copy_(model[cluster])
            for _ in range(work.num_steps):
                optimiser.zero_grad()
                logits = module(images[client])
                torch.nn.functional.cross_entropy(logits, labels[client]).backward()
                optimiser.step()
            with torch.no_grad():
                for total, weight in zip(sums, weights, strict=True):
                    total[cluster] += weight
        return _means(work, sums, clusters)

    return program


def _torch_vmapped(work: Work) -> Callable[[], list[Any]]:
    """Chunks of clients with a model each."""
    torch = pytorch()
    images, labels, models, clusters = _tensors(work)
    module = _module(work)
    names = [name for name, _ in module.named_parameters()]

    def loss(weights: tuple, images: Any, labels: Any) -> Any:
        named = dict(zip(names, weights, strict=True))
        logits = torch.func.functional_call(module, named, (images,))
        return torch.nn.functional.cross_entropy(logits, labels)

    gradients = torch.func.vmap(torch.func.grad(loss))

    def program() -> list[Any]:
        sums = [torch.zeros_like(model) for model in models]
        for first in range(0, work.num_clients, work.clients_per_chunk):
            chunk = slice(first, first + work.clients_per_chunk)
            members = torch.tensor(clusters[chunk])
            weights = tuple(model[members] for model in models)
            for _ in range(work.num_steps):
                found = gradients(weights, images[chunk], labels[chunk])
                for weight, gradient in zip(weights, found, strict=True):
                    weight.sub_(gradient, alpha=work.step_size)
            for total, weight in zip(sums, weights, strict=True):
                total.index_add_(0, members, weight)
        return _means(work, sums, clusters)

    return program


def measure(
    what: str, work: Work, *, folder: pathlib.Path, order: Order | None = None
) -> dict[str, float]:
    """Measure a round of training in a new process, with a compilation cache's folder.

    "memory" gives MiB of the data, of the models and of the peak beyond what was
    resident before the first call, empty where the system does not tell; "compilation"
    gives seconds for the round, on the clock and of all cores together, and for all
    from the backend's start on, with drawing the data and the first models.

    Raises:
      RuntimeError: with the process's last words, if it failed.
    """
    settings = {"what": what, "folder": str(folder), "order": order}
    settings |= {"work": dataclasses.asdict(work)}
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.bench.neural_jobs", json.dumps(settings)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
    )
    if done.returncode != 0:
        raise RuntimeError(f"measuring {what} failed: {done.stderr.strip()[-1000:]}")
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
    before = _resident()
    if before is None:
        return {}
    with engine.clients_over_devices(devices):
        program()
    data, models = program.arguments[1].inputs.nbytes, program.arguments[0]
    return {
        "data": data / 2**20,
        "models": sum(leaf.nbytes for leaf in jax.tree.leaves(models)) / 2**20,
        "peak": (process_memory("VmHWM") or 0) - before,
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
    return process_memory("VmRSS")


def process_memory(name: str) -> float | None:
    """A line of the system's account of this process, in MiB."""
    # Of this program: the peak that getrusage tells includes the parent's at the fork.
    try:
        status = pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(rf"{name}:\s+(\d+) kB", status)
    return None if found is None else int(found[1]) / 1024


if __name__ == "__main__":
    print(json.dumps(_measured(json.loads(sys.argv[1]))))
