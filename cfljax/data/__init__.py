"""Federated data sets; those whose true clusters are known say them."""

from cfljax.data.check import check_clients
from cfljax.data.class_sets import (
    SWAPS,
    all_but_one_class,
    all_classes,
    overlapping_classes,
    unique_classes,
)
from cfljax.data.dominant import dominated
from cfljax.data.feature_skew import feature_skewed
from cfljax.data.images import Images, load_images
from cfljax.data.label_skew import (
    by_group,
    label_shifted,
    label_skewed,
    label_swapped,
)
from cfljax.data.linear import linear_clients, mixed_linear, split_rounds
from cfljax.data.nearby import nearby_linear, nearby_models
from cfljax.data.partition import rotated
from cfljax.data.samples import Samples
from cfljax.data.shares import Sizes
from cfljax.data.text import Texts, load_texts
from cfljax.data.words import as_counts, as_tokens
from cfljax.data.writers import Writers, by_writer, load_writers

__all__ = [
    "SWAPS",
    "Images",
    "Samples",
    "Sizes",
    "Texts",
    "Writers",
    "all_but_one_class",
    "all_classes",
    "as_counts",
    "as_tokens",
    "by_group",
    "by_writer",
    "check_clients",
    "dominated",
    "feature_skewed",
    "label_shifted",
    "label_skewed",
    "label_swapped",
    "linear_clients",
    "load_images",
    "load_texts",
    "load_writers",
    "mixed_linear",
    "nearby_linear",
    "nearby_models",
    "overlapping_classes",
    "rotated",
    "split_rounds",
    "unique_classes",
]
