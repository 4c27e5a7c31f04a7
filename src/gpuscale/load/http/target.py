"""The target of requests: address, TLS, and the bytes of a request."""

import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count, repeat
from urllib.parse import quote, urlsplit

from gpuscale import __version__
from gpuscale.base.errors import UnavailableError, UsageError
from gpuscale.load.plan import LoadRequest

_AS_IT_IS = "%/?:@!$&'()*+,;=[]|~^\"<>{}\\`"
"""What a URL's path keeps as it is written: all but blanks, control characters and what is no ASCII."""
_OWN = ("host", "content-length", "connection", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """A server, resolved once."""

    addresses: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None
    server_name: str | None
    head: bytes
    """Of each request, without the length of its body."""
    request: LoadRequest
    other_heads: tuple[bytes, ...] = ()
    """Of the requests that are sent in turn with it."""

    def requests(self, first: int = 0, step: int = 1) -> Iterator[bytes]:
        """Yield requests for ever: every n-th one, for one of n processes.

        Args:
            first: number of the first one.
            step: how many processes there are.
        """
        if self.request.bodies is None:
            heads = (self.head, *self.other_heads)
            each_of = (self.request, *self.request.others)
            turns = [_whole(*pair) for pair in zip(heads, each_of, strict=True)]
            if len(turns) == 1:
                yield from repeat(turns[0])
            for index in count(first, step):
                yield turns[index % len(turns)]
            return
        for index in count(first, step):
            body = self.request.bodies.body(index)
            yield self.head + f"\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def resolve(request: LoadRequest) -> LoadTarget:
    """Return the target of a URL.

    Raises:
        UsageError: the URL or a header can't be used.
        UnavailableError: its host has no address.
    """
    try:
        parts = urlsplit(request.url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"found URL {request.url!r}: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            f"found URL {request.url!r}, expected one such as http://host:8000/predict?query=Music"
        )
    port = port or (443 if parts.scheme == "https" else 80)
    try:
        found = socket.getaddrinfo(parts.hostname, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise UnavailableError(f"{parts.hostname}: {error.strerror or error}") from None
    addresses = tuple(dict.fromkeys((entry[4][0], port) for entry in found))
    tls = _tls(request) if parts.scheme == "https" else None
    return LoadTarget(
        tuple((str(host), number) for host, number in addresses),
        tls,
        parts.hostname if tls else None,
        _head(request),
        request,
        tuple(map(_head, request.others)),
    )


def _whole(head: bytes, request: LoadRequest) -> bytes:
    has_body = bool(request.body) or request.method in ("POST", "PUT", "PATCH")
    length = f"\r\nContent-Length: {len(request.body)}" if has_body else ""
    return head + f"{length}\r\n\r\n".encode() + request.body


def _tls(request: LoadRequest) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=request.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{request.ca_file}: can't be used as a CA bundle: {error}") from None
    if request.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _head(request: LoadRequest) -> bytes:
    parts = urlsplit(request.url)
    path = quote((parts.path or "/") + (f"?{parts.query}" if parts.query else ""), _AS_IT_IS)
    given = {name.lower() for name, _ in request.headers}
    lines = [f"{request.method} {path} HTTP/1.1"]
    if "host" not in given:
        lines.append(f"Host: {parts.netloc.rpartition('@')[2]}")
    if "user-agent" not in given:
        lines.append(f"User-Agent: gpuscale/{__version__}")
    for name, value in request.headers:
        if name.lower() in _OWN[1:]:
            raise UsageError(f"found header {name}, expected others: gpuscale sets it itself")
        lines.append(f"{name}: {value}")
    text = "\r\n".join(lines)
    if (
        any(ord(char) < 32 and char not in "\r\n" for char in text)
        or text.count("\n") != len(lines) - 1
    ):
        raise UsageError("found a control character in the URL or a header, expected none")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        raise UsageError(
            "found a character beyond Latin-1 in the URL or a header, expected it percent-encoded"
        ) from None
