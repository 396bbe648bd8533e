"""A picture of a partition: which client has how many samples of which class."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Int

from cfljax.base.types import ClientData, Truth

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MOST_NAMED = 40  # Columns, above which their numbers would overlap.
_MOST_COUNTED = 24  # Columns, above which counts would not fit their cells.
_MOST_CLUSTERS = 25  # Above which their borders would hide what is between them.


def plot_partition(
    data: ClientData, truth: Truth | None = None, *, ax: "Axes | None" = None
) -> "Axes":
    """Draws clients, by cluster, against classes: shades tell numbers of samples.

    Shades are those of "cividis", which are told apart by all eyes and in grey, on a
    logarithmic scale; a class that a client has no sample of is left white. Numbers are
    written where they fit. Targets that are no labels are counted together.

    Args:
      data: targets `[clients, samples]`; integers are labels.
      truth: clusters of the clients, which are set side by side; None for one cluster.
      ax: where to draw; a figure of its own if None.

    Returns:
      The axes. Columns are clients, in the order of their clusters; `save` by
      `ax.figure.savefig("partition.pdf")`.

    Raises:
      ValueError: if the truth is of other clients.
    """
    from matplotlib import pyplot as plt  # Slow to import and seldom needed.
    from matplotlib.colors import LogNorm
    from matplotlib.ticker import MaxNLocator

    counts, names = _counts(data)
    number = counts.shape[1]
    clusters = np.zeros(number, int) if truth is None else np.asarray(truth.clusters)
    if clusters.shape != (number,):
        raise ValueError(
            f"`truth` must have one cluster for each of {number} clients, got shape "
            f"{clusters.shape}."
        )
    order = np.argsort(clusters, kind="stable")
    counts = counts[:, order]
    if ax is None:
        height = 1.6 + 0.24 * min(len(names), 40)
        _, ax = plt.subplots(figsize=(8, height), layout="constrained")
    assert ax is not None
    largest = max(int(counts.max()), 2)
    image = ax.imshow(
        np.ma.masked_equal(counts, 0),
        cmap="cividis_r",
        norm=LogNorm(1, largest),
        aspect="auto",
        interpolation="nearest",
    )
    steps = (step * 10**power for power in range(9) for step in (1, 2, 5))
    shown = [step for step in steps if step <= largest]
    bar = ax.figure.colorbar(image, ax=ax, label="samples", pad=0.02)
    bar.set_ticks(shown, labels=list(map(str, shown)))
    bar.ax.minorticks_off()
    if len(names) <= _MOST_NAMED:
        ax.set_yticks(range(len(names)), names)
    else:
        ax.yaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_ylabel("class" if len(names) > 1 else "")
    if number <= _MOST_NAMED:
        ax.set_xticks(range(number), [str(client) for client in order], fontsize=8)
        ax.set_xlabel("client")
    else:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        is_sorted = np.array_equal(order, np.arange(number))
        ax.set_xlabel("client" if is_sorted else "clients, by cluster")
    if number <= _MOST_COUNTED and largest < 10_000:
        _write(ax, counts, largest)
    _mark_clusters(ax, clusters[order])
    return ax


def _counts(data: ClientData) -> tuple[Int[np.ndarray, "classes clients"], list[str]]:
    """Samples of each class and client, and names of the classes."""
    targets, mask = np.asarray(data.targets), np.asarray(data.mask)
    if targets.dtype.kind not in "iu" or targets.shape != mask.shape:
        return np.sum(mask, axis=1)[None], ["samples"]
    labels = targets[mask]
    found = np.zeros((int(labels.max(initial=0)) + 1, len(mask)), int)
    np.add.at(found, (labels, np.nonzero(mask)[0]), 1)
    return found, [str(label) for label in range(len(found))]


def _write(ax: Any, counts: Int[np.ndarray, "classes clients"], largest: int) -> None:
    """Numbers in their cells, in black or white, whichever stands out."""
    for (row, column), count in np.ndenumerate(counts):
        if count:
            is_dark = np.log(count) > 0.5 * np.log(largest)
            colour = "white" if is_dark else "black"
            ax.text(
                column, row, count, ha="center", va="center", color=colour, fontsize=7
            )


def _mark_clusters(ax: Any, clusters: Int[np.ndarray, " clients"]) -> None:
    """Borders between the clusters, and their numbers above."""
    values, first, sizes = np.unique(clusters, return_index=True, return_counts=True)
    if not 1 < len(values) <= _MOST_CLUSTERS:
        return
    for begin in first[1:]:
        ax.axvline(begin - 0.5, color="black", linewidth=1.5)
    top = ax.secondary_xaxis("top")
    top.set_xticks(first + (sizes - 1) / 2, [str(value) for value in values])
    top.tick_params(length=0)
    top.set_xlabel("cluster")
