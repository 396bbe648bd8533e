"""Configuration of Table 1."""

import dataclasses
from typing import Literal

from experiments.ifca.rotated_sweep import check_positive
from experiments.werner.table1_methods import Method
from experiments.werner.table1_trial import Loss, Partition
from experiments.werner.write import check_different, check_interval

__all__ = ["NUM_CLUSTERS", "Config", "preset"]

NUM_CLUSTERS = 4


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the table depends on. One field, one flag."""

    num_trials: int
    """Seeds of each cell."""
    num_clients: int
    """N, of all clusters together."""
    num_hidden: int
    """Width of the hidden layer."""
    num_groups: int
    """Random subgroups of Federated-Clustering."""
    num_rounds: int
    """T, gradient steps of everybody."""
    num_long_rounds: int
    """Steps of the long runs, on the rotations; 0 for none."""
    step_size: float
    """Of every gradient step."""
    fall_back: bool
    """Use the embedded digits where the images are not found."""
    methods: tuple[Method, ...] = (
        "local",
        "fedavg",
        "ditto",
        "ditto_reference",
        "ifca",
        "knn_per",
        "federated_clustering",
        "momentum_clustering",
        "oracle",
    )
    """What to compare."""
    long_methods: tuple[Method, ...] = ("local", "fedavg")
    """Methods of the long runs."""
    partitions: tuple[Partition, ...] = ("rotation", "private_label")
    """Tasks."""
    loss: Loss = "cross_entropy"
    """What is trained: cross_entropy; or probability, the released code's."""
    dataset: Literal["mnist", "fashion_mnist", "digits"] = "mnist"
    """Images."""
    num_samples: int = 200
    """Training samples of a client."""
    num_test_samples: int = 33
    """Test samples of a client."""
    num_tests: int = 12
    """How often a run is tested; divides the rounds."""
    percentile: int = 20
    """Of the distances, the radius of both clusterings."""
    num_clipping_rounds: int = 10
    """l of both clusterings."""
    gradient_weight: float = 0.1
    """Alpha, weight of a new gradient in Momentum-Clustering."""
    penalty: float = 1.0
    """Lambda of Ditto."""
    knn_weights: tuple[float, ...] = (0.5, 0.9)
    """Lambda of kNN-Per on each task."""
    num_neighbours: int = 10
    """k of kNN-Per, which the paper does not give."""
    seed: int = 0
    """Of all of them."""
    error_rate: float = 0.05
    """Of each interval."""

    def __post_init__(self) -> None:
        for name in ("methods", "long_methods", "partitions"):
            check_different(**{name: getattr(self, name)})
        check_interval(self.error_rate, self.num_trials)
        check_positive(self, "num_clients", "num_hidden", "num_groups", "num_tests")
        check_positive(self, "num_samples", "num_test_samples", "num_neighbours")
        if self.num_clients % NUM_CLUSTERS:
            raise ValueError(
                f"`num_clients` must be a multiple of the {NUM_CLUSTERS} clusters, "
                f"got {self.num_clients}."
            )
        if len(self.knn_weights) != len(self.partitions):
            raise ValueError(
                "`knn_weights` must have a weight for each of `partitions`, got "
                f"{self.knn_weights} for {self.partitions}."
            )
        for name in ("num_rounds", "num_long_rounds"):
            if getattr(self, name) % self.num_tests:
                raise ValueError(
                    f"`num_tests` must divide `{name}`, got {self.num_tests} and "
                    f"{getattr(self, name)}."
                )


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_trials=3,
            num_clients=80,
            num_hidden=50,
            num_groups=4,
            num_test_samples=100,
            num_rounds=48,
            num_long_rounds=960,
            step_size=0.25,
            fall_back=True,
        )
    return Config(
        num_trials=3,
        num_clients=300,
        num_hidden=200,
        num_groups=16,
        num_rounds=300,
        num_long_rounds=3000,
        step_size=0.1,
        fall_back=False,
    )
