"""What a battery is made of: parts, their batches, and a tally of how all ended."""

import dataclasses
import pathlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

# How a case may end well,
WELL = {
    "right": "ended with the bits of an undisturbed run",
    "again": "noticed, and computed again",
    "refused": "noticed, and refused in one line",
    "harmless": "changed nothing, by a stated reason",
    "taken": "taken as it is, where nothing can notice: no digest, or one made anew",
}
# and how it may not.
BADLY = {
    "lost": "something that was done is gone, or was done again",
    "silent": "other results without a word",
    "traceback": "an error of another kind than one line, or no end",
    "ran": "code of a file was run",
}


class End(NamedTuple):
    """How one case ended: the kind, what it was of, and why that is right or wrong."""

    kind: str
    of: str
    why: str = ""


@dataclasses.dataclass
class Tally:
    """Cases by their ends, and what is told of those that are wrong.

    done: units that were really done.
    """

    ends: Counter[End] = dataclasses.field(default_factory=Counter)
    faults: list[str] = dataclasses.field(default_factory=list)
    done: int = 0

    def add(
        self, kind: str, of: str, why: str = "", *, case: str = "", units: int = 1
    ) -> None:
        """Count a case that is so many units; of one that ended badly `case` and `why`
        are told."""
        assert kind in WELL or kind in BADLY, kind
        if kind in BADLY:
            self.faults.append(f"{kind}: {case or of}: {why}"[:600])
            why = ""
        self.ends[End(kind, of, why)] += 1
        self.done += units

    def count(self, *kinds: str) -> int:
        """How many cases ended so; all if no kind is named."""
        every = self.ends.items()
        return sum(number for end, number in every if not kinds or end.kind in kinds)

    @property
    def num_bad(self) -> int:
        """How many ended badly."""
        return self.count(*BADLY)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON."""
        ends = [[*end, number] for end, number in self.ends.items()]
        return {"ends": ends, "faults": self.faults, "done": self.done}

    @staticmethod
    def from_dict(found: Mapping[str, Any]) -> "Tally":
        """The inverse."""
        ends = {End(*end): number for *end, number in found["ends"]}
        return Tally(Counter(ends), list(found["faults"]), found["done"])


def total(tallies: Iterable[Tally]) -> Tally:
    """All of them together."""
    whole = Tally()
    for own in tallies:
        whole.ends.update(own.ends)
        whole.faults += own.faults
        whole.done += own.done
    return whole


# Plays something, given the folder of what is kept, and the seed.
Play = Callable[[pathlib.Path, int], Tally]


class Batch(NamedTuple):
    """What one process does: so many units of a part, under a name of its own."""

    name: str
    units: int
    play: Play


class Part(NamedTuple):
    """One kind of harm.

    does: what, in a few words.
    asked: how many units of it.
    batches: given the folder of what is kept and the seed, all of them.
    controls: what is taken away, and what must then be seen to end badly.
    """

    does: str
    asked: int
    batches: Callable[[pathlib.Path, int], Sequence[Batch]]
    controls: Mapping[str, Play]


def in_batches(
    play: Callable[[range, pathlib.Path, int, bool], Tally],
    number: int,
    size: int,
    prefix: str = "",
) -> Callable[[pathlib.Path, int], list[Batch]]:
    """`Part.batches` of what plays a range of units, without harm."""
    return lambda folder, seed: [
        Batch(
            f"{prefix}{units.start}",
            len(units),
            lambda folder, seed, units=units: play(units, folder, seed, False),
        )
        for units in cut(number, size)
    ]


def cut(number: int, size: int) -> Iterator[range]:
    """Units in ranges of a size, the last one perhaps shorter."""
    return (range(at, min(at + size, number)) for at in range(0, number, size))
