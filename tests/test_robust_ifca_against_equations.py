"""IFCA with robust means: rounds by hand in NumPy."""

from typing import Any

import numpy as np
import pytest
from robust_rounds import (
    BY_HAND,
    CLIENTS,
    CLUSTERS,
    FEATURES,
    MODELS,
    RULES,
    STEP,
    byzantine,
    choices_by_hand,
    close,
    gradient_by_hand,
    round_by_hand,
    run,
    settings,
)

from cfljax.algorithms.ifca import ifca
from cfljax.attacks import build, threat
from cfljax.federated import rounds
from cfljax.federated.local_update import LocalUpdate
from cfljax.federated.robust import mean, median, trimmed_mean
from cfljax.models import linear


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
    np.testing.assert_array_equal(info.assignment, choices_by_hand())
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
    chosen = choices_by_hand()
    for j in range(CLUSTERS):
        members = np.flatnonzero(chosen == j).tolist()
        gradients = np.array([gradient_by_hand(i, MODELS[j]) for i in members])
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


def test_robust_means_count_clients_alike():
    arguments: dict[str, Any] = settings("model") | {"weights": "samples"}
    ifca(linear(FEATURES), **arguments)
    with pytest.raises(ValueError, match="`aggregate` counts clients alike"):
        ifca(linear(FEATURES), aggregate=median(), **arguments)
