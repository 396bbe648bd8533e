"""What every experiment is run with besides its own configuration."""

import dataclasses
import pathlib


@dataclasses.dataclass(frozen=True)
class Options:
    """How to run, never what: no option changes a trial."""

    out: pathlib.Path  # folder of the results; made if missing
    # Folder in which sweeps look for what is computed, and put the rest, or such a
    # place in a bucket, s3://BUCKET/PREFIX; `store` below `out` if None.
    store: pathlib.Path | str | None = None
    # Why it is harmless that cells are completed by other code than began them.
    accept_code: str | None = None
    # Trials per compiled call; as many as fit in `memory` if None.
    chunk: int | None = None
    # Bytes that a sweep may use; half of what is free if None.
    memory: int | None = None
    # Folder of the original data files; `CFLJAX_DATA` if None.
    data: pathlib.Path | None = None
    progress: bool = True  # whether to draw a progress bar
    # Local devices that experiments spread clients over, and sweeps trials; all if
    # None, but one for sweeps on a CPU.
    devices: int | None = None
    # Length of a cell's interval, in (0, 1], below which a sweep adds no trials to it.
    # The only option that decides how many trials there are; as many as configured if
    # None.
    precision: float | None = None
    # `(i, n)`, this is worker i of n, from 1, on the sweep's store; the whole sweep if
    # None.
    shard: tuple[int, int] | None = None
    # Whether to stay, where other runs compute what is left, until they have done it.
    waits: bool = False

    @property
    def store_folder(self) -> pathlib.Path | str:
        """Where sweeps keep what they compute."""
        return self.store or self.out / "store"

    def __post_init__(self) -> None:
        for name, least in (("chunk", "1"), ("devices", "1"), ("memory", "1 byte")):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"`{name}` must be at least {least}, got {value}.")
        if self.precision is not None and not 0 < self.precision <= 1:
            raise ValueError(f"`precision` must be in (0, 1], got {self.precision}.")
        if self.shard is not None and not 1 <= self.shard[0] <= self.shard[1]:
            number, workers = self.shard
            raise ValueError(
                f"`shard` must be I/N with 1 <= I <= N, got {number}/{workers}."
            )
        if self.shard is not None and self.waits:
            raise ValueError(
                "`--wait` has no use with `--shard`: a worker leaves to the others what"
                " they compute, and makes no table."
            )
