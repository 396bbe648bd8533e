"""What the presets of experiments take, as it was measured once: `costs.csv`.

Columns: `id` and `preset`; `core_minutes`, of all cores together, and `gib`, the most
memory that the process had, where a run was measured from its start to its end; else
`minutes`, the time within which committed results were computed on both cores, by their
`provenance.json`.
"""

import csv
import pathlib

MACHINE = "measured on two cores of an AMD EPYC; yours will differ"
_FILE = pathlib.Path(__file__).with_name("costs.csv")


def rows(id: str) -> dict[str, dict[str, str]]:
    """What is known of an experiment, by preset; what is not is an empty text."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return {row["preset"]: row for row in csv.DictReader(file) if row["id"] == id}


def lines(id: str) -> list[str]:
    """The same for people; says so where nothing is known."""
    known = rows(id)
    if not known:
        return ["What it takes has not been recorded."]
    told = [f"  {preset:6} {text(row)}" for preset, row in known.items()]
    absent = [name for name in ("quick", "paper") if name not in known]
    told += [f"  {name:6} not recorded" for name in absent]
    return [f"It takes ({MACHINE}):", *told]


def text(row: dict[str, str]) -> str:
    """Time and memory in words."""
    if row["core_minutes"]:
        time = f"{_amount(float(row['core_minutes']))} core-minutes"
    else:
        time = f"{_amount(float(row['minutes']))} minutes on both cores"
    memory = f"{row['gib']} GiB" if row["gib"] else "memory not recorded"
    return f"{time}, {memory}"


def _amount(minutes: float) -> str:
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}"
