"""What is true of Lemmas 7 and 14: where a centre is after any number of rounds.

With m the cluster's mean and s^2 the spread of its points around m, noise and clients'
own means together,

    |v_l - m| <= (1 - delta/2)^l |v_0 - m| + 4 s^2/tau + 8 tau rho^2/(delta Delta^2)
                 + 2 beta tau/delta

for infinitely many points, if |v_0 - m| <= tau/2, 24 s^2 <= tau^2, tau <= Delta/3,
delta Delta^2 >= 48 rho^2 and beta <= delta/12. In a round points that are outside shift
the cluster's mean by at most 4 s^2/tau^2 |v - m| + 2 s^2/tau, strangers are inside with
probability at most 4 rho^2/Delta^2 and shift the centre by at most tau then, bad points
by beta tau; and under these conditions the centre never gets further than tau/2 from m.
"""

import numpy as np

from theory.judges import never_exceeds
from theory.statement import Preset
from theory.verdict import Verdict
from theory.werner.hard_rounds import draw_rounds, everybody
from theory.werner.population_map import move

__all__ = ["CONDITIONS", "check_path"]

CONDITIONS = (
    "|v_0 - m| <= tau/2, 24 s^2 <= tau^2",
    "tau <= Delta/3, delta_i Delta^2 >= 48 rho^2, beta_i <= delta_i/12",
    "n_i -> infinity",
)

_ROUNDING = 1e-12  # relative to the bound; each round adds a few units


def check_path(
    preset: Preset, *, name: str, heterogeneous: bool, bias: float = 4.0
) -> Verdict:
    """The bound above in every round of Threshold-Clustering.

    Args:
      preset: number of instances and rounds.
      name: id of the row.
      heterogeneous: whether the cluster's clients have means of their own.
      bias: in the place of 4.
    """
    count = preset.choose(quick=2000, full=100_000)
    num_rounds = preset.choose(quick=200, full=1000)
    generator = preset.generator(name)
    rounds = draw_rounds(generator, count, heterogeneous=heterogeneous)
    share, radius = rounds.shares, rounds.radius
    bad = share / 12 * generator.choice([0.0, 0.3, 1.0], count)
    push = bad * generator.choice([-1.0, 1.0], count)
    points = everybody(rounds, bad)
    rest = bias * rounds.spread / radius + 2 * bad * radius / share
    rest += 8 * radius / (share * rounds.separation**2)
    kept, centres = np.abs(rounds.starts), rounds.starts
    worst = np.zeros(count)
    for _ in range(num_rounds):
        centres = move(points, centres, radius, push=push)
        kept = kept * (1 - share / 2)
        worst = np.maximum(worst, np.abs(centres) / (kept + rest))
    return never_exceeds(
        name,
        worst,
        np.ones(count),
        rounding=_ROUNDING,
        detail=f"{count} instances, K = 2 to 64, {num_rounds} rounds each: distance "
        f"over bound at most {np.max(worst):.3g}",
    )
