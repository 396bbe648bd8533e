"""The real texts: known facts, and counts of words by scikit-learn."""

from typing import Any

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from cfljax.data import Texts, as_counts, as_tokens, load_texts
from cfljax.data.text import vocabulary, word_counts


@pytest.fixture(scope="module")
def news(real_data) -> Texts:
    return load_texts("ag_news", folder=real_data)


@pytest.fixture(scope="module")
def reviews(real_data) -> Texts:
    return load_texts("amazon_reviews", folder=real_data)


def test_facts_of_ag_news(news):
    assert np.bincount(news.test_labels).tolist() == [1900] * 4
    assert news.test_texts[0].startswith("Fears for T N pension after talks Unions")
    assert news.names[news.test_labels[0]] == "Business"
    assert len(news.train_texts) == len(news.train_labels) >= 30000
    assert not set(news.train_texts) & set(news.test_texts)


def test_facts_of_amazon_reviews(reviews):
    assert reviews.test_groups is not None and reviews.train_groups is not None
    assert not set(reviews.train_texts) & set(reviews.test_texts)
    every = np.concatenate([reviews.train_groups, reviews.test_groups])
    labels = np.concatenate([reviews.train_labels, reviews.test_labels])
    sizes = np.bincount(2 * every + labels)
    # 1000 in every file; one in fifty comes again.
    assert np.all(sizes <= 1000) and np.all(sizes > 950)
    words = [text.lower() for text in reviews.test_texts]
    for group, word in enumerate(("book", "movie", "sound", "kitchen")):
        share = [
            np.mean([word in words[row] for row in np.flatnonzero(own)])
            for own in (reviews.test_groups == other for other in range(4))
        ]
        assert np.argmax(share) == group


def test_counts_against_scikit_learn(news):
    texts = news.test_texts[:500]
    words = vocabulary(texts, 300)
    counter = CountVectorizer(token_pattern=r"[^\W_]+", vocabulary=list(words))
    theirs = counter.transform(texts).toarray()
    np.testing.assert_array_equal(word_counts(texts, words), theirs)
    free: Any = CountVectorizer(token_pattern=r"[^\W_]+")
    frequencies = free.fit_transform(texts).toarray().sum(axis=0)
    np.testing.assert_array_equal(theirs.sum(axis=0), np.sort(frequencies)[::-1][:300])
    # Control: another idea of a word counts otherwise.
    longer = CountVectorizer(token_pattern=r"\w\w+", vocabulary=list(words))
    assert not np.array_equal(longer.transform(texts).toarray(), theirs)


def test_labels_belong_to_their_texts(reviews, news):
    """Naive Bayes finds them; of labels that are mixed up it finds none."""
    random = np.random.default_rng(0)
    for texts in (reviews, news):
        chance = 1 / len(texts.names)
        samples = as_counts(texts, num_words=500)
        rows = random.permutation(len(texts.train_labels))[:4000]
        inputs, labels = samples.train_inputs[rows], samples.train_labels[rows]
        found = MultinomialNB().fit(inputs, labels)
        assert found.score(samples.test_inputs, samples.test_labels) > (1 + chance) / 2
        mixed = MultinomialNB().fit(inputs, random.permutation(labels))
        assert mixed.score(samples.test_inputs, samples.test_labels) < chance + 0.1


def test_tokens_of_the_real_news(news):
    samples = as_tokens(news, num_words=1000, length=40)
    tokens = np.asarray(samples.train_inputs)
    assert tokens.min() == 0 and tokens.max() == 1001 and tokens.shape[1] == 40
    is_padding = tokens == 0
    assert np.all(is_padding[:, :-1] <= is_padding[:, 1:])  # Only behind the text.
    assert np.argmax(np.bincount(tokens[tokens > 1])) == 2  # The most frequent word.
