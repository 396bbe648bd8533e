"""Responsibilities, the bound of the likelihood that they make, and its distance.

For components with weights pi and losses l, the surrogate of responsibilities q is the
sum of q_j (l_j + log(q_j / pi_j)); the client's loss is -log of the sum of pi_j
exp(-l_j).
"""

import numpy as np
from jaxtyping import Float
from scipy.special import log_softmax, logsumexp, rel_entr

from cfljax.statements import Step, identity

# Shapes of two arguments broadcast: a client has weights, its samples have losses.
Components = Float[np.ndarray, "*_ components"]
Points = Float[np.ndarray, "*_"]


def responsibilities(
    weights: Components, losses: Components, temperature: float = 1.0
) -> Components:
    """q_j ~ pi_j exp(-l_j), with `temperature` times the losses."""
    with np.errstate(divide="ignore"):
        return np.exp(log_softmax(np.log(weights) - temperature * losses, axis=-1))


def client_loss(weights: Components, losses: Components) -> Points:
    """-log of the mixture's likelihood."""
    with np.errstate(divide="ignore"):
        return -logsumexp(np.log(weights) - losses, axis=-1)


def surrogate(shares: Components, weights: Components, losses: Components) -> Points:
    """Of responsibilities `shares`."""
    return np.sum(shares * losses, axis=-1) + divergence(shares, weights)


def divergence(left: Components, right: Components) -> Points:
    """Kullback and Leibler's KL(left | right)."""
    return np.sum(rel_entr(left, right), axis=-1)


def at_least_zero() -> Step:
    """KL(q | p) >= 0, and 0 for q = p alone: log t <= t - 1 in t = p_j/q_j, times q_j,
    summed over j."""
    import sympy

    t = sympy.Symbol("t", positive=True)
    return identity(
        r"$\frac{d}{dt} (t - 1 - \log t) = (t - 1)/t$: least at $t = 1$, where it is 0",
        sympy.diff(t - 1 - sympy.log(t), t) - (t - 1) / t,
    )
