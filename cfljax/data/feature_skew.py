"""Clusters whose images are turned: feature skew without replacement."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray

from cfljax.data.images import Images
from cfljax.data.pools import rows_by_class
from cfljax.data.shares import Shared, Sizes, count_classes, fill
from cfljax.types import ClientData

__all__ = ["feature_skewed"]


def feature_skewed(
    images: Images, *, key: PRNGKeyArray, sizes: Sizes, num_clusters: int = 4
) -> Shared:
    """Clients of all classes whose cluster decides how images are turned.

    CLoVE, section 5: rotations by 0, 90, 180 and 270 degrees. As in its other
    partitions no image is used twice, whatever the cluster; `cfljax.data.rotated`,
    after Ghosh et al., gives every cluster its own copy of all images instead. Every
    class is divided evenly among the clusters. Runs on the host, not to be traced.

    Args:
      images: to be shared out; square if clusters are quarter turns apart.
      key: a typed random key, which with the sizes decides everything.
      sizes: how many clients there are and what they take.
      num_clusters: k, one of 1, 2 and 4; cluster c is turned by c of k turns.

    Returns:
      Training clients, their truth, test clients, their truth, clients of one cluster
      consecutive. Inputs are `[clients, samples, height, width(, channels)]`, pixels
      in [0, 1], zeros where the mask is false.

    Raises:
      ValueError: if the clients do not split into equal clusters, the images do not
        suffice, or quarter turns are asked of images that are not square.

    Cost: two copies of the shared-out pixels as float32.
    """
    if num_clusters not in (1, 2, 4):
        raise ValueError(f"`num_clusters` must be 1, 2 or 4, got {num_clusters}.")
    height, width = images.train_inputs.shape[1:3]
    if num_clusters == 4 and height != width:
        raise ValueError(
            f"quarter turns need square images, got {height} x {width}; use "
            "`num_clusters` 1 or 2."
        )
    strata = np.asarray(images.train_labels), np.asarray(images.test_labels)
    num_classes = count_classes(strata)
    owned = np.ones((num_clusters, num_classes), bool)
    rows = rows_by_class(strata, key, owned, sizes, None, 1.0)
    train, truth, test, test_truth = fill(images, rows, num_clusters)
    turned = [_turned(data, num_clusters) for data in (train, test)]
    return turned[0], truth, turned[1], test_truth


def _turned(data: ClientData, num_clusters: int) -> ClientData:
    """The images of cluster c turned by c of `num_clusters` turns."""
    clusters: list[Float[Array, ...]] = jnp.split(data.inputs, num_clusters)
    inputs = [
        jnp.rot90(images, cluster * 4 // num_clusters, axes=(2, 3))
        for cluster, images in enumerate(clusters)
    ]
    return data._replace(inputs=jnp.concatenate(inputs))
