"""The live page's routes: page, files, data stream, load buttons."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol
from urllib.parse import urlsplit

from aiohttp import web

from gpuscale.base.errors import BugError, GpuscaleError, NotFoundError
from gpuscale.base.pages.assets import asset

MAX_BODY_BYTES = 4096
"""A load order is under 200 bytes; anything near this is not one."""
MAX_STREAMS = 64
"""Pages that follow one run at a time; each costs the run a state and a slice per update."""
UPDATE_SECONDS = 0.5
QUIET_SECONDS = 15.0
"""Until a page that gets nothing new is written to, so that one that is gone is noticed."""
WRITE_TIMEOUT_SECONDS = 10.0
"""A page that takes no data for this long, say on a machine that sleeps, may ask again later."""
RETRY_MS = 1000
"""How long a browser waits before it asks for the stream again."""
MAX_CURSOR = 2**53
"""The largest whole number that JavaScript counts exactly."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


class LiveRun(Protocol):
    """A run that can be watched while it goes on."""

    def document(self) -> dict[str, object]:
        """Return the whole run so far: scenario, summary, events and series."""
        ...

    def since(self, points: int, events: int) -> dict[str, object]:
        """Return the points and events after these numbers of each, with the current totals.

        The totals count what was dropped from the start of a long run too, and so does `points`, the
        index of the first point returned.
        """
        ...

    def state(self) -> dict[str, object]:
        """Return the current state of the run; the same object again is a state that pages have.

        Of each HPA, `metrics` has plain numbers to compare and `targets` the text that kubectl shows;
        `figures` are the summary's numbers so far, as pairs of words and text.
        """
        ...


@dataclass(frozen=True, slots=True)
class LoadOrder:
    """A load button's request."""

    workload: str
    rate: float | None
    """Requests per second; None follows the scenario again."""


SetLoad = Callable[[str, float | None], None]
"""Gives a workload so many requests per second; None follows the scenario again.

Raises ValueError where there is no such workload, or for a rate it can't have; the user sees its message."""


Order = Callable[[Mapping[str, object]], Awaitable[None]]
"""Does what a control of the page asks for, given as a JSON object.

Raises ValueError for what can't be done; the user sees its message."""


WhatIf = Callable[[Mapping[str, str]], Awaitable[Mapping[str, object]]]
"""Answers a question of the page, given as the fields of its form.

Raises ValueError for fields that can't be, and GpuscaleError where there is no answer."""


def add_page(
    app: web.Application,
    run: LiveRun,
    set_load: SetLoad | None = None,
    what_if: WhatIf | None = None,
    orders: Mapping[str, Order] | None = None,
    report: Callable[[], str] | None = None,
) -> None:
    """Add the live page of `run` to `app`, before the app runs.

    Args:
        app: that serves it.
        run: what is watched.
        set_load: what the page's load buttons call; None where the load is not ours.
        what_if: what an HPA would do with other numbers; None where nobody can say.
        orders: what the page's other controls call, by name.
        report: the run so far as one HTML file; None where there is none.
    """
    page = _Page(run, set_load, what_if)

    app.add_routes(
        [
            web.get("/", page.index),
            web.get("/static/{file}", page.static),
            web.get("/ui/document", page.document),
            web.get("/ui/state", page.state),
            web.get("/ui/stream", page.stream),
            *([] if what_if is None else [web.get("/ui/what-if", page.what_if)]),
            *([] if report is None else [web.get("/ui/report", page.saver(report))]),
            *([] if set_load is None else [web.post("/ui/load", page.load)]),
            *(web.post(f"/ui/{name}", page.taker(order)) for name, order in (orders or {}).items()),
        ]
    )
    app.on_shutdown.append(page.stop)


def parse_load_order(body: bytes) -> LoadOrder:
    """Parse a load button's request body.

    Raises:
        ValueError: not an order; the message says what is wrong.
    """
    data = parse_order(body, _example())
    if not isinstance(data.get("workload"), str):
        raise ValueError(f"workload: expected the name of a workload, as in {_example()}")
    if "rate" not in data:
        raise ValueError("rate: expected requests per second, or null to follow the scenario")
    rate = data["rate"]
    if rate is None:
        return LoadOrder(data["workload"], None)
    if isinstance(rate, bool) or not isinstance(rate, (int, float)):
        raise ValueError(f"rate: found {json.dumps(rate)[:60]}, expected a number or null")
    if not 0 <= rate < 1e9:  # also refuses NaN, as comparisons with it are false
        raise ValueError(f"rate: found {str(rate)[:30]}, expected 0 or more, below 1e9")
    return LoadOrder(data["workload"], float(rate))


def parse_order(body: bytes, example: str) -> dict[str, Any]:
    """Parse the JSON object of a request's body.

    Raises:
        ValueError: not an object, or too long; the message says what is wrong.
    """
    if len(body) > MAX_BODY_BYTES:
        raise ValueError(f"expected a body of at most {MAX_BODY_BYTES} bytes")
    try:
        data = json.loads(body)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ValueError(f"expected JSON such as {example}")
    return data


def _example() -> str:
    return '{"workload": "NAME", "rate": 4.6}'


def same_origin(request: web.BaseRequest) -> bool:
    """Return whether a request comes from our own page; programs send no Origin, and may pass."""
    if request.headers.get("Sec-Fetch-Site", "same-origin") not in {"same-origin", "none"}:
        return False
    origin = request.headers.get("Origin")
    return origin is None or urlsplit(origin).netloc == request.host


def parse_cursor(request: web.BaseRequest) -> tuple[int, int]:
    """Return how many points and events a page has, from the last event's id or from the URL.

    Raises:
        ValueError: not two whole numbers.
    """
    sent = request.headers.get("Last-Event-ID", "").split("-")
    points, events = (
        sent
        if len(sent) == 2
        else (request.query.get("points", "0"), request.query.get("events", "0"))
    )
    return _count("points", points), _count("events", events)


def _count(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 16 and int(text) <= MAX_CURSOR):
        raise ValueError(f"{name}: found {text[:40]!r}, expected a whole number from 0")
    return int(text)


class _Page:
    """The page's handlers, with their open streams."""

    def __init__(self, run: LiveRun, set_load: SetLoad | None, what_if: WhatIf | None) -> None:
        self._run = run
        self._set_load = set_load
        self._what_if = what_if
        self._encoded: tuple[object, tuple[int, int], tuple[int, int], str] | None = None
        """The last message, from which cursor to which: all pages that are up to date want the same."""
        self._streams = 0
        self._stopping = asyncio.Event()

    async def stop(self, _: web.Application) -> None:
        """End all streams, so that the server can stop."""
        self._stopping.set()

    async def index(self, request: web.Request) -> web.StreamResponse:
        return await _send_asset(request, "page.html")

    async def static(self, request: web.Request) -> web.StreamResponse:
        return await _send_asset(request, request.match_info["file"])

    async def document(self, _: web.Request) -> web.Response:
        since = self._run.since(MAX_CURSOR, MAX_CURSOR)
        whole = {**self._run.document(), "totals": since["totals"]}
        response = await asyncio.to_thread(_json, whole)  # tens of megabytes after some days
        response.enable_compression()
        return response

    async def state(self, _: web.Request) -> web.Response:
        return _json(self._run.state())

    async def load(self, request: web.Request) -> web.Response:
        async def give() -> None:
            order = parse_load_order(await _bounded_body(request))
            if self._set_load is not None:
                self._set_load(order.workload, order.rate)

        return await self._ordered(request, give)

    def taker(self, order: Order) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def take(request: web.Request) -> web.Response:
            async def give() -> None:
                await order(parse_order(await _bounded_body(request), "{}"))

            return await self._ordered(request, give)

        return take

    async def _ordered(
        self, request: web.Request, give: Callable[[], Awaitable[None]]
    ) -> web.Response:
        if not same_origin(request):
            return _error(403, "the request comes from another site's page")
        try:
            await give()
        except ValueError as error:
            return _error(400, str(error))
        return _json(self._run.state())

    def saver(self, report: Callable[[], str]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def save(_: web.Request) -> web.Response:
            # Of the loop's own objects, so not in a thread.
            headers = {
                **_HEADERS,
                "Cache-Control": "no-store",
                "Content-Disposition": 'attachment; filename="run.html"',
            }
            response = web.Response(text=report(), content_type="text/html", headers=headers)
            response.enable_compression()
            return response

        return save

    async def what_if(self, request: web.Request) -> web.Response:
        if self._what_if is None:
            raise BugError("the page has a route for what nobody answers")
        try:
            return _json(await self._what_if(request.query))
        except ValueError as error:
            return _error(400, str(error))
        except GpuscaleError as error:
            return _error(503, str(error))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        try:
            cursor = parse_cursor(request)
        except ValueError as error:
            return _error(400, str(error))
        if self._streams >= MAX_STREAMS:
            return _error(503, f"{MAX_STREAMS} pages follow this run already")
        self._streams += 1
        try:
            return await self._follow(request, cursor)
        finally:
            self._streams -= 1

    async def _follow(self, request: web.Request, cursor: tuple[int, int]) -> web.StreamResponse:
        response = web.StreamResponse(headers={**_HEADERS, "Cache-Control": "no-store"})
        response.content_type = "text/event-stream"
        try:
            await response.prepare(request)
            await response.write(f"retry: {RETRY_MS}\n\n".encode())
            sent, quiet_s = None, 0.0
            while not self._stopping.is_set():
                state = self._run.state()
                message = ""
                if state is not sent:
                    cursor, message = self._message(state, cursor)
                    sent, quiet_s = state, 0.0
                elif quiet_s >= QUIET_SECONDS:
                    message, quiet_s = ": still here\n\n", 0.0
                quiet_s += UPDATE_SECONDS
                if message:
                    async with asyncio.timeout(WRITE_TIMEOUT_SECONDS):
                        await response.write(message.encode())
                with suppress(TimeoutError):
                    async with asyncio.timeout(UPDATE_SECONDS):
                        await self._stopping.wait()
        except (ConnectionError, TimeoutError):
            pass  # the page is gone, or has stopped reading
        return response

    def _message(
        self, state: Mapping[str, object], cursor: tuple[int, int]
    ) -> tuple[tuple[int, int], str]:
        """Return how far a page is with the message, and the message."""
        if self._encoded is not None and self._encoded[0] is state and self._encoded[1] == cursor:
            return self._encoded[2:]
        since = self._run.since(*cursor)
        totals = since.get("totals")
        if not isinstance(totals, Mapping):
            raise BugError("LiveRun.since returned no totals")
        now = int(totals["points"]), int(totals["events"])
        data = json.dumps({"state": state, "since": since}, allow_nan=False)
        self._encoded = state, cursor, now, f"id: {now[0]}-{now[1]}\ndata: {data}\n\n"
        return self._encoded[2:]


async def _bounded_body(request: web.Request) -> bytes:
    """Return the body, read up to one byte past the parser's limit."""
    body = b""
    while len(body) <= MAX_BODY_BYTES:
        piece = await request.content.read(MAX_BODY_BYTES + 1 - len(body))
        if not piece:
            break
        body += piece
    return body


async def _send_asset(request: web.Request, name: str) -> web.Response:
    try:
        found = await asyncio.to_thread(asset, name)
    except NotFoundError as error:
        return _error(404, str(error))
    headers = {
        **_HEADERS,
        "Cache-Control": "no-cache",
        "ETag": f'"{found.etag}"',
        "Vary": "Accept-Encoding",
    }
    if any(tag.value == found.etag for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    zipped = "gzip" in request.headers.get("Accept-Encoding", "")
    if zipped:
        headers["Content-Encoding"] = "gzip"
    body = found.gzipped if zipped else found.body
    return web.Response(
        body=body, content_type=found.content_type, charset="utf-8", headers=headers
    )


def _json(data: Mapping[str, object], status: int = 200) -> web.Response:
    body = json.dumps(data, allow_nan=False)
    headers = {**_HEADERS, "Cache-Control": "no-store"}
    return web.Response(text=body, status=status, content_type="application/json", headers=headers)


def _error(status: int, message: str) -> web.Response:
    return _json({"error": message}, status)
