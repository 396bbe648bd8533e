"""Store: the results of a sweep on disk, a zarr group that a kill cannot spoil.

One chunk holds one block of trials of one cell, and is renamed into place when it is
complete. `done` is written after the outputs of its block, so a block is either done
and whole, or computed again. Every chunk carries a checksum: one that is missing or
damaged although its block is done is noticed, never read as fill values.

Several runs may write to one store, each the blocks that it has claimed: every chunk
holds one block, so no two of them write one file.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
import zarr
from jaxtyping import Bool
from zarr.codecs import Crc32cCodec

import cfljax
from cfljax.engine.grid import BLOCK, Grid
from cfljax.engine.kept import StoreError, difference, disk_errors

# The last one is never stored: a block that a rule has no use for, see `stopping`.
OPEN, DONE, FAILED, SPARE = 0, 1, -1, 2


class Store:
    """A sweep's folder on disk.

    done: state of every block when it was last read or written here, int8
      `[*axes, blocks]`: 1 done, 0 to do, -1 failed.

    Raises:
      StoreError: if the folder holds something else, or another sweep. Looking
        changes nothing on disk.
    """

    def __init__(self, path: pathlib.Path, grid: Grid) -> None:
        self.path = path
        self.grid = grid
        self.done = np.full((*grid.shape, grid.num_blocks), OPEN, np.int8)
        self._arrays: dict[str, Any] = {}  # zarr's own types are too wide to index.
        self.is_new = is_new(path)
        if not self.is_new:
            self._open()
            self._read_done()

    def _open(self) -> None:
        names = ("done", "seconds", *self.grid.dims)
        self._arrays = {**open_arrays(self.path, self.grid.identity(), names)}

    def _read_done(self) -> None:
        if "done" in self._arrays:
            everywhere = np.full(self.done.shape, True)
            folder = self.path / "done"
            done, bad = read_blocks(self._arrays["done"], folder, everywhere)
            self.done = np.where(bad, OPEN, done).astype(np.int8)

    def refresh(self, blocks: Sequence[tuple[int, ...]]) -> None:
        """Read the state of some blocks again, as other runs may have left it.

        Cost: a listing of the folder, and 0.3 ms for each block that has a state.
        """
        with disk_errors(self.path):
            files = {entry.name for entry in (self.path / "done").iterdir()}
        array = self._arrays["done"]
        for block in blocks:
            if chunk_file(self.path / "done", block, array.ndim).name in files:
                try:
                    self.done[block] = np.asarray(array[block])
                except Exception:  # zarr raises whatever its codecs do.
                    self.done[block] = OPEN

    def block(self, cell: tuple[int, ...], number: int) -> dict[str, np.ndarray]:
        """Outputs `[trials, ...]` of one block that is done.

        Raises:
          StoreError: if it cannot be read.
        """
        if any(name not in self._arrays for name in self.grid.dims):
            self._open()  # Another run has made them.
        where = (*cell, self.grid.block(number))
        try:
            return {
                name: np.asarray(self._arrays[name][where]) for name in self.grid.dims
            }
        except Exception as error:
            raise StoreError(
                f"`{self.path}` was damaged while it was read; run again to repair it."
            ) from error

    def read(self) -> tuple[dict[str, np.ndarray], Bool[np.ndarray, "*axes blocks"]]:
        """Read all outputs.

        Returns:
          Outputs `[*axes, trials, *own]`, arbitrary where a block is not done; and
          which blocks are marked done but are missing or damaged. An output that has
          never been stored is left out.
        """
        wanted = self.done == DONE
        values, damaged = {}, np.zeros_like(wanted)
        for name in self.grid.dims:
            if name not in self._arrays:
                return {}, wanted
            path = self.path / name
            values[name], bad = read_blocks(self._arrays[name], path, wanted)
            damaged |= bad
        return values, damaged

    def create(self) -> None:
        """Make the folder, if there is none, and what a killed creation left out.

        To be called by one run at a time.
        """
        attributes = {**self.grid.identity(), **LAYOUT}
        dims = (*self.grid.axes, "block")
        shape = self.done.shape
        with disk_errors(self.path):
            if self.is_new:
                zarr.create_group(self.path, attributes=attributes)
            for name, dtype in (("done", np.int8), ("seconds", np.float64)):
                if name not in self._arrays:
                    self._create(name, shape, (1,) * len(shape), dtype, dims)
        self._read_done()  # States may have outlived the array's description.

    def create_outputs(self, outputs: Mapping[str, jax.ShapeDtypeStruct]) -> None:
        """Make one array per output, or check those that are there.

        To be called by one run at a time.

        Args:
          outputs: shape and type of the outputs of one trial.

        Raises:
          ValueError: if they are not what `dims` and `coords` of the grid announce,
            or differ from those of the stored cells.
        """
        _check_outputs(self.grid, outputs)
        if any(name not in self._arrays for name in outputs):
            self._open()  # Another run may have made them.
        for name, output in outputs.items():
            shape = (*self.grid.shape, self.grid.num_trials, *output.shape)
            if name in self._arrays:
                _check_stored(self.path, name, self._arrays[name], shape, output.dtype)
                continue
            chunks = (*(1 for _ in self.grid.shape), BLOCK, *output.shape)
            dims = (*self.grid.axes, "trial", *self.grid.dims[name])
            with disk_errors(self.path):
                self._create(name, shape, chunks, output.dtype, dims)

    def _create(self, name, shape, chunks, dtype, dims) -> None:
        group = zarr.open_group(self.path, mode="r+")
        self._arrays[name] = create_array(
            group, name, shape=shape, chunks=chunks, dtype=np.dtype(dtype), dims=dims
        )

    def write(
        self,
        cell: tuple[int, ...],
        block: int,
        outputs: Mapping[str, np.ndarray],
        seconds: float,
    ) -> None:
        """Store one block; `done` goes last.

        Raises:
          StoreError: if the disk refuses; the block then counts as not done.
        """
        with disk_errors(self.path):
            for name, values in outputs.items():
                array = self._arrays[name]
                # zarr would merge a block shorter than its chunk into a damaged one.
                stale = chunk_file(self.path / name, (*cell, block), array.ndim)
                stale.unlink(missing_ok=True)
                array[(*cell, self.grid.block(block))] = values
            self._arrays["seconds"][(*cell, block)] = seconds
        self.mark(cell, block, DONE)

    def mark(self, cell: tuple[int, ...], block: int, status: int) -> None:
        """Set the state of one block, on disk and in memory."""
        with disk_errors(self.path):
            self._arrays["done"][(*cell, block)] = status
        self.done[(*cell, block)] = status


def _check_outputs(grid: Grid, outputs: Mapping[str, jax.ShapeDtypeStruct]) -> None:
    if set(outputs) != set(grid.dims):
        raise OutputsError(
            f"`dims` must name the outputs of a trial, {sorted(outputs)}, got"
            f" {sorted(grid.dims)}."
        )
    sizes: dict[str, int] = {name: len(labels) for name, labels in grid.coords.items()}
    for name, output in outputs.items():
        own = grid.dims[name]
        if output.dtype.kind not in "biuf" or 0 in output.shape:
            raise OutputsError(
                f"output `{name}` must hold real numbers, at least one, got"
                f" {output.dtype}{list(output.shape)}."
            )
        if len(own) != len(output.shape):
            raise OutputsError(
                f"`dims[{name!r}]` must name the axes of shape {output.shape}, got"
                f" {own}."
            )
        for dim, size in zip(own, output.shape, strict=True):
            if sizes.setdefault(dim, size) != size:
                raise OutputsError(
                    f"own axis `{dim}` must have one size, and as many labels in"
                    f" `coords`, got {sizes[dim]} and {size} (output `{name}`)."
                )


def _check_stored(
    path: pathlib.Path, name: str, array: Any, shape: tuple, dtype: np.dtype
) -> None:
    if (array.shape, array.dtype) != (shape, dtype):
        raise StoreError(
            f"`{path}` holds `{name}` as {array.dtype}{list(array.shape)}, this cell"
            f" gives {dtype}{list(shape)}: outputs must have one shape and type in all"
            " cells. If the trial has changed, choose another folder or delete it."
        )


LAYOUT = {"layout": 1, "cfljax": cfljax.__version__}


def is_new(path: pathlib.Path) -> bool:
    """Whether nothing is stored there yet.

    Raises:
      StoreError: if the path holds something that is not a store.
    """
    if not path.exists():
        return True
    if path.is_dir():
        if (path / "zarr.json").exists():
            return False
        # A creation that was killed leaves at most such files.
        if all(entry.suffix == ".partial" for entry in path.iterdir()):
            return True
        # Another run may have made the store since the first look.
        if (path / "zarr.json").exists():
            return False
    raise StoreError(
        f"`{path}` is not a store of results; choose another folder or delete it."
    )


def open_arrays(
    path: pathlib.Path, identity: Mapping[str, Any], names: Sequence[str]
) -> dict[str, zarr.Array]:
    """Open the arrays of a store, those that exist, if it belongs to the sweep.

    Raises:
      StoreError: of one line that says what differs and what to do.
    """
    advice = "choose another folder or delete it."
    try:
        group = zarr.open_group(path, mode="r+")
        stored = group.attrs.asdict()
        with zarr.config.set(KEEP_EMPTY):
            arrays = {name: group[name] for name in names if name in group}
    except Exception as error:  # zarr raises whatever its parser does.
        reason = type(error).__name__
        raise StoreError(
            f"`{path}` cannot be read as a store of results ({reason}); {advice}"
        ) from error
    if "layout" not in stored:
        raise StoreError(f"`{path}` is a zarr group but not of a sweep; {advice}")
    for name, here in {"layout": LAYOUT["layout"], **identity}.items():
        if found := difference(name, stored.get(name), here):
            raise StoreError(f"`{path}` {found}; {advice}")
    return arrays  # pyright: ignore[reportReturnType]  # Never groups.


# Else a chunk of fill values, of all failures say, would leave no file. zarr looks at
# this when it opens an array; nothing of it is stored.
KEEP_EMPTY = {"array.write_empty_chunks": True}


def create_array(
    group: zarr.Group,
    name: str,
    *,
    shape: tuple[int, ...],
    chunks: tuple[int, ...],
    dtype: np.dtype,
    dims: tuple[str, ...],
) -> zarr.Array:
    """Add an empty array: NaN where it holds floats, 0 elsewhere."""
    with zarr.config.set(KEEP_EMPTY):
        return group.create_array(
            name,
            shape=shape,
            chunks=chunks,
            dtype=dtype,
            fill_value=np.nan if np.issubdtype(dtype, np.floating) else 0,
            filters=None,
            compressors=(Crc32cCodec(),),
            chunk_key_encoding={"name": "default", "separator": "."},
            dimension_names=dims,
        )


def chunk_file(path: pathlib.Path, block: tuple[int, ...], ndim: int) -> pathlib.Path:
    """The file of one chunk.

    Args:
      path: folder of the array.
      block: position along the grid's axes, then number of the block.
      ndim: number of axes of the array.
    """
    own = (0,) * (ndim - len(block))
    return path / ".".join(["c", *(str(i) for i in (*block, *own))])


def read_blocks(
    array: zarr.Array, path: pathlib.Path, wanted: Bool[np.ndarray, "*axes blocks"]
) -> tuple[np.ndarray, Bool[np.ndarray, "*axes blocks"]]:
    """Read an array, and find the chunks that cannot be trusted.

    Cost: one file per chunk, about 0.3 ms each.

    Args:
      array: opened array.
      path: its folder.
      wanted: the chunks that must be there.

    Returns:
      The whole array, arbitrary where not wanted; and which wanted chunks are
      missing, truncated or otherwise fail their checksum.
    """
    files = {entry.name for entry in path.iterdir()}
    missing = np.zeros_like(wanted)
    for block in map(tuple, np.argwhere(wanted).tolist()):
        missing[block] = chunk_file(path, block, array.ndim).name not in files
    try:
        return np.asarray(array[...]), missing
    except Exception:  # zarr raises whatever its codecs do.
        return _read_one_by_one(array, wanted & ~missing, missing)


def _read_one_by_one(
    array: zarr.Array, present: np.ndarray, missing: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    values = np.full(array.shape, array.fill_value, array.dtype)
    bad = missing.copy()
    length = array.chunks[present.ndim - 1]
    for *cell, number in np.argwhere(present).tolist():
        where = (*cell, slice(number * length, (number + 1) * length))
        try:
            values[where] = array[where]
        except Exception:
            bad[(*cell, number)] = True
    return values, bad


class MemoryLimitError(ValueError):
    """A trial, or the chunk asked for, does not fit in the memory allowed."""


class OutputsError(ValueError):
    """Outputs of a trial that are not what its grid announces."""


class SweepError(RuntimeError):
    """A sweep of which nothing could be computed."""
