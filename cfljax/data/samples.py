"""Labelled samples of any kind, before they are shared out among clients."""

import dataclasses

import numpy as np
from jaxtyping import Array, Int, Num

__all__ = ["Samples"]


@dataclasses.dataclass(frozen=True)
class Samples:
    """Training and test samples with labels, and with groups where they have them.

    train_inputs: `[train, ...]`, such as token ids or counts of words.
    train_labels: `[train]`, what a classifier answers.
    test_inputs: `[test, ...]`, likewise.
    test_labels: `[test]`.
    source: where they came from, for people.
    train_groups: `[train]`, what a partition may go by beside the labels, such as a
      review's category of products; None where there are none.
    test_groups: `[test]`, likewise.
    """

    train_inputs: Num[np.ndarray | Array, "train *shape"]
    train_labels: Int[np.ndarray | Array, " train"]
    test_inputs: Num[np.ndarray | Array, "test *shape"]
    test_labels: Int[np.ndarray | Array, " test"]
    source: str
    train_groups: Int[np.ndarray | Array, " train"] | None = None
    test_groups: Int[np.ndarray | Array, " test"] | None = None
