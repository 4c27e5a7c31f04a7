"""Where requests go: the address, TLS, and the bytes of a request."""

import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from gpuscale import __version__
from gpuscale.core.errors import UnavailableError, UsageError
from gpuscale.load.plan import Request

_OWN = ("host", "content-length", "connection", "transfer-encoding")


@dataclass(frozen=True, slots=True)
class Target:
    """A server, resolved once."""

    addresses: tuple[tuple[str, int], ...]
    tls: ssl.SSLContext | None
    server_name: str | None
    data: bytes
    """The whole request."""


def resolve(request: Request) -> Target:
    """Return where a request goes.

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
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Target(
        tuple((str(host), number) for host, number in addresses),
        tls,
        parts.hostname if tls else None,
        _bytes(request, parts.netloc.rpartition("@")[2], path),
    )


def _tls(request: Request) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=request.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"{request.ca_file}: can't be used as a CA bundle: {error}") from None
    if request.is_insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _bytes(request: Request, host: str, path: str) -> bytes:
    given = {name.lower() for name, _ in request.headers}
    lines = [f"{request.method} {path} HTTP/1.1"]
    if "host" not in given:
        lines.append(f"Host: {host}")
    if "user-agent" not in given:
        lines.append(f"User-Agent: gpuscale/{__version__}")
    for name, value in request.headers:
        if name.lower() in _OWN[1:]:
            raise UsageError(f"found header {name}, expected others: gpuscale sets it itself")
        lines.append(f"{name}: {value}")
    if request.body or request.method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(request.body)}")
    text = "\r\n".join(lines)
    if (
        any(ord(char) < 32 and char not in "\r\n" for char in text)
        or text.count("\n") != len(lines) - 1
    ):
        raise UsageError("found a control character in the URL or a header, expected none")
    try:
        return text.encode("latin-1") + b"\r\n\r\n" + request.body
    except UnicodeEncodeError:
        raise UsageError(
            "found a character beyond Latin-1 in the URL or a header, expected it percent-encoded"
        ) from None
