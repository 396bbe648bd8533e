"""Workers of one experiment on a Slurm cluster, or several on this machine.

`python -m experiments launch ID --workers N` starts N times `run ID --shard I/N`. The
workers know nothing of each other: they share the results' folder, and each finished
cell is there to stay. One that is killed loses its open cells only; the same command
again computes what is missing. On a cluster a worker that meets its time limit, or is
preempted, is queued again by itself.
"""

import argparse
import importlib.util
import pathlib
import re
import shlex
import sys
from collections.abc import Sequence
from typing import Any

from experiments.options import Options
from experiments.registry import EXPERIMENTS, PRESETS
from experiments.workers import MINUTES, run_here, script, submit, workers

__all__ = ["add_parser", "main"]

EXAMPLES = """\
examples:
  python -m experiments launch ifca.fig3a --workers 8 --preset paper --dry-run
  python -m experiments launch ifca.fig3a --workers 8 --preset paper --out FOLDER \\
      --partition NAME --time 240 --cpus 4 --memory-gib 16
  python -m experiments launch ifca.fig3c --workers 2 --local --num-trials 100

All other flags are those of `run` and of the experiment; FOLDER must be seen by all
machines. Slurm is not needed for --dry-run and --local.
"""
_NAME = re.compile(r"[\w.,-]+")


def add_parser(commands: "argparse._SubParsersAction[Any]") -> None:
    """Add the command `launch` to those of `python -m experiments`."""
    text = "run an experiment by several workers, on a Slurm cluster or here"
    command = commands.add_parser(
        "launch",
        help=text,
        description=text,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    command.add_argument("id", metavar="ID", help="see `list`, e.g. ifca.fig3a")
    command.add_argument("--workers", type=int, required=True, metavar="N")
    command.add_argument("--preset", choices=PRESETS, default="quick")
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


def main(arguments: argparse.Namespace, rest: Sequence[str]) -> int:
    """Launch what was asked for.

    Args:
      arguments: as parsed by the command of `add_parser`.
      rest: flags of the experiment.

    Returns:
      The exit status: 0, or 1 if a local worker failed.

    Raises:
      ValueError: if anything is wrong with the flags, or submitit or Slurm is missing.
    """
    _check(arguments, rest)
    out = arguments.out or pathlib.Path("results", arguments.id, arguments.preset)
    run = ["run", arguments.id, "--preset", arguments.preset]
    flags = ["--out", str(out), *rest]
    _check_experiment([*run, *flags])
    if importlib.util.find_spec("submitit") is None:
        raise ValueError(
            "`launch` needs submitit; install the extra `slurm`, or it alone: "
            "`python -m pip install submitit`."
        )
    command = [sys.executable, "-m", "experiments", *run]
    team = workers(command, flags, arguments.workers)
    if arguments.dry_run:
        print(script(arguments, out))
        for worker in team:
            print(shlex.join(worker.command))
    elif arguments.local:
        if failed := run_here(arguments, out, team):
            print(f"{failed} of {len(team)} workers failed; launch again to resume")
            return 1
    else:
        print(f"submitted {len(team)} workers: {submit(arguments, out, team)}")
    print(f"then, for table and figures:\n{shlex.join([*command, *flags])}")
    return 0


def _check(arguments: argparse.Namespace, rest: Sequence[str]) -> None:
    for name in ("workers", "time", "cpus", "gpus", "memory_gib"):
        number, flag = getattr(arguments, name), "--" + name.replace("_", "-")
        if number is not None and number < 1:
            raise ValueError(f"`{flag}` must be at least 1, got {number}.")
        if arguments.local and number is not None and name in ("cpus", "memory_gib"):
            raise ValueError(f"`{flag}` has no use with `--local`, got {number}.")
    partition = arguments.partition
    if partition is not None and not _NAME.fullmatch(partition):
        raise ValueError(f"`--partition` must be a name, got {partition!r}.")
    if arguments.local and partition is not None:
        raise ValueError(f"`--partition` has no use with `--local`, got {partition}.")
    if any(re.fullmatch("--shard(=.*)?", flag, re.DOTALL) for flag in rest):
        raise ValueError("`--shard` is each worker's own: ask for `--workers`.")


def _check_experiment(flags: Sequence[str]) -> None:
    """Raises ValueError, or exits in one line, for what every worker would refuse."""
    # Not above: those modules import this one.
    from experiments.__main__ import configure, find
    from experiments.arguments import parser

    arguments, rest = parser().parse_known_args(flags)
    entry = find(EXPERIMENTS, arguments.id)
    if not entry.is_sweep:
        raise ValueError(
            f"`launch` has no use for {arguments.id}: only trials of a sweep can be "
            "shared out."
        )
    configure(entry, arguments, rest)
    Options(
        arguments.out,
        chunk=arguments.chunk,
        devices=arguments.devices,
        precision=arguments.precision,
    )
