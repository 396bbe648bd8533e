"""Who is asked to wait for other runs gets all of their results, dead or alive."""

import concurrent.futures
import contextlib
import logging
import pathlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from engine_trial import JOINT, plain_grid, wait_for
from toy_experiments import retyped

from cfljax.engine import StoreError, SweepError, sweep, sweeps
from cfljax.engine.claims import Claims
from cfljax.engine.store import Store
from experiments.__main__ import main
from experiments.ifca import fig3
from experiments.ifca.fig3_trial import DIMS

GRID = plain_grid(num_trials=11)  # Four cells of two blocks, all of one group.
SIZES = ["--separation", "1.0", "--noise", "0.1", "--num-trials", "2"]
SIZES += ["--num-restarts", "2", "--step-sizes", "0.1", "--num-rounds", "3"]


def finish(path: pathlib.Path, **options: Any) -> Any:
    return sweep(GRID, None, path, joint=JOINT, **options)


@contextlib.contextmanager
def held(path: pathlib.Path) -> Iterator[None]:
    """Another run is at the first of a cell's blocks."""
    names = [Store(path, GRID).key((0, 0, 0))]
    with Claims(path) as claims, claims.claim(names) as is_mine:
        assert is_mine
        yield


@pytest.fixture(autouse=True)
def patience(monkeypatch) -> None:
    monkeypatch.setattr(sweeps, "WAIT", 0.01)


@pytest.fixture
def waiting(caplog) -> Any:
    """Waits until somebody has said that he waits."""
    caplog.set_level(logging.WARNING)
    return lambda: wait_for(lambda: "; waiting." in caplog.text)


def test_who_does_not_wait_is_told_so(tmp_path):
    """Control."""
    with held(tmp_path / "s"), pytest.raises(StoreError, match="`waits`, `--wait`"):
        finish(tmp_path / "s")


def test_what_others_leave_undone_is_computed_by_who_waits(tmp_path, waiting, caplog):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with held(tmp_path / "s"):
            found = pool.submit(finish, tmp_path / "s", waits=True)
            waiting()
            assert not found.done()
            held_block = Store(tmp_path / "s", GRID).states[0, 0]
            assert held_block.tolist() == [0, 1]  # The other block is done meanwhile.
        assert found.result().attrs["open_blocks"] == 0
    assert found.result().identical(finish(tmp_path / "other"))
    assert caplog.text.count("; waiting.") == 1


@pytest.mark.long
def test_what_others_do_meanwhile_is_only_read(tmp_path, waiting):
    """Two wait for a third one; what it held is done once."""
    calls: list[int] = []
    count = threading.Lock()

    def counted(*arguments: Any) -> Any:
        with count:
            calls.append(1)
        return JOINT.simulate(*arguments)

    joint = JOINT._replace(simulate=counted)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        with held(tmp_path / "s"):
            both = [
                pool.submit(sweep, GRID, None, tmp_path / "s", joint=joint, waits=True)
                for _ in range(2)
            ]
            waiting()
        first, second = (one.result() for one in both)
    assert first.identical(second) and first.attrs["open_blocks"] == 0
    assert len(calls) == GRID.num_trials


HOLD = """
import pathlib, signal, sys
from cfljax.engine.claims import Claims
with Claims(pathlib.Path(sys.argv[1])) as claims, claims.claim([sys.argv[2]]):
    print("held", flush=True)
    signal.pause()
"""


def test_a_killed_run_is_not_waited_for(tmp_path, waiting):
    path = tmp_path / "s"
    name = Store(path, GRID).key((0, 0, 0))
    command = [sys.executable, "-c", HOLD, str(path), name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"held\n"
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            found = pool.submit(finish, path, waits=True)
            waiting()
            assert not found.done()
            other.kill()
            assert found.result().identical(finish(tmp_path / "other"))
    assert other.returncode == -signal.SIGKILL


def test_a_cell_that_fails_at_another_run_is_told(tmp_path, waiting):
    path = tmp_path / "s"
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        with held(path):
            found = pool.submit(finish, path, waits=True)
            waiting()
            store = Store(path, GRID)
            for block in np.ndindex(*store.states.shape):
                if store.states[block] == 0:
                    store.fail(block)
        try:
            failures = found.result().attrs["failures"]
        except SweepError:
            failures = 4
    assert failures == 4


# Against itself: the command


@pytest.fixture
def command(monkeypatch, tmp_path, capsys) -> Any:
    """A panel whose trials cost nothing; exit status and what was said."""

    def outcomes(trials: Any, key: Any, constants: Any) -> list[dict[str, Any]]:
        sizes = {"restart": 2, "step_size": 1}
        shapes = {n: tuple(sizes[dim] for dim in dims) for n, dims in DIMS.items()}
        zeros = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
        return [zeros for _ in trials]

    monkeypatch.setattr(fig3, "simulate_jointly", outcomes)

    def run(*flags: str) -> tuple[int, str]:
        out = ["--out", str(tmp_path / "out"), "--shortcuts"]
        status = main(["run", "ifca.fig3a", *retyped(SIZES, []), *out, *flags])
        return status, capsys.readouterr().err

    return run


@pytest.mark.slow
def test_the_command_waits_if_it_is_asked_to(command, tmp_path, waiting):
    store = tmp_path / "out" / "store"
    assert command("--shard", "1/1")[0] == 0
    (block,) = store.glob("cells/*/0.npz")
    name = f"{block.parent.name}/0"
    block.unlink()
    with concurrent.futures.ThreadPoolExecutor(1) as pool, Claims(store) as claims:
        with claims.claim([name]):
            status, said = command()
            assert status == 2 and said.count("\n") == 1 and "`--wait`" in said
            found = pool.submit(command, "--wait")
            waiting()
            assert not found.done() and not block.exists()
        assert found.result()[0] == 0
    assert block.exists() and (tmp_path / "out" / "table.csv").exists()


def test_waiting_of_no_use_is_refused(command):
    status, said = command("--wait", "--shard", "1/2")
    assert status == 2 and "`--wait` has no use with `--shard`" in said
    assert main(["run", "ifca.table1", "--wait", "--shard", "x"]) == 2
