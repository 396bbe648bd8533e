"""Step (iv) of Lemmas 8 and 15: the variance of the mean gradient over random paths.

On a double well, f'(x) = x^3 - x, from the top between the wells, x_0 = 0. There is
noise in the first round alone, +-sigma with even chances and independent over the
clients, and Assumption 6 holds in all rounds. It decides on the well, and with it on
the gradients of the path, which grow to the order of 1 however small sigma is. Exact: a
path for each number of clients with a positive sign.
"""

import functools

import numpy as np
from jaxtyping import Float
from scipy import stats

from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.hidden_constants import DECLARED, exactly, one_constant

__all__ = ["check_step", "path_variance", "row"]

_NOISES = (1e-1, 1e-2, 1e-3, 1e-4)  # sigma
_STEP_SIZE, _CLIENTS, _ROUNDS = 0.1, 4, 250


def path_variance(noise: float, alpha: float) -> Float[np.ndarray, " rounds"]:
    """Var E_x m_t of each round, m_t = alpha g_t + (1 - alpha) m_{t-1}, m_0 = 0.

    Args:
      noise: sigma in the first round.
      alpha: 1 for the gradients themselves.
    """
    positive = np.arange(_CLIENTS + 1)
    chances = stats.binom.pmf(positive, _CLIENTS, 0.5)
    mean_noise = noise * (2 * positive / _CLIENTS - 1)
    place, momentum = np.zeros(len(positive)), np.zeros(len(positive))
    found = []
    for index in range(_ROUNDS):
        slope = place**3 - place
        expected = alpha * slope + (1 - alpha) * momentum  # given the path
        middle = np.sum(chances * expected)
        found.append(np.sum(chances * (expected - middle) ** 2))
        momentum = expected + (alpha * mean_noise if index == 0 else 0)
        place = place - _STEP_SIZE * momentum
    return np.array(found)


def check_step(
    preset: Preset, *, name: str, alpha: float = 1.0, constant: float = DECLARED
) -> Verdict:
    """Var E_x m_t <= `constant` rho^2 in every round, rho^2 = alpha sigma^2."""
    del preset
    values = np.array([np.max(path_variance(one, alpha)) for one in _NOISES])
    noises = np.array(_NOISES)
    family = exactly("1/sigma", 1 / noises, values / (alpha * noises**2))
    return one_constant(
        name,
        [family],
        constant=constant,
        detail=f"largest variance in {_ROUNDS} rounds over rho^2",
    )


def _margins() -> tuple[Margin, ...]:
    """Of the counterexample."""
    # f'' = 3 x^2 - 1 where the path is, |x| <= 1.
    return (Margin("eta <= 1/L", _STEP_SIZE, 1 / 2, at_least=False),)


def row(name: str, *, place: str, text: str, alpha: float, note: str) -> Statement:
    """The printed step of either lemma."""
    check = functools.partial(check_step, name=name, alpha=alpha)
    return Statement(
        id=name,
        paper="werner",
        place=place,
        text=text,
        preconditions=(
            "noise of variance at most sigma^2 at each x, independent over clients",
            "f(x) = x^4/4 - x^2/2, x_0 = 0, n_i = 4, eta = 0.1",
        ),
        constants={"C": DECLARED, "alpha": alpha},
        claimed="constant unnamed",
        expected=Status.VIOLATED,
        check=check,
        control=functools.partial(check, constant=64.0),
        note=note,
        margins=_margins,
    )
