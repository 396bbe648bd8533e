"""Settings of the FEMNIST experiment."""

import dataclasses
import math
from typing import Literal, get_args

from experiments.ifca.femnist_methods import method_of
from experiments.ifca.femnist_trial import Variant

__all__ = ["Config", "preset"]

METHODS = ("ifca-2", "ifca-3", "one_shot-2", "one_shot-3", "fedavg", "local")
MORE_CLUSTERS = ("ifca-4", "ifca-5")  # The paper finds 3 of them used.


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the table depends on. One field, one flag."""

    num_clients: int | None
    """Writers, drawn by the seed; all with enough images if None."""
    num_channels: int
    """Of the first convolution; the second has twice as many."""
    num_hidden: int
    """Width of the hidden layer."""
    pretraining_rounds: int
    """FedAvg of the layers that variant "reference" freezes."""
    num_rounds: int
    """T of "reference"; "paper" has `pretraining_rounds` more."""
    step_size: float
    """Gamma, of all training."""
    num_trials: int
    """Seeds of each method: of starts, participants and batches."""
    methods: tuple[str, ...] = METHODS
    """What to compare: ifca-K and one_shot-K for K clusters, fedavg, local."""
    variants: tuple[Variant, ...] = ("paper", "reference")
    """Layers below the last trained by all (paper), or pretrained (reference)."""
    min_samples: int = 99
    """Images that a writer has at least, training and test together."""
    num_participants: int = 6
    """Writers drawn in each round."""
    pretraining_participants: int = 3
    """Writers drawn in each round of pretraining."""
    warm_up_rounds: int = 20
    """Rounds of random groups before IFCA's first, "reference" only."""
    batch_size: int = 10
    """Of local training."""
    num_epochs: int = 1
    """Of local training in each round."""
    rounds_between: int = 20
    """Rounds from one test to the next."""
    num_first_steps: int = 300
    """Of the softmax regressions on pixels that one-shot clustering compares."""
    first_step_size: float = 0.02
    """Of the same."""
    seed: int = 0
    """Of all of them."""

    def __post_init__(self) -> None:
        for method in self.methods:
            method_of(method)
        for name, allowed in (("methods", None), ("variants", get_args(Variant))):
            values = getattr(self, name)
            strange = allowed and not set(values) <= set(allowed)
            if not values or len(set(values)) < len(values) or strange:
                raise ValueError(f"`{name}` must hold different names, got {values}.")
        positive = ("num_rounds", "pretraining_rounds", "num_channels", "num_hidden")
        positive += ("num_trials", "num_first_steps", "batch_size", "num_epochs")
        for name in positive:
            if getattr(self, name) < 1:
                raise ValueError(
                    f"`{name}` must be at least 1, got {getattr(self, name)}."
                )
        if self.warm_up_rounds < 0:
            raise ValueError(
                f"`warm_up_rounds` must not be negative, got {self.warm_up_rounds}."
            )
        for name in ("step_size", "first_step_size"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise ValueError(
                    f"`{name}` must be finite and not negative, got {value}."
                )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_clients=60,
            num_channels=4,
            num_hidden=64,
            pretraining_rounds=100,
            num_rounds=40,
            step_size=0.1,
            num_trials=2,
            methods=("ifca-2", "one_shot-2", "fedavg", "local"),
            warm_up_rounds=10,
            num_first_steps=50,
        )
    return Config(
        num_clients=None,
        num_channels=32,
        num_hidden=2048,
        pretraining_rounds=2000,
        num_rounds=4000,
        step_size=0.004,
        num_trials=5,
        methods=METHODS + MORE_CLUSTERS,
    )
