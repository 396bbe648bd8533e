"""Werner et al., Figure 3: Federated-Clustering (FC) against baselines, synthetic data.

Command:   python -m experiments run werner.fig3 --preset paper
Quick:     the same with --preset quick: two panels, two starts, fewer radii and rounds
Paper:     (K, n_i) = (4, 4), (4, 16), (16, 4): FC with l = 10 "outperforms the
           non-oracle baselines in all cases", is "slightly worse than ground truth" at
           (4, 4) and "almost identical" at n_i = 16. Curves only, without numbers.
Rules:     FC beats the baselines iff its error is at least 5 % below that of each in
           every panel; it is as good as the oracle (GT) iff it recovers at least 90 %
           of the oracle's gain over training alone, at K = 4 and the largest n_i.

Measured:  quick, 1.7 minutes on one of two busy cores of an Intel Xeon; medians over
           data sets of |x_i - x*|^2 at (4, 4) and (4, 16). From 0: Local 1.3 and 1.1,
           Global 10 and 6.6, IFCA 1.9 and 1.6 from one start, .027 and 3e-6 from the
           best of four, GT below 1e-6; FC .092 and .36 with quantile 1/K, 1.1 and .29
           with a fixed radius, above 5 with adaptive-1 and -3, whose balls are 23 % and
           43 % pure at (4, 4).
           So FC beats what the paper compares with, but IFCA's best start with no
           radius; it is as good as GT at n_i = 16 by the median distance alone (92 % of
           the gain; of the squared error 67 %): in some data sets it gets to GT, in
           others a few clients stay with the wrong ones. With 21 data sets .24 and .19
           by quantile 1/K, and the same decisions. As released: GT and IFCA 1e-8, FC
           the same with quantile 1/K and 1e4 with adaptive-1 and -3, Local .013. There
           FC is as good as GT, and IFCA leaves nothing to beat but for (4, 16) as
           released, .072.
Further:   at (16, 4), 300 rounds, 7 data sets from 0: FC 2.1, Local 2.4, GT .15, IFCA
           5.3; as released, IFCA with every K-th client's models 2e4 instead of .002.
           Without momentum, 900 rounds, 21 data sets at (4, 4) from 0: FC 1.2, Local
           1.8, GT .003, IFCA 2.9 and .02.

The paper names neither radius, metric, start, rounds, step sizes, momentum nor the law
of the minimisers. Here everybody takes one full-batch gradient step a round, with the
momentum .9 of the released code, for each of a few step sizes, of which the one of
least training loss counts; what the truth would choose stands beside it. Radii are
quantiles, the gaps of the released code ("adaptive", with its strict edge), and
multiples of the mean gradient norm at the start. Theorem 3's radius is 0 here, where
gradients have no noise: FC is then training alone.

With d = 10 and n = 9 a client's own data leave one direction of its model open.
The released code starts every model within .1 of the right minimiser, which leaves
little to find: IFCA has the right clusters in its first round, unless its models are
those of every K-th client, as released, which are one of each cluster only where n_i
is K ("IFCA as released").
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import numpy as np
import xarray as xr
from jaxtyping import Int
from matplotlib.figure import Figure

from cfljax import engine, report
from experiments import study
from experiments.checks import (
    check_different,
    check_divides,
    check_values,
    configuration,
)
from experiments.options import Options
from experiments.study import Row, Rows, computed, mean
from experiments.titles import title_each
from experiments.werner.fig3_trial import (
    DIMS,
    FIXED,
    METHODS,
    SCENES,
    Method,
    SceneName,
    Trial,
    simulate,
)

EXPERIMENTS = {
    "werner.fig3": {
        "title": "Federated-Clustering against baselines on synthetic data",
        "has_sweeps": True,
    }
}
(EXPERIMENT,) = EXPERIMENTS
TRACED_FIELDS = (
    "scene",
    "factor",
    "first_mean",
    "largest_share",
    "step_ratio",
    "momentum",
)
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

Panel = tuple[int, int]  # K and n_i
Errors = Mapping[tuple[str, Panel], float]  # by method


@configuration
class Config:
    """Everything that the figure depends on. One field, one flag."""

    num_clusters: tuple[int, ...]  # K of each panel.
    num_members: tuple[int, ...]  # n_i of each panel.
    num_trials: tuple[int, ...]  # Data sets of each panel.
    scene: tuple[SceneName, ...]  # Minimisers and starts; see `fig3_trial.SCENES`.
    method: tuple[Method, ...]
    """What to compare in all panels; "fixed" is asked for by `factor`."""
    first_method: tuple[Method, ...]  # Further methods of the first panel.
    factor: tuple[float, ...]  # Fixed radii, over the mean gradient norm at the start.
    num_rounds: int  # T, gradient steps of everybody.
    num_steps: int  # Step sizes to choose from.
    num_tests: int = 30  # How often a run is tested; divides the rounds.
    largest_share: float = 0.9
    """The largest step size, over that from which a client's own descent diverges."""
    step_ratio: float = 3.0  # From one step size to the next smaller one.
    momentum: float = 0.9  # Beta, damped; 0 is plain gradient descent.
    num_restarts: int = 4  # Starts of the better IFCA.
    num_clipping_rounds: int = 10  # l of Federated-Clustering.
    first_mean: float = 1.0
    """Mean of the first cluster's inputs; the next ones have one more each."""
    num_samples: int = 9  # n, per client.
    num_features: int = 10  # d.
    seed: int = 0  # Of all data sets and starts.

    def __post_init__(self) -> None:
        panels = self.num_clusters, self.num_members, self.num_trials
        if not len(self.num_clusters) == len(self.num_members) == len(self.num_trials):
            raise ValueError(
                "`num_clusters`, `num_members` and `num_trials` must have as many "
                f"values as each other, got {panels}."
            )
        check_different("panels", tuple(self.panels), "values")
        check_values(self, "scene", "factor")
        check_different("method", (*self.method, *self.first_method), "values")
        for name in ("local", "oracle", "ifca"):
            if name not in self.method:
                raise ValueError(
                    f"`method` must hold {name}, which others are compared with, got "
                    f"{self.method}."
                )
        if FIXED in (*self.method, *self.first_method):
            raise ValueError("`method` must leave out fixed, which `factor` asks for.")
        if not math.isfinite(self.first_mean):
            raise ValueError(f"`first_mean` must be finite, got {self.first_mean}.")
        check_divides(self, "num_tests", "num_rounds")
        for place in range(len(self.num_clusters)):
            for grid in _grids(self, place).values():
                grid.cells()  # They check what they share.

    @property
    def panels(self) -> list[Panel]:
        """K and n_i of each panel."""
        return list(zip(self.num_clusters, self.num_members, strict=True))


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    methods = tuple(method for method in get_args(Method) if method != FIXED)
    if name == "quick":
        return Config(
            num_clusters=(4, 4),
            num_members=(4, 16),
            num_trials=(11, 7),
            scene=("zero", "reference_near"),
            method=methods[:7],  # With "quantile_cluster" alone.
            first_method=("gap_outer", "gap_inner"),
            factor=(0.03, 0.1),
            num_rounds=150,
            num_steps=3,
        )
    return Config(
        num_clusters=(4, 4, 16),
        num_members=(4, 16, 4),
        num_trials=(20, 20, 20),
        scene=get_args(SceneName),
        method=methods,
        first_method=(),
        factor=(0.003, 0.01, 0.03, 0.1, 0.3, 1.0),
        num_rounds=600,
        num_steps=4,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figures."""
    own = study.Study(EXPERIMENT, config, options)
    results: dict[Panel, xr.Dataset] = {}
    for place, panel in enumerate(config.panels):
        found = {
            name: own.sweep(grid, simulate)
            for name, grid in _grids(config, place).items()
        }
        results[panel] = _joined(config, **found)
    table = rows(results)
    found = claims(table)
    unknown = max(0.0, 1 - config.num_samples / config.num_features)
    return own.finish(
        tables={"table": (table, COLUMNS), "claims": (found, CLAIM_COLUMNS)},
        note=note(table, found, unknown_share=unknown),
        figures=draw(results, table, config),
        overview=overview(table),
    )


def _grids(config: Config, place: int) -> dict[str, engine.Grid]:
    """All methods of a panel, and Federated-Clustering with its fixed radii."""
    between = config.num_rounds // config.num_tests
    trial = study.trial_of(
        Trial,
        config,
        num_clusters=config.num_clusters[place],
        num_members=config.num_members[place],
        method=config.method[0],
        scene=0,
        factor=0.0,
        rounds_between=between,
    )
    scenes = tuple(list(SCENES).index(name) for name in config.scene)
    methods = config.method if place else (*config.method, *config.first_method)
    if trial.num_clusters == trial.num_members:  # There it is IFCA.
        methods = tuple(name for name in methods if name != "ifca_released")
    known: dict[str, Any] = {
        "experiment": EXPERIMENT,
        "num_trials": config.num_trials[place],
        "dims": DIMS,
        "coords": {"tested": list(range(0, config.num_rounds + 1, between))},
        "seed": config.seed,
        "revision": REVISION,
        "traced": TRACED_FIELDS,
    }
    fixed = dataclasses.replace(trial, method=FIXED)
    by_method = {"method": methods, "scene": scenes}
    by_factor = {"factor": config.factor, "scene": scenes}
    return {
        "methods": engine.Grid(trial=trial, axes=by_method, **known),
        "fixed": engine.Grid(trial=fixed, axes=by_factor, **known),
    }


def _joined(config: Config, methods: xr.Dataset, fixed: xr.Dataset) -> xr.Dataset:
    """Both sweeps of a panel along `method`, with the scenes' names."""
    names = [f"{FIXED} {factor:g}" for factor in fixed["factor"].values]
    fixed = fixed.rename(factor="method").assign_coords(method=names)
    both = [data[list(DIMS)] for data in (methods, fixed)]
    return xr.concat(both, dim="method").assign_coords(scene=list(config.scene))


# What comes out


COLUMNS = {
    "scene": "scene",
    "panel": "(K, n_i)",
    "label": "method",
    "start": "squared error at the start",
    "squared": "in the end",
    "squared_low": "quartile",
    "squared_high": "quartile",
    "squared_mean": "mean",
    "distance": "distance in the end",
    "distance_mean": "mean",
    "by_truth": "squared error, step size by truth",
    "steps": "runs by step size",
    "purity_first": "purity, first test",
    "purity": "last",
    "company": "own cluster in the ball, last",
}
CLAIM_COLUMNS = {
    "scene": "scene",
    "label": "method",
    "measure": "error",
    "panels": "panels",
    "worst": "largest, over the best baseline",
    "worst_best": "IFCA's best start among them",
    "recovered": "GT's gain over Local recovered at the largest n_i",
    "recovered_small": "at the smallest",
    "beats": "beats baselines",
    "beats_best": "and IFCA's best",
    "matches": "as good as GT",
}
MEASURES = {
    "squared": "median squared error",
    "squared_mean": "mean squared error",
    "distance": "median distance",
    "distance_mean": "mean distance",
}
MARGIN = 0.05  # By so much of it an error must be below another to beat it.
RECOVERED = 0.9  # Share of the oracle's gain from which on a method is as good.


def label(method: str) -> str:
    """Name of a method for people; "fixed 0.1" is one with its factor."""
    name, _, factor = method.partition(" ")
    text = METHODS[name].label
    return f"{text}, factor {factor}" if name == FIXED else text


def chosen(
    cell: xr.Dataset, by: Literal["training", "truth"] = "training"
) -> Int[np.ndarray, " trials"]:
    """Index of each data set's step size, of least training loss or squared error."""
    last = cell["squared"].isel(tested=-1)
    scores = (cell["loss"] if by == "training" else last).transpose("trial", "step")
    values = scores.values.astype(float)
    return np.argmin(np.where(np.isnan(values), np.inf, values), axis=1)


def rows(results: Mapping[Panel, xr.Dataset]) -> list[Row]:
    """One row for each scene, panel and method: medians and quartiles over data sets,
    of an even number one of the two in the middle, or a mean where one is asked for.
    """
    table = []
    for scene in next(iter(results.values()))["scene"].values.tolist():
        for panel, data in results.items():
            for at, cell in study.cells(data.sel(scene=scene), "method"):
                row = {"scene": scene, "num_clusters": panel[0]}
                row |= {"num_members": panel[1], "panel": f"({panel[0]}, {panel[1]})"}
                row |= {**at, "label": label(at["method"])}
                table.append(row | _ends(cell))
    return table


def _ends(cell: xr.Dataset) -> Row:
    """Where the chosen runs of a cell end."""
    best, known = chosen(cell), chosen(cell, "truth")
    at = np.arange(len(best))
    values = {
        name: cell[name].transpose("trial", "step", "tested").values.astype(float)
        for name in ("squared", "distance", "purity", "company")
    }
    squared, distance = (values[name][at, best, -1] for name in ("squared", "distance"))
    low, median, high = np.quantile(squared, (0.25, 0.5, 0.75), method="nearest")
    counts = np.bincount(best, minlength=cell.sizes["step"])
    return {
        "start": float(np.median(values["squared"][at, best, 0])),
        "squared": float(median),
        "squared_low": float(low),
        "squared_high": float(high),
        "squared_mean": float(np.mean(squared)),
        "distance": float(np.quantile(distance, 0.5, method="nearest")),
        "distance_mean": float(np.mean(distance)),
        "by_truth": float(
            np.quantile(values["squared"][at, known, -1], 0.5, method="nearest")
        ),
        "steps": "/".join(str(count) for count in counts),
        "purity_first": mean(computed(values["purity"][at, best, 1])),
        "purity": mean(computed(values["purity"][at, best, -1])),
        "company": mean(computed(values["company"][at, best, -1])),
    }


def claims(table: Rows) -> list[Row]:
    """What the paper says, for each scene, radius and error. A radius that some panel
    lacks does not beat; the oracle is matched at most members, of the fewest clusters.
    """
    panels = list(study.groups(table, "num_clusters", "num_members"))
    found = []
    for scene, own in study.groups(table, "scene").items():
        for method in study.groups(own, "method"):
            about = METHODS[method.partition(" ")[0]]
            if about.kind != "own" or about.is_baseline:
                continue  # It is not Federated-Clustering.
            for measure, text in MEASURES.items():
                at = {(row["method"], _panel(row)): row[measure] for row in own}
                row: Row = {"scene": scene, "method": method}
                row |= {"label": label(method), "measure": text}
                found.append(row | _claim(at, method, panels))
    return found


def _panel(row: Mapping[str, Any]) -> Panel:
    return row["num_clusters"], row["num_members"]


def _claim(at: Errors, method: str, panels: Sequence[Panel]) -> Row:
    """The columns of `claims` that are computed, from errors by method and panel."""
    there = [panel for panel in panels if (method, panel) in at]
    few = min(panels)
    many = max(panel for panel in panels if panel[0] == few[0])
    baselines = [m for m in METHODS if METHODS[m].is_baseline and (m, few) in at]
    blind = [name for name in baselines if name != "ifca_best"]
    least = lambda names, panel: float(np.min([at[name, panel] for name in names]))
    worst, worst_best = (
        # NaN, of which the least and the largest are NaN, is below nothing.
        float(np.max([at[method, panel] / least(names, panel) for panel in there]))
        for names in (blind, baselines)
    )
    recovered, small = (
        _recovered(at, method, panel) if panel in there else None
        for panel in (many, few)
    )
    whole = len(there) == len(panels)
    return {
        "panels": f"{len(there)}/{len(panels)}",
        "worst": worst,
        "worst_best": worst_best,
        "recovered": recovered,
        "recovered_small": small,
        "beats": whole and worst <= 1 - MARGIN,
        "beats_best": whole and worst_best <= 1 - MARGIN,
        "matches": recovered is not None and recovered >= RECOVERED,
    }


def _recovered(at: Errors, method: str, panel: Panel) -> float:
    """Share of what the oracle gains over training alone; NaN if it gains nothing."""
    alone, oracle = at["local", panel], at["oracle", panel]
    if not oracle < alone:
        return math.nan
    return (alone - at[method, panel]) / (alone - oracle)


def overview(table: Rows) -> list[Row]:
    """Median squared errors only, scenes and panels across."""
    found: dict[str, Row] = {}
    for line in table:
        row = found.setdefault(line["method"], {"method": line["label"]})
        row[f"{line['scene']} {line['panel']}"] = line["squared"]
    return list(found.values())


def note(table: Rows, found: Rows, *, unknown_share: float) -> str:
    """What came out, in words made from the numbers.

    The unknown share is that of a client's model that its own data leave open.
    """
    panels = study.groups(table, "panel")
    text = [f"Panels (K, n_i): {', '.join(panels)}; errors of the last round."]
    for scene, rows in study.groups(table, "scene").items():
        own = [row for row in found if row["scene"] == scene]
        text.append(
            f"{scene} ({SCENES[scene].label}): FC beats Local, Global and IFCA from "
            f"one start in every panel with {_who(own, 'beats')}; IFCA's best start as "
            f"well with {_who(own, 'beats_best')}; it is as good as GT at the largest "
            f"n_i with {_who(own, 'matches')}. {_others(rows, unknown_share)}"
        )
    both = [row for row in found if row["beats"] and row["matches"]]
    text.append(f"Both claims: {_who(both, 'beats', with_scene=True)}.")
    ratios = [row["squared"] / row["by_truth"] for row in table if row["by_truth"] > 0]
    text.append(
        "Step sizes chosen by the truth, which nobody can, would make the median error "
        f"up to {max(ratios, default=1.0):.3g} times smaller."
    )
    return "\n".join(text)


def _who(own: Rows, claim: str, *, with_scene: bool = False) -> str:
    """Radii for which a claim holds, and by which errors."""
    measures: dict[str, list[str]] = {}
    for row in own:
        if row[claim]:
            name = row["label"].removeprefix("FC, ")
            name = f"{row['scene']}: {name}" if with_scene else name
            measures.setdefault(name, []).append(row["measure"])
    if not measures:
        return "no radius"
    every = len(MEASURES)
    return "; ".join(
        f"{name} (by {'every error' if len(by) == every else ', '.join(by)})"
        for name, by in measures.items()
    )


def _others(own: Rows, unknown_share: float) -> str:
    """Training alone, both IFCAs, and who ends no better than at the start."""
    kept = [r["squared"] / r["start"] for r in own if r["method"] == "local"]
    alone = ", ".join(f"{share:.3g}" for share in kept)
    at = {(row["method"], _panel(row)): row["squared"] for row in own}
    panels = list(study.groups(own, "num_clusters", "num_members"))
    found = [panel for panel in panels if _recovered(at, "ifca", panel) >= RECOVERED]
    text = [
        f"Local keeps {alone} of the start's squared error ({unknown_share:.3g} is out "
        "of its data's reach).",
        f"IFCA from one start is as good as GT in {len(found)} of {len(panels)} "
        "panels.",
    ]
    for panel in panels:
        if ("ifca_released", panel) in at:
            released, right = at["ifca_released", panel], at["ifca", panel]
            text.append(
                f"IFCA as released ends at {released:.3g} instead of {right:.3g} at "
                f"{panel}."
            )
    worse = [f"{r['label']} {r['panel']}" for r in own if not r["squared"] < r["start"]]
    text.append(f"No better than at the start: {', '.join(worse) or 'nobody'}.")
    return " ".join(text)


_LEAST = 1e-12  # A logarithmic axis has no room for 0.
_SHOWN = ("local", "fedavg", "ifca", "oracle", "quantile_cluster")


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    own = {f"errors_{scene}": SCENES[scene].label for scene in config.scene}
    return title_each("Werner et al., Figure 3", own, config, preset("paper"))


def draw(
    results: Mapping[Panel, xr.Dataset], table: Rows, config: Config
) -> dict[str, Figure]:
    """Squared errors, a figure for each scene and a panel for each K and n_i, with the
    fixed radius of least largest median, and the released IFCA where it belongs.
    """
    figures = {}
    for scene, own in study.groups(table, "scene").items():
        knowing = SCENES[scene].anchor > 0
        names = (*_SHOWN, "ifca_released" if knowing else "gap_inner")
        names = (*names, *_best_fixed(own))
        panels = []
        for (num_clusters, num_members), data in results.items():
            there = data["method"].values.tolist()
            curves = [
                _curve(data.sel({"scene": scene, "method": name}), label(name))
                for name in names
                if name in there
            ]
            if not curves:
                continue
            panel = report.CurvePanel(
                curves,
                x_label="round t",
                y_label="mean squared error |xᵢ − x*|²",
                y_limits=None,
                log_y=True,
                title=f"K = {num_clusters}, nᵢ = {num_members}",
                aside=False,
            )
            panels.append(panel)
        if panels:
            figures[f"errors_{scene}"] = report.curves(
                panels,
                title=titles(config)[f"errors_{scene}"],
                legend_title="medians over data sets with quartiles",
            )
    return figures


def _best_fixed(table: Rows) -> list[str]:
    """The fixed radius to show, chosen by the truth; none if there is none."""
    fixed = [row for row in table if row["method"].startswith("fixed ")]
    largest = {
        method: np.max(np.nan_to_num(study.column(own, "squared"), nan=np.inf))
        for method, own in study.groups(fixed, "method").items()
    }
    return [min(largest, key=lambda method: largest[method])] if largest else []


def _curve(cell: xr.Dataset, name: str) -> report.Curve:
    """Median and quartiles over data sets, round by round, of the chosen runs."""
    best = chosen(cell)
    every = cell["squared"].transpose("trial", "step", "tested").values.astype(float)
    paths = np.maximum(every[np.arange(len(best)), best], _LEAST)
    low, median, high = np.quantile(paths, (0.25, 0.5, 0.75), axis=0, method="nearest")
    return report.Curve(name, cell["tested"].values.astype(float), median, low, high)
