"""What cannot be partitioned by label is refused, and the advice is good."""

from typing import Any

import jax
import pytest
from numbered import numbered

from cfljax.data import Sizes, dominated, label_skewed, label_swapped, unique_classes

KEY = jax.random.key(0)
SIZES = Sizes(num_clients=10, num_samples=8, num_test_clients=5, num_test_samples=4)


def skewed(samples=None, sizes=SIZES, **changes):
    arguments: dict[str, Any] = {"key": KEY, "classes": unique_classes(10, 5)}
    label_skewed(samples or numbered(), sizes=sizes, **(arguments | changes))


def swapped(*swaps):
    label_swapped(numbered(), key=KEY, sizes=SIZES, swaps=swaps)


def dominant(samples=None, num_clusters=5, sizes=SIZES, **changes):
    samples = samples or numbered()
    dominated(samples, key=KEY, num_clusters=num_clusters, sizes=sizes, **changes)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: skewed(classes=()), "at least one cluster, got none"),
        (
            lambda: skewed(classes=((0, 1), ())),
            r"one class or more.*\(\) for clus",
        ),
        (lambda: skewed(classes=((0, 0), (1,))), r"each once, got \(0, 0\)"),
        (lambda: skewed(classes=((0,), (10,))), r"in 0..9.*\(10,\) for cluster 1"),
        (lambda: skewed(classes=((0,), (-1,))), r"in 0..9, the labels that there"),
        (lambda: skewed(classes=unique_classes(10, 3)), "got 10 clients and 3 clus"),
        (lambda: skewed(concentration=0.0), "`concentration` must be positive"),
        (lambda: skewed(reserve=1.1), r"`reserve` must be in \[0, 1\], got 1.1"),
        (lambda: skewed(reserve=float("nan")), "`reserve` must be"),
        (
            lambda: skewed(sizes=Sizes(10, 41, 5, 4)),
            "need 82 training samples in every cluster, got 80 in one; at most 40 samp",
        ),
        (lambda: skewed(sizes=Sizes(10, 8, 5)), None),
        (lambda: skewed(sizes=Sizes(10, 8, 15)), "at most 6 samples .* or 2 clients a"),
        (lambda: skewed(numbered(num_test=0)), "training and test samples, got none"),
        (lambda: swapped(), "`swaps` must have at least one cluster"),
        (lambda: swapped(((0, 1), (1, 2)), ()), "each once"),
        (lambda: swapped(((0, 10),), ()), "pairs of labels in 0..9"),
        (lambda: swapped(((0, 1),), ((1, 0),)), "differ from cluster to cluster"),
        (lambda: dominant(num_clusters=11), "`num_clusters` must be in 1..10"),
        (lambda: dominant(dominance=1.5), r"`dominance` must be in \[0, 1\]"),
        (lambda: dominant(sizes=Sizes(10, 8, 5, min_samples=4)), "must be None"),
        (lambda: Sizes(0, 8, 5), "`num_clients` must be at least 1, got 0"),
        (lambda: Sizes(5, 8, 5, min_samples=9), "`min_samples` must be at most 8"),
        (lambda: Sizes(5, 8, 5, 4, 8, 5), "`min_test_samples` must be at most 4"),
    ],
)
def test_misuse_is_refused(call, message):
    if message is None:
        call()  # Control: what just suffices is taken.
        return
    with pytest.raises(ValueError, match=message):
        call()


def test_the_advice_of_a_refusal_is_good():
    """What is said to fit fits, and one more does not."""
    with pytest.raises(ValueError, match=r"class 0, got 40; at most 24 samples"):
        dominant(sizes=Sizes(10, 25, 5, 4))
    dominant(sizes=Sizes(10, 24, 5, 4))
    skewed(sizes=Sizes(10, 40, 5, 4))
    skewed(sizes=Sizes(10, 8, 15, 6))
    with pytest.raises(ValueError, match="test samples in every cluster"):
        skewed(sizes=Sizes(10, 8, 15, 7))
