"""The Prometheus HTTP API over a store, as routes of an application.

Source: prometheus web/api/v1/api.go; the paths, parameters, shapes and error texts are Prometheus'.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from io import BytesIO
from itertools import chain

from aiohttp import web

from gpuscale.base.clock import Clock
from gpuscale.base.errors import BugError, QueryError
from gpuscale.series.labels import LabelSet, label_set
from gpuscale.series.matchers import Matcher
from gpuscale.series.promapi.body import (
    ApiError,
    bad_data,
    execution,
    list_body,
    plain_body,
    query_body,
    timed_out,
)
from gpuscale.series.promapi.endpoints import Answer, server_endpoints
from gpuscale.series.promapi.federate import content_type, federation_text
from gpuscale.series.promapi.metadata import metric_metadata, target_metadata
from gpuscale.series.promapi.parameters import Parameters, read_parameters, unescaped_name
from gpuscale.series.promapi.query_pool import QueryPool
from gpuscale.series.promapi.server_view import ServerView
from gpuscale.series.promapi.shapes import SAME_TIME, TimeAxis, limited, query_result
from gpuscale.series.promql.budget import Budget, Check, QueryTimeoutError
from gpuscale.series.promql.evaluate import (
    Samples,
    check_range,
    instant,
    range_covered,
    range_query,
)
from gpuscale.series.promql.parse import BadQueryError, Query, parse_query
from gpuscale.series.promql.rows import QueryRange
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Value, Vector, VectorSample

NOTHING_MORE = ServerView()
"""A server without rules and targets."""

_LARGE_BYTES = 1 << 20
_LISTED_BYTES = 300
"""Of a label set in a list, less what grows with its labels."""
_FEDERATED_BYTES = 400
"""Of a sample, and of its line in the text."""
_EMPTY_SELECTOR: tuple[Matcher, ...] = ()

_LOG = logging.getLogger(__name__)


def add_routes(
    app: web.Application,
    store: SeriesStore,
    clock: Clock,
    axis: TimeAxis = SAME_TIME,
    pool: QueryPool | None = None,
    *,
    shows_measured: bool = False,
    view: ServerView = NOTHING_MORE,
) -> None:
    """Add the API to `app`: queries, series, labels, rules, targets, status, health.

    Args:
        app: which is not yet running.
        store: what is asked.
        clock: the clock of the store.
        axis: from the callers' time to the store's.
        pool: which evaluates the queries; by default one of its own.
        shows_measured: whether instant vectors carry the times of the measurements, which is not what
            Prometheus does.
        view: the rules, targets and settings that are shown.
    """
    api = _Api(store, clock, axis, pool or QueryPool(), shows_measured=shows_measured)
    for path, answer in (
        ("/api/v1/query", api.query),
        ("/api/v1/query_range", api.query_range),
        ("/api/v1/series", api.series),
        ("/api/v1/labels", api.labels),
        ("/api/v1/label/{name}/values", api.label_values),
        ("/api/v1/metadata", api.metadata),
        ("/api/v1/targets/metadata", api.target_metadata),
        *server_endpoints(store, clock, axis, view),
    ):
        handler = _json_handler(answer)
        app.router.add_get(path, handler)
        app.router.add_post(path, handler)
    app.router.add_get("/federate", api.federate)
    app.router.add_route("*", "/api/v1/{tail:.*}", _json_handler(_unserved))
    app.router.add_get("/-/healthy", _healthy)
    app.router.add_get("/-/ready", _ready)


class _Api:
    """The endpoints' handlers: from parameters to the response body."""

    def __init__(
        self,
        store: SeriesStore,
        clock: Clock,
        axis: TimeAxis,
        pool: QueryPool,
        *,
        shows_measured: bool,
    ) -> None:
        self._store = store
        self._clock = clock
        self._axis = axis
        self._pool = pool
        self._shows_measured = shows_measured

    async def query(self, parameters: Parameters, request: web.Request) -> bytes:
        asked_ms = parameters.time_ms("time", None)
        at_ms = self._clock.now_ms() if asked_ms is None else self._axis.to_store_ms(asked_ms)
        query, lookback_ms = parameters.query(), parameters.lookback_ms()

        def value(samples: Samples, check: Check) -> Value:
            return instant(samples, query, at_ms, lookback_ms=lookback_ms, check=check)

        return await self._evaluated(parameters, request, QueryRange(at_ms, at_ms, 0), value)

    async def query_range(self, parameters: Parameters, request: web.Request) -> bytes:
        start_ms = self._axis.to_store_ms(parameters.required_time_ms("start"))
        end_ms = self._axis.to_store_ms(parameters.required_time_ms("end"))
        step_ms = self._axis.step_to_store_ms(parameters.step_ms())
        query, lookback_ms = parameters.query(), parameters.lookback_ms()
        check_range(query.root, start_ms, end_ms, step_ms)

        def value(samples: Samples, check: Check) -> Value:
            times = start_ms, end_ms, step_ms
            return range_query(samples, query, *times, lookback_ms=lookback_ms, check=check)

        covered = range_covered(start_ms, end_ms, step_ms)
        return await self._evaluated(parameters, request, covered, value)

    async def _evaluated(
        self,
        parameters: Parameters,
        request: web.Request,
        covered: QueryRange,
        evaluate: Callable[[Samples, Check], Value],
    ) -> bytes:
        limit = parameters.limit()

        def answer(samples: Samples, check: Check) -> bytes:
            value = evaluate(samples, check)
            kept = value if limit is None else limited(value, limit)
            warnings = [] if kept is value else ["results truncated due to limit"]
            result = query_result(
                kept, covered.end_ms, self._axis, shows_measured=self._shows_measured
            )
            return query_body(*result, warnings, check)

        return await self._pool.evaluate(
            self._store,
            parameters.query(),
            covered,
            answer,
            timeout_s=parameters.timeout_s(),
            lookback_ms=parameters.lookback_ms(),
            is_wanted=lambda: request.transport is not None,
        )

    async def series(self, parameters: Parameters, _: web.Request) -> bytes:
        selectors = parameters.selectors()
        if not selectors:
            raise bad_data("no match[] parameter provided")
        limit, times = parameters.limit(), self._times(parameters)
        found: list[Mapping[str, str]] = []
        for selector in selectors:
            found += self._store.series(selector, *times)
            await asyncio.sleep(0)

        def answer(check: Check) -> bytes:
            budget = Budget.of(check)
            by_key = {label_set(labels).key: labels for labels in found}
            budget.hold(sum(_LISTED_BYTES + 16 * len(key) for key in by_key))
            ordered = sorted(by_key.values(), key=lambda labels: tuple(chain(*labels.items())))
            return list_body(map(dict, ordered[:limit]), budget)

        return await self._pool.apart(answer)

    async def labels(self, parameters: Parameters, _: web.Request) -> bytes:
        return await self._names(parameters, self._store.label_names)

    async def label_values(self, parameters: Parameters, request: web.Request) -> bytes:
        return await self._names(
            parameters,
            partial(self._store.label_values, unescaped_name(request.match_info["name"])),
        )

    async def _names(self, parameters: Parameters, ask: Callable[..., list[str]]) -> bytes:
        limit, times = parameters.limit(), self._times(parameters)
        found: set[str] = set()
        for selector in parameters.selectors() or [_EMPTY_SELECTOR]:
            found.update(ask(selector, *times))
            await asyncio.sleep(0)
        return await self._pool.apart(lambda check: list_body(sorted(found)[:limit], check))

    async def federate(self, request: web.Request) -> web.Response:
        try:
            text = await self._federated(request)
        except (ApiError, QueryError) as error:
            status = error.status if isinstance(error, ApiError) else 400
            return web.Response(text=f"{error}\n", status=status)
        utf8_names = "allow-utf-8" in request.headers.get("Accept", "")
        kind = content_type(utf8_names=utf8_names)
        return web.Response(body=text, headers={"Content-Type": kind})

    async def _federated(self, request: web.Request) -> bytes:
        parameters = await read_parameters(request)
        at_ms = self._clock.now_ms()
        found: dict[LabelSet, VectorSample] = {}
        parameters.selectors()
        budget = Budget()
        for text in parameters.all("match[]"):
            query = parse_query(text)

            def newest(
                samples: Samples, check: Check, query: Query = query
            ) -> tuple[VectorSample, ...]:
                value = instant(samples, query, at_ms, check=check)
                return value.samples if isinstance(value, Vector) else ()

            covered = QueryRange(at_ms, at_ms, 0)
            for sample in await self._pool.evaluate(self._store, query, covered, newest):
                found[label_set(sample.labels)] = sample
                budget.hold(_FEDERATED_BYTES)
        utf8_names = "allow-utf-8" in request.headers.get("Accept", "")
        samples = [
            replace(each, measured_ms=self._axis.to_caller_ms(each.measured_ms))
            for each in found.values()
        ]
        return await self._pool.apart(
            lambda _: federation_text(samples, utf8_names=utf8_names).encode(errors="replace")
        )

    async def metadata(self, parameters: Parameters, _: web.Request) -> bytes:
        data = metric_metadata(self._store.metadata, parameters)
        return await self._pool.apart(lambda _: plain_body({"status": "success", "data": data}))

    async def target_metadata(self, parameters: Parameters, _: web.Request) -> bytes:
        data = target_metadata(self._store.metadata, parameters)
        return await self._pool.apart(lambda check: list_body(data, check))

    def _times(self, parameters: Parameters) -> tuple[int | None, int | None]:
        return self._time(parameters, "start"), self._time(parameters, "end")

    def _time(self, parameters: Parameters, name: str) -> int | None:
        asked_ms = parameters.time_ms(name, None)
        return None if asked_ms is None else self._axis.to_store_ms(asked_ms)


def _json_handler(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            body = await _checked(answer, await read_parameters(request), request)
        except ApiError as error:
            text = {"status": "error", "errorType": error.error_type, "error": error.text}
            return _json(plain_body(text), error.status)
        return _json(body, 200)

    return handle


async def _unserved(parameters: Parameters, request: web.Request) -> bytes:
    """Refuse an unknown path, or a method that a path does not have."""
    allowed: set[str] = set()
    for resource in request.app.router.resources():
        methods = {route.method for route in resource}
        if methods != {"*"}:
            allowed |= (await resource.resolve(request))[1]
    if allowed:
        raise ApiError(405, "bad_data", f"method {request.method} is not allowed here")
    raise ApiError(404, "not_found", f"{request.path} is not served here")


async def _checked(answer: Answer, parameters: Parameters, request: web.Request) -> bytes:
    try:
        return await answer(parameters, request)
    except BadQueryError as error:
        raise bad_data(str(error)) from None
    except QueryTimeoutError as error:
        raise timed_out(str(error)) from None
    except QueryError as error:
        raise execution(str(error)) from None
    except BugError as error:
        raise ApiError(500, "internal", str(error)) from error
    except (ApiError, web.HTTPException):
        raise
    except Exception as error:
        _LOG.exception("%s failed", request.path)
        raise ApiError(500, "internal", f"{type(error).__name__}: {error}") from error


def _json(body: bytes, status: int) -> web.Response:
    # A large body is sent in pieces, as sending it at once would copy it.
    content = BytesIO(body) if len(body) > _LARGE_BYTES else body
    return web.Response(
        body=content, status=status, content_type="application/json", charset="utf-8"
    )


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="gpuscale is healthy.\n")


async def _ready(request: web.Request) -> web.Response:
    return web.Response(text="gpuscale is ready.\n")
