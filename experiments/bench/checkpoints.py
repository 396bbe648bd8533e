"""What saving a run's state costs it.

Command:   python -m experiments bench checkpoints
Target:    3 % of a run at the usual 120 seconds between two saves
Measured:  --algorithms fedavg clove --num-rounds 3 --repeats 2, two idle cores of an
           AMD EPYC: FedAvg 1.2 %, CLoVE 2.2 %, of which .02 and .06 for the saves and
           the rest for portions and what is done once a run
Size:      25 clients of 50 images and the network of CLoVE's Table 1 (5 x 5 kernels),
           two local steps a round; with more images rounds are longer, files the same

A run is played in three ways in turn: without a checkpoint; with one that is saved at
the end alone, whose rounds come in portions of some seconds, as they do between any two
saves; and saved after every round. The last two differ by the price of a save, the
first two by that of one save, of portions, and of what is done once a run, such as a
digest of its data: all this is set against the few rounds here, so that long runs pay
less.
"""

import math
import pathlib
import tempfile
from collections.abc import Callable
from typing import Any

import jax

from cfljax import engine
from cfljax.algorithms import REGISTRY
from experiments.bench.neural_algorithms import build
from experiments.bench.neural_jobs import client_data
from experiments.bench.timing import is_busy, one_table, timed
from experiments.bench.work import Work
from experiments.checks import check_values, configuration
from experiments.options import Options

BENCHMARKS = {"checkpoints": {"title": "what saving a run's state costs it"}}


@configuration
class Config:
    """One field, one flag."""

    algorithms: tuple[str, ...] = ("local", "fedavg", "ifca", "clove")
    """Whose runs are saved."""
    num_clients: int = 25  # C.
    num_samples: int = 50  # n, of each client.
    channels: tuple[int, ...] = (32, 64)  # Of the convolutions; a perceptron if none.
    num_rounds: int = 4  # Of a run.
    repeats: int = 3  # Times that everything is timed; medians are reported.
    every: float = 120.0  # Seconds between two saves of a long run.

    def __post_init__(self) -> None:
        if not 0 < self.every < math.inf:
            raise ValueError(f"`every` must be positive and finite, got {self.every}.")
        check_values(self, "algorithms")
        if self.num_rounds < 2:
            raise ValueError("`num_rounds` must be at least 2, got 1.")
        if unknown := set(self.algorithms) - set(REGISTRY):
            raise ValueError(
                f"`algorithms` must be of {', '.join(REGISTRY)}, got {min(unknown)}."
            )


def preset(name: str) -> Config:
    """Both presets are the target."""
    return Config()


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time all three ways in turn; seconds, and what share of a run saving takes."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    work = Work(
        num_clients=config.num_clients,
        num_samples=config.num_samples,
        num_steps=2,
        channels=config.channels,
    )
    table = [_row(name, work, config) for name in config.algorithms]
    settings = (
        f"{work.num_clients} clients of {work.num_samples} images, runs of "
        f"{config.num_rounds} rounds, medians of {config.repeats}, reckoned for a save "
        f"every {config.every:g} s, {jax.devices()[0].device_kind}"
    )
    busy = "; other programs use this machine, so times say little" * is_busy()
    return one_table("checkpoints", settings + busy, table, options)


def _row(name: str, work: Work, config: Config) -> dict[str, Any]:
    algorithm, data = build(name, work), client_data(work)
    key, rounds = jax.random.key(0), config.num_rounds

    def run(**known: Any) -> None:
        how = {"num_rounds": rounds, "observe": None, **known}
        found = engine.run(algorithm, key, data, **how)
        jax.block_until_ready(found)

    sizes = []

    def saved(every: float) -> Callable[[], None]:
        def job() -> None:
            with tempfile.TemporaryDirectory() as folder:
                file = pathlib.Path(folder) / "run.npz"
                run(checkpoint=file, every=every)
                sizes.append(file.stat().st_size)

        return job

    jobs = {"plain": run, "end": saved(math.inf), "each": saved(0.0)}
    found = timed(jobs, repeats=config.repeats)
    plain, end, each = (found[way].median for way in jobs)
    save = (each - end) / (rounds - 1)
    return {
        "algorithm": name,
        "s / round": plain / rounds,
        "file, MiB": sizes[-1] / 2**20,
        "s / save": save,
        "portions, %": 100 * (end - save - plain) / plain,
        "saves, %": 100 * save / config.every,
        "together, %": 100 * ((end - save - plain) / plain + save / config.every),
    }
