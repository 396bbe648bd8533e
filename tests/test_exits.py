"""How commands end: whatever goes wrong is one line, and a status of its kind."""

import contextlib
import errno
import io
import os
import pathlib
import re
import subprocess
import sys

import pytest

from cfljax import __main__ as everything
from cfljax import command
from cfljax.__main__ import main
from cfljax.base.unpacking import host_memory
from cfljax.command import STATUSES, Command, Program
from cfljax.engine import SweepError
from experiments import __main__ as experiments
from experiments.cluster import LostSchedulerError
from theory import __main__ as theory

ROOT = pathlib.Path(__file__).resolve().parents[1]


def program(execute) -> Program:
    """Of one command, `go`."""
    return Program("toy", "A toy.", (Command("go", "do it", lambda *_: None, execute),))


def ended(error: BaseException, *words: str) -> int:
    """The status of a command that raises an error."""

    def execute(arguments):
        raise error

    return command.main(program(execute), ["go", *words])


@pytest.fixture(autouse=True)
def reports_are_put_here(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


# Against itself: each error's status, and its line.

CAUSED = RuntimeError("in a worker")
CAUSED.__cause__ = MemoryError()


@pytest.mark.parametrize(
    ("error", "status", "line"),
    [
        (ValueError("two\nlines"), 2, "error: two lines"),
        (ValueError(), 2, "error: ValueError"),
        (OverflowError("too large"), 2, "error: too large"),
        (FileNotFoundError("nothing there"), 2, "error: nothing there"),
        (OSError(errno.EIO, "broken", "f"), 2, "error: cannot use f: broken"),
        (OSError(errno.ENOSPC, "full"), 2, "error: cannot write the output: full"),
        (MemoryError("of 9 GiB"), 2, "error: too little memory: of 9 GiB"),
        (MemoryError(), 2, "error: too little memory"),
        (OSError(errno.ENOMEM, "no"), 2, "error: too little memory: [Errno 12] no"),
        (CAUSED, 2, "error: too little memory: in a worker"),
        (RuntimeError("RESOURCE_EXHAUSTED: x"), 2, "error: too little memory: RES"),
        (RuntimeError("can't start new thread"), 2, "error: too little memory: can't"),
        (ImportError("x.so: failed to map segment"), 2, "error: too little memory: x"),
        (SweepError("all cells failed"), 1, "error: all cells failed"),
        (LostSchedulerError("lost"), 3, "error: lost"),
        (KeyboardInterrupt("stopped; go on"), 130, "stopped; go on"),
        (TypeError("two\nlines"), 70, "error: internal, TypeError: two lines; "),
        (RuntimeError("odd"), 70, "error: internal, RuntimeError: odd; "),
        (ImportError("no module"), 70, "error: internal, ImportError: no module; "),
        (RecursionError("x" * 9999), 70, "error: internal, RecursionError: xxx"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_every_error_is_one_line_and_a_status(error, status, line, capsys):
    assert ended(error) == status
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(line) and err.count("\n") == 1
    assert len(err) < 1000 and status in STATUSES


def test_what_ends_well_says_nothing(capsys):
    """Control."""
    assert command.main(program(lambda _: 0), ["go"]) == 0
    assert capsys.readouterr() == ("", "")


def test_an_internal_error_is_written_down(tmp_path, capsys):
    assert ended(KeyError("σ"), "--traceback") == 70
    err = capsys.readouterr().err
    assert err.startswith("Traceback")
    (file,) = tmp_path.iterdir()
    assert f"; {file} says where; please report it with that file\n" in err
    told = file.read_text("utf-8")
    assert told.startswith("toy go --traceback\ncfljax ")
    assert "Traceback (most recent" in told and told.endswith("KeyError: 'σ'\n")
    # Control: what is no fault of the program is not.
    assert ended(ValueError("x")) == 2
    assert list(tmp_path.iterdir()) == [file]


def test_an_internal_error_on_a_full_disk_says_how_to_see_more(monkeypatch, capsys):
    def full(**_):
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr("tempfile.mkstemp", full)
    assert ended(TypeError("x")) == 70
    assert "; --traceback shows where; please report it\n" in capsys.readouterr().err


@pytest.mark.long
def test_a_reader_that_leaves_ends_it_as_any_other_tool():
    """By a pipe of its own, whose buffer the process must not fail to flush."""
    code = (
        "import os, sys; from cfljax import command; from test_exits import program\n"
        "def go(_): [print('x' * 99) for _ in range(9999)]\n"
        "sys.exit(command.main(program(go), ['go']))"
    )
    line = f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'
    found = subprocess.run(
        ["bash", "-c", line],
        cwd=ROOT / "tests",
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert (found.stdout, found.stderr) == ("x" * 99 + "\n141\n", "")


def test_a_closed_output_is_said_before_anything_is_done(monkeypatch, capsys):
    done = []
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", None)
        assert command.main(program(done.append), ["go"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("error: cannot write the output: it is closed; ")
    assert err.count("\n") == 1 and done == []


def test_nowhere_to_complain_says_nothing_elsewhere(monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", None)
        assert ended(ValueError("x")) == 2
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_letters_that_the_output_lacks_are_shown_as_escapes(encoding, monkeypatch):
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding=encoding))
    told = lambda _: print("noise σ of \udce9") or 0  # As of a path that is not UTF-8.
    assert command.main(program(told), ["go"]) == 0
    letter = b"\\u03c3" if encoding == "ascii" else "σ".encode()
    assert raw.getvalue() == b"noise " + letter + b" of \\udce9\n"


@pytest.mark.parametrize(
    "one",
    [experiments.PROGRAM, theory.PROGRAM, everything.program()],
    ids=lambda one: one.name,
)
def test_help_tells_every_status(one):
    told = command.in_one_line(command.overview(one))
    assert all(f"{status} {text}" in told for status, text in STATUSES.items())


def test_the_documentation_tells_every_status():
    text = (ROOT / "docs" / "reliable.md").read_text("utf-8")
    rows = re.findall(r"^\| (\d+) \| ([^|]+) \|", text, re.M)
    assert {int(status): what.strip() for status, what in rows} == STATUSES


# Against misuse: places that cannot be, of every command that takes one.

PLACES = {
    "loop": "loop",
    "below a loop": "loop/x",
    "a link to nowhere": "dangling",
    "a long name": "x" * 256,
    "a long path": "/".join(["x" * 200] * 30),
    "a file": "file",
    "nobody's home": "~nobody_of_this_name/x",
}
TAKE_A_FOLDER = (
    *("run ifca.fig3a --out", "run clove.table1 --data", "ledger --out"),
    *("bench linear --out", "compare --dataset digits --out"),
    *("gallery werner.fig4 --out", "data --data", "ledger --stores", "store ls"),
    *("launch ifca.fig3a --workers 2 --dry-run --out", "gallery --data"),
    *("store verify", "run ifca.fig3a --config"),
    "compare --task toy:make --dataset",
)


@pytest.fixture
def places(tmp_path, monkeypatch):
    """A folder with what `PLACES` name, which is the current one."""
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("in the way")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CFLJAX_DATA", raising=False)


def typed(line: list[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main(line)
    return status, out.getvalue(), err.getvalue()


def is_refused(line: list[str], message: str = "") -> None:
    status, out, err = typed(line)
    assert (status, out) == (2, ""), err
    assert err.startswith("error: ") and err.count("\n") == 1 and message in err


# What is no fault: a folder of that name is made, and a file is told to be no store's.
FINE = {
    "nobody's home": {"--out", "--store", "--keep"},
    "a file": {"ls", "verify"},
}


SLOW = [
    pytest.param(line, marks=pytest.mark.slow)
    for line in (
        "run clove.table1 --store",
        "report ifca.eq2.corrected --out",
        "check ifca.eq2.corrected --keep",
    )
]


@pytest.mark.parametrize("line", [*TAKE_A_FOLDER, *SLOW])
def test_places_that_cannot_be_are_refused(line, places):
    for name, place in PLACES.items():
        if line.split()[-1] not in FINE.get(name, ()):
            is_refused([*line.split(), place])
    assert not pathlib.Path("nowhere").exists()


# With too few addresses, as `ulimit -v` leaves.


@pytest.mark.parametrize(
    "line",
    ["run ifca.fig3a", "launch ifca.fig3a --workers 2 --dry-run", "check ifca.eq2"],
)
def test_too_few_addresses_are_said_before_jax_ends_the_process(line, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("resource.getrlimit", lambda _: (2 * 10**9, -1))
        is_refused(line.split(), "too little memory: `ulimit -v` leaves 1.86 GiB of")
        assert typed(["list"])[0] == 0  # Which needs no more.
    command.check_addresses()  # Control: there is no limit.


def test_what_is_spared_is_within_the_addresses(monkeypatch):
    free = host_memory()
    monkeypatch.setattr("resource.getrlimit", lambda _: (2**50, -1))
    assert host_memory() > free / 2  # Control: of a limit that is none.
    taken = int(pathlib.Path("/proc/self/statm").read_text().split()[0])
    limit = (taken + 1000) * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, -1))
    assert host_memory() <= 1000 * os.sysconf("SC_PAGE_SIZE")
    monkeypatch.setattr("resource.getrlimit", lambda _: (2**20, -1))
    assert host_memory() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "status", "said"),
    [
        ("list", 0, ""),
        ("list --json", 0, ""),
        ("run ifca.fig3a", 2, "error: too little memory: `ulimit -v` leaves 1.91 GiB"),
    ],
)
def test_under_a_limit_of_addresses(line, status, said, tmp_path):
    limited = f"ulimit -v 2000000; {sys.executable} -m cfljax {line} --out {tmp_path}/x"
    limited = limited if "run" in line else limited.partition(" --out")[0]
    found = subprocess.run(
        ["bash", "-c", limited], cwd=ROOT, capture_output=True, text=True
    )
    assert found.returncode == status and found.stderr.count("\n") == bool(said)
    assert found.stderr.startswith(said)
