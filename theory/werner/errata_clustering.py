"""Errata of Werner et al.: Theorems 1 and 2 and Lemmas 1 to 5."""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="werner")

ERRATA = (
    _erratum(
        id="werner.E1",
        place="Theorem 1, Lemmas 1 and 14, Algorithm 2 from v_0 = z_i",
        severity="A",
        printed="No condition on v_0; E|v_0 - E z_i|^2 <= sigma^2 in the proof.",
        correction="|v_0 - E z_i| <= tau/2: then |v_l - E z_i| <= (1 - delta_i/2)^l "
        "|v_0 - E z_i| + 4 sigma^2/tau + 8 tau sigma^2/(delta_i Delta^2) + 2 beta_i "
        "tau/delta_i for infinitely many points.",
        counterexample="Noise -s, 0 or s with s = 1.001 tau: from v_0 = z_i the error "
        "is sigma^2 for all l, n_i and Delta, 25 to 1600 times (2) for n_i = "
        "Delta/sigma = 50 to 3200. Half-way to the next cluster nobody is in the ball, "
        "and v stays. Student's noise with 3 degrees of freedom from v_0 = z_i: 0.12 "
        "sigma^2 at Delta = 100 sigma with any n_i.",
        statements=(
            "werner.thm1",
            "werner.thm1.corrected",
            "werner.thm1.start",
            "werner.thm1.start.corrected",
            "werner.thm1.unreached",
            "werner.thm1.unreached.corrected",
            "werner.thm1.tails",
            "werner.thm1.tails.corrected",
            "werner.thm1.samples",
            "werner.lem1",
            "werner.lem1.corrected",
            "werner.lem14",
            "werner.lem14.corrected",
            "werner.asm3.unseen",
        ),
    ),
    _erratum(
        id="werner.E5",
        place="Theorem 1, equation (2), Lemma 14",
        severity="A",
        printed="sigma^3/Delta",
        correction="sigma^3/(delta_i Delta): the sum over rounds brings 2/delta_i.",
        counterexample="K clusters at Delta = 24 K sigma with noise 0 or s, s = 1.05 "
        "tau, and v_0 = E z_i: the error is 2 to 63 times sigma^3/Delta for K = 2 to "
        "64, and 0.98 times sigma^3/(delta_i Delta).",
        statements=(
            "werner.thm1",
            "werner.thm1.share",
            "werner.thm1.share.corrected",
            "werner.lem14",
            "werner.lem14.corrected",
            "werner.eq9",
            "werner.eq9.corrected",
        ),
    ),
    _erratum(
        id="werner.E7",
        place="Theorem 2, after equation (13)",
        severity="B",
        printed="delta^2 p^2/4 = (sigma^2/4) (S - Delta)/Delta >= sigma^4/(4 Delta^2), "
        "S = sqrt(4 sigma^2 + Delta^2).",
        correction="(sigma^2/4) (S - Delta)/(S + Delta) = (S - Delta)^2/16 >= "
        "sigma^4/(16 Delta^2) for Delta^2 >= sigma^2/2: the theorem is true.",
        counterexample="Every Delta. At Delta = 2 sigma it is 0.0429 sigma^2, claimed "
        "to be 0.1036 sigma^2 and at least 0.0625 sigma^2.",
        statements=(
            "werner.thm2.printed",
            "werner.thm2.printed.corrected",
            "werner.thm2.lower",
            "werner.thm2.lower.corrected",
            "werner.eq13",
            "werner.thm2",
        ),
    ),
    _erratum(
        id="werner.E8",
        place="Lemmas 3, 10 and 17",
        severity="A",
        printed="E|sum of (y_j - E y_j)|^2 <= n_i sigma^2, as the y_j are independent "
        "but for a constant and clipping is contractive.",
        correction="Given v: n_i (sigma^2 + |v - E z_i|^2), and n_i sigma^2 if tau >= "
        "2 |v - E z_i|.",
        counterexample="Noise -s, 0 or s, s = 1.001 tau, v_0 = z_i: y_j = v for all j, "
        "and the ratio is n_i. v = 0, tau = 1, z = 1 or 1 + eps: Var y/Var z = "
        "1/eps^2.",
        statements=(
            "werner.lem3",
            "werner.lem3.corrected",
            "werner.lem10",
            "werner.lem10.corrected",
            "werner.lem17",
            "werner.lem17.corrected",
        ),
    ),
    _erratum(
        id="werner.E10",
        place="Section 3.1, Setting tau; Section 3.1.1; remark 3 of Theorem 3",
        severity="A",
        printed="tau = sqrt(sigma Delta); bad points distort by order sigma Delta.",
        correction="tau = sqrt(delta_i sigma Delta); by beta tau/delta, squared "
        "(beta/delta)^2 tau^2. No radius gives (2) for all delta_i.",
        counterexample="beta = delta/12, Delta = 50 sigma/delta, bad points on the "
        "edge in every round: 0.2 to 5.4 times (2) for K = 2 to 64, with slope 1.",
        statements=(
            "werner.thm1.tau",
            "werner.thm1.tau.corrected",
            "werner.threat",
            "werner.def1",
        ),
    ),
    _erratum(
        id="werner.E16",
        place="Section 4.3",
        severity="A",
        printed="l >= log(sigma), a lower bound of Theorem 1.",
        correction="l >= log(Delta/sigma)/|log(1 - delta_i/2)| is enough; it falls "
        "with sigma, and fewer rounds do.",
        counterexample="Ten clusters at least 13.7 apart in ten dimensions: l = 42, "
        "29, 15 and 2 for standard deviations 0.5, 1, 2 and 4.",
        statements=(
            "werner.thm1.l",
            "werner.thm1.l.sigma",
            "werner.thm1.l.sigma.corrected",
        ),
    ),
    _erratum(
        id="werner.E19",
        place="Section 3.1.2",
        severity="A",
        printed="(2) is tight within a factor of sigma/Delta.",
        correction="Within Delta/sigma; with tau = sqrt(delta_i) Delta/2 and no bad "
        "points the error is of the order of the lower bound.",
        counterexample="(sigma^3/Delta)/(sigma^4/Delta^2) = Delta/sigma.",
        statements=(
            "werner.thm2.factor",
            "werner.thm2.factor.corrected",
            "werner.thm1.tauopt",
        ),
    ),
    _erratum(
        id="werner.E25",
        place="Equation (9)",
        severity="B",
        printed="alpha_i, E x_i, no sigma^2/n_i in step (ii), and a partial sum "
        "bounded by a constant.",
        correction="Delta, E z_i, with sigma^2/n_i, bounded by 2/delta_i.",
        counterexample="The sum of (1 - delta/2)^l is 4 to 127 for delta = 1/2 to "
        "1/64.",
        statements=("werner.eq9", "werner.eq9.corrected"),
    ),
    _erratum(
        id="werner.E26",
        place="Lemma 1, display (iii)",
        severity="E",
        printed="(c^2 + sigma^2)/(delta_i Delta)",
        correction="(c^2 + sigma^2) sigma/(delta_i Delta), as in Lemma 2.",
        counterexample="In a unit 1000 times smaller the ratio of both sides is 1000 "
        "times larger.",
        statements=("werner.lem1.units", "werner.lem1.units.corrected", "werner.lem2"),
    ),
    _erratum(
        id="werner.E32",
        place="Lemma 4, proof",
        severity="B",
        printed="|z_j - v| <= tau implies Delta^2 <= C (|z_j - E z_j|^2 + tau^2 + c^2 "
        "+ sigma^2), with E v for v.",
        correction="P(|z_j - v| <= tau) <= 9 (sigma^2 + c^2)/Delta^2 for tau <= "
        "Delta/3.",
        counterexample="v = E z_j with probability sigma^2/Delta^2, else E z_i: c = "
        "sigma, and z_j = E z_j is in the ball. The lemma itself holds for c <= 2 "
        "sigma.",
        statements=(
            "werner.lem4",
            "werner.lem4.event",
            "werner.lem4.event.corrected",
        ),
    ),
    _erratum(
        id="werner.E33",
        place="Theorem 2, after equation (13)",
        severity="D",
        printed="sqrt(1 + x) >= 1 + x/2 - x^2/8 for all x in [0, 8].",
        correction="For all x >= 0.",
        counterexample="None: the restriction does no harm, and is not needed.",
        statements=("werner.thm2.root",),
    ),
    _erratum(
        id="werner.E34",
        place="Abstract, Section 5",
        severity="C",
        printed="The rates asymptotically match those for known clusters.",
        correction="Where Delta >= n_i sigma/delta_i.",
        counterexample="K = 2, Delta = 48 sigma: (2) is 1.2 to 684 times sigma^2/n_i "
        "for n_i = 8 to 32768.",
        statements=("werner.eq2", "werner.eq2.corrected"),
    ),
)
