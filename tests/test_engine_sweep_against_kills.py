"""A sweep that is killed again and again must end as the one that never was."""

import pathlib
import subprocess
import sys

import numpy as np
import pytest
import xarray
from engine_trial import draw, plain_grid

from cfljax.engine import Grid, sweep

# One process imports everything and starts nothing; it forks a child per attempt,
# which spares the imports. A child is killed when it has added some files, at a
# moment that the delay makes random within the writing of a block.
SCRIPT = """
import os, pathlib, random, signal, sys, time, warnings
warnings.simplefilter("ignore")
from engine_trial import draw
from test_engine_sweep_against_kills import many_blocks
from cfljax.engine import sweep

path, kills = pathlib.Path(sys.argv[1]), int(sys.argv[2])
count = lambda: sum(1 for _ in path.rglob("*"))
random.seed(kills)

def child():
    process = os.fork()
    if process == 0:
        sweep(many_blocks(), draw, path)
        os._exit(0)
    return process

killed = 0
for attempt in range(kills):
    process, before = child(), count()
    more = random.randrange(250 // kills) if attempt else random.randrange(8)
    while count() < before + more and os.waitpid(process, os.WNOHANG)[0] == 0:
        time.sleep(0.0005)
    time.sleep(random.random() * 0.003)
    try:
        os.kill(process, signal.SIGKILL)
        killed += os.waitpid(process, 0)[1] == signal.SIGKILL
    except (ProcessLookupError, ChildProcessError):
        break
print(killed, (path / "done").is_dir() and len(list((path / "done").glob("c.*"))))
print(os.waitpid(child(), 0)[1])
"""


def many_blocks() -> Grid:
    axes = {"separation": tuple(np.linspace(0.1, 1.0, 5)), "noise": (1.0, 2.0)}
    return plain_grid(axes=axes, num_trials=115)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> xarray.Dataset:
    return sweep(many_blocks(), draw, tmp_path_factory.mktemp("unbroken") / "s")


@pytest.mark.parametrize("kills", [6, pytest.param(30, marks=pytest.mark.slow)])
def test_killed_sweep_equals_the_unbroken_one(tmp_path, unbroken, kills):
    path = tmp_path / "s"
    here = pathlib.Path(__file__).parent
    command = [sys.executable, "-c", SCRIPT, str(path), str(kills)]
    environment = {"PYTHONPATH": f"{here}:{here.parent}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stderr
    killed, blocks, status = map(int, done.stdout.split())
    assert killed == kills and 0 < blocks < 120, "kills must fall in the middle"
    assert status == 0
    assert sweep(many_blocks(), draw, path).identical(unbroken)
    assert not np.isnan(unbroken["value"]).any()
