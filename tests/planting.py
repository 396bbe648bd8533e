"""Plants an error in a module of a fresh process, and reads what `theory check` says.

A process that has imported other people's packages, and started no thread, is forked
for each error: the child finds the changed source in place of one module's, runs the
same command line as a shell would, and ends. So an error costs what its rows cost, and
not the seconds in which JAX and SymPy are imported.

    python tests/planting.py    reads a request in JSON from each line, answers with one
"""

import contextlib
import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib
import traceback
from collections.abc import Sequence
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "mutations.toml"
PROJECT = ("cfljax", "theory")

Mutation = dict[str, Any]  # an entry of the table


@functools.cache
def mutations() -> tuple[Mutation, ...]:
    """The table's entries."""
    return tuple(tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutation"])


class Flip(NamedTuple):
    """A verdict, or that of a control or proof, which is another than expected."""

    row: str
    part: str  # "verdict", "control" or "proof"
    status: str
    raised: bool  # whether it is an error of the check, which has no trials


class Checked(NamedTuple):
    """What the command line said."""

    code: int
    flips: list[Flip]

    @property
    def outcome(self) -> str:
        """One of "caught", where a verdict is decided otherwise or a proof fails,
        "undecided", where a verdict is only left open, "survives", where all are as
        expected, and "raises", where nothing but errors of checks says otherwise."""
        found = {flip.status for flip in self.flips if not flip.raised}
        if not found:
            return "raises" if self.code else "survives"
        return "undecided" if found == {"inconclusive"} else "caught"


def read_flips(document: dict[str, Any]) -> list[Flip]:
    """The surprises in a JSON document of `theory check`."""
    found = []
    for row in document["statements"]:
        opposite = "holds" if row["expected"] == "violated" else "violated"
        for part, expected in (("verdict", row["expected"]), ("control", opposite)):
            status, trials = row[part]["status"], row[part]["num_trials"]
            if status != expected:
                found.append(Flip(row["id"], part, status, trials == 0))
        proof = row["proof"]
        if proof and not proof["complete"]:
            raised = any(step["method"] == "none" for step in proof["steps"])
            status = "fails" if proof["control_fails"] else "proves too much"
            found.append(Flip(row["id"], "proof", status, raised))
    return found


class Planter:
    """The process that is forked, to be used as a context: it ends with that.

    Args:
      programs: folder of compiled programs, which any number of planters may share.
    """

    def __init__(self, programs: pathlib.Path) -> None:
        # One thread for products: a process with more should not be forked.
        env = os.environ | {"CFLJAX_CACHE": str(programs), "OMP_NUM_THREADS": "1"}
        env.pop("XLA_FLAGS", None)
        self._process = subprocess.Popen(
            [sys.executable, __file__],
            cwd=ROOT,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Planter":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # closes its input, and so ends it

    def check(self, rows: Sequence[str], file: str = "", source: str = "") -> Checked:
        """What `theory check ROW --json` says where a file has another source, for one
        row after the other until one catches it.

        Raises:
          RuntimeError: if the command comes to no verdicts, as with a row that is not
            there or a source that cannot be imported; with what it printed.
        """
        request = {"rows": list(rows), "file": file, "source": source}
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["code"] != 0:
            raise RuntimeError(f"exit status {answer['code']}: {answer['errors']}")
        code, flips = json.loads(answer["found"])
        return Checked(code, [Flip(*flip) for flip in flips])

    def plant(self, one: Mutation) -> Checked:
        """What is said with the error of an entry.

        Raises:
          RuntimeError: as `check`.
        """
        source = (ROOT / one["file"]).read_text(encoding="utf-8")
        return self.check(
            one["rows"], one["file"], source.replace(one["old"], one["new"])
        )


# In the process that is forked.


class _Planted(importlib.machinery.SourceFileLoader):
    """Loads a module from a text, and keeps no bytecode of it."""

    def __init__(self, name: str, path: pathlib.Path, source: str) -> None:
        super().__init__(name, str(path))
        self._source = source

    def get_code(self, fullname: str) -> Any:
        return compile(self._source, self.path, "exec", dont_inherit=True)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one module of the project, with another source."""

    def __init__(self, file: str, source: str) -> None:
        path = pathlib.PurePath(file).with_suffix("")
        parts = path.parts[:-1] if path.name == "__init__" else path.parts
        self.name = ".".join(parts)
        self._loader = _Planted(self.name, ROOT / file, source)

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        if fullname != self.name:
            return None
        return importlib.util.spec_from_loader(fullname, self._loader)


def _import_all() -> None:
    """What checks need, of others and, where it computes nothing, of the project."""
    names = "flint jax.numpy matplotlib.figure scipy.integrate scipy.optimize sympy"
    for name in (*names.split(), "scipy.special", "scipy.stats"):
        importlib.import_module(name)
    for name in ("cfljax.law", "cfljax.engine", "cfljax.intervals", "theory.commands"):
        importlib.import_module(name)


def _answer(request: dict[str, Any]) -> Checked:
    """Run the command with the request's source, for each row until one catches it."""
    if request["file"]:
        finder = _Finder(request["file"], request["source"])
        sys.meta_path.insert(0, finder)
        if finder.name in sys.modules:  # then others have been made with the old one
            for name in list(sys.modules):
                if name.partition(".")[0] in PROJECT:
                    del sys.modules[name]
    command = importlib.import_module("theory.__main__")
    found = Checked(0, [])
    for row in request["rows"]:
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            code = command.main(["check", row, "--json"])
        if code not in (0, 1):
            raise SystemExit(code)
        flips = found.flips + read_flips(json.loads(printed.getvalue()))
        found = Checked(max(found.code, code), flips)
        if found.outcome == "caught":
            break
    return found


def _forked(request: dict[str, Any]) -> dict[str, Any]:
    """What a child has found, its exit status, and what went wrong."""
    with tempfile.TemporaryFile("w+") as found, tempfile.TemporaryFile("w+") as errors:
        child = os.fork()
        if child == 0:
            os.dup2(errors.fileno(), 2)
            code = 3
            try:
                json.dump(_answer(request), found)
                found.flush()
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        found.seek(0)
        errors.seek(0)
        code = os.waitstatus_to_exitcode(status)
        return {"code": code, "found": found.read(), "errors": errors.read()}


def _index_statements() -> None:
    """Make the registry's index, which a child with an error would fill with that."""
    if (child := os.fork()) == 0:
        try:
            importlib.import_module("theory.registry").listed()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


def _serve() -> None:
    """Answer until there are no more requests."""
    sys.path.insert(0, str(ROOT))
    _import_all()
    _index_statements()
    for line in sys.stdin:
        print(json.dumps(_forked(json.loads(line))), flush=True)


if __name__ == "__main__":
    _serve()
