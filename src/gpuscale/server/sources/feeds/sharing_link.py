"""A connection to another replica, whose agents it receives."""

import asyncio
import json
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Literal, Protocol

import aiohttp
from yarl import URL

from gpuscale.base.backoff import Backoff
from gpuscale.base.errors import GpuscaleError, UpstreamError
from gpuscale.base.exposition.stream import StreamError
from gpuscale.base.unreachable import reason_of
from gpuscale.server.sources.feeds.sharing_settings import PATH
from gpuscale.server.sources.feeds.stream import lines
from gpuscale.server.sources.feeds.targets import FeedTarget
from gpuscale.server.sources.http.session import HttpSession

_LOG = logging.getLogger(__name__)
SILENCE_S = 2.5
"""A replica says twice a second that it is there."""
_ANSWER_S = 5.0
_DOWN_S = 2.0
"""How long a connection may be broken until the replica counts as down."""
_FIRST_WAIT_S = 0.1
_LONGEST_WAIT_S = 2.0
_RESTART_S = 5.0
"""From one new request for all agents to the next, at least."""
_FAULTS = (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError)
_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=_DOWN_S)

State = Literal["connecting", "up", "down", "self"]


class Receiver(Protocol):
    """Receives other replicas' lines."""

    own: str
    """The name of the replica that is here."""

    def joined(self, link: "PeerLink") -> None: ...

    def parted(self, link: "PeerLink") -> None:
        """Handle the loss of a replica's connection."""

    def begun(self, link: "PeerLink", targets: Collection[FeedTarget]) -> None:
        """Handle a new connection, with all agents that the replica delivers."""

    def take(self, link: "PeerLink", target: FeedTarget, word: bytes, rest: bytes) -> None: ...


class PeerLink:
    """The connection to one other replica.

    Args:
        url: its base address.
        http: goes there.
        receiver: gets what it delivers.
        server_name: of its certificate; None for the address's host.
    """

    def __init__(
        self, url: str, http: HttpSession, receiver: Receiver, server_name: str | None = None
    ) -> None:
        self.url = url
        self.replica = ""
        """Its name, which changes when it is started again."""
        self.state: State = "connecting"
        self.error: str | None = None
        self.restarts_due = False
        """Whether lines came whose beginning was passed over; a new request brings all agents again."""
        self._address = URL(url).with_path(PATH)
        self._http = http
        self._receiver = receiver
        self._server_name = server_name
        self._targets: dict[bytes, FeedTarget] = {}
        self._down: asyncio.TimerHandle | None = None
        self._began = 0.0

    async def run(self) -> None:
        """Receive until cancelled, or until the address proves to be this replica's own."""
        waits = Backoff(_FIRST_WAIT_S, _LONGEST_WAIT_S)
        while True:
            try:
                async with asyncio.timeout(_ANSWER_S) as limit:
                    await self._follow(limit)
                if self.state == "self":
                    return
                waits.reset()
                continue
            except TimeoutError:
                reason = "no line in time"
            except _FAULTS as error:
                reason = reason_of(error)
            if self.state == "up" and self.error is None:
                _LOG.warning("the replica at %s does not answer: %s", self.url, reason)
                waits.reset()
            self.error = reason
            self._broke()
            await asyncio.sleep(waits.jittered())

    def close(self) -> None:
        """Close the connection to an address that left the list; the replica counts as down."""
        if self._down is not None:
            self._down.cancel()
        if self.state == "up":
            self._part()

    def _broke(self) -> None:
        if self.state == "up":
            if self._down is None:
                loop = asyncio.get_running_loop()
                self._down = loop.call_later(_DOWN_S, self._part)
        else:
            self.state = "down"

    def _part(self) -> None:
        self._down = None
        self.state = "down"
        self._receiver.parted(self)

    async def _follow(self, limit: asyncio.Timeout) -> None:
        loop = asyncio.get_running_loop()
        name = self._server_name if self._address.scheme == "https" else None
        options = {} if name is None else {"server_hostname": name}
        async with self._http.stream("GET", self._address, timeout=_TIMEOUT, **options) as answer:
            if answer.status != 200:
                raise UpstreamError(f"answered {answer.status}")
            self._targets, self._began, self.restarts_due = {}, loop.time(), False
            is_first = is_beginning = True
            async for line in lines(answer.content):
                limit.reschedule(loop.time() + SILENCE_S)
                number, _, message = line.partition(b" ")
                word, _, rest = message.partition(b" ")
                if is_first:
                    self._hello(word, rest)
                    is_first = False
                    if self.state == "self":
                        return
                elif number == b"-":
                    if word == b"renew":
                        return
                    if is_beginning:
                        is_beginning = False
                        self._receiver.begun(self, self._targets.values())
                else:
                    self._take(number, word, rest)
                if self.restarts_due and loop.time() - self._began >= _RESTART_S:
                    return
        raise UpstreamError("the stream ended")

    def _hello(self, word: bytes, rest: bytes) -> None:
        message = json.loads(rest) if word == b"hello" else None
        if not isinstance(message, dict) or message.get("version") != 1:
            raise StreamError("found no hello of version 1 first")
        replica = str(message.get("replica", ""))
        if replica == self._receiver.own:
            self.state = "self"
            return
        if self._down is not None:
            self._down.cancel()
            self._down = None
        if self.state == "up" and self.replica != replica:
            self._receiver.parted(self)
        if self.state != "up" or self.replica != replica:
            _LOG.info("the replica at %s answers", self.url)
            self.replica, self.state, self.error = replica, "up", None
            self._receiver.joined(self)
        self.error = None

    def _take(self, number: bytes, word: bytes, rest: bytes) -> None:
        if word == b"origin":
            self._targets[number] = _target(rest)
            return
        target = self._targets.get(number)
        if target is None:
            raise StreamError(f"found the agent {number[:20]!r} without its origin")
        self._receiver.take(self, target, word, rest)


def _target(text: bytes) -> FeedTarget:
    match json.loads(text):
        case {"url": str() as url, "labels": list() as labels, "pod": str() as pod}:
            pairs = tuple((str(name), str(value)) for name, value in labels)
            return FeedTarget(url, pairs, is_agent=True, pod=pod)
    raise StreamError("found an origin that can't be read")


class PeerLinks:
    """One link for each listed address.

    Args:
        make: returns the link to an address.
    """

    def __init__(self, make: Callable[[str], PeerLink]) -> None:
        self._make = make
        self._links: dict[str, PeerLink] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._group: asyncio.TaskGroup | None = None

    @property
    def all(self) -> tuple[PeerLink, ...]:
        """Return all links, the one to this replica's own address included."""
        return tuple(self._links.values())

    def change(self, urls: Iterable[str]) -> None:
        """Set the addresses to link to; links to others are closed."""
        wanted = dict.fromkeys(urls)
        for url in self._links.keys() - wanted.keys():
            link = self._links.pop(url)
            if (task := self._tasks.pop(url, None)) is not None:
                task.cancel()
            link.close()
        for url in wanted:
            if url not in self._links:
                self._links[url] = self._make(url)
                self._start(url)

    def run(self, group: asyncio.TaskGroup) -> None:
        """Run all present and future links as tasks of a group."""
        self._group = group
        for url in self._links:
            self._start(url)

    def _start(self, url: str) -> None:
        if self._group is not None:
            running = self._links[url].run()
            self._tasks[url] = self._group.create_task(running, name=f"replica {url}")
