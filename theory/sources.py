"""The source code and the packages on which verdicts and drawings depend."""

import contextlib
import functools
import hashlib
import importlib.metadata
import json
import pathlib
import platform

_PACKAGES = ("cfljax", "jax", "jaxlib", "numpy", "scipy", "matplotlib")
_ROOT = pathlib.Path(__file__).resolve().parents[1]


@functools.cache
def versions() -> dict[str, str]:
    """Of Python and of the packages on which numbers and drawings depend."""
    found = {"python": platform.python_version()}
    for name in _PACKAGES:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@functools.cache
def fingerprint() -> str:
    """Digest of the source code of both packages, and of `versions`."""
    digest = hashlib.sha256(json.dumps(versions()).encode())
    for folder in ("cfljax", "theory"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            name = path.relative_to(_ROOT).as_posix()
            digest.update(f"\n{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
