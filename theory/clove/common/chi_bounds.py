"""Bounds of (E chi_n)^2 by rational functions of n, proved for all n at once.

g(n) = (E chi_n)^2 = 2 (Gamma((n+1)/2)/Gamma(n/2))^2 has g(n) g(n+1) = n^2, and so
g(n+2) = g(n) (n+1)^2/n^2. Since g(n) <= E chi_n^2 = n, g(n) >= n^2/(n+1) as well, and
g(n)/n tends to 1. Let q(n)/n tend to 1, too. If q(n+2)/q(n) >= (n+1)^2/n^2 for all n
from some start on, then g/q never rises in steps of 2, and as its limit is 1, g >= q
from there on; with <=, g <= q. Either is a sign of a polynomial, and all coefficients
in n - start have that sign.
"""

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from cfljax.statements import Step, exactly, nonnegative


def bound_square(text: str, function: Any, *, below: bool, start: int) -> list[Step]:
    """Steps that q(n) <= (E chi_n)^2, or >= unless `below`, for all real n >= `start`.

    Args:
      text: what it shows.
      function: q, an expression of SymPy in the one symbol n, rational.
      below: whether q is the lower side.
      start: first n, at least 1.
    """
    import sympy

    (n,) = function.free_symbols
    top, bottom = sympy.fraction(sympy.together(function))
    shifted = sympy.Symbol("x")
    ahead = [part.subs(n, n + 2) for part in (top, bottom)]
    sign = ahead[0] * bottom * n**2 - top * ahead[1] * (n + 1) ** 2
    parts = [sign if below else -sign, bottom, top]
    found = [
        sympy.Poly(sympy.expand(part.subs(n, start + shifted)), shifted).all_coeffs()
        for part in parts
    ]
    signs = all(coefficient >= 0 for part in found for coefficient in part)
    lead = sympy.Poly(top, n), sympy.Poly(bottom * n, n)
    to_one = lead[0].degree() == lead[1].degree() and lead[0].LC() == lead[1].LC()
    word = (
        r"$q(n+2) n^2 \ge q(n) (n+1)^2$" if below else r"$q(n+2) n^2 \le q(n) (n+1)^2$"
    )
    return [
        exactly(
            rf"{text}, $n \ge {start}$: {word}",
            bool(signs),
            f"all coefficients in n - {start}",
        ),
        exactly(f"{text}: $q(n)/n$ tends to 1", bool(to_one)),
    ]


def square(count: int) -> Any:
    """(E chi_n)^2 as a ball."""
    import flint

    half = flint.arb(count) / 2
    return 2 * ((half + flint.arb("0.5")).gamma() / half.gamma()) ** 2


def check_few(
    text: str, counts: Sequence[int], low: Any = None, high: Any = None
) -> list[Step]:
    """Steps that low(n) <= (E chi_n)^2 <= high(n) at single n, by balls; the functions
    take a ball."""
    import flint

    def step(count: int, side: str) -> Step:
        def room() -> Any:
            if side == "lower":
                return square(count) - low(flint.arb(count))
            return high(flint.arb(count)) - square(count)

        return nonnegative(f"{text}, {side} side, $n = {count}$", room, {})

    sides = ["lower"] * (low is not None) + ["upper"] * (high is not None)
    return [step(count, side) for count in counts for side in sides]


def rational(text: str) -> Any:
    """A decimal as a fraction of SymPy."""
    import sympy

    exact = Fraction(text)
    return sympy.Rational(exact.numerator, exact.denominator)
