"""Partitions: Gram matrices of sets of clients, for rounds that meet no samples."""

import collections
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cfljax.montecarlo.samples import Samples, normal_change, padded, power_of_two

# The clients of each used model, as the bytes of their masks; ascending.
Sets = tuple[bytes, ...]

# Columns that fill a product: reading a matrix costs as much as so many of them.
PASS = 32
# Columns that a round by Gram matrices of its own costs, in products of that size.
_MATRIX_VECTOR = 5
# Samples of all clients, in units of d, from which on gradients by group pay on a CPU:
# measured with two and four groups, not at 20 and less, as well as without at 30. An
# accelerator would wait for one client's small product after the other.
_SAMPLES = 40
_BY_GROUP = 10  # The same for each group, whose matrix is as large as d samples.
# Share of the clients that may not do as their group, for its Gram matrix to serve.
_DISSENT = 0.5

# Times what a set has: all that went through its sum, whose rounding stays in it.
_MOST_SUMMED = 32
_DEPTH = 8  # Most changes in a row, each of which rounds.
_CLIENTS = 16  # Most clients that are added to a Gram matrix at a time.
_MOST_SEEN = 20_000  # Partitions whose costs are remembered.
# Of Gram matrices that are kept beside those of the groups, and of those that runs
# step by at the moment (`frozen`).
_MOST_BYTES = 2**30


class Normal(NamedTuple):
    """Normal equations of a set of clients.

    gram: `(2 / n) X_S^T X_S`.
    moments: `(2 / n) X_S^T y` of each problem.
    """

    gram: Float[Array, "features features"]
    moments: Float[np.ndarray, "problems features"]


class _Past(NamedTuple):
    """How the equations of a set came about: by how many changes, and through which
    bounds, of which rounding left a small share."""

    depth: int
    summed: Float[np.ndarray, " bounds"]


class Partitions:
    """Gram matrices and moments of sets of clients.

    Unions of the samples' groups are at hand. Any other set is built from the nearest
    one that is, once the rounds that its runs have made on the samples have cost as
    much as that: no choice without foresight is better than twice the best one with it
    in the worst case (the ski-rental problem). Rounds by group (`group_gradients`)
    count less.

    Costs are counted in columns, one model's product with all samples.

    Args:
      samples: of all runs.

    Attributes:
      pays_by_group: whether gradients by the groups' Gram matrices may
        (`group_gradients`).
    """

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self._kept: collections.OrderedDict[bytes, Normal] = collections.OrderedDict()
        self._pasts: dict[bytes, _Past] = {}  # Of those kept that are no unions.
        self._masks = np.zeros((0, samples.num_clients), bool)  # To build others from.
        self._packed = np.packbits(self._masks, axis=1)  # Eight clients a byte.
        self._prices: dict[Sets, float] = {}
        self._spent: dict[Sets, float] = collections.defaultdict(float)
        self._sizes = np.bincount(samples.clusters)
        # Grams that overflow say nothing; nor do those that are built from them.
        pairs = zip(samples.grams, samples.moments.swapaxes(0, 1), strict=True)
        self._is_finite = np.array([_is_finite(*pair) for pair in pairs])
        self._overflown: set[bytes] = set()
        # Of each client's part of a Gram matrix, and of the moments of each problem.
        slopes = samples.lipschitz.astype(float)
        bounds = np.stack([slopes, *np.sqrt(samples.squares)]) * slopes
        self._bounds = np.asfortranarray(bounds)  # A client's together.
        self._total = np.sum(bounds, axis=1)
        rows, features = samples.inputs.shape
        self._most = max(8, _MOST_BYTES // (4 * features**2))
        is_finite = np.all(self._is_finite) and np.all(np.isfinite(self._bounds))
        least = max(_SAMPLES, _BY_GROUP * len(self._sizes)) * features
        is_large = samples.device.platform == "cpu" and rows >= least
        self.pays_by_group = bool(is_finite) and is_large

    def sets(self, assignment: Int[np.ndarray, " clients"]) -> tuple[list[int], Sets]:
        """Used models and their clients, in one order for all names of the models."""
        used = np.unique(assignment[assignment >= 0]).tolist()
        found = sorted((np.equal(assignment, j).tobytes(), j) for j in used)
        return [j for _, j in found], tuple(key for key, _ in found)

    def is_known(self, sets: Sets) -> bool:
        """Whether all Gram matrices are at hand, or sums of such."""
        return all(key in self._kept or self._is_of_groups(key) for key in sets)

    def is_of_all_groups(self, sets: Sets) -> bool:
        """Whether all are unions of the samples' groups, and every group is there."""
        is_whole = sum(key.count(1) for key in sets) == self._samples.num_clients
        return is_whole and all(self._is_of_groups(key) for key in sets)

    def majorities(
        self,
        assignments: Int[np.ndarray, "runs clients"],
        losses: Float[np.ndarray, "runs models clients"],
        problems: Int[np.ndarray, " runs"],
    ) -> tuple[Int[np.ndarray, "runs groups"], Bool[np.ndarray, " runs"]]:
        """What more clients of a group choose than anything else; where that helps.

        It does where `pays_by_group`, half of all clients choose so, no sum is blurred
        by what it leaves out (`_nearest`), and chosen models have losses everywhere.

        Args:
          assignments: of some runs; -1 for no model, as in the result.
          losses: theirs.
          problems: theirs.
        """
        clusters = self._samples.clusters
        if not self.pays_by_group:
            nothing = np.full((len(losses), len(self._sizes)), -1)
            return nothing, np.zeros(len(losses), bool)
        models = np.arange(losses.shape[1])[:, None]
        chosen = assignments[:, None] == models
        lone = (assignments == -1)[:, None]
        inside = (clusters[:, None] == np.arange(len(self._sizes))).astype(np.float32)
        counts = np.concatenate([lone, chosen], axis=1).astype(np.float32) @ inside
        found = np.argmax(counts, axis=1) - 1
        most = np.sum(np.max(counts, axis=1), axis=1)
        whole = found[:, clusters][:, None] == models
        through, is_sharp = whole + (chosen ^ whole).astype(float), True
        for bounds in (self._bounds[:1, None], self._bounds[1 + problems][:, None]):
            summed = np.sum(through * bounds, axis=2)
            is_sharp &= summed <= _MOST_SUMMED * np.sum(chosen * bounds, axis=2)
        is_sharp = np.all(is_sharp, axis=1)
        has_loss = np.all(np.isfinite(losses), axis=2) | ~np.any(chosen, axis=2)
        is_near = most >= (1 - _DISSENT) * len(clusters)
        return found, is_near & is_sharp & np.all(has_loss, axis=1)

    def spend(self, sets: Sets, columns: float) -> bool:
        """Notes what a round on the samples cost, and builds what is worth it.

        Args:
          sets: that the round used.
          columns: its cost.

        Returns:
          Whether they are known now.
        """
        rows, features = self._samples.inputs.shape
        if _MATRIX_VECTOR * features >= 2 * rows:
            return False  # Products with so few samples are no dearer.
        if not self._overflown.isdisjoint(sets):
            return False
        if len(self._spent) >= _MOST_SEEN:  # Few of them will be met again.
            self._spent.clear()
            self._prices.clear()
        self._spent[sets] += columns
        if sets not in self._prices:
            self._prices[sets] = self._price(sets)
        if self._spent[sets] < self._prices[sets]:
            return False
        for key in sets:
            if not self.is_known((key,)):
                self._build(key)
        return self.is_known(sets)

    def _price(self, sets: Sets) -> float:
        """Of the matrices that a partition lacks; less, once others are built."""
        changes = [
            int(np.sum(self._nearest(key)[1]))
            for key in sets
            if not self.is_known((key,))
        ]
        if len(sets) == 2:  # The second set is what the first leaves.
            changes = [min(changes)]
        features = self._samples.inputs.shape[1]
        return sum(changes) * features / self._samples.num_clients

    def normal(self, key: bytes) -> Normal:
        """Normal equations of a known set."""
        if key not in self._kept:
            mask = np.frombuffer(key, bool)
            groups = np.unique(self._samples.clusters[mask])
            assert np.sum(self._sizes[groups]) == np.sum(mask), "a set not known"
            union = Normal(
                jnp.sum(_rows(self._samples.grams, groups), axis=0),
                np.sum(self._samples.moments[:, groups], axis=1),
            )
            self._keep(key, union)
        self._kept.move_to_end(key)
        return self._kept[key]

    def _keep(self, key: bytes, normal: Normal) -> None:
        """Keeps the equations of a set; of too many, forgets those not used longest."""
        self._kept[key] = normal
        while len(self._kept) > self._most:
            self._pasts.pop(self._kept.popitem(last=False)[0], None)
        bases = [other for other, past in self._pasts.items() if past.depth < _DEPTH]
        masks = np.frombuffer(b"".join(bases), bool)
        self._masks = masks.reshape(-1, self._samples.num_clients)
        self._packed = np.packbits(self._masks, axis=1)

    def _is_of_groups(self, key: bytes) -> bool:
        """Whether a set is a union of groups, of finite Gram matrices."""
        inside = np.bincount(self._samples.clusters, weights=np.frombuffer(key, bool))
        whole = (inside == self._sizes) & self._is_finite
        return bool(np.all((inside == 0) | whole))

    def _nearest(
        self, key: bytes
    ) -> tuple[bool, Bool[np.ndarray, " clients"], bytes, _Past]:
        """The set at hand, or complement of one, that differs in the fewest clients and
        is not blurred by rounding; whether it is one, who differs, it, its past."""
        mask = np.frombuffer(key, bool)
        clusters = self._samples.clusters
        union = (2 * np.bincount(clusters, weights=mask) > self._sizes)[clusters]
        masks = np.concatenate([union[None], self._masks])
        packed = np.concatenate([np.packbits(union)[None], self._packed])
        bits = np.bitwise_count(packed ^ np.packbits(mask))
        differ = np.sum(bits, axis=1, dtype=int)
        changes = np.concatenate([differ, len(mask) - differ])
        own = self._sum(mask)
        for place in (int(np.argmin(changes)), 0):
            is_complement, row = divmod(place, len(masks))
            base, differ = masks[row], (masks[row] != mask) ^ bool(is_complement)
            past = self._past(base, differ, is_complement=bool(is_complement))
            if np.all(past.summed <= _MOST_SUMMED * own):
                return bool(is_complement), differ, base.tobytes(), past
        return False, mask, np.zeros_like(mask).tobytes(), _Past(1, own)

    def _sum(self, mask: Bool[np.ndarray, " clients"]) -> Float[np.ndarray, " bounds"]:
        """Of the bounds of some clients; those of others may be infinite."""
        return np.sum(self._bounds.T[mask], axis=0)

    def _past(
        self,
        base: Bool[np.ndarray, " clients"],
        differ: Bool[np.ndarray, " clients"],
        *,
        is_complement: bool,
    ) -> _Past:
        """Of a set that is built from another."""
        before = self._pasts.get(base.tobytes(), _Past(0, self._sum(base)))
        every = self._total if is_complement else 0
        return _Past(before.depth + 1, before.summed + every + self._sum(differ))

    def _build(self, key: bytes) -> None:
        is_complement, differ, base, past = self._nearest(key)
        samples = self._samples
        gram, moments = self.normal(base)
        if is_complement:
            every = self.normal(np.ones(samples.num_clients, bool).tobytes())
            gram, moments = every.gram - gram, every.moments - moments
        mask = np.frombuffer(key, bool)
        for sign, clients in ((1.0, differ & mask), (-1.0, differ & ~mask)):
            for some in _in_parts(np.flatnonzero(clients)):
                change = normal_change(
                    samples.inputs,
                    samples.targets,
                    padded(some, power_of_two(len(some))),
                    np.int32(len(some)),
                    np.float32(sign),
                )
                gram, moments = gram + change[0], moments + np.asarray(change[1])
        if not _is_finite(gram, moments):
            self._overflown.add(key)
            return
        self._pasts[key] = past
        self._keep(key, Normal(gram, moments))


@jax.jit
def _rows(
    values: Float[Array, "rows *shape"], which: Int[Array, " some"]
) -> Float[Array, "some *shape"]:
    return values[which]


def _in_parts(indices: Int[np.ndarray, " some"]) -> list[np.ndarray]:
    return [indices[i : i + _CLIENTS] for i in range(0, len(indices), _CLIENTS)]


def _is_finite(
    gram: Float[Array, "features features"],
    moments: Float[np.ndarray, "problems features"],
) -> bool:
    # No entry of the Gram matrix is larger than the sum of those on the diagonal.
    return bool(np.isfinite(float(jnp.trace(gram))) and np.all(np.isfinite(moments)))
