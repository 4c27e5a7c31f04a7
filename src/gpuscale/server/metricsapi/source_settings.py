"""The settings of the connection to Prometheus."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import NUMBER, PATH, SECONDS, TEXT, Reading, made, one_of
from gpuscale.server.panels import PROMETHEUS

if TYPE_CHECKING:
    from gpuscale.server.sources.http.entra import EntraLogin


def _in_cluster(flags: FlagReader) -> bool:
    in_cluster = flags.boolean("prometheus-auth-incluster")
    if in_cluster and flags.text("prometheus-auth-config"):
        flags.fault(
            "--prometheus-auth-incluster and --prometheus-auth-config: found both, expected one"
        )
    return in_cluster and not flags.text("prometheus-ca-file")


def _kubeconfig(flags: FlagReader) -> Path | None:
    has_cas = bool(flags.text("prometheus-ca-file"))
    return None if has_cas else flags.path("prometheus-auth-config")


def _azure_login(flags: FlagReader) -> "EntraLogin | None":
    def login(text: str) -> "EntraLogin | None":
        if not text:
            return None
        from gpuscale.server.sources.prometheus.identity import login_of

        return login_of(text, flags.text("prometheus-url"))

    return flags.converted("prometheus-identity", login, None)


def _headers(flags: FlagReader, name: str) -> tuple[tuple[str, str], ...]:
    headers = (text.partition("=") for text in flags.every(name))
    return tuple((header, value) for header, _, value in headers)


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """How to reach Prometheus."""

    url: str = PROMETHEUS.option(
        TEXT, "prometheus-url", "Address of Prometheus.", "https://localhost", is_secret=True
    )
    verb: str = PROMETHEUS.option(
        one_of("GET", "POST"),
        "prometheus-verb",
        "GET or POST; many pods don't fit into the address of a GET.",
        "POST",
    )
    in_cluster: bool = made(
        _in_cluster,
        PROMETHEUS.flag(
            "prometheus-auth-incluster",
            "Go to Prometheus with the pod's service account.",
            "bool",
            "false",
        ),
        usual=bool,
    )
    kubeconfig: Path | None = made(
        _kubeconfig,
        PROMETHEUS.flag("prometheus-auth-config", "Kubeconfig whose user goes to Prometheus."),
        usual=lambda: None,
    )
    ca_file: Path | None = PROMETHEUS.option(
        PATH, "prometheus-ca-file", "CAs that Prometheus' certificate is held against."
    )
    client_files: tuple[Path, Path] | None = PROMETHEUS.pair(
        "prometheus-client-tls-cert-file",
        "Client certificate to go to Prometheus with.",
        "prometheus-client-tls-key-file",
    )
    token_file: Path | None = PROMETHEUS.option(
        PATH,
        "prometheus-token-file",
        "Bearer token to go to Prometheus with; renewed tokens are used.",
    )
    azure_login: "EntraLogin | None" = made(
        _azure_login,
        PROMETHEUS.flag(
            "prometheus-identity",
            "Identity to go to an Azure Monitor workspace with: azure-workload or azure-managed, and "
            ":CLIENT_ID for another than the pod's own.",
            is_ours=True,
        ),
        usual=lambda: None,
    )
    headers: tuple[tuple[str, str], ...] = PROMETHEUS.option(
        Reading("text", _headers, repeats=True),
        "prometheus-header",
        "NAME=VALUE to send to Prometheus.",
        is_secret=True,
    )
    username: str | None = PROMETHEUS.option(
        TEXT.unless_zero(None),
        "prometheus-username",
        "User of basic authentication at Prometheus.",
        is_ours=True,
    )
    password_file: Path | None = PROMETHEUS.option(
        PATH,
        "prometheus-password-file",
        "Password of that user; renewed passwords are used.",
        is_ours=True,
    )
    timeout_s: float = PROMETHEUS.option(
        SECONDS.or_default(),
        "prometheus-timeout",
        "How long Prometheus may take for an answer.",
        "30s",
        is_ours=True,
    )
    max_query_chars: int | None = PROMETHEUS.option(
        NUMBER.unless_zero(None),
        "prometheus-max-query-length",
        "Characters of a query, with GET of the encoded one; more objects are asked for in parts. "
        "0 is 16000, with GET 7000.",
        "0",
        is_ours=True,
    )
