"""Steps of proofs about rational functions, or functions that are so in a new
letter."""

from typing import Any

from cfljax.statements import Step, identity


def same(text: str, left: Any, right: Any) -> Step:
    """The step that two expressions of SymPy are one, brought to a common denominator
    first: `identity` by itself takes long over fractions."""
    import sympy

    return identity(text, sympy.cancel(sympy.together(left - right)))
