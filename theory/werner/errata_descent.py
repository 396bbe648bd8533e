"""Errata of Werner et al.: Theorems 3 and 4, their conditions and their proofs."""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="werner")


def _pairs(*names: str) -> tuple[str, ...]:
    """Rows and their corrections."""
    return tuple(
        f"werner.{name}{ending}" for name in names for ending in ("", ".corrected")
    )


ERRATA = (
    _erratum(
        id="werner.E2",
        place="Theorem 4, Assumption 9",
        severity="A",
        printed="|E m_{i,t} - E m_{j,t}| >= Delta for all t <= T, and (5) for all i.",
        correction="Together only while 2 (R_i + R_j) >= Delta^2, T <~ L F0 "
        "V/Delta^4, or for one cluster next to others that never converge. At t = 1 "
        "with m_0 = 0 gradients must be Delta/alpha apart.",
        counterexample="Two quadratics: after 7 to 13 rounds with eta = 1/(4 L) "
        "momenta are closer than half to a 50th of their widest distance, which goes "
        "to 0.",
        statements=(
            "werner.thm4",
            "werner.thm4.corrected",
            *_pairs("asm9", "thm4.first"),
        ),
    ),
    _erratum(
        id="werner.E3",
        place="Theorem 3, (3), and its proof, (15) to (17)",
        severity="A",
        printed="avg E|grad f_i|^2 <~ sqrt(max(1, A^2) V/T) for eta <= 1/L, from v_0 = "
        "g_i; Lemma 7's delta_i avg|grad fbar_i|^2 is absorbed.",
        correction="L (F0 + A^2 Fbar0)/T + max(1, A^2) (rho^2/n + rho^3/(delta Delta) "
        "+ beta^2 rho Delta/delta), rho = sigma/sqrt(|B|), for eta = 1/(2 L) and "
        "gradients at most tau/2 off; a small absolute constant in place of delta_i "
        "in Lemma 7.",
        counterexample="f -> s f: the left side over the right side is 54 s. sigma -> "
        "0: 0.65/sigma. eta = 1/(L T): 174 sqrt(T). Gradients 1.001 tau off with "
        "probability sigma^2/s^2: 4.9 at n = 24, 345 at n = 1536.",
        statements=_pairs(
            "thm3",
            "thm3.units",
            "thm3.noiseless",
            "thm3.step",
            "thm3.start",
            "eq15",
            "eq16",
            "eq17",
        )
        + ("werner.eq14", "werner.thm3.saddle"),
    ),
    _erratum(
        id="werner.E4",
        place="Theorems 3 and 4, tau",
        severity="A",
        printed="tau ~ sqrt(delta sigma Delta); rho for sigma in the proofs.",
        correction="tau^2 ~ c^2 + delta rho Delta, rho = sigma/sqrt(|B|) or "
        "sqrt(alpha) sigma.",
        counterexample="beta = delta/12, Delta = 24 sigma/delta: the left side stays "
        "at beta^2 sigma Delta/delta; over (3) it is 0.58 at T = 30 and 20 at T = "
        "30,000, over (5) it grows like T^(1/4).",
        statements=_pairs("thm3.radius", "thm4.radius"),
    ),
    _erratum(
        id="werner.E6",
        place="Theorem 3 and Lemma 11 for A >= 1",
        severity="A",
        printed="With tau^2 ~ c^2 + A^4 |grad fbar_i|^2 + delta rho Delta, for every "
        "A.",
        correction="For A^2 <~ delta, or without A^4 |grad fbar_i|^2.",
        counterexample="A = 2, C = 1 and 4, D = 0: the others, three quarters of all, "
        "are captured and the client is driven to x = 1.5 R; |grad f_i|^2 = 22,500 "
        "for R = 100, where (3) is 3e-6.",
        statements=_pairs("thm3.capture"),
    ),
    _erratum(
        id="werner.E9",
        place="Theorem 4, alpha and eta, and (22) and (23) of its proof",
        severity="A",
        printed="alpha >~ L eta, eta <~ min(1/L, sqrt(F0/(L T (sigma^2/n + "
        "sigma^3/Delta)))); the series of (23) is of order one.",
        correction="alpha ~ L eta with alpha >= sqrt(2) L eta, eta equal to its bound; "
        "2/delta for the series.",
        counterexample="alpha = 1, noise 0 or s = 1.5 tau: a floor of sigma^4/s^2 = "
        "0.018 sigma^2 for all T. eta = 1/(L T): avg|grad f_i|^2 stays 0.43 |grad "
        "f_i(x_0)|^2. (23) at K = 64: 29.5 times rho^3/Delta.",
        statements=("werner.eq21", "werner.eq22")
        + _pairs("thm4.momentum", "thm4.step", "eq23"),
    ),
    _erratum(
        id="werner.E13",
        place="Theorem 3, beta_i",
        severity="C",
        printed="beta_i <~ delta_i; min(delta_i, delta_i/A^4) in the proof of Lemma 7.",
        correction="beta_i <~ delta_i/max(1, A^4), or at least beta_i A^2 < delta_i, "
        "with the radius of the proof.",
        counterexample="A = 4, beta = delta/12, one cluster: clients on the edge of "
        "the ball pull harder than the gradient, and the client runs uphill.",
        statements=_pairs("thm3.malicious"),
    ),
    _erratum(
        id="werner.E17",
        place="Algorithm 4, line 4, against the proof of Lemma 14",
        severity="C",
        printed="Threshold-Clustering starts at v_{k,t-1}; v_{k,0} and m_0 are not "
        "given.",
        correction="Start at a member's momentum, as the proof has it; m_0 = 0.",
        counterexample="v_{k,0} = m_0 = 0, Delta = 2 alpha |grad f_i(x_0)|: the ball "
        "is empty in round 1, and x never moves.",
        statements=_pairs("thm4.warm"),
    ),
    _erratum(
        id="werner.E18",
        place="Theorem 3, |B_i|, (18), remarks 1 and 4",
        severity="A",
        printed="|B| >~ sqrt(V m) = V T gives the optimal rate 1/sqrt(T); with |B| = "
        "m the noise vanishes.",
        correction="|B| >= V T/(L F0) if beta > 0, sqrt(V T) in the same units if "
        "beta = 0, and L F0/T beside sqrt(L F0 V/T). A batch of |B| = m has no noise "
        "only without replacement, and then T = m/|B| = 1.",
        counterexample="|B| = V T, beta = 0: the rate is 1/T, exponent -1.00; a "
        "client on its own is below (3) for T >= sigma^4/V^3. (18) with sigma = 1e-4: "
        "245 to 490 times the right side.",
        statements=_pairs("thm3.batch", "thm3.remark4", "eq18")
        + ("werner.thm3.optimal",),
    ),
)
