"""Theorem 3': what Federated-Clustering converges to, proved with every constant.

The statement and its proof stand in `theorem3.md` beside this file; the steps that are
algebra, or inequalities between explicit functions, are checked by computer here. The
checks of the rows confirm it by another route: runs on quadratic losses whose mean
square gradient is known exactly, the worst that was found among them.
"""

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

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
    exactly,
    identity,
    never_exceeds,
    nonnegative,
    within,
)
from theory.glossary import parameter
from theory.polynomials import no_negative_term
from theory.rows import row
from theory.werner.common.claims import Family, one_constant
from theory.werner.common.one_client import Cluster, mean_square, moments
from theory.werner.common.population_map import Mixture, settle

_LEAST, _MOST = 24.0, 0.5  # Delta >= 24 rho/delta, beta <= delta/2
_SIMILAR = 1 / 16  # A l
_ROUNDING = 1e-9  # of numbers of order one and their sums over rounds


def prove_alike(*, first: Fraction | int = 2, noise: Fraction | int = 2) -> list[Step]:
    r"""Theorem 3' for $A = 0$: $\operatorname{avg} E|\nabla f|^2 \le 2 F_0/(\eta T) + 2
    (\rho^2/n + \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta)$.

    Given $x = x_{t-1}$ let $h = \nabla f_i(x)$, the same for all of the cluster, $z_j =
    h + \xi_j$ with $|\xi_j| \le r = \tau/4$, $m$ their mean, $v_0 = z_i$.

    (a) Nobody of the cluster ever leaves the ball, and no stranger enters it: if $|v -
    m| \le \tau/2$, then $|z_j - v| \le 2 r + \tau/2 = \tau$, and a stranger is at least
    $\Delta - r - r - \tau/2 = \Delta - \tau$ from $v$, which is above $\tau$ as $\tau^2
    = \delta \rho \Delta \le (\delta \Delta)^2/24 < (\Delta/2)^2$. Then a round takes
    $v$ to $v + \delta (m - v) + w$, $|w| \le \beta \tau$, so that $|v' - m| \le (1 -
    \delta) |v - m| + \beta \tau \le \tau/2$ for $\beta \le \delta/2$; and $|v_0 - m|
    \le 2 r = \tau/2$. (b) So $v_l = m + k (z_i - m) + b$, $k = (1 - \delta)^l$, $|b|
    \le (\beta/\delta) \tau$. (c) $m + k (z_i - m) - h$ is a sum of independent $\xi_j$
    whose squared weights add up to $1/n + k^2 (1 - 1/n)$, hence $E_x|v_l - h|^2 \le 2
    \rho^2 (1/n + k^2) + 2 (\beta/\delta)^2 \tau^2$, by $(x + y)^2 \le 2 x^2 + 2 y^2$.
    (d) $k \le (1 - \delta/2)^{2 l} \le (\rho/\Delta)^2$, and $k^2 \rho^2 \le
    \rho^3/(\delta \Delta)$. (e) Descent: $f(x - \eta v) \le f(x) - \eta \langle h, v
    \rangle + L \frac{\eta^2}{2} |v|^2 = f(x) + \frac{\eta}{2} |v - h|^2 -
    \frac{\eta}{2} |h|^2 - \frac{\eta}{2} (1 - L \eta) |v|^2$; the sum over $t$, with
    $F_0 = f(x_0) - f(x_T) + \text{rest}$, $\text{rest} \ge 0$, gives
    $\operatorname{avg} |h|^2 \le 2 (f(x_0) - f(x_T))/(\eta T) + \operatorname{avg} |v -
    h|^2$. (f) With (c) for the last mean, $k^2 \rho^2 = \rho^3/(\delta \Delta) -
    \text{less}$ by (d) and $\tau^2 = \delta \rho \Delta$, the claim less this bound,
    `first` and `noise` for 2 and 2, has no negative term. (g) $2 F_0$ is needed: $f = L
    x^2/2$, no noise, $T = 1$, $\eta = 1/L$ has $|h|^2 = (L x)^2$.
    """
    import flint
    import sympy

    delta, k, x, y, eta, smooth = sympy.symbols("delta k x y eta L", positive=True)
    inner = sympy.Symbol("inner", real=True)  # <h, v>
    n = sympy.Symbol("n", positive=True)
    apart = x - 2 * inner + y  # |v - h|^2 of |v|^2 = x and |h|^2 = y
    members, rest, less, rho, gap, beta = sympy.symbols(
        "own rest less rho Delta beta", nonnegative=True
    )
    fall = sympy.Symbol("fall", nonnegative=True)  # (f(x_0) - f(x_T))/(eta T)
    kept = sympy.Symbol("k2rho2", nonnegative=True)  # k^2 rho^2
    pull = beta**2 * rho * gap / delta
    claimed = first * (fall + rest) + noise * (members + kept + less + pull)
    shown = 2 * fall + 2 * (members + kept)
    shown += 2 * (beta / delta) ** 2 * delta * rho * gap
    tau = Fraction(1)
    own = 2 * tau / 4 + tau / 2
    return [
        exactly(r"(a) $2 \tau/4 + \tau/2 \le \tau$", own <= tau),
        nonnegative(
            r"(a) $\Delta - \tau > \tau$ for $\tau^2 \le (\delta \Delta)^2/24$",
            lambda share: 1 - 2 * share / flint.arb(24).sqrt(),
            {"share": (0, 1)},
            strict=True,
        ),
        identity(
            r"(a) $(1 - \delta) \tau/2 + (\delta/2) \tau = \tau/2$",
            (1 - delta) * x / 2 + delta / 2 * x - x / 2,
        ),
        identity(
            r"(b) $(1 - \delta) \beta \tau/\delta + \beta \tau = \beta \tau/\delta$",
            (1 - delta) * y * x / delta + y * x - y * x / delta,
        ),
        identity(
            "(c) $((1 - k)/n + k)^2 + (n - 1) ((1 - k)/n)^2 = 1/n + k^2 (1 - 1/n)$",
            ((1 - k) / n + k) ** 2
            + (n - 1) * ((1 - k) / n) ** 2
            - (1 / n + k**2 * (1 - 1 / n)),
        ),
        identity(
            "(c) $2 x^2 + 2 y^2 - (x + y)^2 = (x - y)^2$",
            2 * x**2 + 2 * y**2 - (x + y) ** 2 - (x - y) ** 2,
        ),
        identity(
            r"(d) $(1 - \delta/2)^2 - (1 - \delta) = \delta^2/4 \ge 0$",
            (1 - delta / 2) ** 2 - (1 - delta) - delta**2 / 4,
        ),
        nonnegative(
            r"(d) $\delta (\rho/\Delta)^3 \le 1$ for $\rho/\Delta \le \delta/24$",
            lambda share, part: 1 - share * (share * part / 24) ** 3,
            {"share": (0, 1), "part": (0, 1)},
        ),
        identity(
            r"(e) $-\eta \langle h, v \rangle + L \frac{\eta^2}{2} |v|^2 = "
            r"\frac{\eta}{2} |v - h|^2 - \frac{\eta}{2} |h|^2 - "
            r"\frac{\eta}{2} (1 - L \eta) |v|^2$",
            -eta * inner
            + smooth * eta**2 / 2 * x
            - eta / 2 * (apart - y - (1 - smooth * eta) * x),
        ),
        no_negative_term("(f) the claim less the bound of (e)", claimed - shown),
        identity(
            r"(g) $(L x)^2 = \text{first} \cdot F_0/(\eta T)$ at $\eta = 1/L$, $T = "
            "1$",
            (smooth * x) ** 2 - first * (smooth * x**2 / 2) * smooth,
        ),
    ]


def prove_corrected(
    *, first: Fraction | int = 4, noise: Fraction | int = 8, edge: int = 12
) -> list[Step]:
    r"""Theorem 3' for $A l \le 1/16$: $\operatorname{avg} E|\nabla f_i|^2 \le 4
    F_0/(\eta T) + 8 (\rho^2/n + \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta)$.

    As for $A = 0$, with gradients $h_j$ of the cluster at most $a = A |\bar h|$ from
    their mean $\bar h$, $z_j = h_j + \xi_j$, $|\xi_j| \le r = \tau_0/4$, $\tau = \tau_0
    + 4 a$, $\tau_0^2 = \delta \rho \Delta \le (\delta \Delta)^2/24$, $m$ the mean of
    $z_j$.

    (a) Near, $a \le \Delta/12$: while $|v - m| \le \tau/2$, $|z_j - v| \le a + 2 r +
    \tau/2 \le \tau$ as $2 a + 4 r \le \tau$, a stranger is at least $\Delta - a - r - r
    - \tau/2 = \Delta - 3 a - \tau_0$ from $v$, which is above $\tau_0 + 4 a$; $|v_0 -
    m| \le a + 2 r \le \tau/2$, and rounds keep $|v - m| \le \tau/2$ for $\beta \le
    \delta/2$. So $v_l = m + k (z_i - m) + b$ with $|b| \le (\beta/\delta) \tau$, and in
    the mean square over $\xi$, given $x$, $|v_l - h_i| \le a + 4 a/2 + N = 3 a + N$, $N
    = \rho \sqrt{1/n + k^2} + (\beta/\delta) \tau_0$. (b) Far, $a > \Delta/12$: a round
    moves $v$ by at most $\tau$, $|v_l - h_i| \le r + l \tau$ with $\tau_0 \le
    \Delta/\sqrt{24} < 12 a/\sqrt{24}$, so that it is below $7.1 l a$. (c) $|\bar h| \le
    |h_i|/(1 - A)$, $A l \le 1/16$ and $A \le 1/16$ give $7.1 l a \le (7.1/15) |h_i|$,
    and $E_x|v_l - h_i|^2 \le 2 (7.1/15)^2 |h_i|^2 + 2 N^2$. (d) $N^2 \le 2 (\rho^2/n +
    \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta)$ as for $A = 0$. (e) Descent:
    $(1 - 2 (7.1/15)^2) \operatorname{avg} E|h_i|^2 \le 2 F_0/(\eta T) + 2
    \operatorname{avg} N^2$.
    """
    import flint

    kept = 1 - 2 * (Fraction(71, 10) * Fraction(1, 16) / Fraction(15, 16)) ** 2
    return [
        *prove_alike(),
        nonnegative(
            r"(a) $\Delta - 3 a - \tau_0 > \tau_0 + 4$ a for $a \le \Delta/12$",
            lambda share: (
                1 - flint.arb(7) / edge * share - 2 / flint.arb(24).sqrt() * share
            ),
            {"share": (0, 1)},
            strict=True,
        ),
        exactly(r"(a) $1 + 4 \beta/\delta \le 3$", 1 + 4 * Fraction(1, 2) <= 3),
        nonnegative(
            r"(b) $(1/4 + l) \cdot 12/\sqrt{24} + 4 l \le 7.1 l$ for $l \ge 1$, "
            "inverse $= 1/l$",
            lambda inverse: (
                flint.arb("7.1") - 4 - (inverse / 4 + 1) * 12 / flint.arb(24).sqrt()
            ),
            {"inverse": (0, 1)},
        ),
        exactly(r"(b) $3 a \le 7.1 l a$", Fraction(71, 10) >= 3),
        exactly(
            rf"(e) $2/(1 - 2 (7.1/15)^2) \le {first}$",
            first * kept >= 2,
            f"{float(kept)}",
        ),
        exactly(rf"(e) $2 \cdot 2/(1 - 2 (7.1/15)^2) \le {noise}$", noise * kept >= 4),
    ]


class Point(NamedTuple):
    """One run on a quadratic loss, and both sides of what is claimed of it."""

    mean: float  # (1/T) sum E|grad f_i|^2
    start: float  # F0/(eta T)
    noise: float  # rho^2/n + rho^3/(delta Delta) + beta^2 rho Delta/delta
    cluster: Cluster
    rounds: float
    far: float = 0.0  # strangers are max(Delta, `far` |grad f|) away


def still(cluster: Cluster, *, start: float, step: float, rounds: float) -> Point:
    """With A = 0, noise -rho or rho, and bad clients that pull to one side; `step` is
    eta L on L x^2/2."""
    found = moments(cluster, cluster.radius(cluster.rho))
    mean = mean_square(start, step, *found, rounds)
    first = start**2 / (2 * step * rounds)
    return Point(float(mean), first, cluster.repaired(cluster.rho), cluster, rounds)


def chased(cluster: Cluster) -> Point:
    """With eta = 1/L from x_0 = x*, T = 10^6, and bad clients that see all noise and
    pull along its mean: gradients of two rounds are independent, and E e^2 is all."""
    rho, rounds = cluster.rho, 1e6
    pull = cluster.beta * cluster.radius(rho) / cluster.delta
    kept = (1 - cluster.delta) ** cluster.num_rounds
    signs = np.array(list(itertools.product((-1.0, 1.0), repeat=cluster.good)))
    means = np.mean(signs, axis=1)
    push = np.where(means < 0, -pull, pull)
    errors = (1 - kept) * (rho * means + push) + kept * rho * signs[:, 0]
    mean = float(np.mean(errors**2)) * (rounds - 1) / rounds
    return Point(mean, 0.0, cluster.repaired(rho), cluster, rounds)


def _one_bad(good: int) -> Cluster:
    """One bad client of 2 `good` + 1, at the least separation."""
    return Cluster(good, good, 1, _LEAST * (2 * good + 1) / good)


def points_alike() -> list[Point]:
    """Runs along T, n, 1/delta and beta, and those at which 2 and 2 are needed."""
    attacked = Cluster(bad=2)
    found = [
        still(Cluster(), start=10.0, step=0.5, rounds=rounds)
        for rounds in (1e1, 1e2, 1e3, 1e4, 1e5)
    ]
    found += [
        still(
            attacked._replace(batch=max(1.0, attacked.printed * rounds)),
            start=1.0,
            step=0.5,
            rounds=rounds,
        )
        for rounds in (1e1, 1e2, 1e3, 1e4, 1e5)
    ]
    found += [
        still(Cluster(size, size), start=0.0, step=1.0, rounds=1e6)
        for size in (1, 2, 12, 24, 48, 96, 192)
    ]
    found += [
        still(
            Cluster(24, 24 * (k - 1), separation=24.0 * k),
            start=0.0,
            step=1.0,
            rounds=1e4,
        )
        for k in (2, 4, 8, 16, 32, 64)
    ]
    found += [
        still(Cluster(size, size, size // 2), start=0.0, step=1.0, rounds=1e6)
        for size in (2, 8, 32)
    ]
    return [*found, *(chased(_one_bad(good)) for good in (2, 3, 4, 8))]


def _judged(
    name: str, points: Sequence[Point], first: float, noise: float, detail: str
) -> Verdict:
    """Judge mean <= `first` F0/(eta T) + `noise` of the noise terms."""
    values = np.array([one.mean for one in points])
    bounds = np.array([first * one.start + noise * one.noise for one in points])
    clusters = [one.cluster for one in points]
    return never_exceeds(
        name,
        values,
        bounds,
        rounding=_ROUNDING * (values + bounds),
        grade=Grade.EXACT,
        coordinates={
            "start": np.array([one.start for one in points]),
            "far": np.array([one.far for one in points]),
            "rounds": np.array([one.rounds for one in points]),
            "members": np.array([float(one.good) for one in clusters]),
            "share": np.array([one.delta for one in clusters]),
            "malicious": np.array([one.beta for one in clusters]),
            "separation": np.array([one.separation for one in clusters]),
            "noise": np.array([one.sigma for one in clusters]),
            "batch": np.array([float(one.batch) for one in clusters]),
        },
        detail=f"{detail}: {len(points)} runs, at most "
        f"{np.max(values / bounds):.3f} of the bound",
    )


def single_terms() -> list[tuple[Point, str, float]]:
    """Runs in which one term of the bound is all that is left: what it is called, and
    its value by hand."""
    rare = Cluster(24, 24, separation=1e6, sigma=0.3, batch=4)  # rho = 0.15
    pushed = Cluster(24, 72, 4, separation=1e5, sigma=0.3)  # delta = 0.24
    once = Cluster(sigma=1e-6)
    pull = 0.04**2 * 0.3 * 1e5 / 0.24
    return [
        (still(rare, start=0.0, step=1.0, rounds=1e6), "rho^2/n", 0.15**2 / 24),
        (
            still(pushed, start=0.0, step=1.0, rounds=1e6),
            "beta^2 rho Delta/delta",
            pull,
        ),
        (still(once, start=1.0, step=1.0, rounds=1.0), "2 F0/(eta T)", 1.0),
        (still(once, start=1.0, step=1.0, rounds=100.0), "2 F0/(eta T)", 0.01),
    ]


def check_alike(
    _: Preset, name: str, *, first: float = 2.0, noise: float = 2.0
) -> Verdict:
    """The bound holds in all runs, 0.75 of `noise` would be exceeded, and each term is
    needed: where it is alone, the mean square gradient is 0.99 to 1 times the term."""
    points = points_alike()
    loud = max(one.mean / one.noise for one in points if one.start == 0)
    sharp = never_exceeds(
        name,
        np.array([-loud]),
        -0.75 * noise,
        rounding=_ROUNDING,
        grade=Grade.EXACT,
        detail=f"a constant of at least {loud:.4g} is needed for the noise",
    )
    found = single_terms()
    claimed = np.array([2 * one.start + one.noise for one, _, _ in found])
    ratio = np.array([[one.mean / by_hand for one, _, by_hand in found], claimed])
    ratio[1] /= np.array([by_hand for _, _, by_hand in found])
    alone = within(
        name,
        (ratio.ravel(), ratio.ravel()),
        (0.99, 1.01),
        num_trials=len(found),
        error_rate=0.0,
        grade=Grade.EXACT,
        detail="alone: " + ", ".join(label for _, label, _ in found),
    )
    bound = _judged(name, points, first, noise, "$A = 0$")
    tight = _judged(name, [one for one, _, _ in found], first, noise, "one term")
    detail = f"{bound.detail}; {sharp.detail}; {alone.detail}"
    return combine(name, [bound, tight, sharp, alone], detail=detail)


class Similar(NamedTuple):
    """A run without noise, sigma being a bound of it, in which clients differ."""

    cluster: Cluster
    similarity: float  # A, at most 1/(16 l)
    start: float = 1.0  # x_0, in units of Delta
    far: float = 0.0  # strangers are max(Delta, `far` |grad f|) away


def similar_run(run: Similar, num_steps: int) -> Point:
    """Losses s x^2/2 with s = 1 + A, of client i and half of the others, and 1 - A; bad
    clients and strangers are down-hill of x, where they slow it down most."""
    cluster, a = run.cluster, run.similarity
    slopes = np.where(np.arange(cluster.good) % 2 == 0, 1 + a, 1 - a)
    total = cluster.good + cluster.other + cluster.bad
    masses = np.append(np.ones(cluster.good), cluster.other) / total
    smoothness = 1 + a
    step, place, squares = 1 / smoothness, run.start * cluster.separation, []
    for _ in range(num_steps):
        mean = float(np.mean(slopes)) * place
        own = slopes * place
        side = math.copysign(1, place)
        nearest = side * np.min(side * own)
        away = side * max(cluster.separation, run.far * abs(place))
        points = Mixture(np.append(own, nearest - away), masses)
        centre = settle(
            points,
            own[:1],
            cluster.radius(cluster.rho) + 4 * a * abs(mean),
            num_rounds=cluster.num_rounds,
            push=-cluster.beta * side,
        )[0]
        squares.append(own[0] ** 2)
        place -= step * float(centre)
    gap = (1 + a) * (run.start * cluster.separation) ** 2 / 2
    return Point(
        float(np.mean(squares)),
        gap / (step * num_steps),
        cluster.repaired(cluster.rho),
        cluster,
        float(num_steps),
        run.far,
    )


def _similar_runs() -> list[tuple[Similar, int]]:
    """At A l = 1/16, near and far, with and without bad clients and captured ones."""
    found = []
    for cluster in (
        Cluster(),
        Cluster(8, 24, separation=96.0),
        Cluster(bad=12, separation=60.0),
    ):
        a = _SIMILAR / cluster.num_rounds
        for start in (1e-2, 1.0, 1e3, 1e5):
            for far in (0.0, 1.9 * a):
                found += [
                    (Similar(cluster, a, start, far), steps) for steps in (1, 8, 64)
                ]
    return found


def check_corrected(
    _: Preset, name: str, *, first: float = 4.0, noise: float = 8.0
) -> Verdict:
    """The bound in runs with A = 0, and with A l = 1/16 near and far from x*."""
    points = [similar_run(run, steps) for run, steps in _similar_runs()]
    return _judged(
        name, [*points, *points_alike()], first, noise, "A l = 1/16, and A = 0"
    )


def noisy_runs(
    preset: Preset, similarities: Float[np.ndarray, " levels"], rounds: int
) -> Float[np.ndarray, "levels trials rounds"]:
    """|grad f_i|^2/sigma^2 of a client with s = 1 + A, others with s = 1 - A or 1, in
    the plane, from x_0 = 5 sigma, with normal noise, 8 of 16 clients, Delta = 48
    sigma."""
    trials, members = preset.choose(quick=200, full=2000), 8
    cluster = Cluster(members, members, separation=48.0)
    generator = preset.generator("werner.thm3.corrected")
    signs = np.array([1, -1, 0, 0, 0, 0, 0, 0])
    slopes = (1 + similarities[:, None] * signs[None])[:, None]
    step = (0.5 / (1 + similarities))[:, None]
    place = np.full((len(similarities), trials), 5.0 + 0j)
    masses, squares = np.append(np.full(members, 1 / 16), 1 / 2), []
    for _ in range(rounds):
        shape = (*place.shape, members)
        noise = generator.standard_normal(shape) + 1j * generator.standard_normal(shape)
        own = place[..., None]
        points = slopes * np.real(own) + 1j * np.imag(own) + noise / np.sqrt(2)
        points = np.append(points, own - 1j * cluster.separation, axis=-1)
        steep = slopes[..., 0] * np.real(place) + 1j * np.imag(place)
        squares.append(np.abs(steep) ** 2)
        place = place - step * settle(
            Mixture(points, np.broadcast_to(masses, points.shape)),
            points[..., 0],
            cluster.radius(1.0),
            num_rounds=cluster.num_rounds,
        )
    return np.stack(squares, axis=-1)


def check_wider(preset: Preset, name: str, *, share: float = 1.0) -> Verdict:
    """(3') with `share` of L (F0 + A^2 Fbar0)/T, along T, for A = 0.1 to 0.7."""
    similarities, levels = np.array([0.1, 0.35, 0.7]), np.array([8, 16, 32, 64, 128])
    squares = noisy_runs(preset, similarities, int(levels[-1]))
    means = np.cumsum(squares, axis=-1)[..., levels - 1] / levels
    # Means over rounds of squares, of a law without a known bound: Student's interval.
    low, high = intervals.student(
        np.moveaxis(means, 1, -1), error_rate=ERROR_RATE / means[:, 0].size
    )
    start = (1 + similarities) * (1 + similarities + similarities**2) * 25 / 2
    bounds = share * start[:, None] / levels
    bounds = bounds + Cluster(8, 8, separation=48.0).repaired(1.0)
    families = [
        Family(
            f"A = {one:g}, T",
            levels * 1.0,
            low[number] / bounds[number],
            high[number] / bounds[number],
            {"rounds": levels * 1.0},
        )
        for number, one in enumerate(similarities)
    ]
    return one_constant(
        name, families, constant=8.0, num_trials=squares.shape[1], grade=Grade.NOMINAL
    )


def _cluster_margins(
    share: float, malicious: float, separation: float, rho: float
) -> list[Margin]:
    """Conditions of (3') on the cluster."""
    return [
        Margin(r"$\Delta \ge 24 \rho/\delta$", separation, _LEAST * rho / share),
        Margin(r"$\beta \le \delta/2$", malicious, _MOST * share, at_least=False),
    ]


def _run_of(values: dict[str, Any]) -> Truth:
    """Exact, on h x^2/2 with h = L, noise -rho or rho, strangers Delta away and bad
    clients on the edge, all to one side."""
    rho = values["noise"] / math.sqrt(values["batch"])
    share, separation = values["share"], values["separation"]
    radius = math.sqrt(share * rho * separation)
    pull = values["malicious"] * radius / share
    sure = 2 * rho + pull <= radius <= separation - rho - pull
    if rho and not sure:
        return Truth(math.nan, math.nan, Grade.EXACT)
    kept = (1 - share) ** clipping_rounds(rho, separation, share)
    first = (1 - kept) * pull
    spread = 1 / values["members"] + kept**2 * (1 - 1 / values["members"])
    start = math.sqrt(2 * values["smoothness"] * values["gap"])
    step = values["step_size"] * values["smoothness"]
    second = rho**2 * spread + first**2
    return exact(float(mean_square(start, step, first, second, values["rounds"])))


def clipping_rounds(rho: float, separation: float, share: float) -> int:
    """l of Theorem 3; 10^4 where rho is 0, which is as good as infinitely many."""
    if rho == 0 or share == 1:
        return 10_000
    return max(1, math.ceil(math.log(rho / separation) / math.log(1 - share / 2)))


_PARAMETERS = (
    parameter("members", 24),
    parameter("share", 0.5),
    parameter("malicious", 0.02),
    parameter("separation", 60.0),
    parameter("noise", 1.0, "standard deviation of the gradient of one sample"),
    parameter("batch", 1),
    parameter("rounds", 1000, least=1),
    parameter("gap", 0.5),
    parameter("smoothness", 1.0),
    parameter("step_size", 0.5),
)


def _steps(values: dict[str, Any]) -> Margin:
    step = values["step_size"] * values["smoothness"]
    return Margin(r"$\eta \le 1/L$", step, 1.0, at_least=False)


def _corrected_bound(
    *, first: float, spread: float, bias: float, pull: float, **values: Any
) -> float:
    """first F0/(eta T) + spread rho^2/n + bias rho^3/(delta Delta) + pull beta^2 rho
    Delta/delta."""
    rho = values["noise"] / math.sqrt(values["batch"])
    share, separation = values["share"], values["separation"]
    return (
        first * values["gap"] / (values["step_size"] * values["rounds"])
        + spread * rho**2 / values["members"]
        + bias * rho**3 / (share * separation)
        + pull * values["malicious"] ** 2 * rho * separation / share
    )


def _printed_bound(*, constant: float, **values: Any) -> float:
    """constant sqrt((sigma^2/n + sigma^3/Delta + beta sigma Delta)/T)."""
    sigma, separation = values["noise"], values["separation"]
    variance = (
        sigma**2 / values["members"]
        + sigma**3 / separation
        + values["malicious"] * sigma * separation
    )
    return constant * math.sqrt(variance / values["rounds"])


def _margins(**values: Any) -> list[Margin]:
    rho = values["noise"] / math.sqrt(values["batch"])
    names = ("share", "malicious", "separation")
    share, malicious, separation = (values[name] for name in names)
    cluster = _cluster_margins(share, malicious, separation, rho)
    return [*cluster, _steps(values)]


_NOTE = (
    r"exact, on $L x^2/2$ with $A = D = 0$, noise $-\rho$ or $\rho$, the radius "
    r"$\sqrt{\delta \rho \Delta}$, and bad clients on the edge of the ball, to one "
    "side"
)

PRINTED = Evaluation(
    quantity=r"$(1/T) \sum_t E|\nabla f_i(x_{i,t-1})|^2$",
    parameters=_PARAMETERS,
    bound=_printed_bound,
    truth=lambda **values: _run_of(values),
    margins=_margins,
    constants={
        "constant": Constant(
            1.0, math.inf, math.inf, r"unnamed in $\lesssim$; none does (werner.thm3)"
        )
    },
    note=_NOTE,
)
_PROVED = "proved (werner.thm3.corrected.alike), needed: "
CORRECTED = Evaluation(
    quantity=r"$(1/T) \sum_t E|\nabla f_i(x_{i,t-1})|^2$",
    parameters=_PARAMETERS,
    bound=_corrected_bound,
    truth=lambda **values: _run_of(values),
    margins=_margins,
    constants={
        "first": Constant(2.0, 2.0, 2.0, _PROVED + "2"),
        "spread": Constant(2.0, 1.0, 2.0, _PROVED + "1"),
        "bias": Constant(2.0, 0.0, 2.0, _PROVED + "none for bounded noise"),
        "pull": Constant(2.0, 1.0, 2.0, _PROVED + "1"),
    },
    note=_NOTE,
)


_row = partial(row, place="Theorem 3, (3)")
_BOUNDED = (
    "Assumptions 4, 5 with $D = 0$, 6 and 7; noise of different clients independent "
    r"given $x_{t-1}$, of mean 0 and variance at most $\rho^2 = \sigma^2/|B|$, and "
    r"never above $\tau_0/4 = \sqrt{\delta \rho \Delta}/4$"
)
_REST = (
    r"$\Delta \ge 24 \rho/\delta$, $\beta \le \delta/2$, $\eta \le 1/L$, any bad "
    "clients",
    r"$v_0 = g_i$, $l \ge \max(1, \log(\rho/\Delta)/\log(1 - \delta/2))$",
)


def _case_margins(cluster: Cluster) -> tuple[Margin, ...]:
    share, malicious = cluster.delta, cluster.beta
    found = _cluster_margins(share, malicious, cluster.separation, cluster.rho)
    return tuple(found)


STATEMENTS = (
    _row(
        id="werner.thm3.corrected",
        text=r"$\operatorname{avg} E|\nabla f_i|^2 \le 4 F_0/(\eta T) + 8 (\rho^2/n "
        r"+ \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta)$, $\rho = "
        r"\sigma/\sqrt{|B|}$",
        preconditions=(
            _BOUNDED,
            *_REST,
            r"$A l \le 1/16$, $\tau_t = \tau_0 + 4 A |\nabla\bar f_i(x_{t-1})|$",
        ),
        constants={"first": 4.0, "noise": 8.0},
        claimed=r"$\sqrt{\max(1, A^2) V/T}$, $V = \sigma^2/n + \sigma^3/\Delta + "
        r"\beta \sigma \Delta$, for every A",
        check=check_corrected,
        control={"first": 1.5},
        proof=prove_corrected,
        proof_control=[{"first": Fraction(7, 2)}, {"noise": 7}, {"edge": 9}],
        evaluation=CORRECTED,
        margins=lambda: _case_margins(_one_bad(2)),
        note="Theorem 3'; the whole proof stands in theorem3.md. The runs confirm it "
        r"by their exact mean squares. That the noise is at most $\tau_0/4$ takes the "
        "place of a condition on the start $v_0 = g_i$, without which (3) fails "
        r"(werner.thm3.start). The control claims $1.5 F_0/(\eta T)$; the proof fails "
        "for 7 instead of 8.",
    ),
    _row(
        id="werner.thm3.corrected.alike",
        text=r"for $A = 0$: $\operatorname{avg} E|\nabla f_i|^2 \le 2 F_0/(\eta T) "
        r"+ 2 (\rho^2/n + \rho^3/(\delta \Delta) + \beta^2 \rho \Delta/\delta)$; $2 "
        "F_0$ is needed",
        preconditions=(_BOUNDED, *_REST, r"$A = 0$, $\tau^2 = \delta \rho \Delta$"),
        constants={"first": 2.0, "noise": 2.0},
        check=check_alike,
        control={"first": 1.99},
        proof=prove_alike,
        proof_control=[{one: Fraction(199, 100)} for one in ("first", "noise")],
        evaluation=CORRECTED,
        margins=lambda: _case_margins(_one_bad(2)),
        note=r"$2 F_0/(\eta T)$ is reached by one step of $1/L$ without noise. In "
        "runs a few members and a bad client that pulls along their mean noise need "
        r"1.5 of the rest: checked, not proved. The control claims $1.99 F_0/(\eta "
        "T)$, and so does that of the proof.",
    ),
    _row(
        id="werner.thm3.wider",
        text=r"$\operatorname{avg} E|\nabla f_i|^2 \le C (L (F_0 + A^2 \bar F_0)/T "
        r"+ \max(1, A^2) (\rho^2/n + \rho^3/(\delta \Delta)))$ for $A^2 \le \delta$ "
        "and normal noise",
        preconditions=(
            r"quadratic losses in the plane, $A = 0.1$, 0.35 and 0.7, $\delta = 1/2$, "
            r"$\beta = 0$, $\eta = 1/(2 L)$, $\tau^2 = \delta \rho \Delta$",
        ),
        constants={"C": 8.0},
        check=check_wider,
        control={"share": 1 / 64},
        note=r"Not refuted on these families, and not proved: $A^2 \le \delta$ is "
        "more than werner.thm3.corrected allows. The control has a 64th of the first "
        "term.",
    ),
)
