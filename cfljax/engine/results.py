"""Results: what sweeps have stored and commands have written, ready to look at.

    import cfljax as cfl

    found = cfl.open_results("figures/ifca.fig3a")
    found.successes.sel(convention="reference", noise=.1).plot()

A dataset's axes are the settings that differ, with their values as coordinates; every
variable says in words what it is, and the dataset where its numbers come from. It is
plain xarray: `to_dataframe` gives pandas, `to_zarr` and `to_netcdf` give files that
others open.
"""

import contextlib
import itertools
import json
import logging
import math
import os
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas
import xarray

from cfljax.base.unpacking import read_file
from cfljax.engine.grid import BLOCK
from cfljax.engine.kept import Kept, StoreError
from cfljax.engine.objects import fetched, is_url
from cfljax.engine.provenance import FILE, runs_of
from cfljax.engine.quantities import Quantity, explain, is_setting
from cfljax.engine.store import stored

log = logging.getLogger(__name__)

# A table whose settings would fill so much more than its rows is left as rows.
_MOST_EMPTY = 20
_TRIAL = "trial"
_ROW = "row"


def open_results(
    path: str | os.PathLike[str],
    experiment: str | None = None,
    *,
    table: str | None = None,
    **settings: Any,
) -> xarray.Dataset:
    """What a folder has of an experiment, as a labelled dataset.

    The folder is a store, whose every trial is read; or one of results, as `python -m
    experiments run ID --out FOLDER` writes and as `figures` has, of which one table is
    read. A store may hold several experiments, and several sizes of one: of what
    differs each setting becomes an axis, unless `settings` choose a value.

    Args:
      path: the folder, or the URL of a store, s3://BUCKET/PREFIX.
      experiment: its id, e.g. "ifca.fig3a"; may be left out where there is one only.
      table: name of a table of results, without suffix; "table" if None.
      settings: values of fields, e.g. `num_clusters=2`; only what has them is read.

    Returns:
      One variable for each outcome. Of a store `[*settings, trial, *own axes]`, NaN
      where nothing is stored, with `trials`, how many there are, and the coordinate
      `code` (see `sweep`). Of a table `[*settings]`; one whose settings are no grid
      has `[row]`. Settings that do not differ are coordinates without an axis, or
      axes of length 1 where the sweep has them as axes. Each variable has `long_name`,
      and `symbol` and `units` if it has one, see `quantities`. The attributes tell
      `experiment`; of stores `revision` and `seed`; `config`, the configuration as
      JSON, of results; `source`, commits and versions, and `provenance`, the runs that
      computed what is shown, as JSON.

    Raises:
      StoreError: a ValueError, if the folder holds no results, not of this experiment
        or not with these settings, or `experiment` must be chosen.

    Cost: reads every block of a store, about 1 ms each.
    """
    folder = fetched(str(path)) if is_url(path) else pathlib.Path(path)
    if (folder / "cells").is_dir():
        if table is not None:
            raise StoreError(f"`{folder}` is a store, without the table {table!r}.")
        return _of_store(folder, experiment, settings)
    file = folder / f"{table or 'table'}.csv"
    if file.is_file():
        return _of_table(file, experiment, settings)
    if table is None and (folder / "store" / "cells").is_dir():
        return _of_store(folder / "store", experiment, settings)
    tables = ", ".join(sorted(own.stem for own in folder.glob("*.csv")))
    has = f"only the tables {tables}" if tables else "neither `cells` nor a table"
    raise StoreError(
        f"`{folder}` has {has}; give the folder of a store, or one that `run --out` "
        "wrote."
    )


def _of_store(
    folder: pathlib.Path, experiment: str | None, settings: Mapping[str, Any]
) -> xarray.Dataset:
    """All trials of one experiment, of its last revision."""
    every = list(stored(folder))
    names = sorted({own.about["meaning"]["experiment"] for own in every})
    if experiment is None and len(names) == 1:
        experiment = names[0]
    if experiment not in names:
        asked = "choose an `experiment`" if experiment is None else f"no {experiment!r}"
        raise StoreError(
            f"`{folder}` has {', '.join(names) or 'nothing yet'}; {asked}."
        )
    own = [b for b in every if b.about["meaning"]["experiment"] == experiment]
    revision = max(block.about["meaning"]["revision"] for block in own)
    # Trials of another revision mean something else.
    own = [b for b in own if b.about["meaning"]["revision"] == revision]
    seeds = {block.about["meaning"]["seed"] for block in own}
    cells: dict[str, list[Kept]] = {}
    for block in own:
        cells.setdefault(block.about["cell"], []).append(block)
    fields = [_fields(blocks[0], seeds) for blocks in cells.values()]
    frame = pandas.DataFrame(fields, index=list(cells))
    frame = _chosen(frame, settings, folder)
    blocks = [cells[name] for name in frame.index]
    first = {name: None for b in own for name in b.about.get("axes", ())}
    axes = _axes_of(frame, [*first, *(["seed"] if len(seeds) > 1 else [])])
    dataset = _grid_of(frame, axes, sort=True)
    if dataset is None:
        numbers = {name: len(set(frame[name])) for name in frame}
        differing = ", ".join(f"{n} ({k})" for n, k in numbers.items() if k > 1)
        raise StoreError(
            f"`{folder}` has {len(frame)} cells of {experiment} that are no grid; "
            f"choose some of their settings, here with how many values: {differing}."
        )
    for name in frame:
        if name not in axes:
            by = _least(frame, axes, name)
            dataset.coords[name] = (by, _spread(dataset, frame, by, name))
    _fill(dataset, axes, frame, blocks)
    labels = {n: q for b in own for n, q in b.about.get("quantities", {}).items()}
    run_names = {block.about["run"]: block.about["commit"] for block in own}
    found = runs_of(folder, run_names)
    dataset.attrs = {
        "experiment": experiment,
        "revision": revision,
        "seed": own[0].about["meaning"]["seed"] if len(seeds) == 1 else sorted(seeds),
        **_origin(found),
    }
    return explain(dataset, {name: Quantity(*own) for name, own in labels.items()})


def _fields(block: Kept, seeds: set[int]) -> dict[str, Any]:
    """Settings of a cell, with its seed where there are several."""
    seed = {"seed": block.about["meaning"]["seed"]} if len(seeds) > 1 else {}
    return {**block.about["fields"], **seed}


def _chosen(
    frame: pandas.DataFrame, settings: Mapping[str, Any], folder: pathlib.Path
) -> pandas.DataFrame:
    """The rows that have some settings."""
    for name, value in settings.items():
        if name not in frame:
            raise StoreError(
                f"`{folder}` has no setting {name!r}, only {', '.join(frame)}."
            )
        kept = frame.loc[frame[name] == value]
        if kept.empty:
            there = ", ".join(map(str, dict.fromkeys(frame[name])))
            raise StoreError(f"`{folder}` has {name} = {there}, not {value!r}.")
        frame = kept
    return frame


def _is_function(frame: pandas.DataFrame, by: Sequence[str], name: str) -> bool:
    """Whether some columns decide another one."""
    both = len(frame[[*by, name]].drop_duplicates())
    return both == (len(frame[[*by]].drop_duplicates()) if by else 1)


def _axes_of(frame: pandas.DataFrame, first: Sequence[str]) -> list[str]:
    """Columns that tell all rows apart: the first ones, and then in order each that
    those before do not decide, until no two rows are alike."""
    axes: list[str] = [name for name in first if name in frame]
    for name in frame:
        if _are_apart(frame, axes):
            break
        if name not in axes and not _is_function(frame, axes, name):
            axes.append(name)
    return axes


def _are_apart(frame: pandas.DataFrame, axes: Sequence[str]) -> bool:
    """Whether no two rows are alike in some columns."""
    return not np.any(frame.duplicated(list(axes))) if axes else len(frame) <= 1


def _grid_of(
    frame: pandas.DataFrame, axes: Sequence[str], *, sort: bool
) -> xarray.Dataset | None:
    """Axes with their labels, sorted or in the rows' order; None if they do not tell
    all rows apart, or would be much more than the rows."""
    labels = {name: frame[name].drop_duplicates().to_numpy() for name in axes}
    if sort:
        labels = {name: np.sort(values) for name, values in labels.items()}
    size = math.prod(len(values) for values in labels.values())
    if not _are_apart(frame, axes) or size > _MOST_EMPTY * len(frame) + 100:
        return None
    return xarray.Dataset(coords={n: plain(v) for n, v in labels.items()})


def _least(frame: pandas.DataFrame, axes: Sequence[str], name: str) -> tuple[str, ...]:
    """The fewest axes that decide a column; all if they do not."""
    subsets = itertools.chain.from_iterable(
        itertools.combinations(axes, count) for count in range(len(axes))
    )
    return next((by for by in subsets if _is_function(frame, by, name)), tuple(axes))


def _places(
    dataset: xarray.Dataset, frame: pandas.DataFrame, by: Sequence[str]
) -> tuple[np.ndarray, ...]:
    """Where each row stands along some axes."""
    return tuple(
        pandas.Index(dataset[name].values).get_indexer(plain(frame[name].to_numpy()))
        for name in by
    )


def _spread(
    dataset: xarray.Dataset, frame: pandas.DataFrame, by: Sequence[str], name: str
) -> np.ndarray:
    """A column along some axes; NaN, or no text, where there is no row."""
    values = plain(frame[name].to_numpy())
    if not by:
        return values[:1].reshape(())
    shape = tuple(dataset.sizes[axis] for axis in by)
    places = _places(dataset, frame, by)
    seen = np.zeros(shape, bool)
    seen[places] = True
    if not np.all(seen) and values.dtype.kind in "biu":
        values = values.astype(np.float64)
    empty = np.nan if values.dtype.kind == "f" else ""
    found = np.full(shape, empty if not np.all(seen) else values.flat[0], values.dtype)
    found[places] = values
    return found


def plain(values: np.ndarray) -> np.ndarray:
    """Numbers or texts in a type that files have, not objects: a missing text is "",
    and truth values of which some are missing are numbers."""
    if values.dtype.kind != "O":
        return values
    known = [value for value in values if not pandas.isna(value)]
    if known and all(isinstance(v, (bool, int, float, np.number)) for v in known):
        is_whole = len(known) == len(values) and all(type(v) is bool for v in known)
        return values.astype(bool if is_whole else float)
    texts = ["" if pandas.isna(value) else str(value) for value in values]
    return np.array(texts, dtype=np.str_)


def _fill(
    dataset: xarray.Dataset,
    axes: Sequence[str],
    frame: pandas.DataFrame,
    cells: Sequence[Sequence[Kept]],
) -> None:
    """Put the trials of every cell in its place."""
    shape = tuple(dataset.sizes[axis] for axis in axes)
    every = [block for blocks in cells for block in blocks]
    where = list(zip(*_places(dataset, frame, axes), strict=True)) or [()] * len(cells)
    number = max(b.about["block"] * BLOCK + b.about["trials"] for b in every)
    own_labels = {
        dim: np.array(sorted(set().union(*(_labels(b, dim) for b in every))))
        for dim in dict.fromkeys(
            dim
            for b in every
            for own in b.about["meaning"]["dims"].values()
            for dim in own
        )
    }
    arrays: dict[str, tuple[tuple[Any, ...], np.ndarray]] = {}
    trials = np.zeros(shape, np.int64)
    codes = np.full(shape, "", object)
    for place, blocks in zip(where, cells, strict=True):
        texts: list[str] = []
        for block in blocks:
            start = block.about["block"] * BLOCK
            trials[place] += block.about["trials"]
            texts += [block.about["code"]] if block.about["code"] not in texts else []
            for name, values in block.arrays.items():
                dims = tuple(block.about["meaning"]["dims"][name])
                if name not in arrays:
                    kind = values.dtype if values.dtype.kind == "f" else np.float64
                    sizes = tuple(len(own_labels[dim]) for dim in dims)
                    whole = np.full((*shape, number, *sizes), np.nan, kind)
                    arrays[name] = ((*axes, _TRIAL, *dims), whole)
                own = [np.searchsorted(own_labels[d], _labels(block, d)) for d in dims]
                rows = np.arange(start, start + len(values))
                arrays[name][1][place][np.ix_(rows, *own)] = values
        codes[place] = " ".join(texts)
    for name, (dims, values) in arrays.items():
        dataset[name] = (dims, values)
    dataset["trials"] = (axes, trials)
    dataset.coords["code"] = (axes, codes.astype(np.str_))
    dataset.coords[_TRIAL] = np.arange(number)
    labelled = {dim for block in every for dim in block.about["meaning"]["coords"]}
    for dim in sorted(labelled):
        dataset.coords[dim] = own_labels[dim]


def _labels(block: Kept, dim: str) -> Sequence[Any]:
    """Labels of an outcome's own axis; places where it has none."""
    meaning = block.about["meaning"]
    if dim in meaning["coords"]:
        return meaning["coords"][dim]
    sizes = (
        block.arrays[name].shape[1 + own.index(dim)]
        for name, own in meaning["dims"].items()
        if dim in own
    )
    return range(next(sizes, 0))


def _of_table(
    file: pathlib.Path, experiment: str | None, settings: Mapping[str, Any]
) -> xarray.Dataset:
    """The rows of a table, on a grid of their settings."""
    # Its own way to read numbers is not exact in all versions, and takes "NA" for none.
    texts = pandas.read_csv(file, dtype=str, keep_default_na=False)
    if texts.empty:
        raise StoreError(f"`{file}` has no rows.")
    frame = pandas.DataFrame({name: _parsed(own) for name, own in texts.items()})
    config = _config(file.with_name("config.json"))
    runs = runs_of(file.parent)
    here = next((r["experiment"] for r in reversed(runs) if "experiment" in r), None)
    here = here or (file.parent.name if "." in file.parent.name else None)
    if experiment is not None and experiment != here:
        raise StoreError(f"`{file.parent}` has {here or 'no known experiment'}.")
    frame = _chosen(frame.rename(columns=_renamed(frame, config)), settings, file)
    # Numbers with a fraction are outcomes, unless it is known that they are set.
    measured = [
        name
        for name, own in frame.items()
        if own.dtype.kind == "f" and name not in config and not is_setting(str(name))
    ]
    axes = _axes_of(frame.drop(columns=measured), [])
    axes = [n for n in frame if n in axes or _is_listed(n, frame[n], config)]
    dataset = _grid_of(frame, axes, sort=False)
    if dataset is None:
        axes, frame = [_ROW], frame.reset_index(names=_ROW)
        dataset = xarray.Dataset(coords={_ROW: frame[_ROW].to_numpy()})
    for name in frame:
        if name in axes:
            continue
        is_set = name in config or is_setting(name)
        is_text = plain(frame[name].to_numpy()).dtype.kind == "U"
        by = tuple(axes)
        if _ROW not in axes and (is_set or is_text):
            by = _least(frame, axes, name)
        own = (by, _spread(dataset, frame, by, name))
        if len(by) < len(axes):
            dataset.coords[name] = own
        else:
            dataset[name] = own
    told = {"experiment": here} if here else {}
    told |= {"config": json.dumps(config)} if config else {}
    dataset.attrs = {**told, "table": file.stem, **_origin(runs)}
    return explain(dataset)


def _parsed(column: pandas.Series) -> np.ndarray:
    """Texts of a file as what they were: truth values, whole numbers or others, of
    which an empty text is a missing one, or texts."""
    texts = column.to_numpy(str)
    known = texts[texts != ""]
    if known.size and np.all(np.isin(known, ["True", "False"])):
        numbers = np.where(texts == "True", "1", np.where(texts == "", "nan", "0"))
        whole = known.size == texts.size
        return (texts == "True") if whole else numbers.astype(float)
    for kind, missing in ((np.int64, "-"), (np.float64, "nan")):
        with contextlib.suppress(ValueError, OverflowError):
            return np.where(texts == "", missing, texts).astype(kind)
    return texts


def _renamed(frame: pandas.DataFrame, config: Mapping[str, Any]) -> dict[str, str]:
    """Fields by columns of other names: a table's `clients` are `num_clients`. What the
    field's value does not have is another thing."""
    fields = {n.removeprefix("num_"): n for n in config if n.startswith("num_")}
    fields.pop("trials", None)  # Which are counted.
    return {
        name: fields[name]
        for name in frame
        if name in fields
        and fields[name] not in frame
        and _is_listed(fields[name], frame[name], config, most=math.inf)
    }


def _is_listed(
    name: str, column: Iterable[Any], config: Mapping[str, Any], *, most: float = 1
) -> bool:
    """Whether a column's few values are among those of the axis of this name."""
    values, listed = set(column), config.get(name)
    is_axis = isinstance(listed, list) or most > 1
    every = listed if isinstance(listed, list) else [listed]
    return is_axis and len(values) <= most and values <= set(map(_hashable, every))


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _config(file: pathlib.Path) -> dict[str, Any]:
    """The configuration of some results, if it lies beside them."""
    try:
        found = json.loads(read_file(file))
        if isinstance(found, dict):
            return found
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError):
        pass
    log.warning("`%s` is damaged; settings are taken from the table alone.", file)
    return {}


def _origin(runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """What attributes say of the runs that computed something."""
    if not runs:
        return {}
    source = "; ".join(dict.fromkeys(_sources(runs)))
    return {"source": source, FILE.removesuffix(".json"): json.dumps(list(runs))}


def _sources(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Versions and commit of each run, in a line."""
    for run in runs:
        commit = run.get("commit") or {}
        versions = [f"{n} {run[n]}" for n in ("cfljax", "jax", "numpy") if n in run]
        known = "id" in commit
        dirty = " with changes" if commit.get("dirty") else ""
        at = [f"commit {commit['id'][:10]}{dirty}"] if known else []
        yield ", ".join([*versions, *at]) or "unknown"
