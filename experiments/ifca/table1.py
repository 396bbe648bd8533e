"""IFCA, Table 1, Rotated MNIST and CIFAR: IFCA against a global model and local models.

Command:   python -m experiments run ifca.table1_mnist --preset paper --data FOLDER
           python -m experiments run ifca.table1_cifar --preset paper --data FOLDER
Quick:     the same with --preset quick; without data, on the digits embedded in
           scikit-learn. MNIST: m = 60, n = 25, 60 rounds. CIFAR: m = 40, n = 100, 10
           participants, 24 rounds, 4 local models, 3 seeds and a narrow network (8 and
           16 channels, 64 hidden units) on windows without distortion; such clients
           share the digits out with 71 samples each

Rotated MNIST

Measured:  quick on MNIST, 1.9 minutes on two idle cores of an Intel Xeon: IFCA 80.2 +-
           4.2, global 59.0 +- 2.3, local 50.7 +- 1.5 %; one seed of five separates all
           rotations. The paper preset has not been run whole; a trial of IFCA takes
           2.0 GiB in its largest setting, 4800 x 50. Of its local models, one seed:
           63.3, 73.9 and 80.5 % for n = 50, 100, 200 after 10 rounds (240 of them),
           64.5, 74.5 and 82.2 % after 300 (60 of them)
Projected: paper on two cores, 35 minutes for each run of IFCA without its tests (7.0 s
           a round at 1200 x 200; all settings have 240,000 images), 9 h for all 15
Paper:     k = 4, 300 rounds of 10 full-batch steps at 0.1, 5 seeds, m x n = 4800 x 50,
           2400 x 100, 1200 x 200: `experiments/published.csv`; local models 63.32,
           73.66 and 80.05 %, which are the numbers of 10 rounds, not of 300: the
           released code trains its local models for so many. The table shows both.

IFCA starts from one random draw, as in the paper, so a seed may end with two
rotations in one cluster: `found` counts the seeds that separate all of them.

Rotated CIFAR

Measured:  quick on CIFAR-10, 4.4 minutes on two idle cores of an Intel Xeon: IFCA
           39.8 +- 1.4, started as released 38.5 +- 2.7 (one seed of three ends on
           one model), global 36.2 +- 1.8, local 26.3 +- 0.6, as released 22.7 +- 0.6 %;
           its sizes were chosen after a smaller run in which a seed ended on one model
           under either start. The paper preset has not been run: a single round with
           its test was not over after 170 s, so that it is for an accelerator
Paper:     k = 2, m x n = 200 x 500, 20 participants a round, tau = 5, batches of 50,
           step size times 0.99 a round, 5 seeds: IFCA 81.51 +- 1.37, global 77.87 +-
           0.39, local 33.97 +- 1.19 %.
Released:  600 rounds, step size 0.25, tau = 5 epochs (`--num-epochs 0 --num-steps 5`
           for the text's 5 steps), a network with one more hidden layer (`--network
           text` for the text's), starts redrawn until a sample of clients uses all
           models (`rotated.with_balanced_start`), local models of 20 clients for 300
           rounds, all tested on the last rotation. The table says which row is which.

The clusters are chosen on the central window of the training images; the released
code chooses on distorted ones, clips the inputs of local models to [0, 1] after
standardising them, and reports their tenth last test, which is not followed.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Any, Literal

from cfljax import engine
from cfljax.data import ImageSet
from experiments.checks import check_different, check_positive, configuration
from experiments.ifca.rotated import (
    ALGORITHMS,
    DIMS,
    Name,
    Network,
    Start,
    Trial,
    compute,
    jobs_of,
    simulate,
    trial_of,
)
from experiments.ifca.rotated_report import draw, markdown, rows, runs
from experiments.images import Loaded, find_images
from experiments.jobs import Job
from experiments.options import Options
from experiments.study import Study, settings
from experiments.titles import title

EXPERIMENTS = {
    "ifca.table1_mnist": {
        "title": "Rotated MNIST: IFCA against a global model and local models",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "ifca.table1_cifar": {
        "title": "Rotated CIFAR: IFCA against a global model and local models",
        "spreads_clients": True,
        "has_jobs": True,
    },
}

# To be raised whenever a trial of the same fields changes its meaning.
MNIST_REVISION = 2
CIFAR_REVISION = 1


@dataclasses.dataclass(frozen=True)
class Table:
    """One of the two, an experiment of its own."""

    id: str  # of the experiment
    preset: Callable[[Literal["quick", "paper"]], Any]
    grids: Callable[[Any, Loaded], list[engine.Grid]]  # one for each setting
    by_algorithm: bool  # whether rows are in the order of algorithms, then of settings

    def titles(self, config: Any) -> dict[str, str]:
        """By figure."""
        what = "accuracy of IFCA, a global model and local models on rotated images"
        return {"accuracy": title("IFCA, Table 1", what, config, self.preset("paper"))}

    def jobs(self, config: Any, options: Options) -> list[Job]:
        """The sweeps of the table; raises as `main`."""
        images = find_images(config.images, options, fall_back=config.fall_back)
        return self._jobs(config, images)

    def _jobs(self, config: Any, images: Loaded) -> list[Job]:
        grids = self.grids(config, images)
        return jobs_of([(grid, images) for grid in grids], simulate)

    def main(self, config: Any, options: Options) -> dict[str, Any]:
        """Compute what the stores lack, then write tables and figure.

        Raises:
          ValueError: if the images do not suffice for a setting, or are damaged.
          FileNotFoundError: if there are none and `config.fall_back` is false.
        """
        study = Study(self.id, config, options)
        images = find_images(config.images, options, fall_back=config.fall_back)
        results = compute(options, self._jobs(config, images))
        table = [row for result in results for row in rows(result)]
        if self.by_algorithm:
            table.sort(key=lambda row: config.algorithms.index(row["algorithm"]))
        text = markdown(table)
        return study.summary(
            f"{images.note}{text}",
            {
                "table.csv": table,
                "runs.csv": [run for result in results for run in runs(result)],
                "table.md": text,
                "accuracy": draw(results, self.titles(config)["accuracy"]),
                "config.json": settings(config, source=images.source),
            },
            table,
            [result.data for result in results],
            images=images.source,
        )


def load(id: str) -> Table:
    """The table of an id."""
    both = {
        "ifca.table1_mnist": (mnist_preset, mnist_grids, False),
        "ifca.table1_cifar": (cifar_preset, cifar_grids, True),
    }
    return Table(id, *both[id])


# Rotated MNIST


@configuration
class MnistConfig:
    """Everything that the table depends on. One field, one flag."""

    num_clients: tuple[int, ...]
    """m of each setting, a multiple of the number of clusters."""
    num_samples: tuple[int, ...]  # n of each setting, of training and test clients.
    num_test_clients: tuple[int, ...]
    """Test clients of each setting, a multiple of the number of clusters."""
    num_rounds: int  # T, communication rounds.
    rounds_between: int  # Rounds from one test to the next.
    fall_back: bool  # Use the embedded digits where the images are not found.
    images: ImageSet = "mnist"  # Image set.
    algorithms: tuple[Name, ...] = ALGORITHMS
    """What to compare: ifca, fedavg (the global model), local."""
    num_clusters: int = 4  # k, 1, 2 or 4 rotations.
    num_hidden: int = 200  # Width of the hidden layer.
    num_steps: int = 10  # Tau, local steps per round.
    step_size: float = 0.1  # Gamma.
    clients_per_chunk: int = 100  # Clients evaluated at a time; bounds memory.
    num_trials: int = 5  # Seeds of each setting and algorithm.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        sizes = (self.num_clients, self.num_samples, self.num_test_clients)
        lengths = {len(values) for values in sizes}
        if len(lengths) != 1 or not self.num_clients:
            raise ValueError(
                "`num_clients`, `num_samples` and `num_test_clients` must have one "
                f"entry for each setting, got {sizes}."
            )
        if len(set(self.settings)) < len(self.settings):
            raise ValueError(f"settings must differ, got {self.settings}.")
        check_different("algorithms", self.algorithms)
        check_positive(self, "num_steps")

    @property
    def settings(self) -> tuple[tuple[int, int, int], ...]:
        """Clients, samples and test clients of each setting."""
        sizes = (self.num_clients, self.num_samples, self.num_test_clients)
        return tuple(zip(*sizes, strict=True))


def mnist_preset(name: Literal["quick", "paper"]) -> MnistConfig:
    """The configuration of a preset of Rotated MNIST."""
    if name == "quick":
        return MnistConfig(
            num_clients=(60,),
            num_samples=(25,),
            num_test_clients=(48,),
            num_rounds=60,
            rounds_between=5,
            fall_back=True,
        )
    return MnistConfig(
        num_clients=(4800, 2400, 1200),
        num_samples=(50, 100, 200),
        num_test_clients=(800, 400, 200),
        num_rounds=300,
        rounds_between=10,
        fall_back=False,
    )


def mnist_grids(config: MnistConfig, images: Loaded) -> list[engine.Grid]:
    """One grid for each setting."""
    grids = []
    for num_clients, num_samples, num_test_clients in config.settings:
        trial = trial_of(
            config,
            images,
            algorithm=config.algorithms[0],
            start="paper",
            num_clients=num_clients,
            num_samples=num_samples,
            num_test_clients=num_test_clients,
            num_test_samples=num_samples,
            num_local_clients=num_clients,
            num_released=0,
            network="mlp",
            num_channels=0,
            num_participants=num_clients,
            num_epochs=0,
            batch_size=0,
            decay=1.0,
        )
        own = "ifca.table1_mnist", MNIST_REVISION, config, config.algorithms, trial
        grids.append(_grid(*own))
    return grids


# Rotated CIFAR


@configuration
class CifarConfig:
    """Everything that the table depends on. One field, one flag."""

    num_clients: int  # m, a multiple of the number of clusters.
    num_samples: int  # n of a training client.
    num_test_clients: int  # A multiple of the number of clusters.
    num_test_samples: int  # Samples of a test client.
    num_local_clients: int
    """Training clients that local models are trained of, evenly over the clusters."""
    num_released: int
    """Local models that are tested as released as well, on the last cluster."""
    participation: float  # Fraction of the clients in a round.
    network: Network
    """code: as released; text: as printed; narrow: a smaller one, for a quick look."""
    num_rounds: int  # T, communication rounds.
    rounds_between: int  # Rounds from one test to the next.
    batch_size: int  # Samples of a local step.
    step_size: float  # Gamma of the first round.
    decay: float  # Factor of the step size from round to round.
    num_trials: int  # Seeds of each algorithm.
    fall_back: bool  # Use the embedded digits where the images are not found.
    num_epochs: int = 5
    """Tau as passes over a client's samples, as released; 0 to count steps."""
    num_steps: int = 0  # Tau as steps, as printed; 0 to count epochs.
    images: ImageSet = "cifar10"  # Image set.
    algorithms: tuple[Name, ...] = ALGORITHMS
    """What to compare: ifca, fedavg (the global model), local."""
    starts: tuple[Start, ...] = ("paper", "reference")
    """Of IFCA. paper: independent; reference: redrawn until balanced, as released."""
    num_clusters: int = 2  # k, 1, 2 or 4 rotations.
    num_channels: int = 8  # Of the first convolution of the narrow network.
    num_hidden: int = 64  # Width of the hidden layer of the narrow network.
    clients_per_chunk: int = 5  # Clients evaluated at a time; bounds memory.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        check_different("algorithms", self.algorithms)
        check_different("starts", self.starts)
        check_positive(self, "batch_size")


def cifar_preset(name: Literal["quick", "paper"]) -> CifarConfig:
    """The configuration of a preset of Rotated CIFAR."""
    if name == "quick":
        return CifarConfig(
            num_clients=40,
            num_samples=100,
            num_test_clients=20,
            num_test_samples=100,
            num_local_clients=4,
            num_released=4,
            participation=0.25,
            network="narrow",
            num_rounds=24,
            rounds_between=4,
            batch_size=20,
            step_size=0.1,
            decay=0.99,
            num_trials=3,
            fall_back=True,
        )
    return CifarConfig(
        num_clients=200,
        num_samples=500,
        num_test_clients=40,
        num_test_samples=500,
        num_local_clients=200,
        num_released=20,
        participation=0.1,
        network="code",
        num_rounds=600,
        rounds_between=10,
        batch_size=50,
        step_size=0.25,
        decay=0.99,
        num_trials=5,
        fall_back=False,
    )


def cifar_trial(config: CifarConfig, images: Loaded, start: Start) -> Trial:
    """What the cells of one start share."""
    k = config.num_clusters
    return trial_of(
        config,
        images,
        algorithm=config.algorithms[0],
        start=start,
        num_samples=images.fitting(config.num_samples, config.num_clients, k),
        num_test_samples=images.fitting(
            config.num_test_samples, config.num_test_clients, k, split="test"
        ),
        num_participants=max(
            1, math.floor(config.participation * config.num_clients + 0.5)
        ),
        decay=config.decay,
    )


def cifar_grids(config: CifarConfig, images: Loaded) -> list[engine.Grid]:
    """One grid for each start; only IFCA has another than the first."""
    grids = []
    for number, start in enumerate(config.starts):
        names = config.algorithms if number == 0 else ("ifca",)
        if number and "ifca" not in config.algorithms:
            break
        trial = cifar_trial(config, images, start)
        own = "ifca.table1_cifar", CIFAR_REVISION, config, names, trial
        grids.append(_grid(*own))
    return grids


def _grid(
    experiment: str, revision: int, config: Any, names: tuple[Name, ...], trial: Trial
) -> engine.Grid:
    """Algorithms and repetitions of one setting, as plain data."""
    step = config.rounds_between
    return engine.Grid(
        experiment=experiment,
        trial=trial,
        axes={"algorithm": names, "repetition": tuple(range(config.num_trials))},
        num_trials=1,
        traced=("step_size", "repetition"),
        dims=DIMS,
        coords={"round": list(range(step, config.num_rounds + 1, step))},
        seed=config.seed,
        revision=revision,
    )
