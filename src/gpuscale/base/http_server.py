"""A small HTTP/1.1 server, sufficient for a node agent's scrapes and streams.

It stays on every GPU node for good, and aiohttp with what it brings is a quarter of an agent's memory. The
protocol itself is h11's; asyncio carries the bytes, and TLS.
"""

import asyncio
import logging
import resource
import socket
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol, cast

import h11

if TYPE_CHECKING:
    import ssl

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 65_536
_MAX_HEAD_BYTES = 16_384
_MAX_BODY_BYTES = 65_536
"""Of requests, none of whose bodies is looked at."""
_IDLE_S = 75.0
"""How long a connection is kept for another request; Prometheus scrapes once a minute at the slowest."""
_HEAD_S = 10.0
"""How long a request may take to come in, once it has begun."""
_LINGER_S = 1.0
_BACKLOG = 512
_AT_ONCE = 16
"""Connections that are accepted before the first of them is looked at."""
_MOST_CONNECTIONS = 4096
_SPARED_FILES = 128
"""Of those that the process may open: for the driver, the kubelet, and files that are read again."""
_PHRASES = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}
TEXT_TYPE = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """A request; header names are in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    def has_parameter(self, name: str) -> bool:
        """Return whether the query has a parameter, with a value or without."""
        return any(part.partition("=")[0] == name for part in self.query.split("&"))


class BodyWriter(Protocol):
    """Writes a response in pieces."""

    async def write(self, piece: bytes) -> None:
        """Send a piece, and wait until there is room for the next.

        Raises:
            ConnectionError: the client is gone.
        """
        ...

    def abort(self) -> None:
        """Break the connection, if the client takes nothing."""
        ...


@dataclass(frozen=True, slots=True)
class Response:
    """A response: whole, or written by a function that is cancelled when the client leaves."""

    body: bytes | Callable[[BodyWriter], Awaitable[None]] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def text_response(text: str, status: int = 200, **headers: str) -> Response:
    """Return plain text."""
    return Response(text.encode(), status, {"Content-Type": TEXT_TYPE, **headers})


Handler = Callable[[Request], Awaitable[Response]]


class HttpServer:
    """Serves GET and HEAD requests by a handler.

    Args:
        handler: gives the answers. What it raises is logged, and answered with 500.
        shutdown_s: how long answers under way may take in the end.
    """

    def __init__(self, handler: Handler, shutdown_s: float) -> None:
        self._handler = handler
        self._shutdown_s = shutdown_s
        self._servers: list[asyncio.Server] = []
        self._connections: dict[asyncio.Task[None], _Connection] = {}
        self._most = _most_connections()

    async def start(
        self,
        host: str,
        port: int,
        sockets: Sequence[socket.socket] = (),
        tls: "ssl.SSLContext | None" = None,
    ) -> int:
        """Listen, and return the port.

        Args:
            host: address to listen on; empty is all.
            port: 0 is a free one.
            sockets: listen on these instead, which are bound already.
            tls: None is plain HTTP.

        Raises:
            OSError: the address can't be listened on.
        """
        for each in sockets:
            self._servers.append(
                await asyncio.start_server(self._connected, sock=each, ssl=tls, backlog=_AT_ONCE)
            )
        if not sockets:
            self._servers.append(
                await asyncio.start_server(
                    self._connected, host or None, port, ssl=tls, backlog=_AT_ONCE
                )
            )
        for server in self._servers:
            for each in server.sockets:
                with socket.fromfd(each.fileno(), each.family, each.type) as listening:
                    listening.listen(_BACKLOG)
        return int(self._servers[0].sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Stop listening, close idle connections, and finish running responses."""
        for server in self._servers:
            server.close()
        self._servers.clear()
        for connection in self._connections.values():
            connection.end_when_idle()
        if self._connections:
            await asyncio.wait(self._connections, timeout=self._shutdown_s)
        for task, connection in tuple(self._connections.items()):
            connection.abort()
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= self._most:
            writer.transport.abort()  # out of files, asyncio would log every attempt to accept
            return
        task = cast("asyncio.Task[None]", asyncio.current_task())
        connection = _Connection(reader, writer, self._handler)
        self._connections[task] = connection
        try:
            await connection.serve()
        except OSError:  # TimeoutError included
            pass  # the client is gone, or sends nothing more
        finally:
            del self._connections[task]
            writer.close()
            with suppress(Exception):  # what a broken connection has to say of its end
                await writer.wait_closed()


def _most_connections() -> int:
    """Return a number of connections that leaves enough file descriptors to the process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return _MOST_CONNECTIONS
    return min(_MOST_CONNECTIONS, max(_SPARED_FILES, files - _SPARED_FILES))


class _Connection:
    """A client's connection with its consecutive requests."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._protocol = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)
        self._is_idle = True
        self._is_ending = False

    def end_when_idle(self) -> None:
        self._is_ending = True
        if self._is_idle:
            self.abort()

    def abort(self) -> None:
        """Break the connection."""
        self._writer.transport.abort()

    async def serve(self) -> None:
        """Answer until the client or the server is done."""
        while True:
            request = await self._request()
            if request is None:
                return
            await self._answer(request)
            if self._is_ending or not self._can_go_on():
                return
            self._protocol.start_next_cycle()

    def _can_go_on(self) -> bool:
        return self._protocol.our_state is h11.DONE and self._protocol.their_state is h11.DONE

    async def _request(self) -> Request | None:
        """Return the next request; None if there is none, or it was malformed and has been refused."""
        try:
            head = await self._head()
            if head is None or not await self._skip_body():
                return None
        except h11.RemoteProtocolError as error:
            await self._refuse(error.error_status_hint, str(error))
            return None
        except TimeoutError:
            await self._refuse(408, "the request did not come in time")
            return None
        return _request(head)

    async def _head(self) -> h11.Request | None:
        self._is_idle = True
        async with asyncio.timeout(_IDLE_S) as patience:
            while True:
                event = self._protocol.next_event()
                if isinstance(event, h11.Request):
                    self._is_idle = False
                    return event
                if event is not h11.NEED_DATA:
                    return None
                data = await self._reader.read(_CHUNK_BYTES)
                if data and self._is_idle:
                    self._is_idle = False
                    patience.reschedule(asyncio.get_running_loop().time() + _HEAD_S)
                self._protocol.receive_data(data)

    async def _skip_body(self) -> bool:
        """Skip a request's body; return False if it is too large, after refusing it."""
        size = 0
        async with asyncio.timeout(_HEAD_S):
            while True:
                event = self._protocol.next_event()
                if isinstance(event, h11.EndOfMessage):
                    return True
                if isinstance(event, h11.Data):
                    size += len(event.data)
                elif event is h11.NEED_DATA:
                    self._protocol.receive_data(await self._reader.read(_CHUNK_BYTES))
                else:
                    return False
                if size > _MAX_BODY_BYTES:
                    await self._refuse(413, f"at most {_MAX_BODY_BYTES} bytes")
                    return False

    async def _answer(self, request: Request) -> None:
        if request.method not in ("GET", "HEAD"):
            response = text_response("405: Method Not Allowed", 405, Allow="GET, HEAD")
        else:
            try:
                response = await self._handler(request)
            except Exception:  # noqa: BLE001 - the connection's top: log, and inform the client
                _log.exception("answering %s broke off", request.path)
                response = text_response("500 Internal Server Error\n", 500)
        if isinstance(response.body, bytes):
            await self._send_whole(response, response.body, is_head=request.method == "HEAD")
        else:
            await self._stream(request, response, response.body)

    async def write(self, piece: bytes) -> None:
        """Send a piece of the current response."""
        self._writer.write(self._send(h11.Data(data=piece)))
        await self._writer.drain()

    async def _send_whole(self, response: Response, body: bytes, *, is_head: bool = False) -> None:
        headers = {**response.headers, "Content-Length": str(len(body))}
        parts = [self._send(_head_of(response.status, headers))]
        if body and not is_head:
            parts.append(self._send(h11.Data(data=body)))
        parts.append(self._send(h11.EndOfMessage()))
        self._writer.write(b"".join(parts))
        await self._writer.drain()

    async def _stream(
        self,
        request: Request,
        response: Response,
        body: Callable[[BodyWriter], Awaitable[None]],
    ) -> None:
        """Send the head, and let the body be written until it ends or the client leaves."""
        self._is_ending = True  # to see the client leave, a byte of its next request may be taken
        self._writer.write(self._send(_head_of(response.status, response.headers)))
        if request.method == "GET":
            writing = asyncio.ensure_future(body(self))
            leaving = asyncio.ensure_future(self._reader.read(1))
            try:
                await asyncio.wait({writing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                is_whole = writing.done()
                writing.cancel()
                leaving.cancel()
                await asyncio.gather(writing, leaving, return_exceptions=True)
            if not is_whole:
                return
            writing.result()
        self._writer.write(self._send(h11.EndOfMessage()))
        await self._writer.drain()

    async def _refuse(self, status: int, why: str) -> None:
        """Refuse a malformed request, and close the connection."""
        self._is_ending = True
        if self._protocol.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return
        text = f"{status} {_PHRASES.get(status, '')}: {why}\n".encode()
        headers = {"Content-Type": TEXT_TYPE, "Connection": "close"}
        with suppress(OSError):  # the client may be gone already, which raises various errors
            await self._send_whole(Response(text, status, headers), text)
            await self._linger()

    async def _linger(self) -> None:
        """Discard what the client still sends, as closing before would discard the response."""
        if self._writer.can_write_eof():
            self._writer.write_eof()
        async with asyncio.timeout(_LINGER_S):
            while await self._reader.read(_CHUNK_BYTES):
                pass

    def _send(self, event: h11.Event) -> bytes:
        return self._protocol.send(event) or b""


def _request(head: h11.Request) -> Request:
    target = head.target.decode("latin-1")
    if not target.startswith("/"):  # the form that proxies use: http://host/path
        target = "/" + target.partition("://")[2].partition("/")[2]
    path, _, query = target.partition("?")
    headers: dict[str, str] = {}
    for raw_name, raw_value in head.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return Request(head.method.decode("latin-1"), path, query, headers)


def _head_of(status: int, headers: Mapping[str, str]) -> h11.Response:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime())
    pairs = list({"Date": date, **headers}.items())
    return h11.Response(status_code=status, reason=_PHRASES.get(status, ""), headers=pairs)
