"""The collector process: it scrapes targets, holds their series, and answers PromQL queries."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.collector.metrics import store_families
    from gpuscale.server.collector.server import CollectorServer
else:
    __getattr__ = door(__name__)

__all__ = ["CollectorServer", "store_families"]
