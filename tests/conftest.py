"""Strict numerics for every test, and where the real data are."""

import os
import pathlib
import subprocess
import sys

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


@pytest.fixture(scope="session")
def shared() -> pathlib.Path:
    """The folder of papers, golden data and real data sets beside the project."""
    if not SHARED.is_dir():
        pytest.skip("the folder `shared` is not beside the project")
    return SHARED


@pytest.fixture(scope="session")
def real_data(
    shared: pathlib.Path, tmp_path_factory: pytest.TempPathFactory
) -> pathlib.Path:
    """A folder with the original files of the real data sets."""
    folder = tmp_path_factory.mktemp("data")
    prepare = shared / "data" / "prepare.py"
    subprocess.run([sys.executable, str(prepare), str(folder)], check=True)
    return folder
