"""As much of a Kubernetes API client as a simulated kubelet needs: JSON over HTTPS, and watches."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any, Self

import aiohttp

from gpuscale.core.errors import NotFoundError, UnavailableError, UpstreamError

Json = dict[str, Any]

STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
_WATCH_S = 300
_GONE = 410


class ConflictError(UpstreamError):
    """The object has changed since it was read, or is there already."""


class ApiClient:
    """Calls one API server. Use it in `async with`.

    A request that was sent is read to its end even if nobody waits for it any more: a TLS connection that
    is let go in the middle would still be closing when the event loop ends.

    Args:
        url: of the API server.
        context: whom to trust and who to be.
        timeout_s: for each request; watches have none.
    """

    def __init__(self, url: str, context: ssl.SSLContext, timeout_s: float = 15.0) -> None:
        self._url = url
        self._context = context
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._calls: set[asyncio.Task[Json]] = set()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=self._context, limit=0)
        self._session = aiohttp.ClientSession(self._url, connector=connector)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*self._calls, return_exceptions=True)
        await self._session.close()

    async def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, patch: str = ""
    ) -> Json:
        """Return the answer.

        Args:
            method: such as GET.
            path: with its query.
            body: sent as JSON; None sends none.
            patch: the kind of patch, as its content type.

        Raises:
            NotFoundError: no such object.
            ConflictError: status 409.
            UnavailableError: no answer.
            UpstreamError: any other error.
        """
        task = asyncio.create_task(self._call(method, path, body, patch))
        self._calls.add(task)
        task.add_done_callback(self._calls.discard)
        return await asyncio.shield(task)

    async def _call(
        self, method: str, path: str, body: Mapping[str, Any] | None, patch: str
    ) -> Json:
        content = None if body is None else json.dumps(body)
        headers = {"Content-Type": patch or "application/json"}
        try:
            async with self._session.request(
                method, path, data=content, headers=headers, timeout=self._timeout
            ) as response:
                answer: Json = await response.json()
                _check(response.status, f"{method} {path}", answer)
                return answer
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnavailableError(
                f"{method} {path}: {str(error) or type(error).__name__}"
            ) from error

    async def watch(self, path: str) -> AsyncIterator[tuple[str, Json]]:
        """Yield every object below a path as ADDED, then its changes, until the server ends the watch.

        Raises:
            UnavailableError: the connection broke.
            UpstreamError: the server said no.
        """
        listed = await self.call("GET", path)
        for item in listed["items"]:
            yield "ADDED", item
        version = listed["metadata"]["resourceVersion"]
        parameters = {
            "watch": "1",
            "resourceVersion": version,
            "timeoutSeconds": str(_WATCH_S),
        }
        try:
            async for event in self._events(path, parameters):
                yield event
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UnavailableError(f"watch {path}: {str(error) or type(error).__name__}") from error

    async def _events(
        self, path: str, parameters: Mapping[str, str]
    ) -> AsyncIterator[tuple[str, Json]]:
        forever = aiohttp.ClientTimeout(total=None)
        async with self._session.get(path, params=parameters, timeout=forever) as response:
            if response.status != 200:
                _check(response.status, f"watch {path}", await response.json())
            try:
                async for line in _lines(response.content):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        _check(event["object"].get("code", _GONE), f"watch {path}", event["object"])
                    yield event["type"], event["object"]
            finally:
                _abort(response)


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length; the reader's own are bounded."""
    rest = b""
    async for chunk in content.iter_any():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line


def _abort(response: aiohttp.ClientResponse) -> None:
    """Cut the connection of a watch, which has no end to wait for."""
    connection = response.connection
    if connection is not None and connection.transport is not None:
        connection.transport.abort()


def _check(status: int, asked: str, answer: Json) -> None:
    """Return if the status is a good one, or raise the error that it is."""
    if status < 300:
        return
    kind = {404: NotFoundError, 409: ConflictError}.get(status, UpstreamError)
    raise kind(f"{asked}: {answer.get('message', status)}")
