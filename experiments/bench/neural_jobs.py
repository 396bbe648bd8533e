"""What `neural` times of this library: rounds of local training, and loss matrices.

Everything is compiled before it is timed and its arguments are where the program wants
them, as inside a run of many rounds.
"""

import dataclasses
import functools
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from cfljax import engine
from cfljax.algorithms import oracle
from cfljax.kernels.backend import Order
from cfljax.kernels.evaluate import loss_matrix
from cfljax.kernels.local_update import LocalUpdate
from cfljax.models.cnn import cnn
from cfljax.models.mlp import mlp
from cfljax.types import Algorithm, ClientData, Stacked, Task

__all__ = [
    "Program",
    "Work",
    "bare_products",
    "client_data",
    "first_models",
    "losses",
    "round_program",
    "training",
]

Job = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Work:
    """A round: who trains what for how long.

    num_clients: C.
    num_samples: of each client, all of them in every step.
    num_steps: local steps of plain gradient descent.
    num_clusters: K; client i belongs to cluster i modulo K.
    image: height and width in pixels.
    channels: of the convolutions; a perceptron if there are none.
    kernel_size: height and width of the convolutions' kernels, in pixels.
    hidden: width of the one hidden linear layer.
    clients_per_chunk: clients trained at a time in batched order.
    step_size: gamma.
    """

    num_clients: int
    num_samples: int
    num_steps: int
    num_clusters: int = 4
    image: int = 28
    channels: tuple[int, ...] = ()
    kernel_size: int = 5
    hidden: int = 200
    clients_per_chunk: int = 25
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


def algorithm(work: Work, order: Order | None) -> Algorithm:
    """Training as the library offers it, without a choice of clusters."""
    return oracle(
        work.task(),
        clusters=work.clusters(),
        num_clusters=work.num_clusters,
        step_size=work.step_size,
        option="model",
        num_steps=work.num_steps,
        update=LocalUpdate(order=order, clients_per_chunk=work.clients_per_chunk),
    )


class Program(NamedTuple):
    """A compiled program, its arguments where it wants them, and what making it took.

    seconds: to trace and compile it.
    processor: seconds of all cores together for the same.
    """

    compiled: Any
    arguments: tuple
    seconds: float
    processor: float

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
    """One round, from the models to the models; to be called on as many devices."""
    trainer = algorithm(work, order)
    data = client_data(work)

    def one_round(models: Stacked, data: ClientData) -> Stacked:
        state = trainer.init(jax.random.key(0), data)._replace(models=models)
        return trainer.step(jax.random.key(1), state, data)[0].models

    with engine.clients_over_devices(devices):
        return compiled(one_round, first_models(work), data)


def on_devices(job: Job, devices: int) -> Job:
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
        name: on_devices(round_program(work, order, devices), devices)
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
            jobs[name] = on_devices(program, devices)
    return jobs


def bare_products(work: Work) -> Job:
    """The two matrix products of every model on all samples, and nothing else."""
    rows = work.num_clients * work.num_samples
    images = client_data(work).inputs.reshape(rows, -1)
    first, second = (
        leaf["kernel"] for _, leaf in sorted(first_models(work)["layers"].items())
    )

    def products(images: Array, first: Array, second: Array) -> list[Array]:
        return [
            images @ first[model] @ second[model] for model in range(work.num_clusters)
        ]

    return compiled(products, images, first, second)
