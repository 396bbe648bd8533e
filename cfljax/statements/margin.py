"""By how much the preconditions of a claim are met."""

import dataclasses

import numpy as np

Real = float | int | np.number


@dataclasses.dataclass(frozen=True)
class Margin:
    """By how much an assumption is met.

    Attributes:
      assumption: its id and what it says, such as "ifca.asm2: n' >= C log m".
      have: the side that is given.
      need: the side that is asked for, hidden constants included.
      at_least: whether `have` must be at least `need`, rather than at most.
    """

    assumption: str
    have: Real
    need: Real
    at_least: bool = True

    @property
    def value(self) -> float:
        """Distance to the edge of the assumption, negative where it fails."""
        distance = float(self.have) - float(self.need)
        return distance if self.at_least else -distance

    @property
    def holds(self) -> bool:
        """Whether the assumption is met; an undefined side never meets it."""
        return self.value >= 0

    @property
    def factor(self) -> float:
        """What the hidden constant may be multiplied by until the edge is reached."""
        top, bottom = self.have, self.need
        if not self.at_least:
            top, bottom = bottom, top
        return float(np.divide(top, bottom))
