"""Texts as numbers: ids of their words in order, or counts of them."""

import collections
import re
from collections.abc import Iterable, Sequence

import numpy as np
from jaxtyping import Float, Int

from cfljax.data.samples import Samples
from cfljax.data.text import Texts

__all__ = [
    "NUM_RESERVED",
    "as_counts",
    "as_tokens",
    "split_words",
    "token_ids",
    "vocabulary",
    "word_counts",
]

NUM_RESERVED = 2  # Token ids that are no word: 0 is padding, 1 an unknown word.
_WORD = re.compile(r"[^\W_]+")


def split_words(text: str) -> list[str]:
    """Words of a text: runs of letters and digits, in lower case."""
    return _WORD.findall(text.lower())


def vocabulary(texts: Iterable[str], num_words: int) -> tuple[str, ...]:
    """The most frequent words, most frequent first, equals in alphabetical order.

    Args:
      texts: to count in; training texts alone, or the test is no longer unseen.
      num_words: how many words at most.

    Raises:
      ValueError: if `num_words` is below 1 or the texts have no words.
    """
    if num_words < 1:
        raise ValueError(f"`num_words` must be at least 1, got {num_words}.")
    counts = collections.Counter(word for text in texts for word in split_words(text))
    if not counts:
        raise ValueError("`texts` must have words, got none.")
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return tuple(ranked[:num_words])


def token_ids(
    texts: Sequence[str], words: Sequence[str], *, length: int
) -> Int[np.ndarray, "texts length"]:
    """Ids of the first words of every text, then padding.

    Args:
      texts: to encode.
      words: the vocabulary; `words[i]` has the id `i + 2`, all other words 1.
      length: number of ids of a text, padding 0 behind.

    Raises:
      ValueError: if `length` is below 1.
    """
    if length < 1:
        raise ValueError(f"`length` must be at least 1, got {length}.")
    ids = {word: NUM_RESERVED + index for index, word in enumerate(words)}
    found = np.zeros((len(texts), length), np.int32)
    for row, text in zip(found, texts, strict=True):
        own = [ids.get(word, 1) for word in split_words(text)[:length]]
        row[: len(own)] = own
    return found


def word_counts(
    texts: Sequence[str], words: Sequence[str]
) -> Float[np.ndarray, "texts words"]:
    """How often each word of the vocabulary is in each text; others do not count.

    Args:
      texts: to encode.
      words: the vocabulary.

    Cost: 4 bytes for each text and word.
    """
    ids = {word: index for index, word in enumerate(words)}
    found = np.zeros((len(texts), len(words)), np.float32)
    for row, text in zip(found, texts, strict=True):
        own = [ids[word] for word in split_words(text) if word in ids]
        np.add.at(row, own, 1)
    return found


def as_tokens(texts: Texts, *, num_words: int = 10000, length: int = 64) -> Samples:
    """Texts for `text_cnn(num_words + 2)`, with the vocabulary of the training texts.

    CLoVE (appendix C) does not give the tokenizer, the vocabulary or the length.

    Args:
      texts: labelled texts.
      num_words: words of the vocabulary, at most; others have one id together.
      length: words of a text that are kept.

    Raises:
      ValueError: if a number is below 1 or the training texts have no words.
    """
    words = vocabulary(texts.train_texts, num_words)
    encode = lambda own: token_ids(own, words, length=length)
    return _samples(texts, encode(texts.train_texts), encode(texts.test_texts))


def as_counts(texts: Texts, *, num_words: int = 5000) -> Samples:
    """Texts as bags of words for `mlp`, with the vocabulary of the training texts.

    CLoVE (appendix C) trains "a simple multi-layer perceptron" on Amazon Reviews and
    does not give its features or widths.

    Args:
      texts: labelled texts.
      num_words: words of the vocabulary, at most; others are left out. The inputs are
        `[samples, words]`, which `mlp` needs to know.

    Raises:
      ValueError: if `num_words` is below 1 or the training texts have no words.
    """
    words = vocabulary(texts.train_texts, num_words)
    encode = lambda own: word_counts(own, words)
    return _samples(texts, encode(texts.train_texts), encode(texts.test_texts))


def _samples(texts: Texts, train: np.ndarray, test: np.ndarray) -> Samples:
    return Samples(
        train_inputs=train,
        train_labels=texts.train_labels,
        test_inputs=test,
        test_labels=texts.test_labels,
        source=texts.source,
        train_groups=texts.train_groups,
        test_groups=texts.test_groups,
    )
