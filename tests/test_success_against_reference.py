"""Success counts of the released code inside what ours predicts for its design.

The released experiment (m = 40, n = 50, d = 200, k = 2, sigma = .1, step size .1) uses
the same 10 starts for all of its 10 trials, so its 100 outcomes are not independent;
our replicas share their starts in the same way.
"""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cfljax import metrics
from cfljax.algorithms.ifca import State, ifca
from cfljax.data import mixed_linear
from cfljax.kernels.draws import bernoulli_models
from cfljax.models import linear
from cfljax.types import ClientData

CLIENTS, SAMPLES, FEATURES, CLUSTERS, NOISE, STEP = 40, 50, 200, 2, 0.1, 0.1
STARTS = TRIALS = 10
ROUNDS = 300


@pytest.fixture(scope="module")
def golden(shared):
    return json.loads((shared / "reference" / "ifca_golden.json").read_text())


def distances(data, truth_models, starts, step_size):
    """Final distance of a run from each start, `[starts]`."""
    algorithm = ifca(linear(FEATURES), num_clusters=CLUSTERS, step_size=step_size)

    def one(start):
        def one_round(state, _):
            return algorithm.step(jax.random.key(0), state, data)[0], None

        state, _ = jax.lax.scan(one_round, State(start), None, length=ROUNDS)
        return metrics.centre_distance(state.models, truth_models)

    return jax.vmap(one)(starts)


@jax.jit
def study(key, separation, init_scale):
    """Successes among 10 trials x 10 shared starts, with our random numbers."""
    starts_key, trials_key = jax.random.split(key)
    starts = jax.vmap(
        lambda key: bernoulli_models(
            key,
            num_models=CLUSTERS,
            num_features=FEATURES,
            scale=init_scale,
            convention="reference",
        )
    )(jax.random.split(starts_key, STARTS))

    def trial(key):
        data, truth = mixed_linear(
            key,
            num_clients=CLIENTS,
            num_clusters=CLUSTERS,
            num_samples=SAMPLES,
            num_features=FEATURES,
            separation=separation,
            noise=NOISE,
            convention="reference",
        )
        final = distances(data, truth.models, starts, STEP)
        return metrics.is_success(final, 0.6 * NOISE)

    outcomes = jax.lax.map(trial, jax.random.split(trials_key, TRIALS))
    return jnp.sum(outcomes)


def counts(separation, num_studies, seed, init_scale=1.0):
    keys = jax.random.split(jax.random.key(seed), num_studies)
    return np.array([int(study(key, separation, init_scale)) for key in keys])


def p_value(ours, theirs):
    """Fisher's exact test of 100 restarts of each."""
    restarts = STARTS * TRIALS
    table = [[ours, restarts - ours], [theirs, restarts - theirs]]
    result: Any = scipy.stats.fisher_exact(table)
    return result.pvalue


@pytest.mark.parametrize("index", range(4))
def test_one_study_against_reference(golden, index):
    row = golden["reduced_scale"]["summary"][index]
    (ours,) = counts(row["r"], num_studies=1, seed=0)
    assert p_value(ours, row["init_success"]) > 1e-3


def test_a_scaled_start_leaves_the_reference(golden):
    row = golden["reduced_scale"]["summary"][0]
    (ours,) = counts(row["r"], num_studies=1, seed=0, init_scale=row["r"])
    assert p_value(ours, row["init_success"]) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("index", range(4))
def test_many_studies_against_reference(golden, index):
    """Their count inside the 99.9 % prediction interval of our studies' counts."""
    row = golden["reduced_scale"]["summary"][index]
    ours = counts(row["r"], num_studies=40, seed=1)
    reach = scipy.stats.t.ppf(1 - 0.0005, len(ours) - 1) * ours.std(ddof=1)
    reach *= np.sqrt(1 + 1 / len(ours))
    print(
        f"R = {row['r']}: ours {ours.mean():.1f} +- {reach:.1f}, theirs "
        f"{row['init_success']}"
    )
    assert abs(row["init_success"] - ours.mean()) <= reach


@pytest.mark.slow
def test_every_run_against_reference_on_the_same_random_numbers(golden):
    """All 400 runs of the released code, on the streams that PyTorch gave it."""
    torch = pytest.importorskip("torch", reason="its random streams need PyTorch")
    rows = {
        (row["r"], row["data_seed"], row["train_seed"]): row["matched_dist"]
        for row in golden["reduced_scale_rows"]
    }
    starts = jnp.stack([coins(seed, is_start=True) for seed in range(STARTS)])
    replay = jax.jit(distances)
    for separation in (0.1, 0.25, 0.5, 1.0):
        for seed in range(TRIALS):
            truth = coins(seed, is_start=False) * separation
            torch.manual_seed(seed)
            inputs, targets = [], []
            for client in range(CLIENTS):
                x, noise = torch.randn(SAMPLES, FEATURES), torch.randn(SAMPLES)
                own = torch.tensor(truth[client // (CLIENTS // CLUSTERS)].tolist())
                inputs.append(x.numpy())
                targets.append((x @ own + NOISE * noise).numpy())
            data = ClientData(
                jnp.stack(inputs),
                jnp.stack(targets),
                jnp.ones((CLIENTS, SAMPLES), bool),
            )
            ours = replay(data, truth, starts, STEP)
            theirs = [rows[separation, seed, start] for start in range(STARTS)]
            np.testing.assert_allclose(ours, theirs, rtol=1e-4)
            np.testing.assert_array_equal(ours <= 0.06, np.array(theirs) <= 0.06)


def coins(seed, *, is_start):
    """Bernoulli vectors from the legacy NumPy stream that the released code uses."""
    stream = np.random.RandomState(seed)
    if is_start:
        stream.normal()
    rows = [stream.binomial(1, 0.5, FEATURES) for _ in range(CLUSTERS)]
    return jnp.asarray(np.stack(rows), jnp.float32)
