"""APFL: rounds in NumPy, mixtures learned or not, and shares that do not sum to 1."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import MOMENTUM, close, compiled, counting, differ, misuse, rounds

from cfljax.algorithms import apfl, fedavg
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear

CLIENTS, FEATURES, STEP, STEPS, SHARE = 5, 4, 0.05, 3, 0.3
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
TASK = linear(FEATURES)
MODEL = np.array([1.0, -1.0, 0.5, 0.0], "f4")
OWN = np.random.default_rng(2).normal(size=(CLIENTS, FEATURES)).astype("f4")
SHARES = np.full(CLIENTS, SHARE, "f4")
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "num_steps": STEPS,
    "mixing_share": SHARE,
}
gradient = functools.partial(by_hand.gradient, DATA)


@functools.cache
def build(**settings):
    return compiled(apfl(TASK, **(SETTINGS | settings)))


def begin(algorithm):
    """Local models that differ from the global one."""
    state = algorithm.init(jax.random.key(0), DATA)
    own = state.own._replace(models=jnp.asarray(OWN))
    return state._replace(model=jnp.asarray(MODEL), own=own)


def work_by_hand(i, w, v, share, *, is_adaptive=False, after=False):
    """A client's three steps; `after` takes w after its step, as released code does."""
    for _ in range(STEPS):
        new = w - STEP * gradient(i, w)
        mixture = share * v + (1 - share) * (new if after else w)
        slope = gradient(i, mixture)
        moved = np.clip(share - STEP * (v - w) @ slope, 0, 1)
        w, v = new, v - STEP * share * slope
        share = moved if is_adaptive else share
    return w, v, share


def all_by_hand(model, own, shares, **how):
    rows = range(CLIENTS)
    worked = [work_by_hand(i, model, own[i], shares[i], **how) for i in rows]
    return map(np.stack, zip(*worked, strict=True))


def mixtures(model, own, shares):
    return shares[:, None] * own + (1 - shares[:, None]) * model


# Against equations


@pytest.mark.parametrize("is_adaptive", [False, True])
def test_two_rounds_against_equations(is_adaptive):
    algorithm = build(is_adaptive=is_adaptive)
    state, model, own, shares = begin(algorithm), MODEL, OWN, SHARES
    for seed in range(2):
        mixture = mixtures(model, own, shares)
        losses = [by_hand.loss(DATA, i, mixture[i]) for i in range(CLIENTS)]
        state, info = algorithm.step(jax.random.key(seed), state, DATA)
        sent, own, shares = all_by_hand(model, own, shares, is_adaptive=is_adaptive)
        model = sent.mean(axis=0)
        close(state.model, model)
        close(state.own.models, own)
        close(info.share, shares, atol=1e-5)
        close(info.losses, losses, rtol=1e-4)
        differ(state.own.models, list(all_by_hand(MODEL, OWN, SHARES, after=True))[1])
    if is_adaptive:
        assert ((shares > 0) & (shares < 1)).any() and np.ptp(shares) > 0.1
    answers = algorithm.predict(state, DATA, DATA.inputs)
    by_model = lambda models: np.einsum("csf,cf->cs", DATA.inputs, models)
    close(answers, by_model(mixtures(model, own, shares)), rtol=1e-4, atol=1e-5)
    # A public copy takes the share of both.
    differ(answers, by_model(shares[:, None] * (own + model)), 1e-3, 1e-3)


def test_momentum_moves_the_models_and_not_the_share():
    algorithm = build(is_adaptive=True, update=LocalUpdate(optimizer=MOMENTUM))
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    sent, found, shares = [], [], []
    for i in range(CLIENTS):
        w, v, share, traces = MODEL, OWN[i], SHARE, [0, 0]
        for _ in range(STEPS):
            slope = gradient(i, share * v + (1 - share) * w)
            traces = [
                0.9 * traces[0] + gradient(i, w),
                0.9 * traces[1] + share * slope,
            ]
            moved = np.clip(share - STEP * (v - w) @ slope, 0, 1)
            w, v, share = w - STEP * traces[0], v - STEP * traces[1], moved
        for rows, row in ((sent, w), (found, v), (shares, share)):
            rows.append(row)
    close(state.model, np.mean(sent, axis=0))
    close(state.own.models, found)
    close(state.own.share, shares, atol=1e-5)


# Against theory: the ends of the mixture


@pytest.mark.long
def test_a_share_of_one_is_training_alone_and_none_is_fedavg():
    theirs = compiled(fedavg(TASK, step_size=STEP, num_steps=STEPS, weights="clients"))
    start = theirs.init(jax.random.key(0), DATA)._replace(model=jnp.asarray(MODEL))
    expected, _ = rounds(theirs, start, DATA)
    run = jax.jit(
        lambda share: rounds(
            apfl(TASK, **(SETTINGS | {"mixing_share": share})),
            begin(build())._replace(
                own=begin(build()).own._replace(share=jnp.full(CLIENTS, share))
            ),
            DATA,
        )[0]
    )
    alone, common, half = (run(jnp.float32(share)) for share in (1, 0, 0.5))
    for state in (alone, common, half):
        close(state.model, expected.model)
    trained = [
        by_hand.trained(DATA, i, OWN[i], step_size=STEP, num_steps=2 * STEPS)
        for i in range(CLIENTS)
    ]
    close(alone.own.models, trained)
    differ(half.own.models, trained)
    np.testing.assert_array_equal(common.own.models, OWN)
    answers = build().predict(common, DATA, DATA.inputs)
    close(answers, np.einsum("csf,f->cs", DATA.inputs, expected.model))


def test_a_share_that_is_learned_stays_a_share():
    """Steps far too large throw it to an end, where it may turn back."""
    algorithm = build(is_adaptive=True, step_size=0.3, num_steps=1)
    state, info = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    raw = []
    for i in range(CLIENTS):
        slope = gradient(i, SHARE * OWN[i] + (1 - SHARE) * MODEL)
        raw.append(SHARE - 0.3 * (OWN[i] - MODEL) @ slope)
    assert np.max(raw) > 1 and np.min(raw) < 0
    close(info.share, np.clip(raw, 0, 1))
    close(state.own.share, info.share)


# Against itself


@pytest.mark.long
def test_the_absent_keep_theirs():
    half = build(participation=0.4, is_adaptive=True)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    sent, own, shares = all_by_hand(MODEL, OWN, SHARES, is_adaptive=True)
    close(state.model, sent[~absent].mean(axis=0))
    close(state.own.models, np.where(absent[:, None], OWN, own))
    close(info.share, np.where(absent, SHARES, shares), atol=1e-5)


def test_newcomers_train_a_model_of_their_own():
    joined = build().join(jax.random.key(7), begin(build()), DATA)
    start = np.tile(MODEL, (CLIENTS, 1))
    close(joined.own.models, list(all_by_hand(MODEL, start, SHARES))[1])
    np.testing.assert_array_equal(joined.model, MODEL)


@pytest.mark.long
def test_statistics_are_the_models_own():
    """Each model's are moved by its own passes, the mixture's being the local one's."""
    algorithm = apfl(counting(TASK, MODEL), **SETTINGS)
    state = algorithm.init(jax.random.key(0), DATA)
    after, _ = jax.jit(algorithm.step)(jax.random.key(0), state, DATA)
    moved = np.full((CLIENTS, 2), float(STEPS))
    np.testing.assert_array_equal(after.own.models.statistics, moved)
    np.testing.assert_array_equal(after.model.statistics, moved[0])
    start = np.tile(MODEL, (CLIENTS, 1))
    sent, own, _ = all_by_hand(MODEL, start, SHARES)
    close(after.own.models.weights, own)
    close(after.model.weights, sent.mean(axis=0))


# Against failures


def test_a_diverged_client_keeps_what_it_had():
    lost = np.arange(CLIENTS) == 1
    inputs = np.where(lost[:, None, None], np.float32(1e25), DATA.inputs)
    wild = DATA._replace(inputs=jnp.asarray(inputs))
    state, info = build().step(jax.random.key(0), begin(build()), wild)
    sent, own, _ = all_by_hand(MODEL, OWN, SHARES)
    close(state.model, sent[~lost].mean(axis=0))
    close(state.own.models, np.where(lost[:, None], OWN, own))
    assert info.sent.tolist() == [0 if one else 16 for one in lost]


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(apfl, TASK, step_size=STEP),
    ({"mixing_share": 1.5}, r"`mixing_share` must be in \[0, 1\], got 1.5"),
    ({"mixing_share": -0.1}, "`mixing_share` must not be negative, got -0.1"),
    ({"start": "random"}, "start"),
)
