"""Theorem 4.1's setting, and trials of it with the library's k-means.

K unit truths, every two of them `separation` apart, turned at random against the
models; M/K clients each, losses by their exact law.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Shaped
from threadpoolctl import threadpool_limits

from cfljax import law
from cfljax.clustering import spectral_k_means
from theory.clove.common.loss_means import alphas, random_units

Kind = Literal["orthonormal", "level", "random", "few", "proximal"]


class Cell(NamedTuple):
    """Where recovery is tried.

    Models are "orthonormal", N = d; "level", the same with truths that differ along the
    sum of the models, K = 2; "random", d unit vectors; "few", K of them; or "proximal",
    one at Delta/4 of each truth.
    """

    kind: Kind
    num_features: int  # d, at least K
    num_clusters: int  # K
    num_clients: int  # M, a multiple of K
    num_samples: int  # n of each client
    separation: float = 1.0  # Delta
    noise: float = 0.1  # sigma


def places(cells: Sequence[Cell]) -> dict[str, Shaped[np.ndarray, " cells"]]:
    """The cells' coordinates, without n, which often follows from them."""
    names = {"models": 0, "d": 1, "k": 2, "m": 3, "separation": 5, "noise": 6}
    return {name: np.array([one[i] for one in cells]) for name, i in names.items()}


class Drawn(NamedTuple):
    """Losses of all clients under all models, and alpha^2 = E L."""

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
    """Models of the cell's kind, and truths that do not depend on them, unless models
    are "proximal" or truths "level"."""
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
            law.loss_factor(models, truth, cell.noise),
            num_samples=cell.num_samples,
            num_clients=cell.num_clients // cell.num_clusters,
        )
        for truth in truths
    ]
    every = np.broadcast_to(models, (len(truths), *models.shape))
    mean = alphas(truths, every, cell.noise)
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


def spread_ratio(
    points: Float[np.ndarray, "clusters members models"],
    centres: Float[np.ndarray, "clusters models"],
) -> float:
    """4 r/D: r the largest distance of a point from its own centre, D the least of two
    centres. Below 1 any k-means that starts from points that are furthest from each
    other finds the clusters."""
    reach = np.max(np.linalg.norm(points - centres[:, None], axis=-1))
    apart = np.linalg.norm(centres[:, None] - centres, axis=-1)
    return float(4 * reach / np.min(apart[np.triu_indices(len(centres), 1)]))


def furthest_first(
    points: Float[np.ndarray, "points models"], number: int
) -> Int[np.ndarray, " points"]:
    """Labels of one assignment to `number` points, the first and then each time the one
    furthest from those before, and of a second one to the means of the first."""
    chosen = [0]
    away = np.linalg.norm(points - points[0], axis=1)
    for _ in range(number - 1):
        chosen.append(int(np.argmax(away)))
        away = np.minimum(away, np.linalg.norm(points - points[chosen[-1]], axis=1))
    centres = points[chosen]
    labels = np.zeros(len(points), int)
    for _ in range(2):
        apart = np.linalg.norm(points[:, None] - centres, axis=-1)
        labels = np.argmin(apart, axis=1)
        centres = np.stack(
            [points[labels == one].mean(axis=0) for one in range(number)]
        )
    return labels


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


def difficulty(cell: Cell) -> float:
    """What n must grow with: N (1 + sigma^2)^2/Delta^2 for orthonormal models, and K (1
    + sigma^2) (Delta + 2 sigma)^2/Delta^4 for proximal ones, by the means' distance."""
    level = 1 + cell.noise**2
    if cell.kind == "proximal":
        width = cell.separation + 2 * cell.noise
        return cell.num_clusters * level * width**2 / cell.separation**4
    return cell.num_features * level**2 / cell.separation**2


def samples_by_condition(cell: Cell, constant: float, risk: float) -> Cell:
    """The cell at the least n with n >= `constant` `difficulty` K^3 log(M)^2
    log(1/delta); delta is `risk`."""
    scale = cell.num_clusters**3 * np.log(cell.num_clients) ** 2 * np.log(1 / risk)
    count = int(np.ceil(constant * difficulty(cell) * scale))
    return cell._replace(num_samples=count)


def samples_by_clients(cell: Cell, factor: float) -> Cell:
    """The cell at the least n with n Delta^2 >= `factor` log(M)."""
    count = np.ceil(factor * np.log(cell.num_clients) / cell.separation**2)
    return cell._replace(num_samples=int(count))


def samples_turned(cell: Cell, factor: float, *, features: float = 2.0) -> Cell:
    """The cell at the least n with n Delta^2 >= `factor` (8 (2 + sigma^2)^2 log(M) +
    `features` d (1 + sigma^2)^2)."""
    variance = cell.noise**2
    scale = 8 * (2 + variance) ** 2 * np.log(cell.num_clients)
    scale += features * cell.num_features * (1 + variance) ** 2
    return cell._replace(num_samples=int(np.ceil(factor * scale / cell.separation**2)))


_AT_A_TIME = 50  # trials
_RESTARTS = 5

Points = Float[np.ndarray, "_ _ _"]  # clusters, members, models


def recovered(
    generator: np.random.Generator, trials: Sequence[Points]
) -> Bool[np.ndarray, " trials"]:
    """Whether k-means, with Kumar and Kannan's start, finds the clusters of each trial
    without any mistake; sizes may differ."""
    numbers = np.array([len(trial) for trial in trials])
    found = np.zeros(len(trials), bool)
    for number in np.unique(numbers):
        places = np.flatnonzero(numbers == number)
        filled = _filled([trials[int(place)] for place in places])
        labels = _clustered(generator, filled)[: len(places)]
        present = np.isfinite(filled[: len(places), ..., 0])
        found[places] = _is_partition(labels, present)
    return found


def _filled(
    trials: Sequence[Points],
) -> Float[np.ndarray, "trials clusters members models"]:
    """All trials in one array, and empty ones up to a multiple of the loop's length."""
    members = max(trial.shape[1] for trial in trials)
    models = max(trial.shape[2] for trial in trials)
    count = -(-len(trials) // _AT_A_TIME) * _AT_A_TIME
    filled = np.full((count, len(trials[0]), members, models), np.nan)
    for place, trial in zip(filled, trials, strict=False):
        place[:, : trial.shape[1]] = 0
        place[:, : trial.shape[1], : trial.shape[2]] = trial
    return filled


def _clustered(
    generator: np.random.Generator,
    filled: Float[np.ndarray, "trials clusters members models"],
) -> Int[np.ndarray, "trials clusters members"]:
    """Cluster of each point, negative for those that are not there."""
    count, number, members, models = filled.shape
    body, found = _one_trial(number), []
    # Many small decompositions: threads would wait for each other most of the time.
    with jax.enable_x64(True), threadpool_limits(1, "blas"):
        keys = jax.random.split(jax.random.key(int(generator.integers(2**31))), count)
        for first in range(0, count, _AT_A_TIME):
            part = slice(first, first + _AT_A_TIME)
            points = filled[part].reshape(_AT_A_TIME, number * members, models)
            _, labels = jax.lax.scan(body, None, (keys[part], jnp.asarray(points)))
            found.append(np.asarray(labels))
    return np.concatenate(found).reshape(count, number, members)


@cache
def _one_trial(number: int) -> Callable[[None, tuple[Array, Array]], tuple]:
    """The loop's body: one object for each K, as each new one is compiled again."""

    def body(carry: None, trial: tuple[Array, Array]) -> tuple[None, Array]:
        found = spectral_k_means(*trial, number, num_restarts=_RESTARTS)
        return carry, found.assignment

    return body


def _is_partition(
    labels: Int[np.ndarray, "trials clusters members"],
    present: Bool[np.ndarray, "trials clusters members"],
) -> Bool[np.ndarray, " trials"]:
    """Whether each true cluster has one label, and no two have the same."""
    first = labels[:, :, :1]
    together = np.all((labels == first) | ~present, axis=(1, 2))
    ranked = np.sort(first[:, :, 0], axis=1)
    return together & np.all(np.diff(ranked, axis=1) > 0, axis=1) & (ranked[:, 0] >= 0)


def is_fixed_point(points: Float[np.ndarray, "clusters members models"]) -> bool:
    """Whether Lloyd's iterations stay where they are at the true clusters; if not, no
    k-means ends there, however its centres are initialised."""
    means = np.mean(points, axis=1)
    # Without the point's own square, which is the same for all means.
    scores = np.sum(means**2, axis=1) - 2 * points @ means.T
    return bool(np.all(np.argmin(scores, axis=-1) == np.arange(len(means))[:, None]))
