"""Statements in the order of their paper.

A place, such as "Appendix A, (2)", names parts and numbered items of the paper, which
`outline.toml` lists from its first page to its last. The first of them decides, and
where it is a part, the next one if it stands in that part. A corrected form follows
what it corrects. Of rows with one label the shortest place comes first, which is the
item itself; the rest is the order of the registry.
"""

import functools
import pathlib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from theory.registry import Listed

_FILE = pathlib.Path(__file__).with_name("outline.toml")
_KINDS = {
    "section": "Section", "sections": "Section", "appendix": "Appendix",
    "appendices": "Appendix", "theorem": "Theorem", "theorems": "Theorem",
    "lemma": "Lemma", "lemmas": "Lemma", "corollary": "Corollary",
    "assumption": "Assumption", "assumptions": "Assumption", "remark": "Remark",
    "definition": "Definition", "algorithm": "Algorithm", "algorithms": "Algorithm",
    "table": "Table", "tables": "Table", "figure": "Figure", "figures": "Figure",
}  # fmt: skip
_NUMBER = r"(?:[A-Z]\.)?\d+(?:\.\d+)*\b|\b[A-D]\b"
_LABEL = re.compile(
    rf"(?P<proof>proof of )?\b(?P<kind>{'|'.join(_KINDS)}) "
    rf"(?P<numbers>(?:{_NUMBER})(?:(?:, | and |, and )(?:{_NUMBER}))*)"
    r"|(?P<equation>\(\d+\))"
    r"|(?P<words>abstract|released code|not in the paper)",
    re.IGNORECASE,
)


class Part(NamedTuple):
    """A part of a paper with its statements."""

    name: str
    title: str
    statements: list[Listed]


class _Spot(NamedTuple):
    """Where a label stands: the number of its part, and its own within all."""

    part: int
    place: int
    is_part: bool


def parts(paper: str, rows: Sequence[Listed]) -> list[Part]:
    """A paper's parts that have statements, in its order.

    Raises:
      ValueError: if a place names nothing of `outline.toml`.
    """
    outline, spots = _outline()[paper], _spots(paper)
    by_id = {row.id: row for row in rows}
    keys = {}
    for number, row in enumerate(rows):
        first = by_id.get(row.id.removesuffix(".corrected"), row)
        spot = _spot(first.place, spots)
        if spot is None:
            raise ValueError(
                f"outline.toml must list a label of {paper}'s place {first.place!r}."
            )
        keys[row.id] = (spot.part, spot.place, len(first.place), number)
    found = [Part(one["part"], one.get("title", ""), []) for one in outline]
    for row in sorted(rows, key=lambda row: keys[row.id]):
        found[keys[row.id][0]].statements.append(row)
    return [part for part in found if part.statements]


def _spot(place: str, spots: Mapping[str, _Spot]) -> _Spot | None:
    """Where a place stands; None if it names nothing that is known."""
    known = [spots[label] for label in _labels(place) if label in spots]
    if not known:
        return None
    first, *more = known
    is_inside = first.is_part and bool(more) and more[0].part == first.part
    return more[0] if is_inside else first


def _labels(place: str) -> Iterator[str]:
    """The labels that a place names, spelled as in the outline."""
    for match in _LABEL.finditer(place):
        if match["kind"]:
            kind = _KINDS[match["kind"].lower()]
            for number in re.findall(_NUMBER, match["numbers"]):
                if match["proof"]:
                    yield f"Proof of {kind} {number}"
                yield f"{kind} {number}"
        else:
            text = match[0]
            yield text if text[0] in "(n" else text.capitalize()


@functools.cache
def _outline() -> Mapping[str, list[dict]]:
    return tomllib.loads(_FILE.read_text("utf-8"))


def _spots(paper: str) -> Mapping[str, _Spot]:
    spots: dict[str, _Spot] = {}
    for number, part in enumerate(_outline()[paper]):
        spots[part["part"]] = _Spot(number, len(spots), True)
        for item in part.get("items", ()):
            spots[item] = _Spot(number, len(spots), False)
    return spots
