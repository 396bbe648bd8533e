"""Assumption A.15 and Lemma A.16: the rows, whose checks are in `matching`."""

import functools

import numpy as np

from theory.clove import matching
from theory.statement import Statement
from theory.verdict import Status

__all__ = ["STATEMENTS"]

_PRECONDITIONS = (
    "|theta_k - theta_k*| <= Delta/4 for all k, |theta_i* - theta_j*| >= Delta",
    "clusters known, fresh samples",
)
_LEMMA = matching.LEMMA
_row = functools.partial(Statement, paper="clove", preconditions=_PRECONDITIONS)


def _law_rows() -> tuple[Statement, ...]:
    name = f"{_LEMMA}.law"
    printed = functools.partial(matching.check_law, name=name, power=2)
    corrected = functools.partial(matching.check_law, name=f"{name}.corrected", power=1)
    place = "Lemma A.16, proof, first display but one"
    return (
        _row(
            id=name,
            place=place,
            text="sum over Q_k of L_i ~ (m_k/n_k) alpha^2 chi2(n_k m_k)",
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, factor=1.1),
            note="m times too large; it cancels, being on both sides. The control is a "
            "tenth larger still.",
        ),
        _row(
            id=f"{name}.corrected",
            place=place,
            text="sum over Q_k of L_i ~ (1/n_k) alpha^2 chi2(n_k m_k)",
            check=corrected,
            control=functools.partial(corrected, factor=1.1),
            note="Its mean is checked. The control is a tenth larger.",
        ),
    )


def _rewriting_rows() -> tuple[Statement, ...]:
    name = f"{_LEMMA}.rewriting"
    printed = functools.partial(
        matching.check_rewriting, name=name, factor=1.0, capped=False
    )
    corrected = functools.partial(
        matching.check_rewriting, name=f"{name}.corrected", factor=np.e, capped=True
    )
    place = "Lemma A.16, last display"
    return (
        _row(
            id=name,
            place=place,
            text="K^2 c1 e^{-x} <= c1 e^{-x/log K^2}",
            preconditions=("K >= 2", "x >= 0"),
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, factor=0.5),
            note="True only from x = (log K^2)^2/(log K^2 - 1) on; K = 10, x = 2.94 "
            "gives 5.28 and 0.528. The control has c1/2 on the right.",
        ),
        _row(
            id=f"{name}.corrected",
            place=place,
            text="min(1, K^2 e^{-x}) <= e e^{-x/log K^2}",
            preconditions=("K >= 2", "x >= 0"),
            constants={"factor": float(np.e)},
            check=corrected,
            control=functools.partial(corrected, factor=2.718),
            note="As a bound on a probability it needs a factor e, attained at x = log "
            "K^2; K^2 e^{-x} itself is far better. The control has 2.718.",
        ),
    )


STATEMENTS = (
    _row(
        id=matching.ASSUMPTION,
        place="Assumption A.15",
        text="n_k m_k (rho/(1 + rho))^2 >= C log(K^2/(2 delta)) suffices for Lemma "
        "A.16 with failure delta",
        constants={"C": 1 / matching.C2},
        claimed=">> polylog(K)",
        check=matching.check_assumption,
        control=functools.partial(matching.check_assumption, constant=3.0),
        note="The certified form of the assumption; C = 32 and K^2/delta if both "
        "losses are read as independent. The control has C = 3.",
    ),
    _row(
        id=f"{_LEMMA}.order",
        place="Lemma A.16, proof",
        text="P(a cluster has the smaller loss on a foreign model) <= c1 exp(-c2 n_k "
        "m_k (rho/(1 + rho))^2)",
        constants={"c1": 0.5, "c2": matching.C2},
        claimed="c1, c2, unnamed",
        check=matching.check_order,
        control=functools.partial(matching.check_order, c2=0.1212),
        note="Both losses are on the same samples, which the exact law respects; the "
        "paper reads them as independent, which is safe and gives c2 = 1/32. Best c2 "
        "0.12113, at rho = 1.065. The control has 0.1212.",
    ),
    _row(
        id=_LEMMA,
        place="Lemma A.16",
        text="the cheapest matching is the identity with probability >= 1 - c1 exp(-c2 "
        "n_k m_k (rho/(1 + rho))^2 / log K^2), and with 1 - (K^2/2) exp(-c2 n_k m_k "
        "(rho/(1 + rho))^2)",
        constants={"c1": float(np.e), "c2": matching.C2},
        claimed="c1, c2, unnamed",
        check=matching.check_matching,
        control=functools.partial(matching.check_matching, c2=4.0),
        note="Needs proximal models, which the first round does not have. The control "
        "has c2 = 4.",
    ),
    *_law_rows(),
    *_rewriting_rows(),
)
