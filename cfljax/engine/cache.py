"""Compiled programs kept on disk, so that the next process does not compile them."""

import functools
import importlib
import logging
import os
import pathlib
import sys
import uuid
from typing import Any

import jax

log = logging.getLogger(__name__)

VARIABLE = "CFLJAX_CACHE"  # Names the folder; "off" turns the cache off.
LIMIT = 2**30  # Bytes; what has not been used for longest goes first.


@functools.cache
def keep_programs() -> pathlib.Path | None:
    """Lets JAX find the programs of earlier processes, and keep those of this one.

    The folder is `CFLJAX_CACHE`, else `cfljax` in the user's own cache; none if that
    is "off". A folder that is set in JAX's own way (`JAX_COMPILATION_CACHE_DIR`), and
    `JAX_ENABLE_COMPILATION_CACHE=false`, win. A program is found by all that it depends
    on: operations, shapes, flags, versions, devices and the processor's features. What
    is found computes the same bits as what is compiled.

    To be called before a program is compiled that shall be kept; calls after the first
    change nothing. Cost: the first looks at each file in the folder.

    Returns:
      The folder that is used from now on, JAX's own included; None without a cache,
      which is logged as a warning where the folder cannot be written.
    """
    config: Any = jax.config
    if not config.jax_enable_compilation_cache:
        return None
    if config.jax_compilation_cache_dir:
        return pathlib.Path(config.jax_compilation_cache_dir)
    if os.environ.get(VARIABLE) == "off":
        return None
    try:
        folder = _folder()
        # What lies there is run as it is: it is nobody else's to write.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (probe := folder / f"{uuid.uuid4().hex}.partial").touch()
        probe.unlink()
        _shrink(folder, LIMIT)
    except (OSError, RuntimeError) as error:  # The latter without a home.
        _warn(error)
        return None
    _write_whole_files(folder)
    for name, value in (("min_compile_time_secs", 0), ("min_entry_size_bytes", -1)):
        setting = f"jax_persistent_cache_{name}"
        if setting.upper() not in os.environ:  # Else small programs would be left out.
            config.update(setting, value)
    config.update("jax_compilation_cache_dir", str(folder))
    return folder


def _folder() -> pathlib.Path:
    """Where programs are kept if JAX is told nothing else."""
    if named := os.environ.get(VARIABLE):
        return pathlib.Path(named).absolute()
    own, below = {
        "darwin": ("", "Library/Caches"),
        "win32": ("LOCALAPPDATA", "AppData/Local"),
    }.get(sys.platform, ("XDG_CACHE_HOME", ".cache"))
    base = pathlib.Path(os.environ.get(own, ""))
    return (base if base.is_absolute() else pathlib.Path.home() / below) / "cfljax"


def _warn(error: Exception) -> None:
    """One line: what was wrong, and what to do."""
    log.warning(
        "warning: compiled programs are not kept (%s); set %s to a folder that can be"
        " written, or to off",
        error,
        VARIABLE,
    )


def _shrink(folder: pathlib.Path, limit: int) -> None:
    """Deletes the files that have not been used for longest, if all are too large."""
    with os.scandir(folder) as entries:
        files = [(entry.stat(), entry.path) for entry in entries if entry.is_file()]
    excess = sum(status.st_size for status, _ in files) - limit
    files.sort(key=lambda file: file[0].st_mtime)
    for status, path in files:
        if excess <= 0:
            return
        pathlib.Path(path).unlink(missing_ok=True)
        excess -= status.st_size


class _Files:
    """What JAX's own cache does with files, safe for any number of processes.

    JAX writes them in place: another process may read half of one, and after a kill
    every later one does. Its bound on their size is no better off: a kill between an
    entry and its time of access ends all writing.
    """

    def __init__(self, folder: pathlib.Path) -> None:
        self._path = folder  # So named by JAX, which logs it.
        self._is_told = False

    def _file(self, key: str) -> pathlib.Path:
        return self._path / f"{key}-cache"

    def get(self, key: str) -> bytes | None:
        """A whole entry, None if there is none; it counts as used now."""
        try:
            found = self._file(key).read_bytes()
            os.utime(self._file(key))
        except OSError:
            return None
        return found

    def put(self, key: str, value: bytes) -> None:
        """Replaces what is there, as JAX asks for it only where that was no use."""
        partial = self._path / f"{uuid.uuid4().hex}.partial"
        try:
            partial.write_bytes(value)
            partial.replace(self._file(key))
        except OSError as error:
            partial.unlink(missing_ok=True)
            if not self._is_told:
                _warn(error)
            self._is_told = True


def _write_whole_files(folder: pathlib.Path) -> None:
    """Has JAX use `_Files` in this folder; a JAX that names its function otherwise, or
    was told more about its cache, goes on with its own files."""
    module = importlib.import_module("jax._src.compilation_cache")
    theirs = getattr(module, "get_file_cache", None)
    config: Any = jax.config
    told = config.jax_compilation_cache_max_size != -1
    if theirs is None or told or config.jax_compilation_cache_check_contents:
        return
    ours = _Files(folder), str(folder)
    choose = lambda path: ours if path == str(folder) else theirs(path)
    module.__dict__["get_file_cache"] = choose
