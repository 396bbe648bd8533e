"""Theorem 4': what Momentum-Clustering converges to, proved with every constant.

The statement and its proof stand in `theorem4.md` beside this file; the steps that are
algebra, or inequalities between explicit functions, are checked by computer here. The
checks of the rows confirm it by another route: where nobody ever leaves a ball, the
gradient and the mean momentum follow a linear recursion, whose second moments give the
mean square gradient of a quadratic loss exactly.
"""

import dataclasses
import functools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import intervals
from cfljax.statements import (
    ERROR_RATE,
    Constant,
    Evaluation,
    Grade,
    Margin,
    Preset,
    Step,
    Truth,
    Verdict,
    combine,
    exact,
    identity,
    never_exceeds,
    nonnegative,
    within,
)
from theory.glossary import parameter
from theory.polynomials import no_negative_term
from theory.rows import row
from theory.werner.common.claims import exactly as computed
from theory.werner.common.one_client import Cluster, settled
from theory.werner.theorem3_corrected import clipping_rounds, prove_alike

_LEAST, _MOST = 24.0, 0.5  # Delta >= 24 sigma/delta, beta <= delta/2
_ROUNDING = 1e-9  # relative, of second moments after up to 10^8 rounds


def prove_absorption(*, square: Fraction | int = 2) -> list[Step]:
    r"""Sum $a_t \le a_1/(\alpha (1 + \alpha - \alpha^2)) + \frac{1 - L \eta}{2} \sum_{t
    \ge 2} |v_{t-1}|^2$ for $\alpha^2 \ge \mathtt{square} (L \eta)^2$, $\alpha \le 1$,
    $a_t = |M_t - \nabla f(x_{t-1})|^2$ and every path $x_t = x_{t-1} - \eta v_t$.

    (a) $M_t - g_t = (1 - \alpha) (M_{t-1} - g_{t-1} + g_{t-1} - g_t)$ for $g_t = \nabla
    f(x_{t-1})$, and $|g_{t-1} - g_t| \le L \eta |v_{t-1}|$, so that by Young's
    inequality $a_t \le (1 - \alpha)^2 ((1 + \alpha) a_{t-1} + (1 + 1/\alpha) (L \eta)^2
    |v_{t-1}|^2)$. (b) Summed over $t$, with $1 - (1 - \alpha)^2 (1 + \alpha) = \alpha
    (1 + \alpha - \alpha^2)$, $\sum a_t \le (a_1 + (1 - \alpha)^2 (1 + 1/\alpha) (L
    \eta)^2 \sum |v_{t-1}|^2)/(\alpha (1 + \alpha - \alpha^2))$. (c) With $L \eta = r
    \alpha$, $r \le 1/\sqrt{\text{square}}$, the factor of the last sum is $(1 -
    \alpha)^2 (1 + \alpha) r^2/(1 + \alpha - \alpha^2)$, and it grows with $r$ while $(1
    - r \alpha)/2$ falls: at the largest $r$ it is to be shown that $(1 - \alpha)^2 (1 +
    \alpha) 2 r^2 \le (1 - r \alpha) (1 + \alpha - \alpha^2)$. (d) For $r^2 = 1/2$ both
    sides are 1 at $\alpha = 0$, and their difference over $\alpha$ is $2 - r - r \alpha
    - (1 - r) \alpha^2$, which is positive on $[0, 1]$.
    """
    import flint
    import sympy

    alpha, r = sympy.symbols("alpha r", positive=True)
    x, y = sympy.symbols("x y", real=True)
    left = (1 - alpha) ** 2 * (1 + alpha)
    right = (1 - r * alpha) * (1 + alpha - alpha**2)
    rest = 2 - r - r * alpha - (1 - r) * alpha**2
    return [
        identity(
            r"(a) $(1 + \alpha) x^2 + (1 + 1/\alpha) y^2 - (x + y)^2 = "
            r"(\sqrt{\alpha} x - y/\sqrt{\alpha})^2$",
            (1 + alpha) * x**2
            + (1 + 1 / alpha) * y**2
            - (x + y) ** 2
            - (sympy.sqrt(alpha) * x - y / sympy.sqrt(alpha)) ** 2,
        ),
        identity(
            r"(b) $1 - (1 - \alpha)^2 (1 + \alpha) = \alpha (1 + \alpha - \alpha^2)$",
            1 - left - alpha * (1 + alpha - alpha**2),
        ),
        no_negative_term(
            r"(c) $\alpha^2 - 2 (L \eta)^2 \ge 0$ for $\alpha^2 = \text{square} (L "
            r"\eta)^2 + \text{more}$",
            square * x**2 + r - 2 * x**2,
        ),
        identity(
            r"(d) $(1 - r \alpha) (1 + \alpha - \alpha^2) - (1 - \alpha)^2 (1 + "
            r"\alpha) = \alpha (2 - r - r \alpha - (1 - r) \alpha^2)$",
            right - left - alpha * rest,
        ),
        nonnegative(
            r"(d) $2 - r - r \alpha - (1 - r) \alpha^2 > 0$ for $r \le "
            r"1/\sqrt{\text{square}}$",
            lambda momentum, part: (
                2
                - (
                    ratio := part
                    / flint.arb(square.numerator).sqrt()
                    * flint.arb(square.denominator).sqrt()
                )
                - ratio * momentum
                - (1 - ratio) * momentum**2
            ),
            {"momentum": (0, 1), "part": (0, 1)},
            strict=True,
        ),
    ]


def prove_corrected(
    *, first: Fraction | int = 5, noise: Fraction | int = 4
) -> list[Step]:
    r"""Theorem 4': $\operatorname{avg} E|\nabla f|^2 \le 5 F_0/(\eta T) + 4 (\rho^2/n +
    \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta) + 2 \varepsilon$.

    Let $m_j = M + n_j$ with $M_t = \alpha \nabla f(x_{t-1}) + (1 - \alpha) M_{t-1}$,
    $M_0 = 0$, the same for all of the cluster.

    (a) $n_j$ is a sum of martingale differences $\alpha (1 - \alpha)^s \xi$, hence
    $E|n_j|^2 \le \frac{\alpha}{2 - \alpha} \sigma^2 \le \rho^2$, and $n_j$, $n_k$ are
    uncorrelated. (b) Where all $|n_j|$ of good clients are at most $\tau/4$, (a) to (d)
    of Theorem 3' for $A = 0$ hold with momenta for gradients: $E|v - M|^2 \le 2
    (\rho^2/n + \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta) =: B$. Elsewhere
    $|v - M| \le |n_i| + l \tau \le \kappa \sigma + l \tau$. By Pinelis' inequality
    (1994, Theorem 3.5) $|n_j| > \tau/4$ has a chance of at most $2 \exp(-(\tau/4)^2/(2
    \alpha \kappa^2 \sigma^2)) = 2 \exp(-\delta \Delta/(32 \kappa^2 \rho))$, as the
    squares of the differences add up to at most $\alpha^2 \kappa^2 \sigma^2/(1 - (1 -
    \alpha)^2) \le \alpha \kappa^2 \sigma^2$. So $E|v - M|^2 \le B + \varepsilon$. (c)
    Descent: $\frac{\eta}{2} |\nabla f|^2 \le f(x_{t-1}) - f(x_t) + \eta |v - M|^2 +
    \eta a_t - \frac{\eta}{2} (1 - L \eta) |v|^2$; summed over $t$, with
    `prove_absorption`, the last terms cancel: $\sum |\nabla f|^2 \le 2 F_0/\eta + 2 T
    (B + \varepsilon) + 2 a_1/(\alpha (1 + \alpha - \alpha^2))$. (d) $a_1 = (1 -
    \alpha)^2 |\nabla f(x_0)|^2 \le 2 (1 - \alpha)^2 L F_0$, and $L \le \alpha/
    (\sqrt{2} \eta)$: the last term is at most $2 \sqrt{2} (1 - \alpha)^2/(1 + \alpha -
    \alpha^2) F_0/\eta \le 2 \sqrt{2} F_0/\eta$, and $2 + 2 \sqrt{2} \le 5$. Over $T$,
    the claim, with $\mathtt{first} = 2 + 2 \sqrt{2} + \text{spare}$ and `noise` for 4,
    less this has no negative term.
    """
    import flint
    import sympy

    alpha, delta, rho, gap, sigma, kappa = sympy.symbols(
        "alpha delta rho Delta sigma kappa", positive=True
    )
    radius = delta * rho * gap  # tau^2
    chance = (radius / 16) / (2 * alpha * kappa**2 * sigma**2)
    start, spare, eps, total = sympy.symbols("F spare eps total", nonnegative=True)
    roots = 2 + 2 * sympy.sqrt(2)
    claimed = (roots + spare) * start + noise * total + 2 * eps
    shown = roots * start + 2 * (2 * total + eps)
    return [
        *prove_alike(),
        *prove_absorption(),
        identity(
            r"(a) $\alpha - \alpha/(2 - \alpha) = \alpha (1 - \alpha)/(2 - \alpha) "
            r"\ge 0$",
            alpha - alpha / (2 - alpha) - alpha * (1 - alpha) / (2 - alpha),
        ),
        identity(
            r"(b) $\alpha^2/(1 - (1 - \alpha)^2) = \alpha/(2 - \alpha)$",
            alpha**2 / (1 - (1 - alpha) ** 2) - alpha / (2 - alpha),
        ),
        identity(
            r"(b) $(\tau/4)^2/(2 \alpha \kappa^2 \sigma^2) = \delta \Delta/(32 "
            r"\kappa^2 \rho)$ for $\rho^2 = \alpha \sigma^2$",
            chance.subs(sigma, rho / sympy.sqrt(alpha))
            - delta * gap / (32 * kappa**2 * rho),
        ),
        nonnegative(
            r"(d) $(1 - \alpha)^2 \le 1 + \alpha - \alpha^2$",
            lambda momentum: 3 - 2 * momentum,  # their difference over alpha
            {"momentum": (0, 1)},
        ),
        nonnegative(
            rf"(d) $2 + 2 \sqrt{{2}} \le {first}$",
            lambda: flint.arb(str(float(first))) - 2 - 2 * flint.arb(2).sqrt(),
            {},
        ),
        no_negative_term(
            r"(d) the claim less $2 F_0/(\eta T) + 2 (B + \varepsilon) + 2 \sqrt{2} "
            r"F_0/(\eta T)$",
            claimed - shown,
        ),
    ]


class Run(NamedTuple):
    """One level."""

    cluster: Cluster  # sizes, Delta and sigma; all runs of a call have as many members
    rounds: int  # T
    step: float  # eta L
    alpha: float  # of the momentum
    start: float  # G_0, at a common model

    @property
    def rho(self) -> float:
        """sqrt(alpha) sigma, of a momentum."""
        return math.sqrt(self.alpha) * self.cluster.sigma

    @property
    def initial(self) -> float:
        """L F0 = G_0^2/2."""
        return self.start**2 / 2

    @property
    def printed(self) -> float:
        """Right side of (5)."""
        still, cluster = self.cluster._replace(bad=0).printed, self.cluster
        pull = cluster.beta * cluster.sigma * cluster.separation
        return math.sqrt(still / self.rounds) + pull / (self.rounds * still) ** 0.25

    @property
    def first(self) -> float:
        """F0/(eta T) = L F0/(eta L T)."""
        return self.initial / (self.step * self.rounds)

    @property
    def corrected(self) -> float:
        """L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + beta^2 rho Delta/delta."""
        return self.first + self.cluster.repaired(self.rho)

    @property
    def radius(self) -> float:
        """tau, by rho."""
        return self.cluster.radius(self.rho)


def runs_for(cluster: Cluster, rounds: tuple[int, ...]) -> tuple[Run, ...]:
    """Levels with the theorem's step but sigma^3/(delta Delta), alpha = 2 L eta."""
    start = 0.55 * cluster.sigma
    variance = cluster._replace(bad=0).repaired(cluster.sigma)
    steps = [min(0.25, math.sqrt(start**2 / (2 * one * variance))) for one in rounds]
    return tuple(
        Run(cluster, one, step, 2 * step, start)
        for one, step in zip(rounds, steps, strict=True)
    )


def linear_mean(
    *,
    start: float,
    step: float,
    alpha: float,
    spread: float,
    pull: float,
    rounds: int,
) -> float:
    """(1/T) sum E G_{t-1}^2 exactly, from u_0 = 0, of u_t = (1 - alpha) u_{t-1} + alpha
    (G_{t-1} + zeta_t) and G_t = G_{t-1} - `step` (u_t + `pull`), with independent
    zeta_t of variance `spread`. Cost: log2 of T products of 18 x 18 matrices."""
    # (G, u, 1) is taken to B (G, u, 1) + zeta n.
    move = np.array(
        [
            [1 - step * alpha, -step * (1 - alpha), -step * pull],
            [alpha, 1 - alpha, 0.0],
            [0.0, 0.0, 1.0],
        ]
    )
    kick = np.array([-step * alpha, alpha, 0.0])
    second = np.kron(move, move)
    second[:, -1] += spread * np.kron(kick, kick)  # times E 1 = 1
    # Powers of [[second, 1], [0, 1]] hold the sum of the powers of `second`.
    joined = np.block([[second, np.eye(9)], [np.zeros((9, 9)), np.eye(9)]])
    total = np.linalg.matrix_power(joined, rounds)[:9, 9:]
    place = np.array([start, 0.0, 1.0])
    return float((total @ np.kron(place, place))[0] / rounds)


def exact_mean(run: Run) -> float:
    """(1/T) sum E|grad f|^2 on L x^2/2 with noise -sigma or sigma in gradients, bad
    clients that pull to one side, and v_0 a member's momentum.

    Raises:
      ValueError: if a ball might lose a member, or win another.
    """
    cluster, sigma = run.cluster, run.cluster.sigma
    pull = cluster.beta * run.radius / cluster.delta
    if not (2 * sigma + pull <= run.radius <= cluster.separation - sigma - pull):
        raise ValueError(
            f"`run` must have a radius between {2 * sigma + pull:g} and "
            f"{cluster.separation - sigma - pull:g}, got {run.radius:g}."
        )
    rounds = clipping_rounds(run.rho, cluster.separation, cluster.delta)
    kept = (1 - cluster.delta) ** rounds
    weight = 1 / cluster.good + kept**2 * (1 - 1 / cluster.good)
    return linear_mean(
        start=run.start,
        step=run.step,
        alpha=run.alpha,
        spread=weight * sigma**2,
        pull=(1 - kept) * pull,
        rounds=run.rounds,
    )


_TIMES = (10**2, 10**3, 10**4, 10**5, 10**6, 10**7, 10**8)


def sure_runs(cluster: Cluster) -> tuple[Run, ...]:
    """Levels of T with one separation for all, at which a momentum's noise is at most
    tau/4 at each of them."""
    smallest = runs_for(cluster._replace(separation=1e6), _TIMES)[-1].alpha
    separation = 16 * cluster.sigma / (cluster.delta * math.sqrt(smallest))
    return runs_for(cluster._replace(separation=separation), _TIMES)


_ALONE, _ATTACKED = Cluster(), Cluster(bad=2)
_STEEP = 0.7  # eta L of a large step, which alpha <= 1 allows


def _sharp_runs() -> list[Run]:
    """Large steps with the least and the largest alpha, nearly without noise."""
    quiet = Cluster(sigma=1e-4)
    return [
        Run(quiet, rounds, step, alpha, 1.0)
        for step in (0.01, 0.1, 0.3, 0.5, 0.7)
        for alpha in (math.sqrt(2) * step, 1.0)
        for rounds in (1, 3, 10, 100, 10_000)
    ]


def _loud_runs() -> list[Run]:
    """From x*, where F0 = 0, with as many bad clients as are allowed, and with none."""
    return [
        Run(Cluster(24, 24, bad, 800.0), 10**6, step, alpha, 0.0)
        for bad in (0, 2, 12)
        for step, alpha in ((0.02, 0.05), (0.1, 0.2), (0.5, 1.0), (0.7, 1.0))
    ]


def _single_terms() -> list[tuple[Run, float]]:
    """Runs from x* in which one term is all that is left, and their mean square
    gradient by hand: s/(2 - s) sigma^2/n with s = eta L and alpha = 1, and beta^2 rho
    Delta/delta."""
    rare = Cluster(24, 24, separation=1e6, sigma=0.3)
    pushed = Cluster(24, 72, 4, separation=1e5, sigma=0.3)
    return [
        (
            Run(rare, 10**6, _STEEP, 1.0, 0.0),
            _STEEP / (2 - _STEEP) * 0.3**2 / 24,
        ),
        (
            Run(pushed, 10**6, 0.02, 0.04, 0.0),
            0.04**2 * math.sqrt(0.04) * 0.3 * 1e5 / 0.24,
        ),
    ]


def check_corrected(
    _: Preset, name: str, *, first: float = 5.0, noise: float = 4.0
) -> Verdict:
    """The bound with the constants `first` and `noise`, by exact means."""
    runs = [
        *sure_runs(_ALONE),
        *sure_runs(_ATTACKED),
        *_sharp_runs(),
        *_loud_runs(),
    ]
    values = np.array([exact_mean(run) for run in runs])
    bounds = np.array(
        [first * run.first + noise * run.cluster.repaired(run.rho) for run in runs]
    )
    quiet = max(exact_mean(run) / run.first for run in _sharp_runs())
    sharp = never_exceeds(
        name,
        np.array([-quiet]),
        -0.33 * first,
        rounding=_ROUNDING,
        grade=Grade.EXACT,
        detail=rf"${quiet:.4g} F_0/(\eta T)$ is needed",
    )
    found = [(exact_mean(run), by_hand) for run, by_hand in _single_terms()]
    ratios = np.array([mean / by_hand for mean, by_hand in found])
    alone = within(
        name,
        (ratios, ratios),
        (0.99, 1.01),
        num_trials=len(found),
        error_rate=0.0,
        grade=Grade.EXACT,
    )
    bound = never_exceeds(
        name,
        values,
        bounds,
        rounding=_ROUNDING * (values + bounds),
        grade=Grade.EXACT,
        coordinates={
            "rounds": np.array([float(run.rounds) for run in runs]),
            "momentum": np.array([run.alpha for run in runs]),
            "step_size": np.array([run.step for run in runs]),
            "malicious": np.array([run.cluster.beta for run in runs]),
            "separation": np.array([run.cluster.separation for run in runs]),
        },
    )
    detail = (
        f"{len(runs)} runs: at most {np.max(values / bounds):.3f} of the bound; "
        f"{sharp.detail}; the other terms are reached where they are alone, "
        rf"$\rho^2/n$ up to {_STEEP / (2 - _STEEP):.2f}"
    )
    return combine(name, [bound, sharp, alone], detail=detail)


def check_rates(
    _: Preset, name: str, *, exponents: tuple[float, float] = (-0.5, -0.25)
) -> Verdict:
    """The exponents in T of the mean square gradient without and with bad clients,
    within 0.02, from T = 10^4 on."""
    found = []
    for cluster, exponent in zip((_ALONE, _ATTACKED), exponents, strict=True):
        runs = sure_runs(cluster)[2:]
        times = np.array([float(run.rounds) for run in runs])
        means = np.array([exact_mean(run) for run in runs])
        slope = computed("T", times, means, rounds=times).slope
        found.append(
            within(
                name,
                slope,
                (exponent - 0.02, exponent + 0.02),
                num_trials=len(runs),
                error_rate=0.0,
                coordinates={"malicious": cluster.beta},
                grade=Grade.EXACT,
                detail=rf"$\beta = {cluster.beta:g}$: slope {np.mean(slope):.3f} "
                f"(claimed {exponent:g})",
            )
        )
    return combine(name, found, detail="; ".join(one.detail for one in found))


Noise = Callable[[np.random.Generator, tuple[int, ...]], Float[np.ndarray, "..."]]


def follow(
    runs: Sequence[Run],
    generator: np.random.Generator,
    noise: Noise,
    *,
    trials: int,
    start: Literal["member", "previous"] = "member",
    by_momentum: bool = True,
) -> Float[np.ndarray, "runs trials rounds"]:
    """G_{t-1}^2 for t = 1 to the largest T, m_0 = 0, of runs side by side.

    `noise` is that of gradients, in units of sigma. Bad clients sit on the edge of the
    ball, tau^2 = delta rho Delta `by_momentum`, else delta sigma Delta. Clustering
    starts at a member's momentum, or as in Algorithm 4 at the previous centre, first 0.
    """
    members = runs[0].cluster.good
    sizes = np.array([(run.cluster.good, run.cluster.other) for run in runs], float)
    sizes /= np.array([[run.cluster.good / run.cluster.delta] for run in runs])
    masses = np.append(
        np.repeat(sizes[:, :1] / members, members, axis=1), sizes[:, 1:], axis=1
    )[:, None]
    alpha, step, sigma, place, slope, push, radius = np.array(
        [
            (
                run.alpha,
                run.step,
                run.cluster.sigma,
                run.start,
                -run.cluster.separation / run.alpha,
                run.cluster.beta,
                run.cluster.radius(run.rho if by_momentum else run.cluster.sigma),
            )
            for run in runs
        ]
    ).T[..., None]
    place = np.broadcast_to(place, (len(runs), trials)).copy()
    momenta, centre = np.zeros((*place.shape, members)), np.zeros_like(place)
    squares = []
    for number in range(1, max(run.rounds for run in runs) + 1):
        squares.append(place**2)
        drawn = noise(generator, momenta.shape) * sigma[..., None]
        momenta += alpha[..., None] * (place[..., None] + drawn - momenta)
        others = np.broadcast_to((1 - (1 - alpha) ** number) * slope, place.shape)
        centre = settled(
            np.append(momenta, others[..., None], axis=-1),
            masses,
            momenta[..., 0] if start == "member" else centre,
            radius,
            num_rounds=max(run.cluster.num_rounds for run in runs),
            push=push,
        )
        place = place - step * centre
    return np.stack(squares, axis=-1)


def mean_squares(
    runs: Sequence[Run], squares: Float[np.ndarray, "runs trials rounds"]
) -> Float[np.ndarray, "runs trials"]:
    """(1/T) sum_t G_{t-1}^2, each level over its own rounds."""
    return np.stack(
        [
            np.mean(one[:, : run.rounds], axis=-1)
            for run, one in zip(runs, squares, strict=True)
        ]
    )


def _levels(preset: Preset) -> tuple[int, ...]:
    return preset.choose(
        quick=(100, 300, 1000, 3000), full=(100, 300, 1000, 3000, 10_000)
    )


@functools.lru_cache(maxsize=4)
def _measured(preset: Preset) -> tuple[Float[np.ndarray, "runs trials"], ...]:
    """Mean square gradients without and with bad clients, all runs side by side."""
    levels = _levels(preset)
    runs = [run for one in (_ALONE, _ATTACKED) for run in runs_for(one, levels)]
    squares = follow(
        runs,
        preset.generator("werner.thm4.corrected"),
        lambda stream, shape: stream.standard_normal(shape),
        trials=preset.choose(quick=32, full=128),
    )
    return tuple(np.split(mean_squares(runs, squares), 2))


def check_wider(preset: Preset, name: str, *, constant: float = 4.0) -> Verdict:
    """The mean square gradient is at most `constant` times what (4') has on its right,
    without eps."""
    found, rounds = [], np.array(_levels(preset), float)
    for cluster, means in zip((_ALONE, _ATTACKED), _measured(preset), strict=True):
        # Means over rounds of squares, of a law without a known bound.
        low, high = intervals.student(means, error_rate=ERROR_RATE / (2 * len(rounds)))
        bounds = np.array([run.corrected for run in runs_for(cluster, _levels(preset))])
        found.append(
            within(
                name,
                (low / bounds, high / bounds),
                (0.0, constant),
                num_trials=means.size,
                error_rate=ERROR_RATE / 2,
                grade=Grade.NOMINAL,
                coordinates={"rounds": rounds, "malicious": cluster.beta},
                detail=rf"$\beta = {cluster.beta:g}$, $T = {rounds[0]:g}$ to "
                f"{rounds[-1]:g}: over the bound {np.min(low / bounds):.2f} to "
                f"{np.max(high / bounds):.2f}",
            )
        )
    return combine(name, found, detail="; ".join(one.detail for one in found))


def _eps(values: dict[str, Any]) -> float:
    """2 N (kappa sigma + l tau)^2 exp(-delta Delta/(32 kappa^2 rho)) with kappa = 1; 0
    where sigma is at most tau/4."""
    sigma, share = values["noise"], values["share"]
    separation = values["separation"]
    rho = math.sqrt(values["momentum"]) * sigma
    radius = math.sqrt(share * rho * separation)
    if 4 * sigma <= radius:
        return 0.0
    rounds = clipping_rounds(rho, separation, share)
    clients = values["members"] / share
    chance = 2 * clients * math.exp(-share * separation / (32 * rho))
    return min(1.0, chance) * (sigma + rounds * radius) ** 2


def _bound(*, first: float, rest: float, **values: Any) -> float:
    """first F0/(eta T) + rest (rho^2/n + rho^3/(delta Delta) + beta^2 rho Delta/delta)
    + 2 eps."""
    rho = math.sqrt(values["momentum"]) * values["noise"]
    share, separation = values["share"], values["separation"]
    terms = (
        rho**2 / values["members"]
        + rho**3 / (share * separation)
        + values["malicious"] ** 2 * rho * separation / share
    )
    start = values["gap"] / (values["step_size"] * values["rounds"])
    return first * start + rest * terms + 2 * _eps(values)


def _printed_bound(*, constant: float, **values: Any) -> float:
    """constant (sqrt(V/T) + beta sigma Delta/(T V)^(1/4)), V = sigma^2/n +
    sigma^3/Delta."""
    sigma, separation = values["noise"], values["separation"]
    variance, rounds = (
        sigma**2 / values["members"] + sigma**3 / separation,
        values["rounds"],
    )
    pull = values["malicious"] * sigma * separation
    if not variance:
        return 0.0
    return constant * (
        math.sqrt(variance / rounds) + pull / (rounds * variance) ** 0.25
    )


def _truth(**values: Any) -> Truth:
    """Exact where no momentum's noise ever leaves the ball; unknown elsewhere."""
    sigma, share = values["noise"], values["share"]
    separation, alpha = values["separation"], values["momentum"]
    rho = math.sqrt(alpha) * sigma
    radius = math.sqrt(share * rho * separation)
    pull = values["malicious"] * radius / share
    if sigma and not 2 * sigma + pull <= radius <= separation - sigma - pull:
        return Truth(math.nan, math.nan, Grade.EXACT)
    kept = (1 - share) ** clipping_rounds(rho, separation, share)
    weight = 1 / values["members"] + kept**2 * (1 - 1 / values["members"])
    smoothness = values["smoothness"]
    return exact(
        linear_mean(
            start=math.sqrt(2 * smoothness * values["gap"]),
            step=values["step_size"] * smoothness,
            alpha=alpha,
            spread=weight * sigma**2,
            pull=(1 - kept) * pull,
            rounds=int(values["rounds"]),
        )
    )


def _margins(**values: Any) -> list[Margin]:
    step, alpha = values["step_size"] * values["smoothness"], values["momentum"]
    least = _LEAST * values["noise"] / values["share"]
    most = _MOST * values["share"]
    return [
        Margin(r"$\Delta \ge 24 \sigma/\delta$", values["separation"], least),
        Margin(r"$\beta \le \delta/2$", values["malicious"], most, at_least=False),
        Margin(
            r"$\alpha \ge \sqrt{2} L \eta$", alpha * (1 + 1e-12), math.sqrt(2) * step
        ),
        Margin(r"$\eta \le 1/L$", step, 1.0, at_least=False),
    ]


_PARAMETERS = (
    parameter("members", 24),
    parameter("share", 0.5),
    parameter("malicious", 0.02),
    parameter("separation", 400.0),
    parameter("noise", 1.0),
    parameter("momentum", 0.05, open=True),
    parameter("step_size", 0.02),
    parameter("smoothness", 1.0),
    parameter("gap", 0.5),
    parameter("rounds", 1000, least=1),
)
# Where the printed bound is seen to fail: eta = 1/(L T), and nobody bad.
_SLOW = {"malicious": 0.0, "step_size": 0.001}
_evaluation = functools.partial(
    Evaluation,
    quantity=r"$(1/T) \sum_t E|\nabla f_i(x_{i,t-1})|^2$",
    truth=_truth,
    margins=_margins,
    note=r"exact, on $L x^2/2$ with noise $-\sigma$ or $\sigma$, bad clients on the "
    r"edge of the ball to one side and other momenta $\Delta$ away, where noise keeps "
    "everybody in the ball; elsewhere unknown",
)
PRINTED = _evaluation(
    parameters=tuple(
        dataclasses.replace(one, default=_SLOW.get(one.name, one.default))
        for one in _PARAMETERS
    ),
    bound=_printed_bound,
    constants={
        "constant": Constant(
            1.0, math.inf, math.inf, r"unnamed in $\lesssim$; none does (werner.thm4)"
        )
    },
)
CORRECTED = _evaluation(
    parameters=_PARAMETERS,
    bound=_bound,
    constants={
        "first": Constant(5.0, 1.7, 5.0, "proved (werner.thm4.corrected), needed: 1.7"),
        "rest": Constant(4.0, 1.0, 4.0, "proved (werner.thm4.corrected), needed: 1"),
    },
)


_row = functools.partial(row, place="Theorem 4, (5)")
_STEP = (
    r"$\eta = \sqrt{F_0/(L T (\sigma^2/n + \sigma^3/(\delta \Delta)))}$, "
    r"$\alpha = 2 L \eta$"
)

STATEMENTS = (
    _row(
        id="werner.thm4.corrected",
        text=r"$\operatorname{avg} E|\nabla f_i|^2 \le 5 F_0/(\eta T) + 4 (\rho^2/n "
        r"+ \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta) + 2 \varepsilon$, "
        r"$\rho = \sqrt{\alpha} \sigma$, $\varepsilon = 2 N (\kappa \sigma + l "
        r"\tau)^2 \exp(-\delta \Delta/(32 \kappa^2 \rho))$, or 0 if $\kappa \sigma "
        r"\le \tau/4$",
        preconditions=(
            "$f$ is $L$-smooth and the same for all of the cluster, as is the model; "
            r"$m_0 = 0$; $M_t = \alpha \nabla f(x_{t-1}) + (1 - \alpha) M_{t-1}$",
            "noise of gradients independent given the past, of mean 0, variance at "
            r"most $\sigma^2$, and never above $\kappa \sigma$",
            "the same averages of true gradients of other clusters' clients are at "
            r"least $\Delta$ from $M_t$ at every $t \le T$; their losses are "
            "arbitrary",
            r"$\Delta \ge 24 \sigma/\delta$, $\beta \le \delta/2$, any bad clients, "
            r"$\sqrt{2} L \eta \le \alpha \le 1$, $\tau^2 = \delta \rho \Delta$, "
            r"$v_0 = m_i$, $l \ge \max(1, \log(\rho/\Delta)/\log(1 - \delta/2))$",
        ),
        constants={"first": 5.0, "noise": 4.0},
        claimed=r"$\sqrt{V/T} + \beta \sigma \Delta/(T V)^{1/4}$, $V = \sigma^2/n "
        r"+ \sigma^3/\Delta$, for all clients",
        check=check_corrected,
        control={"first": 1.6},
        proof=prove_corrected,
        proof_control=[{"first": Fraction(24, 5)}, {"noise": Fraction(39, 10)}],
        evaluation=CORRECTED,
        margins=lambda: tuple(
            _margins(
                separation=50.0 / 0.48,
                share=0.48,
                malicious=0.04,
                noise=1.0,
                momentum=0.5,
                step_size=0.25,
                smoothness=1.0,
            )
        ),
        note="Theorem 4'; the whole proof stands in theorem4.md. Assumption 9 is "
        "asked of one cluster and of the path itself, as it cannot hold for two that "
        r"converge (werner.asm9). The control claims $1.6 F_0/(\eta T)$, that of the "
        "proof 4.8.",
    ),
    _row(
        id="werner.thm4.corrected.rates",
        text=r"with $\eta$ and $\alpha$ of the order that the proof puts, the mean "
        r"square gradient falls like $T^{-1/2}$ for $\beta = 0$, and like "
        r"$T^{-1/4}$ for $\beta > 0$",
        preconditions=(
            _STEP,
            r"$L x^2/2$, noise $-\sigma$ or $\sigma$, $\Delta = 16 \sigma/(\delta "
            r"\sqrt{\alpha})$ at the largest $T$, $\beta = 0$ or $2/50$ on the edge "
            "of the ball",
        ),
        constants={"margin": 0.02},
        check=check_rates,
        control={"exponents": (-0.5, -0.5)},
        note="Exact second moments, $T = 10^4$ to $10^8$. These are the exponents of "
        "(5). The control claims $-1/2$ with bad clients, too.",
    ),
    _row(
        id="werner.thm4.wider",
        text=r"$\operatorname{avg} E|\nabla f_i|^2 \le C (F_0/(\eta T) + \rho^2/n + "
        r"\rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta)$ with normal noise and "
        r"$\Delta = 24 \sigma/\delta$",
        preconditions=(
            _STEP,
            r"$L x^2/2$, the other clusters' losses are linear, $\beta = 0$ or "
            r"$\delta/12$ on the edge of the ball, $\tau^2 = \delta \rho \Delta$, "
            "$v_0 = m_i$",
        ),
        constants={"C": 4.0},
        check=check_wider,
        control={"constant": 0.25},
        note=r"Not refuted on these families; the proof has $\varepsilon$, which is "
        r"small here only for $\alpha$ far below 1. The control claims a quarter.",
    ),
)
