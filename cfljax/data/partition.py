"""Partitions of real images among clients, with the true cluster of each."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray, UInt8

from cfljax.data.images import Images
from cfljax.types import ClientData, Truth

__all__ = ["rotated"]


def rotated(
    images: Images,
    *,
    key: PRNGKeyArray,
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    num_test_clients: int,
    num_test_samples: int | None = None,
) -> tuple[ClientData, Truth, ClientData, Truth]:
    """Clients whose images are rotated by a multiple of 90 degrees, their cluster's.

    Ghosh et al. 2020, section 6.2 (Rotated MNIST, Rotated CIFAR). Every cluster owns
    a copy of all images, turned counter-clockwise by `360 / num_clusters` degrees
    times its index; its clients hold disjoint samples of that copy, drawn without
    replacement. The paper's sizes use the copy up: `num_clients * num_samples =
    60000 * num_clusters`. Clients of one cluster are consecutive.

    Pixels are divided by 255 and not normalised further. The draw depends on `key`
    and the cluster alone. Everything but the sizes may be traced.

    Args:
      images: the images to share out. Inside jit, pass its arrays as arguments of
        the compiled function, or they become constants of the program.
      key: a typed random key.
      num_clients: training clients m, a multiple of `num_clusters`.
      num_samples: samples n of a training client.
      num_clusters: k, one of 1, 2 and 4.
      num_test_clients: clients that share out the test images, likewise.
      num_test_samples: samples of a test client; `num_samples` if None.

    Returns:
      Training clients, their truth, test clients, their truth. Inputs are
      `[clients, samples, height, width(, channels)]` in `[0, 1]`, targets the labels
      and masks all true.

    Raises:
      ValueError: if the clients do not split into equal clusters, if the images do
        not suffice, or if quarter turns are asked of images that are not square.

    Cost: float32 pixels, 4 bytes each: 750 MB for the paper's 240,000 images.
    """
    train_key, test_key = jax.random.split(key)
    train, truth = _share_out(
        train_key,
        jnp.asarray(images.train_inputs),
        jnp.asarray(images.train_labels),
        num_clients=num_clients,
        num_samples=num_samples,
        num_clusters=num_clusters,
        split="training",
    )
    test, test_truth = _share_out(
        test_key,
        jnp.asarray(images.test_inputs),
        jnp.asarray(images.test_labels),
        num_clients=num_test_clients,
        num_samples=num_samples if num_test_samples is None else num_test_samples,
        num_clusters=num_clusters,
        split="test",
    )
    return train, truth, test, test_truth


def _share_out(
    key: PRNGKeyArray,
    inputs: UInt8[Array, "images height width *channels"],
    labels: Int[Array, " images"],
    *,
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    split: str,
) -> tuple[ClientData, Truth]:
    """Clients of one split, cluster after cluster."""
    _check_sizes(inputs.shape, num_clients, num_samples, num_clusters, split)
    size = num_clients // num_clusters
    pixels, targets = [], []
    for cluster in range(num_clusters):
        order = jax.random.permutation(
            jax.random.fold_in(key, cluster), inputs.shape[0]
        )
        chosen = order[: size * num_samples].reshape(size, num_samples)
        turns = cluster * 4 // num_clusters
        pixels.append(jnp.rot90(inputs[chosen], turns, axes=(2, 3)))
        targets.append(labels[chosen])
    mask = jnp.ones((num_clients, num_samples), bool)
    shares = jnp.concatenate(pixels).astype(jnp.float32) / 255
    clusters = jnp.repeat(jnp.arange(num_clusters), size)
    data = ClientData(inputs=shares, targets=jnp.concatenate(targets), mask=mask)
    return data, Truth(clusters=clusters, models=None)


def _check_sizes(
    shape: tuple[int, ...],
    num_clients: int,
    num_samples: int,
    num_clusters: int,
    split: str,
) -> None:
    """Raise ValueError unless the images of one split can be shared out so."""
    if num_clusters not in (1, 2, 4):
        raise ValueError(f"`num_clusters` must be 1, 2 or 4, got {num_clusters}.")
    if num_samples < 1:
        raise ValueError(f"{split} `num_samples` must be positive, got {num_samples}.")
    if num_clients < num_clusters or num_clients % num_clusters:
        raise ValueError(
            f"the number of {split} clients must be a positive multiple of "
            f"`num_clusters`, got {num_clients} clients and {num_clusters} clusters."
        )
    if num_clusters == 4 and shape[1] != shape[2]:
        raise ValueError(
            f"quarter turns need square images, got {shape[1]} x {shape[2]}; use "
            "`num_clusters` 1 or 2."
        )
    needed = num_clients * num_samples // num_clusters
    if needed > shape[0]:
        samples = shape[0] * num_clusters // num_clients
        clients = shape[0] // num_samples * num_clusters
        raise ValueError(
            f"{num_clients} {split} clients of {num_samples} samples in "
            f"{num_clusters} clusters need {needed} {split} images per cluster, got "
            f"{shape[0]}; at most {samples} samples would fit these clients, or "
            f"{clients} clients these samples."
        )
