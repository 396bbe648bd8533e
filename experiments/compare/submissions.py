"""Submissions to the leaderboard: what methods reached in the worlds of `compare.all`.

A file of a fixed form, `submission.schema.json`, which `compare.all` writes of its own
algorithms, too. Whatever somebody sends is read as data, never executed, and what is
wrong with it is said in one line for each thing. Nothing here imports JAX.
"""

import functools
import itertools
import json
import math
import os
import pathlib
import re
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from jsonschema import Draft202012Validator, ValidationError, validators

SCHEMA = 1  # Version of the form.
LARGEST = 2**20  # Bytes of a file.
_MOST = 40  # Lines on what violates the form.
_FORM = pathlib.Path(__file__).with_name("submission.schema.json")
_KINDS = {
    "array": "a list",
    "integer": "a whole number",
    "number": "a number",
    "object": "an object",
    "string": "a text",
}
# What is not finite is no number, in arrays as in JSON, and 3.0 no whole one.
_is_whole = lambda checker, value: type(value) is int
_is_number = lambda checker, value: (
    type(value) is int or (isinstance(value, float) and math.isfinite(value))
)
_VALIDATOR = validators.extend(
    Draft202012Validator,
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many(
        {"integer": _is_whole, "number": _is_number}
    ),
)
_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 60


class RefusedError(ValueError):
    """What cannot be taken, and why."""

    exit_status = 2

    def __init__(self, lines: Sequence[str]) -> None:
        """With a line for each thing that is wrong."""
        super().__init__("; ".join(lines))
        self.lines = tuple(lines)


@functools.cache
def form() -> Mapping[str, Any]:
    """The JSON Schema of a submission."""
    return json.loads(_FORM.read_text("utf-8"))


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """A submission of which all is right.

    Args:
      path: a file of JSON.

    Raises:
      RefusedError: with what is wrong, each line with the file's name.
      OSError: if it cannot be read.
    """
    try:
        document = _parsed(pathlib.Path(path))
        found = faults(document)
    except (ValueError, RecursionError) as error:
        found = [f"must be JSON: {' '.join(str(error).split())}"]
        document = {}
    if found:
        raise RefusedError([f"{os.fspath(path)}: {line}" for line in found])
    return document


def _parsed(path: pathlib.Path) -> Any:
    """What stands in a file of JSON; ValueError for what JSON does not have, or not
    clearly."""
    if not path.is_file():
        path.stat()  # Raises, if there is nothing at all.
        raise ValueError("it is no file")
    with path.open("rb") as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise ValueError(f"it has more than {LARGEST} bytes")
    return json.loads(
        content.decode("utf-8"), object_pairs_hook=_object, parse_constant=_constant
    )


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{_SHORT.repr(twice)} stands twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is no number")


def faults(document: Any) -> list[str]:
    """What is wrong with a submission, a line for each thing: where, what is allowed,
    and what is there. Empty of one that can be taken."""
    errors = list(itertools.islice(_VALIDATOR(form()).iter_errors(document), _MOST))
    errors.sort(key=lambda error: list(map(str, error.absolute_path)))
    lines = list(dict.fromkeys(map(_line, errors)))
    if len(errors) == _MOST:
        lines.append("may have more that is wrong")
    return lines or list(_contradictions(document))


def _line(error: ValidationError) -> str:
    """What a violation of the form is, and where."""
    place = "".join(
        f"[{part}]" if isinstance(part, int) else f".{_short_name(part)}"
        for part in error.absolute_path
    )
    return f"{place.removeprefix('.') or 'the file'} {_fault(error)}"


def _fault(error: ValidationError) -> str:
    """What must be, and what is, behind the name of a place."""
    kind = str(error.validator)
    value: Any = error.validator_value
    there: Any = error.instance
    own: Any = error.schema
    if kind == "required":
        return f"lacks {', '.join(name for name in value if name not in there)}"
    if kind == "additionalProperties":
        known = own.get("properties", {})
        more = sorted(_short_name(name) for name in there if name not in known)
        return f"has {', '.join(more)}; only {', '.join(known)} may be there"
    wanted = {
        "type": lambda: _KINDS[value],
        "const": lambda: value,
        "enum": lambda: f"one of {', '.join(value)}",
        "minimum": lambda: f"at least {value:g}",
        "maximum": lambda: f"at most {value:g}",
        "exclusiveMinimum": lambda: f"above {value:g}",
        "exclusiveMaximum": lambda: f"below {value:g}",
        "multipleOf": lambda: f"a multiple of {value}",
        "minLength": lambda: f"of at least {value} letters",
        "maxLength": lambda: f"of at most {value} letters",
        "minItems": lambda: f"of at least {value} entries",
        "maxItems": lambda: f"of at most {value} entries",
    }
    meaning = own.get("description", "")
    text = f"{wanted[kind]()}" if kind in wanted else meaning
    told = f" ({meaning})" if meaning and kind in wanted else ""
    return f"must be {text}{told}; got {_SHORT.repr(there)}"


def _short_name(name: str) -> str:
    """A name as it is, or cut and quoted where it is none that the form has."""
    return name if re.fullmatch(r"\w{1,60}", name) else _SHORT.repr(name)


def _contradictions(document: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with a submission of the right form."""
    comparison = document["comparison"]
    worlds, seeds = comparison["worlds"], int(comparison["num_trials"])
    budget = len(comparison["step_sizes"])
    if len(set(worlds)) < len(worlds):
        yield f"comparison.worlds must be different ones; got {', '.join(worlds)}"
    if budget % 2:
        yield f"comparison.step_sizes must be an even number of them; got {budget}"
    names = [method["name"] for method in document["methods"]]
    for index, method in enumerate(document["methods"]):
        place = f"methods[{index}]"
        if method["name"] in names[:index]:
            yield f"{place}.name must be no other method's; got {method['name']} twice"
        if method["settings_tried"] > budget:
            yield (
                f"{place}.settings_tried must be at most {budget}, the budget that all "
                f"methods have; got {method['settings_tried']}"
            )
        there = method["worlds"]
        if lacking := [world for world in worlds if world not in there]:
            yield (
                f"{place}.worlds lacks {', '.join(lacking)}: say `does_not_apply` or "
                "`failed`, and why, where there is no result"
            )
        if more := sorted(map(_short_name, there.keys() - set(worlds))):
            yield (
                f"{place}.worlds has {', '.join(more)}; the comparison has only "
                f"{', '.join(worlds)}"
            )
        for world, own in there.items():
            for name, values in own.items():
                if isinstance(values, list) and len(values) != seeds:
                    yield (
                        f"{place}.worlds.{_short_name(world)}.{name} must have {seeds} "
                        f"entries, one for each seed; got {len(values)}"
                    )


def differences(
    comparison: Mapping[str, Any], other: Mapping[str, Any]
) -> Iterator[str]:
    """In which fields a comparison is another one, whose numbers cannot be set beside
    those of the first."""
    for name, value in other.items():
        if comparison[name] != value:
            what = "the same data, of " if name == "checksum" else ""
            yield (
                f"comparison.{name} must be {what}{json.dumps(value)}, as all of this "
                f"board; got {json.dumps(comparison[name])}"
            )


def text(comparison: Mapping[str, Any], methods: Iterable[Mapping[str, Any]]) -> str:
    """A submission as a file, lists of numbers on one line.

    Args:
      comparison: what makes its numbers comparable.
      methods: at least one. Nothing is checked, see `faults`.

    Raises:
      ValueError: for a number that is not finite.
    """
    document = {
        "schema": SCHEMA,
        "comparison": dict(comparison),
        "methods": list(map(dict, methods)),
    }
    written = json.dumps(document, indent=1, allow_nan=False)
    # Within a text there is no end of a line.
    return re.sub(r'\[\n[^][{}"]*\]', lambda m: _on_one_line(m[0]), written) + "\n"


def _on_one_line(numbers: str) -> str:
    return re.sub(r"\s+", " ", numbers).replace("[ ", "[").replace(" ]", "]")
