"""Rule (4) of Threshold-Clustering with infinitely many points, exactly.

Each round takes a centre v to

    v + sum_m mass_m (x_m - v) 1{|x_m - v| <= tau} + beta tau u,

where the last term are bad points that sit on the edge of the ball in every round. No
randomness is left: what is claimed of the mean over infinitely many points can be
computed in float64.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Inexact, Num

from cfljax.base import Numbers
from cfljax.statements import Step
from theory.werner.common.algebra import same
from theory.werner.common.laws import Discrete, skew2


class Mixture(NamedTuple):
    """Where the good points are, and how many."""

    places: Inexact[np.ndarray, "*batch atoms"]  # real, or complex for those of a plane
    # Shares of all N points; with the bad ones they add up to 1.
    masses: Inexact[np.ndarray, "*batch atoms"]


def mixture(
    laws: Sequence[Discrete],
    means: Num[np.ndarray, " clusters"],
    shares: Num[np.ndarray, " clusters"],
) -> Mixture:
    """Clusters with discrete noise around their means; `shares` are delta_k, over all
    N."""
    places = [mean + law.values for law, mean in zip(laws, means, strict=True)]
    masses = [share * law.chances for law, share in zip(laws, shares, strict=True)]
    return Mixture(np.concatenate(places), np.concatenate(masses))


def move(
    points: Mixture,
    centres: Inexact[np.ndarray, "*batch"],
    radius: Num[np.ndarray, "*#batch"] | float,
    *,
    push: Num[np.ndarray, "*#batch"] | float | complex = 0.0,
) -> Inexact[np.ndarray, "*batch"]:
    """Centres after one round of rule (4).

    Points at just the distance `radius` are in the ball; `push` is beta u, the share of
    the bad points times the direction, of length 1, to which they pull from its edge.
    """
    return settle(points, centres, radius, num_rounds=1, push=push)


def settle(
    points: Mixture,
    starts: Inexact[np.ndarray, "*batch"],
    radius: Num[np.ndarray, "*#batch"] | float,
    *,
    num_rounds: int,
    push: Num[np.ndarray, "*#batch"] | float | complex = 0.0,
) -> Inexact[np.ndarray, "*batch"]:
    """Centres after `num_rounds` rounds, the others as in `move`. Cost: rounds times
    centres times atoms."""
    centres, reach = starts, np.asarray(radius)[..., None]
    for _ in range(num_rounds):
        apart = points.places - centres[..., None]
        pull = np.sum(np.where(np.abs(apart) <= reach, points.masses * apart, 0), -1)
        moved = centres + pull + push * radius
        if np.array_equal(moved, centres):
            break  # all other rounds would be like this one
        centres = moved
    return centres


class Reach(NamedTuple):
    """What is known of a centre that starts within `reach` tau of the cluster's mean.

    |v_l - mu| <= (1 - a)^l |v_0 - mu| + rest with the share a that is taken in, given
    that rest <= reach tau.
    """

    taken: Float[np.ndarray, "..."]  # a = delta (1 - q), q = s^2/((1 - reach) tau)^2
    rest: Float[np.ndarray, "..."]


def within_reach(
    share: Numbers,
    separation: Numbers,
    radius: Numbers,
    bad: Numbers,
    *,
    reach: Numbers = 0.5,
    spread: Numbers = 1.0,
    noise: Numbers = 1.0,
) -> Reach:
    """The bound that the corrected Theorem 1 has; proof in `theorem1.md`.

    Args:
      share: delta, of all points.
      separation: Delta, from the cluster's mean to those of the others.
      radius: tau.
      bad: beta, of all points.
      reach: eta, in (0, 1).
      spread: s^2, variance of the cluster's points.
      noise: variance of the others' points.
    """
    near, far = (1 - reach) * radius, separation - (1 + reach) * radius
    kept = 1 - np.asarray(spread / near**2)
    rest = spread / near + noise * radius / (share * far**2) + bad * radius / share
    return Reach(share * kept, np.asarray(rest / kept))


def prove_within_reach(shifts: int = 1) -> list[Step]:
    r"""Written out in `theorem1.md`, Theorem A. Let $e = |v - \mu| \le \eta \tau$, and
    $w$ the chance that a point of the cluster is in the ball.

    (i) The centre moves to $v'$ with $v' - \mu = (1 - \delta w)(v - \mu) + \delta E[(z
    - \mu) 1\{\text{in}\}] + {}$ others + bad points. (ii) What is out of the ball has
    $|z - \mu| > (1 - \eta) \tau$: $1 - w \le q = \sigma^2/((1 - \eta) \tau)^2$ by
    Chebyshev, and as $E(z - \mu) = 0$, $|E[(z - \mu) 1\{\text{in}\}]| = |E[(z - \mu)
    1\{\text{out}\}]| \le \sigma^2/((1 - \eta) \tau)$. (iii) What is in the ball and not
    of the cluster is within $(1 + \eta) \tau$ of $\mu$, thus $\Delta - (1 + \eta) \tau$
    or more from its own mean, with chance at most $\sigma^2/(\Delta - (1 + \eta)
    \tau)^2$, and moves $v$ by at most $\tau$. (iv) Bad points move $v$ by at most
    $\beta \tau$. So $e' \le (1 - a) e + \delta R$, $a = \delta (1 - q)$, $R$ the sum of
    the three terms, without $1 - q$. (v) With $s = R/(1 - q)$ the right side is $(1 -
    a) e + a s$, a mean of $e$ and $s$: at most $\eta \tau$ again if $s$ is, and the
    recursion is solved by $(1 - a)^l e_0 + (1 - (1 - a)^l) s$."""
    import sympy

    share, w, v, inside, out, e, q, rest, kept = sympy.symbols(
        "delta w v inside out e q rest kept", positive=True
    )
    taken = share * (1 - q)
    solved = kept * e + (1 - kept) * rest
    return [
        same(
            r"(i): $v + \delta (E[z 1\{\text{in}\}] - w v) = (1 - \delta w) v + "
            r"\delta E[z 1\{\text{in}\}]$",
            v + share * (inside - w * v),
            (1 - shifts * share * w) * v + share * inside,
        ),
        same(
            r"(ii): $r^2/t - r = r (r - t)/t$, no less than 0 for $r \ge t$",
            e**2 / out - e,
            e * (e - out) / out,
        ),
        same(
            r"(iv): $(1 - a) e + \delta R = (1 - a) e + a \cdot \text{rest}$ for $R "
            r"= (1 - q) \text{rest}$",
            (1 - taken) * e + share * ((1 - q) * rest),
            (1 - taken) * e + taken * rest,
        ),
        same(
            "(v): the solution follows the recursion",
            (1 - taken) * solved + taken * rest,
            (1 - taken) * kept * e + (1 - (1 - taken) * kept) * rest,
        ),
        same("(v): it starts at $e$", solved.subs(kept, 1), e),
    ]


class Tight(NamedTuple):
    """An instance at which one part of the bound is nearly all of it."""

    points: Mixture
    share: float
    separation: float
    radius: float
    reach: float
    attained: float  # share of the bound that is reached
    bad: float = 0.0
    start: float = 0.0  # v_0 - mu
    num_rounds: int = 200

    @property
    def ratio(self) -> float:
        """|v_l - mu| over its bound."""
        start = np.array([self.start])
        found = settle(
            self.points,
            start,
            self.radius,
            num_rounds=self.num_rounds,
            push=self.bad,
        )
        taken, rest = within_reach(
            self.share, self.separation, self.radius, self.bad, reach=self.reach
        )
        if max(float(rest), abs(self.start)) > self.reach * self.radius:
            raise ValueError(f"`reach` must hold start and rest, got {self.reach}.")
        left = (1 - taken) ** self.num_rounds
        return float(np.abs(found[0]) / (left * abs(self.start) + (1 - left) * rest))


def tight_instances() -> tuple[Tight, ...]:
    """Skewed noise just beyond the ball; the others' rare atom on its edge; bad points
    on its edge in every round; and one round from the edge of what is allowed, away
    from which the noise's rare atom is just out of the ball."""
    law = skew2(1000.0011, 1.0)
    own = Mixture(np.append(law.values, 1e9), np.append(law.chances / 2, 0.5))
    share, reach, radius = 1e-3, 3.2e-3, 250.0
    far = 3 * radius  # from the atom to its mean
    stray = np.array([1.0, far**2]) / (1 + far**2) * (1 - share)
    others = Mixture(
        np.array([0.0, radius, radius + far + 1 / far]), np.append(share, stray)
    )
    alone = Mixture(np.array([0.0, 1e9]), np.array([0.5, 0.495]))
    gap = 2.5 * (1 + 1e-9)
    away = Mixture(
        np.array([-gap, 1 / gap, 1e9]),
        np.append(0.95 * np.array([1.0, gap**2]) / (1 + gap**2), 0.05),
    )
    return (
        Tight(own, 0.5, 1e9, 1000.0, 1e-3, 0.999),
        Tight(others, share, radius + far, radius, reach, 0.9862, num_rounds=20_000),
        Tight(alone, 0.5, 1e9, 1e4, 0.0101, 1.0, bad=0.005),
        Tight(away, 0.95, 1e9, 5.0, 0.5, 0.8816, start=2.5, num_rounds=1),
    )
