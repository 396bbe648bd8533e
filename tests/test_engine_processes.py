"""Several processes that compute one thing together.

Slow, since each starts JAX and compiles, but for what needs one process:

    pytest -m slow tests/test_engine_processes.py
"""

import contextlib
import functools
import json
import os
import pathlib
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest
from engine_trial import contents, draw, draw_jointly, known, plain_grid
from together import begin

from cfljax import engine
from cfljax.engine import Joint, processes, ways
from experiments.__main__ import main

ROOT = pathlib.Path(__file__).resolve().parents[1]
LOST = "error: another process has ended, or cannot be reached any more; what is done"
WAIT = 180.0  # Seconds that a process may take.


def free_address() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"127.0.0.1:{server.getsockname()[1]}"


def is_free(port: int) -> bool:
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def together(*calls: tuple, number: int = 2, devices: int = 1) -> list[list[Any]]:
    """What each of several processes returns of the same calls."""
    address = free_address()
    every = [
        begin(address, (index + 1, number), *calls, devices=devices)
        for index in range(number)
    ]
    return [result(process) for process in every]


def result(process: subprocess.Popen[str]) -> Any:
    out, said = process.communicate(timeout=WAIT)
    assert process.returncode == 0, said
    return json.loads(out.splitlines()[-1])


def alone(*calls: tuple, devices: int = 1) -> list[Any]:
    return result(begin("none", (1, 1), *calls, devices=devices))


# Against itself: processes are one


@pytest.mark.slow
@pytest.mark.parametrize(("number", "devices"), [(2, 1), (2, 2), (3, 1)])
def test_processes_change_no_bit_of_a_run(number, devices):
    call = ("runs", "fedavg", "ifca", "clove", "pacfl")
    (expected,) = alone(call)
    assert len(set(expected.values())) == 4
    for (found,) in together(call, number=number, devices=devices):
        assert found == expected


@pytest.mark.slow
def test_a_sum_whose_order_depends_on_devices_is_noticed():
    (expected,) = alone(("orders", "fedavg"))
    for ((usual, careless, other),) in together(("orders", "fedavg")):
        assert usual == expected[0] and other == expected[2] != usual
        assert careless != expected[1]


@pytest.mark.slow
def test_checkpoints_are_written_once_and_gone_on_from(tmp_path):
    few, more, whole = alone(("goes_on", "ifca", str(tmp_path / "one.npz")))[0]
    assert more == whole != few
    path = tmp_path / "two.npz"
    for (found,) in together(("goes_on", "ifca", str(path))):
        assert found == [few, more, whole]
    names = {file.name for file in tmp_path.iterdir()}
    assert names == {
        f"{one}.npz{end}" for one in ("one", "two") for end in ("", ".before")
    }
    # What two have saved, one goes on from, and the other way round.
    alone(("goes_on", "ifca", str(path)))


@pytest.mark.slow
def test_sweeps_of_processes_are_those_of_one(tmp_path):
    (expected,) = alone(("sweeps", str(tmp_path / "one")))
    assert [failures for _, failures in expected] == [0, 0, 0, 2, 0]
    path = tmp_path / "two"
    for (found,) in together(("sweeps", str(path))):
        assert found == expected
    blocks = lambda store: {
        (about["cell"], about["block"], name): array.tobytes()
        for arrays, about in engine.stored(store)
        for name, array in arrays.items()
    }
    assert blocks(path) == blocks(tmp_path / "one") != {}
    runs = {about["run"] for _, about in engine.stored(path)}
    assert len(runs) == 4  # Of four sweeps, all of the first process.


# Against itself: what they tell each other, by threads in place of processes


class Team:
    """Threads that gather as processes do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
        self.own = threading.local()
        self.told: list[Any] = [None] * number
        self.barrier = threading.Barrier(number, timeout=20)
        monkeypatch.setattr(processes, "_number", number)
        monkeypatch.setattr(processes, "gathered", self.gathered)
        monkeypatch.setattr(jax, "process_index", lambda: self.own.index)

    def gathered(self, value: Any) -> list[Any]:
        self.told[self.own.index] = pickle.dumps(value)
        self.barrier.wait()
        every = [pickle.loads(one) for one in self.told]
        self.barrier.wait()
        return every

    def play(self, function: Callable[[], Any]) -> list[Any]:
        """What a function returns or raises in each of them."""

        def one(index: int) -> Any:
            self.own.index = index
            try:
                return function()
            except ValueError as error:
                return str(error)

        with ThreadPoolExecutor(len(self.told)) as pool:
            return list(pool.map(one, range(len(self.told))))


def test_what_the_first_process_asks_for_all_do(monkeypatch):
    team, done = Team(monkeypatch, 3), []

    def act(value: int) -> int:
        done.append((team.own.index, value))
        if value == 2:
            raise ValueError("two")
        return 10 * value

    def ask(together: Any, *, ends_well: bool = True) -> list[int]:
        same = together(act)
        with contextlib.suppress(ValueError):
            same(2)
        if not ends_well:
            raise ValueError("the end")
        return [same(1), same(3)]

    def play(**how: Any) -> Any:
        if processes.is_first():
            return processes.lead(functools.partial(ask, **how))
        return processes.follow(act)

    assert team.play(play) == 3 * [[10, 30]]
    assert sorted(done) == [(index, n) for index in range(3) for n in (1, 2, 3)]
    assert team.play(functools.partial(play, ends_well=False)) == 3 * ["the end"]


def test_what_the_first_process_reads_all_know(monkeypatch):
    team, read = Team(monkeypatch, 2), []

    def make() -> str:
        read.append(team.own.index)
        return f"of {team.own.index}"

    def refuse() -> None:
        raise ValueError(f"by {team.own.index}")

    assert team.play(lambda: processes.shared(make)) == 2 * ["of 0"] and read == [0]
    assert team.play(lambda: processes.shared(refuse)) == 2 * ["by 0"]
    about = lambda index: {"same": 1, "settings": {"step_size": 0.1 + index}}
    (said, again) = team.play(lambda: processes.check_alike(about(team.own.index)))
    assert (
        said
        == again
        == (
            "all processes must compute the same, but `settings: step_size` is 0.1 in"
            " process 1 and 1.1 in process 2."
        )
    )
    assert team.play(lambda: processes.check_alike(about(0))) == [None, None]


def test_trials_are_shared_out_whole_and_in_order(monkeypatch):
    team = Team(monkeypatch, 4)
    for start, stop in ((0, 10), (7, 9), (3, 3)):
        whole = slice(start, stop)
        parts = team.play(functools.partial(processes.part, whole))
        indices = [index for own in parts for index in range(own.start, own.stop)]
        assert indices == list(range(start, stop))


@pytest.mark.parametrize("kind, expected", [("jointly", [3]), ("by rounds", [3, 4])])
def test_trials_that_are_long_runs_are_done_by_all(monkeypatch, kind, expected):
    """Others are shared out: the first of two processes does one of two."""
    monkeypatch.setattr(ways, "num_processes", lambda: 2)
    monkeypatch.setattr(ways, "part", lambda trials: slice(3, 4))
    monkeypatch.setattr(ways, "gathered", lambda value: [value, value])
    grid, done = plain_grid(), []

    def simulate(trial, key, constants):
        done.append(key)
        return draw(trial, key, constants)

    def jointly(trials, key, constants):
        done.append(key)
        return draw_jointly(trials, key, constants)

    joint = Joint(jointly, lambda trial: 0)
    is_long = kind == "by rounds"
    asked = (simulate, None) if is_long else (None, joint)
    plain = dict.fromkeys(("batching", "chunk", "memory", "devices"))
    way = ways.choose_way(grid, *asked, None, by_rounds=is_long, stops=False, **plain)
    way.compute(ways.Work())(0, [(0, 0)], slice(3, 5))
    key = jax.random.key(grid.seed, impl="threefry2x32")
    assert done == [jax.random.fold_in(key, index) for index in expected]


class StubbornError(ValueError):
    """Cannot be pickled, also where another library has errors be it that could not."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")
        self.held = threading.Lock()


def test_every_error_can_be_sent(monkeypatch):
    team = Team(monkeypatch, 2)

    def refuse() -> None:
        raise StubbornError("one", "two")

    def read() -> str:
        try:
            return processes.shared(refuse) or ""
        except Exception as error:
            return f"{type(error).__name__} {error}"

    assert team.play(read) == 2 * ["RuntimeError StubbornError: one and two"]
    error = ValueError("plain")
    assert processes.portable(error) is error


def test_one_process_gathers_what_it_has():
    assert processes.gathered(3) == [3] and processes.shared(lambda: 4) == 4
    assert processes.part(slice(2, 9)) == slice(2, 9)
    processes.check_alike({"a": 1})


@pytest.mark.slow
def test_a_step_of_slurm_needs_no_address():
    """JAX finds the others by what `srun` says in the environment."""
    # The port that JAX makes of a job's number.
    job = next(job for job in range(4096) if is_free(61440 + job))
    step = {"SLURM_JOB_ID": str(job), "SLURM_STEP_NODELIST": "127.0.0.1"}
    step |= {"SLURM_NTASKS": "2", "SLURM_LOCALID": "0"}
    call = ("runs", "fedavg")
    every = [
        begin("auto", (0, 0), call, more=step | {"SLURM_PROCID": str(index)})
        for index in range(2)
    ]
    (expected,) = alone(call)
    assert [result(process) for process in every] == 2 * [[expected]]


# On the command line

SWEEP = ["ifca.fig3a", "--num-clients", "8", "--num-samples", "50", "--num-rounds"]
SWEEP += ["50", "--num-features", "20", "--num-restarts", "2", "--step-sizes", ".1"]
SWEEP += ["--separation", "1.0", "--noise", "0.0", "0.1", "--num-trials", "5"]
NEURAL = ["clove.table17", "--methods", "fedavg", "--num-rounds", "3"]
NEURAL += ["--num-trials", "2", "--rounds-between", "3"]


def command(
    words: Sequence[str], *process: str, folder: pathlib.Path
) -> subprocess.Popen[str]:
    """`run` with some words, of which results go to a folder."""
    words = ["run", *words, "--devices", "1", "--out", str(folder / "out"), *process]
    return subprocess.Popen(
        [sys.executable, "-m", "experiments", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=known(os.environ) | {"TMPDIR": str(folder)},
    )


def commands(
    one: Sequence[str], two: Sequence[str], folder: pathlib.Path
) -> list[tuple[int, str, str]]:
    """Exit status and what was said of two processes of such words."""
    where = ["--coordinator", free_address()]
    folders = [folder / "first", folder / "second"]
    for own in folders:
        own.mkdir(parents=True)
    every = [
        command(words, *where, "--process", f"{index + 1}/2", folder=folders[index])
        for index, words in enumerate((one, two))
    ]
    said = [process.communicate(timeout=WAIT) for process in every]
    return [(one.returncode, *told) for one, told in zip(every, said, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("words", [SWEEP, NEURAL], ids=["sweep", "neural"])
def test_tables_of_processes_are_those_of_one(tmp_path, words):
    (whole := tmp_path / "whole").mkdir()
    process = command(words, folder=whole)
    out, said = process.communicate(timeout=WAIT)
    assert process.returncode == 0, said
    (first, *told), (second, *silent) = commands(words, words, tmp_path)
    assert (first, second) == (0, 0), (told, silent)
    assert silent == ["", ""] and told[0].splitlines()[0] == out.splitlines()[0]
    tables = lambda own: {
        name: content
        for name, content in contents(own / "out").items()
        if name.endswith((".csv", ".md", ".svg"))
    }
    assert tables(tmp_path / "first") == tables(whole) != {}
    assert contents(tmp_path / "second") == {}


@pytest.mark.slow
def test_commands_that_differ_are_refused(tmp_path):
    other = [*SWEEP[:-1], "6"]
    for status, out, said in commands(SWEEP, other, tmp_path):
        assert status == 2 and not out
        assert said == (
            "error: all processes must compute the same, but `num_trials` is 5 in"
            " process 1 and 6 in process 2.\n"
        )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--process", "1/2"], "`--process 1/2` needs `--coordinator HOST:PORT`"),
        (["--coordinator", "h:1"], "needs `--process I/N`, and"),
        (["--coordinator", "auto", "--process", "1/2"], "has no use for it"),
        (["--coordinator", "h", "--process", "1/2"], "must be HOST:PORT"),
        (["--coordinator", "h:1", "--process", "3/2"], "must be (i, n)"),
        (
            ["--coordinator", "h:1", "--process", "1/2", "--shard", "1/2"],
            "`--shard` and `--coordinator` exclude each other",
        ),
    ],
)
def test_words_that_cannot_be_are_refused(tmp_path, capsys, words, said):
    assert main(["run", *SWEEP, "--out", str(tmp_path / "out"), *words]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


# Against misuse


@pytest.mark.parametrize(
    ("address", "place", "said"),
    [
        ("127.0.0.1", (1, 2), "`coordinator` must be HOST:PORT, such as"),
        ("host:99999", (1, 2), "`coordinator` must be HOST:PORT"),
        ("127.0.0.1:1234", (3, 2), r"`place` must be \(i, n\), 1 <= i <= n, got \(3"),
        (None, (1, 2), "`coordinator` and `place` belong together"),
        ("127.0.0.1:1234", None, "`coordinator` and `place` belong together"),
        ("127.0.0.1:1", (2, 2), "no process 1 answers at 127.0.0.1:1 within 0.1"),
        ("192.0.2.1:1234", (1, 2), "process 1 cannot listen at 192.0.2.1:1234"),
    ],
)
def test_what_cannot_be_is_refused_at_once(address, place, said):
    with (
        pytest.raises(ValueError, match=said) as error,
        engine.clients_over_processes(address, place, seconds=0.1),
    ):
        pass
    assert "\n" not in str(error.value)
    assert engine.num_processes() == 1 and engine.is_first()


@pytest.mark.slow
def test_the_first_process_does_not_wait_for_ever():
    process = begin(free_address(), (1, 2), seconds=3)
    _, said = process.communicate(timeout=WAIT)
    assert process.returncode == 1
    last = said.splitlines()[-1]
    assert "`coordinator`: the processes did not meet at 127.0.0.1:" in last


@pytest.mark.slow
def test_processes_that_do_not_compute_the_same_are_refused():
    found = together(("differ", "seed"), ("differ", "nothing"))
    (one, nothing), other = found[0], found[1]
    assert [one, nothing] == other and nothing == "nothing"
    assert one.startswith("all processes must compute the same, but `key` is 'key")


@pytest.mark.slow
def test_other_numbers_of_devices_are_refused():
    address = free_address()
    every = [begin(address, (index, 2), devices=index) for index in (1, 2)]
    for process in every:
        _, said = process.communicate(timeout=WAIT)
        assert process.returncode == 1
        assert "process 1 has 1 and process 2 has 2; say how many" in said


# Against failures


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
@pytest.mark.parametrize("how", ["SIGKILL", "raises"])
def test_when_one_process_ends_the_other_does(index, how):
    address = free_address()
    every = [begin(address, (at, 2), ("endless", index, how)) for at in (1, 2)]
    dying, other = every[index], every[1 - index]
    _, said = dying.communicate(timeout=WAIT)
    assert dying.returncode == (-signal.SIGKILL if how == "SIGKILL" else 1), said
    before = time.monotonic()
    _, said = other.communicate(timeout=WAIT)
    assert time.monotonic() - before < 10
    assert other.returncode == processes.LOST
    assert said.startswith(LOST) and len(said.splitlines()) == 1, said


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 1])
def test_when_one_process_falls_silent_the_other_ends(index):
    address = free_address()
    every = [begin(address, (at, 2), ("endless", index, "SIGSTOP")) for at in (1, 2)]
    silent, other = every[index], every[1 - index]
    try:
        _, said = other.communicate(timeout=WAIT)
        assert other.returncode == processes.LOST
        assert said.startswith(LOST) and len(said.splitlines()) == 1, said
    finally:
        silent.kill()
        silent.communicate()
