"""Which metrics the API lists, over time."""

from gpuscale.server.rules.catalogue import Catalogue, QueryFailure
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.resources import KUBERNETES, ResourceType

RULES = load_rules(
    """
rules:
- {seriesQuery: a, resources: {template: <<.Resource>>}, metricsQuery: a}
- {seriesQuery: b, resources: {template: <<.Resource>>}, metricsQuery: b}
externalRules:
- {seriesQuery: c, metricsQuery: c}
""",
    "rules.yaml",
)


def series(name: str, *labels: str) -> dict[str, str]:
    return {"__name__": name, **dict.fromkeys(labels, "x")}


def names(catalogue: Catalogue) -> list[str]:
    return [metric.name for metric in catalogue.custom_resources()]


def test_nothing_is_listed_before_the_first_discovery() -> None:
    assert Catalogue().custom_resources() == ()
    assert Catalogue().external_metrics() == ()


def test_a_failing_query_keeps_its_own_metrics_and_no_others() -> None:
    first = Catalogue.build(
        RULES, {"a": [series("a", "pod")], "b": [series("b", "pod")], "c": [series("c")]}
    )
    assert names(first) == ["pods/a", "pods/b"]
    assert first.external_metrics() == ("c",)
    second = Catalogue.build(
        RULES, {"a": QueryFailure("timeout"), "b": [series("b", "node")], "c": []}, first
    )
    assert names(second) == ["nodes/b", "pods/a"]
    assert second.external_metrics() == ()
    assert second.failures == {"a": QueryFailure("timeout")}
    third = Catalogue.build(RULES, {"a": QueryFailure("timeout"), "b": [], "c": []}, second)
    assert names(third) == ["pods/a"]


def test_a_query_without_an_answer_counts_as_failed() -> None:
    catalogue = Catalogue.build(RULES, {"a": [], "b": []})
    assert catalogue.failures == {"c": QueryFailure("not asked")}


def test_a_metric_goes_when_its_series_do() -> None:
    first = Catalogue.build(RULES, {"a": [series("a", "pod")], "b": [], "c": []})
    second = Catalogue.build(RULES, {"a": [], "b": [], "c": []}, first)
    assert names(first) == ["pods/a"]
    assert names(second) == []


def test_of_two_series_with_one_name_the_last_has_it() -> None:
    rules = load_rules(
        "[{seriesQuery: x, resources: {template: <<.Resource>>}, "
        "name: {matches: '^(x)(?:_total)?$'}, metricsQuery: <<.Series>>}]",
        "rules.yaml",
    )
    found = Catalogue.build(rules, {"x": [series("x", "pod"), series("x_total", "pod")]})
    assert [entry.series for entry in found.custom.values()] == ["x_total"]


def test_a_series_whose_name_does_not_match_or_becomes_empty_is_left_out() -> None:
    rules = load_rules(
        "[{seriesQuery: x, resources: {template: <<.Resource>>}, "
        "name: {matches: '^x(.*)$'}, metricsQuery: <<.Series>>}]",
        "rules.yaml",
    )
    answer = {"x": [series("x", "pod"), series("y", "pod"), {"pod": "nameless"}]}
    assert names(Catalogue.build(rules, answer)) == []


def test_cluster_scoped_resources_are_not_namespaced() -> None:
    mapper = KUBERNETES.extended(
        ResourceType("racks", "rack", "Rack", "example.com", namespaced=False)
    )
    rules = load_rules(
        "[{seriesQuery: m, resources: {template: <<.Resource>>}, metricsQuery: m}]", "r", mapper
    )
    catalogue = Catalogue.build(rules, {"m": [series("m", "rack", "pod", "other")]})
    assert [(metric.name, metric.namespaced) for metric in catalogue.custom_resources()] == [
        ("pods/m", True),
        ("racks.example.com/m", False),
    ]


def test_its_bytes_grow_with_its_series() -> None:
    """A shape is a name and 10 labels of 56 bytes, a set of 728 bytes, and what is around them."""
    sizes = []
    for names_of_series in (1_000, 2_000):
        found = [
            series(f"series_{number:05}", *(f"label_{each}" for each in range(10)))
            for number in range(names_of_series)
        ]
        sizes.append(Catalogue.build(RULES, {"a": found, "b": [], "c": []}).bytes())
    assert 1_000 * 1_000 < sizes[0] < 1_000 * 3_000
    assert abs(sizes[1] - 2 * sizes[0]) <= sizes[0] // 100
    assert Catalogue().bytes() == 0
