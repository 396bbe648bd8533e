"""A disk that loses power: all that was not synced may be gone, as POSIX allows it.

    python tests/power.py FOLDER HONOURED...

mounts it on an empty folder, in memory, until it is unmounted. A file's content is
safe since its `fsync`, a name of a folder since the `fsync` of that folder, and nothing
else is; of `files` and `folders` only what is HONOURED: `fsync` of the others says that
it did, and does nothing. `lose_power` takes the power away.
"""

import contextlib
import dataclasses
import errno
import os
import pathlib
import random
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

_POWER = "user.power"  # Of the root: written to when it goes.


@dataclasses.dataclass
class Node:
    """A file or folder: what is there, and what the disk has of it."""

    number: int
    is_folder: bool
    mode: int
    content: bytearray = dataclasses.field(default_factory=bytearray)
    names: "dict[str, Node]" = dataclasses.field(default_factory=dict)
    safe_content: bytes = b""
    safe_names: "dict[str, Node]" = dataclasses.field(default_factory=dict)
    changed: int = dataclasses.field(default_factory=time.time_ns)

    def sync(self) -> None:
        """The disk has all of it."""
        self.safe_content, self.safe_names = bytes(self.content), dict(self.names)

    def lose(self, chance: random.Random, is_worst: bool, seen: set[int]) -> None:
        """Be what the disk has; of what was not synced chance decides, or all goes."""
        if self.number in seen:
            return
        seen.add(self.number)
        if self.is_folder:
            self.names = self._some_names(chance, is_worst)
            for node in self.names.values():
                node.lose(chance, is_worst, seen)
        elif bytes(self.content) != self.safe_content and not is_worst:
            kept = chance.choice([self.safe_content, self._torn(chance)])
            self.content = bytearray(kept)
        else:
            self.content = bytearray(self.safe_content)
        self.sync()

    def _some_names(self, chance: random.Random, is_worst: bool) -> "dict[str, Node]":
        found = dict(self.safe_names)
        for name in sorted({*self.names, *self.safe_names}):
            if not is_worst and chance.random() < 0.5:  # In whatever order.
                if name in self.names:
                    found[name] = self.names[name]
                else:
                    found.pop(name)
        return found

    def _torn(self, chance: random.Random) -> bytes:
        """A part of what was written, or as much of nothing."""
        whole = bytes(self.content)
        part = whole[: chance.randrange(len(whole) + 1)]
        return chance.choice([part, bytes(len(whole)), part.ljust(len(whole), b"\0")])


def serve(folder: str, honoured: set[str]) -> None:
    """Be the disk, until it is unmounted."""
    import mfusepy

    def fail(number: int) -> Any:
        raise mfusepy.FuseOSError(number)

    class Disk(mfusepy.Operations):
        use_ns = True

        def __init__(self) -> None:
            self._count, self._open = 1, dict[int, Node]()
            self._root = Node(1, True, stat.S_IFDIR | 0o755)

        def _find(self, path: str) -> Node:
            node = self._root
            for name in path.strip("/").split("/") if path != "/" else ():
                node = node.names.get(name) or fail(errno.ENOENT)
            return node

        def _place(self, path: str) -> tuple[dict[str, Node], str]:
            parent, _, name = path.rpartition("/")
            return self._find(parent or "/").names, name

        def _new(self, path: str, is_folder: bool, mode: int) -> Node:
            names, name = self._place(path)
            if name in names:
                fail(errno.EEXIST)
            self._count += 1
            kind = stat.S_IFDIR if is_folder else stat.S_IFREG
            names[name] = Node(self._count, is_folder, kind | (mode & 0o7777))
            return names[name]

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            node = self._find(path) if fh is None else self._open[fh]
            times = dict.fromkeys(("st_atime", "st_mtime", "st_ctime"), node.changed)
            own = {"st_ino": node.number, "st_mode": node.mode, "st_nlink": 1}
            return {**own, **times, "st_size": len(node.content)}

        def readdir(self, path: str, fh: int) -> Any:
            found = self._find(path)
            names = {".": found, **found.names}
            told = lambda node: {"st_ino": node.number, "st_mode": node.mode}
            return [(name, told(node), 0) for name, node in names.items()]

        def mkdir(self, path: str, mode: int) -> int:
            self._new(path, True, mode)
            return 0

        def _handle(self, node: Node) -> int:
            self._count += 1
            self._open[self._count] = node
            return self._count

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return self._handle(self._new(path, False, mode))

        def open(self, path: str, flags: int) -> int:
            return self._handle(self._find(path))

        def release(self, path: str, fh: int) -> int:
            del self._open[fh]
            return 0

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return bytes(self._open[fh].content[offset : offset + size])

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            node = self._open[fh]
            node.content.extend(bytes(max(0, offset - len(node.content))))
            node.content[offset : offset + len(data)] = data
            node.changed = time.time_ns()
            return len(data)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            node = self._find(path) if fh is None else self._open[fh]
            del node.content[length:]
            node.content.extend(bytes(length - len(node.content)))
            return 0

        def fsync(self, path: str, datasync: int, fh: int) -> int:
            if "files" in honoured:
                self._open[fh].sync()
            return 0

        def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
            if "folders" in honoured:
                self._find(path).sync()
            return 0

        def rename(self, old: str, new: str) -> int:
            (names, name), (others, other) = self._place(old), self._place(new)
            others[other] = names.pop(name) if name in names else fail(errno.ENOENT)
            return 0

        def link(self, target: str, source: str) -> int:
            names, name = self._place(target)
            if name in names:
                fail(errno.EEXIST)
            names[name] = self._find(source)
            return 0

        def unlink(self, path: str) -> int:
            names, name = self._place(path)
            if names.pop(name, None) is None:
                fail(errno.ENOENT)
            return 0

        rmdir = unlink

        def chmod(self, path: str, mode: int) -> int:
            node = self._find(path)
            node.mode = stat.S_IFMT(node.mode) | mode
            return 0

        def utimens(self, path: str, times: Any = None) -> int:
            return 0

        def setxattr(
            self, path: str, name: str, value: bytes, options: int, position: int = 0
        ) -> int:
            if name != _POWER:
                fail(errno.ENOTSUP)
            chance = random.Random(int(value))
            self._root.lose(chance, chance.random() < 0.5, set())
            return 0

    mfusepy.FUSE(
        Disk(),
        folder,
        foreground=True,
        nothreads=True,
        use_ino=True,
        direct_io=True,  # The kernel remembers nothing.
        attr_timeout=0,
        entry_timeout=0,
        fsname="power",
    )


def lose_power(disk: pathlib.Path, seed: int) -> None:
    """Take the power away and give it back: the disk is what it has. Of what was not
    synced nothing is left, or what the seed decides; no file may be open."""
    os.setxattr(disk, _POWER, str(seed).encode())


def is_there() -> bool:
    """Whether this machine can have such a disk."""
    try:
        import mfusepy  # noqa: F401
    except (ImportError, OSError):  # Or the library of FUSE is missing.
        return False
    return os.access("/dev/fuse", os.W_OK)


@contextlib.contextmanager
def disk(folder: pathlib.Path, *honoured: str) -> Iterator[pathlib.Path]:
    """Such a disk on an empty folder, until the context ends."""
    process = subprocess.Popen([sys.executable, __file__, str(folder), *honoured])
    try:
        while not os.path.ismount(folder):
            if process.poll() is not None:
                raise OSError(f"the disk did not start: exit {process.returncode}")
            time.sleep(0.01)
        yield folder
    finally:
        unmount = subprocess.run(["fusermount3", "-u", "-z", str(folder)], check=False)
        if unmount.returncode:
            process.kill()
        process.wait()


if __name__ == "__main__":
    serve(sys.argv[1], set(sys.argv[2:]))
