"""What tests of sweeps share: small trials, processes of their own, and damage.

The larger of the trials are IFCA-like rounds of linear regression.
"""

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from cfljax.engine import Grid, Joint, StoreError, sweep
from cfljax.engine.store import DONE, Store

CONVENTIONS = {"separation": (0.5, 1.0), "convention": ("paper", "reference")}
STEP_SIZES = (0.1, 0.01)
RESTARTS = 3


@dataclasses.dataclass(frozen=True)
class Trial:
    separation: float = 1.0
    noise: float = 0.1
    num_clients: int = 8
    convention: str = "paper"

    def __post_init__(self) -> None:
        if self.noise < 0:
            raise ValueError(f"`noise` must not be negative, got {self.noise}.")


def simulate(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    """Rounds of products, argmin and means; `constants` scales the inputs."""
    samples, features, clusters = 12, 7, 2
    sizes = [clusters, trial.num_clients * samples, RESTARTS * clusters]
    rows = sum(sizes) + sizes[1]  # One draw for all: each takes long to compile.
    drawn = jax.random.normal(key, (rows * features,)).reshape(rows, features)
    truth, inputs, models, noise = jnp.split(drawn, np.cumsum(sizes))
    truth, inputs = trial.separation * truth, constants * inputs
    which = jnp.repeat(jnp.arange(trial.num_clients) % clusters, samples)
    targets = jnp.sum(inputs * truth[which], axis=1)
    targets = targets + trial.noise * noise[:, 0]
    step_sizes = jnp.asarray(STEP_SIZES)[None, :, None, None]
    models = models.reshape(RESTARTS, 1, clusters, features) + 0 * step_sizes
    shape = (trial.num_clients, samples, *models.shape[:3])
    scale = 2.0 if trial.convention == "paper" else 1.0

    def residuals(models):
        predicted = inputs @ models.reshape(-1, features).T
        return (predicted - targets[:, None]).reshape(shape)

    def step(models, _):
        error = residuals(models)
        chosen = jnp.argmin(jnp.mean(error**2, axis=1), axis=-1)
        mine = jax.nn.one_hot(chosen, clusters, dtype=error.dtype)[:, None]
        pull = inputs.T @ (error * mine).reshape(inputs.shape[0], -1)
        gradient = jnp.moveaxis(pull.reshape(features, *models.shape[:3]), 0, -1)
        return models - scale / inputs.shape[0] * step_sizes * gradient, chosen

    models, chosen = jax.lax.scan(step, models, None, length=20)
    gaps = models[:, :, :, None] - truth[None, None, None]
    distances = jnp.sqrt(jnp.sum(gaps**2, axis=-1))
    return {
        "distance": jnp.max(jnp.min(distances, axis=-1), axis=-1),
        "assignment": chosen[-1, :, 0, 0],
        "success": jnp.min(distances) < 0.5,
    }


def small_grid(**changes: Any) -> Grid:
    """Two separations, three blocks each, the last one short."""
    dims = {"distance": ("restart", "step_size"), "assignment": ("client",)}
    usual: dict[str, Any] = {
        "experiment": "toy",
        "axes": {"separation": (0.5, 1.0)},
        "dims": dims | {"success": ()},
        "coords": {"step_size": STEP_SIZES},
    }
    return plain_grid(**(usual | changes))


def draw(trial: Trial, key: jax.Array, constants: Any) -> dict[str, jax.Array]:
    """Three uniform numbers, for what does not depend on the trial."""
    del constants
    return {"value": trial.separation * jax.random.uniform(key, (3,))}


def plain_grid(**changes: Any) -> Grid:
    """A grid for `draw` whose cells differ in what is traced."""
    usual: dict[str, Any] = {
        "experiment": "plain",
        "trial": Trial(),
        "axes": {"separation": (0.5, 1.0), "noise": (1.0, 2.0)},
        "num_trials": 23,
        "dims": {"value": ("number",)},
        "traced": ("separation", "noise"),
    }
    return Grid(**(usual | changes))


def draw_jointly(
    trials: Sequence[Trial], key: jax.Array, constants: Any
) -> list[dict[str, np.ndarray]]:
    """`draw` of several cells, which share the numbers."""
    del constants
    shared = np.asarray(jax.random.uniform(key, (3,)))
    return [{"value": np.float32(trial.separation) * shared} for trial in trials]


JOINT = Joint(draw_jointly, shares=lambda trial: trial.num_clients)
# Six cells in two groups that share their data.
AXES = {"separation": (0.5, 1.0, 2.0), "num_clients": (4, 6)}


def insist(grid: Grid, simulate: Any, path: pathlib.Path | str, **options: Any) -> None:
    """Sweep, again for as long as another process computes something."""
    while True:
        try:
            sweep(grid, simulate, path, progress=False, **options)
            return
        except StoreError as error:
            if "computed by another run" not in str(error):
                raise
            time.sleep(0.02)


@contextlib.contextmanager
def interrupted_after(writes: int) -> Iterator[None]:
    """Inside, the sweep is interrupted when it has written some blocks."""
    original, done = Store.write, []

    def write(self, *arguments, **options):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(arguments)
        original(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "write", write)
        with pytest.raises(KeyboardInterrupt):
            yield


# Processes of their own

HERE = pathlib.Path(__file__).resolve().parent
PATIENCE = 120.0  # Seconds that a process waits for another before it gives up.
# Where what was compiled is kept, of Python's and of JAX's, is all that tests share.
KEPT = ("CFLJAX_CACHE", "PYTHONPYCACHEPREFIX")
BARE = {"PATH": "/usr/bin:/bin", "CFLJAX_CACHE": "off"}
BARE |= {name: os.environ[name] for name in KEPT if name in os.environ}
# Imports everything and starts nothing, so that what it calls may fork.
SERVER = """
import importlib, json, sys, warnings
warnings.simplefilter("ignore")
calls, cores = map(json.loads, sys.argv[2:])
if cores:
    from cfljax import engine
    assert engine.use_cores(cores) == cores  # Before a file's constants start JAX.
    import conftest
play = importlib.import_module(sys.argv[1])
print(json.dumps([getattr(play, name)(*rest) for name, *rest in calls]))
"""


def known(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which the tests can be imported."""
    return {**environment, "PYTHONPATH": f"{HERE}:{HERE.parent}"}


def serve(
    module: str, *calls: tuple, cores: int = 0, env: Mapping[str, str] = BARE
) -> list[Any]:
    """What functions of a file return in a process that has not started JAX, or of
    which JAX sees the cores as devices."""
    command = [sys.executable, "-c", SERVER, module, json.dumps(calls), str(cores)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=known(env), timeout=5 * PATIENCE
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # After what commands said.


def fork(work: Callable[[], object]) -> int:
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    return process


def wait_for(is_true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not is_true():
        if time.monotonic() > deadline:
            raise TimeoutError("the other process did not come")
        time.sleep(0.002)


def log(kind: str, *words: object) -> None:
    """Append a line to the file that processes share."""
    with pathlib.Path(os.environ["TRIAL_LOG"]).open("a") as file:
        file.write(" ".join(map(str, (kind, os.getpid(), *words))) + "\n")


# Blocks, and damage to them


def block_file(path: pathlib.Path, grid: Grid, *block: int) -> pathlib.Path:
    """Where a store has a block: the cell's place on every axis, then its number."""
    return Store(path, grid).file(block)


def lose(path: pathlib.Path, grid: Grid, *blocks: tuple[int, ...]) -> None:
    """Remove some blocks."""
    for block in blocks:
        block_file(path, grid, *block).unlink()


def num_done(path: pathlib.Path, grid: Grid) -> int:
    """How many blocks of a grid a store has."""
    return int(np.sum(Store(path, grid).states == DONE))


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def damage(file: pathlib.Path, kind: str, *, left: int = -1) -> None:
    """Of a kind: missing, empty, flipped in one bit, or truncated to what is left."""
    whole = file.read_bytes()
    if kind == "missing":
        file.unlink()
    else:
        flipped = bytes([whole[0] ^ 1]) + whole[1:]
        broken = {"truncated": whole[:left], "empty": b"", "flipped": flipped}
        file.write_bytes(broken[kind])


def filling(monkeypatch: pytest.MonkeyPatch, room: int) -> list[str]:
    """Let the disk fill up after some files were written; of the next one half is."""
    written: list[str] = []

    def limited(original):
        def write(self, content=b"", *arguments, **options):
            written.append(str(self))
            if len(written) <= room:
                return original(self, content, *arguments, **options)
            original(self, content[: len(content) // 2], *arguments, **options)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

        return write

    for name in ("write_bytes", "write_text"):
        original = getattr(pathlib.Path, name)
        monkeypatch.setattr(pathlib.Path, name, limited(original))
    return written


def is_alike(one: xarray.Dataset, other: xarray.Dataset) -> bool:
    """Whether results are the same, by whichever code."""
    return one.drop_vars("code").identical(other.drop_vars("code"))
