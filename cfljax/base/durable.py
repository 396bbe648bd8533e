"""Durable: what a disk has, so that a loss of power takes nothing of it back.

A file's content is safe since its `sync`, and its name since that of its folder.
"""

import contextlib
import errno
import os
import pathlib
import uuid
from collections.abc import Iterator

# What a disk says that cannot be told to keep something at once, or not by this user:
# network file systems of folders, Windows of all folders.
_UNTOLD = (
    errno.EINVAL,
    errno.ENOTSUP,
    errno.EBADF,
    errno.EACCES,
    errno.EPERM,
)
# Folders, by device and number, of which the disk has the names of all above them.
_rooted: set[tuple[int, int]] = set()


@contextlib.contextmanager
def replacing(path: pathlib.Path, *, is_durable: bool = True) -> Iterator[pathlib.Path]:
    """A file beside `path` that takes its place when the block ends without an error.

    Nobody finds half of it under the name; a kill leaves a `.partial` at most. Behind
    the block a loss of power takes nothing back: the disk has the file, its name, and
    the folders above it; unless it need not be durable, as what is easily made again.
    """
    make_folder(path.parent)
    partial = path.with_name(f".{uuid.uuid4().hex}.partial")
    try:
        yield partial
        if is_durable:
            sync(partial)  # Before the name: else it might come to stand for nothing.
        os.replace(partial, path)
        if is_durable:
            sync_names(path.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def make_folder(folder: pathlib.Path) -> None:
    """Make a folder and what is missing of those above it; one may be there."""
    try:
        folder.mkdir()
    except FileNotFoundError:
        if folder.parent == folder:  # There is no current folder.
            raise
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)  # Not again: where the one above was deleted since.
    except FileExistsError:
        if not folder.is_dir():
            raise
        return
    _rooted.discard(_number(folder))  # Numbers of deleted ones are given again.


def sync(path: pathlib.Path) -> None:
    """Wait until the disk has a file's content, or the names in a folder.

    Raises:
      OSError: if it fails to; not where the file system has no such thing.
    """
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno not in _UNTOLD:
            raise


def sync_names(folder: pathlib.Path) -> None:
    """Wait until the disk has the names in a folder and, the first time, that of the
    folder itself and of those above it, whoever made them."""
    sync(folder)
    inner, number = folder.resolve(), _number(folder)
    seen = []
    for outer in inner.parents:
        if number in _rooted:
            break
        seen.append(number)
        above = _number(outer)
        if above[0] != number[0]:
            break  # A disk of its own begins here.
        sync(outer)
        number = above
    _rooted.update(seen)


def _number(folder: pathlib.Path) -> tuple[int, int]:
    """What a folder is to this machine, whatever its name."""
    status = os.stat(folder)
    return status.st_dev, status.st_ino
