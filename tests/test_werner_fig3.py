"""Werner's Figure 3: rows and rules by hand, momentum, starts, step sizes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax import engine
from cfljax.base.types import Algorithm, ClientData, Truth
from experiments.werner.fig3 import (
    TRACED_FIELDS,
    chosen,
    claims,
    note,
    overview,
    rows,
)
from experiments.werner.fig3_trial import (
    DIMS,
    SCENES,
    Trial,
    first_models,
    simulate,
    started,
    traced,
)

NAN = float("nan")


def made_up(squared, loss):
    """One method and scene; squared `[trial, step, tested]`, loss `[trial, step]`."""
    squared = np.array(squared, float)[None, None]
    axes = ("method", "scene", "trial", "step", "tested")
    data = {"loss": (axes[:4], np.array(loss, float)[None, None])}
    data |= dict.fromkeys(("squared", "purity", "company"), (axes, squared))
    data["distance"] = (axes, np.sqrt(squared))
    return xr.Dataset(data, {"method": ["fixed 0.1"], "scene": ["zero"]})


def test_rows_by_hand():
    squared = [[[9, 8, 4], [9, 8, 1]], [[9, 7, 16], [9, 7, 25]], [[9, 9, 9]] * 2]
    data = made_up(squared, [[0.1, 0.2], [NAN, 5], [3, 3]])
    one = data.sel({"method": "fixed 0.1", "scene": "zero"})
    assert chosen(one).tolist() == [0, 1, 0]  # NaN never wins.
    assert chosen(one, "truth").tolist() == [1, 0, 0]
    (row,) = rows({(4, 4): data})
    assert (row["label"], row["panel"]) == ("FC, fixed radius, factor 0.1", "(4, 4)")
    assert (row["start"], row["squared"], row["by_truth"]) == (9, 9, 9)
    np.testing.assert_allclose(row["squared_mean"], (4 + 25 + 9) / 3)
    np.testing.assert_allclose(row["distance_mean"], (2 + 5 + 3) / 3)
    assert row["steps"] == "2/1" and row["purity_first"] == 8


def table(**errors):
    """Rows of two panels, (4, 4) and (4, 16), from pairs of errors."""
    found = []
    for method, pair in errors.items():
        for members, error in zip((4, 16), pair, strict=True):
            row = {"scene": "zero", "num_clusters": 4, "num_members": members}
            row |= {"panel": f"(4, {members})", "method": method, "label": method}
            names = ("squared", "squared_mean", "distance", "distance_mean", "by_truth")
            row |= dict.fromkeys(names, error) | {"start": 10.0}
            if error is not None:
                found.append(row)
    return found


BASELINES = {"local": (1.0, 1.0), "fedavg": (8.0, 8.0), "ifca": (2.0, 0.5)}
ORACLE = {"oracle": (0.0, 0.0), "ifca_best": (0.3, 0.02)}


@pytest.mark.parametrize(
    ("errors", "beats", "beats_best", "matches"),
    [
        ((0.5, 0.05), True, False, True),
        ((0.2, 0.01), True, True, True),
        ((0.94, 0.2), True, False, False),
        ((0.96, 0.05), False, False, True),  # not by 5 % in the first panel
        ((0.5, 0.49), False, False, False),  # nor in the second
        ((NAN, 0.05), False, False, True),
        ((0.5, NAN), False, False, False),
        ((0.5, None), False, False, False),  # not run in all panels
    ],
)
def test_the_rules(errors, beats, beats_best, matches):
    lines = table(**BASELINES, **ORACLE, quantile_cluster=errors)
    found = claims(lines)
    assert len(found) == 4
    for row in found:
        assert row["beats"] == beats and row["beats_best"] == beats_best
        assert row["matches"] == matches
    text = note(lines, found, unknown_share=0.1)
    name = "quantile 1/K (by every error)"
    assert (f"every panel with {name}" in text) == beats
    assert (f"Both claims: zero: {name}" in text) == (beats and matches)
    assert ("Both claims: no radius" in text) != (beats and matches)


def test_no_rule_holds_beside_a_baseline_or_an_oracle_without_number():
    broken = BASELINES | {"fedavg": (8.0, NAN)}
    row = claims(table(**broken, **ORACLE, gap_inner=(0.2, 0.01)))[0]
    assert not row["beats"] and row["matches"]
    useless = ORACLE | {"oracle": (0.0, 1.0)}
    lines = table(**BASELINES, **useless, gap_inner=(0.2, 0.01))
    assert claims(lines)[0]["beats"] and not claims(lines)[0]["matches"]
    (line,) = [row for row in overview(lines) if row["method"] == "gap_inner"]
    assert (line["zero (4, 4)"], line["zero (4, 16)"]) == (0.2, 0.01)


def test_momentum_by_hand():
    def step(key, state, data):
        return state._replace(models=0.5 * state.models), None

    plain = Algorithm(
        init=lambda key, data: Truth(jnp.arange(2), jnp.zeros((2, 1))),
        step=step,
        predict=lambda state, data, inputs: inputs,
    )
    trained, nothing = jnp.array([True, False]), ClientData(*3 * [jnp.ones((2, 1)) > 0])
    key = jax.random.key(0)
    for momentum in (0.0, 0.9):
        start = jnp.array([[1.0], [2.0]])
        own = started(plain, start, momentum=momentum, trained=trained)
        state, x, m = own.init(key, nothing), 1.0, 0.0
        for _ in range(5):
            state = own.step(key, state, nothing)[0]
            m = momentum * m + (1 - momentum) * -0.5 * x
            x = x + m
        expected = [[x], [2.0]]
        np.testing.assert_allclose(state.models, expected, rtol=1e-5)
        np.testing.assert_array_equal(state.models, state.state.models)


def test_models_and_starts():
    key, places = jax.random.key(0), list(SCENES)

    def start(method, scene, sizes=(2, 3)):
        clusters, members = sizes
        truth = Truth(
            jnp.arange(clusters * members) // members, 100.0 * jnp.eye(clusters)
        )
        return first_models(method, traced(places.index(scene)), truth, key)

    number = lambda method, *sizes: start(method, "normal", sizes).shape[0]
    sizes = ((4, 4), (4, 16), (16, 4))
    assert [number("ifca_released", *own) for own in sizes] == [4, 16, 4]
    assert (number("ifca", 4, 16), number("quantile_fifth", 4, 16)) == (4, 64)
    near = start("ifca_released", "reference_near")  # of clients 0, 2 and 4
    wanted = [[100, 0], [100, 0], [0, 100]]
    np.testing.assert_allclose(near, wanted, atol=0.6)  # six standard deviations
    assert np.all(np.asarray(near) != np.array(wanted))
    np.testing.assert_array_equal(start("local", "zero"), np.zeros((6, 2)))
    blind = start("ifca", "zero")
    assert blind.shape == (2, 2) and np.all(np.any(np.asarray(blind) != 0, axis=1))
    mean = start("fedavg", "normal")
    np.testing.assert_allclose(mean, [np.mean(start("local", "normal"), 0)], rtol=1e-5)


def test_radius_0_is_training_alone_and_the_limit_is_one_of_stability(tmp_path):
    trial = Trial(
        method="local",
        scene=1,
        factor=0.0,
        num_clusters=2,
        num_members=2,
        num_samples=2,
        num_features=3,
        first_mean=1.0,
        num_rounds=200,
        rounds_between=100,
        num_clipping_rounds=2,
        num_restarts=1,
        num_steps=1,
        largest_share=1.0,
        step_ratio=3.0,
        momentum=0.9,
    )
    axes = {"method": ("local", "fixed"), "largest_share": (0.95, 1.05)}
    grid = engine.Grid(
        "fig3", trial, axes, num_trials=2, dims=DIMS, traced=TRACED_FIELDS
    )
    found = engine.sweep(grid, simulate, tmp_path / "own.zarr", progress=False)
    alone, radius = (found.sel({"method": name}) for name in axes["method"])
    at = {"largest_share": 0.95}
    paths = [own["squared"].sel(at).values for own in (radius, alone)]
    np.testing.assert_allclose(*paths, rtol=1e-3)
    assert np.all(found["loss"].sel(at).values < 0.1)
    assert not np.any(found["loss"].sel({"largest_share": 1.05}).values < 100)
