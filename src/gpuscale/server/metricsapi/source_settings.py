"""How a server reaches Prometheus, from its flags."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from gpuscale.base.flags import FlagReader

if TYPE_CHECKING:
    from gpuscale.server.sources.entra import EntraLogin


@dataclass(frozen=True, slots=True)
class SourceSettings:
    """How to reach Prometheus."""

    url: str = field(repr=False)
    verb: str = "POST"
    in_cluster: bool = False
    kubeconfig: Path | None = None
    ca_file: Path | None = None
    client_files: tuple[Path, Path] | None = None
    """Certificate and key."""
    token_file: Path | None = None
    azure_login: "EntraLogin | None" = None
    """Who gets the token, where it is an Azure Monitor workspace."""
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    username: str | None = None
    password_file: Path | None = None
    timeout_s: float = 30.0
    max_query_chars: int | None = None


def source_settings(flags: FlagReader) -> SourceSettings:
    """Return how Prometheus is reached by these flags; their faults are the reader's to raise."""
    in_cluster = flags.boolean("prometheus-auth-incluster")
    kubeconfig = flags.path("prometheus-auth-config")
    if in_cluster and kubeconfig is not None:
        flags.fault(
            "--prometheus-auth-incluster and --prometheus-auth-config: found both, expected one"
        )
    ca_file = flags.path("prometheus-ca-file")
    pair = flags.pair("prometheus-client-tls-cert-file", "prometheus-client-tls-key-file")
    headers = (text.partition("=") for text in flags.every("prometheus-header"))
    url = flags.text("prometheus-url")

    def identity(text: str) -> "EntraLogin | None":
        if not text:
            return None
        from gpuscale.server.sources.prometheus.identity import login_of

        return login_of(text, url)

    return SourceSettings(
        url=url,
        verb=flags.choice("prometheus-verb", "GET", "POST"),
        in_cluster=in_cluster and ca_file is None,
        kubeconfig=kubeconfig if ca_file is None else None,
        ca_file=ca_file,
        client_files=pair,
        token_file=flags.path("prometheus-token-file"),
        azure_login=flags.converted("prometheus-identity", identity, None),
        headers=tuple((name, value) for name, _, value in headers),
        username=flags.text("prometheus-username") or None,
        password_file=flags.path("prometheus-password-file"),
        timeout_s=flags.seconds("prometheus-timeout") or 30.0,
        max_query_chars=flags.number("prometheus-max-query-length") or None,
    )
