"""Texts and JSON from servers past the API server, by their own address."""

from collections.abc import Mapping

import aiohttp
from yarl import URL

from gpuscale.core.errors import UnavailableError, UpstreamError
from gpuscale.sources.http import HttpSession

_TIMEOUT_S = 10.0
_OK = 200


async def fetch(base: str, path: str, params: Mapping[str, str] | None = None) -> str:
    """Return what a server answers.

    Args:
        base: `http://127.0.0.1:9090`, with or without a path.
        path: below it.
        params: of the query.

    Raises:
        UnavailableError: no answer.
        UpstreamError: an error for an answer.
    """
    try:
        url = URL(base.rstrip("/") + path).with_query(dict(params or {}))
        async with HttpSession(_TIMEOUT_S) as session:
            status, body = await session.fetch("GET", url)
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        reason = str(error) or type(error).__name__
        raise UnavailableError(f"{base} does not answer: {reason}") from error
    if status != _OK:
        raise UpstreamError(f"{base} answered {path} with {status}")
    return body.decode(errors="replace")
