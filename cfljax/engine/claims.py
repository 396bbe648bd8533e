"""Claims: which process computes what of a store, as locks that die with it.

All locks are bytes of one empty file `lock` in the store: one for each block, at a
place that its name's digest gives, and one for what all runs write. The operating
system releases them when their process ends, by whatever signal; no clock, host name or
process id is compared.
"""

import contextlib
import errno
import hashlib
import os
import pathlib
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

from cfljax.base.durable import make_folder, replacing, sync, sync_names
from cfljax.base.unpacking import read_file
from cfljax.engine.kept import StoreError, disk_errors

try:
    import fcntl
except ImportError:  # Not on Windows, where nothing stops a second writer.
    fcntl = None

# Locks of the open file, not of the process: they also hold between threads, and
# outlive the closing of another handle. Linux alone has them.
OF_OPEN_FILE = hasattr(fcntl, "F_OFD_SETLK")

# Where a process finds its open folders, on Linux.
_HANDLES = pathlib.Path("/proc/self/fd")

# Not waiting for whoever reads a pipe that lies in the place of a lock.
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0)


class Claims:
    """The locks that one sweep holds on a store.

    On a network file system they hold between machines where its server keeps
    byte-range locks (NFS does; Lustre if mounted with `flock`), to which Linux maps
    them. The file stays: removing it would race with another run.

    Args:
      store: its folder, made if missing.

    Attributes:
      folder: the same, for writing: on Linux by a name that no other folder takes over.
        If the store is removed nothing can be written below it any more, at whatever
        moment, even if another is begun in its place.

    Raises:
      StoreError: if the disk refuses.
    """

    def __init__(self, store: pathlib.Path) -> None:
        self._store = self.folder = store
        with disk_errors(store), contextlib.ExitStack() as handles:
            try:
                make_folder(store)
            except FileExistsError:  # As the system says it of a file in the way.
                raise NotADirectoryError(errno.ENOTDIR, str(store)) from None
            if _HANDLES.is_dir():
                handle = os.open(store, os.O_RDONLY)
                handles.callback(os.close, handle)
                self.folder = _HANDLES / str(handle)
            lock = os.open(self.folder / "lock", _APPEND, 0o666)
            self._file = handles.enter_context(os.fdopen(lock, "ab"))
            self._handles = handles.pop_all()

    def __enter__(self) -> "Claims":
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        with self._handles:
            if error is not None and isinstance(error.__cause__, OSError):
                self.check()  # Without the store nothing is written: that is why.

    def check(self) -> None:
        """Raises StoreError if the store was removed since, and may have been begun
        anew: what a run that was suspended meanwhile would write belongs to no one."""
        with contextlib.suppress(OSError):
            here = os.stat(self._store / "lock")
            if os.path.samestat(here, os.fstat(self._file.fileno())):
                return
        raise StoreError(
            f"`{self._store}` was removed or replaced while it was written; nothing"
            " more is written to it. Run again."
        )

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other run writes what all write, and keep the others from it
        meanwhile; raises as `check`."""
        with disk_errors(self._store):
            _lock(self._file, 0, wait=True)
        try:
            self.check()
            yield
        finally:
            _unlock(self._file, 0)

    def rewrite(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replace a file that all runs write by what is made of its content, empty if
        there is none; raises as `check`."""
        file = self.folder / name
        with self.alone(), disk_errors(self._store / name):
            before = b""
            with contextlib.suppress(OSError, ValueError):
                before = read_file(file)
            after = change(before)
            with replacing(file) as partial:
                partial.write_bytes(after)

    def append(self, name: str, line: str) -> None:
        """Add a line to a file that all runs write; raises as `check`."""
        file = self.folder / name
        with self.alone(), disk_errors(self._store / name):
            with file.open("a+b") as opened:
                if _is_torn(opened):  # A line of which a loss of power has left a part.
                    line = "\n" + line
                opened.write(line.encode())
            sync(file)
            sync_names(file.parent)

    def may_be_over(self) -> bool:
        """Whether a run that holds what was asked for may have died: no, its locks die
        with it."""
        return False

    @contextlib.contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[bool]:
        """Claim all of some blocks, or none of them if another run holds one.

        Two names share a place once in 2^56; then one waits for the other.

        Args:
          names: of blocks, at least one.

        Yields:
          Whether they are claimed, until the context ends.
        """
        places = sorted({_place(name) for name in names})
        held = []
        try:
            with disk_errors(self._store):
                for place in places:
                    if not _lock(self._file, place, wait=False):
                        break
                    held.append(place)
            yield len(held) == len(places)
        finally:
            for place in held:
                _unlock(self._file, place)


@contextlib.contextmanager
def undisturbed(store: pathlib.Path) -> Iterator[bool]:
    """Hold all of a store, so that no run computes or writes anything, as long as the
    context lasts.

    Yields:
      Whether it is held; not where a run is at work, or nobody may write there.
    """
    try:
        file = (store / "lock").open("r+b")
    except FileNotFoundError:  # Nobody can be at work, as nobody ever was.
        yield True
        return
    except OSError:
        yield False
        return
    with file:  # Which gives the lock back when it is closed.
        yield _lock(file, 0, wait=False, length=0)


def _is_torn(file: BinaryIO) -> bool:
    """Whether a file of lines ends within one."""
    if not file.seek(0, os.SEEK_END):
        return False
    file.seek(-1, os.SEEK_END)
    return file.read(1) != b"\n"


def _place(name: str) -> int:
    digest = hashlib.sha256(name.encode()).digest()
    return 1 + int.from_bytes(digest[:7], "big")


def _lock(file: BinaryIO, place: int, *, wait: bool, length: int = 1) -> bool:
    """Whether the bytes are now this file's alone; of length 0 all from there on."""
    if fcntl is None:
        return True
    try:
        if OF_OPEN_FILE:
            command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
            fcntl.fcntl(file, command, _request(fcntl.F_WRLCK, place, length))
        else:
            at_once = 0 if wait else fcntl.LOCK_NB
            fcntl.lockf(file, fcntl.LOCK_EX | at_once, length, place)
    except (BlockingIOError, PermissionError):  # POSIX allows either.
        return False
    return True


def _unlock(file: BinaryIO, place: int) -> None:
    if fcntl is None:
        return
    if OF_OPEN_FILE:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _request(fcntl.F_UNLCK, place))
    else:
        fcntl.lockf(file, fcntl.LOCK_UN, 1, place)


def _request(kind: int, place: int, length: int = 1) -> bytes:
    """The system's `struct flock`: kind, origin, start, length, no process, padding."""
    return struct.pack("hhqqi4x", kind, os.SEEK_SET, place, length, 0)
