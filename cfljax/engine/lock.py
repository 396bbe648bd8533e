"""One writer at a time: a lock that dies with its process."""

import contextlib
import errno
import pathlib
from collections.abc import Iterator

from cfljax.engine.errors import StoreError, disk_errors

try:
    import fcntl
except ImportError:  # Not on Windows, where nothing stops a second writer.
    fcntl = None

__all__ = ["exclusive"]


@contextlib.contextmanager
def exclusive(store: pathlib.Path) -> Iterator[None]:
    """Hold the right to write to a store.

    The system releases the lock when the process ends, by whatever signal. The empty
    file `NAME.lock` beside the store stays: removing it would race with another sweep.

    Args:
      store: its folder, which need not exist yet.

    Raises:
      StoreError: if another sweep holds it, or the disk refuses.
    """
    with disk_errors(store):
        try:
            store.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:  # As the system says it of a file in the way.
            raise NotADirectoryError(errno.ENOTDIR, str(store.parent)) from None
        file = store.with_name(store.name + ".lock").open("w")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise StoreError(
                    f"`{store}` is being written by another run; wait for it, or"
                    " choose another folder."
                ) from None
        yield
