"""Table 1's losses: no cross-entropies, by what one model can do on private labels.

The same image has the label y + k mod 10 in cluster k. A single model gives the four
labels probabilities of sum 1 at most, so the mean of their negative logarithms is at
least log 4 (Jensen), and the mean of 1 minus them at least 3/4.
"""

import functools
import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Erratum, Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["ERRATA", "STATEMENTS", "check", "least_loss"]

LOSS = "werner.table1.loss"
_CLUSTERS, _CLASSES = 4, 10
_PUBLISHED = 0.803  # Global, private label.
_ROUNDING = 1e-9

Loss = Callable[[Float[np.ndarray, "..."]], Float[np.ndarray, "..."]]
_LOSSES: dict[str, Loss] = {
    "cross-entropy": lambda probability: -np.log(probability),
    "1 - p": lambda probability: 1 - probability,
}


def least_loss(preset: Preset, name: str) -> tuple[float, float]:
    """Loss of even probabilities of the clusters' labels, and the least of many others.

    The first is the minimum, since the mean of a convex function is at least the
    function of the mean; the second says that nothing tried is below it.
    """
    loss = _LOSSES[name]
    number = preset.choose(quick=20_000, full=2_000_000)
    # Concentrated on few classes or spread over many.
    generator = preset.generator(LOSS)
    spread = np.exp(generator.uniform(-2, 2, (number, 1)))
    drawn = generator.gamma(np.broadcast_to(spread, (number, _CLASSES)))
    drawn = np.maximum(drawn, 1e-300)
    drawn /= drawn.sum(axis=1, keepdims=True)
    others = np.mean(loss(drawn[:, :_CLUSTERS]), axis=1)
    even = float(loss(np.array(1 / _CLUSTERS)))
    return even, float(np.min(others))


def check(
    preset: Preset, *, row: str, name: str, published: float = _PUBLISHED
) -> Verdict:
    """The published loss is one that a single model can have."""
    even, found = least_loss(preset, name)
    least = min(even, found)
    return never_exceeds(
        row,
        np.array([least]),
        np.array([published]),
        rounding=_ROUNDING,
        detail=f"{name}: at least {even:.4f}, {found:.4f} the least of those drawn; "
        f"published {published:g}",
    )


_row = functools.partial(
    Statement,
    paper="werner",
    place="Section 4.2, Table 1, private label",
    preconditions=("every image is as likely in each of four clusters",),
)

STATEMENTS = (
    _row(
        id=LOSS,
        text="the losses of Table 1 are cross-entropies: Global's is 0.803",
        claimed="a loss of 0.803 beside 22.2 % accuracy",
        expected=Status.VIOLATED,
        check=functools.partial(check, row=LOSS, name="cross-entropy"),
        control=functools.partial(
            check, row=LOSS, name="cross-entropy", published=0.99 * math.log(4)
        ),
        note="A cross-entropy is at least log 4 = 1.386. The table does not say which "
        "loss it shows; KNN's two numbers, 2.395 and 1.411, are of another kind. The "
        "control claims a loss one percent below log 4.",
    ),
    _row(
        id=f"{LOSS}.corrected",
        text="they are means of 1 - p(label), which are at least 3/4 for Global",
        claimed="0.803",
        check=functools.partial(check, row=f"{LOSS}.corrected", name="1 - p"),
        control=functools.partial(
            check, row=f"{LOSS}.corrected", name="1 - p", published=0.74
        ),
        note="The released code trains the negative likelihood of probabilities, -p, "
        "which is 1 - p up to a constant. The control claims 0.74.",
    ),
)

ERRATA = (
    Erratum(
        id="werner.E36",
        paper="werner",
        place="Section 4.2, Table 1",
        severity="E",
        printed="Losses between 0.43 and 0.80 beside accuracies, of no kind that is "
        "named.",
        correction="Means of 1 - p(label), but for KNN's.",
        counterexample="A cross-entropy of one model on four contradictory labelings "
        "is at least log 4 = 1.386; Global has 0.803.",
        statements=(LOSS, f"{LOSS}.corrected"),
    ),
)
