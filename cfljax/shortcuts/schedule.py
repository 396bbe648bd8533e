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

import numpy as np
from jaxtyping import Array, Int

from cfljax.shortcuts.certificate import choose, pair_radii
from cfljax.shortcuts.frozen import Frozen, FrozenRuns, Partition
from cfljax.shortcuts.partitions import PASS, Partitions
from cfljax.shortcuts.state import Runs

__all__ = ["Finished", "Schedule"]

# A run, a model of its own, and the model's clients.
_Column = tuple[int, int, np.ndarray]

_ROOM = 192  # Columns that cost little more than a few.

# A run at its end, its models and its clients' losses -> runs to follow no further.
Finished = Callable[[int, np.ndarray, np.ndarray], Iterable[int]]


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
        self._dropped = np.zeros(len(runs), bool)
        self._frozen = FrozenRuns(runs, self._dropped)
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
                self._waiting.extend(self._frozen.step())
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
        errors, places = self._evaluate(batch)
        runs = self._runs
        assignments = choose(runs.losses[batch])
        # Models that nobody can choose stay for ever.
        runs.left[batch[np.all(assignments < 0, axis=1)]] = 0
        ended = runs.left[batch] == 0
        for run in batch[ended].tolist():
            self._end(run)
        batch, assignments = batch[~ended], assignments[~ended]
        stepping = self._go_on(batch, assignments, max(1.0, PASS / len(errors)))
        self._step(stepping, errors, places)

    def _evaluate(
        self, batch: Int[np.ndarray, " runs"]
    ) -> tuple[Array, dict[tuple[int, int], int]]:
        """Losses of the models that moved, and of those to come if there is room.

        Returns:
          Errors of the columns, and where among them those of a run's models are.
        """
        runs = self._runs
        where, models = np.nonzero(runs.stale[batch])
        rows, number = batch[where], len(where)
        paths = self._frozen.look_ahead(batch.tolist(), _ROOM - number)
        ahead = [path.reshape(-1, path.shape[2]) for path in paths.values()]
        of_path = [
            np.full(len(part), run) for run, part in zip(paths, ahead, strict=True)
        ]
        errors, losses = runs.evaluate(
            np.concatenate([rows, *of_path]),
            np.concatenate([runs.models[rows, models], *ahead]),
        )
        runs.losses[rows, models] = losses[:number]
        runs.stale[rows, models] = False
        pairs = zip(rows.tolist(), models.tolist(), strict=True)
        places = {pair: i for i, pair in enumerate(pairs)}
        start = number
        for (run, path), part in zip(paths.items(), ahead, strict=True):
            own = losses[start : start + len(part)]
            went = self._frozen.walk(run, path, own)
            used = self._frozen.used(run)
            for i, model in enumerate(used if went else ()):
                places[run, model] = start + (went - 1) * len(used) + i
            start += len(part)
        return errors, places

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
                normal = [self._partitions.normal(key) for key in sets]
                own = radii[i][np.ix_(used, used)]
                member = Frozen(run, assignments[i], used, own)
                self._frozen.add(Partition(sets, normal), member)
            else:
                self._frozen.thaw(run)
                stepping += [(run, model, assignments[i] == model) for model in used]
        return stepping

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
