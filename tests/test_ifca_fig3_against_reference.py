"""Success counts of the released code inside what ours predicts for its design.

The released experiment (m = 40, n = 50, d = 200, k = 2, sigma = .1, step size .1)
crosses 10 true models with 10 starts, all of fixed seeds, so its 100 outcomes are not
independent. Our replicas keep these models and starts, draw the samples anew, and
predict the count by their own spread.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from cfljax import metrics
from cfljax.algorithms.ifca import State, ifca
from cfljax.base.types import ClientData
from cfljax.data import mixed_linear
from cfljax.models import linear

CLIENTS, SAMPLES, FEATURES, CLUSTERS, NOISE, STEP = 40, 50, 200, 2, 0.1, 0.1
STARTS = TRIALS = 10
ROUNDS = 300
ERROR_RATE = 1e-3  # Of the four separations together.


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
    """Successes among the released 10 truths x 10 starts, with samples of our own."""
    starts = jnp.stack([coins(seed, is_start=True) for seed in range(STARTS)])
    truths = jnp.stack([coins(seed, is_start=False) for seed in range(TRIALS)])

    def trial(inputs):
        key, models = inputs
        data, truth = mixed_linear(
            key,
            num_clients=CLIENTS,
            num_clusters=CLUSTERS,
            num_samples=SAMPLES,
            num_features=FEATURES,
            separation=0.0,  # Then the targets are noise alone, and the models ours.
            noise=NOISE,
        )
        own = models[truth.clusters]
        clean = jnp.einsum("csf,cf->cs", data.inputs, own, precision="highest")
        data = data._replace(targets=data.targets + clean)
        final = distances(data, models, init_scale * starts, STEP)
        return metrics.is_success(final, 0.6 * NOISE)

    keys = jax.random.split(key, TRIALS)
    return jnp.sum(jax.lax.map(trial, (keys, separation * truths)))


def reach_and_mean(separation, num_studies, seed, init_scale=1.0):
    """Prediction interval for one more study, from the spread of `num_studies`."""
    keys = jax.random.split(jax.random.key(seed), num_studies)
    ours = np.array([int(study(key, separation, init_scale)) for key in keys])
    tail = scipy.stats.t.ppf(1 - ERROR_RATE / 4 / 2, num_studies - 1)
    reach = tail * ours.std(ddof=1) * np.sqrt(1 + 1 / num_studies)
    return reach, ours.mean()


@pytest.mark.slow  # By default, single runs of the released code are compared.
def test_a_count_against_reference(golden):
    """At R = 1, and a control that must leave it: starts twenty times as far."""
    row = golden["reduced_scale"]["summary"][3]
    reach, mean = reach_and_mean(row["r"], num_studies=6, seed=0)
    assert abs(row["init_success"] - mean) <= reach
    _, other = reach_and_mean(row["r"], num_studies=2, seed=0, init_scale=20.0)
    assert abs(row["init_success"] - other) > reach


@pytest.mark.slow
@pytest.mark.parametrize("index", range(4))
def test_counts_against_reference(golden, index):
    row = golden["reduced_scale"]["summary"][index]
    reach, mean = reach_and_mean(row["r"], num_studies=40, seed=1)
    print(f"R = {row['r']}: {mean:.1f} +- {reach:.1f}, released {row['init_success']}")
    assert abs(row["init_success"] - mean) <= reach


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
