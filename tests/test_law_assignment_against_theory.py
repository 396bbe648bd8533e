"""The law of the choice: Student's tail in compiled code, thinning, moments."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cfljax import law
from cfljax.law import chi, gradients, misassignment

KEY = jax.random.key(5)
ERROR_RATE = 1e-6

# Compiled once for each shape: outside, every call of a loop compiles it anew.
assign = jax.jit(misassignment.assign, static_argnames="block")
beaten_losses = jax.jit(misassignment.beaten_losses, static_argnames="block")
free_losses = jax.jit(misassignment.free_losses, static_argnames=("block", "num_rows"))
pair_factors = jax.jit(misassignment.pair_factors)
chi_square, binomial = jax.jit(gradients.chi_square), jax.jit(gradients.binomial)
student_tail = jax.jit(chi.student_tail)
choice_kappa = jax.jit(chi.choice_kappa)


@pytest.fixture(autouse=True)
def double_precision():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("num_samples", [1, 2, 3, 10, 100, 1e4, 1e6, 1e9])
def test_the_compiled_tail_is_the_exact_one(num_samples):
    kappa = np.concatenate([[0.0], np.logspace(-8, 2, 200)])
    exact = law.misassignment_probability(kappa, num_samples)
    normal = exact > 1e-300
    found = np.asarray(
        student_tail(jnp.asarray(kappa), jnp.asarray(float(num_samples)))
    )
    np.testing.assert_allclose(found[normal], exact[normal], rtol=1e-7)
    both = found + student_tail(-jnp.asarray(kappa), jnp.asarray(float(num_samples)))
    np.testing.assert_allclose(both, np.where(kappa == 0, 2 * found, 1.0), rtol=1e-14)
    assert np.isnan(student_tail(jnp.asarray(np.nan), jnp.asarray(3.0)))


def test_the_compiled_kappa_is_the_exact_one():
    generator = np.random.default_rng(0)
    truth, own, other = generator.standard_normal((3, 50, 7))
    exact = law.misassignment_kappa(truth, own, other, 0.4)
    found = choice_kappa(
        jnp.asarray(truth - own), jnp.asarray(truth - other), jnp.asarray(0.4)
    )
    np.testing.assert_allclose(found, exact, rtol=1e-10)


@pytest.mark.parametrize("freedom", [1.0, 1.5, 2.0, 3.0, 10.0, 1e3, 1e12])
def test_chi_square(freedom):
    drawn = np.asarray(chi_square(KEY, jnp.full((100_000,), freedom)))
    exact = scipy.stats.chi2(freedom) if freedom < 1e9 else _normal(freedom)
    assert scipy.stats.kstest(drawn, exact.cdf).pvalue > ERROR_RATE
    wrong = scipy.stats.chi2(1.05 * freedom)
    assert scipy.stats.kstest(drawn, wrong.cdf).pvalue < ERROR_RATE


def _normal(freedom):
    """At 1e12 degrees of freedom the law is normal up to 1e-6 in distribution."""
    return scipy.stats.norm(freedom, np.sqrt(2 * freedom))


def test_chi_square_at_its_edges():
    found = chi_square(KEY, jnp.asarray([0.0, np.nan, 5.0]))
    assert found[0] == 0 and np.isnan(found[1]) and found[2] > 0


@pytest.mark.parametrize("chance", [0.0, 1e-9, 1e-3, 0.4, 0.999, 1.0])
def test_binomial(chance):
    size = 1e9
    shape = (20_000,)
    drawn = np.asarray(binomial(KEY, jnp.full(shape, size), jnp.full(shape, chance)))
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


def test_candidates_have_the_law_of_clients_whom_a_rival_beats():
    """Against plain clients, kept where the rival wins."""
    noise, num_samples, rival = jnp.asarray(0.6), jnp.asarray(8.0), 1
    offsets = jnp.asarray(OFFSETS)
    factors = pair_factors(offsets, jnp.asarray(0), noise)
    kappa = choice_kappa(jnp.broadcast_to(offsets[0], offsets.shape), offsets, noise)
    chances = jnp.zeros(4).at[rival].set(1.0)
    given = np.asarray(
        beaten_losses(KEY, factors, kappa, chances, num_samples, block=4000)
    )
    plain = np.asarray(
        free_losses(
            jax.random.key(1), factors[2], num_samples, block=60_000, num_rows=None
        )
    )
    kept = plain[plain[:, rival] <= plain[:, 0]]
    chance = float(student_tail(kappa[rival], num_samples))
    spread = np.sqrt(chance * (1 - chance) / len(plain))
    assert abs(len(kept) / len(plain) - chance) < 5 * spread
    assert np.all(given[:, rival] <= given[:, 0] * (1 + 1e-12))
    for one, other in zip(given.T, kept.T, strict=True):
        assert p_value(one, other) > ERROR_RATE
    # Control: without the condition the rival's losses are another law.
    assert p_value(given[:, rival], plain[:, rival]) < ERROR_RATE


def test_rows_and_bartlett_have_one_law():
    factors = pair_factors(jnp.asarray(OFFSETS), jnp.asarray(0), jnp.asarray(0.6))
    rows, bartlett = (
        np.asarray(
            free_losses(
                jax.random.key(seed),
                factors[1],
                jnp.asarray(4.0),
                block=30_000,
                num_rows=num_rows,
            )
        )
        for seed, num_rows in ((1, 4), (2, None))
    )
    for one, other in zip(rows.T, bartlett.T, strict=True):
        assert p_value(one, other) > ERROR_RATE
        assert p_value(1.05 * one, other) < ERROR_RATE


# Rare, common.
@pytest.mark.slow
@pytest.mark.parametrize("distance", [pytest.param(1.0, marks=pytest.mark.slow), 0.55])
def test_thinned_counts_are_those_of_plain_clients(distance):
    """Means of the counts of 3 models, against single clients."""
    offsets = np.array([[0.2, 0, 0], [0.1, distance, 0], [0, 0.2, distance]])[None]
    num_samples, noise = jnp.asarray(12.0), jnp.asarray(0.5)
    drawn = assign(
        KEY, jnp.asarray(offsets), jnp.asarray([4e5]), num_samples, noise, block=1024
    )
    factors = pair_factors(jnp.asarray(offsets[0]), jnp.asarray(0), noise)
    losses = free_losses(
        jax.random.key(9), factors[1], num_samples, block=100_000, num_rows=None
    )
    plain = np.bincount(np.argmin(np.asarray(losses), axis=1), minlength=3)
    share = np.asarray(drawn)[0] / 4e5
    pooled = plain / 1e5
    error = np.sqrt(pooled * (1 - pooled) * (1 / 1e5 + 1 / 4e5))
    assert np.all(np.abs(share - pooled) < 5 * error)
    assert np.sum(drawn) == 4e5
