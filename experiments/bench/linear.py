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

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from cfljax import engine
from cfljax.algorithms import ifca
from cfljax.data import check_mixed_linear, mixed_linear
from cfljax.models import linear
from experiments.bench import timing
from experiments.bench.timing import one_table, pytorch, timed
from experiments.checks import check_values, configuration
from experiments.ifca.fig3_trial import SIZES
from experiments.options import Options
from experiments.study import fields

BENCHMARKS = {
    "linear": {"title": "the Monte-Carlo kernel against its bare products and PyTorch"},
}


@configuration
class Config:
    """The shape of the work. Defaults: one trial of Figure 3(a) at full size."""

    num_clients: int = 100  # m.
    num_samples: int = 100  # n.
    num_features: int = 1000  # d.
    num_clusters: int = 2  # k.
    num_restarts: int = 10  # Starts, run together.
    step_sizes: tuple[float, ...] = (1.0, 0.1, 0.01)  # Gamma, run together.
    num_rounds: int = 300  # T.
    repeats: int = 5  # Times that everything is timed; medians are reported.
    square: int = 4000  # Side of the large square product.

    def __post_init__(self) -> None:
        check_mixed_linear(**fields(self, *SIZES))
        check_values(self, "step_sizes")

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


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time everything in turn; a table of seconds, GFLOP/s and ratios."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    jobs = {
        "kernel": _kernel(config),
        "bare products": _bare_products(config),
        "square product": _square_product(config),
    }
    flops = {"square product": 2.0 * config.square**3}
    parts = {}
    if timing.has_torch():
        num_runs = config.num_restarts * len(config.step_sizes)
        every = list(config.step_sizes) * config.num_restarts
        jobs["PyTorch, all runs batched"] = _torch_program(config, every)
        # One run, as a plain loop over runs would make it, stands for all: they are
        # the same work, and it is slow.
        name = f"PyTorch, one run at a time (1 of {num_runs} timed)"
        jobs[name] = _torch_program(config, [config.step_sizes[0]])
        parts[name] = num_runs
    times = timed(jobs, repeats=config.repeats)
    speeds = {
        name: flops.get(name, config.flops) / parts.get(name, 1) / own.wall
        for name, own in times.items()
    }
    table = [
        {
            "what": name,
            "seconds": times[name].median * parts.get(name, 1),
            "GFLOP/s": float(np.median(speeds[name])) / 1e9,
            # Of neighbours in time, then their median: drift cancels.
            "kernel's speed / this": float(np.median(speeds["kernel"] / speeds[name])),
        }
        for name in jobs
    ]
    settings = (
        f"m = {config.num_clients}, n = {config.num_samples}, "
        f"d = {config.num_features}, k = {config.num_clusters}, "
        f"{config.num_restarts} restarts x {len(config.step_sizes)} step sizes, "
        f"{config.num_rounds} rounds, medians of {config.repeats}, "
        f"{jax.devices()[0].device_kind}"
    )
    return one_table("linear", settings, table, options)


def _kernel(config: Config) -> Callable[[], Any]:
    """The library's own path: `ifca` under the engine, vmapped over runs."""
    data, _ = mixed_linear(
        jax.random.key(0),
        **fields(config, *SIZES),
        separation=1.0,
        noise=0.1,
        convention="reference",
    )
    task = linear(config.num_features)

    def one_run(data: Any, key: jax.Array, step_size: jax.Array) -> Any:
        algorithm = ifca(task, num_clusters=config.num_clusters, step_size=step_size)
        num_rounds = config.num_rounds
        return engine.run(algorithm, key, data, num_rounds=num_rounds, observe=None)[0]

    over_steps = jax.vmap(one_run, in_axes=(None, None, 0))
    program = jax.jit(jax.vmap(over_steps, in_axes=(None, 0, None)))
    keys = jax.random.split(jax.random.key(1), config.num_restarts)
    step_sizes = jnp.asarray(config.step_sizes, jnp.float32)
    return lambda: jax.block_until_ready(program(data, keys, step_sizes))


def _bare_products(config: Config) -> Callable[[], Any]:
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


def _square_product(config: Config) -> Callable[[], Any]:
    """One large square product."""
    matrix = jax.random.normal(jax.random.key(0), (config.square, config.square))
    program = jax.jit(lambda matrix: matrix @ matrix)
    return lambda: jax.block_until_ready(program(matrix))


# The same work in PyTorch, as a reference for speed and for outcomes
#
# Written as one would write it for PyTorch: in place where that is faster, and without
# autograd, whose graph would only add to the time.


class TorchEnds(NamedTuple):
    """Where runs ended."""

    models: Float[np.ndarray, "runs clusters features"]  # the final ones
    # Each client's model of lowest loss, -1 where no loss is finite.
    assignment: Int[np.ndarray, "runs clients"]


def torch_threads() -> int:
    """Threads that a product of PyTorch's uses."""
    return pytorch().get_num_threads()


def torch_samples(num_rows: int, num_features: int) -> tuple[Any, Any]:
    """PyTorch's own draw of inputs and noise of this shape."""
    torch = pytorch()
    return torch.randn(num_rows, num_features), torch.randn(num_rows)


def torch_on_data(
    inputs: Float[np.ndarray, "clients samples features"],
    targets: Float[np.ndarray, "clients samples"],
    starts: Float[np.ndarray, "runs clusters features"],
    step_sizes: Float[np.ndarray, " runs"],
    *,
    num_rounds: int,
) -> Callable[[], TorchEnds]:
    """All runs at once on given samples, copied to PyTorch before the call is timed.

    Every run has its start and step size; summed gradients are divided by all clients.
    """
    torch = pytorch()
    m, n, d = inputs.shape
    runs, k = starts.shape[:2]
    rows = torch.tensor(inputs).view(m * n, d)
    labels = torch.tensor(targets).view(m * n)
    columns = torch.tensor(starts).permute(2, 0, 1).reshape(d, runs * k)

    def program() -> TorchEnds:
        models = _descend(rows, labels, columns, step_sizes.tolist(), num_rounds, m)
        losses = _losses(_errors(rows, labels, models), m, runs)
        chosen = torch.where(torch.isfinite(losses).any(2), losses.argmin(2), -1)
        final = models.view(d, runs, k).permute(1, 2, 0)
        return TorchEnds(final.numpy(), chosen.T.numpy())

    return program


def _torch_program(config: Config, step_sizes: list[float]) -> Callable[[], Any]:
    """A run for each step size, all at once: a pair of products a round."""
    torch = pytorch()
    m, n = config.num_clients, config.num_samples
    d, k = config.num_features, config.num_clusters
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(m * n, d, generator=generator)
    truth = torch.randint(0, 2, (k, d), generator=generator).float()
    clusters = torch.arange(m) // (m // k)
    noise = 0.1 * torch.randn(m * n, generator=generator)
    targets = (inputs.view(m, n, d) @ truth[clusters][:, :, None]).view(-1) + noise
    start = torch.randint(0, 2, (d, len(step_sizes) * k), generator=generator).float()
    return lambda: _descend(inputs, targets, start, step_sizes, config.num_rounds, m)


def _descend(
    inputs: Any,
    targets: Any,
    start: Any,
    step_sizes: Sequence[float],
    num_rounds: int,
    num_clients: int,
) -> Any:
    """The rounds; tensors `[rows, d]`, `[rows]` and models `[d, runs x k]`."""
    torch = pytorch()
    rows, num_runs = inputs.shape[0], len(step_sizes)
    k = start.shape[1] // num_runs
    rates = torch.tensor(step_sizes).repeat_interleave(k) * (2.0 / rows)
    models = start.clone()
    for _ in range(num_rounds):
        errors = _errors(inputs, targets, models)
        losses = _losses(errors, num_clients, num_runs)
        chosen = torch.nn.functional.one_hot(losses.argmin(dim=2), k)
        blocks = errors.view(num_clients, -1, num_runs, k)
        blocks *= chosen[:, None].to(errors.dtype)
        models -= (inputs.T @ errors) * rates
    return models


def _errors(inputs: Any, targets: Any, models: Any) -> Any:
    return targets[:, None].addmm(inputs, models, beta=-1)


def _losses(errors: Any, num_clients: int, num_runs: int) -> Any:
    """`[clients, runs, k]`, infinite where they are not finite."""
    torch = pytorch()
    blocks = errors.view(num_clients, -1, num_runs, errors.shape[1] // num_runs)
    losses = blocks.square().mean(dim=1)
    return torch.where(torch.isfinite(losses), losses, torch.inf)
