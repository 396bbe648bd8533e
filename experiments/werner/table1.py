"""Werner et al., Table 1: clustered and personalised methods on two tasks of MNIST.

Command:   python -m experiments run werner.table1 --preset paper --data FOLDER
Quick:     the same with --preset quick: 80 clients instead of 300 in 4 groups instead
           of 16, 50 hidden units instead of 200, 48 rounds of step size 0.25, 3 seeds;
           the long runs have 960 rounds
Measured:  quick, 13 minutes on two busy cores of an Intel Xeon (16 of processor time),
           accuracy in %, rotation / private label, ± over seeds: Local 80.4 ± .4 / 80.4
           ± .2, Global 56.2 ± .2 / 20.9 ± .3, Ditto 60.2 ± .5 / 56.0 ± 1.0 (frozen
           server 47.7 / 47.7), IFCA 84.3 ± 4.3 / 87.0 ± .4, kNN-Per 52.0 ± .3 / 64.3 ±
           1.9, FC 85.4 ± .4 / 85.7 ± .3, Momentum-Clustering 82.2 ± .6 / 82.4 ± .7,
           oracle 86.9 ± .1 / 86.9 ± .3; oracle > FC > Local > Global in 3 of 3 seeds of
           both. Global passes Local on the rotations at step 640: 83.8 against 81.0
           after 960
Paper:     accuracy in %, rotation / private label: Local 71.3 / 75.2, Global 46.6 /
           22.2, Ditto 62.0 / 61.7, IFCA 54.6 / 65.4, KNN 52.1 / 63.2, FC 75.4 / 77.0,
           oracle 84.7 / 85.1, of one run each

The paper gives the numbers of clients (4 clusters of 75) and subgroups (16), the
quantile .2, and the two lambdas; neither network, step size, batches nor rounds. Here
everybody takes one full-batch gradient step of one size in a round, so that methods
differ in whose gradients they use and in nothing else. `--loss probability` trains what
the released code trains.

The long runs tell when one model for all rotations, which learns slowly, passes models
trained alone, which soon know all they can: Ghosh et al. (2020, Table 1) have 89.7 %
for the global and 80.1 % for local models of 200 samples.
"""

import time
from typing import Any

from cfljax import engine
from cfljax.data import Images, Sizes
from experiments.ifca.rotated_sweep import Loaded, load
from experiments.options import Options
from experiments.werner.table1_config import NUM_CLUSTERS, Config, preset
from experiments.werner.table1_figures import draw_curves
from experiments.werner.table1_methods import Hyperparameters
from experiments.werner.table1_report import (
    COLUMNS,
    LONG_COLUMNS,
    long_rows,
    note,
    rows,
)
from experiments.werner.table1_trial import DIMS, Partition, Trial, draw, simulate
from experiments.werner.write import finish, run

__all__ = ["REVISION", "Config", "main", "preset"]

EXPERIMENT = "werner.table1"
REVISION = 1  # To be raised whenever a trial of the same fields changes its meaning.


def main(config: Config, options: Options) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure.

    Args:
      config: of the experiment.
      options: how to run; `data` is the folder of the images.

    Returns:
      A summary for the command line.

    Raises:
      ValueError: if the images do not suffice, or are damaged.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    started = time.perf_counter()
    images = load(config.dataset, options, fall_back=config.fall_back)
    results = {
        partition: _run(config, options, images, partition)
        for partition in config.partitions
    }
    longer = {}
    if config.num_long_rounds and "rotation" in config.partitions:
        longer = {"rotation": _run(config, options, images, "rotation", is_long=True)}
    table = rows(results, config.error_rate, is_mnist=images.name == "mnist")
    crossing = long_rows(longer, config.error_rate)
    others = {"long": (crossing, LONG_COLUMNS)} if crossing else None
    return finish(
        EXPERIMENT,
        config,
        options,
        rows=table,
        columns=COLUMNS,
        note=images.note + note(results, table, crossing),
        figures=draw_curves(results, longer, config.error_rate),
        results=[*results.values(), *longer.values()],
        started=started,
        others=others,
    )


def _sizes(config: Config, images: Loaded) -> Sizes:
    number = config.num_clients
    fit = lambda wanted, split: images.fitting(wanted, number, 1, split=split)
    return Sizes(
        num_clients=number,
        num_samples=fit(config.num_samples, "training"),
        num_test_clients=number,
        num_test_samples=fit(config.num_test_samples, "test"),
    )


def _grid(
    config: Config, images: Loaded, partition: Partition, *, is_long: bool = False
) -> engine.Grid:
    """Methods and repetitions of one task."""
    sizes = _sizes(config, images)
    number = config.num_long_rounds if is_long else config.num_rounds
    between = number // config.num_tests
    own = {
        name: getattr(config, name)
        for name in Hyperparameters._fields
        if hasattr(config, name)
    }
    methods = config.long_methods if is_long else config.methods
    trial = Trial(
        method=methods[0],
        partition=partition,
        dataset=images.name,
        checksum=images.checksum,
        loss=config.loss,
        num_clients=sizes.num_clients,
        num_samples=sizes.num_samples,
        num_test_samples=sizes.num_test_samples or sizes.num_samples,
        num_hidden=config.num_hidden,
        num_rounds=number,
        rounds_between=between,
        num_clusters=NUM_CLUSTERS,
        knn_weight=config.knn_weights[config.partitions.index(partition)],
        repetition=0.0,
        **own,
    )
    return engine.Grid(
        experiment=EXPERIMENT,
        trial=trial,
        axes={
            "method": methods,
            "repetition": tuple(float(i) for i in range(config.num_trials)),
        },
        num_trials=1,
        dims=DIMS,
        coords={"tested": list(range(between, number + 1, between))},
        seed=config.seed,
        revision=REVISION,
    )


def _run(
    config: Config,
    options: Options,
    images: Loaded,
    partition: Partition,
    *,
    is_long: bool = False,
) -> Any:
    """What the store has of one task, once it has everything."""
    grid = _grid(config, images, partition, is_long=is_long)
    clients = draw(
        partition,
        Images(*images.arrays, source=images.source),
        seed=grid.seed,
        repetitions=config.num_trials,
        sizes=_sizes(config, images),
    )
    name = f"{'long-' if is_long else ''}{partition}"
    return run(grid, simulate, name, options, clients)
