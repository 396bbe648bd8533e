"""What `data` tells: which real data sets are here, and how to get the others."""

import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

USED = {
    "mnist": "handwritten digits",
    "fashion_mnist": "pictures of clothes",
    "cifar10": "photographs of ten kinds",
    "femnist": "handwritten letters and digits, by writer",
    "ag_news": "news by topic",
    "amazon_reviews": "reviews of products by category",
}


class Found(NamedTuple):
    """One data set: whether it is whole, and where it is or how to get it."""

    name: str
    what: str
    is_here: bool
    told: str


def look(folder: pathlib.Path | None) -> Iterator[Found]:
    """Each data set that experiments can read, read to its end, checksums included.

    Args:
      folder: where they are; CFLJAX_DATA says it if None.
    """
    from cfljax.data import load_images, load_texts, load_writers

    load: dict[str, Callable[..., Any]] = {
        **dict.fromkeys(("mnist", "fashion_mnist", "cifar10"), load_images),
        **dict.fromkeys(("ag_news", "amazon_reviews"), load_texts),
        "femnist": load_writers,
    }
    for name, what in USED.items():
        try:
            found = load[name](name, folder=folder)
        except (ValueError, FileNotFoundError) as error:
            yield Found(name, what, False, str(error))
        else:
            yield Found(name, what, True, found.source)


def as_text(found: Found) -> str:
    """A paragraph for people."""
    state = "here" if found.is_here else "not here"
    lines = [f"{found.name}: {found.what}; {state}", *found.told.splitlines()]
    return "\n  ".join(lines)


def named(folder: pathlib.Path | None) -> str:
    """Which folder was looked at."""
    own = folder or os.environ.get("CFLJAX_DATA")
    return (
        f"in {own}" if own else "no folder is named: use --data FOLDER or CFLJAX_DATA"
    )
