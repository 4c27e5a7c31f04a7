"""The web configuration file of Prometheus' exporters: TLS and basic authentication.

Source: prometheus/exporter-toolkit v0.14, docs/web-configuration.md. Keys that are not supported here are
refused, as unknown keys are there: a lock that is silently left open is worse than an error.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpuscale.base.documents.documents import load_documents
from gpuscale.base.errors import ConfigError, Problem
from gpuscale.base.objects.fields import Fields

CLIENT_AUTH_TYPES: Mapping[str, ssl.VerifyMode] = {
    "": ssl.CERT_NONE,
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
"""What each client_auth_type asks of a client."""
TLS_VERSIONS: Mapping[str, ssl.TLSVersion] = {
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2y$")

_KEYS = frozenset({"tls_server_config", "basic_auth_users"})
_TLS_KEYS = frozenset(
    {"cert_file", "key_file", "client_ca_file", "client_auth_type", "min_version", "max_version"}
)
MAKE_HASH = "make one with: htpasswd -nBC 10 '' | tr -d ':'"
BCRYPT_LENGTH = 60
"""What follows is passed over, as Go's bcrypt does."""


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The server's certificate, and its demands on clients' certificates."""

    cert_file: Path
    key_file: Path
    client_ca_file: Path | None = None
    client_auth_type: str = ""
    min_version: str = "TLS12"
    max_version: str = "TLS13"

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the files whose change triggers a reload."""
        ca = () if self.client_ca_file is None else (self.client_ca_file,)
        return (self.cert_file, self.key_file, *ca)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """A web configuration; an empty one serves everyone over plain HTTP."""

    tls: TlsConfig | None = None
    users: Mapping[str, str] = field(default_factory=dict, repr=False)
    """User name to bcrypt hash; empty lets everyone in."""


def load_web_config(text: str, source: str, folder: Path = Path()) -> WebConfig:
    """Return the configuration that a file holds.

    Args:
        text: of the file.
        source: its name, for messages.
        folder: what relative paths in it start from.

    Raises:
        ConfigError: not of the format.
    """
    documents = load_documents(text, source)
    if len(documents) > 1:
        raise ConfigError(Problem(source, None, None, "several documents", "one"))
    if not documents:
        return WebConfig()
    top = Fields(documents[0], documents[0].data)
    _check_keys(top, _KEYS)
    tls = _tls(top, folder)
    users = _users(top)
    top.finish()
    return WebConfig(tls, users)


def _tls(top: Fields, folder: Path) -> TlsConfig | None:
    if "tls_server_config" not in top:
        return None
    fields = top.child("tls_server_config")
    _check_keys(fields, _TLS_KEYS)
    client_auth_type = fields.text("client_auth_type")
    _check_one_of(fields, "client_auth_type", client_auth_type, CLIENT_AUTH_TYPES)
    min_version = fields.text("min_version") or "TLS12"
    _check_one_of(fields, "min_version", min_version, TLS_VERSIONS)
    max_version = fields.text("max_version") or "TLS13"
    _check_one_of(fields, "max_version", max_version, TLS_VERSIONS)
    ca = fields.text("client_ca_file")
    if bool(ca) != (CLIENT_AUTH_TYPES.get(client_auth_type, ssl.CERT_NONE) != ssl.CERT_NONE):
        expected = "client_ca_file and a client_auth_type that verifies, both or neither"
        fields.note(("client_ca_file",), expected)
    return TlsConfig(
        folder / fields.text("cert_file", required=True),
        folder / fields.text("key_file", required=True),
        folder / ca if ca else None,
        client_auth_type,
        min_version,
        max_version,
    )


def _users(top: Fields) -> dict[str, str]:
    users = top.labels("basic_auth_users")
    for name, hashed in users.items():
        if not is_bcrypt_hash(hashed):
            # The value may be a plain-text password, so the message does not show it.
            top.note(("basic_auth_users", name), "a bcrypt hash", fix=MAKE_HASH)
    return {name: hashed[:BCRYPT_LENGTH] for name, hashed in users.items()}


def is_bcrypt_hash(text: str) -> bool:
    """Return whether a text begins with a bcrypt hash."""
    return text.startswith(BCRYPT_PREFIXES) and len(text) >= BCRYPT_LENGTH


def _check_keys(fields: Fields, known: frozenset[str]) -> None:
    for key in fields.data:
        if key not in known:
            expected = f"one of {', '.join(sorted(known))}"
            fields.note((key,), expected, found=key)


def _check_one_of(fields: Fields, key: str, found: str, known: Mapping[str, object]) -> None:
    if found not in known:
        fields.note((key,), f"one of {', '.join(name for name in known if name)}", found=found)
