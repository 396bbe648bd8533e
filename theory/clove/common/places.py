"""Coordinates of points that nested loops visit."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Num, Shaped

from cfljax.statements import Real


def nested(
    **axes: Sequence[Real | str] | Num[np.ndarray, " _"],
) -> dict[str, Shaped[np.ndarray, " points"]]:
    """Each coordinate at every point, the first one that of the outermost loop."""
    grids = np.meshgrid(*map(np.asarray, axes.values()), indexing="ij")
    return {name: grid.ravel() for name, grid in zip(axes, grids, strict=True)}
