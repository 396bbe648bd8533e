"""Docstrings as they are written here, plain text, for a reader of reStructuredText.

Bars, stars and underscores are signs of formulas and no markup, text between single
backticks is code, and lines that are indented further, below an empty one, are an
example.
"""

import re
from typing import Any

_CODE = re.compile(r"(``.+?``|`[^`]+`)")
_SECTION = re.compile(r"(Args|Returns|Raises|Attributes|Yields|Example|Examples):$")


def as_text(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Escape what would be markup, in place, before napoleon reads the sections."""
    is_example = False
    for number, line in enumerate(lines):
        before = lines[number - 1] if number else ""
        indented = line.startswith("    ") and not before.strip()
        if line.strip() and not line.startswith("    "):
            is_example = False
        if indented and not _in_section(lines[:number]):
            is_example = True
        if not is_example:
            lines[number] = _escaped(line)
    _mark_examples(lines)


def _in_section(lines: list[str]) -> bool:
    """Whether the last line that is not indented opens a section."""
    flush = [line for line in lines if line.strip() and not line.startswith(" ")]
    return bool(flush) and bool(_SECTION.match(flush[-1]))


def _mark_examples(lines: list[str]) -> None:
    """Put `::` above each block of lines that is indented below an empty one."""
    for number in range(len(lines) - 1, 0, -1):
        starts = lines[number].startswith("    ") and not lines[number - 1].strip()
        above = next((line for line in lines[number - 1 :: -1] if line.strip()), "")
        if starts and not above.startswith(" ") and not _in_section(lines[:number]):
            lines[number:number] = ["::", ""]


def _escaped(line: str) -> str:
    """A line outside of examples."""
    parts = _CODE.split(line)
    parts[::2] = [re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
