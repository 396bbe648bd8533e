"""State of many runs of IFCA on one data set, each in a round of its own."""

import dataclasses
import functools
from collections.abc import Iterable, Mapping

import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cfljax.montecarlo.group_gradients import gradients
from cfljax.montecarlo.rounds import (
    backward,
    backward_by_client,
    forward,
    pays_by_client,
    sample_rounds,
)
from cfljax.montecarlo.samples import Samples, in_parts, padded, power_of_two

# Columns of a compiled product, of which some are faster than lesser ones.
_FORWARD = (4, 8, 16, 24, 32, 48, 64, 80, 96, 128, 160, 192)
_BACKWARD = (4, 8, 16, 32, 64, 128, 192)
_BY_CLIENT = (8, 16, 32, 48, 64, 96, 128, 192)
_RUNS = (1, 2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192)


@dataclasses.dataclass
class Work:
    """What runs cost. A column is one model in one product with all samples.

    full: columns of the same runs without shortcuts.
    forward: of errors and losses.
    backward: of gradients; one for all models of a run where they go by client or by
      group.
    frozen: rounds of models whose clients stay, by Gram matrices.
    """

    full: int = 0
    forward: int = 0
    backward: int = 0
    frozen: int = 0


def _size(number: int, sizes: Iterable[int]) -> int:
    """The least that is compiled; beyond them the next power of two."""
    larger = power_of_two(number)
    return next((size for size in sizes if size >= number), larger)


def _choices(
    size: int,
    slots: Int[np.ndarray, " columns"],
    values: Int[np.ndarray, " columns"],
    members: Bool[np.ndarray, "columns clients"],
) -> Int[np.ndarray, "size clients"]:
    """The value of each client's column in every run, -1 if it has none."""
    found = np.full((size, members.shape[1]), -1, np.int32)
    which, clients = np.nonzero(members)
    found[slots[which], clients] = values[which]
    return found


class Runs:
    """Models, losses and rounds left of every run, in the host's memory.

    Args:
      samples: that all runs share.
      starts: first models, `[runs, models, features]`.
      problems: row of `samples.targets` for each run.
      step_sizes: gamma of each run.
      num_rounds: T.
      per_cluster: whether summed gradients are divided by a cluster's own members
        instead of all clients.
    """

    def __init__(
        self,
        samples: Samples,
        starts: Float[np.ndarray, "runs models features"],
        problems: Int[np.ndarray, " runs"],
        step_sizes: Float[np.ndarray, " runs"],
        *,
        num_rounds: int,
        per_cluster: bool,
    ) -> None:
        number, num_models = starts.shape[:2]
        self.samples = samples
        self.problems = problems
        self.step_sizes = np.asarray(step_sizes, np.float32)
        # Of the summed gradients; 0 for the number of a model's clients. Clients that
        # choose no model count among all.
        self.divisor = np.float32(0 if per_cluster else samples.num_clients)
        self.models = np.array(starts, np.float32)
        self.anchors = np.empty_like(self.models)  # Where losses were evaluated.
        self.losses = np.full((number, num_models, samples.num_clients), np.nan, "f4")
        self.stale = np.ones((number, num_models), bool)  # Losses to be evaluated.
        self.left = np.full(number, num_rounds, np.int32)
        self.work = Work(full=2 * num_rounds * number * num_models)

    def __len__(self) -> int:
        return len(self.left)

    def evaluate(
        self,
        rows: Int[np.ndarray, " columns"],
        models: Float[np.ndarray, "columns features"],
    ) -> tuple[Array, Float[np.ndarray, "columns clients"]]:
        """Errors of some models, padded and on the device, and the clients' losses.

        Args:
          rows: runs whose problem a model meets.
          models: one for each.
        """
        index = padded(np.arange(len(rows)), _size(len(rows), _FORWARD))
        errors, losses = forward(
            self.samples.design,
            models[index],
            self.problems[rows[index]],
            self.samples.num_clients,
        )
        self.work.forward += len(rows)
        return errors, np.asarray(losses)[: len(rows)]

    def descend(
        self,
        rows: Int[np.ndarray, " columns"],
        models: Int[np.ndarray, " columns"],
        members: Bool[np.ndarray, "columns clients"],
        errors: tuple[Array, ...],
        places: Int[np.ndarray, " columns"],
        majorities: Mapping[int, Int[np.ndarray, " groups"]] | None = None,
    ) -> None:
        """A gradient step of some models on their members (Algorithm 2, line 14).

        Args:
          rows: runs.
          models: of theirs.
          members: clients of each.
          errors: of `evaluate`, one or several times.
          places: rows of `errors`, numbered through all of them.
          majorities: of each run, by `Partitions.majorities`, to go by Gram matrices of
            groups; then all models with members must be there.
        """
        own, slots = np.unique(rows, return_inverse=True)
        if majorities is not None:
            by_run = np.stack([majorities[run] for run in own.tolist()])
            steps = self._gradients_by_group(
                own, slots, models, members, errors, places, by_run
            )
        elif pays_by_client(len(own), len(rows), self.samples.device.platform):
            steps = self._gradients_by_client(slots, models, members, errors, places)
        else:
            steps = np.empty((len(rows), self.models.shape[2]), np.float32)
            first = 0
            for part in errors:
                here = np.flatnonzero((first <= places) & (places < first + len(part)))
                if len(here):
                    steps[here] = self._gradients(
                        members[here], part, places[here] - first
                    )
                first += len(part)
        rates = self.step_sizes[rows] / self.divisors(np.sum(members, axis=1))
        self.models[rows, models] -= rates[:, None] * steps
        self.stale[rows, models] = True

    def _gradients(
        self,
        members: Bool[np.ndarray, "columns clients"],
        errors: Array,
        places: Int[np.ndarray, " columns"],
    ) -> Float[np.ndarray, "columns features"]:
        """One product for each column; as of `descend`."""
        number, num_features = len(places), self.models.shape[2]
        size = _size(number, _BACKWARD)
        weights = np.zeros((size, members.shape[1]), np.float32)
        weights[:number] = members
        which = padded(places, size)
        found = backward(self.samples.design, errors, which, weights)
        self.work.backward += number
        return np.asarray(found)[:num_features, :number].T

    def _gradients_by_client(
        self,
        slots: Int[np.ndarray, " columns"],
        models: Int[np.ndarray, " columns"],
        members: Bool[np.ndarray, "columns clients"],
        errors: tuple[Array, ...],
        places: Int[np.ndarray, " columns"],
    ) -> Float[np.ndarray, "columns features"]:
        """One product for each run; as of `descend`, runs being numbered from 0."""
        number = int(np.max(slots)) + 1
        size = _size(number, _BY_CLIENT)
        choices = _choices(size, slots, models, members)
        columns = _choices(size, slots, places, members)
        product = functools.partial(
            backward_by_client,
            self.samples.inputs,
            errors,
            columns,
            choices,
            self.models.shape[1],
        )

        summed = in_parts(product, members.shape[1], self.samples.device)
        self.work.backward += number
        return summed[slots, models]

    def _gradients_by_group(
        self,
        rows: Int[np.ndarray, " runs"],
        slots: Int[np.ndarray, " columns"],
        models: Int[np.ndarray, " columns"],
        members: Bool[np.ndarray, "columns clients"],
        errors: tuple[Array, ...],
        places: Int[np.ndarray, " columns"],
        majorities: Int[np.ndarray, "runs groups"],
    ) -> Float[np.ndarray, "columns features"]:
        """By the Gram matrices of groups; as of `descend`, `rows` being its runs."""
        columns = np.full((len(rows), self.models.shape[1]), -1, np.int32)
        columns[slots, models] = places
        found = gradients(
            self.samples,
            self.problems[rows],
            self.models[rows],
            _choices(len(rows), slots, models, members),
            majorities,
            errors,
            columns,
        )
        self.work.backward += len(rows)
        return found[slots, models]

    def rounds(self, rows: Int[np.ndarray, " some"], number: int) -> None:
        """Some rounds of whole runs on the samples, or as many as they have left.

        Args:
          rows: runs.
          number: of rounds.
        """
        index = padded(rows, _size(len(rows), _RUNS))
        num_models = self.models.shape[1]
        platform = self.samples.device.platform
        by_client = pays_by_client(len(index), len(index) * num_models, platform)
        models = sample_rounds(
            self.samples.design,
            self.samples.inputs,
            self.models[index],
            self.problems[index],
            self.step_sizes[index],
            self.left[index],
            self.divisor,
            self.samples.num_clients,
            np.int32(number),
            by_client=by_client,
        )
        self.models[rows] = np.asarray(models)[: len(rows)]
        self.stale[rows] = True
        made = np.minimum(self.left[rows], number)
        self.left[rows] -= made
        self.work.forward += int(np.sum(made)) * num_models
        self.work.backward += int(np.sum(made)) * (1 if by_client else num_models)

    def divisors(self, sizes: Int[np.ndarray, "..."]) -> Float[np.ndarray, "..."]:
        """Of the summed gradients of clusters of these sizes."""
        return np.where(self.divisor == 0, sizes, self.divisor).astype(np.float32)
