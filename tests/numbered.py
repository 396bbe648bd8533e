"""Samples that can be told apart once they are shared out."""

import numpy as np

from cfljax.data import Samples


def numbered(
    num_train: int = 400, num_test: int = 100, num_classes: int = 10
) -> Samples:
    """Samples that carry their own number, negative in the test."""
    train, test = np.arange(1, 1 + num_train), -np.arange(1, 1 + num_test)
    return Samples(
        train_inputs=np.stack([train, train], axis=1).astype(np.int32),
        train_labels=(train % num_classes).astype(np.int32),
        test_inputs=np.stack([test, test], axis=1).astype(np.int32),
        test_labels=(-test % num_classes).astype(np.int32),
        source="test",
    )
