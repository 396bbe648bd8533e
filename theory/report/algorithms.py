"""What the pages of algorithms show: cards, arguments, and what a round costs."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from cfljax.algorithms import REGISTRY
from cfljax.cards import Card, Passes, Sizes
from theory.registry import is_under

EXAMPLE = Sizes(num_clients=40, num_clusters=4, num_steps=10, num_personal_steps=10)


class Argument(NamedTuple):
    """One argument of a constructor."""

    name: str
    default: str | None  # as it would be written; None where it must be given
    text: str  # what the docstring says of it


class AlgorithmPage(NamedTuple):
    """An algorithm, as its page has it."""

    name: str  # in the registry
    card: Card
    paper: str  # where the registry places it
    arguments: tuple[Argument, ...]  # of its constructor
    passes: Passes  # of a client in a round of the size `EXAMPLE`
    ratio: float  # of their work to FedAvg's

    @property
    def summary(self) -> str:
        """The first two sentences."""
        return " ".join(re.split(r"(?<=[.]) ", self.card.what)[:2])

    def statements(self, ids: Iterable[str]) -> list[str]:
        """The ids that it is about; beginnings that none of them has as they are."""
        known, found = list(ids), []
        for start in self.card.statements:
            below = [name for name in known if is_under(name, start)]
            found += below or [start]
        return found


@functools.cache
def algorithm_pages() -> tuple[AlgorithmPage, ...]:
    """All registered algorithms."""
    unit = REGISTRY["fedavg"].card.passes(EXAMPLE).units
    found = []
    for name, row in REGISTRY.items():
        passes, rows = row.card.passes(EXAMPLE), arguments(row.constructor)
        ratio = passes.units / unit
        found.append(AlgorithmPage(name, row.card, row.paper, rows, passes, ratio))
    return tuple(found)


def arguments(constructor: Callable[..., Any]) -> tuple[Argument, ...]:
    """Arguments with the texts of the constructor's Google-style docstring.

    Raises:
      ValueError: where one is not described, or one that is described is not there.
    """
    texts = _described_arguments(inspect.getdoc(constructor) or "")
    parameters = inspect.signature(constructor).parameters
    if set(texts) != set(parameters):
        odd = sorted(set(texts) ^ set(parameters))
        raise ValueError(
            f"`constructor` must describe its arguments and no others, got "
            f"{', '.join(odd)} of {constructor.__name__} on one side only."
        )
    return tuple(
        Argument(name, _shown_default(parameter.default), texts[name])
        for name, parameter in parameters.items()
    )


def _shown_default(value: Any) -> str | None:
    if value is inspect.Parameter.empty:
        return None
    name = getattr(value, "__qualname__", None)
    return f"{value.__module__.split('.')[0]}.{name}" if name else repr(value)


def _described_arguments(documentation: str) -> dict[str, str]:
    """What a docstring says of each argument, in one line each."""
    _, _, section = documentation.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.splitlines():
        if not line.startswith("  "):
            break
        if not line.startswith("   "):
            name, _, line = line.strip().partition(":")
            found[name] = ""
        found[name] = f"{found[name]} {line.strip()}".strip()
    return found
