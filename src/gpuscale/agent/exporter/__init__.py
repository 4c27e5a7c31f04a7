"""The node agent: reads a node's GPUs at a fixed pace and serves them to Prometheus."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.agent.exporter import settings
    from gpuscale.agent.exporter.agent import NodeAgent
    from gpuscale.agent.exporter.process import ExporterService, counters_text
    from gpuscale.agent.exporter.readers import make_reader
    from gpuscale.agent.exporter.settings import (
        COMMON,
        FLAGS,
        GROUPS,
        ExporterSettings,
        read_settings,
    )
else:
    __getattr__ = door(__name__)

__all__ = [
    "COMMON",
    "FLAGS",
    "GROUPS",
    "ExporterService",
    "ExporterSettings",
    "NodeAgent",
    "counters_text",
    "make_reader",
    "read_settings",
    "settings",
]
