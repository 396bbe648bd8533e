"""Processes that run experiments and save the state of a long run after every round."""

import pathlib

# Whoever starts Python reads a file of this name; only those that compute do it.
SITE = """
import sys
if {"run", "--multiprocessing-fork"} & set(sys.orig_argv):
    import functools, importlib
    checkpoints = importlib.import_module("cfljax.engine.checkpoints")
    sweeps = importlib.import_module("cfljax.engine.sweeps")
    checkpoints._SEGMENT = 0.0
    sweeps.checkpoints = functools.partial(checkpoints.checkpoints, every=0.0)
"""


def place(folder: pathlib.Path) -> pathlib.Path:
    """Make a folder that has this effect where it is in `PYTHONPATH`."""
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(SITE)
    return folder
