"""Steps of proofs, checked by computer: identities by algebra, inequalities by balls.

    def prove(rate=0.5):
        x = sympy.Symbol("x", positive=True)
        return [
            identity("(1 + x)^2 - (1 - x)^2 = 4x", (1 + x) ** 2 - (1 - x) ** 2 - 4 * x),
            nonnegative("log(1 + x) >= rate x", lambda x: ..., {"x": (0, 1)}),
        ]

An identity is an expression of SymPy that simplifies to 0. An inequality is evaluated
in ball arithmetic (Arb, by python-flint), where a box of parameters goes in and an
interval that contains every value on it comes out; boxes that leave the sign open are
halved. So what is shown holds at every point of the box, rounding included, and not on
a grid. A range without end is brought into a box by the author, as by x = u/(1 - u).
"""

import dataclasses
import heapq
import itertools
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

End = int | Fraction | str  # of a range; a text is a decimal, read exactly


@dataclasses.dataclass(frozen=True)
class Step:
    """One step of a proof.

    Attributes:
      text: what it shows.
      method: how it was checked: "algebra" (SymPy), "balls" (Arb), "integers" (exact
        arithmetic) or "none".
      holds: whether it was found true.
      detail: one line on what was done.
    """

    text: str
    method: str
    holds: bool
    detail: str = ""

    def __post_init__(self):
        # SymPy and NumPy have truths of their own.
        object.__setattr__(self, "holds", bool(self.holds))


@dataclasses.dataclass(frozen=True)
class Proof:
    """A proof and what became of the same steps for false claims.

    Attributes:
      steps: of the proof.
      control_fails: whether a step failed for every claim that is false.
    """

    steps: tuple[Step, ...]
    control_fails: bool

    @property
    def is_complete(self) -> bool:
        """Whether every step holds, and the check of the steps could have failed."""
        every = bool(self.steps) and all(step.holds for step in self.steps)
        return every and self.control_fails


def identity(text: str, difference: Any) -> Step:
    """Check that an expression of SymPy is 0 for all values of its symbols.

    Args:
      text: what it shows.
      difference: left side less right side.
    """
    import sympy

    rest = sympy.simplify(sympy.expand(difference))
    detail = "the difference simplifies to 0" if rest == 0 else f"left over: {rest}"
    return Step(text, "algebra", holds=bool(rest == 0), detail=detail)


def exactly(text: str, holds: bool, detail: str = "") -> Step:
    """A step that was decided in integers or fractions."""
    return Step(text, "integers", holds=holds, detail=detail)


def nonnegative(
    text: str,
    function: Callable[..., Any],
    box: Mapping[str, tuple[End, End]],
    *,
    strict: bool = False,
    most_boxes: int = 20_000,
    precision: int = 128,
) -> Step:
    """Check that a function of balls is at least 0 everywhere on a box.

    The box is halved along its relatively widest side where the sign is open, worst
    first. A zero inside the box is never resolved: divide it out.

    Args:
      text: what it shows.
      function: takes a `flint.arb` for each name in `box`; returns one that contains
        every value.
      box: closed range of each parameter; empty for a claim about numbers alone.
      strict: whether 0 itself is excluded.
      most_boxes: evaluations after which the step is given up, and fails.
      precision: bits.

    Cost: evaluations of `function`, 1 to 100 microseconds per operation in it.

    Raises:
      ValueError: if a range is empty.
    """
    import flint

    before, flint.ctx.prec = flint.ctx.prec, precision
    try:
        ends = {name: (_exact(low), _exact(high)) for name, (low, high) in box.items()}
        for name, (low, high) in ends.items():
            if not low <= high:
                raise ValueError(
                    f"`box` must give {name} a range, got {low} to {high}."
                )
        return _halved(text, function, ends, strict=strict, most_boxes=most_boxes)
    finally:
        flint.ctx.prec = before


def _exact(end: End) -> Fraction:
    return Fraction(end)


def _halved(
    text: str,
    function: Callable[..., Any],
    ends: dict[str, tuple[Fraction, Fraction]],
    *,
    strict: bool,
    most_boxes: int,
) -> Step:
    """Halve boxes until every one has its sign."""
    first = tuple(ends.values())
    widths = [float(high - low) or 1.0 for low, high in first]
    numbers = itertools.count()
    queue: list[tuple[float, int, tuple[tuple[Fraction, Fraction], ...]]] = []
    evaluated, least = 0, float("inf")

    def look(box: tuple[tuple[Fraction, Fraction], ...]) -> None:
        nonlocal evaluated, least
        evaluated += 1
        value = function(**dict(zip(ends, map(_ball, box), strict=True)))
        if (value > 0) if strict else (value >= 0):
            least = min(least, float(value.lower()))
            return
        low = float(value.lower()) if value.is_finite() else float("-inf")
        heapq.heappush(queue, (low, next(numbers), box))

    look(first)
    while queue and evaluated < most_boxes:
        _, _, box = heapq.heappop(queue)
        sizes = [
            float(high - low) / w for (low, high), w in zip(box, widths, strict=True)
        ]
        side = max(range(len(box)), key=sizes.__getitem__) if box else -1
        if side < 0 or not sizes[side]:
            queue.append((float("-inf"), next(numbers), box))
            break  # a point cannot be halved
        low, high = box[side]
        middle = (low + high) / 2
        for half in ((low, middle), (middle, high)):
            look((*box[:side], half, *box[side + 1 :]))
    if not queue:
        return Step(
            text,
            "balls",
            holds=True,
            detail=f"{evaluated} boxes, at least {least:.3g}"
            if ends
            else f"{least:.3g}",
        )
    where = ", ".join(
        f"{name} in [{float(low):.6g}, {float(high):.6g}]"
        for name, (low, high) in zip(ends, queue[0][2], strict=True)
    )
    detail = f"open after {evaluated} boxes{': ' if where else ''}{where}"
    return Step(text, "balls", holds=False, detail=detail)


def _ball(ends: tuple[Fraction, Fraction]) -> Any:
    """A ball that contains the range."""
    import flint

    low, high = (flint.arb(flint.fmpq(end.numerator, end.denominator)) for end in ends)
    return low.union(high)
