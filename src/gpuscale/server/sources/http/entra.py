"""Access tokens of Microsoft Entra ID, for Azure's metric receivers.

A token comes from the instance metadata service of the node (managed identity), or from Entra's token
endpoint for a client's secret or for the token of a Kubernetes service account (workload identity). It is
kept, and another one is asked for once half of its time is over; until that works, the old one is used as
long as it is valid.

Source: Microsoft, "How to use managed identities for Azure resources on an Azure VM to acquire an access
    token", "Microsoft identity platform and the OAuth 2.0 client credentials flow" (also with a federated
    credential); prometheus 3.14 storage/remote/azuread (scopes, half the time); azure-sdk-for-go azidentity
    (addresses, environment); KEDA 2.21 pkg/scalers/azure (scopes of queries).
"""

import asyncio
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
from yarl import URL

from gpuscale.base.errors import GpuscaleError, UnavailableError
from gpuscale.base.unreachable import reason_of
from gpuscale.server.sources.http.access import SecretFile
from gpuscale.server.sources.http.session import HttpSession

AUTHORITIES = {
    "AzurePublic": "https://login.microsoftonline.com",
    "AzureGovernment": "https://login.microsoftonline.us",
    "AzureChina": "https://login.chinacloudapi.cn",
}
"""Where tokens are asked for, by cloud."""
INGESTION_SCOPES = {
    "AzurePublic": "https://monitor.azure.com//.default",
    "AzureGovernment": "https://monitor.azure.us//.default",
    "AzureChina": "https://monitor.azure.cn//.default",
}
"""What a token to write to an Azure Monitor workspace is for, by cloud."""
QUERY_SCOPES = {
    "AzurePublic": "https://prometheus.monitor.azure.com/.default",
    "AzureGovernment": "https://prometheus.monitor.azure.us/.default",
    "AzureChina": "https://prometheus.monitor.azure.cn/.default",
}
"""What a token to query an Azure Monitor workspace is for, by cloud."""
METADATA_SERVICE = "http://169.254.169.254"
AUTHORITY_VARIABLE = "AZURE_AUTHORITY_HOST"
"""Where tokens are asked for instead; the workload identity webhook sets it in pods."""
METADATA_VARIABLE = "AZURE_POD_IDENTITY_AUTHORITY_HOST"
"""Where the instance metadata service is instead."""
CLIENT_VARIABLE = "AZURE_CLIENT_ID"
"""The identity of a pod; the webhook sets this and the next two."""
TENANT_VARIABLE = "AZURE_TENANT_ID"
TOKEN_FILE_VARIABLE = "AZURE_FEDERATED_TOKEN_FILE"  # noqa: S105 - a name
_TOKEN_FILE = "/var/run/secrets/azure/tokens/azure-identity-token"  # noqa: S105 - a path
_JWT_ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 64 * 1024
_RETRY_S = 5.0
"""How long a failure is the answer, so that requests that wait don't all ask."""
_FORGET_S = 30.0
"""From one refused token that is dropped to the next."""
_MOST_S = 7 * 86_400.0
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_SHOWN_CHARS = 200


@dataclass(frozen=True, slots=True)
class ManagedIdentity:
    """The node's managed identity; a client id selects one of several."""

    client_id: str = ""


@dataclass(frozen=True, slots=True)
class ClientSecret:
    """An application with a client secret."""

    tenant_id: str
    client_id: str
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkloadIdentity:
    """An application or identity that trusts a Kubernetes service account."""

    tenant_id: str
    client_id: str
    token_file: Path
    """The service account's token, which the kubelet renews."""


@dataclass(frozen=True, slots=True)
class EntraLogin:
    """How to log in to Entra, and for which resource."""

    identity: ManagedIdentity | ClientSecret | WorkloadIdentity
    scope: str = INGESTION_SCOPES["AzurePublic"]
    authority: str = AUTHORITIES["AzurePublic"]


@dataclass(frozen=True, slots=True)
class _Grant:
    """A token with the event loop's times to renew it and of its end."""

    token: str = field(repr=False)
    renewed_at: float
    ends_at: float


def authority(cloud: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the token endpoint's authority of a cloud; without a cloud, the environment's.

    Raises:
        ValueError: the environment's address would send secrets in the clear.
    """
    found = environment.get(AUTHORITY_VARIABLE, "")
    if cloud is not None or not found:
        return AUTHORITIES[cloud or "AzurePublic"]
    if not is_safe(found):
        wrong = "expected an address that begins with https://"
        raise ValueError(f"found {found!r} in the environment's {AUTHORITY_VARIABLE}, {wrong}")
    return found.rstrip("/")


def is_safe(address: str) -> bool:
    """Return whether secrets may be sent to a URL: over TLS, or to this machine."""
    try:
        url = URL(address)
    except ValueError:
        return False
    return url.scheme == "https" or (url.scheme == "http" and url.host in _LOOPBACK)


def service_account_token(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the path of the service account token for Entra, as the webhook mounts it."""
    return Path(environment.get(TOKEN_FILE_VARIABLE) or _TOKEN_FILE)


class EntraToken:
    """The token of one login, fetched when needed."""

    def __init__(self, login: EntraLogin) -> None:
        self._login = login
        self._grant: _Grant | None = None
        self._fault = ""
        self._asks_again_at = 0.0
        self._forgets_at = 0.0
        self._asking = asyncio.Lock()
        identity = login.identity
        self._assertion = (
            SecretFile(identity.token_file) if isinstance(identity, WorkloadIdentity) else None
        )

    async def text(self) -> str:
        """Return a valid token.

        Raises:
            UnavailableError: there is none to be had; the same answer for some seconds.
        """
        loop = asyncio.get_running_loop()
        async with self._asking:
            now = loop.time()
            held = self._grant
            if held is not None and now < held.renewed_at:
                return held.token
            if now >= self._asks_again_at:
                try:
                    held = self._grant = await self._ask(loop)
                except UnavailableError as error:
                    self._fault, self._asks_again_at = str(error), loop.time() + _RETRY_S
                else:
                    return held.token
            if held is None or loop.time() >= held.ends_at:
                raise UnavailableError(self._fault)
            return held.token

    def forget(self, token: str) -> bool:
        """Drop a refused token; return whether another one may work.

        One that came meanwhile stays. Who is refused again and again gets no new token each time.
        """
        if self._grant is None or self._grant.token != token:
            return True
        now = asyncio.get_running_loop().time()
        if now < self._forgets_at:
            return False
        self._grant, self._forgets_at = None, now + _FORGET_S
        return True

    async def _ask(self, loop: asyncio.AbstractEventLoop) -> _Grant:
        method, url, options = await self._request()
        where = str(url.with_query(None))
        try:
            async with HttpSession(_TIMEOUT_S, _MAX_ANSWER_BYTES) as http:
                status, body = await http.fetch(method, url, **options)
        except (aiohttp.ClientError, OSError, TimeoutError, ValueError, GpuscaleError) as error:
            reason = reason_of(error)
            raise UnavailableError(f"no token from {where}: {reason}") from error
        if status != 200:
            raise UnavailableError(f"no token from {where}: answered {status}{_reason(body)}")
        try:
            token, lasts_s = _answer(body)
        except ValueError as error:
            raise UnavailableError(f"no token from {where}: {error}") from None
        now = loop.time()
        return _Grant(token, now + lasts_s / 2, now + lasts_s)

    async def _request(self) -> tuple[str, URL, dict[str, object]]:
        """Return method, URL and options of a token request."""
        identity, scope = self._login.identity, self._login.scope
        if isinstance(identity, ManagedIdentity):
            base = os.environ.get(METADATA_VARIABLE, "").rstrip("/") or METADATA_SERVICE
            asked = {"api-version": "2018-02-01", "resource": scope.removesuffix("/.default")}
            if identity.client_id:
                asked["client_id"] = identity.client_id
            url = URL(f"{base}/metadata/identity/oauth2/token").with_query(asked)
            return "GET", url, {"headers": {"Metadata": "true"}}
        form = {
            "grant_type": "client_credentials",
            "client_id": identity.client_id,
            "scope": scope,
        }
        if isinstance(identity, ClientSecret):
            form["client_secret"] = identity.secret
        elif self._assertion is not None:
            form["client_assertion_type"] = _JWT_ASSERTION
            form["client_assertion"] = await self._assertion.text()
        url = URL(f"{self._login.authority}/{identity.tenant_id}/oauth2/v2.0/token")
        return "POST", url, {"data": form}


def token_of(file: Path | None, login: EntraLogin | None) -> SecretFile | EntraToken | None:
    """Return the token source for a file or a login; None without either."""
    if file is not None:
        return SecretFile(file)
    return None if login is None else EntraToken(login)


def _answer(body: bytes) -> tuple[str, float]:
    """Return the token in a response, and its lifetime in seconds.

    Raises:
        ValueError: it has none that can be used.
    """
    found = _object(body)
    token = found.get("access_token")
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError("the answer has no access_token that can be used")
    # The metadata service caches tokens, and its expires_in counts from when it got them.
    ends_s, lasts_s = _number(found.get("expires_on")), _number(found.get("expires_in"))
    left_s = lasts_s if ends_s is None else ends_s - time.time()
    if left_s is None:
        raise ValueError("the answer does not say how long the token holds")
    if left_s <= 0:
        raise ValueError("the token of the answer has expired already")
    return token, min(left_s, _MOST_S)


def _reason(body: bytes) -> str:
    """Return the error message in a response; the metadata service uses OAuth's form too."""
    try:
        found = _object(body)
    except ValueError:
        return ""
    texts = [found.get(name) for name in ("error", "error_description")]
    said = ": ".join(text for text in texts if isinstance(text, str))
    line = "".join(
        c if c.isprintable() else " " for c in said.partition("\r")[0].partition("\n")[0]
    )
    return f", {line[:_SHOWN_CHARS]}" if line else ""


def _object(body: bytes) -> dict[str, object]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the answer is no JSON") from None
    if not isinstance(found, dict):
        raise ValueError("the answer is no JSON object")
    return found


def _number(value: object) -> float | None:
    """Return a number of seconds, which the metadata service writes as a string."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        seconds = float(value)
    except (ValueError, OverflowError):
        return None
    return seconds if abs(seconds) < 1e11 else None
