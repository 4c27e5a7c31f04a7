"""The formats of scrapes, and the Accept header that asks for them.

Source: prometheus scrape/scrape.go (acceptHeader), config (DefaultScrapeProtocols), model/textparse (New).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from gpuscale.base.errors import Problem
from gpuscale.base.exposition.reading import openmetrics, text
from gpuscale.base.exposition.reading.entries import (
    EndOfText,
    Entry,
    ExpositionError,
    LineError,
    MetaLine,
    SampleLine,
    UnsupportedFormatError,
    line_error,
    shown,
)

ACCEPT = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,"
    "application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,"
    "text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)
"""The Accept header of a scrape, which is Prometheus 3's by default: OpenMetrics first, names in UTF-8."""
TIMEOUT_HEADER = "X-Prometheus-Scrape-Timeout-Seconds"


@dataclass(frozen=True, slots=True)
class ExpositionFormat:
    """One format of expositions."""

    name: str
    read_entry: Callable[[str, int], tuple[Entry, int]]
    timestamp_ms: Callable[[str], int]
    ends_with_eof: bool
    """Whether a text has to end with `# EOF`, and may hold no empty line."""


PROMETHEUS_TEXT = ExpositionFormat(
    "Prometheus text", text.read_entry, text.timestamp_ms, ends_with_eof=False
)
OPENMETRICS = ExpositionFormat(
    "OpenMetrics", openmetrics.read_entry, openmetrics.timestamp_ms, ends_with_eof=True
)

_KEPT_CHARS = 512


def format_of(content_type: str) -> ExpositionFormat:
    """Return a response's format; Prometheus text if the Content-Type is missing or unknown.

    Raises:
        UnsupportedFormatError: one that has no text to read, or that carries native histograms.
    """
    media_type, *parameters = (part.strip() for part in content_type.lower().split(";"))
    if media_type == "application/vnd.google.protobuf":
        raise UnsupportedFormatError("protobuf", content_type)
    if media_type != "application/openmetrics-text":
        return PROMETHEUS_TEXT
    if any(part.replace('"', "").startswith("version=2") for part in parameters):
        raise UnsupportedFormatError("OpenMetrics 2.0", content_type)
    return OPENMETRICS


def line_entry(line: str, format_: ExpositionFormat) -> SampleLine | MetaLine | None:
    """Parse a line; None for an empty line or a comment.

    Raises:
        LineError: the line is not of the format, or not all of an entry.
    """
    entry, end = format_.read_entry(f"{line}\n", 0)
    if end != len(line) + 1 or isinstance(entry, EndOfText):
        raise LineError(shown(line), "one line")
    return entry


def meta_line(line: str, format_: ExpositionFormat) -> MetaLine | None:
    """Parse a line that starts with `#`; None for a comment.

    Most lines are in every scrape of every target of a kind, so they are remembered.

    Raises:
        LineError: the line is not of the format, or not all of an entry.
    """
    return (_kept_meta_line if len(line) <= _KEPT_CHARS else _read_meta_line)(line, format_)


def _read_meta_line(line: str, format_: ExpositionFormat) -> MetaLine | None:
    entry = line_entry(line, format_)
    return entry if isinstance(entry, MetaLine) else None


_kept_meta_line = lru_cache(maxsize=4096)(_read_meta_line)


def entries(
    exposition: str, format_: ExpositionFormat, source: str
) -> Iterator[tuple[int, SampleLine | MetaLine]]:
    """Yield a text's entries without comments, with line numbers.

    Raises:
        ExpositionError: an entry is not of the format.
    """
    if not exposition:
        return
    if not format_.ends_with_eof and not exposition.endswith("\n"):
        exposition += "\n"
    position, number, size = 0, 1, len(exposition)
    entry: Entry = None
    while position < size:
        try:
            entry, end = format_.read_entry(exposition, position)
        except LineError as error:
            raise line_error(error, source, number) from None
        if isinstance(entry, SampleLine | MetaLine):
            yield number, entry
        number += exposition.count("\n", position, end)
        position = end
    if format_.ends_with_eof and not isinstance(entry, EndOfText):
        problem = Problem(source, number, None, "the end of the text", "# EOF as the last line")
        raise ExpositionError(problem)
