"""Byzantine clients: what attacks do to a centre, where it breaks, and whole runs.

Four clusters or more with noise of total variance 1 are Delta = 200 apart, tau =
sqrt(delta sigma Delta). If all honest points of the target end within the ball, (4) is
at rest only where

    n_i (m - v) + sum of (b - v) over the attackers in the ball = 0,

so that |v - m| <= (n_b/n_i) tau = (beta/delta) tau, m the target's honest mean.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from cfljax import attacks
from cfljax.clustering import Rule, gap_radius, quantile_radius, threshold_clustering
from cfljax.statements import (
    Grade,
    Preset,
    Statement,
    Step,
    Verdict,
    at_most,
    identity,
    never_exceeds,
    tally,
)
from theory.rows import listed, row

_SIGMA, _SEPARATION = 1.0, 200.0
_OWN, _ALL, _FEATURES, _ROUNDS = 25, 125, 10, 60
RADIUS = float(np.sqrt(_OWN / _ALL * _SIGMA * _SEPARATION))
_ATTACKERS = (2, 6, 12, 18)  # beta/delta up to 0.72, below every breakdown
_MEANS = (3.0, 30.0)  # of the target: within the ball around 0, and far outside
_LEFT = (1 - _OWN / _ALL) ** _ROUNDS  # of the start, if only honest points pull
# Of centres: 16 units in the last place of the largest coordinate, 260.
_ROUNDING = 16 * float(np.finfo(float).eps) * 260
_CHANCE = 0.1  # of scenes that may be worse than claims which are not sure


class Scenes(NamedTuple):
    """A batch of them."""

    # The target's honest clients first.
    points: Float[np.ndarray, "batch clients features"]
    byzantine: Bool[np.ndarray, "batch clients"]
    clusters: np.ndarray  # 0 the target
    share: Float[np.ndarray, " batch"]  # beta/delta
    mean: Float[np.ndarray, " batch"]  # |mu|, along the first axis
    seed: int  # of what attackers draw


class Attacked(NamedTuple):
    """What became of the target's centre."""

    shift: Float[np.ndarray, " batch"]  # |v - m| for m the target's honest mean
    excess: Float[np.ndarray, " batch"]  # |v - mu|^2 - |m - mu|^2, mu its expectation
    unprotected: Float[np.ndarray, " batch"]  # |w - m|, w that of target and attackers
    reach: Float[np.ndarray, " batch"]  # (beta/delta) tau
    mean: Float[np.ndarray, " batch"]  # |mu|


def draw_scenes(preset: Preset, name: str) -> Scenes:
    """One scene for each number of attackers, mean of the target, and replicate."""
    repeats = preset.choose(quick=20, full=100)
    grids = np.meshgrid(np.repeat(_ATTACKERS, repeats), _MEANS, indexing="ij")
    number, mean = (grid.ravel() for grid in grids)
    clusters = np.where(np.arange(_ALL) >= _OWN, 1 + np.arange(_ALL) % 3, 0)
    axes = _SEPARATION * np.eye(4, _FEATURES)
    axes[0] = 0.0
    generator = preset.generator(name)
    noise = generator.standard_normal((len(number), _ALL, _FEATURES))
    points = axes[clusters] + _SIGMA / np.sqrt(_FEATURES) * noise
    points[..., 0] += mean[:, None]
    order = np.arange(_ALL) - _OWN
    return Scenes(
        points,
        (order >= 0) & (order < number[:, None]),
        clusters.astype(np.int32),
        number / _OWN,
        mean,
        int(generator.integers(2**31)),
    )


def attacked(scenes: Scenes, name: str, **options: float | str) -> Attacked:
    """Run rule (4) for 60 rounds from the target's first client, under an attack of
    `cfljax.attacks.ATTACKS` with its options."""
    attack = attacks.build(name, **options)
    clusters = jnp.asarray(scenes.clusters)

    def one(key: Array, points: Array, byzantine: Array) -> tuple[Array, Array]:
        start = points[0]

        def lie(centre: Array) -> Array:
            context = attacks.Context(
                clusters=clusters, start=start, centre=centre, radius=RADIUS
            )
            return attack(key, points, byzantine, context)

        if name != "edge_adaptive":
            sent = lie(start)
            found = threshold_clustering(
                sent, start[None], num_rounds=_ROUNDS, radius=RADIUS
            )
            return found.centres[0], sent

        def follow(centre: Array, _: None) -> tuple[Array, None]:
            found = threshold_clustering(
                lie(centre), centre[None], num_rounds=1, radius=RADIUS
            )
            return found.centres[0], None

        centre, _ = jax.lax.scan(follow, start, length=_ROUNDS)
        return centre, lie(centre)

    with jax.enable_x64(True):
        keys = jax.random.split(jax.random.key(scenes.seed), len(scenes.points))
        centres, sent = jax.vmap(one)(
            keys, jnp.asarray(scenes.points), jnp.asarray(scenes.byzantine)
        )
    honest = np.mean(scenes.points[:, :_OWN], axis=1)
    expected = np.zeros_like(honest)
    expected[:, 0] = scenes.mean
    joined = scenes.byzantine | (scenes.clusters == 0)
    # A mean with numbers whose bits are flipped may well be past any number.
    with np.errstate(over="ignore"):
        total = np.sum(np.where(joined[..., None], np.asarray(sent), 0), axis=1)
        mean, ends = total / np.sum(joined, axis=1)[:, None], np.asarray(centres)
        square = lambda apart: np.sum(apart**2, axis=-1)
        return Attacked(
            shift=np.sqrt(square(ends - honest)),
            excess=square(ends - expected) - square(honest - expected),
            unprotected=np.sqrt(square(mean - honest)),
            reach=scenes.share * RADIUS,
            mean=scenes.mean,
        )


@functools.lru_cache(maxsize=32)
def _found(preset: Preset, attack: str, **options: float) -> Attacked:
    return attacked(draw_scenes(preset, "werner.byz"), attack, **options)


def _told(
    options: Sequence[Mapping[str, float]],
) -> dict[str, Float[np.ndarray, " runs"]]:
    """The options of an attack in every run, NaN where one has none."""
    return {
        name: np.array([each.get(name, np.nan) for each in options])
        for name in dict.fromkeys(itertools.chain(*options))
    }


def _where(
    runs: Sequence[Attacked], options: Sequence[Mapping[str, float]] = ({},)
) -> dict[str, Float[np.ndarray, " scenes"] | float]:
    """Parameters of every scene of some runs, and which of the draws it is."""
    count = len(runs[0].reach)
    return {
        "malicious": np.concatenate([run.reach for run in runs]) / RADIUS * _OWN / _ALL,
        "members": _OWN,
        "share": _OWN / _ALL,
        "separation": _SEPARATION,
        "radius": RADIUS,
        "mean": np.concatenate([run.mean for run in runs]),
        **{name: np.repeat(values, count) for name, values in _told(options).items()},
        "draw": np.tile(np.arange(count), len(runs)),
    }


def check_attack(
    preset: Preset,
    name: str,
    *,
    attack: str,
    options: tuple[Mapping[str, float], ...],
    factor: float = 1.0,
    protected: bool = True,
) -> Verdict:
    """|v - m| <= `factor` (beta/delta) tau; or the mean of target and attackers is."""
    runs = [_found(preset, attack, **each) for each in options]
    shift = [run.shift if protected else run.unprotected for run in runs]
    influence = [np.mean(run.excess / run.reach**2) for run in runs]
    ratio = [np.max(far / run.reach) for far, run in zip(shift, runs, strict=True)]
    return never_exceeds(
        name,
        np.concatenate(shift),
        factor * np.concatenate([run.reach for run in runs]),
        rounding=_ROUNDING,
        grade=Grade.SEARCHED,
        coordinates=_where(runs, options),
        detail=rf"{sum(map(len, shift))} scenes, $\beta/\delta$ 0.08 to 0.72: $|v - "
        rf"m|$ over $(\beta/\delta) \tau$ at most {listed(ratio, '.2g')}; mean I "
        f"{listed(influence, '.2g')}",
    )


def check_seldom(
    preset: Preset,
    name: str,
    *,
    attack: str,
    options: tuple[Mapping[str, float], ...],
    factor: float,
) -> Verdict:
    """P(|v - m| > `factor` (beta/delta) tau) <= 0.1 in a scene with one of the numbers
    of attackers and means, all as likely, for each of the options."""
    ratio = [
        run.shift / run.reach
        for run in (_found(preset, attack, **each) for each in options)
    ]
    return at_most(
        name,
        tally(np.array(ratio) > factor),
        _CHANCE,
        coordinates=_told(options),
        detail=rf"{sum(map(len, ratio))} scenes, $\beta/\delta$ 0.08 to 0.72: $|v - "
        rf"m|$ over $(\beta/\delta) \tau$ at most {listed(map(np.max, ratio), '.2g')}",
    )


def prove_edge(*, share: Fraction = Fraction(999, 1000)) -> list[Step]:
    r"""While all of the target's honest points are in the ball and no other honest one
    is, a round takes $e = v - m$ to $(1 - \delta) e + w$, $w$ the bad points' part.

    Each bad point in the ball is at most $\tau$ from $v$, so that $|w| \le \beta \tau$,
    and $|e_l| \le (1 - \delta)^l |e_0| + \beta \tau/\delta$: nobody moves the centre
    further in the end. Points at $v + 0.999 \tau u$ have $w = 0.999 \beta \tau u$, and
    $e$ converges to the fixed point $0.999 (\beta/\delta) \tau u$, at the rate $1 -
    \delta$.
    """
    import sympy

    delta, beta, radius = sympy.symbols("delta beta tau", positive=True)
    limit, most = share * beta * radius / delta, beta * radius / delta
    return [
        identity(
            r"$(1 - \delta) \beta \tau/\delta + \beta \tau = \beta \tau/\delta$",
            (1 - delta) * most + beta * radius - most,
        ),
        identity(
            r"$e = 0.999 \beta \tau/\delta$ is at rest under $e \to (1 - \delta) e + "
            r"0.999 \beta \tau$",
            (1 - delta) * limit + sympy.Rational(999, 1000) * beta * radius - limit,
        ),
    ]


def check_edge(preset: Preset, name: str, *, share: float = 0.999) -> Verdict:
    """|v - m| = `share` (beta/delta) tau for the adaptive edge, up to what 60 rounds
    leave of the distance of the start from that place, at most 2 tau."""
    run = _found(preset, "edge_adaptive")
    ratio = run.shift / run.reach
    return never_exceeds(
        name,
        np.abs(run.shift - share * run.reach),
        2 * _LEFT * RADIUS,
        rounding=_ROUNDING,
        grade=Grade.SEARCHED,
        coordinates=_where([run]),
        detail=rf"{len(ratio)} scenes, $\beta/\delta$ 0.08 to 0.72: $|v - m|$ over "
        rf"$(\beta/\delta) \tau$ from {np.min(ratio):.4f} to {np.max(ratio):.4f}; mean "
        f"$I$ {np.mean(run.excess / run.reach**2):.3f}",
    )


_REJECTED = 1e-5  # of (beta/delta) tau; more than `_LEFT` of any start of a scene
_once = functools.partial(
    row,
    place="Section 3.1.1, threat model; Lemma 5",
    preconditions=(
        "all honest points of the target end within the ball: below breakdown",
        r"$K = 4$, $n_i = 25$, $N = 125$, $d = 10$, $\sigma = 1$, $\Delta = 200$, "
        r"$\tau = \sqrt{\delta_i \sigma \Delta}$, $|m|$ about 3 and 30",
    ),
    claimed=r"extra squared error of order $\beta_i \sigma \Delta$",
)


def _attack(
    label: str,
    attack: str,
    sent: str,
    most: float,
    factor: float | None = None,
    options: tuple[Mapping[str, float], ...] = ({},),
) -> Statement:
    """The row of an attack of the library, which moves the centre by `most` of (beta/
    delta) tau: surely if that is all of it or the start's rest, else with probability
    0.9. Its control claims `factor` of that, or is not clipped if None."""
    control, how = {"factor": factor}, f"claims {factor}"
    if factor is None:
        control = {"protected": False}
        how = "takes the mean of the target's clients and the attackers"
    sure = most in (1.0, _REJECTED)
    kind = (
        "In the scenes drawn, a search for a violation of what is sure."
        if sure
        else r"In scenes drawn at random, $\beta/\delta$ 0.08, 0.24, 0.48 or 0.72."
    )
    return _once(
        id=f"werner.byz.{label}",
        text=f"attackers that send {sent} move the centre by at most "
        rf"${most:g} (\beta_i/\delta_i) \tau$"
        f"{'' if sure else ', with probability 0.9 or more'}",
        constants={"share": most} | ({} if sure else {"chance": _CHANCE}),
        check=functools.partial(
            check_attack if sure else check_seldom,
            attack=attack,
            options=options,
            factor=most,
        ),
        control=control,
        note=r"Nobody moves it by more than $(\beta_i/\delta_i) \tau$, $I = 1$ "
        rf"(werner.byz.edge_adaptive). {kind} Quadratic in $\beta_i$. The control "
        f"{how}.",
    )


_ATTACKS = (
    _once(
        id="werner.byz.edge_adaptive",
        text=r"attackers that send $v_{l-1} + 0.999 \tau u$ in each round move the "
        r"centre by $0.999 (\beta_i/\delta_i) \tau$: $I = 1$, the most of all",
        check=check_edge,
        control={"share": 1.0},
        proof=prove_edge,
        proof_control={"share": Fraction(1)},
        note=r"The squared error is $\beta_i^2 \sigma \Delta/\delta_i$. Clients that "
        "send once cannot do this. The control, and that of the proof, claim all of "
        r"$(\beta_i/\delta_i) \tau$.",
    ),
    _attack("edge_static", "edge_static", r"$v_0 + 0.999 \tau u$", 1.0, 0.9),
    _attack(
        "staged",
        "staged",
        r"$v_0 + 0.999 \tau (1 + q/n_i) u$, $q = 0 \ldots n_b - 1$",
        1.0,
        0.85,
    ),
    _attack("signflip", "sign_flip", "$-m$", 1.0, 0.85),
    _attack(
        "ipm",
        "ipm",
        r"$-\varepsilon m$, $\varepsilon = 0.1$, 0.5, 1, 5",
        1.0,
        0.85,
        tuple({"epsilon": epsilon} for epsilon in (0.1, 0.5, 1.0, 5.0)),
    ),
    _attack(
        "alie",
        "alie",
        "$m - z s$, $z$ by the formula, 1 and 2",
        0.5,
        0.25,
        ({}, {"z": 1.0}, {"z": 2.0}),
    ),
    _attack("gauss", "gaussian", "$m + 10 s N(0, I)$", 1.0, 0.1),
    _attack(
        "mimic", "mimic", "copies of the honest point farthest along $u$", 0.5, 0.1
    ),
    _attack("othermean", "other_mean", "the mean of the other clusters", _REJECTED),
    _attack(
        "bitflip",
        "bit_flip",
        "an honest point, bit 30 of each number flipped",
        _REJECTED,
    ),
    _attack("zero", "zero", "0", 0.6, 0.3),
)


_POINTS, _OWNS, _APART = 100, (25, 40), 1000.0  # N, n_i and Delta for the gaps
_FLOAT32 = 1e-3  # rounding up to 1e5, in units of sigma or shares of Delta


def adaptive_errors(
    honest: Float[np.ndarray, "own features"], radius: float, num_rounds: int
) -> Float[np.ndarray, " attackers"]:
    """|v - m|^2 from m under the adaptive edge, for 1, 2 ... as many attackers as
    honest ones among N = 4 own + attackers."""
    number = np.arange(1, len(honest) + 1)[:, None]
    away = honest - np.mean(honest, axis=0)
    centre = np.zeros((len(honest), honest.shape[1]))
    push = -np.ones(honest.shape[1]) / np.sqrt(honest.shape[1])
    for _ in range(num_rounds):
        apart = away[None] - centre[:, None]
        inside = np.sum(apart**2, axis=-1, keepdims=True) <= radius**2
        pull = np.sum(np.where(inside, apart, 0), axis=1) + number * radius * push
        centre = centre + pull / (4 * len(honest) + number)
    return np.sum(centre**2, axis=1)


_BALLS = (6.0, 9.0, 12.0)  # tau
_BROKEN, _WIDTH, _MOST = 0.65, 0.055, 0.4


@functools.lru_cache(maxsize=4)
def _breakdowns(preset: Preset) -> Float[np.ndarray, "balls draws"]:
    """The least beta/delta with an error above 4 tau^2, infinite if there is none."""
    own, features, repeats = 50, 10, preset.choose(quick=20, full=100)
    generator = preset.generator("werner.byz.breakdown")
    found = []
    for radius in _BALLS:
        for _ in range(repeats):
            honest = generator.standard_normal((own, features)) / np.sqrt(features)
            broken = adaptive_errors(honest, radius, 150) > 4 * radius**2
            found.append((1 + np.argmax(broken)) / own if np.any(broken) else np.inf)
    return np.array(found).reshape(len(_BALLS), repeats)


def check_breakdown(preset: Preset, name: str, *, factor: float = _BROKEN) -> Verdict:
    """P(the least beta/delta with an error above 4 tau^2 is not 1 - `factor` sigma/tau
    within 0.055) <= 0.4 for tau = 6, 9 or 12 sigma, all as likely."""
    values, found = [], _breakdowns(preset)
    for radius, firsts in zip(_BALLS, found, strict=True):
        for first in firsts:
            values.append(abs(first - (1 - factor / radius)))
    shown = ", ".join(
        rf"{np.min(firsts):.2f} to {np.max(firsts):.2f} $(\tau = {radius:g})$"
        for radius, firsts in zip(_BALLS, found, strict=True)
    )
    return at_most(
        name,
        tally(np.array(values) > _WIDTH),
        _MOST,
        detail=rf"$n_i = 50$, $d = 10$: breakdown at $\beta/\delta = {shown}$",
    )


def _clouds(
    preset: Preset, own: Sequence[int], separation: float, *, far: int, reach: float
) -> Float[np.ndarray, "batch points features"]:
    """`own` points around 0, `far` attackers at `reach`, the others at Delta."""
    generator = preset.generator("werner.byz.percentile")
    points = generator.standard_normal((len(own), _POINTS, 5)) / np.sqrt(5)
    for cloud, number in zip(points, own, strict=True):
        cloud[number:, 1] += separation
        cloud[_POINTS - far :, 1] = 0.0
        cloud[_POINTS - far :, 0] = reach
    return points


def _shift(
    points: Float[np.ndarray, "batch points features"], own: Sequence[int], rule: Rule
) -> Float[np.ndarray, " batch"]:
    """|v - m| for each set, in units of sigma, after 60 rounds from its first point."""

    def settle(cloud: Array) -> Array:
        found = threshold_clustering(cloud, cloud[:1], num_rounds=60, radius=rule)
        return found.centres[0]

    centres = jax.vmap(settle)(jnp.asarray(points.astype(np.float32)))
    means = [
        np.mean(cloud[:number], axis=0)
        for cloud, number in zip(points, own, strict=True)
    ]
    return np.linalg.norm(np.asarray(centres, float) - means, axis=1)


_CAUGHT = (10, 15, 18, 19, 20, 21, 25, 40)  # n_i around the percentile's 20
_DISTANCES = (100.0, 10_000.0)  # Delta
_EXCEPT = 0.2  # of clouds that may be elsewhere


@functools.lru_cache(maxsize=4)
def _percentiles(preset: Preset) -> Float[np.ndarray, "distances own clouds"]:
    """|v - m| with the 20th percentile as the radius, in units of sigma."""
    own, found = np.repeat(_CAUGHT, preset.choose(quick=200, full=2000)).tolist(), []
    for separation in _DISTANCES:
        clouds = _clouds(preset, own, separation, far=10, reach=0.9 * separation)
        found.append(_shift(clouds, own, quantile_radius(0.2)))
    return np.array(found).reshape(len(_DISTANCES), len(_CAUGHT), -1)


def check_percentile(preset: Preset, name: str, *, threshold: int = 20) -> Verdict:
    """But with probability 0.2 at most |v - m| <= 0.6 sigma from n_i = `threshold` on;
    below at least 0.89 (1 - n_i/20) Delta, and at Delta = 100 at most 0.91 of it."""
    found, wrong = _percentiles(preset), []
    for separation, shifts in zip(_DISTANCES, found, strict=True):
        for number, moved in zip(_CAUGHT, shifts, strict=True):
            if number >= threshold:
                wrong.append(moved > 0.6)
                continue
            share = moved / ((1 - number / 20) * separation)
            most = 0.91 if separation == 100 else np.inf
            wrong.append((share < 0.89) | (share > most))
    middle = np.median(found, axis=-1)
    return at_most(
        name,
        tally(np.array(wrong)),
        _EXCEPT,
        coordinates={
            "members": np.tile(np.array(_CAUGHT, float), len(_DISTANCES)),
            "separation": np.repeat(_DISTANCES, len(_CAUGHT)),
        },
        detail=f"$n_i = {listed(_CAUGHT)}$ of {_POINTS}: median shifts "
        rf"{listed(middle[0], '.3g')} at $\Delta = 100$, {listed(middle[1], '.3g')} at "
        "10000",
    )


@functools.lru_cache(maxsize=4)
def _opened(preset: Preset, gap: str) -> Float[np.ndarray, "own clouds"]:
    """|v - m| with one far attacker, in units of sigma."""
    own = np.repeat(_OWNS, preset.choose(quick=90, full=1000)).tolist()
    clouds = _clouds(preset, own, _APART, far=1, reach=10 * _APART)
    return _shift(clouds, own, gap_radius(gap)).reshape(len(_OWNS), -1)


def check_gap(preset: Preset, name: str, *, gap: str = "outer") -> Verdict:
    """But with probability 0.2 at most one far attacker moves the centre of `gap` by
    Delta/2 or more, and the inner gap's not at all."""
    found, inner = _opened(preset, gap), _opened(preset, "inner")
    return at_most(
        name,
        tally((found < _APART / 2) | (inner > _FLOAT32)),
        _EXCEPT,
        coordinates={"members": np.array(_OWNS, float)},
        detail=rf"$n_i = 25$, 40 of {_POINTS}, $\Delta = {_APART:g}$, one attacker at "
        rf"$10 \Delta$: {gap} gap at least {listed(np.min(found, axis=1), '.0f')}, "
        f"inner gap at most {listed(np.max(inner, axis=1), '.2g')}",
    )


_BREAKDOWN = (
    row(
        id="werner.byz.breakdown",
        place="Section 3.1.1, threat model",
        text=r"under the adaptive edge the least $\beta_i/\delta_i$ with $|v - m|^2 > "
        r"4 \tau^2$ is $1 - 0.65 \sigma/\tau$ within 0.055, with probability 0.6 or "
        "more",
        preconditions=(
            "$n_i = 50$, $d = 10$, isotropic normal noise",
            r"$\tau = 6$, 9 or $12 \sigma$, all as likely",
        ),
        constants={"share": _BROKEN, "distance": _WIDTH, "chance": _MOST},
        claimed=r"$\beta_i \le c \delta_i$, $c$ unnamed",
        check=check_breakdown,
        control={"factor": 1.5},
        note=r"The constant of $\beta_i \lesssim \delta_i$ is below 1, and 0.65 is a "
        r"fit for these three. The control claims $1 - 1.5 \sigma/\tau$.",
    ),
    row(
        id="werner.byz.percentile",
        place="Section 4.2, hyperparameters",
        text="with the 20th percentile of $N = 100$ distances as the radius the "
        r"centre stays within $0.6 \sigma$ if the cluster has $n_i \ge 20$; else it "
        r"moves by at least $0.89 (1 - n_i/20) \Delta$, and at $\Delta = 100$ by no "
        "more than 0.91 of it; each with probability 0.8 or more",
        preconditions=(
            r"10 attackers at $0.9 \Delta$, the others at $\Delta = 100$ and $10^4 "
            r"\sigma$",
            "normal noise, $d = 5$, $n_i = 10$ to 40",
        ),
        constants={"within": 0.6, "beyond": 0.89, "chance": _EXCEPT},
        claimed=r"used for MNIST, where $\delta_i = 1/4$",
        check=check_percentile,
        control={"threshold": 19},
        note=r"The ball holds 20 points, whoever they are: protection needs $n_i \ge "
        r"1 + \lfloor q (N - 1) \rfloor$. Now and then noise takes the centre "
        "elsewhere, as with $n_i = 19$. Theorem 1 does not cover such radii. The "
        "control claims protection from 19 on.",
    ),
    row(
        id="werner.byz.outer_gap",
        place="Released code, a radius by clusters of distances",
        text=r"one attacker at $10 \Delta$ opens the ball of the outer gap to all "
        r"honest points, and moves the centre by at least $\Delta/2$; with the inner "
        r"gap it does not move it at all, up to $0.001 \sigma$ of rounding; with "
        "probability 0.8 or more",
        preconditions=(
            r"$N = 100$, $n_i = 25$ and 40, $\Delta = 1000 \sigma$, normal "
            "noise",
        ),
        constants={"beyond": 0.5, "chance": _EXCEPT},
        claimed="a rule of the code, not of the paper",
        check=check_gap,
        control={"gap": "inner"},
        note="A radius that far points set has no protection. The control claims as "
        "much of the inner gap.",
    ),
)


Kind = Literal["labelflip", "time_coupled", "alternating", "sleeper"]

_MEMBERS, _BAD, _OTHERS, _DIMENSION = 20, 10, 70, 5
_STEP, _CLIPPINGS = 0.2, 15
_REACH = _BAD / _MEMBERS * RADIUS  # (beta/delta) tau
_OPTIMUM = np.full(_DIMENSION, 2.0 / np.sqrt(_DIMENSION))  # a_i


def _clipped(
    start: Float[np.ndarray, "trials features"],
    honest: Float[np.ndarray, "trials own features"],
    bad: Float[np.ndarray, "trials bad features"] | None,
) -> Float[np.ndarray, "trials features"]:
    """Rule (4) with N = 100; without given bad points they sit on the moving edge."""
    centre, direction = start, np.full(_DIMENSION, -1 / np.sqrt(_DIMENSION))
    for _ in range(_CLIPPINGS):
        points = honest if bad is None else np.concatenate([honest, bad], axis=1)
        apart = points - centre[:, None]
        inside = np.sum(apart**2, axis=-1, keepdims=True) <= RADIUS**2
        pull = np.sum(np.where(inside, apart, 0), axis=1)
        if bad is None:
            pull = pull + _BAD * RADIUS * direction
        centre = centre + pull / (_MEMBERS + _BAD + _OTHERS)
    return centre


def _lies(
    kind: Kind,
    turn: int,
    rounds: int,
    model: Float[np.ndarray, "trials features"],
    noise: Float[np.ndarray, "trials bad features"],
) -> Float[np.ndarray, "trials bad features"] | None:
    """What attackers send in a round; None for the adaptive edge."""
    if kind == "labelflip":
        # Of |x - a|^2/2 = (x^T w - a^T w)^2/2 on average, targets of the other sign.
        return model[:, None] + _OPTIMUM + noise
    honest = model[:, None] - _OPTIMUM + noise
    if kind == "alternating":
        push = (1 if turn % 2 else -1) * 0.9 * RADIUS / np.sqrt(_DIMENSION)
        return np.mean(honest, axis=1, keepdims=True) + np.full_like(noise, push)
    return honest if kind == "sleeper" and turn < rounds // 2 else None


@functools.lru_cache(maxsize=8)
def gradient_gaps(
    preset: Preset, kind: Kind
) -> tuple[Float[np.ndarray, "trials rounds"], Float[np.ndarray, "trials rounds"]]:
    """|grad f_i(x_t) - grad f_i(x'_t)| of runs with and without an attack and with the
    same noise, and |grad f_i(x_t)|^2 under attack; see `_lies` for the kinds."""
    trials = preset.choose(quick=100, full=400)
    rounds = preset.choose(quick=60, full=500)
    generator = preset.generator("werner.byz", 1)
    attacked = np.zeros((trials, _DIMENSION))
    clean, gaps, squares = attacked, [], []
    for turn in range(rounds):
        shape = (trials, _MEMBERS + _BAD, _DIMENSION)
        noise = generator.standard_normal(shape) / np.sqrt(_DIMENSION)
        own, bad = noise[:, :_MEMBERS], noise[:, _MEMBERS:]
        gaps.append(np.linalg.norm(attacked - clean, axis=1))
        squares.append(np.sum((attacked - _OPTIMUM) ** 2, axis=1))
        honest = clean[:, None] - _OPTIMUM + own
        free = np.full_like(bad, np.inf)  # In no ball: nobody attacks.
        clean = clean - _STEP * _clipped(honest[:, 0], honest, free)
        honest = attacked[:, None] - _OPTIMUM + own
        lies = _lies(kind, turn, rounds, attacked, bad)
        attacked = attacked - _STEP * _clipped(honest[:, 0], honest, lies)
    return np.array(gaps).T, np.array(squares).T


def check_training(
    preset: Preset, name: str, *, kind: Kind, factor: float = 1.0, least: float = 0.0
) -> Verdict:
    """Gaps are at most `factor` (beta/delta) tau, and in the end `least` of it."""
    gaps, squares = gradient_gaps(preset, kind)
    last = gaps[:, -1]
    return never_exceeds(
        name,
        np.concatenate([np.max(gaps, axis=1), -last]),
        np.repeat([factor * _REACH, -least * _REACH], len(last)),
        rounding=1e-9,
        grade=Grade.SEARCHED,
        coordinates={
            "part": np.repeat(["largest", "at the end"], len(last)),
            "draw": np.tile(np.arange(len(last)), 2),
        },
        detail=rf"{gaps.shape[0]} runs of {gaps.shape[1]} rounds, $\beta/\delta = "
        rf"1/2$: gap over $(\beta/\delta) \tau$ at most {np.max(gaps) / _REACH:.3f}, "
        rf"at the end {np.mean(last) / _REACH:.3f}; $|\nabla f_i|^2$ at the end "
        f"{np.mean(squares[:, -1]):.2f}, floor {_REACH**2:.2f}",
    )


def check_alternating(preset: Preset, name: str, *, factor: float = 0.2) -> Verdict:
    """P(a run has a gap above `factor` (beta/delta) tau) <= 0.2."""
    gaps, _ = gradient_gaps(preset, "alternating")
    return at_most(
        name,
        tally(np.max(gaps, axis=1) > factor * _REACH),
        _EXCEPT,
        detail=rf"{gaps.shape[0]} runs of {gaps.shape[1]} rounds, $\beta/\delta = "
        rf"1/2$: gap over $(\beta/\delta) \tau$ at most {np.max(gaps) / _REACH:.3f}",
    )


_run = functools.partial(
    row,
    place="Sections 3.1.1 and 3.2, Algorithm 2",
    preconditions=(
        "no honest point of the cluster leaves the ball: below breakdown",
        r"$f_i = |x - a_i|^2/2$, $n_i = 20$, $N = 100$, 10 attackers, $\Delta = 200 "
        r"\sigma$, $\tau = \sqrt{\delta_i \sigma \Delta}$",
    ),
    claimed=r"$\beta_i \sigma \Delta$ in (3), by Theorem 3",
)

_TRAINING = (
    _run(
        id="werner.byz.labelflip",
        text="attackers that train on $-y$ move gradients along a run by at most "
        r"$(\beta_i/\delta_i) \tau$",
        check=functools.partial(check_training, kind="labelflip"),
        control={"factor": 0.3},
        note="The lie is at $2 |a_i|$ from the truth, in the ball here, and weaker "
        "than the edge. The control claims 0.3 of it.",
    ),
    _run(
        id="werner.byz.time_coupled",
        text="the adaptive edge in one direction for a whole run moves gradients by "
        r"at most $(\beta_i/\delta_i) \tau$, and by 0.9 of it in the end",
        check=functools.partial(check_training, kind="time_coupled", least=0.9),
        control={"factor": 0.9},
        note=r"A floor of $(\beta/\delta)^2 \tau^2$ for $|\nabla f_i|^2$ that no "
        r"number of rounds lowers: $\tau$ must fall with the noise. The control "
        "claims 0.9.",
    ),
    _run(
        id="werner.byz.alternating",
        text="the same push in turns on both sides moves gradients by at most $0.2 "
        r"(\beta_i/\delta_i) \tau$, with probability 0.8 or more for a run",
        constants={"share": 0.2, "chance": _EXCEPT},
        check=check_alternating,
        control={"factor": 0.02},
        note="What pushes apart in time cancels. The control claims 0.02.",
    ),
    _run(
        id="werner.byz.sleeper",
        text="attackers that are honest for half of a run, then on the adaptive "
        r"edge, move gradients by at most $(\beta_i/\delta_i) \tau$, and by 0.9 of it "
        "in the end",
        check=functools.partial(check_training, kind="sleeper", least=0.9),
        control={"factor": 0.9},
        note="Trust that is earned buys nothing: the rule has no memory. The control "
        "claims 0.9.",
    ),
)

STATEMENTS = (*_ATTACKS, *_BREAKDOWN, *_TRAINING)
