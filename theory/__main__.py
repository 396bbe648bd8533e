"""Command line of the statement registry: `python -m theory list | check`."""

import argparse
import contextlib
import os
import sys
import time
from collections.abc import Sequence
from typing import NoReturn

from theory import display, registry
from theory.runner import Outcome, run
from theory.statement import Preset, Statement

__all__ = ["main"]

_EXAMPLES = """\
examples:
  python -m theory list                        every statement
  python -m theory check                       check all of them
  python -m theory check ifca.lem1 ifca.eq2    these and the rows below them
  python -m theory check --paper ifca --preset full --seed 7
  python -m theory check --json > verdicts.json

exit status: 0 if every verdict is the expected one and every control is violated,
1 if not, 2 if the command is wrong.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
      argv: arguments after the program's name; those of the process if None.

    Returns:
      Exit status: 0 as expected, 1 a surprise, 2 misuse, 130 interrupted.
    """
    try:
        status = _run(argv)
        if sys.stdout is not None:  # as it is where the shell has closed it
            sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        _complain("interrupted; no verdicts were kept")
        return 130
    except BrokenPipeError:  # the reader has seen enough
        _abandon_output()
        return 0
    except OSError as error:
        _abandon_output()
        _complain(f"cannot write the output: {error.strerror or error}")
        return 2


def _run(argv: Sequence[str] | None) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has already said why
        return int(stop.code or 0)
    try:
        statements = registry.select(options.ids, paper=options.paper)
    except KeyError as error:
        return _unknown(error.args[0], is_paper=error.args[0] == options.paper)
    if options.command == "list":
        return _list(statements, as_json=options.json)
    preset = Preset(options.preset, options.seed)
    return _check(statements, preset, as_json=options.json)


def _complain(message: str) -> None:
    with contextlib.suppress(OSError):  # with nowhere to say it, the status remains
        print(f"error: {message}", file=sys.stderr)


def _abandon_output() -> None:
    """What is left in the buffer would fail once more when the process ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        _complain(f"{' '.join(message.split())}; see {self.prog} --help")
        self.exit(2)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="python -m theory",
        description="List published statements, or put them to the test.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    shared = _Parser(add_help=False)
    shared.add_argument(
        "ids",
        nargs="*",
        metavar="ID",
        help="a statement, or a name that takes every statement below it; all if none",
    )
    shared.add_argument("--paper", metavar="NAME", help="only this paper's statements")
    shared.add_argument("--json", action="store_true", help="print one JSON document")
    plain = argparse.RawDescriptionHelpFormatter
    commands.add_parser(
        "list",
        parents=[shared],
        help="show id, place, expected verdict and text",
        epilog=_EXAMPLES,
        formatter_class=plain,
    )
    check = commands.add_parser(
        "check",
        parents=[shared],
        help="run the checks and their controls",
        epilog=_EXAMPLES,
        formatter_class=plain,
    )
    check.add_argument(
        "--preset",
        choices=("quick", "full"),
        default="quick",
        help="seconds or minutes on two cores (default: quick)",
    )
    check.add_argument(
        "--seed",
        type=_seed,
        default=0,
        metavar="N",
        help="of all random numbers, at least 0 (default: 0)",
    )
    return parser


def _seed(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(
            f"must be an integer of at least 0, got {text!r}"
        )
    return int(text)


def _unknown(name: str, *, is_paper: bool) -> int:
    kind = "paper" if is_paper else "statement"
    known = registry.all_statements()
    papers = sorted({row.paper for row in known})
    names = papers if is_paper else registry.nearest(name)
    _complain(f"unknown {kind} {name!r}; nearest: {', '.join(names)}")
    return 2


def _list(statements: Sequence[Statement], *, as_json: bool) -> int:
    if as_json:
        print(display.statements_document(statements))
    else:
        display.show_statements(statements)
    return 0


def _check(statements: Sequence[Statement], preset: Preset, *, as_json: bool) -> int:
    start = time.perf_counter()
    outcomes: list[Outcome] = []
    with display.LateProgress() as progress:
        task = progress.add_task("checking", total=len(statements))
        for outcome in run(statements, preset):
            outcomes.append(outcome)
            progress.advance(task)
    seconds = time.perf_counter() - start
    surprises = [row for row in outcomes if not row.as_expected]
    if as_json:
        print(display.outcomes_document(outcomes, preset, seconds=seconds))
    else:
        display.show_outcomes(outcomes)
        display.print_summary(outcomes, preset, seconds=seconds)
    return 1 if surprises else 0


if __name__ == "__main__":
    sys.exit(main())
