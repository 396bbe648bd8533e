"""Numbers and figure of the cluster identity estimation, round by round."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from cfljax import report
from experiments.ifca.rotated import IDENTITY_DIMS
from experiments.ifca.rotated_figures import setting_title
from experiments.ifca.rotated_report import Result, computed, mean, std

__all__ = ["COLUMNS", "draw", "found_since", "rounds", "row"]

FOUND = {"mnist": 30, "cifar10": 10}  # Round from which the paper shows all found.
MEASURES = tuple(name for name, dims in IDENTITY_DIMS.items() if dims)
COLUMNS = {
    "setting": "panel",
    "start": "start",
    "trials": "seeds",
    "found": "seeds that find all",
    "first_round": "from round (median of those)",
    "paper_round": "paper",
    "matched": "matched accuracy at the end",
    "rand": "ARI at the end",
    "mib": "MiB per round",
}


def row(result: Result) -> dict[str, Any]:
    """What one panel shows, in numbers."""
    data, trial = result.data.isel(trial=0), result.trial
    matched = data["matched_accuracy"].values
    matched = matched[np.isfinite(matched[:, -1])]
    since = [
        first for run in matched if (first := found_since(run)) is not None
    ]  # in runs that end with all of them found
    traffic = data["received"] + data["sent"]
    return {
        "setting": setting_title(trial),
        "start": trial.start,
        "trials": len(matched),
        "found": f"{len(since)}/{len(matched)}",
        "first_round": float(np.median(since)) if since else None,
        "paper_round": FOUND.get(trial.images),
        "matched": mean(matched[:, -1]),
        "matched_std": std(matched[:, -1]),
        "rand": mean(computed(data["rand_index"].values[:, -1])),
        "mib": mean(computed(traffic.values.ravel())),
    }


def found_since(matched: np.ndarray) -> int | None:
    """First round from which on all participants are in their cluster."""
    wrong = np.flatnonzero(matched != 1)
    first = int(wrong[-1]) + 1 if wrong.size else 0
    return first if first < len(matched) else None


def rounds(results: Sequence[Result]) -> list[dict[str, Any]]:
    """One row for each panel, seed and round; traffic is that of the next round."""
    table = []
    for result in results:
        data = result.data.isel(trial=0)
        for repetition in data["repetition"].values:
            run = data.sel(repetition=repetition)
            draws, share = float(run["start_draws"]), float(run["start_share"])
            for index in data["round"].values.tolist():
                now = run.sel(round=index)
                line = {
                    "images": result.trial.images,
                    "network": result.trial.network,
                    "start": result.trial.start,
                    "repetition": int(repetition),
                    "round": index,
                }
                line |= {name: float(now[name]) for name in MEASURES}
                if result.trial.start == "reference":
                    line |= {"start_draws": draws, "start_share": share}
                line["received_mib"] = line.pop("received")
                line["sent_mib"] = line.pop("sent")
                table.append(line)
    return table


def draw(results: Sequence[Result]) -> Figure:
    """One panel for each image set."""
    return report.curves(
        [_panel(result) for result in results],
        title="IFCA, Figure 4: cluster identity estimation",
        legend_title="of the participants, in their cluster under the best renaming",
    )


def _panel(result: Result) -> report.CurvePanel:
    trial = result.trial
    title = setting_title(trial)
    if trial.start == "reference":
        title += ", start redrawn"
    if (found := FOUND.get(trial.images)) is not None:
        title += f"\n(paper: all found after about {found} rounds)"
    return report.CurvePanel(
        list(_curves(result)),
        x_label="rounds that are over",
        y_label="matched accuracy",
        title=title,
    )


def _curves(result: Result) -> Iterator[report.Curve]:
    """Mean ± standard deviation over the seeds, and each seed."""
    label = "mean ± one standard deviation"
    over = result.data["round"].values.astype(float)
    matched = result.data["matched_accuracy"].isel(trial=0).values.astype(float)
    matched = matched[np.isfinite(matched[:, -1])]
    middle = matched.mean(axis=0)
    spread = matched.std(axis=0, ddof=1) if len(matched) > 1 else 0 * middle
    yield report.Curve(label, over, middle, middle - spread, middle + spread)
    for run in matched:
        yield report.Curve("one seed", over, run, like=label)
