"""The published numbers of IFCA's Table 1 that stand beside ours."""

import csv
import dataclasses

from test_table1_against_equations import digits

from experiments.ifca import table1_mnist
from experiments.ifca.rotated_report import published


def test_published_numbers_against_reference(shared):
    with (shared / "published" / "numbers.csv").open(newline="") as file:
        theirs = [
            (row["setting"], row["algorithm"], float(row["mean"]), float(row["std"]))
            for row in csv.DictReader(file)
            if (row["item"], row["dataset"]) == ("Table 1", "Rotated MNIST")
        ]
    config = table1_mnist.preset("paper")
    ours = []
    for setting in config.settings:
        trial = table1_mnist._grid(config, *setting, digits("mnist")).trial
        assert trial.num_clients * trial.num_samples == 60000 * 4
        assert trial.num_test_clients * trial.num_samples == 10000 * 4
        for algorithm, name in (("ifca", "IFCA"), ("fedavg", "global"), ("local",) * 2):
            cell = published(trial, algorithm)
            assert cell is not None
            assert cell.same
            assert cell.setting == f"{trial.num_clients} x {trial.num_samples}"
            label = f"clients x samples {cell.setting}"
            ours.append((label, name, cell.mean, cell.std))
        for change in ({"num_rounds": 60}, {"num_hidden": 100}, {"num_samples": 25}):
            cell = published(dataclasses.replace(trial, **change), "ifca")
            assert cell is not None and not cell.same
        digit = dataclasses.replace(trial, images="digits")
        assert published(digit, "ifca") is None
    assert sorted(ours) == sorted(theirs) and len(theirs) == 9
