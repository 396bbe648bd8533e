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
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax

# Modules that carry numbers to and fro and compute none; they may change at any time.
_CARRIERS = (
    *("cfljax.cards", "cfljax.cores", "cfljax.report"),
    *("cfljax.engine.cache", "cfljax.engine.claims", "cfljax.engine.kept"),
    *("cfljax.engine.progress", "cfljax.engine.provenance", "cfljax.engine.sources"),
    *("cfljax.engine.store", "cfljax.engine.sweeps"),
)
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
    return {"modules": dict(_modules(function.__module__)), "settings": _settings()}


def _settings() -> dict[str, str]:
    config: Any = jax.config
    flags = os.environ.get("XLA_FLAGS", "").split()
    return {
        # What the digests of modules are made of depends on it.
        "python": ".".join(platform.python_version_tuple()[:2]),
        "jax": importlib.metadata.version("jax"),
        "jaxlib": importlib.metadata.version("jaxlib"),
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
        tree = ast.parse(path.read_bytes())
        waiting += sorted(set(_imports(tree, name, path.name == "__init__.py")))
        found[name] = _digest(tree)
    return tuple(sorted(found.items()))


@functools.cache
def _own_file(name: str) -> pathlib.Path | None:
    """The source of a module that is somebody's own: not built in, not installed."""
    if name == "__main__":
        file = getattr(sys.modules[name], "__file__", None)
    else:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return None
        file = spec.origin if spec is not None and spec.has_location else None
    if file is None or not file.endswith(".py"):
        return None
    path = pathlib.Path(file)
    is_installed = {"site-packages", "dist-packages"} & set(path.parts)
    is_ours = name.split(".")[0] in ("cfljax", "experiments", "theory")
    in_python = path.is_relative_to(pathlib.Path(os.__file__).parent)
    return path if is_ours or not (is_installed or in_python) else None


def _imports(tree: ast.Module, name: str, is_package: bool) -> Iterator[str]:
    """Modules that a module may import. Of a room that is lazy, see its stub, those
    that hold what is taken out of it."""
    rooms: dict[str, str] = {}  # By the names that they have here.
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name
                top = alias.name.split(".")[0]
                rooms[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".")
            up = node.level - is_package if node.level else len(parts)
            base = parts[: len(parts) - up] if node.level else []
            source = ".".join([*base, *filter(None, [node.module])])
            for alias in node.names:
                held = _stub(source).get(alias.name, f"{source}.{alias.name}")
                yield from (source, held)
                rooms[alias.asname or alias.name] = held
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (held := _taken(node, rooms)):
            yield held


def _taken(node: ast.expr, rooms: Mapping[str, str]) -> str | None:
    """The module that an expression `room.name` or `room.room.name` means or takes
    something from, if any does; by the names that rooms have."""
    if isinstance(node, ast.Name):
        return rooms.get(node.id)
    if not isinstance(node, ast.Attribute) or not (room := _taken(node.value, rooms)):
        return None
    if _own_file(room) is None:
        return None
    inner = f"{room}.{node.attr}"
    return _stub(room).get(node.attr, inner if _own_file(inner) else None)


@functools.cache
def _stub(name: str) -> Mapping[str, str]:
    """What a lazy room offers, and the module that has it; nothing of other modules."""
    path = _own_file(name)
    if path is None or not (stub := path.with_suffix(".pyi")).exists():
        return {}
    return {
        alias.name: f"{name}.{node.module or alias.name}"
        for node in ast.parse(stub.read_bytes()).body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }


def _digest(tree: ast.Module) -> str:
    """Of what is executed: layout, comments and docstrings do not count."""
    for node in ast.walk(tree):
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
