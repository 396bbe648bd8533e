"""Processes: several of them, on any machines, that compute one thing together.

    with cfl.engine.clients_over_processes("10.0.0.1:1234", (1, 2)):  # and (2, 2)
        state, seen = cfl.run(algorithm, key, data, num_rounds=300)

All of them run the same program from beginning to end. `run` spreads clients over the
devices of all; of a `sweep` the first process has the store, and the others compute
what it asks them to. JAX joins them (`jax.distributed`); whatever else they tell each
other goes through `gathered`, and nothing else here communicates.
"""

import collections
import contextlib
import logging
import math
import os
import pickle
import re
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, TypeVar

import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array

from cfljax.federated.backend import CLIENTS

log = logging.getLogger(__name__)

T = TypeVar("T")
Act = Callable[..., Any]
Place = tuple[int, int]

LOST = 3  # Exit status of a process that has lost another.
JOINING = 60.0  # Seconds that processes wait for each other in the beginning.
_SILENCE = 30  # Seconds without a sign of life after which a process is lost.
_BEAT = 1.0  # Seconds from one sign of life to the next.
_GOODBYE, _COME = b"!", b"come"
_GRACE = 5.0  # Seconds that a process may take to end by itself.
_LOOK = 0.2  # Seconds from one look for the first process to the next.
_FRAME = 4096  # Bytes that are sent at first; what is longer follows.
_ENDING = threading.Lock()
_number = 1  # Of processes that compute together at this point of the program.


def num_processes() -> int:
    """Processes that compute together at this point of the program."""
    return _number


def is_first() -> bool:
    """Whether this process is the one that has files."""
    return _number == 1 or jax.process_index() == 0


@contextlib.contextmanager
def clients_over_processes(
    coordinator: str | None = None,
    place: Place | None = None,
    *,
    seconds: float = JOINING,
) -> Iterator[int]:
    """Inside, this process and others compute together what each of them calls.

    They must call the same, in the same order: `run` outside of `jit` and the like
    spreads clients over the devices of all processes, returns the same in all, and has
    its checkpoints written by the first. `sweep` uses the store of the first process,
    whatever `path` the others name; of trials that are runs of many rounds
    (`by_rounds`) it spreads clients, and trials of all others. On CPUs the results are
    the same bits as those of one process, but for the rounds of which `run` says that
    they have other last bits on each number of devices.

    Where a process ends inside, by an exception or otherwise, or gives no sign of life
    for half a minute, the others say so in one line and end with status 3. To be
    entered before JAX is used, once in a process.

    Whoever reaches the address may join, and is trusted as this program is: name one
    that only these machines reach.

    Args:
      coordinator: `HOST:PORT` of the first process, where it listens. None with `place`
        None: as Slurm, Open MPI or Kubernetes have started them, see
        `jax.distributed.initialize`.
      place: `(i, n)`, this is process i of n, from 1.
      seconds: that the others may take to come.

    Yields:
      The number of processes.

    Raises:
      ValueError: if an argument is out of its range, JAX has started, or the others do
        not come or have another number of devices.
    """
    global _number
    if _number > 1:
        raise ValueError("`clients_over_processes` cannot be entered twice.")
    _join(coordinator, place, seconds)
    watch = None
    _number = jax.process_count()
    try:
        _check_devices()
        watch = _Watch(coordinator and _address(coordinator)[0])
        if jax.default_backend() == "cpu":  # It would abort where one is lost.
            jax.distributed.shutdown()
        log.info("process %d of %d", jax.process_index() + 1, _number)
        yield _number
        gathered(None)  # Nobody leaves before all are here.
        watch.say_goodbye()
    finally:
        if watch is not None:
            watch.is_over.set()
        _number = 1


class _Watch:
    """A thread that ends this process when another one does: the first has a connection
    to each of the others, over which both give signs of life.

    Args:
      host: where the first listens; None for all of its addresses.
    """

    def __init__(self, host: str | None) -> None:
        self.is_over = threading.Event()
        token, listening = secrets.token_bytes(16), None
        address: Any = None
        if is_first():
            listening = _listening(host or "", 0)
            address = host or socket.gethostname(), listening.getsockname()[1]
        (address, token), *_ = _quietly(lambda: _meet((address, token)))
        if listening is None:
            self._ends = [socket.create_connection(address, timeout=_SILENCE)]
            self._ends[0].sendall(token)
        else:
            self._ends = []
            with listening:
                listening.settimeout(_SILENCE)
                while len(self._ends) < _number - 1:
                    end, _ = listening.accept()
                    end.settimeout(_SILENCE)
                    if secrets.compare_digest(_received(end, len(token)), token):
                        self._ends.append(end)
        for end in self._ends:
            end.settimeout(_SILENCE)
            for act in (self._beat, self._listen):
                threading.Thread(target=act, args=(end,), daemon=True).start()

    def _beat(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):  # The other thread hears of it.
            while not self.is_over.wait(_BEAT):
                end.sendall(b".")
            end.shutdown(socket.SHUT_WR)

    def _listen(self, end: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while told := end.recv(64):
                if _GOODBYE in told:
                    return
        # It may have ended by what ends this one too, which then says it itself.
        if not self.is_over.wait(_GRACE):
            _end_lost()

    def say_goodbye(self) -> None:
        """Let the others know that all is well when this process ends."""
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.sendall(_GOODBYE)


def _meet(value: T) -> list[T]:
    """`gathered`, and whoever will compute together knows each other."""
    _frames(b"hello", mesh(1))
    return gathered(value)


def _received(end: socket.socket, size: int) -> bytes:
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < size and (more := end.recv(size - len(found))):
            found += more
    return found


def _quietly(function: Callable[[], T]) -> T:
    """Call what meets the others for the first time, of which gloo tells the standard
    output."""
    if sys.stdout is not None:
        sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        return function()
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)


@contextlib.contextmanager
def losses() -> Iterator[None]:
    """Inside, whatever meets the end of another process ends this one."""
    try:
        yield
    except (jax.errors.JaxRuntimeError, ValueError) as error:
        # Not of devices that have never met, which is an error in this program.
        if _number > 1 and re.search("Gloo (?!context init)", str(error)):
            _end_lost()
        raise


def _end_lost() -> NoReturn:
    """One line, and the end, without waiting for anybody."""
    _ENDING.acquire()  # By whichever thread comes first.
    print(
        "error: another process has ended, or cannot be reached any more; what is done"
        " stays done, start all of them again to resume.",
        file=sys.stderr,
        flush=True,
    )
    os._exit(LOST)


def mesh(number: int | None = None) -> jax.sharding.Mesh:
    """The first devices of each process, all if None, along one axis, `clients`."""
    every = [jax.local_devices()]
    if _number > 1:
        every = [jax.local_devices(process_index=index) for index in range(_number)]
    devices = [device for own in every for device in own[:number]]
    auto = (jax.sharding.AxisType.Auto,)
    return jax.make_mesh((len(devices),), (CLIENTS,), auto, devices=devices)


def gathered(value: T) -> list[T]:
    """Such values of all processes, in their order, on all of them; each must call."""
    if _number == 1:
        return [value]
    own = pickle.dumps(value)
    own = len(own).to_bytes(8, "big") + own
    with losses():
        frames = _frames(own[:_FRAME].ljust(_FRAME, b"\0"), mesh())
        sizes = [8 + int.from_bytes(frame[:8], "big") for frame in frames]
        if max(sizes) > _FRAME:  # Of few lengths, as each is a program.
            length = 1 << (max(sizes) - 1).bit_length()
            frames = _frames(own.ljust(length, b"\0"), mesh())
    return [pickle.loads(frame[8:]) for frame in frames]


def _frames(own: bytes, everywhere: jax.sharding.Mesh) -> list[bytes]:
    """As many bytes of each process, by way of some of their devices."""
    rows = [
        jax.device_put(np.frombuffer(own, np.uint8)[None], device)
        for device in everywhere.local_devices
    ]
    shape = everywhere.size, len(own)
    where = NamedSharding(everywhere, PartitionSpec(CLIENTS))
    table = jax.make_array_from_single_device_arrays(shape, where, rows)
    same = jax.jit(_same, out_shardings=NamedSharding(everywhere, PartitionSpec()))
    found = np.asarray(same(table))
    return [row.tobytes() for row in found[:: everywhere.size // _number]]


def _same(table: Array) -> Array:
    return table


def shared(make: Callable[[], T]) -> T:
    """What a function returns on the first process, on all; what it raises there is
    raised on all."""
    if _number == 1:
        return make()
    told: tuple[Any, Exception | None] = None, None
    value: Any
    if is_first():
        try:
            told = make(), None
        except Exception as error:
            told = None, portable(error)
    value, error = gathered(told)[0]
    if error is not None:
        raise error
    return value


def portable(error: Exception) -> Exception:
    """The error, or one that says the same if it cannot be sent to other processes."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # Whatever its own class raises.
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def clock() -> float:
    """Seconds of the first process: what is decided by them is decided alike."""
    return shared(time.monotonic)


def check_alike(about: Mapping[str, Any]) -> None:
    """Raises ValueError on all processes, naming the first entry that differs, unless
    all give the same plain data."""
    first, *others = gathered(dict(_flat(about)))
    for index, other in enumerate(others):
        for name in {**first, **other}:
            if (mine := first.get(name)) != (own := other.get(name)):
                raise ValueError(
                    f"all processes must compute the same, but `{name}` is {mine!r} in"
                    f" process 1 and {own!r} in process {index + 2}."
                )


def _flat(about: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The entries of nested data by the names on the way to them."""
    for name, value in about.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{above}{name}: ")
        else:
            yield above + name, value


def lead(function: Callable[[Callable[[Act], Act]], T]) -> T:
    """Call a function on the first process that has work for all: an act that is given
    to its argument becomes one which all processes do, of arguments that can be
    pickled.

    Returns:
      What the function returns, on `follow` too.
    """

    def together(act: Act) -> Act:
        def ask(*arguments: Any) -> Any:
            gathered(("act", arguments))
            return act(*arguments)

        return ask

    try:
        found = function(together)
    except Exception as error:
        gathered(("raise", portable(error)))
        raise
    gathered(("return", found))
    return found


def follow(act: Act) -> Any:
    """Do the act of `lead` whenever the first process asks for it, and return or raise
    what is returned or raised there in the end."""
    nothing: Any = None
    while True:
        kind, told = gathered(nothing)[0]
        if kind == "return":
            return told
        if kind == "raise":
            raise told
        with contextlib.suppress(Exception):  # The first has it too, and deals with it.
            act(*told)


def part(indices: slice) -> slice:
    """The share of this process in a range of indices; some may be empty."""
    each = -(-(indices.stop - indices.start) // _number)
    start = indices.start + each * (jax.process_index() if _number > 1 else 0)
    return slice(min(start, indices.stop), min(start + each, indices.stop))


def _join(coordinator: str | None, place: Place | None, seconds: float) -> None:
    """Have JAX know the others."""
    if (coordinator is None) != (place is None):
        raise ValueError("`coordinator` and `place` belong together: both or none.")
    how: dict[str, Any] = {}
    if coordinator is not None and place is not None:
        host, port = _address(coordinator)
        if len(place) != 2 or not 1 <= place[0] <= place[1]:
            raise ValueError(f"`place` must be (i, n), 1 <= i <= n, got {place!r}.")
        if place[0] == 1:
            _gather(host, port, place[1], seconds)
        else:
            _come(host, port, place[0], seconds)
        how = {
            "coordinator_address": coordinator,
            "coordinator_bind_address": coordinator,
            "process_id": place[0] - 1,
            "num_processes": place[1],
        }
    # It would take the signal by which a scheduler ends a process for one to go on.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(**how, initialization_timeout=math.ceil(seconds))
    except (RuntimeError, ValueError) as error:
        where = coordinator or "the address that the scheduler names"
        reason = str(error).splitlines()[0]
        raise ValueError(
            f"`coordinator`: the processes did not meet at {where} within {seconds:g}"
            f" seconds: {reason}"
        ) from error


def _check_devices() -> None:
    """Raises ValueError, on all processes, unless they have equally many devices."""
    counts = collections.Counter(device.process_index for device in jax.devices())
    for index, count in counts.items():
        if count != counts[0]:
            raise ValueError(
                "all processes must have equally many devices, process 1 has"
                f" {counts[0]} and process {index + 1} has {count}; say how many by"
                " `use_cores`, `--devices`."
            )


def _address(coordinator: str) -> tuple[str, int]:
    host, _, port = coordinator.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise ValueError(
            f"`coordinator` must be HOST:PORT, such as 10.0.0.1:1234, got"
            f" {coordinator!r}."
        )
    return host.strip("[]"), int(port)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, port), family=family)


def _gather(host: str, port: int, number: int, seconds: float) -> None:
    """Let all processes go on once the others have come to this one, the first. JAX,
    which begins at the same place then, would abort where one does not come.

    Raises:
      ValueError: where it cannot listen, or they do not come in time.
    """
    end = time.monotonic() + seconds
    came: dict[int, socket.socket] = {}
    with contextlib.ExitStack() as opened:
        try:
            listening = opened.enter_context(_listening(host, port))
        except OSError as error:
            raise ValueError(
                f"`coordinator`: process 1 cannot listen at {host}:{port}:"
                f" {error.strerror}; name an address of this machine and a free port."
            ) from error
        while len(came) < number - 1:
            listening.settimeout(max(end - time.monotonic(), 1e-3))
            try:
                other, _ = listening.accept()
            except TimeoutError:
                lacking = sorted({*range(2, number + 1)} - {*came})
                raise ValueError(
                    f"`coordinator`: the processes did not meet at {host}:{port} within"
                    f" {seconds:g} seconds: of {number}, {lacking} did not come."
                ) from None
            opened.enter_context(other)
            other.settimeout(_GRACE)
            with contextlib.suppress(OSError):  # Not one of them.
                if 1 < (place := int.from_bytes(_received(other, 4))) <= number:
                    came[place] = other
        for other in came.values():
            with contextlib.suppress(OSError):
                other.sendall(_COME)
                other.recv(1)  # They leave first, so that the place is free at once.


def _come(host: str, port: int, place: int, seconds: float) -> None:
    """Tell the first process that this one is there, and wait until all are.

    Raises:
      ValueError: where it does not answer, or the others do not come in time.
    """
    with _connected(host, port, seconds) as first:
        first.settimeout(seconds + _GRACE)
        with contextlib.suppress(OSError):
            first.sendall(place.to_bytes(4))
            if _received(first, len(_COME)) == _COME:
                return
    raise ValueError(
        f"`coordinator`: the processes did not meet at {host}:{port} within"
        f" {seconds:g} seconds; start all of them, each with a place of its own."
    )


def _connected(host: str, port: int, seconds: float) -> socket.socket:
    """A connection to the first process; ValueError if it does not listen in time."""
    end = time.monotonic() + seconds
    while True:
        try:
            return socket.create_connection((host, port), timeout=seconds)
        except OSError as error:
            if time.monotonic() > end:
                raise ValueError(
                    f"`coordinator`: no process 1 answers at {host}:{port} within"
                    f" {seconds:g} seconds: {error.strerror or error}; start it, or"
                    " name the address that it was given."
                ) from error
            time.sleep(_LOOK)
