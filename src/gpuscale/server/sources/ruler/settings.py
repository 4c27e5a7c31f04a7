"""Which Prometheus rules are evaluated, and how often."""

from dataclasses import dataclass, field
from pathlib import Path

from yarl import URL

from gpuscale.base.errors import UsageError

INTERVAL_MS = 15_000
"""Of groups without an interval of their own."""


@dataclass(frozen=True, slots=True)
class AlertmanagerSettings:
    """Where alerts are sent, and how to be let in there."""

    urls: tuple[str, ...] = ()
    username: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    ca_file: Path | None = None
    """None for what the system trusts."""
    client_files: tuple[Path, Path] | None = None
    """Certificate and key."""


@dataclass(frozen=True, slots=True)
class RulerSettings:
    """Everything about Prometheus rules that a user decides."""

    paths: tuple[Path, ...] = ()
    """Rule files, and folders with rule files."""
    interval_ms: int = INTERVAL_MS
    """Of groups without an interval."""
    external_url: str = ""
    """Where users find this server, for links of alerts; empty where they don't."""
    alertmanagers: AlertmanagerSettings = field(default_factory=AlertmanagerSettings)


def alerts_url(text: str) -> str:
    """Return where alerts are posted to, of an Alertmanager's address such as `http://alertmanager:9093`.

    Raises:
        UsageError: not an address, or one with a password in it.
    """
    wrong = f"found {text!r}, expected an address such as http://alertmanager:9093"
    try:
        url = URL(text)
    except ValueError:
        raise UsageError(wrong) from None
    if url.scheme not in {"http", "https"} or not url.host or url.query_string or url.fragment:
        raise UsageError(wrong)
    if url.user is not None or url.password is not None:
        raise UsageError(f"found a user in {url.with_user(None)}, expected it in flags of its own")
    return str(url.with_path(f"{url.path.rstrip('/')}/api/v2/alerts"))
