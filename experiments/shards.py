"""What a worker that computed its share of a sweep says of the whole."""

from typing import Any


def shard_summary(
    experiment: str,
    *,
    shard: tuple[int, int],
    num_open: int,
    num_blocks: int,
    failed_cells: int = 0,
) -> dict[str, Any]:
    """A summary for the command line of worker i of n, for a `shard` of `(i, n)`, which
    writes no files; open blocks and failed cells are the whole sweep's.
    """
    number, workers = shard
    count = f"{num_open} of {num_blocks} blocks are open; start the others, then"
    state = count if num_open else f"none of {num_blocks} blocks is open;"
    return {
        "experiment": experiment,
        "headline": f"{experiment}, worker {number} of {workers}: {state} run "
        "without --shard for table and figures",
        "files": [],
        "shard": f"{number}/{workers}",
        "open_blocks": num_open,
        "blocks": num_blocks,
        "failed_cells": failed_cells,
    }
