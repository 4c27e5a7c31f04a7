"""A first single request, with a check of its response headers for what would spoil a calibration."""

import asyncio
import ssl

from gpuscale.base.errors import UnavailableError, UpstreamError
from gpuscale.base.words import printable
from gpuscale.load.http.target import LoadTarget

_MOST_BYTES = 64 * 1024
_HITS = ("x-cache", "cf-cache-status", "x-cache-status", "x-proxy-cache")


async def greet(target: LoadTarget, url: str, timeout_s: float) -> tuple[str, ...]:
    """Return doubts about the service's responses.

    Raises:
        UnavailableError: no answer.
        UpstreamError: an answer that is none of a service that works, a redirect among them.
    """
    host, port = target.addresses[0]
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=target.tls, server_hostname=target.server_name, limit=_MOST_BYTES
            )
            try:
                writer.write(next(target.requests()))
                head = await reader.readuntil(b"\r\n\r\n")
            finally:
                writer.close()
    except asyncio.LimitOverrunError:
        raise UpstreamError(f"{url}: found a header of more than {_MOST_BYTES} bytes") from None
    except asyncio.IncompleteReadError:
        raise UnavailableError(f"{url}: the connection ended before an answer") from None
    except TimeoutError:
        raise UnavailableError(f"{url}: no answer within {timeout_s:g} s") from None
    except ssl.SSLCertVerificationError as error:
        fix = "--ca-file names the authority to trust"
        raise UnavailableError(
            f"{url}: its certificate can't be trusted: {error.verify_message}; {fix}"
        ) from None
    except ssl.SSLError as error:
        if error.reason == "WRONG_VERSION_NUMBER":
            raise UnavailableError(f"{url}: found no TLS at this port; is it http://?") from None
        raise UnavailableError(f"{url}: TLS: {error.reason or error}") from None
    except OSError as error:
        raise UnavailableError(f"{url}: {error.strerror or error}") from None
    return _judged(url, head.decode("latin-1"))


def _judged(url: str, head: str) -> tuple[str, ...]:
    first, *rest = head.split("\r\n")
    headers = {
        name.strip().lower(): value.strip()
        for name, _, value in (each.partition(":") for each in rest)
    }
    status = first.split(" ")[1] if first.startswith("HTTP/") and " " in first else ""
    if not status.isdigit():
        raise UpstreamError(
            f"{url}: found {printable(first[:80])!r}, expected an answer in HTTP/1.1"
        )
    if status.startswith("3"):
        place = printable(headers.get("location", "nowhere")[:300])
        raise UpstreamError(
            f"{url}: found a redirect ({status}) to {place}, expected the service itself: give that URL"
        )
    if status == "429":
        raise UpstreamError(
            f"{url}: found 429 at the first request: a rate limiter stands before the service"
        )
    if int(status) >= 400:
        raise UpstreamError(
            f"{url}: found status {status} at a single request, expected one below 300"
        )
    hit = next((name for name in _HITS if "hit" in headers.get(name, "").lower()), None)
    if hit is not None or headers.get("age", "0") not in {"", "0"}:
        return (
            f"a cache answers ({hit or 'age'}: {printable(headers[hit or 'age'][:40])}): what "
            f"is measured is the cache; "
            "ask for something that isn't kept",
        )
    return ()
