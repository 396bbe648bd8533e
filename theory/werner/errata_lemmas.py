"""Errata of Lemmas 7 to 19 and of the appendices' displays between them.

Numbers in the counterexamples follow from the formula beside them; what has been
measured stands on the pages of the statements that are named.
"""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="werner")

ERRATA = (
    _erratum(
        id="werner.E11",
        place="Lemmas 8 and 15, step (iv)",
        severity="B",
        printed="E|E_x g_j - E g_j|^2 <~ rho^2, by the law of total variance, as Var "
        "g_j is said to be bounded by rho^2.",
        correction="Condition on x and v throughout, and the term is not there. With "
        "|v - m| <= tau/2 both lemmas then hold, 1 - delta_i/2 for 1 - delta_i.",
        counterexample="f(x) = x^4/4 - x^2/2 from x_0 = 0: noise of any size, even in "
        "the first round alone, decides on the well, and the variance of f' over paths "
        "reaches the order of 0.1; over rho^2 that has no bound.",
        statements=(
            "werner.lem8",
            "werner.lem8.corrected",
            "werner.lem15",
            "werner.lem15.corrected",
        ),
    ),
    _erratum(
        id="werner.E12",
        place="Lemma 7, (19)",
        severity="A",
        printed="delta_i E|grad F_i|^2 in the bound of the centre's error.",
        correction="A constant times A^2 E|grad F_i|^2, which is small if the C of "
        "tau^2 = C (A^2 |grad F_i|^2 + delta_i rho Delta) is large, and suffices to "
        "absorb the term in (15) and (16).",
        counterexample="C = 4, A = 0.49, two fifths of the cluster's clients with (1 + "
        "A) grad F: the centre settles at the mean of the others, (2 A/3)^2 = "
        "0.1067 in the square for every delta_i. There tau^2 = 4 (0.1067 + A^4) = "
        "0.657, and the steep clients' distance squared is (5 A/3)^2 = 0.667.",
        statements=("werner.lem7", "werner.lem7.corrected"),
    ),
    _erratum(
        id="werner.E27",
        place="Lemma 11, and Lemma 18",
        severity="B",
        printed="By Assumption 4 the distance of the gradients is at least Delta^2 - "
        "D^2 |grad f_i|^2; then Markov's inequality for the mean over t of an event at "
        "each t, and the product of the means over t of tau^2 and of the probability.",
        correction="Assumption 5, and all of it at each t. Without c <= rho at each t "
        "the mean of the products is not bounded by the product of the means, as both "
        "factors grow with the gradient.",
        counterexample="Where C A^4 = 8 the ball around grad F holds strangers with "
        "gradient -grad F + Delta e: their error is more than 4 |grad F|^2, "
        "against delta_i |grad F|^2.",
        statements=("werner.lem11", "werner.lem11.corrected", "werner.lem18"),
    ),
    _erratum(
        id="werner.E28",
        place="Lemma 13, first line of the proof",
        severity="B",
        printed="E|m_t - E m_t|^2 <= alpha^2 E|g - grad f|^2 + (1 - alpha)^2 E|m_{t-1} "
        "- E m_{t-1}|^2; nothing is said of m_0.",
        correction="M_t for E m_t, M_t = alpha grad f(x_{t-1}) + (1 - alpha) "
        "M_{t-1}, and m_0 fixed, or (1 - alpha)^{2 t} <= alpha/2.",
        counterexample="f(x) = h x^2/2, eta h = 1: Var m_t tends to alpha sigma^2/(2 - "
        "1.5 alpha), twice the bound at alpha = 1. With m_0 = g_0 the noise in m_1 is "
        "alpha^2 + (1 - alpha)^2, 0.82 sigma^2 at alpha = 0.1.",
        statements=("werner.lem13", "werner.lem13.corrected"),
    ),
    _erratum(
        id="werner.E29",
        place="Appendix A.4, step (ii) before (22)",
        severity="B",
        printed="E|E_x mbar_{i,t} - grad f_i(x_{t-1})|^2 at one t is at most (1 - L "
        "eta)/2 times a sum over all t.",
        correction="The sum over t on both sides, and a_1/(alpha (1 + alpha - "
        "alpha^2)) on the right, a_1 = (1 - alpha)^2 |grad f_i(x_0)|^2 with m_0 = 0.",
        counterexample="T = 1: the sum is empty, and a_1 is not 0.",
        statements=("werner.eq22.ii", "werner.eq22.ii.corrected"),
    ),
    _erratum(
        id="werner.E31",
        place="Appendices A.3 and A.4, notation, y_{j,l,t}",
        severity="E",
        printed="y = 1(|g_j - v| <= tau) + v 1(|g_j - v| > tau), with m_j in A.4.",
        correction="g_j 1(|g_j - v| <= tau), and m_j 1(|m_j - v| <= tau). May be a "
        "fault of the text at hand.",
        counterexample="One point in the ball: the next centre is the point, not 1.",
        statements=("werner.yjlt", "werner.yjlt.corrected"),
    ),
)
