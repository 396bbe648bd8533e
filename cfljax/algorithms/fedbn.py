"""FedBN: one model for all, but for normalisation, which every client keeps.

Li, Jiang, Zhang, Kamp, Dou. "FedBN: Federated Learning on Non-IID Features via Local
Batch Normalization". ICLR 2021, Algorithm 1. Of the paper its abstract and introduction
were at hand; the rules below are Algorithm 1 as it is widely quoted, and as the
authors' released code has it (med-air/FedBN: federated/fed_digits.py, read and not
copied).
"""

from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cfljax.base.constructor import constructor
from cfljax.base.types import (
    Algorithm,
    ClientData,
    StepSize,
    Task,
    Threat,
    Variables,
)
from cfljax.federated.evaluate import masked_mean
from cfljax.federated.local_update import LocalUpdate, client_update, step_size_at
from cfljax.federated.partial import leaves_of, partly_averaged
from cfljax.federated.sharing import Shared, paths
from cfljax.federated.training import Weights, averaging


@constructor
def fedbn(
    task: Task,
    *,
    step_size: StepSize,
    normalisation: Shared | None = None,
    num_steps: int = 1,
    weights: Weights = "clients",
    participation: float = 1.0,
    update: LocalUpdate | None = None,
    threat: Threat | None = None,
) -> Algorithm:
    """FedAvg of all layers but those that normalise, which clients keep to themselves.

    A participant trains the averaged layers it received together with its own
    normalisation: scales and shifts by gradients, means and variances as it measures
    them.

    Args:
      task: the learning problem, with layers that normalise.
      step_size: local step size; may be traced.
      normalisation: from a leaf's name (see `federated.sharing.paths`) to whether its
        layer normalises. If None the layers that measure statistics (`Variables`),
        with their weights, whatever they are called; others, such as LayerNorm, must
        be named.
      num_steps: local steps in each round.
      weights: of the clients in the averaged layers; the paper's are equal.
      participation: fraction of the clients drawn each round; the others keep their
        normalisation.
      update: how clients train; a proximal term also holds scales and shifts near
        where they were before the round.
      threat: what Byzantine clients do to the layers they send.

    Raises:
      ValueError: where an argument is out of its range, or the task has no layers that
        normalise, or no others.

    For the rest see `federated.partial.partly_averaged`.

    Cost of a round: that of FedAvg. Memory: the normalisation of every client.
    """
    training = averaging(step_size, num_steps, weights, participation, update, threat)
    is_kept = normalisation or measuring_layers(leaves_of(task))
    _check_parts(leaves_of(task), is_kept)

    def train(
        size: Array, key: PRNGKeyArray, model: PyTree, moments: PyTree, data: ClientData
    ) -> tuple[PyTree, PyTree, Float[Array, ""]]:
        loss = masked_mean(task.losses(model, *data[:2]), data.mask)
        learn = client_update(task, training.update, num_steps)
        model, moments = learn(key, size, model, moments, data)
        return model, moments, loss

    return partly_averaged(
        task,
        training,
        is_kept,
        train,
        told=lambda now: step_size_at(training.update, step_size, now),
        optimised=lambda model: model,
    )


def measuring_layers(params: PyTree) -> Shared:
    """From a leaf's name to whether its layer measures statistics."""
    measured = paths(params.statistics) if isinstance(params, Variables) else []
    # A leaf without a layer is by itself.
    layers = {name.rpartition("/")[0] for name in measured} - {""}
    return lambda name: name in measured or name.rpartition("/")[0] in layers


def _check_parts(params: PyTree, is_kept: Shared) -> None:
    """Raises ValueError unless some layers normalise and others do not."""
    names = paths(params)
    kept = [bool(is_kept(name)) for name in names]
    if not any(kept):
        raise ValueError(
            "`task` must have layers that normalise, such as BatchNorm, whose "
            "statistics tell, or others that `normalisation` names; got "
            f"{', '.join(names)}."
        )
    if all(kept):
        raise ValueError(
            "`normalisation` must leave some leaves to be averaged, got true for all "
            f"of {', '.join(names)}."
        )
