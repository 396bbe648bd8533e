"""When a clustering counts as stable (CLoVE, section 3)."""

import jax.numpy as jnp
import pytest

from cfljax.algorithms.clove import first_stability, observe_round


def after(*rounds, stable_rounds=3):
    stability = first_stability(len(rounds[0]))
    for assignment in rounds:
        stability = observe_round(stability, jnp.array(assignment), stable_rounds)
    return stability


def test_three_equal_rounds_are_stable():
    assert not after([0, 1], [0, 1]).stable
    assert after([0, 1], [0, 1], [0, 1]).stable
    assert after([1, 1], [0, 1], [0, 1], [0, 1]).streak.tolist() == [3, 4]
    assert not after([1, 1], [0, 1], [0, 1]).stable


def test_the_rounds_between_the_ends_count():
    # First and last round agree, which is all that the released code compares.
    assert not after([0, 1], [1, 1], [0, 1]).stable


def test_stable_stays_stable():
    assert after([0, 1], [0, 1], [0, 1], [1, 1]).stable


def test_absent_clients_neither_confirm_nor_deny():
    assert not after([0, -1], [0, -1], [-1, 1]).stable
    assert after([0, 1], [0, -1], [0, -1]).stable
    found = after([0, 1], [-1, 1], [0, -1])
    assert found.streak.tolist() == [2, 2]
    assert found.identities.tolist() == [0, 1]
    assert not after([-1, -1], [-1, -1], [-1, -1]).stable


@pytest.mark.parametrize(("stable_rounds", "expected"), [(1, True), (None, False)])
def test_one_round_or_none(stable_rounds, expected):
    assert bool(after([0, 1], stable_rounds=stable_rounds).stable) is expected
