"""Habits of the house: read from the sources, nothing of the project is run.

A shared module serves at least two others, applications enter the library by its front
door, a room says what it offers in one place, what is public is documented and
annotated, and a file has one subject.
"""

import ast
import functools
import pathlib
import subprocess
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("cfljax", "theory", "experiments")
SHARED = ("base", "federated", "clustering")  # Rooms of the library that others serve.
APPLICATIONS = ("theory", "experiments")
LONG = 900  # Lines, above which a file may have two subjects.
MAX_README = 119
MAX_LINES_BEFORE_PYTHON = 34

Function = ast.FunctionDef | ast.AsyncFunctionDef
Sources = Mapping[str, ast.Module]


@functools.cache
def sources() -> Sources:
    """Every file of the project's packages, by its name as a path."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            found[name] = ast.parse(path.read_text())
    return found


def dotted(path: str) -> str:
    """The module of a file."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def imported(tree: ast.AST) -> Iterator[str]:
    """Modules, and names in modules, that a file imports anywhere."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def lonely(files: Sources) -> list[str]:
    """Shared modules that fewer than two others import; re-exports do not count."""
    users: dict[str, set[str]] = {}
    for path, tree in files.items():
        if not path.endswith("__init__.py"):
            for name in imported(tree):
                users.setdefault(name, set()).add(path)
    return [
        f"{path}: used by {', '.join(sorted(users.get(dotted(path), ()))) or 'nobody'}"
        for path in files
        if path.startswith(tuple(f"cfljax/{room}/" for room in SHARED))
        and not path.endswith("__init__.py")
        and len(users.get(dotted(path), set()) - {path}) < 2
    ]


def inner(files: Sources, rooms: Iterable[str]) -> list[str]:
    """Imports by applications from behind the library's rooms."""
    allowed = {"cfljax", *(f"cfljax.{room}" for room in rooms)}
    return [
        f"{path}: {node.module}"
        for path, tree in files.items()
        if path.split("/")[0] in APPLICATIONS
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] == "cfljax"
        and node.module not in allowed
    ]


def second_lists(files: Sources) -> list[str]:
    """Modules behind a room's face that list again what it offers."""
    return [
        path
        for path, tree in files.items()
        if not path.endswith("__init__.py")
        and (path.startswith(APPLICATIONS) or path.count("/") > 1)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and any(isinstance(t, ast.Name) and t.id == "__all__" for t in node.targets)
    ]


def public(body: list[ast.stmt]) -> Iterator[Function | ast.ClassDef]:
    """Public functions and classes, and public methods of public classes."""
    for node in body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public(node.body)


def unannotated(function: Function) -> list[str]:
    """Names of arguments without an annotation; `self` and `cls` need none."""
    every = function.args
    arguments = [*every.posonlyargs, *every.args, *every.kwonlyargs]
    arguments += [a for a in (every.vararg, every.kwarg) if a is not None]
    bare = [a.arg for a in arguments if a.annotation is None]
    return [name for name in bare if name not in ("self", "cls")]


def library_faults(tree: ast.Module) -> list[str]:
    """What a module of the library lacks."""
    found = [] if ast.get_docstring(tree) else ["no module docstring"]
    for node in public(tree.body):
        if not ast.get_docstring(node):
            found.append(f"{node.name}: no docstring")
        if isinstance(node, Function):
            found += [f"{node.name}: `{a}` not annotated" for a in unannotated(node)]
            if node.returns is None:
                found.append(f"{node.name}: result not annotated")
    return found


def readme_faults(text: str) -> list[str]:
    """A README that is too long, or shows its first Python too late."""
    lines = text.splitlines()
    found = []
    if len(lines) > MAX_README:
        found.append(f"{len(lines)} lines, at most {MAX_README}")
    if "```python" not in [line.strip() for line in lines[:MAX_LINES_BEFORE_PYTHON]]:
        found.append(f"no Python block in the first {MAX_LINES_BEFORE_PYTHON} lines")
    return found


def rooms() -> list[str]:
    """Rooms that the library's front door names."""
    stub = ast.parse((ROOT / "cfljax" / "__init__.pyi").read_text())
    return [
        alias.name
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module is None
        for alias in node.names
    ]


def test_a_shared_module_has_at_least_two_users():
    assert lonely(sources()) == []


def test_applications_enter_by_the_rooms():
    assert inner(sources(), rooms()) == []


def test_a_room_says_in_its_face_alone_what_it_offers():
    assert second_lists(sources()) == []


def test_the_library_is_documented_and_annotated():
    library = {name: tree for name, tree in sources().items() if "cfljax/" in name}
    faults = {name: library_faults(tree) for name, tree in library.items()}
    assert {name: found for name, found in faults.items() if found} == {}


def test_readme_is_short_and_starts_with_code():
    assert readme_faults((ROOT / "README.md").read_text()) == []


@pytest.mark.filterwarnings("default")
def test_long_files_are_warned_of():
    """A long file is a smell, not a fault."""
    for folder in (*PACKAGES, "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            lines = path.read_text().count("\n")
            if lines > LONG:
                name = path.relative_to(ROOT)
                warnings.warn(
                    f"{name}: {lines} lines: still one subject?", stacklevel=1
                )


def test_lonely_modules_are_seen():
    """Control: one user is too few, and a re-export is none."""
    files = {
        "cfljax/base/tree.py": "x = 1",
        "cfljax/base/__init__.py": "from cfljax.base.tree import x",
        "cfljax/algorithms/ifca.py": "from cfljax.base import tree",
    }
    parse = lambda: {name: ast.parse(text) for name, text in files.items()}
    assert len(lonely(parse())) == 1 and "ifca.py" in lonely(parse())[0]
    files["theory/x.py"] = "def f():\n    from cfljax.base.tree import x"
    assert lonely(parse()) == []


def test_inner_imports_are_seen():
    """Control: a room may be entered, what is behind it may not."""
    good = (
        "import cfljax as cfl\nfrom cfljax import engine\nfrom cfljax.engine import run"
    )
    files = {"theory/x.py": good, "cfljax/data/y.py": "from cfljax.base.tree import x"}
    parse = lambda: {name: ast.parse(text) for name, text in files.items()}
    assert inner(parse(), ["engine"]) == []
    files["experiments/z.py"] = "from cfljax.engine.store import Store"
    assert inner(parse(), ["engine"]) == ["experiments/z.py: cfljax.engine.store"]


def test_second_lists_are_seen():
    """Control: behind a face they are, in one they are not."""
    listed = ast.parse("__all__ = []")
    faces = ("cfljax/metrics.py", "cfljax/law/__init__.py")
    assert second_lists(dict.fromkeys(faces, listed)) == []
    behind = ("cfljax/law/chi.py", "theory/rows.py")
    assert second_lists(dict.fromkeys(behind, listed)) == list(behind)


GOOD = '''"""Module."""
class C:
    """Class."""
    def method(self, x: int) -> int:
        """Method."""
def f(x: int, *rest: int, key: int = 0, **more: int) -> int:
    """Function."""
    def inner(y): ...
def _private(x): ...
'''


@pytest.mark.parametrize(
    "old, new, fault",
    [
        ('"""Module."""', "", "no module docstring"),
        ('"""Class."""', "...", "C: no docstring"),
        ('"""Method."""', "...", "method: no docstring"),
        ('"""Function."""', "", "f: no docstring"),
        ("self, x: int", "self, x", "method: `x` not annotated"),
        ("f(x: int", "f(x", "f: `x` not annotated"),
        ("*rest: int", "*rest", "f: `rest` not annotated"),
        ("key: int = 0", "key=0", "f: `key` not annotated"),
        ("**more: int)", "**more)", "f: `more` not annotated"),
        ("**more: int) -> int", "**more: int)", "f: result not annotated"),
    ],
)
def test_missing_documentation_is_seen(old, new, fault):
    """Control: each gap is reported, and only that one."""
    assert library_faults(ast.parse(GOOD)) == []
    assert library_faults(ast.parse(GOOD.replace(old, new))) == [fault]


def test_long_readme_is_seen():
    """Control: both faults of a README are reported."""
    start = ["text"] * (MAX_LINES_BEFORE_PYTHON - 1)
    rest = ["text"] * (MAX_README - MAX_LINES_BEFORE_PYTHON)
    good = "\n".join([*start, "```python", *rest])
    assert readme_faults(good) == []
    assert len(readme_faults("text\n" + good)) == 2


# The front door.

DOOR = """
import sys
import cfljax as cfl
assert not {"jax", "numpy", "scipy", "xarray"} & set(sys.modules), "imported at once"
missing = []
for name in dir(cfl):
    value = getattr(cfl, name)
    if name.isupper():
        continue  # Data, documented where it stands.
    if not (getattr(value, "__doc__", None) or "").strip():
        missing.append(name)
assert "jax" in sys.modules
print(",".join(missing))
"""


@pytest.mark.long
def test_the_front_door_is_instant_and_documented():
    """Every public name is there, with a docstring, and nothing before it is asked."""
    done = subprocess.run(
        [sys.executable, "-c", DOOR], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_the_front_door_has_every_algorithm():
    import cfljax
    from cfljax.algorithms import REGISTRY

    assert set(REGISTRY) <= set(dir(cfljax))
    assert {"run", "sweep", "Grid", "Task", "Algorithm"} <= set(dir(cfljax))
    assert {"ClientData", "Truth", "LocalUpdate", "statements"} <= set(dir(cfljax))
