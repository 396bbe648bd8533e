"""Assumptions 4 to 6 for all x on the paper's regression, where Figure 2 has a path.

All of a cluster share the minimiser, so Assumption 4 holds with A_i = |(H_i - Hbar)
Hbar^-1|; but A^2 is some hundreds, often several times what a path shows. Assumption 5
with D = 0 holds for no Delta > 0: two gradients that are affine in x agree somewhere.
With D > 0 there is a Delta for every D. The noise of a minibatch grows as |x - x*|^2.
"""

import functools

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.synthetic_regression import (
    Regression,
    certificate,
    descent,
    draw_regression,
    gradients,
    intra_ratio,
    least_apart,
    noise_forms,
    worst_ratio,
)

__all__ = [
    "STATEMENTS",
    "check_noise_everywhere",
    "check_noise_form",
    "check_ratio",
    "check_separation",
    "check_unconditional",
]

RATIO, SEPARATION, NOISE = "werner.asm4", "werner.asm5", "werner.asm6"

# Relative error of a few products of 10 x 10 matrices of condition up to 1000.
_ROUNDING = 1e-9
_SLACKS = (0.1, 0.3, 1.0, 3.0, 10.0)  # D


@functools.lru_cache(maxsize=8)
def _task(preset: Preset, name: str) -> Regression:
    clients = preset.choose(quick=6, full=20)
    return draw_regression(preset.generator(name, 0), num_clients=clients)


def _around(
    preset: Preset, task: Regression, cluster: int
) -> Float[np.ndarray, "places features"]:
    """Places around the minimiser of a cluster, at distances from 0.1 to 100."""
    generator = preset.generator(RATIO, 1, cluster)
    number = preset.choose(quick=200, full=5000)
    away = generator.standard_normal((number, task.optima.shape[1]))
    scale = 10 ** generator.uniform(-1, 2, (number, 1))
    return task.optima[cluster] + scale * away


def check_ratio(preset: Preset, *, on_path: bool = False) -> Verdict:
    """(7) <= A_i^2 for all x; or with A^2 its largest value on the path."""
    task = _task(preset, RATIO)
    path = descent(task, 300)
    values, bounds, seen = [], [], []
    for cluster in range(len(task.optima)):
        exact, places = worst_ratio(task, cluster)
        path_ratio = intra_ratio(task, cluster, path[:, cluster])
        seen.append(np.max(path_ratio))
        found = intra_ratio(task, cluster, _around(preset, task, cluster))
        attained = np.diagonal(intra_ratio(task, cluster, places))
        limit = np.broadcast_to(seen[-1], exact.shape) if on_path else exact
        parts = (np.max(found, axis=0), np.max(path_ratio, axis=0), attained)
        values += parts
        bounds += [limit] * len(parts)
    largest = np.array([np.max(worst_ratio(task, k)[0]) for k in range(4)])
    bounds = np.concatenate(bounds)
    return never_exceeds(
        RATIO,
        np.concatenate(values),
        bounds,
        rounding=_ROUNDING * bounds,
        detail=f"A^2 = {', '.join(f'{a:.0f}' for a in largest)} in the clusters, on "
        f"the path at most {', '.join(f'{a:.0f}' for a in seen)}",
    )


def check_unconditional(preset: Preset, *, slack: float = 0.0) -> Verdict:
    """|grad f_i - grad f_j|^2 + D^2 |grad f_i|^2 >= the path's minimum, for all x."""
    task = _task(preset, SEPARATION)
    claimed = min(least_apart(task, models) for models in descent(task, 300)[::10])
    found, places = certificate(task, slack)
    return never_exceeds(
        SEPARATION,
        -found,
        np.full(len(found), -claimed),
        rounding=_ROUNDING * claimed,
        detail=f"{len(found)} pairs: {claimed:.2g} on the path, over all x at least "
        f"{np.min(found):.1g}, at |x| up to {np.max(np.abs(places)):.0f}",
    )


def check_separation(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """... >= `factor` Delta(D)^2 with Delta(D) from least squares, D > 0."""
    task = _task(preset, SEPARATION)
    values, bounds, sizes = [], [], []
    for slack in _SLACKS:
        found, minimisers = certificate(task, slack)
        least = int(np.argmin(found))
        sizes.append(float(found[least]))
        free = preset.generator(SEPARATION, 1).standard_normal((50, len(minimisers[0])))
        for place in np.concatenate([minimisers[least][None], task.optima, 10 * free]):
            own = gradients(task, place).reshape(-1, len(place))
            size = len(own) // len(task.optima)
            cluster = np.arange(len(own)) // size
            apart = np.sum((own[:, None] - own[None]) ** 2, axis=-1)
            total = apart + slack**2 * np.sum(own**2, axis=-1)[:, None]
            values.append(-np.min(total[cluster[:, None] != cluster[None]]))
            bounds.append(-factor * sizes[-1])
    shown = ", ".join(
        f"{size:.2g} (D = {slack:g})"
        for size, slack in zip(sizes, _SLACKS, strict=True)
    )
    return never_exceeds(
        f"{SEPARATION}.corrected",
        np.array(values),
        np.array(bounds),
        rounding=_ROUNDING * max(sizes),
        detail=f"Delta^2 = {shown}",
    )


def _noise(task: Regression, cluster: int, place: np.ndarray) -> np.ndarray:
    """E |g_i(x) - grad f_i(x)|^2 of batches of one sample, over all of them."""
    inputs, error = task.inputs[cluster], place - task.optima[cluster]
    single = inputs * np.einsum("nib,i->nb", inputs, error)[:, None]
    apart = single - np.mean(single, axis=-1, keepdims=True)
    return np.mean(np.sum(apart**2, axis=1), axis=-1)


def check_noise_everywhere(preset: Preset, *, reach: float = 100.0) -> Verdict:
    """The largest variance of a batch on the path bounds it `reach` as far away."""
    task = _task(preset, NOISE)
    path = descent(task, 300)[::10]
    values, bounds = [], []
    for cluster in range(len(task.optima)):
        optimum = task.optima[cluster]
        seen = np.array([_noise(task, cluster, x) for x in path[:, cluster]])
        far = _noise(task, cluster, optimum + reach * (path[0, cluster] - optimum))
        values.append(far)
        bounds.append(np.max(seen, axis=0))
    values, bounds = np.concatenate(values), np.concatenate(bounds)
    return never_exceeds(
        NOISE,
        values,
        bounds,
        rounding=_ROUNDING * values,
        detail=f"sigma^2 = {np.max(bounds):.3g} on the path, {np.max(values):.3g} at "
        f"{reach:g} times the distance of the start",
    )


def check_noise_form(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """The variance is at most `factor` S_i |x - x*|^2, S_i of Q_i, and attains it."""
    task = _task(preset, NOISE)
    values, bounds = [], []
    for cluster in range(len(task.optima)):
        sizes, vectors = np.linalg.eigh(noise_forms(task)[cluster])
        extreme = vectors[0, :, -1] + task.optima[cluster]
        places = [extreme, task.optima[cluster], *_around(preset, task, cluster)[:50]]
        for place in places:
            distance = np.sum((place - task.optima[cluster]) ** 2)
            values.append(_noise(task, cluster, place))
            bounds.append(factor * sizes[:, -1] * distance)
    values, bounds = np.concatenate(values), np.concatenate(bounds)
    return never_exceeds(
        f"{NOISE}.corrected",
        values,
        bounds,
        rounding=_ROUNDING * (values + 1),
        detail="at the worst direction, at the optimum and around it: at most "
        f"{np.nanmax(values[bounds > 0] / bounds[bounds > 0]):.3f} of the bound",
    )


_DATA = "data of section 4.1: K = 4, d = 10, 9 samples each, x*_k ~ N(0, I)"
_row = functools.partial(Statement, paper="werner", preconditions=(_DATA,))

STATEMENTS = (
    _row(
        id=RATIO,
        place="Assumption 4",
        text="|grad f_i(x) - grad fbar_i(x)|^2 <= A^2 |grad fbar_i(x)|^2 for all x and "
        "i ~ j, with A = max_i |(H_i - Hbar) Hbar^-1| on the regression of section 4.1",
        claimed="some constant A >= 0",
        check=check_ratio,
        control=functools.partial(check_ratio, on_path=True),
        note="Holds, with A^2 of some hundreds: max(1, A^4), which Theorem 3 asks of "
        "Delta/sigma, is then 10^4 to 10^5. The control takes the A^2 that is seen on "
        "the path of Figure 2.",
    ),
    _row(
        id=SEPARATION,
        place="Assumption 5 with D = 0, section 4.1 and Figure 2, right",
        text="|grad f_i(x) - grad f_j(x)|^2 >= Delta^2 for all x and i !~ j, with "
        "Delta^2 the lower bound of (8) on the path",
        claimed="D = 0 in section 4.1",
        expected=Status.VIOLATED,
        check=check_unconditional,
        control=functools.partial(check_unconditional, slack=0.01),
        note="The minimum over all x is 0: (H_i - H_j) x = H_i x_i* - H_j x_j* has a "
        "solution. The control has D = 0.01.",
    ),
    _row(
        id=f"{SEPARATION}.corrected",
        place="Assumption 5",
        text="|grad f_i(x) - grad f_j(x)|^2 >= Delta(D)^2 - D^2 |grad f_i(x)|^2 for "
        "all x and i !~ j, with Delta(D)^2 > 0 from one least-squares problem for each "
        "pair",
        constants={"D from": 0.1, "D to": 10.0},
        claimed="some constant D >= 0",
        check=check_separation,
        control=functools.partial(check_separation, factor=1.1),
        note="Exact at the minimisers. It says nothing where |grad f_i| >= Delta/D. "
        "The control has 1.1 Delta^2.",
    ),
    _row(
        id=NOISE,
        place="Assumption 6",
        text="E|g_i(x) - grad f_i(x)|^2 <= sigma^2 for all x, for batches of one "
        "sample, with sigma^2 the largest on the path",
        claimed="for all x",
        expected=Status.VIOLATED,
        check=check_noise_everywhere,
        control=functools.partial(check_noise_everywhere, reach=2.0),
        note="It grows as the square of the distance, as for all least squares. The "
        "control goes twice as far as the start.",
    ),
    _row(
        id=f"{NOISE}.corrected",
        place="Assumption 6",
        text="E|g_i(x) - grad f_i(x)|^2 <= S_i |x - x*|^2, S_i the largest eigenvalue "
        "of (1/n) sum_b (a_b a_b^T)^2 - H_i^2: bounded on bounded sets, 0 at x*",
        check=check_noise_form,
        control=functools.partial(check_noise_form, factor=0.9),
        note="An equality in the worst direction. The control has 0.9 S_i.",
    ),
)
