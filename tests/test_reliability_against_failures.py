"""Whatever clocks, hosts and neighbours do, a sweep ends right or says one line."""

import contextlib
import datetime
import os
import pathlib
import platform
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from reliability_kinds import (
    KINDS,
    SIZES,
    Calls,
    chunks,
    contents,
    grid,
    outcomes,
)

import cfljax.engine.provenance
from cfljax.engine import StoreError, sweep
from cfljax.engine.claims import Claims
from experiments.__main__ import main
from experiments.ifca import fig3


@pytest.fixture
def panel(tmp_path, monkeypatch, capsys):
    """Runs a panel whose trials cost nothing; returns exit status, stdout, stderr."""
    monkeypatch.setattr(fig3, "simulate_jointly", outcomes)

    def run(*flags: str) -> tuple[int, str, str]:
        out = ["--out", str(tmp_path / "out"), "--shard", "1/1"]
        flags = ("--shortcuts", *SIZES, *flags)
        status = main(["run", "ifca.fig3a", *out, *flags])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    assert run()[0] == 0
    return run


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--seed", "3"], "was written with `seed` = 0, this run has 3"),
        (["--num-trials", "3"], "was written with `num_trials` = 2, this run has 3"),
        (["--num-rounds", "4"], "was written with `num_rounds` = 3, this run has 4"),
        (["--noise", "0.2"], "was written with `noise` = [0.1], this run has [0.2]"),
        (["--step-sizes", "0.2"], "was written with `step_size` = "),
        ([], f"was written by revision {fig3.REVISION} of the trial, this is revis"),
    ],
    ids=["seed", "trials", "field", "axis", "constants", "revision"],
)
def test_store_of_another_sweep_is_one_line(
    panel, tmp_path, monkeypatch, flags, message
):
    if not flags:
        monkeypatch.setattr(fig3, "REVISION", fig3.REVISION + 1)
    before = contents(tmp_path)
    status, out, err = panel(*flags)
    assert (status, out) == (2, "")
    assert err.startswith("error: `") and err.count("\n") == 1
    assert message in err and "choose another folder or delete it" in err
    assert contents(tmp_path) == before


def test_store_of_another_panel_is_one_line(panel, tmp_path, capsys):
    before = contents(tmp_path)
    out = ["--out", str(tmp_path / "out"), "--shortcuts"]
    sizes = ["--num-clients", "40", "--num-samples", "50", "--num-features", "200"]
    status = main(["run", "ifca.fig3b", *out, *SIZES, *sizes])
    err = capsys.readouterr().err
    assert status == 2 and err.count("\n") == 1
    assert "`experiment` = 'ifca.fig3a', this run has 'ifca.fig3b'" in err
    assert contents(tmp_path) == before


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
        patch.setattr(
            os, "uname", lambda: os.uname_result((*system[:1], host, *system[2:]))
        )
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
            sweep(grid(), None, path, joint=calls.joint, shard=(turn + 1, 2))
        age(tmp_path, 1970 if year == 2100 else 2100)
    assert sweep(grid(), None, path, joint=calls.joint).identical(sweep_results)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 2 * 11
    text = (tmp_path / "s.provenance.json").read_text()
    assert "1970-01-02" in text and "2100-01-02" in text  # Control: it was told them.
    assert "early" not in text and "late" not in text


@pytest.mark.parametrize(("year", "other"), [(1970, 2100), (2100, 1970)])
def test_claim_does_not_age(tmp_path, sweep_results, year, other):
    path, shape = tmp_path / "s", (2, 2, 2)
    with Claims(path, shape) as claims, claims.claim([(0, 0, 1), (1, 0, 1)]) as mine:
        assert mine
        age(tmp_path, other)
        with (
            elsewhere(year, "other"),
            pytest.raises(StoreError, match=r"2 blocks of .* by another run"),
        ):
            sweep(grid(), None, path, joint=KINDS)
    assert sweep(grid(), None, path, joint=KINDS).identical(sweep_results)


def test_shards_of_different_counts_share_a_store(tmp_path, sweep_results):
    path, calls = tmp_path / "s", Calls()
    for shard in ((1, 2), (1, 3), (3, 3), (2, 2)):
        sweep(grid(), None, path, joint=calls.joint, shard=shard)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 2 * 11
    assert sweep(grid(), None, path, joint=KINDS).identical(sweep_results)


def test_shards_of_different_counts_at_once(tmp_path, sweep_results):
    """1/2 and 1/3 begin with the same unit: one of them takes it."""
    path, calls, failures = tmp_path / "s", Calls(threading.Barrier(2)), []

    def run(shard: tuple[int, int]) -> None:
        try:
            options: dict[str, Any] = {"shard": shard, "progress": False}
            sweep(grid(), None, path, joint=calls.joint, **options)
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
    assert len(chunks(path, "done")) == 2 * 3
    sweep(grid(), None, path, joint=calls.joint)
    assert set(calls.trials.values()) == {1} and len(calls.trials) == 2 * 11
    assert sweep(grid(), None, path, joint=KINDS).identical(sweep_results)
