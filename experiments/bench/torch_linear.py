"""The linear Monte-Carlo work in PyTorch, as a reference for speed.

Written as one would write it for PyTorch: in place where that is faster, and without
autograd, whose graph would only add to the time. PyTorch is an optional extra.
"""

import importlib.util
from collections.abc import Callable
from typing import Any, Protocol

__all__ = ["Shape", "available", "batched", "one_run"]


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


def available() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def batched(shape: Shape) -> Callable[[], Any]:
    """All runs at once: a pair of products a round."""
    num_runs = shape.num_restarts * len(shape.step_sizes)
    return _program(shape, num_runs, list(shape.step_sizes) * shape.num_restarts)


def one_run(shape: Shape) -> Callable[[], Any]:
    """A single run, as a plain loop over runs would make it, one after the other."""
    return _program(shape, 1, [shape.step_sizes[0]])


def _program(shape: Shape, num_runs: int, step_sizes: list[float]) -> Callable[[], Any]:
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

    m, n, d, k = (
        shape.num_clients,
        shape.num_samples,
        shape.num_features,
        shape.num_clusters,
    )
    generator = torch.Generator().manual_seed(0)
    samples = torch.randn(m * n, d, generator=generator)
    truth = torch.randint(0, 2, (k, d), generator=generator).float()
    clusters = torch.arange(m) // (m // k)
    noise = 0.1 * torch.randn(m * n, generator=generator)
    targets = (samples.view(m, n, d) @ truth[clusters][:, :, None]).view(-1) + noise
    start = torch.randint(0, 2, (d, num_runs * k), generator=generator).float()
    rates = torch.tensor(step_sizes).repeat_interleave(k) * (2.0 / (n * m))

    def program() -> Any:
        models = start.clone()
        for _ in range(shape.num_rounds):
            errors = torch.addmm(targets[:, None], samples, models, beta=-1)
            errors = errors.view(m, n, num_runs, k)
            losses = errors.square().mean(dim=1)
            losses = torch.where(torch.isfinite(losses), losses, torch.inf)
            chosen = torch.nn.functional.one_hot(losses.argmin(dim=2), k)
            errors *= chosen[:, None].to(errors.dtype)
            models -= (samples.T @ errors.view(m * n, num_runs * k)) * rates
        return models

    return program
