"""The reference of all public names, as the faces of the rooms list them."""

import dataclasses
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import cfljax
from pages.markdown import rendered


class Name(NamedTuple):
    """A public name where it is described."""

    name: str  # with its room
    directive: str  # of Sphinx
    options: tuple[str, ...] = ()


def sources(report: bool) -> Mapping[str, str]:
    """A page for the front door and one for each room.

    What several faces offer is described once: at the front door, or else in the first
    room in the order of the alphabet.
    """
    rooms = {
        name: value
        for name in dir(cfljax)
        if isinstance(value := getattr(cfljax, name), types.ModuleType)
    }
    door = [name for name in dir(cfljax) if name not in rooms]
    seen: dict[int, str] = {}
    own = [_described(cfljax, name, seen) for name in door]
    algorithms = [row for row in own if row and row.directive == "autofunction"]
    functions = set(cfljax.REGISTRY)
    pages = {}
    for room, module in rooms.items():
        names = _face(module)
        found = [_described(module, name, seen) for name in names]
        pages[f"api/{room}.md"] = rendered(
            "room.md",
            room=f"cfljax.{room}",
            described=[row for row in found if row],
            elsewhere={
                name: seen[id(getattr(module, name))]
                for name, row in zip(names, found, strict=True)
                if row is None
            },
        )
    short = lambda row: row.name.removeprefix("cfljax.")
    pages["api/index.md"] = rendered(
        "interface.md",
        rooms={name: _first_line(module) for name, module in rooms.items()},
        algorithms=[row for row in algorithms if short(row) in functions],
        others=[row for row in own if row and short(row) not in functions],
    )
    return pages


def _face(module: types.ModuleType) -> list[str]:
    """What a room offers, in the order of the alphabet."""
    return sorted(module.__all__)


def _described(
    module: types.ModuleType, name: str, seen: dict[int, str]
) -> Name | None:
    """How a name is described here; None if it is described elsewhere."""
    value = getattr(module, name)
    full = f"{module.__name__}.{name}"
    if _has_own_docstring(value):
        if id(value) in seen:
            return None
        seen[id(value)] = full
    return Name(full, _directive(value), tuple(_options(value, seen)))


def _options(value: Any, seen: Mapping[int, str]) -> Iterator[str]:
    """What Sphinx shall show of a name besides its docstring."""
    if isinstance(value, types.ModuleType):
        described = [n for n, inner in vars(value).items() if id(inner) in seen]
        yield "members:"
        if described:
            yield f"exclude-members: {', '.join(described)}"
    elif isinstance(value, type):
        yield "members:"
        fields = getattr(value, "_fields", ())
        if dataclasses.is_dataclass(value):
            fields = [field.name for field in dataclasses.fields(value)]
        if fields:  # The docstring tells of them.
            yield f"exclude-members: {', '.join(fields)}"
    elif _directive(value) == "autodata" and not isinstance(value, int | float | str):
        yield "no-value:"


def _has_own_docstring(value: Any) -> bool:
    return isinstance(value, type) or (callable(value) and not _is_alias(value))


def _is_alias(value: Any) -> bool:
    """Whether it is a type such as `Literal["a", "b"]`."""
    return type(value).__module__ in ("typing", "types", "jaxtyping._pytree_type")


def _directive(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return "automodule"
    if isinstance(value, type):
        return "autoexception" if issubclass(value, BaseException) else "autoclass"
    return "autofunction" if inspect.isroutine(inspect.unwrap(value)) else "autodata"


def _first_line(module: types.ModuleType) -> str:
    return (inspect.getdoc(module) or "").partition("\n\n")[0].replace("\n", " ")
