"""Foresight: rounds that probably come next, to be proved by one product for all.

A product with few columns costs little more than one with none. Where a batch leaves
room, the models of coming rounds are guessed by Gram matrices; their losses then tell
how far the guess was right, client by client. Only what is proved is kept: a wrong
guess costs its columns and changes nothing.

The guess is that every group of clients chooses the model of lowest mean loss. Where
clients of one group differ, it is that all stay with their models. The first is for
runs that collapsed to one model and diverge: all clients prefer another model in every
round, which no certificate foresees. The second is for runs with a client that prefers
its model by very little, which a certificate must not overlook.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cfljax.shortcuts.certificate import choose
from cfljax.shortcuts.frozen import FrozenRuns
from cfljax.shortcuts.rounds import MOST_AHEAD
from cfljax.shortcuts.samples import EXACT, padded
from cfljax.shortcuts.state import Runs

__all__ = ["Foresight", "Path", "group_path"]

_MOST_RUNS = 64  # Whose groups' choices are guessed together.
_MOST_PAUSE = 4  # Evaluations without a guess, after as many wrong ones.
_MOST_ALONE = 8  # Whose clients' choices are guessed, each run's alone.


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
    """

    def __init__(self, runs: Runs, frozen: FrozenRuns) -> None:
        self._runs = runs
        self._frozen = frozen
        samples = runs.samples
        self._sizes = np.bincount(samples.clusters).astype(np.float32)
        self._reach = np.ones(len(runs), int)  # Rounds that a path should have.
        self._pause = np.zeros(len(runs), int)  # Times that a run is to be left out.
        self._wrong = np.zeros(len(runs), int)  # Guesses in a row of no right round.

    def guess(self, batch: Int[np.ndarray, " runs"], room: int) -> list[Path]:
        """Paths of runs, twice as long as the last one if all of that came true.

        Args:
          batch: runs whose models are to be evaluated; those that were frozen until
            now are guessed for.
          room: columns that are free.
        """
        together, alone = [], []
        for run in batch.tolist():
            if self._pause[run]:
                self._pause[run] -= 1
            elif partition := self._frozen.held(run):
                (together if partition.is_union else alone).append(run)
        together, alone = together[: min(_MOST_RUNS, room)], alone[:_MOST_ALONE]
        number = len(together) + len(alone)
        paths = self._by_groups(together, room // number) if together else []
        for run in alone:
            paths += self._by_clients(run, room // number)
        return _within(paths, room)

    def _rounds(self, runs: Int[np.ndarray, " runs"], most: int) -> np.ndarray:
        return np.minimum(np.minimum(self._reach[runs], self._runs.left[runs]), most)

    def _by_clients(self, run: int, most: int) -> list[Path]:
        number = int(self._rounds(np.array([run]), most)[0])
        if not number:
            return []
        used, moving = self._frozen.path(run, number)
        models = np.repeat(self._runs.models[None, run], number, axis=0)
        models[:, used] = moving
        choices = np.repeat(choose(self._runs.losses[[run]]), number, axis=0)
        moved = np.zeros(models.shape[:2], bool)
        moved[:, used] = True
        return [Path(run, choices, models, moved)]

    def _by_groups(self, chosen: list[int], most: int) -> list[Path]:
        runs, samples = self._runs, self._runs.samples
        reach = self._rounds(np.array(chosen), most)
        if not np.any(reach):
            return []
        row = padded(np.array(chosen), 1 << (len(chosen) - 1).bit_length())
        problems = runs.problems[row]
        path = group_path(
            samples.grams,
            samples.moments[problems],
            samples.squares[problems],
            self._sizes,
            runs.step_sizes[row],
            np.array(runs.per_cluster),
            runs.models[row],
            np.int32(np.max(reach)),
        )
        models, choices = np.asarray(path[0]), np.asarray(path[1])
        paths = []
        for place, (run, number) in enumerate(zip(chosen, reach, strict=True)):
            own = choices[:number, place]
            moved = np.any(own[:, :, None] == np.arange(models.shape[2]), axis=1)
            own = own[:, samples.clusters]
            paths.append(Path(run, own, models[:number, place], moved))
        return paths

    def walk(
        self, path: Path, losses: Float[np.ndarray, "columns clients"]
    ) -> Int[np.ndarray, " models"]:
        """Goes along a path while every client chooses as its group was guessed to.

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
        longer = min(2 * number, MOST_AHEAD)
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


@jax.jit
def group_path(
    grams: Float[Array, "groups features features"],
    moments: Float[Array, "runs groups features"],
    squares: Float[Array, "runs groups"],
    sizes: Float[Array, " groups"],
    step_sizes: Float[Array, " runs"],
    per_cluster: Bool[Array, ""],
    models: Float[Array, "runs models features"],
    number: Int[Array, ""],
) -> tuple[
    Float[Array, "rounds runs models features"], Int[Array, "rounds runs groups"]
]:
    """Rounds in which every group chooses the model of lowest mean loss.

    Args:
      grams: `(2 / n) X_g^T X_g`.
      moments: `(2 / n) X_g^T y`.
      squares: `|y|^2 / n`.
      sizes: clients of each group.
      step_sizes: gamma.
      per_cluster: divisor of the summed gradients: a model's clients, or all.
      models: now.
      number: of rounds; the rest of the path is zero.

    Returns:
      The models after each round, and the choices before it.
    """
    num_groups, num_models = len(sizes), models.shape[1]

    def one_round(index: Array, carry: tuple) -> tuple:
        models, path, choices = carry
        images = [jnp.matmul(models, grams[g], **EXACT) for g in range(num_groups)]
        image = jnp.stack(images, axis=1)  # runs x groups x models x features
        halves = image / 2 - moments[:, :, None]
        losses = jnp.sum(halves * models[:, None], axis=3) + squares[:, :, None]
        choice = jnp.argmin(jnp.where(jnp.isfinite(losses), losses, jnp.inf), axis=2)
        chosen = choice[:, :, None] == jnp.arange(num_models)[None, None]
        summed = jnp.sum(
            jnp.where(chosen[..., None], image - moments[:, :, None], 0), axis=1
        )
        members = jnp.sum(jnp.where(chosen, sizes[None, :, None], 0), axis=1)
        divisor = jnp.where(per_cluster, jnp.maximum(members, 1), jnp.sum(sizes))
        rates = step_sizes[:, None] / divisor
        models = models - rates[:, :, None] * summed
        choice = choice.astype(choices.dtype)
        return models, path.at[index].set(models), choices.at[index].set(choice)

    path = jnp.zeros((MOST_AHEAD, *models.shape), models.dtype)
    choices = jnp.zeros((MOST_AHEAD, models.shape[0], num_groups), jnp.int32)
    return jax.lax.fori_loop(0, number, one_round, (models, path, choices))[1:]
