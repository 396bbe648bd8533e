"""The source code on which verdicts and drawings depend."""

import functools
import hashlib
import json
import pathlib

import cfljax
from cfljax.statements import site

assert cfljax.__file__ is not None
_PACKAGES = [
    pathlib.Path(file).resolve().parent for file in (cfljax.__file__, __file__)
]


def identity() -> str:
    """Digest of all that an outcome depends on besides its statement and preset: the
    `fingerprint`, and JAX's backend, precision, random generator and flags."""
    from cfljax.engine import settings  # Brings JAX.

    text = json.dumps([fingerprint(), settings()], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def fingerprint() -> str:
    """Digest of the source code of both packages, and of the versions of others."""
    digest = hashlib.sha256(json.dumps(site.versions()).encode())
    for package in _PACKAGES:
        for path in sorted(package.rglob("*.py")):
            name = path.relative_to(package.parent).as_posix()
            digest.update(f"\n{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
