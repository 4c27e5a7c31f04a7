"""The client of the API server: JSON requests, with a method for each verb.

Listing and watching are done on HTTP clients directly: they need bookmarks, bounds on sizes and times, and
objects of versions that no model knows yet. What only some programs ask for is imported when it is asked for:
a server that is reached in a plain way is read by `reader`, and the usual client comes with the first write
that is no review and no JSON patch.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlencode

from gpuscale.base.clock import WallClock
from gpuscale.kube.client.answers import AnswerReader, accepted
from gpuscale.kube.client.answers import JsonObject as JsonObject
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError
from gpuscale.kube.client.plain import plain_access
from gpuscale.kube.client.reader import JSON_PATCH, ApiReader
from gpuscale.kube.client.settings import KubeSettings

if TYPE_CHECKING:
    import httpx2


_FAILED_CHECK = re.compile(r"^\[-\](\S+)", re.MULTILINE)
AGGREGATED_DISCOVERY = ",".join(
    [
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    ]
)
"""Accept header for discovery in one answer, or in pieces from servers that don't have it so."""
STRATEGIC_MERGE = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
APPLY = "application/apply-patch+yaml"
"""Server-side apply; JSON is YAML."""
NOT_FOUND = 404
CONFLICT = 409
_UNAUTHORIZED = 401
_SERVER_ERROR = 500
_READY_S = 10.0
_TRY_AGAIN_S = 1.0
_CHUNK_BYTES = 65_536


def failed_checks(body: str) -> tuple[str, ...]:
    """Return the failed checks in a response of `/readyz?verbose`."""
    return tuple(_FAILED_CHECK.findall(body))


class KubeClient:
    """The API server. Use it in `async with`, or `close` it.

    Args:
        settings: how it is reached.
        metadata_only: whether names, namespaces and labels are all that is read of objects. A server that
            can't leave out the rest sends whole objects, which hold the same.
        tries: of a `get` without an answer; a cluster that changes is busy.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """

    def __init__(
        self, settings: KubeSettings, *, metadata_only: bool = False, tries: int = 1
    ) -> None:
        self._settings = settings
        self._metadata_only = metadata_only
        self._tries = tries
        self._usual: httpx2.AsyncClient | None = None
        self._reader: ApiReader | None = None
        plain = plain_access(settings)
        if plain is not None:
            server, context = plain.server, plain.context
            self._reader = ApiReader(plain, settings, metadata_only=metadata_only)
        else:
            self._usual, server, context = _usual_client(settings)
        self.server = server
        """Address, for messages."""
        self._answers = AnswerReader(server, context, metadata_only=metadata_only)

    @property
    def _client(self) -> "httpx2.AsyncClient":
        if self._usual is None:
            self._usual, _, _ = _usual_client(self._settings)
        return self._usual

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        if self._reader is not None:
            await self._reader.close()
        if self._usual is not None:
            await self._usual.aclose()

    async def get(
        self, path: str, params: Mapping[str, str] | None = None, accept: str = "application/json"
    ) -> JsonObject:
        """Return the object at a path.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        for _ in range(self._tries - 1):
            try:
                return await self._get(path, params or {}, accept)
            except ApiUnreachableError:
                await WallClock().sleep(_TRY_AGAIN_S)
        return await self._get(path, params or {}, accept)

    async def find(self, path: str) -> JsonObject | None:
        """Return the object at a path; None where there is none. Errors as `get`."""
        try:
            return await self.get(path)
        except ApiStatusError as error:
            if error.code == NOT_FOUND:
                return None
            raise

    async def text(self, path: str) -> str:
        """Return the text at a path, such as a pod's page through the API server's proxy.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        return (await self._read(path, {}, "text/plain, */*")).decode(errors="replace")

    async def git_version(self) -> str | None:
        """Return the server's version such as v1.36.3; None if it has none."""
        try:
            found = await self.get("/version")
        except (ApiStatusError, ApiUnreachableError):
            return None
        version = found.get("gitVersion")
        return version if isinstance(version, str) else None

    async def check_ready(self) -> None:
        """Raise if the API server isn't ready: without etcd it answers some requests and hangs on others.

        One that does not let us ask counts as ready; what follows will show.

        Raises:
            ApiUnreachableError: no answer within a few seconds, or it says that it is not ready.
            ApiStatusError: it does not accept the credentials.
        """
        timeout_s = min(_READY_S, self._settings.timeout_s)
        with self._outside_faults(f"{self._answers.who} gave no answer within {timeout_s:g} s"):
            answer = await self._client.get("/readyz?verbose", timeout=timeout_s)
        if answer.status_code == _UNAUTHORIZED:
            raise self._answers.refusal("/readyz", answer.status_code, answer.content)
        if answer.status_code >= _SERVER_ERROR:
            failed = ", ".join(failed_checks(answer.text)) or f"it answers {answer.status_code}"
            raise ApiUnreachableError(f"{self._answers.who} is not ready to serve: {failed}")

    @asynccontextmanager
    async def watch(
        self, path: str, params: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[JsonObject]]:
        """Open a watch and yield its events, until the server ends it.

        Raises:
            ApiUnreachableError: no answer, it broke off, or the server did not end it when asked to.
            ApiStatusError: refused.
        """
        if self._reader is not None:
            async with self._reader.watch(path, params) as events:
                yield events
            return
        query = {**params, "watch": "1", "timeoutSeconds": str(self._settings.watch_s)}
        most_s = self._settings.watch_s + self._settings.timeout_s
        async with self._answer(path, query, "application/json", most_s) as answer:
            lines = self._answers.lines(path, answer.aiter_bytes(), self._settings.max_line_bytes)
            yield (self._answers.parsed(path, line) async for line in lines)

    async def ask(self, path: str, question: JsonObject) -> JsonObject:
        """Post an object, and return the server's version of it.

        Tried twice, because the server may have closed a connection that was kept open.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        if self._reader is not None:
            return await self._reader.post(path, question)
        try:
            return await self._send("POST", path, question)
        except ApiUnreachableError:
            return await self._send("POST", path, question)

    async def create(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Create an object in the collection at `path`, and return it.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 409 where it exists already.
        """
        return await self._send("POST", path, body)

    async def patch(self, path: str, body: Mapping[str, Any], kind: str = MERGE) -> JsonObject:
        """Patch the object at `path`, and return it; `kind` is the patch's content type.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 404 where there is no such object.
        """
        return await self._send("PATCH", path, body, kind)

    async def json_patch(self, path: str, operations: Sequence[JsonObject]) -> JsonObject:
        """Change the object at `path` by the operations of a JSON patch (RFC 6902), and return it.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 422 where a `test` does not hold.
        """
        if self._reader is not None:
            return await self._reader.json_patch(path, operations)
        return await self._send("PATCH", path, operations, JSON_PATCH)

    async def replace(self, path: str, body: Mapping[str, Any]) -> JsonObject:
        """Replace the object at `path`, and return it.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused; code 409 where it is not in the `resourceVersion` of `body` any more.
        """
        return await self._send("PUT", path, body)

    async def delete(
        self,
        path: str,
        options: Mapping[str, Any] | None = None,
        *,
        selectors: Mapping[str, str] | None = None,
    ) -> bool:
        """Delete an object, or a collection's objects by selector; return whether there were any.

        Args:
            path: of the object or the collection.
            options: DeleteOptions, such as `gracePeriodSeconds`.
            selectors: `labelSelector` and `fieldSelector`; for collections.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused, for another reason than that there is no such object.
        """
        query = f"?{urlencode(selectors)}" if selectors else ""
        try:
            await self._send("DELETE", path + query, options or {})
        except ApiStatusError as error:
            if error.code == NOT_FOUND:
                return False
            raise
        return True

    @asynccontextmanager
    async def _answer(
        self, path: str, params: Mapping[str, str], accept: str, most_s: float
    ) -> AsyncIterator["httpx2.Response"]:
        import httpx2

        accept = accepted(accept, params, metadata_only=self._metadata_only)
        timeout = httpx2.Timeout(self._settings.timeout_s, read=most_s)
        stream = self._client.stream(
            "GET", path, params=dict(params), headers={"Accept": accept}, timeout=timeout
        )
        with self._outside_faults(str(self._answers.late(path))):
            # A watch may be silent for minutes, but its response starts at once.
            until_s = asyncio.get_running_loop().time() + most_s
            async with asyncio.timeout(self._settings.timeout_s) as limit, stream as answer:
                limit.reschedule(until_s)
                if answer.status_code != httpx2.codes.OK:
                    raise self._answers.refusal(
                        path, answer.status_code, await self._body(path, answer)
                    )
                yield answer

    @contextmanager
    def _outside_faults(self, timed_out: str = "") -> Iterator[None]:
        """Raise connection faults as ApiUnreachableError, after a time-out with this text."""
        import httpx2
        from lightkube.core.exceptions import ConfigError as LightkubeConfigError

        try:
            yield
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise (
                ApiUnreachableError(timed_out) if timed_out else self.unreachable(error)
            ) from error
        except LightkubeConfigError as error:
            raise ApiUnreachableError(f"{self._answers.who}: {error}") from error
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError) as error:
            raise self.unreachable(error) from error

    async def _get(self, path: str, params: Mapping[str, str], accept: str) -> JsonObject:
        return self._answers.parsed(path, await self._read(path, params, accept))

    async def _read(self, path: str, params: Mapping[str, str], accept: str) -> bytes:
        if self._reader is not None:
            return await self._reader.body(path, params, accept)
        async with self._answer(path, params, accept, self._settings.timeout_s) as answer:
            return await self._body(path, answer)

    async def _send(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | Sequence[JsonObject],
        kind: str = "application/json",
    ) -> JsonObject:
        """Send a body of content type `kind`, and return the response's object."""
        headers = {"Accept": "application/json", "Content-Type": kind}
        content = json.dumps(body).encode()
        stream = self._client.stream(method, path, content=content, headers=headers)
        with self._outside_faults():
            async with stream as answer:
                received = await self._body(path, answer)
                if not answer.is_success:
                    raise self._answers.refusal(path, answer.status_code, received)
                return self._answers.parsed(path, received)

    async def _body(self, path: str, answer: "httpx2.Response") -> bytes:
        chunks = answer.aiter_bytes(_CHUNK_BYTES)
        return await self._answers.whole(path, chunks, self._settings.max_body_bytes)

    def unreachable(self, error: Exception) -> ApiUnreachableError:
        """Return the error for a request without response."""
        return self._answers.unreachable(error)


def _usual_client(settings: KubeSettings) -> "tuple[httpx2.AsyncClient, str, str]":
    """Return a client for any kubeconfig, the server's address, and the context's name.

    Raises:
        UsageError, ConfigError: as `KubeClient`.
    """
    from gpuscale.kube.client.kubeconfig import read_kubeconfig
    from gpuscale.kube.client.transport import make_client

    access = read_kubeconfig(settings)
    context = access.config.context_name if settings.kubeconfig is not None else ""
    return make_client(access, settings.timeout_s), access.config.cluster.server, context
