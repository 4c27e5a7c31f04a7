"""Metric values from a Prometheus over its HTTP API, or from anything that speaks it.

Source: Prometheus' HTTP API v1 (/api/v1/query, /api/v1/series); which status codes carry JSON:
prometheus-adapter v0.12.0 pkg/client (api.go). The answers hold the time of the evaluation, not that
of the samples behind it, so `measured_ms` of a row is when the query was evaluated.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote_plus

import aiohttp
from yarl import URL

from gpuscale.core.errors import QueryError, UnavailableError, UpstreamError
from gpuscale.series.values import (
    Matrix,
    MatrixSeries,
    Scalar,
    StringValue,
    Value,
    Vector,
    VectorSample,
)
from gpuscale.sources.access import Access, SecretFile, TlsFiles
from gpuscale.sources.http import HttpSession
from gpuscale.sources.long_json import LONG_BYTES, read_array

MAX_QUERY_CHARS = {"POST": 16_000, "GET": 7_000}
"""VictoriaMetrics takes 16 KiB of query unless told otherwise, and many proxies 8 KiB of an address."""
_OK = 200
_JSON_STATUSES = {400, 422, 503}
_RETRY_ERRORS = {"timeout", "canceled", "unavailable"}
_MALFORMED = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)
"""What reading an answer of another shape raises."""


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
    max_response_bytes: int = 256 * 1024 * 1024
    """A larger answer is refused; a guard for the memory of this process."""
    max_query_chars: int | None = None
    """Characters of a query, or of the encoded one with GET; None is `MAX_QUERY_CHARS`."""

    def __post_init__(self) -> None:
        if self.verb not in {"GET", "POST"}:
            raise ValueError(f"found verb {self.verb!r}, expected GET or POST")
        if URL(self.url).scheme not in {"http", "https"}:
            raise ValueError(f"found {self.shown_url!r}, expected an http:// or https:// address")
        ways = (URL(self.url).user, self.username, self.bearer_token_file)
        if sum(way is not None for way in ways) > 1:
            raise ValueError(
                "found more than one of a bearer token, a username and a user in the address, "
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
        self._http = HttpSession(
            settings.timeout_s, settings.max_response_bytes, _access(settings, tls)
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
        status, body = await self._ask("series", {"match[]": selector, "start": _seconds(start_ms)})
        try:
            if status == _OK and len(body) >= LONG_BYTES:
                found = await read_array(body, "data", _label_set)
                if found is not None and _is_list(found.rest):
                    return found.items
            return [_label_set(labels) for labels in _list(self._data(status, body))]
        except _MALFORMED as error:
            raise UpstreamError(
                f"{self._who()} answered /series with no list of label sets"
            ) from error

    async def query(self, promql: str, at_ms: int) -> Value:
        """Return what the query evaluates to at `at_ms`; see `MetricSource`."""
        status, body = await self._ask("query", {"query": promql, "time": _seconds(at_ms)})
        try:
            if status == _OK and len(body) >= LONG_BYTES:
                found = await read_array(body, "result", _row)
                if found is not None and _is_vector(found.rest):
                    return Vector(tuple(found.items))
            return _value(self._data(status, body))
        except _MALFORMED as error:
            raise UpstreamError(f"{self._who()} answered /query with no result") from error

    async def _ask(self, endpoint: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        try:
            return await self._request(endpoint, parameters)
        except UnavailableError as error:
            raise UnavailableError(f"{self._who()}: {error}") from error
        except UpstreamError as error:
            raise UpstreamError(f"{self._who()}: {error}") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(f"{self._who()} does not answer: {reason}") from error

    async def _request(self, endpoint: str, parameters: Mapping[str, str]) -> tuple[int, bytes]:
        url = URL(self.settings.url)
        url = url.with_path(f"{url.path.rstrip('/')}/api/v1/{endpoint}").with_query(None)
        posts = self.settings.verb == "POST"
        return await self._http.fetch(
            self.settings.verb,
            url,
            params=None if posts else parameters,
            data=parameters if posts else None,
        )

    def _data(self, status: int, body: bytes) -> Any:  # noqa: ANN401 - JSON
        if not 200 <= status < 300 and status not in _JSON_STATUSES:
            text = f"{self._who()}: bad_response: unknown response code {status}"
            raise UnavailableError(text) if status >= 500 else UpstreamError(text)
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise UpstreamError(f"{self._who()} answered {status} with no JSON") from None
        if isinstance(answer, dict) and answer.get("status") == "success":
            return answer.get("data")
        raise self._error(answer if isinstance(answer, dict) else {})

    def _error(self, answer: Mapping[str, object]) -> Exception:
        kind = str(answer.get("errorType", "bad_response"))
        text = f"{self._who()}: {kind}: {answer.get('error', 'no reason given')}"
        if kind == "bad_data":
            return QueryError(text)
        return UnavailableError(text) if kind in _RETRY_ERRORS else UpstreamError(text)

    def _who(self) -> str:
        return f"Prometheus at {self.settings.shown_url}"


def _access(settings: PrometheusSettings, tls: TlsFiles | None) -> Access:
    token, password = settings.bearer_token_file, settings.password_file
    return Access(
        settings.headers,
        None if token is None else SecretFile(token),
        settings.username,
        None if password is None else SecretFile(password),
        tls,
    )


def _seconds(time_ms: int) -> str:
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"


def _list(data: object) -> list[Any]:
    if not isinstance(data, list):
        raise TypeError(data)
    return data


def _label_set(labels: object) -> Mapping[str, str]:
    if type(labels) is not dict:
        raise TypeError(labels)
    for value in labels.values():
        if type(value) is not str:
            raise TypeError(labels)
    return labels


def _value(data: Mapping[str, Any]) -> Value:
    kind, result = data["resultType"], _list(data["result"])
    if kind == "vector":
        return Vector(tuple(map(_row, result)))
    if kind == "scalar":
        return Scalar(float(result[1]))
    if kind == "string":
        return StringValue(str(result[1]))
    if kind == "matrix":
        return Matrix(tuple(_points(row) for row in result))
    raise ValueError(kind)


def _is_list(answer: object) -> bool:
    """Return whether an answer without its items is that of a list."""
    match answer:
        case {"status": "success", "data": []}:
            return True
    return False


def _is_vector(answer: object) -> bool:
    """Return whether an answer without its rows is that of a vector."""
    match answer:
        case {"status": "success", "data": {"resultType": "vector"}}:
            return True
    return False


def _row(row: Mapping[str, Any]) -> VectorSample:
    value = row["value"]
    return VectorSample(_label_set(row["metric"]), float(value[1]), _milliseconds(value[0]))


@lru_cache(maxsize=16)
def _milliseconds(seconds: float | str) -> int:
    """Return a time in milliseconds; all rows of an answer have the same."""
    return round(float(seconds) * 1000)


def _points(row: Mapping[str, Any]) -> MatrixSeries:
    points = tuple((round(float(t) * 1000), float(value)) for t, value in row.get("values", ()))
    return MatrixSeries(_label_set(row["metric"]), points)
