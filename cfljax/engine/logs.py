"""Logs: named metrics in files, and in the trackers that people use.

    state, seen = cfl.run(algorithm, key, data, num_rounds=300)
    cfl.engine.log_metrics(seen, "tensorboard", "runs/ifca", settings={"noise": 0.1})

CSV needs nothing; the others are extras of their own libraries:
`pip install 'cfljax[log]'`. What a run measured is logged when it is over.
"""

import contextlib
import importlib.util
import itertools
import os
import pathlib
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray

Kind = Literal["csv", "tensorboard", "wandb", "mlflow"]
Write = Callable[[int, Mapping[str, float]], None]
Rows = Mapping[int, Mapping[str, float]]  # Metrics by round.
_ROUND = "round"
_ROUNDS = (_ROUND, "tested")  # Axes of rounds, of those with a test behind them.
_LIBRARIES = {"tensorboard": "tensorboardX", "wandb": "wandb", "mlflow": "mlflow"}
_LONGEST_NAME = 150  # Of a file.


def check_log(kind: Kind | str) -> None:
    """Raise ValueError where a log cannot be written, before anything is run: its kind
    is unknown, or the library is not installed; the message says how to get it."""
    if kind not in get_args(Kind):
        raise ValueError(
            f"`kind` must be one of {', '.join(get_args(Kind))}, got {kind!r}."
        )
    library = _LIBRARIES.get(kind)
    if library is not None and importlib.util.find_spec(library) is None:
        raise ValueError(
            f"a log for {kind} needs {library}, which is not installed; "
            f"`pip install {library}`, or `pip install 'cfljax[log]'` for all."
        )


def log_metrics(
    metrics: Mapping[str, Any],
    kind: Kind | str,
    path: str | os.PathLike[str],
    *,
    first_round: int = 1,
    name: str = "",
    settings: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Log what `run` observed, round by round.

    Args:
      metrics: by name, `[rounds]`; of `[rounds, n]` each column is a metric of its own,
        `cluster_sizes/0` and so on. What is not a number is left out.
      kind: "csv", "tensorboard", "wandb" (offline: `wandb sync` sends it) or "mlflow".
      path: a folder, made if missing. CSV: `NAME.csv` in it; mlflow: the tracking
        store.
      first_round: number of the first.
      name: of the run; "run" if empty.
      settings: of the run, plain values, kept beside the metrics where the library has
        a place for them.

    Returns:
      The folder.

    Raises:
      ValueError: if `kind` is unknown, the metrics have different numbers of rounds, or
        the library is not installed; the message says how to get it.
    """
    check_log(kind)
    columns = dict(_columns(metrics))
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"`metrics` must be of the same rounds, got {lengths}.")
    rows = {
        first_round + index: {n: float(values[index]) for n, values in columns.items()}
        for index in range(max(lengths, default=0))
    }
    return _log(rows, kind, path, name, settings or {})


def _log(
    rows: Rows,
    kind: Kind | str,
    path: str | os.PathLike[str],
    name: str,
    settings: Mapping[str, Any],
) -> pathlib.Path:
    """Write the rows, in the order of their rounds, without what is not finite."""
    folder = pathlib.Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    with _OPEN[kind](folder, _safe(name or "run"), dict(settings)) as write:
        for step in sorted(rows):
            write(step, {n: v for n, v in rows[step].items() if np.isfinite(v)})
    return folder


def _safe(name: str) -> str:
    """A name that a file can have."""
    safe = re.sub(r"[/\\\0]", "_", name)
    if len(safe) <= _LONGEST_NAME:
        return safe
    return f"{safe[:_LONGEST_NAME]}-{zlib.crc32(name.encode()):x}"


def log_results(
    results: xarray.Dataset,
    kind: Kind | str,
    path: str | os.PathLike[str],
    *,
    settings: Mapping[str, Any] | None = None,
) -> pathlib.Path:
    """Log every run of a dataset of `sweep` or `open_results`: what it measured by
    `round`, and by `tested`, the rounds with a test behind them. One log for each cell
    and trial, named by what differs.

    Args:
      results: of the runs.
      kind: as of `log_metrics`.
      path: likewise.
      settings: that tell these runs from others of the same folder, which the dataset
        does not say; they begin each name.

    Raises:
      ValueError: as `log_metrics`, or if nothing was measured by round.
    """
    check_log(kind)
    shown = {str(n): v for n, v in results.data_vars.items() if _rounds_of(v.dims)}
    if not shown:
        raise ValueError(
            "`results` must have a variable with the axis `round` or `tested`."
        )
    axes = list(
        dict.fromkeys(
            str(d) for v in shown.values() for d in v.dims if d not in _ROUNDS
        )
    )
    labels = [results[axis].values.tolist() for axis in axes]
    differs = [axis for axis, own in zip(axes, labels, strict=True) if len(own) > 1]
    for at in itertools.product(*(range(len(own)) for own in labels)):
        place = dict(zip(axes, at, strict=True))
        rows: dict[int, dict[str, float]] = {}
        for name, variable in shown.items():
            index = {axis: i for axis, i in place.items() if axis in variable.dims}
            own = variable.isel(index)
            steps = _steps(results, str(own.dims[0]))
            for step, value in zip(steps, own.values.tolist(), strict=True):
                rows.setdefault(step, {})[name] = value
        if not any(
            np.isfinite(value) for row in rows.values() for value in row.values()
        ):
            continue  # Never computed.
        own = {axis: labels[axes.index(axis)][i] for axis, i in place.items()}
        named = {**(settings or {}), **{axis: own[axis] for axis in differs}}
        name = ",".join(f"{axis}={value}" for axis, value in named.items())
        _log(rows, kind, path, name, {**(settings or {}), **own})
    return pathlib.Path(path)


def _rounds_of(dims: Sequence[Any]) -> bool:
    """Whether an axis of rounds is among some."""
    return any(dim in _ROUNDS for dim in dims)


def _steps(results: xarray.Dataset, axis: str) -> list[int]:
    """Numbers of the rounds along an axis: its labels, or from 1 on."""
    number = results.sizes[axis]
    if axis not in results.coords:
        return list(range(1, number + 1))
    return [int(label) for label in results[axis].values]


def _columns(metrics: Mapping[str, Any]) -> Iterator[tuple[str, np.ndarray]]:
    """Each number of a round by a name of its own."""
    for name, values in metrics.items():
        array = np.asarray(values, float)
        rows = array.reshape(len(array), -1)
        for index in range(rows.shape[1]):
            own = f"{name}/{index}" if array.ndim > 1 else name
            yield own, rows[:, index]


@contextlib.contextmanager
def _csv(folder: pathlib.Path, name: str, settings: dict[str, Any]) -> Iterator[Write]:
    """A table with a row for each round, which says its settings first."""
    rows: list[dict[str, Any]] = []
    yield lambda step, row: rows.append({**settings, _ROUND: step, **row})
    import pandas  # It takes half a second.

    pandas.DataFrame(rows).to_csv(folder / f"{name}.csv", index=False)


@contextlib.contextmanager
def _tensorboard(
    folder: pathlib.Path, name: str, settings: dict[str, Any]
) -> Iterator[Write]:
    """An event file in a folder of the run."""
    from tensorboardX import SummaryWriter

    with SummaryWriter(str(folder / name)) as writer:
        if settings:
            text = "\n".join(f"- {key}: {value}" for key, value in settings.items())
            writer.add_text("settings", text)

        def write(step: int, row: Mapping[str, float]) -> None:
            for key, value in row.items():
                writer.add_scalar(key, value, step)

        yield write


@contextlib.contextmanager
def _wandb(
    folder: pathlib.Path, name: str, settings: dict[str, Any]
) -> Iterator[Write]:
    """An offline run."""
    import wandb  # pyright: ignore[reportMissingImports]

    options = {"project": "cfljax", "name": name, "config": settings}
    run = wandb.init(dir=str(folder), mode="offline", reinit="create_new", **options)
    try:
        yield lambda step, row: run.log(dict(row), step=step)
    finally:
        run.finish()


@contextlib.contextmanager
def _mlflow(
    folder: pathlib.Path, name: str, settings: dict[str, Any]
) -> Iterator[Write]:
    """A run of the experiment "cfljax" in a store of files, which the library allows
    whoever says so; a data base would need more of it than its light form has."""
    os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
    from mlflow import MlflowClient  # pyright: ignore[reportMissingImports]

    client = MlflowClient(folder.resolve().as_uri())
    known = client.get_experiment_by_name("cfljax")
    id = known.experiment_id if known else client.create_experiment("cfljax")
    run = client.create_run(id, run_name=name).info.run_id
    for key, value in settings.items():
        client.log_param(run, key, value)

    def write(step: int, row: Mapping[str, float]) -> None:
        for key, value in row.items():
            client.log_metric(run, key, value, step=step)

    yield write
    client.set_terminated(run)


_OPEN: dict[str, Any] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
