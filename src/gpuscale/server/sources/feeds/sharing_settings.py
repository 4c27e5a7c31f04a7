"""The settings for sharing: the other replicas, and how to reach them."""

import re
from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from gpuscale.base.errors import UsageError
from gpuscale.server.sources.http.access import SecretFile, SourceAccess, tls_to

PATH = "/peers/stream"
_LABEL = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?"
_SERVICE = re.compile(f"(?P<namespace>{_LABEL})/(?P<name>{_LABEL})")


MAX_PEERS = 64
"""Replicas that one of them connects to, itself included."""


@dataclass(frozen=True, slots=True)
class PeerService:
    """The Service whose EndpointSlices list the replicas."""

    namespace: str
    name: str

    @property
    def server_name(self) -> str:
        """Return the usual host name in the replicas' certificate."""
        return f"{self.name}.{self.namespace}.svc"


@dataclass(frozen=True, slots=True)
class PeerSettings:
    """The replicas that share the agents; each finds out by itself which address is its own."""

    urls: tuple[str, ...] = ()
    """Base addresses, such as https://metrics-0.metrics:6443; those of `service` come beside them."""
    service: PeerService | None = None
    ca_file: Path | None = None
    """CAs of their certificates; None for those that the system trusts."""
    token_file: Path | None = None
    server_name: str | None = None
    """The name that their certificates are checked against; None for the host of the address."""


def peer_url(text: str) -> str:
    """Return the base URL of a replica.

    Raises:
        UsageError: not an address.
    """
    wrong = f"found {text!r}, expected an address such as https://gpuscale-0:6443"
    try:
        url = URL(text)
        is_good = url.scheme in {"http", "https"} and bool(url.host) and url.path in {"", "/"}
    except ValueError:
        raise UsageError(wrong) from None
    if not is_good or url.user or url.query_string or url.fragment:
        raise UsageError(wrong)
    return str(url.origin())


def peer_service(text: str) -> PeerService:
    """Parse the name of a Service.

    Raises:
        UsageError: not a namespace and a name.
    """
    found = _SERVICE.fullmatch(text)
    if found is None:
        raise UsageError(f"found {text!r}, expected NAMESPACE/NAME of a Service")
    return PeerService(found["namespace"], found["name"])


def peer_access(settings: PeerSettings) -> SourceAccess:
    """Return TLS and credentials for reaching other replicas.

    Raises:
        UsageError: a certificate that can't be used.
    """
    token = settings.token_file
    return SourceAccess(
        token=None if token is None else SecretFile(token),
        tls=tls_to("other replicas", settings.ca_file, None),
    )
