"""What code numbers depend on, and cells that other code has begun."""

import contextlib
import dataclasses
import functools
import importlib
import json
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import pytest
from engine_trial import (
    Trial,
    block_file,
    contents,
    draw,
    is_alike,
    lose,
    num_done,
    plain_grid,
)

from cfljax.engine import Grid, Joint, StoreError, kept, sources, stored, sweep
from cfljax.engine.sources import describe, differences, module_digest
from cfljax.engine.store import Store

# Against definition: a function's modules, and when their digests change

TRIAL = """
import jax, numpy as np
import a_helper

def simulate(trial, key, constants):
    drawn = trial.separation * jax.random.uniform(key, (3,))
    return {"value": a_helper.factor() * drawn}

def simulate_jointly(trials, key, constants):
    found = [simulate(trial, key, None) for trial in trials]
    return [{"value": np.asarray(own["value"])} for own in found]
"""
HELPERS = '''
"""What the trial takes."""

def factor():
    """One."""
    return 1.0  # At last.
'''


@pytest.fixture
def forget() -> Iterator[Callable[[], None]]:
    """Once called, sources are read anew, as another process would."""
    imported = set(sys.modules)

    def again() -> None:
        for name in set(sys.modules) - imported:
            del sys.modules[name]
        for function in vars(sources).values():
            if hasattr(function, "cache_clear"):
                function.cache_clear()
        importlib.invalidate_caches()

    yield again
    again()


@pytest.fixture
def write(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, forget: Callable[[], None]
) -> Callable[..., Any]:
    """Writes modules by their names, and imports the first one."""
    folder = tmp_path / "own"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def make(files: dict[str, str]) -> Any:
        forget()
        for name, source in files.items():
            (folder / name).parent.mkdir(exist_ok=True, parents=True)
            (folder / name).write_text(source)
        first = next(iter(files)).removesuffix(".py").replace("/", ".")
        return importlib.import_module(first)

    return make


@pytest.fixture
def edit(write: Callable[..., Any]) -> Callable[..., Any]:
    """Imports a trial whose helpers were changed; the functions of its module."""

    def change(old: str = "", new: str = "") -> Any:
        assert old in HELPERS
        changed = HELPERS.replace(old, new) if old else HELPERS
        return write({"a_trial.py": TRIAL, "a_helper.py": changed})

    return change


def modules(function: Any) -> dict[str, str]:
    return describe(function)["modules"]


def test_modules_that_are_imported_are_found(edit):
    found = modules(edit().simulate)
    assert list(found) == ["a_helper", "a_trial"]  # Nothing that is installed.
    for wrapped in (functools.partial, jax.jit):
        assert modules(wrapped(edit().simulate)) == found
    joint = Joint(edit().simulate_jointly, lambda trial: 0)
    assert modules(joint.simulate) == found


@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ("1.0", "1.5", True),
        ("return", "x = 2\n    return", True),
        ("def factor():", "def factor(unused=0):", True),
        ("  # At last.", "  # At first.", False),
        ("  # At last.", "", False),
        ('"""One."""', '"""Another."""', False),
        ('    """One."""\n', "", False),
        ('"""What the trial takes."""', "", False),
        ("return 1.0", "return (\n        1.0\n    )", False),
    ],
)
def test_digests_change_iff_code_does(edit, old, new, is_other):
    before = describe(edit().simulate)
    after = describe(edit(old, new).simulate)
    assert (before != after) == is_other
    assert differences(before, after) == ["a_helper"] * is_other


def test_a_digest_is_of_what_another_function_does_not_reach(edit):
    """A module that is named at run time, with all that is its own."""

    def digest(old="", new=""):
        edit(old, new)
        return module_digest("a_trial", beside=module_digest)

    plain = digest()
    assert digest("  # At last.", "  # At first.") == plain
    assert digest("1.0", "1.5") != plain, "its helper is other code"
    trial = edit("1.0", "1.5").simulate
    empty = module_digest("a_trial", beside=trial)
    assert empty == module_digest("a_helper", beside=trial), "both are described"


LAZY = """import lazy_loader
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
"""
ROOMS = {
    "room/__init__.py": LAZY,
    "room/__init__.pyi": "from . import inner as inner\nfrom . import other as other\n"
    "from . import part as part\nfrom .part import f as f\n",
    "room/part.py": "def f(): ...",
    "room/other.py": "def g(): ...",
    "room/inner/__init__.py": LAZY,
    "room/inner/__init__.pyi": "from .deep import h as h\n",
    "room/inner/deep.py": "def h(): ...",
    "eager/__init__.py": "from eager.one import k\nfrom . import two\nK = k",
    "eager/one.py": "def k(): ...",
    "eager/two.py": "",
}
DEEP = {"room.inner", "room.inner.deep"}


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        ("import room.part\nroom.part.f()", {"room.part"}),
        ("from room import f\nf()", {"room.part"}),
        ("from room import part\npart.f()", {"room.part"}),
        ("from room import part as p\np.f()", {"room.part"}),
        ("import room\nroom.f()", {"room", "room.part"}),
        ("import room as r\nr.f()", {"room", "room.part"}),
        ("import room\nroom.other.g()", {"room", "room.other"}),
        ("import room\nroom.inner.h()", DEEP | {"room"}),
        ("from room import inner\ninner.h()", DEEP),
        ("import room.inner\nroom.inner.h()", DEEP),
        ("from room.inner import h", {"room.inner.deep"}),
        ("def f():\n    import room.other", {"room.other"}),
        ("from eager import k", {"eager.one"}),
        ("from eager import K", {"eager", "eager.one", "eager.two"}),
        ("from eager import *", {"eager", "eager.one", "eager.two"}),
        ("import room", {"room"}),
        ("x = 'room.part'", set()),
        ("import os, numpy as np\nos.path.join, np.linalg.norm", set()),
    ],
)
def test_what_is_taken_out_of_rooms_is_found(write, statements, found):
    """And what is not taken is not."""
    source = f"{statements}\ndef simulate(): ..."
    module = write({"taker.py": source} | ROOMS)
    assert set(modules(module.simulate)) - {"taker"} == found


def test_relative_imports_are_found(write):
    source = "from . import one\nfrom .two import f\ndef simulate(): ..."
    others = {"pack/one.py": "", "pack/two.py": "f = 1", "pack/three.py": ""}
    module = write({"pack/trial.py": source} | others)
    assert set(modules(module.simulate)) == {"pack.one", "pack.trial", "pack.two"}


@pytest.mark.parametrize("place", ["site-packages", "target"])
def test_nothing_of_what_is_installed_is_imported(write, tmp_path, monkeypatch, place):
    """To look for its modules: they may be large, and need not be there."""
    packages = tmp_path / place
    (packages / "large").mkdir(parents=True)
    if place == "target":  # Of `pip install --target`.
        (packages / "large-1.0.dist-info").mkdir()
    (packages / "large" / "__init__.py").write_text("raise AssertionError")
    (packages / "large" / "part.py").write_text("")
    monkeypatch.syspath_prepend(packages)
    source = "def f():\n    import large.part\n    from large import part\n"
    module = write({"taker.py": f"{source}def simulate(): ..."})
    assert list(modules(module.simulate)) == ["taker"]


def test_what_cannot_be_imported_is_no_module(write):
    """One that is for type checkers, for example, and asserts that nobody runs it."""
    odd = {"odd/__init__.py": "", "odd/inner.py": "raise AssertionError"}
    source = "if False:\n    from odd.inner import part\ndef simulate(): ..."
    module = write({"taker.py": source} | odd)
    assert set(modules(module.simulate)) == {"taker", "odd.inner"}


@pytest.mark.long
def test_modules_of_the_library_are_its_own():
    """Those that compute: whoever mends how results are kept changes no number."""
    from experiments.ifca import fig3_trial

    found = modules(fig3_trial.simulate)
    assert {"cfljax.algorithms.ifca", "cfljax.metrics"} <= set(found)
    assert "experiments.ifca.fig3_trial" in found
    known = ("cfljax.engine.store", "cfljax.report", "cfljax.law", "theory", "tests")
    assert not [name for name in found if name.startswith(known)]


def other_generator() -> Any:
    """Inside, random numbers are split over devices in the other way."""
    config: Any = jax.config
    return jax.threefry_partitionable(not config.jax_threefry_partitionable)


def test_settings_are_those_that_numbers_depend_on(monkeypatch):
    def with_flags(flags: str) -> Any:
        monkeypatch.setenv("XLA_FLAGS", flags)
        return describe(draw)

    plain = with_flags("")
    assert with_flags("--xla_force_host_platform_device_count=4") == plain
    fast = with_flags("--xla_cpu_enable_fast_math=true --xla_dump_to=/nowhere")
    told = "xla_flags (, here --xla_cpu_enable_fast_math=true)"
    assert differences(plain, fast) == [told]
    with_flags("")
    with jax.enable_x64(True):
        assert differences(plain, describe(draw)) == ["x64 (False, here True)"]
    with other_generator():
        (found,) = differences(plain, describe(draw))
        assert found.startswith("threefry_partitionable (")
    assert describe(draw) == plain


# Against misuse: cells that other code would complete

GRID = plain_grid(axes={"separation": (0.5, 1.0)})


@pytest.mark.long
def test_other_code_does_not_complete_a_cell(edit, tmp_path):
    path = tmp_path / "s"
    sweep(GRID, edit().simulate, path, shard=(1, 2))
    assert num_done(path, GRID) == 3
    lose(path, GRID, (0, 1))
    before = contents(path)
    other = edit("1.0", "1.5").simulate
    with pytest.raises(StoreError) as caught:
        sweep(GRID, other, path, shard=(1, 2))
    told = str(caught.value)
    assert "(separation 0.5) was begun by other code" in told and "\n" not in told
    assert "complete it: a_helper. " in told and "accept_code" in told
    assert contents(path) == before
    # Control: other cells it may compute, and what has no other code it may complete.
    part = sweep(GRID, other, path, shard=(2, 2))
    assert part.attrs["open_blocks"] == 1
    with pytest.raises(StoreError, match="other code"):
        sweep(GRID, other, path)
    found = sweep(GRID, edit(" At last", " At first").simulate, path)
    assert found.attrs["open_blocks"] == found.attrs["failures"] == 0
    numbers = found["value"].values
    np.testing.assert_allclose(numbers[1], 2 * 1.5 * numbers[0], rtol=1e-6)
    assert {about["accepted"] for _, about in stored(path)} == {None}
    assert len({about["code"] for _, about in stored(path)}) == 2


def test_other_code_does_not_add_trials(edit, tmp_path):
    path = tmp_path / "s"
    few, many = (plain_grid(axes={}, num_trials=number) for number in (13, 15))
    sweep(few, edit().simulate, path)
    before = contents(path)
    with pytest.raises(StoreError, match=r"\(the only one\) was begun by other code"):
        sweep(many, edit("1.0", "1.5").simulate, path)
    assert contents(path) == before


def test_other_code_of_trials_that_are_not_asked_for_is_seen(edit, tmp_path):
    """The cell has more blocks than the sweep that would repair one."""
    path, few = tmp_path / "s", plain_grid(axes={}, num_trials=5)
    sweep(plain_grid(axes={}), edit().simulate, path)
    lose(path, few, (0,))
    with pytest.raises(StoreError, match="begun by other code"):
        sweep(few, edit("1.0", "1.5").simulate, path)
    sweep(few, edit().simulate, path)


def test_finished_cells_are_read_whatever_the_code(edit, tmp_path):
    whole = sweep(GRID, edit().simulate, tmp_path / "s")
    before = contents(tmp_path / "s")
    again = sweep(GRID, edit("1.0", "1.5").simulate, tmp_path / "s")
    assert again.identical(whole) and contents(tmp_path / "s") == before


def abouts(path: pathlib.Path) -> list[Any]:
    return [about for _, about in stored(path)]


@pytest.mark.long
def test_changes_that_a_person_accepts_are_noted(edit, tmp_path):
    path, why = tmp_path / "s", "times one is nothing"
    grid = dataclasses.replace(plain_grid(axes={}), num_trials=13)
    first = edit().simulate
    whole = sweep(grid, first, tmp_path / "whole")
    sweep(dataclasses.replace(grid, num_trials=3), first, path)
    (begun,) = abouts(path)
    assert begun["accepted"] is None
    harmless = edit("1.0", "1.0 * 1").simulate
    with pytest.raises(StoreError, match="a_helper"):
        sweep(grid, harmless, path)
    assert is_alike(sweep(grid, harmless, path, accept_code=why), whole)
    one, two = abouts(path)
    noted = {"why": why, "code": [begun["code"]]}
    assert one["accepted"] == two["accepted"] == noted
    assert one["code"] == two["code"] != begun["code"]
    codes = {file.stem for file in (path / "code").iterdir()}
    assert codes == {begun["code"], one["code"]}
    # What was accepted once need not be again, and is not forgotten.
    more = sweep(dataclasses.replace(grid, num_trials=18), harmless, path)
    assert is_alike(more[["value"]].isel(trial=slice(13)), whole[["value"]])
    assert [about["accepted"] for about in abouts(path)] == [noted, noted]
    # Control: other code was not accepted.
    with pytest.raises(StoreError, match="begun by other code"):
        sweep(plain_grid(axes={}), edit("1.0", "1.0 + 0").simulate, path)


def test_code_that_is_alone_needs_nobody_to_accept_it(edit, tmp_path):
    sweep(GRID, edit().simulate, tmp_path / "s", accept_code="of no use")
    assert [about["accepted"] for about in abouts(tmp_path / "s")] == [None] * 6


def test_code_that_was_lost_is_other_code(edit, tmp_path):
    path = tmp_path / "s"
    sweep(GRID, edit().simulate, path)
    lose(path, GRID, (0, 1))
    for file in (path / "code").iterdir():
        file.write_text("{}")
    with pytest.raises(StoreError, match="complete it: what it was is not known"):
        sweep(GRID, edit("1.0", "1.5").simulate, path)
    sweep(GRID, edit().simulate, path)  # Control: this is the same, by its digest.
    (file,) = (path / "code").iterdir()
    assert kept.key_of(json.loads(file.read_text())) == file.stem


@pytest.mark.parametrize("setting", ["threefry_partitionable", "x64", "xla_flags"])
def test_other_settings_do_not_complete_a_cell(tmp_path, monkeypatch, setting):
    path = tmp_path / "s"
    sweep(GRID, draw, path)
    lose(path, GRID, (1, 0))
    before = contents(path)
    changes: dict[str, Any] = {
        "threefry_partitionable": other_generator(),
        "x64": jax.enable_x64(True),
        "xla_flags": contextlib.nullcontext(),
    }
    with pytest.MonkeyPatch.context() as patch, changes[setting]:
        if setting == "xla_flags":
            flags = os.environ.get("XLA_FLAGS", "") + " --xla_cpu_enable_fast_math=true"
            patch.setenv("XLA_FLAGS", flags)
        with pytest.raises(StoreError, match=rf"complete it: {setting} \("):
            sweep(GRID, draw, path)
    assert contents(path) == before
    assert sweep(GRID, draw, path).attrs["failures"] == 0  # Control.


@pytest.mark.long
def test_other_code_that_began_at_the_same_time_is_seen(edit, tmp_path):
    """Blocks of a joint group are claimed one by one: another run may have another."""
    path, grid = tmp_path / "s", plain_grid(axes={}, num_trials=20)
    first = edit()
    shares = lambda trial: 0

    def meanwhile(trials: Any, key: Any, constants: Any) -> Any:
        if num_done(path, grid) == 0:
            other = Joint(edit("1.0", "1.5").simulate_jointly, shares)
            sweep(grid, None, path, joint=other, shard=(2, 2))
        return first.simulate_jointly(trials, key, constants)

    with pytest.raises(StoreError, match="begun by other code"):
        sweep(grid, None, path, joint=Joint(meanwhile, shares), shard=(1, 2))
    assert num_done(path, grid) == 1
    assert block_file(path, grid, 1).exists()
    (about,) = abouts(path)
    assert about["code"] in Store(path, grid).about((1,))["code"]


def test_cells_of_one_grid_may_be_of_different_code(edit, tmp_path):
    path: pathlib.Path = tmp_path / "s"
    own: Callable[[float], Grid] = lambda value: plain_grid(
        trial=Trial(separation=value), axes={}, num_trials=4
    )
    one = sweep(own(0.5), edit().simulate, path)
    two = sweep(own(1.0), edit("1.0", "1.5").simulate, path)
    both = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=4)
    found = sweep(both, edit("1.0", "2.0").simulate, path)["value"].values
    np.testing.assert_array_equal(found[0], one["value"])
    np.testing.assert_array_equal(found[1], two["value"])
    assert len({about["code"] for about in abouts(path)}) == 2


def test_cells_computed_together_may_be_of_different_code(edit, tmp_path):
    """One that is complete is computed again beside the others, but stays as it is."""
    path, shares = tmp_path / "s", lambda trial: 0
    few = plain_grid(axes={"separation": (0.5,)}, num_trials=4)
    both = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=4)
    first = Joint(edit().simulate_jointly, shares)
    one = sweep(few, None, path, joint=first)
    other = Joint(edit("1.0", "1.5").simulate_jointly, shares)
    found = sweep(both, None, path, joint=other)["value"].values
    np.testing.assert_array_equal(found[:1], one["value"])
    np.testing.assert_allclose(found[1], 2 * 1.5 * found[0], rtol=1e-6)
    more = plain_grid(axes={"separation": (0.5, 1.0)}, num_trials=5)  # Control.
    with pytest.raises(StoreError, match=r"separation 0.5\) was begun by other code"):
        sweep(more, None, path, joint=other)
