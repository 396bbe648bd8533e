"""Configuration of CLoVE's experiments with networks, and the presets' common part."""

import dataclasses

from experiments.clove.methods import Method
from experiments.clove.partitions import Partition
from experiments.clove.sources import Dataset
from experiments.ifca.rotated_sweep import (
    check_different,
    check_positive,
    check_step_size,
)

__all__ = ["PAPER", "QUICK", "Config"]


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything that the results depend on. One field, one flag."""

    datasets: tuple[Dataset, ...]
    """Sets of images or texts."""
    partitions: tuple[Partition, ...]
    """How samples are shared out."""
    methods: tuple[Method, ...]
    """What to compare."""
    cluster_sizes: tuple[int, ...] | None
    """Clients of a cluster; the paper's if None, unless `num_clients` says it."""
    num_samples: tuple[int, ...] | None
    """Training samples of a client, one number or one for each number of clients; the
    paper's if None."""
    num_test_samples: tuple[int, ...]
    """Test samples of a client, likewise."""
    num_channels: int
    """Of the first convolution; each further one has twice as many."""
    num_hidden: int
    """Width of the hidden layer."""
    num_rounds: int
    """T, communication rounds."""
    rounds_between: int
    """Rounds from one test to the next."""
    batch_size: int
    """Of a local step."""
    num_trials: int
    """Seeds of each cell."""
    fall_back: bool
    """Use the embedded digits where the images are not found."""
    num_clients: tuple[int, ...] | None = None
    """Clients of all clusters together, instead of `cluster_sizes`."""
    num_clusters: tuple[int, ...] | None = None
    """K; the paper's, or what its numbers of clients imply, if None."""
    participations: tuple[float, ...] = (1.0,)
    """Rho, fractions of the clients that take part in a round."""
    reconstruct: bool = False
    """Train autoencoders, rather than classifiers."""
    num_latent: int = 32
    """Width of an autoencoder's bottleneck."""
    num_words: int = 5000
    """Vocabulary of texts."""
    num_tokens: int = 64
    """Words of a text that are kept, for AG News."""
    num_epochs: int = 1
    """Tau, local epochs of a round."""
    step_size: float = 0.001
    """Of Adam."""
    gradient_step_size: float = 0.1
    """Of gradient averaging, one step a round."""
    clients_per_chunk: int = 5
    """Clients evaluated at a time; bounds memory."""
    seed: int = 0
    """Of all of them."""

    def __post_init__(self) -> None:
        several = ["datasets", "partitions", "methods", "participations"]
        several += [
            name
            for name in ("cluster_sizes", "num_clients", "num_clusters")
            if getattr(self, name) is not None
        ]
        for name in several:
            check_different(name, getattr(self, name))
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            entries = value if isinstance(value, tuple) else (value,)
            if not entries:
                raise ValueError(f"`{field.name}` must hold at least one, got ().")
            if field.name != "seed" and all(type(entry) is int for entry in entries):
                check_positive(self, field.name)
        if not all(0 < rate <= 1 for rate in self.participations):
            raise ValueError(
                f"`participations` must be in (0, 1], got {self.participations}."
            )
        for name in ("step_size", "gradient_step_size"):
            check_step_size(getattr(self, name), name)
        _ = self.sizes

    @property
    def sizes(self) -> list[tuple[int | None, int | None, int | None, int]]:
        """Clients of a cluster, of all, training and test samples, side by side."""
        if self.cluster_sizes is not None and self.num_clients is not None:
            raise ValueError(
                "`cluster_sizes` and `num_clients` exclude each other, got "
                f"{self.cluster_sizes} and {self.num_clients}."
            )
        columns = [
            values if values is not None else (None,)
            for values in (
                self.cluster_sizes,
                self.num_clients,
                self.num_samples,
                self.num_test_samples,
            )
        ]
        length = max(map(len, columns))
        if any(len(values) not in (1, length) for values in columns):
            raise ValueError(
                "`cluster_sizes` (or `num_clients`), `num_samples` and "
                "`num_test_samples` must have one number or as many as each other, got "
                f"{', '.join(str(values) for values in columns)}."
            )
        whole = [values * length if len(values) == 1 else values for values in columns]
        return list(zip(*whole, strict=True))


QUICK = Config(
    datasets=("mnist",),
    partitions=("label_skew_1",),
    methods=("clove", "ifca", "fedavg", "local"),
    cluster_sizes=(3,),
    num_samples=(100,),
    num_test_samples=(50,),
    num_channels=4,
    num_hidden=32,
    num_rounds=10,
    rounds_between=5,
    batch_size=10,
    num_trials=2,
    fall_back=True,
    step_size=0.005,
)
PAPER = dataclasses.replace(
    QUICK,
    datasets=("mnist", "fashion_mnist", "cifar10"),
    cluster_sizes=None,
    num_samples=None,
    num_test_samples=(100,),
    num_channels=32,
    num_hidden=512,
    num_rounds=100,
    rounds_between=10,
    batch_size=64,
    num_trials=3,
    fall_back=False,
    step_size=0.001,
)
