"""Federated data sets; those whose true clusters are known say them."""

from cfljax.data.check import check_clients
from cfljax.data.images import Images, load_images
from cfljax.data.linear import mixed_linear, split_rounds
from cfljax.data.partition import rotated
from cfljax.data.writers import Writers, by_writer, load_writers

__all__ = [
    "Images",
    "Writers",
    "by_writer",
    "check_clients",
    "load_images",
    "load_writers",
    "mixed_linear",
    "rotated",
    "split_rounds",
]
