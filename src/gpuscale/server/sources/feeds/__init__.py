"""Feeds of the series store without a Prometheus: streams of node agents, scrapes of other targets."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.sources.feeds.annotated_pods import exporters
    from gpuscale.server.sources.feeds.messages import (
        CollectorSettings,
        CollectorStatus,
        read_frame,
    )
    from gpuscale.server.sources.feeds.refusals import agent_fault
    from gpuscale.server.sources.feeds.scraper import SCRAPE_FAULTS, scrape_once
    from gpuscale.server.sources.feeds.selected_pods import MAX_CHOICES, pod_choice
else:
    __getattr__ = door(__name__)

__all__ = [
    "MAX_CHOICES",
    "SCRAPE_FAULTS",
    "CollectorSettings",
    "CollectorStatus",
    "agent_fault",
    "exporters",
    "pod_choice",
    "read_frame",
    "scrape_once",
]
