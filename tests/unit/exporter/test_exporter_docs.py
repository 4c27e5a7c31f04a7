"""The docs' table of paths is what the code says."""

from pathlib import Path

from gpuscale.agent.exporter.routes import AZURE, HEALTH, METRICS, READY, STREAM

PAGE = Path(__file__).parents[3] / "docs" / "node-agent.md"


def test_every_path_is_described() -> None:
    text = PAGE.read_text()
    for path in (METRICS, AZURE, STREAM, HEALTH, READY):
        assert f"| `{path}` |" in text
