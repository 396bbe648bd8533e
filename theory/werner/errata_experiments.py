"""Errata of Werner et al.: section 4, its figures and the assumptions they are for."""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="werner")

ERRATA = (
    _erratum(
        id="werner.E21",
        place="Section 4.1",
        severity="E",
        printed="d = 10 > n = 9, such that the local system is overdetermined.",
        correction="Underdetermined: its solutions are a line.",
        counterexample="9 equations for 10 unknowns, of rank 9 in every draw.",
        statements=(
            "werner.fig2.overdetermined",
            "werner.fig2.overdetermined.corrected",
        ),
    ),
    _erratum(
        id="werner.E22",
        place="Section 4.1, (8)",
        severity="E",
        printed="|grad f_i(x) - grad f_i(x)|^2",
        correction="|grad f_i(x) - grad f_j(x)|^2 for i !~ j, x on the path of the "
        "cluster of i; an f_i too many in print or in our copy.",
        counterexample="It is 0, and its lower bound Delta = 0 no separation.",
        statements=("werner.eq8", "werner.eq8.corrected"),
    ),
    _erratum(
        id="werner.E23",
        place="Section 4.3, the caption of Figure 4 and section 3.2, note 4",
        severity="E",
        printed="Data sets with the same centres vary in their inter-cluster standard "
        "deviation sigma.",
        correction="Intra-cluster.",
        counterexample="The deviation between centres is 5.8, whatever sigma is.",
        statements=("werner.fig4.deviation", "werner.fig4.deviation.corrected"),
    ),
    _erratum(
        id="werner.E24",
        place="Section 4.3",
        severity="A",
        printed="(f(l) - f(l-1))/(f(l-1) - min f) identifies the elbow; elbows tell "
        "how l depends on sigma, in line with l >~ log sigma of Theorem 1.",
        correction="The first l with (f(l-1) - f(l))/(f(0) - min f) < 0.01. Theorem "
        "1's l falls with sigma; with a quantile as the radius elbows depend on the "
        "start rather than on sigma.",
        counterexample="The formula is negative, nearly constant for a geometric "
        "decay, and -1 where the minimum is reached. Theorem 1 asks for about 44, 30, "
        "17 and 3 rounds at sigma = 0.5, 1, 2, 4.",
        statements=(
            "werner.fig4.elbow",
            "werner.fig4.elbow.corrected",
            "werner.fig4",
            "werner.fig4.corrected",
        ),
    ),
    _erratum(
        id="werner.E35",
        place="Section 4.1, Figure 2, on Assumptions 4 to 6",
        severity="A",
        printed="Figure 2 demonstrates that Assumptions 4 and 5 are realistic, with "
        "D = 0; they are to hold for all x.",
        correction="It shows values on one path. For all x Assumption 4 holds with an "
        "A^2 that may be several times larger, Assumption 5 with D > 0 and Delta(D) "
        "from least squares, Assumption 6 on bounded sets.",
        counterexample="On 30 draws of the paper's data A^2 is up to 489, and 16 to "
        "88 % of it on the path; min_x |grad f_i - grad f_j|^2 = 0; the variance of a "
        "minibatch grows as |x - x*|^2.",
        statements=(
            "werner.asm5",
            "werner.asm5.corrected",
            "werner.asm4",
            "werner.asm6",
            "werner.asm6.corrected",
            "werner.eq7",
            "werner.fig2",
        ),
    ),
)
