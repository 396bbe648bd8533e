"""Tables and the figure of `neural`: what grows how, which targets are reached."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cfljax import report

__all__ = [
    "PROCESSOR_RATIO",
    "RATIO",
    "SPEED",
    "growth",
    "headline",
    "targets",
    "write",
]

Rows = list[dict[str, Any]]
Tables = Mapping[str, Rows]

TITLES = {
    "training": "One round of local training and averaging, medians",
    "growth": "Milliseconds of a round against clients C: fixed + per client x C",
    "losses": "Loss matrix beside its bare matrix products, medians",
    "memory": "Peak memory of a round",
    "compilation": "Compilation",
    "targets": "Targets",
}
RATIO = "PyTorch loop's time / this"
PROCESSOR_RATIO = "one-thread loop's processor time / this"
SPEED = "speed / bare products'"


def growth(rows: Rows) -> Rows:
    """How a round's time grows with its clients, for each implementation.

    A line of least relative squares, the largest relative distance from it (none of two
    points), and the slope on log axes, which is 1 where time is proportional to
    clients. Nothing where fewer than two numbers of clients were measured.
    """
    found = []
    for network, what in dict.fromkeys((row["network"], row["what"]) for row in rows):
        mine = [row for row in rows if (row["network"], row["what"]) == (network, what)]
        clients = np.array([row["clients"] for row in mine], float)
        times = np.array([1e3 / row["rounds/s"] for row in mine])
        if len(set(clients)) < 2:
            continue
        slope, fixed = np.polyfit(clients, times, 1, w=1 / times)
        deviation = float(np.max(np.abs((fixed + slope * clients) / times - 1)))
        exponent = np.polyfit(np.log(clients), np.log(times), 1)[0]
        found.append(
            {
                "network": network,
                "what": what,
                "fixed, ms": float(fixed),
                "per client, ms": float(slope),
                "largest deviation": deviation if len(clients) > 2 else None,
                "exponent": float(exponent),
            }
        )
    return found


def targets(tables: Tables, *, busy: bool) -> Rows:
    """What was aimed at, what was measured, and whether it was reached.

    Args:
      tables: all others.
      busy: whether other programs used the machine, which leaves all open.
    """
    found: Rows = []

    def add(what: str, target: str, measured: float, reached: bool) -> None:
        row = {"what": what, "target": target, "measured": measured}
        verdict = "yes" if reached else "no"
        found.append(row | {"reached": "open" if busy else verdict})

    for network, least in (("MLP", 1.3), ("CNN", 1 / 1.25)):
        rows = [
            row
            for row in tables["training"]
            if row["network"] == network and row["what"].startswith("cfljax")
        ]
        rows = [row for row in rows if RATIO in row]
        if not rows:
            continue
        most = max(row["clients"] for row in rows)
        # The first is what users get: sequential, on all devices.
        ratio = next(row[RATIO] for row in rows if row["clients"] == most)
        what = f"{network}, {most} clients: speed / PyTorch loop's"
        add(what, f"at least {least:g}", ratio, ratio >= least)
    best = max(row[SPEED] for row in tables["losses"][1:])
    what = "loss matrix: speed / bare products'"
    add(what, "at least 0.6", best, best >= 0.6)
    for row in tables["compilation"]:
        most = 20 if row["cache"] == "cold" else 2
        seconds = row["the round, s"]
        what = f"{row['network']}, compilation, {row['cache']} cache, s"
        add(what, f"below {most}", seconds, seconds < most)
    return found


def headline(settings: str, tables: Tables, notes: Sequence[str]) -> str:
    """All tables under their titles."""
    parts = [settings]
    for name, title in TITLES.items():
        if tables[name]:
            parts.append(f"{title}\n\n{report.markdown(tables[name])}".rstrip())
    return "\n\n".join([*parts, *notes]) + "\n"


def write(tables: Tables, folder: pathlib.Path) -> list[str]:
    """A CSV file for each table that has rows, and the figure; the files written."""
    files = []
    for name in TITLES:
        if tables[name]:
            path = folder / f"{name}.csv"
            report.write_csv(path, tables[name])
            files.append(path)
    files += report.save(_figure(tables["training"]), folder / "training")
    return [str(path) for path in files]


def _figure(rows: Rows) -> Any:
    """Time of one client's step against clients, one line for each implementation."""
    panels = []
    for network in dict.fromkeys(row["network"] for row in rows):
        mine = [row for row in rows if row["network"] == network]
        curves = []
        for what in dict.fromkeys(row["what"] for row in mine):
            points = [row for row in mine if row["what"] == what]
            x = np.array([row["clients"] for row in points])
            y = np.array([row["ms per client-step"] for row in points])
            curves.append(report.Curve(label=what, x=x, y=y))
        panels.append(
            report.CurvePanel(
                curves=curves,
                x_label="clients C",
                y_label="time of one client's step, ms",
                y_limits=None,
                log_x=True,
                log_y=True,
                title=network,
                aside=False,
            )
        )
    return report.curves(panels)
