"""Who may import whom, and who may compile: read from the source, nothing is run.

The picture of the rooms:

    base <- clustering <- federated <- algorithms, engine, montecarlo
    base <- losses <- models
    base, clustering <- data, metrics, law, attacks
    metrics <- engine
    cores <- engine, and the front door, before anything of JAX
    intervals <- report <- statements       base <- statements
    command <- theory, experiments
    cfljax <- theory <- experiments <- applications, and the program `cfljax`
"""

import ast
import functools
import pathlib
from collections.abc import Iterable, Iterator

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGES = ("cfljax", "theory", "experiments")

# Rooms that each room may enter beside itself. Whoever is not named enters none.
ALLOWED: dict[str, set[str]] = {
    "cfljax.base": set(),
    "cfljax.clustering": {"cfljax.base"},
    "cfljax.federated": {"cfljax.base", "cfljax.clustering"},
    "cfljax.algorithms": {
        "cfljax.base",
        "cfljax.cards",
        "cfljax.clustering",
        "cfljax.federated",
    },
    "cfljax.cards": set(),
    "cfljax.losses": {"cfljax.base"},
    "cfljax.models": {"cfljax.base", "cfljax.losses", "cfljax.federated"},
    "cfljax.metrics": {"cfljax.base", "cfljax.clustering"},
    "cfljax.data": {"cfljax.base", "cfljax.clustering"},
    "cfljax.law": {"cfljax.base"},
    "cfljax.cores": set(),
    "cfljax.command": set(),
    # Not of the library: what a shell calls, above everything else.
    "cfljax.applications": {"theory", "experiments"},
    "cfljax.__main__": {
        "cfljax.applications",
        "cfljax.command",
        "theory",
        "experiments",
    },
    "cfljax.engine": {
        "cfljax.base",
        "cfljax.cores",
        "cfljax.federated",
        "cfljax.metrics",
    },
    "cfljax.montecarlo": {"cfljax.base", "cfljax.federated", "cfljax.data"},
    "cfljax.attacks": {"cfljax.base"},
    "cfljax.intervals": {"cfljax.base"},
    "cfljax.report": {"cfljax.base", "cfljax.intervals"},
    "cfljax.statements": {"cfljax.base", "cfljax.intervals", "cfljax.report"},
    "theory": {"cfljax"},
    "experiments": {"cfljax", "theory"},
}
TOP = ("cfljax.applications", "cfljax.__main__")  # Which nobody else enters.
COMPILERS = ("cfljax.engine", "cfljax.law", "cfljax.montecarlo", "experiments.bench")

Edge = tuple[str, str]


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def room(module: str) -> str:
    """The room a module is in: `cfljax.federated`, `theory`, `torch` ..."""
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == "cfljax" else parts[0]


def is_forbidden(module: str, imported: str) -> bool:
    """Whether the project's module must not import another one."""
    if within(imported, "torch"):
        return not within(module, "experiments.bench")
    here, there = room(module), room(imported)
    if there.split(".")[0] not in PACKAGES or there == "cfljax" == imported:
        return False  # Foreign, or the bare package with its version.
    if there in TOP and here not in TOP:
        return True
    if here == "cfljax":
        return there.split(".")[0] != "cfljax"
    if here == there == "cfljax.algorithms":
        return module != here  # Only the registry sees the algorithms.
    allowed = ALLOWED.get(here, set()) | {here}
    return not any(within(there, entered) for entered in allowed)


def forbidden(edges: Iterable[Edge]) -> list[Edge]:
    """The edges (module, imported) that break a rule."""
    return [edge for edge in edges if is_forbidden(*edge)]


@functools.cache
def sources() -> dict[str, tuple[ast.Module, bool]]:
    """Every module of the project: its tree, and whether it is a package."""
    found = {}
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            parts = path.relative_to(ROOT).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            name = ".".join(parts[:-1] if is_package else parts)
            found[name] = (ast.parse(path.read_text()), is_package)
    return found


def imports(
    name: str, tree: ast.AST, is_package: bool, known: Iterable[str]
) -> Iterator[str]:
    """Modules that a module imports anywhere, relative names resolved."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = name.split(".")[: None if is_package else -1]
                above = above[: len(above) - node.level + 1]
                base = ".".join([*above, base] if base else above)
            for alias in node.names:
                inner = f"{base}.{alias.name}"
                yield inner if inner in known else base


def compilations(tree: ast.AST) -> list[str]:
    """Uses of a compiler: `jit` and `pmap` by any name, `lower` with arguments."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in ("jit", "pmap"):
            found.append(ast.unparse(node))
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names} & {"jit", "pmap"}
            found.extend(f"from {node.module} import {name}" for name in sorted(names))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "lower"
            and (node.args or node.keywords)  # A text's own `lower` takes none.
        ):
            found.append(ast.unparse(node))
    return found


def eager_imports(tree: ast.Module, package: str) -> bool:
    """Whether importing the module imports the package, outside every function."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if any(within(name, package) for name in imports("", _alone(node), False, ())):
            return True
        waiting.extend(ast.iter_child_nodes(node))
    return False


def _alone(node: ast.AST) -> ast.AST:
    """The node if it is an import, else an empty module."""
    is_import = isinstance(node, ast.Import | ast.ImportFrom)
    return node if is_import else ast.Module([], [])


def test_no_forbidden_edge():
    known = sources()
    edges = [
        (name, imported)
        for name, (tree, is_package) in known.items()
        for imported in imports(name, tree, is_package, known)
    ]
    assert ("cfljax.metrics", "cfljax.clustering.distances") in edges
    assert forbidden(edges) == []


def test_every_room_is_in_the_picture():
    rooms = {room(name) for name in sources()} - {"cfljax"}
    assert rooms <= set(ALLOWED), "add the new room to ALLOWED, with what it may enter"


@pytest.mark.parametrize(
    "module, imported",
    [
        ("cfljax.base.types", "cfljax.federated"),
        ("cfljax.federated.average", "cfljax.algorithms.ifca"),
        ("cfljax.algorithms.ifca", "cfljax.algorithms.fedavg"),
        ("cfljax.algorithms.ifca", "cfljax.algorithms"),
        ("cfljax.algorithms.ifca", "cfljax.engine.runs"),
        ("cfljax.algorithms", "cfljax.data"),
        ("cfljax.losses", "cfljax.federated"),
        ("cfljax.models.linear_regression", "cfljax.data.synthetic"),
        ("cfljax.metrics", "cfljax.report"),
        ("cfljax.engine.runs", "cfljax.law"),
        ("cfljax.engine.runs", "cfljax.algorithms.ifca"),
        ("cfljax.intervals", "cfljax.federated.average"),
        ("cfljax.report.figures", "cfljax.metrics"),
        ("cfljax.report.figures", "theory.registry"),
        ("cfljax.report.figures", "cfljax.statements.evaluation"),
        ("cfljax.statements.judges", "cfljax.law"),
        ("cfljax", "theory"),
        ("cfljax.command", "experiments.registry"),
        ("cfljax.command", "cfljax.base"),
        ("cfljax.engine.runs", "cfljax.applications"),
        ("experiments.ifca", "cfljax.__main__"),
        ("cfljax.law.gaussian", "experiments.ifca"),
        ("cfljax.new_room", "cfljax.base.types"),
        ("theory.registry", "experiments.ifca"),
        ("theory.registry", "torch"),
        ("experiments.ifca.fig3", "torch.nn"),
        ("cfljax.base.tree", "torch"),
    ],
)
def test_forbidden_edges_are_reported(module, imported):
    """Control: an edge against the rules does not pass."""
    good = ("cfljax.algorithms.ifca", "cfljax.federated.average")
    assert forbidden([good, (module, imported)]) == [(module, imported)]


@pytest.mark.parametrize(
    "module, imported",
    [
        ("cfljax.algorithms", "cfljax.algorithms.ifca"),
        ("cfljax.federated.average", "cfljax.base.tree"),
        ("cfljax.engine.sweeps", "cfljax.engine.store"),
        ("cfljax.report.figures", "cfljax.intervals"),
        ("cfljax.statements.drawing", "cfljax.report"),
        ("cfljax.engine.store", "cfljax"),
        ("theory.ifca.lemma1", "cfljax.law"),
        ("experiments.ifca.fig3", "theory.registry"),
        ("experiments.bench.torch_loop", "torch"),
        ("cfljax.base.types", "jax.numpy"),
        ("cfljax.base.types", "torchvision_is_not_torch"),
    ],
)
def test_allowed_edges_pass(module, imported):
    assert forbidden([(module, imported)]) == []


def test_imports_are_found_however_they_are_written():
    """Control: no way of writing an import escapes the reader."""
    source = (
        "import theory.registry as r\n"
        "from . import fedavg\n"
        "from .. import engine\n"
        "from ..data.images import load\n"
        "def f():\n    from cfljax import federated\n"
    )
    known = {"cfljax.algorithms.fedavg", "cfljax.engine", "cfljax.federated"}
    tree = ast.parse(source)
    found = set(imports("cfljax.algorithms.ifca", tree, False, known))
    assert found == known | {"theory.registry", "cfljax.data.images"}


def test_only_engine_and_law_compile():
    found = {
        name: compilations(tree)
        for name, (tree, _) in sources().items()
        if not any(within(name, compiler) for compiler in COMPILERS)
    }
    assert {name: uses for name, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import jax\n@jax.jit\ndef f(): ...",
        "from jax import jit",
        "from flax import nnx\nnnx.jit(f)",
        "import functools, jax\nfunctools.partial(jax.jit, static_argnums=0)",
        "f.lower(x).compile()",
    ],
)
def test_compilations_are_seen(source):
    """Control: every way to compile is found, and a text's `lower` is not one."""
    assert compilations(ast.parse(source))
    assert not compilations(ast.parse("name.lower()"))


@pytest.mark.long
def test_tensorflow_datasets_is_imported_late_and_only_by_data():
    package = "tensorflow_datasets"
    for name, (tree, is_package) in sources().items():
        if any(within(i, package) for i in imports(name, tree, is_package, ())):
            assert within(name, "cfljax.data"), f"{name} must not import {package}"
            assert not eager_imports(tree, package), f"{name} must import it late"


def test_early_imports_are_seen():
    """Control: an import at the top is early, one inside a function is not."""
    early = "if True:\n    import tensorflow_datasets as tfds"
    late = "def load():\n    import tensorflow_datasets as tfds"
    assert eager_imports(ast.parse(early), "tensorflow_datasets")
    assert not eager_imports(ast.parse(late), "tensorflow_datasets")
