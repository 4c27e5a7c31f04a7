"""The custom and external metrics API, served over HTTP from any metric source."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi import settings
    from gpuscale.server.metricsapi.process import MetricsApiServer
    from gpuscale.server.metricsapi.provider import MetricsProvider
    from gpuscale.server.metricsapi.routes import MetricsApiRoutes
    from gpuscale.server.metricsapi.settings import (
        COMMON,
        FLAGS,
        GROUPS,
        MetricsApiSettings,
        read_settings,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "COMMON",
    "FLAGS",
    "GROUPS",
    "MetricsApiRoutes",
    "MetricsApiServer",
    "MetricsApiSettings",
    "MetricsProvider",
    "read_settings",
    "settings",
]
