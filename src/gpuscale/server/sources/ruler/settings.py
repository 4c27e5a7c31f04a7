"""The settings of Prometheus rules: files, and how often they are evaluated."""

from dataclasses import dataclass
from pathlib import Path

from yarl import URL

from gpuscale.base.errors import UsageError
from gpuscale.base.flags import FlagReader
from gpuscale.base.settings import MILLISECONDS, PATH, TEXT, made, part
from gpuscale.server.panels import STREAMS


def alerts_url(text: str) -> str:
    """Return the URL for posting alerts to an Alertmanager such as `http://alertmanager:9093`.

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


def _alertmanagers(flags: FlagReader) -> tuple[str, ...]:
    urls = flags.items("alertmanager")
    if urls and not flags.every("prometheus-rules"):
        flags.fault(
            "--alertmanager: found it alone, expected --prometheus-rules beside it, whose alerts are sent"
        )
    flags.each("alertmanager", urls, alerts_url)
    return urls


@dataclass(frozen=True, slots=True)
class AlertmanagerSettings:
    """The Alertmanagers, and the access to them."""

    urls: tuple[str, ...] = made(
        _alertmanagers,
        STREAMS.flag(
            "alertmanager",
            "Address of an Alertmanager, such as http://alertmanager:9093, that alerts of Prometheus rules "
            "are sent to. Several are separated by commas, or given each by a flag.",
            repeats=True,
        ),
        usual=tuple,
    )
    username: str | None = STREAMS.option(
        TEXT.unless_zero(None),
        "alertmanager-username",
        "User of basic authentication at the Alertmanagers.",
    )
    password_file: Path | None = STREAMS.option(
        PATH, "alertmanager-password-file", "Password of that user; renewed passwords are used."
    )
    token_file: Path | None = STREAMS.option(
        PATH,
        "alertmanager-token-file",
        "Bearer token for the Alertmanagers; renewed tokens are used.",
    )
    ca_file: Path | None = STREAMS.option(
        PATH, "alertmanager-ca-file", "CAs of the Alertmanagers' certificates."
    )
    client_files: tuple[Path, Path] | None = STREAMS.pair(
        "alertmanager-client-tls-cert-file",
        "Client certificate to go to the Alertmanagers with.",
        "alertmanager-client-tls-key-file",
    )


def _paths(flags: FlagReader) -> tuple[Path, ...]:
    paths = tuple(Path(text) for text in flags.every("prometheus-rules"))
    if Path() in paths:
        flags.fault("--prometheus-rules: found nothing, expected a rule file or a folder")
    if paths and flags.text("source") != "streams":
        flags.fault(
            "--prometheus-rules: found it beside --source=prometheus, which evaluates its own rules; "
            "expected --source=streams"
        )
    return paths


@dataclass(frozen=True, slots=True)
class RulerSettings:
    """All settings of Prometheus rules."""

    paths: tuple[Path, ...] = made(
        _paths,
        STREAMS.flag(
            "prometheus-rules",
            "Prometheus rule file with recording and alerting rules, or folder with such files; read again "
            "when they change. May be given several times.",
            repeats=True,
        ),
        usual=tuple,
    )
    interval_ms: int = STREAMS.option(
        MILLISECONDS.or_default(),
        "evaluation-interval",
        "How often groups of Prometheus rules without an interval are evaluated.",
        "15s",
    )
    alertmanagers: AlertmanagerSettings = part(AlertmanagerSettings)
    external_url: str = STREAMS.option(
        TEXT,
        "external-url",
        "Address of the Prometheus API as users see it, for links and $externalURL of alerts.",
    )
