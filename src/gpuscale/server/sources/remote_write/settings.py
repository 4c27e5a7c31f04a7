"""The settings of remote write.

Source: prometheus documentation, configuration (remote_write), and config/config.go for the defaults.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from yarl import URL

from gpuscale.base.errors import UsageError
from gpuscale.series.remote_write import RelabelRule
from gpuscale.server.sources.http.entra import EntraLogin

LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


@dataclass(frozen=True, slots=True)
class AzureMonitorMetrics:
    """How samples map to custom metrics of Azure Monitor."""

    namespace: str
    dimensions: tuple[str, ...]
    """Labels that are sent."""


@dataclass(frozen=True, slots=True)
class RemoteWriteEndpoint:
    """A receiver of samples, with its queue and relabeling settings."""

    url: str = field(repr=False)
    name: str = ""
    timeout_s: float = 30.0
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    username: str | None = None
    password_file: Path | None = None
    token_file: Path | None = None
    azure_login: EntraLogin | None = None
    """Who gets the token for it, where it is Azure's."""
    ca_file: Path | None = None
    client_files: tuple[Path, Path] | None = None
    server_name: str = ""
    verifies: bool = True
    """Whether its certificate is checked."""
    external_labels: tuple[tuple[str, str], ...] = ()
    rules: tuple[RelabelRule, ...] = ()
    requests: int = 4
    """How many are under way at a time."""
    max_samples: int = 2_000
    """Of one request."""
    interval_s: float = 5.0
    """From one look at what is new to the next."""
    min_backoff_s: float = 0.03
    max_backoff_s: float = 5.0
    retries_429: bool = True
    max_age_s: float = 0.0
    """Older samples are not sent; 0 is no limit."""
    azure_metrics: AzureMonitorMetrics | None = None
    """Set where samples go out as custom metrics of Azure Monitor, and not by remote write."""

    @property
    def drops_series(self) -> bool:
        """Return whether relabeling may drop some series."""
        return bool(self.rules) or self.azure_metrics is not None

    @property
    def shown_url(self) -> str:
        """Return the address without user and password, for metrics and messages."""
        return str(URL(self.url).with_user(None).with_query(None))


def external_label(text: str) -> tuple[str, str]:
    """Return the name and the value of `NAME=VALUE`.

    Raises:
        ValueError: it is not of that form.
    """
    name, _, value = text.partition("=")
    if not LABEL_NAME.fullmatch(name) or not value:
        raise ValueError(f"found {text!r}, expected NAME=VALUE")
    return name, value


def check_url(text: str) -> None:
    """Return a URL that can be written to, or raise.

    Raises:
        ValueError: it is none.
    """
    wrong = "expected an address such as http://prometheus:9090/api/v1/write"
    try:
        url = URL(text)
        is_good = url.scheme in {"http", "https"} and bool(url.host)
    except ValueError:
        is_good = False
    if not is_good:
        raise ValueError(f"found {_shown(text)!r}, {wrong}")


def endpoint_of_url(text: str) -> RemoteWriteEndpoint:
    """Return a receiver for a URL, with Prometheus' defaults.

    Raises:
        UsageError: not an address.
    """
    try:
        check_url(text)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return RemoteWriteEndpoint(text)


def _shown(text: str) -> str:
    """Return a URL without its password."""
    return re.sub(r"//[^/@]*@", "//", text)
