"""Theorem 4's conditions on alpha and eta, and Assumption 9 in the first round.

Each family meets everything that the theorem asks for, next to clusters with linear
losses, whose momenta stay Delta apart; each breaks (5) by a factor that grows with T.
With alpha = 1, which alpha >~ L eta allows, momenta are gradients: nothing averages the
bias out that clipping gives to skewed noise. Steps eta <~ ... may be too small to move.
"""

import functools

import numpy as np
from jaxtyping import Float

from cfljax import intervals
from theory.judges import ERROR_RATE, never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict
from theory.werner.hidden_constants import Family, exactly, one_constant
from theory.werner.laws import sample, skew2
from theory.werner.momentum_runs import Run, follow, mean_squares
from theory.werner.one_client import Cluster, margins, mean_square
from theory.werner.population_map import mixture, settle
from theory.werner.theorem4 import pair
from theory.werner.theorem4_one_cluster import runs_for

__all__ = [
    "STATEMENTS",
    "check_first",
    "check_first_corrected",
    "check_momentum",
    "check_momentum_corrected",
    "check_step",
]

FIRST, MOMENTUM, STEP = (
    f"werner.thm4.{name}" for name in ("first", "momentum", "step")
)

_CLUSTER = Cluster()
_LONG = tuple(int(10.0**power) for power in range(2, 9))
_SHORT = (100, 300, 1000, 3000)
_SIZE = 1.5  # s/tau of the skewed noise


def _rounds(runs: tuple[Run, ...]) -> Float[np.ndarray, " levels"]:
    return np.array([run.rounds for run in runs], float)


def check_first(preset: Preset, *, relief: float = 0.0) -> Verdict:
    """Gradients Delta apart at x_0 are momenta C Delta apart in round 1."""
    del preset
    runs = runs_for(_CLUSTER, _LONG)
    alpha = np.array([run.alpha for run in runs])
    apart, _ = pair(alpha / 2, alpha, 1)
    return one_constant(
        FIRST,
        [exactly("T", _rounds(runs), 2 / apart[:, 0])],
        constant=float("inf"),
        relief=relief,
    )


def check_first_corrected(preset: Preset, *, share: float = 0.5) -> Verdict:
    """From round log(2)/alpha on momenta are `share` of their final distance apart."""
    del preset
    alpha = np.array([run.alpha for run in runs_for(_CLUSTER, _LONG[:3])])
    apart, _ = pair(np.zeros(len(alpha)), alpha, 2000, linear=True)
    later = np.ceil(np.log(2) / alpha).astype(int)
    found = np.take_along_axis(apart, later[:, None] - 1, 1)[:, 0]
    return never_exceeds(
        f"{FIRST}.corrected",
        np.full(len(alpha), 2 * share),
        found,
        rounding=1e-12,
        detail=f"alpha = {alpha[0]:.3g} to {alpha[-1]:.3g}: at round {later[0]} to "
        f"{later[-1]} at least {np.min(found) / 2:.3f} of it",
    )


def check_momentum(preset: Preset, *, relief: float = 0.0) -> Verdict:
    """(5) with alpha = 1 and skewed gradients, from the best start v_0 = grad f_i.

    All points in the ball are equal, so that the centre is known for every n.
    """
    del preset
    radius = _CLUSTER.radius(_CLUSTER.sigma)
    law = skew2(_SIZE * radius, _CLUSTER.sigma)
    rest = skew2(2 * _CLUSTER.sigma, _CLUSTER.sigma)
    points = mixture(
        [law, rest],
        np.array([0.0, -_CLUSTER.separation]),
        np.array([_CLUSTER.delta, 1 - _CLUSTER.delta]),
    )
    bias = float(settle(points, np.zeros(1), radius, num_rounds=_CLUSTER.num_rounds)[0])
    runs = runs_for(_CLUSTER, _LONG)
    left = [
        float(mean_square(run.start, run.step, bias, bias**2, run.rounds))
        for run in runs
    ]
    right = np.array([run.printed for run in runs])
    return one_constant(
        MOMENTUM,
        [exactly("T", _rounds(runs), np.array(left) / right)],
        constant=float("inf"),
        relief=relief,
        detail=f"bias^2 = {bias**2:.4f} sigma^2",
    )


@functools.lru_cache(maxsize=2)
def _skewed(preset: Preset) -> Float[np.ndarray, "runs trials"]:
    """Mean square gradients with alpha = 2 L eta and skewed noise."""
    law = skew2(_SIZE * _CLUSTER.radius(_CLUSTER.sigma), _CLUSTER.sigma)
    runs = runs_for(_CLUSTER, _SHORT)
    squares = follow(
        runs,
        preset.generator(f"{MOMENTUM}.corrected"),
        lambda stream, shape: sample(law, stream, shape),
        trials=preset.choose(quick=64, full=1000),
    )
    return mean_squares(runs, squares)


def check_momentum_corrected(preset: Preset, *, factor: float = 1.0) -> Verdict:
    """The corrected bound with alpha = 2 L eta and the same skewed gradients."""
    means, runs = _skewed(preset), runs_for(_CLUSTER, _SHORT)
    low, high = intervals.student(means, error_rate=ERROR_RATE / len(runs))
    bounds = factor * np.array([run.corrected for run in runs])
    return one_constant(
        f"{MOMENTUM}.corrected",
        [Family("T", _rounds(runs), low / bounds, high / bounds)],
        num_trials=means.size,
    )


def check_step(
    preset: Preset, *, name: str, frozen: bool, relief: float = 0.0
) -> Verdict:
    """(5) with eta = 1/(L T), or the corrected bound with the theorem's own eta.

    Without noise or malicious clients, alpha = 1.
    """
    del preset
    runs, corrected = runs_for(_CLUSTER, _LONG), name.endswith(".corrected")
    left = [
        float(
            mean_square(
                run.start, 1 / run.rounds if frozen else run.step, 0, 0, run.rounds
            )
        )
        for run in runs
    ]
    bounds = [run.corrected if corrected else run.printed for run in runs]
    return one_constant(
        name,
        [exactly("T", _rounds(runs), np.array(left) / np.array(bounds))],
        constant=16.0 if corrected else float("inf"),
        relief=relief,
    )


_row = functools.partial(
    Statement, paper="werner", margins=functools.partial(margins, _CLUSTER)
)
_printed = functools.partial(
    _row, expected=Status.VIOLATED, claimed="one unnamed constant"
)
_ASKED = "other clusters' losses are linear, Delta >= 24 sigma/delta, beta = 0, m_0 = 0"
_ETA = "eta = sqrt(F0/(L T (sigma^2/n + sigma^3/(delta Delta))))"
_BOUND = (
    "avg E|grad f_i|^2 <= C (L F0/(eta L T) + rho^2/n + rho^3/(delta Delta)), rho = "
    "sqrt(alpha) sigma, "
)

STATEMENTS = (
    _printed(
        id=FIRST,
        place="Assumption 9, Theorem 4",
        text="where gradients at x_0 are Delta apart, expected momenta are >~ Delta "
        "apart from round 1 on",
        preconditions=("m_0 = 0, alpha = 2 L eta", _ETA),
        check=check_first,
        control=functools.partial(check_first, relief=0.25),
        note="They are alpha Delta apart in round 1, of order Delta/sqrt(T): "
        "Assumption 9 asks for gradients Delta/alpha apart at the common start. The "
        "control allows T^(1/4) less.",
    ),
    _row(
        id=f"{FIRST}.corrected",
        place="Assumption 9, Theorem 4",
        text="where gradients are Delta apart all along, expected momenta are Delta/2 "
        "apart from round log(2)/alpha on",
        preconditions=("m_0 = 0, alpha = 2 L eta", _ETA),
        check=check_first_corrected,
        control=functools.partial(check_first_corrected, share=0.6),
        note="Both losses linear. The control claims 0.6 Delta.",
    ),
    _printed(
        id=MOMENTUM,
        place="Theorem 4, alpha >~ L eta",
        text="with alpha = 1: avg E|grad f_i|^2 <~ sqrt((sigma^2/n + sigma^3/Delta)/T)",
        preconditions=(_ASKED, _ETA, "noise 0 or s = 1.5 tau less its mean"),
        check=check_momentum,
        control=functools.partial(check_momentum, relief=0.25),
        note="The proof puts L eta for alpha: alpha is to be of order L eta, from both "
        "sides. The floor is about sigma^4/s^2. The control allows T^(1/4) more.",
    ),
    _row(
        id=f"{MOMENTUM}.corrected",
        place="Theorem 4, alpha >~ L eta",
        text=_BOUND + "with alpha = 2 L eta",
        preconditions=(_ASKED, _ETA, "noise 0 or s = 1.5 tau less its mean"),
        constants={"C": 16.0},
        check=check_momentum_corrected,
        control=functools.partial(check_momentum_corrected, factor=1 / 64),
        note="The control claims a 64th of the bound.",
    ),
    _printed(
        id=STEP,
        place="Theorem 4, eta <~ min(...)",
        text="for every smaller eta: avg E|grad f_i|^2 <~ sqrt((sigma^2/n + "
        "sigma^3/Delta)/T)",
        preconditions=(_ASKED, "eta = 1/(L T), alpha = 1, no noise"),
        check=functools.partial(check_step, name=STEP, frozen=True),
        control=functools.partial(check_step, name=STEP, frozen=True, relief=0.25),
        note="eta is bounded from above alone. The control allows T^(1/4) more.",
    ),
    _row(
        id=f"{STEP}.corrected",
        place="Theorem 4, eta <~ min(...)",
        text=_BOUND + "with eta equal to what bounds it",
        preconditions=(_ASKED, _ETA, "no noise"),
        constants={"C": 16.0},
        check=functools.partial(check_step, name=f"{STEP}.corrected", frozen=False),
        control=functools.partial(check_step, name=f"{STEP}.corrected", frozen=True),
        note="The control has eta = 1/(L T), and the bound of the larger one.",
    ),
)
