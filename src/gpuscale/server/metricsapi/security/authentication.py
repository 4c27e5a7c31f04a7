"""Authentication of a request: front proxy, client certificate, bearer token, or anonymous.

Tried in that order; the first that holds counts. A credential that was shown and is not good makes the
request fail, unless another one is good. Headers that name a user count only beside a certificate of a
front proxy.

Source: k8s.io/apiserver v0.30.0 pkg/authentication (authenticatorfactory/delegating.go,
request/headerrequest, request/x509, request/bearertoken, request/anonymous, group).
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote

from multidict import CIMultiDictProxy
from OpenSSL import crypto

from gpuscale.base.errors import GpuscaleError
from gpuscale.server.metricsapi.security.chains import CaBundle, Subject, UntrustedError
from gpuscale.server.metricsapi.security.reviews import (
    NOBODY,
    RequestHeaders,
    TokenReviewer,
    Trust,
    User,
)

_LOG = logging.getLogger(__name__)


class UnauthenticatedError(Exception):
    """Credentials were shown, and none of them is valid."""


@dataclass(frozen=True, slots=True)
class RequestCredentials:
    """The credentials that a request carries."""

    headers: CIMultiDictProxy[str]
    certificates: Sequence[crypto.X509] = ()
    """The client's own first, as shown in the handshake; not verified."""


class Authenticator:
    """Finds the user of a request.

    Args:
        trust: returns whose certificates count right now.
        tokens: knows bearer tokens; None where none is taken.
    """

    def __init__(self, trust: Callable[[], Trust], tokens: TokenReviewer | None) -> None:
        self._trust = trust
        self._tokens = tokens

    async def user(self, credentials: RequestCredentials) -> User:
        """Return the user of a request.

        Raises:
            UnauthenticatedError: what was shown is not good.
        """
        faults: list[str] = []
        found = self._by_certificate(credentials, faults)
        if found is None:
            found = await self._by_token(credentials, faults)
        if found is not None:
            return found.authenticated()
        if faults:
            raise UnauthenticatedError("; ".join(faults))
        return NOBODY

    def is_front_proxy(self, certificates: Sequence[crypto.X509]) -> bool:
        """Return whether these certificates are a front proxy's, which may name the user in headers."""
        trusted = self._trust().request_headers
        if trusted is None or not certificates:
            return False
        try:
            _front_proxy(trusted, certificates)
        except UntrustedError:
            return False
        return True

    def _by_certificate(self, credentials: RequestCredentials, faults: list[str]) -> User | None:
        if not credentials.certificates:
            return None
        trust = self._trust()
        try:
            if trust.request_headers is not None:
                found = _proxied(trust.request_headers, credentials)
                if found is not None:
                    return found
        except UntrustedError as error:
            faults.append(f"not a front proxy: {error}")
        if trust.client_ca_pem is None:
            return None
        try:
            subject = _subject(trust.client_ca_pem, credentials.certificates)
        except UntrustedError as error:
            faults.append(f"not a client of this cluster: {error}")
            return None
        return User(subject.common_name, subject.organizations) if subject.common_name else None

    async def _by_token(self, credentials: RequestCredentials, faults: list[str]) -> User | None:
        scheme, _, token = credentials.headers.get("Authorization", "").strip().partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not token or self._tokens is None:
            return None
        try:
            found = await self._tokens.review(token)
        except GpuscaleError as error:
            _LOG.warning("can't have a bearer token reviewed: %s", error)
            faults.append("the bearer token can't be reviewed now")
            return None
        if found is None:
            faults.append("the bearer token is not good")
        return found


def _proxied(trusted: RequestHeaders, credentials: RequestCredentials) -> User | None:
    """Return the user that a front proxy names in its headers; None without a name."""
    _front_proxy(trusted, credentials.certificates)
    headers = credentials.headers
    name = next((text for text in _values(headers, trusted.username_headers) if text), "")
    if not name:
        return None
    uid = next((text for text in _values(headers, trusted.uid_headers) if text), "")
    groups = tuple(_values(headers, trusted.group_headers))
    return User(name, groups, uid, _extra(headers, trusted.extra_prefixes))


def _front_proxy(trusted: RequestHeaders, certificates: Sequence[crypto.X509]) -> None:
    """Raise UntrustedError unless these certificates are a front proxy's."""
    subject = _subject(trusted.ca_pem, certificates)
    if trusted.allowed_names and subject.common_name not in trusted.allowed_names:
        raise UntrustedError(f"common name {subject.common_name!r} is not among the allowed")


def _extra(
    headers: CIMultiDictProxy[str], prefixes: Iterable[str]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    lowered = tuple(prefix.lower() for prefix in prefixes)
    for name, value in headers.items():
        if not name.lower().startswith(lowered):
            continue
        for prefix in lowered:
            if name.lower().startswith(prefix):
                key = unquote(name[len(prefix) :].lower())
                found.setdefault(key, []).append(value)
    return tuple(sorted((key, tuple(values)) for key, values in found.items()))


def _values(headers: CIMultiDictProxy[str], names: Iterable[str]) -> Iterable[str]:
    return (value for name in names for value in headers.getall(name, ()))


def _subject(ca_pem: str, presented: Sequence[crypto.X509]) -> Subject:
    try:
        bundle = _bundle(ca_pem)
    except ValueError as error:
        raise UntrustedError(f"the CA bundle can't be read: {error}") from error
    return bundle.subject(presented)


@lru_cache(maxsize=8)
def _bundle(pem: str) -> CaBundle:
    return CaBundle(pem)
