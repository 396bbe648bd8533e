"""The FEMNIST experiment: its tests, traffic and table by hand."""

import dataclasses
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cfljax.algorithms import fedavg
from cfljax.kernels.local_update import LocalUpdate
from cfljax.kernels.sharing import split
from cfljax.models import mlp
from cfljax.models.femnist import femnist_cnn
from cfljax.types import ClientData
from experiments.ifca.femnist_config import preset
from experiments.ifca.femnist_methods import Method, method_of, score, trained_alone
from experiments.ifca.femnist_network import features, head, is_shared, network
from experiments.ifca.femnist_samples import Samples, mean_of_clients, padded

SIZES = {"num_channels": 1, "num_hidden": 5}
TASK = network((4, 4), classes=3, **SIZES)
COUNTS = np.array([4, 1, 3, 2, 4])
UPDATE = LocalUpdate(num_epochs=1)


def some_clients(seed: int, counts: np.ndarray = COUNTS) -> ClientData:
    random = np.random.default_rng(seed)
    shape = (len(counts), max(counts))
    return ClientData(
        jnp.float32(random.uniform(size=(*shape, 4, 4))),
        jnp.int32(random.integers(0, 3, shape)),
        jnp.asarray(np.arange(shape[1])[None] < counts[:, None]),
    )


def some_models(count: int):
    """Random models that differ in their last layer only."""
    random = np.random.default_rng(3)
    draw = lambda shape: jnp.float32(random.normal(size=shape))
    one = jax.tree.map(lambda leaf: draw(leaf.shape), TASK.init(jax.random.key(0)))
    stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * count), one)
    last = jax.tree.map(lambda leaf: 2 * draw(leaf.shape), stacked["output"])
    return stacked | {"output": last}


MODELS = some_models(3)
TRAIN, TEST = some_clients(1), some_clients(2, np.array([2, 3, 1, 5, 2]))
SAMPLES = Samples.of(TRAIN), Samples.of(TEST)
model = lambda j: jax.tree.map(lambda leaf: leaf[j], MODELS)


# Logits `[models, clients, samples, classes]`, one client at a time.
predict_all = jax.jit(
    jax.vmap(jax.vmap(TASK.predict, in_axes=(None, 0)), in_axes=(0, None))
)


def losses_and_rights(data: ClientData) -> tuple[np.ndarray, list[list[np.ndarray]]]:
    """Mean losses `[clients, models]`, and which samples each model gets right."""
    losses, rights = [], []
    logits = np.asarray(predict_all(MODELS, data.inputs))
    for client, (targets, mask) in enumerate(
        zip(np.asarray(data.targets), np.asarray(data.mask), strict=True)
    ):
        targets, scores = targets[mask], [each[client][mask] for each in logits]
        picked = [s[np.arange(len(s)), targets] for s in scores]
        logs = [np.log(np.exp(s).sum(axis=1)) for s in scores]
        losses.append([(a - b).mean() for a, b in zip(logs, picked, strict=True)])
        rights.append([s.argmax(axis=1) == targets for s in scores])
    return np.array(losses), rights


CLUSTERS, OWN = np.array([2, 0, -1, 1, 1]), np.array([0, 1, 2, 0, 1])
KINDS = {
    kind.name: kind
    for kind in map(method_of, ("ifca-3", "one_shot-3", "fedavg", "local"))
}


@jax.jit
def scores(models):
    """Of all methods; their clusters and models are those above, global is the second
    model."""
    state = types.SimpleNamespace
    take = lambda index: jax.tree.map(lambda leaf: leaf[index], models)
    states = {
        "ifca": state(models=models),
        "one_shot": state(models=models, clusters=jnp.asarray(CLUSTERS)),
        "fedavg": state(model=take(1)),
        "local": state(models=take(OWN)),
    }
    return {
        name: score(KINDS[name], TASK, state, *SAMPLES, is_shared)
        for name, state in states.items()
    }


def test_ifca_is_tested_by_lowest_training_loss_over_all_test_samples():
    choice = losses_and_rights(TRAIN)[0].argmin(axis=1)
    tested, rights = losses_and_rights(TEST)
    right = [rights[client][choice[client]] for client in range(5)]
    found = scores(MODELS)["ifca"]
    expected = np.concatenate(right).mean()
    np.testing.assert_allclose(found.accuracy, expected, rtol=1e-6)
    assert found.used_clusters == len(set(choice.tolist())) > 1
    assert found.is_finite == 1
    # Neither equal weights of clients nor a choice by test loss would pass.
    assert abs(np.mean([each.mean() for each in right]) - expected) > 1e-3
    assert (tested.argmin(axis=1) != choice).any()


def test_a_model_that_diverged_is_never_chosen_nor_right():
    spoil = lambda leaf: leaf.at[0].set(jnp.nan)
    spoiled = MODELS | {"output": jax.tree.map(spoil, MODELS["output"])}
    found = scores(spoiled)["ifca"]
    assert found.is_finite == 0 and found.accuracy > 0 and found.used_clusters <= 2
    lost = scores(jax.tree.map(lambda leaf: leaf * jnp.nan, MODELS))["ifca"]
    assert (lost.accuracy, lost.used_clusters, lost.is_finite) == (0, 0, 0)


def test_one_shot_keeps_its_clusters_and_global_and_local_have_theirs():
    _, rights = losses_and_rights(TEST)
    found = scores(MODELS)
    expected = {
        "one_shot": [rights[i][max(j, 0)] * (j >= 0) for i, j in enumerate(CLUSTERS)],
        "fedavg": [each[1] for each in rights],
        "local": [rights[i][j] for i, j in enumerate(OWN)],
    }
    means = {name: np.concatenate(right).mean() for name, right in expected.items()}
    assert len({found["ifca"].accuracy.item(), *means.values()}) == 4
    for name, mean in means.items():
        np.testing.assert_allclose(found[name].accuracy, mean, rtol=1e-6)
    assert found["one_shot"].used_clusters == 3
    assert np.isnan(found["local"].used_clusters)


def test_samples_are_the_clients_without_padding():
    samples = SAMPLES[0]
    again = padded(samples)
    mask = np.asarray(TRAIN.mask)
    np.testing.assert_array_equal(again.mask, mask)
    for ours, theirs in zip(again[:2], TRAIN[:2], strict=True):
        np.testing.assert_array_equal(np.asarray(ours)[mask], np.asarray(theirs)[mask])
    assert samples.inputs.shape[0] == mask.sum() < mask.size
    means = mean_of_clients(samples.targets.astype(jnp.float32)[:, None], samples)
    targets = np.asarray(TRAIN.targets)
    expected = [row[own].mean() for row, own in zip(targets, mask, strict=True)]
    np.testing.assert_allclose(means[:, 0], expected, rtol=1e-6)


def test_the_last_layer_on_features_is_the_network_on_images():
    images = SAMPLES[0].inputs
    logits, found = jax.jit(
        lambda params: (
            TASK.predict(params, images),
            features(params, images, **SIZES),
        )
    )(model(0))
    assert found.shape == (len(images), 5) and float(found.min()) >= 0
    own, _ = split(model(0), is_shared)
    np.testing.assert_allclose(head(TASK).predict(own, found), logits, rtol=1e-5)
    other, _ = split(model(1), is_shared)
    assert np.abs(head(TASK).predict(other, found) - logits).max() > 1e-2
    key = jax.random.key(4)
    drawn = jax.tree.leaves(head(TASK).init(key))
    for ours, theirs in zip(
        drawn, jax.tree.leaves(TASK.init(key)["output"]), strict=True
    ):
        np.testing.assert_array_equal(ours, theirs)


def test_published_sizes_make_the_network_of_leaf():
    paper = preset("paper")
    ours = network(
        (28, 28),
        num_channels=paper.num_channels,
        num_hidden=paper.num_hidden,
        classes=62,
    )
    shape = lambda task: jax.eval_shape(task.init, jax.random.key(0))
    assert shape(ours) == shape(femnist_cnn())
    assert shape(ours) != shape(femnist_cnn(hidden=128))


def test_local_models_train_only_when_drawn_and_then_as_in_fedavg():
    settings = {"step_size": 0.1, "participation": 0.2, "update": UPDATE}
    task, key = mlp((4, 4), hidden=(), num_classes=3), jax.random.key(7)
    algorithm = trained_alone(task, **settings)
    state = jax.jit(algorithm.init)(jax.random.key(1), TRAIN)
    after, info = jax.jit(algorithm.step)(key, state, TRAIN)
    kernels = np.asarray([jax.tree.leaves(s.models)[1] for s in (state, after)])
    (client,) = np.flatnonzero((kernels[0] != kernels[1]).any(axis=(1, 2)))
    assert not np.any(info.received) and not np.any(info.sent)
    # FedAvg of the same single participant, from the same model.
    average = fedavg(task, **settings)
    start = jax.eval_shape(average.init, key, TRAIN)
    own = jax.tree.map(lambda leaf: leaf[client], state.models)
    alone, told = jax.jit(average.step)(key, start._replace(model=own), TRAIN)
    assert int(np.flatnonzero(told.received)[0]) == client
    ours = jax.tree.map(lambda leaf: leaf[client], after.models)
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(alone.model), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("text", ["ifca", "ifca-0", "fedavg-2", "ifca-x", "", "IFCA-2"])
def test_methods_that_are_none_are_refused(text):
    with pytest.raises(ValueError, match="a method must be fedavg, local, or ifca"):
        method_of(text)
    assert method_of("one_shot-3") == Method("one_shot", 3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"methods": ("ifca-2", "ifca-2")}, "`methods` must hold different names"),
        ({"variants": ()}, "`variants` must hold different names"),
        ({"num_trials": 0}, "`num_trials` must be at least 1, got 0"),
        ({"step_size": float("nan")}, "`step_size` must be finite"),
        ({"warm_up_rounds": -1}, "`warm_up_rounds` must not be negative"),
    ],
)
def test_impossible_configurations_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(preset("quick"), **change)
