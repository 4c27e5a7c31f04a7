"""What is wrong with a whole exposition."""

from gpuscale.core.errors import ConfigError, Problem, UpstreamError
from gpuscale.exposition.reading.entries import LineError


class ExpositionError(ConfigError):
    """A text is not of its format; nothing of it was used."""


class NativeHistogramError(ExpositionError):
    """A text carries native histograms, which are not supported."""


class UnsupportedFormatError(UpstreamError):
    """A target answered in a format that is not read.

    Args:
        name: of the format.
        content_type: as the target sent it.
    """

    def __init__(self, name: str, content_type: str) -> None:
        super().__init__(
            f"answered in {name} ({content_type[:200]!r}), which is not supported; "
            "expected Prometheus text or OpenMetrics 1.0"
        )


def line_error(error: LineError, source: str, line: int) -> ExpositionError:
    """Return the error of a whole text from that of one of its lines."""
    problem = Problem(source, line, None, error.found, error.expected)
    return (NativeHistogramError if error.is_native_histogram else ExpositionError)(problem)
