"""The command `cfljax`: one program of both applications, its completion, its
dependencies, and the wheel in which all of it travels."""

import ast
import importlib.metadata
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib
import types
import zipfile

import jax
import pytest

from cfljax import applications
from cfljax.__main__ import main, program

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


# Against itself


def test_help_tells_every_command(capsys):
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [command.name for command in program().commands]
    assert len(set(names)) == len(names) and {"list", "run", "check"} <= set(names)
    told = [line.split()[0] for line in lines if re.match(r"  \w", line)]
    assert told == names


@pytest.mark.parametrize("name", [command.name for command in program().commands])
def test_every_command_has_help_with_examples_that_it_can_read(name, capsys):
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"usage: cfljax {name} ")
    command = program().find(name)
    assert command.examples
    for example in command.examples:
        assert example.split()[0] == name and f"\n  cfljax {example}\n" in out


def test_the_statements_have_a_list_of_their_own(capsys):
    assert main(["statements", "ifca.lem1", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["statements"]
    assert [row["id"].rpartition(".")[0] for row in rows] == ["ifca.lem1"] * len(rows)


@pytest.mark.parametrize("words", [[], ["lst"], ["--version", "list"], ["list", "x"]])
def test_wrong_words_are_one_line(words, capsys):
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.count("\n") == 1
    assert printed.err.startswith("error: ") and "see cfljax" in printed.err


def test_data_tells_what_is_here_and_how_to_get_the_rest(monkeypatch, capsys, tmp_path):
    def load(name, folder):
        assert folder == tmp_path
        if name != "mnist":
            raise FileNotFoundError(f"No {name}. Do one of these:\n  get it")
        return types.SimpleNamespace(source="in a file")

    for kind in ("images", "texts", "writers"):
        monkeypatch.setattr(f"cfljax.data.load_{kind}", load)
    assert main(["data", "--data", str(tmp_path), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["is_here"] for row in rows if row["is_here"]} == {
        "mnist": True
    }
    assert main(["data", "--data", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "mnist: handwritten digits; here\n  in a file\n" in out
    for row in rows[1:]:
        assert f"{row['name']}: {row['what']}; not here\n  No {row['name']}." in out
    assert main(["data", "--data", str(tmp_path / "nowhere")]) == 2


# Completion, by the shell itself.

COMPLETE = """
source <({python} -m cfljax completion bash)
cfljax() {{ {python} -m cfljax "$@"; }}
export -f cfljax
COMP_LINE={line} COMP_POINT={point} COMP_TYPE=9
COMP_WORDBREAKS=$' \\t\\n"><=;|&(:'
_python_argcomplete cfljax
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completed(line: str) -> set[str]:
    """What bash offers behind a line."""
    asked = {"python": sys.executable, "line": f"'{line}'", "point": len(line)}
    done = subprocess.run(
        ["bash", "-c", COMPLETE.format(**asked)],
        capture_output=True,
        cwd=ROOT,
        text=True,
        check=True,
    )
    return {word.strip() for word in done.stdout.splitlines() if word.strip()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "among"),
    [
        ("cfljax ru", {"run"}),
        ("cfljax run werner.fig", {f"werner.fig{number}" for number in range(1, 5)}),
        ("cfljax run werner.fig1 --num-r", {"--num-rounds"}),
        ("cfljax check --pres", {"--preset"}),
    ],
)
def test_bash_completes_commands_ids_and_flags(line, among):
    assert completed(line) == among


@pytest.mark.slow
def test_bash_offers_nothing_for_what_is_not_there():
    """Control."""
    assert completed("cfljax run nobody.fig") == set()


def offered(line: str, shell: str) -> list[str]:
    """What is answered to a shell, by argcomplete's own protocol: on descriptor 8,
    with descriptions behind a colon for zsh."""
    asked = {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_IFS": "\n",
        "_ARGCOMPLETE_SHELL": shell,
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_TYPE": "9",
    }
    ask = f"{sys.executable} -m cfljax 8>&1 9>/dev/null >/dev/null"
    done = subprocess.run(
        ["sh", "-c", ask],
        capture_output=True,
        cwd=ROOT,
        env=os.environ | asked,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh"])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cfljax ru", ["run"]),
        ("cfljax check --pres", ["--preset"]),
        ("cfljax check clove.ro", ["clove.rounds", "clove.rounds.corrected"]),
        ("cfljax check nobody", []),  # Control.
    ],
)
def test_a_shell_that_asks_is_answered(line, expected, shell):
    found = offered(line, shell)
    assert [word.split(":")[0].strip() for word in found] == expected
    assert all((":" in word) == (shell == "zsh") for word in found)


def test_completion_is_printed_for_both_shells(capsys):
    for shell in ("bash", "zsh"):
        assert main(["completion", shell]) == 0
        out = capsys.readouterr().out
        assert "cfljax" in out and ("compinit" in out) == (shell == "zsh")
    assert main(["completion", "fish"]) == 2


# Dependencies: what is imported is declared, what is declared is imported.

# Of `bench`, `slurm`, `log`, `dask` and `s3`, imported late.
EXTRAS = {
    "torch",
    "fedjax",
    "submitit",
    "tensorboardX",
    "wandb",
    "mlflow",
    "distributed",
    "obstore",
    "dp_accounting",
}
# Needed by what is imported, which does not ask for it; or bound to another's version.
UNSEEN = {"importlib-resources", "jaxlib", "pillow"}
OURS = {"cfljax", "theory", "experiments"}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def imported(source: str) -> set[str]:
    """Top-level names that a source imports, wherever."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found.add(node.module.partition(".")[0])
    return found - set(sys.stdlib_module_names) - OURS


def faults(names: set[str], declared: set[str]) -> set[str]:
    """Imports of what is not declared, and declarations of what is not imported."""
    owners = importlib.metadata.packages_distributions()
    own = {name: {normal(one) for one in owners.get(name, [name])} for name in names}
    missing = {name for name, whose in own.items() if not whose & declared}
    used = {one for whose in own.values() for one in whose}
    return missing | {f"unused {one}" for one in declared - used - UNSEEN}


def every_import() -> set[str]:
    """Of all three packages."""
    sources = (path for name in OURS for path in (ROOT / name).rglob("*.py"))
    return set().union(*(imported(path.read_text()) for path in sources))


def declared() -> set[str]:
    """The distributions that the wheel asks for."""
    names = (re.match(r"[\w.-]+", text) for text in PROJECT["dependencies"])
    return {normal(match[0]) for match in names if match is not None}


@pytest.mark.long
def test_dependencies_are_what_is_imported():
    assert faults(every_import() - EXTRAS, declared()) == set()


@pytest.mark.long
def test_other_dependencies_are_noticed():
    """Control."""
    names = every_import() - EXTRAS
    assert faults(names | {"hypothesis"}, declared()) == {"hypothesis"}
    assert faults(names, declared() | {"tyro"}) == {"unused tyro"}
    assert faults(names, declared() - {"markupsafe"}) == {"markupsafe"}


# What is slow to import and serves one function is imported there.

HEAVY = {
    *("jax", "flax", "optax", "scipy", "sympy", "flint", "sklearn", "pandas"),
    *("xarray", "matplotlib", "tensorflow_datasets", "rich", "jinja2", "PIL"),
}
LOOK = "import sys\n{first}\nprint(*set(sys.modules) & {heavy})"


def brought(first: str) -> set[str]:
    """Which of the heavy modules an import brings."""
    source = LOOK.format(first=first, heavy=HEAVY)
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=True, text=True)
    return set(done.stdout.splitlines()[-1].split())


@pytest.mark.parametrize(
    ("first", "heavy"),
    [
        ("import cfljax", set()),
        ("from cfljax.__main__ import main; main(['--help'])", set()),
        ("from cfljax.__main__ import main; main(['check', '--help'])", set()),
        ("import jinja2", {"jinja2"}),
    ],
)
def test_the_door_and_help_bring_nothing_heavy(first, heavy):
    """Control: what is imported is seen."""
    assert brought(first) == heavy


# The wheel.


def test_an_application_is_found_under_its_own_name_where_it_travels(
    tmp_path, monkeypatch
):
    (tmp_path / "travelling").mkdir()
    (tmp_path / "travelling" / "__init__.py").write_text("x = 5")
    before = list(sys.path)
    found = applications.find("travelling", tmp_path)
    assert found.x == 5 and sys.path == before
    assert applications.find("travelling", tmp_path) is found
    monkeypatch.delitem(sys.modules, "travelling")
    # Control: another package of this name is not taken for it.
    (tmp_path / "json").mkdir()
    (tmp_path / "json" / "__init__.py").write_text("")
    with pytest.raises(ImportError, match="`json` is another package here"):
        applications.find("json", tmp_path)
    assert applications.find("theory").__name__ == "theory"  # As in a checkout.


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> pathlib.Path:
    """The wheel of this tree."""
    out = tmp_path_factory.mktemp("wheel")
    uv = os.environ.get("UV") or shutil.which("uv")  # The first under `uv run`.
    if uv is None:
        pytest.skip("needs uv to make a wheel")
    build = [uv, "build", "--wheel", "-q", "-o", str(out), str(ROOT)]
    subprocess.run(build, check=True, cwd=out)
    return next(out.glob("cfljax-*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory) -> pathlib.Path:
    """The `cfljax` of an environment elsewhere with the wheel, whose dependencies are
    those of this one."""
    place = tmp_path_factory.mktemp("elsewhere")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    (site,) = place.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    # Behind its own packages; a `.pth` there would bring this checkout along.
    borrowed = pathlib.Path(jax.__file__).parents[1]
    linked = [
        path
        for path in borrowed.iterdir()
        if "cfljax" not in path.name and path.suffix != ".pth"
    ]
    for path in linked:
        if not (site / path.name).exists():
            (site / path.name).symlink_to(path)
    script = place / "bin" / "cfljax"
    python = place / "bin" / "python"
    script.write_text(
        f"#!{python}\nimport sys\nfrom cfljax.__main__ import main\nsys.exit(main())\n"
    )
    script.chmod(0o755)
    return script


def typed(script: pathlib.Path, folder: pathlib.Path, *words: str):
    """The command in another folder, and nothing of this checkout on its path."""
    clean = {
        k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "XLA_FLAGS")
    }
    return subprocess.run(
        [str(script), *words], cwd=folder, capture_output=True, text=True, env=clean
    )


TINY = "--num-features 5 --num-clients 4 --num-samples 10 --separation 1 --noise 0.1"
TINY = f"{TINY} --num-trials 2 --num-restarts 2 --num-rounds 5".split()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["list"], "ifca.fig3a"),
        (["run", "werner.fig2", "--num-trials", "2", "--num-rounds", "3"], "wrote"),
        (["bench", "law", "--help"], "--repeats"),
        (["compare", "--help"], "--dataset"),
        (
            [*["launch", "ifca.fig3a", "--workers", "1", "--local"], *TINY],
            "then, for table",
        ),
        (["check", "ifca.eq2.corrected"], "as expected"),
        (["show", "ifca.eq2.corrected"], "claim"),
        (["statements", "ifca.eq2"], "ifca.eq2.corrected"),
        (["evaluate", "ifca.lem1.bound"], "ifca.lem1.bound"),
        (["report", "ifca.eq2.corrected", "--out", "site"], "report: site/index.html"),
        (["ledger", "--out", "ledger"], "wrote"),
        (["data"], "mnist: handwritten digits; not here"),
        (["completion", "bash"], "cfljax"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_installed_wheel_does_everything_anywhere(
    installed, tmp_path, words, said, monkeypatch
):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)
    (tmp_path / "theory.py").write_text("raise ImportError('another package')")
    done = typed(installed, tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout and "Traceback" not in done.stderr


@pytest.mark.slow
def test_an_installed_wheel_without_an_application_says_so(installed, tmp_path):
    """Control: nothing of this checkout helps out."""
    (own,) = installed.parents[1].glob("lib/python*/site-packages/cfljax/applications")
    hidden = own.parent / "hidden"
    own.rename(hidden)
    try:
        done = typed(installed, tmp_path, "list")
        assert done.returncode != 0 and "applications" in done.stderr
    finally:
        hidden.rename(own)


@pytest.mark.slow
def test_a_wheel_has_two_names_and_all_that_is_read(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"cfljax"}
    tracked = subprocess.run(
        ["git", "ls-files", *OURS], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    place = lambda name: re.sub(
        "^(theory|experiments)/", r"cfljax/applications/\1/", name
    )
    assert {place(name) for name in tracked} <= set(names)
