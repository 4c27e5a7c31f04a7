"""The settings of a metrics API server, from its flags."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.flags import FileText, Flag, FlagReader
from gpuscale.base.settings import (
    NUMBER,
    PATH,
    PATHS,
    PORT,
    REPEATED_ITEMS,
    SECONDS,
    SWITCH,
    TEXT,
    Reading,
    each,
    flags_of,
    groups_of,
    made,
    one_of,
    part,
    read,
    reader_of,
)
from gpuscale.server.metricsapi.backend_settings import (
    COMMON_OF_VALUES,
    BackendSettings,
    read_backend,
)
from gpuscale.server.metricsapi.idle_first_settings import IdleFirst, idle_first_of
from gpuscale.server.metricsapi.trigger_settings import HeldPlace, held_place
from gpuscale.server.panels import (
    AUDIT,
    AUTHENTICATION,
    AUTHORIZATION,
    CLUSTER,
    FEDERATION,
    METRICS,
    SERVING,
    SETTINGS_FILE,
    STREAMS,
    WITHOUT_EFFECT,
)
from gpuscale.server.sources.feeds.settings import FeedSettings

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits
    from gpuscale.server.metricsapi.federation.settings import MemberSettings
    from gpuscale.server.sources.feeds.sharing_settings import PeerSettings

_TLS_1_3_SUITES = "TLS_AES_", "TLS_CHACHA20_POLY1305_SHA256"
_LEAST_DAYS, _MOST_DAYS = 7, 3650


@dataclass(frozen=True, slots=True)
class NamedPair:
    """A certificate and key with the host names they serve, from a flag."""

    certificate: Path
    key: Path
    names: tuple[str, ...]
    """Empty for those of the certificate."""


@dataclass(frozen=True, slots=True)
class SecretSettings:
    """The Secret that holds the replicas' shared certificate."""

    namespace: str
    name: str
    api_services: tuple[str, ...]
    """Names of the APIServices whose `caBundle` follows."""
    days: int
    """Life of a certificate."""


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


def _named_pair(text: str) -> NamedPair:
    """Parse `CERT,KEY` or `CERT,KEY:NAME,NAME`."""
    files, colon, listed = text.partition(":")
    paths = [path.strip() for path in files.split(",")]
    names = tuple(name.strip() for name in listed.split(",")) if colon else ()
    if len(paths) != 2 or not all(paths) or not all(names):
        raise ValueError(f"found {text!r}, expected CERT,KEY or CERT,KEY:NAME,*.DOMAIN")
    return NamedPair(Path(paths[0]), Path(paths[1]), names)


def _ciphers(flags: FlagReader, name: str) -> tuple[str, ...]:
    """Return OpenSSL's names of cipher suites given by Go's names; TLS 1.3's are always on, as in Go."""
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


def _connections(flags: FlagReader) -> "ConnectionLimits":
    from gpuscale.server.metricsapi.connections.lobby import ConnectionLimits

    return ConnectionLimits(
        total=max(1, flags.number("max-connections")),
        per_address=max(1, flags.number("max-connections-per-address")),
    )


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """The listening address and the certificate."""

    host: str = SERVING.option(TEXT, "bind-address", "Address to listen on.", "0.0.0.0")  # noqa: S104 - as upstream
    secure_port: int = SERVING.option(PORT, "secure-port", "Port of HTTPS; 0 serves none.", "6443")
    insecure_loopback_port: int = SERVING.option(
        PORT,
        "insecure-loopback-port",
        "Port of plain HTTP on 127.0.0.1, for any process on this machine; 0 serves none.",
        "0",
        is_ours=True,
    )
    certificate: tuple[Path, Path] | None = SERVING.pair(
        "tls-cert-file",
        "Serving certificate, with intermediates; renewed files are used.",
        "tls-private-key-file",
        "Key of the serving certificate.",
    )
    """None for those in the folder."""
    certificate_folder: Path = SERVING.option(
        Reading("text", lambda flags, name: Path(flags.text(name))),
        "cert-dir",
        "Folder with apiserver.crt and apiserver.key; made there, with a CA, where they are missing.",
        "apiserver.local.config/certificates",
    )
    ca_bundle_file: Path | None = SERVING.option(
        PATH, "ca-bundle-file", "File to write the CA to, when it is made here.", is_ours=True
    )
    secret: SecretSettings | None = made(
        _secret,
        SERVING.flag(
            "tls-secret",
            "NAMESPACE/NAME of a Secret: replicas share the certificate in it, fill it and renew it in time.",
            is_ours=True,
        ),
        SERVING.flag(
            "tls-secret-apiservices",
            "APIServices of this Service whose caBundle follows the CAs in the Secret.",
            "list",
            repeats=True,
            is_ours=True,
        ),
        SERVING.flag(
            "tls-secret-days",
            "Life of a certificate in the Secret; it is renewed when two thirds of it have passed.",
            "int",
            default="90",
            is_ours=True,
        ),
        usual=lambda: None,
    )
    """None: the certificate is not in a Secret."""
    service_name: str = SERVING.option(
        TEXT,
        "service-name",
        "Service in front of the server, for the names of a certificate that is made here.",
        "gpuscale-metrics-api",
        is_ours=True,
    )
    service_namespace: str = SERVING.option(
        TEXT,
        "service-namespace",
        "Namespace of that Service; the pod's own if empty.",
        is_ours=True,
    )
    tls_min_version: str = SERVING.option(
        one_of("VersionTLS12", "VersionTLS13", ""),
        "tls-min-version",
        "VersionTLS12 or VersionTLS13.",
        "VersionTLS12",
    )
    ciphers: tuple[str, ...] = SERVING.option(
        Reading("list", _ciphers, repeats=True),
        "tls-cipher-suites",
        "Suites up to TLS 1.2, by Go's names; OpenSSL's choice if empty.",
    )
    """OpenSSL's names."""
    named_certificates: tuple[NamedPair, ...] = SERVING.option(
        each(_named_pair),
        "tls-sni-cert-key",
        "CERT,KEY or CERT,KEY:NAME,*.DOMAIN: a pair for single names, those of the certificate if none "
        "are given; renewed files are used.",
    )
    shutdown_delay_s: float = SERVING.option(
        SECONDS,
        "shutdown-delay-duration",
        "How long HTTPS is still served after SIGTERM, with /readyz failing; a second signal, "
        "or SIGINT, ends it at once.",
        "10s",
        is_ours=True,
    )
    limits: "ConnectionLimits" = made(
        _connections,
        SERVING.flag(
            "max-connections",
            "Connections over HTTPS, beside those of front proxies; beyond that, idle ones are closed.",
            "int",
            "2500",
            is_ours=True,
        ),
        SERVING.flag(
            "max-connections-per-address",
            "Of these, from one IP address.",
            "int",
            "1000",
            is_ours=True,
        ),
    )
    shares_port: bool = SERVING.option(
        SWITCH, "permit-port-sharing", "Listen with SO_REUSEPORT.", "false"
    )
    shares_address: bool = SERVING.option(
        SWITCH, "permit-address-sharing", "Listen with SO_REUSEADDR.", "false"
    )


def _or_the_listers(flags: FlagReader, name: str) -> Path | None:
    return flags.path(name) or flags.path("lister-kubeconfig")


def _header_names(flags: FlagReader, name: str) -> tuple[str, ...]:
    texts = flags.every(name)
    if flags.is_given(name) and not all(item.strip() for text in texts for item in text.split(",")):
        flags.fault(f"--{name}: found {flags.text(name)!r}, expected names of headers")
    return flags.items(name)


_HEADER_NAMES = Reading("list", _header_names, repeats=True)


@dataclass(frozen=True, slots=True)
class AuthSettings:
    """Which credentials are accepted, and how long reviews are cached."""

    authentication_kubeconfig: Path | None = made(
        lambda flags: _or_the_listers(flags, "authentication-kubeconfig"),
        AUTHENTICATION.flag(
            "authentication-kubeconfig",
            "Kubeconfig to have tokens reviewed with; that of --lister-kubeconfig if empty.",
        ),
        usual=lambda: None,
    )
    token_ttl_s: float = AUTHENTICATION.option(
        SECONDS,
        "authentication-token-webhook-cache-ttl",
        "How long a reviewed token is remembered.",
        "10s",
    )
    skips_lookup: bool = AUTHENTICATION.option(
        SWITCH,
        "authentication-skip-lookup",
        "Take no CAs from the cluster's ConfigMap, only those of the flags.",
        "false",
    )
    tolerates_lookup_failure: bool = AUTHENTICATION.option(
        SWITCH,
        "authentication-tolerate-lookup-failure",
        "Start without that ConfigMap; until it is there no client certificate is accepted.",
        "false",
    )
    client_ca_file: Path | None = AUTHENTICATION.option(
        PATH, "client-ca-file", "CAs of client certificates, instead of the cluster's."
    )
    proxy_ca_file: Path | None = AUTHENTICATION.option(
        PATH, "requestheader-client-ca-file", "CAs of front proxies, instead of the cluster's."
    )
    proxy_names: tuple[str, ...] = AUTHENTICATION.option(
        REPEATED_ITEMS,
        "requestheader-allowed-names",
        "Common names of front proxies; any if empty.",
    )
    username_headers: tuple[str, ...] = AUTHENTICATION.option(
        _HEADER_NAMES,
        "requestheader-username-headers",
        "Headers with the user's name.",
        "x-remote-user",
    )
    group_headers: tuple[str, ...] = AUTHENTICATION.option(
        _HEADER_NAMES,
        "requestheader-group-headers",
        "Headers with the user's groups.",
        "x-remote-group",
    )
    extra_prefixes: tuple[str, ...] = AUTHENTICATION.option(
        _HEADER_NAMES,
        "requestheader-extra-headers-prefix",
        "How headers with further facts begin.",
        "x-remote-extra-",
    )
    authorization_kubeconfig: Path | None = made(
        lambda flags: _or_the_listers(flags, "authorization-kubeconfig"),
        AUTHORIZATION.flag(
            "authorization-kubeconfig",
            "Kubeconfig to ask for permissions with; that of --lister-kubeconfig if empty.",
        ),
        usual=lambda: None,
    )
    allowed_ttl_s: float = AUTHORIZATION.option(
        SECONDS,
        "authorization-webhook-cache-authorized-ttl",
        "How long a permission is remembered.",
        "10s",
    )
    denied_ttl_s: float = AUTHORIZATION.option(
        SECONDS,
        "authorization-webhook-cache-unauthorized-ttl",
        "How long a refusal is remembered.",
        "10s",
    )
    always_allowed: tuple[str, ...] = AUTHORIZATION.option(
        REPEATED_ITEMS,
        "authorization-always-allow-paths",
        "Paths that need no permission; a * at the end matches any rest.",
        "/healthz,/readyz,/livez",
    )


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Where the audit log is written, and how much of it is kept."""

    path: str = AUDIT.option(
        TEXT,
        "audit-log-path",
        "File for one JSON line per request, as audit.k8s.io/v1 of the level Metadata; - is standard output.",
    )
    max_mb: int = AUDIT.option(
        NUMBER.unless_zero(100),
        "audit-log-maxsize",
        "Megabytes of that file before another one is begun; 0 is 100.",
        "0",
    )
    max_backups: int = AUDIT.option(
        NUMBER.unless_zero(10), "audit-log-maxbackup", "Old files to keep; 0 is 10.", "0"
    )
    """PATH.1 is the newest."""


def _audit(flags: FlagReader) -> AuditSettings | None:
    settings = read(AuditSettings, flags)
    return settings if settings.path else None


def _peers(flags: FlagReader) -> "PeerSettings | None":
    texts, service_text = flags.items("peers"), flags.text("peers-service")
    if flags.text("source") != "streams":
        return None
    if not texts and not service_text:
        for name in ("peers-ca-file", "peers-token-file", "peers-server-name"):
            if flags.text(name):
                flags.fault(
                    f"--{name}: found it alone, expected --peers or --peers-service beside it"
                )
        return None
    from gpuscale.server.sources.feeds.sharing_settings import (
        MAX_PEERS,
        PeerSettings,
        peer_service,
        peer_url,
    )

    if texts and service_text:
        flags.fault("--peers and --peers-service: found both, expected one")
    if len(texts) > MAX_PEERS:
        flags.fault(f"--peers: found {len(texts)} addresses, expected at most {MAX_PEERS}")
    urls = flags.each("peers", texts, peer_url)
    services = flags.each("peers-service", [service_text] if service_text else [], peer_service)
    service = services[0] if services else None
    token_file = flags.path("peers-token-file")
    if token_file is not None and any(url.startswith("http:") for url in urls):
        flags.fault("--peers: found http beside --peers-token-file, expected https")
    server_name = flags.text("peers-server-name") or (service and service.server_name)
    return PeerSettings(urls, service, flags.path("peers-ca-file"), token_file, server_name or None)


def _federation(flags: FlagReader) -> "tuple[MemberSettings, ...]":
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
    if members and not flags.port("secure-port"):
        flags.fault(
            "--federate: found it with --secure-port=0, expected HTTPS: the loopback port does not ask who "
            "its clients are, and passes nothing on"
        )
    together(members, flags.fault)
    return members


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsApiSettings(BackendSettings):
    """All settings of a metrics API server."""

    prints_preset: bool = METRICS.option(
        SWITCH, "print-preset", "Print these rules, and end.", "false", is_ours=True
    )
    triggers: tuple[Path, ...] = METRICS.option(
        PATHS,
        "triggers",
        "Trigger file, or folder with trigger files, whose triggers are served as external metrics; read "
        "again when they change. May be given several times.",
        is_ours=True,
    )
    held: HeldPlace = held_place()
    """Where the last decisions of triggers are kept."""
    hop_lag_interval_s: float = METRICS.option(
        SECONDS,
        "hop-lag-interval",
        "How often Prometheus is asked how late values come, with two queries per metric in use; 0 is never.",
        "30s",
        is_ours=True,
    )
    peers: "PeerSettings | None" = made(
        _peers,
        STREAMS.flag(
            "peers",
            "Addresses of all replicas that share the agents, as https://gpuscale-0:6443, separated by "
            "commas; one of them may be this replica's own.",
            "list",
        ),
        STREAMS.flag(
            "peers-service",
            "Service in front of the replicas that share the agents, NAMESPACE/NAME; its EndpointSlices list "
            "them, in place of --peers.",
        ),
        STREAMS.flag("peers-ca-file", "CAs of the replicas' certificates."),
        STREAMS.flag(
            "peers-token-file", "Bearer token for the other replicas; renewed tokens are used."
        ),
        STREAMS.flag(
            "peers-server-name",
            "Name that the replicas' certificates are checked against; if empty, the host of the address, or "
            "NAME.NAMESPACE.svc of --peers-service.",
        ),
        usual=lambda: None,
    )
    """The other replicas that share the agents; None where this one follows all of them."""
    serves_prometheus_api: bool = STREAMS.option(
        SWITCH,
        "serve-prometheus-api",
        "Serve the Prometheus HTTP API over the series, below /prometheus, where RBAC allows these paths.",
        "true",
    )
    federation: "tuple[MemberSettings, ...]" = made(
        _federation,
        FEDERATION.flag(
            "federate",
            "Another metrics API that answers what is not ours: NAME or NAME=TARGET, with options behind "
            "commas, such as keda,caFile=/etc/keda/ca.crt. May be given several times.",
            repeats=True,
        ),
        FEDERATION.flag("federation", "File with such metrics APIs, as `members`."),
        usual=tuple,
    )
    """Other metrics APIs that what is not ours is passed on to."""
    idle_first: tuple[IdleFirst, ...] = CLUSTER.option(
        each(idle_first_of),
        "idle-first",
        "NAMESPACE/DEPLOYMENT=METRIC: before a scale-in, the pods with the least of this metric get the "
        "lowest deletion costs. May be given several times.",
        is_ours=True,
    )
    """Deployments whose scale-ins take the pods with the least work."""
    serving: ServingSettings = part(ServingSettings)
    auth: AuthSettings = part(AuthSettings)
    audit: AuditSettings | None = made(_audit, *flags_of(AuditSettings))
    """None writes none."""


GROUPS: Mapping[str, tuple[Flag, ...]] = groups_of(
    MetricsApiSettings, FeedSettings, more=(SETTINGS_FILE, *WITHOUT_EFFECT)
)
"""All flags by the title of their panel: prometheus-adapter's, and ours."""
FLAGS: Mapping[str, Flag] = {flag.name: flag for flags in GROUPS.values() for flag in flags}
COMMON = frozenset(
    {
        *COMMON_OF_VALUES,
        "print-preset",
        "triggers",
        "rules-configmaps",
        "metrics-relist-interval",
        "scrape-interval",
        "store-directory",
        "remote-write-url",
        "federate",
        "secure-port",
        "insecure-loopback-port",
        "tls-cert-file",
        "tls-private-key-file",
        "cert-dir",
    }
)
"""Flags that most users need; `--help` shows these."""


def read_settings(
    given: Mapping[str, Sequence[str]], file: Mapping[str, FileText] | None = None
) -> MetricsApiSettings:
    """Return the settings from flags, and from the settings file that these name.

    Args:
        given: the texts of each flag that was given, by name without dashes.
        file: what a file says that was read already.

    Raises:
        UsageError: values that can't be, or flags that don't go together; all are reported, one per line.
        ConfigError: the file can't be read, or is not of its format.
    """
    flags = reader_of(FLAGS, given, file=file)
    settings = read_backend(MetricsApiSettings, flags)
    serving = settings.serving
    if not serving.secure_port and not serving.insecure_loopback_port:
        flags.fault(
            "--secure-port: found 0, expected a port, or --insecure-loopback-port beside it"
        )
    if settings.audit is not None and not serving.secure_port:
        flags.fault(
            "--audit-log-path: found it with --secure-port=0, expected HTTPS: "
            "the loopback port does not ask who its clients are"
        )
    flags.finish()
    if settings.feeds is not None:
        settings = replace(settings, feeds=replace(settings.feeds, peers=settings.peers))
    return settings
