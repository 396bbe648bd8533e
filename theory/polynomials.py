"""A step of proofs in both papers: a polynomial without negative coefficients."""

from typing import Any

from cfljax.statements import Step, exactly


def no_negative_term(text: str, expression: Any) -> Step:
    """Check that a polynomial in positive numbers has no negative coefficient.

    Powers of either sign may occur in it. It is then at least 0 for all values of its
    symbols, all of which must stand for numbers that are at least 0.

    Args:
      text: what it shows.
      expression: of SymPy.
    """
    import sympy

    expanded = sympy.expand(expression)
    symbols, coefficients = tuple(expanded.free_symbols), {}
    for term in sympy.Add.make_args(expanded):
        number, powers = term.as_independent(*symbols, as_Add=False)
        coefficients[powers] = coefficients.get(powers, 0) + number
    holds = all(one.is_nonnegative for one in coefficients.values())
    return exactly(text, holds, str(expanded))
