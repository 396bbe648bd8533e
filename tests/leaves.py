"""Points as pytrees of two leaves, and back."""

from typing import Any

import numpy as np


def as_leaves(points: Any) -> dict[str, Any]:
    """The last axis, of five or more, as two leaves, one of them a matrix."""
    matrix = points[..., -4:].reshape(*points.shape[:-1], 2, 2)
    return {"a": points[..., :-4], "b": matrix}


def side_by_side(leaves: Any) -> np.ndarray:
    a, b = np.asarray(leaves["a"]), np.asarray(leaves["b"])
    return np.concatenate([a, b.reshape(*a.shape[:-1], 4)], axis=-1)
