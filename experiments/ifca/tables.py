"""What IFCA's tables of accuracies share: numbers and curves over seeds."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from cfljax import report
from experiments.study import mean


def std(values: np.ndarray) -> float | None:
    """Standard deviation, as verdicts have it; none of a single run."""
    return float(values.std()) if values.size > 1 else None


def moments(name: str, values: np.ndarray, end: str = "") -> dict[str, float | None]:
    """Columns of both."""
    return {f"{name}_mean{end}": mean(values), f"{name}_std{end}": std(values)}


def number(value: float | None, digits: int) -> str | None:
    """A number for people, if there is one."""
    return None if value is None else f"{value:.{digits}f}"


def spread(row: Mapping[str, Any], name: str, end: str = "") -> str | None:
    """The columns of `moments` for people, if the row has any."""
    middle, around = row.get(f"{name}_mean{end}"), row.get(f"{name}_std{end}")
    if middle is None:
        return None
    return f"{middle:.2f}" if around is None else f"{middle:.2f} ± {around:.2f}"


def mean_curve(
    label: str, x: np.ndarray, values: Float[np.ndarray, "runs rounds"]
) -> report.Curve:
    """Mean ± one standard deviation over the runs."""
    middle = values.mean(axis=0)
    around = values.std(axis=0)
    return report.Curve(label, x, middle, middle - around, middle + around)
