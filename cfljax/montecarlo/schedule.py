"""Schedule: many runs of IFCA on one data set, each no further than it must.

IFCA on linear regression with fixed samples is a deterministic map of the models. Its
runs are followed exactly, with two ways to go on a round:

- on the samples: errors of the models that moved, choices, gradients
  (`group_gradients`);
- by Gram matrices, while a certificate (`lookahead.pair_radii`) says that no client
  changes its choice: a model's step is then `theta - rate ((2/n) X_S^T X_S theta -
  (2/n) X_S^T y)`, which costs d^2 instead of m n d. Losses of the models are evaluated
  anew only where the certificate ends.

Runs are in rounds of their own. Those that need the samples are gathered until the
products are full; those that share a partition step together. When only a few runs are
left that need the samples, and these are few, several rounds are one compiled program.
"""

import collections
from collections.abc import Callable, Iterable

import numpy as np
from jaxtyping import Array, Int

from cfljax.montecarlo.error_cache import ErrorCache
from cfljax.montecarlo.lookahead import (
    Frozen,
    FrozenRuns,
    Lookahead,
    Partition,
    choose,
    pair_radii,
)
from cfljax.montecarlo.partitions import PASS, Partitions
from cfljax.montecarlo.state import Runs

# A run, a model of its own, and the model's clients.
_Column = tuple[int, int, np.ndarray]

# Passes with room for more, after which next turns start: in vain they cost the room.
_PATIENCE = 64

# Models of all runs of a batch with few samples, for which it does not pay to find out
# in each round which are needed; and rounds that they then make at once.
_FEW = 192
_AT_ONCE = 8

# Columns of a model's round that count towards Gram matrices of its own clients: by two
# products; by group (`group_gradients`), as measured: such runs mostly oscillate
# between sets.
_MORE, _MORE_BY_GROUP = 2, 0.25

# Errors of models that stayed are kept for as many products.
_KEPT = 4

# A run at its end, its models and its clients' losses -> runs to follow no further.
Finished = Callable[[int, np.ndarray, np.ndarray], Iterable[int]]


class Schedule:
    """Follows runs to their last round.

    Args:
      runs: to follow; changed in place.
      partitions: of their samples.
      columns: models evaluated at a time.
      finished: told of every run that is at its end, with losses evaluated.
      turns: as of `run_ifca`.
      gives_up: the same.
    """

    def __init__(
        self,
        runs: Runs,
        partitions: Partitions,
        *,
        columns: int,
        finished: Finished | None,
        turns: Int[np.ndarray, " runs"],
        gives_up: bool,
    ) -> None:
        self._runs = runs
        self._partitions = partitions
        self._columns = columns
        most = min(_KEPT * columns, runs.stale.size)
        self._cache = ErrorCache(most, runs.samples.inputs.shape[0])
        self._finished = finished
        self._gives_up = gives_up
        self._waiting: collections.deque[int] = collections.deque()
        self._turns = _queues(runs.problems, turns)
        self._dropped = np.zeros(len(runs), bool)
        self._frozen = FrozenRuns(runs, self._dropped)
        self._lookahead = Lookahead(runs, self._frozen, partitions)
        # Of runs just evaluated, whose gradients are had by them.
        self._majorities: dict[int, np.ndarray] = {}
        self._done = np.zeros(len(runs), bool)
        self._is_hopeful = np.zeros(len(runs), bool)  # All of its models have clients.
        self._spare = 0.0  # Passes, or parts of them, that nobody had a use for.

    def run(self) -> np.ndarray:
        """Follows all runs; returns which of them came to their end, `[runs]`."""
        self._start()
        while self._waiting or self._frozen:
            live = [run for run in self._waiting if not self._dropped[run]]
            ready = np.sum(self._runs.stale[live])
            if ready >= self._columns or not self._frozen:
                self._on_samples()
            else:
                self._waiting.extend(self._frozen.step())
            if self._turns:
                self._start()
        return self._done

    def _start(self) -> None:
        """Starts the next turn of problems without hope, or of all after a while."""
        live = self._is_hopeful & ~self._done & ~self._dropped
        hopeful = set(self._runs.problems[live].tolist())
        if self._spare >= _PATIENCE:
            hopeful, self._spare = set(), 0.0
        for problem in sorted(self._turns.keys() - hopeful):
            queue, turn = self._turns[problem], np.zeros(0, int)
            while queue and not len(turn):
                turn = queue.popleft()
                turn = turn[~self._dropped[turn]]
            if not queue:
                del self._turns[problem]
            self._is_hopeful[turn] = True
            self._waiting.extend(turn.tolist())

    def _batch(self) -> Int[np.ndarray, " runs"]:
        batch, number = [], 0
        while self._waiting:
            run = self._waiting[0]
            more = int(np.sum(self._runs.stale[run]))
            if batch and number + more > self._columns:
                break
            self._waiting.popleft()
            if self._dropped[run]:
                self._frozen.thaw(run)
            else:
                batch.append(run)
                number += more
        return np.array(batch, int)

    def _on_samples(self) -> None:
        batch = self._batch()
        if not len(batch):
            return
        needed = np.sum(self._runs.stale[batch])
        number = self._evaluate(batch)
        runs = self._runs
        assignments = choose(runs.losses[batch])
        # Models that nobody can choose stay for ever.
        is_lost = ~np.any(np.isfinite(runs.losses[batch]), axis=2)
        is_over = np.any(is_lost, axis=1) if self._gives_up else np.all(is_lost, axis=1)
        runs.left[batch[is_over]] = 0
        ended = runs.left[batch] == 0
        for run in batch[ended].tolist():
            self._end(run)
        goes_on = ~ended & ~self._dropped[batch]
        batch, assignments = batch[goes_on], assignments[goes_on]
        is_few = runs.stale[batch].size <= min(_FEW, self._columns)
        is_few &= not self._partitions.pays_by_group
        share = max(1.0, PASS / number)
        stepping = self._go_on(batch, assignments, share, is_few)
        passes = 1
        if is_few and stepping:
            few = list(dict.fromkeys(run for run, _, _ in stepping))
            runs.rounds(np.array(few), _AT_ONCE)
            self._waiting.extend(few)
            passes = _AT_ONCE
        else:
            self._step(stepping)
        is_live = ~self._done & ~self._dropped
        self._cache.keep(is_live[:, None] & ~runs.stale & ~self._frozen.moving)
        self._spare += passes * max(0.0, 1 - float(needed) / PASS)

    def _evaluate(self, batch: Int[np.ndarray, " runs"]) -> int:
        """Losses of the models that moved, and of those to come if there is room;
        returns how many columns that product had."""
        runs = self._runs
        where, models = np.nonzero(runs.stale[batch])
        rows, number = batch[where], len(where)
        paths = self._lookahead.guess(batch, max(0, self._columns - number))
        of_path = [np.full(len(path.columns), path.run) for path in paths]
        errors, losses = runs.evaluate(
            np.concatenate([rows, *of_path]),
            np.concatenate([runs.models[rows, models], *(p.columns for p in paths)]),
        )
        runs.losses[rows, models] = losses[:number]
        runs.stale[rows, models] = False
        pairs = zip(rows.tolist(), models.tolist(), strict=True)
        places = {pair: i for i, pair in enumerate(pairs)}
        start = number
        for path, part in zip(paths, of_path, strict=True):
            stand = self._lookahead.walk(path, losses[start : start + len(part)])
            for model in np.flatnonzero(stand >= 0).tolist():
                places[path.run, model] = start + int(stand[model])
            start += len(part)
        self._cache.add(errors, places)
        return len(errors)

    def _go_on(
        self,
        batch: Int[np.ndarray, " runs"],
        assignments: Int[np.ndarray, "runs clients"],
        share: float,
        is_few: bool,
    ) -> list[_Column]:
        """Freezes runs whose partition is known, if `is_few` none just guessed wrong;
        returns the other columns, of which one costs `share` of this product's."""
        whole = np.all(assignments >= 0, axis=1)
        losses = self._runs.losses[batch]
        lipschitz = self._runs.samples.lipschitz
        radii = pair_radii(losses, np.maximum(assignments, 0), lipschitz)
        stepping = []
        own = self._runs.problems[batch]
        groups, is_near = self._partitions.majorities(assignments, losses, own)
        self._majorities = {}
        for i, run in enumerate(batch.tolist()):
            used, sets = self._partitions.sets(assignments[i])
            self._is_hopeful[run] = len(used) == losses.shape[1]
            is_known = self._partitions.is_known(sets)
            by_group = is_near[i] and all((run, j) in self._cache for j in used)
            if not is_known:
                each = _MORE_BY_GROUP if by_group else _MORE
                is_known = self._partitions.spend(sets, each * len(used) * share)
            is_surprising = is_few and self._lookahead.forget(run)
            if is_known and not is_surprising and self._frozen.has_room(sets):
                normal = [self._partitions.normal(key) for key in sets]
                # Who chose none comes back without a certificate to tell it.
                own = np.where(whole[i], radii[i][np.ix_(used, used)], 0)
                self._frozen.add(Partition(sets, normal), Frozen(run, used, own))
            else:
                self._frozen.thaw(run)
                if by_group:
                    self._majorities[run] = groups[i]
                    self._frozen.hold(run)
                stepping += [(run, model, assignments[i] == model) for model in used]
        return stepping

    def _end(self, run: int) -> None:
        self._done[run] = True
        self._frozen.thaw(run)
        if self._finished is not None:
            models, losses = self._runs.models[run], self._runs.losses[run]
            for other in self._finished(run, models, losses):
                self._dropped[other] = True

    def _step(self, stepping: list[_Column]) -> None:
        """One round on the samples: of models with errors at hand first."""
        just = [column for column in stepping if column[:2] in self._cache]
        other = [column for column in stepping if column[:2] not in self._cache]
        for by_group in (True, False):
            part = [
                column for column in just if (column[0] in self._majorities) == by_group
            ]
            places = [self._cache.place(column[:2]) for column in part]
            self._descend(part, self._cache.errors, places, by_group)
        for start in range(0, len(other), self._columns):
            part = other[start : start + self._columns]
            rows, models = (np.array([column[i] for column in part]) for i in (0, 1))
            again, _ = self._runs.evaluate(rows, self._runs.models[rows, models])
            self._descend(part, (again,), list(range(len(part))), False)
        own = list(dict.fromkeys(run for run, _, _ in stepping))
        self._runs.left[own] -= 1
        self._waiting.extend(own)

    def _descend(
        self,
        columns: list[_Column],
        errors: tuple[Array, ...],
        places: list[int],
        by_group: bool,
    ) -> None:
        if columns:
            rows, models, members = zip(*columns, strict=True)
            self._runs.descend(
                np.array(rows),
                np.array(models),
                np.stack(members),
                errors,
                np.array(places),
                self._majorities if by_group else None,
            )


def _queues(
    problems: Int[np.ndarray, " runs"], turns: Int[np.ndarray, " runs"]
) -> dict[int, collections.deque[np.ndarray]]:
    """Runs of each problem, turn by turn."""
    queues: dict[int, collections.deque[np.ndarray]] = {}
    for problem in np.unique(problems).tolist():
        own = np.flatnonzero(problems == problem)
        parts = [own[turns[own] == turn] for turn in np.unique(turns[own])]
        queues[problem] = collections.deque(parts)
    return queues
