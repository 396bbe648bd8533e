"""Display (2): the triangle inequality for one gradient step of one cluster.

T1 = (I - beta X'X) e + beta X' eps, beta = 2 gamma / (m n'), e = theta_1 - theta_1*.
The paper prints
|T1| <= (1 - beta N) |e| + beta |X'X - N I| |e| + beta |X' eps|,
where 1 - beta N must be |1 - beta N|: the printed right-hand side even turns negative
when the step is long.
"""

import functools
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from theory.judges import never_exceeds
from theory.statement import Preset, Statement
from theory.verdict import Status, Verdict

__all__ = [
    "STATEMENTS",
    "check_corrected",
    "check_counterexample",
    "check_printed",
]

PRINTED, CORRECTED = "ifca.eq2", "ifca.eq2.corrected"


class _Step(NamedTuple):
    """The two sides of (2) for one draw."""

    step_length: float  # beta N = 2 gamma N / (m n')
    left: float
    right: float  # with the absolute value
    right_printed: float
    rounding: float


def _sides(
    inputs: Float[np.ndarray, "samples features"],
    noise: Float[np.ndarray, " samples"],
    error: Float[np.ndarray, " features"],
    *,
    step_length: float,
) -> _Step:
    num_samples, num_features = inputs.shape
    beta = step_length / num_samples
    gram, cross = inputs.T @ inputs, inputs.T @ noise
    left = np.linalg.norm(error - beta * gram @ error + beta * cross)
    deviation = np.linalg.norm(gram - num_samples * np.eye(num_features), 2)
    size = np.linalg.norm(error)
    rest = beta * deviation * size + beta * np.linalg.norm(cross)
    # Inner products of N terms err by N eps |x||y|, matrix products by d times more.
    scale = np.linalg.norm(inputs)
    scale = size + beta * scale * (scale * size + np.linalg.norm(noise))
    rounding = 8 * np.finfo(float).eps * (num_samples + num_features) * scale
    return _Step(
        step_length=step_length,
        left=float(left),
        right=float(abs(1 - step_length) * size + rest),
        right_printed=float((1 - step_length) * size + rest),
        rounding=float(rounding),
    )


@functools.lru_cache(maxsize=1)
def _steps(preset: Preset) -> tuple[_Step, ...]:
    """Random N, d, gamma, e, sigma, a third of them aligned so that (2) is tight."""
    generator = preset.generator(CORRECTED)
    steps = []
    for index in range(preset.choose(quick=3000, full=60_000)):
        num_samples = int(generator.integers(1, 200))
        num_features = int(generator.integers(1, 9))
        sigma = float(generator.choice([0.0, 10 ** generator.uniform(-3, 1)]))
        inputs = generator.standard_normal((num_samples, num_features))
        noise = sigma * generator.standard_normal(num_samples)
        error = generator.standard_normal(num_features) * 10 ** generator.uniform(-3, 3)
        step_length = float(10 ** generator.uniform(-2, 1))
        if index % 3 == 0:
            error, noise = _aligned(inputs, step_length, sigma, top=index % 2 == 0)
        steps.append(_sides(inputs, noise, error, step_length=step_length))
    return tuple(steps)


def _aligned(
    inputs: Float[np.ndarray, "samples features"],
    step_length: float,
    sigma: float,
    *,
    top: bool,
) -> tuple[Float[np.ndarray, " features"], Float[np.ndarray, " samples"]]:
    """An extreme eigenvector of X'X as error, and noise that pushes the same way."""
    values, vectors = np.linalg.eigh(inputs.T @ inputs)
    error, value = (vectors[:, -1], values[-1]) if top else (vectors[:, 0], values[0])
    sign = np.sign(1 - step_length * value / len(inputs))
    return error, sigma * sign * inputs @ error


def check_printed(preset: Preset) -> Verdict:
    """Display (2) as printed, at random step sizes on both sides of beta N = 1."""
    steps = _steps(preset)
    short = [step for step in steps if step.step_length <= 1]
    kept = sum(step.left <= step.right_printed + step.rounding for step in short)
    return _judge_printed(
        PRINTED,
        steps,
        detail=f"without the absolute value; with 2 gamma N <= m n' it holds in {kept} "
        f"of {len(short)} draws",
    )


def check_counterexample(preset: Preset) -> Verdict:
    """The smallest telling case: two equal clusters, no misassignment, gamma p = 1.25.

    Then beta N = 2 gamma p = 2.5: the error grows by 1.5, and the right-hand side's
    first term is -1.5 |e|.
    """
    generator = preset.generator(PRINTED)
    num_clients, num_samples, share, gamma = 40, 20, 0.5, 2.5
    rows = int(share * num_clients * num_samples)
    step = _sides(
        generator.standard_normal((rows, 2)),
        0.05 * generator.standard_normal(rows),
        np.array([0.25, 0.0]),
        step_length=2 * gamma * rows / (num_clients * num_samples),
    )
    return _judge_printed(
        PRINTED,
        (step,),
        detail="gamma p = 1.25, m = 40, n' = 20, d = 2, |e| = 0.25, sigma = 0.05",
    )


def check_corrected(preset: Preset) -> Verdict:
    """Display (2) with |1 - beta N|, on the same draws as the printed form."""
    steps = _steps(preset)
    return never_exceeds(
        CORRECTED,
        np.array([step.left for step in steps]),
        np.array([step.right for step in steps]),
        rounding=np.array([step.rounding for step in steps]),
        detail=f"{len(steps)} draws, 2 gamma N / (m n') from 0.01 to 10, a third tight",
    )


def _judge_printed(
    statement: str, steps: tuple[_Step, ...], *, detail: str = ""
) -> Verdict:
    return never_exceeds(
        statement,
        np.array([step.left for step in steps]),
        np.array([step.right_printed for step in steps]),
        rounding=np.array([step.rounding for step in steps]),
        detail=detail,
    )


def _control_corrected(preset: Preset) -> Verdict:
    return _judge_printed(CORRECTED, _steps(preset), detail="the printed form")


STATEMENTS = (
    Statement(
        id=PRINTED,
        paper="ifca",
        place="Appendix A, (2)",
        text="|T1| <= (1 - 2 gamma N / (m n')) |e| + (2 gamma / (m n')) "
        "(|X'X - E X'X| |e| + |X' eps|)",
        preconditions=("gamma > 0: no upper limit is stated",),
        expected=Status.VIOLATED,
        check=check_printed,
        control=check_counterexample,
        note="An absolute value is missing; harmless only if 2 gamma N <= m n'. The "
        "control is the explicit counterexample gamma p = 1.25.",
    ),
    Statement(
        id=CORRECTED,
        paper="ifca",
        place="Appendix A, (2)",
        text="|T1| <= |1 - 2 gamma N / (m n')| |e| + (2 gamma / (m n')) "
        "(|X'X - E X'X| |e| + |X' eps|)",
        preconditions=("gamma > 0",),
        check=check_corrected,
        control=_control_corrected,
        note="The control is the printed form.",
    ),
)
