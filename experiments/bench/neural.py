"""Speed and memory of local training, and of loss matrices, for neural networks.

Command:   python -m experiments bench neural
           python -m experiments bench neural --preset paper
           python -m experiments bench neural --algorithms all
Targets:   784-200-10, 1200 clients of 50 images, 10 steps: 1.3 times the speed of a
           PyTorch loop; CNN 32-64-512, batch 64: at most 1.25 times its time; loss
           matrix of four such perceptrons: .6 of the speed of its bare products;
           compilation 20 s, 2 s where a cache holds the program
Measured:  quick, two idle cores of an Intel Xeon, on both devices unless said: the
           perceptron, 1200 clients, .24 ms a client-step, 4.4 times the speed of the
           PyTorch loop (2.2 on one device); the CNN, 120 clients, 37 ms, 1.39 times
           (.86 on one device; with 25 clients 1.07 and .92); the loss matrix at .82 of
           its bare products' speed at once, 1.9 in chunks of 50 clients; compiled in 2
           and 4 s, 1.2 s from the cache; 9 minutes in all

A round trains every client's copy of its cluster's model and averages the copies. This
library's way is `oracle` with `option="model"`: one client after the other, on one
device or spread over one device for each core, and batched. Where PyTorch is installed,
the same rounds from the same data are a loop over clients, with PyTorch's own number of
threads and with one, and `torch.func.vmap` over stacked clients. All implementations
are timed in turn within one run, at one number of clients after the other. The loss
matrix is timed beside the bare matrix products that it consists of. Memory and
compilation are measured in processes of their own. With `--algorithms`, rounds of all
algorithms are timed instead of all this: see `neural_algorithms`.

Processor times are those of all cores together. Where other programs use the machine,
threads that wait for each other are slow on the clock, PyTorch's above all: there only
the ratio of processor times to the loop on one thread means something.
"""

import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Mapping
from typing import Any, Literal

import jax
import numpy as np

from cfljax import engine, report
from experiments.bench import neural_algorithms, neural_jobs, timing
from experiments.bench.neural_jobs import measure
from experiments.bench.timing import is_busy, timed
from experiments.bench.work import Work
from experiments.checks import configuration
from experiments.options import Options
from experiments.study import column, groups, write

BENCHMARKS = {
    "neural": {
        "title": "local training and loss matrices against PyTorch and bare products",
    },
}
TITLES = {
    "training": "One round of local training and averaging, medians",
    "growth": "Milliseconds of a round against clients C: fixed + per client x C",
    "losses": "Loss matrix beside its bare matrix products, medians",
    "memory": "Peak memory of a round",
    "compilation": "Compilation",
    "targets": "Targets",
}
RATIO = "PyTorch loop's time / this"
PROCESSOR_RATIO = "one-thread loop's processor time / this"
SPEED = "speed / bare products'"

Rows = list[dict[str, Any]]
Tables = Mapping[str, Rows]


@configuration
class Config:
    """The shape of the work. Defaults: the sizes of IFCA's Rotated MNIST."""

    mlp_clients: tuple[int, ...] = (25, 120, 1200)
    """Numbers of clients C that train a perceptron."""
    mlp_samples: int = 50  # Images of each of its clients, all in every step.
    mlp_steps: int = 10  # Its local steps.
    mlp_hidden: int = 200  # Its hidden units.
    cnn_clients: tuple[int, ...] = (25, 120, 1200)
    """Numbers of clients C that train a convolutional network; none leaves it out."""
    cnn_samples: int = 64  # Images of each of its clients, all in every step.
    cnn_steps: int = 5  # Its local steps.
    cnn_channels: tuple[int, ...] = (32, 64)
    """Its convolutions of 5 x 5 pixels, each followed by a pool."""
    cnn_hidden: int = 512  # Its hidden units.
    image: int = 28  # Height and width of an image, in pixels.
    num_clusters: int = 4  # K.
    clients_per_chunk: int = 25
    """Clients computed at a time, where they are computed together."""
    loss_chunks: tuple[int, ...] = (50, 150)
    """Clients at a time in the loss matrix, besides all at once."""
    repeats: int = 5  # Times that everything is timed, at most; medians are reported.
    seconds: int | float = 60
    """Of timing at one number of clients, after which nothing is repeated again."""
    algorithms: str = ""
    """Times rounds of these beside FedAvg's, instead of all else: "all", or names with
    commas between."""
    algorithm_clients: int = 40
    """Clients of these rounds, whose other sizes are the perceptron's."""
    algorithm_samples: int = 200
    """Images of each of them, as in Werner et al.: with few, a single pass costs less
    than reading the model and writing its gradient."""
    algorithm_channels: tuple[int, ...] = ()
    """Convolutions of a second network for these rounds; none leaves it out."""

    def __post_init__(self) -> None:
        neural_algorithms.names(self.algorithms)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            values = value if isinstance(value, tuple) else (value,)
            if isinstance(value, str):
                continue
            if not all(value > 0 for value in values):
                raise ValueError(f"`{field.name}` must be positive, got {value}.")
        if not self.mlp_clients:
            raise ValueError("`mlp_clients` must name at least one number, got ().")
        if not self.cnn_channels:
            raise ValueError("`cnn_channels` must name at least one, got ().")

    def works(self) -> list[Work]:
        """All rounds that are timed."""
        common: dict[str, Any] = {
            "num_clusters": self.num_clusters,
            "image": self.image,
            "clients_per_chunk": self.clients_per_chunk,
        }
        mlp = {"hidden": self.mlp_hidden, **common}
        cnn = {"hidden": self.cnn_hidden, "channels": self.cnn_channels, **common}
        return [
            Work(count, self.mlp_samples, self.mlp_steps, **mlp)
            for count in self.mlp_clients
        ] + [
            Work(count, self.cnn_samples, self.cnn_steps, **cnn)
            for count in self.cnn_clients
        ]

    def algorithm_works(self) -> list[Work]:
        """The rounds of `algorithms`, one for each network."""
        count, steps = self.algorithm_clients, self.mlp_steps
        mlp = Work(
            count,
            self.algorithm_samples,
            steps,
            num_clusters=self.num_clusters,
            image=self.image,
            hidden=self.mlp_hidden,
        )
        if not self.algorithm_channels:
            return [mlp]
        return [mlp, dataclasses.replace(mlp, channels=self.algorithm_channels)]


def preset(name: Literal["quick", "paper"]) -> Config:
    """ "quick" leaves out the longest rounds and repeats less often."""
    if name == "quick":
        return Config(cnn_clients=(25, 120), cnn_steps=2, repeats=3, seconds=20)
    return Config(seconds=600, algorithm_channels=(8, 16))


def main(config: Config, options: Options) -> dict[str, Any]:
    """Time everything in turn; tables, a figure, and which targets are reached."""
    if config.algorithms:
        return neural_algorithms.main(
            neural_algorithms.names(config.algorithms),
            config.algorithm_works(),
            options,
            repeats=config.repeats,
            seconds=config.seconds,
        )
    devices = engine.use_cores()  # Before anything starts JAX's backend.
    busy = is_busy()
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    works = config.works()
    # The largest perceptron, and the smallest convolutional network if there is one.
    samples = [max(works, key=lambda work: (not work.channels, work.num_clients))]
    samples += [work for work in works if work.channels][:1]
    say = lambda text: print(text, file=sys.stderr) if options.progress else None
    tables: dict[str, Rows] = {}
    say("compilation and memory, in processes of their own")
    # First of all: their processes would disturb whatever is timed beside them, and
    # are the least disturbed while this one is small.
    with tempfile.TemporaryDirectory() as name:
        tables["compilation"] = _compilation_rows(samples, pathlib.Path(name))
        tables["memory"] = _memory_rows(samples, pathlib.Path(name))
    say("loss matrix")
    tables["losses"] = _loss_rows(samples[0], config)
    tables["training"] = []
    for work in works:
        say(f"{work.name}, {work.num_clients} clients")
        tables["training"] += _training_rows(work, config)
    tables["growth"] = growth(tables["training"])
    tables["targets"] = targets(tables, busy=busy)
    notes = []
    if busy:
        notes.append("Other programs used this machine: targets are not judged.")
    if not timing.has_torch():
        notes.append("PyTorch is not installed: its rows are left out.")
    if not tables["memory"]:
        notes.append("This system does not tell a process's peak memory.")
    settings = (
        f"MLP {config.image**2}-{config.mlp_hidden}-10, {config.mlp_samples} images, "
        f"{config.mlp_steps} steps; CNN {'-'.join(map(str, config.cnn_channels))}-"
        f"{config.cnn_hidden}, {config.cnn_samples} images, {config.cnn_steps} steps; "
        f"{config.num_clusters} clusters; {devices} devices, "
        f"{jax.devices()[0].device_kind}"
    )
    contents: dict[str, Any] = {
        f"{name}.csv": tables[name] for name in TITLES if tables[name]
    }
    contents["training"] = _figure(tables["training"])
    return {
        "benchmark": "neural",
        "settings": settings,
        "headline": timing.headline(
            settings, {title: tables[name] for name, title in TITLES.items()}, notes
        ),
        "files": write(options.out, contents),
        "rows": tables["training"],
        "tables": tables,
        "notes": notes,
    }


def _training_rows(work: Work, config: Config) -> Rows:
    """One row for each implementation of a round."""
    jobs = neural_jobs.training(work)
    if timing.has_torch():
        jobs |= neural_jobs.torch_training(work)
    found = timed(jobs, repeats=config.repeats, seconds=config.seconds)
    rows = []
    for name, times in found.items():
        middle, processor = times.median, float(np.median(times.processor))
        row = {
            "network": work.name,
            "clients": work.num_clients,
            "what": name,
            "ms per client-step": 1e3 * middle / work.client_steps,
            "processor ms": 1e3 * processor / work.client_steps,
            "rounds/s": 1 / middle,
            "repeats": len(times.wall),
        }
        if neural_jobs.LOOP in found:
            # Of neighbours in time, then their median: drift cancels.
            loop, single = found[neural_jobs.LOOP], found[neural_jobs.ONE_THREAD]
            shares = single.processor / times.processor
            row |= {RATIO: float(np.median(loop.wall / times.wall))}
            row |= {PROCESSOR_RATIO: float(np.median(shares))}
        rows.append(row)
    return rows


def _loss_rows(work: Work, config: Config) -> Rows:
    """Loss matrices beside the products that they consist of."""
    bare = "bare products"
    jobs = {bare: neural_jobs.bare_products(work)}
    jobs |= neural_jobs.losses(work, config.loss_chunks)
    found = timed(jobs, repeats=2 * config.repeats, seconds=config.seconds)
    sizes = work.image**2 * work.hidden + work.hidden * 10
    flops = 2.0 * sizes * work.num_clients * work.num_samples * work.num_clusters
    rows = []
    for name, times in found.items():
        ratios = [
            float(np.median(a / b)) for a, b in zip(found[bare], times, strict=True)
        ]
        row = {"what": name, "seconds": times.median}
        row |= {"GFLOP/s": flops / times.median / 1e9}
        row |= {SPEED: ratios[0], "processor times' ratio": ratios[1]}
        rows.append(row)
    return rows


def _memory_rows(works: list[Work], folder: pathlib.Path) -> Rows:
    """Peak of a round beyond its data and models; no rows where nobody tells."""
    found = {work: measure("memory", work, folder=folder) for work in works}
    return [
        {
            "network": work.name,
            "clients": work.num_clients,
            "data, MiB": own["data"],
            "models, MiB": own["models"],
            "peak beyond, MiB": own["peak"],
            "peak beyond / data": own["peak"] / own["data"],
        }
        for work, own in found.items()
        if own
    ]


def _compilation_rows(works: list[Work], folder: pathlib.Path) -> Rows:
    """Seconds until a round is compiled, without and with a cache that holds it."""
    rows = []
    for work in works:
        for state in ("cold", "warm"):
            found = measure("compilation", work, folder=folder)
            row = {"network": work.name, "clients": work.num_clients, "cache": state}
            row |= {"the round, s": found["round"], "all, s": found["all"]}
            rows.append(row | {"the round, processor s": found["processor"]})
    return rows


def growth(rows: Rows) -> Rows:
    """How a round's time grows with its clients, for each implementation: a line of
    least relative squares, the largest relative distance from it (none of two points),
    and the slope on log axes. Nothing where fewer than two numbers of clients were
    measured.
    """
    found = []
    for (network, what), mine in groups(rows, "network", "what").items():
        clients, times = column(mine, "clients"), 1e3 / column(mine, "rounds/s")
        if len(set(clients)) < 2:
            continue
        slope, fixed = np.polyfit(clients, times, 1, w=1 / times)
        deviation = float(np.max(np.abs((fixed + slope * clients) / times - 1)))
        found.append(
            {
                "network": network,
                "what": what,
                "fixed, ms": float(fixed),
                "per client, ms": float(slope),
                "largest deviation": deviation if len(clients) > 2 else None,
                "exponent": float(np.polyfit(np.log(clients), np.log(times), 1)[0]),
            }
        )
    return found


def targets(tables: Tables, *, busy: bool) -> Rows:
    """What was aimed at, what was measured in the other tables, and whether it was
    reached: open if other programs used the machine."""
    found: Rows = []

    def add(what: str, target: str, measured: float, reached: bool) -> None:
        row = {"what": what, "target": target, "measured": measured}
        verdict = "yes" if reached else "no"
        found.append(row | {"reached": "open" if busy else verdict})

    for network, least in (("MLP", 1.3), ("CNN", 1 / 1.25)):
        rows = [
            row
            for row in tables["training"]
            if row["network"] == network
            and row["what"].startswith("cfljax")
            and RATIO in row
        ]
        if not rows:
            continue
        most = max(row["clients"] for row in rows)
        # The first is what users get: sequential, on all devices.
        ratio = next(row[RATIO] for row in rows if row["clients"] == most)
        what = f"{network}, {most} clients: speed / PyTorch loop's"
        add(what, f"at least {least:g}", ratio, ratio >= least)
    best = max(row[SPEED] for row in tables["losses"][1:])
    what = "loss matrix: speed / bare products'"
    add(what, "at least 0.6", best, best >= 0.6)
    for row in tables["compilation"]:
        most = 20 if row["cache"] == "cold" else 2
        seconds = row["the round, s"]
        what = f"{row['network']}, compilation, {row['cache']} cache, s"
        add(what, f"below {most}", seconds, seconds < most)
    return found


def _figure(rows: Rows) -> Any:
    """Time of one client's step against clients, one line for each implementation."""
    name = "ms per client-step"
    panels = [
        report.CurvePanel(
            curves=[
                report.Curve(what, column(points, "clients"), column(points, name))
                for what, points in groups(mine, "what").items()
            ],
            x_label="clients C",
            y_label="time of one client's step, ms",
            y_limits=None,
            log_x=True,
            log_y=True,
            title=network,
            aside=False,
        )
        for network, mine in groups(rows, "network").items()
    ]
    return report.curves(panels)
