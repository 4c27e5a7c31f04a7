"""The metrics APIs as they look on the wire: paths, selectors, bodies and statuses."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.wire import bodies
    from gpuscale.server.metricsapi.wire.aggregated import (
        MAX_ACCEPT,
        aggregated_version,
        by_preference,
        content_type,
    )
    from gpuscale.server.metricsapi.wire.bodies import resource_list, selector_body, timestamp
    from gpuscale.server.metricsapi.wire.field_selectors import FieldSelector, parse_field_selector
    from gpuscale.server.metricsapi.wire.openapi import document_hash, openapi_v2, openapi_v3_index
    from gpuscale.server.metricsapi.wire.paths import (
        CUSTOM_GROUP,
        CUSTOM_VERSIONS,
        EXTERNAL_GROUP,
        RESOURCE_GROUP,
        BadPathError,
        ExternalTarget,
        NoRouteError,
        split_path,
    )
    from gpuscale.server.metricsapi.wire.requests import (
        RequestError,
        is_true,
        is_watch,
        selector_of,
    )
    from gpuscale.server.metricsapi.wire.responses import (
        json_response,
        status_response,
        unless_known,
    )
    from gpuscale.server.metricsapi.wire.statuses import NO_ROUTE, TOO_MANY, Status, bad_request
else:
    __getattr__ = door(__name__)

__all__ = [
    "CUSTOM_GROUP",
    "CUSTOM_VERSIONS",
    "EXTERNAL_GROUP",
    "MAX_ACCEPT",
    "NO_ROUTE",
    "RESOURCE_GROUP",
    "TOO_MANY",
    "BadPathError",
    "ExternalTarget",
    "FieldSelector",
    "NoRouteError",
    "RequestError",
    "Status",
    "aggregated_version",
    "bad_request",
    "bodies",
    "by_preference",
    "content_type",
    "document_hash",
    "is_true",
    "is_watch",
    "json_response",
    "openapi_v2",
    "openapi_v3_index",
    "parse_field_selector",
    "resource_list",
    "selector_body",
    "selector_of",
    "split_path",
    "status_response",
    "timestamp",
    "unless_known",
]
