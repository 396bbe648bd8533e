"""Claims: which process computes what of a store, as locks that die with it.

All locks are byte ranges of one empty file `NAME.lock` beside the store: one byte for
each block, and two for what all runs write. The operating system releases them when
their process ends, by whatever signal; no clock, host name or process id is compared.
"""

import contextlib
import enum
import errno
import os
import pathlib
import struct
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import numpy as np

from cfljax.engine.store import disk_errors

try:
    import fcntl
except ImportError:  # Not on Windows, where nothing stops a second writer.
    fcntl = None

# Locks of the open file, not of the process: they also hold between threads, and
# outlive the closing of another handle. Linux alone has them.
OF_OPEN_FILE = hasattr(fcntl, "F_OFD_SETLK")


class Shared(enum.IntEnum):
    """What all runs on a store write, one at a time; the byte that stands for it."""

    STORE = 0
    JOURNAL = 1


class Claims:
    """The locks that one sweep holds on a store.

    On a network file system they hold between machines where its server keeps
    byte-range locks (NFS does; Lustre if mounted with `flock`), to which Linux maps
    them. The file stays: removing it would race with another run.

    Args:
      store: its folder, which need not exist yet.
      shape: of the store's blocks, `[*axes, blocks]`.

    Raises:
      StoreError: if the disk refuses.
    """

    def __init__(self, store: pathlib.Path, shape: tuple[int, ...]) -> None:
        self._store = store
        self._shape = shape
        with disk_errors(store):
            try:
                store.parent.mkdir(parents=True, exist_ok=True)
            except FileExistsError:  # As the system says it of a file in the way.
                raise NotADirectoryError(errno.ENOTDIR, str(store.parent)) from None
            self._file = store.with_name(store.name + ".lock").open("ab")

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    @contextlib.contextmanager
    def alone(self, what: Shared) -> Iterator[None]:
        """Wait until no other run writes it, and keep the others from it meanwhile."""
        with disk_errors(self._store):
            _lock(self._file, what, 1, wait=True)
        try:
            yield
        finally:
            _unlock(self._file, what, 1)

    @contextlib.contextmanager
    def claim(self, blocks: Sequence[tuple[int, ...]]) -> Iterator[bool]:
        """Claim all of some blocks, or none of them if another run holds one.

        Args:
          blocks: positions in the store's blocks, at least one.

        Yields:
          Whether they are claimed, until the context ends.
        """
        ranges = self._ranges(blocks)
        held = []
        try:
            with disk_errors(self._store):
                for start, length in ranges:
                    if not _lock(self._file, start, length, wait=False):
                        break
                    held.append((start, length))
            yield len(held) == len(ranges)
        finally:
            for start, length in held:
                _unlock(self._file, start, length)

    def _ranges(self, blocks: Sequence[tuple[int, ...]]) -> list[tuple[int, int]]:
        """First byte and number of bytes, of runs without gaps."""
        flat = np.sort(np.ravel_multi_index(tuple(np.transpose(blocks)), self._shape))
        runs = np.split(flat, np.flatnonzero(np.diff(flat) != 1) + 1)
        return [(len(Shared) + int(run[0]), len(run)) for run in runs]


def _lock(file: BinaryIO, start: int, length: int, *, wait: bool) -> bool:
    """Whether the bytes are now this file's alone."""
    if fcntl is None:
        return True
    try:
        if OF_OPEN_FILE:
            command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
            fcntl.fcntl(file, command, _request(fcntl.F_WRLCK, start, length))
        else:
            at_once = 0 if wait else fcntl.LOCK_NB
            fcntl.lockf(file, fcntl.LOCK_EX | at_once, length, start)
    except (BlockingIOError, PermissionError):  # POSIX allows either.
        return False
    return True


def _unlock(file: BinaryIO, start: int, length: int) -> None:
    if fcntl is None:
        return
    if OF_OPEN_FILE:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, start, length))
    else:
        fcntl.lockf(file, fcntl.LOCK_UN, length, start)


def _request(kind: int, start: int, length: int) -> bytes:
    """The system's `struct flock`: kind, origin, start, length, no process, padding."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, start, length, 0)
