"""Why a request to the API server failed, in words that say what to do."""

import re
import socket
import ssl
from collections.abc import Iterator

_FAILED_CHECK = re.compile(r"^\[-\](\S+)", re.MULTILINE)


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


def failed_checks(body: str) -> tuple[str, ...]:
    """Return the checks that failed, of an answer of `/readyz?verbose`."""
    return tuple(_FAILED_CHECK.findall(body))


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
