"""Parses the text of a scrape into series and values.

A target remembers for each text before a value (`name{labels}`) the series it names, so that a line
that was there before costs a look-up and a `float()`. A new line comes apart by its shape, or letter by
letter where it has none. All of this takes each line for itself. Where a line does not read so, such as
one with a line break in a label value, the whole text is read once more, entry by entry, and that reading
decides.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from gpuscale.base.exposition.reading.entries import (
    LineError,
    MetaLine,
    SampleLine,
    is_plain,
    is_special,
    is_utf8,
)
from gpuscale.base.exposition.reading.formats import (
    PROMETHEUS_TEXT,
    ExpositionFormat,
    entries,
    line_entry,
    meta_line,
)
from gpuscale.base.exposition.reading.openmetrics import EOF, read_exemplar
from gpuscale.series.labels import METRIC_NAME, label_set
from gpuscale.series.scraping.known_lines import NOTHING, KnownLines
from gpuscale.series.scraping.shapes import LineShapes
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.bounds import BOUND_LABELS, with_stored_bound
from gpuscale.series.storage.limits import ScrapeLimits, check_labels, check_limit, too_many_series
from gpuscale.series.storage.samples import Series
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.wanted import WantedSeries

_MAX_UNWANTED = 100_000
"""Texts of series that are not kept, so that they are passed over at once."""

LINES_PER_SAMPLE = 4
"""How many lines a text may have for each sample that it may bring: comments, types and help among them."""


@dataclass(slots=True)
class ScrapedText:
    """A parsed text that is not stored yet."""

    room: int
    """How many series more may begin; below zero once they are too many."""
    refs: list[Series] = field(default_factory=list)
    values: list[float] = field(default_factory=list)
    """One for each of `refs`."""
    timed: list[tuple[Series, float, int]] = field(default_factory=list)
    """Samples that bring their own time."""
    metas: list[MetaLine] = field(default_factory=list)
    heads: dict[str, Series] = field(default_factory=dict)
    """Texts before the value that were not known before."""
    bound_label: str | None = None
    """The label that holds a bound in the lines that follow."""
    texts: list[str] = field(default_factory=list)
    """The texts of `values`."""
    timed_texts: list[str] = field(default_factory=list)
    timed_refs: list[tuple[Series, int]] = field(default_factory=list)
    unwanted: int = 0
    """Lines with a value of series that are not kept."""

    @property
    def samples(self) -> int:
        return len(self.refs) + len(self.timed) + self.unwanted


class TextReader:
    """Parses the texts of one target.

    Args:
        store: has the series.
        target: gives them their labels.
        limits: what a scrape may bring.
        source: the target's name in messages.
        wanted: decides which series are kept.
    """

    def __init__(
        self,
        store: SeriesStore,
        target: TargetSeries,
        limits: ScrapeLimits,
        source: str,
        wanted: WantedSeries,
    ) -> None:
        self._wanted = wanted
        self._version = wanted.version
        self._unwanted: set[str] = set()
        """Texts before the value of series that are not kept."""
        self._store = store
        self._target = target
        self._limits = limits
        self._source = source
        self._unchecked_chars = limits.shortest_chars()
        self._shapes = LineShapes(target.merged)
        self._format = PROMETHEUS_TEXT
        self._known = KnownLines()
        self._timed: set[Series] = set()
        """Series of the last text that brought their own times."""

    def read(self, text: str, format_: ExpositionFormat) -> ScrapedText:
        """Parse a text.

        Raises:
            ExpositionError: it is not of the format, or beyond a limit.
        """
        if format_ is not self._format or self._version != self._wanted.version:
            # The same text before the value may mean another series there.
            self._format, self._version = format_, self._wanted.version
            self._known.clear()
            self._unwanted.clear()
        most = self._limits.samples
        lines = text.count("\n")
        check_limit("lines", lines, LINES_PER_SAMPLE * most, "lines", self._source)
        scraped = self._line_by_line(text) if is_utf8(text) else None
        if scraped is None:
            scraped = self._entry_by_entry(text)
        check_limit("samples", scraped.samples, most, "samples", self._source)
        return scraped

    def remember(self, scraped: ScrapedText) -> None:
        """Cache the lines of a stored text, and drop cached lines with times that are not in it."""
        if scraped.heads:
            self._known.add(scraped.heads, scraped.samples)
        if self._timed or scraped.timed:
            timed = {ref for ref, _, _ in scraped.timed}
            if gone := self._timed.difference(timed, scraped.refs):
                self.forget(gone)
            self._timed = timed

    def forget(self, ended: Collection[Series]) -> None:
        """Drop the cached lines of series that have ended."""
        self._known.forget(ended)

    def _line_by_line(self, text: str) -> ScrapedText | None:
        """Parse a text in which each line stands for itself; None if it is not that simple."""
        scraped = ScrapedText(self._target.room(self._limits))
        try:
            self._add_lines(scraped, _lines(text, self._format))
            values = _floats(scraped.texts)
            timed = _floats(scraped.timed_texts)
        except LineError:
            return None
        scraped.values = values
        scraped.timed = [
            (ref, value, time_ms)
            for (ref, time_ms), value in zip(scraped.timed_refs, timed, strict=True)
        ]
        return scraped

    def _add_lines(self, scraped: ScrapedText, lines: Sequence[str]) -> None:
        series_of, format_ = self._known.by_name.get, self._format
        add_ref, add_text, unwanted = scraped.refs.append, scraped.texts.append, self._unwanted
        may_have_more = bool(self._timed) or format_.ends_with_eof
        for number, line in enumerate(lines, start=1):
            head, _, value = line.rpartition(" ")
            name, brace, labels = head.partition("{")
            ref = series_of(name, NOTHING).get(labels)
            if ref is not None and (labels or not brace):
                add_ref(ref)
                add_text(value)
            elif head in unwanted:
                scraped.unwanted += 1
            elif line[:1] == "#":
                meta = meta_line(line, format_)
                if meta is not None:
                    _add_meta(scraped, meta)
            elif line:
                if not (may_have_more and self._add_known(scraped, line)):
                    self._add_line(scraped, line, number)
            elif format_.ends_with_eof:
                raise LineError("an empty line", "no empty line")

    def _add_line(self, scraped: ScrapedText, line: str, number: int) -> None:
        """Parse a line of an unknown series."""
        head, _, value = line.rpartition(" ")
        labels = self._shapes.labels(head)
        if labels is not None and not self._wanted.keeps(labels[METRIC_NAME]):
            self._pass_over(scraped, head)
            return
        if labels is not None:
            labels = label_set(with_stored_bound(labels, scraped.bound_label))
            scraped.heads[head] = ref = self._store.ref(labels, self._target.share)
            if not ref.is_listed:
                scraped.room -= 1
                is_short = len(head) <= self._unchecked_chars
                if scraped.room < 0 or not is_short or len(labels) > self._limits.labels:
                    self._admit(scraped, ref, number)
            scraped.refs.append(ref)
            scraped.texts.append(value)
            return
        entry = line_entry(line, self._format)
        if isinstance(entry, SampleLine):
            added = self._add_sample(scraped, entry, number)
            is_plain_line = head.rstrip(" \t") == entry.series_text
            if added is not None:
                scraped.heads[head if is_plain_line else entry.series_text] = added
        elif entry is not None:
            _add_meta(scraped, entry)

    def _add_known(self, scraped: ScrapedText, line: str) -> bool:
        """Parse a known series' line with a time or an exemplar; return whether it is one."""
        if self._format.ends_with_eof and (end := line.find(" # {")) >= 0:
            series, _, value = line[:end].rpartition(" ")
            if (ref := self._known.get(series)) is not None:
                read_exemplar(f"{line}\n", end)
                scraped.refs.append(ref)
                scraped.texts.append(value)
                return True
        else:
            end = len(line)
        head, _, time = line[:end].rpartition(" ")
        series, _, value = head.rpartition(" ")
        ref = self._known.get(series)
        if ref is None or not value:
            return False
        if end < len(line):
            read_exemplar(f"{line}\n", end)
        scraped.timed_refs.append((ref, self._format.timestamp_ms(time)))
        scraped.timed_texts.append(value)
        return True

    def _entry_by_entry(self, text: str) -> ScrapedText:
        scraped = ScrapedText(self._target.room(self._limits))
        for number, entry in entries(text, self._format, self._source):
            if isinstance(entry, MetaLine):
                _add_meta(scraped, entry)
            else:
                self._add_sample(scraped, entry, number)
        scraped.values = _floats(scraped.texts)
        values = _floats(scraped.timed_texts)
        scraped.timed = [
            (ref, value, time_ms)
            for (ref, time_ms), value in zip(scraped.timed_refs, values, strict=True)
        ]
        return scraped

    def _pass_over(self, scraped: ScrapedText, head: str) -> None:
        scraped.unwanted += 1
        if len(self._unwanted) >= _MAX_UNWANTED:
            self._unwanted.clear()
        self._unwanted.add(head)

    def _add_sample(self, scraped: ScrapedText, sample: SampleLine, number: int) -> Series | None:
        """Add a sample; return its series, or None if it is not wanted."""
        found = len(scraped.refs) + len(scraped.timed_refs) + 1
        check_limit("samples", found, self._limits.samples, "samples", self._source, number)
        if not self._wanted.keeps(sample.name):
            scraped.unwanted += 1
            return None
        exposed = {METRIC_NAME: sample.name, **dict(sample.labels)}
        ref = self._target.ref(with_stored_bound(exposed, scraped.bound_label))
        if not ref.is_listed:
            scraped.room -= 1
            self._admit(scraped, ref, number)
        if sample.timestamp_ms is None:
            scraped.refs.append(ref)
            scraped.texts.append(sample.value_text)
        else:
            scraped.timed_refs.append((ref, sample.timestamp_ms))
            scraped.timed_texts.append(sample.value_text)
        return ref

    def _admit(self, scraped: ScrapedText, ref: Series, number: int) -> None:
        """Check that a new series is allowed, and count it.

        Raises:
            ScrapeLimitError: it is one too many, or its labels are.
        """
        if scraped.room < 0:
            room = self._target.room(self._limits)
            raise too_many_series(room, self._target.share, self._source, number)
        check_labels(ref.labels, self._limits, self._source, number)


def _lines(text: str, format_: ExpositionFormat) -> Sequence[str]:
    """Return a text's lines, without the end marker of OpenMetrics.

    Raises:
        LineError: the mark is missing.
    """
    lines = text.split("\n")
    if format_.ends_with_eof and text:
        if not lines[-1]:
            lines.pop()
        if lines.pop() != EOF:
            raise LineError("the end of the text", EOF)
    return lines


def _floats(texts: Sequence[str]) -> list[float]:
    """Parse many numbers at once.

    Raises:
        LineError: one is not a number as Go reads it.
    """
    if not texts:
        return []
    try:
        values = list(map(float, texts))
    except ValueError as error:
        raise LineError(str(error), "numbers") from None
    if not is_plain("".join(texts)):
        raise LineError("what Go does not read as a number", "numbers")
    if not math.isfinite(sum(values)):
        for text, value in zip(texts, values, strict=True):
            if not (math.isfinite(value) or is_special(text)):
                raise LineError(text, "a number")
    return values


def _add_meta(scraped: ScrapedText, meta: MetaLine) -> None:
    scraped.metas.append(meta)
    if meta.keyword == "TYPE":
        scraped.bound_label = BOUND_LABELS.get(meta.text)
