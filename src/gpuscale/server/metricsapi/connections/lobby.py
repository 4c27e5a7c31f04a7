"""Limits on connections: how many, which one is closed for a new one, whose handshake is next."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuscale.base.memory import give_memory_back

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.connections.connection import Connection

SWEEP_S = 1.0
"""How often deadlines are looked at: each may be overrun by as much."""
_TRIM_AFTER = 200
"""Connections fewer than there were; OpenSSL's part of each is some 20 KiB."""
_HANDSHAKES_S = 0.003
"""Spent on handshakes before requests have their turn."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of a listening port. All times are in the machine's seconds.

    Source of the times: k8s.io/apiserver v0.30.0 pkg/server (secure_serving.go): 32 s for headers, 90 s of
    idleness; net/http ends a handshake with the headers' time.
    """

    total: int = 2_500
    """Connections of clients that are not known to be front proxies."""
    per_address: int = 1_000
    """Of those, from one IP address; all pods of a node may share one behind address translation."""
    proxies: int = 2_500
    """Connections that showed a front proxy's certificate. They count towards neither of the above."""
    handshake_s: float = 10.0
    """From a connection's first moment to the end of the TLS handshake."""
    header_s: float = 32.0
    """From the end of the handshake, or a request's first byte, to the end of its headers."""
    idle_s: float = 90.0
    """From the end of an answer to the first byte of the next request."""
    write_s: float = 60.0
    """For the client to take what was written to it."""
    unsent_bytes: int = 64 * 1024 * 1024
    """Of all answers that clients have not taken yet; beyond that, the slowest client is cut off."""


LOOPBACK_LIMITS = ConnectionLimits(total=256, per_address=256, proxies=1)
"""Of the port that only this machine reaches."""


class Lobby:
    """Keeps count of connections, ends those that take too long, and makes room for new ones.

    Room is made by closing an idle connection, the least recently active one of the address that has the
    most, strangers' first: a client that opens many competes with itself. Handshakes take turns by address,
    a few milliseconds at a time, so that a flood of them delays neither requests nor others' handshakes.

    Args:
        loop: that all of it runs on.
        limits: of connections.
        is_proxy: returns whether a connection showed the certificate of a front proxy.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: ConnectionLimits,
        is_proxy: Callable[["Connection"], bool] = lambda _: False,
    ) -> None:
        self.loop = loop
        self.limits = limits
        self._is_proxy = is_proxy
        self._strangers: dict[str, OrderedDict[Connection, None]] = {}
        """By address; in each, the least recently active first."""
        self._stranger_count = 0
        self._most = 0
        """Connections at a time, since memory was last given back."""
        self._proxies: OrderedDict[Connection, None] = OrderedDict()
        self._unsent_bytes = 0
        self._waiting: OrderedDict[str, deque[Connection]] = OrderedDict()
        """Handshakes that can go on, by address, in the order of their turns."""
        self._has_turn = False
        self.closed: Counter[str] = Counter()
        """Connections that ended, by reason."""
        self.accepted = 0

    @property
    def connections(self) -> tuple["Connection", ...]:
        found = [each for own in self._strangers.values() for each in own]
        return (*found, *self._proxies)

    @property
    def proxy_count(self) -> int:
        """Return the number of connections that are a front proxy's."""
        return len(self._proxies)

    @property
    def unsent_bytes(self) -> int:
        """Return the bytes of responses that clients have not taken yet."""
        return self._unsent_bytes

    def states(self) -> Counter[str]:
        return Counter(each.phase.value for each in self.connections)

    def admit(self, address: str) -> bool:
        """Return whether a new connection of this address is admitted; may close an idle one to make room."""
        own = self._strangers.get(address)
        if own is not None and len(own) >= self.limits.per_address and not self._close_idle(own):
            return False
        if self._stranger_count < self.limits.total:
            return True
        if own is not None and len(own) * len(self._strangers) >= self._stranger_count:
            return self._close_idle(own)
        return self._close_idle(max(self._strangers.values(), key=len))

    def joined(self, connection: "Connection") -> None:
        self.accepted += 1
        self._strangers.setdefault(connection.address, OrderedDict())[connection] = None
        self._stranger_count += 1

    def left(self, connection: "Connection", why: str) -> None:
        self.closed[why] += 1
        if connection.is_proxy:
            self._proxies.pop(connection, None)
        else:
            self._remove_stranger(connection)

    def moved(self, connection: "Connection") -> None:
        if connection.is_proxy:
            self._proxies.move_to_end(connection)
        elif (own := self._strangers.get(connection.address)) is not None:
            own.move_to_end(connection)

    def shaken(self, connection: "Connection") -> None:
        """Note a finished handshake; a front proxy's connection is counted apart from then on."""
        if not self._is_proxy(connection):
            self.moved(connection)
            return
        if len(self._proxies) >= self.limits.proxies and not self._close_idle(self._proxies):
            return
        self._remove_stranger(connection)
        connection.is_proxy = True
        self._proxies[connection] = None

    def unsent(self, connection: "Connection", count: int) -> None:
        """Add to the count of bytes that wait for clients; a negative number are bytes that were taken."""
        self._unsent_bytes += count
        if count > 0 and self._unsent_bytes > self.limits.unsent_bytes:
            waiting = [each for each in self.connections if each.write_deadline]
            slowest = min(waiting, key=lambda each: each.write_deadline, default=connection)
            # Later, as the slowest connection may be the one that is writing now.
            self.loop.call_soon(slowest.drop, "slow reader")

    def queue_handshake(self, connection: "Connection") -> None:
        """Run a handshake's next step when its address has its turn."""
        self._waiting.setdefault(connection.address, deque()).append(connection)
        if not self._has_turn:
            self._has_turn = True
            self.loop.call_soon(self._go_on)

    def sweep(self) -> None:
        now = self.loop.time()
        for each in self.connections:
            if each.deadline <= now:
                each.drop(f"{each.phase.value} timeout")
            elif each.write_deadline and each.write_deadline <= now:
                each.drop("write timeout")

    async def run(self) -> None:
        """Check deadlines once a second until cancelled."""
        while True:
            await asyncio.sleep(SWEEP_S)
            self.each_second()

    def each_second(self) -> None:
        """Close connections past their deadline, and free memory after a rush."""
        self.sweep()
        count = self._stranger_count + len(self._proxies)
        if self._most - count >= _TRIM_AFTER:
            give_memory_back()
            self._most = count
        self._most = max(self._most, count)

    def _go_on(self) -> None:
        until = self.loop.time() + _HANDSHAKES_S
        while self._waiting and self.loop.time() < until:
            address, queue = self._waiting.popitem(last=False)
            connection = queue.popleft()
            if queue:
                self._waiting[address] = queue
            connection.go_on_with_handshake()
        self._has_turn = bool(self._waiting)
        if self._has_turn:
            self.loop.call_soon(self._go_on)

    def _close_idle(self, among: OrderedDict["Connection", None]) -> bool:
        """Close the idle connection that was active longest ago; return whether there was one."""
        idle = (each for each in among if each.is_evictable)
        known = None
        for each in idle:
            if not each.is_known:
                each.drop("made room")
                return True
            known = known or each
        if known is not None:
            known.drop("made room")
        return known is not None

    def _remove_stranger(self, connection: "Connection") -> None:
        own = self._strangers.get(connection.address)
        if own is None or connection not in own:
            return
        del own[connection]
        self._stranger_count -= 1
        if not own:
            del self._strangers[connection.address]
