"""Connections to an API server: how a dead one shows, and why one failed."""

import socket
import ssl
from collections.abc import Iterator

NOTICE_DEAD_PEERS = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", 15),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 30_000),
        )
        if hasattr(socket, name)
    ),
)
"""Half a minute after the other side has gone without a word, a watch ends."""


def reason_of(error: BaseException) -> str:
    """Return why a connection failed; HTTP clients hide it behind errors of their own."""
    for each in _chain(error):
        if isinstance(each, ssl.SSLCertVerificationError):
            return (
                f"its certificate is not trusted: {each.verify_message}; the kubeconfig's "
                "certificate-authority-data is another cluster's, or a proxy is in between"
            )
        if isinstance(each, socket.gaierror):
            return f"its name is not known here: {each.strerror}"
        if isinstance(each, ConnectionRefusedError):
            return "connection refused; nothing listens there"
    first = next(
        (each for each in _chain(error) if isinstance(each, OSError) and each.strerror), None
    )
    return (first.strerror if first is not None else None) or str(error) or type(error).__name__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all that it came of."""
    seen: list[BaseException] = []
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if each in seen:
            continue
        seen.append(each)
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(each.exceptions)
        waiting.extend(other for other in (each.__cause__, each.__context__) if other is not None)
