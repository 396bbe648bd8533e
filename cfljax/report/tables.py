"""Tables of results: CSV files for programs, Markdown for people."""

import csv
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfljax.report.files import replacing


def write_csv(path: str | os.PathLike[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as a CSV file, whole or not at all.

    Columns come in the order in which the rows first name them, so the same rows
    make the same bytes. A number is written with the fewest digits that read back
    to it in its own type; None and a missing entry become an empty field.

    Args:
      path: the file; missing folders are made.
      rows: at least one; values are text, numbers, truth values or None.

    Raises:
      ValueError: if `rows` is empty, or a value is an array.
    """
    columns = _columns(rows)
    with (
        replacing(path) as temporary,
        temporary.open("w", encoding="utf-8", newline="") as file,
    ):
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_text(row.get(name)) for name in columns] for row in rows)


def read_csv(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    """Rows of a file that `write_csv` made.

    An empty field becomes None; `True` and `False`, integers and decimals become
    values; everything else stays text. Text that looks like a number comes back as
    that number.

    Args:
      path: the file.
    """
    with pathlib.Path(path).open(encoding="utf-8", newline="") as file:
        return [
            {name: _value(text) for name, text in row.items()}
            for row in csv.DictReader(file)
        ]


def markdown(
    rows: Sequence[Mapping[str, Any]],
    columns: Sequence[str] | Mapping[str, str] | None = None,
    *,
    digits: int = 3,
) -> str:
    """Rows as a Markdown table, numbers to the right.

    Args:
      rows: at least one.
      columns: names to show, in order, or a mapping of names to headings; all if
        None.
      digits: significant digits of decimals, at least 1. Files keep all of them.

    Returns:
      The table's lines, ending in a newline.

    Raises:
      ValueError: if `rows` is empty, `digits` is below 1 or no row has a column.
    """
    if digits < 1:
        raise ValueError(f"`digits` must be at least 1, got {digits}.")
    known = _columns(rows)
    columns = known if columns is None else columns
    headings = columns if isinstance(columns, Mapping) else {c: c for c in columns}
    unknown = [name for name in headings if name not in known]
    if unknown:
        raise ValueError(f"`columns` must be among {known}, got {unknown}.")
    aligned = [
        "---:" if _is_numeric([row.get(name) for row in rows]) else "---"
        for name in headings
    ]
    body = [[_cell(row.get(name), digits) for name in headings] for row in rows]
    lines = [[_escaped(text) for text in headings.values()], aligned, *body]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def concise(
    rows: Sequence[Mapping[str, Any]],
    columns: Mapping[str, str],
    *,
    once: str = "",
    digits: int = 3,
) -> str:
    """As `markdown`, without what tells people nothing.

    Args:
      rows: at least one.
      columns: headings by name. Columns in which no row has anything are left out.
      once: a column of texts, lists with a comma between their entries, or None. What
        all rows that have a text there say is taken out of them and said below the
        table, if that is two rows or more.
      digits: significant digits of decimals, at least 1.

    Raises:
      ValueError: as `markdown`.
    """
    shown, below = _said_once(rows, once) if once else (rows, "")
    full = {name for row in shown for name in row if row[name] not in (None, "")}
    kept = {name: heading for name, heading in columns.items() if name in full}
    return markdown(shown, kept, digits=digits) + below


def _said_once(
    rows: Sequence[Mapping[str, Any]], name: str
) -> tuple[list[dict[str, Any]], str]:
    """Rows without what a column says in all of them, and a paragraph of that."""
    every = [row[name].split(", ") for row in rows if row.get(name)]
    first = every[0] if len(every) > 1 else []
    shared = [entry for entry in first if all(entry in own for own in every)]
    if not shared:
        return [dict(row) for row in rows], ""

    def rest(text: str | None) -> str | None:
        left = [entry for entry in (text or "").split(", ") if entry not in shared]
        return ", ".join(left) or None

    shown = [{**row, name: rest(row.get(name))} for row in rows]
    others = " that have one" if len(every) < len(rows) else ""
    return shown, f"\nThe {name} of all rows{others}: {', '.join(shared)}.\n"


def _columns(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of all columns in the order of first use."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    if not names:
        raise ValueError("`rows` must hold at least one named value, got none.")
    return names


def _scalar(value: Any) -> Any:
    """The value as a NumPy scalar, or None."""
    if value is None:
        return None
    array = np.asarray(value)
    if array.ndim != 0:
        raise ValueError(
            f"`rows` must hold single values, got an array of shape {array.shape}; "
            f"give each entry its own row or column."
        )
    return array[()]


def _text(value: Any) -> str:
    """The shortest text that reads back to the value in its own type."""
    scalar = _scalar(value)
    return "" if scalar is None else str(scalar)


def _value(text: str) -> Any:
    """What `_text` was given, as far as the text tells."""
    if text in ("", "True", "False"):
        return {"": None, "True": True, "False": False}[text]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def _cell(value: Any, digits: int) -> str:
    """The value as a person reads it."""
    scalar = _scalar(value)
    if isinstance(scalar, np.floating):
        return f"{scalar:.{digits}g}"
    return _escaped(_text(value))


def _escaped(text: str) -> str:
    """The text without what would end a Markdown cell."""
    return text.replace("|", "\\|").replace("\n", " ")


def _is_numeric(values: Sequence[Any]) -> bool:
    """Whether all values that are there are numbers."""
    present = [_scalar(value) for value in values if value is not None]
    return bool(present) and all(isinstance(v, np.number) for v in present)
