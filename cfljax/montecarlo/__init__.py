"""Runs of IFCA on linear regression followed exactly, for less than their rounds."""

from cfljax.montecarlo.lookahead import choose
from cfljax.montecarlo.run import Ends, run_ifca
from cfljax.montecarlo.samples import Samples, draw_samples, prepare
from cfljax.montecarlo.state import Work

__all__ = [
    "Ends",
    "Samples",
    "Work",
    "choose",
    "draw_samples",
    "prepare",
    "run_ifca",
]
