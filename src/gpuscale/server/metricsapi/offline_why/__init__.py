"""`?why` without a running metrics API: the same page, computed from rule files and a source."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.metricsapi.offline_why.asking import (
        Document,
        ask_cluster,
        ask_own,
        ask_server,
    )
    from gpuscale.server.metricsapi.offline_why.target import why_path
else:
    __getattr__ = door(__name__)

__all__ = ["Document", "ask_cluster", "ask_own", "ask_server", "why_path"]
