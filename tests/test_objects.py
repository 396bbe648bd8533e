"""Stores in a bucket: results of a folder's, whoever writes, dies or is away."""

import concurrent.futures
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
import test_reliability_kills
import xarray
from engine_trial import JOINT, fork, plain_grid, serve, wait_for
from object_server import Server, serving
from test_reliability_kills import SILENT, batter, cells, faults, work

import cfljax as cfl
from cfljax.engine import (
    Joint,
    StoreError,
    SweepError,
    checkpoints,
    objects,
    sweep,
    upkeep,
    ways,
)
from cfljax.engine.checkpoints import Checkpoint
from cfljax.engine.objects import Leases, Objects
from cfljax.engine.store import Store
from experiments.__main__ import main

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

GRID = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=13)  # Four blocks.
NUMBERS = iter(range(1000))
SLOWLY = "empty", "flipped", "gone"  # What is as good as missing in the same way.


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving() as found:
        yield found


@pytest.fixture
def url(server) -> str:
    """Of a store that nobody has begun."""
    return f"s3://results/store{next(NUMBERS)}/a"


@pytest.fixture(scope="module")
def local(tmp_path_factory) -> xarray.Dataset:
    return sweep(GRID, None, tmp_path_factory.mktemp("local") / "s", joint=JOINT)


@pytest.fixture
def anew(monkeypatch) -> Callable[[], None]:
    """Forget what this process has read, as another one knows nothing of it."""
    return lambda: monkeypatch.setattr(objects, "_OPENED", {})


def finish(url: str, **options: Any) -> xarray.Dataset:
    return sweep(GRID, None, url, joint=JOINT, progress=False, **options)


def in_bucket(url: str, *block: int) -> str:
    """The path of a block."""
    key = Store(objects.folder_of(url), GRID).key(block)
    return f"{url.removeprefix('s3:/')}/cells/{key}.npz"


def puts(server: Server, part: str) -> int:
    """How often an object of such a name was written."""
    return sum(method == "PUT" and part in name for method, name in server.requests)


# Against itself: a folder's results


def test_bits_are_those_of_a_folder_and_a_second_run_writes_nothing(
    server, url, local, anew
):
    before = puts(server, "/cells/")
    assert finish(url).identical(local)
    assert puts(server, "/cells/") - before == 4
    anew()
    count = puts(server, "")
    assert finish(url).identical(local) and puts(server, "") == count
    found = cfl.open_results(url)
    np.testing.assert_array_equal(
        found["value"].values.ravel(), local["value"].values.ravel()
    )


def test_more_trials_are_put_behind_those_that_are_there(url, anew):
    few, many = GRID, dataclasses.replace(GRID, num_trials=17)
    sweep(few, None, url, joint=JOINT, progress=False)
    anew()
    found = sweep(many, None, url, joint=JOINT, progress=False)
    anew()
    assert found.identical(sweep(many, None, url, joint=JOINT, progress=False))
    (run, other) = json.loads((objects.folder_of(url) / "provenance.json").read_text())[
        "runs"
    ]
    assert (run["blocks"], other["blocks"]) == (4, 2)  # Of the second one the last.
    # Control: fewer trials replace nothing of more.
    anew()
    sweep(few, None, url, joint=JOINT, progress=False)
    assert found.identical(sweep(many, None, url, joint=JOINT, progress=False))


@pytest.mark.parametrize(
    "kind",
    [
        *("truncated", "exchanged"),
        *(pytest.param(kind, marks=pytest.mark.slow) for kind in SLOWLY),
    ],
)
def test_objects_that_are_damaged_are_computed_again(
    server, url, local, anew, kind, capsys
):
    finish(url)
    place, other = in_bucket(url, 0, 1), in_bucket(url, 1, 1)
    whole = server.ask("GET", place)
    broken = {
        "truncated": whole[:-7],
        "empty": b"",
        "flipped": whole[:40] + bytes([whole[40] ^ 1]) + whole[41:],
        "exchanged": server.ask("GET", other),
    }
    if kind == "gone":
        server.ask("DELETE", place)
    else:
        server.ask("PUT", place, broken[kind])
    anew()
    assert main(["store", "verify", url]) == (kind != "gone")
    found = {item.condition for item in upkeep.survey(url)}
    assert found == {"sound"} | ({"exchanged"} if kind == "exchanged" else set()) | (
        {"damaged"} if kind in ("truncated", "empty", "flipped") else set()
    )
    anew()
    before = puts(server, "/cells/")
    assert finish(url).identical(local)
    assert puts(server, "/cells/") == before + 1
    assert server.ask("GET", place) != broken.get(kind)
    assert main(["store", "verify", url]) == 0
    assert "1 damaged" not in capsys.readouterr().out.splitlines()[-1]


def test_cells_that_fail_are_told_in_the_bucket(url, anew):
    wrong: dict[str, Any] = {"unknown": 1}
    fails = Joint(functools.partial(JOINT.simulate, **wrong), JOINT.shares)
    told = f"all cells failed, .*; see `{url}/failures.jsonl`"
    with pytest.raises(SweepError, match=told):
        sweep(GRID, None, url, joint=fails, progress=False)
    anew()
    folder = objects.fetched(url)
    lines = (folder / "failures.jsonl").read_text().splitlines()
    assert [json.loads(line)["error"] for line in lines] == ["TypeError"] * 2
    assert finish(url).attrs["failures"] == 0


# Against itself: claims and what all runs write


@pytest.fixture
def two(url) -> Iterator[tuple[Leases, Leases]]:
    """What two runs hold that know nothing of each other."""
    with Leases(Objects(url)) as one, Leases(Objects(url)) as other:
        yield one, other


def test_claims_are_all_or_nothing(two):
    one, other = two
    with one.claim(["a/0", "a/1", "a/2"]) as mine:
        assert mine
        with other.claim(["b/1", "a/1"]) as theirs:
            assert not theirs
        with other.claim(["b/0", "b/1", "b/2"]) as theirs:
            assert theirs  # What a refused claim asked for is free.
            one.check()
            other.check()
    with other.claim(["a/1", "b/1"]) as theirs:
        assert theirs


def sign(url: str, one: Leases) -> str:
    return f"{url.removeprefix('s3://results/')}/{one._sign}"


def test_a_run_that_is_not_heard_of_loses_its_claims(server, url, two, monkeypatch):
    one, other = two
    with one.claim(["a/0", "a/1"]) as mine:
        server.age(sign(url, one), objects.LEASE - 5)
        with other.claim(["a/1"]) as theirs:
            assert mine and not theirs  # Control: it is not that old.
        server.age(sign(url, one), 10)
        monkeypatch.setattr(other, "_asked", -np.inf)
        with other.claim(["a/1"]) as theirs:
            assert theirs
            other.check()
            with pytest.raises(
                StoreError, match="another one has taken over"
            ) as caught:
                one.check()
            assert "\n" not in str(caught.value)
            # It comes back: it holds nothing, and takes nothing away.
            one._beat()
            with one.claim(["a/1"]) as again:
                assert not again


def test_a_run_that_has_just_begun_is_known(url, two):
    one, other = two
    with one.claim(["a/0"]), other.claim(["a/0"]) as theirs:
        assert not theirs  # And knows now who lives.
        with Leases(Objects(url)) as third, third.claim(["b/0"]):
            with other.claim(["b/0"]) as theirs:
                assert not theirs
            third.check()


def test_who_is_alive_is_told_from_who_may_be_dead(server, url, two, monkeypatch):
    one, other = two
    assert not other.may_be_over()  # Nobody has refused anything.
    with one.claim(["a/0"]):
        for is_alive in (False, True, True):
            monkeypatch.setattr(other, "_asked", -np.inf)
            with other.claim(["a/0"]) as theirs:
                assert not theirs
            assert other.may_be_over() != is_alive
            server.age(sign(url, one), 5)  # Its sign is another one.
    with Leases(Objects(url)) as third, third.claim(["a/0"]):
        with other.claim(["a/0"]) as theirs:
            assert not theirs
        assert other.may_be_over()
    with other.claim(["a/0"]) as theirs:
        assert theirs and not other.may_be_over()


def test_leaving_frees_nothing_of_who_took_over(server, url, two):
    one, other = two
    with other.claim(["b/0"]):
        claim = one.claim(["a/0"])
        assert claim.__enter__()
        server.age(sign(url, one), 100)
        late = other.claim(["a/0"])
        assert late.__enter__()
        claim.__exit__(None, None, None)
        other.check()
        with one.claim(["a/0"]) as mine:
            assert not mine


def test_a_table_of_claims_that_is_damaged_is_none(server, url, two):
    one, other = two
    with one.claim(["a/0"]):
        server.ask("PUT", f"{url.removeprefix('s3:/')}/claims.json", b"[1, ")
        with other.claim(["a/0"]) as theirs:
            assert theirs
        with pytest.raises(StoreError):
            one.check()


def interrupted(one: Leases, other: Leases) -> list[str]:
    """What remains of lines that two write at the same time."""
    calls = []

    def added(before: bytes) -> bytes:
        if not calls:  # The other one is faster.
            other.append("lines", "b\n")
        calls.append(before)
        return before + b"a\n"

    one.rewrite("lines", added)
    return one._objects.read("lines").decode().split()


def unconditional(monkeypatch: pytest.MonkeyPatch) -> None:
    def put(self: Objects, name: str, content: bytes, tag: str | None) -> str | None:
        with self._errors():
            return self._store.put(name, content, use_multipart=False)["e_tag"]

    monkeypatch.setattr(Objects, "_put", put)


def test_no_update_is_lost(two, monkeypatch):
    one, other = two
    assert interrupted(one, other) == ["b", "a"]
    # Control: writes without a condition lose one.
    unconditional(monkeypatch)
    one._objects.put("lines", b"")
    assert interrupted(one, other) == ["a"]


def both(one: Leases, other: Leases) -> list[bool]:
    """Whether two get a block who ask for it at the same time."""
    original, found = one._with, []

    def late(old: bytes, names: Any) -> bytes | None:
        if not found:  # The other one is faster.
            found.append(stack.enter_context(other.claim(names)))
        return original(old, names)

    with contextlib.ExitStack() as stack, pytest.MonkeyPatch.context() as patch:
        patch.setattr(one, "_with", late)
        found.append(stack.enter_context(one.claim(["a/0"])))
    return found


def test_no_block_is_claimed_twice(two, monkeypatch):
    assert both(*two) == [True, False]
    unconditional(monkeypatch)  # Control.
    assert both(*two) == [True, True]


def test_a_server_that_ignores_conditions_is_refused(server, url, monkeypatch):
    monkeypatch.setattr(server, "keeps_conditions", False)
    with pytest.raises(StoreError, match="does not keep to conditions") as caught:
        finish(url)
    assert "\n" not in str(caught.value)


def test_a_write_whose_answer_was_lost_counts_once(server, url, local, monkeypatch):
    lost: list[Any] = []

    def loses(request: Any) -> bool:
        method, name = request
        is_lost = method == "PUT" and len(lost) < 3 and name not in lost
        if is_lost and any(
            part in name for part in ("/cells/", "claims", "provenance")
        ):
            lost.append(name)
            return True
        return False

    monkeypatch.setattr(server, "loses", loses)
    assert finish(url).identical(local)
    assert len(lost) == 3
    (run,) = json.loads((objects.folder_of(url) / "provenance.json").read_text())[
        "runs"
    ]
    assert run["blocks"] == 4


def test_a_write_whose_connection_broke_is_tried_again(server, url, local, monkeypatch):
    """The library leaves that to us, as the write may have been done."""
    broken: list[str] = []

    def resets(request: Any) -> bool:
        method, name = request
        if method != "PUT" or len(broken) == 6 or broken.count(name) == 2:
            return False
        if not any(part in name for part in ("/cells/", "claims", "provenance")):
            return False
        broken.append(name)
        return True

    monkeypatch.setattr(server, "resets", resets)
    assert finish(url).identical(local)
    assert len(broken) == 6


def test_a_block_that_another_run_has_put_meanwhile_stays(server, url, local, anew):
    """As one that was suspended behind its last look, and whose claim is over."""
    finish(url)
    place = in_bucket(url, 0, 1)
    whole = server.ask("GET", place)
    server.ask("DELETE", place)
    anew()
    store = Store(objects.folder_of(url), GRID)
    server.ask("PUT", place, whole)
    about = dict(store.about((0, 0)))
    late = {"value": np.zeros((3, 3), np.float32)}
    assert not store.write((0, 1), late, about)
    assert server.ask("GET", place) == whole
    assert store.outputs((0, 1))["value"].any()
    # Control: where nothing is, it is put.
    server.ask("DELETE", place)
    anew()
    assert Store(objects.folder_of(url), GRID).write((0, 1), late, about)
    assert server.ask("GET", place) != whole


# Against misuse


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("s3://results", "is not a store of results: it has"),
        ("s3://nobody-has-it/a", "there is no bucket 'nobody-has-it'"),
        ("s3://x", "is no place for a store: give s3://BUCKET/PREFIX"),
        ("s3://results/a/../b", "is no place for a store"),
        ("gs://results/a", "must be a folder or s3://BUCKET/PREFIX"),
        ("s3://results/nothing", "there is no `s3://results/nothing`"),
    ],
)
def test_places_that_cannot_be_used_are_told_in_a_line(server, capsys, place, why):
    server.ask("PUT", "/results/else/a.txt", b"of somebody else")
    assert main(["store", "ls", place]) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1


def test_repair_is_left_to_runs(url, capsys):
    assert main(["store", "repair", url]) == 2
    assert "the next run computes again" in capsys.readouterr().err


def test_what_is_missing_here_is_told(url, monkeypatch):
    def refused(match: str) -> None:
        with pytest.raises(StoreError, match=match) as caught:
            Objects(url)
        assert "\n" not in str(caught.value)

    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://example.org")
    refused("is not encrypted; set AWS_ALLOW_HTTP=true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "ftp://127.0.0.1")
    refused("must be a URL of http")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    refused("set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    refused("needs obstore; install the extra `s3`")


# Against failures: a server that goes away


def test_no_server_is_told_in_a_line(url, monkeypatch, capsys):
    monkeypatch.setattr(objects, "_OPENING", 0.2)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    assert main(["store", "ls", url]) == 2
    said = capsys.readouterr().err
    assert "no server answers at http://127.0.0.1:9" in said and said.count("\n") == 1


@pytest.mark.parametrize("comes_back", [False, True])
def test_a_server_that_goes_away(url, local, monkeypatch, anew, comes_back):
    monkeypatch.setattr(objects, "PATIENCE", 30.0 if comes_back else 0.5)
    monkeypatch.setattr(objects, "_OPENING", 0.5)
    with serving() as own:

        def seen(request: Any) -> bool:
            if request[0] == "PUT" and "/cells/" in request[1]:
                own.is_away = puts(own, "/cells/") == 2
            if own.is_away and comes_back:
                threading.Timer(0.3, setattr, (own, "is_away", False)).start()
            return False

        monkeypatch.setattr(own, "loses", seen)
        if not comes_back:
            with pytest.raises(StoreError, match="no server answers") as caught:
                finish(url)
            assert "\n" not in str(caught.value)
            assert puts(own, "/cells/") == 2
            own.is_away = False
            anew()
            # It died without a word, so that its claims end with its lease.
            (name,) = Objects(url).sizes("alive/")
            own.age(f"{url.removeprefix('s3://results/')}/{name}", 100)
        assert finish(url).identical(local)
        assert puts(own, "/cells/") == 4


# Against failures: processes that share, die, or are suspended

LEASE, BEAT = 6.0, 0.4  # Seconds, so that tests need not wait long.


def play(url: str, folder: str, way: str, kills: int, workers: int, loses: bool) -> Any:
    """How many of some workers on `cells` were killed, and how the others ended; they
    log, and write without conditions if blocks are to be lost."""
    place = pathlib.Path(folder)
    place.mkdir()
    file = place / "log"
    file.touch()
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": "0.01"}
    objects.LEASE, objects.BEAT = LEASE, BEAT
    hesitate()
    start = lambda _: fork(lambda: work(url, way, 23, None))
    if loses:
        blindly()
    if not kills:
        every = [start(number) for number in range(workers)]
        return [0, [os.waitpid(process, 0)[1] for process in every]]
    lines = lambda: file.read_bytes().count(b"\n")
    most = max(1, 23 // kills)  # Of 46 trials of two cells at once.
    killed, statuses = batter(start, lines, kills=kills, most=most, seed=kills)
    with file.open("a") as log_file:
        log_file.writelines(f"kill {process}\n" for process in killed)
    return [len(killed), statuses]


def hesitate() -> None:
    """From now on this process takes its time to claim, so that many do it at once."""
    decide = Leases._with

    def late(self: Leases, old: bytes, names: Any) -> bytes | None:
        found = decide(self, old, names)
        time.sleep(0.2)
        return found

    Leases._with = late


def blindly() -> None:
    """From now on this process claims without conditions, and does not insist."""

    def put(self: Objects, name: str, content: bytes, tag: str | None) -> str | None:
        if name != "claims.json":
            return original(self, name, content, tag)
        self.put(name, content)
        return "blind"

    def once(grid: Any, simulate: Any, path: Any, **options: Any) -> None:
        with contextlib.suppress(StoreError):
            sweep(grid, simulate, path, progress=False, **options)

    original, Objects._put = Objects._put, put
    test_reliability_kills.insist = once


def suspend(url: str, folder: str) -> list[Any]:
    """A worker is stopped while it holds claims; what another one was told at once, and
    how it ended that began once nothing was heard of the first; then the first goes on.
    Returns that, how all ended, and whether the first has changed a block."""
    place = pathlib.Path(folder)
    place.mkdir()
    file, told = place / "log", place / "told"
    os.environ |= {"TRIAL_LOG": str(file), "TRIAL_SECONDS": "1.5"}
    objects.LEASE, objects.BEAT = LEASE, BEAT

    def taken_over() -> None:
        with pytest.raises(StoreError) as caught:
            work(url, "joint", 23, None)
        told.write_text(str(caught.value))

    def alive() -> None:
        with pytest.raises(StoreError, match="computed by another run"):
            sweep(cells(), None, url, **SILENT["joint"][1])

    first = fork(taken_over)
    wait_for(lambda: file.exists() and file.read_bytes().count(b"trial") >= 3)
    os.environ["TRIAL_SECONDS"] = "0"
    # Its half of the blocks is left to the one that is alive.
    statuses = [os.waitpid(fork(alive), 0)[1]]
    os.kill(first, signal.SIGSTOP)
    os.waitpid(first, os.WUNTRACED)
    goes_on = lambda: sweep(cells(), None, url, **SILENT["joint"][1])
    statuses.append(os.waitpid(fork(goes_on), 0)[1])
    before = objects.Objects(url).sizes("cells/")
    times = objects.Objects(url).times("cells/")
    os.kill(first, signal.SIGCONT)
    statuses.append(os.waitpid(first, 0)[1])
    after = objects.Objects(url).sizes("cells/"), objects.Objects(url).times("cells/")
    return [told.read_text(), statuses, after == (before, times)]


def check(url: str, folder: pathlib.Path, anew: Callable[[], None]) -> None:
    """Nothing was lost, spoiled or done twice."""
    anew()
    expected = sweep(cells(), None, folder / "whole", **SILENT["joint"][1])
    lines = (folder / "play" / "log").read_text().splitlines()
    place = objects.folder_of(url)
    assert faults(place, lines, expected) == []
    runs = json.loads((place / "provenance.json").read_text())["runs"]
    assert len({run["run"] for run in runs}) == len(runs)
    if not any(line.startswith("kill") for line in lines):
        assert sum(run["blocks"] for run in runs) == 18


def served(url: str, tmp_path: pathlib.Path, *rest: Any) -> list[Any]:
    call = ("play", url, str(tmp_path / "play"), "joint", *rest)
    return serve(__name__, call, env=os.environ)[0]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4])
def test_workers_share_one_bucket(url, tmp_path, anew, workers):
    assert served(url, tmp_path, 0, workers, False) == [0, [0] * workers]
    check(url, tmp_path, anew)


@pytest.mark.slow
def test_without_conditions_workers_do_the_same_twice(url, tmp_path, anew):
    """Control."""
    assert served(url, tmp_path, 0, 4, True) == [0, [0] * 4]
    anew()
    expected = sweep(cells(), None, tmp_path / "whole", **SILENT["joint"][1])
    lines = (tmp_path / "play" / "log").read_text().splitlines()
    found = faults(objects.folder_of(url), lines, expected)
    assert any(one.endswith("was run twice") for one in found)
    # But what is stored is right.
    assert not any("wrong" in one or "done twice" in one for one in found)


@pytest.mark.slow
@pytest.mark.parametrize("kills", [3, 12])
def test_killed_workers_lose_and_repeat_nothing(url, tmp_path, anew, kills):
    assert served(url, tmp_path, kills, 2, False) == [kills, [0, 0]]
    check(url, tmp_path, anew)


@pytest.mark.slow
def test_workers_survive_a_server_that_comes_and_goes(server, url, tmp_path, anew):
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        found = pool.submit(served, url, tmp_path, 0, 2, False)
        wait_for(lambda: puts(server, url.removeprefix("s3:/")) > 5)
        chance, stops = random.Random(0), 0
        while not found.done() and stops < 6:
            time.sleep(chance.random())
            server.stop()
            time.sleep(chance.random())
            server.start()
            stops += 1
    assert found.result() == [0, [0, 0]] and stops > 1
    check(url, tmp_path, anew)


@pytest.mark.slow
def test_suspended_worker_is_taken_over_and_spoils_nothing(url, tmp_path, anew):
    call = ("suspend", url, str(tmp_path / "play"))
    ((told, statuses, is_untouched),) = serve(__name__, call, env=os.environ)
    assert "another one has taken over" in told and "\n" not in told
    assert statuses == [0, 0, 0] and is_untouched
    anew()
    found = sweep(cells(), None, url, **SILENT["joint"][1])
    assert found.identical(sweep(cells(), None, tmp_path / "s", **SILENT["joint"][1]))


@pytest.mark.slow
def test_command_goes_on_where_a_killed_one_stopped(server, url, tmp_path, monkeypatch):
    """And ends with the same tables as one with a folder."""
    monkeypatch.setattr("engine_trial.PATIENCE", 600.0)  # It compiles.
    small = ["--separation", "1.0", "--noise", "0.1", "0.2", "--num-trials", "20"]
    small += ["--num-restarts", "2", "--step-sizes", "0.1", "--num-rounds", "3"]
    command = ["run", "ifca.fig3a", *small, "--store", url, "--out"]
    whole = [sys.executable, "-m", "cfljax", *command, str(tmp_path / "out")]
    before = puts(server, "/cells/")
    first = subprocess.Popen(whole, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: puts(server, "/cells/") > before)
    finally:
        first.kill()
        first.wait()
    done = subprocess.run(whole, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    assert puts(server, "/cells/") == before + 4
    alone = [*command[:-3], "--out", str(tmp_path / "alone")]
    assert main(alone) == 0
    tables = sorted((tmp_path / "alone").glob("*.csv"))
    assert tables
    for table in tables:
        assert (tmp_path / "out" / table.name).read_bytes() == table.read_bytes()


def long_run(trial: Any, key: jax.Array, constants: Any) -> dict[str, Any]:
    """Twelve rounds."""
    sizes: dict[str, Any] = {"num_clients": 4, "num_clusters": 2}
    sizes |= {"num_samples": 5, "num_features": 3}
    data, _ = cfl.data.mixed_linear(key, separation=1.0, noise=0.1, **sizes)
    algorithm = cfl.ifca(cfl.models.linear(3), num_clusters=2, step_size=0.1)
    state, _ = cfl.run(algorithm, key, data, num_rounds=12, observe=None)
    return {"value": np.ravel(jax.tree.leaves(state)[0])[:3]}


@pytest.mark.slow
def test_long_runs_go_on_in_the_middle(url, tmp_path, anew, monkeypatch):
    grid = plain_grid(axes={}, num_trials=2)
    saved: list[int] = []
    stopped: list[int] = []
    write = Checkpoint.write

    def noted(self: Checkpoint, done: Any) -> None:
        write(self, done)
        saved.append(done.rounds)
        if len(saved) == 18 and not stopped:  # In the middle of the second run.
            stopped[:] = saved
            raise KeyboardInterrupt

    often = functools.partial(checkpoints, every=0.0)
    monkeypatch.setattr(ways, "checkpoints", often)
    monkeypatch.setattr(sys.modules[Checkpoint.__module__], "_SEGMENT", 0.0)
    monkeypatch.setattr(Checkpoint, "write", noted)
    run = functools.partial(sweep, grid, long_run, by_rounds=True, progress=False)
    with pytest.raises(KeyboardInterrupt):
        run(url)
    saved.clear()
    anew()
    found = run(url)
    # The first run had ended, the second one goes on.
    assert stopped[:12] == list(range(1, 13)) and min(saved) == stopped[-1] + 1
    assert found.identical(run(tmp_path / "s"))
    assert not Objects(url).sizes("states/")
