"""How the time and the memory of a round grow with clients and with models.

Command:   python -m experiments bench growth
           python -m experiments bench growth --preset paper --out figures/bench.growth
Targets:   time and memory grow with exponents of at most 1; beside its data a round
           holds one chunk, whatever the number of clients

Each size is measured in a process of its own, by `cfljax.run` as a user calls it: the
median of some rounds, and the peak of resident memory of one round beyond what was
there before it, data and program. FedAvg trains more and more clients, of a perceptron
and of a convolutional network; IFCA has more and more models for the same clients. An
exponent is the slope of a line of least squares on log axes.
"""

import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np

from cfljax import report
from cfljax.engine import Bar
from experiments.bench import neural_jobs, peers_jobs, processes, timing
from experiments.bench.processes import Process
from experiments.bench.timing import is_busy, timed
from experiments.bench.work import Work
from experiments.checks import check_different, check_positive, configuration
from experiments.options import Options
from experiments.study import column, groups, write

BENCHMARKS = {
    "growth": {"title": "time and memory of a round against clients and models"},
}
Rows = list[dict[str, Any]]
SECONDS, PEAK = "round, s", "peak beyond data, MiB"


@configuration
class Config:
    """One field, one flag."""

    mlp_clients: tuple[int, ...] = (30, 120, 480, 1200, 4800)
    """Numbers of clients C that train a perceptron by FedAvg."""
    cnn_clients: tuple[int, ...] = (30, 120, 480)
    """Numbers of clients that train a convolutional network."""
    num_models: tuple[int, ...] = (2, 4, 8, 16, 32)
    """Numbers of models K among which clients choose by IFCA."""
    ifca_clients: int = 120  # Clients of IFCA.
    mlp_samples: int = 50  # Images of each client with a perceptron.
    cnn_samples: int = 64  # Images of each client with a convolutional network.
    num_steps: int = 2  # Local steps on all images.
    mlp_hidden: int = 200  # Hidden units of the perceptron.
    cnn_channels: tuple[int, ...] = (32, 64)
    """Convolutions of the other network, each followed by a pool."""
    cnn_hidden: int = 512  # Its hidden units.
    image: int = 28  # Height and width of an image, in pixels.
    repeats: int = 3  # Rounds of each size, at most; medians are reported.
    seconds: int | float = 20
    """Of timing at one size, after which nothing is repeated again."""

    def __post_init__(self) -> None:
        for name in ("mlp_clients", "cnn_clients", "num_models"):
            check_different(name, getattr(self, name))
        check_positive(self, "num_steps")

    def works(self) -> list[tuple[str, str, int, Work]]:
        """Name of a curve, of its axis, size and round of all that is measured."""
        steps, image = self.num_steps, self.image
        mlp = Work(1, self.mlp_samples, steps, 1, image=image, hidden=self.mlp_hidden)
        cnn = dataclasses.replace(
            mlp,
            num_samples=self.cnn_samples,
            channels=self.cnn_channels,
            hidden=self.cnn_hidden,
        )
        found = []
        for name, one, counts in (
            ("FedAvg, MLP", mlp, self.mlp_clients),
            ("FedAvg, CNN", cnn, self.cnn_clients),
        ):
            for count in counts:
                work = dataclasses.replace(one, num_clients=count)
                found.append((name, "clients", count, work))
        for count in self.num_models:
            work = dataclasses.replace(
                mlp, num_clients=self.ifca_clients, num_clusters=count, chooses=True
            )
            found.append(("IFCA, MLP", "models", count, work))
        return found


def preset(name: Literal["quick", "paper"]) -> Config:
    """ "paper" has the convolutional network of as many clients, some minutes more."""
    if name == "quick":
        return Config()
    return Config(cnn_clients=(30, 120, 480, 1200, 4800), seconds=120)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Measure every size; two tables and a picture."""
    busy = is_busy()
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    rows: Rows = []
    with Bar("growth", visible=options.progress) as bar:
        for name, axis, size, work in config.works():
            bar.expect(1)
            rows.append({"what": name, axis: size} | _measured(work, config))
            bar.advance(1)
    notes = ["Other programs used this machine: times say little."] * busy
    tables = {"A round, medians": rows, "Exponents": exponents(rows)}
    settings = (
        f"MLP: {config.mlp_samples} images, {config.num_steps} steps; CNN: "
        f"{config.cnn_samples} images; IFCA: {config.ifca_clients} clients"
    )
    text = timing.headline(settings, tables, notes)
    contents = {"table.csv": rows, "table.md": text, "growth": figure(rows)}
    return {
        "benchmark": "growth",
        "settings": settings,
        "headline": text,
        "files": write(options.out, contents),
        "rows": rows,
        "exponents": tables["Exponents"],
        "notes": notes,
    }


def _measured(work: Work, config: Config) -> dict[str, Any]:
    """Time and memory of one size, in a process of its own."""
    with Process(__name__, [json.dumps(dataclasses.asdict(work))]) as process:
        process.ask("round")  # Compiled.
        times = timed(
            {"round": lambda: process.ask("round")},
            repeats=config.repeats,
            seconds=config.seconds,
            is_warm=True,
        )["round"]
        memory = process.ask("memory")
    return {SECONDS: times.median, **memory, "repeats": len(times.wall)}


def exponents(rows: Rows) -> Rows:
    """How each curve's time and peak grow; nothing from fewer than two sizes."""
    found = []
    for what, mine in groups(rows, "what").items():
        sizes = _sizes(mine)
        if len(mine) < 2:
            continue
        row: dict[str, Any] = {"what": what, "sizes": len(mine)}
        for name in (SECONDS, PEAK):
            if all(one.get(name, 0) > 0 for one in mine):
                slope = np.polyfit(np.log(sizes), np.log(column(mine, name)), 1)[0]
                row[f"exponent of {name}"] = float(slope)
        found.append(row)
    return found


def _sizes(rows: Sequence[Mapping[str, Any]]) -> np.ndarray:
    """Of the axis that a curve has."""
    axis = "models" if "models" in rows[0] else "clients"
    return column(rows, axis)


def figure(rows: Rows) -> Any:
    """Time and peak against the size, a panel each for clients and models."""
    panels = []
    for axis, symbol in (("clients", "C"), ("models", "K")):
        mine = [row for row in rows if axis in row]
        for name in (SECONDS, PEAK):
            if not mine or any(name not in row for row in mine):
                continue
            panels.append(
                report.CurvePanel(
                    curves=[
                        report.Curve(what, _sizes(own), column(own, name))
                        for what, own in groups(mine, "what").items()
                    ],
                    x_label=f"{axis} {symbol}",
                    y_label=name,
                    y_limits=None,
                    log_x=True,
                    log_y=True,
                    aside=False,
                )
            )
    return report.curves(panels, panels_per_row=2)


def child(text: str) -> None:
    """The process of one size: answers with a round's time and its memory."""
    settings = json.loads(text)
    work = Work(**settings | {"channels": tuple(settings["channels"])})
    data = neural_jobs.client_data(work)
    job = peers_jobs.runner(work, data, 1)

    def one_round() -> dict[str, float]:
        used = time.process_time()
        job()
        return {"processor": time.process_time() - used}

    def memory() -> dict[str, float]:
        before = processes.resident()
        job()
        found = {"data, MiB": data.inputs.nbytes / 2**20}
        if before is None:
            return found
        return found | {PEAK: (processes.status("VmHWM") or 0) - before}

    processes.answer({"round": one_round, "memory": memory})


if __name__ == "__main__":
    child(sys.argv[1])
