"""Whatever files hold, lint ends in a report or in a ConfigError, and its report can be told."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gpuscale.base.errors import ConfigError
from gpuscale.ops.findings_text import lint_document as document
from gpuscale.ops.findings_text import lint_lines as text_lines
from gpuscale.ops.lint.checks import CHECKS
from gpuscale.ops.lint.linting import lint

WORDS = st.sampled_from(
    [
        "DCGM_FI_DEV_GPU_UTIL",
        'DCGM_FI_DEV_GPU_UTIL{pod=""}',
        "DCGM_FI_DEV_GPU_UTL",
        '{__name__=~"^a.*"}',
        "^(.*)_total$",
        "$1_x",
        "${1}_x",
        "<<.Resource>>",
        "kube_<<.Group>>_<<.Resource>>",
        "sum(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)",
        "rate(<<.Series>>{<<.LabelMatchers>>}[30s]) * 100",
        "pod",
        "namespace",
        "Node",
        "0",
        "70",
        "Value",
        "Utilization",
        "AverageValue",
    ]
)
LEAVES = WORDS | st.text(max_size=6) | st.none() | st.booleans() | st.integers(-5, 500)
LABELS = st.dictionaries(st.sampled_from(["pod", "ns", "k8s.io/x", "node"]), WORDS, max_size=2)


def mapping(**values):
    return st.fixed_dictionaries({}, optional=values)


RULE = mapping(
    seriesQuery=WORDS,
    name=mapping(**{"as": WORDS, "matches": WORDS}),
    resources=mapping(
        template=WORDS,
        namespaced=st.booleans(),
        overrides=st.dictionaries(
            st.sampled_from(["pod", "ns", "k8s.io/x"]),
            st.sampled_from([{"resource": "pod"}, {"resource": "namespace"}, {"resource": "node"}]),
            max_size=3,
        ),
    ),
    metricsQuery=WORDS,
)
RULES = st.lists(RULE, max_size=3) | mapping(
    rules=st.lists(RULE, max_size=3), externalRules=st.lists(RULE, max_size=3)
)
TARGET = mapping(type=WORDS, value=LEAVES, averageValue=LEAVES, averageUtilization=LEAVES)
IDENTIFIER = mapping(name=WORDS, selector=mapping(matchLabels=LABELS))
DESCRIBED = mapping(kind=st.sampled_from(["Pod", "Node", "Namespace", "Job", "X"]), name=WORDS)
SOURCE = mapping(metric=IDENTIFIER, target=TARGET, describedObject=DESCRIBED)
METRIC = st.sampled_from(
    [("Pods", "pods"), ("Object", "object"), ("External", "external")]
).flatmap(lambda kind: st.fixed_dictionaries({"type": st.just(kind[0]), kind[1]: SOURCE}))
HPA = st.fixed_dictionaries(
    {
        "apiVersion": st.sampled_from([f"autoscaling/{v}" for v in ("v1", "v2beta1", "v2")]),
        "kind": st.just("HorizontalPodAutoscaler"),
        "metadata": st.just({"name": "h"}),
        "spec": st.fixed_dictionaries(
            {
                "scaleTargetRef": st.just(
                    {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
                ),
                "maxReplicas": st.integers(0, 9),
                "metrics": st.lists(METRIC, max_size=2),
            },
            optional={"minReplicas": st.integers(0, 3)},
        ),
    }
)
QUERY = st.sampled_from(
    [
        "avg(DCGM_FI_DEV_GPU_UTIL)",
        "DCGM_FI_PROF_SM_ACTIVE",
        "sum(rate(DCGM_FI_DEV_GPU_UTIL[5s])) / 0",
        "avg(DCGM_FI_DEV_GPU_UTL_AVG)",
        "1",
        "(",
        "",
    ]
)
THRESHOLD = st.sampled_from(["70", "0", "-1", "nan", "inf", "1e-320", "1e320", "x", ""]) | LEAVES
TRIGGER = mapping(
    type=st.sampled_from(["prometheus", "cron"]),
    metricType=st.sampled_from(["Value", "AverageValue", "Utilization"]),
    metadata=mapping(query=QUERY, threshold=THRESHOLD),
)
SCALED_OBJECT = st.fixed_dictionaries(
    {
        "apiVersion": st.just("keda.sh/v1alpha1"),
        "kind": st.just("ScaledObject"),
        "metadata": st.just({"name": "h"}),
        "spec": mapping(
            scaleTargetRef=mapping(name=WORDS, kind=WORDS),
            minReplicaCount=LEAVES,
            maxReplicaCount=LEAVES,
            triggers=st.lists(TRIGGER, max_size=3) | LEAVES,
        ),
    }
)
ANYTHING = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["kind", "apiVersion", "spec", "items", "data", "groups", "rules"]),
            inner,
            max_size=3,
        )
    ),
    max_leaves=8,
)


def tell(*files) -> None:
    try:
        report = lint([(f"{index}.yaml", text) for index, text in enumerate(files)])
    except ConfigError:
        return
    assert list(text_lines(report))
    assert json.dumps(document(report))
    assert {finding.check.id for finding in report.findings} <= set(CHECKS)


@given(RULES, HPA)
def test_rules_and_autoscalers(rules, hpa) -> None:
    tell(json.dumps(rules), json.dumps(hpa))


@given(SCALED_OBJECT, HPA)
def test_scaled_objects(scaled_object, hpa) -> None:
    tell(json.dumps(scaled_object), json.dumps(hpa))


@given(ANYTHING)
def test_anything_at_all(data) -> None:
    tell(json.dumps(data))


@given(st.text(max_size=200))
def test_any_text(text) -> None:
    tell(text)
