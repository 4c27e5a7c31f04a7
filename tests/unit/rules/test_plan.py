"""From a query's result to the answer of a request."""

import math

import pytest

from gpuscale.base.objects.metric_values import ExternalValue, MetricValue
from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.series.values import Matrix, Scalar, StringValue, Vector, VectorSample
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import (
    MetricFetchError,
    MetricNotFoundError,
    UnexpectedResultError,
    plan_custom,
    plan_external,
    to_milli,
)
from gpuscale.server.rules.resources import KUBERNETES

CATALOGUE = Catalogue.build(
    load_rules(
        """
rules:
- seriesQuery: m
  resources: {overrides: {pod: {resource: pod}, namespace: {resource: namespace}}}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
- {seriesQuery: silent, resources: {template: <<.Resource>>}}
- {seriesQuery: lone, resources: {overrides: {pod: {resource: pod}}}, metricsQuery: lone}
externalRules:
- {seriesQuery: q, resources: {template: <<.Resource>>}, metricsQuery: 'sum(q{<<.LabelMatchers>>})'}
""",
        "rules.yaml",
    ),
    {
        "m": [{"__name__": "m", "pod": "a", "namespace": "n"}],
        "silent": [{"__name__": "silent", "pod": "a"}],
        "lone": [{"__name__": "lone", "pod": "a"}],
        "q": [{"__name__": "q"}],
    },
)


def custom(resource="pods", namespace="n", names=("a", "b"), metric="m", selector=""):
    return plan_custom(
        CATALOGUE, KUBERNETES, resource, namespace, names, metric, parse_selector(selector)
    )


def external(metric="q", namespace="n", selector=""):
    return plan_external(CATALOGUE, namespace, metric, parse_selector(selector))


def vector(*rows: tuple[str, float]) -> Vector:
    return Vector(tuple(VectorSample({"pod": pod}, value, 1_000) for pod, value in rows))


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        (23.5, 23_500),
        (0.0004, 0),
        (-0.0004, 0),
        (1.001, 1_000),  # 1.001 * 1000 is 1000.9999999999999 in float64
        (1.005, 1_004),  # 1.005 * 1000 is 1004.9999999999999 in float64
        (-2.5, -2_500),
        (1e17, 2**63 - 1),
        (-1e308, -(2**63 - 1)),
    ],
)
def test_values_are_cut_off_to_thousandths(value: float, milli) -> None:
    assert to_milli(value) == milli


def test_values_come_in_the_order_of_the_names_with_their_own_time() -> None:
    rows = Vector((VectorSample({"pod": "b"}, 2.0, 7), VectorSample({"pod": "a"}, 1.0, 5)))
    assert custom().answer(rows) == (MetricValue("a", 1_000, 5), MetricValue("b", 2_000, 7))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_row_that_is_no_number_is_absent_and_never_zero(value) -> None:
    assert custom().answer(vector(("a", value), ("b", 1.0))) == (MetricValue("b", 1_000, 1_000),)
    assert external().answer(vector(("a", value)), 5) == ()
    assert external().answer(Scalar(value), 5) == ()


def test_an_object_without_a_row_is_left_out_and_rows_of_others_are_passed_over() -> None:
    assert custom().answer(vector(("c", 9.0), ("a", 1.0))) == (MetricValue("a", 1_000, 1_000),)


def test_of_several_rows_for_one_object_the_last_counts() -> None:
    assert custom(names=("a",)).answer_one(vector(("a", 1.0), ("a", 2.0))).value_milli == 2_000


def test_remarks_tell_what_found_no_partner() -> None:
    rows = vector(("a", 1.0), ("a", 2.0), ("x", 3.0), ("", 4.0), ("b", math.nan))
    assert custom().remarks(rows) == (
        "1 rows are NaN or infinite and were left out",
        "1 rows have no label 'pod'; group the query by it",
        "1 rows are of other objects, such as ['x']",
        "1 objects have several rows, such as ['a']; the last counts",
        "1 of 2 objects have no row",
    )
    assert custom().remarks(vector(("a", 1.0), ("b", 2.0))) == ()


@pytest.mark.parametrize("value", [Scalar(1.0), StringValue("x"), Matrix(())])
def test_a_custom_metric_needs_a_vector(value) -> None:
    with pytest.raises(MetricFetchError, match=r"^unable to fetch metrics$"):
        custom().answer(value)


@pytest.mark.parametrize("value", [StringValue("x"), Matrix(())])
def test_an_external_metric_needs_a_vector_or_a_scalar(value) -> None:
    with pytest.raises(
        UnexpectedResultError, match=r"^encountered an unexpected query result type$"
    ):
        external().answer(value, 5)


def test_an_external_scalar_has_no_labels_and_the_time_of_its_evaluation() -> None:
    assert external().answer(Scalar(1.5), 5) == (ExternalValue(None, 1_500, 5),)


def test_an_external_vector_keeps_all_labels() -> None:
    assert external().answer(vector(("a", 1.0)), 5) == (ExternalValue({"pod": "a"}, 1_000, 1_000),)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"metric": "none"}, "the server could not find the metric none for pods"),
        (
            {"resource": "pod", "metric": "none"},
            "the server could not find the metric none for pod",
        ),
        ({"resource": "nodes"}, "the server could not find the metric m for nodes"),
        ({"resource": "things.example.com"}, None),
        ({"namespace": None}, "the server could not find the metric m for pods"),
        ({"resource": "namespaces"}, "the server could not find the metric m for namespaces"),
        ({"names": ()}, "the server could not find the metric m for pods"),
        ({"selector": "a>1"}, "the server could not find the metric m for pods"),
        ({"metric": "silent"}, "the server could not find the metric silent for pods"),
        ({"metric": "lone"}, "the server could not find the metric lone for pods"),
    ],
)
def test_what_can_not_be_asked_for_is_not_found(request_, message: str | None) -> None:
    with pytest.raises(MetricNotFoundError) as caught:
        custom(**request_)
    expected = message or "the server could not find the metric m for things.example.com"
    assert str(caught.value) == expected


def test_an_object_without_a_value_is_not_found_by_name() -> None:
    with pytest.raises(
        MetricNotFoundError, match=r"^the server could not find the metric m for pods a$"
    ):
        custom(names=("a",)).answer_one(Vector(()))


@pytest.mark.parametrize(
    ("namespace", "message"),
    [
        ("n", "the server could not find the metric none for "),
        ("default", "the server could not find the metric none for namespaces"),
    ],
)
def test_unknown_external_metrics_are_told_in_upstreams_words(namespace: str, message: str) -> None:
    with pytest.raises(MetricNotFoundError) as caught:
        external("none", namespace)
    assert str(caught.value) == message


def test_an_external_selector_that_can_not_be_asked_for_is_an_error() -> None:
    with pytest.raises(MetricFetchError):
        external(selector="a<1")


def test_the_plan_names_its_label() -> None:
    plan = plan_custom(CATALOGUE, KUBERNETES, "pod", "n", ("a",), "m", Selector())
    assert (plan.label, plan.resource.name, plan.asked_for) == ("pod", "pods", "pod")
