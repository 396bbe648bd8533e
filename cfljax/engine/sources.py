"""What numbers depend on besides their fields: source code, packages and flags."""

import ast
import functools
import hashlib
import importlib.metadata
import importlib.util
import inspect
import os
import pathlib
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

# Modules that carry numbers to and fro and compute none; they may change at any time.
_CARRIERS = (
    *("cfljax.base.durable", "cfljax.base.sealed", "cfljax.base.unpacking"),
    *("cfljax.cards", "cfljax.cores", "cfljax.report"),
    *("cfljax.engine.cache", "cfljax.engine.claims", "cfljax.engine.kept"),
    *("cfljax.engine.objects", "cfljax.engine.processes", "cfljax.engine.progress"),
    "cfljax.engine.provenance",
    *("cfljax.engine.sources", "cfljax.engine.store", "cfljax.engine.sweeps"),
    *("cfljax.engine.upkeep", "cfljax.engine.ways"),
)
_PACKAGES = ("jax", "jaxlib", "flax", "numpy", "optax")  # Whose versions matter.
# Flags of XLA, by how they begin, that change no number.
_HARMLESS = (
    *("--xla_force_host_platform_device_count", "--xla_dump", "--xla_hlo_profile"),
    *("--xla_cpu_collective", "--xla_cpu_parallel_codegen_split_count"),
)


def describe(function: Callable[..., Any]) -> dict[str, dict[str, str]]:
    """What numbers of a function depend on that its arguments do not say.

    Returns:
      `modules`: of each module that the function's own one reaches by imports, and
        that is not installed from elsewhere, a digest of its code without comments and
        docstrings, by name; and `settings`: versions, random generator, precision and
        flags.

    Cost: reads and parses these modules once a process.
    """
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    return {"modules": dict(_modules(function.__module__)), "settings": settings()}


def module_digest(name: str, *, beside: Callable[..., Any]) -> str:
    """Of the code of a module that is found at run time, such as one that a command
    line names, and of what it reaches by imports, without comments and docstrings.

    Args:
      name: of the module, as it is imported.
      beside: a function; what its module reaches is described with it, and left out
        here.

    Cost: as of `describe`.
    """
    known = describe(beside)["modules"]
    own = [pair for pair in _modules(name) if pair[0] not in known]
    return hashlib.sha256(repr(own).encode()).hexdigest()[:12]


def settings() -> dict[str, str]:
    """Of this process, what changes numbers of the same code, by name: versions, random
    generator, precision and flags.

    Cost: brings up JAX's backend, if nothing has done so.
    """
    config: Any = jax.config
    flags = os.environ.get("XLA_FLAGS", "").split()
    return {
        # What the digests of modules are made of depends on it.
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
        "backend": jax.default_backend(),
        "x64": str(config.jax_enable_x64),
        "matmul_precision": str(config.jax_default_matmul_precision),
        "generator": str(config.jax_default_prng_impl),
        "threefry_partitionable": str(config.jax_threefry_partitionable),
        "xla_flags": " ".join(sorted(f for f in flags if not f.startswith(_HARMLESS))),
    }


@functools.cache
def _modules(first: str) -> tuple[tuple[str, str], ...]:
    """Names and digests of modules that one of them reaches, in order."""
    found: dict[str, str] = {}
    waiting = [first]
    while waiting:
        name = waiting.pop()
        if name in found or name.startswith(_CARRIERS):
            continue
        if (path := _own_file(name)) is None:
            continue
        tree = _parsed(path)
        nodes = list(ast.walk(tree))
        waiting += sorted(set(_imports(nodes, name, path.name == "__init__.py")))
        found[name] = _digest(tree, nodes)
    return tuple(sorted(found.items()))


@functools.cache
def _own_file(name: str) -> pathlib.Path | None:
    """The source of a module that is somebody's own: not built in, not installed."""
    if name == "__main__":
        file = getattr(sys.modules[name], "__file__", None)
    elif not _is_own(name.split(".")[0]):
        return None  # Before anything of it is imported.
    else:
        try:
            spec = importlib.util.find_spec(name)
        except Exception:  # What it is in is run by that, and may raise anything.
            return None
        file = spec.origin if spec is not None and spec.has_location else None
    return pathlib.Path(file) if file is not None and file.endswith(".py") else None


@functools.cache
def _is_own(package: str) -> bool:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return False
    if spec is None or package in ("cfljax", "experiments", "theory"):
        return spec is not None
    places = [spec.origin] if spec.has_location else spec.submodule_search_locations
    paths = [pathlib.Path(place) for place in places or () if place]
    return bool(paths) and not any(map(_is_installed, paths))


def _is_installed(path: pathlib.Path) -> bool:
    """Whether a package or module came with Python, or lies where packages are put."""
    if path.is_relative_to(pathlib.Path(os.__file__).parent):
        return True
    if {"site-packages", "dist-packages"} & set(path.parts):
        return True
    package = path.parent if path.name == "__init__.py" else path
    return any(package.parent.glob("*.dist-info"))  # As by `pip install --target`.


def _imports(nodes: Sequence[ast.AST], name: str, is_package: bool) -> Iterator[str]:
    """Modules that a module may import. Of a room that only passes on what is taken out
    of it, those that have it."""
    rooms: dict[str, str] = {}  # Modules, by the names that they have here.
    for node in nodes:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                top = alias.name.split(".")[0]
                rooms[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            source = _source(node, name, is_package)
            for alias in node.names:
                held = rooms[alias.asname or alias.name] = _held(source, alias.name)
                yield held
    for node in nodes:
        if isinstance(node, ast.Attribute) and (held := _taken(node, rooms)):
            yield held


def _source(node: ast.ImportFrom, name: str, is_package: bool) -> str:
    """The module that an import of a module takes something from."""
    parts = name.split(".")
    base = parts[: len(parts) - node.level + is_package] if node.level else []
    return ".".join([*base, *filter(None, [node.module])])


def _taken(node: ast.expr, rooms: Mapping[str, str]) -> str | None:
    """The module that an expression `room.name` or `room.room.name` takes something
    from, unless that is the first room; by the names that rooms have."""
    if isinstance(node, ast.Name):
        return rooms.get(node.id)
    if not isinstance(node, ast.Attribute) or not (room := _taken(node.value, rooms)):
        return None
    if _own_file(room) is None:
        return None
    held = _held(room, node.attr)
    return None if held == room else held


def _held(room: str, name: str) -> str:
    """The module that a name of a module means, or else is defined in."""
    seen = set()
    while name in _offers(room) and (room, name) not in seen:
        seen.add((room, name))
        room, name = _offers(room)[name]
    inner = f"{room}.{name}"
    return inner if _own_file(inner) else room


@functools.cache
def _offers(room: str) -> Mapping[str, tuple[str, str]]:
    """What a package passes on, by its stub if it is lazy: whose it is, and its name
    there; nothing of other modules."""
    path = _own_file(room)
    if path is None or path.name != "__init__.py":
        return {}
    stub = path.with_suffix(".pyi")
    return {
        alias.asname or alias.name: (_source(node, room, True), alias.name)
        for node in _parsed(stub if stub.exists() else path).body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


# Python 3.11 counts the depth of all threads that parse together, and raises.
_PARSING = threading.Lock()


def _parsed(path: pathlib.Path) -> ast.Module:
    with _PARSING:
        return ast.parse(path.read_bytes())


def _digest(tree: ast.Module, nodes: Sequence[ast.AST]) -> str:
    """Of what is executed: layout, comments and docstrings do not count."""
    for node in nodes:
        kinds = ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef
        if isinstance(node, kinds) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                node.body = node.body[1:] or [ast.Pass()]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:12]


def differences(there: Any, here: Any) -> list[str]:
    """Which modules and settings differ, for people."""
    found = []
    for kind in ("settings", "modules"):
        old, new = there[kind], here[kind]
        for name in sorted({*old, *new}):
            if old.get(name) != new.get(name):
                values = f" ({old.get(name)}, here {new.get(name)})"
                found.append(name + (values if kind == "settings" else ""))
    return found
