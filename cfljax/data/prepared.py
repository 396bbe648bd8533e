"""Image sets prepared by tensorflow-datasets, read without TensorFlow or network."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Int, UInt8

from cfljax.data.sources import Arrays

__all__ = ["CLASS_COUNTS", "find_prepared", "read_prepared"]

# Training images of each class. They tell MNIST from Fashion-MNIST, whose archives
# share their file names, so that a preparation can mistake one for the other.
CLASS_COUNTS: dict[str, tuple[int, ...]] = {
    "mnist": (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
    "fashion_mnist": (6000,) * 10,
    "cifar10": (5000,) * 10,
}


def find_prepared(name: str, folder: Path) -> Path | None:
    """Newest version of the prepared set `folder/<name>/<version>`, or None.

    Args:
      name: a key of `CLASS_COUNTS`.
      folder: a `data_dir` of tensorflow-datasets.
    """
    found = (folder / name).glob("*.*.*/dataset_info.json")
    return max((path.parent for path in found), key=_version, default=None)


def read_prepared(name: str, place: Path) -> Arrays:
    """Image set from a preparation in the array_record format.

    Preparing shuffles the images, so their order differs from the original files'.
    Only what is on the disk is used: the set is opened by its folder, never by its
    name, for which tensorflow-datasets would go to the network.

    Args:
      name: a key of `CLASS_COUNTS`.
      place: what `find_prepared` found.

    Raises:
      ValueError: if the set is in another format, damaged, or another set's images.

    Cost: about 100 microseconds an image to decode, on one core.
    """
    if not list(place.glob("*.array_record*")):
        raise ValueError(
            f"`{place}` is not in the array_record format, which is the one that can "
            "be read without TensorFlow; prepare it again with "
            f"`tfds build {name} --file_format=array_record --overwrite`."
        )
    import tensorflow_datasets as tfds  # Slow to import and seldom needed.

    try:
        builder: Any = tfds.builder_from_directory(place, file_format="array_record")
        train = _decode(builder.as_data_source(split="train"))
        test = _decode(builder.as_data_source(split="test"))
    except Exception as error:  # Damage shows in any layer below, as any type.
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise ValueError(f"cannot read the data set in `{place}`: {reason}.") from error
    counts = tuple(np.bincount(train[1], minlength=10).tolist())
    if counts != CLASS_COUNTS[name]:
        raise ValueError(
            f"`{place}` does not hold {name}: its classes have {counts} training "
            f"images, expected {CLASS_COUNTS[name]}. Preparing two sets from one "
            "`manual_dir` mixes them up; prepare it again in a folder of its own."
        )
    return Arrays(*train, *test)


def _version(place: Path) -> tuple[int, ...]:
    parts = place.name.split(".")
    return tuple(int(part) if part.isdigit() else -1 for part in parts)


def _decode(
    source: Any,
) -> tuple[UInt8[np.ndarray, "images height width *channels"], Int[np.ndarray, "_"]]:
    """Images and labels of one split; a single channel loses its axis."""
    examples = source.__getitems__(list(range(len(source))))
    inputs = np.stack([example["image"] for example in examples])
    labels = np.asarray([example["label"] for example in examples], np.int32)
    return inputs[..., 0] if inputs.shape[-1] == 1 else inputs, labels
