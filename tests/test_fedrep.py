"""FedRep: rounds in NumPy, stages in their order, and last layers that stay at home."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import close, compiled, differ, misuse

from cfljax.algorithms import fedrep
from cfljax.base.types import Layers, Task
from cfljax.federated.local_update import LocalUpdate
from cfljax.models import linear, mlp

CLIENTS, FEATURES, HIDDEN, STEP, HEAD_STEP = 5, 4, 2, 0.02, 0.03
KEPT = np.array([8, 2, 5, 8, 4])  # Real samples of each client.
DATA = by_hand.draw(KEPT, num_samples=8, num_features=FEATURES, seed=1)
BODY = np.random.default_rng(3).normal(size=(FEATURES, HIDDEN)).astype("f4")
HEADS = np.random.default_rng(2).normal(size=(CLIENTS, HIDDEN)).astype("f4")
SETTINGS: dict[str, Any] = {
    "step_size": STEP,
    "personal_step_size": HEAD_STEP,
    "num_steps": 2,
    "num_personal_steps": 3,
}


def embed(params, inputs):
    return inputs @ params["body"]


def answer(params, features):
    return features @ params["head"]


def squares(outputs, targets):
    return jnp.square(outputs - targets)


TASK = Task(
    init=lambda key: {
        "body": jax.random.normal(key, (FEATURES, HIDDEN)),
        "head": jax.random.normal(jax.random.fold_in(key, 1), (HIDDEN,)),
    },
    losses=lambda params, x, y: squares(answer(params, embed(params, x)), y),
    predict=lambda params, x: answer(params, embed(params, x)),
    layers=Layers(embed, answer, squares, lambda name: name == "head"),
)


@functools.cache
def build(**settings):
    return compiled(fedrep(TASK, **(SETTINGS | settings)))


def begin(algorithm):
    """Last layers that differ."""
    state = algorithm.init(jax.random.key(0), DATA)
    part = {"body": None, "head": jnp.asarray(HEADS)}
    model = state.model | {"body": jnp.asarray(BODY)}
    return state._replace(model=model, own=state.own._replace(part=part))


def slopes(i, body, head):
    """Of a client's loss, by the last layer and by the body."""
    x, y = by_hand.own(DATA, i)
    rest = 2 / len(y) * (x @ body @ head - y)
    return (x @ body).T @ rest, np.outer(x.T @ rest, head)


def work_by_hand(i, body, head, *, heads_first=True):
    for stage in (heads_first, not heads_first):
        for _ in range(3 if stage else 2):
            by_head, by_body = slopes(i, body, head)
            if stage:
                head = head - HEAD_STEP * by_head
            else:
                body = body - STEP * by_body
    return body, head


def all_by_hand(body, heads, **how):
    worked = [work_by_hand(i, body, heads[i], **how) for i in range(CLIENTS)]
    return map(np.stack, zip(*worked, strict=True))


# Against equations


def test_two_rounds_against_equations():
    state, body, heads = begin(build()), BODY, HEADS
    for seed in range(2):
        losses = [
            by_hand.loss(DATA, i, body.astype(float) @ heads[i]) for i in range(CLIENTS)
        ]
        state, info = build().step(jax.random.key(seed), state, DATA)
        bodies, heads = all_by_hand(body, heads)
        body = bodies.mean(axis=0)
        close(state.model["body"], body, rtol=1e-4, atol=1e-5)
        close(state.own.part["head"], heads, rtol=1e-4, atol=1e-5)
        close(info.losses, losses, rtol=1e-4)
    answers = build().predict(state, DATA, DATA.inputs)
    expected = np.einsum("csf,fh,ch->cs", DATA.inputs, body, heads)
    close(answers, expected, rtol=1e-4, atol=1e-4)
    assert info.sent.tolist() == info.received.tolist() == [4 * BODY.size] * CLIENTS


def test_the_last_layer_is_trained_first():
    state, _ = build().step(jax.random.key(0), begin(build()), DATA)
    bodies, heads = all_by_hand(BODY, HEADS, heads_first=False)
    differ(state.model["body"], bodies.mean(axis=0), 1e-3, 1e-3)
    differ(state.own.part["head"], heads, 1e-3, 1e-3)


def test_the_released_code_counts_samples():
    algorithm = build(weights="samples")
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    bodies, _ = all_by_hand(BODY, HEADS)
    close(state.model["body"], np.average(bodies, axis=0, weights=KEPT), atol=1e-5)
    differ(state.model["body"], bodies.mean(axis=0))


# Against theory


@pytest.mark.long
def test_with_many_steps_a_last_layer_is_the_best_for_its_body():
    """Least squares on the features; the body at rest."""
    algorithm = build(step_size=0.0, num_personal_steps=3000)
    state, _ = algorithm.step(jax.random.key(0), begin(algorithm), DATA)
    close(state.model["body"], BODY)
    for i in range(CLIENTS):
        first, _ = slopes(i, BODY, HEADS[i])
        last, _ = slopes(i, BODY, np.asarray(state.own.part["head"][i]))
        assert np.abs(last).max() < 0.01 * np.abs(first).max()


# Against itself


@pytest.mark.long
def test_the_absent_keep_their_last_layers():
    half = build(participation=0.4)
    state, info = half.step(jax.random.key(3), begin(half), DATA)
    absent = np.isnan(np.asarray(info.losses))
    assert absent.sum() == 3
    bodies, heads = all_by_hand(BODY, HEADS)
    close(state.model["body"], bodies[~absent].mean(axis=0), rtol=1e-4, atol=1e-5)
    close(state.own.part["head"], np.where(absent[:, None], HEADS, heads), atol=1e-5)


def test_newcomers_train_a_last_layer_from_the_first_one():
    state = begin(build())
    joined = build().join(jax.random.key(7), state, DATA)
    first = np.tile(np.asarray(state.model["head"]), (CLIENTS, 1))
    heads = list(all_by_hand(BODY, first))[1]
    close(joined.own.part["head"], heads, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(joined.model["body"], BODY)


# Against failures


def test_a_diverged_client_keeps_what_it_had():
    lost = np.arange(CLIENTS) == 1
    inputs = np.where(lost[:, None, None], np.float32(1e25), DATA.inputs)
    wild = DATA._replace(inputs=jnp.asarray(inputs))
    state, info = build().step(jax.random.key(0), begin(build()), wild)
    bodies, heads = all_by_hand(BODY, HEADS)
    close(state.model["body"], bodies[~lost].mean(axis=0), rtol=1e-4, atol=1e-5)
    close(state.own.part["head"], np.where(lost[:, None], HEADS, heads), atol=1e-5)
    assert info.sent.tolist() == [0 if one else 4 * BODY.size for one in lost]


# Against misuse


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (linear(FEATURES), "`task` must have `layers`"),
        (mlp((FEATURES,), hidden=()), "`task` must have a body below its last layer"),
    ],
)
def test_tasks_without_two_parts_are_refused(task, message):
    with pytest.raises(ValueError, match=message):
        fedrep(task, step_size=STEP)
    fedrep(mlp((FEATURES,), hidden=(3,)), step_size=STEP)  # Control.


test_misuse_is_named = misuse(
    functools.partial(fedrep, TASK, step_size=STEP),
    ({"num_personal_steps": 0}, "`num_steps` must be at least 1|`num_personal_steps`"),
    ({"personal_update": LocalUpdate(proximal=0.1)}, "`personal_update` must have no"),
    (
        {"personal_update": LocalUpdate(keep_optimizer=True)},
        "`personal_update` must have no proximal term and keep no optimiser",
    ),
)
