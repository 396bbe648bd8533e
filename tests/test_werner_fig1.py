"""Werner's Figure 1: where the methods end, which radii escape, and rows by hand."""

import dataclasses
import pathlib

import numpy as np
import pytest
import xarray as xr

from experiments.options import Options
from experiments.werner import fig1
from experiments.werner.study import Study

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
    return own.sweep(grid, (fig1.fail, fig1.simulate)[which], f"{name}{which}")


def clustered(folder, name):
    found = {name: computed(folder, name, 1)}
    return fig1.rows(found, TINY)


@pytest.fixture(scope="module")
def myopic(tmp_path_factory):
    return clustered(tmp_path_factory.mktemp("myopic"), "myopic")


# Against theory


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


# Against itself


def made_up(positions, tails):
    """One radius of the second example; positions `[trial, round, client]`."""
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
    return fig1.rows({"symmetric": found}, dataclasses.replace(TINY, tolerance=0.1))


def test_a_cycle_around_the_optimum_is_not_right():
    still = [[[0, 0], [-0.5, 0.5], [-0.5, 0.5], [-0.5, 0.5]]]
    swings = [[[0, 0], [-0.5, 0.5], [-0.3, 0.5], [-0.7, 0.5]]]
    assert [row["right"] for row in made_up(still, [[-0.5, 0.5]])] == [True, True]
    assert [row["right"] for row in made_up(swings, [[-0.5, 0.5]])] == [False, True]


def test_what_is_no_number_is_not_right():
    lost = [[[0, 0], [-0.5, 0.5], [np.nan, 0.5], [-0.5, 0.5]]]
    assert [row["right"] for row in made_up(lost, [[np.nan, 0.5]])] == [False, True]
    pair = [[-0.5, np.nan], [-0.5, 0.5]]
    two = made_up(np.zeros((2, 4, 2)), pair)
    assert [row["right"] for row in two] == [True, False]
    positions = np.array([[[[np.nan, 0.5]]]])
    data = xr.Dataset(
        {"position": (("method", "trial", "round", "client"), positions)},
        {"method": ["option_one"]},
    )
    failed = fig1.failing_rows({"symmetric": data}, 0.05)
    assert [row["right"] for row in failed] == [False, True]
    assert "wrong: 1." in fig1.note(failed)
