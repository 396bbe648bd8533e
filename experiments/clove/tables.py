"""CLoVE's Tables 1 to 5 and 8 to 17, Figures 2, 4, 6 and 7: one study, many views.

Command:   python -m experiments run clove.table1 --preset paper --data FOLDER
Quick:     the same with --preset quick: MNIST only (without data, the digits embedded
           in scikit-learn), 3 clients a cluster of 100 samples, 10 rounds, batches of
           10, step size 0.005, 2 seeds and a narrow network (4 and 8 channels, 32
           hidden units; of autoencoders, hidden widths 64 and 16)
Measured:  at each entry: the quick preset on MNIST, on two loaded cores of an Intel
           Xeon where nothing else is said. No paper preset has been run as a whole
Paper:     100 rounds of one local epoch of Adam at 0.001 in batches of 64, 3 seeds, 5
           clients a cluster (feature skew 10; CIFAR-10 3 and 5), 500 samples a client
           (concept shift 1000): `experiments/published.csv`, with no numbers of figures

The paper does not give numbers of clusters, see `partitions`; nor widths of networks,
numbers of test samples, hyperparameters of the other methods (here those of their
papers or released code; the thresholds of CFL-S, the inner step of Per-FedAvg and that
PACFL is told the number of clusters are a choice, see `methods`), or what becomes of
Adam's state: here a client begins each round with a fresh one. The released code trains
MNIST and Fashion-MNIST at 0.01 in batches of 100.

A new table is an entry of `TABLES` and its titles in `EXPERIMENTS`.
"""

import dataclasses
import functools
import time
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any, Literal, NamedTuple

from matplotlib.figure import Figure

from experiments.clove.methods import CLUSTERED, COMPARED, Method
from experiments.clove.rows import (
    PARTICIPATIONS,
    View,
    conclude,
    draw,
    draw_methods,
    markdown,
    rate_of,
    rows,
    runs,
)
from experiments.clove.study import (
    PAPER,
    QUICK,
    Config,
    compute,
    jobs_of,
    sources,
)
from experiments.jobs import Job
from experiments.options import Options
from experiments.titles import differences, title_each

EXPERIMENTS = {
    "clove.table1": {
        "title": "four partitions of images: CLoVE, IFCA, FedAvg, local",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table2": {
        "title": "clusters found, four partitions of images",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table3": {
        "title": "accuracy on texts: CLoVE, IFCA, FedAvg, local",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table4": {
        "title": "reconstruction of images: CLoVE, IFCA, FedAvg, local",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table5": {
        "title": "rounds until clusters are found: label skew 1, concept shift",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table8": {
        "title": "accuracy under label skews 3 and 4",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table9": {
        "title": "clusters found under label skews 3 and 4",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table10": {
        "title": "rounds until clusters are found: other partitions",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table11": {
        "title": "clusters found in texts",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table12": {
        "title": "rounds until clusters of texts are found",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table13": {
        "title": "early stopping of clustering",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table14": {
        "title": "partial participation",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table15": {
        "title": "50 to 1000 clients, supervised, K of 5 and of 10",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table16": {
        "title": "100 to 1000 clients, unsupervised",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.table17": {
        "title": "parts of CLoVE left out or replaced",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.fig2": {
        "title": "how models start and how the first round chooses: CLoVE, IFCA",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.fig4": {
        "title": "fewer participants than clusters",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.fig6": {
        "title": "averages of models or of gradients",
        "spreads_clients": True,
        "has_jobs": True,
    },
    "clove.fig7": {
        "title": "clusters found, by number of clients",
        "spreads_clients": True,
        "has_jobs": True,
    },
}

_NOTHING: Mapping[str, Any] = MappingProxyType({})
_AUTOENCODERS: Mapping[str, Mapping[str, Any]] = {
    "quick": {"reconstruct": True, "num_hidden": 64, "num_latent": 16},
    "paper": {"reconstruct": True, "num_hidden": 128},
}


_FEW_SAMPLES: Mapping[str, Any] = {"num_samples": (50,), "num_test_samples": (20,)}
_STARTS: Mapping[Method, str] = {
    "clove": "init:d first:e",
    "clove_random_first": "init:d first:r",
    "clove_identical": "init:s first:e",
    "clove_identical_random_first": "init:s first:r",
    "ifca": "init:d first:e",
    "ifca_random_first": "init:d first:r",
    "ifca_identical": "init:s first:e",
    "ifca_identical_random_first": "init:s first:r",
}


class Table(NamedTuple):
    """Some runs, and what is shown of them.

    ids: of the experiments that are these runs, one for each of the paper's tables.
    view: what they show; also says what is shared out and whether it is reconstructed.
    both: what both presets have other than `QUICK` and `PAPER`.
    quick, paper: what one of them has besides.
    """

    ids: tuple[str, ...]
    view: View
    both: Mapping[str, Any] = _NOTHING
    quick: Mapping[str, Any] = _NOTHING
    paper: Mapping[str, Any] = _NOTHING

    def preset(self, name: Literal["quick", "paper"]) -> Config:
        """The configuration of a preset."""
        shared, own = (QUICK, self.quick) if name == "quick" else (PAPER, self.paper)
        kind = _AUTOENCODERS[name] if self.view.reconstructs else {}
        changes = {"partitions": self.view.partitions, **kind, **self.both, **own}
        return dataclasses.replace(shared, **changes)

    def titles(self, config: Config) -> dict[str, str]:
        """By figure."""
        place, _, what = self.view.title.partition(": ")
        own = {"rand_index": what, "methods": f"all methods: {what}"}
        return title_each(place, own, config, self.preset("paper"))

    def redraw(self, config: Config, tables: Mapping[str, Any]) -> dict[str, Figure]:
        """What needs no more than the table; the paper's numbers at its settings."""
        is_paper = not differences(config, self.preset("paper"))
        name = self.titles(config)["methods"]
        return draw_methods(tables["table"], name, with_paper=is_paper)


def load(name: str) -> SimpleNamespace:
    """What a module of one experiment has, `preset` and `main`, and the view."""
    table = next(table for table in TABLES if name in table.ids)
    main = functools.partial(run, name, table)
    own = {"preset": table.preset, "view": table.view, "titles": table.titles}
    own["redraw"] = table.redraw
    return SimpleNamespace(main=main, jobs=jobs, **own)


def jobs(config: Config, options: Options) -> list[Job]:
    """The sweeps of a table; raises as `run`."""
    return jobs_of(config, sources(config, options))


def run(
    experiment: str, shown: Table, config: Config, options: Options
) -> dict[str, Any]:
    """Compute what the stores lack, then write tables and figure; a summary of it.

    Raises:
      ValueError: if the samples do not suffice for a partition, or are damaged.
      FileNotFoundError: if there are none and `config.fall_back` is false.
    """
    started, view = time.perf_counter(), shown.view
    loaded = sources(config, options)
    results = [compute(options, job) for job in jobs_of(config, loaded)]
    table = [row for result in results for row in rows(result, view)]
    every = [row for result in results for row in runs(result, view)]
    tables = {"table": table, "runs": every}
    figures = draw(results, view, shown.titles(config)["rand_index"])
    figures |= shown.redraw(config, tables)
    own = config, options, started, loaded, results
    return conclude(experiment, *own, tables, markdown(table, view), figures)


TABLES: tuple[Table, ...] = (
    # Tables 1 and 2: accuracy and clusters found under four partitions of images, all
    # twelve methods; `--methods` takes the variants that have the defects of public
    # code as well, such as fesem_reference, and the last column then names a defect
    # where it explains a difference.
    # Measured: all twelve methods, 10.4 minutes on two cores (16.8 minutes of processor
    # time). CLoVE has all clusters of both label skews from the first round on and of
    # concept shift in the end (0.9 first in round 7); of feature skew in one of two
    # seeds (0.77 +- 0.23). IFCA's index is 0.86, 0.72, 0.82 and 0.82, FlexCFL's 1, 1,
    # 0.88 and 1, CFL-S's 0.96, 0.36, 0.82 and 0.71, FeSEM's 1, 1, 0.31 and 0.61,
    # PACFL's, which is told the number of clusters here, 1, 1, 0.06 and 1: angles do
    # not see exchanged labels. The published FeSEM has 0.18, 0.18, 0 and 0, for which
    # see `methods`. On label skew 1 the twelve reach, in the order of
    # `methods.COMPARED`, 97.8, 95.3, 43.9, 96.8, 79.7, 92.8, 96.1, 80.1, 97.4, 97.2,
    # 98.1 and 97.2 %. At the paper's sizes and full width, one seed, 10 rounds, CLoVE
    # and IFCA: label skew 1, MNIST 1 from round 1 on (99.5 %) and 0.75 (92.8 %),
    # Fashion-MNIST 1 (99.0 %) and 1 (99.0 %); concept shift, MNIST 1 from round 2 on
    # (97.3 %) and 0.68 (79.4 %), 7.5 minutes idle for both, Fashion-MNIST 1 from round
    # 2 on (83.6 %) and 0.68 (67.5 %); feature skew, MNIST 1 from round 2 on (95.5 %)
    # and 0.70 (91.8 %), Fashion-MNIST 1 from round 3 on (79.9 %) and 0.48 (75.1 %).
    # Paper: CLoVE finds the clusters in all 12 cells, IFCA's adjusted Rand index is
    # between 0.55 and 0.92. Tables 5 and 10 have the same runs' first rounds.
    Table(
        ("clove.table1", "clove.table2"),
        View(
            "CLoVE, Tables 1 and 2: clusters found",
            items=("Table 1", "Table 2", "Table 5", "Table 10"),
            partitions=(
                "label_skew_1",
                "label_skew_2",
                "concept_shift",
                "feature_skew",
            ),
        ),
        both={"methods": COMPARED},
    ),
    # Tables 3, 11 and 12: accuracy on AG News and Amazon Reviews, clusters found in
    # them, and how fast.
    # Measured: 3.8 minutes for four methods. AG News: CLoVE has all clusters from the
    # first round on, whether 4 or 6; IFCA has all 4 from round 2 on, but of 6 its index
    # is 0.64 in both seeds, which is the published value: 6 it may have been. CLoVE
    # 79.4, IFCA 76.2, local models 74.9, FedAvg 39.7 % with 6. Amazon Reviews: nobody
    # finds the categories within 10 rounds (CLoVE 0.42, IFCA 0.00); 83.5, 82.8, FedAvg
    # 83.3 and local models 75.5 %: nothing like FedAvg's 99.0 %.
    # Paper: CLoVE 86.8 and 55.1 %, below FedAvg's 99.0 % on Amazon Reviews. 30 clients
    # of 100 texts of two of four classes (AG News), 20 clients of 1000 reviews of one
    # of four categories (Amazon Reviews). The index of CLoVE is 0.73 on Amazon Reviews
    # and 0.94 on AG News, IFCA's 0.29 and 0.64; CLoVE's first reaches 0.9 in round 2 on
    # AG News, on Amazon Reviews never.
    # Differs: of Amazon Reviews 2000 are there for each category, so that 20 clients
    # cannot hold 1000 each: they hold 312 here, and a fifth is for the test. The number
    # of clusters of AG News is not given: both 4 (a ring of pairs of classes) and 6
    # (all pairs) are run; 30 clients split evenly into 6 only, 4 clusters have 28.
    # Vocabulary, lengths and widths are not given either.
    Table(
        ("clove.table3", "clove.table11", "clove.table12"),
        View(
            "CLoVE, Tables 3, 11 and 12: clusters found in texts",
            items=("Table 3", "Table 11", "Table 12"),
            setting=lambda trial: "",
            panel=lambda trial: f"K = {trial.num_clusters}",
            partitions=("pairs_of_classes", "groups"),
            note="The paper has 30 clients of AG News, whatever K is, and 1000 reviews "
            "for each of 20 clients of Amazon, out of 7,671; of the set used here, by "
            "Blitzer et al., each has 312.",
        ),
        both={
            "methods": COMPARED,
            "datasets": ("ag_news", "amazon_reviews"),
            "num_clusters": (4, 6),
            "cluster_sizes": None,
            "num_samples": None,
            "num_test_samples": (75,),
        },
        quick={
            "num_channels": 16,
            "num_hidden": 16,
            "num_words": 2000,
            "num_tokens": 32,
        },
        paper={"num_channels": 64, "num_hidden": 64},
    ),
    # Table 4: reconstruction of images without labels.
    # Measured: 77 s: CLoVE 0.035, local models 0.037, IFCA 0.051 and FedAvg 0.060;
    # CLoVE has all clusters by round 3, IFCA's index is 0.23 +- 0.10.
    # Paper: 50 clients of 1000 samples; CLoVE 0.014, 0.021 and 0.016 against IFCA's
    # 0.024, 0.019 and 0.020. Local models' 0.170 on FMNIST may be a slip for 0.017.
    # Differs: the paper does not say how images are shared out: here each cluster has
    # one class. The convolutional autoencoder of CIFAR-10 ends in a tanh, images are in
    # [0, 1].
    Table(
        ("clove.table4",),
        View(
            "CLoVE, Table 4: clusters found without labels",
            items=("Table 4",),
            setting=lambda trial: "unsupervised",
            partitions=("one_class",),
            reconstructs=True,
        ),
    ),
    # Table 5: how fast clusters are found, label skew 1 and concept shift.
    # Measured: its runs are those of Table 1. CLoVE's 2.0 +- 0.0 everywhere fits a
    # random first round (see Figure 2): when the first round already evaluates, label
    # skew 1 is found in it.
    # Paper: CLoVE's index first reaches 0.9 in round 2 (concept shift of CIFAR-10 2.3),
    # IFCA's never.
    Table(
        ("clove.table5",),
        View(
            "CLoVE, Table 5: clusters found, round by round",
            items=("Table 1", "Table 2", "Table 5"),
            partitions=("label_skew_1", "concept_shift"),
        ),
        both={"methods": CLUSTERED},
    ),
    # Tables 8 and 9: accuracy and clusters found under label skews 3 and 4.
    # Measured: 4.4 minutes for four methods: CLoVE 85.5 and 78.7 %, IFCA 84.9 and 79.0,
    # FedAvg 81.7 and 65.0, local models 79.6 and 76.9. CLoVE has all clusters from the
    # first round on, also of label skew 4; IFCA's index is 0.86 and 0.70.
    # Paper: 5 clients a cluster of 500 samples; label skew 3 has 5 clusters, label skew
    # 4 ten (CIFAR-10 six). FedAvg's 84.1 % on label skew 3 of CIFAR-10 is 20 points
    # above all its other values there. CLoVE's index is 1 but for label skew 4 of MNIST
    # (0.60) and Fashion-MNIST (0.95). Label skew 4 of MNIST is at odds with itself: 0.9
    # first reached in round 2, 0.90 after 10 rounds, 0.60 at the end.
    Table(
        ("clove.table8", "clove.table9"),
        View(
            "CLoVE, Tables 8 to 10: clusters found under label skews 3 and 4",
            items=("Table 8", "Table 9", "Table 10"),
            partitions=("label_skew_3", "label_skew_4"),
        ),
        both={"methods": COMPARED},
    ),
    # Table 10: how fast clusters are found, the other partitions. Its runs are those of
    # Tables 1 and 8.
    # Paper: CLoVE's index first reaches 0.9 in round 2 (feature skew of CIFAR-10 4.3).
    Table(
        ("clove.table10",),
        View(
            "CLoVE, Table 10: clusters found, round by round",
            items=("Table 1", "Table 2", "Table 8", "Table 9", "Table 10"),
            partitions=("label_skew_2", "label_skew_3", "label_skew_4", "feature_skew"),
        ),
        both={"methods": CLUSTERED},
    ),
    # Table 13: clustering that stops after three stable rounds.
    # Measured: 4.6 minutes. Label skews: stable after 3 rounds, all clusters found, 2.5
    # MiB a round instead of 4.7. Concept shift: all clusters found, one seed stable
    # after 7 rounds, none of the accuracy lost. Feature skew: stable after 5 and 9
    # rounds, with two of four clusters merged (an index of 0.54, without stopping 0.54
    # and 1): three rounds without a change are no sign of the right clusters.
    # Paper: CIFAR-10; stable after 4 rounds (feature skew 6.3), with an index of 1 and
    # the accuracies of Table 1.
    Table(
        ("clove.table13",),
        View(
            "CLoVE, Table 13: clusters found with early stopping",
            items=("Table 13",),
            published={"clove_early_stopping": "CLoVE", "clove": "without"},
            partitions=(
                "label_skew_1",
                "label_skew_2",
                "feature_skew",
                "concept_shift",
            ),
        ),
        both={"methods": ("clove_early_stopping", "clove")},
        paper={"datasets": ("cifar10",)},
    ),
    # Table 14: partial participation.
    # Measured: 4.5 minutes: all clusters from the first round on with 31 participants
    # of 125 or more; with 12 an index of 0.88 after 10 rounds, 0.9 first in round 1 or
    # 2.
    # Paper: MNIST, 125 clients of 100 samples, 5 clusters; an index of 1 down to a
    # participation of 0.1, first in round 2 or 3.
    # Differs: the partition is not given: label skew 1 here. As in the paper the index
    # of a round is that of the clients who took part in it.
    Table(
        ("clove.table14",),
        View(
            "CLoVE, Table 14: clusters found under partial participation",
            items=("Table 14",),
            setting=lambda trial: f"participation {rate_of(trial)}",
            series=lambda trial: f"ρ = {rate_of(trial)}",
            partitions=("label_skew_1",),
            is_partial=True,
        ),
        both={
            "participations": PARTICIPATIONS,
            "methods": ("clove",),
            "cluster_sizes": (25,),
            "num_test_samples": (20,),
        },
        quick={"num_samples": (20,)},
        paper={"datasets": ("mnist",), "num_samples": (100,)},
    ),
    # Table 15: 50 to 1000 clients, supervised.
    # Measured: 4.6 minutes: CLoVE's index is 1 from the first round on, with 5 clusters
    # and with 10; IFCA's is 0.74 and 0.77 with 5, 0.64 and 0.70 with 10.
    # Paper: 100 to 200 samples a client; CLoVE's index is 1 everywhere, IFCA's from
    # 0.65 to 0.93.
    # Differs: the text says 10 clusters, but the published values fit 5: both are run,
    # 5 of two classes each and 10 of one. A thousand clients of 100 samples would need
    # 100,000 of the 60,000 images of MNIST, or the 50,000 of CIFAR-10: they hold 50
    # here.
    Table(
        ("clove.table15",),
        View(
            "CLoVE, Table 15: clusters found among many clients",
            items=("Table 15",),
            setting=lambda trial: f"clients {trial.num_clients}",
            series=lambda trial: f"M = {trial.num_clients}",
            splits_algorithms=True,
            partitions=("label_skew_1", "one_class"),
            note="The paper's one row for each number of clients stands beside K = 5 "
            "and beside K = 10. Its clients have 100 to 200 samples; of 1000 clients "
            "each has 50 here, for want of images.",
        ),
        both={"methods": ("clove", "ifca"), "cluster_sizes": None},
        quick={**_FEW_SAMPLES, "num_clients": (20, 50)},
        paper={
            "num_clients": (50, 100, 250, 500, 1000),
            "num_samples": (200, 200, 200, 100, 50),
            "num_test_samples": (100, 80, 35, 17, 8),
        },
    ),
    # Table 16: 100 to 1000 clients, unsupervised.
    # Measured: 55 s: CLoVE's index is 1 by round 3 and its loss 0.042, IFCA's index
    # 0.23 and 0.13 and its loss 0.058 and 0.059. That IFCA's loss is lower did not
    # show.
    # Paper: CLoVE's index is 1 everywhere, IFCA's 0.08 to 0.21, and yet IFCA's losses
    # are the lower ones.
    # Differs: a thousand clients hold 50 samples here: with 100 or more, as in the
    # paper, MNIST has not enough.
    Table(
        ("clove.table16",),
        View(
            "CLoVE, Table 16: clusters found among many clients, without labels",
            items=("Table 16",),
            setting=lambda trial: f"unsupervised, clients {trial.num_clients}",
            series=lambda trial: f"M = {trial.num_clients}",
            splits_algorithms=True,
            partitions=("one_class",),
            reconstructs=True,
            note="The paper's clients have 100 to 200 samples; of 1000 clients each "
            "has 50 here, for want of images.",
        ),
        both={"methods": ("clove", "ifca"), "cluster_sizes": None},
        quick={**_FEW_SAMPLES, "num_clients": (50, 100)},
        paper={
            "datasets": ("mnist",),
            "num_clients": (100, 200, 500, 1000),
            "num_samples": (200, 200, 100, 50),
            "num_test_samples": (80, 40, 17, 8),
        },
    ),
    # Table 17: parts of CLoVE left out or replaced.
    # Measured: 2.5 minutes: all four have all clusters from the first round on, and
    # 85.1 to 85.5 %: nothing tells them apart at this size.
    # Paper: CIFAR-10, label skew 3; 58.3 % as it is, 55.8 without matching, 59.3
    # agglomerative, 58.1 with square-root losses. Its 4.3 % are of 58.3, not points.
    Table(
        ("clove.table17",),
        View(
            "CLoVE, Table 17: clusters found by its variants",
            items=("Table 17",),
            published={"clove": "Original CLoVE"},
            partitions=("label_skew_3",),
        ),
        both={
            "methods": (
                "clove",
                "clove_no_matching",
                "clove_agglomerative",
                "clove_square_root",
            )
        },
        paper={"datasets": ("cifar10",)},
    ),
    # Figure 2: how models start and how the first round chooses. `init:d` are
    # independent models, `init:s` identical ones; `first:e` chooses by losses in the
    # first round, `first:r` at random.
    # Measured: 2.2 minutes: CLoVE's index is 1 from round 2 or 3 on under all four
    # starts; IFCA's is 0.23 (init:d first:e), 0.70 (init:d first:r), 0 (init:s first:e)
    # and 0.59 (init:s first:r) after 10 rounds.
    # Paper: CLoVE's index becomes 1 under all four starts, IFCA's mostly stays low; 50
    # clients of 500 samples.
    # Differs: the partition is not given: one class a cluster.
    Table(
        ("clove.fig2",),
        View(
            "CLoVE, Figure 2: starts and first rounds",
            splits_algorithms=True,
            curves=_STARTS,
            partitions=("one_class",),
            reconstructs=True,
        ),
        both={"methods": tuple(_STARTS)},
        paper={"datasets": ("mnist",), "cluster_sizes": (5,), "num_samples": (500,)},
    ),
    # Figure 4: fewer participants than clusters. The curve is the index of all clients'
    # latest models, of those who ever took part, and so is the table's "ARI".
    # Measured: 2.4 minutes: the index moves between 0.2 and 0.7 and is 0.40 +- 0.21
    # after 40 rounds, without and with early stopping, as no seed was stable. It cannot
    # do much better: 8 loss vectors in 10 clusters are one of each, so that two clients
    # of one cluster who take part together are parted; with perfect models the index
    # would be 0.54 +- 0.16 (`python -m theory check clove.fig4`).
    # Paper: 8 of 20 clients in a round, 10 clusters; the index falls, then rises to
    # nearly 1 after tens of rounds, with and without early stopping.
    Table(
        ("clove.fig4",),
        View(
            "CLoVE, Figure 4: clusters found with few clients in a round",
            partitions=("one_class",),
            index="seen_rand_index",
        ),
        both={
            "participations": (0.4,),
            "methods": ("clove", "clove_early_stopping"),
            "cluster_sizes": (2,),
        },
        quick={"num_rounds": 40, "rounds_between": 20},
        paper={"datasets": ("mnist",), "num_samples": (500,)},
    ),
    # Figure 6: averages of models or of gradients.
    # Measured: 49 s: models reach 1 in rounds 2 and 3, gradients in round 5 of both
    # seeds.
    # Paper: both reach 1, gradients some rounds later; 50 clients of 100 samples.
    # Differs: the step size of gradient averaging is not given. One step a round on a
    # loss that is averaged over 784 pixels needs a large one.
    Table(
        ("clove.fig6",),
        View(
            "CLoVE, Figure 6: averages of models or of gradients",
            partitions=("one_class",),
            reconstructs=True,
        ),
        both={"methods": ("clove", "clove_gradient"), "gradient_step_size": 30.0},
        paper={"datasets": ("mnist",), "cluster_sizes": (5,), "num_samples": (100,)},
    ),
    # Figure 7: clusters found, by number of clients.
    # Measured: 61 s: 30 clients reach 1 in rounds 2 and 3, 50 in round 2.
    # Paper: an index of 1 in a few rounds with 50 to 200 clients of 100 samples.
    Table(
        ("clove.fig7",),
        View(
            "CLoVE, Figure 7: clusters found, by number of clients",
            series=lambda trial: f"M = {trial.num_clients}",
            partitions=("one_class",),
            reconstructs=True,
        ),
        both={"methods": ("clove",)},
        quick={"cluster_sizes": (3, 5)},
        paper={
            "datasets": ("mnist",),
            "cluster_sizes": (5, 10, 20),
            "num_samples": (100,),
            "num_test_samples": (100, 80, 40),  # Of digit 5 there are 892.
        },
    ),
)
