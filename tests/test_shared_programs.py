"""Programs that the tests share compute what was asked for."""

import collections

import conftest
import jax
import numpy as np
import pytest

compiler = pytest.importorskip("jax._src.compiler")


@pytest.fixture
def programs(monkeypatch):
    """None at first; what is compiled is shared, whichever tests are run."""
    original = compiler.compile_or_get_cached
    monkeypatch.setattr(compiler, "compile_or_get_cached", original)
    monkeypatch.setattr(conftest, "PROGRAMS", collections.OrderedDict())
    conftest.share_programs()
    return conftest.PROGRAMS


def times(factor):
    """A function that JAX has not met."""
    return jax.jit(lambda x: factor * x)


# Against equations


def test_only_the_same_operations_on_the_same_shapes_share_a_program(programs):
    values = np.arange(3, dtype=np.float32)
    for number, factor in ((1, 2.0), (1, 2.0), (2, 2.0000002), (3, 3.0)):
        found = np.asarray(times(factor)(values))
        np.testing.assert_array_equal(found, np.float32(factor) * values)
        assert len(programs) == number
    np.testing.assert_array_equal(times(2.0)(values[1:]), [2, 4])
    assert len(programs) == 4


def test_what_calls_back_is_not_shared(programs):
    def told(answer):
        shape = jax.ShapeDtypeStruct((), np.float32)
        return jax.jit(lambda: jax.pure_callback(lambda: np.float32(answer), shape))()

    assert [float(told(answer)) for answer in (1, 2)] == [1, 2]
    assert not programs
