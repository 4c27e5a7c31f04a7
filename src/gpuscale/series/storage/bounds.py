"""The labels `le` and `quantile` in Prometheus 3's only form: "1" becomes "1.0".

Clients write bounds as they like, and a selector such as `{le="1.0"}` has to find them all.

Source: prometheus model/textparse (normalizeFloatsInLabelValues, formatOpenMetricsFloat), release 3.
"""

import re
from collections.abc import Mapping

from gpuscale.base.exposition.reading.entries import LineError, parse_value
from gpuscale.base.exposition.write import shortest

BOUND_LABELS = {"histogram": "le", "summary": "quantile"}
"""By metric type, the label that holds a bound."""

_BETWEEN_DIGITS = re.compile(r"(?<=[0-9a-fA-FxX])_(?=[0-9a-fA-F])")
_HEXADECIMAL = re.compile(r"[+-]?0[xX][0-9a-fA-F]*\.?[0-9a-fA-F]*[pP][+-]?[0-9]+")


def with_stored_bound(labels: Mapping[str, str], label: str | None) -> Mapping[str, str]:
    """Return labels with the bound in its stored form; the same object if nothing changes.

    Args:
        labels: of a series.
        label: which of them holds a bound; None for none.
    """
    if label is None or label not in labels:
        return labels
    stored = stored_bound(labels[label])
    return labels if stored == labels[label] else {**labels, label: stored}


def stored_bound(text: str) -> str:
    """Return a number in Prometheus 3's label form; other text is unchanged."""
    try:
        # Unlike a sample's value, a label may hold any number that Go accepts.
        digits = _BETWEEN_DIGITS.sub("", text) if "_" in text else text
        is_hexadecimal = _HEXADECIMAL.fullmatch(digits) is not None
        value = float.fromhex(digits) if is_hexadecimal else float(parse_value(digits))
    except (LineError, OverflowError, ValueError):
        return text
    if value == 0:
        return "0.0"
    written = shortest(value)
    return written if set(written) & set(".eIN") else f"{written}.0"
