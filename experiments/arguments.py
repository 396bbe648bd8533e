"""What the experiments' command line takes, and an experiment's own flags."""

import argparse
import contextlib
import difflib
import io
import pathlib
import re
import types
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NoReturn, Union, get_args, get_origin, get_type_hints

from experiments import registry
from experiments.registry import Entry

MINUTES = 240  # Of a worker on a cluster; it is queued again when they are over.
EXAMPLES = """\
examples:
  python -m experiments list
  python -m experiments run ifca.fig3a --preset quick
  python -m experiments run ifca.fig3a --preset quick --convention reference paper
  python -m experiments run ifca.fig3c --num-trials 100 --out results/more --json
  python -m experiments run ifca.table1_mnist --data FOLDER
  python -m experiments run ifca.fig3a --help-config
  python -m experiments run werner.table1 --data FOLDER --loss probability
  python -m experiments bench linear
  python -m experiments compare --algorithms fedavg,ifca,ditto:penalty=.1 \\
      --data fashion_mnist --partition label_skew_1 --folder FOLDER
  python -m experiments compare --data digits --algorithms local,fedavg,clove \\
      --num-samples 20 --num-validation-samples 5 --num-test-samples 8 \\
      --step-sizes .1 .03 --search fedavg:proximal=0,.1
  python -m experiments compare --help-config
  python -m experiments ledger --stores FOLDER
  python -m experiments gallery --data FOLDER
  python -m experiments gallery werner.fig4 clove.fig3 --out results/figures
  python -m experiments gallery ifca.fig4 --preset paper --data FOLDER --store FOLDER

as many trials as each cell needs for an interval shorter than .2, at most 1000:
  python -m experiments run ifca.fig3a --num-trials 1000 --precision .2

two workers on one store, on machines that share FOLDER; then the table:
  python -m experiments run ifca.fig3c --preset paper --out FOLDER --shard 1/2
  python -m experiments run ifca.fig3c --preset paper --out FOLDER --shard 2/2
  python -m experiments run ifca.fig3c --preset paper --out FOLDER

A run that was cut off, by whatever, resumes where it stopped when it is started again.
Exit status: 0 done; 1 cells failed; 2 bad input or nowhere to write; 130 stopped.
"""
LAUNCH_EXAMPLES = """\
examples:
  python -m experiments launch ifca.fig3a --workers 8 --preset paper --dry-run
  python -m experiments launch ifca.fig3a --workers 8 --preset paper --out FOLDER \\
      --partition NAME --time 240 --cpus 4 --memory-gib 16
  python -m experiments launch ifca.fig3c --workers 2 --local --num-trials 100

All other flags are those of `run` and of the experiment; FOLDER must be seen by all
machines. Slurm is not needed for --dry-run and --local.
"""


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"error: {message}; see {self.prog} --help\n")


def parser() -> argparse.ArgumentParser:
    """The options that all experiments share; the rest is the experiment's own."""
    top = Parser(
        prog="python -m experiments",
        description="Regenerate the papers' tables and figures, and benchmarks.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (
        ("list", "list the experiments and benchmarks"),
        ("run", "run an experiment"),
        ("bench", "run a benchmark"),
        ("compare", "compare algorithms on data and sizes of your own"),
        ("launch", "run an experiment by several workers, on a Slurm cluster or here"),
        ("ledger", "all published numbers beside ours, with verdicts and commands"),
        ("gallery", "a folder of figures and tables for each experiment, and a page"),
    ):
        command = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=LAUNCH_EXAMPLES if name == "launch" else EXAMPLES,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        if name == "launch":
            _add_workers(command)
            continue
        command.add_argument("--json", action="store_true", help="one JSON document")
        if name == "ledger":
            _add_ledger(command)
            continue
        if name == "gallery":
            _add_gallery(command)
            continue
        command.add_argument(
            "--no-cache",
            action="store_true",
            help="compile anew; else compiled programs are kept in CFLJAX_CACHE, a "
            "folder or off (by default cfljax in the user's cache)",
        )
        if name == "list":
            continue
        _add_subject(command, name)
        command.set_defaults(precision=None, shard=None, plan=False)
        if name == "run":
            _add_precision(command)
        if name != "bench":
            _add_share(command)
        _add_resources(command)
    return top


def _add_ledger(command: argparse.ArgumentParser) -> None:
    """Where the ledger's numbers are, and where it goes."""
    folder: dict[str, Any] = {"type": pathlib.Path, "metavar": "FOLDER"}
    command.add_argument(
        "--stores",
        nargs="+",
        help="of results; figures/ledger/store by default, if it is there",
        **folder,
    )
    command.add_argument(
        "--out",
        default=pathlib.Path("figures", "ledger"),
        help="of the ledger's files; figures/ledger by default",
        **folder,
    )
    command.add_argument("--traceback", action="store_true", help="of an error")


def _add_gallery(command: argparse.ArgumentParser) -> None:
    """What the gallery shall have, and where it goes."""
    folder: dict[str, Any] = {"type": pathlib.Path, "metavar": "FOLDER"}
    command.add_argument(
        "ids", nargs="*", metavar="ID", help="see `list`; all by default"
    )
    command.add_argument(
        "--out",
        default=pathlib.Path("figures"),
        help="of the gallery; figures by default. What is there of the paper's size "
        "stays, what is damaged or of another size is made again",
        **folder,
    )
    command.add_argument(
        "--preset",
        choices=registry.PRESETS,
        default="quick",
        help="of what is made; quick by default",
    )
    command.add_argument(
        "--page", action="store_true", help="make nothing, only write the page again"
    )
    command.add_argument("--data", help="of real data", **folder)
    command.add_argument(
        "--store", help="of results; results/store by default", **folder
    )
    command.add_argument("--traceback", action="store_true", help="of an error")


def _add_subject(command: argparse.ArgumentParser, name: str) -> None:
    """What is run, on which data, and where the results go."""
    folder: dict[str, Any] = {"type": pathlib.Path, "help": "folder of real data"}
    if name == "compare":  # Where `--data` is the name of the set.
        command.set_defaults(id="", preset="quick")
        command.add_argument("--folder", dest="data", **folder)
    else:
        ids = registry.EXPERIMENTS if name == "run" else registry.BENCHMARKS
        first = next(iter(ids))
        command.add_argument("id", metavar="ID", help=f"see `list`, e.g. {first}")
        command.add_argument("--preset", choices=registry.PRESETS, default="quick")
        command.add_argument("--data", **folder)
    command.add_argument("--out", type=pathlib.Path, help="folder of the results")
    command.add_argument(
        "--store",
        type=pathlib.Path,
        help="for sweeps and neural networks: folder in which they look for what is "
        "computed and put the rest; by default `store` in the folder of the results if "
        "that is given, else results/store, where all experiments find each other's",
    )
    command.add_argument(
        "--accept-code",
        metavar="WHY",
        help="complete cells of the store that other code began, which is recorded "
        "with the reason",
    )


def _add_precision(command: argparse.ArgumentParser) -> None:
    """What sweeps alone have a use for, see `registry.Entry`."""
    command.add_argument(
        "--precision",
        type=float,
        metavar="W",
        help="for sweeps: stop the trials of a cell when its interval, which allows "
        "for that, is narrower than W; never by default",
    )


def _add_share(command: argparse.ArgumentParser) -> None:
    """What sweeps and experiments with jobs have a use for."""
    command.add_argument(
        "--shard",
        type=_shard,
        metavar="I/N",
        help="be worker I of N on one store, and write no table",
    )
    command.add_argument(
        "--plan",
        action="store_true",
        help="for neural networks: print cells, what the store has, and core-hours to "
        "the end, from a round or two that are measured here; store nothing",
    )


def _add_resources(command: argparse.ArgumentParser) -> None:
    """What a run may use, and what it says."""
    command.add_argument("--chunk", type=int, help="trials per compiled call")
    command.add_argument("--memory", type=float, metavar="GIB", help="limit")
    command.add_argument(
        "--devices",
        type=int,
        metavar="N",
        help="cores or accelerators that clients are spread over, for experiments "
        "with neural networks, or trials, for sweeps; all by default, but one core "
        "for sweeps, whose results do not depend on it",
    )
    command.add_argument("--traceback", action="store_true", help="of an error")
    command.add_argument(
        "--help-config", action="store_true", help="flags of this experiment"
    )


def _shard(text: str) -> tuple[int, int]:
    """`(I, N)` of "I/N"; their range is checked with the other options."""
    match = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text, re.ASCII)
    if match is None:
        raise argparse.ArgumentTypeError(f"must be like 2/8, got {text!r}")
    return int(match[1]), int(match[2])


def _add_workers(command: argparse.ArgumentParser) -> None:
    """What `launch` takes; all else is each worker's."""
    command.add_argument("id", metavar="ID", help="see `list`, e.g. ifca.fig3a")
    command.add_argument("--workers", type=int, required=True, metavar="N")
    command.add_argument("--preset", choices=registry.PRESETS, default="quick")
    command.add_argument("--out", type=pathlib.Path, help="folder of the results")
    for name, unit, text in (
        ("--time", "MINUTES", f"limit of a worker; {MINUTES} on a cluster by default"),
        ("--cpus", "N", "cores of a worker"),
        ("--gpus", "N", "accelerators of a worker; none by default"),
        ("--memory-gib", "GIB", "memory of a worker"),
    ):
        command.add_argument(name, type=int, metavar=unit, help=text)
    command.add_argument("--partition", metavar="NAME", help="of the cluster")
    where = command.add_mutually_exclusive_group()
    where.add_argument("--local", action="store_true", help="run all here, and wait")
    where.add_argument(
        "--dry-run", action="store_true", help="print the script, submit nothing"
    )
    command.add_argument("--traceback", action="store_true", help="of an error")


def find(entries: Mapping[str, Entry], name: str) -> Entry:
    """The entry of an id; ValueError naming the nearest ids if there is none."""
    if name in entries:
        return entries[name]
    near = difflib.get_close_matches(name, entries, n=3, cutoff=0.4) or list(entries)
    raise ValueError(f"unknown id {name!r}; nearest: {', '.join(near)}.")


def configure(entry: Entry, arguments: argparse.Namespace, rest: Sequence[str]) -> Any:
    """The experiment's configuration: its preset, changed by its own flags."""
    import tyro  # Not above: listing and help have no use for it.

    default = entry.load().preset(arguments.preset)
    rest = ["--help"] if arguments.help_config else rest
    asked = (arguments.command, *filter(None, [arguments.id]))
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                type(default),
                args=list(rest),
                default=default,
                prog=" ".join(("python -m experiments", *asked)),
            )
    except SystemExit as stop:
        if not stop.code:
            raise  # Help was asked for and given.
        told = _one_line(complaint.getvalue())
        told = _refused(told, type(default), rest) or told
        raise ValueError(f"{told} See --help-config for all flags.") from None


def _one_line(box: str) -> str:
    """The message inside the box that tyro draws around an error."""
    inside = [line.strip("│╭╮╰╯─ \n") for line in box.splitlines()]
    # Where the terminal has no box, a line of dashes is still drawn.
    _, *message = [line for line in inside if line.strip("-")] or ["", "bad flags"]
    text = " ".join(line for line in message if "full helptext" not in line)
    text, _, _ = text.partition(" Argument helptext:")
    return text.removeprefix("Error parsing Config: ").removesuffix(".") + "."


def _refused(told: str, kind: type, rest: Sequence[str]) -> str:
    """What a flag takes and what it got, where tyro could not read its values; "" where
    it complains of something else."""
    match = re.match(r"(?:Error parsing |Missing value for .*')--([\w-]+)[:']", told)
    flag = match[1] if match else ""
    hints = get_type_hints(kind)
    allowed = _allowed(hints.get(flag.replace("-", "_")))
    if not allowed:
        return ""
    got: list[str] = []
    is_its = False
    for word in rest:
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            is_its = name[2:].replace("_", "-") == flag
            got = [value] * bool(equals) if is_its else got
        elif is_its:
            got.append(word)
    return f"`--{flag}` must be {allowed}, got {' '.join(got) or 'nothing'}."


_NAMED: Mapping[Any, str] = {
    int: "a whole number",
    float: "a number",
    str: "a text",
    pathlib.Path: "a path",
}


def _allowed(hint: Any) -> str:
    """Values of a type in words; "" of a type that has none here."""
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if get_origin(hint) in (Union, types.UnionType):
        parts = [_allowed(one) for one in inner if one is not type(None)]
        optional = ["None"] * (type(None) in inner)
        return " or ".join([*optional, *parts]) if all(parts) else ""
    if get_origin(hint) is not tuple:
        return _NAMED.get(hint, "")
    each = _allowed(inner[0])
    if not each or any(one not in (inner[0], ...) for one in inner):
        return ""
    number = "any number of values" if inner[-1] is ... else f"{len(inner)} values"
    return f"{number}, each {each}"
