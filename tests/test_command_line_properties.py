"""Whatever is typed or handed over: it runs, or is refused in one clear line.

Nothing is computed here: the experiments' own `main` is replaced.
"""

import contextlib
import dataclasses
import io
import types

import hypothesis.strategies as st
import numpy as np
import pytest
from properties import always, refuses
from toy_experiments import retyped

from cfljax import engine
from experiments import __main__ as command_line
from experiments import registry

COMMANDS = ("list", "run", "bench", "compare", "launch", "running", "")
IDS = (
    *("ifca.fig3a", "ifca.fig3c", "ifca.table1_mnist", "law"),
    *("ifca.fig3", "IFCA.FIG3A", "fig 3", "", ".", "a\nb"),
)
FLAGS = (
    *("--preset", "--out", "--data", "--config", "--chunk", "--memory", "--devices"),
    *("--precision", "--shard", "--json", "--traceback", "--noise", "--num-trials"),
    *("--separation", "--convention", "--seed", "--error-rate", "--num-clusters"),
    *("--resample", "--no-resample", "--algorithms", "--search", "--step-sizes"),
    *("--noise=", "--nois", "--", "-", "-x", "---", "--a\nb"),
)
VALUES = (
    *("quick", "paper", "0", "1", "-1", "2", "1/2", "3/2", "0/0", "0.1", "1e-400"),
    *("nan", "inf", "-inf", "1e400", "1_0", "0x1", "9" * 400, "reference", "True"),
    *("ifca:", "fedavg,ifca", ",", ":", "=", "'", '"', "\\", "a b", "a\nb", "\t", "é"),
)
JUNK = st.text(max_size=6)
WORDS = st.sampled_from(FLAGS) | st.sampled_from(VALUES) | JUNK
LINES = st.tuples(
    st.sampled_from(COMMANDS) | JUNK,
    st.sampled_from(IDS) | JUNK,
    st.lists(WORDS, max_size=5),
).map(lambda parts: [*parts[:2], *parts[2]])
# Each of them is wrong wherever it stands, whatever else is right.
WRONG = (
    *(["--chunk", "0"], ["--chunk", "x"], ["--memory", "nan"], ["--noise", "-1"]),
    *(["--noise", "nan"], ["--noise"], ["--num-trials", "0"], ["--num-trials", "1.5"]),
    *(["--preset", "full"], ["--error-rate", "1"], ["--convention", "a\nb"]),
    *(["--no\nsuch"], ["--separation", "1", "1"], ["--seed", "x"], ["stray\nword"]),
)
RIGHT = (
    *(["--chunk", "3"], ["--json"], ["--noise", "0.1", "0.2"], ["--seed", "4"]),
    *(["--num-trials", "7"], ["--preset", "paper"], ["--out", "a folder"], []),
)


@pytest.fixture(autouse=True, scope="module")
def nothing_is_computed():
    """Replaces what an experiment does, and the devices it would make."""
    load = registry.Entry.load

    def without_main(entry):
        done = {"headline": "done", "files": []}
        return types.SimpleNamespace(
            preset=load(entry).preset, main=lambda config, options: done
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry.Entry, "load", without_main)
        patch.setattr(engine, "use_cores", lambda number=None: 1)
        yield


def typed(argv):
    """Exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = command_line.main(argv)
        except SystemExit as stop:
            status = stop.code or 0
    return status, out.getvalue(), err.getvalue()


def is_one_clear_line(err):
    assert err.startswith("error: ") and err.endswith("\n")
    assert len(err.splitlines()) == 1 and len(err) > len("error: \n")


def runs_or_is_refused(argv):
    status, out, err = typed(argv)
    if "--traceback" in argv and status:
        assert err.splitlines()[-1].startswith("error: ")
        return
    assert status in (0, 2)
    if status:
        is_one_clear_line(err)
        assert out == ""
    else:
        assert out and err == ""


@always(argv=LINES)
def test_any_words_run_or_are_refused_in_one_line(argv):
    runs_or_is_refused(argv)


@always(
    name=st.sampled_from(("ifca.fig3a", "ifca.fig3b", "ifca.fig3c", "ifca.fig3d")),
    before=st.sampled_from(RIGHT),
    wrong=st.sampled_from(WRONG),
    after=st.sampled_from((["--json"], ["--devices", "1"], [])),
)
def test_one_wrong_flag_among_right_ones_is_refused(name, before, wrong, after):
    status, out, err = typed(["run", name, *retyped(before, after)])
    assert (status, err) == (0, "") and "done" in out  # Control.
    status, out, err = typed(["run", name, *before, *wrong, *after])
    assert (status, out) == (2, "")
    is_one_clear_line(err)


@always(name=st.text(max_size=8).filter(lambda name: not name.startswith("-")))
def test_an_unknown_id_is_refused(name):
    for command in ("run", "bench"):
        status, _, err = typed([command, name])
        assert status == 2
        is_one_clear_line(err)


def test_a_stray_word_of_two_lines_is_refused_in_one():
    status, _, err = typed(["list", "two\nlines"])
    assert status == 2
    is_one_clear_line(err)


def test_control_other_errors_and_further_lines_are_noticed(monkeypatch):
    def fail(*_):
        raise TypeError

    monkeypatch.setattr(command_line, "configure", fail)
    with pytest.raises(TypeError):
        runs_or_is_refused(["run", "ifca.fig3a"])
    for err in ("error: two\nlines\n", "error: \n", "Traceback\n", ""):
        with pytest.raises(AssertionError):
            is_one_clear_line(err)


@dataclasses.dataclass(frozen=True)
class Trial:
    noise: float = 0.0
    clients: int = 2
    name: str = "x"
    fresh: bool = False


SCALARS = (
    st.booleans() | st.integers(-3, 3) | st.floats() | st.text(max_size=2) | st.none()
)
AXIS = (
    st.lists(SCALARS, max_size=3).map(tuple)
    | st.lists(st.floats(-3, 3), min_size=1, max_size=3).map(tuple)
    | st.lists(st.integers(-3, 3), min_size=1, max_size=3).map(np.array).map(tuple)
    | st.tuples(st.lists(st.integers(0, 1), max_size=1) | st.binary(max_size=2))
)
NAMES = st.sampled_from(("noise", "clients", "name", "fresh", "seed", ""))


def is_a_grid_or_refused(axes):
    try:
        grid = engine.Grid("x", Trial(), axes, 3, {"distance": ()})
    except ValueError as error:
        assert "\n" not in str(error)
        return
    assert set(grid.axes) == set(axes)
    for name, values in grid.axes.items():
        assert len(values) == len(axes[name]) == len(set(values)) > 0
        assert {type(value) for value in values} == {type(getattr(Trial(), name))}
    assert len(grid.cells()) == np.prod(grid.shape, dtype=int)


@always(axes=st.dictionaries(NAMES, AXIS, max_size=2))
def test_any_axis_is_a_grid_or_refused(axes):
    is_a_grid_or_refused(axes)


def test_control_a_grid_that_forgets_a_check_is_noticed(monkeypatch):
    monkeypatch.setattr("cfljax.engine.grid._axis", lambda _, values, __: tuple(values))
    assert refuses(is_a_grid_or_refused, axes=st.dictionaries(NAMES, AXIS, max_size=2))
