"""Prometheus rules evaluated in a server: rule files that are reloaded, a schedule, metrics."""

from typing import TYPE_CHECKING

from gpuscale.base.doors import door

if TYPE_CHECKING:
    from gpuscale.server.sources.ruler.files import PrometheusRuleFiles
    from gpuscale.server.sources.ruler.report import ruler_families
    from gpuscale.server.sources.ruler.ruler import Ruler
    from gpuscale.server.sources.ruler.settings import alerts_url
else:
    __getattr__ = door(__name__)

__all__ = ["PrometheusRuleFiles", "Ruler", "alerts_url", "ruler_families"]
