"""Tasks of functions that a command line names."""

import jax
import numpy as np
import pytest

from cfljax.base.types import ClientData
from cfljax.models import named_task

SHAPES = (np.ones((2, 3, 4)), np.ones((2, 3)), np.ones((2, 3), bool))
DATA = ClientData(*jax.device_put(SHAPES))
SOURCE = """
import cfljax as cfl

def make(data):
    return cfl.models.linear(data.inputs.shape[-1])

def number(data):
    return 3

constant = 3
"""


@pytest.fixture(autouse=True)
def module(tmp_path, monkeypatch):
    (tmp_path / "mine_for_a_test.py").write_text(SOURCE)
    (tmp_path / "lacks_for_a_test.py").write_text("import nowhere_to_be_found\n")
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_function_makes_the_task_of_the_data():
    task = named_task("mine_for_a_test:make", DATA)
    ones = jax.device_put(np.ones((2, 4), np.float32))
    assert task.predict(ones[0], ones).tolist() == [4.0, 4.0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("make", "must be MODULE:FUNCTION, such as my_module:make, got 'make'"),
        (":make", "must be MODULE:FUNCTION"),
        (".mine_for_a_test:make", "must be MODULE:FUNCTION"),
        ("mine_for_a_test..x:make", "must be MODULE:FUNCTION"),
        ("a\0b:make", "must be MODULE:FUNCTION"),
        ("absent_for_a_test:make", "'absent_for_a_test', which Python does not find"),
        ("mine_for_a_test:mike", "no function of mine_for_a_test; it has make, number"),
        ("mine_for_a_test:constant", "'constant', which is no function"),
        ("mine_for_a_test:number", "must give a Task.*got int"),
    ],
)
def test_what_is_no_task_is_refused(name, message):
    with pytest.raises(ValueError, match=message) as caught:
        named_task(name, DATA)
    assert "\n" not in str(caught.value)


def test_what_the_users_own_module_lacks_is_said_as_it_is():
    with pytest.raises(ModuleNotFoundError, match="nowhere_to_be_found"):
        named_task("lacks_for_a_test:make", DATA)
