"""The files of pages, all from this package, so that pages work offline.

All come from this package and nothing is ever loaded from the network, so that pages work on a
machine without one.
"""

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from gpuscale.base.errors import NotFoundError

_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
}
_GZIP_LEVEL = 9


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as sent to a browser."""

    content_type: str
    body: bytes
    gzipped: bytes
    etag: str
    """Changes with the content, so that a browser may keep its copy until then."""


def static_text(name: str) -> str:
    """Return the text of one of this package's page files.

    Raises:
        NotFoundError: there is no such file.
    """
    file = files("gpuscale.base.pages") / "static" / name
    if "/" in name or Path(name).suffix not in _TYPES or not file.is_file():
        raise NotFoundError(f"no page file is called {name!r}")
    return file.read_text(encoding="utf-8")


@cache
def asset(name: str) -> Asset:
    """Return a page's file, ready to send and cached.

    Raises:
        NotFoundError: there is no such file.
    """
    body = static_text(name).encode()
    return Asset(
        content_type=_TYPES[Path(name).suffix],
        body=body,
        gzipped=gzip.compress(body, _GZIP_LEVEL, mtime=0),
        etag=hashlib.sha256(body).hexdigest()[:20],
    )
