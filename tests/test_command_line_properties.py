"""Whatever is typed or handed over: it runs, or is refused in one clear line.

Nothing is computed here: the experiments' own `main` is replaced.
"""

import contextlib
import dataclasses
import io
import random
import types
from collections.abc import Callable

import hypothesis.strategies as st
import numpy as np
import pytest
from properties import always, refuses
from toy_experiments import retyped

from cfljax import engine
from cfljax.__main__ import main, program
from experiments import __main__ as command_line
from experiments import flags, registry
from theory import commands
from theory import registry as statements

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


@contextlib.contextmanager
def nothing_computed():
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


@pytest.fixture(autouse=True, scope="module")
def nothing_is_computed():
    with nothing_computed():
        yield


def typed(argv, called=command_line.main):
    """Exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = called(argv)
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


@pytest.mark.long
@always(argv=LINES)
def test_any_words_run_or_are_refused_in_one_line(argv):
    runs_or_is_refused(argv)


@pytest.mark.long
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


def test_control_other_errors_and_further_lines_are_noticed(monkeypatch, tmp_path):
    def fail(*_):
        raise TypeError

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(command_line, "configure", fail)
    with pytest.raises(AssertionError):
        runs_or_is_refused(["run", "ifca.fig3a"])
    for err in ("error: two\nlines\n", "error: \n", "Traceback\n", ""):
        with pytest.raises(AssertionError):
            is_one_clear_line(err)


# A thousand bad lines for the program `cfljax`: each is a right one with one fault.

FAULTS: dict[str, Callable[[random.Random, list[str]], list[str]]] = {}
Fault = Callable[[random.Random, list[str]], list[str]]


def fault(function: Fault) -> Fault:
    """Registers a way of making a right line wrong."""
    FAULTS[function.__name__] = function
    return function


def fields(line: list[str]) -> tuple[flags.Field, ...]:
    """Of the experiment that a line runs, which alone have types to be wrong."""
    every = {**registry.EXPERIMENTS, **registry.BENCHMARKS}
    entry = registry.COMPARISON if line[0] == "compare" else every[line[1]]
    return flags.fields_of(entry)


def misspelt(rng: random.Random, word: str) -> str:
    """A word with a letter lost, doubled, swapped or changed."""
    at = rng.randrange(len(word))
    kinds = (
        word[:at] + word[at + 1 :],
        word[:at] + word[at] + word[at:],
        word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
        word[:at] + rng.choice("qzQ9_ \té") + word[at + 1 :],
    )
    return rng.choice(kinds)


def right(rng: random.Random) -> list[str]:
    """A line that is read and does something."""
    name = rng.choice(("run", "run", "run", "bench", "launch", "compare", "check"))
    if name == "check":
        return ["check", rng.choice(("ifca.lem1", "werner", "clove.eq2"))]
    if name == "compare":
        return ["compare", "--dataset", "digits"]
    sweeps = [id for id, entry in registry.EXPERIMENTS.items() if entry.is_sweep]
    ids = {"run": registry.EXPERIMENTS, "bench": registry.BENCHMARKS, "launch": sweeps}
    line = [name, rng.choice(list(ids[name]))]
    return [*line, "--workers", "2", "--dry-run"] if name == "launch" else line


@fault
def unknown_command(rng, line):
    known = {command.name for command in program().commands}
    word = next(w for w in iter(lambda: misspelt(rng, line[0]), None) if w not in known)
    return [word, *line[1:]]


@fault
def unknown_name(rng, line):
    whole = "federated_clustering" if line[0] == "compare" else line[1]
    known = {*registry.EXPERIMENTS, *registry.BENCHMARKS, whole}
    words = iter(lambda: misspelt(rng, whole), None)
    word = next(w for w in words if w not in known and not is_a_statement(w))
    if line[0] == "compare":
        return [*line, "--algorithms", word]
    return [line[0], word, *line[2:]]


def is_a_statement(name: str) -> bool:
    return any(statements.is_under(row.id, name) for row in statements.listed())


@fault
def unknown_flag(rng, line):
    word = rng.choice(("--preset", "--out", "--seed", "--json", "--traceback"))
    return [*line, rng.choice((word + "s", word[:-1], f"-{word}x", "-q", "--é")), "1"]


@fault
def stray_word(rng, line):
    if line[0] == "check":
        return [*line, "nobody.of.this.name"]
    return [*line, rng.choice(("stray", "ifca.fig3a", "two\nlines", "=", "1"))]


@fault
def flag_twice(rng, line):
    seed = rng.choice((["--seed", "1"], ["--preset", "quick"], ["--json"]))
    if line[0] in ("compare", "bench"):
        seed = ["--out", "x"]
    return [*line, *seed, *seed]


@fault
def value_missing(rng, line):
    named = ["--seed"] if line[0] == "check" else ["--out", "--memory", "--chunk"]
    return [*line, rng.choice((*named, "--config" if len(named) > 1 else "--preset"))]


@fault
def value_of_another_kind(rng, line):
    if line[0] == "check":
        return [*line, "--seed", rng.choice(("x", "-1", "1.5", "", "nan", "1_0"))]
    kinds = ("int", "float", "number")
    own = rng.choice([field for field in fields(line) if field.kind in kinds])
    wrong = {
        "int": ("x", "1.5", "1e3", "", "nan", "0x10", "1_0", "½", "1,2", "None x"),
        "float": ("x", "", "1,5", "1_0", "0x1p3", "²", "1..2"),
        "number": ("x", "", "1,5", "²", "1..2"),
    }
    if own.choices is not None:
        return [*line, f"{own.flag}=" + rng.choice(("nobody", "", "a\nb", "9999"))]
    return [*line, f"{own.flag}={rng.choice(wrong[own.kind])}"]


@fault
def choice_unknown(rng, line):
    own = [f for f in fields(line) if f.choices] if line[0] != "check" else []
    own = [field for field in own if field.flag not in line]
    if not own:
        return [*line, "--preset", "largest"]
    field = rng.choice(own)
    word = misspelt(rng, str(rng.choice(field.choices)))
    known = set(map(str, field.choices))
    return [*line, field.flag, f"{word}x" if word in known else word]


@fault
def value_out_of_range(rng, line):
    if line[0] == "check":
        return [*line, "--rotations", rng.choice(("0", "-3", "9" * 5000))]
    pairs = (
        *(["--chunk", "0"], ["--chunk", "-2"], ["--memory", "nan"], ["--memory", "-1"]),
        *(["--memory", "inf"], ["--memory", "0"], ["--precision", "2"]),
        *(["--shard", "3/2"], ["--shard", "1/0"], ["--shard", "1"], ["--devices", "0"]),
    )
    own = [f for f in fields(line) if f.name in ("num_trials", "repeats", "num_rounds")]
    if own and rng.random() < 0.5:
        return [*line, own[0].flag, rng.choice(("0", "-1", "-7"))]
    return [*line, *rng.choice(pairs)]


@fault
def flags_that_exclude_each_other(rng, line):
    if line[0] == "launch":
        return [*line, "--local"]
    if line[0] in ("run", "bench"):
        return [*line, "--preset", "paper", "--config", "config.json"]
    if line[0] == "compare":
        return [*line, "--step-sizes", "0.1", "0.1"]
    return [*line, "--paper", "nobody"]


@fault
def place_that_is_not_there(rng, line):
    if line[0] == "check":
        return ["report", *line[1:]]  # Which has no usual place.
    flag = rng.choice(("--data", "--config", "--out"))
    return [*line, flag, rng.choice(("/dev/null/x", "/dev/null/\n"))]


@fault
def command_cut_short(rng, line):
    if line[0] in ("compare", "check"):
        return [line[0], rng.choice(("-", "--=", "-1", "--json=1"))]
    return [line[0], *rng.choice(([], ["--seed", "1"], ["--preset"], ["-"], [""]))]


def bad_line(number: int) -> tuple[str, list[str]]:
    """Name of the fault, and the line; of this number alone."""
    rng = random.Random(number)
    name = list(FAULTS)[number % len(FAULTS)]
    return name, FAULTS[name](rng, right(rng))


def is_refused(line: list[str]) -> None:
    status, out, err = typed(line, main)
    assert (status, out) == (2, ""), (line, status, out[:200])
    is_one_clear_line(err)


@contextlib.contextmanager
def nothing_checked():
    """Replaces what the statements' commands would compute."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("check", "rotations", "report"):
            patch.setattr(commands, name, lambda *_, **__: print("done") or 0)
        patch.setattr("experiments.launch.script", lambda *_: "script")
        yield


@pytest.fixture
def nothing_is_checked():
    with nothing_checked():
        yield


@pytest.mark.parametrize("number", [60, pytest.param(1000, marks=pytest.mark.slow)])
def test_bad_lines_are_refused_in_one(number, nothing_is_checked):
    wrong = {}
    for index in range(number):
        name, line = bad_line(index)
        try:
            is_refused(line)
        except AssertionError as error:
            wrong[index, name] = str(error).splitlines()[0]
    assert wrong == {}


@pytest.mark.long
def test_right_lines_are_not_refused(nothing_is_checked):
    """Control: it is the fault that is refused, and what is not is noticed."""
    for index in range(40):
        line = right(random.Random(index))
        status, out, err = typed(line, main)
        assert (status, err) == (0, "") and out, line
        with pytest.raises(AssertionError):
            is_refused(line)


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
