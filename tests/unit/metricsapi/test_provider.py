# mypy: disable-error-code="arg-type, assignment, dict-item, method-assign"
"""Discovery over time, and requests against what was discovered."""

import asyncio

import pytest

from gpuscale.base.clock import ManualClock
from gpuscale.base.errors import QueryError, UnavailableError, UpstreamError, UsageError
from gpuscale.base.objects.metric_values import MetricValue
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.series.values import Scalar, Vector, VectorSample
from gpuscale.server.metricsapi.provider import FIRST_DISCOVERY_S, MetricsProvider
from gpuscale.server.metricsapi.wire.paths import CustomTarget, ExternalTarget
from gpuscale.server.metricsapi.wire.statuses import ListError
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.rules.queries.plan import MetricFetchError, MetricNotFoundError
from gpuscale.server.rules.resources import KUBERNETES, ResourceType

RULES = """
rules:
- {seriesQuery: a, resources: {template: <<.Resource>>}, metricsQuery: 'a{<<.LabelMatchers>>}'}
- {seriesQuery: b, resources: {template: <<.Resource>>}, metricsQuery: 'b{<<.LabelMatchers>>}'}
externalRules:
- {seriesQuery: q, resources: {namespaced: false}, metricsQuery: 'q{<<.LabelMatchers>>}'}
"""
ALL_PODS = CustomTarget("pods", "n", "*", "a")
EVERYTHING = Selector()


class FakeSource:
    """Answers from tables; an exception in a table is raised."""

    def __init__(self) -> None:
        self.found = {
            "a": [{"__name__": "a", "pod": "p", "namespace": "n"}],
            "b": [{"__name__": "b", "pod": "p", "namespace": "n"}],
            "q": [{"__name__": "q"}],
        }
        self.value = Vector(())
        self.series_calls: list[tuple[str, int]] = []
        self.queries: list[tuple[str, int]] = []
        self.asked_twice = asyncio.Event()

    async def series(self, selector, start_ms):
        self.series_calls.append((selector, start_ms))
        if len(self.series_calls) >= 2 * len(self.found):
            self.asked_twice.set()
        answer = self.found[selector]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def query(self, promql, at_ms):
        self.queries.append((promql, at_ms))
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


class FakeDirectory:
    def __init__(self) -> None:
        self.calls: list[tuple[str, str | None, str]] = []

    def names(self, resource, namespace, selector):
        self.calls.append((resource.name, namespace, str(selector)))
        return ("p", "r")


def provider(source=None, directory=None, clock=None, **settings) -> MetricsProvider:
    return MetricsProvider(
        load_rules(RULES, "rules.yaml"),
        source or FakeSource(),
        directory or FakeDirectory(),
        clock or ManualClock(100_000),
        **settings,
    )


def listed(provider: MetricsProvider) -> list[str]:
    custom = [metric.name for metric in provider.catalogue.custom_resources()]
    return [*custom, *provider.catalogue.external_metrics()]


async def test_nothing_is_listed_before_the_first_discovery() -> None:
    assert listed(provider()) == []
    assert provider().relisted_ms is None


async def test_a_discovery_counts_as_whole_once_it_began_with_all_series() -> None:
    unread = ["3 of 8 targets were not read yet"]
    clock = ManualClock(100_000)
    served = provider(clock=clock, unread=lambda: unread[0])
    assert (served.is_awaited, served.undiscovered) == (True, "the first one has not ended yet")
    await served.relist()
    assert (served.is_awaited, served.undiscovered) == (True, unread[0])
    unread[0] = ""
    # What was asked before the last target was read may lack its series.
    assert served.undiscovered == "the first one with all series has not ended yet"
    await served.relist()
    assert (served.is_awaited, served.undiscovered) == (False, "")
    unread[0] = "a collector starts again"
    assert not served.is_awaited


async def test_all_series_are_not_waited_for_without_end() -> None:
    clock = ManualClock(100_000)
    served = provider(clock=clock, unread=lambda: "1 of 8 targets was not read yet")
    clock.advance(1_000)
    assert served.is_awaited
    await served.relist()
    clock.advance(FIRST_DISCOVERY_S - 1)
    assert served.is_awaited
    clock.advance(1)
    assert not served.is_awaited
    assert served.undiscovered == "1 of 8 targets was not read yet"


async def test_discovery_asks_once_per_series_query_and_no_further_back_than_the_age() -> None:
    source = FakeSource()
    served = provider(source, relist_interval_s=30, max_age_s=40)
    await served.relist()
    assert sorted(source.series_calls) == [("a", 60_000), ("b", 60_000), ("q", 60_000)]
    assert listed(served) == ["namespaces/a", "namespaces/b", "pods/a", "pods/b", "q"]
    assert served.relisted_ms == 100_000


async def test_the_age_is_the_interval_unless_said_otherwise() -> None:
    source = FakeSource()
    await provider(source, relist_interval_s=30).relist()
    assert source.series_calls[0] == ("a", 70_000)


def test_an_age_below_the_interval_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        provider(relist_interval_s=60, max_age_s=30)
    assert str(caught.value) == (
        "found a metrics max age of 30s, expected at least the relist interval of 60s; "
        "otherwise metrics come and go"
    )


async def test_a_failing_series_query_leaves_its_metrics_as_they_were(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource()
    served = provider(source)
    await served.relist()
    source.found = {"a": UnavailableError("down"), "b": [], "q": []}
    await served.relist()
    assert listed(served) == ["namespaces/a", "pods/a"]
    assert served.discovery_report() == ("a: down",)
    assert caplog.messages == ["unable to list the series of a: down"]


async def test_discovery_goes_on_at_its_interval() -> None:
    clock = ManualClock(100_000)
    source = FakeSource()
    task = asyncio.create_task(provider(source, clock=clock, relist_interval_s=10).run())
    async with asyncio.timeout(5):
        await source.asked_twice.wait()
    task.cancel()
    starts = [start for query, start in source.series_calls if query == "a"]
    assert starts[:2] == [90_000, 100_000]


@pytest.mark.parametrize(
    ("failing", "second_ms"),
    [
        ({"a", "b", "q"}, 105_000),  # Prometheus is not there yet: 5 s
        ({"a"}, 700_000),  # one bad rule: the interval, 600 s
        (set(), 700_000),
    ],
)
async def test_discovery_soon_tries_again_where_nothing_was_answered(
    failing, second_ms: int
) -> None:
    clock = ManualClock(100_000)
    source = FakeSource()
    source.found |= {query: UnavailableError("down") for query in failing}
    task = asyncio.create_task(provider(source, clock=clock, relist_interval_s=600).run())
    async with asyncio.timeout(5):
        await source.asked_twice.wait()
    task.cancel()
    starts = [start for query, start in source.series_calls if query == "a"]
    assert [start + 600_000 for start in starts[:2]] == [100_000, second_ms]


async def test_other_rules_are_served_at_once() -> None:
    served = provider()
    await served.relist()
    await served.replace_config(
        load_rules("[{seriesQuery: b, resources: {template: <<.Resource>>}}]", "new.yaml")
    )
    assert listed(served) == ["namespaces/b", "pods/b"]


def rule(name):
    return load_rules(f"[{{seriesQuery: {name}, resources: {{template: <<.Resource>>}}}}]", name)


async def test_a_change_of_some_rules_asks_for_the_series_of_these_only() -> None:
    source = FakeSource()
    source.found["c"] = [{"__name__": "c", "namespace": "n"}]
    served = provider(source)
    await served.relist()
    cluster, team = served.config, rule("c")
    asked = []
    for config in ((cluster, team), (cluster,), (rule("a"), team), (rule("a"), rule("b"))):
        source.series_calls.clear()
        await served.replace_config(AdapterConfig.joined(*config))
        asked.append([selector for selector, _ in source.series_calls])
    # One that comes; one that goes; one that comes back beside one that changed; and two that changed.
    assert asked == [["c"], [], ["a", "c"], ["a", "b"]]
    assert listed(served) == ["namespaces/a", "namespaces/b", "pods/a", "pods/b"]


async def test_a_query_without_an_answer_is_asked_again_with_any_change() -> None:
    source = FakeSource()
    source.found["b"] = UnavailableError("gone")
    served = provider(source)
    await served.relist()
    source.found["b"] = [{"__name__": "b", "namespace": "n"}]
    source.series_calls.clear()
    await served.replace_config(AdapterConfig.joined(served.config))
    assert [selector for selector, _ in source.series_calls] == ["b"]
    assert "namespaces/b" in listed(served)


async def test_all_objects_are_those_of_the_directory() -> None:
    source, directory = FakeSource(), FakeDirectory()
    served = provider(source, directory)
    await served.relist()
    source.value = Vector((VectorSample({"pod": "p"}, 1.0, 99_000),))
    answer = await served.custom(ALL_PODS, parse_selector("app=x"), parse_selector("gpu=0"))
    assert directory.calls == [("pods", "n", "app=x")]
    assert source.queries == [('a{gpu="0",namespace="n",pod=~"p|r"}', 100_000)]
    assert answer.values == (MetricValue("p", 1_000, 99_000),)


async def test_a_single_object_is_not_looked_up() -> None:
    source, directory = FakeSource(), FakeDirectory()
    served = provider(source, directory)
    await served.relist()
    with pytest.raises(
        MetricNotFoundError, match=r"^the server could not find the metric a for pods z$"
    ):
        await served.custom(CustomTarget("pods", "n", "z", "a"), EVERYTHING, EVERYTHING)
    assert directory.calls == []
    assert source.queries == [('a{namespace="n",pod="z"}', 100_000)]


async def test_an_unknown_resource_is_not_found() -> None:
    served = provider()
    await served.relist()
    with pytest.raises(MetricNotFoundError):
        await served.custom(CustomTarget("things", "n", "*", "a"), EVERYTHING, EVERYTHING)


@pytest.mark.parametrize(
    "error", [QueryError("bad"), UnavailableError("down"), UpstreamError("no")]
)
async def test_a_source_that_fails_does_not_show_why(
    error, caplog: pytest.LogCaptureFixture
) -> None:
    source = FakeSource()
    served = provider(source)
    await served.relist()
    source.value = error
    with pytest.raises(MetricFetchError, match=r"^unable to fetch metrics$"):
        await served.custom(ALL_PODS, EVERYTHING, EVERYTHING)
    assert caplog.messages == [
        f'unable to fetch metrics: {error} (query a{{namespace="n",pod=~"p|r"}})'
    ]


async def test_external_metrics_are_asked_for_now() -> None:
    source = FakeSource()
    served = provider(source)
    await served.relist()
    source.value = Scalar(2.0)
    (value,) = await served.external(ExternalTarget("n", "q"), parse_selector("x=y"))
    assert source.queries == [('q{x="y"}', 100_000)]
    assert (value.labels, value.value_milli, value.measured_ms) == (None, 2_000, 100_000)


async def test_rows_without_a_partner_are_told_when_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    source = FakeSource()
    served = provider(source)
    await served.relist()
    source.value = Vector((VectorSample({}, 1.0, 0),))
    with caplog.at_level("DEBUG", logger="gpuscale.server.metricsapi.provider"):
        await served.custom(ALL_PODS, EVERYTHING, EVERYTHING)
    assert caplog.messages == [
        "a of pods: 1 rows have no label 'pod'; group the query by it",
        "a of pods: 2 of 2 objects have no row",
    ]


async def test_objects_are_only_looked_up_for_metrics_that_are_served() -> None:
    directory, asked = FakeDirectory(), []

    async def ready(resource) -> None:
        asked.append(resource.name)

    served = provider(directory=directory, ready=ready)
    await served.relist()
    for target in (
        CustomTarget("secrets", "n", "*", "a"),
        CustomTarget("pods", "n", "*", "none"),
        CustomTarget("nosuch", "n", "*", "a"),
    ):
        with pytest.raises(MetricNotFoundError):
            await served.custom(target, EVERYTHING, EVERYTHING)
    assert (directory.calls, asked) == ([], [])
    await served.custom(ALL_PODS, EVERYTHING, EVERYTHING)
    assert (directory.calls, asked) == ([("pods", "n", "")], ["pods"])


async def test_objects_that_are_not_known_are_an_error() -> None:
    async def never(_resource) -> None:
        raise ListError

    served = provider(ready=never)
    await served.relist()
    with pytest.raises(ListError, match="unable to list matching resources"):
        await served.custom(ALL_PODS, EVERYTHING, EVERYTHING)


async def test_rules_and_resources_are_replaced_together() -> None:
    training = ResourceType("trainings", "training", "Training", "ml.example.com")
    mapper = KUBERNETES.extended(training)
    source = FakeSource()
    source.found["a"] = [{"__name__": "a", "training": "t", "namespace": "n"}]
    served = provider(source)
    await served.relist()
    target = CustomTarget("trainings.ml.example.com", "n", "*", "a")
    with pytest.raises(MetricNotFoundError):
        await served.custom(target, EVERYTHING, EVERYTHING)
    await served.replace_config(load_rules(RULES, "rules.yaml", mapper), mapper)
    answer = await served.custom(target, EVERYTHING, EVERYTHING)
    assert answer.resource == training


async def test_a_value_that_was_measured_too_long_ago_is_absent_and_counted() -> None:
    source = FakeSource()
    served = provider(source, clock=ManualClock(500_000), max_value_age_s=120.0)
    await served.relist()
    rows = [({"pod": "p"}, 379_999), ({"pod": "r"}, 380_000)]
    source.value = Vector(tuple(VectorSample(labels, 1.0, at_ms) for labels, at_ms in rows))
    answer = await served.custom(ALL_PODS, EVERYTHING, EVERYTHING)
    assert [value.object_name for value in answer.values] == ["r"]
    with pytest.raises(MetricNotFoundError):
        await served.custom(CustomTarget("pods", "n", "p", "a"), EVERYTHING, EVERYTHING)
    answer = await served.external(ExternalTarget("n", "q"), EVERYTHING)
    assert len(answer) == 1
    assert dict(served.age_limit.stale) == {
        ("custom.metrics.k8s.io", "a"): 2,
        ("external.metrics.k8s.io", "q"): 1,
    }


async def test_of_two_discoveries_the_one_begun_last_counts() -> None:
    source = FakeSource()
    served = provider(source)
    gate = asyncio.Event()
    answer = source.series

    async def slow(selector, start_ms):
        found = await answer(selector, start_ms)
        await gate.wait()
        return found

    source.series = slow
    first = asyncio.create_task(served.relist())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.series = answer
    source.found["a"] = []
    await served.relist()
    gate.set()
    await first
    assert listed(served) == ["namespaces/b", "pods/b", "q"]
