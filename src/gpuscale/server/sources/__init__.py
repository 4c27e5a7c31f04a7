"""Metric sources, and the prometheus-adapter rules that turn a request into a query."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.sources.embedded import EmbeddedSource
    from gpuscale.server.sources.source import MetricSource
    from gpuscale.server.sources.usage import NodeUsage, PodContainersUsage, Usage
else:
    __getattr__ = door(__name__)

__all__ = ["EmbeddedSource", "MetricSource", "NodeUsage", "PodContainersUsage", "Usage"]
