"""Weight sharing by hand: what is common, what is trained, what is sent."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms import ifca
from cfljax.algorithms.ifca import State
from cfljax.kernels.evaluate import loss_matrix
from cfljax.kernels.sharing import join, paths, split, with_frozen
from cfljax.models import mlp
from cfljax.types import ClientData, Task, Variables

STEP, CLIENTS, CLUSTERS = 0.1, 4, 2
# y = a x + b: the slope is common, the offset is the cluster's.
LINE = Task(
    init=lambda key: {"slope": jnp.zeros(()), "offset": jax.random.normal(key, ())},
    losses=lambda p, x, y: jnp.square(p["slope"] * x + p["offset"] - y),
    predict=lambda p, x: p["slope"] * x + p["offset"],
)
IS_SLOPE = lambda name: name == "slope"
INPUTS = jax.random.normal(jax.random.key(1), (CLIENTS, 6))
OFFSETS = jnp.array([-2.0, -2.0, 2.0, -2.0])
DATA = ClientData(INPUTS, 3 * INPUTS + OFFSETS[:, None], jnp.ones((CLIENTS, 6), bool))
START = {"slope": jnp.array([1.0, 1.0]), "offset": jnp.array([-1.0, 1.0])}
ASSIGNMENT = [0, 0, 1, 0]


def gradients(client):
    """Of the client's loss at its cluster's model: by slope and by offset."""
    x, y = np.asarray(DATA.inputs[client]), np.asarray(DATA.targets[client])
    error = x + [-1.0, 1.0][ASSIGNMENT[client]] - y
    return np.mean(2 * error * x), np.mean(2 * error)


def one_round(**settings):
    algorithm = ifca(
        LINE, num_clusters=CLUSTERS, step_size=STEP, shared=IS_SLOPE, **settings
    )
    state, info = algorithm.step(jax.random.key(0), State(START), DATA)
    assert info.assignment.tolist() == ASSIGNMENT
    return state.models, info


@pytest.mark.parametrize(
    "settings", [{"option": "model"}, {"normalise": "cluster"}], ids=["II", "I"]
)
def test_common_layers_are_averaged_over_all_and_others_by_cluster(settings):
    models, info = one_round(**settings)
    by_slope, by_offset = np.array([gradients(i) for i in range(CLIENTS)]).T
    expected = 1 - STEP * by_slope.mean()
    np.testing.assert_allclose(models["slope"], [expected] * 2, rtol=1e-5)
    offsets = [-1 - STEP * by_offset[[0, 1, 3]].mean(), 1 - STEP * by_offset[2]]
    np.testing.assert_allclose(models["offset"], offsets, rtol=1e-5)
    wrong = 1 - STEP * by_slope[[0, 1, 3]].mean()  # Averaged in the cluster only.
    assert abs(wrong - expected) > 1e-3
    assert info.received.tolist() == [4 + 2 * 4] * CLIENTS
    assert info.sent.tolist() == [8 + 1] * CLIENTS


@pytest.mark.parametrize("settings", [{"option": "model"}, {"normalise": "cluster"}])
def test_frozen_layers_stay_and_are_not_sent(settings):
    models, info = one_round(variant="reference", **settings)
    np.testing.assert_array_equal(models["slope"], START["slope"])
    _, by_offset = np.array([gradients(i) for i in range(CLIENTS)]).T
    offsets = [-1 - STEP * by_offset[[0, 1, 3]].mean(), 1 - STEP * by_offset[2]]
    np.testing.assert_allclose(models["offset"], offsets, rtol=1e-5)
    assert info.received.tolist() == [2 * 4] * CLIENTS
    assert info.sent.tolist() == [4 + 1] * CLIENTS


def test_divisors_of_all_clients_move_common_layers_alike():
    every, _ = one_round(normalise="all")
    cluster, _ = one_round(normalise="cluster")
    # All clients participate, so that m is the number of members of all clusters.
    np.testing.assert_allclose(every["slope"], cluster["slope"], rtol=1e-5)
    assert not np.allclose(every["offset"], cluster["offset"])


def test_parts_are_named_and_put_together_again():
    params = mlp((2, 2), hidden=(3,), num_classes=2).init(jax.random.key(0))
    assert paths(params) == [
        f"layers/{i}/{leaf}" for i in range(2) for leaf in ("bias", "kernel")
    ]
    own, common = split(params, lambda name: name.startswith("layers/0"))
    assert len(jax.tree.leaves(own)) == len(jax.tree.leaves(common)) == 2
    jax.tree.map(np.testing.assert_array_equal, join(own, common), params)
    measured = Variables({"norm": 1.0}, {"norm": 2.0})
    assert paths(measured) == ["norm", "norm"]
    with pytest.raises(ValueError, match="`shared` must be true of some"):
        split(params, lambda name: False)


def test_losses_of_parts_are_those_of_whole_models():
    task = mlp((6,), hidden=(3,), num_classes=2)
    models = jax.vmap(task.init)(jax.random.split(jax.random.key(0), 3))
    is_first = lambda name: name.startswith("layers/0")
    own, common = split(models, is_first)
    first = jax.tree.map(lambda leaf: leaf[0], common)
    data = ClientData(
        jax.random.normal(jax.random.key(1), (4, 5, 6)),
        jnp.ones((4, 5), jnp.int32),
        jnp.ones((4, 5), bool),
    )
    repeat = lambda leaf: jnp.broadcast_to(leaf, (3,) + leaf.shape)
    whole = join(own, jax.tree.map(repeat, first))
    found = loss_matrix(task, own, data, common=first)
    np.testing.assert_allclose(found, loss_matrix(task, whole, data), rtol=1e-5)
    assert not np.allclose(found, loss_matrix(task, models, data))
    for size in (1, 3, 4):
        chunked = loss_matrix(task, own, data, common=first, clients_per_chunk=size)
        np.testing.assert_allclose(chunked, found, rtol=1e-6)


def test_pretrained_layers_start_every_model():
    frozen = with_frozen(
        LINE, {"slope": jnp.float32(7), "offset": jnp.float32(8)}, IS_SLOPE
    )
    start = frozen.init(jax.random.key(3))
    assert start["slope"] == 7
    assert start["offset"] == LINE.init(jax.random.key(3))["offset"]


def test_freezing_needs_a_choice_of_layers():
    with pytest.raises(ValueError, match="give `shared` as well"):
        ifca(LINE, num_clusters=2, step_size=STEP, variant="reference")
