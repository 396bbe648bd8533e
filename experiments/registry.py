"""All experiments, by id, as the modules of this folder say themselves.

A new one is a module with `preset` and `main` that says what it is in a literal, which
is read from its source, so that nothing is imported before it is asked for:

    EXPERIMENTS = {"werner.fig2": {"title": "constants of Assumptions 4 and 5"}}

Keys are the fields of `Entry` with that meaning. Benchmarks are in `BENCHMARKS`, and
what `compare` runs is the one `COMPARISON`, of which no paper decides and which has a
`title` but no id. A module of several experiments has all of their ids, and a function
`load(id)` for what has the `preset` and `main` of each.
"""

import ast
import dataclasses
import functools
import importlib
import importlib.util
import pathlib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from cfljax.command import check_addresses
from experiments import kept
from experiments.kept import FOLDER

PRESETS = ("quick", "paper")
LITERALS = ("EXPERIMENTS", "BENCHMARKS", "COMPARISON")

# How ids begin, and whose tables and figures these are.
PAPERS = {
    "ifca": "IFCA (Ghosh et al., NeurIPS 2020)",
    "clove": "CLoVE",
    "reviews": "Questions of IFCA's reviewers",
    "werner": "Werner et al., TMLR 2023",
    "compare": "Beyond the papers",
}

# How ids begin, in the order of `list`; those that begin otherwise follow. Among equal
# ones, numbers count as numbers.
ORDER = (
    *("ifca.fig3", "ifca.table1_mnist", "ifca.table1", "ifca.fig4", "ifca."),
    *("clove.table", "clove.fig", "clove."),
    *("reviews.baselines", "reviews.crit", "reviews.idbatch", "reviews.tuning"),
    *("reviews.comm", "reviews.resample", "reviews.k", "reviews.largek"),
    *("reviews.init", "reviews.particip", "reviews.pool", "reviews."),
    *("werner.table", "werner.fig", "werner."),
    "compare.",
    *("linear", "fig3", "law", "clustering", "thresholding", "neural", "peers"),
    *("growth", "accelerator", "store"),
)


@dataclasses.dataclass(frozen=True)
class Entry:
    """One experiment, as its module says."""

    id: str  # its name; "" of the comparison
    module: str  # to import when the experiment is asked for
    title: str  # one line for `list`
    # Whether it spreads clients over devices; on a CPU every core is then made one.
    spreads_clients: bool = False
    # Whether all it computes is one sweep of independent trials, which can stop at a
    # precision, be shared by several workers, and spread its trials over devices.
    is_sweep: bool = False
    # Whether it has `jobs(config, options)`, see `jobs`, which workers can share.
    has_jobs: bool = False
    # Whether it keeps sweeps in a store, as those two do without saying so.
    has_sweeps: bool = False

    @property
    def uses_store(self) -> bool:
        """Whether it looks in a store for what is computed."""
        return self.is_sweep or self.has_jobs or self.has_sweeps

    def load(self) -> Any:
        """What has `preset(name) -> Config` and `main(config, options) -> summary`, a
        mapping with at least `headline` (text) and `files` (paths written).
        """
        check_addresses()
        module = importlib.import_module(self.module)
        load = getattr(module, "load", None)
        if load is None or load.__module__ != module.__name__:  # Of something else.
            return module
        return load(self.id)

    @property
    def takes_data(self) -> bool:
        """Whether it reads real data, which its module's header then says."""
        return re.search("--data FOLDER", _header(self.module)) is not None


@functools.cache
def _header(module: str) -> str:
    """The docstring of a module that need not be imported."""
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    source = pathlib.Path(spec.origin).read_text("utf-8")
    return ast.get_docstring(ast.parse(source)) or ""


EXPERIMENTS: Mapping[str, Entry]
BENCHMARKS: Mapping[str, Entry]
COMPARISON: Entry


def __getattr__(name: str) -> Any:
    """The three above, of this folder, read when the first of them is asked for."""
    if name not in LITERALS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _own()[LITERALS.index(name)]


@functools.cache
def _own() -> tuple[Mapping[str, Entry], Mapping[str, Entry], Entry]:
    rows = kept.remembered("registry", lambda: _as_json(*read(FOLDER)))
    experiments, benchmarks, comparison = (
        MappingProxyType({row["id"]: Entry(**row) for row in kind}) for kind in rows
    )
    return experiments, benchmarks, comparison[""]


def _as_json(
    experiments: Mapping[str, Entry], benchmarks: Mapping[str, Entry], comparison: Entry
) -> list[list[dict[str, Any]]]:
    """Fields of all entries, for `kept`."""
    every = (experiments.values(), benchmarks.values(), [comparison])
    return [[dataclasses.asdict(entry) for entry in kind] for kind in every]


def read(
    folder: pathlib.Path,
) -> tuple[Mapping[str, Entry], Mapping[str, Entry], Entry]:
    """The experiments and benchmarks by id, and the comparison, of a package's folder.

    Raises:
      ValueError: if a module cannot be read, what it says is not a literal, an id
        stands twice, or something is unknown or missing.
    """
    found: dict[str, dict[str, Entry]] = {name: {} for name in LITERALS}
    for path in sorted(folder.glob("*/**/*.py")):  # Not this file, nor those beside it.
        shown = path.relative_to(folder.parent)
        for literal, value in _literals(path, shown):
            rows = {"": value} if literal == "COMPARISON" else value
            if not isinstance(rows, dict):
                raise ValueError(f"`{literal}` of {shown} must be a dict by id.")
            for id, fields in rows.items():
                entry = _entry(id, fields, shown, f"`{literal}` of {shown}")
                other = found[literal].setdefault(id, entry)
                if other is not entry:
                    what = f"id {id!r}" if id else "the comparison"
                    raise ValueError(f"{what} is in {other.module} and {entry.module}.")
    experiments, benchmarks, comparison = map(_in_order, found.values())
    if not comparison:
        raise ValueError(f"no module in {folder.name} has `COMPARISON`.")
    return experiments, benchmarks, comparison[""]


def _literals(path: pathlib.Path, shown: pathlib.Path) -> Iterator[tuple[str, Any]]:
    """Names and values of a module's literals."""
    source = path.read_text("utf-8")
    if not any(name in source for name in LITERALS):
        return  # Most helpers; parsing takes longer than reading.
    try:
        statements = ast.parse(source).body
    except SyntaxError as error:
        raise ValueError(f"{shown}, line {error.lineno}: {error.msg}.") from error
    for statement in statements:
        if isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id in LITERALS:
                where = f"`{target.id}` of {shown}"
                try:
                    found = ast.literal_eval(value)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{where} must be a literal.") from error
                if isinstance(value, ast.Dict) and len(found) < len(value.keys):
                    raise ValueError(f"{where} has a key twice.")
                yield target.id, found


def _entry(id: Any, fields: Any, shown: pathlib.Path, where: str) -> Entry:
    """The entry of an id with the fields that its module gives it."""
    flags = ("spreads_clients", "is_sweep", "has_jobs", "has_sweeps")
    kinds = {"title": str} | dict.fromkeys(flags, bool)
    what = f"{where}: {id!r}" if id else where
    if not isinstance(id, str) or not isinstance(fields, dict):
        raise ValueError(f"{what} must be an id with a dict.")
    for name, value in fields.items():
        if name not in kinds:
            known = ", ".join(kinds)
            raise ValueError(f"{what} has an unknown key {name!r}; known: {known}.")
        if not isinstance(value, kinds[name]):
            kind = kinds[name].__name__
            raise ValueError(f"{what}: {name} must be a {kind}, got {value!r}.")
    if "title" not in fields:
        raise ValueError(f"{what} has no title.")
    module = ".".join(shown.with_suffix("").parts).removesuffix(".__init__")
    return Entry(id, module, **fields)


def _in_order(entries: Mapping[str, Entry]) -> Mapping[str, Entry]:
    """By `ORDER`."""
    return MappingProxyType({id: entries[id] for id in sorted(entries, key=_place)})


def _place(id: str) -> tuple[Any, ...]:
    """By what an id is sorted."""
    first = (place for place, start in enumerate(ORDER) if id.startswith(start))
    parts = re.split(r"(\d+)", id)  # Text and number by turns.
    natural = [int(part) if part.isdecimal() else part for part in parts]
    return next(first, len(ORDER)), natural
