"""All statements and errata, collected from the papers' folders.

A paper is a package below `theory`; each of its modules that defines `STATEMENTS`
contributes them, and its `errata.toml` what the paper has wrong. Adding a statement is
one entry in such a tuple, adding a family one file.

Importing them all takes seconds, as they compute with JAX. What can be told of them
without that is therefore kept in an index beside the bytecode, made from all modules by
whoever first asks, and used as long as the sources and packages are the same.
"""

import dataclasses
import difflib
import importlib
import importlib.util
import pathlib
import pkgutil
import re
import tomllib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import theory
from cfljax import base
from cfljax.command import check_addresses
from cfljax.statements import SEVERITIES, Erratum, Statement, Status, site
from theory.sources import fingerprint


class Listed(NamedTuple):
    """What is known of a statement before its module is imported.

    The fields are those of `Statement`, in plain letters, but for `latex`, which is the
    claim as it is written, and `prose`, all texts as they are written; `module` is
    where it is defined.
    """

    id: str
    paper: str
    place: str
    text: str
    latex: str
    preconditions: list[str]
    claimed: str
    constants: dict[str, float]
    expected: Status
    fault: str
    other_reading: str
    written_proof: str
    note: str
    module: str
    prose: list[str]


def listed() -> tuple[Listed, ...]:
    """Every statement, by id, with numbers in their natural order (eq2 before eq10).

    Read from the index if that is whole and was made from these very sources, else from
    all modules.

    Raises:
      ValueError: if two statements share an id.
    """
    rows = base.remembered(_index_file(), fingerprint(), _described)
    return tuple(map(_from_index, rows))


def choose(ids: Sequence[str] = (), *, paper: str | None = None) -> tuple[Listed, ...]:
    """Statements with one of the dotted `ids` (all if empty) or below one, of `paper`
    if given, in the registry's order.

    Raises:
      KeyError: with the first name that takes nothing, and the nearest that do.
    """
    rows = [row for row in listed() if paper in (None, row.paper)]
    if not rows and paper is not None:
        raise KeyError(paper)
    for name in ids:
        if not any(is_under(row.id, name) for row in rows):
            raise KeyError(name, *nearest(name))
    return tuple(
        row for row in rows if not ids or any(is_under(row.id, name) for name in ids)
    )


def load(rows: Sequence[Listed]) -> tuple[Statement, ...]:
    """The statements themselves, from no more modules than define them."""
    check_addresses()
    modules = dict.fromkeys(row.module for row in rows)
    found = {row.id: row for module in modules for row in _defined_in(module)}
    return tuple(found[row.id] for row in rows)


def select(
    ids: Sequence[str] = (), *, paper: str | None = None
) -> tuple[Statement, ...]:
    """What `choose` finds, loaded."""
    return load(choose(ids, paper=paper))


def all_statements() -> tuple[Statement, ...]:
    """Every statement, in the order of `listed`."""
    return load(listed())


def nearest(name: str, *, count: int = 3) -> list[str]:
    """Up to `count` names that can be selected and resemble `name` most."""
    known = set()
    for row in listed():
        parts = row.id.split(".")
        known |= {".".join(parts[: end + 1]) for end in range(len(parts))}
    return difflib.get_close_matches(name, sorted(known), n=count, cutoff=0.0)


def all_errata() -> tuple[Erratum, ...]:
    """Every erratum, by id, in natural order (E2 before E10).

    Whether the rows they name exist is for a test to say: a paper with one wrong
    reference can still be listed and checked.

    Raises:
      ValueError: if a file of errata is not as it should be, or two share an id.
    """
    found: list[Erratum] = []
    for paper, folder in _papers():
        if (folder / "errata.toml").exists():
            found += _read_errata(folder / "errata.toml", paper)
    _check_unique([erratum.id for erratum in found])
    return tuple(sorted(found, key=lambda erratum: _natural(erratum.id)))


def source_file(module: str) -> str:
    """Path of a module's source in the repository."""
    return f"{module.replace('.', '/')}.py"


def paper_title(paper: str) -> str:
    """Authors and title: the first sentence of the package's docstring, or `paper`."""
    try:
        package = importlib.import_module(f"theory.{paper}")
    except ModuleNotFoundError:
        return paper
    first, _, _ = " ".join((package.__doc__ or paper).split()).partition(". ")
    return first.removesuffix(".")


def _papers() -> Iterator[tuple[str, pathlib.Path]]:
    """Name and folder of every paper."""
    for found in pkgutil.iter_modules(theory.__path__):
        if found.ispkg and found.name != "report":
            package = importlib.import_module(f"theory.{found.name}")
            yield found.name, pathlib.Path(package.__path__[0])


def _modules() -> Iterator[str]:
    """Name of every module of every paper."""
    for paper, folder in _papers():
        for found in pkgutil.iter_modules([str(folder)], f"theory.{paper}."):
            yield found.name


def _described() -> list[dict[str, Any]]:
    """What the index has of every statement, in its order."""
    rows = [
        site.described(row) | {"module": module, "prose": row.prose}
        for module in _modules()
        for row in _defined_in(module)
    ]
    _check_unique([row["id"] for row in rows])
    return sorted(rows, key=lambda row: _natural(row["id"]))


def _defined_in(module: str) -> tuple[Statement, ...]:
    return getattr(importlib.import_module(module), "STATEMENTS", ())


def _index_file() -> pathlib.Path:
    """Where Python keeps this folder's bytecode."""
    return pathlib.Path(importlib.util.cache_from_source(__file__)).with_name(
        "statements.json"
    )


def _from_index(row: dict[str, Any]) -> Listed:
    fields: dict[str, Any] = row | {"expected": Status(row["expected"])}
    return Listed(**fields)


def _read_errata(path: pathlib.Path, paper: str) -> list[Erratum]:
    """Tables `[[erratum]]` with the fields of `Erratum`, the paper's name apart."""
    expected = {field.name for field in dataclasses.fields(Erratum)} - {"paper"}
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))["erratum"]
        found = [(table["id"], table) for table in tables]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path} must hold TOML tables [[erratum]] with an `id`, got {error}."
        ) from error
    for name, table in found:
        if odd := sorted(expected ^ set(table)):
            raise ValueError(
                f"{path} must give {name} the fields {', '.join(sorted(expected))}, "
                f"got {', '.join(odd)} on one side only."
            )
        if table["severity"] not in SEVERITIES:
            raise ValueError(
                f"{path} must give {name} a `severity` of {', '.join(SEVERITIES)}, "
                f"got {table['severity']!r}."
            )
    return [
        Erratum(
            **{name: _in_a_line(value) for name, value in table.items()}
            | {"paper": paper, "statements": tuple(table["statements"])}
        )
        for _, table in found
    ]


def _in_a_line(value: Any) -> Any:
    """A text without the breaks of its lines."""
    return " ".join(value.split()) if isinstance(value, str) else value


def _check_unique(ids: Sequence[str]) -> None:
    twice = sorted({name for name in ids if ids.count(name) > 1})
    if twice:
        raise ValueError(f"`id` must be unique, got {', '.join(twice)} twice.")


def _natural(name: str) -> list[tuple[str, int]]:
    """Numbers as numbers: eq2 comes before eq10."""
    return [(word, int(n or 0)) for word, n in re.findall(r"(\D*)(\d*)", name)]


def is_under(statement: str, name: str) -> bool:
    """Whether a dotted name takes a statement: is it, or is above it."""
    return f"{statement}.".startswith(f"{name}.")
