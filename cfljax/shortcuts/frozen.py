"""Frozen runs: those whose clients keep their models for a while, by certificate."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Bool, Float

from cfljax.shortcuts.partitions import Normal, Sets
from cfljax.shortcuts.rounds import frozen_rounds
from cfljax.shortcuts.samples import padded, power_of_two
from cfljax.shortcuts.state import Runs

__all__ = ["Frozen", "FrozenRuns", "Partition"]

_CHUNK = 32  # Rounds by Gram matrices between two compactions.
_MOST_RUNS = 256  # That step together.
_MOST_BYTES = 2**32  # Of Gram matrices that runs step by at the same time.


class Partition(NamedTuple):
    """A partition of the clients by the models that they use.

    sets: of clients.
    normal: equations of every set; kept here, as they may be forgotten elsewhere.
    """

    sets: Sets
    normal: list[Normal]


class Frozen(NamedTuple):
    """A run whose clients stay for a while.

    run: index.
    used: models, in the order of the partition's sets.
    radii: of `pair_radii`, between the used models.
    is_fresh: whether it is where its losses were evaluated.
    """

    run: int
    used: list[int]
    radii: Float[np.ndarray, "used used"]
    is_fresh: bool = True


class FrozenRuns:
    """Runs that go on by Gram matrices, those on one partition together.

    Args:
      runs: changed in place.
      is_dropped: runs that are not to be followed any further.

    Attributes:
      moving: models that a run's next rounds will move, as its clients stay.
    """

    def __init__(self, runs: Runs, is_dropped: Bool[np.ndarray, " runs"]) -> None:
        self.moving = np.zeros_like(runs.stale)
        self._runs = runs
        self._is_dropped = is_dropped
        self._groups: dict[Sets, tuple[Partition, list[Frozen]]] = {}
        self._sets: set[bytes] = set()  # Whose matrices are in use.
        self._held: dict[int, Sets] = {}
        features = runs.models.shape[2]
        self._most = max(8, _MOST_BYTES // (4 * features**2))

    def __bool__(self) -> bool:
        return bool(self._groups)

    def has_room(self, sets: Sets) -> bool:
        """Whether a run on this partition may be added, as to memory."""
        return len(self._sets) + len(set(sets) - self._sets) <= self._most

    def add(self, partition: Partition, member: Frozen) -> None:
        """A run whose losses were just evaluated, or that goes on."""
        if member.is_fresh:
            self._runs.anchors[member.run] = self._runs.models[member.run]
        self.thaw(member.run)
        self.moving[member.run, member.used] = True
        self._sets.update(partition.sets)
        _, members = self._groups.setdefault(partition.sets, (partition, []))
        members.append(member)

    def thaw(self, run: int) -> None:
        """Forgets the partition of a run that has left it."""
        self._held.pop(run, None)

    def step(self) -> list[int]:
        """Some rounds of all; returns runs whose losses are to be evaluated."""
        groups, self._groups, self._sets = self._groups, {}, set()
        held = []
        for partition, members in groups.values():
            live = [one for one in members if not self._is_dropped[one.run]]
            for start in range(0, len(live), _MOST_RUNS):
                held += self._step(partition, live[start : start + _MOST_RUNS])
        return held

    def _step(self, partition: Partition, members: list[Frozen]) -> list[int]:
        runs, number = self._runs, len(members)
        index = padded(np.arange(number), power_of_two(number))
        row = np.array([member.run for member in members])[index]
        used = np.array([member.used for member in members])[index]
        models, made, held = frozen_rounds(
            *self._equations(partition, [members[i] for i in index]),
            runs.anchors[row[:, None], used],
            np.stack([member.radii for member in members])[index],
            np.where(np.arange(len(index)) < number, runs.left[row], 0),
            np.int32(_CHUNK),
            np.array([member.is_fresh for member in members])[index],
        )
        row, used = row[:number], used[:number]
        made, held = np.asarray(made)[:number], np.asarray(held)[:number]
        runs.models[row[:, None], used] = np.asarray(models)[:number]
        runs.left[row] -= made
        runs.work.frozen += int(np.sum(made)) * len(partition.sets)
        to_evaluate = []
        for member, is_held in zip(members, held, strict=True):
            if is_held or runs.left[member.run] == 0:
                runs.stale[member.run, member.used] = True
                self.moving[member.run] = False
                self._held[member.run] = partition.sets
                to_evaluate.append(member.run)
            else:
                self.add(partition, member._replace(is_fresh=False))
        return to_evaluate

    def _equations(
        self, partition: Partition, members: list[Frozen]
    ) -> tuple[tuple[Array, ...], np.ndarray, np.ndarray, np.ndarray]:
        """Gram matrices, moments, rates and models of runs on one partition."""
        runs, normal = self._runs, partition.normal
        row = np.array([member.run for member in members])
        used = np.array([member.used for member in members])
        sizes = runs.divisors(np.array([key.count(1) for key in partition.sets]))
        return (
            tuple(gram for gram, _ in normal),
            np.stack([moments[runs.problems[row]] for _, moments in normal], axis=1),
            runs.step_sizes[row][:, None] / sizes[None, :],
            runs.models[row[:, None], used],
        )

    def hold(self, run: int) -> None:
        """Expects the clients of a run to do as their groups."""
        self._held[run] = ()

    def held(self, run: int) -> Sets | None:
        """The partition that a run is about to leave or to prove anew, if any.

        No sets for one whose clients are expected to do as their groups.
        """
        return self._held.get(run)
