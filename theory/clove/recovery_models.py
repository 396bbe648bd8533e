"""Theorem 4.1's setting: truths, models, and the loss vectors of all the clients.

K unit truths, every two of them `separation` apart, turned at random against the
models; sigma = 0.1, M/K clients each, losses by their exact law.
"""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import law
from theory.clove.loss_means import alphas, random_units

__all__ = [
    "NOISE",
    "Cell",
    "Drawn",
    "draw",
    "largest_constant",
    "margins",
    "models_and_truths",
    "samples_by_clients",
    "samples_by_condition",
]

NOISE = 0.1

Kind = Literal["orthonormal", "level", "random", "few", "proximal"]


class Cell(NamedTuple):
    """Where recovery is tried.

    kind: of the models. "orthonormal", N = d; "level", the same with truths that differ
      along the sum of the models, K = 2; "random", d unit vectors; "few", K of them;
      "proximal", one at Delta/4 of each truth.
    num_features: d, at least K.
    num_clusters: K.
    num_clients: M, a multiple of K.
    num_samples: n of each client.
    separation: Delta.
    """

    kind: Kind
    num_features: int
    num_clusters: int
    num_clients: int
    num_samples: int
    separation: float = 1.0


class Drawn(NamedTuple):
    """Losses of all clients under all models, and their expectations.

    losses: `[clusters, members, models]`.
    squares: `[clusters, models]`, alpha^2 = E L.
    """

    losses: Float[np.ndarray, "clusters members models"]
    squares: Float[np.ndarray, "clusters models"]

    def centres(self, num_samples: int) -> Float[np.ndarray, "clusters models"]:
        """E sqrt(L)."""
        return np.sqrt(self.squares) * law.chi_mean_ratio(num_samples)


def models_and_truths(
    generator: np.random.Generator, cell: Cell
) -> tuple[
    Float[np.ndarray, "models features"], Float[np.ndarray, "clusters features"]
]:
    """Models of the cell's kind, and truths that do not depend on them.

    Except that "proximal" models are near their truths, and that "level" truths are
    chosen after the models.
    """
    size, number = cell.num_features, cell.num_clusters
    if cell.kind == "level":
        along = np.full(size, cell.separation / 2 / np.sqrt(size))
        across = generator.standard_normal(size)
        across -= np.mean(across)
        across *= np.sqrt(1 - cell.separation**2 / 4) / np.linalg.norm(across)
        return np.eye(size), np.stack([across + along, across - along])
    gram = np.full((number, number), 1 - cell.separation**2 / 2)
    np.fill_diagonal(gram, 1.0)
    basis = np.linalg.qr(generator.standard_normal((size, number)))[0]
    truths = np.linalg.cholesky(gram) @ basis.T
    if cell.kind == "orthonormal":
        return np.eye(size), truths
    if cell.kind == "proximal":
        offsets = random_units(generator, (number, size))
        return truths + cell.separation / 4 * offsets, truths
    count = size if cell.kind == "random" else number
    return random_units(generator, (count, size)), truths


def draw(generator: np.random.Generator, cell: Cell) -> Drawn:
    """New truths, models and losses."""
    models, truths = models_and_truths(generator, cell)
    losses = [
        law.loss_vectors(
            generator,
            law.loss_factor(models, truth, NOISE),
            num_samples=cell.num_samples,
            num_clients=cell.num_clients // cell.num_clusters,
        )
        for truth in truths
    ]
    mean = alphas(truths, np.broadcast_to(models, (len(truths), *models.shape)), NOISE)
    return Drawn(np.array(losses), mean**2)


def margins(
    points: Float[np.ndarray, "clusters members models"],
    centres: Float[np.ndarray, "clusters models"],
) -> Float[np.ndarray, "clusters members"]:
    """How much further the nearest foreign centre is than the own one."""
    distances = np.linalg.norm(points[:, :, None] - centres, axis=-1)
    own = np.eye(len(centres), dtype=bool)[:, None]
    foreign = np.min(np.where(own, np.inf, distances), axis=-1)
    return foreign - np.sum(distances, axis=-1, where=own)


def largest_constant(
    points: Float[np.ndarray, "clusters members models"],
    centres: Float[np.ndarray, "clusters models"],
) -> float:
    """The largest c' for which all margins are (c'K/sqrt(m_j') + c'K/sqrt(m_j)) |A - C|
    or more; negative if a margin is."""
    number, members, _ = points.shape
    rows = (points - centres[:, None]).reshape(number * members, -1)
    unit = 2 * number / np.sqrt(members) * np.linalg.norm(rows, 2)
    return float(np.min(margins(points, centres)) / unit)


def samples_by_condition(cell: Cell, constant: float, risk: float) -> Cell:
    """The cell at the least n with n Delta^2 >= `constant` N K^3 log(M)^2 log(1/delta).

    N = K for proximal models, else d; delta is `risk`.
    """
    number = cell.num_clusters
    models = number if cell.kind == "proximal" else cell.num_features
    scale = models * number**3 * np.log(cell.num_clients) ** 2 * np.log(1 / risk)
    count = int(np.ceil(constant * scale / cell.separation**2))
    return cell._replace(num_samples=count)


def samples_by_clients(cell: Cell, factor: float) -> Cell:
    """The cell at the least n with n Delta^2 >= `factor` log(M)."""
    count = np.ceil(factor * np.log(cell.num_clients) / cell.separation**2)
    return cell._replace(num_samples=int(count))
