"""A Prometheus, or a server with its HTTP API, as a metric source."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.sources.prometheus.client import PrometheusSettings, PrometheusSource
    from gpuscale.server.sources.prometheus.identity import login_of
    from gpuscale.server.sources.prometheus.ranges import columns, persistently
else:
    __getattr__ = door(__name__)

__all__ = ["PrometheusSettings", "PrometheusSource", "columns", "login_of", "persistently"]
