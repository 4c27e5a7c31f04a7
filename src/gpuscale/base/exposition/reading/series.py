"""The syntax of a series: a metric's name, and label pairs in braces."""

import re
from dataclasses import dataclass

from gpuscale.base.exposition.reading.entries import LineError, shown

_NATIVE = re.compile(r"(?:count|sum|schema|zero_threshold|gcount|gsum):")
"""How a native histogram begins in OpenMetrics 2.0."""


@dataclass(frozen=True, slots=True)
class SeriesGrammar:
    """The parts of a series in one format, as patterns to match at an offset."""

    start: re.Pattern[str]
    """A bare name, and the brace that opens if one does."""
    pair: re.Pattern[str]
    """The name of a label, bare or quoted, its quoted value, and the comma after it."""
    quoted_metric: re.Pattern[str]
    """A metric's name between the braces, and the comma after it."""
    close: re.Pattern[str]
    """The brace that closes."""

    def read(self, text: str, begin: int) -> tuple[str, list[tuple[str, str]], int]:
        """Parse a series; return name and pairs as written, and the offset after them.

        Raises:
            LineError: what stands there is no series.
        """
        if text[begin] == "{":
            name, pairs, end = self._braces(text, begin + 1, None)
            if name is None:
                raise LineError(shown(text[begin:end]), 'a metric name, such as {"gpu.util"}')
            return name, pairs, end
        start = self.start.match(text, begin)
        if start is None:
            found = shown(rest_of_line(text, begin))
            raise LineError(found, "a metric name, such as gpu_utilization_ratio")
        if not start[2]:
            return start[1], [], start.end()
        _, pairs, end = self._braces(text, start.end(), start[1])
        return start[1], pairs, end

    def _braces(
        self, text: str, position: int, name: str | None
    ) -> tuple[str | None, list[tuple[str, str]], int]:
        pairs: list[tuple[str, str]] = []
        while True:
            if (match := self.pair.match(text, position)) is not None:
                pairs.append((match[1], match[2]))
            elif (match := self.close.match(text, position)) is not None:
                return name, pairs, match.end()
            elif name is None and (match := self.quoted_metric.match(text, position)) is not None:
                name = match[1]
            else:
                found = shown(rest_of_line(text, position))
                if not pairs and name is not None and _NATIVE.match(text, position):
                    raise native_histogram(found)
                raise LineError(found, 'labels such as {gpu="0",pod="a"}')
            position = match.end()


def native_histogram(found: str) -> LineError:
    """Return the error for a value that only native histograms have."""
    return LineError(
        found,
        "a number as the value; native histograms are not supported",
        is_native_histogram=True,
    )


def rest_of_line(text: str, position: int) -> str:
    """Return the text from a position to the end of its line."""
    end = text.find("\n", position)
    return text[position:] if end < 0 else text[position:end]
