"""The parameters of claims that can be evaluated: one name for each, in all papers.

    parameter("noise", 0.1)

is the standard deviation of the noise, at least 0, in every claim that has it.
"""

import math
from typing import NamedTuple

from cfljax.statements import Parameter, Real


class Entry(NamedTuple):
    """What a name means in every claim."""

    meaning: str
    symbols: str  # in the papers
    least: Real = 0.0
    most: Real = math.inf
    open: bool = False


GLOSSARY = {
    "m": Entry("clients", "IFCA m, CLoVE M, Werner N", 1),
    "k": Entry("clusters", "IFCA k, CLoVE K, Werner K", 1),
    "n": Entry("samples of a client in one estimate", "IFCA n', CLoVE n, n_k", 1),
    "rows": Entry("samples that are summed, of one client or several: the rows of X",
                  "IFCA N", 1),
    "d": Entry("features", "d", 1),
    "p": Entry("share of the smallest cluster in the clients", "IFCA p", 0, 1, True),
    "noise": Entry("standard deviation of the noise", "sigma", 0),
    "separation": Entry("least distance of two true models or means", "Delta", 0),
    "rho": Entry(r"$(\text{separation}/\text{noise})^2$", "IFCA rho", 0, open=True),
    "alpha": Entry(r"margin of the start: $|\theta_j - \theta_j^*| \le (1/2 - \alpha) "
                   r"\Delta$",
                   "IFCA alpha, alpha0", 0, 0.5, True),
    "distance": Entry("distance of a model from its truth", "|theta_j - theta_j*|", 0),
    "step_size": Entry("step size of gradient descent", "gamma, eta", 0, open=True),
    "rounds": Entry("communication rounds", "T", 0),
    "failure": Entry("allowed chance of failure", "delta", 0, 1, True),
    "convexity": Entry("constant of strong convexity", "lambda", 0, open=True),
    "smoothness": Entry("constant of smoothness", "L", 0, open=True),
    "loss_deviation": Entry("standard deviation of a sample's loss", "IFCA eta", 0),
    "gradient_deviation": Entry("root mean square of a sample's gradient noise",
                                "IFCA v", 0),
    "num_models": Entry("models that losses are taken of", "CLoVE N", 1),
    "members": Entry("clients or points of the cluster", "Werner n_i, CLoVE m_k", 1),
    "share": Entry("share of the cluster in all clients or points", "Werner delta_i",
                   0, 1, True),
    "malicious": Entry("share of malicious clients or points", "Werner beta_i", 0, 1),
    "radius": Entry("clipping radius", "Werner tau", 0, open=True),
    "momentum": Entry("weight of the newest gradient", "Werner alpha", 0, 1),
    "batch": Entry("samples of a stochastic gradient", "Werner |B|", 1),
    "weight": Entry("weight of the first of two components", "FedEM pi", 0, 1, True),
    "loss_gap": Entry("loss of the second component above the first's", "", -math.inf),
    "threshold": Entry("rise of the loss by which a client is isolated",
                       "FedDrift delta", 0, open=True),
    "shift": Entry("distance of two laws' means of inputs, in their deviations", "", 0,
                   6),
    "num_steps": Entry("local steps of a round", "IFCA tau, CLoVE tau", 1),
    "gap": Entry("loss of the start above its least value", "Werner f_i(x_0) - f_i*"),
}  # fmt: skip


def parameter(
    name: str,
    default: Real,
    meaning: str = "",
    *,
    least: Real | None = None,
    most: Real | None = None,
    open: bool | None = None,
) -> Parameter:
    """The parameter of the glossary, with a claim's own default; an integer makes it a
    count. Its meaning and ends are replaced where a claim says more.

    Raises:
      KeyError: if the glossary has no such name.
    """
    entry = GLOSSARY[name]
    return Parameter(
        name,
        meaning or entry.meaning,
        default,
        least=entry.least if least is None else least,
        most=entry.most if most is None else most,
        open=entry.open if open is None else open,
    )
