"""Pictures of findings whose check is no curve: what is claimed, and what happens.

    python docs/pages/pictures.py      writes figures/findings, numbers included

Simulated anew, in two minutes; the checks are the statements of the same names.
"""

import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cfljax import intervals, report
from theory import registry
from theory.clove.common.recovery import Cell, draw, is_fixed_point
from theory.clove.theorem41 import allowed, condition_ratio
from theory.ifca.common import rounds
from theory.ifca.common.linear import Setting
from theory.ifca.theorem1 import second_and_third

FOLDER = pathlib.Path(__file__).parents[2] / "figures" / "findings"
ERROR_RATE = 0.05  # of all intervals of a picture together
Rows = list[dict[str, Any]]

_CLAIM, _VIOLATION = "#009E73", "#D55E00"
_LOOKS: tuple[dict[str, Any], ...] = (
    report.LINES[0],
    report.LINES[3],
    report.LINES[6] | {"marker": "s"},
)
_ROUNDS, _SMALL = 6, 0.1  # share of the clients in the small cluster
_STEPS = {"¼": 0.25, "0.1, the best for both": 0.1}  # c1
_CLIENTS = (30, 100, 300, 1000, 3000, 10_000, 30_000)
_SAMPLES = (20, 80, 320)


def one_step_size(trials: int = 200) -> Rows:
    """Errors of both clusters of IFCA over rounds, and what Theorem 1 claims of them:
    the medians and ends of runs that are exact in law."""
    rows: Rows = []
    for number, (name, step) in enumerate(_STEPS.items()):
        one = Setting(1e4, 1e4, 100.0, 0.01, (_SMALL, 1 - _SMALL), step)
        run = rounds.simulate(
            np.random.default_rng([1, number]), one, trials=trials, rounds=_ROUNDS
        )
        floor = second_and_third(one, **_constants("ifca.thm1"))
        for cluster, share in enumerate(one.shares):
            errors, claim = run.errors[..., cluster], 0.5 - one.alpha
            for index in range(_ROUNDS + 1):
                claim = claim / 2 + floor if index else claim
                low, middle, high = np.quantile(errors[:, index], (0, 0.5, 1))
                rows.append(
                    {
                        "c1": name,
                        "share": round(share, 3),
                        "round": index,
                        "claimed": claim,
                        "low": low,
                        "median": middle,
                        "high": high,
                        "violated": int(low > claim),
                    }
                )
    return rows


def more_clients(trials: int = 100, clients: Sequence[int] = _CLIENTS) -> Rows:
    """How often CLoVE's clusters are no fixed point of k-means, by clients and samples,
    with joint intervals, and what Theorem 4.1 allows."""
    limit = _constants("clove.thm41")["o"]
    each = intervals.divide(ERROR_RATE, len(clients) * len(_SAMPLES))
    rows: Rows = []
    for samples in _SAMPLES:
        for number in clients:
            cell = Cell("orthonormal", 10, 2, number, samples)
            generator = np.random.default_rng([2, samples, number])
            drawn = (np.sqrt(draw(generator, cell).losses) for _ in range(trials))
            lost = sum(not is_fixed_point(points) for points in drawn)
            low, high = intervals.clopper_pearson(lost, trials, error_rate=each)
            is_claimed = condition_ratio(cell) <= limit
            rows.append(
                {
                    "n": samples,
                    "M": number,
                    "claimed": allowed(cell),
                    "is_claimed": int(is_claimed),
                    "low": float(low),
                    "share": lost / trials,
                    "high": float(high),
                    "violated": int(is_claimed and low > allowed(cell)),
                }
            )
    return rows


def _constants(id: str) -> dict[str, float]:
    """The constants at which a statement was judged."""
    return dict(registry.select([id])[0].constants)


def draw_step_size(rows: Rows) -> Figure:
    """Error over rounds, below it what is claimed."""
    labels = {
        ("¼", _SMALL): "small cluster, $c_1$ = ¼",
        ("¼", 1 - _SMALL): "large cluster, $c_1$ = ¼",
        ("0.1, the best for both", _SMALL): "both clusters, $c_1$ = 0.1, the best",
    }
    title = (
        "IFCA with clusters of 10 % and 90 % of the clients: distance of a model from "
        "its truth"
    )
    parts = {
        label: [r for r in rows if (r["c1"], r["share"]) == key]
        for key, label in labels.items()
    }
    figure, axes = _axes(
        title,
        "claimed: halved in each round, up to the statistical floor",
        "medians of 200 runs, exact in law, whose band is too narrow to see",
        "m = 10,000, n' = 10,000, d = 100, σ = 0.01 Δ, Δ the distance of the truths, "
        "γ = c₁/p with p = 0.1",
    )
    axes.set(
        xlabel="round", ylabel="distance from the truth, in units of Δ", yscale="log"
    )
    _claim(axes, parts[labels["¼", _SMALL]], "round", 1e-3)
    _curves(axes, parts, "round", "median")
    return figure


def draw_clients(rows: Rows) -> Figure:
    """Chance that the clusters are missed over clients, for several samples."""
    parts = {
        f"n = {samples} samples of a client": [r for r in rows if r["n"] == samples]
        for samples in _SAMPLES
    }
    figure, axes = _axes(
        "CLoVE, two clusters: how often no k-means can end at the true clusters",
        "claimed: at most δ + 1/log M, δ = 0.05, once M is large enough for condition "
        "(7)",
        "hollow where it is not met, with the constant 0.05",
        "100 trials a point, exact binomial intervals that hold jointly at 95 %",
        "d = 10 orthonormal models, Δ = 1, σ = 0.1",
    )
    axes.set(xlabel="clients M", ylabel="share of the trials", xscale="log")
    axes.set_ylim(-0.03, 1.03)
    _claim(axes, next(iter(parts.values())), "M", -0.03)
    _curves(axes, parts, "M", "share")
    return figure


def _axes(title: str, *more: str) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    report.set_caption(figure, title, *more)
    axes = figure.add_subplot()
    axes.grid(axis="y")
    return figure, axes


def _claim(axes: Axes, rows: Rows, across: str, bottom: float) -> None:
    """A line, and all that is claimed below it."""
    x, claimed = ([row[name] for row in rows] for name in (across, "claimed"))
    axes.plot(x, claimed, color=_CLAIM, linewidth=2.2, label="claimed: not above")
    axes.fill_between(x, claimed, bottom, color=_CLAIM, alpha=0.13, linewidth=0)


def _curves(axes: Axes, parts: dict[str, Rows], across: str, name: str) -> None:
    """What happens, with bands, and a cross where the claim is violated."""
    for (label, rows), look in zip(parts.items(), _LOOKS, strict=True):
        x, y, low, high = (
            np.array([row[key] for row in rows], float)
            for key in (across, name, "low", "high")
        )
        axes.plot(x, y, label=label, **look)
        axes.fill_between(x, low, high, color=look["color"], alpha=0.18, linewidth=0)
        hollow = np.array([not row.get("is_claimed", True) for row in rows])
        axes.plot(
            x[hollow],
            y[hollow],
            linestyle="none",
            marker=look["marker"],
            markerfacecolor="white",
            markeredgecolor=look["color"],
            markeredgewidth=1.4,
        )
    every = [row for rows in parts.values() for row in rows if row["violated"]]
    axes.plot(
        [row[across] for row in every],
        [row[name] for row in every],
        linestyle="none",
        marker="X",
        markersize=10,
        color=_VIOLATION,
        label="claim violated",
    )
    axes.figure.legend(loc="outside lower center", ncols=2)


PICTURES: dict[str, tuple[Callable[[], Rows], Callable[[Rows], Figure]]] = {
    "ifca.thm1": (one_step_size, draw_step_size),
    "clove.thm41": (more_clients, draw_clients),
}


def main() -> None:
    """Write all, with their numbers."""
    for name, (simulate, drawn) in PICTURES.items():
        rows = simulate()
        report.write_csv(FOLDER / f"{name}.csv", rows)
        with matplotlib.rc_context(report.style()), report.looking(formats=("svg",)):
            report.save(drawn(rows), FOLDER / name)


if __name__ == "__main__":
    main()
