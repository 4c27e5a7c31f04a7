"""TLS that asks for a client certificate, takes any, and leaves the judgement to others.

An aggregated API server shares its port between the API server's front proxy, users with certificates of
another CA, probes and scrapers. Python's `ssl` can only refuse the handshake of a certificate that it can't
verify (`CERT_OPTIONAL`) or not ask for one (`CERT_NONE`); it offers no verification callback. pyOpenSSL
has one. asyncio asks a TLS context for one thing, `wrap_bio`, so that is where pyOpenSSL is put in: the
connection below has the methods of `ssl.SSLObject` that asyncio calls.

Nothing is believed of a certificate here. `chains` judges it, for each request.
"""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from OpenSSL import SSL, crypto

P = ParamSpec("P")
T = TypeVar("T")

_CHUNK_BYTES = 64 * 1024
MIN_VERSIONS = {"VersionTLS12": SSL.TLS1_2_VERSION, "VersionTLS13": SSL.TLS1_3_VERSION}


@dataclass(frozen=True, slots=True)
class TlsRules:
    """What connections are agreed on."""

    min_version: str = "VersionTLS12"
    """One of `MIN_VERSIONS`."""
    ciphers: tuple[str, ...] = ()
    """OpenSSL's names of the suites up to TLS 1.2; OpenSSL's own choice when empty."""


ByName = Callable[[str], SSL.Context | None]
"""Returns the context for the name that a client asks for, in lower case; None where there is no own one."""


def server_context(
    cert_file: Path, key_file: Path, rules: TlsRules, by_name: ByName | None = None
) -> SSL.Context:
    """Return the context of a server with this certificate.

    Args:
        cert_file: with intermediates.
        key_file: of the certificate.
        rules: what connections are agreed on.
        by_name: may put another context in its place once the client has named the server.

    Raises:
        ValueError: the files hold no certificate and key that belong together.
    """
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    try:
        context.use_certificate_chain_file(str(cert_file))
        context.use_privatekey_file(str(key_file))
        context.check_privatekey()
        if rules.ciphers:
            context.set_cipher_list(":".join(rules.ciphers).encode())
    except (SSL.Error, crypto.Error) as error:
        raise ValueError(_reason(error)) from error
    context.set_min_proto_version(MIN_VERSIONS[rules.min_version])
    context.set_alpn_select_callback(_http_1_1)
    context.set_verify(SSL.VERIFY_PEER, _take_any)
    # A resumed session would come without the intermediate certificates of its first handshake.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    if by_name is not None:
        context.set_tlsext_servername_callback(_switch(by_name))
    return context


def _switch(by_name: ByName) -> Callable[[SSL.Connection], None]:
    def switch(connection: SSL.Connection) -> None:
        name = connection.get_servername()
        found = by_name(name.decode("ascii", "replace").lower()) if name else None
        if found is not None:
            connection.set_context(found)

    return switch


def _take_any(_connection: Any, _cert: Any, _error: int, _depth: int, _ok: int) -> bool:  # noqa: ANN401
    return True


def _http_1_1(_connection: Any, offered: Sequence[bytes]) -> Any:  # noqa: ANN401 - a mark of pyOpenSSL
    return b"http/1.1" if b"http/1.1" in offered else SSL.NO_OVERLAPPING_PROTOCOLS


class ListeningContext(ssl.SSLContext):
    """The TLS of a listening socket.

    Args:
        choose: returns the context for a new connection; those that are open keep theirs.
    """

    def __new__(cls, choose: Callable[[], SSL.Context]) -> Self:
        """Return a context; what it was made of by `ssl` is not used."""
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, choose: Callable[[], SSL.Context]) -> None:
        self._choose = choose

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = True,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> "ClientConnection":
        """Return a connection that reads and writes what asyncio moves."""
        return ClientConnection(SSL.Connection(self._choose(), None), incoming, outgoing)


class ClientConnection(ssl.SSLObject):
    """One client's connection, in the form that asyncio drives."""

    def __init__(
        self, connection: SSL.Connection, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO
    ) -> None:
        self._connection = connection
        self._incoming = incoming
        self._outgoing = outgoing
        self._presented: tuple[crypto.X509, ...] | None = None
        connection.set_accept_state()

    def presented(self) -> tuple[crypto.X509, ...]:
        """Return the certificates that the client showed, its own first; none of them is verified."""
        if self._presented is None:
            leaf = self._connection.get_peer_certificate()
            chain = self._connection.get_peer_cert_chain() or []
            self._presented = () if leaf is None else (leaf, *chain)
        return self._presented

    def do_handshake(self) -> None:
        """Go on with the handshake."""
        self._do(self._connection.do_handshake)

    def read(self, len: int = 1024, buffer: Any = None) -> Any:  # noqa: A002, ANN401
        """Return what the client sent, or how much of it was put into `buffer`; nothing at its end."""
        try:
            data = self._do(self._connection.recv, len)
        except ssl.SSLZeroReturnError:
            data = b""
        if buffer is None:
            return data
        count = data.__len__()  # the parameter of this name hides the function
        memoryview(buffer)[:count] = data
        return count

    def write(self, data: Any) -> int:  # noqa: ANN401 - any buffer
        """Return how much of the data was taken."""
        return self._do(self._connection.send, bytes(data))

    def unwrap(self) -> None:
        """Say that no more comes, and wait for the client to say so too."""
        if not self._do(self._connection.shutdown):
            raise ssl.SSLWantReadError

    def getpeercert(self, binary_form: bool = False) -> Any:  # noqa: ANN401
        """Return nothing: a certificate that was not verified is not handed on. See `presented`."""
        return None if binary_form else {}

    def cipher(self) -> tuple[str, str, int] | None:
        """Return the suite that was agreed on."""
        name = self._connection.get_cipher_name()
        if name is None:
            return None
        version = self._connection.get_cipher_version() or ""
        return name, version, self._connection.get_cipher_bits() or 0

    def compression(self) -> None:
        """Return nothing: TLS compression is not used."""
        return

    def selected_alpn_protocol(self) -> str | None:
        """Return the protocol above TLS."""
        return self._connection.get_alpn_proto_negotiated().decode() or None

    def _do(self, step: Callable[P, T], *given: P.args, **more: P.kwargs) -> T:
        """Take a step with what has come in, and hand on what it makes, in the errors of `ssl`."""
        self._take_in()
        try:
            return step(*given, **more)
        except SSL.WantReadError:
            raise ssl.SSLWantReadError from None
        except SSL.ZeroReturnError:
            raise ssl.SSLZeroReturnError from None
        except SSL.Error as error:
            raise ssl.SSLError(_reason(error)) from None
        finally:
            self._hand_out()

    def _take_in(self) -> None:
        data = self._incoming.read()
        if data:
            self._connection.bio_write(data)
        elif self._incoming.eof:
            self._connection.bio_shutdown()

    def _hand_out(self) -> None:
        try:
            count = _CHUNK_BYTES
            while count == _CHUNK_BYTES:
                count = self._outgoing.write(self._connection.bio_read(_CHUNK_BYTES))
        except SSL.Error:
            return


def _reason(error: Exception) -> str:
    """Return what OpenSSL says: its errors carry a list of (library, function, reason)."""
    queue = error.args[0] if error.args else ()
    if isinstance(queue, list):
        return "; ".join(str(each[-1]) for each in queue) or type(error).__name__
    return str(error) or type(error).__name__
