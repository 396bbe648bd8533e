"""The glossary: words of the library, and the parameters of claims."""

import math
from collections.abc import Mapping

from cfljax.statements import FAULTS
from pages.markdown import rendered
from pages.statements import EVIDENCE, MEANINGS
from theory.glossary import GLOSSARY, Entry


def sources(report: bool) -> Mapping[str, str]:
    """The page."""
    rows = [
        {
            "name": name,
            "meaning": entry.meaning,
            "in the papers": entry.symbols,
            "range": _range(entry),
        }
        for name, entry in sorted(GLOSSARY.items())
    ]
    return {
        "glossary.md": rendered(
            "glossary.md",
            rows=rows,
            statuses={status.value: text for status, text in MEANINGS.items()},
            grades={grade.value: text for grade, text in EVIDENCE.items()},
            faults=FAULTS,
        )
    }


def _range(entry: Entry) -> str:
    opens, closes = "()" if entry.open else "[]"
    if math.isinf(entry.most):
        return f"> {entry.least:g}" if entry.open else f"≥ {entry.least:g}"
    return f"{opens}{entry.least:g}, {entry.most:g}{closes}"
