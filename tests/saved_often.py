"""Processes that run experiments and save the state of a long run after every round."""

import pathlib

# Whoever starts Python reads a file of this name; only those that compute do it. Each
# save is noted, and takes some seconds more, so that runs are long.
SITE = """
import os, sys
if {"run", "--multiprocessing-fork"} & set(sys.orig_argv):
    import functools, importlib, time
    checkpoints = importlib.import_module("cfljax.engine.checkpoints")
    ways = importlib.import_module("cfljax.engine.ways")
    write = checkpoints.Checkpoint.write
    def noted(self, done):
        write(self, done)
        with open(os.environ["SAVED_LOG"], "a") as file:
            file.write(f"{self.path} {done.rounds}\\n")
        time.sleep(float(os.environ["SAVED_SECONDS"]))
    checkpoints.Checkpoint.write = noted
    checkpoints._SEGMENT = 0.0
    ways.checkpoints = functools.partial(checkpoints.checkpoints, every=0.0)
"""


def environment(folder: pathlib.Path, seconds: float) -> dict[str, str]:
    """What has this effect in an environment, with a new folder of its own."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)
    own = {"PYTHONPATH": str(folder), "SAVED_LOG": str(folder / "log")}
    return own | {"SAVED_SECONDS": str(seconds)}


def saved(folder: pathlib.Path, out: pathlib.Path) -> dict[str, list[int]]:
    """Rounds that were behind each save, in order, by file below `out`."""
    found: dict[str, list[int]] = {}
    log = folder / "log"
    for line in log.read_text().splitlines() if log.exists() else ():
        path, _, rounds = line.rpartition(" ")
        if pathlib.Path(path).is_relative_to(out):
            found.setdefault(path, []).append(int(rounds))
    return found
