"""Speed of the linear Monte-Carlo kernel: 300 rounds of IFCA, 30 runs at once.

Command:   python -m experiments bench linear
Measured:  two cores of an AMD EPYC: the kernel at 142 GFLOP/s, .98 of its bare
           products' speed, .77 of a large square product's, 1.28 of batched PyTorch's

The kernel's work is a pair of matrix products a round: samples [m n, d] against the
models of all runs [d, restarts x step sizes x k], and back. It is timed beside these
two bare products, beside a large square product (the machine's ceiling) and, where
PyTorch is installed, beside the same work in PyTorch: batched, and one run at a time.
All are timed in turn within one run, so that ratios mean something on a noisy machine.
"""

import dataclasses
import math
import statistics
import time
from collections.abc import Callable
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import engine, report
from cfljax.algorithms import ifca
from cfljax.data import mixed_linear
from cfljax.data.linear import check_mixed_linear
from cfljax.models import linear
from experiments.bench import torch_linear
from experiments.options import Options

__all__ = ["Config", "main", "preset"]


@dataclasses.dataclass(frozen=True)
class Config:
    """The shape of the work. Defaults: one trial of Figure 3(a) at full size."""

    num_clients: int = 100
    """m."""
    num_samples: int = 100
    """n."""
    num_features: int = 1000
    """d."""
    num_clusters: int = 2
    """k."""
    num_restarts: int = 10
    """Starts, run together."""
    step_sizes: tuple[float, ...] = (1.0, 0.1, 0.01)
    """Gamma, run together."""
    num_rounds: int = 300
    """T."""
    repeats: int = 5
    """Times that everything is timed; medians are reported."""
    square: int = 4000
    """Side of the large square product."""

    def __post_init__(self) -> None:
        check_mixed_linear(
            num_clients=self.num_clients,
            num_clusters=self.num_clusters,
            num_samples=self.num_samples,
            num_features=self.num_features,
        )
        if not all(math.isfinite(step) and step > 0 for step in self.step_sizes):
            raise ValueError(
                f"`step_sizes` must be finite and positive, got {self.step_sizes}."
            )
        for name in ("num_restarts", "num_rounds", "repeats", "square"):
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )

    @property
    def num_columns(self) -> int:
        """Models of all runs together."""
        return self.num_restarts * len(self.step_sizes) * self.num_clusters

    @property
    def flops(self) -> float:
        """Floating-point operations of the two products over all rounds."""
        pairs = self.num_clients * self.num_samples * self.num_features
        return 4.0 * pairs * self.num_columns * self.num_rounds


def preset(name: Literal["quick", "paper"]) -> Config:
    """The full size in either preset; "quick" repeats it less often."""
    return Config(repeats=3) if name == "quick" else Config()


def kernel(config: Config) -> Callable[[], Any]:
    """The library's own path: `ifca` under the engine, vmapped over runs."""
    data, _ = mixed_linear(
        jax.random.key(0),
        num_clients=config.num_clients,
        num_clusters=config.num_clusters,
        num_samples=config.num_samples,
        num_features=config.num_features,
        separation=1.0,
        noise=0.1,
        convention="reference",
    )
    task = linear(config.num_features)

    def one_run(data: Any, key: jax.Array, step_size: jax.Array) -> Any:
        algorithm = ifca(task, num_clusters=config.num_clusters, step_size=step_size)
        return engine.run(algorithm, key, data, num_rounds=config.num_rounds)[0]

    over_steps = jax.vmap(one_run, in_axes=(None, None, 0))
    program = jax.jit(jax.vmap(over_steps, in_axes=(None, 0, None)))
    keys = jax.random.split(jax.random.key(1), config.num_restarts)
    step_sizes = jnp.asarray(config.step_sizes, jnp.float32)
    return lambda: jax.block_until_ready(program(data, keys, step_sizes))


def bare_products(config: Config) -> Callable[[], Any]:
    """The two products alone, in the operand order that the kernel uses."""
    rows = config.num_clients * config.num_samples
    samples = jax.random.normal(jax.random.key(0), (rows, config.num_features))
    shape = (config.num_columns, config.num_features)
    models = jax.random.normal(jax.random.key(1), shape)

    @jax.jit
    def program(samples: jax.Array, models: jax.Array) -> jax.Array:
        def one_round(models: jax.Array, _: None) -> tuple[jax.Array, None]:
            outputs = jax.lax.dot_general(models, samples, (((1,), (1,)), ((), ())))
            # Scaled, or the numbers overflow and are slow or fast for it.
            return 1e-5 * (outputs @ samples), None

        return jax.lax.scan(one_round, models, None, length=config.num_rounds)[0]

    return lambda: jax.block_until_ready(program(samples, models))


def square_product(config: Config) -> Callable[[], Any]:
    """One large square product."""
    matrix = jax.random.normal(jax.random.key(0), (config.square, config.square))
    program = jax.jit(lambda matrix: matrix @ matrix)
    return lambda: jax.block_until_ready(program(matrix))


def timed(jobs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Seconds of every job, all jobs in turn, after one call each to warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()
    for _ in range(repeats):
        for name, job in jobs.items():
            started = time.perf_counter()
            job()
            seconds[name].append(time.perf_counter() - started)
    return seconds


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time everything in turn; a table of seconds, GFLOP/s and ratios."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    jobs = {
        "kernel": kernel(config),
        "bare products": bare_products(config),
        "square product": square_product(config),
    }
    flops = {"square product": 2.0 * config.square**3}
    parts = {}
    if torch_linear.available():
        num_runs = config.num_restarts * len(config.step_sizes)
        jobs["PyTorch, all runs batched"] = torch_linear.batched(config)
        # One run stands for all: they are the same work, and it is slow.
        name = f"PyTorch, one run at a time (1 of {num_runs} timed)"
        jobs[name] = torch_linear.one_run(config)
        parts[name] = num_runs
    seconds = timed(jobs, config.repeats)
    speeds = {
        name: flops.get(name, config.flops) / parts.get(name, 1) / np.array(values)
        for name, values in seconds.items()
    }
    table = [
        {
            "what": name,
            "seconds": statistics.median(seconds[name]) * parts.get(name, 1),
            "GFLOP/s": float(np.median(speeds[name])) / 1e9,
            # Of neighbours in time, then their median: drift cancels.
            "kernel's speed / this": float(np.median(speeds["kernel"] / speeds[name])),
        }
        for name in jobs
    ]
    report.write_csv(options.out / "table.csv", table)
    device = jax.devices()[0]
    settings = (
        f"m = {config.num_clients}, n = {config.num_samples}, "
        f"d = {config.num_features}, k = {config.num_clusters}, "
        f"{config.num_restarts} restarts x {len(config.step_sizes)} step sizes, "
        f"{config.num_rounds} rounds, medians of {config.repeats}, {device.device_kind}"
    )
    return {
        "benchmark": "linear",
        "settings": settings,
        "headline": f"{settings}\n\n{report.markdown(table)}",
        "files": [str(options.out / "table.csv")],
        "rows": table,
    }
