"""Sizes, docstrings and annotations: read from the source, nothing is run."""

import ast
import pathlib
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
FILES = sorted(
    path
    for folder in ("cfljax", "theory", "experiments", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
LIBRARY = [path for path in FILES if path.is_relative_to(ROOT / "cfljax")]
MAX_FILE = 300
MAX_FUNCTION = 60
MAX_README = 99
MAX_LINES_BEFORE_PYTHON = 34

Function = ast.FunctionDef | ast.AsyncFunctionDef


def size_faults(source: str) -> list[str]:
    """A file that is too long and functions that are, docstrings left out."""
    lines = len(source.splitlines())
    found = [f"{lines} lines, at most {MAX_FILE}"] if lines > MAX_FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, Function):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            last = node.end_lineno or node.lineno
            length = last - body[0].lineno + 1 if body else 0
            if length > MAX_FUNCTION:
                found.append(f"{node.name}: {length} lines, at most {MAX_FUNCTION}")
    return found


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


def library_faults(source: str) -> list[str]:
    """What a module of the library lacks."""
    tree = ast.parse(source)
    found = [] if ast.get_docstring(tree) else ["no module docstring"]
    targets = [t for n in tree.body if isinstance(n, ast.Assign) for t in n.targets]
    listed = any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets)
    if len(tree.body) > 1 and not listed:  # A lone docstring has nothing to list.
        found.append("no `__all__`")
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


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_and_functions_are_short(path):
    assert size_faults(path.read_text()) == []


@pytest.mark.parametrize("path", LIBRARY, ids=lambda path: str(path.relative_to(ROOT)))
def test_library_is_documented_and_annotated(path):
    assert library_faults(path.read_text()) == []


def test_readme_is_short_and_starts_with_code():
    assert readme_faults((ROOT / "README.md").read_text()) == []


def test_long_files_and_functions_are_seen():
    """Control: one line above each limit is reported, the limit itself is not."""
    short = "\n".join(["x = 1"] * MAX_FILE)
    assert size_faults(short) == []
    assert size_faults(short + "\nx = 1") == ["301 lines, at most 300"]
    head = 'def f():\n    """Docstring.\n\n    Two more lines.\n    """\n'
    body = "    x = 1\n" * MAX_FUNCTION
    assert size_faults(head + body) == []
    assert size_faults(head + body + "    x = 1\n") == ["f: 61 lines, at most 60"]


GOOD = '''"""Module."""
__all__ = ["C", "f"]
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
        ('__all__ = ["C", "f"]', "", "no `__all__`"),
        ('"""Class."""', "...", "C: no docstring"),
        ('"""Method."""', "...", "method: no docstring"),
        ('"""Function."""', "", "f: no docstring"),
        ("self, x: int", "self, x", "method: `x` not annotated"),
        ("f(x: int", "f(x", "f: `x` not annotated"),
        ("*rest: int", "*rest", "f: `rest` not annotated"),
        ("key: int = 0", "key=0", "f: `key` not annotated"),
        ("**more: int", "**more", "f: `more` not annotated"),
        ("**more: int) -> int", "**more: int)", "f: result not annotated"),
    ],
)
def test_missing_documentation_is_seen(old, new, fault):
    """Control: each gap is reported, and only that one."""
    assert library_faults(GOOD) == []
    assert library_faults(GOOD.replace(old, new)) == [fault]


def test_long_readme_is_seen():
    """Control: both faults of a README are reported."""
    good = "\n".join(["text"] * 33 + ["```python"] + ["text"] * 65)
    assert readme_faults(good) == []
    assert len(readme_faults("text\n" + good)) == 2
