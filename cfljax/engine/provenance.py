"""Provenance: where numbers come from, and what went wrong, in files of a store.

The same `provenance.json` stands beside the tables of a folder of results, see
`origins`. Holds no name of a user or of a machine, and no absolute path.
"""

import contextlib
import contextvars
import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import resource
import subprocess
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax

from cfljax.base.durable import replacing
from cfljax.base.unpacking import read_file
from cfljax.engine.claims import Claims
from cfljax.engine.kept import disk_errors
from cfljax.engine.objects import Leases

PACKAGES = ("cfljax", "jax", "jaxlib", "numpy")
FILE, FAILURES = "provenance.json", "failures.jsonl"


class Journal:
    """`provenance.json` and `failures.jsonl` in a store.

    The first lists the runs that wrote to the store, the second one failure a line.
    Several runs may write them; each changes its own entry alone.

    failures: where the second one is.
    run: a name of this run, which the blocks that it writes have too.
    """

    def __init__(self, store: str | os.PathLike[str], claims: Claims | Leases) -> None:
        self.failures = f"{os.fspath(store)}/{FAILURES}"
        self.first_error = ""
        self.run = uuid.uuid4().hex[:12]
        self._claims = claims
        self._run: dict[str, Any] = {"run": self.run}

    def start(self, run: dict[str, Any]) -> None:
        """Add a run, so that one which is killed has left its trace."""
        self._run |= {**run, "started": _now(), "finished": None}
        self._save()

    def finish(self, *, seconds: float, blocks: int) -> None:
        """Complete the run that was started.

        Args:
          seconds: spent in the trials, without compilation.
          blocks: number of blocks that were computed.
        """
        self._run |= {"finished": _now(), "seconds": seconds, "blocks": blocks}
        self._save()

    def record(self, cell: dict[str, Any], error: Exception) -> None:
        """Append one failure."""
        kind, message = type(error).__name__, _without_folders(str(error))
        self.first_error = self.first_error or f"{kind}: {message}".splitlines()[0]
        entry = {"time": _now(), "cell": cell, "error": kind, "message": message}
        line = json.dumps({**entry, "place": _place(error)}) + "\n"
        self._claims.append(FAILURES, line)

    def _save(self) -> None:
        def added(before: bytes) -> bytes:
            runs, own = _runs(before), self._run["run"]
            at = next((i for i, r in enumerate(runs) if r.get("run") == own), len(runs))
            runs[at : at + 1] = [self._run]
            return _text(runs).encode()

        self._claims.rewrite(FILE, added)


class Origins:
    """Where results of one command come from, see `origins`.

    runs: those of stores that computed what was read, as their journals have them, in
      the order in which they were met.
    """

    def __init__(self) -> None:
        self.runs: list[dict[str, Any]] = []
        self._started, self._begin = _now(), time.perf_counter()

    def add(self, folder: pathlib.Path, commits: Mapping[str, Any] | None) -> None:
        """As `note_runs`."""
        own = runs_of(folder, commits)
        self.runs += [run for run in own if run not in self.runs]

    def write(self, folder: pathlib.Path, **about: Any) -> pathlib.Path:
        """Write `provenance.json`: the runs, and last this command, all of its seconds
        and the most memory that the process had.

        Args:
          folder: of its results; one that is there is replaced.
          about: what else there is to say of the command.

        Returns:
          The file.
        """
        seconds = round(time.perf_counter() - self._begin, 2)
        last = {"run": uuid.uuid4().hex[:12], **about, **describe_run()}
        last |= {"started": self._started, "finished": _now(), "seconds": seconds}
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        last["peak_gib"] = round(peak, 2)
        file = folder / FILE
        with disk_errors(file), replacing(file) as partial:
            partial.write_text(_text([*self.runs, last]))
        return file


_ORIGINS: contextvars.ContextVar[Origins | None] = contextvars.ContextVar(
    "origins", default=None
)


@contextlib.contextmanager
def origins() -> Iterator[Origins]:
    """Note which runs computed what is read from stores until the context ends."""
    found = Origins()
    token = _ORIGINS.set(found)
    try:
        yield found
    finally:
        _ORIGINS.reset(token)


def note_runs(folder: pathlib.Path, commits: Mapping[str, Any] | None = None) -> None:
    """Tell `origins`, if anybody asks, what results were made of.

    Args:
      folder: with a journal.
      commits: of the runs in question, by name; all of the journal's if None.
    """
    if (asking := _ORIGINS.get()) is not None:
        asking.add(folder, commits)


def runs_of(
    folder: pathlib.Path, commits: Mapping[str, Any] | None = None
) -> list[dict[str, Any]]:
    """Runs as a folder's journal has them.

    Args:
      folder: a store, or results.
      commits: of the runs in question, by name; all of the journal's if None.
    """
    content = b""
    with contextlib.suppress(OSError, ValueError):
        content = read_file(folder / FILE)
    there = {run.get("run"): run for run in map(_readable, _runs(content))}
    if commits is None:
        return list(there.values())
    # Of a run that a journal has lost, blocks still know the commit.
    return [there.get(n, {"run": n, "commit": c}) for n, c in commits.items()]


def describe_run() -> dict[str, Any]:
    """Commit, versions and machine, as far as numbers may depend on them."""
    devices = jax.devices()
    return {
        "commit": commit(),
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in PACKAGES},
        "system": platform.system(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "device": devices[0].device_kind,
        "devices": len(devices),
        "x64": bool(jax.config.read("jax_enable_x64")),
    }


@functools.cache  # What is loaded stays what it was, and git takes its time.
def commit() -> dict[str, Any] | None:
    """The checkout that holds this file, or None if there is none."""
    here = pathlib.Path(__file__).resolve()
    sources = (":/*.py", ":/pyproject.toml", ":/uv.lock")
    if _git(here.parent, "ls-files", "--error-unmatch", here.name) is None:
        return None
    changes = _git(here.parent, "status", "--porcelain", "--", *sources)
    return {"id": _git(here.parent, "rev-parse", "HEAD"), "dirty": bool(changes)}


def _git(folder: pathlib.Path, *arguments: str) -> str | None:
    command = ["git", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _text(runs: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"runs": runs}, indent=1) + "\n"


def _runs(content: bytes) -> list[dict[str, Any]]:
    try:
        runs = json.loads(content)["runs"]
        return [run for run in runs if isinstance(run, dict)]
    except (ValueError, KeyError, TypeError, RecursionError):
        return []  # Provenance that is lost must not stop a sweep.


# What a journal tells of a run that somebody reads, with its kind.
_READ: dict[str, Any] = {
    "run": str,
    "commit": dict,
    "experiment": str,
    "revision": int,
    "cells": int,
    "trials": int,
}


def _readable(run: Mapping[str, Any]) -> dict[str, Any]:
    """A run without what is not of its kind, as a journal has no digest."""
    own = {n: v for n, v in run.items() if isinstance(v, _READ.get(n, object))}
    if not isinstance(own.get("commit", {}).get("id", ""), str):
        del own["commit"]
    return own


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _without_folders(text: str) -> str:
    return re.sub(r"(?<![\w.:/])/(?:[^\s/'\":]+/)+", "", text)


def _place(error: Exception) -> str:
    """File and line of the caller's code that raised, without its folder."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "site-packages" not in frame.filename]
    frame = own[-1] if own else frames[-1]
    return f"{pathlib.Path(frame.filename).name}:{frame.lineno}"
