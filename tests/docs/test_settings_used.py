"""A setting is used by something: one that is only read would change nothing."""

import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from gpuscale.agent.attribution.settings import AttributionSettings
from gpuscale.agent.exporter.settings import ExporterSettings
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
    ("house", "kind"),
    [
        ("agent", ExporterSettings),
        ("agent", AttributionSettings),
        *(
            ("server", kind)
            for kind in (MetricsApiSettings, ScalerSettings, FeedSettings, AuditSettings)
        ),
    ],
    ids=lambda each: getattr(each, "__name__", each),
)
def test_each_field_is_used(house: str, kind) -> None:
    paths = [
        path
        for path in sorted((PACKAGE / house).rglob("*.py"))
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
