"""Labelled texts from the user's files: AG News and Amazon Reviews."""

import collections
import csv
import dataclasses
import io
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float, Int

from cfljax.base.checks import check_positive
from cfljax.base.ranges import ranged
from cfljax.base.unpacking import read_file
from cfljax.data.images import Samples, named_folder

TextSet = Literal["ag_news", "amazon_reviews"]

_TOPICS = ("World", "Sports", "Business", "Sci/Tech")
_SENTIMENTS = ("negative", "positive")
_CATEGORIES = ("books", "dvd", "electronics", "kitchen_&_housewares")
_REVIEW = re.compile(r"<review>(.*?)</review>", re.DOTALL)
_PARTS = [
    re.compile(rf"<{tag}>(.*?)</{tag}>", re.DOTALL) for tag in ("title", "review_text")
]

Labels = Int[np.ndarray, "_"]


@dataclasses.dataclass(frozen=True)
class Texts:
    """Training and test texts with labels.

    train_texts: as they were written.
    train_labels: `[train]`, index into `names`.
    test_texts: likewise.
    test_labels: `[test]`, likewise.
    names: of the labels.
    source: where they came from, for people, without folders of this machine.
    train_groups: `[train]`, index into `group_names`; None where there are no groups.
    test_groups: `[test]`, likewise.
    group_names: of the groups.
    """

    train_texts: tuple[str, ...]
    train_labels: Labels
    test_texts: tuple[str, ...]
    test_labels: Labels
    names: tuple[str, ...]
    source: str
    train_groups: Labels | None = None
    test_groups: Labels | None = None
    group_names: tuple[str, ...] = ()


def load_texts(name: str, *, folder: str | os.PathLike[str] | None = None) -> Texts:
    """Labelled texts of one public set, without touching the network.

    Looked up in `folder`, or in the folder that the environment variable CFLJAX_DATA
    names.

    - ag_news (Zhang et al. 2015): `train.csv` and `test.csv` with an index of the class
      from 1 to 4 and then title and description, joined here by a space. They may be
      a part of the 120,000 and 7,600 rows; `source` says how many there are.
    - amazon_reviews (Blitzer et al. 2007): `sorted_data_acl`, four categories of
      products, which become the groups, with 1000 reviews for either sentiment; title
      and text are joined by a line break. A text that comes again is dropped. There is
      no official split: a fifth of each category and sentiment, drawn once and for
      all, is the test.

    Args:
      name: ag_news or amazon_reviews.
      folder: where the data are; overrides CFLJAX_DATA.

    Raises:
      ValueError: if the name is unknown or a file is not what it should be.
      FileNotFoundError: if the folder does not exist, has only some of the files, or
        no data are found; the message says how to get them.

    Cost: under a second for 40,000 texts.
    """
    if name not in get_args(TextSet):
        raise ValueError(
            f"`name` must be one of {', '.join(get_args(TextSet))}, got {name!r}."
        )
    named = named_folder(folder)
    if named is None:
        raise FileNotFoundError(f"No folder of data is named. {_advice(name)}")
    inner = "ag_news" if name == "ag_news" else "amazon_reviews/sorted_data_acl"
    files = _files(name)
    for place in (named / inner, named / Path(inner).name, named):
        missing = [file for file in files if not (place / file).exists()]
        if len(missing) == len(files):
            continue
        if missing:
            raise FileNotFoundError(
                f"`{place}` has only some of the {len(files)} files of {name}; "
                f"missing: {', '.join(missing)}. {_advice(name)}"
            )
        return _ag_news(place) if name == "ag_news" else _amazon_reviews(place)
    raise FileNotFoundError(f"No data of `{name}` in {named}. {_advice(name)}")


def _files(name: str) -> list[str]:
    """Names of the files of a set, below its folder."""
    if name == "ag_news":
        return ["train.csv", "test.csv"]
    return [
        f"{category}/{sentiment}.review"
        for category in _CATEGORIES
        for sentiment in _SENTIMENTS
    ]


def _read(path: Path) -> str:
    try:
        return read_file(path).decode()
    except OSError as error:
        reason = error.strerror or error
        raise ValueError(f"cannot read `{path}`: {reason}.") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"`{path}` must be text in UTF-8: {error}.") from error


def _ag_news(place: Path) -> Texts:
    """Both files of AG News."""
    train, labels = _read_csv(place / "train.csv")
    test, test_labels = _read_csv(place / "test.csv")
    source = (
        f"ag_news: {len(train)} of 120000 training texts and {len(test)} of 7600 test "
        f"texts in {place.resolve().name}"
    )
    return Texts(train, labels, test, test_labels, _TOPICS, source)


def _read_csv(path: Path) -> tuple[tuple[str, ...], Labels]:
    """Texts and labels, from 0."""
    texts, labels = [], []
    try:
        for row in csv.reader(io.StringIO(_read(path), newline=""), strict=True):
            if len(row) < 2 or row[0] not in ("1", "2", "3", "4"):
                start = ",".join(row)[:40]
                raise ValueError(
                    f"`{path}` must have rows of a class in 1..4 and a text, got "
                    f"{start!r} as row {len(texts) + 1}."
                )
            labels.append(int(row[0]) - 1)
            texts.append(" ".join(row[1:]))
    except csv.Error as error:
        raise ValueError(
            f"cannot read `{path}`: {error} after row {len(texts)}."
        ) from error
    if not texts:
        raise ValueError(f"`{path}` must have rows, got none.")
    return tuple(texts), np.asarray(labels, np.int32)


def _amazon_reviews(place: Path) -> Texts:
    """Eight files of reviews, split; order within a split is by category."""
    seen: set[str] = set()
    splits: tuple[list, list] = ([], [])  # Of (text, label, group).
    # The files are in no known order: an unshuffled split would test on a part of it.
    random = np.random.default_rng(0)
    for group, category in enumerate(_CATEGORIES):
        for label, sentiment in enumerate(_SENTIMENTS):
            path = place / category / f"{sentiment}.review"
            own = [text for text in _read_reviews(path) if text not in seen]
            own = list(dict.fromkeys(own))
            seen.update(own)
            test, train = np.split(random.permutation(len(own)), [len(own) // 5])
            for split, chosen in zip(splits, (train, test), strict=True):
                split += [(own[row], label, group) for row in chosen]
    (texts, labels, groups), (test_texts, test_labels, test_groups) = (
        zip(*split, strict=True) for split in splits
    )
    return Texts(
        train_texts=texts,
        train_labels=np.asarray(labels, np.int32),
        test_texts=test_texts,
        test_labels=np.asarray(test_labels, np.int32),
        names=_SENTIMENTS,
        source=f"amazon_reviews: {len(seen)} different reviews in "
        f"{place.resolve().name}",
        train_groups=np.asarray(groups, np.int32),
        test_groups=np.asarray(test_groups, np.int32),
        group_names=_CATEGORIES,
    )


def _read_reviews(path: Path) -> list[str]:
    """Title and text of every review of one file."""
    found = []
    for review in _REVIEW.findall(_read(path)):
        parts = [part.search(review) for part in _PARTS]
        words = "\n".join(part[1].strip() for part in parts if part is not None)
        if parts[1] is None or not words:
            raise ValueError(
                f"`{path}` must have a text in every review, got none in review "
                f"{len(found) + 1}."
            )
        found.append(words)
    if len(found) < 5:
        raise ValueError(f"`{path}` must have 5 reviews or more, got {len(found)}.")
    return found


def _advice(name: str) -> str:
    """What to do when a set is not there or not whole."""
    if name == "ag_news":
        what = "AG News by Zhang et al. (`train.csv`, `test.csv`) in FOLDER/ag_news"
    else:
        what = (
            "the Multi-Domain Sentiment Dataset by Blitzer et al. "
            "(`domain_sentiment_data.tar.gz`), unpacked, in FOLDER/sorted_data_acl or "
            "FOLDER/amazon_reviews/sorted_data_acl"
        )
    return f"Put {what}, then pass `--data FOLDER` or set CFLJAX_DATA=FOLDER."


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
    check_positive(num_words=num_words)
    counts = collections.Counter(word for text in texts for word in split_words(text))
    if not counts:
        raise ValueError("`texts` must have words, got none.")
    return tuple(sorted(counts, key=lambda word: (-counts[word], word))[:num_words])


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
    check_positive(length=length)
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
        np.add.at(row, [ids[word] for word in split_words(text) if word in ids], 1)
    return found


@ranged
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
    return _samples(texts, lambda own: token_ids(own, words, length=length))


@ranged
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
    return _samples(texts, lambda own: word_counts(own, words))


def _samples(texts: Texts, encode: Callable[[tuple[str, ...]], np.ndarray]) -> Samples:
    return Samples(
        train_inputs=encode(texts.train_texts),
        train_labels=texts.train_labels,
        test_inputs=encode(texts.test_texts),
        test_labels=texts.test_labels,
        source=texts.source,
        train_groups=texts.train_groups,
        test_groups=texts.test_groups,
    )
