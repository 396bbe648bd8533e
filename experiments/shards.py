"""What a worker that computed its share of a sweep says of the whole."""

from typing import Any

__all__ = ["shard_summary"]


def shard_summary(
    experiment: str,
    *,
    shard: tuple[int, int],
    num_open: int,
    num_blocks: int,
    failed_cells: int = 0,
) -> dict[str, Any]:
    """A summary for the command line, of a run that writes no files.

    Args:
      experiment: id, e.g. "ifca.fig3a".
      shard: `(i, n)`, this was worker i of n.
      num_open: blocks of the whole sweep that are yet to be computed; failed ones are
        not among them.
      num_blocks: of the whole sweep.
      failed_cells: whose computation failed, in any worker.
    """
    number, workers = shard
    state = f"none of {num_blocks} blocks is open; run"
    if num_open:
        state = (
            f"{num_open} of {num_blocks} blocks are open; start the others, then run"
        )
    return {
        "experiment": experiment,
        "headline": f"{experiment}, worker {number} of {workers}: {state} without "
        "--shard for table and figures",
        "files": [],
        "shard": f"{number}/{workers}",
        "open_blocks": num_open,
        "blocks": num_blocks,
        "failed_cells": failed_cells,
    }
