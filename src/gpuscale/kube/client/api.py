"""What an aggregated API server asks of the API server beyond reading: questions by POST, and metadata.

`managedFields` and the like are most of a list of metadata. Skipped as they are read, ten thousand pods take
a thirtieth of the time, and no memory that has to be given back.

Source: kubernetes API concepts, "Metadata-only fetches"; k8s.io/apimachinery v0.36 pkg/apis/meta/v1
(PartialObjectMetadataList, ListMeta).
"""

import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import httpx2
import msgspec
from lightkube.config.client_adapter import verify_cluster
from lightkube.config.kubeconfig import KubeConfig, SingleConfig
from lightkube.config.models import User
from lightkube.core.exceptions import ConfigError as LightkubeConfigError

from gpuscale.core.errors import UsageError
from gpuscale.kube.client.connection import (
    METADATA_ONLY,
    OUTSIDE_FAULTS,
    JsonObject,
    KubeConnection,
)
from gpuscale.kube.client.errors import ApiUnreachableError
from gpuscale.kube.client.kubeconfig import SERVICE_ACCOUNT, read_kubeconfig
from gpuscale.kube.client.posting import Poster, poster_of
from gpuscale.kube.client.settings import KubeSettings

_LIST_KIND = b'"kind":"PartialObjectMetadataList"'
_KIND_WITHIN = 256
"""Bytes; the API server writes `kind` first."""


class _Metadata(TypedDict, total=False):
    """What is kept of an object's metadata."""

    name: str
    namespace: str
    labels: dict[str, str]


class _Object(TypedDict, total=False):
    metadata: _Metadata


_ListMetadata = TypedDict("_ListMetadata", {"resourceVersion": str, "continue": str}, total=False)


class _List(TypedDict, total=False):
    metadata: _ListMetadata
    items: list[_Object]


_DECODER = msgspec.json.Decoder(_List)


def metadata_list(body: bytes) -> dict[str, Any] | None:
    """Return names, namespaces and labels of a list's objects, and where it goes on; None for another body.

    What does not have the types of such a list is another body, too.
    """
    if _LIST_KIND not in body[:_KIND_WITHIN]:
        return None
    try:
        return dict(_DECODER.decode(body))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


AGGREGATED_DISCOVERY = ",".join(
    [
        "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
        "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        "application/json",
    ]
)
"""Accept header for discovery in one answer, or in pieces from servers that don't have it so."""
_METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


class ApiClient(KubeConnection):
    """A connection that can also ask questions: token reviews and access reviews are answers to a POST."""

    def __init__(self, settings: KubeSettings) -> None:
        super().__init__(settings)
        self._poster: Poster | None = None
        self._is_poster_made = False

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        if self._poster is not None:
            await self._poster.close()
        await super().close()

    async def ask(self, path: str, question: JsonObject) -> JsonObject:
        """Return the object that the server makes of a posted one.

        Tried twice, because the server may have closed a connection that was kept open.

        Raises:
            ApiUnreachableError: no answer, or not now.
            ApiStatusError: refused.
        """
        if not self._is_poster_made:
            self._is_poster_made = True
            settings = self._settings
            self._poster = poster_of(
                read_kubeconfig(settings),
                self._client.auth,
                settings.timeout_s,
                settings.max_body_bytes,
            )
        if self._poster is not None:
            try:
                found = await self._poster.post(path, json.dumps(question).encode())
            except TimeoutError as error:
                raise self.unreachable(error) from error
            if found is not None:
                return self._object(path, found)
        try:
            return await self._send("POST", path, question)
        except ApiUnreachableError:
            return await self._send("POST", path, question)

    async def _send(
        self, method: str, path: str, body: Mapping[str, Any], kind: str = "application/json"
    ) -> JsonObject:
        """Return the object that the server answers to one with a body of content type `kind`."""
        headers = {"Accept": "application/json", "Content-Type": kind}
        content = json.dumps(body).encode()
        try:
            stream = self._client.stream(method, path, content=content, headers=headers)
            async with stream as answer:
                received = await self._body(path, answer)
                if not answer.is_success:
                    raise self._refusal(path, answer.status_code, received)
                return self._object(path, received)
        except LightkubeConfigError as error:
            raise ApiUnreachableError(f"{self._who()}: {error}") from error
        except OUTSIDE_FAULTS as error:
            raise self.unreachable(error) from error


class MetadataClient(ApiClient):
    """A connection that reads the metadata of objects and leaves the rest of them on the server.

    A server that can't do that for a resource sends whole objects, which hold the same metadata.
    """

    @asynccontextmanager
    async def _answer(
        self, path: str, params: Mapping[str, str], accept: str, read_s: float
    ) -> AsyncIterator[httpx2.Response]:
        reduced = METADATA_ONLY if "watch" in params else _METADATA_LIST
        async with super()._answer(path, params, f"{reduced},{accept}", read_s) as answer:
            yield answer

    def _object(self, path: str, body: bytes) -> JsonObject:
        return metadata_list(body) or super()._object(path, body)


@dataclass(frozen=True, slots=True)
class Credentials:
    """The CAs a client trusts and its own credentials, for servers beside the API server."""

    tls: ssl.SSLContext = field(repr=False)
    """Trust, and a client certificate where there is one."""
    token: str | None = field(default=None, repr=False)
    token_file: Path | None = None
    """Comes before `token`."""


def service_account_credentials() -> Credentials:
    """Return what a pod has by its service account.

    Raises:
        UsageError: this is no pod, or it has none.
    """
    try:
        tls = ssl.create_default_context(cafile=str(SERVICE_ACCOUNT / "ca.crt"))
    except (OSError, ValueError) as error:
        raise UsageError(f"no service account in {SERVICE_ACCOUNT}: {error}") from error
    return Credentials(tls, token_file=SERVICE_ACCOUNT / "token")


def kubeconfig_credentials(path: Path) -> Credentials:
    """Return the credentials of a kubeconfig's current context; its server is not looked at.

    Raises:
        UsageError: not a kubeconfig, or one whose credentials come from a program.
    """
    try:
        config = _current(path)
        user = config.user or User()
        tls = verify_cluster(config.cluster, user, config.abs_file, trust_env=False)
        token_file = config.abs_file(user.token_file) if user.token_file else None
    except (LightkubeConfigError, OSError, KeyError, TypeError, ValueError) as error:
        raise UsageError(f"{path}: no usable kubeconfig: {error}") from error
    return Credentials(tls, user.token, Path(token_file) if token_file else None)


def _current(path: Path) -> SingleConfig:
    config = KubeConfig.from_file(path).get()
    if config is None:
        raise LightkubeConfigError("it names no context")
    if config.user is not None and (config.user.exec or config.user.auth_provider):
        raise LightkubeConfigError("credentials from a program are not supported here")
    return config
