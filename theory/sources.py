"""The source code on which verdicts and drawings depend."""

import functools
import hashlib
import json
import pathlib

from cfljax.statements import site

_ROOT = pathlib.Path(__file__).resolve().parents[1]


@functools.cache
def fingerprint() -> str:
    """Digest of the source code of both packages, and of the versions of others."""
    digest = hashlib.sha256(json.dumps(site.versions()).encode())
    for folder in ("cfljax", "theory"):
        for path in sorted((_ROOT / folder).rglob("*.py")):
            name = path.relative_to(_ROOT).as_posix()
            digest.update(f"\n{name}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]
