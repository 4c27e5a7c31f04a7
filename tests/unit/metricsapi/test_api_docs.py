# mypy: disable-error-code="arg-type"
"""The page about the server holds what the code holds."""

from pathlib import Path

from gpuscale.base.clock import ManualClock, Origin
from gpuscale.server.collector.keeping_metrics import keeping_families
from gpuscale.server.collector.metrics import feed_families
from gpuscale.server.metricsapi.collector.feed_metrics import collector_families, value_families
from gpuscale.server.metricsapi.collector.process import CollectorProcess
from gpuscale.server.metricsapi.connections.counted_log import CountedLog
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.rulebook.rule_file import RuleState
from gpuscale.server.metricsapi.security.audit import AuditLog, audit_families
from gpuscale.server.metricsapi.settings import AuditSettings
from gpuscale.server.metricsapi.telemetry.connections import LoopLag, connection_families
from gpuscale.server.metricsapi.telemetry.own_metrics import (
    ServerMetrics,
    cache_family,
    discovery_families,
    object_families,
    rule_families,
)
from gpuscale.server.rules.config import AdapterConfig
from gpuscale.server.sources.feeds.collector import FeedCollector
from gpuscale.server.sources.feeds.messages import CollectorSettings
from gpuscale.server.sources.feeds.settings import FeedSettings
from gpuscale.server.sources.saving.settings import SavingSettings

DOCS = Path(__file__).parents[3] / "docs"
OWN_METRICS = (DOCS / "operating.md").read_text()


def _keeping(path):
    feeds = FeedCollector(FeedSettings(saving=SavingSettings(path)), ManualClock())
    feeds.saver.state.saved_ms = 0
    return feeds


def test_the_page_names_the_servers_own_metrics(tmp_path: Path) -> None:
    provider = MetricsProvider(AdapterConfig(), None, None, ManualClock())
    families = (
        *ServerMetrics(ManualClock()).families(),
        *discovery_families(provider),
        *rule_families(RuleState(0), {}),
        cache_family({}),
        *object_families({}),
        *connection_families({}, CountedLog("malformed request")),
        *LoopLag().families(),
        *audit_families(AuditLog(AuditSettings("-"))),
        *value_families(provider, {}),
        *collector_families(CollectorProcess(CollectorSettings(FeedSettings(), Origin(0, 0.0)))),
        *feed_families(FeedCollector(FeedSettings(), ManualClock())),
        *keeping_families(_keeping(tmp_path)),
    )
    names = {family.name.removeprefix("gpuscale_metrics_api_") for family in families}
    untold = {"build_info", "config_last_reload_success_timestamp_seconds"}
    assert {name for name in names if f"`{name}`" not in OWN_METRICS} == untold
