"""Schedule: many runs of IFCA on one data set, each no further than it must.

IFCA on linear regression with fixed samples is a deterministic map of the models. Its
runs are followed exactly, with two ways to go on a round:

- on the samples: errors of the models that moved, the clients' choices, gradients;
- by Gram matrices, while a certificate (`certificate.pair_radii`) says that no client
  changes its choice: a model's step is then `theta - rate ((2/n) X_S^T X_S theta -
  (2/n) X_S^T y)`, which costs d^2 instead of m n d. Losses of the models are evaluated
  anew only where the certificate ends.

Runs are in rounds of their own. Those that need the samples are gathered until the
products are full; those that share a partition step together.
"""

import collections
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
from jaxtyping import Array, Float, Int

from cfljax.shortcuts.certificate import choose, pair_radii
from cfljax.shortcuts.partitions import PASS, Normal, Partitions, Sets
from cfljax.shortcuts.rounds import MOST_AHEAD, frozen_path, frozen_rounds
from cfljax.shortcuts.samples import padded
from cfljax.shortcuts.state import Runs

__all__ = ["Finished", "Schedule"]

# A run, a model of its own, and the model's clients.
_Column = tuple[int, int, np.ndarray]

_CHUNK = 32  # Rounds by Gram matrices between two compactions.
_ROOM = 64  # Columns that cost little more than a few.
_MOST_RUNS = 256  # That step together.

# A run at its end, its models and its clients' losses -> runs to follow no further.
Finished = Callable[[int, np.ndarray, np.ndarray], Iterable[int]]


class _Frozen(NamedTuple):
    """A run whose clients stay for a while.

    run: index.
    assignment: of its clients.
    used: models, in the order of the partition's sets.
    radii: of `pair_radii`.
    is_fresh: whether it is where its losses were evaluated.
    """

    run: int
    assignment: Int[np.ndarray, " clients"]
    used: list[int]
    radii: Float[np.ndarray, "used used"]
    is_fresh: bool


class _Group(NamedTuple):
    """Runs on one partition, and its sets' equations, which may be forgotten elsewhere.

    normal: of every set.
    members: the runs.
    """

    normal: list[Normal]
    members: list[_Frozen]


class Schedule:
    """Follows runs to their last round.

    Args:
      runs: to follow; changed in place.
      partitions: of their samples.
      columns: models evaluated at a time.
      finished: told of every run that is at its end, with losses evaluated.
      turns: runs of a turn start when those of lower ones are done or dropped.
    """

    def __init__(
        self,
        runs: Runs,
        partitions: Partitions,
        *,
        columns: int,
        finished: Finished | None,
        turns: Int[np.ndarray, " runs"],
    ) -> None:
        self._runs = runs
        self._partitions = partitions
        self._columns = columns
        self._finished = finished
        self._waiting: collections.deque[int] = collections.deque()
        self._turns = [np.flatnonzero(turns == turn) for turn in np.unique(turns)[::-1]]
        self._frozen: dict[Sets, _Group] = {}
        self._held: dict[int, tuple[_Frozen, Sets, list[Normal]]] = {}
        self._dropped = np.zeros(len(runs), bool)
        self._done = np.zeros(len(runs), bool)

    def run(self) -> np.ndarray:
        """Follows all runs; returns which of them came to their end, `[runs]`."""
        while self._waiting or self._frozen or self._turns:
            if not self._waiting and not self._frozen:
                self._waiting.extend(self._turns.pop().tolist())
            ready = np.sum(self._runs.stale[list(self._waiting)])
            if ready >= self._columns or not self._frozen:
                self._on_samples()
            else:
                frozen, self._frozen = self._frozen, {}
                for sets, (normal, members) in frozen.items():
                    for start in range(0, len(members), _MOST_RUNS):
                        some = members[start : start + _MOST_RUNS]
                        self._by_gram_matrices(sets, normal, some)
        return self._done

    def _batch(self) -> Int[np.ndarray, " runs"]:
        batch, number = [], 0
        while self._waiting:
            run = self._waiting[0]
            more = int(np.sum(self._runs.stale[run]))
            if batch and number + more > self._columns:
                break
            self._waiting.popleft()
            if not self._dropped[run]:
                batch.append(run)
                number += more
        return np.array(batch, int)

    def _on_samples(self) -> None:
        batch = self._batch()
        if not len(batch):
            return
        runs = self._runs
        where, models = np.nonzero(runs.stale[batch])
        rows = batch[where]
        own = runs.models[rows, models]
        paths = self._look_ahead(batch, _ROOM // len(rows) - 1)
        ahead = [path.reshape(-1, path.shape[2]) for path in paths.values()]
        of_path = [
            np.full(len(part), run) for run, part in zip(paths, ahead, strict=True)
        ]
        errors, losses = runs.evaluate(
            np.concatenate([rows, *of_path]), np.concatenate([own, *ahead])
        )
        runs.losses[rows, models] = losses[: len(rows)]
        runs.stale[rows, models] = False
        pairs = zip(rows.tolist(), models.tolist(), strict=True)
        places = {pair: i for i, pair in enumerate(pairs)}
        start = len(rows)
        for run, path in paths.items():
            self._walk(run, path, losses[start:], start, places)
            start += path.shape[0] * path.shape[1]
        assignments = choose(runs.losses[batch])
        # Models that nobody can choose stay for ever.
        runs.left[batch[np.all(assignments < 0, axis=1)]] = 0
        ended = runs.left[batch] == 0
        for run in batch[ended].tolist():
            self._end(run)
        batch, assignments = batch[~ended], assignments[~ended]
        stepping = self._go_on(batch, assignments, max(1.0, PASS / start))
        self._step(stepping, errors, places)

    def _look_ahead(
        self, batch: Int[np.ndarray, " runs"], most: int
    ) -> dict[int, Float[np.ndarray, "rounds used features"]]:
        """Where runs of known partitions go next, unless a client changes its choice.

        A product with few columns costs as much as one with some more: those that are
        free look at the next rounds as well.
        """
        paths = {}
        for run in batch.tolist():
            number = min(most, int(self._runs.left[run]), MOST_AHEAD)
            if number > 0 and run in self._held:
                member, sets, normal = self._held[run]
                path = frozen_path(
                    *self._equations(sets, normal, [member]), np.int32(number)
                )
                paths[run] = np.asarray(path)[:number, 0]
        return paths

    def _walk(
        self,
        run: int,
        path: Float[np.ndarray, "rounds used features"],
        losses: Float[np.ndarray, "columns clients"],
        start: int,
        places: dict[tuple[int, int], int],
    ) -> None:
        """Goes along a path while the clients' choices are those that it supposes.

        Args:
          run: index.
          path: of `_look_ahead`.
          losses: under the path's models first, then others.
          start: column of the first of them.
          places: column of each pair of run and model; changed in place.
        """
        runs, member = self._runs, self._held[run][0]
        supposed = member.assignment
        for models, own in zip(
            path,
            np.split(losses[: path.shape[0] * path.shape[1]], len(path)),
            strict=True,
        ):
            if not np.array_equal(choose(runs.losses[run][None])[0], supposed):
                return
            runs.models[run, member.used] = models
            runs.losses[run, member.used] = own
            runs.left[run] -= 1
            for model in member.used:
                places[run, model] = start
                start += 1

    def _go_on(
        self,
        batch: Int[np.ndarray, " runs"],
        assignments: Int[np.ndarray, "runs clients"],
        share: float,
    ) -> list[_Column]:
        """Freezes the runs whose partition is known; returns the columns of the others.

        Args:
          batch: runs just evaluated.
          assignments: theirs.
          share: columns that one column of this product costs.
        """
        whole = np.all(assignments >= 0, axis=1)
        losses = self._runs.losses[batch]
        lipschitz = self._runs.samples.lipschitz
        radii = pair_radii(losses, np.maximum(assignments, 0), lipschitz)
        stepping = []
        for i, run in enumerate(batch.tolist()):
            used, sets = self._partitions.sets(assignments[i])
            if not self._partitions.is_known(sets):
                self._partitions.spend(sets, 2 * len(used) * share)
            if whole[i] and self._partitions.is_known(sets):
                self._runs.anchors[run] = self._runs.models[run]
                normal = [self._partitions.normal(key) for key in sets]
                own = radii[i][np.ix_(used, used)]
                self._freeze(
                    sets, normal, _Frozen(run, assignments[i], used, own, True)
                )
            else:
                self._held.pop(run, None)
                stepping += [(run, model, assignments[i] == model) for model in used]
        return stepping

    def _freeze(self, sets: Sets, normal: list[Normal], member: _Frozen) -> None:
        self._frozen.setdefault(sets, _Group(normal, [])).members.append(member)

    def _end(self, run: int) -> None:
        self._done[run] = True
        if self._finished is not None:
            models, losses = self._runs.models[run], self._runs.losses[run]
            for other in self._finished(run, models, losses):
                self._dropped[other] = True

    def _step(
        self,
        stepping: list[_Column],
        errors: Array,
        places: dict[tuple[int, int], int],
    ) -> None:
        """One round on the samples: of models just evaluated, then of the others."""
        just = [column for column in stepping if column[:2] in places]
        other = [column for column in stepping if column[:2] not in places]
        self._descend(just, errors, [places[column[:2]] for column in just])
        for start in range(0, len(other), self._columns):
            part = other[start : start + self._columns]
            rows, models = (np.array([column[i] for column in part]) for i in (0, 1))
            again, _ = self._runs.evaluate(rows, self._runs.models[rows, models])
            self._descend(part, again, list(range(len(part))))
        for run in dict.fromkeys(run for run, _, _ in stepping):
            self._runs.left[run] -= 1
            self._waiting.append(run)

    def _descend(
        self,
        columns: list[_Column],
        errors: Array,
        places: list[int],
    ) -> None:
        if columns:
            rows, models, members = zip(*columns, strict=True)
            self._runs.descend(
                np.array(rows),
                np.array(models),
                np.stack(members),
                errors,
                np.array(places),
            )

    def _by_gram_matrices(
        self, sets: Sets, normal: list[Normal], members: list[_Frozen]
    ) -> None:
        members = [member for member in members if not self._dropped[member.run]]
        if not members:
            return
        runs, number = self._runs, len(members)
        index = padded(np.arange(number), 1 << (number - 1).bit_length())
        row = np.array([member.run for member in members])[index]
        used = np.array([member.used for member in members])[index]
        models, made, held = frozen_rounds(
            *self._equations(sets, normal, [members[i] for i in index]),
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
        runs.work.frozen += int(np.sum(made)) * len(sets)
        for member, is_held in zip(members, held, strict=True):
            if is_held or runs.left[member.run] == 0:
                runs.stale[member.run, member.used] = True
                self._held[member.run] = member, sets, normal
                self._waiting.append(member.run)
            else:
                self._freeze(sets, normal, member._replace(is_fresh=False))

    def _equations(
        self, sets: Sets, normal: list[Normal], members: list[_Frozen]
    ) -> tuple[tuple[Array, ...], np.ndarray, np.ndarray, np.ndarray]:
        """Gram matrices, moments, rates and models of runs on one partition."""
        runs = self._runs
        row = np.array([member.run for member in members])
        used = np.array([member.used for member in members])
        sizes = runs.divisors(np.array([key.count(1) for key in sets]))
        return (
            tuple(gram for gram, _ in normal),
            np.stack([moments[runs.problems[row]] for _, moments in normal], axis=1),
            runs.step_sizes[row][:, None] / sizes[None, :],
            runs.models[row[:, None], used],
        )
