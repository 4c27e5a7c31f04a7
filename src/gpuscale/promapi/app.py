"""The Prometheus HTTP API over a store, as routes of an application.

Source: prometheus web/api/v1/api.go; the paths, parameters, shapes and error texts are Prometheus'.
"""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from aiohttp import web

from gpuscale import __version__
from gpuscale.core.clock import Clock
from gpuscale.core.errors import QueryError
from gpuscale.promapi.axis import SAME_TIME, TimeAxis
from gpuscale.promapi.errors import ApiError, bad_data, execution
from gpuscale.promapi.parameters import Parameters, read_parameters
from gpuscale.promapi.shapes import query_data
from gpuscale.series.evaluate import instant, range_query
from gpuscale.series.matchers import Matcher
from gpuscale.series.parse import BadQueryError
from gpuscale.series.store import SeriesStore

API_LEVEL = "3.0.0"
"""The Prometheus release whose language is spoken here; clients choose features by it."""

_EMPTY_SELECTOR: tuple[Matcher, ...] = ()

Answer = Callable[[Parameters, web.Request], Any]


def add_routes(
    app: web.Application, store: SeriesStore, clock: Clock, axis: TimeAxis = SAME_TIME
) -> None:
    """Serve the API on `app`: queries, series, labels, build information, health.

    Args:
        app: which is not yet running.
        store: what is asked.
        clock: the store's.
        axis: from the callers' time to the store's.
    """
    api = _Api(store, clock, axis)
    for path, answer in (
        ("/api/v1/query", api.query),
        ("/api/v1/query_range", api.query_range),
        ("/api/v1/series", api.series),
        ("/api/v1/labels", api.labels),
        ("/api/v1/label/{name}/values", api.label_values),
        ("/api/v1/status/buildinfo", api.buildinfo),
        ("/api/v1/metadata", api.metadata),
    ):
        handler = _json_handler(answer)
        app.router.add_get(path, handler)
        app.router.add_post(path, handler)
    app.router.add_get("/-/healthy", _healthy)
    app.router.add_get("/-/ready", _ready)


class _Api:
    """One method per endpoint, from parameters to the answer's `data`."""

    def __init__(self, store: SeriesStore, clock: Clock, axis: TimeAxis) -> None:
        self._store = store
        self._clock = clock
        self._axis = axis

    def query(self, parameters: Parameters, _: web.Request) -> Any:  # noqa: ANN401 - JSON
        asked_ms = parameters.time_ms("time", None)
        at_ms = self._clock.now_ms() if asked_ms is None else self._axis.to_store_ms(asked_ms)
        value = instant(self._store, parameters.query(), at_ms)
        return query_data(value, at_ms, self._axis)

    def query_range(self, parameters: Parameters, _: web.Request) -> Any:  # noqa: ANN401
        start_ms = self._axis.to_store_ms(parameters.required_time_ms("start"))
        end_ms = self._axis.to_store_ms(parameters.required_time_ms("end"))
        step_ms = self._axis.step_to_store_ms(parameters.step_ms())
        value = range_query(self._store, parameters.query(), start_ms, end_ms, step_ms)
        return query_data(value, end_ms, self._axis)

    def series(self, parameters: Parameters, _: web.Request) -> Any:  # noqa: ANN401
        selectors = parameters.selectors()
        if not selectors:
            raise bad_data("no match[] parameter provided")
        start_ms, end_ms = self._times(parameters)
        found = {
            tuple(labels.items()): dict(labels)
            for selector in selectors
            for labels in self._store.series(selector, start_ms, end_ms)
        }
        return [found[key] for key in sorted(found)][: parameters.limit()]

    def labels(self, parameters: Parameters, _: web.Request) -> Any:  # noqa: ANN401
        times = self._times(parameters)
        selectors = parameters.selectors() or [_EMPTY_SELECTOR]
        return _union(
            [self._store.label_names(selector, *times) for selector in selectors], parameters
        )

    def label_values(self, parameters: Parameters, request: web.Request) -> Any:  # noqa: ANN401
        name = request.match_info["name"]
        times = self._times(parameters)
        selectors = parameters.selectors() or [_EMPTY_SELECTOR]
        return _union(
            [self._store.label_values(name, selector, *times) for selector in selectors],
            parameters,
        )

    def buildinfo(self, parameters: Parameters, _: web.Request) -> Any:  # noqa: ANN401
        return {
            "version": API_LEVEL,
            "revision": f"gpuscale {__version__}",
            "branch": "",
            "buildUser": "",
            "buildDate": "",
            "goVersion": "",
        }

    def metadata(self, parameters: Parameters, _: web.Request) -> Any:  # noqa: ANN401
        return {}

    def _times(self, parameters: Parameters) -> tuple[int | None, int | None]:
        return self._time(parameters, "start"), self._time(parameters, "end")

    def _time(self, parameters: Parameters, name: str) -> int | None:
        asked_ms = parameters.time_ms(name, None)
        return None if asked_ms is None else self._axis.to_store_ms(asked_ms)


def _union(answers: Sequence[Sequence[str]], parameters: Parameters) -> list[str]:
    return sorted(set().union(*answers))[: parameters.limit()]


def _json_handler(answer: Answer) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def handle(request: web.Request) -> web.Response:
        try:
            data = _checked(answer, await read_parameters(request), request)
        except ApiError as error:
            body = {"status": "error", "errorType": error.error_type, "error": error.text}
            return _json(body, error.status)
        return _json({"status": "success", "data": data}, 200)

    return handle


def _checked(answer: Answer, parameters: Parameters, request: web.Request) -> Any:  # noqa: ANN401
    try:
        return answer(parameters, request)
    except BadQueryError as error:
        raise bad_data(str(error)) from None
    except QueryError as error:
        raise execution(str(error)) from None


def _json(body: dict[str, Any], status: int) -> web.Response:
    text = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return web.Response(text=text, status=status, content_type="application/json")


async def _healthy(request: web.Request) -> web.Response:
    return web.Response(text="gpuscale is healthy.\n")


async def _ready(request: web.Request) -> web.Response:
    return web.Response(text="gpuscale is ready.\n")
