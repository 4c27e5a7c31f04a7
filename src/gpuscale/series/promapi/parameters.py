"""Parameters of a request, from the URL or a form, parsed as Prometheus does.

Source: prometheus web/api/v1/api.go (parseTime, parseDuration, parseLimitParam).
"""

import math
import re
from collections.abc import Sequence
from datetime import datetime
from urllib.parse import parse_qsl

from aiohttp import web

from gpuscale.base.errors import QueryError
from gpuscale.base.exposition.reading.entries import is_utf8
from gpuscale.base.golang.durations import parse_duration_ms
from gpuscale.series.matchers import Matcher
from gpuscale.series.promapi.body import ApiError, bad_data
from gpuscale.series.promql.evaluate import LOOKBACK_MS
from gpuscale.series.promql.parse import Query, parse_matchers, parse_query

MAX_BODY_BYTES = 1024 * 1024
MAX_FIELDS = 1000
_MAX_SECONDS = 1e13
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_ESCAPED_CHARACTER = re.compile(r"_(0?[0-9a-f]{0,5}|10[0-9a-f]{4})_", re.IGNORECASE)
_ESCAPED_NAME = re.compile(r"U__(?:[^_]|_(?:0?[0-9a-f]{0,5}|10[0-9a-f]{4})_)*", re.IGNORECASE)
_BOUNDARY = re.compile(r'boundary=("[^"]{1,70}"|[^\s;]{1,70})', re.IGNORECASE)
_PART_NAME = re.compile(rb'\r\ncontent-disposition:[^\r]*;\s*name="([^"\r]*)"', re.IGNORECASE)
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(\.\d{1,9})?([Zz]|[+-]\d\d:\d\d)", re.ASCII
)
_NO_DURATION = 'cannot parse "{}" to a valid duration'
_DURATION = re.compile(r"(?:\d+(?:ms|[smhdwy]))+", re.ASCII)


class Parameters:
    """A request's fields; those of the body come before those of the URL."""

    def __init__(self, fields: Sequence[tuple[str, str]]) -> None:
        self._fields = fields

    def all(self, name: str) -> list[str]:
        """Return all values of a field, in order."""
        return [value for key, value in self._fields if key == name]

    def text(self, name: str) -> str:
        """Return the first value of a field; empty if it is absent."""
        return next(iter(self.all(name)), "")

    def query(self) -> Query:
        """Return the query.

        Raises:
            ApiError: not PromQL, or not supported.
        """
        try:
            return parse_query(self.text("query"))
        except QueryError as error:
            raise bad_data(f'invalid parameter "query": {error}') from None

    def time_ms(self, name: str, default: int | None) -> int | None:
        """Return a point in time in milliseconds since the epoch.

        Raises:
            ApiError: neither seconds nor RFC 3339.
        """
        text = self.text(name)
        return parse_time_ms(text, name) if text else default

    def required_time_ms(self, name: str) -> int:
        """Return a point in time that has to be given.

        Raises:
            ApiError: not given, or neither seconds nor RFC 3339.
        """
        return parse_time_ms(self.text(name), name)

    def step_ms(self) -> int:
        """Return the step of a range query in milliseconds.

        Raises:
            ApiError: neither seconds nor a duration.
        """
        text = self.text("step")
        milliseconds = _duration_ms(text)
        if milliseconds is None:
            raise bad_data(f'invalid parameter "step": {_NO_DURATION.format(text)}')
        return milliseconds

    def timeout_s(self) -> float | None:
        """Return the timeout of the query in seconds; None if absent.

        Raises:
            ApiError: neither seconds nor a duration.
        """
        text = self.text("timeout")
        milliseconds = _duration_ms(text) if text else None
        if text and milliseconds is None:
            raise bad_data(f'invalid parameter "timeout": {_NO_DURATION.format(text)}')
        return None if milliseconds is None else milliseconds / 1000

    def lookback_ms(self) -> int:
        """Return the lookback in milliseconds: how old a current sample may be.

        Raises:
            ApiError: neither seconds nor a duration.
        """
        text = self.text("lookback_delta")
        milliseconds = _duration_ms(text) if text else 0
        if milliseconds is None:
            raise bad_data(f"error parsing lookback delta duration: {_NO_DURATION.format(text)}")
        return milliseconds if milliseconds > 0 else LOOKBACK_MS

    def limit(self) -> int | None:
        """Return the limit on the number of results; None means no limit.

        Raises:
            ApiError: not a whole number of zero or more.
        """
        text = self.text("limit")
        if not text:
            return None
        if not re.fullmatch(r"\d{1,18}", text, re.ASCII):
            raise bad_data(f'invalid parameter "limit": cannot parse "{text}" to a limit')
        return int(text) or None

    def selectors(self) -> list[tuple[Matcher, ...]]:
        """Return the series selectors of all `match[]` fields.

        Raises:
            ApiError: one is not a selector.
        """
        try:
            return [parse_matchers(text) for text in self.all("match[]")]
        except QueryError as error:
            raise bad_data(f'invalid parameter "match[]": {error}') from None

    def selector(self, name: str) -> tuple[Matcher, ...] | None:
        """Return a field's series selector; None if absent.

        Raises:
            ApiError: it is not a selector.
        """
        text = self.text(name)
        if not text:
            return None
        try:
            return parse_matchers(text)
        except QueryError as error:
            raise bad_data(f'invalid parameter "{name}": {error}') from None


def parse_time_ms(text: str, name: str) -> int:
    """Return the milliseconds since the epoch of a time in seconds or in RFC 3339.

    Raises:
        ApiError: neither; the text is Prometheus'.
    """
    seconds = _number(text)
    if seconds is not None and abs(seconds) <= _MAX_SECONDS:
        return round(seconds * 1000)
    match = _RFC3339.fullmatch(text)
    try:
        if match is not None:
            fraction = (match[2] or ".0")[:7]
            moment = datetime.fromisoformat(f"{match[1]}{fraction:0<7}{match[3]}".upper())
            return math.floor(moment.timestamp() * 1000)
    except ValueError:
        pass
    raise bad_data(f'invalid parameter "{name}": cannot parse "{text}" to a valid timestamp')


def unescaped_name(name: str) -> str:
    """Return a label name from a path, with escapes such as `U__a_2e_b` decoded.

    Source: prometheus common/model/metric.go (UnescapeName, values).
    """
    if not _ESCAPED_NAME.fullmatch(name):
        return name
    meant = _ESCAPED_CHARACTER.sub(
        lambda match: chr(int(match[1], 16)) if match[1] else "_", name.removeprefix("U__")
    )
    return meant if is_utf8(meant) else name


async def read_parameters(request: web.Request) -> Parameters:
    """Return the parameters of a GET, or of a POST with a form.

    Raises:
        ApiError: the body is too large or no form.
    """
    fields = list(request.query.items())
    if request.method == "POST" and request.content_type == _FORM:
        fields = [*await _form(request), *fields]
    elif request.method == "POST" and request.content_type == _MULTIPART:
        # Go puts a multipart form's fields after those of the URL.
        fields += await _multipart_form(request)
    return Parameters(fields)


async def _form(request: web.Request) -> list[tuple[str, str]]:
    body = await _bounded_body(request)
    try:
        return parse_qsl(
            body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise bad_data(f"error parsing form values: {error}") from None


async def _multipart_form(request: web.Request) -> list[tuple[str, str]]:
    """Return the text fields of a multipart form, as `curl -F` sends it."""
    boundary = _BOUNDARY.search(request.headers["Content-Type"])
    if boundary is None:
        raise bad_data("error parsing form values: no multipart boundary param in Content-Type")
    body = await _bounded_body(request)
    mark = b"\r\n--" + boundary[1].strip('"').encode(errors="replace")
    _, *parts = (b"\r\n" + body).split(mark, MAX_FIELDS + 2)
    if not parts or not parts[-1].startswith(b"--"):
        raise bad_data("error parsing form values: multipart: NextPart: EOF")
    fields = []
    for part in parts[:-1]:
        head, _, content = part.partition(b"\r\n\r\n")
        name = _PART_NAME.search(head)
        if name is not None and b"filename=" not in head.lower():
            fields.append((name[1].decode(errors="replace"), content.decode(errors="replace")))
    return fields


async def _bounded_body(request: web.Request) -> bytes:
    body = bytearray()
    async for chunk in request.content.iter_chunked(64 * 1024):
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            text = f"request body is larger than {MAX_BODY_BYTES} bytes"
            raise ApiError(413, "bad_data", text)
    return bytes(body)


def _duration_ms(text: str) -> int | None:
    """Return a number of seconds or a duration in milliseconds; None for any other text."""
    seconds = _number(text)
    if seconds is not None and abs(seconds) <= _MAX_SECONDS:
        return math.floor(seconds * 1000)
    return parse_duration_ms(text) if _DURATION.fullmatch(text) else None


def _number(text: str) -> float | None:
    if not text.isascii() or "_" in text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
