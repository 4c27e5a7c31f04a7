"""A local copy of one kind of objects, kept current by list and watch.

The copy follows the protocol of the API server: a list says at which resource version it was made, a watch
goes on from there, bookmarks move the version forward without an event, and 410 Gone asks for a new list.
While the server is away the last copy stays, with the reason and since when.

Source: kubernetes API concepts, "Efficient detection of changes"; client-go tools/cache (reflector.go).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from gpuscale.base.backoff import Backoff
from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.memory import give_memory_back
from gpuscale.kube.client.answers import JsonObject
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.reader import Reads
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.json_values import mapping_of, text_of

_log = logging.getLogger(__name__)
_GONE = 410
_MANY_PAGES = 4
"""Of one list; what reading them took is worth giving back."""
Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class ReflectorState:
    """How current a copy is."""

    listed: bool = False
    """Whether there was a whole list yet."""
    error: GpuscaleError | None = None
    """Why the copy is not kept up now."""
    since_ms: int | None = None
    """Since when it is not; None while it is."""
    proven_s: float | None = None
    """When the API server last said something of it, by the machine's monotonic clock; None is never."""

    def age_s(self) -> float:
        """Return the seconds since the last news; infinite if there was none."""
        return float("inf") if self.proven_s is None else time.monotonic() - self.proven_s


class Reflector(Generic[Item]):
    """Keeps a copy of the objects at one path.

    Args:
        connection: to the API server.
        settings: waits and sizes.
        path: of the collection, such as `/api/v1/pods`.
        params: selectors.
        read: makes an item of a JSON object; None for one that is of no interest.
        clock: stamps the state and waits.
        changed: called after each change of the copy.
        removed: gets the `namespace/name` of an object that a watch saw go, before `changed` is called.
    """

    def __init__(
        self,
        connection: Reads,
        settings: KubeSettings,
        path: str,
        params: Mapping[str, str],
        read: Callable[[JsonObject], Item | None],
        clock: Clock,
        changed: Callable[[], None],
        removed: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._path = path
        self._params = params
        self._read = read
        self._clock = clock
        self._changed = changed
        self._removed = removed
        self._items: dict[str, Item] = {}
        self._version: str | None = None
        self._state = ReflectorState()
        self._hurried = asyncio.Event()
        self._tried_s = float("-inf")

    @property
    def items(self) -> Mapping[str, Item]:
        """Return the copy: `namespace/name` to item."""
        return self._items

    @property
    def state(self) -> ReflectorState:
        """Return how current the copy is."""
        return self._state

    async def run(self) -> None:
        """Keep the copy current until cancelled."""
        waits = Backoff(self._settings.retry_s, self._settings.max_retry_s)
        while True:
            began_ms = self._clock.now_ms()
            failed = await self._follow_once()
            # A server that ends every watch at once counts as failing.
            is_hasty = self._clock.now_ms() - began_ms < self._settings.retry_s * 1000
            if not failed and not is_hasty:
                waits.reset()
                continue
            await self._pause(waits.jittered())

    def hurry(self) -> bool:
        """Retry now rather than after the wait; return whether it will.

        It does not while a try is under way, or within `retry_s` of the latest.
        """
        if time.monotonic() - self._tried_s < self._settings.retry_s or self._hurried.is_set():
            return False
        self._hurried.set()
        return True

    async def _pause(self, wait_s: float) -> None:
        """Wait, unless a retry is requested."""
        self._tried_s = time.monotonic()
        self._hurried.clear()
        waiting = {
            asyncio.ensure_future(self._clock.sleep(wait_s)),
            asyncio.ensure_future(self._hurried.wait()),
        }
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waiting:
                each.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            self._hurried.set()

    async def _follow_once(self) -> bool:
        """List if necessary, then watch until the server ends it; return whether it failed."""
        try:
            if self._version is None:
                await self._list()
            await self._watch()
        except (ApiUnreachableError, ApiStatusError) as error:
            if isinstance(error, ApiStatusError):
                self._version = None
                if error.code == _GONE:
                    return False
            self._fail(error)
            return True
        return False

    async def _list(self) -> None:
        found: dict[str, Item] = {}
        page: str | None = None
        version, pages = "", 0
        while page != "":
            params = {**self._params, "limit": str(self._settings.page_size)}
            if page is not None:
                params["continue"] = page
            body = await self._connection.get(self._path, params)
            version, page = _text(body, "resourceVersion"), _text(body, "continue")
            for each in _items(body):
                self._put(found, each)
            pages += 1
        if pages >= _MANY_PAGES:
            give_memory_back()
        self._items = found
        self._version = version
        self._confirm()
        self._changed()

    async def _watch(self) -> None:
        params = {
            **self._params,
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version or "",
        }
        async with self._connection.watch(self._path, params) as events:
            self._confirm()
            async for event in events:
                self._apply(event)
        # The watch ended regularly, so that no change was missed up to now.
        self._confirm()

    def _apply(self, event: JsonObject) -> None:
        kind, body = event.get("type"), event.get("object")
        if not isinstance(body, dict):
            return
        if kind == "ERROR":
            code = body.get("code")
            text = f"the watch of {self._path} ended: {body.get('message')}"
            raise ApiStatusError(code if isinstance(code, int) else 500, text)
        self._version = _text(body, "resourceVersion") or self._version
        self._confirm()
        if kind == "DELETED":
            self._items.pop(_key(body), None)
            self._removed(_key(body))
        elif kind in ("ADDED", "MODIFIED"):
            self._put(self._items, body)
        if kind != "BOOKMARK":
            self._changed()

    def _put(self, items: dict[str, Item], body: JsonObject) -> None:
        item = self._read(body)
        if item is None:
            items.pop(_key(body), None)
        else:
            items[_key(body)] = item

    def _confirm(self) -> None:
        was_away = self._state.error is not None
        self._state = ReflectorState(listed=True, proven_s=time.monotonic())
        if was_away:
            _log.info("%s is followed again", self._path)
            self._changed()

    def _fail(self, error: GpuscaleError) -> None:
        if self._state.error is None:
            _log.warning("%s is not followed: %s", self._path, error)
        before = self._state
        since_ms = self._clock.now_ms() if before.since_ms is None else before.since_ms
        self._state = ReflectorState(before.listed, error, since_ms, before.proven_s)
        self._changed()


def _metadata(body: JsonObject) -> Mapping[str, object]:
    return mapping_of(body.get("metadata"))


def _text(body: JsonObject, key: str) -> str:
    return text_of(_metadata(body).get(key))


def _key(body: JsonObject) -> str:
    return f"{_text(body, 'namespace')}/{_text(body, 'name')}"


def _items(body: JsonObject) -> list[JsonObject]:
    items = body.get("items")
    return [each for each in items if isinstance(each, dict)] if isinstance(items, list) else []
