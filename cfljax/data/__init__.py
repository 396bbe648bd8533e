"""Federated data sets; those whose true clusters are known say them."""

from cfljax.base.clients import check_clients
from cfljax.data.images import Arrays, Images, ImageSet, Samples, load_images
from cfljax.data.linear import (
    check_mixed_linear,
    linear_clients,
    linear_targets,
    mixed_linear,
    mixed_truth,
    nearby_linear,
    nearby_models,
    split_rounds,
)
from cfljax.data.own import from_clients, from_dicts, from_npz, split_samples
from cfljax.data.partition import Shared, Sizes, rotated
from cfljax.data.skews import (
    SWAPS,
    all_but_one_class,
    all_classes,
    by_group,
    dominated,
    feature_skewed,
    label_shifted,
    label_skewed,
    label_swapped,
    overlapping_classes,
    unique_classes,
)
from cfljax.data.text import NUM_RESERVED, Texts, as_counts, as_tokens, load_texts
from cfljax.data.writers import Writers, by_writer, load_writers

__all__ = [
    "NUM_RESERVED",
    "SWAPS",
    "Arrays",
    "ImageSet",
    "Images",
    "Samples",
    "Shared",
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
    "check_mixed_linear",
    "dominated",
    "feature_skewed",
    "from_clients",
    "from_dicts",
    "from_npz",
    "label_shifted",
    "label_skewed",
    "label_swapped",
    "linear_clients",
    "linear_targets",
    "load_images",
    "load_texts",
    "load_writers",
    "mixed_linear",
    "mixed_truth",
    "nearby_linear",
    "nearby_models",
    "overlapping_classes",
    "rotated",
    "split_rounds",
    "split_samples",
    "unique_classes",
]
