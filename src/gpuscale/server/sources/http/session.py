"""An HTTP session that keeps connections open and limits the size of responses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from gpuscale.base.errors import BugError, UpstreamError
from gpuscale.server.sources.http.access import SourceAccess

MAX_RESPONSE_BYTES = 64 * 1024 * 1024
_LARGE_BYTES = 1024 * 1024
_UNAUTHORIZED = 401


class TooLargeError(UpstreamError):
    """An answer is larger than allowed."""


@dataclass(slots=True)
class HttpSession:
    """Keeps connections open between requests. Use it in `async with`, or `close` it.

    Args:
        timeout_s: for a whole request.
        max_response_bytes: a larger answer is an error.
        access: what every request carries so that it is let in.
        max_connections: at a time; 0 for no limit.
        large_at_once: answers of more than a MiB that are read at a time, while others wait; 0 for no limit.
        unix_socket: where all requests go, whatever host they name; None goes to the host.
    """

    timeout_s: float = 30.0
    max_response_bytes: int = MAX_RESPONSE_BYTES
    access: SourceAccess = field(default_factory=SourceAccess)
    max_connections: int = 100
    unix_socket: Path | None = None
    large_at_once: int = 0
    _large: asyncio.Semaphore | None = field(default=None, repr=False)
    _session: aiohttp.ClientSession | None = field(default=None, repr=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def fetch(self, method: str, url: URL, **options: Any) -> tuple[int, bytes]:  # noqa: ANN401
        """Return a response's status and body; redirects are not followed.

        Args:
            method: such as GET.
            url: encoded as it is to be sent.
            options: as aiohttp's `ClientSession.request` takes them, and `most_bytes` of the answer.

        Raises:
            aiohttp.ClientError, TimeoutError, OSError: no answer.
            UnavailableError: a secret can't be read.
            TooLargeError: an answer larger than allowed.
        """
        status, _, body = await self.fetch_typed(method, url, **options)
        return status, body

    async def fetch_typed(
        self,
        method: str,
        url: URL,
        **options: Any,  # noqa: ANN401
    ) -> tuple[int, str, bytes]:
        """Return a response's status, Content-Type and body; arguments and errors as `fetch`."""
        most_bytes = options.pop("most_bytes", self.max_response_bytes)
        for is_last in (False, True):
            async with self.stream(method, url, **options) as response:
                if response.status == _UNAUTHORIZED and not is_last:
                    # A token can expire early or be revoked.
                    shown = response.request_info.headers.get("Authorization", "")
                    if self.access.forgets(shown):
                        continue
                content_type = response.headers.get("Content-Type", "")
                return response.status, content_type, await self.body(response, most_bytes)
        raise BugError("a request ended without an answer")

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        url: URL,
        **options: Any,  # noqa: ANN401
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open a response for reading piece by piece; arguments and errors as `fetch`."""
        headers: CIMultiDict[str] = CIMultiDict(options.pop("headers", ()))
        headers.extend(await self.access.headers())
        if url.scheme == "https":
            options["ssl"] = self.access.tls()
            if self.access.server_name is not None:
                options.setdefault("server_hostname", self.access.server_name)
        async with self._open().request(
            method, url, allow_redirects=False, headers=headers, **options
        ) as response:
            yield response

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.timeout_s)
            limit = self.max_connections
            connector = (
                aiohttp.TCPConnector(limit=limit)
                if self.unix_socket is None
                else aiohttp.UnixConnector(str(self.unix_socket), limit=limit)
            )
            self._session = aiohttp.ClientSession(timeout=timeout, connector=connector)
        return self._session

    def _large_answers(self) -> asyncio.Semaphore:
        if self._large is None:
            self._large = asyncio.Semaphore(self.large_at_once)
        return self._large

    async def body(self, response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
        """Return the body of an open response.

        Raises:
            TooLargeError: it is larger than `most_bytes`.
        """
        chunks: list[bytes] = []
        size = 0
        async with AsyncExitStack() as stack:
            async for chunk in response.content.iter_any():
                if size <= _LARGE_BYTES < size + len(chunk) and self.large_at_once:
                    await stack.enter_async_context(self._large_answers())
                size += len(chunk)
                if size > most_bytes:
                    raise TooLargeError(f"the answer has more than {most_bytes} bytes")
                chunks.append(chunk)
        return b"".join(chunks)
