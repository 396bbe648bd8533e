"""Cards: what an algorithm does, costs and sends, and when it fails, in `NAME.md`."""

import dataclasses
import importlib.resources
import math
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

__all__ = ["CARDS", "Card", "Passes", "Sizes", "read"]

# Sections of a card, in this order; each of them a field.
SECTIONS = {
    "cost": "Cost",
    "messages": "Messages",
    "fails": "When it fails",
    "newcomers": "Newcomers",
    "variants": "Variants",
    "citation": "Citation",
}


class Sizes(NamedTuple):
    """Of a round.

    num_clients: N, all of which take part.
    num_clusters: K, where the algorithm is told how many; 1 otherwise.
    num_steps: tau, steps that a client trains what it sends, on all of its samples.
    num_personal_steps: s, steps that it trains what it keeps.
    """

    num_clients: int
    num_clusters: int = 1
    num_steps: int = 1
    num_personal_steps: int = 1


class Passes(NamedTuple):
    """Passes of one model over a batch of all of a client's samples.

    forward: those that evaluate, among them one before each backward pass.
    backward: counted apart from the forward passes that they belong to.
    """

    forward: float
    backward: float

    @property
    def units(self) -> float:
        """Work in forward passes, a backward pass being worth two.

        It has two products of matrices for each layer, where a forward pass has one.
        """
        return float(self.forward + 2 * self.backward)


@dataclasses.dataclass(frozen=True)
class Card:
    """An algorithm on one page.

    title: its name as the paper has it.
    what: what it does.
    cost: passes of each participant in a round as a formula, and what else a round or
      the start costs.
    messages: what a participant receives and sends in a round.
    fails: when it fails.
    newcomers: what a client answers that never took part.
    variants: where the paper and what was released differ.
    citation: of the paper.
    statements: beginnings of the ids of the theory's statements about it.
    """

    title: str
    what: str
    cost: str
    messages: str
    fails: str
    newcomers: str
    variants: str
    citation: str
    statements: tuple[str, ...] = ()

    def passes(self, sizes: Sizes) -> Passes:
        """What the formula that `cost` begins with comes to in a round of given sizes.

        Once what the first rounds do is over, with averaged models where gradients may
        be averaged too, whole batches, and other arguments as they are by default.

        Raises:
          ValueError: if it is no formula such as "K + 2 tau forward, tau backward".
        """
        found = re.match(r"(.+?) forward, (.+?) backward\b", self.cost)
        if not found:
            raise ValueError(
                "`cost` must begin with a formula such as 'K + 2 tau forward, tau"
                f" backward', got {self.cost[:60]!r}."
            )
        values: dict[str, int] = dict(zip(("N", "K", "tau", "s"), sizes, strict=True))
        return Passes(*(_sum(text, values) for text in found.groups()))


def _sum(text: str, values: Mapping[str, int]) -> int:
    """A sum of terms, each a number, sizes, or a number of sizes: "2 K tau"."""
    total = 0
    for term in text.split(" + "):
        found = re.fullmatch(r"(\d+)?((?: ?\b[A-Za-z]+)*)", term)
        number, sizes = found.groups() if found and term else ("", "?")
        if not set(sizes.split()) <= set(values):
            known = ", ".join(values)
            raise ValueError(
                f"`cost` must be sums of numbers and {known}, got {term!r}."
            )
        product = math.prod(values[size] for size in sizes.split())
        total += int(number or 1) * product
    return total


def read(text: str) -> Card:
    """The card in a Markdown text.

    Raises:
      ValueError: if a section is missing, unknown or not in its place.
    """
    title, *parts = re.split(r"^#+ ", " \n" + text, flags=re.MULTILINE)[1:]
    title, _, what = title.partition("\n")
    heads, bodies = [], []
    for part in parts:
        head, _, body = part.partition("\n")
        heads.append(head.strip())
        bodies.append(" ".join(body.split()))
    expected = list(SECTIONS.values())
    if heads not in (expected, [*expected, "Statements"]):
        raise ValueError(
            f"a card must have the sections {', '.join(expected)} and may end with"
            f" Statements, got {', '.join(heads) or 'none'}."
        )
    fields = dict(zip(SECTIONS, bodies, strict=False))
    statements = re.findall(r"`([\w.]+)`", bodies[-1]) if len(heads) > 6 else []
    known = " ".join(what.split())
    return Card(title.strip(), known, **fields, statements=tuple(statements))


def _all() -> dict[str, Card]:
    """The cards in this folder."""
    files = importlib.resources.files(__name__).iterdir()
    cards = {f.name.removesuffix(".md"): f for f in files if f.name.endswith(".md")}
    return {name: read(cards[name].read_text("utf-8")) for name in sorted(cards)}


CARDS: Mapping[str, Card] = MappingProxyType(_all())
