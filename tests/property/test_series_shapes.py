"""A line taken apart by its shape stands for the same series as one that is read letter by letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.exposition.reading.entries import LineError
from gpuscale.base.exposition.reading.formats import PROMETHEUS_TEXT, line_entry
from gpuscale.series.labels import METRIC_NAME, LabelSet, label_sets
from gpuscale.series.scraping.shapes import LineShapes
from gpuscale.series.scraping.target import TargetSeries
from gpuscale.series.storage.store import SeriesStore

NAMES = st.sampled_from(["a", "le", "pod", "job", "instance", "exported_job", "__name__", "A_9"])
PLAIN = st.text(st.characters(exclude_characters='"\\\n'), max_size=6)
VALUES = st.one_of(
    PLAIN, st.sampled_from(["", "x y", "a,b={}", "}", "\\\\", '\\"', "\x1f", "%s", "\0" + "0"])
)
PAIRS = st.lists(st.tuples(NAMES, VALUES), max_size=4)
HEADS = st.builds(
    lambda name, pairs, comma: (
        name + "{" + ",".join(f'{key}="{value}"' for key, value in pairs) + comma + "}"
    ),
    st.sampled_from(["up", "m:x", "9x", "m "]),
    PAIRS,
    st.sampled_from(["", "", ",", " ", ",,"]),
)
WORDS = st.lists(st.sampled_from([*'{}=,"', "a", "up", " ", "\\", "1", 'a="b"']), max_size=12)


def target(*, honor_labels):
    own = {"job": "gpu", "instance": "n1", "empty": ""}
    return TargetSeries(SeriesStore(), own, honor_labels=honor_labels)


@given(st.one_of(HEADS, WORDS.map("".join)), st.booleans())
def test_a_shape_gives_what_reading_gives(head, honor_labels) -> None:
    series = target(honor_labels=honor_labels)
    shapes = LineShapes(series.merged)
    found = shapes.labels(head)
    assert shapes.labels(head) == found
    if found is None:
        return
    try:
        parsed = line_entry(f"{head} 1", PROMETHEUS_TEXT)
    except LineError:
        raise AssertionError(f"{head!r} is no line, and has labels {found}") from None
    assert parsed.series_text == head
    read = LabelSet(series.merged({METRIC_NAME: parsed.name, **dict(parsed.labels)}).items())
    assert found == read
    assert list(found.items()) == list(read.items())


@pytest.mark.parametrize("head", ['a{b="c"}"}', 'a{b="c}', 'a{b="c"d="}'])
def test_a_quote_that_is_left_open_has_no_shape(head: str) -> None:
    assert LineShapes(target(honor_labels=False).merged).labels(head) is None


def test_what_is_known_of_shapes_is_bounded() -> None:
    shapes = LineShapes(target(honor_labels=False).merged)
    for number in range(200):
        shapes.labels(f'm{number}{{{"a" * 100_000}="b"}}')
        assert sum(len(part) for shape in shapes._shapes for part in shape) < 5_000_000
    for number in range(25_000):
        shapes.labels(f'm{number}{{a="b"}}')
        assert len(shapes._shapes) <= 10_000


def test_a_plain_line_has_a_shape() -> None:
    found = LineShapes(target(honor_labels=False).merged).labels('m{pod="a b",job="x"}')
    assert str(found) == 'm{exported_job="x", instance="n1", job="gpu", pod="a b"}'


def test_any_character_may_be_in_a_label() -> None:
    own = TargetSeries(SeriesStore(), {"job": "a\x1fb"}, honor_labels=False)
    assert LineShapes(own.merged).labels('m{pod="\x1f"}') == {
        "__name__": "m",
        "job": "a\x1fb",
        "pod": "\x1f",
    }


PARTS = st.text(st.sampled_from("a\x1f%('"), min_size=1, max_size=3)


@given(st.dictionaries(PARTS, PARTS, max_size=3), st.dictionaries(PARTS, PARTS, max_size=3))
def test_only_equal_labels_have_equal_keys(left, right) -> None:
    keys = LabelSet(left.items()).key, LabelSet(right.items()).key
    assert (keys[0] == keys[1]) == (left == right)


@given(st.dictionaries(st.sampled_from(["a", "b%s", "c"]), st.sampled_from(["x", "%d", "y z"])))
def test_label_sets_of_the_same_names(labels) -> None:
    names = sorted(labels)
    made = label_sets(names)(tuple(labels[name] for name in names))
    assert made == LabelSet(labels.items())
    assert made.without_name() == LabelSet(labels.items())
