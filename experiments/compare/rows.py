"""What a comparison shows: settings chosen, rows with intervals, and figures.

A setting is chosen by validation accuracy alone: what chooses is handed nothing else.
"""

import dataclasses
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import xarray as xr
from jaxtyping import Float, Int
from matplotlib.figure import Figure

from cfljax import intervals, report
from cfljax.report import LINES
from experiments.clove.rows import numbered, parts
from experiments.compare.arms import Arm, Config, Contestant, finds_clusters
from experiments.study import interval, versions


@dataclasses.dataclass(frozen=True)
class Setting:
    """One combination of values, over all seeds."""

    arm: Arm  # with the values searched over
    step_size: float  # of local training
    # Variables of `trial.DIMS`, `[repetition, ...]`, NaN where a run failed; None if
    # nothing could be run.
    data: xr.Dataset | None
    # `[repetition]`, of a whole run without compilation, on the machine that computed
    # it.
    seconds: Float[np.ndarray, " seeds"]
    num_failed: int  # runs that raised

    def values(self, name: str) -> Float[np.ndarray, "seeds ..."]:
        """One variable in full precision."""
        assert self.data is not None
        return self.data[name].values.astype(float)


@dataclasses.dataclass(frozen=True)
class Result:
    """One row of the table."""

    contestant: Contestant  # what was asked for
    settings: tuple[Setting, ...]  # all that were tried

    @property
    def chosen(self) -> Setting | None:
        """The setting of best validation accuracy after the last round."""
        scores = np.full((len(self.settings), len(self.settings[0].seconds)), np.nan)
        for scored, setting in zip(scores, self.settings, strict=True):
            if setting.data is not None:
                scored[:] = setting.values("validation")[:, -1]
        index = choose(scores)
        return None if index is None else self.settings[index]

    @property
    def chosen_text(self) -> str:
        """The values that were chosen, as far as they were not asked for."""
        chosen = self.chosen
        if chosen is None:
            return ""
        asked = self.contestant.arm.changes
        searched = [pair for pair in chosen.arm.changes if pair not in asked]
        if "step_size" not in dict(chosen.arm.changes):
            searched.append(("step_size", chosen.step_size))
        _, *texts = Arm("", tuple(searched)).text.split(":")
        return ", ".join(texts)


def choose(validation: Float[np.ndarray, "settings seeds"]) -> int | None:
    """The setting of greatest mean, the first of several; None if all failed.

    One that failed for some seed, or has no accuracy there, is never chosen.
    """
    means = np.mean(validation, axis=1)  # NaN if one is.
    return None if np.all(np.isnan(means)) else int(np.nanargmax(means))


def best_rounds(
    validation: Float[np.ndarray, "seeds tested"],
) -> Int[np.ndarray, " seeds"]:
    """Index of each seed's first test of greatest validation accuracy."""
    return np.argmax(validation, axis=1)


def rows(results: Sequence[Result], config: Config) -> list[dict[str, Any]]:
    """One row for each algorithm, in per cent, under the setting it chose; means have
    `_low` and `_high`. Differences are those of the same seeds, and the error rate is
    divided over them; the baseline has none.
    """
    baseline = results[config.baseline_index]
    rate = intervals.divide(config.error_rate, max(1, len(results) - 1))
    table = []
    for result in results:
        row = row_of(result, config)
        ours, theirs = result.chosen, baseline.chosen
        if result is not baseline and ours is not None and theirs is not None:
            last = lambda setting: 100 * setting.values("test")[:, -1]
            apart = last(ours) - last(theirs)
            row |= bounded(apart, "difference", rate, (-100.0, 100.0))
        table.append(row)
    return table


@runtime_checkable
class Scored(Protocol):
    """What rows need of a configuration."""

    @property
    def num_trials(self) -> int: ...
    @property
    def error_rate(self) -> float: ...
    @property
    def newcomers(self) -> int: ...
    @property
    def num_rounds(self) -> int: ...
    @property
    def rounds_between(self) -> int: ...


def row_of(result: Result, config: Scored) -> dict[str, Any]:
    """One algorithm, in per cent, under the setting it chose, without differences."""
    chosen = result.chosen
    row: dict[str, Any] = {
        "algorithm": result.contestant.arm.text,
        "chosen": result.chosen_text,
        "settings": len(result.settings),
        "seeds": config.num_trials,
        "failed": sum(setting.num_failed for setting in result.settings),
    }
    if chosen is None:
        return row
    assert chosen.data is not None
    if code := versions(chosen.data):
        row["code"] = code
    rate, share = config.error_rate, (0.0, 100.0)
    add = lambda name, values: row.update(bounded(values, name, rate, share))
    test, validation = chosen.values("test"), chosen.values("validation")
    best = best_rounds(validation)
    add("accuracy", 100 * test[:, -1])
    add("validation", 100 * validation[:, -1])
    if config.newcomers:
        add("newcomers", 100 * chosen.values("newcomers"))
    if finds_clusters(chosen.arm):
        found = chosen.values("rand_index")[:, -1]
        row |= bounded(found, "rand_index", rate, (-1.0, 1.0))
    add("best_accuracy", 100 * test[np.arange(len(best)), best])
    row["best_round"] = float(np.mean((best + 1) * config.rounds_between))
    # The first run of a program warms up, others wait for other programs.
    row["seconds_per_round"] = float(np.min(chosen.seconds)) / config.num_rounds
    for name in ("received", "sent"):
        mean = float(np.mean(chosen.values(name)))
        if np.isfinite(mean):  # Which an algorithm of the user's own need not tell.
            row[f"{name}_mib"] = mean
    return row


def bounded(
    values: Float[np.ndarray, " seeds"],
    name: str,
    error_rate: float,
    limits: tuple[float, float],
) -> dict[str, float]:
    """A mean with its interval, which ends where values must."""
    found = interval(values, name, error_rate)
    return {key: float(np.clip(value, *limits)) for key, value in found.items()}


def compare_with_best(
    table: Sequence[dict[str, Any]],
    values: Sequence[Float[np.ndarray, " seeds"] | None],
    error_rate: float,
) -> None:
    """Add to the rows of a world how they differ from the best of them: `minus_best`,
    of the same seeds, and `with_best`, whether that may be zero.

    Args:
      table: rows, of which those with values have an `accuracy`.
      values: accuracies of each seed in per cent; None of a row without.
      error_rate: of all differences together, over which it is divided.
    """
    done = [(r, own) for r, own in zip(table, values, strict=True) if own is not None]
    if not done:
        return
    best, reference = max(done, key=lambda pair: pair[0]["accuracy"])
    rate = intervals.divide(error_rate, max(1, len(done) - 1))
    for row, own in done:
        row["with_best"] = True
        if row is not best:
            row |= bounded(own - reference, "minus_best", rate, (-100.0, 100.0))
            row["with_best"] = bool(row["minus_best_high"] >= 0)


def runs(results: Sequence[Result], config: Config) -> list[dict[str, Any]]:
    """One row for each run of each setting, accuracies from 0 to 1."""
    return [
        _run(result, setting, seed, config)
        for result in results
        for setting in result.settings
        for seed in range(config.num_trials)
    ]


def _run(result: Result, setting: Setting, seed: int, config: Config) -> dict[str, Any]:
    row: dict[str, Any] = {
        "algorithm": result.contestant.arm.text,
        "setting": setting.arm.text,
        "step_size": setting.step_size,
        "is_chosen": setting is result.chosen,
        "seed": seed,
    }
    if setting.data is None:
        return row
    for name in ("validation", "test"):
        row[name] = float(setting.values(name)[seed, -1])
    for name in ("received", "sent"):
        row[f"{name}_mib"] = float(np.mean(setting.values(name)[seed]))
    row["newcomers"] = float(setting.values("newcomers")[seed])
    row["rand_index"] = float(setting.values("rand_index")[seed, -1])
    row["seconds_per_round"] = float(setting.seconds[seed]) / config.num_rounds
    return row


_COLUMNS = {
    "algorithm": "algorithm",
    "chosen": "chosen",
    "accuracy_text": "accuracy %",
    "difference_text": "minus baseline",
    "newcomers_text": "new clients %",
    "rand_index_text": "ARI",
    "seconds_per_round": "s / round",
    "received_mib": "MiB down",
    "sent_mib": "MiB up",
    "failed_text": "failed",
    "code": "code",
}
_DIGITS = {"accuracy": 1, "difference": 1, "newcomers": 1, "rand_index": 2}


def markdown(table: Sequence[Mapping[str, Any]], *, knows_clusters: bool = True) -> str:
    """The table for people, without columns that nobody has."""
    shown = []
    for row in table:
        texts = {f"{name}_text": _text(row, name) for name in _DIGITS}
        if "rand_index" in row and not knows_clusters:
            texts["rand_index_text"] = "not known"
        texts["failed_text"] = f"{row['failed']} runs" if row["failed"] else None
        shown.append({**row, **texts})
    return report.concise(shown, _COLUMNS, digits=2)


def _text(row: Mapping[str, Any], name: str) -> str | None:
    """A mean with its interval."""
    if name not in row:
        return None
    if np.isnan(row[name]):
        return "undefined"
    form = f"{'+' if name == 'difference' else ''}.{_DIGITS[name]}f"
    low, high = (row[f"{name}_{end}"] for end in ("low", "high"))
    return f"{row[name]:{form}} [{low:{form}}, {high:{form}}]"


def note(config: Config, num_algorithms: int, knows_clusters: bool = True) -> str:
    """How to read the table."""
    baseline = config.contestants[config.baseline_index].arm.text
    text = (
        f"After {config.num_rounds} rounds; means over {config.num_trials} seeds, "
        f"which all algorithms share, with Student's intervals of error rate "
        f"{config.error_rate:g}, which are exact for normal values: where few seeds "
        "agree by chance they are too short. "
        '"accuracy": of clients\' own test samples. "chosen": the values of best '
        "accuracy on validation samples, which are neither trained nor tested on; the "
        "intervals take them as given. table.csv has besides the accuracy in each "
        "seed's round of best validation accuracy, best_accuracy. "
    )
    if num_algorithms > 1:
        text += (
            f'"minus baseline": difference to {baseline} seed by seed, in per cent of '
            f"accuracy; the intervals together err at {config.error_rate:g}. "
        )
    if config.newcomers:
        text += (
            '"new clients": accuracy of clients that never trained and join after the '
            "last round. "
        )
    if knows_clusters:
        text += '"ARI": clusters found in the last round against the true ones. '
    else:
        text += (
            '"ARI": the true clusters are not known, as the file has no `clusters`. '
        )
    text += (
        '"s / round": the fastest seed\'s whole run by its rounds, tests included and '
        'compilation left out, on the machine that ran it. "MiB": of all clients in a '
        "round."
    )
    return "\n" + textwrap.fill(text, 88) + "\n"


_FEW = 8  # Tests of a run that leave room for intervals instead of bands.
_ASIDE = 5  # Curves that may then step aside without leaving the panel.


def draw(
    results: Sequence[Result],
    config: Config,
    title: str,
    *,
    knows_clusters: bool = True,
) -> dict[str, Figure]:
    """Accuracy along training by file name, and agreement of clusters beside it; where
    there are more algorithms than a figure tells apart, seven curves or five of few
    points, each has the baseline and some of the others.
    """
    drawn = [result for result in results if result.chosen is not None]
    shared = [r for r in drawn if r is results[config.baseline_index]]
    others = [result for result in drawn if result not in shared]
    is_sparse = config.num_rounds // config.rounds_between <= _FEW
    per_figure = (_ASIDE if is_sparse else len(LINES)) - len(shared)
    # Even parts, so that no figure is left with a single curve.
    chosen = parts(others, per_figure) or [[]]
    figures = [
        _figure([*shared, *part], config, title, knows_clusters)
        for part in chosen
        if shared or part
    ]
    return numbered("accuracy", figures)


def _figure(
    results: Sequence[Result], config: Config, title: str, knows_clusters: bool
) -> Figure:
    step = config.rounds_between
    tested = np.arange(step, config.num_rounds + 1, step)
    accuracy = [_curve(r, "test", tested, config.error_rate) for r in results]
    label, limits = "accuracy on own test samples [%]", _limits(accuracy)
    panels = [report.CurvePanel(accuracy, "round", label, limits, title="accuracy")]
    found = [
        result
        for result in results
        if knows_clusters and finds_clusters(result.contestant.arm)
    ]
    if found:
        rounds = np.arange(1, config.num_rounds + 1)
        # No agreement is 0; runs that lost a client have none at all.
        agreement = [_curve(r, "rand_index", rounds, config.error_rate) for r in found]
        least = min([0.0, *(y for c in agreement for y in c.y if y < 0)])
        label, limits = "adjusted Rand index", (least, 1.0)
        panels.append(
            report.CurvePanel(agreement, "round", label, limits, title="clusters found")
        )
    return report.curves(
        panels,
        title=title,
        legend_title=f"means over {config.num_trials} seeds, "
        f"{100 * (1 - config.error_rate):g} % intervals",
    )


def _curve(
    result: Result, name: str, rounds: np.ndarray, error_rate: float
) -> report.Curve:
    """Means over seeds with Student's intervals, which end where values must."""
    chosen = result.chosen
    assert chosen is not None
    is_share = name == "test"
    values: Float[np.ndarray, "rounds seeds"] = chosen.values(name).T
    values = 100 * values if is_share else values
    low, high = intervals.student(values, error_rate=error_rate)
    least, most = (0, 100) if is_share else (-1, 1)
    return report.Curve(
        result.contestant.arm.text,
        rounds.astype(float),
        values.mean(axis=1),
        np.clip(low, least, most),
        np.clip(high, least, most),
    )


def _limits(curves: Sequence[report.Curve]) -> tuple[float, float]:
    """From below the lowest mean to above the highest, in tens: a band may be cut."""
    means = np.concatenate([curve.y for curve in curves])
    return (
        float(max(0, 10 * np.floor(np.min(means) / 10 - 0.5))),
        float(min(100, 10 * np.ceil(np.max(means) / 10 + 0.5))),
    )
