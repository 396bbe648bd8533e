"""Exact shortcuts: runs of IFCA on linear regression, for less than their rounds."""

from cfljax.shortcuts.ifca import Ends, run_ifca
from cfljax.shortcuts.samples import Samples, draw_samples, prepare
from cfljax.shortcuts.state import Work

__all__ = ["Ends", "Samples", "Work", "draw_samples", "prepare", "run_ifca"]
