"""The benchmarks of clustering and of thresholding, at a small size."""

import dataclasses

import numpy as np
import pytest

from experiments.bench import clustering, thresholding
from experiments.options import Options

SMALL = clustering.Config(num_clients=30, num_clusters=3, num_restarts=2, repeats=1)


def test_both_find_the_clusters_of_models_near_their_truths(tmp_path):
    summary = clustering.main(SMALL, Options(out=tmp_path))
    near, far = summary["rows"][:2], summary["rows"][2:]
    assert [row["ARI"] for row in near] == [1, 1]
    assert len(far) == 2 and all(row["ms"] > 0 for row in near + far)
    assert near[0]["its time / cfljax"] == 1 != near[1]["its time / cfljax"]


def test_losses_have_their_mean_and_spread():
    losses, clusters = clustering.draw(
        dataclasses.replace(SMALL, num_clients=3000), 0.25
    )
    own = clusters[:, None] == np.arange(3)
    for entries, square in ((losses[own], 0.0725), (losses[~own], 2.0725)):
        error = square * np.sqrt(2 / SMALL.num_samples / len(entries))
        assert abs(entries.mean() - square) < 4 * error
        np.testing.assert_allclose(entries.std(), square * np.sqrt(0.1), rtol=0.1)


LITTLE = thresholding.Config(
    num_clients=5,
    num_samples=3,
    num_groups=2,
    num_hidden=4,
    num_points=20,
    num_features=30,
    num_clipping_rounds=2,
    num_compared=2,
    repeats=1,
)


def test_work_by_hand():
    first, second = 784 * 4 * 3 * 2, 4 * 10 * 3 * 2  # Of one client at one model.
    assert thresholding.work(LITTLE) == (3**2 + 2**2) * (2 * first + 3 * second)


def test_the_reference_by_hand():
    points = np.array([[0.0], [1.0], [4.0]])
    config = dataclasses.replace(LITTLE, num_compared=1, num_clipping_rounds=2)
    # To (0 + 1 + 0) / 3, then with both inside again.
    np.testing.assert_allclose(
        thresholding.by_coordinates(points, config, 1.0),
        [[1 / 3 + (-1 / 3 + 2 / 3) / 3]],
    )


@pytest.mark.slow
def test_both_forms_agree(tmp_path):
    rows = thresholding.main(LITTLE, Options(out=tmp_path))["rows"]
    assert len(rows) == 6 and all(row["seconds"] > 0 for row in rows)
    (difference,) = [
        row["largest difference"]
        for row in rows
        if row["largest difference"] is not None
    ]
    assert difference < 1e-12
    assert rows[1]["share of the product's rate"] == 1


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        (SMALL, {"repeats": 0}, "`repeats` must be at least 1, got 0"),
        (SMALL, {"num_clients": 2}, "`num_clients` must be at least `num_clusters`"),
        (LITTLE, {"repeats": 0}, "`repeats` must be at least 1, got 0"),
        (LITTLE, {"num_groups": 6}, "`num_groups` must be at most `num_clients`"),
    ],
)
def test_misuse_is_refused(config, change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(config, **change)
