"""Werner's Figure 3: rows and rules by hand, momentum, starts, misuse, the command."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax import engine
from cfljax.types import Algorithm, ClientData, Truth
from experiments.__main__ import main as command
from experiments.werner.fig3 import preset
from experiments.werner.fig3_methods import number_of_models, started
from experiments.werner.fig3_report import chosen, claims, note, overview, rows
from experiments.werner.fig3_scenes import SCENES, first_models, traced
from experiments.werner.fig3_trial import DIMS, Trial, simulate

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
    sizes = ((4, 4), (4, 16), (16, 4))
    released = [number_of_models("ifca_released", *own) for own in sizes]
    assert released == [4, 16, 4]
    assert number_of_models("ifca", 4, 16) == 4
    assert number_of_models("quantile_fifth", 4, 16) == 64
    truth = Truth(jnp.arange(6) // 3, jnp.array([[100.0, 0], [0, 100.0]]))
    key, places = jax.random.key(0), list(SCENES)

    def start(method, scene):
        place = traced(float(places.index(scene)))
        return first_models(method, place, truth, key)

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
        scene=1.0,
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
    grid = engine.Grid("fig3", trial, axes, num_trials=2, dims=DIMS)
    found = engine.sweep(grid, simulate, tmp_path / "own.zarr", progress=False)
    alone, radius = (found.sel({"method": name}) for name in axes["method"])
    at = {"largest_share": 0.95}
    paths = [own["squared"].sel(at).values for own in (radius, alone)]
    np.testing.assert_allclose(*paths, rtol=1e-3)
    assert np.all(found["loss"].sel(at).values < 0.1)
    assert not np.any(found["loss"].sel({"largest_share": 1.05}).values < 100)


@pytest.mark.slow
def test_command_writes_all(tmp_path, capsys):
    arguments = "run werner.fig3 --json --preset quick --num-clusters 2 2 --num-members"
    arguments += " 2 3 --num-trials 2 2 --num-rounds 4 --num-tests 2 --num-steps 2"
    arguments += " --method local ifca ifca_released oracle quantile_cluster"
    arguments += " --first-method gap_inner --factor 0 0.5 --num-features 3"
    out = tmp_path / "out"
    assert command([*arguments.split(), "--out", str(out)]) == 0
    summary = json.loads(capsys.readouterr().out)
    # The first panel is without the released IFCA, the second without the gap.
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 2 * (7 + 7)
    alike = {row["method"]: row for row in summary["rows"] if row["panel"] == "(2, 3)"}
    for name in ("squared", "distance_mean"):
        pair = alike["local"][name], alike["fixed 0"][name]
        np.testing.assert_allclose(*pair, rtol=1e-4)
    names = ("table.csv", "claims.csv", "table.md", "config.json", "errors_zero.svg")
    for name in (*names, "errors_reference_near.png"):
        assert (out / name).stat().st_size > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_members": (4,)}, "must have as many values"),
        ({"num_members": (4, 4)}, "`panels` must hold different"),
        ({"num_clusters": (1, 4)}, "`num_clusters` must be at least 2"),
        ({"num_trials": (0, 4)}, "`num_trials` must be at least 1"),
        ({"scene": ("zero", "zero")}, "`scene` must hold different"),
        ({"factor": ()}, "`factor` must hold different"),
        ({"factor": (NAN,)}, "`factor` must not be negative"),
        ({"first_method": ("local",)}, "`method` must hold different"),
        ({"method": ("local", "ifca")}, "`method` must hold oracle"),
        ({"first_method": ("fixed",)}, "`method` must leave out fixed"),
        ({"num_tests": 7}, "`num_tests` must divide `num_rounds`"),
        ({"num_steps": 0}, "`num_steps` must be at least 1"),
        ({"num_restarts": 0}, "`num_restarts` must be at least 1"),
        ({"num_clipping_rounds": 0}, "`num_clipping_rounds` must be at least 1"),
        ({"largest_share": 0.0}, "`largest_share` must be positive"),
        ({"step_ratio": 1.0}, "`step_ratio` must be above 1"),
        ({"momentum": 1.0}, "`momentum` must be in"),
        ({"first_mean": NAN}, "`first_mean` must be finite"),
    ],
)
def test_misuse_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(preset("quick"), **change)


def test_paper_has_all_of_quick_and_its_panels():
    quick, paper = preset("quick"), preset("paper")
    assert paper.panels == [(4, 4), (4, 16), (16, 4)]
    assert set(quick.panels) < set(paper.panels)
    assert set(quick.scene) < set(paper.scene) == set(SCENES)
    assert {*quick.method, *quick.first_method} < set(paper.method)
    assert set(quick.factor) < set(paper.factor)
    assert (paper.num_features, paper.num_samples) == (10, 9)
    assert paper.num_clipping_rounds == 10 and set(paper.num_trials) == {20}
