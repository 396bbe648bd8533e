"""IFCA on linear regression, exactly, without most of its products.

`run_ifca` gives the models that `algorithms.ifca` with option "gradient", full
participation and fixed samples ends with. It makes all rounds; what it leaves out are
products whose result is known:

- Losses are evaluated where a client could have changed its choice, not in every
  round: `lookahead.pair_radii` says, with proof, how far models may move before.
- While the choices stay, a round is a linear map of the models, `theta - rate
  ((2 / n) X_S^T X_S theta - (2 / n) X_S^T y)`, applied by d x d Gram matrices that all
  runs with the same set S of clients share (`partitions`).
- Where a few clients only do not choose as the rest of their group, a gradient is that
  of whole groups and a correction by these clients' samples (`group_gradients`).
- Where a product has room for more columns, coming rounds are guessed and evaluated
  with the present one (`lookahead`); what every client's choice proves needs no more.
- A model that nobody chose does not move, so neither do its losses; where few runs are
  left that need the samples, and these are few, several rounds are made in full.
- A run in which no client has a finite loss makes no step ever again: it has diverged,
  and its models are the ones it ends with.
- Runs that are done make room for others in the next product (`schedule`).

All of this is exact in exact arithmetic. In float32, rounding differs as between any
two orders of a sum: where the iteration is stable the final distances agree to about
1e-6 of themselves, where it is not (a step size above the stable ones) orbits are
chaotic and only what became of a run can be compared.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from cfljax.base.checks import check_member, check_positive
from cfljax.federated.average import Normalise
from cfljax.montecarlo.partitions import Partitions
from cfljax.montecarlo.samples import Samples
from cfljax.montecarlo.schedule import Finished, Schedule
from cfljax.montecarlo.state import Runs, Work


class Ends(NamedTuple):
    """Where runs ended.

    models: the final ones, `[runs, models, features]`.
    losses: of all clients under them, `[runs, models, clients]`.
    is_done: whether a run was followed to its end, or given up.
    work: what it cost.
    """

    models: Float[np.ndarray, "runs models features"]
    losses: Float[np.ndarray, "runs models clients"]
    is_done: Bool[np.ndarray, " runs"]
    work: Work


def run_ifca(
    samples: Samples,
    starts: Float[np.ndarray, "runs models features"],
    problems: Int[np.ndarray, " runs"],
    step_sizes: Float[np.ndarray, " runs"],
    *,
    num_rounds: int,
    normalise: Normalise = "all",
    columns: int = 192,
    finished: Finished | None = None,
    turns: Int[np.ndarray, " runs"] | None = None,
    gives_up: bool = False,
) -> Ends:
    """Runs of IFCA (Algorithm 2, option I) on the same inputs.

    Args:
      samples: of `samples.prepare`.
      starts: first models of every run.
      problems: row of `samples.targets` for each run.
      step_sizes: gamma of each run.
      num_rounds: T, at least 0.
      normalise: divisor of the summed gradients, as of `algorithms.ifca`;
        "participants" are all clients here.
      columns: models that meet the samples at a time, or those of one run where they
        are more: bounds the memory to about `44 m n (columns + 3)` bytes besides the
        samples and 5 GiB of Gram matrices at most, and changes nothing but rounding
        and, with `finished`, which runs come to their end before others have them
        dropped.
      finished: `(run, models, losses) -> runs`, told of every run at its end; the runs
        it returns are not followed any further, unless they are at their end as well.
      turns: of a problem's runs those of the lowest one start first, the next when none
        of them has clients for all of its models any more, or when many products had
        room for more; all at once if None.
      gives_up: a run ends once one of its models has no finite loss. Nobody will ever
        choose that model or move it, and the sum of `|X_i theta - y_i|^2` overflows
        only if theta is at least 1e15 / L_i away from any moderate truth (for up to
        3e8 samples of a client): the run has failed by every measure. It counts as
        done; its other models have what they had.

    Returns:
      Models and losses of all runs; those that were not followed to their end have
      whatever they had.

    Raises:
      ValueError: where an argument is out of its range or the shapes do not fit.

    Cost: where nothing can be left out about that of the full rounds, `4 m n d`
    operations for each model, and up to as much again for Gram matrices and guesses of
    no use; a round of a model whose clients stay takes `2 d^2`.
    """
    check_member(Normalise, normalise=normalise)
    if num_rounds < 0:
        raise ValueError(f"`num_rounds` must be at least 0, got {num_rounds}.")
    check_positive(columns=columns)
    number, _, features = starts.shape
    if features != samples.inputs.shape[1]:
        raise ValueError(
            f"`starts` must have {samples.inputs.shape[1]} features, got {features}."
        )
    if len(problems) != number or len(step_sizes) != number:
        raise ValueError(
            f"`problems` and `step_sizes` must be of {number} runs, got"
            f" {len(problems)} and {len(step_sizes)}."
        )
    if np.any((problems < 0) | (problems >= len(samples.targets))):
        raise ValueError(
            f"`problems` must be rows of the {len(samples.targets)} targets, got"
            f" {np.min(problems)} to {np.max(problems)}."
        )
    if turns is not None and len(turns) != number:
        raise ValueError(f"`turns` must be of {number} runs, got {len(turns)}.")
    runs = Runs(
        samples,
        starts,
        problems,
        step_sizes,
        num_rounds=num_rounds,
        per_cluster=normalise == "cluster",
    )
    schedule = Schedule(
        runs,
        Partitions(samples),
        columns=columns,
        finished=finished,
        turns=np.zeros(number, int) if turns is None else turns,
        gives_up=gives_up,
    )
    is_done = schedule.run()
    return Ends(runs.models, runs.losses, is_done, runs.work)
