"""The page about the server holds what the code holds."""

from pathlib import Path

import pytest

from gpuscale.core.clock import ManualClock
from gpuscale.metricsapi.feed_metrics import feed_families, value_families
from gpuscale.metricsapi.flags import FLAGS, GROUPS
from gpuscale.metricsapi.own_metrics import (
    ServerMetrics,
    cache_family,
    discovery_families,
    object_families,
    rule_families,
)
from gpuscale.metricsapi.provider import MetricsProvider
from gpuscale.metricsapi.rule_file import RuleState
from gpuscale.sources.feeds.collector import FeedCollector
from gpuscale.sources.feeds.settings import FeedSettings
from gpuscale.sources.rules import AdapterConfig

PAGE = (Path(__file__).parents[3] / "docs" / "metrics-api.md").read_text()


@pytest.mark.parametrize("flag", FLAGS.values(), ids=lambda flag: flag.name)
def test_every_flag_is_on_the_page_with_its_default(flag):
    ours = " *(ours)*" if flag.is_ours else ""
    default = f"`{flag.default}`" if flag.default else ""
    text = f"changes nothing: {flag.no_effect}" if flag.no_effect else flag.help
    assert f"| `--{flag.name}`{ours} | {default} | {text} |\n" in PAGE


def test_the_page_names_no_other_flag():
    rows = [line for line in PAGE.splitlines() if line.startswith("| `--") and " | " in line]
    flags = [line for line in rows if line.count("|") == 4]
    assert len(flags) == len(FLAGS)
    for group in GROUPS:
        assert f"### {group}\n" in PAGE


def test_the_page_names_the_servers_own_metrics():
    provider = MetricsProvider(AdapterConfig(), None, None, ManualClock())
    families = (
        *ServerMetrics(ManualClock()).families(),
        *discovery_families(provider),
        *rule_families(RuleState(0), {}),
        cache_family({}),
        *object_families({}),
        *value_families(provider),
        *feed_families(FeedCollector(FeedSettings(), ManualClock())),
    )
    names = {family.name.removeprefix("gpuscale_metrics_api_") for family in families}
    untold = {"build_info", "config_last_reload_success_timestamp_seconds"}
    assert {name for name in names if f"`{name}`" not in PAGE} == untold
