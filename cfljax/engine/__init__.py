"""What runs algorithms: one run, and grids of trials that lose nothing."""

from cfljax.engine.devices import clients_over_devices, use_cores
from cfljax.engine.errors import StoreError, SweepError
from cfljax.engine.grid import Grid
from cfljax.engine.joint import Joint
from cfljax.engine.run import run
from cfljax.engine.sweep import sweep

__all__ = [
    "Grid",
    "Joint",
    "StoreError",
    "SweepError",
    "clients_over_devices",
    "run",
    "sweep",
    "use_cores",
]
