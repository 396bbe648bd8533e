"""Clients of the user's own data: what is made of it, and what is refused."""

import jax
import numpy as np
import pytest

from cfljax import data as cfl_data
from cfljax.base.types import ClientData
from cfljax.data import from_clients, from_dicts, from_npz, split_samples

RNG = np.random.default_rng(0)
COUNTS = (3, 1, 2)
INPUTS = [RNG.normal(size=(count, 2)) for count in COUNTS]
LABELS = [RNG.integers(0, 4, count) for count in COUNTS]
PAIRS = list(zip(INPUTS, LABELS, strict=True))
WHOSE = np.repeat(["b", "c", "a"], COUNTS)  # In file order; clients come sorted.


def same(data: ClientData, pairs=PAIRS):
    """Real samples are those of the pairs, and padding is zero."""
    assert data.mask.sum(axis=1).tolist() == [len(y) for _, y in pairs]
    for index, pair in enumerate(pairs):
        kept = np.asarray(data.mask[index])
        for leaf, own in zip(data[:2], pair, strict=True):
            found = np.asarray(leaf)[index]
            np.testing.assert_array_equal(found[kept], np.asarray(own, leaf.dtype))
            assert not np.any(found[~kept])
    return True


# Against equations


def test_ragged_clients_are_padded_and_masked():
    data = from_clients(PAIRS)
    assert data.inputs.shape == (3, 3, 2) and data.targets.shape == (3, 3)
    assert (data.inputs.dtype, data.targets.dtype) == (np.float32, np.int32)
    assert same(data)
    with pytest.raises(AssertionError):  # Control: it sees another order.
        same(data, PAIRS[::-1])


@pytest.mark.parametrize(
    ("inputs", "targets", "dtypes"),
    [
        (np.array([[0], [255]], np.uint8), [1.5, 2.0], ("float32", "float32")),
        (np.array([[7], [9]]), [True, False], ("int32", "int32")),
        (
            np.array([[0.5], [2]], np.float16),
            np.array([0, 3], np.uint8),
            ("float32", "int32"),
        ),
    ],
)
def test_types_that_models_are_given(inputs, targets, dtypes):
    data = from_clients([(inputs, targets)])
    assert (str(data.inputs.dtype), str(data.targets.dtype)) == dtypes
    scale = 255 if inputs.dtype == np.uint8 else 1  # Pixels.
    np.testing.assert_array_equal(data.inputs[0] * scale, inputs)
    np.testing.assert_array_equal(data.targets[0], targets)


def test_one_client_of_numbers_makes_numbers_of_all():
    data = from_clients([([[1]], [0]), ([[0.5]], [1])])
    assert data.inputs.dtype == np.float32 and data.inputs[1, 0, 0] == 0.5


def test_files_of_samples_and_of_padded_clients_are_read(tmp_path):
    stack = {"inputs": np.concatenate(INPUTS), "targets": np.concatenate(LABELS)}
    groups = np.repeat([7, 7, 2], COUNTS)
    np.savez(tmp_path / "flat.npz", **stack, clients=WHOSE, clusters=groups)
    data, truth = from_npz(tmp_path / "flat.npz", num_classes=4)
    assert same(data, [PAIRS[2], PAIRS[0], PAIRS[1]])  # a, b, c
    assert truth is not None and truth.models is None
    assert truth.clusters.tolist() == [0, 1, 1]
    np.savez(tmp_path / "padded.npz", **data._asdict())
    again, unknown = from_npz(tmp_path / "padded.npz")
    assert unknown is None
    assert all(map(np.array_equal, data, again))


class Table:
    """As a data set of Hugging Face: columns by name, and no dict."""

    def __init__(self, **columns):
        self.columns, self.column_names = columns, list(columns)

    def __getitem__(self, name):
        return list(self.columns[name])


def test_tables_are_read_by_their_columns():
    dicts = [{"x": x, "label": y} for x, y in PAIRS]
    assert same(from_dicts(dicts))
    renamed = [Table(image=x, digit=y) for x, y in PAIRS]
    assert same(from_dicts(renamed, inputs="image", targets="digit"))
    whole = {"x": np.concatenate(INPUTS), "label": np.concatenate(LABELS)}
    for table in (whole | {"who": WHOSE}, Table(**whole, who=WHOSE)):
        assert same(from_dicts(table, client="who"), [PAIRS[2], PAIRS[0], PAIRS[1]])


@pytest.mark.long
def test_samples_are_split_without_loss():
    rng = np.random.default_rng(1)
    pairs = [(rng.normal(size=(n, 1)), np.arange(n)) for n in (10, 4)]
    parts = split_samples(jax.random.key(0), from_clients(pairs), (0.5, 0.25, 0.25))
    assert [p.mask.sum(axis=1).tolist() for p in parts] == [[5, 2], [3, 1], [2, 1]]
    for index, (_, targets) in enumerate(pairs):
        found = [p.targets[index][p.mask[index]] for p in parts]
        assert sorted(np.concatenate(found)) == targets.tolist()
    other = split_samples(jax.random.key(1), from_clients(pairs), (0.5, 0.5))[0]
    assert not np.array_equal(other.targets, parts[0].targets)
    # A client's draw does not depend on the others.
    alone = split_samples(jax.random.key(0), from_clients(pairs[:1]), (0.5, 0.5))[0]
    assert np.array_equal(alone.targets[0, :5], parts[0].targets[0, :5])


# Against misuse


def changed(index, inputs=None, targets=None):
    """The pairs with another client."""
    own = PAIRS[index]
    pair = own[0] if inputs is None else inputs, own[1] if targets is None else targets
    return [pair if place == index else other for place, other in enumerate(PAIRS)]


BAD = np.where(np.arange(4).reshape(2, 2) == 3, np.nan, 1.0)


@pytest.mark.parametrize(
    ("clients", "message"),
    [
        ([], "at least one client, got none"),
        (changed(1, np.zeros((0, 2)), []), "a sample, got none for client 1; leave"),
        (changed(2, np.zeros((3, 2))), "as many samples, got 3 and 2 for client 2"),
        (changed(2, np.zeros((2, 5))), r"one shape.*\(5,\) for client 2 and \(2,\)"),
        (changed(2, [[1.0, 2.0], [3.0]]), "samples of one shape.*client 2; crop"),
        (changed(2, BAD), "`inputs` must be finite.*the first is client 2"),
        (changed(2, np.full((2, 2), 1e300)), "`inputs` must be finite.*client 2"),
        (changed(2, None, [np.nan, 0.0]), "`targets` must be finite.*client 2"),
        (changed(2, None, [0, -1]), "labels must be 0, 1, .*-1 for client 2"),
        (changed(2, None, ["cat", "dog"]), "real numbers, got <U3 for client 2; num"),
        (changed(2, None, [None, 1]), "real numbers, got object for client 2"),
        (changed(2, np.zeros((2, 2), complex)), "real numbers, got complex128"),
        (changed(2, None, [0, 2**40]), "whole numbers below 2147483647, got 1099511"),
        (changed(2, 1.0, 2), r"`inputs` must be \[samples, ...\], got a number"),
        ([{"x": [1], "label": [1]}], "pairs.*got dict for client 0; dicts are for"),
        ([(1, 2, 3)], "pairs .*, got 3 entries for client 0"),
    ],
)
def test_clients_that_cannot_be_learnt_from_are_named(clients, message):
    with pytest.raises(ValueError, match=message) as caught:
        from_clients(clients)
    assert "\n" not in str(caught.value)


def test_labels_outside_the_classes_are_refused():
    assert same(from_clients(PAIRS, num_classes=4))
    with pytest.raises(ValueError, match=r"`targets` must be in 0..2.*client"):
        from_clients(changed(1, None, [3]), num_classes=3)
    with pytest.raises(ValueError, match="`targets` must be integer labels, got float"):
        from_clients([([[1.0]], [0.5])], num_classes=3)


class Trap:
    """Would say so if it were unpickled."""

    def __reduce__(self):
        return pytest.fail, ("a file was unpickled",)


FLAT = {"inputs": np.ones((3, 1)), "targets": np.zeros(3), "clients": np.arange(3)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"targets": np.array([Trap()], object)}, "has objects, which are not read"),
        ({"clients": None}, "`clients`.*or `mask`.*got inputs, targets"),
        (
            {"targets": np.zeros(2)},
            "`targets` must have an entry for each of 3 samples",
        ),
        ({"clients": np.zeros(3)}, "one whole number or text for each sample, got flo"),
        (
            {"clients": np.array([0, 0, 1]), "clusters": np.arange(3)},
            "the same for all samples of a client.*client 0",
        ),
        ({"inputs": np.float64(1)}, r"`inputs` must be \[samples, ...\]"),
        ({"mask": np.ones((3, 1))}, "`mask` must be booleans"),
        ({"mask": np.ones((2, 1), bool)}, "begin with the shape of `mask`"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path, change, message):
    arrays = {k: v for k, v in (FLAT | change).items() if v is not None}
    np.savez(tmp_path / "my.npz", **arrays)
    with pytest.raises(ValueError, match=message) as caught:
        from_npz(tmp_path / "my.npz")
    assert "\n" not in str(caught.value)


def test_what_is_no_file_of_arrays_is_refused(tmp_path):
    path = tmp_path / "my.npz"
    path.write_bytes(b"PK\x03\x04 cut short")
    with pytest.raises(ValueError, match="cannot read"):
        from_npz(path)
    path.write_text("some text")
    with pytest.raises(ValueError, match=r"it is no file of `np.savez`"):
        from_npz(path)
    np.save(tmp_path / "one.npy", np.ones(3))
    with pytest.raises(ValueError, match=r"single array; write it by"):
        from_npz(tmp_path / "one.npy")
    with pytest.raises(FileNotFoundError):
        from_npz(tmp_path / "none.npz")


def test_columns_that_are_not_there_are_named():
    with pytest.raises(ValueError, match=r"`label` must be a column of client 1, .*y"):
        from_dicts([{"x": [[1]], "label": [0]}, {"x": [[1]], "y": [0]}])
    with pytest.raises(ValueError, match="`client` must name the column"):
        from_dicts({"x": [[1]], "label": [0]})
    with pytest.raises(ValueError, match="named columns, got tuple for client 0"):
        from_dicts([([1], [2])])
    table = {"x": [[1], [2]], "label": [0], "who": [0, 1]}
    with pytest.raises(ValueError, match="`label` must have an entry for each of 2"):
        from_dicts(table, client="who")


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ((0.5, 0.6), "add up to 1"),
        ((1.5, -0.5), "must not be negative"),
        ((), "positive"),
        ((0.9, 0.1), "a sample in each part, got none for client 0 of 3 samples"),
    ],
)
def test_shares_that_cannot_be_dealt_are_refused(shares, message):
    with pytest.raises(ValueError, match=message):
        split_samples(jax.random.key(0), from_clients(PAIRS), shares)


def test_the_room_offers_them():
    assert {"from_clients", "from_npz", "from_dicts"} <= set(cfl_data.__all__)
