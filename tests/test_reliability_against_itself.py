"""Figure 3's trials: the same bits however they are cut, shared out and resumed."""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray

from cfljax.engine.store import Store
from experiments.ifca import fig3, fig3_trial
from experiments.ifca.fig3_trial import successful, thresholds
from experiments.options import Options

HERE = pathlib.Path(__file__).resolve().parent
TRACED = fig3.Config(
    convention=("reference",),
    separation=(0.5, 1.0),
    noise=(0.0, 0.1),
    num_clients=(6,),
    num_samples=(8,),
    num_clusters=2,
    num_features=4,
    step_sizes=(0.5, 0.1),
    num_trials=11,
    tolerance=0.001,
    num_restarts=2,
    num_rounds=5,
    shortcuts=False,
)
JOINT = dataclasses.replace(TRACED, shortcuts=True)
WAYS = {"traced": TRACED, "joint": JOINT}


def run(
    folder: pathlib.Path, config: fig3.Config, *, workers: int = 1, **options: Any
) -> xarray.Dataset:
    """The panel's results, computed by some workers one after the other."""
    cells = fig3.grid("ifca.fig3a", config)
    options = {"out": folder, "progress": False, **options}
    for number in range(workers, 0, -1):
        own = Options(**options, shard=(number, workers))
        result = fig3.compute(cells, config, own)
    assert result.attrs["open_blocks"] == 0
    return result


@pytest.fixture(scope="module")
def whole(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[str], xarray.Dataset]:
    folder = tmp_path_factory.mktemp("whole")
    return lambda way: run(folder / way, WAYS[way])


@contextlib.contextmanager
def interrupted_after(writes: int) -> Iterator[None]:
    """Inside, the sweep is interrupted when it has written some blocks."""
    original, done = Store.write, []

    def write(self, *arguments):
        if len(done) == writes:
            raise KeyboardInterrupt
        done.append(arguments)
        original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "write", write)
        with pytest.raises(KeyboardInterrupt):
            yield


@pytest.mark.slow
def test_chunks_workers_and_interrupts_do_not_change_a_bit(tmp_path, whole):
    with interrupted_after(3):
        run(tmp_path, TRACED, chunk=3)
    found = run(tmp_path, TRACED, chunk=1, workers=2)
    assert found.identical(whole("traced"))
    assert found["recovered"].values.any() and not found["recovered"].values.all()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("chunk", [1, 3, 10])
def test_no_chunk_and_no_worker_changes_a_bit(tmp_path, whole, chunk, workers):
    found = run(tmp_path, TRACED, chunk=chunk, workers=workers)
    assert found.identical(whole("traced"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_no_worker_changes_a_bit_of_cells_computed_together(tmp_path, whole, workers):
    assert run(tmp_path, JOINT, workers=workers).identical(whole("joint"))


@pytest.mark.slow
@pytest.mark.parametrize("way", ["traced", "joint"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_no_interrupt_changes_a_bit(tmp_path, whole, way, seed):
    """Nor several of them, between the cells of a block among others."""
    chance, left = random.Random(seed), 8
    while left > 1:
        writes = chance.randrange(0, left)
        with interrupted_after(writes):
            run(tmp_path, WAYS[way])
        left -= max(1, writes)
    assert run(tmp_path, WAYS[way]).identical(whole(way))


# Prints what `digests` gives on as many devices as the command line says.
ON_DEVICES = """
import pathlib, sys
from cfljax import engine
devices = int(sys.argv[1])
assert engine.use_cores(devices) == devices
import conftest, json, test_reliability_against_itself as tests
print(json.dumps(tests.digests(pathlib.Path(sys.argv[2]), devices)))
"""


def digests(folder: pathlib.Path, devices: int) -> dict[str, dict[str, str]]:
    """The bits of every output, by chunk."""
    return {
        str(chunk): bits(run(folder / str(chunk), TRACED, chunk=chunk, devices=devices))
        for chunk in (1, 3, 10)
    }


def bits(results: xarray.Dataset) -> dict[str, str]:
    return {str(name): own.values.tobytes().hex() for name, own in results.items()}


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_no_device_changes_a_bit(tmp_path, whole, devices):
    done = subprocess.run(
        [sys.executable, "-c", ON_DEVICES, str(devices), str(tmp_path)],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": f"{HERE}:{HERE.parent}"},
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    expected = bits(whole("traced"))
    assert json.loads(done.stdout) == dict.fromkeys(["1", "3", "10"], expected)


@contextlib.contextmanager
def double_precision() -> Iterator[None]:
    """Inside, arithmetic is in float64, of the numbers that float32 draws."""
    normal, bernoulli = jax.random.normal, jax.random.bernoulli

    def drawn(key, shape=(), dtype=None):
        del dtype
        return normal(key, shape, jnp.float32).astype(jnp.float64)

    def chosen(key, p=0.5, shape=None):
        return bernoulli(key, jnp.asarray(p, jnp.float32), shape)

    with jax.enable_x64(True), pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.random, "normal", drawn)
        patch.setattr(jax.random, "bernoulli", chosen)
        yield


STABLE = dataclasses.replace(
    TRACED, separation=(1.0,), noise=(0.1,), num_samples=(30,), num_rounds=100
)


def outcomes(dtype: Any, seed: int = 0) -> dict[str, np.ndarray]:
    """Trials of a stable configuration, long enough to converge."""
    step_sizes = jnp.asarray(STABLE.step_sizes, dtype)
    key = jax.random.key(seed)
    one = lambda index: fig3_trial.simulate(
        STABLE.trial, jax.random.fold_in(key, index), step_sizes
    )
    found = jax.jit(lambda: jax.lax.map(one, jnp.arange(6, dtype=jnp.uint32)))()
    assert found["distance"].dtype == dtype
    return {name: np.asarray(values) for name, values in found.items()}


def test_single_precision_decides_as_double_does():
    single = outcomes(jnp.float32)
    with double_precision():
        double, other = outcomes(jnp.float64), outcomes(jnp.float64, seed=1)
    limits = thresholds(STABLE.trial, STABLE.tolerance)
    decided = successful(single, limits)
    for criterion, expected in successful(double, limits).items():
        np.testing.assert_array_equal(decided[criterion], expected)
        assert 0 < np.sum(expected) < expected.size
    for name in ("used_clusters", "recovered", "followed"):
        np.testing.assert_array_equal(single[name], double[name])
    for name in ("distance", "nearest_distance", "loss", "first_loss", "alpha", "gap"):
        np.testing.assert_allclose(single[name], double[name], rtol=0, atol=1e-4)
        # Controls: rounding there is, and other data are further apart than that.
        assert np.any(single[name] != double[name])
        assert np.max(np.abs(other[name] - double[name])) > 1e-3
