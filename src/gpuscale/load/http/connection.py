"""One HTTP/1.1 connection that carries one request at a time."""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from httptools import HttpParserError, HttpResponseParser

_MOST_HEADER_BYTES = 64 * 1024
_NO_BODY = (204, 304)


class Owner(Protocol):
    """Whose connection it is."""

    def answered(self, connection: "Connection", status: int, size: int) -> None:
        """Take a whole answer; the connection is idle or closing by then."""

    def failed(self, connection: "Connection", kind: str, text: str) -> None:
        """Take the end of a connection that has a request without a whole answer."""

    def gone(self, connection: "Connection") -> None:
        """Take the end of an idle connection."""


class Connection(asyncio.Protocol):
    """Sends requests, counts the bytes of answers and keeps none of them.

    Args:
        owner: is called with answers and faults.
        clock: seconds, monotonic.
    """

    __slots__ = (
        "_clock",
        "_closes",
        "_has_length",
        "_header_bytes",
        "_owner",
        "_parser",
        "_size",
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
        self._size = self._header_bytes = 0
        self._has_length = self._closes = False
        self.is_busy = False
        self.number = 0
        """Of the request it carries; shows a time-out whether that request is still the same."""
        self.due_s = self.written_s = 0.0

    def send(self, data: bytes, due_s: float, number: int) -> None:
        """Send a request that was due at `due_s`."""
        transport = cast("asyncio.Transport", self._transport)  # it is connected by now
        self.is_busy, self.due_s, self.number = True, due_s, number
        self._size = self._header_bytes = 0
        self._has_length = False
        self.written_s = self._clock()
        transport.write(data)

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
        try:
            self._parser.feed_data(data)
        except HttpParserError as error:
            self._fail("malformed", str(error) or type(error).__name__)

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the owner, unless it ended the connection itself."""
        if self.is_busy and exc is None and self._ends_by_closing():
            self._answer(self._parser.get_status_code())
        elif self.is_busy:
            self._fail("reset", str(exc) if exc else "the server closed the connection")
        elif not self._closes:
            self._owner.gone(self)

    # What httptools calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """Bound the header, and note how the body's end is known."""
        self._header_bytes += len(name) + len(value)
        if self._header_bytes > _MOST_HEADER_BYTES:
            raise HttpParserError(f"a header of more than {_MOST_HEADER_BYTES} bytes")
        self._has_length |= name.lower() in (b"content-length", b"transfer-encoding")

    def on_message_complete(self) -> None:
        """Finish the request; an interim answer (1xx) is no answer."""
        status = self._parser.get_status_code()
        if status >= 200:
            self._answer(status)

    def _ends_by_closing(self) -> bool:
        status = self._parser.get_status_code()
        return self._header_bytes > 0 and not self._has_length and status not in _NO_BODY

    def _answer(self, status: int) -> None:
        self.is_busy = False
        if not self._parser.should_keep_alive():
            self.close()
        self._owner.answered(self, status, self._size)

    @property
    def is_open(self) -> bool:
        """Whether it can carry another request."""
        return not self._closes

    def _fail(self, kind: str, text: str) -> None:
        self.close()
        self._owner.failed(self, kind, text)
