"""Assumptions 4, 5, 7 and 8 on examples whose constants are known exactly.

In example (a) of Figure 1 the gradients of f_1 and f_2 have the same sign everywhere,
so that Assumption 4 holds with A = 1, and not less: at the inflection of f_2 only one
of the two is stationary. f_2 has no L for all x.
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds, same_law
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.population_map import Mixture, settle
from theory.werner.three_clients import curvature_bound, gradients_a

__all__ = [
    "STATEMENTS",
    "check_momenta",
    "check_optima",
    "check_smooth",
    "check_stationary",
]

STATIONARY, OPTIMA = "werner.asm4.stationary", "werner.asm5.optimum"
SMOOTH, MOMENTA = "werner.asm7", "werner.asm8"

_STEP = 0.1  # eta of example (a)
_ROUNDING = 1e-12


def check_stationary(preset: Preset, *, converse: bool = False) -> Verdict:
    """Ratio (7) <= 1 on example (a), and fbar' = 0 => f_i' = 0; or f_i' = 0 => all."""
    cells = preset.choose(quick=4000, full=400_000)
    places = np.concatenate([np.linspace(-3, 4, cells + 1), [0.0, 1.0]])
    own = gradients_a(places, _STEP)[:, :2]
    mean = np.mean(own, axis=1, keepdims=True)
    apart = np.max(np.abs(own - mean), axis=1)
    still = np.any(own == 0, axis=1) if converse else mean[:, 0] == 0
    most = np.max(np.abs(own), axis=1)[still]
    scale = np.abs(mean[:, 0]) + 1
    return never_exceeds(
        STATIONARY,
        np.concatenate([apart / scale, most]),
        np.concatenate([np.abs(mean[:, 0]) / scale, np.zeros(len(most))]),
        rounding=_ROUNDING,
        detail=f"{len(places)} places: |f_i' - fbar'| over |fbar'| at most "
        f"{np.max(apart[mean[:, 0] != 0] / np.abs(mean[mean != 0])):.3f}; other "
        f"gradients at most {np.max(most):.3g} where "
        f"{'one of the two' if converse else 'the mean'} is 0, x = "
        f"{', '.join(f'{x:g}' for x in np.unique(places[still]))}",
    )


def check_optima(preset: Preset, *, name: str, power: int, factor: float) -> Verdict:
    """|grad f_i(x_j*)|^2 >= `factor` Delta^`power` for f_i = |x - a_i|^2/2."""
    features = preset.choose(quick=3, full=30)
    separations = np.array([1e-3, 0.1, 0.5, 1.0, 2.0, 100.0])
    far = np.zeros((len(separations), features))
    far[:, -1] = separations
    found = np.sum(far**2, axis=-1)  # grad f_i(a_j) = a_j - a_i, at Delta from 0.
    return never_exceeds(
        name,
        -found,
        -factor * separations**power,
        rounding=_ROUNDING * separations**2,
        detail=f"Delta = {', '.join(f'{s:g}' for s in separations)}: squares over "
        f"Delta^{power} = {', '.join(f'{r:g}' for r in found / separations**power)}",
    )


def check_smooth(
    preset: Preset, *, name: str, low: float, high: float, factor: float = 1.0
) -> Verdict:
    """|f_2'(x) - f_2'(y)| <= `factor` max(12, 1/eta) |x - y| in an interval."""
    cells = preset.choose(quick=2000, full=100_000)
    values, bounds = [], []
    for step_size in (0.01, 0.1, 1.0):
        places = np.linspace(low, high, cells + 1)
        slopes = gradients_a(places, step_size)[:, 1]
        limit = factor * max(12.0, 1 / step_size)
        width = (high - low) / cells
        values += [np.abs(np.diff(slopes)) / width, [slopes[-1] - slopes[0]]]
        bounds += [np.full(cells, limit), [limit * (high - low)]]
        exact = curvature_bound(low, high, step_size)
        values.append([exact])
        bounds.append([limit])
    values, bounds = np.concatenate(values), np.concatenate(bounds)
    return never_exceeds(
        name,
        values,
        bounds,
        rounding=1e-8 * (bounds + values),  # Differences of neighbours, over 1/cells.
        detail=f"eta = 0.01, 0.1 and 1, {cells} neighbours in [{low:g}, {high:g}]: "
        f"slopes up to {np.max(values / bounds):.3g} of max(12, 1/eta)",
    )


def _momenta(
    preset: Preset, times: tuple[int, ...], split: int | None
) -> Float[np.ndarray, "times clients trials"]:
    """Momenta of two clients of one cluster in Momentum-Clustering.

    Three clients have f = x^2/2, three others a constant gradient of 20, so that the
    clusters never meet. From round `split` on the second client is given the centre of
    the others' cluster.
    """
    trials = preset.choose(quick=8000, full=100_000)
    alpha, step_size, clients = 0.2, 0.1, 6
    generator = preset.generator(MOMENTA, 0)
    models = np.ones((trials, clients))
    momenta = np.zeros((trials, clients))
    kept = []
    for time in range(1, max(times) + 1):
        exact = np.where(np.arange(clients) < 3, models, 20.0)
        noisy = exact + generator.standard_normal((trials, clients))
        momenta = alpha * noisy + (1 - alpha) * momenta
        points = Mixture(momenta, np.full(momenta.shape, 1 / clients))
        radius = 4.0 * (1 - (1 - alpha) ** time)  # The clusters are 20 of it apart.
        centres = [
            settle(points, momenta[:, first], radius, num_rounds=10) for first in (0, 3)
        ]
        chosen = np.repeat(centres, 3, axis=0).T
        if split is not None and time >= split:
            chosen[:, 1] = centres[1]
        models = models - step_size * chosen
        if time in times:
            kept.append(momenta[:, :2].T)
    return np.array(kept)


def check_momenta(preset: Preset, *, split: int | None = None) -> Verdict:
    """m_i and m_j have one law at each time, in independent halves of the trials."""
    times = (1, 5, 40)
    found = _momenta(preset, times, split)
    half = found.shape[-1] // 2
    means = np.mean(found, axis=-1)
    return same_law(
        MOMENTA,
        [one[0, :half] for one in found],
        [one[1, half:] for one in found],
        resolution=0.2,
        detail=f"rounds {', '.join(map(str, times))}: means of the two "
        + ", ".join(f"({one:.3f}, {two:.3f})" for one, two in means),
    )


_row = functools.partial(Statement, paper="werner")
_printed = functools.partial(check_optima, name=OPTIMA)
_corrected = functools.partial(check_optima, name=f"{OPTIMA}.corrected")

STATEMENTS = (
    _row(
        id=STATIONARY,
        place="Assumption 4 and the paragraph after Assumption 5",
        text="where Assumption 4 holds, grad fbar(x) = 0 implies grad f_i(x) = 0 for "
        "all i of the cluster",
        preconditions=("example (a), clients 1 and 2: A = 1 for all x, and not less",),
        check=check_stationary,
        control=functools.partial(check_stationary, converse=True),
        note="So minima are shared. For A >= 1 a client may be stationary where the "
        "others are not, as client 2 at x = 1; for A < 1 it may not. The control "
        "claims the converse.",
    ),
    _row(
        id=OPTIMA,
        place="Section 3.2, after Assumption 5",
        text="Assumption 5 implies |grad f_i(x_j*)|^2 >= Delta for i !~ j",
        preconditions=("f_i = |x - a_i|^2/2, |a_i - a_j| = Delta, any D",),
        expected=Status.VIOLATED,
        check=functools.partial(_printed, power=1, factor=1.0),
        control=functools.partial(_printed, power=1, factor=0.5),
        note="The units do not fit: it fails for every Delta < 1. The control "
        "has Delta/2.",
    ),
    _row(
        id=f"{OPTIMA}.corrected",
        place="Section 3.2, after Assumption 5",
        text="Assumption 5 implies |grad f_i(x_j*)|^2 >= Delta^2 for i !~ j",
        preconditions=("f_i = |x - a_i|^2/2, |a_i - a_j| = Delta, any D",),
        check=functools.partial(_corrected, power=2, factor=1.0),
        control=functools.partial(_corrected, power=2, factor=1.01),
        note="By the assumption for (j, i), where grad f_j = 0; for (i, j) it gives "
        "Delta^2/(1 + D^2) only. The control has 1.01 Delta^2.",
    ),
    _row(
        id=SMOOTH,
        place="Assumption 7, on example (a) of Figure 1",
        text="f_2 is L-smooth on the whole line with L = max(12, 1/eta)",
        preconditions=("eta = 0.01, 0.1 and 1", "[-20, 20] for the line"),
        claimed="some L, for all x and y",
        expected=Status.VIOLATED,
        check=functools.partial(check_smooth, name=SMOOTH, low=-20.0, high=20.0),
        control=functools.partial(check_smooth, name=SMOOTH, low=-2.0, high=1.5),
        note="f_2'' = 24 u + 36 u^2 with u = x - 1 below 1: no L at all. Theorem 3 "
        "does not apply to the example. The control goes to -2.",
    ),
    _row(
        id=f"{SMOOTH}.corrected",
        place="Assumption 7, on example (a) of Figure 1",
        text="f_2 is L-smooth on [0, 1.5] with L = max(12, 1/eta)",
        preconditions=("eta = 0.01, 0.1 and 1",),
        check=functools.partial(
            check_smooth, name=f"{SMOOTH}.corrected", low=0.0, high=1.5
        ),
        control=functools.partial(
            check_smooth, name=f"{SMOOTH}.corrected", low=0.0, high=1.5, factor=0.95
        ),
        note="The control has 0.95 L.",
    ),
    _row(
        id=MOMENTA,
        place="Assumption 8",
        text="m_{i,t} and m_{j,t} have the same law for i ~ j and all t, as long as "
        "no assignment splits the cluster",
        preconditions=(
            "equal losses, starts and noise within the cluster",
            "Algorithm 4 with centres started at a member, alpha = 0.2, eta = 0.1",
        ),
        check=check_momenta,
        control=functools.partial(check_momenta, split=20),
        note="Identically distributed; independent only given the common model, which "
        "depends on both of their pasts. The control gives one client the other "
        "centre from round 20 on.",
    ),
)
