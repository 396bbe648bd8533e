"""Docstrings as they are written here, plain text, for a reader of reStructuredText.

Bars, stars and underscores are signs of formulas and no markup, text between single
backticks is code, a block that is indented below an empty line is an example, and one
of lines `name: what it is` lists fields.
"""

import itertools
import re
from typing import Any

_CODE = re.compile(r"(``[^`]+``|`[^`]+`)")
_SECTION = re.compile(r"(Args|Returns|Raises|Attributes|Yields|Examples?):")
_KEY = re.compile(  # what jaxtyping's name stands for
    r"[~.\w]*\bKey\[Array, ''\]( \| [~.\w]*\bUInt32\[Array, '[24]'\])+"
)
_FIELDS = re.compile(r"(?!\w+://)\w+(, \w+)*: \S")


def as_text(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Mark up a docstring, in place, before napoleon reads its sections."""
    del app, name, obj, options
    if what == "data":  # It would be that of the type.
        lines.clear()
    found: list[str] = []
    is_section = False
    for is_empty, group in itertools.groupby(lines, lambda line: not line.strip()):
        block = list(group)
        if is_empty:
            found += block
            continue
        flush = [line for line in block if not line.startswith(" ")]
        if flush:
            is_section = bool(_SECTION.fullmatch(flush[-1]))
        if not flush and not is_section:
            found += ["::", "", *block]
            continue
        block = _escaped("\n".join(block)).splitlines()
        if what == "class" and _FIELDS.match(block[0]):
            block = ["Attributes:", *(f"  {line}" for line in block)]
            is_section = True
        found += block
    lines[:] = found


def as_signature(
    app: Any,
    what: str,
    name: str,
    obj: Any,
    options: Any,
    signature: str | None,
    result: str | None,
) -> tuple[str | None, str | None] | None:
    """A signature whose arrays and keys have their public names, and with short names
    also where a default is a function, which Sphinx cannot read."""
    del app, what, name, obj, options
    if signature is None:
        return None
    signature = _with_public_names(signature)
    result = result and _with_public_names(result)
    if "<function " in signature:
        signature = re.sub(r"~?\b(?:\w+\.)+(\w)", r"\1", signature).replace("~", "")
        signature = re.sub(r"<function (\w+)>", r"\1", signature)
    return signature, result


def _with_public_names(text: str) -> str:
    text = text.replace("jaxlib._jax.Array", "Array")
    return _KEY.sub("PRNGKeyArray", text)


def _escaped(text: str) -> str:
    """Text without a sign that would be markup."""
    parts = _CODE.split(text)
    parts[1::2] = [" ".join(part.split()) for part in parts[1::2]]
    parts[::2] = [re.sub(r"([*|\\]|_\b)", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)
