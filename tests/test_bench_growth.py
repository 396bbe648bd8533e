"""How a round's time and memory grow: exponents, processes, sizes."""

import dataclasses
import pathlib

import numpy as np
import pytest

from experiments.bench import growth
from experiments.options import Options

SIZES = growth.Config(
    mlp_clients=(2, 4),
    cnn_clients=(2,),
    num_models=(1, 2),
    ifca_clients=2,
    mlp_samples=3,
    cnn_samples=3,
    mlp_hidden=4,
    cnn_channels=(2,),
    cnn_hidden=3,
    image=4,
    repeats=1,
)


@pytest.mark.long
def test_exponents_are_those_of_the_curves(monkeypatch, tmp_path):
    """Time in proportion to the clients, and memory that does not grow; with models
    both are made to grow as their square, the control."""

    def made_up(work, config):
        count = work.num_clusters**2 if work.chooses else work.num_clients
        peak = 7.0 * (work.num_clusters**2 if work.chooses else 1)
        memory = {"data, MiB": 1.0, growth.PEAK: peak}
        return {growth.SECONDS: 0.1 * count, **memory, "repeats": 1}

    monkeypatch.setattr(growth, "_measured", made_up)
    summary = growth.main(SIZES, Options(out=tmp_path, progress=False))
    found = {row["what"]: row for row in summary["exponents"]}
    assert set(found) == {"FedAvg, MLP", "IFCA, MLP"}  # One size has no slope.
    names = [f"exponent of {name}" for name in (growth.SECONDS, growth.PEAK)]
    for what, expected in (("FedAvg, MLP", (1, 0)), ("IFCA, MLP", (2, 2))):
        slopes = [found[what][name] for name in names]
        np.testing.assert_allclose(slopes, expected, atol=1e-12)
    assert len(summary["rows"]) == 5
    assert all(pathlib.Path(file).stat().st_size for file in summary["files"])


@pytest.mark.slow
def test_a_size_is_measured_in_a_process_of_its_own():
    *_, (_, _, _, work) = SIZES.works()
    found = growth._measured(work, SIZES)
    assert found[growth.SECONDS] > 0 and found["repeats"] == 1
    assert found["data, MiB"] == 2 * 3 * 4 * 4 * 4 / 2**20


@pytest.mark.parametrize("wrong", [{"num_models": (0,)}, {"mlp_clients": (2, 2)}])
def test_impossible_sizes_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        dataclasses.replace(SIZES, **wrong)
