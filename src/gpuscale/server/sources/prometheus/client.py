"""Metric values from a Prometheus over its HTTP API, or from anything that speaks it.

Source: Prometheus' HTTP API v1 (/api/v1/query, /api/v1/series); which status codes carry JSON:
prometheus-adapter v0.12.0 pkg/client (api.go). The answers hold the time of the evaluation, not that
of the samples behind it, so `measured_ms` of a row is when the query was evaluated. A collector's answers
hold the time of the measurement there.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Self
from urllib.parse import quote_plus, urlencode

import aiohttp
from msgspec import Raw
from yarl import URL

from gpuscale.base.errors import QueryError, UnavailableError, UpstreamError
from gpuscale.base.unreachable import reason_of
from gpuscale.series import Value
from gpuscale.server.sources.http.access import SecretFile, SourceAccess, TlsFiles
from gpuscale.server.sources.http.session import HttpSession
from gpuscale.server.sources.prometheus.answers import (
    MALFORMED,
    envelope,
    label_sets,
    names_of,
    value_of,
)

if TYPE_CHECKING:
    from gpuscale.server.sources.http.entra import EntraLogin

MAX_QUERY_CHARS = {"POST": 16_000, "GET": 7_000}
"""VictoriaMetrics takes 16 KiB of query by default, and many proxies 8 KiB of an address."""
_NAMES = "label/__name__/values"
_FORM_HEADERS = (("Content-Type", "application/x-www-form-urlencoded"),)
_JSON_STATUSES = {400, 422, 503}
_RETRY_ERRORS = {"timeout", "canceled", "unavailable"}
_MAX_QUERY_BYTES = 32 * 1024 * 1024
"""Of the answer to a query; 100 000 rows have about ten."""
_MAX_SERIES_BYTES = 128 * 1024 * 1024
"""Of the answer to a series query; 400 000 series have about this."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """How to reach a Prometheus."""

    url: str = field(repr=False)
    """Base address; a path in it is kept, a user and password in it become basic authentication."""
    verb: str = "POST"
    """POST, because a query that names many pods does not fit into an address; or GET."""
    headers: Sequence[tuple[str, str]] = field(default=(), repr=False)
    """Sent with every request; a name may come twice."""
    bearer_token_file: Path | None = None
    """Read again as it changes, because tokens of service accounts are renewed."""
    username: str | None = None
    """Of basic authentication."""
    password_file: Path | None = None
    """Read again as it changes."""
    timeout_s: float = 30.0
    """For a whole request."""
    max_response_bytes: int = _MAX_SERIES_BYTES
    """A larger answer is refused; a guard for the memory of this process."""
    max_query_chars: int | None = None
    """Characters of a query, or of the encoded one with GET; None is `MAX_QUERY_CHARS`."""
    unix_socket: Path | None = None
    """Where it listens, in place of the host of the address."""
    azure_login: "EntraLogin | None" = None
    """Who gets the token for it, where it is an Azure Monitor workspace."""
    name: str = ""
    """What messages call it; empty for Prometheus and its address."""

    def __post_init__(self) -> None:
        if self.verb not in {"GET", "POST"}:
            raise ValueError(f"found verb {self.verb!r}, expected GET or POST")
        if URL(self.url).scheme not in {"http", "https"}:
            raise ValueError(f"found {self.shown_url!r}, expected an http:// or https:// address")
        ways = (URL(self.url).user, self.username, self.bearer_token_file, self.azure_login)
        if sum(way is not None for way in ways) > 1:
            raise ValueError(
                "found more than one of a bearer token, a username, an identity and a user in the address, "
                "expected one way to show who asks"
            )

    @property
    def shown_url(self) -> str:
        """Return the address without user and password, for messages."""
        url = URL(self.url)
        return str(url.with_user(None) if url.user is not None else url)


class PrometheusSource:
    """A `MetricSource` over HTTP. Use it in `async with`, or `close` it."""

    def __init__(self, settings: PrometheusSettings, tls: TlsFiles | None = None) -> None:
        self.settings = settings
        base = URL(settings.url)
        self._urls = {
            endpoint: base.with_path(f"{base.path.rstrip('/')}/api/v1/{endpoint}").with_query(None)
            for endpoint in ("series", "query", "query_range", "labels", _NAMES)
        }
        self._http = HttpSession(
            settings.timeout_s,
            settings.max_response_bytes,
            _access(settings, tls),
            unix_socket=settings.unix_socket,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections that are kept open between requests."""
        await self._http.close()

    def takes(self, promql: str) -> bool:
        """Return whether a query is short enough to be sent."""
        settings = self.settings
        most = settings.max_query_chars or MAX_QUERY_CHARS[settings.verb]
        length = len(promql) if settings.verb == "POST" else len(quote_plus(promql))
        return length <= most

    async def series(self, selector: str, start_ms: int) -> Sequence[Mapping[str, str]]:
        """Return the label sets of the series with a sample since `start_ms`; see `MetricSource`."""
        parameters = {"match[]": selector, "start": _seconds(start_ms)}
        data = self._data(*await self._ask("series", parameters, _MAX_SERIES_BYTES))
        try:
            return await label_sets(data)
        except UpstreamError as error:
            raise UpstreamError(f"{self._who()} {error}") from error
        except MALFORMED as error:
            raise UpstreamError(
                f"{self._who()} answered /series with no list of label sets"
            ) from error

    async def names(self, selector: str, start_ms: int, *, of_metrics: bool) -> frozenset[str]:
        """Return names from the index, in which series stay for hours; see `NamingSource`."""
        endpoint = _NAMES if of_metrics else "labels"
        parameters = {"match[]": selector, "start": _seconds(start_ms)}
        data = self._data(*await self._ask(endpoint, parameters, _MAX_QUERY_BYTES))
        try:
            return names_of(data)
        except MALFORMED as error:
            raise UpstreamError(
                f"{self._who()} answered /{endpoint} with no list of names"
            ) from error

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to at `at_ms`; see `MetricSource`."""
        return await self._value("query", {"query": promql, "time": _seconds(at_ms)})

    async def query_range(self, promql: str, start_ms: int, end_ms: int, step_ms: int) -> Value:
        """Return what the query evaluates to at each step of a range: a matrix of as many points or fewer.

        Raises:
            QueryError, UpstreamError, UnavailableError: as `query`.
        """
        parameters = {
            "query": promql,
            "start": _seconds(start_ms),
            "end": _seconds(end_ms),
            "step": _seconds(step_ms),
        }
        return await self._value("query_range", parameters)

    async def _value(self, endpoint: str, parameters: Mapping[str, str]) -> Value:
        data = self._data(*await self._ask(endpoint, parameters, _MAX_QUERY_BYTES))
        try:
            return await value_of(data)
        except UpstreamError as error:
            raise UpstreamError(f"{self._who()} {error}") from error
        except MALFORMED as error:
            raise UpstreamError(f"{self._who()} answered /{endpoint} with no result") from error

    async def _ask(
        self, endpoint: str, parameters: Mapping[str, str], most_bytes: int
    ) -> tuple[int, bytes]:
        try:
            return await self._request(endpoint, parameters, most_bytes)
        except UnavailableError as error:
            raise UnavailableError(f"{self._who()}: {error}") from error
        except UpstreamError as error:
            raise UpstreamError(f"{self._who()}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnavailableError(f"{self._who()} does not answer: {reason_of(error)}") from error

    async def _request(
        self, endpoint: str, parameters: Mapping[str, str], most_bytes: int
    ) -> tuple[int, bytes]:
        most_bytes = min(most_bytes, self.settings.max_response_bytes)
        url = self._urls[endpoint]
        if self.settings.verb == "GET" or endpoint == _NAMES:  # it accepts no POST
            return await self._http.fetch("GET", url, most_bytes=most_bytes, params=parameters)
        # As bytes, as aiohttp takes as long to encode a form as for the rest of a request.
        form = urlencode(parameters).encode()
        return await self._http.fetch(
            "POST", url, most_bytes=most_bytes, data=form, headers=_FORM_HEADERS
        )

    def _data(self, status: int, body: bytes) -> Raw:
        if not 200 <= status < 300 and status not in _JSON_STATUSES:
            text = f"{self._who()}: bad_response: unknown response code {status}"
            raise UnavailableError(text) if status >= 500 else UpstreamError(text)
        answer = envelope(body)
        if answer is None:
            raise UpstreamError(f"{self._who()} answered {status} with no JSON")
        if answer.status == "success" and 200 <= status < 300:
            return answer.data
        if answer.status == "success":
            # In client_golang's words, as a proxy may answer for a Prometheus that is down.
            text = f"{self._who()}: bad_response: inconsistent body for response code {status}"
            raise UnavailableError(text) if status >= 500 else UpstreamError(text)
        text = f"{self._who()}: {answer.error_type}: {answer.error}"
        if answer.error_type == "bad_data":
            raise QueryError(text)
        raise (UnavailableError if answer.error_type in _RETRY_ERRORS else UpstreamError)(text)

    def _who(self) -> str:
        return self.settings.name or f"Prometheus at {self.settings.shown_url}"


def _access(settings: PrometheusSettings, tls: TlsFiles | None) -> SourceAccess:
    password, token = settings.password_file, None
    if settings.bearer_token_file is not None or settings.azure_login is not None:
        from gpuscale.server.sources.http.entra import token_of

        token = token_of(settings.bearer_token_file, settings.azure_login)
    return SourceAccess(
        settings.headers,
        token,
        settings.username,
        None if password is None else SecretFile(password),
        tls,
    )


def _seconds(time_ms: int) -> str:
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"
