"""Reasons of failed connections, in words that name the cause instead of the library."""

import os
import socket
import ssl
from collections.abc import Iterator

from gpuscale.base.errors import GpuscaleError


def reason_of(error: BaseException) -> str:
    """Return why a request got no response; HTTP clients wrap the cause in their own errors."""
    is_about_content = isinstance(error, ValueError) and not isinstance(error, OSError)
    if is_about_content or isinstance(error, GpuscaleError):
        return str(error) or type(error).__name__
    if (found := distrust_of(error)) is not None:
        return f"its certificate is not trusted: {found}"
    causes = list(_chain(error))
    for each in causes:
        if isinstance(each, ssl.SSLError) and (fault := getattr(each, "reason", None)):
            return f"TLS failed: {fault.replace('_', ' ').lower()}"
        if isinstance(each, socket.gaierror):
            return f"its name is not known here: {each.strerror}"
        if isinstance(each, ConnectionRefusedError):
            return "connection refused; nothing listens there"
    for each in causes:
        # Negative codes are not the system's; asyncio has replaced the system's text by the
        # address.
        if isinstance(each, OSError) and each.errno is not None and each.errno > 0:
            file = f"{each.filename}: " if each.filename else ""
            return file + os.strerror(each.errno)
    if isinstance(error, TimeoutError):
        return str(error) or "no answer in time"
    return str(error) or type(error).__name__


def distrust_of(error: BaseException) -> str | None:
    """Return what is wrong with the server's certificate; None if the connection failed otherwise."""
    for each in _chain(error):
        # aiohttp's error of this class has no message of its own; its cause has.
        if isinstance(each, ssl.SSLCertVerificationError) and hasattr(each, "verify_message"):
            return str(each.verify_message)
    return None


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes."""
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
