"""The linear Monte-Carlo work in PyTorch, as a reference for speed and for outcomes.

Written as one would write it for PyTorch: in place where that is faster, and without
autograd, whose graph would only add to the time. PyTorch is an optional extra.
"""

import importlib.util
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float, Int

__all__ = [
    "Ends",
    "Shape",
    "available",
    "batched",
    "on_data",
    "one_run",
    "samples",
    "threads",
]


@runtime_checkable
class Shape(Protocol):
    """The part of a configuration that fixes the work."""

    @property
    def num_clients(self) -> int: ...
    @property
    def num_samples(self) -> int: ...
    @property
    def num_features(self) -> int: ...
    @property
    def num_clusters(self) -> int: ...
    @property
    def num_restarts(self) -> int: ...
    @property
    def num_rounds(self) -> int: ...
    @property
    def step_sizes(self) -> tuple[float, ...]: ...


class Ends(NamedTuple):
    """Where runs ended.

    models: the final ones.
    assignment: each client's model of lowest loss, -1 where no loss is finite.
    """

    models: Float[np.ndarray, "runs clusters features"]
    assignment: Int[np.ndarray, "runs clients"]


def available() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def threads() -> int:
    """Threads that a product of PyTorch's uses."""
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    return torch.get_num_threads()


def samples(num_rows: int, num_features: int) -> tuple[Any, Any]:
    """PyTorch's own draw of inputs and noise of this shape."""
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    return torch.randn(num_rows, num_features), torch.randn(num_rows)


def batched(shape: Shape) -> Callable[[], Any]:
    """All runs at once: a pair of products a round."""
    num_runs = shape.num_restarts * len(shape.step_sizes)
    return _program(shape, num_runs, list(shape.step_sizes) * shape.num_restarts)


def one_run(shape: Shape) -> Callable[[], Any]:
    """A single run, as a plain loop over runs would make it, one after the other."""
    return _program(shape, 1, [shape.step_sizes[0]])


def on_data(
    inputs: Float[np.ndarray, "clients samples features"],
    targets: Float[np.ndarray, "clients samples"],
    starts: Float[np.ndarray, "runs clusters features"],
    step_sizes: Float[np.ndarray, " runs"],
    *,
    num_rounds: int,
) -> Callable[[], Ends]:
    """All runs at once on given samples.

    Args:
      inputs: X of every client.
      targets: y.
      starts: first models of every run.
      step_sizes: gamma of every run; summed gradients are divided by all clients.
      num_rounds: T.

    Returns:
      The program; arrays are copied to PyTorch before it is called.
    """
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    m, n, d = inputs.shape
    runs, k = starts.shape[:2]
    rows = torch.tensor(inputs).view(m * n, d)
    labels = torch.tensor(targets).view(m * n)
    columns = torch.tensor(starts).permute(2, 0, 1).reshape(d, runs * k)

    def program() -> Ends:
        models = _descend(rows, labels, columns, step_sizes.tolist(), num_rounds, m)
        losses = _losses(_errors(rows, labels, models), m, runs)
        chosen = torch.where(torch.isfinite(losses).any(2), losses.argmin(2), -1)
        final = models.view(d, runs, k).permute(1, 2, 0)
        return Ends(final.numpy(), chosen.T.numpy())

    return program


def _program(shape: Shape, num_runs: int, step_sizes: list[float]) -> Callable[[], Any]:
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    m, n, d, k = (
        shape.num_clients,
        shape.num_samples,
        shape.num_features,
        shape.num_clusters,
    )
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(m * n, d, generator=generator)
    truth = torch.randint(0, 2, (k, d), generator=generator).float()
    clusters = torch.arange(m) // (m // k)
    noise = 0.1 * torch.randn(m * n, generator=generator)
    targets = (inputs.view(m, n, d) @ truth[clusters][:, :, None]).view(-1) + noise
    start = torch.randint(0, 2, (d, num_runs * k), generator=generator).float()
    return lambda: _descend(inputs, targets, start, step_sizes, shape.num_rounds, m)


def _descend(
    inputs: Any,
    targets: Any,
    start: Any,
    step_sizes: Sequence[float],
    num_rounds: int,
    num_clients: int,
) -> Any:
    """The rounds; tensors `[rows, d]`, `[rows]` and models `[d, runs x k]`."""
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

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
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    blocks = errors.view(num_clients, -1, num_runs, errors.shape[1] // num_runs)
    losses = blocks.square().mean(dim=1)
    return torch.where(torch.isfinite(losses), losses, torch.inf)
