"""The command `cfljax`, or `python -m cfljax`: all that can be done from a shell."""

import argparse
import os
import sys
from collections.abc import Sequence

from cfljax import __version__, applications, command
from cfljax.command import Command, Parser, Program


def program() -> Program:
    """The commands of the experiments and of the statements, under one name.

    Both have a `list`: that of the statements is called `statements` here.
    """
    for name in applications.NAMES:
        applications.find(name)
    from experiments import __main__ as experiments
    from theory import __main__ as theory

    statements = theory.LIST._replace(
        name="statements", examples=("statements", "statements ifca.lem1 --json")
    )
    of_claims = [statements, *(one for one in theory.COMMANDS if one != theory.LIST)]
    completion = Command(
        "completion",
        "print what makes a shell complete commands, ids and flags",
        _add_completion,
        _complete,
        "bash|zsh",
        ("completion bash >> ~/.bashrc", "completion zsh >> ~/.zshrc"),
        "this program",
    )
    return Program(
        "cfljax",
        "Check the theory of clustered federated learning by simulation: run the "
        "papers' experiments, and put their claims to the test.",
        (
            *_below("tables, figures, studies", experiments.COMMANDS),
            *_below("the papers' claims", of_claims),
            completion,
        ),
        f"This is version {__version__}.",
    )


def _below(heading: str, commands: Sequence[Command]) -> list[Command]:
    """Commands that help lists below a heading."""
    return [one._replace(group=heading) for one in commands]


def _add_completion(parser: Parser, words: Sequence[str]) -> None:
    del words
    parser.add_argument("shell", choices=("bash", "zsh"), help="which shell it is for")


def _complete(arguments: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    if arguments.shell == "zsh":  # Whose completion nothing may have started.
        print("(( $+functions[compdef] )) || { autoload -Uz compinit && compinit; }")
    print(shellcode(["cfljax"], shell=arguments.shell))
    return 0


def main(words: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    if "_ARGCOMPLETE" in os.environ:  # A shell asks, by what `completion` has printed.
        command.complete(program())
    return command.main(program(), words)


if __name__ == "__main__":
    sys.exit(main())
