"""The display between (21) and (22): how far a momentum lags behind the gradient.

Let a_t = |M_t - grad f(x_{t-1})|^2, where M is the momentum of the exact gradients
and x_t = x_{t-1} - eta v_t for whatever v. Printed is a bound of each a_t by a sum over
all rounds; what follows from the proof, and suffices for (22), is one of the sum of all
a_t, with a_1 on the right.
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Margin, Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["STATEMENTS", "check_each", "check_sum", "lags"]

DISPLAY = "werner.eq22.ii"

_ROUNDING = 1e-11  # relative to the bound; sums of some thousand terms
_FEW_ROUNDS = (1, 2, 5, 10)  # T
_SMALL_STEP, _WEIGHT = 0.01, 0.02  # L eta and alpha


def lags(
    moves: Float[np.ndarray, "rounds paths"],
    curvature: Float[np.ndarray, " paths"],
    weights: Float[np.ndarray, " paths"],
    start: float,
) -> Float[np.ndarray, "rounds paths"]:
    """a_t on f(x) = h x^2/2 from m_0 = 0.

    Args:
      moves: eta v_t of each round, whatever led to them.
      curvature: h of each path, of either sign.
      weights: alpha.
      start: x_0.
    """
    place = np.full(len(weights), start)
    momentum = np.zeros(len(weights))
    found = []
    for move in moves:
        slope = curvature * place
        momentum = weights * slope + (1 - weights) * momentum
        found.append((momentum - slope) ** 2)
        place = place - move
    return np.array(found)


def check_each(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """a_t <= `factor` (1 - L eta)/2 sum_{t=2}^T |v_{t-1}|^2 in all of few rounds."""
    del preset
    most = max(_FEW_ROUNDS)
    moves, place, momentum = [], 1.0, 0.0
    for _ in range(most):  # v is the momentum, L = h = 1
        momentum = _WEIGHT * place + (1 - _WEIGHT) * momentum
        moves.append(_SMALL_STEP * momentum)
        place -= moves[-1]
    pull = np.array(moves)[:, None]
    found = lags(pull, np.ones(1), np.full(1, _WEIGHT), 1.0)[:, 0]
    squares = np.cumsum(np.append(0.0, (pull[:, 0] / _SMALL_STEP) ** 2))
    values = np.array([np.max(found[:one]) for one in _FEW_ROUNDS])
    bounds = (1 - _SMALL_STEP) / 2 * squares[np.array(_FEW_ROUNDS) - 1]
    pairs = zip(values, bounds, strict=True)
    return never_exceeds(
        DISPLAY,
        values,
        factor * bounds,
        rounding=_ROUNDING,
        detail=f"gradient 1 at x_0, L eta = {_SMALL_STEP}, alpha = {_WEIGHT}, T = "
        f"{', '.join(map(str, _FEW_ROUNDS))}: largest a_t against the bound "
        + ", ".join(f"{one:.3g}/{two:.3g}" for one, two in pairs),
    )


def check_sum(preset: Preset, *, ratio: float = 1.5) -> Verdict:
    """sum a_t <= a_1/(alpha (1 + alpha - alpha^2)) + (1 - L eta)/2 sum |v_{t-1}|^2.

    Args:
      preset: number of rounds.
      ratio: alpha/(L eta).
    """
    generator = preset.generator(DISPLAY)
    rounds = preset.choose(quick=1500, full=20_000)
    steps = np.repeat([0.01, 0.05, 0.2, 1 / ratio], 8)  # L eta, with L = 1
    weights = ratio * steps
    paths = len(steps)
    # Steady moves make the lag largest; the others turn round or have no pattern.
    pull = np.ones((rounds, paths))
    pull[:, 1::4] = (-1.0) ** np.arange(rounds)[:, None]
    pull[:, 2::4] = generator.standard_normal((rounds, paths // 4))
    pull[rounds // 2 :, 3::4] = 0
    curvature = np.where(np.arange(paths) % 8 < 4, 1.0, -1.0)
    values, bounds = [], []
    for start in (0.0, 3.0):
        found = lags(steps * pull, curvature, weights, start)
        first = found[0] / (weights * (1 + weights - weights**2))
        values.append(np.sum(found, axis=0))
        bounds.append(first + (1 - steps) / 2 * np.sum(pull[:-1] ** 2, axis=0))
    left, right = np.concatenate(values), np.concatenate(bounds)
    return never_exceeds(
        f"{DISPLAY}.corrected",
        left,
        right,
        rounding=_ROUNDING * right,
        detail=f"{len(left)} paths of {rounds} rounds, alpha = {ratio:g} L eta: left "
        f"over right at most {np.max(left / right):.3g}",
    )


def _margins() -> tuple[Margin, ...]:
    """Of the counterexample."""
    return (
        Margin("alpha >= 1.5 L eta", _WEIGHT, 1.5 * _SMALL_STEP),
        Margin("eta <= 1/L", _SMALL_STEP, 1.0, at_least=False),
    )


_row = functools.partial(
    Statement, paper="werner", place="Proof of Theorem 4, step (ii) before (22)"
)

STATEMENTS = (
    _row(
        id=DISPLAY,
        text="E |M_t - grad f_i(x_{i,t-1})|^2 <= (1 - L eta)/2 sum_{t=2}^T "
        "E |v_{t-1}|^2 for each t <= T",
        preconditions=(
            "alpha >= C L eta",
            "f_i is L-smooth",
            "m_0 = 0",
            "M_t = E_x of the mean momentum in the cluster of i",
        ),
        constants={"C": 1.5},
        claimed="C unnamed",
        expected=Status.VIOLATED,
        check=check_each,
        control=functools.partial(check_each, factor=4.0),
        note="At t = 1 the left-hand side is (1 - alpha)^2 |grad f(x_0)|^2, whatever v "
        "is. The control allows four times as much and is violated, too.",
        margins=_margins,
    ),
    _row(
        id=f"{DISPLAY}.corrected",
        text="sum_{t=1}^T a_t <= a_1/(alpha (1 + alpha - alpha^2)) + (1 - L eta)/2 "
        "sum_{t=2}^T |v_{t-1}|^2, a_t = |M_t - grad f_i(x_{i,t-1})|^2",
        preconditions=(
            "alpha = C L eta <= 1",
            "f_i is L-smooth",
            "M_t = alpha grad f_i(x_{i,t-1}) + (1 - alpha) M_{t-1}",
        ),
        constants={"C": 1.5},
        check=check_sum,
        control=functools.partial(check_sum, ratio=1.3),
        note="The first term is of order |grad f(x_0)|^2/(L eta), no more than what "
        "f(x_0) - f* gives anyhow. Steady moves need C^2 >= 2 for small steps. The "
        "control has C = 1.3.",
    ),
)
