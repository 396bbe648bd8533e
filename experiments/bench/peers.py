"""This library, called as a user calls it, beside code that nobody here wrote.

Command:   python -m experiments bench peers
           python -m experiments bench peers --preset paper --out figures/bench.peers
           python -m experiments bench peers --works ifca_mlp --repeats 3
           python -m experiments bench peers --pfllib FOLDER
           python -m experiments bench peers --data FOLDER
Measured:  --repeats 3 --seconds 60 --pfllib FOLDER, two cores of an AMD EPYC: FedAvg of
           the perceptron 1.23 times as fast as the best peer, IFCA 1.24, networks with
           5 x 5 and 3 x 3 kernels 1.40 and 1.88; table in figures/bench.peers

One round of FedAvg or IFCA from the same clients and the same first models, by
`cfljax.run` without a flag and without `jit`, and on one device; by a compiled client
in a loop, as a user of JAX writes it; by FedJAX (its IFCA is HypCluster); by PyTorch in
a loop over the clients, with one of its threads pinned to each core, and batched by
`torch.func`; and by PFLlib's clients, imported from the folder of a clone. FedJAX and
PyTorch are the extra `bench`; what is not installed is left out, and said so. Rows of
IFCA's Figure 3 beside a batched PyTorch are those of `bench fig3 --parts comparison`.

Each implementation has a process of its own, with nothing imported that it has no use
for. All are asked for a round in turn; times are those that whoever asks waits for, of
a round like the first one, and the first is told apart, with what it compiles.
Implementations that train on more or fewer images, as they fill or leave out the last
batch of an epoch, are compared by time per image.

The limit is the time of the products alone (forward, gradients of the weights and of
every layer's input but the first's, and for IFCA one forward pass on every model) at
the rate of the fastest product of square matrices on all cores, in the same run.

Whether all compute the same is seen from the models after the round, in full batches
the same round, and with shuffled batches two steps on as many samples as a batch has:
the largest difference of a weight from this library's, relative to the largest change
of a weight of its layer. One that differs by more than rounding has no ratio and is
not drawn, and the exit status is 1.
"""

import contextlib
import dataclasses
import importlib.util
import pathlib
import pickle
import tempfile
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from cfljax import report
from cfljax.engine import Bar
from experiments.bench import neural_jobs, peers_jobs, timing, torch_jobs
from experiments.bench.processes import MeasuringError, Process
from experiments.bench.timing import Times, is_busy, timed
from experiments.bench.work import Start, Work, in_torch_layout
from experiments.checks import check_positive, check_values, configuration
from experiments.images import find_images
from experiments.options import Options
from experiments.private import check_private
from experiments.study import column, groups, write

BENCHMARKS = {
    "peers": {
        "title": "rounds as a user calls them against JAX, FedJAX, PyTorch and PFLlib",
    },
}
Name = Literal["fedavg_mlp", "ifca_mlp", "fedavg_cnn5", "fedavg_cnn3"]
SQUARES = (1024, 2048, 4096)  # Sides of the products whose rate is the limit.
# Where rounding decides a ReLU or a maximum otherwise for one image, weights move by
# up to 1 / sqrt(images) of their layer's change, .025 for two steps of 25 clients on 64
# images: there PyTorch is .0055 from itself in double precision, and this library .003.
ROUNDING = 2e-2

PER_IMAGE = "us per image"
RATIO = "best peer's time / this"
SHARE = "share of the limit"
DIFFERENCE = "largest relative difference of weights"
SHOWN = {
    "implementation": "implementation",
    "s": "round, s",
    "processor s": "processor s",
    PER_IMAGE: "µs per image",
    RATIO: RATIO,
    SHARE: SHARE,
    "first round, s": "first round, s",
    "peak, MiB": "peak, MiB",
    "peak of rounds, MiB": "of it by rounds, MiB",
    DIFFERENCE: "difference of weights",
    "repeats": "repeats",
}

Rows = list[dict[str, Any]]


@configuration
class Config:
    """One field, one flag."""

    works: tuple[Name, ...] = ("fedavg_mlp", "ifca_mlp", "fedavg_cnn5", "fedavg_cnn3")
    """Rounds to time: which algorithm on which network, with kernels of 5 or 3."""
    mlp_clients: int = 120  # Clients that train a perceptron.
    mlp_samples: int = 200  # Images of each of its clients, all in every step.
    mlp_steps: int = 10  # Its local steps.
    mlp_hidden: int = 200  # Its hidden units.
    num_clusters: int = 4  # Models of IFCA.
    cnn_clients: int = 25  # Clients that train a convolutional network, one epoch.
    cnn_samples: int = 500  # Images of each of its clients.
    batch_size: int = 64  # Of its shuffled batches.
    cnn_channels: tuple[int, ...] = (32, 64)
    """Its convolutions, each followed by a pool."""
    cnn_hidden: int = 512  # Its hidden units.
    image: int = 28  # Height and width of an image, in pixels.
    clients_per_chunk: int = 25
    """Clients of PyTorch's batched rounds computed at a time."""
    pfllib: pathlib.Path | None = None
    """Folder of a clone of PFLlib, whose clients are then timed too."""
    repeats: int = 5  # Times that everything is timed, at most; medians are reported.
    seconds: int | float = 60
    """Of timing one work, after which nothing is repeated again."""

    def __post_init__(self) -> None:
        check_values(self, "works")
        check_positive(self, "mlp_steps", "batch_size")
        if not self.cnn_channels:
            raise ValueError("`cnn_channels` must hold positive numbers, got ().")
        client = pathlib.Path("system", "flcore", "clients", "clientavg.py")
        if self.pfllib is not None and not (self.pfllib / client).is_file():
            raise ValueError(
                f"`pfllib` must be the folder of a clone, which holds {client}, got "
                f"{self.pfllib}."
            )

    def work(self, name: Name) -> Work:
        """The round of this name."""
        common: dict[str, Any] = {
            "image": self.image,
            "clients_per_chunk": self.clients_per_chunk,
        }
        if name in ("fedavg_mlp", "ifca_mlp"):
            return Work(
                self.mlp_clients,
                self.mlp_samples,
                self.mlp_steps,
                num_clusters=self.num_clusters if name == "ifca_mlp" else 1,
                hidden=self.mlp_hidden,
                chooses=name == "ifca_mlp",
                **common,
            )
        return Work(
            self.cnn_clients,
            self.cnn_samples,
            num_steps=1,
            num_clusters=1,
            channels=self.cnn_channels,
            kernel_size=5 if name == "fedavg_cnn5" else 3,
            hidden=self.cnn_hidden,
            batch_size=self.batch_size,
            **common,
        )


def preset(name: Literal["quick", "paper"]) -> Config:
    """ "quick" repeats less often."""
    return Config(repeats=3) if name == "quick" else Config(repeats=9, seconds=300)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time every work; a table, a figure, and who computes something else."""
    busy = is_busy()
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    pool = _images(config, options)
    size, peak = square_peak(SQUARES)
    rows: Rows = []
    notes = ["Other programs used this machine: times say little."] * busy
    with Bar("peers", visible=options.progress) as bar:
        for name in config.works:
            found, said = _measured(config.work(name), pool, config, peak, bar)
            rows += [{"work": name} | row for row in found]
            notes += [note for note in said if note not in notes]
    wrong = [row for row in rows if not row["same weights"]]
    notes += [
        f"{row['work']}: {row['implementation']} computes something else than cfljax; "
        "its time is not compared."
        for row in wrong
    ]
    settings = (
        f"{'noise' if pool is None else 'MNIST'} of {config.image} x {config.image} "
        f"pixels; MLP: {config.mlp_clients} clients, {config.mlp_samples} images, "
        f"{config.mlp_steps} steps, {config.mlp_hidden} hidden units, IFCA with "
        f"{config.num_clusters} models; CNN: {config.cnn_clients} clients, "
        f"{config.cnn_samples} images, one epoch in batches of {config.batch_size}, "
        f"{'-'.join(map(str, (*config.cnn_channels, config.cnn_hidden)))}; limit: "
        f"{peak / 1e9:.0f} GFLOP/s of {size} x {size} products; "
        f"{jax.devices()[0].device_kind}, {len(torch_jobs.cores())} cores"
    )
    tables = {
        f"{work}, medians": [{SHOWN[key]: row.get(key) for key in SHOWN} for row in own]
        for work, own in groups(rows, "work").items()
    }
    text = timing.headline(settings, tables, notes)
    contents = {"table.csv": rows, "table.md": text, "times": figure(rows)}
    return {
        "benchmark": "peers",
        "settings": settings,
        "headline": text,
        "files": write(options.out, contents),
        "failed_cells": len(wrong),
        "rows": rows,
        "notes": notes,
    }


def square_peak(sizes: tuple[int, ...]) -> tuple[int, float]:
    """Which of these square products of single precision is fastest on all cores, and
    its operations per second, the best of five calls."""
    jobs = {
        size: neural_jobs.compiled(jnp.matmul, *[jnp.ones((size, size))] * 2)
        for size in sizes
    }
    found = timed({str(size): job for size, job in jobs.items()}, repeats=5)
    rates = {size: 2 * size**3 / found[str(size)].wall.min() for size in sizes}
    best = max(rates, key=lambda size: rates[size])
    return best, rates[best]


def _images(config: Config, options: Options) -> tuple[np.ndarray, np.ndarray] | None:
    """MNIST's training images and labels where a folder is named, else none."""
    if options.data is None:
        return None
    images = find_images("mnist", options, fall_back=False).arrays
    needed = max(
        work.num_clients * work.num_samples for work in map(config.work, config.works)
    )
    held, *shape = images.train_inputs.shape
    if shape != [config.image] * 2 or held < needed:
        raise ValueError(
            f"`--data` must hold {needed} images of {config.image} x {config.image} "
            f"pixels, got {held} of {shape[0]} x {shape[1]}."
        )
    return images.train_inputs.astype(np.float32) / 255, images.train_labels


def start_of(work: Work, pool: tuple[np.ndarray, np.ndarray] | None) -> Start:
    """The clients' samples, from the pool if there is one, and this library's first
    models."""
    if pool is None:
        data = neural_jobs.client_data(work)
        start = Start(np.asarray(data.inputs), np.asarray(data.targets), {})
    else:
        number = work.num_clients * work.num_samples
        cut = lambda leaf: leaf[:number].reshape(
            work.num_clients, work.num_samples, *leaf.shape[1:]
        )
        start = Start(cut(pool[0]), cut(pool[1]).astype(np.int32), {})
    first = peers_jobs.runner(work, peers_jobs.client_data(start), 0)()
    return start._replace(models=jax.tree.map(np.asarray, first))


def _measured(
    work: Work,
    pool: tuple[np.ndarray, np.ndarray] | None,
    config: Config,
    peak: float,
    bar: Bar,
) -> tuple[Rows, list[str]]:
    """A row for each implementation of a round, and what is to be said of them."""
    everybody = peers_jobs.implementations(work, config.pfllib)
    notes = [f"{name}: {own.note}." for name, own in everybody.items() if own.note]
    processes: dict[str, Process] = {}
    first, processor = {}, {name: [] for name in everybody}
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        check_private(pathlib.Path(folder))  # Models come back as pickles.
        start = start_of(work, pool)
        file = pathlib.Path(folder, "start.pickle")
        file.write_bytes(pickle.dumps((work, start)))
        for name, own in everybody.items():
            if own.package and importlib.util.find_spec(own.package) is None:
                notes.append(f"{name}: left out, {own.package} is not installed.")
                continue
            process = stack.enter_context(
                Process(
                    peers_jobs.__name__, [name, str(file), str(config.pfllib or "")]
                )
            )
            try:
                process.ask("memory")  # When all is loaded.
                first[name] = timing.timed_call(lambda p=process: p.ask("round"))[0]
            except MeasuringError as error:
                if name.startswith(peers_jobs.OURS):
                    raise
                notes.append(f"{name}: left out, it failed: {error}")
                continue
            processes[name] = process
            bar.expect(config.repeats + 1)

        def job(name: str) -> None:
            processor[name].append(processes[name].ask("round")["processor"])
            bar.advance(1)

        times = timed(
            {name: lambda name=name: job(name) for name in processes},
            repeats=config.repeats,
            seconds=config.seconds,
            is_warm=True,
        )
        memory = {name: process.ask("memory") for name, process in processes.items()}
        models = {}
        for name, process in processes.items():
            path = pathlib.Path(process.ask("models")["path"])
            models[name] = pickle.loads(path.read_bytes())
            bar.advance(1)
    fixed = work.without_chance()
    before = in_torch_layout(fixed, start.models)
    found = {
        name: Found(
            Times(times[name].wall, np.array(processor[name])),
            first[name],
            memory[name],
            difference(models[name], models[peers_jobs.OURS], before),
        )
        for name in processes
    }
    return rows_of(work, everybody, found, peak), notes


@dataclasses.dataclass(frozen=True)
class Found:
    """What was measured of an implementation."""

    times: Times
    first: float  # seconds of the first round
    memory: dict[str, float]  # MiB at the peak, and of it by rounds; empty if untold
    difference: float  # of its models from this library's


def difference(
    models: list[np.ndarray], expected: list[np.ndarray], before: list[np.ndarray]
) -> float:
    """Largest difference of a weight, relative to the largest expected change of any of
    its layer's kernel or bias; NaN if one is."""
    return float(
        np.max(
            [
                np.max(np.abs(own - other)) / np.max(np.abs(other - start))
                for own, other, start in zip(models, expected, before, strict=True)
            ]
        )
    )


def rows_of(
    work: Work,
    everybody: Any,
    found: dict[str, Found],
    peak: float,
) -> Rows:
    """A row for each implementation that was measured."""
    asked = work.num_clients * work.num_samples * work.passes
    images, rows = {}, []
    for name in found:
        images[name] = asked
        if work.batch_size is not None:
            one = everybody[name].images(work.num_samples, work.batch_size)
            images[name] = work.num_clients * one
    each = {name: own.times.wall / images[name] for name, own in found.items()}
    same = {name: own.difference <= ROUNDING for name, own in found.items()}
    peers = [n for n in found if same[n] and not n.startswith(peers_jobs.OURS)]
    best = min(peers, key=lambda name: np.median(each[name]), default=None)
    limit = work.flops() / peak
    for name, own in found.items():
        row: dict[str, Any] = {"implementation": name, "s": own.times.median}
        row["processor s"] = float(np.median(own.times.processor))
        row["images"] = images[name]
        row[PER_IMAGE] = 1e6 * float(np.median(each[name]))
        if same[name]:
            # Of neighbours in time, then their median: drift cancels.
            ratio = None if best is None else np.median(each[best] / each[name])
            row[RATIO] = None if ratio is None else float(ratio)
            row[SHARE] = 1e6 * limit / asked / row[PER_IMAGE]
        row |= {"limit, s": limit, "limit, us per image": 1e6 * limit / asked}
        row["first round, s"] = own.first
        if own.memory:
            row["peak, MiB"] = own.memory["peak"]
            row["peak of rounds, MiB"] = own.memory["round"]
        row |= {DIFFERENCE: own.difference, "same weights": same[name]}
        row["repeats"] = len(own.times.wall)
        rows.append(row | {"note": everybody[name].note})
    return rows


def figure(rows: Rows) -> Any:
    """Time per image, one panel for each work, with the limit as a line."""
    panels = []
    for work, mine in groups(rows, "work").items():
        shown = [row for row in mine if row["same weights"]]
        panels.append(
            report.BarPanel(
                [row["implementation"] for row in shown],
                {"time of a round": column(shown, PER_IMAGE)},
                "time per image trained on, µs",
                title=work,
                limit=("products alone", mine[0]["limit, us per image"]),
            )
        )
    return report.bars(panels, panels_per_row=2)
