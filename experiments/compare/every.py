r"""python -m experiments run compare.all: every algorithm in eight worlds.

Command:   python -m experiments run compare.all --preset paper --data FOLDER
Quick:     python -m experiments run compare.all --preset quick --data FOLDER
FOLDER has FEMNIST's writers (`python -m experiments data`); without it that world is
left out. No paper compares so many; the worlds are those of its baselines' papers.

Each algorithm has as many settings as the others, chosen in each world by accuracy on
validation samples alone, and the same data, seeds, network, rounds and local epochs.
Where an algorithm cannot serve a world the table says "does not apply", and why.
results.json has the numbers of each seed, in the form of the leaderboard.
"""

import dataclasses
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial
from jaxtyping import Array, Float, PRNGKeyArray
from matplotlib.figure import Figure

from cfljax import __version__, engine, report
from cfljax.algorithms import REGISTRY
from cfljax.base import ClientData, Task
from cfljax.data import Images, ImageSet, load_writers
from cfljax.models import mlp
from experiments.checks import check_several, configuration
from experiments.clove.rows import finish
from experiments.clove.study import repetitions, rounds
from experiments.compare import scenes, submissions
from experiments.compare.arms import Arm, Contestant, Optimizer, parse, parse_all
from experiments.compare.registered import is_own, registration
from experiments.compare.rows import Result, Setting, compare_with_best, row_of
from experiments.compare.scenes import (
    NUM_CLASSES,
    NUM_CLUSTERS,
    WORLDS,
    Clients,
    Sizes,
)
from experiments.compare.trial import DIMS, AnyTrial, accuracy, algorithm_of, observer
from experiments.images import checksum, find_images
from experiments.jobs import Job, run
from experiments.options import Options
from experiments.study import fields, run_with_tests, trial_of

EXPERIMENTS = {
    "compare.all": {
        "title": "every algorithm in eight worlds, under one budget of tuning",
        "has_jobs": True,
    }
}

REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.

# What an algorithm is tuned by besides its step size: as often as half of the others.
SEARCH = {
    "fedprox": "proximal=.1,1.0",
    "rr_cluster": "min_cluster_size=1,2",
    "cfl_s": "largest_norm=.4,1.6",
    "fedsoft": "penalty=.03,.3",
    "pacfl": "num_vectors=2,4",
    "stocfl": "similarity=.5,.9",
    "icfl": "limit=.6,1.0",
    "feddrift": "threshold=.1,.5",
    "emd_cfl": "tolerance=.03,.1",
    "flux": "radius_scale=.8,1.0",
    "federated_clustering": "radius=10%,20%",
    "momentum_clustering": "radius=10%,20%",
    "ditto": "penalty=.1,1.0",
    "knn_per": "knn_weight=.3,.7",
    "per_fedavg": "adaptation_step_size=.03,.1",
    "apfl": "mixing_share=.25,.75",
    "pfedme": "personal_step_size=.03,.1",
    "fedproto": "penalty=.1,1.0",
    "fedpac": "penalty=.1,1.0",
}
# Which put each client into a cluster once, at the start.
ONE_SHOT = ("one_shot", "k_fed", "pacfl", "emd_cfl", "flux")


@configuration
class Config:
    """Everything that the results depend on. One field, one flag."""

    algorithms: tuple[str, ...] = ("all",)
    """Names, joined by commas or spaces, as of `compare`; or all, of which those that
    do not apply anywhere say so."""
    dataset: ImageSet = "digits"  # What all worlds but the last are made of.
    step_sizes: tuple[float, ...] = (2.0, 1.0, 0.6, 0.3, 0.2, 0.1, 0.06, 0.03)
    """Tried of each algorithm; every second one of an algorithm that is tuned by
    another argument, too, with two values of that."""
    num_clients: int = 16  # That train, a multiple of eight; four newcomers besides.
    num_samples: int = 30  # Training samples of a client.
    num_validation_samples: int = 15  # By which settings are chosen.
    num_test_samples: int = 20  # Test samples of a client.
    num_hidden: int = 32  # Width of the hidden layer.
    num_rounds: int = 40  # T, communication rounds; even.
    num_epochs: int = 2  # Local epochs of a round.
    batch_size: int = 10  # Of a local step.
    optimizer: Optimizer = "sgd"  # Of local training; momentum is sgd with 0.9.
    num_trials: int = 5  # Seeds; all algorithms share them.
    error_rate: float = 0.05  # Of each interval, and of a world's differences together.
    clients_per_chunk: int = 20  # Clients evaluated at a time; bounds memory.
    seed: int = 0  # Of all of them.

    def __post_init__(self) -> None:
        if self.num_clients % 8:
            raise ValueError(
                f"`num_clients` must be a multiple of 8, got {self.num_clients}."
            )
        if self.num_rounds % 2:
            raise ValueError(f"`num_rounds` must be even, got {self.num_rounds}.")
        if len(self.step_sizes) % 2 or min(self.step_sizes) <= 0:
            raise ValueError(
                "`step_sizes` must be an even number of positive ones, got "
                f"{self.step_sizes}."
            )
        check_several(num_trials=self.num_trials)
        _ = self.contestants

    @property
    def rounds_between(self) -> int:
        """Tested behind the last round alone."""
        return self.num_rounds

    @property
    def newcomers(self) -> int:
        """Of each cluster."""
        return 1

    @property
    def sizes(self) -> Sizes:
        """Of all worlds."""
        return Sizes(**fields(self, *Sizes._fields))

    @property
    def contestants(self) -> list[Contestant]:
        """All algorithms with their settings, as many each."""
        return [
            Contestant(arm, tuple(_settings(arm)))
            for arm in parse_all(self.algorithms, every=REGISTRY)
        ]

    def step_sizes_of(self, contestant: Contestant) -> tuple[float, ...]:
        """Those that are tried of each of its settings."""
        return self.step_sizes[:: len(contestant.settings)]


def _settings(arm: Arm) -> Iterator[Arm]:
    """The arm with each value of what it is tuned by, if it has none of its own."""
    name, is_tuned, values = SEARCH.get(arm.algorithm, "").partition("=")
    if not is_tuned or name in dict(arm.changes):
        yield arm
        return
    for value in values.split(","):
        yield arm.with_changes(parse(f"{arm.algorithm}:{name}={value}").changes)


def preset(name: Literal["quick", "paper"]) -> Config:
    """Small, on the embedded digits; or of MNIST's images and more clients."""
    if name == "quick":
        return Config()
    return Config(
        dataset="mnist",
        num_clients=40,
        num_samples=120,
        num_validation_samples=40,
        num_test_samples=80,
        num_hidden=64,
        batch_size=30,
    )


@dataclasses.dataclass(frozen=True)
class Trial(AnyTrial):
    """Everything that one trial's law depends on, besides the samples.

    checksum: of the clients' data in all worlds.
    num_clients, num_samples, num_validation_samples, num_test_samples: of `Sizes`.
    """

    world: int  # index into `WORLDS`, traced as the seed is: all share a program
    num_clients: int
    num_samples: int
    num_validation_samples: int
    num_test_samples: int
    num_trials: int  # seeds of a world, by which its data are found


def simulate(trial: Trial, key: PRNGKeyArray, clients: Clients) -> dict[str, Array]:
    """One run from one random start, tested behind its last round: arrays of `DIMS`.
    The arms of a world and a repetition share its data and the run's key."""
    repetition, world = jnp.asarray(trial.repetition), jnp.asarray(trial.world)
    run_key = jax.random.fold_in(key, repetition.astype(jnp.uint32))
    cell = (world * trial.num_trials + repetition).astype(jnp.int32)
    own = jax.tree.map(lambda leaf: leaf[cell], clients)
    task = task_of(trial, own.inputs.shape[2:])
    algorithm = algorithm_of(trial, task, own.clusters)
    both = lambda leaf: jnp.stack([leaf, leaf])
    halves = ClientData(both(own.inputs), own.targets, both(own.mask))
    behind = ClientData(own.inputs, own.targets[1], own.mask)
    number = own.validation.mask.shape[1]
    questions = jnp.concatenate([own.validation.inputs, own.test.inputs], axis=1)

    def test(state: Any) -> dict[str, Array]:
        outputs = algorithm.predict(state, behind, questions)
        return {
            "validation": accuracy(outputs[:, :number], own.validation),
            "test": accuracy(outputs[:, number:], own.test),
        }

    state, seen, scores = run_with_tests(
        trial,
        algorithm,
        run_key,
        halves,
        observe=Partial(observer(trial), own.clusters),
        test=test,
        data_per_round=2 * jnp.arange(trial.num_rounds) // trial.num_rounds,
    )
    # Without true clusters there is nothing to agree with.
    is_known = own.clusters[0] >= 0
    seen["rand_index"] = jnp.where(is_known, seen["rand_index"], jnp.nan)
    new_key = jax.random.fold_in(run_key, 2)  # The run has drawn from 0 and 1.
    state = algorithm.join(new_key, state, own.new_train)
    outputs = algorithm.predict(state, own.new_train, own.new_test.inputs)
    return scores | seen | {"newcomers": accuracy(outputs, own.new_test)}


def task_of(trial: Trial, shape: tuple[int, ...]) -> Task:
    """One hidden layer, the same for all."""
    return mlp(shape, hidden=(trial.num_hidden,), num_classes=trial.num_classes)


class Prepared(NamedTuple):
    """What all algorithms run on."""

    trial: Trial  # of the first setting, world and seed
    clients: Clients  # of all worlds and seeds
    worlds: list[str]  # that can be made
    note: str  # on the data, for people; ends with an empty line
    source: str  # where they are from


def prepare(config: Config, options: Options) -> Prepared:
    """The data of all worlds.

    Raises:
      ValueError: if the samples do not suffice, or are damaged.
      FileNotFoundError: if there are none.
    """
    found = find_images(config.dataset, options, fall_back=False)
    images = Images(*found.arrays, source=found.source)
    note, writers = found.note, None
    try:
        writers = load_writers(folder=options.data)
        source = f"{found.source}; {writers.source}"
    except FileNotFoundError:
        source = found.source
        note += "FEMNIST was not found: the world of writers is left out.\n\n"
    pool = scenes.pool_of(images, writers)
    clients = scenes.draw_clients(
        pool, config.sizes, seed=config.seed, repetitions=config.num_trials
    )
    trial = trial_of(
        Trial,
        config,
        arm=config.contestants[0].settings[0].without("step_size").text,
        world=0,
        checksum=checksum(jax.tree.leaves(clients)),
        num_clusters=NUM_CLUSTERS,
        num_newcomers=1,
        num_classes=NUM_CLASSES,
        step_size=config.step_sizes[0],
        repetition=0,
    )
    return Prepared(trial, clients, scenes.worlds_of(pool), note, source)


def refusal(arm: Arm, world: str) -> str:
    """Why an algorithm cannot serve a world, whatever the network; empty if it can."""
    if registration(arm.algorithm).needs_truth and world in scenes.WITHOUT_CLUSTERS:
        return "it is told the true clusters, and there are none"
    if arm.algorithm in ONE_SHOT and world == "drift":
        return "it finds clusters once, before they change"
    return ""


def refusals(prepared: Prepared, arm: Arm) -> dict[str, str]:
    """Why an algorithm cannot serve each world; empty where it can."""
    trial = dataclasses.replace(prepared.trial, arm=arm.text)
    clusters = jnp.arange(trial.num_clients) % trial.num_clusters
    try:
        algorithm_of(trial, task_of(trial, prepared.clients.inputs.shape[3:]), clusters)
    except ValueError as error:
        return dict.fromkeys(prepared.worlds, str(error))
    return {world: refusal(arm, world) for world in prepared.worlds}


def grid_of(
    config: Config, prepared: Prepared, contestant: Contestant, arm: Arm
) -> engine.Grid | None:
    """Worlds that it can serve, step sizes and seeds of one setting; None of none."""
    able = [world for world, why in refusals(prepared, arm).items() if not why]
    if not able:
        return None
    given = dict(arm.changes).get("step_size")
    own = config.step_sizes_of(contestant)
    sizes = own if given is None else (float(given),)  # pyright: ignore
    text = arm.without("step_size").text
    return engine.Grid(
        experiment="compare.all",
        trial=dataclasses.replace(prepared.trial, arm=text, step_size=sizes[0]),
        axes={
            "world": tuple(map(list(WORLDS).index, able)),
            "step_size": sizes,
            **repetitions(config),
        },
        num_trials=1,
        traced=("world", "step_size", "repetition"),
        dims=DIMS,
        coords=rounds(config),
        seed=config.seed,
        revision=REVISION,
    )


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of all algorithms and their settings; raises as `main`."""
    prepared = prepare(config, options)
    return [
        job
        for contestant in config.contestants
        for arm in contestant.settings
        if (job := _job(config, prepared, contestant, arm)) is not None
    ]


def _job(
    config: Config, prepared: Prepared, contestant: Contestant, arm: Arm
) -> Job | None:
    grid = grid_of(config, prepared, contestant, arm)
    if grid is None:
        return None
    constants = lambda: prepared.clients
    return Job(grid, simulate, constants, name=arm.text, is_long=False)


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the store lacks, then write table and figure; a summary of it.

    Raises:
      ValueError: if the samples do not suffice, or are damaged.
      FileNotFoundError: if there are none.
      SweepError: if no algorithm finished.
    """
    started = time.perf_counter()
    prepared = prepare(config, options)
    results = [
        _results(config, options, prepared, contestant)
        for contestant in config.contestants
    ]
    table = [
        row
        for world in prepared.worlds
        for row in rows(world, [own[world] for own in results], config)
    ]
    if not any("accuracy" in row for row in table):
        raise engine.SweepError(f"no algorithm finished; see `{options.out}`.")
    text = prepared.note + markdown(table, prepared.worlds) + note(config)
    finished = finish(
        config,
        options,
        started,
        tables={"table": table},
        text=text,
        headline=text,
        figures={"accuracy": draw(table, prepared.worlds, config)},
        failures=sum(row.get("failed", 0) for row in table),
        source=prepared.source,
    )
    more = {
        "outcome.md": outcome(table, prepared.worlds),
        "results.json": _submission(config, prepared, results),
    }
    for name, content in more.items():
        report.write_text(options.out / name, content)
        finished["files"].append(str(options.out / name))
    return {"experiment": "compare.all", "source": prepared.source, **finished}


# What numbers do not depend on, or only those of one method.
_BESIDE_COMPARISON = ("algorithms", "clients_per_chunk")


def comparison_of(config: Config, prepared: Prepared) -> dict[str, Any]:
    """What makes numbers of methods comparable, as the leaderboard's form has it."""
    whole = dataclasses.asdict(config)
    own = {n: value for n, value in whole.items() if n not in _BESIDE_COMPARISON}
    own["step_sizes"] = list(config.step_sizes)
    found = {"checksum": prepared.trial.checksum, "worlds": prepared.worlds}
    return found | own


def config_of(comparison: Mapping[str, Any]) -> Config:
    """The configuration that a comparison is of, of all algorithms.

    Raises:
      ValueError: if there is none.
    """
    names = {field.name for field in dataclasses.fields(Config)}
    own: dict[str, Any] = {n: v for n, v in comparison.items() if n in names}
    own["step_sizes"] = tuple(comparison["step_sizes"])
    return Config(**own)


def _submission(
    config: Config,
    prepared: Prepared,
    results: Sequence[Mapping[str, Result | str]],
) -> str:
    """The results in the form of the leaderboard."""
    about = engine.describe_run()
    code = about["commit"] or {"id": __version__, "dirty": False}
    commit = code["id"] + "-dirty" * code["dirty"]
    ours = {
        "authors": ["The cfljax authors"],
        "contact": "The cfljax authors",
        "code": {"link": "cfljax", "commit": commit},
        "licence": "Apache-2.0",
    }
    methods = []
    for contestant, own in zip(config.contestants, results, strict=True):
        arm = contestant.arm
        tried = [len(r.settings) for r in own.values() if isinstance(r, Result)]
        # What an algorithm of the user's own is, its author adds.
        paper = {"citation": registration(arm.algorithm).paper}
        about_it = {} if is_own(arm.algorithm) else ours | paper
        methods.append(
            {
                "name": arm.name,
                **about_it,
                "machine": f"{about['cores']} cores, {about['device']}",
                "settings_tried": max(tried, default=0),
                "worlds": {w: _entry(own[w], config) for w in prepared.worlds},
            }
        )
    return submissions.text(comparison_of(config, prepared), methods)


def _entry(result: Result | str, config: Config) -> dict[str, Any]:
    """What the form has of an algorithm in a world; further measures that are not
    numbers are left out."""
    if isinstance(result, str):
        return {"does_not_apply": " ".join(result.split())[:1000]}
    chosen = result.chosen
    if chosen is None or not np.all(np.isfinite(_last(result))):
        return {"failed": "no setting has an accuracy for every seed"}
    row = row_of(result, config)
    found = {n: chosen.values(n)[:, -1] for n in ("validation", "test")}
    found["newcomers"] = chosen.values("newcomers")
    if "rand_index" in row:
        found["rand_index"] = np.clip(chosen.values("rand_index")[:, -1], -1, 1)
    found |= {n: np.asarray(row[n]) for n in _COSTS if n in row}
    known = {n: own.tolist() for n, own in found.items() if np.isfinite(own).all()}
    return {"chosen": result.chosen_text or "as asked for", **known}


def _results(
    config: Config, options: Options, prepared: Prepared, contestant: Contestant
) -> dict[str, Result | str]:
    """What the stores have of an algorithm in each world, once they have everything,
    or why it does not apply."""
    settings: dict[str, list[Setting]] = {world: [] for world in prepared.worlds}
    for arm in contestant.settings:
        job = _job(config, prepared, contestant, arm)
        if job is None:
            continue
        data, axes = None, job.grid.axes
        try:
            data = run(options, job)
        except engine.SweepError as error:
            print(f"{arm.text}: {error}", file=sys.stderr)
        seconds = engine.progress_of(options.store_folder, job.grid).seconds
        for place, world in enumerate(axes["world"]):
            for index, size in enumerate(axes["step_size"]):
                where = {"world": place, "step_size": index, "trial": 0}
                own = None if data is None else data.isel(where)
                failed = config.num_trials if own is None else int(own["failed"].sum())
                setting = Setting(arm, size, own, seconds[place, index], failed)
                settings[list(WORLDS)[world]].append(setting)
    why = refusals(prepared, contestant.settings[0])
    return {
        world: Result(contestant, tuple(own)) if own else why[world]
        for world, own in settings.items()
    }


def rows(
    world: str, results: Sequence[Result | str], config: Config
) -> list[dict[str, Any]]:
    """One row for each algorithm of a world, in per cent. `minus_best` is its
    difference to the best one of the same seeds, and the world's error rate is divided
    over all of them; `with_best` whether that may be zero.
    """
    table, values = [], []
    for contestant, result in zip(config.contestants, results, strict=True):
        row: dict[str, Any] = {"world": world, "algorithm": contestant.arm.text}
        if isinstance(result, str):
            row["does_not_apply"] = result
        else:
            row |= row_of(result, config)
        table.append(row)
        values.append(_last(result) if "accuracy" in row else None)
    compare_with_best(table, values, config.error_rate)
    return table


def _last(result: Result | str) -> Float[np.ndarray, " seeds"]:
    """Accuracy on test samples behind the last round, in per cent."""
    assert isinstance(result, Result) and result.chosen is not None
    return 100 * result.chosen.values("test")[:, -1]


# Of all clients in a round, with headings.
_COSTS = {
    "received_mib": "MiB down",
    "sent_mib": "MiB up",
    "seconds_per_round": "s / round",
}


def markdown(table: Sequence[Mapping[str, Any]], worlds: Sequence[str]) -> str:
    """Accuracies by algorithm and world, those of newcomers, and what rounds cost."""
    headings = {"algorithm": "algorithm"} | {w: w.replace("_", " ") for w in worlds}
    by_algorithm: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in table:
        by_algorithm.setdefault(row["algorithm"], {})[row["world"]] = row

    def shown(show: Callable[[Mapping[str, Any]], str]) -> str:
        lines = [
            {"algorithm": name, **{world: show(own[world]) for world in worlds}}
            for name, own in by_algorithm.items()
        ]
        return report.markdown(lines, headings)

    def accuracy_of(row: Mapping[str, Any]) -> str:
        if "does_not_apply" in row:
            return "does not apply"
        if "accuracy" not in row:
            return "failed"
        text = f"{row['accuracy']:.1f}"
        return f"**{text}**" if row["with_best"] else text

    def newcomers_of(row: Mapping[str, Any]) -> str:
        return f"{row['newcomers']:.1f}" if "newcomers" in row else "-"

    costs = []
    for name, own in by_algorithm.items():
        done = [row for row in own.values() if "accuracy" in row]
        told = {key: [row.get(key, np.nan) for row in done] for key in _COSTS}
        known = {key: own for key, own in told.items() if np.isfinite(own).any()}
        means = {key: float(np.nanmean(own)) for key, own in known.items()}
        if done:
            costs.append({"algorithm": name, **means})
    why: dict[str, dict[str, list[str]]] = {}
    for row in table:
        if "does_not_apply" in row:
            own = why.setdefault(row["does_not_apply"], {})
            own.setdefault(row["world"], []).append(row["algorithm"])
    return "\n".join(
        [
            "Accuracy of clients' own test samples, in per cent:\n",
            shown(accuracy_of),
            "Accuracy of newcomers, who never trained, in per cent:\n",
            shown(newcomers_of),
            "Of all clients in a round, means over worlds:\n",
            report.concise(costs, {"algorithm": "algorithm", **_COSTS}, digits=2),
            *(f"- {_refused(own, worlds)}: {reason}" for reason, own in why.items()),
            "",
        ]
    )


# What everybody knows, beside the best of a world.
LANDMARKS = ("fedavg", "local", "oracle")


def outcome(table: Sequence[Mapping[str, Any]], worlds: Sequence[str]) -> str:
    """A sentence for each world: who is best, and who is not told apart from it."""
    lines = []
    for world in worlds:
        own = [row for row in table if row["world"] == world and "accuracy" in row]
        if not own:
            continue
        best, *others = sorted(own, key=lambda row: -row["accuracy"])
        near = [row["algorithm"] for row in others if row["with_best"]]
        known = ", ".join(
            f"{row['algorithm']} {row['accuracy']:.1f}"
            for row in others
            if row["algorithm"] in LANDMARKS
        )
        far = len(others) - len(near)
        lines.append(
            f"- **{world.replace('_', ' ')}** ({WORLDS[world]}): {best['algorithm']} "
            f"answers {best['accuracy']:.1f} % rightly"
            f"{f' ({known})' if known else ''}; "
            f"{far} of {len(others)} others are told apart from it"
            + (f", all but {', '.join(near)}." if 0 < len(near) <= far else ".")
        )
    return "\n".join([*lines, ""])


def _refused(own: Mapping[str, Sequence[str]], worlds: Sequence[str]) -> str:
    """Who does not apply to which worlds, for one reason."""
    who = ", ".join(dict.fromkeys(name for names in own.values() for name in names))
    verb = "do" if "," in who else "does"
    where = ", ".join(own).replace("_", " ") if len(own) < len(worlds) else "any world"
    return f"{who} {verb} not apply to {where}"


def note(config: Config) -> str:
    """How to read the tables."""
    text = (
        f"After {config.num_rounds} rounds of {config.num_clients} clients; means over "
        f"{config.num_trials} seeds, which all algorithms share. Each algorithm has "
        f"{len(config.step_sizes)} settings and takes in each world that of best "
        "accuracy on validation samples, which are neither trained nor tested on. "
        "Bold: not told apart from the best of its world, by Student's interval of the "
        f"difference seed by seed, together of error rate {config.error_rate:g} in "
        "each world, which is exact for normal values. table.csv has all intervals and "
        "the settings chosen."
    )
    return "\n" + textwrap.fill(text, 88) + "\n"


def draw(
    table: Sequence[Mapping[str, Any]], worlds: Sequence[str], config: Config
) -> Figure:
    """A dot for each algorithm in each world, the best on average on top."""
    values = {
        (row["world"], row["algorithm"]): [
            row[f"accuracy{end}"] for end in ("", "_low", "_high")
        ]
        for row in table
        if "accuracy" in row
    }
    names = dict.fromkeys(row["algorithm"] for row in table)
    mean = lambda name: np.mean([own[0] for (_, n), own in values.items() if n == name])
    there = [name for name in names if any(n == name for _, n in values)]
    order = sorted(there, key=lambda name: -mean(name))
    missing = [np.nan] * 3
    panels = [
        report.DotPanel(
            order,
            {"accuracy": np.array([values.get((world, n), missing) for n in order])},
            "accuracy [%]",
            title=world.replace("_", " "),
        )
        for world in worlds
    ]
    return report.dot_plot(
        panels,
        title="All algorithms in eight worlds",
        caption=f"accuracy on own test samples after {config.num_rounds} rounds, means "
        f"over {config.num_trials} seeds with Student's intervals of "
        f"{100 * (1 - config.error_rate):g} %, algorithms in the order of their means "
        "over the worlds that they apply to",
    )
