"""Command line of the statement registry: `python -m theory COMMAND`."""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from cfljax import command
from cfljax.command import Command, Parser, Program, at_least, number

_PRESETS = ("quick", "full")


def execute(arguments: argparse.Namespace) -> int:
    """Do what was asked for; 0 if verdicts, controls and proofs are as expected, else
    1."""
    try:
        return _execute(arguments)
    except KeyboardInterrupt:
        kept = getattr(arguments, "keep", None) or getattr(arguments, "out", None)
        what = "the same command goes on" if kept else "no verdicts were kept"
        raise KeyboardInterrupt(f"stopped; {what}") from None


def _execute(arguments: argparse.Namespace) -> int:
    if arguments.no_cache:
        os.environ["JAX_ENABLE_COMPILATION_CACHE"] = "false"
    # Late, as help and misuse need not wait for them.
    from cfljax.statements import Preset
    from theory import commands, registry

    rows = _chosen(arguments)
    as_json, asked = arguments.json, arguments.command
    if asked in ("list", "statements"):
        return commands.list_statements(rows, as_json=as_json)
    if asked in ("show", "evaluate"):
        # Whoever names a statement means it alone, not the rows below it.
        named = [row for row in rows if row.id in arguments.ids]
        rows = named if len(named) == len(set(arguments.ids)) > 0 else rows
    statements = registry.load(rows)
    if asked == "evaluate":
        return _evaluate(statements, arguments)
    from cfljax import engine

    engine.keep_programs()
    preset = Preset(arguments.preset, arguments.seed)
    if asked == "show":
        return commands.show(statements, preset, as_json=as_json)
    if asked == "report":
        return commands.report(statements, preset, arguments.out, as_json=as_json)
    keep, count = arguments.keep, arguments.rotations
    if count is not None:
        return commands.rotations(statements, preset, count, as_json=as_json, keep=keep)
    form = "json" if as_json else "csv" if arguments.csv else "table"
    return commands.check(statements, preset, form=form, keep=keep)


def _chosen(arguments: argparse.Namespace) -> Sequence[Any]:
    """What was named; ValueError for a name that takes nothing."""
    from theory import registry

    ids, paper = arguments.ids, arguments.paper
    try:
        return registry.choose(ids, paper=paper)
    except KeyError as error:
        name = error.args[0]
        if error.args[:1] not in [(asked,) for asked in (*ids, paper)]:
            raise  # It is not a name that is unknown.
        kind, names = "statement", registry.nearest(name)
        if name == paper:
            kind, names = "paper", sorted({row.paper for row in registry.listed()})
        raise ValueError(
            f"unknown {kind} {command.shown(name)}; nearest: {', '.join(names)}"
        ) from None


def _evaluate(statements: Sequence[Any], arguments: argparse.Namespace) -> int:
    from theory import evaluations

    asked = evaluations.Asked(
        values=evaluations.read_values(arguments.set or ()),
        sweep=evaluations.read_sweep(arguments.sweep or ()),
        constants=evaluations.read_values(arguments.constants or ()),
        trials=arguments.trials,
        error_rate=arguments.error_rate,
        seed=arguments.seed,
    )
    return evaluations.run(
        evaluations.chosen(statements),
        asked,
        form="json" if arguments.json else "csv" if arguments.csv else "table",
        figure=arguments.figure,
    )


_BELOW = "a statement, or a name that takes all below it (default: all statements)"


def _add_list(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `list`."""
    del words
    _add_subject(parser, _BELOW)


def _add_show(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `show`."""
    del words
    _add_subject(parser, _BELOW)
    _add_preset(parser)
    _add_seed(parser)


def _add_check(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `check`."""
    _add_show(parser, words)
    _add_csv(parser)
    parser.add_argument(
        "--rotations",
        type=at_least(1),
        metavar="N",
        help="check with N seeds, from --seed on, and list the verdicts that change",
    )
    parser.add_argument(
        "--keep",
        type=pathlib.Path,
        metavar="FOLDER",
        help="write every outcome there as it finishes, and go on from those it has",
    )


def _add_report(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `report`."""
    _add_show(parser, words)
    parser.add_argument(
        "--out",
        type=pathlib.Path,
        required=True,
        metavar="FOLDER",
        help="folder of the pages; a later run goes on from the outcomes in it",
    )


def _add_subject(parser: Parser, ids: str) -> None:
    """Which statements, and how they are told."""
    named: Any = parser.add_argument("ids", nargs="*", metavar="ID", help=ids)
    named.completer = _known
    parser.add_argument("--paper", metavar="NAME", help="only this paper's statements")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON document, for programs"
    )
    parser.add_argument(
        "--no-cache",
        action="store_true",
        help="compile everything anew, rather than use programs that earlier runs have "
        "kept in CFLJAX_CACHE (default: `cfljax` in the user's cache)",
    )


def _known(prefix: str, **_: Any) -> list[str]:
    """The ids that a shell may offer."""
    from theory import registry

    return [row.id for row in registry.listed() if row.id.startswith(prefix)]


def _add_preset(parser: Parser) -> None:
    parser.add_argument(
        "--preset",
        choices=_PRESETS,
        default=_PRESETS[0],
        help="effort of a check: seconds or minutes each, on two cores "
        "(default: quick)",
    )


def _add_seed(parser: Parser) -> None:
    parser.add_argument(
        "--seed",
        type=at_least(0),
        default=0,
        metavar="N",
        help="first number of the random generator, at least 0; the same number "
        "repeats the same results (default: 0)",
    )


def _add_csv(parser: Parser) -> None:
    parser.add_argument(
        "--csv", action="store_true", help="print rows for spreadsheets"
    )


def _add_evaluate(parser: Parser, words: Sequence[str]) -> None:
    """The flags of `evaluate`."""
    del words
    _add_subject(
        parser,
        "exactly one statement, or a name above it if nothing else can be evaluated",
    )
    _add_seed(parser)
    _add_csv(parser)
    parser.add_argument(
        "--set",
        nargs="+",
        metavar="NAME=VALUE",
        help="parameters of the claim; `show ID` lists them with their defaults",
    )
    parser.add_argument(
        "--sweep",
        nargs="+",
        metavar="NAME=RANGE",
        help="parameters with several values each: FROM:TO:COUNT, evenly spaced, "
        "FROM:TO:COUNT:log, or values with commas",
    )
    parser.add_argument(
        "--constants",
        nargs="+",
        metavar="NAME=VALUE",
        help="other values for constants that the claim leaves open",
    )
    parser.add_argument(
        "--trials",
        type=at_least(2),
        metavar="N",
        help="simulations at each point (default: 10000, or what takes seconds)",
    )
    parser.add_argument(
        "--error-rate",
        type=number,
        default=1e-6,
        metavar="P",
        help="chance that any interval misses the truth (default: 1e-6)",
    )
    parser.add_argument(
        "--figure",
        type=pathlib.Path,
        metavar="FILE",
        help="draw bound and truth along the first sweep, a line for each value of the "
        "second (svg, png or pdf)",
    )


LIST = Command(
    "list",
    "list the statements with place, expected verdict and text",
    _add_list,
    execute,
    "[ID ...] [FLAGS]",
    ("list", "list ifca.lem1 --json"),
)
COMMANDS = (
    LIST,
    Command(
        "show",
        "show a claim with its reading, proof or evidence, and verdict",
        _add_show,
        execute,
        "ID [FLAGS]",
        ("show ifca.lem1.bound", "show ifca.eq2 --preset full"),
    ),
    Command(
        "evaluate",
        "bound, truth and margins of a claim at parameters of your own",
        _add_evaluate,
        execute,
        "ID [FLAGS]",
        (
            "evaluate ifca.lem1.bound --set alpha=.2 --sweep n=10:1000:20",
            "evaluate ifca.lem1.bound --sweep n=1:1000:9:log rho=.1,1 --csv",
        ),
    ),
    Command(
        "check",
        "put statements to the test, each with its control",
        _add_check,
        execute,
        "[ID ...] [FLAGS]",
        (
            "check",
            "check ifca.lem1 ifca.eq2",
            "check --paper ifca --preset full --seed 7",
            "check --csv > verdicts.csv",
            "check --rotations 20 --keep results/rotations",
        ),
    ),
    Command(
        "report",
        "write all verdicts, proofs and errata as pages for a browser",
        _add_report,
        execute,
        "[ID ...] --out FOLDER [FLAGS]",
        (
            "report --out results/report",
            "report ifca.lem1 --preset full --seed 7 --out results/lemma1",
        ),
    ),
)
PROGRAM = Program(
    "python -m theory",
    "List the papers' statements, or put them to the test.",
    COMMANDS,
    "What is expected are the verdicts of all statements, controls and proofs.",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    return command.main(PROGRAM, argv)


if __name__ == "__main__":
    sys.exit(main())
