"""The board of `compare.all`: a folder with a file for each method.

All files of a board are of one comparison: the same data, sizes and seeds, so that
differences are those of the same seeds. Nothing here imports JAX.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cfljax.base import durable
from experiments.compare import submissions
from experiments.compare.submissions import RefusedError

Method = Mapping[str, Any]  # As the form has it.


class Board(NamedTuple):
    """What a folder holds."""

    comparison: Mapping[str, Any]  # That all methods are of; empty of an empty board.
    methods: Mapping[str, Method]  # By name, in the order of the names.


def load(folder: pathlib.Path) -> Board:
    """The board of a folder; an empty one if there is nothing.

    Raises:
      RefusedError: if a file of it is none that `add` has written.
    """
    comparison: Mapping[str, Any] = {}
    methods: dict[str, Method] = {}
    for path in sorted(folder.glob("*.json")):
        document = submissions.read(path)
        own = document["methods"]
        comparison = comparison or document["comparison"]
        found = list(submissions.differences(document["comparison"], comparison))
        if len(own) > 1 or path != file_of(folder, own[0]["name"]):
            found.append(f"must hold {path.stem} alone")
        if found:
            raise RefusedError([f"{path}: {line}" for line in found])
        methods[own[0]["name"]] = own[0]
    return Board(comparison, dict(sorted(methods.items())))


def file_of(folder: pathlib.Path, name: str) -> pathlib.Path:
    """Where a board has a method."""
    return folder / f"{name}.json"


def add(
    files: Sequence[pathlib.Path],
    folder: pathlib.Path,
    *,
    replaces: bool = False,
    is_rehearsal: bool = False,
) -> tuple[Board, list[pathlib.Path]]:
    """Take submissions into a board: all of them, or none if anything is wrong.

    A method that is there already with the same results stays as it is.

    Args:
      files: submissions, each of one method or several.
      folder: of the board, made if missing.
      replaces: whether methods take the place of others of their name.
      is_rehearsal: whether nothing is written.

    Returns:
      The board, and the files in it that were written, or would be.

    Raises:
      RefusedError: with all that is wrong.
      OSError: if a file cannot be read or written.
    """
    board = load(folder)
    comparison, methods = board.comparison, dict(board.methods)
    refused: list[str] = []
    written: list[str] = []
    seen: dict[str, pathlib.Path] = {}
    for path in files:
        try:
            document = submissions.read(path)
        except RefusedError as error:
            refused += error.lines
            continue
        comparison = comparison or document["comparison"]
        found = list(submissions.differences(document["comparison"], comparison))
        if found:
            found.append(
                "is of another comparison: `--board FOLDER` names a board of its own, "
                "which its first submission begins"
            )
        for method in document["methods"]:
            name = method["name"]
            if name in seen:
                found.append(f"has {name}, which {seen[name]} has too")
            seen[name] = path
            if method == board.methods.get(name):
                continue
            if name in board.methods and not replaces:
                found.append(
                    f"has {name}, which the board has with other results: choose "
                    "another name, or `--replace` it"
                )
            methods[name] = method
            written.append(name)
        refused += [f"{os.fspath(path)}: {line}" for line in found]
    if refused:
        raise RefusedError(refused)
    if not is_rehearsal:
        for name in written:
            text = submissions.text(comparison, [methods[name]])
            with durable.replacing(file_of(folder, name)) as temporary:
                temporary.write_text(text, encoding="utf-8", newline="\n")
    now = Board(comparison, dict(sorted(methods.items())))
    return now, [file_of(folder, name) for name in written]
