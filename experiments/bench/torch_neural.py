"""Local training of neural networks in PyTorch, as a reference for speed.

The same rounds from the same data and models, written as one would for PyTorch: a loop
over clients around a module, its optimiser and autograd; and `torch.func.vmap` over
clients whose models are stacked. PyTorch is an optional extra.
"""

import importlib.util
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from cfljax.types import Stacked
from experiments.bench.neural_jobs import Work, client_data, first_models

__all__ = ["LOOP", "ONE_THREAD", "available", "in_torch_layout", "training"]

LOOP = "PyTorch, loop"
ONE_THREAD = "PyTorch, loop, 1 thread"


def available() -> bool:
    """Whether PyTorch is installed."""
    return importlib.util.find_spec("torch") is not None


def training(work: Work) -> dict[str, Callable[[], list[Any]]]:
    """A round in all ways; each returns the models, in PyTorch's layout."""
    loop = _loop(work)
    return {LOOP: loop, ONE_THREAD: _alone(loop), "PyTorch, vmap": _vmapped(work)}


def _alone(program: Callable[[], list[Any]]) -> Callable[[], list[Any]]:
    """The program on one thread."""
    import torch  # pyright: ignore[reportMissingImports]  # an optional extra

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
    if not work.channels:
        layers, found = [layer for _, layer in sorted(models["layers"].items())], []
    else:
        found = []
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
    from torch import nn  # pyright: ignore[reportMissingImports]  # an optional extra

    layers: list[Any] = []
    depth, side = 1, work.image
    for width in work.channels:
        conv = nn.Conv2d(depth, width, work.kernel_size, padding="same")
        layers += [conv, nn.MaxPool2d(2), nn.ReLU()]
        depth, side = width, side // 2
    features = depth * side * side
    layers += [nn.Flatten(), nn.Linear(features, work.hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(work.hidden, 10))


def _tensors(work: Work) -> tuple[Any, Any, list[Any], list[int]]:
    """Images `[clients, samples, 1, height, width]`, labels, models and clusters."""
    import torch  # pyright: ignore[reportMissingImports]

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
    import torch  # pyright: ignore[reportMissingImports]

    counts = torch.tensor(np.bincount(clusters, minlength=work.num_clusters))
    return [s / counts.view(-1, *[1] * (s.ndim - 1)) for s in sums]


def _loop(work: Work) -> Callable[[], list[Any]]:
    """One client after the other, in one module."""
    import torch  # pyright: ignore[reportMissingImports]

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


def _vmapped(work: Work) -> Callable[[], list[Any]]:
    """Chunks of clients with a model each."""
    import torch  # pyright: ignore[reportMissingImports]

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
