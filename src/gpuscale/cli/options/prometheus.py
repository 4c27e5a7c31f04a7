"""Options of commands that ask a Prometheus: past the API server, or about what it recorded."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuscale.base.errors import UsageError

if TYPE_CHECKING:
    from gpuscale.server.sources.http import SourceAccess
    from gpuscale.server.sources.prometheus import PrometheusSource

PrometheusUrl = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Past the API server, such as after kubectl port-forward."),
]
PrometheusTokenFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="With --prometheus-url: bearer token for it."),
]
PrometheusIdentity = Annotated[
    str | None,
    typer.Option(
        metavar="IDENTITY",
        help="With --prometheus-url: azure-workload or azure-managed, as gpuscale metrics-api has it.",
    ),
]

RecordedUrl = Annotated[
    str | None,
    typer.Option(
        "--prometheus-url",
        metavar="URL",
        help="That has kube-state-metrics and the GPUs' series.",
    ),
]
KeptHistory = Annotated[
    str | None,
    typer.Option(
        "--history",
        metavar="DIR",
        help="Instead of a Prometheus: what gpuscale history keep kept, in a folder or at an address "
        "such as s3://.",
    ),
]
RecordedTokenFile = Annotated[
    Path | None,
    typer.Option("--prometheus-token-file", metavar="FILE", help="Bearer token for it."),
]
RecordedCaFile = Annotated[
    Path | None,
    typer.Option(
        "--prometheus-ca-file",
        metavar="FILE",
        help="CAs that its certificate is checked against.",
    ),
]
RangeEnd = Annotated[
    str | None,
    typer.Option("--until", metavar="TIME", help="End of the range.", show_default="now"),
]


def check_url(option: str, url: str | None) -> None:
    """Check the text of an option that takes a URL.

    Raises:
        UsageError: it is none.
    """
    if url is not None and not url.startswith(("http://", "https://")):
        raise UsageError(f"{option}: found {url!r}, expected http://... or https://...")


def prometheus_access(
    url: str | None, token_file: Path | None, identity: str | None
) -> "SourceAccess | None":
    """Return what requests to a Prometheus carry; None where nothing was given.

    Raises:
        UsageError: the URL is none, or the options don't go together.
    """
    check_url("--prometheus-url", url)
    given = {"--prometheus-token-file": token_file, "--prometheus-identity": identity}
    found = [name for name, value in given.items() if value is not None]
    if not found:
        return None
    if url is None or len(found) > 1:
        other = "expected --prometheus-url beside it" if url is None else f"found {found[1]} too"
        raise UsageError(f"{found[0]}: {other}")
    from gpuscale.server.sources.http import SourceAccess, token_of
    from gpuscale.server.sources.prometheus import login_of

    try:
        login = None if identity is None else login_of(identity, url)
    except ValueError as error:
        raise UsageError(f"--prometheus-identity: {error}") from None
    return SourceAccess(token=token_of(token_file, login))


def recorded_or_kept(
    url: str | None, token_file: Path | None, ca_file: Path | None, history: str | None
) -> "PrometheusSource | None":
    """Return the Prometheus that is asked; None where a history is read instead.

    Raises:
        UsageError: both or neither are given, or the URL is none.
    """
    if (url is None) == (history is None):
        raise UsageError("--prometheus-url, --history: expected one of them")
    return None if url is None else recorded_by("--prometheus-url", url, token_file, ca_file)


def recorded_by(
    option: str, url: str, token_file: Path | None, ca_file: Path | None
) -> "PrometheusSource":
    """Return the Prometheus that recorded what is asked for.

    Raises:
        UsageError: the URL is none.
    """
    from gpuscale.server.sources.http import tls_to
    from gpuscale.server.sources.prometheus import PrometheusSettings, PrometheusSource

    try:
        settings = PrometheusSettings(url, bearer_token_file=token_file)
    except ValueError as error:
        raise UsageError(f"{option}: {error}") from None
    return PrometheusSource(settings, tls_to("Prometheus", ca_file, None))


def end_of_range_ms(until: str | None) -> int:
    """Return the end of a range by the text of --until; now where there is none.

    Raises:
        UsageError: it is no time.
    """
    from gpuscale.lab.sim.load import seconds_of_time

    if until is None:
        return int(time.time()) * 1000
    try:
        return round(seconds_of_time(until) * 1000)
    except ValueError as error:
        raise UsageError(f"--until: {error}") from None
