"""`python -m theory evaluate`: what is asked, and the answer as table, JSON or CSV."""

import json
import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from cfljax.statements import Statement, evaluate, plain, site
from theory import display

MOST_VALUES = 10_000  # of one sweep


class Asked(NamedTuple):
    """The options of the command."""

    values: Mapping[str, float]
    sweep: Mapping[str, Sequence[float]]
    constants: Mapping[str, float]
    trials: int | None
    error_rate: float
    seed: int


def read_values(texts: Sequence[str]) -> dict[str, float]:
    """Numbers by name, from "name=number".

    Raises:
      ValueError: if a text is something else, or a name is given twice.
    """
    found = _by_name(texts)
    return {name: _number(name, text) for name, text in found.items()}


def read_sweep(texts: Sequence[str]) -> dict[str, list[float]]:
    """Several numbers by name, from "name=FROM:TO:COUNT" (evenly spaced; in logarithms
    with ":log") or "name=1,2,5". Whole ends give whole numbers, each once.

    Raises:
      ValueError: if a text is something else, or a name is given twice.
    """
    return {name: _values(name, text) for name, text in _by_name(texts).items()}


def _by_name(texts: Sequence[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not (name and equals and value):
            raise ValueError(f"parameters are given as NAME=VALUE, got {text!r}")
        if name in found:
            raise ValueError(f"`{name}` is given twice")
        found[name] = value
    return found


def _number(name: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"`{name}` must be a number, got {text!r}")
    return number


def _values(name: str, text: str) -> list[float]:
    if ":" not in text:
        return [_number(name, part) for part in text.split(",")]
    *ends, scale = text.split(":") if text.endswith(":log") else [*text.split(":"), ""]
    if len(ends) != 3 or not ends[2].isdecimal():
        raise ValueError(
            f"`{name}` must sweep FROM:TO:COUNT, FROM:TO:COUNT:log or values with "
            f"commas, got {text!r}"
        )
    first, last = _number(name, ends[0]), _number(name, ends[1])
    count = int(ends[2])
    if not 1 <= count <= MOST_VALUES:
        raise ValueError(f"`{name}` must take 1 to {MOST_VALUES} values, got {count}")
    if scale and min(first, last) <= 0:
        raise ValueError(f"`{name}` must be positive where it is swept by :log")
    space = np.geomspace if scale else np.linspace
    values = space(first, last, count)
    if "." not in ends[0] + ends[1] and "e" not in (ends[0] + ends[1]).lower():
        whole = np.round(values)
        if count > 1 and abs(last - first) >= count - 1:
            values = np.array(list(dict.fromkeys(whole.tolist())))
    return values.tolist()


def chosen(statements: Sequence[Statement]) -> Statement:
    """The statement that is asked for: the only one, or the only one that has an
    evaluation.

    Raises:
      ValueError: if there are none, or several.
    """
    able = [row for row in statements if row.evaluation is not None]
    if len(able) == 1:
        return able[0]
    if not able:
        names = ", ".join(row.id for row in statements[:5])
        raise ValueError(f"{names} cannot be evaluated at parameters of your own")
    names = ", ".join(row.id for row in able)
    raise ValueError(f"evaluate takes one statement, got {len(able)}: {names}")


def run(
    statement: Statement,
    asked: Asked,
    *,
    form: Literal["table", "json", "csv"],
    figure: pathlib.Path | None,
) -> int:
    """Evaluate, print and draw; 0.

    Raises:
      ValueError: as `cfljax.statements.evaluate`.
      OSError: if the picture cannot be written.
    """
    if figure is not None:
        _check_figure(figure, asked.sweep)
    found = evaluate(
        statement,
        sweep=asked.sweep,
        constants=asked.constants,
        trials=asked.trials,
        error_rate=asked.error_rate,
        seed=asked.seed,
        **asked.values,
    )
    if figure is not None:
        from cfljax import report, statements

        report.save(statements.figure(found), figure)
    if form == "json":
        print(json.dumps(site.encoded(document(statement, found)), indent=2))
    elif form == "csv":
        display.print_csv(list(_rows(found)))
    else:
        display.show_evaluation(statement, found, list(points(found)))
        if figure is not None:
            print(f"figure: {figure}")
    return 0


def _check_figure(path: pathlib.Path, sweep: Mapping[str, Sequence[float]]) -> None:
    """Refuse a picture that cannot be drawn before anything is computed.

    Raises:
      ValueError: if it has another format, or not one or two sweeps, the second with
        few values.
    """
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ValueError(f"the figure must be an svg, png or pdf file, got {path}")
    if not 1 <= len(sweep) <= 2:
        got = ", ".join(sweep) or "none"
        raise ValueError(
            f"--figure draws along one or two parameters of --sweep, got {got}"
        )
    from cfljax.report import LINES

    for name, values in list(sweep.items())[1:]:
        if len(values) > len(LINES):
            raise ValueError(
                f"--figure draws a line for each value of the second parameter of "
                f"--sweep, at most {len(LINES)}, got {len(values)} of {name}"
            )


def points(found: Any) -> Iterator[dict[str, Any]]:
    """Every point of a dataset, with its swept parameters, numbers and margins."""
    names = ("bound", "truth", "low", "high", "verdict")
    for index in np.ndindex(*(found.sizes[name] for name in _swept(found))):
        place = dict(zip(_swept(found), index, strict=True))
        one = found.isel(place)
        told = {name: one[name].item() for name in place}
        told |= {name: one[name].item() for name in names}
        if "precondition" in found.dims:
            names_of = found["precondition"].values.tolist()
            margins = zip(names_of, one["margin"].values.tolist(), strict=True)
            told["margins"] = dict(margins)
        yield told


def _swept(found: Any) -> list[str]:
    return list(found["bound"].dims)


def document(statement: Statement, found: Any) -> dict[str, Any]:
    """The whole answer, ready for JSON."""
    swept = _swept(found)
    fixed = {
        name: found[name].item()
        for name in found.coords
        if name not in (*swept, "precondition", "constant")
    }
    constants = []
    if "constant" in found.dims:
        constants = [
            {
                "name": name,
                "value": found["constant_value"].values[place].item(),
                "low": found["constant_low"].values[place].item(),
                "high": found["constant_high"].values[place].item(),
            }
            for place, name in enumerate(found["constant"].values.tolist())
        ]
    return {
        "id": statement.id,
        "text": plain(statement.text),
        "latex": statement.text,
        **found.attrs,
        "parameters": fixed,
        "swept": swept,
        "constants": constants,
        "points": list(points(found)),
    }


def _rows(found: Any) -> Iterator[dict[str, Any]]:
    """Every point in one level."""
    for point in points(found):
        margins = point.pop("margins", {})
        yield point | {f"margin of {name}": value for name, value in margins.items()}
