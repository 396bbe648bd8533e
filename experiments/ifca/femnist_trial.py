"""What one trial of IFCA's FEMNIST experiment depends on, and what it returns."""

import dataclasses
from typing import Literal, NamedTuple, get_args

from jaxtyping import Array, Float

from experiments.ifca.femnist_methods import method_of
from experiments.ifca.femnist_samples import Samples

__all__ = ["DIMS", "PRETRAINED_DIMS", "Inputs", "Trial", "Variant"]

Variant = Literal["paper", "reference"]

# Outputs of a trial and the names of their own axes.
DIMS: dict[str, tuple[str, ...]] = {
    "accuracy": ("round",),  # of all test samples, after the round
    "used_clusters": ("round",),  # models that some client has
    "is_finite": ("round",),  # 1 unless a parameter diverged
    "received": ("round",),  # MiB from the centre in a round, mean since the last test
    "sent": ("round",),  # MiB to the centre, likewise
}
PRETRAINED_DIMS = DIMS | {"parameters": ("parameter",)}  # after the last round


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    variant: "paper" or "reference"; see `experiments.ifca.femnist`.
    method: a text that `method_of` understands.
    checksum: of the clients' samples, which tells other data apart.
    num_classes: number of classes.
    num_channels: of the first convolution; the second has twice as many.
    num_hidden: width of the hidden layer.
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_participants: clients drawn in each round.
    batch_size: of local training.
    num_epochs: of local training in each round.
    step_size: gamma.
    pretraining_rounds, pretraining_participants: of the frozen layers; 0 with "paper".
    warm_up_rounds: of random groups before IFCA's first round; 0 with "paper".
    num_first_steps, first_step_size: of every client's softmax regression on pixels,
      which one-shot clustering compares.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    variant: Variant
    method: str
    checksum: str
    num_classes: int
    num_channels: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    num_participants: int
    batch_size: int
    num_epochs: int
    step_size: float
    pretraining_rounds: int
    pretraining_participants: int
    warm_up_rounds: int
    num_first_steps: int
    first_step_size: float
    repetition: float

    def __post_init__(self) -> None:
        if self.variant not in get_args(Variant):
            raise ValueError(
                f"`variant` must be in {get_args(Variant)}, got {self.variant!r}."
            )
        method_of(self.method)
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )


class Inputs(NamedTuple):
    """What all trials share.

    train, test: samples of the same clients.
    pretrained: a flat model for each repetition; None with variant "paper".
    """

    train: Samples
    test: Samples
    pretrained: Float[Array, "repetitions parameters"] | None = None
