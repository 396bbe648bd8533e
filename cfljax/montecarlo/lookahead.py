"""Lookahead: rounds that probably come next, to be proved by one product for all.

A product with few columns costs little more than one with none. Where a batch leaves
room, the models of coming rounds are guessed by Gram matrices; their losses then tell
how far the guess was right, client by client. Only what is proved is kept: a wrong
guess costs its columns and changes nothing.

The guess is that every set of a run's partition chooses the model of lowest mean loss,
where clients stayed together until now, or every group where few left theirs. It is for
runs that collapsed to one model and diverge: most clients prefer another model in every
round, which no certificate foresees; and for clients that prefer their model by so
little that a certificate must not overlook it.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cfljax.federated.evaluate import choose_cluster
from cfljax.montecarlo.partitions import Normal, Partitions, Sets
from cfljax.montecarlo.rounds import frozen_rounds, step_rates
from cfljax.montecarlo.samples import EXACT, padded, power_of_two
from cfljax.montecarlo.state import Runs

_MOST_AHEAD = 32  # Rounds of a path.
_AHEAD = (4, _MOST_AHEAD)  # Sizes of compiled ones: most are short, and room costs.
_MOST_RUNS = 64  # Whose choices are guessed together.
_MOST_PAUSE = 4  # Evaluations without a guess, after as many wrong ones.
_MOST_SETS = 8  # Partitions whose runs are guessed for.


class Path(NamedTuple):
    """Guessed rounds of a run.

    run: index.
    choices: of the clients, before each round.
    models: after each round.
    moved: which models a round moves.
    """

    run: int
    choices: Int[np.ndarray, "rounds clients"]
    models: Float[np.ndarray, "rounds models features"]
    moved: Bool[np.ndarray, "rounds models"]

    @property
    def columns(self) -> Float[np.ndarray, "columns features"]:
        """Models whose losses prove or refute the path."""
        return self.models[self.moved]


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
            for start in range(0, len(live), _MOST_FROZEN_RUNS):
                held += self._step(partition, live[start : start + _MOST_FROZEN_RUNS])
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


class Lookahead:
    """Guesses rounds and goes along what is proved of them.

    Args:
      runs: changed in place.
      frozen: those whose clients stayed until now.
      partitions: of their samples.
    """

    def __init__(self, runs: Runs, frozen: FrozenRuns, partitions: Partitions) -> None:
        self._runs = runs
        self._frozen = frozen
        self._partitions = partitions
        self._reach = np.ones(len(runs), int)  # Rounds that a path should have.
        self._pause = np.zeros(len(runs), int)  # Times that a run is to be left out.
        self._wrong = np.zeros(len(runs), int)  # Guesses in a row of no right round.

    def guess(self, batch: Int[np.ndarray, " runs"], room: int) -> list[Path]:
        """Paths of runs, twice as long as the last one if all of that came true.

        Args:
          batch: runs whose models are to be evaluated; those that `frozen` holds are
            guessed for.
          room: columns that are free.
        """
        by_sets: dict[Sets, list[int]] = {}
        number = 0
        for run in batch.tolist():
            sets = self._frozen.held(run)
            if self._pause[run]:
                self._pause[run] -= 1
            elif sets is not None and self._partitions.is_known(sets):
                whose = () if self._partitions.is_of_all_groups(sets) else sets
                by_sets.setdefault(whose, []).append(run)
                number += 1
        paths = []
        for sets, runs in list(by_sets.items())[:_MOST_SETS]:
            paths += self._paths(sets, runs[:_MOST_RUNS], room // number)
        return _within(paths, room)

    def _paths(self, sets: Sets, chosen: list[int], most: int) -> list[Path]:
        """Paths of at most `most` rounds and a run's reach, by the sets of a partition,
        or by the samples' groups if none."""
        runs, samples = self._runs, self._runs.samples
        reach = np.minimum(self._reach[chosen], runs.left[chosen])
        reach = np.minimum(reach, most)
        if not np.any(reach):
            return []
        row = padded(np.array(chosen), power_of_two(len(chosen)))
        problems = runs.problems[row]
        if not sets:
            clusters = samples.clusters
            grams, moments = tuple(samples.grams), samples.moments[problems]
        else:
            masks = [np.frombuffer(key, bool) for key in sets]
            normal = [self._partitions.normal(key) for key in sets]
            clusters = np.where(np.any(masks, axis=0), np.argmax(masks, axis=0), -1)
            grams = tuple(gram for gram, _ in normal)
            moments = np.stack([moments[problems] for _, moments in normal], axis=1)
        members = (clusters == np.arange(len(grams))[:, None]).astype(np.float32)
        squares = samples.squares[problems][:, None]  # Those of others may be infinite.
        path = set_path(
            grams,
            moments,
            np.sum(np.where(members[None] > 0, squares, 0), axis=2),
            np.sum(members, axis=1),
            runs.step_sizes[row],
            runs.divisor,
            runs.models[row],
            np.int32(np.max(reach)),
            room=next(size for size in _AHEAD if size >= np.max(reach)),
        )
        models, choices = np.asarray(path[0]), np.asarray(path[1])
        choices = np.pad(choices, ((0, 0), (0, 0), (0, 1)), constant_values=-1)
        paths = []
        for place, (run, number) in enumerate(zip(chosen, reach, strict=True)):
            own = choices[:number, place]  # The last one is that of no set.
            moved = np.any(own[:, :, None] == np.arange(models.shape[2]), axis=1)
            paths.append(Path(run, own[:, clusters], models[:number, place], moved))
        return paths

    def forget(self, run: int) -> bool:
        """Whether the last guess for a run had no right round; forgets that."""
        was_wrong = bool(self._wrong[run])
        self._wrong[run] = self._pause[run] = 0
        return was_wrong

    def walk(
        self, path: Path, losses: Float[np.ndarray, "columns clients"]
    ) -> Int[np.ndarray, " models"]:
        """Goes along a path while every client chooses as its set was guessed to.

        Args:
          path: of a run whose own losses are evaluated.
          losses: under the path's columns.

        Returns:
          The column that each model now stands at, -1 where it did not move.
        """
        runs, run, number = self._runs, path.run, len(path.choices)
        columns = np.cumsum(path.moved).reshape(path.moved.shape) - 1
        places = np.where(path.moved, columns, -1)
        nowhere = np.full((1, places.shape[1]), -1)
        # A model stays at its last column until it moves again.
        places = np.maximum.accumulate(np.concatenate([nowhere, places]))
        known = np.concatenate([losses, runs.losses[run]])
        still = len(losses) + np.arange(places.shape[1])
        seen = known[np.where(places < 0, still, places)]
        right = np.all(choose(seen[:-1]) == path.choices, axis=1)
        went = number if np.all(right) else int(np.argmin(right))
        if went:
            runs.models[run] = path.models[went - 1]
            runs.losses[run] = seen[went]
            runs.left[run] -= went
        self._wrong[run] = 0 if went else min(self._wrong[run] + 1, _MOST_PAUSE)
        self._pause[run] = self._wrong[run]
        longer = min(2 * number, _MOST_AHEAD)
        self._reach[run] = longer if went == number else max(1, went)
        return places[went]


def _within(paths: list[Path], room: int) -> list[Path]:
    kept = []
    for path in paths:
        needed = np.cumsum(np.sum(path.moved, axis=1))
        number = int(np.searchsorted(needed, room, side="right"))
        if number:
            cut = [part[:number] for part in path[1:]]
            kept.append(Path(path.run, *cut))
            room -= int(needed[number - 1])
    return kept


@functools.partial(jax.jit, static_argnames="room")
def set_path(
    grams: tuple[Float[Array, "features features"], ...],
    moments: Float[Array, "runs sets features"],
    squares: Float[Array, "runs sets"],
    sizes: Float[Array, " sets"],
    step_sizes: Float[Array, " runs"],
    divisor: Float[Array, ""],
    models: Float[Array, "runs models features"],
    number: Int[Array, ""],
    *,
    room: int,
) -> tuple[Float[Array, "rounds runs models features"], Int[Array, "rounds runs sets"]]:
    """Rounds in which every set of clients chooses the model of lowest mean loss.

    Args:
      grams: `(2 / n) X_S^T X_S` of each set S.
      moments: `(2 / n) X_S^T y`.
      squares: `|y_S|^2 / n`.
      sizes: clients of each set.
      step_sizes: gamma.
      divisor: as of `step_rates`.
      models: now.
      number: of rounds.
      room: rounds of the path, of which those after the last one are zero.

    Returns:
      The models after each round, and the choices before it.
    """
    num_models = models.shape[1]

    def one_round(index: Array, carry: tuple) -> tuple:
        models, path, choices = carry
        images = [jnp.matmul(models, gram, **EXACT) for gram in grams]
        image = jnp.stack(images, axis=1)  # runs x sets x models x features
        halves = image / 2 - moments[:, :, None]
        losses = jnp.sum(halves * models[:, None], axis=3) + squares[:, :, None]
        choice = jax.vmap(choose_cluster)(losses)
        chosen = choice[:, :, None] == jnp.arange(num_models)[None, None]
        summed = jnp.sum(
            jnp.where(chosen[..., None], image - moments[:, :, None], 0), axis=1
        )
        members = jnp.sum(jnp.where(chosen, sizes[None, :, None], 0), axis=1)
        rates = step_rates(step_sizes, members, divisor)
        models = models - rates[:, :, None] * summed
        choice = choice.astype(choices.dtype)
        return models, path.at[index].set(models), choices.at[index].set(choice)

    path = jnp.zeros((room, *models.shape), models.dtype)
    choices = jnp.zeros((room, models.shape[0], len(grams)), jnp.int32)
    return jax.lax.fori_loop(0, number, one_round, (models, path, choices))[1:]


# Share of two root losses that rounding may have added or taken in each.
_ROUNDING = 1e-5
# What stands for a root loss whose square overflows in float32, summed over no more
# than 3e8 samples: less than it is.
_HUGE = np.float32(1e15)


def choose(
    losses: Float[np.ndarray, "runs models clients"],
) -> Int[np.ndarray, "runs clients"]:
    """The model of lowest loss, -1 where none is finite: `choose_cluster`."""
    finite = np.isfinite(losses)
    best = np.argmin(np.where(finite, losses, np.inf), axis=1)
    return np.where(np.any(finite, axis=1), best, -1)


def pair_radii(
    losses: Float[np.ndarray, "runs models clients"],
    assignments: Int[np.ndarray, "runs clients"],
    lipschitz: Float[np.ndarray, " clients"],
) -> Float[np.ndarray, "runs models models"]:
    """Distances that keep an assignment.

    `sqrt(F_i(theta)) = |X_i theta - y_i| / sqrt(n)` is Lipschitz in theta with
    constant `L_i = |X_i|_op / sqrt(n)`. While models a and b are together less than

        min over i with choice a of (sqrt F_i(theta_b) - sqrt F_i(theta_a)) / L_i

    from where these losses were evaluated, no client of a prefers b. A client whose
    every loss overflows has no model any more: that is a model b which nobody chose
    and whose root losses are `_HUGE`. Root losses are taken to be wrong by 1e-5 of
    themselves.

    Args:
      losses: F_i of every model.
      assignments: the clients' choices, of finite losses.
      lipschitz: L_i.

    Returns:
      For used models a and b the smaller of the two clients' sides; on the diagonal
      for model a alone, against the models that nobody chose, which do not move.
      Infinite of unused models, and where no client's losses can change.
    """
    models = np.arange(losses.shape[1])
    known = np.where(np.isfinite(losses), losses, _HUGE**2)
    none = ((0, 0), (0, 1), (0, 0))  # The model of those without one, the last.
    roots = np.sqrt(np.pad(known, none, constant_values=_HUGE**2))
    own = np.take_along_axis(roots, assignments[:, None, :], axis=1)
    spare = (roots - own) - _ROUNDING * (roots + own)
    still = lipschitz == 0  # Such a client's losses never change.
    with np.errstate(over="ignore"):  # So far that it is as good as infinitely far.
        away = np.maximum(spare, 0) / np.where(still, 1, lipschitz)
    away = np.where(still, np.inf, away)
    chosen = assignments[:, None, :] == models[:, None]  # the same
    least = np.full((*losses.shape[:2], len(models) + 1), np.inf, np.float32)
    for model in models:
        mine = np.where(chosen[:, model, None, :], away, np.inf)
        least[:, model] = np.min(mine, axis=2)
    used = np.any(chosen, axis=2)
    unused = np.where(np.pad(used, none[:2])[:, None, :], np.inf, least)
    pairs = np.where(used[:, :, None] & used[:, None, :], least[:, :, :-1], np.inf)
    pairs = np.minimum(pairs, np.swapaxes(pairs, 1, 2))
    pairs[:, models, models] = np.min(unused, axis=2)
    return pairs


_CHUNK = 32  # Rounds by Gram matrices between two compactions.
_MOST_FROZEN_RUNS = 256  # That step together.
_MOST_BYTES = 2**32  # Of Gram matrices that runs step by at the same time.
