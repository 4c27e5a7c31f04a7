"""Plans are made once for as long as the same metrics are served."""

import pytest

from gpuscale.base.objects.selectors import Selector, parse_selector
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import load_rules
from gpuscale.server.rules.queries.plan import MetricNotFoundError, Plans, plan_custom
from gpuscale.server.rules.resources import KUBERNETES

RULE = """
rules:
- seriesQuery: gpu{}
  resources: {overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}
  metricsQuery: %s(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def catalogue(aggregation="avg"):
    config = load_rules(RULE % aggregation, "rules.yaml")
    return Catalogue.build(config, {"gpu{}": [{"__name__": "gpu", "namespace": "n", "pod": "p"}]})


@pytest.mark.parametrize(
    "request_of",
    [
        ("pods", "ml", ("a", "b"), "gpu", Selector()),
        ("pods", "ml", ("a",), "gpu", Selector()),
        ("pods", "prod", ("a", "b"), "gpu", Selector()),
        ("pods", "ml", ("a", "b"), "gpu", parse_selector("x=y")),
        ("namespaces", None, ("ml",), "gpu", Selector()),
        ("pod", "ml", ("a", "b"), "gpu", Selector()),
    ],
)
def test_each_request_has_the_plan_that_is_made_for_it(request_of) -> None:
    served, plans = catalogue(), Plans()
    first = plans.custom(served, KUBERNETES, "pods", "ml", ("a", "b"), "gpu", Selector())
    found = plans.custom(served, KUBERNETES, *request_of)
    assert found == plan_custom(served, KUBERNETES, *request_of)
    assert plans.custom(served, KUBERNETES, *request_of) is found
    assert plans.custom(served, KUBERNETES, "pods", "ml", ("a", "b"), "gpu", Selector()) is first


def test_other_metrics_have_other_plans() -> None:
    plans, request = Plans(), ("pods", "ml", ("a",), "gpu", Selector())
    assert plans.custom(catalogue(), KUBERNETES, *request).promql.startswith("avg")
    assert plans.custom(catalogue("max"), KUBERNETES, *request).promql.startswith("max")
    with pytest.raises(MetricNotFoundError):
        plans.custom(Catalogue(), KUBERNETES, *request)
