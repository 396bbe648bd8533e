"""Theorem 4 and Assumption 9: momenta cannot stay apart while both losses converge.

A momentum is evaluated at the client's own model. Convergence (5) of two clients makes
their gradients small on average; with m_0 = 0 an expected momentum is an average of
past expected gradients, hence min_t |E m_i - E m_j|^2 <= 2 (avg|grad f_i|^2 +
avg|grad f_j|^2), and Assumption 9 fails from some round on. What is left is one cluster
that converges while the others, with linear losses say, never do.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from cfljax import intervals
from cfljax.statements import (
    ERROR_RATE,
    Margin,
    Preset,
    Status,
    Verdict,
    combine,
    never_exceeds,
    within,
)
from theory.rows import row
from theory.werner.common.claims import (
    DECLARED,
    Family,
    exactly,
    no_constant,
    one_constant,
)
from theory.werner.common.laws import sample, skew2
from theory.werner.common.one_client import (
    Cluster,
    centre_errors,
    margins,
    mean_square,
    settled,
)
from theory.werner.common.population_map import mixture, settle

_CLUSTER, _ATTACKED = Cluster(), Cluster(bad=2)
_CLAIMED = "one unnamed constant"


_SHARES = (0.5, 0.1, 0.02)  # of the widest separation that is asked for
_MEMBERS, _ROUNDS = 24, (300, 1000, 3000, 10_000)


def pair(
    step: Float[np.ndarray, " cells"],
    alpha: Float[np.ndarray, " cells"],
    num_rounds: int,
    *,
    linear: bool = False,
) -> tuple[Float[np.ndarray, "cells rounds"], Float[np.ndarray, "cells rounds"]]:
    """|E m_1 - E m_2| of two clusters that are never confused, and the first one's
    squared gradient before each round, from x_0 = m_0 = 0.

    Losses L (x + 1)^2/2 and L (x - 1)^2/2, or the second linear with the same first
    gradient; `step` is eta L. Noise has no mean, and is not needed.
    """
    gradient, momentum = np.ones(len(step)), np.zeros(len(step))
    apart, squares = [], []
    for number in range(1, num_rounds + 1):
        squares.append(gradient**2)
        momentum = momentum + alpha * (gradient - momentum)
        other = -(1 - (1 - alpha) ** number) if linear else -momentum
        apart.append(np.abs(momentum - other))
        gradient = gradient - step * momentum
    return np.stack(apart, axis=1), np.stack(squares, axis=1)


class _Cells(NamedTuple):
    """Every T with every Delta, and Theorem 4's own step size."""

    rounds: Float[np.ndarray, " cells"]  # T
    separation: Float[np.ndarray, " cells"]  # Delta
    bound: Float[np.ndarray, " cells"]  # right side of (5)
    mean: Float[np.ndarray, " cells"]  # avg|grad f_1|^2
    # The round in which the momenta are first closer than Delta after they were
    # furthest apart; infinite if that does not happen.
    first: Float[np.ndarray, " cells"]
    # Their distance at T/10; at T it may be too small for a float.
    early: Float[np.ndarray, " cells"]
    sigma: Float[np.ndarray, " cells"]  # of a gradient


@functools.lru_cache(maxsize=2)
def _cells(linear: bool) -> _Cells:
    """In units of gradients; the second cluster's loss is linear, without a minimum, or
    quadratic."""
    rounds = np.repeat(np.array(_ROUNDS), len(_SHARES))
    share = np.tile(np.array(_SHARES), len(_ROUNDS))
    # Momenta are at least alpha 2 = 1 apart at their widest.
    sigma = share * 0.5 / 24
    variance = sigma**2 / _MEMBERS + sigma**3 / share
    step = np.minimum(0.25, np.sqrt(0.5 / (rounds * variance)))
    apart, squares = pair(step, 2 * step, max(_ROUNDS), linear=linear)
    separation, widest = share * np.max(apart, axis=1), np.argmax(apart, axis=1)
    later = np.arange(apart.shape[1])[None] > widest[:, None]
    narrow = later & (apart < separation[:, None])
    cells, sums = np.arange(len(rounds)), np.cumsum(squares, axis=1)
    return _Cells(
        rounds=rounds.astype(float),
        separation=separation,
        bound=np.sqrt(variance / rounds),
        mean=sums[cells, rounds - 1] / rounds,
        first=np.where(np.any(narrow, axis=1), np.argmax(narrow, axis=1) + 1, np.inf),
        early=apart[cells, rounds // 10 - 1],
        sigma=sigma,
    )


def check_printed(
    _: Preset, name: str, *, linear: bool = False, factor: float = 1.0
) -> Verdict:
    """(5), `factor` times, where Assumption 9 holds for all t <= T: VACUOUS if it
    nowhere does, as without a second loss that is linear."""
    cells = _cells(linear)
    met = cells.first > cells.rounds
    return never_exceeds(
        name,
        cells.mean,
        np.where(met, factor * cells.bound, np.inf),
        rounding=1e-12,
        detail=f"Assumption 9 for all t <= T in {np.sum(met)} of {len(met)} cells; "
        f"fails after {np.min(cells.first):.0f} to {np.max(cells.first):.0f} rounds",
    )


def check_separation(_: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """|E m_1 - E m_2| >= Delta until T = 300 to 10,000, judged at T/10."""
    cells = _cells(False)
    detail = (
        f"{len(cells.early)} cells: |E m_1 - E m_2| at T/10 is at most "
        f"{np.max(cells.early / cells.separation):.2g} Delta"
    )
    return never_exceeds(
        name, factor * cells.separation, cells.early, rounding=1e-12, detail=detail
    )


def check_consequence(_: Preset, name: str, *, factor: float = 1.0) -> Verdict:
    """min_t |E m_1 - E m_2|^2 <= `factor` 2 (avg|grad f_1|^2 + avg|grad f_2|^2), also
    where both are equal: gradients that never change, alpha = 1."""
    # Of the last pair neither gradient changes.
    step, alpha = np.array([0.02, 0.1, 0.25, 0.0]), np.array([0.04, 0.2, 0.5, 1.0])
    lasts, found, claimed = np.array([1, 3, 10, 30, 100]), [], []
    for linear in (False, True):
        apart, squares = pair(step, alpha, int(lasts[-1]), linear=linear)
        means = (np.cumsum(squares, axis=1)[:, lasts - 1] / lasts).ravel()
        found.append(np.minimum.accumulate(apart, axis=1)[:, lasts - 1].ravel() ** 2)
        claimed.append(2 * (means + (1 if linear else means)))
    values, bounds = np.concatenate(found), np.concatenate(claimed)
    detail = f"{len(values)} settings: at most {np.max(values / bounds):.3g} of it"
    return never_exceeds(name, values, factor * bounds, rounding=1e-12, detail=detail)


def _margins() -> tuple[Margin, ...]:
    cells = _cells(False)
    worst = int(np.argmin(cells.separation / cells.sigma))
    have, need = float(cells.separation[worst]), 48 * float(cells.sigma[worst])
    return (Margin("werner.thm4: Delta >= 24 sigma/delta", have, need),)


_TWO = (
    "losses L (x + 1)^2/2 and L (x - 1)^2/2, x_0 = 0, m_0 = 0, nobody confused",
    "eta as in Theorem 4, alpha = 2 L eta",
)

_APART = (
    row(
        id="werner.asm9",
        place="Assumption 9",
        text="|E m_{i,t} - E m_{j,t}| >= Delta for all t <= T where both losses have a "
        "minimum and both clients converge",
        preconditions=(*_TWO, "Delta at most half of the widest separation"),
        expected=Status.VIOLATED,
        check=check_separation,
        control={"factor": 0.5},
        note="Each momentum goes to 0 with its own client's gradient. The first rounds "
        "are left out, see werner.thm4.first. The control has half of Delta.",
    ),
    row(
        id="werner.asm9.corrected",
        place="Assumption 9",
        text="min_t |E m_{i,t} - E m_{j,t}|^2 <= 2 (avg|grad f_i|^2 + avg|grad f_j|^2)",
        preconditions=(
            "m_0 = 0, eta L = 0, 0.02, 0.1 and 0.25, T = 1 to 100",
            "two quadratic losses, or one and a linear one",
        ),
        constants={"C": 2.0},
        check=check_consequence,
        control={"factor": 0.9},
        note="By convexity, for every algorithm: with (5) for both clients Assumption "
        "9 fails as soon as 2 (R_i + R_j) < Delta^2. The control has 0.9 of it.",
    ),
    row(
        id="werner.thm4",
        place="Theorem 4, (5)",
        text="avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T) for all i, "
        "under Assumption 9 for all t <= T",
        preconditions=(*_TWO, "Delta from 1/2 to 1/50 of the widest separation"),
        claimed="one unnamed constant in <~",
        expected=Status.VACUOUS,
        check=check_printed,
        control={"linear": True, "factor": 0.01},
        margins=_margins,
        note="Assumption 9 fails before T in all cells: with it (5) cannot hold for "
        "two clusters at large T. Where one cluster never converges the bound says "
        "something; the control claims a hundredth of it there.",
    ),
)


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
        return float(np.sqrt(self.alpha)) * self.cluster.sigma

    @property
    def initial(self) -> float:
        """L F0 = G_0^2/2."""
        return self.start**2 / 2

    @property
    def printed(self) -> float:
        """Right side of (5)."""
        still, cluster = self.cluster._replace(bad=0).printed, self.cluster
        pull = cluster.beta * cluster.sigma * cluster.separation
        return float(
            np.sqrt(still / self.rounds) + pull / (self.rounds * still) ** 0.25
        )

    @property
    def corrected(self) -> float:
        """L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + beta^2 rho Delta/delta."""
        first = self.initial / (self.step * self.rounds)
        return first + self.cluster.repaired(self.rho)


def runs_for(cluster: Cluster, rounds: tuple[int, ...]) -> tuple[Run, ...]:
    """Levels with the theorem's step but sigma^3/(delta Delta), alpha = 2 L eta."""
    start = 0.55 * cluster.sigma
    variance = cluster._replace(bad=0).repaired(cluster.sigma)
    steps = [min(0.25, math.sqrt(start**2 / (2 * one * variance))) for one in rounds]
    return tuple(
        Run(cluster, one, step, 2 * step, start)
        for one, step in zip(rounds, steps, strict=True)
    )


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


def _along_rounds(
    name: str,
    runs: Sequence[Run],
    left: Sequence[float] | Float[np.ndarray, " runs"],
    *,
    repaired: bool,
    **judged: Any,
) -> Verdict:
    """The left side is at most C times (5), or the corrected bound if `repaired`."""
    bounds = np.array([run.corrected if repaired else run.printed for run in runs])
    rounds = np.array([run.rounds for run in runs], float)
    family = exactly("T", rounds, np.array(left) / bounds)
    return one_constant(name, [family], **judged)


def _levels(preset: Preset) -> tuple[int, ...]:
    return preset.choose(
        quick=(100, 300, 1000, 3000), full=(100, 300, 1000, 3000, 10_000)
    )


@functools.lru_cache(maxsize=4)
def _measured(preset: Preset) -> tuple[Float[np.ndarray, "runs trials"], ...]:
    """Mean square gradients without and with bad clients, all runs side by side."""
    clusters, levels = (_CLUSTER, _ATTACKED), _levels(preset)
    runs = [run for one in clusters for run in runs_for(one, levels)]
    squares = follow(
        runs,
        preset.generator("werner.thm4.corrected"),
        lambda stream, shape: stream.standard_normal(shape),
        trials=preset.choose(quick=32, full=128),
    )
    return tuple(np.split(mean_squares(runs, squares), 2))


def check_corrected(
    preset: Preset, name: str, *, slopes: tuple[float, float] = (-0.5, -0.25)
) -> Verdict:
    """The corrected bound with one constant, and its slopes in T without and with bad
    clients, within 0.1."""
    found, clusters = [], (_CLUSTER, _ATTACKED)
    rounds = np.array(_levels(preset), float)
    each = ERROR_RATE / 4
    for cluster, slope, means in zip(clusters, slopes, _measured(preset), strict=True):
        low, high = intervals.student(means, error_rate=ERROR_RATE / (4 * len(rounds)))
        bounds = np.array([run.corrected for run in runs_for(cluster, _levels(preset))])
        found.append(
            within(
                name,
                (low / bounds, high / bounds),
                (0.0, DECLARED),
                num_trials=means.size,
                error_rate=each,
                detail=f"beta = {cluster.beta:g}, T = {rounds[0]:g} to {rounds[-1]:g}: "
                f"over the bound {np.min(low / bounds):.2f} to "
                f"{np.max(high / bounds):.2f}",
            )
        )
        batches = np.mean(means.reshape(len(rounds), 16, -1), axis=-1)
        ends = intervals.slope(np.log(rounds), np.log(batches).T, error_rate=each)
        found.append(
            within(
                name,
                ends,
                (slope - 0.1, slope + 0.1),
                num_trials=means.size,
                error_rate=each,
                detail=f"slope {float(ends[0] + ends[1]) / 2:.3f} (claimed {slope:g})",
            )
        )
    return combine(name, found, detail="; ".join(one.detail for one in found))


_CORRECTED = (
    row(
        id="werner.thm4.corrected",
        place="Theorem 4, (5)",
        text="avg E|grad f_i|^2 <= C (L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + "
        "beta^2 rho Delta/delta), rho = sqrt(alpha) sigma: exponents -1/2 for beta = 0 "
        "and -1/4 in T",
        preconditions=(
            "the other clusters' losses are linear, so that Assumption 9 holds",
            "Delta = 24 sigma/delta, beta = 0 or delta/12 on the edge of the ball",
            "eta = sqrt(F0/(L T (sigma^2/n + sigma^3/(delta Delta)))), alpha = 2 L "
            "eta, tau^2 = delta rho Delta, v_0 = a member's momentum, normal noise",
        ),
        constants={"C": DECLARED, "margin": 0.1},
        check=check_corrected,
        control={"slopes": (-0.5, -0.5)},
        margins=functools.partial(margins, _CLUSTER, _ATTACKED),
        note="Not refuted on these families. The control claims -1/2 with bad clients, "
        "too.",
    ),
)


_LONG = tuple(int(10.0**power) for power in range(2, 9))
_SHORT = (100, 300, 1000, 3000)
_SIZE = 1.5  # s/tau of the skewed noise


def check_first(_: Preset, name: str, **judged: Any) -> Verdict:
    """Gradients Delta apart at x_0 are momenta C Delta apart in round 1."""
    alpha = np.array([run.alpha for run in runs_for(_CLUSTER, _LONG)])
    apart = pair(alpha / 2, alpha, 1)[0][:, 0]
    family = exactly("T", np.array(_LONG, float), 2 / apart)
    return one_constant(name, [family], **judged)


def check_first_corrected(_: Preset, name: str, *, share: float = 0.5) -> Verdict:
    """From round log(2)/alpha on momenta are `share` of their final distance apart."""
    alpha = np.array([run.alpha for run in runs_for(_CLUSTER, _LONG[:3])])
    apart = pair(np.zeros(len(alpha)), alpha, 2000, linear=True)[0]
    later = np.ceil(np.log(2) / alpha).astype(int)
    found = np.take_along_axis(apart, later[:, None] - 1, 1)[:, 0]
    detail = (
        f"alpha = {alpha[0]:.3g} to {alpha[-1]:.3g}: at round {later[0]} to "
        f"{later[-1]} at least {np.min(found) / 2:.3f} of it"
    )
    return never_exceeds(
        name, np.full(len(alpha), 2 * share), found, rounding=1e-12, detail=detail
    )


def check_momentum(_: Preset, name: str, **judged: Any) -> Verdict:
    """(5) with alpha = 1 and skewed gradients, from v_0 = grad f_i, the best; all
    points in the ball are equal, so that the centre is known for every n."""
    radius = _CLUSTER.radius(_CLUSTER.sigma)
    rest = skew2(2 * _CLUSTER.sigma, _CLUSTER.sigma)
    points = mixture(
        [skew2(_SIZE * radius, _CLUSTER.sigma), rest],
        np.array([0.0, -_CLUSTER.separation]),
        np.array([_CLUSTER.delta, 1 - _CLUSTER.delta]),
    )
    bias = float(settle(points, np.zeros(1), radius, num_rounds=_CLUSTER.num_rounds)[0])
    runs, left = runs_for(_CLUSTER, _LONG), []
    for run in runs:
        left.append(float(mean_square(run.start, run.step, bias, bias**2, run.rounds)))
    detail = f"bias^2 = {bias**2:.4f} sigma^2"
    return _along_rounds(name, runs, left, repaired=False, detail=detail, **judged)


@functools.lru_cache(maxsize=2)
def _skewed(preset: Preset) -> Float[np.ndarray, "runs trials"]:
    """Mean square gradients with alpha = 2 L eta and skewed noise."""
    law = skew2(_SIZE * _CLUSTER.radius(_CLUSTER.sigma), _CLUSTER.sigma)
    runs = runs_for(_CLUSTER, _SHORT)
    squares = follow(
        runs,
        preset.generator("werner.thm4.momentum.corrected"),
        lambda stream, shape: sample(law, stream, shape),
        trials=preset.choose(quick=64, full=1000),
    )
    return mean_squares(runs, squares)


def check_momentum_corrected(
    preset: Preset, name: str, *, factor: float = 1.0
) -> Verdict:
    """The corrected bound with alpha = 2 L eta and the same skewed gradients."""
    means, runs = _skewed(preset), runs_for(_CLUSTER, _SHORT)
    low, high = intervals.student(means, error_rate=ERROR_RATE / len(runs))
    bounds = factor * np.array([run.corrected for run in runs])
    family = Family("T", np.array(_SHORT, float), low / bounds, high / bounds)
    return one_constant(name, [family], num_trials=means.size)


def check_step(
    _: Preset, name: str, *, frozen: bool, repaired: bool, **judged: Any
) -> Verdict:
    """(5), or the corrected bound, with eta = 1/(L T) or the theorem's own, without
    noise or malicious clients, alpha = 1."""
    runs, left = runs_for(_CLUSTER, _LONG), []
    for run in runs:
        step = 1 / run.rounds if frozen else run.step
        left.append(float(mean_square(run.start, step, 0, 0, run.rounds)))
    return _along_rounds(name, runs, left, repaired=repaired, **judged)


_near = functools.partial(margins, _CLUSTER)
_ASKED = "other clusters' losses are linear, Delta >= 24 sigma/delta, beta = 0, m_0 = 0"
_ETA = "eta = sqrt(F0/(L T (sigma^2/n + sigma^3/(delta Delta))))"
_BOUND = (
    "avg E|grad f_i|^2 <= C (L F0/(eta L T) + rho^2/n + rho^3/(delta Delta)), rho = "
    "sqrt(alpha) sigma, "
)
_first: dict[str, Any] = {
    "place": "Assumption 9, Theorem 4",
    "preconditions": ("m_0 = 0, alpha = 2 L eta", _ETA),
    "margins": _near,
}
_momentum: dict[str, Any] = {
    "place": "Theorem 4, alpha >~ L eta",
    "preconditions": (_ASKED, _ETA, "noise 0 or s = 1.5 tau less its mean"),
    "margins": _near,
}
_step: dict[str, Any] = {"place": "Theorem 4, eta <~ min(...)", "margins": _near}

_PARAMETERS = (
    no_constant(
        **_first,
        id="werner.thm4.first",
        text="where gradients at x_0 are Delta apart, expected momenta are >~ Delta "
        "apart from round 1 on",
        claimed=_CLAIMED,
        check=check_first,
        note="They are alpha Delta apart in round 1, of order Delta/sqrt(T): "
        "Assumption 9 asks for gradients Delta/alpha apart at the common start. The "
        "control allows T^(1/4) less.",
    ),
    row(
        **_first,
        id="werner.thm4.first.corrected",
        text="where gradients are Delta apart all along, expected momenta are Delta/2 "
        "apart from round log(2)/alpha on",
        check=check_first_corrected,
        control={"share": 0.6},
        note="Both losses linear. The control claims 0.6 Delta.",
    ),
    no_constant(
        **_momentum,
        id="werner.thm4.momentum",
        text="with alpha = 1: avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T)",
        claimed=_CLAIMED,
        check=check_momentum,
        note="The proof puts L eta for alpha: alpha is to be of order L eta, from both "
        "sides. The floor is about sigma^4/s^2. The control allows T^(1/4) more.",
    ),
    row(
        **_momentum,
        id="werner.thm4.momentum.corrected",
        text=_BOUND + "with alpha = 2 L eta",
        constants={"C": DECLARED},
        check=check_momentum_corrected,
        control={"factor": 1 / 64},
        note="The control claims a 64th of the bound.",
    ),
    no_constant(
        **_step,
        id="werner.thm4.step",
        text="for every smaller eta: avg E|grad f_i|^2 <~ sqrt((sigma^2/n + "
        "sigma^3/Delta)/T)",
        preconditions=(_ASKED, "eta = 1/(L T), alpha = 1, no noise"),
        claimed=_CLAIMED,
        check=functools.partial(check_step, frozen=True, repaired=False),
        note="eta is bounded from above alone. The control allows T^(1/4) more.",
    ),
    row(
        **_step,
        id="werner.thm4.step.corrected",
        text=_BOUND + "with eta equal to what bounds it",
        preconditions=(_ASKED, _ETA, "no noise"),
        constants={"C": DECLARED},
        check=functools.partial(check_step, frozen=False, repaired=True),
        control={"frozen": True},
        note="The control has eta = 1/(L T), and the bound of the larger one.",
    ),
)


def check_radius(
    _: Preset, name: str, *, by_momentum: bool, repaired: bool, **judged: Any
) -> Verdict:
    """(5), or its corrected form, against clients on the edge, without any noise."""
    runs, left = runs_for(_ATTACKED, _LONG), []
    for run in runs:
        radius = _ATTACKED.radius(run.rho if by_momentum else _ATTACKED.sigma)
        pull = float(centre_errors(_ATTACKED, np.zeros((1, _ATTACKED.good)), radius)[0])
        left.append(float(mean_square(run.start, run.step, pull, pull**2, run.rounds)))
    return _along_rounds(name, runs, left, repaired=repaired, **judged)


def _warm_runs() -> tuple[Run, ...]:
    """Small steps, and Delta = 2 alpha G_0, which Assumption 9 allows in round 1."""
    runs = []
    for rounds in (16, 50, 160, 500):
        alpha = 2 / np.sqrt(rounds)
        separation = 2 * alpha
        sigma = separation * _CLUSTER.delta / 24
        cluster = Cluster(separation=separation, sigma=sigma)
        runs.append(Run(cluster, rounds, alpha / 2, alpha, 1.0))
    return tuple(runs)


def check_warm(
    preset: Preset, name: str, *, member: bool, repaired: bool, **judged: Any
) -> Verdict:
    """(5) from v_{k,t-1}, v_{k,0} = 0, or the corrected bound from a member's
    momentum."""
    runs = _warm_runs()
    squares = follow(
        runs,
        preset.generator(name),  # nothing is drawn from it
        lambda stream, shape: np.zeros(shape),
        trials=1,
        start="member" if member else "previous",
        by_momentum=repaired,
    )
    left = mean_squares(runs, squares)[:, 0]
    return _along_rounds(name, runs, left, repaired=repaired, **judged)


def _warm_margins() -> tuple[Margin, ...]:
    run = _warm_runs()[0]
    gap, separation = run.alpha * run.start, run.cluster.separation
    first = "werner.asm9: |E m_{i,1} - E m_{j,1}| >= Delta"
    return (
        Margin(first, gap + separation, separation),
        *margins(*(one.cluster for one in _warm_runs())),
    )


_attacked: dict[str, Any] = {
    "place": "Theorem 4, tau",
    "preconditions": (
        "other clusters' losses are linear, m_0 = 0, no noise: sigma is a bound",
        "Delta = 24 sigma/delta, beta = delta/12 on the edge of the ball",
        "eta = sqrt(F0/(L T (sigma^2/n + sigma^3/(delta Delta)))), alpha = 2 L eta",
    ),
    "margins": functools.partial(margins, _ATTACKED),
}
_started: dict[str, Any] = {
    "place": "Theorem 4; Algorithm 4, line 4",
    "preconditions": (
        "other clusters' losses are linear, m_0 = 0, no noise: sigma = delta Delta/24",
        "Delta = 2 alpha |grad f_i(x_0)|, as Assumption 9 has it from round 1 on",
        "alpha = 2 L eta = 2/sqrt(T), beta = 0",
    ),
    "margins": _warm_margins,
}

_CLUSTERING = (
    no_constant(
        **_attacked,
        id="werner.thm4.radius",
        text="with tau = sqrt(delta sigma Delta): avg E|grad f_i|^2 <~ sqrt(V/T) + "
        "beta sigma Delta/(T V)^(1/4), V = sigma^2/n + sigma^3/Delta",
        claimed=_CLAIMED,
        check=functools.partial(check_radius, by_momentum=False, repaired=False),
        relief=0.1,
        note="The floor beta^2 sigma Delta/delta does not know of alpha. The control "
        "allows T^0.1 more.",
    ),
    row(
        **_attacked,
        id="werner.thm4.radius.corrected",
        text="with tau = sqrt(delta rho Delta), rho = sqrt(alpha) sigma: avg E|grad "
        "f_i|^2 <= C (L F0/(eta L T) + rho^2/n + rho^3/(delta Delta) + beta^2 rho "
        "Delta/delta)",
        constants={"C": DECLARED},
        check=functools.partial(check_radius, by_momentum=True, repaired=True),
        control={"by_momentum": False},
        note="The control has the radius of the statement.",
    ),
    no_constant(
        **_started,
        id="werner.thm4.warm",
        text="from v_{k,t-1} with v_{k,0} = 0: avg E|grad f_i|^2 <~ sqrt((sigma^2/n + "
        "sigma^3/Delta)/T)",
        claimed=_CLAIMED,
        check=functools.partial(check_warm, member=False, repaired=False),
        note="No momentum is within tau of 0, and x never moves: |grad f_i|^2 stays as "
        "it is at x_0. v_{k,0} and m_0 are not specified. The control allows "
        "T^(1/4) more.",
    ),
    row(
        **_started,
        id="werner.thm4.warm.corrected",
        text="from a member's momentum: avg E|grad f_i|^2 <= C (L F0/(eta L T) + rho^2/"
        "n + rho^3/(delta Delta)), rho = sqrt(alpha) sigma",
        constants={"C": DECLARED},
        check=functools.partial(check_warm, member=True, repaired=True),
        control={"member": False},
        note="The control starts at the centre of the previous round.",
    ),
)

STATEMENTS = (*_APART, *_CORRECTED, *_PARAMETERS, *_CLUSTERING)
