"""Byzantine clients that train honestly on wrong data."""

import jax.numpy as jnp
from jaxtyping import Array, Bool

from cfljax.base.tree import rows
from cfljax.base.types import ClientData


def flip_labels(
    data: ClientData, byzantine: Bool[Array, " clients"], num_classes: int | None
) -> ClientData:
    """Byzantine clients' labels reversed: y becomes `num_classes - 1 - y`, or -y.

    Give them to an algorithm in place of the data: its Byzantine clients then send
    honest messages of a wrong task. Honest rows, all inputs and the mask stay.

    Args:
      data: leaves `[clients, samples, ...]`. Padding is flipped like samples.
      byzantine: who has wrong labels.
      num_classes: integer labels must be in `0 .. num_classes - 1`; None for
        regression, whose targets change their sign.

    Raises:
      ValueError: if there are fewer than 2 classes, or the targets are not of the
        type that `num_classes` asks for.

    Cost: a copy of the targets.
    """
    targets = data.targets
    if num_classes is None:
        if not jnp.issubdtype(targets.dtype, jnp.floating):
            raise ValueError(
                "`num_classes` must be given for targets that are labels, got None "
                f"for {targets.dtype}."
            )
        flipped = -targets
    else:
        if num_classes < 2:
            raise ValueError(f"`num_classes` must be at least 2, got {num_classes}.")
        if not jnp.issubdtype(targets.dtype, jnp.integer):
            raise ValueError(
                "`num_classes` must be None for targets that are no integers, got "
                f"{num_classes} for {targets.dtype}."
            )
        flipped = num_classes - 1 - targets
    wrong = rows(byzantine, targets)
    return data._replace(targets=jnp.where(wrong, flipped, targets))
