"""Rounds of local training by PyTorch, client by client and batched.

Each job returns the models after the round, arrays `[clusters, ...]` in the order and
layout of `module`'s parameters. A cluster without clients keeps its model.
"""

import concurrent.futures
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from experiments.bench.timing import pytorch
from experiments.bench.work import NUM_CLASSES, Job, Start, Work, in_torch_layout


class Mean:
    """Sums of the clients' weights, by cluster, and then their mean."""

    def __init__(self, models: Sequence[Any]) -> None:
        """Of no client; a cluster that stays so keeps its model."""
        torch = pytorch()
        self._models = models
        self.sums = [torch.zeros_like(model) for model in models]
        self.counts = torch.zeros(len(models[0]))

    def add(self, cluster: int, weights: Iterable[Any]) -> None:
        """One more client of a cluster."""
        with pytorch().no_grad():
            for total, weight in zip(self.sums, weights, strict=True):
                total[cluster] += weight
        self.counts[cluster] += 1

    def merge(self, other: "Mean") -> None:
        """All clients of another one."""
        for total, own in zip(self.sums, other.sums, strict=True):
            total += own
        self.counts += other.counts

    def models(self) -> list[np.ndarray]:
        """The models after the round."""
        torch, found = pytorch(), []
        for total, before in zip(self.sums, self._models, strict=True):
            counts = self.counts.view(-1, *[1] * (total.ndim - 1))
            mean = torch.where(counts > 0, total / counts, before)
            found.append(mean.detach().numpy())
        return found


def module(work: Work) -> Any:
    """The network."""
    nn = pytorch().nn
    layers: list[Any] = []
    depth, side = 1, work.image
    for width in work.channels:
        conv = nn.Conv2d(depth, width, work.kernel_size, padding="same")
        layers += [conv, nn.MaxPool2d(2), nn.ReLU()]
        depth, side = width, side // 2
    layers += [nn.Flatten(), nn.Linear(depth * side * side, work.hidden), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(work.hidden, NUM_CLASSES))


def first_tensors(work: Work, models: Any) -> list[Any]:
    """The models that the round starts from, `[clusters, ...]`."""
    torch = pytorch()
    # Copies, because memory of JAX is read-only.
    return [
        torch.from_numpy(np.array(leaf, order="C"))
        for leaf in in_torch_layout(work, models)
    ]


def looped(work: Work, start: Start) -> Job:
    """One client after the other, in one module."""
    train, everybody = _trainer(work, start), range(work.num_clients)
    return lambda: train(everybody).models()


def on_one_thread(program: Job) -> Job:
    """The same program without PyTorch's other threads."""
    torch = pytorch()

    def run() -> Any:
        number = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return program()
        finally:
            torch.set_num_threads(number)

    return run


def cores() -> list[int]:
    """Numbers of the cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def pooled(work: Work, start: Start) -> Job:
    """The clients shared out to Python threads, one pinned to each core, in each of
    which PyTorch has no further threads."""
    own = cores()
    shares = [range(first, work.num_clients, len(own)) for first in range(len(own))]
    trainers = [_trainer(work, start) for _ in own]
    free = iter(own)

    def pin() -> None:
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {next(free)})  # Of this thread.
        pytorch().set_num_threads(1)

    pool = concurrent.futures.ThreadPoolExecutor(len(own), initializer=pin)

    def program() -> list[np.ndarray]:
        runs = [
            pool.submit(train, share)
            for train, share in zip(trainers, shares, strict=True)
        ]
        mean, *others = (run.result() for run in runs)
        for other in others:
            mean.merge(other)
        return mean.models()

    return program


def batched(work: Work, start: Start) -> Job:
    """Chunks of clients with a model each, by `torch.func`."""
    torch = pytorch()
    images, labels, models = _tensors(work, start)
    net = module(work)
    names = [name for name, _ in net.named_parameters()]

    def loss(weights: Sequence[Any], images: Any, labels: Any) -> Any:
        named = dict(zip(names, weights, strict=True))
        logits = torch.func.functional_call(net, named, (images,))
        return torch.nn.functional.cross_entropy(logits, labels)

    gradients = torch.func.vmap(torch.func.grad(loss))
    losses = torch.func.vmap(loss, in_dims=(None, 0, 0))

    def choose(clients: slice) -> Any:
        if not work.chooses:
            return torch.from_numpy(work.clusters()[clients])
        found = [
            losses(
                [model[cluster] for model in models], images[clients], labels[clients]
            )
            for cluster in range(work.num_clusters)
        ]
        return torch.stack(found).argmin(0)

    def batches(clients: slice) -> Iterator[tuple[Any, Any]]:
        own = images[clients], labels[clients]
        if work.batch_size is None:
            yield from [own] * work.num_steps
            return
        order = torch.rand(own[1].shape).argsort(1)
        rows = torch.arange(len(order))[:, None]
        for part in order.split(work.batch_size, 1):
            yield own[0][rows, part], own[1][rows, part]

    def program() -> list[np.ndarray]:
        mean = Mean(models)
        for first in range(0, work.num_clients, work.clients_per_chunk):
            chunk = slice(first, first + work.clients_per_chunk)
            members = choose(chunk)
            weights = [model[members] for model in models]
            for some, own in batches(chunk):
                found = gradients(weights, some, own)
                for weight, gradient in zip(weights, found, strict=True):
                    weight.sub_(gradient, alpha=work.step_size)
            for total, weight in zip(mean.sums, weights, strict=True):
                total.index_add_(0, members, weight)
            mean.counts += torch.bincount(members, minlength=work.num_clusters)
        return mean.models()

    return program


def _tensors(work: Work, start: Start) -> tuple[Any, Any, list[Any]]:
    """Images `[clients, samples, 1, height, width]`, labels and models."""
    torch = pytorch()
    images = torch.from_numpy(np.array(start.images)).unsqueeze(2)
    labels = torch.from_numpy(np.array(start.labels)).long()
    return images, labels, first_tensors(work, start.models)


def _trainer(work: Work, start: Start) -> Callable[[Iterable[int]], Mean]:
    """What trains some clients one after the other, in a module of its own."""
    torch = pytorch()
    images, labels, models = _tensors(work, start)
    net = module(work)
    names, weights = zip(*net.named_parameters(), strict=True)
    optimiser = torch.optim.SGD(weights, lr=work.step_size)
    entropy = torch.nn.functional.cross_entropy
    clusters = work.clusters().tolist()

    def loss(cluster: int, client: int) -> float:
        own = {name: m[cluster] for name, m in zip(names, models, strict=True)}
        logits = torch.func.functional_call(net, own, (images[client],))
        return entropy(logits, labels[client]).item()

    def choose(client: int) -> int:
        if not work.chooses:
            return clusters[client]
        with torch.no_grad():
            losses = [loss(cluster, client) for cluster in range(work.num_clusters)]
        return int(np.argmin(losses))

    def batches(client: int) -> Iterator[tuple[Any, Any]]:
        own = images[client], labels[client]
        if work.batch_size is None:
            yield from [own] * work.num_steps
            return
        for part in torch.randperm(work.num_samples).split(work.batch_size):
            yield own[0][part], own[1][part]

    def train(clients: Iterable[int]) -> Mean:
        mean = Mean(models)
        for client in clients:
            cluster = choose(client)
            with torch.no_grad():
                for weight, model in zip(weights, models, strict=True):
                    weight.copy_(model[cluster])
            for some, own in batches(client):
                optimiser.zero_grad()
                entropy(net(some), own).backward()
                optimiser.step()
            mean.add(cluster, weights)
        return mean

    return train
