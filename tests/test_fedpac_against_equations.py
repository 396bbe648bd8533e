"""FedPAC: rounds by hand in NumPy, what V estimates, its limits, and bad clients."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import optax
import prototype_rounds as by_hand
import pytest
from prototype_rounds import CLASSES, CLIENTS, DATA, FEATURES, KEPT, TASK, close, own

from cfljax.algorithms import fedpac, ifca
from cfljax.base.types import ClientData
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.prototypes import Prototypes
from cfljax.models import linear, mlp

STEP, HEAD_STEP, PENALTY, SMALLEST = 0.2, 0.5, 0.7, 0.04
SETTINGS: dict[str, Any] = {
    "num_classes": CLASSES,
    "step_size": STEP,
    "head_step_size": HEAD_STEP,
    "penalty": PENALTY,
    "num_steps": 2,
    "num_head_epochs": 3,
    "smallest_weight": SMALLEST,
}
KEYS = [jax.random.key(seed) for seed in range(2)]


def compiled(constructor=fedpac, **settings):
    algorithm = constructor(TASK, **settings)
    return algorithm._replace(
        init=jax.jit(algorithm.init), step=jax.jit(algorithm.step)
    )


PLAIN = compiled(**SETTINGS)
# Last layers that differ, and one global prototype, so that no two rules agree.
HEADS = np.random.default_rng(4).normal(size=(CLIENTS, FEATURES, CLASSES)).astype("f4")
POINTS = np.zeros((CLASSES, FEATURES), "f4")
POINTS[1] = [0.5, -0.3]
FIRST = np.arange(CLASSES) == 1


def begin(algorithm=PLAIN):
    state = algorithm.init(jax.random.key(0), DATA)
    return state._replace(
        heads=state.heads | {"head": jnp.asarray(HEADS)},
        prototypes=Prototypes(jnp.asarray(POINTS), jnp.asarray(FIRST)),
    )


START = begin()


def combined(sent, smallest):
    """Weights of the last layers in each other's, by exact minimisation."""
    points = np.stack([message["moments"].ravel() for message in sent])
    variances = np.array([message["variance"] for message in sent])
    rows = []
    for i in range(len(sent)):
        row = by_hand.least_by_enumeration(by_hand.matrix(points, variances, i))
        row = np.where(row < smallest, 0, row)
        rows.append(row / row.sum())
    return np.stack(rows)


def client_by_hand(i, body, head, means, known, order, fallback):
    """What one client makes of a round."""
    x, y = own(i)
    model = {"body": body, "head": head}
    loss = by_hand.slopes(model, x, y, means, known, 0)[0]
    mu, counts = by_hand.class_means(model, x, y)
    moments = counts[:, None] / len(y) * mu
    features = np.tanh(x @ body)
    variance = (np.mean(np.sum(features**2, 1)) - np.sum(moments**2)) / len(y)
    if fallback:
        means = np.where(known[:, None], means, mu)
        known = known | ((counts > 0) & known.any())
    for part in order:
        pull = PENALTY if part == "body" else 0
        for _ in range(2 if part == "body" else 3):
            slope = by_hand.slopes(model, x, y, means, known, pull)[1][part]
            size = STEP if part == "body" else HEAD_STEP
            model = model | {part: model[part] - size * slope}
    sent = by_hand.class_means(model, x, y)[0]
    return model | {
        "moments": moments,
        "variance": variance,
        "means": sent,
        "counts": counts,
        "loss": loss,
    }


def two_rounds(
    order=("head", "body"),
    fallback=True,
    weigh=lambda counts: counts,
    smallest=SMALLEST,
    mix=combined,
):
    body, heads = np.asarray(START.body["body"], float), HEADS.astype(float)
    means, known, rows, losses = POINTS.astype(float), FIRST, None, None
    for _ in range(2):
        sent = [
            client_by_hand(i, body, heads[i], means, known, order, fallback)
            for i in range(CLIENTS)
        ]
        part = lambda name, sent=sent: np.stack([message[name] for message in sent])
        body, losses = np.average(part("body"), axis=0, weights=KEPT), part("loss")
        rows = mix(sent, smallest)
        heads = np.einsum("ij,jfc->ifc", rows, part("head"))
        weights = weigh(part("counts").astype(float))
        means, known = by_hand.mean_prototypes(part("means"), weights, means, known)
    return body, heads, means, known, rows, losses


@functools.cache
def found(algorithm=PLAIN):
    state = START
    for key in KEYS:
        state, info = algorithm.step(key, state, DATA)
    return state, info


def check(result, expected, atol=2e-5):
    state, info = result
    body, heads, means, known, rows, losses = expected
    close(info.combination, rows, atol=1e-4)
    close(state.body["body"], body, atol=atol)
    close(state.heads["head"], heads, atol=1e-4)
    close(state.prototypes.means, means, atol=atol)
    np.testing.assert_array_equal(state.prototypes.known, known)
    close(info.losses, losses, atol=atol)


def test_two_rounds_against_equations():
    result, expected = found(), two_rounds()
    check(result, expected)
    state, info = result
    assert np.all(np.asarray(info.gaps) < 1e-5)
    body, heads = expected[:2]
    answers = np.stack(
        [
            np.tanh(np.asarray(DATA.inputs[i], float) @ body) @ heads[i]
            for i in range(CLIENTS)
        ]
    )
    close(PLAIN.predict(state, DATA, DATA.inputs), answers, atol=3e-4)
    row, model = 4 * FEATURES + 1, 4 * (3 * FEATURES + FEATURES * CLASSES)
    held = np.array([2, 1, 2, 3, 2])
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, model + 3 * row))
    sent = model + 4 + held * (row + 4 + 4 * FEATURES)
    np.testing.assert_array_equal(info.sent, sent)


@pytest.mark.parametrize(
    "changes",
    [
        {"order": ("body", "head")},
        {"fallback": False},
        {"weigh": np.sign},
        {"smallest": 0.0},
        {"mix": lambda sent, _: np.tile(KEPT / KEPT.sum(), (CLIENTS, 1))},
        {"mix": lambda sent, _: np.eye(CLIENTS)},
        {"mix": lambda sent, s: combined([m | {"variance": 0.3} for m in sent], s)},
    ],
    ids=["body first", "no own", "unweighted", "all", "sizes", "own head", "equal V"],
)
def test_another_rule_is_another_algorithm(changes):
    with pytest.raises(AssertionError):
        check(found(), two_rounds(**changes))


@pytest.mark.slow
def test_unweighted_prototypes_are_an_option():
    equal = compiled(**SETTINGS, prototype_weights="clients")
    check(found(equal), two_rounds(weigh=np.sign))


@pytest.mark.slow
def test_clients_are_computed_one_by_one_or_together():
    together = LocalUpdate(order="batched", clients_per_chunk=2)
    check(found(compiled(**SETTINGS, update=together)), two_rounds())


def test_clients_of_equal_distributions_average_by_size():
    """j + 1 copies of the same samples: V goes as 1 / n, and so the best mixture of
    last layers is that of FedAvg."""
    copies = np.arange(CLIENTS) + 1
    base, labels = np.asarray(DATA.inputs[3, :3]), np.array([0, 1, 2], "i4")
    data = ClientData(
        jnp.asarray(np.tile(base, (CLIENTS, CLIENTS, 1))),
        jnp.asarray(np.tile(labels, (CLIENTS, CLIENTS))),
        jnp.asarray(np.arange(3 * CLIENTS)[None] < 3 * copies[:, None]),
    )
    after, info = PLAIN.step(KEYS[0], START, data)
    shares = np.tile(copies / copies.sum(), (CLIENTS, 1))
    np.testing.assert_allclose(info.combination, shares, atol=1e-4)
    close(after.heads["head"], np.tile(after.heads["head"][:1], (CLIENTS, 1, 1)))


UPDATE = LocalUpdate(
    batch_size=3,
    num_epochs=2,
    decay=0.9,
    proximal=0.1,
    optimizer=functools.partial(optax.sgd, momentum=0.9),
    keep_optimizer=True,
)


@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_with_still_heads_and_no_pull_it_is_fedavg_of_the_bodies(update):
    settings: dict[str, Any] = {"step_size": STEP, "update": update}
    still = compiled(**settings, num_classes=CLASSES, head_step_size=0.0, penalty=0.0)
    average = compiled(
        ifca,
        **settings,
        num_clusters=1,
        option="model",
        weights="samples",
        shared=lambda name: name == "head",
        variant="reference",  # Which never trains them.
    )
    mine, theirs = (a.init(jax.random.key(0), DATA) for a in (still, average))
    for key in KEYS:
        mine, info = still.step(key, mine, DATA)
        theirs, _ = average.step(key, theirs, DATA)
    close(mine.body["body"], theirs.models["body"][0], rtol=1e-5, atol=1e-6)
    close(mine.heads["head"], np.tile(theirs.models["head"], (CLIENTS, 1, 1)))
    close(np.sum(info.combination, axis=1), 1.0)
    with pytest.raises(AssertionError):  # Control.
        close(found()[0].body["body"], theirs.models["body"][0], rtol=1e-2)


def test_the_absent_and_the_diverged_spoil_nothing():
    some = compiled(**SETTINGS, participation=0.6)
    after, info = some.step(KEYS[0], START, DATA)
    here = np.isfinite(np.asarray(info.losses))
    assert here.sum() == 3
    np.testing.assert_array_equal(np.isfinite(np.asarray(info.gaps)), here)
    np.testing.assert_array_equal(after.heads["head"][~here], HEADS[~here])
    weights = np.asarray(info.combination)
    close(weights.sum(axis=1), here)
    assert not weights[:, ~here].any() and not np.asarray(info.sent)[~here].any()
    lost = START.heads | {"head": START.heads["head"].at[3].set(jnp.nan)}
    diverged, info = PLAIN.step(KEYS[0], START._replace(heads=lost), DATA)
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    alone, other = PLAIN.step(KEYS[0], START, empty)
    for found_info in (info, other):
        np.testing.assert_array_equal(found_info.assignment, [0, 0, 0, -1, 0])
        assert not np.asarray(found_info.combination)[:, 3].any()
    close(diverged.body["body"], alone.body["body"])
    close(diverged.prototypes.means, alone.prototypes.means)
    close(np.delete(diverged.heads["head"], 3, 0), np.delete(alone.heads["head"], 3, 0))
    np.testing.assert_array_equal(alone.heads["head"][3], HEADS[3])
    assert not diverged.prototypes.known[2], "only client 3 holds it"


def test_a_newcomer_trains_the_mean_head_on_the_body():
    state, _ = found()
    new = jax.tree.map(lambda leaf: leaf[2:4], DATA)
    joined = jax.jit(PLAIN.join)(jax.random.key(0), state, new)
    body = np.asarray(state.body["body"], float)
    for i in range(2):
        model = {"body": body, "head": np.mean(np.asarray(state.heads["head"]), axis=0)}
        for _ in range(3):
            slope = by_hand.slopes(model, *own(i, new), POINTS, FIRST, 0)[1]["head"]
            model["head"] = model["head"] - HEAD_STEP * slope
        close(joined.heads["head"][i], model["head"])
    np.testing.assert_array_equal(joined.body["body"], state.body["body"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_head_epochs": 0}, "`num_head_epochs` must be at least 1"),
        ({"num_iterations": 0}, "`num_iterations` must be at least 1"),
        ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
        ({"smallest_weight": -1}, "`smallest_weight` must not be negative, got -1"),
        ({"prototype_weights": "none"}, "prototype_weights"),
    ],
)
def test_misuse_is_named(settings, message):
    with pytest.raises((ValueError, jaxtyping.TypeCheckError), match=message):
        fedpac(TASK, **({"num_classes": CLASSES, "step_size": STEP} | settings))


def test_tasks_without_a_body_are_named():
    with pytest.raises(ValueError, match="`task` must have `layers`"):
        fedpac(linear(3), num_classes=CLASSES, step_size=STEP)
    shallow = fedpac(mlp((3,), hidden=(), num_classes=4), num_classes=4, step_size=STEP)
    with pytest.raises(ValueError, match="`task` must have a body"):
        jax.eval_shape(shallow.init, KEYS[0], DATA)
