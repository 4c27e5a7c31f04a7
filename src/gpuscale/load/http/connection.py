"""One HTTP/1.1 connection that carries one request at a time."""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MOST_BESIDE_BODY = 64 * 1024
"""Bytes of an answer without any of its body: status, header, interim answers, ends of chunks."""
_NO_BODY = (204, 304)


class Owner(Protocol):
    """Whose connection it is."""

    def answered(self, connection: "LoadConnection", status: int, size: int) -> None:
        """Take a whole answer; the connection is idle or closing by then."""

    def failed(self, connection: "LoadConnection", kind: str, text: str) -> None:
        """Take the end of a connection that has a request without a whole answer."""

    def gone(self, connection: "LoadConnection") -> None:
        """Take the end of an idle connection."""


class LoadConnection(asyncio.Protocol):
    """Sends requests, counts the bytes of answers and keeps none of them.

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
        transport = cast("asyncio.Transport", self._transport)  # it is connected by now
        self.is_busy, self.due_s, self.number = True, due_s, number
        self._expect()
        self.written_s = self._clock()
        transport.write(data)

    def _expect(self) -> None:
        """Await a new answer."""
        self._size = self._beside_body = self._status = 0
        self._has_length = self._has_more = self._is_in_body = self._keeps_alive = False

    def close(self) -> None:
        """End it at once; its owner is not called."""
        self.is_busy, self._closes = False, True
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep what writes."""
        # uvloop's transports are none of asyncio's classes.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Read; an answer that is no HTTP ends the connection."""
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
        """Call the owner, unless it ended the connection itself."""
        if self.is_busy and exc is None and self._ends_by_closing():
            self._answer(self._parser.get_status_code(), keeps=False)
        elif self.is_busy:
            self._fail("reset", str(exc) if exc else "the server closed the connection")
        elif not self._closes:
            self._owner.gone(self)

    # What httptools calls.

    def on_message_begin(self) -> None:
        """Note what comes after the answer: nobody asked for it."""
        self._has_more = self._status != 0

    def on_header(self, name: bytes, _value: bytes) -> None:
        """Note how the body's end is known."""
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_headers_complete(self) -> None:
        """Note that the rest is body; an interim answer (1xx) has none, and is no answer."""
        self._is_in_body = self._parser.get_status_code() >= 200

    def on_body(self, _part: bytes) -> None:
        """Count from here what is none."""
        self._beside_body = 0

    def on_message_complete(self) -> None:
        """Note the answer; it counts once all that was read is parsed."""
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
        """Whether it can carry another request."""
        return not self._closes

    def _fail(self, kind: str, text: str) -> None:
        self.close()
        self._owner.failed(self, kind, text)
