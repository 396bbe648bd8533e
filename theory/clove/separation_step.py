"""Lemma A.2, first display of the proof: a length is bounded by squared lengths.

Meant is sqrt(r_j^2 + sigma^2) - sqrt(r_i^2 + sigma^2) >= r_j - sqrt(r_i^2 +
(Delta/4)^2) for sigma <= Delta/4, with r_j >= 3 Delta/4 and r_i <= Delta/4.
"""

import functools

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["STATEMENTS", "check_step"]

STEP = "clove.lemA2.step"


def check_step(
    preset: Preset, *, name: str, squared: bool, noise: float = 0.25
) -> Verdict:
    """The displayed step |sqrt(A) - sqrt(B)| >= ..., sigma up to `noise` Delta.

    Args:
      preset: how many random distances.
      name: of the statement.
      squared: the right-hand side as printed, in squared lengths.
      noise: largest sigma over Delta.
    """
    generator = preset.generator(STEP)
    size = preset.choose(quick=4000, full=400_000)
    delta = generator.uniform(0.02, 2, size)
    own = delta / 4 * generator.choice([0.0, 1.0, 0.5], size)
    other = 0.75 * delta + generator.uniform(0, 1, size) * (2.5 - 0.75 * delta)
    sigma = noise * delta * generator.choice([0.0, 1.0], size)
    delta[0], own[0], other[0], sigma[0] = 1, 0, 2, 0
    left = np.abs(np.hypot(other, sigma) - np.hypot(own, sigma))
    if squared:
        right = np.abs(other**2 - own**2 + (delta / 4) ** 2)
    else:
        right = np.maximum(
            other - np.hypot(own, delta / 4), (3 - np.sqrt(2)) / 4 * delta
        )
    return never_exceeds(
        name,
        right,
        left,
        rounding=1e-13,
        detail=f"{np.mean(right > left + 1e-13):.0%} of {size} distances fail; at "
        f"|theta_i - theta_j*| = 2, theta_i = theta_i*, sigma = 0, Delta = 1 the sides "
        f"are {left[0]:.4g} and {right[0]:.4g}",
    )


_PRECONDITIONS = ("|theta_k - theta_k*| <= Delta/4 for all k", "sigma <= Delta/4")


def _rows() -> tuple[Statement, ...]:
    row = functools.partial(
        Statement,
        paper="clove",
        place="Lemma A.2, first display of the proof",
        preconditions=_PRECONDITIONS,
    )
    name = STEP
    printed = functools.partial(check_step, name=name, squared=True)
    corrected = functools.partial(check_step, name=f"{name}.corrected", squared=False)
    return (
        row(
            id=name,
            text="|c_j^i - c_i^i| >= | |theta_i - theta_j*|^2 - |theta_i - theta_i*|^2 "
            "+ (Delta/4)^2 |",
            expected=Status.VIOLATED,
            check=printed,
            control=functools.partial(printed, noise=0.0),
            note="A length against a squared length. The control has no noise.",
        ),
        row(
            id=f"{name}.corrected",
            text="|c_j^i - c_i^i| >= |theta_i - theta_j*| - sqrt(|theta_i - "
            "theta_i*|^2 + (Delta/4)^2) >= (3 - sqrt(2)) Delta/4",
            check=corrected,
            control=functools.partial(corrected, noise=0.27),
            note="What the display must mean. The control has sigma up to 0.27 Delta.",
        ),
    )


STATEMENTS = _rows()
