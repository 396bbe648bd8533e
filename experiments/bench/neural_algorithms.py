"""Rounds of the algorithms beside FedAvg's: what they cost, and what they should.

Command:   python -m experiments bench neural --algorithms all
           python -m experiments bench neural --algorithms ifca,clove
Target:    at most twice the time that the passes of a round predict
Measured:  40 clients; 200 images a client, two cores of an AMD EPYC without other work:
           Momentum-Clustering 1.8 times the prediction, Myopic-Clustering 1.5,
           Federated-Clustering and FeSEM 1.2, all others at most 1.1; 50 images, one
           core of an Intel Xeon that others used as well, by processor time: 3.4, 2.8,
           1.7 to 1.9 and 1.6, CFL-S 1.3

The time beyond the passes goes with the weights, not with the images. Algorithms of one
step a round read every client's model from memory for it, write a gradient as long, and
clip, cluster and apply the gradients: with 50 images the gradients alone take 1.7 to 2
times what is predicted from FedAvg's steps, whose model stays in cache; with 200, 1.2
times.

Every algorithm is made from its row of the registry, with averaged models where it
offers two ways, and as many steps for each of its trainings. Its third round is timed,
in turn with FedAvg's, on one device with all of its threads. The prediction is that of
its card: forward passes count 1, backward passes 2, and nothing else counts. A round of
many small steps may be faster than predicted, because evaluations of one model by all
clients are one product of matrices, and steps are not.
"""

import difflib
import inspect
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cfljax.algorithms import REGISTRY
from cfljax.base import Algorithm
from cfljax.cards import CARDS, Passes, Sizes
from cfljax.models import normalised
from cfljax.report import BarPanel, bars
from experiments.bench.neural_jobs import Program, client_data, compiled
from experiments.bench.timing import headline, is_busy, timed
from experiments.bench.work import NUM_CLASSES, Work
from experiments.options import Options
from experiments.study import column, groups, write

LIMIT = 2.0  # Of measured by predicted time.
UNIT = "fedavg"

MEASURED, PREDICTED = "time / FedAvg's", "predicted"
PROCESSOR = "processor time / FedAvg's"
EXCESS, PROCESSOR_EXCESS = "time / predicted", "processor time / predicted"

Rows = list[dict[str, Any]]


def names(text: str) -> tuple[str, ...]:
    """Algorithms of a flag: all, or those between its commas; none if it is empty.

    Raises:
      ValueError: naming the nearest ones, where there is none of that name.
    """
    if text == "all":
        return tuple(REGISTRY)
    found = tuple(name.strip() for name in text.split(",")) if text else ()
    for name in found:
        if name not in REGISTRY:
            near = difflib.get_close_matches(name, REGISTRY, n=3, cutoff=0.4)
            raise ValueError(
                "`algorithms` must be 'all' or names of algorithms with commas "
                f"between, got {name!r}; nearest: {', '.join(near or REGISTRY)}."
            )
    return found


def build(name: str, work: Work) -> Algorithm:
    """The algorithm for a round of this work, as its row of the registry tells."""
    row = REGISTRY[name]
    accepted = inspect.signature(row.constructor).parameters
    arguments = dict(row.defaults) | {"step_size": work.step_size}
    if row.clustered:
        arguments["num_clusters"] = work.num_clusters
    if row.needs_truth:
        arguments["clusters"] = jnp.asarray(work.clusters())
    if row.needs_classes:
        arguments["num_classes"] = NUM_CLASSES
    if "option" in accepted:
        arguments["option"] = "model"
    for steps in ("num_steps", "num_personal_steps"):
        if steps in accepted:
            arguments[steps] = work.num_steps
    task = work.task()
    if row.needs_normalisation:
        task = normalised(task, (work.image, work.image))
    return row.constructor(task, **arguments)


def passes(name: str, work: Work) -> Passes:
    """Of each client in a round of this work, as the algorithm's card tells."""
    sizes = Sizes(
        num_clients=work.num_clients,
        num_clusters=work.num_clusters,
        num_steps=work.num_steps,
        num_personal_steps=work.num_steps,
    )
    return CARDS[name].passes(sizes)


def third_round(name: str, work: Work) -> Program:
    """A round after the first two, in which some do what they do once."""
    algorithm, data = build(name, work), client_data(work)
    state = jax.jit(algorithm.init)(jax.random.key(0), data)
    program = compiled(algorithm.step, jax.random.key(1), state, data)
    for index in (2, 3):
        state, _ = program()
        program = program._replace(arguments=(jax.random.key(index), state, data))
    return program


def rows(
    chosen: tuple[str, ...],
    work: Work,
    *,
    repeats: int,
    seconds: int | float,
    progress: bool = False,
) -> Rows:
    """One row for each algorithm, timed in turn with FedAvg as `timing.timed` does."""
    unit = third_round(UNIT, work)
    expected = passes(UNIT, work).units
    table = []
    for name in chosen:
        if progress:
            print(f"{work.name}, {name}", file=sys.stderr)
        program = third_round(name, work)
        found = timed({"unit": unit, name: program}, repeats=repeats, seconds=seconds)
        wall, processor = (
            # Of neighbours in time, then their median: drift cancels.
            float(np.median(own / other))
            for own, other in zip(found[name], found["unit"], strict=True)
        )
        counted = passes(name, work)
        predicted = counted.units / expected
        row = {"network": work.name, "algorithm": name}
        row |= {"ms": 1e3 * float(np.median(found[name].wall))}
        row |= {"forward": counted.forward, "backward": counted.backward}
        row |= {PREDICTED: predicted, MEASURED: wall, PROCESSOR: processor}
        row |= {EXCESS: wall / predicted, PROCESSOR_EXCESS: processor / predicted}
        row |= {"compilation, s": program.seconds, "repeats": len(found[name].wall)}
        table.append(row)
    return table


def targets(table: Rows, *, busy: bool) -> Rows:
    """Whether rounds cost what their passes cost; open where `busy` with other
    programs.
    """
    return [
        {
            "what": f"{row['network']}, {row['algorithm']}: {EXCESS}",
            "target": f"at most {LIMIT:g}",
            "measured": row[EXCESS],
            "reached": "open" if busy else "yes" if row[EXCESS] <= LIMIT else "no",
        }
        for row in table
    ]


def figure(table: Rows) -> Any:
    """Measured against predicted times, one panel for each network."""
    panels = []
    for network, mine in groups(table, "network").items():
        values = {
            "measured": column(mine, MEASURED),
            "measured, processor": column(mine, PROCESSOR),
            "predicted by its passes": column(mine, PREDICTED),
        }
        names = [row["algorithm"] for row in mine]
        panels.append(
            BarPanel(names, values, "time of a round / FedAvg's", title=network)
        )
    return bars(panels)


def main(
    chosen: tuple[str, ...],
    works: list[Work],
    options: Options,
    *,
    repeats: int,
    seconds: int | float,
) -> dict[str, Any]:
    """Time the rounds of `chosen` algorithms, one of `works` for each network: a table,
    a figure, and which keep to their passes. Pairs of rounds have a limit of seconds.
    """
    busy = is_busy()
    options.out.mkdir(parents=True, exist_ok=True)  # Or hear of it after the timing.
    how: Any = {"repeats": repeats, "seconds": seconds, "progress": options.progress}
    table = [row for work in works for row in rows(chosen, work, **how)]
    judged = targets(table, busy=busy)
    notes = ["Other programs used this machine: targets are not judged."] * busy
    first = works[0]
    settings = (
        f"{first.num_clients} clients, {first.num_samples} images of "
        f"{first.image} x {first.image} pixels, {first.num_steps} steps, "
        f"{first.num_clusters} clusters; a forward pass counts 1, a backward pass 2; "
        f"{jax.devices()[0].device_kind}"
    )
    contents = {
        "algorithms.csv": table,
        "algorithm_targets.csv": judged,
        "algorithms": figure(table),
    }
    return {
        "benchmark": "neural",
        "settings": settings,
        "headline": headline(
            settings,
            {"A round beside FedAvg's, medians": table, "Targets": judged},
            notes,
        ),
        "files": write(options.out, contents),
        "rows": table,
        "tables": {"algorithms": table, "targets": judged},
        "notes": notes,
    }
