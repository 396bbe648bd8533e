"""Logs: named metrics in files, and in the trackers that people use.

    state, seen = cfl.run(algorithm, key, data, num_rounds=300)
    cfl.engine.log_metrics(seen, "tensorboard", "runs/ifca", settings={"noise": 0.1})

CSV needs nothing; the others are extras of their own libraries:
`pip install 'cfljax[log]'`. What a run measured is logged when it is over.
"""

import contextlib
import itertools
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, get_args

import numpy as np
import xarray

Kind = Literal["csv", "tensorboard", "wandb", "mlflow"]
Write = Callable[[int, Mapping[str, float]], None]
_ROUND = "round"


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
    if kind not in get_args(Kind):
        raise ValueError(
            f"`kind` must be one of {', '.join(get_args(Kind))}, got {kind!r}."
        )
    columns = dict(_columns(metrics))
    lengths = {len(values) for values in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"`metrics` must be of the same rounds, got {lengths}.")
    folder = pathlib.Path(path)
    folder.mkdir(parents=True, exist_ok=True)
    opened = _OPEN[kind](folder, name or "run", dict(settings or {}))
    with opened as write:
        for index in range(max(lengths, default=0)):
            row = {n: float(values[index]) for n, values in columns.items()}
            known = {n: value for n, value in row.items() if np.isfinite(value)}
            write(first_round + index, known)
    return folder


def log_results(
    results: xarray.Dataset, kind: Kind | str, path: str | os.PathLike[str]
) -> pathlib.Path:
    """Log every run of a dataset of `sweep` or `open_results`: what it measured by
    `round`, one log for each cell and trial, named by what differs.

    Raises:
      ValueError: as `log_metrics`, or if nothing was measured by round.
    """
    shown = {str(n): v for n, v in results.data_vars.items() if _ROUND in v.dims}
    if not shown:
        raise ValueError("`results` must have a variable with the axis `round`.")
    axes = list(
        dict.fromkeys(str(d) for v in shown.values() for d in v.dims if d != _ROUND)
    )
    labels = [results[axis].values.tolist() for axis in axes]
    differs = [axis for axis, own in zip(axes, labels, strict=True) if len(own) > 1]
    for at in itertools.product(*(range(len(own)) for own in labels)):
        place = dict(zip(axes, at, strict=True))
        found = {
            name: variable.isel(
                {axis: i for axis, i in place.items() if axis in variable.dims}
            ).values
            for name, variable in shown.items()
        }
        if not any(np.any(np.isfinite(values)) for values in found.values()):
            continue  # Never computed.
        own = {axis: labels[axes.index(axis)][i] for axis, i in place.items()}
        name = ",".join(f"{axis}={own[axis]}" for axis in differs)
        log_metrics(found, kind, path, name=name, settings=own)
    return pathlib.Path(path)


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
    with _asked_for("tensorboardX"):
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
    with _asked_for("wandb"):
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
    with _asked_for("mlflow"):
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


@contextlib.contextmanager
def _asked_for(library: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise ValueError(
            f"this log needs {library}, which is not installed; "
            f"`pip install {library}`, or `pip install 'cfljax[log]'` for all."
        ) from error


_OPEN: dict[str, Any] = {
    "csv": _csv,
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}
