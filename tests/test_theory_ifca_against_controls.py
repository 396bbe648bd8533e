"""IFCA's rows: the true claim passes, slightly wrong ones do not."""

import numpy as np
import pytest

from cfljax import law
from theory import registry
from theory.ifca import equation2, exact_law, lemma1, linear_model, worst_case
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


@pytest.mark.parametrize("row", registry.select(["ifca"]), ids=lambda row: row.id)
def test_verdict_and_control(row):
    assert row.check(QUICK).status is row.expected
    assert row.control(QUICK).status is Status.VIOLATED


@pytest.mark.parametrize(
    "wrong",
    [{"kappa_factor": 1.05}, {"kappa_factor": 0.95}, {"extra_freedom": 1}],
)
def test_a_slightly_wrong_law_is_noticed(wrong):
    assert exact_law.check_law(QUICK, **wrong).status is Status.VIOLATED


def test_the_law_is_resolved_as_promised():
    verdict = exact_law.check_law(QUICK)
    assert verdict.resolution <= 0.012 and verdict.error_rate == 1e-6


@pytest.mark.parametrize("factor", [1.02, 1.0001])
def test_a_slightly_larger_worst_case_is_noticed(factor):
    assert worst_case.check_worst(QUICK, factor=factor).status is Status.VIOLATED


@pytest.mark.parametrize("wrong", [{"c1": 0.499}, {"c2": 1.762}])
def test_slightly_better_constants_are_noticed(wrong):
    assert lemma1.check_bound(QUICK, **wrong).status is Status.VIOLATED


@pytest.mark.parametrize("c2", [1.7615, 1.77])
def test_only_the_best_constant_is_sharp(c2):
    assert lemma1.check_sharp(QUICK, c2=c2).status is Status.VIOLATED


def test_the_stronger_form_is_stronger_and_its_rate_sharp():
    assert lemma1.check_stronger(QUICK, rate=0.501).status is Status.VIOLATED
    alpha, rho, num_samples = 0.3, 1e-3, 10**4
    kappa = law.worst_kappa(alpha, rho)
    exact = law.log_misassignment_probability(kappa, num_samples) - np.log(0.5)
    stronger = -num_samples / 2 * alpha**2 * rho / (1 + rho)
    printed = lemma1.lemma1_bound(alpha, rho, num_samples) - np.log(0.5)
    assert exact <= stronger <= 100 * printed < 0


def test_the_counterexample_to_display_2():
    verdict = equation2.check_counterexample(QUICK)
    assert verdict.status is Status.VIOLATED
    assert verdict.bound < 0 < verdict.interval[0]


def test_raw_data_do_not_depend_on_the_chunks(monkeypatch):
    client = linear_model.worst_client(
        np.random.default_rng(0), alpha=0.2, rho=2.0, num_features=3, num_samples=4
    )
    whole = linear_model.wrong_choices(QUICK, "a", 0, client, num_trials=999)
    monkeypatch.setattr(linear_model, "_CHUNK", 100)
    parts = linear_model.wrong_choices(QUICK, "a", 0, client, num_trials=999)
    np.testing.assert_array_equal(whole, parts)
    assert 0 < np.mean(whole) < 0.5


def test_ties_and_undefined_losses_count_as_wrong():
    point = np.zeros(2)
    tied = linear_model.Client(point, np.ones((2, 2)), 1.0, 5)
    lost = linear_model.Client(point, np.array([[np.nan] * 2, [9.0] * 2]), 1.0, 5)
    for client in (tied, lost):
        wrong = linear_model.wrong_choices(QUICK, "a", 0, client, num_trials=50)
        assert np.all(wrong)


@pytest.mark.parametrize("num_features", [1, 2, 6])
def test_the_worst_client_is_what_it_says(num_features):
    alpha, rho = 0.2, 9.0
    client = linear_model.worst_client(
        np.random.default_rng(1),
        alpha=alpha,
        rho=rho,
        num_features=num_features,
        num_samples=4,
    )
    distances = np.linalg.norm(client.models - client.truth, axis=1)
    np.testing.assert_allclose(distances, [0.5 - alpha, 0.5 + alpha], rtol=1e-12)
    kappa = law.misassignment_kappa(
        client.truth, client.models[0], client.models[1], client.noise
    )
    formula = law.worst_kappa(alpha, rho, one_dimensional=num_features == 1)
    np.testing.assert_allclose(kappa, formula, rtol=1e-12)
