"""Endpoints about the server and its rules, rather than about series."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from gpuscale.base.clock import Clock
from gpuscale.series.promapi import rules, status
from gpuscale.series.promapi.body import bad_data, plain_body
from gpuscale.series.promapi.parameters import Parameters
from gpuscale.series.promapi.server_view import ServerView
from gpuscale.series.promapi.shapes import TimeAxis
from gpuscale.series.promql.parse import prettified
from gpuscale.series.storage.store import SeriesStore

Answer = Callable[[Parameters, web.Request], Awaitable[bytes]]


def server_endpoints(
    store: SeriesStore, clock: Clock, axis: TimeAxis, view: ServerView
) -> tuple[tuple[str, Answer], ...]:
    """Return the handlers by path.

    Args:
        store: whose size is shown.
        clock: the clock of the store.
        axis: from the callers' time to the store's.
        view: the rules, targets and settings that are shown.
    """
    started_ms = clock.now_ms()

    async def tsdb(parameters: Parameters, _: web.Request) -> bytes:
        return _success(await status.head(store, parameters))

    return (
        ("/api/v1/rules", _answer(lambda asked: rules.rule_groups(view.ruler, asked, axis))),
        ("/api/v1/alerts", _answer(lambda _: rules.alerts(view.ruler, axis))),
        ("/api/v1/alertmanagers", _answer(lambda _: status.alertmanagers(view))),
        ("/api/v1/targets", _answer(lambda asked: status.targets(view, asked, axis))),
        ("/api/v1/query_exemplars", _answer(_no_exemplars)),
        ("/api/v1/format_query", _answer(lambda asked: prettified(asked.query()))),
        ("/api/v1/status/buildinfo", _answer(lambda _: status.build())),
        ("/api/v1/status/config", _answer(lambda _: status.config(view))),
        ("/api/v1/status/flags", _answer(lambda _: dict(view.flags))),
        (
            "/api/v1/status/runtimeinfo",
            _answer(lambda _: status.runtime(view, store, started_ms, axis)),
        ),
        ("/api/v1/status/tsdb", tsdb),
    )


def _answer(made: Callable[[Parameters], object]) -> Answer:
    async def answer(parameters: Parameters, _: web.Request) -> bytes:
        return _success(made(parameters))

    return answer


def _no_exemplars(parameters: Parameters) -> list[object]:
    """Return an empty list: exemplars are not stored."""
    start_ms, end_ms = parameters.time_ms("start", None), parameters.time_ms("end", None)
    if start_ms is not None and end_ms is not None and end_ms < start_ms:
        raise bad_data("end timestamp must not be before start timestamp")
    parameters.query()
    return []


def _success(data: object) -> bytes:
    return plain_body({"status": "success", "data": data})
