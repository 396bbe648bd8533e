"""FedProto: rounds by hand in NumPy, its limits, and training towards prototypes."""

import functools
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import prototype_rounds as network
import pytest
from by_hand import UPDATE, compiled, misuse, rounds
from prototype_rounds import CLASSES, CLIENTS, DATA, FEATURES, TASK

from cfljax.algorithms import fedpac, fedproto, local
from cfljax.algorithms.fedproto import prototype_scores
from cfljax.attacks import build as attack
from cfljax.attacks import threat
from cfljax.base.types import ClientData
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.prototypes import Prototypes, aligned
from cfljax.models import cnn, linear

STEP, PENALTY = 0.2, 0.7
SETTINGS: dict[str, Any] = {
    "num_classes": CLASSES,
    "step_size": STEP,
    "penalty": PENALTY,
    "num_steps": 2,
    "start": "independent",
}
KEY = jax.random.key(0)
close = functools.partial(by_hand.close, rtol=3e-5, atol=3e-6)
differ = functools.partial(by_hand.differ, rtol=3e-5, atol=3e-6)


def build(**settings):
    algorithm = compiled(fedproto(TASK, **settings))
    return algorithm._replace(predict=jax.jit(algorithm.predict))


PLAIN = build(**SETTINGS)
SAMPLES = build(**SETTINGS, weights="samples")
REFERENCE = build(**SETTINGS, variant="reference")
START = PLAIN.init(jax.random.key(0), DATA)


def round_by_hand(
    models, means, known, *, weigh=np.sign, penalty=PENALTY, in_training=False
):
    """The models, the prototypes, what is known of them, and the losses."""
    after, sent, counts, losses = [], [], [], []
    for i, model in enumerate(models):
        x, y = by_hand.own(DATA, i)
        seen = []
        for _ in range(2):
            seen.append(network.class_means(model, x, y)[0])
            slope = network.slopes(model, x, y, means, known, penalty)[1]
            model = {n: model[n] - STEP * slope[n] for n in model}
        losses.append(network.slopes(model, x, y, means, known, 0)[0])
        mean, count = network.class_means(model, x, y)
        after.append(model)
        sent.append(np.mean(seen, axis=0) if in_training else mean)
        counts.append(count)
    weights = weigh(np.array(counts, float))
    prototypes = network.mean_prototypes(np.array(sent), weights, means, known)
    return after, *prototypes, losses


def two_rounds(**changes):
    models = network.models_of(START.models)
    means, known = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES, bool)
    for _ in range(2):
        models, means, known, losses = round_by_hand(models, means, known, **changes)
    return models, means, known, losses


@functools.cache
def found(algorithm):
    return rounds(algorithm, START, DATA)


def check(result, expected):
    state, info = result
    models, means, known, losses = expected
    for name in ("body", "head"):
        close(state.models[name], np.stack([model[name] for model in models]))
    close(state.prototypes.means, means)
    np.testing.assert_array_equal(state.prototypes.known, known)
    close(info.losses, losses)


# Against equations


@pytest.mark.parametrize(
    ("algorithm", "weigh"), [(PLAIN, np.sign), (SAMPLES, lambda counts: counts)]
)
def test_two_rounds_against_equations(algorithm, weigh):
    check(found(algorithm), two_rounds(weigh=weigh))


@pytest.mark.parametrize(
    "changes",
    [
        {"weigh": lambda counts: counts},
        {"penalty": PENALTY / FEATURES},  # A sum where a mean is taken, or vice versa.
        {"penalty": 0.0},
        # Equation 6 as it is printed: weights of sum 1 / |N_j|.
        {"weigh": lambda counts: np.sign(counts) / np.sign(counts).sum(0).clip(1)},
    ],
    ids=["by samples", "pull", "no pull", "as printed"],
)
def test_another_rule_is_another_algorithm(changes, monkeypatch):
    if "weigh" in changes and changes["weigh"](np.ones((2, 1)))[0] < 1:
        total = lambda means, weights, *_: (
            np.einsum("ij,ijf->jf", weights, means) / len(means),
            weights.sum(axis=0) > 0,
        )
        monkeypatch.setattr(network, "mean_prototypes", total)
    with pytest.raises(AssertionError):
        check(found(PLAIN), two_rounds(**changes))


def test_two_rounds_of_the_reference_against_equations():
    """Prototypes are means of what both steps have seen before they were taken."""
    check(found(REFERENCE), two_rounds(in_training=True))
    with pytest.raises(AssertionError):
        check(found(REFERENCE), two_rounds())
    close(found(REFERENCE)[1].sent, found(PLAIN)[1].sent)


def test_the_reference_forgets_classes():
    """Of which no participant of a round has a sample; the paper's are kept."""
    only = DATA._replace(mask=DATA.mask & (DATA.targets != 2))
    for algorithm, kept in ((PLAIN, True), (REFERENCE, False)):
        state, _ = found(algorithm)
        assert state.prototypes.known.tolist() == [True, True, True, False]
        after, _ = algorithm.step(KEY, state, only)
        assert after.prototypes.known.tolist() == [True, True, kept, False]


@pytest.mark.long
def test_mini_batches_are_collected():
    """Every sample once an epoch, where nothing is trained; statistics move as ever."""
    update = LocalUpdate(batch_size=2, num_epochs=3)
    settings: dict[str, Any] = SETTINGS | {"num_steps": 1, "step_size": 0.0}
    still = build(**settings, update=update, variant="reference")
    state, _ = still.step(KEY, START, DATA)
    paper, _ = PLAIN.step(KEY, START, DATA)  # Trained, for its control.
    means, counts = zip(
        *(
            network.class_means(model, *by_hand.own(DATA, i))
            for i, model in enumerate(network.models_of(START.models))
        ),
        strict=True,
    )
    nothing = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES, bool)
    expected = network.mean_prototypes(np.array(means), np.sign(counts), *nothing)[0]
    close(state.prototypes.means, expected)
    differ(paper.prototypes.means, expected)


def test_bytes_are_those_of_the_classes_held():
    _, info = found(PLAIN)
    row = 4 * FEATURES + 1  # A point, and the class's name.
    held = np.array([2, 1, 2, 3, 2])
    np.testing.assert_array_equal(info.sent, row * held)
    np.testing.assert_array_equal(info.received, np.full(CLIENTS, 3 * row))
    _, counted = found(SAMPLES)
    np.testing.assert_array_equal(counted.sent, (row + 4) * held)


def test_the_nearest_prototype_is_the_answer():
    state, _ = found(PLAIN)
    scores = np.asarray(PLAIN.predict(state, DATA, DATA.inputs))
    models, means, known, _ = two_rounds()
    for i, model in enumerate(models):
        h = np.tanh(np.asarray(DATA.inputs[i], float) @ model["body"])
        away = np.mean((h[:, None] - means[None]) ** 2, axis=2)
        close(scores[i][:, known], -away[:, known])
        assert np.all(scores[i].argmax(1) == np.where(known, away, np.inf).argmin(1))
    assert np.all(scores[:, :, ~known] == -np.inf) and (~known).sum() == 1


def test_before_any_prototype_the_last_layer_answers():
    logits = jax.vmap(TASK.predict)(START.models, DATA.inputs)
    close(PLAIN.predict(START, DATA, DATA.inputs), logits)
    state, _ = found(PLAIN)
    head = fedproto(TASK, **SETTINGS, answer="head")
    logits = jax.vmap(TASK.predict)(state.models, DATA.inputs)
    close(head.predict(state, DATA, DATA.inputs), logits)
    differ(PLAIN.predict(state, DATA, DATA.inputs), logits)


# Against itself


@pytest.mark.long
@pytest.mark.parametrize("update", [None, pytest.param(UPDATE, marks=pytest.mark.slow)])
def test_without_penalty_it_is_local(update):
    settings: dict[str, Any] = {"update": update, "num_steps": 1 if update else 2}
    alone = compiled(local(TASK, step_size=STEP, **settings))
    free = build(**(SETTINGS | settings | {"penalty": 0.0}))
    run = lambda a: rounds(a, a.init(jax.random.key(0), DATA), DATA)[0]
    expected = run(alone).models["body"]
    np.testing.assert_allclose(run(free).models["body"], expected, rtol=1e-6, atol=1e-7)
    differ(found(PLAIN)[0].models["body"], expected, rtol=1e-3, atol=0)


@pytest.mark.long
def test_the_absent_and_the_diverged_spoil_nothing():
    """A class that no participant holds keeps its prototype."""
    some = build(**SETTINGS, participation=0.4)
    state, _ = found(PLAIN)
    for seed in range(2):
        after, info = some.step(jax.random.key(seed), state, DATA)
        here = np.isfinite(np.asarray(info.losses))
        assert here.sum() == 2
        for name in ("body", "head"):
            before, now = state.models[name], after.models[name]
            np.testing.assert_array_equal(now[~here], before[~here])
        held = np.isin(np.arange(CLASSES), np.asarray(DATA.targets)[here])
        changed = np.any(after.prototypes.means != state.prototypes.means, axis=1)
        np.testing.assert_array_equal(changed, held)
        assert np.all(np.asarray(info.assignment) == np.where(here, 0, -1))
    lost = jax.tree.map(lambda leaf: leaf.at[3].set(jnp.nan), START.models)
    after, info = PLAIN.step(KEY, START._replace(models=lost), DATA)
    np.testing.assert_array_equal(info.assignment, [0, 0, 0, -1, 0])
    np.testing.assert_array_equal(after.prototypes.known, [True, True, False, False])
    assert np.isfinite(after.prototypes.means).all() and info.sent[3] == 0
    empty = DATA._replace(mask=DATA.mask.at[3].set(False))
    other, info = PLAIN.step(KEY, START, empty)
    close(other.prototypes.means, after.prototypes.means)
    np.testing.assert_array_equal(info.assignment, [0, 0, 0, -1, 0])
    np.testing.assert_array_equal(other.models["body"][3], START.models["body"][3])


@pytest.mark.long
def test_a_liar_lies_about_its_prototypes():
    """It sends minus the honest mean, in which classes that are not held count as 0."""
    liars = np.arange(CLIENTS) == 3
    lying = build(**SETTINGS, threat=threat(attack("sign_flip"), liars))
    start = lying.init(jax.random.key(0), DATA)
    after, _ = lying.step(KEY, start, DATA)
    honest, _ = PLAIN.step(KEY, START, DATA)
    close(after.models["body"], honest.models["body"])
    pairs = [
        network.class_means(model, *by_hand.own(DATA, i))
        for i, model in enumerate(network.models_of(honest.models))
    ]
    means, counts = (np.stack(parts) for parts in zip(*pairs, strict=True))
    nothing = np.zeros((CLASSES, FEATURES)), np.zeros(CLASSES, bool)
    told = network.mean_prototypes(means, np.sign(counts), *nothing)[0]
    close(honest.prototypes.means, told)
    means[3] = -np.mean(means[~liars], axis=0)
    told = network.mean_prototypes(means, np.sign(counts), *nothing)[0]
    close(after.prototypes.means, told)


def test_a_newcomer_trains_a_fresh_model_with_the_prototypes():
    state, _ = found(PLAIN)
    new = jax.tree.map(lambda leaf: leaf[2:4], DATA)
    joined = jax.jit(PLAIN.join)(jax.random.key(0), state, new)
    means, known = (np.asarray(part) for part in state.prototypes)
    start = network.models_of(START.models)  # Drawn from the same key.
    for i, model in enumerate(start[:2]):
        x, y = by_hand.own(new, i)
        for _ in range(2):
            slope = network.slopes(model, x, y, means, known, PENALTY)[1]
            model = {n: model[n] - STEP * slope[n] for n in model}
        close(joined.models["body"][i], model["body"])
    jax.tree.map(np.testing.assert_array_equal, joined.prototypes, state.prototypes)


# Against equations: prototypes, whoever trains towards them


def test_the_body_is_run_once_in_a_step():
    """The two losses share one forward pass."""
    task, calls = network.counting()
    every = Prototypes(jnp.zeros((CLASSES, FEATURES)), jnp.ones(CLASSES, bool))
    fit = aligned(task, every, 1.0).fit
    assert fit is not None
    one = jax.tree.map(lambda leaf: leaf[0], DATA)
    loss = lambda model: jnp.sum(fit(KEY, model, *one)[0])
    jax.make_jaxpr(jax.grad(loss))(network.init(KEY))
    assert len(calls) == 1


def test_scores_are_no_confusion_of_large_numbers():
    """A distance between far points, which a difference of squares would lose."""
    points = jnp.asarray([[3000.0, 4000.0], [3000.0, 4000.25]])
    known = Prototypes(points, jnp.ones(2, bool))
    close(prototype_scores(points, known), -np.array([[0, 1 / 32], [1 / 32, 0]]))


@pytest.mark.slow
@pytest.mark.parametrize(
    "constructor",
    [fedproto, fedpac, functools.partial(fedproto, variant="reference")],
    ids=["fedproto", "fedpac", "reference"],
)
def test_networks_with_dropout_and_statistics(constructor):
    """Without a pull training is the task's own, draws and moved statistics included;
    and a round of the algorithm is finite."""
    task = cnn(
        (6, 6, 1),
        channels=(2,),
        hidden=(5,),
        num_classes=3,
        batch_norm=True,
        dropout=0.5,
    )
    generator = np.random.default_rng(0)
    data = ClientData(
        jnp.asarray(generator.normal(size=(4, 8, 6, 6, 1)), "f4"),
        jnp.asarray(generator.integers(3, size=(4, 8)), "i4"),
        jnp.arange(8)[None] < jnp.asarray([8, 3, 0, 5])[:, None],
    )
    one = jax.tree.map(lambda leaf: leaf[1], data)
    params = task.init(KEY)
    blank = Prototypes(jnp.zeros((3, 5)), jnp.zeros(3, bool))
    fit = aligned(task, blank, 0.0).fit
    assert fit is not None and task.fit is not None
    mine, theirs = fit(KEY, params, *one), task.fit(KEY, params, *one)
    jax.tree.map(lambda a, b: close(a, b), mine, theirs)
    algorithm = constructor(task, num_classes=3, step_size=0.1, num_steps=2)
    state = algorithm.init(KEY, data)
    state, info = rounds(compiled(algorithm), state, data)
    np.testing.assert_array_equal(info.assignment, [0, 0, -1, 0])
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(state))
    moved = state.body if constructor is fedpac else state.models
    start = jax.tree.leaves(params.statistics)
    row = lambda leaf: leaf if constructor is fedpac else leaf[0]
    after = [row(leaf) for leaf in jax.tree.leaves(moved.statistics)]
    assert len(after) == len(start) > 0
    assert all(np.abs(a - b).max() > 1e-3 for a, b in zip(after, start, strict=True))


# Against misuse


test_misuse_is_named = misuse(
    functools.partial(fedproto, TASK, num_classes=CLASSES, step_size=STEP),
    ({"num_classes": 0}, "`num_classes` must be at least 1"),
    ({"penalty": -0.1}, "`penalty` must not be negative, got -0.1"),
    ({"answer": "both"}, "answer"),
    ({"start": "random"}, "start"),
    ({"variant": "code"}, "variant"),
)


def test_tasks_without_classes_are_named():
    with pytest.raises(ValueError, match="`task` must have `layers`"):
        fedproto(linear(3), num_classes=CLASSES, step_size=STEP)
    few = fedproto(TASK, num_classes=CLASSES - 1, step_size=STEP)
    with pytest.raises(ValueError, match=r"`num_classes` must be .* \(4,\), got 3"):
        jax.eval_shape(few.init, KEY, DATA)
    numbers = DATA._replace(targets=DATA.targets.astype(float))
    with pytest.raises(ValueError, match="`targets` must be integer labels"):
        jax.eval_shape(PLAIN.init, KEY, numbers)
