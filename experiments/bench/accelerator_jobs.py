"""What `accelerator` measures, part by part, in processes that run this module.

So a part that hangs, exhausts the memory or crashes costs no other part anything. A
part writes each row as soon as it is measured. Rows come in the order of their cost:
before each of them what it will take is predicted from the one before, and what does
not fit into the part's time or the device's memory is not run, and says so in its
`status`.

Programs are compiled before they are timed, and their arguments are on the device. The
images are noise: the time does not depend on what is learnt.
"""

import contextlib
import dataclasses
import functools
import itertools
import json
import os
import pathlib
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray, PyTree

from cfljax import engine, metrics
from cfljax.algorithms import fedavg, ifca
from cfljax.base import Algorithm, ClientData, Task
from cfljax.cards import CARDS, Sizes
from cfljax.data import mixed_linear
from cfljax.federated import LocalUpdate, loss_matrix, start_models
from cfljax.models import linear, rotated_cifar_cnn
from experiments.bench import law
from experiments.bench.accelerator import DONE, LATE, Config, Network, Part
from experiments.bench.neural_jobs import Program, client_data, compiled
from experiments.bench.processes import status
from experiments.bench.timing import timed
from experiments.bench.work import Work

Row = dict[str, Any]
FULL = "not run: memory"
_ROOM = 0.9  # Of the memory, for libraries that are not in XLA's plan.
_CIFAR = (32, 32, 3)  # Height, width and channels of an image.
_CIFAR_SIDES = (24, 12)  # Of what its network's convolutions give, in pixels.


class Clock(NamedTuple):
    """When a part's time is over, in seconds since the epoch."""

    end: float

    def left(self) -> float:
        """Seconds."""
        return self.end - time.time()


def measured(
    row: Row,
    make: Callable[[], Program],
    clock: Clock,
    config: Config,
    *,
    expected: float = 0.0,
) -> Row:
    """The row with what the program took, or in `status` why it was not run; `expected`
    are its seconds in all, as far as they can be told before.
    """
    if expected > clock.left():
        return row | {"status": LATE}
    started = time.perf_counter()
    try:
        program = make()
        set_up = time.perf_counter() - started - program.seconds
        row = row | {"set-up, s": set_up, "compilation, s": program.seconds}
        needed = _plan(program)
        row["planned, MiB"] = needed / 2**20
        if needed > _ROOM * engine.available_memory():
            return row | {"status": FULL}
        times = timed({"": program}, repeats=config.repeats, seconds=config.seconds)[""]
    except Exception as error:  # Of a device, which raises whatever its makers chose.
        is_full = "RESOURCE_EXHAUSTED" in str(error)
        return row | {"status": FULL if is_full else _failed(error)}
    row |= {"seconds": times.median, "repeats": len(times.wall)}
    return row | {"status": DONE}


def _plan(program: Program) -> int:
    """Bytes that a program takes by XLA's own plan; cores of a CPU share them."""
    plan = program.compiled.memory_analysis()
    if plan is None:  # Not every backend tells.
        return 0
    sizes = plan.argument_size_in_bytes, plan.temp_size_in_bytes
    shares = jax.local_device_count() if jax.default_backend() == "cpu" else 1
    return shares * (sum(sizes) + plan.output_size_in_bytes)


def _expected(row: Row | None, growth: float) -> float:
    """Seconds of a row that is so many times larger than this one, called twice. Its
    set-up is taken as this one's, which drew first and compiled what draws.
    """
    if row is None or "seconds" not in row:
        return 0.0
    return row["compilation, s"] + row["set-up, s"] + 2 * growth * row["seconds"]


# The device's own speed


def peak(config: Config, clock: Clock) -> Iterator[Row]:
    """Square products, in full precision and in the default one, with their error."""
    last: Row | None = None
    for side in config.squares:
        for name, precision in (("highest", "highest"), ("default", None)):
            row = {"side": side, "precision": name}
            make = functools.partial(_square, side, precision)
            growth = 1.0 if last is None else (side / last["side"]) ** 3
            expected = _expected(last, growth)
            row = measured(row, make, clock, config, expected=expected)
            row |= _rate(row, 2.0 * side**3)
            if row["status"] == DONE:
                last = row
                if side == config.squares[0]:
                    row["relative error"] = _error(make())
            yield row


def _square(side: int, precision: Any) -> Program:
    a, b = jax.random.normal(jax.random.key(0), (2, side, side))
    return compiled(lambda a, b: jnp.matmul(a, b, precision=precision), a, b)


def _error(program: Program) -> float:
    """Of a product against double precision, root mean square over that of entries."""
    a, b = (np.asarray(own, np.float64) for own in program.arguments)
    exact = a @ b
    error = np.asarray(program(), np.float64) - exact
    return float(np.sqrt(np.mean(error**2) / np.mean(exact**2)))


def _rate(row: Row, operations: float) -> Row:
    """Operations a second, where the row was measured."""
    return {"TFLOP/s": operations / row["seconds"] / 1e12} if "seconds" in row else {}


# Rounds and loss matrices of networks


def networks(config: Config, clock: Clock) -> Iterator[Row]:
    """Rounds of FedAvg and IFCA, the small ones of all first."""
    last: dict[tuple[str, str], Row] = {}
    for number in config.clients:
        for work in works(config, number):
            for name in config.algorithms:
                before = last.get((work.name, name))
                growth = number / before["clients"] if before else 1.0
                expected = _expected(before, growth)
                row = _round_row(name, work, config.chunks, clock, config, expected)
                if row["status"] == DONE:
                    last[work.name, name] = row
                yield row


def works(config: Config, number: int) -> list[Work]:
    """A round of so many clients with each of the networks."""
    common: dict[str, Any] = {"num_clusters": config.num_clusters}
    common |= {"image": config.image}
    mlp = Work(number, config.mlp_samples, config.mlp_steps, **common)
    cnn = Work(number, config.cnn_samples, config.cnn_steps, **common)
    every: dict[Network, Work] = {
        "mlp": dataclasses.replace(mlp, hidden=config.mlp_hidden),
        "cnn": dataclasses.replace(
            cnn, hidden=config.cnn_hidden, channels=config.cnn_channels
        ),
    }
    return [every[network] for network in config.networks]


def rotated(config: Config, clock: Clock) -> Iterator[Row]:
    """Rounds of IFCA with up to as many images as its Rotated MNIST has."""
    last: Row | None = None
    for number in config.rotated_clients:
        work = Work(
            number,
            config.rotated_samples,
            config.rotated_steps,
            num_clusters=config.num_clusters,
            image=config.image,
            hidden=config.mlp_hidden,
        )
        expected = _expected(last, number / last["clients"] if last else 1.0)
        last = _round_row("ifca", work, config.chunks, clock, config, expected)
        yield last


def _round_row(
    name: str,
    work: Work,
    chunks: tuple[int, ...],
    clock: Clock,
    config: Config,
    expected: float,
) -> Row:
    """A round, in the first of these chunks of clients that fits into the memory."""
    sizes = Sizes(work.num_clients, work.num_clusters, work.num_steps)
    passes = CARDS[name].passes(sizes)
    own: Row = {
        "network": work.name,
        "algorithm": name,
        "clients": work.num_clients,
        "images of each": work.num_samples,
        "steps": work.num_steps,
        "models": 1 if name == "fedavg" else work.num_clusters,
    }
    layers = work.layer_flops()
    images = work.num_clients * work.num_samples
    # Nothing asks for the gradient in the images themselves.
    backward = passes.backward * (2 * sum(layers) - layers[0])
    operations = float(images * (passes.forward * sum(layers) + backward))
    row = own
    for chunk in dict.fromkeys(min(chunk, work.num_clients) for chunk in chunks):
        sized = dataclasses.replace(work, clients_per_chunk=chunk)
        make = functools.partial(round_program, name, sized)
        row = own | {"clients at a time": chunk}
        row = measured(row, make, clock, config, expected=expected)
        if row["status"] != FULL:
            break
    if "seconds" in row:
        row["images / s"] = images * work.num_steps / row["seconds"]
    return row | _rate(row, operations)


def algorithm_of(name: str, work: Work) -> Algorithm:
    """FedAvg, or IFCA that averages models."""
    common: dict[str, Any] = {
        "step_size": work.step_size,
        "num_steps": work.num_steps,
        "option": "model",
        "update": LocalUpdate(clients_per_chunk=work.clients_per_chunk),
    }
    if name == "fedavg":
        return fedavg(work.task(), **common)
    return ifca(work.task(), num_clusters=work.num_clusters, **common)


def round_program(name: str, work: Work) -> Program:
    """The first round, with clients spread over the devices where there are several."""
    algorithm, data = algorithm_of(name, work), client_data(work)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    return compiled(algorithm.step, jax.random.key(1), state, data)


def losses(config: Config, clock: Clock) -> Iterator[Row]:
    """Losses of all clients under all models of Rotated CIFAR's network."""
    samples, last = config.cifar_samples, None
    task = rotated_cifar_cnn()
    layers = multiplications(task, _CIFAR_SIDES)
    settings = itertools.product(
        config.cifar_clients, config.cifar_models, config.cifar_chunks
    )
    for number, models, chunk in settings:
        row: Row = {"clients": number, "images of each": samples, "models": models}
        row |= {"clients at a time": min(chunk, number)}
        images = number * samples * models
        make = functools.partial(_matrix, task, number, samples, models, chunk)
        growth = number * models / (last["clients"] * last["models"]) if last else 1.0
        expected = _expected(last, growth)
        row = measured(row, make, clock, config, expected=expected)
        if row["status"] == DONE:
            last = row
            row["images / s"] = images / row["seconds"]
        yield row | _rate(row, 2.0 * images * sum(layers))


def _matrix(task: Task, number: int, samples: int, models: int, chunk: int) -> Program:
    shape = (number, samples)
    inputs = jax.random.uniform(jax.random.key(0), (*shape, *_CIFAR))
    targets = jax.random.randint(jax.random.key(1), shape, 0, 10)
    data = ClientData(inputs, targets, jnp.ones(shape, bool))
    start = jax.jit(functools.partial(start_models, task, num_clusters=models))
    matrix = functools.partial(loss_matrix, task, clients_per_chunk=min(chunk, number))
    return compiled(matrix, start(jax.random.key(2)), data)


def multiplications(task: Task, sides: tuple[int, ...]) -> list[int]:
    """Of a forward pass of one image, layer by layer: kernels meet every pixel of what
    their convolution gives, so high and wide, and linear layers one row.
    """
    leaves = jax.tree.leaves(jax.eval_shape(task.init, jax.random.key(0)))
    pixels = iter(side**2 for side in sides)
    return [
        leaf.size * (next(pixels) if leaf.ndim == 4 else 1)
        for leaf in leaves
        if leaf.ndim > 1
    ]


# Mixed linear regression, and its law


def fig3(config: Config, clock: Clock) -> Iterator[Row]:
    """Trials of Figure 3(a), all runs at once: all rounds made, then with shortcuts."""
    # Not above: other parts need not wait for what sweeps import.
    from experiments.bench.fig3 import Config as Figure
    from experiments.bench.fig3_comparison import NAMES, trial_key
    from experiments.ifca.fig3_trial import simulate, simulate_jointly

    last: Row | None = None
    own = Figure(
        num_clients=config.fig3_clients,
        num_samples=config.fig3_samples,
        num_features=config.fig3_features,
        num_restarts=config.fig3_restarts,
        num_rounds=config.fig3_rounds,
    )
    steps = jnp.asarray(own.step_sizes, jnp.float32)
    cells = own.cells()
    first = dataclasses.replace(cells[-1], shortcuts=False)
    runs = own.num_restarts * len(own.step_sizes)
    size = first.num_clients * first.num_samples * first.num_features
    operations = 4.0 * size * runs * first.num_clusters * first.num_rounds
    settings: Row = {
        "m": first.num_clients,
        "n": first.num_samples,
        "d": first.num_features,
        "runs": runs,
        "rounds": first.num_rounds,
    }
    one = functools.partial(simulate, first)
    for number in config.fig3_trials:
        row = {"what": "all rounds", "trials at once": number} | settings
        keys = jnp.stack([trial_key(own.seed, index) for index in range(number)])
        # A single trial is not one of a batch: XLA fuses it otherwise.
        many = jax.vmap(one, in_axes=(0, None))
        arguments = (keys[0], steps) if number == 1 else (keys, steps)
        make = functools.partial(compiled, one if number == 1 else many, *arguments)
        growth = number / last["trials at once"] if last else 1.0
        expected = _expected(last, growth)
        row = measured(row, make, clock, config, expected=expected)
        if row["status"] == DONE:
            last = row
            row["trials / s"] = number / row["seconds"]
        yield row | _rate(row, number * operations)
    for way in ("follow", "decide") if config.fig3_shortcuts else ():
        trials = [dataclasses.replace(cell, decide=way == "decide") for cell in cells]
        row = {"what": NAMES[way], "trials at once": len(trials)} | settings
        if clock.left() < 0:
            yield row | {"status": LATE}
            continue
        indices = iter(range(config.repeats + 1))
        call = lambda indices=indices, trials=trials: simulate_jointly(
            trials, trial_key(own.seed, next(indices)), steps
        )
        yield _called(row, call, config, of={"trials / s": len(trials)})


def exact_law(config: Config, clock: Clock) -> Iterator[Row]:
    """Trials of the resampled IFCA at sizes without data, in double precision."""
    rounds = config.law_rounds
    sizes = {2: (law.TWO, config.law_trials), 8: (law.EIGHT, config.law_trials // 500)}
    for models in config.law_models:
        size, trials = sizes[models][0], max(sizes[models][1], 1)
        row: Row = {
            "models": models,
            "m": size.num_clients,
            "n'": size.num_samples,
            "d": size.num_features,
            "trials": trials,
            "rounds": rounds,
        }
        if clock.left() < 0:
            yield row | {"status": LATE}
            continue
        call = law.by_law(size, num_trials=trials, num_rounds=rounds)
        yield _called(row, call, config, of={"trial rounds / s": trials * rounds})


def _called(
    row: Row, call: Callable[[], Any], config: Config, *, of: Mapping[str, float]
) -> Row:
    """The row of what compiles by itself, the first call apart, with rates."""
    started = time.perf_counter()
    call()
    row = row | {"first call, s": time.perf_counter() - started}
    times = timed(
        {"": call}, repeats=config.repeats, seconds=config.seconds, is_warm=True
    )[""]
    row |= {"seconds": times.median, "repeats": len(times.wall), "status": DONE}
    return row | {name: number / times.median for name, number in of.items()}


# Outcomes beside the CPU's


class Outcome(NamedTuple):
    """What a computation says.

    choices: cluster of every client, of every run and round.
    successes: whether each run succeeds.
    weights: final models and losses, which rounding may change.
    """

    choices: PyTree
    successes: PyTree
    weights: PyTree


class Computation(NamedTuple):
    """Something small whose outcome must be the same on every machine.

    run: from a key and data, already on the device where all is to be computed.
    """

    name: str
    settings: str
    data: ClientData
    run: Callable[[PRNGKeyArray, ClientData], Outcome]


def outcomes(config: Config, clock: Clock) -> Iterator[Row]:
    """Small computations on this device and on the CPU, from the same keys and data; on
    an accelerator in full precision too. Beside them, on the CPU, from data that are
    one rounding away, as no device can be nearer; and as a control from another key.
    """
    (device, *_), (cpu, *_) = jax.local_devices(), jax.local_devices(backend="cpu")
    precisions = ("default",) if device.platform == "cpu" else ("default", "highest")
    for computation in computations(config):
        for precision in precisions:
            row: Row = {
                "what": computation.name,
                "settings": computation.settings,
                "precision": precision,
            }
            if clock.left() < 0:
                yield row | {"status": LATE}
                continue
            name = None if precision == "default" else precision
            with jax.default_matmul_precision(name):
                key, nudged = jax.random.key(1), _nudged(computation)
                here, there = (run_on(it, computation, key) for it in (device, cpu))
                moved = run_on(cpu, nudged, key)
                other = run_on(device, computation, jax.random.key(2))
            row |= differences(here, there)
            row[f"one rounding: {_FARTHEST}"] = differences(moved, there)[_FARTHEST]
            wrong = differences(other, there)
            row |= {f"control: {name}": wrong[name] for name in _CONTROLLED}
            yield row | {"status": DONE}


_FARTHEST = "largest relative difference"
_CONTROLLED = ("choices differ", _FARTHEST)


def _nudged(computation: Computation) -> Computation:
    """With inputs that are one rounding larger: how far training carries that on."""
    data = computation.data
    larger = jnp.nextafter(data.inputs, jnp.full_like(data.inputs, jnp.inf))
    return computation._replace(data=data._replace(inputs=larger))


def run_on(place: Any, computation: Computation, key: PRNGKeyArray) -> Outcome:
    """The outcome on this device.

    Raises:
      RuntimeError: if something was computed elsewhere.
    """
    with jax.default_device(place):
        found = computation.run(*jax.device_put((key, computation.data), place))
    check_place(found, place)
    return jax.tree.map(np.asarray, found)


def check_place(found: PyTree, place: Any) -> None:
    """Raises RuntimeError where an array is not on this device alone."""
    for leaf in jax.tree.leaves(found):
        if leaf.devices() != {place}:
            raise RuntimeError(f"computed on {leaf.devices()}, not on {place}.")


def differences(one: Outcome, other: Outcome) -> Row:
    """Choices and successes that differ, of how many, and the largest difference of a
    weight over the largest weight beside it; not a number where one is not finite.
    """
    pairs = lambda field: zip(
        *(jax.tree.leaves(getattr(own, field)) for own in (one, other)), strict=True
    )
    found: Row = {}
    for field in ("choices", "successes"):
        found[f"{field} differ"] = int(sum(np.sum(a != b) for a, b in pairs(field)))
        found[field] = int(sum(a.size for a, _ in pairs(field)))
    relative = [np.max(np.abs(a - b)) / np.max(np.abs(b)) for a, b in pairs("weights")]
    return found | {"largest relative difference": float(np.max(relative))}


def computations(config: Config) -> list[Computation]:
    """Restarts of IFCA on mixed linear regression, and IFCA with both networks."""
    found = [_regression(config)]
    for work in works(config, config.outcome_clients):
        algorithm = algorithm_of("ifca", work)
        run = functools.partial(_trained, algorithm, config.outcome_rounds)
        settings = (
            f"{work.num_clients} clients, {work.num_samples} images, "
            f"{config.outcome_rounds} rounds of {work.num_steps} steps"
        )
        data = client_data(work)
        found.append(Computation(f"IFCA, {work.name}", settings, data, jax.jit(run)))
    return found


def _trained(
    algorithm: Algorithm, num_rounds: int, key: PRNGKeyArray, data: ClientData
) -> Outcome:
    """A run in which no success is defined."""
    state, trace = engine.run(
        algorithm,
        key,
        data,
        num_rounds=num_rounds,
        observe=lambda state, info: (info.assignment, info.losses),
    )
    return Outcome(trace[0], (), (state.models, trace[1]))


def _regression(config: Config) -> Computation:
    """Restarts as in the paper's Figure 3, judged by its criterion."""
    noise, rounds, restarts = 0.1, config.outcome_rounds, config.outcome_restarts
    sizes: dict[str, Any] = {"num_clients": 20, "num_clusters": 2, "num_samples": 50}
    data, truth = mixed_linear(
        jax.random.key(0),
        **sizes,
        num_features=20,
        separation=1.0,
        noise=noise,
        convention="reference",
    )
    algorithm = ifca(linear(20), num_clusters=2, step_size=0.5)
    true_models = np.asarray(truth.models)

    def one(key: PRNGKeyArray, data: ClientData) -> tuple[Array, Array, Any]:
        state, choices = engine.run(
            algorithm,
            key,
            data,
            num_rounds=10 * rounds,
            observe=lambda state, info: info.assignment,
        )
        distance = metrics.centre_distance(state.models, jnp.asarray(true_models))
        return choices, metrics.is_success(distance, 0.6 * noise), state.models

    @jax.jit
    def run(key: PRNGKeyArray, data: ClientData) -> Outcome:
        keys = jax.random.split(key, restarts)
        return Outcome(*jax.vmap(one, in_axes=(0, None))(keys, data))

    settings = f"20 clients, 50 samples, d = 20, {10 * rounds} rounds, {restarts} runs"
    return Computation("IFCA, linear regression", settings, data, run)


# The child's part


class Job(NamedTuple):
    """How a part is measured; clients spread over cores where those are devices."""

    rows: Callable[[Config, Clock], Iterator[Row]]
    spreads_clients: bool = False


JOBS: Mapping[Part, Job] = {
    "peak": Job(peak),
    "outcomes": Job(outcomes),
    "fig3": Job(fig3),
    "law": Job(exact_law),
    "rotated": Job(rotated, spreads_clients=True),
    "losses": Job(losses, spreads_clients=True),
    "networks": Job(networks, spreads_clients=True),
}


def describe_machine() -> Row:
    """The commit, versions and device, and what a product's precision is by default."""
    device = jax.local_devices()[0]
    asked = jax.config.jax_default_matmul_precision  # pyright: ignore[reportAttributeAccessIssue]
    return engine.describe_run() | {
        "platform": device.platform,
        "processor": _processor(),
        "backend": " ".join(device.client.platform_version.split()),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "memory, MiB": engine.available_memory() / 2**20,
        "default precision": "default" if asked is None else str(asked),
    }


def _processor() -> str:
    """Its name, where the system tells."""
    with contextlib.suppress(OSError):
        lines = pathlib.Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


def peak_memory() -> Row:
    """Most bytes in use, in MiB: of the device where it tells, else of this process."""
    stats = jax.local_devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in stats:
        return {"peak, MiB": stats["peak_bytes_in_use"] / 2**20, "of": "device"}
    return {"peak, MiB": status("VmHWM"), "of": "process"}


def main(part: Part, config: Config, clock: Clock, path: pathlib.Path) -> None:
    """Append to the file, a JSON a line: the machine, rows, memory, how it ended."""
    job = JOBS[part]
    if job.spreads_clients:
        engine.use_cores()  # Before anything starts JAX's backend.
        spread = engine.clients_over_devices()
    else:
        spread = contextlib.nullcontext()

    def write(kind: str, value: Any) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(json.dumps({kind: value}) + "\n")

    status = DONE
    try:
        write("machine", describe_machine())
        with spread:
            for row in job.rows(config, clock):
                write("row", row)
        write("memory", peak_memory())
    except Exception as error:  # Other parts go on.
        traceback.print_exc()
        status = _failed(error)
    write("status", status)


def _failed(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return f"failed: {text[:300]}"


if __name__ == "__main__":
    for line in sys.stdin:
        asked = json.loads(line)
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in asked["config"].items()
        }
        clock, path = Clock(asked["end"]), pathlib.Path(asked["path"])
        main(asked["part"], Config(**fields), clock, path)
