"""Whatever machines do, a sweep ends right or says one line."""

import contextlib
import dataclasses
import datetime
import errno
import os
import pathlib
import platform
import random
import shutil
import socket
import stat
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray
from engine_trial import (
    Trial,
    block_file,
    contents,
    damage,
    filling,
    interrupted_after,
    lose,
    num_done,
    plain_grid,
    serve,
)
from toy_experiments import retyped

import cfljax.engine.provenance
from cfljax.engine import Joint, StoreError, sweep
from cfljax.engine.claims import Claims
from cfljax.engine.store import Store
from experiments.__main__ import main
from experiments.ifca import fig3, fig3_trial
from experiments.ifca.fig3_trial import DIMS, successful, thresholds
from experiments.options import Options

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

# A sweep with an array of each kind, and a panel whose trials cost nothing

# Four cells of two blocks, with an array of each kind.
GRID = plain_grid(
    axes={"separation": (0.5, 1.0), "num_clients": (4, 6)},
    dims={"value": ("number",), "count": (), "flag": ()},
    num_trials=11,
)


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


def finish(path: pathlib.Path, joint: Joint = KINDS, **options: Any) -> xarray.Dataset:
    return sweep(GRID, None, path, joint=joint, **options)


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


@pytest.fixture
def command(monkeypatch, capsys):
    """Runs a panel whose trials cost nothing; returns exit status, stdout, stderr."""
    monkeypatch.setattr(fig3, "simulate_jointly", outcomes)

    def run(panel: str, *flags: str) -> tuple[int, str, str]:
        status = main(["run", panel, "--shortcuts", *retyped(SIZES, flags)])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return run


@pytest.fixture
def panel(tmp_path, command):
    """Runs a panel that is done."""
    out = ("--out", str(tmp_path / "out"))
    run = lambda *flags: command("ifca.fig3a", *out, "--shard", "1/1", *flags)
    assert run()[0] == 0
    return run


# Against failures: damage is noticed and repaired


@pytest.fixture(scope="module")
def finished_sweep(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of a sweep that nothing disturbed, to be copied."""
    folder = tmp_path_factory.mktemp("finished")
    finish(folder / "s")
    return folder


@pytest.fixture(scope="module")
def sweep_results(finished_sweep: pathlib.Path) -> xarray.Dataset:
    return finish(finished_sweep / "s")


@pytest.fixture
def path(tmp_path: pathlib.Path, finished_sweep: pathlib.Path) -> pathlib.Path:
    """A finished store."""
    shutil.copytree(finished_sweep, tmp_path, dirs_exist_ok=True)
    return tmp_path / "s"


@pytest.mark.parametrize("kind", ["truncated", "empty", "flipped", "missing"])
def test_damaged_block_is_made_again_and_no_other(path, sweep_results, kind):
    before, file = contents(path), block_file(path, GRID, 1, 0, 1)
    damage(file, kind)
    calls = Calls()
    assert finish(path, calls.joint).identical(sweep_results)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 1
    after = contents(path)
    changed = {path / name for name in after if before.get(name) != after[name]}
    assert {own for own in changed if own.suffix == ".npz"} == {file}
    assert before.keys() <= after.keys()
    calls = Calls()
    assert finish(path, calls.joint).identical(sweep_results)
    assert not calls.trials


# Against failures: a disk that refuses


def is_full(path: pathlib.Path, results: xarray.Dataset, room: int) -> bool:
    """Whether the disk was full before the sweep ended, as it should say."""
    with pytest.MonkeyPatch.context() as patch:
        written = filling(patch, room)
        try:
            assert finish(path).identical(results)
        except StoreError as error:
            message = str(error)
            assert "No space left on device" in message and "\n" not in message
            assert "run again to resume" in message
            assert len(written) > room
            return True
        assert len(written) <= room + 1  # But for the note that the run has ended.
        return False


def check_full_disk(path: pathlib.Path, results: xarray.Dataset, room: int) -> bool:
    """The same, of a sweep that resumes to what it would have been."""
    full = is_full(path, results, room)
    assert finish(path).identical(results)
    return full


def test_disk_may_be_full_at_any_time(tmp_path, sweep_results):
    chance = random.Random(7)
    for number, room in enumerate(chance.sample(range(10), 4)):
        assert check_full_disk(tmp_path / f"s{number}", sweep_results, room)


@pytest.mark.slow
def test_disk_may_be_full_at_every_write(tmp_path, sweep_results):
    room = 0
    while check_full_disk(tmp_path / f"s{room}", sweep_results, room):
        room += 1
    assert room == 1 + 1 + 8  # The run's, its code's and the blocks' were refused.


def test_disk_that_fills_again_and_again_is_worn_down(tmp_path, sweep_results):
    """With room for some more writes each time: the sweep gets on, and ends."""
    chance, attempts = random.Random(3), 0
    while is_full(tmp_path / "s", sweep_results, chance.randrange(1, 4)):
        attempts += 1
    assert 3 < attempts < 20
    assert finish(tmp_path / "s").identical(sweep_results)


@pytest.mark.parametrize("what", ["provenance", "failures", "marks"])
def test_full_disk_for_what_lies_beside_the_blocks(
    tmp_path, monkeypatch, sweep_results, what
):
    """Nothing of the results is lost."""
    original = pathlib.Path.open

    def refuse(self, *arguments, **options):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self))

    def refuse_lines(self, *arguments, **options):
        own = refuse if self.suffix == ".jsonl" else original
        return own(self, *arguments, **options)

    def broken(*arguments):
        raise RuntimeError("out of something")

    joint = KINDS if what == "provenance" else Joint(broken, KINDS.shares)
    with monkeypatch.context() as patch:
        if what == "failures":
            patch.setattr(pathlib.Path, "open", refuse_lines)
        else:
            name = {"provenance": "write_text", "marks": "touch"}[what]
            patch.setattr(pathlib.Path, name, refuse)
        with pytest.raises(StoreError, match="No space left on device") as caught:
            sweep(GRID, None, tmp_path / "s", joint=joint)
    assert "\n" not in str(caught.value)
    assert not [file for file in tmp_path.rglob("*") if file.suffix == ".partial"]
    assert finish(tmp_path / "s").identical(sweep_results)


@contextlib.contextmanager
def ordinary_user() -> Iterator[None]:
    """Inside, permissions of files bind, which they do not for root."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def locked(finished_sweep: pathlib.Path) -> Iterator[pathlib.Path]:
    """A folder of a store that all may read and none may write."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        shutil.copytree(finished_sweep, folder, dirs_exist_ok=True)
        yield folder
        _permit(folder, stat.S_IWUSR)


def _permit(folder: pathlib.Path, more: int) -> None:
    for entry in [folder, *folder.rglob("*")]:
        entry.chmod((0o555 if entry.is_dir() else 0o444) | more)


def test_finished_store_in_a_read_only_folder_is_read(locked, sweep_results):
    _permit(locked, 0)
    before = contents(locked)
    with ordinary_user():
        with pytest.raises(PermissionError):  # Control: the folder is.
            lose(locked / "s", GRID, (0, 0, 0))
        found = finish(locked / "s")
    assert found.identical(sweep_results) and contents(locked) == before


@pytest.mark.parametrize("lost", ["a block", "the lock too", "the store"])
def test_read_only_folder_is_one_line_and_nothing_is_changed(locked, lost):
    if lost == "the store":
        shutil.rmtree(locked / "s")
    else:
        lose(locked / "s", GRID, (0, 1, 1))
    if lost == "the lock too":
        (locked / "s" / "lock").unlink()
    _permit(locked, 0)
    before = contents(locked)
    denied = pytest.raises(StoreError, match="Permission denied")
    with ordinary_user(), denied as caught:
        finish(locked / "s")
    assert "\n" not in str(caught.value) and contents(locked) == before


def test_command_on_a_read_only_folder_is_one_line(locked, panel, command):
    del panel  # What it compiled no other user could write into JAX's cache.
    shutil.rmtree(locked / "s")
    _permit(locked, 0)
    before = contents(locked)
    with ordinary_user():
        status, out, err = command("ifca.fig3a", "--out", str(locked / "out"))
    assert (status, out) == (2, "")
    assert err.startswith("error: ") and err.count("\n") == 1
    assert "Permission denied" in err and contents(locked) == before


# Against failures: clocks, hosts and neighbours


@pytest.mark.parametrize(
    "flags",
    [
        ["--seed", "3"],
        ["--num-trials", "11"],
        ["--num-rounds", "4"],
        ["--noise", "0.2"],
        ["--separation", "1.0", "2.0"],
        [],
    ],
    ids=["seed", "trials", "field", "axis", "more of an axis", "revision"],
)
def test_another_sweep_adds_to_the_store(panel, tmp_path, monkeypatch, flags):
    """What is there of the first one stays as it was, and is still found."""
    store = tmp_path / "out" / "store" / "cells"
    before = contents(store)
    with monkeypatch.context() as patch:
        if not flags:
            patch.setattr(fig3, "REVISION", fig3.REVISION + 1)
        assert panel(*flags)[0] == 0
    after = contents(store)
    assert set(after) > set(before)
    longer = {name for name in before if after[name] != before[name]}
    assert bool(longer) == (flags[:1] == ["--num-trials"])
    monkeypatch.setattr(fig3, "simulate_jointly", None)  # Nothing is run again.
    assert panel()[0] == 0 and contents(store) == after


def test_another_panel_adds_to_the_store(panel, command, tmp_path):
    before = contents(tmp_path / "out" / "store" / "cells")
    sizes = ["--num-clients", "40", "--num-samples", "50", "--num-features", "200"]
    out = ["--out", str(tmp_path / "out"), "--shard", "1/1"]
    assert command("ifca.fig3b", *out, *sizes)[0] == 0
    after = contents(tmp_path / "out" / "store" / "cells")
    assert len(after) > len(before) and before.items() <= after.items()


YEARS = {
    year: datetime.datetime(year, 1, 2, tzinfo=datetime.UTC) for year in (1970, 2100)
}


class Calendar:
    """`datetime`, in another year."""

    UTC = datetime.UTC

    def __init__(self, year: int) -> None:
        now = YEARS[year]
        self.datetime = type("Now", (), {"now": staticmethod(lambda zone: now)})


@contextlib.contextmanager
def elsewhere(year: int, host: str) -> Iterator[None]:
    """What a machine of another name whose clock is wrong tells those who ask."""
    system = os.uname()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cfljax.engine.provenance, "datetime", Calendar(year))
        patch.setattr(time, "time", YEARS[year].timestamp)
        patch.setattr(time, "time_ns", lambda: int(1e9 * YEARS[year].timestamp()))
        patch.setattr(platform, "node", lambda: host)
        patch.setattr(socket, "gethostname", lambda: host)
        renamed = os.uname_result((system[0], host, *system[2:]))
        patch.setattr(os, "uname", lambda: renamed)
        yield


def age(folder: pathlib.Path, year: int) -> None:
    stamp = YEARS[year].timestamp()
    for file in [folder, *folder.rglob("*")]:
        os.utime(file, (stamp, stamp))


def test_clocks_and_hosts_do_not_matter(tmp_path, sweep_results):
    """Of workers one after the other, each with its own idea of the files' age."""
    path, calls = tmp_path / "s", Calls()
    for turn, (year, host) in enumerate([(2100, "late"), (1970, "early")]):
        with elsewhere(year, host):
            finish(path, calls.joint, shard=(turn + 1, 2))
        age(tmp_path, 1970 if year == 2100 else 2100)
    assert finish(path, calls.joint).identical(sweep_results)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 2 * 11
    text = (path / "provenance.json").read_text()
    assert "1970-01-02" in text and "2100-01-02" in text  # Control: it was told them.
    assert "early" not in text and "late" not in text


@pytest.mark.parametrize(("year", "other"), [(1970, 2100), (2100, 1970)])
def test_claim_does_not_age(tmp_path, sweep_results, year, other):
    path = tmp_path / "s"
    blocks = [Store(path, GRID).key(block) for block in ((0, 0, 1), (1, 0, 1))]
    with Claims(path) as claims, claims.claim(blocks) as mine:
        assert mine
        age(tmp_path, other)
        refused = pytest.raises(StoreError, match=r"2 blocks of .* by another run")
        with elsewhere(year, "other"), refused:
            finish(path)
    assert finish(path).identical(sweep_results)


def test_shards_of_different_counts_share_a_store(tmp_path, sweep_results):
    path, calls = tmp_path / "s", Calls()
    for shard in ((1, 2), (1, 3), (3, 3), (2, 2)):
        finish(path, calls.joint, shard=shard)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 2 * 11
    assert finish(path).identical(sweep_results)


def test_shards_of_different_counts_at_once(tmp_path, sweep_results):
    """1/2 and 1/3 begin with the same unit: one of them takes it."""
    path, calls, failures = tmp_path / "s", Calls(threading.Barrier(2)), []

    def run(shard: tuple[int, int]) -> None:
        try:
            finish(path, calls.joint, shard=shard, progress=False)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=[(1, n)]) for n in (2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert set(calls.trials.values()) == {1}
    # Two cells in each of the units: of four, numbers 0 and 2, and 0 and 3.
    assert num_done(path, GRID) == 2 * 3
    finish(path, calls.joint)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 2 * 11
    assert finish(path).identical(sweep_results)


# Against itself: Figure 3's trials have the same bits however they are cut

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
WAYS = {"traced": TRACED, "joint": dataclasses.replace(TRACED, shortcuts=True)}


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
def whole(tmp_path_factory) -> Callable[[str], xarray.Dataset]:
    folder = tmp_path_factory.mktemp("whole")
    return lambda way: run(folder / way, WAYS[way])


@pytest.mark.slow
def test_chunks_workers_and_interrupts_do_not_change_a_bit(tmp_path, whole):
    with interrupted_after(3):
        run(tmp_path, TRACED, chunk=3)
    found = run(tmp_path, TRACED, chunk=1, workers=2)
    assert found.identical(whole("traced"))
    assert found["recovered"].values.any() and not found["recovered"].values.all()


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize(
    ("way", "options"),
    [*(("traced", {"chunk": chunk}) for chunk in (1, 3, 10)), ("joint", {})],
    ids=["chunks of 1", "chunks of 3", "chunks of 10", "joint"],
)
def test_no_chunk_and_no_worker_changes_a_bit(tmp_path, whole, way, options, workers):
    found = run(tmp_path, WAYS[way], workers=workers, **options)
    assert found.identical(whole(way))


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


def digests(folder: str, devices: int) -> dict[int, dict[str, str]]:
    """The bits of every output, by chunk."""
    place, options = pathlib.Path(folder), {"devices": devices}
    return {
        chunk: bits(run(place / f"{chunk}", TRACED, chunk=chunk, **options))
        for chunk in (1, 3, 10)
    }


def bits(results: xarray.Dataset) -> dict[str, str]:
    return {str(name): own.values.tobytes().hex() for name, own in results.items()}


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_no_device_changes_a_bit(tmp_path, whole, devices):
    call = ("digests", str(tmp_path), devices)
    (found,) = serve(__name__, call, cores=devices, env=os.environ)
    assert found == dict.fromkeys(["1", "3", "10"], bits(whole("traced")))


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


@jax.jit
def trials_of(key: Any, step_sizes: Any) -> dict[str, Any]:
    """Of a stable configuration, long enough to converge."""
    one = lambda index: fig3_trial.simulate(
        STABLE.trial, jax.random.fold_in(key, index), step_sizes
    )
    return jax.lax.map(one, jnp.arange(6, dtype=jnp.uint32))


def converged(dtype: Any, seed: int = 0) -> dict[str, np.ndarray]:
    found = trials_of(jax.random.key(seed), jnp.asarray(STABLE.step_sizes, dtype))
    assert found["distance"].dtype == dtype
    return {name: np.asarray(values) for name, values in found.items()}


def test_single_precision_decides_as_double_does():
    single = converged(jnp.float32)
    with double_precision():
        double, other = converged(jnp.float64), converged(jnp.float64, seed=1)
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
