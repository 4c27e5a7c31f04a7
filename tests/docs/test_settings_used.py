"""A setting is used by something: one that is only read would change nothing."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from gpuscale.agent.exporter.flags import FLAGS as AGENT
from gpuscale.server.metricsapi.settings import AuditSettings, MetricsApiSettings
from gpuscale.server.scaler.settings import ScalerSettings
from gpuscale.server.sources.feeds.settings import FeedSettings

PACKAGE = Path(__file__).parents[2] / "src" / "gpuscale"


def settings_of(kind):
    """Yield the dataclasses of settings in one, itself included."""
    yield kind
    for each in fields(kind):
        found = each.default_factory
        if isinstance(found, type) and is_dataclass(found):
            yield from settings_of(found)


@pytest.mark.parametrize(
    "kind",
    [MetricsApiSettings, ScalerSettings, FeedSettings, AuditSettings],
    ids=lambda kind: kind.__name__,
)
def test_each_field_is_used(kind) -> None:
    paths = [
        path
        for path in sorted((PACKAGE / "server").rglob("*.py"))
        if not path.stem.endswith("settings")
    ]
    paths += [*(PACKAGE / "cli" / "servers").glob("*.py")]
    text = "\n".join(path.read_text() for path in paths)
    unused = [
        f"{part.__name__}.{each.name}"
        for part in settings_of(kind)
        for each in fields(part)
        if not re.search(rf"\.{each.name}\b", text)
    ]
    assert [name for name in unused if name != "MetricsApiSettings.peers"] == []


def test_each_flag_of_the_node_agent_is_read_or_says_that_it_changes_nothing() -> None:
    paths = [*(PACKAGE / "agent").rglob("*.py"), *(PACKAGE / "cli").rglob("*.py")]
    text = "\n".join(path.read_text() for path in sorted(paths) if path.stem != "flags")
    unread = [each.name for each in AGENT.values() if f'"{each.name}"' not in text]
    assert [name for name in unread if not AGENT[name].no_effect] == []
