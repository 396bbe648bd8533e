"""An experiment on a dask cluster: workers that are lost, and a scheduler that ends,
change no bit of what one process computes."""

import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import dask.config as dask_config
import pytest
import saved_often
import toy_cluster
from distributed import LocalCluster
from engine_trial import known, wait_for
from toy_cluster import ENTRY, Config

from cfljax import engine
from cfljax.engine.claims import Claims
from cfljax.engine.store import Store
from experiments import cluster
from experiments.__main__ import main
from experiments.options import Options

ROOT = pathlib.Path(__file__).resolve().parents[1]
SWEEP = ["ifca.fig3a", "--num-clients", "8", "--num-samples", "50", "--num-rounds"]
SWEEP += ["200", "--num-features", "20", "--num-restarts", "4", "--step-sizes", ".1"]
SWEEP += ["--separation", "0.5", "1.0", "--noise", "0.0", "0.1", "--no-law"]
SWEEP += ["--num-trials", "400"]
NEURAL = ["clove.table17", "--methods", "fedavg", "--num-rounds", "20"]
NEURAL += ["--num-trials", "2"]


def options(out: pathlib.Path) -> Options:
    return Options(out=out, progress=False)


def blocks(out: pathlib.Path) -> dict[str, dict[str, bytes]]:
    """The arrays of all blocks, by cell and number."""
    return {
        f"{about['cell']}/{about['block']}": {
            name: array.tobytes() for name, array in arrays.items()
        }
        for arrays, about in engine.stored(out / "store")
    }


def num_blocks(out: pathlib.Path) -> int:
    return sum(1 for _ in (out / "store" / "cells").glob("*/*.npz"))


def one_worker(threads: int = 1, workers: int = 1) -> Any:
    """A cluster of one worker in this process, or none."""
    own: dict[str, Any] = {"processes": False, "dashboard_address": "127.0.0.1:0"}
    return LocalCluster(n_workers=workers, threads_per_worker=threads, **own)


@pytest.fixture(scope="module")
def here() -> Iterator[str]:
    with one_worker() as found:
        yield found.scheduler_address


# Against itself


@pytest.mark.long
def test_a_cluster_fills_the_store_as_one_process_does(here, tmp_path):
    config, own = Config(num_trials=15), options(tmp_path / "cluster")
    cluster.fill(here, ENTRY, config, own)
    assert not (tmp_path / "cluster" / "table.csv").exists()
    toy_cluster.main(config, options(tmp_path / "alone"))
    expected = blocks(tmp_path / "alone")
    assert blocks(tmp_path / "cluster") == expected and len(expected) == 8
    # Control: one more trial is seen.
    cluster.fill(here, ENTRY, Config(num_trials=16), own)
    assert blocks(tmp_path / "cluster") != expected


@pytest.mark.long
def test_what_is_done_is_sent_to_nobody(here, tmp_path, monkeypatch):
    own = options(tmp_path)
    toy_cluster.main(Config(), own)
    monkeypatch.setattr(cluster, "_send", lambda *_, **__: pytest.fail("sent"))
    cluster.fill(here, ENTRY, Config(), own)
    # Control: what is missing is sent.
    with pytest.raises(pytest.fail.Exception, match="sent"):
        cluster.fill(here, ENTRY, Config(num_trials=21), own)


@pytest.mark.long
def test_what_another_run_holds_is_waited_for(here, tmp_path, monkeypatch):
    config, own = Config(num_cells=2, num_trials=1), options(tmp_path)
    monkeypatch.setattr(cluster, "WAIT", 0.01)
    sent: list[int] = []
    original = cluster._send
    store = pathlib.Path(own.store_folder)
    claims = Claims(store)

    def counted(*arguments: Any, **others: Any) -> Any:
        sent.append(num_blocks(tmp_path))
        if len(sent) == 3:
            held.__exit__(None, None, None)
        return original(*arguments, **others)

    monkeypatch.setattr(cluster, "_send", counted)
    key = Store(store, toy_cluster.job(config).grid).key((0, 0))
    with claims:
        held = claims.claim([key])
        assert held.__enter__()
        cluster.fill(here, ENTRY, config, own)
    assert sent == [0, 1, 1] and num_blocks(tmp_path) == 2


# Against failures


@pytest.mark.long
def test_cells_that_fail_are_counted_and_the_others_done(here, tmp_path):
    with pytest.raises(engine.SweepError, match=r"^1 cells failed, see `failures"):
        cluster.fill(here, ENTRY, Config(fails=3), options(tmp_path))
    assert num_blocks(tmp_path) == 3 * 2


@pytest.mark.long
def test_a_scheduler_that_ends_is_told_from_all_else(tmp_path):
    found = one_worker()
    config = Config(seconds=0.02)

    def end() -> None:
        wait_for(lambda: num_blocks(tmp_path) > 0)
        found.close()

    thread = threading.Thread(target=end)
    thread.start()
    with pytest.raises(cluster.LostSchedulerError, match="run again to resume"):
        cluster.fill(found.scheduler_address, ENTRY, config, options(tmp_path))
    thread.join()
    done = num_blocks(tmp_path)
    assert 0 < done < 8
    with one_worker() as again:
        cluster.fill(again.scheduler_address, ENTRY, Config(), options(tmp_path))
    toy_cluster.main(Config(), options(tmp_path / "alone"))
    assert blocks(tmp_path) == blocks(tmp_path / "alone")


@pytest.mark.long
def test_a_cluster_without_workers_is_waited_for_and_told(tmp_path, monkeypatch):
    told: list[str] = []
    monkeypatch.setattr(cluster, "PATIENCE", 0.0)
    with one_worker(workers=0) as found:

        def tell(message: str) -> None:
            told.append(message)
            found.scale(1)

        monkeypatch.setattr(cluster.log, "warning", tell)
        cluster.fill(found.scheduler_address, ENTRY, Config(), options(tmp_path))
    assert told == ["the cluster has no workers; waiting for some."]
    assert num_blocks(tmp_path) == 8


# Against misuse


def test_a_worker_of_other_code_is_refused(here, tmp_path, monkeypatch):
    codes = iter(({"modules": {"a": "1"}}, {"modules": {"a": "2"}}))
    code = lambda entry: {"settings": {"jax": "0"}, **next(codes)}
    monkeypatch.setattr(cluster, "code_of", code)
    monkeypatch.setattr(cluster, "TASKS", 1)
    with pytest.raises(ValueError, match="has other code than this command: a; give"):
        cluster.fill(here, ENTRY, Config(), options(tmp_path))
    assert num_blocks(tmp_path) == 0


def test_a_worker_of_several_threads_is_refused(tmp_path):
    said = "has 2 threads; start workers with one"
    with one_worker(threads=2) as found, pytest.raises(ValueError, match=said):
        cluster.fill(found.scheduler_address, ENTRY, Config(), options(tmp_path))


@pytest.mark.long
def test_a_folder_that_is_not_shared_is_seen(here, tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "WAIT", 0.0)
    nothing = cluster._State(num_open=16, num_blocks=16, failed_cells=0)
    monkeypatch.setattr(cluster, "_state", lambda task: nothing)
    with pytest.raises(ValueError, match="the workers write to another folder than"):
        cluster.fill(here, ENTRY, Config(), options(tmp_path))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "no://one", "", "a b:c"])
def test_where_no_scheduler_answers_is_one_line(tmp_path, monkeypatch, capsys, address):
    monkeypatch.setattr(cluster, "CONNECTING", 0.3)
    flags = ["run", *SWEEP, "--out", str(tmp_path / "out"), "--dask", address]
    assert main(flags) == 2
    said = capsys.readouterr().err
    assert said.startswith("error: `--dask`: no scheduler answers at ")
    assert said.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words, message",
    [
        (["run", "werner.fig1", "--dask", "a"], "`--dask` has no use for werner.fig1"),
        (["run", *SWEEP, "--dask", "a", "--shard", "1/2"], "exclude each other"),
        (["run", *NEURAL, "--dask", "a", "--plan"], "`--plan` and `--dask` exclude"),
        (["launch", *SWEEP, "--workers", "2", "--dask", "a"], "arguments: --dask a"),
    ],
)
def test_misuse_is_one_line(words, message, capsys):
    assert main(words) == 2
    said = capsys.readouterr().err
    assert message in said and said.count("\n") == 1


def test_without_dask_it_is_said_how_to_get_it(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["run", *SWEEP, "--dask", "tcp://127.0.0.1:1"]) == 2
    assert "install the extra `dask`" in capsys.readouterr().err


# Against failures, of four processes


@pytest.fixture
def often(tmp_path, monkeypatch) -> pathlib.Path:
    """Workers that start from now on save long runs after each round; where it is
    noted."""
    own = saved_often.environment(tmp_path / "python", 0.2)
    for name, value in own.items():
        monkeypatch.setenv(name, value)
    return tmp_path / "python"


@pytest.fixture
def four(tmp_path, monkeypatch) -> Iterator[Any]:
    """Four worker processes, which dask starts again when they end, however long that
    takes."""
    places = [os.environ.get("PYTHONPATH"), known({})["PYTHONPATH"]]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "programs"))
    own: dict[str, Any] = {"dashboard_address": "127.0.0.1:0", "silence_logs": 50}
    with (
        dask_config.set({"distributed.deploy.lost-worker-timeout": "1 hour"}),
        LocalCluster(n_workers=4, threads_per_worker=1, **own) as found,
    ):
        yield found


def killing(
    found: Any, kills: int, may_kill: Callable[[], bool], seed: int
) -> tuple[threading.Thread, list[str]]:
    """A thread that kills workers at random times; those that it has killed."""
    chance, killed = random.Random(seed), []

    def kill() -> None:
        wait_for(may_kill)
        while len(killed) < kills:
            # Whoever is killed before it has joined is not started again.
            joined = set(found.scheduler.workers) - set(killed)
            every = list(found.workers.values())
            if own := [own for own in every if own.worker_address in joined]:
                victim = chance.choice(own)
                os.kill(victim.pid, signal.SIGKILL)
                killed.append(victim.worker_address)
            time.sleep(chance.uniform(0.0, 3.0))

    thread = threading.Thread(target=kill)
    thread.start()
    return thread, killed


@pytest.mark.slow
def test_fifty_killed_workers_change_no_bit(four, tmp_path):
    config, out = Config(num_cells=40, num_trials=50, seconds=0.04), tmp_path / "out"
    thread, killed = killing(four, 50, lambda: num_blocks(out) > 0, seed=1)
    cluster.fill(four.scheduler_address, ENTRY, config, options(out))
    was_early = len(killed) == 50
    thread.join()
    toy_cluster.main(Config(num_cells=40, num_trials=50), options(tmp_path / "alone"))
    expected = blocks(tmp_path / "alone")
    assert blocks(out) == expected and len(expected) == 200
    assert was_early, "the work was over before the last kill"


@pytest.mark.slow
def test_long_runs_go_on_from_their_states(often, four, tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    states = lambda: list((out / "store" / "states").glob("*.npz"))
    thread, killed = killing(four, 4, lambda: len(states()) > 0, seed=2)
    run = [sys.executable, "-m", "experiments", "run", *NEURAL, "--out"]
    command = [*run, str(out), "--dask", four.scheduler_address]
    subprocess.run(command, cwd=ROOT, check=True)
    thread.join()
    assert len(killed) == 4
    subprocess.run([*run, str(whole)], cwd=ROOT, check=True)
    assert blocks(out) == blocks(whole) and len(blocks(whole)) == 2
    assert (out / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()
    for rounds in saved_often.saved(often, out).values():
        assert sorted(rounds) == rounds and set(rounds) == set(range(1, 21))


@pytest.mark.slow
def test_a_trial_that_ends_its_process_ends_the_command(four, tmp_path):
    config = Config(num_cells=4, num_trials=1, ends=2)
    with pytest.raises(engine.SweepError, match="the first with KilledWorker"):
        cluster.fill(four.scheduler_address, ENTRY, config, options(tmp_path / "out"))
    assert num_blocks(tmp_path / "out") == 3


class Processes:
    """A scheduler and two workers, as one types them; ended with the context."""

    def __init__(self, folder: pathlib.Path, environment: Mapping[str, str]) -> None:
        self.folder, self.environment = folder, environment

    def __enter__(self) -> "Processes":
        self.folder.mkdir()
        file, log = self.folder / "scheduler.json", (self.folder / "log").open("w")
        python = [sys.executable, "-W", "ignore", "-m", "distributed.cli.dask_"]
        own = ["--no-dashboard", "--scheduler-file", str(file)]
        kinds = {"scheduler": ["--host", "127.0.0.1", "--port", "0"]}
        kinds["worker"] = ["--nthreads", "1", "--nworkers", "2", "--death-timeout", "5"]
        self.processes = []
        for kind, flags in kinds.items():
            command = [*python[:-1], f"{python[-1]}{kind}", *own, *flags]
            both: dict[str, Any] = {"stdout": log, "stderr": log, "cwd": self.folder}
            process = subprocess.Popen(command, env=self.environment, **both)
            self.processes.append(process)
            wait_for(file.exists)
        log.close()
        (self.address,) = re.findall(r'"address": "(tcp.*?)"', file.read_text())[:1]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()


@pytest.mark.slow
def test_a_killed_scheduler_has_a_status_of_its_own(tmp_path):
    out, whole = tmp_path / "out", tmp_path / "whole"
    environment = {**os.environ, "CFLJAX_CACHE": str(tmp_path / "programs")}
    environment["PYTHONPATH"] = known({})["PYTHONPATH"]
    run = [sys.executable, "-m", "experiments", "run", *SWEEP, "--out"]
    with Processes(tmp_path / "first", environment) as first:
        command = [*run, str(out), "--dask", first.address]
        text: dict[str, Any] = {"stderr": subprocess.PIPE, "text": True, "cwd": ROOT}
        with subprocess.Popen(command, env=environment, **text) as process:
            wait_for(lambda: num_blocks(out) > 3)
            first.processes[0].kill()
            _, said = process.communicate()
        assert process.returncode == 3
        assert said.startswith("error: the scheduler was lost; what is done stays done")
        assert said.count("\n") == 1
    done = num_blocks(out)
    assert 3 < done < 4 * 40
    with Processes(tmp_path / "second", environment) as second:
        command = [*run, str(out), "--dask", second.address]
        subprocess.run(command, env=environment, cwd=ROOT, check=True)
    subprocess.run([*run, str(whole)], env=environment, cwd=ROOT, check=True)
    assert blocks(out) == blocks(whole) and len(blocks(whole)) == 4 * 40
    assert (out / "table.csv").read_bytes() == (whole / "table.csv").read_bytes()


@pytest.mark.slow
def test_a_worker_without_cfljax_is_one_line(tmp_path):
    # Nothing but what is installed: this project is not, for these workers.
    hide = tmp_path / "hide"
    hide.mkdir()
    (hide / "sitecustomize.py").write_text(
        "import sys\nsys.modules['cfljax'] = sys.modules['experiments'] = None\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(hide)}
    with Processes(tmp_path / "bare", environment) as bare:
        run = [sys.executable, "-m", "experiments", "run", *SWEEP]
        command = [*run, "--out", str(tmp_path / "out"), "--dask", bare.address]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("error: a worker cannot import what it needs: ")
    assert done.stderr.count("\n") == 1
