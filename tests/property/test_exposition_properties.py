"""Exposition text: what is written reads back, and whatever comes in is read or refused with its line."""

import math
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.exposition.families import TYPES, Family, Sample
from gpuscale.base.exposition.parse import parse_text
from gpuscale.base.exposition.reading.entries import ExpositionError, SampleLine
from gpuscale.base.exposition.reading.formats import OPENMETRICS, PROMETHEUS_TEXT, entries
from gpuscale.base.exposition.write import positional, render_text, shortest
from gpuscale.series.scraping.scrape import ScrapeTarget
from gpuscale.series.storage.store import SeriesStore

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
# Endings that would make one family's sample belong to another.
NAMES = st.from_regex(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,12}", fullmatch=True).filter(
    lambda name: not name.endswith(("_sum", "_count", "_bucket"))
)
LABELS = st.dictionaries(
    st.from_regex(r"[a-zA-Z_][a-zA-Z0-9_]{0,8}", fullmatch=True), TEXT, max_size=4
).map(lambda labels: tuple(labels.items()))
VALUES = st.integers(-(2**63), 2**64) | st.floats()
SUFFIXES = {"histogram": ["_bucket", "_sum", "_count"], "summary": ["", "_sum", "_count"]}


@st.composite
def families(draw):
    kind = draw(st.sampled_from(TYPES))
    suffixes = st.sampled_from(SUFFIXES.get(kind, [""]))
    samples = draw(st.lists(st.builds(Sample, LABELS, VALUES, suffixes), max_size=4))
    # Blanks before a help text are not part of it.
    return Family(draw(NAMES), kind, draw(TEXT).lstrip(" \t"), tuple(samples))


@given(st.lists(families(), max_size=4, unique_by=lambda family: family.name))
def test_what_is_rendered_reads_back(given_families) -> None:
    text = render_text(given_families)
    back = parse_text(text)
    assert render_text(back) == text
    assert [(f.name, f.type, f.help) for f in back] == [
        (f.name, f.type, f.help) for f in given_families
    ]
    for family, again in zip(given_families, back, strict=True):
        for sample, other in zip(family.samples, again.samples, strict=True):
            assert (sample.labels, sample.suffix) == (other.labels, other.suffix)
            assert _same(sample.value, other.value)


@given(st.floats())
def test_number_texts_read_back(number) -> None:
    assert _same(float(shortest(number)), number)
    assert _same(float(positional(number)), number)
    assert "e" not in positional(number).lower().replace("inf", "")


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_number_texts_have_the_figures_of_the_shortest_text(number) -> None:
    assert Decimal(shortest(number)) == Decimal(positional(number)) == Decimal(repr(number))


PIECES = st.sampled_from(
    [
        *[
            "a",
            "b_total",
            "{",
            "}",
            '="',
            '"',
            ",",
            " ",
            "\t",
            "\n",
            "\r",
            "\\",
            "# HELP ",
            "# TYPE ",
        ],
        *[
            "gauge",
            "1",
            "-",
            "+Inf",
            "NaN",
            "1e400",
            "1_0",
            "99999999999999999999",
            "é",
            "\x00",
            "٣",
            "#",
        ],
        *['a{x="1"} 1\n', "a 1 1000\n", "a 1\n", "# EOF\n", "=", "0x1p3", "\x1c", "\u2028"],
        *['{"a.b","c.d"="e"} 1\n', "a 2\n", " # {", ' # {x="y"} 1\n', "\udcff", "+NaN", "# UNIT "],
    ]
)


@given(st.lists(PIECES, max_size=30).map("".join))
def test_any_text_is_read_or_refused_with_its_line(text) -> None:
    try:
        parse_text(text)
    except ExpositionError as error:
        problem = error.problems[0]
        assert problem.line is not None
        assert 1 <= problem.line <= text.count("\n") + 1


@given(
    st.sampled_from([PROMETHEUS_TEXT, OPENMETRICS]),
    st.lists(st.lists(PIECES, max_size=20).map("".join), min_size=1, max_size=4),
    st.booleans(),
)
def test_a_scrape_takes_all_of_a_text_or_nothing(format_, texts, ends) -> None:
    """The quick way of a repeated scrape and the reading entry by entry agree."""
    store = SeriesStore()
    target = ScrapeTarget(store, {})
    for i, text in enumerate(texts):
        text += "# EOF\n" if ends and format_ is OPENMETRICS else ""
        before = store.stats().samples
        result = target.ingest(text, 10_000 + i, None, format_)
        samples = _samples(text, format_)
        if samples is None:
            assert result.problem is not None
            assert result.added == 0
        else:
            assert result.problem is None
            assert result.samples == samples
        assert store.stats().samples >= before


def _samples(text, format_):
    try:
        return sum(isinstance(entry, SampleLine) for _, entry in entries(text, format_, "t"))
    except ExpositionError:
        return None


def _same(left, right):
    return left == right or (math.isnan(left) and math.isnan(right))
