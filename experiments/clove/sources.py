"""Samples that CLoVE's experiments are about: images, or texts as numbers."""

import dataclasses
from typing import Literal

import numpy as np

from cfljax.data import Images, Samples, as_counts, as_tokens, load_texts
from experiments.images import checksum, find_images
from experiments.options import Options

Dataset = Literal[
    "digits", "mnist", "fashion_mnist", "cifar10", "ag_news", "amazon_reviews"
]


@dataclasses.dataclass(frozen=True)
class Source:
    """Samples that an experiment runs on."""

    name: Dataset  # of the set
    samples: Images | Samples  # all of them, in the host's memory
    checksum: str  # of the arrays, which tells preparations in another order apart
    note: str  # on the samples, for people; ends with an empty line
    is_substitute: bool = False  # whether they stand in for images that were not found

    def fitting(self, num_samples: int, num_clients: int, *, is_test: bool) -> int:
        """Samples of a client: those wanted, or fewer if the digits have no more; of a
        stand-in half at most is shared out, since clusters have unequal parts.
        """
        if not self.is_substitute:
            return num_samples
        own = self.samples.test_labels if is_test else self.samples.train_labels
        return max(1, min(num_samples, len(own) // (2 * num_clients)))


def load_source(
    dataset: Dataset,
    options: Options,
    *,
    fall_back: bool,
    num_words: int,
    num_tokens: int,
) -> Source:
    """The samples, or the embedded digits if images are not found and one may.

    Digits will do where `options.data` names no folder; `num_tokens` is for AG News.

    Raises:
      ValueError: if files are damaged.
      FileNotFoundError: if there are none and one may not fall back.
    """
    if dataset in ("ag_news", "amazon_reviews"):
        texts = load_texts(dataset, folder=options.data)
        if dataset == "ag_news":
            found = as_tokens(texts, num_words=num_words, length=num_tokens)
        else:
            found = as_counts(texts, num_words=num_words)
        train, test = found.train_inputs, found.test_inputs
        name = checksum((train, found.train_labels, test, found.test_labels))
        return Source(dataset, found, name, f"texts: {found.source}\n\n")
    images = find_images(dataset, options, fall_back=fall_back)
    return Source(
        name="digits" if images.is_substitute else dataset,
        samples=Images(*images.arrays, source=images.source),
        checksum=images.checksum,
        note=images.note,
        is_substitute=images.is_substitute,
    )


def without_inputs(samples: Images | Samples) -> Images | Samples:
    """The same labels and groups with inputs of one byte, to share out in no time."""
    shape = (1, 1) if isinstance(samples, Images) else (1,)
    return dataclasses.replace(
        samples,
        train_inputs=np.zeros((len(samples.train_labels), *shape), np.uint8),
        test_inputs=np.zeros((len(samples.test_labels), *shape), np.uint8),
    )
