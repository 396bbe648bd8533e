"""FedBN: rounds in NumPy, layers told by what they measure, shifts that it mends."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import close, compiled, differ, misuse

from cfljax.algorithms import fedavg, fedbn
from cfljax.algorithms.fedbn import measuring_layers
from cfljax.base.types import Variables
from cfljax.federated.sharing import paths
from cfljax.models import cnn, linear, mlp, normalised

CLIENTS, FEATURES, STEP, STEPS = 5, 4, 0.05, 2
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
TASK = normalised(linear(FEATURES), (FEATURES,))
MODEL = np.array([1.0, -1.0, 0.5, 0.0], "f4")
DRAW = np.random.default_rng(2).normal
OWN = {
    "scale": 1 + DRAW(size=(CLIENTS, FEATURES)).astype("f4") / 4,
    "bias": DRAW(size=(CLIENTS, FEATURES)).astype("f4"),
    "mean": DRAW(size=(CLIENTS, FEATURES)).astype("f4"),
    "var": 1 + DRAW(size=(CLIENTS, FEATURES)).astype("f4") ** 2,
}
SETTINGS: dict[str, Any] = {"step_size": STEP, "num_steps": STEPS}


@functools.cache
def build(**settings):
    return compiled(fedbn(TASK, **(SETTINGS | settings)))


def begin(algorithm):
    """Normalisations that differ."""
    state = algorithm.init(jax.random.key(0), DATA)
    own = {name: jnp.asarray(leaf) for name, leaf in OWN.items()}
    weights = {"scale": own["scale"], "bias": own["bias"]}
    part = Variables(
        {"network": None, "normalisation": weights},
        {"normalisation": {"mean": own["mean"], "var": own["var"]}},
    )
    weights = state.model.weights | {"network": jnp.asarray(MODEL)}
    model = state.model._replace(weights=weights)
    return state._replace(model=model, own=state.own._replace(part=part))


def loss_by_hand(i, model, own):
    x, y = by_hand.own(DATA, i)
    x = own["scale"] * (x - own["mean"]) / np.sqrt(own["var"] + 1e-5) + own["bias"]
    return np.mean((x @ model - y) ** 2)


def work_by_hand(i, model, own):
    """Steps of model, scale and shift, of which the batch's mean and variance depend
    on none."""
    x, y = by_hand.own(DATA, i)
    own = dict(own)
    for _ in range(STEPS):
        mean, var = x.mean(axis=0), x.var(axis=0)
        plain = (x - mean) / np.sqrt(var + 1e-5)
        rest = 2 / len(y) * ((own["scale"] * plain + own["bias"]) @ model - y)
        by_model = (own["scale"] * plain + own["bias"]).T @ rest
        by_scale, by_bias = plain.T @ rest * model, rest.sum() * model
        model = model - STEP * by_model
        own["scale"] = own["scale"] - STEP * by_scale
        own["bias"] = own["bias"] - STEP * by_bias
        own["mean"] = 0.9 * own["mean"] + 0.1 * mean
        own["var"] = 0.9 * own["var"] + 0.1 * var
    return model, own


def all_by_hand(model, own):
    """Trained models, and normalisations, leaves `[clients, features]`."""
    rows = [{name: leaf[i] for name, leaf in own.items()} for i in range(CLIENTS)]
    worked = [work_by_hand(i, model, row) for i, row in enumerate(rows)]
    models, after = zip(*worked, strict=True)
    return np.stack(models), {name: np.stack([a[name] for a in after]) for name in own}


def normalisation(state):
    part = state.own.part
    return part.weights["normalisation"] | part.statistics["normalisation"]


def close_all(found, expected):
    for name, leaf in expected.items():
        close(found[name], leaf, rtol=1e-4, atol=1e-5)


# Against equations


def test_two_rounds_against_equations():
    state, model, own = begin(build()), MODEL, OWN
    for seed in range(2):
        rows = [{name: leaf[i] for name, leaf in own.items()} for i in range(CLIENTS)]
        losses = [loss_by_hand(i, model, rows[i]) for i in range(CLIENTS)]
        state, info = build().step(jax.random.key(seed), state, DATA)
        models, own = all_by_hand(model, own)
        model = models.mean(axis=0)
        close(state.model.weights["network"], model, rtol=1e-4, atol=1e-5)
        close_all(normalisation(state), own)
        close(info.losses, losses, rtol=1e-4)
    for name, leaf in own.items():  # Control: nobody has the mean of all.
        differ(
            normalisation(state)[name], np.broadcast_to(leaf.mean(axis=0), leaf.shape)
        )
    rows = {name: leaf[:, None] for name, leaf in own.items()}
    seen = (DATA.inputs - rows["mean"]) / np.sqrt(rows["var"] + 1e-5)
    seen = rows["scale"] * np.asarray(seen) + rows["bias"]
    answers = build().predict(state, DATA, DATA.inputs)
    close(answers, seen @ model, rtol=1e-3, atol=1e-4)
    assert info.sent.tolist() == info.received.tolist() == [4 * FEATURES] * CLIENTS


# Against theory


@pytest.mark.long
def test_it_undoes_what_scanners_do_to_features():
    """Clients see one world through scales and shifts of their own: behind their own
    normalisation one model suits all, and FedAvg's does not."""
    clients, samples = 4, 64
    draw = np.random.default_rng(5)
    world = draw.normal(size=(samples, FEATURES)).astype("f4")
    scale = np.exp(draw.normal(size=(clients, 1, FEATURES))).astype("f4")
    shift = 3 * draw.normal(size=(clients, 1, FEATURES)).astype("f4")
    targets = np.broadcast_to(world @ MODEL, (clients, samples))
    data = by_hand.padded(world[None] * scale + shift, targets, [samples] * clients)

    def found(make):
        algorithm = make(TASK, step_size=0.05, num_steps=5, weights="clients")

        @jax.jit
        def run(state):
            go = lambda state, key: (algorithm.step(key, state, data)[0], None)
            state, _ = jax.lax.scan(go, state, jax.random.split(jax.random.key(1), 60))
            return algorithm.predict(state, data, data.inputs)

        answers = run(algorithm.init(jax.random.key(0), data))
        return np.mean((np.asarray(answers) - targets) ** 2)

    assert found(fedbn) < 0.05 < 0.3 < found(fedavg)


# Which layers normalise


def test_layers_are_told_by_what_they_measure_and_not_by_their_names():
    """The released code looks for "bn" in names; a shortcut's may be "1"."""
    params = Variables(
        weights={
            "bn": {"kernel": 0},
            "shortcut": {"1": {"scale": 0}, "0": {"kernel": 0}},
        },
        statistics={"shortcut": {"1": {"mean": 0}}},
    )
    is_kept = measuring_layers(params)
    kept = [name for name in paths(params) if is_kept(name)]
    assert kept == ["shortcut/1/scale", "shortcut/1/mean"]
    assert "bn" not in "".join(kept)
    # A statistic without a layer is alone.
    bare = Variables({"kernel": 0}, {"mean": 0})
    assert [name for name in paths(bare) if measuring_layers(bare)(name)] == ["mean"]


def test_a_networks_normalisation_is_found():
    task = cnn((4, 4), channels=(2,), kernel_size=3, hidden=(), batch_norm=True)
    params = jax.eval_shape(task.init, jax.random.key(0))
    is_kept = measuring_layers(params)
    kept = {name for name in paths(params) if is_kept(name)}
    names = ("bias", "mean", "scale", "var")
    assert kept == {f"normalisations/0/{name}" for name in names}
    fedbn(task, step_size=STEP)


# Against itself


@pytest.mark.long
def test_the_absent_keep_their_normalisation():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    models, own = all_by_hand(MODEL, OWN)
    mean = models[~absent].mean(axis=0)
    close(state.model.weights["network"], mean, rtol=1e-4, atol=1e-5)
    kept = {n: np.where(absent[:, None], OWN[n], leaf) for n, leaf in own.items()}
    close_all(normalisation(state), kept)


def test_newcomers_measure_from_what_everybody_began_with():
    joined = build().join(jax.random.key(7), begin(build()), DATA)
    ones, zeros = np.ones((CLIENTS, FEATURES)), np.zeros((CLIENTS, FEATURES))
    first = {"scale": ones, "bias": zeros, "mean": zeros, "var": ones}
    close_all(normalisation(joined), all_by_hand(MODEL, first)[1])
    np.testing.assert_array_equal(joined.model.weights["network"], MODEL)


# Against failures


def test_a_diverged_client_keeps_what_it_had():
    lost = np.arange(CLIENTS) == 1
    inputs = np.where(lost[:, None, None], np.float32(1e25), DATA.inputs)
    wild = DATA._replace(inputs=jnp.asarray(inputs))
    state, info = build().step(jax.random.key(0), begin(build()), wild)
    models, own = all_by_hand(MODEL, OWN)
    mean = models[~lost].mean(axis=0)
    close(state.model.weights["network"], mean, rtol=1e-4, atol=1e-5)
    kept = {n: np.where(lost[:, None], OWN[n], leaf) for n, leaf in own.items()}
    close_all(normalisation(state), kept)
    assert info.sent.tolist() == [0 if one else 4 * FEATURES for one in lost]


# What normalises any task


@pytest.mark.long
def test_its_body_is_the_networks_behind_the_normalisation():
    task = normalised(mlp((FEATURES,), hidden=(3,)), (FEATURES,))
    params = task.init(jax.random.key(0))
    moved = {"scale": 2 * jnp.ones(FEATURES), "bias": jnp.ones(FEATURES)}
    weights = params.weights | {"normalisation": moved}
    params, inputs, layers = (
        params._replace(weights=weights),
        DATA.inputs[0],
        task.layers,
    )
    assert layers is not None
    answers = layers.answer(params, layers.embed(params, inputs))
    np.testing.assert_array_equal(answers, task.predict(params, inputs))
    inner = mlp((FEATURES,), hidden=(3,)).predict(weights["network"], 2 * inputs + 1)
    close(answers, inner, rtol=1e-3, atol=1e-4)
    heads = {name for name in paths(params) if layers.is_head(name)}
    assert heads == {"network/layers/1/kernel", "network/layers/1/bias"}


@pytest.mark.long
def test_a_batch_of_padding_moves_nothing():
    params = TASK.init(jax.random.key(0))
    assert TASK.fit is not None
    batch = DATA.inputs[0], DATA.targets[0]
    nobody = jnp.zeros(len(batch[0]), bool)
    losses, after = TASK.fit(jax.random.key(0), params, *batch, nobody)
    assert np.isfinite(np.asarray(losses)).all()
    jax.tree.map(np.testing.assert_array_equal, after, params)
    _, moved = TASK.fit(jax.random.key(0), params, *batch, ~nobody)
    mean = moved.statistics["normalisation"]["mean"]
    close(mean, 0.1 * np.mean(batch[0], axis=0), atol=1e-6)


# Against misuse


@pytest.mark.parametrize("task", [linear(FEATURES), mlp((FEATURES,), hidden=(3,))])
def test_tasks_without_normalisation_are_refused(task):
    with pytest.raises(ValueError, match="`task` must have layers that normalise, "):
        fedbn(task, step_size=STEP)


def test_other_layers_may_be_named():
    task = mlp((FEATURES,), hidden=(3,))
    fedbn(task, step_size=STEP, normalisation=lambda name: name.startswith("layers/0"))


test_misuse_is_named = misuse(
    functools.partial(fedbn, TASK, step_size=STEP),
    ({"normalisation": lambda name: True}, "`normalisation` must leave some leaves"),
    ({"normalisation": lambda name: False}, "`task` must have layers that normalise"),
    ({"num_steps": 0}, "`num_steps` must be at least 1"),
)
test_misuse_of_the_layer_is_named = misuse(
    lambda **given: normalised(**({"task": TASK, "input_shape": (2,)} | given)),
    ({}, "`task` must train on what it is judged by"),
    ({"task": linear(2), "input_shape": (0,)}, "`input_shape` must be positive"),
)
