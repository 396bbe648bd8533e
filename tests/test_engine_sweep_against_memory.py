"""Chunks must fit in the memory allowed, by XLA's account and by the system's."""

import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest
from engine_trial import plain_grid

from cfljax.engine import sweep
from cfljax.engine.programs import available_memory, fit_chunk, needed_memory

SIDE, CHUNK = 2500, 4  # A square of floats is 24 MiB, a chunk of them 95.

SCRIPT = """
import pathlib, re, sys
from test_engine_sweep_against_memory import CHUNK, one_cell, small, square
from cfljax.engine import sweep
from cfljax.engine.programs import needed_memory

module = sys.modules[sweep.__module__]
folder, fit, needed = pathlib.Path(sys.argv[1]), module.fit_chunk, []

def peak():
    # Of this program: the peak that getrusage tells includes the parent's at the fork.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", status)[1]) / 1024

def noted(*arguments, **options):
    program = fit(*arguments, **options)
    needed.append(needed_memory(program, block=5) / 2**20)
    return program

module.fit_chunk = noted
sweep(one_cell(), small, folder / "small", batching="vmap")
before = peak()
sweep(one_cell(), square, folder / "square", chunk=CHUNK, batching="vmap")
print(needed[-1], peak() - before)
"""


def one_cell():
    return plain_grid(axes={}, num_trials=5)


def small(trial, key, constants):
    return {"value": jax.random.uniform(key, (1,))}


def square(trial, key, constants):
    """Two products, between which the square must be kept."""
    drawn = jax.random.bits(key, (SIDE * SIDE,)).reshape(SIDE, SIDE)
    matrix = drawn.astype(jnp.float32)
    return {"value": (matrix @ (jnp.ones(SIDE) @ matrix))[:1]}


def outer(trial, key, constants):
    """Some memory per trial, and little to compile."""
    row = jnp.arange(300.0) * jax.random.uniform(key)
    matrix = row[:, None] * row[None]
    return {"value": (matrix @ matrix)[0, :1]}


@pytest.fixture
def fitted(monkeypatch):
    """The fitted that sweeps have run."""
    found, fit = [], fit_chunk

    def noted(*arguments, **options):
        found.append(fit(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(sys.modules[sweep.__module__], "fit_chunk", noted)
    return found


def test_chunk_is_the_largest_that_fits(tmp_path, fitted):
    run = lambda name, **options: sweep(
        one_cell(), outer, tmp_path / name, batching="vmap", **options
    )
    run("all")
    run("three", chunk=3)
    assert [program.chunk for program in fitted] == [5, 3]
    allowed = needed_memory(fitted[1], block=5)
    run("fitting", memory=allowed)
    assert fitted[-1].chunk == 3
    with pytest.raises(ValueError, match=r"`chunk` of 5 .* chunk of 3 would fit") as e:
        run("refused", memory=allowed, chunk=5)
    assert "\n" not in str(e.value)
    with pytest.raises(ValueError, match=r"allows 97.7 KiB but one trial needs \d"):
        run("tiny", memory=100_000)
    assert not (tmp_path / "tiny" / "value").exists()


def test_available_memory_is_that_of_the_machine():
    physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 2**20 < available_memory() <= physical


def test_peak_is_what_was_announced(tmp_path: pathlib.Path):
    """In a process of its own, whose peak the system measures."""
    here = pathlib.Path(__file__).parent
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    environment = {"PYTHONPATH": f"{here}:{here.parent}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    needed, grown = map(float, done.stdout.split())
    data = CHUNK * 4 * SIDE**2 / 2**20
    assert needed > 0.9 * data
    assert 0.5 * needed < grown < 1.3 * needed + 30, (needed, grown)
