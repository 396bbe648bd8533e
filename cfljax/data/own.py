"""Clients of the user's own data: ragged arrays, files of NumPy, tables.

What cannot be learnt from is refused in one line that names the client. NumPy's files
are read without unpickling, which would run what a file says.
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int, PRNGKeyArray, Shaped

from cfljax.base.clients import check_clients
from cfljax.base.ranges import ranged
from cfljax.base.types import ClientData, Truth
from cfljax.base.unpacking import TooLargeError, read_npz
from cfljax.data.partition import generator

_Rows = Shaped[np.ndarray, "..."]  # [samples, ...]


@ranged
def from_clients(
    clients: Iterable[Any], *, num_classes: int | None = None
) -> ClientData:
    """Clients of arrays of different lengths, padded and masked.

    Args:
      clients: for each a pair, inputs `[samples, ...]` and targets `[samples, ...]`,
        arrays or what NumPy makes arrays of. Bytes (uint8) of inputs are pixels, which
        are divided by 255; other integers, such as token ids, stay integers (int32),
        and numbers of floating point become float32. Targets that are integers or
        booleans are labels 0, 1, ...; others are numbers to be predicted.
      num_classes: of which labels must be; None for whatever labels there are.

    Returns:
      Inputs `[clients, samples, ...]` and targets of as many samples as the largest
      client has, zeros where the mask is false.

    Raises:
      ValueError: naming the client, if there is none, one has no samples, other shapes
        than the first, unlike numbers of inputs and targets, a value that is not
        finite or no number, or a label that is no class.

    Cost: one copy of all samples, padded to the largest client's number: a client of
    many samples makes all of them large.
    """
    pairs = [_pair(index, client) for index, client in enumerate(clients)]
    if not pairs:
        raise ValueError("`clients` must have at least one client, got none.")
    for index, pair in enumerate(pairs):
        for name, own, first in zip(("inputs", "targets"), pair, pairs[0], strict=True):
            if own.shape[1:] != first.shape[1:]:
                raise ValueError(
                    f"`{name}` must have one shape for all samples, got "
                    f"{own.shape[1:]} for client {index} and {first.shape[1:]} for "
                    "client 0; crop or pad them."
                )
    inputs, targets = (list(column) for column in zip(*pairs, strict=True))
    counts = np.array([len(own) for own in targets])
    mask = np.arange(counts.max())[None, :] < counts[:, None]
    filled = _filled(mask, _inputs(inputs)), _filled(mask, _targets(targets))
    data = ClientData(*jax.device_put((*filled, mask)))
    _check(data, num_classes)
    return data


def _pair(index: int, client: Any) -> tuple[_Rows, _Rows]:
    """Inputs and targets of one client as arrays of equal length, not empty."""
    if not isinstance(client, tuple | list):
        raise ValueError(
            f"`clients` must be pairs (inputs, targets), got {type(client).__name__} "
            f"for client {index}; dicts are for `from_dicts`."
        )
    if len(client) != 2:
        raise ValueError(
            f"`clients` must be pairs (inputs, targets), got {len(client)} entries for "
            f"client {index}."
        )
    inputs, targets = (
        _array(name, own, f"client {index}")
        for name, own in zip(("inputs", "targets"), client, strict=True)
    )
    if len(inputs) != len(targets):
        raise ValueError(
            "`inputs` and `targets` must have as many samples, got "
            f"{len(inputs)} and {len(targets)} for client {index}."
        )
    if not len(inputs):
        raise ValueError(
            f"every client must have a sample, got none for client {index}; leave it "
            "out."
        )
    return inputs, targets


def _array(name: str, values: Any, whose: str) -> _Rows:
    """An array of numbers with an axis of samples."""
    try:
        found = np.asarray(values)
    except ValueError as error:  # Ragged.
        raise ValueError(
            f"`{name}` must have samples of one shape, got others for {whose}; crop or "
            "pad them."
        ) from error
    if found.dtype.kind not in "biuf":
        help_ = {
            "U": "; number them: `np.unique(..., return_inverse=True)[1]`",
            "O": "; its entries must be numbers or arrays of one shape",
        }
        raise ValueError(
            f"`{name}` must be real numbers, got {found.dtype} for {whose}"
            f"{help_.get(found.dtype.kind, '')}."
        )
    if not found.ndim:
        raise ValueError(f"`{name}` must be [samples, ...], got a number for {whose}.")
    return found


def _inputs(arrays: list[_Rows]) -> list[_Rows]:
    """In the type that a model is given them in."""
    if all(own.dtype == np.uint8 for own in arrays):
        return [own / np.float32(255) for own in arrays]
    kind = np.result_type(*{own.dtype for own in arrays})
    return [_whole("inputs", own, kind) for own in arrays]


def _targets(arrays: list[_Rows]) -> list[_Rows]:
    """Labels as int32, other targets as float32."""
    kind = np.result_type(*{own.dtype for own in arrays})
    return [_whole("targets", own, kind) for own in arrays]


def _whole(name: str, values: _Rows, kind: np.dtype) -> _Rows:
    """As float32, or int32 where all are whole numbers."""
    if kind.kind == "f":
        with np.errstate(over="ignore"):  # Infinite values are refused below.
            return values.astype(np.float32)
    if values.dtype.kind in "iu" and values.dtype.itemsize >= 4:
        bounds = np.iinfo(np.int32)
        if values.size and (values.min() < bounds.min or values.max() > bounds.max):
            raise ValueError(
                f"`{name}` must be whole numbers below {bounds.max}, got "
                f"{values.max()}; number them anew."
            )
    return values.astype(np.int32)


def _filled(
    mask: Bool[np.ndarray, "clients samples"], rows: list[_Rows]
) -> Shaped[np.ndarray, "clients samples ..."]:
    """The rows where the mask is true, zeros elsewhere."""
    found = np.zeros((*mask.shape, *rows[0].shape[1:]), rows[0].dtype)
    found[mask] = np.concatenate(rows)
    return found


def _check(data: ClientData, num_classes: int | None) -> None:
    """Raise ValueError unless the data are what algorithms take for granted."""
    targets = np.asarray(data.targets)
    if num_classes is None and targets.dtype.kind == "i":
        least = np.min(targets.reshape(len(targets), -1), axis=1)
        if np.any(least < 0):
            raise ValueError(
                "labels must be 0, 1, ..., got "
                f"{np.min(least)} for client {np.argmax(least < 0)}; number them anew, "
                "or make targets to be predicted floats."
            )
    check_clients(data, num_classes=num_classes)


@ranged
def from_npz(
    path: str | os.PathLike[str], *, num_classes: int | None = None
) -> tuple[ClientData, Truth | None]:
    """Clients from a file of `numpy.savez`, of either form:

        np.savez("my.npz", inputs=x, targets=y, clients=who)    # who[i]: of sample i
        np.savez("my.npz", **data._asdict(), clusters=truth.clusters)  # padded

    In the first all arrays begin with the axis of samples, and `clusters`, where they
    are known, are of samples too, equal for those of a client. Clients are in ascending
    order of what is in `clients`, numbers or text.

    Args:
      path: of the file. Nothing in it is unpickled, and nothing takes more memory than
        the host has to spare, or `CFLJAX_UNPACK_GIB` says in GiB.
      num_classes: as of `from_clients`.

    Returns:
      The clients, and their true clusters, numbered 0, 1, ... in ascending order of
      what is in `clusters`; None where the file has none.

    Raises:
      ValueError: as `from_clients`; if it is no file of this kind, lacks an array, or
        has one of objects, which would have to be unpickled.
      FileNotFoundError: if there is no such file.
    """
    arrays = _read(path)
    if "mask" in arrays:
        _need(arrays, ("inputs", "targets", "mask"), path)
        return _padded(arrays, num_classes), _truth(arrays.get("clusters"))
    _need(arrays, ("inputs", "targets", "clients"), path)
    rows, number = _by_client(arrays["clients"]), len(arrays["clients"])
    for name in arrays.keys() & {"inputs", "targets", "clusters"}:
        _check_length(name, arrays[name], number, "clients")
    pairs = [(arrays["inputs"][own], arrays["targets"][own]) for own in rows]
    data = from_clients(pairs, num_classes=num_classes)
    clusters = arrays.get("clusters")
    if clusters is None:
        return data, None
    for index, own in enumerate(rows):
        if np.any(clusters[own] != clusters[own[0]]):
            raise ValueError(
                "`clusters` must be the same for all samples of a client, got several "
                f"for client {index}."
            )
    return data, _truth(clusters[[own[0] for own in rows]])


def _read(path: str | os.PathLike[str]) -> dict[str, np.ndarray]:
    """All arrays of a file, none of which may be of objects, each with an axis."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode):
            raise ValueError("it is a pipe, not a file")
        with open(path, "rb") as file:
            if file.read(6) == np.lib.format.MAGIC_PREFIX:
                raise ValueError("it holds a single array; write it by `np.savez`")
            found = read_npz(path, file)
    except TooLargeError:
        raise
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"cannot read `{os.fspath(path)}`: {reason}.") from error
    for name, values in found.items():
        if not values.ndim:
            raise ValueError(f"`{name}` must be [samples, ...], got a number.")
    return found


def _need(
    arrays: Mapping[str, Any], names: Sequence[str], path: str | os.PathLike[str]
) -> None:
    """Raise ValueError where an array is missing."""
    missing = [name for name in names if name not in arrays]
    if missing:
        raise ValueError(
            f"`{os.fspath(path)}` must have the arrays `inputs`, `targets` and "
            f"`clients` (or `mask`), got {', '.join(arrays) or 'none'}."
        )


def _by_client(clients: Shaped[np.ndarray, "*any"]) -> list[Int[np.ndarray, "_"]]:
    """Rows of each client, in ascending order of what names it."""
    if clients.ndim != 1 or clients.dtype.kind not in "biuSU":
        raise ValueError(
            "`clients` must be one whole number or text for each sample, got "
            f"{clients.dtype} of shape {clients.shape}."
        )
    _, numbers = np.unique(clients, return_inverse=True)
    order = np.argsort(numbers, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)


def _check_length(name: str, values: _Rows, number: int, clients: str) -> None:
    """Raise ValueError unless there is an entry for each sample that has a client."""
    if len(values) != number:
        raise ValueError(
            f"`{name}` must have an entry for each of {number} samples, as "
            f"`{clients}` has, got {len(values)}."
        )


def _padded(arrays: Mapping[str, np.ndarray], num_classes: int | None) -> ClientData:
    """Clients as they were padded, with zeros for whatever the padding was."""
    inputs, targets, mask = (arrays[name] for name in ("inputs", "targets", "mask"))
    if mask.dtype != bool or mask.ndim != 2:
        raise ValueError(
            "`mask` must be booleans [clients, samples], got "
            f"{mask.dtype} of shape {mask.shape}."
        )
    for name, values in (("inputs", inputs), ("targets", targets)):
        if values.shape[:2] != mask.shape:
            raise ValueError(
                f"`{name}` must begin with the shape of `mask`, {mask.shape}, got "
                f"{values.shape}."
            )
    pairs = zip(inputs, targets, mask, strict=True)
    own = [(x[kept], y[kept]) for x, y, kept in pairs]
    return from_clients(own, num_classes=num_classes)


def _truth(clusters: Shaped[np.ndarray, " clients"] | None) -> Truth | None:
    """Clusters numbered from 0 on; the models that made the data are not known."""
    if clusters is None:
        return None
    _, numbers = np.unique(clusters, return_inverse=True)
    return Truth(jax.device_put(numbers.astype(np.int32)), None)


@ranged
def from_dicts(
    tables: Any,
    *,
    inputs: str = "x",
    targets: str = "label",
    client: str | None = None,
    num_classes: int | None = None,
) -> ClientData:
    """Clients from tables of columns, such as dicts of arrays or the data sets of
    Hugging Face (`data.with_format("numpy")`), whose classes are not imported here.

    Args:
      tables: a table for each client; or one table of all samples, with `client`.
      inputs: name of the column of inputs.
      targets: name of the column of targets, such as labels.
      client: name of the column that says whose each sample is; clients are in
        ascending order of what is in it. None where there is a table for each.
      num_classes: as of `from_clients`.

    Raises:
      ValueError: as `from_clients`, and if a column is not there.
    """
    if client is None:
        if _is_table(tables):
            raise ValueError(
                "`client` must name the column that says whose each sample is, where "
                "one table has all; or give a list of tables, one for each client."
            )
        pairs = [
            (_column(own, inputs, where), _column(own, targets, where))
            for index, own in enumerate(tables)
            for where in (f"client {index}",)
        ]
        return from_clients(pairs, num_classes=num_classes)
    columns = [
        _array(name, _column(tables, name, "the table"), "the table")
        for name in (inputs, targets)
    ]
    rows = _by_client(np.asarray(_column(tables, client, "the table")))
    number = sum(map(len, rows))
    for name, values in zip((inputs, targets), columns, strict=True):
        _check_length(name, values, number, client)
    pairs = [tuple(values[own] for values in columns) for own in rows]
    return from_clients(pairs, num_classes=num_classes)


def _is_table(table: Any) -> bool:
    """Whether it has named columns."""
    return isinstance(table, Mapping) or hasattr(table, "column_names")


def _column(table: Any, name: str, where: str) -> Any:
    """A column of a table, or a ValueError that says which there are."""
    if not _is_table(table):
        raise ValueError(
            f"`tables` must have named columns, got {type(table).__name__} for {where}."
        )
    names = list(getattr(table, "column_names", None) or table)
    if name not in names:
        raise ValueError(
            f"`{name}` must be a column of {where}, which has "
            f"{', '.join(map(str, names)) or 'none'}; name it by `inputs`, `targets` "
            "or `client`."
        )
    return table[name]


@ranged
def split_samples(
    key: PRNGKeyArray, data: ClientData, shares: Sequence[float | int]
) -> tuple[ClientData, ...]:
    """Every client's samples dealt out at random, as for training and test.

    Args:
      key: of the draw; a client's is that of the key and its index.
      data: leaves `[clients, samples, ...]`; concrete.
      shares: of each part, positive, of sum 1. A client's parts are cut where
        `cumsum(shares)` times its samples rounds to.

    Returns:
      Clients in the same order for each part, padded to its largest client.

    Raises:
      ValueError: if shares are not positive or do not add up to 1, or a client would
        have no sample in a part.
    """
    if not shares or min(shares) <= 0 or abs(sum(shares) - 1) > 1e-6:
        raise ValueError(
            f"`shares` must be positive and add up to 1, got {tuple(shares)}."
        )
    inputs, targets, mask = map(np.asarray, data)
    parts: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in shares]
    for index, kept in enumerate(mask):
        random = generator(jax.random.fold_in(key, index))
        own = random.permutation(np.flatnonzero(kept))
        ends = np.rint(np.cumsum(shares) * len(own)).astype(int)
        for part, rows in zip(parts, np.split(own, ends[:-1]), strict=True):
            if not len(rows):
                raise ValueError(
                    f"`shares` {tuple(shares)} must leave every client a sample in "
                    f"each part, got none for client {index} of {len(own)} samples."
                )
            part.append((inputs[index, rows], targets[index, rows]))
    return tuple(map(from_clients, parts))
