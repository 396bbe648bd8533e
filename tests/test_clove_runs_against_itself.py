"""CLoVE's experiments, run whole on a few digits."""

import dataclasses
import json

import jax
import numpy as np
import pytest
from test_clove_study_against_itself import SMALL

from cfljax.engine.store import Store
from cfljax.report import read_csv
from experiments.clove import table1
from experiments.clove.rows import View
from experiments.clove.study import run
from experiments.options import Options


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")  # Optax's Adam: a float to an integer's power.
def test_command_writes_all_and_resumes_whatever_was_done_before(
    tmp_path, monkeypatch, refuse_work
):
    methods = ("clove", "ifca", "fedavg", "local")
    config = dataclasses.replace(SMALL, partitions=("label_skew_1",), methods=methods)
    options = Options(out=tmp_path / "whole", progress=False)
    summary = table1.main(config, options)
    assert summary["failed_cells"] == 0 and len(summary["rows"]) == 4
    names = {"table.csv", "runs.csv", "table.md", "config.json"}
    names |= {"rand_index.svg", "rand_index.png"}
    assert {path.rsplit("/", 1)[1] for path in summary["files"]} == names
    found = read_csv(options.out / "runs.csv")
    assert len(found) == 8 and all(0 <= run["score"] <= 1 for run in found)
    received = {run["method"]: run["received_mib"] for run in found}
    assert received["local"] == 0 < received["fedavg"]
    for name in ("clove", "ifca"):  # All models of K = 5, where FedAvg has one.
        np.testing.assert_allclose(received[name] / received["fedavg"], 5, rtol=1e-5)

    # Of fewer methods, in another chunk, interrupted after a cell: the same numbers.
    fewer = dataclasses.replace(config, methods=("clove", "fedavg"))
    other = dataclasses.replace(options, out=tmp_path / "parts", chunk=1)
    write = Store.write

    def interrupted(self, *arguments):
        write(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as context, pytest.raises(KeyboardInterrupt):
        context.setattr(Store, "write", interrupted)
        table1.main(fewer, other)
    resumed = table1.main(fewer, other)["rows"]
    assert json.dumps(resumed) == json.dumps(summary["rows"][::2])

    # Nothing is run again.
    refuse_work()
    again = table1.main(config, options)
    assert json.dumps(again["rows"]) == json.dumps(summary["rows"])


@pytest.mark.slow
@jax.numpy_dtype_promotion("standard")
def test_few_participants_autoencoders_and_every_variant(tmp_path):
    config = dataclasses.replace(
        SMALL,
        partitions=("one_class",),
        methods=("clove_early_stopping", "ifca_identical", "clove_gradient"),
        reconstruct=True,
        participations=(0.4,),
        num_rounds=6,
        rounds_between=3,
        num_trials=1,
        num_latent=2,
    )
    options = Options(out=tmp_path, progress=False)
    early, identical, gradient = run("any", config, options, View("any"))["rows"]
    assert {row["participants"] for row in (early, identical, gradient)} == {8}
    assert 0 < early["loss_mean"] < 1 and "accuracy_mean" not in early
    # All losses under identical models are equal, so that only the first is trained.
    used = {
        run["method"]: run["used_models"] for run in read_csv(tmp_path / "runs.csv")
    }
    assert used["ifca_identical"] == 1 < used["clove_gradient"]
