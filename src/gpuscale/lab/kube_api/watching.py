"""Watches: open requests that receive each change as a JSON line.

A watch keeps its place in the store's changes and nothing else, so that a slow reader costs no memory. One
that falls behind further than the changes go back, or does not take a line in time, is ended.

Source: apiserver v0.36 pkg/endpoints/handlers (watch.go, get.go); client-go v0.36 tools/cache (reflector.go).
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from gpuscale.lab.kube_api.forms import WantedForm
from gpuscale.lab.kube_api.selecting import ObjectSelection
from gpuscale.lab.kube_api.statuses import expired
from gpuscale.lab.kube_api.store import ExpiredError, ObjectChange, Store, Stored
from gpuscale.server.metricsapi.wire import TOO_MANY, RequestError

Json = dict[str, Any]
MAX_WATCHES = 512
MAX_WATCHES_EACH = 128
"""Of one client's address."""
_LONGEST_S = 1800.0
_WRITE_S = 10.0
"""A client that does not take a line within this time is gone."""
_BOOKMARK_S = 30.0
_LOOK_S = 5.0
"""How often a watch without news looks whether its client is still there."""
_INITIAL_END = {"k8s.io/initial-events-end": "true"}


@dataclass(frozen=True, slots=True)
class WatchRequest:
    """The selection and start of a watch."""

    wanted: WantedForm
    selection: ObjectSelection
    version: int | None
    """Reports what changed after it; None begins with all objects as new ones."""
    marks_progress: bool
    """Whether the client understands bookmarks."""
    marks_initial_end: bool
    """Whether it wants to know when it has been sent all that was there."""
    longest_s: float = _LONGEST_S


class Watches:
    """The open watches of a server.

    Args:
        store: what they are about.
        now_ms: returns the machine's time.
    """

    def __init__(self, store: Store, now_ms: Callable[[], int]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._open: Counter[str] = Counter()
        self._news = asyncio.Event()
        self._is_closed = False

    def tell(self) -> None:
        """Wake all watches, as the store has changed."""
        self._news.set()
        self._news = asyncio.Event()

    def close(self) -> None:
        """End all watches."""
        self._is_closed = True
        self.tell()

    async def serve(self, request: web.Request, watch: WatchRequest) -> web.StreamResponse:
        """Stream watch events until the request's time is up or its client is gone.

        Raises:
            RequestError: too many watches are open, or its version is gone.
        """
        store, selection, wanted = self._store, watch.selection, watch.wanted
        async with self._counted(request.remote or ""):
            there: list[Stored] = []
            if watch.version is None:
                cursor = store.version
                objects = store.all(selection.kind.stored_as, selection.namespace)
                there = [each for each in objects if selection.takes(each)]
            else:
                cursor = watch.version
                try:
                    store.changes_since(cursor)
                except ExpiredError as error:
                    raise RequestError(expired(str(error))) from None
            response = web.StreamResponse(headers={"Content-Type": "application/json"})
            await response.prepare(request)
            try:
                async with asyncio.timeout(watch.longest_s):
                    version = store.version
                    for index, stored in enumerate(there):
                        body = wanted.watched(stored.body, self._now_ms(), is_first=index == 0)
                        await _send(request, response, "ADDED", body)
                    if watch.version is None and watch.marks_initial_end:
                        mark = wanted.bookmark(version, _INITIAL_END)
                        await _send(request, response, "BOOKMARK", mark)
                    await self._follow(request, response, watch, cursor, is_first=not there)
            except (TimeoutError, ConnectionError):
                pass  # the watch's time is up, or the client has gone
            return response

    @asynccontextmanager
    async def _counted(self, client: str) -> AsyncIterator[None]:
        if self._open.total() >= MAX_WATCHES or self._open[client] >= MAX_WATCHES_EACH:
            raise RequestError(TOO_MANY)
        self._open[client] += 1
        try:
            yield
        finally:
            self._open[client] -= 1
            if not self._open[client]:
                del self._open[client]

    async def _follow(
        self,
        request: web.Request,
        response: web.StreamResponse,
        watch: WatchRequest,
        cursor: int,
        *,
        is_first: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        told_s = loop.time()
        while not self._is_closed:
            news = self._news
            try:
                changes = self._store.changes_since(cursor)
            except ExpiredError as error:
                await _send(request, response, "ERROR", expired(str(error)).body())
                return
            for type_, stored in _selected(watch.selection, changes):
                body = watch.wanted.watched(stored.body, self._now_ms(), is_first=is_first)
                is_first = False
                await _send(request, response, type_, body)
                told_s = loop.time()
            cursor = changes[-1].version if changes else cursor
            if watch.marks_progress and loop.time() - told_s >= _BOOKMARK_S:
                mark = watch.wanted.bookmark(cursor, {})
                await _send(request, response, "BOOKMARK", mark)
                told_s = loop.time()
            if request.transport is None or request.transport.is_closing():
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_S):
                    await news.wait()


def _selected(
    selection: ObjectSelection, changes: list[ObjectChange]
) -> Iterator[tuple[str, Stored]]:
    """Yield a watch's events; an object that no longer matches counts as deleted."""
    for change in changes:
        if change.last.resource != selection.kind.stored_as:
            continue
        was = change.before is not None and selection.takes(change.before)
        is_now = change.after is not None and selection.takes(change.after)
        if is_now:
            yield "MODIFIED" if was else "ADDED", change.last
        elif was:
            yield "DELETED", change.last


async def _send(request: web.Request, response: web.StreamResponse, type_: str, body: Json) -> None:
    event = {"type": type_, "object": body}
    line = json.dumps(event, separators=(",", ":"), ensure_ascii=False)
    try:
        async with asyncio.timeout(_WRITE_S):
            await response.write(f"{line}\n".encode("utf-8", "backslashreplace"))
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()  # ending the response would wait for this reader too
        raise
