"""The Prometheus text format 0.0.4 to metric families.

This is the general reader: it keeps types and help, and the order of families and labels. Timestamps are
accepted and left out, since a family is a reading of now. A scrape into a store has a quicker way of its own.
"""

from dataclasses import dataclass, field

from gpuscale.base.errors import Problem
from gpuscale.base.exposition.families import Family, Sample
from gpuscale.base.exposition.reading.entries import ExpositionError, MetaLine, SampleLine
from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, entries

MAX_TEXT_CHARS = 64 * 1024 * 1024
"""About half a million samples; a guard against a target that never stops."""

_SUFFIXES = {"histogram": ("_bucket", "_sum", "_count"), "summary": ("_sum", "_count")}


@dataclass(slots=True)
class _Growing:
    name: str
    type: str | None = None
    help: str | None = None
    samples: list[Sample] = field(default_factory=list)


def parse_text(text: str, *, source: str = "<text>") -> tuple[Family, ...]:
    """Return the families of an exposition, in the order of their first line.

    Raises:
        ExpositionError: a line is not of the format, or the text is too large.
    """
    check_size(text, source)
    families: dict[str, _Growing] = {}
    for number, entry in entries(text, PROMETHEUS_TEXT, source):
        if isinstance(entry, MetaLine):
            _add_meta(families, entry, source, number)
        else:
            _add_sample(families, entry)
    return tuple(
        Family(each.name, each.type or "untyped", each.help or "", tuple(each.samples))
        for each in families.values()
    )


def check_size(text: str, source: str) -> None:
    """Pass a text of a size that can be read.

    Raises:
        ExpositionError: the text is larger than `MAX_TEXT_CHARS`.
    """
    if len(text) > MAX_TEXT_CHARS:
        expected = f"at most {MAX_TEXT_CHARS} characters of exposition"
        raise ExpositionError(Problem(source, None, None, str(len(text)), expected))


def _add_meta(families: dict[str, _Growing], meta: MetaLine, source: str, number: int) -> None:
    family = families.setdefault(meta.name, _Growing(meta.name))
    if (family.help if meta.keyword == "HELP" else family.type) is not None:
        found = f"a second {meta.keyword} line of {meta.name}"
        expected = f"one {meta.keyword} line per metric"
        raise ExpositionError(Problem(source, number, None, found, expected))
    if meta.keyword == "HELP":
        family.help = meta.text
    else:
        family.type = meta.text


def _add_sample(families: dict[str, _Growing], line: SampleLine) -> None:
    family, suffix = _home(families, line.name)
    family.samples.append(Sample(line.labels, line.value, suffix))


def _home(families: dict[str, _Growing], name: str) -> tuple[_Growing, str]:
    """Return the family and suffix of a sample's name."""
    if name not in families:
        base, _, word = name.rpartition("_")
        family = families.get(base)
        if family is not None and f"_{word}" in _SUFFIXES.get(family.type or "", ()):
            return family, f"_{word}"
    return families.setdefault(name, _Growing(name)), ""
