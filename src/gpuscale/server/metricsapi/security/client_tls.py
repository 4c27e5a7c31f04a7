"""TLS that requests a client certificate and accepts any; verification comes later.

An aggregated API server shares its port between the API server's front proxy, users with certificates of
another CA, probes and scrapers. Python's `ssl` can only refuse the handshake of a certificate that it can't
verify (`CERT_OPTIONAL`) or not ask for one (`CERT_NONE`); it offers no verification callback. pyOpenSSL
has one.

Nothing is believed of a certificate here. `chains` judges it, for each request.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from OpenSSL import SSL, crypto

MIN_VERSIONS = {"VersionTLS12": SSL.TLS1_2_VERSION, "VersionTLS13": SSL.TLS1_3_VERSION}


@dataclass(frozen=True, slots=True)
class TlsRules:
    """TLS versions and cipher suites of the server."""

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
    # A resumed session would lack the intermediate certificates of its first handshake.
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_options(SSL.OP_NO_TICKET)
    # An idle connection keeps no buffer for a record.
    context.set_mode(SSL.MODE_RELEASE_BUFFERS)
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


def _reason(error: Exception) -> str:
    """Return OpenSSL's reason out of an error, which holds a list of (library, function, reason)."""
    queue = error.args[0] if error.args else ()
    if isinstance(queue, list):
        return "; ".join(str(each[-1]) for each in queue) or type(error).__name__
    return str(error) or type(error).__name__
