"""A replica's side of sharing agents: it delivers the agents it follows, and takes the others from replicas.

Each agent has one place in the store, whatever fills it: this replica's own connection to the agent, or
another replica that delivers it. The place changes hands with a snapshot, so series go on in the same rows,
with the times they were measured at, and only its source can end them.
"""

import asyncio
import logging
import uuid
from collections.abc import Callable, Collection, Iterable

from gpuscale.base.clock import Clock
from gpuscale.base.errors import GpuscaleError
from gpuscale.base.exposition.stream import StreamLine
from gpuscale.kube.client import KubeClient, KubeSettings
from gpuscale.series import WantedSeries
from gpuscale.series.storage import Series
from gpuscale.server.sources.feeds.sharing_discovery import PeerWatch
from gpuscale.server.sources.feeds.sharing_division import Division
from gpuscale.server.sources.feeds.sharing_link import PeerLink, PeerLinks
from gpuscale.server.sources.feeds.sharing_relay import Relay
from gpuscale.server.sources.feeds.sharing_settings import PeerSettings, peer_access
from gpuscale.server.sources.feeds.stream import Seat, StreamFollower
from gpuscale.server.sources.feeds.targets import FeedTarget
from gpuscale.server.sources.http.session import HttpSession

_LOG = logging.getLogger(__name__)
_TICK_S = 0.1
_ALIVE_S = 0.5
_FIRST_S = 3.0
"""How long agents wait at the start for the other replicas to answer."""
ABANDONED_S = 15.0
"""How long series stay that no replica delivers any more; long enough for one to take over."""


class ReplicaSharing:
    """This replica's part in sharing.

    Args:
        settings: the other replicas.
        clock: gives the samples their times.
        wanted: says which series are kept.
        make_seat: returns a new place in the store for an agent.
        changed: called when other agents may have to be followed.
        kube: to the API server, which lists the replicas of a Service; None for fixed addresses alone.
        kube_settings: waits and sizes.
    """

    def __init__(
        self,
        settings: PeerSettings,
        clock: Clock,
        wanted: WantedSeries,
        make_seat: Callable[[FeedTarget], Seat],
        changed: Callable[[], None],
        kube: KubeClient | None = None,
        kube_settings: KubeSettings | None = None,
    ) -> None:
        self.own = uuid.uuid4().hex
        self.discovered: frozenset[FeedTarget] = frozenset()
        """The agents that this replica knows of itself."""
        self._http = HttpSession(access=peer_access(settings), max_connections=0)
        self._clock = clock
        self._wanted = wanted
        self._make_seat = make_seat
        self._changed = changed
        self._started_s: float | None = None
        self._division: Division[FeedTarget] = Division(self.own, _now_s, lambda target: target.url)
        self.relay = Relay(self.own, _now_s)
        self._links = PeerLinks(lambda url: PeerLink(url, self._http, self, settings.server_name))
        self._fixed = settings.urls
        self.watch = (
            None
            if settings.service is None or kube is None
            else PeerWatch(
                settings.service,
                kube,
                kube_settings or KubeSettings(),
                clock,
                self._listed,
            )
        )
        """Of the Service that lists the replicas; None for fixed addresses alone."""
        self._links.change(self._fixed)
        self._seats: dict[FeedTarget, Seat] = {}
        self._feeding: dict[str, PeerLink] = {}
        """The link of each replica that is up; one may have several addresses."""
        self._expiries: dict[FeedTarget, asyncio.TimerHandle] = {}

    @property
    def links(self) -> tuple[PeerLink, ...]:
        """Return the links to all listed addresses, this replica's own included."""
        return self._links.all

    def _listed(self) -> None:
        """Connect to newly listed replicas, and drop those that left the list."""
        if self.watch is not None:
            self._links.change((*self._fixed, *self.watch.urls()))
            self._changed()

    def _is_starting(self) -> bool:
        if _now_s() - (self._started_s or 0.0) >= _FIRST_S:
            return False
        is_unlisted = self.watch is not None and not self.watch.reflector.state.listed
        return is_unlisted or any(link.state == "connecting" for link in self.links)

    def follows(self, target: FeedTarget, *, is_followed: bool) -> bool:
        """Return whether this replica should follow an agent itself."""
        if self._started_s is None or self._is_starting():
            return is_followed
        return self._division.follows(target, is_followed=is_followed)

    def counts(self) -> tuple[int, int, int]:
        """Return three numbers of agents: its own, taken over from lost replicas, delivered by others."""
        own = sum(map(self._division.is_first, self.discovered))
        feeders = [(target, seat.feeder) for target, seat in self._seats.items()]
        over = [
            target
            for target, feeder in feeders
            if isinstance(feeder, StreamFollower) and not self._division.is_first(target)
        ]
        return own, len(over), len(self.delivered())

    def delivered(self) -> set[FeedTarget]:
        """Return the agents whose series another replica delivers."""
        return {t for t, seat in self._seats.items() if isinstance(seat.feeder, PeerLink)}

    def seat(self, target: FeedTarget) -> Seat:
        seat = self._seats.get(target)
        if seat is None:
            seat = self._seats[target] = self._make_seat(target)

            def note(found: StreamLine[Series], t_ms: int) -> None:
                if isinstance(seat.feeder, StreamFollower):
                    if (handle := self._expiries.pop(target, None)) is not None:
                        handle.cancel()
                    self.relay.note(target, seat.series, found, t_ms)

            seat.series.observer = note
        return seat

    def discover(self, targets: Iterable[FeedTarget]) -> None:
        found = frozenset(targets)
        if found == self.discovered:
            return
        ended, self.discovered = self.discovered - found, found
        self._division.keep(found)
        for target in ended:
            seat = self._seats.get(target)
            if target in self._expiries and seat is not None and seat.feeder is None:
                self._end(target, seat)

    def released(self, target: FeedTarget) -> None:
        """Record that this replica stopped following an agent; it no longer delivers it either."""
        is_there = target in self.discovered
        self.relay.end(target, "left" if is_there else "gone")
        seat = self._seats.get(target)
        if seat is None:
            return
        if isinstance(seat.feeder, StreamFollower):
            seat.feeder = None
        if seat.feeder is not None:
            return
        if is_there:
            self._abandon(target)
        else:
            del self._seats[target]

    def lost(self, target: FeedTarget) -> None:
        """Record that this replica can't reach an agent it follows."""
        self.relay.end(target, "lost")

    async def run(self) -> None:
        """Follow the other replicas until cancelled."""
        self._started_s = _now_s()
        try:
            async with asyncio.TaskGroup() as group:
                self._links.run(group)
                if self.watch is not None:
                    group.create_task(self.watch.reflector.run(), name="watch peers")
                group.create_task(self._tick(), name="sharing")
        finally:
            for handle in self._expiries.values():
                handle.cancel()
            await self._http.close()

    async def _tick(self) -> None:
        alive_s, version = 0.0, self._wanted.version
        while True:
            self.relay.flush()
            if (now_s := _now_s()) - alive_s >= _ALIVE_S:
                alive_s = now_s
                self.relay.alive()
                self._changed()
            if version != self._wanted.version:
                # Only a snapshot has the series that were not wanted before.
                version = self._wanted.version
                for link in self.links:
                    link.restarts_due = True
            await asyncio.sleep(_TICK_S)

    def joined(self, link: PeerLink) -> None:
        if link.replica in self._feeding:
            return  # another of its addresses is followed
        self._feeding[link.replica] = link
        self._division.up(link.replica)
        self._changed()

    def parted(self, link: PeerLink) -> None:
        """Record that a replica is down; the others take over its agents."""
        if self._feeding.get(link.replica) is not link:
            return
        del self._feeding[link.replica]
        self._division.down(link.replica)
        for target, seat in list(self._seats.items()):
            if seat.feeder is link:
                self._vacate(target, seat)
        for other in self.links:
            if other is not link and other.state == "up" and other.replica == link.replica:
                other.restarts_due = True
                self.joined(other)
        self._changed()

    def begun(self, link: PeerLink, targets: Collection[FeedTarget]) -> None:
        """Set the agents that a replica delivers; some may have left since its last connection."""
        if self._feeding.get(link.replica) is not link:
            return
        kept = set(targets)
        self._division.delivers_only(link.replica, kept)
        for target, seat in self._seats.items():
            if seat.feeder is link and target not in kept:
                self._vacate(target, seat)
        self._changed()

    def take(self, link: PeerLink, target: FeedTarget, word: bytes, rest: bytes) -> None:
        """Handle one line that a replica sent about an agent.

        Raises:
            StreamError: it can't be read.
        """
        if self._feeding.get(link.replica) is not link:
            return  # the same replica at another address
        if word == b"line":
            self._line(link, target, rest)
        elif word in {b"left", b"lost", b"gone"}:
            self._division.leaves(link.replica, target)
            seat = self._seats.get(target)
            if seat is not None and seat.feeder is link:
                if word == b"lost":
                    seat.series.lost(self._clock.now_ms())
                self._vacate(target, seat)
                if word == b"gone" and target not in self.discovered:
                    self._end(target, seat)
            self._changed()

    def _line(self, link: PeerLink, target: FeedTarget, line: bytes) -> None:
        is_snapshot = line.startswith(b'{"kind":"snapshot"')
        seat = self.seat(target)
        if is_snapshot:
            self._division.delivers(link.replica, target)
            if seat.feeder is link or self._gives_way(seat.feeder, link, target):
                if isinstance(seat.feeder, StreamFollower):
                    self._changed()
                seat.feeder = link
                seat.series.connected(is_relayed=True)
                if (handle := self._expiries.pop(target, None)) is not None:
                    handle.cancel()
        elif seat.feeder is None:
            link.restarts_due = True
        if seat.feeder is not link:
            return
        try:
            seat.series.feed(line, self._clock.now_ms())
        except GpuscaleError as error:
            _LOG.warning("%s does not take what %s delivers: %s", target.instance, link.url, error)
            self._division.leaves(link.replica, target)
            self._vacate(target, seat)
            self._changed()

    def _gives_way(self, feeder: object | None, link: PeerLink, target: FeedTarget) -> bool:
        """Return whether a replica outranks the source that fills an agent's series now."""
        if feeder is None:
            return True
        other = feeder.replica if isinstance(feeder, PeerLink) else self.own
        return self._division.outranks(target, link.replica, other)

    def _vacate(self, target: FeedTarget, seat: Seat) -> None:
        seat.feeder = None
        self._abandon(target)

    def _abandon(self, target: FeedTarget) -> None:
        """End the series of an agent that no replica has taken over."""
        if target not in self._expiries:
            loop = asyncio.get_running_loop()
            self._expiries[target] = loop.call_later(ABANDONED_S, self._expire, target)

    def _expire(self, target: FeedTarget) -> None:
        self._expiries.pop(target, None)
        seat = self._seats.get(target)
        if seat is None or seat.feeder is not None:
            return
        if target in self.discovered:
            if seat.series.series:
                seat.series.lost(self._clock.now_ms())
        else:
            self._end(target, seat)

    def _end(self, target: FeedTarget, seat: Seat) -> None:
        """End the series of a deleted agent."""
        if (handle := self._expiries.pop(target, None)) is not None:
            handle.cancel()
        seat.series.gone(self._clock.now_ms())
        del self._seats[target]


def _now_s() -> float:
    return asyncio.get_running_loop().time()
