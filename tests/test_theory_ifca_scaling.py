"""What IFCA's scaling laws rest on: starts, floors on raw data, n', least squares."""

import numpy as np
import pytest

from cfljax import intervals, law
from cfljax.statements.judges import same_law
from cfljax.statements.statement import Preset
from cfljax.statements.verdict import Status
from theory import registry
from theory.ifca import scaling
from theory.ifca.common import linear
from theory.ifca.common.fixed_data import draw_clients, train_afresh
from theory.ifca.common.linear import Setting

QUICK = Preset()
NAMES = [
    row.id
    for row in registry.select(["ifca.scale", "ifca.claim", "ifca.alg2"])
    if row.margins is not None
]


@pytest.mark.parametrize("alpha", [0.4, 0.05, 0.002])
@pytest.mark.parametrize("noise", [0.05, 0.7, 3.0])
def test_starts_are_the_least_favourable_ones(alpha, noise):
    truths, models = linear.start(Setting(alpha=alpha, noise=noise))
    assert np.linalg.norm(truths[0] - truths[1]) == pytest.approx(1)
    np.testing.assert_allclose(
        np.linalg.norm(models - truths, axis=1), 0.5 - alpha, rtol=1e-12
    )
    kappa = law.misassignment_kappa(truths[0], models[0], models[1], noise)
    assert kappa == pytest.approx(float(law.worst_kappa(alpha, noise**-2)), rel=1e-9)
    # Control: an angle a little off is more favourable, or breaks the assumption.
    turned = models.copy()
    turned[0] = truths[0] - (0.5 - alpha) * np.array([np.cos(2.2), np.sin(2.2)])
    assert law.misassignment_kappa(truths[0], turned[0], turned[1], noise) > kappa


def test_a_start_at_the_truths_is_one():
    truths, models = linear.start(Setting(alpha=0.5))
    np.testing.assert_array_equal(truths, models)


@pytest.mark.parametrize("clusters", [2, 4])
def test_floors_on_raw_data_are_the_predicted_ones(clusters):
    """k clusters, all of them: the floor's square is proportional to 1 / p."""
    trials, clients, samples, features, noise, step = 150, 16, 40, 6, 0.1, 0.375
    generator = np.random.default_rng(clusters)
    truths = np.broadcast_to(np.eye(clusters, features), (trials, clusters, features))
    data = draw_clients(
        generator, truths, num_clients=clients, num_samples=samples, noise=noise
    )
    outcome = train_afresh(
        generator,
        data,
        truths[:, None],
        num_samples=samples,
        noise=noise,
        step_size=step * clusters,
        num_rounds=12,
    )
    squares = np.mean((outcome.models[:, 0] - truths) ** 2, axis=1) * clusters
    low, high = intervals.student(np.sum(squares, axis=-1) / clusters, error_rate=1e-6)
    share = clients / clusters * samples
    floor = law.stationary_floor(share, features, noise, 2 * step)
    assert low <= floor**2 <= high
    for wrong in (0.5, 2.0):  # what another power of p would say
        assert not low <= wrong * floor**2 <= high


@pytest.mark.slow
def test_followed_clusters_have_the_floor_of_their_own():
    setting = Setting(num_clients=2.0**16, shares=(1 / 8, 1 / 8), num_features=40.0)
    floors = linear.floor(linear.follow(QUICK, "test.followed", 0, setting))
    predicted = law.stationary_floor(
        setting.num_rows[0], 40.0, setting.noise, setting.effective_steps[0]
    )
    low, high = intervals.student(floors**2, error_rate=1e-6)
    assert low <= predicted**2 <= high < 1.1 * predicted**2


def test_line_14_on_raw_data():
    """A subset of the clients, their sum divided by m: 1 - 2 gamma p M / m."""
    generator, clients, chosen, gamma = np.random.default_rng(3), 40, 10, 0.5
    truths = np.eye(2)
    error = np.array([[0.1, 0.2], [-0.2, 0.1]])
    factors = []
    for _ in range(400):
        models = truths + error
        total = np.zeros((2, 2))
        for client in generator.permutation(clients)[:chosen]:
            cluster = int(client % 2)
            inputs = generator.standard_normal((50, 2))
            residual = inputs @ (models[cluster] - truths[cluster])
            total[cluster] += 2 * inputs.T @ residual / 50
        after = models - gamma / clients * total - truths
        factors.append(np.sum(after * error) / np.sum(error**2))
    low, high = intervals.student(np.array(factors), error_rate=1e-6)
    assert low <= 1 - 2 * gamma * 0.5 * chosen / clients <= high
    assert high < 1 and low > 1 - 2 * gamma * 0.5, "control: not as if M were m"
    setting = Setting(num_features=30.0, noise=1e-6, step=gamma / 2)
    run = linear.follow(
        QUICK, "test.line14", 0, setting, num_participants=setting.num_clients / 4
    )
    factor = np.mean(run.errors[:, 1] / run.errors[:, 0])
    assert factor == pytest.approx(1 - 2 * gamma * 0.5 / 4, abs=2e-3)


def test_least_samples_are_the_least():
    alpha = np.array([0.1, 0.01])
    least = scaling.minimal_samples(alpha, rho=4.0, num_clients=100.0)
    kappa = law.worst_kappa(alpha, 4.0)
    for share, enough in ((1.001, True), (0.999, False)):
        count = 100.0 * 2 * law.misassignment_probability(kappa, share * least)
        assert np.all((count <= 1 / 100.0) == enough)


@pytest.mark.parametrize("rho", [0.1, 4.0, 100.0])
def test_the_samples_asked_for_are_enough_and_no_more_than_the_law_needs_by_far(rho):
    setting = Setting(noise=rho**-0.5, alpha=0.05)
    asked = linear.needed_samples(setting)
    kappa = law.worst_kappa(0.05, rho)
    union = setting.num_clients * 2 * law.misassignment_probability(kappa, asked)
    assert union <= 1e-3
    if rho < 1:  # where Lemma 1's stronger form is nearly sharp
        fewer = law.misassignment_probability(kappa, 0.7 * asked)
        assert setting.num_clients * 2 * fewer > 1e-3


def test_local_slopes_of_a_power():
    x = np.geomspace(1, 1e6, 5)
    np.testing.assert_allclose(scaling.local_slopes(x, 3 * x**-0.5), -0.5)


def test_least_squares_errors_against_raw_data():
    rows, features, noise, trials = 12, 4, 0.5, 40_000
    generator = np.random.default_rng(0)
    inputs = generator.standard_normal((trials, rows, features))
    labels = noise * generator.standard_normal((trials, rows))
    grams = np.swapaxes(inputs, 1, 2) @ inputs
    moments = np.einsum("tna,tn->ta", inputs, labels)
    raw = np.linalg.norm(np.linalg.solve(grams, moments[..., None])[..., 0], axis=1)
    exact = linear.least_squares_errors(
        generator,
        num_rows=float(rows),
        num_features=float(features),
        noise=noise,
        size=(trials,),
    )
    same = same_law("toy.a", [raw], [exact], resolution=0.06)
    assert same.status is Status.HOLDS
    wrong = same_law("toy.a", [raw], [1.1 * exact], resolution=0.06)
    assert wrong.status is Status.VIOLATED
    risk = law.oracle_risk(rows, features, noise)
    assert np.mean(exact**2) == pytest.approx(float(risk), rel=0.1)


@pytest.mark.parametrize(("axis", "target"), [("m", -0.44), ("d", 0.56), ("p", -0.56)])
def test_slopes_a_little_off_are_noticed(axis, target):
    verdict = scaling.check_exponent(QUICK, axis=axis, target=target)
    assert verdict.status is Status.VIOLATED


@pytest.mark.parametrize("factor", [0.995, 1.005])
def test_steps_half_a_percent_off_are_noticed(factor):
    verdict = scaling.check_contraction(QUICK, factor=factor)
    assert verdict.status is Status.VIOLATED


@pytest.mark.parametrize("name", NAMES)
def test_checks_are_made_where_the_assumptions_hold(name):
    (row,) = registry.select([name])[:1]
    assert row.id == name and row.margins is not None
    assert all(margin.holds for margin in row.margins())


def test_margins_see_what_is_missing():
    poor = Setting(num_samples=10.0, num_features=5.0)
    failing = [one.assumption for one in linear.margins(poor) if not one.holds]
    assert len(failing) == 2
    assert "n' >=" in failing[0] and "d >=" in failing[1]
