"""What runs algorithms: one run, and grids of trials that lose nothing."""

from cfljax.engine.run import run

__all__ = ["run"]
