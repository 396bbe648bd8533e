"""Errata of the CLoVE paper: Lemmas A.4 and A.8, the proximity condition, and (7)."""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="clove")

ERRATA = (
    _erratum(
        id="clove.E8",
        place="Lemma A.4",
        severity="A",
        printed="|a_i - c_s(i)|^2 <= (9/2) log^2(NM/delta) max_j Var_j for all i, with "
        "probability 1 - delta.",
        correction="|a_i - c_s(i)| <= sqrt(sum_j Var_j) + |U|_op sqrt(2 log(M/delta)/"
        "n). The proof bounds each of N entries, not their sum: zeta in Theorem A.9 is "
        "too small by sqrt(N).",
        counterexample="N = d = 300, M = 2, delta = 1/2: sum_j Var_j alone is more "
        "than the bound for typical orthonormal models, and most draws exceed it.",
        statements=("clove.lemA4", "clove.lemA4.corrected"),
    ),
    _erratum(
        id="clove.E9",
        place="Lemma A.8 and the proximity condition of Section 4 and Theorem A.9",
        severity="A",
        printed="|Y| <= gamma sqrt(n p) polylog(n), and margins of (c'K/m_i + c'K/m_j) "
        "|A - C|, both quoted from Kumar and Kannan.",
        correction="P(|Y|^2 >= (1 + tau) gamma^2 n) <= d e^tau/(1 + tau)^(1 + tau), "
        "without p; c'K/sqrt(m_j') + c'K/sqrt(m_j). Lemma A.7 needs no Lemma A.8: |X| "
        "<= |X|_F and (5) give it.",
        counterexample="Rows gamma sqrt(n) e_1 with probability 1/n: |Y| can be gamma "
        "n. Two strips of length 4 at distance 1 meet the printed condition for any c' "
        "once there are enough points, and the best two means halve both.",
        statements=(
            "clove.lemA8",
            "clove.lemA8.corrected",
            "clove.kkcond",
            "clove.kkcond.corrected",
            "clove.lemA7",
            "clove.lemA7.frobenius",
        ),
    ),
    _erratum(
        id="clove.E10",
        place="Theorem A.9, condition (7)",
        severity="A",
        printed="d K^4 polylog(M) = o(nM) is enough, as the second term of 2 zeta + "
        "(c'K/m_i + c'K/m_j) gamma sqrt(M) polylog(M) dominates.",
        correction="N K^3 polylog(M) log(1/delta) = o(n Delta^2): the first term "
        "dominates and does not fall with M.",
        counterexample="n = 1, any d and K: (7) holds for M large enough, and 2 zeta "
        "alone grows like log(M).",
        statements=("clove.cond7", "clove.cond7.corrected"),
    ),
)
