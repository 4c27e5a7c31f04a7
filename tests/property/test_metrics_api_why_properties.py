# mypy: disable-error-code="arg-type"
"""What is explained is what is served; and any answer is told or refused, and fit for a terminal."""

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import GpuscaleError, QueryError, UnavailableError, UsageError
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.base.quantity import Quantity
from gpuscale.series.storage.store import SeriesStore
from gpuscale.series.values import Vector
from gpuscale.server.metricsapi.offline_why.target import why_path
from gpuscale.server.metricsapi.provider import MetricsProvider
from gpuscale.server.metricsapi.why.custom import why_custom
from gpuscale.server.metricsapi.why.external import why_external
from gpuscale.server.metricsapi.why.text import page, text_lines
from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget
from gpuscale.server.metricsapi.wire.statuses import ListError
from gpuscale.server.rules.config import load_rules
from gpuscale.server.sources.embedded import EmbeddedSource

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
def test_explanations_from_outside(document) -> None:
    try:
        lines = list(text_lines(document))
    except (AttributeError, KeyError, TypeError):
        return
    assert all(line.isprintable() for line in lines)
    assert "<script" not in page(document)


@given(st.text(max_size=40), st.text(max_size=20), st.text(max_size=20))
def test_paths_of_questions(whose, metric, selector) -> None:
    try:
        path = why_path(whose, metric, selector)
    except UsageError:
        return
    assert path.startswith("/apis/")
    assert " " not in path
    assert path.count("?") == 1


NOW_MS = 1_700_000_000_000
QUERIES = (
    "<<.Series>>{<<.LabelMatchers>>}",  # several rows of an object
    "<<.Series>>",  # rows of others
    "avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
    "sum(rate(<<.Series>>{<<.LabelMatchers>>}[30s])) by (<<.GroupBy>>)",
    "<<.Series>>{<<.LabelMatchers>>} / 0",
    "<<.Series>>{<<.LabelMatchers>>}[5m]",
    "scalar(<<.Series>>{<<.LabelMatchers>>})",
    "sum(<<.Series>>{<<.LabelMatchers>>})",
    "vector(1)",
)
LABELS = (
    "{template: <<.Resource>>}",
    "{overrides: {pod: {resource: pod}}}",
    "{template: <<.Resource>>, namespaced: false}",
)
RULE_TEXT = "{{seriesQuery: m, resources: {}, metricsQuery: '{}', nan: {}}}"
RULE = st.builds(
    RULE_TEXT.format,
    st.sampled_from(LABELS),
    st.sampled_from(QUERIES),
    st.sampled_from(["absent", "zero"]),
)
SERIES = st.fixed_dictionaries(
    {"namespace": st.sampled_from(["ml", "ml", "other"])},
    optional={"pod": st.sampled_from(["a", "b", "z"]), "gpu": st.sampled_from("01")},
)
SAMPLES = st.lists(
    st.tuples(
        SERIES,
        st.sampled_from([1.0, 0.0015, 1e300, float("nan"), float("inf")]),
        st.sampled_from([1, 20, 200, 400]),
    ),
    max_size=8,
)
TARGETS = st.one_of(
    st.builds(
        CustomTarget,
        resource=st.sampled_from(["pods", "pods", "pods", "namespaces", "nodes", "podz"]),
        namespace=st.just("ml"),
        name=st.sampled_from(["a", "*", "gone"]),
        metric=st.sampled_from(["m", "m", "m", "n"]),
    ),
    st.builds(CustomTarget, st.just("namespaces"), st.none(), st.just("ml"), st.just("m")),
    st.builds(ExternalTarget, st.sampled_from(["ml", "other"]), st.just("m")),
)
EVERY = parse_selector("")
SELECTORS = st.sampled_from(["", "", "gpu=1", "gpu>1"]).map(parse_selector)


class Source:
    """A store whose clock goes wrong by `skew_ms`, and which fails from when it is told to."""

    def __init__(self, store, skew_ms) -> None:
        self.inner, self.skew_ms = EmbeddedSource(store), skew_ms
        self.series_fault = self.query_fault = None
        self.asked: list[str] = []

    async def series(self, selector, start_ms):
        if self.series_fault is not None:
            raise self.series_fault
        return await self.inner.series(selector, start_ms)

    async def query(self, promql, at_ms):
        self.asked.append(promql)
        if self.query_fault is not None:
            raise self.query_fault
        value = await self.inner.query(promql, at_ms)
        if not isinstance(value, Vector):
            return value
        rows = (replace(row, measured_ms=row.measured_ms + self.skew_ms) for row in value.samples)
        return Vector(tuple(rows))


class Directory:
    def __init__(self, *, is_known) -> None:
        self.is_known = is_known

    def names(self, resource, namespace, selector):
        if not self.is_known:
            raise ListError
        return ("a", "b", "c") if resource.name == "pods" else ("ml",)


FAULTS = st.sampled_from([None, None, None, UnavailableError("away"), QueryError("no PromQL")])


A_OF_GPU_0, A_OF_GPU_1 = ({"namespace": "ml", "pod": "a", "gpu": gpu} for gpu in "01")
SEVERAL_ROWS = RULE_TEXT.format(LABELS[0], QUERIES[0], "absent")
THE_POD = CustomTarget("pods", "ml", "a", "m")


@given(
    rules=st.lists(RULE, min_size=1, max_size=2),
    samples=SAMPLES,
    target=TARGETS,
    series=SELECTORS,
    faults=st.tuples(FAULTS, FAULTS),
    max_age_s=st.sampled_from([None, 10.0, 100.0]),
    skew_ms=st.sampled_from([0, 0, 30_000]),
    is_known=st.booleans(),
)
@example(  # the last row of the pod is no number, and the one before it is served
    rules=[SEVERAL_ROWS],
    samples=[(A_OF_GPU_0, 1.0, 1), (A_OF_GPU_1, float("nan"), 1)],
    target=THE_POD,
    series=EVERY,
    faults=(None, None),
    max_age_s=None,
    skew_ms=0,
    is_known=True,
)
@example(  # the last row of the pod is too old
    rules=[SEVERAL_ROWS],
    samples=[(A_OF_GPU_0, 1.0, 1), (A_OF_GPU_1, 2.0, 20)],
    target=THE_POD,
    series=EVERY,
    faults=(None, None),
    max_age_s=10.0,
    skew_ms=0,
    is_known=True,
)
async def test_what_is_explained_is_what_is_served(
    rules, samples, target, series, faults, max_age_s, skew_ms, is_known
) -> None:
    store = SeriesStore(retention_ms=86_400_000)
    for labels, value, seconds in {str(each[0]): each for each in samples}.values():
        store.append({"__name__": "m", **labels}, NOW_MS - seconds * 1000, value)
    text = f"rules: [{', '.join(rules)}]\nexternalRules: [{rules[0]}]"
    source = Source(store, skew_ms)
    provider = MetricsProvider(
        load_rules(text, "rules.yaml"),
        source,
        Directory(is_known=is_known),
        ManualClock(NOW_MS),
        relist_interval_s=600,
        max_value_age_s=max_age_s,
    )
    await provider.relist()
    source.series_fault, source.query_fault = faults

    try:
        if isinstance(target, CustomTarget):
            answer = await provider.custom(target, EVERY, series)
            served = [(each.object_name, each.value_milli) for each in answer.values]
        else:
            values = await provider.external(target, series)
            served = [(_of(each.labels), each.value_milli) for each in values]
    except GpuscaleError:
        served = []
    counted = dict(provider.age_limit.stale), dict(provider.age_limit.ahead)
    asked = list(source.asked)
    if isinstance(target, CustomTarget):
        explanation = await why_custom(provider, target, EVERY, series)
    else:
        explanation = await why_external(provider, target, series)
    document = explanation.document()

    expected = sorted((of, str(Quantity.from_milli(milli))) for of, milli in served)
    assert sorted((each.what, each.value) for each in explanation.values) == expected
    assert (document["failedHop"] is None) == bool(served)
    if served:
        assert [document["query"]] == asked
    assert counted == (dict(provider.age_limit.stale), dict(provider.age_limit.ahead))
    await provider.close()


def _of(labels):
    if labels is None:
        return "the scalar"
    return ",".join(f"{name}={value}" for name, value in sorted(labels.items())) or "no labels"
