"""Compiled programs kept on disk: found again, by several processes, never half."""

import importlib
import json
import os
import pathlib
import subprocess
import sys

import pytest

from cfljax.engine import cache

# JAX's own cache, which it has no public name for.
lru_cache = pytest.importorskip("jax._src.lru_cache")

PROGRAM = """
import collections, json, sys
import cfljax as cfl
import jax
seen = collections.Counter()
jax.monitoring.register_event_listener(lambda event, **_: seen.update([event]))
cfl.run
import jax.numpy as jnp
value = jnp.linspace(0.0, 1.0, 7)
for turn in range(int(sys.argv[1])):
    value = jax.jit(lambda x: jnp.sin(x * x[::-1]) + turn)(value)
found = {event.rpartition("/")[2]: number for event, number in seen.items()}
print(json.dumps([jax.device_get(value).tobytes().hex(), found]))
"""
FREE = {"CFLJAX_CACHE", "XDG_CACHE_HOME", "JAX_ENABLE_COMPILATION_CACHE"}


def start(programs=4, **variables):
    """A process that compiles some programs, where every warning is an error."""
    own = {name: value for name, value in os.environ.items() if name not in FREE}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(programs)],
        env=own | {name: str(value) for name, value in variables.items()},
        cwd=pathlib.Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process):
    """What it computed, how often programs were found or missed, what it said."""
    out, err = process.communicate()
    assert process.returncode == 0, err
    value, events = json.loads(out)
    return value, events.get("cache_hits", 0), events.get("cache_misses", 0), err


# Against itself


@pytest.mark.long
def test_programs_are_found_by_the_next_process_with_the_same_bits(tmp_path):
    fresh, _, stored, _ = finish(start(CFLJAX_CACHE=tmp_path / "programs"))
    again, found, missed, said = finish(start(CFLJAX_CACHE=tmp_path / "programs"))
    assert (again, found, missed, said) == (fresh, stored, 0, "")
    assert stored >= 4
    assert (tmp_path / "programs").stat().st_mode & 0o77 == 0
    # Control: without a cache nothing is found, and the bits are these.
    assert finish(start(CFLJAX_CACHE="off")) == (fresh, 0, 0, "")


@pytest.mark.long
def test_processes_at_once_share_a_folder(tmp_path):
    processes = [start(15, CFLJAX_CACHE=tmp_path) for _ in "ab"]
    results = [finish(process) for process in processes]
    assert len({value for value, *_ in results}) == 1
    assert all(said == "" for *_, said in results)
    assert not list(tmp_path.glob("*.partial"))
    _, found, missed, _ = finish(start(15, CFLJAX_CACHE=tmp_path))
    assert missed == 0 < found


@pytest.mark.long
def test_what_jax_was_told_wins(tmp_path):
    own = {"JAX_COMPILATION_CACHE_DIR": tmp_path / "own"}
    own |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": 0}
    finish(start(CFLJAX_CACHE=tmp_path / "ours", **own))
    assert (tmp_path / "own").exists() and not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("platform", "variable", "below"),
    [
        ("linux", "XDG_CACHE_HOME", ".cache/cfljax"),
        ("darwin", "", "Library/Caches/cfljax"),
        ("win32", "LOCALAPPDATA", "AppData/Local/cfljax"),
    ],
)
def test_the_folder_is_the_platforms(monkeypatch, tmp_path, platform, variable, below):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "CFLJAX_CACHE"):
        monkeypatch.delenv(name, raising=False)
    assert cache._folder() == tmp_path / "home" / below
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "other"))
        assert cache._folder() == tmp_path / "other" / "cfljax"
        monkeypatch.setenv(variable, "not/absolute")
        assert cache._folder() == tmp_path / "home" / below
    monkeypatch.setenv("CFLJAX_CACHE", str(tmp_path / "mine"))
    assert cache._folder() == tmp_path / "mine"


def test_what_was_not_used_for_longest_goes(tmp_path):
    files = cache._Files(tmp_path)
    for age, key in enumerate("abc"):
        files.put(key, bytes(10))
        os.utime(tmp_path / f"{key}-cache", (age, age))
    cache._shrink(tmp_path, 30)
    assert len(list(tmp_path.iterdir())) == 3  # They fit.
    assert files.get("a") == bytes(10)  # The oldest, but just used.
    cache._shrink(tmp_path, 25)
    assert [files.get(key) is None for key in "abc"] == [False, True, False]


# Against failures


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_write_that_is_cut_off_leaves_no_half_entry(monkeypatch, tmp_path, is_ours):
    """Control: JAX's own files do, which is why they are not used."""
    own = lru_cache.LRUCache(str(tmp_path), max_size=-1)
    files = cache._Files(tmp_path) if is_ours else own
    whole = pathlib.Path.write_bytes

    def half(path, value):
        whole(path, value[: len(value) // 2])
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for kind in {pathlib.Path, type(own.path)}:
            patched.setattr(kind, "write_bytes", half)
        with pytest.raises(KeyboardInterrupt):
            files.put("key", b"12345678")
    assert files.get("key") == (None if is_ours else b"1234")
    files.put("key", b"12345678")
    assert files.get("key") == (b"12345678" if is_ours else b"1234")


def test_a_full_disk_is_said_once(monkeypatch, tmp_path, caplog):
    def full(path, value):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pathlib.Path, "write_bytes", full)
    files = cache._Files(tmp_path)
    files.put("a", b"1")
    files.put("b", b"2")
    assert files.get("a") is None
    (record,) = caplog.records
    assert "No space left" in record.getMessage()


# Against misuse


@pytest.mark.long
@pytest.mark.parametrize("below", ["", "folder"])
def test_a_folder_that_cannot_be_is_one_line(tmp_path, below):
    (tmp_path / "file").write_text("in the way")
    *_, missed, said = finish(start(CFLJAX_CACHE=tmp_path / "file" / below))
    assert missed == 0
    assert said.startswith("warning: compiled programs are not kept")
    assert said.count("\n") == 1 and "set CFLJAX_CACHE to a folder" in said
    assert (tmp_path / "file").read_text() == "in the way"


@pytest.mark.parametrize(
    ("name", "argv"),
    [
        ("experiments", ["run", "ifca.fig3a", "--num-trials", "0"]),
        ("experiments", ["bench", "linear", "--repeats", "0"]),
        ("experiments", ["compare", "--num-trials", "1"]),
        ("theory", ["list", "clove.lem_a16"]),
        ("theory", ["check", "nothing.of.this.name"]),
    ],
)
@pytest.mark.parametrize("flags", [["--no-cache"], []])
def test_no_cache_goes_with_anything(monkeypatch, capsys, name, argv, flags):
    """Control: without the flag nothing is turned off."""
    main = importlib.import_module(f"{name}.__main__").main
    monkeypatch.setenv("JAX_ENABLE_COMPILATION_CACHE", "true")
    monkeypatch.setattr("cfljax.engine.use_cores", lambda number: 1)
    main([*argv, *flags])
    assert "--no-cache" not in capsys.readouterr().err
    is_off = os.environ["JAX_ENABLE_COMPILATION_CACHE"] == "false"
    assert is_off == bool(flags)
