"""What this device does, whichever it is: speeds, memory, and the CPU's outcomes.

Command:   python -m experiments bench accelerator --preset paper
           python -m experiments bench accelerator --preset paper --minutes 3
           python -m experiments bench accelerator --parts peak fig3 --json
Quick:     python -m experiments bench accelerator, tiny sizes

On whatever device JAX finds, in at most `--minutes`: one page, `accelerator.md` with
its pictures, and one file for programs, `accelerator.json`. Parts, of which `--parts`
chooses:

- peak: products of square matrices in full precision and in JAX's default one, which on
  some accelerators rounds the factors (TF32): the relative error tells.
- outcomes: small computations on this device and on the CPU of the same machine: the
  same choices of clusters and the same successes; weights as near as on a CPU from data
  that are one rounding away, which convolutions carry far.
- fig3: trials of IFCA's Figure 3(a), 10 restarts x 3 step sizes at once, with all
  rounds and with the library's shortcuts.
- law: the exact law at 1e9 clients.
- rotated: a round of IFCA on as many images as its Rotated MNIST has.
- losses: the loss matrix of Rotated CIFAR's network, all clients under all models.
- networks: rounds of FedAvg and IFCA, a perceptron and a convolutional network, from a
  hundred clients on.
- tests: those that need an accelerator (`pytest -m gpu`).

Each part runs in a process of its own, unless `--one-process`, for at most its share of
the time that is left; what it does not use is left to those that follow. What does not
fit says "not run: time" or "not run: memory"; what fails says why, and the others go
on. Set-up is drawing the data and the first models; it and compilation are timed apart
from what is measured. Operations are those of the products in a round, counted by hand:
forward passes, and backward passes without the gradient in the images.
"""

import contextlib
import dataclasses
import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any, Literal, get_args

from experiments.__main__ import plain
from experiments.bench.processes import environment
from experiments.bench.timing import headline
from experiments.checks import check_different, check_positive, configuration
from experiments.options import Options
from experiments.study import column, groups, write

BENCHMARKS = {
    "accelerator": {
        "title": "what this device does: speeds, memory, and the CPU's outcomes",
    },
}
Network = Literal["mlp", "cnn"]
Name = Literal["fedavg", "ifca"]
Part = Literal[
    "peak", "outcomes", "fig3", "law", "rotated", "losses", "networks", "tests"
]
Rows = list[dict[str, Any]]

DONE, LATE = "done", "not run: time"
ABSENT = "no accelerator"

# Shares of the time that the parts may take, in the order in which they run.
SHARES: Mapping[Part, float] = {
    "peak": 2,
    "outcomes": 4,
    "fig3": 4,
    "law": 2,
    "rotated": 2,
    "losses": 3,
    "networks": 8,
    "tests": 3,
}
TITLES: Mapping[Part, str] = {
    "peak": "Products of square matrices",
    "outcomes": "Outcomes beside those of the CPU",
    "fig3": "Figure 3(a) of IFCA: trials of 10 restarts x 3 step sizes",
    "law": "The exact law",
    "rotated": "A round of IFCA at the size of Rotated MNIST",
    "losses": "Loss matrix of Rotated CIFAR's network",
    "networks": "Rounds of FedAvg and IFCA",
    "tests": "Tests that need an accelerator",
}
FULL_SHARE, DEFAULT_SHARE = "share of full peak", "share of default peak"
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_WRITING = 5.0  # Seconds that the page may take.
_SOFT = 0.9  # Of a part's time, after which it begins nothing more.
_PAUSE = 0.05  # Seconds between two looks at what a part has written.
_LEAST = 2.0  # Seconds below which no part is started.


_ASCENDING = (  # Fields whose smallest tells what the others will take.
    *("squares", "fig3_trials", "rotated_clients", "cifar_clients", "cifar_models"),
    "clients",
)


@configuration
class Config:
    """What is measured. Defaults: the papers' sizes."""

    minutes: float = 8.0  # Of everything together, at most.
    parts: tuple[Part, ...] = get_args(Part)  # What to do.
    squares: tuple[int, ...] = (1024, 4096, 16384)
    """Rows of the square matrices, ascending."""
    outcome_clients: int = 12  # Clients of the networks whose outcomes are compared.
    outcome_rounds: int = 5  # Rounds of these, and a tenth of the regression's.
    outcome_restarts: int = 10  # Runs of the regression.
    fig3_clients: int = 100  # m of Figure 3(a).
    fig3_samples: int = 100  # n.
    fig3_features: int = 1000  # d.
    fig3_restarts: int = 10  # Starts of a trial.
    fig3_rounds: int = 300  # T.
    fig3_trials: tuple[int, ...] = (1, 16)
    """Trials computed at once, where all rounds are made; ascending."""
    fig3_shortcuts: bool = True  # Measure trials with shortcuts as well.
    law_models: tuple[Literal[2, 8], ...] = (2, 8)  # K of the exact law.
    law_trials: int = 10_000  # Of two models, and 500 times as many as of eight.
    law_rounds: int = 30  # T of both.
    rotated_clients: tuple[int, ...] = (240, 2400)
    """m of Rotated MNIST, and fewer, ascending."""
    rotated_samples: int = 100  # n.
    rotated_steps: int = 10  # Tau.
    cifar_clients: tuple[int, ...] = (20, 200)
    """m of Rotated CIFAR, and fewer, ascending."""
    cifar_samples: int = 500  # n.
    cifar_models: tuple[int, ...] = (2, 4)
    """K, models that all clients evaluate; ascending."""
    cifar_chunks: tuple[int, ...] = (5, 40)
    """Clients evaluated at a time; each is measured."""
    algorithms: tuple[Name, ...] = get_args(Name)  # Whose rounds are measured.
    networks: tuple[Network, ...] = get_args(Network)
    """What is trained in these rounds, and where outcomes are compared."""
    clients: tuple[int, ...] = (100, 1000, 10_000)
    """Clients of the rounds, ascending."""
    num_clusters: int = 4  # K of IFCA's rounds.
    image: int = 28  # Height and width of an image, in pixels.
    mlp_samples: int = 50  # Images of each client of a perceptron, all in every step.
    mlp_steps: int = 10  # Its local steps.
    mlp_hidden: int = 200  # Its hidden units.
    cnn_samples: int = 64  # The same of a convolutional network.
    cnn_steps: int = 5  # Its local steps.
    cnn_channels: tuple[int, ...] = (32, 64)
    """Its convolutions of 5 x 5 pixels, each followed by a pool."""
    cnn_hidden: int = 512  # Its hidden units.
    chunks: tuple[int, ...] = (100, 20)
    """Clients that a round computes at a time: the first that fits into the memory."""
    repeats: int = 5  # Times that anything is timed, at most; medians are reported.
    seconds: float = 5.0  # Of timing one row, after which nothing is repeated.
    one_process: bool = False
    """Measure all parts in one process, unless it ends: they begin faster, and the
    peak of memory is of all parts until then."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, tuple):
                check_different(field.name, value, "entries")
        check_positive(self, "rotated_steps", "mlp_steps", "cnn_steps")
        for name in _ASCENDING:
            values = getattr(self, name)
            if sorted(values) != list(values):
                raise ValueError(f"`{name}` must be ascending, got {values}.")


def preset(name: Literal["quick", "paper"]) -> Config:
    """ "quick" takes sizes that are over in half a minute on two idle cores, and leaves
    out `rotated`, whose rounds are like those of `networks`.
    """
    if name == "paper":
        return Config()
    return Config(
        minutes=4.0,
        parts=tuple(part for part in get_args(Part) if part != "rotated"),
        squares=(512, 1024),
        outcome_clients=4,
        outcome_rounds=2,
        fig3_clients=20,
        fig3_samples=20,
        fig3_features=100,
        fig3_rounds=50,
        fig3_trials=(1,),
        fig3_shortcuts=False,
        law_models=(2,),
        law_trials=1000,
        cifar_clients=(4,),
        cifar_samples=10,
        cifar_models=(2,),
        cifar_chunks=(2,),
        algorithms=("ifca",),
        networks=("cnn",),
        clients=(8,),
        cnn_samples=16,
        cnn_steps=1,
        cnn_channels=(8, 16),
        cnn_hidden=64,
        repeats=3,
        seconds=0.5,
        one_process=True,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Measure every part that was asked for; the page, and the file for programs."""
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    path = options.out / "accelerator.json"
    end = time.time() + max(60 * config.minutes - _WRITING, 0)
    found: dict[str, Any] = {
        "machine": None,
        "config": dataclasses.asdict(config),
        "parts": {},
    }
    wanted = sorted(config.parts, key=list(SHARES).index)
    with _Worker() as worker:
        for index, part in enumerate(wanted):
            share = SHARES[part] / sum(SHARES[later] for later in wanted[index:])
            limit = share * (end - time.time())
            _say(options, f"{TITLES[part]}, at most {limit:.0f} s ...")
            result = measure(part, config, limit, found["machine"], worker)
            found["machine"] = result.pop("machine", found["machine"])
            found["parts"][part] = result
            _say(options, f"  {result['status']}, {result['seconds']:.1f} s")
            # So that a run which is cut off leaves what it has measured.
            write(options.out, {path.name: _as_json(found)})
    add_shares(found["parts"])
    page, figures = _page(found)
    contents = {path.name: _as_json(found), "accelerator.md": page, **figures}
    return {
        "benchmark": "accelerator",
        "settings": _device(found["machine"]),
        "headline": page,
        "files": write(options.out, contents),
        "failed_cells": _failures(found["parts"]),
        "rows": _rows(found["parts"]),
        **found,
    }


class _Worker:
    """A process that measures one part after the other; a new one when it has ended."""

    def __init__(self) -> None:
        self._scratch = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        self._scratch.cleanup()

    def end(self) -> None:
        """End the process, if there is one."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def run(self, part: Part, config: Config, limit: float) -> dict[str, Any]:
        """What was found of a part, however that ended."""
        folder = pathlib.Path(self._scratch.name)
        path, log = folder / f"{part}.jsonl", folder / "log"
        path.touch()
        asked = {"part": part, "config": dataclasses.asdict(config)}
        asked |= {"end": time.time() + _SOFT * limit, "path": str(path)}
        until = time.monotonic() + limit
        if self._process is None:
            self._process = _begun(log)
        process = self._process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # It has ended, as is seen below.
            process.stdin.write(json.dumps(asked) + "\n")
            process.stdin.flush()
        status = None
        while status is None:
            found = _read(path)
            if "status" in found:
                status = found["status"]
            elif process.poll() is not None:
                self.end()
                status = f"failed ({process.returncode}): {_last_line(log)}"
            elif time.monotonic() > until:
                self.end()
                status = f"ended after {limit:.0f} s: time"
            else:
                time.sleep(_PAUSE)
        return _read(path) | {"status": status}


def _begun(log: pathlib.Path) -> subprocess.Popen[str]:
    """The process, which reads what is asked for from its input."""
    with log.open("w") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "experiments.bench.accelerator_jobs"],
            env=environment(),
            stdin=subprocess.PIPE,
            stdout=file,
            stderr=file,
            text=True,
        )


def _read(path: pathlib.Path) -> dict[str, Any]:
    """What the process has written of a part."""
    found: dict[str, Any] = {"rows": []}
    for line in path.read_text("utf-8").splitlines():
        try:
            ((kind, value),) = json.loads(line).items()
        except ValueError:
            break  # It writes just now, or was ended while it wrote.
        if kind == "row":
            found["rows"].append(value)
        else:
            found[kind] = value
    return found


def _last_line(log: pathlib.Path) -> str:
    """A process's last words."""
    lines = log.read_text("utf-8", "replace").strip().splitlines()
    return lines[-1][-300:] if lines else "no word"


def measure(
    part: Part,
    config: Config,
    limit: float,
    machine: Mapping[str, Any] | None,
    worker: _Worker,
) -> dict[str, Any]:
    """A part, ended after so many seconds: its `status`, `seconds`, `limit` and `rows`;
    where it got so far, its `memory` and `machine`.
    """
    started = time.perf_counter()
    if limit < _LEAST:
        found: dict[str, Any] = {"status": LATE, "rows": []}
    elif part == "tests":
        worker.end()  # It holds the device's memory.
        found = _tested(limit, machine)
    else:
        found = worker.run(part, config, limit)
        if not config.one_process:
            worker.end()
    return found | {"seconds": time.perf_counter() - started, "limit": limit}


def _tested(limit: float, machine: Mapping[str, Any] | None) -> dict[str, Any]:
    """Counts of the tests' outcomes."""
    if machine is not None and machine["platform"] == "cpu":
        return {"status": ABSENT, "rows": []}
    files = [
        str(path)
        for path in sorted((_ROOT / "tests").glob("test_*.py"))
        if "mark.gpu" in path.read_text("utf-8")  # pytest would import all.
    ]
    if importlib.util.find_spec("pytest") is None or not files:
        return {"status": "not run: no such tests here", "rows": []}
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-m", "gpu", *files],
            cwd=_ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired:
        return {"status": f"ended after {limit:.0f} s: time", "rows": []}
    counts = counted(ended.stdout)
    if ended.returncode or not counts:
        said = (ended.stdout.strip() or ended.stderr.strip() or "no word").splitlines()
        status = f"failed ({ended.returncode}): {said[-1][-300:]}"
        return {"status": status, "rows": [counts] if counts else []}
    return {"status": DONE, "rows": [counts]}


def counted(output: str) -> dict[str, int]:
    """Outcomes of tests and their numbers, from the last line of pytest."""
    last = (output.strip().splitlines() or [""])[-1]
    pairs = re.findall(r"(\d+) (passed|failed|skipped|error|xfailed|xpassed)", last)
    return {str(name): int(number) for number, name in pairs}


def _say(options: Options, text: str) -> None:
    if options.progress:
        print(text, file=sys.stderr, flush=True)


def _as_json(found: Mapping[str, Any]) -> str:
    return json.dumps(plain(found), indent=1, allow_nan=False) + "\n"


def _failures(parts: Mapping[str, Any]) -> int:
    """Parts and rows that failed."""
    every = [*parts.values(), *_rows(parts)]
    return sum(one["status"].startswith("failed") for one in every if "status" in one)


def _rows(parts: Mapping[str, Any]) -> Rows:
    """All rows, each with its part."""
    return [{"part": name} | row for name, own in parts.items() for row in own["rows"]]


def add_shares(parts: Mapping[str, Any]) -> None:
    """Set every row's operations a second against the best of the square products."""
    if "peak" not in parts:
        return
    for heading, precision in ((FULL_SHARE, "highest"), (DEFAULT_SHARE, "default")):
        rates = [
            row["TFLOP/s"]
            for row in parts["peak"]["rows"]
            if row["precision"] == precision and "TFLOP/s" in row
        ]
        for row in (row for own in parts.values() for row in own["rows"]):
            if rates and "TFLOP/s" in row:
                row[heading] = row["TFLOP/s"] / max(rates)


# The page


def _page(found: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Everything for people, and its pictures by their names."""
    parts, machine = found["parts"], found["machine"]
    overview = [
        {
            "part": name,
            "status": own["status"],
            "seconds": own["seconds"],
            "limit, s": own["limit"],
            "peak memory, MiB": own.get("memory", {}).get("peak, MiB"),
            "of": own.get("memory", {}).get("of"),
        }
        for name, own in parts.items()
    ]
    described = (machine or {}) | _precision(parts)
    tables: dict[str, Rows] = {
        "## Measured on": [{"what": n, "is": str(v)} for n, v in described.items()],
        "## Parts": overview,
    }
    tables |= {f"## {TITLES[name]}": own["rows"] for name, own in parts.items()}
    figures = _figures(parts)
    notes = [f"![{text}]({name}.svg)" for name, (text, _) in figures.items()]
    title = f"# cfljax on {_device(machine)}"
    return headline(title, tables, notes), {
        name: figure for name, (_, figure) in figures.items()
    }


def _device(machine: Mapping[str, Any] | None) -> str:
    if machine is None:
        return "an unknown device"
    if machine["platform"] == "cpu":
        return f"{machine['processor']}, {machine['cores']} cores"
    return f"{machine['devices']} x {machine['device']}"


def _precision(parts: Mapping[str, Any]) -> dict[str, str]:
    """Whether products round more by default, told by their errors."""
    rows = parts.get("peak", {"rows": []})["rows"]
    errors = {row["precision"]: row.get("relative error") for row in rows[:2]}
    full, usual = errors.get("highest"), errors.get("default")
    if full is None or usual is None:
        return {}
    # TF32 keeps 13 bits less of the factors than float32, of which most show.
    kind = "reduced, as in TF32" if usual > 16 * full else "that of float32"
    errors = f"relative error {usual:.1e}, {full:.1e} in full precision"
    return {"products in default precision": f"{kind}: {errors}"}


def _figures(parts: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Pictures of what was measured, each with its text; of no rows none."""
    from cfljax import report  # Which help and refusals do without.

    found: dict[str, tuple[str, Any]] = {}
    rounds = parts.get("networks", {"rows": []})["rows"]
    rounds = [row for row in rounds if "images / s" in row]
    if rounds:
        panels = [
            report.CurvePanel(
                curves=[
                    report.Curve(
                        {"fedavg": "FedAvg", "ifca": "IFCA"}[name],
                        column(own, "clients"),
                        column(own, "images / s"),
                    )
                    for name, own in groups(mine, "algorithm").items()
                ],
                x_label="clients C",
                y_label="training speed, images / s",
                y_limits=None,
                log_x=True,
                log_y=True,
                title=network,
                aside=False,
            )
            for network, mine in groups(rounds, "network").items()
        ]
        found["rounds"] = "Images a second of a round", report.curves(panels)
    shares = [
        (_what(part, row), row[FULL_SHARE], row.get(DEFAULT_SHARE, float("nan")))
        for part, own in parts.items()
        for row in own["rows"]
        if part != "peak" and FULL_SHARE in row
    ]
    if shares:
        names, full, usual = zip(*shares, strict=True)
        series = {
            "of products in full precision": column([{"": x} for x in full], ""),
            "of products in default precision": column([{"": x} for x in usual], ""),
        }
        panel = report.BarPanel(names, series, "operations a second / matrix peak")
        found["shares"] = "Shares of the matrix peak", report.bars([panel])
    return found


def _what(part: str, row: Mapping[str, Any]) -> str:
    """A row's name on the picture."""
    if part == "fig3":
        return f"Figure 3(a), trials at once: {row['trials at once']}"
    if part == "losses":
        sizes = f"{row['clients']} clients, K = {row['models']}"
        return f"CIFAR losses, {sizes}, by {row['clients at a time']}"
    name = {"fedavg": "FedAvg", "ifca": "IFCA"}[row["algorithm"]]
    network = "Rotated MNIST" if part == "rotated" else row["network"]
    return f"{name}, {network}, {row['clients']} clients"
