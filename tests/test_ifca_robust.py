"""IFCA with robust means and Byzantine clients: rounds by hand, message by message."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import by_hand
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from by_hand import padded

from cfljax.algorithms.ifca import State, ifca
from cfljax.attacks import build, sleeper, threat
from cfljax.base.types import ClientData, Task, Threat
from cfljax.federated import rounds
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.robust import (
    centred_clipping,
    mean,
    median,
    trimmed_mean,
)
from cfljax.federated.training import LocalState
from cfljax.losses import squared_error
from cfljax.models import linear

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

CLIENTS, CLUSTERS, SAMPLES, FEATURES, STEP, STEPS = 7, 2, 5, 3, 0.1, 3
TRUTH = np.array([0, 0, 0, 0, 1, 1, 1])
KEPT = np.array([5, 3, 5, 4, 5, 5, 2])  # Real samples of each client.


def draw() -> tuple[ClientData, np.ndarray]:
    generator = np.random.default_rng(4)
    thetas = np.array([[2.0, -1, 1], [-1, 2, 0]])
    x = generator.normal(size=(CLIENTS, SAMPLES, FEATURES))
    y = np.einsum("nsd,nd->ns", x, thetas[TRUTH])
    data = padded(x, y + 0.3 * generator.normal(size=y.shape), KEPT)
    models = thetas + 0.4 * generator.normal(size=thetas.shape)
    return data, models.astype(np.float32)


DATA, MODELS = draw()
Rule = Callable[[np.ndarray, np.ndarray], np.ndarray]


def trimmed_by_hand(messages: np.ndarray, origin: np.ndarray) -> np.ndarray:
    cut = int(0.3 * len(messages))
    return np.sort(messages, axis=0)[cut : len(messages) - cut].mean(axis=0)


def clipped_by_hand(messages: np.ndarray, origin: np.ndarray) -> np.ndarray:
    centre = origin
    for _ in range(2):
        moves = messages - centre
        norms = np.linalg.norm(moves, axis=1, keepdims=True)
        centre = centre + (moves * np.minimum(1, 0.2 / norms)).mean(axis=0)
    return centre


BY_HAND: dict[str, Rule] = {
    "mean": lambda messages, origin: messages.mean(axis=0),
    "median": lambda messages, origin: np.median(messages, axis=0),
    "trimmed": trimmed_by_hand,
    "clipped": clipped_by_hand,
}
RULES = {
    "mean": mean(),
    "median": median(),
    "trimmed": trimmed_mean(0.3),
    "clipped": centred_clipping(0.2, num_rounds=2),
}


LOSSES = [[by_hand.loss(DATA, i, theta) for theta in MODELS] for i in range(CLIENTS)]
CHOICES = np.argmin(LOSSES, axis=1)
EVERYBODY = np.arange(CLIENTS)


def message_by_hand(
    option: str,
    client: int,
    theta: np.ndarray,
    data: ClientData = DATA,
    num_steps: int = STEPS,
) -> np.ndarray:
    if option == "gradient":
        return by_hand.gradient(data, client, theta)
    return by_hand.trained(data, client, theta, step_size=STEP, num_steps=num_steps)


def round_by_hand(
    option: str,
    rule: Rule,
    *,
    normalise: str = "all",
    chosen: np.ndarray = CHOICES,
    lies: Mapping[int, np.ndarray] | None = None,
    present: np.ndarray = EVERYBODY,
) -> np.ndarray:
    """Models after a round in which some send what `lies` has for them."""
    expected = MODELS.astype(float)
    for j in range(CLUSTERS):
        members = [i for i in present if chosen[i] == j]
        if not members:
            continue
        honest = {i: message_by_hand(option, i, expected[j]) for i in members}
        sent = np.array([({**honest, **(lies or {})})[i] for i in members])
        if option == "model":
            expected[j] = rule(sent, expected[j])
            continue
        of_all = {"all": CLIENTS, "participants": len(present)}
        share = 1.0 if normalise == "cluster" else len(members) / of_all[normalise]
        expected[j] -= STEP * share * rule(sent, np.zeros(FEATURES))
    return expected


def settings(option: str) -> dict[str, Any]:
    steps = STEPS if option == "model" else 1
    given = {"num_clusters": CLUSTERS, "step_size": STEP}
    return given | {"option": option, "num_steps": steps}


def memory_of(threat: Threat | None) -> LocalState | None:
    """What attackers have: a count of rounds."""
    return None if threat is None else LocalState(jnp.zeros((), jnp.int32), ())


def run(option="gradient", models=MODELS, rounds=1, **changes: Any) -> tuple[Any, Any]:
    """State and info after some rounds."""
    algorithm = ifca(linear(FEATURES), **(settings(option) | changes))
    memory = memory_of(changes.get("threat"))
    state, info = State(jnp.asarray(models), memory), None
    step = by_hand.once(algorithm.step, jax.random.key(0), state, DATA)
    for index in range(rounds):
        state, info = step(jax.random.key(index), state, DATA)
    return state, info


def byzantine(*clients: int) -> np.ndarray:
    return np.isin(EVERYBODY, clients)


close = functools.partial(by_hand.close, rtol=1e-5, atol=1e-5)


# Against equations: robust means


@pytest.mark.parametrize(
    ("option", "rule", "normalise"),
    [
        ("gradient", "mean", "participants"),
        ("gradient", "median", "all"),
        ("gradient", "median", "cluster"),
        ("gradient", "trimmed", "cluster"),
        ("gradient", "clipped", "participants"),
        ("model", "mean", "all"),
        ("model", "median", "all"),
        ("model", "trimmed", "all"),
        ("model", "clipped", "all"),
    ],
)
def test_robust_round_by_hand(option, rule, normalise):
    state, info = run(option, aggregate=RULES[rule], normalise=normalise)
    np.testing.assert_array_equal(info.assignment, CHOICES)
    expected = round_by_hand(option, BY_HAND[rule], normalise=normalise)
    close(state.models, expected)
    # Control: another mean, or another divisor, would be noticed.
    other = "median" if rule == "mean" else "mean"
    wrong = round_by_hand(option, BY_HAND[other], normalise=normalise)
    assert np.abs(wrong - expected).max() > 1e-3
    scaled = round_by_hand(option, BY_HAND[rule], normalise="participants")
    if normalise == "cluster":
        assert np.abs(scaled - expected).max() > 1e-3


def test_released_divisors():
    """The mean divides by m, the median by the members: k steps of another length."""
    moves = {}
    for name, normalise in (("mean", "all"), ("median", "cluster"), ("median", "all")):
        state, _ = run(aggregate=RULES[name], normalise=normalise)
        moves[name, normalise] = (np.asarray(state.models) - MODELS) / -STEP
    chosen = CHOICES
    for j in range(CLUSTERS):
        members = np.flatnonzero(chosen == j).tolist()
        gradients = np.array([by_hand.gradient(DATA, i, MODELS[j]) for i in members])
        close(moves["mean", "all"][j], gradients.sum(axis=0) / CLIENTS)
        close(moves["median", "cluster"][j], np.median(gradients, axis=0))
        share = len(members) / CLIENTS
        close(moves["median", "all"][j], share * moves["median", "cluster"][j])


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_chunks_and_orders_change_nothing(option):
    loud = threat(build("sign_flip"), byzantine(0, 5))
    found = [
        run(option, threat=loud, aggregate=trimmed_mean(0.3), update=update)[0].models
        for update in (
            LocalUpdate(),
            LocalUpdate(order="batched", clients_per_chunk=2),
            LocalUpdate(order="batched"),
        )
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_single_messages_are_looked_at_only_where_asked(option, monkeypatch):
    """Without threat and aggregate the sums are the same program as ever."""

    def refuse(*arguments: Any) -> None:
        raise AssertionError("looked at")

    plain, _ = run(option)
    monkeypatch.setattr(rounds, "_gradient_pullback", refuse)
    monkeypatch.setattr(rounds, "_sent_models", refuse)
    again, _ = run(option)
    np.testing.assert_array_equal(again.models, plain.models)
    changes: list[dict[str, Any]] = [
        {"aggregate": mean()},
        {"threat": threat(build("zero"), byzantine())},
    ]
    for change in changes:
        with pytest.raises(AssertionError, match="looked at"):
            run(option, **change)


# Against equations: Byzantine clients


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_nobody_byzantine_is_the_plain_round(option):
    quiet = threat(build("noise"), byzantine())
    plain, info = run(option)
    attacked, same = run(option, threat=quiet)
    np.testing.assert_allclose(attacked.models, plain.models, rtol=2e-6, atol=1e-6)
    np.testing.assert_array_equal(same.assignment, info.assignment)
    assert attacked.local_state.round == 1


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_one_client_moves_the_mean_and_hardly_the_median(option):
    lie = np.full(FEATURES, 1000.0)
    loud = threat(build("noise", mean=1000.0, deviation=0.0), byzantine(2))
    moved, _ = run(option, threat=loud)
    expected = round_by_hand(option, BY_HAND["mean"], lies={2: lie})
    np.testing.assert_allclose(moved.models, expected, rtol=1e-5)
    assert np.abs(expected[0] - MODELS[0]).min() > 10
    kept, _ = run(option, threat=loud, aggregate=median())
    close(kept.models, round_by_hand(option, BY_HAND["median"], lies={2: lie}))
    honest = round_by_hand(option, BY_HAND["median"])
    assert np.abs(kept.models - honest).max() < 0.5
    np.testing.assert_allclose(kept.models[1], honest[1], rtol=1e-5)


def test_byzantine_clients_claim_the_target():
    liars = threat(build("noise", mean=7.0, deviation=0.0), byzantine(2, 5), target=1)
    state, info = run(threat=liars, aggregate=median())
    chosen = CHOICES.copy()
    assert chosen[2] == 0
    chosen[[2, 5]] = 1
    np.testing.assert_array_equal(info.assignment, chosen)
    lies = {i: np.full(FEATURES, 7.0) for i in (2, 5)}
    expected = round_by_hand("gradient", BY_HAND["median"], chosen=chosen, lies=lies)
    close(state.models, expected)


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_messages_from_three_times_the_model(option):
    """The released attack: Byzantine clients work at 3 theta and are else honest."""
    silent = lambda key, messages, liars, context: messages
    state, _ = run(option, threat=threat(silent, byzantine(1, 3), model_factor=3.0))
    lies = {i: message_by_hand(option, i, 3.0 * MODELS[0]) for i in (1, 3)}
    expected = round_by_hand(option, BY_HAND["mean"], lies=lies)
    close(state.models, expected)
    assert np.abs(expected - round_by_hand(option, BY_HAND["mean"])).max() > 0.1


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_an_empty_cluster_keeps_its_model_bit_for_bit(option):
    """It steals nobody's gradient; all others train the other one."""
    far = MODELS.copy()
    far[1] = 1e3
    quiet = threat(build("nan"), byzantine(6))
    state, info = run(option, models=far, aggregate=median(), threat=quiet)
    assert set(np.asarray(info.assignment).tolist()) == {0}
    np.testing.assert_array_equal(state.models[1], far[1])
    assert np.isfinite(state.models).all() and (state.models[0] != far[0]).all()


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_partial_participation(option):
    loud = threat(build("noise", mean=30.0, deviation=0.0), byzantine(0, 1, 4))
    state, info = run(option, participation=0.6, threat=loud, normalise="participants")
    present = np.flatnonzero(np.asarray(info.assignment) >= 0)
    assert len(present) == 4 and {0, 1, 4} & set(present.tolist())
    chosen = np.where(byzantine(0, 1, 4), 0, CHOICES)
    np.testing.assert_array_equal(np.asarray(info.assignment)[present], chosen[present])
    lies = {i: np.full(FEATURES, 30.0) for i in (0, 1, 4)}
    expected = round_by_hand(
        option,
        BY_HAND["mean"],
        normalise="participants",
        chosen=chosen,
        lies=lies,
        present=present,
    )
    close(state.models, expected)


@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_cluster_of_attackers_alone(option):
    """It is theirs: nothing of it reaches the others, and none of theirs is taken."""
    far = MODELS.copy()
    far[1] = 1e3
    loud = threat(build("noise", mean=9.0, deviation=0.0), byzantine(1, 5), target=1)
    state, info = run(option, models=far, aggregate=median(), threat=loud)
    assert np.flatnonzero(np.asarray(info.assignment) == 1).tolist() == [1, 5]
    expected = 9.0 if option == "model" else 1e3 - STEP * 2 / CLIENTS * 9
    np.testing.assert_allclose(state.models[1], expected, rtol=1e-6)
    chosen = np.where(byzantine(1, 5), 1, 0)
    close(state.models[0], round_by_hand(option, BY_HAND["median"], chosen=chosen)[0])


def test_rounds_are_counted_for_attackers():
    late = threat(sleeper(build("nan"), wake=1), byzantine(2))
    first, _ = run(threat=late)
    plain, _ = run()
    np.testing.assert_allclose(first.models, plain.models, rtol=2e-6, atol=1e-6)
    second, _ = run(threat=late, rounds=2)
    assert np.isnan(second.models[0]).all() and np.isfinite(second.models[1]).all()


# Against equations: weights that all clusters share


OWNERS = np.array([0, 0, 0, 0, 1, 1])
SHARERS = len(OWNERS)


def outputs(params: Any, inputs: Any) -> Any:
    return jnp.sum(inputs * params["body"][None, :], axis=1) + params["head"][0]


TASK = Task(
    init=lambda key: {"body": jnp.zeros(2), "head": jnp.zeros(1)},
    losses=lambda params, inputs, targets: squared_error(
        outputs(params, inputs), targets
    ),
    predict=outputs,
)
HEADS = np.array([[2.5], [-2.5]])
BODY = np.array([0.7, -0.4])


def draw_sharers() -> ClientData:
    generator = np.random.default_rng(2)
    x = generator.normal(size=(SHARERS, 4, 2))
    y = x @ np.array([1.0, -1]) + 3 * np.array([1, -1])[OWNERS][:, None]
    return padded(x, y + 0.2 * generator.normal(size=y.shape), [4] * SHARERS)


SHARED = draw_sharers()


# The head is the weight of an input that is always 1.
ONES = jnp.ones((SHARERS, 4, 1))
WIDER = SHARED._replace(inputs=jnp.concatenate([SHARED.inputs, ONES], axis=2))
message = functools.partial(message_by_hand, data=WIDER, num_steps=2)


def sharing_by_hand(option: str, normalise: str, rule: Any, lie: Any):
    """Body and heads after a round in which the last client lies to cluster 0."""
    chosen = OWNERS.copy()
    thetas = np.concatenate([np.tile(BODY, (CLUSTERS, 1)), HEADS], axis=1)
    if lie is not None:
        chosen[-1] = 0
    sent = np.array([message(option, i, thetas[chosen[i]]) for i in range(SHARERS)])
    if lie is not None:
        sent[-1] = lie(sent[-1], thetas[0] if option == "model" else 0)
    body = rule(sent[:, :-1], axis=0)
    heads = np.array([[rule(sent[chosen == j, -1])] for j in range(CLUSTERS)])
    if option == "model":
        return body, heads
    shares = np.bincount(chosen)[:, None] / SHARERS
    if normalise == "cluster":
        return BODY - STEP * body, HEADS - STEP * heads
    return BODY - STEP * body, HEADS - STEP * shares * heads


def run_sharing(option: str, data: ClientData, threat=None, **changes: Any):
    arguments: dict[str, Any] = settings(option) | {"threat": threat} | changes
    if option == "model":
        arguments["num_steps"] = 2
    algorithm = ifca(TASK, **arguments, shared=lambda name: name == "body")
    rows = np.tile(BODY, (CLUSTERS, 1)), HEADS
    body, heads = (jnp.asarray(leaf.astype(np.float32)) for leaf in rows)
    state = State({"body": body, "head": heads}, memory_of(threat))
    given = jax.random.key(0), state, data
    return by_hand.once(algorithm.step, *given)(*given)[0].models


LAST = np.arange(SHARERS) == SHARERS - 1
LIES = {
    "noise": (build("noise", mean=50.0, deviation=0.0), lambda own, origin: 50.0),
    "boosting": (build("boosting", factor=3.0), lambda own, o: o + 3 * (own - o)),
}


@pytest.mark.parametrize(
    ("option", "normalise", "rule", "lie"),
    [
        ("gradient", "all", np.median, None),
        ("gradient", "cluster", np.median, "noise"),
        ("gradient", "all", np.mean, "boosting"),
        ("model", "all", np.median, None),
        ("model", "all", np.median, "noise"),
        ("model", "all", np.mean, "boosting"),
    ],
)
def test_common_leaves_are_the_mean_of_everybody(option, normalise, rule, lie):
    attack, told = LIES.get(lie, (None, None))
    liar = None if attack is None else threat(attack, LAST)
    aggregate = median() if rule is np.median else None
    found = run_sharing(option, SHARED, liar, normalise=normalise, aggregate=aggregate)
    body, heads = sharing_by_hand(option, normalise, rule, told)
    np.testing.assert_allclose(found["head"], heads, rtol=1e-5, atol=1e-6)
    for row in found["body"]:
        np.testing.assert_allclose(row, body, rtol=1e-5, atol=1e-6)
    # Control: with the first cluster's members alone the body is another.
    theta = np.append(BODY, HEADS[0])
    of_one = [message(option, i, theta)[:-1] for i in range(SHARERS) if OWNERS[i] == 0]
    alone = rule(of_one, axis=0)
    alone = alone if option == "model" else BODY - STEP * alone
    assert np.abs(alone - body).max() > 1e-3


@pytest.mark.parametrize("aggregate", [None, median()])
@pytest.mark.parametrize("option", ["gradient", "model"])
def test_a_round_of_nobody_leaves_everything(option, aggregate):
    nobody = SHARED._replace(mask=jnp.zeros_like(SHARED.mask))
    found = run_sharing(option, nobody, aggregate=aggregate)
    np.testing.assert_array_equal(found["head"], HEADS.astype(np.float32))
    body = np.tile(BODY, (CLUSTERS, 1)).astype(np.float32)
    np.testing.assert_array_equal(found["body"], body)


# Against misuse


def test_robust_means_count_clients_alike():
    arguments: dict[str, Any] = settings("model") | {"weights": "samples"}
    ifca(linear(FEATURES), **arguments)
    with pytest.raises(ValueError, match="`aggregate` counts clients alike"):
        ifca(linear(FEATURES), aggregate=median(), **arguments)
