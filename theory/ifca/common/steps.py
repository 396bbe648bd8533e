"""Steps that several proofs of this paper share."""

from cfljax.statements import Step, identity


def logarithm_above() -> Step:
    """log(1 + x) >= x/(1 + x) for x >= 0: equal at 0, and the difference grows."""
    import sympy

    x = sympy.Symbol("x", positive=True)
    return identity(
        r"$d$/dx $(\log(1 + x) - x/(1 + x)) = x/(1 + x)^2$",
        sympy.diff(sympy.log(1 + x) - x / (1 + x), x) - x / (1 + x) ** 2,
    )


def logarithm_below() -> Step:
    """log(1 + x) <= x (6 + x)/(6 + 4 x) for x >= 0, so that x - log(1 + x) >=
    x^2/(2 + 4 x/3): equal at 0, and the difference grows."""
    import sympy

    x = sympy.Symbol("x", positive=True)
    above = x * (6 + x) / (6 + 4 * x) - sympy.log(1 + x)
    return identity(
        r"$d$/dx $(x (6 + x)/(6 + 4 x) - \log(1 + x)) = 4 x^3/((6 + 4 x)^2 (1 + x))$",
        sympy.diff(above, x) - 4 * x**3 / ((6 + 4 * x) ** 2 * (1 + x)),
    )


def logarithm_of_less() -> Step:
    """-log(1 - x) - x >= x^2/2 for 0 <= x < 1: equal at 0, and the difference grows."""
    import sympy

    x = sympy.Symbol("x", positive=True)
    return identity(
        r"$d$/dx $(-\log(1 - x) - x - x^2/2) = x^2/(1 - x)$",
        sympy.diff(-sympy.log(1 - x) - x - x**2 / 2, x) - x**2 / (1 - x),
    )
