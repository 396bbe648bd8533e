"""Errors after gradient steps: raw data have the same law, and the exact mean."""

import functools

import numpy as np
import pytest

from cfljax import intervals, law
from cfljax.statements.judges import same_law
from cfljax.statements.verdict import Status

TRIALS, ROUNDS = 20_000, 2
SETTINGS = {  # d, N, sigma, eta
    "plain": (3, 8, 0.5, 0.4),
    "one feature": (1, 4, 0.3, 0.25),
    "fewer rows than features": (6, 2, 0.2, 0.1),
    "no noise": (4, 6, 0.0, 0.45),
}


@functools.cache
def raw(name: str) -> np.ndarray:
    """|e| after two rounds of plain least-squares gradients, over 2 clients."""
    features, rows, noise, step = SETTINGS[name]
    generator = np.random.default_rng(1)
    errors = np.zeros((TRIALS, features))
    errors[:, 0] = 1.5
    for _ in range(ROUNDS):
        gradient = np.zeros_like(errors)
        for _ in range(2):
            inputs = generator.standard_normal((TRIALS, rows // 2, features))
            labels = noise * generator.standard_normal((TRIALS, rows // 2))
            residuals = np.einsum("tnf,tf->tn", inputs, errors) - labels
            gradient += np.einsum("tnf,tn->tf", inputs, residuals) * 2 / (rows // 2)
        errors = errors - step * gradient / 2
    return np.linalg.norm(errors, axis=1)


def drawn(name: str, *, more_rows: int = 0) -> np.ndarray:
    features, rows, noise, step = SETTINGS[name]
    return law.gradient_steps(
        3,
        np.full(TRIALS, 1.5),
        num_features=features,
        num_rows=rows + more_rows,
        noise=noise,
        step_size=step,
        num_rounds=ROUNDS,
    )


@pytest.mark.parametrize("name", SETTINGS)
def test_raw_data_have_the_law(name):
    found = same_law("toy.a", [raw(name)], [drawn(name)[-1]], resolution=0.15)
    assert found.status is Status.HOLDS
    wrong = drawn(name, more_rows=4)[-1]
    control = same_law("toy.a", [raw(name)], [wrong], resolution=0.15)
    assert control.status is Status.VIOLATED, "control: four rows more"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_exact_mean_square(name):
    features, rows, noise, step = SETTINGS[name]
    ratio = float(law.contraction(features, rows, step))
    floor = 4 * step**2 * noise**2 * features / rows
    exact = ratio * 1.5**2 + floor
    low, high = intervals.student(drawn(name)[1] ** 2, error_rate=1e-6)
    assert low <= exact <= high
    wrong = exact - 4 * step**2 / rows * 1.5**2 * 2
    assert not low <= wrong <= high, "control: d - 1 for d + 1"


def test_the_floor_is_where_the_mean_rests():
    features, rows, noise, step = SETTINGS["plain"]
    ratio = float(law.contraction(features, rows, step))
    floor = float(law.error_floor(features, rows, step, noise))
    assert ratio < 1
    after = ratio * floor**2 + 4 * step**2 * noise**2 * features / rows
    assert after == pytest.approx(floor**2, rel=1e-12)
    assert not np.isfinite(law.error_floor(100, 1, 0.5, 0.1))


def test_steps_are_repeatable_and_keep_the_start():
    first, again = drawn("plain"), drawn("plain")
    np.testing.assert_array_equal(first, again)
    assert first.shape == (ROUNDS + 1, TRIALS) and np.all(first[0] == 1.5)
    assert first.dtype == np.float64


@pytest.mark.parametrize(
    "wrong",
    [{"num_features": 0}, {"num_rows": 0}, {"num_rounds": 0}, {"noise": -0.1}],
)
def test_misuse(wrong):
    arguments = {"num_features": 2, "num_rows": 3, "noise": 0.1, "step_size": 0.2}
    with pytest.raises(ValueError, match=f"^`{next(iter(wrong))}` must be at least"):
        law.gradient_steps(0, np.ones(2), **(arguments | wrong))
