"""Draws from exact laws, against raw data, exact moments and scipy.stats."""

import functools
import importlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.integrate
import scipy.stats

from cfljax import intervals, law
from cfljax.law import chi, gradients, misassignment
from cfljax.statements.judges import same_law
from cfljax.statements.verdict import Status

# Errors after gradient steps, against raw data and the exact mean

TRIALS, ROUNDS, NOISE = 20_000, 2, 0.4
judged = functools.partial(same_law, "toy.a", resolution=0.15)
STEPS = {  # d, N, sigma, eta
    "plain": (3, 8, 0.5, 0.4),
    "one feature": (1, 4, 0.3, 0.25),
    "fewer rows than features": (6, 2, 0.2, 0.1),
    "no noise": (4, 6, 0.0, 0.45),
}


@functools.cache
def raw_steps(name: str) -> np.ndarray:
    """|e| after two rounds of plain least-squares gradients, over 2 clients."""
    features, rows, noise, step = STEPS[name]
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


def drawn_steps(name: str, *, more_rows: int = 0) -> np.ndarray:
    features, rows, noise, step = STEPS[name]
    return law.gradient_steps(
        3,
        np.full(TRIALS, 1.5),
        num_features=features,
        num_rows=rows + more_rows,
        noise=noise,
        step_size=step,
        num_rounds=ROUNDS,
    )


@pytest.mark.long
@pytest.mark.parametrize("name", STEPS)
def test_raw_data_have_the_law_of_steps(name):
    raw, wrong = raw_steps(name), drawn_steps(name, more_rows=4)[-1]
    assert judged([raw], [drawn_steps(name)[-1]]).status is Status.HOLDS
    control = judged([raw], [wrong])
    assert control.status is Status.VIOLATED, "control: four rows more"


@pytest.mark.parametrize("name", STEPS)
def test_the_exact_mean_square(name):
    features, rows, noise, step = STEPS[name]
    ratio = float(law.contraction(features, rows, step))
    floor = 4 * step**2 * noise**2 * features / rows
    exact = ratio * 1.5**2 + floor
    low, high = intervals.student(drawn_steps(name)[1] ** 2, error_rate=1e-6)
    assert low <= exact <= high
    wrong = exact - 4 * step**2 / rows * 1.5**2 * 2
    assert not low <= wrong <= high, "control: d - 1 for d + 1"


def test_the_floor_is_where_the_mean_rests():
    features, rows, noise, step = STEPS["plain"]
    ratio = float(law.contraction(features, rows, step))
    floor = float(law.error_floor(features, rows, step, noise))
    assert ratio < 1
    after = ratio * floor**2 + 4 * step**2 * noise**2 * features / rows
    assert after == pytest.approx(floor**2, rel=1e-12)
    assert not np.isfinite(law.error_floor(100, 1, 0.5, 0.1))


def test_steps_are_repeatable_and_keep_the_start():
    first, again = drawn_steps("plain"), drawn_steps("plain")
    np.testing.assert_array_equal(first, again)
    assert first.shape == (ROUNDS + 1, TRIALS) and np.all(first[0] == 1.5)
    assert first.dtype == np.float64


# Loss vectors, against raw data and exact moments

SETTINGS = {  # d, N, n
    "more samples than rank": (3, 3, 8),
    "as many": (2, 5, 3),
    "fewer": (4, 6, 2),
    "one sample": (3, 2, 1),
    "fewer models than features": (7, 2, 5),
}


def models_and_truth(name: str) -> tuple[np.ndarray, np.ndarray]:
    features, models, _ = SETTINGS[name]
    generator = np.random.default_rng(features)
    return 1 + generator.standard_normal((models, features)), np.full(features, 0.3)


@functools.cache
def raw_losses(name: str) -> np.ndarray:
    """Losses on inputs and labels drawn one by one."""
    features, _, samples = SETTINGS[name]
    models, truth = models_and_truth(name)
    generator = np.random.default_rng(1)
    inputs = generator.standard_normal((TRIALS, samples, features))
    labels = inputs @ truth + NOISE * generator.standard_normal((TRIALS, samples))
    return np.mean((inputs @ models.T - labels[..., None]) ** 2, axis=1)


@functools.cache
def drawn_losses(name: str, more: int = 0) -> np.ndarray:
    return law.loss_vectors(
        np.random.default_rng(2),
        law.loss_factor(*models_and_truth(name), NOISE),
        num_samples=SETTINGS[name][2] + more,
        num_clients=TRIALS,
    )


def gram(name: str) -> np.ndarray:
    models, truth = models_and_truth(name)
    return (models - truth) @ (models - truth).T + NOISE**2


@pytest.mark.parametrize("name", SETTINGS)
def test_raw_data_have_the_law_of_losses(name):
    """Entry by entry, and their sum and largest difference, which see dependence."""

    def parts(losses: np.ndarray) -> list[np.ndarray]:
        return [*losses.T, np.sum(losses, axis=1), np.ptp(losses, axis=1)]

    raw, wrong = raw_losses(name), drawn_losses(name, more=SETTINGS[name][2])
    assert judged(parts(raw), parts(drawn_losses(name))).status is Status.HOLDS
    control = judged(parts(raw), parts(wrong))
    assert control.status is Status.VIOLATED, "control: twice the samples"


def covariance_interval(centred: np.ndarray) -> intervals.Interval:
    """Of the mean products of entries, by 100 batches."""
    products = centred[:, :, None] * centred[:, None]
    batches = np.mean(products.reshape(100, -1, *products.shape[1:]), axis=1)
    return intervals.student(np.moveaxis(batches, 0, -1), error_rate=1e-6)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_covariance_of_losses(name):
    """2 G^2/n entry by entry, which sees dependence; the mean is G's diagonal."""
    samples, exact = SETTINGS[name][2], gram(name)
    low, high = covariance_interval(drawn_losses(name) - np.diagonal(exact))
    covariance = 2 * exact**2 / samples
    assert np.all((low <= covariance) & (covariance <= high))
    alone = covariance * np.eye(len(exact))
    assert np.any((alone < low) | (alone > high)), "control: independent entries"


@pytest.mark.parametrize("name", SETTINGS)
def test_the_covariance_of_roots(name):
    samples = SETTINGS[name][2]
    exact = law.root_loss_covariance(
        law.loss_factor(*models_and_truth(name), NOISE), samples
    )
    lengths = np.sqrt(np.diagonal(gram(name)))
    variance = lengths**2 * law.chi_variance(samples) / samples
    np.testing.assert_allclose(np.diagonal(exact), variance, rtol=1e-12)
    centred = np.sqrt(drawn_losses(name)) - lengths * law.chi_mean_ratio(samples)
    low, high = covariance_interval(centred)
    assert np.all((low <= exact) & (exact <= high))
    assert not np.all(exact / 2 >= low), "control: half of it"


def test_one_sample_against_quadrature():
    """E |X Y| for two normals of correlation r, by integration over an angle."""
    angle = 0.7
    factor = np.array([[1.0, np.cos(angle)], [0.0, np.sin(angle)]])
    mean, _ = scipy.integrate.quad(
        lambda t: np.abs(np.cos(t) * np.cos(t - angle)) / np.pi,
        0,
        2 * np.pi,
        points=[np.pi / 2, np.pi / 2 + angle, 3 * np.pi / 2, 3 * np.pi / 2 + angle],
    )
    found = law.root_loss_covariance(factor, 1)[0, 1]
    assert found == pytest.approx(mean - 2 / np.pi, rel=1e-9)


def test_many_clients_come_in_blocks(monkeypatch):
    factor = law.loss_factor(np.eye(3), np.ones(3), 0.1)
    module = importlib.import_module("cfljax.law.loss_vectors")
    monkeypatch.setattr(module, "_BLOCK", 20)
    found = law.loss_vectors(
        np.random.default_rng(0), factor, num_samples=5, num_clients=7
    )
    assert found.shape == (7, 3) and np.all(found > 0)
    assert len(np.unique(found)) == found.size


@pytest.mark.parametrize(
    "wrong", [{"num_features": 0}, {"num_rows": 0}, {"num_rounds": 0}, {"noise": -0.1}]
)
def test_steps_misuse(wrong):
    arguments = {"num_features": 2, "num_rows": 3, "noise": 0.1, "step_size": 0.2}
    with pytest.raises(ValueError, match=f"^`{next(iter(wrong))}` must be at least"):
        law.gradient_steps(0, np.ones(2), **(arguments | wrong))


def test_losses_misuse():
    factor = law.loss_factor(np.eye(2), np.zeros(2), 0.0)
    for wrong in ("num_samples", "num_clients"):
        counts = {"num_samples": 1, "num_clients": 1, wrong: 0}
        with pytest.raises(ValueError, match=f"^`{wrong}` must be at least 1"):
            law.loss_vectors(np.random.default_rng(0), factor, **counts)
    with pytest.raises(ValueError, match=r"^`noise` must be at least 0"):
        law.loss_factor(np.eye(2), np.zeros(2), -0.1)
    with pytest.raises(ValueError, match=r"^`freedom`"):
        law.root_loss_covariance(factor, 0)


# The choice: Student's tail in compiled code, thinning, moments

KEY = jax.random.key(5)
ERROR_RATE = 1e-6

# Compiled once for each shape: outside, every call of a loop compiles it anew.
assign = jax.jit(misassignment.assign, static_argnames="block")
beaten_losses = jax.jit(misassignment.beaten_losses, static_argnames="block")
compiled = jax.jit(misassignment.free_losses, static_argnames=("block", "num_rows"))
pair_factors = jax.jit(misassignment.pair_factors)
chi_square, binomial = jax.jit(gradients.chi_square), jax.jit(gradients.binomial)
student_tail = jax.jit(chi.student_tail)
choice_kappa = jax.jit(chi.choice_kappa)


@pytest.fixture
def double_precision():
    with jax.enable_x64(True):
        yield


in_double = pytest.mark.usefixtures("double_precision")


def free_losses(seed, factor, num_samples, *, block, num_rows=None):
    key = jax.random.key(seed)
    drawn = compiled(key, factor, num_samples, block=block, num_rows=num_rows)
    return np.asarray(drawn)


@in_double
@pytest.mark.parametrize("num_samples", [1, 2, 3, 10, 100, 1e4, 1e6, 1e9])
def test_the_compiled_tail_is_the_exact_one(num_samples):
    kappa = np.concatenate([[0.0], np.logspace(-8, 2, 200)])
    exact = law.misassignment_probability(kappa, num_samples)
    normal = exact > 1e-300
    found = np.asarray(student_tail(kappa, float(num_samples)))
    np.testing.assert_allclose(found[normal], exact[normal], rtol=1e-7)
    both = found + student_tail(-kappa, float(num_samples))
    np.testing.assert_allclose(both, np.where(kappa == 0, 2 * found, 1.0), rtol=1e-14)
    assert np.isnan(student_tail(np.nan, 3.0))


@in_double
def test_the_compiled_kappa_is_the_exact_one():
    truth, own, other = np.random.default_rng(0).standard_normal((3, 50, 7))
    exact = law.misassignment_kappa(truth, own, other, 0.4)
    found = choice_kappa(truth - own, truth - other, 0.4)
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.long
@in_double
@pytest.mark.parametrize("freedom", [1.0, 1.5, 2.0, 3.0, 10.0, 1e3, 1e12])
def test_chi_square(freedom):
    drawn = np.asarray(chi_square(KEY, jnp.full((100_000,), freedom)))
    exact = scipy.stats.chi2(freedom)
    if freedom > 1e9:  # The law is normal up to 1e-6 in distribution.
        exact = scipy.stats.norm(freedom, np.sqrt(2 * freedom))
    assert scipy.stats.kstest(drawn, exact.cdf).pvalue > ERROR_RATE
    wrong = scipy.stats.chi2(1.05 * freedom)
    assert scipy.stats.kstest(drawn, wrong.cdf).pvalue < ERROR_RATE


@in_double
def test_chi_square_at_its_edges():
    found = chi_square(KEY, jnp.asarray([0.0, np.nan, 5.0]))
    assert found[0] == 0 and np.isnan(found[1]) and found[2] > 0


@pytest.mark.long
@in_double
def test_chi_square_of_a_batch_is_that_of_each():
    """Also where only some need a power."""
    keys = jax.random.split(KEY, 3)
    freedom = jnp.asarray([[0.0, 0.5], [1.0, 1e6], [7.0, 0.0]])
    batch = jax.vmap(chi_square)(keys, freedom)
    alone = [chi_square(*pair) for pair in zip(keys, freedom, strict=True)]
    np.testing.assert_array_equal(batch, np.stack(alone))


@in_double
@pytest.mark.parametrize("chance", [0.0, 1e-9, 1e-3, 0.4, 0.999, 1.0])
def test_binomial(chance):
    size = 1e9
    drawn = np.asarray(binomial(KEY, jnp.full(20_000, size), jnp.full(20_000, chance)))
    mean, variance = size * chance, size * chance * (1 - chance)
    assert np.all((drawn >= 0) & (drawn <= size) & (drawn % 1 == 0))
    assert abs(drawn.mean() - mean) <= 5 * np.sqrt(variance / 20_000)
    kurtosis = 2 + 1 / max(variance, 1e-300)
    assert abs(drawn.var() - variance) <= 5 * variance * np.sqrt(kurtosis / 20_000)


def p_value(one, other):
    """Of the two-sample Kolmogorov-Smirnov test."""
    return float(np.asarray(scipy.stats.ks_2samp(one, other))[1])


OFFSETS = np.array(
    [[0.3, 0.0, 0.0, 0.1], [1.0, 0.2, 0.0, 0.0], [0.0, 1.1, 0.3, 0.0], [0.9, 0, 0, 0.8]]
)


@pytest.mark.long
@in_double
def test_candidates_have_the_law_of_clients_whom_a_rival_beats():
    """Against plain clients, kept where the rival wins."""
    noise, num_samples, rival = 0.6, 8.0, 1
    factors = pair_factors(OFFSETS, 0, noise)
    kappa = choice_kappa(np.broadcast_to(OFFSETS[0], OFFSETS.shape), OFFSETS, noise)
    chances = jnp.zeros(4).at[rival].set(1.0)
    given = np.asarray(
        beaten_losses(KEY, factors, kappa, chances, num_samples, block=4000)
    )
    plain = free_losses(1, factors[2], num_samples, block=60_000)
    kept = plain[plain[:, rival] <= plain[:, 0]]
    chance = float(student_tail(kappa[rival], num_samples))
    spread = np.sqrt(chance * (1 - chance) / len(plain))
    assert abs(len(kept) / len(plain) - chance) < 5 * spread
    assert np.all(given[:, rival] <= given[:, 0] * (1 + 1e-12))
    for one, other in zip(given.T, kept.T, strict=True):
        assert p_value(one, other) > ERROR_RATE
    # Control: without the condition the rival's losses are another law.
    assert p_value(given[:, rival], plain[:, rival]) < ERROR_RATE


@pytest.mark.long
@in_double
def test_rows_and_bartlett_have_one_law():
    factors = pair_factors(OFFSETS, 0, 0.6)
    rows, bartlett = (
        free_losses(seed, factors[1], 4.0, block=30_000, num_rows=num_rows)
        for seed, num_rows in ((1, 4), (2, None))
    )
    for one, other in zip(rows.T, bartlett.T, strict=True):
        assert p_value(one, other) > ERROR_RATE
        assert p_value(1.05 * one, other) < ERROR_RATE


# Rare, common.
@in_double
@pytest.mark.slow
@pytest.mark.parametrize("distance", [1.0, 0.55])
def test_thinned_counts_are_those_of_plain_clients(distance):
    """Means of the counts of 3 models, against single clients."""
    offsets = np.array([[0.2, 0, 0], [0.1, distance, 0], [0, 0.2, distance]])[None]
    num_samples, noise = 12.0, 0.5
    drawn = assign(KEY, offsets, np.array([4e5]), num_samples, noise, block=1024)
    factors = pair_factors(offsets[0], 0, noise)
    losses = free_losses(9, factors[1], num_samples, block=100_000)
    plain = np.bincount(np.argmin(losses, axis=1), minlength=3)
    share = np.asarray(drawn)[0] / 4e5
    pooled = plain / 1e5
    error = np.sqrt(pooled * (1 - pooled) * (1 / 1e5 + 1 / 4e5))
    assert np.all(np.abs(share - pooled) < 5 * error)
    assert np.sum(drawn) == 4e5
