"""Unpacking: files that others may have written, within the memory that they may take.

A small file may stand for a very large one. Nothing here runs what a file says, and
nothing takes more memory than a file may: what the host has to spare, or
`CFLJAX_UNPACK_GIB`.
"""

import gzip
import io
import math
import os
import pathlib
import resource
import stat
import struct
import zipfile
import zlib

import numpy as np

VARIABLE = "CFLJAX_UNPACK_GIB"  # GiB that the content of one file may take.
_LITTLE = 2**26  # Bytes that no machine lacks.
# How NumPy packs; of other ways Python would unpack as much as there is at once.
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


class TooLargeError(ValueError):
    """A file whose content would take more memory than it may."""


def host_memory() -> int:
    """Bytes that the host has to spare.

    What Linux counts as available, within the limit of the control group if there is
    one, and of the process's addresses (`ulimit -v`); elsewhere the physical memory.
    """
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            free = 1024 * int(line.split()[1])
    limit, used = (_lines(f"/sys/fs/cgroup/memory.{n}") for n in ("max", "current"))
    if limit and used and limit[0].isdigit():
        free = min(free, int(limit[0]) - int(used[0]))
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    taken = _lines("/proc/self/statm")  # In pages.
    if addresses != resource.RLIM_INFINITY and taken:
        free = min(free, addresses - int(taken[0].split()[0]) * resource.getpagesize())
    return max(free, 0)


def _lines(path: str) -> list[str]:
    try:
        return pathlib.Path(path).read_text().splitlines()
    except OSError:
        return []


def check_bytes(path: str | os.PathLike[str], size: int) -> None:
    """Raises TooLargeError where the content of a file may not take so many bytes.

    Raises:
      ValueError: if `CFLJAX_UNPACK_GIB` is no number.
    """
    named = os.environ.get(VARIABLE)
    if named is None and size <= _LITTLE:
        return
    try:
        most = host_memory() if named is None else int(float(named) * 2**30)
    except (ValueError, OverflowError):
        raise ValueError(f"`{VARIABLE}` must be a number, got {named!r}.") from None
    if size > most:
        raise TooLargeError(
            f"`{os.fspath(path)}` would take {size / 2**30:.3g} GiB of memory, more "
            f"than the {most / 2**30:.3g} GiB that it may; if it is to be trusted, set "
            f"{VARIABLE}."
        )


def read_file(path: str | os.PathLike[str]) -> bytes:
    """The whole content of a plain file.

    Raises:
      OSError: if it cannot be read, or is no plain file, which may have no end.
      TooLargeError: if it may not take so much memory.
    """
    with open(path, "rb", opener=_without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is no plain file")
        check_bytes(path, status.st_size)
        return file.read(status.st_size)


def _without_waiting(path: str, flags: int) -> int:
    """Opens also what nobody writes to."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def gunzip(path: str | os.PathLike[str], packed: bytes, most: int) -> bytes:
    """What is inside a gzip wrapper, of several members too.

    Args:
      path: where it is from, for messages.
      packed: the wrapper.
      most: bytes that it may hold.

    Raises:
      ValueError: if it is no such wrapper, or is cut off.
      TooLargeError: as soon as there is more; then no more than that was unpacked.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(packed)) as file:
            content = file.read(most + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(str(error)) from error
    if len(content) > most:
        raise TooLargeError(
            f"`{os.fspath(path)}` holds more than the {most} bytes that it should; no "
            "more was unpacked."
        )
    if not packed:
        raise ValueError("it is empty")
    return content


def read_npz(
    path: str | os.PathLike[str], file: io.BufferedIOBase
) -> dict[str, np.ndarray]:
    """All arrays of a file of `numpy.savez`, none of which may be of objects.

    Args:
      path: where it is, for messages.
      file: it, open, from any place.

    Raises:
      ValueError: if it is no such file, or has an array of objects, which would have to
        be unpickled.
      TooLargeError: if the arrays may not take so much memory, by what the file says of
        its members; one that has more than it says is damaged.
    """
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no file of `np.savez`, or not all of one")
    file.seek(0)
    try:
        with zipfile.ZipFile(file) as archive:
            members = archive.infolist()
            check_bytes(path, sum(member.file_size for member in members))
            return {
                member.filename.removesuffix(".npy"): _array(archive, member)
                for member in members
            }
    except (zipfile.BadZipFile, zlib.error, struct.error, EOFError) as error:
        raise ValueError(str(error) or "it ends too early") from error
    except (NotImplementedError, RuntimeError, OverflowError) as error:
        raise ValueError(f"it is no file of `np.savez`: {error}") from error


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> np.ndarray:
    """One array, of as many bytes as its header says."""
    name = member.filename
    if member.compress_type not in _METHODS or not name.endswith(".npy"):
        raise ValueError(f"{name!r} is no array as `numpy.savez` writes it")
    with archive.open(member) as stream:
        version = np.lib.format.read_magic(stream)
        if version == (1, 0):
            shape, _, kind = np.lib.format.read_array_header_1_0(stream)
        elif version == (2, 0):
            shape, _, kind = np.lib.format.read_array_header_2_0(stream)
        else:
            raise ValueError(f"{name!r} has fields of other names than letters")
        if kind.hasobject:
            raise ValueError("it has objects, which are not read; write plain arrays")
        told, held = kind.itemsize * math.prod(shape), member.file_size - stream.tell()
    if told != held or (not kind.itemsize and math.prod(shape)):
        raise ValueError(f"{name!r} has {held} bytes of an array of {told}")
    with archive.open(member) as stream:
        return np.lib.format.read_array(stream, allow_pickle=False)
