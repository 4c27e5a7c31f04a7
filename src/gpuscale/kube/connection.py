"""Requests to the API server: where it is, who we are, and plain JSON back.

lightkube reads kubeconfig files and service accounts, and makes an HTTP client with their TLS and
credentials. Listing and watching are done on that client directly: they need bookmarks, bounds on sizes and
times, and objects of versions that no model knows yet.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx2
from lightkube.config.client_adapter import AsyncClient, ConnectionParams
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from gpuscale.kube.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.kubeconfig import read_kubeconfig
from gpuscale.kube.refusals import read_refusal
from gpuscale.kube.settings import KubeSettings

JsonObject = dict[str, Any]
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RETRY_CODES = frozenset({408, 429, 500, 502, 503, 504})
_CHUNK_BYTES = 65_536
_OUTSIDE_FAULTS = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError)


class KubeConnection:
    """The API server. Use it in `async with`, or `close` it.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """

    def __init__(self, settings: KubeSettings) -> None:
        self._settings = settings
        config = read_kubeconfig(settings)
        self.server = config.cluster.server
        """Address, for messages."""
        timeout = httpx2.Timeout(settings.timeout_s)
        self._client = AsyncClient(config, ConnectionParams(timeout=timeout, trust_env=False))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        await self._client.aclose()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json"
    ) -> JsonObject:
        """Return the object at a path.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        seconds = self._settings.timeout_s
        async with self._answer(path, params or {}, accept, seconds) as answer:
            return self._object(path, await self._body(path, answer))

    async def text(self, path: str) -> str:
        """Return what is at a path, such as what a pod answers by way of the API server.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        async with self._answer(path, {}, "text/plain, */*", self._settings.timeout_s) as answer:
            return (await self._body(path, answer)).decode(errors="replace")

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Hold a watch open; what it yields are its events, until the server ends it.

        Raises:
            ApiUnreachableError: no answer, it broke off, or the server did not end it when asked to.
            ApiStatusError: refused.
        """
        query = {**params, "watch": "1", "timeoutSeconds": str(self._settings.watch_s)}
        most_s = self._settings.watch_s + self._settings.timeout_s
        async with self._answer(path, query, "application/json", most_s) as answer:
            yield (self._object(path, line) async for line in self._lines(path, answer))

    @asynccontextmanager
    async def _answer(
        self, path: str, params: Mapping[str, str], accept: str, most_s: float
    ) -> AsyncIterator[httpx2.Response]:
        timeout = httpx2.Timeout(self._settings.timeout_s, read=most_s)
        stream = self._client.stream(
            "GET", path, params=dict(params), headers={"Accept": accept}, timeout=timeout
        )
        try:
            async with asyncio.timeout(most_s), stream as answer:
                if answer.status_code != httpx2.codes.OK:
                    raise self._refusal(path, answer.status_code, await self._body(path, answer))
                yield answer
        except (TimeoutError, httpx2.TimeoutException) as error:
            text = f"{self._who()} gave no answer to {path} in time"
            raise ApiUnreachableError(text) from error
        except LightkubeConfigError as error:
            raise ApiUnreachableError(f"{self._who()}: {error}") from error
        except _OUTSIDE_FAULTS as error:
            reason = str(error) or type(error).__name__
            raise ApiUnreachableError(f"{self._who()} can't be reached: {reason}") from error

    async def _body(self, path: str, answer: httpx2.Response) -> bytes:
        body = bytearray()
        async for chunk in answer.aiter_bytes(_CHUNK_BYTES):
            body += chunk
            self._check_size(path, len(body), self._settings.max_body_bytes)
        return bytes(body)

    async def _lines(self, path: str, answer: httpx2.Response) -> AsyncIterator[bytes]:
        rest = b""
        async for chunk in answer.aiter_bytes():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.strip():
                    yield line
            self._check_size(path, len(rest), self._settings.max_line_bytes)

    def _check_size(self, path: str, size: int, most: int) -> None:
        if size > most:
            raise ApiUnreachableError(f"{self._who()} answered {path} with more than {most} bytes")

    def _object(self, path: str, body: bytes) -> JsonObject:
        try:
            found = json.loads(body)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise ApiUnreachableError(f"{self._who()} answered {path} with no JSON object")
        return found

    def _refusal(self, path: str, code: int, body: bytes) -> Exception:
        refusal = read_refusal(body)
        text = f"{self._who()} answered {path} with {code}: {refusal.message}"
        if code in _RETRY_CODES:
            return ApiUnreachableError(text)
        return ApiStatusError(code, text, refusal.immutable_fields)

    def _who(self) -> str:
        return f"the API server at {self.server}"
