"""Identity: whether a folder belongs to a sweep, and if not, what differs."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import zarr

import cfljax
from cfljax.engine.chunks import KEEP_EMPTY
from cfljax.engine.errors import StoreError

__all__ = ["LAYOUT", "is_new", "open_arrays"]

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
        if difference := _difference(name, stored.get(name), here):
            raise StoreError(f"`{path}` {difference}; {advice}")
    return arrays  # pyright: ignore[reportReturnType]  # Never groups.


def _difference(name: str, there: Any, here: Any) -> str:
    if json.dumps(there, sort_keys=True) == json.dumps(here, sort_keys=True):
        return ""
    if isinstance(there, dict) and isinstance(here, dict):
        for key in sorted({*there, *here}):
            if key not in there:
                return f"lacks `{key}` in its {name}, which this run has"
            if key not in here:
                return f"has `{key}` in its {name}, which this run lacks"
            if inner := _difference(key, there[key], here[key]):
                return inner
        return ""
    if name == "revision":
        return f"was written by revision {there} of the trial, this is revision {here}"
    return f"was written with `{name}` = {there!r}, this run has {here!r}"
