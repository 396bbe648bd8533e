"""Foresight: rounds that probably come next, to be proved by one product for all.

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

from cfljax.kernels.evaluate import choose_cluster
from cfljax.shortcuts.certificate import choose
from cfljax.shortcuts.frozen import FrozenRuns
from cfljax.shortcuts.partitions import Partitions, Sets
from cfljax.shortcuts.rounds import step_rates
from cfljax.shortcuts.samples import EXACT, padded, power_of_two
from cfljax.shortcuts.state import Runs

__all__ = ["Foresight", "Path", "set_path"]

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


class Foresight:
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
        """Paths of runs by the sets of a partition, or by the samples' groups if none.

        A path is no longer than a run's reach, and not longer than `most` rounds.
        """
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
            parts = [moments[problems] for _, moments in normal]
            moments = np.stack(parts, axis=1)
        members = (clusters == np.arange(len(grams))[:, None]).astype(np.float32)
        path = set_path(
            grams,
            moments,
            _sums(samples.squares[problems], members),
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


def _sums(
    values: Float[np.ndarray, "runs clients"],
    members: Float[np.ndarray, "sets clients"],
) -> Float[np.ndarray, "runs sets"]:
    """Of each set; values of others may be infinite."""
    own = np.where(members[None] > 0, values[:, None], 0)
    return np.sum(own, axis=2)


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
