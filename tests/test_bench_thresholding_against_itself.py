"""The benchmark of thresholding, at a small size."""

import dataclasses

import numpy as np
import pytest

from experiments.bench.thresholding import Config, by_coordinates, main, work
from experiments.options import Options

SMALL = Config(
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
    assert work(SMALL) == (3**2 + 2**2) * (2 * first + 3 * second)


def test_the_reference_by_hand():
    points = np.array([[0.0], [1.0], [4.0]])
    config = dataclasses.replace(SMALL, num_compared=1, num_clipping_rounds=2)
    # To (0 + 1 + 0) / 3, then with both inside again.
    np.testing.assert_allclose(
        by_coordinates(points, config, 1.0), [[1 / 3 + (-1 / 3 + 2 / 3) / 3]]
    )


@pytest.mark.slow
def test_both_forms_agree(tmp_path):
    rows = main(SMALL, Options(out=tmp_path))["rows"]
    assert len(rows) == 6 and all(row["seconds"] > 0 for row in rows)
    (difference,) = [
        row["largest difference"]
        for row in rows
        if row["largest difference"] is not None
    ]
    assert difference < 1e-12
    assert rows[1]["share of the product's rate"] == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 0}, "`repeats` must be at least 1, got 0"),
        ({"num_groups": 6}, "`num_groups` must be at most `num_clients`"),
    ],
)
def test_misuse_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)
