"""What every experiment is run with besides its own configuration."""

import dataclasses
import pathlib

__all__ = ["Options"]


@dataclasses.dataclass(frozen=True)
class Options:
    """How to run, never what: no option changes a number.

    out: folder of the results; made if missing.
    chunk: trials per compiled call; as many as fit in `memory` if None.
    memory: bytes that a sweep may use; half of what is free if None.
    data: folder of the original data files; `CFLJAX_DATA` if None.
    progress: whether to draw a progress bar.
    devices: local devices that experiments spread clients over; all if None.
    """

    out: pathlib.Path
    chunk: int | None = None
    memory: int | None = None
    data: pathlib.Path | None = None
    progress: bool = True
    devices: int | None = None

    def __post_init__(self) -> None:
        if self.chunk is not None and self.chunk < 1:
            raise ValueError(f"`chunk` must be at least 1, got {self.chunk}.")
        if self.devices is not None and self.devices < 1:
            raise ValueError(f"`devices` must be at least 1, got {self.devices}.")
        if self.memory is not None and self.memory < 1:
            raise ValueError(f"`memory` must be at least 1 byte, got {self.memory}.")
