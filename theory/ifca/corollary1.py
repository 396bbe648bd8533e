"""Corollary 1: T = 2 + log(Delta/(4 eps)) rounds reach the accuracy eps.

Rounds that multiply the error by f leave f^T of it, T = 2 + log_b(Delta/(4 eps)) asks
for f <= 1/b. The largest of the factors |1 - 2 c1 p_j/p| is at best
(p_max - p)/(p_max + p): clusters of very different sizes never meet that, and the 1/2
of (1) meets it for b = 2 only, not for the natural logarithm.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from cfljax.statements import (
    ERROR_RATE,
    Constant,
    Evaluation,
    Grade,
    Margin,
    Preset,
    Simulation,
    Statement,
    Status,
    Step,
    Verdict,
    at_most,
    combine,
    exactly,
    identity,
    never_exceeds,
    nonnegative,
    tally,
)
from theory.ifca import theorem1_corrected as theorem
from theory.ifca.common import rounds
from theory.ifca.common.checks import PerPoint, row
from theory.ifca.common.linear import (
    Setting,
    as_printed,
    follow_all,
    start_margins,
)
from theory.ifca.theorem1 import least_factor

PRINTED, LOGARITHM = "ifca.cor1", "ifca.cor1.log"
CORRECTED, NATURAL = "ifca.cor1.corrected", "ifca.cor1.log.corrected"

C6 = 8.4853  # 4 c2 = 6 sqrt 2, rounded up
_PRINTED_FAILURE = 0.25  # above T/poly(m) for every polynomial and the m and T here
_STEPS = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.5, 0.75)  # c1


class Goal(NamedTuple):
    """An accuracy to be reached."""

    power: int  # log_b(Delta/(4 eps)), so that T = 2 + power
    step: float  # c1 = gamma p
    small_share: float = 0.5  # p; the other cluster has the rest
    base: float = 2.0  # b of the logarithm

    @property
    def accuracy(self) -> float:
        """eps, Delta = 1."""
        return self.base**-self.power / 4

    @property
    def features(self) -> float:
        """d, so large that 2 T exp(-0.3068 d) is about 0.05."""
        return float(math.ceil(math.log(40 * (2 + self.power)) / theorem.NOISE_RATE))


def goal_setting(goal: Goal) -> Setting:
    """The setting of which eps is c6 (sigma/p) sqrt(d/(m n')): sigma follows."""
    shares = (goal.small_share, 1 - goal.small_share)
    one = Setting(1e4, 1e4, goal.features, shares=shares, step=goal.step)
    unit = np.sqrt(one.num_features / (one.num_clients * one.num_samples))
    return one._replace(noise=float(goal.accuracy * goal.small_share / (C6 * unit)))


def _rounds(logarithm: Any) -> Any:
    """T for the logarithm of Delta/(4 eps), in numbers or symbols."""
    return 2 + logarithm


def _any_round(rounds: Any, failure: Any) -> Any:
    """T delta, in numbers or symbols."""
    return rounds * failure


def _missed(
    preset: Preset, name: str, goals: tuple[Goal, ...], batches: int
) -> Bool[np.ndarray, "goals trials"]:
    """Whether an error is above eps, or not a number, after T rounds."""
    settings = tuple(goal_setting(goal) for goal in goals)
    runs = zip(follow_all(preset, name, settings, batches=batches), goals, strict=True)
    last = [run.errors[:, _rounds(goal.power)] <= goal.accuracy for run, goal in runs]
    return ~np.all(last, axis=2)


def check_printed(preset: Preset, *, small_share: float = 0.2) -> Verdict:
    """The corollary at the best of many c1, even with T by the binary logarithm. T by
    the natural one is smaller, and the errors larger, wherever some factor is above
    1/e."""
    goals = tuple(Goal(38, step, small_share) for step in _STEPS)
    batches = preset.choose(quick=1, full=10)
    missed = _missed(preset, f"{PRINTED}.{small_share}", goals, batches)
    best = int(np.argmin(np.sum(missed, axis=1)))
    factor = least_factor(small_share)
    least = 0.25 * factor**40 / goals[best].accuracy
    return at_most(
        PRINTED,
        tally(missed[best]),
        _PRINTED_FAILURE,
        error_rate=ERROR_RATE / len(_STEPS),
        detail=f"$p = ({small_share:g}, {1 - small_share:g})$: at the best of "
        f"{len(_STEPS)} $c_1$ {np.mean(missed[best]):.1%} of the runs miss "
        rf"$\varepsilon$ after 40 rounds; with factors of {factor:.2f} at least one "
        rf"error is ${least:.3g} \varepsilon$",
    )


def check_goals(
    preset: Preset,
    *,
    name: str,
    goals: tuple[Goal, ...],
    middle: Goal | None = None,
) -> Verdict:
    """P(some error above eps after T rounds) against T delta, that of Theorem 1'. At
    the goal `middle`, gamma p = 1/2, errors are the floor's: more often than not
    between 0.07 and 0.1 eps, where sigma sqrt(d/(p m n')) over eps is sqrt(p)/c6."""
    missed = _missed(preset, name, goals, preset.choose(quick=3, full=30))
    delta = [_delta(goal_setting(goal)) for goal in goals]
    rates = ", ".join(
        f"{np.mean(one):.1%} $(T = {2 + goal.power}, c_1 = {goal.step:g}, p = "
        f"{goal.small_share:g})$"
        for goal, one in zip(goals, missed, strict=True)
    )
    found = at_most(
        name,
        tally(missed),
        _any_round(np.array([_rounds(goal.power) for goal in goals]), np.array(delta)),
        error_rate=ERROR_RATE / (1 if middle is None else 2),
        coordinates=_places(*goals),
        detail=rf"runs that miss $\varepsilon$, logarithm of base {goals[0].base:.3g}: "
        f"{rates}",
    )
    if middle is None:
        return found
    (run,) = follow_all(preset, f"{name}.middle", (goal_setting(middle),))
    size = np.mean(run.errors[:, 2 + middle.power], axis=1) / middle.accuracy
    outside = (size < 0.07) | (size > 0.1)
    apart = at_most(
        name,
        tally(outside),
        0.5,
        error_rate=ERROR_RATE / 2,
        coordinates=_places(middle),
    )
    detail = (
        rf"{found.detail}; errors of ${np.mean(size):.3f} \varepsilon$ at $\gamma "
        "p = 1/2$"
    )
    return combine(name, [found, apart], parts=["goals", "middle"], detail=detail)


def _places(*goals: Goal) -> dict[str, PerPoint]:
    rounds, step, share = np.array(
        [(2.0 + one.power, one.step, one.small_share) for one in goals]
    ).T
    return {"rounds": rounds, "step_size": step / share, "p": share}


def _delta(setting: Setting) -> float:
    """Of ifca.thm1.corrected, at the smallest margin of the run."""
    return theorem.round_failure(
        clients=setting.num_clients,
        clusters=2.0,
        samples=setting.num_samples,
        features=setting.num_features,
        alpha=min(setting.alpha, 0.25),
        rho=setting.noise**-2,
    )


def _goal_margins(goals: tuple[Goal, ...]) -> tuple[Margin, ...]:
    return start_margins(*(goal_setting(goal) for goal in goals), failure=0.01)


def prove_goal(*, c6: str = "8.4853") -> list[Step]:
    r"""Corollary 1 with $T = 2 + \log_2(\Delta/(4 \varepsilon))$ rounds and
    $\varepsilon = c_6 (\sigma/p) \sqrt{d/(m n')}$, but with probability $T \delta$;
    $\varepsilon \le \Delta/4$, so that $T \ge 2$.

    1. By ifca.thm1.corrected a round has $|e^+| \le |e|/2 + s$, $s = c_2 (\sigma/p)
       \sqrt{d/(m n')}$ and $c_2 = 3/\sqrt{2}$, but with probability $\delta$; $\delta$
       grows as $\alpha$ falls. With $c_6 \ge 4 c_2 s \le \varepsilon/4 \le \Delta/16$.
    2. Hence $|e_j| \le \Delta/4$ stays so, as $\Delta/8 + \Delta/16 \le \Delta/4$, and
       a longer one does not grow, as $e/2 + \Delta/16 \le e$ for $e \ge \Delta/8$:
       $\alpha_t \ge \min(\alpha_0, 1/4)$ in every round
       (ifca.claim.monotone.corrected), at which $\delta$ is taken. $T$ rounds fail with
       probability $T \delta$ at most.
    3. $|e_T| \le 2^{-T} |e_0| + 2 s \le (\varepsilon/\Delta) \Delta/2 + \varepsilon/2 =
       \varepsilon$, as $2^{-T} = \varepsilon/\Delta$.
    """
    import sympy

    eps, delta = sympy.symbols("eps Delta", positive=True)
    number = _rounds(sympy.log(delta / (4 * eps), 2))
    rounds_, failure, t = sympy.symbols("T failure t", positive=True)
    eighth, sixteenth = sympy.Rational(1, 8), sympy.Rational(1, 16)
    return [
        *theorem.prove_corrected(),
        exactly(
            r"$c_6 \ge 4 c_2$, $c_2^2 = 9/2$",
            bool(sympy.Rational(c6) ** 2 >= 16 * sympy.Rational(9, 2)),
        ),
        exactly("1/8 + 1/16 <= 1/4", bool(eighth + sixteenth <= 2 * eighth)),
        identity(
            r"$T$ rounds fail with $T \delta$",
            sympy.summation(failure, (t, 1, rounds_)) - _any_round(rounds_, failure),
        ),
        exactly(
            r"$e/2 + 1/16 \le e$ from $e = 1/8$ on",
            bool(eighth / 2 + sixteenth <= eighth),
        ),
        identity(
            r"$\log(2^{-T}) = \log(\varepsilon/\Delta)$",
            sympy.expand_log(
                -number * sympy.log(2) - sympy.log(eps / delta), force=True
            ),
        ),
    ]


def prove_log(*, base: str = "2.7182818") -> list[Step]:
    r"""Two equal clusters, $\gamma p = 1/4$, $T = 2 + \log_b(\Delta/(4 \varepsilon))$,
    $b = \mathtt{base}$: no $c_6$ to $c_8$ will do.

    1. $x_j = 1/2$, so that a round multiplies both errors by $1/2$ up to misassignments
       and noise. Let $n'$ grow and all else stay: $\varepsilon$ is of order
       $n'^{-1/2}$, $T$ of order $\log n'$. Fix $f' < 1/2 < f''$ with $\log_b(1/f') < 1$
       and $f'' < 1$, and $|e_0| = \Delta/4$. As long as $f'^t |e_0| \le |e_t| \le
       |e_0|$ in both clusters, a round leaves $|e_{t+1}|$ between $f' |e_t|$ and $f''
       |e_t|$ unless somebody is misassigned, with probability $m \exp(-c n')$ at most
       (Lemma 1, $\alpha = 1/4$), or the rest of the step, of mean square $x^2 ((d + 1)
       |e_t|^2 + d \sigma^2)/N$, exceeds a fixed part of $|e_t|$, with probability $C (1
       + 1/|e_t|^2)/n'$ at most by Chebyshev's inequality. $|e_t|^2$ is at least of
       order $n'^{-\log_b(1/f')}$, so that the $T$ probabilities sum to something that
       vanishes.
    2. Then $|e_T|/\varepsilon \ge f'^T |e_0|/\varepsilon$, of order $n'^{((1 -
       \log_b(1/f'))/2)}$, which has no limit. $f'$ exists iff $\log_b 2 < 1$.
    """
    import flint

    return [
        nonnegative(
            r"$\log_b 2 < 1$",
            lambda: 1 - flint.arb(2).log() / flint.arb(base).log(),
            {},
            strict=True,
        )
    ]


def prove_natural(*, least_step: str = "0.3161") -> list[Step]:
    r"""Two equal clusters, $c_1 \in [\mathtt{least\_step}, 1 - \mathtt{least\_step}]$:
    $T = 2 + \ln(\Delta/(4 \varepsilon))$ rounds serve, $\varepsilon = c_6 (\sigma/p)
    \sqrt{d/(m n')} \le \Delta/4$.

    1. $|1 - 2 c_1| \le 1 - 2 \mathtt{least\_step} \le 1/e$, and $|1 - x| + 4 x
       \sqrt{d/N} \le 1/e$ is assumed. So a round has $|e^+| \le |e|/e + s$ but with
       probability $\delta$, $s = c_2 (\sigma/p) \sqrt{d/(m n')} \le \varepsilon/4$
       (ifca.thm1.corrected). As $1/e \le 1/2$ margins stay as in the proof of
       ifca.cor1.corrected.
    2. $|e_T| \le e^{-T} \Delta/2 + s/(1 - 1/e) \le (2 e^{-2} + 1/(4 (1 - 1/e)))
       \varepsilon \le \varepsilon$.
    """
    import flint

    inverse = lambda: flint.arb(-1).exp()
    return [
        *theorem.prove_corrected(),
        nonnegative(
            r"$1 - 2 c_1 \le 1/e$",
            lambda: inverse() - 1 + 2 * flint.arb(least_step),
            {},
        ),
        nonnegative(r"$1/e \le 1/2$", lambda: flint.arb("0.5") - inverse(), {}),
        nonnegative(
            r"$2 e^{-2} + 1/(4 (1 - 1/e)) \le 1$",
            lambda: 1 - 2 * inverse() ** 2 - 1 / (4 * (1 - inverse())),
            {},
        ),
    ]


MONOTONE = "ifca.claim.monotone"
MONOTONE_CORRECTED = f"{MONOTONE}.corrected"

_FAILURE = 0.1

# From alpha0 = 1/4 and from (almost) the truth, gamma p = 1/2.
_FLOORS = (
    Setting(1e4, 3000.0, 100.0, 0.2, step=0.5),
    Setting(1e4, 3000.0, 100.0, 0.2, step=0.5, alpha=0.5 - 1e-9),
)
# d/N close to 1/144 and a loud noise: the floor is not far below Delta/4.
_LOUD = (
    Setting(60.0, 4500.0, 900.0, 0.75, step=0.5, alpha=0.1),
    Setting(60.0, 700.0, 140.0, 0.75, step=0.5, alpha=0.25),
    Setting(60.0, 300.0, 60.0, 0.6, step=0.5, alpha=0.4),
)


def _errors(
    preset: Preset, settings: tuple[Setting, ...]
) -> Float[np.ndarray, "settings trials steps clusters"]:
    batches = preset.choose(quick=2, full=20)
    runs = follow_all(preset, MONOTONE, settings, batches=batches)
    return np.array([run.errors for run in runs])


def check_monotone(preset: Preset, *, above: float = 0.0) -> Verdict:
    """That no error ever increases, except with probability 0.1. With `above` only of
    steps from errors above that many times the median error after the last round."""
    errors = _errors(preset, _FLOORS)
    grown = errors[:, :, 1:] > errors[:, :, :-1]
    settled = np.mean(grown[:, :, 20:])
    grown &= errors[:, :, :-1] >= above * np.median(errors[:, :, -1])
    detail = (
        rf"{errors.shape[1]} runs each from $\alpha_0 = 1/4$ and from the truth; "
        f"{settled:.1%} of the steps after round 20 increase an error"
    )
    return at_most(
        MONOTONE,
        tally(np.any(grown, axis=(2, 3))),
        _FAILURE,
        coordinates={"alpha": np.array([one.alpha for one in _FLOORS])},
        detail=detail,
    )


def prove_monotone(*, noise: int = 1) -> list[Step]:
    r"""From the truth the next error is positive: with $N = d = 1$, $x = 1$, $X = 1$
    and $\varepsilon = \mathtt{noise}$, $e^+ = e - (x/N) X'(X e - \varepsilon)$ is 1,
    and $e = 0$. As $X' \varepsilon$ has a density, $|e^+| > 0$ with probability 1
    whatever the sizes, if $\sigma > 0$."""
    error, step, row = 0, 1, 1
    after = error - step * row * (row * error - noise)
    return [exactly("$|e^+| > |e|$", abs(after) > abs(error))]


def worst_excess(alpha: PerPoint, *, excess: float) -> PerPoint:
    """How far e+ = e/2 + `excess` Delta/8 climbs from 1/2 - alpha, Delta = 1. Relative
    to 1/2 - min(alpha, 1/4)."""
    error, largest = 0.5 - alpha, 0.5 - alpha
    for _ in range(200):
        error = error / 2 + excess / 8
        largest = np.maximum(largest, error)
    return largest - (0.5 - np.minimum(alpha, 0.25))


def check_closeness(preset: Preset, *, excess: float = 1.0) -> Verdict:
    """alpha_t >= min(alpha0, 1/4): in the worst recursion, and in runs."""
    alpha = np.array([0.01, 0.1, 0.24, 0.25, 0.26, 0.3, 0.4, 0.49])
    climb = worst_excess(alpha, excess=excess)
    errors = np.max(_errors(preset, _LOUD), axis=-1)
    allowed = np.array([0.5 - min(one.alpha, 0.25) for one in _LOUD])
    allowed += 8 * np.finfo(float).eps  # of the first error, which is at the edge
    fallen = ~np.all(errors <= allowed[:, None, None], axis=2)
    floors = np.median(errors[:, :, -1], axis=1)
    name = MONOTONE_CORRECTED
    return combine(
        name,
        [
            never_exceeds(
                name,
                climb,
                0.0,
                rounding=1e-14,
                grade=Grade.EXACT,
                coordinates={"alpha": alpha},
            ),
            at_most(
                name,
                tally(fallen),
                _FAILURE,
                coordinates={"alpha": np.array([one.alpha for one in _LOUD])},
            ),
        ],
        parts=["recursion", "runs"],
        detail=f"worst recursion {np.max(climb):+.2g} from the edge; runs of 40 rounds "
        f"with floors from {np.min(floors):.3f} to {np.max(floors):.3f}, "
        f"{np.mean(fallen):.1%} beyond",
    )


def prove_closeness(*, excess: str = "1") -> list[Step]:
    r"""$\alpha_t \ge \min(\alpha_0, 1/4)$ for all $t$, if $\varepsilon_0 \le
    \mathtt{excess} \Delta/8$.

    In units of $\Delta$: if $|e| \le 1/4$, $|e|/2 + \varepsilon_0 \le 1/8 +
    \text{excess}/8 \le 1/4$. If $|e| \ge 1/4$, $|e|/2 + \varepsilon_0 \le |e|$, as the
    difference $|e|/2 - \text{excess}/8$ grows with $|e|$ and is not negative at $1/4$.
    So the error never exceeds the larger of $1/4$ and its start.
    """
    import sympy

    floor = sympy.Rational(excess) / 8
    quarter = sympy.Rational(1, 4)
    return [
        exactly(r"$1/8 + \varepsilon_0 \le 1/4$", bool(quarter / 2 + floor <= quarter)),
        exactly(
            r"$|e|/2 - \varepsilon_0 \ge 0$ at $|e| = 1/4$",
            bool(quarter / 2 - floor >= 0),
        ),
    ]


_MOST_ROUNDS = 64


def _goal(c6: float, base: float, **values: rounds.Value) -> tuple[Setting, float, int]:
    """The setting, eps in units of the separation, and T rounded up."""
    one = rounds.setting(**values)
    scale = one.noise / min(one.shares)
    scale *= math.sqrt(one.num_features / (one.num_clients * one.num_samples))
    accuracy = c6 * scale
    steps = 2 + math.log(1 / (4 * accuracy)) / math.log(base)
    return one, accuracy, max(1, math.ceil(steps))


def _misses(
    generator: np.random.Generator, trials: int, *, base: float, **values: rounds.Value
) -> Float[np.ndarray, " trials"]:
    one, accuracy, steps = _goal(C6, base, **values)
    if steps > _MOST_ROUNDS:
        raise ValueError(f"T must be at most {_MOST_ROUNDS}, got {steps}.")
    run = rounds.simulate(generator, one, trials=trials, rounds=_MOST_ROUNDS)
    reached = np.all(run.errors[:, steps] <= accuracy, axis=1)
    return (~reached).astype(float)


def _evaluation(base: float, bound: Any, margins: Any, constants: Any) -> Evaluation:
    kind = r"\log_2" if base == 2 else r"\ln"
    return Evaluation(
        quantity=rf"$P(\text{{an error is above }} \varepsilon)$ after $T = 2 + {kind}"
        r"(\Delta/(4 \varepsilon))$ rounds, $\varepsilon = 6 \sqrt{2} (\sigma/p) "
        r"\sqrt{d/(m n')}$",
        parameters=rounds.PARAMETERS,
        bound=bound,
        truth=Simulation(
            functools.partial(_misses, base=base),
            numbers=lambda **_: _MOST_ROUNDS * rounds.NUMBERS,
        ),
        margins=margins,
        constants=constants,
        note="two clusters, the exact law of runs from the least favourable models; "
        "$T$ is rounded up",
    )


def _reach(base: float, **values: rounds.Value) -> Margin:
    return Margin(
        r"$\varepsilon \le \Delta/4$", _goal(C6, base, **values)[1], 0.25, False
    )


def _printed_margins(**values: rounds.Value) -> list[Margin]:
    one = rounds.setting(**values)
    asked = as_printed(start_margins(one)) if one.alpha < 0.5 else ()
    return [rounds.start_margin(one), *asked[1:], _reach(math.e, **values)]


def _corrected_margins(**values: rounds.Value) -> list[Margin]:
    one = rounds.setting(**values)
    own = theorem.round_margins(one)
    return [rounds.start_margin(one), *own, _reach(2.0, **values)]


_PRINTED_EVALUATION = _evaluation(
    math.e,
    lambda degree, **values: _goal(C6, math.e, **values)[2] * values["m"] ** -degree,
    _printed_margins,
    {"degree": Constant(1.0, origin=r"of $\operatorname{poly}(m)$, unnamed")},
)
_CORRECTED_EVALUATION = _evaluation(
    2.0,
    lambda **values: _goal(C6, 2.0, **values)[2] * _delta(rounds.setting(**values)),
    _corrected_margins,
    {},
)

_BINARY = (
    Goal(10, 0.252),
    Goal(38, 0.252),
    Goal(20, 0.5),
    Goal(38, 0.74),
    Goal(38, 0.32, 0.3),
)
_OTHER_BASE = (Goal(38, 0.252, base=2.2),)
_QUARTER = (Goal(24, 0.25, base=float(np.e)),)
_QUARTER_BINARY = (Goal(24, 0.25),)
_NATURAL = (
    Goal(24, 0.33, base=float(np.e)),
    Goal(10, 0.5, base=float(np.e)),
    Goal(24, 0.66, base=float(np.e)),
)
_TOO_SMALL = (Goal(24, 0.29, base=float(np.e)),)
_EPS = (
    r"$\varepsilon = c_6 (\sigma/p) \sqrt{d/(m n')} + c_7 \exp(-c_8 (\rho/(\rho "
    "+ 1))^2 n')$"
)
_TEXT = (
    r"$\gamma = c_1/p$: after $T = 2 + \log(\Delta/(4 \varepsilon))$ rounds all "
    r"errors are at most $\varepsilon$, but with probability "
    rf"$T/\operatorname{{poly}}(m)$; {_EPS}"
)
_CLAIMED = (
    "$c_1$, $c_6$, $c_7$, $c_8 > 0$, universal, unnamed; base of the "
    "logarithm not stated"
)


def _row(
    name: str,
    goals: tuple[Goal, ...],
    control: tuple[Goal, ...],
    preconditions: tuple[str, ...],
    middle: Goal | None = None,
    **more: Any,
) -> Statement:
    fresh = "Assumptions 1 and 2, fresh data in every round"
    return row(
        id=name,
        place="Corollary 1",
        preconditions=(fresh, *preconditions),
        constants={"c6": C6, "c7": 0.0},
        claimed=_CLAIMED,
        check=functools.partial(check_goals, name=name, goals=goals, middle=middle),
        control={"goals": control},
        margins=functools.partial(_goal_margins, goals),
        **more,
    )


STATEMENTS = (
    row(
        id=PRINTED,
        place="Corollary 1",
        text=_TEXT,
        preconditions=("Assumptions 1 and 2, fresh data in every round",),
        constants={"c6": C6},
        claimed=_CLAIMED,
        expected=Status.VIOLATED,
        fault="printed",
        check=check_printed,
        control={"small_share": 0.3},
        evaluation=_PRINTED_EVALUATION,
        margins=lambda: as_printed(_goal_margins((Goal(38, 0.2, 0.2),))),
        note=r"False for every $c_1$ as soon as $p_{\max} > 3 p$, whatever the base: "
        r"the error over $\varepsilon$ grows without limit as $\varepsilon$ falls, so "
        "that no $c_6$ helps. The control claims the same for $p = (0.3, 0.7)$.",
    ),
    _row(
        LOGARITHM,
        _QUARTER,
        _QUARTER_BINARY,
        (r"equal clusters, $\gamma p = 1/4$: all factors are $1/2$",),
        text=r"as derived in Appendix B from the factor $1/2$ of (1), $\gamma = 1/(4 "
        rf"p)$, with $T = 2 + \ln(\Delta/(4 \varepsilon))$; {_EPS}",
        expected=Status.VIOLATED,
        fault="reading",
        other_reading=CORRECTED,
        proof=prove_log,
        proof_control={"base": "2"},
        note=r"$(1/2)^\ln(x)$ is $x^{-0.69}$, not $1/x$: the error over "
        r"$\varepsilon$ grows like $x^{0.31}$, $x = \Delta/(4 \varepsilon)$. The "
        "base is not stated; with 2 it is true. The control has the same step and "
        "the logarithm of base 2.",
    ),
    _row(
        CORRECTED,
        _BINARY,
        _OTHER_BASE,
        ("the conditions of ifca.thm1.corrected", r"$\varepsilon \le \Delta/4$"),
        text=r"if $p_{\max} \le 3 p$ and $c_1$ lies in $[1/4, 3 p/(4 p_{\max})]$ as in "
        r"ifca.thm1.corrected, $T = 2 + \log_2(\Delta/(4 \varepsilon))$ rounds are "
        r"enough for $\varepsilon = 6 \sqrt{2} (\sigma/p) \sqrt{d/(m n')}$, but "
        r"with probability $T \delta$, $\delta$ that of ifca.thm1.corrected at "
        r"$\min(\alpha_0, 1/4)$",
        middle=Goal(20, 0.5),
        proof=functools.partial(prove_goal, c6=str(C6)),
        proof_control={"c6": "8.4852"},
        evaluation=_CORRECTED_EVALUATION,
        note=r"Appendix B ends with $3 \varepsilon$, which $c_6$ absorbs; its power "
        r"of $1/2$ is $T$. Loose: errors reach $0.27 \varepsilon$ at most in the "
        "check. The control has a logarithm of base 2.2.",
    ),
    _row(
        NATURAL,
        _NATURAL,
        _TOO_SMALL,
        (
            r"two equal clusters, $|1 - x| + 4 x \sqrt{d/N} \le 1/e$, $N \ge 4 d$",
            r"$\varepsilon \le \Delta/4$",
        ),
        text=r"for equal clusters $T = 2 + \ln(\Delta/(4 \varepsilon))$ rounds are "
        "enough if $c_1$ lies in $[0.3161, 0.6839]$, where all factors are at most "
        r"$1/e$, for $\varepsilon$ and with the probability of ifca.cor1.corrected",
        proof=prove_natural,
        proof_control={"least_step": "0.316"},
        note="What the corollary, which leaves $c_1$ open, can be read as. The "
        "control has $c_1 = 0.29$.",
    ),
    row(
        id=MONOTONE,
        place="Appendix B, second sentence",
        text=r"$|\theta_j^{(t+1)} - \theta_j^*| \le |\theta_j^{(t)} - \theta_j^*|$ "
        r"for all $t$, so $\alpha_0$, $\alpha_1$, ... does not decrease",
        preconditions=("Assumptions 1 and 2", r"$\gamma p = 1/2$, equal clusters"),
        claimed=r"by Assumption 2 and $0 < \alpha_0 < 1/2$",
        expected=Status.VIOLATED,
        fault="printed",
        check=check_monotone,
        control={"above": 3.0},
        proof=prove_monotone,
        proof_control={"noise": 0},
        # 2 eps0 <= Delta/8.
        margins=functools.partial(start_margins, *_FLOORS, failure=_FAILURE),
        note="At the floor about every second step increases an error, from the truth "
        "the first one does. The control asks it only of errors above three times the "
        "median of those that runs end with.",
    ),
    row(
        id=MONOTONE_CORRECTED,
        place="Appendix B",
        text=r"$\alpha_t \ge \min(\alpha_0, 1/4)$ for all $t$",
        preconditions=(
            r"rounds with $|e^+| \le |e|/2 + \varepsilon_0$ but for probability "
            r"$\delta$ each",
            r"$\varepsilon_0 \le \Delta/8$; Assumption 2 gives half of that",
        ),
        constants={r"$\varepsilon_0/\Delta$": 0.125},
        check=check_closeness,
        control={"excess": 1.02},
        proof=prove_closeness,
        proof_control={"excess": "1.0001"},
        note=r"All that is used later. The control allows $\varepsilon_0$ to be 2 % "
        "larger.",
    ),
)
