"""Rules and series against what the API lists and which query a request becomes.

The cases are those that prometheus-adapter's own tests and documents give (pkg/custom-provider,
docs/config-walkthrough.md, docs/externalmetrics.md, README.md, release v0.12.0), and the ones it leaves
out. The rules called K are the six of the Helm chart with rates over one minute.
"""

import pytest

from gpuscale.base.errors import ConfigError
from gpuscale.base.objects.selectors import parse_selector
from gpuscale.series.values import Vector, VectorSample
from gpuscale.server.rules.catalogue import Catalogue
from gpuscale.server.rules.config import AdapterConfig, load_rules
from gpuscale.server.rules.queries.plan import (
    MetricFetchError,
    MetricNotFoundError,
    plan_custom,
    plan_external,
)
from gpuscale.server.rules.resources import KUBERNETES, ResourceMapper, ResourceType

# The resources that upstream's tests know: ingresses and deployments are still of `extensions` there.
FIXTURE = ResourceMapper(
    [
        ResourceType("pods", "pod", "Pod"),
        ResourceType("services", "service", "Service"),
        ResourceType("namespaces", "namespace", "Namespace", namespaced=False),
        ResourceType("nodes", "node", "Node", namespaced=False),
        ResourceType("persistentvolumes", "persistentvolume", "PersistentVolume", namespaced=False),
        ResourceType("ingresses", "ingress", "Ingress", "extensions", "v1beta1"),
        ResourceType("deployments", "deployment", "Deployment", "extensions", "v1beta1"),
    ]
)


def rules_k(prefix: str = "kube_") -> str:
    containers = '{__name__=~"^container_.*",container!="POD",namespace!="",pod!=""}'
    namespaced = f'{{{prefix}namespace!="",__name__!~"^container_.*"}}'
    rate = 'sum(rate(<<.Series>>{<<.LabelMatchers>>,container!="POD"}[1m])) by (<<.GroupBy>>)'
    plain_rate = "sum(rate(<<.Series>>{<<.LabelMatchers>>}[1m])) by (<<.GroupBy>>)"
    overrides = "{overrides: {namespace: {resource: namespace}, pod: {resource: pod}}}"
    template = f"{{template: {prefix}<<.Resource>>}}"
    return f"""
rules:
- seriesQuery: '{containers}'
  name: {{matches: '^container_(.*)_seconds_total$'}}
  resources: {overrides}
  metricsQuery: '{rate}'
- seriesQuery: '{containers}'
  seriesFilters: [{{isNot: '^container_.*_seconds_total$'}}]
  name: {{matches: '^container_(.*)_total$'}}
  resources: {overrides}
  metricsQuery: '{rate}'
- seriesQuery: '{containers}'
  seriesFilters: [{{isNot: '^container_.*_total$'}}]
  name: {{matches: '^container_(.*)$'}}
  resources: {overrides}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>,container!="POD"}}) by (<<.GroupBy>>)'
- seriesQuery: '{namespaced}'
  seriesFilters: [{{isNot: '.*_total$'}}]
  name: {{matches: ''}}
  resources: {template}
  metricsQuery: 'sum(<<.Series>>{{<<.LabelMatchers>>}}) by (<<.GroupBy>>)'
- seriesQuery: '{namespaced}'
  seriesFilters: [{{isNot: '.*_seconds_total'}}]
  name: {{matches: '^(.*)_total$'}}
  resources: {template}
  metricsQuery: '{plain_rate}'
- seriesQuery: '{namespaced}'
  name: {{matches: '^(.*)_seconds_total$'}}
  resources: {template}
  metricsQuery: '{plain_rate}'
"""


def series(name: str, *labels: str) -> dict[str, str]:
    return {"__name__": name, **dict.fromkeys(labels, "x")}


def discovered(config: AdapterConfig, *found: dict[str, str]) -> Catalogue:
    """Give each rule the series that its query would find: containers to the first three of K."""
    answers = {
        query: [
            labels
            for labels in found
            if ("^container_" not in query)
            or (("=~" in query) == labels["__name__"].startswith("container_"))
        ]
        for query in config.series_queries()
    }
    return Catalogue.build(config, answers)


def listed(catalogue: Catalogue) -> set[tuple[str, bool]]:
    return {(metric.name, metric.namespaced) for metric in catalogue.custom_resources()}


CONTAINER = ("pod", "namespace", "container")
INGRESS = ("kube_ingress", "kube_service", "kube_pod", "kube_namespace")
A1_QUERY = 'sum(container_some_usage{namespace="somens",pod=~"somepod1|somepod2",container!="POD"}) by (pod)'
A2_QUERY = (
    "sum(rate(container_some_count_total"
    '{namespace="somens",pod=~"somepod1|somepod2",container!="POD"}[1m])) by (pod)'
)
A3_QUERY = (
    "sum(rate(container_some_time_seconds_total"
    '{namespace="somens",pod=~"somepod1|somepod2",container!="POD"}[1m])) by (pod)'
)
HITS = {
    ("services/ingress_hits", True),
    ("ingresses.extensions/ingress_hits", True),
    ("pods/ingress_hits", True),
    ("namespaces/ingress_hits", False),
}


def hits(matchers: str, label: str) -> str:
    return f"sum(rate(ingress_hits_total{{{matchers}}}[1m])) by ({label})"


@pytest.mark.parametrize(
    ("found", "entries", "resource", "names", "metric", "selector", "promql"),
    [
        pytest.param(
            series("container_some_usage", *CONTAINER),
            {("pods/some_usage", True), ("namespaces/some_usage", False)},
            "pods",
            ("somepod1", "somepod2"),
            "some_usage",
            "",
            A1_QUERY,
            id="A1",
        ),
        pytest.param(
            series("container_some_count_total", *CONTAINER),
            {("pods/some_count", True), ("namespaces/some_count", False)},
            "pods",
            ("somepod1", "somepod2"),
            "some_count",
            "",
            A2_QUERY,
            id="A2",
        ),
        pytest.param(
            series("container_some_time_seconds_total", *CONTAINER),
            {("pods/some_time", True), ("namespaces/some_time", False)},
            "pods",
            ("somepod1", "somepod2"),
            "some_time",
            "",
            A3_QUERY,
            id="A3",
        ),
        pytest.param(
            series("ingress_hits_total", *INGRESS),
            HITS,
            "service",
            ("somesvc",),
            "ingress_hits",
            "",
            hits('kube_namespace="somens",kube_service="somesvc"', "kube_service"),
            id="A4",
        ),
        pytest.param(
            series("ingress_hits_total", *INGRESS),
            HITS,
            "service",
            ("somesvc",),
            "ingress_hits",
            "param1=value1",
            hits('param1="value1",kube_namespace="somens",kube_service="somesvc"', "kube_service"),
            id="A5",
        ),
        pytest.param(
            series("ingress_hits_total", *INGRESS),
            HITS,
            "ingress.extensions",
            ("someingress",),
            "ingress_hits",
            "",
            hits('kube_namespace="somens",kube_ingress="someingress"', "kube_ingress"),
            id="A6",
        ),
        pytest.param(
            series("ingress_hits_total", *INGRESS),
            HITS,
            "pod",
            ("somepod",),
            "ingress_hits",
            "",
            hits('kube_namespace="somens",kube_pod="somepod"', "kube_pod"),
            id="A7",
        ),
        pytest.param(
            series("service_proxy_packets", "kube_service", "kube_namespace"),
            {("services/service_proxy_packets", True), ("namespaces/service_proxy_packets", False)},
            "service",
            ("somesvc",),
            "service_proxy_packets",
            "",
            'sum(service_proxy_packets{kube_namespace="somens",kube_service="somesvc"}) '
            "by (kube_service)",
            id="A8",
        ),
        pytest.param(
            series("work_queue_wait_seconds_total", "kube_deployment", "kube_namespace"),
            {
                ("deployments.extensions/work_queue_wait", True),
                ("namespaces/work_queue_wait", False),
            },
            "deployment",
            ("somedep",),
            "work_queue_wait",
            "",
            "sum(rate(work_queue_wait_seconds_total"
            '{kube_namespace="somens",kube_deployment="somedep"}[1m])) by (kube_deployment)',
            id="A9",
        ),
        pytest.param(
            series("node_gigawatts", "kube_node"),
            {("nodes/node_gigawatts", False)},
            "node",
            ("somenode",),
            "node_gigawatts",
            "",
            'sum(node_gigawatts{kube_node="somenode"}) by (kube_node)',
            id="A10",
        ),
        pytest.param(
            series("volume_claims_total", "kube_persistentvolume"),
            {("persistentvolumes/volume_claims", False)},
            "persistentvolume",
            ("somepv",),
            "volume_claims",
            "",
            'sum(rate(volume_claims_total{kube_persistentvolume="somepv"}[1m])) '
            "by (kube_persistentvolume)",
            id="A11",
        ),
        pytest.param(
            series("node_fan_seconds_total", "kube_node"),
            {("nodes/node_fan", False)},
            "node",
            ("somenode",),
            "node_fan",
            "",
            'sum(rate(node_fan_seconds_total{kube_node="somenode"}[1m])) by (kube_node)',
            id="A12",
        ),
    ],
)
def test_default_rules_list_and_ask_as_upstream(
    found, entries, resource: str, names: tuple[str, ...], metric: str, selector: str, promql
) -> None:
    catalogue = discovered(load_rules(rules_k(), "k.yaml", FIXTURE), found, found)
    assert listed(catalogue) == entries
    cluster_wide = resource in {"node", "persistentvolume"}
    namespace = None if cluster_wide else "somens"
    plan = plan_custom(
        catalogue, FIXTURE, resource, namespace, names, metric, parse_selector(selector)
    )
    assert plan.promql == promql


def test_a13_series_of_several_resources_give_an_entry_for_each() -> None:
    catalogue = discovered(
        load_rules(rules_k(prefix=""), "k.yaml", FIXTURE),
        series("container_some_usage", *CONTAINER),
        series("ingress_hits_total", "ingress", "service", "pod", "namespace"),
        series("service_proxy_packets", "service", "namespace"),
        series("work_queue_wait_seconds_total", "deployment", "namespace"),
    )
    assert {name for name, _ in listed(catalogue)} == {
        "services/ingress_hits",
        "ingresses.extensions/ingress_hits",
        "pods/ingress_hits",
        "namespaces/ingress_hits",
        "services/service_proxy_packets",
        "namespaces/service_proxy_packets",
        "deployments.extensions/work_queue_wait",
        "namespaces/work_queue_wait",
        "pods/some_usage",
        "namespaces/some_usage",
    }


WALKTHROUGH = """
rules:
- seriesQuery: 'http_requests_total{kubernetes_namespace!="",kubernetes_pod_name!=""}'
  resources:
    overrides:
      kubernetes_namespace: {resource: namespace}
      kubernetes_pod_name: {resource: pod}
  name: {matches: "^(.*)_total", as: "${1}_per_second"}
  metricsQuery: 'sum(rate(<<.Series>>{<<.LabelMatchers>>}[2m])) by (<<.GroupBy>>)'
"""
REQUESTS = series("http_requests_total", "kubernetes_namespace", "kubernetes_pod_name")


def custom(catalogue, resource, namespace, names, metric, selector="", mapper=KUBERNETES):
    return plan_custom(
        catalogue, mapper, resource, namespace, names, metric, parse_selector(selector)
    )


def test_a14_overrides_and_a_new_name() -> None:
    catalogue = discovered(load_rules(WALKTHROUGH, "w.yaml"), REQUESTS)
    assert listed(catalogue) == {
        ("pods/http_requests_per_second", True),
        ("namespaces/http_requests_per_second", False),
    }
    plan = custom(catalogue, "pods", "production", ("a", "b"), "http_requests_per_second")
    assert plan.promql == (
        'sum(rate(http_requests_total{kubernetes_namespace="production",'
        'kubernetes_pod_name=~"a|b"}[2m])) by (kubernetes_pod_name)'
    )


def test_a15_a_metric_of_the_namespace_itself() -> None:
    catalogue = discovered(load_rules(WALKTHROUGH, "w.yaml"), REQUESTS)
    plan = custom(catalogue, "namespaces", None, ("production",), "http_requests_per_second")
    assert plan.promql == (
        'sum(rate(http_requests_total{kubernetes_namespace="production"}[2m])) '
        "by (kubernetes_namespace)"
    )


def test_a16_a_label_template_tries_every_label() -> None:
    rules = """
rules:
- seriesQuery: '{namespace!="",__name__!~"^container_.*"}'
  resources: {template: <<.Resource>>}
  name: {matches: "^(.*)_total", as: ""}
  metricsQuery: 'sum by (<<.GroupBy>>) (irate(<<.Series>>{<<.LabelMatchers>>}[1m]))'
"""
    labels = ("namespace", "pod", "service", "job", "instance", "endpoint")
    catalogue = discovered(load_rules(rules, "w.yaml"), series("http_requests_total", *labels))
    assert {name for name, _ in listed(catalogue)} == {
        "pods/http_requests",
        "services/http_requests",
        "namespaces/http_requests",
        "jobs.batch/http_requests",
    }
    plan = custom(catalogue, "pods", "n", ("p",), "http_requests")
    assert plan.promql == ('sum by (pod) (irate(http_requests_total{namespace="n",pod="p"}[1m]))')


CHEDDAR = """
rules:
- seriesQuery: 'cheddar{sharp="true"}'
  resources: {overrides: {brand: {group: cheese.io, resource: brand}, namespace: {resource: namespace}}}
  metricsQuery: 'count(cheddar{sharp="true"})'
  name: {as: cheesy_goodness}
"""
DAIRY = KUBERNETES.extended(ResourceType("brands", "brand", "Brand", "cheese.io"))


def test_a17_a_constant_query_finds_no_object() -> None:
    catalogue = discovered(
        load_rules(CHEDDAR, "c.yaml", DAIRY), series("cheddar", "sharp", "brand", "namespace")
    )
    assert ("brands.cheese.io/cheesy_goodness", True) in listed(catalogue)
    plan = custom(catalogue, "brands.cheese.io", "n", ("acme",), "cheesy_goodness", mapper=DAIRY)
    assert plan.promql == 'count(cheddar{sharp="true"})'
    no_brand = Vector((VectorSample({}, 3.0, 0),))
    assert plan.answer(no_brand) == ()
    with pytest.raises(MetricNotFoundError) as caught:
        plan.answer_one(no_brand)
    assert str(caught.value) == (
        "the server could not find the metric cheesy_goodness for brands.cheese.io acme"
    )


def test_a18_a_template_may_use_its_matchers_twice() -> None:
    rules = """
rules:
- seriesQuery: foo_total
  resources: {overrides: {system_name: {resource: node}}}
  name: {matches: 'foo_total', as: 'foo'}
  metricsQuery: >-
    sum(foo_total{<<.LabelMatchers>>}) by (<<.GroupBy>>)
    / sum(foo_count{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""
    catalogue = discovered(load_rules(rules, "r.yaml"), series("foo_total", "system_name"))
    assert listed(catalogue) == {("nodes/foo", False)}
    assert custom(catalogue, "nodes", None, ("n1",), "foo").promql == (
        'sum(foo_total{system_name="n1"}) by (system_name) '
        '/ sum(foo_count{system_name="n1"}) by (system_name)'
    )


@pytest.mark.parametrize(
    ("resource", "label"),
    [
        ("deployments.apps", "kube_apps_deployment"),
        ("jobs.batch", "kube_batch_job"),
        ("ingresses.networking.k8s.io", "kube_networking_k8s_io_ingress"),
        ("pods", "kube__pod"),
    ],
)
def test_a19_groups_in_label_templates(resource: str, label: str) -> None:
    rules = """
rules:
- seriesQuery: m
  resources: {template: kube_<<.Group>>_<<.Resource>>}
  metricsQuery: m
"""
    config = load_rules(rules, "r.yaml")
    assert config.rules[0].labels.label_for(KUBERNETES.parse(resource)) == label
    catalogue = discovered(config, series("m", "kube_apps_deployment", "kube__pod"))
    # An empty group never matches on the way back.
    assert listed(catalogue) == {("deployments.apps/m", True)}


def test_a20_filters_leave_a_counter_to_one_rule() -> None:
    catalogue = discovered(
        load_rules(rules_k(), "k.yaml", FIXTURE), series("container_x_seconds_total", *CONTAINER)
    )
    assert {name for name, _ in listed(catalogue)} == {"pods/x", "namespaces/x"}


def test_a21_gauges_counters_and_seconds_go_to_their_own_rules() -> None:
    labels = ("kube_namespace", "kube_pod")
    catalogue = discovered(
        load_rules(rules_k(), "k.yaml", FIXTURE),
        series("up", *labels),
        series("a_total", *labels),
        series("b_seconds_total", *labels),
    )
    assert {name for name, _ in listed(catalogue) if name.startswith("pods/")} == {
        "pods/up",
        "pods/a",
        "pods/b",
    }


def test_a22_the_last_rule_has_the_name() -> None:
    rules = """
rules:
- {seriesQuery: m, resources: {template: <<.Resource>>}, metricsQuery: 'max(m{<<.LabelMatchers>>})'}
- {seriesQuery: m, resources: {template: <<.Resource>>}, metricsQuery: 'min(m{<<.LabelMatchers>>})'}
"""
    catalogue = discovered(load_rules(rules, "r.yaml"), series("m", "namespace", "pod"))
    assert listed(catalogue) == {("pods/m", True), ("namespaces/m", False)}
    assert custom(catalogue, "pods", "n", ("p",), "m").promql == 'min(m{namespace="n",pod="p"})'


def test_a23_two_groups_without_as_are_refused() -> None:
    rules = 'rules:\n- {seriesQuery: m, name: {matches: "^(.*)_(.*)$"}, metricsQuery: m}\n'
    with pytest.raises(ConfigError) as caught:
        load_rules(rules, "r.yaml")
    assert str(caught.value) == (
        "r.yaml:2: rules[0].name.matches: found 2 groups in '^(.*)_(.*)$', "
        "expected at most one group, or an `as` that says what to make of them"
    )


LAG = """
externalRules:
- seriesQuery: '{__name__="queue_consumer_lag",name!=""}'
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (name)
  resources: {overrides: {namespace: {resource: namespace}}}
"""


def external(rules: str, name: str, metric: str, selector: str, namespace: str = "default") -> str:
    catalogue = discovered(load_rules(rules, "e.yaml"), series(name, "name", "namespace"))
    assert catalogue.external_metrics() == (metric,)
    return plan_external(catalogue, namespace, metric, parse_selector(selector)).promql


def test_a24_an_external_metric_asks_for_its_namespace() -> None:
    assert external(LAG, "queue_consumer_lag", "queue_consumer_lag", "") == (
        'sum(queue_consumer_lag{namespace="default"}) by (name)'
    )


def test_a25_the_selector_comes_before_the_namespace() -> None:
    assert external(LAG, "queue_consumer_lag", "queue_consumer_lag", "name=q1") == (
        'sum(queue_consumer_lag{name="q1",namespace="default"}) by (name)'
    )


def test_a26_a_rule_without_namespaces_leaves_them_to_the_selector() -> None:
    rules = """
externalRules:
- seriesQuery: queue_depth
  metricsQuery: sum(<<.Series>>{<<.LabelMatchers>>}) by (name)
  resources: {namespaced: false}
"""
    selector = "name=my-sample-queue,namespace=queue"
    assert external(rules, "queue_depth", "queue_depth", selector) == (
        'sum(queue_depth{name="my-sample-queue",namespace="queue"}) by (name)'
    )


def test_a27_a_rule_that_knows_no_namespace_label_is_listed_and_fails() -> None:
    rules = """
externalRules:
- {seriesQuery: m, metricsQuery: 'sum(<<.Series>>{<<.LabelMatchers>>})'}
"""
    catalogue = discovered(load_rules(rules, "e.yaml"), series("m", "name"))
    assert catalogue.external_metrics() == ("m",)
    with pytest.raises(MetricFetchError, match=r"^unable to fetch metrics$"):
        plan_external(catalogue, "default", "m", parse_selector(""))


def test_a28_an_external_query_groups_by_nothing() -> None:
    rules = """
externalRules:
- seriesQuery: m
  metricsQuery: sum(m{<<.LabelMatchers>>}) by (<<.GroupBy>>)
  resources: {namespaced: false}
"""
    assert external(rules, "m", "m", "") == "sum(m{}) by ()"


GPU = """
rules:
- seriesQuery: 'DCGM_FI_DEV_GPU_UTIL{exported_namespace!="",exported_pod!=""}'
  resources:
    overrides:
      exported_namespace: {resource: namespace}
      exported_pod: {resource: pod}
  name: {as: gpu_util}
  metricsQuery: avg(<<.Series>>{<<.LabelMatchers>>}) by (<<.GroupBy>>)
"""


def test_a29_gpu_series_whose_pod_was_renamed_by_the_scrape() -> None:
    found = series("DCGM_FI_DEV_GPU_UTIL", "exported_namespace", "exported_pod", "pod", "namespace")
    catalogue = discovered(load_rules(GPU, "g.yaml"), found)
    assert {name for name, _ in listed(catalogue)} == {"pods/gpu_util", "namespaces/gpu_util"}
    assert custom(catalogue, "pods", "ml", ("g-0", "g-1"), "gpu_util").promql == (
        'avg(DCGM_FI_DEV_GPU_UTIL{exported_namespace="ml",exported_pod=~"g-0|g-1"}) '
        "by (exported_pod)"
    )


def test_a30_the_exporters_pod_instead_of_the_workloads_gives_an_empty_list() -> None:
    found = series("DCGM_FI_DEV_GPU_UTIL", "exported_namespace", "exported_pod", "pod", "namespace")
    catalogue = discovered(load_rules(rules_k(prefix=""), "k.yaml", FIXTURE), found)
    plan = custom(catalogue, "pods", "ml", ("g-0", "g-1"), "DCGM_FI_DEV_GPU_UTIL", mapper=FIXTURE)
    assert plan.promql == ('sum(DCGM_FI_DEV_GPU_UTIL{namespace="ml",pod=~"g-0|g-1"}) by (pod)')
    assert plan.answer(Vector(())) == ()


MANIFEST = """
resourceRules:
  cpu:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        irate (
            container_cpu_usage_seconds_total{<<.LabelMatchers>>,container!="",pod!=""}[4m]
        )
      )
    nodeQuery: |
      sum by (<<.GroupBy>>) (
        irate(
            node_cpu_usage_seconds_total{<<.LabelMatchers>>}[4m]
        )
      )
    resources: &labels
      overrides:
        namespace: {resource: namespace}
        node: {resource: node}
        pod: {resource: pod}
  memory:
    containerLabel: container
    containerQuery: |
      sum by (<<.GroupBy>>) (
        container_memory_working_set_bytes{<<.LabelMatchers>>,container!="",pod!=""}
      )
    nodeQuery: |
      sum by (<<.GroupBy>>) (
        node_memory_working_set_bytes{<<.LabelMatchers>>}
      )
    resources: *labels
  window: 5m
"""


def squeezed(promql: str) -> str:
    return "".join(promql.split())


def test_a31_cpu_of_containers() -> None:
    rules = load_rules(MANIFEST, "config.yaml").resource_rules
    assert squeezed(rules.cpu.pods_query("some-ns", ("p1", "p3"))) == (
        "sumby(pod,container)(irate(container_cpu_usage_seconds_total"
        '{namespace="some-ns",pod=~"p1|p3",container!="",pod!=""}[4m]))'
    )


def test_a32_cpu_of_nodes() -> None:
    rules = load_rules(MANIFEST, "config.yaml").resource_rules
    assert squeezed(rules.cpu.nodes_query(("node1", "node2"))) == (
        'sumby(node)(irate(node_cpu_usage_seconds_total{node=~"node1|node2"}[4m]))'
    )
