"""What one trial of IFCA's experiments on rotated images is, as plain data."""

import dataclasses
from typing import Literal, get_args

from experiments.ifca.starts import Start

__all__ = ["ALGORITHMS", "Name", "Network", "Trial"]

Name = Literal["ifca", "fedavg", "local"]
Network = Literal["mlp", "code", "text", "narrow"]
ALGORITHMS: tuple[Name, ...] = get_args(Name)


@dataclasses.dataclass(frozen=True)
class Trial:
    """Everything that one trial's law depends on, besides the images.

    algorithm: a member of `ALGORITHMS`.
    start: "paper" for independent random models, "reference" for IFCA's released
      filter of them (`starts`), which no other algorithm has.
    images: name of the image set.
    checksum: of its arrays, which tells preparations in another order apart.
    num_clients, num_samples: m and n of the training clients.
    num_test_clients, num_test_samples: of the test clients.
    num_local_clients: training clients that local models are trained of, as many of
      each cluster.
    num_released: local models that are also tested on the last cluster, whatever
      their own, as the released code of Rotated CIFAR does; 0 for none.
    num_clusters: k, the number of rotations and of IFCA's models.
    network: "mlp", "code", "text" or "narrow", see `rotated_algorithms.task_of`.
    num_channels: of the first convolution of "narrow".
    num_hidden: width of the hidden layer of "mlp" and "narrow".
    num_rounds: T.
    rounds_between: rounds from one test to the next; divides `num_rounds`.
    num_participants: clients of one round.
    num_epochs: tau as local epochs of a round; 0 if `num_steps` counts.
    num_steps: tau as local steps of a round; 0 if `num_epochs` counts.
    batch_size: of a local step; 0 for all samples of a client.
    step_size: gamma, of the first round.
    decay: factor of the step size from round to round. Text, since the engine traces
      floats, and no decay at all is another program.
    clients_per_chunk: clients evaluated at a time, which bounds memory.
    repetition: number of the seed. Written as a float, which the engine traces, so
      that repetitions share a program and yet are stored one by one.
    """

    algorithm: Name
    start: Start
    images: str
    checksum: str
    num_clients: int
    num_samples: int
    num_test_clients: int
    num_test_samples: int
    num_local_clients: int
    num_released: int
    num_clusters: int
    network: Network
    num_channels: int
    num_hidden: int
    num_rounds: int
    rounds_between: int
    num_participants: int
    num_epochs: int
    num_steps: int
    batch_size: int
    step_size: float
    decay: str
    clients_per_chunk: int
    repetition: float

    def __post_init__(self) -> None:
        for name, allowed in (
            ("algorithm", ALGORITHMS),
            ("start", get_args(Start)),
            ("network", get_args(Network)),
        ):
            if getattr(self, name) not in allowed:
                raise ValueError(
                    f"`{name}` must be in {allowed}, got {getattr(self, name)!r}."
                )
        if (self.num_epochs == 0) == (self.num_steps == 0):
            raise ValueError(
                "one of `num_epochs` and `num_steps` must be 0, the other is tau, got "
                f"{self.num_epochs} and {self.num_steps}."
            )
        if self.rounds_between < 1 or self.num_rounds % self.rounds_between:
            raise ValueError(
                f"`rounds_between` must divide `num_rounds`, got {self.rounds_between}"
                f" and {self.num_rounds}."
            )
        if not 1 <= self.num_participants <= self.num_clients:
            raise ValueError(
                f"`num_participants` must be in 1..{self.num_clients}, the number of "
                f"clients, got {self.num_participants}."
            )
        local = self.num_local_clients
        if not 1 <= local <= self.num_clients or local % self.num_clusters:
            raise ValueError(
                f"`num_local_clients` must be a multiple of {self.num_clusters} "
                f"clusters and at most {self.num_clients}, got {local}."
            )
        if not 0 <= self.num_released <= local:
            raise ValueError(
                f"`num_released` must be in 0..{local}, the number of local models, "
                f"got {self.num_released}."
            )
