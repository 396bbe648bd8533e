"""Files that are trusted, by who reads them: made, read again, and what may be harmed.

Each subject makes a folder of sound files, and says what whoever reads them makes of
them. Nothing here starts JAX when it is imported.
"""

import contextlib
import csv
import dataclasses
import functools
import gzip
import hashlib
import importlib
import json
import logging
import pathlib
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import test_data_text
import test_data_writers
import test_kept_outcomes
import test_ledger
import test_reliability
import toy_theory
from engine_trial import Trial, lose, plain_grid

import cfljax as cfl
from cfljax import base, data, engine
from cfljax.command import parse
from cfljax.data import images
from cfljax.engine import kept, upkeep
from cfljax.engine.claims import Claims
from cfljax.engine.provenance import Journal
from cfljax.engine.store import Store
from experiments import listing
from experiments.__main__ import PROGRAM
from experiments.arguments import configure
from experiments.gallery import folders
from experiments.ledger.write import write as write_ledger
from experiments.registry import EXPERIMENTS


class Use(NamedTuple):
    """What came of reading a folder.

    result: of it, to be compared; what is only told is left out.
    computed: how much was computed for that.
    said: warnings, and what a command says of files that are no use.
    """

    result: Any
    computed: int = 0
    said: str = ""


class Subject(NamedTuple):
    """Files that are read together.

    make: writes sound ones into a folder.
    use: reads them as their user does.
    kind: of a file by its name below the folder; None where it is not harmed.
    forms: how JSON is kept in files of a kind: "npz" or "sealed", under a digest;
      "json" or "lines", without; those not named have none.
    harmless: why a change that changes nothing is right, by kind.
    taken: why a change that is read as it stands is right, by kind.
    """

    make: Callable[[pathlib.Path], object]
    use: Callable[[pathlib.Path], Use]
    kind: Callable[[str], str | None]
    forms: Mapping[str, str] = {}
    harmless: Mapping[str, str] = {}
    taken: Mapping[str, str] = {}


TOLD = "it is told, and decides no number"
USERS = "a file of the user's own without a digest: what it says is what is asked for"


@contextlib.contextmanager
def _heard() -> Iterator[list[str]]:
    """What the library's log says meanwhile."""
    said: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())
    logger = logging.getLogger("cfljax")
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)


def _numbers(dataset: Any) -> dict[str, Any]:
    """Numbers, and what they stand at."""
    return {
        str(name): (own.dims, own.values.tobytes() if own.dtype.kind != "O" else own)
        for name, own in {**dataset.data_vars, **dataset.coords}.items()
    }


# A store, of which one block could not be computed: another run completes it


def _make_store(folder: pathlib.Path) -> None:
    store, grid = folder / "s", test_reliability.GRID
    test_reliability.finish(store)
    lose(store, grid, (1, 1, 1))
    Store(store, grid).fail((1, 1, 1))
    with Claims(store) as claims:
        try:
            raise RuntimeError("out of something")
        except RuntimeError as error:
            Journal(store, claims).record({"separation": 1.0}, error)


def _use_store(folder: pathlib.Path) -> Use:
    """Everybody reads it, then a sweep completes it, then all of it is read."""
    store, grid, count = folder / "s", test_reliability.GRID, []
    early = cfl.open_results(store)
    upkeep.holdings(store)
    upkeep.survey(store)
    engine.progress_of(store, grid)
    write = Store.write

    def counted(self: Store, *arguments: Any, **options: Any) -> None:
        count.append(arguments)
        write(self, *arguments, **options)

    with _heard() as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "write", counted)
        found = test_reliability.finish(store)
    late = cfl.open_results(store)
    for name in grid.dims:  # What is shown early is right, or is not there.
        both = early[name].broadcast_like(late[name]), late[name]
        one, other = (own.values for own in both)
        assert one.shape != other.shape or np.all(np.isnan(one) | (one == other))
    result = _numbers(found), _numbers(late), dict(found.attrs)
    return Use(result, len(count), " ".join(said))


def _kind_in_store(name: str) -> str | None:
    path = pathlib.PurePath(name)
    if path.parent.name == "states":
        return "state"
    kinds = {".npz": "block", ".failed": "mark", ".jsonl": "failures"}
    if path.parent.name == "code":
        return "code"
    return {"lock": "lock", "provenance.json": "provenance"}.get(
        path.name
    ) or kinds.get(path.suffix)


STORE = Subject(
    _make_store,
    _use_store,
    _kind_in_store,
    forms={
        "block": "npz",
        "code": "json",
        "provenance": "json",
        "failures": "lines",
    },
    harmless={
        "block": TOLD,
        "code": "its name is its digest; it is read only where code differs",
        "provenance": TOLD,
        "failures": TOLD,
        "lock": "it is empty, and only its being the same file counts",
        "mark": "that it is there is all it says; its block is computed either way",
    },
)


# Runs that go on: a checkpoint with the one before it, one alone, a state in a store


def _runs() -> Any:
    """The runs of the checkpoints' tests, whose module starts JAX."""
    return importlib.import_module("test_engine_checkpoints")


def _make_run(folder: pathlib.Path) -> None:
    _runs().stopped(folder / "run.npz", 3)


def _make_run_alone(folder: pathlib.Path) -> None:
    _make_run(folder)
    (folder / "run.npz.before").unlink()


def _use_run(folder: pathlib.Path) -> Use:
    runs, file = _runs(), folder / "run.npz"
    is_there = file.exists() or (folder / "run.npz.before").exists()
    if file.is_file():
        upkeep.holdings(file)
        upkeep.survey(file)
    with _heard() as said:
        found = runs.bits(runs.start(checkpoint=file, every=runs.LONG))
    return Use(repr(found), int(not is_there), " ".join(said))


def _of_run(name: str) -> str:
    return "checkpoint before" if name.endswith(".before") else "checkpoint"


RUN = Subject(
    _make_run,
    _use_run,
    _of_run,
    forms={"checkpoint": "npz", "checkpoint before": "npz"},
    harmless={
        "checkpoint": TOLD,
        "checkpoint before": "it is not read while the newer one is sound",
    },
)
RUN_ALONE = RUN._replace(make=_make_run_alone)


def long_trial(trial: Trial, key: Any, constants: Any) -> dict[str, Any]:
    """A run of some rounds, whose state is kept."""
    del constants
    runs = _runs()
    state, _ = runs.cfl.run(runs.build("ifca"), key, runs.draw(), num_rounds=5)
    return {"value": trial.separation * np.asarray(state.models).ravel()}


LONG_GRID = plain_grid(axes={"separation": (0.5,)}, num_trials=2)


def _sweep_long(store: pathlib.Path) -> Any:
    module = importlib.import_module("cfljax.engine.ways")
    often = functools.partial(module.checkpoints, every=0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "checkpoints", often)
        return engine.sweep(
            LONG_GRID, long_trial, store, by_rounds=True, progress=False
        )


def _make_state(folder: pathlib.Path) -> None:
    with _runs().interrupted(3):
        _sweep_long(folder / "s")


def _use_state(folder: pathlib.Path) -> Use:
    upkeep.survey(folder / "s")
    is_there = any((folder / "s" / "states").glob("*"))
    with _heard() as said:
        found = _sweep_long(folder / "s")
    return Use(_numbers(found), int(not is_there), " ".join(said))


def _of_state(name: str) -> str | None:
    if name.endswith(".before"):
        return "state before"
    return _kind_in_store(name)


STATE = Subject(
    _make_state,
    _use_state,
    _of_state,
    forms={"state": "npz", "state before": "npz", "code": "json"},
    harmless={
        **STORE.harmless,
        "state": TOLD,
        "state before": RUN.harmless["checkpoint before"],
    },
)


# Models and arrays that are kept


def _make_saved(folder: pathlib.Path) -> None:
    state, _ = _runs().start(num_rounds=2)
    cfl.save(folder / "models.npz", state)


def _use_saved(folder: pathlib.Path) -> Use:
    runs = _runs()
    found = cfl.load(folder / "models.npz", runs.build("ifca"), runs.draw())
    return Use(repr(runs.bits(found)))


SAVED = Subject(
    _make_saved,
    _use_saved,
    lambda name: "saved models",
    {"saved models": "npz"},
    taken={
        "saved models, exchanged": "it says of which shapes it is, not of which run"
    },
)
KEY = ["a law", 3, {"n": 0.5, "names": ["a", "b"], "exact": True}]


def _remember(folder: pathlib.Path) -> Use:
    count: list[int] = []

    def compute() -> dict[str, Any]:
        count.append(1)
        return {"x": np.arange(500.0), "name": np.array(["a", "b"])}

    found = kept.remembered(folder, KEY, compute)
    whole = {name: own.tobytes() for name, own in found.items()}
    return Use(whole, len(count))


ARRAYS = Subject(_remember, _remember, lambda name: "kept arrays")


def _index(folder: pathlib.Path) -> Use:
    count: list[int] = []

    def make() -> Any:
        count.append(1)
        return [{"id": "toy.a", "paper": "toy", "number": 3, "is": [True, None]}]

    return Use(base.remembered(folder / "index.json", "sources", make), len(count))


INDEX = Subject(_index, _index, lambda name: "index", {"index": "sealed"})


# Outcomes of statements and the report


def _make_outcome(folder: pathlib.Path) -> None:
    test_kept_outcomes.kept(folder)


def _use_outcome(folder: pathlib.Path) -> Use:
    record = test_kept_outcomes.kept(folder)
    return Use(test_kept_outcomes.told(record), int(record.is_new))


OUTCOME = Subject(
    _make_outcome,
    _use_outcome,
    lambda name: "outcome",
    {"outcome": "sealed"},
    harmless={"outcome": "seconds are told, and decide nothing"},
)


@contextlib.contextmanager
def toy_registry() -> Iterator[None]:
    """Inside, the registry knows the toy statements alone."""
    with pytest.MonkeyPatch.context() as patch:
        toy_theory.register(patch, *toy_theory.ROWS, errata=toy_theory.ERRATA)
        yield


def _make_report(folder: pathlib.Path) -> None:
    with toy_registry(), pytest.MonkeyPatch.context() as patch:
        _draw_nothing(patch)
        toy_theory.build(folder / "site", toy_theory.ROWS[:3])
    (folder / "site" / "mine.html").write_text("mine")
    (folder / "outside.html").write_text("mine")


def _draw_nothing(patch: pytest.MonkeyPatch) -> None:
    """Pages without pictures, which take most of the time."""
    patch.setattr(sys.modules["cfljax.statements.site.pages"], "_draw", lambda _: None)


def _use_report(folder: pathlib.Path) -> Use:
    """Of fewer statements: what the manifest lists of others goes, and nothing else."""
    with toy_registry(), pytest.MonkeyPatch.context() as patch:
        _draw_nothing(patch)
        rows = toy_theory.ROWS[:1]
        records = toy_theory.build(folder / "site", rows, known=toy_theory.ROWS[:3])
    left = {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".json"
    }
    told = [test_kept_outcomes.told(record) for record in records]
    mine = {"site/mine.html", "outside.html"} <= left
    return Use((left, told, mine), sum(record.is_new for record in records))


def _of_report(name: str) -> str | None:
    path = pathlib.PurePath(name)
    if path.name == "manifest.json":
        return "manifest"
    return "outcome" if path.parent.name == "data" else None


REPORT = Subject(
    _make_report,
    _use_report,
    _of_report,
    {"manifest": "sealed", "outcome": "sealed"},
    harmless={
        "manifest": "it lists what may be deleted, and what is not there is not",
        "outcome": "of a statement that this report does not show",
    },
)


# Folders of results, and settings


def _make_figures(folder: pathlib.Path) -> None:
    shutil.copytree(folders_of_results() / "ifca.fig4", folder / "ifca.fig4")


def folders_of_results() -> pathlib.Path:
    """Those that are committed."""
    return pathlib.Path(__file__).resolve().parents[1] / "figures"


def _use_figures(folder: pathlib.Path) -> Use:
    """The gallery's look, the list's, and that of whoever opens the table."""
    own = folder / "ifca.fig4"
    found = folders.read(own, EXPERIMENTS["ifca.fig4"])
    fault = found.fault() if found is not None else "missing"
    size = None if found is None or fault else found.size
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_RESULTS", folder)
        listing.size(EXPERIMENTS["ifca.fig4"])
    with _heard() as said:
        dataset = cfl.open_results(own)
    values = sorted(
        value
        for name in {**dataset.data_vars, **dataset.coords}
        if dataset[name].dtype.kind == "f" and not str(name).startswith("row")
        for value in dataset[name].values.ravel().tolist()
        if value == value
    )
    told = [fault] if fault else []
    return Use((set(values), size), 0, " ".join([*said, *told]))


FIGURES = Subject(
    _make_figures,
    _use_figures,
    lambda name: {
        "config.json": "settings",
        "provenance.json": "provenance",
        "table.csv": "table",
    }.get(pathlib.PurePath(name).name),
    {"settings": "json", "provenance": "json"},
    harmless={"settings": TOLD, "provenance": TOLD, "table": TOLD},
    taken={
        "settings": "beside a table, without a digest: it is told as it stands",
        "provenance": "beside a table, without a digest: it is told as it stands",
        "table": "what a command wrote, without a digest; made again from the store",
    },
)


def _make_settings(folder: pathlib.Path) -> None:
    asked = parse(PROGRAM, ["run", "ifca.fig3a", "--preset", "quick"])
    text = json.dumps(dataclasses.asdict(configure(asked)), indent=2)
    (folder / "config.json").write_text(text + "\n")


def _use_settings(folder: pathlib.Path) -> Use:
    words = ["run", "ifca.fig3a", "--config", str(folder / "config.json")]
    return Use(configure(parse(PROGRAM, words)))


SETTINGS = Subject(
    _make_settings,
    _use_settings,
    lambda name: "--config",
    {"--config": "json"},
    harmless={"--config": "another way to write the same, or what is usual"},
    taken={"--config": USERS},
)


def _make_ledger(folder: pathlib.Path) -> None:
    trial = test_ledger.clove_trial()
    test_ledger.put_clove(folder / "s", trial, 87.4, 87.5, 87.6)
    with contextlib.chdir(folder):
        write_ledger([pathlib.Path("s")], pathlib.Path("out"))


def _use_ledger(folder: pathlib.Path) -> Use:
    """The ledger is written from the store, whatever it was."""
    row = folder / "out" / "ledger.csv"
    is_plain = row.is_file() and not row.is_symlink()
    before = row.read_bytes() if is_plain else b""
    with contextlib.chdir(folder):  # A row has the folder of its store.
        summary = write_ledger([pathlib.Path("s")], pathlib.Path("out"))
    names = "ledger.csv", "table.md"
    files = [(folder / "out" / name).read_bytes() for name in names]
    skipped = summary["skipped_files"] or summary["lost_runs"]
    told = f"{skipped} files" if skipped else ""
    return Use(files, int(before != files[0]), told)


LEDGER = Subject(
    _make_ledger,
    _use_ledger,
    lambda name: {".npz": "block of the ledger", ".csv": "row of the ledger"}.get(
        pathlib.PurePath(name).suffix
    ),
    {"block of the ledger": "npz", "row of the ledger": "csv"},
    harmless={"block of the ledger": TOLD, "row of the ledger": "it is written anew"},
    taken={
        "block of the ledger, gone": "as if it was never computed: the row says of how "
        "many seeds it is"
    },
)


# Data


def _make_npz(folder: pathlib.Path) -> None:
    random = np.random.default_rng(5)
    arrays: dict[str, Any] = {"inputs": random.normal(size=(60, 4)).astype(np.float32)}
    arrays |= {"targets": np.arange(60) % 3, "clients": np.arange(60) % 5}
    np.savez(folder / "my.npz", **arrays)
    np.savez_compressed(folder / "packed.npz", **arrays)


def _use_npz(folder: pathlib.Path) -> Use:
    found = [data.from_npz(folder / name)[0] for name in ("my.npz", "packed.npz")]
    return Use([np.asarray(leaf).tobytes() for own in found for leaf in own])


MY_DATA = Subject(
    _make_npz,
    _use_npz,
    lambda name: "data in .npz",
    harmless={"data in .npz": "bytes of the archive that say nothing of its arrays"},
    taken={"data in .npz": USERS},
)


def _idx(array: np.ndarray) -> bytes:
    sizes = b"".join(size.to_bytes(4, "big") for size in array.shape)
    return bytes([0, 0, 8, array.ndim]) + sizes + array.tobytes()


def _images() -> dict[str, bytes]:
    """A small set in the form of MNIST's files."""
    random = np.random.default_rng(6)
    found = {}
    for split, number in (("train", 30), ("t10k", 10)):
        pixels = random.integers(0, 256, (number, 28, 28)).astype(np.uint8)
        labels = random.integers(0, 10, number).astype(np.uint8)
        found[f"{split}-images-idx3-ubyte.gz"] = _idx(pixels)
        found[f"{split}-labels-idx1-ubyte.gz"] = _idx(labels)
    return found


def _packed(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)


def _make_images(folder: pathlib.Path) -> None:
    for name, content in _images().items():
        (folder / name).write_bytes(_packed(content))


def _use_images(folder: pathlib.Path) -> Use:
    md5 = lambda content: hashlib.md5(content, usedforsecurity=False).hexdigest()
    files = tuple(
        images.File(name, md5(_packed(content)), md5(content), len(content))
        for name, content in _images().items()
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(images.FILES, "mnist", files)
        found = images.read_files("mnist", folder)
    return Use([np.asarray(own).tobytes() for own in found])


IMAGES = Subject(
    _make_images,
    _use_images,
    lambda name: "images",
    harmless={"images": "bytes of the wrapper; the md5 of what is in it is right"},
)


def _make_texts(folder: pathlib.Path) -> None:
    rows = [[str(1 + i % 4), f"Title {i}", f"What it says, {i}"] for i in range(20)]
    test_data_text.write_news(folder, rows, rows[:5])


def _use_texts(folder: pathlib.Path) -> Use:
    found = data.load_texts("ag_news", folder=folder)
    return Use([*found.train_texts, *found.test_texts, found.train_labels.tobytes()])


TEXTS = Subject(
    _make_texts,
    _use_texts,
    lambda name: "texts",
    harmless={"texts": "another way to write the same rows"},
    taken={"texts": "no digest of these files is published: what they say is used"},
)


def _make_writers(folder: pathlib.Path) -> None:
    random = np.random.default_rng(8)
    for split, number in (("train", 3), ("test", 1)):
        pixels = random.integers(0, 256, (number, 784)) / 255
        own = {"x": pixels.tolist(), "y": [random.integers(62).item()] * number}
        path = folder / "femnist" / split / "all_data_0.json"
        test_data_writers.write(path, {"a": own})


def _use_writers(folder: pathlib.Path) -> Use:
    found = data.load_writers(folder=folder)
    return Use([np.asarray(own).tolist() for own in vars(found).values()])


WRITERS = Subject(
    _make_writers,
    _use_writers,
    lambda name: "writers",
    harmless={"writers": "another way to write the same"},
    taken={"writers": "LEAF's files have no digest: what they say is used"},
)

SUBJECTS: dict[str, Subject] = {
    "store": STORE,
    "run": RUN,
    "run alone": RUN_ALONE,
    "state": STATE,
    "saved": SAVED,
    "arrays": ARRAYS,
    "index": INDEX,
    "outcome": OUTCOME,
    "report": REPORT,
    "figures": FIGURES,
    "settings": SETTINGS,
    "ledger": LEDGER,
    "my data": MY_DATA,
    "images": IMAGES,
    "texts": TEXTS,
    "writers": WRITERS,
}


def rows_of(path: pathlib.Path) -> list[dict[str, str]]:
    """Of a table, as texts."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
