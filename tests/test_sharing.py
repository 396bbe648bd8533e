"""Weight sharing by hand: what is common, what is trained, what is sent."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms import ifca
from cfljax.algorithms.ifca import State
from cfljax.base.types import ClientData, Task, Variables
from cfljax.federated.evaluate import loss_matrix
from cfljax.federated.sharing import merge_shared, paths, split, with_frozen
from cfljax.models import mlp

STEP, CLIENTS, CLUSTERS = 0.1, 4, 2
# y = a x + b: the slope is common, the offset is the cluster's.
LINE = Task(
    init=lambda key: {"slope": jnp.zeros(()), "offset": jax.random.normal(key, ())},
    losses=lambda p, x, y: jnp.square(p["slope"] * x + p["offset"] - y),
    predict=lambda p, x: p["slope"] * x + p["offset"],
)
IS_SLOPE = lambda name: name == "slope"
INPUTS = np.random.default_rng(1).standard_normal((CLIENTS, 6), np.float32)
OFFSETS = np.array([-2.0, -2.0, 2.0, -2.0], np.float32)
DATA = ClientData(
    jnp.asarray(INPUTS),
    jnp.asarray(3 * INPUTS + OFFSETS[:, None]),
    jnp.asarray(np.ones((CLIENTS, 6), bool)),
)
START = {"slope": jnp.array([1.0, 1.0]), "offset": jnp.array([-1.0, 1.0])}
ASSIGNMENT = [0, 0, 1, 0]


def by_hand():
    """Of each client's loss at its cluster's model: the gradient by the common slope;
    and the clusters' next offsets."""
    own = np.array([[-1.0], [1.0]])[ASSIGNMENT]
    error = INPUTS + own - np.asarray(DATA.targets)
    by_offset = np.mean(2 * error, axis=1)
    offsets = [-1 - STEP * by_offset[[0, 1, 3]].mean(), 1 - STEP * by_offset[2]]
    return np.mean(2 * error * INPUTS, axis=1), offsets


@functools.cache
def one_round(**settings):
    """Compiled and run once for all tests of the same settings."""
    algorithm = ifca(
        LINE, num_clusters=CLUSTERS, step_size=STEP, shared=IS_SLOPE, **settings
    )
    state, info = jax.jit(algorithm.step)(jax.random.key(0), State(START), DATA)
    assert info.assignment.tolist() == ASSIGNMENT
    return state.models, info


@pytest.mark.parametrize(
    "settings", [{"option": "model"}, {"normalise": "cluster"}], ids=["II", "I"]
)
def test_common_layers_are_averaged_over_all_and_others_by_cluster(settings):
    models, info = one_round(**settings)
    by_slope, offsets = by_hand()
    expected = 1 - STEP * by_slope.mean()
    np.testing.assert_allclose(models["slope"], [expected] * 2, rtol=1e-5)
    np.testing.assert_allclose(models["offset"], offsets, rtol=1e-5)
    wrong = 1 - STEP * by_slope[[0, 1, 3]].mean()  # Averaged in the cluster only.
    assert abs(wrong - expected) > 1e-3
    assert info.received.tolist() == [4 + 2 * 4] * CLIENTS
    assert info.sent.tolist() == [8 + 1] * CLIENTS


@pytest.mark.parametrize("settings", [{"option": "model"}, {"normalise": "cluster"}])
def test_frozen_layers_stay_and_are_not_sent(settings):
    models, info = one_round(variant="reference", **settings)
    np.testing.assert_array_equal(models["slope"], START["slope"])
    np.testing.assert_allclose(models["offset"], by_hand()[1], rtol=1e-5)
    assert info.received.tolist() == [2 * 4] * CLIENTS
    assert info.sent.tolist() == [4 + 1] * CLIENTS


def test_divisors_of_all_clients_move_common_layers_alike():
    every, _ = one_round(normalise="all")
    cluster, _ = one_round(normalise="cluster")
    # All clients participate, so that m is the number of members of all clusters.
    np.testing.assert_allclose(every["slope"], cluster["slope"], rtol=1e-5)
    assert not np.allclose(every["offset"], cluster["offset"])


def test_parts_are_named_and_put_together_again():
    task = mlp((2, 2), hidden=(3,), num_classes=2)
    shapes = jax.eval_shape(task.init, jax.random.key(0))
    draw = np.random.default_rng(0).standard_normal
    params = jax.tree.map(lambda leaf: draw(leaf.shape), shapes)
    assert paths(params) == [
        f"layers/{i}/{leaf}" for i in range(2) for leaf in ("bias", "kernel")
    ]
    own, common = split(params, lambda name: name.startswith("layers/0"))
    assert len(jax.tree.leaves(own)) == len(jax.tree.leaves(common)) == 2
    jax.tree.map(np.testing.assert_array_equal, merge_shared(own, common), params)
    measured = Variables({"norm": 1.0}, {"norm": 2.0})
    assert paths(measured) == ["norm", "norm"]
    with pytest.raises(ValueError, match="`shared` must be true of some"):
        split(params, lambda name: False)


@pytest.mark.long
def test_losses_of_parts_are_those_of_whole_models():
    task = mlp((6,), hidden=(3,), num_classes=2)
    is_first = lambda name: name.startswith("layers/0")
    generator = np.random.default_rng(1)
    data = ClientData(
        jnp.asarray(generator.standard_normal((4, 5, 6)), jnp.float32),
        jnp.asarray(np.ones((4, 5), np.int32)),
        jnp.asarray(np.ones((4, 5), bool)),
    )

    @jax.jit
    def losses(models):
        own, common = split(models, is_first)
        first = jax.tree.map(lambda leaf: leaf[0], common)
        repeat = lambda leaf: jnp.broadcast_to(leaf, (3,) + leaf.shape)
        whole = merge_shared(own, jax.tree.map(repeat, first))
        parts = [
            loss_matrix(task, own, data, common=first, clients_per_chunk=size)
            for size in (None, 1, 3, 4)
        ]
        return parts, *(loss_matrix(task, each, data) for each in (whole, models))

    shapes = jax.eval_shape(task.init, jax.random.key(0))
    draw = lambda leaf: jnp.float32(generator.standard_normal((3, *leaf.shape)))
    (found, *chunked), whole, others = losses(jax.tree.map(draw, shapes))
    np.testing.assert_allclose(found, whole, rtol=1e-5)
    assert not np.allclose(found, others)
    for each in chunked:
        np.testing.assert_allclose(each, found, rtol=1e-6)


def test_pretrained_layers_start_every_model():
    pretrained = {"slope": jnp.float32(7), "offset": jnp.float32(8)}
    frozen = with_frozen(LINE, pretrained, IS_SLOPE)
    start = frozen.init(jax.random.key(3))
    assert float(start["slope"]) == 7
    assert float(start["offset"]) == float(LINE.init(jax.random.key(3))["offset"])


def test_freezing_needs_a_choice_of_layers():
    with pytest.raises(ValueError, match="give `shared` as well"):
        ifca(LINE, num_clusters=2, step_size=STEP, variant="reference")
