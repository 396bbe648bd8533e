"""On which data was the best result chosen?

Reviewer:  step sizes are reported, but not how they were chosen; were the best results
           best on a separate tuning set, on the training set or on the test set?
Command:   python -m experiments run reviews.tuning --preset paper
Quick:     the same with --preset quick: fewer data sets
Measured:  paper, 6.9 minutes of one core of an AMD EPYC: restarts chosen by the
           training loss have no regret from n = 20 on; at n = 5 it is 2 to 20 %
Predicted: pilots found an error of .575 where the truth chooses among restarts and .601
           where the training loss does at n = 5, .246 and .253 at n = 10, and no
           difference above (k = 2, d = 40, m = 40, rho = 4).
Rule:      a choice has no regret where the ratio of its error to that of the choice by
           truth is at most 1.05, by its whole interval.
Choices:   of the restart at one step size, and of restart and step size together; by
           the truth (as in the paper's released code: least distance to the true
           models), by the training loss, by the loss on as many further samples, by the
           loss on a fifth of the own samples, set aside and not trained on, and none.
Differs:   the paper calls a trial a success if any restart at any step size succeeds;
           here the error of the one that is chosen counts. Training takes T rounds, so
           small steps end early: the choice of the step size is one of shrinkage too.
"""

import itertools
from typing import Literal

import numpy as np
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import report
from experiments.checks import configuration
from experiments.reviews import fixed_data, study

EXPERIMENTS = {
    "reviews.tuning": {
        "title": "restart and step size chosen by truth, training loss or held-out loss"
    }
}
RULES = ("truth", "training", "held-out", "split", "none")
CHOICES = ("restart", "restart and step size")
TOP = 2.0  # Of the figure, so that the small regrets can be seen.
NAMES = {
    "training": "training loss",
    "held-out": "loss on further samples",
    "split": "loss on samples set aside",
    "none": "no choice",
}


@configuration
class Config:
    """Everything that the study depends on. One field, one flag."""

    num_samples: tuple[int, ...]  # n, samples per client.
    rho: tuple[float, ...]  # Squared separation over noise variance.
    num_trials: int  # Data sets per cell.
    step_sizes: tuple[float, ...] = (0.05, 0.1, 0.25, 0.5, 1.0)
    """Gamma, divisor m, to choose from."""
    fixed_step_size: float = 0.5
    """Gamma where only the restart is chosen; one of `step_sizes`."""
    num_restarts: int = 10
    """Random starts to choose from, the same ones at every step size."""
    num_rounds: int = 150  # T.
    num_clients: int = 40  # m, a multiple of the number of clusters.
    num_features: int = 40  # d.
    num_clusters: int = 2  # k.
    held_out: float = 0.2
    """Share of a client's n samples that the rule "split" does not train on."""
    margin: float = 0.05  # Relative regret that counts as none.
    seed: int = 0  # Of everything.
    error_rate: float = 0.05  # Of all intervals together.

    def __post_init__(self) -> None:
        sizes = ("num_samples", "num_trials", "num_clients", "num_features")
        study.check(
            self,
            different=("num_samples", "rho", "step_sizes"),
            at_least={
                0: ("margin",),
                1e-9: ("step_sizes",),
                1e-6: ("rho",),
                1: ("num_restarts", "num_rounds"),
                2: (*sizes, "num_clusters"),
            },
        )
        if self.num_clients % self.num_clusters:
            raise ValueError(
                f"`num_clients` must be a multiple of {self.num_clusters} clusters, "
                f"got {self.num_clients}."
            )
        if self.num_clusters > self.num_features:
            raise ValueError(
                f"`num_clusters` must be at most `num_features`, got "
                f"{self.num_clusters} > {self.num_features}."
            )
        if self.fixed_step_size not in self.step_sizes:
            raise ValueError(
                f"`fixed_step_size` must be one of {self.step_sizes}, got "
                f"{self.fixed_step_size}."
            )
        if not 0 < self.held_out < 1:
            raise ValueError(f"`held_out` must lie in (0, 1), got {self.held_out}.")


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    quick = name == "quick"
    return Config(
        num_samples=(5, 10, 15, 20, 40),
        rho=(1.0, 4.0) if quick else (1.0, 4.0, 16.0),
        num_trials=24 if quick else 200,
    )


def cells(config: Config) -> list[study.Row]:
    """All cells of the grid, samples fastest."""
    shared = ("num_trials", "step_sizes", "fixed_step_size", "num_restarts")
    shared += ("num_rounds", "num_clients", "num_features", "num_clusters")
    same = study.fields(config, *shared, "held_out", "seed")
    return study.grid(same, rho=config.rho, num_samples=config.num_samples)


def held_out_loss(
    trained: fixed_data.Clients,
    validation: fixed_data.Clients,
    models: Float[np.ndarray, "runs models d"],
) -> Float[np.ndarray, " runs"]:
    """Mean loss on further samples, of the model that fits a client's own data best;
    infinite for a run that diverged."""
    choice = fixed_data.assign(fixed_data.all_losses(trained, models))
    losses = fixed_data.all_losses(validation, models)
    own = np.take_along_axis(losses, np.maximum(choice, 0)[..., None], axis=2)[..., 0]
    return np.mean(np.where((choice >= 0) & np.isfinite(own), own, np.inf), axis=0)


def pick(scores: Float[np.ndarray, " runs"]) -> int:
    """The least score; NaN never wins."""
    return int(np.argmin(np.where(np.isnan(scores), np.inf, scores)))


def compute(cell: study.Cell) -> study.Arrays:
    """Errors of chosen runs: `error` `[choices, rules, trials]`, mean distance of
    matched models and truths, or inf; `picked`, step sizes; `oracle` `[trials]`.
    """
    gammas, rounds = np.array(cell["step_sizes"]), cell["num_rounds"]
    samples, restarts = cell["num_samples"], cell["num_restarts"]
    away = max(1, round(cell["held_out"] * samples))
    steps = np.tile(gammas, restarts)
    every = np.arange(len(steps))
    fixed = np.flatnonzero(steps == cell["fixed_step_size"])
    first = np.where(every == fixed[0], 0.0, 1.0)

    def one(trial: int) -> study.Row:
        # Of the n samples the last ones are set aside, or n more follow; the first
        # ones are the same either way.
        place = (cell["seed"], 1, int(1000 * cell["rho"]), samples, trial)
        whole, part = (
            fixed_data.problem_of(
                cell,
                study.generator(*place),
                num_samples=samples - held_out,
                num_validation=held_out or samples,
            )
            for held_out in (0, away)
        )
        generator = study.generator(cell["seed"], 2, samples, trial)
        starts = fixed_data.random_starts(generator, whole, restarts)
        starts = np.repeat(starts, len(gammas), axis=0)
        models, partly = (
            fixed_data.ifca_runs(problem.clients, starts, steps, rounds)
            for problem in (whole, part)
        )
        reached = fixed_data.centre_errors(whole, models)
        scores = {
            "truth": reached,
            "training": fixed_data.training_loss(whole.clients, models),
            "held-out": held_out_loss(whole.clients, whole.validation, models),
            "split": held_out_loss(part.clients, part.validation, partly),
            "none": first,
        }
        own = {"split": fixed_data.centre_errors(part, partly)}
        error = np.stack([own.get(rule, reached) for rule in RULES])
        best = np.array(
            [
                [runs[pick(scores[rule][runs])] for rule in RULES]
                for runs in (fixed, every)
            ]
        )
        return {
            "error": np.nan_to_num(error[np.arange(len(RULES)), best], nan=np.inf),
            "picked": best % len(gammas),
            "oracle": fixed_data.oracle_error(whole),
        }

    return study.stacked(cell["num_trials"], one)


def rows(config: Config, cells: study.Rows, results: study.Results) -> list[study.Row]:
    """One row for each cell, choice and rule; ratios are geometric means."""
    joint = study.jointly(config, 3 * (len(cells) * len(CHOICES) * len(RULES)))
    ratio = lambda values: joint.geometric(np.log(values))
    table: list[study.Row] = []
    for cell, arrays in zip(cells, results, strict=True):
        for i, choice in enumerate(CHOICES):
            errors = dict(zip(RULES, arrays["error"][i], strict=True))
            for rule, picked in zip(RULES, arrays["picked"][i], strict=True):
                row = {"rho": cell["rho"], "num_samples": cell["num_samples"]}
                row |= {"choice": choice, "rule": rule}
                error = errors[rule]
                row |= study.columns(
                    error=joint.mean(error),
                    to_truth=ratio(error / errors["truth"]),
                    to_training=ratio(error / errors["training"]),
                )
                row |= {"oracle": float(np.mean(arrays["oracle"]))}
                row |= {"diverged": int(np.sum(~np.isfinite(error)))}
                row |= {
                    f"picked_step_{gamma:g}": int(np.sum(picked == index))
                    for index, gamma in enumerate(config.step_sizes)
                }
                table.append(row)
    return table


def decide(config: Config, table: study.Rows) -> study.Verdicts:
    """The rules of the header, from the rows alone."""
    restart, both = CHOICES
    trained = study.at(table, choice=restart, rule="training")
    late = [row for row in trained if row["num_samples"] >= config.num_features / 2]
    early = study.at(trained, num_samples=min(config.num_samples))

    def no_regret(rows: study.Rows, name: str) -> study.Verdict:
        return study.within(rows, name, 0.0, 1 + config.margin)

    def regret(rows: study.Rows, name: str) -> study.Verdict:
        return study.all_of(study.read(row, name).above(1.0) for row in rows)

    further, aside = (
        study.at(table, choice=both, rule=rule) for rule in ("held-out", "split")
    )
    return {
        "from n = d/2 on the training loss chooses restarts without regret": no_regret(
            late, "to_truth"
        ),
        "at the fewest samples the training loss has regret": regret(early, "to_truth"),
        "a loss on further samples never chooses worse than the training loss": (
            no_regret(further, "to_training")
        ),
        "setting samples aside costs more than its choice gains": regret(
            aside, "to_training"
        ),
    }


def answer(config: Config, table: study.Rows, decisions: study.Verdicts) -> str:
    """What each choice costs beside that by the truth, and beside the training loss."""
    late, early, further, aside = decisions.values()
    restart, both = CHOICES
    few, margin = min(config.num_samples), f"{config.margin:.0%}"
    trained = study.at(table, choice=restart, rule="training")
    costs = [
        f"{study.read(row, 'to_truth')} at ρ = {row['rho']:g}"
        for row in study.at(trained, num_samples=few)
    ]
    beside = {
        rule: study.farthest(
            study.read(row, "to_training")
            for row in study.at(table, choice=both, rule=rule)
        )
        for rule in ("held-out", "split")
    }
    instead = "choosing restarts by the training loss instead costs less than "
    first = study.told(
        late,
        yes=f"{instead}{margin} in error from n = d/2 samples on",
        no=f"even from n = d/2 samples on, {instead.replace('less', 'more')}{margin}",
        undecided=f"whether {instead}{margin} in error from n = d/2 samples on cannot "
        "be told",
    )
    second = study.told(
        early,
        yes="it does cost",
        no="it costs nothing somewhere",
        undecided="whether it costs anything cannot be told everywhere",
    )
    third = study.told(
        further,
        yes=f"is never more than {margin} worse",
        no=f"is more than {margin} worse somewhere",
        undecided=f"cannot be told to be never more than {margin} worse",
    )
    fourth = study.told(
        aside,
        yes="is worse everywhere",
        no="is better somewhere",
        undecided="may be worse or better",
    )
    return (
        "The paper's released code chooses runs by their distance to the true models, "
        f"which nobody knows in practice; {first}. With the fewest samples, n = {few}, "
        f"{second}: errors are {study.listed(costs)} times those of the choice by the "
        "truth. Where the step size is to be chosen too, a loss on as many further "
        f"samples {third} than the training loss (errors differ most by a factor of "
        f"{beside['held-out']}), and setting {config.held_out:.0%} of the own "
        f"samples aside {fourth} ({beside['split']}). This is linear regression with d "
        f"= {config.num_features} and m = {config.num_clients}, where the error of the "
        "one chosen run counts; on which data the paper chose for its images no run "
        f"can tell, and {study.legend(config.error_rate)}, nominally."
    )


def figures(config: Config, table: study.Rows) -> dict[str, Figure]:
    """Regret of every rule against n."""
    x, y, panels = "samples per client n", "error / error chosen by truth", []
    for choice, rho in itertools.product(CHOICES, config.rho):
        own = study.at(table, choice=choice, rho=rho)
        lines = study.curves(own, "rule", NAMES, "num_samples", "to_truth")
        title = f"choice of {choice}, ρ = {rho:g}"
        panels.append(study.panel(lines, x, y, title, "x", y_limits=(0.9, TOP)))
    figure = report.curves(
        panels,
        title=f"What choosing without the truth costs IFCA, k = {config.num_clusters}, "
        f"d = {config.num_features}, m = {config.num_clients}",
        legend_title=f"chosen by; {config.num_trials} data sets, Student's "
        f"{study.legend(config.error_rate)},\ncut off at {TOP:g}; points moved aside",
        panels_per_row=len(config.rho),
    )
    return {"regret": figure}


STUDY = study.Study("reviews.tuning", 1, cells, compute, rows, decide, answer, figures)
main = STUDY.main
