"""Rotated CIFAR: one device or several, and what memory they are said to take."""

import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = """
import dataclasses, json, pathlib, sys
from cfljax import engine
devices = int(sys.argv[1])
assert engine.use_cores(devices) == devices
from cfljax.engine import execute
from cfljax.engine.memory import needed_memory
from experiments.ifca import rotated, table1_cifar
from experiments.ifca.rotated_sweep import load, sweep
from experiments.options import Options

plans = []
compiled = execute.compile_trials

def compile_trials(*args, **kwargs):
    program = compiled(*args, **kwargs)
    plan = program.compiled[0].memory_analysis()
    arguments = plan.argument_size_in_bytes + plan.temp_size_in_bytes
    plans.append((needed_memory(program, block=1), arguments))
    return program

execute.compile_trials = compile_trials
config = dataclasses.replace(
    table1_cifar.preset("quick"), num_clients=8, num_samples=20, num_test_clients=4,
    num_test_samples=20, num_local_clients=4, num_released=2, num_rounds=2,
    rounds_between=1, num_channels=2, num_hidden=4, num_trials=1, clients_per_chunk=2,
    images="digits",
)
options = Options(out=pathlib.Path(sys.argv[2]), devices=devices, progress=False)
images = load("digits", options, fall_back=False)
results = []
for grid in table1_cifar._grids(config, images):
    data = sweep(grid, rotated.simulate, images, options, name=grid.trial.start)
    assert not data.attrs["failures"]
    results.append({name: data[name].values.tolist() for name in rotated.DIMS})
print(json.dumps({"results": results, "plans": plans}))
"""


@pytest.mark.slow
def test_devices_change_no_bit_and_their_memory_is_counted(tmp_path):
    found = []
    for devices in (1, 2):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(devices), str(tmp_path / str(devices))],
            cwd=ROOT,
            env=os.environ | {"JAX_PLATFORMS": "cpu"},
            capture_output=True,
            text=True,
        )
        assert not done.returncode, done.stderr
        found.append(json.loads(done.stdout.splitlines()[-1]))
    for one, two in zip(found[0]["results"], found[1]["results"], strict=True):
        for name, values in one.items():
            np.testing.assert_array_equal(two[name], values, err_msg=name)
    first, second = found[0]["results"]  # Another start is another result.
    assert first["start_share"] != second["start_share"]
    for devices, runs in enumerate(found, start=1):
        for needed, plan in runs["plans"]:
            assert devices * plan <= needed < (devices + 1) * plan
