"""Errata of the CLoVE paper: Lemmas A.13 and A.16, Corollary A.14 and Theorem 4.2."""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="clove")

ERRATA = (
    _erratum(
        id="clove.E11",
        place="Lemma A.13",
        severity="A",
        printed="For eta <= (1 - Delta/(3c))/2 one step leads to within Delta/c; "
        "Delta/c + (c2 + c3) Delta < Delta/c; d << N in the proof alone.",
        correction="For |1 - 2 eta| <= Delta/(6c), N >= 4 d and (36 + 6 sigma) eta "
        "sqrt(d/N) <= Delta/(2c), with probability 1 - 4 exp(-d/2).",
        counterexample="eta = 0 leaves the model where it was. At the largest eta that "
        "is allowed, |e| = 3 and N = 10^6, half of the steps miss.",
        statements=(
            "clove.lemA13",
            "clove.lemA13.corrected",
            "clove.lemA13.bound",
            "clove.opnorm",
        ),
    ),
    _erratum(
        id="clove.E12",
        place="Corollary A.14",
        severity="A",
        printed="A step makes every error a constant fraction smaller, for all |theta| "
        "< 2.",
        correction="In the mean square if and only if |e| > phi = 2 eta sigma "
        "sqrt(d/N)/sqrt(1 - r).",
        counterexample="From the truth, e = 0, every step leads away.",
        statements=("clove.corA14", "clove.corA14.corrected"),
    ),
    _erratum(
        id="clove.E13",
        place="Theorem 4.2",
        severity="A",
        printed="|theta_k - theta_k*| <= Delta/c1^T after T rounds with high "
        "probability.",
        correction="E|e_T|^2 = r^T |e_0|^2 + (1 - r^T) phi^2: geometric down to a "
        "floor of order sigma sqrt(d/N); as printed without noise.",
        counterexample="d = 10, N = 4000, sigma = 0.1: even c1 = 1.1 has a probability "
        "below 1 % from round 64 on.",
        statements=("clove.thm42", "clove.thm42.noiseless", "clove.thm42.corrected"),
    ),
    _erratum(
        id="clove.E14",
        place="Lemma A.16, proof",
        severity="B",
        printed="Summed losses are (m_k/n_k) alpha^2 chi2(n_k m_k), and K^2 c1 e^{-x} "
        "<= c1 e^{-x/log K^2}; 3 Delta/4 = Delta/2 - Delta/4.",
        correction="(1/n_k) alpha^2 chi2(n_k m_k); the second with c1 = e on the right "
        "and as a bound on a probability, but K^2 e^{-x} is better; Delta/2 + Delta/4.",
        counterexample="m = 7: seven times too large. K = 10, x = 2.94: 5.28 <= 0.528.",
        statements=(
            "clove.lemA16",
            "clove.lemA16.law",
            "clove.lemA16.law.corrected",
            "clove.lemA16.rewriting",
            "clove.lemA16.rewriting.corrected",
        ),
    ),
)
