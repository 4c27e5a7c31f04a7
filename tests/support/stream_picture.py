"""A subscriber of a node agent's stream that keeps every series with its value."""

from collections.abc import Mapping

from gpuscale.base.exposition.stream import SeriesKey, StreamLine, StreamReader, Value


class StreamPicture(StreamReader[SeriesKey]):
    """What an agent has, as of the last line that was fed."""

    def __init__(self) -> None:
        super().__init__(_key)
        self.values: dict[SeriesKey, Value] = {}

    def feed(self, line: bytes) -> StreamLine[SeriesKey]:
        """Follow a line; errors as `StreamReader.feed`."""
        found = super().feed(line)
        for key in found.gone:
            del self.values[key]
        self.values.update(zip(found.touched, found.values, strict=True))
        return found


def _key(name: str, labels: Mapping[str, str]) -> SeriesKey:
    return SeriesKey(name, tuple(labels.items()))
