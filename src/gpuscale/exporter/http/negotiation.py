"""What a scraper wants: which text format, and whether compressed.

Source: RFC 9110, section 12.5 (Accept, Accept-Encoding); Prometheus scrape/scrape.go (what it sends).
"""

from collections.abc import Iterator

_MAX_HEADER_CHARS = 4096
_OPENMETRICS = "application/openmetrics-text"
_OPENMETRICS_VERSIONS = ("", "1.0.0", "0.0.1")
_PLAIN = ("text/plain", "text/*", "*/*")


def prefers_openmetrics(accept: str) -> bool:
    """Return whether an Accept header asks for OpenMetrics rather than for the older text."""
    openmetrics, plain = 0.0, 0.0
    for name, parameters in _items(accept):
        quality = _quality(parameters)
        if name == _OPENMETRICS and parameters.get("version", "") in _OPENMETRICS_VERSIONS:
            openmetrics = max(openmetrics, quality)
        elif name in _PLAIN:
            plain = max(plain, quality)
    return openmetrics > 0 and openmetrics >= plain


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether an Accept-Encoding header allows gzip."""
    for name, parameters in _items(accept_encoding):
        if name in ("gzip", "*"):
            return _quality(parameters) > 0
    return False


def _items(header: str) -> Iterator[tuple[str, dict[str, str]]]:
    for item in header[:_MAX_HEADER_CHARS].lower().split(","):
        name, *parameters = (part.strip() for part in item.split(";"))
        pairs = (part.partition("=") for part in parameters)
        yield name, {key.strip(): value.strip().strip('"') for key, _, value in pairs}


def _quality(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 0.0
