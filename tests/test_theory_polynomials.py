"""The step on polynomials against itself, and constants that proofs must not pass."""

import functools
from fractions import Fraction

import pytest
import sympy

from theory.ifca import equations_step, lemma1_proof, theorem2
from theory.polynomials import no_negative_term
from theory.werner import (
    theorem1_points,
    theorem3_corrected,
    theorem4,
    theorem4_corrected,
)

_x, _y = sympy.symbols("x y", nonnegative=True)


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        (_x**2 + 2 * _y / _x, True),
        ((_x + _y) ** 2 - (_x - _y) ** 2, True),
        ((_x - _y) ** 2, False),  # at least 0, but this step cannot tell
        (sympy.Integer(0) * _x, True),
        (sympy.Integer(-1) + 0 * _x, False),
        ((3 - 2 * sympy.sqrt(2)) * _x, True),
        ((2 - 2 * sympy.sqrt(2)) * _x + _y, False),
    ],
)
def test_terms_are_collected_against_itself(expression, holds):
    assert no_negative_term("", expression).holds is holds


@pytest.mark.parametrize(
    "proof",
    [
        functools.partial(equations_step.prove_pull, part="3.999"),
        functools.partial(lemma1_proof.prove_lower_tail, c2="0.2501"),
        functools.partial(lemma1_proof.prove_upper_tail, c4="0.2501"),
        functools.partial(theorem2.prove_bound, part="3.999"),
        functools.partial(theorem2.prove_bound, jumps="33.999"),
        functools.partial(theorem2.prove_printed, second="33.999"),
        functools.partial(theorem1_points.prove_conditional, reach="1.999"),
        functools.partial(theorem3_corrected.prove_alike, noise=Fraction(1999, 1000)),
        functools.partial(
            theorem4_corrected.prove_corrected, noise=Fraction(3999, 1000)
        ),
        functools.partial(theorem4.prove_printed, excess="1/1000000"),
    ],
    ids=lambda proof: f"{proof.func.__name__}({proof.keywords})",
)
def test_constants_are_derived_against_theory(proof):
    assert not all(step.holds for step in proof())
    assert all(step.holds for step in proof.func())
