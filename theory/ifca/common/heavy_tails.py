"""Noise with heavy tails: rare jumps and Student variables.

The two-point noise of rare jumps is as bad as Chebyshev's inequality allows:
X = h with chance q, else -h q / (1 - q): mean 0, variance h^2 q / (1 - q). With q of
order 1/n' one jump in a fold decides the fold's mean, and the chance of that is what
the inequality bounds. The law changes with n', as a bound for all laws permits.

As the noise of a loss: f(theta; z) = F^j(theta) + X cos(u'(theta - theta_1)) with
|u| |theta_1 - theta_j| = pi adds +X at the own model and -X at the other, has variance
at most Var X at every theta, and no gradient noise at either. As the noise of a
gradient: X sin(u'(theta - theta_1)) / |u| adds X at theta_1 and at most that elsewhere.
"""

from typing import NamedTuple

import numpy as np
import scipy.special
from jaxtyping import Float

from cfljax.base import Numbers
from theory.ifca.common.checks import Broadcast


class RareJump(NamedTuple):
    """The law of X; both fields may be arrays."""

    chance: Numbers  # q
    height: Numbers  # h > 0

    @property
    def fall(self) -> Numbers:
        """What X is below 0 where it does not jump."""
        return self.height * self.chance / (1 - self.chance)

    @property
    def variance(self) -> Numbers:
        """Var X."""
        return self.height * self.fall


def flipping_jump(
    scale: Numbers, num_samples: Numbers, *, margin: float = 1e-9
) -> RareJump:
    """The law of variance `scale n'` whose single jump makes 2 mean(X) reach 1.

    In units of the gap F^j(theta_j') - F^j(theta_j) = 1, so that `scale` is
    eta^2 / (n' gap^2), positive; Lemma 3 bounds the probability by four times this. For
    n' = 1 it attains Cantelli's inequality. The jump is higher than it needs to be by a
    relative margin.
    """
    # q solves 4 scale (1 - n' q)^2 = n' q (1 - q) / margin'^2, with u = n' q:
    size = 4 * np.asarray(scale, float) / np.square(1 + margin)
    lead, middle = size + 1 / np.asarray(num_samples, float), 2 * size + 1
    # The smaller root, without cancellation.
    root = np.sqrt(np.maximum(middle**2 - 4 * lead * size, 0))
    chance = 2 * size / (middle + root) / num_samples
    height = np.sqrt(scale * num_samples * (1 - chance) / chance)
    return RareJump(chance, height)


def outlier_jump(chance: Numbers, total: Numbers) -> RareJump:
    """The law of variance 1 with a jump among `total` samples of that probability."""
    each = -np.expm1(np.log1p(-np.asarray(chance, float)) / total)
    return RareJump(each, np.sqrt((1 - each) / each))


def jump_tail(law: RareJump, total: Numbers, level: Numbers) -> Broadcast:
    """P(sum of `total` samples >= level), exactly: a binomial tail."""
    return np.asarray(np.exp(log_jump_tail(law, total, level)))


def log_jump_tail(law: RareJump, total: Numbers, level: Numbers) -> Broadcast:
    """Natural logarithm of `jump_tail`."""
    import scipy.stats  # Takes a second, which most callers need not wait for.

    jumps = (level + total * law.fall) / (law.height + law.fall)
    needed = np.maximum(np.ceil(jumps), 0)
    # The binomial tail loses all digits of one jump in a large total; expm1 does not.
    single = np.log(-np.expm1(total * np.log1p(-law.chance)))
    logarithm = np.where(needed == 0, 0.0, single)
    if np.any(needed > 1):
        with np.errstate(divide="ignore"):
            tail = scipy.stats.binom.logsf(needed - 1, total, law.chance)
        logarithm = np.where(needed > 1, tail, logarithm)
    return np.asarray(logarithm)


def noise_tails(
    level: Float[np.ndarray, " levels"],
) -> Float[np.ndarray, "laws levels"]:
    """P(|mean of N noises| > level v / sqrt(N)), for the laws that are checked. Normal
    waves in 1, 3, 40 and 1000 dimensions, where the square is chi^2_d / d; and rare
    jumps, one law per level and N = 100 or 1e6, whose single jump just exceeds it."""
    squares = np.square(level)
    normal = [scipy.special.gammaincc(d / 2, d * squares / 2) for d in (1, 3, 40, 1000)]
    jumps = []
    for total in (100.0, 1e6):
        # A jump among N lifts the sum to about (1 - u) sqrt(N / u), u its chance.
        chance = 1 / (squares + 2) * (1 - 1e-3)
        law = outlier_jump(chance, total)
        jumps.append(jump_tail(law, total, level * np.sqrt(total)))
    return np.array([*normal, *jumps])


_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)
# exp(-40): where the characteristic function of the sum is cut off.
_CUTOFF = 40.0


def student_mean_tail(
    freedom: float, num_samples: int, level: float
) -> tuple[float, float]:
    """P(mean of Student variables scaled to variance 1 >= level), and its error.

    P = 1/2 - (1/pi) int_0^inf sin(t n level) phi(t)^n / t dt (Gil-Pelaez), Gauss
    panels shorter than half a wave and refined towards 0, where phi is not smooth. The
    error is the change when every panel is halved plus rounding: an estimate, not a
    bound.

    Raises:
      ValueError: if `freedom` is not above 2, so that there is no variance.
    """
    if not freedom > 2:
        raise ValueError(f"`freedom` must be above 2, got {freedom}.")
    # -log phi^n is about n t^2 / 2 near 0 and n sqrt(freedom) |t| / scale far out.
    end = _root(freedom, num_samples)
    panels = int(np.ceil(end * num_samples * level / np.pi)) + 40
    coarse, size = _integral(freedom, num_samples, level, end, panels)
    fine, _ = _integral(freedom, num_samples, level, end, 2 * panels)
    rounding = 4 * np.finfo(float).eps * size + np.exp(-_CUTOFF)
    return 0.5 - fine / np.pi, abs(fine - coarse) / np.pi + rounding


def _integral(
    freedom: float, num_samples: int, level: float, end: float, panels: int
) -> tuple[float, float]:
    """Gil-Pelaez's integral up to `end`, and that of its absolute value."""
    edges = np.linspace(0, end, panels + 1)
    # Halving panels towards 0 resolve |t|^freedom there.
    near = edges[1] * 0.5 ** np.arange(60, 0, -1)
    edges = np.concatenate([[0.0], near, edges[1:]])
    half = np.diff(edges) / 2
    t = (edges[:-1] + half)[:, None] + half[:, None] * _NODES
    power = np.exp(num_samples * _log_characteristic(freedom, t))
    values = half[:, None] * _WEIGHTS * np.sin(t * num_samples * level) / t * power
    return float(np.sum(values)), float(np.sum(np.abs(values)))


def _log_characteristic(freedom: float, t: Broadcast) -> Broadcast:
    """log of x^(f/2) K_{f/2}(x) / (Gamma(f/2) 2^(f/2 - 1)), x = sqrt(f - 2) t."""
    order = freedom / 2
    x = np.sqrt(freedom - 2) * t
    logarithm = order * np.log(x) + np.log(scipy.special.kve(order, x)) - x
    logarithm -= scipy.special.gammaln(order) + (order - 1) * np.log(2)
    return np.asarray(np.minimum(logarithm, 0))


def _root(freedom: float, num_samples: int) -> float:
    """Where phi^n has fallen to the cutoff, found by doubling."""
    end = 1 / np.sqrt(num_samples)
    while num_samples * _log_characteristic(freedom, np.array(end)) > -_CUTOFF:
        end *= 1.2
    return float(end)
