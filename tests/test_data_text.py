"""Texts, words and counts, by hand and in the real files; what is said of damage."""

import csv
import pathlib
from typing import Any

import jax
import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import MultinomialNB

from cfljax.data import Sizes, Texts, as_counts, as_tokens, by_group, load_texts
from cfljax.data.text import split_words, token_ids, vocabulary, word_counts

CATEGORIES = ("books", "dvd", "electronics", "kitchen_&_housewares")
NEWS = [["3", "Oil, up", "5% more"], ["1", 'The "Times"']]


@pytest.fixture(autouse=True)
def no_data_of_this_machine(monkeypatch):
    monkeypatch.delenv("CFLJAX_DATA", raising=False)


def write_news(folder: pathlib.Path, train=NEWS, test=NEWS[1:]) -> pathlib.Path:
    for name, rows in (("train", train), ("test", test)):
        path = folder / f"ag_news/{name}.csv"
        path.parent.mkdir(exist_ok=True)
        with path.open("w", newline="") as file:
            csv.writer(file, quoting=csv.QUOTE_ALL).writerows(rows)
    return folder


def review(number: int, title: str = "Fine") -> str:
    return (
        f"<review>\n<title>\n{title}\n</title>\n<rating>\n5.0\n</rating>\n"
        f"<review_text>\nItem {number}\n</review_text>\n</review>\n"
    )


def write_reviews(folder: pathlib.Path) -> pathlib.Path:
    """Ten reviews a file, numbered; the first comes twice."""
    number = 0
    for category in CATEGORIES:
        for sentiment in ("negative", "positive"):
            path = folder / f"sorted_data_acl/{category}/{sentiment}.review"
            path.parent.mkdir(parents=True, exist_ok=True)
            numbers = [number, *range(number, number + 10)]
            path.write_text("".join(map(review, numbers)))
            number += 10
    return folder


# Against equations
def test_news_by_hand(tmp_path):
    texts = load_texts("ag_news", folder=write_news(tmp_path))
    assert texts.train_texts == ("Oil, up 5% more", 'The "Times"')
    assert texts.train_labels.tolist() == [2, 0] and texts.test_labels.tolist() == [0]
    assert texts.names == ("World", "Sports", "Business", "Sci/Tech")
    assert "2 of 120000 training texts" in texts.source
    assert str(tmp_path) not in texts.source
    assert texts.train_groups is None


def test_reviews_by_hand(tmp_path, monkeypatch):
    write_reviews(tmp_path)
    texts = load_texts("amazon_reviews", folder=tmp_path)
    assert str(tmp_path) not in texts.source
    assert "80 different" in texts.source and texts.group_names == CATEGORIES
    assert texts.train_groups is not None and texts.test_groups is not None
    found = []
    for own, labels, groups, size in (
        (texts.train_texts, texts.train_labels, texts.train_groups, 8),
        (texts.test_texts, texts.test_labels, texts.test_groups, 2),
    ):
        numbers = np.array([int(text.split()[-1]) for text in own])
        assert own[0] == f"Fine\nItem {numbers[0]}"
        np.testing.assert_array_equal(labels, numbers // 10 % 2)
        np.testing.assert_array_equal(groups, numbers // 20)
        np.testing.assert_array_equal(np.bincount(2 * groups + labels), size)
        found += numbers.tolist()
    assert sorted(found) == list(range(80))
    monkeypatch.setenv("CFLJAX_DATA", str(tmp_path))
    assert load_texts("amazon_reviews").test_texts == texts.test_texts


def test_words_ids_and_counts_by_hand():
    words = split_words("It's 5% OFF_now — Été\\n#36;x")
    assert words == ["it", "s", "5", "off", "now", "été", "n", "36", "x"]
    texts = ("b b a c", "a b. B! d", "")
    assert vocabulary(texts, 3) == ("b", "a", "c")  # c before d, as often.
    assert vocabulary(texts, 9) == ("b", "a", "c", "d")
    words = vocabulary(texts, 2)
    ids = token_ids(("a z B a", "", "b"), words, length=3)
    assert ids.tolist() == [[3, 1, 2], [0, 0, 0], [2, 0, 0]]
    counts = word_counts(("a z B a", "", "b"), words)
    assert counts.tolist() == [[1, 2], [0, 0], [1, 0]]
    assert ids.dtype == np.int32 and counts.dtype == np.float32


def labelled(train: tuple[str, ...], test: tuple[str, ...]) -> Texts:
    zeros = [np.zeros(len(own), np.int32) for own in (train, test)]
    return Texts(train, zeros[0], test, zeros[1], ("one",), "test")


@pytest.mark.parametrize("encode", [as_tokens, as_counts])
def test_the_vocabulary_knows_the_training_texts_alone(encode):
    train = ("a b", "a")
    one = encode(labelled(train, ("a a",)), num_words=2)
    other = encode(labelled(train, ("c c c c",)), num_words=2)
    np.testing.assert_array_equal(one.train_inputs, other.train_inputs)
    assert not np.array_equal(one.test_inputs, other.test_inputs)
    # Control: the same words in a training text would change everything.
    more = encode(labelled((*train, "c c c c"), ("a a",)), num_words=2)
    assert not np.array_equal(one.train_inputs, more.train_inputs[:2])


def test_reviews_become_clients_of_one_category_each(tmp_path):
    samples = as_counts(load_texts("amazon_reviews", folder=write_reviews(tmp_path)))
    sizes = Sizes(8, 8, 4, 4)
    train, truth, test, _ = by_group(samples, key=jax.random.key(0), sizes=sizes)
    assert train.inputs.shape == (8, 8, samples.train_inputs.shape[1])
    assert truth.clusters.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    np.testing.assert_array_equal(train.targets.reshape(4, 16).sum(axis=1), 8)
    np.testing.assert_array_equal(test.targets.sum(axis=1), 2)
    np.testing.assert_array_equal(train.inputs.sum(axis=2), 3)  # Fine, item, number.


# Against reference
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


@pytest.mark.long
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


@pytest.mark.long
def test_tokens_of_the_real_news(news):
    samples = as_tokens(news, num_words=1000, length=40)
    tokens = np.asarray(samples.train_inputs)
    assert tokens.min() == 0 and tokens.max() == 1001 and tokens.shape[1] == 40
    is_padding = tokens == 0
    assert np.all(is_padding[:, :-1] <= is_padding[:, 1:])  # Only behind the text.
    assert np.argmax(np.bincount(tokens[tokens > 1])) == 2  # The most frequent word.


# Against misuse
@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([["5", "a"]], r"class in 1..4 and a text, got '5,a' as row 1"),
        ([["1", "a"], ["2"]], "got '2' as row 2"),
        ([], "must have rows, got none"),
    ],
)
def test_damaged_news_are_refused(rows, message, tmp_path):
    write_news(tmp_path, test=rows)
    with pytest.raises(ValueError, match=message):
        load_texts("ag_news", folder=tmp_path)


def test_files_that_are_no_text_are_refused(tmp_path):
    path = write_news(tmp_path) / "ag_news/test.csv"
    path.write_bytes(b'"1","\xff"\n')
    with pytest.raises(ValueError, match=r"test.csv` must be text in UTF-8"):
        load_texts("ag_news", folder=tmp_path)
    path.write_bytes(b'"1","a"\n"2","b" c\n')
    with pytest.raises(ValueError, match=r"cannot read .*test.csv`.*after row 1"):
        load_texts("ag_news", folder=tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(ValueError, match=r"cannot read .*test.csv`: Is a directory"):
        load_texts("ag_news", folder=tmp_path)


def test_damaged_reviews_are_refused(tmp_path):
    path = write_reviews(tmp_path) / "sorted_data_acl/dvd/positive.review"
    path.write_text(review(1) * 2 + review(2).replace("review_text>", "text>"))
    with pytest.raises(ValueError, match=r"a text in every review, got none in .* 3"):
        load_texts("amazon_reviews", folder=tmp_path)
    path.write_text(review(1) * 4)
    with pytest.raises(ValueError, match="5 reviews or more, got 4"):
        load_texts("amazon_reviews", folder=tmp_path)
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"missing: dvd/positive.review\. Put"):
        load_texts("amazon_reviews", folder=tmp_path)


def test_absent_data_are_said_to_be_absent(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No folder of data is named\. Put AG"):
        load_texts("ag_news")
    with pytest.raises(FileNotFoundError, match="No data of `amazon_reviews` in"):
        load_texts("amazon_reviews", folder=tmp_path)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: load_texts("imdb"), "one of ag_news, amazon_reviews, got 'imdb'"),
        (lambda: vocabulary(("a",), 0), "`num_words` must be at least 1, got 0"),
        (lambda: vocabulary(("", "!"), 5), "`texts` must have words"),
        (lambda: token_ids(("a",), ("a",), length=0), "`length` must be .* 1, got 0"),
    ],
)
def test_impossible_arguments_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
