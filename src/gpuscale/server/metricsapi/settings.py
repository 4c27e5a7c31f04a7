"""The settings of a metrics API server, from its flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.flags import FlagReader
from gpuscale.server.metricsapi.backend_settings import BackendSettings, backend_settings
from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits
from gpuscale.server.metricsapi.flags import FLAGS
from gpuscale.server.metricsapi.trigger_settings import HeldPlace, held_place

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.federation.settings import MemberSettings

AUDIT_MB, AUDIT_BACKUPS = 100, 10
_TLS_1_3_SUITES = "TLS_AES_", "TLS_CHACHA20_POLY1305_SHA256"

_LEAST_DAYS, _MOST_DAYS = 7, 3650


@dataclass(frozen=True, slots=True)
class NamedPair:
    """Certificate and key for single host names."""

    certificate: Path
    key: Path
    names: tuple[str, ...]
    """Empty for those of the certificate."""


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """The Secret that replicas share their certificate by."""

    namespace: str
    name: str
    api_services: tuple[str, ...]
    """Names of the APIServices whose `caBundle` follows."""
    days: int
    """Life of a certificate."""


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """Where and with what certificate to listen."""

    host: str
    secure_port: int
    """0 for none."""
    insecure_loopback_port: int
    """0 for none."""
    certificate: tuple[Path, Path] | None
    """Certificate and key; None for those in the folder."""
    named_certificates: tuple[NamedPair, ...]
    secret: SecretSettings | None
    """None: the certificate is not in a Secret."""
    certificate_folder: Path
    ca_bundle_file: Path | None
    service_name: str
    service_namespace: str
    """Empty for the pod's own."""
    tls_min_version: str
    ciphers: tuple[str, ...]
    """OpenSSL's names."""
    shares_port: bool
    shares_address: bool
    shutdown_delay_s: float = 0.0
    """How long HTTPS is served after the order to stop."""
    limits: ConnectionLimits = field(default_factory=ConnectionLimits)
    """Of connections over HTTPS."""


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Which credentials to accept, and for how long."""

    authentication_kubeconfig: Path | None
    authorization_kubeconfig: Path | None
    token_ttl_s: float
    allowed_ttl_s: float
    denied_ttl_s: float
    skips_lookup: bool
    tolerates_lookup_failure: bool
    client_ca_file: Path | None
    proxy_ca_file: Path | None
    proxy_names: tuple[str, ...]
    username_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]
    always_allowed: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Where to write, and how much to keep."""

    path: str
    """`-` is standard output."""
    max_mb: int = AUDIT_MB
    """Of a file, before another one is begun."""
    max_backups: int = AUDIT_BACKUPS
    """Old files that are kept: PATH.1 is the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsApiSettings(BackendSettings):
    """Everything of one server."""

    hop_lag_interval_s: float
    """0 for never."""
    serving: ServingSettings
    auth: AuthSettings
    audit: AuditSettings | None = None
    """None writes none."""
    prints_preset: bool = False
    """Whether nothing is wanted but the preset's text."""
    serves_prometheus_api: bool = True
    """Whether the Prometheus HTTP API over a store without a Prometheus is served too."""
    triggers: tuple[Path, ...] = ()
    """Trigger files, and folders with them."""
    held: HeldPlace = field(default_factory=HeldPlace)
    """Where the last decisions of triggers are kept."""
    federation: "tuple[MemberSettings, ...]" = ()
    """Other metrics APIs that what is not ours is passed on to."""


def read_settings(given: Mapping[str, Sequence[str]]) -> MetricsApiSettings:
    """Return the settings of these flags.

    Args:
        given: the texts of each flag that was given, by name without dashes.

    Raises:
        UsageError: values that can't be, or flags that don't go together; all are reported, one per line.
    """
    flags = FlagReader(FLAGS, given)
    settings = _settings(flags)
    flags.finish()
    return settings


def _settings(flags: FlagReader) -> MetricsApiSettings:
    serving = _serving(flags)
    if not serving.secure_port and not serving.insecure_loopback_port:
        flags.fault(
            "--secure-port: found 0, expected a port, or --insecure-loopback-port beside it"
        )
    backend = backend_settings(flags)
    return MetricsApiSettings(
        **{each.name: getattr(backend, each.name) for each in fields(backend)},
        hop_lag_interval_s=flags.seconds("hop-lag-interval"),
        serving=serving,
        triggers=tuple(Path(path) for path in flags.every("triggers")),
        held=held_place(flags),
        federation=_federation(flags, serving),
        auth=_auth(flags),
        audit=_audit(flags),
        prints_preset=flags.boolean("print-preset"),
        serves_prometheus_api=flags.boolean("serve-prometheus-api"),
    )


def _federation(flags: FlagReader, serving: ServingSettings) -> "tuple[MemberSettings, ...]":
    path = flags.path("federation")
    if path is None and not flags.every("federate"):
        return ()
    from gpuscale.server.metricsapi.federation.settings import (
        member_of_flag,
        members_of_file,
        together,
    )

    members = flags.each("federate", flags.every("federate"), member_of_flag)
    if path is not None:
        members += members_of_file(path)
    if members and not serving.secure_port:
        flags.fault(
            "--federate: found it with --secure-port=0, expected HTTPS: the loopback port does not ask who "
            "its clients are, and passes nothing on"
        )
    together(members, flags.fault)
    return members


def _serving(flags: FlagReader) -> ServingSettings:
    return ServingSettings(
        host=flags.text("bind-address"),
        secure_port=flags.port("secure-port"),
        insecure_loopback_port=flags.port("insecure-loopback-port"),
        certificate=flags.pair("tls-cert-file", "tls-private-key-file"),
        named_certificates=flags.each(
            "tls-sni-cert-key", flags.every("tls-sni-cert-key"), _named_pair
        ),
        secret=_secret(flags),
        certificate_folder=Path(flags.text("cert-dir")),
        ca_bundle_file=flags.path("ca-bundle-file"),
        service_name=flags.text("service-name"),
        service_namespace=flags.text("service-namespace"),
        tls_min_version=flags.choice("tls-min-version", "VersionTLS12", "VersionTLS13", ""),
        ciphers=_ciphers(flags),
        shares_port=flags.boolean("permit-port-sharing"),
        shares_address=flags.boolean("permit-address-sharing"),
        shutdown_delay_s=flags.seconds("shutdown-delay-duration"),
        limits=ConnectionLimits(
            total=max(1, flags.number("max-connections")),
            per_address=max(1, flags.number("max-connections-per-address")),
        ),
    )


def _secret(flags: FlagReader) -> SecretSettings | None:
    api_services, days = flags.items("tls-secret-apiservices"), flags.number("tls-secret-days")
    if not (text := flags.text("tls-secret")):
        return None
    namespace, _, name = text.partition("/")
    if not namespace or not name or "/" in name:
        flags.fault(f"--tls-secret: found {text!r}, expected NAMESPACE/NAME")
    if flags.text("tls-cert-file"):
        flags.fault("--tls-secret: found it with --tls-cert-file, expected one of them")
    if not _LEAST_DAYS <= days <= _MOST_DAYS:
        flags.fault(
            f"--tls-secret-days: found {days}, expected {_LEAST_DAYS} to {_MOST_DAYS}: "
            "a cluster may be without its metrics API for some days"
        )
    return SecretSettings(namespace, name, api_services, days)


def _audit(flags: FlagReader) -> AuditSettings | None:
    if not (path := flags.text("audit-log-path")):
        return None
    if not flags.port("secure-port"):
        flags.fault(
            "--audit-log-path: found it with --secure-port=0, expected HTTPS: "
            "the loopback port does not ask who its clients are"
        )
    return AuditSettings(
        path,
        flags.number("audit-log-maxsize") or AUDIT_MB,
        flags.number("audit-log-maxbackup") or AUDIT_BACKUPS,
    )


def _named_pair(text: str) -> NamedPair:
    """Return the pair of `CERT,KEY` or `CERT,KEY:NAME,NAME`."""
    files, colon, listed = text.partition(":")
    paths = [path.strip() for path in files.split(",")]
    names = tuple(name.strip() for name in listed.split(",")) if colon else ()
    if len(paths) != 2 or not all(paths) or not all(names):
        raise ValueError(f"found {text!r}, expected CERT,KEY or CERT,KEY:NAME,*.DOMAIN")
    return NamedPair(Path(paths[0]), Path(paths[1]), names)


def _auth(flags: FlagReader) -> AuthSettings:
    lister = flags.path("lister-kubeconfig")
    return AuthSettings(
        authentication_kubeconfig=flags.path("authentication-kubeconfig") or lister,
        authorization_kubeconfig=flags.path("authorization-kubeconfig") or lister,
        token_ttl_s=flags.seconds("authentication-token-webhook-cache-ttl"),
        allowed_ttl_s=flags.seconds("authorization-webhook-cache-authorized-ttl"),
        denied_ttl_s=flags.seconds("authorization-webhook-cache-unauthorized-ttl"),
        skips_lookup=flags.boolean("authentication-skip-lookup"),
        tolerates_lookup_failure=flags.boolean("authentication-tolerate-lookup-failure"),
        client_ca_file=flags.path("client-ca-file"),
        proxy_ca_file=flags.path("requestheader-client-ca-file"),
        proxy_names=flags.items("requestheader-allowed-names"),
        username_headers=_header_names(flags, "requestheader-username-headers"),
        group_headers=_header_names(flags, "requestheader-group-headers"),
        extra_prefixes=_header_names(flags, "requestheader-extra-headers-prefix"),
        always_allowed=flags.items("authorization-always-allow-paths"),
    )


def _header_names(flags: FlagReader, name: str) -> tuple[str, ...]:
    texts = flags.every(name)
    if flags.is_given(name) and not all(item.strip() for text in texts for item in text.split(",")):
        flags.fault(f"--{name}: found {flags.text(name)!r}, expected names of headers")
    return flags.items(name)


def _ciphers(flags: FlagReader) -> tuple[str, ...]:
    """Return OpenSSL's names of suites that have Go's; those of TLS 1.3 are always on, as in Go."""
    name = "tls-cipher-suites"
    suites = [suite for suite in flags.items(name) if not suite.startswith(_TLS_1_3_SUITES)]
    return flags.each(name, suites, _openssl_name)


def _openssl_name(suite: str) -> str:
    """Return `ECDHE-RSA-AES128-GCM-SHA256` for `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`."""
    exchange, found, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not suite.startswith("TLS_") or not found:
        raise ValueError(
            f"found {suite!r}, expected names such as TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
        )
    cipher = cipher.replace("AES_128", "AES128").replace("AES_256", "AES256").replace("_CBC", "")
    cipher = cipher.removesuffix("_SHA256") if cipher.startswith("CHACHA20") else cipher
    prefix = "" if exchange == "RSA" else f"{exchange}_"
    return f"{prefix}{cipher}".replace("_", "-")
