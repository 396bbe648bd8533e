"""A command line of several commands: what is asked for is read, done, or refused.

Of the commands only the one that was asked for builds its parser, so that help and
refusals are there at once. Nothing here imports JAX, or anything else that is slow.
"""

import argparse
import contextlib
import difflib
import errno
import io
import itertools
import os
import platform
import re
import resource
import shlex
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, NoReturn

__all__ = [
    "STATUSES",
    "Command",
    "MisuseError",
    "Parser",
    "Program",
    "at_least",
    "check_addresses",
    "complain",
    "complete",
    "in_one_line",
    "integer",
    "main",
    "number",
    "overview",
    "parse",
    "parser_of",
    "shown",
]

# What a command may end with. An error that has an `exit_status` of its own, such as a
# `SweepError`, is told of and ends with that.
STATUSES = {
    0: "done, or as expected",
    1: "something failed, or was not as expected",
    2: "bad input, nowhere to write, or too little memory",
    3: "the cluster's scheduler, or another process, was lost",
    70: "an internal error: a fault of the program",
    130: "stopped",
    141: "the reader of the output has left",
}
_REFUSED, _INTERNAL, _STOPPED, _LEFT = 2, 70, 130, 141
# Addresses, in GiB, that JAX's libraries take for themselves on a machine of two cores:
# with 2.9 they end the process where they are refused some, with 3.8 they do not.
_ADDRESSES = 3.7
_WIDTH = 88  # Of help that nobody's terminal cuts.
_LONGEST = 300  # Letters of a path, or of what an internal error says, in a message.
# What errors say, besides those that are a `MemoryError`, where memory was refused.
_NO_MEMORY = re.compile(
    "RESOURCE_EXHAUSTED|[Cc]annot allocate memory|failed to map segment|bad_alloc"
    "|can't start new thread|[Oo]ut of memory"
)


class Command(NamedTuple):
    """One command, the first word behind the program.

    name: that word.
    help: what it does, in one line.
    add: adds its flags to its parser, which it may choose by the words behind its name.
    execute: does it; returns the exit status.
    usage: what follows its name where that is more than flags.
    examples: lines without the program's name, each what may follow it.
    group: heading below which the program's help lists it.
    stopped: what is said when it is interrupted, unless it says something itself.
    """

    name: str
    help: str
    add: "Callable[[Parser, Sequence[str]], None]"
    execute: Callable[[argparse.Namespace], int]
    usage: str = "[FLAGS]"
    examples: tuple[str, ...] = ()
    group: str = "commands"
    stopped: str = "stopped"


class Program(NamedTuple):
    """What is called: its name as typed, what it is for, its commands, and a note below
    its help."""

    name: str
    help: str
    commands: tuple[Command, ...]
    note: str = ""

    def find(self, word: str) -> Command:
        """The command of a name; ValueError naming the nearest if there is none."""
        names = {command.name: command for command in self.commands}
        if word in names:
            return names[word]
        near = difflib.get_close_matches(word, names, n=3, cutoff=0.5) or list(names)
        raise MisuseError(
            f"unknown command {word!r}; nearest: {', '.join(near)}; see "
            f"{self.name} --help"
        )


class MisuseError(ValueError):
    """What was typed cannot be read."""


class Parser(argparse.ArgumentParser):
    """Reads the words of one command: no abbreviations, no flag twice, and whatever is
    wrong is a `MisuseError` of one line."""

    def __init__(self, **options: Any) -> None:
        """With argparse's own options."""
        form = lambda prog: argparse.RawDescriptionHelpFormatter(
            prog, max_help_position=28, width=_width()
        )
        super().__init__(allow_abbrev=False, formatter_class=form, **options)
        self._positionals.title, self._optionals.title = "words", "help"
        # Values, not flags: argparse knows no exponent and no infinity.
        self._negative_number_matcher = re.compile(r"^-(\d|\.\d|inf$|nan$)[\w.+-]*$")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse, but a flag that comes twice is refused."""
        words = sys.argv[1:] if args is None else list(args)
        seen = set()
        for word in itertools.takewhile(lambda word: word != "--", words):
            flag = word if word in self._option_string_actions else word.split("=")[0]
            action = self._option_string_actions.get(flag)
            if action in seen:
                self.error(f"{flag} is given twice, or contradicted")
            if action is not None:
                seen.add(action)
        return super().parse_known_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        """Raises `MisuseError`."""
        raise MisuseError(f"{in_one_line(message)}; see {self.prog} --help")


def integer(text: str) -> int:
    """An integer as people write it; for a flag's `type`."""
    if not re.fullmatch(r"[+-]?[0-9]{1,4000}", text):
        raise argparse.ArgumentTypeError(f"must be an integer, got {shown(text)}")
    return int(text)


def number(text: str) -> float:
    """A number, nan and inf included, which whoever uses it may refuse."""
    try:
        if "_" in text or not text.isascii():
            raise ValueError
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a number, got {shown(text)}"
        ) from None


def at_least(least: int) -> Callable[[str], int]:
    """Reads integers that are not below one."""

    def read(text: str) -> int:
        with contextlib.suppress(argparse.ArgumentTypeError):
            if (value := integer(text)) >= least:
                return value
        raise argparse.ArgumentTypeError(
            f"must be an integer of at least {least}, got {shown(text)}"
        )

    return read


def check_addresses() -> None:
    """Raises MemoryError where `ulimit -v` leaves less than JAX takes, whose libraries
    do not say so but end the process. To be called before it is imported."""
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < _ADDRESSES * 2**30:
        raise MemoryError(
            f"`ulimit -v` leaves {limit / 2**30:.3g} GiB of addresses, and JAX alone "
            f"takes {_ADDRESSES:g}; raise it: `--memory` bounds what is computed"
        )


def shown(text: str) -> str:
    """What was typed, in quotes and cut to a line's length."""
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


def in_one_line(text: object) -> str:
    """A message of whatever form, on one line."""
    return " ".join(str(text).split())


def parser_of(program: Program, command: Command, words: Sequence[str]) -> Parser:
    """The parser of a command; `words` follow the command's name."""
    name = f"{program.name} {command.name}"
    lines = [f"  {program.name} {example}" for example in command.examples]
    parser = Parser(
        prog=name,
        usage=f"{name} {command.usage}".strip().replace("%", "%%"),
        description=textwrap.fill(f"{command.help[:1].upper()}{command.help[1:]}."),
        epilog="\n".join(["examples:", *lines] if lines else []),
    )
    command.add(parser, words)
    parser.add_argument(
        "--traceback",
        action="store_true",
        help="where it is refused or fails, show where in the code as well",
    )
    return parser


def parse(program: Program, words: Sequence[str]) -> argparse.Namespace:
    """What was asked for; `command` is the command's name.

    Raises:
      MisuseError: if the words cannot be read, in one line.
      SystemExit: if they ask for help, which is then printed.
    """
    first, *rest = [*words, ""][: len(words) or 1]
    if first in ("-h", "--help"):
        print(overview(program))
        raise SystemExit(0)
    if not words or first.startswith("-"):
        names = ", ".join(command.name for command in program.commands)
        got = shown(first) if words else "nothing"
        raise MisuseError(
            f"the first word must be a command, {names}, got {got}; see "
            f"{program.name} --help"
        )
    command = program.find(first)
    arguments = parser_of(program, command, rest).parse_args(rest)
    arguments.command = first
    return arguments


def complete(program: Program) -> None:
    """Answer a shell that asks, in argcomplete's way, how a line may go on; ends the
    process."""
    import argcomplete

    typed = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0"))]
    first, *rest = [*typed.split()[1:], ""]
    top = Parser(prog=program.name)
    choices = top.add_subparsers()
    for one in program.commands:
        parser = choices.add_parser(one.name, help=one.help)
        if one.name == first:
            with contextlib.suppress(ValueError):  # Of an id that is not whole yet.
                one.add(parser, [word for word in rest if word])
    argcomplete.autocomplete(top, always_complete_options=False)


def overview(program: Program) -> str:
    """The program's own help: its commands by group."""
    lines = [f"usage: {program.name} COMMAND ...", "", *_filled(program.help)]
    width = max(len(command.name) for command in program.commands) + 4
    for group in dict.fromkeys(command.group for command in program.commands):
        lines += ["", f"{group}:"]
        for command in program.commands:
            if command.group == group:
                lines += _filled(command.help, f"  {command.name}".ljust(width))
    lines += [
        "",
        f"`{program.name} COMMAND --help` has a command's flags and examples.",
    ]
    told = "; ".join(f"{status} {text}" for status, text in STATUSES.items())
    lines += [*filter(None, [program.note]), *_filled(f"Exit status: {told}.")]
    return "\n".join(lines)


def main(program: Program, words: Sequence[str] | None = None) -> int:
    """Read the words, do what they ask for, and say in one line what went wrong.

    Args:
      program: what was called.
      words: behind the program's name; those of this process if None.

    Returns:
      The exit status, one of `STATUSES`. Of an internal error, which is any that nobody
      has foreseen, the line names a file with the place in the code.
    """
    words = sys.argv[1:] if words is None else list(words)
    if sys.stdout is None:  # What it opens next would take the output's place.
        complain(
            "cannot write the output: it is closed; `>/dev/null` throws it away",
            words=words,
        )
        return _REFUSED
    if isinstance(sys.stdout, io.TextIOWrapper):  # Of letters that it does not have.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _status(program, words)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt as stop:
        complain(str(stop) or "stopped", words=words, prefix="")
        return _STOPPED
    except BrokenPipeError:
        _abandon_output()
        return _LEFT
    except Exception as error:
        return _refuse(program, words, error)


def _refuse(program: Program, words: Sequence[str], error: Exception) -> int:
    """Say what is wrong; the exit status."""
    status = getattr(error, "exit_status", _REFUSED)
    if _lacks_memory(error):
        said = f": {error}" if str(error) else ""
        complain(f"too little memory{_cut(said)}", words=words)
    elif isinstance(error, OSError) and error.errno is not None:
        if error.filename is None:  # It was the output.
            _abandon_output()
            complain(f"cannot write the output: {error.strerror}", words=words)
        else:
            path = _cut(str(error.filename))
            complain(f"cannot use {path}: {error.strerror}", words=words)
    elif isinstance(error, (OSError, ValueError, OverflowError)) or hasattr(
        error, "exit_status"
    ):
        complain(str(error) or type(error).__name__, words=words)
    else:
        status = _INTERNAL
        complain(
            f"internal, {type(error).__name__}: {_cut(in_one_line(error))}; "
            f"{_report(program, words)}",
            words=words,
        )
    return status


def _lacks_memory(error: BaseException | None) -> bool:
    """Whether an error, or what it came from, is that memory was refused."""
    while error is not None:
        if isinstance(error, MemoryError) or getattr(error, "errno", 0) == errno.ENOMEM:
            return True
        kinds = (RuntimeError, ImportError, OSError)
        if isinstance(error, kinds) and _NO_MEMORY.search(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return False


def _report(program: Program, words: Sequence[str]) -> str:
    """Write down where an error, the one at hand, came from; what to do with that."""
    from cfljax import __version__

    told = (
        f"{shlex.join([program.name, *words])}\ncfljax {__version__}, Python "
        f"{platform.python_version()}, {platform.platform()}\n{traceback.format_exc()}"
    )
    try:
        handle, name = tempfile.mkstemp(prefix="cfljax-", suffix=".txt")
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(told)
    except OSError:  # The disk is full, say.
        return "--traceback shows where; please report it"
    return f"{name} says where; please report it with that file"


def _cut(text: str) -> str:
    """The text, without its middle where that is too long for a line."""
    half = _LONGEST // 2
    return text if len(text) <= _LONGEST else f"{text[:half]}...{text[-half:]}"


def _status(program: Program, words: Sequence[str]) -> int:
    try:
        arguments = parse(program, words)
    except SystemExit as stop:  # After help.
        return int(stop.code or 0)
    command = program.find(arguments.command)
    try:
        return command.execute(arguments)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(str(stop) or command.stopped) from None


def complain(
    message: object, *, words: Sequence[str] = (), prefix: str = "error: "
) -> None:
    """Say in one line what is wrong, below where it happened if `words` ask for that;
    with nowhere to say it, the exit status remains."""
    if sys.stderr is None:  # As it is where the shell has closed it.
        return
    try:
        if "--traceback" in words:
            traceback.print_exc()
        print(f"{prefix}{in_one_line(message)}", file=sys.stderr)
    except OSError:
        pass


def _filled(text: str, start: str = "") -> list[str]:
    """Lines of a text behind a word."""
    return textwrap.wrap(
        text, _width(), initial_indent=start, subsequent_indent=" " * len(start)
    )


def _width() -> int:
    """Columns of help."""
    try:
        return max(40, min(int(os.environ.get("COLUMNS", _WIDTH)), 120))
    except ValueError:
        return _WIDTH


def _abandon_output() -> None:
    """What is left in the buffer would fail once more when the process ends."""
    with contextlib.suppress(OSError):  # Of an output that is no file.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
