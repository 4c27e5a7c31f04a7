"""A flag that a server lists is read by something: one that is only listed would change nothing."""

from pathlib import Path

import pytest

from gpuscale.agent.exporter.flags import FLAGS as AGENT
from gpuscale.server.metricsapi.settings import FLAGS as METRICS_API
from gpuscale.server.scaler.settings import FLAGS as SCALER

PACKAGE = Path(__file__).parents[2] / "src" / "gpuscale"


def readers(house):
    """Return the text of the modules that may read flags, the tables themselves left out."""
    paths = [
        path
        for part in (house, "cli")
        for path in sorted((PACKAGE / part).rglob("*.py"))
        if "flags" not in {path.stem, path.parent.name}
    ]
    return "\n".join(path.read_text() for path in paths)


@pytest.mark.parametrize(
    ("house", "flags"),
    [
        pytest.param("agent", AGENT, id="exporter"),
        pytest.param("server", METRICS_API, id="metrics-api"),
        pytest.param("server", SCALER, id="scaler"),
    ],
)
def test_each_flag_is_read_or_says_that_it_changes_nothing(house, flags) -> None:
    text = readers(house)
    unread = [each.name for each in flags.values() if f'"{each.name}"' not in text]
    assert [name for name in unread if not flags[name].no_effect] == []
