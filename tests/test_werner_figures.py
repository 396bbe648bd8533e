"""Werner's Figures 1 to 4, against theory, and their rows by hand."""

import dataclasses
import functools
import math
import pathlib
import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

from cfljax import engine
from cfljax.base.types import Algorithm, ClientData, Truth
from experiments.options import Options
from experiments.study import Study
from experiments.werner import fig1, fig2, fig3, fig3_trial, fig4
from experiments.werner.synthetic import curvatures, shifted_linear

# Whole programs: half a second or more each, on a fresh machine.
pytestmark = pytest.mark.long

NAN = float("nan")

# Figure 1: where the methods end, and which radii escape

EDGES = {
    "myopic_radius": (0.3332, 0.3334, 0.6666, 0.6667, 0.9999, 1.0001),
    "symmetric_radius": (0.0, 1.9999, 2.0001),
    "bipartition_radius": (0.25, 0.6),
}
TINY = dataclasses.replace(
    fig1.preset("quick"), **EDGES, batch_size=(1, 64), num_trials=2, num_rounds=200
)


def computed(folder: pathlib.Path, name, which: int, config: fig1.Config = TINY):
    """The failing methods (0) or Federated-Clustering (1) of an example."""
    grid = fig1._grids(config, name)[which]
    own = Study("fig1", config, Options(out=folder, progress=False))
    return own.sweep(grid, (fig1.fail, fig1.simulate)[which])


def clustered(folder, name):
    found = {name: computed(folder, name, 1)}
    return fig1.rows(found, TINY)


@pytest.fixture(scope="module")
def myopic(tmp_path_factory):
    return clustered(tmp_path_factory.mktemp("myopic"), "myopic")


def test_myopic_clustering_stays_at_the_saddle(tmp_path):
    found = computed(tmp_path, "myopic", 0)
    path = found["position"].values[0, 0]
    np.testing.assert_array_equal(path[:2], [[1.5, 1.5, 1.5], [1, 1, 2]])
    np.testing.assert_allclose(path[:, 0][1:20], (2 / 3) ** np.arange(19), rtol=1e-5)
    np.testing.assert_array_equal(path[1:, 1:], np.broadcast_to([1, 2], (200, 2)))
    right = [row["right"] for row in fig1.failing_rows({"myopic": found}, 0.05)]
    assert right == [True, False, True]


def test_ifca_stays_at_the_symmetric_point_by_both_options(tmp_path):
    found = computed(tmp_path, "symmetric", 0)
    path = found["position"].values[:, 0, :, :2]
    np.testing.assert_array_equal(path, 0)
    assert path.shape == (2, 201, 2)


def test_the_split_is_wrong_for_one_coin_of_two(tmp_path):
    found = computed(tmp_path, "bipartition", 0)
    paths = found["position"].values[:, 0]
    np.testing.assert_allclose(paths[:, 50], 1 / 3, atol=5e-3)  # FedAvg, not 1/4
    np.testing.assert_allclose(paths[0, -1], [1 / 4, 1 / 2, 1 / 4], atol=1e-5)
    np.testing.assert_allclose(paths[1, -1], [0, 1 / 2, 1 / 2], atol=1e-5)


@pytest.mark.parametrize(
    ("radius", "right"),
    [
        (0.3332, [True, False, True]),  # at the saddle, alone
        (0.3334, [True, True, True]),
        (0.6666, [True, True, True]),
        (0.6667, [True, True, False]),  # client 3 swings
        (0.9999, [True, True, False]),
        (1.0001, [True, False, False]),
    ],
)
def test_radii_of_the_first_example(myopic, radius, right):
    assert [row["right"] for row in myopic if row["radius"] == radius] == right


def test_windows_of_the_first_example(myopic):
    every, second = (row for row in fig1.windows(myopic) if row["example"] == "myopic")
    assert (every["least"], every["largest"]) == (0.3334, 0.6666)
    assert (second["least"], second["largest"]) == (0.3334, 0.9999)
    assert (every["radii"], second["radii"]) == ("2/6", "4/6")


def test_a_path_computed_in_numpy(tmp_path):
    """Referee: Algorithm 2 and rule (4) in double precision, for one radius."""
    config = dataclasses.replace(TINY, myopic_radius=(0.5,))
    path = computed(tmp_path, "myopic", 1, config)["position"].values[0, 0, 0]
    models = np.full(3, 1.5)
    for row in path[1:30]:
        moved = []
        for client, x in enumerate(models):
            inflection = 12 * 0.25 * x * (x - 1) ** 2
            points = np.array([x / 3, inflection if x < 1 else x - 1, x - 2])
            centre = points[client]
            for _ in range(10):
                inside = np.abs(points - centre) <= 0.5
                centre = np.mean(np.where(inside, points, centre))
            moved.append(x - centre)
        models = np.array(moved)
        np.testing.assert_allclose(row, models, atol=1e-4)


def test_radii_of_the_second_example(tmp_path):
    table = clustered(tmp_path, "symmetric")
    right = {row["radius"]: row["right"] for row in table}
    assert right == {0.0: True, 1.9999: True, 2.0001: False}
    (window,) = (row for row in fig1.windows(table) if row["example"] == "symmetric")
    assert (window["least"], window["largest"]) == (0.0, 1.9999)


def test_single_samples_never_bring_partners_together(tmp_path):
    table = clustered(tmp_path, "bipartition")
    own = [row for row in fig1.windows(table) if row["example"] == "bipartition"]
    found = {(row["batch_size"], row["claim"]): row["radii"] for row in own}
    assert found[64, "all, together"] == found[64, "all"] == "1/2"
    assert found[1, "all, together"] == "0/2"  # Right only where all are alone.
    client = {row["batch_size"]: row for row in table if row["client"] == 2}
    assert client[64]["radius"] == 0.6 and client[64]["strangers"] == 1
    np.testing.assert_allclose(client[64]["model"], 1 / 3, atol=0.02)


def rights_of(positions, tails):
    """Of the second example at one radius; positions `[trial, round, client]`."""
    positions, tails = np.array(positions, float), np.array(tails, float)
    axes = ("batch_size", "radius", "trial", "client")
    counts = np.zeros((1, 1, *tails.shape))
    data = {
        "position": ((*axes[:3], "round", "client"), positions[None, None]),
        "tail": (axes, tails[None, None]),
        "company": (axes, counts),
        "strangers": (axes, counts),
    }
    found = xr.Dataset(data, {"batch_size": [1], "radius": [0.5]})
    table = fig1.rows({"symmetric": found}, dataclasses.replace(TINY, tolerance=0.1))
    return [row["right"] for row in table]


def test_a_cycle_around_the_optimum_is_not_right():
    still = [[[0, 0], [-0.5, 0.5], [-0.5, 0.5], [-0.5, 0.5]]]
    swings = [[[0, 0], [-0.5, 0.5], [-0.3, 0.5], [-0.7, 0.5]]]
    assert rights_of(still, [[-0.5, 0.5]]) == [True, True]
    assert rights_of(swings, [[-0.5, 0.5]]) == [False, True]


def test_what_is_no_number_is_not_right():
    lost = [[[0, 0], [-0.5, 0.5], [np.nan, 0.5], [-0.5, 0.5]]]
    assert rights_of(lost, [[np.nan, 0.5]]) == [False, True]
    pair = [[-0.5, np.nan], [-0.5, 0.5]]
    assert rights_of(np.zeros((2, 4, 2)), pair) == [True, False]
    positions = np.array([[[[np.nan, 0.5]]]])
    data = xr.Dataset(
        {"position": (("method", "trial", "round", "client"), positions)},
        {"method": ["option_one"]},
    )
    failed = fig1.failing_rows({"symmetric": data}, 0.05)
    assert [row["right"] for row in failed] == [False, True]
    assert "wrong: 1." in fig1.note(failed)


# Figure 2: the constants, against NumPy in double precision

SIZES = {"num_clusters": 3, "num_members": 4, "num_samples": 5, "num_features": 6}
TRIAL = fig2.Trial(minimisers="normal", first_mean=1.0, num_rounds=30, **SIZES)
KEY = jax.random.key(3)


@pytest.fixture(scope="module")
def drawn():
    """Data of the trial in NumPy: inputs, targets, models, curvatures."""

    def draw(key):
        data, truth = shifted_linear(key, minimisers="normal", **SIZES)
        return data.inputs, data.targets, truth.models, curvatures(data)

    return [np.asarray(array, float) for array in jax.jit(draw)(KEY)]


@pytest.fixture(scope="module")
def constants():
    run = jax.jit(functools.partial(fig2.simulate, TRIAL))
    return {name: np.asarray(array, float) for name, array in run(KEY).items()}


CLUSTERS = np.arange(12) // 4


def test_data_are_as_section_41_has_them(drawn):
    inputs, targets, models, own = drawn
    assert inputs.shape == (12, 5, 6) and models.shape == (3, 6)
    clean = np.einsum("isd,id->is", inputs, models[CLUSTERS])
    np.testing.assert_allclose(targets, clean, atol=1e-4)
    means = inputs.reshape(3, -1).mean(axis=1)
    np.testing.assert_allclose(means, [1, 2, 3], atol=5 / np.sqrt(4 * 5 * 6))
    product = np.einsum("isd,ise->ide", inputs, inputs) / 5
    np.testing.assert_allclose(own, product, rtol=1e-4, atol=1e-4)
    assert np.linalg.matrix_rank(product[0]) == 5  # Of 6: it leaves x open.


def test_constants_on_the_way(drawn, constants):
    inputs, targets, models, _ = drawn
    gradient = lambda i, x: inputs[i].T @ (inputs[i] @ x - targets[i]) / 5
    hessians = np.einsum("isd,ise->ide", inputs, inputs) / 5
    means = [hessians[k == CLUSTERS].mean(axis=0) for k in range(3)]
    step = 1 / np.linalg.eigvalsh(means)[:, -1].max()
    at = np.zeros((3, 6))
    for t in range(30):
        for k in range(3):
            every = np.array([gradient(i, at[k]) for i in range(12)])
            mean = every[k == CLUSTERS].mean(axis=0)
            for i in np.flatnonzero(k == CLUSTERS):
                within = np.sum((every[i] - mean) ** 2) / np.sum(mean**2)  # (7)
                gaps = np.sum((every[k != CLUSTERS] - every[i]) ** 2, axis=1)  # (8)
                both = constants["within"][t, i], constants["between"][t, i]
                np.testing.assert_allclose(both, (within, gaps.min()), rtol=2e-3)
            distance = np.linalg.norm(at[k] - models[k])
            np.testing.assert_allclose(constants["distance"][t, k], distance, rtol=1e-4)
            at[k] -= step * mean


def test_the_supremum_is_never_passed_and_is_reached(drawn, constants):
    own = drawn[3]
    mean = np.repeat(own.reshape(3, 4, 6, 6).mean(axis=1), 4, axis=0)
    turned = (own - mean) @ np.linalg.inv(mean)
    exact = np.linalg.norm(turned, ord=2, axis=(1, 2)) ** 2
    np.testing.assert_allclose(constants["within_anywhere"], exact, rtol=1e-2)
    assert (constants["within"] <= constants["within_anywhere"] * 1.01).all()
    # The model at which client 0 reaches it: H (x - x*) is the first singular vector.
    aside = np.linalg.solve(mean[0], np.linalg.svd(turned[0])[2][0])
    gradients = (own[0] - mean[0]) @ aside, mean[0] @ aside
    reached = np.sum(gradients[0] ** 2) / np.sum(gradients[1] ** 2)
    np.testing.assert_allclose(reached, exact[0], rtol=1e-6)


def test_gradients_of_two_clients_meet_somewhere(constants):
    assert constants["between_anywhere"] < 1e-3 * constants["between"].min()


def made_up_constants() -> xr.Dataset:
    """One data set of two clusters with two clients each, two rounds."""
    within = np.array([[1, 2, 3, 4], [5, 1, np.nan, np.nan]], float)
    between = np.array([[9, 8, 7, 6], [5, 6, 7, 8]], float)
    distance = np.array([[2, 4], [1, 1]], float)
    data = {
        "within": (("round", "client"), within),
        "between": (("round", "client"), between),
        "distance": (("round", "cluster"), distance),
        "within_anywhere": (("client",), np.array([10, 20, 30, 40.0])),
        "between_anywhere": ((), np.array(1e-6)),
    }
    found = xr.Dataset(data).expand_dims(("first_mean", "trial"))
    return found.assign_coords(trial=[0])


def test_rows_of_constants_by_hand():
    first, second = fig2.rows(made_up_constants())
    assert (first["first"], first["last"], first["largest"]) == (2, 5, 5)
    assert (first["half"], second["half"]) == (1, 0)
    assert (first["supremum"], first["least"], first["left"]) == (20, 5, 0.5)
    # The second cluster's mean gradient is 0 in the last round.
    assert (second["first"], second["last"], second["largest"]) == (4, 4, 4)
    assert (second["supremum"], second["least"], second["left"]) == (40, 6, 0.25)
    assert (first["least_first"], first["least_last"], first["meeting"]) == (8, 5, 1e-6)


def test_figure_2_says_whether_the_ratio_grows_and_the_gap_stays():
    table = fig2.rows(made_up_constants())
    claim, _, found = fig2.outcome(table).partition("\n\n")
    assert claim.startswith("The paper says") and len(re.findall(r"\.\s", found)) == 4
    assert "grows in 1 of 2 clusters" in found
    assert "1- to 2.5-fold; half of its largest value is reached in round 0" in found
    assert "does not support Assumption 4" in found
    assert "it is 40, the largest" in found and "Theorem 3 is then 1600" in found
    assert "0.625- to 1.17-fold and is at least 5" in found
    assert "no positive Delta^2 with D = 0" in found
    # Controls: a ratio that stays, gradients that do not meet, a ratio without bound.
    steady = [row | {"last": row["first"], "meeting": 0.5} for row in table]
    found = fig2.outcome(steady)
    assert "grows in 0 of 2 clusters" in found and "setting supports" in found
    assert "a positive Delta^2" in found
    free = [row | {"supremum": float("inf")} for row in table]
    assert "No constant A^2 bounds it" in fig2.outcome(free)


def test_a_cluster_keeps_its_inputs_beside_more_clusters():
    def draw(number):
        known: Any = {"num_members": 2, "minimisers": "reference"}
        return shifted_linear(jax.random.key(0), num_clusters=number, **known)

    draw = jax.jit(draw, static_argnums=0)
    two, three = draw(2), draw(3)
    np.testing.assert_array_equal(two[0].inputs, three[0].inputs[:4])
    assert set(np.unique(np.asarray(three[1].models))) == {0, 100}


# Figure 3: rows and rules by hand, momentum, starts, step sizes


def made_up_errors(squared, loss):
    """One method and scene; squared `[trial, step, tested]`, loss `[trial, step]`."""
    squared = np.array(squared, float)[None, None]
    axes = ("method", "scene", "trial", "step", "tested")
    data = {"loss": (axes[:4], np.array(loss, float)[None, None])}
    data |= dict.fromkeys(("squared", "purity", "company"), (axes, squared))
    data["distance"] = (axes, np.sqrt(squared))
    return xr.Dataset(data, {"method": ["fixed 0.1"], "scene": ["zero"]})


def test_rows_of_errors_by_hand():
    squared = [[[9, 8, 4], [9, 8, 1]], [[9, 7, 16], [9, 7, 25]], [[9, 9, 9]] * 2]
    data = made_up_errors(squared, [[0.1, 0.2], [NAN, 5], [3, 3]])
    one = data.sel({"method": "fixed 0.1", "scene": "zero"})
    assert fig3.chosen(one).tolist() == [0, 1, 0]  # NaN never wins.
    assert fig3.chosen(one, "truth").tolist() == [1, 0, 0]
    (row,) = fig3.rows({(4, 4): data})
    assert (row["label"], row["panel"]) == ("FC, fixed radius, factor 0.1", "(4, 4)")
    assert (row["start"], row["squared"], row["by_truth"]) == (9, 9, 9)
    np.testing.assert_allclose(row["squared_mean"], (4 + 25 + 9) / 3)
    np.testing.assert_allclose(row["distance_mean"], (2 + 5 + 3) / 3)
    assert row["steps"] == "2/1" and row["purity_first"] == 8


def rows_of(**errors):
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
    lines = rows_of(**BASELINES, **ORACLE, quantile_cluster=errors)
    found = fig3.claims(lines)
    assert len(found) == 4
    for row in found:
        assert row["beats"] == beats and row["beats_best"] == beats_best
        assert row["matches"] == matches
    text = fig3.note(lines, found, unknown_share=0.1)
    name = "quantile 1/K (by every error)"
    assert (f"every panel with {name}" in text) == beats
    assert (f"Both claims: zero: {name}" in text) == (beats and matches)
    assert ("Both claims: no radius" in text) != (beats and matches)


def test_no_rule_holds_beside_a_baseline_or_an_oracle_without_number():
    broken = BASELINES | {"fedavg": (8.0, NAN)}
    row = fig3.claims(rows_of(**broken, **ORACLE, gap_inner=(0.2, 0.01)))[0]
    assert not row["beats"] and row["matches"]
    useless = ORACLE | {"oracle": (0.0, 1.0)}
    lines = rows_of(**BASELINES, **useless, gap_inner=(0.2, 0.01))
    assert fig3.claims(lines)[0]["beats"] and not fig3.claims(lines)[0]["matches"]
    (line,) = [row for row in fig3.overview(lines) if row["method"] == "gap_inner"]
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
        own = fig3_trial.started(plain, start, momentum=momentum, trained=trained)
        state, x, m = own.init(key, nothing), 1.0, 0.0
        for _ in range(5):
            state = own.step(key, state, nothing)[0]
            m = momentum * m + (1 - momentum) * -0.5 * x
            x = x + m
        expected = [[x], [2.0]]
        np.testing.assert_allclose(state.models, expected, rtol=1e-5)
        np.testing.assert_array_equal(state.models, state.state.models)


def test_models_and_starts():
    key, places = jax.random.key(0), list(fig3_trial.SCENES)

    def start(method, scene, sizes=(2, 3)):
        clusters, members = sizes
        own = jnp.arange(clusters * members) // members
        truth = Truth(own, 100.0 * jnp.eye(clusters))
        place = fig3_trial.traced(places.index(scene))
        return fig3_trial.first_models(method, place, truth, key)

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
    sizes = {"num_clusters": 2, "num_members": 2, "num_samples": 2, "num_features": 3}
    sizes |= {"num_rounds": 200, "rounds_between": 100, "num_clipping_rounds": 2}
    descent = {"largest_share": 1.0, "step_ratio": 3.0, "momentum": 0.9, "num_steps": 1}
    start: dict = {"scene": 1, "factor": 0.0, "first_mean": 1.0, "num_restarts": 1}
    trial = fig3_trial.Trial(method="local", **sizes, **descent, **start)
    axes = {"method": ("local", "fixed"), "largest_share": (0.95, 1.05)}
    fields = {"dims": fig3_trial.DIMS, "traced": fig3.TRACED_FIELDS}
    grid = engine.Grid("fig3", trial, axes, num_trials=2, **fields)
    found = engine.sweep(grid, fig3_trial.simulate, tmp_path / "s", progress=False)
    alone, radius = (found.sel({"method": name}) for name in axes["method"])
    at = {"largest_share": 0.95}
    paths = [own["squared"].sel(at).values for own in (radius, alone)]
    np.testing.assert_allclose(*paths, rtol=1e-3)
    assert np.all(found["loss"].sel(at).values < 0.1)
    assert not np.any(found["loss"].sel({"largest_share": 1.05}).values < 100)


# Figure 4: contraction of the rounds, elbows, Theorem 1's rounds


def run_from(start: fig4.Start, **changes):
    usual: Any = {"num_clusters": 4, "num_members": 6, "num_features": 5}
    usual |= {"deviation": 0.2, "quantile": "0.25", "box": 10.0, "spread": 0.3}
    trial = fig4.Trial(start=start, **(usual | {"num_rounds": 60} | changes))
    found = jax.jit(functools.partial(fig4.simulate, trial))(jax.random.key(1))
    return {name: np.asarray(array, float) for name, array in found.items()}


def test_centres_contract_by_the_share_of_a_cluster():
    """With a cluster of 6 among 24 in every ball, v - m shrinks to 3/4 a round.

    The distance at place 5 of 0 to 23, and a little more, is that of the last member.
    Members lie 1e-4 about the truth, by which a distance may differ from v - m.
    """
    place = repr((5 + 1e-3) / 23)
    found = run_from("near", quantile=place, deviation=1e-4)["own"]
    bound = 5e-4 / found[0] + 1e-5
    np.testing.assert_allclose(found[:10] / found[0], 0.75 ** np.arange(10), atol=bound)
    fewer = run_from("near", quantile=repr((4 + 1e-3) / 23), deviation=1e-4)["own"]
    assert np.abs(fewer[:10] / fewer[0] - 0.75 ** np.arange(10)).max() > 10 * bound


def test_starts_share_truth_and_reach_their_clusters():
    member, near, origin = (run_from(start) for start in ("member", "near", "origin"))
    assert member["separation"] == near["separation"] == origin["separation"] > 1
    assert max(member["own"][-1], near["own"][-1]) < 0.5
    np.testing.assert_allclose(member["own"], member["nearest"], rtol=1e-4)
    # All centres move as one from the origin: most clusters have none near them.
    assert origin["own"][-1] > 5 < origin["nearest"][-1]


def test_random_starts_are_measured_from_their_own_cluster():
    found = run_from("random")
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
    # Where it gets to its minimum, whatever it was.
    assert fig4.printed(curve)[-1] == -1
    assert math.isnan(fig4.elbow(curve[::-1].copy(), 0.01))


@pytest.mark.parametrize("curve", [np.ones(5), np.arange(4.0)])
def test_what_never_falls_has_no_elbow(curve):
    assert math.isnan(fig4.elbow(curve, 0.01))


def test_theorem_1_asks_for_fewer_rounds_of_wider_clusters():
    wanted = [fig4.asked(13.7, sigma * math.sqrt(10), 0.1) for sigma in (0.5, 1, 2, 4)]
    np.testing.assert_allclose(wanted, [42.1, 28.6, 15.1, 1.55], atol=0.05)
    assert sorted(wanted, reverse=True) == wanted
    assert fig4.asked(1.0, 5.0, 0.1) == 1  # Never less than one.


def made_up_curves(curves) -> xr.Dataset:
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


def rows_of_curves(curves):
    known = {"num_clusters": 4, "num_features": 4, "threshold": 0.1}
    config = dataclasses.replace(fig4.preset("quick"), **known)
    return fig4.rows(made_up_curves(curves), config)


def test_rows_of_distances_by_hand():
    (row,) = rows_of_curves([[10, 2, 1, 1, 1], [10, 5, 0.5, 0.1, 0.1]])
    assert (row["first"], row["nearest"]) == (10, 1.55)
    np.testing.assert_allclose(row["floor"], 0.55)
    assert row["elbow"] == (3 + 3) / 2 and row["with_elbow"] == "2/2"
    assert row["fallen"] == 2
    np.testing.assert_allclose(row["printed_first"], (-8 / 9 - 5 / 9.9) / 2)
    assert row["printed_least"] == -1
    np.testing.assert_allclose(row["asked"], np.log(0.2) / np.log(1 - 1 / 8))


def test_repetitions_that_never_fall_are_no_successes():
    (row,) = rows_of_curves([[1, 2, 3], [1, 1, 1], [5, 1, 1]])
    assert row["with_elbow"] == "1/3" and row["elbow"] is None
    assert (row["fallen"], row["printed_least"]) == (1, -1)
    (none,) = rows_of_curves([[1, 2, 3], [1, 1, 1]])
    assert none["with_elbow"] == "0/2" and none["printed_least"] is None
    assert "origin none" in fig4.note([none]) and "nothing" in fig4.note([none])
