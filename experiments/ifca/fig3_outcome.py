"""What a panel of Figure 3 says, in sentences, beside what the paper says of it."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
SYMBOLS = {"separation": "R", "noise": "σ", "clients": "m", "samples": "n"}
CLAIMS = {
    "separation": "success rises with R",
    "clients": "success rises with m n",
}


def outcome(table: Sequence[Row], axes: tuple[str, str]) -> str:
    """One paragraph for each convention: whether success by the paper's criterion rises
    along the columns of each of the heatmap's rows, and where it does not.

    Counts are of trials of which some start succeeded; a fall counts from one trial on,
    as trials of one size share their random numbers.
    """
    row_axis, column_axis = axes
    claim = CLAIMS[column_axis]
    paragraphs = [f"The paper says: {claim}."]
    for convention in dict.fromkeys(row["convention"] for row in table):
        own = [row for row in table if row["convention"] == convention]
        found = _sentences(own, row_axis, column_axis)
        paragraphs.append(f"Convention `{convention}`: {found}")
    return "\n\n".join(paragraphs) + "\n"


def _sentences(own: Sequence[Row], row_axis: str, column_axis: str) -> str:
    number = max(int(row["trials"]) for row in own)
    lines: dict[Any, dict[Any, int]] = {}
    for row in sorted(own, key=lambda row: float(row[column_axis])):
        counts = lines.setdefault(row[row_axis], {})
        counts[row[column_axis]] = int(row["successes"])
    every = [count for counts in lines.values() for count in counts.values()]
    x, y = SYMBOLS[column_axis], SYMBOLS[row_axis]
    if not any(every):
        return f"no trial succeeds, of {number} in each of {len(every)} cells."
    falling = {
        value: list(counts.values())
        for value, counts in lines.items()
        if any(b < a for a, b in itertools.pairwise(counts.values()))
    }
    columns = ", ".join(map(str, next(iter(lines.values()))))
    if not falling:
        low, high = min(every), max(every)
        return (
            f"success never falls along {x} = {columns}, for every {y}; from {low} to "
            f"{high} of {number} trials."
        )
    told = "; ".join(
        f"{y} = {value}: {', '.join(map(str, counts))}"
        for value, counts in falling.items()
    )
    return (
        f"success does not rise everywhere along {x} = {columns}. Successes of {number}"
        f" trials where it falls, {told}. It rises for {len(lines) - len(falling)} of "
        f"{len(lines)} {y}."
    )
