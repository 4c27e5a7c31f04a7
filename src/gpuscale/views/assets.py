"""The files that pages are made of: our own from this package, and Plotly's bundled script.

Nothing is ever loaded from the network, so that pages work on a machine without one.
"""

import gzip
import hashlib
import importlib.util
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path

from gpuscale.core.errors import NotFoundError, UnavailableError

PLOTLY = "plotly.min.js"
_TYPES = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
}
_GZIP_LEVEL = 6  # Plotly's script to a third of its size in about 0.1 s


@dataclass(frozen=True, slots=True)
class Asset:
    """One file as a browser gets it."""

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
    file = files("gpuscale.views") / "static" / name
    if "/" in name or Path(name).suffix not in _TYPES or not file.is_file():
        raise NotFoundError(f"no page file is called {name!r}")
    return file.read_text(encoding="utf-8")


def plotly_script() -> str:
    """Return Plotly's bundled script, read without importing the package, which would take a while.

    Raises:
        UnavailableError: the plotly package is not installed, or comes without its script.
    """
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / "package_data" / PLOTLY
        if path.is_file():
            return path.read_text(encoding="utf-8")
    raise UnavailableError(
        f"found no {PLOTLY} in the Python environment; install it with: pip install 'plotly>=6.0'"
    )


@cache
def asset(name: str) -> Asset:
    """Return a file that pages may ask for, ready to send; made once per process.

    Raises:
        NotFoundError: there is no such file.
        UnavailableError: Plotly's script is not installed.
    """
    text = plotly_script() if name == PLOTLY else static_text(name)
    body = text.encode()
    return Asset(
        content_type=_TYPES[Path(name).suffix],
        body=body,
        gzipped=gzip.compress(body, _GZIP_LEVEL, mtime=0),
        etag=hashlib.sha256(body).hexdigest()[:20],
    )
