"""A sweep with an array of each kind, and a panel whose trials cost nothing."""

import contextlib
import pathlib
import threading
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import xarray
from engine_trial import Trial, plain_grid

from cfljax.engine import Grid, Joint, sweep
from experiments.ifca.fig3_trial import DIMS

OUTPUTS = ("value", "count", "flag")
ARRAYS = (*OUTPUTS, "done", "seconds")


def grid() -> Grid:
    """Four cells of two blocks, with an array of each kind."""
    axes = {"separation": (0.5, 1.0), "num_clients": (4, 6)}
    dims = {"value": ("number",), "count": (), "flag": ()}
    return plain_grid(axes=axes, dims=dims, num_trials=11)


def draw_kinds(
    trials: Sequence[Trial], key: jax.Array, constants: Any
) -> list[dict[str, Any]]:
    """Floats, an integer and a truth value; they depend on who is beside them."""
    del constants
    shared = np.random.default_rng(np.asarray(jax.random.key_data(key)))
    values = shared.random(3, np.float32) + len(trials)
    return [
        {
            "value": np.float32(trial.separation) * values,
            "count": np.int32(1e6 * values[0]),
            "flag": np.bool_(values[1] * trial.separation > len(trials)),
        }
        for trial in trials
    ]


KINDS = Joint(draw_kinds, shares=lambda trial: trial.num_clients)


def finish(folder: pathlib.Path) -> xarray.Dataset:
    """A finished store in a folder, and what is in it."""
    return sweep(grid(), None, folder / "s", joint=KINDS)


def contents(folder: pathlib.Path) -> dict[str, bytes]:
    files = (file for file in folder.rglob("*") if file.is_file())
    return {str(file.relative_to(folder)): file.read_bytes() for file in files}


def chunks(path: pathlib.Path, array: str) -> list[pathlib.Path]:
    return sorted((path / array).glob("c.*"))


class Calls:
    """`KINDS`, with a count of the trials of each group."""

    def __init__(self, meet: threading.Barrier | None = None) -> None:
        self.trials: Counter[tuple] = Counter()
        self._meet = meet
        self.joint = Joint(self.simulate, KINDS.shares)

    def simulate(self, trials: Sequence[Trial], key: jax.Array, constants: Any) -> Any:
        data = tuple(np.asarray(jax.random.key_data(key)).tolist())
        self.trials[trials[0].num_clients, data] += 1
        if self._meet is not None:
            with contextlib.suppress(threading.BrokenBarrierError):
                self._meet.wait(timeout=0.5)
        return draw_kinds(trials, key, constants)


SIZES = ["--separation", "1.0", "--noise", "0.1", "--num-trials", "2"]
SIZES += ["--num-restarts", "2", "--step-sizes", "0.1", "--num-rounds", "3"]


def outcomes(trials: Sequence[Any], key: Any, constants: Any) -> list[dict]:
    """Of the right names and shapes; what they say does not matter here."""
    sizes = {"restart": 2, "step_size": 1}
    shapes = {name: tuple(sizes[dim] for dim in dims) for name, dims in DIMS.items()}
    zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    return [zeros for _ in trials]
