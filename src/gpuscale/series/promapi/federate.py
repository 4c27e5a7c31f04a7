"""Federation: the newest samples of selected series as text, for another Prometheus to scrape.

Source: prometheus web/federate.go.
"""

import re
from collections.abc import Iterable

from gpuscale.base.exposition.write import escape_label_value, shortest
from gpuscale.series.labels import METRIC_NAME
from gpuscale.series.values import VectorSample

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_UNFIT = re.compile(r"[^a-zA-Z0-9_:]")


def content_type(*, utf8_names: bool) -> str:
    """Return the Content-Type of the text."""
    escaping = "allow-utf-8" if utf8_names else "underscores"
    return f"text/plain; version=0.0.4; charset=utf-8; escaping={escaping}"


def federation_text(samples: Iterable[VectorSample], *, utf8_names: bool) -> str:
    """Return samples with their times, sorted by name; a series without a name is left out.

    Args:
        samples: each series at most once; their times are those to write.
        utf8_names: whether the reader takes names beyond ASCII, in quotes; otherwise what is not a letter, a
            digit or an underscore becomes an underscore.
    """
    lines: list[str] = []
    last = ""
    for sample in sorted(samples, key=lambda each: each.labels.get(METRIC_NAME, "")):
        name = sample.labels.get(METRIC_NAME, "")
        if not name:
            continue
        is_plain = _NAME.fullmatch(name) is not None
        shown = name if is_plain or utf8_names else _escaped(name)
        quoted = f'"{escape_label_value(shown)}"' if utf8_names and not is_plain else ""
        if name != last:
            lines.append(f"# TYPE {quoted or shown} untyped\n")
            last = name
        pairs = [
            f'{_label_text(label, utf8_names=utf8_names)}="{escape_label_value(value)}"'
            for label, value in sample.labels.items()
            if label != METRIC_NAME
        ]
        if "instance" not in sample.labels:
            # So that the reader does not take its own target for the series' instance.
            pairs.append('instance=""')
        inside = ",".join(([quoted] if quoted else []) + pairs)
        value = shortest(sample.value)
        lines.append(f"{'' if quoted else shown}{{{inside}}} {value} {sample.measured_ms}\n")
    return "".join(lines)


def _label_text(label: str, *, utf8_names: bool) -> str:
    if _LABEL.fullmatch(label):
        return label
    return f'"{escape_label_value(label)}"' if utf8_names else _escaped(label)


def _escaped(name: str) -> str:
    """Return a name with invalid characters replaced by underscores."""
    escaped = _UNFIT.sub("_", name)
    return f"_{escaped[1:]}" if escaped[:1].isdigit() else escaped
