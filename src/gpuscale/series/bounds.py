"""The labels `le` and `quantile` in the one form that Prometheus 3 stores: "1" becomes "1.0".

Clients write bounds as they like, and a selector such as `{le="1.0"}` has to find them all.

Source: prometheus model/textparse (normalizeFloatsInLabelValues, formatOpenMetricsFloat), release 3.
"""

import re
from collections.abc import Mapping, Sequence

from gpuscale.exposition.lines import LineError, parse_value
from gpuscale.exposition.write import shortest

_TYPE = re.compile(r"#[ \t]+TYPE[ \t]+\S+[ \t]+(\w+)")
_LABELS = {"histogram": "le", "summary": "quantile"}


class BoundLabels:
    """Knows, line by line, of which type the metrics of a text are.

    Args:
        lines: of the text.
    """

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._seen = 0
        self._label: str | None = None

    def changes(self, labels: Mapping[str, str], number: int) -> dict[str, str]:
        """Return the bound among the labels of a series in its stored form; empty where nothing changes.

        Args:
            labels: of the series.
            number: the position of its line; it never falls from call to call.
        """
        if "le" not in labels and "quantile" not in labels:
            return {}
        while self._seen < number:
            line = self._lines[self._seen]
            if line[:1] == "#" and (match := _TYPE.match(line)) is not None:
                self._label = _LABELS.get(match[1])
            self._seen += 1
        if self._label is None or self._label not in labels:
            return {}
        bound = labels[self._label]
        stored = stored_bound(bound)
        return {} if stored == bound else {self._label: stored}


def stored_bound(text: str) -> str:
    """Return a number as Prometheus 3 stores it in a label; what is no number stays as it is."""
    try:
        value = float(parse_value(text))
    except (LineError, OverflowError):
        return text
    if value == 0:
        return "0.0"
    written = shortest(value)
    return written if set(written) & set(".eIN") else f"{written}.0"
