"""Rules of prometheus-adapter: from series to metrics of objects, and from requests to queries; pure."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.rules.catalogue import (
        Catalogue,
        QueryFailure,
        SeriesAnswer,
        needed_metric_names,
    )
    from gpuscale.server.rules.combined import MAX_PARTS
    from gpuscale.server.rules.config import (
        AdapterConfig,
        AdapterRule,
        default_config,
        load_rules,
        preset_config,
        preset_text,
    )
    from gpuscale.server.rules.query import are_joined, custom_query, external_query
    from gpuscale.server.rules.resource_labels import NoLabelError
    from gpuscale.server.rules.resources import (
        KUBERNETES,
        NAMESPACES,
        PODS,
        ResourceType,
        UnknownResourceError,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "KUBERNETES",
    "MAX_PARTS",
    "NAMESPACES",
    "PODS",
    "AdapterConfig",
    "AdapterRule",
    "Catalogue",
    "NoLabelError",
    "QueryFailure",
    "ResourceType",
    "SeriesAnswer",
    "UnknownResourceError",
    "are_joined",
    "custom_query",
    "default_config",
    "external_query",
    "load_rules",
    "needed_metric_names",
    "preset_config",
    "preset_text",
]
