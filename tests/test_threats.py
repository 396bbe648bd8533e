"""Every algorithm that sends messages, among Byzantine clients and without any."""

import inspect

import jax
import numpy as np
import pytest
from by_hand import once
from conformance_cases import CLIENTS, CLUSTERS, TRIED, build, problem

from cfljax.algorithms import REGISTRY
from cfljax.attacks import build as attack
from cfljax.attacks import threat

# Who sends all components at once takes no threat: what one lies about is not said.
OF_MIXTURES = {"fedem", "fedrc", "fedsoft"}
BOUNDED = {"rr_cluster"}  # Whoever lies moves a model as little as whoever does not.
SILENT = {"local"}
NAMES = sorted(set(REGISTRY) - SILENT - OF_MIXTURES - BOUNDED)
# Whose messages have a way of their own; the others go by the rounds of these.
OWN = (*TRIED, "cfl_s", "fedala", "fedpac", "fedproto", "fesem", "scaffold")
TOLD = [n if n in OWN else pytest.param(n, marks=pytest.mark.slow) for n in NAMES]
KEY = jax.random.key(0)
LIARS = np.arange(CLIENTS) == 2
WIDE = {"federated_clustering", "momentum_clustering"}  # Where a lie is in the ball.
POOLED = {"icfl"}  # Where the global model is one of those that may be attacked.


def made(name, **changes):
    given = {"radius": 1e3} if name in WIDE else {}
    return build(name, problem(name)[1], **(given | changes))


def flipped(mask, **options):
    options = {"clusters": problem()[1].clusters} | options
    return threat(attack("sign_flip"), mask, **options)


def models_of(state):
    """Models after the round; of the honest clients where each has its own."""
    if hasattr(state, "prototypes"):  # And a body, where that is averaged.
        common = (state.prototypes.means, getattr(state, "body", ()))
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(common)])
    model = state.model if hasattr(state, "model") else state.models
    if not hasattr(model, "shape"):  # A network, averaged but for some leaves.
        return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(model)])
    models = np.asarray(model)
    return models[~LIARS] if models.shape[0] == CLIENTS else models


def test_whoever_sends_messages_takes_a_threat():
    parameters = lambda name: inspect.signature(REGISTRY[name].constructor).parameters
    assert [name for name in sorted(REGISTRY) if "threat" in parameters(name)] == NAMES


@pytest.mark.long
@pytest.mark.parametrize("name", TOLD)
def test_a_liar_matters_and_nobody_lying_does_not(name):
    data, _ = problem(name)
    key = jax.random.key(1)

    def under(mask, state):
        return made(name, threat=flipped(mask)).step(key, state, data)[0]

    start = once(made(name, threat=flipped(LIARS)).init, KEY, data)(KEY, data)
    plain, _ = once(made(name).step, key, start, data, name=name)(key, start, data)
    run = jax.jit(under)
    quiet, loud = (models_of(run(mask, start)) for mask in (LIARS & False, LIARS))
    np.testing.assert_allclose(quiet, models_of(plain), rtol=2e-5, atol=1e-6)
    assert np.isfinite(loud).all()
    assert np.abs(loud - quiet).max() > 1e-3


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_threat_to_others_is_named(name):
    data, truth = problem(name)
    state = jax.eval_shape(made(name, threat=flipped(LIARS)).init, KEY, data)

    def trace(**changes):
        jax.eval_shape(made(name, **changes).step, KEY, state, data)

    trace(threat=flipped(LIARS))
    with pytest.raises(ValueError, match=f"`threat` must say of each of {CLIENTS} cli"):
        trace(threat=flipped(LIARS[1:], clusters=truth.clusters[1:]))
    if name == "federated_clustering":  # Its receivers are the targets.
        return
    beyond = CLUSTERS + (name in POOLED)
    with pytest.raises(ValueError, match=rf"`target` .* got {beyond}\b"):
        trace(threat=flipped(LIARS, target=beyond))
