# mypy: disable-error-code="arg-type"
"""A widened query gives each request what the exact one gives, wherever a rule is said to be safe for it."""

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuscale.base.errors import QueryError
from gpuscale.base.objects.selectors import Selector
from gpuscale.series.promql.evaluate import instant
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Vector
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import plan_custom
from gpuscale.server.rules.queries.widen import WideRows, widen
from gpuscale.server.rules.resources import KUBERNETES

NOW_MS = 1_700_000_000_000
NAMESPACES = ("a", "b")
PODS = ("p", "q", "r.s")
METRICS = ("m", "n", "info")


def plan_of(query, namespace="a", names=("p", "q")):
    rule = {
        "seriesQuery": "m{}",
        "resources": {
            "overrides": {
                "namespace": {"resource": "namespace"},
                "pod": {"resource": "pod"},
            }
        },
        "metricsQuery": query,
    }
    config = load_rules(json.dumps({"rules": [rule]}), "<test>")
    catalogue = Catalogue.build(config, {"m{}": [{"__name__": "m", "namespace": "a", "pod": "p"}]})
    return plan_custom(catalogue, KUBERNETES, "pods", namespace, names, "m", Selector())


SAFE = (
    "<<.Series>>{<<.LabelMatchers>>}",
    "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "sum by (<<.GroupBy>>) (rate(<<.Series>>{<<.LabelMatchers>>}[5m]))",
    "sum without (gpu) (<<.Series>>{<<.LabelMatchers>>})",
    "max_over_time(sum(m{<<.LabelMatchers>>}) by (<<.GroupBy>>)[5m:1m]) * 100",
    "sum(m{<<.LabelMatchers>>}) by (<<.GroupBy>>) / sum(n{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "avg(m{<<.LabelMatchers>>}) by (<<.GroupBy>>) + on(<<.GroupBy>>) n{<<.LabelMatchers>>}",
    "topk(1, m{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "histogram_quantile(0.9, sum(rate(m{<<.LabelMatchers>>}[5m])) by (<<.GroupBy>>, le))",
    "m{<<.LabelMatchers>>} * on(gpu) group_left(model) info{}",
    "m{<<.LabelMatchers>>} and on(gpu) info{}",
    "m{<<.LabelMatchers>>} / scalar(count(info))",
    "clamp_max(m{<<.LabelMatchers>>}, 1) or n{<<.LabelMatchers>>}",
    'label_replace(m{<<.LabelMatchers>>}, "x", "$1", "gpu", "(.*)")',
)
UNSAFE = {
    "one row over all objects": "sum(m{<<.LabelMatchers>>})",
    "the namespace is not grouped by": "sum(m{<<.LabelMatchers>>}) by (pod)",
    "all rows are ranked": "topk(1, m{<<.LabelMatchers>>})",
    "a number out of all rows": "m{<<.LabelMatchers>>} / scalar(sum(n{<<.LabelMatchers>>}))",
    "nothing is a value": "absent(m{<<.LabelMatchers>>})",
    "the object's label is written": (
        'label_replace(m{<<.LabelMatchers>>}, "pod", "$1", "gpu", "(.*)")'
    ),
    "matched without the namespace": "m{<<.LabelMatchers>>} / on(pod) n{<<.LabelMatchers>>}",
    "one side has lost the namespace": (
        "m{<<.LabelMatchers>>} / ignoring(gpu) sum(n{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    ),
    "a single row is expected": "m{<<.LabelMatchers>>} / on() sum(info)",
    "rows that are nobody's": "m{<<.LabelMatchers>>} or info{}",
    "some rows, whichever come first": "limitk(1, m{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "rows that are made up": (
        "m{<<.LabelMatchers>>} + on(gpu) group_left() fill(0) sum by (gpu) (info)"
    ),
    "names as text": 'm{pod=~"<<index .LabelValuesByName "pod">>"}',
    "a condition in the template": "<<if .Series>>m{<<.LabelMatchers>>}<<end>>",
    "a text that holds the matchers": 'label_replace(m{}, "x", "<<.GroupBy>>", "gpu", "(.*)")',
    "every object's label is taken away": "sum without (pod) (m{<<.LabelMatchers>>})",
}


@pytest.mark.parametrize("query", SAFE)
def test_safe_rules_are_widened(query) -> None:
    found = widen(plan_of(query))
    assert found is not None
    assert 'namespace!=""' in found.promql


@pytest.mark.parametrize("reason", UNSAFE)
def test_other_rules_are_not(reason) -> None:
    assert widen(plan_of(UNSAFE[reason])) is None


def test_one_widened_query_stands_for_every_namespace_and_set_of_names() -> None:
    query = "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)"
    expected = 'avg(m{namespace!="",pod!=""}) by (namespace,pod)'
    assert widen(plan_of(query)).promql == expected
    assert widen(plan_of(query, "b", ("x",))).promql == expected


SERIES = st.fixed_dictionaries(
    {
        "__name__": st.sampled_from(METRICS),
        "namespace": st.sampled_from((*NAMESPACES, *NAMESPACES, *NAMESPACES, "")),
        "pod": st.sampled_from(("p", "p", "q", "r.s", "")),
        "gpu": st.sampled_from(("0", "", "", "1")),
        "le": st.sampled_from(("", "", "", "", "1")),
    }
)
VALUES = st.integers(-3, 9).map(float)
STORES = st.lists(st.tuples(SERIES, VALUES, VALUES), min_size=4, max_size=20)

MATCHED = "{<<.LabelMatchers>>}"
FIXED = '{gpu!="1"}'
LABELS = st.sampled_from(
    (*["<<.GroupBy>>"] * 4, "<<.GroupBy>>, gpu", "namespace, pod", "pod", "gpu", "gpu", "")
)


def selectors():
    return st.builds(
        "{}{}".format, st.sampled_from(METRICS), st.sampled_from((*[MATCHED] * 5, FIXED))
    )


def larger(inner):
    wrapped = st.builds(
        "{}({})".format, st.sampled_from(("abs", "-", "timestamp", "scalar", "sort")), inner
    )
    grouped = st.builds(
        "{}({}) {} ({})".format,
        st.sampled_from(("sum", "avg", "count")),
        inner,
        st.sampled_from(("by", "by", "without")),
        LABELS,
    )
    ranked = st.builds("topk(1, {}) by ({})".format, inner, LABELS)
    over_time = st.builds("max_over_time(({})[2m:1m])".format, inner)
    replaced = st.builds(
        'label_replace({}, "{}", "$1", "{}", "(.*)")'.format,
        inner,
        st.sampled_from(("x", "pod", "namespace", "gpu")),
        st.sampled_from(("gpu", "namespace", "pod")),
    )
    matched = st.builds(
        "({}) {} {}({}){} ({})".format,
        inner,
        st.sampled_from(("+", "/", ">", "== bool")),
        st.sampled_from(("on", "ignoring")),
        LABELS,
        st.sampled_from(("", "", " group_left()", " group_right()", " group_left(le)")),
        inner,
    )
    sets = st.builds(
        "({}) {} {}({}) ({})".format,
        inner,
        st.sampled_from(("and", "or", "unless")),
        st.sampled_from(("on", "ignoring")),
        LABELS,
        inner,
    )
    plain = st.builds(
        "({}) {} ({})".format,
        inner,
        st.sampled_from(("+", "and", "or", "unless", ">")),
        st.one_of(inner, st.sampled_from(("2", "scalar(count(info))"))),
    )
    return st.one_of(wrapped, grouped, grouped, ranked, over_time, replaced, matched, sets, plain)


QUERIES = st.recursive(selectors(), larger, max_leaves=3)
NAMES = st.lists(st.sampled_from((*PODS, "other")), min_size=1, max_size=3, unique=True).map(tuple)


def store_of(series):
    store = SeriesStore()
    for labels, first, second in series:
        store.append(labels, NOW_MS - 60_000, first)
        store.append(labels, NOW_MS - 1_000, second)
    return store


def rows_of(value):
    """Rows less the namespace's label, which the exact form may have lost; order is free."""
    return sorted(
        (
            sorted((name, text) for name, text in row.labels.items() if name != "namespace"),
            repr(row.value),
            row.measured_ms,
        )
        for row in value.samples
    )


@given(QUERIES, STORES, st.sampled_from(NAMESPACES), NAMES, st.none() | NAMES)
def test_what_is_cut_out_is_what_the_exact_query_gives(
    query, series, namespace, names, others
) -> None:
    """Of the query for all objects, and of the one for those of two questions."""
    plan = plan_of(query, namespace, names)
    wide = widen(plan)
    assume(wide is not None)
    store = store_of(series)
    promql = wide.promql if others is None else wide.among(NAMESPACES, (*names, *others))
    try:
        answer = instant(store, promql, NOW_MS)
    except QueryError:
        return  # the exact query is asked instead
    rows = WideRows(wide)
    rows.add(answer.samples)
    found = rows.cut(namespace, names)
    if found is None:
        return  # so it is where an object has several rows
    exact = instant(store, plan.promql, NOW_MS)
    wanted = [row for row in exact.samples if row.labels.get("pod", "") in names]
    assert rows_of(found) == rows_of(Vector(tuple(wanted)))
    assert plan.answer(found) == plan.answer(exact)
