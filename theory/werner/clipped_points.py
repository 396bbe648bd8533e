"""The points y of appendices A.3 and A.4, of which the next centre is the mean."""

import functools

import jax.numpy as jnp
import numpy as np

from cfljax.kernels.threshold import threshold_clustering
from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = ["STATEMENTS", "check_points"]

POINTS = "werner.yjlt"


def check_points(
    preset: Preset, *, name: str, factor: bool, outside: bool = True
) -> Verdict:
    """The mean of y_j is where Threshold-Clustering takes the centre.

    Args:
      preset: random numbers.
      name: id of the row.
      factor: whether y_j = z_j 1{in} + v 1{out}, rather than 1{in} + v 1{out}.
      outside: whether the second term is there.
    """
    points = preset.generator(POINTS).standard_normal((6, 2)).astype(np.float32)
    centre = points[:1] + np.float32(0.1)
    found = threshold_clustering(
        jnp.asarray(points), jnp.asarray(centre), num_rounds=1, radius=1.5
    )
    inside = np.asarray(found.members)[0][:, None]
    kept = np.where(inside, points if factor else 1, centre if outside else 0)
    miss = np.abs(np.asarray(found.centres)[0] - np.mean(kept, axis=0)).astype(float)
    return never_exceeds(
        name,
        miss,
        np.zeros(len(miss)),
        rounding=float(64 * np.finfo(np.float32).eps),
        detail=f"{np.sum(inside)} of {len(points)} points in the ball; the mean of y "
        f"misses the centre by {np.max(miss):.2g}",
    )


_row = functools.partial(
    Statement, paper="werner", place="Appendices A.3 and A.4, notation"
)
_printed = functools.partial(check_points, name=POINTS, factor=False)
_corrected = functools.partial(check_points, name=f"{POINTS}.corrected", factor=True)

STATEMENTS = (
    _row(
        id=POINTS,
        preconditions=("points and a centre, some points in its ball",),
        text="v_l = (1/N) sum_j y_j, y_j = 1(|g_j - v_{l-1}| <= tau) + v_{l-1} 1(|g_j "
        "- v_{l-1}| > tau)",
        expected=Status.VIOLATED,
        check=_printed,
        control=functools.partial(_printed, outside=False),
        note="g_j, in A.4 m_j, is missing before the first indicator. The control "
        "omits the second term, too.",
    ),
    _row(
        id=f"{POINTS}.corrected",
        preconditions=("points and a centre, some points in its ball",),
        text="v_l = (1/N) sum_j y_j, y_j = g_j 1(|g_j - v_{l-1}| <= tau) + v_{l-1} 1("
        "|g_j - v_{l-1}| > tau)",
        check=_corrected,
        control=functools.partial(_corrected, outside=False),
        note="As in appendix A.1. The control omits the second term.",
    ),
)
