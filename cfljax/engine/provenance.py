"""Provenance: where numbers come from, and what went wrong, in files beside a store.

Holds no name of a user or of a machine, and no absolute path.
"""

import datetime
import functools
import importlib.metadata
import json
import os
import pathlib
import platform
import re
import subprocess
import traceback
import uuid
from typing import Any

import jax

from cfljax.engine.claims import Claims, Shared
from cfljax.engine.store import disk_errors

PACKAGES = ("cfljax", "jax", "jaxlib", "numpy")


class Journal:
    """`NAME.provenance.json` and `NAME.failures.jsonl` beside the store `NAME`.

    The first lists the runs that wrote to the store, the second one failure a line.
    Several runs may write them; each changes its own entry alone.

    Args:
      store: path of the store; a suffix `.zarr` is left out of NAME.
      claims: on the store.
      is_new: whether the store is, so that older files are of another one. Then no
        other run may be writing.
    """

    def __init__(self, store: pathlib.Path, claims: Claims, *, is_new: bool) -> None:
        name = store.name.removesuffix(".zarr")
        self._runs_file = store.with_name(f"{name}.provenance.json")
        self.failures = store.with_name(f"{name}.failures.jsonl")
        self.first_error = ""
        self._claims = claims
        self._run: dict[str, Any] = {"run": uuid.uuid4().hex[:12]}
        if is_new:
            for file in (self._runs_file, self.failures):
                with disk_errors(file):
                    file.unlink(missing_ok=True)

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
        line = json.dumps({**entry, "place": _place(error)})
        alone = self._claims.alone(Shared.JOURNAL)
        with alone, disk_errors(self.failures), self.failures.open("a") as file:
            file.write(line + "\n")

    def _save(self) -> None:
        with self._claims.alone(Shared.JOURNAL):
            runs = _runs(self._runs_file)
            own = self._run["run"]
            at = next((i for i, r in enumerate(runs) if r.get("run") == own), len(runs))
            runs[at : at + 1] = [self._run]
            text = json.dumps({"runs": runs}, indent=1) + "\n"
            partial = self._runs_file.with_suffix(f".{uuid.uuid4().hex}.partial")
            with disk_errors(self._runs_file):
                self._runs_file.parent.mkdir(parents=True, exist_ok=True)
                try:
                    partial.write_text(text)
                    os.replace(partial, self._runs_file)
                except OSError:
                    partial.unlink(missing_ok=True)
                    raise


def describe_run() -> dict[str, Any]:
    """Commit, versions and machine, as far as numbers may depend on them."""
    devices = jax.devices()
    return {
        "commit": _commit(),
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
def _commit() -> dict[str, Any] | None:
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


def _runs(file: pathlib.Path) -> list[dict[str, Any]]:
    try:
        runs = json.loads(file.read_text())["runs"]
        return [run for run in runs if isinstance(run, dict)]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # Provenance that is lost must not stop a sweep.


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
