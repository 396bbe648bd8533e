"""Steps, matchings and rounds of CLoVE: what the checks rest on, and close claims."""

import numpy as np
import pytest

from cfljax import law
from theory.clove import (
    contraction,
    directional,
    gradient_norms,
    matching,
    theorem42,
)
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


def test_one_feature_has_an_exact_operator_norm():
    """chi2_N > N + 6 sqrt(N) for d = 1, where the claim says nothing."""
    rows = np.arange(4.0, 200.0)
    above = law.log_chi_square_tail(rows, 6 * np.sqrt(rows))
    assert np.all(above < np.log(0.01)) and 2 * np.exp(-0.5) > 1


@pytest.mark.parametrize("constant", [1.7, 1.75])
def test_a_shorter_noise_is_noticed(constant):
    found = gradient_norms.check_noise(QUICK, constant=constant)
    assert found.status is Status.VIOLATED


def test_the_printed_step_fails_for_small_steps_only():
    """Control: the same check holds in the corrected range."""
    for steps, status in (
        (contraction._ALLOWED[:4], Status.VIOLATED),
        (contraction._CORRECTED[:4], Status.HOLDS),
    ):
        found = contraction.check_lemma(QUICK, name="toy.a", steps=steps)
        assert found.status is status


def test_corrected_steps_meet_their_condition():
    for step in contraction._CORRECTED:
        share = np.sqrt(step.num_features / step.num_rows)
        assert abs(1 - 2 * step.step_size) <= 1 / 24 + 1e-12
        assert (36 + 6 * step.noise) * step.step_size * share <= 1 / 8
    loose = contraction._CORRECTED[0]._replace(num_rows=10_000)
    share = np.sqrt(loose.num_features / loose.num_rows)
    assert (36 + 6 * loose.noise) * loose.step_size * share > 1 / 8


def test_errors_shrink_far_from_the_floor():
    found = contraction.check_contracts(QUICK, name="toy.a", shares=(3.0, 30.0))
    assert found.status is Status.HOLDS
    near = contraction.check_contracts(QUICK, name="toy.a", shares=(0.1,))
    assert near.status is Status.VIOLATED


def test_the_order_of_two_losses_by_counting():
    """The exact law of a mis-order, on the summed losses of 3 clients of 2 samples."""
    generator = np.random.default_rng(1)
    trials, rho, alpha = 40_000, 4.0, 0.25
    kappa = law.worst_kappa(alpha, rho, one_dimensional=True)
    inputs = generator.standard_normal((trials, 6))
    noise = generator.standard_normal((trials, 6)) / np.sqrt(rho)
    own, other = (np.sum((inputs * e - noise) ** 2, axis=1) for e in (-0.25, 0.75))
    exact = float(law.misassignment_probability(kappa, 6))
    share = float(np.mean(other < own))
    assert share == pytest.approx(exact, abs=5 * np.sqrt(exact / trials))
    wrong = float(law.misassignment_probability(kappa, 8))
    assert abs(share - wrong) > 5 * np.sqrt(exact / trials), "control: 8 samples"


def test_the_best_constant_of_the_order():
    for rate, status in ((0.12113, Status.HOLDS), (0.12116, Status.VIOLATED)):
        assert matching.check_order(QUICK, c2=rate).status is status
    rho = np.geomspace(0.1, 10, 2001)
    kappa = law.worst_kappa(0.25, rho)
    rate = law.error_exponent(kappa) * (1 + 1 / rho) ** 2
    assert np.min(rate) == pytest.approx(0.12113, abs=1e-5)
    assert rho[np.argmin(rate)] == pytest.approx(1.065, abs=0.01)


@pytest.mark.parametrize("factor", [2.7, 2.718])
def test_the_rewriting_costs_a_factor_e(factor):
    found = matching.check_rewriting(QUICK, name="toy.a", factor=factor, capped=True)
    assert found.status is Status.VIOLATED


def test_raw_models_are_proximal():
    truths = np.eye(3) / np.sqrt(2)
    models = truths + (np.roll(truths, 1, axis=0) - truths) / 4
    np.testing.assert_allclose(np.linalg.norm(models - truths, axis=1), 0.25)
    gap = np.linalg.norm(truths[:, None] - truths, axis=2)
    np.testing.assert_allclose(gap + np.eye(3), 1)


def test_the_certificate_bounds_what_steps_do():
    """P(|e_1| <= radius) from the floor itself, by counting, below the certificate."""
    floor = float(law.error_floor(10, 4000, theorem42._STEP, 0.1))
    steps = law.gradient_steps(
        1,
        np.full(2000, floor),
        num_features=10,
        num_rows=4000,
        noise=0.1,
        step_size=theorem42._STEP,
        num_rounds=theorem42._ROUNDS,
    )
    for radius in (0.5 * floor, floor, 1.5 * floor):
        bound = theorem42.log_certificate(np.array([radius]), np.array([0.1]))
        share = np.mean(steps[1] <= radius)
        assert share <= np.exp(bound[0]) + 5 * np.sqrt(0.25 / 2000)
        assert share >= np.exp(bound[0]) - 0.1, "nearly tight at the floor"


def test_the_theorem_holds_for_few_rounds():
    """Control: up to round 2 the certificate leaves room."""
    found = theorem42.check_certificate(QUICK, num_rounds=150)
    assert found.status is Status.VIOLATED
    first = theorem42.log_certificate(np.array([1 / 4.0]), np.array([0.1]))
    assert np.exp(first[0]) > 0.99


@pytest.mark.parametrize("factor", [0.9, 1 - 1e-9])
def test_projections_reach_their_bound(factor):
    found = directional.check_projection(QUICK, factor=factor)
    assert found.status is Status.VIOLATED
