"""The Prometheus HTTP API over a series store, for Grafana, promtool and anything else that speaks it."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.series.promapi.app import add_routes
    from gpuscale.series.promapi.body import query_body
    from gpuscale.series.promapi.query_pool import AT_ONCE, TIMEOUT_S, QueryPool
    from gpuscale.series.promapi.server_view import ServerView, TargetView
    from gpuscale.series.promapi.shapes import SAME_TIME, TimeAxis, query_result
else:
    __getattr__ = door(__name__)

__all__ = [
    "AT_ONCE",
    "SAME_TIME",
    "TIMEOUT_S",
    "QueryPool",
    "ServerView",
    "TargetView",
    "TimeAxis",
    "add_routes",
    "query_body",
    "query_result",
]
