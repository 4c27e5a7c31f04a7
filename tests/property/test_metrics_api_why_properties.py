"""Whatever a server answers as an explanation, it is told or refused, and fit for a terminal."""

from hypothesis import given, settings
from hypothesis import strategies as st

from gpuscale.base.errors import UsageError
from gpuscale.server.metricsapi.offline_why.target import why_path
from gpuscale.server.metricsapi.why.text import page, text_lines

LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=6)
JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)
HOP = st.fixed_dictionaries(
    {
        "hop": st.text(max_size=6) | JSON,
        "state": st.sampled_from(["ok", "failed", "unknown", "not reached"]) | JSON,
        "said": st.text(max_size=6) | JSON,
        "evidence": st.lists(st.text(max_size=6), max_size=2) | JSON,
        "fix": st.text(max_size=6) | JSON,
    }
)
ROW = st.fixed_dictionaries(
    {
        "labels": st.dictionaries(st.text(max_size=4), st.text(max_size=4), max_size=2) | JSON,
        "value": st.text(max_size=4) | JSON,
        "ageMs": st.integers(0, 10**12) | JSON,
        "object": st.none() | st.text(max_size=4) | JSON,
    }
)
VALUE = st.fixed_dictionaries(
    {"of": st.text(max_size=4), "value": JSON, "ageMs": st.integers(0, 10**9) | JSON}
)
COUNT = st.integers(0, 5) | JSON
DOCUMENT = st.fixed_dictionaries(
    {
        "asked": st.text(max_size=8),
        "failedHop": st.none() | st.text(max_size=6),
        "hops": st.lists(HOP, max_size=3),
        "query": st.none() | st.text(max_size=8),
        "rows": st.lists(ROW, max_size=2),
        "moreRows": COUNT,
        "matched": st.lists(st.text(max_size=4), max_size=2),
        "matchedCount": COUNT,
        "missed": st.lists(st.text(max_size=4), max_size=2),
        "missedCount": COUNT,
        "values": st.lists(VALUE, max_size=2),
    }
)


@given(DOCUMENT | st.dictionaries(st.text(max_size=6), JSON, max_size=4))
@settings(max_examples=400, deadline=None)
def test_explanations_from_outside(document) -> None:
    try:
        lines = list(text_lines(document))
    except (AttributeError, KeyError, TypeError):
        return
    assert all(line.isprintable() for line in lines)
    assert "<script" not in page(document)


@given(st.text(max_size=40), st.text(max_size=20), st.text(max_size=20))
@settings(max_examples=300, deadline=None)
def test_paths_of_questions(whose, metric, selector) -> None:
    try:
        path = why_path(whose, metric, selector)
    except UsageError:
        return
    assert path.startswith("/apis/")
    assert " " not in path
    assert path.count("?") == 1
