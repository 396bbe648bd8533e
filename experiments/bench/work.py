"""Rounds of local training that benchmarks time, and what they start from.

Neither JAX nor PyTorch is imported with it: a process may have one of them alone.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

if TYPE_CHECKING:
    from cfljax.base import Task

Job = Callable[[], Any]
NUM_CLASSES = 10


@dataclasses.dataclass(frozen=True)
class Work:
    """A round of plain gradient descent: who trains what for how long."""

    num_clients: int  # C
    num_samples: int  # of each client
    num_steps: int  # local ones on all samples, where there are no batches
    num_clusters: int = 4  # K; client i belongs to cluster i modulo K
    image: int = 28  # height and width in pixels
    channels: tuple[int, ...] = ()  # of the convolutions; a perceptron without any
    kernel_size: int = 5  # height and width of the convolutions' kernels, in pixels
    hidden: int = 200  # width of the one hidden linear layer
    clients_per_chunk: int = 25  # trained at a time in batched order
    step_size: float = 0.05
    batch_size: int | None = None  # of one epoch of shuffled batches, instead of steps
    chooses: bool = False  # whether clients take the cluster of least loss, as in IFCA

    @property
    def name(self) -> str:
        """Of the network."""
        return "CNN" if self.channels else "MLP"

    @property
    def client_steps(self) -> int:
        """Steps of all clients in one round without batches."""
        return self.num_clients * self.num_steps

    @property
    def passes(self) -> int:
        """How often a client trains on each of its samples."""
        return self.num_steps if self.batch_size is None else 1

    def task(self) -> "Task":
        """The network and its loss."""
        from cfljax.models import cnn, mlp

        shape = (self.image, self.image)
        if not self.channels:
            return mlp(shape, hidden=(self.hidden,))
        return cnn(
            shape,
            channels=self.channels,
            kernel_size=self.kernel_size,
            hidden=(self.hidden,),
        )

    def clusters(self) -> Int[np.ndarray, " clients"]:
        """Cluster of every client, where it is not chosen."""
        return np.arange(self.num_clients) % self.num_clusters

    def layer_flops(self) -> list[int]:
        """Operations of each layer's products on one image, from the first layer on."""
        found, depth, side = [], 1, self.image
        for width in self.channels:
            found.append(2 * self.kernel_size**2 * depth * width * side**2)
            depth, side = width, side // 2
        flat = depth * side**2
        return [*found, 2 * flat * self.hidden, 2 * self.hidden * NUM_CLASSES]

    def flops(self) -> int:
        """Operations of the products that a round consists of: forward, gradients of
        the weights and of each layer's input but the first's, and, where clusters are
        chosen, one forward pass on every model.
        """
        layers = self.layer_flops()
        image = self.passes * (3 * sum(layers) - layers[0])
        image += self.chooses * self.num_clusters * sum(layers)
        return self.num_clients * self.num_samples * image

    def without_chance(self) -> "Work":
        """This round if nothing in it is drawn; else two steps, on all of as many
        samples as a batch has."""
        if self.batch_size is None:
            return self
        number = min(self.batch_size, self.num_samples)
        return dataclasses.replace(
            self, num_samples=number, num_steps=2, batch_size=None
        )


class Start(NamedTuple):
    """What a round starts from, in the host's memory.

    images: one channel each.
    labels: classes.
    models: nested dicts of arrays `[clusters, ...]`, in this library's layout.
    """

    images: Float[np.ndarray, "clients samples height width"]
    labels: Int[np.ndarray, "clients samples"]
    models: Mapping[str, Any]

    def of(self, work: Work) -> "Start":
        """With as many of the samples as the work has."""
        number = work.num_samples
        return self._replace(
            images=self.images[:, :number], labels=self.labels[:, :number]
        )


def in_torch_layout(work: Work, models: Mapping[str, Any]) -> list[np.ndarray]:
    """This library's stacked models as parameters of a PyTorch module, in order."""
    found = []
    if not work.channels:
        layers = [layer for _, layer in sorted(models["layers"].items())]
    else:
        for _, layer in sorted(models["convolutions"].items()):
            kernel = np.asarray(layer["kernel"])
            found += [kernel.transpose(0, 4, 3, 1, 2), np.asarray(layer["bias"])]
        hidden = dict(models["hidden"][0])
        kernel, side = np.asarray(hidden["kernel"]), work.image
        side //= 2 ** len(work.channels)
        # Channels come last here and first there when the images are flattened.
        folded = kernel.reshape(-1, side, side, work.channels[-1], work.hidden)
        hidden["kernel"] = folded.transpose(0, 3, 1, 2, 4).reshape(kernel.shape)
        layers = [hidden, models["output"]]
    for layer in layers:
        kernel = np.asarray(layer["kernel"])
        found += [kernel.transpose(0, 2, 1), np.asarray(layer["bias"])]
    return found
