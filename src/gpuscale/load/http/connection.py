"""One HTTP/1.1 connection that carries one request at a time."""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MOST_BESIDE_BODY = 64 * 1024
"""Bytes of an answer without any of its body: status, header, interim answers, ends of chunks."""
_NO_BODY = (204, 304)


class Owner(Protocol):
    """A connection's owner."""

    def answered(self, connection: "LoadConnection", status: int, size: int) -> None:
        """Handle a complete response; the connection is idle or closing."""

    def failed(self, connection: "LoadConnection", kind: str, text: str) -> None:
        """Handle the end of a connection before its response was complete."""

    def gone(self, connection: "LoadConnection") -> None:
        """Handle the end of an idle connection."""


class LoadConnection(asyncio.Protocol):
    """Sends requests, and counts responses' bytes without keeping them.

    Args:
        owner: is called with answers and faults.
        clock: seconds, monotonic.
    """

    __slots__ = (
        "_beside_body",
        "_clock",
        "_closes",
        "_has_length",
        "_has_more",
        "_is_in_body",
        "_keeps_alive",
        "_owner",
        "_parser",
        "_size",
        "_status",
        "_transport",
        "due_s",
        "is_busy",
        "number",
        "written_s",
    )  # fmt: skip

    def __init__(self, owner: Owner, clock: Callable[[], float]) -> None:
        self._owner, self._clock = owner, clock
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._closes = self.is_busy = False
        self._expect()
        self.number = 0
        """Of the request it carries; shows a time-out whether that request is still the same."""
        self.due_s = self.written_s = 0.0

    def send(self, data: bytes, due_s: float, number: int) -> None:
        """Send a request that was due at `due_s`."""
        transport = cast("asyncio.Transport", self._transport)  # connected by now
        self.is_busy, self.due_s, self.number = True, due_s, number
        self._expect()
        self.written_s = self._clock()
        transport.write(data)

    def _expect(self) -> None:
        """Prepare for a new response."""
        self._size = self._beside_body = self._status = 0
        self._has_length = self._has_more = self._is_in_body = self._keeps_alive = False

    def close(self) -> None:
        """Close at once, without calling the owner."""
        self.is_busy, self._closes = False, True
        if self._transport is not None:
            self._transport.abort()

    # Called by asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        # uvloop's transports don't derive from asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Parse data; a response that is no HTTP ends the connection."""
        if not self.is_busy:
            self.close()
            self._owner.gone(self)
            return
        self._size += len(data)
        self._beside_body += len(data)
        fault = ""
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            fault = "the server changed to another protocol"
        except HttpParserError as error:
            fault = str(error) or type(error).__name__
        if self._status:
            self._answer(self._status, keeps=self._keeps_alive and not (fault or self._has_more))
        elif fault:
            self._fail("malformed", fault)
        elif self._beside_body > _MOST_BESIDE_BODY:
            text = f"more than {_MOST_BESIDE_BODY} bytes without any of a body"
            self._fail("malformed", text)

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the owner, unless it closed the connection itself."""
        if self.is_busy and exc is None and self._ends_by_closing():
            self._answer(self._parser.get_status_code(), keeps=False)
        elif self.is_busy:
            self._fail("reset", str(exc) if exc else "the server closed the connection")
        elif not self._closes:
            self._owner.gone(self)

    # Called by httptools.

    def on_message_begin(self) -> None:
        """Notice an unexpected message after the response."""
        self._has_more = self._status != 0

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Record how the body's end is known."""
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """Record that the body follows; an interim response (1xx) has none."""
        self._is_in_body = self._parser.get_status_code() >= 200

    def on_body(self, _part: bytes) -> None:
        """Count the body's bytes."""
        self._beside_body = 0

    def on_message_complete(self) -> None:
        """Record the response; it counts once all received data is parsed."""
        status = self._parser.get_status_code()
        if status >= 200 and not self._status:
            self._status, self._keeps_alive = status, self._parser.should_keep_alive()

    def _ends_by_closing(self) -> bool:
        status = self._parser.get_status_code()
        return self._is_in_body and not self._has_length and status not in _NO_BODY

    def _answer(self, status: int, *, keeps: bool) -> None:
        self.is_busy = False
        if not keeps:
            self.close()
        self._owner.answered(self, status, self._size)

    @property
    def is_open(self) -> bool:
        """Whether the connection can carry another request."""
        return not self._closes

    def _fail(self, kind: str, text: str) -> None:
        self.close()
        self._owner.failed(self, kind, text)
