"""Errata of the CLoVE paper: Appendices A.1 and A.3, Lemmas A.1 to A.4 and A.17.

Numbers in the counterexamples follow from the formula beside them; what has been
measured stands on the pages of the statements that are named.
"""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="clove")

ERRATA = (
    _erratum(
        id="clove.E1",
        place="Appendix A.1, mean and variance of chi(n)",
        severity="B",
        printed="E[chi(n)] = sqrt(n-1) [1 - 1/(4n) + O(1/n^2)] and Var[chi(n)] = (n-1) "
        "- E[chi(n)]^2.",
        correction="E[chi(n)] = sqrt(n-1) [1 + 1/(4n) + O(1/n^2)] = sqrt(n) [1 - "
        "1/(4n) + ...] and Var[chi(n)] = n - E[chi(n)]^2. What follows for F is right.",
        counterexample="n = 10: E[chi(n)] = 3.0843, printed 2.9250, corrected 3.0750; "
        "the printed variance is -0.513. Both displays are those of chi(n-1).",
        statements=(
            "clove.chiE",
            "clove.chiE.corrected",
            "clove.chiVar",
            "clove.chiVar.corrected",
            "clove.EF",
            "clove.VarF",
        ),
    ),
    _erratum(
        id="clove.E2",
        place="Appendix A.1, c_k^j = alpha(theta_j, theta_k*)",
        severity="C",
        printed="The mean of F is replaced by alpha, and Lemma A.1 stated for that.",
        correction="c_k^j = kappa_n alpha with n = n_k: with equal n_k a common "
        "factor, with unequal ones the lemma needs sqrt(d)/(4 min n_k) well below "
        "Delta.",
        counterexample="d = 400, n_1 = 20, n_2 = 10^7: truths 0.499 apart whose mean "
        "loss vectors are the same.",
        statements=("clove.EFdrop", "clove.EFdrop.corrected"),
    ),
    _erratum(
        id="clove.E3",
        place="Lemma A.1, last sentence",
        severity="B",
        printed="Random unit vectors are nearly orthogonal, so that the lemma holds "
        "for them as well.",
        correction="|c_i - c_j| >= s_min(Theta) Delta/sqrt(4 + sigma^2), s_min of "
        "order 1/d; with high probability as stated if the truths do not depend on "
        "Theta.",
        counterexample="Truths 1 apart along the last singular direction of Theta: at "
        "d = 100 the means are a hundredth of the claim apart, or less.",
        statements=(
            "clove.lemA1.random",
            "clove.lemA1.random.corrected",
            "clove.lemA1.random.independent",
        ),
    ),
    _erratum(
        id="clove.E4",
        place="Lemma A.2",
        severity="C",
        printed="|c_i - c_j| > Delta/2 for Delta-proximal models.",
        correction="If sigma < sqrt(7/32) Delta = 0.4677 Delta. The proof has sigma << "
        "Delta/4, the lemma does not; sigma << 1 is not enough where Delta is small.",
        counterexample="Delta = 0.05, sigma = 0.1: the means are 0.0085 apart.",
        statements=("clove.lemA2.any_noise", "clove.lemA2.any_noise.corrected"),
    ),
    _erratum(
        id="clove.E5",
        place="Lemma A.2, first display of the proof",
        severity="B",
        printed="A difference of distances is at least | |theta_i - theta_j*|^2 - "
        "|theta_i - theta_i*|^2 + (Delta/4)^2 |.",
        correction="|theta_i - theta_j*| - sqrt(|theta_i - theta_i*|^2 + (Delta/4)^2).",
        counterexample="|theta_i - theta_j*| = 2, theta_i = theta_i*, sigma = 0, Delta "
        "= 1: 2 >= 4.0625.",
        statements=("clove.lemA2.step", "clove.lemA2.step.corrected"),
    ),
    _erratum(
        id="clove.E6",
        place="Lemma A.4, proof",
        severity="B",
        printed="Laurent and Massart's bound with the norms of the weights exchanged, "
        "and 3x/sqrt(n) > 2 sqrt(x)/n + 2x/sqrt(n) for x > 1.",
        correction="Threshold 2 |a|_2 sqrt(x) + 2 |a|_inf x; the printed one is true "
        "for equal weights, but turns log into log^2. The step needs x > 4/n, or n >= "
        "4.",
        counterexample="n = 1, x = 2: 6 > 6.83.",
        statements=(
            "clove.LM",
            "clove.LM.corrected",
            "clove.LM3x",
            "clove.LM3x.corrected",
            "clove.A4single.sharp",
        ),
    ),
    _erratum(
        id="clove.E7",
        place="Appendix A.3",
        severity="A",
        printed="IFCA's condition of cluster recovery implies that loss vectors are "
        "separated.",
        correction="It implies a distance of sqrt(2) delta between clusters, and "
        "nothing on the spread within. With a spread below that, single linkage "
        "recovers them.",
        counterexample="Clients whose losses share a level uniform in (0, 1000), gap "
        "1: IFCA chooses right for all, k-means judges half of the pairs wrongly.",
        statements=(
            "clove.lemA17",
            "clove.lemA17.recovery",
            "clove.lemA17.recovery.corrected",
        ),
    ),
)
