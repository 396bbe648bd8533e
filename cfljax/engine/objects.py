"""Objects: a store in a bucket of an object store, which any number of runs may fill.

    s3://BUCKET/PREFIX/             cells, code, states, provenance.json and
                                    failures.jsonl, see `store`
    s3://BUCKET/PREFIX/claims.json  which run computes which block, see `Leases`
    s3://BUCKET/PREFIX/alive/<run>  written again and again while the run lives

What is read lies in a folder of this process meanwhile, so that all else reads files.
What counts is in the bucket, and each write that could undo another run's is
conditional: a new object is made where there is none (`If-None-Match`), and one that
was read is replaced if it is still the same (`If-Match`), else read and thought over
again. So nothing is locked, and a run that was suspended, however long, replaces
nothing that it has not seen. Servers that do not keep to conditions are refused.

Credentials, region and endpoint are those of the environment, as AWS's own tools read
them: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN`, `AWS_REGION`,
`AWS_ENDPOINT_URL`, or a container's role. Without encryption a server is spoken to on
this machine alone, or with `AWS_ALLOW_HTTP=true`.
"""

import atexit
import contextlib
import datetime
import json
import math
import os
import pathlib
import random
import re
import shutil
import tempfile
import threading
import time
import urllib.parse
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeGuard

from cfljax.base.durable import replacing
from cfljax.engine.claims import Claims
from cfljax.engine.kept import StoreError

# Seconds after which a run that has not been heard of counts as dead, by the server's
# clock, and between two signs of life. All runs on a store must agree on them.
LEASE, BEAT = 60.0, 10.0
PATIENCE = 60.0  # Seconds in which a server that went away may come back.
_OPENING = 5.0  # Seconds in which one must be there at first.
_ANSWER = 20.0  # Seconds that an answer may take.
_PAUSE = 0.2  # Seconds from a broken connection to the next one.
_ATTEMPTS = 200  # Of a write that other runs are always faster than.
_READERS = 16  # Objects that are read at once.
_CLAIMS, _ALIVE = "claims.json", "alive"
_OWN = {"cells", "code", "states", _ALIVE, _CLAIMS, "provenance.json", "failures.jsonl"}
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.*", re.IGNORECASE)
_PLACE = re.compile(
    r"s3://(?P<bucket>[a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?P<prefix>/.*)?"
)
_CREDENTIALS = (
    *("AWS_ACCESS_KEY_ID", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_SKIP_SIGNATURE"),
    *("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
    "AWS_METADATA_ENDPOINT",
)
_RESUMES = "What is done stays done; run again to resume."


class Objects:
    """The objects of a store, and the folder of this process that holds those it read.

    Args:
      url: such as s3://bucket/prefix.

    Raises:
      StoreError: if it is no such place, obstore or credentials are missing, there is
        no such bucket, no server answers, or something else lies there.
    """

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        connect = _connection(self.url)
        # While a server is away, only the first who asks is patient.
        self._hasty, self._patient = connect(_OPENING), connect(PATIENCE)
        self._store = self._hasty
        with self._errors():
            found = self._store.list_with_delimiter()
        tops = [*found["common_prefixes"], *(one["path"] for one in found["objects"])]
        if strange := sorted({top.strip("/") for top in tops} - _OWN):
            raise StoreError(
                f"`{self.url}` is not a store of results: it has `{strange[0]}`; choose"
                " another prefix."
            )
        self._tags: dict[str, str | None] = {}  # Of what the folder has.
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="cfljax_objects_"))
        atexit.register(shutil.rmtree, self.folder, ignore_errors=True)

    def sizes(self, prefix: str) -> dict[str, int]:
        """Bytes of all objects whose names begin so."""
        return {one["path"]: one["size"] for one in self._list(prefix)}

    def times(self, prefix: str) -> dict[str, datetime.datetime]:
        """When they were last written, by the server's clock."""
        return {one["path"]: one["last_modified"] for one in self._list(prefix)}

    def pull(self, prefix: str = "", wanted: Callable[[str], bool] = bool) -> None:
        """Let the folder have of all objects whose names begin so, if they are wanted,
        what the bucket has: new and changed ones are read, others deleted."""
        every = {one["path"]: one["e_tag"] for one in self._list(prefix)}
        found = {name: tag for name, tag in every.items() if wanted(name)}
        for name in [own for own in self._tags if own.startswith(prefix)]:
            if wanted(name) and name not in found:
                self._forget(name)
        new = [name for name, tag in found.items() if self._tags.get(name) != tag]
        with self._errors(), ThreadPoolExecutor(_READERS) as pool:
            list(pool.map(self._fetch, new))

    def push(self, name: str) -> bool:
        """Put a file of the folder where the bucket has nothing, or what was last read
        of this name; whether it was put, and no other run's is there now."""
        content = (self.folder / name).read_bytes()
        there, tag = content, self._put(name, content, self._tags.get(name))
        if tag is None:  # It may be this one, if only the answer was lost.
            there, tag = self._get(name)
        if there == content:
            self._tags[name] = tag
        return there == content

    def put(self, name: str, content: bytes) -> None:
        """Put what no other run would put otherwise, or what is worth as much."""
        with self._errors():
            done = self._store.put(name, content, use_multipart=False)
        self._tags[name] = done["e_tag"]

    def update(self, name: str, change: Callable[[bytes], bytes | None]) -> bool:
        """Replace an object by what is made of it, losing nothing that others put.

        Args:
          name: of the object.
          change: its content, empty if there is none -> the new one, or None to leave
            it as it is; may be asked again with what another run has put meanwhile.

        Returns:
          Whether there was something to change to.
        """
        for attempt in range(_ATTEMPTS):
            before, tag = self._get(name)
            after = change(before)
            if after is None:
                return False
            if after == before or self._put(name, after, tag) is not None:
                return True
            time.sleep(random.random() * min(1.0, 0.01 * 2**attempt))
        raise StoreError(f"`{self.url}/{name}` is written by too many runs. {_RESUMES}")

    def read(self, name: str) -> bytes:
        """An object's content, empty if there is none."""
        return self._get(name)[0]

    def delete(self, name: str) -> None:
        """Delete an object, which may be missing, and the folder's file."""
        with self._errors(), contextlib.suppress(FileNotFoundError):
            self._store.delete(name)
        self._forget(name)

    def must_refuse(self, name: str) -> None:
        """Raises StoreError if the server replaces an object that is there where none
        should be, or where another one should be."""
        tags = self._put(name, b"new", None), self._put(name, b"other", '"another"')
        if tags != (None, None):
            raise StoreError(
                f"the server of `{self.url}` does not keep to conditions of writes"
                " (If-None-Match, If-Match), so that runs would undo each other's;"
                " choose another, or a folder."
            )

    def _list(self, prefix: str) -> list[Any]:
        """Objects whose names begin so, and could be those of files below a folder."""
        # The server is asked for whole folders.
        above = prefix.rpartition("/")[0] or None
        with self._errors():
            found = [one for page in self._store.list(above) for one in page]
        is_plain = lambda name: ".." not in pathlib.PurePosixPath(name).parts
        own = [one for one in found if one["path"].startswith(prefix)]
        return [one for one in own if is_plain(one["path"])]

    def _get(self, name: str) -> tuple[bytes, str | None]:
        """Content and tag, both empty if there is no such object."""
        with self._errors():
            try:
                found = self._store.get(name)
                return bytes(found.bytes()), found.meta["e_tag"]
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return b"", None

    def _put(self, name: str, content: bytes, tag: str | None) -> str | None:
        """Put where nothing is, or what has the tag; the new one, None if something
        else is there, which may be this one: where a connection breaks it may have been
        put, and is tried again, which obstore leaves to its callers."""
        from obstore import exceptions

        mode: Any = "create" if tag is None else {"e_tag": tag}
        patience = PATIENCE if self._store is self._patient else _OPENING
        end = time.monotonic() + patience
        with self._errors():
            while True:
                try:
                    done = self._store.put(
                        name, content, mode=mode, use_multipart=False
                    )
                    return done["e_tag"]
                except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
                    return None
                except exceptions.BaseError as error:
                    if not _is_unanswered(error) or time.monotonic() > end:
                        raise
                time.sleep(_PAUSE)

    def _fetch(self, name: str) -> None:
        """Copy an object into the folder, in pieces, however large it is."""
        try:
            found = self._store.get(name)
        except FileNotFoundError:  # Another run's, of a moment ago.
            return
        with replacing(self.folder / name, is_durable=False) as partial:
            with partial.open("wb") as file:
                for piece in found.stream():
                    file.write(piece)
            written = found.meta["last_modified"].timestamp()
            os.utime(partial, (written, written))
        self._tags[name] = found.meta["e_tag"]

    def _forget(self, name: str) -> None:
        self._tags.pop(name, None)
        (self.folder / name).unlink(missing_ok=True)

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn whatever goes wrong into a `StoreError` of one line."""
        from obstore.exceptions import BaseError

        try:
            yield
        except (OSError, BaseError) as error:
            self._store = self._hasty
            reason = _reason(error, self.url)
            raise StoreError(
                f"cannot use `{self.url}`: {reason}. {_RESUMES}"
            ) from error
        self._store = self._patient


class Leases:
    """The blocks that one sweep claims of a store in a bucket.

    One object, `claims.json`, says which run holds which block, and is only replaced as
    a whole, if it is what was read before. While it lives, a run writes `alive/<run>`
    every `BEAT` seconds. One whose last sign is older than `LEASE` seconds holds
    nothing any more; both times are of the server's clock. A run that was suspended
    for so long is told so before it writes a block; should it be suspended between
    these two, it replaces nothing, as the block is put where none is.

    Args:
      objects: of the store.

    Raises:
      StoreError: if the server refuses, or does not keep to conditions.
    """

    def __init__(self, objects: Objects) -> None:
        self._objects = objects
        self.folder = objects.folder  # For writing, as of `Claims`.
        self._run = uuid.uuid4().hex
        self._held: set[str] = set()
        self._refusers: set[str] = set()  # Runs that hold what was asked for,
        self._met: dict[str, datetime.datetime] = {}  # and of when their sign was then.
        self._times: dict[str, datetime.datetime] = {}  # Of all signs of life,
        self._asked = -math.inf  # as they were at this time.
        self._beat()
        objects.must_refuse(self._sign)
        self._is_over = threading.Event()
        self._beating = threading.Thread(target=self._live, daemon=True)
        self._beating.start()

    def __enter__(self) -> "Leases":
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._beating.join(1.0)  # It may wait for a server that is away.
        with contextlib.suppress(StoreError):  # Then the lease ends by itself.
            self._objects.delete(self._sign)

    @property
    def _sign(self) -> str:
        return f"{_ALIVE}/{self._run}"

    def _beat(self) -> None:
        self._objects.put(self._sign, self._run.encode())

    def _live(self) -> None:
        while not self._is_over.wait(BEAT):
            with contextlib.suppress(StoreError):  # Who computes is told of it, too.
                self._beat()

    def check(self) -> None:
        """Raises StoreError if another run has taken over what this one holds."""
        held = _table(self._objects.read(_CLAIMS))
        if any(held.get(name) != self._run for name in self._held):
            raise StoreError(
                f"`{self._objects.url}`: this run was suspended, or could not reach the"
                f" server, for more than {LEASE:g} seconds, and another one has taken"
                f" over what it computed. {_RESUMES}"
            )

    def rewrite(self, name: str, change: Callable[[bytes], bytes]) -> None:
        """Replace what all runs write by what is made of it, see `Objects.update`."""
        self._objects.update(name, change)

    def append(self, name: str, line: str) -> None:
        """Add a line to what all runs write."""
        own = line.encode()

        def longer(old: bytes) -> bytes:
            if own in old:  # It was put, and only the answer was lost.
                return old
            return old + (b"" if old.endswith(b"\n") or not old else b"\n") + own

        self._objects.update(name, longer)

    @contextlib.contextmanager
    def claim(self, names: Sequence[str]) -> Iterator[bool]:
        """As `Claims.claim`."""
        is_mine = self._objects.update(_CLAIMS, lambda old: self._with(old, names))
        self._held |= set(names) if is_mine else set()
        try:
            yield is_mine
        finally:
            if is_mine:
                self._held -= set(names)
                with contextlib.suppress(StoreError):  # Whose next use says it.
                    self._objects.update(_CLAIMS, lambda old: self._without(old, names))

    def _with(self, old: bytes, names: Sequence[str]) -> bytes | None:
        """The table with some blocks as this run's; None if another run has one."""
        held = _table(old)
        if others := {held[name] for name in names if name in held} - {self._run}:
            alive = self._heard_of(set(held.values()))
            if found := others & alive.keys():
                self._refusers |= found
                self._met = {run: alive[run] for run in found} | self._met
                return None
            held = {name: run for name, run in held.items() if run in alive}
        return _text(held | dict.fromkeys(names, self._run))

    def _without(self, old: bytes, names: Sequence[str]) -> bytes:
        held = _table(old)
        mine = {name for name in names if held.get(name) == self._run}
        return _text({name: run for name, run in held.items() if name not in mine})

    def _heard_of(self, runs: set[str]) -> dict[str, datetime.datetime]:
        """When each run was last heard of whose lease is not over, this one just now;
        of the others nothing stays. Asked anew if it does not know one of some runs,
        which may have just begun."""
        is_new = time.monotonic() - self._asked < BEAT / 10
        if is_new and runs <= self._times.keys():
            return self._times
        self._beat()
        found = self._objects.times(f"{_ALIVE}/")
        now, lease = found[self._sign], datetime.timedelta(seconds=LEASE)
        over = {name for name, last in found.items() if now - last > lease}
        for name in over:
            self._objects.delete(name)
        self._times = {
            name.rpartition("/")[2]: last
            for name, last in found.items()
            if name not in over
        }
        self._asked = time.monotonic()
        return self._times

    def may_be_over(self) -> bool:
        """Whether a run that held what was asked for since the last question may have
        died: it has not been heard of since this one met it."""
        runs, self._refusers = self._refusers, set()
        times = self._heard_of(runs)
        return any(times.get(run, self._met[run]) == self._met[run] for run in runs)


def _table(content: bytes) -> dict[str, str]:
    """Which run holds which block; nothing of what is damaged, as blocks are safe
    without."""
    try:
        found = json.loads(content or b"{}")
        return {str(name): str(run) for name, run in found.items()}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _text(held: dict[str, str]) -> bytes:
    return json.dumps(held, indent=0, sort_keys=True).encode()


# Those that this process has opened, by URL and server, and by their folders.
_OPENED: dict[tuple[str, str], Objects] = {}


def is_url(path: str | os.PathLike[str]) -> TypeGuard[str]:
    """Whether a store is no folder."""
    return isinstance(path, str) and _URL.fullmatch(path) is not None


def folder_of(path: str | os.PathLike[str]) -> pathlib.Path:
    """The folder of a store: itself, or of a URL that of this process.

    Raises:
      StoreError: as `Objects`.
    """
    if not is_url(path):
        return pathlib.Path(path)
    key = path, _endpoint()
    if key not in _OPENED:
        _OPENED[key] = Objects(path)
    return _OPENED[key].folder


def fetched(url: str) -> pathlib.Path:
    """The folder of this process with all that a store in a bucket has of results.

    Raises:
      StoreError: as `Objects`, and if there is none.
    """
    folder = folder_of(url)
    own = behind(folder)
    assert own is not None  # As it is a URL.
    own.pull(wanted=lambda name: name.split("/")[0] not in (_ALIVE, _CLAIMS))
    if not any(folder.iterdir()):
        raise StoreError(f"there is no `{url}`.")
    return folder


def behind(folder: pathlib.Path) -> Objects | None:
    """The objects of which a folder holds what was read, if it does."""
    return next((own for own in _OPENED.values() if own.folder == folder), None)


def saved(file: pathlib.Path) -> None:
    """Put a file that a run goes on from, where its folder is that of objects."""
    for own in _OPENED.values():
        if file.is_relative_to(own.folder):
            own.put(str(file.relative_to(own.folder)), file.read_bytes())


def claims_on(folder: pathlib.Path) -> Claims | Leases:
    """What one sweep claims of a store, of whichever kind."""
    own = behind(folder)
    return Claims(folder) if own is None else Leases(own)


def _endpoint() -> str:
    """The server that the environment names, empty for AWS's own."""
    names = "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"
    return next(filter(None, map(os.environ.get, names)), "")


def _connection(url: str) -> Callable[[float], Any]:
    """What opens a bucket, given the seconds for which its server may be away.

    Raises:
      StoreError: if it cannot be opened, before any server is asked.
    """
    match = _PLACE.fullmatch(url)
    prefix = ("" if match is None else match["prefix"] or "").strip("/")
    parts = prefix.split("/") if prefix else []
    if match is None or {"", ".", ".."} & set(parts):
        raise StoreError(
            f"`{url}` is no place for a store: give s3://BUCKET/PREFIX, or a folder."
        )
    try:
        from obstore.store import S3Store
    except ImportError:
        raise StoreError(
            f"`{url}` needs obstore; install the extra `s3`, or it alone: `python -m"
            " pip install obstore`."
        ) from None
    if not any(os.environ.get(name) for name in _CREDENTIALS):
        raise StoreError(
            f"there are no credentials for `{url}`: set AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY."
        )
    endpoint = _endpoint()
    parsed = urllib.parse.urlparse(endpoint)
    is_near = parsed.hostname in ("localhost", "127.0.0.1", "::1")
    is_open = os.environ.get("AWS_ALLOW_HTTP", "").lower() in ("1", "true", "yes")
    if endpoint and parsed.scheme not in ("http", "https"):
        raise StoreError(f"AWS_ENDPOINT_URL must be a URL of http, got {endpoint!r}.")
    if parsed.scheme == "http" and not is_near and not is_open:
        raise StoreError(
            f"{endpoint} is not encrypted; set AWS_ALLOW_HTTP=true if that is meant."
        )
    config: Any = {"conditional_put": "etag"}
    if endpoint:
        config |= {"endpoint": endpoint}
    if not any(os.environ.get(name) for name in ("AWS_REGION", "AWS_DEFAULT_REGION")):
        config |= {"region": "us-east-1"}  # As others have it.

    def connect(patience: float) -> Any:
        return S3Store(
            match["bucket"],
            prefix=prefix or None,
            config=config,
            client_options={
                "allow_http": parsed.scheme == "http",
                "connect_timeout": datetime.timedelta(seconds=_ANSWER / 4),
                "timeout": datetime.timedelta(seconds=_ANSWER),
            },
            retry_config={
                "max_retries": 100,
                "retry_timeout": datetime.timedelta(seconds=patience),
                "backoff": {"max_backoff": datetime.timedelta(seconds=2)},
            },
        )

    return connect


def _is_unanswered(error: Exception) -> bool:
    """Whether it is of a connection, and not what a server says."""
    return "HTTP error" in str(error)


def _reason(error: Exception, url: str) -> str:
    """What a server or the way to it said, in a few words."""
    from obstore import exceptions

    text = str(error)
    if "NoSuchBucket" in text:
        return f"there is no bucket {url.split('/')[2]!r}"
    denied = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError
    if isinstance(error, denied):
        return (
            "access is denied; AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION"
            " must be right"
        )
    if isinstance(error, OSError) and error.errno:
        return os.strerror(error.errno)
    if code := re.search(r"<Code>(\w+)</Code>", text):
        return f"the server says {code[1]}"
    if _is_unanswered(error):
        return f"no server answers at {_endpoint() or 'that of AWS'}"
    return " ".join(text.split())[:200] or type(error).__name__
