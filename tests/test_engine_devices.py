"""Chunks that fit in memory, and trials spread over local devices."""

import os
import pathlib
import re
import tempfile

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from engine_trial import Trial, draw, plain_grid, serve, simulate

from cfljax import engine
from cfljax.engine import ways
from cfljax.engine.devices import trial_devices
from cfljax.engine.programs import (
    Batching,
    available_memory,
    compile_trials,
    fit_chunk,
    needed_memory,
    placed,
    run_trials,
)

# Against itself: memory, by XLA's account and by the system's

SIDE, CHUNK = 2500, 4  # A square of floats is 24 MiB, a chunk of them 95.


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


def note_fitted(monkeypatch):
    """The programs that sweeps run from now on."""
    found = []

    def noted(*arguments, **options):
        found.append(fit_chunk(*arguments, **options))
        return found[-1]

    monkeypatch.setattr(ways, "fit_chunk", noted)
    return found


@pytest.mark.long
def test_chunk_is_the_largest_that_fits(tmp_path, monkeypatch):
    fitted = note_fitted(monkeypatch)
    run = lambda name, **options: engine.sweep(
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


def peak():  # In MiB. That of getrusage includes the parent's at the fork.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024


def announced_and_grown(folder):
    """MiB that a chunk of squares needs, and by how much the process grew."""
    programs = note_fitted(pytest.MonkeyPatch())
    run = lambda trial, **options: engine.sweep(
        one_cell(), trial, pathlib.Path(folder, trial.__name__), **options
    )
    run(small, batching="vmap")
    before = peak()
    run(square, chunk=CHUNK, batching="vmap")
    return needed_memory(programs[-1], block=5) / 2**20, peak() - before


@pytest.mark.slow
def test_peak_is_what_was_announced(tmp_path):
    """In a process of its own, whose peak the system measures."""
    call = ("announced_and_grown", str(tmp_path))
    ((needed, grown),) = serve(__name__, call)
    data = CHUNK * 4 * SIDE**2 / 2**20
    assert needed > 0.9 * data
    assert 0.5 * needed < grown < 1.3 * needed + 30, (needed, grown)


# Against itself: trials on several devices are those of one

KEY, OTHER = jax.random.key(0), jax.random.key(1)
RANGES = (slice(0, 10), slice(20, 27))  # Counts that devices do and do not divide.
# Devices of chunks, of which some are larger than the chunk.
CASES = tuple((devices, chunk) for devices in (2, 4) for chunk in (1, 3, 10))


def on_four_devices(function, *arguments):
    """What a function of this file returns in a process that has four devices."""
    call = (function.__name__, *arguments)
    return serve(__name__, call, cores=4, env=os.environ)[0]


def iterated(trial, key, constants):
    """A loop whose length is random, and a choice that spoils some trials."""
    start = jax.random.uniform(key, (5,))

    def shrink(state):
        step, values = state
        factor = jax.random.uniform(jax.random.fold_in(key, step))
        return step + 1, values * (1 - 0.1 * factor)

    unfinished = lambda state: jnp.max(state[1]) > 0.1 * trial.separation
    steps, values = jax.lax.while_loop(unfinished, shrink, (jnp.int32(0), start))
    spoiled = jnp.where(steps % 3 == 0, jnp.nan, values)
    return {"steps": steps, "values": constants * spoiled, "none": values[:0]}


def at_once(trial, key, constants):
    matrix = jax.random.uniform(key) * jnp.eye(5)
    return {"value": jnp.linalg.cholesky(jnp.tile(matrix, (3, 1, 1)))}


def one_by_one(trial, key, constants):
    return {"value": jnp.linalg.cholesky(jax.random.uniform(key) * jnp.eye(5))}


def compiled(
    chunk, devices, function=outer, batching: Batching = "vmap", key=KEY, constants=None
):
    options = {"chunk": chunk, "batching": batching, "devices": devices}
    return compile_trials(function, Trial(), key, constants, **options)


def results(function, devices, chunk, key=KEY, batching: Batching = "map"):
    """Outputs of both ranges, and how often the trial was traced."""
    traces = []

    def traced(*arguments):
        traces.append(arguments)
        return function(*arguments)

    program = compiled(chunk, devices, traced, batching, key, jnp.float32(1.0))
    assert program.chunk == chunk and program.devices == min(devices, chunk)
    constants = placed(program, jnp.float32(1.0))
    run = lambda trials, separation: run_trials(
        program, Trial(separation), key, constants, trials=trials
    )[0]
    parts = [run(trials, 1.0) for trials in RANGES] + [run(RANGES[1], 0.5)]
    return parts, len(traces)


def digests(parts):
    return [
        {name: values.tobytes().hex() for name, values in part.items()}
        for part in parts
    ]


def check_sweep_of_spread_clients():
    """Of one device at a time each: its arrays may lie on all that clients are on."""
    with tempfile.TemporaryDirectory() as folder:
        plain = engine.sweep(plain_grid(), draw, pathlib.Path(folder) / "one")
        with engine.clients_over_devices(2):
            spread = engine.sweep(plain_grid(), draw, pathlib.Path(folder) / "two")
    assert plain.attrs["failures"] == spread.attrs["failures"] == 0
    np.testing.assert_array_equal(plain["value"], spread["value"])


def all_results():
    check_refusals()  # Here, since it takes seconds to start a process.
    check_sweep_of_spread_clients()
    rows = []
    for function, cases in ((iterated, CASES), (simulate, ((2, 10), (4, 3)))):
        for devices, chunk in cases:
            parts, traces = results(function, devices, chunk)
            rows.append((function.__name__, devices, chunk, traces, digests(parts)))
    return rows


@pytest.mark.long
def test_devices_and_chunks_do_not_change_a_bit_and_refuse():
    rows = on_four_devices(all_results)
    assert len(rows) == len(CASES) + 2
    alone = {function: results(function, 1, 10)[0] for function in (iterated, simulate)}
    for function, parts in alone.items():
        expected = digests(parts)
        other = digests(results(function, 1, 10, key=OTHER)[0])
        for name, devices, chunk, traces, found in rows:
            if name == function.__name__:
                assert found == expected, (name, devices, chunk)
                assert traces == 1
        # Control: another key gives other bits of every output that has numbers.
        for one, two in zip(expected, other, strict=True):
            assert all(one[name] != two[name] for name in one if one[name])
    outputs = alone[iterated][0]
    assert 0 < np.sum(np.isnan(outputs["values"][:, 0])) < 10
    assert len(set(outputs["steps"].tolist())) > 2


def check_batched():
    expected, _ = results(simulate, 1, 10, batching="vmap")
    for devices, chunk in CASES:
        parts, _ = results(simulate, devices, chunk, batching="vmap")
        for part, whole in zip(parts, expected, strict=True):
            np.testing.assert_array_equal(part["assignment"], whole["assignment"])
            np.testing.assert_allclose(part["distance"], whole["distance"], rtol=1e-4)
            assert np.max(np.abs(np.diff(part["distance"], axis=0))) > 1e-2  # Control.


@pytest.mark.slow
def test_batched_trials_agree_up_to_rounding():
    on_four_devices(check_batched)


def check_refusals():
    with engine.clients_over_devices(2):
        assert len(trial_devices(1)) == 1
        with pytest.raises(ValueError, match="inside `clients_over_devices`"):
            trial_devices(2)
    for number in (0, 5):
        with pytest.raises(ValueError, match=rf"must be in 1..4, got {number}"):
            trial_devices(number, at_most=3)
    assert trial_devices(4, at_most=3) == jax.local_devices()[:3]
    # Of these the first hung. One after the other, or on one device, they do not.
    with pytest.raises(ValueError, match=r"`cholesky` of a batch .* \(3, 5, 5\)"):
        compiled(3, 2, at_once, "map")
    compiled(3, 2, one_by_one, "map")
    compiled(3, 1, at_once, "map")
    with pytest.raises(ValueError, match=r"`cholesky` of a batch .* \(2, 5, 5\)"):
        compiled(4, 2, one_by_one, "vmap")


def test_more_devices_than_there_are_are_refused():
    available = jax.local_device_count()
    for number in (0, available + 1):
        with pytest.raises(ValueError, match=rf"1..{available}, got {number}"):
            compiled(3, number, draw, "map")


def check_chunks():
    """The largest chunk that fits is found, though rows come in fours; each device's
    plan is counted."""
    needed = [needed_memory(compiled(size, 4), block=9) for size in range(1, 10)]
    assert needed[3] < needed[4] and needed[4] < 1.01 * needed[7] < needed[8]
    plan = compiled(9, 4).compiled[0].memory_analysis()
    assert plan is not None and needed[8] > 4 * plan.temp_size_in_bytes > needed[0]
    for size in (1, 3, 4, 8):
        own = lambda chunk: compiled(chunk, 4)
        fitting = fit_chunk(own, block=9, chunk=None, memory=needed[size - 1])
        assert (fitting.chunk, fitting.devices) == (size, min(size, 4))


@pytest.mark.slow
def test_chunk_is_the_largest_that_fits_on_all_devices():
    on_four_devices(check_chunks)


def memory_of(devices):
    """MiB announced, and by how much the process grew at its peak."""
    run = lambda program, count: run_trials(
        program, Trial(), KEY, [None] * program.devices, trials=slice(0, count)
    )
    run(compiled(4, devices, draw), 4)
    program = compiled(4, devices, square, "map")
    before = peak()
    run(program, 4)
    return needed_memory(program, block=4) / 2**20, peak() - before


@pytest.mark.slow
def test_peak_of_several_devices_is_what_was_announced():
    pairs = [on_four_devices(memory_of, number) for number in (1, 2, 4)]
    announced, grown = zip(*pairs, strict=True)
    for needed, found in zip(announced, grown, strict=True):
        assert 0.5 * needed < found < 1.3 * needed + 30, (announced, grown)
    one = 4 * SIDE**2 / 2**20
    assert announced[2] > 3.6 * one  # Control: one device's plan is not enough.
    assert grown[2] > 1.5 * announced[0]
