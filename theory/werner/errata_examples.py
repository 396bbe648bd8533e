"""Errata of Werner et al.: the examples of Figure 1, and Assumption 5's remark."""

import functools

from theory.statement import Erratum

__all__ = ["ERRATA"]

_erratum = functools.partial(Erratum, paper="werner")

ERRATA = (
    _erratum(
        id="werner.E14",
        place="Section 2.1, Clustered Federated Learning",
        severity="A",
        printed="The FedAvg optimum is 1/4; there {1,2} and {3} are parted with "
        "probability 1/2.",
        correction="1/3 with the weights 1/N of (1). Cosine bipartition finds {1,3} "
        "and {2} with probability 1/2, and the truth otherwise; that 2 and 3 are "
        "parted for ever with probability 1/2 stands.",
        counterexample="The mean gradient is x - 1/3. g_3 = x has the sign of g_1 at "
        "1/4 and at 1/3, so that {1,2} is never found.",
        statements=("werner.ex1c", "werner.ex1c.corrected"),
    ),
    _erratum(
        id="werner.E15",
        place="Section 3.1.3, examples of Figures 1a and 1c",
        severity="A",
        printed="Federated-Clustering takes client 2 to 0, and avoids the mistake of "
        "Clustered FL by considering all clients at every step.",
        correction="Figure 1a: all clients are right for 1/3 <= tau eta < 2/3, client "
        "2 for < 1, with eta < 1/6. Figure 1b: for tau < 2. Figure 1c: with batches of "
        "|B| >= (3 C/2)^2 and a radius of about 1/4.",
        counterexample="Without noise the theorems' radius is 0, and client 2 stays "
        "at the inflection; f_2 is not L-smooth on the line either. With |B| = 1 "
        "clients 1 and 3 are at the same distance 1/2 from client 2: no radius is "
        "ever right.",
        statements=(
            "werner.ex1a.fc",
            "werner.ex1a.fc.corrected",
            "werner.ex1b.fc",
            "werner.ex1c.fc",
            "werner.ex1c.fc.corrected",
            "werner.asm7",
            "werner.asm7.corrected",
        ),
    ),
    _erratum(
        id="werner.E20",
        place="Section 3.2, after Assumption 5",
        severity="A",
        printed="Assumption 5 implies |grad f_i(x_j*)|^2 >= Delta.",
        correction="|grad f_i(x_j*)|^2 >= Delta^2, by the assumption for (j, i).",
        counterexample="f_i = |x - a_i|^2/2 with |a_i - a_j| = Delta = 1/2: the square "
        "is 1/4.",
        statements=("werner.asm5.optimum", "werner.asm5.optimum.corrected"),
    ),
    _erratum(
        id="werner.E30",
        place="Section 2.1, Myopic-Clustering",
        severity="E",
        printed="The gradients at 1.5 are 1/2eta, 1/2eta and 1/2eta.",
        correction="1/(2 eta), 1/(2 eta) and -1/(2 eta); a sign is missing, in print "
        "or in our copy.",
        counterexample="f_3'(1.5) = (1.5 - 2)/eta.",
        statements=(
            "werner.ex1a.gradients",
            "werner.ex1a.gradients.corrected",
            "werner.ex1a",
        ),
    ),
)
