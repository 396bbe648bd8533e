"""Lemma 7: how far Federated-Clustering's centres are from the cluster's gradient.

Printed is delta |grad F|^2 of a term that does not depend on delta at all: clients
whose own gradients lie beyond the edge of the ball are left out, and the centre moves
to the mean of the others, whatever the cluster's share.
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.centre_paths import CONDITIONS, check_path
from theory.werner.hidden_constants import DECLARED, exactly, one_constant
from theory.werner.population_map import Mixture, move

__all__ = ["STATEMENTS", "check_coefficient", "settled_error"]

LEMMA = "werner.lem7"

_CLUSTERS = (2, 10, 50, 200)  # K = 1/delta
_CONSTANT, _SPREAD, _PART = 4.0, 0.49, 0.4  # C, A, share of the steep clients
_SEPARATION, _NOISE = 10.0, 1e-4  # Delta, rho, with |grad F| = 1


def settled_error() -> Float[np.ndarray, "clients clusters"]:
    """|v_l - grad F|^2 from either kind of client, for each number of clusters.

    The cluster's clients have f_j = (1 + s_j) x^2/2, s_j = A or -2 A/3, looked at in x
    = 1; strangers have Delta y besides. There is no noise at all.
    """
    share = 1 / np.array(_CLUSTERS, float)
    own = np.array([1 + _SPREAD, 1 - _SPREAD * _PART / (1 - _PART)])
    places = np.append(own, 1 + 1j * _SEPARATION)
    masses = np.stack([_PART * share, (1 - _PART) * share, 1 - share], axis=1)
    shape = (len(own), len(share), 3)
    points = Mixture(np.broadcast_to(places, shape), np.broadcast_to(masses, shape))
    centres = np.broadcast_to(own[:, None], shape[:2]).astype(complex)
    steps = np.log(_NOISE / _SEPARATION) / np.log(1 - np.min(share) / 2)
    for _ in range(int(np.ceil(steps))):
        square = np.abs(centres - 1) ** 2
        fixed = _SPREAD**4 + share * _NOISE * _SEPARATION
        radius = np.sqrt(_CONSTANT * (square + fixed))
        centres = move(points, centres, radius)
    return np.abs(centres - 1) ** 2


def check_coefficient(preset: Preset, *, constant: float = DECLARED) -> Verdict:
    """|v_l - grad F|^2 <= `constant` (delta |grad F|^2 + rho^2 + rho^3/Delta).

    For any n, therefore.
    """
    del preset
    values = settled_error()
    clusters = np.array(_CLUSTERS, float)
    right = 1 / clusters + _NOISE**2 + _NOISE**3 / _SEPARATION  # n = 1 is most
    return one_constant(
        LEMMA,
        [exactly("1/delta", clusters, one / right) for one in values],
        constant=constant,
        detail=f"error {np.min(values):.4f} to {np.max(values):.4f} |grad F|^2 from "
        "either kind of client",
    )


def _margins() -> tuple[Margin, ...]:
    """Of the counterexample."""
    return (
        Margin(
            "Theorem 3: Delta >= 24 rho/delta_i",
            _SEPARATION,
            24 * _NOISE * max(_CLUSTERS),
        ),
        Margin(
            "Assumption 4: |grad f_j - grad F| <= A |grad F|",
            max(_SPREAD, _SPREAD * _PART / (1 - _PART)),
            _SPREAD,
            at_least=False,
        ),
        Margin("A < 1", _SPREAD, 1.0, at_least=False),
    )


_row = functools.partial(Statement, paper="werner", place="Lemma 7")
_corrected = functools.partial(
    check_path, name=f"{LEMMA}.corrected", heterogeneous=True
)

STATEMENTS = (
    _row(
        id=LEMMA,
        text="E|v_l - grad F_i|^2 <= C1 (delta_i E|grad F_i|^2 + (rho/Delta) "
        "D^2 E|grad f_i|^2 + rho^2/n_i + rho^3/Delta + beta_i rho Delta)",
        preconditions=(
            "F_i = mean of f_j over j ~ i",
            "Assumptions 4 to 7 with A = 0.49, D = 0, beta_i = 0, no noise",
            "tau_l^2 = C (c_l^2 + A^4 |grad F_i|^2 + delta_i rho Delta)",
            "l >= log(rho/Delta)/log(1 - delta_i/2), v_0 = g_i",
        ),
        constants={"C1": DECLARED, "C": _CONSTANT},
        claimed="constants unnamed",
        expected=Status.VIOLATED,
        check=check_coefficient,
        control=functools.partial(check_coefficient, constant=32.0),
        note="The geometric series in step (iv) multiplies delta_i by 2/delta_i: the "
        "error is the same for all K, and the ratio grows as K. rho^3/Delta lacks the "
        "factor, too, see Lemma 14. The control allows twice as much and is violated.",
        margins=_margins,
    ),
    _row(
        id=f"{LEMMA}.corrected",
        text="|v_l - m| <= (1 - delta_i/2)^l |v_0 - m| + 4 s^2/tau + 8 tau "
        "rho^2/(delta_i Delta^2) + 2 beta_i tau/delta_i, m = grad F_i(x), F_i the mean "
        "of the cluster's f_j, s^2 = rho^2 + A^2 |m|^2",
        preconditions=("Delta, the strangers' distance from m at this x", *CONDITIONS),
        check=_corrected,
        control=functools.partial(_corrected, bias=0.5),
        note="With tau^2 = C (A^2 |m|^2 + delta_i rho Delta), C >= 24, (4 s^2/tau)^2 "
        "is at most (32/C) (A^2 |m|^2 + rho^3/(delta_i Delta)): a small constant in "
        "the place of delta_i, which is all that (15) and (16) need. The control has "
        "half of s^2/tau for 4.",
    ),
)
