"""From loss vectors to k-means: what the checks rest on, and claims close to theirs."""

import itertools

import numpy as np
import pytest

from cfljax import law
from theory.clove import (
    centred_rows,
    concentration,
    condition7,
    proximity,
    random_rows,
)
from theory.clove.loss_means import random_units
from theory.statement import Preset
from theory.verdict import Status

QUICK = Preset()


def brute_force(points: np.ndarray) -> float:
    """The least cost of two sets, over all of them."""
    best = np.inf
    for bits in itertools.product((False, True), repeat=len(points) - 1):
        one = np.array((*bits, True))
        if not one.all():
            total = proximity.cost(points[one]) + proximity.cost(points[~one])
            best = min(best, total)
    return best


@pytest.mark.parametrize("seed", range(4))
def test_lines_find_the_best_two_means(seed):
    points = np.random.default_rng(seed).standard_normal((8, 2))
    if seed == 3:  # points on a grid: many pairs come level at once
        points = np.array(list(itertools.product(range(4), range(2))), float)
    found = proximity.best_cost(points)
    assert found == pytest.approx(brute_force(points), rel=1e-12)
    halves = proximity.cost(points[:4]) + proximity.cost(points[4:])
    assert seed == 3 or found < halves, "control: an arbitrary split costs more"


def test_strips_of_a_thousand_points():
    """m = 1000, c' = 1: margin 0.2361, threshold 0.2068, with the roots 6.5."""
    along = np.linspace(-2, 2, 1000)
    points = np.stack([np.stack([along, np.full(1000, y)], 1) for y in (0.0, 1.0)])
    margin = proximity.least_margin(points)
    norm = np.linalg.norm((points - points.mean(axis=1, keepdims=True))[..., 0])
    assert margin == pytest.approx(0.2361, abs=1e-4)
    assert 4 / 1000 * norm == pytest.approx(0.2068, abs=1e-4)
    assert 4 / np.sqrt(1000) * norm == pytest.approx(6.54, abs=0.01)
    truth = proximity.cost(points[0]) + proximity.cost(points[1])
    halves = points[:, :500].reshape(-1, 2), points[:, 500:].reshape(-1, 2)
    across = sum(proximity.cost(half) for half in halves)
    assert (truth, across) == pytest.approx((2672, 1168), abs=1)


@pytest.mark.parametrize("power", [0.75, 0.9])
def test_only_the_root_is_free_of_copies(power):
    found = proximity.check_proximity(QUICK, name="toy.a", power=power)
    assert found.status is Status.VIOLATED


def test_spikes_are_what_they_say():
    """The counts against raw matrices, and the condition on E Y'Y."""
    generator = np.random.default_rng(0)
    norms = random_rows.spike_norms(generator, 20, 3, 4000)
    chosen = generator.integers(20, size=(4000, 20))
    matrices = np.sqrt(20.0) * (chosen[..., None] == np.arange(3))
    raw = np.linalg.norm(matrices, 2, axis=(1, 2)) ** 2 / 20
    gram = np.mean(np.einsum("tna,tnb->tab", matrices, matrices), axis=0) / 20
    np.testing.assert_allclose(gram, np.eye(3), atol=5 / np.sqrt(4000))
    for level in (1.5, 2.5):
        share, other = np.mean(norms > level), np.mean(raw > level)
        assert share == pytest.approx(other, abs=5 * np.sqrt(0.5 / 4000))
        assert share > 0.05


def test_concentration_far_below_the_boundary():
    """N < 4.5 log^2(NM/delta): the printed lemma holds, its log hides the error."""
    small = tuple(one for one in concentration._draws(QUICK) if len(one.variances) < 60)
    assert small
    for one in small:
        pairs = one.cell.num_features * one.cell.num_clients
        bound = 4.5 * np.log(pairs / one.cell.delta) ** 2 * np.max(one.variances)
        assert np.sum(one.variances) < bound and np.all(one.largest < bound)


def test_the_mean_of_a_row_is_the_trace():
    """E|a_i - c|^2 = sum Var, on the cell that refutes the lemma."""
    (one,) = (one for one in concentration._draws(QUICK) if len(one.variances) == 300)
    cell = one.cell
    bound = 4.5 * np.log(2 * 300 / cell.delta) ** 2 * np.max(one.variances)
    factor = law.loss_factor(
        np.eye(300), random_units(np.random.default_rng(0), (300,)), 0.1
    )
    trace = np.trace(law.root_loss_covariance(factor, cell.num_samples))
    assert trace == pytest.approx(np.sum(one.variances), rel=0.01)
    assert np.sum(one.variances) > bound and np.median(one.largest) > bound
    limit = (1 + np.sqrt(300)) ** 2 + 0.1**2 * 300
    assert one.operator**2 <= limit


@pytest.mark.parametrize("name", [centred_rows.SPECTRAL, centred_rows.TRACE])
def test_nine_is_the_least(name):
    for square, status in ((8.99, Status.HOLDS), (8.97, Status.VIOLATED)):
        found = centred_rows.check_covariance(QUICK, name=name, square=square)
        assert found.status is status


def test_the_operator_norm_is_the_smaller():
    operator, frobenius = centred_rows._norms(QUICK)
    assert np.all(operator <= frobenius * (1 + 1e-12))
    mean = np.mean(frobenius**2, axis=1)
    assert np.all((mean > 0.1) & (mean < 1))


def test_terms_of_the_last_step():
    """Ratios of the first to the second at c' = 1, delta = 0.05, n = 100."""
    models, clusters = np.array([10.0, 10, 10, 100]), np.array([2.0, 2, 2, 5])
    clients, samples = np.array([1e3, 1e4, 1e6, 1e6]), np.full(4, 100.0)
    first, second = condition7.terms(models, clusters, clients, samples, 0.05)
    np.testing.assert_allclose(first / second, [9.4, 26, 232, 13], rtol=0.04)


@pytest.mark.parametrize("constant", [60.0, 81.0])
def test_condition_needs_its_constant(constant):
    found = condition7.check_corrected(QUICK, constant=constant)
    assert found.status is Status.VIOLATED
