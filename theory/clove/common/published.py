"""Means of the tables of results, as they are printed.

The ledger of published numbers (`figures/ledger/table.md`) has each of them beside
what this project found. Below, a table and its quantity are followed by its columns,
data set and setting, and by one line for each algorithm; a dash is an index of 0.9
that was never reached.
"""

import math
from collections.abc import Iterator, Mapping
from typing import NamedTuple


class Table(NamedTuple):
    """One quantity of one table: means by algorithm, in the order of the columns."""

    columns: tuple[str, ...]
    means: Mapping[str, tuple[float, ...]]


_TEXT = """
Table 1: test accuracy %
  MNIST Label skew 1; CIFAR-10 Label skew 1; FMNIST Label skew 1; MNIST Concept shift;
  CIFAR-10 Concept shift; FMNIST Concept shift; MNIST Label skew 2; CIFAR-10 Label
  skew 2; FMNIST Label skew 2; MNIST Feature skew; CIFAR-10 Feature skew; FMNIST
  Feature skew
    FedAvg: 87.4 34 64.7 52.4 63.1 49.1 76.4 47.7 55.2 90 52.4 76.5
    Local-only: 99.5 85.4 98.8 94.8 45.1 78.3 94.2 55.9 86.1 93 38.5 75.8
    Per-FedAvg: 97.8 75 97 80.2 34.9 70.4 94.9 48.2 78.2 87.8 22.8 66.7
    FedProto: 99.2 83 98.6 95 40.8 78.4 94.4 56.8 82.1 92.3 34.1 74
    FedALA: 98.9 80 97.8 96.7 42 81.1 95.1 50.1 81.6 90.2 22.3 68.1
    FedPAC: 94.4 78.3 91.7 90.7 39 73.8 91.9 40.7 77.6 87.6 24.6 67.4
    CFL-S: 82.5 87.4 65.8 97.5 35.7 83.7 97.3 62.1 87.2 95.1 61.6 77.8
    FeSEM: 73.2 11.2 41.8 46.2 12.7 39.7 89.1 15.3 51.4 79.5 10.7 67.6
    FlexCFL: 99.4 73.2 99 97.4 17.8 86.1 95.6 43.6 88.7 96.7 12.2 85.2
    PACFL: 99.1 79.1 98.7 93.3 26.8 72.6 92 40.4 81.1 89.3 17.1 70.6
    IFCA: 99.1 85.7 97.8 80 52.7 67 96.8 63.4 89.4 95.9 50.8 83.5
    CLoVE: 99.8 90.5 99.1 97.6 58.4 84.3 97.1 66.8 90.1 97.7 57.1 85.1
Table 2: ARI
  MNIST Label skew 1; CIFAR-10 Label skew 1; FMNIST Label skew 1; MNIST Concept shift;
  CIFAR-10 Concept shift; FMNIST Concept shift; MNIST Label skew 2; CIFAR-10 Label
  skew 2; FMNIST Label skew 2; MNIST Feature skew; CIFAR-10 Feature skew; FMNIST
  Feature skew
    CFL-S: 0.71 1 0.86 1 0 1 0 0.72 0.57 0.48 0.89 0.16
    FeSEM: 0.18 0 0 0 0 0 0.18 0 0 0 0 0
    FlexCFL: 1 1 1 1 0.22 1 1 1 1 1 0.11 1
    PACFL: 0.39 0.6 1 0 0 0 0.35 0.32 0.55 0 0 0.68
    IFCA: 0.83 0.91 0.92 0.68 0.76 0.55 0.83 0.81 0.92 0.67 0.71 0.55
    CLoVE: 1 1 1 1 1 1 1 1 1 1 1 1
Table 3: test accuracy %
  Amazon; AG News
    FedAvg: 99 40.2
    Local-only: 81.2 51.4
    Per-FedAvg: 87.7 48
    FedProto: 81.3 18.9
    FedALA: 88.3 49.6
    FedPAC: 88.2 42.4
    CFL-S: 87.7 48.4
    FeSEM: 50.9 19.1
    FlexCFL: 84.1 60.2
    PACFL: 82.1 51.1
    IFCA: 85.5 51.3
    CLoVE: 86.8 55.1
Table 4: reconstruction loss
  MNIST unsupervised; CIFAR-10 unsupervised; FMNIST unsupervised
    FedAvg: 0.032 0.026 0.03
    Local-only: 0.019 0.022 0.17
    IFCA: 0.024 0.019 0.02
    CLoVE: 0.014 0.021 0.016
Table 5: ARI in 10 rounds
  MNIST Label skew 1; CIFAR-10 Label skew 1; FMNIST Label skew 1; MNIST Concept shift;
  CIFAR-10 Concept shift; FMNIST Concept shift
    CFL-S: 0 0 0 0 0 0
    FeSEM: 0.18 0 0 0 0 0
    FlexCFL: 1 1 1 1 0.22 1
    PACFL: 0.39 0.6 1 0 0 0
    IFCA: 0.83 0.72 0.83 0.68 0.76 0.55
    CLoVE: 1 1 1 1 1 1
Table 5: first round with ARI>=0.9
  MNIST Label skew 1; CIFAR-10 Label skew 1; FMNIST Label skew 1; MNIST Concept shift;
  CIFAR-10 Concept shift; FMNIST Concept shift
    CFL-S: - 41.3 - 60 - 43
    FeSEM: - - - - - -
    FlexCFL: 1 1 1 1 - 1
    PACFL: - - 1 - - -
    IFCA: - - - - - -
    CLoVE: 2 2 2 2 2.3 2
Table 8: test accuracy %
  MNIST Label skew 3; CIFAR-10 Label skew 3; FMNIST Label skew 3; MNIST Label skew 4;
  CIFAR-10 Label skew 4; FMNIST Label skew 4
    FedAvg: 99 84.1 88.8 98.5 60.7 85.9
    Local-only: 85.9 41.1 71.1 94.8 67.1 85.5
    Per-FedAvg: 95.3 41.6 74.9 95.6 63.7 83.7
    FedProto: 88.8 39.9 74.1 93.3 45.3 76.5
    FedALA: 94.7 40 75.1 96.8 69.8 87.3
    FedPAC: 95.6 41.4 75.5 96.1 66.3 84.8
    CFL-S: 97.9 61.2 84.3 97.8 71.3 88.2
    FeSEM: 94 13.3 72.2 94.9 11.9 80.6
    FlexCFL: 92.2 20.8 79.7 97.2 66.8 89.5
    PACFL: 82.8 27.1 68.1 93.4 67.4 84.1
    IFCA: 94.2 57.3 80.6 98 64.3 89.4
    CLoVE: 94.2 56.9 79.5 97.8 72.6 89.9
Table 9: ARI
  MNIST Label skew 3; CIFAR-10 Label skew 3; FMNIST Label skew 3; MNIST Label skew 4;
  CIFAR-10 Label skew 4; FMNIST Label skew 4
    CFL-S: 0 0.77 0 0 0.61 0.29
    FeSEM: 0.18 0 0 0.12 0 0.11
    FlexCFL: 1 1 1 1 1 1
    PACFL: 0.2 0 0.15 0.53 0.66 0.92
    IFCA: 0.92 0.69 0.65 0.55 0.36 0.5
    CLoVE: 1 1 1 0.6 1 0.95
Table 10: ARI in 10 rounds
  MNIST Label skew 2; CIFAR-10 Label skew 2; FMNIST Label skew 2; MNIST Label skew 3;
  CIFAR-10 Label skew 3; FMNIST Label skew 3; MNIST Label skew 4; CIFAR-10 Label skew
  4; FMNIST Label skew 4; MNIST Feature skew; CIFAR-10 Feature skew; FMNIST Feature
  skew
    CFL-S: 0 0 0 0 0 0 0 0 0 0 0 0
    FeSEM: 0.18 0 0 0.18 0 0 0.12 0 0.11 0 0 0
    FlexCFL: 1 1 1 1 1 1 1 1 1 1 0.11 1
    PACFL: 0.35 0.32 0.55 0.2 0 0.15 0.53 0.66 0.92 0 0 0.68
    IFCA: 0.83 0.72 0.92 0.92 0.69 0.65 0.54 0.7 0.5 0.67 0.71 0.55
    CLoVE: 1 1 1 1 1 1 0.9 1 1 1 1 1
Table 10: first round with ARI>=0.9
  MNIST Label skew 2; CIFAR-10 Label skew 2; FMNIST Label skew 2; MNIST Label skew 3;
  CIFAR-10 Label skew 3; FMNIST Label skew 3; MNIST Label skew 4; CIFAR-10 Label skew
  4; FMNIST Label skew 4; MNIST Feature skew; CIFAR-10 Feature skew; FMNIST Feature
  skew
    CFL-S: - - - - - - - - - - - -
    FeSEM: - - - - - - - - - - - -
    FlexCFL: 1 1 1 1 1 1 1 1 1 1 - 1
    PACFL: - - - - - - - - - - - -
    IFCA: - - - - - - - - - - - -
    CLoVE: 2 2 2 2 2 2 2 2 2 2 4.3 2
Table 11: ARI
  Amazon; AG News
    CFL-S: 0.07 0.39
    FeSEM: 0 0.14
    FlexCFL: 0 0.02
    PACFL: 0 0
    IFCA: 0.29 0.64
    CLoVE: 0.73 0.94
Table 12: ARI in 10 rounds
  Amazon; AG News
    CFL-S: 0 0
    FeSEM: 0 0.14
    FlexCFL: 0 0.02
    PACFL: 0 0
    IFCA: 0.29 0.64
    CLoVE: 0.72 0.94
Table 12: first round with ARI>=0.9
  Amazon; AG News
    CFL-S: - -
    FeSEM: - -
    FlexCFL: - -
    PACFL: - -
    IFCA: - -
    CLoVE: - 2
Table 13: round of stability
  CIFAR-10 Label skew 1; CIFAR-10 Label skew 2; CIFAR-10 Feature skew; CIFAR-10
  Concept shift
    CLoVE: 4 4 6.3 4
Table 13: test accuracy %
  CIFAR-10 Label skew 1; CIFAR-10 Label skew 2; CIFAR-10 Feature skew; CIFAR-10
  Concept shift
    CLoVE: 90.7 67.2 58.2 59.4
Table 14: ARI in 10 rounds
  MNIST participation 1.0; MNIST participation 0.9; MNIST participation 0.75; MNIST
  participation 0.5; MNIST participation 0.25; MNIST participation 0.1
    CLoVE: 1 1 1 1 1 1
Table 14: final ARI
  MNIST participation 1.0; MNIST participation 0.9; MNIST participation 0.75; MNIST
  participation 0.5; MNIST participation 0.25; MNIST participation 0.1
    CLoVE: 1 1 1 1 1 1
Table 14: first round with ARI>=0.9
  MNIST participation 1.0; MNIST participation 0.9; MNIST participation 0.75; MNIST
  participation 0.5; MNIST participation 0.25; MNIST participation 0.1
    CLoVE: 2 2 2 2 2 3
Table 14: test accuracy %
  MNIST participation 1.0; MNIST participation 0.9; MNIST participation 0.75; MNIST
  participation 0.5; MNIST participation 0.25; MNIST participation 0.1
    CLoVE: 99.5 99.6 99.4 99.6 99.4 99.6
Table 15: final ARI
  MNIST clients 50; CIFAR-10 clients 50; FMNIST clients 50; MNIST clients 100;
  CIFAR-10 clients 100; FMNIST clients 100; MNIST clients 250; CIFAR-10 clients 250;
  FMNIST clients 250; MNIST clients 500; CIFAR-10 clients 500; FMNIST clients 500;
  MNIST clients 1000; CIFAR-10 clients 1000; FMNIST clients 1000
    IFCA: 0.92 0.85 0.74 0.85 0.65 0.93 0.87 0.85 0.85 0.93 0.85 0.85 0.85 0.93 0.75
    CLoVE: 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1
Table 15: test accuracy %
  MNIST clients 50; CIFAR-10 clients 50; FMNIST clients 50; MNIST clients 100;
  CIFAR-10 clients 100; FMNIST clients 100; MNIST clients 250; CIFAR-10 clients 250;
  FMNIST clients 250; MNIST clients 500; CIFAR-10 clients 500; FMNIST clients 500;
  MNIST clients 1000; CIFAR-10 clients 1000; FMNIST clients 1000
    IFCA: 99.2 83.7 96.8 99.1 72.7 97.4 99.4 80.9 98.6 97.1 77.3 89.2 98.3 78 92
    CLoVE: 99.8 90.8 99.1 99.8 90.3 99.3 99.9 91.2 99.3 99.6 82.3 95.3 99.6 84.6
      96.5
Table 16: final ARI
  MNIST unsupervised, clients 100; MNIST unsupervised, clients 200; MNIST
  unsupervised, clients 500; MNIST unsupervised, clients 1000
    IFCA: 0.091 0.079 0.21 0.186
    CLoVE: 1 1 1 1
Table 16: test loss
  MNIST unsupervised, clients 100; MNIST unsupervised, clients 200; MNIST
  unsupervised, clients 500; MNIST unsupervised, clients 1000
    IFCA: 0.055 0.055 0.059 0.067
    CLoVE: 0.065 0.063 0.065 0.073
Table 17: test accuracy %
  CIFAR-10 Label skew 3
    Original CLoVE: 58.3
    No matching: 55.8
    Agglomerative clustering: 59.3
    Square root loss: 58.1
"""


def _read() -> Iterator[tuple[tuple[int, str], Table]]:
    """The text, by number and quantity."""
    joined = _TEXT.replace("\n      ", " ")
    for part in joined.split("\nTable ")[1:]:
        head, *lines = part.strip("\n").split("\n")
        number, metric = head.split(": ")
        columns = " ".join(one.strip() for one in lines if not one.startswith("    "))
        means = {}
        for line in lines:
            if line.startswith("    "):
                name, values = line.strip().split(": ")
                numbers = (
                    math.nan if one == "-" else float(one) for one in values.split()
                )
                means[name] = tuple(numbers)
        yield (int(number), metric), Table(tuple(columns.split("; ")), means)


TABLES = dict(_read())
