"""A short name for arrays that a sweep's trials are about."""

import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

__all__ = ["checksum"]


def checksum(arrays: Iterable[Any]) -> str:
    """CRC-32 of the bytes of all arrays, one after the other, as eight digits.

    It tells data that were prepared in another order apart, which two runs must not
    share a store for; shapes and types do not count.
    """
    found = 0
    for array in arrays:
        found = zlib.crc32(np.asarray(array).tobytes(), found)
    return f"{found:08x}"
