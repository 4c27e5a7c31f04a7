"""Listening sockets."""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gpuscale.server.metricsapi.connections.connection import Connection
from gpuscale.server.metricsapi.connections.lobby import Lobby

if TYPE_CHECKING:
    from OpenSSL import SSL

_LOG = logging.getLogger(__name__)
_BACKLOG = 4096
_AT_ONCE = 64
"""Connections that are accepted before requests have their turn."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_S = 0.1
_KEEPALIVE = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
_USER_TIMEOUT_MS = 60_000
"""After so long a client that confirms nothing of what was sent is gone."""
_OTHER_FILES = 256
"""File descriptors for all that is no client's connection."""
ChooseContext = Callable[[], "SSL.Context"]
MakeProtocol = Callable[[], asyncio.Protocol]


class Listener:
    """Accepts connections on a socket until closed.

    Args:
        lobby: of all connections.
        sockets: bound, not yet listening.
        choose_context: returns the TLS of a new connection; None serves plain HTTP.
        make_protocol: returns the HTTP protocol of a connection.
    """

    def __init__(
        self,
        lobby: Lobby,
        sockets: Sequence[socket.socket],
        choose_context: ChooseContext | None,
        make_protocol: MakeProtocol,
    ) -> None:
        self._lobby = lobby
        self._loop = lobby.loop
        self._sockets = sockets
        self._choose_context = choose_context
        self._make_protocol = make_protocol
        self._is_open = False

    @property
    def addresses(self) -> tuple[tuple[str, int], ...]:
        return tuple(each.getsockname()[:2] for each in self._sockets)

    def start(self) -> None:
        """Listen.

        Raises:
            OSError: another process listens there.
        """
        self._is_open = True
        for each in self._sockets:
            each.setblocking(False)
            each.listen(_BACKLOG)
            self._loop.add_reader(each.fileno(), self._accept, each)

    def close(self) -> None:
        """Stop accepting; open connections stay."""
        if not self._is_open:
            return
        self._is_open = False
        for each in self._sockets:
            # The kernel has accepted these clients already, and would reset them.
            self._accept(each, _BACKLOG)
            self._loop.remove_reader(each.fileno())
            each.close()

    def _accept(self, listening: socket.socket, at_most: int = _AT_ONCE) -> None:
        for _ in range(at_most):
            try:
                sock, name = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_ROOM:
                    raise
                self._pause(listening, error)
                return
            self._meet(sock, str(name[0]))

    def _meet(self, sock: socket.socket, address: str) -> None:
        if not self._lobby.admit(address):
            self._lobby.closed["refused"] += 1
            sock.close()
            return
        sock.setblocking(False)
        context = None if self._choose_context is None else self._choose_context()
        self._lobby.joined(Connection(sock, address, self._lobby, context, self._make_protocol))

    def _pause(self, listening: socket.socket, error: OSError) -> None:
        """Pause accepting while the system is out of file descriptors or memory."""
        _LOG.warning("unable to accept a connection: %s", error.strerror)
        self._loop.remove_reader(listening.fileno())

        def go_on() -> None:
            if self._is_open:
                self._loop.add_reader(listening.fileno(), self._accept, listening)

        self._loop.call_later(_PAUSE_S, go_on)


def bound_sockets(
    host: str, port: int, *, shares_port: bool, shares_address: bool
) -> list[socket.socket]:
    """Return a bound socket for each address of a host; all interfaces may share one for IPv4 and IPv6.

    Raises:
        OSError: there is no such address, or the port is taken.
    """
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            # As in asyncio: a port with connections in TIME_WAIT can be reused.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shares_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            _set_options(sock)
            sock.bind(address)
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _set_options(sock: socket.socket) -> None:
    """Send small answers at once, and notice a client that is gone without a word.

    What is accepted from a listening socket has its options.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (*_KEEPALIVE, ("TCP_USER_TIMEOUT", _USER_TIMEOUT_MS)):
        if (option := getattr(socket, name, None)) is not None:
            sock.setsockopt(socket.IPPROTO_TCP, option, value)


def room_for(wanted: int) -> int:
    """Return how many connections the process may hold, after raising its limit of open files.

    Args:
        wanted: connections.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return wanted if soft == resource.RLIM_INFINITY else min(wanted, max(1, soft - _OTHER_FILES))
