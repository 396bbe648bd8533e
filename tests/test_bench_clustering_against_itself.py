"""The benchmark of clustering, at a small size."""

import dataclasses

import numpy as np
import pytest

from experiments.bench.clustering import Config, draw, main
from experiments.options import Options

SMALL = Config(num_clients=30, num_clusters=3, num_restarts=2, repeats=1)


def test_both_find_the_clusters_of_models_near_their_truths(tmp_path):
    summary = main(SMALL, Options(out=tmp_path))
    near, far = summary["rows"][:2], summary["rows"][2:]
    assert [row["ARI"] for row in near] == [1, 1]
    assert len(far) == 2 and all(row["ms"] > 0 for row in near + far)
    assert near[0]["its time / cfljax"] == 1 != near[1]["its time / cfljax"]


def test_losses_have_their_mean_and_spread():
    losses, clusters = draw(dataclasses.replace(SMALL, num_clients=3000), 0.25)
    own = clusters[:, None] == np.arange(3)
    for entries, square in ((losses[own], 0.0725), (losses[~own], 2.0725)):
        error = square * np.sqrt(2 / SMALL.num_samples / len(entries))
        assert abs(entries.mean() - square) < 4 * error
        np.testing.assert_allclose(entries.std(), square * np.sqrt(0.1), rtol=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"repeats": 0}, "`repeats` must be at least 1, got 0"),
        ({"num_clients": 2}, "`num_clients` must be at least `num_clusters`"),
    ],
)
def test_misuse_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SMALL, **change)
