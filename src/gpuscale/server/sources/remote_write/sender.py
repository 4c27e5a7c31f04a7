"""Sends a store's new samples to one receiver.

The store is the queue. Every few seconds the sender reads what came since, makes requests of it, and sends
some of them at a time; while the receiver is away it keeps these requests, and new samples simply stay in
the store. So an outage costs no memory, and as long as it is shorter than the store's retention, no
samples. Samples of one series are always sent in order.

Source: the remote write specification 1.0; prometheus storage/remote (queue_manager.go, client.go).
"""

import asyncio
import logging
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import aiohttp
from yarl import URL

from gpuscale.base.backoff import Backoff
from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.unreachable import reason_of
from gpuscale.series.remote_write import pieces, value_rows
from gpuscale.series.storage import Batch, SeriesStore, Tail
from gpuscale.server.sources.http.access import SecretFile, SourceAccess, tls_to
from gpuscale.server.sources.http.entra import token_of
from gpuscale.server.sources.http.session import HttpSession
from gpuscale.server.sources.remote_write.encoding import Message, encoder_of
from gpuscale.server.sources.remote_write.settings import RemoteWriteEndpoint

BOUNDS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0)
"""Of the histogram of how long requests take."""
_LOG = logging.getLogger(__name__)
_MAX_ANSWER_BYTES = 64 * 1024
_SHOWN_CHARS = 256
"""Of what a receiver says about a refusal."""
_MAX_RETRY_AFTER_S = 300.0
_REMIND_S = 60.0
"""From one line of the log about the same trouble to the next."""
_FLUSH_S = 5.0
"""How long the rest may take at the end."""
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError)


@dataclass(slots=True)
class SendState:
    """The state of sending to a receiver: counts since the start, and the current fault."""

    name: str
    url: str
    """Less user, password and query."""
    fault: str | None = None
    """Why the latest request failed; None where it did not."""
    sent: int = 0
    """Samples that the receiver took."""
    failed: int = 0
    """Samples that it refused for good."""
    retried: int = 0
    """Samples of requests that were sent once more."""
    dropped: dict[str, int] = field(
        default_factory=lambda: {"dropped_series": 0, "too_old": 0, "shutdown": 0}
    )
    """Samples that were not sent, by reason."""
    pending: int = 0
    """Samples that are encoded and not taken yet."""
    sent_bytes: int = 0
    """As compressed."""
    newest_ms: int = 0
    """The newest sample that the receiver took."""
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_S) + 1))
    """Requests by how long they took."""
    seconds: float = 0.0

    def took(self, seconds: float) -> None:
        self.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        self.seconds += seconds


@dataclass(frozen=True, slots=True)
class _Request:
    """An encoded message."""

    body: bytes
    samples: int
    newest_ms: int


class RemoteWriter:
    """Sends samples to one receiver.

    Args:
        store: what is sent; its samples of before now are not.
        endpoint: the receiver.
        clock: gives the samples their times.
        sent_ms: the time that a sample is sent with, by its own; None where they are the same.

    Raises:
        UsageError: a certificate that can't be used.
    """

    def __init__(
        self,
        store: SeriesStore,
        endpoint: RemoteWriteEndpoint,
        clock: Clock,
        sent_ms: Callable[[int], int] | None = None,
    ) -> None:
        self.state = SendState(endpoint.name, endpoint.shown_url)
        self.endpoint = endpoint
        self._clock = clock
        self._sent_ms = sent_ms
        self._tail = Tail(store)
        self._encoder = encoder_of(endpoint)
        access = endpoint_access(endpoint)
        self._http = HttpSession(endpoint.timeout_s, _MAX_ANSWER_BYTES, access, endpoint.requests)
        self._url = URL(endpoint.url)
        self._places = asyncio.Semaphore(endpoint.requests)
        self._sending: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[None]] = set()
        self._logged: tuple[str | None, float] = (None, 0.0)

    def skip(self) -> None:
        """Skip the samples that are in the store now."""
        self._tail.skip()

    async def run(self) -> None:
        """Send until cancelled."""
        while True:
            await asyncio.sleep(self.endpoint.interval_s)
            # Samples already read are sent, even if this is cancelled meanwhile.
            self._sending = asyncio.create_task(self.send_new(), name="remote write")
            await asyncio.shield(self._sending)

    async def close(self) -> None:
        """Send what is left, for a few seconds, and close the connections."""
        try:
            async with asyncio.timeout(_FLUSH_S):
                if self._sending is not None:
                    await self._sending
                await self.send_new()
        except TimeoutError:
            _LOG.warning("%s: samples were left unsent at the end", self.state.url)
        finally:
            for task in self._under_way:
                task.cancel()
            await asyncio.gather(*self._under_way, return_exceptions=True)
            self.state.dropped["shutdown"] += self.state.pending
            await self._http.close()

    async def send_new(self) -> None:
        """Send the samples since the last call."""
        message = self._encoder.message()
        for batch in self._tail.read():
            last_times: slice | None = None
            for columns, times in pieces(batch, self.endpoint.max_samples):
                is_later = batch.is_later if last_times is None else times != last_times
                size = len(columns) * (times.stop - times.start)
                if is_later or message.samples + size > self.endpoint.max_samples:
                    await self._send(message)
                    message = self._encoder.message()
                if is_later:
                    # Earlier samples of the same series are in flight.
                    await self._arrived()
                last_times = times
                self._add(message, batch, columns, times)
                if not message.samples:
                    # Skipped series need no request, so there is no wait in this loop: the rest of
                    # the process gets its turn here.
                    await asyncio.sleep(0)
        await self._send(message)
        await self._arrived()
        self._tail.commit()

    def _add(self, message: Message, batch: Batch, columns: range, times: slice) -> None:
        times_ms = batch.times_ms[times]
        rows = value_rows(batch, columns, times)
        if self.endpoint.max_age_s:
            oldest_ms = self._clock.now_ms() - round(self.endpoint.max_age_s * 1000)
            old = sum(t_ms < oldest_ms for t_ms in times_ms)
            self.state.dropped["too_old"] += old * len(columns)
            times_ms, rows = times_ms[old:], rows[old:]
        if times_ms and self._sent_ms is not None:
            times_ms = array("q", map(self._sent_ms, times_ms))
        if times_ms:
            refs = batch.refs[columns.start : columns.stop]
            encode = self._encoder.encode
            labels = [None if ref is None else encode(ref.labels) for ref in refs]
            message.add(labels, times_ms, rows)
            if self.endpoint.drops_series:
                dropped = sum(
                    label is None and ref is not None
                    for label, ref in zip(labels, refs, strict=True)
                )
                self.state.dropped["dropped_series"] += dropped * len(times_ms)

    async def _send(self, message: Message) -> None:
        """Start sending a message; each part waits for a free request slot."""
        if not message.samples:
            return
        for body, samples in message.bodies():
            await self._places.acquire()
            request = _Request(body, samples, message.newest_ms)
            self.state.pending += request.samples
            task = asyncio.create_task(self._deliver(request))
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            # Building a request takes some milliseconds; the rest of the process gets its turn in
            # between.
            await asyncio.sleep(0)

    async def _arrived(self) -> None:
        """Wait until no request is in flight."""
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _deliver(self, request: _Request) -> None:
        """Send a request, retrying until the receiver accepts it or refuses it for good."""
        waits = Backoff(self.endpoint.min_backoff_s, self.endpoint.max_backoff_s)
        attempt = 0
        try:
            while (pause_s := await self._attempt(request, attempt)) is not None:
                self.state.retried += request.samples
                attempt += 1
                await asyncio.sleep(max(pause_s, waits.jittered()))
            self.state.pending -= request.samples
        finally:
            self._places.release()

    async def _attempt(self, request: _Request, attempt: int) -> float | None:
        """Send a request once; return None if it is finished, else the least pause before a retry, in s."""
        state = self.state
        headers = [*self._encoder.headers, *([("Retry-Attempt", str(attempt))] if attempt else ())]
        options = {"server_hostname": name} if (name := self.endpoint.server_name) else {}
        began = time.monotonic()
        try:
            async with self._http.stream(
                "POST", self._url, data=request.body, headers=headers, **options
            ) as response:
                text = (await response.content.read(_SHOWN_CHARS)).decode("utf-8", "replace")
                status, retry_after = response.status, response.headers.get("Retry-After")
                shown = response.request_info.headers.get("Authorization", "")
        except _FAULTS as error:
            self._note(reason_of(error))
            return 0.0
        finally:
            state.took(time.monotonic() - began)
        if status // 100 == 2:
            state.sent += request.samples
            state.sent_bytes += len(request.body)
            state.newest_ms = max(state.newest_ms, request.newest_ms)
            self._note(None)
            return None
        self._note(f"answered {status}: {_first_line(text)}")
        if status == 401 and attempt == 0 and self._http.access.forgets(shown):
            # A token can expire early or be revoked.
            return 0.0
        if status >= 500 or (status == 429 and self.endpoint.retries_429):
            return _pause_s(retry_after)
        state.failed += request.samples
        return None

    def _note(self, fault: str | None) -> None:
        """Record a failure, and log it now and then."""
        if fault is None:
            if self.state.fault is not None:
                _LOG.info("%s takes samples again", self.state.url)
            self._logged = (None, 0.0)
        else:
            known, logged_s = self._logged
            now = time.monotonic()
            if known is None or now - logged_s >= _REMIND_S:
                _LOG.warning("%s does not take samples: %s", self.state.url, fault)
                self._logged = (fault, now)
        self.state.fault = fault


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def _pause_s(retry_after: str | None) -> float:
    """Return the seconds of a `Retry-After` header, which holds a number or a date."""
    if not retry_after:
        return 0.0
    try:
        seconds = float(int(retry_after))
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after)
            if date.tzinfo is None:
                date = date.replace(tzinfo=UTC)
            seconds = (date - datetime.now(UTC)).total_seconds()
        except (ValueError, OverflowError):
            return 0.0
    return min(max(seconds, 0.0), _MAX_RETRY_AFTER_S)


def endpoint_access(endpoint: RemoteWriteEndpoint) -> SourceAccess:
    """Return TLS and credentials for a receiver.

    Raises:
        UsageError: a certificate that can't be used.
    """
    password = endpoint.password_file
    return SourceAccess(
        endpoint.headers,
        token_of(endpoint.token_file, endpoint.azure_login),
        endpoint.username,
        None if password is None else SecretFile(password),
        tls_to(
            endpoint.shown_url,
            endpoint.ca_file,
            endpoint.client_files,
            verifies=endpoint.verifies,
        ),
    )
