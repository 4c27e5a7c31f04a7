"""Requests to the API server: where it is, who we are, and plain JSON back.

lightkube reads kubeconfig files and service accounts, and makes an HTTP client with their TLS and
credentials. Listing and watching are done on that client directly: they need bookmarks, bounds on sizes and
times, and objects of versions that no model knows yet.
"""

import asyncio
import base64
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2
from lightkube.config.client_adapter import user_auth, verify_cluster
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from gpuscale.core.errors import UsageError
from gpuscale.kube.client.credentials import ProgramAuth
from gpuscale.kube.client.errors import ApiStatusError, ApiUnreachableError, read_refusal
from gpuscale.kube.client.kubeconfig import Access, read_kubeconfig
from gpuscale.kube.client.settings import KubeSettings
from gpuscale.kube.json_values import mapping_of, text_of, texts_of

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


JsonObject = dict[str, Any]
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_RETRY_CODES = frozenset({408, 429, 500, 502, 503, 504})
_UNAUTHORIZED = 401
_SERVER_ERROR = 500
_READY_S = 10.0
_CA_FILE = "certificate-authority"
_CHUNK_BYTES = 65_536
_NOTICE_DEAD_PEERS = (
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
OUTSIDE_FAULTS = (httpx2.HTTPError, httpx2.StreamError, httpx2.InvalidURL, OSError)


class KubeConnection:
    """The API server. Use it in `async with`, or `close` it.

    Raises:
        UsageError: there is no usable kubeconfig or service account.
        ConfigError: the kubeconfig is no YAML.
    """

    def __init__(self, settings: KubeSettings) -> None:
        self._settings = settings
        access = read_kubeconfig(settings)
        self.server = access.config.cluster.server
        """Address, for messages."""
        self._context = access.config.context_name if settings.kubeconfig is not None else ""
        self._client = _make_client(access, settings.timeout_s)

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

    async def check_ready(self) -> None:
        """Return if the API server can serve: without its etcd it answers some requests, and hangs on others.

        One that does not let us ask counts as ready; what follows will show.

        Raises:
            ApiUnreachableError: no answer within a few seconds, or it says that it is not ready.
            ApiStatusError: it does not accept the credentials.
        """
        timeout = httpx2.Timeout(min(_READY_S, self._settings.timeout_s))
        try:
            answer = await self._client.get("/readyz?verbose", timeout=timeout)
        except httpx2.TimeoutException as error:
            text = f"{self._who()} gave no answer within {timeout.read:g} s"
            raise ApiUnreachableError(text) from error
        except LightkubeConfigError as error:
            raise ApiUnreachableError(f"{self._who()}: {error}") from error
        except OUTSIDE_FAULTS as error:
            raise self.unreachable(error) from error
        if answer.status_code == _UNAUTHORIZED:
            raise self._refusal("/readyz", answer.status_code, answer.content)
        if answer.status_code >= _SERVER_ERROR:
            failed = ", ".join(failed_checks(answer.text)) or f"it answers {answer.status_code}"
            raise ApiUnreachableError(f"{self._who()} is not ready to serve: {failed}")

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
        except OUTSIDE_FAULTS as error:
            raise self.unreachable(error) from error

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
            return ApiUnreachableError(text, code, refusal.said)
        if code == _UNAUTHORIZED:
            whose = f"context {self._context}" if self._context else "this pod's service account"
            text = (
                f"{self._who()} does not accept the credentials of {whose} ({code}: {refusal.message}); "
                "they may have expired: log in again, as for kubectl"
            )
        elif '"system:anonymous"' in refusal.message:
            text += "; no credentials were sent, since the kubeconfig's context has none"
        return ApiStatusError(code, text, refusal.immutable_fields, refusal.said)

    def unreachable(self, error: Exception) -> ApiUnreachableError:
        """Return what to raise where a request got no answer."""
        return ApiUnreachableError(f"{self._who()} can't be reached: {reason_of(error)}")

    def _who(self) -> str:
        return f"the API server at {self.server}"


def _make_client(access: Access, timeout_s: float) -> httpx2.AsyncClient:
    """Return the HTTP client of a context: its trust, its credentials, its proxy.

    Raises:
        UsageError: certificates, proxy or credentials can't be used.
    """
    config = access.config
    user = config.user or User()
    try:
        tls = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
        program = mapping_of(access.user.get("exec"))
        # A token of the file's own comes before a program, as for kubectl.
        if program and not (user.token or user.token_file):
            auth: httpx2.Auth | None = ProgramAuth(program, _info_for_programs(access.cluster), tls)
        else:
            auth = user_auth(user)
        client = httpx2.AsyncClient(
            base_url=config.cluster.server,
            transport=httpx2.AsyncHTTPTransport(
                verify=tls, trust_env=False, socket_options=_NOTICE_DEAD_PEERS
            ),
            verify=tls,
            auth=auth,
            timeout=httpx2.Timeout(timeout_s),
            trust_env=False,
            proxy=text_of(access.cluster.get("proxy-url")) or None,
            headers=_impersonation(access.user),
        )
    except (LightkubeConfigError, OSError, ValueError, ImportError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise UsageError(
            f"{config.fname or 'the service account'}: no usable kubeconfig: {reason}"
        ) from error
    if server_name := text_of(access.cluster.get("tls-server-name")):

        async def name_server(request: httpx2.Request) -> None:
            request.extensions["sni_hostname"] = server_name

        client.event_hooks = {"request": [name_server]}
    return client


def _info_for_programs(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """Return a cluster's section for a program that gives credentials; files become data."""
    info = {key: value for key, value in cluster.items() if key not in {_CA_FILE, "extensions"}}
    if path := text_of(cluster.get(_CA_FILE)):
        info[f"{_CA_FILE}-data"] = base64.b64encode(Path(path).read_bytes()).decode()
    extensions = cluster.get("extensions")
    for each in extensions if isinstance(extensions, list) else ():
        if mapping_of(each).get("name") == "client.authentication.k8s.io/exec":
            info["config"] = mapping_of(each).get("extension")
    return info


def _impersonation(user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of a user that acts as another one."""
    headers = [("Impersonate-User", text_of(user.get("as")))]
    headers += [("Impersonate-Uid", text_of(user.get("as-uid")))]
    headers += [("Impersonate-Group", group) for group in texts_of(user.get("as-groups"))]
    for key, values in mapping_of(user.get("as-user-extra")).items():
        headers += [(f"Impersonate-Extra-{key}", value) for value in texts_of(values)]
    return [(name, value) for name, value in headers if value]
