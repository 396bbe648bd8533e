"""Which classes the clusters of CLoVE's label skews have, and what cannot be."""

import itertools

import jaxtyping
import pytest

from cfljax.data import (
    SWAPS,
    all_but_one_class,
    all_classes,
    overlapping_classes,
    unique_classes,
)


def test_the_sets_of_the_released_code():
    assert unique_classes(10, 5) == ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    every = set(range(10))
    missing = [sorted(every - set(own)) for own in all_but_one_class(10, 5)]
    assert missing == [[9], [0], [1], [2], []]
    assert all(len(own) == len(set(own)) for own in all_but_one_class(10, 11))
    assert len(set(all_but_one_class(10, 11))) == 11
    for pairs in SWAPS:
        assert len({label for pair in pairs for label in pair}) == 4


def shared(sets) -> list[int]:
    """Numbers of classes that any two clusters share."""
    return [len(set(a) & set(b)) for a, b in itertools.combinations(sets, 2)]


def test_overlaps_of_neighbours_and_of_any_two():
    ring = overlapping_classes(10, 5)
    assert ring[:2] == ((0, 1, 2, 3), (2, 3, 4, 5)) and ring[4] == (0, 1, 8, 9)
    neighbours = zip(ring, ring[1:] + ring[:1], strict=True)
    assert all(len(set(a) & set(b)) == 2 for a, b in neighbours)
    assert min(shared(ring)) == 0  # The paper's "any two clusters" does not hold.
    for sizes, owned, common in (((10, 4), 4, 2), ((4, 3), 2, 1)):
        core = overlapping_classes(
            *sizes, num_owned=owned, num_shared=common, layout="core"
        )
        assert {len(own) for own in core} == {owned}
        assert shared(core) == [common] * len(shared(core))
    assert min(shared(overlapping_classes(9, 5, num_shared=3, layout="core"))) >= 3


def test_one_class_each_and_all_for_everyone():
    assert unique_classes(10, 10) == tuple((label,) for label in range(10))
    assert unique_classes(10, 3, num_owned=2) == ((0, 1), (2, 3), (4, 5))
    assert all_classes(3, 2) == ((0, 1, 2), (0, 1, 2))


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: unique_classes(10, 11), "`num_owned` times `num_clusters`"),
        (lambda: unique_classes(10, 5, num_owned=3), "got 3 x 5 of 10"),
        (lambda: unique_classes(10, 0), "`num_clusters` must be at least 1, got 0"),
        (lambda: all_classes(0, 2), "`num_classes` must be at least 1, got 0"),
        (lambda: all_but_one_class(3, 5), "at most `num_classes` . 1"),
        (lambda: all_but_one_class(1, 1), "at least 2 classes"),
        (lambda: overlapping_classes(10, 5, num_shared=4), "below `num_owned`"),
        (lambda: overlapping_classes(3, 2), "at most `num_classes`, got 2, 4 and 3"),
        (lambda: overlapping_classes(10, 6), "`num_clusters` must be at most 5"),
        (
            lambda: overlapping_classes(10, 5, layout="core"),
            "`num_clusters` must be at most 4",
        ),
    ],
)
def test_impossible_sets_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_unknown_layouts_are_refused():
    with pytest.raises((ValueError, jaxtyping.TypeCheckError)):
        overlapping_classes(10, 5, layout="star")  # pyright: ignore[reportArgumentType]
