"""A unary gRPC call over a Unix socket, without the gRPC library.

The node agent makes two such calls every few seconds. gRPC's own library would take 17 MiB of it, and
threads; HTTP/2 takes 1.4. Each call has a connection of its own: a kubelet that has restarted is found at
once.

Source: grpc/grpc doc/PROTOCOL-HTTP2.md and doc/statuscodes.md (v1.7x).
"""

import asyncio
import struct
from collections.abc import Iterable, Mapping
from enum import IntEnum
from pathlib import Path
from urllib.parse import unquote

import h2.connection
import h2.events
import h2.exceptions

_READ_BYTES = 65_536
_PREFIX = struct.Struct(">?I")
"""Before each message: whether it is compressed, and its size."""
_HTTP_OK = "200"


class CallStatus(IntEnum):
    """How a call ended."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class StatusError(Exception):
    """A call ended without an answer.

    Args:
        status: what the server said, or what this end calls it.
        details: why; may be empty.
    """

    def __init__(self, status: CallStatus, details: str) -> None:
        self.status = status
        self.details = details
        super().__init__(f"{status.name}: {details}")


async def call(
    socket: Path, method: str, request: bytes, timeout_s: float, max_bytes: int
) -> bytes:
    """Call a method, and return the response message.

    Args:
        socket: where it listens.
        method: such as `/v1.PodResourcesLister/List`.
        request: a message, encoded.
        timeout_s: for all of it.
        max_bytes: of the answer.

    Raises:
        StatusError: no usable answer.
    """
    try:
        async with asyncio.timeout(timeout_s):
            return await _answer(socket, method, request, timeout_s, max_bytes)
    except TimeoutError:
        raise StatusError(CallStatus.DEADLINE_EXCEEDED, f"no answer for {timeout_s:g} s") from None
    except OSError as error:
        raise StatusError(CallStatus.UNAVAILABLE, error.strerror or str(error)) from error
    except h2.exceptions.H2Error as error:
        detail = f"what listens there does not speak HTTP/2: {error}"
        raise StatusError(CallStatus.UNAVAILABLE, detail) from error


async def _answer(
    socket: Path, method: str, request: bytes, timeout_s: float, max_bytes: int
) -> bytes:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        exchange = Exchange(max_bytes)
        exchange.ask(method, request, timeout_s)
        while not exchange.is_over:
            writer.write(exchange.to_send())
            await writer.drain()
            received = await reader.read(_READ_BYTES)
            if not received:
                raise StatusError(CallStatus.UNAVAILABLE, "the connection was closed")
            exchange.receive(received)
        return exchange.message()
    finally:
        # Nothing more is sent, so there is no need for flow control.
        writer.transport.abort()


class Exchange:
    """A request and its response, as bytes to send and bytes received.

    Args:
        max_bytes: of the answer's message.
    """

    def __init__(self, max_bytes: int) -> None:
        self._http = h2.connection.H2Connection()
        self._max_bytes = max_bytes
        self._stream = 0
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self.is_over = False
        """Whether all of the answer is there."""

    def ask(self, method: str, request: bytes, timeout_s: float) -> None:
        """Start the request; the connection's preface is sent before it."""
        self._http.initiate_connection()
        self._stream = self._http.get_next_available_stream_id()
        headers = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", method),
            # The socket's path is no host name, and some servers refuse it as one.
            (":authority", "localhost"),
            ("te", "trailers"),
            ("content-type", "application/grpc"),
            ("user-agent", "gpuscale"),
            ("grpc-timeout", f"{max(1, int(timeout_s * 1000))}m"),
        ]
        self._http.send_headers(self._stream, headers)
        body = _PREFIX.pack(False, len(request)) + request
        self._http.send_data(self._stream, body, end_stream=True)

    def to_send(self) -> bytes:
        """Return the bytes to send now; a second call returns nothing."""
        return self._http.data_to_send()

    def receive(self, received: bytes) -> None:
        """Process received bytes.

        Raises:
            StatusError: the server broke off, or the answer is too large.
            H2Error: this is not HTTP/2.
        """
        for event in self._http.receive_data(received):
            if self.is_over or getattr(event, "stream_id", self._stream) != self._stream:
                continue
            if isinstance(event, h2.events.DataReceived):
                self._add(event.data or b"")
                # The server sends at most the acknowledged bytes plus a window.
                self._http.acknowledge_received_data(event.flow_controlled_length, self._stream)
            elif isinstance(event, h2.events.ResponseReceived | h2.events.TrailersReceived):
                self._headers.update(_texts(event.headers))
            elif isinstance(event, h2.events.StreamEnded):
                self.is_over = True
            elif isinstance(event, h2.events.StreamReset | h2.events.ConnectionTerminated):
                detail = f"the server broke off ({event.error_code!s})"
                raise StatusError(CallStatus.UNAVAILABLE, detail)

    def message(self) -> bytes:
        """Return the response message, once the call has ended.

        Raises:
            StatusError: the server refused, or what it sent is not one message.
        """
        status, details = _status(self._headers)
        if status is not CallStatus.OK:
            raise StatusError(status, details)
        body = self._body
        is_compressed, size = _PREFIX.unpack_from(body) if len(body) >= _PREFIX.size else (True, 0)
        if is_compressed or len(body) != _PREFIX.size + size:
            raise StatusError(
                CallStatus.INTERNAL, "the answer is not one message without compression"
            )
        return bytes(memoryview(body)[_PREFIX.size :])

    def _add(self, data: bytes) -> None:
        self._body += data
        size = len(self._body) - _PREFIX.size
        if size >= 0:
            size = max(size, _PREFIX.unpack_from(self._body)[1])  # as announced, before it is there
        if size > self._max_bytes:
            text = f"the answer has more than {self._max_bytes} bytes"
            raise StatusError(CallStatus.RESOURCE_EXHAUSTED, text)


def _texts(headers: Iterable[tuple[bytes, bytes]] | None) -> dict[str, str]:
    return {
        name.decode(errors="replace"): value.decode(errors="replace")
        for name, value in headers or ()
    }


def _status(headers: Mapping[str, str]) -> tuple[CallStatus, str]:
    said = headers.get("grpc-status")
    if said is None:
        http = headers.get(":status", "none")
        return CallStatus.UNKNOWN, "no status" if http == _HTTP_OK else f"HTTP status {http}"
    details = unquote(headers.get("grpc-message", ""), errors="replace")
    try:
        return CallStatus(int(said)), details
    except ValueError:
        return CallStatus.UNKNOWN, details
