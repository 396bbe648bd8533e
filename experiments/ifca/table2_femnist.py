"""IFCA, Table 2, FEMNIST: IFCA with shared layers, one-shot, global and local models.

Command:   python -m experiments run ifca.table2_femnist --preset paper --data FOLDER
Quick:     the same with --preset quick: 60 writers, a smaller network, larger steps
Measured:  quick, 4.1 minutes on two idle cores of an Intel Xeon; results below
Projected: paper on two cores, from half the processor time of IFCA's rounds (k = 2):
           6 h for each of 40 runs of variant "paper" (3.5 s a round and 7 s a test),
           4 min for each of "reference" (0.03 s and 0.2 s), whose pretraining takes
           1 h a seed; `--variants reference` alone takes about 9 h
Paper:     87.99 and 87.89 (IFCA, k = 2 and 3), 87.41 and 87.38 (one-shot), 84.45
           (global), 75.85 % (local), 5 seeds

The paper describes layers that all clients train together (section 4.3); its released
code freezes them after pretraining. Both variants are run: `femnist`.
Rounds, participants, batches and step size are the released code's; the paper names
none. Variant "paper" starts from nothing and takes as many rounds as the other's
pretraining and training together.

Quick, two seeds. "reference", whose pretraining ends at 58.8 +- 2.1 %: one-shot 65.7 +-
1.0, IFCA (k = 2) 65.1 +- .4, global 64.4 +- .4, local 59.1 +- 4.6 %: the clustered
methods first and local models last, as in the paper, by less than a point. In "paper"
clustering gains nothing: from a random start IFCA (73.5 +- 2.8 %), one-shot (73.3 +-
1.4) and the global model (74.6 +- 1.2) cannot be told apart, and in one seed of two
only one last layer is left that anybody chooses; local models, which have nothing
pretrained to start from, reach 14 %.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr
from jaxtyping import Float
from matplotlib.figure import Figure

from cfljax import engine, report
from cfljax.data import Writers, by_writer, load_writers
from experiments import study
from experiments.checks import check_different, check_positive, configuration
from experiments.ifca.femnist import (
    DIMS,
    PRETRAINED_DIMS,
    Inputs,
    Samples,
    Trial,
    Variant,
    method_of,
    num_parameters,
    pretrain,
    simulate,
)
from experiments.ifca.tables import (
    mean_curve,
    moments,
    number,
    spread,
)
from experiments.images import checksum
from experiments.jobs import Job, result, run
from experiments.options import Options
from experiments.published import Published, published
from experiments.study import legend, mean, size_text
from experiments.titles import title
from experiments.verdicts import Size, changes, judge

EXPERIMENTS = {
    "ifca.table2_femnist": {
        "title": "FEMNIST: IFCA with shared layers, one-shot, global and local models",
        "spreads_clients": True,
        "has_jobs": True,
    },
}
EXPERIMENT = "ifca.table2_femnist"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.
METHODS = ("ifca-2", "ifca-3", "one_shot-2", "one_shot-3", "fedavg", "local")
MORE_CLUSTERS = ("ifca-4", "ifca-5")  # The paper finds 3 of them used.
# Checksum of all 188 writers of the public LEAF sample that have enough images.
ALL_WRITERS = "b703c2d2"
MOST_CURVES = 7  # Of one panel that can be told apart.
TITLES = {
    "paper": "paper: layers below the last trained by all",
    "reference": "reference: layers below the last pretrained",
}
NOTE = """
paper: as section 4.3 describes, all layers but the last are trained by all
participants together, from a random start. reference: as in the released code, they
are frozen after pretraining by FedAvg, whose own accuracy is the first row; IFCA's last
layers are warmed up by random groups of clients; global, one-shot and local train last
layers only. MiB leave out the warm-up, and pretraining but for its own row; those of
one-shot include the solutions that are clustered, spread over all rounds.

"last" is the accuracy after the last round. "best" is the largest over all tests of a
run, as the released code reports it: the test samples choose the round, so it is more
than can be expected of new samples. The published numbers are such ones; they stand
beside both variants, and "verdict" compares "best" with them, by the rules of
`experiments/verdicts.py`. They stem from 173 to 175 writers, this table from {clients}
of another LEAF sample.
"""
COLUMNS = {
    "variant": "variant",
    "label": "algorithm",
    "round": "rounds",
    "trials": "seeds",
    "last": "last, test accuracy %",
    "best": "best, test accuracy %",
    "paper": "published %",
    "size": "size",
    "verdict": "verdict",
    "used": "clusters used",
    "received": "MiB down a round",
    "sent": "MiB up a round",
    "diverged": "diverged",
}


@configuration
class Config:
    """Everything that the table depends on. One field, one flag."""

    num_clients: int | None
    """Writers, drawn by the seed; all with enough images if None."""
    num_channels: int  # Of the first convolution; the second has twice as many.
    num_hidden: int  # Width of the hidden layer.
    pretraining_rounds: int  # FedAvg of the layers that variant "reference" freezes.
    num_rounds: int  # T of "reference"; "paper" has `pretraining_rounds` more.
    step_size: float  # Gamma, of all training.
    num_trials: int  # Seeds of each method: of starts, participants and batches.
    methods: tuple[str, ...] = METHODS
    """What to compare: ifca-K and one_shot-K for K clusters, fedavg, local."""
    variants: tuple[Variant, ...] = ("paper", "reference")
    """Layers below the last trained by all (paper), or pretrained (reference)."""
    min_samples: int = 99
    """Images that a writer has at least, training and test together."""
    num_participants: int = 6  # Writers drawn in each round.
    pretraining_participants: int = 3  # Writers drawn in each round of pretraining.
    warm_up_rounds: int = 20
    """Rounds of random groups before IFCA's first, "reference" only."""
    batch_size: int = 10  # Of local training.
    num_epochs: int = 1  # Of local training in each round.
    rounds_between: int = 20  # Rounds from one test to the next.
    num_first_steps: int = 300
    """Of the softmax regressions on pixels that one-shot clustering compares."""
    first_step_size: float = 0.02  # Of the same.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        for method in self.methods:
            method_of(method)
        check_different("methods", self.methods)
        check_different("variants", self.variants)
        if not set(self.variants) <= set(get_args(Variant)):
            raise ValueError(
                f"`variants` must hold different names, got {self.variants}."
            )
        positive = ("pretraining_rounds", "num_first_steps", "batch_size", "num_epochs")
        check_positive(self, *positive)


def preset(name: Literal["quick", "paper"]) -> Config:
    """The configuration of a preset."""
    if name == "quick":
        return Config(
            num_clients=60,
            num_channels=4,
            num_hidden=64,
            pretraining_rounds=100,
            num_rounds=40,
            step_size=0.1,
            num_trials=2,
            methods=("ifca-2", "one_shot-2", "fedavg", "local"),
            warm_up_rounds=10,
            num_first_steps=50,
        )
    return Config(
        num_clients=None,
        num_channels=32,
        num_hidden=2048,
        pretraining_rounds=2000,
        num_rounds=4000,
        step_size=0.004,
        num_trials=5,
        methods=METHODS + MORE_CLUSTERS,
    )


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure.

    Raises:
      ValueError: if the writers do not suffice, or the images are damaged.
      FileNotFoundError: if there are no images; the message says how to get them.
    """
    own = study.Study(EXPERIMENT, config, options)
    writers = load_writers("femnist", folder=options.data)
    inputs = _inputs(config, writers)
    num_clients = inputs.train.mask.shape[0]
    results = _results(options, _jobs(config, options, inputs, writers.num_classes))
    table = [row for result in results for row in rows(result)]
    text = markdown(table, num_clients)
    figure = draw(results, config)
    return own.summary(
        f"images: {writers.source}, {num_clients} writers\n\n{text}",
        {
            "table.csv": table,
            "runs.csv": [run for result in results for run in runs(result)],
            "table.md": text,
            **({"accuracy": figure} if figure else {}),
            "config.json": study.settings(config, source=writers.source),
        },
        table,
        [result.data for result in results],
        images=writers.source,
    )


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of the table; raises as `main`."""
    writers = load_writers("femnist", folder=options.data)
    inputs = _inputs(config, writers)
    found = _jobs(config, options, inputs, writers.num_classes)
    # First what another one needs: it is there when workers have done the rest.
    return sorted(found, key=lambda job: job.name != "pretraining")


def _inputs(config: Config, writers: Writers) -> Inputs:
    """The samples of all clients; ValueError if they are fewer than take part."""
    clients = by_writer(
        writers,
        num_clients=config.num_clients,
        min_samples=config.min_samples,
        key=None if config.num_clients is None else jax.random.key(config.seed),
    )
    train, test = (Samples.of(data) for data in clients)
    num_clients = train.mask.shape[0]
    for name in ("num_participants", "pretraining_participants"):
        if not 1 <= getattr(config, name) <= num_clients:
            raise ValueError(
                f"`{name}` must be in 1..{num_clients}, the clients, got "
                f"{getattr(config, name)}."
            )
    return Inputs(train, test)


@dataclasses.dataclass(frozen=True)
class Result:
    """What was found in one variant, or in pretraining."""

    name: str  # "paper", "pretraining" or "reference"
    trial: Trial  # the fields that its cells share
    data: xr.Dataset  # variables of `femnist.DIMS`, [method, repetition, trial, round]


def _results(options: Options, jobs: Sequence[Job]) -> list[Result]:
    """Pretraining and all variants; none that needs what failed before."""
    results: list[Result] = []
    for job in jobs:
        if job.name == "reference" and np.any(results[-1].data["failed"]):
            break
        results.append(Result(job.name, job.grid.trial, run(options, job)))
    return results


def _jobs(
    config: Config, options: Options, inputs: Inputs, num_classes: int
) -> list[Job]:
    """Variant "paper"; pretraining, and behind it variant "reference", which needs its
    parameters."""
    trial = _trial(config, inputs, num_classes)
    found = []
    if "paper" in config.variants:
        rounds = config.pretraining_rounds + config.num_rounds
        paper = dataclasses.replace(trial, num_rounds=rounds)
        found.append(Job(_grid(config, paper), simulate, lambda: inputs, name="paper"))
    if "reference" not in config.variants:
        return found
    first = dataclasses.replace(
        trial,
        method="fedavg",
        num_rounds=config.pretraining_rounds,
        num_participants=config.pretraining_participants,
    )
    grid = dataclasses.replace(
        _grid(config, first, methods=("fedavg",)), dims=PRETRAINED_DIMS
    )
    pretraining = Job(grid, pretrain, lambda: inputs, name="pretraining")
    reference = dataclasses.replace(
        trial,
        variant="reference",
        pretraining_rounds=config.pretraining_rounds,
        pretraining_participants=config.pretraining_participants,
        warm_up_rounds=config.warm_up_rounds,
    )

    def pretrained() -> Inputs:
        data = result(options, pretraining)
        # One method, one trial.
        return inputs._replace(pretrained=data["parameters"].values[0, :, 0])

    def untrained() -> Inputs:
        shape = config.num_trials, num_parameters(trial, inputs)
        return inputs._replace(pretrained=jnp.zeros(shape))

    return [
        *found,
        pretraining,
        Job(_grid(config, reference), simulate, pretrained, untrained, "reference"),
    ]


def _trial(config: Config, inputs: Inputs, num_classes: int) -> Trial:
    """Everything but what variants differ in, which is as "paper" has it."""
    return study.trial_of(
        Trial,
        config,
        variant="paper",
        method=config.methods[0],
        checksum=checksum(jax.tree.leaves(inputs)),
        num_classes=num_classes,
        pretraining_rounds=0,
        pretraining_participants=0,
        warm_up_rounds=0,
        repetition=0,
    )


def _grid(
    config: Config, trial: Trial, *, methods: tuple[str, ...] | None = None
) -> engine.Grid:
    """Methods, all if None, and repetitions of one variant."""
    step = trial.rounds_between
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=trial,
        axes={
            "method": methods or config.methods,
            "repetition": tuple(range(config.num_trials)),
        },
        num_trials=1,
        traced=("step_size", "first_step_size", "repetition"),
        dims=DIMS,
        coords={"round": list(range(step, trial.num_rounds + 1, step))},
        seed=config.seed,
        revision=REVISION,
    )


# Table, runs and figure, beside the paper's


def rows(result: Result) -> list[dict[str, Any]]:
    """One row for each method: accuracies in per cent, means and deviations over seeds,
    each one's `clusters_used`; diverged runs have what their models answered.
    """
    return [_row(result, name) for name in result.data["method"].values.tolist()]


def _row(result: Result, method: str) -> dict[str, Any]:
    cell = result.data.sel({"method": method}).isel(trial=0)
    accuracy = _computed(100 * cell["accuracy"].values)
    computed = np.isfinite(cell["accuracy"].values).all(axis=-1)
    last, best = accuracy[:, -1], accuracy.max(axis=1, initial=-np.inf)
    is_pretraining = result.name == "pretraining"
    name = "pretraining" if is_pretraining else label(method)
    trial = dataclasses.replace(result.trial, method=method)
    paper = None if is_pretraining else published_number(method)
    used = cell["used_clusters"].values[computed, -1]
    size = size_text(size_of(trial), cell)
    return {
        "variant": "reference" if is_pretraining else result.name,
        "method": method,
        "label": name,
        "round": int(cell["round"].values[-1]),
        "trials": len(accuracy),
        "failed": int(cell["failed"].values.sum()),
        "diverged": int(np.sum(cell["is_finite"].values[computed, -1] == 0)),
        **moments("accuracy", last),
        **moments("best", best),
        "optimism": mean(best - last),
        "paper_mean": paper and paper.mean,
        "paper_std": paper and paper.std,
        "size": None if is_pretraining else size,
        "verdict": None if is_pretraining else judge(best, paper, size_of(trial)).text,
        "clusters_used": " ".join(f"{number:.0f}" for number in used)
        if method_of(method).num_clusters > 1
        else None,
        "received": mean(cell["received"].values[computed].mean(axis=-1)),
        "sent": mean(cell["sent"].values[computed].mean(axis=-1)),
    }


def label(method: str) -> str:
    """Name of a method for people, as in the paper's table."""
    name, k = method_of(method)
    names = {"ifca": "IFCA", "one_shot": "one-shot", "fedavg": "global"}
    return f"{names[name]} k={k}" if "-" in method else names.get(name, name)


def published_number(method: str) -> Published | None:
    """What the paper prints of a method; None for more clusters than it has."""
    found = (own for own in published("ifca") if own.dataset == "FEMNIST")
    return next((own for own in found if own.algorithm == label(method)), None)


def size_of(trial: Trial) -> Size:
    """The size of a run beside the paper preset's, whose rounds and step size are the
    released code's.
    """
    paper = preset("paper")
    names = ("num_channels", "num_hidden", "num_rounds", "num_participants")
    names += ("batch_size", "num_epochs", "step_size", "rounds_between")
    names += ("num_first_steps", "first_step_size")
    theirs = study.fields(paper, *names)
    form, is_released = "", False
    if trial.variant == "paper":
        theirs["num_rounds"] += paper.pretraining_rounds
    else:
        names = ("pretraining_rounds", "pretraining_participants", "warm_up_rounds")
        theirs |= study.fields(paper, *names)
        form, is_released = "as released", True
    found = changes(trial, theirs)
    if trial.checksum != ALL_WRITERS:  # A trial does not know how many they are.
        return Size(found, other_data="other writers than LEAF's 188")
    # Another sample of the same writers, of about as many: it is compared, and said.
    forms = [form] if form else []
    forms.append("188 writers, not 173 to 175")
    return Size(found, form=", ".join(forms), is_released=is_released)


def runs(result: Result) -> list[dict[str, Any]]:
    """One row for each run, after its last round; accuracies in per cent."""
    table = []
    for at, cell in study.cells(result.data.isel(trial=0), "method", "repetition"):
        accuracy = 100 * cell["accuracy"].values
        failed = bool(cell["failed"]) or not np.isfinite(accuracy).all()
        best = None if failed else int(np.argmax(accuracy))
        row = {
            "variant": result.name,
            "method": at["method"],
            "repetition": int(at["repetition"]),
            "failed": failed,
            "is_finite": float(cell["is_finite"][-1]),
            "accuracy": float(accuracy[-1]),
            "best": None if best is None else float(accuracy[best]),
            "best_round": None if best is None else int(cell["round"][best]),
            "used_clusters": float(cell["used_clusters"][-1]),
        }
        table.append(row)
    return table


def markdown(table: Sequence[Mapping[str, Any]], num_clients: int) -> str:
    """The table of `rows` for people, and what its words mean.

    Columns that are empty throughout are left out.
    """
    shown = [
        {
            "variant": row["variant"],
            "label": row["label"],
            "round": row["round"],
            "trials": row["trials"],
            "last": spread(row, "accuracy"),
            "best": spread(row, "best"),
            "paper": spread(row, "paper"),
            "size": row["size"],
            "verdict": row["verdict"],
            "used": row["clusters_used"],
            "received": number(row["received"], 2),
            "sent": number(row["sent"], 2),
            "diverged": row["diverged"] or None,
        }
        for row in table
    ]
    note = NOTE.format(clients=num_clients)
    return report.concise(shown, COLUMNS, once="size") + note


def titles(config: Config) -> dict[str, str]:
    """By figure."""
    what = "accuracy on FEMNIST with shared layers"
    return {"accuracy": title("IFCA, Table 2", what, config, preset("paper"))}


def draw(results: Sequence[Result], config: Config) -> Figure | None:
    """Accuracy over rounds of the first seven methods, one panel for each variant.

    None if no run of any variant was computed.
    """
    found = [_panel(result) for result in results if result.name in TITLES]
    panels = [panel for panel in found if panel is not None]
    if not panels:
        return None
    return report.curves(
        panels,
        title=titles(config)["accuracy"],
        legend_title=legend(max(r.data.sizes["repetition"] for r in results)),
    )


def _panel(result: Result) -> report.CurvePanel | None:
    """Mean accuracy of every method that a seed was computed of; None without any."""
    rounds = result.data["round"].values.astype(float)
    curves = []
    for method in result.data["method"].values.tolist()[:MOST_CURVES]:
        values = result.data["accuracy"].sel({"method": method}).values[:, 0]
        accuracy = _computed(100 * values)
        if len(accuracy):
            curves.append(mean_curve(label(method), rounds, accuracy))
    if not curves:
        return None
    return report.CurvePanel(
        curves,
        x_label="round",
        y_label="test accuracy %",
        y_limits=None,
        title=TITLES[result.name],
    )


def _computed(
    accuracy: Float[np.ndarray, "runs rounds"],
) -> Float[np.ndarray, "computed rounds"]:
    """The runs that did not fail."""
    return accuracy[np.isfinite(accuracy).all(axis=-1)].astype(float)
