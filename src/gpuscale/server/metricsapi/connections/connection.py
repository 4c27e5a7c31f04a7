"""One client's connection: a transport for the HTTP protocol above it, over TLS or plain TCP.

Bytes are read into one buffer that all connections share, and go through OpenSSL's memory BIOs: one event
feeds OpenSSL a bounded number of bytes, so that a client that floods it with TLS messages cannot hold the
event loop inside OpenSSL. TLS state is made when the first byte arrives, and the HTTP protocol when the
first byte of a request does. OpenSSL's library takes 9 MiB, so it is imported where a connection has TLS.
"""

import asyncio
import socket
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from OpenSSL import SSL, crypto

    from gpuscale.server.metricsapi.connections.lobby import Lobby

_READ = memoryview(bytearray(16 * 1024))
"""Where every connection reads to; what is in it is taken before anything else runs."""
_RECORD_BYTES = 16 * 1024
_WIRE_BYTES = _RECORD_BYTES + 512
"""What a record takes with all that TLS adds."""
_BYTES_AT_ONCE = 16 * _RECORD_BYTES
"""Written to a socket before the other connections have their turn."""
_LOW_WATER, _HIGH_WATER = 16 * 1024, 64 * 1024
"""Unsent bytes at which the protocol above goes on writing, and at which it has to wait."""
_LINGER_S = 1.0
"""How long a closed connection is read from: data that is left unread would reset it, and the reset may
overtake the answer."""


class Phase(Enum):
    """What a connection is waiting for."""

    HANDSHAKE = "handshake"
    HEADER = "header"
    """A request, or the rest of one."""
    ACTIVE = "active"
    """Its request is being answered."""
    IDLE = "idle"
    """The next request."""
    CLOSING = "closing"
    """The client, to take the rest of the answer and to close."""


class Connection(asyncio.Transport):
    """One accepted connection of a client.

    Args:
        sock: the connected socket, which does not block.
        address: of the client.
        lobby: keeps count of connections and ends those that take too long.
        context: of TLS; None for plain HTTP.
        make_protocol: returns the HTTP protocol, once there is something to read.
    """

    __slots__ = (
        "_context",
        "_fd",
        "_is_reading",
        "_lobby",
        "_loop",
        "_make_protocol",
        "_presented",
        "_protocol",
        "_sock",
        "_tls",
        "_unsent",
        "_waits_for_taker",
        "address",
        "deadline",
        "is_known",
        "is_proxy",
        "phase",
        "write_deadline",
    )

    def __init__(
        self,
        sock: socket.socket,
        address: str,
        lobby: "Lobby",
        context: "SSL.Context | None",
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self._lobby = lobby
        self._loop = lobby.loop
        self._context = context
        self._make_protocol = make_protocol
        self._protocol: asyncio.Protocol | None = None
        self._tls: SSL.Connection | None = None
        self._presented: tuple[crypto.X509, ...] | None = None
        self._unsent: bytearray | None = None
        self._is_reading = True
        self._waits_for_taker = False
        self.address = address
        self.is_proxy = False
        self.is_known = False
        """Whether a user came by it: strangers' connections have to go first."""
        self.write_deadline = 0.0
        """When the client has to have taken what was written; 0 where nothing is unsent."""
        now, limits = self._loop.time(), lobby.limits
        if context is None:
            self.phase, self.deadline = Phase.HEADER, now + limits.header_s
        else:
            self.phase, self.deadline = Phase.HANDSHAKE, now + limits.handshake_s
        self._loop.add_reader(self._fd, self._readable)

    # Called by the HTTP protocol.

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401
        """Return a fact about the connection: `peername`, `sockname` or `sslcontext`.

        The socket is not handed out: its options are set when it is accepted.
        """
        if name == "peername":
            return (self.address, 0)
        if name == "sslcontext":
            return self._context
        if name == "sockname":
            try:
                return self._sock.getsockname()
            except OSError:
                return default
        return default

    def presented(self) -> "tuple[crypto.X509, ...]":
        """Return the certificates that the client showed, its own first; none of them is verified."""
        if self._presented is None:
            if self._tls is None:
                return ()
            leaf = self._tls.get_peer_certificate()
            chain = self._tls.get_peer_cert_chain() or []
            # Kept, as the results of verifying certificates are cached by these objects.
            self._presented = () if leaf is None else (leaf, *chain)
        return self._presented

    def is_closing(self) -> bool:
        """Return whether nothing more can be written."""
        return self.phase is Phase.CLOSING

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return the HTTP protocol, which is created at a request's first byte."""
        if self._protocol is None:
            raise RuntimeError("nothing has been received yet")
        return self._protocol

    def is_reading(self) -> bool:
        return self._is_reading and self.phase is not Phase.CLOSING

    def pause_reading(self) -> None:
        """Stop reading; what the client sends stays in the kernel's buffer."""
        if self._is_reading and self._fd >= 0:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if not self._is_reading and self._fd >= 0:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._readable)

    def get_write_buffer_size(self) -> int:
        """Return how many bytes the client has not taken yet."""
        return len(self._unsent or b"")

    def can_write_eof(self) -> bool:
        """Return False: one direction of a TLS connection can't be closed alone."""
        return False

    def write(self, data: Any) -> None:  # noqa: ANN401 - any buffer
        """Send bytes, now or when the client takes them."""
        if self.phase is Phase.CLOSING or not data:
            return
        tls = self._tls
        if tls is None:
            self._put(data)
            return
        from OpenSSL import SSL

        view = memoryview(data)
        try:
            for start in range(0, len(view), _RECORD_BYTES):
                record = view[start : start + _RECORD_BYTES]
                while record:
                    record = record[tls.send(record) :]
                self._flush()
                if self._fd < 0:
                    return
        except SSL.Error:
            self.drop("bad TLS")

    def writelines(self, list_of_data: Any) -> None:  # noqa: ANN401 - any buffers
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what is buffered, signal the end, and close."""
        if self.phase is Phase.CLOSING:
            return
        was_open = self.phase is not Phase.HANDSHAKE
        self.phase = Phase.CLOSING
        if not was_open:
            self.drop("closed")
        elif self._unsent is None:
            self._finish()
        else:
            self.deadline = self.write_deadline

    def abort(self) -> None:
        """Close at once."""
        self.drop("aborted")

    # Deadlines of the connection, set by its requests.

    def request_begins(self, seconds: float = float("inf")) -> None:
        """Note that a request is being answered.

        Args:
            seconds: it may take; without, that is the handler's matter.
        """
        if self.phase is not Phase.CLOSING:
            self.phase, self.deadline = Phase.ACTIVE, self._loop.time() + seconds

    def request_ends(self) -> None:
        if self.phase is not Phase.CLOSING:
            self.phase, self.deadline = Phase.IDLE, self._loop.time() + self._lobby.limits.idle_s

    def read_now(self) -> None:
        """Take what has come in, without waiting for the event loop to say so."""
        if self._is_reading and self._fd >= 0:
            self._readable()

    @property
    def is_evictable(self) -> bool:
        return self.phase is not Phase.ACTIVE and self._unsent is None

    def drop(self, why: str) -> None:
        """Close at once and count the reason; safe to call again."""
        if self._fd < 0:
            return
        if self._is_reading:
            self._loop.remove_reader(self._fd)
        unsent, self._unsent = self._unsent, None
        if unsent is not None:
            self._loop.remove_writer(self._fd)
            self._lobby.unsent(self, -len(unsent))
        self._fd = -1
        self._sock.close()
        self.phase = Phase.CLOSING
        self._tls = None
        self._lobby.left(self, why)
        self._lose()

    # Called by the event loop.

    def _readable(self) -> None:
        try:
            count = self._sock.recv_into(_READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            self.drop("reset")
            return
        if count == 0:
            self.drop("closed by client")
        elif self.phase is Phase.CLOSING:
            return  # read to clear OpenSSL's error queue
        elif self._context is None:
            self._take(bytes(_READ[:count]))
        else:
            if self._tls is None:
                from OpenSSL import SSL

                self._tls = SSL.Connection(self._context, None)
                self._tls.set_accept_state()
            self._tls.bio_write(_READ[:count])
            if self.phase is Phase.HANDSHAKE:
                self._lobby.queue_handshake(self)
            else:
                self._decrypt()

    def go_on_with_handshake(self) -> None:
        """Continue the TLS handshake with the bytes that have arrived."""
        if self._tls is None or self.phase is not Phase.HANDSHAKE:
            return
        from OpenSSL import SSL

        try:
            self._tls.do_handshake()
        except SSL.WantReadError:
            self._flush()
            return
        except SSL.Error:
            self._flush()  # the TLS alert with the reason
            self.drop("failed handshake")
            return
        self._flush()
        if self.phase is Phase.HANDSHAKE:
            self.phase = Phase.HEADER
            self.deadline = self._loop.time() + self._lobby.limits.header_s
            self._lobby.shaken(self)
            self._decrypt()

    def _decrypt(self) -> None:
        """Decrypt the bytes that have arrived and pass them to the protocol, one read at a time."""
        from OpenSSL import SSL

        parts = []
        end = ""
        while self._tls is not None:
            try:
                parts.append(self._tls.recv(_RECORD_BYTES))
            except SSL.WantReadError:
                break
            except SSL.ZeroReturnError:
                end = "closed by client"
                break
            except SSL.Error:
                end = "bad TLS"
                break
        # OpenSSL answers some messages by itself, such as a key update.
        self._flush()
        if parts:
            self._take(parts[0] if len(parts) == 1 else b"".join(parts))
        if end and self.phase is not Phase.CLOSING:
            self.drop(end)

    def _take(self, data: bytes) -> None:
        if self.phase is Phase.CLOSING:
            return
        if self.phase is Phase.IDLE:
            self.phase = Phase.HEADER
            self.deadline = self._loop.time() + self._lobby.limits.header_s
        self._lobby.moved(self)
        if self._protocol is None:
            self._protocol = self._make_protocol()
            self._protocol.connection_made(self)
        self._protocol.data_received(data)

    def _flush(self) -> None:
        from OpenSSL import SSL

        count = _WIRE_BYTES
        while count == _WIRE_BYTES and self._tls is not None:
            try:
                made = self._tls.bio_read(_WIRE_BYTES)
            except SSL.Error:
                return
            count = len(made)
            self._put(made)

    def _put(self, wire: Any) -> None:  # noqa: ANN401 - any buffer
        """Write bytes to the socket, and buffer what the kernel does not take."""
        if self._fd < 0:
            return
        if self._unsent is not None:
            self._unsent += wire
            self._lobby.unsent(self, len(wire))
        elif (sent := self._send(wire)) < len(wire) and self._fd >= 0:
            self._unsent = bytearray(memoryview(wire)[sent:])
            self.write_deadline = self._loop.time() + self._lobby.limits.write_s
            self._loop.add_writer(self._fd, self._writable)
            self._lobby.unsent(self, len(self._unsent))
        is_much = self._unsent is not None and len(self._unsent) > _HIGH_WATER
        if is_much and not self._waits_for_taker and self._protocol is not None:
            self._waits_for_taker = True
            self._protocol.pause_writing()

    def _send(self, wire: Any) -> int:  # noqa: ANN401 - any buffer
        try:
            return self._sock.send(wire)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError:
            self.drop("reset")
            return 0

    def _writable(self) -> None:
        if self._unsent is None:
            return
        with memoryview(self._unsent) as view:
            sent = self._send(view[:_BYTES_AT_ONCE])
        if self._fd < 0:
            return
        del self._unsent[:sent]
        self._lobby.unsent(self, -sent)
        left = len(self._unsent)
        if not left:
            self._loop.remove_writer(self._fd)
            self._unsent = None
            self.write_deadline = 0.0
        if left <= _LOW_WATER and self._waits_for_taker and self._protocol is not None:
            self._waits_for_taker = False
            self._protocol.resume_writing()
        if self._unsent is None and self.phase is Phase.CLOSING:
            self._finish()

    def _finish(self) -> None:
        """Signal the end to the client, and wait a moment for the client's own end."""
        if self._tls is not None:
            from OpenSSL import SSL

            try:
                self._tls.shutdown()
                self._flush()
            except SSL.Error:
                pass
            self._tls = None
        if self._fd < 0:
            return
        try:
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            self.drop("reset")
            return
        self.deadline = self._loop.time() + _LINGER_S
        self.resume_reading()
        self._lose()

    def _lose(self) -> None:
        """Tell the protocol that the connection is lost, after the current callback."""
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            self._loop.call_soon(protocol.connection_lost, None)
