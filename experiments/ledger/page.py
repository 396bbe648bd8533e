"""The ledger as one page for a browser, which needs no other file.

It looks like the report of the theory, whose style it carries, and sorts and filters
its rows by itself.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2

from cfljax.statements import site
from experiments.verdicts import Kind

_HERE = pathlib.Path(__file__).parent
_STYLE = site.STYLE
# Which of the report's colours a verdict has.
COLOURS = {
    Kind.AGREES.value: "holds",
    Kind.EXPLAINED.value: "vacuous",
    Kind.OPEN.value: "violated",
    Kind.UNKNOWN.value: "inconclusive",
    Kind.REDUCED.value: "inconclusive",
}


def html(
    rows: Sequence[Mapping[str, Any]], counts: Sequence[Mapping[str, Any]], note: str
) -> str:
    """The page's text.

    Args:
      rows: as the ledger shows them to people, with their commands.
      counts: numbers of verdicts, by the papers' tables.
      note: what stands above them.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("page.html").render(
        style=_STYLE.read_text(encoding="utf-8"),
        rows=rows,
        counts=counts,
        note=note.replace("`", ""),
        colours=COLOURS,
        kinds=[
            kind.value for kind in Kind if any(r["kind"] == kind.value for r in rows)
        ],
        papers=list(dict.fromkeys(row["of"] for row in rows)),
    )
