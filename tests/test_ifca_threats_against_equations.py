"""IFCA with Byzantine clients: rounds by hand in NumPy."""

import numpy as np
import pytest
from robust_rounds import (
    BY_HAND,
    CLIENTS,
    FEATURES,
    MODELS,
    STEP,
    byzantine,
    choices_by_hand,
    close,
    message_by_hand,
    round_by_hand,
    run,
)

from cfljax.attacks import build, sleeper, threat
from cfljax.federated.robust import median


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
    chosen = choices_by_hand()
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
    chosen = np.where(byzantine(0, 1, 4), 0, choices_by_hand())
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
