"""Questions to the API server by POST, at a fraction of what an HTTP client for everything takes for one.

Reviews of users are asked all day, for every request that nobody else's answer holds for. What comes back is
one small answer after the other, so a connection here sends one request, and reads status, length and body.

Source: RFC 9112, "HTTP/1.1" (message format; chunked transfer coding).
"""

import asyncio
import re
from typing import cast
from urllib.parse import urlsplit

from gpuscale.base.unreachable import distrust_of
from gpuscale.kube.client.answers import AnswerReader
from gpuscale.kube.client.plain import PlainAccess, plain_access
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.client.sockets import NOTICE_DEAD_PEERS

_CREATED = (200, 201)
_MAX_HEAD_BYTES = 65_536
_STATUS = re.compile(rb"HTTP/1\.1 (\d{3})[ \r]")
_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*(\d{1,12})[ \t]*\r\n", re.IGNORECASE)
_CHUNKED = re.compile(rb"\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_CLOSES = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\r\n]*)?\r\n")


class Poster:
    """Posts JSON to one server that is reached in a plain way.

    Args:
        access: where it is, and who we are.
        settings: bounds on times and sizes.
        answers: of the server.
    """

    def __init__(self, access: PlainAccess, settings: KubeSettings, answers: AnswerReader) -> None:
        self._access = access
        self._settings = settings
        self._answers = answers
        self._url = urlsplit(access.server)
        self._idle: list[_Connection] = []

    async def post(self, path: str, body: bytes) -> bytes:
        """Return what the server made of a body.

        Tried twice, because the server may have closed a connection that was kept open.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        try:
            async with asyncio.timeout(self._settings.timeout_s):
                try:
                    status, found = await self._post(path, body)
                except OSError as error:
                    if distrust_of(error) is not None:
                        # The authority's file may have been renewed since it was read.
                        self._access = plain_access(self._settings) or self._access
                    status, found = await self._post(path, body)
        except (OSError, ValueError) as error:
            raise self._answers.unreachable(error) from error
        if status not in _CREATED:
            raise self._answers.refusal(path, status, found)
        return found

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        while self._idle:
            self._idle.pop().close()

    async def _post(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and body of an answer.

        Raises:
            OSError: no answer.
            ValueError: one that can't be read.
        """
        token = self._access.bearer()
        if not (token.isascii() and token.isprintable()):
            raise ValueError("found a token with characters that no header can have")
        head = (
            f"POST {self._url.path.rstrip('/')}{path} HTTP/1.1\r\n"
            f"Host: {self._url.netloc}\r\nUser-Agent: gpuscale\r\nAccept: application/json\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            + (f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n")
        )
        connection = await self._connection()
        try:
            return await connection.ask(head.encode() + body)
        finally:
            if connection.is_free:
                self._idle.append(connection)
            else:
                connection.close()

    async def _connection(self) -> "_Connection":
        while self._idle:
            if (idle := self._idle.pop()).is_free:
                return idle
        tls, host = self._access.tls, self._url.hostname or ""
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: _Connection(self._settings.max_body_bytes),
            host,
            self._url.port or (80 if tls is None else 443),
            ssl=tls,
            server_hostname=(self._access.server_name or host) if tls is not None else None,
        )
        return connection


class _Connection(asyncio.Protocol):
    """One connection, for one request after the other."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._received = bytearray()
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._transport: asyncio.Transport
        self.is_free = True
        """Whether it can take a request."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Make the other side's death show."""
        self._transport = cast("asyncio.Transport", transport)
        connected = transport.get_extra_info("socket")
        for level, option, value in NOTICE_DEAD_PEERS:
            connected.setsockopt(level, option, value)

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the request that waits for an answer."""
        self.is_free = False
        self._end(exc or ConnectionResetError("it closed the connection without an answer"))

    def data_received(self, data: bytes) -> None:
        """Read an answer that has come whole."""
        if self._answer is None:
            self.close()  # nothing was asked
            return
        self._received += data
        try:
            # Also of what is no body: extensions of chunks, a trailer, a line without an end.
            _bound(len(self._received) - _MAX_HEAD_BYTES, self._most_bytes)
            found = _read(self._received, self._most_bytes)
        except ValueError as error:
            self.close()
            self._end(error)
            return
        if found is not None:
            status, body, closes = found
            self._received.clear()
            answer, self._answer = self._answer, None
            self.is_free = not closes
            if not answer.done():
                answer.set_result((status, body))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """Send a request, and return the status and body of its answer."""
        self.is_free = False
        answer: asyncio.Future[tuple[int, bytes]] = asyncio.get_running_loop().create_future()
        self._answer = answer
        self._transport.write(request)
        return await answer

    def close(self) -> None:
        """Close it; nothing more is sent, so nothing is waited for."""
        self.is_free = False
        self._transport.abort()

    def _end(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        if answer is not None and not answer.done():
            answer.set_exception(error)


def _read(received: bytearray, most_bytes: int) -> tuple[int, bytes, bool] | None:
    """Return status and body of an answer, and whether no other follows; None while it has not come whole.

    Raises:
        ValueError: it is too long, or no answer that says how long it is.
    """
    end = received.find(b"\r\n\r\n") + 4
    if end < 4:
        if len(received) > _MAX_HEAD_BYTES:
            raise ValueError("its answer has no end of headers")
        return None
    head = bytes(received[: end - 2])
    status = _STATUS.match(head)
    if status is None:
        raise ValueError("its answer is no HTTP/1.1")
    if _CHUNKED.search(head):
        body = _chunks(received, end, most_bytes)
    elif (length := _LENGTH.search(head)) is not None:
        size = int(length[1])
        _bound(size, most_bytes)
        body = bytes(received[end : end + size]) if len(received) >= end + size else None
    else:
        raise ValueError("its answer does not say how long it is")
    return None if body is None else (int(status[1]), body, bool(_CLOSES.search(head)))


def _chunks(received: bytearray, position: int, most_bytes: int) -> bytes | None:
    """Return a body that comes in chunks; None while the last one is missing."""
    body = bytearray()
    while (line := _CHUNK.match(received, position)) is not None:
        size = int(line[1], 16)
        position = line.end() + size + 2
        _bound(len(body) + size, most_bytes)
        if not size:
            return bytes(body) if received.endswith(b"\r\n\r\n") else None
        if len(received) < position:
            return None
        body += received[line.end() : line.end() + size]
    if received.find(b"\r\n", position) >= 0:
        raise ValueError("its answer has a chunk without a size")
    return None


def _bound(size: int, most_bytes: int) -> None:
    if size > most_bytes:
        raise ValueError(f"its answer has more than {most_bytes} bytes")
