"""Rule (4) of Threshold-Clustering: as the library computes it, and how robust it is.

v_l is the mean over all N points of z_i where |z_i - v_(l-1)| <= tau and of v_(l-1)
where not.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from cfljax.clustering import threshold_clustering
from cfljax.statements import (
    Grade,
    Preset,
    Status,
    Step,
    Verdict,
    combine,
    never_exceeds,
)
from theory.rows import row
from theory.werner.common.algebra import same
from theory.werner.common.claims import reached
from theory.werner.common.instances import CONSTANTS, Instance, margins
from theory.werner.common.laws import sym3
from theory.werner.common.population_map import Mixture, move, settle

_ROUNDS = 6
_CLOUDS = np.array([[0.0, 0.0, 0.0], [10.0, 0.0, 0.0], [0.0, 20.0, 0.0]])
# Start and radius: two balls around a cloud, one that nobody is in, one that holds all,
# one of radius 0, one that holds two clouds, and one with a point just on its edge.
_STARTS = np.array(
    [
        [0.3, -0.2, 0.1],
        [9.0, 0.5, 0.0],
        [50.0, 0.0, 0.0],
        [3.0, 3.0, 3.0],
        [0.1, 0.2, 0.3],
        [4.0, 1.0, 0.0],
        [0.0, 0.0, -50.0],
    ]
)
_RADII = np.array([4.0, 4.0, 4.0, 1e4, 0.0, 13.0, 10.0])
_ON_EDGE = np.array([0.0, 0.0, -60.0])


def literal(
    points: Float[np.ndarray, "points features"],
    centre: Float[np.ndarray, " features"],
    radius: float,
    *,
    ball_only: bool = False,
) -> Float[np.ndarray, " features"]:
    """One round of (4), as printed, in float64; or the mean of the points in the ball,
    as mean shift takes it, the centre itself if there are none."""
    inside = np.linalg.norm(points - centre, axis=1) <= radius
    if ball_only:
        return points[inside].mean(axis=0) if np.any(inside) else centre
    return np.mean(np.where(inside[:, None], points, centre), axis=0)


def _paths(
    points: Float[np.ndarray, "points features"], *, ball_only: bool
) -> Float[np.ndarray, "rounds centres features"]:
    """Centres before the first round and after each, by `literal`."""
    path = [_STARTS]
    for _ in range(_ROUNDS):
        moved = [
            literal(points, centre, float(radius), ball_only=ball_only)
            for centre, radius in zip(path[-1], _RADII, strict=True)
        ]
        path.append(np.stack(moved))
    return np.stack(path)


def _library(
    points: Float[np.ndarray, "points features"],
    starts: Float[np.ndarray, "centres features"],
    radii: Float[np.ndarray, " centres"],
) -> Float[np.ndarray, "centres features"]:
    found = threshold_clustering(
        jnp.asarray(points, jnp.float32),
        jnp.asarray(starts, jnp.float32),
        num_rounds=_ROUNDS,
        radius=jnp.asarray(radii, jnp.float32),
    )
    return np.asarray(found.centres, float)


@functools.cache  # compiled anew at each call, and the same for check and control
def _computed(
    preset: Preset,
) -> tuple[
    Float[np.ndarray, "points features"],
    Float[np.ndarray, "centres features"],
    Float[np.ndarray, "centres features"],
]:
    """Points, the library's centres, and those of the moved points, moved back."""
    noise = preset.generator("werner.eq4").uniform(-0.5, 0.5, (3, 20, 3))
    points = np.concatenate([(_CLOUDS[:, None] + noise).reshape(-1, 3), [_ON_EDGE]])
    # What both sides see is in single precision.
    points = points.astype(np.float32).astype(float)
    found = _library(points, _STARTS, _RADII)
    # Other axes and signs, a shift by a whole number, the centres in reverse order.
    moved = _library(
        (points * [-1, 1, 1])[:, [1, 2, 0]] + 8,
        ((_STARTS * [-1, 1, 1])[:, [1, 2, 0]] + 8)[::-1],
        _RADII[::-1],
    )
    return points, found, (moved[::-1] - 8)[:, [2, 0, 1]] * [-1, 1, 1]


def check_rule(preset: Preset, name: str, *, ball_only: bool = False) -> Verdict:
    """The library's centres are those of (4), move with the points, ignore each other;
    no step is longer than tau times the share in the ball; `ball_only` as in
    `literal`."""
    points, found, back = _computed(preset)
    path = _paths(points, ball_only=ball_only)
    gaps = np.stack([np.abs(found - path[-1]), np.abs(found - back)])
    rounding = _ROUNDS * (len(points) + 3) * np.finfo(np.float32).eps * (60.0 + 8.0)
    centre = np.arange(len(_RADII))
    equal = never_exceeds(
        name,
        gaps,
        0.0,
        rounding=float(rounding),
        grade=Grade.SEARCHED,
        coordinates={
            "against": np.array(["(4)", "moved points"])[:, None, None],
            "centre": centre[:, None],
            "axis": np.arange(gaps.shape[-1]),
        },
    )
    steps = np.linalg.norm(np.diff(path, axis=0), axis=-1)
    apart = np.linalg.norm(path[:-1, :, None] - points, axis=-1)
    shares = np.mean(apart <= _RADII[:, None], axis=-1)
    short = never_exceeds(
        name,
        steps,
        _RADII * shares,
        rounding=1e-12,
        grade=Grade.SEARCHED,
        coordinates={"centre": centre, "rounds": 1 + np.arange(_ROUNDS)[:, None]},
    )
    detail = (
        f"{len(_RADII)} centres, {_ROUNDS} rounds, {len(points)} points: largest gap "
        f"to (4) {np.max(gaps[0]):.1e}, to the moved points' {np.max(gaps[1]):.1e}"
    )
    return combine(name, [equal, short], parts=["gap", "step"], detail=detail)


def check_points(
    preset: Preset, name: str, *, factor: bool, outside: bool = True
) -> Verdict:
    """The mean of y_j is where Threshold-Clustering takes the centre, y_j = z_j 1{in} +
    v 1{out}, or 1{in} + v 1{out} without the `factor`, or less what is `outside`."""
    points = preset.generator("werner.yjlt").standard_normal((6, 2)).astype(np.float32)
    points[1] = points[0] + np.float32(2)  # out of the ball, wherever the others are
    centre = points[:1] + np.float32(0.1)
    found = threshold_clustering(
        jnp.asarray(points), jnp.asarray(centre), num_rounds=1, radius=1.5
    )
    inside = np.asarray(found.members)[0][:, None]
    kept = np.where(inside, points if factor else 1, centre if outside else 0)
    miss = np.abs(np.asarray(found.centres)[0] - np.mean(kept, axis=0)).astype(float)
    detail = (
        f"{np.sum(inside)} of {len(points)} points in the ball; the mean of $y$ "
        f"misses the centre by {np.max(miss):.2g}"
    )
    return never_exceeds(
        name,
        miss,
        0.0,
        rounding=float(64 * np.finfo(np.float32).eps),
        grade=Grade.SEARCHED,
        coordinates={"axis": np.arange(len(miss))},
        detail=detail,
    )


_appendix = functools.partial(
    row,
    place="Appendices A.3 and A.4, notation",
    preconditions=("points and a centre, some points in its ball",),
)

_RULE = (
    row(
        id="werner.eq4",
        place="Equation (4), Algorithm 3",
        text=r"$v_l = (1/N)$ sum of $z_i 1\{|z_i - v_{l-1}| \le \tau\} + "
        r"v_{l-1} 1\{|z_i - v_{l-1}| > \tau\}$",
        preconditions=("finite points, a radius of 0 or more",),
        check=check_rule,
        control={"ball_only": True},
        note="The library's kernel against the formula: balls with a cloud, with two, "
        "with all, with nobody, of radius 0, and with a point just on the edge. The "
        "control divides by the points in the ball, as mean shift does.",
    ),
    _appendix(
        id="werner.yjlt",
        text=r"$v_l = (1/N) \sum_j y_j$, $y_j = 1(|g_j - v_{l-1}| \le \tau) + "
        r"v_{l-1} 1(|g_j - v_{l-1}| > \tau)$",
        expected=Status.VIOLATED,
        fault="misprint",
        check=functools.partial(check_points, factor=False),
        control={"factor": True},
        note="$g_j$, in A.$4 m_j$, is missing before the first indicator. Equation "
        "(4) and the same line of A.1 have $z_j$ there; the braces of the line in "
        "A.3 end within a product in the text at hand, which may have lost the "
        "factor. The control has it.",
    ),
    _appendix(
        id="werner.yjlt.corrected",
        text=r"$v_l = (1/N) \sum_j y_j$, $y_j = g_j 1(|g_j - v_{l-1}| \le \tau) + "
        r"v_{l-1} 1(|g_j - v_{l-1}| > \tau)$",
        check=functools.partial(check_points, factor=True),
        control={"outside": False},
        note="As in appendix A.1. The control omits the second term.",
    ),
)


# Where points that never move are, in radii from where the centre starts, infinity for
# the mean of the other clusters; None follows the centre on the edge.
ATTACKS: dict[str, tuple[float, ...] | None] = {
    "edge, adaptive": None,
    "edge, static": (0.999,),
    "staged": (1.0, 1.1, 1.2, 1.3, 1.4),
    "far": (1e6,),
    "middle": (0.5,),
    "two sides": (-0.999, 0.999),
    "other cluster": (np.inf,),
}
_MOST = 5  # points of an attack


def squared_errors(
    instances: Sequence[Instance], attacks: Sequence[str]
) -> Float[np.ndarray, " cases"]:
    """|v_l - mu|^2 from v_0 = mu under `ATTACKS`, the other clusters on the other side
    than the bad points, l five times that of the slowest instance."""
    own, places, masses, pushes = sym3(2.0, 1.0), [], [], []
    for one, attack in zip(instances, attacks, strict=True):
        bad = ATTACKS[attack]
        at = np.array(bad or ()) * one.radius
        at = np.where(np.isinf(at), -one.separation, at)
        unused = np.zeros(_MOST - len(at))
        rest = 1 - one.share - one.bad
        share = one.bad / max(1, len(at))
        places.append([*own.values, -one.separation, *at, *unused])
        masses.append([*(one.share * own.chances), rest, *(at * 0 + share), *unused])
        pushes.append(one.bad if bad is None else 0.0)
    found = settle(
        Mixture(np.array(places), np.array(masses)),
        np.zeros(len(places)),
        np.array([one.radius for one in instances]),
        num_rounds=5 * max(one.num_rounds for one in instances),
        push=np.array(pushes),
    )
    return found**2


def _battery(
    relative: Float[np.ndarray, " levels"],
) -> tuple[list[Instance], list[str], Float[np.ndarray, " cases"]]:
    """Instances, attacks and errors for beta/delta = `relative`."""
    cases = list(
        itertools.product((2, 4, 16), (24.0, 200.0, 5000.0), relative, ATTACKS)
    )
    instances = [
        Instance(1 / clusters, factor * clusters, float(share) / clusters)
        for clusters, factor, share, _ in cases
    ]
    attacks = [attack for *_, attack in cases]
    return instances, attacks, squared_errors(instances, attacks)


def check_robust(preset: Preset, name: str, *, largest: float = 1 / 12) -> Verdict:
    """(Err - E_1)/beta <= (beta/delta) sigma Delta for all attacks, beta/delta up to
    `largest`, and reached by one of them."""
    levels = preset.choose(quick=3, full=12)
    instances, attacks, errors = _battery(largest * np.arange(1, levels + 1) / levels)
    bad = np.array([one.bad for one in instances])
    separations = np.array([one.separation for one in instances])
    shares = np.array([one.share for one in instances])
    influence, bounds = errors / bad, bad / shares * separations
    worst = int(np.argmax(influence / bounds))
    detail = (
        rf"{len(ATTACKS)} attacks, $K = 2$ to 16, $\Delta \delta/\sigma = 24$ to 5000, "
        rf"$\beta \le {largest:.3g} \delta$: $E_2$ up to "
        rf"${influence[worst] / bounds[worst]:.6f} (\beta/\delta) \sigma \Delta$ "
        f"({attacks[worst]})"
    )
    below = never_exceeds(
        name,
        influence,
        bounds,
        rounding=1e-12 * bounds,
        grade=Grade.EXACT,
        coordinates={
            "share": shares,
            "separation": separations,
            "malicious": bad,
            "attack": np.array(attacks),
        },
    )
    most = reached(name, [float(influence[worst] / bounds[worst])], [1.0], room=1e-6)
    return combine(name, [below, most], detail=detail)


def check_influence(_: Preset, name: str, *, sides: float = 2.0) -> Verdict:
    """|v_l - mu| <= beta tau/delta for all attacks; the bad points' part of a round is
    at most beta tau, and a round at most `sides` beta tau; each of them reached."""
    instances, attacks, errors = _battery(np.array([0.02, 0.08, 0.16, 0.32]))
    claimed = np.array([one.bad * one.radius / one.share for one in instances])
    shifts = np.sqrt(errors)
    settled = never_exceeds(
        name,
        shifts,
        claimed,
        rounding=1e-12 * claimed,
        grade=Grade.EXACT,
        coordinates={
            "share": np.array([one.share for one in instances]),
            "separation": np.array([one.separation for one in instances]),
            "malicious": np.array([one.bad for one in instances]),
            "attack": np.array(attacks),
        },
    )
    # One round, a bad point of mass 1/10 at each of many distances, alone.
    distances = np.concatenate([np.linspace(0, 3, 301), [1 - 1e-12, 1 + 1e-12, 1e9]])
    alone = Mixture(distances[:, None], np.full((len(distances), 1), 0.1))
    moved = move(alone, np.zeros(len(distances)), 1.0)
    single = 0.1  # beta tau
    once = never_exceeds(name, moved, single, rounding=1e-15, grade=Grade.EXACT)
    best = distances[int(np.argmax(moved))]
    parts = [changing_sides(*one) for one in ((0.5, 0.05), (0.2, 0.06), (0.9, 0.09))]
    rounds = np.concatenate([one.reshape(3, -1) for one in parts], axis=1)
    most = np.array([[1.0], [sides], [1.0]])
    several = never_exceeds(name, rounds, most, rounding=1e-9, grade=Grade.EXACT)
    tops = [float(top) for top in np.max(rounds, axis=1)]
    shares = [tops[0], tops[1] / sides, tops[2], float(np.max(moved)) / single]
    near = reached(name, shares, [1.0] * 4, room=1e-6)
    detail = (
        rf"{len(attacks)} cases: $|v_l - \mu|$ to {np.max(shifts / claimed):.6f} of "
        rf"the bound; alone a bad point moves a round most from ${best:g} \tau$; "
        f"{rounds.shape[1]} rounds of four bad points: their part up to "
        rf"{tops[0]:.6f}, the round ${tops[1]:.6f} \beta \tau$, $|v_l - \mu| "
        f"{tops[2]:.6f}$ of the bound"
    )
    return combine(name, [settled, once, several, near], detail=detail)


def changing_sides(share: float, bad: float) -> Float[np.ndarray, "3 rounds attacks"]:
    """Bad points' part of a round and the round, both over beta tau, and |v_l - mu|
    over beta tau/delta, in a plane, from v_0 = mu.

    Four bad points are, seen from the centre: on one edge; on one edge till v has
    settled and then on the other; on either in turn; going around; two and two on
    opposite edges; inside, on the edge and just beyond it, going around. The cluster's
    noise is 1 and -1, and the ball no larger than holds it at all times.
    """
    radius = 1 / (1 - bad / share)
    late = math.ceil(20 / share)
    number = np.arange(2 * late)
    turn = np.exp(0.3j * number)
    same_edge = np.ones(4)
    seen = np.stack(
        [
            np.outer(number >= 0, same_edge),
            np.outer(np.where(number < late, 1, -1), same_edge),
            np.outer((-1.0) ** number, same_edge),
            np.outer(turn, same_edge),
            np.outer(turn, [1, 1, -1, -1]),
            np.outer(turn, [0.5, 1, -1.001, 1j]),
        ],
        axis=1,
    )  # rounds, attacks, points
    seen = seen * (radius * (1 - 1e-9))  # on the edge, whatever rounding does
    own = np.broadcast_to([1.0, -1.0], (seen.shape[1], 2))
    own_mass, bad_mass = np.full_like(own, share / 2), np.full(seen.shape[1:], bad / 4)
    good = Mixture(own, own_mass)
    found, centres = [], np.zeros(seen.shape[1], complex)
    for places in seen:
        everybody = Mixture(
            np.concatenate([own, centres[:, None] + places], axis=1),
            np.concatenate([own_mass, bad_mass], axis=1),
        )
        moved = move(everybody, centres, radius)
        part = moved - move(good, centres, radius)
        found.append([part, moved - centres, moved * share])
        centres = moved
    return np.abs(np.array(found)).swapaxes(0, 1) / (bad * radius)


def prove_influence(sent: int = 1) -> list[Step]:
    r"""Let the cluster be in the ball, and nobody else of the good; with infinitely
    many points $v' - v = \delta (\mu - v) + b$, where $b$ is the sum of mass $(z - v)$
    over the bad points in the ball.

    Part of the bad: $|z - v| \le \tau$ for each of them, wherever the others are and
    wherever it was before, and their masses are at most $\beta$: $|b| \le \beta \tau$,
    with equality if and only if all are on the edge, at one place.

    Centre: $v' - \mu = (1 - \delta)(v - \mu) + b$, so $e' \le (1 - \delta) e + \beta
    \tau$, a mean of $e$ and $\beta \tau/\delta$ with the weights $1 - \delta$ and
    $\delta$. From $e_0 = 0$, $e$ never exceeds $\beta \tau/\delta$, and points that
    follow $v$ on one edge bring it there: $e_l = (1 - (1 - \delta)^l) \beta
    \tau/\delta$.

    Round: $|v' - v| \le \delta e + |b| \le \delta (\beta \tau/\delta) + \beta \tau = 2
    \beta \tau$. Where $v - \mu$ has come to $\beta \tau/\delta$ and all bad points
    change to the other edge, both parts have one direction: $v' - v$ tends to $-2 \beta
    \tau$, so that no less than 2 will do."""
    import sympy

    e, delta, beta, tau, left = sympy.symbols(
        "e delta beta tau left", positive=True
    )  # left = (1 - delta)^l
    most = beta * tau / delta
    return [
        same(
            "(1 - delta) e + beta tau is a mean of e and beta tau/delta",
            (1 - delta) * e + sent * beta * tau,
            (1 - delta) * e + delta * most,
        ),
        same(
            r"$e_l = (1 - (1 - \delta)^l) \beta \tau/\delta$ follows the recursion",
            (1 - delta) * (1 - left) * most + beta * tau,
            (1 - (1 - delta) * left) * most,
        ),
        same(
            r"$\delta (\beta \tau/\delta) + \beta \tau = 2 \beta \tau$",
            delta * most + sent * beta * tau,
            2 * beta * tau,
        ),
        same(
            r"all on the other edge: $v' - v = -(2 - (1 - \delta)^l) \beta \tau$",
            -delta * (1 - left) * most - beta * tau,
            -(2 - left) * beta * tau,
        ),
    ]


_ROBUST = (
    row(
        id="werner.def1",
        place="Definition 1",
        text=r"Threshold-Clustering is robust: Err $\le E_1 + \beta E_2$, $E_2 = "
        r"(\beta_i/\delta_i) \sigma \Delta \le \sigma \Delta/12$",
        preconditions=(
            r"$\Delta \ge 24 \sigma/\delta_i$, $\beta_i \le \delta_i/12$, $\tau$ as "
            "stated",
            "infinitely many points: $v$ follows the mean over them",
        ),
        constants=CONSTANTS,
        claimed=r"$E_2$ bounded; no condition on $\beta$ in the definition",
        check=check_robust,
        control={"largest": 0.98},
        margins=lambda: margins(
            Instance(0.5, 48.0, 0.5 / 12), Instance(1 / 16, 384.0, 1 / 192), start=0.0
        ),
        note=r"The error of the bad points is $(\beta/\delta)^2 \tau^2$, quadratic in "
        r"$\beta$, and just that is reached. For $\beta/\delta$ beyond $1 - "
        r"\sigma/\tau$ points that follow the centre drag it out of its cluster, and "
        "$E_2$ is unbounded: the control goes to 0.98.",
    ),
    row(
        id="werner.threat",
        place="Section 3.1.1, Threat model",
        text="a bad point has most influence on the edge of the ball: the bad "
        r"points' part of a round is at most $\beta \tau$, $|v_l - E z_i| \le \beta "
        r"\tau/\delta$, and a round moves $v$ by at most $2 \beta \tau$",
        preconditions=(
            "$v_0 = E z_i$, the cluster stays in the ball, no other good point is in "
            "it",
            "infinitely many points: $v$ follows the mean over them",
        ),
        check=check_influence,
        control={"sides": 1.0},
        proof=prove_influence,
        proof_control={"sent": 2},
        note="None of the three can be smaller: points that follow the centre on one "
        "edge attain the first two, and the third in the round in which they change "
        "to the other, as the cluster pulls there too. Points sent once, as in the "
        r"protocol, give $\beta \tau/(\beta + \delta)$. What the paper calls an error "
        r"of order $\sigma \Delta$ is the squared radius; it is $(\beta/\delta)^2$ of "
        r"it. The control claims $\beta \tau$ for a round.",
    ),
)

STATEMENTS = (*_RULE, *_ROBUST)
