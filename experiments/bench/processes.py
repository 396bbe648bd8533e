"""Measuring in processes of their own: how they are started, asked, and how much memory
they use."""

import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

_ROOT = pathlib.Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Of a process that finds these modules, wherever it is started."""
    paths = [str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def resident() -> float | None:
    """MiB resident now, from which the peak then counts; None if nobody tells."""
    # What compilation freed and the allocator still holds would hide part of a peak.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    try:
        # Forgets the peak of compilation, which may have been higher.
        pathlib.Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return status("VmRSS")


def status(name: str) -> float | None:
    """A line of the system's account of this process, in MiB."""
    # Of this program: the peak that getrusage tells includes the parent's at the fork.
    try:
        account = pathlib.Path("/proc/self/status").read_text()
    except OSError:
        return None
    found = re.search(rf"{name}:\s+(\d+) kB", account)
    return None if found is None else int(found[1]) / 1024


class MeasuringError(RuntimeError):
    """A process that was to measure something has ended instead."""

    exit_status = 1


class Process:
    """A module run in a process of its own, which answers one line for each line."""

    def __init__(self, module: str, arguments: Sequence[str]) -> None:
        """Started by `python -m`, to call `answer`; its errors are kept."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )

    def ask(self, request: str) -> dict[str, Any]:
        """Its answer.

        Raises:
          MeasuringError: with its last words, if it ended instead.
        """
        try:
            print(request, file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()  # pyright: ignore
        except BrokenPipeError:
            line = ""
        if not line:
            raise MeasuringError(self._last_words())
        return json.loads(line)

    def _last_words(self) -> str:
        _, errors = self._process.communicate()
        lines = errors.strip().splitlines()
        said = [line for line in lines if re.match(r"[\w.]+: ", line)]  # NAME: MESSAGE
        return (said or lines or ["it ended without a word"])[-1]

    def __enter__(self) -> "Process":
        return self

    def __exit__(self, *_: object) -> None:
        """Ends it: nothing more will be asked."""
        try:
            self._process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


def answer(jobs: Mapping[str, Callable[[], Mapping[str, Any]]]) -> None:
    """The other side of `Process`: does what is asked, until nothing more is."""
    # Nothing that a library prints may be taken for an answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        print(json.dumps(jobs[line.strip()]()), file=answers, flush=True)
