"""Samples: what all runs on one data set share, computed once."""

import concurrent.futures
import dataclasses
import functools
import itertools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from cfljax.data.linear import standard_samples

EXACT: Any = {"precision": jax.lax.Precision.HIGHEST}  # not TF32 on an accelerator
# Factors of the bound in `operator_norms`: squarings of a client's Gram matrix.
_SQUARINGS = 5
# What `operator_norms` adds of itself, for rounding.
_ROUNDING = 1e-5


@functools.partial(
    jax.jit, static_argnames=("num_clients", "num_samples", "num_features")
)
def draw_samples(
    key: PRNGKeyArray, *, num_clients: int, num_samples: int, num_features: int
) -> tuple[Float[Array, "clients samples features"], Float[Array, "clients samples"]]:
    """`data.linear.standard_samples`, compiled once for every size."""
    return standard_samples(
        key,
        num_clients=num_clients,
        num_samples=num_samples,
        num_features=num_features,
    )


@dataclasses.dataclass(frozen=True)
class Samples:
    """Inputs that many regression problems share, and what follows from them.

    inputs: X, `[clients x samples, features]`, on the device.
    targets: y of each problem, `[problems, clients, samples]`, on the device.
    design: X^T and, below it, y of each problem: one product with it gives errors.
    clusters: the clients' groups, 0 ... : partitions into unions of them are the ones
      whose Gram matrices are at hand.
    lipschitz: `|X_i|_op / sqrt(n)` of each client, from above.
    grams: `(2 / n) X_c^T X_c` of each group.
    moments: `(2 / n) X_c^T y` of each problem and group.
    squares: `|y_i|^2 / n` of each problem and client.
    """

    inputs: Float[Array, "rows features"]
    targets: Float[Array, "problems clients samples"]
    design: Float[Array, "features_and_problems rows"]
    clusters: Int[np.ndarray, " clients"]
    lipschitz: Float[np.ndarray, " clients"]
    grams: Float[Array, "groups features features"]
    moments: Float[np.ndarray, "problems groups features"]
    squares: Float[np.ndarray, "problems clients"]

    @property
    def num_clients(self) -> int:
        """m."""
        return self.targets.shape[1]

    @property
    def device(self) -> Any:
        """Where the inputs are."""
        (device,) = self.inputs.devices()
        return device


def prepare(
    inputs: Float[Array, "clients samples features"],
    targets: Float[Array, "problems clients samples"],
    clusters: Int[np.ndarray, " clients"],
) -> Samples:
    """Computes what runs on these inputs share.

    Args:
      inputs: X of every client.
      targets: y of every problem; problems differ in nothing else.
      clusters: group of each client, every number from 0 to the largest in use.

    Raises:
      ValueError: if the shapes do not fit, a number is not finite or not float32, or a
        group is empty.

    Cost: `2 m n d^2` operations for the Gram matrices; `10 m n^3` for the norms.
    """
    clusters = np.asarray(clusters)
    num_clients, num_samples, num_features = inputs.shape
    if targets.shape[1:] != (num_clients, num_samples) or clusters.shape != (
        num_clients,
    ):
        raise ValueError(
            f"`targets` and `clusters` must be of {num_clients} clients with "
            f"{num_samples} samples, got {targets.shape} and {clusters.shape}."
        )
    for name, values in {"inputs": inputs, "targets": targets}.items():
        if values.dtype != jnp.float32:
            raise ValueError(
                f"`{name}` must be float32, got {values.dtype}: certificates count on "
                "its rounding; convert them, or make all rounds in full."
            )
    if not _are_finite(inputs, targets):  # One product has the errors of all problems.
        raise ValueError("`inputs` and `targets` must be finite.")
    sizes = np.bincount(clusters)
    if not np.all(sizes):
        raise ValueError(f"`clusters` must use every number, got sizes {sizes}.")
    grams, moments = [], []
    for group in range(len(sizes)):
        members = np.flatnonzero(clusters == group)
        gram, moment = _normal(*_of_clients(inputs, targets, members))
        grams.append(gram)
        moments.append(np.asarray(moment))
    return Samples(
        inputs=inputs.reshape(-1, num_features),
        targets=targets,
        design=_design(inputs, targets),
        clusters=clusters,
        lipschitz=np.asarray(operator_norms(inputs)) / np.sqrt(np.float32(num_samples)),
        grams=jnp.stack(grams),
        moments=np.stack(moments, axis=1),
        squares=np.asarray(jnp.mean(jnp.square(targets), axis=2)),
    )


@jax.jit
def _are_finite(
    inputs: Float[Array, "clients samples features"],
    targets: Float[Array, "problems clients samples"],
) -> Bool[Array, ""]:
    return jnp.all(jnp.isfinite(inputs)) & jnp.all(jnp.isfinite(targets))


@jax.jit
def _design(
    inputs: Float[Array, "clients samples features"],
    targets: Float[Array, "problems clients samples"],
) -> Float[Array, "features_and_problems rows"]:
    flat = inputs.reshape(-1, inputs.shape[2])
    return jnp.concatenate([flat.T, targets.reshape(targets.shape[0], -1)])


@jax.jit
def _of_clients(
    inputs: Float[Array, "clients samples features"],
    targets: Float[Array, "problems clients samples"],
    members: Int[Array, " members"],
) -> tuple[
    Float[Array, "members samples features"], Float[Array, "problems members samples"]
]:
    return inputs[members], targets[:, members]


@jax.jit
def _normal(
    inputs: Float[Array, "members samples features"],
    targets: Float[Array, "problems members samples"],
) -> tuple[Float[Array, "features features"], Float[Array, "problems features"]]:
    scale = 2 / inputs.shape[1]
    flat = inputs.reshape(-1, inputs.shape[2])
    moments = jnp.matmul(targets.reshape(targets.shape[0], -1), flat, **EXACT)
    return scale * jnp.matmul(flat.T, flat, **EXACT), scale * moments


@jax.jit
def operator_norms(
    inputs: Float[Array, "clients samples features"],
) -> Float[Array, " clients"]:
    """Upper bounds of every client's `|X_i|_op`, within 6 % at rank 1000.

    With K = X X^T (or X^T X, where that is smaller) and p a power of two,
    `|X|_op^2 = |K|_op <= |K^p|_F^(1/p) <= r^(1/2p) |K|_op` for rank r: the Frobenius
    norm is at least the spectral one, and a symmetric matrix' powers have the powers
    of its eigenvalues. Inputs are scaled to 1, their largest number, and matrices to
    norm 1 before each squaring: no square leaves the range of float32.
    """

    def one(rows: Float[Array, "samples features"]) -> Float[Array, ""]:
        largest = jnp.max(jnp.abs(rows))
        rows = rows / jnp.where(largest > 0, largest, 1)
        wide = rows.shape[0] <= rows.shape[1]
        left, right = (rows, rows.T) if wide else (rows.T, rows)
        power = jnp.matmul(left, right, **EXACT)
        bound = jnp.zeros(())
        for squaring in range(_SQUARINGS):
            norm = jnp.sqrt(jnp.sum(jnp.square(power)))
            power = power / jnp.where(norm > 0, norm, 1)
            bound = bound + jnp.log(norm) / 2**squaring
            power = jnp.matmul(power, power, **EXACT)
        last = jnp.log(jnp.sqrt(jnp.sum(jnp.square(power)))) / 2**_SQUARINGS
        return (1 + _ROUNDING) * largest * jnp.exp((bound + last) / 2)

    return jax.lax.map(one, inputs)


@jax.jit
def normal_change(
    inputs: Float[Array, "rows features"],
    targets: Float[Array, "problems clients samples"],
    clients: Int[Array, " some"],
    number: Int[Array, ""],
    sign: Float[Array, ""],
) -> tuple[Float[Array, "features features"], Float[Array, "problems features"]]:
    """What clients add to the Gram matrix and moments of a set (sign 1), or take (-1).

    Args:
      inputs: of all clients.
      targets: of all problems.
      clients: to add or take away.
      number: how many of them count, the first ones.
      sign: 1 or -1.
    """
    num_samples = targets.shape[2]
    counts = jnp.arange(clients.shape[0])[:, None, None] < number
    blocks = inputs.reshape(-1, num_samples, inputs.shape[1])[clients]
    gram, moments = _normal(jnp.where(counts, blocks, 0), targets[:, clients])
    return sign * gram, sign * moments


# Parts that are summed side by side, as one keeps one core busy: always as many, so
# that sums do not depend on the number of cores.
_PARTS = 2


def in_parts(product: Callable[[tuple], Array], number: int, device: Any) -> np.ndarray:
    """The sum of `product((first, end))` over the parts of a list of a given length."""

    def part(ends: tuple[np.int32, np.int32]) -> np.ndarray:
        with jax.default_device(device):  # A thread's own setting.
            return np.asarray(product(ends))

    cuts = np.linspace(0, number, _PARTS + 1).astype(np.int32)
    with concurrent.futures.ThreadPoolExecutor(_PARTS) as pool:
        return np.sum(list(pool.map(part, itertools.pairwise(cuts))), axis=0)


def padded(indices: Int[np.ndarray, " some"], size: int) -> Int[np.ndarray, " size"]:
    """The indices, and the first one again up to the size of a compiled program."""
    return np.concatenate([indices, np.repeat(indices[:1], size - len(indices))])


def power_of_two(number: int) -> int:
    """The least one that is not below, so that few sizes are compiled."""
    return 1 << max(number - 1, 0).bit_length()
