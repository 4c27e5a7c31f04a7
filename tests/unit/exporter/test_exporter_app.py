"""The parts of the HTTP server that need no network."""

import pytest

from gpuscale.agent.exporter.routes import accepts_gzip, page, prefers_openmetrics


@pytest.mark.parametrize(
    ("header", "accepts"),
    [
        ("", False),
        ("identity", False),
        ("gzip", True),
        ("deflate, gzip;q=0.5", True),
        ("GZIP", True),
        ("*", True),
        ("gzip;q=0", False),
        ("gzip; q=0.0, *", False),
        ("br, zstd", False),
    ],
)
def test_gzip_is_used_only_when_asked_for(header: str, accepts: bool) -> None:
    assert accepts_gzip(header) is accepts


PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


@pytest.mark.parametrize(
    ("header", "prefers"),
    [
        ("", False),
        ("*/*", False),
        ("text/plain", False),
        (PROMETHEUS_3, True),
        ("application/openmetrics-text", True),
        ("application/openmetrics-text; version=1.0.0; charset=utf-8", True),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=nonsense", False),
        ("text/plain;q=0.9,application/openmetrics-text;q=0.1", False),
    ],
)
def test_openmetrics_is_used_only_when_preferred(header, prefers: bool) -> None:
    assert prefers_openmetrics(header) is prefers


def test_page_escapes_the_hostname_and_links_to_all_paths() -> None:
    text = page("<n1>")
    assert "&lt;n1&gt;" in text
    assert "<n1>" not in text
    for path in ("/metrics", "/metrics/azure", "/stream", "/readyz?verbose"):
        assert f'href="{path}"' in text


def test_page_of_a_node_without_a_name_has_a_title() -> None:
    assert "<title>GPUs of this node</title>" in page("")
