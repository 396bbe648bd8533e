"""Command line of the statement registry: `python -m theory COMMAND`."""

import argparse
import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

_EXAMPLES = """\
examples:
  python -m theory list                        every statement
  python -m theory show ifca.lem1.bound        claim, proof, verdict, parameters
  python -m theory evaluate ifca.lem1.bound --set alpha=.2 --sweep n=10:1000:20
  python -m theory evaluate ifca.lem1.bound --sweep n=1:1000:9:log rho=.1,1 --csv
  python -m theory check                       check all of them
  python -m theory check ifca.lem1 ifca.eq2    these and the rows below them
  python -m theory check --paper ifca --preset full --seed 7
  python -m theory check --json > verdicts.json      with every point
  python -m theory check --csv > verdicts.csv
  python -m theory check --rotations 20 --keep results/rotations
  python -m theory report --out results/report
  python -m theory report ifca.lem1 --preset full --seed 7 --out results/lemma1

exit status: 0 if every verdict, control and proof is as expected, 1 if not, 2 if the
command is wrong.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; 0 as expected, 1 a surprise, 2 misuse, 130 interrupted."""
    try:
        status = _run(argv)
        if sys.stdout is not None:  # as it is where the shell has closed it
            sys.stdout.flush()
        return status
    except BrokenPipeError:  # the reader has seen enough
        _abandon_output()
        return 0
    except OSError as error:
        if error.filename is None:  # it was the output
            _abandon_output()
        where = error.filename or "the output"
        _complain(f"cannot write {where}: {error.strerror or error}")
        return 2


def _run(argv: Sequence[str] | None) -> int:
    try:
        options = _parser().parse_args(argv)
    except SystemExit as stop:  # argparse has already said why
        return int(stop.code or 0)
    try:
        return _command(options)
    except ValueError as error:  # of the registry, or of what was asked
        _complain(str(error))
        return 2
    except KeyboardInterrupt:
        kept = getattr(options, "keep", None) or getattr(options, "out", None)
        what = "the same command goes on" if kept else "no verdicts were kept"
        _complain(f"interrupted; {what}")
        return 130


def _command(options: argparse.Namespace) -> int:
    if options.no_cache:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    # Late, as help and misuse need not wait for them.
    from cfljax.statements import Preset
    from theory import commands, registry

    try:
        rows = registry.choose(options.ids, paper=options.paper)
    except KeyError as error:
        if error.args[:1] not in [(name,) for name in (*options.ids, options.paper)]:
            raise  # it is not a name that is unknown
        return _unknown(error.args[0], is_paper=error.args[0] == options.paper)
    as_json = options.json
    if options.command == "list":
        return commands.list_statements(rows, as_json=as_json)
    if options.command in ("show", "evaluate"):
        # Whoever names a statement means it alone, not the rows below it.
        named = [row for row in rows if row.id in options.ids]
        rows = named if len(named) == len(set(options.ids)) > 0 else rows
    statements = registry.load(rows)
    if options.command == "evaluate":
        return _evaluate(statements, options)
    from cfljax import engine

    engine.keep_programs()
    preset = Preset(options.preset, options.seed)
    if options.command == "show":
        return commands.show(statements, preset, as_json=as_json)
    if options.command == "report":
        return commands.report(statements, preset, options.out, as_json=as_json)
    keep, count = options.keep, options.rotations
    if count is not None:
        return commands.rotations(statements, preset, count, as_json=as_json, keep=keep)
    form = "json" if as_json else "csv" if options.csv else "table"
    return commands.check(statements, preset, form=form, keep=keep)


def _evaluate(statements: Sequence[Any], options: argparse.Namespace) -> int:
    from theory import evaluations

    asked = evaluations.Asked(
        values=evaluations.read_values(options.set or ()),
        sweep=evaluations.read_sweep(options.sweep or ()),
        constants=evaluations.read_values(options.constants or ()),
        trials=options.trials,
        error_rate=options.error_rate,
        seed=options.seed,
    )
    return evaluations.run(
        evaluations.chosen(statements),
        asked,
        form="json" if options.json else "csv" if options.csv else "table",
        figure=options.figure,
    )


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
    shared: dict[str, Any] = {
        "epilog": _EXAMPLES,
        "formatter_class": argparse.RawDescriptionHelpFormatter,
    }
    parser = _Parser(
        prog="python -m theory",
        description="List published statements, or put them to the test.",
        **shared,
    )
    names = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing, _, evaluate, check, report = commands = [
        names.add_parser(
            name, help=text, description=f"{text[0].upper()}{text[1:]}.", **shared
        )
        for name, text in (
            ("list", "show id, place, expected verdict and text"),
            ("show", "show a claim with its reading, proof or evidence, and verdict"),
            ("evaluate", "bound, truth and margins of a claim at your own parameters"),
            ("check", "run the checks and their controls"),
            ("report", "write all verdicts as a static site"),
        )
    ]
    for command in commands:
        command.add_argument(
            "ids",
            nargs="*",
            metavar="ID",
            help="the statement, or a name above it if no other below that name can be "
            "evaluated; exactly one"
            if command is evaluate
            else "a statement, or a name that takes every statement below it; all if "
            "none",
        )
        command.add_argument(
            "--paper", metavar="NAME", help="only this paper's statements"
        )
        command.add_argument(
            "--json", action="store_true", help="print one JSON document"
        )
        command.add_argument(
            "--no-cache",
            action="store_true",
            help="compile anew; else compiled programs are kept in CFLJAX_CACHE, a "
            "folder or off (by default cfljax in the user's cache)",
        )
        if command is listing:
            continue
        if command is not evaluate:
            command.add_argument(
                "--preset",
                choices=("quick", "full"),
                default="quick",
                help="seconds or minutes on two cores (default: quick)",
            )
        command.add_argument(
            "--seed",
            type=_at_least(0),
            default=0,
            metavar="N",
            help="of all random numbers, at least 0 (default: 0)",
        )
    _add_evaluation(evaluate)
    for command in (check, evaluate):
        command.add_argument(
            "--csv", action="store_true", help="print comma-separated rows"
        )
    check.add_argument(
        "--rotations",
        type=_at_least(1),
        metavar="N",
        help="run them for N seeds from --seed on, and list verdicts that change",
    )
    check.add_argument(
        "--keep",
        type=pathlib.Path,
        metavar="DIR",
        help="write outcomes there as they finish, and go on from those it has",
    )
    report.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="folder of the site; a later run goes on from the outcomes in it",
    )
    return parser


def _add_evaluation(command: argparse.ArgumentParser) -> None:
    """The options of `evaluate`."""
    command.add_argument(
        "--set",
        nargs="+",
        metavar="NAME=VALUE",
        help="parameters of the claim; `show ID` lists them with their defaults",
    )
    command.add_argument(
        "--sweep",
        nargs="+",
        metavar="NAME=RANGE",
        help="parameters with several values each: FROM:TO:COUNT, evenly spaced, "
        "FROM:TO:COUNT:log, or values with commas",
    )
    command.add_argument(
        "--constants",
        nargs="+",
        metavar="NAME=VALUE",
        help="other values for the claim's constants",
    )
    command.add_argument(
        "--trials",
        type=_at_least(2),
        metavar="N",
        help="of a simulation, at each point (default: 10000, or what takes seconds)",
    )
    command.add_argument(
        "--error-rate",
        type=float,
        default=1e-6,
        metavar="P",
        help="chance that any interval misses (default: 1e-6)",
    )
    command.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="draw bound and truth along the first sweep, a line for each value of the "
        "second (svg, png or pdf)",
    )


def _at_least(least: int) -> Callable[[str], int]:
    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(
                f"must be an integer of at least {least}, got {text!r}"
            )
        return int(text)

    return read


def _unknown(name: str, *, is_paper: bool) -> int:
    from theory import registry

    kind, names = "statement", registry.nearest(name)
    if is_paper:
        kind, names = "paper", sorted({row.paper for row in registry.listed()})
    _complain(f"unknown {kind} {name!r}; nearest: {', '.join(names)}")
    return 2


if __name__ == "__main__":
    sys.exit(main())
