"""An experiment's own flags: one for each field of its configuration, there and back.

What a flag takes and means is told by the field: its type, its value in each preset,
and what stands beside it in the source, behind what `glossary` says of its name.
To ask a configuration for these its module is imported, with all that computes, which
takes seconds. They are therefore kept beside the bytecode.
"""

import argparse
import ast
import dataclasses
import importlib.util
import json
import pathlib
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from cfljax.base import fault_of
from cfljax.command import Parser, integer, number, shown
from experiments import kept
from experiments.glossary import MEANINGS
from experiments.registry import PRESETS, Entry

_KINDS: dict[str, Callable[[str], Any]] = {
    "int": integer,
    "float": number,
    "number": lambda text: number(text) if re.search("[.enEN]", text) else int(text),
    "str": str,
    "path": pathlib.Path,
}
_UNITS = {"int": "N", "float": "X", "number": "X", "str": "TEXT", "path": "FOLDER"}
_LONGEST_LIST = 6  # Values that a flag's line shows; longer lists are cut.


class Field(NamedTuple):
    """A field of a configuration, as a flag takes it.

    kind: of a single value, a key of `_KINDS`, or "bool".
    count: how many values; 0 for any number of them, -1 for one that is no tuple.
    choices: all values that there are; None if there are others.
    optional: whether it may be None.
    meaning: what it is, for people.
    presets: its value by the name of a preset, as JSON has it.
    """

    name: str
    kind: str
    count: int
    choices: list[Any] | None
    optional: bool
    meaning: str
    presets: dict[str, Any]

    @property
    def flag(self) -> str:
        """As it is typed."""
        return _flag(self.name)

    @property
    def is_size(self) -> bool:
        """Whether it says how large or how many."""
        counts = self.kind == "int" and self.name != "seed"
        return counts and re.search("(^|_)(seed|index)$", self.name) is None


def fields_of(entry: Entry) -> tuple[Field, ...]:
    """The fields of an experiment's configuration, in its own order."""
    name = f"flags.{entry.id or 'compare'}"
    return tuple(Field(*row) for row in kept.remembered(name, lambda: _imported(entry)))


def _imported(entry: Entry) -> list[Field]:
    """The fields, of a module that is imported for them."""
    module = entry.load()
    configs = {name: module.preset(name) for name in PRESETS}
    kind = type(configs[PRESETS[0]])
    hints, said = typing.get_type_hints(kind), _comments(kind)
    values = {
        n: json.loads(_as_json(dataclasses.asdict(c))) for n, c in configs.items()
    }
    return [
        Field(
            field.name,
            *_read_type(hints[field.name], f"{kind.__name__}.{field.name}"),
            meaning(field.name, said.get(field.name, "")),
            {name: values[name][field.name] for name in PRESETS},
        )
        for field in dataclasses.fields(kind)
        if field.init
    ]


def meaning(name: str, said: str) -> str:
    """What a flag is: by its name, where that means the same everywhere, and what the
    source says of it."""
    usual, own = MEANINGS.get(name, ""), " ".join(said.split()).rstrip(".")
    own = re.sub("`([a-z_]+)`", lambda match: _flag(match[1]), own).replace("`", "")
    own = re.sub(r"\bNone\b", "none", own)
    if re.match("[A-Z][a-z]", own):  # A sentence's first letter, not a symbol.
        own = own[0].lower() + own[1:]
    return f"{usual} ({own})" if usual and own else usual or own


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _as_json(value: Any) -> str:
    return json.dumps(value, default=str)


def _read_type(hint: Any, where: str) -> tuple[str, int, list[Any] | None, bool]:
    """Kind, count, choices and whether None will do; of what a command line can say."""
    count, optional = -1, False
    inner = _members(hint)
    if type(None) in inner:
        optional = True
        inner = [one for one in inner if one is not type(None)]
    if len(inner) == 1 and typing.get_origin(inner[0]) is tuple:
        entries = typing.get_args(inner[0])
        is_open = entries[-1] is Ellipsis
        count = 0 if is_open else len(entries)
        inner = _members(entries[0])
        assert is_open or len(set(entries)) == 1, f"{where}: entries of several types"
    if len(inner) == 1 and typing.get_origin(inner[0]) is typing.Literal:
        choices = list(typing.get_args(inner[0]))
        return type(choices[0]).__name__, count, choices, optional
    names = {int: "int", float: "float", str: "str", bool: "bool", pathlib.Path: "path"}
    if set(inner) == {int, float}:
        return "number", count, None, optional
    assert len(inner) == 1 and inner[0] in names, f"{where}: no flag takes {hint}"
    return names[inner[0]], count, None, optional


def _members(hint: Any) -> list[Any]:
    """Of a union, or the type alone."""
    is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
    return list(typing.get_args(hint)) if is_union else [hint]


def _comments(kind: type) -> dict[str, str]:
    """What a class says of its fields: the text below a field, or the comment behind
    or above it."""
    spec = importlib.util.find_spec(kind.__module__)
    assert spec is not None and spec.origin is not None
    source = pathlib.Path(spec.origin).read_text("utf-8")
    lines = source.splitlines()
    body = next(
        node.body
        for node in ast.parse(source).body
        if isinstance(node, ast.ClassDef) and node.name == kind.__name__
    )
    found = {}
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            is_text = (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
            )
            if is_text:
                found[node.target.id] = after.value.value  # type: ignore[union-attr]
            else:
                found[node.target.id] = " ".join(_comment(lines, node))
    return found


def _comment(lines: Sequence[str], node: ast.stmt) -> Iterator[str]:
    """Lines of a comment above a statement, and the one behind it."""
    above = node.lineno - 2
    while lines[above].lstrip().startswith("#"):
        above -= 1
    for line in lines[above + 1 : node.lineno - 1]:
        yield line.strip().lstrip("# ")
    assert node.end_lineno is not None and node.end_col_offset is not None
    rest = lines[node.end_lineno - 1].encode()[node.end_col_offset :].decode()
    if rest.lstrip().startswith("#"):
        yield rest.strip().lstrip("# ")


def add_fields(parser: Parser, fields: Sequence[Field]) -> None:
    """Add a flag for every field; what is not typed is not in the namespace."""
    sizes = parser.add_argument_group("sizes of the experiment")
    others = parser.add_argument_group("what the experiment does")
    for field in fields:
        _add(sizes if field.is_size else others, field)


def _add(group: Any, field: Field) -> None:
    text = f"{field.meaning} [{_presets(field)}]".replace("%", "%%")
    usual: dict[str, Any] = {
        "dest": f"field.{field.name}",
        "default": argparse.SUPPRESS,
    }
    if field.kind == "bool":
        action = argparse.BooleanOptionalAction
        group.add_argument(field.flag, action=action, help=text, **usual)
        return
    if field.choices is not None:
        names = ", ".join(map(str, field.choices))
        text = (
            f"{text}; of: {names}" if field.count >= 0 else f"{text}; one of: {names}"
        )
    metavar = "NAME" if field.choices else _UNITS[field.kind]
    if field.count >= 0:
        usual["nargs"] = "*" if field.count == 0 or field.optional else field.count
    read = _reader(field)
    group.add_argument(field.flag, type=read, metavar=metavar, help=text, **usual)


def _reader(field: Field) -> Callable[[str], Any]:
    """Reads one value of a field."""

    def read(text: str) -> Any:
        if field.optional and text.lower() == "none":
            return None
        if field.choices is None:
            value = _KINDS[field.kind](text)
            if fault := fault_of(field.name, value):
                raise argparse.ArgumentTypeError(fault.rstrip("."))
            return value
        named = {str(choice): choice for choice in field.choices}
        if text not in named:
            raise argparse.ArgumentTypeError(
                f"invalid choice {shown(text)}; choose from {', '.join(named)}"
            )
        return named[text]

    return read


def _presets(field: Field) -> str:
    """The values of both presets, once if they are the same."""
    texts = {name: _shown(field, value) for name, value in field.presets.items()}
    if len(set(texts.values())) == 1:
        return f"default: {next(iter(texts.values()))}"
    return "; ".join(f"{name}: {text}" for name, text in texts.items())


def _shown(field: Field, value: Any) -> str:
    """A value as it is typed."""
    if value is None:
        return "none"
    if not isinstance(value, list):
        return {"True": "yes", "False": "no"}.get(str(value), str(value)) or "empty"
    if not value:
        return "empty"
    if field.choices is not None and value == field.choices:
        return "all"
    cut = value[:_LONGEST_LIST]
    more = f" and {len(value) - len(cut)} more" if len(cut) < len(value) else ""
    return " ".join(map(str, cut)) + more


def typed_fields(
    arguments: argparse.Namespace, fields: Sequence[Field]
) -> dict[str, Any]:
    """The fields that were typed, by name, as a configuration takes them."""
    found = {}
    for field in fields:
        key = f"field.{field.name}"
        if key in arguments:
            value = getattr(arguments, key)
            found[field.name] = _as_tuple(field, value)
    return found


def _as_tuple(field: Field, value: Any) -> Any:
    """A value as a configuration holds it; ValueError for as many as it cannot."""
    if not isinstance(value, list):
        return value
    if field.optional and value == [None]:
        return None
    if None in value:
        raise ValueError(f"`{field.flag}` must be none alone, or values without it.")
    if field.count > 0 and len(value) != field.count:
        raise ValueError(
            f"`{field.flag}` takes {field.count} values, got {len(value)}."
        )
    return tuple(value)


def read_fields(
    document: Mapping[str, Any], fields: Sequence[Field], where: str
) -> dict[str, Any]:
    """Fields of a configuration that was written as JSON, as it takes them.

    Raises:
      ValueError: if a value is none that the field can have.
    """
    found = {}
    for field in fields:
        if field.name not in document:
            continue
        given = document[field.name]
        try:
            found[field.name] = _from_json(field, given)
        except (ValueError, argparse.ArgumentTypeError) as error:
            raise ValueError(f"{where}: `{field.name}`: {error}") from None
    return found


def _from_json(field: Field, given: Any) -> Any:
    """A value of JSON, held to the same rules as a typed one."""
    if given is None and field.optional:
        return None
    if field.kind == "bool":
        if not isinstance(given, bool):
            raise ValueError(f"must be true or false, got {given!r}.")
        return given
    if isinstance(given, list) != (field.count >= 0):
        raise ValueError(f"must be {'a list' if field.count >= 0 else 'one value'}.")
    words = given if isinstance(given, list) else [given]
    if any(isinstance(word, (bool, list, dict)) or word is None for word in words):
        raise ValueError(f"cannot be {json.dumps(given)}.")
    read = [_reader(field)(str(word)) for word in words]
    return _as_tuple(field, read) if field.count >= 0 else read[0]
