"""Werner's Figure 4: contraction of the rounds, elbows, Theorem 1's rounds, rows."""

import dataclasses
import functools
import math

import jax
import numpy as np
import pytest
import xarray as xr

from experiments.werner import fig4


def run(start: fig4.Start, **changes):
    trial = fig4.Trial(
        **{
            "start": start,
            "deviation": 0.2,
            "quantile": "0.25",
            "num_clusters": 4,
            "num_members": 6,
            "num_features": 5,
            "num_rounds": 60,
            "box": 10.0,
            "spread": 0.3,
            **changes,
        }
    )
    found = jax.jit(functools.partial(fig4.simulate, trial))(jax.random.key(1))
    return {name: np.asarray(array, float) for name, array in found.items()}


# Against theory


def test_centres_contract_by_the_share_of_a_cluster():
    """With a cluster of 6 among 24 in every ball, v - m shrinks to 3/4 a round.

    The distance at place 5 of 0 to 23, and a little more, is that of the last member.
    Members lie 1e-4 about the truth, by which a distance may differ from v - m.
    """
    place = repr((5 + 1e-3) / 23)
    found = run("near", quantile=place, deviation=1e-4)["own"]
    bound = 5e-4 / found[0] + 1e-5
    np.testing.assert_allclose(found[:10] / found[0], 0.75 ** np.arange(10), atol=bound)
    fewer = run("near", quantile=repr((4 + 1e-3) / 23), deviation=1e-4)["own"]
    assert np.abs(fewer[:10] / fewer[0] - 0.75 ** np.arange(10)).max() > 10 * bound


def test_starts_share_truth_and_reach_their_clusters():
    member, near, origin = (run(start) for start in ("member", "near", "origin"))
    assert member["separation"] == near["separation"] == origin["separation"] > 1
    assert max(member["own"][-1], near["own"][-1]) < 0.5
    np.testing.assert_allclose(member["own"], member["nearest"], rtol=1e-4)
    # All centres move as one from the origin: most clusters have none near them.
    assert origin["own"][-1] > 5 < origin["nearest"][-1]


def test_random_starts_are_measured_from_their_own_cluster():
    found = run("random")
    assert found["own"][-1] < 0.5
    assert found["nearest"][-1] >= found["own"][-1] - 1e-3


def test_elbow_of_a_geometric_curve():
    rate, floor = 0.9, 2.0
    curve = floor + 3 * rate ** np.arange(201)
    # A round brings (1 - r) r^(l-1) of the fall.
    exact = math.ceil(1 + math.log(0.01 / (1 - rate)) / math.log(rate))
    assert fig4.elbow(curve, 0.01) == exact == 23
    assert fig4.elbow(curve, 0.05) < exact
    np.testing.assert_allclose(fig4.printed(curve)[:50], -(1 - rate), rtol=1e-6)
    assert (
        fig4.printed(curve)[-1] == -1
    )  # Where it gets to its minimum, whatever it was.
    assert math.isnan(fig4.elbow(curve[::-1].copy(), 0.01))


@pytest.mark.parametrize("curve", [np.ones(5), np.arange(4.0)])
def test_what_never_falls_has_no_elbow(curve):
    assert math.isnan(fig4.elbow(curve, 0.01))


def test_theorem_1_asks_for_fewer_rounds_of_wider_clusters():
    wanted = [fig4.asked(13.7, sigma * math.sqrt(10), 0.1) for sigma in (0.5, 1, 2, 4)]
    np.testing.assert_allclose(wanted, [42.1, 28.6, 15.1, 1.55], atol=0.05)
    assert sorted(wanted, reverse=True) == wanted
    assert fig4.asked(1.0, 5.0, 0.1) == 1  # Never less than one.


# Against itself


def made_up(curves) -> xr.Dataset:
    """One start and deviation; curves `[trial, round]`."""
    own = np.array(curves, float)
    axes = ("start", "deviation", "trial", "round")
    values = own[None, None]
    separation = np.full((1, 1, len(own)), 10.0)
    data = {
        "own": (axes, values),
        "nearest": (axes, values + 1),
        "separation": (axes[:3], separation),
    }
    return xr.Dataset(data, {"start": ["origin"], "deviation": [1.0]})


def table(curves):
    known = {"num_clusters": 4, "num_features": 4, "threshold": 0.1}
    return fig4.rows(
        made_up(curves), dataclasses.replace(fig4.preset("quick"), **known)
    )


def test_rows_by_hand():
    (row,) = table([[10, 2, 1, 1, 1], [10, 5, 0.5, 0.1, 0.1]])
    assert (row["first"], row["nearest"]) == (10, 1.55)
    np.testing.assert_allclose(row["floor"], 0.55)
    assert row["elbow"] == (3 + 3) / 2 and row["with_elbow"] == "2/2"
    assert row["fallen"] == 2
    np.testing.assert_allclose(row["printed_first"], (-8 / 9 - 5 / 9.9) / 2)
    assert row["printed_least"] == -1
    np.testing.assert_allclose(row["asked"], np.log(0.2) / np.log(1 - 1 / 8))


def test_repetitions_that_never_fall_are_no_successes():
    (row,) = table([[1, 2, 3], [1, 1, 1], [5, 1, 1]])
    assert row["with_elbow"] == "1/3" and row["elbow"] is None
    assert (row["fallen"], row["printed_least"]) == (1, -1)
    (none,) = table([[1, 2, 3], [1, 1, 1]])
    assert none["with_elbow"] == "0/2" and none["printed_least"] is None
    assert "origin none" in fig4.note([none]) and "nothing" in fig4.note([none])
