"""Errata of the CLoVE paper: from Lemma A.4 to the recovery of clusters, and D.3."""

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
    _erratum(
        id="clove.E15",
        place="Theorems 4.1, A.9 and A.10",
        severity="A",
        printed="Under (7) the proximity condition holds for all clients, and k-means "
        "recovers them all, with probability 1 - delta - 1/polylog(M).",
        correction="If n Delta^2 >= C N K^3 polylog(M) log(1/delta), C = 1 for the "
        "condition with roots and c' = 1, C = 1/2 for recovery. With orthonormal "
        "models turned at random to the truths n >= 32 log(M)/Delta^2 is enough for "
        "recovery, whatever d; the condition is not met there by far.",
        counterexample="n fixed, M to infinity: (7) is met, every client is nearer to "
        "a foreign mean with a probability p > 0 of its own, and all are right with at "
        "most (1 - p)^M. The true clusters are then no fixed point of Lloyd's "
        "iterations: no centres to start from help.",
        statements=(
            "clove.thmA9",
            "clove.thmA9.corrected",
            "clove.thmA10",
            "clove.thmA10.corrected",
            "clove.thm41",
            "clove.thm41.corrected",
            "clove.thm41.law",
            "clove.kkcond.losses",
            "clove.kkcond.loose",
        ),
    ),
    _erratum(
        id="clove.E16",
        place="Algorithm 1, line 1, against Section 4",
        severity="C",
        printed="K models are sent in the first round, in Algorithm 1 and in all "
        "experiments; Theorem 4.1 is for d of them.",
        correction="With K random models n of order (d/K) log(M)/Delta^2, and more "
        "where the truths differ across the models that were drawn.",
        counterexample="d = 50, K = 5, M = 100, n = 64 log(M)/Delta^2: nearly always "
        "exact with N = d, never with N = K.",
        statements=("clove.NK", "clove.NK.corrected"),
    ),
    _erratum(
        id="clove.E17",
        place="Remark A.12",
        severity="D",
        printed="Without the root the bound of Lemma A.4 can be proved for a large "
        "part of the rows only, so that not all clients are recovered.",
        correction="|L_i - E L_i| <= zeta (2 max_j c_j + zeta) + |Var F| for all rows, "
        "zeta from the corrected Lemma A.4; all clients are recovered at n >= 48 "
        "log(M)/Delta^2.",
        counterexample="L - E L = (F - c) (F + c) - Var F: wherever the root of a row "
        "is close to its mean, so is the row.",
        statements=("clove.remA12", "clove.remA12.corrected"),
    ),
    _erratum(
        id="clove.E18",
        place="Appendix D.3, Table 15",
        severity="E",
        printed="10 clusters.",
        correction="5 clusters, as it seems: all 15 means and standard deviations of "
        "IFCA's index are those of three seeds in which it merges some of 5.",
        counterexample="M = 50, MNIST: 0.92 +- 0.11 is (1, 1, 0.768), two of 5 "
        "clusters merged with one seed. With 10 clusters, merged whole, 2 of the 15 "
        "are possible.",
        statements=("clove.T15K", "clove.T15K.corrected"),
    ),
    _erratum(
        id="clove.E19",
        place="Appendix D.3, Table 15, against Section 5",
        severity="C",
        printed="100 to 200 datapoints a client for up to 1000 clients, partitioned "
        "without replacement.",
        correction="At M = 1000 at most 60 of MNIST and FMNIST and 50 of CIFAR-10, or "
        "with replacement.",
        counterexample="1000 clients of 100 need 100,000 images; MNIST and FMNIST have "
        "60,000 for training, CIFAR-10 50,000.",
        statements=("clove.T15K.sizes", "clove.T15K.sizes.corrected"),
    ),
    _erratum(
        id="clove.E20",
        place="Figure 4 and appendix D.1.6",
        severity="B",
        printed="With 8 of 20 clients in a round and 10 clusters CLoVE almost reaches "
        "optimal clustering after a few tens of rounds.",
        correction="With k-means of 10 clusters the index stays near 0.54 +- 0.16, "
        "even if all models are perfect; as many clusters are needed as participants "
        "are of.",
        counterexample="8 loss vectors make 8 clusters of one client each. Of two "
        "clients of one cluster who take part together one gets a foreign model.",
        statements=("clove.fig4", "clove.fig4.corrected"),
    ),
)
