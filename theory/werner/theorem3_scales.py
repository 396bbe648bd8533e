"""Theorem 3's bound (3) under a change of units, without noise, and with small steps.

Three defects that one term repairs. With f -> s f the left side of (3) is multiplied by
s^2 and the right side by s; with sigma -> 0 the right side vanishes, while the first
gradient alone contributes |grad f(x_0)|^2/T; and eta <= 1/L allows steps so small that
nothing moves. All are gone with L F0/T added and eta = 1/(2 L).
"""

import functools

from theory.statement import Statement
from theory.verdict import Status
from theory.werner.descent_families import Level, check_family, corrected, printed
from theory.werner.one_client import Cluster, margins

__all__ = ["STATEMENTS"]

UNITS, NOISELESS, STEP = (
    f"werner.thm3.{name}" for name in ("units", "noiseless", "step")
)

_SCALES = (1.0, 10.0, 100.0, 1e3, 1e4)
_NOISES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
_ROUNDS = (1e2, 1e3, 1e4, 1e5, 1e6)

# One batch is all data of a client, which every condition on |B_i| allows.
_UNITS = tuple(
    Level(scale, Cluster(separation=50 * scale, sigma=scale, batch=64), 10 * scale)
    for scale in _SCALES
)
_NOISELESS = tuple(
    Level(1 / noise, Cluster(sigma=noise, batch=64), 1.0) for noise in _NOISES
)


def _prescribed(rounds: float) -> Cluster:
    """The batch that the proof of Theorem 3 sets, |B| = V T."""
    return Cluster(batch=max(1.0, Cluster().printed * rounds))


_FROZEN = tuple(
    Level(rounds, _prescribed(rounds), 10.0, 1 / rounds, rounds) for rounds in _ROUNDS
)
_MOVING = tuple(
    Level(rounds, _prescribed(rounds), 10.0, 0.5, rounds) for rounds in _ROUNDS
)

_BASIC = (
    "A = D = 0: the losses of the cluster are L x^2/2, the others Delta steeper",
    "Delta >= 24 sigma/delta, no malicious clients, l as in Theorem 3",
)
_row = functools.partial(Statement, paper="werner", place="Theorem 3, (3)")


def _pair(
    name: str,
    parameter: str,
    levels: tuple[Level, ...],
    text: str,
    note: str,
    after: Statement,
) -> tuple[Statement, Statement]:
    """The printed row, by its growth alone, and the corrected one."""
    check = functools.partial(
        check_family,
        name=name,
        parameter=parameter,
        levels=levels,
        bound=printed,
        constant=float("inf"),
    )
    found = functools.partial(margins, *(level.cluster for level in levels))
    before = _row(
        id=name,
        text=text,
        preconditions=(*_BASIC, *after.preconditions),
        claimed="one unnamed constant in <~",
        expected=Status.VIOLATED,
        check=check,
        control=functools.partial(check, relief=0.25),
        margins=found,
        note=f"{note} No constant does. The control allows the fourth root of "
        f"{parameter} more.",
    )
    return before, after


def _corrected(
    name: str,
    parameter: str,
    levels: tuple[Level, ...],
    text: str,
    preconditions: tuple[str, ...],
    note: str,
    control: functools.partial,
) -> Statement:
    return _row(
        id=f"{name}.corrected",
        text=text,
        preconditions=(*_BASIC, *preconditions),
        constants={"C": 16.0},
        check=functools.partial(
            check_family,
            name=f"{name}.corrected",
            parameter=parameter,
            levels=levels,
            bound=corrected,
        ),
        control=functools.partial(
            control, name=f"{name}.corrected", parameter=parameter
        ),
        margins=functools.partial(margins, *(level.cluster for level in levels)),
        note=note,
    )


_BETTER = (
    "avg E|grad f_i|^2 <= C (L F0/T + rho^2/n + rho^3/(delta Delta)), rho = "
    "sigma/sqrt(|B|), "
)

STATEMENTS = (
    *_pair(
        UNITS,
        "s",
        _UNITS,
        "avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T) in every unit of "
        "the losses",
        "f -> s f, eta -> eta/s leaves the path as it is: the left side gets s^2, the "
        "right side s.",
        _corrected(
            UNITS,
            "s",
            _UNITS,
            _BETTER + "in every unit of the losses",
            ("eta = 1/(2 L), T = 100, |B| = m = 64",),
            "The control has sqrt(L F0)/T, which has the units of (3).",
            functools.partial(
                check_family,
                levels=_UNITS,
                bound=functools.partial(corrected, power=0.5),
            ),
        ),
    ),
    *_pair(
        NOISELESS,
        "1/sigma",
        _NOISELESS,
        "avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T) for every sigma <~ "
        "delta Delta",
        "The first of the T gradients is the start's, whatever sigma.",
        _corrected(
            NOISELESS,
            "1/sigma",
            _NOISELESS,
            _BETTER + "for every sigma <~ delta Delta",
            ("eta = 1/(2 L), T = 100, |B| = m = 64",),
            "The control has L F0/T^2 for L F0/T.",
            functools.partial(
                check_family,
                levels=_NOISELESS,
                bound=functools.partial(corrected, share=0.01),
            ),
        ),
    ),
    *_pair(
        STEP,
        "T",
        _FROZEN,
        "avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T) for every step size "
        "eta <= 1/L",
        "With eta = 1/(L T) the gradient keeps a third of its length for all rounds, "
        "so that even constants that know L and F0 do not help.",
        _corrected(
            STEP,
            "T",
            _MOVING,
            _BETTER + "for eta = 1/(2 L)",
            ("|B| = max(1, V T)",),
            "The control has eta = 1/(L T).",
            functools.partial(check_family, levels=_FROZEN, bound=corrected),
        ),
    ),
)
