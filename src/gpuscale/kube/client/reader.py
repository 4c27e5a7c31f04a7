"""A light client for servers: lists, watches, reviews of users, and JSON patches.

`KubeClient` can do more, with an HTTP client that takes 12 MiB and much longer for each request; it uses this
one where that is enough. Here the protocol is h11's, and asyncio carries the bytes and TLS.
"""

import asyncio
import json
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import NamedTuple, Protocol, Self
from urllib.parse import quote, urlencode, urlsplit

import h11

from gpuscale.kube.client.answers import AnswerReader, JsonObject, accepted
from gpuscale.kube.client.errors import ApiUnreachableError
from gpuscale.kube.client.plain import PlainAccess, plain_access
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.client.sockets import NOTICE_DEAD_PEERS

JSON_PATCH = "application/json-patch+json"
_CHUNK_BYTES = 65_536
_GOOD = (200, 201)
_IDLE_S = 30.0
"""How long a connection is kept for another request: HPAs ask every 15 s, and bring a review each time."""
_MAX_IDLE = 8
"""Connections that are kept so; more than a few requests at a time are rare."""
_MAX_HEAD_BYTES = 65_536
_AS_THEY_ARE = "!#$%&'()*+,/:;=?@[]|~"
"""Characters of a path that may hold a query, and what is escaped already."""


class _Sent(NamedTuple):
    """What a request sends."""

    method: str
    kind: str
    """Its content type."""
    body: bytes


class Reads(Protocol):
    """A client that lists and watches, as `KubeClient` does."""

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json"
    ) -> JsonObject:
        """Return the object at a path."""
        ...

    def watch(
        self, path: str, params: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[JsonObject]]:
        """Hold a watch open."""
        ...

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        ...


class ApiReader:
    """A client of an API server with simple access.

    Args:
        access: where it is, and who we are.
        settings: bounds on times and sizes.
        metadata_only: as for `KubeClient`.
    """

    def __init__(
        self, access: PlainAccess, settings: KubeSettings, *, metadata_only: bool = False
    ) -> None:
        self._access = access
        self._settings = settings
        self._metadata_only = metadata_only
        self._answers = AnswerReader(access.server, access.context, metadata_only=metadata_only)
        self._url = urlsplit(access.server)
        self._idle: list[_Connection] = []

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json"
    ) -> JsonObject:
        """Return the object at a path.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        return self._answers.parsed(path, await self.body(path, params or {}, accept))

    async def body(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        """Return the body at a path, of any kind; errors as `get`."""
        async with self._answer(path, params, accept, self._settings.timeout_s) as chunks:
            return await self._answers.whole(path, chunks, self._settings.max_body_bytes)

    async def post(self, path: str, posted: JsonObject) -> JsonObject:
        """Post an object that may be posted twice, and return the server's version of it.

        Tried twice, because the server may have closed a connection that was kept open; errors as `get`.
        """
        sent = _Sent("POST", "application/json", json.dumps(posted).encode())
        try:
            return await self._changed(path, sent)
        except ApiUnreachableError as error:
            if not isinstance(error.__cause__, ConnectionError):
                raise
            return await self._changed(path, sent)

    async def json_patch(self, path: str, operations: Sequence[JsonObject]) -> JsonObject:
        """Change the object at a path by a JSON patch, once, and return it; errors as `get`."""
        return await self._changed(
            path, _Sent("PATCH", JSON_PATCH, json.dumps(operations).encode())
        )

    async def _changed(self, path: str, sent: _Sent) -> JsonObject:
        most_s = self._settings.timeout_s
        async with self._answer(path, {}, "application/json", most_s, sent) as chunks:
            answer = await self._answers.whole(path, chunks, self._settings.max_body_bytes)
        return self._answers.parsed(path, answer)

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Open a watch and yield its events, until the server ends it.

        Raises:
            ApiUnreachableError: no answer, it broke off, or the server did not end it when asked to.
            ApiStatusError: refused.
        """
        settings = self._settings
        query = {**params, "watch": "1", "timeoutSeconds": str(settings.watch_s)}
        most_s = settings.watch_s + settings.timeout_s
        async with self._answer(path, query, "application/json", most_s) as chunks:
            lines = self._answers.lines(path, chunks, settings.max_line_bytes)
            yield (self._answers.parsed(path, line) async for line in lines)

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        while self._idle:
            self._idle.pop().close()

    @asynccontextmanager
    async def _answer(
        self,
        path: str,
        params: Mapping[str, str],
        accept: str,
        most_s: float,
        sent: _Sent | None = None,
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Send a request, and yield a good response's body in pieces."""
        query = f"?{urlencode(params)}" if params else ""
        if sent is None:
            accept = accepted(accept, params, metadata_only=self._metadata_only)
        target = f"{self._url.path.rstrip('/')}{quote(path, safe=_AS_THEY_ARE)}{query}"
        connection: _Connection | None = None
        try:
            # A watch may be silent for minutes, but its response starts at once.
            async with asyncio.timeout(self._settings.timeout_s) as limit:
                until_s = asyncio.get_running_loop().time() + most_s
                headers = self._headers(accept)
                connection = await self._connect()
                status, length = await connection.ask(target, headers, sent)
                limit.reschedule(until_s)
                most = self._settings.max_body_bytes
                self._answers.check_size(path, length, most)
                if status not in _GOOD:
                    body = await self._answers.whole(path, connection.chunks(), most)
                    raise self._answers.refusal(path, status, body)
                yield connection.chunks()
        except TimeoutError as error:
            raise self._answers.late(path) from error
        except (OSError, UnicodeError, h11.ProtocolError) as error:
            raise self._answers.unreachable(error) from error
        finally:
            if connection is not None:
                self._keep(connection)

    def _headers(self, accept: str) -> list[tuple[str, str]]:
        headers = [("Host", self._url.netloc.rpartition("@")[2]), ("Accept", accept)]
        headers.append(("User-Agent", "gpuscale"))
        if token := self._access.bearer():
            if not (token.isascii() and token.isprintable()):
                # h11 would name the protocol error.
                raise h11.LocalProtocolError("the token has characters that no header can have")
            headers.append(("Authorization", f"Bearer {token}"))
        return headers

    async def _connect(self) -> "_Connection":
        """Return an idle connection that still works, or a new one."""
        while self._idle:
            idle = self._idle.pop()
            if idle.is_good():
                return idle
            idle.close()
        try:
            return await self._open()
        except ssl.SSLCertVerificationError:
            # The CA file may have been renewed since it was read.
            renewed = plain_access(self._settings)
            if renewed is None or renewed.server != self._access.server:
                raise
            self._access = renewed
            return await self._open()

    async def _open(self) -> "_Connection":
        tls = self._access.tls
        host = self._url.hostname or ""
        port = self._url.port or (80 if tls is None else 443)
        name = (self._access.server_name or host) if tls is not None else None
        return await _Connection.open(host, port, tls, name)

    def _keep(self, connection: "_Connection") -> None:
        """Keep a connection after a complete response; a few are enough."""
        if connection.has_ended() and len(self._idle) < _MAX_IDLE:
            self._idle.append(connection)
        else:
            connection.close()


class _Connection:
    """One connection for consecutive requests."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._free_s = 0.0

    @classmethod
    async def open(
        cls, host: str, port: int, tls: ssl.SSLContext | None, server_name: str | None
    ) -> Self:
        reader, writer = await asyncio.open_connection(
            host, port, ssl=tls, server_hostname=server_name
        )
        connected: socket.socket = writer.get_extra_info("socket")
        for level, option, value in NOTICE_DEAD_PEERS:
            connected.setsockopt(level, option, value)
        return cls(reader, writer)

    async def ask(
        self, target: str, headers: list[tuple[str, str]], sent: _Sent | None
    ) -> tuple[int, int]:
        """Send a GET, or what is to be sent; return the response's status and length."""
        method, body = ("GET", b"") if sent is None else (sent.method, sent.body)
        if sent is not None:
            headers += [("Content-Type", sent.kind), ("Content-Length", str(len(body)))]
        head = self._http.send(h11.Request(method=method, target=target, headers=headers)) or b""
        self._writer.write(head + (self._http.send(h11.Data(data=body)) or b""))
        self._http.send(h11.EndOfMessage())
        await self._writer.drain()
        while True:
            event = await self._event()
            if isinstance(event, h11.Response):
                return event.status_code, int(dict(event.headers).get(b"content-length", 0))

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the response's body."""
        while True:
            event = await self._event()
            if isinstance(event, h11.Data):
                yield bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return

    def has_ended(self) -> bool:
        """Return whether another request can follow, and prepare for it."""
        if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
            return False
        self._http.start_next_cycle()
        self._free_s = time.monotonic()
        return True

    def is_good(self) -> bool:
        """Return whether an idle connection still works."""
        is_closed = self._reader.at_eof() or self._writer.is_closing()
        return not is_closed and time.monotonic() - self._free_s < _IDLE_S

    def close(self) -> None:
        # Nothing more is sent, so there is no need for flow control.
        self._writer.transport.abort()

    async def _event(self) -> h11.Event:
        while True:
            event = self._http.next_event()
            if not isinstance(event, type):
                return event
            if event is h11.PAUSED:
                raise h11.RemoteProtocolError("it answered more than it was asked")
            received = await self._reader.read(_CHUNK_BYTES)
            if not received and self._http.their_state is h11.SEND_RESPONSE:
                raise ConnectionResetError("it closed the connection without an answer")
            self._http.receive_data(received)
