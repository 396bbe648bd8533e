"""Command lines and constructors that are given anything."""

import contextlib
import inspect
import math
import pathlib
import random
import typing
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import test_command_line_properties as properties
from tally import Part, Tally, in_batches

from cfljax.algorithms import REGISTRY
from cfljax.base import ranges

LINES, CALLS = 20_000, 5_000


def _any_words(rng: random.Random) -> list[str]:
    """Words of a line that may be right or wrong."""
    letters = [
        chr(rng.choice((rng.randrange(32, 127), rng.randrange(1, 0x2FF))))
        for _ in range(rng.randrange(7))
    ]
    junk = lambda: "".join(rng.sample(letters, len(letters)))
    choose = lambda some: rng.choice(some) if rng.random() < 0.85 else junk()
    words = lambda: choose(rng.choice((properties.FLAGS, properties.VALUES)))
    line = [choose(properties.COMMANDS), choose(properties.IDS)]
    return line + [words() for _ in range(rng.randrange(6))]


def play_lines(units: range, folder: pathlib.Path, seed: int, harm: bool) -> Tally:
    """Half of the lines are right ones with one fault, which must be refused; the
    others are words by chance, which are read or refused."""
    del folder
    tally = Tally()
    with contextlib.ExitStack() as stack:
        stack.enter_context(properties.nothing_computed())
        stack.enter_context(properties.nothing_checked())
        with pytest.MonkeyPatch.context() as patch:
            if harm:
                patch.setattr("cfljax.command.in_one_line", lambda text: f"{text}\n")
            for unit in units:
                if unit % 2:
                    of, line = properties.bad_line(seed + unit)
                    check = properties.is_refused
                else:
                    of = "any words"
                    line = _any_words(random.Random(seed + unit))
                    check = properties.runs_or_is_refused
                try:
                    check(line)
                    tally.add("refused" if unit % 2 else "right", of)
                except AssertionError as error:
                    told = str(error).splitlines()[0] if str(error) else ""
                    tally.add("silent", of, told, case=repr(line))
                except Exception as error:
                    tally.add("traceback", of, repr(error), case=repr(line))
                if harm and tally.num_bad:
                    break
    return tally


# Constructors


def _wrong(name: str, annotation: Any) -> list[Any]:
    """What an argument of this name must not be."""
    allowed = ranges.range_of(name)
    assert allowed is not None, name
    values: list[Any] = [math.nan, -math.inf, -1, -0.5, -(10**30), np.array([-1.0])]
    values += ["x", "", "nan", b"x", True, [], {}, object()]
    if allowed.is_whole:
        values += [1.5, 2.0000001, np.float64(0.5)]
    if not math.isinf(allowed.high):
        values += [math.inf, 1e300]
    if type(None) not in typing.get_args(annotation):
        values.append(None)
    return values


def _calls() -> Iterator[tuple[str, str, list[Any]]]:
    """Algorithms, their numeric arguments, and what these must not be."""
    for name in sorted(REGISTRY):
        parameters = inspect.signature(REGISTRY[name].constructor).parameters.values()
        for own in parameters:
            if own.name != "task" and ranges._takes_numbers(own.annotation):
                yield name, own.name, _wrong(own.name, own.annotation)


def play_calls(units: range, folder: pathlib.Path, seed: int, harm: bool) -> Tally:
    """Algorithms with one wrong number, which must be refused; every third call is of a
    grid with any axes, which is made as it was asked for or refused."""
    import conformance_cases as conformance

    del folder
    tally, every = Tally(), list(_calls())
    _, truth = conformance.problem()
    with pytest.MonkeyPatch.context() as patch:
        if harm:
            patch.setattr(ranges, "_fault", lambda *_: "")
        for unit in units:
            rng = random.Random(seed + unit)
            if unit % 3 == 2:
                _grid(rng, tally)
                continue
            name, argument, values = rng.choice(every)
            value = rng.choice(values)
            case = f"{name}({argument}={value!r})"
            try:
                conformance.build(name, truth, **{argument: value})
            except ValueError as error:
                is_one = "\n" not in str(error) and argument in str(error)
                kind = "refused" if is_one else "traceback"
                tally.add(kind, name, "" if is_one else repr(error), case=case)
            except Exception as error:
                tally.add("traceback", name, repr(error), case=case)
            else:
                tally.add("silent", name, "it was taken", case=case)
    return tally


def _grid(rng: random.Random, tally: Tally) -> None:
    """A grid with any axes."""
    scalars = (True, False, 0, 1, -3, 2.5, math.nan, math.inf, "", "x", None, b"", [0])
    values = lambda: tuple(rng.choice(scalars) for _ in range(rng.randrange(4)))
    names = ("noise", "clients", "name", "fresh", "seed", "")
    axes = {rng.choice(names): values() for _ in range(rng.randrange(3))}
    try:
        properties.is_a_grid_or_refused(axes)
        tally.add("right", "grid")
    except AssertionError as error:
        tally.add("silent", "grid", str(error)[:200], case=repr(axes))
    except Exception as error:
        tally.add("traceback", "grid", repr(error), case=repr(axes))


PARTS: dict[str, Part] = {
    "lines": Part(
        "command lines with one fault, or of any words",
        LINES,
        in_batches(play_lines, LINES, 1000),
        {
            "messages of several lines": lambda folder, seed: play_lines(
                range(200), folder, seed, True
            )
        },
    ),
    "constructors": Part(
        "constructors with a wrong number, and grids with any axes",
        CALLS,
        in_batches(play_calls, CALLS, 500),
        {"no ranges": lambda folder, seed: play_calls(range(60), folder, seed, True)},
    ),
}
