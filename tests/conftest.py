"""Strict numerics for every test, and where the real data are."""

import collections
import functools
import gc
import hashlib
import importlib
import os
import pathlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import jax
import jaxtyping
import pytest

jax.config.update("jax_numpy_rank_promotion", "raise")
jax.config.update("jax_numpy_dtype_promotion", "strict")

# Tracing makes many objects and few cycles: rarer collections save a tenth.
gc.set_threshold(100_000, 20, 100)

# Nearly all the time of the default tests goes into compiling small programs. This
# halves it; values change by rounding, long arithmetic becomes slower. Slow tests, and
# the default ones where XLA_FLAGS is set, even to nothing, run what users run.
QUICK_TO_COMPILE = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
)
if jax.__version_info__ < (0, 11):  # One that XLA does not know ends the process.
    QUICK_TO_COMPILE += " --xla_cpu_use_fusion_emitters=false"


def share_bytecode(config: pytest.Config) -> None:
    """Where Python is told to write no bytecode, a folder for it beside pytest's own
    notes: each process, of this run and of the next, would compile the same sources."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is None:
        return
    del os.environ["PYTHONDONTWRITEBYTECODE"]
    folder = str(cache.mkdir("bytecode"))
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = folder
    sys.dont_write_bytecode = False


def share_contexts() -> None:
    """A context of MLIR for a hundred programs of a thread, where JAX makes one for
    each: that is a tenth of the time of the default tests, and nothing is computed
    differently. A JAX that names its function otherwise goes without."""
    mlir = importlib.import_module("jax._src.interpreters.mlir")
    make: Callable[[], Any] | None = getattr(mlir, "make_ir_context", None)
    if make is None:
        return
    own = threading.local()

    def shared() -> Any:
        if getattr(own, "left", 0) == 0:
            own.context, own.left = make(), 100
        own.left -= 1
        return own.context

    mlir.__dict__["make_ir_context"] = shared


PROGRAMS: collections.OrderedDict[Any, Any] = collections.OrderedDict()


def share_programs() -> None:
    """Two functions of the same operations are compiled once, where JAX compiles each
    function that it has not met. A JAX that names its function otherwise goes without.
    """
    compiler = importlib.import_module("jax._src.compiler")
    compile_program: Callable[..., Any] | None = getattr(
        compiler, "compile_or_get_cached", None
    )
    if compile_program is None:
        return

    @functools.wraps(compile_program)
    def found(
        backend: Any,
        module: Any,
        devices: Any,
        options: Any,
        callbacks: Any,
        *rest: Any,
    ) -> Any:
        if callbacks:  # They are part of the program, and not of its text.
            return compile_program(backend, module, devices, options, callbacks, *rest)
        text = module.operation.get_asm(enable_debug_info=False)
        told = options.SerializeAsString(), [device.id for device in devices.flat]
        key = hashlib.sha256(repr((text, told)).encode()).digest()
        program = PROGRAMS.pop(key, None)
        if program is None:
            program = compile_program(
                backend, module, devices, options, callbacks, *rest
            )
        PROGRAMS[key] = program
        if len(PROGRAMS) > 300:
            PROGRAMS.popitem(last=False)
        return program

    compiler.__dict__["compile_or_get_cached"] = found


def keep_programs(config: pytest.Config) -> None:
    """A folder for compiled programs beside pytest's own notes, from which other
    processes and the next run take those that did not change: compiling is a quarter of
    the default tests."""
    cache: pytest.Cache | None = getattr(config, "cache", None)
    if cache is not None:
        os.environ["CFLJAX_CACHE"] = str(cache.mkdir("programs"))


def pytest_configure(config: pytest.Config) -> None:
    """Flags of XLA, which reads them when the first array is made."""
    if sys.dont_write_bytecode and "PYTHONDONTWRITEBYTECODE" in os.environ:
        share_bytecode(config)
    os.environ["CFLJAX_CACHE"] = "off"  # The user's own is no business of tests.
    if "not slow" in config.option.markexpr:
        os.environ.setdefault("XLA_FLAGS", QUICK_TO_COMPILE)
        share_contexts()
        share_programs()
        keep_programs(config)


SHARED = pathlib.Path(__file__).resolve().parents[2] / "shared"


def _forget_programs() -> None:
    """Free compiled programs where three quarters of the mappings of memory are in use
    that Linux allows a process, 65,530: each program has several."""
    mappings = pathlib.Path("/proc/self/maps")
    if mappings.exists() and mappings.read_bytes().count(b"\n") > 65_530 * 3 // 4:
        PROGRAMS.clear()
        jax.clear_caches()


def _freeze() -> None:
    """Collections no longer go through what is there now."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)  # Before those are left out that nobody asked for.
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What asks for the real data is long: unpacking them takes seconds."""
    for item in items:
        if "real_data" in getattr(item, "fixturenames", ()):
            item.add_marker("long")


def pytest_collection_finish() -> None:
    """All modules stay until the end; nothing was compiled before."""
    importlib.import_module("cfljax.engine.cache").keep_programs()
    _freeze()


def pytest_sessionfinish() -> None:
    """pytest then collects five times, looking for lost errors: once is enough."""
    _freeze()


@pytest.fixture(scope="module", autouse=True)
def forgotten_programs() -> Iterator[None]:
    """Keeps what all modules compile below what Linux allows."""
    yield
    _forget_programs()


@pytest.fixture
def few_programs() -> Iterator[None]:
    """The same after each test of a module that alone makes too many."""
    yield
    _forget_programs()


@pytest.fixture
def refuse_work(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Once called, a sweep fails unless it finds all done."""
    module = importlib.import_module("cfljax.engine.sweeps")
    return functools.partial(monkeypatch.setattr, module, "_Run", None)


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
    """A folder with the original files of the real data sets, one for all workers."""
    base = tmp_path_factory.getbasetemp()
    common = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = common / "data"
    if not folder.is_dir():
        fresh = tmp_path_factory.mktemp("data")
        prepare = shared / "data" / "prepare.py"
        subprocess.run([sys.executable, str(prepare), str(fresh)], check=True)
        try:
            fresh.rename(folder)
        except OSError:  # Another worker was faster.
            shutil.rmtree(fresh)
    return folder


@pytest.fixture
def unchecked() -> Iterator[None]:
    """As for users, whose types nothing checks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
