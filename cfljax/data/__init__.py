"""Federated data sets that know their true clusters."""

from cfljax.data.images import Images, load_images
from cfljax.data.linear import mixed_linear, split_rounds
from cfljax.data.partition import rotated

__all__ = ["Images", "load_images", "mixed_linear", "rotated", "split_rounds"]
